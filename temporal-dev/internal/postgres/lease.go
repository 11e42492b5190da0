package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
)

// OnDatabase is the same server and user, another database.
func OnDatabase(databaseURL, name string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return "", errors.New("DATABASE_URL must look like postgres://user:password@host:port/database")
	}
	u.Path = "/" + name
	return u.String(), nil
}

// Lease is the right to be the only engine on a database. Two engines on the same database, say from two homes with the
// same DATABASE_URL, would take each other's shards for ever. PostgreSQL ends the lease with the connection, so a
// killed engine leaves none behind.
type Lease struct {
	url  string
	conn *pgx.Conn
}

// leaseKey is an arbitrary constant; advisory locks are per database, and this one is the server's own.
const leaseKey = 0x666c6561

// ErrLeased means that another engine works on this database.
var ErrLeased = errors.New("another engine works on the same Temporal databases: end it (`temporal-dev down` with its --home), or use another PostgreSQL")

// Acquire waits a little for a predecessor's connection to end, then gives up with ErrLeased.
func Acquire(ctx context.Context, url string) (*Lease, error) {
	l := &Lease{url: url}
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := l.Renew(ctx)
		if !errors.Is(err, ErrLeased) || time.Now().After(deadline) {
			return l, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Renew proves that PostgreSQL answers and that the lease holds; after a lost connection it takes the lease again.
func (l *Lease) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if l.conn != nil {
		if err := l.conn.Ping(ctx); err == nil {
			return nil
		}
		l.Release()
	}
	conn, err := pgx.Connect(ctx, l.url)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	l.conn = conn
	var got bool
	err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", leaseKey).Scan(&got)
	if err == nil && !got {
		err = ErrLeased
	}
	if err != nil {
		l.Release()
		return fmt.Errorf("take the engine's lease: %w", err)
	}
	return nil
}

// Release ends the lease.
func (l *Lease) Release() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx)
	l.conn = nil
}
