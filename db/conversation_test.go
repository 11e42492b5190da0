package db_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

// appendTo appends messages to a run's conversation, in a transaction of its own,
// and returns the sequence number of the last one.
func appendTo(d *db.DB, run db.Run, messages ...db.Message) (seq int64, err error) {
	err = d.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		conv, _, err := tx.HoldConversation(ctx, run)
		if err != nil {
			return err
		}
		for _, m := range messages {
			m.RunID = run.ID
			tx.AppendMessage(&conv, m, false)
		}
		seq = conv.LastSeq
		return nil
	})
	return seq, err
}

// say appends messages to a conversation, named m<seq>.
func say(t testing.TB, d *db.DB, run db.Run, texts ...string) {
	t.Helper()
	err := d.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		conv, _, err := tx.HoldConversation(ctx, run)
		if err != nil {
			return err
		}
		conv.User = run.Scope.User
		for _, text := range texts {
			tx.AppendMessage(&conv, db.Message{ID: fmt.Sprintf("%s-m%d", run.Conversation, conv.LastSeq+1), Role: db.RoleAssistant, Content: text, Visibility: db.Visible, RunID: run.ID}, false)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWritersAtOnce is CONV-5: 16 writers of 10 messages each.
func TestWritersAtOnce(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	run := begin(t, d, scopeOf("acme"), "c", "r")
	var wg sync.WaitGroup
	seen := make([][10]int64, 16)
	for w := range 16 {
		wg.Go(func() {
			for i := range 10 {
				var err error
				text := fmt.Sprintf("%d of %d", i, w)
				seen[w][i], err = appendTo(d, run, db.Message{ID: fmt.Sprintf("w%d-%d", w, i), Role: db.RoleUser, Content: text, Visibility: db.Visible})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	list, err := d.Messages(ctx, scopeOf("acme"), "c", 1000)
	if err != nil || len(list) != 161 {
		t.Fatalf("%d messages, %v", len(list), err)
	}
	for i, m := range list {
		if m.Seq != int64(i+1) {
			t.Fatalf("message %d has number %d", i+1, m.Seq)
		}
		var w, n int
		if i == 0 {
			continue
		}
		if _, err := fmt.Sscanf(m.Content, "%d of %d", &n, &w); err != nil || seen[w][n] != m.Seq {
			t.Errorf("%q was told the number %d, has %d", m.Content, seen[w][n], m.Seq)
		}
		// A writer's own messages keep their order.
		if n > 0 && seen[w][n-1] >= m.Seq {
			t.Errorf("%q came before the one before it", m.Content)
		}
	}
	var last int64
	if err := dbtest.Owner(t, url).QueryRow(ctx, "SELECT last_seq FROM conversation").Scan(&last); err != nil || last != 161 {
		t.Errorf("last_seq %d, %v", last, err)
	}
}

// TestLongConversation keeps the newest of 5,000 messages, for a step and for a
// reader, and reads no more rows than those.
func TestLongConversation(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	first := begin(t, d, scopeOf("acme"), "c", "r1")
	var texts []string
	for i := 2; i <= 5000; i++ {
		texts = append(texts, fmt.Sprint("text ", i))
	}
	say(t, d, first, texts...)
	run := begin(t, d, scopeOf("acme"), "c", "r2") // its question is 5001
	list, err := d.Messages(ctx, run.Scope, "c", 3)
	if err != nil || contents(list) != "text 4999|text 5000|secret of acme" {
		t.Errorf("%v, %v", contents(list), err)
	}
	if list, err = d.Messages(ctx, run.Scope, "c", 0); err != nil || len(list) != 0 {
		t.Errorf("none: %v, %v", list, err)
	}
	var step db.StepState
	err = d.InTx(ctx, run.Scope, func(tx *db.Tx) (err error) {
		step, err = tx.LoadStep(ctx, db.StepQuery{RunID: run.ID, MaxMessages: 3})
		return err
	})
	if err != nil || contents(step.History) != "text 4998|text 4999|text 5000" || step.Question.Seq != 5001 {
		t.Errorf("%v, %v", contents(step.History), err)
	}

	owner := dbtest.Owner(t, url)
	if _, err := owner.Exec(ctx, "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	snapshot, err := d.TakeSnapshot(ctx, "acme", "c", "", "olga")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // on line 0, and on a line with a path
		for query, args := range map[string]string{"MessagesBeforeRun": "'acme', 'r2', 50", "NewestMessages": "'acme', 'c', 50"} {
			plan := explain(t, owner, "conversation.sql", query, args)
			scanned := regexp.MustCompile(`Index Scan Backward using message_seq_key on message.*rows=(\d+) `).FindStringSubmatch(plan)
			if scanned == nil || scanned[1] != "50" || strings.Contains(plan, "Sort") {
				t.Errorf("%s:\n%s", query, plan)
			}
		}
		if _, err := d.RollBack(ctx, "acme", "c", snapshot.ID, "olga"); err != nil {
			t.Fatal(err)
		}
	}
}

// queryText is a query of db/query, with @name for each of its parameters.
func queryText(t testing.TB, file, name string) string {
	t.Helper()
	text, err := os.ReadFile("query/" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, query, ok := strings.Cut(string(text), "-- name: "+name+" ")
	if !ok {
		t.Fatalf("no query %s", name)
	}
	query, _, _ = strings.Cut(query, ";")
	_, query, _ = strings.Cut(query, "\n")
	query = regexp.MustCompile(`sqlc\.embed\((\w+)\)`).ReplaceAllString(query, "$1.*")
	return regexp.MustCompile(`sqlc\.narg\('(\w+)'\)`).ReplaceAllString(query, "@$1")
}

// numbered gives the parameters of a query numbers; params are their names in order.
func numbered(query string) (text string, params []string) {
	text = regexp.MustCompile(`@\w+`).ReplaceAllStringFunc(query, func(param string) string {
		if !slices.Contains(params, param[1:]) {
			params = append(params, param[1:])
		}
		return fmt.Sprintf("$%d", 1+slices.Index(params, param[1:]))
	})
	return text, params
}

// explain executes a query of db/query as the programs do, and returns the plan.
func explain(t testing.TB, owner *pgxpool.Pool, file, name, args string) string {
	t.Helper()
	query, _ := numbered(queryText(t, file, name))
	tx, err := owner.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	for _, sql := range []string{
		"SET LOCAL role " + db.Role, "SET LOCAL app.tenant = 'acme'", "SET LOCAL app.memory = 'tenant'", "SET LOCAL plan_cache_mode = force_generic_plan", "SET LOCAL jit = off", "PREPARE q AS " + query,
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	rows, err := tx.Query(ctx, "EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) EXECUTE q("+args+")", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "DEALLOCATE q"); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func TestMessagesOfNobodyElse(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	run := begin(t, d, scopeOf("acme"), "c", "r")
	_, err := appendTo(d, run, db.Message{ID: "hidden", Role: db.RoleUser, Content: "x", Visibility: db.Hidden},
		db.Message{ID: "last", Role: db.RoleAssistant, Content: "", Visibility: db.Visible, ParentID: run.QuestionID})
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.Messages(ctx, run.Scope, "c", 9)
	if err != nil || len(list) != 2 || list[1].ID != "last" || list[1].Seq != 3 || list[1].ParentID != run.QuestionID || list[1].CreatedAt.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	for _, scope := range []agent.Scope{
		{Tenant: "acme", User: "bob", Environment: "production"}, {Tenant: "acme", User: "ada", Environment: "test"}, scopeOf("umbrella"),
	} {
		if _, err := d.Messages(ctx, scope, "c", 9); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("%+v: %v", scope, err)
		}
		if _, err := d.Session(ctx, scope, "c"); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("%+v: %v", scope, err)
		}
		err := d.InTx(ctx, scope, func(tx *db.Tx) error {
			tx.Append("c", db.Message{ID: "theirs", Role: db.RoleUser, Content: "x", Visibility: db.Visible, RunID: "r"}, new(int64))
			return nil
		})
		if !errors.Is(err, db.ErrNotFound) {
			t.Errorf("%+v appends: %v", scope, err)
		}
	}
	if _, err := d.Messages(ctx, agent.Scope{Tenant: "acme"}, "c", 9); !errors.Is(err, db.ErrScope) {
		t.Errorf("half a scope: %v", err)
	}
}
