package db

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// WaitingFilter selects candidates that wait for a person.
type WaitingFilter struct {
	// Tenant and State are required; User and Environment select all if empty.
	Tenant      string
	State       agent.MemoryState
	User        string
	Environment string
	// Now leaves out those whose time is over.
	Now time.Time
	// After continues behind a candidate of the page before.
	After *MemoryCandidate
	// Limit bounds the page. Zero means 50, the most is 500.
	Limit int
}

// WaitingMemories returns candidates that somebody can still decide about, oldest
// first. It is the view of users and reviewers, of all users of the tenant. What
// cannot be opened has no content.
func (db *DB) WaitingMemories(ctx context.Context, f WaitingFilter) ([]MemoryCandidate, error) {
	params := dbsqlc.WaitingMemoryCandidatesParams{
		Tenant: f.Tenant, State: string(f.State), Now: f.Now, UserID: f.User, Environment: f.Environment, MaxCandidates: int32(min(orDefault(f.Limit, 50), 500)),
	}
	if f.After != nil {
		params.After, params.AfterID = &f.After.CreatedAt, f.After.ID
	}
	var rows []dbsqlc.MemoryCandidate
	err := db.readPerson(ctx, f.Tenant, "", one(db.q.WaitingMemoryCandidates, params, &rows))
	if err != nil {
		return nil, fmt.Errorf("list waiting memories: %w", err)
	}
	list, err := db.readableCandidates(ctx, f.Tenant, rows)
	if err != nil {
		return nil, fmt.Errorf("list waiting memories: %w", err)
	}
	return list, nil
}

// CandidateOfTenant reads a candidate, whoever it comes from: ErrNotFound if the
// tenant has none. What cannot be opened has no content.
func (db *DB) CandidateOfTenant(ctx context.Context, tenant, id string) (MemoryCandidate, error) {
	var row dbsqlc.MemoryCandidate
	err := db.readPerson(ctx, tenant, "", one(db.q.CandidateOfTenant, dbsqlc.CandidateOfTenantParams{Tenant: tenant, ID: id}, &row))
	if err != nil {
		return MemoryCandidate{}, fmt.Errorf("load candidate: %w", err)
	}
	list, err := db.readableCandidates(ctx, tenant, []dbsqlc.MemoryCandidate{row})
	if err != nil {
		return MemoryCandidate{}, fmt.Errorf("load candidate: %w", err)
	}
	return list[0], nil
}

// RunCandidates returns what a run of the room's user has proposed, oldest first,
// decided or not.
func (db *DB) RunCandidates(ctx context.Context, room agent.MemoryRoom, runID string) ([]MemoryCandidate, error) {
	var rows []dbsqlc.MemoryCandidate
	err := db.readRoom(ctx, room, one(db.q.CandidatesOfRun, dbsqlc.CandidatesOfRunParams{
		Tenant: room.Scope.Tenant, UserID: room.Scope.User, RunID: runID, Rooms: rooms(room),
	}, &rows))
	if err != nil {
		return nil, fmt.Errorf("list candidates of run: %w", err)
	}
	list, err := db.readableCandidates(ctx, room.Scope.Tenant, rows)
	if err != nil {
		return nil, fmt.Errorf("list candidates of run: %w", err)
	}
	return list, nil
}

// readableCandidates opens candidates, each under the keys of its subject, see
// readableCandidate.
func (db *DB) readableCandidates(ctx context.Context, tenant string, rows []dbsqlc.MemoryCandidate) ([]MemoryCandidate, error) {
	subjects := make([]string, len(rows))
	for i, row := range rows {
		subjects[i] = row.Subject
	}
	all, err := db.ringsOf(ctx, tenant, subjects...)
	if err != nil {
		return nil, err
	}
	list := make([]MemoryCandidate, len(rows))
	for i, row := range rows {
		if list[i], err = readableCandidate(all, row); err != nil {
			return nil, err
		}
	}
	return list, nil
}
