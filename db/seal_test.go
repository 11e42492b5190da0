package db_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/vault"
)

// canary is in all content of a run that secrets stores.
const canary = "canary-7f3a"

// secrets stores content in every column that there is, and returns the run.
func secrets(t testing.TB, d *db.DB, scope agent.Scope, conversation, id string) db.Run {
	t.Helper()
	run := begin(t, d, scope, conversation, id)
	var recorded bool
	err := d.InTx(ctx, scope, func(tx *db.Tx) error {
		now := time.Now()
		conv, _, err := tx.HoldConversation(ctx, run)
		if err != nil {
			return err
		}
		tx.AppendMessage(&conv, db.Message{ID: "say-" + id, Role: db.RoleAssistant, Content: canary + " said", Visibility: db.Visible, RunID: id}, false)
		tx.StartAttempt(id, db.Attempt{Number: 1, Model: "m", Provider: "p", Prompt: []byte(`{"input": 5}`)})
		answer := db.Response{Text: canary + " thought", Calls: []db.ResponseCall{{ID: "a", Name: "look", Arguments: canary}}}
		if err := tx.FinishAttempt(id, db.Attempt{Number: 1, Status: db.AttemptSucceeded, Billed: &db.Amount{Tokens: 1}}, &answer); err != nil {
			return err
		}
		tx.InsertToolCalls(id, []db.ToolCall{
			{ID: "0.0", Tool: "look", ToolVersion: "1", Risk: "read", Arguments: `{"q":"` + canary + `"}`, Status: db.CallProposed},
			{ID: "0.1", Index: 1, Tool: "change", ToolVersion: "1", Risk: "write", Arguments: `{"w":"` + canary + `"}`, Status: db.CallProposed},
			{ID: "0.2", Index: 2, Tool: "odd", Arguments: canary, Status: db.CallRefused, Envelope: canary + " refused", Error: &agent.ToolError{Code: agent.ToolUnknown}},
		})
		tx.FinishToolCall(id, "0.0", db.CallOutcome{
			Content: []byte(canary + " result"), ContentType: "text/plain", ResultHash: digest, Envelope: canary + " shown", Note: canary + " note",
			Facts: []db.SessionEntry{{Kind: db.EntryFact, Key: "service", Value: canary + " fact"}}, StartedAt: now,
		}, &recorded)
		plan := db.WritePlan{
			RunID: id, CallID: "0.1", Revision: 1, Tool: "change", ToolVersion: "1", ArgumentsHash: digest, Resource: "thing", Summary: canary + " plan",
			Hash: digest, Nonce: "n", PolicyDigest: digest, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		}
		tx.InsertPlan(plan)
		plan.Status, plan.DecidedBy, plan.DecidedAt, plan.TokenID = db.PlanApproved, "bob", now, "t-"+id
		tx.ClosePlan(plan)
		tx.RecordIntent(db.WriteIntent{Key: keyOf(id), RunID: id, CallID: "0.1", Revision: 1, ArgumentsHash: digest, ApprovedBy: "bob", PolicyDigest: digest, RecordedAt: now})
		tx.AppendSession(conv, id, []db.SessionEntry{{Kind: db.EntryProhibition, Key: "p-" + id, Value: canary + " forbidden", Tools: []string{"change"}}})
		tx.StoreSummary(conv, db.Summary{
			FromSeq: 1, ToSeq: conv.LastSeq, Status: db.SummaryChecked, Model: "m", PromptVersion: "1", Content: []byte(canary + " summary"),
		})
		state, err := tx.HoldWrite(ctx, id, "0.1")
		if err != nil {
			return err
		}
		_, err = tx.SettleWrite(ctx, state, db.Settlement{Performed: true, By: "olga", Note: canary + " settled", At: now})
		return err
	})
	if err != nil || !recorded {
		t.Fatalf("secrets: recorded %v, %v", recorded, err)
	}
	return run
}

// keyOf is an idempotency key made of a run's ID.
func keyOf(id string) string { return fmt.Sprintf("%064x", id)[:64] }

