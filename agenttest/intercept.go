package agenttest

import (
	"context"
	"fmt"
	"math"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// interceptWorker makes up for what Temporal's test environment does otherwise
// than its server: it stops after ten attempts, cancels an activity without
// waiting for it, measures heartbeats in real time, and knows no workflow but
// the one under test.
type interceptWorker struct {
	interceptor.WorkerInterceptorBase
	run *run
}

func (i *interceptWorker) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	in := &inbound{run: i.run}
	in.Next = next
	return in
}

func (i *interceptWorker) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	in := &activityInbound{}
	in.Next = next
	return in
}

type activityInbound struct {
	interceptor.ActivityInboundInterceptorBase
}

func (i *activityInbound) Init(next interceptor.ActivityOutboundInterceptor) error {
	out := &quiet{}
	out.Next = next
	return i.Next.Init(out)
}

// quiet sends no heartbeats: an activity that sleeps in virtual time outlives
// the attempt that they belong to. Who dies and who is canceled is known here.
type quiet struct {
	interceptor.ActivityOutboundInterceptorBase
}

func (*quiet) RecordHeartbeat(context.Context, ...any) {}

type inbound struct {
	interceptor.WorkflowInboundInterceptorBase
	run *run
}

func (i *inbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	out := &outbound{run: i.run}
	out.Next = next
	return i.Next.Init(out)
}

// ExecuteWorkflow sees when the run itself ends: what it left behind goes on.
func (i *inbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	result, err := i.Next.ExecuteWorkflow(ctx, in)
	if workflow.GetInfo(ctx).ParentWorkflowExecution == nil && !workflow.IsContinueAsNewError(err) {
		i.run.finish()
	}
	return result, err
}

type outbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	run *run
}

// ExecuteActivity lets an activity that is canceled find out by itself, as a
// heartbeat would tell it, and waits for what it says. An activity that sleeps is
// attempted again and again, so that its own attempts are counted by the run.
func (o *outbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	options := workflow.GetActivityOptions(ctx)
	options.HeartbeatTimeout = 0
	unlimited := temporal.RetryPolicy{}
	if policy := options.RetryPolicy; policy != nil {
		unlimited = *policy
	}
	attempts := int(unlimited.MaximumAttempts)
	counted := options.WaitForCancellation && ctx.Err() == nil
	if counted || attempts == 0 {
		unlimited.MaximumAttempts = math.MaxInt32
	}
	options.RetryPolicy = &unlimited
	if !counted {
		return o.Next.ExecuteActivity(workflow.WithActivityOptions(ctx, options), name, args...)
	}
	options.ActivityID = o.run.nextActivity(attempts)
	free, release := workflow.NewDisconnectedContext(workflow.WithActivityOptions(ctx, options))
	future := o.Next.ExecuteActivity(free, name, args...)
	workflow.Go(free, func(free workflow.Context) {
		defer release()
		workflow.NewSelector(free).AddFuture(future, func(workflow.Future) {}).
			AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) { o.run.cancelActivity(options.ActivityID) }).Select(free)
		_ = future.Get(free, nil)
	})
	return future
}

// SignalExternalWorkflow sends nothing: nobody else is there.
func (o *outbound) SignalExternalWorkflow(ctx workflow.Context, _, _, _ string, _ any) workflow.Future {
	future, done := workflow.NewFuture(ctx)
	done.SetValue(nil)
	return future
}

// nextActivity returns an ID that no other activity of the run has, in none of
// its histories and not in what it leaves behind. Of attempts, zero is no limit.
func (r *run) nextActivity(attempts int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started++
	id := fmt.Sprintf("agenttest-%d", r.started)
	if attempts > 0 {
		r.attempts[id] = attempts
	}
	return id
}

// lastAttempt counts an attempt that came to nothing, and reports whether the
// activity has no other one.
func (r *run) lastAttempt(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	left, limited := r.attempts[id]
	if limited {
		r.attempts[id] = left - 1
	}
	return limited && left <= 1
}

// cancelActivity tells an activity that the workflow does not want it any more.
func (r *run) cancelActivity(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.canceled[id] = true
	if f := r.attached[id]; f != nil {
		f.cancel()
	}
}
