package db

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// Embedders says of which embedders there are vectors. current, which the caller
// works with, becomes serving if none is, else building unless it serves already:
// the one that was asked for last is built. Workers that are configured with
// different embedders take turns at that, so change all of them.
func (db *DB) Embedders(ctx context.Context, current MemoryEmbedder) (EmbedderState, error) {
	state, known, err := db.embedders(ctx, current)
	if err == nil && !known && current != (MemoryEmbedder{}) {
		if state, _, err = db.addEmbedder(ctx, current); err == nil {
			return state, nil
		}
	}
	if err != nil {
		return EmbedderState{}, fmt.Errorf("load embedders: %w", err)
	}
	return state, nil
}

func (db *DB) addEmbedder(ctx context.Context, e MemoryEmbedder) (EmbedderState, bool, error) {
	err := db.batch(ctx, db.lockEmbedders(),
		exec(db.q.RetireBuildingEmbedders, dbsqlc.RetireBuildingEmbeddersParams{Name: e.Name, Dimensions: int32(e.Dimensions)}),
		exec(db.q.InsertEmbedder, dbsqlc.InsertEmbedderParams{Name: e.Name, Dimensions: int32(e.Dimensions)}))
	if err != nil {
		return EmbedderState{}, false, err
	}
	return db.embedders(ctx, e)
}

// lockEmbedders keeps two programs from adding or promoting at the same time.
func (db *DB) lockEmbedders() statement {
	return func(ctx context.Context, conn dbsqlc.DBTX) error { return db.q.LockEmbedders(ctx, conn) }
}

// embedders reads the state; known says that e is part of it.
func (db *DB) embedders(ctx context.Context, e MemoryEmbedder) (state EmbedderState, known bool, err error) {
	var rows []dbsqlc.GetEmbeddersRow
	err = db.batch(ctx, one(db.q.GetEmbedders, dbsqlc.GetEmbeddersParams{Name: e.Name, Dimensions: int32(e.Dimensions)}, &rows))
	for _, row := range rows {
		found := MemoryEmbedder{Name: row.Name, Dimensions: int(row.Dimensions)}
		switch row.Status {
		case "serving":
			state.Serving = found
		case "building":
			state.Building = found
		default:
			continue
		}
		known = known || found == e
	}
	return state, known, err
}

// PromoteEmbedder lets the embedder that was built serve, and drops vectors of
// retired ones, at most limit in each tenant; it reports whether all are gone.
func (db *DB) PromoteEmbedder(ctx context.Context, e MemoryEmbedder, limit int) (bool, error) {
	err := db.batch(ctx, db.lockEmbedders(),
		exec(db.q.RetireServingEmbedder, dbsqlc.RetireServingEmbedderParams{Name: e.Name, Dimensions: int32(e.Dimensions)}),
		exec(db.q.ServeEmbedder, dbsqlc.ServeEmbedderParams{Name: e.Name, Dimensions: int32(e.Dimensions)}))
	if err != nil {
		return false, fmt.Errorf("promote embedder: %w", err)
	}
	tenants, err := db.MemoryTenants(ctx)
	if err != nil {
		return false, fmt.Errorf("promote embedder: %w", err)
	}
	done := true
	for _, tenant := range tenants {
		var dropped []string
		err := db.readPerson(ctx, tenant, "", one(db.q.DropRetiredVectors, dbsqlc.DropRetiredVectorsParams{Tenant: tenant, Most: int32(limit)}, &dropped))
		if err != nil {
			return false, fmt.Errorf("promote embedder: %w", err)
		}
		done = done && len(dropped) < limit
	}
	return done, nil
}

// Unembedded returns records in force of a tenant that have no vector of the
// embedder, at most limit of them, by ID from the one behind after. What cannot be
// opened is left out: it cannot be recalled either.
func (db *DB) Unembedded(ctx context.Context, tenant string, e MemoryEmbedder, after string, limit int) ([]MemoryRecord, error) {
	var records []MemoryRecord
	for {
		var rows []dbsqlc.UnembeddedRecordsRow
		err := db.readPerson(ctx, tenant, "", one(db.q.UnembeddedRecords, dbsqlc.UnembeddedRecordsParams{
			Tenant: tenant, Name: e.Name, Dimensions: int32(e.Dimensions), After: after, Most: int32(limit),
		}, &rows))
		if err != nil {
			return nil, fmt.Errorf("read records without a vector: %w", err)
		}
		var subjects []string
		for _, row := range rows {
			subjects = append(subjects, row.MemoryRecord.Subject)
			after = row.MemoryRecord.ID
		}
		all, err := db.ringsOf(ctx, tenant, subjects...)
		if err != nil {
			return nil, fmt.Errorf("read records without a vector: %w", err)
		}
		for _, row := range rows {
			record, err := toMemoryRecord(all[row.MemoryRecord.Subject], row.MemoryRecord)
			if keysGone(all[row.MemoryRecord.Subject], err) || unreadable(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read records without a vector: %w", err)
			}
			records = append(records, record)
		}
		// One that cannot be opened must not hold up those behind it.
		if len(records) > 0 || len(rows) < limit {
			return records, nil
		}
	}
}

// StoreVector adds the vector of a version of a record, as Unembedded returned it:
// ErrConflict if it is not in force any more, ErrEmbedding for a vector that is
// none of the embedder's.
func (db *DB) StoreVector(ctx context.Context, tenant string, r MemoryRecord, e MemoryEmbedder, vector []float32) error {
	insert, err := memoryVectorStatement(db.q, tenant, r, e, vector)
	if err != nil {
		return fmt.Errorf("store vector: %w", err)
	}
	err = db.inTenantMemory(ctx, tenant, func(tx *Tx) error {
		var held []int32
		err := tx.read(ctx, one(tx.q.HoldRecordInForce, dbsqlc.HoldRecordInForceParams{Tenant: tenant, RecordID: r.ID, Version: int32(r.Version)}, &held))
		if err == nil && len(held) == 0 {
			err = ErrConflict
		}
		if err == nil {
			tx.write(insert)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("store vector: %w", err)
	}
	return nil
}
