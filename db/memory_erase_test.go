package db_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

// remembered fills the memory of ada of acme with canaries, in every scope and
// state that there is, and that of bob and of umbrella with other words. It
// returns what a receipt of ada's erasure says.
func remembered(t testing.TB, d *db.DB, owner *pgxpool.Pool) agent.ErasureReceipt {
	t.Helper()
	if _, err := owner.Exec(ctx, "INSERT INTO memory_embedder (name, dimensions, status) VALUES ('e', 3, 'serving'), ('f', 3, 'building')"); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(ctx, "INSERT INTO conversation (tenant, id, user_id, environment) VALUES ('acme', 'c', 'ada', 'production') ON CONFLICT DO NOTHING"); err != nil {
		t.Fatal(err)
	}
	group := agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g1"}
	for _, user := range []string{"ada", "bob"} {
		if err := d.AddParticipant(ctx, "acme", group, user, "olga"); err != nil {
			t.Fatal(err)
		}
	}
	put := func(room agent.MemoryRoom, scope agent.MemoryScope, id, key, text string) {
		t.Helper()
		r := recordOf(id, `"`+text+`"`)
		r.Key, r.Identity = key, text
		index := db.MemoryIndex{Tokens: []string{text, id}, Embedder: db.MemoryEmbedder{Name: "e", Dimensions: 3}, Embedding: []float32{1, 0, 0}}
		if err := store(d, room, scope, r, index); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	ada, bob, umbrella := roomOf("acme", "ada"), roomOf("acme", "bob"), roomOf("umbrella", "ada")
	in := func(room agent.MemoryRoom, change func(*agent.MemoryRoom)) agent.MemoryRoom {
		change(&room)
		return room
	}
	conversation := in(ada, func(r *agent.MemoryRoom) { r.Conversation = "c" })
	chat := in(ada, func(r *agent.MemoryRoom) { r.Group = "g1" })
	chatOfBob := in(bob, func(r *agent.MemoryRoom) { r.Group = "g1" })
	helper := agent.MemoryScope{Kind: agent.MemoryOfAgent, ID: "helper"}
	put(ada, ofUser(ada), "a1", "tone", canary)
	put(ada, ofUser(ada), "a1b", "tone", canary) // A second version of a1.
	put(ada, ofUser(ada), "a2", "city", canary)
	put(conversation, agent.MemoryScope{Kind: agent.MemoryOfConversation, ID: "c"}, "a3", "tone", canary)
	put(chat, group, "a4", "tone", canary)
	put(ada, helper, "a5", "tone", canary)
	put(chat, group, "ab", "city", canary)
	put(chatOfBob, group, "ab2", "city", canary) // Bob's version of ab, by the same identity.
	put(bob, ofUser(bob), "b1", "tone", "bob's own")
	put(chatOfBob, group, "b2", "task", "bob's of the group")
	put(umbrella, ofUser(umbrella), "u1", "tone", "of umbrella")

	for i, state := range []agent.MemoryState{agent.MemoryProposed, agent.MemoryWaitingReview, agent.MemoryWaitingConfirmation, agent.MemoryMerged, agent.MemoryRejected} {
		for _, room := range []agent.MemoryRoom{ada, bob} {
			c := proposalOf(room, fmt.Sprint(room.Scope.User, i), `"`+canary+`"`)
			if room.Scope.User == "bob" {
				c = proposalOf(room, fmt.Sprint(room.Scope.User, i), `"bob"`)
			}
			if state == agent.MemoryRejected {
				c.State = state
			}
			if _, err := d.ProposeMemory(ctx, c); err != nil {
				t.Fatal(err)
			}
			if state == agent.MemoryProposed || state == agent.MemoryRejected {
				continue
			}
			until := time.Now().Add(time.Hour)
			if err := decide(d, room, c.ID, func(c *db.MemoryCandidate) {
				c.State, c.ExpiresAt, c.ValueHash, c.Record, c.RecordVersion = state, &until, digest, "a1", 2
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Records a1 to a5 and ab: a1 with two versions, of ab the first is ada's. All
	// but a superseded version are found by a row of words and a vector.
	return agent.ErasureReceipt{Tenant: "acme", Subject: "ada", By: "user:ada", Records: 6, Versions: 7, Candidates: 5, Keywords: 5, Vectors: 5}
}

// untouched wants all that is not of ada of acme to be there.
func untouched(t testing.TB, d *db.DB) {
	t.Helper()
	for id, want := range map[string]string{"b1": `"bob's own"`, "b2": `"bob's of the group"`, "ab": `"` + canary + `"`} {
		if m, err := d.Memory(ctx, "acme", "bob", id); err != nil || string(m.Value) != want || m.Status != db.MemoryActive {
			t.Errorf("%s: %s %s, %v", id, m.Status, m.Value, err)
		}
	}
	if m, err := d.Memory(ctx, "umbrella", "ada", "u1"); err != nil || string(m.Value) != `"of umbrella"` {
		t.Errorf("u1: %+v, %v", m, err)
	}
	if list, err := d.MemoryCandidates(ctx, "acme", "bob", "", 0); err != nil || len(list) != 3 || list[0].Content == nil {
		t.Errorf("bob's candidates: %+v, %v", list, err)
	}
}

// eraseAll repeats the steps of an erasure until it is done, in a new process each
// time, and returns how many there were.
func eraseAll(t testing.TB, url string, in agent.EraseInput, limit int) (agent.ErasureReceipt, int) {
	t.Helper()
	for n := 1; ; n++ {
		step, err := dbtest.Open(t, url, db.Options{}).EraseSubject(ctx, in, limit)
		if err != nil || step.Blocked != "" || n > 100 {
			t.Fatalf("step %d: %+v, %v", n, step, err)
		}
		if step.Done {
			return step.Receipt, n
		}
	}
}

// TestERASE2Subject erases a user: no canary is left in any table, nothing can be
// read, nothing is remembered any more, and nobody else misses anything.
func TestERASE2Subject(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 1000} {
		t.Run(fmt.Sprint("limit", limit), func(t *testing.T) {
			t.Parallel()
			d, url := dbtest.NewWithURL(t)
			owner := dbtest.Owner(t, url)
			run := secrets(t, d, scopeOf("acme"), "c", "r1")
			want := remembered(t, d, owner)
			if err := endRun(d, run); err != nil {
				t.Fatal(err)
			}
			in := agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "user:ada"}
			receipt, steps := eraseAll(t, url, in, limit)
			want.ID, want.KeysDestroyed, want.At = "e1", true, receipt.At
			if receipt != want || receipt.At.IsZero() {
				t.Errorf("receipt %+v, want %+v", receipt, want)
			}
			if limit == 1 && steps != 6 || limit == 1000 && steps != 1 {
				t.Errorf("%d steps", steps)
			}
			wantErased(t, d, owner, run)
			untouched(t, d)
			// Done again it is done, and says the same.
			if again, steps := eraseAll(t, url, in, limit); again != receipt || steps != 1 {
				t.Errorf("again %+v after %d steps", again, steps)
			}
			list, err := d.Erasures(ctx, "acme", "ada")
			if err != nil || !reflect.DeepEqual(list, []agent.ErasureReceipt{receipt}) {
				t.Errorf("erasures %+v, %v", list, err)
			}
			other := in
			other.User = "bob"
			if _, err := d.EraseSubject(ctx, other, 10); !errors.Is(err, db.ErrConflict) {
				t.Errorf("another request with this id: %v", err)
			}
			other = in
			other.ID = "e2"
			if second, _ := eraseAll(t, url, other, limit); second.Records != 0 || second.Candidates != 0 || !second.KeysDestroyed {
				t.Errorf("a second request %+v", second)
			}
		})
	}
}

// wantErased wants no canary and no key of ada of acme, and nothing to be
// remembered.
func wantErased(t *testing.T, d *db.DB, owner *pgxpool.Pool, run db.Run) {
	t.Helper()
	rows, err := owner.Query(ctx, "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 30 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, table := range tables {
		if n := countRows(t, owner, table+" t", "t::text ~* '"+canary+"' OR t::text ~* encode('"+canary+"', 'hex')"); n != 0 {
			t.Errorf("%s: %d rows with a canary", table, n)
		}
	}
	// Memory is gone, and not only its keys: of what ada said in a scope of others
	// the keys are there.
	for table, where := range map[string]string{
		"memory_record":      "(subject = 'ada' OR user_id = 'ada') AND tenant = 'acme' AND (status <> 'deleted' OR value IS NOT NULL OR evidence IS NOT NULL OR value_hash || identity_hash <> '')",
		"memory_candidate":   "(subject = 'ada' OR user_id = 'ada') AND tenant = 'acme' AND (content IS NOT NULL OR value_hash || request_hash <> '' OR state IN ('proposed', 'waiting_review', 'waiting_confirmation'))",
		"memory_keyword":     "tenant = 'acme' AND record_id LIKE 'a_'  AND record_id <> 'ab'",
		"memory_word w":      "NOT EXISTS (SELECT FROM memory_keyword k WHERE k.doc = w.doc)",
		"memory_vector":      "tenant = 'acme' AND record_id LIKE 'a_' AND record_id <> 'ab'",
		"memory_participant": "user_id = 'ada' AND removed_at IS NULL AND tenant = 'acme'",
		"memory_lesson":      "user_id = 'ada' AND status = 'due'",
		"subject_key":        "tenant = 'acme' AND subject = 'ada' AND (data IS NOT NULL OR hash IS NOT NULL)",
	} {
		if n := countRows(t, owner, table, where); n != 0 {
			t.Errorf("%s: %d rows are left", table, n)
		}
	}
	wantNothing(t, d, run, db.ErrKeysDestroyed)
	list, err := d.Memories(ctx, "acme", "ada", db.MemoryFilter{Past: true})
	if err != nil || len(list) != 7 || slices.ContainsFunc(list, func(m db.MemoryRecord) bool {
		return m.Value != nil || m.Evidence != db.MemoryEvidence{} || m.Status != db.MemoryDeleted || m.EndedBy != "user:ada" || m.EndedAt == nil
	}) {
		t.Errorf("remembered: %+v, %v", list, err)
	}
	wantRefusal(t, d, db.ErrErased)
	// Without a filter either.
	tx := as(t, app(t, owner.Config().ConnString()), roomOf("acme", "ada"), "", "")
	if rooms := ""; tx.QueryRow(ctx, "SELECT array_to_string(memory_rooms(), ' ')").Scan(&rooms) != nil || rooms != "" {
		t.Errorf("an erased user has rooms %q", rooms)
	}
}

// wantRefusal wants each way to remember something of ada to fail.
func wantRefusal(t *testing.T, d *db.DB, want error) {
	t.Helper()
	ada := roomOf("acme", "ada")
	chat := ada
	chat.Group = "g1"
	group := agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g1"}
	propose := func(room agent.MemoryRoom, scope agent.MemoryScope) error {
		c := proposalOf(room, "late", `"x"`)
		c.Scope = scope
		_, err := d.ProposeMemory(ctx, c)
		return err
	}
	_, read := d.MemoryCandidate(ctx, ada, "ada0")
	hold := d.InMemory(ctx, ada, ofUser(ada), func(m *db.MemoryTx) error { _, err := m.HoldCandidate(ctx, "ada0"); return err })
	for what, err := range map[string]error{
		"propose": propose(ada, ofUser(ada)), "propose to a group": propose(chat, group), "read": read, "hold": hold,
		"write":          store(d, ada, ofUser(ada), recordOf("late", `"x"`), db.MemoryIndex{}),
		"write to group": store(d, chat, group, recordOf("late", `"x"`), db.MemoryIndex{}),
		"audit":          d.InMemory(ctx, chat, group, func(m *db.MemoryTx) error { m.Audit(db.MemoryAudit{Actor: "x", Action: "x"}); return nil }),
	} {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}

// TestERASE2StopsAtOnce: from the first step on nothing is remembered, whatever
// the keys still wait for.
func TestERASE2StopsAtOnce(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	plan := waitWith(t, d, scopeOf("acme"), "r1", time.Now().UTC())
	remembered(t, d, owner)
	in := agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "user:ada"}
	erase := func(blocked string) agent.ErasureStep {
		t.Helper()
		step, err := d.EraseSubject(ctx, in, 1000)
		if err != nil || step.Done != (blocked == "") || step.Blocked != blocked {
			t.Fatalf("%+v, %v, want blocked %q", step, err, blocked)
		}
		return step
	}
	first := erase("open_run")
	if first.Receipt.Records != 6 || first.Receipt.KeysDestroyed || !first.Receipt.At.IsZero() {
		t.Errorf("%+v", first)
	}
	wantRefusal(t, d, db.ErrErased)
	if list, err := d.Memories(ctx, "acme", "ada", db.MemoryFilter{}); err != nil || len(list) != 0 {
		t.Errorf("still in force: %+v, %v", list, err)
	}
	// The run that is open goes on, and nothing is learned from it.
	if err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error { tx.InsertLesson("r1"); return nil }); err != nil {
		t.Error(err)
	}
	if n := countRows(t, owner, "memory_lesson", "true"); n != 0 {
		t.Error("there is something to learn from an erased user")
	}
	untouched(t, d)
	approve(t, d, scopeOf("acme"), plan, keyOf("r1"))
	erase("open_run")
	if err := endRun(d, db.Run{ID: "r1", Scope: scopeOf("acme")}); err != nil {
		t.Fatal(err)
	}
	erase("unsettled_write")
	if list, err := d.Erasures(ctx, "acme", "ada"); err != nil || len(list) != 1 || !list[0].At.IsZero() || list[0].Records != 6 {
		t.Errorf("under way: %+v, %v", list, err)
	}
	err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error {
		state, err := tx.HoldWrite(ctx, "r1", "0.0")
		if err != nil {
			return err
		}
		_, err = tx.SettleWrite(ctx, state, db.Settlement{By: "olga", At: time.Now()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	last := erase("")
	last.Receipt.At, last.Receipt.KeysDestroyed = first.Receipt.At, false
	if last.Receipt != first.Receipt {
		t.Errorf("%+v after %+v", last.Receipt, first.Receipt)
	}
}

// TestERASE2WaitsForAWrite erases while a record is being written: it is erased as
// well.
func TestERASE2WaitsForAWrite(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"erase", "forget"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			d, url := dbtest.NewWithURL(t)
			owner := dbtest.Owner(t, url)
			group := agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g1"}
			if err := d.AddParticipant(ctx, "acme", group, "ada", "olga"); err != nil {
				t.Fatal(err)
			}
			room := roomOf("acme", "ada")
			room.Group = "g1"
			done := make(chan error, 1)
			err := d.InMemory(ctx, room, group, func(m *db.MemoryTx) error {
				if _, err := m.HoldIdentity(ctx, "tone", ""); err != nil {
					return err
				}
				go func() {
					var step agent.ErasureStep
					var err error
					if way == "erase" {
						step, err = d.EraseSubject(ctx, agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "ada"}, 10)
					} else {
						step, err = d.ForgetMemory(ctx, agent.ForgetInput{ID: "e1", Room: room, By: "ada"}, 10)
					}
					if err == nil && (step.Receipt.Records != 1 || step.Receipt.Keywords != 1) {
						err = fmt.Errorf("receipt %+v", step.Receipt)
					}
					done <- err
				}()
				if err := waitFor(owner, "advisory", done); err != nil {
					return err
				}
				m.StoreRecord(recordOf("m1", `"x"`), db.MemoryIndex{Tokens: []string{"x"}})
				return nil
			})
			if err := errors.Join(err, <-done); err != nil {
				t.Fatal(err)
			}
			if n := countRows(t, owner, "memory_record", "status <> 'deleted'"); n != 0 {
				t.Errorf("%d records survived", n)
			}
		})
	}
}

// TestERASE2UserWithoutKeys erases somebody of whom nothing is stored: nothing will
// be.
func TestERASE2UserWithoutKeys(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	receipt, _ := eraseAll(t, url, agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "olga"}, 10)
	if !receipt.KeysDestroyed || receipt.Records != 0 {
		t.Errorf("%+v", receipt)
	}
	room := roomOf("acme", "ada")
	if _, err := d.ProposeMemory(ctx, proposalOf(room, "p1", `"x"`)); !errors.Is(err, db.ErrErased) {
		t.Errorf("%v", err)
	}
	// Whose keys were destroyed by hand is as good as erased.
	remember(t, d, roomOf("acme", "bob"), recordOf("m1", `"x"`))
	if err := d.DestroyKeys(ctx, "acme", "bob", "olga"); err != nil {
		t.Fatal(err)
	}
	group := agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g1"}
	if err := d.AddParticipant(ctx, "acme", group, "bob", "olga"); err != nil {
		t.Fatal(err)
	}
	chat := proposalOf(roomOf("acme", "bob"), "p2", `"x"`)
	chat.Room.Group, chat.Scope = "g1", group
	for _, process := range []*db.DB{d, dbtest.Open(t, url, db.Options{})} {
		for _, c := range []db.MemoryCandidate{proposalOf(roomOf("acme", "bob"), "p1", `"x"`), chat} {
			if _, err := process.ProposeMemory(ctx, c); !errors.Is(err, db.ErrErased) {
				t.Errorf("%s: %v", c.Scope.Kind, err)
			}
		}
	}
	for _, odd := range []agent.EraseInput{
		{},
		{ID: "e", Tenant: "acme", User: "~group~g1", By: "x"},
		{ID: "e", User: "ada", By: "x"},
		{ID: "e", Tenant: "acme", By: "x"},
		{Tenant: "acme", User: "ada", By: "x"},
		{ID: "e", Tenant: "acme", User: "ada"},
	} {
		if _, err := d.EraseSubject(ctx, odd, 10); err == nil {
			t.Errorf("%+v was carried out", odd)
		}
	}
}

