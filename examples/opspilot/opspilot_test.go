package opspilot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var allTools = []string{opspilot.FindService, opspilot.ServiceStatus, opspilot.QueryLogs}

// ward is a service registry with the services of one test, and the tools on it.
type ward struct {
	dir      string
	registry *tool.Registry
}

func setup(t *testing.T) ward {
	t.Helper()
	dir := t.TempDir()
	tools, err := opspilot.Tools(opspilot.Config{RegistryDir: filepath.Join(dir, "services")})
	require.NoError(t, err)
	registry, err := tool.NewRegistry(tools...)
	require.NoError(t, err)
	return ward{dir, registry}
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

// execute checks and executes a call, as the activity does.
func (w ward) execute(t *testing.T, environment, name, arguments string) (tool.Result, error) {
	t.Helper()
	checked, refused := w.registry.Check(actor(environment), allTools, name, arguments)
	if refused != nil {
		return tool.Result{}, refused
	}
	return w.registry.Execute(t.Context(), tool.Call{
		Invocation: tool.Invocation{Actor: actor(environment), RunID: "run-1", CallID: "1.0", Arguments: checked.Arguments},
		Tool:       name, Allow: allTools, ArgumentsHash: checked.Hash,
	})
}

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
