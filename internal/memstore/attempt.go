package memstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// The kinds of ledger entries.
const (
	reserve = "reserve"
	settle  = "settle"
)

// LoadStep implements activities.Tx.
func (tx *tx) LoadStep(ctx context.Context, q db.StepQuery) (state db.StepState, err error) {
	d, key := tx.data, tx.key(q.RunID)
	var found bool
	err = tx.read(ctx, func() error {
		run, ok := d.run(key.tenant, q.RunID)
		if !ok {
			return missing
		}
		limits, _ := d.limits.get(key.tenant)
		state.Run, state.Limits = run, cloneLimits(limits)
		if err := d.attemptsOfStep(key, q.Step, &state); err != nil {
			return err
		}
		found = d.messagesBefore(run, q.MaxMessages+1, &state)
		state.Session = d.session(key.tenant, run.Conversation)
		state.Summaries = d.checkedSummaries(namedKey{key.tenant, run.Conversation}, state.Question.Seq)
		return d.transcript(key, q, &state)
	})
	switch {
	case err != nil:
	case state.Run.Scope != tx.scope:
		err = db.ErrNotFound
	case !found:
		err = fmt.Errorf("the run's question: %w", db.ErrNotFound)
	}
	if err != nil {
		return db.StepState{}, fmt.Errorf("load step: %w", err)
	}
	return state, nil
}

func (d *data) attemptsOfStep(key runKey, step int, state *db.StepState) error {
	for at, row := range d.attempts.rows {
		if at.runKey != key || at.step != step {
			continue
		}
		a := d.attempt(at, row)
		// The columns that a step reads.
		a = db.Attempt{
			Step: a.Step, Number: a.Number, Try: a.Try, Status: a.Status, Reserved: a.Reserved,
			Reported: a.Reported, Billed: a.Billed, UsageKnown: a.UsageKnown,
		}
		if row.action != "" {
			a.Action = new(agent.Action)
			if err := json.Unmarshal([]byte(row.action), a.Action); err != nil {
				return fmt.Errorf("recorded action of step %d is damaged", step)
			}
		}
		state.Attempts = append(state.Attempts, a)
	}
	slices.SortFunc(state.Attempts, func(a, b db.Attempt) int { return cmp.Compare(a.Number, b.Number) })
	return nil
}

// attempt is an attempt as reports have it.
func (d *data) attempt(at attemptKey, row attemptRow) db.Attempt {
	a := row.Attempt
	a.Reserved, a.Reported, a.Billed, a.UsageKnown, a.Action = row.reserved.get(), nil, nil, false, nil
	if row.hasReported {
		reported := row.reported
		a.Reported = &reported
	}
	if entry, ok := d.ledger.get(ledgerKey{at, settle}); ok {
		billed := entry.amount.get()
		a.Billed, a.UsageKnown = &billed, entry.known
	}
	if row.prompt != "" {
		a.Prompt = json.RawMessage(row.prompt)
	}
	return a
}

// messagesBefore collects the newest messages up to a run's question and says
// whether the question is among them.
func (d *data) messagesBefore(run db.Run, most int, state *db.StepState) bool {
	question, ok := d.messages.get(namedKey{run.Scope.Tenant, run.QuestionID})
	if !ok {
		return false
	}
	var list []db.Message
	for key, m := range d.messages.rows {
		if key.tenant == run.Scope.Tenant && m.Conversation == run.Conversation && m.Seq <= question.Seq &&
			(m.Visibility == db.Visible || m.ID == question.ID) {
			m.Visibility, m.ParentID = db.Visible, ""
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b db.Message) int { return cmp.Compare(a.Seq, b.Seq) })
	found := false
	for _, m := range list[max(0, len(list)-most):] {
		if m.ID == question.ID {
			state.Question, found = m, true
		} else {
			state.History = append(state.History, m)
		}
	}
	return found
}

