package db

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// PlanStatus is where a plan stands.
type PlanStatus string

// The closed set of plan statuses.
const (
	PlanPending  PlanStatus = "pending"
	PlanApproved PlanStatus = "approved"
	PlanDeclined PlanStatus = "declined"
	// PlanExpired: nobody decided in time.
	PlanExpired PlanStatus = "expired"
	// PlanStale: the resource changed before the commit.
	PlanStale PlanStatus = "stale"
	// PlanRefused: it was confirmed, and then rights or tool refused it.
	PlanRefused PlanStatus = "refused"
	// PlanWithdrawn: the run ended.
	PlanWithdrawn PlanStatus = "withdrawn"
)

// WritePlan is what a write is going to do, as a person is shown it.
type WritePlan struct {
	RunID, CallID string
	// Revision counts the plans of one call from 1.
	Revision        int
	Tool            string
	ToolVersion     string
	ArgumentsHash   string
	Resource        string
	ResourceVersion string
	// Summary is content. It is empty in reports.
	Summary string
	// Hash is the SHA-256 in hex of all that the person is shown.
	Hash         string
	Nonce        string
	PolicyDigest string
	Status       PlanStatus
	CreatedAt    time.Time
	ExpiresAt    time.Time
	// DecidedBy and TokenID are set for approved and declined plans, and for
	// those that were found stale or refused after they were approved. DecidedAt
	// is set for all that are not pending.
	DecidedBy string
	DecidedAt time.Time
	TokenID   string
}

// WriteResult is what is known of a write's effect.
type WriteResult string

// The closed set of write results.
const (
	// WriteOpen: it is under way, or the worker died.
	WriteOpen WriteResult = "open"
	// WritePerformed: the effect happened, once.
	WritePerformed WriteResult = "performed"
	// WriteNotPerformed: the effect did not happen and will not.
	WriteNotPerformed WriteResult = "not_performed"
	// WriteUnknown: the run ended without knowing.
	WriteUnknown WriteResult = "unknown"
)

// ResolvedBy says how a write's result came to be known.
type ResolvedBy string

// The closed set of resolutions.
const (
	ByCommit   ResolvedBy = "commit"
	ByLookUp   ResolvedBy = "look_up"
	ByOperator ResolvedBy = "operator"
)

// WriteIntent is the recorded intent to have one effect.
type WriteIntent struct {
	// Key is the idempotency key, 64 hexadecimal digits.
	Key           string
	RunID, CallID string
	Revision      int
	ArgumentsHash string
	ApprovedBy    string
	PolicyDigest  string
	Result        WriteResult
	ResolvedBy    ResolvedBy
	// SettledBy and SettledNote are an operator's, if one settled it.
	SettledBy   string
	SettledNote string
	// Sends counts how often the write was sent, SentAt is the last time.
	Sends      int
	RecordedAt time.Time
	SentAt     time.Time
	// DecisiveAt is from when on a look-up that finds nothing means that nothing
	// happened: until then what was sent may still arrive.
	DecisiveAt time.Time
	// ResolvedAt is zero while the result is open.
	ResolvedAt time.Time
}

// Refusal is an approval that was not believed. TokenID and Approver are empty
// unless its signature was good.
type Refusal struct {
	CallID   string
	Code     agent.RefusalCode
	TokenID  string
	Approver string
	// At is set by the database.
	At time.Time
}

// WriteState is a call of a write tool with what belongs to it.
type WriteState struct {
	Run  Run
	Call ToolCall
	// Plan is the newest of the call, nil if there is none.
	Plan *WritePlan
	// Intent is nil until the write was confirmed.
	Intent *WriteIntent
}

// Write reads a call with its plan and intent in one round trip: ErrNotFound if
// the scope has no such run or the run no such call.
func (db *DB) Write(ctx context.Context, scope agent.Scope, runID, callID string) (WriteState, error) {
	var (
		run  dbsqlc.GetRunRow
		keys *dbsqlc.SubjectKey
	)
	rows := writeRows{}
	err := db.inScope(ctx, scope, append(append([]statement{
		one(db.q.GetRun, dbsqlc.GetRunParams{Tenant: scope.Tenant, ID: runID}, &run),
	}, rows.load(db.q, scope.Tenant, runID, callID)...), maybe(db.q.SubjectKeyOfRun, dbsqlc.SubjectKeyOfRunParams{Tenant: scope.Tenant, RunID: runID}, &keys))...)
	if err != nil {
		return WriteState{}, fmt.Errorf("load write: %w", err)
	}
	r := toRun(run.Run, run.CurrentGeneration, run.GroupID, run.ProjectID)
	return rows.state(db.ringOf(r, keys), r, scope)
}

