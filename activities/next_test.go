package activities_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

func TestNextActionIsIdempotent(t *testing.T) {
	t.Parallel()
	// The model takes its time, so that all of them meet.
	b := setup(t, options{script: func(ctx context.Context, req model.Request) (scripted.Turn, error) {
		turn, err := twoSteps(ctx, req)
		turn.Delay = 50 * time.Millisecond
		return turn, err
	}})
	g := b.start()
	var mu sync.Mutex
	seen := map[string]int{}
	together(16, func(int) {
		action, err := b.runs.NextAction(b.ctx, g.next(0, 0))
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		seen[fmt.Sprintf("%+v", action.Calls)+fmt.Sprint(action.Usage)]++
		mu.Unlock()
	})
	// Another worker is told the same.
	other, err := b.worker(options{script: twoSteps}).NextAction(b.ctx, g.next(0, 0))
	if err != nil || len(other.Calls) != 1 {
		t.Errorf("another worker says %+v, %v", other, err)
	}
	if len(seen) != 1 || b.calls.of("model") != 1 || b.rows("model_attempt") != 1 || b.rows("tool_call") != 1 {
		t.Errorf("%d answers, bought %d times, %d attempts, %d calls", len(seen), b.calls.of("model"), b.rows("model_attempt"), b.rows("tool_call"))
	}
}

func TestFinalIsIdempotent(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	g := b.start()
	first, again := b.act(g.next(0, 0)), b.act(g.next(0, 0))
	if first.Kind != agent.ActionFinal || first.AnswerMessageID != again.AnswerMessageID || first.Usage != again.Usage {
		t.Fatalf("got %+v and %+v", first, again)
	}
	if n := b.rows("message"); n != 2 {
		t.Errorf("%d messages, want question and answer", n)
	}
}

func TestLostAttemptIsBilledOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	g := b.start()
	hung := make(chan struct{})
	release := make(chan struct{})
	dead := b.worker(options{script: func(context.Context, model.Request) (scripted.Turn, error) {
		close(hung)
		<-release
		return scripted.Turn{Text: "too late"}, nil
	}})
	var late error
	var lateAction agent.Action
	done := make(chan struct{})
	go func() {
		defer close(done)
		lateAction, late = dead.NextAction(b.ctx, g.next(0, 0))
	}()
	<-hung
	reserved := b.show(g).Attempts()[0].Reserved

	b.runs = b.worker(options{script: scripted.ByStep(scripted.Turn{Text: "in time", Usage: &model.Usage{InputTokens: 100, OutputTokens: 10}})})
	action := b.act(g.next(0, 0))
	want := agent.Usage{
		Attempts: 2, InputTokens: 100, OutputTokens: 10, BilledTokens: reserved.Tokens + 110,
		CostMicros: *reserved.CostMicros + 120, UnknownAttempts: 1,
	}
	if action.Kind != agent.ActionFinal || action.Usage != want {
		t.Fatalf("got %+v, want usage %+v", action, want)
	}
	if again := b.act(g.next(0, 0)); again.Usage != want {
		t.Fatalf("asked again: %+v", again.Usage)
	}
	if a := b.show(g).Attempts()[0]; a.Status != db.AttemptLost || *a.Billed.CostMicros != *reserved.CostMicros {
		t.Errorf("the first attempt is %+v", a)
	}
	close(release)
	<-done
	// The first worker finds its attempt ended and tells what was recorded.
	if late != nil || lateAction.AnswerMessageID != action.AnswerMessageID || lateAction.Usage != want {
		t.Fatalf("the late worker says %+v, %v", lateAction, late)
	}
	result := b.finish(g, agent.ReasonFinal, 1, action.AnswerMessageID)
	if result.Usage != want || b.show(g).Answer != "in time" {
		t.Fatalf("result %+v", result)
	}
	b.checkLedger(result)
	b.checkDaily()
}

// TestLostTryIsToldByTheNext covers a try that failed as an activity: its
// attempt counts in the usage of the next try, and in no other.
func TestLostTryIsToldByTheNext(t *testing.T) {
	t.Parallel()
	b := setup(t, options{script: func(_ context.Context, req model.Request) (scripted.Turn, error) {
		return scripted.Turn{Err: &model.Error{Kind: model.KindUnavailable}}, nil
	}})
	g := b.start()
	open := b.insertOpen(g, 0, 1, 0)
	first := b.act(g.next(0, 1))
	if first.Usage.Attempts != 2 || first.Usage.UnknownAttempts != 2 || first.Usage.BilledTokens <= open {
		t.Fatalf("usage %+v", first.Usage)
	}
	second := b.act(g.next(0, 2))
	if second.Usage.Attempts != 1 {
		t.Fatalf("usage %+v", second.Usage)
	}
	result := b.finish(g, agent.ReasonModelUnavailable, 0, "")
	if result.Usage != first.Usage.Add(second.Usage) {
		t.Fatalf("the actions told %+v, the ledger has %+v", first.Usage.Add(second.Usage), result.Usage)
	}
	b.checkLedger(result)
}

