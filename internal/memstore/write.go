package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// write reads a call with its newest plan and its intent.
func (d *data) write(scope agent.Scope, runID, callID string) (db.WriteState, error) {
	run, ok := d.run(scope.Tenant, runID)
	at := callKey{runKey{scope.Tenant, runID}, callID}
	call, found := d.calls.get(at)
	if !ok || !found {
		return db.WriteState{}, missing
	}
	if run.Scope != scope {
		return db.WriteState{}, db.ErrNotFound
	}
	state := db.WriteState{Run: run, Call: call.toolCall()}
	for key, p := range d.plans.rows {
		if key.callKey == at && (state.Plan == nil || p.Revision > state.Plan.Revision) {
			state.Plan = &p
		}
	}
	for key, i := range d.intents.rows {
		if key.tenant == scope.Tenant && i.RunID == runID && i.CallID == callID {
			state.Intent = &i
		}
	}
	return state, nil
}

// HoldWrite implements activities.Tx.
func (tx *tx) HoldWrite(ctx context.Context, runID, callID string) (state db.WriteState, err error) {
	if err := tx.send(ctx); err != nil {
		return db.WriteState{}, wrap("hold write", err)
	}
	state, err = tx.data.write(tx.scope, runID, callID)
	if err == error(missing) {
		tx.err = err
		return db.WriteState{}, wrap("hold write", err)
	}
	return state, wrap("load write", err)
}

// InsertPlan implements activities.Tx.
func (tx *tx) InsertPlan(p db.WritePlan) {
	tx.queue(func() error {
		d, at := tx.data, planKey{callKey{tx.key(p.RunID), p.CallID}, p.Revision}
		if err := first(
			texts(p.Tool, p.ToolVersion, p.Resource, p.ResourceVersion, p.Summary, p.Nonce),
			check(isHash(p.ArgumentsHash), "write_plan_arguments_hash_check"), check(isHash(p.Hash), "write_plan_hash_check"),
			check(p.Nonce != "", "write_plan_nonce_check"), check(isHash(p.PolicyDigest), "write_plan_policy_digest_check"),
			check(p.Resource != "", "write_plan_resource_check"), check(p.Revision > 0, "write_plan_revision_check"),
			check(p.Summary != "", "write_plan_summary_check"), check(p.Tool != "", "write_plan_tool_check"),
			check(p.ToolVersion != "", "write_plan_tool_version_check"),
		); err != nil {
			return err
		}
		if _, taken := d.plans.get(at); taken {
			return conflict("write_plan_pkey")
		}
		for key, other := range d.plans.rows {
			if key.runKey == at.runKey && other.Status == db.PlanPending {
				return conflict("write_plan_pending_idx")
			}
		}
		if _, ok := d.calls.get(at.callKey); !ok {
			return absent("write_plan_call_fkey")
		}
		row := p
		row.Status, row.DecidedBy, row.DecidedAt, row.TokenID = db.PlanPending, "", time.Time{}, ""
		row.CreatedAt, row.ExpiresAt = micros(p.CreatedAt), micros(p.ExpiresAt)
		d.plans.put(tx, at, row)
		return nil
	})
}

// ClosePlan implements activities.Tx.
func (tx *tx) ClosePlan(p db.WritePlan) {
	tx.queue(func() error {
		d, at := tx.data, planKey{callKey{tx.key(p.RunID), p.CallID}, p.Revision}
		row, ok := d.plans.get(at)
		if !ok || row.Status != db.PlanPending {
			return nil
		}
		decided := p.Status == db.PlanApproved || p.Status == db.PlanDeclined
		approved := decided || p.Status == db.PlanStale || p.Status == db.PlanRefused
		if err := first(
			texts(p.DecidedBy, p.TokenID), check(p.Status != db.PlanPending, "write_plan_decided_check"),
			check((p.DecidedBy != "") == (p.TokenID != "") && (p.DecidedBy != "" || !decided) && (p.DecidedBy == "" || approved), "write_plan_decider_check"),
			check(validPlanStatus(p.Status), "write_plan_status_check"),
		); err != nil {
			return err
		}
		row.Status, row.DecidedBy, row.DecidedAt, row.TokenID = p.Status, p.DecidedBy, micros(p.DecidedAt), p.TokenID
		d.plans.put(tx, at, row)
		return nil
	})
}

func validPlanStatus(s db.PlanStatus) bool {
	return slices.Contains([]db.PlanStatus{
		db.PlanPending, db.PlanApproved, db.PlanDeclined, db.PlanExpired, db.PlanStale, db.PlanRefused, db.PlanWithdrawn,
	}, s)
}

// RecordIntent implements activities.Tx.
func (tx *tx) RecordIntent(i db.WriteIntent) {
	tx.queue(func() error {
		d, at := tx.data, intentKey{tx.scope.Tenant, i.Key}
		if err := first(
			texts(i.ApprovedBy), check(i.ApprovedBy != "", "write_intent_approved_by_check"),
			check(isHash(i.ArgumentsHash), "write_intent_arguments_hash_check"), check(isHash(i.Key), "write_intent_key_check"),
			check(isHash(i.PolicyDigest), "write_intent_policy_digest_check"),
		); err != nil {
			return err
		}
		if _, taken := d.intents.get(at); taken {
			return conflict("write_intent_pkey")
		}
		for key, other := range d.intents.rows {
			if key.tenant == at.tenant && other.RunID == i.RunID && other.CallID == i.CallID {
				return conflict("write_intent_call_key")
			}
		}
		if _, ok := d.plans.get(planKey{callKey{tx.key(i.RunID), i.CallID}, i.Revision}); !ok {
			return absent("write_intent_plan_fkey")
		}
		d.intents.put(tx, at, db.WriteIntent{
			Key: i.Key, RunID: i.RunID, CallID: i.CallID, Revision: i.Revision, ArgumentsHash: i.ArgumentsHash, ApprovedBy: i.ApprovedBy,
			PolicyDigest: i.PolicyDigest, Result: db.WriteOpen, Sends: 1, RecordedAt: micros(i.RecordedAt), SentAt: micros(i.RecordedAt),
			DecisiveAt: micros(i.DecisiveAt),
		})
		return nil
	})
}

