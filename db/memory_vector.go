package db

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/pgvector/pgvector-go"

	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/recall"
)

// ErrEmbedding: a vector is not one of its embedder: it has another dimension, or
// no direction.
var ErrEmbedding = fmt.Errorf("embedding is not one of its embedder")

// memoryVectorStatement stores a vector of a version in force.
func memoryVectorStatement(q *dbsqlc.Queries, tenant string, m MemoryRecord, e MemoryEmbedder, vector []float32) (statement, error) {
	unit, err := unitOf(e, vector)
	if err != nil {
		return nil, err
	}
	insert := dbsqlc.InsertMemoryVectorParams{
		Tenant: tenant, RecordID: m.ID, Version: int32(m.Version), Room: m.Scope.Room(m.Environment), Subject: m.Subject,
		Shared: sharedScope(m.Scope.Kind), Embedding: pgvector.NewHalfVector(unit), Embedder: e.Name, Dimensions: int32(e.Dimensions),
	}
	if insert.Shared {
		insert.Sketch = sketchOf(unit)
	}
	return exec(q.InsertMemoryVector, insert), nil
}

// unitOf returns a vector of an embedder scaled to length 1: ErrEmbedding.
func unitOf(e MemoryEmbedder, vector []float32) ([]float32, error) {
	if len(vector) != e.Dimensions {
		return nil, fmt.Errorf("%w: it has %d dimensions, and %s has %d", ErrEmbedding, len(vector), e.Name, e.Dimensions)
	}
	unit, err := recall.Unit(vector)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEmbedding, err)
	}
	return unit, nil
}

func sketchOf(unit []float32) pgtype.Bits {
	return pgtype.Bits{Bytes: recall.Sketch(unit), Len: recall.SketchBits, Valid: true}
}
