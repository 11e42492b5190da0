// Package endtoend runs whole agents on a real PostgreSQL and a real Temporal
// server; only the model is scripted. It holds tests alone. `make test` brings
// both servers and sets their addresses; without them the tests fail, they do
// not skip.
package endtoend

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/codec"
	"github.com/fairlead/fairlead/internal/rig"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
	"github.com/fairlead/fairlead/worker/host"
)

const (
	// grace is how long a stopping worker lets activities finish.
	grace = 4 * time.Second
	// patience bounds every wait of these tests.
	patience = 4 * time.Minute
)

// envPurchases names the file in which a worker process writes down what it
// buys. With it set, this test binary is a worker.
const envPurchases = "FAIRLEAD_ENDTOEND_PURCHASES"

func TestMain(m *testing.M) {
	// The suite runs a second time with the cache at 0, so that every workflow
	// task replays the whole history.
	if size, err := strconv.Atoi(os.Getenv("FAIRLEAD_WORKFLOW_CACHE")); err == nil {
		worker.SetStickyWorkflowCacheSize(size)
	}
	if os.Getenv(envPurchases) != "" {
		os.Args = []string{"worker", "run"}
		host.Main(doomed(workerProcess))
	}
	code := m.Run()
	if programs != "" {
		_ = os.RemoveAll(programs)
	}
	os.Exit(code)
}

// purchases writes one line for each call that reaches the model: what a
// provider would bill, kept outside of what is tested.
type purchases struct {
	model.Model
	file *os.File
}

func (p purchases) Generate(ctx context.Context, req model.Request, stream func(model.Delta)) (model.Response, error) {
	if _, err := fmt.Fprintln(p.file, scripted.LastUser(req)); err != nil {
		return model.Response{}, err
	}
	return p.Model.Generate(ctx, req, stream)
}

func config(database *db.DB) (rig.Config, error) {
	defs, err := definitions()
	return rig.Config{
		DB: database, Model: scripted.New(script), Entries: []model.Entry{tiny},
		Tools: tools(), Definitions: defs, Grace: grace,
	}, err
}

// workerProcess says what the worker process serves; host.Main does the rest, as
// in every real worker.
func workerProcess() (host.Options, error) {
	file, err := os.OpenFile(os.Getenv(envPurchases), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return host.Options{}, err
	}
	catalogue, err := model.DefaultCatalogue().With(tiny)
	if err != nil {
		return host.Options{}, err
	}
	readers, err := definitions()
	if err != nil {
		return host.Options{}, err
	}
	writing, err := changers()
	if err != nil {
		return host.Options{}, err
	}
	keeping, err := keepers()
	return host.Options{
		Tools:       slices.Concat(tools(), writers(newThings()), []tool.Tool{bearInMind()}),
		Definitions: slices.Concat(readers, writing, keeping), Catalogue: &catalogue,
		Models: map[string]model.Model{"scripted": purchases{scripted.New(keep), file}}, Policies: policies,
	}, err
}

// dial returns the one connection of this process, which is never closed.
var dial = sync.OnceValues(func() (client.Client, error) {
	address := os.Getenv("TEMPORAL_ADDRESS")
	if address == "" {
		return nil, errors.New("TEMPORAL_ADDRESS is not set: run `make test`, which brings the servers and sets it")
	}
	return client.Dial(client.Options{HostPort: address, Namespace: namespace(), Logger: silent})
})

func namespace() string { return cmp.Or(os.Getenv("TEMPORAL_NAMESPACE"), client.DefaultNamespace) }

var silent = log.NewStructuredLogger(slog.New(slog.DiscardHandler))

// world is one test's own database and task queue on the shared servers.
type world struct {
	testing.TB
	ctx    context.Context
	db     *db.DB
	url    string
	client client.Client
	queue  string
	// owner is past all stores and row-level security, so that what a test
	// counts does not rest on what it tests.
	owner *pgxpool.Pool
}

func newWorld(t testing.TB) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	w := &world{TB: t, ctx: ctx, queue: "endtoend-" + uuid.NewString()}
	w.url = dbtest.URL(t)
	w.db, w.owner = dbtest.Open(t, w.url, db.Options{}), dbtest.Owner(t, w.url)
	w.client = connect(t, codec.DataConverter(w.db))
	return w
}

