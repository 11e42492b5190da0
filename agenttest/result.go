package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
)

// Result is how a run came out, and what was stored of it.
type Result struct {
	// RunResult is what the workflow returned, or carried when it was canceled.
	agent.RunResult
	// Err is set when the request could not become a run: its type, as
	// temporal.ApplicationError.Type gives it, is one of the Error constants of
	// package agent. Nothing else is set then.
	Err error
	// Answer is the text of the final answer.
	Answer string
	// Calls are in the order in which the model proposed them.
	Calls []Call
	// Plans, Writes and Refusals are in the order of time.
	Plans       []Plan
	Writes      []Write
	Refusals    []Refusal
	Transitions []Transition
	// Prompts are what the model was asked, in order.
	Prompts []model.Request
	// Recalled are the memories that the run was given, best first; Learned is what
	// was proposed in it, and what became of that.
	Recalled []Memory
	Learned  []Learned
	// Elapsed is how much virtual time the run took.
	Elapsed time.Duration

	t     testing.TB
	story string
}

// Call is one tool call.
type Call struct {
	ID   string
	Tool string
	// Arguments are canonical JSON, or what the model wrote if it is not JSON.
	Arguments string
	Status    db.CallStatus
	// Error is the code of a call that failed or was refused.
	Error agent.ToolErrorCode
	// Executions counts how often it was begun.
	Executions int
	// Shown is what the model was told, as JSON.
	Shown string
}

// Plan is what a write was going to do, as a person sees it.
type Plan struct {
	CallID string
	// Revision counts the plans of one call from 1.
	Revision int
	Tool     string
	// Arguments are canonical JSON.
	Arguments json.RawMessage
	Resource  string
	// Version is the resource's version when the plan was made.
	Version   string
	Summary   string
	ExpiresAt time.Time
	Status    db.PlanStatus
	// Approver is who approved or declined it.
	Approver string
}

// Write is one effect that was intended.
type Write struct {
	CallID string
	Tool   string
	// Key is the idempotency key that the tool was given.
	Key string
	// Revision is that of the plan that was approved, Approver who did.
	Revision   int
	Approver   string
	Result     db.WriteResult
	ResolvedBy db.ResolvedBy
	// Sends counts how often it was sent.
	Sends int
}

// Refusal is an approval that was not believed, of a write or of a memory.
type Refusal struct {
	// CallID is the write's, empty for a memory.
	CallID string
	// Memory is the key of the memory that it was about, empty for a write.
	Memory string
	Code   agent.RefusalCode
	// Approver is empty unless the signature was good.
	Approver string
}

// Transition is a change of the run's status.
type Transition struct {
	// From is empty for the first.
	From, To agent.Status
	Reason   agent.Reason
	// At is the virtual time since the start.
	At time.Duration
}

// result reads what came of the run.
func (r *run) result() *Result {
	r.t.Helper()
	end, _ := r.endedAt()
	result := &Result{t: r.t, Elapsed: end.Sub(r.began)}
	err := r.env.GetWorkflowError()
	var canceled *temporal.CanceledError
	var refused *temporal.ApplicationError
	switch {
	case err == nil:
		err = r.env.GetWorkflowResult(&result.RunResult)
	case errors.As(err, &canceled):
		err = canceled.Details(&result.RunResult)
	case errors.As(err, &refused) && agent.IsRefusal(refused.Type()):
		result.Err, err = refused, nil
	}
	r.journal.add(result.Elapsed, "the run ends: %s", ending(result))
	result.story = r.journal.String()
	if err != nil {
		r.t.Fatalf("agenttest: the workflow failed: %v\n%s", err, result.story)
	}
	r.mu.Lock()
	result.Prompts = r.prompts
	r.mu.Unlock()
	if result.Err == nil {
		r.stored(result)
	}
	return result
}

