package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/telemetry"
)

// TestJobs begins work on a real server, where nobody does it.
func TestJobs(t *testing.T) {
	t.Parallel()
	if os.Getenv("TEMPORAL_ADDRESS") == "" {
		t.Fatal("TEMPORAL_ADDRESS is not set: run `make test`, which brings the servers and sets it")
	}
	queue := "starter-" + uuid.NewString()
	env := map[string]string{
		"TEMPORAL_ADDRESS": os.Getenv("TEMPORAL_ADDRESS"), "TEMPORAL_NAMESPACE": os.Getenv("TEMPORAL_NAMESPACE"), "FAIRLEAD_TASK_QUEUE": queue,
	}
	settings, err := config.Load(config.Source{LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	temporal, err := openEngine(ctx, settings)
	if err != nil {
		t.Fatal(err)
	}
	defer temporal.Close()
	j := job{workflowID: agent.EraseWorkflowID("acme", queue), workflow: agent.WorkflowEraseSubject, input: agent.EraseInput{ID: "e-1", Tenant: "acme", User: queue, By: "ann"}}
	if err := temporal.Begin(ctx, j); err != nil {
		t.Fatal(err)
	}
	if err := temporal.Begin(ctx, j); !errors.Is(err, errExists) {
		t.Errorf("a second one: %v", err)
	}
	j.shared = true
	if err := temporal.Begin(ctx, j); err != nil {
		t.Errorf("a second one that may share: %v", err)
	}
	if served, err := temporal.Served(ctx); err != nil || served {
		t.Errorf("served: %v, %v", served, err)
	}
	real, ok := temporal.(*temporalEngine)
	if !ok {
		t.Fatalf("%T", temporal)
	}
	if err := real.client.TerminateWorkflow(ctx, j.workflowID, "", "the test is over"); err != nil {
		t.Fatal(err)
	}
	var failed *workflowFailed
	if err := temporal.Await(ctx, j.workflowID, &agent.ErasureReceipt{}); !errors.As(err, &failed) {
		t.Errorf("after its end: %v", err)
	}
	for what, err := range map[string]error{
		"await": temporal.Await(ctx, queue, &agent.ErasureReceipt{}), "details": func() error { _, err := temporal.Details(ctx, queue); return err }(),
	} {
		if !errors.Is(err, errUnknownRun) {
			t.Errorf("%s of an unknown one: %v", what, err)
		}
	}
	// What has ended can be asked for again.
	if err := temporal.Begin(ctx, j); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := real.client.TerminateWorkflow(ctx, j.workflowID, "", "the test is over"); err != nil {
		t.Error(err)
	}
}

// TestSupersedeIsSealed sends the signal of a rollback through a real server:
// sealed by a program with the key, and plain by one without, which workers read
// as well.
func TestSupersedeIsSealed(t *testing.T) {
	t.Parallel()
	if os.Getenv("TEMPORAL_ADDRESS") == "" {
		t.Fatal("TEMPORAL_ADDRESS is not set: run `make test`, which brings the servers and sets it")
	}
	_, databaseURL := dbtest.NewWithURL(t)
	settings := func(key string) config.Config {
		t.Helper()
		env := map[string]string{
			"TEMPORAL_ADDRESS": os.Getenv("TEMPORAL_ADDRESS"), "TEMPORAL_NAMESPACE": os.Getenv("TEMPORAL_NAMESPACE"),
			"DATABASE_URL": databaseURL, "FAIRLEAD_ENCRYPTION_KEY": key,
		}
		loaded, err := config.Load(config.Source{LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok }})
		if err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	options := settings("").Temporal.Options()
	options.Logger = telemetry.TemporalLogger(zap.NewNop())
	operator, err := client.DialContext(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	for key, want := range map[string]string{dbtest.EncryptionKey(t): "binary/encrypted", "": "json/plain"} {
		run := uuid.NewString()
		workflow := agent.WorkflowID("acme", run)
		// No worker serves the queue: it waits for the signal.
		if _, err := operator.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: workflow, TaskQueue: "starter-" + run, WorkflowExecutionTimeout: time.Minute}, "idle"); err != nil {
			t.Fatal(err)
		}
		a := &app{settings: settings(key), openEngine: openEngine}
		told := a.tellSuperseded(ctx, "acme", db.Rollback{OpenRuns: []db.OpenRun{{ID: run}}, Generation: 5})
		if !told[run] {
			t.Errorf("%s: the run was not told", want)
		}
		sent := ""
		for events := operator.GetWorkflowHistory(ctx, workflow, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
			event, err := events.Next()
			if err != nil {
				t.Fatal(err)
			}
			if signal := event.GetWorkflowExecutionSignaledEventAttributes(); signal.GetSignalName() == agent.SignalSupersede {
				sent = string(signal.GetInput().GetPayloads()[0].GetMetadata()["encoding"])
			}
		}
		if sent != want {
			t.Errorf("the signal went out as %q, want %q", sent, want)
		}
		if err := operator.TerminateWorkflow(ctx, workflow, "", "the test is over"); err != nil {
			t.Error(err)
		}
	}
}
