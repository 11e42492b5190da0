package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/tool"
)

// CommitWrite carries out a person's decision about the plan that waits. A token
// that is not believed is put on record and the plan waits on. Otherwise, in
// this order: rights and resource version are checked again, the token is
// consumed and the intent recorded in one transaction, the write is performed,
// and its result is recorded (WRITE-2, WRITE-4, WRITE-6). Done again after a
// crash it finds the intent, performs nothing, and says that the outcome is
// unknown (WRITE-5).
func (r *Runs) CommitWrite(ctx context.Context, in agent.CommitWriteInput) (out agent.WriteOutcome, err error) {
	defer r.contain(agent.ActivityCommitWrite, in.Run, &err)
	key := callKey{in.Run.Scope.Tenant, in.Run.RunID, in.CallID + "\n" + in.Token}
	out, err = r.writes.do(ctx, key, func() (agent.WriteOutcome, error) { return r.commitWrite(ctx, in) })
	return out, r.fault(ctx, agent.ActivityCommitWrite, in.Run, err)
}

func (r *Runs) commitWrite(ctx context.Context, in agent.CommitWriteInput) (agent.WriteOutcome, error) {
	w, known, err := r.openPlan(ctx, in.Run, in.CallID, in.ArgumentsHash, in.Revision)
	if err != nil || known != nil {
		return orZero(known), err
	}
	claims, refusal, err := r.believe(w, in.Token)
	if err != nil {
		return w.end(agent.ReasonAuthorizationUnavailable), nil
	}
	if refusal.Code != "" {
		return r.refuse(ctx, w, refusal)
	}
	if claims.Decision == approval.Decline {
		return r.conclude(ctx, w, conclusion{
			plan: db.PlanDeclined, decidedBy: claims.Approver, token: claims.TokenID,
			err: &tool.Error{Code: agent.ToolDeclined, Message: "a person declined this; nothing was done"},
		})
	}
	return r.commit(ctx, w, claims, in.Run.Generation)
}

// believe judges a token against the plan that waits. The error says that the
// approver's rights could not be determined.
func (r *Runs) believe(w writing, token string) (approval.Claims, db.Refusal, error) {
	refusal := db.Refusal{CallID: w.Call.ID}
	claims, code := r.verify(token)
	if code != "" && code != agent.RefusedExpired {
		refusal.Code = code
		return claims, refusal, nil
	}
	// The signature is good, so the token's own words may be repeated.
	refusal.TokenID, refusal.Approver = claims.TokenID, claims.Approver
	if refusal.Code = bound(claims, w); refusal.Code == "" {
		refusal.Code = code
	}
	if refusal.Code == "" && !r.now().Before(w.Plan.ExpiresAt) {
		refusal.Code = agent.RefusedExpired
	}
	if refusal.Code != "" {
		return claims, refusal, nil
	}
	q := about(authz.Approve, w.Run, w.Call, w.Plan.Resource)
	q.User = claims.Approver
	err := r.decide(q, w.Run.ID)
	if errors.Is(err, tool.ErrAuthorizationUnavailable) {
		return claims, refusal, err
	}
	if err != nil {
		refusal.Code = agent.RefusedNotAuthorized
	}
	return claims, refusal, nil
}

func (r *Runs) verify(token string) (approval.Claims, agent.RefusalCode) {
	if r.approvals == nil {
		// No key is trusted here.
		return approval.Claims{}, agent.RefusedSignature
	}
	return r.approvals.Verify(token, r.now())
}

// bound compares everything that a token is bound to with the plan (WRITE-2).
func bound(c approval.Claims, w writing) agent.RefusalCode {
	p := w.Plan
	switch {
	case c.Tenant != w.Run.Scope.Tenant || c.RunID != w.Run.ID:
		return agent.RefusedWrongRun
	case c.CallID != w.Call.ID:
		return agent.RefusedWrongCall
	case p.Status != db.PlanPending:
		return agent.RefusedUsed
	case c.Revision != p.Revision || c.Nonce != p.Nonce || c.PlanHash != p.Hash || c.Tool != p.Tool || c.ToolVersion != p.ToolVersion ||
		c.ArgumentsHash != p.ArgumentsHash || c.ArgumentsHash != w.Call.ArgumentsHash || c.ResourceVersion != p.ResourceVersion:
		return agent.RefusedWrongPlan
	}
	return ""
}

