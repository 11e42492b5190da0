// Package db is where runs live: PostgreSQL behind stores that speak in domain
// types. It imports pgx and the shared words of package agent, and is called by
// activities, the starter and operators' tools.
//
// Every read and write of tenant data happens for an agent.Scope: row-level
// security admits the rows of app.tenant only, and every query filters by
// tenant as well. Rows and driver errors do not leave the package.
//
// Content (messages, arguments, results, plans, what is settled, summaries) is
// plain in domain types and sealed in rows, under the keys of the user whose it
// is. A transaction's scope must be that user's (CONV-6).
//
// Round trips are what a transaction costs, so a Tx sends its statements in
// batches: reads go out together, writes are queued and travel with the commit.
package db

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	pgvectorpgx "github.com/pgvector/pgvector-go/pgx"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// Role is the role as which every connection works. It owns nothing. The login
// of the connection URL must be a member of it (or a superuser).
const Role = "fairlead_app"

// DB is a pool of connections that work as Role. It is safe for concurrent use.
type DB struct {
	pool *pgxpool.Pool
	q    *dbsqlc.Queries
	keys *keyCache
}

// Options tune a DB. The zero value is good.
type Options struct {
	// MaxConns bounds the connections of this process. Zero means 16.
	MaxConns int
	// ConnectTimeout bounds one attempt to connect. Zero means 5 s.
	ConnectTimeout time.Duration
	// StatementTimeout bounds one statement and the wait for its locks. Zero
	// means 30 s.
	StatementTimeout time.Duration
	// KeyEncryption is the key that wraps the keys of subjects: LocalKey, or one
	// of a KMS as Tink's integrations give it. Without it every read and write
	// of content fails with ErrNoVault.
	KeyEncryption tink.AEAD
}

// Open returns a DB for a connection URL. It does not connect: a program may
// start while PostgreSQL is down and works once it is up. The only error is a
// URL that cannot be parsed; its text does not repeat the URL.
func Open(ctx context.Context, url string, opts Options) (*DB, error) {
	conf, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("open database: the connection URL is malformed: expected postgres://user:password@host:port/database")
	}
	conf.MaxConns = int32(orDefault(opts.MaxConns, 16))
	conf.ConnConfig.ConnectTimeout = orDefault(opts.ConnectTimeout, 5*time.Second)
	statement := orDefault(opts.StatementTimeout, 30*time.Second)
	params := conf.ConnConfig.RuntimeParams
	params["role"] = Role
	params["application_name"] = "fairlead"
	params["statement_timeout"] = fmt.Sprint(statement.Milliseconds())
	// Every query goes by keys or an index, so one plan fits all parameters;
	// planning anew, or compiling, would cost more than executing.
	params["plan_cache_mode"] = "force_generic_plan"
	params["jit"] = "off"
	// A worker that hangs inside a transaction must not hold its locks for ever.
	params["idle_in_transaction_session_timeout"] = fmt.Sprint(statement.Milliseconds())

	var schemaSeen atomic.Bool
	conf.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if !schemaSeen.Load() {
			if err := checkSchema(ctx, conn); err != nil {
				return err
			}
			schemaSeen.Store(true)
		}
		// Each database numbers the types of an extension by itself.
		return pgvectorpgx.RegisterTypes(ctx, conn)
	}
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", translate(err))
	}
	return &DB{pool: pool, q: dbsqlc.New(), keys: newKeyCache(vaultOn(opts.KeyEncryption))}, nil
}

// Close waits for the transactions in flight and closes all connections.
func (db *DB) Close() { db.pool.Close() }

// Ping reports whether the database can be used now: reachable, and with a
// schema no older than this program. ErrUnavailable and *SchemaError are the
// errors to expect.
func (db *DB) Ping(ctx context.Context) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("ping database: %w", translate(err))
	}
	defer conn.Release()
	if err := checkSchema(ctx, conn.Conn()); err != nil {
		return fmt.Errorf("ping database: %w", translate(err))
	}
	return nil
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
