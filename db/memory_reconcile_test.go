package db_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

// long is a time that nothing of these tests is older than.
func long(ago time.Duration) time.Time { return time.Now().Add(-ago) }

func reconcile(t testing.TB, d *db.DB, now, staleSince time.Time, limit int) agent.ReconcileReport {
	t.Helper()
	report, err := d.ReconcileMemory(ctx, "acme", now, staleSince, limit)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// execute does what no program may.
func execute(t testing.TB, owner *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if tag, err := owner.Exec(ctx, sql); err != nil || (tag.RowsAffected() == 0 && !strings.HasPrefix(sql, "ALTER")) {
			t.Fatalf("%s: %v, %v", sql, tag, err)
		}
	}
}

// TestERASE2Residue plants what an erasure should have removed, such as a backup
// brings back: it is found and removed, and nothing else is.
func TestERASE2Residue(t *testing.T) {
	t.Parallel()
	const (
		newRecord = `INSERT INTO memory_record (tenant, id, version, room, scope_kind, scope_id, subject, user_id, environment, agent, kind, key, identity_hash, status, value,
			evidence, value_hash, source_type, source_id, writer, candidate_id, confidence, validation, consent_basis, sensitivity, written_at, rules, policy_version, policy_digest, ended_at)
			SELECT tenant, %s, room, scope_kind, scope_id, subject, %s, environment, agent, kind, 'planted', repeat('0', 64), 'superseded', '\x01ff', '\x01ff', repeat('0', 64), source_type,
			source_id, writer, candidate_id, confidence, validation, consent_basis, sensitivity, %s, rules, policy_version, policy_digest, now() FROM memory_record WHERE tenant = 'acme' AND id = 'b2'`
		newCandidate = `INSERT INTO memory_candidate (tenant, id, room, subject, user_id, environment, kind, key, source_type, source_id, writer, content, request_hash, state)
			VALUES ('acme', 'planted', 'production/group/g1', '~group~g1', 'ada', 'production', 'k', 'k', 's', 's', 'w', '\x01ff', 'h', 'proposed')`
		restore = `UPDATE memory_record SET status = 'superseded', value = '\x01ff', evidence = '\x01ff', value_hash = repeat('0', 64), identity_hash = repeat('0', 64) WHERE `
	)
	old := "now() - interval '2 minutes' - interval '10 years'"
	for _, c := range []struct {
		what string
		plan []string
		// erased: the user was erased before, else only forgot record a1.
		erased  bool
		residue int
	}{
		{"words without a record", []string{"INSERT INTO memory_keyword (tenant, record_id, version, room, subject, tokens) VALUES ('acme', 'gone', 1, 'r', 'ada', '{1,2}')"}, false, 1},
		{"words of another version", []string{"UPDATE memory_keyword SET version = 9 WHERE record_id = 'a2'"}, false, 1},
		{"words in another room", []string{"UPDATE memory_keyword SET room = 'x' WHERE record_id = 'a2'"}, false, 1},
		{"words of a deleted record", []string{"UPDATE memory_keyword SET record_id = 'a1' WHERE record_id = 'a2'"}, false, 1},
		{"an index entry without words", []string{"INSERT INTO memory_word (tenant, room, token, doc) VALUES ('acme', 'r', 1, -1)"}, false, 1},
		{"vectors without a record", []string{"UPDATE memory_vector SET record_id = 'gone' WHERE record_id = 'a2'"}, false, 1},
		{"vectors of another version", []string{"UPDATE memory_vector SET version = 9 WHERE record_id = 'a2'"}, false, 1},
		{"an older version of a tombstone", []string{"DELETE FROM memory_erasure", "ALTER TABLE memory_record DISABLE TRIGGER memory_record_tombstone", restore + "id = 'a1' AND version = 1"}, false, 1},
		{"a forgotten record", []string{"ALTER TABLE memory_record DISABLE TRIGGER memory_record_tombstone", restore + "id = 'a1'"}, false, 2},
		{"a record of an erased user", []string{fmt.Sprintf(newRecord, "'planted', 1", "'ada'", "now()")}, true, 1},
		{"a candidate of an erased user", []string{newCandidate}, true, 1},
		// And what is none.
		{"a new record", []string{fmt.Sprintf(newRecord, "'planted', 1", "'ada'", "now()")}, false, 0},
		{"an old record of somebody else", []string{fmt.Sprintf(newRecord, "'planted', 1", "'bob'", old)}, true, 0},
		{"nothing", nil, true, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			d, url := dbtest.NewWithURL(t)
			owner := dbtest.Owner(t, url)
			remembered(t, d, owner)
			if c.erased {
				eraseAll(t, url, agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "ada"}, 100)
			} else if _, err := d.ForgetMemory(ctx, agent.ForgetInput{ID: "f1", Room: roomOf("acme", "ada"), Record: "a1", By: "ada"}, 100); err != nil {
				t.Fatal(err)
			}
			before := memorySnapshot(t, owner)
			execute(t, owner, c.plan...)
			if c.residue > 0 && reflect.DeepEqual(memorySnapshot(t, owner), before) {
				t.Fatal("nothing was planted")
			}
			report := reconcile(t, d, time.Now(), long(time.Hour), 100)
			if report.Residue != c.residue || report.Expired != 0 || report.More || report.Tenants != 1 || len(report.Writes) != 0 {
				t.Errorf("%+v", report)
			}
			if again := reconcile(t, d, time.Now(), long(time.Hour), 100); again.Residue != 0 {
				t.Errorf("found again: %+v", again)
			}
			if c.erased {
				for table, where := range map[string]string{
					"memory_record":    "user_id = 'ada' AND tenant = 'acme' AND value IS NOT NULL",
					"memory_candidate": "user_id = 'ada' AND tenant = 'acme' AND (content IS NOT NULL OR state = 'proposed')",
				} {
					if n := countRows(t, owner, table, where); n != 0 {
						t.Errorf("%s: %d left", table, n)
					}
				}
			} else if n := countRows(t, owner, "memory_record", "id = 'a1' AND value IS NOT NULL"); n != 0 {
				t.Errorf("%d versions of the forgotten record", n)
			}
			untouched(t, d)
		})
	}
}

