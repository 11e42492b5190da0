package db_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/vault"
)

// TestUnsettledWriteKeepsTheKeys ends a run without the outcome of its write:
// until somebody has said what became of it, the keys stay.
func TestUnsettledWriteKeepsTheKeys(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	scope := scopeOf("acme")
	plan := waitWith(t, d, scope, "r1", time.Now().UTC())
	bob := scope
	bob.User = "bob"
	if err := endRun(d, begin(t, d, bob, "other", "r2")); err != nil {
		t.Fatal(err)
	}
	approve(t, d, scope, plan, keyOf("r1"))
	if err := d.DestroyKeys(ctx, "acme", "ada", "olga"); !errors.Is(err, db.ErrConflict) || errors.Is(err, db.ErrUnsettledWrites) {
		t.Errorf("while the run is open: %v", err)
	}
	if err := endRun(d, db.Run{ID: "r1", Scope: scope}); err != nil {
		t.Fatal(err)
	}
	if err := d.DestroyKeys(ctx, "acme", "ada", "olga"); !errors.Is(err, db.ErrConflict) || !errors.Is(err, db.ErrUnsettledWrites) {
		t.Errorf("while the write is unknown: %v", err)
	}
	if err := d.DestroyKeys(ctx, "acme", "bob", "olga"); err != nil {
		t.Errorf("of another user: %v", err)
	}
	err := d.InTx(ctx, scope, func(tx *db.Tx) error {
		state, err := tx.HoldWrite(ctx, "r1", "0.0")
		if err != nil {
			return err
		}
		_, err = tx.SettleWrite(ctx, state, db.Settlement{Performed: false, By: "olga", Note: "never arrived", At: time.Now()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.DestroyKeys(ctx, "acme", "ada", "olga"); err != nil {
		t.Errorf("settled: %v", err)
	}
}

// TestIntentSharesTheKeys begins a write in a transaction that reads no content: a
// destruction waits for it, and finds it.
func TestIntentSharesTheKeys(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	plan := waitWith(t, d, scopeOf("acme"), "r1", time.Now().UTC())
	if _, err := owner.Exec(ctx, "UPDATE run SET status = 'failed', reason = 'internal', ended_at = now(), waiting_since = NULL"); err != nil {
		t.Fatal(err)
	}
	destroyed := make(chan error, 1)
	err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error {
		plan := plan
		plan.Status, plan.DecidedBy, plan.DecidedAt, plan.TokenID = db.PlanApproved, "bob", plan.CreatedAt, "token"
		tx.ClosePlan(plan)
		tx.RecordIntent(db.WriteIntent{
			Key: keyOf("r1"), RunID: "r1", CallID: "0.0", Revision: 1, ArgumentsHash: digest, ApprovedBy: "bob", PolicyDigest: digest, RecordedAt: plan.CreatedAt,
		})
		if _, err := tx.CloseRun(ctx, "r1", "none", 1); err != nil {
			return err
		}
		go func() { destroyed <- d.DestroyKeys(ctx, "acme", "ada", "olga") }()
		return waitFor(owner, "advisory", destroyed)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-destroyed; !errors.Is(err, db.ErrUnsettledWrites) {
		t.Errorf("destroyed under a write: %v", err)
	}
}

// TestLookUpKeys finds keys and makes none.
func TestLookUpKeys(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	stored := func() (n int) {
		t.Helper()
		if err := owner.QueryRow(ctx, "SELECT (SELECT count(*) FROM subject_key) + (SELECT count(*) FROM deployment_key)").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, o := range []vault.Owner{{}, {Tenant: "acme", Subject: "ada"}} {
		before := stored()
		if keys, err := d.LookUpKeys(ctx, o); keys != nil || !errors.Is(err, db.ErrNotFound) || !errors.Is(err, vault.ErrSealed) || stored() != before {
			t.Errorf("%v: %v, %d keys", o, err, stored()-before)
		}
		made, err := d.Keys(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		sealed, err := made.Seal([]byte("x"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, process := range []*db.DB{d, dbtest.Open(t, url, db.Options{})} {
			keys, err := process.LookUpKeys(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			if content, err := keys.Open(sealed, nil); err != nil || string(content) != "x" {
				t.Errorf("%v: other keys, %v", o, err)
			}
		}
	}
	if _, err := d.LookUpKeys(ctx, vault.Owner{Tenant: "acme"}); !errors.Is(err, db.ErrScope) {
		t.Errorf("half an owner: %v", err)
	}
	bare, err := db.Open(ctx, url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bare.Close)
	if _, err := bare.LookUpKeys(ctx, vault.Owner{}); !errors.Is(err, db.ErrNoVault) {
		t.Errorf("without a vault: %v", err)
	}
}

// TestKeyedHash: the same for as long as there are keys, and nobody else's.
func TestKeyedHash(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	hash := func(scope agent.Scope) (sum string, err error) {
		err = d.InTx(ctx, scope, func(tx *db.Tx) error { sum = tx.KeyedHash("yes"); return nil })
		return sum, err
	}
	bob := scopeOf("acme")
	bob.User = "bob"
	first, err := hash(scopeOf("acme"))
	if err != nil || len(first) != 64 || strings.Trim(first, "0123456789abcdef") != "" || first == db.ContentHash("yes") {
		t.Fatalf("%q, %v", first, err)
	}
	if err := d.RotateKeys(ctx, "acme", "ada"); err != nil {
		t.Fatal(err)
	}
	again, err1 := hash(scopeOf("acme"))
	other, err2 := hash(bob)
	foreign, err3 := hash(scopeOf("umbrella"))
	if again != first || other == first || foreign == first || errors.Join(err1, err2, err3) != nil {
		t.Errorf("%s, then %s; %s, %s, %v", first, again, other, foreign, errors.Join(err1, err2, err3))
	}
	if err := d.DestroyKeys(ctx, "acme", "ada", "olga"); err != nil {
		t.Fatal(err)
	}
	if gone, err := hash(scopeOf("acme")); gone != "" || !errors.Is(err, db.ErrKeysDestroyed) {
		t.Errorf("after the destruction: %q, %v", gone, err)
	}
}

// TestKeysComeBeforeConversations: who holds a conversation has the keys by then.
func TestKeysComeBeforeConversations(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	var shared int
	err := d.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		if _, _, err := tx.HoldConversation(ctx, run); err != nil {
			return err
		}
		return owner.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&shared)
	})
	if err != nil || shared != 1 {
		t.Errorf("%d locks on keys, %v", shared, err)
	}
}

// TestTextIsNoContent writes as a program of an earlier version does: pgx sends a
// string to a column of bytes as text.
func TestTextIsNoContent(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	secrets(t, d, scopeOf("acme"), "c", "r1")
	remember(t, d, roomOf("acme", "ada"), recordOf("m1", `"`+canary+`"`))
	propose(t, d, roomOf("acme", "ada"), "p1", `"`+canary+`"`)
	rows, err := owner.Query(ctx, `SELECT c.relname || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.atttypid = 'bytea'::regtype AND NOT a.attisdropped
		AND c.relname NOT IN ('subject_key', 'deployment_key') ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(columns) != 13 {
		t.Fatalf("columns of content %v, %v", columns, err)
	}
	for _, c := range columns {
		table, column, _ := strings.Cut(c, ".")
		for _, text := range []string{canary, `{"text":"yes"}`, "说", "\x02", ""} {
			_, err := owner.Exec(ctx, "UPDATE "+table+" SET "+column+" = $1", text)
			var refused *pgconn.PgError
			if !errors.As(err, &refused) || refused.Code != "23514" || !strings.HasPrefix(refused.ConstraintName, table+"_"+column) {
				t.Errorf("%s = %q: %v", c, text, err)
			}
		}
	}
	wantWhole(t, d, db.Run{ID: "r1", Scope: scopeOf("acme"), Conversation: "c"})
}
