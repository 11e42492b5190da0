package endtoend

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/rig"
	"github.com/fairlead/fairlead/workflows"
)

// skipping is one run in Temporal's test suite, on a real database. Time passes
// at once while the run waits.
type skipping struct {
	*world
	env    *testsuite.TestWorkflowEnvironment
	runs   *activities.Runs
	req    agent.RunRequest
	things *things
}

// inSuite is newWorld without a server.
func inSuite(t testing.TB) *world {
	w := &world{TB: t, ctx: t.Context(), url: dbtest.URL(t)}
	w.db, w.owner = dbtest.Open(t, w.url, db.Options{}), dbtest.Owner(t, w.url)
	return w
}

// skip prepares a run. Activities and approvers have the suite's clock.
func (w *world) skip(t testing.TB, c rig.Config, req agent.RunRequest) *skipping {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	s := &skipping{world: w.in(t), env: suite.NewTestWorkflowEnvironment(), req: req}
	s.env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: patience})
	s.env.SetTestTimeout(patience)
	s.env.SetStartTime(time.Now())
	c.Now = s.env.Now
	var err error
	if s.runs, err = rig.Activities(c); err != nil {
		t.Fatal(err)
	}
	workflows.Register(s.env)
	s.runs.Register(s.env)
	return s
}

// at has something happen after a time.
func (s *skipping) at(after time.Duration, happens func()) {
	s.env.RegisterDelayedCallback(happens, after)
}

// decide mints a decision about the plan that waits.
func (s *skipping) decide(approver approval.Approver, decision approval.Decision) string {
	s.Helper()
	office := s.office(func(c *approval.Config) { c.Now = s.env.Now })
	waiting, err := office.Pending(s.ctx, approver, approval.Filter{RunID: s.req.RunID})
	if err != nil || len(waiting.Plans) != 1 {
		s.Errorf("waiting are %+v, %v", waiting, err)
		return ""
	}
	mint := office.Approve
	if decision == approval.Decline {
		mint = office.Decline
	}
	token, err := mint(s.ctx, approver, waiting.Plans[0])
	if err != nil {
		s.Error(err)
	}
	return token.Text
}

func (s *skipping) send(token string) {
	s.env.SignalWorkflow(agent.SignalApproval, agent.Approval{Token: token})
}

// play runs the workflow and returns its result and how long it took by the
// suite's clock.
func (s *skipping) play() (result agent.RunResult, took time.Duration) {
	s.Helper()
	began := s.env.Now()
	s.env.ExecuteWorkflow(agent.WorkflowAgentRun, s.req)
	took = s.env.Now().Sub(began)
	err := s.env.GetWorkflowError()
	var canceled *temporal.CanceledError
	if errors.As(err, &canceled) {
		err = canceled.Details(&result)
	} else if err == nil {
		err = s.env.GetWorkflowResult(&result)
	}
	if err != nil {
		s.Fatal(err)
	}
	return result, took
}

// about compares times with activities of real length between them; the suite's
// clock counts milliseconds.
func about(got, want time.Duration) bool { return got > want-time.Second && got < want+20*time.Second }

