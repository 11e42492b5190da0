package memstore_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

func attempt(step, number int) db.Attempt {
	return db.Attempt{
		Step: step, Number: number, Model: "m", Provider: "p", Reserved: db.Amount{Tokens: 100, CostMicros: ptr(int64(50))},
	}
}

// billed is an attempt that ended well.
func billed(a db.Attempt, tokens, micros int64) db.Attempt {
	a.Status, a.UsageKnown, a.Finish, a.Revision, a.RequestID = db.AttemptSucceeded, true, "stop", "rev", "req"
	a.Reported = &db.ReportedTokens{Input: tokens - 1, CachedInput: 2, Output: 1}
	a.Billed = &db.Amount{Tokens: tokens, CostMicros: &micros}
	return a
}

func (s *subject) loadStep(q db.StepQuery) (state db.StepState) {
	s.Helper()
	s.do(ada, func(tx activities.Tx) (err error) {
		state, err = tx.LoadStep(ctx, q)
		return err
	})
	return state
}

func (s *subject) usedToday() (used db.DailyUsage) {
	s.Helper()
	s.do(ada, func(tx activities.Tx) error {
		state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "other talk", RunID: "none", Day: today})
		used = state.Used
		return err
	})
	return used
}

var attemptCases = map[string]func(*subject){
	"attempt": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.queue(ada, func(tx activities.Tx) { tx.StartAttempt("r1", attempt(0, 1)) })
		open := s.loadStep(db.StepQuery{RunID: "r1"}).Attempts[0]
		s.want("open", []any{open.Status, open.Reserved.Tokens, *open.Reserved.CostMicros, open.Billed == nil, open.UsageKnown, open.Action == nil}, "[started 100 50 true false true]")
		totals := s.report(r).Totals
		s.want("open totals", []any{totals.OpenAttempts, totals.Usage.Attempts, totals.Usage.BilledTokens, totals.Usage.CostMicros, totals.Usage.UnknownAttempts}, "[1 1 100 50 1]")

		done := billed(attempt(0, 1), 30, 7)
		done.Action = &agent.Action{Kind: agent.ActionFinal, AnswerMessageID: "m1"}
		s.do(ada, func(tx activities.Tx) error { return tx.FinishAttempt("r1", done, &db.Response{Text: "fine"}) })
		got := s.loadStep(db.StepQuery{RunID: "r1"}).Attempts[0]
		s.want("done", []any{got.Status, got.Billed.Tokens, *got.Billed.CostMicros, got.UsageKnown, *got.Reported, got.Action.AnswerMessageID}, "[succeeded 30 7 true {29 2 1} m1]")
		listed := s.report(r).Attempts()[0]
		s.want("listed", []any{listed.Model, listed.Provider, listed.Finish, listed.Revision, listed.RequestID, listed.StartedAt.IsZero(), listed.EndedAt.IsZero()}, "[m p stop rev req false false]")
		s.want("totals", s.report(r).Totals, "{{1 29 2 1 30 7 0 0} 0 0}")
	},
	"prompt reports": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		report := json.RawMessage(`{"question": {"tokens": 7}, "left_out": []}`)
		s.queue(ada, func(tx activities.Tx) {
			for _, number := range []int{1, 2, 3} {
				a := attempt(0, number)
				a.Prompt = report
				tx.StartAttempt("r1", a)
			}
			tx.StartAttempt("r1", attempt(1, 1))
		})
		report[2] = 'X'
		s.do(ada, func(tx activities.Tx) error {
			// Whoever ends an attempt need not know it.
			return errors.Join(tx.FinishAttempt("r1", billed(attempt(0, 1), 30, 7), &db.Response{Text: "fine"}), tx.LoseAttempt("r1", attempt(0, 2)))
		})
		s.closeRun(r, "none", 1)
		for i, want := range []string{"succeeded", "lost", "lost"} {
			a := s.report(r).Attempts()[i]
			s.want("report", []any{a.Status, canonical(a.Prompt)}, "["+want+` {"left_out":[],"question":{"tokens":7}}]`)
		}
		s.want("none", s.report(r).Attempts()[3].Prompt == nil, true)
		s.fails(ada, nil, "", func(tx activities.Tx) {
			a := attempt(2, 1)
			a.Prompt = json.RawMessage(`{"question":`)
			tx.StartAttempt("r1", a)
		})
	},
	"attempt conflicts": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.queue(ada, func(tx activities.Tx) { tx.StartAttempt("r1", attempt(0, 1)) })
		s.fails(ada, db.ErrConflict, "model_attempt_pkey", func(tx activities.Tx) { tx.StartAttempt("r1", attempt(0, 1)) })
		s.fails(ada, nil, "model_attempt_run_fkey", func(tx activities.Tx) { tx.StartAttempt("nowhere", attempt(0, 1)) })
		s.fails(ada, nil, "ledger_entry_attempt_fkey", func(tx activities.Tx) { _ = tx.FinishAttempt("r1", billed(attempt(0, 2), 1, 1), nil) })
		s.do(ada, func(tx activities.Tx) error { return tx.LoseAttempt("r1", attempt(0, 1)) })
		s.fails(ada, db.ErrConflict, "ledger_entry_pkey", func(tx activities.Tx) { _ = tx.FinishAttempt("r1", billed(attempt(0, 1), 30, 7), nil) })
		got := s.report(r).Attempts()[0]
		s.want("the first end stays", []any{got.Status, got.Billed.Tokens, *got.Billed.CostMicros, got.UsageKnown}, "[lost 100 50 false]")
	},
	"unpriced": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		a := attempt(2, 1)
		a.Reserved.CostMicros = nil
		s.queue(ada, func(tx activities.Tx) { tx.StartAttempt("r1", a) })
		a.Status, a.Billed, a.FailureCode = db.AttemptFailed, &db.Amount{Tokens: 4}, agent.FailureTimeout
		s.do(ada, func(tx activities.Tx) error { return tx.FinishAttempt("r1", a, nil) })
		s.want("totals", s.report(r).Totals, "{{1 0 0 0 4 0 1 1} 0 2}")
		s.want("failure", s.report(r).Attempts()[0].FailureCode, agent.FailureTimeout)
	},
	"daily": func(s *subject) {
		s.begin(ada, "talk", "r1")
		amount := func(tokens, micros int64) db.Amount { return db.Amount{Tokens: tokens, CostMicros: &micros} }
		limit := func(n int64) *int64 { return &n }
		s.queue(ada, func(tx activities.Tx) { tx.ReserveDaily(today, amount(60, 6), db.Limits{DailyTokens: limit(60)}) })
		s.queue(bob, func(tx activities.Tx) { tx.ReserveDaily(today, amount(10, 1), db.Limits{}) })
		s.want("used", s.usedToday(), "{{70 7} {60 6}}")
		for _, c := range []struct {
			limits db.Limits
			want   string
		}{
			{db.Limits{DailyTokens: limit(70)}, db.LimitTenantTokens},
			{db.Limits{DailyCostMicros: limit(7)}, db.LimitTenantCost},
			{db.Limits{UserDailyTokens: limit(60)}, db.LimitUserTokens},
			{db.Limits{UserDailyCostMicros: limit(6)}, db.LimitUserCost},
			{db.Limits{DailyCostMicros: limit(0), UserDailyTokens: limit(0)}, db.LimitTenantCost},
		} {
			err := s.InTx(ctx, ada, func(tx activities.Tx) error {
				tx.StartAttempt("r1", attempt(0, 1))
				tx.ReserveDaily(today, amount(1, 1), c.limits)
				return nil
			})
			var over *db.LimitError
			if !errors.As(err, &over) || over.Limit != c.want {
				s.Errorf("got %v, want %s", err, c.want)
			}
		}
		// What costs nothing is not held up by a limit of cost.
		s.queue(ada, func(tx activities.Tx) {
			tx.ReserveDaily(today, db.Amount{Tokens: 1}, db.Limits{DailyCostMicros: limit(0)})
		})
		s.want("a limit undoes all", s.usedToday(), "{{71 7} {61 6}}")
		s.want("attempts", len(s.loadStep(db.StepQuery{RunID: "r1"}).Attempts), 0)
		s.queue(ada, func(tx activities.Tx) { tx.SettleDaily(today, amount(60, 6), amount(20, 9)) })
		s.want("settled", s.usedToday(), "{{31 10} {21 9}}")
		s.queue(ada, func(tx activities.Tx) { tx.SettleDaily(today.AddDate(0, 0, 1), amount(60, 6), amount(20, 9)) })
		s.fails(ada, nil, "daily_usage_tokens_check", func(tx activities.Tx) { tx.SettleDaily(today, amount(60, 0), amount(0, 0)) })
		s.want("as before", s.usedToday(), "{{31 10} {21 9}}")
	},
	"tenant limits": func(s *subject) {
		s.limits("acme", db.Limits{MaxRunning: ptr(int64(3)), UserDailyTokens: ptr(int64(9))})
		s.begin(ada, "talk", "r1")
		l := s.loadStep(db.StepQuery{RunID: "r1"}).Limits
		s.want("limits", []any{*l.MaxRunning, l.MaxRunningPerUser == nil, *l.UserDailyTokens, l.DailyTokens == nil}, "[3 true 9 true]")
	},
	"transcript": func(s *subject) {
		s.begin(ada, "talk", "r1")
		s.answer(s.report(newRun(ada, "", "r1")).Run)
		s.begin(ada, "talk", "r2")
		s.begin(ada, "talk", "r3")
		say := func(step, number int, code agent.FailureCode, response *db.Response) {
			a := billed(attempt(step, number), 3, 3)
			a.FailureCode = code
			s.do(ada, func(tx activities.Tx) error {
				tx.StartAttempt("r2", a)
				return tx.FinishAttempt("r2", a, response)
			})
		}
		say(0, 1, agent.FailureTimeout, &db.Response{Text: "timed out"})
		say(0, 2, "", &db.Response{Text: "look", Calls: []db.ResponseCall{{ID: "a", Name: "look", Arguments: "{}"}, {ID: "b", Name: "look", Arguments: "{}"}}})
		say(1, 1, "", &db.Response{Text: "again", Calls: []db.ResponseCall{{ID: "c", Name: "look", Arguments: "{}"}}})
		say(2, 1, agent.FailureMalformedOutput, &db.Response{Correction: "do better"})
		say(2, 2, agent.FailureTimeout, nil)
		var recorded bool
		s.queue(ada, func(tx activities.Tx) {
			tx.InsertToolCalls("r2", []db.ToolCall{
				{ID: "0.1", Step: 0, Index: 1, ProviderCallID: "b", Tool: "look", Risk: "read", Arguments: "{}", Status: db.CallProposed},
				{ID: "0.0", Step: 0, Index: 0, ProviderCallID: "a", Tool: "look", Risk: "read", Arguments: "{}", Status: db.CallProposed},
				{ID: "1.0", Step: 1, Index: 0, ProviderCallID: "c", Tool: "look", Risk: "read", Arguments: "{}", Status: db.CallProposed},
				{ID: "1.1", Step: 1, Index: 1, ProviderCallID: "e", Tool: "erase", Arguments: "{}", Status: db.CallRefused, Error: &agent.ToolError{Code: agent.ToolProhibited, Hash: "h"}, Envelope: "no"},
				{ID: "2.0", Step: 2, Index: 0, ProviderCallID: "d", Tool: "look", Risk: "read", Arguments: "{}", Status: db.CallProposed},
			})
			tx.FinishToolCall("r2", "0.0", db.CallOutcome{Error: &agent.ToolError{Code: agent.ToolFailed, Hash: "h"}, Envelope: "sorry", Note: "failed twice", StartedAt: start}, &recorded)
			tx.FinishToolCall("r2", "1.0", db.CallOutcome{Envelope: "seen", Note: "14 错误", ContentType: "text/plain", ResultHash: digest, StartedAt: start}, &recorded)
		})
		state := s.loadStep(db.StepQuery{RunID: "r2", Step: 2, MaxMessages: 40, MaxExchanges: 60})
		s.want("question", []any{state.Question.Content, state.Question.Seq, state.Question.Role}, "[What is r2? 3 user]")
		s.want("history", []any{len(state.History), state.History[0].Content, state.History[1].Content, state.History[1].Role}, "[2 What is r1? It is fine. assistant]")
		s.want("exchanges", state.Exchanges, "[{0 {look [{a look {}} {b look {}}] } [{0 a look sorry 0.0 failed failed failed twice} {1 b look  0.1 proposed  }]}"+
			" {1 {again [{c look {}}] } [{0 c look seen 1.0 succeeded  14 错误} {1 e erase no 1.1 refused prohibited }]} {2 { [] do better} []}]")
		s.want("attempts of the step", len(state.Attempts), 2)
		short := s.loadStep(db.StepQuery{RunID: "r2", Step: 2, MaxMessages: 1, MaxExchanges: 1})
		s.want("the newest", []any{len(short.History), short.History[0].Content, len(short.Exchanges), short.Exchanges[0].Step}, "[1 It is fine. 1 2]")
		none := s.loadStep(db.StepQuery{RunID: "r2", Step: 1})
		s.want("none", []any{len(none.History), len(none.Exchanges), none.Question.ID}, "[0 0 question-r2]")
	},
	"conversation": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.do(ada, func(tx activities.Tx) error {
			conv, status, err := tx.HoldConversation(ctx, r)
			s.want("held", []any{conv.ID, conv.User, conv.Environment, conv.Version, conv.Generation, conv.LastSeq, status}, "[talk ada production 1 1 1 running]")
			return err
		})
		r.Conversation = "nowhere"
		err := s.InTx(ctx, ada, func(tx activities.Tx) error { _, _, err := tx.HoldConversation(ctx, r); return err })
		s.failed(err, db.ErrNotFound, "")
		s.fails(ada, db.ErrConflict, "message_seq_key", func(tx activities.Tx) {
			tx.AppendMessage(&db.Conversation{ID: "talk"}, db.Message{ID: "m", Role: db.RoleUser, Visibility: db.Hidden, RunID: "r1"}, false)
		})
		s.fails(ada, nil, "message_role_check", func(tx activities.Tx) {
			tx.AppendMessage(&db.Conversation{ID: "talk", LastSeq: 1}, db.Message{ID: "m", Role: "tool", Visibility: db.Hidden, RunID: "r1"}, false)
		})
	},
	"calls": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		refused := db.ToolCall{
			ID: "0.1", Index: 1, ProviderCallID: "b", Tool: "look", Arguments: "no", ArgumentsHash: "h", Status: db.CallRefused,
			Error: &agent.ToolError{Code: agent.ToolInvalidArguments, Hash: "e"}, Envelope: "refused",
		}
		s.queue(ada, func(tx activities.Tx) { tx.InsertToolCalls("r1", []db.ToolCall{writeCall("0.0"), refused}) })
		_, call, err := s.ToolCall(ctx, ada, "r1", "0.1")
		s.want("refused", []any{err, call.Recorded(), call.Error.Code, call.Error.Hash, call.Envelope, call.Arguments}, "[<nil> true invalid_arguments e  no]")
		s.fails(ada, db.ErrConflict, "tool_call_pkey", func(tx activities.Tx) { tx.InsertToolCalls("r1", []db.ToolCall{writeCall("0.0")}) })
		s.fails(ada, db.ErrConflict, "tool_call_step_key", func(tx activities.Tx) {
			c := writeCall("0.7")
			tx.InsertToolCalls("r1", []db.ToolCall{c})
		})
		s.fails(ada, nil, "tool_call_run_fkey", func(tx activities.Tx) { tx.InsertToolCalls("nowhere", []db.ToolCall{writeCall("0.0")}) })
		_, _, err = s.ToolCall(ctx, ada, "r1", "9.9")
		s.failed(err, db.ErrNotFound, "")

		s.queue(ada, func(tx activities.Tx) { tx.StartToolCall("r1", "0.0"); tx.StartToolCall("r1", "0.1") })
		s.queue(ada, func(tx activities.Tx) { tx.StartToolCall("r1", "0.0") })
		outcome := db.CallOutcome{Content: []byte("a result"), ContentType: "text/plain", ResultHash: digest, Envelope: "enveloped", StartedAt: start}
		var first, second, of, nowhere bool
		s.queue(ada, func(tx activities.Tx) { tx.FinishToolCall("r1", "0.0", outcome, &first) })
		s.queue(ada, func(tx activities.Tx) {
			tx.FinishToolCall("r1", "0.0", db.CallOutcome{Error: refused.Error}, &second)
			tx.FinishToolCall("r1", "0.1", outcome, &of)
			tx.FinishToolCall("r1", "9.9", outcome, &nowhere)
		})
		s.want("recorded", []bool{first, second, of, nowhere}, "[true false false false]")
		got := s.report(r).Calls()[0]
		s.want("call", []any{got.Status, got.Executions, got.ResultBytes, got.EnvelopeBytes, got.ResultHash == digest, got.Risk, got.ProposedAt.IsZero(), got.StartedAt.IsZero(), got.EndedAt.IsZero()},
			"[succeeded 2 8 9 true write false false false]")
		s.want("refused", []any{s.report(r).Calls()[1].Executions, s.report(r).Calls()[1].EndedAt.IsZero()}, "[0 false]")
	},
	"fast call": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		var recorded bool
		s.queue(ada, func(tx activities.Tx) {
			tx.InsertToolCalls("r1", []db.ToolCall{writeCall("0.0")})
			tx.FinishToolCall("r1", "0.0", db.CallOutcome{Error: &agent.ToolError{Code: agent.ToolNotFound, Hash: "h"}, Envelope: "none", StartedAt: start}, &recorded)
		})
		got := s.report(r).Calls()[0]
		s.want("call", []any{recorded, got.Status, got.Executions, got.Error.Code, got.StartedAt.Equal(start), got.ResultBytes}, "[true failed 1 not_found true 0]")
		s.queue(ada, func(tx activities.Tx) { tx.InsertToolCalls("r1", []db.ToolCall{writeCall("1.0")}) })
		for constraint, o := range map[string]db.CallOutcome{
			"tool_result_content_type_check": {ContentType: "text/html", ResultHash: digest},
			"tool_result_hash_check":         {ContentType: "text/plain", ResultHash: "h"},
		} {
			s.fails(ada, nil, constraint, func(tx activities.Tx) { tx.FinishToolCall("r1", "1.0", o, &recorded) })
		}
	},
	"results": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		var recorded bool
		s.queue(ada, func(tx activities.Tx) {
			tx.InsertToolCalls("r1", []db.ToolCall{writeCall("0.0")})
			tx.FinishToolCall("r1", "0.0", db.CallOutcome{Content: []byte("0123456789"), ContentType: "text/plain", ResultHash: digest, StartedAt: start}, &recorded)
		})
		for _, c := range []struct {
			offset, limit int64
			want          string
		}{{0, 4, "0123"}, {8, 4, "89"}, {10, 4, ""}, {99, 4, ""}, {-3, 2, "01"}, {3, -1, ""}, {math.MaxInt64, math.MaxInt64, ""}, {0, math.MaxInt64, "0123456789"}} {
			chunk, total, err := s.ReadResult(ctx, ada, "r1", "0.0", c.offset, c.limit)
			s.want("chunk", []any{string(chunk), total, err}, "["+c.want+" 10 <nil>]")
		}
		for _, c := range []struct {
			scope    agent.Scope
			run, res string
		}{{bob, "r1", "0.0"}, {ada, "r1", "0.1"}, {ada, "r2", "0.0"}} {
			_, _, err := s.ReadResult(ctx, c.scope, c.run, c.res, 0, 9)
			s.failed(err, db.ErrNotFound, "")
		}
		s.want("bytes", s.report(r).Calls()[0].ResultBytes, 10)
	},
	"close": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		calls := []db.ToolCall{writeCall("0.0"), writeCall("1.0"), writeCall("2.0"), writeCall("3.0"), writeCall("4.0")}
		var recorded bool
		s.queue(ada, func(tx activities.Tx) {
			tx.StartAttempt("r1", attempt(0, 1))
			tx.InsertToolCalls("r1", calls)
			tx.StartToolCall("r1", "1.0")
			tx.FinishToolCall("r1", "0.0", db.CallOutcome{Content: []byte("x"), ContentType: "text/plain", ResultHash: digest, StartedAt: start}, &recorded)
			tx.FinishToolCall("r1", "3.0", db.CallOutcome{Error: &agent.ToolError{Code: agent.ToolFailed, Hash: "h"}, StartedAt: start}, &recorded)
			tx.InsertPlan(writePlan("r1", "4.0", 1))
		})
		state := s.closeRun(r, "none", 1)
		s.want("state", []any{state.Run.ID, state.Totals.OpenAttempts, state.Totals.Usage.BilledTokens, state.Answered, state.UnknownWrites}, "[r1 0 100 false 0]")
		s.want("the newest call", []any{state.Actions, state.ToolCalls}, "[[{3.0 restart failed}] 2]")
		s.want("no call asked for", []any{s.closeRun(r, "none", 0).Actions, s.closeRun(r, "none", 0).ToolCalls}, "[[] 0]")
		s.want("all", s.closeRun(r, "none", 9).Actions, "[{0.0 restart } {3.0 restart failed}]")
		report := s.report(r)
		var statuses []string
		for _, c := range report.Calls() {
			statuses = append(statuses, string(c.Status))
		}
		s.want("calls", strings.Join(statuses, " "), "succeeded abandoned abandoned failed abandoned")
		s.want("attempt", []any{report.Attempts()[0].Status, report.Attempts()[0].UsageKnown}, "[lost false]")
		s.want("plan", []any{report.Plans[0].Status, report.Plans[0].DecidedAt.IsZero(), report.Plans[0].DecidedBy}, "[withdrawn false ]")
	},
}