// read reads all content of a run that secrets stored, by every way to ask. It
// returns what was read, or the error of each way.
func read(d *db.DB, run db.Run) map[string]any {
	scope, got := run.Scope, map[string]any{}
	note := func(way string, value any, err error) {
		if got[way] = value; err != nil {
			got[way] = err
		}
	}
	_, call, err := d.ToolCall(ctx, scope, run.ID, "0.0")
	note("call", call.Arguments, err)
	content, _, err := d.ReadResult(ctx, scope, run.ID, "0.0", 0, 1000)
	note("result", string(content), err)
	messages, err := d.Messages(ctx, scope, run.Conversation, 9)
	note("messages", contents(messages), err)
	session, err := d.Session(ctx, scope, run.Conversation)
	note("session", settled(session), err)
	write, err := d.Write(ctx, scope, run.ID, "0.1")
	if err == nil {
		note("write", []string{write.Call.Arguments, write.Plan.Summary, write.Intent.SettledNote}, nil)
	} else {
		note("write", nil, err)
	}
	plan, err := d.PlanState(ctx, scope.Tenant, run.ID, "0.1", 1)
	note("plan", []string{plan.Plan.Summary, plan.Call.Arguments, plan.Request, plan.Purpose}, err)
	outcome, err := d.PlanOutcome(ctx, scope.Tenant, run.ID, "0.1", 1, "none")
	note("outcome", []string{outcome.Plan.Summary, outcome.Call.Arguments}, err)
	var step db.StepState
	err = d.InTx(ctx, scope, func(tx *db.Tx) (err error) {
		step, err = tx.LoadStep(ctx, db.StepQuery{RunID: run.ID, Step: 1, MaxMessages: 9, MaxExchanges: 9})
		return err
	})
	if err == nil {
		x := step.Exchanges[0]
		note("step", []string{
			step.Question.Content, settled(step.Session), x.Response.Text, x.Response.Calls[0].Arguments, x.Results[0].Envelope, x.Results[0].Note, x.Results[2].Envelope,
		}, nil)
	} else {
		note("step", nil, err)
	}
	var summary db.SummaryState
	err = d.InTx(ctx, scope, func(tx *db.Tx) (err error) {
		summary, err = tx.LoadSummary(ctx, run.Conversation, 9)
		return err
	})
	note("summary", summary.From, err)
	return got
}

func contents(messages []db.Message) string {
	var all []string
	for _, m := range messages {
		all = append(all, m.Content)
	}
	return strings.Join(all, "|")
}

func settled(state db.SessionState) string {
	var all []string
	for _, e := range append(state.Facts, state.Prohibitions...) {
		all = append(all, e.Key+"="+e.Value)
	}
	return strings.Join(all, "|")
}

// whole is what read returns of run r1 in conversation c of a tenant, if all of
// it reads.
func whole(tenant, id string) map[string]any {
	q := "secret of " + tenant
	return map[string]any{
		"call": `{"q":"` + canary + `"}`, "result": canary + " result", "messages": q + "|" + canary + " said",
		"session": "service=" + canary + " fact|p-" + id + "=" + canary + " forbidden",
		"write":   []string{`{"w":"` + canary + `"}`, canary + " plan", canary + " settled"},
		"plan":    []string{canary + " plan", `{"w":"` + canary + `"}`, q, canary + " thought"},
		"outcome": []string{canary + " plan", `{"w":"` + canary + `"}`},
		"step":    []string{q, "service=" + canary + " fact|p-" + id + "=" + canary + " forbidden", canary + " thought", canary, canary + " shown", canary + " note", canary + " refused"},
		"summary": int64(3),
	}
}

func wantWhole(t testing.TB, d *db.DB, run db.Run) {
	t.Helper()
	got := read(d, run)
	for way, want := range whole(run.Scope.Tenant, run.ID) {
		if fmt.Sprint(got[way]) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", way, got[way], want)
		}
	}
}

// wantNothing wants each way to read to fail with an error.
func wantNothing(t testing.TB, d *db.DB, run db.Run, want error) {
	t.Helper()
	for way, got := range read(d, run) {
		if err, ok := got.(error); !ok || !errors.Is(err, want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: got %v, want %v", way, got, want)
		}
	}
}