// connect returns a client with the data converter; nil is the SDK's own.
func connect(t testing.TB, converter converter.DataConverter) client.Client {
	t.Helper()
	dialed, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewClientFromExisting(dialed, client.Options{Namespace: namespace(), Logger: silent, DataConverter: converter})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// in returns the same world for a subtest.
func (w *world) in(t testing.TB) *world {
	sub := *w
	sub.TB = t
	return &sub
}

// withWorker starts a worker in this process.
func (w *world) withWorker(edit func(*rig.Config)) *world {
	w.Helper()
	c, err := config(w.db)
	if err != nil {
		w.Fatal(err)
	}
	if edit != nil {
		edit(&c)
	}
	running, err := rig.Poller(c, w.client, w.queue)
	if err != nil {
		w.Fatal(err)
	}
	if err := running.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { running.Stop() })
	return w
}

// process is a worker process.
type process struct {
	*exec.Cmd
	exited chan struct{}
	// health is the address of its health endpoint.
	health string
}

// startProcess starts a worker process and waits until it takes work. edit may
// change how it is started. Somebody else may take the port that was free a moment
// ago, such as a connection to the servers: it is started again with another one.
func (w *world) startProcess(edit ...func(*exec.Cmd)) *process {
	w.Helper()
	for range 5 {
		p := w.tryProcess(edit...)
		gone := false
		w.until("the worker process is ready", func() bool {
			select {
			case <-p.exited:
				gone = true
			default:
			}
			return gone || p.ready() == http.StatusOK
		})
		if !gone {
			return p
		}
	}
	w.Fatal("the worker process ends before it is ready")
	return nil
}

func (w *world) tryProcess(edit ...func(*exec.Cmd)) *process {
	w.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = os.Remove(w.purchasesFile()) })
	p := &process{Cmd: exec.Command(os.Args[0]), exited: make(chan struct{}), health: free.Addr().String()}
	if err := free.Close(); err != nil {
		w.Fatal(err)
	}
	p.Env = append(os.Environ(), envPurchases+"="+w.purchasesFile(),
		"FAIRLEAD_TASK_QUEUE="+w.queue, "FAIRLEAD_DATABASE_URL="+w.url, "FAIRLEAD_DATABASE_MAX_CONNS=8",
		"FAIRLEAD_HTTP_ADDRESS="+p.health, "FAIRLEAD_SHUTDOWN_GRACE="+grace.String(), "FAIRLEAD_LOG_LEVEL=error",
		"FAIRLEAD_APPROVAL_PUBLIC_KEYS="+approvalKey.Public(), "FAIRLEAD_ENCRYPTION_KEY="+dbtest.EncryptionKey(w))
	p.Stdout, p.Stderr = os.Stderr, os.Stderr
	for _, change := range edit {
		change(p.Cmd)
	}
	if err := p.Start(); err != nil {
		w.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.exited) }()
	w.Cleanup(func() { _ = p.Process.Kill(); <-p.exited })
	return p
}

// ready returns the status of /readyz, 0 when nothing answers.
func (p *process) ready() int {
	status, _ := p.get("/readyz")
	return status
}

func (p *process) get(path string) (status int, body string) {
	response, err := http.Get("http://" + p.health + path)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, string(text)
}

// kill ends the process as a crash would.
func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.exited
}

func (w *world) purchasesFile() string {
	return filepath.Join(os.TempDir(), w.queue+".purchases")
}

func (w *world) bought() int {
	w.Helper()
	file, err := os.Open(w.purchasesFile())
	if err != nil {
		w.Fatal(err)
	}
	defer file.Close()
	n := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		n++
	}
	return n
}

// request asks the looker to play scenario.
func request(scenario string) agent.RunRequest {
	id := uuid.NewString()
	return agent.RunRequest{
		RunID: id, Tenant: "acme", User: "ann", Conversation: "talk-" + id,
		Agent: "looker", Environment: "test", Message: scenario,
	}
}

