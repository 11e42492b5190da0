package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
)

// becameOf says how a proposal stands, for whoever asks about it by its ID.
func becameOf(c db.MemoryCandidate) string {
	tenant, who, when := c.Room.Scope.Tenant, "the policy", clock(c.UpdatedAt)
	if c.DecidedBy != "" {
		who = oneLine(c.DecidedBy, 128)
	}
	switch c.State {
	case agent.MemoryStored:
		if retracted(c) {
			return fmt.Sprintf("it took back memory %s, version %d, by %s at %s; see starter memory show %s --tenant %s", c.Record, c.RecordVersion, who, when, c.Record, tenant)
		}
		return fmt.Sprintf("it was stored as memory %s, version %d, by %s at %s; see starter memory show %s --tenant %s", c.Record, c.RecordVersion, who, when, c.Record, tenant)
	case agent.MemoryMerged:
		return fmt.Sprintf("the same was remembered already, as memory %s, version %d (%s); see starter memory show %s --tenant %s", c.Record, c.RecordVersion, when, c.Record, tenant)
	case agent.MemoryRejected:
		return fmt.Sprintf("the policy refused it at %s: %s", when, lastRule(c.Rules))
	case agent.MemoryDeclined:
		return fmt.Sprintf("it was declined by %s at %s, and is not remembered", who, when)
	case agent.MemoryExpired:
		return fmt.Sprintf("nobody decided in time: it expired at %s, and is not remembered", when)
	case agent.MemoryWaitingReview, agent.MemoryWaitingConfirmation:
		return fmt.Sprintf("it %s until %s: %s", stateWords(c.State), clock(moment(c.ExpiresAt)), howToDecide(c))
	case agent.MemoryProposed, agent.MemoryNotSaved:
	}
	return "no worker has judged it yet; starter memory reconcile takes it up"
}

// retracted says that a stored proposal took something back: its rules stay when
// its content goes.
func retracted(c db.MemoryCandidate) bool {
	return slices.ContainsFunc(c.Rules, func(r agent.MemoryRule) bool { return r.ID == "retract" })
}

// notWaiting says why a proposal waits for no decision of the person; cause is what
// is said if that is not for the person to know.
func (a *app) notWaiting(ctx context.Context, o office, d memoryDecision, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	c, err := o.MemoryStanding(ctx, d.approver(), d.id)
	if err != nil {
		return a.explainMemoryDecision(cause, d)
	}
	code := exitUsage
	if c.State.Final() {
		code = exitRunFailed
	}
	return &exit{code, fmt.Sprintf("proposal %s of tenant %s waits for no decision of user %s: %s", d.id, d.tenant, d.user, becameOf(c))}
}

// missing explains that there is no memory of this ID: it may be a proposal's, of
// which the user it comes from, and an operator, may know.
func (r remembered) missing(ctx context.Context, m memories, id string, err error) error {
	if !errors.Is(err, db.ErrNotFound) {
		return err
	}
	c, err := m.CandidateOfTenant(ctx, r.tenant, id)
	switch {
	case errors.Is(err, db.ErrNotFound), err == nil && r.user != "" && r.user != c.Room.Scope.User:
		return usagef("%s", r.noMemory(id))
	case err != nil:
		return err
	}
	return usagef("%s is the ID of a proposal and not of a memory: %s", id, becameOf(c))
}

// whatToDoAboutMemory explains to the one whose decision was not believed the last
// refusal of a line such as "decisions refused: 2, the last one because of expired".
func whatToDoAboutMemory(line string) string {
	_, code, _ := strings.Cut(line, "because of ")
	switch code := agent.RefusalCode(code); code {
	case agent.RefusedWrongRun, agent.RefusedWrongCall, agent.RefusedWrongPlan:
		return "what waits is not what you saw any more; look at it and decide again"
	case agent.RefusedUsed:
		return "it is decided already"
	case agent.RefusedNotAuthorized:
		return fmt.Sprintf("the worker's policies do not let you decide; ask one who may, or have the action review permitted to you, and give starter and worker the same %s", config.Variable("policies"))
	case agent.RefusedNotWaiting:
		return "it waits for no decision"
	case agent.RefusedMalformed, agent.RefusedSignature, agent.RefusedExpired:
		return whatToDo(code)
	}
	return "see the worker's log"
}
