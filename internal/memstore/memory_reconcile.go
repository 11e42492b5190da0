package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

const (
	// givenUp is how long what nobody could decide about is tried.
	givenUp = 30 * 24 * time.Hour
	// maxTries is how often a candidate is listed to be tried again.
	maxTries = 8
	// clocks is what is left to the clocks of workers.
	clocks = time.Minute
)

// byReconciliation is in whose name it is repaired.
const byReconciliation = "reconciliation"

// MemoryTenants implements activities.Memory.
func (s *Store) MemoryTenants(ctx context.Context) (list []string, err error) {
	err = s.everywhere(ctx, func(tx *tx) error {
		list = slices.Sorted(maps.Keys(tx.data.tenants.rows))
		return nil
	})
	return list, wrap("list tenants with memory", err)
}

// ReconcileMemory implements activities.Memory, in one transaction. There is no
// residue of an erasure to look for among candidates, words and vectors as a
// restored backup brings it: nothing here is ever restored.
func (s *Store) ReconcileMemory(ctx context.Context, tenant string, now, staleSince time.Time, limit int) (agent.ReconcileReport, error) {
	report := agent.ReconcileReport{Tenants: 1}
	err := s.inTenant(ctx, tenant, func(tx *tx) error {
		r := reconciliation{tx: tx, now: now, stale: staleSince, limit: max(limit, 1), report: &report}
		r.outlive()
		r.sweep()
		r.expire()
		r.retry()
		return nil
	})
	if err != nil {
		return agent.ReconcileReport{}, wrap("reconcile memory", err)
	}
	return report, nil
}

type reconciliation struct {
	*tx
	now, stale time.Time
	limit      int
	report     *agent.ReconcileReport
}

func (r *reconciliation) found(n int) { r.report.More = r.report.More || n >= r.limit }

// due returns the keys of rows that are due, the oldest first, at most limit.
func due[K comparable, V any](t table[K, V], limit int, is func(K, V) bool, since func(V) time.Time) (keys []K) {
	for key, row := range t.rows {
		if is(key, row) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b K) int { return since(t.rows[a]).Compare(since(t.rows[b])) })
	return keys[:min(len(keys), limit)]
}

// outlive makes tombstones of versions whose retention is over.
func (r *reconciliation) outlive() {
	keys := due(r.data.records, r.limit, func(at recordKey, m db.MemoryRecord) bool {
		return at.tenant == r.scope.Tenant && m.Status != db.MemoryDeleted && m.ExpiresAt != nil && !m.ExpiresAt.After(r.now)
	}, func(m db.MemoryRecord) time.Time { return *m.ExpiresAt })
	for _, key := range keys {
		r.tx.outlive(key, r.data.records.rows[key], r.now)
	}
	r.report.Expired = len(keys)
	r.found(len(keys))
}

// sweep removes content that somebody asked to forget or erase and that is there
// all the same, and what it was found by.
func (r *reconciliation) sweep() {
	d := r.data
	records := due(d.records, r.limit, func(at recordKey, m db.MemoryRecord) bool {
		return at.tenant == r.scope.Tenant && m.Status != db.MemoryDeleted && d.residue(at, m)
	}, func(m db.MemoryRecord) time.Time { return m.WrittenAt })
	for _, key := range records {
		m := d.records.rows[key]
		r.bury(key, m, byReconciliation, r.tx.now)
		r.note(db.MemoryAudit{Actor: byReconciliation, Action: "residue", Subject: m.Subject, User: m.User, Record: m.ID, Version: m.Version})
	}
	keywords := due(d.keywords, r.limit, func(at namedKey, row keywordRow) bool {
		return at.tenant == r.scope.Tenant && !d.active(at, row.version)
	}, func(keywordRow) time.Time { return time.Time{} })
	for _, key := range keywords {
		d.keywords.remove(r.tx, key)
	}
	vectors := due(d.vectors, r.limit, func(at vectorKey, row vectorRow) bool {
		return at.tenant == r.scope.Tenant && !d.active(at.namedKey, row.version)
	}, func(vectorRow) time.Time { return time.Time{} })
	for _, key := range vectors {
		d.vectors.remove(r.tx, key)
	}
	r.report.Residue = len(records) + len(keywords) + len(vectors)
	r.found(max(len(records), len(keywords), len(vectors)))
}

func (d *data) active(key namedKey, version int) bool {
	r, ok := d.records.get(recordKey{key, version})
	return ok && r.Status == db.MemoryActive
}

// residue reports whether a version should be a tombstone: its user asked for that
// after it was written, or one of its later versions is one.
func (d *data) residue(key recordKey, r db.MemoryRecord) bool {
	for at, e := range d.erasures.rows {
		if at.tenant == key.tenant && e.covers(r) && (e.kind == eraseSubject || r.WrittenAt.Before(e.requestedAt.Add(-clocks))) {
			return true
		}
	}
	for at, later := range d.records.rows {
		if at.namedKey == key.namedKey && at.version > key.version && later.Status == db.MemoryDeleted && later.User == r.User {
			return true
		}
	}
	return false
}

