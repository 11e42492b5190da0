package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// PlanState is a plan with what a person wants to know who decides about it.
// All of it is content.
type PlanState struct {
	Plan WritePlan
	Run  Run
	Call ToolCall
	// Request is the user's message that the run answers.
	Request string
	// Purpose is what the model wrote beside its calls, often nothing.
	Purpose string
	// Totals are what the run has consumed so far.
	Totals Totals
	// Unreadable says why there is no content: a value was damaged or exchanged.
	// It is nil if all of it is here.
	Unreadable error
}

// PlanFilter selects pending plans of one tenant. Empty fields select all.
type PlanFilter struct {
	// Tenant is required.
	Tenant      string
	Environment string
	RunID       string
	// Now leaves out plans that have expired.
	Now time.Time
	// After continues a list: the Next of the page before.
	After PlanCursor
	// Limit bounds the page. Zero means 50, the most is 200.
	Limit int
}

// PlanCursor is a place in the list of pending plans. The zero value is its
// beginning.
type PlanCursor struct {
	CreatedAt time.Time
	RunID     string
}

// PlanPage is a piece of the list of pending plans.
type PlanPage struct {
	Plans []PlanState
	// Next continues the list, nil at its end.
	Next *PlanCursor
}

// PendingPlans returns plans that can still be decided about, oldest first: they
// are pending and not expired, and their run waits and is not superseded. It is
// the approvers' view, of all users of the tenant. One that cannot be read does
// not keep the others from being decided.
func (db *DB) PendingPlans(ctx context.Context, f PlanFilter) (PlanPage, error) {
	limit := min(orDefault(f.Limit, 50), 200)
	var keys []dbsqlc.PendingPlansRow
	err := db.inTenant(ctx, agent.Scope{Tenant: f.Tenant, Environment: f.Environment}, one(db.q.PendingPlans, dbsqlc.PendingPlansParams{
		Tenant: f.Tenant, Now: f.Now, Environment: f.Environment, RunID: f.RunID,
		After: optional(f.After.CreatedAt), AfterRun: f.After.RunID, MaxPlans: int32(limit),
	}, &keys))
	if err != nil {
		return PlanPage{}, fmt.Errorf("list pending plans: %w", err)
	}
	// The rest comes in one more round trip, by key.
	rows := make([]planRows, len(keys))
	var statements []statement
	for i, key := range keys {
		statements = append(statements, rows[i].load(db.q, f.Tenant, key.RunID, key.CallID, key.Revision)...)
	}
	if err := db.inTenant(ctx, agent.Scope{Tenant: f.Tenant, Environment: f.Environment}, statements...); err != nil {
		return PlanPage{}, fmt.Errorf("list pending plans: %w", err)
	}
	var page PlanPage
	for i := range rows {
		state, err := rows[i].state(db)
		if errors.Is(err, ErrSealed) {
			state, err = rows[i].unreadable(db, err)
		}
		if err != nil {
			return PlanPage{}, fmt.Errorf("list pending plans: %w", err)
		}
		// It may have been decided in between.
		if state.Plan.Status == PlanPending {
			page.Plans = append(page.Plans, state)
		}
	}
	if len(keys) == limit {
		last := keys[len(keys)-1]
		page.Next = &PlanCursor{CreatedAt: last.CreatedAt, RunID: last.RunID}
	}
	return page, nil
}

// PlanState reads one revision of a call's plan, decided or not, whoever owns
// the run: ErrNotFound if the tenant has none.
func (db *DB) PlanState(ctx context.Context, tenant, runID, callID string, revision int) (PlanState, error) {
	var rows planRows
	err := db.inTenant(ctx, agent.Scope{Tenant: tenant}, rows.load(db.q, tenant, runID, callID, int32(revision))...)
	if err != nil {
		return PlanState{}, fmt.Errorf("load plan: %w", err)
	}
	state, err := rows.state(db)
	if err != nil {
		return PlanState{}, fmt.Errorf("load plan: %w", err)
	}
	return state, nil
}