func (d *data) transcript(key runKey, q db.StepQuery, state *db.StepState) error {
	from := max(0, q.Step-q.MaxExchanges)
	var said []attemptKey
	for at, row := range d.attempts.rows {
		if at.runKey == key && at.step >= from && at.step <= q.Step && row.response != "" &&
			(row.FailureCode == "" || row.FailureCode == agent.FailureMalformedOutput) {
			said = append(said, at)
		}
	}
	slices.SortFunc(said, func(a, b attemptKey) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.number, b.number))
	})
	for _, at := range said[max(0, len(said)-q.MaxExchanges):] {
		e := db.Exchange{Step: at.step}
		row, _ := d.attempts.get(at)
		if err := json.Unmarshal([]byte(row.response), &e.Response); err != nil {
			return fmt.Errorf("stored response of step %d is damaged", at.step)
		}
		if e.Response.Correction == "" && at.step < q.Step {
			for _, c := range d.callsOfStep(key, at.step) {
				result := db.CallResult{
					Index: c.Index, ProviderCallID: c.ProviderCallID, Tool: c.Tool, Envelope: c.Envelope,
					CallID: c.ID, Status: c.Status, Note: c.note,
				}
				if c.Error != nil {
					result.ErrorCode = c.Error.Code
				}
				e.Results = append(e.Results, result)
			}
		}
		state.Exchanges = append(state.Exchanges, e)
	}
	return nil
}

func (d *data) callsOfStep(key runKey, step int) (list []callRow) {
	for at, c := range d.calls.rows {
		if at.runKey == key && c.Step == step {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b callRow) int { return cmp.Compare(a.Index, b.Index) })
	return list
}

// StartAttempt implements activities.Tx.
func (tx *tx) StartAttempt(runID string, a db.Attempt) {
	reserved, prompt := amountOf(a.Reserved), string(a.Prompt)
	tx.queue(func() error {
		d, at := tx.data, attemptKey{tx.key(runID), a.Step, a.Number}
		if err := first(
			check(a.Step >= 0, "model_attempt_step_check"), check(a.Number > 0, "model_attempt_attempt_check"),
			check(a.Try >= 0, "model_attempt_try_check"), check(reserved.tokens >= 0, "model_attempt_reserved_tokens_check"),
			check(reserved.costMicros >= 0, "model_attempt_reserved_cost_micros_check"), texts(a.Model, a.Provider),
		); err != nil {
			return err
		}
		if prompt != "" && !json.Valid([]byte(prompt)) {
			return &db.Error{Code: "22P02"}
		}
		if _, taken := d.attempts.get(at); taken {
			return conflict("model_attempt_pkey")
		}
		if _, ok := d.runs.get(at.runKey); !ok {
			return absent("model_attempt_run_fkey")
		}
		row := attemptRow{reserved: reserved, prompt: prompt, Attempt: db.Attempt{
			Step: a.Step, Number: a.Number, Try: a.Try, Model: a.Model, Provider: a.Provider, Status: db.AttemptStarted, StartedAt: tx.now,
		}}
		d.attempts.put(tx, at, row)
		d.ledger.put(tx, ledgerKey{at, reserve}, ledgerRow{amount: reserved})
		return nil
	})
}

// FinishAttempt implements activities.Tx.
func (tx *tx) FinishAttempt(runID string, a db.Attempt, response *db.Response) error {
	billed := amountOf(*a.Billed)
	var reported db.ReportedTokens
	hasReported := a.Reported != nil
	if hasReported {
		reported = *a.Reported
	}
	action, err := encode(a.Action != nil, a.Action)
	if err != nil {
		return fmt.Errorf("finish attempt: %w", err)
	}
	said, err := encode(response != nil, response)
	if err != nil {
		return fmt.Errorf("finish attempt: %w", err)
	}
	tx.queue(func() error {
		d, at := tx.data, attemptKey{tx.key(runID), a.Step, a.Number}
		// Of two ends the second fails on the ledger.
		entry := ledgerKey{at, settle}
		if err := first(
			check(billed.tokens >= 0, "ledger_entry_tokens_check"), check(billed.costMicros >= 0, "ledger_entry_cost_micros_check"),
		); err != nil {
			return err
		}
		if _, taken := d.ledger.get(entry); taken {
			return conflict("ledger_entry_pkey")
		}
		row, ok := d.attempts.get(at)
		if !ok {
			return absent("ledger_entry_attempt_fkey")
		}
		d.ledger.put(tx, entry, ledgerRow{amount: billed, known: a.UsageKnown})
		if row.Status != db.AttemptStarted {
			return nil
		}
		if err := first(
			check(finished(a.Status), "model_attempt_end_check"), texts(a.Finish, a.Revision, a.RequestID, action, said),
		); err != nil {
			return err
		}
		row.Status, row.FailureCode, row.Finish, row.Revision, row.RequestID = a.Status, a.FailureCode, a.Finish, a.Revision, a.RequestID
		row.EndedAt, row.reported, row.hasReported, row.action, row.response = tx.now, reported, hasReported, action, said
		d.attempts.put(tx, at, row)
		return nil
	})
	return nil
}

