package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// The JSON that --json prints. Field names are a promise to scripts: they are
// added to, never renamed. Steps count from 1, as in the text output.

type runDocument struct {
	RunID             string        `json:"run_id"`
	WorkflowID        string        `json:"workflow_id"`
	Tenant            string        `json:"tenant"`
	User              string        `json:"user"`
	Environment       string        `json:"environment"`
	Conversation      string        `json:"conversation"`
	Generation        int64         `json:"generation"`
	Agent             string        `json:"agent"`
	DefinitionVersion string        `json:"definition_version"`
	DefinitionDigest  string        `json:"definition_digest,omitempty"`
	Status            agent.Status  `json:"status"`
	Reason            agent.Reason  `json:"reason,omitempty"`
	Detail            string        `json:"detail,omitempty"`
	Steps             int           `json:"steps"`
	ToolCalls         int           `json:"tool_calls"`
	Budget            *agent.Budget `json:"budget,omitempty"`
	Usage             *agent.Usage  `json:"usage,omitempty"`
	BilledTokens      int64         `json:"billed_tokens"`
	CostMicros        int64         `json:"cost_micros"`
	// CostKnown is false when a model without a price took part: the cost is a
	// lower bound then.
	CostKnown bool `json:"cost_known"`
	// Memory is absent for agents without memory, and until the end.
	Memory    *agent.MemoryUse `json:"memory,omitempty"`
	Deadline  time.Time        `json:"deadline,omitzero"`
	CreatedAt time.Time        `json:"created_at,omitzero"`
	StartedAt time.Time        `json:"started_at,omitzero"`
	EndedAt   time.Time        `json:"ended_at,omitzero"`
	WebUI     string           `json:"web_ui"`
}

type transitionDocument struct {
	Seq    int          `json:"seq"`
	From   agent.Status `json:"from,omitempty"`
	To     agent.Status `json:"to"`
	Reason agent.Reason `json:"reason,omitempty"`
	At     time.Time    `json:"at"`
}

type attemptDocument struct {
	Step     int              `json:"step"`
	Attempt  int              `json:"attempt"`
	Model    string           `json:"model"`
	Provider string           `json:"provider"`
	Revision string           `json:"revision,omitempty"`
	Status   db.AttemptStatus `json:"status"`
	// Tokens are absent when the provider reported none.
	InputTokens        *int64            `json:"input_tokens,omitempty"`
	CachedInputTokens  *int64            `json:"cached_input_tokens,omitempty"`
	OutputTokens       *int64            `json:"output_tokens,omitempty"`
	ReservedTokens     int64             `json:"reserved_tokens"`
	ReservedCostMicros *int64            `json:"reserved_cost_micros,omitempty"`
	BilledTokens       *int64            `json:"billed_tokens,omitempty"`
	BilledCostMicros   *int64            `json:"billed_cost_micros,omitempty"`
	UsageKnown         bool              `json:"usage_known"`
	Failure            agent.FailureCode `json:"failure,omitempty"`
	Finish             string            `json:"finish,omitempty"`
	StartedAt          time.Time         `json:"started_at"`
	EndedAt            time.Time         `json:"ended_at,omitzero"`
	// Prompt is a prompt.Report: what went into the call and what was left out.
	Prompt json.RawMessage `json:"prompt,omitempty"`
}

type callDocument struct {
	CallID        string              `json:"call_id"`
	Step          int                 `json:"step"`
	Tool          string              `json:"tool"`
	ToolVersion   string              `json:"tool_version,omitempty"`
	Risk          string              `json:"risk,omitempty"`
	Status        db.CallStatus       `json:"status"`
	Error         agent.ToolErrorCode `json:"error,omitempty"`
	ArgumentsHash string              `json:"arguments_hash"`
	ResultHash    string              `json:"result_hash,omitempty"`
	ResultBytes   int64               `json:"result_bytes"`
	Executions    int                 `json:"executions"`
	StartedAt     time.Time           `json:"started_at,omitzero"`
	EndedAt       time.Time           `json:"ended_at,omitzero"`
	// Arguments and Excerpt are content.
	Arguments string `json:"arguments,omitempty"`
	Excerpt   string `json:"result_excerpt,omitempty"`
}

type showDocument struct {
	Run         runDocument          `json:"run"`
	Transitions []transitionDocument `json:"transitions"`
	Attempts    []attemptDocument    `json:"attempts"`
	ToolCalls   []callDocument       `json:"tool_calls"`
	Plans       []planDocument       `json:"plans"`
	Writes      []writeDocument      `json:"writes"`
	Refusals    []refusalDocument    `json:"refused_approvals"`
	// Memories are those that the run was given; Run.Memory says what came of it.
	Memories []givenMemoryDocument `json:"memories"`
	// Answer is content and present with --content only.
	Answer string `json:"answer,omitempty"`
}

type listDocument struct {
	Runs []runDocument `json:"runs"`
}

