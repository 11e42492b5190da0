package memstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// TestSameAsPostgreSQL gives both stores the same random transactions: each must
// end the same way on both, and leave the same.
func TestSameAsPostgreSQL(t *testing.T) {
	t.Parallel()
	real := inPostgreSQL(t)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		// One database serves all rounds, each with tenants of its own.
		owner := agent.Scope{Tenant: fmt.Sprintf("acme-%d", round), User: "ada", Environment: "production"}
		other := owner
		other.User = "bob"
		memory := inMemory(real.TB)
		if rapid.Bool().Draw(t, "begun") {
			for _, s := range []*subject{memory, real} {
				s.begin(owner, "talk", "r1")
				s.queue(owner, func(tx activities.Tx) {
					tx.InsertToolCalls("r1", []db.ToolCall{writeCall("0.0"), writeCall("1.0")})
					tx.InsertPlan(writePlan("r1", "0.0", 1))
				})
			}
		}
		for range rapid.IntRange(3, 25).Draw(t, "transactions") {
			scope := owner
			if rapid.IntRange(0, 19).Draw(t, "scope") == 0 {
				scope = other
			}
			var ops []operation
			for range rapid.IntRange(1, 3).Draw(t, "operations") {
				ops = append(ops, draw(t, owner))
			}
			abort := rapid.IntRange(0, 9).Draw(t, "abort") == 0
			mine, its := play(memory, scope, ops, abort), play(real, scope, ops, abort)
			if mine != its {
				t.Fatalf("memory says %s\nPostgreSQL says %s", mine, its)
			}
		}
		for _, id := range runIDs {
			if mine, its := picture(memory, owner, id), picture(real, owner, id); mine != its {
				t.Fatalf("run %s in memory\n%s\nin PostgreSQL\n%s", id, mine, its)
			}
		}
	})
}

// operation is one step of a transaction; what it returns is compared.
type operation func(activities.Tx) (string, error)

var errAbort = errors.New("abort")

func play(s *subject, scope agent.Scope, ops []operation, abort bool) (said string) {
	err := s.InTx(ctx, scope, func(tx activities.Tx) error {
		for _, op := range ops {
			text, err := op(tx)
			said += text + "; "
			if err != nil {
				return err
			}
		}
		if abort {
			return errAbort
		}
		return nil
	})
	return said + describe(err)
}

// describe is all of an error that callers tell apart.
func describe(err error) string {
	var (
		stored  *db.Error
		limit   *db.LimitError
		illegal *agent.TransitionError
	)
	switch {
	case err == nil:
		return "committed"
	case errors.As(err, &stored):
		return fmt.Sprintf("%v %s %s", stored.Kind, stored.Code, stored.Constraint)
	case errors.As(err, &limit), errors.As(err, &illegal), errors.Is(err, errAbort):
		return err.Error()
	case errors.Is(err, db.ErrNotFound):
		return "not found"
	}
	return "unexpected: " + err.Error()
}

var (
	runIDs   = []string{"r1", "r2"}
	callIDs  = []string{"0.0", "0.1", "1.0"}
	keys     = []string{key, otherKey}
	statuses = []agent.Status{agent.StatusRunning, agent.StatusWaitingConfirmation, agent.StatusFailed, agent.StatusCanceled, agent.StatusSucceeded}
	moves    = []db.Move{
		{To: agent.StatusRunning, At: start.Add(time.Hour)},
		{To: agent.StatusWaitingConfirmation, At: start},
		{To: agent.StatusFailed, Reason: agent.ReasonInternal, Detail: "d", Step: 1},
		{To: agent.StatusCanceled, Reason: agent.ReasonSuperseded},
		{To: agent.StatusSucceeded, Reason: agent.ReasonFinal, AnswerID: "answer-r1"},
		{To: agent.StatusFailed, Reason: agent.ReasonFinal},
	}
	planStatuses = []db.PlanStatus{db.PlanApproved, db.PlanDeclined, db.PlanExpired, db.PlanStale, db.PlanRefused, db.PlanPending}
)

