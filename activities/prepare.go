package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/tool"
)

// maxRevisions bounds how often one call is prepared because its resource
// changes.
const maxRevisions = 5

// PrepareWrite makes the plan of a recorded write and lets the run wait for a
// person, or returns the plan that waits already (WRITE-1). A call that is
// refused gets its outcome instead.
func (r *Runs) PrepareWrite(ctx context.Context, in agent.PrepareWriteInput) (out agent.PreparedWrite, err error) {
	defer r.contain(agent.ActivityPrepareWrite, in.Run, &err)
	key := callKey{in.Run.Scope.Tenant, in.Run.RunID, in.CallID}
	out, err = r.plans.do(ctx, key, func() (agent.PreparedWrite, error) { return r.prepareWrite(ctx, in) })
	return out, r.fault(ctx, agent.ActivityPrepareWrite, in.Run, err)
}

func (r *Runs) prepareWrite(ctx context.Context, in agent.PrepareWriteInput) (agent.PreparedWrite, error) {
	w, done, err := r.openWrite(ctx, in.Run, in.CallID, in.ArgumentsHash)
	if err != nil {
		return agent.PreparedWrite{}, err
	}
	switch {
	case done != nil:
		return agent.PreparedWrite{Outcome: &done.Outcome, Deadline: done.Deadline}, nil
	case w.Intent != nil:
		// The loop prepares nothing that was confirmed.
		return w.refusePrepare(agent.ReasonInternal), nil
	case w.Plan != nil && w.Plan.Status == db.PlanPending:
		return agent.PreparedWrite{Plan: r.planRef(*w.Plan)}, nil
	}
	if reason := w.fence(in.Run.Generation); reason != "" {
		return w.refusePrepare(reason), nil
	}
	work, stop := r.bound(ctx, w.Run.DeadlineAt(r.now()), 0)
	defer stop()
	plan, err := r.describe(work, w)
	if refused := new(tool.Error); err == nil || errors.As(err, &refused) {
		// Who may not prepare this does not learn either why the tool refuses.
		if forbidden := r.decide(about(authz.Prepare, w.Run, w.Call, plan.Resource), w.Run.ID); forbidden != nil {
			err = forbidden
		}
	}
	shown, ended, err := judgeTool(ctx, work, err)
	switch {
	case err != nil:
		return agent.PreparedWrite{}, err
	case ended != "":
		return w.refusePrepare(ended), nil
	case shown == nil && w.revision() > maxRevisions:
		shown = &tool.Error{Code: agent.ToolConflict, Message: "the resource kept changing while the write was being confirmed; nothing was done"}
	}
	if shown != nil {
		r.logToolError(w.Run.ID, w.Call.ID, shown)
		out, err := r.conclude(ctx, w, conclusion{err: shown})
		return agent.PreparedWrite{Outcome: &out.Outcome, Deadline: out.Deadline}, err
	}
	return r.storePlan(ctx, w, plan)
}

// describe has the tool make its plan. A tool of another version than the one
// that was proposed may mean something else by the same arguments.
func (r *Runs) describe(ctx context.Context, w writing) (tool.Plan, error) {
	if spec, known := r.tools.Spec(w.Call.Tool); known && spec.Version != w.Call.ToolVersion {
		return tool.Plan{}, &tool.Error{Code: agent.ToolConflict, Message: "the tool has changed since this was proposed; nothing was done"}
	}
	w.Intent = nil // no key while it prepares
	return r.tools.Prepare(ctx, w.call())
}

