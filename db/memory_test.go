package db_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

// written is when the records of these tests were written.
var written = time.Date(2025, 7, 25, 2, 0, 0, 0, time.UTC)

func roomOf(tenant, user string) agent.MemoryRoom {
	return agent.MemoryRoom{Scope: agent.Scope{Tenant: tenant, User: user, Environment: "production"}, Agent: "helper"}
}

func ofUser(room agent.MemoryRoom) agent.MemoryScope {
	return agent.MemoryScope{Kind: agent.MemoryOfUser, ID: room.Scope.User}
}

// recordOf is the first version of a record with a JSON value.
func recordOf(id, value string) db.MemoryRecord {
	return db.MemoryRecord{
		ID: id, Version: 1, Agent: "helper", Kind: agent.MemoryPreference, Key: "tone", Value: json.RawMessage(value),
		Evidence:   db.MemoryEvidence{MessageID: "question-r1", Quote: "because " + value, Purpose: "answers"},
		SourceType: agent.SourceUserStatement, SourceID: "question-r1", Writer: "agent:helper@1", RunID: "r1", Conversation: "c", CandidateID: "c-" + id,
		Confidence: 0.8, Validation: agent.MemoryUserStated, ConsentBasis: "user_request", Sensitivity: "normal", WrittenAt: written,
		Rules: []agent.MemoryRule{{ID: "kind.allowed", Text: "may come from user_statement"}}, PolicyVersion: "1", PolicyDigest: digest,
	}
}

// store stores a record in a scope of a room, as the newest version of what is in
// force under its key and identity if anything is.
func store(d *db.DB, room agent.MemoryRoom, scope agent.MemoryScope, r db.MemoryRecord, index db.MemoryIndex) error {
	return d.InMemory(ctx, room, scope, func(m *db.MemoryTx) error {
		held, err := m.HoldIdentity(ctx, r.Key, r.Identity)
		if err != nil {
			return err
		}
		for _, old := range held {
			m.EndRecord(old, db.MemorySuperseded, "candidate:"+r.CandidateID, r.WrittenAt)
			r.ID, r.Version = old.ID, old.Version+1
		}
		m.StoreRecord(r, index)
		return nil
	})
}

// remember stores records of a room's user.
func remember(t testing.TB, d *db.DB, room agent.MemoryRoom, records ...db.MemoryRecord) {
	t.Helper()
	for _, r := range records {
		if err := store(d, room, ofUser(room), r, db.MemoryIndex{Tokens: []string{"short", "answers"}}); err != nil {
			t.Fatalf("remember %s: %v", r.ID, err)
		}
	}
}

// proposalOf is a proposal of a room's user.
func proposalOf(room agent.MemoryRoom, id, value string) db.MemoryCandidate {
	return db.MemoryCandidate{
		ID: id, Room: room, RunID: "r1", Scope: ofUser(room), Kind: agent.MemoryPreference, Key: "tone", SourceType: agent.SourceUserStatement,
		SourceID: "question-r1", Writer: "agent:helper@1", State: agent.MemoryProposed, PolicyVersion: "1", PolicyDigest: digest,
		Content: &agent.MemoryCandidate{
			Kind: agent.MemoryPreference, Key: "tone", Value: []byte(value), SourceType: agent.SourceUserStatement, SourceID: "question-r1",
			Writer: "agent:helper@1", MessageID: "question-r1", Quote: "because " + value, ValidFrom: &written,
		},
	}
}

func propose(t testing.TB, d *db.DB, room agent.MemoryRoom, id, value string) db.MemoryCandidate {
	t.Helper()
	c, err := d.ProposeMemory(ctx, proposalOf(room, id, value))
	if err != nil {
		t.Fatalf("propose %s: %v", id, err)
	}
	return c
}

// decide moves a candidate of a room's user to a state.
func decide(d *db.DB, room agent.MemoryRoom, id string, change func(*db.MemoryCandidate)) error {
	return d.InMemory(ctx, room, ofUser(room), func(m *db.MemoryTx) error {
		c, err := m.HoldCandidate(ctx, id)
		if err != nil {
			return err
		}
		change(&c)
		m.UpdateCandidate(c)
		return nil
	})
}

