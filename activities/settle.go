package activities

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/tool"
)

// settle records how an attempt ended, together with its cost.
func (r *Runs) settle(ctx, work context.Context, p purchase, a answer) (agent.Action, error) {
	log := r.log.With(zap.String("run_id", p.in.Run.RunID), zap.Int("step", p.attempt.Step), zap.Int("attempt", p.attempt.Number))
	p.bill(a)

	var v verdict
	switch cause := context.Cause(work); {
	case a.err == nil || cause == nil:
		// A complete response counts, however late it came.
		v = judge(p.def, a)
	case errors.Is(cause, errStopping):
		return agent.Action{}, r.giveUp(ctx, p, db.AttemptLost, fmt.Errorf("%w: %w", errRetry, errStopping))
	case errors.Is(cause, errDeadline):
		v = failure(agent.FailureDeadline, "")
	case errors.Is(cause, errTimeout):
		v = failure(agent.FailureTimeout, "")
		v.failure.Retryable = true
		if a.started {
			v = failure(agent.FailureStreamCut, string(agent.FailureTimeout))
		}
	default:
		// The activity itself was canceled or ran out of time.
		return agent.Action{}, r.giveUp(ctx, p, db.AttemptCanceled, ctx.Err())
	}
	if a.crash != "" {
		log.Error("model panicked", zap.String("model", p.entry.Name), zap.String("panic_type", a.crash))
	}

	action, err := r.record(ctx, p, v)
	if errors.Is(err, db.ErrConflict) {
		return r.overtaken(ctx, p)
	}
	if err != nil {
		return agent.Action{}, err
	}
	if f := action.Failure; f != nil {
		log.Info("attempt failed", zap.String("code", string(f.Code)), zap.String("detail", f.Detail), zap.Bool("retryable", f.Retryable))
	}
	return action, nil
}

// bill decides what the attempt costs.
func (p *purchase) bill(a answer) {
	p.attempt.Reported = reported(a)
	p.attempt.Revision, p.attempt.RequestID, p.attempt.Finish = storable(a.response.Revision), storable(a.response.RequestID), string(a.response.Finish)
	var failed *model.Error
	if errors.As(a.err, &failed) {
		p.attempt.RequestID = storable(failed.RequestID)
	}
	billed := p.attempt.Reserved
	switch u := p.attempt.Reported; {
	case u != nil:
		p.attempt.UsageKnown = true
		billed = p.amount(model.Usage{InputTokens: u.Input, CachedInputTokens: u.CachedInput, OutputTokens: u.Output})
	case refusedBeforehand(a):
		p.attempt.UsageKnown = true
		billed = p.amount(model.Usage{})
	}
	p.attempt.Billed = &billed
}

func (p *purchase) amount(u model.Usage) db.Amount {
	amount := db.Amount{Tokens: u.InputTokens + u.OutputTokens}
	if cost, priced := p.entry.Cost(u); priced {
		amount.CostMicros = &cost
	}
	return amount
}

// giveUp records an attempt whose answer nobody waits for any more, in the
// little time that is left, and returns why. If it cannot be recorded, the next
// worker or EndRun finds it open and settles it.
func (r *Runs) giveUp(ctx context.Context, p purchase, status db.AttemptStatus, why error) error {
	ctx, cancel := aside(ctx)
	defer cancel()
	p.attempt.Status = status
	err := r.store.InTx(ctx, p.in.Run.Scope, func(tx Tx) error {
		if err := tx.FinishAttempt(p.in.Run.RunID, p.attempt, nil); err != nil {
			return err
		}
		tx.SettleDaily(p.day, p.attempt.Reserved, *p.attempt.Billed)
		return nil
	})
	if err != nil && !errors.Is(err, db.ErrConflict) {
		r.log.Warn("attempt left open", zap.String("run_id", p.in.Run.RunID), zap.Int("step", p.attempt.Step), zap.String("cause", err.Error()))
	}
	return why
}

