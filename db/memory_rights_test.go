package db_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

// TestERASE1ListMemories pages, filters and goes back in time.
func TestERASE1ListMemories(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	room := roomOf("acme", "ada")
	at := func(id, key string, change func(*db.MemoryRecord)) db.MemoryRecord {
		r := recordOf(id, `"`+id+`"`)
		r.Key = key
		change(&r)
		return r
	}
	nothing := func(*db.MemoryRecord) {}
	remember(t, d, room, at("a", "tone", nothing), at("b", "city", nothing), at("c", "task", func(r *db.MemoryRecord) { r.Kind = agent.MemoryTask }),
		at("new", "tone", nothing)) // A second version of a.
	staging := room
	staging.Scope.Environment = "staging"
	remember(t, d, staging, at("d", "tone", nothing))
	b, err := d.Memory(ctx, "acme", "ada", "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.InMemory(ctx, room, ofUser(room), func(m *db.MemoryTx) error { m.EndRecord(b, db.MemoryRetracted, "ada", written); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		filter db.MemoryFilter
		want   string
	}{
		{db.MemoryFilter{}, "a2 c1 d1"},
		{db.MemoryFilter{Past: true}, "a2 a1 b1 c1 d1"},
		{db.MemoryFilter{Limit: 2}, "a2 c1"},
		{db.MemoryFilter{Limit: 2, After: "c"}, "d1"},
		{db.MemoryFilter{Limit: 2, Past: true}, "a2 a1 b1"},
		{db.MemoryFilter{Limit: 2, Past: true, After: "b"}, "c1 d1"},
		{db.MemoryFilter{Key: "tone"}, "a2 d1"},
		{db.MemoryFilter{Kind: agent.MemoryTask}, "c1"},
		{db.MemoryFilter{Environment: "staging"}, "d1"},
		{db.MemoryFilter{Environment: "test"}, ""},
	} {
		list, err := d.Memories(ctx, "acme", "ada", c.filter)
		var got []string
		for _, m := range list {
			got = append(got, fmt.Sprint(m.ID, m.Version))
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%+v lists %v, %v, want %s", c.filter, got, err, c.want)
		}
	}
}

