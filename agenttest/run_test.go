package agenttest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// onModel makes the agent use another model of the catalogue.
func onModel(name string) func(*agenttest.Config) {
	return func(c *agenttest.Config) { c.Definition.Model = name }
}

// each runs a test for models whose calls are queued and local activities.
func each(t *testing.T, check func(t *testing.T, edit func(*agenttest.Config))) {
	t.Parallel()
	local := model.Entry{
		Name: "local", Provider: "own", Model: "local", ContextWindow: 32_000, MaxOutputTokens: 1000, Mode: model.ModeLocal, Timeout: 5 * time.Minute,
	}
	for _, name := range []string{"gpt-4.1-mini", "local", "unheard-of"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, func(c *agenttest.Config) {
				onModel(name)(c)
				c.Definition.Budget.AllowUnpriced, c.Catalogue = true, []model.Entry{local}
			})
		})
	}
}

func TestReads(t *testing.T) {
	each(t, func(t *testing.T, edit func(*agenttest.Config)) {
		result := suiteOf(t, newServices(), scripted.ByStep(calls("look", `{"service":"b", "service2": 1}`), calls("look", `{"service":"b"}`), scripted.Turn{Text: "It fails."}), edit).Run("How is b?")
		result.WantEnd(agent.ReasonFinal)
		result.WantAnswer("fails")
		result.WantCalls("look: invalid_arguments", "look")
		if shown := result.Calls[1].Shown; !strings.Contains(shown, `"state":"failing"`) {
			t.Errorf("the model was shown %s", shown)
		}
		if last := result.Prompts[2].Messages; last[len(last)-1].Role != model.RoleTool {
			t.Errorf("the last prompt ends with %+v", last[len(last)-1])
		}
		want(t, "usage", []any{result.Usage.Attempts, result.Usage.BilledTokens > 0}, "[3 true]")
	})
}