// TestWritesInTime shows what depends on time: plans and tokens that expire,
// people who take days, and look-ups that are far apart.
func TestWritesInTime(t *testing.T) {
	t.Parallel()
	w := inSuite(t)
	lamp := changeArgs{Thing: "lamp", To: "on"}
	mode := func(mode string) changeArgs { return changeArgs{Thing: "lamp", To: "on", Mode: mode} }
	for name, test := range map[string]struct {
		agent   string
		calls   []string
		edit    func(*agent.RunRequest)
		happens func(*skipping)
		reason  agent.Reason
		// took is by the suite's clock; moved is how much later the deadline is.
		took, moved time.Duration
		record      string
		refusals    string
		effects     int
	}{
		"a plan expires": {
			agent: "changer", calls: []string{proposal("change", lamp)},
			reason: agent.ReasonFinal, took: time.Hour, moved: time.Hour,
			record: "plan 0.0/1 expired, call 0.0 failed not_confirmed",
		},
		"a plan expires, the next one is approved": {
			agent: "changer", calls: []string{proposal("change", lamp), proposal("change", lamp)},
			happens: func(s *skipping) {
				s.at(90*time.Minute, func() { s.send(s.decide(bob, approval.Approve)) })
			},
			reason: agent.ReasonFinal, took: 90 * time.Minute, moved: 90 * time.Minute, effects: 1,
			record: "plan 0.0/1 expired, plan 1.0/1 approved by bob, write 1.0 performed by commit, call 0.0 failed not_confirmed, call 1.0 succeeded",
		},
		"people take two days": {
			// The run itself has five minutes.
			agent: "steady", calls: []string{proposal("change", lamp), proposal("send", lamp)},
			happens: func(s *skipping) {
				s.at(50*time.Hour, func() { s.send(s.decide(bob, approval.Approve)) })
				s.at(100*time.Hour, func() { s.send(s.decide(carol, approval.Decline)) })
			},
			reason: agent.ReasonFinal, took: 100 * time.Hour, moved: 100 * time.Hour, effects: 1,
			record: "plan 0.0/1 approved by bob, plan 1.0/1 declined by carol, write 0.0 performed by commit, call 0.0 succeeded, call 1.0 failed declined",
		},
		"a token is too old": {
			agent: "changer", calls: []string{proposal("change", lamp)},
			happens: func(s *skipping) {
				var old string
				s.at(10*time.Minute, func() { old = s.decide(bob, approval.Approve) })
				s.at(10*time.Minute+approval.DefaultTTL, func() { s.send(old) })
				s.at(30*time.Minute, func() { s.send(s.decide(bob, approval.Approve)) })
			},
			reason: agent.ReasonFinal, took: 30 * time.Minute, moved: 30 * time.Minute, effects: 1,
			record: "plan 0.0/1 approved by bob, write 0.0 performed by commit, call 0.0 succeeded", refusals: "expired",
		},
		"a token is good to its last second": {
			agent: "changer", calls: []string{proposal("change", lamp)},
			happens: func(s *skipping) {
				var old string
				s.at(10*time.Minute, func() { old = s.decide(bob, approval.Approve) })
				s.at(10*time.Minute+approval.DefaultTTL-2*time.Second, func() { s.send(old) })
			},
			reason: agent.ReasonFinal, took: 10*time.Minute + approval.DefaultTTL - 2*time.Second, moved: 10*time.Minute + approval.DefaultTTL - 2*time.Second,
			effects: 1, record: "plan 0.0/1 approved by bob, write 0.0 performed by commit, call 0.0 succeeded",
		},
		"a stale plan does not take up the run's time": {
			agent: "steady", calls: []string{proposal("change", lamp)},
			happens: func(s *skipping) {
				s.at(40*time.Hour, func() {
					old := s.decide(bob, approval.Approve)
					s.things.touch("lamp")
					s.send(old)
				})
				s.at(90*time.Hour, func() { s.send(s.decide(bob, approval.Approve)) })
			},
			reason: agent.ReasonFinal, took: 90 * time.Hour, moved: 90 * time.Hour, effects: 1,
			record: "plan 0.0/1 stale by bob, plan 0.0/2 approved by bob, write 0.0 performed by commit, call 0.0 succeeded",
		},
		"refusals do not prolong a plan": {
			agent: "changer", calls: []string{proposal("change", lamp)},
			happens: func(s *skipping) {
				for n := range 3 {
					s.at(time.Duration(n+1)*19*time.Minute, func() { s.send("no token") })
				}
			},
			reason: agent.ReasonFinal, took: time.Hour, moved: time.Hour,
			record: "plan 0.0/1 expired, call 0.0 failed not_confirmed", refusals: "malformed malformed malformed",
		},
		"never known": {
			// Four look-ups, 20 s apart.
			agent: "steady", calls: []string{proposal("change", mode("never-known"))},
			happens: func(s *skipping) {
				s.at(time.Hour, func() { s.send(s.decide(bob, approval.Approve)) })
			},
			reason: agent.ReasonOutcomeUnknown, took: time.Hour + 60*time.Second, moved: time.Hour,
			record: "plan 0.0/1 approved by bob, write 0.0 unknown, call 0.0 unknown",
		},
		"never known, and past the deadline": {
			// What may have happened is looked for all the same.
			agent: "steady", calls: []string{proposal("change", mode("never-known"))},
			edit: budget(func(b *agent.BudgetOverride) { b.Timeout = ptr(15 * time.Second) }),
			happens: func(s *skipping) {
				s.at(time.Hour, func() { s.send(s.decide(bob, approval.Approve)) })
			},
			reason: agent.ReasonOutcomeUnknown, took: time.Hour + 60*time.Second, moved: time.Hour,
			record: "plan 0.0/1 approved by bob, write 0.0 unknown, call 0.0 unknown",
		},
		"known to be lost when the time is up": {
			// It is not done again for a run that has no time left.
			agent: "steady", calls: []string{proposal("change", mode("known-late"))},
			edit: budget(func(b *agent.BudgetOverride) { b.Timeout = ptr(15 * time.Second) }),
			happens: func(s *skipping) {
				s.at(time.Hour, func() { s.send(s.decide(bob, approval.Approve)) })
			},
			reason: agent.ReasonDeadline, took: time.Hour + 20*time.Second, moved: time.Hour,
			record: "plan 0.0/1 approved by bob, write 0.0 not_performed by look_up, call 0.0 failed failed",
		},
		"settled while it is looked up": {
			agent: "steady", calls: []string{proposal("change", mode("never-known"))},
			happens: func(s *skipping) {
				s.at(time.Hour, func() { s.send(s.decide(bob, approval.Approve)) })
				s.at(time.Hour+10*time.Second, func() {
					office := s.office(func(c *approval.Config) { c.Now = s.env.Now })
					if _, err := office.Settle(s.ctx, nil, olga, approval.WriteRef{RunID: s.req.RunID, CallID: "0.0"}, approval.Settlement{}); err != nil {
						s.Error(err)
					}
					s.env.SignalWorkflow(agent.SignalSettled, nil)
				})
			},
			reason: agent.ReasonFinal, took: time.Hour + 10*time.Second, moved: time.Hour,
			record: "plan 0.0/1 approved by bob, write 0.0 not_performed by operator, call 0.0 failed failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := config(w.db)
			if err != nil {
				t.Fatal(err)
			}
			things := newThings()
			if err := addWriter(&c, things); err != nil {
				t.Fatal(err)
			}
			req := ask(test.agent, "one-by-one "+strings.Join(test.calls, "\n"))
			if test.edit != nil {
				test.edit(&req)
			}
			s := w.skip(t, c, req)
			s.things = things
			if test.happens != nil {
				test.happens(s)
			}
			began := s.env.Now()
			result, took := s.play()
			if result.Reason != test.reason || !about(took, test.took) {
				t.Errorf("ended %+v after %s, want %s after %s", result, took, test.reason, test.took)
			}
			own := 5 * time.Minute
			if req.Budget != nil {
				own = *req.Budget.Timeout
			}
			if moved := s.show(req).Run.Deadline.Sub(began.Add(own)); (moved - test.moved).Abs() > 20*time.Second {
				t.Errorf("the deadline moved by %s, want %s", moved, test.moved)
			}
			s.wantRecord(req, test.record)
			if codes := strings.Join(s.refusals(req), " "); codes != test.refusals {
				t.Errorf("refusals %q, want %q", codes, test.refusals)
			}
			if things.total() != test.effects {
				t.Errorf("%d effects, want %d", things.total(), test.effects)
			}
			s.checkWrites(req, things)
			s.checkLedger(t, req, result)
		})
	}
}
