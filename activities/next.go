package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/prompt"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/tool"
)

const (
	// maxExchanges is how many of the run's own exchanges a model call looks
	// back on, so that a step costs the same however long the run.
	maxExchanges = 60
	// minOutputTokens is the least that is worth asking for when the budget
	// leaves no room for more.
	minOutputTokens = 64
	// maxPrepareTries bounds how often a step is read again because another
	// worker recorded something at the same time.
	maxPrepareTries = 5
)

type attemptKey struct {
	tenant, runID string
	step, try     int
}

// NextAction buys the model's next response, or returns what was recorded for
// this try. A response is recorded together with its settled cost before the
// activity returns, so it is never bought twice.
func (r *Runs) NextAction(ctx context.Context, in agent.NextActionInput) (action agent.Action, err error) {
	defer r.contain(agent.ActivityNextAction, in.Run, &err)
	key := attemptKey{in.Run.Scope.Tenant, in.Run.RunID, in.Step, in.Try}
	action, err = r.actions.do(ctx, key, func() (agent.Action, error) { return r.nextAction(ctx, in) })
	return action, r.fault(ctx, agent.ActivityNextAction, in.Run, err)
}

func (r *Runs) nextAction(ctx context.Context, in agent.NextActionInput) (agent.Action, error) {
	def, err := r.definition(ctx, in.DefinitionDigest)
	if errors.Is(err, db.ErrNotFound) {
		return failed(agent.FailureInternal, "definition_missing"), nil
	}
	if err != nil {
		return agent.Action{}, err
	}
	p, known, err := r.prepare(ctx, in, def)
	if err != nil {
		return agent.Action{}, err
	}
	if known != nil {
		return *known, nil
	}
	work, done := r.bound(ctx, in.Deadline, p.entry.Timeout)
	defer done()
	answer := generate(work, p.adapter, p.request)
	return r.settle(ctx, work, p, answer)
}

// purchase is one attempt that was reserved and is about to be made.
type purchase struct {
	in      agent.NextActionInput
	run     db.Run
	def     definition.Definition
	entry   model.Entry
	adapter model.Model
	actor   tool.Actor
	// allow are the tools that the policies offer.
	allow   []string
	request model.Request
	attempt db.Attempt
	// standing is what the user forbade.
	standing []db.SessionEntry
	// memory is what the run was given and may still read.
	memory []prompt.Recalled
	// day is the one whose usage was reserved.
	day time.Time
	// before is what this step consumed that no action has told yet.
	before agent.Usage
}

// prepare reads the run, settles attempts whose worker died, assembles the
// request and reserves its cost. It returns an action instead if there is
// nothing to buy.
func (r *Runs) prepare(ctx context.Context, in agent.NextActionInput, def definition.Definition) (p purchase, known *agent.Action, err error) {
	var limit *db.LimitError
	memory := r.given(ctx, in)
	for try := 1; ; try++ {
		err = r.store.InTx(ctx, in.Run.Scope, func(tx Tx) (err error) {
			p, known, err = r.reserve(ctx, tx, in, def, memory, limit)
			return err
		})
		switch {
		case err == nil:
			return p, known, nil
		case errors.Is(err, db.ErrNotFound):
			action := failed(agent.FailureInternal, "run_missing")
			return p, &action, nil
		case limit == nil && errors.As(err, &limit):
			// The limit undid the transaction. Attempts whose worker died are
			// settled all the same, so it is run again without a reservation.
		case errors.Is(err, db.ErrConflict) && try < maxPrepareTries:
		default:
			return p, nil, err
		}
	}
}

