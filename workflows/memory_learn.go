package workflows

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
)

const (
	// learnPatience bounds learning from one run, its retries included. Then the
	// lesson stays due, and ReconcileMemory starts it again.
	learnPatience = 15 * time.Minute
	// learnTries are few, and learnPause apart: each may cost something, and an
	// outage is waited for by ReconcileMemory.
	learnTries = 2
	learnPause = time.Minute
)

// LearnFromRun proposes what can be remembered from a run, in the background
// (LTM-5), and starts one MemoryWrite for each candidate. Its failure changes
// nothing about the run: it is a result, and the lesson is tried again later.
func LearnFromRun(ctx workflow.Context, in agent.LearnInput) (agent.LearnResult, error) {
	options := workflow.GetActivityOptions(memoryActivity(ctx, learnPatience, "learn"))
	options.RetryPolicy.MaximumAttempts = learnTries
	options.RetryPolicy.InitialInterval, options.RetryPolicy.MaximumInterval = learnPause, learnPause
	var out agent.LearnOutput
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), agent.ActivityLearn, in).Get(ctx, &out)
	switch {
	case ctx.Err() != nil || temporal.IsCanceledError(err):
		return agent.LearnResult{}, err
	case err != nil:
		return agent.LearnResult{State: agent.MemoryNotSaved, Failure: "unavailable"}, nil
	}
	result := agent.LearnResult{Candidates: out.Candidates, Rejected: out.Rejected, Failure: out.Failure}
	switch {
	case out.Later:
		result.State = agent.MemoryNotSaved
	case len(out.Candidates) > 0:
		result.State = agent.MemoryProposed
	}
	writes := make([]agent.MemoryWriteInput, len(out.Candidates))
	for i, id := range out.Candidates {
		writes[i] = agent.MemoryWriteInput{ID: id, Room: in.Room}
	}
	startWrites(ctx, writes)
	return result, nil
}

// startWrites starts MemoryWrites and waits until they are on record. One that
// is under way already goes on; one that cannot be started is started by
// ReconcileMemory.
func startWrites(ctx workflow.Context, writes []agent.MemoryWriteInput) {
	started := make([]workflow.Future, len(writes))
	for i, in := range writes {
		ctx := memoryChild(ctx, agent.MemoryWriteWorkflowID(in.Room.Scope.Tenant, in.ID), in.Room)
		started[i] = workflow.ExecuteChildWorkflow(ctx, agent.WorkflowMemoryWrite, in).GetChildWorkflowExecution()
	}
	for _, start := range started {
		_ = start.Get(ctx, nil)
	}
}

const (
	// reconcilePatience bounds one round of ReconcileMemory.
	reconcilePatience = 30 * time.Minute
	// maxRounds bounds one ReconcileMemory; what is left is found by the next.
	maxRounds = 20
	// maxStarted bounds the children of one history.
	maxStarted = 1_000
	// maxListed bounds what a result lists of writes and lessons.
	maxListed = 50
)

// ReconcileMemory finds and repairs what is left over, and starts what is due
// and not under way. A schedule starts it. A round that fails ends it: the next
// one finds the same.
func ReconcileMemory(ctx workflow.Context, in agent.ReconcileInput) (agent.ReconcileReport, error) {
	var total agent.ReconcileReport
	writes, lessons := map[string]bool{}, map[string]bool{}
	for range maxRounds {
		var found agent.ReconcileReport
		err := workflow.ExecuteActivity(memoryActivity(ctx, reconcilePatience, "reconcile"), agent.ActivityReconcile, in).Get(ctx, &found)
		if err != nil {
			return total, err
		}
		// A round may list again what the one before has started.
		found.Writes = slices.DeleteFunc(found.Writes, func(w agent.MemoryWriteInput) bool {
			return seen(writes, agent.MemoryWriteWorkflowID(w.Room.Scope.Tenant, w.ID))
		})
		found.Lessons = slices.DeleteFunc(found.Lessons, func(l agent.LearnInput) bool {
			return seen(lessons, agent.LearnWorkflowID(l.Run.Scope.Tenant, l.Run.RunID))
		})
		startWrites(ctx, found.Writes)
		startLessons(ctx, found.Lessons)
		found.Erasures = slices.DeleteFunc(found.Erasures, func(e agent.EraseInput) bool {
			return seen(writes, agent.EraseWorkflowID(e.Tenant, e.User))
		})
		startErasures(ctx, found.Erasures)
		total.Erasures = atMost(append(total.Erasures, found.Erasures...))
		startReindex(ctx, found.Reindex)
		total.Tenants = max(total.Tenants, found.Tenants)
		total.Expired += found.Expired
		total.Residue += found.Residue
		total.Missing += found.Missing
		total.Reindex, total.More = found.Reindex, found.More
		total.Writes = atMost(append(total.Writes, found.Writes...))
		total.Lessons = atMost(append(total.Lessons, found.Lessons...))
		if !found.More || len(writes)+len(lessons) >= maxStarted {
			break
		}
	}
	return total, nil
}

