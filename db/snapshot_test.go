package db_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

// settle appends session entries to a run's conversation.
func settle(t testing.TB, d *db.DB, run db.Run, entries ...db.SessionEntry) {
	t.Helper()
	err := d.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		conv, _, err := tx.HoldConversation(ctx, run)
		tx.AppendSession(conv, run.ID, entries)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func factOf(key, value string) db.SessionEntry {
	return db.SessionEntry{Kind: db.EntryFact, Key: key, Value: value}
}

func forbidden(id string) db.SessionEntry {
	return db.SessionEntry{Kind: db.EntryProhibition, Key: id, Value: "never", Tools: []string{"restart"}}
}

func lifted(id string) db.SessionEntry { return db.SessionEntry{Kind: db.EntryLift, Key: id} }

// picture is what a conversation holds: its messages, and what is settled.
func picture(t testing.TB, d *db.DB, conversation string) string {
	t.Helper()
	list, err := d.Messages(ctx, scopeOf("acme"), conversation, 100)
	if err != nil {
		t.Fatal(err)
	}
	state, err := d.Session(ctx, scopeOf("acme"), conversation)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, m := range list {
		texts = append(texts, fmt.Sprint(m.Seq, m.Content))
	}
	return strings.Join(texts, " ") + "; " + settled(state)
}

func snapshot(t testing.TB, d *db.DB, label string) db.Snapshot {
	t.Helper()
	s, err := d.TakeSnapshot(ctx, "acme", "c", label, "olga")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func rollBack(t testing.TB, d *db.DB, id string) db.Rollback {
	t.Helper()
	done, err := d.RollBack(ctx, "acme", "c", id, "olga")
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func wantPicture(t testing.TB, d *db.DB, want string) {
	t.Helper()
	if got := picture(t, d, "c"); got != want {
		t.Errorf("the conversation is\n%s\nwant\n%s", got, want)
	}
}

// TestRollBackAndForward goes back, on another line, and forward again. Numbers
// count on over all lines.
func TestRollBackAndForward(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	r1 := begin(t, d, scopeOf("acme"), "c", "r1")
	settle(t, d, r1, factOf("service", "payment"), forbidden("p1"))
	say(t, d, r1, "two")
	s1 := snapshot(t, d, "good")
	if s1.ID != "s1" || s1.Conversation != "c" || s1.Branch != 0 || s1.Seq != 2 || s1.Label != "good" || s1.Safety || s1.CreatedBy != "olga" || s1.CreatedAt.IsZero() {
		t.Errorf("snapshot %+v", s1)
	}
	// After the snapshot, at the same message: it is undone all the same.
	settle(t, d, r1, factOf("zone", "eu"))
	r2 := begin(t, d, scopeOf("acme"), "c", "r2")
	settle(t, d, r2, factOf("service", "search"), forbidden("p2"), lifted("p1"))
	say(t, d, r2, "four")
	before := "1secret of acme 2two 3secret of acme 4four; service=search|zone=eu|p2=never"
	wantPicture(t, d, before)

	done := rollBack(t, d, "s1")
	if done.To.ID != "s1" || done.Safety.ID != "s2" || !done.Safety.Safety || done.Safety.Seq != 4 || done.Safety.Branch != 0 || done.Safety.CreatedBy != "olga" {
		t.Errorf("rollback %+v", done)
	}
	if done.Version != 3 || done.Generation != 3 || done.Hidden != 2 || !slices.Equal(done.OpenRuns, []db.OpenRun{{ID: "r1", Generation: 1}, {ID: "r2", Generation: 2}}) {
		t.Errorf("rollback %+v", done)
	}
	// Facts are those of the snapshot; what was forbidden since stays forbidden,
	// what was lifted since is forbidden again.
	wantPicture(t, d, "1secret of acme 2two; service=payment|p1=never|p2=never")

	r3 := begin(t, d, scopeOf("acme"), "c", "r3")
	if r3.Generation != 4 {
		t.Errorf("generation %d", r3.Generation)
	}
	settle(t, d, r3, factOf("service", "mail"))
	say(t, d, r3, "six")
	wantPicture(t, d, "1secret of acme 2two 5secret of acme 6six; service=mail|p1=never|p2=never")
	step, err := loadStep(d, r3, 0)
	if err != nil || contents(step.History) != "secret of acme|two" || step.Question.Seq != 5 {
		t.Errorf("the step's history %q, question %d, %v", contents(step.History), step.Question.Seq, err)
	}
	// A run of the line that was left has its own history, and is fenced.
	if step, err = loadStep(d, r2, 0); err != nil || contents(step.History) != "secret of acme|two" || step.Question.Seq != 3 || !step.Run.Superseded() {
		t.Errorf("the fenced step's history %q, question %d, %v", contents(step.History), step.Question.Seq, err)
	}

	// Forward again, to what the rollback left behind.
	forward := rollBack(t, d, "s2")
	if forward.Safety.ID != "s3" || forward.Safety.Branch != 1 || forward.Safety.Seq != 6 || forward.Hidden != 2 || forward.Version != 5 || forward.Generation != 5 {
		t.Errorf("forward %+v", forward)
	}
	wantPicture(t, d, before)
	r4 := begin(t, d, scopeOf("acme"), "c", "r4")
	say(t, d, r4, "eight")
	wantPicture(t, d, "1secret of acme 2two 3secret of acme 4four 7secret of acme 8eight; service=search|zone=eu|p2=never")

	// And to the second line.
	rollBack(t, d, "s3")
	wantPicture(t, d, "1secret of acme 2two 5secret of acme 6six; service=mail|p1=never|p2=never")
	// A snapshot of a line on which nothing was said yet is its fork.
	if s := snapshot(t, d, ""); s.Seq != 6 || s.Branch != 3 {
		t.Errorf("snapshot %+v", s)
	}
	rollBack(t, d, "s1")
	wantPicture(t, d, "1secret of acme 2two; service=payment|p1=never|p2=never")
	if s := snapshot(t, d, ""); s.Seq != 2 || s.Branch != 4 {
		t.Errorf("snapshot %+v", s)
	}
	list, err := d.Snapshots(ctx, "acme", "c")
	var ids []string
	for _, s := range list {
		ids = append(ids, s.ID)
	}
	if err != nil || strings.Join(ids, " ") != "s7 s6 s5 s4 s3 s2 s1" || list[6].Label != "good" {
		t.Errorf("snapshots %v, %v", ids, err)
	}
}

func TestRollBackToNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error {
		_, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "c", RunID: "none", Day: db.Day(time.Now())})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := snapshot(t, d, ""); s.Seq != 0 {
		t.Errorf("snapshot %+v", s)
	}
	begin(t, d, scopeOf("acme"), "c", "r1")
	if done := rollBack(t, d, "s1"); done.Hidden != 1 || done.To.Seq != 0 {
		t.Errorf("rollback %+v", done)
	}
	wantPicture(t, d, "; ")
	for _, id := range []string{"s9", "s", "1", "s01", "s-1", "s0", "", "s99999999999", "x1"} {
		if _, err := d.RollBack(ctx, "acme", "c", id, "olga"); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("to %q: %v", id, err)
		}
	}
	_, err1 := d.RollBack(ctx, "acme", "nowhere", "s1", "olga")
	_, err2 := d.TakeSnapshot(ctx, "acme", "nowhere", "", "olga")
	_, err3 := d.RollBack(ctx, "umbrella", "c", "s1", "olga")
	for i, err := range []error{err1, err2, err3} {
		if !errors.Is(err, db.ErrNotFound) {
			t.Errorf("%d: %v", i+1, err)
		}
	}
	_, err1 = d.RollBack(ctx, "", "c", "s1", "olga")
	_, err2 = d.TakeSnapshot(ctx, "", "c", "", "olga")
	_, err3 = d.Snapshots(ctx, "", "c")
	for i, err := range []error{err1, err2, err3} {
		if !errors.Is(err, db.ErrScope) {
			t.Errorf("%d: %v", i+1, err)
		}
	}
	if list, err := d.Snapshots(ctx, "umbrella", "c"); err != nil || len(list) != 0 {
		t.Errorf("another tenant's: %v, %v", list, err)
	}
}

