package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/vault"
)

const (
	// plainBatch bounds the rows that one transaction of SealPlain seals.
	plainBatch = 200
	// plainHash begins a hash that is not keyed yet.
	plainHash = "plain:"
	// lockPatience is how long those who use a table may be held up by a wait for
	// its lock, lockPause how long they go on undisturbed before the next one.
	lockPatience = 500 * time.Millisecond
	lockPause    = time.Second
	maxLockTries = 100
)

// requestHash is no content but a hash of it, and text.
var requestHash = column{"run", "request_hash"}

// plainTable is a table that an earlier version may have stored content in.
type plainTable struct {
	name string
	// keys are the columns that name a row in its tenant, types those of them.
	keys, types []string
	columns     []column
	// owner joins the row that says whose content it is, as o.
	owner string
}

const ofRun = "JOIN run o ON o.tenant = t.tenant AND o.id = t.run_id"

var plainTables = []plainTable{
	{"message", []string{"id", "conversation_id", "role"}, []string{"text", "text", "text"}, []column{messageContent}, "JOIN conversation o ON o.tenant = t.tenant AND o.id = t.conversation_id"},
	{"model_attempt", []string{"run_id", "step", "attempt"}, []string{"text", "integer", "integer"}, []column{attemptResponse}, ofRun},
	{"tool_call", []string{"run_id", "call_id"}, []string{"text", "text"}, []column{callArguments, callEnvelope}, ofRun},
	{"tool_result", []string{"run_id", "call_id"}, []string{"text", "text"}, []column{resultContent}, ofRun},
	{"write_plan", []string{"run_id", "call_id", "revision"}, []string{"text", "text", "integer"}, []column{planSummary}, ofRun},
	{"write_intent", []string{"key"}, []string{"text"}, []column{intentNote}, ofRun},
	{"run", []string{"id"}, []string{"text"}, []column{requestHash}, "JOIN run o ON o.tenant = t.tenant AND o.id = t.id"},
}

// plainRow is a row of a plainTable.
type plainRow struct {
	subject string
	key     []string
	values  [][]byte
}

// SealPlain seals what an earlier version stored in the clear, and makes the
// hashes of messages and requests keyed ones. ownerURL must name a login that
// owns the tables. It goes through a tenant's rows in small transactions beside
// running programs, and can be interrupted and repeated; once all is done it
// returns at once.
//
// What was in the clear is not gone from the disk with that: old versions of rows
// stay in the tables until VACUUM has removed them and their space is used again
// (VACUUM FULL rewrites a table), and copies stay in the write-ahead log and in
// backups until those expire.
func SealPlain(ctx context.Context, ownerURL string, kek tink.AEAD) error {
	if kek == nil {
		return ErrNoVault
	}
	conf, err := pgxpool.ParseConfig(ownerURL)
	if err != nil {
		return errors.New("seal content: the connection URL is malformed: expected postgres://user:password@host:port/database")
	}
	conf.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return fmt.Errorf("seal content: %w", translate(err))
	}
	defer pool.Close()
	owner := &DB{pool: pool, q: dbsqlc.New(), keys: newKeyCache(vaultOn(kek))}
	if err := owner.sealPlain(ctx); err != nil {
		return fmt.Errorf("seal content: %w", err)
	}
	return nil
}

func (db *DB) sealPlain(ctx context.Context) error {
	names, err := db.q.UnsealedTables(ctx, db.pool)
	if err != nil || len(names) == 0 {
		return translate(err)
	}
	tenants, err := db.tenants(ctx)
	if err != nil {
		return translate(err)
	}
	for _, table := range plainTables {
		if !slices.Contains(names, table.name) {
			continue
		}
		for _, tenant := range tenants {
			if err := db.sealTable(ctx, tenant, table); err != nil {
				return fmt.Errorf("table %s: %w", table.name, err)
			}
		}
		if err := db.q.DoneSealing(ctx, db.pool, table.name); err != nil {
			return translate(err)
		}
	}
	return nil
}

// tenants lists the tenants with conversations.
func (db *DB) tenants(ctx context.Context) ([]string, error) {
	for try := 1; ; try++ {
		list, err := db.tenantsNow(ctx)
		var refused *pgconn.PgError
		if try == maxLockTries || !errors.As(err, &refused) || refused.Code != codeLockTimeout {
			return list, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPause):
		}
	}
}

