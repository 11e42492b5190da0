package activities

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
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

// errUnpinned: the run's definition is not in this process. It is loaded outside
// of the transaction, which is run again.
var errUnpinned = errors.New("the definition is not in this process")

// ending is a run that is being ended.
type ending struct {
	agent.EndRunInput
	// answer is the message that answers, if the run ends final.
	answer string
	result agent.RunResult
	state  db.EndState
	// blind says that the definition cannot be read: the end does not wait for it.
	blind bool
}

func (r *Runs) end(ctx context.Context, in agent.EndRunInput) (agent.EndRunOutput, error) {
	e := &ending{EndRunInput: in}
	switch {
	case !e.Reason.Valid():
		e.Reason, e.Detail = agent.ReasonInternal, "unknown_reason"
	case e.Reason == agent.ReasonFinal && in.AnswerMessageID != answerID(in.Run):
		e.Reason, e.Detail = agent.ReasonInternal, detailAnswerMissing
	case e.Reason == agent.ReasonFinal:
		e.answer = in.AnswerMessageID
	}
	closing := func(tx Tx) error { return r.close(ctx, tx, e) }
	err := r.store.InTx(ctx, in.Run.Scope, closing)
	if errors.Is(err, errUnpinned) {
		_, failed := r.definition(ctx, e.state.Run.DefinitionDigest)
		if errors.Is(failed, db.ErrUnavailable) {
			return agent.EndRunOutput{}, failed
		}
		e.blind = failed != nil
		err = r.store.InTx(ctx, in.Run.Scope, closing)
	}
	if errors.Is(err, db.ErrNotFound) {
		return agent.EndRunOutput{RunResult: agent.RunResult{
			RunID: in.Run.RunID, Status: e.Reason.Status(), Reason: e.Reason, Detail: e.Detail, Steps: in.Step,
		}}, nil
	}
	if err != nil {
		return agent.EndRunOutput{}, err
	}
	result := e.result
	r.log.Info("run ended", zap.String("run_id", result.RunID), zap.Int64("generation", in.Run.Generation), zap.String("status", string(result.Status)),
		zap.String("reason", string(result.Reason)), zap.String("detail", result.Detail), zap.Int("steps", result.Steps),
		zap.Int("tool_calls", result.ToolCalls), zap.Int64("tokens", result.Usage.BilledTokens), zap.Int64("cost_micros", result.Usage.CostMicros))
	out := agent.EndRunOutput{RunResult: result, Learn: result.Memory != nil && result.Memory.Learning == agent.LearningStarted}
	// The end is recorded: whatever is wrong with the definition, a summary can
	// wait for the next run.
	if def, err := r.definition(ctx, e.state.Run.DefinitionDigest); err == nil {
		out.Summarize = summaryDue(def, e.state.Unsummarized, e.state.SummaryFailures)
	}
	return out, nil
}

// close is the transaction of end.
func (r *Runs) close(ctx context.Context, tx Tx, e *ending) (err error) {
	if e.state, err = tx.CloseRun(ctx, e.Run.RunID, answerID(e.Run), agent.MaxActions); err != nil {
		return err
	}
	run := e.state.Run
	e.result = agent.RunResult{
		RunID: run.ID, Status: run.Status, Reason: run.Reason, Detail: run.Detail, AnswerMessageID: run.AnswerID,
		Steps: run.Step, ToolCalls: e.state.ToolCalls, Usage: e.state.Totals.Usage, Actions: e.state.Actions, Memory: run.Memory,
	}
	if run.Status.Terminal() {
		return nil
	}
	pinned, known := r.pinned.Load(run.DefinitionDigest)
	if !known && !e.blind {
		return errUnpinned
	}
	if e.state.Answered && e.Reason != agent.ReasonFinal {
		// The answer was committed before the stop took effect: people see
		// it, and an end that denies it would be a lie.
		e.Reason, e.Detail, e.answer = agent.ReasonFinal, "", answerID(e.Run)
	}
	if e.state.UnknownWrites > 0 && e.Reason != agent.ReasonFinal {
		// Whatever else stopped the run, somebody has to look at this.
		e.Reason, e.Detail = agent.ReasonOutcomeUnknown, ""
	}
	e.result.Status, e.result.Reason, e.result.Detail = e.Reason.Status(), e.Reason, e.Detail
	e.result.AnswerMessageID, e.result.Steps = e.answer, e.Step
	if known {
		e.result.Memory = r.memoryUse(pinned.(definition.Definition), e)
	}
	err = tx.MoveRun(run, db.Move{
		To: e.Reason.Status(), Reason: e.Reason, Detail: e.Detail, AnswerID: e.answer, Step: e.Step, ToolCalls: e.state.ToolCalls, Memory: e.result.Memory,
	})
	if err == nil && e.result.Memory != nil && e.result.Memory.Learning == agent.LearningStarted {
		tx.InsertLesson(run.ID)
	}
	return err
}

// memoryUse is what a run that ends had to do with memory, nil if its definition
// has nothing to do with it. Only runs that answered the user are learned from.
func (r *Runs) memoryUse(def definition.Definition, e *ending) *agent.MemoryUse {
	if !hasMemory(def) {
		return nil
	}
	use := &agent.MemoryUse{Recall: agent.RecallOff, Learning: agent.LearningOff}
	if e.Recall != nil {
		use.Recall, use.Records, use.KeywordOnly = e.Recall.State, e.Recall.Records, e.Recall.KeywordOnly
	}
	if learns(def) && r.memory != nil && e.Reason == agent.ReasonFinal {
		use.Learning = agent.LearningStarted
	}
	return use
}
