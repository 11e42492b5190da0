package codec_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/codec"
)

const patience = time.Minute

// talk receives a request and two signals, one as it is, and has them handled
// by an activity of each kind. It has all kinds of payloads that a run has.
func talk(ctx workflow.Context, request agent.RunRequest) (agent.RunResult, error) {
	if err := workflow.SetQueryHandler(ctx, agent.QueryState, func() (agent.RunView, error) {
		return agent.RunView{RunID: request.RunID, WaitingFor: "a signal"}, nil
	}); err != nil {
		return agent.RunResult{}, err
	}
	workflow.SetCurrentDetails(ctx, "**running**")
	local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{ScheduleToCloseTimeout: patience, Summary: "begin"})
	queued := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{ScheduleToCloseTimeout: patience, Summary: "step 1: look"})
	var first, second agent.RunRequest
	if err := workflow.ExecuteLocalActivity(local, "echo", request).Get(ctx, &first); err != nil {
		return agent.RunResult{}, err
	}
	var note agent.RunRef
	var approval converter.RawValue
	workflow.GetSignalChannel(ctx, "note").Receive(ctx, &note)
	workflow.GetSignalChannel(ctx, agent.SignalApproval).Receive(ctx, &approval)
	if err := workflow.ExecuteActivity(queued, "echo", first).Get(ctx, &second); err != nil {
		return agent.RunResult{}, err
	}
	return agent.RunResult{RunID: note.RunID, Detail: string(approval.Payload().GetData()), AnswerMessageID: second.Message}, nil
}

func echo(_ context.Context, r agent.RunRequest) (agent.RunRequest, error) { return r, nil }

type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

var _ log.Logger = quiet{}

func dial(t *testing.T, source codec.Source) client.Client {
	t.Helper()
	address := os.Getenv("TEMPORAL_ADDRESS")
	if address == "" {
		t.Fatal("TEMPORAL_ADDRESS is not set: run `make test`, which brings the servers and sets it")
	}
	options := client.Options{HostPort: address, Namespace: os.Getenv("TEMPORAL_NAMESPACE"), Logger: quiet{}}
	if source != nil {
		options.DataConverter = codec.DataConverter(source)
	}
	c, err := client.Dial(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("waited %s in vain for: %s", patience, what)
		case <-tick.C:
		}
	}
}

func events(t *testing.T, c client.Client, id string) *history.History {
	t.Helper()
	h := &history.History{}
	for i := c.GetWorkflowHistory(t.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); i.HasNext(); {
		e, err := i.Next()
		if err != nil {
			t.Fatal(err)
		}
		h.Events = append(h.Events, e)
	}
	return h
}

// TestWorkflow carries out a workflow on a real server whose worker cannot reach
// the keys when it starts, nor when a signal comes. Nothing is lost, the history
// holds no content and replays, and an operator without keys reads what he needs.
func TestWorkflow(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	workerSource := s.program()
	caller, operator, workerClient := dial(t, s.program()), dial(t, nil), dial(t, workerSource)
	queue := "codec-" + uuid.NewString()
	w := worker.New(workerClient, queue, worker.Options{})
	w.RegisterWorkflowWithOptions(talk, workflow.RegisterOptions{Name: "talk"})
	w.RegisterActivityWithOptions(echo, activity.RegisterOptions{Name: "echo"})
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	workerSource.fail(db.ErrNoVault)
	id := uuid.NewString()
	run, err := caller.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: queue, StaticSummary: "opspilot for ann of acme"}, "talk", request)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a worker without keys", func() bool { return workerSource.requests() > 0 })
	workerSource.fail(nil)
	eventually(t, "the first activity", func() bool {
		return slices.ContainsFunc(events(t, operator, id).Events, func(e *history.HistoryEvent) bool {
			return e.GetEventType() == enums.EVENT_TYPE_MARKER_RECORDED
		})
	})

	// The Web UI's question, asked without keys.
	answer, err := operator.QueryWorkflow(ctx, id, "", "__temporal_workflow_metadata")
	if err != nil {
		t.Fatal(err)
	}
	var description sdkpb.WorkflowMetadata
	if err := answer.Get(&description); err != nil || description.CurrentDetails != "**running**" {
		t.Errorf("an operator reads %q, %v", description.CurrentDetails, err)
	}
	if answer, err = caller.QueryWorkflow(ctx, id, "", agent.QueryState); err != nil {
		t.Fatal(err)
	}
	var view agent.RunView
	if err := answer.Get(&view); err != nil || view.WaitingFor != "a signal" {
		t.Errorf("%+v, %v", view, err)
	}

	workerSource.fail(db.ErrNoVault)
	if err := caller.SignalWorkflow(ctx, id, "", "note", agent.RunRef{Scope: scope, RunID: "noted-" + canary}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a signal that could not be read", func() bool { return workerSource.requests() > 0 })
	workerSource.fail(nil)
	if err := caller.SignalWorkflow(ctx, id, "", agent.SignalApproval, agent.Approval{Token: canary}); err != nil {
		t.Fatal(err)
	}
	var result agent.RunResult
	if err := run.Get(ctx, &result); err != nil {
		t.Fatal(err)
	}
	if result.RunID != "noted-"+canary || result.Detail != `{"token":"`+canary+`"}` || result.AnswerMessageID != canary {
		t.Errorf("result %+v", result)
	}

	h := events(t, operator, id)
	if text := h.String(); strings.Contains(text, "canary") || strings.Contains(text, "opspilot\\\"") {
		t.Errorf("content in the history: %s", text)
	}
	var summaries []string
	failures := 0
	for _, e := range h.Events {
		if summary := e.GetUserMetadata().GetSummary(); summary != nil {
			summaries = append(summaries, string(summary.GetData()))
		}
		if e.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_FAILED {
			failures++
		}
	}
	if want := []string{`"opspilot for ann of acme"`, `"begin"`, `"step 1: look"`}; !slices.Equal(summaries, want) {
		t.Errorf("an operator reads the summaries %q, want %q", summaries, want)
	}
	// The retry of a failed task is not an event, unless another event comes while
	// it is under way: so there may be more than the two.
	if failures < 2 {
		t.Errorf("%d workflow tasks failed, want one for the start and one for the signal", failures)
	}
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DataConverter: codec.DataConverter(s.program())})
	if err != nil {
		t.Fatal(err)
	}
	replayer.RegisterWorkflowWithOptions(talk, workflow.RegisterOptions{Name: "talk"})
	if err := replayer.ReplayWorkflowHistory(quiet{}, h); err != nil {
		t.Errorf("replay: %v", err)
	}

	// Who has no keys any more reads nothing.
	s.destroy(ann)
	replayer, err = worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DataConverter: codec.DataConverter(s.program())})
	if err != nil {
		t.Fatal(err)
	}
	replayer.RegisterWorkflowWithOptions(talk, workflow.RegisterOptions{Name: "talk"})
	if err := replayer.ReplayWorkflowHistory(quiet{}, h); err == nil {
		t.Error("the history of a destroyed subject replays")
	}
}
