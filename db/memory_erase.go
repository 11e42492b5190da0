package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/vault"
)

// Kinds of an erasure.
const (
	eraseRecord  = "record"
	eraseMemory  = "memory"
	eraseSubject = "subject"
)

// Why nothing is learned from runs of before.
const (
	forgottenLesson = "forgotten"
	erasedLesson    = "erased"
)

// ErrOtherRequest: the ID of a proposal, or of a request to forget or erase, was
// used for another one. It is an ErrConflict that stays.
var ErrOtherRequest = fmt.Errorf("another request has this id: %w", ErrConflict)

// Codes of what an erasure waits for.
const (
	blockedOpenRun = "open_run"
	blockedWrite   = "unsettled_write"
)

// erasure is a request to forget or erase.
type erasure struct{ id, tenant, kind, user, record, by string }

// ForgetMemory deletes one record, or with no record everything, of what belongs
// to the room's user or comes from the user. The first step writes all tombstones,
// which reads obey at once; each step removes at most limit rows of what was
// derived, until step.Done. Of everything also goes what was said before and is not
// remembered yet. A request that is done returns its receipt;
// ErrOtherRequest if another request has this ID, ErrNotFound if the record is not
// there or somebody else's.
func (db *DB) ForgetMemory(ctx context.Context, in agent.ForgetInput, limit int) (agent.ErasureStep, error) {
	e := erasure{id: in.ID, tenant: in.Room.Scope.Tenant, kind: eraseRecord, user: in.Room.Scope.User, record: in.Record, by: in.By}
	if in.Record == "" {
		e.kind = eraseMemory
	}
	step, err := db.eraseStep(ctx, e, limit)
	if err != nil {
		return agent.ErasureStep{}, fmt.Errorf("forget memory: %w", err)
	}
	return step, nil
}

// EraseSubject is ForgetMemory for everything that belongs to a user or comes from
// one, for good: from the first step on nothing is remembered of the user, nor
// recalled for one. At its end it destroys the user's keys. While a run of the
// user is open, or a write has no known outcome, step.Blocked says so and the step
// is to be repeated later.
func (db *DB) EraseSubject(ctx context.Context, in agent.EraseInput, limit int) (agent.ErasureStep, error) {
	e := erasure{id: in.ID, tenant: in.Tenant, kind: eraseSubject, user: in.User, by: in.By}
	step, err := db.eraseStep(ctx, e, limit)
	if err == nil && !step.Done && step.Blocked == "" {
		return step, nil
	}
	if err == nil && !step.Done {
		step, err = db.destroyMemory(ctx, e, step)
	}
	if err != nil {
		return agent.ErasureStep{}, fmt.Errorf("erase subject: %w", err)
	}
	return step, nil
}

// purged is what eraseStep says in Blocked once only the keys are left to destroy.
const purged = "keys"

func (e erasure) validate() error {
	if !agent.ValidID(e.tenant) || !agent.ValidID(e.user) {
		return ErrScope
	}
	if !agent.ValidID(e.id) || e.by == "" {
		return errors.New("a request has an id and says who asks")
	}
	return nil
}

// eraseStep is one step of an erasure, in one transaction. Of a subject it is
// never Done before destroyMemory: Blocked is purged then.
func (db *DB) eraseStep(ctx context.Context, e erasure, limit int) (step agent.ErasureStep, err error) {
	if err := e.validate(); err != nil {
		return step, err
	}
	limit = max(limit, 1)
	err = db.inTenantMemory(ctx, e.tenant, func(tx *Tx) error {
		receipt, done, err := tx.holdErasure(ctx, e)
		if err != nil {
			return err
		}
		step = agent.ErasureStep{Done: done, Receipt: receipt}
		if done {
			return nil
		}
		more, err := tx.purge(ctx, e, limit, &step.Receipt)
		switch {
		case err != nil:
			return err
		case more:
			tx.updateErasure(e, step.Receipt, false)
		case e.kind == eraseSubject:
			step.Blocked = purged
			tx.updateErasure(e, step.Receipt, false)
		default:
			step.Done = true
			tx.completeErasure(e, &step.Receipt)
		}
		return nil
	})
	return step, err
}

