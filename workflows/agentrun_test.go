package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/workflows"
)

// fakes stand in for the activities, so that the driver is tested alone: what
// it starts, merges, cancels and carries. The same workflow on real activities,
// a real database and a real server is tested in internal/endtoend.
type fakes struct {
	begin agent.BeginRunOutput
	next  func(context.Context, agent.NextActionInput) (agent.Action, error)
	read  func(context.Context, agent.ReadToolInput) (agent.ToolOutcome, error)

	// beginning, if not nil, is what BeginRun does first.
	beginning func() error

	mu    sync.Mutex
	began int
	ended []agent.EndRunInput
}

func (f *fakes) BeginRun(_ context.Context, in agent.BeginRunInput) (agent.BeginRunOutput, error) {
	if f.beginning != nil {
		if err := f.beginning(); err != nil {
			return agent.BeginRunOutput{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began++
	out := f.begin
	out.Deadline = in.StartedAt.Add(out.Budget.Timeout)
	return out, nil
}

func (f *fakes) NextAction(ctx context.Context, in agent.NextActionInput) (agent.Action, error) {
	return f.next(ctx, in)
}

func (f *fakes) ReadTool(ctx context.Context, in agent.ReadToolInput) (agent.ToolOutcome, error) {
	if f.read == nil {
		return agent.ToolOutcome{CallID: in.CallID, ResultHash: in.CallID}, nil
	}
	return f.read(ctx, in)
}

func (f *fakes) EndRun(_ context.Context, in agent.EndRunInput) (agent.RunResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, in)
	return agent.RunResult{RunID: in.Run.RunID, Status: in.Reason.Status(), Reason: in.Reason, Detail: in.Detail, Steps: in.Step}, nil
}

func newFakes() *fakes {
	return &fakes{begin: agent.BeginRunOutput{
		Admitted: true, Generation: 1, DefinitionDigest: "digest",
		Budget: agent.Budget{MaxSteps: 1000, MaxToolCalls: 1000, MaxTokens: 1 << 30, Timeout: time.Hour},
		Rules: agent.LoopRules{
			SameAction: 3, SameResult: 3, SameError: 2, Cycle: 2, ModelTries: 3,
			RetryInitial: time.Second, RetryMax: time.Minute, ParallelReads: 4,
		},
		Route: agent.ModelRoute{Model: "fake"},
	}}
}

// patience is how long workflow code may take: a machine that does something else
// is no deadlock.
const patience = time.Minute

func (f *fakes) environment(t *testing.T) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: patience})
	workflows.Register(env)
	for name, fn := range map[string]any{
		agent.ActivityBeginRun: f.BeginRun, agent.ActivityNextAction: f.NextAction,
		agent.ActivityReadTool: f.ReadTool, agent.ActivityEndRun: f.EndRun,
	} {
		env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	return env
}

func request() agent.RunRequest {
	return agent.RunRequest{
		RunID: "run-1", Tenant: "acme", User: "ann", Conversation: "c1",
		Agent: "demo", Environment: "test", Message: "why?",
	}
}

func execute(t *testing.T, env *testsuite.TestWorkflowEnvironment) agent.RunResult {
	t.Helper()
	env.ExecuteWorkflow(agent.WorkflowAgentRun, request())
	if !env.IsWorkflowCompleted() {
		t.Fatal("the workflow did not complete")
	}
	if err := env.GetWorkflowError(); err != nil {
		t.Fatalf("workflow error: %v", err)
	}
	var result agent.RunResult
	if err := env.GetWorkflowResult(&result); err != nil {
		t.Fatal(err)
	}
	return result
}

func finalAt(step int) func(context.Context, agent.NextActionInput) (agent.Action, error) {
	return func(_ context.Context, in agent.NextActionInput) (agent.Action, error) {
		if in.Step == step {
			return agent.Action{Kind: agent.ActionFinal, AnswerMessageID: "answer"}, nil
		}
		return agent.Action{Kind: agent.ActionCalls, Calls: []agent.Call{
			{ID: fmt.Sprintf("%d.0", in.Step), Tool: "look", ArgumentsHash: fmt.Sprint(in.Step), Local: in.Step%2 == 0},
		}}, nil
	}
}

func TestRunEndsWithTheAnswer(t *testing.T) {
	t.Parallel()
	f := newFakes()
	f.next = finalAt(3)
	env := f.environment(t)
	result := execute(t, env)
	if result.Reason != agent.ReasonFinal || result.Steps != 4 {
		t.Fatalf("result %+v", result)
	}
	if len(f.ended) != 1 || f.ended[0].AnswerMessageID != "answer" {
		t.Fatalf("ended %+v", f.ended)
	}
	value, err := env.QueryWorkflow(agent.QueryState)
	if err != nil {
		t.Fatal(err)
	}
	var view agent.RunView
	if err := value.Get(&view); err != nil || view.Status != agent.StatusSucceeded || view.ToolCalls != 3 || view.WaitingFor != "" {
		t.Fatalf("view %+v, %v", view, err)
	}
}

