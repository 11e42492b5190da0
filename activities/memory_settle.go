package activities

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
)

// SettleMemory carries out a person's decision about a candidate that waits, or
// the end of the time to decide (LTM-3). A token that is not believed is put on
// record and the candidate waits on. One that agrees leads to another judgment: if
// anything is not as it was shown, the candidate waits anew. Done again it returns
// what was decided.
func (r *Runs) SettleMemory(ctx context.Context, in agent.SettleMemoryInput) (out agent.SettledMemory, err error) {
	defer r.contain(agent.ActivitySettleMemory, agent.RunRef{}, &err)
	if err := (agent.MemoryWriteInput{ID: in.ID, Room: in.Room}).Validate(); err != nil {
		return out, refuse(agent.ErrorInvalidRequest, err.Error())
	}
	out, err = r.settleMemory(ctx, in)
	return out, r.memoryFault(ctx, agent.ActivitySettleMemory, in.ID, err)
}

func (r *Runs) settleMemory(ctx context.Context, in agent.SettleMemoryInput) (agent.SettledMemory, error) {
	c, err := r.candidate(ctx, in.Room, in.ID)
	if err != nil {
		return agent.SettledMemory{}, err
	}
	work, done := r.bound(ctx, time.Now().Add(judgeTimeout), 0)
	defer done()
	if in.Token == "" {
		verdict, err := r.expireMemory(work, c)
		return agent.SettledMemory{MemoryVerdict: verdict}, err
	}
	claims, code := r.verify(in.Token)
	signed := code == "" || code == agent.RefusedExpired
	if signed && claims.TokenID == c.TokenID && c.TokenID != "" {
		// It was carried out before, and nobody learned of it.
		return agent.SettledMemory{MemoryVerdict: c.Verdict()}, nil
	}
	stands := func(held db.MemoryCandidate) agent.RefusalCode { return r.standsFor(held, claims, code) }
	if code := stands(c); code != "" {
		return r.refuseDecision(work, c, claims, signed, code)
	}
	if claims.Decision == approval.Decline {
		verdict, code, err := r.declineMemory(work, c, claims, stands)
		if err == nil && code != "" {
			return r.refuseDecision(work, c, claims, signed, code)
		}
		return agent.SettledMemory{MemoryVerdict: verdict}, err
	}
	agreed := &agreement{person: claims.Approver, token: claims.TokenID, validation: agent.MemoryReviewed, stands: stands}
	if c.State == agent.MemoryWaitingConfirmation {
		agreed.validation = agent.MemoryUserConfirmed
	}
	verdict, code, err := r.decideMemory(work, c, agreed)
	if err == nil && code != "" {
		return r.refuseDecision(work, c, claims, signed, code)
	}
	return agent.SettledMemory{MemoryVerdict: verdict}, err
}

// standsFor compares everything that a token is bound to with the candidate as it
// is held, and asks whether its person may decide. verified is what its signature
// and its own time came to.
func (r *Runs) standsFor(c db.MemoryCandidate, claims approval.Claims, verified agent.RefusalCode) agent.RefusalCode {
	if verified != "" && verified != agent.RefusedExpired {
		return verified
	}
	waiting := c.State == agent.MemoryWaitingReview || c.State == agent.MemoryWaitingConfirmation
	switch {
	case claims.Tenant != c.Room.Scope.Tenant || claims.RunID != c.ID:
		return agent.RefusedWrongRun
	case claims.CallID != approval.MemoryCallID:
		return agent.RefusedWrongCall
	case c.State.Final():
		return agent.RefusedUsed
	case !waiting:
		return agent.RefusedNotWaiting
	case claims != approval.MemoryClaims(c, claims):
		return agent.RefusedWrongPlan
	case verified != "":
		return verified
	case c.ExpiresAt == nil || !r.now().Before(*c.ExpiresAt):
		return agent.RefusedExpired
	}
	if hash, err := approval.MemoryHash(c); err != nil || hash != c.PlanHash {
		// What is on record is not what was shown.
		return agent.RefusedWrongPlan
	}
	if err := r.mayDecide(c, claims.Approver); err != nil {
		return agent.RefusedNotAuthorized
	}
	return ""
}

