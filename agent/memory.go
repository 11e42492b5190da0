package agent

import (
	"fmt"
	"time"
)

// MemoryKind is what a memory is (LTM-1).
type MemoryKind string

// The closed set of memory kinds.
const (
	// MemoryPreference is how a person or group wants things done.
	MemoryPreference MemoryKind = "profile_preference"
	// MemoryFact is a statement that somebody vouches for.
	MemoryFact MemoryKind = "validated_fact"
	// MemoryTask is something that is still under way.
	MemoryTask MemoryKind = "ongoing_task"
	// MemorySummary is what a conversation amounted to.
	MemorySummary MemoryKind = "session_summary"
	// MemoryExperience is what an agent learned about its own work.
	MemoryExperience MemoryKind = "operating_experience"
)

// Valid reports whether k is one of the closed set.
func (k MemoryKind) Valid() bool {
	switch k {
	case MemoryPreference, MemoryFact, MemoryTask, MemorySummary, MemoryExperience:
		return true
	default:
		return false
	}
}

// MemoryScopeKind is how far a memory reaches.
type MemoryScopeKind string

// The closed set of memory scopes (ISO-1).
const (
	// MemoryOfUser is personal: seen in the user's own conversations only.
	MemoryOfUser MemoryScopeKind = "user"
	// MemoryOfConversation is seen in one conversation of one user.
	MemoryOfConversation MemoryScopeKind = "conversation"
	// MemoryOfGroup is seen in the conversations of a group, by its participants.
	MemoryOfGroup MemoryScopeKind = "group"
	// MemoryOfAgent is seen by an agent, whoever it works for in the tenant.
	MemoryOfAgent MemoryScopeKind = "agent_role"
	// MemoryOfProject is seen in the conversations of a project, by its participants.
	MemoryOfProject MemoryScopeKind = "project"
)

// Valid reports whether k is one of the closed set.
func (k MemoryScopeKind) Valid() bool {
	switch k {
	case MemoryOfUser, MemoryOfConversation, MemoryOfGroup, MemoryOfAgent, MemoryOfProject:
		return true
	default:
		return false
	}
}

// MemoryScope is one scope: whose memory it is within tenant and environment.
type MemoryScope struct {
	Kind MemoryScopeKind `json:"kind"`
	// ID names the user, conversation, group, agent or project.
	ID string `json:"id"`
}

// Subject returns whose keys seal the scope's memory: user's own for what is
// personal, else the scope's. What is not a user's name begins with a character
// that no user's name has.
func (s MemoryScope) Subject(user string) string {
	switch s.Kind {
	case MemoryOfUser, MemoryOfConversation:
		return user
	default:
		return "~" + string(s.Kind) + "~" + s.ID
	}
}

// Room returns the scope within an environment in one string, which stands
// beside a record for filters. The separator is in no identifier.
func (s MemoryScope) Room(environment string) string {
	return environment + "/" + string(s.Kind) + "/" + s.ID
}

// MemoryRoom is where a run stands among memories: on whose behalf, and in which
// surroundings. Whoever makes one has authenticated the user.
type MemoryRoom struct {
	Scope        Scope  `json:"scope"`
	Conversation string `json:"conversation,omitempty"`
	// Group and Project are empty outside of them.
	Group   string `json:"group,omitempty"`
	Project string `json:"project,omitempty"`
	// Agent is the name of the agent's definition.
	Agent string `json:"agent,omitempty"`
}

// Scopes returns the scopes that may be seen from the room at all, whatever the
// policy says: in a group nothing personal is (ISO-2). That the user is a
// participant of group and project is for the store to check, at each read and
// write.
func (r MemoryRoom) Scopes() []MemoryScope {
	var scopes []MemoryScope
	add := func(kind MemoryScopeKind, id string) {
		if id != "" {
			scopes = append(scopes, MemoryScope{kind, id})
		}
	}
	if r.Group == "" {
		add(MemoryOfUser, r.Scope.User)
		add(MemoryOfConversation, r.Conversation)
	}
	add(MemoryOfGroup, r.Group)
	add(MemoryOfProject, r.Project)
	add(MemoryOfAgent, r.Agent)
	return scopes
}

