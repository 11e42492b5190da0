package db

import (
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/agent"
)

// MemoryStatus says whether a version of a record is in force.
type MemoryStatus string

// The closed set of statuses. Only an active version is recalled.
const (
	MemoryActive MemoryStatus = "active"
	// MemorySuperseded: a newer version took its place.
	MemorySuperseded MemoryStatus = "superseded"
	// MemoryRetracted: whoever said so took it back.
	MemoryRetracted MemoryStatus = "retracted"
	// MemoryOutlived: its time was over.
	MemoryOutlived MemoryStatus = "expired"
	// MemoryDeleted is a tombstone without content.
	MemoryDeleted MemoryStatus = "deleted"
)

// MemoryRecord is one version of one record (LTM-2). Value and Evidence are
// content, sealed under the keys of Subject.
type MemoryRecord struct {
	ID      string
	Version int
	Scope   agent.MemoryScope
	// Subject is whose keys seal it: see agent.MemoryScope.Subject.
	Subject string
	// User is the person whom it comes from, Environment where it holds.
	User        string
	Environment string
	// Agent is the role in which it was written.
	Agent string
	Kind  agent.MemoryKind
	Key   string
	// Identity tells records of one key apart, canonical JSON or empty. It is
	// content and stored as a keyed hash only: what is read has IdentityHash.
	Identity     string
	IdentityHash string
	Status       MemoryStatus
	// Value is canonical JSON, nil for a tombstone.
	Value    json.RawMessage
	Evidence MemoryEvidence
	// ValueHash is the keyed hash of Value, set by the store.
	ValueHash     string
	SourceType    agent.MemorySourceType
	SourceID      string
	Writer        string
	RunID         string
	Conversation  string
	CandidateID   string
	Confidence    float64
	Validation    agent.MemoryValidation
	ConsentBasis  string
	Sensitivity   string
	ValidFrom     *time.Time
	ValidUntil    *time.Time
	ExpiresAt     *time.Time
	WrittenAt     time.Time
	Repeats       int
	RepeatedAt    *time.Time
	Rules         []agent.MemoryRule
	PolicyVersion string
	PolicyDigest  string
	// DecidedBy is the reviewer or the user who confirmed it, if anybody did.
	DecidedBy string
	EndedAt   *time.Time
	EndedBy   string
}

// MemoryEvidence is what a record rests on, and what it is kept for.
type MemoryEvidence struct {
	MessageID string `json:"message_id,omitempty"`
	Quote     string `json:"quote,omitempty"`
	Purpose   string `json:"purpose,omitempty"`
}

// MemoryCandidate is a proposed memory on record.
type MemoryCandidate struct {
	ID   string
	Room agent.MemoryRoom
	// RunID is the run that it comes from, if any.
	RunID string
	// Scope is where it is to be seen; never zero.
	Scope agent.MemoryScope
	// Content is nil once it was cleared.
	Content *agent.MemoryCandidate
	// Kind, Key, SourceType, SourceID and Writer stay when the content is cleared;
	// Key is empty if the policy does not know it.
	Kind       agent.MemoryKind
	Key        string
	SourceType agent.MemorySourceType
	SourceID   string
	Writer     string
	// ValueHash is the keyed hash of the normalized value.
	ValueHash     string
	State         agent.MemoryState
	Rules         []agent.MemoryRule
	PolicyVersion string
	PolicyDigest  string
	// Revision, Nonce and PlanHash are what a token for the waiting candidate is
	// bound to, ExpiresAt until when.
	Revision      int
	Nonce         string
	PlanHash      string
	ExpiresAt     *time.Time
	Record        string
	RecordVersion int
	DecidedBy     string
	TokenID       string
	Tries         int
	CreatedAt     time.Time
	UpdatedAt     time.Time
}

// Verdict returns the candidate's state as the workflow is told.
func (c MemoryCandidate) Verdict() agent.MemoryVerdict {
	v := agent.MemoryVerdict{
		ID: c.ID, State: c.State, Record: c.Record, Version: c.RecordVersion, Rules: c.Rules, PolicyVersion: c.PolicyVersion, PolicyDigest: c.PolicyDigest,
	}
	if c.ExpiresAt != nil && !c.State.Final() {
		v.Until = *c.ExpiresAt
	}
	return v
}

