package agenttest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model/scripted"
)

// points are all those at which a worker can die on the way of a write.
func points() []agenttest.Moment {
	list := []agenttest.Moment{
		agenttest.PlanWaits(), agenttest.ModelCalled(), agenttest.ToolBegins("restart"), agenttest.ToolReturns("restart"),
		agenttest.ToolBegins("look"), agenttest.ToolReturns("look"),
	}
	for _, name := range []string{
		agent.ActivityBeginRun, agent.ActivityNextAction, agent.ActivityReadTool, agent.ActivityPrepareWrite, agent.ActivityCommitWrite, agent.ActivityEndRun,
	} {
		list = append(list, agenttest.BeforeActivity(name), agenttest.AfterActivity(name))
	}
	return list
}

// lookAndRestart reads before it writes.
var lookAndRestart = scripted.ByStep(
	calls("look", `{"service":"payment-api"}`), calls("restart", `{"service":"payment-api"}`), scripted.Turn{Text: "It was restarted."})

// TestCrash lets the worker die once at each point: the run ends well, the
// effect happens exactly once, and each response is paid for once.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, point := range points() {
		t.Run(point.String(), func(t *testing.T) {
			t.Parallel()
			s := newServices()
			result := suiteOf(t, s, lookAndRestart).Run("Restart payment-api",
				agenttest.When(point, agenttest.Crash()), agenttest.Whenever(agenttest.PlanWaits(), agenttest.ApproveAs("bob")))
			if point == agenttest.PlanWaits() {
				// The crash took the place of the approval.
				result.WantCalls("look", "restart: not_confirmed")
				return
			}
			result.WantEnd(agent.ReasonFinal)
			result.WantCalls("look", "restart")
			result.WantRefusals()
			want(t, "restarts", s.count(), 1)
			want(t, "write", []any{len(result.Writes), result.Writes[0].Result}, "[1 performed]")
			bought := 3
			if point == agenttest.ModelCalled() {
				bought = 4 // the provider was asked, and nobody heard the answer
			}
			want(t, "attempts", result.Usage.Attempts, bought)
		})
	}
}

// TestCrashAgainAndAgain lets the worker die at every point of one run.
func TestCrashAgainAndAgain(t *testing.T) {
	t.Parallel()
	s := newServices()
	var events []agenttest.Event
	for _, point := range points() {
		if point != agenttest.PlanWaits() {
			events = append(events, agenttest.When(point, agenttest.Crash()))
		}
	}
	events = append(events, agenttest.Whenever(agenttest.PlanWaits(), agenttest.Crash(), agenttest.ApproveAs("bob")))
	result := suiteOf(t, s, lookAndRestart).Run("Restart payment-api", events...)
	result.WantEnd(agent.ReasonFinal)
	result.WantCalls("look", "restart")
	want(t, "restarts", s.count(), 1)
}

func TestCrashBetweenIntentAndEffect(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")), agenttest.When(agenttest.ToolBegins("restart"), agenttest.Crash()))
	// It was looked up, found absent, and performed with the same key.
	w := result.Writes[0]
	want(t, "write", []any{w.Result, w.ResolvedBy, w.Sends, s.count()}, "[performed commit 2 1]")
}

func TestCrashBetweenEffectAndRecord(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")), agenttest.When(agenttest.ToolReturns("restart"), agenttest.Crash()))
	w := result.Writes[0]
	want(t, "write", []any{w.Result, w.ResolvedBy, w.Sends, s.count()}, "[performed look_up 1 1]")
	result.WantAnswer("restarted")
}

// TestUnknownOutcome: an answer that never came is looked up (WRITE-5).
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	cut := errors.New("connection reset")
	for name, c := range map[string]struct {
		moment    agenttest.Moment
		action    agenttest.Action
		forgetful bool
		reason    agent.Reason
		write     string
	}{
		"performed":                 {agenttest.ToolReturns("restart"), agenttest.Fail(cut), false, agent.ReasonFinal, "[performed look_up 1 1]"},
		"not performed":             {agenttest.ToolBegins("restart"), agenttest.Fail(cut), false, agent.ReasonFinal, "[performed commit 2 1]"},
		"panic after":               {agenttest.ToolReturns("restart"), agenttest.Panic(), false, agent.ReasonFinal, "[performed look_up 1 1]"},
		"slow":                      {agenttest.ToolReturns("restart"), agenttest.Wait(time.Hour), false, agent.ReasonFinal, "[performed look_up 1 1]"},
		"performed, no look-up":     {agenttest.ToolReturns("restart"), agenttest.Fail(cut), true, agent.ReasonOutcomeUnknown, "[unknown  1 1]"},
		"not performed, no look-up": {agenttest.ToolBegins("restart"), agenttest.Fail(cut), true, agent.ReasonOutcomeUnknown, "[unknown  1 0]"},
		"crash after, no look-up":   {agenttest.ToolReturns("restart"), agenttest.Crash(), true, agent.ReasonOutcomeUnknown, "[unknown  1 1]"},
		"crash before, no look-up":  {agenttest.ToolBegins("restart"), agenttest.Crash(), true, agent.ReasonOutcomeUnknown, "[unknown  1 0]"},
		"stopped, performed":        {agenttest.ToolReturns("restart"), agenttest.Cancel(), false, agent.ReasonCanceled, "[performed commit 1 1]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServices()
			s.forgetful = c.forgetful
			result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
				agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")), agenttest.When(c.moment, c.action))
			result.WantEnd(c.reason)
			w := result.Writes[0]
			want(t, "write", []any{w.Result, w.ResolvedBy, w.Sends, s.count()}, c.write)
			if c.reason == agent.ReasonOutcomeUnknown {
				result.WantCalls("restart: unknown")
				want(t, "actions", result.Actions, "[{0.0 restart outcome_unknown}]")
			}
		})
	}
}

