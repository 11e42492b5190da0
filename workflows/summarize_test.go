package workflows_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
)

// growing is a conversation whose runs end with a summary due.
type growing struct{ *fakes }

func (g growing) EndRun(ctx context.Context, in agent.EndRunInput) (agent.EndRunOutput, error) {
	result, err := g.fakes.EndRun(ctx, in)
	return agent.EndRunOutput{RunResult: result, Summarize: true}, err
}

func (g growing) environment(t *testing.T, summarize func(agent.SummarizeInput) (agent.SummarizeOutput, error)) *testsuite.TestWorkflowEnvironment {
	env := g.fakes.environment(t)
	env.RegisterActivityWithOptions(g.EndRun, activity.RegisterOptions{Name: agent.ActivityEndRun, DisableAlreadyRegisteredCheck: true})
	env.RegisterActivityWithOptions(func(_ context.Context, in agent.SummarizeInput) (agent.SummarizeOutput, error) { return summarize(in) },
		activity.RegisterOptions{Name: agent.ActivitySummarize})
	return env
}

// TestRunStartsTheSummary: at its end, when it is canceled too. That it does not
// end with the run is tested on a real server.
func TestRunStartsTheSummary(t *testing.T) {
	t.Parallel()
	for name, cancel := range map[string]bool{"final": false, "canceled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := growing{newFakes()}
			g.next = finalAt(0)
			env := g.environment(t, func(agent.SummarizeInput) (agent.SummarizeOutput, error) { return agent.SummarizeOutput{}, nil })
			var started *workflow.Info
			var in agent.SummarizeInput
			env.SetOnChildWorkflowStartedListener(func(info *workflow.Info, _ workflow.Context, args converter.EncodedValues) {
				started = info
				if err := args.Get(&in); err != nil {
					t.Error(err)
				}
			})
			if cancel {
				g.next = func(context.Context, agent.NextActionInput) (agent.Action, error) {
					env.CancelWorkflow()
					return agent.Action{}, temporal.NewCanceledError()
				}
			}
			env.ExecuteWorkflow(agent.WorkflowAgentRun, request())
			if err := env.GetWorkflowError(); (err != nil) != cancel {
				t.Fatal(err)
			}
			if started == nil || started.WorkflowExecution.ID != "summarize~acme~c1" || started.WorkflowType.Name != agent.WorkflowSummarize {
				t.Fatalf("started %+v", started)
			}
			if want := (agent.SummarizeInput{Scope: request().Scope(), Conversation: "c1", DefinitionDigest: "digest"}); in != want {
				t.Errorf("with %+v", in)
			}
		})
	}
}

func TestSummarizeUntilNothingIsDue(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	env := growing{newFakes()}.environment(t, func(agent.SummarizeInput) (agent.SummarizeOutput, error) {
		n := asked.Add(1)
		return agent.SummarizeOutput{FromSeq: n, ToSeq: n, More: n < 3}, nil
	})
	env.ExecuteWorkflow(agent.WorkflowSummarize, agent.SummarizeInput{Scope: request().Scope(), Conversation: "c1"})
	if err := env.GetWorkflowError(); err != nil || asked.Load() != 3 {
		t.Errorf("asked %d times, %v", asked.Load(), err)
	}
}

// TestSummarizeEnds: neither endless work nor an endless failure goes on.
func TestSummarizeEnds(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	env := growing{newFakes()}.environment(t, func(agent.SummarizeInput) (agent.SummarizeOutput, error) {
		asked.Add(1)
		return agent.SummarizeOutput{More: true}, nil
	})
	env.ExecuteWorkflow(agent.WorkflowSummarize, agent.SummarizeInput{})
	if err := env.GetWorkflowError(); err != nil || asked.Load() != 50 {
		t.Errorf("asked %d times, %v", asked.Load(), err)
	}

	asked.Store(0)
	env = growing{newFakes()}.environment(t, func(agent.SummarizeInput) (agent.SummarizeOutput, error) {
		asked.Add(1)
		return agent.SummarizeOutput{}, errors.New("the model is away")
	})
	env.ExecuteWorkflow(agent.WorkflowSummarize, agent.SummarizeInput{})
	if err := env.GetWorkflowError(); err == nil || asked.Load() != 5 {
		t.Errorf("asked %d times, %v", asked.Load(), err)
	}
}
