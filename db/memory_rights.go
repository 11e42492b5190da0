package db

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// Memories returns what belongs to a user or comes from one: the records in
// force, ordered by ID, with f.Past all versions of them, newest first, and those
// of records that are not in force any more. f.Limit counts records. What cannot
// be opened, because its keys are gone or it was damaged, has no content. With
// f.Shared it is what participants see of a group or project: ErrNotFound for who
// takes no part. What others said to bring it about is theirs, and left out.
func (db *DB) Memories(ctx context.Context, tenant, user string, f MemoryFilter) ([]MemoryRecord, error) {
	if user == "" {
		return nil, fmt.Errorf("list memories: %w", ErrScope)
	}
	of, partakes := user, true
	var admit []statement
	if f.Shared != (agent.MemoryScope{}) {
		takesPart := dbsqlc.TakesPartParams{Tenant: tenant, UserID: user}
		switch f.Shared.Kind {
		case agent.MemoryOfGroup:
			takesPart.GroupID = f.Shared.ID
		case agent.MemoryOfProject:
			takesPart.ProjectID = f.Shared.ID
		default:
			return nil, errors.New("list memories: a group or project is shared")
		}
		if !agent.ValidID(f.Shared.ID) {
			return nil, fmt.Errorf("list memories: %w", ErrScope)
		}
		of, admit = f.Shared.Subject(user), append(admit, one(db.q.TakesPart, takesPart, &partakes))
	}
	var rows []dbsqlc.MemoryRecord
	err := db.readPerson(ctx, tenant, user, append(admit, one(db.q.ListMemoryRecords, dbsqlc.ListMemoryRecordsParams{
		Tenant: tenant, UserID: of, Past: f.Past, After: f.After, Environment: f.Environment, Kind: string(f.Kind), Key: f.Key,
		MaxRecords: int32(min(orDefault(f.Limit, 100), 1000)),
	}, &rows))...)
	if err == nil && !partakes {
		err = &Error{Kind: ErrNotFound}
	}
	if err != nil {
		return nil, fmt.Errorf("list memories: %w", err)
	}
	list, err := db.openRecords(ctx, tenant, user, rows, true)
	if err != nil {
		return nil, fmt.Errorf("list memories: %w", err)
	}
	return list, nil
}

// Memory reads the newest version of a record that belongs to a user or comes
// from one, or to a group or project that the user takes part in, or without a user
// any of the tenant's. ErrNotFound is the same for
// what does not exist and for what is somebody else's. A record whose keys are
// gone has no content.
func (db *DB) Memory(ctx context.Context, tenant, user, id string) (MemoryRecord, error) {
	versions, err := db.memoryVersions(ctx, tenant, user, id)
	if err != nil {
		return MemoryRecord{}, fmt.Errorf("load memory: %w", err)
	}
	return versions[0], nil
}

// memoryVersions returns the versions of a record that a person may see, newest
// first: ErrNotFound if there are none.
func (db *DB) memoryVersions(ctx context.Context, tenant, user, id string) ([]MemoryRecord, error) {
	var rows []dbsqlc.MemoryRecord
	err := db.readPerson(ctx, tenant, user, one(db.q.MemoryVersions, dbsqlc.MemoryVersionsParams{Tenant: tenant, ID: id, UserID: user}, &rows))
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, &Error{Kind: ErrNotFound}
	}
	return db.openRecords(ctx, tenant, user, rows, false)
}

// openRecords opens each record under the keys of its own subject for a person, see
// readableRecord. What somebody else said is not for the person, whatever came of it.
func (db *DB) openRecords(ctx context.Context, tenant, user string, rows []dbsqlc.MemoryRecord, lenient bool) ([]MemoryRecord, error) {
	subjects := make([]string, len(rows))
	for i, row := range rows {
		subjects[i] = row.Subject
	}
	all, err := db.ringsOf(ctx, tenant, subjects...)
	if err != nil {
		return nil, err
	}
	list := make([]MemoryRecord, len(rows))
	for i, row := range rows {
		if list[i], err = readableRecord(all, row, lenient); err != nil {
			return nil, err
		}
		if user != "" && list[i].User != user && list[i].Subject != user {
			list[i].Evidence = MemoryEvidence{Purpose: list[i].Evidence.Purpose}
		}
	}
	return list, nil
}

// TraceMemory answers where a record comes from and what it influenced, as far as
// a user may know, or without a user an operator of the tenant: ErrNotFound as for
// Memory. Of runs and entries of the audit trail there are the first 1000, of
// candidates the last.
func (db *DB) TraceMemory(ctx context.Context, tenant, user, id string) (MemoryTrace, error) {
	trace, err := db.traceMemory(ctx, tenant, user, id)
	if err != nil {
		return MemoryTrace{}, fmt.Errorf("trace memory: %w", err)
	}
	return trace, nil
}

