package activities_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
)

func (b *bundle) rows(table string) int64 {
	b.Helper()
	return b.number("SELECT count(*) FROM " + table)
}

func (b *bundle) tryBegin(req agent.RunRequest) (agent.BeginRunOutput, error) {
	return b.runs.BeginRun(b.ctx, agent.BeginRunInput{Request: req, StartedAt: time.Now()})
}

func TestBeginRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	existing := b.start()
	for name, c := range map[string]struct {
		edit func(*agent.RunRequest)
		want string
	}{
		"invalid":              {func(r *agent.RunRequest) { r.Message = "" }, agent.ErrorInvalidRequest},
		"not UTF-8":            {func(r *agent.RunRequest) { r.Message = "a\xef\xb8." }, agent.ErrorInvalidRequest},
		"unknown agent":        {func(r *agent.RunRequest) { r.Agent = "nobody" }, agent.ErrorUnknownAgent},
		"unknown version":      {func(r *agent.RunRequest) { r.AgentVersion = "99" }, agent.ErrorUnknownAgent},
		"version of a new one": {func(r *agent.RunRequest) { r.ConversationVersion = new(int64(1)) }, agent.ErrorConversationConflict},
		"version that was": {func(r *agent.RunRequest) {
			r.Conversation, r.ConversationVersion = existing.req.Conversation, new(int64(0))
		}, agent.ErrorConversationConflict},
		"another's conversation": {func(r *agent.RunRequest) { r.Conversation, r.User = existing.req.Conversation, "bob" }, agent.ErrorConversationConflict},
		"other environment":      {func(r *agent.RunRequest) { r.Conversation, r.Environment = existing.req.Conversation, "test" }, agent.ErrorConversationConflict},
		"other request":          {func(r *agent.RunRequest) { r.RunID = existing.req.RunID }, agent.ErrorRunConflict},
	} {
		t.Run(name, func(t *testing.T) {
			req := request()
			c.edit(&req)
			_, err := b.tryBegin(req)
			refusedAs(t, err, c.want)
			if strings.Contains(err.Error(), canary) {
				t.Errorf("the error repeats content: %v", err)
			}
		})
	}
	for table, want := range map[string]int64{"conversation": 1, "message": 1, "run": 1, "run_transition": 2} {
		if n := b.rows(table); n != want {
			t.Errorf("%s has %d rows, want %d", table, n, want)
		}
	}
	// The version the caller saw is accepted, and counted on.
	req := request()
	req.Conversation, req.ConversationVersion = existing.req.Conversation, new(int64(1))
	if out := b.begin(req); out.Generation != 2 {
		t.Errorf("generation %d, want 2", out.Generation)
	}
}

func TestBeginCostLimitNeedsPrice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		model string
		allow bool
		limit bool
		want  string
	}{
		{"unpriced with limit", "unpriced", false, true, agent.ErrorInvalidRequest},
		{"unpriced and allowed", "unpriced", true, true, ""},
		{"unpriced without limit", "unpriced", false, false, ""},
		{"priced", "priced", false, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, options{edit: func(d *definition.Definition) {
				d.Model, d.Budget.AllowUnpriced = c.model, c.allow
			}})
			req := request()
			if c.limit {
				req.Budget = &agent.BudgetOverride{MaxCostMicros: new(int64(500))}
			}
			out, err := b.tryBegin(req)
			if c.want != "" {
				refusedAs(t, err, c.want)
				return
			}
			if err != nil || !out.Admitted {
				t.Fatalf("got %+v, %v", out, err)
			}
			if c.limit && out.Budget.MaxCostMicros != 500 {
				t.Errorf("budget %+v", out.Budget)
			}
		})
	}
}

func TestBeginIsIdempotent(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	req := request()
	var first atomic.Pointer[agent.BeginRunOutput]
	started := time.Now()
	together(16, func(int) {
		out, err := b.runs.BeginRun(b.ctx, agent.BeginRunInput{Request: req, StartedAt: started})
		if err != nil {
			t.Error(err)
			return
		}
		first.CompareAndSwap(nil, &out)
		if got := first.Load(); out.Generation != got.Generation || !out.Deadline.Equal(got.Deadline) || !out.Admitted || out.Budget != got.Budget {
			t.Errorf("got %+v and %+v", out, *got)
		}
	})
	for table, want := range map[string]int64{"conversation": 1, "message": 1, "run": 1, "run_transition": 2} {
		if n := b.rows(table); n != want {
			t.Errorf("%s has %d rows, want %d", table, n, want)
		}
	}
	// A worker that no longer serves the definition still knows the run.
	other := b.worker(options{edit: func(d *definition.Definition) { d.Version = "2" }})
	out, err := other.BeginRun(b.ctx, agent.BeginRunInput{Request: req, StartedAt: time.Now()})
	if err != nil || out.DefinitionDigest != first.Load().DefinitionDigest || !out.Deadline.Equal(first.Load().Deadline) || out.Rules != first.Load().Rules {
		t.Errorf("another worker says %+v, %v", out, err)
	}
	// And how it ended.
	g := begun{req, out}
	b.finish(g, agent.ReasonStepLimit, 3, "")
	if out := b.begin(req); out.Ended != agent.ReasonStepLimit || out.Admitted {
		t.Errorf("after the end: %+v", out)
	}
}