func ending(r *Result) string {
	if r.Err != nil {
		return r.Err.Error()
	}
	text := fmt.Sprintf("%s, %s", r.Status, r.Reason)
	if r.Detail != "" {
		text += " (" + r.Detail + ")"
	}
	return text
}

// stored reads what the store has of the run.
func (r *run) stored(result *Result) {
	report, err := r.suite.store.ShowRun(context.Background(), r.req.Scope(), r.req.RunID)
	if errors.Is(err, db.ErrNotFound) {
		// It ended before its first transaction.
		return
	}
	if err != nil {
		r.t.Fatalf("agenttest: %v", err)
	}
	result.Answer = report.Answer
	for _, c := range report.Calls() {
		call := Call{ID: c.ID, Tool: c.Tool, Status: c.Status, Executions: c.Executions}
		if stored, ok := r.suite.store.Call(r.req.Tenant, r.req.RunID, c.ID); ok {
			call.Arguments, call.Shown = stored.Arguments, stored.Envelope
		}
		if c.Error != nil {
			call.Error = c.Error.Code
		}
		result.Calls = append(result.Calls, call)
	}
	for _, p := range report.Plans {
		result.Plans = append(result.Plans, r.plan(p))
	}
	for _, i := range report.Writes {
		w := Write{
			CallID: i.CallID, Key: i.Key, Revision: i.Revision, Approver: i.ApprovedBy, Result: i.Result, ResolvedBy: i.ResolvedBy, Sends: i.Sends,
		}
		if c, ok := result.call(i.CallID); ok {
			w.Tool = c.Tool
		}
		result.Writes = append(result.Writes, w)
	}
	for _, f := range report.Refusals {
		result.Refusals = append(result.Refusals, Refusal{CallID: f.CallID, Code: f.Code, Approver: f.Approver})
	}
	// The refusals of a run's memories come after it.
	r.memories(result)
	for _, t := range report.Transitions {
		result.Transitions = append(result.Transitions, Transition{From: t.From, To: t.To, Reason: t.Reason, At: t.At.Sub(r.began)})
	}
}

func (r *Result) call(id string) (Call, bool) {
	i := slices.IndexFunc(r.Calls, func(c Call) bool { return c.ID == id })
	if i < 0 {
		return Call{}, false
	}
	return r.Calls[i], true
}

// storedPlan returns the newest plan of the run.
func (r *run) storedPlan() (call db.ToolCall, plan db.WritePlan, ok bool) {
	report, err := r.suite.store.ShowRun(context.Background(), r.req.Scope(), r.req.RunID)
	if err != nil || len(report.Plans) == 0 {
		return call, plan, false
	}
	p := report.Plans[len(report.Plans)-1]
	call, _ = r.suite.store.Call(r.req.Tenant, r.req.RunID, p.CallID)
	plan, ok = r.suite.store.Plan(r.req.Tenant, r.req.RunID, p.CallID, p.Revision)
	return call, plan, ok
}

func (r *run) newestPlan() (Plan, bool) {
	_, p, ok := r.storedPlan()
	return r.plan(p), ok
}

// plan adds to a stored plan what the person is shown beside it.
func (r *run) plan(p db.WritePlan) Plan {
	if full, ok := r.suite.store.Plan(r.req.Tenant, r.req.RunID, p.CallID, p.Revision); ok {
		p = full
	}
	call, _ := r.suite.store.Call(r.req.Tenant, r.req.RunID, p.CallID)
	return Plan{
		CallID: p.CallID, Revision: p.Revision, Tool: p.Tool, Arguments: json.RawMessage(call.Arguments), Resource: p.Resource,
		Version: p.ResourceVersion, Summary: p.Summary, ExpiresAt: p.ExpiresAt, Status: p.Status, Approver: p.DecidedBy,
	}
}

