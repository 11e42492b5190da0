package workflows_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/workflows"
)

// rememberers are fakes of an agent with memory.
type rememberers struct {
	*fakes
	// recall answers the n-th try, from 1.
	recall func(ctx context.Context, n int) (agent.RecallOutput, error)
	learn  bool

	mu    sync.Mutex
	asked []agent.RecallInput
	calls []agent.NextActionInput
}

func remembering(recall func(context.Context, int) (agent.RecallOutput, error)) *rememberers {
	m := &rememberers{fakes: newFakes(), recall: recall}
	m.begin.Recall = true
	final := finalAt(2)
	m.next = func(ctx context.Context, in agent.NextActionInput) (agent.Action, error) {
		m.mu.Lock()
		m.calls = append(m.calls, in)
		m.mu.Unlock()
		return final(ctx, in)
	}
	return m
}

func (m *rememberers) Recall(ctx context.Context, in agent.RecallInput) (agent.RecallOutput, error) {
	m.mu.Lock()
	m.asked = append(m.asked, in)
	n := len(m.asked)
	m.mu.Unlock()
	return m.recall(ctx, n)
}

func (m *rememberers) EndRun(ctx context.Context, in agent.EndRunInput) (agent.EndRunOutput, error) {
	result, err := m.fakes.EndRun(ctx, in)
	out := agent.EndRunOutput{RunResult: result, Learn: m.learn}
	out.Memory = &agent.MemoryUse{Learning: agent.LearningOff}
	if m.learn {
		out.Memory.Learning = agent.LearningStarted
	}
	if in.Recall != nil {
		out.Memory.Recall, out.Memory.Records, out.Memory.KeywordOnly = in.Recall.State, in.Recall.Records, in.Recall.KeywordOnly
	}
	return out, err
}

func (m *rememberers) environment(t *testing.T) *testsuite.TestWorkflowEnvironment {
	env := m.fakes.environment(t)
	env.RegisterActivityWithOptions(m.Recall, activity.RegisterOptions{Name: agent.ActivityRecall})
	env.RegisterActivityWithOptions(m.EndRun, activity.RegisterOptions{Name: agent.ActivityEndRun, DisableAlreadyRegisteredCheck: true})
	return env
}

func found(context.Context, int) (agent.RecallOutput, error) {
	return agent.RecallOutput{State: agent.RecallFound, Records: 3, KeywordOnly: true}, nil
}

// TestLTM7Workflow: whatever comes of looking for memories is a state of the run
// and no failure, after two tries of three seconds at most.
func TestLTM7Workflow(t *testing.T) {
	t.Parallel()
	down := errors.New("the store is away")
	for name, c := range map[string]struct {
		recall   func(context.Context, int) (agent.RecallOutput, error)
		tries    int
		recalled bool
		want     agent.RecallOutput
	}{
		"found": {found, 1, true, agent.RecallOutput{State: agent.RecallFound, Records: 3, KeywordOnly: true}},
		"nothing": {func(context.Context, int) (agent.RecallOutput, error) {
			return agent.RecallOutput{State: agent.RecallNothing}, nil
		}, 1, false, agent.RecallOutput{State: agent.RecallNothing}},
		"found by the second try": {func(ctx context.Context, n int) (agent.RecallOutput, error) {
			if n == 1 {
				return agent.RecallOutput{}, down
			}
			return found(ctx, n)
		}, 2, true, agent.RecallOutput{State: agent.RecallFound, Records: 3, KeywordOnly: true}},
		"down": {func(context.Context, int) (agent.RecallOutput, error) { return agent.RecallOutput{}, down }, 2, false, agent.RecallOutput{State: agent.RecallUnavailable}},
		"fault": {func(context.Context, int) (agent.RecallOutput, error) {
			return agent.RecallOutput{}, temporal.NewNonRetryableApplicationError("fault", "Internal", nil)
		}, 1, false, agent.RecallOutput{State: agent.RecallUnavailable}},
		// What would hang is cut off by its deadline, which is near.
		"hangs": {func(ctx context.Context, n int) (agent.RecallOutput, error) {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 3*time.Second {
				t.Errorf("try %d: the deadline is %s, %t", n, deadline, ok)
			}
			return agent.RecallOutput{}, context.DeadlineExceeded
		}, 2, false, agent.RecallOutput{State: agent.RecallUnavailable}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := remembering(c.recall)
			env := m.environment(t)
			result := execute(t, env)
			if result.Reason != agent.ReasonFinal || *result.Memory != (agent.MemoryUse{Recall: c.want.State, Records: c.want.Records, KeywordOnly: c.want.KeywordOnly, Learning: agent.LearningOff}) {
				t.Fatalf("result %+v, memory %+v", result, result.Memory)
			}
			if len(m.asked) != c.tries || m.asked[0] != (agent.RecallInput{Run: agent.RunRef{Scope: request().Scope(), RunID: "run-1", Generation: 1}, DefinitionDigest: "digest"}) {
				t.Errorf("asked %+v, want %d tries", m.asked, c.tries)
			}
			room := request().MemoryRoom()
			for _, in := range m.calls {
				if in.Recalled != c.recalled || c.recalled && !reflect.DeepEqual(in.Room, &room) || !c.recalled && in.Room != nil {
					t.Errorf("step %d: recalled %t, room %+v", in.Step, in.Recalled, in.Room)
				}
			}
			value, err := env.QueryWorkflow(agent.QueryState)
			if err != nil {
				t.Fatal(err)
			}
			var view agent.RunView
			if err := value.Get(&view); err != nil || view.Recall != c.want.State {
				t.Errorf("view %+v, %v", view, err)
			}
		})
	}
}

