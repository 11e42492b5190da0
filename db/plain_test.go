package db_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/vault"
)

// inTheClear are the rows that version 2 of the schema stored of a run r1 in
// conversation c with %[2]d more messages, in the tenant %[1]s.
const inTheClear = `
INSERT INTO agent_definition (digest, name, version, body) VALUES ('%[3]s', 'helper', '1', '{}') ON CONFLICT DO NOTHING;
INSERT INTO conversation (tenant, id, user_id, environment, version, generation, last_seq) VALUES ('%[1]s', 'c', 'ada', 'production', 1, 1, 2 + %[2]d);
INSERT INTO message (tenant, id, conversation_id, seq, role, content, content_hash, visibility, run_id)
VALUES ('%[1]s', 'question-r1', 'c', 1, 'user', 'secret of %[1]s', encode(sha256('secret of %[1]s'), 'hex'), 'visible', 'r1'),
       ('%[1]s', 'say-r1', 'c', 2, 'assistant', '说 canary-7f3a', encode(sha256('x'), 'hex'), 'visible', 'r1');
INSERT INTO message (tenant, id, conversation_id, seq, role, content, content_hash, visibility, run_id)
SELECT '%[1]s', 'more-' || n, 'c', 2 + n, 'user', 'more ' || n, encode(sha256('x'), 'hex'), 'visible', 'r1' FROM generate_series(1, %[2]d) AS n;
INSERT INTO run (tenant, id, user_id, environment, conversation_id, generation, agent, definition_version, definition_digest, page, flags, status,
                 max_steps, max_tool_calls, max_tokens, max_cost_micros, timeout_ns, deadline, workflow_id, request_hash, question_message_id)
VALUES ('%[1]s', 'r1', 'ada', 'production', 'c', 1, 'helper', '1', '%[3]s', '', '{}', 'running', 5, 5, 5, 5, 5, now(), 'w', '%[3]s', 'question-r1');
INSERT INTO model_attempt (tenant, run_id, step, attempt, try, model, provider, status, reserved_tokens, response, ended_at)
VALUES ('%[1]s', 'r1', 0, 1, 0, 'm', 'p', 'succeeded', 1, '{"text": "canary-7f3a thought", "calls": [{"id": "a", "name": "look", "arguments": "x"}]}', now()),
       ('%[1]s', 'r1', 1, 1, 0, 'm', 'p', 'lost', 1, NULL, now());
INSERT INTO tool_call (tenant, run_id, call_id, step, idx, provider_call_id, tool, tool_version, risk, arguments, arguments_hash, status, envelope)
VALUES ('%[1]s', 'r1', '0.0', 0, 0, 'a', 'look', '1', 'read', '{"q":"canary-7f3a"}', 'h', 'succeeded', 'canary-7f3a shown'),
       ('%[1]s', 'r1', '0.1', 0, 1, 'b', 'change', '1', 'write', '', 'h', 'proposed', NULL);
INSERT INTO tool_result (tenant, run_id, call_id, content, content_type, hash) VALUES ('%[1]s', 'r1', '0.0', 'canary-7f3a result', 'text/plain', '%[3]s');
INSERT INTO write_plan (tenant, run_id, call_id, revision, tool, tool_version, arguments_hash, resource, resource_version, summary, hash, nonce,
                        policy_digest, created_at, expires_at, status, decided_by, decided_at, token_id)
VALUES ('%[1]s', 'r1', '0.1', 1, 'change', '1', '%[3]s', 'thing', '', 'canary-7f3a plan', '%[3]s', 'n', '%[3]s', now(), now(), 'approved', 'bob', now(), 't');
INSERT INTO write_intent (tenant, key, run_id, call_id, revision, arguments_hash, approved_by, policy_digest, outcome, resolved_by, settled_by,
                          settled_note, recorded_at, sent_at, decisive_at, resolved_at)
VALUES ('%[1]s', '%[3]s', 'r1', '0.1', 1, '%[3]s', 'bob', '%[3]s', 'performed', 'operator', 'olga', 'canary-7f3a note', now(), now(), now(), now());
INSERT INTO tool_call (tenant, run_id, call_id, step, idx, provider_call_id, tool, tool_version, risk, arguments, arguments_hash, status)
VALUES ('%[1]s', 'r1', '0.2', 0, 2, 'c', 'change', '1', 'write', '{}', 'h', 'proposed');
INSERT INTO write_plan (tenant, run_id, call_id, revision, tool, tool_version, arguments_hash, resource, resource_version, summary, hash, nonce,
                        policy_digest, created_at, expires_at, status, decided_by, decided_at, token_id)
VALUES ('%[1]s', 'r1', '0.2', 1, 'change', '1', '%[3]s', 'thing', '', 'p', '%[3]s', 'n', '%[3]s', now(), now(), 'approved', 'bob', now(), 't');
INSERT INTO write_intent (tenant, key, run_id, call_id, revision, arguments_hash, approved_by, policy_digest, recorded_at, sent_at, decisive_at)
VALUES ('%[1]s', reverse('%[3]s'), 'r1', '0.2', 1, '%[3]s', 'bob', '%[3]s', now(), now(), now());
`

