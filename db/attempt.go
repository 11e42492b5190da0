package db

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// AttemptStatus is where a model attempt stands.
type AttemptStatus string

// The closed set of attempt statuses.
const (
	AttemptStarted   AttemptStatus = "started"
	AttemptSucceeded AttemptStatus = "succeeded"
	AttemptFailed    AttemptStatus = "failed"
	// AttemptLost: the worker died or gave the call up, the outcome is unknown.
	AttemptLost     AttemptStatus = "lost"
	AttemptCanceled AttemptStatus = "canceled"
)

// Attempt is one paid call to a model.
type Attempt struct {
	Step int
	// Number counts the attempts of a step from 1; several attempts of one Try
	// mean that workers died.
	Number   int
	Try      int
	Model    string
	Provider string
	Status   AttemptStatus
	Reserved Amount
	// Reported is what the provider counted, nil if it did not say.
	Reported *ReportedTokens
	// Billed is what the ledger counts, nil while the attempt is open.
	Billed      *Amount
	UsageKnown  bool
	FailureCode agent.FailureCode
	Finish      string
	Revision    string
	RequestID   string
	// Action is what the workflow was told, nil if it was told nothing.
	Action *agent.Action
	// Prompt is what went into the call and what was left out: counts, no
	// content, as JSON (WM-6).
	Prompt    json.RawMessage
	StartedAt time.Time
	// EndedAt is zero while the attempt is open.
	EndedAt time.Time
}

// ReportedTokens is a provider's own count.
type ReportedTokens struct{ Input, CachedInput, Output int64 }

// Usage returns what the attempt adds to a run's usage; an open one counts as
// unknown.
func (a Attempt) Usage() agent.Usage {
	billed := a.Reserved
	if a.Billed != nil {
		billed = *a.Billed
	}
	u := agent.Usage{Attempts: 1, BilledTokens: billed.Tokens}
	if a.Reported != nil {
		u.InputTokens, u.CachedInputTokens, u.OutputTokens = a.Reported.Input, a.Reported.CachedInput, a.Reported.Output
	}
	if !a.UsageKnown {
		u.UnknownAttempts = 1
	}
	if billed.CostMicros == nil {
		u.UnpricedAttempts = 1
	} else {
		u.CostMicros = *billed.CostMicros
	}
	return u
}

// Response is the content of a model response, kept for the next requests.
type Response struct {
	Text  string         `json:"text,omitempty"`
	Calls []ResponseCall `json:"calls,omitempty"`
	// Correction is what the model is told about a response that cannot be
	// used, empty for a good one.
	Correction string `json:"correction,omitempty"`
}

// ResponseCall is a proposed tool call as the model wrote it.
type ResponseCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Exchange is one earlier response of a run with the results of its calls.
type Exchange struct {
	Step     int
	Response Response
	// Results are in call order. A response with a correction has none.
	Results []CallResult
}

// CallResult is what the model is shown about one call.
type CallResult struct {
	Index          int
	ProviderCallID string
	Tool           string
	// Envelope is empty if the call has no outcome.
	Envelope string
	CallID   string
	Status   CallStatus
	// ErrorCode is set for refused and failed calls.
	ErrorCode agent.ToolErrorCode
	// Note is what the tool said about its result in one line.
	Note string
}

// StepState is what the next model call is made of.
type StepState struct {
	Run Run
	// Attempts are those of this step, oldest first.
	Attempts []Attempt
	// Question is the message that the run answers.
	Question Message
	// History are the conversation's messages before it, oldest first.
	History []Message
	// Exchanges are the run's own, oldest first.
	Exchanges []Exchange
	// Session is what holds in the conversation.
	Session SessionState
	// Summaries are the checked ones of the messages before the question, oldest
	// first: at most the newest 64.
	Summaries []Summary
	// Limits are the tenant's own.
	Limits Limits
}

// maxSummaries bounds the summaries of a step: what is older has no room in a
// request anyway.
const maxSummaries = 64

// StepQuery says how far back a step looks.
type StepQuery struct {
	RunID        string
	Step         int
	MaxMessages  int
	MaxExchanges int
}