// memorySnapshot is the text of all rows of memory.
func memorySnapshot(t testing.TB, owner *pgxpool.Pool) (all []string) {
	t.Helper()
	for _, table := range []string{"memory_record", "memory_candidate", "memory_keyword", "memory_word", "memory_vector"} {
		var text *string
		if err := owner.QueryRow(ctx, "SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM "+table+" t").Scan(&text); err != nil {
			t.Fatal(err)
		}
		if text != nil {
			all = append(all, *text)
		}
	}
	return all
}

// TestERASE2ResidueIsBounded repairs a few pieces at a time, and says that there
// are more.
func TestERASE2ResidueIsBounded(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	execute(t, owner, "INSERT INTO memory_keyword (tenant, record_id, version, room, subject, tokens) SELECT 'acme', 'gone' || n, 1, 'r', 's', '{}' FROM generate_series(1, 5) n",
		"INSERT INTO memory_keyword (tenant, record_id, version, room, subject, tokens) VALUES ('umbrella', 'gone', 1, 'r', 's', '{}')")
	for i, want := range []agent.ReconcileReport{{Residue: 2, More: true}, {Residue: 2, More: true}, {Residue: 1}, {}} {
		want.Tenants = 1
		if report := reconcile(t, d, time.Now(), long(time.Hour), 2); !reflect.DeepEqual(report, want) {
			t.Errorf("round %d: %+v, want %+v", i, report, want)
		}
	}
	if n := countRows(t, owner, "memory_keyword", "tenant = 'umbrella'"); n != 1 {
		t.Error("another tenant was repaired")
	}
	if _, err := d.ReconcileMemory(ctx, "", time.Now(), time.Now(), 10); !errors.Is(err, db.ErrScope) {
		t.Errorf("no tenant: %v", err)
	}
}

