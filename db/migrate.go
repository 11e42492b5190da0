package db

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// Migrate brings the schema up to this program's version. ownerURL must name a
// login that may create tables and roles. Programs that migrate at the same
// time wait for each other.
func Migrate(ctx context.Context, ownerURL string) error {
	conf, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return errors.New("migrate database: the connection URL is malformed: expected postgres://user:password@host:port/database")
	}
	pool := stdlib.OpenDB(*conf)
	defer func() { _ = pool.Close() }()
	if err := pool.PingContext(ctx); err != nil {
		return fmt.Errorf("migrate database: %w", translate(err))
	}
	return MigrateTo(ctx, pool, SchemaVersion())
}

// MigrateTo moves the schema up or down to a version. Going down drops data; it
// exists for tests and for operators who know what they do.
func MigrateTo(ctx context.Context, owner *sql.DB, version int64) error {
	files, err := fs.Sub(schemaFiles, "schema")
	if err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300), lock.WithUnlockTimeout(1, 30))
	if err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, owner, files, goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	current, err := provider.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("migrate database: read version: %w", translate(err))
	}
	if version >= current {
		_, err = provider.UpTo(ctx, version)
	} else {
		_, err = provider.DownTo(ctx, version)
	}
	if err != nil {
		// The text of a migration is ours and the error of its statement says
		// what an owner has to mend.
		return fmt.Errorf("migrate database: %w", err)
	}
	return nil
}

// SchemaVersion is the newest schema version that this program knows and needs.
func SchemaVersion() int64 { return schemaVersion }

// SchemaHash identifies the text of all migrations.
func SchemaHash() string { return schemaHash }

var schemaVersion, schemaHash = readSchema()

func readSchema() (version int64, hash string) {
	entries, err := schemaFiles.ReadDir("schema")
	if err != nil {
		panic("db: embedded schema: " + err.Error())
	}
	sum := sha256.New()
	for _, entry := range entries {
		number, _, _ := strings.Cut(entry.Name(), "_")
		v, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			panic("db: embedded schema: " + entry.Name() + " does not begin with a number")
		}
		version = max(version, v)
		text, err := schemaFiles.ReadFile("schema/" + entry.Name())
		if err != nil {
			panic("db: embedded schema: " + err.Error())
		}
		sum.Write([]byte(entry.Name()))
		sum.Write(text)
	}
	return version, hex.EncodeToString(sum.Sum(nil))
}

// SchemaError says that the database is older than the program: it must be
// migrated before it can be used.
type SchemaError struct {
	// Have is the database's version, zero if it was never migrated; Need is
	// the program's.
	Have, Need int64
}

// Error says what to do.
func (e *SchemaError) Error() string {
	return fmt.Sprintf("the database schema has version %d and this program needs %d: migrate the database first", e.Have, e.Need)
}

// checkSchema returns a *SchemaError if the database is older than the program.
// A newer one is not refused: a program cannot know what a later migration
// changed. So it is the migration that must admit programs that are older than
// it, or have the database refuse their statements, as that of version 3 does,
// whose constraints keep content from being stored in the clear.
func checkSchema(ctx context.Context, conn *pgx.Conn) error {
	const query = "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied"
	var have int64
	if err := conn.QueryRow(ctx, query).Scan(&have); err != nil {
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == codeUndefinedTable {
			return &SchemaError{Have: 0, Need: schemaVersion}
		}
		return err
	}
	if have < schemaVersion {
		return &SchemaError{Have: have, Need: schemaVersion}
	}
	return nil
}