// HoldWrite is Write for a transaction: it holds the run against other changes
// of its status, and no newer generation begins meanwhile.
func (tx *Tx) HoldWrite(ctx context.Context, runID, callID string) (WriteState, error) {
	var (
		run         dbsqlc.LockRunRow
		generations []int64
	)
	rows := writeRows{}
	tx.touch()
	err := tx.read(ctx, append([]statement{
		one(tx.q.HoldConversationOfRun, dbsqlc.HoldConversationOfRunParams{Tenant: tx.scope.Tenant, RunID: runID}, &generations),
		one(tx.q.LockRun, dbsqlc.LockRunParams{Tenant: tx.scope.Tenant, ID: runID}, &run),
	}, rows.load(tx.q, tx.scope.Tenant, runID, callID)...)...)
	if err != nil {
		return WriteState{}, fmt.Errorf("hold write: %w", err)
	}
	return rows.state(tx.ring, toRun(run.Run, run.CurrentGeneration, run.GroupID, run.ProjectID), tx.scope)
}

// writeRows are the rows of a write beside its run's.
type writeRows struct {
	call   dbsqlc.GetToolCallRow
	plan   *dbsqlc.WritePlan
	intent *dbsqlc.WriteIntent
}

func (w *writeRows) load(q *dbsqlc.Queries, tenant, runID, callID string) []statement {
	return []statement{
		one(q.GetToolCall, dbsqlc.GetToolCallParams{Tenant: tenant, RunID: runID, CallID: callID}, &w.call),
		maybe(q.GetWritePlan, dbsqlc.GetWritePlanParams{Tenant: tenant, RunID: runID, CallID: callID}, &w.plan),
		maybe(q.GetWriteIntent, dbsqlc.GetWriteIntentParams{Tenant: tenant, RunID: runID, CallID: callID}, &w.intent),
	}
}

func (w *writeRows) state(r ring, run Run, scope agent.Scope) (WriteState, error) {
	if run.Scope != scope {
		return WriteState{}, fmt.Errorf("load write: %w", ErrNotFound)
	}
	state := WriteState{Run: run}
	var err error
	if state.Call, err = toToolCall(r, run.ID, w.call); err != nil {
		return WriteState{}, fmt.Errorf("load write: %w", err)
	}
	if w.plan != nil {
		p, err := toWritePlan(r, *w.plan)
		if err != nil {
			return WriteState{}, fmt.Errorf("load write: %w", err)
		}
		state.Plan = &p
	}
	if w.intent != nil {
		i, err := toWriteIntent(r, *w.intent)
		if err != nil {
			return WriteState{}, fmt.Errorf("load write: %w", err)
		}
		state.Intent = &i
	}
	return state, nil
}

// InsertPlan queues a new pending plan. While another one of the run is pending
// the transaction fails with ErrConflict.
func (tx *Tx) InsertPlan(p WritePlan) {
	summary := tx.sealText(planSummary, p.Summary, p.RunID, p.CallID, number(p.Revision))
	if summary == nil {
		summary = []byte{} // which the schema refuses
	}
	tx.write(exec(tx.q.InsertWritePlan, dbsqlc.InsertWritePlanParams{
		Tenant: tx.scope.Tenant, RunID: p.RunID, CallID: p.CallID, Revision: int32(p.Revision), Tool: p.Tool, ToolVersion: p.ToolVersion,
		ArgumentsHash: p.ArgumentsHash, Resource: p.Resource, ResourceVersion: p.ResourceVersion, Summary: summary, Hash: p.Hash,
		Nonce: p.Nonce, PolicyDigest: p.PolicyDigest, CreatedAt: p.CreatedAt, ExpiresAt: p.ExpiresAt,
	}))
}

