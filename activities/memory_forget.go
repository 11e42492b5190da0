package activities

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

const (
	// eraseAtOnce bounds one step of an erasure, in rows of each kind.
	eraseAtOnce = 500
	// eraseTimeout bounds it in time: the first step writes all tombstones.
	eraseTimeout = 2 * time.Minute
	// reconcileAtOnce bounds one round of reconciliation in one tenant.
	reconcileAtOnce = 200
	// staleAfter is how long a write or lesson may be under way before it is
	// started again.
	staleAfter = 10 * time.Minute
)

// Forget does one step of deleting a record, or all that is remembered of a user.
func (r *Runs) Forget(ctx context.Context, in agent.ForgetInput) (step agent.ErasureStep, err error) {
	defer r.contain(agent.ActivityForget, agent.RunRef{}, &err)
	if r.memory == nil {
		return step, r.faultOf(ctx, agent.ActivityForget, errNoMemory)
	}
	work, done := r.bound(ctx, time.Now().Add(eraseTimeout), 0)
	defer done()
	step, err = r.memory.ForgetMemory(work, in, eraseAtOnce)
	return r.erased(ctx, agent.ActivityForget, in.ID, step, err)
}

// Erase does one step of erasing a user.
func (r *Runs) Erase(ctx context.Context, in agent.EraseInput) (step agent.ErasureStep, err error) {
	defer r.contain(agent.ActivityErase, agent.RunRef{}, &err)
	if r.memory == nil {
		return step, r.faultOf(ctx, agent.ActivityErase, errNoMemory)
	}
	work, done := r.bound(ctx, time.Now().Add(eraseTimeout), 0)
	defer done()
	step, err = r.memory.EraseSubject(work, in, eraseAtOnce)
	return r.erased(ctx, agent.ActivityErase, in.ID, step, err)
}

func (r *Runs) erased(ctx context.Context, name, id string, step agent.ErasureStep, err error) (agent.ErasureStep, error) {
	switch {
	case errors.Is(err, db.ErrNotFound):
		// The same whether it is somebody else's or not there.
		return step, refuse(agent.ErrorMemoryMissing, "there is no such memory")
	case errors.Is(err, db.ErrOtherRequest):
		return step, refuse(agent.ErrorMemoryConflict, "the ID was used for another request")
	case err != nil:
		return step, r.faultOf(ctx, name, err, zap.String("request_id", id))
	}
	r.log.Info("erasure step", zap.String("request_id", id), zap.Bool("done", step.Done), zap.String("blocked", step.Blocked),
		zap.Int("records", step.Receipt.Records), zap.Int("vectors", step.Receipt.Vectors), zap.Bool("keys_destroyed", step.Receipt.KeysDestroyed))
	return step, nil
}

// Reconcile does one round of looking for what is left over or due, and repairs
// what it finds.
func (r *Runs) Reconcile(ctx context.Context, in agent.ReconcileInput) (report agent.ReconcileReport, err error) {
	defer r.contain(agent.ActivityReconcile, agent.RunRef{}, &err)
	report, err = r.reconcile(ctx, in)
	return report, r.faultOf(ctx, agent.ActivityReconcile, err)
}

func (r *Runs) reconcile(ctx context.Context, in agent.ReconcileInput) (total agent.ReconcileReport, err error) {
	if r.memory == nil {
		return total, errNoMemory
	}
	work, done := r.bound(ctx, time.Now().Add(reconcileTimeout), 0)
	defer done()
	tenants := []string{in.Tenant}
	if in.Tenant == "" {
		if tenants, err = r.memory.MemoryTenants(work); err != nil {
			return total, err
		}
	}
	if err := r.missing(work, tenants, &total); err != nil {
		// What is due must be started all the same.
		r.log.Error("missing vectors were not added", zap.String("cause", err.Error()))
	}
	now := r.moment()
	var failed error
	for _, tenant := range tenants {
		found, err := r.memory.ReconcileMemory(work, tenant, now, now.Add(-staleAfter), reconcileAtOnce)
		if work.Err() != nil {
			return total, err
		}
		if err != nil {
			// One tenant must not keep the others from it: the next round tries again.
			r.log.Error("a tenant's memory was not reconciled", zap.String("tenant", tenant), zap.String("cause", err.Error()))
			failed = err
			continue
		}
		total.Tenants++
		total.Expired += found.Expired
		total.Residue += found.Residue
		total.Missing += found.Missing
		total.Writes, total.Lessons = append(total.Writes, found.Writes...), append(total.Lessons, found.Lessons...)
		total.Erasures = append(total.Erasures, found.Erasures...)
		total.More = total.More || found.More
		if len(total.Writes)+len(total.Lessons) >= maxDue {
			total.More = true
			break
		}
	}
	if failed != nil && total.Tenants == 0 {
		return total, failed
	}
	return total, nil
}

const (
	// reconcileTimeout bounds one round.
	reconcileTimeout = 10 * time.Minute
	// missingTimeout and missingPages bound what of it goes into missing vectors, of
	// all tenants and of one: an embedder that is slow or refuses keeps nothing up.
	missingTimeout = 3 * time.Minute
	missingPages   = 4
	// maxDue bounds what one round lists to be started again.
	maxDue = 400
)

// missing adds the vectors that records in force lack. What the embedder does not
// answer for now is found by the next round. It comes before anything is noted as
// due: what is noted and then not told is tried for nothing.
func (r *Runs) missing(ctx context.Context, tenants []string, report *agent.ReconcileReport) error {
	ctx, stop := context.WithTimeout(ctx, missingTimeout)
	defer stop()
	state, err := r.memory.Embedders(ctx, embedderOf(r.embedders[0]))
	if err != nil {
		return err
	}
	if state.Building != (db.MemoryEmbedder{}) {
		report.Reindex = state.Building.Name
	}
	e, have := r.embedder(state.Serving)
	if !have {
		return nil // another worker does it
	}
	for _, tenant := range tenants {
		v, err := r.vectorize(ctx, e, tenant, missingPages)
		report.Missing += v.embedded
		if errors.Is(err, errEmbedder) {
			r.log.Warn("the embedder failed: memories stay without vectors for now", zap.String("embedder", state.Serving.Name))
			return nil
		}
		if err != nil {
			return err
		}
		report.More = report.More || v.more
	}
	return nil
}
