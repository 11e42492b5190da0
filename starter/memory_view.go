package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// How memory is shown. Values, keys, purposes and quotes are words of users,
// models and tools: they stand behind bars.

func memoryStyle(status db.MemoryStatus) style {
	switch status {
	case db.MemoryActive:
		return green
	case db.MemorySuperseded, db.MemoryRetracted, db.MemoryOutlived:
		return yellow
	case db.MemoryDeleted:
		return red
	}
	return plain
}

// inForceWords is a status for people.
func inForceWords(status db.MemoryStatus) string {
	if status == db.MemoryActive {
		return "in force"
	}
	return string(status)
}

func memoryStateStyle(state agent.MemoryState) style {
	switch state {
	case agent.MemoryStored, agent.MemoryMerged:
		return green
	case agent.MemoryRejected, agent.MemoryDeclined, agent.MemoryExpired, agent.MemoryNotSaved:
		return yellow
	case agent.MemoryProposed, agent.MemoryWaitingReview, agent.MemoryWaitingConfirmation:
		return bold
	}
	return plain
}

// memoryPlace says where a memory is seen.
func memoryPlace(scope agent.MemoryScope, environment string) string {
	return fmt.Sprintf("%s %s in %s", scope.Kind, scope.ID, environment)
}

// kept says how long a memory is kept.
func kept(until *time.Time) string {
	if until == nil {
		return "until it is forgotten"
	}
	return "until " + clock(*until)
}

// keptUntil is kept without its first word.
func keptUntil(until *time.Time) string { return strings.TrimPrefix(kept(until), "until ") }

// holds says when a memory is true, empty for always.
func holds(from, until *time.Time) string {
	switch {
	case from == nil && until == nil:
		return ""
	case from == nil:
		return "until " + clock(*until)
	case until == nil:
		return "from " + clock(*from)
	}
	return fmt.Sprintf("from %s until %s", clock(*from), clock(*until))
}

// because says where a record comes from, and who vouches for it.
func because(r db.MemoryRecord) string {
	line := fmt.Sprintf("%s %s, %s", r.SourceType, oneLine(r.SourceID, 64), r.Validation)
	if r.Repeats > 0 {
		line += fmt.Sprintf(", said again %s", count(r.Repeats, "time"))
	}
	return line
}

// printMemory shows a record in short: what, why, where and how long.
func (a *app) printMemory(r db.MemoryRecord) {
	fmt.Fprintf(a.out, "%s  %s  %s  version %d  %s\n", a.paint(bold, r.ID), oneLine(r.Key, 64), r.Kind, r.Version, a.paint(memoryStyle(r.Status), inForceWords(r.Status)))
	a.printContent(r)
	rows := [][]cell{
		{{"  why", dim}, {text: because(r)}},
		{{"  seen in", dim}, {text: memoryPlace(r.Scope, r.Environment)}},
	}
	if r.EndedAt == nil {
		rows = append(rows, []cell{{"  kept", dim}, {text: kept(r.ExpiresAt)}})
	} else {
		rows = append(rows, []cell{{"  ended", dim}, {text: fmt.Sprintf("%s by %s", clock(*r.EndedAt), oneLine(r.EndedBy, 128))}})
	}
	if when := holds(r.ValidFrom, r.ValidUntil); when != "" {
		rows = append(rows, []cell{{"  holds", dim}, {text: when}})
	}
	a.table(a.out, rows)
	a.printQuote("  said", r.Evidence.Quote)
}

// printContent shows the value of a version, which a tombstone does not have.
func (a *app) printContent(r db.MemoryRecord) {
	if len(r.Value) == 0 && r.Status != db.MemoryDeleted {
		fmt.Fprintln(a.out, a.paint(red, "  its content cannot be read: its keys are gone, or it was damaged"))
	}
	a.printValue(r.Value)
}

func (a *app) printValue(value json.RawMessage) {
	if len(value) > 0 {
		a.quote("  ", indented(value))
	}
}

// printQuote shows words under a name, if there are any.
func (a *app) printQuote(name, words string) {
	if words == "" {
		return
	}
	fmt.Fprintln(a.out, a.paint(dim, name))
	a.quote("    ", words)
}

