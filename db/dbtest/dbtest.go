// Package dbtest gives every test its own PostgreSQL database, cloned from a
// template that is migrated once. Only tests import it.
package dbtest

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver that pgtestdb connects with
	"github.com/peterldowns/pgtestdb"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/vault"
)

// EnvURL names the environment variable with the URL of a login that may create
// databases and roles, such as postgres://postgres@127.0.0.1:55432/postgres.
const EnvURL = "FAIRLEAD_TEST_DATABASE_URL"

// envKey names the variable with the key-encryption key of programs.
const envKey = "FAIRLEAD_ENCRYPTION_KEY"

var generated = sync.OnceValues(vault.GenerateLocal)

// EncryptionKey returns the key-encryption key of this process's tests: that of
// the environment, or else one that is made once.
func EncryptionKey(t testing.TB) string {
	t.Helper()
	if key := os.Getenv(envKey); key != "" {
		return key
	}
	key, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// KeyEncryption returns the key of EncryptionKey.
func KeyEncryption(t testing.TB) tink.AEAD {
	t.Helper()
	kek, err := vault.Local(EncryptionKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return kek
}

// New returns a DB on a fresh, migrated database, which is dropped when the
// test is over and kept for a look when the test failed.
func New(t testing.TB) *db.DB {
	t.Helper()
	d, _ := NewWithURL(t)
	return d
}

// NewWithURL is New that also returns the owner's URL of the database.
func NewWithURL(t testing.TB) (*db.DB, string) {
	t.Helper()
	url := URL(t)
	return Open(t, url, db.Options{}), url
}

// Open returns a DB for a URL, closed when the test is over. It has KeyEncryption unless
// opts name another one; for a DB without any use db.Open.
func Open(t testing.TB, url string, opts db.Options) *db.DB {
	t.Helper()
	if opts.KeyEncryption == nil {
		opts.KeyEncryption = KeyEncryption(t)
	}
	d, err := db.Open(context.Background(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// URL returns the owner's URL of a fresh, migrated database.
func URL(t testing.TB) string {
	t.Helper()
	return create(t, migrator{})
}

// EmptyURL returns the owner's URL of a fresh database without any schema.
func EmptyURL(t testing.TB) string {
	t.Helper()
	return create(t, pgtestdb.NoopMigrator{})
}

// Owner returns a pool of the owner, who bypasses row-level security if it is a
// superuser: for arranging and inspecting what no program may.
func Owner(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func create(t testing.TB, m pgtestdb.Migrator) string {
	t.Helper()
	base := os.Getenv(EnvURL)
	if base == "" {
		t.Fatalf("%s is not set: tests need a PostgreSQL of their own; `make test` brings one up and sets it", EnvURL)
	}
	u, err := url.Parse(base)
	if err != nil || u.Hostname() == "" {
		t.Fatalf("%s is malformed: expected postgres://user:password@host:port/database", EnvURL)
	}
	password, _ := u.User.Password()
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	conf := pgtestdb.Custom(t, pgtestdb.Config{
		DriverName: "pgx", Host: u.Hostname(), Port: port, User: u.User.Username(), Password: password,
		Database: strings.TrimPrefix(u.Path, "/"), Options: u.RawQuery,
		TestRole:                  &pgtestdb.Role{Username: u.User.Username(), Password: password},
		ForceTerminateConnections: true,
	}, m)
	return conf.URL()
}

// migrator is keyed by the text of the migrations.
type migrator struct{}

func (migrator) Hash() (string, error) { return "fairlead_" + db.SchemaHash()[:16], nil }

func (migrator) Migrate(ctx context.Context, owner *sql.DB, _ pgtestdb.Config) error {
	return db.MigrateTo(ctx, owner, db.SchemaVersion())
}