// refuse puts an approval that was not believed on record; the run waits on.
func (r *Runs) refuse(ctx context.Context, w writing, refusal db.Refusal) (agent.WriteOutcome, error) {
	err := r.store.InTx(ctx, w.Run.Scope, func(tx Tx) error {
		tx.RefuseApproval(w.Run.ID, refusal)
		return nil
	})
	if err != nil {
		return agent.WriteOutcome{}, err
	}
	r.log.Warn("approval refused", zap.String("run_id", w.Run.ID), zap.String("call_id", refusal.CallID), zap.String("code", string(refusal.Code)),
		zap.String("token_id", refusal.TokenID), zap.String("approver", refusal.Approver))
	out := w.state(agent.WriteRefused)
	out.Refusal = refusal.Code
	return out, nil
}

// commit is the way of an approval that is believed.
func (r *Runs) commit(ctx context.Context, w writing, claims approval.Claims, generation int64) (agent.WriteOutcome, error) {
	if reason := w.fence(generation); reason != "" {
		return w.end(reason), nil
	}
	stale, shown, ended, err := r.recheck(ctx, w)
	switch {
	case err != nil:
		return agent.WriteOutcome{}, err
	case ended != "":
		return w.end(ended), nil
	case stale:
		return r.outdate(ctx, w, claims)
	case shown != nil:
		r.logToolError(w.Run.ID, w.Call.ID, shown)
		return r.conclude(ctx, w, conclusion{plan: db.PlanRefused, decidedBy: claims.Approver, token: claims.TokenID, err: shown})
	}
	sending := r.send(w)
	w, ended, err = r.intend(ctx, w, claims, generation, sending)
	switch {
	case err != nil:
		return agent.WriteOutcome{}, err
	case ended != "":
		return w.end(ended), nil
	}
	return r.perform(ctx, w, sending)
}

// sending is one try to have an effect.
type sending struct {
	// at is the time of the record, and decisive when a look-up that finds
	// nothing will mean that nothing happened.
	at, decisive time.Time
	// until is when the tool must have ended, by this process's clocks.
	until time.Time
	// open is until when an earlier try may still arrive; zero if there was none.
	open time.Time
}

// clockMargin is how far the clocks of two workers may be apart.
const clockMargin = 5 * time.Second

// send begins a try. It is called before the transaction that records it, so
// that a worker which stands still meanwhile finds its time used up.
func (r *Runs) send(w writing) sending {
	spec, _ := r.tools.Spec(w.Call.Tool)
	now := r.now().UTC().Truncate(time.Microsecond)
	s := sending{at: now, decisive: now.Add(spec.Timeout + spec.InFlight + clockMargin), until: time.Now().Add(spec.Timeout)}
	if w.Intent != nil {
		s.open = w.Intent.DecisiveAt
	}
	return s
}

// over reports whether the time of the try is up. The clock that stands still
// while a machine is suspended is not the only one that is asked.
func (s sending) over() bool {
	now := time.Now()
	return !now.Before(s.until) || now.Round(0).After(s.until.Round(0))
}

// recheck asks again what may have changed since the plan was made: the
// requester's rights, and the version of the resource (WRITE-6).
func (r *Runs) recheck(ctx context.Context, w writing) (stale bool, shown *tool.Error, ended agent.Reason, err error) {
	if err := r.decide(about(authz.Commit, w.Run, w.Call, w.Plan.Resource), w.Run.ID); err != nil {
		shown, ended, err := judgeTool(ctx, ctx, err)
		return false, shown, ended, err
	}
	work, stop := r.bound(ctx, w.Run.DeadlineAt(r.now()), 0)
	defer stop()
	now, err := r.describe(work, w)
	if shown, ended, err = judgeTool(ctx, work, err); shown != nil || ended != "" || err != nil {
		return false, shown, ended, err
	}
	return now.Resource != w.Plan.Resource || now.Version != w.Plan.ResourceVersion, nil, "", nil
}

