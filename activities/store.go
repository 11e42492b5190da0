package activities

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// Store is where runs live. *db.DB is the one for production, by PostgreSQL;
// package agenttest has one in memory. What each method promises is said at
// *db.DB and *db.Tx.
type Store interface {
	// InTx runs fn in a transaction on behalf of scope and commits if fn
	// returns nil. fn may be run again from its start.
	InTx(ctx context.Context, scope agent.Scope, fn func(Tx) error) error
	ToolCall(ctx context.Context, scope agent.Scope, runID, callID string) (db.Run, db.ToolCall, error)
	Write(ctx context.Context, scope agent.Scope, runID, callID string) (db.WriteState, error)
	DefinitionBody(ctx context.Context, digest string) (json.RawMessage, error)
	ReadResult(ctx context.Context, scope agent.Scope, runID, resultID string, offset, limit int64) ([]byte, int64, error)
}

// Tx is a transaction of a Store. What its methods queue happens at the commit.
type Tx interface {
	LoadBegin(ctx context.Context, q db.BeginQuery) (db.BeginState, error)
	StoreDefinition(d db.Definition)
	AppendMessage(conv *db.Conversation, m db.Message, submit bool)
	AppendSession(conv db.Conversation, runID string, entries []db.SessionEntry)
	KeyedHash(text string) string
	InsertRun(r db.Run)
	AdmitRun(runID string, limits db.Limits, admitted *bool)
	MoveRun(r db.Run, m db.Move) error
	CloseRun(ctx context.Context, runID, answerID string, maxActions int) (db.EndState, error)
	InsertLesson(runID string)

	LoadStep(ctx context.Context, q db.StepQuery) (db.StepState, error)
	StartAttempt(runID string, a db.Attempt)
	FinishAttempt(runID string, a db.Attempt, response *db.Response) error
	LoseAttempt(runID string, a db.Attempt) error
	HoldConversation(ctx context.Context, r db.Run) (db.Conversation, agent.Status, error)
	ReserveDaily(day time.Time, amount db.Amount, limits db.Limits)
	SettleDaily(day time.Time, reserved, billed db.Amount)

	InsertToolCalls(runID string, calls []db.ToolCall)
	StartToolCall(runID, callID string)
	FinishToolCall(runID, callID string, o db.CallOutcome, recorded *bool)

	LoadSummary(ctx context.Context, conversation string, maxMessages int) (db.SummaryState, error)
	StoreSummary(conv db.Conversation, s db.Summary)

	HoldWrite(ctx context.Context, runID, callID string) (db.WriteState, error)
	InsertPlan(p db.WritePlan)
	ClosePlan(p db.WritePlan)
	RecordIntent(i db.WriteIntent)
	MarkSent(key string, at, decisive time.Time)
	ResolveIntent(key string, result db.WriteResult, by db.ResolvedBy, at time.Time)
	RefuseApproval(runID string, r db.Refusal)
}

// PostgreSQL makes a Store of a database.
func PostgreSQL(database *db.DB) Store { return postgres{database} }

type postgres struct{ *db.DB }

func (p postgres) InTx(ctx context.Context, scope agent.Scope, fn func(Tx) error) error {
	return p.DB.InTx(ctx, scope, func(tx *db.Tx) error { return fn(tx) })
}

// PostgreSQLMemory makes a Memory of a database.
func PostgreSQLMemory(database *db.DB) Memory { return postgres{database} }

func (p postgres) InMemory(ctx context.Context, room agent.MemoryRoom, scope agent.MemoryScope, fn func(MemoryTx) error) error {
	return p.DB.InMemory(ctx, room, scope, func(tx *db.MemoryTx) error { return fn(tx) })
}
