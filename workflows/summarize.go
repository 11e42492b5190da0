package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
)

const (
	// maxSummaries bounds one execution of SummarizeConversation; what is left
	// is due again at the end of the next run.
	maxSummaries = 50
	// summaryPatience bounds one summary, its retries included.
	summaryPatience = 15 * time.Minute
	summaryTries    = 5
)

// SummarizeConversation makes the summaries that are due in a conversation, one
// after the other, in the background (CONV-2). Its failure changes nothing: the
// conversation is used as it was, and the next run that ends starts it again.
func SummarizeConversation(ctx workflow.Context, in agent.SummarizeInput) error {
	retry := infrastructureRetry()
	retry.MaximumAttempts = summaryTries
	for i := range maxSummaries {
		ctx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			ScheduleToCloseTimeout: summaryPatience, HeartbeatTimeout: heartbeatTimeout,
			RetryPolicy: retry, WaitForCancellation: true, Summary: fmt.Sprintf("summary %d", i+1),
		})
		var out agent.SummarizeOutput
		if err := workflow.ExecuteActivity(ctx, agent.ActivitySummarize, in).Get(ctx, &out); err != nil {
			return fmt.Errorf("summarize: %w", err)
		}
		if !out.More {
			return nil
		}
	}
	return nil
}

// summarize starts SummarizeConversation and waits no longer than until it is on
// record: the summaries themselves are nothing that a run waits for. If one is
// under way already nothing is started, and what it no longer saw is due at the
// end of the next run.
func (r *run) summarize(ctx workflow.Context) {
	request := r.request
	// Never canceled: a canceled context would cancel the child.
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            agent.SummarizeWorkflowID(request.Tenant, request.Conversation),
		ParentClosePolicy:     enums.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes: temporal.NewSearchAttributes(
			searchTenant.ValueSet(request.Tenant), searchUser.ValueSet(request.User),
			searchConversation.ValueSet(request.Conversation), searchEnvironment.ValueSet(request.Environment)),
	})
	in := agent.SummarizeInput{Scope: request.Scope(), Conversation: request.Conversation, DefinitionDigest: r.carried.Digest}
	_ = workflow.ExecuteChildWorkflow(ctx, agent.WorkflowSummarize, in).GetChildWorkflowExecution().Get(ctx, nil)
}
