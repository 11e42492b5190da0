package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Ping connects, asks and hangs up.
func Ping(ctx context.Context, url string) error {
	return withConn(ctx, url, func(ctx context.Context, conn *pgx.Conn) error { return conn.Ping(ctx) })
}

// Check makes sure that a server is new enough and offers pgvector, and describes it.
func Check(ctx context.Context, url string) (description string, err error) {
	err = withConn(ctx, url, func(ctx context.Context, conn *pgx.Conn) error {
		var number int
		var version string
		const about = "SELECT current_setting('server_version_num')::int, current_setting('server_version')"
		if err := conn.QueryRow(ctx, about).Scan(&number, &version); err != nil {
			return fmt.Errorf("ask PostgreSQL's version: %w", err)
		}
		if number < MinMajor*10000 {
			return fmt.Errorf("PostgreSQL is version %s, and %d or newer is needed: upgrade it, or unset DATABASE_URL to use a private one", version, MinMajor)
		}
		var vector string
		err := conn.QueryRow(ctx, "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'").Scan(&vector)
		if errors.Is(err, pgx.ErrNoRows) {
			return errors.New("PostgreSQL has no pgvector (`vector` is not in pg_available_extensions): " +
				"install the pgvector package of its version, or unset DATABASE_URL to use a private one")
		}
		if err != nil {
			return fmt.Errorf("ask for pgvector: %w", err)
		}
		description = fmt.Sprintf("PostgreSQL %s with pgvector %s", version, vector)
		return nil
	})
	return description, err
}

// CreateDatabase creates a database unless it exists. Names are constants of this program.
func CreateDatabase(ctx context.Context, url, name string) error {
	return withConn(ctx, url, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
		const duplicateDatabase = "42P04"
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == duplicateDatabase {
			return nil
		}
		if err != nil {
			return fmt.Errorf("create database %s: %w", name, err)
		}
		return nil
	})
}

func withConn(ctx context.Context, url string, use func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	return use(ctx, conn)
}