// TestERASE2Retention ends what is past its time, and keeps what is not.
func TestERASE2Retention(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	room := roomOf("acme", "ada")
	now := time.Now().UTC().Truncate(time.Second)
	until := func(at time.Time, id, key string) db.MemoryRecord {
		r := recordOf(id, `"`+id+`"`)
		r.Key, r.ExpiresAt = key, &at
		return r
	}
	remember(t, d, room, until(now.Add(time.Hour), "m1", "a"), until(now.Add(2*time.Hour), "m2", "b"), recordOf("m3", `"c"`),
		until(now.Add(time.Hour), "m4", "d"), until(now.Add(3*time.Hour), "m4", "d")) // A second version, which lasts.
	if report := reconcile(t, d, now.Add(time.Hour-time.Second), long(time.Hour), 10); report.Expired != 0 {
		t.Errorf("too early: %+v", report)
	}
	if report := reconcile(t, d, now.Add(time.Hour), long(time.Hour), 10); report.Expired != 2 || report.Residue != 0 || report.More {
		t.Errorf("%+v", report)
	}
	list, err := d.Memories(ctx, "acme", "ada", db.MemoryFilter{Past: true})
	var got []string
	for _, m := range list {
		got = append(got, fmt.Sprint(m.ID, m.Version, " ", m.Status, " ", string(m.Value), " ", m.EndedBy))
	}
	if want := []string{"m11 deleted  retention", `m21 active "m2" `, `m31 active "c" `, `m42 active "m4" `, "m41 deleted  candidate:c-m4"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if n := countRows(t, owner, "memory_keyword", "record_id = 'm1'"); n != 0 || countRows(t, owner, "memory_keyword", "true") != 3 {
		t.Error("words of what is over are left, or others gone")
	}
	if report := reconcile(t, d, now.Add(time.Hour), long(time.Hour), 10); report.Expired != 0 {
		t.Errorf("again: %+v", report)
	}
	trace, err := d.TraceMemory(ctx, "acme", "ada", "m1")
	if err != nil || len(trace.Audit) != 1 || trace.Audit[0].Action != "expired" || trace.Audit[0].Actor != "retention" {
		t.Errorf("%+v, %v", trace.Audit, err)
	}
}

// TestLTM4WhatIsOverMakesRoom: a record that is past its time but still there is no
// obstacle and takes no repetition.
func TestLTM4WhatIsOverMakesRoom(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	room := roomOf("acme", "ada")
	past := time.Now().Add(-time.Second)
	over := recordOf("m1", `"old"`)
	over.ExpiresAt = &past
	remember(t, d, room, over, recordOf("m2", `"new"`))
	if m, err := d.Memory(ctx, "acme", "ada", "m1"); err != nil || m.Status != db.MemoryDeleted || m.EndedBy != "retention" || m.Value != nil {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := d.Memory(ctx, "acme", "ada", "m2"); err != nil || m.Status != db.MemoryActive || m.Version != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	if n := countRows(t, dbtest.Owner(t, url), "memory_keyword", "record_id = 'm1'"); n != 0 {
		t.Error("words of what is over are left")
	}
}

// TestLTM5Retry lists what is due once until as much time has passed again, and
// gives up what nobody could decide about for a month.
func TestLTM5Retry(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	begin(t, d, scopeOf("acme"), "c", "r2")
	if err := d.InTx(ctx, run.Scope, func(tx *db.Tx) error { tx.InsertLesson("r1"); tx.InsertLesson("r2"); return nil }); err != nil {
		t.Fatal(err)
	}
	room := roomOf("acme", "ada")
	room.Conversation = "c"
	for _, id := range []string{"p1", "p2", "p3"} {
		propose(t, d, room, id, `"x"`)
	}
	soon := time.Now().Add(time.Minute)
	if err := decide(d, room, "p3", func(c *db.MemoryCandidate) { c.State, c.ExpiresAt = agent.MemoryWaitingReview, &soon }); err != nil {
		t.Fatal(err)
	}
	if report := reconcile(t, d, time.Now(), long(time.Hour), 10); len(report.Writes)+len(report.Lessons) != 0 {
		t.Errorf("not due: %+v", report)
	}
	execute(t, owner, "UPDATE memory_candidate SET updated_at = now() - interval '2 hours' WHERE id IN ('p1', 'p3')",
		"UPDATE memory_lesson SET updated_at = now() - interval '2 hours' WHERE run_id = 'r1'")
	// How the open run ends decides about its proposals: they wait, however long.
	if report := reconcile(t, d, time.Now(), long(time.Hour), 10); len(report.Writes) != 0 || len(report.Lessons) != 1 {
		t.Errorf("while the run is open: %+v", report)
	}
	execute(t, owner, "UPDATE memory_candidate SET tries = 8 WHERE id = 'p1'")
	if c, err := d.MemoryCandidate(ctx, room, "p1"); err != nil || c.State != agent.MemoryProposed || reconcile(t, d, time.Now(), long(time.Hour), 10).Expired != 0 {
		t.Errorf("while the run is open: %+v, %v", c, err)
	}
	execute(t, owner, "UPDATE memory_candidate SET tries = 0 WHERE id = 'p1'",
		"UPDATE run SET status = 'failed', reason = 'internal', ended_at = now() WHERE id = 'r1'",
		"UPDATE memory_lesson SET updated_at = now() - interval '2 hours' WHERE run_id = 'r1'")
	report := reconcile(t, d, time.Now(), long(time.Hour), 10)
	lesson := agent.LearnInput{Run: agent.RunRef{Scope: run.Scope, RunID: "r1", Generation: 1}, Room: room, DefinitionDigest: digest}
	if want := (agent.ReconcileReport{Tenants: 1, Writes: []agent.MemoryWriteInput{{ID: "p1", Room: room}}, Lessons: []agent.LearnInput{lesson}}); !reflect.DeepEqual(report, want) {
		t.Errorf("%+v, want %+v", report, want)
	}
	if report := reconcile(t, d, time.Now(), long(time.Hour), 10); len(report.Writes)+len(report.Lessons) != 0 {
		t.Errorf("listed again: %+v", report)
	}
	if c, err := d.MemoryCandidate(ctx, room, "p1"); err != nil || c.Tries != 1 || c.State != agent.MemoryProposed {
		t.Errorf("%+v, %v", c, err)
	}
	// A bound is said.
	execute(t, owner, "UPDATE memory_candidate SET updated_at = now() - interval '2 hours' WHERE state = 'proposed'")
	if report := reconcile(t, d, time.Now(), long(time.Hour), 1); len(report.Writes) != 1 || !report.More {
		t.Errorf("%+v", report)
	}
	// Nobody waits for p3 any more.
	execute(t, owner, "UPDATE memory_candidate SET updated_at = now() - interval '5 hours' WHERE state = 'proposed'")
	if report := reconcile(t, d, time.Now(), soon.Add(-time.Second), 10); len(report.Writes) != 2 {
		t.Errorf("%+v", report)
	}
	if c, err := d.MemoryCandidate(ctx, room, "p3"); err != nil || c.State != agent.MemoryWaitingReview {
		t.Errorf("%+v, %v", c, err)
	}
	reconcile(t, d, time.Now(), soon, 10)
	if c, err := d.MemoryCandidate(ctx, room, "p3"); err != nil || c.State != agent.MemoryExpired || c.Content != nil {
		t.Errorf("%+v, %v", c, err)
	}
	// A month later.
	if report := reconcile(t, d, time.Now().AddDate(0, 0, 31), long(time.Hour), 10); len(report.Writes)+len(report.Lessons) != 0 {
		t.Errorf("%+v", report)
	}
	if n := countRows(t, owner, "memory_candidate", "state = 'expired' AND content IS NULL"); n != 3 {
		t.Errorf("%d proposals given up", n)
	}
	if n := countRows(t, owner, "memory_lesson", "status = 'failed' AND failure = 'too_late'"); n != 2 {
		t.Errorf("%d lessons given up", n)
	}
	if tenants, err := d.MemoryTenants(ctx); err != nil || !slices.Equal(tenants, []string{"acme"}) {
		t.Errorf("tenants %v, %v", tenants, err)
	}
}
