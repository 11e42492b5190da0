package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// GiveMemories implements activities.Memory.
func (s *Store) GiveMemories(ctx context.Context, room agent.MemoryRoom, runID string, hits []db.RecallHit) (n int, err error) {
	err = s.inRoom(ctx, room, agent.MemoryScope{}, func(tx *tx) error {
		d, key := tx.data, tx.key(runID)
		run, ok := d.runs.get(key)
		if !ok || run.Scope != room.Scope {
			return nil
		}
		if n = len(d.given(key)); n > 0 {
			return nil
		}
		for i, h := range hits {
			if _, twice := d.influences.get(influenceKey{key, h.Record.ID}); twice {
				return conflict("memory_influence_pkey")
			}
			d.influences.put(tx, influenceKey{key, h.Record.ID}, db.MemoryInfluence{
				RunID: runID, Record: h.Record.ID, Version: h.Record.Version, User: room.Scope.User, Rank: i + 1, Via: h.Via, At: tx.now,
			})
		}
		n = len(hits)
		return nil
	})
	return n, wrap("give memories", err)
}

// given is what a run was given, in order of rank.
func (d *data) given(key runKey) (list []db.MemoryInfluence) {
	for at, i := range d.influences.rows {
		if at.runKey == key {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b db.MemoryInfluence) int { return cmp.Compare(a.Rank, b.Rank) })
	return list
}

// GivenMemories implements activities.Memory.
func (s *Store) GivenMemories(ctx context.Context, room agent.MemoryRoom, runID string, now time.Time) (list []db.MemoryRecord, err error) {
	err = s.inRoom(ctx, room, agent.MemoryScope{}, func(tx *tx) error {
		list = tx.data.givenRecords(room, tx.key(runID), func(r db.MemoryRecord) bool { return inForce(r, now) })
		return nil
	})
	return list, wrap("load given memories", err)
}

// givenRecords are the very versions that a run of the room's user was given, as far
// as they are of the room and hold.
func (d *data) givenRecords(room agent.MemoryRoom, key runKey, holds func(db.MemoryRecord) bool) (list []db.MemoryRecord) {
	for _, i := range d.given(key) {
		r, ok := d.records.get(recordKey{namedKey{key.tenant, i.Record}, i.Version})
		if ok && i.User == room.Scope.User && seen(room, r) && holds(r) {
			list = append(list, cloneRecord(r))
		}
	}
	return list
}
