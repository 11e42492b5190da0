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

type outbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	run     *run
	started int
}

// ExecuteActivity lets an activity that is canceled find out by itself, as a
// heartbeat would tell it, and waits for what it says.
func (o *outbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	options := workflow.GetActivityOptions(ctx)
	options.HeartbeatTimeout = 0
	if policy := options.RetryPolicy; policy == nil || policy.MaximumAttempts == 0 {
		unlimited := temporal.RetryPolicy{}
		if policy != nil {
			unlimited = *policy
		}
		unlimited.MaximumAttempts = math.MaxInt32
		options.RetryPolicy = &unlimited
	}
	if !options.WaitForCancellation || ctx.Err() != nil {
		return o.Next.ExecuteActivity(workflow.WithActivityOptions(ctx, options), name, args...)
	}
	o.started++
	options.ActivityID = fmt.Sprintf("agenttest-%d", o.started)
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

// cancelActivity tells an activity that the workflow does not want it any more.
func (r *run) cancelActivity(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.canceled[id] = true
	if f := r.attached[id]; f != nil {
		f.cancel()
	}
}
