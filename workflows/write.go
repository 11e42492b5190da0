package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/internal/agentloop"
)

const (
	// refusedAtOnce bounds the tokens in one input of RefuseApprovals, far below
	// the server's limit for one payload.
	refusedAtOnce = 100
)

// approvalsFrom takes down every approval that arrives, also before the run
// waits for one: it may have been sent by somebody who saw the plan in the
// database sooner than the run heard of it.
func (r *run) approvalsFrom(ctx workflow.Context) {
	approvals := workflow.GetSignalChannel(ctx, agent.SignalApproval)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var payload converter.RawValue
			if !approvals.Receive(ctx, &payload) {
				return
			}
			r.approvals = append(r.approvals, tokenOf(payload))
		}
	})
	settled := workflow.GetSignalChannel(ctx, agent.SignalSettled)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for settled.Receive(ctx, nil) {
			r.settled = true
		}
	})
}

// tokenOf reads a signal by hand: the SDK drops what it cannot decode, and an
// approval that cannot be read has to be refused on the record. It is empty then.
func tokenOf(payload converter.RawValue) string {
	var approval agent.Approval
	if p := payload.Payload(); p == nil || json.Unmarshal(p.GetData(), &approval) != nil || len(approval.Token) > agent.MaxTokenBytes {
		return ""
	}
	return approval.Token
}

func (r *run) prepareWrite(work workflow.Context, call agent.Call) {
	in := agent.PrepareWriteInput{Run: r.carried.Ref, CallID: call.ID, ArgumentsHash: call.ArgumentsHash}
	var prepared agent.PreparedWrite
	summary := fmt.Sprintf("step %d: prepare %s", r.loop.Step, call.Tool)
	patience := r.remaining(work)
	if r.loop.Status == agent.StatusWaitingConfirmation {
		// A plan that is made anew: the run's time stands still.
		patience = beginPatience
	}
	if err := r.queued(work, patience, summary, agent.ActivityPrepareWrite, in).Get(work, &prepared); err != nil {
		r.activityFailed(work, err, agent.ActivityPrepareWrite)
		return
	}
	before := r.loop.Status
	r.loop.Prepared(prepared)
	if r.loop.Status != before {
		r.setSearchAttributes(work)
	}
}

// awaitApproval waits for a decision, or for the plan to expire, and carries the
// decision out.
func (r *run) awaitApproval(work workflow.Context, call agent.Call, plan agent.PlanRef) {
	if left := plan.ExpiresAt.Sub(workflow.Now(work)); len(r.approvals) == 0 && left > 0 {
		_, err := workflow.AwaitWithOptions(work, workflow.AwaitOptions{
			Timeout: left, TimerOptions: workflow.TimerOptions{Summary: "confirmation of " + call.Tool},
		}, func() bool { return len(r.approvals) > 0 })
		if err != nil {
			return // stopped, which the next round sees
		}
	}
	in := agent.CommitWriteInput{Run: r.carried.Ref, CallID: call.ID, ArgumentsHash: call.ArgumentsHash, Revision: plan.Revision}
	var out agent.WriteOutcome
	var err error
	activity := agent.ActivityCommitWrite
	if len(r.approvals) == 0 {
		activity = agent.ActivityExpirePlan
		expire := agent.ExpirePlanInput{Run: r.carried.Ref, CallID: call.ID, Revision: plan.Revision}
		err = r.queued(work, beginPatience, "expire "+call.Tool, agent.ActivityExpirePlan, expire).Get(work, &out)
	} else {
		in.Token, r.approvals = r.approvals[0], r.approvals[1:]
		summary := fmt.Sprintf("step %d: commit %s", r.loop.Step, call.Tool)
		// A commit that has begun is not canceled: the activity goes on to its
		// boundary, and the run waits for what it says. It asks the tool for the
		// plan again first, so it takes up to twice the tool's time.
		err = r.queued(work, 2*plan.Timeout+beginPatience, summary, agent.ActivityCommitWrite, in).Get(work, &out)
	}
	before := r.loop.Status
	if r.lost = nil; err != nil && activity == agent.ActivityCommitWrite {
		r.lost = []string{in.Token}
	}
	switch {
	case err == nil:
		r.refused(out)
		r.loop.Committed(out)
	case work.Err() != nil || temporal.IsCanceledError(err):
		r.loop.CommitLost(agent.ReasonCanceled, "")
	case final(err):
		r.loop.CommitLost(agent.ReasonInternal, activity)
	default:
		r.loop.CommitLost(agent.ReasonDeadline, activity)
	}
	if r.loop.Status != before && !r.loop.Ended() {
		r.setSearchAttributes(work)
	}
}

