package main

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// view shows a run while it happens.
type view interface {
	started(request agent.RunRequest, webUI string)
	transition(runID string, t db.Transition)
	// plan shows a plan that waits for a person, and again when it was decided.
	plan(tenant string, p db.WritePlan)
	// refusal shows an approval that was not believed.
	refusal(runID string, r db.Refusal)
	attempt(runID string, t db.Attempt)
	// call shows a tool call that has an outcome. Its arguments are content,
	// read from the database on behalf of the run's owner.
	call(runID string, c db.CallReport, arguments string)
	// state is shown instead while the database cannot be reached.
	state(v agent.RunView)
	end(e ending)
}

// ending is how a run ended: report when the database could be read, else
// result from Temporal.
type ending struct {
	tenant string
	runID  string
	report *db.RunReport
	result *agent.RunResult
}

func (e ending) outcome() (agent.Status, agent.Reason, string) {
	if e.report != nil {
		return e.report.Run.Status, e.report.Run.Reason, e.report.Run.Detail
	}
	return e.result.Status, e.result.Reason, e.result.Detail
}

func (a *app) newView() view {
	if a.json {
		return jsonView{a}
	}
	return textView{a}
}

// textView prints for people.
type textView struct{ *app }

func (v textView) started(request agent.RunRequest, webUI string) {
	fmt.Fprintf(v.out, "run %s  agent %s  tenant %s  user %s\n", v.paint(bold, request.RunID), request.Agent, request.Tenant, request.User)
	fmt.Fprintln(v.out, v.paint(dim, "web UI  "+webUI))
}

func (v textView) transition(_ string, t db.Transition) {
	// The end has its own lines.
	if t.To.Terminal() {
		return
	}
	fmt.Fprintln(v.out, v.paint(dim, string(t.To)))
}

func (v textView) plan(tenant string, p db.WritePlan) {
	if p.Status == db.PlanPending {
		fmt.Fprintf(v.out, "        %s %s waits for a person until %s\n", oneLine(p.Tool, 64), planObject(p), clock(p.ExpiresAt))
		fmt.Fprintln(v.out, v.paint(bold, "        "+howToApprove(tenant, p.RunID)))
		return
	}
	fmt.Fprintf(v.out, "        %s %s  %s\n", oneLine(p.Tool, 64), planObject(p), v.paint(planStyle(p.Status), planStatus(p)))
}

func (v textView) refusal(_ string, r db.Refusal) {
	fmt.Fprintln(v.out, v.paint(yellow, "        "+refusalLine(r)))
}

func (v textView) attempt(_ string, t db.Attempt) {
	fmt.Fprintln(v.out, v.attemptLine(t))
}

func (v textView) call(_ string, c db.CallReport, arguments string) {
	fmt.Fprintln(v.out, v.callLine(c, arguments))
}

func (v textView) state(s agent.RunView) {
	line := fmt.Sprintf("%s  step %d  %s", s.Status, s.Step, count(s.ToolCalls, "tool call"))
	if s.WaitingFor != "" {
		line += "  waiting for " + s.WaitingFor
	}
	fmt.Fprintln(v.out, v.paint(dim, oneLine(line, 200)))
}

func (v textView) end(e ending) {
	status, reason, detail := e.outcome()
	if e.report != nil && e.report.Answer != "" {
		fmt.Fprintf(v.out, "\n%s\n", strings.TrimRight(printable(e.report.Answer), "\n"))
	}
	fmt.Fprintln(v.out)
	headline := v.paint(statusStyle(status), ended(status, reason, detail))
	if e.report == nil {
		fmt.Fprintf(v.out, "%s  %s  %s\n", headline, count(e.result.Steps, "step"), count(e.result.ToolCalls, "tool call"))
		fmt.Fprintln(v.out, "ledger  "+ledgerLine(e.result.Usage, agent.Budget{}))
	} else {
		r := e.report
		fmt.Fprintf(v.out, "%s  %s  %s  %s\n", headline, count(steps(*r), "step"), count(toolCalls(*r), "tool call"), took(r.Run.CreatedAt, r.Run.EndedAt))
		fmt.Fprintln(v.out, "ledger  "+ledgerLine(r.Totals.Usage, r.Run.Budget))
	}
	fmt.Fprintln(v.out, "web UI  "+v.webUI(e.tenant, e.runID))
	if reason == agent.ReasonOutcomeUnknown {
		fmt.Fprintln(v.out, "\nNobody knows whether a write happened. Find out and record it: "+howToSettle(e.tenant))
	}
}