// insertOpen stores an open attempt of 5,000 reserved tokens.
func (b *bundle) insertOpen(g begun, step, attempt, try int) int64 {
	b.Helper()
	b.exec(`INSERT INTO model_attempt (tenant, run_id, step, attempt, try, model, provider, status, reserved_tokens, reserved_cost_micros)
		VALUES ($1, $2, $3, $4, $5, 'priced', 'scripted', 'started', 5000, 6000)`, g.req.Tenant, g.req.RunID, step, attempt, try)
	b.exec(`INSERT INTO ledger_entry (tenant, run_id, step, attempt, kind, tokens, cost_micros, usage_known)
		VALUES ($1, $2, $3, $4, 'reserve', 5000, 6000, false)`, g.req.Tenant, g.req.RunID, step, attempt)
	return 5000
}

func TestLostAttemptLeavesLess(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	g := b.start()
	b.insertOpen(g, 0, 1, 0)
	in := g.next(0, 0)
	in.TokensLeft = 5_010
	action := b.act(in)
	if action.Failure == nil || action.Failure.Code != agent.FailureTokenLimit || action.Usage.BilledTokens != 5_000 || action.Usage.UnknownAttempts != 1 {
		t.Fatalf("got %+v", action)
	}
	if again := b.act(in); again.Usage != action.Usage {
		t.Fatalf("asked again: %+v", again.Usage)
	}
	b.checkLedger(b.finish(g, agent.ReasonTokenLimit, 0, ""))
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	var asked int64
	b.runs = b.worker(options{script: func(_ context.Context, req model.Request) (scripted.Turn, error) {
		asked = req.MaxOutputTokens
		return scripted.Turn{Text: "fine"}, nil
	}})
	reserve := func() int64 {
		g := b.start()
		b.act(g.next(0, 0))
		return b.show(g).Attempts()[0].Reserved.Tokens
	}()
	input := reserve - 1_000
	if asked != 1_000 {
		t.Fatalf("asked for %d output tokens, want the model's 1000", asked)
	}
	for _, c := range []struct {
		name         string
		tokens, cost int64
		want         agent.FailureCode
		asked        int64
	}{
		{"room for all", reserve, -1, "", 1_000},
		{"less output", input + 300, -1, "", 300},
		{"least output", input + 64, -1, "", 64},
		{"too little", input + 63, -1, agent.FailureTokenLimit, 0},
		{"nothing", 0, -1, agent.FailureTokenLimit, 0},
		// Input costs 1 a token, output 2.
		{"cost for all", 1_000_000, input + 2_000, "", 1_000},
		{"cost for less", 1_000_000, input + 601, "", 300},
		{"too dear", 1_000_000, input + 127, agent.FailureCostLimit, 0},
		{"no money", 1_000_000, 0, agent.FailureCostLimit, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := b.start()
			in := g.next(0, 0)
			in.TokensLeft, in.CostLeftMicros = c.tokens, c.cost
			action := b.act(in)
			if c.want != "" {
				if action.Failure == nil || action.Failure.Code != c.want || len(b.show(g).Attempts()) != 0 {
					t.Fatalf("got %+v", action)
				}
				return
			}
			if action.Kind != agent.ActionFinal || asked != c.asked {
				t.Fatalf("got %+v, asked for %d, want %d", action, asked, c.asked)
			}
		})
	}
}