func (db *DB) traceMemory(ctx context.Context, tenant, user, id string) (MemoryTrace, error) {
	versions, err := db.memoryVersions(ctx, tenant, user, id)
	if err != nil {
		return MemoryTrace{}, err
	}
	var (
		ids   []string
		quote string
	)
	for _, v := range versions {
		ids = append(ids, v.CandidateID)
		// A correction quotes nothing: the newest version that does leads to the words.
		if quote == "" {
			quote = v.Evidence.MessageID
		}
	}
	var (
		candidates []dbsqlc.MemoryCandidate
		source     *dbsqlc.MessageOfMemoryRow
		influences []dbsqlc.InfluencesOfRecordRow
		audit      []dbsqlc.MemoryAudit
	)
	// Those that were merged with the record have entries of their own.
	if err := db.readPerson(ctx, tenant, user,
		one(db.q.CandidatesOfRecord, dbsqlc.CandidatesOfRecordParams{Tenant: tenant, UserID: user, RecordID: id, Candidates: ids, MaxCandidates: maxInfluences}, &candidates),
		maybe(db.q.MessageOfMemory, dbsqlc.MessageOfMemoryParams{Tenant: tenant, UserID: user, ID: quote}, &source),
		one(db.q.InfluencesOfRecord, dbsqlc.InfluencesOfRecordParams{Tenant: tenant, UserID: user, RecordID: id, MaxInfluences: maxInfluences}, &influences),
	); err != nil {
		return MemoryTrace{}, err
	}
	slices.Reverse(candidates)
	ids, subjects := nil, []string{}
	for _, c := range candidates {
		ids, subjects = append(ids, c.ID), append(subjects, c.Subject)
	}
	if source != nil {
		subjects = append(subjects, source.UserID)
	}
	if err := db.readPerson(ctx, tenant, user, one(db.q.AuditOfMemory, dbsqlc.AuditOfMemoryParams{
		Tenant: tenant, UserID: user, RecordID: id, Candidates: ids, MaxEntries: maxInfluences,
	}, &audit)); err != nil {
		return MemoryTrace{}, err
	}
	all, err := db.ringsOf(ctx, tenant, subjects...)
	if err != nil {
		return MemoryTrace{}, err
	}
	trace := MemoryTrace{Versions: versions, Influences: toInfluences(influences), Audit: toMemoryAudit(audit)}
	for _, row := range candidates {
		c, err := readableCandidate(all, row)
		if err != nil {
			return MemoryTrace{}, err
		}
		trace.Candidates = append(trace.Candidates, c)
	}
	if source != nil {
		switch message, err := toMessage(all[source.UserID], *source); {
		case err == nil:
			trace.Source = &message
		case !unreadable(err):
			return MemoryTrace{}, err
		}
	}
	return trace, nil
}

// RunMemories returns which memories a run was given, by rank: ErrNotFound if the
// tenant, or with a user the user, has no such run.
func (db *DB) RunMemories(ctx context.Context, tenant, user, runID string) ([]MemoryInfluence, error) {
	var (
		run  dbsqlc.GetRunRow
		rows []dbsqlc.InfluencesOfRunRow
	)
	err := db.readPerson(ctx, tenant, user,
		one(db.q.GetRun, dbsqlc.GetRunParams{Tenant: tenant, ID: runID}, &run),
		one(db.q.InfluencesOfRun, dbsqlc.InfluencesOfRunParams{Tenant: tenant, UserID: user, RunID: runID}, &rows),
	)
	if err == nil && user != "" && run.Run.UserID != user {
		err = &Error{Kind: ErrNotFound}
	}
	if err != nil {
		return nil, fmt.Errorf("list memories of run: %w", err)
	}
	list := make([]MemoryInfluence, len(rows))
	for i, row := range rows {
		list[i] = toInfluence(dbsqlc.InfluencesOfRecordRow(row))
	}
	return list, nil
}

// MemoryCandidates returns candidates in a state, oldest first, or with no state
// those that are not decided: a user's, or without a user the tenant's, for
// reviewers. What cannot be opened has no content. Zero means 100, the most is
// 1000.
func (db *DB) MemoryCandidates(ctx context.Context, tenant, user string, state agent.MemoryState, limit int) ([]MemoryCandidate, error) {
	states := []string{string(state)}
	if state == "" {
		states = []string{string(agent.MemoryProposed), string(agent.MemoryWaitingReview), string(agent.MemoryWaitingConfirmation)}
	}
	var rows []dbsqlc.MemoryCandidate
	err := db.readPerson(ctx, tenant, user, one(db.q.ListMemoryCandidates, dbsqlc.ListMemoryCandidatesParams{
		Tenant: tenant, UserID: user, States: states, MaxCandidates: int32(min(orDefault(limit, 100), 1000)),
	}, &rows))
	if err != nil {
		return nil, fmt.Errorf("list candidates: %w", err)
	}
	subjects := make([]string, len(rows))
	for i, row := range rows {
		subjects[i] = row.Subject
	}
	all, err := db.ringsOf(ctx, tenant, subjects...)
	if err != nil {
		return nil, fmt.Errorf("list candidates: %w", err)
	}
	list := make([]MemoryCandidate, len(rows))
	for i, row := range rows {
		if list[i], err = readableCandidate(all, row); err != nil {
			return nil, fmt.Errorf("list candidates: %w", err)
		}
	}
	return list, nil
}

