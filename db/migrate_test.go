package db_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

func TestMigrateUpDownUp(t *testing.T) {
	t.Parallel()
	url := dbtest.EmptyURL(t)
	owner := stdlib.OpenDB(*mustParse(t, url))
	t.Cleanup(func() { _ = owner.Close() })
	for _, version := range []int64{db.SchemaVersion(), 0, db.SchemaVersion()} {
		if err := db.MigrateTo(ctx, owner, version); err != nil {
			t.Fatalf("to version %d: %v", version, err)
		}
		var left int
		if err := owner.QueryRow("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'goose_db_version'").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if (left == 0) != (version == 0) {
			t.Errorf("at version %d there are %d tables", version, left)
		}
	}
	fill(t, dbtest.Open(t, url, db.Options{}), dbtest.Owner(t, url), "acme")
}

// TestMigrateKeepsRows goes back and forth over rows that only the newer schema
// can hold.
func TestMigrateKeepsRows(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	rows := dbtest.Owner(t, url)
	fill(t, d, rows, "acme")
	err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error {
		_, err := tx.CloseRun(ctx, "r", "no answer", 1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	owner := stdlib.OpenDB(*mustParse(t, url))
	t.Cleanup(func() { _ = owner.Close() })
	status := func(want string) {
		t.Helper()
		var got string
		if err := rows.QueryRow(ctx, "SELECT status FROM tool_call WHERE call_id = '0.1'").Scan(&got); err != nil || got != want {
			t.Fatalf("the write's call is %q, %v, want %s", got, err, want)
		}
	}
	status("unknown")
	for _, version := range []int64{1, db.SchemaVersion()} {
		if err := db.MigrateTo(ctx, owner, version); err != nil {
			t.Fatalf("to version %d: %v", version, err)
		}
		status("abandoned")
	}
}

func TestMigrateAtTheSameTime(t *testing.T) {
	t.Parallel()
	url := dbtest.EmptyURL(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := db.Migrate(ctx, url); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestOldSchemaIsRefused(t *testing.T) {
	t.Parallel()
	url := dbtest.EmptyURL(t)
	d := dbtest.Open(t, url, db.Options{})
	var old *db.SchemaError
	if err := d.Ping(ctx); !errors.As(err, &old) || old.Have != 0 || old.Need != db.SchemaVersion() {
		t.Fatalf("ping before migration: %v", err)
	}
	if err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error { tx.StartToolCall("r", "0.0"); return nil }); !errors.As(err, &old) {
		t.Fatalf("transaction before migration: %v", err)
	}
	if err := db.Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	// The same DB recovers.
	if err := d.Ping(ctx); err != nil {
		t.Fatalf("ping after migration: %v", err)
	}
	if _, err := dbtest.Owner(t, url).Exec(ctx, "DELETE FROM goose_db_version WHERE version_id > 0"); err != nil {
		t.Fatal(err)
	}
	if err := d.Ping(ctx); !errors.As(err, &old) {
		t.Fatalf("ping on a schema that went back: %v", err)
	}
}

func mustParse(t testing.TB, url string) *pgx.ConnConfig {
	t.Helper()
	conf, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return conf
}
