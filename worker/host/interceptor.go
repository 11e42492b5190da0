package host

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
)

// stopInterceptor lets activity.GetWorkerStopChannel tell every activity of the
// shutdown when it begins. The SDK's own channel tells local activities only
// when the grace is over, and the others when the workflow tasks are done.
type stopInterceptor struct {
	interceptor.WorkerInterceptorBase
	stopping <-chan struct{}
}

func (i *stopInterceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &stopInbound{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, stopping: i.stopping}
}

type stopInbound struct {
	interceptor.ActivityInboundInterceptorBase
	stopping <-chan struct{}
}

func (i *stopInbound) Init(outbound interceptor.ActivityOutboundInterceptor) error {
	return i.Next.Init(&stopOutbound{ActivityOutboundInterceptorBase: interceptor.ActivityOutboundInterceptorBase{Next: outbound}, stopping: i.stopping})
}

// ExecuteActivity begins no model call and no write once the worker is stopping:
// a poll that was under way may still bring one, and so may a workflow task that
// executes them locally. It would be paid for and lost. What is short is done; it
// may be what lets a run go on elsewhere.
func (i *stopInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	select {
	case <-i.stopping:
		switch activity.GetInfo(ctx).ActivityType.Name {
		case agent.ActivityNextAction, agent.ActivitySummarize, agent.ActivityCommitWrite, agent.ActivityResolveWrite:
			return nil, activities.HandBack(ctx)
		}
	default:
	}
	return i.Next.ExecuteActivity(ctx, in)
}

type stopOutbound struct {
	interceptor.ActivityOutboundInterceptorBase
	stopping <-chan struct{}
}

func (o *stopOutbound) GetWorkerStopChannel(context.Context) <-chan struct{} { return o.stopping }