// tenantsNow is tenants unless a table cannot be locked soon. An owner that is no
// superuser sees them within a transaction that lifts the row-level security, and
// is rolled back. Its lock waits for all who read conversations, and those who
// come later wait for it.
func (db *DB) tenantsNow(ctx context.Context) (list []string, err error) {
	tx, err := db.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var hidden bool
	if err := tx.QueryRow(ctx, "SELECT row_security_active('conversation')").Scan(&hidden); err != nil {
		return nil, err
	}
	if hidden {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockPatience.Milliseconds())); err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, "ALTER TABLE conversation NO FORCE ROW LEVEL SECURITY"); err != nil {
			return nil, err
		}
	}
	rows, err := tx.Query(ctx, "SELECT DISTINCT tenant FROM conversation ORDER BY tenant")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (db *DB) sealTable(ctx context.Context, tenant string, table plainTable) error {
	after := make([]string, len(table.keys))
	for i, kind := range table.types {
		if kind == "integer" {
			after[i] = "-1"
		}
	}
	for tries := 0; ; {
		var rows []plainRow
		if err := db.inTenant(ctx, agent.Scope{Tenant: tenant}, table.read(tenant, after, &rows)); err != nil {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		statements, owners, err := db.sealRows(ctx, tenant, table, rows)
		if err != nil {
			return err
		}
		err = db.inTenant(ctx, agent.Scope{Tenant: tenant}, statements...)
		if tries++; tries < maxTxTries && (keysChanged(err) || again(err)) {
			for _, o := range owners {
				db.keys.kept.Remove(o)
			}
			continue
		}
		if err != nil {
			return err
		}
		tries, after = 0, rows[len(rows)-1].key
	}
}

// sealRows makes the statements that seal rows under the keys of their subjects.
func (db *DB) sealRows(ctx context.Context, tenant string, table plainTable, rows []plainRow) (statements []statement, owners []vault.Owner, err error) {
	rings := map[string]ring{}
	var updates []statement
	for _, row := range rows {
		r, ok := rings[row.subject]
		if !ok {
			o := vault.Owner{Tenant: tenant, Subject: row.subject}
			if r, err = db.ring(ctx, o); err != nil {
				return nil, nil, err
			}
			if errors.Is(r.err, ErrKeysDestroyed) {
				// Nobody may read it any more, so nobody keeps the keys.
				r.keys, _, r.err = db.keys.vault.Make(o)
			} else {
				owners = append(owners, o)
				statements = append(statements, r.share(db.q), r.verify(db.q))
			}
			rings[row.subject] = r
		}
		update, err := table.seal(r, row)
		if err != nil {
			return nil, nil, err
		}
		updates = append(updates, update)
	}
	return append(statements, updates...), owners, nil
}

// read reads the next rows with a value in the clear.
func (t plainTable) read(tenant string, after []string, into *[]plainRow) statement {
	args := []any{tenant}
	var keys, values, plain, from []string
	for i, key := range t.keys {
		args = append(args, after[i])
		keys, from = append(keys, "t."+key), append(from, fmt.Sprintf("$%d::text::%s", i+2, t.types[i]))
	}
	for _, c := range t.columns {
		if c == requestHash {
			values = append(values, "convert_to(t.request_hash, 'UTF8')")
			plain = append(plain, fmt.Sprintf("starts_with(t.request_hash, '%s')", plainHash))
			continue
		}
		values = append(values, "t."+c.name)
		plain = append(plain, fmt.Sprintf(`substring(t.%s FROM 1 FOR 1) = '\x00'`, c.name))
	}
	list := strings.Join(keys, ", ")
	sql := fmt.Sprintf("SELECT o.user_id, ARRAY[%s], ARRAY[%s] FROM %s t %s WHERE t.tenant = $1 AND (%s) > (%s) AND (%s) ORDER BY %s LIMIT %d",
		strings.Join(keys, "::text, ")+"::text", strings.Join(values, ", "), t.name, t.owner, list, strings.Join(from, ", "),
		strings.Join(plain, " OR "), list, plainBatch)
	return func(ctx context.Context, conn dbsqlc.DBTX) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		*into, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r plainRow, err error) {
			err = row.Scan(&r.subject, &r.key, &r.values)
			return r, err
		})
		return err
	}
}

// seal updates a row, unless somebody else did meanwhile.
func (t plainTable) seal(r ring, row plainRow) (statement, error) {
	args := []any{r.owner.Tenant}
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	var set, where []string
	for i, key := range t.keys {
		where = append(where, fmt.Sprintf("%s = %s::text::%s", key, arg(row.key[i]), t.types[i]))
	}
	for i, c := range t.columns {
		value := row.values[i]
		if c == requestHash {
			hash, err := r.hash(strings.TrimPrefix(string(value), plainHash))
			if err != nil {
				return nil, err
			}
			set = append(set, "request_hash = "+arg(hash))
			where = append(where, "request_hash = "+arg(string(value)))
			continue
		}
		if len(value) == 0 || value[0] != unsealedMark {
			continue
		}
		content := value[1:]
		sealed, err := r.seal(c, content, row.key...)
		if err != nil {
			return nil, err
		}
		set = append(set, fmt.Sprintf("%s = %s::bytea", c.name, arg(sealed)))
		where = append(where, fmt.Sprintf("%s = %s::bytea", c.name, arg(value)))
		if c == messageContent {
			hash, err := r.hash(string(content))
			if err != nil {
				return nil, err
			}
			set = append(set, "content_hash = "+arg(hash))
		}
	}
	sql := fmt.Sprintf("UPDATE %s SET %s WHERE tenant = $1 AND %s", t.name, strings.Join(set, ", "), strings.Join(where, " AND "))
	return func(ctx context.Context, conn dbsqlc.DBTX) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	}, nil
}