func TestInvalidRequestFailsTypedAndStoresNothing(t *testing.T) {
	t.Parallel()
	zero := 0
	for name, edit := range map[string]func(*agent.RunRequest){
		"no message":    func(r *agent.RunRequest) { r.Message = "" },
		"large message": func(r *agent.RunRequest) { r.Message = strings.Repeat("x", 10<<20) },
		"zero budget":   func(r *agent.RunRequest) { r.Budget = &agent.BudgetOverride{MaxSteps: &zero} },
		"no tenant":     func(r *agent.RunRequest) { r.Tenant = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakes()
			env := f.environment(t)
			r := request()
			edit(&r)
			env.ExecuteWorkflow(agent.WorkflowAgentRun, r)
			var typed *temporal.ApplicationError
			if err := env.GetWorkflowError(); !errors.As(err, &typed) || typed.Type() != agent.ErrorInvalidRequest || !typed.NonRetryable() {
				t.Fatalf("error %v", err)
			}
			if f.began != 0 || len(f.ended) != 0 {
				t.Fatalf("began %d times, ended %d times", f.began, len(f.ended))
			}
		})
	}
}

// Reads of one response run at the same time, up to the limit.
func TestParallelReads(t *testing.T) {
	t.Parallel()
	f := newFakes()
	f.begin.Rules.ParallelReads = 3
	f.next = func(_ context.Context, in agent.NextActionInput) (agent.Action, error) {
		if in.Step == 1 {
			return agent.Action{Kind: agent.ActionFinal, AnswerMessageID: "answer"}, nil
		}
		action := agent.Action{Kind: agent.ActionCalls}
		for i := range 7 {
			action.Calls = append(action.Calls, agent.Call{ID: fmt.Sprintf("0.%d", i), Tool: "look", ArgumentsHash: fmt.Sprint(i)})
		}
		return action, nil
	}
	var mu sync.Mutex
	running, most := 0, 0
	full := make(chan struct{})
	f.read = func(_ context.Context, in agent.ReadToolInput) (agent.ToolOutcome, error) {
		mu.Lock()
		running++
		most = max(most, running)
		if running == 3 {
			close(full)
			full = make(chan struct{})
		}
		mine := full
		mu.Unlock()
		if in.CallID < "0.2" { // the first two of a batch wait until three run
			select {
			case <-mine:
			case <-time.After(200 * time.Millisecond):
			}
		}
		mu.Lock()
		running--
		mu.Unlock()
		return agent.ToolOutcome{CallID: in.CallID, ResultHash: in.CallID}, nil
	}
	env := f.environment(t)
	if result := execute(t, env); result.Reason != agent.ReasonFinal {
		t.Fatalf("result %+v", result)
	}
	if most > 3 || most < 2 {
		t.Fatalf("%d reads ran at once, want 2 or 3", most)
	}
}

// When two reads of one response would end the run, the first in call order is
// the reason, although the other one was faster.
func TestFirstInCallOrderDecides(t *testing.T) {
	t.Parallel()
	f := newFakes()
	f.next = func(context.Context, agent.NextActionInput) (agent.Action, error) {
		return agent.Action{Kind: agent.ActionCalls, Calls: []agent.Call{
			{ID: "0.0", Tool: "look", ArgumentsHash: "a"}, {ID: "0.1", Tool: "look", ArgumentsHash: "b"},
		}}, nil
	}
	second := make(chan struct{})
	f.read = func(_ context.Context, in agent.ReadToolInput) (agent.ToolOutcome, error) {
		if in.CallID == "0.1" {
			defer close(second)
			return agent.ToolOutcome{CallID: in.CallID, End: agent.ReasonAuthorizationUnavailable}, nil
		}
		<-second
		return agent.ToolOutcome{CallID: in.CallID, End: agent.ReasonOutcomeUnknown}, nil
	}
	if result := execute(t, f.environment(t)); result.Reason != agent.ReasonOutcomeUnknown {
		t.Fatalf("result %+v", result)
	}
}

// A run that waits for a slot continues as new with its message, which BeginRun
// needs again; it tells older runs and sets its attributes once.
func TestQueuedRunKeepsItsMessage(t *testing.T) {
	t.Parallel()
	f := newFakes()
	f.begin.Admitted, f.begin.Budget.Timeout, f.begin.RetryAfter = false, 30*24*time.Hour, time.Second
	f.begin.Supersedes = []string{"run-0"}
	env := f.environment(t)
	env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, "", agent.SignalSupersede, mock.Anything).Return(nil).Once()
	env.ExecuteWorkflow(agent.WorkflowAgentRun, request())
	var next *workflow.ContinueAsNewError
	if err := env.GetWorkflowError(); !errors.As(err, &next) {
		t.Fatalf("error %v, want continue as new", err)
	}
	var in agent.RunRequest
	var carried *workflows.Carried
	if err := decode(next, &in, &carried); err != nil || in.Message != request().Message || carried.Loop.Status != agent.StatusQueued {
		t.Fatalf("carries %+v, %+v, %v", in, carried, err)
	}
	env.AssertExpectations(t)
}

