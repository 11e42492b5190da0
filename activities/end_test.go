package activities_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

func activitiesResults(b *bundle) tool.ResultReader {
	return activities.Results{Store: activities.PostgreSQL(b.db)}
}

func TestEndRunIsIdempotent(t *testing.T) {
	t.Parallel()
	b := setup(t, options{script: twoSteps})
	g := b.start()
	b.observe(g.read(0, b.act(g.next(0, 0)).Calls[0]))
	b.insertOpen(g, 1, 1, 0)
	reasons := []agent.Reason{agent.ReasonStepLimit, agent.ReasonCanceled, agent.ReasonDeadline, agent.ReasonSuperseded}
	var mu sync.Mutex
	ends := map[agent.Reason]int{}
	var last agent.RunResult
	together(16, func(i int) {
		result, err := b.runs.EndRun(b.ctx, agent.EndRunInput{Run: g.ref(), Reason: reasons[i%4], Detail: "d", Step: 1})
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		ends[result.Reason]++
		last = result.RunResult
	})
	if len(ends) != 1 {
		t.Errorf("the run ended in several ways: %v", ends)
	}
	if last.Usage.UnknownAttempts != 1 || last.Usage.BilledTokens != 5_110 || last.Steps != 1 || last.ToolCalls != 1 || last.Detail != "d" {
		t.Errorf("result %+v", last)
	}
	if n := b.rows("run_transition"); n != 3 {
		t.Errorf("%d transitions, want 3", n)
	}
	b.checkLedger(last)
}

func TestEndRunNeverBegun(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	result := b.finish(begun{req: request()}, agent.ReasonCanceled, 0, "")
	if result.Status != agent.StatusCanceled || result.Reason != agent.ReasonCanceled || b.rows("run") != 0 {
		t.Fatalf("got %+v", result)
	}
}

func TestFinalNeedsItsAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	other := b.start()
	for name, answer := range map[string]string{"none": "", "invented": "1b671a64-40d5-491e-99b0-da01ff1f3341", "another run's": b.act(other.next(0, 0)).AnswerMessageID} {
		g := b.start()
		result := b.finish(g, agent.ReasonFinal, 1, answer)
		if result.Reason != agent.ReasonInternal || result.Detail != "answer_missing" || result.AnswerMessageID != "" {
			t.Errorf("%s: %+v", name, result)
		}
	}
	// The right ID, but no answer was stored.
	g := b.start()
	right := b.act(g.next(0, 0)).AnswerMessageID
	b.exec("ALTER TABLE message DISABLE TRIGGER ALL")
	b.exec("DELETE FROM message WHERE id = $1", right)
	b.exec("ALTER TABLE message ENABLE TRIGGER ALL")
	if result := b.finish(g, agent.ReasonFinal, 1, right); result.Reason != agent.ReasonInternal {
		t.Errorf("deleted answer: %+v", result)
	}
}

// A local activity goes on after Temporal has canceled it: its answer may be
// stored before the end is. What people see and what is recorded agree.
func TestStoredAnswerBeatsTheStop(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	for _, stop := range []agent.Reason{agent.ReasonCanceled, agent.ReasonDeadline} {
		g := b.start()
		answer := b.act(g.next(0, 0)).AnswerMessageID
		result := b.finish(g, stop, 0, "")
		if result.Reason != agent.ReasonFinal || result.AnswerMessageID != answer || answer == "" {
			t.Errorf("%s: %+v", stop, result)
		}
		b.checkLedger(result)
	}
}

func TestQueuedRunCanEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, options{limits: activities.Limits{MaxRunning: 1}})
	b.start()
	g := b.start()
	if result := b.finish(g, agent.ReasonCanceled, 0, ""); result.Status != agent.StatusCanceled {
		t.Fatalf("got %+v", result)
	}
}