// TestDailyBudgetIsNeverExceeded lets twenty runs reserve at once on two workers
// while the tenant has room for seven.
func TestDailyBudgetIsNeverExceeded(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	g := b.start()
	b.act(g.next(0, 0))
	reserve := b.show(g).Attempts()[0].Reserved.Tokens
	b.exec("TRUNCATE daily_usage")
	limit := 7*reserve + reserve/2

	limits := activities.Limits{DailyTokens: limit}
	release := make(chan struct{})
	script := func(context.Context, model.Request) (scripted.Turn, error) {
		<-release
		return scripted.Turn{Text: "fine", NoUsage: true}, nil
	}
	workers := []*activities.Runs{b.worker(options{script: script, limits: limits}), b.worker(options{script: script, limits: limits})}
	games := make([]begun, 20)
	for i := range games {
		games[i] = b.start()
	}
	actions := make([]agent.Action, len(games))
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		together(len(games), func(i int) {
			var err error
			if actions[i], err = workers[i%2].NextAction(b.ctx, games[i].next(0, 0)); err != nil {
				t.Error(err)
			}
		})
	}()
	for b.number("SELECT count(*) FROM model_attempt WHERE status = 'started'") < 7 {
		time.Sleep(time.Millisecond)
	}
	if used := b.number("SELECT tokens FROM daily_usage WHERE user_id = ''"); used > limit {
		t.Errorf("%d tokens are reserved, the limit is %d", used, limit)
	}
	close(release)
	<-finished
	final, refused := 0, 0
	for _, a := range actions {
		switch {
		case a.Kind == agent.ActionFinal:
			final++
		case a.Failure != nil && a.Failure.Code == agent.FailureTokenLimit && a.Failure.Detail == "tenant_daily_tokens":
			refused++
		default:
			t.Errorf("got %+v", a)
		}
	}
	if final != 7 || refused != 13 {
		t.Errorf("%d answered and %d refused, want 7 and 13", final, refused)
	}
	if used := b.number("SELECT tokens FROM daily_usage WHERE user_id = ''"); used != 7*reserve {
		t.Errorf("%d tokens used, want %d", used, 7*reserve)
	}
}

func TestDailyCostLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, options{limits: activities.Limits{UserDailyCostMicros: 10}})
	g := b.start()
	b.insertOpen(g, 0, 1, 0)
	action := b.act(g.next(0, 0))
	if action.Failure == nil || action.Failure.Code != agent.FailureCostLimit || action.Failure.Detail != "user_daily_cost" {
		t.Fatalf("got %+v", action)
	}
	// The limit undid the transaction, but not the settle of the lost attempt.
	if action.Usage.UnknownAttempts != 1 || action.Usage.BilledTokens != 5_000 {
		t.Fatalf("usage %+v", action.Usage)
	}
	b.checkLedger(b.finish(g, agent.ReasonCostLimit, 0, ""))
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		turn  scripted.Turn
		model string
		check func(u agent.Usage, reserved db.Amount) bool
	}{
		{
			"reported",
			scripted.Turn{Text: "a", Usage: &model.Usage{InputTokens: 10, CachedInputTokens: 4, OutputTokens: 5}},
			"priced",
			func(u agent.Usage, _ db.Amount) bool {
				return u == agent.Usage{Attempts: 1, InputTokens: 10, CachedInputTokens: 4, OutputTokens: 5, BilledTokens: 15, CostMicros: 20}
			},
		},
		{
			"missing",
			scripted.Turn{Text: "a", NoUsage: true},
			"priced",
			func(u agent.Usage, r db.Amount) bool {
				return u == agent.Usage{Attempts: 1, BilledTokens: r.Tokens, CostMicros: *r.CostMicros, UnknownAttempts: 1}
			},
		},
		{
			"impossible",
			scripted.Turn{Text: "a", Usage: &model.Usage{}},
			"priced",
			func(u agent.Usage, r db.Amount) bool { return u.UnknownAttempts == 1 && u.BilledTokens == r.Tokens },
		},
		{
			"unpriced",
			scripted.Turn{Text: "a", Usage: &model.Usage{InputTokens: 10, OutputTokens: 5}},
			"unpriced",
			func(u agent.Usage, r db.Amount) bool {
				return r.CostMicros == nil && u == agent.Usage{Attempts: 1, InputTokens: 10, OutputTokens: 5, BilledTokens: 15, UnpricedAttempts: 1}
			},
		},
		{
			"refused beforehand",
			scripted.Turn{Err: &model.Error{Kind: model.KindRateLimited}},
			"priced",
			func(u agent.Usage, _ db.Amount) bool { return u == agent.Usage{Attempts: 1} },
		},
		{
			"failed on the way",
			scripted.Turn{Err: &model.Error{Kind: model.KindUnavailable}},
			"priced",
			func(u agent.Usage, r db.Amount) bool { return u.UnknownAttempts == 1 && u.BilledTokens == r.Tokens },
		},
		{
			"failed with usage",
			scripted.Turn{Err: &model.Error{Kind: model.KindUnavailable, Usage: &model.Usage{InputTokens: 7, OutputTokens: 1}}},
			"priced",
			func(u agent.Usage, _ db.Amount) bool { return u.UnknownAttempts == 0 && u.BilledTokens == 8 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, options{script: scripted.ByStep(c.turn), edit: func(d *definition.Definition) { d.Model = c.model }})
			g := b.start()
			action := b.act(g.next(0, 0))
			attempt := b.show(g).Attempts()[0]
			if !c.check(action.Usage, attempt.Reserved) {
				t.Errorf("usage %+v, reserved %+v", action.Usage, attempt.Reserved)
			}
			reason := agent.ReasonModelUnavailable
			if action.Kind == agent.ActionFinal {
				reason = agent.ReasonFinal
			}
			result := b.finish(g, reason, 1, action.AnswerMessageID)
			if result.Usage != action.Usage {
				t.Errorf("the action told %+v, the ledger has %+v", action.Usage, result.Usage)
			}
			b.checkLedger(result)
			b.checkDaily()
		})
	}
}

