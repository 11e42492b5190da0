package db_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

// memoryTables are those that a room sees a part of.
var memoryTables = []string{"memory_record", "memory_candidate", "memory_keyword", "memory_vector"}

// TestISO1Crossings tries all crossings of tenant, user, environment, conversation,
// group, project and agent, as the programs do.
func TestISO1Crossings(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	places, stands := world(t, d, dbtest.Owner(t, url))
	if tried := lookAround(t, d, places, stands); tried != 60*36 {
		t.Errorf("%d tried", tried)
	}
}

// TestISO1FiltersAlone is TestISO1Crossings without row-level security.
func TestISO1FiltersAlone(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	places, stands := world(t, d, owner)
	rows, err := owner.Query(ctx, "SELECT relname FROM pg_class WHERE relrowsecurity AND relnamespace = 'public'::regnamespace")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 20 {
		t.Fatalf("%v, %v", tables, err)
	}
	for _, table := range tables {
		if _, err := owner.Exec(ctx, "ALTER TABLE "+table+" DISABLE ROW LEVEL SECURITY"); err != nil {
			t.Fatal(err)
		}
	}
	lookAround(t, d, places, stands)
	wantOwnMemories(t, d, places)
	defer wantOwnVersions(t, d)
	for _, user := range []string{"ada", "bob", "eve"} {
		for _, tenant := range []string{"acme", "umbrella"} {
			wantNoTrespass(t, d, tenant, user, places)
		}
	}
}

// TestISO1RightsCrossings asks what is remembered of each user.
func TestISO1RightsCrossings(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	places, _ := world(t, d, dbtest.Owner(t, url))
	wantOwnMemories(t, d, places)
	for _, user := range []string{"ada", "bob", "eve"} {
		for _, tenant := range []string{"acme", "umbrella"} {
			wantNoTrespass(t, d, tenant, user, places)
		}
	}
}

// wantOwnVersions lets bob replace what ada said in a group: ada is shown her own
// version of it only.
func wantOwnVersions(t *testing.T, d *db.DB) {
	t.Helper()
	chat := roomOf("acme", "bob")
	chat.Group = "g1"
	if err := store(d, chat, agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g1"}, recordOf("x", `"by bob"`), db.MemoryIndex{}); err != nil {
		t.Fatal(err)
	}
	list, err := d.Memories(ctx, "acme", "ada", db.MemoryFilter{Past: true})
	if err != nil || len(list) != 10 || slices.ContainsFunc(list, func(m db.MemoryRecord) bool { return m.User != "ada" }) {
		t.Errorf("%d versions, %v", len(list), err)
	}
}

// wantOwnMemories wants each user to be told what comes from the user, and the
// operator of a tenant all of the tenant's candidates.
func wantOwnMemories(t *testing.T, d *db.DB, places []place) {
	t.Helper()
	for _, tenant := range []string{"acme", "umbrella"} {
		of := func(user string) (records, candidates []string) {
			for _, p := range places {
				if p.tenant == tenant && (p.author == user || user == "") {
					records, candidates = append(records, p.record()), append(candidates, p.candidate())
				}
			}
			slices.Sort(records)
			slices.Sort(candidates)
			return records, candidates
		}
		for _, user := range []string{"", "ada", "bob", "eve"} {
			records, candidates := of(user)
			if user != "" {
				list, err := d.Memories(ctx, tenant, user, db.MemoryFilter{})
				var got []string
				for _, m := range list {
					if got = append(got, m.ID); string(m.Value) != `"secret of `+tenant+" "+m.ID+`"` {
						t.Errorf("%s of %s reads %s", m.ID, tenant, m.Value)
					}
				}
				if err != nil || !slices.Equal(got, records) {
					t.Errorf("%s of %s: %v, %v, want %v", user, tenant, got, err, records)
				}
			}
			list, err := d.MemoryCandidates(ctx, tenant, user, "", 0)
			var got []string
			for _, c := range list {
				if got = append(got, c.ID); c.Content == nil || c.Room.Scope.Tenant != tenant {
					t.Errorf("candidate %+v", c)
				}
			}
			slices.Sort(got)
			if err != nil || !slices.Equal(got, candidates) {
				t.Errorf("candidates of %q of %s: %v, %v, want %v", user, tenant, got, err, candidates)
			}
		}
	}
}