// LoadStep reads all that a step needs in one round trip, and keeps the run from
// ending before the transaction does: ErrNotFound if the scope has no such run.
func (tx *Tx) LoadStep(ctx context.Context, q StepQuery) (StepState, error) {
	var (
		tenant   = tx.scope.Tenant
		fromStep = int32(max(0, q.Step-q.MaxExchanges))
		run      dbsqlc.ShareRunRow
		attempts []dbsqlc.AttemptsOfStepRow
		texts    []dbsqlc.TranscriptRow
		calls    []dbsqlc.TranscriptCallsRow
		messages []dbsqlc.MessagesBeforeRunRow
		summed   []dbsqlc.SummariesBeforeRunRow
		limits   []dbsqlc.GetTenantLimitRow
		session  sessionRows
	)
	tx.touch()
	err := tx.read(ctx,
		one(tx.q.ShareRun, dbsqlc.ShareRunParams{Tenant: tenant, ID: q.RunID}, &run),
		one(tx.q.AttemptsOfStep, dbsqlc.AttemptsOfStepParams{Tenant: tenant, RunID: q.RunID, Step: int32(q.Step)}, &attempts),
		one(tx.q.Transcript, dbsqlc.TranscriptParams{
			Tenant: tenant, RunID: q.RunID, FromStep: fromStep, Step: int32(q.Step), MaxResponses: int32(q.MaxExchanges),
		}, &texts),
		one(tx.q.TranscriptCalls, dbsqlc.TranscriptCallsParams{Tenant: tenant, RunID: q.RunID, FromStep: fromStep, Step: int32(q.Step)}, &calls),
		one(tx.q.MessagesBeforeRun, dbsqlc.MessagesBeforeRunParams{Tenant: tenant, RunID: q.RunID, MaxMessages: int32(q.MaxMessages) + 1}, &messages),
		one(tx.q.SummariesBeforeRun, dbsqlc.SummariesBeforeRunParams{Tenant: tenant, RunID: q.RunID, MaxSummaries: maxSummaries}, &summed),
		session.facts(tx.q, tx.scope, "", q.RunID), session.prohibitions(tx.q, tx.scope, "", q.RunID),
		one(tx.q.GetTenantLimit, tenant, &limits),
	)
	if err != nil {
		return StepState{}, fmt.Errorf("load step: %w", err)
	}
	state := StepState{Run: toRun(run.Run, run.CurrentGeneration, run.GroupID, run.ProjectID), Limits: toLimits(limits)}
	if state.Run.Scope != tx.scope {
		return StepState{}, fmt.Errorf("load step: %w", ErrNotFound)
	}
	for _, row := range attempts {
		a, err := toAttempt(q.Step, row)
		if err != nil {
			return StepState{}, err
		}
		state.Attempts = append(state.Attempts, a)
	}
	newest, err := tx.openMessages(state.Run.Conversation, messages)
	if err != nil {
		return StepState{}, fmt.Errorf("load step: %w", err)
	}
	for _, m := range slices.Backward(newest) {
		if m.ID == state.Run.QuestionID {
			state.Question = m
		} else {
			state.History = append(state.History, m)
		}
	}
	if state.Question.ID == "" {
		return StepState{}, fmt.Errorf("load step: the run's question: %w", ErrNotFound)
	}
	if state.Exchanges, err = tx.toExchanges(q.RunID, texts, calls); err != nil {
		return StepState{}, fmt.Errorf("load step: %w", err)
	}
	if state.Session, err = session.state(tx.ring); err != nil {
		return StepState{}, fmt.Errorf("load step: %w", err)
	}
	for _, row := range slices.Backward(summed) {
		// One that was made while a rollback happened may overlap another.
		if n := len(state.Summaries); n > 0 && row.FromSeq <= state.Summaries[n-1].ToSeq {
			continue
		}
		s, err := toSummary(tx.ring, state.Run.Conversation, row)
		if err != nil {
			return StepState{}, fmt.Errorf("load step: %w", err)
		}
		state.Summaries = append(state.Summaries, s)
	}
	return state, nil
}

func (tx *Tx) toExchanges(runID string, texts []dbsqlc.TranscriptRow, calls []dbsqlc.TranscriptCallsRow) ([]Exchange, error) {
	results := make(map[int32][]CallResult)
	for _, c := range calls {
		envelope, err := tx.ring.openText(callEnvelope, c.Envelope, runID, c.CallID)
		if err != nil {
			return nil, err
		}
		note, err := tx.ring.openText(callNote, c.Note, runID, c.CallID)
		if err != nil {
			return nil, err
		}
		results[c.Step] = append(results[c.Step], CallResult{
			Index: int(c.Idx), CallID: c.CallID, ProviderCallID: c.ProviderCallID, Tool: c.Tool, Envelope: envelope,
			Status: CallStatus(c.Status), ErrorCode: agent.ToolErrorCode(c.ErrorCode), Note: note,
		})
	}
	var exchanges []Exchange
	for _, row := range slices.Backward(texts) {
		e := Exchange{Step: int(row.Step)}
		text, err := tx.ring.open(attemptResponse, row.Response, runID, number(row.Step), number(row.Attempt))
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &e.Response); err != nil {
			return nil, fmt.Errorf("stored response of step %d is damaged", e.Step)
		}
		if e.Response.Correction == "" {
			e.Results = results[row.Step]
		}
		exchanges = append(exchanges, e)
	}
	return exchanges, nil
}

