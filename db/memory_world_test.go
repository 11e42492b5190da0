package db_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// place is one scope of a world with a record and a candidate in it: whose it is
// and where.
type place struct {
	tenant, environment string
	scope               agent.MemoryScope
	// author is whom record and candidate come from, room where that user stood.
	author string
	room   agent.MemoryRoom
}

func (p place) record() string {
	return p.environment + "." + string(p.scope.Kind) + "." + p.scope.ID
}

func (p place) candidate() string { return "c-" + p.record() }

// stand is where somebody stands in a world, and what is to be seen from there.
type stand struct {
	room agent.MemoryRoom
	// sees are the scopes to be seen, as kind and ID; admitted is false for who
	// does not take part in what the room says it is.
	sees     []string
	admitted bool
}

// world fills two tenants alike, so that nothing but what separates them differs:
// ada and bob take part in group g1, bob in g2, ada in project p1; each has one
// conversation in each environment.
func world(t testing.TB, d *db.DB, owner *pgxpool.Pool) (places []place, stands []stand) {
	t.Helper()
	if _, err := owner.Exec(ctx, "INSERT INTO memory_embedder (name, dimensions, status) VALUES ('e', 3, 'serving')"); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"acme", "umbrella"} {
		for _, p := range []struct {
			kind     agent.MemoryScopeKind
			id, user string
		}{{"group", "g1", "ada"}, {"group", "g1", "bob"}, {"group", "g2", "bob"}, {"project", "p1", "ada"}} {
			if err := d.AddParticipant(ctx, tenant, agent.MemoryScope{Kind: p.kind, ID: p.id}, p.user, "olga"); err != nil {
				t.Fatal(err)
			}
		}
		for _, environment := range []string{"production", "staging"} {
			in := func(user string) agent.MemoryRoom {
				room := roomOf(tenant, user)
				room.Scope.Environment = environment
				return room
			}
			for _, user := range []string{"ada", "bob"} {
				_, err := owner.Exec(ctx, "INSERT INTO conversation (tenant, id, user_id, environment) VALUES ($1, $2, $3, $4)", tenant, "c-"+user+"-"+environment, user, environment)
				if err != nil {
					t.Fatal(err)
				}
			}
			put := func(user string, kind agent.MemoryScopeKind, id string, change func(*agent.MemoryRoom)) {
				p := place{tenant: tenant, environment: environment, scope: agent.MemoryScope{Kind: kind, ID: id}, author: user, room: in(user)}
				change(&p.room)
				places = append(places, p)
			}
			for _, user := range []string{"ada", "bob"} {
				put(user, agent.MemoryOfUser, user, func(*agent.MemoryRoom) {})
				conversation := "c-" + user + "-" + environment
				put(user, agent.MemoryOfConversation, conversation, func(r *agent.MemoryRoom) { r.Conversation = conversation })
			}
			put("ada", agent.MemoryOfGroup, "g1", func(r *agent.MemoryRoom) { r.Group = "g1" })
			put("bob", agent.MemoryOfGroup, "g2", func(r *agent.MemoryRoom) { r.Group = "g2" })
			put("ada", agent.MemoryOfProject, "p1", func(r *agent.MemoryRoom) { r.Project = "p1" })
			put("ada", agent.MemoryOfAgent, "helper", func(*agent.MemoryRoom) {})
			put("bob", agent.MemoryOfAgent, "other", func(r *agent.MemoryRoom) { r.Agent = "other" })

			look := func(user string, change func(*agent.MemoryRoom), admitted bool, sees ...string) {
				s := stand{room: in(user), sees: sees, admitted: admitted}
				change(&s.room)
				stands = append(stands, s)
			}
			nothing := func(*agent.MemoryRoom) {}
			look("ada", nothing, true, "user ada", "agent_role helper")
			look("bob", nothing, true, "user bob", "agent_role helper")
			look("bob", func(r *agent.MemoryRoom) { r.Agent = "other" }, true, "user bob", "agent_role other")
			look("eve", nothing, true, "agent_role helper")
			look("ada", func(r *agent.MemoryRoom) { r.Conversation = "c-ada-" + environment }, true, "user ada", "conversation c-ada-"+environment, "agent_role helper")
			look("bob", func(r *agent.MemoryRoom) { r.Conversation = "c-ada-" + environment }, false, "user bob", "agent_role helper")
			look("ada", func(r *agent.MemoryRoom) { r.Conversation = "c-ada-elsewhere" }, true, "user ada", "agent_role helper")
			look("ada", func(r *agent.MemoryRoom) { r.Conversation, r.Group = "c-ada-"+environment, "g1" }, true, "group g1", "agent_role helper")
			look("bob", func(r *agent.MemoryRoom) { r.Group = "g1" }, true, "group g1", "agent_role helper")
			look("ada", func(r *agent.MemoryRoom) { r.Group = "g2" }, false, "agent_role helper")
			look("bob", func(r *agent.MemoryRoom) { r.Group = "g2" }, true, "group g2", "agent_role helper")
			look("ada", func(r *agent.MemoryRoom) { r.Project = "p1" }, true, "user ada", "project p1", "agent_role helper")
			look("bob", func(r *agent.MemoryRoom) { r.Project = "p1" }, false, "user bob", "agent_role helper")
			look("ada", func(r *agent.MemoryRoom) { r.Group, r.Project = "g1", "p1" }, true, "group g1", "project p1", "agent_role helper")
			// A group is no project of that name.
			look("ada", func(r *agent.MemoryRoom) { r.Project = "g1" }, false, "user ada", "agent_role helper")
		}
	}
	for _, p := range places {
		r := recordOf(p.record(), `"secret of `+p.tenant+" "+p.record()+`"`)
		if err := store(d, p.room, p.scope, r, db.MemoryIndex{Tokens: []string{"secret"}, Embedder: db.MemoryEmbedder{Name: "e", Dimensions: 3}, Embedding: []float32{1, 0, 0}}); err != nil {
			t.Fatalf("%s: %v", p.record(), err)
		}
		c := proposalOf(p.room, p.candidate(), `"secret"`)
		c.Scope = p.scope
		if _, err := d.ProposeMemory(ctx, c); err != nil {
			t.Fatalf("%s: %v", p.candidate(), err)
		}
	}
	if len(places) != 36 || len(stands) != 60 {
		t.Fatalf("%d places, %d stands", len(places), len(stands))
	}
	return places, stands
}

