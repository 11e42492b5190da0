package db_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

var ctx = context.Background()

func scopeOf(tenant string) agent.Scope {
	return agent.Scope{Tenant: tenant, User: "ada", Environment: "production"}
}

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// begin stores a run that is running.
func begin(t testing.TB, d *db.DB, scope agent.Scope, conversation, id string) db.Run {
	t.Helper()
	run := db.Run{
		ID: id, Scope: scope, Conversation: conversation, Agent: "helper", DefinitionVersion: "1", DefinitionDigest: digest,
		Budget: agent.Budget{MaxSteps: 1, MaxTokens: 1, Timeout: time.Minute}, Deadline: time.Now().Add(time.Minute),
		WorkflowID: agent.WorkflowID("acme", id), RequestHash: digest, QuestionID: "question-" + id, Version: 1, Status: agent.StatusQueued,
	}
	var admitted bool
	err := d.InTx(ctx, scope, func(tx *db.Tx) error {
		state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: conversation, RunID: id, Day: db.Day(time.Now())})
		if err != nil {
			return err
		}
		tx.StoreDefinition(db.Definition{Digest: digest, Name: "helper", Version: "1", Body: []byte("{}")})
		tx.AppendMessage(&state.Conversation, db.Message{ID: run.QuestionID, Role: db.RoleUser, Content: "secret of " + scope.Tenant, Visibility: db.Visible, RunID: id}, true)
		run.Generation = state.Conversation.Generation
		tx.InsertRun(run)
		tx.AdmitRun(id, db.Limits{}, &admitted)
		return nil
	})
	if err != nil || !admitted {
		t.Fatalf("begin: admitted %v, %v", admitted, err)
	}
	run.Status, run.Version = agent.StatusRunning, 2
	return run
}

// app returns a connection that works as the programs do, with what a program
// might set.
func app(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	conf, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	conf.ConnConfig.RuntimeParams["role"] = db.Role
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

var tenantTables = []string{
	"tenant_limit", "daily_usage", "conversation", "message", "run", "run_transition", "model_attempt", "ledger_entry", "tool_call", "tool_result", "write_plan", "write_intent", "approval_refusal",
	"subject_key", "conversation_branch", "conversation_snapshot", "session_entry", "conversation_summary",
	"memory_participant", "memory_influence", "memory_audit", "memory_lesson", "memory_erasure",
}

// fill stores a row of every tenant table.
func fill(t testing.TB, d *db.DB, owner *pgxpool.Pool, tenant string) {
	t.Helper()
	run := begin(t, d, scopeOf(tenant), "c", "r")
	if _, err := owner.Exec(ctx, "INSERT INTO tenant_limit (tenant) VALUES ($1)", tenant); err != nil {
		t.Fatal(err)
	}
	var recorded bool
	err := d.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		tx.StartAttempt(run.ID, db.Attempt{Number: 1, Model: "m", Provider: "p", Reserved: db.Amount{Tokens: 10}})
		tx.InsertToolCalls(run.ID, []db.ToolCall{
			{ID: "0.0", Tool: "look", Risk: "read", Arguments: "{}", Status: db.CallProposed},
			{ID: "0.1", Index: 1, Tool: "change", Risk: "write", Arguments: "{}", Status: db.CallProposed},
		})
		now := time.Now()
		plan := db.WritePlan{
			RunID: run.ID, CallID: "0.1", Revision: 1, Tool: "change", ToolVersion: "1", ArgumentsHash: digest, Resource: "thing", Summary: "Changes it.",
			Hash: digest, Nonce: "n", PolicyDigest: digest, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		}
		tx.InsertPlan(plan)
		plan.Status, plan.DecidedBy, plan.DecidedAt, plan.TokenID = db.PlanApproved, "bob", now, "t"
		tx.ClosePlan(plan)
		tx.RecordIntent(db.WriteIntent{Key: digest, RunID: run.ID, CallID: "0.1", Revision: 1, ArgumentsHash: digest, ApprovedBy: "bob", PolicyDigest: digest, RecordedAt: now})
		tx.StartToolCall(run.ID, "0.1")
		tx.RefuseApproval(run.ID, db.Refusal{CallID: "0.1", Code: agent.RefusedSignature})
		tx.FinishToolCall(run.ID, "0.0", db.CallOutcome{Content: []byte("x"), ContentType: "text/plain", ResultHash: digest, Envelope: "x", StartedAt: time.Now()}, &recorded)
		tx.ReserveDaily(db.Day(time.Now()), db.Amount{Tokens: 10}, db.Limits{})
		return nil
	})
	if err != nil || !recorded {
		t.Fatalf("fill: recorded %v, %v", recorded, err)
	}
	keep(t, d, run)
	fillMemory(t, d, owner, run)
}