// TestERASE2ForgetOne deletes one record with its history, and nothing else.
func TestERASE2ForgetOne(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	begin(t, d, scopeOf("acme"), "c", "r1")
	remembered(t, d, owner)
	room := roomOf("acme", "ada")
	in := agent.ForgetInput{ID: "f1", Room: room, Record: "a1", By: "user:ada"}
	step, err := d.ForgetMemory(ctx, in, 10)
	// Of the candidates merged with it one is ada's; the two that wait name it too.
	want := agent.ErasureReceipt{ID: "f1", Tenant: "acme", Subject: "ada", By: "user:ada", At: step.Receipt.At, Records: 1, Versions: 2, Candidates: 4, Keywords: 1, Vectors: 1}
	if err != nil || !step.Done || step.Receipt != want || want.At.IsZero() {
		t.Errorf("%+v, %v, want %+v", step, err, want)
	}
	trace, err := d.TraceMemory(ctx, "acme", "ada", "a1")
	if err != nil || len(trace.Versions) != 2 || slices.ContainsFunc(trace.Versions, func(m db.MemoryRecord) bool {
		return m.Status != db.MemoryDeleted || m.Value != nil || m.EndedBy != "user:ada" || m.Writer == ""
	}) {
		t.Errorf("%+v, %v", trace.Versions, err)
	}
	if slices.ContainsFunc(trace.Candidates, func(c db.MemoryCandidate) bool { return c.Content != nil }) {
		t.Errorf("candidates %+v", trace.Candidates)
	}
	if last := trace.Audit[len(trace.Audit)-1]; last.Action != "forgotten" || last.Actor != "user:ada" || last.Record != "a1" {
		t.Errorf("audit %+v", trace.Audit)
	}
	list, err := d.Memories(ctx, "acme", "ada", db.MemoryFilter{})
	if err != nil || len(list) != 4 || list[0].ID != "a2" {
		t.Errorf("the rest: %+v, %v", list, err)
	}
	// Done again it says the same; another request for it finds nothing to do.
	if again, err := d.ForgetMemory(ctx, in, 10); err != nil || again != step {
		t.Errorf("again %+v, %v", again, err)
	}
	other := in
	other.ID = "f2"
	if again, err := d.ForgetMemory(ctx, other, 10); err != nil || !again.Done || again.Receipt.Versions != 0 {
		t.Errorf("a second request %+v, %v", again, err)
	}
	other = in
	other.Record = "a2"
	if _, err := d.ForgetMemory(ctx, other, 10); !errors.Is(err, db.ErrConflict) {
		t.Errorf("another record under the same id: %v", err)
	}
	// What is deleted does not come back, whoever asks.
	for _, set := range []string{"status = 'active', ended_at = NULL", "value = '\\x01'", "evidence = '\\x01'", "status = 'superseded', value = '\\x01', evidence = '\\x01'"} {
		if _, err := owner.Exec(ctx, "UPDATE memory_record SET "+set+" WHERE id = 'a1'"); err == nil || !strings.Contains(err.Error(), "FL006") {
			t.Errorf("SET %s: %v", set, err)
		}
	}
	// It may be said anew, and is another record.
	if err := store(d, room, ofUser(room), recordOf("a9", `"new"`), db.MemoryIndex{}); err != nil {
		t.Errorf("said anew: %v", err)
	}
	untouched(t, d)
}