// MemorySourceType says what kind of thing a memory comes from.
type MemorySourceType string

// The closed set of source types. The last five are there to be refused: the
// default policy lets none of them in.
const (
	// SourceUserStatement is a statement of the user, found in a message of the
	// user and quoted from it.
	SourceUserStatement MemorySourceType = "user_statement"
	// SourceUserCorrection is the user's own act outside of a conversation.
	SourceUserCorrection MemorySourceType = "user_correction"
	// SourceTrustedTool is a fact that a tool declares and a successful call of
	// it returned.
	SourceTrustedTool MemorySourceType = "trusted_tool"
	// SourceTrustedService is a backend service of the deployment.
	SourceTrustedService MemorySourceType = "trusted_service"
	// SourceApprovedSummarizer is the checked summary of a conversation.
	SourceApprovedSummarizer MemorySourceType = "approved_summarizer"

	SourceRawPrompt       MemorySourceType = "raw_user_prompt"
	SourceAssistant       MemorySourceType = "assistant"
	SourceRecalled        MemorySourceType = "recalled_memory"
	SourceExternal        MemorySourceType = "external_content"
	SourceUnvalidatedTool MemorySourceType = "unvalidated_tool_output"
)

// Valid reports whether t is one of the closed set.
func (t MemorySourceType) Valid() bool {
	switch t {
	case SourceUserStatement, SourceUserCorrection, SourceTrustedTool, SourceTrustedService, SourceApprovedSummarizer,
		SourceRawPrompt, SourceAssistant, SourceRecalled, SourceExternal, SourceUnvalidatedTool:
		return true
	default:
		return false
	}
}

// MemoryValidation says who vouched for a memory, weakest first.
type MemoryValidation string

// The closed set of validation states.
const (
	MemoryUnvalidated MemoryValidation = "unvalidated"
	// MemoryUserStated: the user said so.
	MemoryUserStated MemoryValidation = "user_stated"
	// MemoryTrusted: a trusted tool or service said so.
	MemoryTrusted MemoryValidation = "trusted"
	// MemoryReviewed: a reviewer accepted it.
	MemoryReviewed MemoryValidation = "reviewed"
	// MemoryUserConfirmed: the user saw exactly this and confirmed it.
	MemoryUserConfirmed MemoryValidation = "user_confirmed"
)

// MemoryState is what has become of a proposed memory.
type MemoryState string

// The closed set of states. Those from MemoryStored on are final.
const (
	// MemoryProposed: nobody decided yet. It is judged again until somebody does.
	MemoryProposed            MemoryState = "proposed"
	MemoryWaitingReview       MemoryState = "waiting_review"
	MemoryWaitingConfirmation MemoryState = "waiting_confirmation"

	// MemoryStored: it is in force, as a new record or a new version of one.
	MemoryStored MemoryState = "stored"
	// MemoryMerged: the same is in force already; that it was said again is noted.
	MemoryMerged MemoryState = "merged"
	// MemoryRejected: the policy refuses it. Its content was not kept.
	MemoryRejected MemoryState = "rejected"
	// MemoryDeclined: the reviewer or the user said no.
	MemoryDeclined MemoryState = "declined"
	// MemoryExpired: nobody decided in time.
	MemoryExpired MemoryState = "expired"
	// MemoryNotSaved is in results only: the store failed. The proposal is on
	// record and is judged again later.
	MemoryNotSaved MemoryState = "not_saved"
)

// Final reports whether the state does not change any more.
func (s MemoryState) Final() bool {
	switch s {
	case MemoryStored, MemoryMerged, MemoryRejected, MemoryDeclined, MemoryExpired:
		return true
	default:
		return false
	}
}

// MemoryRule is a rule of the policy that took part in a decision, by its ID and
// in words. It holds no content.
type MemoryRule struct {
	ID string `json:"id"`
	// Text says what the rule found, such as "kind profile_preference may come
	// from user_statement".
	Text string `json:"text"`
}