// keep stores what a conversation keeps, and rolls it back.
func keep(t testing.TB, d *db.DB, run db.Run) {
	t.Helper()
	err := d.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		state, err := tx.LoadSummary(ctx, run.Conversation, 1)
		if err != nil {
			return err
		}
		tx.AppendSession(state.Conversation, run.ID, []db.SessionEntry{{Kind: db.EntryFact, Key: "service", Value: "secret of " + run.Scope.Tenant}})
		tx.StoreSummary(state.Conversation, db.Summary{
			FromSeq: 1, ToSeq: 1, Status: db.SummaryChecked, Model: "m", PromptVersion: "1", Content: []byte("secret of " + run.Scope.Tenant),
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := d.TakeSnapshot(ctx, run.Scope.Tenant, run.Conversation, "before", "olga")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.RollBack(ctx, run.Scope.Tenant, run.Conversation, snapshot.ID, "olga"); err != nil {
		t.Fatal(err)
	}
}

// TestRowLevelSecurity asks without any filter, as a query would that forgot it.
func TestRowLevelSecurity(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	for _, tenant := range []string{"acme", "umbrella"} {
		fill(t, d, owner, tenant)
	}
	pool := app(t, url)
	tenantsSeen := func(table, tenant string) (seen []string) {
		t.Helper()
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if tenant != "-" {
			if _, err := tx.Exec(ctx, "SELECT set_config('app.tenant', $1, true)", tenant); err != nil {
				t.Fatal(err)
			}
		}
		// What memory has of a user is the tenant's only here.
		if _, err := tx.Exec(ctx, "SELECT set_config('app.memory', 'tenant', true)"); err != nil {
			t.Fatal(err)
		}
		rows, err := tx.Query(ctx, "SELECT DISTINCT tenant FROM "+table)
		if err != nil {
			t.Fatal(err)
		}
		if seen, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
		return seen
	}
	for _, table := range tenantTables {
		if seen := tenantsSeen(table, "acme"); !slices.Equal(seen, []string{"acme"}) {
			t.Errorf("%s: acme sees %v", table, seen)
		}
		for _, unset := range []string{"-", ""} {
			if seen := tenantsSeen(table, unset); len(seen) != 0 {
				t.Errorf("%s: without a tenant (%q) one sees %v", table, unset, seen)
			}
		}
	}

	// Every table with a tenant column is protected, forced for the owner too:
	// a table added later must not be forgotten.
	rows, err := owner.Query(ctx, `SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
		WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
		AND NOT (c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid))`)
	if err != nil {
		t.Fatal(err)
	}
	if bare, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(bare) != 0 {
		t.Errorf("tables without forced row-level security: %v, %v", bare, err)
	}

	// Writing for another tenant is refused as well.
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "SELECT set_config('app.tenant', 'acme', true)"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "INSERT INTO conversation (tenant, id, user_id, environment) VALUES ('umbrella', 'x', 'u', 'e')"); err == nil {
		t.Error("a row of another tenant was written")
	}
}

// TestPrivileges proves that the programs' role cannot rewrite history.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	_, url := dbtest.NewWithURL(t)
	pool := app(t, url)
	for _, statement := range []string{
		"UPDATE ledger_entry SET tokens = 0", "DELETE FROM ledger_entry", "UPDATE run_transition SET reason = ''", "DELETE FROM run_transition",
		"UPDATE message SET role = ''", "UPDATE message SET content_hash = ''", "UPDATE session_entry SET key = ''", "DELETE FROM session_entry", "UPDATE conversation_summary SET failure = ''",
		"UPDATE conversation_snapshot SET label = ''", "DELETE FROM conversation_branch", "UPDATE conversation_branch SET path = '{}'", "DELETE FROM subject_key", "DELETE FROM deployment_key",
		"UPDATE tool_result SET content = ''", "DELETE FROM unsealed", "DELETE FROM message", "DELETE FROM run", "DELETE FROM conversation", "DELETE FROM model_attempt",
		"UPDATE tool_result SET hash = ''", "INSERT INTO tenant_limit (tenant) VALUES ('acme')", "UPDATE agent_definition SET body = '{}'",
		"CREATE TABLE mine (a int)", "ALTER TABLE run DISABLE ROW LEVEL SECURITY", "DROP POLICY tenant_isolation ON run", "TRUNCATE run",
	} {
		if _, err := pool.Exec(ctx, statement); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: %v, want permission denied", statement, err)
		}
	}
}

