package codec_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/workflows"
)

// TestReconcileOutlivesAUser: a user is erased while ReconcileMemory, which has started
// a lesson of that user, goes on, and a worker that knows nothing of it takes over. It
// must be replayed without the user's keys: while it hangs nothing of any tenant is
// reconciled (ERASE-2).
func TestReconcileOutlivesAUser(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	queue := "reconcile-" + uuid.NewString()
	room := agent.MemoryRoom{Scope: scope, Agent: "helper"}
	lesson := agent.LearnInput{Run: ref, Room: room, DefinitionDigest: "digest"}
	var rounds atomic.Int32
	release := make(chan struct{})
	reconcile := func(context.Context, agent.ReconcileInput) (agent.ReconcileReport, error) {
		if rounds.Add(1) == 1 {
			return agent.ReconcileReport{Tenants: 1, More: true, Lessons: []agent.LearnInput{lesson}}, nil
		}
		select {
		case <-release:
			return agent.ReconcileReport{Tenants: 1}, nil
		default:
			return agent.ReconcileReport{}, errors.New("the database is away")
		}
	}
	learn := func(context.Context, agent.LearnInput) (agent.LearnOutput, error) { return agent.LearnOutput{}, nil }
	start := func() worker.Worker {
		w := worker.New(dial(t, s.program()), queue, worker.Options{})
		workflows.Register(w)
		w.RegisterActivityWithOptions(reconcile, activity.RegisterOptions{Name: agent.ActivityReconcile})
		w.RegisterActivityWithOptions(learn, activity.RegisterOptions{Name: agent.ActivityLearn})
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		return w
	}
	first := start()
	run, err := dial(t, s.program()).ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "reconcile-" + uuid.NewString(), TaskQueue: queue}, agent.WorkflowReconcileMemory)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second round", func() bool { return rounds.Load() >= 2 })
	s.destroy(ann)
	first.Stop()
	worker.PurgeStickyWorkflowCache()
	second := start()
	defer second.Stop()
	close(release)
	var report agent.ReconcileReport
	if err := run.Get(t.Context(), &report); err != nil || len(report.Lessons) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}
