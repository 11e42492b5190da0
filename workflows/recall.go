package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
)

const (
	// recallPatience bounds what a run waits for its memories, both tries
	// included: the user waits for the answer. recallTry is one of them.
	recallPatience = 5 * time.Second
	recallTry      = 3 * time.Second
	recallTries    = 2
)

// recall looks for memories, once in a run. A run without memory answers all the
// same: that nobody knows whether there is any is its state, and no failure.
func (r *run) recall(work workflow.Context) {
	r.waitingFor = "its memories"
	workflow.SetCurrentDetails(work, r.details())
	r.activities++
	ctx := workflow.WithLocalActivityOptions(work, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: recallPatience, StartToCloseTimeout: recallTry, Summary: "recall",
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, MaximumAttempts: recallTries},
	})
	var out agent.RecallOutput
	in := agent.RecallInput{Run: r.carried.Ref, DefinitionDigest: r.carried.Digest}
	if err := workflow.ExecuteLocalActivity(ctx, agent.ActivityRecall, in).Get(work, &out); err != nil {
		out = agent.RecallOutput{State: agent.RecallUnavailable}
	}
	r.carried.Recall = &out
}

// recalled has a model call read what Recall gave to the run.
func (r *run) recalled(in *agent.NextActionInput) {
	if found := r.carried.Recall; found != nil && found.Records > 0 {
		room := r.request.MemoryRoom()
		in.Recalled, in.Room = true, &room
	}
}

// learn starts LearnFromRun and waits no longer than until it is on record, like
// summarize. If it cannot be started the result says so: the lesson is due in the
// database, and ReconcileMemory starts it.
func (r *run) learn(ctx workflow.Context, result *agent.RunResult) {
	room := r.request.MemoryRoom()
	// Never canceled: a canceled context would cancel the child.
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	ctx = memoryChild(ctx, agent.LearnWorkflowID(room.Scope.Tenant, r.request.RunID), room)
	in := agent.LearnInput{Run: r.carried.Ref, Room: room, DefinitionDigest: r.carried.Digest}
	err := workflow.ExecuteChildWorkflow(ctx, agent.WorkflowLearnFromRun, in).GetChildWorkflowExecution().Get(ctx, nil)
	var running *temporal.ChildWorkflowExecutionAlreadyStartedError
	if err != nil && !errors.As(err, &running) && result.Memory != nil {
		use := *result.Memory
		use.Learning = agent.LearningNotSaved
		result.Memory = &use
	}
}
