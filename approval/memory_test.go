package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
)

// reviewPolicies: bob and ada are reviewers. ada's own memories are shut to her by
// the program itself.
var reviewPolicies = fstest.MapFS{
	"p.cedar": {Data: []byte(`permit (principal, action == Action::"review", resource) when { principal in context.memory_reviewers };
@id("no-tasks") forbid (principal, action == Action::"review", resource) when { context.arguments.kind == "ongoing_task" };`)},
	"entities.json": {Data: []byte(`[
{"uid": {"type": "User", "id": "acme/ada"}, "parents": [{"type": "Group", "id": "acme/memory_reviewers"}], "attrs": {}},
{"uid": {"type": "User", "id": "acme/bob"}, "parents": [{"type": "Group", "id": "acme/memory_reviewers"}], "attrs": {}},
{"uid": {"type": "User", "id": "umbrella/bob"}, "parents": [{"type": "Group", "id": "umbrella/memory_reviewers"}], "attrs": {}}
]`)},
}

func openReviews(t *testing.T) *office {
	t.Helper()
	o := open(t)
	var err error
	o.Office, err = approval.Open(approval.Config{DB: o.db, Key: o.key, Policies: reviewPolicies, Now: func() time.Time { return o.now }})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const quote = "Use production from now on, please."

// candidate is one of a user that waits; edit changes it before it is stored.
func (o *office) candidate(t *testing.T, user, id string, state agent.MemoryState, edit func(*db.MemoryCandidate)) db.MemoryCandidate {
	t.Helper()
	room := agent.MemoryRoom{Scope: agent.Scope{Tenant: "acme", User: user, Environment: "production"}, Agent: "helper"}
	scope := agent.MemoryScope{Kind: agent.MemoryOfUser, ID: user}
	expires, until := o.now.Add(365*24*time.Hour), o.now.Add(72*time.Hour)
	proposed := db.MemoryCandidate{
		ID: id, Room: room, RunID: "run-1", Scope: scope, Kind: agent.MemoryPreference, Key: "preference.default_environment",
		SourceType: agent.SourceUserStatement, SourceID: "q-1", Writer: "agent:helper@3", State: agent.MemoryProposed,
		PolicyVersion: "7", PolicyDigest: hexOf("d"), Rules: []agent.MemoryRule{{ID: "mode.confirm", Text: "the user is asked"}},
		Content: &agent.MemoryCandidate{
			Kind: agent.MemoryPreference, Key: "preference.default_environment", Value: []byte(`"production"`), SourceType: agent.SourceUserStatement,
			SourceID: "q-1", Writer: "agent:helper@3", MessageID: "q-1", Quote: quote,
		},
	}
	if edit != nil {
		edit(&proposed)
	}
	if _, err := o.db.ProposeMemory(ctx, proposed); err != nil {
		t.Fatal(err)
	}
	var waiting db.MemoryCandidate
	err := o.db.InMemory(ctx, room, scope, func(tx *db.MemoryTx) error {
		c, err := tx.HoldCandidate(ctx, id)
		if err != nil {
			return err
		}
		c.State, c.Revision, c.Nonce, c.ExpiresAt, c.ValueHash = state, 1, approval.Nonce(), &until, tx.Hash([]byte(`"production"`))
		c.Content.Plan = &agent.MemoryPlan{
			Value: []byte(`"production"`), Purpose: "To know which environment is meant.", ExpiresAt: &expires, ConsentBasis: "confirmed_by_user",
			Sensitivity: "normal", Step: "replace", Ends: []agent.MemoryVersion{{Record: "r-1", Version: 3}},
		}
		if c.PlanHash, err = approval.MemoryHash(c); err != nil {
			return err
		}
		tx.UpdateCandidate(c)
		waiting = c
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return waiting
}

func memories(t *testing.T, o *office, who approval.Approver, f approval.MemoryFilter) approval.PendingMemories {
	t.Helper()
	found, err := o.PendingMemories(ctx, who, f)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func memoryIDs(list []approval.Memory) string {
	var ids []string
	for _, m := range list {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}

func TestLTM3ShowsExactlyWhatIsKept(t *testing.T) {
	t.Parallel()
	o := openReviews(t)
	c := o.candidate(t, "ada", "m-1", agent.MemoryWaitingConfirmation, nil)
	found := memories(t, o, ada, approval.MemoryFilter{})
	if len(found.Confirm) != 1 || len(found.Review) != 0 || found.Forbidden != 0 || len(found.Damaged) != 0 || found.More {
		t.Fatalf("%+v", found)
	}
	m := found.Confirm[0]
	if m.ProposedAt.IsZero() {
		t.Error("nobody can see when it was proposed")
	}
	m.ProposedAt = time.Time{}
	expires := o.now.Add(365 * 24 * time.Hour)
	want := approval.Memory{
		ID: "m-1", Revision: 1, State: agent.MemoryWaitingConfirmation, User: "ada", Room: c.Room, Scope: agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ada"},
		Kind: agent.MemoryPreference, Key: "preference.default_environment", Value: []byte(`"production"`), Purpose: "To know which environment is meant.",
		ConsentBasis: "confirmed_by_user", Sensitivity: "normal", Step: "replace", Ends: []agent.MemoryVersion{{Record: "r-1", Version: 3}},
		SourceType: agent.SourceUserStatement, SourceID: "q-1", Writer: "agent:helper@3", RunID: "run-1", MessageID: "q-1", Quote: quote,
		Rules: []agent.MemoryRule{{ID: "mode.confirm", Text: "the user is asked"}}, PolicyVersion: "7", Hash: c.PlanHash, DecideUntil: o.now.Add(72 * time.Hour),
	}
	if m.ExpiresAt == nil || !m.ExpiresAt.Equal(expires) {
		t.Errorf("kept until %v, want %v", m.ExpiresAt, expires)
	}
	m.ExpiresAt = nil
	if fmt.Sprintf("%+v", m) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", m, want)
	}
}

// TestLTM3WhoSees: the user sees the own confirmations, a reviewer the reviews of
// others, and nobody else anything.
func TestLTM3WhoSees(t *testing.T) {
	t.Parallel()
	o := openReviews(t)
	o.candidate(t, "ada", "m-1", agent.MemoryWaitingConfirmation, nil)
	o.candidate(t, "ada", "m-2", agent.MemoryWaitingReview, nil)
	o.candidate(t, "carl", "m-3", agent.MemoryWaitingReview, nil)
	o.candidate(t, "carl", "m-4", agent.MemoryWaitingReview, func(c *db.MemoryCandidate) { c.Kind = agent.MemoryTask })
	for name, c := range map[string]struct {
		who             approval.Approver
		filter          approval.MemoryFilter
		confirm, review string
		forbidden       int
		more            bool
	}{
		"a user who reviews":  {ada, approval.MemoryFilter{}, "m-1", "m-3", 2, false},
		"a reviewer":          {bob, approval.MemoryFilter{}, "", "m-2 m-3", 1, false},
		"a page":              {bob, approval.MemoryFilter{Limit: 1}, "", "m-2", 0, true},
		"another environment": {bob, approval.MemoryFilter{Environment: "test"}, "", "", 0, false},
		"nobody's reviewer":   {carl, approval.MemoryFilter{}, "", "", 3, false},
		"another tenant":      {stranger, approval.MemoryFilter{}, "", "", 0, false},
	} {
		found := memories(t, o, c.who, c.filter)
		if memoryIDs(found.Confirm) != c.confirm || memoryIDs(found.Review) != c.review || found.Forbidden != c.forbidden || found.More != c.more {
			t.Errorf("%s: confirm %q, review %q, forbidden %d, more %t", name, memoryIDs(found.Confirm), memoryIDs(found.Review), found.Forbidden, found.More)
		}
	}
	o.now = o.now.Add(72 * time.Hour)
	if found := memories(t, o, ada, approval.MemoryFilter{}); len(found.Confirm)+len(found.Review) != 0 {
		t.Errorf("after the time to decide: %+v", found)
	}
}

// TestLTM3TokenIsBound: a token names the candidate, its revision, the value's
// hash, the policy and the plan, and goes to the write of that memory.
func TestLTM3TokenIsBound(t *testing.T) {
	t.Parallel()
	o := openReviews(t)
	c := o.candidate(t, "ada", "m-1", agent.MemoryWaitingConfirmation, nil)
	shown := memories(t, o, ada, approval.MemoryFilter{}).Confirm[0]
	for decision, decide := range map[approval.Decision]func(context.Context, approval.Approver, approval.Memory) (approval.Token, error){
		approval.Approve: o.ConfirmMemory, approval.Decline: o.DeclineMemory,
	} {
		token, err := decide(ctx, ada, approval.Memory{ID: shown.ID, Revision: shown.Revision, Hash: shown.Hash})
		if err != nil {
			t.Fatal(err)
		}
		verifier, err := approval.NewVerifier(o.key.Public())
		if err != nil {
			t.Fatal(err)
		}
		claims, code := verifier.Verify(token.Text, o.now)
		want := approval.Claims{
			TokenID: token.ID, Decision: decision, Approver: "ada", Tenant: "acme", RunID: "m-1", CallID: "memory", Revision: 1,
			Tool: "memory_write", ToolVersion: "7", ArgumentsHash: c.ValueHash, ResourceVersion: hexOf("d"), PlanHash: c.PlanHash, Nonce: c.Nonce,
			IssuedAt: o.now.Truncate(time.Second), ExpiresAt: o.now.Add(15 * time.Minute).Truncate(time.Second),
		}
		if code != "" || claims != want {
			t.Errorf("code %q, claims\n%+v\nwant\n%+v", code, claims, want)
		}
		var signal sent
		if err := o.Send(ctx, &signal, token); err != nil || !slices.Equal(signal.signals, []string{`memory_decision to memory-write~acme~m-1, run ""`}) || signal.args[0] != (agent.Approval{Token: token.Text}) {
			t.Errorf("sent %+v, %v", signal, err)
		}
	}
}

// TestLTM3WhoMayNotSign: nobody signs for somebody else, and who may not is told
// nothing, not even that there is a memory.
func TestLTM3WhoMayNotSign(t *testing.T) {
	t.Parallel()
	o := openReviews(t)
	o.now = o.now.Truncate(time.Second).Add(400 * time.Millisecond)
	own := o.candidate(t, "ada", "m-1", agent.MemoryWaitingConfirmation, nil)
	review := o.candidate(t, "ada", "m-2", agent.MemoryWaitingReview, nil)
	of := func(c db.MemoryCandidate) approval.Memory {
		return approval.Memory{ID: c.ID, Revision: c.Revision, Hash: c.PlanHash}
	}
	changed, older := of(own), of(own)
	changed.Hash, older.Revision = hexOf("0"), 2
	for name, c := range map[string]struct {
		who   approval.Approver
		shown approval.Memory
		want  error
	}{
		"a reviewer confirms for the user": {bob, of(own), approval.ErrNotFound},
		"the user reviews":                 {ada, of(review), approval.ErrNotFound},
		"no reviewer reviews":              {carl, of(review), approval.ErrNotFound},
		"another tenant":                   {stranger, of(review), approval.ErrNotFound},
		"no such memory":                   {ada, approval.Memory{ID: "m-9"}, approval.ErrNotFound},
		"another hash":                     {ada, changed, approval.ErrChanged},
		"another revision":                 {ada, older, approval.ErrChanged},
	} {
		if _, err := o.ConfirmMemory(ctx, c.who, c.shown); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := o.ConfirmMemory(ctx, bob, of(review)); err != nil {
		t.Errorf("a reviewer reviews: %v", err)
	}
	unsigned, err := approval.Open(approval.Config{DB: o.db, Policies: reviewPolicies})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unsigned.ConfirmMemory(ctx, ada, of(own)); !errors.Is(err, approval.ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
	o.now = o.now.Add(72*time.Hour - 300*time.Millisecond)
	if _, err := o.ConfirmMemory(ctx, ada, of(own)); !errors.Is(err, approval.ErrExpired) {
		t.Errorf("with less than a second left: %v", err)
	}
	o.exec(t, "UPDATE memory_candidate SET state = 'declined', content = NULL, nonce = '', plan_hash = '' WHERE id = 'm-1'")
	if _, err := o.ConfirmMemory(ctx, ada, of(own)); !errors.Is(err, approval.ErrDecided) {
		t.Errorf("after the decision: %v", err)
	}
	if _, err := o.ConfirmMemory(ctx, carl, of(own)); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("somebody else after the decision: %v", err)
	}
}

// TestMemoryStanding: how a proposal stands is for the user whom it comes from and
// for who may review it, decided or not, and never its content.
func TestMemoryStanding(t *testing.T) {
	t.Parallel()
	o := openReviews(t)
	o.candidate(t, "ada", "m-1", agent.MemoryWaitingConfirmation, nil)
	o.candidate(t, "ada", "m-2", agent.MemoryWaitingReview, nil)
	o.exec(t, "UPDATE memory_candidate SET state = 'declined', decided_by = 'ada', content = NULL, nonce = '', plan_hash = '' WHERE id = 'm-1'")
	for id, want := range map[string]agent.MemoryState{"m-1": agent.MemoryDeclined, "m-2": agent.MemoryWaitingReview} {
		for _, who := range []approval.Approver{ada, bob} {
			if c, err := o.MemoryStanding(ctx, who, id); err != nil || c.State != want || c.Content != nil || id == "m-1" && c.DecidedBy != "ada" {
				t.Errorf("%s for %s: %+v, %v", id, who.User, c, err)
			}
		}
		for _, who := range []approval.Approver{carl, stranger} {
			if c, err := o.MemoryStanding(ctx, who, id); !errors.Is(err, approval.ErrNotFound) || c.ID != "" {
				t.Errorf("%s for %s of %s: %+v, %v", id, who.User, who.Tenant, c, err)
			}
		}
	}
	if _, err := o.MemoryStanding(ctx, ada, "m-9"); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("no such memory: %v", err)
	}
	if _, err := o.MemoryStanding(ctx, approval.Approver{Tenant: "acme"}, "m-1"); err == nil {
		t.Error("nobody was told")
	}
}

// TestLTM3AlteredMemory: a candidate that is not what its hash was made of is
// neither shown nor signed, and keeps nobody from the others.
func TestLTM3AlteredMemory(t *testing.T) {
	t.Parallel()
	o := openReviews(t)
	o.candidate(t, "ada", "m-0", agent.MemoryWaitingConfirmation, nil)
	for i, sql := range []string{
		"UPDATE memory_candidate SET key = 'preference.food' WHERE id = $1",
		"UPDATE memory_candidate SET value_hash = repeat('0', 64) WHERE id = $1",
		"UPDATE memory_candidate SET nonce = 'x' WHERE id = $1",
		"UPDATE memory_candidate SET expires_at = expires_at + interval '1 day' WHERE id = $1",
		"UPDATE memory_candidate SET policy_version = '8' WHERE id = $1",
		"UPDATE memory_candidate SET policy_digest = '' WHERE id = $1",
		"UPDATE memory_candidate SET source_id = 'q-2' WHERE id = $1",
		"UPDATE memory_candidate SET source_type = 'trusted_tool' WHERE id = $1",
		"UPDATE memory_candidate SET writer = 'user:ada' WHERE id = $1",
		"UPDATE memory_candidate SET revision = 2 WHERE id = $1",
		"UPDATE memory_candidate SET agent = 'other' WHERE id = $1",
		"UPDATE memory_candidate SET content = (SELECT content FROM memory_candidate WHERE id = 'm-0') WHERE id = $1",
	} {
		id := fmt.Sprintf("m-%d", i+1)
		c := o.candidate(t, "ada", id, agent.MemoryWaitingConfirmation, nil)
		o.exec(t, sql, id)
		found := memories(t, o, ada, approval.MemoryFilter{})
		if memoryIDs(found.Confirm) != "m-0" || !slices.Contains(found.Damaged, id) {
			t.Errorf("%s: shown %q, damaged %v", sql, memoryIDs(found.Confirm), found.Damaged)
		}
		if _, err := o.ConfirmMemory(ctx, ada, approval.Memory{ID: id, Revision: c.Revision, Hash: c.PlanHash}); !errors.Is(err, approval.ErrDamaged) {
			t.Errorf("%s: signed with %v", sql, err)
		}
	}
}

// TestMemoryHash: whatever is decided about changes the hash.
func TestMemoryHash(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	base := func() db.MemoryCandidate {
		until := at
		return db.MemoryCandidate{
			ID: "m-1", Room: agent.MemoryRoom{Scope: scope, Agent: "helper"}, Scope: agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ada"},
			State: agent.MemoryWaitingReview, Revision: 1, ExpiresAt: &until,
			Content: &agent.MemoryCandidate{Quote: quote, Plan: &agent.MemoryPlan{Value: []byte(`"a"`), Step: "insert"}},
		}
	}
	hash := func(c db.MemoryCandidate) string {
		h, err := approval.MemoryHash(c)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	seen := map[string]string{hash(base()): "the candidate"}
	for name, edit := range map[string]func(*db.MemoryCandidate){
		"tenant":       func(c *db.MemoryCandidate) { c.Room.Scope.Tenant = "umbrella" },
		"user":         func(c *db.MemoryCandidate) { c.Room.Scope.User = "bob" },
		"environment":  func(c *db.MemoryCandidate) { c.Room.Scope.Environment = "test" },
		"conversation": func(c *db.MemoryCandidate) { c.Room.Conversation = "c" },
		"group":        func(c *db.MemoryCandidate) { c.Room.Group = "g" },
		"project":      func(c *db.MemoryCandidate) { c.Room.Project = "g" },
		"agent":        func(c *db.MemoryCandidate) { c.Room.Agent = "other" },
		"run":          func(c *db.MemoryCandidate) { c.RunID = "run-1" },
		"state":        func(c *db.MemoryCandidate) { c.State = agent.MemoryWaitingConfirmation },
		"scope":        func(c *db.MemoryCandidate) { c.Scope.Kind = agent.MemoryOfGroup },
		"scope ID":     func(c *db.MemoryCandidate) { c.Scope.ID = "bob" },
		"kind":         func(c *db.MemoryCandidate) { c.Kind = agent.MemoryTask },
		"key":          func(c *db.MemoryCandidate) { c.Key = "k" },
		"value":        func(c *db.MemoryCandidate) { c.Content.Plan.Value = []byte(`"b"`) },
		"value hash":   func(c *db.MemoryCandidate) { c.ValueHash = "x" },
		"purpose":      func(c *db.MemoryCandidate) { c.Content.Plan.Purpose = "x" },
		"retention":    func(c *db.MemoryCandidate) { c.Content.Plan.ExpiresAt = &at },
		"valid from":   func(c *db.MemoryCandidate) { c.Content.ValidFrom = &at },
		"valid until":  func(c *db.MemoryCandidate) { c.Content.ValidUntil = &at },
		"consent":      func(c *db.MemoryCandidate) { c.Content.Plan.ConsentBasis = "x" },
		"sensitivity":  func(c *db.MemoryCandidate) { c.Content.Plan.Sensitivity = "x" },
		"step":         func(c *db.MemoryCandidate) { c.Content.Plan.Step = "replace" },
		"ends":         func(c *db.MemoryCandidate) { c.Content.Plan.Ends = []agent.MemoryVersion{{Record: "r", Version: 1}} },
		"retracts":     func(c *db.MemoryCandidate) { c.Content.Retracts = true },
		"source type":  func(c *db.MemoryCandidate) { c.SourceType = agent.SourceTrustedTool },
		"source":       func(c *db.MemoryCandidate) { c.SourceID = "x" },
		"writer":       func(c *db.MemoryCandidate) { c.Writer = "x" },
		"message":      func(c *db.MemoryCandidate) { c.Content.MessageID = "x" },
		"quote":        func(c *db.MemoryCandidate) { c.Content.Quote = "x" },
		"policy":       func(c *db.MemoryCandidate) { c.PolicyVersion = "x" },
		"digest":       func(c *db.MemoryCandidate) { c.PolicyDigest = "x" },
		"deadline":     func(c *db.MemoryCandidate) { late := at.Add(time.Microsecond); c.ExpiresAt = &late },
		"nonce":        func(c *db.MemoryCandidate) { c.Nonce = "x" },
		"revision":     func(c *db.MemoryCandidate) { c.Revision = 2 },
	} {
		c := base()
		edit(&c)
		h := hash(c)
		if other, known := seen[h]; known {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[h] = name
	}
	if c := base(); len(hash(c)) != 64 {
		t.Errorf("hash %q", hash(c))
	}
	for name, edit := range map[string]func(*db.MemoryCandidate){
		"no plan": func(c *db.MemoryCandidate) { c.Content.Plan = nil }, "no content": func(c *db.MemoryCandidate) { c.Content = nil },
		"no deadline": func(c *db.MemoryCandidate) { c.ExpiresAt = nil }, "not UTF-8": func(c *db.MemoryCandidate) { c.Content.Quote = "\xff" },
	} {
		c := base()
		edit(&c)
		if h, err := approval.MemoryHash(c); err == nil {
			t.Errorf("%s: %s", name, h)
		}
	}
}
