package activities

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/tool"
)

// conclusion is how a write came out: a result, or an error for the model.
type conclusion struct {
	result tool.Result
	err    *tool.Error
	// plan is what becomes of a plan that is still pending, by whose token.
	plan             db.PlanStatus
	decidedBy, token string
	// by says how the effect's fate came to be known. It is empty when there
	// is no intent.
	by db.ResolvedBy
	// end, if set, ends the run although the outcome is recorded.
	end agent.Reason
}

// conclude records the outcome of a write with all that belongs to it in one
// transaction: what happened, what the model is told, and that the run no longer
// waits for a person. The first outcome stays. It insists for as long as ctx
// lasts, because what happened outside cannot be taken back, and records late
// outcomes of a run that has ended meanwhile as well (RUN-13).
func (r *Runs) conclude(ctx context.Context, w writing, c conclusion) (agent.WriteOutcome, error) {
	outcome := db.CallOutcome{StartedAt: r.now()}
	if c.err != nil {
		outcome.Error, outcome.Envelope = c.err.ToolError(w.Call.Tool), string(tool.ErrorEnvelope(c.err))
		if c.err.Code == agent.ToolDeclined || c.err.Code == agent.ToolNotConfirmed {
			// People decide about one write: to propose another one is no repetition.
			outcome.Error.Hash = tool.Hash([]byte(outcome.Error.Hash + w.Call.ArgumentsHash))
		}
	} else {
		spec, _ := r.tools.Spec(w.Call.Tool)
		envelope := tool.NewEnvelope(spec, w.Call.ID, c.result)
		if !r.fetches(actorOf(w.Run), w.def) {
			envelope.Note = ""
		}
		outcome.Envelope, outcome.Content, outcome.ContentType = string(envelope.Bytes()), c.result.Content, c.result.ContentType
		outcome.ResultHash = db.ContentHash(c.result.Content)
		outcome.Note, outcome.Facts = c.result.Note, factsOf(spec, w.Call, c.result)
	}
	now := r.now()
	var after writing
	var mine bool
	err := r.insist(ctx, func(ctx context.Context) error {
		tctx, cancel := aside(ctx)
		defer cancel()
		return r.store.InTx(tctx, w.Run.Scope, func(tx Tx) error {
			state, err := tx.HoldWrite(tctx, w.Run.ID, w.Call.ID)
			if err != nil {
				return err
			}
			after = w.with(state)
			if state.Call.Recorded() {
				return nil
			}
			if i := state.Intent; i != nil && i.ResolvedBy == db.ByOperator && i.Result != resultOf(c) {
				// An operator was faster, and says otherwise. The record stays; the
				// next look at it gives the call the same outcome.
				r.log.Error("an operator settled a write otherwise than it came out", zap.String("run_id", w.Run.ID), zap.String("call_id", w.Call.ID),
					zap.String("recorded", string(i.Result)), zap.String("came_out", string(resultOf(c))))
				return fmt.Errorf("%w: the write was settled otherwise", errRetry)
			}
			if p := state.Plan; c.plan != "" && p != nil && p.Status == db.PlanPending && p.Revision == w.Plan.Revision {
				p.Status, p.DecidedBy, p.TokenID, p.DecidedAt = c.plan, c.decidedBy, c.token, now
				tx.ClosePlan(*p)
			} else if c.plan != "" {
				return fmt.Errorf("%w: the plan was decided meanwhile", errRetry)
			}
			tx.FinishToolCall(w.Run.ID, w.Call.ID, outcome, &mine)
			if i := state.Intent; i != nil && c.by != "" {
				tx.ResolveIntent(i.Key, resultOf(c), c.by, now)
			}
			if state.Run.Status == agent.StatusWaitingConfirmation {
				after.Run.Deadline, after.Run.Status = state.Run.DeadlineAt(now), agent.StatusRunning
				return tx.MoveRun(state.Run, db.Move{To: agent.StatusRunning, At: now})
			}
			return nil
		})
	})
	switch {
	case errors.Is(err, db.ErrConflict):
		return agent.WriteOutcome{}, fmt.Errorf("%w: %w", errRetry, err)
	case err != nil:
		return agent.WriteOutcome{}, err
	}
	out := after.state(agent.WriteDone)
	switch {
	case after.Call.Recorded():
		out.Outcome = recordedOutcome(after.Call)
	case !mine:
		// The run has ended, and its open calls with it.
		out.Outcome.End = agent.ReasonCanceled
	default:
		out.Outcome.ResultHash, out.Outcome.Error = outcome.ResultHash, outcome.Error
	}
	if c.end != "" {
		out.Outcome.End = c.end
	}
	if !mine {
		return out, nil
	}
	r.log.Info("write concluded", zap.String("run_id", w.Run.ID), zap.String("call_id", w.Call.ID), zap.String("tool", w.Call.Tool),
		zap.Bool("performed", c.err == nil), zap.String("code", codeOf(c.err)), zap.String("by", string(c.by)))
	return out, nil
}

func resultOf(c conclusion) db.WriteResult {
	if c.err != nil {
		return db.WriteNotPerformed
	}
	return db.WritePerformed
}

func codeOf(err *tool.Error) string {
	if err == nil {
		return ""
	}
	return string(err.Code)
}