// holdErasure puts the request on record if it is not, keeps everybody else from
// it, and the user's transactions from writing, before the transaction ends. It
// returns the receipt so far and whether the request is done.
func (tx *Tx) holdErasure(ctx context.Context, e erasure) (receipt agent.ErasureReceipt, done bool, err error) {
	var (
		owned bool
		row   dbsqlc.MemoryErasure
	)
	if err := tx.read(ctx,
		exec(tx.q.LockSubjectKeys, dbsqlc.LockSubjectKeysParams{Tenant: e.tenant, Subject: e.user}),
		one(tx.q.OwnsRecord, dbsqlc.OwnsRecordParams{Tenant: e.tenant, ID: e.record, UserID: e.user}, &owned),
	); err != nil {
		return receipt, false, err
	}
	if e.kind == eraseRecord && !owned {
		return receipt, false, &Error{Kind: ErrNotFound}
	}
	if err := tx.read(ctx,
		// By its tenants an erasure is found that goes on.
		exec(tx.q.InsertMemoryTenant, e.tenant),
		exec(tx.q.InsertErasure, dbsqlc.InsertErasureParams{
			Tenant: e.tenant, ID: e.id, Kind: e.kind, UserID: e.user, RecordID: e.record, RequestedBy: e.by,
		}),
		one(tx.q.HoldErasure, dbsqlc.HoldErasureParams{Tenant: e.tenant, ID: e.id}, &row),
	); err != nil {
		return receipt, false, err
	}
	if row.Kind != e.kind || row.UserID != e.user || row.RecordID != e.record {
		return receipt, false, ErrOtherRequest
	}
	receipt, err = toReceipt(row)
	return receipt, row.CompletedAt != nil, err
}

// purge writes the tombstones that are missing and removes at most limit rows of
// each kind of what was derived. It adds what it did to the receipt, and reports
// whether something may be left.
func (tx *Tx) purge(ctx context.Context, e erasure, limit int, receipt *agent.ErasureReceipt) (more bool, err error) {
	var (
		buried                        dbsqlc.BuryMemoryRow
		record                        dbsqlc.BuryRecordRow
		candidates, keywords, vectors int64
		statements                    []statement
		failure                       = forgottenLesson
	)
	if e.kind == eraseSubject {
		failure = erasedLesson
	}
	if e.kind == eraseRecord {
		statements = append(statements,
			one(tx.q.BuryRecord, dbsqlc.BuryRecordParams{Tenant: e.tenant, ID: e.record, UserID: e.user, EndedBy: e.by}, &record),
			one(tx.q.ClearCandidatesOfRecord, dbsqlc.ClearCandidatesOfRecordParams{
				Tenant: e.tenant, RecordID: e.record, UserID: e.user, DecidedBy: e.by,
			}, &candidates))
	} else {
		statements = append(statements,
			one(tx.q.BuryMemory, dbsqlc.BuryMemoryParams{Tenant: e.tenant, UserID: e.user, EndedBy: e.by}, &buried),
			one(tx.q.ClearCandidates, dbsqlc.ClearCandidatesParams{
				Tenant: e.tenant, UserID: e.user, DecidedBy: e.by, Erased: e.kind == eraseSubject,
			}, &candidates),
			exec(tx.q.LeaveLessons, dbsqlc.LeaveLessonsParams{Tenant: e.tenant, UserID: e.user, Failure: failure}))
	}
	if e.kind == eraseSubject {
		statements = append(statements,
			exec(tx.q.LeaveScopes, dbsqlc.LeaveScopesParams{Tenant: e.tenant, UserID: e.user, RemovedBy: e.by}))
	}
	params := dbsqlc.PurgeKeywordsParams{Tenant: e.tenant, UserID: e.user, RecordID: e.record, MaxRows: int32(limit)}
	statements = append(statements,
		one(tx.q.PurgeKeywords, params, &keywords),
		one(tx.q.PurgeVectors, dbsqlc.PurgeVectorsParams(params), &vectors))
	if err := tx.read(ctx, statements...); err != nil {
		return false, err
	}
	receipt.Records += int(buried.Records + record.Records)
	receipt.Versions += int(buried.Versions + record.Versions)
	receipt.Candidates += int(candidates)
	receipt.Keywords += int(keywords)
	receipt.Vectors += int(vectors)
	return int(keywords) >= limit || int(vectors) >= limit, nil
}