// earlier is a database as version 2 left it, with two tenants. It belongs to an
// owner that is no superuser, so that row-level security holds for it.
func earlier(t testing.TB, more int) (url, ownerURL string, super *sql.DB) {
	t.Helper()
	url = dbtest.EmptyURL(t)
	super = stdlib.OpenDB(*mustParse(t, url))
	t.Cleanup(func() { _ = super.Close() })
	role := "owner_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	// Only a superuser may create the extension.
	do(t, super, "CREATE EXTENSION vector", "CREATE ROLE "+role+" LOGIN CREATEROLE", fmt.Sprintf("DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I OWNER TO %s', current_database()); END $$", role),
		"ALTER SCHEMA public OWNER TO "+role)
	t.Cleanup(func() {
		do(t, super, "REASSIGN OWNED BY "+role+" TO CURRENT_USER", "DROP OWNED BY "+role, "DROP ROLE "+role)
	})
	ownerURL = withUser(t, url, role)
	owner := stdlib.OpenDB(*mustParse(t, ownerURL))
	defer func() { _ = owner.Close() }()
	if err := db.MigrateTo(ctx, owner, 2); err != nil {
		t.Fatal(err)
	}
	do(t, super, fmt.Sprintf(inTheClear, "acme", more, digest), fmt.Sprintf(inTheClear, "umbrella", 0, digest))
	if err := db.Migrate(ctx, ownerURL); err != nil {
		t.Fatal(err)
	}
	return url, ownerURL, super
}

func do(t testing.TB, on *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := on.Exec(s); err != nil {
			t.Fatalf("%.60s: %v", s, err)
		}
	}
}

func withUser(t testing.TB, text, user string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(user)
	return u.String()
}