// RecallState says what came of looking for memories at the beginning of a run.
type RecallState string

// The closed set of recall states.
const (
	// RecallOff: the agent's definition recalls nothing, or the run was over
	// before it came to that.
	RecallOff RecallState = "off"
	// RecallFound: memories were found and given to the run.
	RecallFound RecallState = "recalled"
	// RecallNothing: there is nothing to remember.
	RecallNothing RecallState = "no_memory"
	// RecallUnavailable: nobody knows whether there is. The run goes on without.
	RecallUnavailable RecallState = "memory_unavailable"
)

// LearningState says what becomes of what could be learned from a run.
type LearningState string

// The closed set of learning states.
const (
	// LearningOff: nothing is learned from the run.
	LearningOff LearningState = "off"
	// LearningStarted: LearnFromRun is under way or done.
	LearningStarted LearningState = "started"
	// LearningNotSaved: LearnFromRun could not be started. That it is due is on
	// record, and it is tried again.
	LearningNotSaved LearningState = "not_saved"
)

// MemoryUse is what a run had to do with memory.
type MemoryUse struct {
	Recall RecallState `json:"recall"`
	// Records counts the memories that the run was given.
	Records int `json:"records,omitempty"`
	// KeywordOnly says that nothing was compared by meaning, because the embedder
	// did not answer.
	KeywordOnly bool          `json:"keyword_only,omitempty"`
	Learning    LearningState `json:"learning"`
}

// RecallInput asks for the memories that a run starts with. Run is the
// idempotency key: asked again, the same records are returned as far as they are
// still in force.
type RecallInput struct {
	Run              RunRef `json:"run"`
	DefinitionDigest string `json:"definition_digest"`
}

// RecallOutput is what Recall returns to the workflow; it holds no content.
type RecallOutput struct {
	State       RecallState `json:"state"`
	Records     int         `json:"records,omitempty"`
	KeywordOnly bool        `json:"keyword_only,omitempty"`
}

// Bounds of a proposed memory.
const (
	// MaxMemoryValueBytes bounds the canonical JSON of a value.
	MaxMemoryValueBytes = 4 << 10
	// MaxMemoryQuoteBytes bounds the quoted evidence.
	MaxMemoryQuoteBytes = 2 << 10
	// MaxMemoryCandidates bounds what is proposed from one run.
	MaxMemoryCandidates = 16
)

// MemoryCandidate is a proposed memory. Key, Value, Purpose and Quote are content.
type MemoryCandidate struct {
	Kind MemoryKind `json:"kind"`
	// Key is one of the policy's registry.
	Key string `json:"key"`
	// Value is a JSON value that the key's schema accepts.
	Value []byte `json:"value"`
	// Scope is where it is to be seen. The zero value is the narrowest that fits:
	// the group in a group, else the user.
	Scope MemoryScope `json:"scope,omitzero"`
	// Purpose says what it is kept for; empty means the key's own.
	Purpose string `json:"purpose,omitempty"`
	// SourceID names the message, call, service or ticket that it comes from.
	SourceType MemorySourceType `json:"source_type"`
	SourceID   string           `json:"source_id"`
	// Writer is the program or person that proposes it, such as
	// "agent:opspilot@4" or "user:ann".
	Writer string `json:"writer"`
	// MessageID and Quote are the evidence: words of the message, byte for byte.
	MessageID string `json:"message_id,omitempty"`
	Quote     string `json:"quote,omitempty"`
	// ObservedAt is when a tool or service saw it, or a user said it; nil is when it
	// is proposed, or when the user of its run asked. What the same sort of source
	// has said later stays in force.
	ObservedAt *time.Time `json:"observed_at,omitempty"`
	// ValidFrom and ValidUntil bound when it is true; nil is unbounded.
	ValidFrom  *time.Time `json:"valid_from,omitempty"`
	ValidUntil *time.Time `json:"valid_until,omitempty"`
	// Retracts says that the candidate takes back what is in force under the key
	// and has no value itself.
	Retracts bool `json:"retracts,omitempty"`
	// Plan is set while somebody has to decide about the candidate. It is the
	// worker's: one that comes with a proposal is ignored.
	Plan *MemoryPlan `json:"plan,omitempty"`
}