// ledgerLine is what a run consumed, and of how much.
func ledgerLine(u agent.Usage, budget agent.Budget) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d in (%d cached) / %d out tokens, %d billed", u.InputTokens, u.CachedInputTokens, u.OutputTokens, u.BilledTokens)
	if budget.MaxTokens > 0 {
		fmt.Fprintf(&b, " of %d", budget.MaxTokens)
	}
	fmt.Fprintf(&b, ", %s", cost(u.CostMicros, u.UnpricedAttempts))
	if budget.MaxCostMicros > 0 {
		fmt.Fprintf(&b, " of %s", dollars(budget.MaxCostMicros))
	}
	fmt.Fprintf(&b, ", %s", count(u.Attempts, "model call"))
	if u.UnknownAttempts > 0 {
		fmt.Fprintf(&b, " (%d of unknown usage, billed as reserved)", u.UnknownAttempts)
	}
	return b.String()
}

func (a *app) attemptLine(t db.Attempt) string {
	var b strings.Builder
	fmt.Fprintf(&b, "step %-2d model %s", t.Step+1, oneLine(t.Model, 60))
	if t.Number > 1 {
		fmt.Fprintf(&b, "  attempt %d", t.Number)
	}
	switch {
	case t.Reported != nil:
		fmt.Fprintf(&b, "  %d in / %d out tokens", t.Reported.Input, t.Reported.Output)
	case t.Billed != nil && t.Billed.Tokens > 0:
		fmt.Fprintf(&b, "  usage unknown, billed as %d tokens", t.Billed.Tokens)
	}
	if t.Billed != nil && t.Billed.Tokens > 0 {
		if t.Billed.CostMicros == nil {
			b.WriteString("  cost unknown")
		} else {
			b.WriteString("  " + dollars(*t.Billed.CostMicros))
		}
	}
	if !t.EndedAt.IsZero() {
		b.WriteString("  " + took(t.StartedAt, t.EndedAt))
	}
	switch {
	case t.Status == db.AttemptSucceeded && t.FailureCode == "":
		return b.String()
	case t.Status == db.AttemptStarted:
		return b.String() + "  " + a.paint(dim, "in flight")
	case t.FailureCode != "":
		return b.String() + "  " + a.paint(red, fmt.Sprintf("%s: %s", t.Status, t.FailureCode))
	}
	return b.String() + "  " + a.paint(red, string(t.Status))
}

func (a *app) callLine(c db.CallReport, arguments string) string {
	var b strings.Builder
	b.WriteString("        " + oneLine(c.Tool, 64))
	if arguments != "" {
		b.WriteString(" " + oneLine(arguments, 120))
	}
	switch c.Status {
	case db.CallSucceeded:
		fmt.Fprintf(&b, "  %d bytes", c.ResultBytes)
	case db.CallUnknown:
		b.WriteString("  " + a.paint(red, "outcome unknown"))
	case db.CallRefused, db.CallFailed, db.CallAbandoned:
		text := string(c.Status)
		if c.Error != nil {
			text += ": " + string(c.Error.Code)
		}
		b.WriteString("  " + a.paint(red, text))
	case db.CallProposed, db.CallRunning:
		b.WriteString("  " + a.paint(dim, string(c.Status)))
	}
	if !c.StartedAt.IsZero() && !c.EndedAt.IsZero() {
		b.WriteString("  " + took(c.StartedAt, c.EndedAt))
	}
	return b.String()
}

// jsonView prints one line for each event.
type jsonView struct{ *app }

func (v jsonView) print(event eventDocument) {
	// A broken pipe ends the process by its signal; nothing else can fail here.
	_ = printJSON(v.out, event, "")
}

func (v jsonView) started(request agent.RunRequest, webUI string) {
	v.print(eventDocument{Event: "started", RunID: request.RunID, WorkflowID: agent.WorkflowID(request.Tenant, request.RunID), WebUI: webUI})
}

func (v jsonView) transition(runID string, t db.Transition) {
	document := toTransition(t)
	v.print(eventDocument{Event: "transition", RunID: runID, Transition: &document})
}

func (v jsonView) plan(_ string, p db.WritePlan) {
	document := toPlanDocument(p, "")
	v.print(eventDocument{Event: "plan", RunID: p.RunID, Plan: &document})
}

func (v jsonView) refusal(runID string, r db.Refusal) {
	document := toRefusalDocument(r)
	v.print(eventDocument{Event: "refusal", RunID: runID, Refusal: &document})
}

func (v jsonView) attempt(runID string, t db.Attempt) {
	document := toAttempt(t)
	v.print(eventDocument{Event: "attempt", RunID: runID, Attempt: &document})
}

func (v jsonView) call(runID string, c db.CallReport, arguments string) {
	document := toCall(c, arguments, "")
	v.print(eventDocument{Event: "tool_call", RunID: runID, ToolCall: &document})
}

func (v jsonView) state(s agent.RunView) {
	v.print(eventDocument{Event: "state", RunID: s.RunID, State: &s})
}

func (v jsonView) end(e ending) {
	event := eventDocument{Event: "end", RunID: e.runID, WebUI: v.webUI(e.tenant, e.runID), Result: e.result}
	if e.report != nil {
		document := v.runDocument(*e.report)
		event.Run, event.Answer, event.Result = &document, e.report.Answer, nil
	}
	v.print(event)
}
