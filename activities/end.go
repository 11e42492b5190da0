package activities

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// detailAnswerMissing: the run was said to be final without a stored answer.
const detailAnswerMissing = "answer_missing"

// maxEndTries bounds how often EndRun reads again after a conflict: a late
// activity of the run was recorded at the same time.
const maxEndTries = 5

// EndRun records the end of a run and returns its result. The first end wins;
// asked again, it returns that one. A run whose answer is stored ends final,
// whatever reached the workflow first. A run that was never begun gets a result
// and is not stored.
func (r *Runs) EndRun(ctx context.Context, in agent.EndRunInput) (result agent.EndRunOutput, err error) {
	defer func() {
		if err != nil {
			// An end has to be recorded, so whatever is wrong is tried again:
			// the activity stays pending, where an operator sees it.
			err = errors.New(err.Error())
		}
	}()
	defer r.contain(agent.ActivityEndRun, in.Run, &err)
	result, err = r.end(ctx, in)
	for try := 1; errors.Is(err, db.ErrConflict) && try < maxEndTries; try++ {
		result, err = r.end(ctx, in)
	}
	var illegal *agent.TransitionError
	if db.IsConstraint(err, db.ConstraintAnswer) || errors.As(err, &illegal) {
		// There is no such answer, or the run never came to run.
		in.Reason, in.Detail = agent.ReasonInternal, detailAnswerMissing
		result, err = r.end(ctx, in)
	}
	return result, r.fault(ctx, agent.ActivityEndRun, in.Run, err)
}

func (r *Runs) end(ctx context.Context, in agent.EndRunInput) (agent.EndRunOutput, error) {
	reason, detail, answer := in.Reason, in.Detail, ""
	switch {
	case !reason.Valid():
		reason, detail = agent.ReasonInternal, "unknown_reason"
	case reason == agent.ReasonFinal && in.AnswerMessageID != answerID(in.Run):
		reason, detail = agent.ReasonInternal, detailAnswerMissing
	case reason == agent.ReasonFinal:
		answer = in.AnswerMessageID
	}
	var result agent.RunResult
	var state db.EndState
	err := r.store.InTx(ctx, in.Run.Scope, func(tx Tx) error {
		var err error
		if state, err = tx.CloseRun(ctx, in.Run.RunID, answerID(in.Run), agent.MaxActions); err != nil {
			return err
		}
		run := state.Run
		result = agent.RunResult{
			RunID: run.ID, Status: run.Status, Reason: run.Reason, Detail: run.Detail, AnswerMessageID: run.AnswerID,
			Steps: run.Step, ToolCalls: state.ToolCalls, Usage: state.Totals.Usage, Actions: state.Actions,
		}
		if run.Status.Terminal() {
			return nil
		}
		if state.Answered && reason != agent.ReasonFinal {
			// The answer was committed before the stop took effect: people see
			// it, and an end that denies it would be a lie.
			reason, detail, answer = agent.ReasonFinal, "", answerID(in.Run)
		}
		if state.UnknownWrites > 0 && reason != agent.ReasonFinal {
			// Whatever else stopped the run, somebody has to look at this.
			reason, detail = agent.ReasonOutcomeUnknown, ""
		}
		result.Status, result.Reason, result.Detail = reason.Status(), reason, detail
		result.AnswerMessageID, result.Steps = answer, in.Step
		return tx.MoveRun(run, db.Move{
			To: reason.Status(), Reason: reason, Detail: detail, AnswerID: answer, Step: in.Step, ToolCalls: state.ToolCalls,
		})
	})
	if errors.Is(err, db.ErrNotFound) {
		result = agent.RunResult{RunID: in.Run.RunID, Status: reason.Status(), Reason: reason, Detail: detail, Steps: in.Step}
		return agent.EndRunOutput{RunResult: result}, nil
	}
	if err != nil {
		return agent.EndRunOutput{}, err
	}
	r.log.Info("run ended", zap.String("run_id", result.RunID), zap.Int64("generation", in.Run.Generation), zap.String("status", string(result.Status)),
		zap.String("reason", string(result.Reason)), zap.String("detail", result.Detail), zap.Int("steps", result.Steps),
		zap.Int("tool_calls", result.ToolCalls), zap.Int64("tokens", result.Usage.BilledTokens), zap.Int64("cost_micros", result.Usage.CostMicros))
	out := agent.EndRunOutput{RunResult: result}
	// The end is recorded: whatever is wrong with the definition, a summary can
	// wait for the next run.
	if def, err := r.definition(ctx, state.Run.DefinitionDigest); err == nil {
		out.Summarize = summaryDue(def, state.Unsummarized, state.SummaryFailures)
	}
	return out, nil
}
