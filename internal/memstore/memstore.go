// Package memstore keeps runs in memory, with the promises of package db: what
// commits, what conflicts and what is refused is the same, down to the names of
// constraints. Its tests run one suite of cases on both. Package agenttest runs
// agents on it without any server. Nothing is encrypted, and no conversation goes
// back: there are no snapshots and no lines but the first. An erasure is done in
// one step, and what came before it is told by order instead of by time.
//
// It imports the words of agent, db and activities, and of recall what scales
// vectors; only tests use it.
package memstore

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

var _ activities.Store = (*Store)(nil)

// Store is an activities.Store in memory. Transactions happen one after the
// other, so none meets a deadlock or is run again. It is safe for concurrent
// use; as with package db, a transaction must not use the Store it came from.
type Store struct {
	now func() time.Time
	// turn holds one token: whoever has it reads or changes data.
	turn chan struct{}
	data *data
}

// New returns an empty Store. now is the clock of everything that PostgreSQL
// stamps; nil is time.Now.
func New(now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	s := &Store{now: now, turn: make(chan struct{}, 1), data: newData()}
	s.turn <- struct{}{}
	return s
}

// clock is the time in the precision of PostgreSQL.
func (s *Store) clock() time.Time { return micros(s.now()) }

func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// hold waits for the token.
func (s *Store) hold(ctx context.Context) (release func(), err error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	select {
	case <-s.turn:
		return func() { s.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ended(ctx)
	}
}

// ended is how package db says that a context has ended.
func ended(ctx context.Context) error {
	switch err := ctx.Err(); err {
	case nil:
		return nil
	case context.Canceled:
		return &db.Error{Kind: context.Canceled}
	default:
		return fmt.Errorf("%w: %w", &db.Error{Kind: db.ErrUnavailable}, err)
	}
}

// InTx runs fn in a transaction on behalf of scope and commits if fn returns
// nil; otherwise, and when fn panics, nothing of it stays.
func (s *Store) InTx(ctx context.Context, scope agent.Scope, fn func(activities.Tx) error) error {
	if scope.Tenant == "" || scope.User == "" || scope.Environment == "" {
		return db.ErrScope
	}
	release, err := s.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	tx := &tx{data: s.data, scope: scope, clock: s.clock, now: s.clock()}
	committed := false
	defer func() {
		if !committed {
			tx.rollback()
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.send(ctx); err != nil {
		return err
	}
	committed = true
	return nil
}

// read calls fn with the data, for a complete scope.
func (s *Store) read(ctx context.Context, scope agent.Scope, fn func(*data) error) error {
	if scope.Tenant == "" || scope.User == "" || scope.Environment == "" {
		return db.ErrScope
	}
	release, err := s.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	return fn(s.data)
}

// inspect calls fn with the data, for tests that look on.
func (s *Store) inspect(fn func(*data)) {
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	fn(s.data)
}

// ToolCall is db.DB.ToolCall.
func (s *Store) ToolCall(ctx context.Context, scope agent.Scope, runID, callID string) (run db.Run, call db.ToolCall, err error) {
	err = s.read(ctx, scope, func(d *data) error {
		r, ok := d.run(scope.Tenant, runID)
		c, found := d.calls.get(callKey{runKey{scope.Tenant, runID}, callID})
		if !ok || !found {
			return missing
		}
		if r.Scope != scope {
			return db.ErrNotFound
		}
		run, call = r, c.toolCall()
		return nil
	})
	if err != nil {
		return db.Run{}, db.ToolCall{}, wrap("load tool call", err)
	}
	return run, call, nil
}

// Write is db.DB.Write.
func (s *Store) Write(ctx context.Context, scope agent.Scope, runID, callID string) (state db.WriteState, err error) {
	err = s.read(ctx, scope, func(d *data) (err error) {
		state, err = d.write(scope, runID, callID)
		return err
	})
	return state, wrap("load write", err)
}

// DefinitionBody is db.DB.DefinitionBody.
func (s *Store) DefinitionBody(ctx context.Context, digest string) (json.RawMessage, error) {
	release, err := s.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	body, ok := s.data.definitions.get(digest)
	if !ok {
		return nil, db.ErrNotFound
	}
	return json.RawMessage(body), nil
}

// ReadResult is db.DB.ReadResult.
func (s *Store) ReadResult(ctx context.Context, scope agent.Scope, runID, resultID string, offset, limit int64) (chunk []byte, total int64, err error) {
	const most = math.MaxInt32 - 1
	err = s.read(ctx, scope, func(d *data) error {
		key := runKey{scope.Tenant, runID}
		run, _ := d.runs.get(key)
		content, ok := d.results.get(callKey{key, resultID})
		if !ok || run.Scope != scope {
			return missing
		}
		total = int64(len(content))
		from := min(min(max(offset, 0), most), total)
		to := min(from+min(max(limit, 0), most), total)
		chunk = []byte(content[from:to])
		return nil
	})
	return chunk, total, wrap("read tool result", err)
}

// wrap says what was being done; ErrScope stands for itself.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// SetLimits sets a tenant's own limits, as an operator does.
func (s *Store) SetLimits(tenant string, limits db.Limits) {
	s.inspect(func(d *data) { d.limits.rows[tenant] = cloneLimits(limits) })
}

// Messages returns the messages of a conversation in order, all visibilities.
func (s *Store) Messages(tenant, conversation string) (list []db.Message) {
	s.inspect(func(d *data) {
		for key, m := range d.messages.rows {
			if key.tenant == tenant && m.Conversation == conversation {
				list = append(list, m)
			}
		}
	})
	slices.SortFunc(list, func(a, b db.Message) int { return int(a.Seq - b.Seq) })
	return list
}

// LedgerEntry is one line of the ledger.
type LedgerEntry struct {
	Step, Attempt int
	// Kind is "reserve" or "settle".
	Kind       string
	Amount     db.Amount
	UsageKnown bool
}

// Ledger returns the entries of a run, by step, attempt and kind.
func (s *Store) Ledger(tenant, runID string) (list []LedgerEntry) {
	s.inspect(func(d *data) {
		for key, e := range d.ledger.rows {
			if key.runKey == (runKey{tenant, runID}) {
				list = append(list, LedgerEntry{Step: key.step, Attempt: key.number, Kind: key.kind, Amount: e.amount.get(), UsageKnown: e.known})
			}
		}
	})
	slices.SortFunc(list, func(a, b LedgerEntry) int {
		if a.Step != b.Step {
			return a.Step - b.Step
		}
		if a.Attempt != b.Attempt {
			return a.Attempt - b.Attempt
		}
		return int(a.Kind[0]) - int(b.Kind[0])
	})
	return list
}

// PendingPlan returns the plan that a run waits with, its text included, and the
// call that it belongs to.
func (s *Store) PendingPlan(tenant, runID string) (plan db.WritePlan, call db.ToolCall, ok bool) {
	s.inspect(func(d *data) {
		for key, p := range d.plans.rows {
			if key.runKey == (runKey{tenant, runID}) && p.Status == db.PlanPending {
				c, _ := d.calls.get(key.callKey)
				plan, call, ok = p, c.toolCall(), true
			}
		}
	})
	return plan, call, ok
}

// Call returns a call with its arguments and envelope.
func (s *Store) Call(tenant, runID, callID string) (call db.ToolCall, ok bool) {
	s.inspect(func(d *data) {
		var c callRow
		if c, ok = d.calls.get(callKey{runKey{tenant, runID}, callID}); ok {
			call = c.ToolCall
		}
	})
	return call, ok
}

// Plan returns a plan with its text.
func (s *Store) Plan(tenant, runID, callID string, revision int) (plan db.WritePlan, ok bool) {
	s.inspect(func(d *data) { plan, ok = d.plans.get(planKey{callKey{runKey{tenant, runID}, callID}, revision}) })
	return plan, ok
}