// brief says what an activity came to, without content.
func brief(result any) string {
	switch out := result.(type) {
	case agent.BeginRunOutput:
		if out.Ended != "" {
			return ": the run has ended, " + string(out.Ended)
		}
		if !out.Admitted {
			return ": no free slot"
		}
	case agent.Action:
		if out.Failure != nil {
			return fmt.Sprintf(": %s %s", out.Failure.Code, out.Failure.Detail)
		}
		var names []string
		for _, c := range out.Calls {
			names = append(names, c.Tool)
		}
		return fmt.Sprintf(": %s %s", out.Kind, strings.Join(names, ", "))
	case agent.RecallOutput:
		return fmt.Sprintf(": %s, %d records", out.State, out.Records)
	case agent.LearnOutput:
		return fmt.Sprintf(": %d candidates, %d rejected %s", len(out.Candidates), out.Rejected, out.Failure)
	case agent.MemoryVerdict:
		return ": " + string(out.State)
	case agent.SettledMemory:
		return fmt.Sprintf(": %s %s", out.State, out.Refused)
	case agent.SummarizeOutput:
		return fmt.Sprintf(": messages %d to %d %s", out.FromSeq, out.ToSeq, out.Failure)
	case agent.ToolOutcome:
		return fmt.Sprintf(" %s%s", out.CallID, failure(out))
	case agent.PreparedWrite:
		if out.Plan != nil {
			return fmt.Sprintf(" %s: plan %d waits", out.Plan.CallID, out.Plan.Revision)
		}
		return fmt.Sprintf(" %s%s", out.Outcome.CallID, failure(*out.Outcome))
	case agent.WriteOutcome:
		return fmt.Sprintf(" %s: %s %s%s", out.Outcome.CallID, out.State, out.Refusal, failure(out.Outcome))
	}
	return ""
}

func failure(out agent.ToolOutcome) string {
	switch {
	case out.End != "":
		return ": ends the run, " + string(out.End)
	case out.Error != nil:
		return ": " + string(out.Error.Code)
	}
	return ""
}

// Story tells what happened in the run, line by line, for a person who reads why
// a test failed. Its form may change.
func (r *Result) Story() string { return r.story }

// WantEnd fails the test unless the run ended for this reason.
func (r *Result) WantEnd(reason agent.Reason) {
	r.t.Helper()
	if r.Err != nil || r.Reason != reason || r.Status != reason.Status() {
		r.t.Errorf("the run ended %s, want %s, %s\n%s", ending(r), reason.Status(), reason, r.story)
	}
}

// WantAnswer fails the test unless the run has an answer that contains all parts.
func (r *Result) WantAnswer(parts ...string) {
	r.t.Helper()
	if r.Reason != agent.ReasonFinal {
		r.t.Errorf("there is no answer: the run ended %s\n%s", ending(r), r.story)
		return
	}
	for _, part := range parts {
		if !strings.Contains(r.Answer, part) {
			r.t.Errorf("the answer does not contain %q:\n%s", part, r.Answer)
		}
	}
}

// WantCalls fails the test unless these tools were called, in this order. A call
// that did not succeed is written "tool: code", such as "restart: declined", or
// "tool: status" if it has no code.
func (r *Result) WantCalls(calls ...string) {
	r.t.Helper()
	var got []string
	for _, c := range r.Calls {
		text := c.Tool
		switch {
		case c.Error != "":
			text += ": " + string(c.Error)
		case c.Status != db.CallSucceeded:
			text += ": " + string(c.Status)
		}
		got = append(got, text)
	}
	if !slices.Equal(got, calls) {
		r.t.Errorf("the calls were %q, want %q\n%s", got, calls, r.story)
	}
}

// WantRefusals fails the test unless these approvals were refused, in this order.
func (r *Result) WantRefusals(codes ...agent.RefusalCode) {
	r.t.Helper()
	var got []agent.RefusalCode
	for _, f := range r.Refusals {
		got = append(got, f.Code)
	}
	if !slices.Equal(got, codes) {
		r.t.Errorf("approvals were refused as %q, want %q\n%s", got, codes, r.story)
	}
}
