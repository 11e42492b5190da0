package db

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/vault"
)

// CallStatus is where a tool call stands.
type CallStatus string

// The closed set of call statuses.
const (
	CallProposed CallStatus = "proposed"
	// CallRefused: answered with an error before it was executed.
	CallRefused   CallStatus = "refused"
	CallRunning   CallStatus = "running"
	CallSucceeded CallStatus = "succeeded"
	CallFailed    CallStatus = "failed"
	// CallAbandoned: the run ended before the call had an outcome.
	CallAbandoned CallStatus = "abandoned"
	// CallUnknown: the run ended and nobody knows whether the effect happened.
	CallUnknown CallStatus = "unknown"
)

// ToolCall is one call that the model proposed.
type ToolCall struct {
	// ID is "<step>.<index>".
	ID             string
	Step, Index    int
	ProviderCallID string
	Tool           string
	ToolVersion    string
	Risk           string
	// Arguments are canonical JSON, or what the model wrote if it is not JSON:
	// valid UTF-8 without NUL.
	Arguments     string
	ArgumentsHash string
	Status        CallStatus
	// Error is set for refused and failed calls.
	Error *agent.ToolError
	// Envelope is what the model is shown; it is written with the outcome.
	Envelope   string
	ResultHash string
	Executions int
}

// Recorded reports whether the call has an outcome.
func (c ToolCall) Recorded() bool {
	return c.Status == CallRefused || c.Status == CallSucceeded || c.Status == CallFailed
}

// InsertToolCalls queues new calls, proposed or refused.
func (tx *Tx) InsertToolCalls(runID string, calls []ToolCall) {
	for _, c := range calls {
		params := dbsqlc.InsertToolCallParams{
			Tenant: tx.scope.Tenant, RunID: runID, CallID: c.ID, Step: int32(c.Step), Idx: int32(c.Index),
			ProviderCallID: c.ProviderCallID, Tool: c.Tool, ToolVersion: c.ToolVersion, Risk: c.Risk,
			Arguments: tx.sealAnyText(callArguments, c.Arguments, runID, c.ID), ArgumentsHash: c.ArgumentsHash, Status: string(c.Status),
			Envelope: tx.sealText(callEnvelope, c.Envelope, runID, c.ID),
		}
		if c.Error != nil {
			params.ErrorCode, params.ErrorHash = string(c.Error.Code), c.Error.Hash
		}
		if c.Status == CallRefused {
			now := time.Now()
			params.EndedAt = &now
		}
		tx.write(exec(tx.q.InsertToolCall, params))
	}
}

// ToolCall reads a call with the run that it belongs to, in one round trip:
// ErrNotFound if the scope has no such run or the run no such call.
func (db *DB) ToolCall(ctx context.Context, scope agent.Scope, runID, callID string) (Run, ToolCall, error) {
	var (
		run  dbsqlc.GetRunRow
		call dbsqlc.GetToolCallRow
		keys *dbsqlc.SubjectKey
	)
	err := db.inScope(ctx, scope,
		one(db.q.GetRun, dbsqlc.GetRunParams{Tenant: scope.Tenant, ID: runID}, &run),
		one(db.q.GetToolCall, dbsqlc.GetToolCallParams{Tenant: scope.Tenant, RunID: runID, CallID: callID}, &call),
		maybe(db.q.SubjectKeyOfRun, dbsqlc.SubjectKeyOfRunParams{Tenant: scope.Tenant, RunID: runID}, &keys),
	)
	if err != nil {
		return Run{}, ToolCall{}, fmt.Errorf("load tool call: %w", err)
	}
	r := toRun(run.Run, run.CurrentGeneration, run.GroupID, run.ProjectID)
	if r.Scope != scope {
		return Run{}, ToolCall{}, fmt.Errorf("load tool call: %w", ErrNotFound)
	}
	c, err := toToolCall(db.ringOf(r, keys), runID, call)
	if err != nil {
		return Run{}, ToolCall{}, fmt.Errorf("load tool call: %w", err)
	}
	return r, c, nil
}