func TestBeginDeclinedByEnvironment(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	req := request()
	req.Environment = "staging"
	out := b.begin(req)
	if out.Ended != agent.ReasonDeclinedByPolicy || out.Detail != "environment" || out.Admitted {
		t.Fatalf("got %+v", out)
	}
	report := b.show(begun{req, out})
	if report.Run.Status != agent.StatusFailed || report.Run.Reason != agent.ReasonDeclinedByPolicy {
		t.Fatalf("stored as %+v", report.Run)
	}
	// The loop records the end again; the first stays.
	result := b.finish(begun{req, out}, agent.ReasonInternal, 0, "")
	if result.Reason != agent.ReasonDeclinedByPolicy || result.Detail != "environment" {
		t.Fatalf("result %+v", result)
	}
}

// TestConcurrencyLimit lets twenty runs of a tenant begin at once.
func TestConcurrencyLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		limits activities.Limits
		tenant string // SQL that sets the tenant's own
		want   int64
	}{
		{"of the tenant", activities.Limits{MaxRunning: 7}, "", 7},
		{"of the user", activities.Limits{MaxRunningPerUser: 2}, "", 4},
		{"the tenant's own", activities.Limits{MaxRunning: 7}, "INSERT INTO tenant_limit (tenant, max_running) VALUES ('acme', 3)", 3},
		{"nothing at all", activities.Limits{}, "INSERT INTO tenant_limit (tenant, max_running) VALUES ('acme', 0)", 0},
		{"none", activities.Limits{}, "", 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, options{limits: c.limits})
			if c.tenant != "" {
				b.exec(c.tenant)
			}
			workers := []*activities.Runs{b.runs, b.worker(options{limits: c.limits})}
			requests := make([]agent.RunRequest, 20)
			var admitted atomic.Int64
			together(len(requests), func(i int) {
				requests[i] = request()
				requests[i].User = []string{"ada", "bob"}[i%2]
				out, err := workers[i%2].BeginRun(b.ctx, agent.BeginRunInput{Request: requests[i], StartedAt: time.Now()})
				switch {
				case err != nil:
					t.Error(err)
				case out.Admitted:
					admitted.Add(1)
				case out.RetryAfter <= 0:
					t.Error("a queued run was not told when to ask again")
				}
			})
			if admitted.Load() != c.want || b.number("SELECT count(*) FROM run WHERE status = 'running'") != c.want {
				t.Errorf("%d were admitted, want %d", admitted.Load(), c.want)
			}
		})
	}
}

func TestQueuedRunIsAdmittedLater(t *testing.T) {
	t.Parallel()
	b := setup(t, options{limits: activities.Limits{MaxRunning: 1}})
	holder, waiter := b.start(), b.start()
	if !holder.out.Admitted || waiter.out.Admitted {
		t.Fatalf("admitted %v and %v", holder.out.Admitted, waiter.out.Admitted)
	}
	if out := b.begin(waiter.req); out.Admitted || out.Generation != waiter.out.Generation {
		t.Fatalf("asked again: %+v", out)
	}
	b.finish(holder, agent.ReasonStepLimit, 1, "")
	if out := b.begin(waiter.req); !out.Admitted || out.Generation != waiter.out.Generation {
		t.Fatalf("after a slot became free: %+v", out)
	}
	if n := b.number("SELECT count(*) FROM message WHERE run_id = $1", waiter.req.RunID); n != 1 {
		t.Errorf("the message was stored %d times", n)
	}

	// A run whose workflow was terminated holds its slot until its time is up.
	b.exec("UPDATE run SET deadline = now() - interval '3 minutes' WHERE id = $1", waiter.req.RunID)
	if g := b.start(); !g.out.Admitted {
		t.Error("a run that outlived its deadline still holds its slot")
	}
}