// planRows are the rows of a PlanState.
type planRows struct {
	plan     dbsqlc.WritePlan
	run      dbsqlc.GetRunRow
	call     dbsqlc.GetToolCallRow
	totals   dbsqlc.RunTotalsRow
	request  *dbsqlc.GetQuestionRow
	response *dbsqlc.GetResponseOfCallRow
	keys     *dbsqlc.SubjectKey
}

func (p *planRows) load(q *dbsqlc.Queries, tenant, runID, callID string, revision int32) []statement {
	return []statement{
		one(q.GetPlanRevision, dbsqlc.GetPlanRevisionParams{Tenant: tenant, RunID: runID, CallID: callID, Revision: revision}, &p.plan),
		one(q.GetRun, dbsqlc.GetRunParams{Tenant: tenant, ID: runID}, &p.run),
		one(q.GetToolCall, dbsqlc.GetToolCallParams{Tenant: tenant, RunID: runID, CallID: callID}, &p.call),
		one(q.RunTotals, dbsqlc.RunTotalsParams{Tenant: tenant, RunID: runID}, &p.totals),
		maybe(q.GetQuestion, dbsqlc.GetQuestionParams{Tenant: tenant, RunID: runID}, &p.request),
		maybe(q.GetResponseOfCall, dbsqlc.GetResponseOfCallParams{Tenant: tenant, RunID: runID, CallID: callID}, &p.response),
		// Keys come last: no value above is sealed under newer ones.
		maybe(q.SubjectKeyOfRun, dbsqlc.SubjectKeyOfRunParams{Tenant: tenant, RunID: runID}, &p.keys),
	}
}

// unreadable is state without content.
func (p *planRows) unreadable(db *DB, why error) (PlanState, error) {
	p.plan.Summary, p.call.Arguments, p.request, p.response = nil, nil, nil, nil
	state, err := p.state(db)
	state.Unreadable = why
	return state, err
}

func (p *planRows) state(db *DB) (PlanState, error) {
	state := PlanState{Run: toRun(p.run.Run, p.run.CurrentGeneration, p.run.GroupID, p.run.ProjectID), Totals: toTotals(p.totals)}
	r := db.ringOf(state.Run, p.keys)
	var err error
	if state.Plan, err = toWritePlan(r, p.plan); err != nil {
		return PlanState{}, err
	}
	if state.Call, err = toToolCall(r, p.plan.RunID, p.call); err != nil {
		return PlanState{}, err
	}
	if p.request != nil {
		if state.Request, err = r.openText(messageContent, p.request.Content, p.request.ID, state.Run.Conversation, string(RoleUser)); err != nil {
			return PlanState{}, err
		}
	}
	if p.response != nil {
		text, err := r.open(attemptResponse, p.response.Response, p.plan.RunID, number(p.response.Step), number(p.response.Attempt))
		if err != nil {
			return PlanState{}, err
		}
		var said Response
		if err := json.Unmarshal(text, &said); err != nil {
			return PlanState{}, fmt.Errorf("stored response of run %s, call %s is damaged", p.plan.RunID, p.plan.CallID)
		}
		state.Purpose = said.Text
	}
	return state, nil
}

// PlanOutcome is what became of a plan and of one token for it.
type PlanOutcome struct {
	Plan WritePlan
	// Intent is nil unless the write was confirmed.
	Intent *WriteIntent
	// Call is the plan's call.
	Call ToolCall
	// Refusal is the first one of the token, nil if it was not refused.
	Refusal *Refusal
}

