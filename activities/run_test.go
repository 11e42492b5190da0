package activities_test

import (
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

// twoSteps looks once and answers.
var twoSteps = scripted.ByStep(
	scripted.Turn{Text: "let me look", Calls: []scripted.Call{{Name: "look", Arguments: `{"at": "here"}`}}, Usage: &model.Usage{InputTokens: 100, OutputTokens: 10}},
	scripted.Turn{Text: "done " + canary, Usage: &model.Usage{InputTokens: 150, CachedInputTokens: 50, OutputTokens: 20}},
)

func TestWholeRun(t *testing.T) {
	t.Parallel()
	b := setup(t, options{script: twoSteps})
	g := b.start()
	if !g.out.Admitted || g.out.Generation != 1 || g.out.Route.Model != "priced" || !g.out.Route.Local {
		t.Fatalf("begun as %+v", g.out)
	}
	first := b.act(g.next(0, 0))
	if first.Kind != agent.ActionCalls || len(first.Calls) != 1 || first.Calls[0].ID != "0.0" || !first.Calls[0].Local || first.Calls[0].Refused != nil {
		t.Fatalf("first action %+v", first)
	}
	want := agent.Usage{Attempts: 1, InputTokens: 100, OutputTokens: 10, BilledTokens: 110, CostMicros: 120}
	if first.Usage != want {
		t.Fatalf("usage %+v, want %+v", first.Usage, want)
	}
	outcome := b.observe(g.read(0, first.Calls[0]))
	if outcome.Error != nil || outcome.End != "" || outcome.ResultHash == "" {
		t.Fatalf("outcome %+v", outcome)
	}
	second := b.act(g.next(1, 0))
	if second.Kind != agent.ActionFinal || second.AnswerMessageID == "" {
		t.Fatalf("second action %+v", second)
	}
	result := b.finish(g, agent.ReasonFinal, 2, second.AnswerMessageID)
	if result.Status != agent.StatusSucceeded || result.Steps != 2 || result.ToolCalls != 1 || len(result.Actions) != 1 ||
		result.Actions[0] != (agent.CompletedAction{CallID: "0.0", Tool: "look"}) {
		t.Fatalf("result %+v", result)
	}
	want = agent.Usage{Attempts: 2, InputTokens: 250, CachedInputTokens: 50, OutputTokens: 30, BilledTokens: 280, CostMicros: 310}
	if result.Usage != want {
		t.Fatalf("usage %+v, want %+v", result.Usage, want)
	}
	b.checkLedger(result)
	b.checkDaily()
	report := b.show(g)
	if report.Answer != "done "+canary || len(report.Transitions) != 3 || len(report.Steps) != 2 {
		t.Fatalf("report %+v", report)
	}
}