// mayDecide returns nil if the person may decide about a waiting candidate: about
// a confirmation the user alone, about a review who the policies allow it, and
// never the user.
func (r *Runs) mayDecide(c db.MemoryCandidate, person string) error {
	if c.State == agent.MemoryWaitingConfirmation {
		if person != c.Room.Scope.User {
			return authz.ErrForbidden
		}
		return nil
	}
	err := approval.MayReview(r.policies, c, person)
	if err != nil && !errors.Is(err, authz.ErrForbidden) {
		r.log.Error("policies could not be evaluated", zap.String("memory_id", c.ID), zap.String("cause", err.Error()))
	}
	return err
}

// refuseDecision puts a decision that was not believed on record; the candidate
// waits on.
func (r *Runs) refuseDecision(ctx context.Context, c db.MemoryCandidate, claims approval.Claims, signed bool, code agent.RefusalCode) (agent.SettledMemory, error) {
	actor := "unknown"
	if signed {
		actor = claims.Approver
	}
	out := agent.SettledMemory{MemoryVerdict: c.Verdict(), Refused: code}
	err := r.memory.InMemory(ctx, c.Room, c.Scope, func(tx MemoryTx) error {
		held, err := tx.HoldCandidate(ctx, c.ID)
		if err != nil {
			return err
		}
		out.MemoryVerdict = held.Verdict()
		tx.Audit(auditOf(held, actor, auditRefuse, string(code), r.moment()))
		return nil
	})
	if err != nil {
		return agent.SettledMemory{}, err
	}
	r.log.Warn("decision about a memory refused", zap.String("memory_id", c.ID), zap.String("code", string(code)), zap.String("approver", actor))
	return out, nil
}

// declineMemory carries out that a person does not want the memory.
func (r *Runs) declineMemory(
	ctx context.Context, c db.MemoryCandidate, claims approval.Claims, stands func(db.MemoryCandidate) agent.RefusalCode,
) (verdict agent.MemoryVerdict, code agent.RefusalCode, err error) {
	err = r.memory.InMemory(ctx, c.Room, c.Scope, func(tx MemoryTx) error {
		held, err := tx.HoldCandidate(ctx, c.ID)
		if err != nil {
			return err
		}
		if code = stands(held); code != "" {
			return nil
		}
		held.State, held.Content, held.UpdatedAt = agent.MemoryDeclined, nil, r.moment()
		held.DecidedBy, held.TokenID = claims.Approver, claims.TokenID
		tx.UpdateCandidate(held)
		tx.Audit(auditOf(held, claims.Approver, auditDecline, "", held.UpdatedAt))
		verdict = held.Verdict()
		return nil
	})
	return verdict, code, err
}

// expireMemory ends the wait for a person, if its time is over.
func (r *Runs) expireMemory(ctx context.Context, c db.MemoryCandidate) (verdict agent.MemoryVerdict, err error) {
	err = r.memory.InMemory(ctx, c.Room, c.Scope, func(tx MemoryTx) error {
		held, err := tx.HoldCandidate(ctx, c.ID)
		if err != nil {
			return err
		}
		waiting := held.State == agent.MemoryWaitingReview || held.State == agent.MemoryWaitingConfirmation
		if now := r.moment(); waiting && held.ExpiresAt != nil && !now.Before(*held.ExpiresAt) {
			held.State, held.Content, held.UpdatedAt = agent.MemoryExpired, nil, now
			tx.UpdateCandidate(held)
			tx.Audit(auditOf(held, auditProgram, auditExpire, "", now))
		}
		verdict = held.Verdict()
		return nil
	})
	return verdict, err
}