// destroyMemory is the last step of the erasure of a subject.
func (db *DB) destroyMemory(ctx context.Context, e erasure, step agent.ErasureStep) (agent.ErasureStep, error) {
	err := db.DestroyKeys(ctx, e.tenant, e.user, e.by)
	if errors.Is(err, ErrNotFound) && db.keys.vault != nil {
		// Who never had keys would get new ones with the next run.
		if _, err = db.FreshKeys(ctx, vault.Owner{Tenant: e.tenant, Subject: e.user}); err == nil {
			err = db.DestroyKeys(ctx, e.tenant, e.user, e.by)
		}
	}
	switch {
	case errors.Is(err, ErrUnsettledWrites):
		step.Blocked = blockedWrite
		return step, nil
	case errors.Is(err, ErrConflict):
		step.Blocked = blockedOpenRun
		return step, nil
	case err != nil && !errors.Is(err, ErrKeysDestroyed):
		return step, err
	}
	err = db.inTenantMemory(ctx, e.tenant, func(tx *Tx) error {
		receipt, done, err := tx.holdErasure(ctx, e)
		if err != nil {
			return err
		}
		step = agent.ErasureStep{Done: true, Receipt: receipt}
		if !done {
			step.Receipt.KeysDestroyed = true
			tx.completeErasure(e, &step.Receipt)
		}
		return nil
	})
	return step, err
}

func (tx *Tx) completeErasure(e erasure, receipt *agent.ErasureReceipt) {
	receipt.At = time.Now().UTC().Truncate(time.Microsecond)
	tx.updateErasure(e, *receipt, true)
	action := "forgotten"
	if e.kind == eraseSubject {
		action = "erased"
	}
	tx.write(exec(tx.q.InsertMemoryAudit, dbsqlc.InsertMemoryAuditParams{
		Tenant: e.tenant, Actor: e.by, Action: action, Subject: e.user, UserID: e.user, RecordID: e.record,
		Detail: fmt.Sprintf("request=%s records=%d versions=%d", e.id, receipt.Records, receipt.Versions),
	}))
}

func (tx *Tx) updateErasure(e erasure, receipt agent.ErasureReceipt, completed bool) {
	text, err := json.Marshal(receipt)
	if err != nil {
		panic("db: receipt: " + err.Error()) // It has numbers and strings.
	}
	tx.write(exec(tx.q.UpdateErasure, dbsqlc.UpdateErasureParams{Tenant: e.tenant, ID: e.id, Receipt: text, Completed: completed}))
}

// Erasures lists the requests to forget or erase of a user, oldest first. One that
// is under way has a zero At.
func (db *DB) Erasures(ctx context.Context, tenant, user string) ([]agent.ErasureReceipt, error) {
	if user == "" {
		return nil, fmt.Errorf("list erasures: %w", ErrScope)
	}
	var rows []dbsqlc.MemoryErasure
	err := db.readPerson(ctx, tenant, user, one(db.q.ListErasures, dbsqlc.ListErasuresParams{Tenant: tenant, UserID: user}, &rows))
	if err != nil {
		return nil, fmt.Errorf("list erasures: %w", err)
	}
	list := make([]agent.ErasureReceipt, len(rows))
	for i, row := range rows {
		if list[i], err = toReceipt(row); err != nil {
			return nil, fmt.Errorf("list erasures: %w", err)
		}
	}
	return list, nil
}

func toReceipt(row dbsqlc.MemoryErasure) (receipt agent.ErasureReceipt, err error) {
	if err := json.Unmarshal(row.Receipt, &receipt); err != nil {
		return receipt, fmt.Errorf("stored receipt of request %s is damaged", row.ID)
	}
	receipt.ID, receipt.Tenant, receipt.Subject, receipt.By = row.ID, row.Tenant, row.UserID, row.RequestedBy
	return receipt, nil
}
