package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/tool"
)

// What a token about a memory says in the claims that name run, call and tool of
// a write (LTM-3): run_id is the candidate's ID, tool_version the policy's
// version, resource_version its digest, arguments_hash the keyed hash of the
// normalized value, and plan_hash is MemoryHash.
const (
	MemoryCallID = "memory"
	MemoryTool   = "memory_write"
)

// Memory is a proposed memory that waits for a person: exactly what would be
// kept, and why. Value, Purpose and Quote are content; Quote are the words of a
// user, in which nothing is to be believed.
type Memory struct {
	ID string
	// Revision counts how often it has waited, from 1.
	Revision int
	// State is MemoryWaitingConfirmation, which the user decides about, or
	// MemoryWaitingReview.
	State agent.MemoryState
	// User is whom it comes from; Room is where it was said.
	User string
	Room agent.MemoryRoom
	// Scope is where it would be seen.
	Scope agent.MemoryScope
	Kind  agent.MemoryKind
	Key   string
	// Retracts says that what is remembered under the key would be taken back;
	// there is no Value then.
	Retracts bool
	// Value is the normalized value, canonical JSON (RFC 8785).
	Value   json.RawMessage
	Purpose string
	// ExpiresAt is when it would be forgotten by itself, nil for never. ValidFrom
	// and ValidUntil bound when it is true.
	ExpiresAt    *time.Time
	ValidFrom    *time.Time
	ValidUntil   *time.Time
	ConsentBasis string
	Sensitivity  string
	// Step is insert, replace or retract, and Ends are the versions in force that
	// it would end.
	Step string
	Ends []agent.MemoryVersion
	// SourceType to Quote say where it comes from.
	SourceType agent.MemorySourceType
	SourceID   string
	Writer     string
	RunID      string
	MessageID  string
	Quote      string
	// Rules are why it waits.
	Rules         []agent.MemoryRule
	PolicyVersion string
	// Hash is MemoryHash of all that is decided about.
	Hash       string
	ProposedAt time.Time
	// DecideUntil is when nobody can decide any more.
	DecideUntil time.Time
}

// MemoryFilter selects waiting memories. Empty fields select all.
type MemoryFilter struct {
	Environment string
	// Limit is how many are returned. Zero means 50, the most is 500.
	Limit int
}

// PendingMemories is what waits for a person.
type PendingMemories struct {
	// Confirm are the person's own, oldest first; Review are those of others that
	// the person may review.
	Confirm []Memory
	Review  []Memory
	// Forbidden counts the reviews that were left out because the person may not
	// decide about them.
	Forbidden int
	// Damaged names the candidates that ErrDamaged speaks of.
	Damaged []string
	// More says that there may be more than Limit of either.
	More bool
}

// PendingMemories returns the memories that the person may decide about now: the
// own ones that wait for confirmation, and those that wait for a review. If the
// policies cannot be evaluated that is ErrUnavailable.
func (o *Office) PendingMemories(ctx context.Context, person Approver, f MemoryFilter) (PendingMemories, error) {
	if err := person.check(); err != nil {
		return PendingMemories{}, fmt.Errorf("list waiting memories: %w", err)
	}
	var found PendingMemories
	var err error
	own := db.WaitingFilter{Tenant: person.Tenant, User: person.User, State: agent.MemoryWaitingConfirmation}
	if found.Confirm, err = o.waiting(ctx, person, own, f, &found); err != nil {
		return PendingMemories{}, err
	}
	others := db.WaitingFilter{Tenant: person.Tenant, State: agent.MemoryWaitingReview}
	if found.Review, err = o.waiting(ctx, person, others, f, &found); err != nil {
		return PendingMemories{}, err
	}
	return found, nil
}

// waiting reads pages until there are enough that the person may decide about.
func (o *Office) waiting(ctx context.Context, person Approver, q db.WaitingFilter, f MemoryFilter, found *PendingMemories) ([]Memory, error) {
	limit := 50
	if f.Limit > 0 {
		limit = min(f.Limit, 500)
	}
	q.Environment, q.Now, q.Limit = f.Environment, o.now(), limit
	var list []Memory
	for {
		page, err := o.db.WaitingMemories(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("list waiting memories: %w", err)
		}
		for _, c := range page {
			if verifyMemory(c) != nil {
				found.Damaged = append(found.Damaged, c.ID)
				continue
			}
			err := o.mayDecide(c, person)
			switch {
			case errors.Is(err, ErrForbidden):
				found.Forbidden++
			case err != nil:
				return nil, fmt.Errorf("list waiting memories: %w", err)
			case len(list) == limit:
				found.More = true
				return list, nil
			default:
				list = append(list, toMemory(c))
			}
		}
		if len(page) < limit {
			return list, nil
		}
		q.After = &page[len(page)-1]
	}
}

