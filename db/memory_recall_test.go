package db_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/recall"
	"github.com/fairlead/fairlead/internal/vault"
)

// plane is the embedder of these tests: what is near to what is seen at once.
var plane = db.MemoryEmbedder{Name: "plane", Dimensions: 2}

// serve makes an embedder the one that answers recalls.
func serve(t testing.TB, d *db.DB, e db.MemoryEmbedder) {
	t.Helper()
	if state, err := d.Embedders(ctx, e); err != nil || state.Serving != e {
		t.Fatalf("%+v, %v", state, err)
	}
}

// noted is a record that a test puts in force.
type noted struct {
	id, text string
	// degrees is the direction of the vector; NaN is none.
	degrees float64
	change  func(*db.MemoryRecord)
}

// note stores records in a scope of a room, each with the words of its text.
func note(t testing.TB, d *db.DB, room agent.MemoryRoom, scope agent.MemoryScope, records ...noted) {
	t.Helper()
	for _, n := range records {
		r := recordOf(n.id, fmt.Sprintf("%q", n.text))
		r.Key, r.Identity = "note", n.id
		if n.change != nil {
			n.change(&r)
		}
		index := db.MemoryIndex{Tokens: recall.Tokens(n.text)}
		if !math.IsNaN(n.degrees) {
			index.Embedder, index.Embedding = plane, direction(n.degrees)
		}
		if err := store(d, room, scope, r, index); err != nil {
			t.Fatalf("note %s: %v", n.id, err)
		}
	}
}

func direction(degrees float64) []float32 {
	return []float32{float32(math.Cos(degrees * math.Pi / 180)), float32(math.Sin(degrees * math.Pi / 180))}
}

// asking is a query for everything in all scopes of a room.
func asking(room agent.MemoryRoom, question string) db.RecallQuery {
	return db.RecallQuery{
		Scopes: room.Scopes(), Kinds: []agent.MemoryKind{agent.MemoryPreference}, Now: written.Add(time.Hour), Limit: 8, Tokens: recall.Question(question),
	}
}

// towards adds a direction to a query.
func towards(q db.RecallQuery, degrees float64) db.RecallQuery {
	q.Embedder, q.Embedding = plane, direction(degrees)
	return q
}

// found recalls, and returns hits as "id via".
func found(t testing.TB, d *db.DB, room agent.MemoryRoom, q db.RecallQuery) string {
	t.Helper()
	hits, err := d.Recall(ctx, room, q)
	if err != nil {
		t.Fatalf("recall: %v", err)
	}
	list := make([]string, len(hits))
	for i, h := range hits {
		list[i] = h.Record.ID + " " + h.Via
	}
	return strings.Join(list, ", ")
}