// wantShared wants a participant to see what belongs to the group or project, without
// what somebody else said to bring it about, and not to have it forgotten.
func wantShared(t *testing.T, d *db.DB, tenant, user string, p place) {
	t.Helper()
	m, err := d.Memory(ctx, tenant, user, p.record())
	if err != nil || string(m.Value) != `"secret of `+tenant+" "+p.record()+`"` || m.Evidence.Quote != "" || m.Evidence.MessageID != "" {
		t.Errorf("%s of %s: %s: %+v, %v", user, tenant, p.record(), m, err)
	}
	trace, err := d.TraceMemory(ctx, tenant, user, p.record())
	if err != nil || len(trace.Versions) != 1 || len(trace.Candidates)+len(trace.Influences) != 0 || trace.Source != nil {
		t.Errorf("%s of %s: %s: %+v, %v", user, tenant, p.record(), trace, err)
	}
	if _, err := d.ForgetMemory(ctx, agent.ForgetInput{ID: "f", Room: roomOf(tenant, user), Record: p.record(), By: user}, 1); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("%s of %s forgets %s: %v", user, tenant, p.record(), err)
	}
	list, err := d.Memories(ctx, tenant, user, db.MemoryFilter{Shared: p.scope, Environment: p.environment})
	if err != nil || len(list) != 1 || list[0].ID != p.record() || list[0].Evidence.Quote != "" {
		t.Errorf("%s of %s: of %+v there is %+v, %v", user, tenant, p.scope, list, err)
	}
}

// wantNoTrespass wants what is somebody else's to be told apart by nothing from
// what does not exist.
func wantNoTrespass(t *testing.T, d *db.DB, tenant, user string, places []place) {
	t.Helper()
	texts := map[string]bool{}
	ask := func(id string) error {
		_, err := d.Memory(ctx, tenant, user, id)
		_, traced := d.TraceMemory(ctx, tenant, user, id)
		_, forgot := d.ForgetMemory(ctx, agent.ForgetInput{ID: "f", Room: roomOf(tenant, user), Record: id, By: user}, 1)
		if err == nil || traced == nil || forgot == nil {
			t.Errorf("%s of %s: %s: %v, %v, %v", user, tenant, id, err, traced, forgot)
			return nil
		}
		texts[fmt.Sprint(err, traced, forgot)] = true
		return errors.Join(err, traced, forgot)
	}
	partakes := map[string]bool{"ada group g1": true, "bob group g1": true, "bob group g2": true, "ada project p1": true}
	for _, p := range places {
		switch {
		case p.tenant != tenant || p.author == user:
		case partakes[user+" "+string(p.scope.Kind)+" "+p.scope.ID]:
			wantShared(t, d, tenant, user, p)
		default:
			if err := ask(p.record()); !errors.Is(err, db.ErrNotFound) {
				t.Errorf("%s of %s: %s: %v", user, tenant, p.record(), err)
			}
		}
	}
	if err := ask("none"); !errors.Is(err, db.ErrNotFound) || len(texts) != 1 {
		t.Errorf("%s of %s: what is not there and what is not theirs differ: %v", user, tenant, texts)
	}
}

