package memstore

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// table is one table: rows are values without anything that can be changed
// through them, so that what is read stays what it was.
type table[K comparable, V any] struct{ rows map[K]V }

func (t table[K, V]) get(key K) (V, bool) {
	row, ok := t.rows[key]
	return row, ok
}

// put stores a row; the transaction can take it back.
func (t table[K, V]) put(tx *tx, key K, row V) {
	old, had := t.rows[key]
	tx.undo = append(tx.undo, func() {
		if had {
			t.rows[key] = old
		} else {
			delete(t.rows, key)
		}
	})
	t.rows[key] = row
}

// remove deletes a row; the transaction can take it back.
func (t table[K, V]) remove(tx *tx, key K) {
	old, had := t.rows[key]
	if !had {
		return
	}
	tx.undo = append(tx.undo, func() { t.rows[key] = old })
	delete(t.rows, key)
}

func newTable[K comparable, V any]() table[K, V] { return table[K, V]{rows: make(map[K]V)} }

type (
	runKey        struct{ tenant, run string }
	namedKey      struct{ tenant, id string }
	transitionKey struct {
		runKey
		seq int
	}
	attemptKey struct {
		runKey
		step, number int
	}
	ledgerKey struct {
		attemptKey
		kind string
	}
	callKey struct {
		runKey
		call string
	}
	planKey struct {
		callKey
		revision int
	}
	intentKey struct{ tenant, key string }
	dailyKey  struct{ tenant, day, user string }
	entryKey  struct {
		namedKey  // of the conversation
		run, call string
		kind      db.EntryKind
		key       string
	}
)

// data are the tables.
type data struct {
	limits        table[string, db.Limits]
	daily         table[dailyKey, daily]
	definitions   table[string, string]
	conversations table[namedKey, db.Conversation]
	messages      table[namedKey, db.Message]
	runs          table[runKey, db.Run]
	transitions   table[transitionKey, db.Transition]
	attempts      table[attemptKey, attemptRow]
	ledger        table[ledgerKey, ledgerRow]
	calls         table[callKey, callRow]
	results       table[callKey, string]
	plans         table[planKey, db.WritePlan]
	intents       table[intentKey, db.WriteIntent]
	refusals      table[int, refusalRow]
	entries       table[entryKey, db.SessionEntry]
	summaries     table[summaryKey, summaryRow]

	memory
}

func newData() *data {
	return &data{
		limits: newTable[string, db.Limits](), daily: newTable[dailyKey, daily](), definitions: newTable[string, string](),
		conversations: newTable[namedKey, db.Conversation](), messages: newTable[namedKey, db.Message](),
		runs: newTable[runKey, db.Run](), transitions: newTable[transitionKey, db.Transition](),
		attempts: newTable[attemptKey, attemptRow](), ledger: newTable[ledgerKey, ledgerRow](),
		calls: newTable[callKey, callRow](), results: newTable[callKey, string](), plans: newTable[planKey, db.WritePlan](),
		intents: newTable[intentKey, db.WriteIntent](), refusals: newTable[int, refusalRow](),
		entries: newTable[entryKey, db.SessionEntry](), summaries: newTable[summaryKey, summaryRow](),
		memory: newMemory(),
	}
}

type daily struct{ tokens, costMicros int64 }

// amount is a db.Amount without a pointer.
type amount struct {
	tokens, costMicros int64
	priced             bool
}

func amountOf(a db.Amount) amount {
	if a.CostMicros == nil {
		return amount{tokens: a.Tokens}
	}
	return amount{tokens: a.Tokens, costMicros: *a.CostMicros, priced: true}
}

func (a amount) get() db.Amount {
	if !a.priced {
		return db.Amount{Tokens: a.tokens}
	}
	return db.Amount{Tokens: a.tokens, CostMicros: &a.costMicros}
}

type ledgerRow struct {
	amount amount
	known  bool
}

// attemptRow is a model attempt. action, response and prompt are JSON, empty if
// there is none; Reported, Billed and Prompt of the Attempt are not used.
type attemptRow struct {
	db.Attempt
	reserved         amount
	reported         db.ReportedTokens
	hasReported      bool
	action, response string
	prompt           string
}

type callRow struct {
	db.ToolCall
	note                           string
	proposedAt, startedAt, endedAt time.Time
}

type refusalRow struct {
	runKey
	db.Refusal
}

// tx is a transaction.
type tx struct {
	data  *data
	scope agent.Scope
	clock func() time.Time
	// now is PostgreSQL's now(): when the transaction began.
	now     time.Time
	pending []func() error
	undo    []func()
	// err is the first failure of a statement; nothing works after it.
	err error
}

// queue adds a statement, which is executed with the next read or at the commit.
func (tx *tx) queue(statement func() error) { tx.pending = append(tx.pending, statement) }

// send executes what is queued.
func (tx *tx) send(ctx context.Context) error {
	if tx.err != nil {
		return tx.err
	}
	statements := tx.pending
	tx.pending = nil
	if tx.err = ended(ctx); tx.err != nil {
		return tx.err
	}
	for _, statement := range statements {
		if tx.err = statement(); tx.err != nil {
			return tx.err
		}
	}
	return nil
}

// read executes what is queued and then fn. Its failure ends the transaction.
func (tx *tx) read(ctx context.Context, fn func() error) error {
	tx.queue(fn)
	return tx.send(ctx)
}

func (tx *tx) rollback() {
	for i := len(tx.undo) - 1; i >= 0; i-- {
		tx.undo[i]()
	}
}

func (tx *tx) key(runID string) runKey { return runKey{tx.scope.Tenant, runID} }

// run returns a run with the newest generation of its conversation.
func (d *data) run(tenant, id string) (db.Run, bool) {
	r, ok := d.runs.get(runKey{tenant, id})
	if !ok {
		return db.Run{}, false
	}
	conv, _ := d.conversations.get(namedKey{tenant, r.Conversation})
	r.CurrentGeneration = conv.Generation
	r.Group, r.Project = conv.Group, conv.Project
	r.Flags = append([]string{}, r.Flags...)
	if r.Memory != nil {
		use := *r.Memory
		r.Memory = &use
	}
	return r, true
}

// transition records a change of status; a second one of that number conflicts.
func (d *data) transition(tx *tx, key runKey, t db.Transition) error {
	at := transitionKey{key, t.Seq}
	if _, taken := d.transitions.get(at); taken {
		return conflict(db.ConstraintTransition)
	}
	if _, ok := d.runs.get(key); !ok {
		return absent("run_transition_run_fkey")
	}
	d.transitions.put(tx, at, t)
	return nil
}
