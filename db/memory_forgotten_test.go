package db_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

// TestERASE1NothingIsLearnedFromBefore: whoever has all forgotten is not remembered
// by what was said before, be it due, under way or at its end.
func TestERASE1NothingIsLearnedFromBefore(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	scope, room := scopeOf("acme"), roomOf("acme", "ada")
	room.Conversation = "c"
	before := begin(t, d, scope, "c", "r1")
	begin(t, d, scope, "c", "r2")
	learn := func(id string) {
		t.Helper()
		if err := d.InTx(ctx, scope, func(tx *db.Tx) error { tx.InsertLesson(id); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	learn("r1")
	if c := propose(t, d, room, "p0", `"said before"`); c.State != agent.MemoryProposed {
		t.Fatalf("%+v", c)
	}
	step, err := d.ForgetMemory(ctx, agent.ForgetInput{ID: "f1", Room: room, By: "user:ada"}, 10)
	if err != nil || !step.Done || step.Receipt.Candidates != 1 {
		t.Fatalf("%+v, %v", step, err)
	}
	source, err := d.LessonSource(ctx, agent.RunRef{Scope: scope, RunID: "r1", Generation: before.Generation})
	if err != nil || source.Lesson.Status != "failed" || countRows(t, owner, "memory_lesson", "failure = 'forgotten'") != 1 {
		t.Errorf("the lesson is %s, %v", source.Lesson.Status, err)
	}
	// A run that ends only now has no lesson either.
	learn("r2")
	if n := countRows(t, owner, "memory_lesson", "run_id = 'r2'"); n != 0 {
		t.Error("a lesson of what was said before")
	}
	if _, err := d.ProposeMemory(ctx, proposalOf(room, "p1", `"said before"`)); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("learned by whom was under way: %v", err)
	}
	// What is on record already is told as it is.
	if c, err := d.ProposeMemory(ctx, proposalOf(room, "p0", `"said before"`)); err != nil || c.State != agent.MemoryDeclined || c.Content != nil {
		t.Errorf("%+v, %v", c, err)
	}
	// What is said from now on is remembered.
	begin(t, d, scope, "c", "r3")
	learn("r3")
	after := proposalOf(room, "p2", `"said after"`)
	after.RunID = "r3"
	if _, err := d.ProposeMemory(ctx, after); err != nil || countRows(t, owner, "memory_lesson", "run_id = 'r3' AND status = 'due'") != 1 {
		t.Errorf("said after: %v", err)
	}
	// And what a run of somebody else says.
	bob := scope
	bob.User = "bob"
	begin(t, d, bob, "c-bob", "r4")
	other := proposalOf(roomOf("acme", "bob"), "p3", `"by bob"`)
	other.RunID = "r4"
	if _, err := d.ProposeMemory(ctx, other); err != nil {
		t.Error(err)
	}
}

// TestERASE1ForgottenRecordIsNotProposedTwice: a record goes with what is proposed
// of its key and not decided, and nothing else goes.
func TestERASE1ForgottenRecordIsNotProposedTwice(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	room, bob := roomOf("acme", "ada"), roomOf("acme", "bob")
	remember(t, d, room, recordOf("m1", `"x"`))
	twin := propose(t, d, room, "twin", `"x"`)
	propose(t, d, bob, "bobs", `"x"`)
	elsewhere := proposalOf(room, "elsewhere", `"x"`)
	elsewhere.Scope = agent.MemoryScope{Kind: agent.MemoryOfAgent, ID: "helper"}
	city := proposalOf(room, "city", `"x"`)
	city.Key = "city"
	for _, c := range []db.MemoryCandidate{elsewhere, city} {
		if _, err := d.ProposeMemory(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	step, err := d.ForgetMemory(ctx, agent.ForgetInput{ID: "f1", Room: room, Record: "m1", By: "user:ada"}, 10)
	if err != nil || !step.Done || step.Receipt.Candidates != 1 {
		t.Errorf("%+v, %v", step, err)
	}
	for id, want := range map[string]agent.MemoryState{twin.ID: agent.MemoryDeclined, "elsewhere": agent.MemoryProposed, "city": agent.MemoryProposed} {
		if c, err := d.MemoryCandidate(ctx, room, id); err != nil || c.State != want || (c.Content == nil) != c.State.Final() {
			t.Errorf("%s: %+v, %v", id, c, err)
		}
	}
	if c, err := d.MemoryCandidate(ctx, bob, "bobs"); err != nil || c.State != agent.MemoryProposed {
		t.Errorf("bob's: %+v, %v", c, err)
	}
}

// TestERASE1DecidedCandidateCannotBeGuessed: nothing that a value could be guessed
// by without a key outlives the decision, whoever made it.
func TestERASE1DecidedCandidateCannotBeGuessed(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*testing.T, *db.DB, agent.MemoryRoom, time.Time) error{
		"declined": func(_ *testing.T, d *db.DB, room agent.MemoryRoom, _ time.Time) error {
			return decide(d, room, "p1", func(c *db.MemoryCandidate) { c.State = agent.MemoryDeclined })
		},
		"expired": func(t *testing.T, d *db.DB, _ agent.MemoryRoom, until time.Time) error {
			reconcile(t, d, until, until.Add(time.Second), 10)
			return nil
		},
		"forgotten": func(_ *testing.T, d *db.DB, room agent.MemoryRoom, _ time.Time) error {
			_, err := d.ForgetMemory(ctx, agent.ForgetInput{ID: "f1", Room: room, By: "ada"}, 10)
			return err
		},
		"of a forgotten record": func(_ *testing.T, d *db.DB, room agent.MemoryRoom, _ time.Time) error {
			_, err := d.ForgetMemory(ctx, agent.ForgetInput{ID: "f1", Room: room, Record: "m1", By: "ada"}, 10)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d, url := dbtest.NewWithURL(t)
			owner := dbtest.Owner(t, url)
			room := roomOf("acme", "ada")
			remember(t, d, room, recordOf("m1", `"x"`))
			propose(t, d, room, "p1", `"sushi"`)
			until := time.Now().Add(time.Hour)
			if err := decide(d, room, "p1", func(c *db.MemoryCandidate) {
				c.State, c.ExpiresAt, c.Nonce, c.PlanHash, c.ValueHash = agent.MemoryWaitingReview, &until, "nonce", digest, digest
			}); err != nil {
				t.Fatal(err)
			}
			if n := countRows(t, owner, "memory_candidate", "nonce = 'nonce' AND plan_hash <> ''"); n != 1 {
				t.Fatal("a plan that waits is not bound")
			}
			if err := end(t, d, room, until); err != nil {
				t.Fatal(err)
			}
			if n := countRows(t, owner, "memory_candidate", "id = 'p1' AND state IN ('declined', 'expired') AND nonce = '' AND plan_hash = '' AND content IS NULL"); n != 1 {
				t.Error("nonce and hash of the plan are left")
			}
			if _, err := owner.Exec(ctx, "UPDATE memory_candidate SET plan_hash = 'h'"); err == nil || !strings.Contains(err.Error(), "memory_candidate_plan_check") {
				t.Errorf("put back: %v", err)
			}
		})
	}
}

// TestISO2ConversationOfAGroup: what was said in a group's conversation is nobody's
// own, also from a room that does not say so.
func TestISO2ConversationOfAGroup(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	execute(t, owner, "INSERT INTO conversation (tenant, id, user_id, environment, group_id) VALUES ('acme', 'cg', 'ada', 'production', 'g1')",
		"INSERT INTO conversation (tenant, id, user_id, environment, project_id) VALUES ('acme', 'cp', 'ada', 'production', 'p1')",
		"INSERT INTO conversation (tenant, id, user_id, environment) VALUES ('acme', 'c', 'ada', 'production')")
	for _, scope := range []agent.MemoryScope{
		{Kind: agent.MemoryOfGroup, ID: "g1"}, {Kind: agent.MemoryOfGroup, ID: "g2"}, {Kind: agent.MemoryOfProject, ID: "p1"}, {Kind: agent.MemoryOfProject, ID: "p2"},
	} {
		if err := d.AddParticipant(ctx, "acme", scope, "ada", "olga"); err != nil {
			t.Fatal(err)
		}
	}
	pool := app(t, url)
	for _, c := range []struct {
		conversation, group, project string
		admitted                     bool
		rooms                        string
	}{
		{"cg", "", "", false, "agent_role/helper"},
		{"cg", "g2", "", false, "group/g2 agent_role/helper"},
		{"cg", "", "p1", false, "project/p1 agent_role/helper"},
		{"cg", "g1", "", true, "group/g1 agent_role/helper"},
		{"cp", "", "p2", false, "user/ada conversation/cp project/p2 agent_role/helper"},
		// The own things of a project's conversation are the user's.
		{"cp", "", "", true, "user/ada conversation/cp agent_role/helper"},
		{"cp", "", "p1", true, "user/ada conversation/cp project/p1 agent_role/helper"},
		{"c", "", "", true, "user/ada conversation/c agent_role/helper"},
	} {
		room := roomOf("acme", "ada")
		room.Conversation, room.Group, room.Project = c.conversation, c.group, c.project
		what := fmt.Sprintf("%+v", c)
		for i, scope := range room.Scopes() {
			err := store(d, room, scope, recordOf(fmt.Sprint(c.conversation, c.group, c.project, i), `"x"`), db.MemoryIndex{})
			if (err == nil) != c.admitted || (err != nil && !errors.Is(err, db.ErrNotFound)) {
				t.Errorf("%s: %s: %v", what, scope.Kind, err)
			}
		}
		tx := as(t, pool, room, "", "")
		var seen string
		if err := tx.QueryRow(ctx, "SELECT replace(array_to_string(memory_rooms(), ' '), 'production/', '')").Scan(&seen); err != nil || seen != c.rooms {
			t.Errorf("%s: rooms %q, %v", what, seen, err)
		}
		_ = tx.Rollback(ctx)
	}
}

// TestISO1WhoIsWhoIsNotOnesOwn: row-level security shows a user nothing of others,
// and lets nobody in or out of anything.
func TestISO1WhoIsWhoIsNotOnesOwn(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	fillMemory(t, d, owner, run)
	execute(t, owner, "INSERT INTO memory_participant (tenant, kind, id, user_id, added_by, removed_by, removed_at) VALUES ('acme', 'group', 'g1', 'eve', 'olga', 'olga', now())")
	pool := app(t, url)
	count := func(user, subject, memory, table string) (n int) {
		t.Helper()
		tx := as(t, pool, roomOf("acme", user), subject, memory)
		defer func() { _ = tx.Rollback(ctx) }()
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for table, of := range map[string]string{
		"memory_participant": "bob", "memory_influence": "ada", "memory_lesson": "ada", "memory_erasure": "ada", "memory_audit": "ada",
	} {
		all := countRows(t, owner, table, "user_id = '"+of+"'")
		if of == "bob" {
			all = 1
		}
		if all == 0 || count(of, "", "", table) != all || count("zoe", of, "", table) != all {
			t.Errorf("%s: %d rows are of %s, seen %d and %d", table, all, of, count(of, "", "", table), count("zoe", of, "", table))
		}
		if n := count("zoe", "", "", table) + count("zoe", "zoe", "other", table); n != 0 {
			t.Errorf("%s: %d rows are shown to somebody else", table, n)
		}
		if n := count("", "", "tenant", table); n != countRows(t, owner, table, "true") {
			t.Errorf("%s: %d rows are shown to the work in the background", table, n)
		}
	}
	for sql, allowed := range map[string]bool{
		"INSERT INTO memory_participant (tenant, kind, id, user_id, added_by) VALUES ('acme', 'group', 'g2', 'eve', 'eve')":                  false,
		"UPDATE memory_participant SET removed_at = NULL WHERE user_id = 'eve'":                                                              false,
		"INSERT INTO memory_erasure (tenant, id, kind, user_id, requested_by) VALUES ('acme', 'e9', 'subject', 'bob', 'eve')":                false,
		"INSERT INTO memory_lesson (tenant, run_id, user_id, status) VALUES ('acme', 'r1', 'ada', 'due')":                                    false,
		"INSERT INTO memory_audit (tenant, actor, action, subject, user_id) VALUES ('acme', 'retention', 'expired', '~group~g1', 'bob')":     true,
		"INSERT INTO memory_audit (tenant, actor, action, subject, user_id) VALUES ('umbrella', 'retention', 'expired', '~group~g1', 'bob')": false,
	} {
		tx := as(t, pool, roomOf("acme", "eve"), "", "")
		_, err := tx.Exec(ctx, sql)
		_ = tx.Rollback(ctx)
		if (err == nil) != allowed || (err != nil && !strings.Contains(err.Error(), "42501")) {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// TestERASE2SweepOfManyRequests: requests of single records do not make the search
// for residue dearer the more there are.
func TestERASE2SweepOfManyRequests(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	remember(t, d, roomOf("acme", "ada"), recordOf("m1", `"x"`))
	execute(t, owner, `INSERT INTO memory_record SELECT (r).* FROM (SELECT jsonb_populate_record(m, jsonb_build_object('id', 'x' || n, 'key', 'k' || n, 'candidate_id', 'x' || n)) AS r
			FROM memory_record m CROSS JOIN generate_series(1, 3000) n WHERE m.id = 'm1' OFFSET 0) x`,
		`INSERT INTO memory_erasure (tenant, id, kind, user_id, record_id, requested_by, requested_at, completed_at)
			SELECT 'acme', 'f' || n, 'record', 'ada', 'gone' || n, 'ada', now(), now() FROM generate_series(1, 1000) n`,
		"INSERT INTO memory_keyword (tenant, record_id, version, room, subject, tokens) SELECT tenant, id, version, room, subject, '{1}' FROM memory_record WHERE id <> 'm1'")
	if _, err := owner.Exec(ctx, "ANALYZE memory_record, memory_erasure, memory_keyword"); err != nil {
		t.Fatal(err)
	}
	execute(t, owner, "UPDATE memory_record SET written_at = now() - interval '1 hour' WHERE id = 'x7'", "UPDATE memory_erasure SET record_id = 'x7' WHERE id = 'f7'")
	plan := explain(t, owner, "memory_erase.sql", "SweepRecords", "'acme', 10")
	if !strings.Contains(plan, "id = e.record_id") {
		t.Errorf("a request of a record is not looked up by the record:\n%s", plan)
	}
	if report := reconcile(t, d, time.Now(), long(time.Hour), 100); report.Residue != 2 {
		t.Errorf("%+v", report)
	}
	if n := countRows(t, owner, "memory_record", "status = 'deleted'"); n != 1 {
		t.Errorf("%d records were swept", n)
	}
}

// TestLTM5TriesAreBounded: who waits and was left alone is taken up again, and what
// cannot be decided is given up.
func TestLTM5TriesAreBounded(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	room := roomOf("acme", "ada")
	propose(t, d, room, "p1", `"x"`)
	propose(t, d, room, "p2", `"x"`)
	until := time.Now().Add(500 * time.Hour)
	if err := decide(d, room, "p2", func(c *db.MemoryCandidate) { c.State, c.ExpiresAt = agent.MemoryWaitingConfirmation, &until }); err != nil {
		t.Fatal(err)
	}
	listed := func(age string) (ids string) {
		t.Helper()
		execute(t, owner, "UPDATE memory_candidate SET updated_at = now() - interval '"+age+"'")
		for _, w := range reconcile(t, d, time.Now(), time.Now(), 10).Writes {
			ids += w.ID
		}
		return ids
	}
	for n, c := range []struct{ age, want string }{
		{"1 minute", "p1"},
		{"59 minutes", ""},
		{"61 minutes", "p1"},
		{"239 minutes", ""},
		{"241 minutes", "p1"},
	} {
		if got := listed(c.age); got != c.want {
			t.Errorf("%d: after %s %q is listed, want %q", n, c.age, got, c.want)
		}
	}
	if got := listed("1439 minutes"); got != "p1" {
		t.Errorf("who waits for less than a day: %q", got)
	}
	for n := range 8 {
		want := "p1p2"
		if n >= 4 {
			want = "p2"
		}
		if got := listed("100 hours"); len(got) != len(want) || !strings.Contains(got, "p2") {
			t.Errorf("day %d: %q, want %q", n, got, want)
		}
	}
	if got := listed("100 hours"); got != "" {
		t.Errorf("after 8 tries %q is listed", got)
	}
	if c, err := d.MemoryCandidate(ctx, room, "p1"); err != nil || c.State != agent.MemoryExpired || c.Content != nil || c.Tries != 8 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := d.MemoryCandidate(ctx, room, "p2"); err != nil || c.State != agent.MemoryWaitingConfirmation || c.Content == nil {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestERASE2OpenErasureIsFound: an erasure that nobody goes on with is listed until
// it is completed.
func TestERASE2OpenErasureIsFound(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	begin(t, d, scopeOf("acme"), "c", "r1")
	in := agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "user:ada"}
	if step, err := d.EraseSubject(ctx, in, 10); err != nil || step.Done || step.Blocked != "open_run" {
		t.Fatalf("%+v, %v", step, err)
	}
	if report := reconcile(t, d, time.Now(), long(time.Hour), 10); len(report.Erasures) != 0 {
		t.Errorf("under way: %+v", report)
	}
	soon := time.Now().Add(time.Minute)
	for range 2 {
		if report := reconcile(t, d, time.Now(), soon, 10); len(report.Erasures) != 1 || report.Erasures[0] != in {
			t.Errorf("%+v", report)
		}
	}
	execute(t, dbtest.Owner(t, url), "UPDATE memory_erasure SET completed_at = now()")
	if report := reconcile(t, d, time.Now(), soon, 10); len(report.Erasures) != 0 {
		t.Errorf("completed: %+v", report)
	}
	// An ID is no other request's.
	in.User = "bob"
	if _, err := d.EraseSubject(ctx, in, 10); !errors.Is(err, db.ErrOtherRequest) || !errors.Is(err, db.ErrConflict) {
		t.Error(err)
	}
}