func TestActionsAreBounded(t *testing.T) {
	t.Parallel()
	var calls []scripted.Call
	for range 60 {
		calls = append(calls, scripted.Call{Name: "look", Arguments: `{"at":"here"}`})
	}
	b := setup(t, options{script: proposing(calls...)})
	g := b.start()
	for _, call := range b.act(g.next(0, 0)).Calls {
		b.observe(g.read(0, call))
	}
	result := b.finish(g, agent.ReasonToolCallLimit, 1, "")
	if result.ToolCalls != 60 || len(result.Actions) != agent.MaxActions || result.Actions[0].CallID != "0.10" || result.Actions[49].CallID != "0.59" {
		t.Fatalf("%d calls, actions %v", result.ToolCalls, result.Actions)
	}
}

// TestWorkerStops gives a hanging model call most of the grace, then hands it to
// another worker.
func TestWorkerStops(t *testing.T) {
	t.Parallel()
	started := make(chan struct{}, 1)
	b := setup(t, options{script: func(context.Context, model.Request) (scripted.Turn, error) {
		started <- struct{}{}
		return scripted.Turn{Hang: true}, nil
	}})
	g := b.start()
	stop := make(chan struct{})
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.SetWorkerStopChannel(stop)
	b.runs.Register(env)
	go func() {
		<-started
		close(stop)
	}()
	began := time.Now()
	_, err := env.ExecuteActivity(agent.ActivityNextAction, g.next(0, 0))
	// The bundle's grace is 400 ms, of which two thirds are for the call.
	if err == nil || time.Since(began) < 250*time.Millisecond {
		t.Fatalf("after %s: %v", time.Since(began), err)
	}
	if a := b.show(g).Attempts()[0]; a.Status != db.AttemptLost || a.UsageKnown || *a.Billed.CostMicros != *a.Reserved.CostMicros {
		t.Fatalf("attempt %+v", a)
	}
	b.runs = b.worker(options{})
	if action := b.act(g.next(0, 0)); action.Kind != agent.ActionFinal || action.Usage.Attempts != 2 || action.Usage.UnknownAttempts != 1 {
		t.Fatalf("the next worker: %+v", action)
	}
}

func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	g := b.start()
	// Nobody listens there.
	b.db = dbtest.Open(t, "postgres://secret-user:secret-password@127.0.0.1:1/secret-name", db.Options{})
	b.runs = b.worker(options{})
	_, err := b.tryBegin(request())
	if err == nil || err.Error() != "BeginRun: load keys: database unavailable" {
		t.Errorf("begin: %v", err)
	}
	if _, err = b.runs.NextAction(b.ctx, g.next(0, 0)); err == nil || err.Error() != "NextAction: load keys: database unavailable" {
		t.Errorf("next action: %v", err)
	}
}

// TestConnectionsCut kills every connection under a running agent.
func TestConnectionsCut(t *testing.T) {
	t.Parallel()
	var b *bundle
	b = setup(t, options{script: func(context.Context, model.Request) (scripted.Turn, error) {
		b.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		return scripted.Turn{Text: "fine"}, nil
	}})
	g := b.start()
	action := b.act(g.next(0, 0))
	if action.Kind != agent.ActionFinal || b.calls.of("model") != 1 {
		t.Fatalf("got %+v after %d purchases", action, b.calls.of("model"))
	}
	b.checkLedger(b.finish(g, agent.ReasonFinal, 1, action.AnswerMessageID))
}

// TestHeartbeat lets a model answer once Temporal has heard of the call.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	heard := make(chan struct{})
	b := setup(t, options{script: func(ctx context.Context, _ model.Request) (scripted.Turn, error) {
		select {
		case <-heard:
		case <-ctx.Done():
		}
		return scripted.Turn{Text: "fine"}, nil
	}})
	g := b.start()
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	var once sync.Once
	env.SetOnActivityHeartbeatListener(func(*activity.Info, converter.EncodedValues) { once.Do(func() { close(heard) }) })
	b.runs.Register(env)
	value, err := env.ExecuteActivity(agent.ActivityNextAction, g.next(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	var action agent.Action
	if err := value.Get(&action); err != nil || action.Kind != agent.ActionFinal {
		t.Fatalf("got %+v, %v", action, err)
	}
}
