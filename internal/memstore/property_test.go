package memstore_test

import (
	"encoding/json"
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
	t.Run("runs", func(t *testing.T) {
		t.Parallel()
		same(t, draw, func(s *subject, owner agent.Scope) {
			s.begin(owner, "talk", "r1")
			s.queue(owner, func(tx activities.Tx) {
				tx.InsertToolCalls("r1", []db.ToolCall{writeCall("0.0"), writeCall("1.0")})
				tx.InsertPlan(writePlan("r1", "0.0", 1))
			})
		})
	})
	t.Run("conversations", func(t *testing.T) {
		t.Parallel()
		same(t, drawConversation, func(s *subject, owner agent.Scope) {
			s.begin(owner, "talk", "r1")
			s.queue(owner, func(tx activities.Tx) {
				for i, id := range callIDs {
					c := writeCall(id)
					c.Index = i
					tx.InsertToolCalls("r1", []db.ToolCall{c})
				}
			})
		})
	})
}

// same plays operations on both stores, in most rounds on begun ground.
func same(t *testing.T, draw func(*rapid.T, agent.Scope) operation, begun func(*subject, agent.Scope)) {
	real := inPostgreSQL(t)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		// One database serves all rounds, each with tenants of its own.
		owner := agent.Scope{Tenant: fmt.Sprintf("acme-%d", round), User: "ada", Environment: "production"}
		other := owner
		other.User = "bob"
		memory := inMemory(real.TB)
		if rapid.IntRange(0, 3).Draw(t, "begun") > 0 {
			for _, s := range []*subject{memory, real} {
				begun(s, owner)
			}
		}
		for range rapid.IntRange(3, 25).Draw(t, "transactions") {
			scope, draw := owner, draw
			if rapid.IntRange(0, 19).Draw(t, "scope") == 0 {
				scope, draw = other, drawForeign
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
		if mine, its := conversationPicture(memory, owner), conversationPicture(real, owner); mine != its {
			t.Fatalf("conversation in memory\n%s\nin PostgreSQL\n%s", mine, its)
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
	case errors.As(err, &limit), errors.As(err, &illegal), errors.Is(err, errAbort), errors.Is(err, errForeign):
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
	if n > 0 {
		a.Prompt = json.RawMessage(`{"question":{"tokens":7}}`)
	}
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
			return fmt.Sprint(state.Run.Status, state.Totals, state.Actions, state.ToolCalls, state.Answered, state.UnknownWrites,
				state.Unsummarized, state.SummaryFailures), err
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
			failed := errorText(state.Call.Error)
			state.Call.Error = nil
			return fmt.Sprint(state.Run.Status, state.Call, failed, state.Plan != nil, state.Intent != nil), err
		}
	}
}

// drawForeign draws what an activity asks first, here about somebody else's. No
// store keeps a transaction from more than that.
func drawForeign(t *rapid.T, _ agent.Scope) operation {
	id, call := rapid.SampledFrom(runIDs).Draw(t, "run"), rapid.SampledFrom(callIDs).Draw(t, "call")
	switch rapid.IntRange(0, 4).Draw(t, "foreign") {
	case 0:
		return func(tx activities.Tx) (string, error) { return step(tx, id) }
	case 1:
		return func(tx activities.Tx) (string, error) {
			_, err := tx.CloseRun(ctx, id, "none", 9)
			return "close", err
		}
	case 2:
		return func(tx activities.Tx) (string, error) {
			_, err := tx.HoldWrite(ctx, id, call)
			return "hold", err
		}
	case 3:
		return func(tx activities.Tx) (string, error) {
			_, err := tx.LoadSummary(ctx, "talk", 9)
			return "summary", err
		}
	default:
		return func(tx activities.Tx) (string, error) {
			state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "talk", RunID: id, Day: today})
			return fmt.Sprint(state.Conversation, session(state.Session)), err
		}
	}
}

func errorText(e *agent.ToolError) string {
	if e == nil {
		return "no error"
	}
	return fmt.Sprintf("%+v", *e)
}

// canonical is JSON without the order and the spaces of a store's own.
func canonical(text json.RawMessage) string {
	if len(text) == 0 {
		return ""
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err.Error()
	}
	b, _ := json.Marshal(value)
	return string(b)
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
		prompt := canonical(a.Prompt)
		a.Reserved.CostMicros, a.Reported, a.Billed, a.Prompt = nil, nil, nil, nil
		text += fmt.Sprintf("%+v %+v %s\n", a, u, prompt)
	}
	for _, c := range report.Calls() {
		stamp(&c.ProposedAt, &c.EndedAt)
		if c.Executions > 0 && c.StartedAt.Year() == start.Year() {
			stamp(&c.StartedAt)
		}
		failed := errorText(c.Error)
		c.Error = nil
		text += fmt.Sprintf("%+v %s\n", c, failed)
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
