package db

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// The columns of memory with content, with the key that names a row of it.
var (
	recordValue      = column{"memory_record", "value"}      // id, version
	recordEvidence   = column{"memory_record", "evidence"}   // id, version
	candidateContent = column{"memory_candidate", "content"} // id
)

// toMemoryRecord opens a record under the keys of its subject.
func toMemoryRecord(r ring, row dbsqlc.MemoryRecord) (MemoryRecord, error) {
	m, err := toTombstone(row)
	if err != nil {
		return MemoryRecord{}, err
	}
	if m.Value, err = r.open(recordValue, row.Value, row.ID, number(row.Version)); err != nil {
		return MemoryRecord{}, err
	}
	evidence, err := r.open(recordEvidence, row.Evidence, row.ID, number(row.Version))
	if err != nil {
		return MemoryRecord{}, err
	}
	if evidence != nil {
		if err := json.Unmarshal(evidence, &m.Evidence); err != nil {
			return MemoryRecord{}, fmt.Errorf("stored evidence of memory %s, version %d is damaged", row.ID, row.Version)
		}
	}
	return m, nil
}

// toTombstone is toMemoryRecord without content.
func toTombstone(row dbsqlc.MemoryRecord) (MemoryRecord, error) {
	rules, err := toMemoryRules(row.Rules)
	if err != nil {
		return MemoryRecord{}, fmt.Errorf("stored rules of memory %s, version %d are damaged", row.ID, row.Version)
	}
	return MemoryRecord{
		ID: row.ID, Version: int(row.Version), Scope: agent.MemoryScope{Kind: agent.MemoryScopeKind(row.ScopeKind), ID: row.ScopeID},
		Subject: row.Subject, User: row.UserID, Environment: row.Environment, Agent: row.Agent, Kind: agent.MemoryKind(row.Kind), Key: row.Key,
		IdentityHash: row.IdentityHash, Status: MemoryStatus(row.Status), ValueHash: row.ValueHash,
		SourceType: agent.MemorySourceType(row.SourceType), SourceID: row.SourceID, Writer: row.Writer, RunID: row.RunID,
		Conversation: row.ConversationID, CandidateID: row.CandidateID, Confidence: row.Confidence,
		Validation: agent.MemoryValidation(row.Validation), ConsentBasis: row.ConsentBasis, Sensitivity: row.Sensitivity,
		ValidFrom: utc(row.ValidFrom), ValidUntil: utc(row.ValidUntil), ExpiresAt: utc(row.ExpiresAt), WrittenAt: row.WrittenAt.UTC(),
		Repeats: int(row.Repeats), RepeatedAt: utc(row.RepeatedAt), Rules: rules, PolicyVersion: row.PolicyVersion, PolicyDigest: row.PolicyDigest,
		DecidedBy: row.DecidedBy, EndedAt: utc(row.EndedAt), EndedBy: row.EndedBy,
	}, nil
}

// readableRecord is toMemoryRecord that leaves out content whose keys are gone,
// or with lenient content that was damaged as well.
func readableRecord(all rings, row dbsqlc.MemoryRecord, lenient bool) (MemoryRecord, error) {
	m, err := toMemoryRecord(all[row.Subject], row)
	if keysGone(all[row.Subject], err) || (lenient && unreadable(err)) {
		return toTombstone(row)
	}
	return m, err
}

// toMemoryCandidate opens a candidate under the keys of its subject.
func toMemoryCandidate(r ring, row dbsqlc.MemoryCandidate) (MemoryCandidate, error) {
	c, err := toClearedCandidate(row)
	if err != nil || row.Content == nil {
		return c, err
	}
	text, err := r.open(candidateContent, row.Content, row.ID)
	if err != nil {
		return MemoryCandidate{}, err
	}
	c.Content = new(agent.MemoryCandidate)
	if err := json.Unmarshal(text, c.Content); err != nil {
		return MemoryCandidate{}, fmt.Errorf("stored candidate %s is damaged", row.ID)
	}
	return c, nil
}

// toClearedCandidate is toMemoryCandidate without content.
func toClearedCandidate(row dbsqlc.MemoryCandidate) (MemoryCandidate, error) {
	rules, err := toMemoryRules(row.Rules)
	if err != nil {
		return MemoryCandidate{}, fmt.Errorf("stored rules of candidate %s are damaged", row.ID)
	}
	// The room is environment, kind and ID, and no identifier has a slash.
	parts := strings.SplitN(row.Room, "/", 3)
	if len(parts) != 3 {
		return MemoryCandidate{}, fmt.Errorf("stored room of candidate %s is damaged", row.ID)
	}
	return MemoryCandidate{
		ID: row.ID, RunID: row.RunID, Scope: agent.MemoryScope{Kind: agent.MemoryScopeKind(parts[1]), ID: parts[2]},
		Room: agent.MemoryRoom{
			Scope:        agent.Scope{Tenant: row.Tenant, User: row.UserID, Environment: row.Environment},
			Conversation: row.ConversationID, Group: row.GroupID, Project: row.ProjectID, Agent: row.Agent,
		},
		Kind: agent.MemoryKind(row.Kind), Key: row.Key, SourceType: agent.MemorySourceType(row.SourceType), SourceID: row.SourceID, Writer: row.Writer,
		ValueHash: row.ValueHash, State: agent.MemoryState(row.State), Rules: rules, PolicyVersion: row.PolicyVersion, PolicyDigest: row.PolicyDigest,
		Revision: int(row.Revision), Nonce: row.Nonce, PlanHash: row.PlanHash, ExpiresAt: utc(row.ExpiresAt), Record: present(row.RecordID),
		RecordVersion: int(present(row.RecordVersion)), DecidedBy: row.DecidedBy, TokenID: row.TokenID, Tries: int(row.Tries),
		CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(),
	}, nil
}

// readableCandidate is readableRecord for a candidate.
func readableCandidate(all rings, row dbsqlc.MemoryCandidate) (MemoryCandidate, error) {
	c, err := toMemoryCandidate(all[row.Subject], row)
	if unreadable(err) {
		return toClearedCandidate(row)
	}
	return c, err
}

// keysGone reports whether content cannot be opened because its subject has no
// keys any more.
func keysGone(r ring, err error) bool { return err != nil && r.err != nil && unreadable(r.err) }

func toMemoryRules(stored []byte) (rules []agent.MemoryRule, err error) {
	err = json.Unmarshal(stored, &rules)
	if len(rules) == 0 {
		rules = nil
	}
	return rules, err
}

func memoryRules(rules []agent.MemoryRule) []byte {
	if len(rules) == 0 {
		return []byte("[]")
	}
	text, err := json.Marshal(rules)
	if err != nil {
		panic("db: rules of memory: " + err.Error()) // They are strings.
	}
	return text
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	at := t.UTC()
	return &at
}