func countRows(t testing.TB, owner *pgxpool.Pool, table, where string) (n int) {
	t.Helper()
	if err := owner.QueryRow(ctx, "SELECT count(*) FROM "+table+" WHERE "+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLTM2RecordKeepsItsProvenance reads back every field of a record.
func TestLTM2RecordKeepsItsProvenance(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	from, until, expires := written.Add(-time.Hour), written.Add(time.Hour), written.Add(time.Hour*1_000_000)
	r := recordOf("m1", `"short answers"`)
	r.Identity, r.ValidFrom, r.ValidUntil, r.ExpiresAt, r.DecidedBy = `{"service":"api"}`, &from, &until, &expires, "olga"
	remember(t, d, roomOf("acme", "ada"), r)
	want := r
	want.Scope, want.Subject, want.User, want.Environment = agent.MemoryScope{Kind: "user", ID: "ada"}, "ada", "ada", "production"
	want.Identity, want.Status = "", db.MemoryActive
	got, err := d.Memory(ctx, "acme", "ada", "m1")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.IdentityHash) != 64 || len(got.ValueHash) != 64 || got.ValueHash == got.IdentityHash || got.ValueHash == db.ContentHash([]byte(r.Value)) {
		t.Errorf("hashes %q and %q", got.IdentityHash, got.ValueHash)
	}
	want.IdentityHash, want.ValueHash = got.IdentityHash, got.ValueHash
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	// What must not be missing is refused by the database.
	owner := dbtest.Owner(t, url)
	for _, column := range []string{"source_type", "source_id", "writer", "candidate_id", "consent_basis", "sensitivity", "key", "subject", "user_id", "environment"} {
		if _, err := owner.Exec(ctx, "UPDATE memory_record SET "+column+" = ''"); err == nil {
			t.Errorf("a record without %s", column)
		}
	}
	for _, set := range []string{"confidence = 1.1", "validation = 'odd'", "kind = 'odd'", "status = 'active', ended_at = now()", "status = 'superseded'", "valid_until = valid_from"} {
		if _, err := owner.Exec(ctx, "UPDATE memory_record SET "+set); err == nil {
			t.Errorf("a record with %s", set)
		}
	}
}

// TestLTM3ProposeOnce: the same proposal is one, whoever asks how often, and what
// was refused leaves no content.
func TestLTM3ProposeOnce(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	room := roomOf("acme", "ada")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			c, err := d.ProposeMemory(ctx, proposalOf(room, "p1", `"short"`))
			if err != nil || c.State != agent.MemoryProposed || string(c.Content.Value) != `"short"` {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
	wg.Wait()
	if n := countRows(t, owner, "memory_candidate", "true"); n != 1 {
		t.Errorf("%d candidates", n)
	}
	c, err := d.MemoryCandidate(ctx, room, "p1")
	want := proposalOf(room, "p1", `"short"`)
	want.CreatedAt, want.UpdatedAt = c.CreatedAt, c.UpdatedAt
	if err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("got\n%+v\nwant\n%+v\n%v", c, want, err)
	}
	if _, err := d.ProposeMemory(ctx, proposalOf(room, "p1", `"long"`)); !errors.Is(err, db.ErrConflict) {
		t.Errorf("other content under the same id: %v", err)
	}
	other := room
	other.Conversation = "c2"
	if _, err := d.ProposeMemory(ctx, proposalOf(other, "p1", `"short"`)); !errors.Is(err, db.ErrConflict) {
		t.Errorf("another room under the same id: %v", err)
	}
	if _, err := d.ProposeMemory(ctx, proposalOf(roomOf("acme", "bob"), "p1", `"short"`)); !errors.Is(err, db.ErrConflict) {
		t.Errorf("another user under the same id: %v", err)
	}
	refused := proposalOf(room, "p2", `"`+canary+`"`)
	refused.State, refused.Key, refused.Scope = agent.MemoryRejected, "", agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "elsewhere"}
	refused.Rules = []agent.MemoryRule{{ID: "detector.secret", Text: "a password"}}
	for range 2 {
		c, err := d.ProposeMemory(ctx, refused)
		if err != nil || c.State != agent.MemoryRejected || c.Content != nil || c.Key != "" || c.Rules[0].ID != "detector.secret" {
			t.Errorf("refused %+v, %v", c, err)
		}
	}
	if n := countRows(t, owner, "memory_candidate", "id = 'p2' AND content IS NULL AND value_hash = ''"); n != 1 {
		t.Error("content of what was refused is kept")
	}
	if _, err := owner.Exec(ctx, "UPDATE memory_candidate SET content = (SELECT content FROM memory_candidate WHERE id = 'p1') WHERE id = 'p2'"); err == nil {
		t.Error("a refused candidate can have content")
	}
	odd := proposalOf(room, "p3", `"x"`)
	odd.State = agent.MemoryStored
	if _, err := d.ProposeMemory(ctx, odd); err == nil {
		t.Error("a new candidate may be stored already")
	}
	if tenants, err := d.MemoryTenants(ctx); err != nil || !reflect.DeepEqual(tenants, []string{"acme"}) {
		t.Errorf("tenants %v, %v", tenants, err)
	}
}