// TestISO1RowLevelSecurityAlone asks without any filter, from every stand.
func TestISO1RowLevelSecurityAlone(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	places, stands := world(t, d, owner)
	pool := app(t, url)
	for _, s := range stands {
		var want []string
		for _, p := range places {
			if s.visible(p) {
				want = append(want, p.tenant+" "+p.record())
			}
		}
		slices.Sort(want)
		tx := as(t, pool, s.room, "", "")
		for _, table := range memoryTables {
			if got := seen(t, tx, table); !slices.Equal(got, want) {
				t.Errorf("from %+v in %s:\n%v, want\n%v", s.room, table, got, want)
			}
		}
		// Nor is anything changed or removed that is not seen.
		for _, sql := range []string{
			"UPDATE memory_record SET repeats = repeats + 1", "UPDATE memory_candidate SET tries = tries + 1",
			"UPDATE memory_keyword SET tokens = '{}'", "DELETE FROM memory_keyword", "UPDATE memory_vector SET version = 1", "DELETE FROM memory_vector",
		} {
			if tag, err := tx.Exec(ctx, sql); err != nil || int(tag.RowsAffected()) != len(want) {
				t.Errorf("from %+v: %s: %v, %v, want %d", s.room, sql, tag, err, len(want))
			}
		}
		_ = tx.Rollback(ctx)
	}
	// Nothing at all without settings, and all of one tenant for its operators.
	for _, c := range []struct {
		tenant, subject, memory string
		want                    int
	}{{"", "", "", 0}, {"acme", "", "", 0}, {"acme", "", "tenant", 18}, {"", "", "tenant", 0}, {"acme", "", "other", 0}, {"initech", "", "tenant", 0}} {
		tx := as(t, pool, agent.MemoryRoom{Scope: agent.Scope{Tenant: c.tenant}}, c.subject, c.memory)
		for _, table := range memoryTables {
			if got := seen(t, tx, table); len(got) != c.want {
				t.Errorf("%+v in %s: %v", c, table, got)
			}
		}
		_ = tx.Rollback(ctx)
	}
	// A person sees what is personal, and what comes from the person elsewhere.
	tx := as(t, pool, agent.MemoryRoom{Scope: agent.Scope{Tenant: "acme", User: "bob"}}, "bob", "")
	defer func() { _ = tx.Rollback(ctx) }()
	// Of the records also those of the groups that the person takes part in.
	for table, want := range map[string]int{"memory_record": 10, "memory_candidate": 8, "memory_keyword": 4, "memory_vector": 4} {
		got := seen(t, tx, table)
		if len(got) != want || slices.ContainsFunc(got, func(id string) bool {
			return !strings.HasPrefix(id, "acme ") || strings.Contains(id, "ada") || (strings.Contains(id, "g1") && table != "memory_record") || strings.Contains(id, "helper") ||
				strings.Contains(id, "p1")
		}) {
			t.Errorf("bob in %s: %v", table, got)
		}
	}
}

// as begins a transaction of the programs' role for a room, a person or a tenant.
func as(t *testing.T, pool *pgxpool.Pool, room agent.MemoryRoom, subject, memory string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(ctx) })
	for name, value := range map[string]string{
		"tenant": room.Scope.Tenant, "user": room.Scope.User, "environment": room.Scope.Environment, "conversation": room.Conversation,
		"group": room.Group, "project": room.Project, "agent": room.Agent, "memory_subject": subject, "memory": memory,
	} {
		if value == "" {
			continue
		}
		if _, err := tx.Exec(ctx, "SELECT set_config('app."+name+"', $1, true)", value); err != nil {
			t.Fatal(err)
		}
	}
	return tx
}