// TestLTM9Trace answers of one record where it comes from, who wrote it, what let it
// in, and which runs it influenced.
func TestLTM9Trace(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	scope := scopeOf("acme")
	begin(t, d, scope, "c", "r1")
	begin(t, d, scope, "c", "r2")
	room := roomOf("acme", "ada")
	propose(t, d, room, "c-m1", `"short"`)
	propose(t, d, room, "c-again", `"short"`)
	propose(t, d, room, "c-other", `"other"`)
	err := d.InMemory(ctx, room, ofUser(room), func(m *db.MemoryTx) error {
		for _, id := range []string{"c-m1", "c-again"} {
			c, err := m.HoldCandidate(ctx, id)
			if err != nil {
				return err
			}
			c.State, c.Record, c.RecordVersion = agent.MemoryStored, "m1", 1
			if id == "c-again" {
				c.State = agent.MemoryMerged
			}
			m.UpdateCandidate(c)
		}
		m.StoreRecord(recordOf("m1", `"short"`), db.MemoryIndex{})
		m.Audit(db.MemoryAudit{At: written, Actor: "policy:1", Action: "stored", Candidate: "c-m1", Record: "m1", Version: 1, Detail: "kind.allowed"})
		m.Audit(db.MemoryAudit{Actor: "policy:1", Action: "merged", Candidate: "c-again"})
		m.Audit(db.MemoryAudit{Actor: "policy:1", Action: "held", Candidate: "c-other"})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, give := range []string{"('acme', 'r1', 'm1', 1, 'ada', 'ada', 2, 'exact')", "('acme', 'r2', 'm1', 1, 'ada', 'ada', 1, 'keyword+vector')"} {
		if _, err := owner.Exec(ctx, "INSERT INTO memory_influence (tenant, run_id, record_id, version, subject, user_id, rank, via) VALUES "+give); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"ada", ""} {
		trace, err := d.TraceMemory(ctx, "acme", user, "m1")
		if err != nil {
			t.Fatal(err)
		}
		if len(trace.Versions) != 1 || string(trace.Versions[0].Value) != `"short"` || trace.Versions[0].Writer != "agent:helper@1" || trace.Versions[0].Rules[0].ID != "kind.allowed" {
			t.Errorf("versions %+v", trace.Versions)
		}
		var candidates, runs, actions []string
		for _, c := range trace.Candidates {
			candidates = append(candidates, c.ID+" "+string(c.State))
		}
		for _, i := range trace.Influences {
			runs = append(runs, fmt.Sprint(i.RunID, " ", i.Record, i.Version, " ", i.User, " ", i.Rank, " ", i.Via))
		}
		for _, e := range trace.Audit {
			actions = append(actions, e.Action+" "+e.Candidate+" "+e.Subject+" "+e.User)
		}
		if !slices.Equal(candidates, []string{"c-m1 stored", "c-again merged"}) || !slices.Equal(runs, []string{"r1 m11 ada 2 exact", "r2 m11 ada 1 keyword+vector"}) ||
			!slices.Equal(actions, []string{"stored c-m1 ada ada", "merged c-again ada ada"}) || !trace.Audit[0].At.Equal(written) {
			t.Errorf("%v, %v, %v", candidates, runs, actions)
		}
		if s := trace.Source; s == nil || s.ID != "question-r1" || s.Content != "secret of acme" || s.Conversation != "c" || s.Role != db.RoleUser {
			t.Errorf("source %+v", s)
		}
		given, err := d.RunMemories(ctx, "acme", user, "r2")
		if err != nil || len(given) != 1 || given[0].Record != "m1" || given[0].Via != "keyword+vector" {
			t.Errorf("given %+v, %v", given, err)
		}
	}
	for _, who := range [][2]string{{"acme", "bob"}, {"umbrella", "ada"}, {"umbrella", ""}} {
		_, err1 := d.TraceMemory(ctx, who[0], who[1], "m1")
		_, err2 := d.RunMemories(ctx, who[0], who[1], "r2")
		_, none := d.RunMemories(ctx, who[0], who[1], "none")
		if !errors.Is(err1, db.ErrNotFound) || !errors.Is(err2, db.ErrNotFound) || err2.Error() != none.Error() {
			t.Errorf("%v: %v, %v", who, err1, err2)
		}
	}
	// A message that is somebody else's is shown to an operator only.
	bob := scope
	bob.User = "bob"
	begin(t, d, bob, "c-bob", "r-bob")
	foreign := recordOf("m2", `"x"`)
	foreign.Key, foreign.Evidence.MessageID = "city", "question-r-bob"
	remember(t, d, room, foreign)
	for user, want := range map[string]bool{"ada": false, "": true} {
		if trace, err := d.TraceMemory(ctx, "acme", user, "m2"); err != nil || (trace.Source != nil) != want {
			t.Errorf("%q is shown %+v, %v", user, trace.Source, err)
		}
	}
	// The trail is only ever added to.
	pool := app(t, url)
	for _, sql := range []string{
		"UPDATE memory_audit SET actor = 'x'", "DELETE FROM memory_audit", "UPDATE memory_influence SET rank = 9", "DELETE FROM memory_influence",
		"DELETE FROM memory_record", "UPDATE memory_record SET source_id = 'x'", "UPDATE memory_record SET writer = 'x'", "UPDATE memory_record SET room = 'x'",
		"UPDATE memory_record SET validation = 'trusted'", "UPDATE memory_record SET confidence = 1", "DELETE FROM memory_candidate", "DELETE FROM memory_erasure",
		"UPDATE memory_erasure SET user_id = 'x'", "DELETE FROM memory_participant", "DELETE FROM memory_lesson", "DELETE FROM memory_tenant", "TRUNCATE memory_keyword",
	} {
		if _, err := pool.Exec(ctx, sql); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: %v, want permission denied", sql, err)
		}
	}
}

// TestERASE1SharedRecords: of a record of a group a participant is shown what it
// holds, and of what led to it the own part. Who takes part no more is shown the
// versions that come from oneself.
func TestERASE1SharedRecords(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	group := agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g1"}
	for i, user := range []string{"ada", "bob"} {
		if err := d.AddParticipant(ctx, "acme", group, user, "olga"); err != nil {
			t.Fatal(err)
		}
		room := roomOf("acme", user)
		room.Group = "g1"
		c := proposalOf(room, "c-"+user, `"by `+user+`"`)
		c.Scope = group
		if _, err := d.ProposeMemory(ctx, c); err != nil {
			t.Fatal(err)
		}
		r := recordOf("m1", `"by `+user+`"`)
		r.CandidateID = "c-" + user
		if err := store(d, room, group, r, db.MemoryIndex{Tokens: []string{"by", user}}); err != nil {
			t.Fatal(err)
		}
		err := d.InMemory(ctx, room, group, func(m *db.MemoryTx) error {
			m.Audit(db.MemoryAudit{Actor: "user:" + user, Action: "stored", Record: "m1", Version: i + 1})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		scope := room.Scope
		begin(t, d, scope, "c-"+user, "r-"+user)
		if _, err := owner.Exec(ctx, `INSERT INTO memory_influence (tenant, run_id, record_id, version, subject, user_id, rank, via)
			VALUES ('acme', $1, 'm1', $2, '~group~g1', $3, 1, 'exact')`, "r-"+user, i+1, user); err != nil {
			t.Fatal(err)
		}
	}
	both := []string{`2 "by bob"`, `1 "by ada"`}
	for _, c := range []struct {
		user     string
		versions []string
		own      int
	}{{"ada", both, 1}, {"bob", both, 1}, {"", both, 2}, {"eve", nil, 0}, {"ada left", []string{`1 "by ada"`}, 1}} {
		user := strings.TrimSuffix(c.user, " left")
		if user != c.user {
			if err := d.RemoveParticipant(ctx, "acme", group, user, "olga"); err != nil {
				t.Fatal(err)
			}
		}
		if user == "eve" {
			if _, err := d.TraceMemory(ctx, "acme", user, "m1"); !errors.Is(err, db.ErrNotFound) {
				t.Errorf("eve: %v", err)
			}
			continue
		}
		trace, err := d.TraceMemory(ctx, "acme", user, "m1")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range trace.Versions {
			got = append(got, fmt.Sprint(v.Version, " ", string(v.Value)))
			if (v.Evidence.Quote != "") != (user == "" || v.User == user) {
				t.Errorf("%q is shown what %s said: %q", c.user, v.User, v.Evidence.Quote)
			}
		}
		if !slices.Equal(got, c.versions) || len(trace.Candidates) != c.own || len(trace.Influences) != c.own || len(trace.Audit) != c.own {
			t.Errorf("%q: %v, %d candidates, %d influences, %d entries", c.user, got, len(trace.Candidates), len(trace.Influences), len(trace.Audit))
		}
	}
	// Ada's words are forgotten, bob's stay in force and can be found.
	step, err := d.ForgetMemory(ctx, agent.ForgetInput{ID: "f1", Room: roomOf("acme", "ada"), Record: "m1", By: "user:ada"}, 10)
	if err != nil || !step.Done || step.Receipt.Versions != 1 || step.Receipt.Keywords != 0 {
		t.Errorf("%+v, %v", step, err)
	}
	trace, err := d.TraceMemory(ctx, "acme", "", "m1")
	if err != nil || trace.Versions[0].Status != db.MemoryActive || string(trace.Versions[0].Value) != `"by bob"` || trace.Versions[1].Status != db.MemoryDeleted {
		t.Errorf("%+v, %v", trace.Versions, err)
	}
	if n := countRows(t, owner, "memory_keyword", "record_id = 'm1' AND version = 2"); n != 1 {
		t.Error("what bob's version is found by is gone")
	}
}

// TestERASE1Unreadable lists what cannot be opened without its content, and the
// rest with it.
func TestERASE1Unreadable(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	other := recordOf("m2", `"b"`)
	other.Key = "city"
	remember(t, d, roomOf("acme", "ada"), recordOf("m1", `"a"`), other)
	propose(t, d, roomOf("acme", "ada"), "p1", `"a"`)
	propose(t, d, roomOf("acme", "bob"), "p2", `"b"`)
	remember(t, d, roomOf("acme", "bob"), recordOf("m3", `"c"`))
	if _, err := owner.Exec(ctx, "UPDATE memory_record SET value = set_byte(value, 20, get_byte(value, 20) # 1) WHERE id = 'm1'"); err != nil {
		t.Fatal(err)
	}
	list, err := d.Memories(ctx, "acme", "ada", db.MemoryFilter{})
	if err != nil || len(list) != 2 || list[0].Value != nil || list[0].Evidence.Quote != "" || list[0].Writer == "" || string(list[1].Value) != `"b"` {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := d.Memory(ctx, "acme", "ada", "m1"); !errors.Is(err, db.ErrSealed) {
		t.Errorf("by itself: %v", err)
	}
	if err := d.DestroyKeys(ctx, "acme", "ada", "olga"); err != nil {
		t.Fatal(err)
	}
	if m, err := d.Memory(ctx, "acme", "ada", "m2"); err != nil || m.Value != nil || m.Status != db.MemoryActive {
		t.Errorf("keys destroyed: %+v, %v", m, err)
	}
	candidates, err := d.MemoryCandidates(ctx, "acme", "", agent.MemoryProposed, 9)
	if err != nil || len(candidates) != 2 || candidates[0].Content != nil || string(candidates[1].Content.Value) != `"b"` {
		t.Errorf("%+v, %v", candidates, err)
	}
	// A program without the key-encryption key is told so.
	bare, err := db.Open(ctx, url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bare.Close)
	if _, err := bare.Memories(ctx, "acme", "bob", db.MemoryFilter{}); !errors.Is(err, db.ErrNoVault) {
		t.Errorf("without a vault: %v", err)
	}
}

// TestERASE1SwappedContent moves sealed values: none opens at another place.
func TestERASE1SwappedContent(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	for i, sql := range []string{
		"UPDATE memory_record r SET value = o.value FROM memory_record o WHERE r.id = $1 || '.1' AND o.id = $1 || '.2' AND o.tenant = r.tenant AND r.tenant = 'acme'",
		"UPDATE memory_record r SET value = o.value FROM memory_record o WHERE r.id = $1 || '.1' AND o.id = r.id AND o.tenant = 'umbrella' AND r.tenant = 'acme'",
		"UPDATE memory_record r SET value = r.evidence WHERE r.id = $1 || '.1'",
		"UPDATE memory_record r SET evidence = r.value WHERE r.id = $1 || '.1'",
		"UPDATE memory_record r SET version = 7 WHERE r.id = $1 || '.1'",
		"UPDATE memory_record r SET subject = 'bob' WHERE r.id = $1 || '.1' AND tenant = 'acme'",
	} {
		id := fmt.Sprint(i)
		for _, tenant := range []string{"acme", "umbrella"} {
			a, b := recordOf(id+".1", `"a"`), recordOf(id+".2", `"b"`)
			a.Key, b.Key = "a"+id, "b"+id
			remember(t, d, roomOf(tenant, "ada"), a, b)
		}
		remember(t, d, roomOf("acme", "bob"), recordOf("bob"+id, `"x"`))
		if tag, err := owner.Exec(ctx, sql, id); err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("%s: %v, %v", sql, tag, err)
		}
		if m, err := d.Memory(ctx, "acme", "ada", id+".1"); !errors.Is(err, db.ErrSealed) {
			t.Errorf("%s: %s, %v", sql, m.Value, err)
		}
	}
}

// TestLTM5Lesson keeps of a run what it can be learned from, until it is done.
func TestLTM5Lesson(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	run := secrets(t, d, scopeOf("acme"), "c", "r1")
	ref := agent.RunRef{Scope: run.Scope, RunID: "r1", Generation: 1}
	if _, err := d.LessonSource(ctx, ref); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	for range 2 {
		if err := d.InTx(ctx, run.Scope, func(tx *db.Tx) error { tx.InsertLesson("r1"); tx.InsertLesson("none"); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	remember(t, d, roomOf("acme", "ada"), recordOf("m1", `"short"`))
	if _, err := owner.Exec(ctx, "INSERT INTO memory_influence (tenant, run_id, record_id, version, subject, user_id, rank, via) VALUES ('acme', 'r1', 'm1', 1, 'ada', 'ada', 1, 'exact')"); err != nil {
		t.Fatal(err)
	}
	source, err := d.LessonSource(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	room := roomOf("acme", "ada")
	room.Conversation = "c"
	if want := (db.Lesson{Run: ref, Room: room, DefinitionDigest: digest, Status: "due"}); !reflect.DeepEqual(source.Lesson, want) {
		t.Errorf("lesson %+v, want %+v", source.Lesson, want)
	}
	if q := source.Question; q.ID != "question-r1" || q.Content != "secret of acme" || q.Role != db.RoleUser || q.Seq != 1 || q.Conversation != "c" {
		t.Errorf("question %+v", q)
	}
	// What the user forbade is no fact.
	if len(source.Facts) != 1 || source.Facts[0].Key != "service" || source.Facts[0].Value != canary+" fact" || source.Facts[0].CallID != "0.0" || source.Facts[0].Tool != "look" {
		t.Errorf("facts %+v", source.Facts)
	}
	if len(source.Recalled) != 1 || string(source.Recalled[0].Value) != `"short"` {
		t.Errorf("recalled %+v", source.Recalled)
	}
	bob := ref
	bob.Scope.User = "bob"
	if _, err := d.LessonSource(ctx, bob); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("of somebody else: %v", err)
	}
	if err := d.CloseLesson(ctx, bob, "", db.Amount{}); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("closed by somebody else: %v", err)
	}
	cost := int64(30)
	if err := d.CloseLesson(ctx, ref, "", db.Amount{Tokens: 20, CostMicros: &cost}); err != nil {
		t.Fatal(err)
	}
	// The first outcome stays.
	if err := d.CloseLesson(ctx, ref, "model_unavailable", db.Amount{Tokens: 1}); err != nil {
		t.Fatal(err)
	}
	if n := countRows(t, owner, "memory_lesson", "status = 'done' AND failure = '' AND billed_tokens = 20 AND billed_cost_micros = 30"); n != 1 {
		t.Error("the lesson is not closed as it was")
	}
	if source, err := d.LessonSource(ctx, ref); err != nil || source.Lesson.Status != "done" {
		t.Errorf("%+v, %v", source.Lesson, err)
	}
}

// TestLTM5ReviewQueue lists what waits, oldest first.
func TestLTM5ReviewQueue(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	until := time.Now().Add(time.Hour)
	for i, user := range []string{"ada", "bob", "ada"} {
		room, id := roomOf("acme", user), fmt.Sprint("p", i)
		propose(t, d, room, id, `"x"`)
		if i < 2 {
			if err := decide(d, room, id, func(c *db.MemoryCandidate) { c.State, c.ExpiresAt = agent.MemoryWaitingReview, &until }); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		user  string
		state agent.MemoryState
		limit int
		want  string
	}{
		{"", agent.MemoryWaitingReview, 0, "p0 p1"},
		{"ada", agent.MemoryWaitingReview, 0, "p0"},
		{"", "", 0, "p0 p1 p2"},
		{"ada", "", 0, "p0 p2"},
		{"", "", 2, "p0 p1"},
		{"", agent.MemoryStored, 0, ""},
	} {
		list, err := d.MemoryCandidates(ctx, "acme", c.user, c.state, c.limit)
		var got []string
		for _, x := range list {
			got = append(got, x.ID)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}
