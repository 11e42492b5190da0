package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/codec"
	"github.com/fairlead/fairlead/internal/vault"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/worker/host"
)

// patience bounds every wait of this test.
const patience = time.Minute

// TestStartsWhileEverythingIsDown starts a worker on an empty database with
// PostgreSQL and Temporal out of reach, lets them come one after the other,
// carries out a run, takes Temporal away and gives it back, and stops in order.
func TestStartsWhileEverythingIsDown(t *testing.T) {
	temporalAddress := os.Getenv("TEMPORAL_ADDRESS")
	if temporalAddress == "" {
		t.Fatal("TEMPORAL_ADDRESS is not set: run `make test`, which brings the servers and sets it")
	}
	databaseURL, err := url.Parse(dbtest.EmptyURL(t))
	if err != nil {
		t.Fatal(err)
	}
	key, err := vault.GenerateLocal()
	if err != nil {
		t.Fatal(err)
	}
	direct := databaseURL.String()
	database, temporal := newGate(t, databaseURL.Host), newGate(t, temporalAddress)
	databaseURL.Host = database.address
	health := freeAddress(t)
	queue := "host-" + uuid.NewString()
	for name, value := range map[string]string{
		"FAIRLEAD_DATABASE_URL": databaseURL.String(), "TEMPORAL_ADDRESS": temporal.address,
		"FAIRLEAD_HTTP_ADDRESS": health, "FAIRLEAD_TASK_QUEUE": queue, "FAIRLEAD_SHUTDOWN_GRACE": "2s",
		"FAIRLEAD_LOG_FORMAT": "json", "FAIRLEAD_MODEL": "", "FAIRLEAD_DEFINITIONS": "", "FAIRLEAD_CATALOGUE": "", "FAIRLEAD_LOG_LEVEL": "",
		"FAIRLEAD_ENCRYPTION_KEY": key, "FAIRLEAD_ENCRYPTION_KEY_URI": "",
	} {
		t.Setenv(name, value)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var logs syncBuffer
	finished := make(chan error, 1)
	go func() { finished <- host.Run(ctx, options(&logs)) }()

	readiness := func(check, want string) {
		t.Helper()
		waitFor(t, check+" "+want, func() bool { return checkState(health, check) == want })
	}
	readiness("database", "the database cannot be reached")
	readiness("temporal", "the Temporal server cannot be reached")
	temporal.open()
	readiness("temporal", "ok")
	if got := checkState(health, "ready"); got != "503" {
		t.Errorf("/readyz gives %s without a database", got)
	}
	database.open()
	readiness("ready", "200")
	answer(t, temporalAddress, queue, direct, key)

	temporal.close()
	readiness("temporal", "the Temporal server cannot be reached")
	temporal.open()
	readiness("ready", "200")
	answer(t, temporalAddress, queue, direct, key)

	stop()
	select {
	case err := <-finished:
		if err != nil {
			t.Errorf("Run ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Run did not end")
	}
	text := logs.String()
	for message, want := range map[string]int{
		`"check failed, trying again until it passes","check":"database"`: 1,
		`"check failed, trying again until it passes","check":"temporal"`: 2,
		`"check passed","check":"temporal"`:                               2,
		`"polling for work"`:                                              1,
		`"nothing is in flight any more"`:                                 1,
	} {
		if got := strings.Count(text, message); got != want {
			t.Errorf("the log says %s %d times, want %d", message, got, want)
		}
	}
	if strings.Contains(text, question) || strings.Contains(text, reply) {
		t.Error("content reached the log")
	}
	if t.Failed() {
		t.Log(text)
	}
}

const (
	question = "canary-question-51c9"
	reply    = "canary-reply-51c9"
)

func options(logs io.Writer) host.Options {
	return host.Options{
		Migrate: true, Log: logs,
		Definitions: []definition.Definition{{
			Name: "helper", Version: "1", System: "Help.", Model: "scripted", Environments: []string{"test"},
			Budget: definition.Budget{MaxSteps: 3, MaxTokens: 100_000, Timeout: time.Minute},
		}},
		Models: map[string]model.Model{"scripted": scripted.New(scripted.RepeatLast(scripted.Turn{Text: reply}))},
	}
}

// answer has one run carried out by the worker. Its history holds no content.
func answer(t *testing.T, address, queue, databaseURL, key string) {
	t.Helper()
	kek, err := vault.Local(key)
	if err != nil {
		t.Fatal(err)
	}
	database, err := db.Open(t.Context(), databaseURL, db.Options{MaxConns: 2, KeyEncryption: kek})
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	c, err := client.Dial(client.Options{
		HostPort: address, Namespace: os.Getenv("TEMPORAL_NAMESPACE"), Logger: silent{}, DataConverter: codec.DataConverter(database),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request := agent.RunRequest{
		RunID: uuid.NewString(), Tenant: "acme", User: "ann", Conversation: uuid.NewString(),
		Agent: "helper", Environment: "test", Message: question,
	}
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: agent.WorkflowID(request.Tenant, request.RunID), TaskQueue: queue}, agent.WorkflowAgentRun, request)
	if err != nil {
		t.Fatal(err)
	}
	var result agent.RunResult
	if err := run.Get(ctx, &result); err != nil || result.Status != agent.StatusSucceeded {
		t.Errorf("the run ended as %+v, %v", result, err)
	}
	for events := c.GetWorkflowHistory(ctx, run.GetID(), "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		if text := event.String(); strings.Contains(text, question) || strings.Contains(text, reply) {
			t.Errorf("content in the history: %s", text)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	for name, test := range map[string]struct{ database, key, uri, want string }{
		"no database":     {"", "", "", "FAIRLEAD_DATABASE_URL"},
		"no key":          {"postgres://u@127.0.0.1:1/d", "", "", "starter encryption-key"},
		"a malformed key": {"postgres://u@127.0.0.1:1/d", "x", "", "FAIRLEAD_ENCRYPTION_KEY)"},
		"a foreign KMS":   {"postgres://u@127.0.0.1:1/d", "", "absent-kms://key", "no KMS client for absent-kms://"},
	} {
		t.Setenv("FAIRLEAD_DATABASE_URL", test.database)
		t.Setenv("FAIRLEAD_ENCRYPTION_KEY", test.key)
		t.Setenv("FAIRLEAD_ENCRYPTION_KEY_URI", test.uri)
		for _, err := range []error{host.Run(t.Context(), host.Options{Log: io.Discard}), host.Migrate(t.Context(), host.Options{Log: io.Discard})} {
			var setup *host.SetupError
			if err == nil || !errors.As(err, &setup) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q in it", name, err, test.want)
			}
		}
	}
}

// checkState is "ok" or the reason of a check; for "ready" it is the HTTP
// status.
func checkState(address, check string) string {
	response, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	if check == "ready" {
		return fmt.Sprint(response.StatusCode)
	}
	var report struct {
		Checks map[string]struct {
			OK     bool
			Reason string
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&report); err != nil {
		return err.Error()
	}
	if report.Checks[check].OK {
		return "ok"
	}
	return report.Checks[check].Reason
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("waited %s in vain for: %s", patience, what)
		case <-tick.C:
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// gate forwards connections to target while it is open, and refuses and cuts
// them while it is closed, as a server that is down does.
type gate struct {
	t               *testing.T
	address, target string
	mu              sync.Mutex
	listener        net.Listener
	connections     []net.Conn
}

func newGate(t *testing.T, target string) *gate {
	g := &gate{t: t, address: freeAddress(t), target: target}
	t.Cleanup(g.close)
	return g
}

func (g *gate) open() {
	g.t.Helper()
	listener, err := net.Listen("tcp", g.address)
	if err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	g.listener = listener
	g.mu.Unlock()
	go func() {
		for {
			inside, err := listener.Accept()
			if err != nil {
				return
			}
			outside, err := net.Dial("tcp", g.target)
			if err != nil {
				inside.Close()
				continue
			}
			g.mu.Lock()
			g.connections = append(g.connections, inside, outside)
			g.mu.Unlock()
			go forward(inside, outside)
			go forward(outside, inside)
		}
	}()
}

func forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
	from.Close()
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listener != nil {
		g.listener.Close()
		g.listener = nil
	}
	for _, c := range g.connections {
		c.Close()
	}
	g.connections = nil
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

var _ log.Logger = silent{}