// printRecord shows all that is known of a version (LTM-2).
func (a *app) printRecord(tenant string, r db.MemoryRecord) {
	fmt.Fprintf(a.out, "%s  %s  version %d  %s\n", a.paint(bold, r.ID), oneLine(r.Key, 64), r.Version, a.paint(memoryStyle(r.Status), inForceWords(r.Status)))
	a.printContent(r)
	rows := [][]cell{
		{{"  kind", dim}, {text: string(r.Kind)}},
		{{"  seen in", dim}, {text: memoryPlace(r.Scope, r.Environment)}},
		{{"  owner", dim}, {text: fmt.Sprintf("tenant %s  user %s  keys of %s", tenant, r.User, oneLine(r.Subject, 128))}},
		{{"  source", dim}, {text: fmt.Sprintf("%s %s", r.SourceType, oneLine(r.SourceID, 64))}},
		{{"  writer", dim}, {text: writer(r)}},
		{{"  validation", dim}, {text: fmt.Sprintf("%s  confidence %.2f  consent %s  sensitivity %s", r.Validation, r.Confidence, oneLine(r.ConsentBasis, 64), oneLine(r.Sensitivity, 64))}},
		{{"  written", dim}, {text: written(r)}},
	}
	if r.EndedAt == nil {
		rows = append(rows, []cell{{"  kept", dim}, {text: kept(r.ExpiresAt)}})
	}
	if when := holds(r.ValidFrom, r.ValidUntil); when != "" {
		rows = append(rows, []cell{{"  holds", dim}, {text: when}})
	}
	if r.EndedAt != nil {
		rows = append(rows, []cell{{"  ended", dim}, {text: fmt.Sprintf("%s by %s", clock(*r.EndedAt), oneLine(r.EndedBy, 128))}})
	}
	a.table(a.out, rows)
	a.printQuote("  purpose", r.Evidence.Purpose)
	if r.Evidence.Quote != "" {
		a.printQuote("  evidence, message "+oneLine(r.Evidence.MessageID, 64), r.Evidence.Quote)
	}
	a.printRules("  let in by policy", r.PolicyVersion, r.PolicyDigest, r.Rules)
}

func writer(r db.MemoryRecord) string {
	line := oneLine(r.Writer, 128)
	if r.Agent != "" {
		line += "  in the role of agent " + r.Agent
	}
	if r.DecidedBy != "" {
		line += "  decided by " + oneLine(r.DecidedBy, 128)
	}
	return line
}

func written(r db.MemoryRecord) string {
	line := clock(r.WrittenAt)
	if r.RunID != "" {
		line += "  by run " + r.RunID
	}
	if r.Conversation != "" {
		line += "  conversation " + r.Conversation
	}
	if r.Repeats > 0 {
		line += fmt.Sprintf("  said again %s, last %s", count(r.Repeats, "time"), clock(moment(r.RepeatedAt)))
	}
	return line
}

// printRules shows the rules that made a decision.
func (a *app) printRules(title, version, digest string, rules []agent.MemoryRule) {
	if version == "" && len(rules) == 0 {
		return
	}
	line := title + " " + oneLine(version, 64)
	if len(digest) >= 12 {
		line += " (digest " + oneLine(digest[:12], 12) + ")"
	}
	fmt.Fprintln(a.out, a.paint(dim, line))
	var rows [][]cell
	for _, rule := range rules {
		rows = append(rows, row("    "+oneLine(rule.ID, 64), oneLine(rule.Text, 160)))
	}
	a.table(a.out, rows)
}

// printProposal shows a candidate whose fate is open, exactly as it would be
// stored.
func (a *app) printProposal(c db.MemoryCandidate, ends []endedMemory) {
	fmt.Fprintf(a.out, "%s  %s  %s  %s\n", a.paint(bold, c.ID), oneLine(c.Key, 64), c.Kind, a.paint(memoryStateStyle(c.State), stateWords(c.State)))
	if c.Content == nil {
		return
	}
	value, purpose := wouldBeKept(*c.Content)
	a.printValue(value)
	switch {
	case len(ends) > 0 && c.Content.Retracts:
		fmt.Fprintln(a.out, a.paint(dim, "  would take back"))
	case len(ends) > 0:
		fmt.Fprintln(a.out, a.paint(dim, "  would end"))
	case c.Content.Retracts:
		fmt.Fprintln(a.out, "  would take back what is in force")
	}
	a.printEnded("    ", ends)
	rows := [][]cell{
		{{"  why", dim}, {text: fmt.Sprintf("%s %s, proposed by %s", c.SourceType, oneLine(c.SourceID, 64), oneLine(c.Writer, 128))}},
		{{"  seen in", dim}, {text: memoryPlace(c.Scope, c.Room.Scope.Environment)}},
	}
	if when := holds(c.Content.ValidFrom, c.Content.ValidUntil); when != "" {
		rows = append(rows, []cell{{"  holds", dim}, {text: when}})
	}
	if p := c.Content.Plan; p != nil && !c.Content.Retracts {
		rows = append(rows, []cell{{"  kept until", dim}, {text: keptUntil(p.ExpiresAt)}})
	}
	if c.ExpiresAt != nil {
		rows = append(rows, []cell{{"  decide before", dim}, {text: clock(*c.ExpiresAt)}})
	}
	a.table(a.out, rows)
	a.printQuote("  purpose", purpose)
	a.printQuote("  said", c.Content.Quote)
}