// draw draws an operation. Begin, move and plan come up most, or little else
// would have a ground to stand on.
func draw(t *rapid.T, owner agent.Scope) operation {
	id := rapid.SampledFrom(runIDs).Draw(t, "run")
	call := rapid.SampledFrom(callIDs).Draw(t, "call")
	n := rapid.IntRange(0, 2).Draw(t, "n")
	at := start.Add(time.Duration(n) * time.Minute)
	quiet := func(fn func(activities.Tx)) operation {
		return func(tx activities.Tx) (string, error) { fn(tx); return "", nil }
	}
	// asRead is what an activity would have read before, right or stale.
	asRead := newRun(owner, "talk", id)
	asRead.Status, asRead.Version = rapid.SampledFrom(statuses).Draw(t, "status"), n+1
	move := rapid.SampledFrom(moves).Draw(t, "move")
	plan := writePlan(id, call, 1+n/2)
	plan.Status = rapid.SampledFrom(planStatuses).Draw(t, "plan status")
	if plan.DecidedAt = at; rapid.Bool().Draw(t, "decided") {
		plan.DecidedBy, plan.TokenID = "bob", "token"
	}
	a := billed(attempt(n, 1+n/2), int64(10*n+1), int64(n))
	wanted := intent(call, rapid.SampledFrom(keys).Draw(t, "key"), 1)
	wanted.RunID = id
	one, two := ptr(int64(1)), ptr(int64(200))
	switch rapid.IntRange(0, 22).Draw(t, "operation") {
	case 0, 1, 2:
		return func(tx activities.Tx) (string, error) {
			r, err := open(tx, newRun(owner, "talk", id))
			return fmt.Sprint("generation ", r.Generation), err
		}
	case 3, 4:
		return func(tx activities.Tx) (string, error) {
			var admitted bool
			tx.AdmitRun(id, db.Limits{MaxRunningPerUser: one}, &admitted)
			_, err := tx.LoadStep(ctx, db.StepQuery{RunID: id})
			return fmt.Sprint("admitted ", admitted), err
		}
	case 5, 6:
		return func(tx activities.Tx) (string, error) {
			if state, err := tx.LoadStep(ctx, db.StepQuery{RunID: id}); err == nil && n > 0 {
				asRead = state.Run
			}
			return "move", tx.MoveRun(asRead, move)
		}
	case 7:
		return func(tx activities.Tx) (string, error) {
			state, err := tx.CloseRun(ctx, id, "answer-"+id, n)
			return fmt.Sprint(state.Run.Status, state.Totals, state.Actions, state.ToolCalls, state.Answered, state.UnknownWrites), err
		}
	case 8, 9:
		return quiet(func(tx activities.Tx) { tx.StartAttempt(id, a) })
	case 10:
		return func(tx activities.Tx) (string, error) {
			return "finish", tx.FinishAttempt(id, a, &db.Response{Text: "said"})
		}
	case 11:
		return func(tx activities.Tx) (string, error) { return "lose", tx.LoseAttempt(id, a) }
	case 12, 13:
		return quiet(func(tx activities.Tx) {
			c := writeCall(call)
			c.Index = n % 2
			tx.InsertToolCalls(id, []db.ToolCall{c})
		})
	case 14:
		return func(tx activities.Tx) (string, error) {
			var recorded bool
			tx.StartToolCall(id, call)
			tx.FinishToolCall(id, call, db.CallOutcome{Content: []byte("x"), ContentType: "text/plain", ResultHash: digest, StartedAt: at}, &recorded)
			_, err := tx.LoadStep(ctx, db.StepQuery{RunID: id})
			return fmt.Sprint("recorded ", recorded), err
		}
	case 15, 16:
		return quiet(func(tx activities.Tx) { tx.InsertPlan(plan) })
	case 17, 21:
		return quiet(func(tx activities.Tx) { tx.ClosePlan(plan) })
	case 18, 22:
		return quiet(func(tx activities.Tx) {
			tx.RecordIntent(wanted)
			tx.MarkSent(wanted.Key, at, at)
			if n == 2 {
				tx.ResolveIntent(wanted.Key, db.WritePerformed, db.ByCommit, at)
			}
		})
	case 19:
		return func(tx activities.Tx) (string, error) {
			conv, status, err := tx.HoldConversation(ctx, asRead)
			if err == nil {
				tx.AppendMessage(&conv, db.Message{ID: "answer-" + id, Role: db.RoleAssistant, Visibility: db.Visible, Content: "fine", RunID: id}, false)
			}
			return fmt.Sprint(conv, status), err
		}
	default:
		return func(tx activities.Tx) (string, error) {
			state, err := tx.HoldWrite(ctx, id, call)
			tx.RefuseApproval(id, db.Refusal{CallID: call, Code: agent.RefusedUsed})
			tx.ReserveDaily(today, db.Amount{Tokens: 60}, db.Limits{UserDailyTokens: two})
			tx.SettleDaily(today, db.Amount{Tokens: 60}, db.Amount{Tokens: int64(n)})
			return fmt.Sprint(state.Run.Status, state.Call, state.Plan != nil, state.Intent != nil), err
		}
	}
}

// picture is a run without the times that a store's own clock gave.
func picture(s *subject, scope agent.Scope, id string) string {
	report, err := s.show(ctx, scope, id)
	if err != nil {
		return describe(err)
	}
	stamp := func(times ...*time.Time) {
		for _, t := range times {
			if !t.IsZero() {
				*t = start
			}
		}
	}
	utc := func(times ...*time.Time) {
		for _, t := range times {
			*t = t.UTC()
		}
	}
	r := &report.Run
	stamp(&r.CreatedAt, &r.StartedAt, &r.EndedAt)
	utc(&r.Deadline, &r.WaitingSince)
	text := fmt.Sprintf("%+v\n%+v %q\n", *r, report.Totals, report.Answer)
	for _, t := range report.Transitions {
		stamp(&t.At)
		text += fmt.Sprintf("%+v\n", t)
	}
	for _, a := range report.Attempts() {
		stamp(&a.StartedAt, &a.EndedAt)
		u := a.Usage()
		a.Reserved.CostMicros, a.Reported, a.Billed = nil, nil, nil
		text += fmt.Sprintf("%+v %+v\n", a, u)
	}
	for _, c := range report.Calls() {
		stamp(&c.ProposedAt, &c.EndedAt)
		if c.Executions > 0 && c.StartedAt.Year() == start.Year() {
			stamp(&c.StartedAt)
		}
		text += fmt.Sprintf("%+v\n", c)
	}
	for _, p := range report.Plans {
		if p.Status == db.PlanWithdrawn {
			stamp(&p.DecidedAt)
		}
		utc(&p.CreatedAt, &p.ExpiresAt, &p.DecidedAt)
		text += fmt.Sprintf("%+v\n", p)
	}
	for _, w := range report.Writes {
		if w.Result == db.WriteUnknown {
			stamp(&w.ResolvedAt)
		}
		utc(&w.RecordedAt, &w.SentAt, &w.ResolvedAt)
		text += fmt.Sprintf("%+v\n", w)
	}
	for _, f := range report.Refusals {
		stamp(&f.At)
		text += fmt.Sprintf("%+v\n", f)
	}
	return text
}