// refused remembers what an operator should see.
func (r *run) refused(out agent.WriteOutcome) {
	if out.State == agent.WriteRefused {
		r.carried.Refusals++
		r.carried.LastRefusal = out.Refusal
	}
}

// resolveWrite finds out what became of a write. Nothing stops it, and work may
// have ended already; but once it has, nothing is performed any more.
func (r *run) resolveWrite(work workflow.Context, d agentloop.Decision) {
	free, cancel := workflow.NewDisconnectedContext(work)
	defer cancel()
	call, timeout := d.Calls[0], time.Duration(0)
	if plan := r.loop.Write.Plan; plan != nil {
		timeout = plan.Timeout
	}
	if d.Wait > 0 && !r.settled {
		// On a context of its own, it is never canceled.
		_, _ = workflow.AwaitWithOptions(free, workflow.AwaitOptions{
			Timeout: d.Wait, TimerOptions: workflow.TimerOptions{Summary: "look up " + call.Tool},
		}, func() bool { return r.settled })
	}
	r.settled = false
	stopped := work.Err() != nil
	in := agent.ResolveWriteInput{
		Run: r.carried.Ref, CallID: call.ID, ArgumentsHash: call.ArgumentsHash, Stopping: d.Stopping || stopped,
	}
	// It looks up, and may then perform with the same key. Without the database
	// nobody can tell how far the write came, so it is waited for.
	looking := r.queued(free, 2*timeout+beginPatience, "look up "+call.Tool, agent.ActivityResolveWrite, in)
	if !stopped {
		workflow.NewSelector(free).AddFuture(looking, func(workflow.Future) {}).AddReceive(work.Done(), func(workflow.ReceiveChannel, bool) {}).Select(free)
		if !looking.IsReady() {
			cancel() // tells the activity, which goes on to say what it finds
		}
	}
	var out agent.WriteOutcome
	err := looking.Get(free, &out)
	switch {
	case err == nil:
		if out.State == agent.WriteNotBegun {
			// Nobody has looked at the token: it is refused on the record.
			r.approvals = append(r.approvals, r.lost...)
		}
		r.loop.Committed(out)
	case temporal.IsCanceledError(err) && !stopped:
		// It had not begun: the next round asks again, for a run that stops.
	default:
		r.loop.LookUpLost()
	}
}

// refuseApprovals puts on record what arrived when nothing waited for it.
func (r *run) refuseApprovals(ctx workflow.Context) {
	catchUp(ctx)
	for len(r.approvals) > 0 {
		n := min(len(r.approvals), refusedAtOnce)
		in := agent.RefuseApprovalsInput{Run: r.carried.Ref, Tokens: r.approvals[:n]}
		if err := r.record(ctx, "refuse approvals", agent.ActivityRefuseApprovals, in, nil); err != nil {
			workflow.GetLogger(ctx).Error("approvals could not be recorded", "count", len(r.approvals), "error", err)
			return
		}
		r.approvals = r.approvals[n:]
		catchUp(ctx)
	}
}

// catchUp lets the goroutines that wait for signals take down every one that has
// arrived. The SDK hands a signal to such a goroutine before that one runs, so
// nobody else finds it in its channel, and it is lost with the history if the
// workflow completes or continues as new first.
func catchUp(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx) // a canceled one does not wait
	defer cancel()
	waited := false
	_ = workflow.Await(ctx, func() bool {
		done := waited
		waited = true
		return done
	})
}

// record tries the cheap way first and falls back to the queue, where an
// operator sees the pending activity and its last failure.
func (r *run) record(ctx workflow.Context, summary, name string, in, out any) error {
	err := r.local(ctx, endPatience, summary, name, in).Get(ctx, out)
	if err == nil {
		return nil
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 30 * time.Second, RetryPolicy: infrastructureRetry(), Summary: summary,
	})
	return workflow.ExecuteActivity(ctx, name, in).Get(ctx, out)
}

func final(err error) bool {
	var application *temporal.ApplicationError
	return errors.As(err, &application) && application.NonRetryable()
}