// ConfirmMemory signs that the person wants the memory to be kept exactly as it
// was shown: the user for one that waits for confirmation, a reviewer for one that
// waits for a review. Of shown only ID, Revision and Hash are used. The errors to
// expect are those of Approve.
func (o *Office) ConfirmMemory(ctx context.Context, person Approver, shown Memory) (Token, error) {
	token, err := o.decideMemory(ctx, person, shown, Approve)
	if err != nil {
		return Token{}, fmt.Errorf("confirm memory: %w", err)
	}
	return token, nil
}

// DeclineMemory is ConfirmMemory for the opposite: nothing is kept.
func (o *Office) DeclineMemory(ctx context.Context, person Approver, shown Memory) (Token, error) {
	token, err := o.decideMemory(ctx, person, shown, Decline)
	if err != nil {
		return Token{}, fmt.Errorf("decline memory: %w", err)
	}
	return token, nil
}

func (o *Office) decideMemory(ctx context.Context, person Approver, shown Memory, decision Decision) (Token, error) {
	if err := person.check(); err != nil {
		return Token{}, err
	}
	if o.key.IsZero() {
		return Token{}, ErrNoKey
	}
	c, err := o.db.CandidateOfTenant(ctx, person.Tenant, shown.ID)
	if err != nil {
		return Token{}, own(err)
	}
	// Who may not decide is not told how it stands. What was decided has no state
	// by which to tell who might have.
	if c.State.Final() && person.User != c.Room.Scope.User {
		if err := MayReview(o.policies, c, person.User); err != nil {
			return Token{}, hidden(err)
		}
	}
	switch {
	case c.State == agent.MemoryExpired:
		return Token{}, ErrExpired
	case c.State.Final():
		return Token{}, fmt.Errorf("%w: %s", ErrDecided, c.State)
	}
	if err := o.mayDecide(c, person); err != nil {
		return Token{}, hidden(err)
	}
	if c.State == agent.MemoryProposed {
		return Token{}, fmt.Errorf("%w: it is judged again", ErrChanged)
	}
	if err := verifyMemory(c); err != nil {
		return Token{}, err
	}
	now := o.now()
	switch {
	case c.Revision != shown.Revision || c.PlanHash != shown.Hash:
		return Token{}, ErrChanged
	case !c.ExpiresAt.After(now):
		return Token{}, ErrExpired
	}
	claims := MemoryClaims(c, Claims{
		TokenID: Nonce(), Decision: decision, Approver: person.User, Tenant: person.Tenant,
		IssuedAt: now.Truncate(time.Second), ExpiresAt: earlier(now.Add(o.ttl), *c.ExpiresAt).Truncate(time.Second),
	})
	// Less than a second is left.
	if !claims.ExpiresAt.After(now) {
		return Token{}, ErrExpired
	}
	text, err := o.key.Sign(claims)
	if err != nil {
		return Token{}, err
	}
	return Token{
		Text: text, ID: claims.TokenID, Plan: PlanRef{c.ID, MemoryCallID, c.Revision}, Decision: decision, ExpiresAt: claims.ExpiresAt,
		WorkflowID: agent.MemoryWriteWorkflowID(person.Tenant, c.ID), signal: agent.SignalMemoryDecision,
	}, nil
}

// MemoryStanding returns a proposed memory as it stands, decided or not and without
// its content, for the user whom it comes from and for whoever may review it:
// ErrNotFound for everybody else.
func (o *Office) MemoryStanding(ctx context.Context, person Approver, id string) (db.MemoryCandidate, error) {
	c, err := o.standing(ctx, person, id)
	if err != nil {
		return db.MemoryCandidate{}, fmt.Errorf("look up memory: %w", err)
	}
	c.Content = nil
	return c, nil
}

func (o *Office) standing(ctx context.Context, person Approver, id string) (db.MemoryCandidate, error) {
	if err := person.check(); err != nil {
		return db.MemoryCandidate{}, err
	}
	c, err := o.db.CandidateOfTenant(ctx, person.Tenant, id)
	if err != nil {
		return db.MemoryCandidate{}, own(err)
	}
	if person.User != c.Room.Scope.User {
		return c, hidden(MayReview(o.policies, c, person.User))
	}
	return c, nil
}

// hidden keeps who may not decide about a candidate from learning that there is
// one.
func hidden(err error) error {
	if errors.Is(err, ErrForbidden) {
		return ErrNotFound
	}
	return err
}

func (o *Office) mayDecide(c db.MemoryCandidate, person Approver) error {
	if c.State == agent.MemoryWaitingReview {
		return MayReview(o.policies, c, person.User)
	}
	if person.User != c.Room.Scope.User {
		return fmt.Errorf("%w: the user alone confirms it", ErrForbidden)
	}
	return nil
}

// MayReview returns nil, ErrForbidden or ErrUnavailable. Whoever a memory comes
// from never reviews it, whatever the policies say.
func MayReview(policies *authz.Policies, c db.MemoryCandidate, person string) error {
	if person == c.Room.Scope.User {
		return fmt.Errorf("%w: a memory is reviewed by somebody else than whom it comes from", ErrForbidden)
	}
	arguments, err := json.Marshal(map[string]string{
		"kind": string(c.Kind), "key": c.Key, "scope": string(c.Scope.Kind), "scope_id": c.Scope.ID, "source_type": string(c.SourceType),
	})
	if err != nil {
		return fmt.Errorf("%w: the candidate has no JSON form", ErrUnavailable)
	}
	return policies.Decide(authz.Question{
		Action: authz.Review, Tenant: c.Room.Scope.Tenant, Environment: c.Room.Scope.Environment, Agent: c.Room.Agent,
		User: person, Requester: c.Room.Scope.User, Tool: MemoryTool, Risk: string(tool.Write), Object: "memory/" + c.Key, Arguments: arguments,
	})
}

