package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/internal/agentloop"
)

var (
	searchTenant       = temporal.NewSearchAttributeKeyKeyword(agent.SearchTenant)
	searchUser         = temporal.NewSearchAttributeKeyKeyword(agent.SearchUser)
	searchConversation = temporal.NewSearchAttributeKeyKeyword(agent.SearchConversation)
	searchAgent        = temporal.NewSearchAttributeKeyKeyword(agent.SearchAgent)
	searchEnvironment  = temporal.NewSearchAttributeKeyKeyword(agent.SearchEnvironment)
	searchStatus       = temporal.NewSearchAttributeKeyKeyword(agent.SearchStatus)
	searchReason       = temporal.NewSearchAttributeKeyKeyword(agent.SearchReason)
	searchStep         = temporal.NewSearchAttributeKeyInt64(agent.SearchStep)
)

// setSearchAttributes makes the run findable in the Web UI. It is called when
// the status changes, not at each step: every call is an event and a write to
// the visibility store.
func (r *run) setSearchAttributes(ctx workflow.Context) {
	updates := []temporal.SearchAttributeUpdate{
		searchTenant.ValueSet(r.request.Tenant),
		searchUser.ValueSet(r.request.User),
		searchConversation.ValueSet(r.request.Conversation),
		searchAgent.ValueSet(r.request.Agent),
		searchEnvironment.ValueSet(r.request.Environment),
		searchStatus.ValueSet(string(r.loop.Status)),
		searchStep.ValueSet(int64(r.loop.Step)),
	}
	if r.loop.Reason != "" {
		updates = append(updates, searchReason.ValueSet(string(r.loop.Reason)))
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		// Lists are a convenience: a run does not fail for them.
		workflow.GetLogger(ctx).Warn("set search attributes", "error", err)
	}
}

// describe keeps the text that the Web UI shows for a running workflow. It is
// read by a query and costs no event.
func (r *run) describe(ctx workflow.Context, decision agentloop.Decision) {
	switch decision.Kind {
	case agentloop.Begin:
		r.waitingFor = "the first transaction"
	case agentloop.CallModel:
		r.waitingFor = fmt.Sprintf("model %s (step %d, try %d)", r.carried.Route.Model, decision.Model.Step+1, decision.Model.Try+1)
	case agentloop.CallTools:
		names := make([]string, len(decision.Calls))
		for i, call := range decision.Calls {
			names[i] = call.Tool
		}
		r.waitingFor = fmt.Sprintf("tools (step %d): %s", r.loop.Step, strings.Join(names, ", "))
	case agentloop.PrepareWrite:
		r.waitingFor = fmt.Sprintf("the plan of %s (call %s)", decision.Calls[0].Tool, decision.Calls[0].ID)
	case agentloop.AwaitApproval:
		r.waitingFor = fmt.Sprintf("a person to confirm %s (call %s) until %s",
			decision.Calls[0].Tool, decision.Calls[0].ID, decision.Plan.ExpiresAt.UTC().Format(time.RFC3339))
	case agentloop.ResolveWrite:
		r.waitingFor = fmt.Sprintf("the outcome of %s (call %s)", decision.Calls[0].Tool, decision.Calls[0].ID)
	case agentloop.Wait:
		r.waitingFor = fmt.Sprintf("another try of step %d in %s", r.loop.Step+1, decision.Wait)
		if r.loop.Status == agent.StatusQueued {
			r.waitingFor = fmt.Sprintf("a free concurrency slot, asking again in %s", decision.Wait)
		}
	case agentloop.End:
		r.waitingFor = ""
	}
	workflow.SetCurrentDetails(ctx, r.details())
}

// details is Markdown for an operator: identifiers and numbers, no content.
func (r *run) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**", r.loop.Status)
	if r.loop.Reason != "" {
		fmt.Fprintf(&b, " · %s", r.loop.Reason)
	}
	if r.loop.Detail != "" {
		fmt.Fprintf(&b, " (%s)", r.loop.Detail)
	}
	if r.waitingFor != "" {
		fmt.Fprintf(&b, "\n\nwaiting for %s", r.waitingFor)
	}
	if r.carried.Refusals > 0 {
		fmt.Fprintf(&b, "\n\napprovals refused: %d, the last one because of %s", r.carried.Refusals, r.carried.LastRefusal)
	}
	if found := r.carried.Recall; found != nil {
		fmt.Fprintf(&b, "\n\nmemory: %s", found.State)
		if found.Records > 0 {
			fmt.Fprintf(&b, ", %d records", found.Records)
		}
		if found.KeywordOnly {
			b.WriteString(", by keyword only")
		}
	}
	if r.loop.Budget.MaxSteps == 0 {
		return b.String()
	}
	budget, usage := r.loop.Budget, r.loop.Usage
	fmt.Fprintf(&b, "\n\n- steps %d of %d\n- tool calls %d of %d\n- tokens %d of %d\n- cost %s",
		r.loop.Step, budget.MaxSteps, r.loop.ToolCalls, budget.MaxToolCalls,
		usage.BilledTokens, budget.MaxTokens, dollars(usage.CostMicros))
	if budget.MaxCostMicros > 0 {
		fmt.Fprintf(&b, " of %s", dollars(budget.MaxCostMicros))
	}
	if usage.UnpricedAttempts > 0 {
		fmt.Fprintf(&b, " and %d unpriced model calls", usage.UnpricedAttempts)
	}
	fmt.Fprintf(&b, "\n- deadline %s", r.loop.Deadline.UTC().Format(time.RFC3339))
	return b.String()
}

func dollars(micros int64) string {
	return fmt.Sprintf("$%d.%06d", micros/1_000_000, micros%1_000_000)
}

// view answers agent.QueryState.
func (r *run) view() (agent.RunView, error) {
	view := agent.RunView{
		RunID: r.request.RunID, Status: r.loop.Status, Reason: r.loop.Reason, Detail: r.loop.Detail,
		Step: r.loop.Step, ToolCalls: r.loop.ToolCalls, Usage: r.loop.Usage,
		Budget: r.loop.Budget, Deadline: r.loop.Deadline, WaitingFor: r.waitingFor,
	}
	if r.carried.Recall != nil {
		view.Recall = r.carried.Recall.State
	}
	return view, nil
}
