package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// refusedStates are those of proposals that are not remembered.
var refusedStates = []agent.MemoryState{agent.MemoryRejected, agent.MemoryDeclined, agent.MemoryExpired}

// refusedDocument is a proposal that is not remembered. Its content was not kept.
type refusedDocument struct {
	ID          string            `json:"id"`
	State       agent.MemoryState `json:"state"`
	At          time.Time         `json:"at"`
	Kind        agent.MemoryKind  `json:"kind"`
	Key         string            `json:"key,omitempty"`
	Environment string            `json:"environment"`
	RunID       string            `json:"run_id,omitempty"`
	// Rule is the one that refused it, Reason what it says; DecidedBy is who
	// declined it.
	Rule      string `json:"rule,omitempty"`
	Reason    string `json:"reason,omitempty"`
	DecidedBy string `json:"decided_by,omitempty"`
}

type refusedListDocument struct {
	Refused []refusedDocument `json:"refused"`
}

func toRefusedDocument(c db.MemoryCandidate) refusedDocument {
	d := refusedDocument{
		ID: c.ID, State: c.State, At: c.UpdatedAt, Kind: c.Kind, Key: c.Key, Environment: c.Room.Scope.Environment, RunID: c.RunID, DecidedBy: c.DecidedBy,
	}
	if n := len(c.Rules); c.State == agent.MemoryRejected && n > 0 {
		d.Rule, d.Reason = c.Rules[n-1].ID, c.Rules[n-1].Text
	}
	return d
}

// why says in words why it is not remembered.
func (d refusedDocument) why() string {
	switch {
	case d.Rule != "":
		return fmt.Sprintf("%s (rule %s)", d.Reason, d.Rule)
	case d.State == agent.MemoryDeclined:
		return "declined" + by(d.DecidedBy)
	case d.State == agent.MemoryExpired:
		return "nobody decided in time"
	}
	return "no rule admits it"
}

// listRefused shows what was proposed and is not remembered, the newest first.
func (a *app) listRefused(ctx context.Context, r remembered, filter db.MemoryFilter) error {
	var found []db.MemoryCandidate
	err := a.withMemories(ctx, "there is no such user", func(ctx context.Context, m memories) error {
		for _, state := range refusedStates {
			list, err := m.MemoryCandidates(ctx, r.tenant, r.user, state, maxProposals)
			if err != nil {
				return err
			}
			if len(list) == maxProposals {
				a.notice("There may be more that are %s than the first %d.", state, maxProposals)
			}
			found = append(found, list...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(c db.MemoryCandidate) bool { return !fits(c, filter) })
	slices.SortStableFunc(found, func(a, b db.MemoryCandidate) int { return b.UpdatedAt.Compare(a.UpdatedAt) })
	documents := make([]refusedDocument, len(found))
	for i, c := range found {
		documents[i] = toRefusedDocument(c)
	}
	if a.json {
		return printJSON(a.out, refusedListDocument{documents}, "  ")
	}
	if len(documents) == 0 {
		a.notice("No proposal%s of user %s in tenant %s was refused, declined or left undecided.", thatFits(filter), r.user, r.tenant)
		return nil
	}
	rows := [][]cell{{{"PROPOSAL", dim}, {"STATE", dim}, {"WHEN", dim}, {"KEY", dim}, {"WHY", dim}}}
	for _, d := range documents {
		rows = append(rows, []cell{
			{text: d.ID}, {string(d.State), memoryStateStyle(d.State)}, {text: clock(d.At)}, {text: oneLine(cmp.Or(d.Key, "(unknown)"), 64)}, {text: oneLine(d.why(), 200)},
		})
	}
	a.table(a.out, rows)
	return nil
}