func finished(s db.AttemptStatus) bool {
	return s == db.AttemptSucceeded || s == db.AttemptFailed || s == db.AttemptLost || s == db.AttemptCanceled
}

func encode(present bool, value any) (string, error) {
	if !present {
		return "", nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// LoseAttempt implements activities.Tx.
func (tx *tx) LoseAttempt(runID string, a db.Attempt) error {
	a.Status, a.Billed, a.UsageKnown, a.Reported, a.Action = db.AttemptLost, &a.Reserved, false, nil, nil
	return tx.FinishAttempt(runID, a, nil)
}

// HoldConversation implements activities.Tx.
func (tx *tx) HoldConversation(ctx context.Context, r db.Run) (conv db.Conversation, status agent.Status, err error) {
	d := tx.data
	err = tx.read(ctx, func() error {
		held, ok := d.conversations.get(namedKey{tx.scope.Tenant, r.Conversation})
		run, found := d.runs.get(tx.key(r.ID))
		if !ok || !found || run.Conversation != r.Conversation {
			return missing
		}
		conv, status = held, run.Status
		// The query names the run's owner.
		conv.User, conv.Environment = run.Scope.User, run.Scope.Environment
		return nil
	})
	return conv, status, wrap("hold conversation", err)
}

// totals is what a run consumed.
func (d *data) totals(key runKey) (t db.Totals) {
	for at, row := range d.attempts.rows {
		if at.runKey != key {
			continue
		}
		a := d.attempt(at, row)
		t.Usage = t.Usage.Add(a.Usage())
		if a.Billed == nil {
			t.OpenAttempts++
		}
		t.LastStep = max(t.LastStep, at.step)
	}
	return t
}

func dayOf(t time.Time) string { return t.Format(time.DateOnly) }

func (d *data) used(tenant, user string, day time.Time) (used db.DailyUsage) {
	of := func(user string) struct{ Tokens, CostMicros int64 } {
		row, _ := d.daily.get(dailyKey{tenant, dayOf(day), user})
		return struct{ Tokens, CostMicros int64 }{row.tokens, row.costMicros}
	}
	used.Tenant, used.User = of(""), of(user)
	return used
}

// ReserveDaily implements activities.Tx.
func (tx *tx) ReserveDaily(day time.Time, amount db.Amount, limits db.Limits) {
	reserved, limits := amountOf(amount), cloneLimits(limits)
	tx.queue(func() error {
		for _, of := range []struct {
			user                  string
			tokens, cost          *int64
			tokensLimit, costName string
		}{
			{"", limits.DailyTokens, limits.DailyCostMicros, db.LimitTenantTokens, db.LimitTenantCost},
			{tx.scope.User, limits.UserDailyTokens, limits.UserDailyCostMicros, db.LimitUserTokens, db.LimitUserCost},
		} {
			key := dailyKey{tx.scope.Tenant, dayOf(day), of.user}
			row, _ := tx.data.daily.get(key)
			row.tokens, row.costMicros = row.tokens+reserved.tokens, row.costMicros+reserved.costMicros
			tx.data.daily.put(tx, key, row)
			if row.tokens > orUnlimited(of.tokens) {
				return &db.LimitError{Limit: of.tokensLimit}
			}
			if row.costMicros > orUnlimited(of.cost) && reserved.costMicros > 0 {
				return &db.LimitError{Limit: of.costName}
			}
		}
		return nil
	})
}

// SettleDaily implements activities.Tx.
func (tx *tx) SettleDaily(day time.Time, reserved, billed db.Amount) {
	from, to := amountOf(reserved), amountOf(billed)
	tx.queue(func() error {
		for _, user := range []string{"", tx.scope.User} {
			key := dailyKey{tx.scope.Tenant, dayOf(day), user}
			row, ok := tx.data.daily.get(key)
			if !ok {
				continue
			}
			row.tokens, row.costMicros = row.tokens+to.tokens-from.tokens, row.costMicros+to.costMicros-from.costMicros
			if err := first(check(row.tokens >= 0, "daily_usage_tokens_check"), check(row.costMicros >= 0, "daily_usage_cost_micros_check")); err != nil {
				return err
			}
			tx.data.daily.put(tx, key, row)
		}
		return nil
	})
}