// wouldBeKept is value and purpose of a candidate, as the policy has normalized
// them if it was judged.
func wouldBeKept(c agent.MemoryCandidate) (value json.RawMessage, purpose string) {
	if c.Plan != nil {
		return c.Plan.Value, c.Plan.Purpose
	}
	return c.Value, c.Purpose
}

// stateWords is a state for people.
func stateWords(state agent.MemoryState) string {
	switch state {
	case agent.MemoryProposed:
		return "not decided yet"
	case agent.MemoryWaitingReview:
		return "waits for a reviewer"
	case agent.MemoryWaitingConfirmation:
		return "waits for the user"
	case agent.MemoryStored, agent.MemoryMerged, agent.MemoryRejected, agent.MemoryDeclined, agent.MemoryExpired, agent.MemoryNotSaved:
	}
	return strings.ReplaceAll(string(state), "_", " ")
}

// memoryScopeDocument is where a memory is seen.
type memoryScopeDocument struct {
	Kind        agent.MemoryScopeKind `json:"kind"`
	ID          string                `json:"id"`
	Environment string                `json:"environment"`
}

// memoryDocument is a version of a record. Value, Purpose and Quote are content.
type memoryDocument struct {
	ID           string                 `json:"id"`
	Version      int                    `json:"version"`
	Status       db.MemoryStatus        `json:"status"`
	Kind         agent.MemoryKind       `json:"kind"`
	Key          string                 `json:"key"`
	Value        json.RawMessage        `json:"value,omitempty"`
	Tenant       string                 `json:"tenant"`
	Subject      string                 `json:"subject"`
	User         string                 `json:"user"`
	Scope        memoryScopeDocument    `json:"scope"`
	AgentRole    string                 `json:"agent_role,omitempty"`
	Purpose      string                 `json:"purpose,omitempty"`
	SourceType   agent.MemorySourceType `json:"source_type"`
	SourceID     string                 `json:"source_id"`
	Writer       string                 `json:"writer_identity"`
	RunID        string                 `json:"run_id,omitempty"`
	Conversation string                 `json:"conversation,omitempty"`
	CandidateID  string                 `json:"candidate_id,omitempty"`
	MessageID    string                 `json:"message_id,omitempty"`
	Quote        string                 `json:"quote,omitempty"`
	Confidence   float64                `json:"confidence"`
	Validation   agent.MemoryValidation `json:"validation_state"`
	ConsentBasis string                 `json:"consent_basis"`
	Sensitivity  string                 `json:"sensitivity"`
	ValidFrom    *time.Time             `json:"valid_from,omitempty"`
	ValidUntil   *time.Time             `json:"valid_until,omitempty"`
	ExpiresAt    *time.Time             `json:"expires_at,omitempty"`
	WrittenAt    time.Time              `json:"written_at"`
	Repeats      int                    `json:"repeats"`
	RepeatedAt   *time.Time             `json:"repeated_at,omitempty"`
	DecidedBy    string                 `json:"decided_by,omitempty"`
	EndedAt      *time.Time             `json:"ended_at,omitempty"`
	EndedBy      string                 `json:"ended_by,omitempty"`
	// Policy is the decision that let it in.
	Policy *policyDecisionDocument `json:"policy,omitempty"`
}

type policyDecisionDocument struct {
	Version string             `json:"version"`
	Digest  string             `json:"digest"`
	Rules   []agent.MemoryRule `json:"rules"`
}

func toPolicyDecision(version, digest string, rules []agent.MemoryRule) *policyDecisionDocument {
	if version == "" && len(rules) == 0 {
		return nil
	}
	return &policyDecisionDocument{version, digest, append([]agent.MemoryRule{}, rules...)}
}

