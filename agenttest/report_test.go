package agenttest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	failures []string
	ended    bool
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.FailNow()
}

func (r *recorder) FailNow() {
	r.ended = true
	runtime.Goexit()
}

// failing runs a test that is to fail and returns what it said.
func failing(t *testing.T, test func(t testing.TB)) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	if len(r.failures) == 0 && !r.ended {
		t.Error("the test passed")
	}
	return r
}

// says fails the test unless the first failure contains all parts.
func says(t *testing.T, r *recorder, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if len(r.failures) == 0 || !strings.Contains(r.failures[0], part) {
			t.Errorf("it does not say %q: %q", part, r.failures)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(*agenttest.Config){
		"give a Script or a Model":     func(c *agenttest.Config) { c.Script = nil },
		"and not both":                 func(c *agenttest.Config) { c.Model = scripted.New(c.Script) },
		"does not have: look, restart": func(c *agenttest.Config) { c.Tools = nil },
		"definition turns off the Summaries": func(c *agenttest.Config) {
			c.Summaries, c.Definition.Summary.Off = true, true
		},
		"Patience is negative":         func(c *agenttest.Config) { c.Patience = -1 },
		`"restart": the name is taken`: func(c *agenttest.Config) { c.Tools = append(c.Tools, newServices().tools()[1]) },
		"no file *.cedar":              func(c *agenttest.Config) { c.Policies = fstest.MapFS{} },
		`model "gpt-4.1" is listed twice`: func(c *agenttest.Config) {
			c.Catalogue = []model.Entry{{Name: "gpt-4.1", Provider: "p", Model: "m", ContextWindow: 9, MaxOutputTokens: 9}}
		},
		"name":                              func(c *agenttest.Config) { c.Definition = definition.Definition{} },
		"tool 2 is nil":                     func(c *agenttest.Config) { c.Tools = append(c.Tools, nil) },
		"model must be the name of a model": func(c *agenttest.Config) { c.Definition.Model = "no model" },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			r := failing(t, func(t testing.TB) { suiteOf(t, newServices(), restartOnce, edit) })
			says(t, r, "agenttest: ", want)
			if !r.ended {
				t.Error("the test went on")
			}
		})
	}
}

func TestEventErrors(t *testing.T) {
	t.Parallel()
	look := agenttest.Do(func() {})
	for want, event := range map[string]agenttest.Event{
		`When(ToolBegins("jump"), …): there is no such tool; there are look, restart, fetch_result`: agenttest.When(agenttest.ToolBegins("jump"), look),
		"there is no such activity; there are BeginRun":                                             agenttest.When(agenttest.BeforeActivity("Jump"), look),
		"PlanWaits(), …): there is no action":                                                       agenttest.When(agenttest.PlanWaits()),
		"the time must be more than none":                                                           agenttest.When(agenttest.Elapsed(0), look),
		"a time comes once":                                                                         agenttest.Whenever(agenttest.Elapsed(1), look),
		"Fail is for ToolBegins and ToolReturns":                                                    agenttest.When(agenttest.ModelCalled(), agenttest.Fail(nil)),
		"Wait(-1ns) is negative":                                                                    agenttest.When(agenttest.ModelCalled(), agenttest.Wait(-1)),
		"an Action without content":                                                                 agenttest.When(agenttest.ModelCalled(), agenttest.Action{}),
		"an Event without a moment":                                                                 {},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			r := failing(t, func(t testing.TB) { suiteOf(t, newServices(), restartOnce).Run("Restart", event) })
			says(t, r, want)
		})
	}
}

// TestEventThatNeverCame: what a test says must have happened.
func TestEventThatNeverCame(t *testing.T) {
	t.Parallel()
	for want, event := range map[string]agenttest.Event{
		`ToolReturns("look") never came about`:                   agenttest.When(agenttest.ToolReturns("look"), agenttest.Crash()),
		"Elapsed(3h0m0s) never came about":                       agenttest.When(agenttest.Elapsed(3*time.Hour), agenttest.Cancel()),
		"PlanWaits(): Wait(1h0m0s), Cancel did not come to pass": agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob"), agenttest.Wait(time.Hour), agenttest.Cancel()),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			r := failing(t, func(t testing.TB) {
				suiteOf(t, newServices(), restartOnce).Run("Restart", event, agenttest.Whenever(agenttest.PlanWaits(), agenttest.ApproveAs("bob")))
			})
			says(t, r, want, "the run ended succeeded, final", "PrepareWrite 0.0: plan 1 waits")
		})
	}
	// The second of two events needs a second occurrence.
	r := failing(t, func(t testing.TB) {
		suiteOf(t, newServices(), restartOnce).Run("Restart",
			agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")), agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")))
	})
	says(t, r, "PlanWaits() never came about")
	// One that may come any number of times need not come at all.
	suiteOf(t, newServices(), scripted.ByStep(scripted.Turn{Text: "No."})).Run("Hello", agenttest.Whenever(agenttest.PlanWaits(), agenttest.Crash()))
}