// MemoryIndex is what a record in force is found by. Tokens are words in the
// clear, stored as keyed hashes.
type MemoryIndex struct {
	Tokens []string
	// Embedder and Embedding are empty when the embedder did not answer: the
	// record is found by keyword, and reconciliation adds the vector.
	Embedder  MemoryEmbedder
	Embedding []float32
}

// MemoryEmbedder identifies an embedder: another dimension is another embedder.
type MemoryEmbedder struct {
	Name       string
	Dimensions int
}

// EmbedderState says which embedders there are vectors of.
type EmbedderState struct {
	// Serving answers recalls, zero if there is none yet.
	Serving MemoryEmbedder
	// Building is being computed in the background, zero if none is.
	Building MemoryEmbedder
}

// RecallQuery asks for what is remembered in a room.
type RecallQuery struct {
	// Scopes are those that the read policy admits, Kinds likewise. Both are
	// required; a scope that the room does not have is an error.
	Scopes []agent.MemoryScope
	Kinds  []agent.MemoryKind
	// Keys are looked up exactly first.
	Keys []string
	// Tokens are the words of the question.
	Tokens []string
	// Embedder and Embedding are of the question; empty leaves vectors out.
	Embedder  MemoryEmbedder
	Embedding []float32
	// MinSimilarity is the cosine below which a vector is no hit. Zero leaves out
	// what is not nearer than by chance.
	MinSimilarity float64
	// Now is the moment for which records must be in force.
	Now time.Time
	// Limit is how many hits are returned at most.
	Limit int
}

// RecallHit is one recalled record as it stands, best first.
type RecallHit struct {
	Record MemoryRecord
	// Via says how it was found: "exact", "keyword", "vector", joined by "+".
	Via string
	// Score is the fused rank score; it orders hits and means nothing else.
	Score float64
}

// MemoryInfluence is one run that a record was given to.
type MemoryInfluence struct {
	RunID   string
	Record  string
	Version int
	User    string
	Rank    int
	Via     string
	At      time.Time
}

// MemoryAudit is one entry of the audit trail; it has no content.
type MemoryAudit struct {
	ID        int64
	At        time.Time
	Actor     string
	Action    string
	Subject   string
	User      string
	Candidate string
	Record    string
	Version   int
	Detail    string
}

// MemoryTrace answers where a record comes from and what it influenced (LTM-9).
type MemoryTrace struct {
	// Versions are all of the record's, newest first.
	Versions []MemoryRecord
	// Candidates are those that it was made from, or merged with.
	Candidates []MemoryCandidate
	// Source is the message that the newest version with a quote is from, nil if
	// there is none or the caller may not read it.
	Source     *Message
	Influences []MemoryInfluence
	Audit      []MemoryAudit
}

// MemoryFilter selects records of a person. Empty fields select all.
type MemoryFilter struct {
	Environment string
	Kind        agent.MemoryKind
	Key         string
	// Shared selects what belongs to a group or project, which the person must take
	// part in, instead of what belongs to or comes from the person.
	Shared agent.MemoryScope
	// Past selects versions that are not in force as well.
	Past bool
	// Limit is how many are returned. Zero means 100, the most is 1000.
	Limit int
	// After continues behind the record of this ID.
	After string
}

// Retraction is that something was taken back.
type Retraction struct {
	At time.Time
	// ValueHash is the keyed hash of the value that was, see MemoryTx.Hash.
	ValueHash string
}

// Participant is a user of a group or project.
type Participant struct {
	Scope     agent.MemoryScope
	User      string
	AddedBy   string
	AddedAt   time.Time
	RemovedBy string
	RemovedAt *time.Time
}

// Lesson is a run that can be learned from.
type Lesson struct {
	Run              agent.RunRef
	Room             agent.MemoryRoom
	DefinitionDigest string
	// Status is due, done or failed.
	Status string
	// Tries counts those that cost something and brought nothing.
	Tries int
}

// LessonSource is what a run can be learned from: the user's own words, and what
// tools settled. No word of an assistant, memory or tool result is in it.
type LessonSource struct {
	Lesson   Lesson
	Question Message
	// Facts are those that calls of this run settled.
	Facts []SessionEntry
	// Recalled are the records that the run was given.
	Recalled []MemoryRecord
	Limits   Limits
}