func toToolCall(r ring, runID string, row dbsqlc.GetToolCallRow) (ToolCall, error) {
	arguments, err := r.openText(callArguments, row.Arguments, runID, row.CallID)
	if err != nil {
		return ToolCall{}, err
	}
	c := ToolCall{
		ID: row.CallID, Step: int(row.Step), Index: int(row.Idx), Tool: row.Tool, ToolVersion: row.ToolVersion, Risk: row.Risk,
		Arguments: arguments, ArgumentsHash: row.ArgumentsHash, Status: CallStatus(row.Status),
		ResultHash: row.ResultHash, Executions: int(row.Executions),
	}
	if row.ErrorCode != "" {
		c.Error = &agent.ToolError{Code: agent.ToolErrorCode(row.ErrorCode), Hash: row.ErrorHash}
	}
	return c, nil
}

// StartToolCall queues the mark that a call is being executed.
func (tx *Tx) StartToolCall(runID, callID string) {
	tx.write(exec(tx.q.StartToolCall, dbsqlc.StartToolCallParams{Tenant: tx.scope.Tenant, RunID: runID, CallID: callID}))
}

// CallOutcome is how an execution came out: Error, or a result in full.
type CallOutcome struct {
	Error      *agent.ToolError
	Envelope   string
	Content    []byte
	ResultHash string
	// ContentType is "application/json" or "text/plain".
	ContentType string
	// Note is what the tool said about its result in one line.
	Note string
	// Facts are entries that hold from now on, of kind EntryFact, with Key and
	// Value. They are stored if this outcome is the first one and the run is
	// that of the conversation's newest generation.
	Facts     []SessionEntry
	StartedAt time.Time
}

// FinishToolCall queues the outcome of a call with its full result. The first
// outcome stays: after the commit, recorded says whether it was this one.
func (tx *Tx) FinishToolCall(runID, callID string, o CallOutcome, recorded *bool) {
	params := dbsqlc.FinishToolCallParams{
		Tenant: tx.scope.Tenant, RunID: runID, CallID: callID, Status: string(CallSucceeded),
		Envelope: tx.sealText(callEnvelope, o.Envelope, runID, callID), Note: tx.sealText(callNote, o.Note, runID, callID),
		ResultHash: o.ResultHash, StartedAt: o.StartedAt, ContentType: o.ContentType, FactKeys: []string{}, FactValues: [][]byte{},
	}
	if o.Error != nil {
		params.Status, params.ErrorCode, params.ErrorHash = string(CallFailed), string(o.Error.Code), o.Error.Hash
	} else {
		params.Content = tx.sealAny(resultContent, o.Content, runID, callID)
		for _, f := range o.Facts {
			params.FactKeys = append(params.FactKeys, f.Key)
			params.FactValues = append(params.FactValues, tx.sealText(entryValue, f.Value, runID, callID, string(EntryFact), f.Key))
		}
	}
	if len(params.FactKeys) > 0 {
		// Facts number themselves by the conversation, which comes before its
		// runs and calls in the order of locks.
		tx.write(one(tx.q.HoldConversationOfRun, dbsqlc.HoldConversationOfRunParams{Tenant: tx.scope.Tenant, RunID: runID}, new([]int64)))
	}
	tx.write(one(tx.q.FinishToolCall, params, recorded))
}

// ReadResult returns up to limit bytes of a result from offset, and the size of
// the whole: ErrNotFound unless it is a result of this run in this scope. The
// ID of a result is that of its call.
func (db *DB) ReadResult(ctx context.Context, scope agent.Scope, runID, resultID string, offset, limit int64) (chunk []byte, total int64, err error) {
	var (
		sealed []byte
		keys   *dbsqlc.SubjectKey
	)
	err = db.inScope(ctx, scope,
		one(db.q.ReadToolResult, dbsqlc.ReadToolResultParams{
			Tenant: scope.Tenant, UserID: scope.User, Environment: scope.Environment, RunID: runID, CallID: resultID,
		}, &sealed),
		maybe(db.q.GetSubjectKey, dbsqlc.GetSubjectKeyParams{Tenant: scope.Tenant, Subject: scope.User}, &keys),
	)
	if err != nil {
		return nil, 0, fmt.Errorf("read tool result: %w", err)
	}
	r := db.keys.ring(vault.Owner{Tenant: scope.Tenant, Subject: scope.User}, toStoredKeys(keys))
	content, err := r.open(resultContent, sealed, runID, resultID)
	if err != nil {
		return nil, 0, fmt.Errorf("read tool result: %w", err)
	}
	total = int64(len(content))
	from := min(max(offset, 0), total)
	return content[from : from+min(max(limit, 0), total-from)], total, nil
}
