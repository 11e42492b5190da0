package db

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/vault"
)

// maxTxTries bounds how often a transaction that met a deadlock is run.
const maxTxTries = 5

// Tx is a transaction in a scope. Methods that return data send what is queued
// and wait; the others queue their statement, which travels with the next read
// or with the commit. A Tx belongs to one goroutine.
type Tx struct {
	conn  *pgx.Conn
	q     *dbsqlc.Queries
	scope agent.Scope
	ring  ring
	// enter begins the transaction in place of SetScope, if there is any.
	enter   []statement
	pending []statement
	begun   bool
	// content says that the ring is used, verified that its keys were found to
	// be the subject's in this transaction.
	content, verified bool
	err               error
}

// statement is one query, written as a call of generated code. It is called
// twice: first with a recorder, which takes down text and arguments, then with
// the results of the batch in which they were sent.
type statement func(ctx context.Context, db dbsqlc.DBTX) error

// InTx runs fn in a transaction on behalf of scope and commits if fn returns
// nil. fn may be run again from its start when the database asks for it, so it
// must not have effects of its own; and it must not use the DB it came from.
func (db *DB) InTx(ctx context.Context, scope agent.Scope, fn func(*Tx) error) error {
	if scope.Tenant == "" || scope.User == "" || scope.Environment == "" {
		return ErrScope
	}
	return db.inTx(ctx, scope, fn)
}

// inTx is InTx for a whole tenant as well; without a user there is no content.
func (db *DB) inTx(ctx context.Context, scope agent.Scope, fn func(*Tx) error) error {
	return db.inTxOf(ctx, Tx{scope: scope}, scope.User, fn)
}

// inTxOf is inTx with the keys of a subject, nobody's if it is empty. Each try
// begins with a copy of begin.
func (db *DB) inTxOf(ctx context.Context, begin Tx, subject string, fn func(*Tx) error) error {
	for try := 1; ; try++ {
		r := ring{err: ErrScope}
		if subject != "" {
			var err error
			if r, err = db.ring(ctx, vault.Owner{Tenant: begin.scope.Tenant, Subject: subject}); err != nil {
				return err
			}
		}
		begin.ring = r
		err := db.once(ctx, begin, fn)
		if try == maxTxTries {
			return err
		}
		if keysChanged(err) {
			db.keys.kept.Remove(r.owner)
			continue
		}
		if !again(err) {
			return err
		}
		// Whoever met in a deadlock should not meet again in step.
		pause := time.NewTimer(time.Duration(1+rand.IntN(10*try)) * time.Millisecond)
		select {
		case <-ctx.Done():
			pause.Stop()
			return err
		case <-pause.C:
		}
	}
}

func (db *DB) once(ctx context.Context, begin Tx, fn func(*Tx) error) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return translate(err)
	}
	// A connection that is released inside a transaction is closed by the pool.
	defer conn.Release()
	tx := &begin
	tx.conn, tx.q = conn.Conn(), db.q
	if err := fn(tx); err != nil {
		tx.rollback(ctx)
		return err
	}
	if err := tx.commit(ctx); err != nil {
		tx.rollback(ctx)
		return err
	}
	return nil
}

// read sends what is queued together with the given statements and waits.
func (tx *Tx) read(ctx context.Context, statements ...statement) error {
	tx.pending = append(tx.pending, statements...)
	return tx.send(ctx, false)
}

// write queues a statement.
func (tx *Tx) write(s statement) { tx.pending = append(tx.pending, s) }

func (tx *Tx) commit(ctx context.Context) error {
	if tx.err != nil {
		return tx.err
	}
	if !tx.begun && len(tx.pending) == 0 {
		return nil
	}
	return tx.send(ctx, true)
}

func (tx *Tx) rollback(ctx context.Context) {
	if !tx.begun || tx.conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	// If this fails the pool closes the connection, which rolls back as well.
	_, _ = tx.conn.Exec(ctx, "rollback")
}

func (tx *Tx) send(ctx context.Context, commit bool) error {
	if tx.err != nil {
		return tx.err
	}
	statements := make([]statement, 0, len(tx.pending)+len(tx.enter)+5)
	// A batch that is the whole transaction needs no BEGIN: see inTenant.
	whole := commit && !tx.begun
	if !tx.begun && !whole {
		statements = append(statements, plain("begin"))
	}
	if !tx.begun {
		statements = append(statements, tx.enter...)
	}
	simple := !tx.begun && tx.enter == nil
	switch verify := tx.content && !tx.verified; {
	case simple && verify:
		statements = append(statements, exec(tx.q.SetScopeAndShareKeys, dbsqlc.SetScopeAndShareKeysParams{
			Tenant: tx.scope.Tenant, UserID: tx.scope.User, Environment: tx.scope.Environment,
		}), tx.ring.verify(tx.q))
	case simple:
		statements = append(statements, setScope(tx.q, tx.scope))
	case verify:
		statements = append(statements, tx.ring.share(tx.q), tx.ring.verify(tx.q))
	}
	tx.verified = tx.verified || tx.content
	statements = append(statements, tx.pending...)
	tx.pending = nil
	if commit && !whole {
		statements = append(statements, plain("commit"))
	}
	tx.begun = !whole
	tx.err = sendBatch(ctx, tx.conn, statements)
	return tx.err
}