// ClosePlan queues the end of a pending plan: Status, DecidedBy, DecidedAt and
// TokenID of p. The transaction must hold the write, and p must be pending.
func (tx *Tx) ClosePlan(p WritePlan) {
	tx.write(exec(tx.q.CloseWritePlan, dbsqlc.CloseWritePlanParams{
		Tenant: tx.scope.Tenant, RunID: p.RunID, CallID: p.CallID, Revision: int32(p.Revision),
		Status: string(p.Status), DecidedBy: p.DecidedBy, DecidedAt: p.DecidedAt, TokenID: p.TokenID,
	}))
}

// RecordIntent queues a new intent, sent for the first time at RecordedAt. If
// the key or the call has one already the transaction fails with ErrConflict.
func (tx *Tx) RecordIntent(i WriteIntent) {
	tx.touch() // so that the keys are not destroyed under it
	tx.write(exec(tx.q.InsertWriteIntent, dbsqlc.InsertWriteIntentParams{
		Tenant: tx.scope.Tenant, Key: i.Key, RunID: i.RunID, CallID: i.CallID, Revision: int32(i.Revision),
		ArgumentsHash: i.ArgumentsHash, ApprovedBy: i.ApprovedBy, PolicyDigest: i.PolicyDigest, RecordedAt: i.RecordedAt, DecisiveAt: i.DecisiveAt,
	}))
}

// MarkSent queues that a write with an open intent is sent again, and from when
// on a look-up is decisive.
func (tx *Tx) MarkSent(key string, at, decisive time.Time) {
	tx.write(exec(tx.q.MarkWriteSent, dbsqlc.MarkWriteSentParams{Tenant: tx.scope.Tenant, Key: key, SentAt: at, DecisiveAt: decisive}))
}

// ResolveIntent queues the result of a write: performed or not. The first one
// stays.
func (tx *Tx) ResolveIntent(key string, result WriteResult, by ResolvedBy, at time.Time) {
	tx.write(exec(tx.q.ResolveWriteIntent, dbsqlc.ResolveWriteIntentParams{
		Tenant: tx.scope.Tenant, Key: key, Outcome: string(result), ResolvedBy: string(by), ResolvedAt: at,
	}))
}

// RefuseApproval queues the record of an approval that was not believed.
func (tx *Tx) RefuseApproval(runID string, r Refusal) {
	tx.write(exec(tx.q.InsertApprovalRefusal, dbsqlc.InsertApprovalRefusalParams{
		Tenant: tx.scope.Tenant, RunID: runID, CallID: r.CallID, Code: string(r.Code), TokenID: r.TokenID, Approver: r.Approver,
	}))
}

func toWritePlan(r ring, row dbsqlc.WritePlan) (WritePlan, error) {
	summary, err := r.openText(planSummary, row.Summary, row.RunID, row.CallID, number(row.Revision))
	if err != nil {
		return WritePlan{}, err
	}
	return WritePlan{
		RunID: row.RunID, CallID: row.CallID, Revision: int(row.Revision), Tool: row.Tool, ToolVersion: row.ToolVersion,
		ArgumentsHash: row.ArgumentsHash, Resource: row.Resource, ResourceVersion: row.ResourceVersion, Summary: summary,
		Hash: row.Hash, Nonce: row.Nonce, PolicyDigest: row.PolicyDigest, Status: PlanStatus(row.Status),
		CreatedAt: row.CreatedAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(),
		DecidedBy: row.DecidedBy, DecidedAt: present(row.DecidedAt), TokenID: row.TokenID,
	}, nil
}

func toWriteIntent(r ring, row dbsqlc.WriteIntent) (WriteIntent, error) {
	note, err := r.openText(intentNote, row.SettledNote, row.Key)
	if err != nil {
		return WriteIntent{}, err
	}
	return WriteIntent{
		Key: row.Key, RunID: row.RunID, CallID: row.CallID, Revision: int(row.Revision), ArgumentsHash: row.ArgumentsHash,
		ApprovedBy: row.ApprovedBy, PolicyDigest: row.PolicyDigest, Result: WriteResult(row.Outcome), ResolvedBy: ResolvedBy(row.ResolvedBy),
		SettledBy: row.SettledBy, SettledNote: note, Sends: int(row.Sends),
		RecordedAt: row.RecordedAt, SentAt: row.SentAt, DecisiveAt: row.DecisiveAt, ResolvedAt: present(row.ResolvedAt),
	}, nil
}