func TestClassification(t *testing.T) {
	t.Parallel()
	failing := func(kind model.Kind) scripted.Turn {
		return scripted.Turn{Err: &model.Error{Kind: kind, RetryAfter: 3 * time.Second, Err: errors.New(canary)}}
	}
	calls := func(n int) (list []scripted.Call) {
		for range n {
			list = append(list, scripted.Call{Name: "look", Arguments: `{"at":"here"}`})
		}
		return list
	}
	for _, c := range []struct {
		name      string
		turn      scripted.Turn
		want      agent.FailureCode
		detail    string
		retryable bool
	}{
		{"rate limited", failing(model.KindRateLimited), agent.FailureRateLimited, "", true},
		{"unavailable", failing(model.KindUnavailable), agent.FailureUnavailable, "", true},
		{"timeout", failing(model.KindTimeout), agent.FailureTimeout, "", true},
		{"authentication", failing(model.KindAuthentication), agent.FailureAuthentication, "", false},
		{"invalid request", failing(model.KindInvalidRequest), agent.FailureInvalidRequest, "", false},
		{"overflow", failing(model.KindContextOverflow), agent.FailureContextOverflow, "", false},
		{"content policy", failing(model.KindContentPolicy), agent.FailureContentPolicy, "", false},
		{"protocol", failing(model.KindMalformed), agent.FailureMalformedOutput, "protocol", false},
		{"unknown kind", failing("odd"), agent.FailureInternal, "model_error", false},
		{"cut", scripted.Turn{Text: "half " + canary, Err: &model.Error{Kind: model.KindUnavailable}}, agent.FailureStreamCut, "", false},
		{"truncated", scripted.Turn{Text: "half", Finish: model.FinishLength}, agent.FailureOutputTruncated, "", false},
		{"truncated call", scripted.Turn{Calls: calls(1), Finish: model.FinishLength}, agent.FailureOutputTruncated, "", false},
		{"filtered", scripted.Turn{Text: "x", Finish: model.FinishContentFilter}, agent.FailureContentPolicy, "", false},
		{"nothing", scripted.Turn{}, agent.FailureMalformedOutput, "empty", false},
		{"blank", scripted.Turn{Text: " \n"}, agent.FailureMalformedOutput, "empty", false},
		{"no name", scripted.Turn{Calls: []scripted.Call{{Name: " "}}}, agent.FailureMalformedOutput, "call_without_name", false},
		{"too many calls", scripted.Turn{Calls: calls(65)}, agent.FailureMalformedOutput, "too_many_calls", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, options{script: scripted.ByStep(c.turn)})
			g := b.start()
			action := b.act(g.next(0, 0))
			f := action.Failure
			if action.Kind != agent.ActionFailure || f == nil || f.Code != c.want || f.Detail != c.detail || f.Retryable != c.retryable {
				t.Fatalf("got %+v, failure %+v", action, f)
			}
			if c.retryable && f.RetryAfter != 3*time.Second {
				t.Errorf("retry after %s", f.RetryAfter)
			}
			if again := b.act(g.next(0, 0)); again.Failure == nil || *again.Failure != *f || b.calls.of("model") != 1 {
				t.Errorf("asked again: %+v", again)
			}
			if n := b.rows("message"); n != 1 {
				t.Errorf("%d messages, want the question alone", n)
			}
			b.checkLedger(b.finish(g, agent.ReasonInternal, 1, ""))
		})
	}
}