// inTenant reads for a whole tenant, or for one of its users, in one round
// trip: a batch without BEGIN is one implicit transaction.
func (db *DB) inTenant(ctx context.Context, scope agent.Scope, statements ...statement) error {
	if scope.Tenant == "" {
		return ErrScope
	}
	return db.batch(ctx, append([]statement{setScope(db.q, scope)}, statements...)...)
}

// batch sends statements as one transaction.
func (db *DB) batch(ctx context.Context, statements ...statement) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return translate(err)
	}
	defer conn.Release()
	return sendBatch(ctx, conn.Conn(), statements)
}

// inScope is inTenant for a complete scope.
func (db *DB) inScope(ctx context.Context, scope agent.Scope, statements ...statement) error {
	if scope.User == "" || scope.Environment == "" {
		return ErrScope
	}
	return db.inTenant(ctx, scope, statements...)
}

// sendBatch sends statements in one round trip and gives each its result. A
// failed statement undoes those before it in the same transaction, and the ones
// after it are not executed.
func sendBatch(ctx context.Context, conn *pgx.Conn, statements []statement) error {
	var batch pgx.Batch
	for _, s := range statements {
		if err := s(ctx, (*recorder)(&batch)); !errors.Is(err, errRecorded) {
			return fmt.Errorf("db: a statement was not recorded: %w", err)
		}
	}
	results := conn.SendBatch(ctx, &batch)
	var first error
	for _, s := range statements {
		if err := s(ctx, replayer{results}); err != nil {
			first = err
			break
		}
	}
	if err := results.Close(); err != nil && (first == nil || errors.Is(first, pgx.ErrNoRows)) {
		first = err
	}
	return translate(first)
}

func setScope(q *dbsqlc.Queries, scope agent.Scope) statement {
	return func(ctx context.Context, db dbsqlc.DBTX) error {
		return q.SetScope(ctx, db, dbsqlc.SetScopeParams{Tenant: scope.Tenant, UserID: scope.User, Environment: scope.Environment})
	}
}

func plain(sql string) statement {
	return func(ctx context.Context, db dbsqlc.DBTX) error {
		_, err := db.Exec(ctx, sql)
		return err
	}
}

// one makes a statement of a query for a single row.
func one[P, R any](call func(context.Context, dbsqlc.DBTX, P) (R, error), params P, into *R) statement {
	return func(ctx context.Context, db dbsqlc.DBTX) error {
		row, err := call(ctx, db, params)
		if err == nil {
			*into = row
		}
		return err
	}
}

// maybe is one for a row that need not exist.
func maybe[P, R any](call func(context.Context, dbsqlc.DBTX, P) (R, error), params P, into **R) statement {
	return func(ctx context.Context, db dbsqlc.DBTX) error {
		row, err := call(ctx, db, params)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err == nil {
			*into = &row
		}
		return err
	}
}

// exec makes a statement of a query without a result.
func exec[P any](call func(context.Context, dbsqlc.DBTX, P) error, params P) statement {
	return func(ctx context.Context, db dbsqlc.DBTX) error { return call(ctx, db, params) }
}

// errRecorded ends a generated call after its statement was taken down.
var errRecorded = errors.New("recorded")

type recorder pgx.Batch

func (r *recorder) record(sql string, args []any) { (*pgx.Batch)(r).Queue(sql, args...) }

func (r *recorder) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	r.record(sql, args)
	return pgconn.CommandTag{}, errRecorded
}

func (r *recorder) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	r.record(sql, args)
	return nil, errRecorded
}

func (r *recorder) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	r.record(sql, args)
	return recordedRow{}
}

type recordedRow struct{}

func (recordedRow) Scan(...any) error { return errRecorded }

type replayer struct{ results pgx.BatchResults }

func (r replayer) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return r.results.Exec()
}

func (r replayer) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return r.results.Query()
}

func (r replayer) QueryRow(context.Context, string, ...any) pgx.Row { return r.results.QueryRow() }