// PlanOutcome reads what became of a plan and of the token with tokenID:
// ErrNotFound if the tenant has no such plan.
func (db *DB) PlanOutcome(ctx context.Context, tenant, runID, callID string, revision int, tokenID string) (PlanOutcome, error) {
	var (
		plan    dbsqlc.WritePlan
		call    dbsqlc.GetToolCallRow
		intent  *dbsqlc.WriteIntent
		refusal *dbsqlc.GetRefusalOfTokenRow
		run     dbsqlc.GetRunRow
		keys    *dbsqlc.SubjectKey
	)
	err := db.inTenant(ctx, agent.Scope{Tenant: tenant},
		maybe(db.q.GetRefusalOfToken, dbsqlc.GetRefusalOfTokenParams{Tenant: tenant, RunID: runID, TokenID: tokenID}, &refusal),
		one(db.q.GetPlanRevision, dbsqlc.GetPlanRevisionParams{Tenant: tenant, RunID: runID, CallID: callID, Revision: int32(revision)}, &plan),
		maybe(db.q.GetWriteIntent, dbsqlc.GetWriteIntentParams{Tenant: tenant, RunID: runID, CallID: callID}, &intent),
		one(db.q.GetToolCall, dbsqlc.GetToolCallParams{Tenant: tenant, RunID: runID, CallID: callID}, &call),
		one(db.q.GetRun, dbsqlc.GetRunParams{Tenant: tenant, ID: runID}, &run),
		maybe(db.q.SubjectKeyOfRun, dbsqlc.SubjectKeyOfRunParams{Tenant: tenant, RunID: runID}, &keys),
	)
	if err != nil {
		return PlanOutcome{}, fmt.Errorf("load outcome of plan: %w", err)
	}
	var outcome PlanOutcome
	r := db.ringOf(toRun(run.Run, run.CurrentGeneration, run.GroupID, run.ProjectID), keys)
	if outcome.Plan, err = toWritePlan(r, plan); err != nil {
		return PlanOutcome{}, fmt.Errorf("load outcome of plan: %w", err)
	}
	if outcome.Call, err = toToolCall(r, runID, call); err != nil {
		return PlanOutcome{}, fmt.Errorf("load outcome of plan: %w", err)
	}
	if intent != nil && int(intent.Revision) == revision {
		i, err := toWriteIntent(r, *intent)
		if err != nil {
			return PlanOutcome{}, fmt.Errorf("load outcome of plan: %w", err)
		}
		outcome.Intent = &i
	}
	if refusal != nil {
		outcome.Refusal = &Refusal{
			CallID: refusal.CallID, Code: agent.RefusalCode(refusal.Code), TokenID: refusal.TokenID, Approver: refusal.Approver, At: refusal.At,
		}
	}
	return outcome, nil
}

// UnsettledWrite is a write whose outcome is not known, with the plan that was
// approved. All of it is content.
type UnsettledWrite struct {
	Intent WriteIntent
	Plan   WritePlan
	Run    Run
	// Call has ID, tool and arguments, and nothing else.
	Call ToolCall
	// Unreadable says why there is no content: the subject's keys were destroyed,
	// or a value was damaged. It is nil if all of it is here.
	Unreadable error
}

// WriteFilter selects writes of one tenant. Empty fields select all.
type WriteFilter struct {
	// Tenant is required.
	Tenant      string
	Environment string
	// After, if not nil, continues a list: the last of the page before.
	After *WriteIntent
	// Limit bounds the page. Zero means 50, the most is 200.
	Limit int
}

