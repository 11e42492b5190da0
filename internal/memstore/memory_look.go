package memstore

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// Participate makes a user a participant of a group or project, or ends that.
func (s *Store) Participate(tenant string, scope agent.MemoryScope, user string, in bool) {
	s.inspect(func(d *data) {
		now := s.clock()
		key := participantKey{tenant, scope, user}
		p := d.participants.rows[key]
		if p.User == "" || in {
			p = db.Participant{Scope: scope, User: user, AddedBy: "test", AddedAt: now}
		}
		if !in {
			p.RemovedBy, p.RemovedAt = "test", &now
		}
		d.participants.rows[key] = p
	})
}

// Memories returns what is in force in a tenant now, in the order of writing.
func (s *Store) Memories(tenant string) (list []db.MemoryRecord) {
	s.inspect(func(d *data) {
		now := s.clock()
		for at, r := range d.records.rows {
			if at.tenant == tenant && inForce(r, now) {
				list = append(list, cloneRecord(r))
			}
		}
	})
	slices.SortFunc(list, func(a, b db.MemoryRecord) int {
		return cmp.Or(a.WrittenAt.Compare(b.WrittenAt), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// Candidates returns what was proposed in a run, oldest first, whether or not its
// user may still see it.
func (s *Store) Candidates(tenant, runID string) (list []db.MemoryCandidate) {
	s.inspect(func(d *data) {
		for at, row := range d.candidates.rows {
			if at.tenant == tenant && row.RunID == runID {
				list = append(list, cloneCandidate(row.MemoryCandidate))
			}
		}
	})
	slices.SortFunc(list, func(a, b db.MemoryCandidate) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// Influences returns what a run was given, in order of rank.
func (s *Store) Influences(tenant, runID string) (list []db.MemoryInfluence) {
	s.inspect(func(d *data) { list = d.given(runKey{tenant, runID}) })
	return list
}

// Record returns one version of a record.
func (s *Store) Record(tenant, id string, version int) (r db.MemoryRecord, ok bool) {
	s.inspect(func(d *data) {
		if r, ok = d.records.get(recordKey{namedKey{tenant, id}, version}); ok {
			r = cloneRecord(r)
		}
	})
	return r, ok
}

// MemoryAudit returns the audit trail of a tenant, oldest first.
func (s *Store) MemoryAudit(tenant string) (list []db.MemoryAudit) {
	s.inspect(func(d *data) {
		for n := range len(d.audit.rows) {
			if row := d.audit.rows[n+1]; row.tenant == tenant {
				list = append(list, row.MemoryAudit)
			}
		}
	})
	return list
}