// TestNoContentInTheClear looks for content in the text of every row that there
// is, in bytes as well.
func TestNoContentInTheClear(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	run := secrets(t, d, scopeOf("acme"), "c", "r1")
	wantWhole(t, d, run)
	owner := dbtest.Owner(t, url)
	rows, err := owner.Query(ctx, "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 20 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	inTheClear := func(table string) (found int) {
		t.Helper()
		err := owner.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM %s t WHERE t::text ~* $1 OR t::text ~* encode($1::bytea, 'hex')
			OR t::text ~* 'secret of' OR t::text ~* encode('secret of', 'hex')`, table), canary).Scan(&found)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, table := range tables {
		if found := inTheClear(table); found != 0 {
			t.Errorf("%s: %d rows hold content in the clear", table, found)
		}
	}
	// A short message does not betray itself by its hash.
	var plain bool
	err = owner.QueryRow(ctx, "SELECT EXISTS (SELECT FROM message WHERE content_hash = encode(sha256('secret of acme'), 'hex'))").Scan(&plain)
	if err != nil || plain {
		t.Errorf("the hash of a message is not keyed, %v", err)
	}
	// The search finds what is there.
	if _, err := owner.Exec(ctx, `UPDATE message SET content = '\x00'::bytea || convert_to($1, 'UTF8') WHERE id = 'say-r1'`, "a "+canary); err != nil || inTheClear("message") != 1 {
		t.Errorf("the search is blind, %v", err)
	}
}

// TestSwappedValues moves sealed values to other rows and columns: none opens
// there.
func TestSwappedValues(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	bob := scopeOf("acme")
	bob.User = "bob"
	secrets(t, d, scopeOf("acme"), "other", "o")
	secrets(t, d, bob, "bob's", "b")
	const message = "UPDATE message m SET content = o.content FROM message o WHERE m.tenant = 'acme' AND m.id = 'say-' || $1 AND "
	for i, swap := range []struct{ way, sql string }{
		{"messages", message + "o.tenant = 'acme' AND o.id = 'question-' || $1"},
		{"messages", message + "o.tenant = 'acme' AND o.id = 'say-o'"},
		{"messages", message + "o.tenant = 'acme' AND o.id = 'say-b'"},
		{"messages", message + "o.tenant = 'umbrella' AND o.id = 'say-' || $1"},
		{"messages", "UPDATE message SET content = set_byte(content, octet_length(content) - 1, get_byte(content, octet_length(content) - 1) # 1) WHERE tenant = 'acme' AND id = 'say-' || $1"},
		{"messages", "UPDATE message SET content = substring(content FROM 1 FOR 20) WHERE tenant = 'acme' AND id = 'say-' || $1"},
		{"messages", "UPDATE message SET role = CASE role WHEN 'user' THEN 'assistant' ELSE 'user' END WHERE tenant = 'acme' AND id = 'say-' || $1"},
		{"call", "UPDATE tool_call SET arguments = envelope WHERE tenant = 'acme' AND run_id = $1 AND call_id = '0.0'"},
		{"step", "UPDATE tool_call SET envelope = note WHERE tenant = 'acme' AND run_id = $1 AND call_id = '0.0'"},
		{"step", "UPDATE tool_call c SET envelope = r.content FROM tool_result r WHERE c.tenant = 'acme' AND c.run_id = $1 AND c.call_id = '0.0' AND r.tenant = c.tenant AND r.run_id = c.run_id"},
		{"call", "UPDATE tool_call c SET arguments = o.arguments FROM tool_call o WHERE c.tenant = 'acme' AND c.run_id = $1 AND c.call_id = '0.0' AND o.tenant = c.tenant AND o.run_id = c.run_id AND o.call_id = '0.1'"},
		{"result", "UPDATE tool_result r SET content = o.content FROM tool_result o WHERE r.tenant = 'acme' AND r.run_id = $1 AND o.tenant = 'acme' AND o.run_id = 'o'"},
		{"plan", "UPDATE write_plan p SET summary = o.summary FROM write_plan o WHERE p.tenant = 'acme' AND p.run_id = $1 AND o.tenant = 'acme' AND o.run_id = 'o'"},
		{"write", "UPDATE write_intent i SET settled_note = o.settled_note FROM write_intent o WHERE i.tenant = 'acme' AND i.run_id = $1 AND o.tenant = 'acme' AND o.run_id = 'o'"},
		{"session", "UPDATE session_entry e SET value = o.value FROM session_entry o WHERE e.tenant = 'acme' AND e.run_id = $1 AND e.kind = 'fact' AND o.tenant = 'acme' AND o.run_id = 'o' AND o.kind = 'fact'"},
		{"session", "UPDATE session_entry e SET value = o.value FROM session_entry o WHERE e.tenant = 'acme' AND e.run_id = $1 AND e.kind = 'fact' AND o.tenant = 'acme' AND o.run_id = e.run_id AND o.kind = 'prohibition'"},
		{"step", "UPDATE model_attempt a SET response = o.response FROM model_attempt o WHERE a.tenant = 'acme' AND a.run_id = $1 AND o.tenant = 'acme' AND o.run_id = 'o'"},
		{"later step", "UPDATE conversation_summary s SET content = o.content FROM conversation_summary o WHERE s.tenant = 'acme' AND s.conversation_id = 'c' || $1 AND o.tenant = 'acme' AND o.conversation_id = 'other'"},
	} {
		id := fmt.Sprint(i)
		run := secrets(t, d, scopeOf("acme"), "c"+id, id)
		secrets(t, d, scopeOf("umbrella"), "c"+id, id)
		later := begin(t, d, scopeOf("acme"), "c"+id, "later-"+id)
		if _, err := loadStep(d, later, 0); err != nil {
			t.Fatal(err)
		}
		if tag, err := owner.Exec(ctx, swap.sql, id); err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %v, %v", swap.sql, tag, err)
		}
		got := read(d, run)
		_, got["later step"] = loadStep(d, later, 0)
		if err, ok := got[swap.way].(error); !ok || !errors.Is(err, vault.ErrSealed) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %s reads %v", swap.sql, swap.way, got[swap.way])
		}
	}
}

// TestOnlyTextIsContent keeps what a column of text refused.
func TestOnlyTextIsContent(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	for _, content := range []string{"NUL \x00", "cut \xef\xb8"} {
		_, err := appendTo(d, run, db.Message{ID: "m", Role: db.RoleUser, Content: content, Visibility: db.Visible})
		var refused *db.Error
		if !errors.As(err, &refused) || refused.Code != "22021" {
			t.Errorf("%q: %v", content, err)
		}
	}
	// The content of another user's conversation would be lost.
	bob := scopeOf("acme")
	bob.User = "bob"
	err := d.InTx(ctx, bob, func(tx *db.Tx) error {
		state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "c", RunID: "r2", Day: db.Day(time.Now())})
		tx.AppendMessage(&state.Conversation, db.Message{ID: "m", Role: db.RoleUser, Content: "mine", Visibility: db.Visible, RunID: "r2"}, true)
		return err
	})
	if !errors.Is(err, db.ErrNotFound) {
		t.Errorf("another user's: %v", err)
	}
}

// TestEncryptionKeyOfTheEnvironment is the key that programs are given.
func TestEncryptionKeyOfTheEnvironment(t *testing.T) {
	t.Parallel()
	if key := dbtest.EncryptionKey(t); key == "" || key != dbtest.EncryptionKey(t) || os.Getenv("FAIRLEAD_ENCRYPTION_KEY") != "" && key != os.Getenv("FAIRLEAD_ENCRYPTION_KEY") {
		t.Error("the key is empty, or another one each time")
	}
}

// TestUnreadableAmongOthers damages one plan and one write, and erases the
// subject of another: the lists still have the rest.
func TestUnreadableAmongOthers(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	at := time.Now().UTC().Truncate(time.Microsecond)
	bob := scopeOf("acme")
	bob.User = "bob"
	waitWith(t, d, scopeOf("acme"), "r1", at)
	waitWith(t, d, scopeOf("acme"), "r2", at)
	for i, w := range []struct {
		scope agent.Scope
		id    string
	}{{scopeOf("acme"), "w1"}, {scopeOf("acme"), "w2"}, {bob, "w3"}} {
		plan := waitWith(t, d, w.scope, w.id, at.Add(time.Duration(i)*time.Second))
		approve(t, d, w.scope, plan, keyOf(w.id))
	}
	if _, err := owner.Exec(ctx, "UPDATE write_plan SET summary = set_byte(summary, 40, get_byte(summary, 40) # 1) WHERE run_id IN ('r1', 'w2')"); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(ctx, "UPDATE run SET status = 'failed', reason = 'outcome_unknown', ended_at = now(), waiting_since = NULL WHERE id = 'w3'"); err != nil {
		t.Fatal(err)
	}
	// As if the write had been recorded before such a destruction was refused.
	if _, err := owner.Exec(ctx, "UPDATE subject_key SET data = NULL, hash = NULL, version = version + 1, destroyed_at = now(), destroyed_by = 'olga' WHERE subject = 'bob'"); err != nil {
		t.Fatal(err)
	}
	page, err := d.PendingPlans(ctx, db.PlanFilter{Tenant: "acme", Now: at})
	if err != nil || len(page.Plans) != 2 {
		t.Fatalf("%+v, %v", page.Plans, err)
	}
	if p := page.Plans[0]; p.Plan.RunID != "r1" || !errors.Is(p.Unreadable, db.ErrSealed) || p.Plan.Summary+p.Call.Arguments+p.Request != "" {
		t.Errorf("damaged %+v", p)
	}
	if p := page.Plans[1]; p.Plan.RunID != "r2" || p.Unreadable != nil || p.Plan.Summary != "Restart it." || p.Request != "secret of acme" {
		t.Errorf("whole %+v", p)
	}
	if _, err := d.PlanState(ctx, "acme", "r1", "0.0", 1); !errors.Is(err, db.ErrSealed) {
		t.Errorf("by itself: %v", err)
	}
	writes, err := d.UnsettledWrites(ctx, db.WriteFilter{Tenant: "acme"})
	if err != nil || len(writes) != 3 {
		t.Fatalf("%+v, %v", writes, err)
	}
	for i, want := range []error{nil, db.ErrSealed, db.ErrKeysDestroyed} {
		w := writes[i]
		if w.Run.ID != fmt.Sprint("w", i+1) || !errors.Is(w.Unreadable, want) || (w.Plan.Summary == "Restart it.") != (want == nil) || (w.Call.Arguments == "{}") != (want == nil) {
			t.Errorf("%d: %+v", i, w)
		}
	}
}
