package db

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/pgvector/pgvector-go"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/recall"
	"github.com/fairlead/fairlead/internal/vault"
)

const (
	// MaxRecallHits bounds the hits of one recall.
	MaxRecallHits = 100
	// maxRecallKeys and maxRecallTokens bound what one recall looks for.
	maxRecallKeys, maxRecallTokens = 64, 256
	// minRecallDepth is how many hits by keyword and how many by vector are fused
	// at least. What is further back in both does not come to the front.
	minRecallDepth = 50
	// maxSketched is how many of a scope that many people fill are compared by their
	// vectors: those nearest in sketch. With fewer records all are. Of 20,000 real
	// sentences the nearest 5 are nearly always among them, even where an embedder
	// makes all texts look alike.
	maxSketched = 256
)

// Recall finds what is remembered in a room, best first, in one round trip once
// the keys are in memory. Hits by key come first. Each hit was read from its
// primary row, in force at q.Now. ErrNotFound for whoever does not take part in
// group or project; ErrErased for who was erased.
func (db *DB) Recall(ctx context.Context, room agent.MemoryRoom, q RecallQuery) ([]RecallHit, error) {
	params, err := recallParams(room, q)
	if err != nil {
		return nil, fmt.Errorf("recall: %w", err)
	}
	subjects, err := db.askIn(ctx, room, q, &params)
	if err != nil {
		return nil, fmt.Errorf("recall: %w", err)
	}
	var (
		rows []dbsqlc.RecallMemoryRow
		keys []dbsqlc.SubjectKey
	)
	err = db.readRoom(ctx, room,
		one(db.q.RecallMemory, params, &rows),
		// Keys come last: no value above is sealed under newer ones.
		one(db.q.MemoryKeys, dbsqlc.MemoryKeysParams{Tenant: room.Scope.Tenant, Subjects: subjects}, &keys))
	if err != nil {
		return nil, fmt.Errorf("recall: %w", err)
	}
	all := db.toRings(room.Scope.Tenant, subjects, keys)
	hits := make([]RecallHit, 0, len(rows))
	for _, row := range rows {
		record, err := toMemoryRecord(all[row.MemoryRecord.Subject], row.MemoryRecord)
		if unreadable(err) {
			// The subject was erased in this moment, or the row was damaged, which
			// keeps the others from nobody.
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("recall: %w", err)
		}
		hits = append(hits, RecallHit{Record: record, Via: row.Via, Score: row.Score})
	}
	return hits, nil
}

// recallParams checks a query, and returns all of it but its words.
func recallParams(room agent.MemoryRoom, q RecallQuery) (dbsqlc.RecallMemoryParams, error) {
	switch {
	case len(q.Scopes) == 0 || len(q.Kinds) == 0:
		return dbsqlc.RecallMemoryParams{}, errors.New("scopes and kinds are required")
	case q.Now.IsZero():
		return dbsqlc.RecallMemoryParams{}, errors.New("the moment is required")
	case q.Limit < 1 || q.Limit > MaxRecallHits:
		return dbsqlc.RecallMemoryParams{}, fmt.Errorf("the limit must be 1 to %d", MaxRecallHits)
	case len(q.Keys) > maxRecallKeys || len(q.Tokens) > maxRecallTokens:
		return dbsqlc.RecallMemoryParams{}, fmt.Errorf("there are more than %d keys or %d words", maxRecallKeys, maxRecallTokens)
	}
	depth := int32(max(minRecallDepth, 2*q.Limit))
	params := dbsqlc.RecallMemoryParams{
		Tenant: room.Scope.Tenant, Keys: []string{}, At: q.Now, MaxHits: int32(q.Limit),
		Depth: depth, FirstDepth: 2 * depth, Sketched: maxSketched, MaxDistance: 1 - q.MinSimilarity,
		OwnRooms: []string{}, SharedRooms: []string{}, Tokens: []int64{}, Owners: []int32{},
		Sketch: pgtype.Bits{Bytes: make([]byte, recall.SketchBits/8), Len: recall.SketchBits, Valid: true},
	}
	for _, key := range q.Keys {
		if !slices.Contains(params.Keys, key) {
			params.Keys = append(params.Keys, key)
		}
	}
	for _, kind := range q.Kinds {
		params.Kinds = append(params.Kinds, string(kind))
	}
	seen := room.Scopes()
	for _, scope := range q.Scopes {
		if !slices.Contains(seen, scope) {
			return dbsqlc.RecallMemoryParams{}, errors.New("a scope is not one of the room's")
		}
		name := scope.Room(room.Scope.Environment)
		params.Rooms = append(params.Rooms, name)
		if sharedScope(scope.Kind) {
			params.SharedRooms = append(params.SharedRooms, name)
		} else {
			params.OwnRooms = append(params.OwnRooms, name)
		}
	}
	if len(q.Embedding) > 0 {
		unit, err := unitOf(q.Embedder, q.Embedding)
		if err != nil {
			return dbsqlc.RecallMemoryParams{}, err
		}
		embedding := pgvector.NewHalfVector(unit)
		params.Embedding, params.Sketch = &embedding, sketchOf(unit)
		params.Embedder, params.Dimensions = q.Embedder.Name, int32(q.Embedder.Dimensions)
	}
	return params, nil
}

// askIn hashes the words of a query under the keys of each subject whose memory is
// looked through, and returns the subjects. One that has no keys has no memory.
func (db *DB) askIn(ctx context.Context, room agent.MemoryRoom, q RecallQuery, into *dbsqlc.RecallMemoryParams) ([]string, error) {
	subjects := make([]string, 0, len(q.Scopes))
	for _, scope := range q.Scopes {
		subjects = append(subjects, scope.Subject(room.Scope.User))
	}
	slices.Sort(subjects)
	subjects = slices.Compact(subjects)
	if len(q.Tokens) == 0 {
		return subjects, nil
	}
	var unknown []string
	known := make(rings, len(subjects))
	for _, subject := range subjects {
		owner := vault.Owner{Tenant: room.Scope.Tenant, Subject: subject}
		// What hashes is never rotated, so keys in memory are good however old.
		if kept, ok := db.keys.kept.Get(owner); ok {
			known[subject] = ring{owner: owner, version: kept.version, keys: kept.keys}
		} else {
			unknown = append(unknown, subject)
		}
	}
	if len(unknown) > 0 {
		loaded, err := db.ringsOf(ctx, room.Scope.Tenant, unknown...)
		if err != nil {
			return nil, err
		}
		for subject, r := range loaded {
			known[subject] = r
		}
	}
	for i, subject := range subjects {
		r := known[subject]
		tokens, err := memoryTokens(r, q.Tokens)
		if keysGone(r, err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		into.Tokens = append(into.Tokens, tokens...)
		into.Owners = append(into.Owners, slices.Repeat([]int32{int32(i)}, len(tokens))...)
	}
	return subjects, nil
}
