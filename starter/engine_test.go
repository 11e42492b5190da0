package main

import (
	"context"
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