// plainRows counts the values that are not sealed.
func plainRows(t testing.TB, on *sql.DB) (n int) {
	t.Helper()
	var parts []string
	for table, columns := range map[string][]string{
		"message": {"content"}, "model_attempt": {"response"}, "tool_call": {"arguments", "envelope"}, "tool_result": {"content"},
		"write_plan": {"summary"}, "write_intent": {"settled_note"},
	} {
		for _, c := range columns {
			parts = append(parts, fmt.Sprintf(`(SELECT count(*) FROM %s WHERE substring(%s FROM 1 FOR 1) = '\x00')`, table, c))
		}
	}
	parts = append(parts, "(SELECT count(*) FROM run WHERE starts_with(request_hash, 'plain:'))")
	if err := on.QueryRow("SELECT " + strings.Join(parts, " + ")).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// legacy is what read returns of a run of inTheClear.
func legacy(tenant string) map[string]any {
	q := "secret of " + tenant
	return map[string]any{
		"call": `{"q":"canary-7f3a"}`, "result": "canary-7f3a result", "messages": q + "|说 canary-7f3a", "session": "",
		"write": []string{"", "canary-7f3a plan", "canary-7f3a note"}, "plan": []string{"canary-7f3a plan", "", q, "canary-7f3a thought"},
		"outcome": []string{"canary-7f3a plan", ""}, "step": []string{q, "", "canary-7f3a thought", "x", "canary-7f3a shown", "", ""}, "summary": int64(1),
	}
}

func TestSealPlain(t *testing.T) {
	t.Parallel()
	// Three batches of messages in one of the tenants.
	url, ownerURL, super := earlier(t, 450)
	d := dbtest.Open(t, url, db.Options{})
	run := db.Run{ID: "r1", Scope: scopeOf("umbrella"), Conversation: "c"}
	before := plainRows(t, super)
	if before != 450+2*12 {
		t.Fatalf("%d values in the clear", before)
	}
	for way, got := range read(d, run) {
		err, ok := got.(error)
		if way == "session" {
			continue // an earlier version had none
		}
		if !ok || !errors.Is(err, db.ErrUnsealed) || !strings.Contains(err.Error(), "worker migrate") || strings.Contains(err.Error(), canary) {
			t.Errorf("%s before: %v", way, got)
		}
	}
	begun := func() (state db.BeginState, keyed string, err error) {
		err = d.InTx(ctx, run.Scope, func(tx *db.Tx) (err error) {
			state, err = tx.LoadBegin(ctx, db.BeginQuery{Conversation: "c", RunID: "r1", Day: db.Day(time.Now())})
			keyed = tx.KeyedHash(digest)
			return err
		})
		return state, keyed, err
	}
	if _, _, err := begun(); !errors.Is(err, db.ErrUnsealed) {
		t.Errorf("begun before: %v", err)
	}
	if err := db.SealPlain(ctx, ownerURL, nil); !errors.Is(err, db.ErrNoVault) {
		t.Errorf("without a vault: %v", err)
	}
	// Interrupted once some of it is done.
	interrupted, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- db.SealPlain(interrupted, ownerURL, dbtest.KeyEncryption(t)) }()
	for plainRows(t, super) == before && len(done) == 0 {
	}
	cancel()
	<-done
	var wg [3]chan error
	for i := range wg {
		wg[i] = make(chan error, 1)
		go func() { wg[i] <- db.SealPlain(ctx, ownerURL, dbtest.KeyEncryption(t)) }()
	}
	for i := range wg {
		if err := <-wg[i]; err != nil {
			t.Fatal(err)
		}
	}
	if n := plainRows(t, super); n != 0 {
		t.Errorf("%d values are still in the clear", n)
	}
	for way, want := range legacy("umbrella") {
		if got := read(d, run)[way]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", way, got, want)
		}
	}
	list, err := d.Messages(ctx, scopeOf("acme"), "c", 1000)
	if err != nil || len(list) != 452 || list[451].Content != "more 450" {
		t.Errorf("%d messages, %v", len(list), err)
	}
	var unkeyed, left int
	err = super.QueryRow("SELECT (SELECT count(*) FROM message WHERE content_hash IN (encode(sha256('x'), 'hex'), encode(sha256('secret of acme'), 'hex'))), (SELECT count(*) FROM unsealed)").Scan(&unkeyed, &left)
	if err != nil || unkeyed != 0 || left != 0 {
		t.Errorf("%d hashes are not keyed, %d tables are not done, %v", unkeyed, left, err)
	}
	// The hash of the request is that of the one that version 2 stored: a run is
	// still found to be what was asked for.
	if state, keyed, err := begun(); err != nil || state.Run.RequestHash != keyed || keyed == digest || len(keyed) != 64 {
		t.Errorf("request hash %q, want %q, %v", state.Run.RequestHash, keyed, err)
	}
	// Nobody else saw the row-level security lifted.
	var forced bool
	if err := super.QueryRow("SELECT relforcerowsecurity FROM pg_class WHERE relname = 'conversation'").Scan(&forced); err != nil || !forced {
		t.Errorf("forced %v, %v", forced, err)
	}
}

// TestSealPlainOfTheErased seals what belongs to a subject without keys under
// keys that nobody keeps.
func TestSealPlainOfTheErased(t *testing.T) {
	t.Parallel()
	url, ownerURL, super := earlier(t, 0)
	d := dbtest.Open(t, url, db.Options{})
	if _, err := d.Keys(ctx, vault.Owner{Tenant: "acme", Subject: "ada"}); err != nil {
		t.Fatal(err)
	}
	do(t, super, "UPDATE run SET status = 'failed', reason = 'internal', ended_at = now()",
		"UPDATE write_intent SET outcome = 'not_performed', resolved_by = 'look_up', resolved_at = now() WHERE outcome = 'open'")
	if err := d.DestroyKeys(ctx, "acme", "ada", "olga"); err != nil {
		t.Fatal(err)
	}
	if err := db.SealPlain(ctx, ownerURL, dbtest.KeyEncryption(t)); err != nil {
		t.Fatal(err)
	}
	if n := plainRows(t, super); n != 0 {
		t.Errorf("%d values are still in the clear", n)
	}
	var guessed bool
	if err := super.QueryRow("SELECT bool_or(request_hash LIKE '%" + digest + "') FROM run").Scan(&guessed); err != nil || guessed {
		t.Errorf("the hash of the request can be guessed, %v", err)
	}
	_, _, err1 := d.ToolCall(ctx, scopeOf("acme"), "r1", "0.0")
	_, err2 := d.Messages(ctx, scopeOf("acme"), "c", 9)
	if !errors.Is(err1, db.ErrKeysDestroyed) || !errors.Is(err2, db.ErrKeysDestroyed) {
		t.Errorf("%v, %v", err1, err2)
	}
	if _, err := d.Messages(ctx, scopeOf("umbrella"), "c", 9); err != nil {
		t.Errorf("of the other tenant: %v", err)
	}
}