func TestScopeMustBeComplete(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for _, scope := range []agent.Scope{{}, {User: "u", Environment: "e"}, {Tenant: "t", Environment: "e"}, {Tenant: "t", User: "u"}} {
		called := false
		if err := d.InTx(ctx, scope, func(*db.Tx) error { called = true; return nil }); !errors.Is(err, db.ErrScope) || called {
			t.Errorf("%+v: %v, called %v", scope, err, called)
		}
		if _, _, err := d.ToolCall(ctx, scope, "r", "0.0"); !errors.Is(err, db.ErrScope) {
			t.Errorf("%+v: %v", scope, err)
		}
	}
	if _, err := d.ListRuns(ctx, db.RunFilter{User: "ada"}); !errors.Is(err, db.ErrScope) {
		t.Errorf("a list without tenant: %v", err)
	}
}

func TestInTxRollsBack(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	stop := errors.New("stop")
	err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error {
		if _, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "c", RunID: "r", Day: db.Day(time.Now())}); err != nil {
			return err
		}
		return stop
	})
	var n int
	if err := errors.Join(err, dbtest.Owner(t, url).QueryRow(ctx, "SELECT count(*) FROM conversation").Scan(&n)); !errors.Is(err, stop) || n != 0 {
		t.Fatalf("%v, %d conversations", err, n)
	}
}

// TestDeadlockIsRunAgain makes two transactions take two rows in opposite order.
func TestDeadlockIsRunAgain(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	day := db.Day(time.Now())
	var tries [2]int
	var met sync.WaitGroup
	met.Add(2)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			order := []string{"a", "b"}
			if i == 1 {
				order = []string{"b", "a"}
			}
			err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error {
				tries[i]++
				if _, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: order[0], RunID: "none", Day: day}); err != nil {
					return err
				}
				if tries[i] == 1 {
					met.Done()
					met.Wait()
				}
				_, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: order[1], RunID: "none", Day: day})
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// On a slow machine they may meet again.
	if tries[0]+tries[1] < 3 {
		t.Errorf("%d and %d tries: nobody ran again", tries[0], tries[1])
	}
}

func TestTerminalStatusNeverChanges(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	run := begin(t, d, scopeOf("acme"), "c", "r")
	move := func(r db.Run, to agent.Status, reason agent.Reason) error {
		return d.InTx(ctx, r.Scope, func(tx *db.Tx) error { return tx.MoveRun(r, db.Move{To: to, Reason: reason}) })
	}
	if err := move(run, agent.StatusFailed, agent.ReasonDeadline); err != nil {
		t.Fatal(err)
	}
	// By the table of moves.
	ended := run
	ended.Status, ended.Version = agent.StatusFailed, 3
	for _, to := range agent.Statuses() {
		var illegal *agent.TransitionError
		if err := move(ended, to, ""); !errors.As(err, &illegal) {
			t.Errorf("to %s: %v", to, err)
		}
	}
	// By the version, for one who read it before.
	if err := move(run, agent.StatusCanceled, agent.ReasonCanceled); !errors.Is(err, db.ErrConflict) || !db.IsConstraint(err, db.ConstraintTransition) {
		t.Errorf("from an old version: %v", err)
	}
	// By the database, whoever asks and however.
	owner := dbtest.Owner(t, url)
	for _, set := range []string{
		"status = 'running', reason = NULL, ended_at = NULL", "status = 'canceled', reason = 'canceled'", "reason = 'internal'", "detail = 'x'", "step = 7",
	} {
		if _, err := owner.Exec(ctx, "UPDATE run SET "+set); err == nil || !strings.Contains(err.Error(), "FL002") {
			t.Errorf("SET %s: %v", set, err)
		}
	}
}

