package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
)

// proposedMemory is a memory that waits for a person, with what it would end.
type proposedMemory struct {
	approval.Memory
	ends []endedMemory
}

// withEnds reads what each would end: for the user, or for a reviewer as an
// operator of the tenant.
func (a *app) withEnds(ctx context.Context, m memories, d memoryDecision, list ...approval.Memory) ([]proposedMemory, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*callTimeout)
	defer cancel()
	reader := d.user
	if d.review {
		reader = ""
	}
	found := make([]proposedMemory, len(list))
	for i, proposed := range list {
		ends, err := readEnded(ctx, m, d.tenant, reader, proposed.Ends)
		if err != nil {
			return nil, a.explainMemory(err, "")
		}
		found[i] = proposedMemory{proposed, ends}
	}
	return found, nil
}

// printWaiting shows exactly what is decided about, the words of others first.
func (a *app) printWaiting(m proposedMemory) {
	fmt.Fprintf(a.out, "%s  %s  %s  %s  revision %d\n", a.paint(bold, m.ID), oneLine(m.Key, 64), m.Kind, a.paint(bold, stateWords(m.State)), m.Revision)
	a.words("What was said", m.Quote)
	switch {
	case m.Retracts && len(m.ends) == 0:
		a.heading("What would be taken back")
		fmt.Fprintln(a.out, "  nothing that is in force")
	case m.Retracts:
		a.heading("What would be taken back")
		a.printEnded("  ", m.ends)
	default:
		a.heading("What would be remembered")
		a.quote("  ", indented(m.Value))
		if len(m.ends) > 0 {
			a.heading("What that would end")
			a.printEnded("  ", m.ends)
		}
	}
	if m.Purpose != "" {
		a.heading("For this purpose")
		a.quote("  ", m.Purpose)
	}
	fmt.Fprintln(a.out)
	rows := [][]cell{{{"seen in", dim}, {memoryPlace(m.Scope, m.Room.Scope.Environment), bold}}}
	if !m.Retracts {
		rows = append(rows, []cell{{"kept until", dim}, {keptUntil(m.ExpiresAt), bold}})
	}
	if when := holds(m.ValidFrom, m.ValidUntil); when != "" {
		rows = append(rows, []cell{{"holds", dim}, {text: when}})
	}
	a.table(a.out, append(rows,
		[]cell{{"from", dim}, {text: fmt.Sprintf("user %s, %s %s, proposed by %s", m.User, m.SourceType, oneLine(m.SourceID, 64), oneLine(m.Writer, 128))}},
		[]cell{{"basis", dim}, {text: fmt.Sprintf("consent %s  sensitivity %s", oneLine(m.ConsentBasis, 64), oneLine(m.Sensitivity, 64))}},
		[]cell{{"decide before", dim}, {text: clock(m.DecideUntil)}},
		[]cell{{"hash", dim}, {text: m.Hash}}))
	fmt.Fprintln(a.out)
	a.printRules("Why it waits: policy", m.PolicyVersion, "", m.Rules)
}

type waitingMemoriesDocument struct {
	Memories  []waitingMemoryDocument `json:"memories"`
	Forbidden int                     `json:"forbidden"`
	Damaged   []string                `json:"damaged"`
	More      bool                    `json:"more"`
}

// waitingMemoryDocument is what a person decides about, content included.
type waitingMemoryDocument struct {
	ID            string                 `json:"id"`
	Revision      int                    `json:"revision"`
	State         agent.MemoryState      `json:"state"`
	Hash          string                 `json:"hash"`
	Tenant        string                 `json:"tenant"`
	User          string                 `json:"user"`
	Kind          agent.MemoryKind       `json:"kind"`
	Key           string                 `json:"key"`
	Value         json.RawMessage        `json:"value,omitempty"`
	Retracts      bool                   `json:"retracts,omitempty"`
	Purpose       string                 `json:"purpose"`
	Scope         memoryScopeDocument    `json:"scope"`
	ExpiresAt     *time.Time             `json:"expires_at,omitempty"`
	ValidFrom     *time.Time             `json:"valid_from,omitempty"`
	ValidUntil    *time.Time             `json:"valid_until,omitempty"`
	ConsentBasis  string                 `json:"consent_basis"`
	Sensitivity   string                 `json:"sensitivity"`
	Step          string                 `json:"step"`
	Ends          []endedDocument        `json:"ends"`
	SourceType    agent.MemorySourceType `json:"source_type"`
	SourceID      string                 `json:"source_id"`
	Writer        string                 `json:"writer_identity"`
	RunID         string                 `json:"run_id,omitempty"`
	MessageID     string                 `json:"message_id,omitempty"`
	Quote         string                 `json:"quote,omitempty"`
	Rules         []agent.MemoryRule     `json:"rules"`
	PolicyVersion string                 `json:"policy_version"`
	ProposedAt    time.Time              `json:"proposed_at"`
	DecideUntil   time.Time              `json:"decide_until"`
}

func toWaitingMemory(tenant string, m proposedMemory) waitingMemoryDocument {
	return waitingMemoryDocument{
		ID: m.ID, Revision: m.Revision, State: m.State, Hash: m.Hash, Tenant: tenant, User: m.User, Kind: m.Kind, Key: m.Key, Value: m.Value,
		Retracts: m.Retracts, Purpose: m.Purpose, Scope: memoryScopeDocument{m.Scope.Kind, m.Scope.ID, m.Room.Scope.Environment},
		ExpiresAt: m.ExpiresAt, ValidFrom: m.ValidFrom, ValidUntil: m.ValidUntil, ConsentBasis: m.ConsentBasis, Sensitivity: m.Sensitivity,
		Step: m.Step, Ends: toEndedDocuments(m.ends), SourceType: m.SourceType, SourceID: m.SourceID, Writer: m.Writer,
		RunID: m.RunID, MessageID: m.MessageID, Quote: m.Quote, Rules: append([]agent.MemoryRule{}, m.Rules...), PolicyVersion: m.PolicyVersion,
		ProposedAt: m.ProposedAt, DecideUntil: m.DecideUntil,
	}
}
