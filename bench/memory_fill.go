package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/recall"
	"github.com/fairlead/fairlead/internal/vault"
	"github.com/fairlead/fairlead/model/hashing"
)

const (
	memoryTenant, memoryEnvironment = "bench", "production"
	// member takes part in every group.
	member = "member"
)

// filled is one scope with so many records.
type filled struct {
	scope   agent.MemoryScope
	records int
}

// user is whoever may recall what is in it.
func (f filled) user() string {
	if f.scope.Kind == agent.MemoryOfUser {
		return f.scope.ID
	}
	return member
}

// room is where it is recalled.
func (f filled) room() agent.MemoryRoom {
	room := agent.MemoryRoom{Scope: agent.Scope{Tenant: memoryTenant, User: f.user(), Environment: memoryEnvironment}}
	if f.scope.Kind == agent.MemoryOfGroup {
		room.Group = f.scope.ID
	}
	return room
}

// memoryRow is one record to be stored.
type memoryRow struct {
	id, text string
	in       filled
	doc      int64
}

// plainVectors makes the table that recall is measured against: the same rows in the
// same order, without row-level security and anything around.
const plainVectors = `CREATE TABLE bench_plain AS SELECT tenant, record_id, room, embedding FROM memory_vector`

// rowsOfMemory deals texts out to scopes. The order is by chance, as records of
// many people come one after the other.
func rowsOfMemory(r *rand.Rand, texts []string, scopes []filled) []memoryRow {
	var rows []memoryRow
	for _, f := range scopes {
		for range f.records {
			n := len(rows)
			text := texts[n%len(texts)]
			if n >= len(texts) {
				text += fmt.Sprintf(" (%d)", n)
			}
			rows = append(rows, memoryRow{id: fmt.Sprintf("%08x-0000-4000-8000-%012x", n, n), text: text, in: f})
		}
	}
	r.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	for i := range rows {
		rows[i].doc = int64(i + 1)
	}
	return rows
}

// fillMemory stores records as the store does, sealed and with their words, but
// many at a time.
func fillMemory(ctx context.Context, owner *pgxpool.Pool, database *db.DB, rows []memoryRow) error {
	// COPY fills what triggers would, and recall does without the constraint.
	const prepare = `TRUNCATE memory_record, memory_keyword, memory_word, memory_vector;
		ALTER TABLE memory_record DROP CONSTRAINT IF EXISTS memory_record_in_force_excl;
		ALTER TABLE memory_keyword DISABLE TRIGGER memory_keyword_words`
	if _, err := owner.Exec(ctx, prepare); err != nil {
		return fmt.Errorf("empty the tables of memory: %w", err)
	}
	const participants = `INSERT INTO memory_participant (tenant, kind, id, user_id, added_by)
		SELECT $1, 'group', g, $2, 'bench' FROM unnest($3::text[]) AS g ON CONFLICT DO NOTHING`
	var groups []string
	for _, row := range rows {
		if id := row.in.scope.ID; row.in.scope.Kind == agent.MemoryOfGroup && !slices.Contains(groups, id) {
			groups = append(groups, id)
		}
	}
	if _, err := owner.Exec(ctx, participants, memoryTenant, member, groups); err != nil {
		return fmt.Errorf("add participants: %w", err)
	}
	hash := strings.Repeat("0", 64)
	err := copyRows(ctx, owner, "memory_record", []string{
		"tenant", "id", "version", "room", "scope_kind", "scope_id", "subject", "user_id", "environment", "agent", "kind", "key", "identity_hash", "status",
		"value", "evidence", "value_hash", "source_type", "source_id", "writer", "candidate_id", "confidence", "validation", "consent_basis", "sensitivity",
		"written_at", "rules", "policy_version", "policy_digest",
	}, rows, func(row memoryRow) ([]any, error) {
		scope := row.in.scope
		keys, err := database.Keys(ctx, ownerOf(row))
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(map[string]string{"text": row.text})
		if err != nil {
			return nil, err
		}
		value, err := keys.Seal(text, vault.Bind("memory_record", memoryTenant, row.id, "1", "value"))
		if err != nil {
			return nil, err
		}
		evidence, err := keys.Seal([]byte(`{"message_id":"m","purpose":"bench"}`), vault.Bind("memory_record", memoryTenant, row.id, "1", "evidence"))
		if err != nil {
			return nil, err
		}
		return []any{
			memoryTenant, row.id, 1, scope.Room(memoryEnvironment), string(scope.Kind), scope.ID, ownerOf(row).Subject, row.in.user(), memoryEnvironment, "bench",
			"validated_fact", "note", fmt.Sprintf("%064x", row.doc), "active", value, evidence, hash, "user_statement", "m", "bench", "bench", 0.8, "user_stated",
			"bench", "normal", time.Now(), []byte("[]"), "1", hash,
		}, nil
	})
	if err != nil {
		return err
	}
	return fillWords(ctx, owner, database, rows)
}

