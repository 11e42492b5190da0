package db

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// GiveMemories records which memories a run of the room's user was given, in their
// order: the influence ledger (LTM-9). What was recorded first holds; it returns
// how many the run has been given. ErrNotFound for whoever does not take part in
// group or project; ErrErased for who was erased.
func (db *DB) GiveMemories(ctx context.Context, room agent.MemoryRoom, runID string, hits []RecallHit) (int, error) {
	give := dbsqlc.GiveMemoriesParams{
		Tenant: room.Scope.Tenant, RunID: runID, UserID: room.Scope.User, Environment: room.Scope.Environment,
		Records: []string{}, Versions: []int32{}, Subjects: []string{}, Vias: []string{},
	}
	for _, h := range hits {
		give.Records, give.Versions = append(give.Records, h.Record.ID), append(give.Versions, int32(h.Record.Version))
		give.Subjects, give.Vias = append(give.Subjects, h.Record.Subject), append(give.Vias, h.Via)
	}
	var given int64
	err := db.readRoom(ctx, room,
		exec(db.q.LockGiving, dbsqlc.LockGivingParams{Tenant: room.Scope.Tenant, RunID: runID}),
		exec(db.q.GiveMemories, give),
		one(db.q.CountGivenMemories, dbsqlc.CountGivenMemoriesParams{Tenant: room.Scope.Tenant, RunID: runID, UserID: room.Scope.User}, &given))
	if err != nil {
		return 0, fmt.Errorf("give memories: %w", err)
	}
	return int(given), nil
}

// GivenMemories reads again what a run was given, in its order, from the primary
// rows: what is not in force at now, was deleted, or was given another version, is
// not there any more, so that a run sees nothing that the ledger does not say. The
// errors to expect are those of GiveMemories. What cannot be opened is left out.
func (db *DB) GivenMemories(ctx context.Context, room agent.MemoryRoom, runID string, now time.Time) ([]MemoryRecord, error) {
	var (
		rows     []dbsqlc.GivenMemoriesRow
		keys     []dbsqlc.SubjectKey
		subjects []string
	)
	for _, scope := range room.Scopes() {
		subjects = append(subjects, scope.Subject(room.Scope.User))
	}
	err := db.readRoom(ctx, room,
		one(db.q.GivenMemories, dbsqlc.GivenMemoriesParams{
			Tenant: room.Scope.Tenant, RunID: runID, UserID: room.Scope.User, Rooms: rooms(room), At: now,
		}, &rows),
		// Keys come last: no value above is sealed under newer ones.
		one(db.q.MemoryKeys, dbsqlc.MemoryKeysParams{Tenant: room.Scope.Tenant, Subjects: subjects}, &keys))
	if err != nil {
		return nil, fmt.Errorf("read given memories: %w", err)
	}
	all := db.toRings(room.Scope.Tenant, subjects, keys)
	records := make([]MemoryRecord, 0, len(rows))
	for _, row := range rows {
		record, err := toMemoryRecord(all[row.MemoryRecord.Subject], row.MemoryRecord)
		if unreadable(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read given memories: %w", err)
		}
		records = append(records, record)
	}
	return records, nil
}
