package db_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

func loadSummary(d *db.DB, most int) (state db.SummaryState, err error) {
	err = d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) (err error) {
		state, err = tx.LoadSummary(ctx, "c", most)
		return err
	})
	return state, err
}

// TestSummaryOfOneLine rolls a conversation back while a summary of it is being
// loaded: the messages and the line are those of one moment.
func TestSummaryOfOneLine(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	s1 := snapshot(t, d, "")
	say(t, d, run, "first line")
	s2 := rollBack(t, d, s1.ID).Safety
	say(t, d, begin(t, d, scopeOf("acme"), "c", "r2"), "second line")

	// A connection that has prepared its statements waits for no table before it
	// executes them.
	warm := dbtest.Open(t, url, db.Options{MaxConns: 1})
	if _, err := loadSummary(warm, 9); err != nil {
		t.Fatal(err)
	}
	// The load has seen the conversation, and waits for the summaries.
	lock, err := owner.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(ctx) }()
	if _, err := lock.Exec(ctx, "LOCK TABLE conversation_summary IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	loaded, rolledBack := make(chan db.SummaryState, 1), make(chan error, 1)
	go func() {
		state, err := loadSummary(warm, 9)
		if err != nil {
			t.Error(err)
		}
		loaded <- state
	}()
	if err := waitFor(owner, "relation", loaded); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := d.RollBack(ctx, "acme", "c", s2.ID, "olga")
		rolledBack <- err
	}()
	waits := waitFor(owner, "transactionid", rolledBack)
	if err := lock.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	state := <-loaded
	if err := <-rolledBack; err != nil || waits != nil {
		t.Errorf("rollback: %v, %v", waits, err)
	}
	want := map[int]string{1: "secret of acme|secret of acme|second line", 2: "secret of acme|first line"}[state.Conversation.Branch]
	if got := contents(state.Messages); got != want || state.Unsummarized != len(state.Messages) {
		t.Errorf("on line %d: %q, want %q", state.Conversation.Branch, got, want)
	}
	if state, err = loadSummary(d, 9); err != nil || state.Conversation.Branch != 2 || contents(state.Messages) != "secret of acme|first line" {
		t.Errorf("afterwards on line %d: %q, %v", state.Conversation.Branch, contents(state.Messages), err)
	}
}

// TestLongestSummaryWins has two of the same first message, of two lines that
// share it, and one that overlaps.
func TestLongestSummaryWins(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	say(t, d, run, "2", "3", "4", "5", "6")
	old, err := loadSummary(d, 1)
	if err != nil {
		t.Fatal(err)
	}
	rollBack(t, d, snapshot(t, d, "").ID)
	now, err := loadSummary(d, 1)
	if err != nil {
		t.Fatal(err)
	}
	store := func(conv db.Conversation, from, to int64) {
		t.Helper()
		err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error {
			tx.StoreSummary(conv, db.Summary{FromSeq: from, ToSeq: to, Status: db.SummaryChecked, Model: "m", PromptVersion: "1", Content: fmt.Append(nil, from, to)})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	store(old.Conversation, 1, 2)
	store(now.Conversation, 1, 4)
	store(old.Conversation, 3, 6)
	store(now.Conversation, 5, 6)
	step, err := loadStep(d, begin(t, d, scopeOf("acme"), "c", "r2"), 0)
	var shown []string
	for _, s := range step.Summaries {
		shown = append(shown, string(s.Content))
	}
	if err != nil || strings.Join(shown, ",") != "1 4,5 6" {
		t.Errorf("shown %v, %v", shown, err)
	}
}

// TestSkippedOnLines: what one line skips another one goes on from, if it has it.
func TestSkippedOnLines(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	s1 := snapshot(t, d, "")
	say(t, d, run, "2", "3")
	skip := func(from, to int64) {
		t.Helper()
		err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error {
			state, err := tx.LoadSummary(ctx, "c", 1)
			tx.StoreSummary(state.Conversation, db.Summary{FromSeq: from, ToSeq: to, Status: db.SummarySkipped, Failure: "too_dense", Model: "m", PromptVersion: "1"})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	from := func(want int64) {
		t.Helper()
		if state, err := loadSummary(d, 1); err != nil || state.From != want {
			t.Errorf("from %d, %v; want %d", state.From, err, want)
		}
	}
	skip(1, 1)
	skip(2, 2)
	from(3)
	rollBack(t, d, s1.ID)
	from(2)
	if step, err := loadStep(d, begin(t, d, scopeOf("acme"), "c", "r2"), 0); err != nil || len(step.Summaries) != 0 {
		t.Errorf("shown %+v, %v", step.Summaries, err)
	}
}

// TestUnsummarizedIsBounded counts no further than 1,000.
func TestUnsummarizedIsBounded(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	texts := make([]string, 1001)
	say(t, d, run, texts...)
	began := time.Now()
	state, err := loadSummary(d, 2)
	if err != nil || state.Unsummarized != 1000 || len(state.Messages) != 2 {
		t.Errorf("%d unsummarized, %d messages, %v after %s", state.Unsummarized, len(state.Messages), err, time.Since(began))
	}
}
