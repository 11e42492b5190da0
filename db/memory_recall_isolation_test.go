package db_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgvector/pgvector-go"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/recall"
	"github.com/fairlead/fairlead/internal/vault"
)

// The people of the isolation tests: in each of 5 tenants 20 users in 5 groups of 4,
// and 2 projects of 10, who work with 2 agents in 2 environments.
const (
	isoTenants, isoUsers, isoGroups, isoProjects = 5, 20, 5, 2
	// isoText is what everybody's memories say but for their number.
	isoText     = "The service is payment-api in zone seven, number"
	isoQuestion = "Which service is payment-api in zone seven?"
)

var isoEmbedder = db.MemoryEmbedder{Name: "iso", Dimensions: 8}

// isoWorld is what is remembered: the IDs of records by tenant and room. IDs are
// the same in every tenant.
type isoWorld map[string]map[string][]string

func isoTenant(n int) string  { return fmt.Sprintf("tenant-%d", n) }
func isoUser(n int) string    { return fmt.Sprintf("user-%d", n) }
func isoProject(u int) string { return fmt.Sprintf("p-%d", u%isoProjects) }
func isoGroup(u int) string   { return fmt.Sprintf("g-%d", u%isoGroups) }
func isoAgent(n int) string   { return []string{"agent", "agent-2"}[n%2] }
func isoPlace(n int) string   { return []string{"prod", "production"}[n%2] }
func isoVector(n int) []float32 {
	v := []float32{1, 0.5, 0.25, 0.125, 0, 0, 0, 0}
	v[4+n%4] = float32(n%50) / 1e4
	return v
}

