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
	// A cancel does not end this activity; it says that nothing is performed any
	// more.
	work, stop := r.boundary(ctx)
	defer stop()
	w, done, err := r.openWrite(work, in.Run, in.CallID, in.ArgumentsHash)
	switch {
	case err != nil:
		return agent.WriteOutcome{}, err
	case done != nil:
		return *done, nil
	case w.Intent == nil:
		return w.state(agent.WriteNotBegun), nil
	case w.Intent.Result == db.WritePerformed || w.Intent.Result == db.WriteNotPerformed:
		return r.takeUp(work, w)
	}
	found, err := r.tools.Find(work, w.call())
	log := r.log.With(zap.String("run_id", w.Run.ID), zap.String("call_id", w.Call.ID), zap.String("tool", w.Call.Tool))
	if errors.Is(err, tool.ErrNoFinder) {
		log.Error("a write's outcome is unknown and its tool has no look-up")
		return w.end(agent.ReasonOutcomeUnknown), nil
	}
	if err != nil {
		r.logUnknown("look-up failed", w, err)
		return w.state(agent.WriteUnknown), nil
	}
	log.Info("write looked up", zap.String("state", string(found.State)), zap.Int("sends", w.Intent.Sends))
	switch found.State {
	case tool.FindPerformed:
		return r.conclude(work, w, conclusion{result: found.Result, by: db.ByLookUp})
	case tool.FindFailed:
		return r.conclude(work, w, conclusion{err: found.Err, by: db.ByLookUp})
	case tool.FindAbsent:
		return r.absent(ctx, work, w, in)
	}
	return w.state(agent.WriteUnknown), nil
}

// absent is the way of a write of which its system knows nothing. Another
// worker, cut off but alive, may still send it, and what was sent may still
// arrive. To send it again with the same key is harmless; to say that it did not
// happen has to wait until then.
func (r *Runs) absent(ctx, work context.Context, w writing, in agent.ResolveWriteInput) (agent.WriteOutcome, error) {
	open := w.Intent.DecisiveAt
	notPerformed := func(e *tool.Error, end agent.Reason) (agent.WriteOutcome, error) {
		return r.notPerformed(work, w, open, open, conclusion{err: e, end: end, by: db.ByLookUp})
	}
	if in.Stopping || ctx.Err() != nil || w.fence(in.Run.Generation) != "" || !r.now().Before(w.Run.Deadline) {
		return notPerformed(&tool.Error{Code: agent.ToolFailed, Message: "there was no time left to do this; nothing was done"}, "")
	}
	stale, shown, ended, err := r.recheck(work, w)
	switch {
	case err != nil:
		return agent.WriteOutcome{}, err
	case ended != "":
		return notPerformed(&tool.Error{Code: agent.ToolFailed, Message: "rights or resource could not be checked again; nothing was done"}, ended)
	case stale:
		return notPerformed(&tool.Error{Code: agent.ToolConflict, Message: "the resource changed after the confirmation; nothing was done"}, "")
	case shown != nil:
		return notPerformed(shown, "")
	}
	again := r.send(w)
	err = r.store.InTx(work, w.Run.Scope, func(tx Tx) error {
		state, err := tx.HoldWrite(work, w.Run.ID, w.Call.ID)
		if err != nil {
			return err
		}
		if state.Intent == nil || state.Intent.Result != db.WriteOpen || state.Call.Recorded() {
			return fmt.Errorf("%w: the write was settled meanwhile", errRetry)
		}
		again.open = state.Intent.DecisiveAt
		tx.MarkSent(state.Intent.Key, again.at, again.decisive)
		tx.StartToolCall(w.Run.ID, w.Call.ID)
		return nil
	})
	if err != nil {
		return agent.WriteOutcome{}, err
	}
	return r.perform(ctx, w, again)
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