// TestERASE2ForgetAll deletes all memory of one user of one tenant, in small steps.
func TestERASE2ForgetAll(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	want := remembered(t, d, owner)
	in := agent.ForgetInput{ID: "f1", Room: roomOf("acme", "ada"), By: "user:ada"}
	steps := 0
	for {
		step, err := d.ForgetMemory(ctx, in, 2)
		if err != nil || step.Blocked != "" || steps > 10 {
			t.Fatalf("%+v, %v", step, err)
		}
		// The first step is obeyed at once.
		if list, err := d.Memories(ctx, "acme", "ada", db.MemoryFilter{}); err != nil || len(list) != 0 {
			t.Errorf("after step %d: %+v, %v", steps, list, err)
		}
		if steps++; step.Done {
			want.ID, want.At = "f1", step.Receipt.At
			// The hash of a proposal stays, which makes it one.
			want.Candidates = 4
			if step.Receipt != want {
				t.Errorf("receipt %+v, want %+v", step.Receipt, want)
			}
			break
		}
	}
	if steps != 3 {
		t.Errorf("%d steps", steps)
	}
	untouched(t, d)
	// The user is not erased: runs go on, and something new may be remembered.
	if _, err := d.Messages(ctx, run.Scope, "c", 9); err != nil {
		t.Error(err)
	}
	if c, err := d.ProposeMemory(ctx, proposalOf(roomOf("acme", "ada"), "ada0", `"`+canary+`"`)); err != nil || c.State != agent.MemoryDeclined || c.DecidedBy != "user:ada" {
		t.Errorf("what waited: %+v, %v", c, err)
	}
	// By a worker whose clock is a little behind.
	late := recordOf("new", `"x"`)
	late.WrittenAt = time.Now().Add(-30 * time.Second)
	remember(t, d, roomOf("acme", "ada"), late)
	if report := reconcile(t, d, time.Now(), long(time.Hour), 10); report.Residue != 0 {
		t.Errorf("%+v", report)
	}
	if m, err := d.Memory(ctx, "acme", "ada", "new"); err != nil || m.Status != db.MemoryActive {
		t.Errorf("what was said after it: %+v, %v", m, err)
	}
}