// TestLTM6Fusion works the fused scores out by hand.
func TestLTM6Fusion(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	serve(t, d, plane)
	room := roomOf("acme", "ann")
	note(
		t, d, room, ofUser(room),
		noted{id: "both", text: "blue whale", degrees: 20},
		noted{id: "words", text: "blue sky whale song", degrees: math.NaN()},
		noted{id: "near", text: "green", degrees: 5},
		noted{id: "far", text: "green", degrees: 80},
		noted{id: "behind", text: "green", degrees: 100},
		noted{id: "keyed", text: "red", degrees: math.NaN(), change: func(r *db.MemoryRecord) { r.Key = "colour" }},
		noted{id: "keyed2", text: "blue", degrees: math.NaN(), change: func(r *db.MemoryRecord) { r.Key = "colour" }},
	)
	q := towards(asking(room, "blue whale song"), 0)
	q.Keys = []string{"colour", "unknown"}
	hits, err := d.Recall(ctx, room, q)
	if err != nil {
		t.Fatal(err)
	}
	// By words: blue is in 3 records, whale in 2, song in 1: "words" has all, "both"
	// the first two, "keyed2" the first. By vector: near, both, far.
	want := []struct {
		id, via string
		score   float64
	}{
		{"keyed2", "exact+keyword", 1 + 1./62 + 1./63},
		{"keyed", "exact", 1 + 1./61},
		{"both", "keyword+vector", 1./62 + 1./62},
		{"words", "keyword", 1. / 61},
		{"near", "vector", 1. / 61},
		{"far", "vector", 1. / 63},
	}
	for i, h := range hits {
		if i >= len(want) || h.Record.ID != want[i].id || h.Via != want[i].via || math.Abs(h.Score-want[i].score) > 1e-12 {
			t.Errorf("%d: %s %s %v", i, h.Record.ID, h.Via, h.Score)
		}
	}
	if len(hits) != len(want) {
		t.Fatalf("%d hits", len(hits))
	}
	if r := hits[2].Record; string(r.Value) != `"blue whale"` || r.Evidence.Quote != `because "blue whale"` || r.Scope != ofUser(room) || r.Subject != "ann" ||
		r.Status != db.MemoryActive || !r.WrittenAt.Equal(written) {
		t.Errorf("%+v", r)
	}
	q.Limit = 2
	if got := found(t, d, room, q); got != "keyed2 exact+keyword, keyed exact" {
		t.Errorf("two: %s", got)
	}
	q.MinSimilarity, q.Limit = 0.9, 8 // cos 20 degrees is 0.94, cos 80 degrees 0.17
	if got := found(t, d, room, q); !strings.HasSuffix(got, "near vector") {
		t.Errorf("similar: %s", got)
	}
	// A rare word counts more than two that most records have.
	note(t, d, room, ofUser(room), noted{id: "rare", text: "zeppelin", degrees: math.NaN()}, noted{id: "usual1", text: "green tea", degrees: math.NaN()},
		noted{id: "usual2", text: "green tea", degrees: math.NaN()}, noted{id: "usual3", text: "tea", degrees: math.NaN()})
	if got := found(t, d, room, asking(room, "green tea zeppelin")); !strings.HasPrefix(got, "rare keyword, ") {
		t.Errorf("rare: %s", got)
	}
}

