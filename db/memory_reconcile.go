package db

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// givenUp is how long a proposal or lesson that nobody could decide about is
// tried: its content is not kept for ever.
const givenUp = 30 * 24 * time.Hour

// MemoryTenants lists the tenants that have memory.
func (db *DB) MemoryTenants(ctx context.Context) ([]string, error) {
	var names []string
	err := db.batch(ctx, one(func(ctx context.Context, conn dbsqlc.DBTX, _ struct{}) ([]string, error) {
		return db.q.MemoryTenants(ctx, conn)
	}, struct{}{}, &names))
	if err != nil {
		return nil, fmt.Errorf("list tenants with memory: %w", err)
	}
	return names, nil
}

// ReconcileMemory finds and repairs in one tenant, at most limit pieces of each
// kind: records whose retention is over at now become tombstones; words and
// vectors without a version in force go, and so does content that somebody asked
// to forget or erase; candidates that nobody decided about in time expire. What
// was due before staleSince and is not decided is listed to be tried again, each
// once until as much time has passed again, a proposal later each time, and given
// up after a month or 8 tries. A candidate that waits for a person is listed once a day
// as well, 8 times at most, and is not given up before its time. Erasures of users
// that are not completed are listed each time.
func (db *DB) ReconcileMemory(ctx context.Context, tenant string, now, staleSince time.Time, limit int) (agent.ReconcileReport, error) {
	report := agent.ReconcileReport{Tenants: 1}
	r := reconciliation{tenant: tenant, now: now, staleSince: staleSince, limit: max(limit, 1), report: &report}
	// Each in a transaction of its own: it is short, and what was repaired stays
	// so.
	for _, step := range []func(context.Context, *Tx) error{r.outlive, r.sweep, r.expire, r.retry} {
		if err := db.inTenantMemory(ctx, tenant, func(tx *Tx) error { return step(ctx, tx) }); err != nil {
			return agent.ReconcileReport{}, fmt.Errorf("reconcile memory: %w", err)
		}
	}
	return report, nil
}

// reconciliation is one round in a tenant. Its steps read first and count when
// they have: they may be run again from their start.
type reconciliation struct {
	tenant          string
	now, staleSince time.Time
	limit           int
	report          *agent.ReconcileReport
}

func (r *reconciliation) found(counts ...int64) {
	for _, n := range counts {
		r.report.More = r.report.More || int(n) >= r.limit
	}
}

func (r *reconciliation) outlive(ctx context.Context, tx *Tx) error {
	var outlived dbsqlc.OutliveMemoryRow
	params := dbsqlc.OutliveMemoryParams{Tenant: r.tenant, Now: r.now, MaxRows: int32(r.limit)}
	if err := tx.read(ctx, one(tx.q.OutliveMemory, params, &outlived)); err != nil {
		return err
	}
	r.report.Expired = int(outlived.Versions)
	r.found(outlived.Versions)
	return nil
}

func (r *reconciliation) sweep(ctx context.Context, tx *Tx) error {
	var records, candidates, keywords, words, vectors int64
	params := dbsqlc.SweepKeywordsParams{Tenant: r.tenant, MaxRows: int32(r.limit)}
	err := tx.read(ctx,
		// Records first: what they were found by is residue then.
		one(tx.q.SweepRecords, dbsqlc.SweepRecordsParams{Tenant: r.tenant, MaxRows: int32(r.limit)}, &records),
		one(tx.q.SweepCandidates, dbsqlc.SweepCandidatesParams(params), &candidates),
		one(tx.q.SweepKeywords, params, &keywords),
		one(tx.q.SweepWords, dbsqlc.SweepWordsParams(params), &words),
		one(tx.q.SweepVectors, dbsqlc.SweepVectorsParams(params), &vectors),
	)
	if err != nil {
		return err
	}
	r.report.Residue = int(records + candidates + keywords + words + vectors)
	r.found(records, candidates, keywords, words, vectors)
	return nil
}

func (r *reconciliation) expire(ctx context.Context, tx *Tx) error {
	var candidates, lessons int64
	since := r.now.Add(-givenUp)
	err := tx.read(ctx,
		one(tx.q.ExpireCandidates, dbsqlc.ExpireCandidatesParams{Tenant: r.tenant, GivenUp: since, StaleSince: r.staleSince, MaxRows: int32(r.limit)}, &candidates),
		one(tx.q.GiveUpLessons, dbsqlc.GiveUpLessonsParams{Tenant: r.tenant, GivenUp: since, MaxRows: int32(r.limit)}, &lessons),
	)
	if err != nil {
		return err
	}
	r.found(candidates, lessons)
	return nil
}

func (r *reconciliation) retry(ctx context.Context, tx *Tx) error {
	var (
		candidates []dbsqlc.DueCandidatesRow
		lessons    []dbsqlc.DueLessonsRow
		erasures   []dbsqlc.OpenErasuresRow
	)
	params := dbsqlc.DueCandidatesParams{Tenant: r.tenant, StaleSince: r.staleSince, MaxRows: int32(r.limit)}
	err := tx.read(ctx,
		one(tx.q.DueCandidates, params, &candidates),
		one(tx.q.DueLessons, dbsqlc.DueLessonsParams(params), &lessons),
		one(tx.q.OpenErasures, dbsqlc.OpenErasuresParams(params), &erasures),
	)
	if err != nil {
		return err
	}
	r.report.Writes, r.report.Lessons, r.report.Erasures = nil, nil, nil
	for _, e := range erasures {
		r.report.Erasures = append(r.report.Erasures, agent.EraseInput{ID: e.ID, Tenant: r.tenant, User: e.UserID, By: e.RequestedBy})
	}
	for _, c := range candidates {
		r.report.Writes = append(r.report.Writes, agent.MemoryWriteInput{ID: c.ID, Room: agent.MemoryRoom{
			Scope:        agent.Scope{Tenant: r.tenant, User: c.UserID, Environment: c.Environment},
			Conversation: c.ConversationID, Group: c.GroupID, Project: c.ProjectID, Agent: c.Agent,
		}})
	}
	for _, row := range lessons {
		l := toLesson(r.tenant, row)
		r.report.Lessons = append(r.report.Lessons, agent.LearnInput{Run: l.Run, Room: l.Room, DefinitionDigest: l.DefinitionDigest})
	}
	r.found(int64(len(candidates)), int64(len(lessons)))
	return nil
}