// eventDocument is one line of run and follow. Event says which field is set.
type eventDocument struct {
	Event      string              `json:"event"`
	RunID      string              `json:"run_id"`
	WorkflowID string              `json:"workflow_id,omitempty"`
	WebUI      string              `json:"web_ui,omitempty"`
	Transition *transitionDocument `json:"transition,omitempty"`
	Attempt    *attemptDocument    `json:"attempt,omitempty"`
	ToolCall   *callDocument       `json:"tool_call,omitempty"`
	Plan       *planDocument       `json:"plan,omitempty"`
	Refusal    *refusalDocument    `json:"refusal,omitempty"`
	State      *agent.RunView      `json:"state,omitempty"`
	Run        *runDocument        `json:"run,omitempty"`
	Result     *agent.RunResult    `json:"result,omitempty"`
	Answer     string              `json:"answer,omitempty"`
}

func (a *app) runDocument(report db.RunReport) runDocument {
	r, totals := report.Run, report.Totals
	return runDocument{
		RunID: r.ID, WorkflowID: r.WorkflowID, Tenant: r.Scope.Tenant, User: r.Scope.User, Environment: r.Scope.Environment,
		Conversation: r.Conversation, Generation: r.Generation, Agent: r.Agent,
		DefinitionVersion: r.DefinitionVersion, DefinitionDigest: r.DefinitionDigest,
		Status: r.Status, Reason: r.Reason, Detail: r.Detail, Steps: steps(report), ToolCalls: toolCalls(report),
		Budget: &r.Budget, Usage: &totals.Usage, BilledTokens: totals.Usage.BilledTokens, CostMicros: totals.Usage.CostMicros,
		CostKnown: totals.Usage.UnpricedAttempts == 0, Memory: r.Memory, Deadline: r.Deadline,
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt, WebUI: a.webUI(r.Scope.Tenant, r.ID),
	}
}

// steps is the total of a run that has ended, or the attempts' newest step.
func steps(report db.RunReport) int {
	if report.Run.Status.Terminal() || report.Totals.Usage.Attempts == 0 {
		return report.Run.Step
	}
	return report.Totals.LastStep + 1
}

// toolCalls counts what was carried out. A run writes its total at its end.
func toolCalls(report db.RunReport) int {
	if report.Run.Status.Terminal() {
		return report.Run.ToolCalls
	}
	n := 0
	for _, c := range report.Calls() {
		if c.Status == db.CallSucceeded || c.Status == db.CallFailed {
			n++
		}
	}
	return n
}

func (a *app) summaryDocument(tenant string, s db.RunSummary) runDocument {
	return runDocument{
		RunID: s.RunID, WorkflowID: agent.WorkflowID(tenant, s.RunID), Tenant: tenant, User: s.User, Environment: s.Environment,
		Conversation: s.Conversation, Generation: s.Generation, Agent: s.Agent, DefinitionVersion: s.DefinitionVersion,
		Status: s.Status, Reason: s.Reason, Detail: s.Detail, Steps: summarySteps(s), ToolCalls: s.ToolCalls,
		BilledTokens: s.BilledTokens, CostMicros: s.CostMicros, CostKnown: !s.Unpriced,
		Deadline: s.Deadline, CreatedAt: s.CreatedAt, StartedAt: s.StartedAt, EndedAt: s.EndedAt, WebUI: a.webUI(tenant, s.RunID),
	}
}

// summarySteps counts the step that is going on.
func summarySteps(s db.RunSummary) int {
	if s.StartedAt.IsZero() {
		return 0
	}
	return s.Step + 1
}

func toTransition(t db.Transition) transitionDocument {
	return transitionDocument{Seq: t.Seq, From: t.From, To: t.To, Reason: t.Reason, At: t.At}
}

func toAttempt(t db.Attempt) attemptDocument {
	doc := attemptDocument{
		Step: t.Step + 1, Attempt: t.Number, Model: t.Model, Provider: t.Provider, Revision: t.Revision, Status: t.Status,
		ReservedTokens: t.Reserved.Tokens, ReservedCostMicros: t.Reserved.CostMicros, UsageKnown: t.UsageKnown,
		Failure: t.FailureCode, Finish: t.Finish, StartedAt: t.StartedAt, EndedAt: t.EndedAt, Prompt: t.Prompt,
	}
	if t.Reported != nil {
		doc.InputTokens, doc.CachedInputTokens, doc.OutputTokens = &t.Reported.Input, &t.Reported.CachedInput, &t.Reported.Output
	}
	if t.Billed != nil {
		doc.BilledTokens, doc.BilledCostMicros = &t.Billed.Tokens, t.Billed.CostMicros
	}
	return doc
}

func toCall(c db.CallReport, arguments, excerpt string) callDocument {
	doc := callDocument{
		CallID: c.ID, Step: c.Step + 1, Tool: c.Tool, ToolVersion: c.ToolVersion, Risk: c.Risk, Status: c.Status,
		ArgumentsHash: c.ArgumentsHash, ResultHash: c.ResultHash, ResultBytes: c.ResultBytes, Executions: c.Executions,
		StartedAt: c.StartedAt, EndedAt: c.EndedAt, Arguments: arguments, Excerpt: excerpt,
	}
	if c.Error != nil {
		doc.Error = c.Error.Code
	}
	return doc
}

// printJSON writes one document on one line, or indented. Control characters
// that JSON allows but terminals obey are escaped; the value stays the same.
func printJSON(out io.Writer, document any, indent string) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(document); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	var safe bytes.Buffer
	for _, r := range b.String() {
		switch {
		case !unsafe(r):
			safe.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&safe, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&safe, `\u%04x`, r)
		}
	}
	_, err := safe.WriteTo(out)
	return err
}