func seen(ids map[string]bool, id string) bool {
	was := ids[id]
	ids[id] = true
	return was
}

func atMost[T any](list []T) []T { return list[:min(len(list), maxListed)] }

func startLessons(ctx workflow.Context, lessons []agent.LearnInput) {
	started := make([]workflow.Future, len(lessons))
	for i, in := range lessons {
		ctx := memoryChild(ctx, agent.LearnWorkflowID(in.Run.Scope.Tenant, in.Run.RunID), in.Room)
		started[i] = workflow.ExecuteChildWorkflow(ctx, agent.WorkflowLearnFromRun, in).GetChildWorkflowExecution()
	}
	for _, start := range started {
		_ = start.Get(ctx, nil)
	}
}

// startErasures goes on with erasures that were not completed; one that is under
// way already goes on by itself.
func startErasures(ctx workflow.Context, erasures []agent.EraseInput) {
	for _, in := range erasures {
		child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID: agent.EraseWorkflowID(in.Tenant, in.User), ParentClosePolicy: enums.PARENT_CLOSE_POLICY_ABANDON,
			WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		})
		_ = workflow.ExecuteChildWorkflow(child, agent.WorkflowEraseSubject, in).GetChildWorkflowExecution().Get(ctx, nil)
	}
}

// startReindex starts ReindexMemory if an embedder is being built and nobody
// does it.
func startReindex(ctx workflow.Context, embedder string) {
	if embedder == "" {
		return
	}
	child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: agent.ReindexWorkflowID, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
	})
	in := agent.ReindexInput{Embedder: embedder}
	_ = workflow.ExecuteChildWorkflow(child, agent.WorkflowReindexMemory, in).GetChildWorkflowExecution().Get(ctx, nil)
}

const (
	// reindexPatience bounds one piece of a re-index. Then it ends undone, and
	// ReconcileMemory starts it again.
	reindexPatience = time.Hour
	// maxReindexPieces is how many pieces one history holds.
	maxReindexPieces = 200
)

// ReindexMemory computes the vectors of all records with the embedder that the
// workers have, while the old ones go on serving, and then lets the new ones
// serve. carried is nil except in a continuation: what was done before.
func ReindexMemory(ctx workflow.Context, in agent.ReindexInput, carried *agent.ReindexOutput) (agent.ReindexOutput, error) {
	var total agent.ReindexOutput
	if carried != nil {
		total = *carried
	}
	for range maxReindexPieces {
		var piece agent.ReindexOutput
		err := workflow.ExecuteActivity(memoryActivity(ctx, reindexPatience, "embed"), agent.ActivityReindex, in).Get(ctx, &piece)
		switch {
		case err != nil && (ctx.Err() != nil || final(err)):
			return total, err
		case err != nil:
			return total, nil
		}
		total.Embedded += piece.Embedded
		total.Failed, total.Done = piece.Failed, piece.Done
		if total.Done {
			return total, nil
		}
	}
	return total, workflow.NewContinueAsNewError(ctx, agent.WorkflowReindexMemory, in, &total)
}

// lasting reports whether an activity failed with one of the types of package
// agent, which no retry can mend.
func lasting(err error, types ...string) bool {
	var application *temporal.ApplicationError
	return errors.As(err, &application) && slices.Contains(types, application.Type())
}
