package agenttest

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/memstore"
	"github.com/fairlead/fairlead/model"
)

// memory is a worker's connection to long-term memory. It ends with the worker.
func (w *worker) memory() activities.Memory { return watchedMemory{w} }

type watchedMemory struct{ worker *worker }

// via uses the memory, if it can be used now.
func via[T any](m watchedMemory, use func(*memstore.Store) (T, error)) (T, error) {
	var none T
	w := m.worker
	if err := w.available(); err != nil {
		return none, err
	}
	if w.run.memoryDown.Load() > 0 && w.run.memoryDown.Add(-1) >= 0 {
		return none, &db.Error{Kind: db.ErrUnavailable}
	}
	out, err := use(w.run.suite.store)
	if dead := w.isDead(); dead != nil {
		return none, dead
	}
	return out, err
}

// do is via for what returns nothing.
func (m watchedMemory) do(use func(*memstore.Store) error) error {
	_, err := via(m, func(s *memstore.Store) (struct{}, error) { return struct{}{}, use(s) })
	return err
}

func (m watchedMemory) ProposeMemory(ctx context.Context, c db.MemoryCandidate) (db.MemoryCandidate, error) {
	return via(m, func(s *memstore.Store) (db.MemoryCandidate, error) { return s.ProposeMemory(ctx, c) })
}

func (m watchedMemory) MemoryCandidate(ctx context.Context, room agent.MemoryRoom, id string) (db.MemoryCandidate, error) {
	return via(m, func(s *memstore.Store) (db.MemoryCandidate, error) { return s.MemoryCandidate(ctx, room, id) })
}

func (m watchedMemory) RunCandidates(ctx context.Context, room agent.MemoryRoom, runID string) ([]db.MemoryCandidate, error) {
	return via(m, func(s *memstore.Store) ([]db.MemoryCandidate, error) { return s.RunCandidates(ctx, room, runID) })
}

func (m watchedMemory) InMemory(ctx context.Context, room agent.MemoryRoom, scope agent.MemoryScope, fn func(activities.MemoryTx) error) error {
	return m.do(func(s *memstore.Store) error {
		return s.InMemory(ctx, room, scope, func(tx activities.MemoryTx) error {
			if err := fn(tx); err != nil {
				return err
			}
			return m.worker.isDead()
		})
	})
}

func (m watchedMemory) Recall(ctx context.Context, room agent.MemoryRoom, q db.RecallQuery) ([]db.RecallHit, error) {
	return via(m, func(s *memstore.Store) ([]db.RecallHit, error) { return s.Recall(ctx, room, q) })
}

func (m watchedMemory) GiveMemories(ctx context.Context, room agent.MemoryRoom, runID string, hits []db.RecallHit) (int, error) {
	return via(m, func(s *memstore.Store) (int, error) { return s.GiveMemories(ctx, room, runID, hits) })
}

func (m watchedMemory) GivenMemories(ctx context.Context, room agent.MemoryRoom, runID string, now time.Time) ([]db.MemoryRecord, error) {
	return via(m, func(s *memstore.Store) ([]db.MemoryRecord, error) { return s.GivenMemories(ctx, room, runID, now) })
}

func (m watchedMemory) LessonSource(ctx context.Context, ref agent.RunRef) (db.LessonSource, error) {
	return via(m, func(s *memstore.Store) (db.LessonSource, error) { return s.LessonSource(ctx, ref) })
}

func (m watchedMemory) CloseLesson(ctx context.Context, ref agent.RunRef, failure string, billed db.Amount) error {
	return m.do(func(s *memstore.Store) error { return s.CloseLesson(ctx, ref, failure, billed) })
}

func (m watchedMemory) TryLesson(ctx context.Context, ref agent.RunRef, most int, failure string, billed db.Amount) (closed bool, err error) {
	err = m.do(func(s *memstore.Store) error {
		closed, err = s.TryLesson(ctx, ref, most, failure, billed)
		return err
	})
	return closed, err
}

func (m watchedMemory) Embedders(ctx context.Context, current db.MemoryEmbedder) (db.EmbedderState, error) {
	return via(m, func(s *memstore.Store) (db.EmbedderState, error) { return s.Embedders(ctx, current) })
}

func (m watchedMemory) Unembedded(ctx context.Context, tenant string, e db.MemoryEmbedder, after string, limit int) ([]db.MemoryRecord, error) {
	return via(m, func(s *memstore.Store) ([]db.MemoryRecord, error) { return s.Unembedded(ctx, tenant, e, after, limit) })
}

func (m watchedMemory) StoreVector(ctx context.Context, tenant string, r db.MemoryRecord, e db.MemoryEmbedder, vector []float32) error {
	return m.do(func(s *memstore.Store) error { return s.StoreVector(ctx, tenant, r, e, vector) })
}

func (m watchedMemory) PromoteEmbedder(ctx context.Context, e db.MemoryEmbedder, limit int) (bool, error) {
	return via(m, func(s *memstore.Store) (bool, error) { return s.PromoteEmbedder(ctx, e, limit) })
}

func (m watchedMemory) ForgetMemory(ctx context.Context, in agent.ForgetInput, limit int) (agent.ErasureStep, error) {
	return via(m, func(s *memstore.Store) (agent.ErasureStep, error) { return s.ForgetMemory(ctx, in, limit) })
}

func (m watchedMemory) EraseSubject(ctx context.Context, in agent.EraseInput, limit int) (agent.ErasureStep, error) {
	return via(m, func(s *memstore.Store) (agent.ErasureStep, error) { return s.EraseSubject(ctx, in, limit) })
}

func (m watchedMemory) MemoryTenants(ctx context.Context) ([]string, error) {
	return via(m, func(s *memstore.Store) ([]string, error) { return s.MemoryTenants(ctx) })
}

func (m watchedMemory) ReconcileMemory(ctx context.Context, tenant string, now, staleSince time.Time, limit int) (agent.ReconcileReport, error) {
	return via(m, func(s *memstore.Store) (agent.ReconcileReport, error) {
		return s.ReconcileMemory(ctx, tenant, now, staleSince, limit)
	})
}

// watchedEmbedder is the Suite's embedder, as far as it answers.
type watchedEmbedder struct {
	model.Embedder
	run *run
}

func (e watchedEmbedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if e.run.embedderDown.Load() > 0 && e.run.embedderDown.Add(-1) >= 0 {
		return nil, &model.Error{Kind: model.KindUnavailable, Err: errors.New("agenttest: the embedder is down")}
	}
	return e.Embedder.Embed(ctx, texts)
}