// TestSlowModel: its delays pass in virtual time and count.
func TestSlowModel(t *testing.T) {
	each(t, func(t *testing.T, edit func(*agenttest.Config)) {
		began := time.Now()
		suite := suiteOf(t, newServices(), scripted.ByStep(scripted.Turn{Text: "Well.", Delay: 100 * time.Second}), edit)
		result := suite.Run("Think")
		result.WantEnd(agent.ReasonFinal)
		if result.Elapsed < 100*time.Second || result.Elapsed > 101*time.Second {
			t.Errorf("%s passed\n%s", result.Elapsed, result.Story())
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// TestModelThatHangs lets the run's time pass in the middle of an attempt.
func TestModelThatHangs(t *testing.T) {
	each(t, func(t *testing.T, edit func(*agenttest.Config)) {
		for _, turn := range []scripted.Turn{{Hang: true}, {Text: "I think", Hang: true}, {Text: "Late.", Delay: time.Hour}} {
			result := suiteOf(t, newServices(), scripted.ByStep(turn), edit).Run("Think")
			result.WantEnd(agent.ReasonDeadline)
			if result.Elapsed < 2*time.Minute || result.Elapsed > 3*time.Minute {
				t.Errorf("it ended after %s\n%s", result.Elapsed, result.Story())
			}
			want(t, "attempts", result.Usage.Attempts, 1)
		}
	})
}

// TestAttemptTimesOut: each attempt at scripted-local has 10 s.
func TestAttemptTimesOut(t *testing.T) {
	t.Parallel()
	run := func(turn scripted.Turn) *agenttest.Result {
		return suiteOf(t, newServices(), scripted.ByStep(turn), onModel("scripted-local")).Run("Think")
	}
	// Nothing arrived: another try. The definition allows four.
	for _, turn := range []scripted.Turn{{Hang: true}, {Text: "Late.", Delay: 11 * time.Second}} {
		silent := run(turn)
		silent.WantEnd(agent.ReasonModelUnavailable)
		want(t, "attempts", []any{silent.Usage.Attempts, silent.Detail}, "[4 timeout]")
	}
	// A stream that stops is not tried again.
	cut := run(scripted.Turn{Text: "I think", Hang: true})
	cut.WantEnd(agent.ReasonOutputTruncated)
	want(t, "attempts", []any{cut.Usage.Attempts, cut.Detail}, "[1 stream_cut]")
	run(scripted.Turn{Text: "In time.", Delay: 9 * time.Second}).WantAnswer("In time.")
}

func TestModelFailures(t *testing.T) {
	t.Parallel()
	failures := 0
	script := func(context.Context, model.Request) (scripted.Turn, error) {
		if failures++; failures < 3 {
			return scripted.Turn{Err: &model.Error{Kind: model.KindRateLimited, RetryAfter: 10 * time.Second}}, nil
		}
		return scripted.Turn{Text: "At last."}, nil
	}
	result := suiteOf(t, newServices(), script).Run("Try")
	result.WantAnswer("At last.")
	if result.Elapsed < 20*time.Second {
		t.Errorf("%s passed", result.Elapsed)
	}
}

func TestOwnModel(t *testing.T) {
	t.Parallel()
	result := suiteOf(t, newServices(), nil, func(c *agenttest.Config) {
		c.Model = scripted.New(scripted.ByStep(scripted.Turn{Text: "Mine."}))
	}).Run("Who are you?")
	result.WantAnswer("Mine.")
}

// TestStopWhileTheModelThinks stops a run at its slowest point.
func TestStopWhileTheModelThinks(t *testing.T) {
	each(t, func(t *testing.T, edit func(*agenttest.Config)) {
		thinking := scripted.ByStep(scripted.Turn{Text: "Well.", Delay: time.Minute})
		for _, moment := range []agenttest.Moment{agenttest.Elapsed(20 * time.Second), agenttest.ModelCalled()} {
			canceled := suiteOf(t, newServices(), thinking, edit).Run("Think", agenttest.When(moment, agenttest.Cancel()))
			canceled.WantEnd(agent.ReasonCanceled)
			if canceled.Elapsed > 30*time.Second {
				t.Errorf("%s: it went on until %s\n%s", moment, canceled.Elapsed, canceled.Story())
			}
			superseded := suiteOf(t, newServices(), thinking, edit).Run("Think", agenttest.When(moment, agenttest.Supersede("Stop thinking.")))
			superseded.WantEnd(agent.ReasonSuperseded)
		}
	})
}

func TestCrashWhileTheModelThinks(t *testing.T) {
	each(t, func(t *testing.T, edit func(*agenttest.Config)) {
		result := suiteOf(t, newServices(), scripted.ByStep(scripted.Turn{Text: "Well.", Delay: 20 * time.Second}), edit).Run("Think",
			agenttest.When(agenttest.Elapsed(12*time.Second), agenttest.Crash()))
		result.WantAnswer("Well.")
		want(t, "attempts", []any{result.Usage.Attempts, result.Usage.UnknownAttempts}, "[2 1]")
		if result.Elapsed < 32*time.Second || result.Elapsed > 60*time.Second {
			t.Errorf("%s passed\n%s", result.Elapsed, result.Story())
		}
	})
}

func TestSlowTool(t *testing.T) {
	t.Parallel()
	look := scripted.ByStep(calls("look", `{"service":"b"}`), scripted.Turn{Text: "Well."})
	result := suiteOf(t, newServices(), look).Run("Look", agenttest.When(agenttest.ToolBegins("look"), agenttest.Wait(20*time.Second)))
	result.WantCalls("look")
	// Its own timeout is 30 s.
	result = suiteOf(t, newServices(), look).Run("Look", agenttest.When(agenttest.ToolReturns("look"), agenttest.Wait(40*time.Second)))
	result.WantCalls("look: timeout")
	if result.Elapsed < 30*time.Second || result.Elapsed > 35*time.Second {
		t.Errorf("%s passed", result.Elapsed)
	}
}

// TestSleepOfATool is for tools that tests write themselves.
func TestSleepOfATool(t *testing.T) {
	t.Parallel()
	slow, err := tool.NewRead(tool.Spec{
		Name: "slow", Version: "1", Description: "Waits.", Risk: tool.Read, Source: "test", Timeout: time.Hour, Parameters: []byte(`{"type":"object","properties":{}}`),
	}, func(ctx context.Context, _ tool.Invocation, _ struct{}) (tool.Result, error) {
		return tool.Text("done"), agenttest.Sleep(ctx, 90*time.Second)
	})
	if err != nil {
		t.Fatal(err)
	}
	run := func(events ...agenttest.Event) *agenttest.Result {
		return agenttest.New(t, agenttest.Config{
			Definition: definitionOf(t, strings.Replace(operator, "look, restart", "slow", 1)), Tools: []tool.Tool{slow},
			Script: scripted.ByStep(calls("slow", `{}`), scripted.Turn{Text: "Well."}),
		}).Run("Wait", events...)
	}
	result := run()
	result.WantCalls("slow")
	if result.Elapsed < 90*time.Second || result.Elapsed > 100*time.Second {
		t.Errorf("%s passed", result.Elapsed)
	}
	run(agenttest.When(agenttest.ToolBegins("slow"), agenttest.Cancel())).WantEnd(agent.ReasonCanceled)
	ctx, cancel := context.WithCancel(context.Background())
	if err := agenttest.Sleep(ctx, time.Millisecond); err != nil {
		t.Error(err)
	}
	cancel()
	if err := agenttest.Sleep(ctx, time.Hour); err == nil {
		t.Error("it slept on")
	}
}

func TestToolFailures(t *testing.T) {
	t.Parallel()
	look := scripted.ByStep(calls("look", `{"service":"b"}`), scripted.Turn{Text: "Well."})
	for name, c := range map[string]struct {
		action agenttest.Action
		want   string
	}{
		"an error for the model": {agenttest.Fail(&tool.Error{Code: agent.ToolQuota, Message: "no more today"}), "look: quota_exceeded"},
		"any other error":        {agenttest.Fail(context.Canceled), "look: failed"},
		"panic":                  {agenttest.Panic(), "look: failed"},
	} {
		for _, moment := range []agenttest.Moment{agenttest.ToolBegins("look"), agenttest.ToolReturns("look")} {
			t.Run(name+"/"+moment.String(), func(t *testing.T) {
				t.Parallel()
				result := suiteOf(t, newServices(), look).Run("Look", agenttest.When(moment, c.action))
				result.WantEnd(agent.ReasonFinal)
				result.WantCalls(c.want)
			})
		}
	}
	// A panic of the tool itself is contained as in production, and its stack is
	// there for who reads why.
	result := suiteOf(t, newServices(), scripted.ByStep(calls("look", `{"service":"crash"}`), scripted.Turn{Text: "Well."})).Run("Look")
	result.WantCalls("look: failed")
	if story := result.Story(); !strings.Contains(story, "harness_test.go") || strings.Contains(story, "a tool of the user broke") {
		t.Errorf("the story is\n%s", story)
	}
}

func TestConversation(t *testing.T) {
	t.Parallel()
	suite := suiteOf(t, newServices(), func(_ context.Context, req model.Request) (scripted.Turn, error) {
		return scripted.Turn{Text: fmt.Sprintf("You said %d things.", len(slices.DeleteFunc(slices.Clone(req.Messages), func(m model.Message) bool { return m.Role != model.RoleUser })))}, nil
	})
	first := suite.Request("One")
	suite.RunRequest(first).WantAnswer("You said 1 things.")
	second := suite.Request("Two")
	second.Conversation = first.Conversation
	suite.RunRequest(second).WantAnswer("You said 2 things.")
	suite.Run("Three").WantAnswer("You said 1 things.")
	// Supersede begins a run that nobody drives; the next one takes over from it.
	third := suite.Request("Three")
	third.Conversation = first.Conversation
	suite.RunRequest(third, agenttest.When(agenttest.ModelCalled(), agenttest.Supersede("Four"))).WantEnd(agent.ReasonSuperseded)
	fifth := suite.Request("Five")
	fifth.Conversation = first.Conversation
	suite.RunRequest(fifth).WantAnswer("You said 5 things.")
	// The same run again is the same run.
	suite.RunRequest(first).WantAnswer("You said 1 things.")
}

func TestRequestThatIsNoRun(t *testing.T) {
	t.Parallel()
	suite := suiteOf(t, newServices(), restartOnce)
	for want, edit := range map[string]func(*agent.RunRequest){
		agent.ErrorInvalidRequest: func(r *agent.RunRequest) { r.Message = "" },
		agent.ErrorUnknownAgent:   func(r *agent.RunRequest) { r.Agent = "nobody" },
	} {
		req := suite.Request("Restart")
		edit(&req)
		result := suite.RunRequest(req)
		refused, ok := result.Err.(*temporal.ApplicationError)
		if !ok || refused.Type() != want {
			t.Errorf("got %v, want %s", result.Err, want)
		}
	}
	req := suite.Request("Restart")
	req.Environment = "test"
	suite.RunRequest(req).WantEnd(agent.ReasonDeclinedByPolicy)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	suite := suiteOf(t, newServices(), scripted.ByStep(scripted.Turn{Text: "Well."}), func(c *agenttest.Config) {
		c.Limits = activities.Limits{UserDailyTokens: 100}
	})
	result := suite.Run("Think")
	result.WantEnd(agent.ReasonTokenLimit)
	want(t, "detail", result.Detail, db.LimitUserTokens)
}

// TestManyHistories lets a run grow beyond one history.
func TestManyHistories(t *testing.T) {
	t.Parallel()
	s := newServices()
	step := 0
	script := func(context.Context, model.Request) (scripted.Turn, error) {
		switch step++; {
		case step == 130:
			return calls("restart", `{"service":"payment-api"}`), nil
		case step < 130:
			return calls("look", fmt.Sprintf(`{"service":"s%d"}`, step)), nil
		}
		return scripted.Turn{Text: "Done."}, nil
	}
	suite := suiteOf(t, s, script, func(c *agenttest.Config) {
		c.Definition.Budget.MaxSteps, c.Definition.Budget.MaxToolCalls, c.Definition.Budget.MaxTokens = 1000, 1000, 10_000_000
		c.Definition.Budget.MaxCostMicros = 0
	})
	result := suite.Run("Look at all", agenttest.When(agenttest.PlanWaits(), agenttest.Wait(time.Minute), agenttest.ApproveAs("bob")),
		agenttest.When(agenttest.Elapsed(30*time.Second), agenttest.SendToken("late")))
	result.WantEnd(agent.ReasonFinal)
	want(t, "calls", []any{len(result.Calls), s.count(), len(result.Refusals)}, "[130 1 1]")
	if !strings.Contains(result.Story(), "new history") {
		t.Errorf("it never continued in a new history")
	}
}