func TestStatusAndReasonBelongTogether(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	begin(t, d, scopeOf("acme"), "c", "r")
	owner := dbtest.Owner(t, url)
	for _, set := range []string{
		"status = 'failed', ended_at = now()", "status = 'failed', reason = 'canceled', ended_at = now()", "status = 'failed', reason = 'deadline'",
		"status = 'succeeded', reason = 'final', ended_at = now()", "status = 'running', reason = 'deadline'", "status = 'odd'",
		"status = 'canceled', reason = 'final', ended_at = now()", "status = 'failed', reason = 'odd', ended_at = now()",
	} {
		if _, err := owner.Exec(ctx, "UPDATE run SET "+set); err == nil || !strings.Contains(err.Error(), "23514") {
			t.Errorf("SET %s: %v, want a check violation", set, err)
		}
	}
	// The closed sets of agent are those of the schema.
	for _, reason := range agent.Reasons() {
		tx, err := owner.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(ctx, "UPDATE run SET status = $1, reason = $2, ended_at = now(), answer_message_id = CASE WHEN $2 = 'final' THEN question_message_id END",
			string(reason.Status()), string(reason))
		if err != nil {
			t.Errorf("%s: %v", reason, err)
		}
		_ = tx.Rollback(ctx)
	}
}

// TestDown opens a DB where nobody listens: it must not fail, connect, or say
// where it tried to.
func TestDown(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, "postgres://secret:secret@127.0.0.1:1/secret", db.Options{})
	err := d.Ping(ctx)
	if !errors.Is(err, db.ErrUnavailable) || err.Error() != "ping database: database unavailable" {
		t.Errorf("ping: %v", err)
	}
	if err := db.Migrate(ctx, "postgres://secret:secret@127.0.0.1:1/secret"); !errors.Is(err, db.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("migrate: %v", err)
	}
	for _, url := range []string{"postgres://secret@[", "://secret"} {
		if _, err := db.Open(ctx, url, db.Options{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("open: %v", err)
		}
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := dbtest.New(t).InTx(done, scopeOf("acme"), func(tx *db.Tx) error { tx.StartToolCall("r", "0.0"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestListRuns(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	bob := scopeOf("acme")
	bob.User = "bob"
	begin(t, d, scopeOf("acme"), "c1", "r1")
	begin(t, d, bob, "c2", "r2")
	last := begin(t, d, scopeOf("acme"), "c1", "r3")
	begin(t, d, scopeOf("umbrella"), "c1", "r1")
	err := d.InTx(ctx, last.Scope, func(tx *db.Tx) error {
		tx.StartAttempt("r3", db.Attempt{Step: 4, Number: 1, Model: "m", Provider: "p", Reserved: db.Amount{Tokens: 70}})
		if err := tx.FinishAttempt("r3", db.Attempt{Step: 4, Number: 1, Status: db.AttemptSucceeded, Billed: &db.Amount{Tokens: 50}, UsageKnown: true}, nil); err != nil {
			return err
		}
		return tx.MoveRun(last, db.Move{To: agent.StatusFailed, Reason: agent.ReasonStepLimit, Step: 4})
	})
	if err != nil {
		t.Fatal(err)
	}
	list := func(f db.RunFilter) string {
		t.Helper()
		f.Tenant = "acme"
		runs, err := d.ListRuns(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, r := range runs {
			ids = append(ids, r.RunID)
		}
		return strings.Join(ids, " ")
	}
	all, err := d.ListRuns(ctx, db.RunFilter{Tenant: "acme"})
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	if r := all[0]; r.RunID != "r3" || r.Step != 4 || r.BilledTokens != 50 || !r.Unpriced || r.Reason != agent.ReasonStepLimit || r.Generation != 2 || r.EndedAt.IsZero() {
		t.Errorf("newest %+v", r)
	}
	for _, c := range []struct {
		filter db.RunFilter
		want   string
	}{
		{db.RunFilter{User: "bob"}, "r2"},
		{db.RunFilter{User: "ada"}, "r3 r1"},
		{db.RunFilter{Conversation: "c1"}, "r3 r1"},
		{db.RunFilter{Status: agent.StatusFailed}, "r3"},
		{db.RunFilter{Agent: "other"}, ""},
		{db.RunFilter{Environment: "test"}, ""},
		{db.RunFilter{Limit: 2}, "r3 r2"},
		{db.RunFilter{Before: all[1].CreatedAt}, "r1"},
	} {
		if got := list(c.filter); got != c.want {
			t.Errorf("%+v lists %q, want %q", c.filter, got, c.want)
		}
	}
	// A run is shown to its owner and to the operator of its tenant.
	for scope, found := range map[agent.Scope]bool{
		{Tenant: "acme", User: "ada", Environment: "production"}: true, {Tenant: "acme"}: true,
		{Tenant: "acme", User: "bob"}: false, {Tenant: "acme", Environment: "test"}: false, {Tenant: "initech"}: false,
	} {
		if _, err := d.ShowRun(ctx, scope, "r3"); (err == nil) != found || (err != nil && !errors.Is(err, db.ErrNotFound)) {
			t.Errorf("%+v: %v", scope, err)
		}
	}
	report, err := d.Progress(ctx, agent.Scope{Tenant: "acme"}, "r3", 4)
	if err != nil || len(report.Steps) != 1 || report.Totals.Usage.BilledTokens != 50 {
		t.Errorf("progress %+v, %v", report, err)
	}
	if report, err = d.Progress(ctx, agent.Scope{Tenant: "acme"}, "r3", 5); err != nil || len(report.Steps) != 0 {
		t.Errorf("progress %+v, %v", report, err)
	}
}

// TestRunEndsAfterItsStep lets a run end while a step reserves: the end waits,
// and settles what the step began.
func TestRunEndsAfterItsStep(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	run := begin(t, d, scopeOf("acme"), "c", "r")
	ended := make(chan db.EndState, 1)
	err := d.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		if _, err := tx.LoadStep(ctx, db.StepQuery{RunID: run.ID}); err != nil {
			return err
		}
		go func() {
			var state db.EndState
			err := d.InTx(ctx, run.Scope, func(tx *db.Tx) (err error) {
				if state, err = tx.CloseRun(ctx, run.ID, "none", 50); err != nil {
					return err
				}
				return tx.MoveRun(state.Run, db.Move{To: agent.StatusCanceled, Reason: agent.ReasonCanceled})
			})
			if err != nil {
				t.Error(err)
			}
			ended <- state
		}()
		for waiting := 0; waiting == 0; {
			query := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
			if err := owner.QueryRow(ctx, query).Scan(&waiting); err != nil {
				return err
			}
			if len(ended) > 0 {
				return errors.New("the run ended in the middle of a step")
			}
		}
		tx.StartAttempt(run.ID, db.Attempt{Number: 1, Model: "m", Provider: "p", Reserved: db.Amount{Tokens: 10}})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if state := <-ended; state.Totals.OpenAttempts != 0 || state.Totals.Usage.BilledTokens != 10 || state.Totals.Usage.UnknownAttempts != 1 {
		t.Fatalf("totals %+v", state.Totals)
	}
	if attempts := func() []db.Attempt {
		report, err := d.ShowRun(ctx, run.Scope, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		return report.Attempts()
	}(); len(attempts) != 1 || attempts[0].Status != db.AttemptLost {
		t.Fatalf("attempts %+v", attempts)
	}
}