func (w *world) options(req agent.RunRequest) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID: agent.WorkflowID(req.Tenant, req.RunID), TaskQueue: w.queue, WorkflowExecutionTimeout: 10 * time.Minute,
	}
}

func (w *world) start(req agent.RunRequest) client.WorkflowRun {
	w.Helper()
	run, err := w.client.ExecuteWorkflow(w.ctx, w.options(req), agent.WorkflowAgentRun, req)
	if err != nil {
		w.Fatal(err)
	}
	return run
}

// wait returns the result of a run, canceled ones included.
func (w *world) wait(run client.WorkflowRun) agent.RunResult {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	var result agent.RunResult
	err := run.Get(ctx, &result)
	var canceled *temporal.CanceledError
	if errors.As(err, &canceled) {
		err = canceled.Details(&result)
	}
	if err != nil {
		w.Fatalf("run %s: %v", run.GetID(), err)
	}
	return result
}

func (w *world) run(req agent.RunRequest) agent.RunResult {
	w.Helper()
	return w.wait(w.start(req))
}

// until polls until what holds; it is for states that no event announces.
func (w *world) until(what string, holds func() bool) {
	w.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if holds() {
			return
		}
	}
	w.Fatalf("timed out waiting until %s", what)
}

// show returns what the database holds of a run.
func (w *world) show(req agent.RunRequest) db.RunReport {
	w.Helper()
	report, err := w.db.ShowRun(w.ctx, req.Scope(), req.RunID)
	if err != nil {
		w.Fatal(err)
	}
	return report
}

// attempts counts the model attempts of a run, which may not have begun.
func (w *world) attempts(req agent.RunRequest) int {
	report, err := w.db.ShowRun(w.ctx, req.Scope(), req.RunID)
	if err != nil {
		return 0
	}
	return len(report.Attempts())
}

// number asks the database as its owner.
func (w *world) number(query string, args ...any) (n int64) {
	w.Helper()
	if err := w.owner.QueryRow(w.ctx, query, args...).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) messages(req agent.RunRequest) int64 {
	w.Helper()
	return w.number("SELECT count(*) FROM message WHERE conversation_id = $1", req.Conversation)
}

// checkLedger adds the ledger up by hand (RUN-11): each attempt was reserved and
// settled exactly once, and the sum is what the run reports.
func (w *world) checkLedger(t testing.TB, req agent.RunRequest, result agent.RunResult) {
	t.Helper()
	for what, query := range map[string]string{
		"attempts without exactly one reserve and one settle": `
			SELECT count(*) FROM model_attempt a WHERE a.run_id = $1 AND (
				SELECT count(*) FILTER (WHERE kind = 'reserve') <> 1 OR count(*) FILTER (WHERE kind = 'settle') <> 1
				FROM ledger_entry l WHERE (l.run_id, l.step, l.attempt) = (a.run_id, a.step, a.attempt))`,
		"attempts left open": `SELECT count(*) FROM model_attempt WHERE run_id = $1 AND status = 'started'`,
		"settles beyond their reserve": `
			SELECT count(*) FROM ledger_entry s JOIN ledger_entry r USING (run_id, step, attempt)
			WHERE s.run_id = $1 AND s.kind = 'settle' AND r.kind = 'reserve' AND s.tokens > r.tokens`,
	} {
		if n := w.number(query, req.RunID); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	tokens := w.number(`SELECT coalesce(sum(tokens), 0)::bigint FROM ledger_entry WHERE run_id = $1 AND kind = 'settle'`, req.RunID)
	cost := w.number(`SELECT coalesce(sum(cost_micros), 0)::bigint FROM ledger_entry WHERE run_id = $1 AND kind = 'settle'`, req.RunID)
	attempts := w.number(`SELECT count(*) FROM model_attempt WHERE run_id = $1`, req.RunID)
	if u := result.Usage; u.BilledTokens != tokens || u.CostMicros != cost || int64(u.Attempts) != attempts {
		t.Errorf("the run reports %+v, the ledger has %d attempts, %d tokens, %d micro-dollars", u, attempts, tokens, cost)
	}
}

func ptr[T any](v T) *T { return &v }
