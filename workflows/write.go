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
	// writePatience is how long the database may be away while a write is
	// committed or resolved, beyond the time of the tool itself.
	writePatience = 2 * time.Minute
	// refusedAtOnce bounds the tokens in one input of RefuseApprovals, far below
	// the server's limit for one payload.
	refusedAtOnce = 100
)

// approvalsFrom takes down every approval that arrives, also before the run
// waits for one: it may have been sent by somebody who saw the plan in the
// database sooner than the run heard of it.
func (r *run) approvalsFrom(ctx workflow.Context) {
	r.approvalSignals = workflow.GetSignalChannel(ctx, agent.SignalApproval)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var payload converter.RawValue
			if !r.approvalSignals.Receive(ctx, &payload) {
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
	// A plan that is made anew after days of waiting has its time too: the run's
	// deadline moves on when the wait is over.
	if err := r.queued(work, max(r.remaining(work), writePatience), summary, agent.ActivityPrepareWrite, in).Get(work, &prepared); err != nil {
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
	var out agent.WriteOutcome
	var err error
	if len(r.approvals) == 0 {
		in := agent.ExpirePlanInput{Run: r.carried.Ref, CallID: call.ID, Revision: plan.Revision}
		err = r.queued(work, beginPatience, "expire "+call.Tool, agent.ActivityExpirePlan, in).Get(work, &out)
	} else {
		in := agent.CommitWriteInput{
			Run: r.carried.Ref, CallID: call.ID, ArgumentsHash: call.ArgumentsHash, Revision: plan.Revision, Token: r.approvals[0],
		}
		r.approvals = r.approvals[1:]
		summary := fmt.Sprintf("step %d: commit %s", r.loop.Step, call.Tool)
		// A commit that has begun is not canceled: the activity goes on to its
		// boundary, and the run waits for what it says.
		err = r.queued(work, plan.Timeout+writePatience, summary, agent.ActivityCommitWrite, in).Get(work, &out)
	}
	before := r.loop.Status
	switch {
	case err == nil:
		r.refused(out)
		r.loop.Committed(out)
	case work.Err() != nil || temporal.IsCanceledError(err):
		r.loop.CommitLost(agent.ReasonCanceled, "")
	case final(err):
		r.loop.CommitLost(agent.ReasonInternal, agent.ActivityCommitWrite)
	default:
		r.loop.CommitLost(agent.ReasonDeadline, agent.ActivityCommitWrite)
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

// resolveWrite finds out what became of a write. Nothing stops it: ctx may be
// canceled already.
func (r *run) resolveWrite(ctx workflow.Context, d agentloop.Decision) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	call, timeout := d.Calls[0], time.Duration(0)
	if plan := r.loop.Write.Plan; plan != nil {
		timeout = plan.Timeout
	}
	if d.Wait > 0 && !r.settled {
		// On a context of its own, it is never canceled.
		_, _ = workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
			Timeout: d.Wait, TimerOptions: workflow.TimerOptions{Summary: "look up " + call.Tool},
		}, func() bool { return r.settled })
	}
	r.settled = false
	in := agent.ResolveWriteInput{
		Run: r.carried.Ref, CallID: call.ID, ArgumentsHash: call.ArgumentsHash, Stopping: d.Stopping || r.loop.Stop != "",
	}
	var out agent.WriteOutcome
	// It looks up, and may then perform with the same key. Without the database
	// nobody can tell how far the write came, so it is waited for.
	err := r.queued(ctx, 2*timeout+beginPatience, "look up "+call.Tool, agent.ActivityResolveWrite, in).Get(ctx, &out)
	if err != nil {
		r.loop.LookUpLost()
		return
	}
	r.loop.Committed(out)
}

// refuseApprovals puts on record what arrived when nothing waited for it.
func (r *run) refuseApprovals(ctx workflow.Context) {
	r.drainApprovals()
	for len(r.approvals) > 0 {
		n := min(len(r.approvals), refusedAtOnce)
		in := agent.RefuseApprovalsInput{Run: r.carried.Ref, Tokens: r.approvals[:n]}
		if err := r.record(ctx, "refuse approvals", agent.ActivityRefuseApprovals, in, nil); err != nil {
			workflow.GetLogger(ctx).Error("approvals could not be recorded", "count", len(r.approvals), "error", err)
			return
		}
		r.approvals = r.approvals[n:]
		r.drainApprovals()
	}
}

// drainApprovals takes what was received and not yet taken down: a run that
// completes or continues in a new history leaves nothing behind.
func (r *run) drainApprovals() {
	var payload converter.RawValue
	for r.approvalSignals.ReceiveAsync(&payload) {
		r.approvals = append(r.approvals, tokenOf(payload))
	}
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