type crashing struct{}

func (crashing) Generate(context.Context, model.Request, func(model.Delta)) (model.Response, error) {
	panic("secret " + canary)
}

type confused struct{}

func (confused) Generate(context.Context, model.Request, func(model.Delta)) (model.Response, error) {
	return model.Response{
		Finish: model.FinishToolCalls,
		Calls:  []model.ToolCall{{ID: "x", Name: "look", Arguments: "{}"}, {ID: "x", Name: "look", Arguments: "{}"}},
	}, nil
}

type nameless struct{}

func (nameless) Generate(context.Context, model.Request, func(model.Delta)) (model.Response, error) {
	return model.Response{
		Finish: model.FinishToolCalls, Text: "bad \x00 \xff text",
		Calls: []model.ToolCall{{Name: "look", Arguments: `{"at":"a"}`}, {Name: "look", Arguments: "{\"at\": \x00\xff"}},
	}, nil
}

func TestModelMisbehaves(t *testing.T) {
	t.Parallel()
	t.Run("panics", func(t *testing.T) {
		t.Parallel()
		b := setup(t, options{model: crashing{}})
		action := b.act(b.start().next(0, 0))
		if action.Failure == nil || action.Failure.Code != agent.FailureInternal || action.Failure.Detail != "model_panic" {
			t.Fatalf("got %+v", action)
		}
		if strings.Contains(b.log.String(), canary) {
			t.Error("the log repeats the panic")
		}
	})
	t.Run("same ID twice", func(t *testing.T) {
		t.Parallel()
		b := setup(t, options{model: confused{}})
		action := b.act(b.start().next(0, 0))
		if action.Failure == nil || action.Failure.Detail != "duplicate_call_id" {
			t.Fatalf("got %+v", action)
		}
	})
	t.Run("bytes that cannot be stored", func(t *testing.T) {
		t.Parallel()
		b := setup(t, options{model: nameless{}})
		action := b.act(b.start().next(0, 0))
		if len(action.Calls) != 2 || action.Calls[0].Refused != nil || action.Calls[1].Refused == nil || action.Calls[1].Refused.Code != agent.ToolInvalidArguments {
			t.Fatalf("got %+v", action)
		}
	})
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	hang := scripted.ByStep(scripted.Turn{Hang: true})
	quick := model.Entry{Name: "quick", Provider: "scripted", Model: "quick", ContextWindow: 32_000, MaxOutputTokens: 1_000, Timeout: 50 * time.Millisecond}
	onQuick := func(d *definition.Definition) { d.Model = "quick" }
	t.Run("of the attempt", func(t *testing.T) {
		t.Parallel()
		b := setup(t, options{script: hang, entries: []model.Entry{quick}, edit: onQuick})
		action := b.act(b.start().next(0, 0))
		if action.Failure == nil || *action.Failure != (agent.Failure{Code: agent.FailureTimeout, Retryable: true}) || action.Usage.UnknownAttempts != 1 {
			t.Fatalf("got %+v", action)
		}
	})
	t.Run("of the attempt, after output", func(t *testing.T) {
		t.Parallel()
		b := setup(t, options{script: scripted.ByStep(scripted.Turn{Text: "half", Hang: true}), entries: []model.Entry{quick}, edit: onQuick})
		action := b.act(b.start().next(0, 0))
		if action.Failure == nil || action.Failure.Code != agent.FailureStreamCut || action.Failure.Retryable {
			t.Fatalf("got %+v", action)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		b := setup(t, options{script: hang})
		in := b.start().next(0, 0)
		in.Deadline = time.Now().Add(50 * time.Millisecond)
		action := b.act(in)
		if action.Failure == nil || action.Failure.Code != agent.FailureDeadline || action.Usage.UnknownAttempts != 1 {
			t.Fatalf("got %+v", action)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(context.Background())
		b := setup(t, options{script: func(ctx context.Context, _ model.Request) (scripted.Turn, error) {
			cancel()
			return scripted.Turn{Hang: true}, nil
		}})
		g := b.start()
		if _, err := b.runs.NextAction(ctx, g.next(0, 0)); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		if a := b.show(g).Attempts()[0]; a.Status != db.AttemptCanceled || a.UsageKnown || a.Billed.Tokens != a.Reserved.Tokens {
			t.Fatalf("attempt %+v", a)
		}
		b.checkLedger(b.finish(g, agent.ReasonCanceled, 0, ""))
		b.checkDaily()
	})
}