// MemoryPlan is exactly what would be kept of a candidate that waits. It is
// content.
type MemoryPlan struct {
	// Value is the normalized value, canonical JSON (RFC 8785); nil for a
	// retraction.
	Value   []byte `json:"value,omitempty"`
	Purpose string `json:"purpose"`
	// ExpiresAt is when it would be forgotten by itself, nil for never.
	ExpiresAt    *time.Time `json:"expires_at,omitempty"`
	ConsentBasis string     `json:"consent_basis"`
	Sensitivity  string     `json:"sensitivity"`
	// Step is what it would do: insert, replace or retract.
	Step string `json:"step"`
	// Ends are the versions in force that it would end.
	Ends []MemoryVersion `json:"ends,omitempty"`
}

// MemoryVersion names one version of one record.
type MemoryVersion struct {
	Record  string `json:"record"`
	Version int    `json:"version"`
}

// MemoryWriteInput starts a MemoryWrite. The ID is the idempotency key: the same
// ID is one write.
type MemoryWriteInput struct {
	ID   string     `json:"id"`
	Room MemoryRoom `json:"room"`
	// Candidate is content. It is nil when the proposal is on record already, as
	// that of a run is; else it is put on record first.
	Candidate *MemoryCandidate `json:"candidate,omitempty"`
}

// Validate returns an error that names what is wrong, without repeating a value.
func (in MemoryWriteInput) Validate() error {
	switch {
	case !ValidID(in.ID):
		return fmt.Errorf("memory write: id must be 1 to 128 ASCII letters, digits or . _ : @ -")
	case !ValidID(in.Room.Scope.Tenant) || !ValidID(in.Room.Scope.User) || !ValidID(in.Room.Scope.Environment):
		return fmt.Errorf("memory write: tenant, user and environment must be identifiers")
	case in.Room.Group != "" && !ValidID(in.Room.Group), in.Room.Project != "" && !ValidID(in.Room.Project),
		in.Room.Conversation != "" && !ValidID(in.Room.Conversation), in.Room.Agent != "" && !ValidID(in.Room.Agent):
		return fmt.Errorf("memory write: conversation, group, project and agent must be identifiers")
	}
	return nil
}

// MemoryVerdict is what was decided about a candidate; it holds no content.
type MemoryVerdict struct {
	ID    string      `json:"id"`
	State MemoryState `json:"state"`
	// Record and Version name the record in force after a final state, if any.
	Record  string `json:"record,omitempty"`
	Version int    `json:"version,omitempty"`
	// Rules made the decision; PolicyVersion and PolicyDigest are the policy's.
	Rules         []MemoryRule `json:"rules,omitempty"`
	PolicyVersion string       `json:"policy_version,omitempty"`
	PolicyDigest  string       `json:"policy_digest,omitempty"`
	// Until is when a waiting candidate expires.
	Until time.Time `json:"until,omitzero"`
}

// SettleMemoryInput brings a decision about a waiting candidate. Token is one of
// package approval; empty means that the time is up.
type SettleMemoryInput struct {
	ID    string     `json:"id"`
	Room  MemoryRoom `json:"room"`
	Token string     `json:"token,omitempty"`
}

// SettledMemory says what came of a decision. When Refused is set the token was
// not believed, that is on record, and the candidate waits on.
type SettledMemory struct {
	MemoryVerdict
	Refused RefusalCode `json:"refused,omitempty"`
}

// LearnInput asks what can be learned from a run that has ended.
type LearnInput struct {
	Run              RunRef     `json:"run"`
	Room             MemoryRoom `json:"room"`
	DefinitionDigest string     `json:"definition_digest"`
}