// seen returns tenant and record of the rows that are visible, in order.
func seen(t *testing.T, tx pgx.Tx, table string) []string {
	t.Helper()
	id := map[string]string{"memory_record": "id", "memory_candidate": "substr(id, 3)"}[table]
	if id == "" {
		id = "record_id"
	}
	rows, err := tx.Query(ctx, "SELECT tenant || ' ' || "+id+" FROM "+table)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// TestISO1WritesStayInTheRoom writes rows of other rooms without any filter.
func TestISO1WritesStayInTheRoom(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	places, stands := world(t, d, owner)
	pool := app(t, url)
	for _, s := range stands {
		for _, p := range places {
			room := p.scope.Room(p.environment)
			tx := as(t, pool, s.room, "", "")
			_, err := tx.Exec(ctx, "INSERT INTO memory_keyword (tenant, record_id, version, room, subject, tokens) VALUES ($1, 'planted', 1, $2, $3, '{1}')",
				p.tenant, room, p.scope.Subject(p.author))
			_ = tx.Rollback(ctx)
			if refused := err != nil && strings.Contains(err.Error(), "42501"); refused == s.visible(p) {
				t.Errorf("from %+v into %s of %s: %v", s.room, room, p.tenant, err)
			}
		}
	}
	// A person reads what comes from the person elsewhere and changes nothing of it.
	tx := as(t, pool, agent.MemoryRoom{Scope: agent.Scope{Tenant: "acme", User: "bob"}}, "bob", "")
	defer func() { _ = tx.Rollback(ctx) }()
	if tag, err := tx.Exec(ctx, "UPDATE memory_record SET repeats = 9"); err != nil || tag.RowsAffected() != 4 {
		t.Errorf("%v, %v", tag, err)
	}
}

// TestISO2NothingPersonalInAGroup: from a group chat nothing personal is read or
// written, and what the group remembers is no participant's.
func TestISO2NothingPersonalInAGroup(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	group := agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g1"}
	for _, user := range []string{"ada", "bob"} {
		if err := d.AddParticipant(ctx, "acme", group, user, "olga"); err != nil {
			t.Fatal(err)
		}
	}
	alone, chat := roomOf("acme", "ada"), roomOf("acme", "ada")
	chat.Group = "g1"
	remember(t, d, alone, recordOf("mine", `"my diet"`))
	if err := store(d, chat, ofUser(chat), recordOf("leak", `"x"`), db.MemoryIndex{}); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("written into personal memory from a group: %v", err)
	}
	if err := store(d, alone, group, recordOf("leak", `"x"`), db.MemoryIndex{}); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("written into a group from outside: %v", err)
	}
	if err := store(d, chat, group, recordOf("ours", `"we ship on Fridays"`), db.MemoryIndex{}); err != nil {
		t.Fatal(err)
	}
	// Bob reads it in the group; it is not what is remembered of bob.
	bob := roomOf("acme", "bob")
	bob.Group = "g1"
	err := d.InMemory(ctx, bob, group, func(m *db.MemoryTx) error {
		held, err := m.HoldIdentity(ctx, "tone", "")
		if err != nil || len(held) != 1 || string(held[0].Value) != `"we ship on Fridays"` {
			t.Errorf("bob holds %+v, %v", held, err)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if list, err := d.Memories(ctx, "acme", "bob", db.MemoryFilter{Past: true}); err != nil || len(list) != 0 {
		t.Errorf("remembered of bob: %+v, %v", list, err)
	}
	ours := db.MemoryFilter{Shared: group}
	if list, err := d.Memories(ctx, "acme", "bob", ours); err != nil || len(list) != 1 || string(list[0].Value) != `"we ship on Fridays"` {
		t.Errorf("of the group: %+v, %v", list, err)
	}
	// Who takes no part, or not any more, sees nothing of it.
	if err := d.RemoveParticipant(ctx, "acme", group, "bob", "olga"); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"bob", "eve"} {
		_, byID := d.Memory(ctx, "acme", user, "ours")
		_, listed := d.Memories(ctx, "acme", user, ours)
		if !errors.Is(byID, db.ErrNotFound) || !errors.Is(listed, db.ErrNotFound) {
			t.Errorf("%s: %v, %v", user, byID, listed)
		}
	}
	// It is of ada, who said so.
	if m, err := d.Memory(ctx, "acme", "ada", "ours"); err != nil || m.Subject != "~group~g1" || m.User != "ada" {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestERASE2NoParticipant: who was erased takes part in nothing, and sees nothing of a
// group whatever the table of participants says.
func TestERASE2NoParticipant(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	group := agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g1"}
	if err := d.AddParticipant(ctx, "acme", group, "ada", "olga"); err != nil {
		t.Fatal(err)
	}
	chat := roomOf("acme", "ada")
	chat.Group = "g1"
	if err := store(d, chat, group, recordOf("ours", `"we ship on Fridays"`), db.MemoryIndex{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.EraseSubject(ctx, agent.EraseInput{ID: "e1", Tenant: "acme", User: "bob", By: "olga"}, 10); err != nil {
		t.Fatal(err)
	}
	if err := d.AddParticipant(ctx, "acme", group, "bob", "olga"); !errors.Is(err, db.ErrErased) {
		t.Errorf("let in again: %v", err)
	}
	if _, err := owner.Exec(ctx, "INSERT INTO memory_participant (tenant, kind, id, user_id, added_by) VALUES ('acme', 'group', 'g1', 'bob', 'x')"); err != nil {
		t.Fatal(err)
	}
	if list, err := d.Memories(ctx, "acme", "bob", db.MemoryFilter{Shared: group}); err == nil && len(list) != 0 {
		t.Errorf("the erased sees %+v", list)
	}
	if m, err := d.Memory(ctx, "acme", "bob", "ours"); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("the erased sees %+v, %v", m, err)
	}
}

// TestISO2ParticipantsAreAskedEachTime removes somebody in between.
func TestISO2ParticipantsAreAskedEachTime(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	group := agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g1"}
	chat := roomOf("acme", "bob")
	chat.Group = "g1"
	proposal := proposalOf(chat, "p1", `"x"`)
	proposal.Scope = group
	ways := map[string]func() error{
		"propose": func() error { _, err := d.ProposeMemory(ctx, proposal); return err },
		"read":    func() error { _, err := d.MemoryCandidate(ctx, chat, "p1"); return err },
		"hold": func() error {
			return d.InMemory(ctx, chat, group, func(m *db.MemoryTx) error { _, err := m.HoldCandidate(ctx, "p1"); return err })
		},
		"write": func() error {
			r := recordOf("m1", `"x"`)
			r.Identity = fmt.Sprint(r)
			err := store(d, chat, group, r, db.MemoryIndex{})
			if errors.Is(err, db.ErrConflict) {
				return nil // It is there already.
			}
			return err
		},
		// The commit alone asks as well.
		"audit": func() error {
			return d.InMemory(ctx, chat, group, func(m *db.MemoryTx) error { m.Audit(db.MemoryAudit{Actor: "bob", Action: "looked"}); return nil })
		},
	}
	order := []string{"propose", "read", "hold", "write", "audit"}
	try := func(when string, want error) {
		t.Helper()
		for _, way := range order {
			if err := ways[way](); !errors.Is(err, want) || (want == nil && err != nil) {
				t.Errorf("%s, %s: %v", when, way, err)
			}
		}
	}
	try("before", db.ErrNotFound)
	if n := countRows(t, dbtest.Owner(t, url), "subject_key", "true"); n != 0 {
		t.Errorf("%d keys were made for who is not admitted", n)
	}
	if err := d.RemoveParticipant(ctx, "acme", group, "bob", "olga"); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("removed who never took part: %v", err)
	}
	for range 2 {
		if err := d.AddParticipant(ctx, "acme", group, "bob", "olga"); err != nil {
			t.Fatal(err)
		}
	}
	try("while", nil)
	for range 2 {
		if err := d.RemoveParticipant(ctx, "acme", group, "bob", "mel"); err != nil {
			t.Fatal(err)
		}
	}
	try("after", db.ErrNotFound)
	list, err := d.Participants(ctx, "acme", group)
	if err != nil || len(list) != 1 || list[0].User != "bob" || list[0].AddedBy != "olga" || list[0].RemovedBy != "mel" || list[0].RemovedAt == nil || list[0].Scope != group {
		t.Errorf("%+v, %v", list, err)
	}
	if err := d.AddParticipant(ctx, "acme", group, "bob", "zoe"); err != nil {
		t.Fatal(err)
	}
	try("again", nil)
	if list, err := d.Participants(ctx, "acme", group); err != nil || list[0].AddedBy != "zoe" || list[0].RemovedAt != nil || list[0].RemovedBy != "" {
		t.Errorf("%+v, %v", list, err)
	}
	if other, err := d.Participants(ctx, "umbrella", group); err != nil || len(other) != 0 {
		t.Errorf("of another tenant: %+v, %v", other, err)
	}
	for _, odd := range []agent.MemoryScope{{Kind: agent.MemoryOfUser, ID: "bob"}, {Kind: agent.MemoryOfGroup}, {Kind: agent.MemoryOfGroup, ID: "a/b"}} {
		if err := d.AddParticipant(ctx, "acme", odd, "bob", "olga"); err == nil {
			t.Errorf("%+v has participants", odd)
		}
	}
}

// TestISO1RoomsAreChecked: no name of a room can be taken for another one.
func TestISO1RoomsAreChecked(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for _, change := range []func(*agent.MemoryRoom){
		func(r *agent.MemoryRoom) { r.Scope.Tenant = "" },
		func(r *agent.MemoryRoom) { r.Scope.User = "" },
		func(r *agent.MemoryRoom) { r.Scope.Environment = "" },
		func(r *agent.MemoryRoom) { r.Scope.User = "~group~g1" },
		func(r *agent.MemoryRoom) { r.Scope.Environment = "production/user" },
		func(r *agent.MemoryRoom) { r.Conversation = "c/../d" },
		func(r *agent.MemoryRoom) { r.Group = "g 1" },
		func(r *agent.MemoryRoom) { r.Project = "p\n1" },
		func(r *agent.MemoryRoom) { r.Agent = "%" },
	} {
		room := roomOf("acme", "ada")
		change(&room)
		called := false
		err := d.InMemory(ctx, room, ofUser(room), func(*db.MemoryTx) error { called = true; return nil })
		if _, read := d.MemoryCandidate(ctx, room, "p1"); !errors.Is(err, db.ErrScope) || !errors.Is(read, db.ErrScope) || called {
			t.Errorf("%+v: %v, %v, called %v", room, err, read, called)
		}
	}
	for _, who := range [][2]string{{"", "ada"}, {"acme", "~user"}, {"a/b", "ada"}, {"acme", ""}} {
		if _, err := d.Memories(ctx, who[0], who[1], db.MemoryFilter{}); !errors.Is(err, db.ErrScope) {
			t.Errorf("%v: %v", who, err)
		}
	}
}