func TestExpectationsFail(t *testing.T) {
	t.Parallel()
	for want, expect := range map[string]func(*agenttest.Result){
		"the run ended succeeded, final, want failed, deadline":  func(r *agenttest.Result) { r.WantEnd(agent.ReasonDeadline) },
		`the answer does not contain "stopped"`:                  func(r *agenttest.Result) { r.WantAnswer("It was", "stopped") },
		`the calls were ["restart"], want ["restart: declined"]`: func(r *agenttest.Result) { r.WantCalls("restart: declined") },
		`approvals were refused as [], want ["bad_signature"]`:   func(r *agenttest.Result) { r.WantRefusals(agent.RefusedSignature) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			r := failing(t, func(t testing.TB) {
				expect(suiteOf(t, newServices(), restartOnce).Run("Restart", agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob"))))
			})
			says(t, r, want)
		})
	}
	r := failing(t, func(t testing.TB) {
		suiteOf(t, newServices(), restartOnce).Run("Restart", agenttest.When(agenttest.PlanWaits(), agenttest.Cancel())).WantAnswer("restarted")
	})
	says(t, r, "there is no answer: the run ended canceled, canceled", "PlanWaits(): Cancel")
}

func TestActionsThatCannotBe(t *testing.T) {
	t.Parallel()
	says(t, failing(t, func(t testing.TB) {
		suiteOf(t, newServices(), restartOnce).Run("Restart", agenttest.When(agenttest.PlanWaits(), agenttest.SendAgain()))
	}), "SendAgain: no token was sent yet")
	says(t, failing(t, func(t testing.TB) {
		suiteOf(t, newServices(), restartOnce).Run("Restart", agenttest.When(agenttest.ModelCalled(), agenttest.CheckPlan(func(agenttest.Plan) {})))
	}), "there is no plan yet")
	says(t, failing(t, func(t testing.TB) {
		suiteOf(t, newServices(), restartOnce).Run("Restart", agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("not an id")))
	}), "cannot be signed: sign approval: the approver must be")
	says(t, failing(t, func(t testing.TB) {
		suiteOf(t, newServices(), restartOnce).Run("Restart", agenttest.When(agenttest.PlanWaits(), agenttest.SettleAs("opa", true)))
	}), "SettleAs: there is no write yet")
	for operator, want := range map[string]string{"bob": "bob may not settle this write", "opa": "the outcome was known already: performed"} {
		says(t, failing(t, func(t testing.TB) {
			suiteOf(t, newServices(), restartOnce).Run("Restart", agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")),
				agenttest.When(agenttest.AfterActivity(agent.ActivityCommitWrite), agenttest.SettleAs(operator, true)))
		}), want)
	}
}

// TestDatabaseDownForGood: virtual time would let a run try for ever.
func TestDatabaseDownForGood(t *testing.T) {
	t.Parallel()
	r := failing(t, func(t testing.TB) {
		suiteOf(t, newServices(), restartOnce).Run("Restart",
			agenttest.When(agenttest.BeforeActivity(agent.ActivityBeginRun), agenttest.DatabaseDown(1_000_000)))
	})
	says(t, r, "the workflow failed", "EndRun failed 200 times in a row", "database unavailable")
}

// TestFatalInAnAction: a function of the test may end it.
func TestFatalInAnAction(t *testing.T) {
	t.Parallel()
	for _, moment := range []agenttest.Moment{agenttest.PlanWaits(), agenttest.ToolBegins("restart"), agenttest.ModelCalled()} {
		r := failing(t, func(t testing.TB) {
			suiteOf(t, newServices(), restartOnce).Run("Restart",
				agenttest.When(moment, agenttest.Do(func() { t.Fatalf("enough") })), agenttest.Whenever(agenttest.PlanWaits(), agenttest.ApproveAs("bob")))
			t.Errorf("the test went on")
		})
		if fmt.Sprint(r.failures) != "[enough]" || !r.ended {
			t.Errorf("%s: %q", moment, r.failures)
		}
	}
}

// TestStandstill: a tool that does not return ends the test, not the patience of
// who waits for it.
func TestStandstill(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	stuck, err := tool.NewRead(tool.Spec{
		Name: "look", Version: "1", Description: "Waits.", Risk: tool.Read, Source: "test", Parameters: []byte(`{"type":"object","properties":{}}`),
	}, func(context.Context, tool.Invocation, struct{}) (tool.Result, error) {
		<-release
		return tool.Text("done"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r := failing(t, func(t testing.TB) {
		agenttest.New(t, agenttest.Config{
			Definition: definitionOf(t, strings.Replace(operator, "look, restart", "look", 1)), Tools: []tool.Tool{stuck},
			Script: scripted.ByStep(calls("look", `{}`)), Patience: time.Second,
		}).Run("Wait")
	})
	close(release)
	says(t, r, "the run stood still for 1s", "raise Config.Patience", "calls look")
}

// BenchmarkWrite measures a run with a read, a write and its confirmation.
func BenchmarkWrite(b *testing.B) {
	for b.Loop() {
		suiteOf(b, newServices(), lookAndRestart).Run("Restart payment-api", agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")))
	}
}