func TestDailyLimitExhausted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limits activities.Limits
		reason agent.Reason
		detail string
	}{
		{activities.Limits{DailyTokens: 100}, agent.ReasonTokenLimit, "tenant_daily_tokens"},
		{activities.Limits{DailyCostMicros: 50}, agent.ReasonCostLimit, "tenant_daily_cost"},
		{activities.Limits{UserDailyTokens: 80}, agent.ReasonTokenLimit, "user_daily_tokens"},
		{activities.Limits{UserDailyCostMicros: 40}, agent.ReasonCostLimit, "user_daily_cost"},
	} {
		t.Run(c.detail, func(t *testing.T) {
			t.Parallel()
			b := setup(t, options{limits: c.limits})
			b.exec(`INSERT INTO daily_usage (tenant, day, user_id, tokens, cost_micros) VALUES
				('acme', (now() AT TIME ZONE 'UTC')::date, '', 100, 50), ('acme', (now() AT TIME ZONE 'UTC')::date, 'ada', 80, 40),
				('acme', (now() AT TIME ZONE 'UTC')::date - 1, '', 1000, 1000)`)
			g := b.start()
			if g.out.Ended != c.reason || g.out.Detail != c.detail {
				t.Fatalf("got %+v", g.out)
			}
		})
	}
}

// TestSupersede lets sixteen submits meet in one conversation.
func TestSupersede(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	conversation := uuid.NewString()
	outs := make([]agent.BeginRunOutput, 16)
	together(len(outs), func(i int) {
		req := request()
		req.Conversation = conversation
		out, err := b.tryBegin(req)
		if err != nil {
			t.Error(err)
		}
		outs[i] = out
	})
	seen := map[int64]bool{}
	for _, out := range outs {
		if seen[out.Generation] {
			t.Errorf("generation %d was given twice", out.Generation)
		}
		seen[out.Generation] = true
		if len(out.Supersedes) != int(out.Generation)-1 {
			t.Errorf("generation %d supersedes %d runs", out.Generation, len(out.Supersedes))
		}
	}
	if n := b.number("SELECT count(DISTINCT seq) FROM message WHERE seq BETWEEN 1 AND 16"); n != 16 {
		t.Errorf("%d messages in order, want 16", n)
	}

	// Of those who saw the same version one wins.
	var won atomic.Int64
	together(8, func(int) {
		req := request()
		req.Conversation, req.ConversationVersion = conversation, new(int64(16))
		if _, err := b.tryBegin(req); err == nil {
			won.Add(1)
		} else {
			refusedAs(t, err, agent.ErrorConversationConflict)
		}
	})
	if won.Load() != 1 {
		t.Errorf("%d submits won, want 1", won.Load())
	}
}

func TestQueuedRunIsSuperseded(t *testing.T) {
	t.Parallel()
	b := setup(t, options{limits: activities.Limits{MaxRunning: 1}})
	b.start()
	waiter := b.start()
	newer := request()
	newer.Conversation = waiter.req.Conversation
	if out := b.begin(newer); len(out.Supersedes) != 1 || out.Supersedes[0] != waiter.req.RunID {
		t.Fatalf("got %+v", out)
	}
	if out := b.begin(waiter.req); out.Ended != agent.ReasonSuperseded {
		t.Fatalf("got %+v", out)
	}
}

// TestERASE2NoRunOfTheErased: from the request on no new run of a user is begun,
// and one that was open goes on.
func TestERASE2NoRunOfTheErased(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	open := b.start()
	erase := func() agent.ErasureStep {
		step, err := b.db.EraseSubject(b.ctx, agent.EraseInput{ID: "e1", Tenant: open.req.Tenant, User: open.req.User, By: "ann"}, 100)
		if err != nil {
			t.Fatal(err)
		}
		return step
	}
	if step := erase(); step.Done || step.Blocked == "" {
		t.Fatalf("the erasure does not wait for the open run: %+v", step)
	}
	count := func() int64 { return b.rows("run") + b.rows("conversation") + b.rows("message") }
	refused := func() {
		t.Helper()
		before := count()
		_, err := b.tryBegin(request())
		refusedAs(t, err, agent.ErrorUserErased)
		if n := count(); n != before {
			t.Errorf("%d rows, want %d", n, before)
		}
	}
	refused()
	if again := b.begin(open.req); again.Generation != 1 {
		t.Errorf("the open run is not found again: %+v", again)
	}
	b.finish(open, agent.ReasonCanceled, 1, "")
	done := false
	for range 20 {
		done = done || erase().Done
	}
	if !done {
		t.Fatal("the erasure does not end")
	}
	refused()
	other := request()
	other.User = "somebody-else"
	b.begin(other)
}