func (r *Runs) storePlan(ctx context.Context, w writing, described tool.Plan) (agent.PreparedWrite, error) {
	now := r.now().UTC().Truncate(time.Microsecond)
	plan := db.WritePlan{
		RunID: w.Run.ID, CallID: w.Call.ID, Revision: w.revision(), Tool: w.Call.Tool, ToolVersion: w.Call.ToolVersion,
		ArgumentsHash: w.Call.ArgumentsHash, Resource: described.Resource, ResourceVersion: described.Version, Summary: described.Summary,
		Nonce: approval.Nonce(), PolicyDigest: r.policies.Digest(), CreatedAt: now, ExpiresAt: now.Add(w.def.Writes.ConfirmWithin),
		Status: db.PlanPending,
	}
	var err error
	if plan.Hash, err = approval.PlanHash(approval.PlanFacts{
		Tenant: w.Run.Scope.Tenant, RunID: plan.RunID, CallID: plan.CallID, Revision: plan.Revision, Tool: plan.Tool,
		ToolVersion: plan.ToolVersion, Arguments: []byte(w.Call.Arguments), Resource: plan.Resource,
		ResourceVersion: plan.ResourceVersion, Summary: plan.Summary, ExpiresAt: plan.ExpiresAt, Nonce: plan.Nonce,
	}); err != nil {
		return agent.PreparedWrite{}, err
	}
	var refused agent.Reason
	err = r.store.InTx(ctx, w.Run.Scope, func(tx Tx) error {
		state, err := tx.HoldWrite(ctx, w.Run.ID, w.Call.ID)
		if err != nil {
			return err
		}
		now := w.with(state)
		if refused = now.fence(w.Run.Generation); refused != "" {
			return nil
		}
		if now.revision() != plan.Revision || state.Intent != nil || state.Call.Recorded() {
			return fmt.Errorf("%w: the write was prepared by another worker", errRetry)
		}
		tx.InsertPlan(plan)
		if state.Run.Status == agent.StatusWaitingConfirmation {
			return nil
		}
		return tx.MoveRun(state.Run, db.Move{To: agent.StatusWaitingConfirmation, At: plan.CreatedAt})
	})
	if errors.Is(err, db.ErrConflict) {
		err = fmt.Errorf("%w: %w", errRetry, err)
	}
	if err != nil {
		return agent.PreparedWrite{}, err
	}
	if refused != "" {
		return w.refusePrepare(refused), nil
	}
	r.log.Info("write waits for confirmation", zap.String("run_id", w.Run.ID), zap.String("call_id", w.Call.ID), zap.String("tool", w.Call.Tool),
		zap.Int("revision", plan.Revision), zap.Time("expires_at", plan.ExpiresAt))
	return agent.PreparedWrite{Plan: r.planRef(plan)}, nil
}

func (r *Runs) planRef(p db.WritePlan) *agent.PlanRef {
	spec, _ := r.tools.Spec(p.Tool)
	return &agent.PlanRef{CallID: p.CallID, Revision: p.Revision, ExpiresAt: p.ExpiresAt, Timeout: spec.Timeout}
}

// ExpirePlan ends the wait for a person: the model is told that nobody
// confirmed in time (WRITE-2).
func (r *Runs) ExpirePlan(ctx context.Context, in agent.ExpirePlanInput) (out agent.WriteOutcome, err error) {
	defer r.contain(agent.ActivityExpirePlan, in.Run, &err)
	out, err = r.expirePlan(ctx, in)
	return out, r.fault(ctx, agent.ActivityExpirePlan, in.Run, err)
}

func (r *Runs) expirePlan(ctx context.Context, in agent.ExpirePlanInput) (agent.WriteOutcome, error) {
	w, known, err := r.openPlan(ctx, in.Run, in.CallID, "", in.Revision)
	if err != nil || known != nil {
		return orZero(known), err
	}
	return r.conclude(ctx, w, conclusion{
		plan: db.PlanExpired,
		err:  &tool.Error{Code: agent.ToolNotConfirmed, Message: "nobody confirmed this in time; nothing was done"},
	})
}

// writing is a write as it was read, with the definition of its run.
type writing struct {
	db.WriteState
	def definition.Definition
}

func (w writing) with(state db.WriteState) writing { return writing{state, w.def} }

