package opspilot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/examples/opspilot/patient"
	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/tool"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "opspilot-")
	if err != nil {
		panic(err)
	}
	programDir = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

var (
	programDir   string
	buildProgram = sync.OnceValue(func() error {
		output, err := exec.Command("go", "build", "-o", filepath.Join(programDir, "payment-api"), "./cmd/payment-api").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, output)
		}
		return nil
	})
)

var allTools = []string{opspilot.FindService, opspilot.ServiceStatus, opspilot.QueryLogs, opspilot.RestartService}

// ward is a service registry with the services of one test, and the tools on it.
type ward struct {
	dir      string
	tools    []tool.Tool
	registry *tool.Registry
	// refuse, if set, is what becomes of writes that are proposed; else they are
	// confirmed.
	refuse *tool.Error
	// performed, if set, is called after a write was performed.
	performed func()
}

func setup(t *testing.T) ward { return setupWith(t, opspilot.Config{}) }

func setupWith(t *testing.T, config opspilot.Config) ward {
	t.Helper()
	dir := t.TempDir()
	config.RegistryDir = filepath.Join(dir, "services")
	tools, err := opspilot.Tools(config)
	require.NoError(t, err)
	registry, err := tool.NewRegistry(tools...)
	require.NoError(t, err)
	return ward{dir: dir, tools: tools, registry: registry}
}

// admit starts a service as a process of its own, beneath a supervisor.
func (w ward) admit(t *testing.T, config patient.StartConfig) *patient.Patient {
	t.Helper()
	require.NoError(t, buildProgram())
	config.Binary, config.Dir = filepath.Join(programDir, "payment-api"), w.dir
	p, err := patient.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return p
}

// tool is the tool itself, for the conformance suites.
func (w ward) tool(t *testing.T, name string) tool.Tool {
	t.Helper()
	i := slices.IndexFunc(w.tools, func(made tool.Tool) bool { return made.Spec().Name == name })
	require.GreaterOrEqual(t, i, 0)
	return w.tools[i]
}

// put registers a service that does not run.
func (w ward) put(t *testing.T, name, environment string, change func(*services.Record)) services.Record {
	t.Helper()
	registry, err := services.Open(filepath.Join(w.dir, "services"))
	require.NoError(t, err)
	r := services.Record{
		ID: services.ID(name, environment), Name: name, Environment: environment,
		Address: "127.0.0.1:1", PID: 1, StartedAt: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC),
		LogPath: filepath.Join(w.dir, name+"."+environment+".log"),
	}
	if change != nil {
		change(&r)
	}
	require.NoError(t, registry.Put(r))
	return r
}

// serve runs a real service until the test ends.
func (w ward) serve(t *testing.T, config patient.Config) services.Record {
	t.Helper()
	if config.BankTimeout == 0 {
		config.BankTimeout = 10 * time.Second // a busy machine is not a silent bank
	}
	config.RegistryDir = filepath.Join(w.dir, "services")
	config.LogPath = filepath.Join(w.dir, config.Name+"."+config.Environment+".log")
	ready := make(chan services.Record, 1)
	config.OnReady = func(r services.Record) { ready <- r }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- patient.Serve(ctx, config) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	select {
	case r := <-ready:
		return r
	case err := <-ended:
		ended <- err
		t.Fatalf("serve ended early: %v", err)
		return services.Record{}
	}
}

// sick is a payment-api whose pool of three has leaked: 6 payments succeeded, 3
// got no answer from the bank, 2 found no connection.
func (w ward) sick(t *testing.T, reference string) services.Record {
	t.Helper()
	r := w.serve(t, patient.Config{Name: "payment-api", Environment: "production", PoolSize: 3, Leak: true, BankTimeout: 500 * time.Millisecond, IncidentUntil: time.Now().Add(time.Hour)})
	for i := range 11 {
		pay(t, r, fmt.Sprintf("ord-%d", i+1), reference)
	}
	return r
}

func pay(t *testing.T, r services.Record, order, reference string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"order_id": order, "amount_cents": 100, "reference": reference})
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Address+"/pay", bytes.NewReader(body))
	require.NoError(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
}

func actor(environment string) tool.Actor {
	return tool.Actor{Scope: agent.Scope{Tenant: "acme", User: "ada", Environment: environment}}
}

// call is a checked call as the activities make it.
func (w ward) call(t *testing.T, environment, name, arguments string) (tool.Call, *tool.Error) {
	t.Helper()
	allow := allTools
	if !slices.Contains(allow, name) {
		allow = append(slices.Clone(allTools), name)
	}
	checked, refused := w.registry.Check(actor(environment), allow, name, arguments)
	return tool.Call{
		Invocation: tool.Invocation{Actor: actor(environment), RunID: "run-1", CallID: "1.0", Arguments: checked.Arguments},
		Tool:       name, Allow: allow, ArgumentsHash: checked.Hash,
	}, refused
}

// execute checks and executes a read, as the activity does.
func (w ward) execute(t *testing.T, environment, name, arguments string) (tool.Result, error) {
	t.Helper()
	call, refused := w.call(t, environment, name, arguments)
	if refused != nil {
		return tool.Result{}, refused
	}
	return w.registry.Execute(t.Context(), call)
}

// write is a write that was prepared and confirmed.
func (w ward) write(t *testing.T, environment, name, arguments, key string) (tool.Plan, tool.Call) {
	t.Helper()
	call, refused := w.call(t, environment, name, arguments)
	require.Nil(t, refused)
	plan, err := w.registry.Prepare(t.Context(), call)
	require.NoError(t, err)
	call.Key, call.Version = key, plan.Version
	return plan, call
}

// prepareFails makes a plan, which must fail with an error for the model.
func (w ward) prepareFails(t *testing.T, environment, name, arguments string) *tool.Error {
	t.Helper()
	call, refused := w.call(t, environment, name, arguments)
	if refused != nil {
		return refused
	}
	_, err := w.registry.Prepare(t.Context(), call)
	var shown *tool.Error
	require.True(t, errors.As(err, &shown), "%v", err)
	return shown
}

func key(digit string) string { return strings.Repeat(digit, 64) }

// succeed executes a call and decodes its result.
func succeed[T any](t *testing.T, w ward, environment, name, arguments string) T {
	t.Helper()
	result, err := w.execute(t, environment, name, arguments)
	require.NoError(t, err)
	var value T
	require.NoError(t, json.Unmarshal(result.Content, &value), string(result.Content))
	return value
}

// fail executes a call that must fail with an error for the model.
func fail(t *testing.T, w ward, environment, name, arguments string) *tool.Error {
	t.Helper()
	_, err := w.execute(t, environment, name, arguments)
	var shown *tool.Error
	require.True(t, errors.As(err, &shown), "%v", err)
	return shown
}