// MarkSent implements activities.Tx.
func (tx *tx) MarkSent(key string, at, decisive time.Time) {
	tx.queue(func() error {
		k := intentKey{tx.scope.Tenant, key}
		if i, ok := tx.data.intents.get(k); ok && i.Result == db.WriteOpen {
			i.Sends, i.SentAt = i.Sends+1, micros(at)
			if decisive = micros(decisive); decisive.After(i.DecisiveAt) {
				i.DecisiveAt = decisive
			}
			tx.data.intents.put(tx, k, i)
		}
		return nil
	})
}

// ResolveIntent implements activities.Tx.
func (tx *tx) ResolveIntent(key string, result db.WriteResult, by db.ResolvedBy, at time.Time) {
	tx.queue(func() error {
		k := intentKey{tx.scope.Tenant, key}
		i, ok := tx.data.intents.get(k)
		if !ok || i.Result != db.WriteOpen && i.Result != db.WriteUnknown {
			return nil
		}
		if err := first(
			check(slices.Contains([]db.WriteResult{db.WriteOpen, db.WritePerformed, db.WriteNotPerformed, db.WriteUnknown}, result), "write_intent_outcome_check"),
			check(slices.Contains([]db.ResolvedBy{"", db.ByCommit, db.ByLookUp, db.ByOperator}, by), "write_intent_resolved_by_check"),
			check(resolutionFits(result, by), "write_intent_resolved_check"),
			check((by == db.ByOperator) == (i.SettledBy != ""), "write_intent_settled_check"),
		); err != nil {
			return err
		}
		i.Result, i.ResolvedBy, i.ResolvedAt = result, by, micros(at)
		tx.data.intents.put(tx, k, i)
		return nil
	})
}

// Settle records what an operator found out about a write, in a transaction of
// its own, and says whether it did.
func (s *Store) Settle(ctx context.Context, scope agent.Scope, runID, callID string, settlement db.Settlement) (settled bool, err error) {
	err = s.InTx(ctx, scope, func(t activities.Tx) error {
		state, err := t.HoldWrite(ctx, runID, callID)
		if err != nil {
			return err
		}
		if state.Intent == nil {
			return db.ErrNotFound
		}
		settled, err = t.(*tx).settleWrite(ctx, state, settlement)
		return err
	})
	return settled && err == nil, err
}

// settleWrite is db.Tx.SettleWrite.
func (tx *tx) settleWrite(ctx context.Context, state db.WriteState, s db.Settlement) (settled bool, err error) {
	result, status, failed := db.WriteNotPerformed, db.CallFailed, &agent.ToolError{Code: agent.ToolFailed}
	if s.Performed {
		result, status, failed = db.WritePerformed, db.CallSucceeded, nil
	}
	err = tx.read(ctx, func() error {
		at := intentKey{tx.scope.Tenant, state.Intent.Key}
		i, ok := tx.data.intents.get(at)
		if !ok || i.Result != db.WriteOpen && i.Result != db.WriteUnknown {
			return nil
		}
		if err := first(check(s.By != "", "write_intent_settled_check"), texts(s.By, s.Note)); err != nil {
			return err
		}
		i.Result, i.ResolvedBy, i.ResolvedAt, i.SettledBy, i.SettledNote = result, db.ByOperator, micros(s.At), s.By, s.Note
		tx.data.intents.put(tx, at, i)
		settled = true
		call := callKey{tx.key(state.Run.ID), state.Call.ID}
		if c, ok := tx.data.calls.get(call); ok && c.Status == db.CallUnknown {
			c.Status, c.Error = status, failed
			tx.data.calls.put(tx, call, c)
		}
		return nil
	})
	return settled, wrap("settle write", err)
}

// resolutionFits is write_intent_resolved_check with a time of resolution.
func resolutionFits(result db.WriteResult, by db.ResolvedBy) bool {
	switch result {
	case db.WriteOpen:
		return false
	case db.WriteUnknown:
		return by == ""
	default:
		return by != ""
	}
}

// RefuseApproval implements activities.Tx.
func (tx *tx) RefuseApproval(runID string, r db.Refusal) {
	tx.queue(func() error {
		d, key := tx.data, tx.key(runID)
		if err := first(
			texts(r.CallID, r.TokenID, r.Approver), check(slices.Contains(agent.RefusalCodes(), r.Code), "approval_refusal_code_check"),
		); err != nil {
			return err
		}
		if _, ok := d.runs.get(key); !ok {
			return absent("approval_refusal_run_fkey")
		}
		r.At = tx.now
		d.refusals.put(tx, len(d.refusals.rows), refusalRow{key, r})
		return nil
	})
}