// TestFencedRunSettlesNothing finishes a call of a run that a rollback fenced.
func TestFencedRunSettlesNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	var recorded bool
	err := d.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		tx.InsertToolCalls("r1", []db.ToolCall{{ID: "0.0", Tool: "look", Risk: "read", Arguments: "{}", Status: db.CallProposed}})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	snapshot(t, d, "")
	rollBack(t, d, "s1")
	err = d.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		tx.FinishToolCall("r1", "0.0", db.CallOutcome{
			Content: []byte("x"), ContentType: "text/plain", ResultHash: digest, Envelope: "x", Facts: []db.SessionEntry{factOf("a", "1")}, StartedAt: time.Now(),
		}, &recorded)
		return nil
	})
	if err != nil || !recorded {
		t.Fatalf("recorded %v, %v", recorded, err)
	}
	wantPicture(t, d, "1secret of acme; ")
}

// TestRollBackNamesWrites lists the effects that a rollback does not undo: one of
// a worker whose clock is behind by less than a minute as well.
func TestRollBackNamesWrites(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	old := secrets(t, d, scopeOf("acme"), "c", "r1") // performed before
	if _, err := dbtest.Owner(t, url).Exec(ctx, "UPDATE write_intent SET resolved_at = now() - interval '61 seconds'"); err != nil {
		t.Fatal(err)
	}
	snapshot(t, d, "")
	secrets(t, d, scopeOf("acme"), "other", "r2")
	at := time.Now().Add(time.Second) // as a worker's clock that is ahead
	for _, w := range []struct {
		id     string
		result db.WriteResult
		ago    time.Duration
	}{{"r3", db.WritePerformed, 0}, {"r4", db.WriteNotPerformed, 0}, {"r5", db.WriteOpen, 0}, {"r6", db.WritePerformed, 40 * time.Second}} {
		begin(t, d, scopeOf("acme"), "c", w.id)
		plan := db.WritePlan{
			RunID: w.id, CallID: "0.0", Revision: 1, Tool: "restart", ToolVersion: "1", ArgumentsHash: digest, Resource: "thing",
			ResourceVersion: "v1", Summary: "Restart it.", Hash: digest, Nonce: "n", PolicyDigest: digest, CreatedAt: at, ExpiresAt: at.Add(time.Hour),
		}
		err := d.InTx(ctx, old.Scope, func(tx *db.Tx) error {
			tx.InsertToolCalls(w.id, []db.ToolCall{{ID: "0.0", Tool: "restart", ToolVersion: "1", Risk: "write", Arguments: "{}", ArgumentsHash: digest, Status: db.CallProposed}})
			tx.InsertPlan(plan)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		approve(t, d, old.Scope, plan, keyOf(w.id))
		if w.result == db.WriteOpen {
			continue
		}
		err = d.InTx(ctx, old.Scope, func(tx *db.Tx) error {
			tx.ResolveIntent(keyOf(w.id), w.result, db.ByCommit, at.Add(-w.ago))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	done := rollBack(t, d, "s1")
	want := []db.SnapshotWrite{{RunID: "r3", CallID: "0.0", Tool: "restart", Result: db.WritePerformed}, {RunID: "r5", CallID: "0.0", Tool: "restart", Result: db.WriteOpen}, {RunID: "r6", CallID: "0.0", Tool: "restart", Result: db.WritePerformed}}
	if !slices.Equal(done.Writes, want) {
		t.Errorf("writes %+v, want %+v", done.Writes, want)
	}
}

// TestRollBacksAtOnce: one after the other, each from what the other left.
func TestRollBacksAtOnce(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	snapshot(t, d, "")
	say(t, d, run, "two")
	snapshot(t, d, "")
	say(t, d, run, "three")
	type outcome struct {
		done db.Rollback
		err  error
	}
	outcomes := make(chan outcome, 2)
	// A holder of the lock keeps both waiting; then its session is killed.
	owner := dbtest.Owner(t, url)
	holder, err := owner.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Release()
	var pid int
	if _, err := holder.Exec(ctx, "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if err := holder.QueryRow(ctx, "SELECT pg_backend_pid() FROM (SELECT pg_advisory_xact_lock(hashtextextended('fairlead.rollback:acme:c', 0))) AS held").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"s1", "s2"} {
		go func() {
			done, err := d.RollBack(ctx, "acme", "c", id, "olga")
			outcomes <- outcome{done, err}
		}()
	}
	for waiting := 0; waiting < 2; {
		query := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory'"
		if err := owner.QueryRow(ctx, query).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if len(outcomes) > 0 {
			t.Fatalf("it did not wait: %+v", <-outcomes)
		}
	}
	if _, err := owner.Exec(ctx, "SELECT pg_terminate_backend($1)", pid); err != nil {
		t.Fatal(err)
	}
	first, second := <-outcomes, <-outcomes
	if first.err != nil || second.err != nil {
		t.Fatalf("%v, %v", first.err, second.err)
	}
	if first.done.Version > second.done.Version {
		first, second = second, first
	}
	if a, b := first.done, second.done; a.Version != 2 || b.Version != 3 || a.Safety.ID != "s3" || a.Safety.Branch != 0 || a.Safety.Seq != 3 ||
		b.Safety.ID != "s4" || b.Safety.Branch != 1 || b.Safety.Seq != a.To.Seq || b.Generation != 3 {
		t.Errorf("first %+v\nsecond %+v", first.done, second.done)
	}
	want := map[string]string{"s1": "1secret of acme; ", "s2": "1secret of acme 2two; "}
	wantPicture(t, d, want[second.done.To.ID])
	var state string
	err = owner.QueryRow(ctx, "SELECT format('%s %s %s %s', version, generation, last_seq, branch) FROM conversation").Scan(&state)
	if err != nil || state != "3 3 3 2" {
		t.Errorf("the conversation is %s, %v", state, err)
	}
}

// TestRollBackDuringAppend lets a message be written while a rollback waits for
// its conversation: it belongs to the line that is left.
func TestRollBackDuringAppend(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	snapshot(t, d, "")
	done := make(chan error, 1)
	err := d.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		conv, _, err := tx.HoldConversation(ctx, run)
		if err != nil {
			return err
		}
		go func() {
			_, err := d.RollBack(ctx, "acme", "c", "s1", "olga")
			done <- err
		}()
		if err := waitFor(owner, "transactionid", done); err != nil {
			return err
		}
		tx.AppendMessage(&conv, db.Message{ID: "m2", Role: db.RoleAssistant, Content: "late", Visibility: db.Visible, RunID: "r1"}, false)
		return nil
	})
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	wantPicture(t, d, "1secret of acme; ")
	rollBack(t, d, "s2")
	wantPicture(t, d, "1secret of acme 2late; ")
}

// TestSummariesOfLines: a summary is good on its line, and on those that go on
// from behind its messages.
func TestSummariesOfLines(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	summarize := func(from, to int64) {
		t.Helper()
		err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error {
			state, err := tx.LoadSummary(ctx, "c", 1)
			tx.StoreSummary(state.Conversation, db.Summary{FromSeq: from, ToSeq: to, Status: db.SummaryChecked, Model: "m", PromptVersion: "1", Content: fmt.Append(nil, from, to)})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// want says from where on the next summary is made, of how many messages, and
	// which summaries a run is shown.
	want := func(run db.Run, from int64, unsummarized int, shown string) {
		t.Helper()
		var state db.SummaryState
		err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) (err error) {
			state, err = tx.LoadSummary(ctx, "c", 100)
			return err
		})
		if err != nil || state.From != from || state.Unsummarized != unsummarized || len(state.Messages) != unsummarized {
			t.Errorf("from %d, %d unsummarized, %d messages, %v; want %d, %d", state.From, state.Unsummarized, len(state.Messages), err, from, unsummarized)
		}
		step, err := loadStep(d, run, 0)
		var ranges []string
		for _, s := range step.Summaries {
			ranges = append(ranges, string(s.Content))
		}
		if err != nil || strings.Join(ranges, ",") != shown {
			t.Errorf("shown %v, %v; want %s", ranges, err, shown)
		}
	}
	r1 := begin(t, d, scopeOf("acme"), "c", "r1")
	say(t, d, r1, "2", "3", "4")
	snapshot(t, d, "") // s1 at 4
	say(t, d, r1, "5", "6")
	r2 := begin(t, d, scopeOf("acme"), "c", "r2") // 7
	summarize(1, 3)
	summarize(4, 6)
	want(r2, 7, 1, "1 3,4 6")

	rollBack(t, d, "s1")                          // what was left is s2 at 7
	r3 := begin(t, d, scopeOf("acme"), "c", "r3") // 8
	// 4 to 6 has messages that are no longer there.
	want(r3, 4, 2, "1 3")
	say(t, d, r3, "9")
	summarize(4, 9)
	r4 := begin(t, d, scopeOf("acme"), "c", "r4") // 10
	want(r4, 10, 1, "1 3,4 9")

	rollBack(t, d, "s2")
	r5 := begin(t, d, scopeOf("acme"), "c", "r5") // 11
	want(r5, 7, 2, "1 3,4 6")
	var old db.SummaryState
	err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) (err error) {
		old, err = tx.LoadSummary(ctx, "c", 1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rollBack(t, d, "s1")
	r6 := begin(t, d, scopeOf("acme"), "c", "r6") // 12
	summarize(4, 4)
	want(r6, 5, 1, "1 3,4 4")
	var end db.EndState
	err = d.InTx(ctx, r6.Scope, func(tx *db.Tx) (err error) {
		end, err = tx.CloseRun(ctx, "r6", "none", 1)
		return err
	})
	if err != nil || end.Unsummarized != 1 || end.SummaryFailures != 0 {
		t.Errorf("end %+v, %v", end, err)
	}

	// One that was made on the old line and stored after a rollback: it does not
	// stand beside another one of the same messages.
	rollBack(t, d, snapshot(t, d, "").ID)
	r7 := begin(t, d, scopeOf("acme"), "c", "r7") // 13
	old.Conversation.Branch = 0
	err = d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error {
		tx.StoreSummary(old.Conversation, db.Summary{FromSeq: 2, ToSeq: 4, Status: db.SummaryChecked, Model: "m", PromptVersion: "1", Content: []byte("late")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want(r7, 5, 2, "1 3,4 4")
}