// LearnOutput is what Learn returns to the workflow.
type LearnOutput struct {
	// Candidates are the IDs of what was put on record and is to be judged.
	Candidates []string `json:"candidates,omitempty"`
	// Rejected counts proposals that the policy refused at once.
	Rejected int `json:"rejected,omitempty"`
	// Failure is a short stable code if nothing could be extracted.
	Failure string `json:"failure,omitempty"`
	// Later says that the lesson stays due and is tried again.
	Later bool `json:"later,omitempty"`
}

// LearnResult is what LearnFromRun returns.
type LearnResult struct {
	// State is MemoryProposed when there are candidates, MemoryNotSaved when the
	// extractor or the store failed and it is tried again later, and empty when
	// there was nothing to learn.
	State      MemoryState `json:"state,omitempty"`
	Candidates []string    `json:"candidates,omitempty"`
	Rejected   int         `json:"rejected,omitempty"`
	Failure    string      `json:"failure,omitempty"`
}

// ForgetInput asks to forget one record, or with no Record everything that is
// remembered of the room's user.
type ForgetInput struct {
	// ID names the request: the same ID is one request.
	ID     string     `json:"id"`
	Room   MemoryRoom `json:"room"`
	Record string     `json:"record,omitempty"`
	// By is the person or program that asks.
	By string `json:"by"`
}

// EraseInput asks to erase a user: all memory, and the keys of everything else
// that is stored of the user.
//
// The user is named subject in JSON: what names a tenant's user there is sealed in
// histories under the keys that the erasure destroys.
type EraseInput struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	User   string `json:"subject"`
	By     string `json:"by"`
}

// ErasureStep is one bounded piece of an erasure.
type ErasureStep struct {
	// Done says that nothing is left; else the step is to be repeated.
	Done bool `json:"done"`
	// Blocked is a short stable code when the step has to wait for something,
	// such as "open_run".
	Blocked string         `json:"blocked,omitempty"`
	Receipt ErasureReceipt `json:"receipt"`
}

// ErasureReceipt says what was erased, in counts (ERASE-2).
type ErasureReceipt struct {
	ID      string    `json:"id"`
	Tenant  string    `json:"tenant"`
	Subject string    `json:"subject"`
	By      string    `json:"by"`
	At      time.Time `json:"at,omitzero"`
	// Records are the logical records that were deleted, Versions their versions.
	Records    int `json:"records"`
	Versions   int `json:"versions"`
	Candidates int `json:"candidates"`
	Vectors    int `json:"vectors"`
	Keywords   int `json:"keywords"`
	// KeysDestroyed says that the subject's keys are gone, and with them every
	// copy of its content in messages, histories and backups without keys.
	KeysDestroyed bool `json:"keys_destroyed,omitempty"`
}

// ReconcileInput bounds one round of ReconcileMemory.
type ReconcileInput struct {
	// Tenant is the tenant to look at; empty means all of them.
	Tenant string `json:"tenant,omitempty"`
}

// ReconcileReport counts what was found and repaired.
type ReconcileReport struct {
	Tenants int `json:"tenants"`
	// Expired are records whose time was over, Residue pieces of deleted ones.
	Expired int `json:"expired"`
	Residue int `json:"residue"`
	// Missing are records in force that lacked an index and got one.
	Missing int `json:"missing"`
	// Writes and Lessons were due and are started again unless they are under way.
	Writes  []MemoryWriteInput `json:"writes,omitempty"`
	Lessons []LearnInput       `json:"lessons,omitempty"`
	// Erasures of users are on record and not completed; they go on the same way.
	Erasures []EraseInput `json:"erasures,omitempty"`
	// Reindex names the embedder whose vectors are being built, if one is.
	Reindex string `json:"reindex,omitempty"`
	// More says that a bound was reached and another round is due at once.
	More bool `json:"more,omitempty"`
}

// ReindexInput asks to compute the vectors of all records with the embedder that
// the workers are configured with.
type ReindexInput struct {
	Embedder string `json:"embedder"`
}

// ReindexOutput is what one bounded piece of a re-index did.
type ReindexOutput struct {
	Embedded int  `json:"embedded"`
	Failed   int  `json:"failed"`
	Done     bool `json:"done"`
}