// expire gives up what nobody decided about in time, and what could not be learned
// within a month.
func (r *reconciliation) expire() {
	d, since := r.data, r.now.Add(-givenUp)
	candidates := due(d.candidates, r.limit, func(at namedKey, c candidateRow) bool {
		switch {
		case at.tenant != r.scope.Tenant || c.State.Final():
			return false
		case c.State != agent.MemoryProposed:
			return !c.ExpiresAt.After(r.stale)
		}
		return c.CreatedAt.Before(since) || c.Tries >= maxTries && !c.UpdatedAt.After(r.stale) && !d.open(at.tenant, c.RunID)
	}, candidateRow.since)
	for _, key := range candidates {
		c := d.candidates.rows[key]
		c.close(agent.MemoryExpired, byReconciliation, r.tx.now)
		d.candidates.put(r.tx, key, c)
		r.note(db.MemoryAudit{
			Actor: byReconciliation, Action: "expired", Subject: c.Scope.Subject(c.Room.Scope.User), User: c.Room.Scope.User, Candidate: c.ID,
		})
	}
	lessons := due(d.lessons, r.limit, func(at runKey, row lessonRow) bool {
		return at.tenant == r.scope.Tenant && row.status == lessonDue && row.createdAt.Before(since)
	}, lessonRow.since)
	for _, key := range lessons {
		row := d.lessons.rows[key]
		row.status, row.failure, row.updatedAt = lessonFailed, "too_late", r.tx.now
		d.lessons.put(r.tx, key, row)
	}
	r.found(max(len(candidates), len(lessons)))
}

func (c candidateRow) since() time.Time { return c.UpdatedAt }

func (r lessonRow) since() time.Time { return r.updatedAt }

// open reports whether there is such a run and it has not ended.
func (d *data) open(tenant, runID string) bool {
	run, ok := d.runs.get(runKey{tenant, runID})
	return ok && !run.Status.Terminal()
}

// retry lists what is due and notes that it was tried once more.
func (r *reconciliation) retry() {
	d, tenant := r.data, r.scope.Tenant
	candidates := due(d.candidates, r.limit, func(at namedKey, c candidateRow) bool {
		return at.tenant == tenant && r.again(c)
	}, candidateRow.since)
	for _, key := range candidates {
		c := d.candidates.rows[key]
		c.Tries, c.UpdatedAt = c.Tries+1, r.tx.now
		d.candidates.put(r.tx, key, c)
		r.report.Writes = append(r.report.Writes, agent.MemoryWriteInput{ID: c.ID, Room: c.Room})
	}
	lessons := due(d.lessons, r.limit, func(at runKey, row lessonRow) bool {
		return at.tenant == tenant && row.status == lessonDue && !row.updatedAt.After(r.stale)
	}, lessonRow.since)
	for _, key := range lessons {
		row := d.lessons.rows[key]
		row.updatedAt = r.tx.now
		d.lessons.put(r.tx, key, row)
		if l, ok := d.lesson(key); ok {
			r.report.Lessons = append(r.report.Lessons, agent.LearnInput{Run: l.Run, Room: l.Room, DefinitionDigest: l.DefinitionDigest})
		}
	}
	erasures := due(d.erasures, r.limit, func(at namedKey, e erasureRow) bool {
		return at.tenant == tenant && e.kind == eraseSubject && !e.done && !e.requestedAt.After(r.stale)
	}, func(e erasureRow) time.Time { return e.requestedAt })
	for _, key := range erasures {
		e := d.erasures.rows[key].receipt
		r.report.Erasures = append(r.report.Erasures, agent.EraseInput{ID: e.ID, Tenant: tenant, User: e.Subject, By: e.By})
	}
	slices.SortFunc(r.report.Writes, func(a, b agent.MemoryWriteInput) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(r.report.Lessons, func(a, b agent.LearnInput) int { return cmp.Compare(a.Run.RunID, b.Run.RunID) })
	r.found(max(len(candidates), len(lessons)))
}

// again reports whether a candidate is to be tried again: each time later, and one
// that waits for a person once a day. How an open run ends decides about its own.
func (r *reconciliation) again(c candidateRow) bool {
	pause := time.Duration(c.Tries*c.Tries) * time.Hour
	if c.State != agent.MemoryProposed {
		pause = max(pause, 24*time.Hour)
	}
	return !c.State.Final() && c.Tries < maxTries && !c.UpdatedAt.Add(pause).After(r.stale) &&
		(c.State == agent.MemoryProposed || c.ExpiresAt.After(r.tx.now)) && !r.data.open(c.Room.Scope.Tenant, c.RunID)
}