// number is a part of a row's key as text.
func number[T int | int32 | int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// StartAttempt queues a new attempt with its reservation and prompt. If the attempt exists
// already the transaction fails with ErrConflict.
func (tx *Tx) StartAttempt(runID string, a Attempt) {
	tx.write(exec(tx.q.StartAttempt, dbsqlc.StartAttemptParams{
		Tenant: tx.scope.Tenant, RunID: runID, Step: int32(a.Step), Attempt: int32(a.Number), Try: int32(a.Try),
		Model: a.Model, Provider: a.Provider, ReservedTokens: a.Reserved.Tokens, ReservedCostMicros: a.Reserved.CostMicros,
		Prompt: a.Prompt,
	}))
}

// FinishAttempt queues the end of an attempt and its settle; Billed must be
// set. response is nil when there is nothing to keep. If the attempt has been
// ended by somebody else the transaction fails with ErrConflict.
func (tx *Tx) FinishAttempt(runID string, a Attempt, response *Response) error {
	params := dbsqlc.FinishAttemptParams{
		Tenant: tx.scope.Tenant, RunID: runID, Step: int32(a.Step), Attempt: int32(a.Number), Status: string(a.Status),
		FailureCode: string(a.FailureCode), Finish: a.Finish, Revision: a.Revision, ProviderRequestID: a.RequestID,
		BilledTokens: a.Billed.Tokens, BilledCostMicros: a.Billed.CostMicros, UsageKnown: a.UsageKnown,
	}
	if r := a.Reported; r != nil {
		params.InputTokens, params.CachedInputTokens, params.OutputTokens = &r.Input, &r.CachedInput, &r.Output
	}
	var err error
	if a.Action != nil {
		if params.Action, err = json.Marshal(a.Action); err != nil {
			return fmt.Errorf("finish attempt: %w", err)
		}
	}
	if response != nil {
		text, err := json.Marshal(response)
		if err != nil {
			return fmt.Errorf("finish attempt: %w", err)
		}
		params.Response = tx.seal(attemptResponse, text, runID, number(a.Step), number(a.Number))
	}
	tx.write(exec(tx.q.FinishAttempt, params))
	return nil
}

// LoseAttempt queues the end of an attempt whose worker died or gave up: billed
// at what it reserved, usage unknown.
func (tx *Tx) LoseAttempt(runID string, a Attempt) error {
	a.Status, a.Billed, a.UsageKnown, a.Reported, a.Action = AttemptLost, &a.Reserved, false, nil, nil
	return tx.FinishAttempt(runID, a, nil)
}

// HoldConversation holds a run and its conversation for the rest of the
// transaction and returns both as they are now. No newer generation begins
// meanwhile.
func (tx *Tx) HoldConversation(ctx context.Context, r Run) (Conversation, agent.Status, error) {
	var held dbsqlc.LockRunAndConversationRow
	// Who holds a conversation writes to it, and keys come first in the order of
	// locks: with them asked for later, one that has the keys and waits for the
	// conversation, and one that rotates the keys, would wait with it in a ring.
	tx.touch()
	err := tx.read(ctx, one(tx.q.LockRunAndConversation, dbsqlc.LockRunAndConversationParams{
		Tenant: tx.scope.Tenant, ConversationID: r.Conversation, ID: r.ID,
	}, &held))
	if err != nil {
		return Conversation{}, "", fmt.Errorf("hold conversation: %w", err)
	}
	return Conversation{
		ID: r.Conversation, User: held.UserID, Environment: held.Environment,
		Version: held.Version, Generation: held.CurrentGeneration, LastSeq: held.LastSeq, Branch: int(held.Branch),
	}, agent.Status(held.Status), nil
}

func toAttempt(step int, row dbsqlc.AttemptsOfStepRow) (Attempt, error) {
	a := Attempt{
		Step: step, Number: int(row.Attempt), Try: int(row.Try), Status: AttemptStatus(row.Status),
		Reserved: Amount{Tokens: row.ReservedTokens, CostMicros: row.ReservedCostMicros},
		Reported: toReported(row.InputTokens, row.CachedInputTokens, row.OutputTokens),
		Billed:   toBilled(row.BilledTokens, row.BilledCostMicros), UsageKnown: present(row.UsageKnown),
	}
	if row.Action != nil {
		a.Action = new(agent.Action)
		if err := json.Unmarshal(row.Action, a.Action); err != nil {
			return Attempt{}, fmt.Errorf("load step: recorded action of step %d is damaged", step)
		}
	}
	return a, nil
}

func toReported(input, cached, output *int64) *ReportedTokens {
	if input == nil {
		return nil
	}
	return &ReportedTokens{Input: *input, CachedInput: present(cached), Output: present(output)}
}

func toBilled(tokens, cost *int64) *Amount {
	if tokens == nil {
		return nil
	}
	return &Amount{Tokens: *tokens, CostMicros: cost}
}