// MemoryClaims returns claims with everything that binds a token to a waiting
// candidate; who decides what, and the times, are left as they are.
func MemoryClaims(c db.MemoryCandidate, claims Claims) Claims {
	claims.RunID, claims.CallID, claims.Revision = c.ID, MemoryCallID, c.Revision
	claims.Tool, claims.ToolVersion, claims.ResourceVersion = MemoryTool, c.PolicyVersion, c.PolicyDigest
	claims.ArgumentsHash, claims.PlanHash, claims.Nonce = c.ValueHash, c.PlanHash, c.Nonce
	return claims
}

// verifyMemory returns ErrDamaged unless the candidate is what its hash was made
// of.
func verifyMemory(c db.MemoryCandidate) error {
	hash, err := MemoryHash(c)
	if err != nil || hash != c.PlanHash {
		return fmt.Errorf("%w: memory %s, revision %d; find out who wrote to the database, and forget it", ErrDamaged, c.ID, c.Revision)
	}
	return nil
}

// MemoryHash returns the SHA-256 in hex of the canonical JSON (RFC 8785) of all
// that a person decides about: the candidate as it waits, what would be kept, what
// that would end, where it comes from, by which policy and until when, with the
// nonce. Two candidates that differ in one of these differ in their hash. It
// returns an error for a candidate that does not wait, and for text that is not
// UTF-8.
func MemoryHash(c db.MemoryCandidate) (string, error) {
	if c.Content == nil || c.Content.Plan == nil || c.ExpiresAt == nil {
		return "", errors.New("hash memory: the candidate does not wait for anybody")
	}
	p, content := c.Content.Plan, c.Content
	texts := map[string]string{
		"tenant": c.Room.Scope.Tenant, "user": c.Room.Scope.User, "environment": c.Room.Scope.Environment, "conversation": c.Room.Conversation,
		"group": c.Room.Group, "project": c.Room.Project, "agent": c.Room.Agent, "id": c.ID, "run_id": c.RunID, "state": string(c.State),
		"scope": string(c.Scope.Kind), "scope_id": c.Scope.ID, "kind": string(c.Kind), "key": c.Key,
		"value": string(p.Value), "value_hash": c.ValueHash, "purpose": p.Purpose, "expires_at": timeOrNever(p.ExpiresAt),
		"valid_from": timeOrNever(content.ValidFrom), "valid_until": timeOrNever(content.ValidUntil),
		"consent_basis": p.ConsentBasis, "sensitivity": p.Sensitivity, "step": p.Step,
		"source_type": string(c.SourceType), "source_id": c.SourceID, "writer": c.Writer, "message_id": content.MessageID, "quote": content.Quote,
		"policy_version": c.PolicyVersion, "policy_digest": c.PolicyDigest, "decide_until": timeOrNever(c.ExpiresAt), "nonce": c.Nonce,
	}
	object := map[string]any{"revision": c.Revision, "retracts": content.Retracts, "ends": append([]agent.MemoryVersion{}, p.Ends...)}
	for name, text := range texts {
		if !utf8.ValidString(text) {
			return "", fmt.Errorf("hash memory: %s is not valid UTF-8", name)
		}
		object[name] = text
	}
	text, err := json.Marshal(object)
	if err == nil {
		text, err = jcs.Transform(text)
	}
	if err != nil {
		// The library's error quotes the text.
		return "", errors.New("hash memory: the candidate has no canonical form")
	}
	return tool.Hash(text), nil
}

func timeOrNever(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format(planTime)
}

func toMemory(c db.MemoryCandidate) Memory {
	content, p := c.Content, c.Content.Plan
	return Memory{
		ID: c.ID, Revision: c.Revision, State: c.State, User: c.Room.Scope.User, Room: c.Room, Scope: c.Scope, Kind: c.Kind, Key: c.Key,
		Retracts: content.Retracts, Value: p.Value, Purpose: p.Purpose, ExpiresAt: p.ExpiresAt, ValidFrom: content.ValidFrom, ValidUntil: content.ValidUntil,
		ConsentBasis: p.ConsentBasis, Sensitivity: p.Sensitivity, Step: p.Step, Ends: p.Ends,
		SourceType: c.SourceType, SourceID: c.SourceID, Writer: c.Writer, RunID: c.RunID, MessageID: content.MessageID, Quote: content.Quote,
		Rules: c.Rules, PolicyVersion: c.PolicyVersion, Hash: c.PlanHash, ProposedAt: c.CreatedAt, DecideUntil: *c.ExpiresAt,
	}
}