// record stores the verdict and its action. What was paid for is recorded even
// if the activity is canceled at this moment.
func (r *Runs) record(ctx context.Context, p purchase, v verdict) (action agent.Action, err error) {
	rows, calls := r.proposed(p, v.calls)
	err = r.insist(ctx, func(ctx context.Context) error {
		tctx, cancel := aside(ctx)
		defer cancel()
		return r.store.InTx(tctx, p.in.Run.Scope, func(tx Tx) error {
			v := v
			attempt := p.attempt
			action = agent.Action{Kind: agent.ActionFailure, Failure: v.failure, Calls: calls}
			switch {
			case v.final != "":
				late, err := r.answer(tctx, tx, p, v.final)
				if err != nil {
					return err
				}
				if late != "" {
					v = failure(late, "too_late")
					action.Failure = v.failure
				} else {
					action.Kind, action.AnswerMessageID = agent.ActionFinal, answerID(p.in.Run)
				}
			case len(calls) > 0:
				action.Kind = agent.ActionCalls
			}
			attempt.Status = v.status
			if v.failure != nil {
				attempt.FailureCode = v.failure.Code
			}
			action.Usage = p.before.Add(attempt.Usage())
			attempt.Action = &action
			if err := tx.FinishAttempt(p.in.Run.RunID, attempt, v.response); err != nil {
				return err
			}
			tx.InsertToolCalls(p.in.Run.RunID, rows)
			tx.SettleDaily(p.day, attempt.Reserved, *attempt.Billed)
			return nil
		})
	})
	return action, err
}

// answer queues the final answer as a message of the conversation. It returns a
// code instead if it comes too late: a newer generation has begun, or the run
// has ended.
func (r *Runs) answer(ctx context.Context, tx Tx, p purchase, text string) (late agent.FailureCode, err error) {
	conv, status, err := tx.HoldConversation(ctx, p.run)
	switch {
	case err != nil:
		return "", err
	case conv.Generation != p.run.Generation:
		return agent.FailureSuperseded, nil
	case status != agent.StatusRunning:
		return agent.FailureCanceled, nil
	}
	tx.AppendMessage(&conv, db.Message{
		ID: answerID(p.in.Run), Role: db.RoleAssistant, Content: text, Visibility: db.Visible, RunID: p.run.ID, ParentID: p.run.QuestionID,
	}, false)
	return "", nil
}

// proposed checks the calls of a response and makes their rows, and what the
// workflow is told of them.
func (r *Runs) proposed(p purchase, proposed []db.ResponseCall) (rows []db.ToolCall, calls []agent.Call) {
	for i, c := range proposed {
		checked, refused := r.tools.Check(p.actor, p.allow, c.Name, c.Arguments)
		row := db.ToolCall{
			ID: fmt.Sprintf("%d.%d", p.in.Step, i), Step: p.in.Step, Index: i, ProviderCallID: c.ID,
			Tool: checked.Spec.Name, ToolVersion: checked.Spec.Version, Risk: string(checked.Spec.Risk),
			Arguments: string(checked.Arguments), ArgumentsHash: checked.Hash, Status: db.CallProposed,
		}
		if row.Tool == "" {
			// The model made the name up: it is content.
			row.Tool = "unknown_" + tool.Hash([]byte(c.Name))[:12]
		}
		if row.Arguments == "" {
			row.Arguments = c.Arguments
		}
		if refused == nil {
			refused = prohibited(p.standing, checked.Spec)
		}
		call := agent.Call{ID: row.ID, Tool: row.Tool, ArgumentsHash: row.ArgumentsHash}
		if refused != nil {
			row.Status, row.Error, row.Envelope = db.CallRefused, refused.ToolError(row.Tool), string(tool.ErrorEnvelope(refused))
			call.Refused = row.Error
		} else {
			call.Local, call.Write = checked.Spec.Fast, checked.Spec.Risk == tool.Write
		}
		rows, calls = append(rows, row), append(calls, call)
	}
	return rows, calls
}

// overtaken answers for an attempt that another worker, or an earlier
// transaction of this one whose outcome was unknown, has ended.
func (r *Runs) overtaken(ctx context.Context, p purchase) (agent.Action, error) {
	ctx, cancel := aside(ctx)
	defer cancel()
	var recorded *agent.Action
	err := r.store.InTx(ctx, p.in.Run.Scope, func(tx Tx) error {
		state, err := tx.LoadStep(ctx, db.StepQuery{RunID: p.in.Run.RunID, Step: p.in.Step})
		if err != nil {
			return err
		}
		for _, a := range state.Attempts {
			if a.Try == p.in.Try && a.Action != nil {
				recorded = a.Action
			}
		}
		return nil
	})
	if err != nil {
		return agent.Action{}, err
	}
	if recorded == nil {
		return agent.Action{}, fmt.Errorf("%w: the attempt was taken over by another worker", errRetry)
	}
	return *recorded, nil
}