// AddParticipant lets a user take part in a group or project from now on; by says
// who did it. Done again it changes nothing.
func (db *DB) AddParticipant(ctx context.Context, tenant string, scope agent.MemoryScope, user, by string) error {
	err := db.changeParticipant(ctx, tenant, scope, user, by, "participant_added", func(tx *Tx) (bool, error) {
		var (
			changed *bool
			erased  bool
		)
		err := tx.read(ctx,
			one(tx.q.IsErased, dbsqlc.IsErasedParams{Tenant: tenant, UserID: user}, &erased),
			maybe(tx.q.AddParticipant, dbsqlc.AddParticipantParams{
				Tenant: tenant, Kind: string(scope.Kind), ID: scope.ID, UserID: user, AddedBy: by,
			}, &changed))
		if err == nil && erased {
			err = ErrErased
		}
		return changed != nil, err
	})
	if err != nil {
		return fmt.Errorf("add participant: %w", err)
	}
	return nil
}

// RemoveParticipant ends that a user takes part in a group or project: nothing of
// it is seen from then on. ErrNotFound if the user never did; done again it
// changes nothing.
func (db *DB) RemoveParticipant(ctx context.Context, tenant string, scope agent.MemoryScope, user, by string) error {
	err := db.changeParticipant(ctx, tenant, scope, user, by, "participant_removed", func(tx *Tx) (bool, error) {
		var (
			changed *bool
			found   bool
		)
		err := tx.read(ctx,
			maybe(tx.q.RemoveParticipant, dbsqlc.RemoveParticipantParams{
				Tenant: tenant, Kind: string(scope.Kind), ID: scope.ID, UserID: user, RemovedBy: by,
			}, &changed),
			one(tx.q.HasParticipant, dbsqlc.HasParticipantParams{Tenant: tenant, Kind: string(scope.Kind), ID: scope.ID, UserID: user}, &found))
		if err == nil && !found {
			err = &Error{Kind: ErrNotFound}
		}
		return changed != nil, err
	})
	if err != nil {
		return fmt.Errorf("remove participant: %w", err)
	}
	return nil
}

func (db *DB) changeParticipant(ctx context.Context, tenant string, scope agent.MemoryScope, user, by, action string, change func(*Tx) (bool, error)) error {
	if err := checkShared(tenant, scope); err != nil {
		return err
	}
	if !agent.ValidID(user) || by == "" {
		return errors.New("user and who does it are required")
	}
	return db.inTenantMemory(ctx, tenant, func(tx *Tx) error {
		changed, err := change(tx)
		if err != nil || !changed {
			return err
		}
		tx.write(exec(tx.q.InsertMemoryAudit, dbsqlc.InsertMemoryAuditParams{
			Tenant: tenant, Actor: by, Action: action, Subject: scope.Subject(user), UserID: user,
		}))
		return nil
	})
}

// Participants lists who takes part in a group or project, or did, by user.
func (db *DB) Participants(ctx context.Context, tenant string, scope agent.MemoryScope) ([]Participant, error) {
	var rows []dbsqlc.ListParticipantsRow
	err := checkShared(tenant, scope)
	if err == nil {
		err = db.readPerson(ctx, tenant, "", one(db.q.ListParticipants, dbsqlc.ListParticipantsParams{
			Tenant: tenant, Kind: string(scope.Kind), ID: scope.ID,
		}, &rows))
	}
	if err != nil {
		return nil, fmt.Errorf("list participants: %w", err)
	}
	list := make([]Participant, len(rows))
	for i, row := range rows {
		list[i] = Participant{
			Scope: scope, User: row.UserID, AddedBy: row.AddedBy, AddedAt: row.AddedAt.UTC(), RemovedBy: row.RemovedBy, RemovedAt: utc(row.RemovedAt),
		}
	}
	return list, nil
}

// checkShared refuses scopes that nobody takes part in.
func checkShared(tenant string, scope agent.MemoryScope) error {
	if scope.Kind != agent.MemoryOfGroup && scope.Kind != agent.MemoryOfProject {
		return errors.New("only groups and projects have participants")
	}
	if !agent.ValidID(tenant) || !agent.ValidID(scope.ID) {
		return ErrScope
	}
	return nil
}

func toInfluence(row dbsqlc.InfluencesOfRecordRow) MemoryInfluence {
	return MemoryInfluence{
		RunID: row.RunID, Record: row.RecordID, Version: int(row.Version), User: row.UserID, Rank: int(row.Rank), Via: row.Via, At: row.At.UTC(),
	}
}

func toInfluences(rows []dbsqlc.InfluencesOfRecordRow) (list []MemoryInfluence) {
	for _, row := range rows {
		list = append(list, toInfluence(row))
	}
	return list
}

func toMemoryAudit(rows []dbsqlc.MemoryAudit) (list []MemoryAudit) {
	for _, row := range rows {
		list = append(list, MemoryAudit{
			ID: row.ID, At: row.At.UTC(), Actor: row.Actor, Action: row.Action, Subject: row.Subject, User: row.UserID,
			Candidate: row.CandidateID, Record: row.RecordID, Version: int(row.Version), Detail: row.Detail,
		})
	}
	return list
}
