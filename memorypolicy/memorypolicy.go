// Package memorypolicy decides what may be remembered, and who may read it
// (POL-1..4). A policy is data in YAML, versioned; deciding is pure code: no
// clock, no store, no network. Every decision lists the rules that made it.
//
// Writing and reading are two policies in one file, and writing is the stricter.
// What no rule admits is refused, and a detector that fails counts as a hit.
//
// It may import the words of package agent, and small pure libraries. It is
// called by activities, and by programs that show or check policies.
package memorypolicy

import (
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/agent"
)

// Outcome is what is to happen to a candidate.
type Outcome string

// The closed set of outcomes.
const (
	Store   Outcome = "store"
	Review  Outcome = "review"
	Confirm Outcome = "confirm"
	Reject  Outcome = "reject"
)

// WriteMode is how what a policy admits is written.
type WriteMode string

// The closed set of write modes.
const (
	// ImmediateIfTrusted stores what comes from a trusted source, and leaves
	// everything else to a reviewer.
	ImmediateIfTrusted WriteMode = "immediate_if_trusted"
	// BackgroundReview leaves everything to a reviewer.
	BackgroundReview WriteMode = "background_review"
	// BackgroundOnly stores without asking, except for what a model proposes while
	// its run is under way (see ModelWriter): that is left to a reviewer.
	BackgroundOnly WriteMode = "background_only"
	// ConfirmByUser asks the user.
	ConfirmByUser WriteMode = "confirm"
)

// ModelWriter begins the agent.MemoryCandidate.Writer of what a model proposes
// while its run is under way, as in "model:opspilot@4".
const ModelWriter = "model:"

// Candidate is a proposed memory, with all that a decision may depend on.
type Candidate struct {
	agent.MemoryCandidate
	Room agent.MemoryRoom
	// Message is the whole message that the quote is from, empty if there is none.
	// It is not stored.
	Message string
	// Now is the moment of the decision.
	Now time.Time
}

// Decision is what the policy says about a candidate by itself.
type Decision struct {
	Outcome Outcome
	// Rules made the decision, in the order in which they were asked; of a
	// rejection the last one is the reason. They hold no content.
	Rules []agent.MemoryRule
	// SafeMetadata says that kind, source type, source ID and writer hold nothing
	// that may not be put on record with a rejection.
	SafeMetadata bool

	// The rest is set unless the candidate is rejected.

	// Scope is where it is to be seen.
	Scope agent.MemoryScope
	// Value is the normalized value: canonical JSON (RFC 8785), texts in NFKC
	// without invisible characters and with single spaces. A retraction has none.
	Value json.RawMessage
	// Identity tells records of one key apart: canonical JSON of the fields that
	// the registry names, case-folded; empty if there is one record per scope.
	Identity string
	Purpose  string
	// Validation and Confidence come from the source, never from a model.
	Validation   agent.MemoryValidation
	Confidence   float64
	ConsentBasis string
	Sensitivity  string
	// ExpiresAt is when it is forgotten by itself, nil for never.
	ExpiresAt *time.Time
	// DecideWithin is how long a reviewer or the user may take.
	DecideWithin time.Duration
	// Event says that the evidence speaks of one event and not of how things are:
	// it may be put beside what is in force, and replaces nothing.
	Event bool
}

// InForce is what the resolution of a conflict needs to know of a version in
// force under the same key and identity.
type InForce struct {
	ID         string
	Version    int
	Value      json.RawMessage
	SourceType agent.MemorySourceType
	Validation agent.MemoryValidation
	ValidFrom  *time.Time
	ValidUntil *time.Time
	WrittenAt  time.Time
	// ExpiresAt is when it is forgotten, and Promised says that a person was told.
	ExpiresAt *time.Time
	Promised  bool
}

// Step is what a candidate does to what is in force.
type Step string

// The closed set of steps.
const (
	// Insert adds a record beside those whose time does not overlap.
	Insert Step = "insert"
	// Merge changes nothing: the same is in force. It is noted as a repetition and
	// raises no confidence.
	Merge Step = "merge"
	// Replace adds a new version that takes the place of the ones in force that
	// overlap.
	Replace Step = "replace"
	// Retract ends the ones in force and adds nothing.
	Retract Step = "retract"
)

// Resolution is a Decision against what is in force (LTM-4).
type Resolution struct {
	// Outcome may be stricter than the decision's: Confirm or Review where an
	// unreliable source would replace a more reliable one, Reject where an event
	// would replace a fact.
	Outcome Outcome
	// Rules are those of the resolution alone; the decision has its own.
	Rules []agent.MemoryRule
	// Step is empty if the outcome is Reject.
	Step Step
	// Of names the versions that Merge, Replace and Retract act on.
	Of []InForce
}

// ReaderRole is who reads on behalf of a run (POL-2).
type ReaderRole string

// The closed set of reader roles.
const (
	// Personalization shapes the tone and defaults of an answer.
	Personalization ReaderRole = "personalization"
	// Planner decides on the next step.
	Planner ReaderRole = "planner"
	// PolicyEngine decides on rights and side effects.
	PolicyEngine ReaderRole = "policy_engine"
)

// Reader is who wants to read, and where.
type Reader struct {
	Roles []ReaderRole
	Room  agent.MemoryRoom
	Now   time.Time
}

// Record is what a read is decided on.
type Record struct {
	Scope       agent.MemoryScope
	Environment string
	Kind        agent.MemoryKind
	Key         string
	SourceType  agent.MemorySourceType
	Validation  agent.MemoryValidation
	Confidence  float64
	Sensitivity string
	ValidFrom   *time.Time
	ValidUntil  *time.Time
	ExpiresAt   *time.Time
	// Active says that the version is in force.
	Active bool
}

// ReadDecision is what the read policy says about one record.
type ReadDecision struct {
	Allowed bool
	Rules   []agent.MemoryRule
}

// KeySpec is one key of the registry, as the extractor and people are told of it.
type KeySpec struct {
	Name string
	Kind agent.MemoryKind
	// Description says in a sentence what the key holds and when to use it.
	Description string
	Purpose     string
	// Schema is the JSON Schema (2020-12) of a value.
	Schema json.RawMessage
	// Identity are the fields that tell records apart.
	Identity []string
	Scopes   []agent.MemoryScopeKind
	// Mode is how it is written, SharedMode where several people see it: the stricter
	// one of both holds there. It is empty if the key has no such scope.
	Mode, SharedMode WriteMode
	// Retention is how long a record is kept, zero for as long as the kind's.
	Retention time.Duration
	// Sources are the source types that may write it.
	Sources []agent.MemorySourceType
	// FromModel says that a model may propose it.
	FromModel bool
}