// outdate closes a plan whose resource has changed; it is prepared anew.
func (r *Runs) outdate(ctx context.Context, w writing, claims approval.Claims) (agent.WriteOutcome, error) {
	err := r.store.InTx(ctx, w.Run.Scope, func(tx Tx) error {
		state, err := tx.HoldWrite(ctx, w.Run.ID, w.Call.ID)
		if err != nil {
			return err
		}
		p := state.Plan
		switch {
		case p.Revision != w.Plan.Revision || p.Status == db.PlanStale:
			return nil
		case p.Status != db.PlanPending:
			// Another worker was faster: the change may be this write's own.
			return fmt.Errorf("%w: the plan was decided by another worker", errRetry)
		}
		p.Status, p.DecidedBy, p.TokenID, p.DecidedAt = db.PlanStale, claims.Approver, claims.TokenID, r.now()
		tx.ClosePlan(*p)
		return nil
	})
	if err != nil {
		return agent.WriteOutcome{}, err
	}
	r.log.Info("plan is stale", zap.String("run_id", w.Run.ID), zap.String("call_id", w.Call.ID), zap.Int("revision", w.Plan.Revision))
	return w.state(agent.WriteStale), nil
}

// intend consumes the token and records the intent in one transaction, and lets
// the run go on. It says why not if the run was stopped meanwhile.
func (r *Runs) intend(ctx context.Context, w writing, claims approval.Claims, generation int64, s sending) (writing, agent.Reason, error) {
	now := s.at
	intent := db.WriteIntent{
		Key: IdempotencyKey(w.Run.Scope.Tenant, w.Run.ID, w.Call.ID, w.Call.Tool, w.Call.ToolVersion), RunID: w.Run.ID, CallID: w.Call.ID,
		Revision: w.Plan.Revision, ArgumentsHash: w.Call.ArgumentsHash, ApprovedBy: claims.Approver, PolicyDigest: r.policies.Digest(),
		Result: db.WriteOpen, Sends: 1, RecordedAt: now, SentAt: now, DecisiveAt: s.decisive,
	}
	var ended agent.Reason
	var after writing
	err := r.store.InTx(ctx, w.Run.Scope, func(tx Tx) error {
		state, err := tx.HoldWrite(ctx, w.Run.ID, w.Call.ID)
		if err != nil {
			return err
		}
		after = w.with(state)
		if ended = after.fence(generation); ended != "" {
			return nil
		}
		p := state.Plan
		if state.Intent != nil || state.Call.Recorded() || p.Status != db.PlanPending || p.Revision != w.Plan.Revision {
			// Another worker was faster; reading again shows how far it came.
			return fmt.Errorf("%w: the plan was decided by another worker", errRetry)
		}
		p.Status, p.DecidedBy, p.TokenID, p.DecidedAt = db.PlanApproved, claims.Approver, claims.TokenID, now
		tx.ClosePlan(*p)
		tx.RecordIntent(intent)
		tx.StartToolCall(w.Run.ID, w.Call.ID)
		after.Intent = &intent
		after.Run.Deadline, after.Run.Status = state.Run.DeadlineAt(now), agent.StatusRunning
		return tx.MoveRun(state.Run, db.Move{To: agent.StatusRunning, At: now})
	})
	if errors.Is(err, db.ErrConflict) {
		err = fmt.Errorf("%w: %w", errRetry, err)
	}
	return after, ended, err
}

// IdempotencyKey names one effect: the SHA-256 in hex of tenant, run ID, call ID,
// tool and tool version, separated by line feeds, which none of them contains
// (WRITE-3).
func IdempotencyKey(tenant, runID, callID, toolName, toolVersion string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{tenant, runID, callID, toolName, toolVersion}, "\n")))
	return hex.EncodeToString(sum[:])
}

