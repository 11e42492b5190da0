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

// ResolveWrite finds out what became of a write whose outcome was not recorded:
// from the record, from an operator who settled it, or by a look-up with the
// same key (WRITE-5). A write that provably did not happen is performed with the
// same key, unless the run is stopping.
func (r *Runs) ResolveWrite(ctx context.Context, in agent.ResolveWriteInput) (out agent.WriteOutcome, err error) {
	defer r.contain(agent.ActivityResolveWrite, in.Run, &err)
	key := callKey{in.Run.Scope.Tenant, in.Run.RunID, in.CallID}
	out, err = r.writes.do(ctx, key, func() (agent.WriteOutcome, error) { return r.resolveWrite(ctx, in) })
	return out, r.fault(ctx, agent.ActivityResolveWrite, in.Run, err)
}

func (r *Runs) resolveWrite(ctx context.Context, in agent.ResolveWriteInput) (agent.WriteOutcome, error) {
	w, done, err := r.openWrite(ctx, in.Run, in.CallID, in.ArgumentsHash)
	switch {
	case err != nil:
		return agent.WriteOutcome{}, err
	case done != nil:
		return *done, nil
	case w.Intent == nil:
		return w.state(agent.WriteNotBegun), nil
	case w.Intent.Result == db.WritePerformed || w.Intent.Result == db.WriteNotPerformed:
		return r.takeUp(ctx, w)
	}
	work, stop := r.boundary(ctx)
	found, err := r.tools.Find(work, w.call())
	stop()
	log := r.log.With(zap.String("run_id", w.Run.ID), zap.String("call_id", w.Call.ID), zap.String("tool", w.Call.Tool))
	if errors.Is(err, tool.ErrNoFinder) {
		log.Error("a write's outcome is unknown and its tool has no look-up")
		return w.end(agent.ReasonOutcomeUnknown), nil
	}
	if err != nil {
		log.Warn("look-up failed", zap.String("cause_type", fmt.Sprintf("%T", err)))
		return w.state(agent.WriteUnknown), nil
	}
	log.Info("write looked up", zap.String("state", string(found.State)), zap.Int("sends", w.Intent.Sends))
	switch found.State {
	case tool.FindPerformed:
		return r.conclude(ctx, w, conclusion{result: found.Result, by: db.ByLookUp})
	case tool.FindFailed:
		return r.conclude(ctx, w, conclusion{err: found.Err, by: db.ByLookUp})
	case tool.FindAbsent:
		return r.absent(ctx, w, in)
	}
	return w.state(agent.WriteUnknown), nil
}

// absent is the way of a write of which its system knows nothing.
func (r *Runs) absent(ctx context.Context, w writing, in agent.ResolveWriteInput) (agent.WriteOutcome, error) {
	// Until then another worker, cut off but alive, may still send it, and what
	// was sent may still arrive. To send it again with the same key is harmless;
	// to say that it did not happen would be a guess.
	spec, _ := r.tools.Spec(w.Call.Tool)
	decisive := w.Intent.SentAt.Add(spec.Timeout + spec.InFlight)
	notPerformed := func(e *tool.Error) (agent.WriteOutcome, error) {
		if left := decisive.Sub(r.now()); left > 0 {
			out := w.state(agent.WriteUnknown)
			out.RetryAfter = left
			return out, nil
		}
		return r.conclude(ctx, w, conclusion{err: e, by: db.ByLookUp})
	}
	if in.Stopping || w.fence(in.Run.Generation) != "" {
		return notPerformed(&tool.Error{Code: agent.ToolFailed, Message: "the run was stopped before this was done; nothing was done"})
	}
	if !r.now().Before(w.Run.Deadline) {
		return notPerformed(&tool.Error{Code: agent.ToolTimeout, Message: "the run's time was up before this was done; nothing was done"})
	}
	stale, shown, ended, err := r.recheck(ctx, w)
	switch {
	case err != nil:
		return agent.WriteOutcome{}, err
	case ended != "":
		out, err := notPerformed(&tool.Error{Code: agent.ToolFailed, Message: "rights or resource could not be checked again; nothing was done"})
		if out.State == agent.WriteDone && out.Outcome.End == "" {
			out.Outcome.End = ended
		}
		return out, err
	case stale:
		return notPerformed(&tool.Error{Code: agent.ToolConflict, Message: "the resource changed after the confirmation; nothing was done"})
	case shown != nil:
		return notPerformed(shown)
	}
	now := r.now()
	err = r.store.InTx(ctx, w.Run.Scope, func(tx Tx) error {
		state, err := tx.HoldWrite(ctx, w.Run.ID, w.Call.ID)
		if err != nil {
			return err
		}
		if state.Intent == nil || state.Intent.Result != db.WriteOpen || state.Call.Recorded() {
			return fmt.Errorf("%w: the write was settled meanwhile", errRetry)
		}
		tx.MarkSent(state.Intent.Key, now)
		tx.StartToolCall(w.Run.ID, w.Call.ID)
		return nil
	})
	if err != nil {
		return agent.WriteOutcome{}, err
	}
	return r.perform(ctx, w)
}

// takeUp gives the call of a write that an operator settled its outcome.
func (r *Runs) takeUp(ctx context.Context, w writing) (agent.WriteOutcome, error) {
	if w.Intent.Result == db.WriteNotPerformed {
		return r.conclude(ctx, w, conclusion{err: &tool.Error{
			Code: agent.ToolFailed, Message: "an operator recorded that this was not done",
		}})
	}
	result, err := tool.JSON(map[string]any{"performed": true, "recorded_by": "operator"})
	if err != nil {
		return agent.WriteOutcome{}, err
	}
	return r.conclude(ctx, w, conclusion{result: result})
}