// UnsettledWrites returns the writes of which nobody knows whether they
// happened, oldest first: those of runs that ended so, and those that are under
// way. It is the operators' view, of all users of the tenant.
func (db *DB) UnsettledWrites(ctx context.Context, f WriteFilter) ([]UnsettledWrite, error) {
	params := dbsqlc.UnsettledWritesParams{Tenant: f.Tenant, Environment: f.Environment, MaxWrites: int32(min(orDefault(f.Limit, 50), 200))}
	if f.After != nil {
		params.After, params.AfterKey = &f.After.RecordedAt, f.After.Key
	}
	var (
		rows []dbsqlc.UnsettledWritesRow
		keys []dbsqlc.SubjectKey
	)
	err := db.inTenant(ctx, agent.Scope{Tenant: f.Tenant, Environment: f.Environment},
		one(db.q.UnsettledWrites, params, &rows), one(db.q.SubjectKeysOfUnsettledWrites, f.Tenant, &keys))
	if err != nil {
		return nil, fmt.Errorf("list unsettled writes: %w", err)
	}
	keysOf := make(map[string]*dbsqlc.SubjectKey, len(keys))
	for i, row := range keys {
		keysOf[row.Subject] = &keys[i]
	}
	writes := make([]UnsettledWrite, len(rows))
	for i, row := range rows {
		r := db.ringOf(toRun(row.Run, row.CurrentGeneration, row.GroupID, row.ProjectID), keysOf[row.Run.UserID])
		writes[i], err = toUnsettledWrite(r, row)
		if errors.Is(err, ErrKeysDestroyed) || errors.Is(err, ErrSealed) {
			// It does not keep the others from being settled.
			why := err
			row.WriteIntent.SettledNote, row.WritePlan.Summary, row.Arguments = nil, nil, nil
			writes[i], err = toUnsettledWrite(r, row)
			writes[i].Unreadable = why
		}
		if err != nil {
			return nil, fmt.Errorf("list unsettled writes: %w", err)
		}
	}
	return writes, nil
}

func toUnsettledWrite(r ring, row dbsqlc.UnsettledWritesRow) (w UnsettledWrite, err error) {
	w.Run = toRun(row.Run, row.CurrentGeneration, row.GroupID, row.ProjectID)
	if w.Intent, err = toWriteIntent(r, row.WriteIntent); err != nil {
		return w, err
	}
	if w.Plan, err = toWritePlan(r, row.WritePlan); err != nil {
		return w, err
	}
	w.Call = ToolCall{ID: row.WriteIntent.CallID, Tool: row.Tool, ToolVersion: row.ToolVersion, ArgumentsHash: row.ArgumentsHash}
	w.Call.Arguments, err = r.openText(callArguments, row.Arguments, row.Run.ID, row.WriteIntent.CallID)
	return w, err
}

// RunOfTenant reads a run whoever owns it: ErrNotFound if the tenant has none.
func (db *DB) RunOfTenant(ctx context.Context, tenant, runID string) (Run, error) {
	var row dbsqlc.GetRunRow
	if err := db.inTenant(ctx, agent.Scope{Tenant: tenant}, one(db.q.GetRun, dbsqlc.GetRunParams{Tenant: tenant, ID: runID}, &row)); err != nil {
		return Run{}, fmt.Errorf("load run: %w", err)
	}
	return toRun(row.Run, row.CurrentGeneration, row.GroupID, row.ProjectID), nil
}

// Settlement is what an operator found out about a write.
type Settlement struct {
	Performed bool
	By        string
	// Note is at most 500 bytes.
	Note string
	At   time.Time
}

// SettleWrite records what became of a write and says whether it did: the first
// record stays. The transaction holds the write as state, which has an intent. In
// a run that has ended the call gets its outcome as well; one that goes on looks
// for itself.
func (tx *Tx) SettleWrite(ctx context.Context, state WriteState, s Settlement) (bool, error) {
	result, status, code := WriteNotPerformed, CallFailed, agent.ToolFailed
	if s.Performed {
		result, status, code = WritePerformed, CallSucceeded, ""
	}
	var settled bool
	err := tx.read(ctx, one(tx.q.SettleWriteIntent, dbsqlc.SettleWriteIntentParams{
		Tenant: tx.scope.Tenant, Key: state.Intent.Key, Outcome: string(result), ResolvedAt: s.At, SettledBy: s.By,
		SettledNote: tx.sealText(intentNote, s.Note, state.Intent.Key),
	}, &settled))
	if err != nil {
		return false, fmt.Errorf("settle write: %w", err)
	}
	if settled {
		// Only a run that has ended has a call of status unknown.
		tx.write(exec(tx.q.SettleToolCall, dbsqlc.SettleToolCallParams{
			Tenant: tx.scope.Tenant, RunID: state.Run.ID, CallID: state.Call.ID, Status: string(status), ErrorCode: string(code),
		}))
	}
	return settled, nil
}