// perform has the effect and records what is known of it. From here on nothing
// but the end of this process stops the write before its boundary: not the
// cancellation of the activity, and not the run's deadline (RUN-13).
func (r *Runs) perform(ctx context.Context, w writing, s sending) (agent.WriteOutcome, error) {
	work, stop := r.boundary(ctx)
	defer stop()
	if s.over() {
		// This worker stood still. Another one may have looked already.
		return w.state(agent.WriteUnknown), nil
	}
	timed, cancel := context.WithDeadline(work, s.until)
	defer cancel()
	result, err := r.tools.Commit(timed, w.call())
	var shown *tool.Error
	switch {
	case err == nil:
		return r.conclude(work, w, conclusion{result: result, by: db.ByCommit})
	case errors.Is(err, tool.ErrOutcomeUnknown):
		r.logUnknown("outcome of a write is unknown", w, err)
		return w.state(agent.WriteUnknown), nil
	case errors.Is(err, tool.ErrStale):
		return r.notPerformed(work, w, s.open, s.decisive, conclusion{by: db.ByCommit, err: &tool.Error{
			Code: agent.ToolConflict, Message: "the resource changed after the confirmation; nothing was done",
		}})
	case errors.As(err, &shown):
		r.logToolError(w.Run.ID, w.Call.ID, shown)
		return r.notPerformed(work, w, s.open, s.decisive, conclusion{by: db.ByCommit, err: shown})
	case errors.Is(err, tool.ErrAuthorizationUnavailable):
		return r.notPerformed(work, w, s.open, s.decisive, conclusion{by: db.ByCommit, end: agent.ReasonAuthorizationUnavailable, err: &tool.Error{
			Code: agent.ToolForbidden, Message: "rights could not be determined; nothing was done",
		}})
	case timed.Err() != nil:
		// The worker stops or stood still, and the tool had not begun.
		return w.state(agent.WriteUnknown), nil
	default:
		// Recorded arguments that changed: the tool was not called.
		return r.notPerformed(work, w, s.open, s.decisive, conclusion{by: db.ByCommit, end: agent.ReasonInternal, err: &tool.Error{
			Code: agent.ToolFailed, Message: "the recorded call is damaged; nothing was done",
		}})
	}
}

// notPerformed concludes that the effect did not happen and will not. While an
// earlier try may still arrive, until open, that would be a guess: the outcome
// stays unknown, and is asked for again when no try on record can arrive, at
// next. Sooner, this try would stand in the way of the same answer to another
// one, and that one in the way of its successor.
func (r *Runs) notPerformed(ctx context.Context, w writing, open, next time.Time, c conclusion) (agent.WriteOutcome, error) {
	if now := r.now(); open.After(now) {
		out := w.state(agent.WriteUnknown)
		out.RetryAfter = max(open.Sub(now), next.Sub(now))
		return out, nil
	}
	return r.conclude(ctx, w, c)
}

// logUnknown leaves a trace of a write whose outcome nobody knows yet.
func (r *Runs) logUnknown(what string, w writing, err error) {
	log := r.log.With(zap.String("run_id", w.Run.ID), zap.String("call_id", w.Call.ID), zap.String("tool", w.Call.Tool))
	if crashed, trace := traceOf(err); crashed {
		log.Error(what, trace...)
	} else {
		log.Warn(what, trace...)
	}
}

// RefuseApprovals puts on record the approvals that came when the run did not
// wait for one: duplicates, late ones, and forgeries.
func (r *Runs) RefuseApprovals(ctx context.Context, in agent.RefuseApprovalsInput) (err error) {
	defer r.contain(agent.ActivityRefuseApprovals, in.Run, &err)
	return r.fault(ctx, agent.ActivityRefuseApprovals, in.Run, r.refuseApprovals(ctx, in))
}

func (r *Runs) refuseApprovals(ctx context.Context, in agent.RefuseApprovalsInput) error {
	refusals := make([]db.Refusal, 0, len(in.Tokens))
	for _, token := range in.Tokens {
		claims, code := r.verify(token)
		refusal := db.Refusal{Code: code}
		if code == "" || code == agent.RefusedExpired {
			refusal.TokenID, refusal.Approver, refusal.CallID = claims.TokenID, claims.Approver, claims.CallID
		}
		if code == "" {
			if refusal.Code, code = agent.RefusedWrongRun, agent.RefusedWrongRun; claims.Tenant == in.Run.Scope.Tenant && claims.RunID == in.Run.RunID {
				state, err := r.store.Write(ctx, in.Run.Scope, in.Run.RunID, claims.CallID)
				switch {
				case errors.Is(err, db.ErrNotFound):
					refusal.Code = agent.RefusedWrongCall
				case err != nil:
					return err
				case state.Plan != nil && state.Plan.Status != db.PlanPending:
					refusal.Code = agent.RefusedUsed
				default:
					refusal.Code = agent.RefusedNotWaiting
				}
			}
		}
		r.log.Warn("approval refused", zap.String("run_id", in.Run.RunID), zap.String("code", string(refusal.Code)),
			zap.String("token_id", refusal.TokenID), zap.String("approver", refusal.Approver))
		refusals = append(refusals, refusal)
	}
	return r.store.InTx(ctx, in.Run.Scope, func(tx Tx) error {
		for _, refusal := range refusals {
			tx.RefuseApproval(in.Run.RunID, refusal)
		}
		return nil
	})
}
