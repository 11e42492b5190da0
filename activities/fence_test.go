package activities_test

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

func TestSupersededRunIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t, options{script: twoSteps})
	older := b.start()
	calls := b.act(older.next(0, 0)).Calls
	newer := request()
	newer.Conversation = older.req.Conversation
	b.begin(newer)

	if action := b.act(older.next(1, 0)); action.Failure == nil || action.Failure.Code != agent.FailureSuperseded || b.calls.of("model") != 1 {
		t.Errorf("next action: %+v", action)
	}
	if out := b.observe(older.read(0, calls[0])); out.End != agent.ReasonSuperseded || b.calls.of("look") != 0 {
		t.Errorf("read: %+v", out)
	}
	result := b.finish(older, agent.ReasonSuperseded, 1, "")
	if result.Status != agent.StatusCanceled {
		t.Errorf("result %+v", result)
	}
	b.checkLedger(result)
}

// TestLateFinalIsFenced supersedes a run while its model answers.
func TestLateFinalIsFenced(t *testing.T) {
	t.Parallel()
	var b *bundle
	var older begun
	b = setup(t, options{script: func(context.Context, model.Request) (scripted.Turn, error) {
		newer := request()
		newer.Conversation = older.req.Conversation
		if _, err := b.tryBegin(newer); err != nil {
			t.Error(err)
		}
		return scripted.Turn{Text: "late", Usage: &model.Usage{InputTokens: 50, OutputTokens: 5}}, nil
	}})
	older = b.start()
	action := b.act(older.next(0, 0))
	if action.Failure == nil || action.Failure.Code != agent.FailureSuperseded || action.Usage.BilledTokens != 55 {
		t.Fatalf("got %+v", action)
	}
	if n := b.number("SELECT count(*) FROM message WHERE role = 'assistant'"); n != 0 {
		t.Error("a late answer became a message")
	}
	b.checkLedger(b.finish(older, agent.ReasonSuperseded, 1, ""))
}

// TestFinalAfterEndIsFenced ends a run while its model answers, as a local
// activity that was canceled but goes on would find it.
func TestFinalAfterEndIsFenced(t *testing.T) {
	t.Parallel()
	var b *bundle
	var g begun
	b = setup(t, options{script: func(context.Context, model.Request) (scripted.Turn, error) {
		b.checkLedger(b.finish(g, agent.ReasonCanceled, 0, ""))
		return scripted.Turn{Text: "late"}, nil
	}})
	g = b.start()
	action, err := b.runs.NextAction(b.ctx, g.next(0, 0))
	if err == nil {
		t.Fatalf("got %+v", action)
	}
	if again := b.act(g.next(0, 0)); again.Failure == nil || again.Failure.Code != agent.FailureCanceled {
		t.Fatalf("got %+v", again)
	}
	if n := b.rows("message"); n != 1 {
		t.Errorf("%d messages, want the question alone", n)
	}
}
