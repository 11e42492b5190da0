package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
)

const (
	// heartbeatTimeout is how soon a dead worker is noticed. Activities beat
	// once a second.
	heartbeatTimeout = 10 * time.Second
	// activityGrace is what an activity may take beyond the time of its work,
	// for bookkeeping and for a busy machine.
	activityGrace = 20 * time.Second
	// beginPatience bounds how long a run waits for its first transaction when
	// the database is down and the request names no shorter time; and for the
	// transactions that say how far a write has come.
	beginPatience = 24 * time.Hour
	// beginGrace is how long a canceled run waits for its first transaction.
	beginGrace = 5 * time.Second
	// handBackPause is how long work that a stopping worker gave back waits.
	handBackPause = time.Second
	// endPatience is how long the cheap way of recording the end is tried
	// before Temporal's queue takes over, which has no limit.
	endPatience = 10 * time.Second
)

// infrastructureRetry retries what failed outside of the run's own work, such as
// a database that is down. Model calls are not retried here: that is the loop's
// decision, and a failed call is a successful activity that says so.
func infrastructureRetry() *temporal.RetryPolicy {
	return &temporal.RetryPolicy{
		InitialInterval: 250 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 5 * time.Second,
	}
}

// beginRun runs as a local activity only: its input holds the user's message,
// and the input of a local activity enters no history.
func (r *run) beginRun(ctx workflow.Context, in agent.BeginRunInput) workflow.Future {
	patience := beginPatience
	if b := r.request.Budget; b != nil && b.Timeout != nil && *b.Timeout < patience {
		patience = *b.Timeout
	}
	return r.local(ctx, patience, "begin", agent.ActivityBeginRun, in)
}

func (r *run) nextAction(ctx workflow.Context, in agent.NextActionInput) task {
	summary := fmt.Sprintf("step %d: %s", in.Step+1, in.Model)
	if in.Try > 0 {
		summary = fmt.Sprintf("step %d, try %d: %s", in.Step+1, in.Try+1, in.Model)
	}
	return r.start(ctx, r.carried.Route.Local, summary, agent.ActivityNextAction, in)
}

func (r *run) readTool(ctx workflow.Context, call agent.Call) task {
	in := agent.ReadToolInput{
		Run: r.carried.Ref, CallID: call.ID, ArgumentsHash: call.ArgumentsHash, Deadline: r.loop.Deadline,
	}
	summary := fmt.Sprintf("step %d: %s", r.loop.Step, call.Tool)
	return r.start(ctx, call.Local, summary, agent.ActivityReadTool, in)
}

// task is an activity under way.
type task struct {
	workflow.Future
	// again queues it, for when its worker stops.
	again func() workflow.Future
}

// Get waits for the activity. A local one whose worker stops is given to
// Temporal's queue: completing the workflow task is what lets another worker
// continue, where a time-out would have to pass otherwise. The pause lets the
// stopping worker end its polls first: a task that one of them still took would
// be lost until its heartbeat is missed.
func (t task) Get(ctx workflow.Context, value any) error {
	err := t.Future.Get(ctx, value)
	var application *temporal.ApplicationError
	if t.again != nil && errors.As(err, &application) && application.Type() == agent.ErrorHandedBack {
		if err := workflow.Sleep(ctx, handBackPause); err != nil {
			return err
		}
		return t.again().Get(ctx, value)
	}
	return err
}

// start executes an activity of a step, for at most the time that is left.
func (r *run) start(ctx workflow.Context, local bool, summary, name string, in any) task {
	limit := r.remaining(ctx)
	if !local {
		return task{Future: r.queued(ctx, limit, summary, name, in)}
	}
	return task{
		Future: r.local(ctx, limit, summary, name, in),
		again:  func() workflow.Future { return r.queued(ctx, r.remaining(ctx), summary, name, in) },
	}
}

func (r *run) endRun(ctx workflow.Context, in agent.EndRunInput) (result agent.EndRunOutput, err error) {
	err = r.record(ctx, "end", agent.ActivityEndRun, in, &result)
	return result, err
}

// remaining is the time that an activity may take in all, retries included.
func (r *run) remaining(ctx workflow.Context) time.Duration {
	return max(r.loop.Deadline.Sub(workflow.Now(ctx)), 0) + activityGrace
}

func (r *run) local(ctx workflow.Context, limit time.Duration, summary, name string, in any) workflow.Future {
	r.activities++
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: limit, RetryPolicy: infrastructureRetry(), Summary: summary,
	})
	return workflow.ExecuteLocalActivity(ctx, name, in)
}

func (r *run) queued(ctx workflow.Context, limit time.Duration, summary, name string, in any) workflow.Future {
	r.activities++
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: limit, HeartbeatTimeout: heartbeatTimeout,
		RetryPolicy: infrastructureRetry(), WaitForCancellation: true, Summary: summary,
	})
	return workflow.ExecuteActivity(ctx, name, in)
}