func TestRetryWaitsAndTriesAgain(t *testing.T) {
	t.Parallel()
	f := newFakes()
	var tries []int
	f.next = func(_ context.Context, in agent.NextActionInput) (agent.Action, error) {
		tries = append(tries, in.Try)
		if in.Try < 2 {
			return agent.Action{Kind: agent.ActionFailure, Failure: &agent.Failure{
				Code: agent.FailureRateLimited, Retryable: true, RetryAfter: 20 * time.Minute,
			}}, nil
		}
		return agent.Action{Kind: agent.ActionFinal, AnswerMessageID: "answer"}, nil
	}
	env := f.environment(t)
	began := env.Now()
	if result := execute(t, env); result.Reason != agent.ReasonFinal {
		t.Fatalf("result %+v", result)
	}
	if waited := env.Now().Sub(began); waited < 40*time.Minute || fmt.Sprint(tries) != "[0 1 2]" {
		t.Fatalf("waited %s for tries %v, want 40 minutes of Retry-After", waited, tries)
	}
}

func TestCancelWhileTheModelIsCalled(t *testing.T) {
	t.Parallel()
	f := newFakes()
	entered, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	f.next = func(ctx context.Context, _ agent.NextActionInput) (agent.Action, error) {
		close(entered)
		// The test suite does not deliver cancellation to a blocked activity;
		// internal/endtoend shows on a real server that it arrives.
		<-release
		return agent.Action{}, ctx.Err()
	}
	env := f.environment(t)
	env.RegisterDelayedCallback(func() { <-entered; env.CancelWorkflow() }, time.Second)
	env.ExecuteWorkflow(agent.WorkflowAgentRun, request())
	var canceled *temporal.CanceledError
	if err := env.GetWorkflowError(); !errors.As(err, &canceled) {
		t.Fatalf("error %v, want canceled", err)
	}
	var result agent.RunResult
	if err := canceled.Details(&result); err != nil || result.Reason != agent.ReasonCanceled {
		t.Fatalf("details %+v, %v", result, err)
	}
	if len(f.ended) != 1 {
		t.Fatalf("ended %d times", len(f.ended))
	}
}

// A cancel that arrives while the run begins waits for that transaction, so that
// no run is stored which nobody ends; and not for long.
func TestCancelWhileTheRunBegins(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]bool{"begins": true, "the database is down": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakes()
			f.next = finalAt(0)
			f.begin.Generation = 7
			entered, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			f.beginning = func() error {
				once.Do(func() { close(entered) })
				if !begins {
					return errors.New("database unavailable")
				}
				<-release
				return nil
			}
			env := f.environment(t)
			// A callback holds the environment up, so it must not wait itself.
			var whenEntered func()
			whenEntered = func() {
				select {
				case <-entered:
					env.CancelWorkflow()
					close(release)
				default:
					env.RegisterDelayedCallback(whenEntered, time.Millisecond)
				}
			}
			env.RegisterDelayedCallback(whenEntered, time.Millisecond)
			began := env.Now()
			env.ExecuteWorkflow(agent.WorkflowAgentRun, request())
			var canceled *temporal.CanceledError
			if err := env.GetWorkflowError(); !errors.As(err, &canceled) {
				t.Fatalf("error %v, want canceled", err)
			}
			if len(f.ended) != 1 || (f.ended[0].Run.Generation == 7) != begins {
				t.Fatalf("ended %+v", f.ended)
			}
			if took := env.Now().Sub(began); took > time.Minute {
				t.Fatalf("the cancel took %s", took)
			}
		})
	}
}

