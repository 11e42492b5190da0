package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/memstore"
)

var ctx = context.Background()

// start is the tests' clock: what the store in memory calls now.
var start = time.Now().UTC().Truncate(time.Microsecond)

// subject is a store under test.
type subject struct {
	testing.TB
	activities.Store
	show    func(ctx context.Context, scope agent.Scope, runID string) (db.RunReport, error)
	limits  func(tenant string, l db.Limits)
	settle  func(ctx context.Context, scope agent.Scope, runID, callID string, s db.Settlement) (bool, error)
	session func(ctx context.Context, scope agent.Scope, conversation string) (db.SessionState, error)
	memory  activities.Memory
	join    func(scope agent.MemoryScope, user string, in bool)
	// version is one version of a record, whoever may see it.
	version func(id string, n int) db.MemoryRecord
	// audit is the trail of acme, oldest first, in short.
	audit func() []string
}

// inMemory and inPostgreSQL are the two that must agree.
func inMemory(t testing.TB) *subject {
	s := memstore.New(nil)
	return &subject{TB: t, Store: s, show: s.ShowRun, limits: s.SetLimits, settle: s.Settle, session: s.Session, memory: s, join: func(scope agent.MemoryScope, user string, in bool) {
		s.Participate("acme", scope, user, in)
	}, version: func(id string, n int) db.MemoryRecord {
		r, ok := s.Record("acme", id, n)
		if !ok {
			t.Fatalf("there is no version %d of %s", n, id)
		}
		return r
	}, audit: func() (list []string) {
		for _, e := range s.MemoryAudit("acme") {
			list = append(list, trail(e))
		}
		return list
	}}
}

func trail(e db.MemoryAudit) string {
	return fmt.Sprintf("%s %s %s %s%s %d %s", e.Actor, e.Action, e.User, e.Record, e.Candidate, e.Version, e.Detail)
}