// call is what the registry is given. A version is set once there is a plan.
func (w writing) call() tool.Call {
	call := tool.Call{
		Invocation: tool.Invocation{Actor: actorOf(w.Run), RunID: w.Run.ID, CallID: w.Call.ID, Arguments: []byte(w.Call.Arguments)},
		Tool:       w.Call.Tool, Allow: w.def.Tools, ArgumentsHash: w.Call.ArgumentsHash,
	}
	if w.Intent != nil {
		call.Key, call.Version = w.Intent.Key, w.Plan.ResourceVersion
	}
	return call
}

// revision is that of the next plan.
func (w writing) revision() int {
	if w.Plan == nil {
		return 1
	}
	return w.Plan.Revision + 1
}

// fence says why nothing may begin any more, or returns the empty reason.
func (w writing) fence(generation int64) agent.Reason {
	run := w.Run
	if run.Status == agent.StatusWaitingConfirmation {
		run.Status = agent.StatusRunning
	}
	switch code, _ := fence(run, generation); code {
	case "":
		return ""
	case agent.FailureSuperseded:
		return agent.ReasonSuperseded
	case agent.FailureCanceled:
		return agent.ReasonCanceled
	}
	return agent.ReasonInternal
}

// state is an answer without an outcome. The deadline is told as soon as the
// run no longer waits for a person.
func (w writing) state(s agent.WriteState) agent.WriteOutcome {
	out := agent.WriteOutcome{State: s, Outcome: agent.ToolOutcome{CallID: w.Call.ID}}
	if w.Run.Status != agent.StatusWaitingConfirmation {
		out.Deadline = w.Run.Deadline
	}
	return out
}

// end is an answer that ends the run.
func (w writing) end(reason agent.Reason) agent.WriteOutcome {
	out := w.state(agent.WriteDone)
	out.Outcome.End = reason
	return out
}

func (w writing) refusePrepare(reason agent.Reason) agent.PreparedWrite {
	out := w.end(reason)
	return agent.PreparedWrite{Outcome: &out.Outcome, Deadline: out.Deadline}
}

// openWrite reads a write. done is its outcome if it has one, or if it can have
// none. An empty argumentsHash is not compared.
func (r *Runs) openWrite(ctx context.Context, ref agent.RunRef, callID, argumentsHash string) (w writing, done *agent.WriteOutcome, err error) {
	w.WriteState, err = r.store.Write(ctx, ref.Scope, ref.RunID, callID)
	if errors.Is(err, db.ErrNotFound) {
		w.Call.ID = callID
		out := w.end(agent.ReasonInternal)
		return w, &out, nil
	}
	if err != nil {
		return w, nil, err
	}
	if w.Call.Risk != string(tool.Write) || argumentsHash != "" && w.Call.ArgumentsHash != argumentsHash {
		r.log.Error("recorded write is not the one that was asked for", zap.String("run_id", ref.RunID), zap.String("call_id", callID))
		out := w.end(agent.ReasonInternal)
		return w, &out, nil
	}
	if w.Call.Recorded() {
		out := w.state(agent.WriteDone)
		out.Outcome = recordedOutcome(w.Call)
		return w, &out, nil
	}
	w.def, err = r.definition(ctx, w.Run.DefinitionDigest)
	return w, nil, err
}

// openPlan is openWrite for a plan that may still be decided. known is what there
// is to say of one that may not.
func (r *Runs) openPlan(ctx context.Context, ref agent.RunRef, callID, argumentsHash string, revision int) (w writing, known *agent.WriteOutcome, err error) {
	w, known, err = r.openWrite(ctx, ref, callID, argumentsHash)
	if err != nil || known != nil {
		return w, known, err
	}
	var out agent.WriteOutcome
	switch {
	case w.Intent != nil:
		out = w.state(agent.WriteUnknown)
	case w.Plan == nil || w.Plan.Revision != revision || w.Plan.Status == db.PlanStale:
		out = w.state(agent.WriteStale)
	default:
		return w, nil, nil
	}
	return w, &out, nil
}

func orZero[T any](p *T) (zero T) {
	if p == nil {
		return zero
	}
	return *p
}