// visible says what a stand sees of a place, by hand.
func (s stand) visible(p place) bool {
	return p.tenant == s.room.Scope.Tenant && p.environment == s.room.Scope.Environment && slices.Contains(s.sees, string(p.scope.Kind)+" "+p.scope.ID)
}

// lookAround tries to read and write every place from every stand, by the way of
// the programs, and says how many crossings there were to try.
func lookAround(t *testing.T, d *db.DB, places []place, stands []stand) (tried int) {
	t.Helper()
	for _, s := range stands {
		for _, p := range places {
			want := s.visible(p) && s.admitted
			what := fmt.Sprintf("from %+v at %s of %s", s.room, p.record(), p.tenant)
			var held []db.MemoryRecord
			err := d.InMemory(ctx, s.room, p.scope, func(m *db.MemoryTx) (err error) {
				held, err = m.HoldIdentity(ctx, "tone", "")
				return err
			})
			// The same scope may be there in the stand's own tenant and environment;
			// the record of the place is seen all the same only from there.
			found := err == nil && slices.ContainsFunc(held, func(r db.MemoryRecord) bool {
				return r.ID == p.record() && strings.Contains(string(r.Value), p.tenant)
			})
			if found != want || len(held) > 1 || (err != nil && !errors.Is(err, db.ErrNotFound)) {
				t.Errorf("%s: %d records, %v, want %v", what, len(held), err, want)
			}
			mine := want && p.author == s.room.Scope.User
			if c, err := d.MemoryCandidate(ctx, s.room, p.candidate()); (err == nil && c.Scope == p.scope && c.Room.Scope.Tenant == p.tenant) != mine {
				if !sameNameOfOwn(s, p, places) {
					t.Errorf("%s: candidate %+v, %v, want %v", what, c, err, mine)
				}
			} else if err != nil && !errors.Is(err, db.ErrNotFound) {
				t.Errorf("%s: candidate: %v", what, err)
			}
			err = d.InMemory(ctx, s.room, p.scope, func(m *db.MemoryTx) error {
				c, err := m.HoldCandidate(ctx, p.candidate())
				if err == nil && c.Room.Scope.Tenant != p.tenant {
					return db.ErrNotFound
				}
				return err
			})
			if (err == nil) != mine || (err != nil && !errors.Is(err, db.ErrNotFound)) {
				t.Errorf("%s: held candidate: %v, want %v", what, err, mine)
			}
			tried++
		}
	}
	return tried
}

// sameNameOfOwn reports whether what a stand sees under a place's name is its
// tenant's own.
func sameNameOfOwn(s stand, p place, places []place) bool {
	return slices.ContainsFunc(places, func(o place) bool {
		return o.record() == p.record() && o.tenant == s.room.Scope.Tenant && o.tenant != p.tenant && s.visible(o) && o.author == s.room.Scope.User
	})
}

// fillMemory stores a row of every table of memory that belongs to a tenant.
func fillMemory(t testing.TB, d *db.DB, owner *pgxpool.Pool, run db.Run) {
	t.Helper()
	room := roomOf(run.Scope.Tenant, run.Scope.User)
	if err := d.AddParticipant(ctx, run.Scope.Tenant, agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g1"}, "bob", "olga"); err != nil {
		t.Fatal(err)
	}
	other := recordOf("m2", `"secret of `+run.Scope.Tenant+`"`)
	other.Key = "city"
	remember(t, d, room, recordOf("m1", `"secret of `+run.Scope.Tenant+`"`), other)
	propose(t, d, room, "p1", `"secret of `+run.Scope.Tenant+`"`)
	if err := d.InTx(ctx, run.Scope, func(tx *db.Tx) error { tx.InsertLesson(run.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	_, err := owner.Exec(ctx, `INSERT INTO memory_influence (tenant, run_id, record_id, version, subject, user_id, rank, via)
		VALUES ($1, $2, 'm1', 1, $3, $3, 1, 'exact')`, run.Scope.Tenant, run.ID, run.Scope.User)
	if err != nil {
		t.Fatal(err)
	}
	if step, err := d.ForgetMemory(ctx, agent.ForgetInput{ID: "f1", Room: room, Record: "m2", By: "ada"}, 10); err != nil || !step.Done {
		t.Fatalf("%+v, %v", step, err)
	}
}