// TestRunWithoutMemoryAsksForNone: the workflow of an agent without memory is what
// it was, so that old histories fit it.
func TestRunWithoutMemoryAsksForNone(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*agent.BeginRunOutput){
		"no recall": func(out *agent.BeginRunOutput) { out.Recall = false },
		"ended":     func(out *agent.BeginRunOutput) { out.Admitted, out.Ended = false, agent.ReasonDeclinedByPolicy },
	} {
		m := remembering(found)
		edit(&m.begin)
		execute(t, m.environment(t))
		if len(m.asked) != 0 || m.ended[0].Recall != nil {
			t.Errorf("%s: asked %+v, ended %+v", name, m.asked, m.ended)
		}
	}
}

// TestRecallOncePerRun: it is asked when the run is admitted, not while it waits
// for a slot, and what came of it goes along into new histories.
func TestRecallOncePerRun(t *testing.T) {
	t.Parallel()
	m := remembering(found)
	m.begin.Admitted, m.begin.RetryAfter = false, time.Second
	m.beginning = func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.begin.Admitted = m.began >= 2
		return nil
	}
	final := finalAt(500)
	m.next = func(ctx context.Context, in agent.NextActionInput) (agent.Action, error) {
		m.mu.Lock()
		m.calls = append(m.calls, in)
		m.mu.Unlock()
		return final(ctx, in)
	}
	env := m.environment(t)
	env.ExecuteWorkflow(agent.WorkflowAgentRun, request())
	histories := 1
	for {
		var next *workflow.ContinueAsNewError
		if !errors.As(env.GetWorkflowError(), &next) {
			break
		}
		var req agent.RunRequest
		var carried *workflows.Carried
		if err := decode(next, &req, &carried); err != nil {
			t.Fatal(err)
		}
		histories++
		env = m.environment(t)
		env.ExecuteWorkflow(agent.WorkflowAgentRun, req, carried)
	}
	var result agent.RunResult
	if err := env.GetWorkflowResult(&result); err != nil {
		t.Fatal(err)
	}
	if histories < 3 || m.began != 3 || len(m.asked) != 1 || result.Memory.Records != 3 {
		t.Errorf("%d histories, begun %d times, asked %d times, %+v", histories, m.began, len(m.asked), result.Memory)
	}
	for _, in := range m.calls {
		if !in.Recalled || in.Room == nil || in.Room.Conversation != "c1" {
			t.Fatalf("step %d: %+v", in.Step, in)
		}
	}
}

// TestLTM5Workflow: learning is started when the run has ended and nobody waits
// for it; that it could not be started is in the result, which is an answer all
// the same.
func TestLTM5Workflow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cancel, fails bool
		want          agent.LearningState
	}{
		"learned":       {false, false, agent.LearningStarted},
		"run canceled":  {true, false, agent.LearningStarted},
		"cannot start":  {false, true, agent.LearningNotSaved},
		"learner fails": {false, false, agent.LearningStarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := remembering(found)
			m.learn = true
			env := m.environment(t)
			env.RegisterActivityWithOptions(func(context.Context, agent.LearnInput) (agent.LearnOutput, error) {
				if name == "learner fails" {
					return agent.LearnOutput{}, errors.New("the extractor is away")
				}
				return agent.LearnOutput{}, nil
			}, activity.RegisterOptions{Name: agent.ActivityLearn})
			var started *workflow.Info
			var in agent.LearnInput
			env.SetOnChildWorkflowStartedListener(func(info *workflow.Info, _ workflow.Context, args converter.EncodedValues) {
				started = info
				if err := args.Get(&in); err != nil {
					t.Error(err)
				}
			})
			if c.fails {
				env.OnWorkflow(agent.WorkflowLearnFromRun, mock.Anything, mock.Anything).Return(agent.LearnResult{}, testsuite.ErrMockStartChildWorkflowFailed)
			}
			if c.cancel {
				final := m.next
				m.next = func(ctx context.Context, in agent.NextActionInput) (agent.Action, error) {
					env.CancelWorkflow()
					return final(ctx, in)
				}
			}
			env.ExecuteWorkflow(agent.WorkflowAgentRun, request())
			var result agent.RunResult
			err := env.GetWorkflowError()
			var canceled *temporal.CanceledError
			switch {
			case err == nil:
				err = env.GetWorkflowResult(&result)
			case errors.As(err, &canceled):
				err = canceled.Details(&result)
			}
			if err != nil {
				t.Fatal(err)
			}
			if result.Memory == nil || result.Memory.Learning != c.want {
				t.Errorf("memory %+v", result.Memory)
			}
			if c.fails {
				return
			}
			want := agent.LearnInput{Run: agent.RunRef{Scope: request().Scope(), RunID: "run-1", Generation: 1}, Room: request().MemoryRoom(), DefinitionDigest: "digest"}
			if started == nil || started.WorkflowExecution.ID != "learn~acme~run-1" || in != want {
				t.Errorf("started %+v with %+v", started, in)
			}
		})
	}
}