// TestLTM3DecidedOnce: a candidate waits with what a token is bound to, and what
// was decided stays so, without content.
func TestLTM3DecidedOnce(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	room := roomOf("acme", "ada")
	propose(t, d, room, "p1", `"short"`)
	until := written.Add(1_000_000 * time.Hour)
	err := decide(d, room, "p1", func(c *db.MemoryCandidate) {
		c.State, c.Revision, c.Nonce, c.PlanHash, c.ExpiresAt, c.ValueHash = agent.MemoryWaitingConfirmation, 1, "n", digest, &until, digest
		c.Content.Value = []byte(`"brief"`) // Normalized.
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.MemoryCandidate(ctx, room, "p1")
	if err != nil || c.State != agent.MemoryWaitingConfirmation || c.Revision != 1 || c.Nonce != "n" || c.PlanHash != digest || !c.ExpiresAt.Equal(until) ||
		c.ValueHash != digest || string(c.Content.Value) != `"brief"` || !c.Verdict().Until.Equal(until) {
		t.Errorf("waiting %+v, %v", c, err)
	}
	// Two decide at once: the second one waits and sees the decision.
	var wg sync.WaitGroup
	seen := make([]agent.MemoryState, 8)
	for i := range seen {
		wg.Go(func() {
			err := d.InMemory(ctx, room, ofUser(room), func(m *db.MemoryTx) error {
				c, err := m.HoldCandidate(ctx, "p1")
				if err != nil {
					return err
				}
				seen[i] = c.State
				if c.State.Final() {
					return nil
				}
				c.State, c.Record, c.RecordVersion, c.DecidedBy, c.TokenID = agent.MemoryStored, "m1", 3, "ada", "t1"
				m.UpdateCandidate(c)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	waiting := 0
	for _, state := range seen {
		if state == agent.MemoryWaitingConfirmation {
			waiting++
		}
	}
	if waiting != 1 {
		t.Errorf("%d decided: %v", waiting, seen)
	}
	c, err = d.MemoryCandidate(ctx, room, "p1")
	if err != nil || c.State != agent.MemoryStored || c.Content != nil || c.Record != "m1" || c.RecordVersion != 3 || c.DecidedBy != "ada" || c.TokenID != "t1" {
		t.Errorf("stored %+v, %v", c, err)
	}
	err = decide(d, room, "p1", func(c *db.MemoryCandidate) { c.State = agent.MemoryDeclined })
	if !errors.Is(err, db.ErrConflict) {
		t.Errorf("decided twice: %v", err)
	}
	if _, err := d.ProposeMemory(ctx, proposalOf(room, "p1", `"short"`)); err != nil {
		t.Errorf("proposed again: %v", err)
	}
	// By the database, whoever asks and however.
	for _, from := range []agent.MemoryState{agent.MemoryStored, agent.MemoryMerged, agent.MemoryRejected, agent.MemoryDeclined, agent.MemoryExpired} {
		id := "final-" + string(from)
		propose(t, d, room, id, `"x"`)
		if err := decide(d, room, id, func(c *db.MemoryCandidate) { c.State = from }); err != nil {
			t.Fatal(err)
		}
		if _, err := dbtest.Owner(t, url).Exec(ctx, "UPDATE memory_candidate SET state = 'proposed' WHERE id = $1", id); err == nil || !strings.Contains(err.Error(), "FL006") {
			t.Errorf("%s is not final: %v", from, err)
		}
	}
}

// TestLTM4OneInForce lets sixteen writers say something about one thing at once:
// one version is in force, and the history is there.
func TestLTM4OneInForce(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	room := roomOf("acme", "ada")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			r := recordOf(fmt.Sprint("m", i), fmt.Sprintf(`"value %d"`, i))
			if err := store(d, room, ofUser(room), r, db.MemoryIndex{Tokens: []string{fmt.Sprint("word", i)}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := countRows(t, owner, "memory_record", "status = 'active' AND version = 16"); n != 1 {
		t.Errorf("%d in force", n)
	}
	if n := countRows(t, owner, "memory_record", "status = 'superseded' AND ended_at = written_at AND ended_by LIKE 'candidate:%'"); n != 15 {
		t.Errorf("%d superseded", n)
	}
	if n := countRows(t, owner, "memory_keyword", "version = 16"); n != 1 || countRows(t, owner, "memory_keyword", "true") != 1 {
		t.Errorf("%d rows of words for the version in force", n)
	}
	all, err := d.Memories(ctx, "acme", "ada", db.MemoryFilter{Past: true})
	values := map[string]bool{}
	for _, m := range all {
		values[string(m.Value)] = true
	}
	if err != nil || len(all) != 16 || len(values) != 16 || all[0].Version != 16 || all[15].Version != 1 {
		t.Errorf("history of %d versions and %d values, %v", len(all), len(values), err)
	}
	if now, err := d.Memories(ctx, "acme", "ada", db.MemoryFilter{}); err != nil || len(now) != 1 || now[0].Version != 16 {
		t.Errorf("in force %+v, %v", now, err)
	}
}

// TestLTM4NeverTwoInForce writes without looking: the database refuses the second.
func TestLTM4NeverTwoInForce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	room := roomOf("acme", "ada")
	blind := func(r db.MemoryRecord) error {
		return d.InMemory(ctx, room, ofUser(room), func(m *db.MemoryTx) error { m.StoreRecord(r, db.MemoryIndex{}); return nil })
	}
	day := func(n int) *time.Time { at := written.AddDate(0, 0, n); return &at }
	during := func(id string, from, until *time.Time) db.MemoryRecord {
		r := recordOf(id, `"Lisbon"`)
		r.ValidFrom, r.ValidUntil = from, until
		return r
	}
	named := recordOf("m9", `"Lisbon"`)
	named.Identity = `{"service":"api"}`
	for _, c := range []struct {
		what   string
		record db.MemoryRecord
		want   error
	}{
		{"an interval", during("m1", day(0), day(10)), nil},
		{"a second one that touches it", during("m2", day(10), day(20)), nil},
		{"a disjoint one", during("m3", day(30), nil), nil},
		{"another identity", named, nil},
		{"one that overlaps", during("m4", day(9), day(11)), db.ErrConflict},
		{"one inside", during("m5", day(40), day(50)), db.ErrConflict},
		{"one without bounds", during("m6", nil, nil), db.ErrConflict},
		{"a version that exists", during("m1", day(21), day(22)), db.ErrConflict},
	} {
		if err := blind(c.record); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	err := d.InMemory(ctx, room, ofUser(room), func(m *db.MemoryTx) error {
		held, err := m.HoldIdentity(ctx, "tone", "")
		if err != nil || len(held) != 3 || held[0].ID != "m1" || held[1].ID != "m2" || held[2].ID != "m3" {
			t.Errorf("%d held, %v", len(held), err)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestLTM4Repeated: what is said again is noted, and changes nothing else.
func TestLTM4Repeated(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	room := roomOf("acme", "ada")
	remember(t, d, room, recordOf("m1", `"short"`))
	before, err := d.Memory(ctx, "acme", "ada", "m1")
	if err != nil {
		t.Fatal(err)
	}
	at := written.Add(time.Hour)
	for range 3 {
		if err := d.InMemory(ctx, room, ofUser(room), func(m *db.MemoryTx) error { m.RepeatRecord(before, at, nil); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	want := before
	want.Repeats, want.RepeatedAt = 3, &at
	if after, err := d.Memory(ctx, "acme", "ada", "m1"); err != nil || !reflect.DeepEqual(after, want) {
		t.Errorf("got %+v, want %+v, %v", after, want, err)
	}
	// What is not in force any more cannot be repeated or ended.
	end := func(m *db.MemoryTx) error { m.EndRecord(before, db.MemoryRetracted, "ada", at); return nil }
	if err := d.InMemory(ctx, room, ofUser(room), end); err != nil {
		t.Fatal(err)
	}
	if err := d.InMemory(ctx, room, ofUser(room), end); !errors.Is(err, db.ErrConflict) {
		t.Errorf("ended twice: %v", err)
	}
	if err := d.InMemory(ctx, room, ofUser(room), func(m *db.MemoryTx) error { m.RepeatRecord(before, at, nil); return nil }); !errors.Is(err, db.ErrConflict) {
		t.Errorf("repeated after its end: %v", err)
	}
	past, err := d.Memories(ctx, "acme", "ada", db.MemoryFilter{Past: true})
	if err != nil || len(past) != 1 || past[0].Status != db.MemoryRetracted || string(past[0].Value) != `"short"` || past[0].EndedBy != "ada" || !past[0].EndedAt.Equal(at) {
		t.Errorf("history %+v, %v", past, err)
	}
}

// TestMemoryTxAddressesItsScopeOnly: what is passed in does not lead elsewhere.
func TestMemoryTxAddressesItsScopeOnly(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	room := roomOf("acme", "ada")
	remember(t, d, room, recordOf("m1", `"short"`))
	r := recordOf("m2", `"long"`)
	r.Key, r.Scope, r.Subject, r.User, r.Environment = "other", agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "bob"}, "bob", "bob", "staging"
	if err := store(d, room, ofUser(room), r, db.MemoryIndex{}); err != nil {
		t.Fatal(err)
	}
	if m, err := d.Memory(ctx, "acme", "ada", "m2"); err != nil || m.Scope.ID != "ada" || m.Subject != "ada" || m.User != "ada" || m.Environment != "production" {
		t.Errorf("%+v, %v", m, err)
	}
	foreign, err := d.Memory(ctx, "acme", "ada", "m1")
	if err != nil {
		t.Fatal(err)
	}
	foreign.Scope.ID = "bob"
	candidate := proposalOf(room, "p1", `"x"`)
	candidate.Scope.ID = "bob"
	for what, change := range map[string]func(*db.MemoryTx){
		"end":       func(m *db.MemoryTx) { m.EndRecord(foreign, db.MemoryRetracted, "ada", written) },
		"repeat":    func(m *db.MemoryTx) { m.RepeatRecord(foreign, written, nil) },
		"candidate": func(m *db.MemoryTx) { m.UpdateCandidate(candidate) },
	} {
		if err := d.InMemory(ctx, room, ofUser(room), func(m *db.MemoryTx) error { change(m); return nil }); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	empty := recordOf("m3", "")
	if err := store(d, room, ofUser(room), empty, db.MemoryIndex{}); err == nil {
		t.Error("a record without a value")
	}
}

// TestMemoryHashIsKeyed: the same for the same value, and nobody else's.
func TestMemoryHashIsKeyed(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	hash := func(room agent.MemoryRoom) (sum string) {
		t.Helper()
		if err := d.InMemory(ctx, room, ofUser(room), func(m *db.MemoryTx) error { sum = m.Hash([]byte(`"short"`)); return nil }); err != nil {
			t.Fatal(err)
		}
		return sum
	}
	first := hash(roomOf("acme", "ada"))
	if len(first) != 64 || first != hash(roomOf("acme", "ada")) || first == hash(roomOf("acme", "bob")) || first == hash(roomOf("umbrella", "ada")) {
		t.Errorf("%q", first)
	}
	remember(t, d, roomOf("acme", "ada"), recordOf("m1", `"short"`))
	if m, err := d.Memory(ctx, "acme", "ada", "m1"); err != nil || m.ValueHash != first {
		t.Errorf("stored with %q, %v", m.ValueHash, err)
	}
}