// reserve is the transaction of prepare.
func (r *Runs) reserve(ctx context.Context, tx Tx, in agent.NextActionInput, def definition.Definition,
	memory []prompt.Recalled, limit *db.LimitError,
) (purchase, *agent.Action, error) {
	state, err := tx.LoadStep(ctx, db.StepQuery{
		RunID: in.Run.RunID, Step: in.Step, MaxMessages: r.historyMessages, MaxExchanges: maxExchanges,
	})
	if err != nil {
		return purchase{}, nil, err
	}
	p := purchase{in: in, run: state.Run, def: def, actor: actorOf(state.Run), memory: memory, day: db.Day(r.now())}
	for _, a := range state.Attempts {
		if a.Try == in.Try && a.Action != nil {
			return p, a.Action, nil
		}
		if a.Status == db.AttemptStarted {
			if err := tx.LoseAttempt(in.Run.RunID, a); err != nil {
				return p, nil, err
			}
			r.log.Warn("attempt lost", zap.String("run_id", in.Run.RunID), zap.Int("step", a.Step), zap.Int("attempt", a.Number), zap.Int64("tokens", a.Reserved.Tokens))
		}
		// What was told is in an action's usage already.
		p.before = p.before.Add(a.Usage())
		if a.Action != nil {
			p.before = agent.Usage{}
		}
	}
	stop := func(code agent.FailureCode, detail string) (purchase, *agent.Action, error) {
		action := failed(code, detail)
		action.Usage = p.before
		return p, &action, nil
	}
	if code, detail := fence(state.Run, in.Run.Generation); code != "" {
		return stop(code, detail)
	}
	if state.Run.DefinitionDigest != in.DefinitionDigest {
		return stop(agent.FailureInternal, "definition_changed")
	}
	if p.entry, p.adapter, err = r.models.Resolve(def.Model); err != nil {
		// Another worker may have it.
		return p, nil, fmt.Errorf("%w: model %q is not configured on this worker", errRetry, def.Model)
	}
	if p.allow, err = r.offered(state.Run, def); err != nil {
		return stop(agent.FailureAuthorization, "")
	}
	p.standing = r.standing(state.Session, def)
	assembled, err := r.assemble(p, state)
	if overflow := new(prompt.OverflowError); errors.As(err, &overflow) {
		return stop(agent.FailureContextOverflow, overflow.Part)
	}
	if err != nil {
		return p, nil, err
	}
	p.request = assembled.Request
	p.request.Model = p.entry.Model

	amount, code := p.fit(assembled.Report.Input)
	switch {
	case code != "":
		return stop(code, "")
	case in.CostLeftMicros >= 0 && amount.CostMicros == nil && !def.Budget.AllowUnpriced:
		// BeginRun refuses this; the price has gone since.
		return stop(agent.FailureCostLimit, "unpriced")
	case limit != nil:
		return stop(failureOf(limit), limit.Limit)
	}
	number := 1
	if n := len(state.Attempts); n > 0 {
		number = state.Attempts[n-1].Number + 1
	}
	p.attempt = db.Attempt{
		Step: in.Step, Number: number, Try: in.Try, Model: p.entry.Name, Provider: p.entry.Provider, Reserved: amount,
	}
	if p.attempt.Prompt, err = json.Marshal(assembled.Report); err != nil {
		return p, nil, fmt.Errorf("encode prompt report: %w", err)
	}
	tx.StartAttempt(in.Run.RunID, p.attempt)
	tx.ReserveDaily(p.day, amount, state.Limits.Or(r.limits))
	return p, nil, nil
}

// fence says why a run may not go on, or returns the empty code.
func fence(run db.Run, generation int64) (agent.FailureCode, string) {
	switch {
	case run.Generation != generation:
		return agent.FailureInternal, "generation_changed"
	case run.Superseded() || run.Reason == agent.ReasonSuperseded:
		return agent.FailureSuperseded, ""
	case run.Status.Terminal():
		return agent.FailureCanceled, "run_ended"
	case run.Status != agent.StatusRunning:
		return agent.FailureInternal, "run_" + string(run.Status)
	}
	return "", ""
}

// fit bounds the output so that the attempt stays within the run's budget, and
// returns what has to be reserved for it.
func (p *purchase) fit(inputTokens int64) (db.Amount, agent.FailureCode) {
	output := p.request.MaxOutputTokens
	least := min(minOutputTokens, output)

	output = min(output, p.in.TokensLeft-p.before.BilledTokens-inputTokens)
	if output < least {
		return db.Amount{}, agent.FailureTokenLimit
	}
	cost, priced := p.entry.CostOf(inputTokens, output)
	if left := p.in.CostLeftMicros - p.before.CostMicros; priced && p.in.CostLeftMicros >= 0 && cost > left {
		output = affordable(p.entry, inputTokens, output, left)
		if output < least {
			return db.Amount{}, agent.FailureCostLimit
		}
		cost, _ = p.entry.CostOf(inputTokens, output)
	}
	p.request.MaxOutputTokens = output
	amount := db.Amount{Tokens: inputTokens + output}
	if priced {
		amount.CostMicros = &cost
	}
	return amount, ""
}

// affordable returns the most output tokens below most that cost no more than
// left together with the input, or -1.
func affordable(entry model.Entry, input, most, left int64) int64 {
	low, high := int64(-1), most
	for high-low > 1 {
		middle := low + (high-low)/2
		if cost, _ := entry.CostOf(input, middle); cost <= left {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

func actorOf(run db.Run) tool.Actor {
	return tool.Actor{Scope: run.Scope, Page: run.Page, Flags: run.Flags}
}

func failed(code agent.FailureCode, detail string) agent.Action {
	return agent.Action{Kind: agent.ActionFailure, Failure: &agent.Failure{Code: code, Detail: detail}}
}

func failureOf(limit *db.LimitError) agent.FailureCode {
	if reasonOf(limit) == agent.ReasonCostLimit {
		return agent.FailureCostLimit
	}
	return agent.FailureTokenLimit
}
