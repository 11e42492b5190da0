package db_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/recall"
	"github.com/fairlead/fairlead/internal/vault"
)

// TestLTM6AnotherDimension: an embedder that changes its dimension is another one.
// The old vectors answer who asks by the old one until the new ones are there, and
// nothing is lost silently.
func TestLTM6AnotherDimension(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	serve(t, d, plane)
	room := roomOf("acme", "ann")
	propose(t, d, room, "p-1", `"x"`) // Which puts the tenant among those that have memory.
	note(t, d, room, ofUser(room), noted{id: "m-1", text: "blue", degrees: 0}, noted{id: "m-2", text: "green", degrees: 60})
	space := db.MemoryEmbedder{Name: plane.Name, Dimensions: 3}
	inSpace := func(q db.RecallQuery, vector ...float32) db.RecallQuery {
		q.Embedder, q.Embedding = space, vector
		return q
	}

	// Vectors of the new dimension never stand under the old one.
	q := asking(room, "")
	q.Embedder, q.Embedding = plane, []float32{1, 0, 0}
	if _, err := d.Recall(ctx, room, q); !errors.Is(err, db.ErrEmbedding) || !strings.Contains(err.Error(), "it has 3 dimensions, and plane has 2") {
		t.Errorf("%v", err)
	}
	bad := recordOf("m-3", `"x"`)
	bad.Identity = "m-3"
	for what, vector := range map[string][]float32{"another dimension": {1, 0, 0}, "zero": {0, 0}, "no number": {float32(math.Inf(1)), 0}} {
		if err := store(d, room, ofUser(room), bad, db.MemoryIndex{Embedder: plane, Embedding: vector}); !errors.Is(err, db.ErrEmbedding) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := countRows(t, owner, "memory_record", "id = 'm-3'"); n != 0 {
		t.Errorf("%d records were stored without their vector", n)
	}

	state, err := d.Embedders(ctx, space)
	if err != nil || state != (db.EmbedderState{Serving: plane, Building: space}) {
		t.Fatalf("%+v, %v", state, err)
	}
	if got := found(t, d, room, towards(asking(room, ""), 0)); got != "m-1 vector, m-2 vector" {
		t.Errorf("the old one: %s", got)
	}
	if got := found(t, d, room, inSpace(asking(room, "green"), 0, 1, 0)); got != "m-2 keyword" {
		t.Errorf("the new one before: %s", got)
	}
	missing, err := d.Unembedded(ctx, "acme", space, "", 10)
	if err != nil || len(missing) != 2 || string(missing[0].Value) != `"blue"` {
		t.Fatalf("%+v, %v", missing, err)
	}
	if err := d.StoreVector(ctx, "acme", missing[0], space, []float32{1, 0}); !errors.Is(err, db.ErrEmbedding) {
		t.Errorf("%v", err)
	}
	for i, r := range missing {
		if err := d.StoreVector(ctx, "acme", r, space, []float32{0, float32(i), 1}); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := d.PromoteEmbedder(ctx, space, 1); err != nil || done {
		t.Errorf("the first round: %v, %v", done, err)
	}
	if n := countRows(t, owner, "memory_vector", "dimensions = 2"); n != 1 {
		t.Errorf("%d old vectors after the first round", n)
	}
	if got := found(t, d, room, towards(asking(room, ""), 0)); got != "" {
		t.Errorf("the retired one before its vectors are gone: %s", got)
	}
	for range 2 {
		if _, err := d.PromoteEmbedder(ctx, space, 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := found(t, d, room, inSpace(asking(room, ""), 0, 1, 0)); got != "m-2 vector" {
		t.Errorf("the new one: %s", got)
	}
	if got := found(t, d, room, towards(asking(room, "blue"), 0)); got != "m-1 keyword" {
		t.Errorf("the retired one: %s", got)
	}
	if n := countRows(t, owner, "memory_vector", "dimensions = 2"); n != 0 {
		t.Errorf("%d old vectors are left", n)
	}
}

// TestLTM6Dimensions stores and finds vectors of every size that there may be, in
// personal scopes and in those that many people fill, under the longest names.
func TestLTM6Dimensions(t *testing.T) {
	t.Parallel()
	long := func(s string) string { return s + strings.Repeat("x", 128-len(s)) }
	for _, dimensions := range []int{1, 256, 768, 769, 1536, 4000} {
		d := dbtest.New(t)
		e := db.MemoryEmbedder{Name: "noise", Dimensions: dimensions}
		serve(t, d, e)
		r := rand.New(rand.NewPCG(1, uint64(dimensions)))
		noise := func() []float32 {
			v := make([]float32, dimensions)
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
			v[0] = 1 + v[0]*v[0] // Nothing is farther than by chance.
			return v
		}
		room := agent.MemoryRoom{Scope: agent.Scope{Tenant: long("acme"), User: long("ann"), Environment: long("production")}, Agent: long("helper")}
		q := asking(room, "")
		for _, scope := range room.Scopes() {
			for _, id := range []string{"far", "near", "else"} {
				m := recordOf(long(string(scope.Kind)+id), `"x"`)
				m.Identity = id
				index := db.MemoryIndex{Embedder: e, Embedding: noise()}
				if id == "near" {
					q.Embedder, q.Embedding = e, index.Embedding
				}
				if err := store(d, room, scope, m, index); err != nil {
					t.Fatalf("%d dimensions: %v", dimensions, err)
				}
			}
			q.Scopes = []agent.MemoryScope{scope}
			hits, err := d.Recall(ctx, room, q)
			if err != nil || len(hits) == 0 || (dimensions > 1 && hits[0].Record.ID != long(string(scope.Kind)+"near")) {
				t.Errorf("%d dimensions, %s: %d hits, %v", dimensions, scope.Kind, len(hits), err)
			}
		}
	}
}

// TestLTM6SketchesFindTheNearest compares recall in a scope that many people fill
// with all distances, computed here.
func TestLTM6SketchesFindTheNearest(t *testing.T) {
	t.Parallel()
	const (
		records, dimensions, questions, top = 3_000, 64, 40, 5
	)
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	e := db.MemoryEmbedder{Name: "noise", Dimensions: dimensions}
	serve(t, d, e)
	room := roomOf("acme", "ann")
	scope := room.Scopes()[1]
	r := rand.New(rand.NewPCG(1, 2))
	noise := func() []float32 {
		v := make([]float32, dimensions)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		unit, err := recall.Unit(v)
		if err != nil {
			t.Fatal(err)
		}
		return unit
	}
	m := recordOf("m", `"x"`)
	if err := store(d, room, scope, m, db.MemoryIndex{Embedder: e, Embedding: noise()}); err != nil {
		t.Fatal(err)
	}
	multiply(t, owner, "m", records)
	keys, err := d.Keys(ctx, vault.Owner{Tenant: "acme", Subject: scope.Subject("ann")})
	if err != nil {
		t.Fatal(err)
	}
	vectors := map[string][]float32{}
	var batch pgx.Batch
	for i := range records {
		id, v := fmt.Sprint("m-", i+1), noise()
		vectors[id] = v
		for column, content := range map[string]string{"value": `"x"`, "evidence": "{}"} {
			sealed, err := keys.Seal([]byte(content), vault.Bind("memory_record", "acme", id, "1", column))
			if err != nil {
				t.Fatal(err)
			}
			batch.Queue("UPDATE memory_record SET "+column+" = $1 WHERE id = $2", sealed, id)
		}
		batch.Queue("UPDATE memory_vector SET embedding = $1::real[]::halfvec, sketch = $2 WHERE record_id = $3", v,
			pgtype.Bits{Bytes: recall.Sketch(v), Len: recall.SketchBits, Valid: true}, id)
	}
	if err := owner.SendBatch(ctx, &batch).Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, owner, "UPDATE memory_record SET status = 'retracted', ended_at = now() WHERE id = 'm'")
	hit := 0
	for range questions {
		q := asking(room, "")
		q.Scopes, q.Limit, q.Embedder, q.Embedding = []agent.MemoryScope{scope}, top, e, noise()
		hits, err := d.Recall(ctx, room, q)
		if err != nil || len(hits) != top {
			t.Fatalf("%d hits, %v", len(hits), err)
		}
		nearest := slices.SortedFunc(maps.Keys(vectors), func(a, b string) int { return cmp.Compare(dot(q.Embedding, vectors[b]), dot(q.Embedding, vectors[a])) })[:top]
		for _, h := range hits {
			if slices.Contains(nearest, h.Record.ID) {
				hit++
			}
		}
	}
	if found := float64(hit) / (questions * top); found < 0.98 {
		t.Errorf("found %.3f of the nearest", found)
	}
}

func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// TestMemoryWordIsolation asks the index of words without any filter, and tries to
// write words of somebody else's.
func TestMemoryWordIsolation(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	world(t, d, owner)
	asApp := app(t, url)
	room := roomOf("acme", "ada")
	tx := as(t, asApp, room, "", "")
	var rooms []string
	if err := tx.QueryRow(ctx, "SELECT array_agg(DISTINCT tenant || ' ' || room ORDER BY tenant || ' ' || room) FROM memory_word").Scan(&rooms); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(rooms, ", "); got != "acme production/agent_role/helper, acme production/user/ada" {
		t.Errorf("sees %s", got)
	}
	if _, err := tx.Exec(ctx, "INSERT INTO memory_word (tenant, room, token, doc) VALUES ('acme', 'production/user/bob', 1, 1)"); err == nil || !strings.Contains(err.Error(), "42501") {
		t.Errorf("writes: %v", err)
	}

	// A record's words go with it, whoever lets it go.
	before := countRows(t, owner, "memory_word", "tenant = 'acme'")
	step, err := d.ForgetMemory(ctx, agent.ForgetInput{ID: "f-1", Room: room, Record: "production.user.ada", By: "ada"}, 10)
	if err != nil || !step.Done {
		t.Fatalf("%+v, %v", step, err)
	}
	if after := countRows(t, owner, "memory_word", "tenant = 'acme'"); after != before-1 {
		t.Errorf("%d words before, %d after", before, after)
	}
	if n := countRows(t, owner, "memory_word", "room = 'production/user/ada' AND tenant = 'acme'"); n != 0 {
		t.Errorf("%d words are left", n)
	}
	execute(t, owner, "UPDATE memory_keyword SET tokens = '{7, 8, 7}' WHERE tenant = 'acme' AND room = 'production/user/bob'")
	if n := countRows(t, owner, "memory_word", "tenant = 'acme' AND room = 'production/user/bob' AND token IN (7, 8)"); n != 2 {
		t.Errorf("%d words after a change", n)
	}
	if n := countRows(t, owner, "memory_word", "tenant = 'acme' AND room = 'production/user/bob'"); n != 2 {
		t.Errorf("%d words after a change", n)
	}
	execute(t, owner, "DELETE FROM memory_keyword WHERE tenant = 'acme'")
	if n := countRows(t, owner, "memory_word", "tenant = 'acme'"); n != 0 {
		t.Errorf("%d words without a record", n)
	}
}

// TestPlanOfRecall: neither a plan that was made while the tables were new nor one
// for large ones goes through all that a tenant has, and what is compared is read
// from indexes alone.
func TestPlanOfRecall(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	serve(t, d, plane)
	room := roomOf("acme", "ann")
	note(t, d, room, ofUser(room), noted{id: "m-1", text: "blue", degrees: 0})
	note(t, d, room, room.Scopes()[1], noted{id: "m-2", text: "blue", degrees: 0})
	const args = "8, '{production/user/ann,production/agent_role/helper}', '{note}', 'acme', '{profile_preference}', now(), '{1,2}', '{0,1}', 100, 50, " +
		"'[1,0]', repeat('0', 1024)::bit(1024), 'plane', 2, '{production/user/ann}', 400, '{production/agent_role/helper}', 1"
	check := func(when string) {
		t.Helper()
		plan := explain(t, owner, "memory_recall.sql", "RecallMemory", args)
		for line := range strings.SplitSeq(plan, "\n") {
			if (strings.Contains(line, "Seq Scan on memory_") && !strings.Contains(line, "memory_embedder")) || strings.HasSuffix(line, "Index Cond: (tenant = $3)") {
				t.Errorf("%s, it goes through all that a tenant has: %s\n%s", when, line, plan)
				return
			}
		}
		for index, last := range map[string]string{"memory_vector_sketch_idx": "embedder_id = ", "memory_vector_own_idx": "embedder_id = ", "memory_word_pkey": `token = ANY `} {
			if !regexp.MustCompile(`Index Only Scan using ` + index + ` .*\n *Index Cond: .*tenant = .*room = ANY .*` + last).MatchString(plan) {
				t.Errorf("%s: %s is not entered at tenant, room and what is asked for:\n%s", when, index, plan)
			}
		}
	}
	check("new")
	multiply(t, owner, "m-1", 3_000)
	multiply(t, owner, "m-2", 3_000)
	for _, table := range []string{"memory_keyword", "memory_vector"} {
		execute(t, owner, "UPDATE "+table+" SET room = 'production/user/u' || substr(record_id, 5)::integer % 100 WHERE record_id LIKE 'm-1-%'")
	}
	if _, err := owner.Exec(ctx, "VACUUM ANALYZE memory_record, memory_keyword, memory_word, memory_vector"); err != nil {
		t.Fatal(err)
	}
	check("large")
}