func toMemoryDocument(tenant string, r db.MemoryRecord) memoryDocument {
	return memoryDocument{
		ID: r.ID, Version: r.Version, Status: r.Status, Kind: r.Kind, Key: r.Key, Value: r.Value, Tenant: tenant, Subject: r.Subject, User: r.User,
		Scope: memoryScopeDocument{r.Scope.Kind, r.Scope.ID, r.Environment}, AgentRole: r.Agent, Purpose: r.Evidence.Purpose,
		SourceType: r.SourceType, SourceID: r.SourceID, Writer: r.Writer, RunID: r.RunID, Conversation: r.Conversation, CandidateID: r.CandidateID,
		MessageID: r.Evidence.MessageID, Quote: r.Evidence.Quote, Confidence: r.Confidence, Validation: r.Validation,
		ConsentBasis: r.ConsentBasis, Sensitivity: r.Sensitivity, ValidFrom: r.ValidFrom, ValidUntil: r.ValidUntil, ExpiresAt: r.ExpiresAt,
		WrittenAt: r.WrittenAt, Repeats: r.Repeats, RepeatedAt: r.RepeatedAt, DecidedBy: r.DecidedBy, EndedAt: r.EndedAt, EndedBy: r.EndedBy,
		Policy: toPolicyDecision(r.PolicyVersion, r.PolicyDigest, r.Rules),
	}
}

func toMemoryDocuments(tenant string, records []db.MemoryRecord) []memoryDocument {
	documents := make([]memoryDocument, 0, len(records))
	for _, r := range records {
		documents = append(documents, toMemoryDocument(tenant, r))
	}
	return documents
}

// proposalDocument is a candidate. Value, Purpose and Quote are content.
type proposalDocument struct {
	ID          string                 `json:"id"`
	State       agent.MemoryState      `json:"state"`
	Kind        agent.MemoryKind       `json:"kind"`
	Key         string                 `json:"key"`
	Value       json.RawMessage        `json:"value,omitempty"`
	Retracts    bool                   `json:"retracts,omitempty"`
	Tenant      string                 `json:"tenant"`
	User        string                 `json:"user"`
	Scope       memoryScopeDocument    `json:"scope"`
	Purpose     string                 `json:"purpose,omitempty"`
	SourceType  agent.MemorySourceType `json:"source_type"`
	SourceID    string                 `json:"source_id"`
	Writer      string                 `json:"writer_identity"`
	RunID       string                 `json:"run_id,omitempty"`
	MessageID   string                 `json:"message_id,omitempty"`
	Quote       string                 `json:"quote,omitempty"`
	ValidFrom   *time.Time             `json:"valid_from,omitempty"`
	ValidUntil  *time.Time             `json:"valid_until,omitempty"`
	ExpiresAt   *time.Time             `json:"expires_at,omitempty"`
	DecideUntil *time.Time             `json:"decide_until,omitempty"`
	// Ends are what it would end, in lists of what is open.
	Ends          []endedDocument         `json:"ends,omitempty"`
	Record        string                  `json:"record,omitempty"`
	RecordVersion int                     `json:"record_version,omitempty"`
	DecidedBy     string                  `json:"decided_by,omitempty"`
	CreatedAt     time.Time               `json:"created_at"`
	UpdatedAt     time.Time               `json:"updated_at"`
	Policy        *policyDecisionDocument `json:"policy,omitempty"`
}

func toProposalDocument(c db.MemoryCandidate) proposalDocument {
	document := proposalDocument{
		ID: c.ID, State: c.State, Kind: c.Kind, Key: c.Key, Tenant: c.Room.Scope.Tenant, User: c.Room.Scope.User,
		Scope: memoryScopeDocument{c.Scope.Kind, c.Scope.ID, c.Room.Scope.Environment}, SourceType: c.SourceType, SourceID: c.SourceID, Writer: c.Writer,
		RunID: c.RunID, Record: c.Record, RecordVersion: c.RecordVersion, DecidedBy: c.DecidedBy, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
		Policy: toPolicyDecision(c.PolicyVersion, c.PolicyDigest, c.Rules),
	}
	if !c.State.Final() {
		document.DecideUntil = c.ExpiresAt
	}
	if content := c.Content; content != nil {
		document.Value, document.Purpose = wouldBeKept(*content)
		if content.Plan != nil {
			document.ExpiresAt = content.Plan.ExpiresAt
		}
		document.Retracts, document.MessageID, document.Quote = content.Retracts, content.MessageID, content.Quote
		document.ValidFrom, document.ValidUntil = content.ValidFrom, content.ValidUntil
	}
	return document
}

func toProposalDocuments(candidates []db.MemoryCandidate) []proposalDocument {
	documents := make([]proposalDocument, 0, len(candidates))
	for _, c := range candidates {
		documents = append(documents, toProposalDocument(c))
	}
	return documents
}