func ownerOf(row memoryRow) vault.Owner {
	return vault.Owner{Tenant: memoryTenant, Subject: row.in.scope.Subject(row.in.user())}
}

func fillWords(ctx context.Context, owner *pgxpool.Pool, database *db.DB, rows []memoryRow) error {
	words := make([][]int64, len(rows))
	for i, row := range rows {
		keys, err := database.Keys(ctx, ownerOf(row))
		if err != nil {
			return err
		}
		words[i] = []int64{}
		for _, word := range recall.Tokens(row.text) {
			sum, err := keys.Hash([]byte(word))
			if err != nil {
				return err
			}
			words[i] = append(words[i], int64(binary.BigEndian.Uint64(sum)))
		}
	}
	err := copyRows(ctx, owner, "memory_keyword", []string{"tenant", "record_id", "version", "room", "subject", "tokens", "doc"}, rows, func(row memoryRow) ([]any, error) {
		return []any{memoryTenant, row.id, 1, row.in.scope.Room(memoryEnvironment), ownerOf(row).Subject, words[row.doc-1], row.doc}, nil
	})
	if err != nil {
		return err
	}
	const fill = `INSERT INTO memory_word (tenant, room, token, doc)
		SELECT k.tenant, k.room, t.token, k.doc FROM memory_keyword k CROSS JOIN LATERAL unnest(k.tokens) AS t (token) ORDER BY 1, 2, 3, 4;
		ALTER TABLE memory_keyword ENABLE TRIGGER memory_keyword_words`
	if _, err := owner.Exec(ctx, fill); err != nil {
		return fmt.Errorf("fill memory_word: %w", err)
	}
	return nil
}

// fillVectors computes and stores the vectors of records with so many dimensions.
func fillVectors(ctx context.Context, owner *pgxpool.Pool, rows []memoryRow, embedder *hashing.Embedder) error {
	const prepare = `TRUNCATE memory_vector;
		UPDATE memory_embedder SET status = 'retired';
		DROP TABLE IF EXISTS bench_vector;
		CREATE UNLOGGED TABLE bench_vector (record_id text, room text, subject text, shared boolean, sketch bit(1024), embedding real[])`
	if _, err := owner.Exec(ctx, prepare); err != nil {
		return fmt.Errorf("empty memory_vector: %w", err)
	}
	const serve = `INSERT INTO memory_embedder (name, dimensions, status) VALUES ($1, $2, 'serving')
		ON CONFLICT (name, dimensions) DO UPDATE SET status = 'serving'`
	if _, err := owner.Exec(ctx, serve, embedder.Name(), embedder.Dimensions()); err != nil {
		return fmt.Errorf("make the embedder serving: %w", err)
	}
	err := copyRows(ctx, owner, "bench_vector", []string{"record_id", "room", "subject", "shared", "sketch", "embedding"}, rows, func(row memoryRow) ([]any, error) {
		vectors, err := embedder.Embed(ctx, []string{row.text})
		if err != nil {
			return nil, err
		}
		unit, err := recall.Unit(vectors[0])
		if err != nil {
			return nil, err
		}
		shared, sketch := row.in.scope.Kind != agent.MemoryOfUser, pgtype.Bits{}
		if shared {
			sketch = pgtype.Bits{Bytes: recall.Sketch(unit), Len: recall.SketchBits, Valid: true}
		}
		return []any{row.id, row.in.scope.Room(memoryEnvironment), ownerOf(row).Subject, shared, sketch, unit}, nil
	})
	if err != nil {
		return err
	}
	const fill = `INSERT INTO memory_vector (tenant, record_id, embedder_id, version, room, subject, dimensions, shared, sketch, embedding)
		SELECT $1, b.record_id, e.id, 1, b.room, b.subject, e.dimensions, b.shared, b.sketch, b.embedding::halfvec
		FROM bench_vector b, memory_embedder e WHERE e.status = 'serving'`
	if _, err := owner.Exec(ctx, fill, memoryTenant); err != nil {
		return fmt.Errorf("fill memory_vector: %w", err)
	}
	for _, sql := range []string{
		"DROP TABLE bench_vector", "DROP TABLE IF EXISTS bench_plain", plainVectors, "CREATE INDEX ON bench_plain (tenant, room)",
		"VACUUM ANALYZE memory_record, memory_keyword, memory_word, memory_vector, memory_embedder, bench_plain",
	} {
		if _, err := owner.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func copyRows(ctx context.Context, owner *pgxpool.Pool, table string, columns []string, rows []memoryRow, values func(memoryRow) ([]any, error)) error {
	_, err := owner.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) { return values(rows[i]) }))
	if err != nil {
		return fmt.Errorf("fill %s: %w", table, err)
	}
	return nil
}