// TestContentGoesUpAndDown keeps what was never sealed, and says of the rest
// that it is gone.
func TestContentGoesUpAndDown(t *testing.T) {
	t.Parallel()
	_, ownerURL, super := earlier(t, 1)
	owner := stdlib.OpenDB(*mustParse(t, ownerURL))
	t.Cleanup(func() { _ = owner.Close() })
	const all = `SELECT jsonb_build_array(
		(SELECT jsonb_agg(content ORDER BY seq) FROM message WHERE tenant = 'acme'), (SELECT jsonb_agg(response->>'text' ORDER BY step) FROM model_attempt WHERE tenant = 'acme'),
		(SELECT jsonb_agg(jsonb_build_array(arguments, envelope) ORDER BY call_id) FROM tool_call WHERE tenant = 'acme'),
		(SELECT convert_from(content, 'UTF8') FROM tool_result WHERE tenant = 'acme'), (SELECT jsonb_agg(summary ORDER BY call_id) FROM write_plan WHERE tenant = 'acme'),
		(SELECT jsonb_agg(settled_note ORDER BY call_id) FROM write_intent WHERE tenant = 'acme'), (SELECT jsonb_agg(length(request_hash)) FROM run WHERE tenant = 'acme'))::text`
	down := func(want string) {
		t.Helper()
		if err := db.MigrateTo(ctx, owner, 2); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := super.QueryRow(all).Scan(&got); err != nil || got != want {
			t.Errorf("got %s, %v\nwant %s", got, err, want)
		}
		if err := db.MigrateTo(ctx, owner, db.SchemaVersion()); err != nil {
			t.Fatal(err)
		}
	}
	down(`[["secret of acme", "说 canary-7f3a", "more 1"], ["canary-7f3a thought", null], [["{\"q\":\"canary-7f3a\"}", "canary-7f3a shown"], ["", null], ["{}", null]], ` +
		`"canary-7f3a result", ["canary-7f3a plan", "p"], ["canary-7f3a note", ""], [64]]`)
	if err := db.SealPlain(ctx, ownerURL, dbtest.KeyEncryption(t)); err != nil {
		t.Fatal(err)
	}
	const e = `"(encrypted)"`
	down(fmt.Sprintf(`[[%[1]s, %[1]s, %[1]s], [null, null], [[%[1]s, %[1]s], [%[1]s, null], [%[1]s, null]], %[1]s, [%[1]s, %[1]s], [%[1]s, ""], [64]]`, e))
}

// TestSealPlainHoldsNobodyUp waits for a table that somebody reads for long, and
// lets others read it meanwhile.
func TestSealPlainHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	url, ownerURL, super := earlier(t, 0)
	d := dbtest.Open(t, url, db.Options{})
	reader, err := super.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Rollback() }()
	if _, err := reader.Exec("SELECT FROM conversation"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- db.SealPlain(ctx, ownerURL, dbtest.KeyEncryption(t)) }()
	if err := waitFor(dbtest.Owner(t, url), "relation", done); err != nil {
		t.Fatal(err)
	}
	patience, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := d.Messages(patience, scopeOf("acme"), "c", 9); !errors.Is(err, db.ErrUnsealed) {
		t.Errorf("read meanwhile: %v", err)
	}
	if len(done) > 0 {
		t.Fatalf("it gave up: %v", <-done)
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || plainRows(t, super) != 0 {
		t.Errorf("%d values are still in the clear, %v", plainRows(t, super), err)
	}
}