func TestSupersededByNewerGenerationOnly(t *testing.T) {
	t.Parallel()
	f := newFakes()
	f.begin.Generation = 5
	f.next = func(_ context.Context, in agent.NextActionInput) (agent.Action, error) {
		if in.Step == 0 && in.Try == 0 {
			return agent.Action{Kind: agent.ActionFailure, Failure: &agent.Failure{
				Code: agent.FailureUnavailable, Retryable: true, RetryAfter: 10 * time.Minute,
			}}, nil
		}
		return agent.Action{}, errors.New("the model is called although the run was superseded")
	}
	env := f.environment(t)
	env.RegisterDelayedCallback(func() {
		env.SignalWorkflow(agent.SignalSupersede, agent.Supersession{ByRunID: "old", Generation: 5})
	}, time.Minute)
	env.RegisterDelayedCallback(func() {
		env.SignalWorkflow(agent.SignalSupersede, agent.Supersession{ByRunID: "new", Generation: 6})
	}, 2*time.Minute)
	began := env.Now()
	if result := execute(t, env); result.Reason != agent.ReasonSuperseded || result.Status != agent.StatusCanceled {
		t.Fatalf("result %+v", result)
	}
	if after := env.Now().Sub(began); after < 2*time.Minute || after > 9*time.Minute {
		t.Fatalf("ended after %s, want right after the newer generation's signal", after)
	}
}

func TestNewRunTellsTheOlderOne(t *testing.T) {
	t.Parallel()
	f := newFakes()
	f.begin.Generation, f.begin.Supersedes = 2, []string{"run-0"}
	f.next = finalAt(0)
	env := f.environment(t)
	env.OnSignalExternalWorkflow(mock.Anything, "agent-run~acme~run-0", "", agent.SignalSupersede,
		agent.Supersession{ByRunID: "run-1", Generation: 2}).Return(nil).Once()
	if result := execute(t, env); result.Reason != agent.ReasonFinal {
		t.Fatalf("result %+v", result)
	}
	env.AssertExpectations(t)
}

func TestDeadlineWhileTheActivityIsDown(t *testing.T) {
	t.Parallel()
	f := newFakes()
	f.begin.Budget.Timeout = 2 * time.Minute
	f.next = func(context.Context, agent.NextActionInput) (agent.Action, error) {
		return agent.Action{}, errors.New("database unavailable")
	}
	if result := execute(t, f.environment(t)); result.Reason != agent.ReasonDeadline {
		t.Fatalf("result %+v", result)
	}
}

func TestUnexpectedActivityErrorEndsTheRun(t *testing.T) {
	t.Parallel()
	f := newFakes()
	f.next = func(context.Context, agent.NextActionInput) (agent.Action, error) {
		return agent.Action{}, temporal.NewNonRetryableApplicationError("broken", "Broken", nil)
	}
	if result := execute(t, f.environment(t)); result.Reason != agent.ReasonInternal || result.Detail != agent.ActivityNextAction {
		t.Fatalf("result %+v", result)
	}
}

// A worker that stops hands a local activity back: the workflow gives it to the
// queue, under the same key.
func TestHandedBackActivityIsQueued(t *testing.T) {
	t.Parallel()
	f := newFakes()
	f.begin.Route.Local = true
	var inputs []agent.NextActionInput
	f.next = func(ctx context.Context, in agent.NextActionInput) (agent.Action, error) {
		inputs = append(inputs, in)
		if activity.GetInfo(ctx).IsLocalActivity {
			return agent.Action{}, temporal.NewNonRetryableApplicationError("stopping", agent.ErrorHandedBack, nil)
		}
		return agent.Action{Kind: agent.ActionFinal, AnswerMessageID: "answer"}, nil
	}
	if result := execute(t, f.environment(t)); result.Reason != agent.ReasonFinal {
		t.Fatalf("result %+v", result)
	}
	if len(inputs) != 2 || inputs[0] != inputs[1] {
		t.Fatalf("inputs %+v, want the same twice", inputs)
	}
}

// A long run continues in a new history, without its message, and the state
// that it carries leads to the same end.
func TestContinueAsNewCarriesTheState(t *testing.T) {
	t.Parallel()
	f := newFakes()
	f.next = finalAt(250)
	var (
		in      agent.RunRequest
		carried *workflows.Carried
		runs    int
	)
	for in = request(); ; runs++ {
		env := f.environment(t)
		if carried == nil {
			env.ExecuteWorkflow(agent.WorkflowAgentRun, in)
		} else {
			env.ExecuteWorkflow(agent.WorkflowAgentRun, in, carried)
		}
		var next *workflow.ContinueAsNewError
		if err := env.GetWorkflowError(); err == nil {
			var result agent.RunResult
			if err := env.GetWorkflowResult(&result); err != nil || result.Steps != 251 || result.Reason != agent.ReasonFinal {
				t.Fatalf("result %+v, %v", result, err)
			}
			break
		} else if !errors.As(err, &next) {
			t.Fatalf("error %v", err)
		}
		in, carried = agent.RunRequest{}, nil
		if err := decode(next, &in, &carried); err != nil {
			t.Fatal(err)
		}
		if in.Message != "" || carried.Loop.Step == 0 {
			t.Fatalf("carries message %q and step %d", in.Message, carried.Loop.Step)
		}
	}
	if runs != 2 || f.began != 1 {
		t.Fatalf("continued %d times and began %d times, want 2 and 1", runs, f.began)
	}
}