// TestOperator: what nobody can look up is waited for, for a while, and an
// operator may say what happened.
func TestOperator(t *testing.T) {
	t.Parallel()
	run := func(events ...agenttest.Event) *agenttest.Result {
		s := newServices()
		s.blind = true
		events = append(events, agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")),
			agenttest.When(agenttest.ToolReturns("restart"), agenttest.Fail(errors.New("connection reset"))))
		return suiteOf(t, s, restartOnce).Run("Restart payment-api", events...)
	}
	unknown := run()
	unknown.WantEnd(agent.ReasonOutcomeUnknown)
	settled := run(agenttest.When(agenttest.Elapsed(10*time.Second), agenttest.SettleAs("opa", true)))
	settled.WantEnd(agent.ReasonFinal)
	settled.WantCalls("restart")
	w := settled.Writes[0]
	want(t, "write", []any{w.Result, w.ResolvedBy}, "[performed operator]")
	if settled.Elapsed > 11*time.Second || unknown.Elapsed < 20*time.Second {
		t.Errorf("settled after %s, unknown after %s", settled.Elapsed, unknown.Elapsed)
	}
	// That it did not happen nobody can say before its time has passed.
	settled = run(agenttest.When(agenttest.Elapsed(40*time.Second), agenttest.SettleAs("opa", false)))
	settled.WantCalls("restart: failed")
	want(t, "write", settled.Writes[0].Result, db.WriteNotPerformed)
}

// TestCanceledBeforeItIsPerformedAgain: what did not happen before the run was
// stopped does not happen any more.
func TestCanceledBeforeItIsPerformedAgain(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")),
		agenttest.When(agenttest.ToolBegins("restart"), agenttest.Cancel(), agenttest.Crash()))
	result.WantEnd(agent.ReasonCanceled)
	w := result.Writes[0]
	want(t, "write", []any{w.Result, w.ResolvedBy, w.Sends, s.count()}, "[not_performed look_up 1 0]")
}

func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	for _, point := range []agenttest.Moment{
		agenttest.BeforeActivity(agent.ActivityBeginRun), agenttest.ModelCalled(), agenttest.BeforeActivity(agent.ActivityPrepareWrite),
		agenttest.PlanWaits(), agenttest.ToolBegins("restart"), agenttest.ToolReturns("restart"), agenttest.BeforeActivity(agent.ActivityEndRun),
	} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint(point, n), func(t *testing.T) {
				t.Parallel()
				s := newServices()
				approve := agenttest.Whenever(agenttest.PlanWaits(), agenttest.ApproveAs("bob"))
				down := agenttest.When(point, agenttest.DatabaseDown(n))
				if point == agenttest.PlanWaits() {
					down = agenttest.When(point, agenttest.DatabaseDown(n), agenttest.ApproveAs("bob"))
				}
				result := suiteOf(t, s, restartOnce).Run("Restart payment-api", down, approve)
				result.WantEnd(agent.ReasonFinal)
				result.WantCalls("restart")
				want(t, "write", []any{s.count(), result.Writes[0].Result, result.Plans[0].Status}, "[1 performed approved]")
			})
		}
	}
}

func TestCrashOfARunThatOnlyReads(t *testing.T) {
	t.Parallel()
	s := newServices()
	script := scripted.ByStep(scripted.Turn{Calls: []scripted.Call{
		{Name: "look", Arguments: `{"service":"a"}`}, {Name: "look", Arguments: `{"service":"b"}`}, {Name: "look", Arguments: `{"service":"c"}`},
	}}, scripted.Turn{Text: "All fail."})
	// The worker dies with three reads under way.
	result := suiteOf(t, s, script).Run("Look", agenttest.When(agenttest.ToolReturns("look"), agenttest.Crash()))
	result.WantEnd(agent.ReasonFinal)
	result.WantCalls("look", "look", "look")
	for _, c := range result.Calls {
		if c.Status != db.CallSucceeded {
			t.Errorf("call %+v", c)
		}
	}
}