// isoFill stores the world. Afterwards every record has the words of everybody
// else's question as well, so that keys keep nobody apart in this test.
func isoFill(t testing.TB, d *db.DB, owner *pgxpool.Pool) isoWorld {
	t.Helper()
	serve(t, d, isoEmbedder)
	w := isoWorld{}
	var work []func() error
	var mu sync.Mutex
	count := 0
	put := func(room agent.MemoryRoom, scope agent.MemoryScope, records int) {
		for i := range records {
			count++
			n, name := count, scope.Room(room.Scope.Environment)
			r := recordOf(strings.ReplaceAll(name, "/", "-")+fmt.Sprint("-", i), fmt.Sprintf("%q", fmt.Sprintf("%s %d: secret of %s %s", isoText, n, room.Scope.Tenant, name)))
			r.Key, r.Identity = []string{"service", "service.name"}[i%2], fmt.Sprint(i)
			work = append(work, func() error {
				err := store(d, room, scope, r, db.MemoryIndex{Tokens: recall.Tokens(fmt.Sprint(isoText, " ", n)), Embedder: isoEmbedder, Embedding: isoVector(n)})
				mu.Lock()
				defer mu.Unlock()
				of := w[room.Scope.Tenant]
				if of == nil {
					of = map[string][]string{}
					w[room.Scope.Tenant] = of
				}
				of[name] = append(of[name], r.ID)
				return err
			})
		}
	}
	for tn := range isoTenants {
		tenant := isoTenant(tn)
		for u := range isoUsers {
			user := isoUser(u)
			for _, scope := range []agent.MemoryScope{{Kind: agent.MemoryOfGroup, ID: isoGroup(u)}, {Kind: agent.MemoryOfProject, ID: isoProject(u)}} {
				if err := d.AddParticipant(ctx, tenant, scope, user, "olga"); err != nil {
					t.Fatal(err)
				}
			}
			for e := range 2 {
				room := agent.MemoryRoom{Scope: agent.Scope{Tenant: tenant, User: user, Environment: isoPlace(e)}, Agent: isoAgent(u)}
				room.Conversation = "c-" + user + "-" + isoPlace(e)
				execute(t, owner, fmt.Sprintf("INSERT INTO conversation (tenant, id, user_id, environment) VALUES ('%s', '%s', '%s', '%s')", tenant, room.Conversation, user, isoPlace(e)))
				put(room, ofUser(room), 2)
				put(room, agent.MemoryScope{Kind: agent.MemoryOfConversation, ID: room.Conversation}, 1)
				if u < isoGroups {
					in := room
					in.Group = isoGroup(u)
					put(in, in.Scopes()[0], 2)
				}
				if u < isoProjects {
					in := room
					in.Project = isoProject(u)
					put(in, agent.MemoryScope{Kind: agent.MemoryOfProject, ID: in.Project}, 2)
				}
				if u < 2 {
					put(room, agent.MemoryScope{Kind: agent.MemoryOfAgent, ID: room.Agent}, 2)
				}
			}
		}
	}
	inParallel(t, len(work), func(i int) error { return work[i]() })
	if records := countRows(t, owner, "memory_record", "true"); records != isoTenants*2*(isoUsers*3+(isoGroups+isoProjects+2)*2) || records != count {
		t.Fatalf("%d records", records)
	}
	isoShareWords(t, d, owner)
	if _, err := owner.Exec(ctx, "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	return w
}

// isoShareWords adds the words of the question, hashed under the keys of every
// subject, to every record.
func isoShareWords(t testing.TB, d *db.DB, owner *pgxpool.Pool) {
	t.Helper()
	rows, err := owner.Query(ctx, "SELECT DISTINCT tenant, subject FROM memory_record")
	if err != nil {
		t.Fatal(err)
	}
	owners, err := pgx.CollectRows(rows, pgx.RowToStructByPos[vault.Owner])
	if err != nil || len(owners) != isoTenants*(isoUsers+isoGroups+isoProjects+2) {
		t.Fatalf("%d subjects, %v", len(owners), err)
	}
	var all []int64
	for _, o := range owners {
		all = append(all, isoHashes(t, d, o)[0])
	}
	if _, err := owner.Exec(ctx, "UPDATE memory_keyword SET tokens = tokens || $1::bigint[]", all); err != nil {
		t.Fatal(err)
	}
}

// isoHashes are the words of the question as a subject's rows have them.
func isoHashes(t testing.TB, d *db.DB, o vault.Owner) (list []int64) {
	t.Helper()
	keys, err := d.Keys(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range recall.Question(isoQuestion) {
		sum, err := keys.Hash([]byte(word))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, int64(binary.BigEndian.Uint64(sum)))
	}
	return list
}

// inParallel does n pieces of work, some at a time.
func inParallel(t testing.TB, n int, work func(i int) error) {
	t.Helper()
	var (
		next  atomic.Int64
		group sync.WaitGroup
	)
	for range 8 {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !t.Failed(); i = int(next.Add(1)) - 1 {
				if err := work(i); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	group.Wait()
}

// isoLook is a look from a random room. Every tenth time it is one of which the
// user does not take part.
type isoLook struct {
	room     agent.MemoryRoom
	scopes   []agent.MemoryScope
	keys     []string
	words    bool
	vector   []float32
	admitted bool
}

func isoLookFrom(r *rand.Rand) isoLook {
	u := r.IntN(isoUsers)
	place := isoPlace(r.IntN(2))
	l := isoLook{
		room:     agent.MemoryRoom{Scope: agent.Scope{Tenant: isoTenant(r.IntN(isoTenants)), User: isoUser(u), Environment: place}, Agent: isoAgent(r.IntN(2))},
		admitted: true,
	}
	if r.IntN(2) == 0 {
		l.room.Conversation = "c-" + isoUser(u) + "-" + place
	}
	if r.IntN(2) == 0 {
		l.room.Project = isoProject(u)
	}
	if r.IntN(3) == 0 {
		l.room.Group = isoGroup(u)
	}
	if r.IntN(10) == 0 {
		l.admitted = false
		switch r.IntN(3) {
		case 0:
			l.room.Group = isoGroup(u + 1)
		case 1:
			l.room.Project = isoProject(u + 1)
		case 2:
			l.room.Conversation = "c-" + isoUser((u+1)%isoUsers) + "-" + place
		}
	}
	l.scopes = l.room.Scopes()
	r.Shuffle(len(l.scopes), func(i, j int) { l.scopes[i], l.scopes[j] = l.scopes[j], l.scopes[i] })
	l.scopes = l.scopes[:1+r.IntN(len(l.scopes))]
	way := 1 + r.IntN(7)
	if way&1 != 0 {
		l.keys = []string{"service", "service.name"}
	}
	l.words = way&2 != 0
	if way&4 != 0 {
		l.vector = isoVector(r.IntN(1000))
	}
	return l
}

// sees are the records that are to be seen from a look, all of them: there are
// fewer than a recall returns.
func (w isoWorld) sees(l isoLook, scopes []agent.MemoryScope) (ids []string) {
	for _, scope := range scopes {
		ids = append(ids, w[l.room.Scope.Tenant][scope.Room(l.room.Scope.Environment)]...)
	}
	slices.Sort(ids)
	return ids
}

// recallFrom recalls as programs do, and returns how many records it found.
func (w isoWorld) recallFrom(d *db.DB, l isoLook) (int, error) {
	q := db.RecallQuery{Scopes: l.scopes, Kinds: []agent.MemoryKind{agent.MemoryPreference}, Keys: l.keys, Now: written.Add(time.Hour), Limit: 50}
	if l.words {
		q.Tokens = recall.Question(isoQuestion)
	}
	if l.vector != nil {
		q.Embedder, q.Embedding = isoEmbedder, l.vector
	}
	hits, err := d.Recall(ctx, l.room, q)
	if !l.admitted {
		if !errors.Is(err, db.ErrNotFound) || hits != nil {
			return 0, fmt.Errorf("who does not take part found %d, %v: %+v", len(hits), err, l.room)
		}
		return 0, nil
	}
	var ids []string
	for _, h := range hits {
		name := h.Record.Scope.Room(h.Record.Environment)
		if !strings.HasSuffix(string(h.Record.Value), fmt.Sprintf(`secret of %s %s"`, l.room.Scope.Tenant, name)) || h.Record.Environment != l.room.Scope.Environment ||
			!slices.Contains(l.scopes, h.Record.Scope) {
			return 0, fmt.Errorf("crossing: %s of %s from %+v", h.Record.ID, name, l.room)
		}
		ids = append(ids, h.Record.ID)
	}
	slices.Sort(ids)
	if want := w.sees(l, l.scopes); err != nil || !slices.Equal(ids, want) {
		return 0, fmt.Errorf("found %v, %w, want %v from %+v by keys %v, words %v, vector %v", ids, err, want, l.room, l.keys != nil, l.words, l.vector != nil)
	}
	return len(ids), nil
}

// TestISO3 recalls 10,000 times from random rooms among near-identical texts,
// vectors, keys and IDs. Each finds what is to be seen there, all of it and nothing
// else.
func TestISO3(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	w := isoFill(t, d, dbtest.Owner(t, url))
	var hits atomic.Int64
	inParallel(t, 10_000, func(i int) error {
		n, err := w.recallFrom(d, isoLookFrom(rand.New(rand.NewPCG(3, uint64(i)))))
		hits.Add(int64(n))
		return err
	})
	if hits.Load() < 20_000 {
		t.Errorf("only %d hits", hits.Load())
	}
}

// TestISO3FilterAlone is TestISO3 without row-level security.
func TestISO3FilterAlone(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	w := isoFill(t, d, owner)
	withoutRowLevelSecurity(t, owner)
	inParallel(t, 2_000, func(i int) error {
		_, err := w.recallFrom(d, isoLookFrom(rand.New(rand.NewPCG(4, uint64(i)))))
		return err
	})
}

func withoutRowLevelSecurity(t testing.TB, owner *pgxpool.Pool) {
	t.Helper()
	rows, err := owner.Query(ctx, "SELECT relname FROM pg_class WHERE relrowsecurity AND relnamespace = 'public'::regnamespace")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !slices.Contains(tables, "memory_record") || !slices.Contains(tables, "memory_word") {
		t.Fatalf("%v, %v", tables, err)
	}
	for _, table := range tables {
		if _, err := owner.Exec(ctx, "ALTER TABLE "+table+" DISABLE ROW LEVEL SECURITY"); err != nil {
			t.Fatal(err)
		}
	}
}

// filters are what keeps tenants and rooms apart in the query.
var filters = regexp.MustCompile(`\b\w+\.(tenant = @tenant|room = ANY \(@\w+::text\[\]\))`)

// isoUnfiltered is the query of Recall without its filters, and its parameters in
// order.
func isoUnfiltered(t testing.TB) (query string, params []string) {
	t.Helper()
	query = queryText(t, "memory_recall.sql", "RecallMemory")
	// By key 1, by word 6, by vector 6, in shared scopes 5, and of what was found 2.
	if n := len(filters.FindAllString(query, -1)); n != 20 {
		t.Fatalf("%d filters", n)
	}
	query = filters.ReplaceAllString(query, "true")
	return numbered(strings.Replace(query, "r.*", "r.tenant, r.room, r.id", 1))
}

// rooms are all rooms of the world.
func (w isoWorld) rooms() (names []string) {
	for _, of := range w {
		for name := range of {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// recallUnfiltered recalls by the query without filters, as programs may do
// that forgot them. It returns what it found as tenant, room and ID.
func (w isoWorld) recallUnfiltered(t testing.TB, d *db.DB, app *pgxpool.Pool, query string, params []string, l isoLook) ([]string, error) {
	unit, err := recall.Unit(isoVector(7))
	if err != nil {
		return nil, err
	}
	tokens := isoHashes(t, d, vault.Owner{Tenant: l.room.Scope.Tenant, Subject: l.room.Scope.User})[:1]
	values := map[string]any{
		"rooms": w.rooms(),
		"keys":  []string{"service", "service.name"}, "kinds": []string{"profile_preference"}, "at": written.Add(time.Hour), "max_hits": 5_000, "depth": 5_000,
		"first_depth": 5_000, "tokens": tokens, "owners": []int32{0}, "embedding": pgvector.NewHalfVector(unit), "sketch": pgtype.Bits{Bytes: recall.Sketch(unit), Len: recall.SketchBits, Valid: true},
		"embedder": isoEmbedder.Name, "dimensions": isoEmbedder.Dimensions, "sketched": 5_000, "max_distance": 1.0,
	}
	var args []any
	for _, p := range params {
		if values[p] == nil {
			return nil, fmt.Errorf("the query has a parameter %s that nobody set", p)
		}
		args = append(args, values[p])
	}
	tx, err := app.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	const enter = `SELECT set_config('app.tenant', $1, true), set_config('app.user', $2, true), set_config('app.environment', $3, true),
		set_config('app.conversation', $4, true), set_config('app.group', $5, true), set_config('app.project', $6, true), set_config('app.agent', $7, true)`
	s := l.room.Scope
	if _, err := tx.Exec(ctx, enter, s.Tenant, s.User, s.Environment, l.room.Conversation, l.room.Group, l.room.Project, l.room.Agent); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var tenant, room, id, via string
		var score float64
		err := row.Scan(&tenant, &room, &id, &score, &via)
		return tenant + " " + room + " " + id, err
	})
}

// TestISO3RowLevelSecurityAlone is TestISO3 by the same query without any filter.
// Who does not take part sees the rooms in which that is no question.
func TestISO3RowLevelSecurityAlone(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	w := isoFill(t, d, owner)
	query, params := isoUnfiltered(t)
	asApp := app(t, url)
	look := func(i int) isoLook { return isoLookFrom(rand.New(rand.NewPCG(5, uint64(i)))) }
	inParallel(t, 2_000, func(i int) error {
		l := look(i)
		got, err := w.recallUnfiltered(t, d, asApp, query, params, l)
		if err != nil {
			return err
		}
		scopes := slices.DeleteFunc(l.room.Scopes(), func(s agent.MemoryScope) bool {
			u := 0
			for isoUser(u) != l.room.Scope.User {
				u++
			}
			return (s.Kind == agent.MemoryOfGroup && s.ID != isoGroup(u)) || (s.Kind == agent.MemoryOfProject && s.ID != isoProject(u)) ||
				(s.Kind == agent.MemoryOfConversation && s.ID != "c-"+l.room.Scope.User+"-"+l.room.Scope.Environment)
		})
		var want []string
		for _, scope := range scopes {
			name := scope.Room(l.room.Scope.Environment)
			for _, id := range w[l.room.Scope.Tenant][name] {
				want = append(want, l.room.Scope.Tenant+" "+name+" "+id)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			return fmt.Errorf("found %v, want %v from %+v", got, want, l.room)
		}
		return nil
	})
	// Without both everybody sees everything: the test can fail.
	withoutRowLevelSecurity(t, owner)
	got, err := w.recallUnfiltered(t, d, asApp, query, params, look(0))
	if all := countRows(t, owner, "memory_record", "true"); err != nil || len(got) < all {
		t.Errorf("without filters and row-level security %d of %d, %v", len(got), all, err)
	}
}
