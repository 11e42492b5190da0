package host

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/tool"
)

func dial(t *testing.T) client.Client {
	t.Helper()
	address := os.Getenv("TEMPORAL_ADDRESS")
	if address == "" {
		t.Fatal("TEMPORAL_ADDRESS is not set: run `make test`, which brings the servers and sets it")
	}
	c, err := client.Dial(client.Options{HostPort: address, Namespace: os.Getenv("TEMPORAL_NAMESPACE"), Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// rebuilding is a memory whose vectors are being built.
type rebuilding struct {
	activities.Memory
	state db.EmbedderState
}

func (r rebuilding) Embedders(_ context.Context, current db.MemoryEmbedder) (db.EmbedderState, error) {
	if r.state == (db.EmbedderState{}) {
		return db.EmbedderState{Serving: db.MemoryEmbedder{Name: "old", Dimensions: 8}, Building: current}, nil
	}
	return r.state, nil
}

func keeping(t *testing.T, queue string, memory activities.Memory) *host {
	t.Helper()
	tools, err := tool.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	set, err := definition.NewSet()
	if err != nil {
		t.Fatal(err)
	}
	runs, err := activities.New(activities.Config{
		Store: activities.PostgreSQL(nil), Models: model.NewResolver(model.Catalogue{}, nil), Tools: tools, Definitions: set, Memory: memory,
	})
	if err != nil {
		t.Fatal(err)
	}
	settings := config.Config{TaskQueue: queue}
	settings.Memory.ReconcileEvery = config.Interval(10 * time.Minute)
	return &host{settings: settings, log: zap.NewNop(), runs: runs}
}

// TestERASE2Schedule: the schedule is made once, brought up to date, left paused
// if somebody paused it, and gone when it is switched off.
func TestERASE2Schedule(t *testing.T) {
	t.Parallel()
	c := dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	queue := "schedule-" + uuid.NewString()
	h := keeping(t, queue, rebuilding{state: db.EmbedderState{Serving: db.MemoryEmbedder{Name: "x", Dimensions: 1}}})
	handle := c.ScheduleClient().GetHandle(ctx, "reconcile-memory~"+queue)
	t.Cleanup(func() { _ = handle.Delete(context.WithoutCancel(ctx)) })
	h.keepMemory(ctx, c)
	h.keepMemory(ctx, c)
	// The server carries updates out a moment later.
	eventually := func(what string, holds func(client.Schedule) bool) {
		t.Helper()
		for pause(ctx, 20*time.Millisecond) {
			found, err := handle.Describe(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if holds(found.Schedule) {
				return
			}
		}
		t.Fatalf("the schedule is never %s", what)
	}
	is := func(every time.Duration, paused bool) func(client.Schedule) bool {
		return func(s client.Schedule) bool {
			action, ok := s.Action.(*client.ScheduleWorkflowAction)
			return ok && action.Workflow == agent.WorkflowReconcileMemory && action.TaskQueue == queue && len(action.Args) == 0 &&
				len(s.Spec.Intervals) == 1 && s.Spec.Intervals[0].Every == every && s.Policy.Overlap == enums.SCHEDULE_OVERLAP_POLICY_SKIP && s.State.Paused == paused
		}
	}
	eventually("made", is(10*time.Minute, false))
	if err := handle.Pause(ctx, client.SchedulePauseOptions{}); err != nil {
		t.Fatal(err)
	}
	err := handle.Update(ctx, client.ScheduleUpdateOptions{DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
		in.Description.Schedule.Spec.Intervals[0].Every = time.Hour
		return &client.ScheduleUpdate{Schedule: &in.Description.Schedule}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	eventually("changed by hand", is(time.Hour, true))
	h.keepMemory(ctx, c)
	eventually("brought up to date", is(10*time.Minute, true))

	h.settings.Memory.ReconcileEvery = 0
	h.keepMemory(ctx, c)
	h.keepMemory(ctx, c)
	for {
		var absent *serviceerror.NotFound
		if _, err := handle.Describe(ctx); errors.As(err, &absent) {
			break
		}
		if !pause(ctx, 20*time.Millisecond) {
			t.Fatal("the schedule is never gone")
		}
	}
}

// TestLTM6HostStartsTheReindex: once, also when several workers start.
func TestLTM6HostStartsTheReindex(t *testing.T) {
	t.Parallel()
	c := dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := keeping(t, "reindex-"+uuid.NewString(), rebuilding{})
	t.Cleanup(func() { _ = c.TerminateWorkflow(context.WithoutCancel(ctx), agent.ReindexWorkflowID, "", "test") })
	var ids []string
	for range 2 {
		if err := h.startReindex(ctx, c); err != nil {
			t.Fatal(err)
		}
		found, err := c.DescribeWorkflow(ctx, agent.ReindexWorkflowID, "")
		if err != nil {
			t.Fatal(err)
		}
		if found.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING || found.WorkflowType.Name != agent.WorkflowReindexMemory {
			t.Errorf("found %+v", found)
		}
		ids = append(ids, found.WorkflowExecution.RunID)
	}
	if ids[0] != ids[1] {
		t.Errorf("started twice: %v", ids)
	}
}

func TestScheduleIDs(t *testing.T) {
	t.Parallel()
	if got := scheduleID(agent.TaskQueue); got != agent.ReconcileScheduleID {
		t.Errorf("the default queue's is %s", got)
	}
	if got := scheduleID("team"); got != "reconcile-memory~team" {
		t.Errorf("another queue's is %s", got)
	}
}