// TestLTM6SeveralSubjects: one recall asks under the keys of each subject, whose
// hashes of a word differ.
func TestLTM6SeveralSubjects(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	room := roomOf("acme", "ann")
	room.Project = "p-1"
	if err := d.AddParticipant(ctx, "acme", agent.MemoryScope{Kind: agent.MemoryOfProject, ID: "p-1"}, "ann", "olga"); err != nil {
		t.Fatal(err)
	}
	for _, scope := range room.Scopes() {
		note(t, d, room, scope, noted{id: "m-" + string(scope.Kind), text: "blue", degrees: math.NaN()})
	}
	other := dbtest.Open(t, url, db.Options{}) // Which has no keys in memory.
	for _, from := range []*db.DB{d, other} {
		hits, err := from.Recall(ctx, room, asking(room, "blue"))
		var ids []string
		for _, h := range hits {
			ids = append(ids, h.Record.ID)
		}
		slices.Sort(ids)
		if got := strings.Join(ids, ", "); err != nil || got != "m-agent_role, m-project, m-user" {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// TestLTM6PrimaryRow: what is not in force, or not asked for, is not found.
func TestLTM6PrimaryRow(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	serve(t, d, plane)
	room := roomOf("acme", "ann")
	now := written.Add(time.Hour)
	before, after := now.Add(-time.Microsecond), now.Add(time.Microsecond)
	with := func(id string, change func(*db.MemoryRecord)) noted {
		return noted{id: id, text: "blue " + id, change: change}
	}
	note(
		t, d, room, ofUser(room),
		with("plain", nil),
		with("other-kind", func(r *db.MemoryRecord) { r.Kind = agent.MemoryTask }),
		with("begins-now", func(r *db.MemoryRecord) { r.ValidFrom = &now }),
		with("begins-later", func(r *db.MemoryRecord) { r.ValidFrom = &after }),
		with("ends-now", func(r *db.MemoryRecord) { r.ValidUntil = &now }),
		with("ends-later", func(r *db.MemoryRecord) { r.ValidUntil = &after }),
		with("expired-now", func(r *db.MemoryRecord) { r.ExpiresAt = &now }),
		with("expired", func(r *db.MemoryRecord) { r.ExpiresAt = &before }),
		with("expires-later", func(r *db.MemoryRecord) { r.ExpiresAt = &after }),
		with("superseded", nil), with("retracted", nil), with("deleted", nil), with("newer", nil), with("moved", nil),
	)
	// Each keeps its rows of the index, as if the purge were still to come.
	owner := dbtest.Owner(t, url)
	execute(
		t, owner,
		"UPDATE memory_record SET status = id, ended_at = now() WHERE id IN ('superseded', 'retracted')",
		"UPDATE memory_record SET status = id, ended_at = now(), "+tombstone+" WHERE id = 'deleted'",
		"UPDATE memory_record SET version = 2, key = 'other' WHERE id = 'newer'",
		"UPDATE memory_record SET room = 'production/user/bob', scope_id = 'bob', subject = 'bob' WHERE id = 'moved'",
	)
	want := "begins-now, ends-later, expires-later, plain"
	for what, q := range map[string]db.RecallQuery{
		"words": asking(room, "blue"), "vector": towards(asking(room, ""), 0), "both": towards(asking(room, "blue"), 0),
		"key": func() db.RecallQuery { q := asking(room, ""); q.Keys = []string{"note"}; return q }(),
	} {
		hits, err := d.Recall(ctx, room, q)
		var ids []string
		for _, h := range hits {
			ids = append(ids, h.Record.ID)
		}
		slices.Sort(ids)
		if got := strings.Join(ids, ", "); err != nil || got != want {
			t.Errorf("%s: %s, %v", what, got, err)
		}
	}
	q := asking(room, "blue")
	q.Kinds = append(q.Kinds, agent.MemoryTask)
	if got := found(t, d, room, q); !strings.Contains(got, "other-kind keyword") {
		t.Errorf("two kinds: %s", got)
	}
	if got := found(t, d, roomOf("acme", "bob"), asking(roomOf("acme", "bob"), "blue")); got != "" {
		t.Errorf("moved: %s", got)
	}
}

// TestLTM6GhostsTakeNoPlaces: however many deleted records are nearer and have more
// of the words, the one that is there is found; in a personal scope and in one
// that many people fill.
func TestLTM6GhostsTakeNoPlaces(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	serve(t, d, plane)
	owner := dbtest.Owner(t, url)
	if err := d.AddParticipant(ctx, "acme", agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g-1"}, "ann", "olga"); err != nil {
		t.Fatal(err)
	}
	for _, room := range []agent.MemoryRoom{roomOf("acme", "ann"), func() agent.MemoryRoom { r := roomOf("acme", "ann"); r.Group = "g-1"; return r }()} {
		scope := room.Scopes()[0]
		note(t, d, room, scope, noted{id: "there-" + scope.ID, text: "blue", degrees: 40}, noted{id: "ghost-" + scope.ID, text: "blue whale song", degrees: 0})
		multiply(t, owner, "ghost-"+scope.ID, 1_500)
		execute(t, owner, "UPDATE memory_record SET status = 'deleted', ended_at = now(), "+tombstone+" WHERE id LIKE 'ghost-%' AND status = 'active'")
		for what, q := range map[string]db.RecallQuery{"words": asking(room, "blue whale song"), "vector": towards(asking(room, ""), 0)} {
			hits, err := d.Recall(ctx, room, q)
			if err != nil || len(hits) != 1 || hits[0].Record.ID != "there-"+scope.ID {
				t.Errorf("%s, %s: %d hits, %v", scope.Kind, what, len(hits), err)
			}
		}
	}
}

// tombstone is how a deleted record is left.
const tombstone = "value = NULL, evidence = NULL, value_hash = '', identity_hash = ''"

// multiply makes so many copies of a record, with its rows of the index.
func multiply(t testing.TB, owner *pgxpool.Pool, id string, copies int) {
	t.Helper()
	copied := func(table, column, others string) string {
		return fmt.Sprintf(`INSERT INTO %[1]s (%[2]s, %[3]s) SELECT %[2]s || '-' || n, %[3]s FROM %[1]s CROSS JOIN generate_series(1, %[4]d) n WHERE %[2]s = '%[5]s'`,
			table, column, others, copies, id)
	}
	execute(
		t, owner,
		`INSERT INTO memory_record SELECT (c).* FROM (
			SELECT jsonb_populate_record(r, jsonb_build_object('id', r.id || '-' || n, 'key', 'k' || n)) AS c
			FROM memory_record r CROSS JOIN generate_series(1, `+fmt.Sprint(copies)+`) n WHERE r.id = '`+id+`' OFFSET 0) x`,
		copied("memory_keyword", "record_id", "tenant, version, room, subject, tokens"),
		copied("memory_vector", "record_id", "tenant, embedder_id, version, room, subject, dimensions, shared, sketch, embedding"),
	)
	if n := countRows(t, owner, "memory_vector", "record_id LIKE '"+id+"%'"); n != copies+1 {
		t.Fatalf("%d copies", n)
	}
}

// TestLTM6FewAmongMany: a user with one record, and a group with one, are found
// among many thousands of others that are nearer.
func TestLTM6FewAmongMany(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	serve(t, d, plane)
	owner := dbtest.Owner(t, url)
	many, few := roomOf("acme", "ann"), roomOf("acme", "bob")
	many.Group, few.Group = "g-1", "g-2"
	for _, room := range []agent.MemoryRoom{many, few} {
		if err := d.AddParticipant(ctx, "acme", agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: room.Group}, room.Scope.User, "olga"); err != nil {
			t.Fatal(err)
		}
	}
	note(t, d, many, many.Scopes()[0], noted{id: "crowd", text: "blue whale song", degrees: 0})
	multiply(t, owner, "crowd", 6_000)
	own := roomOf("acme", "bob")
	note(t, d, own, ofUser(own), noted{id: "mine", text: "blue", degrees: 60})
	note(t, d, few, few.Scopes()[0], noted{id: "ours", text: "blue", degrees: 60})
	for room, want := range map[*agent.MemoryRoom]string{&own: "mine", &few: "ours"} {
		if got := found(t, d, *room, towards(asking(*room, "blue whale song"), 0)); got != want+" keyword+vector" {
			t.Errorf("%s: %s", want, got)
		}
	}
}

// TestLTM6Instants: a moment is the same moment wherever its clock stands.
func TestLTM6Instants(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	room := roomOf("acme", "ann")
	// 2025-07-25T02:00Z, as Shanghai and Los Angeles write it.
	shanghai := time.Date(2025, 7, 25, 10, 0, 0, 0, time.FixedZone("", 8*3600))
	losAngeles := time.Date(2025, 7, 24, 19, 0, 0, 0, time.FixedZone("", -7*3600))
	note(
		t, d, room, ofUser(room),
		noted{id: "from", text: "blue", degrees: math.NaN(), change: func(r *db.MemoryRecord) { r.ValidFrom = &shanghai }},
		noted{id: "until", text: "blue", degrees: math.NaN(), change: func(r *db.MemoryRecord) { r.ValidUntil = &losAngeles }},
	)
	for _, zone := range []*time.Location{time.UTC, shanghai.Location(), losAngeles.Location()} {
		for offset, want := range map[time.Duration]string{-time.Microsecond: "until keyword", 0: "from keyword", time.Hour: "from keyword"} {
			q := asking(room, "blue")
			q.Now = time.Date(2025, 7, 25, 2, 0, 0, 0, time.UTC).Add(offset).In(zone)
			hits, err := d.Recall(ctx, room, q)
			if err != nil || len(hits) != 1 || hits[0].Record.ID+" "+hits[0].Via != want {
				t.Errorf("%v: %+v, %v", q.Now, hits, err)
				continue
			}
			for _, at := range []*time.Time{hits[0].Record.ValidFrom, hits[0].Record.ValidUntil} {
				if at != nil && (at.Location() != time.UTC || at.Format(time.RFC3339Nano) != "2025-07-25T02:00:00Z") {
					t.Errorf("reads %v", at)
				}
			}
		}
	}
}

// TestLTM7KeywordAlone: without an embedding, words and keys find.
func TestLTM7KeywordAlone(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t) // No embedder was ever there.
	room := roomOf("acme", "ann")
	note(t, d, room, ofUser(room), noted{id: "m-1", text: "blue", degrees: math.NaN()})
	if got := found(t, d, room, asking(room, "blue")); got != "m-1 keyword" {
		t.Errorf("%s", got)
	}
	if got := found(t, d, room, towards(asking(room, "blue"), 0)); got != "m-1 keyword" {
		t.Errorf("an embedder that nobody knows: %s", got)
	}
	if got := found(t, d, room, asking(room, "green")); got != "" {
		t.Errorf("nothing: %s", got)
	}
	nobody := roomOf("acme", "eve")
	if got := found(t, d, nobody, asking(nobody, "blue")); got != "" {
		t.Errorf("a user without keys: %s", got)
	}
	if keys := countKeys(t, d, "acme", "eve"); keys != 0 {
		t.Error("looking made keys")
	}
}

func countKeys(t testing.TB, d *db.DB, tenant, subject string) int {
	t.Helper()
	_, err := d.LookUpKeys(ctx, vault.Owner{Tenant: tenant, Subject: subject})
	if err == nil {
		return 1
	}
	if !errors.Is(err, db.ErrNotFound) {
		t.Fatal(err)
	}
	return 0
}

// TestLTM8Recall asks in the languages in which other systems did not find.
func TestLTM8Recall(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	room := roomOf("acme", "ann-marie")
	texts := map[string]string{
		"rerank": "rerank 精排模型配置为 bge-reranker-v2-m3", "cron": "cron 任务每日备份数据库", "tenants": "系统采用多租户隔离", "apple": "用户喜欢苹果",
		"orders": "用户有很多订单，租金每月支付", "japanese": "用户最近在学习日语", "engineer": "我是工程师", "api": `{"service":"payment-api","tier":2}`,
		"ja": "ユーザーの好きな色は青", "ko": "사용자가 좋아하는 색은 파랑",
	}
	for id, text := range texts {
		note(t, d, room, ofUser(room), noted{id: "m-" + id, text: text, degrees: math.NaN()})
	}
	for question, want := range map[string]string{
		"我们最近配置的 rerank 精排是什么模型":             "m-rerank keyword",
		"每日复盘 cron 备份":                       "m-cron keyword",
		"多租户":                                "m-tenants keyword",
		"我喜欢什么":                              "m-apple keyword",
		"好きな色":                               "m-ja keyword",
		"좋아하는 색":                             "m-ko keyword",
		"Which payment API?":                 "m-api keyword",
		"tell me about PaymentAPI of tier 2": "m-api keyword",
		"what does the weather do":           "",
	} {
		if got := found(t, d, room, asking(room, question)); got != want {
			t.Errorf("%s: %s, want %s", question, got, want)
		}
	}
}

func TestRecallRefuses(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	room := roomOf("acme", "ann")
	for what, change := range map[string]func(*db.RecallQuery){
		"no scope":            func(q *db.RecallQuery) { q.Scopes = nil },
		"somebody's scope":    func(q *db.RecallQuery) { q.Scopes = []agent.MemoryScope{{Kind: agent.MemoryOfUser, ID: "bob"}} },
		"no kind":             func(q *db.RecallQuery) { q.Kinds = nil },
		"no moment":           func(q *db.RecallQuery) { q.Now = time.Time{} },
		"no limit":            func(q *db.RecallQuery) { q.Limit = 0 },
		"a limit too high":    func(q *db.RecallQuery) { q.Limit = db.MaxRecallHits + 1 },
		"too many words":      func(q *db.RecallQuery) { q.Tokens = make([]string, 257) },
		"too many keys":       func(q *db.RecallQuery) { q.Keys = make([]string, 65) },
		"a zero vector":       func(q *db.RecallQuery) { q.Embedder, q.Embedding = plane, []float32{0, 0} },
		"another dimension":   func(q *db.RecallQuery) { q.Embedder, q.Embedding = plane, []float32{1, 0, 0} },
		"no number in vector": func(q *db.RecallQuery) { q.Embedder, q.Embedding = plane, []float32{1, float32(math.NaN())} },
	} {
		q := asking(room, "blue")
		change(&q)
		hits, err := d.Recall(ctx, room, q)
		if err == nil || hits != nil {
			t.Errorf("%s: %v, %v", what, hits, err)
		}
		if vector := q.Embedding != nil; vector != errors.Is(err, db.ErrEmbedding) {
			t.Errorf("%s: %v", what, err)
		}
	}
	stranger := room
	stranger.Group = "g-1"
	if _, err := d.Recall(ctx, stranger, asking(stranger, "blue")); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("a stranger: %v", err)
	}
}