func inPostgreSQL(t testing.TB) *subject {
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	settle := func(ctx context.Context, scope agent.Scope, runID, callID string, s db.Settlement) (settled bool, err error) {
		err = d.InTx(ctx, scope, func(tx *db.Tx) error {
			state, err := tx.HoldWrite(ctx, runID, callID)
			if err != nil {
				return err
			}
			if state.Intent == nil {
				return db.ErrNotFound
			}
			settled, err = tx.SettleWrite(ctx, state, s)
			return err
		})
		return settled, err
	}
	join := func(scope agent.MemoryScope, user string, in bool) {
		change := d.AddParticipant
		if !in {
			change = d.RemoveParticipant
		}
		if err := change(ctx, "acme", scope, user, "owner"); err != nil {
			t.Fatal(err)
		}
	}
	version := func(id string, n int) db.MemoryRecord {
		trace, err := d.TraceMemory(ctx, "acme", "", id)
		for _, r := range trace.Versions {
			if r.Version == n {
				return r
			}
		}
		t.Fatalf("there is no version %d of %s, %v", n, id, err)
		return db.MemoryRecord{}
	}
	audit := func() (list []string) {
		rows, err := owner.Query(ctx, "SELECT actor, action, user_id, record_id, candidate_id, version, detail FROM memory_audit WHERE tenant = 'acme' AND action NOT LIKE 'participant%' ORDER BY id")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var e db.MemoryAudit
			if err := rows.Scan(&e.Actor, &e.Action, &e.User, &e.Record, &e.Candidate, &e.Version, &e.Detail); err != nil {
				t.Fatal(err)
			}
			list = append(list, trail(e))
		}
		return list
	}
	return &subject{TB: t, Store: activities.PostgreSQL(d), memory: activities.PostgreSQLMemory(d), join: join, version: version, audit: audit, show: d.ShowRun, settle: settle, session: d.Session, limits: func(tenant string, l db.Limits) {
		_, err := owner.Exec(ctx, `INSERT INTO tenant_limit VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			tenant, l.MaxRunning, l.MaxRunningPerUser, l.DailyTokens, l.DailyCostMicros, l.UserDailyTokens, l.UserDailyCostMicros)
		if err != nil {
			t.Fatal(err)
		}
	}}
}

// TestContract runs the same cases, with the same expectations, on both stores.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, group := range []map[string]func(*subject){
		runCases, attemptCases, writeCases, sessionCases, summaryCases,
		memoryCases, memoryRecordCases, memoryRecallCases, memoryForgetCases, memoryWorkCases, memoryReconcileCases,
	} {
		for name, check := range group {
			for store, open := range map[string]func(testing.TB) *subject{"memory": inMemory, "postgresql": inPostgreSQL} {
				t.Run(name+"/"+store, func(t *testing.T) {
					t.Parallel()
					check(open(t))
				})
			}
		}
	}
}

var (
	ada    = agent.Scope{Tenant: "acme", User: "ada", Environment: "production"}
	bob    = agent.Scope{Tenant: "acme", User: "bob", Environment: "production"}
	digest = strings.Repeat("0123456789abcdef", 4)
	today  = db.Day(start)
)

func ptr[T any](v T) *T { return &v }

// do runs a transaction that must commit.
func (s *subject) do(scope agent.Scope, fn func(activities.Tx) error) {
	s.Helper()
	if err := s.InTx(ctx, scope, fn); err != nil {
		s.Fatal(err)
	}
}

// queue is do for methods without a result.
func (s *subject) queue(scope agent.Scope, fn func(activities.Tx)) {
	s.Helper()
	s.do(scope, func(tx activities.Tx) error { fn(tx); return nil })
}

// fails runs a transaction that must fail in one way: a sentinel, or a violated
// constraint.
func (s *subject) fails(scope agent.Scope, kind error, constraint string, fn func(activities.Tx)) {
	s.Helper()
	err := s.InTx(ctx, scope, func(tx activities.Tx) error { fn(tx); return nil })
	s.failed(err, kind, constraint)
}

func (s *subject) failed(err, kind error, constraint string) {
	s.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) || constraint != "" && !db.IsConstraint(err, constraint) {
		s.Fatalf("got error %v, want %v %s", err, kind, constraint)
	}
}

func newRun(scope agent.Scope, conversation, id string) db.Run {
	return db.Run{
		ID: id, Scope: scope, Conversation: conversation, Agent: "helper", DefinitionVersion: "1", DefinitionDigest: digest,
		Page: "home", Flags: []string{"beta"},
		Budget:   agent.Budget{MaxSteps: 5, MaxToolCalls: 6, MaxTokens: 700, MaxCostMicros: 8, Timeout: time.Minute},
		Deadline: start.Add(time.Minute), WorkflowID: agent.WorkflowID(scope.Tenant, id), RequestHash: digest,
		QuestionID: "question-" + id, Status: agent.StatusQueued, Version: 1,
	}
}

// errForeign is why nothing is begun in somebody else's conversation: content is
// its owner's.
var errForeign = errors.New("the conversation is somebody else's")

// open queues all that opens a run and returns it.
func open(tx activities.Tx, r db.Run) (db.Run, error) {
	state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: r.Conversation, RunID: r.ID, Day: today})
	if err != nil {
		return r, err
	}
	if state.Conversation.User != r.Scope.User {
		return r, errForeign
	}
	tx.StoreDefinition(db.Definition{Digest: digest, Name: "helper", Version: "1", Body: []byte(`{"name": "helper"}`)})
	conv := state.Conversation
	tx.AppendMessage(&conv, db.Message{ID: r.QuestionID, Role: db.RoleUser, Content: "What is " + r.ID + "?", Visibility: db.Visible, RunID: r.ID}, true)
	r.Generation, r.CurrentGeneration = conv.Generation, conv.Generation
	tx.InsertRun(r)
	return r, nil
}

// begin stores a run that is running.
func (s *subject) begin(scope agent.Scope, conversation, id string) db.Run {
	s.Helper()
	var admitted bool
	r := newRun(scope, conversation, id)
	s.do(scope, func(tx activities.Tx) (err error) {
		r, err = open(tx, r)
		tx.AdmitRun(id, db.Limits{}, &admitted)
		return err
	})
	if !admitted {
		s.Fatal("not admitted")
	}
	r.Status, r.Version = agent.StatusRunning, 2
	return r
}

func (s *subject) report(r db.Run) db.RunReport {
	s.Helper()
	report, err := s.show(ctx, r.Scope, r.ID)
	if err != nil {
		s.Fatal(err)
	}
	return report
}

// want compares what fmt prints of two values.
func (s *subject) want(what string, got, want any) {
	s.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		s.Errorf("%s: got %s, want %s", what, g, w)
	}
}

// answer stores the run's answer and returns its ID.
func (s *subject) answer(r db.Run) string {
	s.Helper()
	id := "answer-" + r.ID
	s.do(r.Scope, func(tx activities.Tx) error {
		conv, status, err := tx.HoldConversation(ctx, r)
		s.want("status", status, agent.StatusRunning)
		tx.AppendMessage(&conv, db.Message{ID: id, Role: db.RoleAssistant, Content: "It is fine.", Visibility: db.Visible, RunID: r.ID, ParentID: r.QuestionID}, false)
		return err
	})
	return id
}

func (s *subject) closeRun(r db.Run, answer string, actions int) (state db.EndState) {
	s.Helper()
	s.do(r.Scope, func(tx activities.Tx) (err error) {
		state, err = tx.CloseRun(ctx, r.ID, answer, actions)
		return err
	})
	return state
}
