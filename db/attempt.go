package db

import (
	"context"
	"encoding/json"
	"fmt"
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
	Action    *agent.Action
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
	// Limits are the tenant's own.
	Limits Limits
}

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
		limits   []dbsqlc.GetTenantLimitRow
	)
	err := tx.read(ctx,
		one(tx.q.ShareRun, dbsqlc.ShareRunParams{Tenant: tenant, ID: q.RunID}, &run),
		one(tx.q.AttemptsOfStep, dbsqlc.AttemptsOfStepParams{Tenant: tenant, RunID: q.RunID, Step: int32(q.Step)}, &attempts),
		one(tx.q.Transcript, dbsqlc.TranscriptParams{
			Tenant: tenant, RunID: q.RunID, FromStep: fromStep, Step: int32(q.Step), MaxResponses: int32(q.MaxExchanges),
		}, &texts),
		one(tx.q.TranscriptCalls, dbsqlc.TranscriptCallsParams{Tenant: tenant, RunID: q.RunID, FromStep: fromStep, Step: int32(q.Step)}, &calls),
		one(tx.q.MessagesBeforeRun, dbsqlc.MessagesBeforeRunParams{Tenant: tenant, RunID: q.RunID, MaxMessages: int32(q.MaxMessages) + 1}, &messages),
		one(tx.q.GetTenantLimit, tenant, &limits),
	)
	if err != nil {
		return StepState{}, fmt.Errorf("load step: %w", err)
	}
	state := StepState{Run: toRun(run.Run, run.CurrentGeneration), Limits: toLimits(limits)}
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
	for i := len(messages) - 1; i >= 0; i-- {
		row := messages[i]
		m := Message{
			ID: row.ID, Conversation: state.Run.Conversation, Seq: row.Seq, Role: MessageRole(row.Role),
			Content: row.Content, Visibility: Visible, RunID: row.RunID,
		}
		if row.ID == state.Run.QuestionID {
			state.Question = m
		} else {
			state.History = append(state.History, m)
		}
	}
	if state.Question.ID == "" {
		return StepState{}, fmt.Errorf("load step: the run's question: %w", ErrNotFound)
	}
	state.Exchanges, err = toExchanges(texts, calls)
	return state, err
}

func toExchanges(texts []dbsqlc.TranscriptRow, calls []dbsqlc.TranscriptCallsRow) ([]Exchange, error) {
	results := make(map[int32][]CallResult)
	for _, c := range calls {
		results[c.Step] = append(results[c.Step], CallResult{
			Index: int(c.Idx), ProviderCallID: c.ProviderCallID, Tool: c.Tool, Envelope: present(c.Envelope),
		})
	}
	var exchanges []Exchange
	for i := len(texts) - 1; i >= 0; i-- {
		e := Exchange{Step: int(texts[i].Step)}
		if err := json.Unmarshal(texts[i].Response, &e.Response); err != nil {
			return nil, fmt.Errorf("load step: stored response of step %d is damaged", e.Step)
		}
		if e.Response.Correction == "" {
			e.Results = results[texts[i].Step]
		}
		exchanges = append(exchanges, e)
	}
	return exchanges, nil
}

// StartAttempt queues a new attempt with its reservation. If the attempt exists
// already the transaction fails with ErrConflict.
func (tx *Tx) StartAttempt(runID string, a Attempt) {
	tx.write(exec(tx.q.StartAttempt, dbsqlc.StartAttemptParams{
		Tenant: tx.scope.Tenant, RunID: runID, Step: int32(a.Step), Attempt: int32(a.Number), Try: int32(a.Try),
		Model: a.Model, Provider: a.Provider, ReservedTokens: a.Reserved.Tokens, ReservedCostMicros: a.Reserved.CostMicros,
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
		if params.Response, err = json.Marshal(response); err != nil {
			return fmt.Errorf("finish attempt: %w", err)
		}
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
	err := tx.read(ctx, one(tx.q.LockRunAndConversation, dbsqlc.LockRunAndConversationParams{
		Tenant: tx.scope.Tenant, ConversationID: r.Conversation, ID: r.ID,
	}, &held))
	if err != nil {
		return Conversation{}, "", fmt.Errorf("hold conversation: %w", err)
	}
	return Conversation{
		ID: r.Conversation, User: held.UserID, Environment: held.Environment,
		Version: held.Version, Generation: held.CurrentGeneration, LastSeq: held.LastSeq,
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
