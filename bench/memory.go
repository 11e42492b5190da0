package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/recall"
	"github.com/fairlead/fairlead/model/hashing"
)

const (
	// memories is how many records there are in all.
	memories = 200_000
	// recalls is how often each thing is recalled, each time with another question.
	recalls = 60
	// hits is how many are asked for.
	hits = 8
	// compared is the size of a subject that figures of other systems are of.
	compared = 5_000
	// otherRecords is how many records everybody else has.
	otherRecords = 300
	// wide is the dimension that is usual for embeddings of meaning.
	wide = 768
)

// asked is one question, as it is sent.
type asked struct {
	tokens    []string
	embedding []float32
}

// memory measures what recall costs beside the plain SQL for the same rows, and how
// that grows.
func memory(ctx context.Context, url string, database *db.DB) error {
	conf, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	// As the store has it.
	conf.ConnConfig.RuntimeParams["jit"] = "off"
	owner, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return err
	}
	defer owner.Close()
	r := rand.New(rand.NewPCG(1, 2))
	texts, err := sentences(ctx, r)
	if err != nil {
		return err
	}
	var questions []string
	for range recalls {
		questions = append(questions, questionOf(r, texts[r.IntN(len(texts))]))
	}
	people, groups, all := scopesOfMemory()
	alone := people[slices.IndexFunc(people, func(f filled) bool { return f.records == compared })]
	few, err := recallAlone(ctx, owner, database, rowsOfMemory(r, texts, []filled{alone}), alone, questions)
	if err != nil {
		return err
	}
	rows := rowsOfMemory(r, texts, all)
	began := time.Now()
	if err := fillMemory(ctx, owner, database, rows); err != nil {
		return err
	}
	fmt.Printf("%d records in %d scopes, sealed and indexed in %s\n", len(rows), len(all), time.Since(began).Round(time.Second))
	for _, dimensions := range []int{hashing.DefaultDimensions, wide} {
		embedder, err := hashing.New(hashing.Options{Dimensions: dimensions})
		if err != nil {
			return err
		}
		if err := fillVectors(ctx, owner, rows, embedder); err != nil {
			return err
		}
		of, err := ask(ctx, embedder, questions)
		if err != nil {
			return err
		}
		for _, f := range people {
			took, err := recallPerson(ctx, owner, database, embedder, f, of)
			if err != nil {
				return err
			}
			if dimensions == hashing.DefaultDimensions && f.records == compared {
				fmt.Printf("BENCH recall_fused_%d_among_%d_vs_alone %.2f ratio\n", compared, len(rows), float64(took)/float64(few))
			}
		}
		for _, f := range groups {
			if err := recallGroup(ctx, owner, database, embedder, f, of); err != nil {
				return err
			}
		}
	}
	return nil
}

// scopesOfMemory are the people and groups whose memory is recalled, and all that
// there are.
func scopesOfMemory() (people, groups, all []filled) {
	for _, n := range []int{100, 1_000, compared, 20_000} {
		people = append(people, filled{agent.MemoryScope{Kind: agent.MemoryOfUser, ID: fmt.Sprintf("user-%d", n)}, n})
	}
	for _, n := range []int{20_000, 40_000} {
		groups = append(groups, filled{agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: fmt.Sprintf("group-%d", n)}, n})
	}
	all = slices.Concat(people, groups)
	count := 0
	for _, f := range all {
		count += f.records
	}
	for ; count < memories; count += otherRecords {
		kind := agent.MemoryOfUser
		if count%(2*otherRecords) >= otherRecords {
			kind = agent.MemoryOfGroup
		}
		all = append(all, filled{agent.MemoryScope{Kind: kind, ID: fmt.Sprintf("other-%d", count)}, otherRecords})
	}
	return people, groups, all
}

func ask(ctx context.Context, embedder *hashing.Embedder, questions []string) ([]asked, error) {
	vectors, err := embedder.Embed(ctx, questions)
	if err != nil {
		return nil, err
	}
	list := make([]asked, len(questions))
	for i, q := range questions {
		list[i] = asked{recall.Question(q), vectors[i]}
	}
	return list, nil
}

// recallAlone is the median of a fused recall when nobody else has any memory.
func recallAlone(ctx context.Context, owner *pgxpool.Pool, database *db.DB, rows []memoryRow, f filled, questions []string) (time.Duration, error) {
	embedder, err := hashing.New(hashing.Options{})
	if err != nil {
		return 0, err
	}
	if err := errors.Join(fillMemory(ctx, owner, database, rows), fillVectors(ctx, owner, rows, embedder)); err != nil {
		return 0, err
	}
	of, err := ask(ctx, embedder, questions)
	if err != nil {
		return 0, err
	}
	took, err := recalling(len(of), recallOf(ctx, database, f, embedder, of, true, true))
	if err != nil {
		return 0, err
	}
	return took[0], nil
}

// recallOf recalls by words, by vector, or by both.
func recallOf(ctx context.Context, database *db.DB, f filled, embedder *hashing.Embedder, of []asked, words, vector bool) func(i int) error {
	return func(i int) error {
		q := db.RecallQuery{
			Scopes: []agent.MemoryScope{f.scope}, Kinds: []agent.MemoryKind{agent.MemoryPreference, agent.MemoryFact}, Now: time.Now(), Limit: hits,
		}
		if words {
			q.Tokens = of[i].tokens
		}
		if vector {
			q.Embedder, q.Embedding = db.MemoryEmbedder{Name: embedder.Name(), Dimensions: embedder.Dimensions()}, of[i].embedding
		}
		found, err := database.Recall(ctx, f.room(), q)
		if err == nil && vector && len(found) != hits {
			return fmt.Errorf("recalled %d of %d", len(found), hits)
		}
		return err
	}
}

// recalling is alternating after a round that warms connections, plans, keys and
// pages up.
func recalling(n int, measures ...func(i int) error) ([]time.Duration, error) {
	if _, err := alternating(n, measures...); err != nil {
		return nil, err
	}
	return alternating(n, measures...)
}

const (
	// The vector is converted once, as a parameter of its type would be.
	plainVector = `SELECT record_id FROM bench_plain WHERE tenant = $1 AND room = $2
		ORDER BY embedding <=> (SELECT $3::real[]::halfvec), record_id LIMIT $4`
	// The same on the store's own table, whose index has the vectors of a personal
	// scope side by side.
	coveredVector = `SELECT record_id FROM memory_vector
		WHERE tenant = $1 AND room = $2 AND embedder_id = (SELECT id FROM memory_embedder WHERE status = 'serving') AND NOT shared AND dimensions <= 768
		ORDER BY embedding <=> (SELECT $3::real[]::halfvec), record_id LIMIT $4`
	plainKeyword = `SELECT k.record_id FROM memory_word w JOIN memory_keyword k ON k.doc = w.doc WHERE w.tenant = $1 AND w.room = $2 AND w.token = ANY ($3)
		GROUP BY k.record_id ORDER BY count(*) DESC, k.record_id LIMIT $4`
)

// nearest is the plain SQL for the nearest, as the owner, whom row-level security
// does not hold up.
func nearest(ctx context.Context, owner *pgxpool.Pool, query string, f filled, embedding []float32, limit int) ([]string, error) {
	rows, err := owner.Query(ctx, query, memoryTenant, f.scope.Room(memoryEnvironment), embedding, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func recallPerson(ctx context.Context, owner *pgxpool.Pool, database *db.DB, embedder *hashing.Embedder, f filled, of []asked) (time.Duration, error) {
	hashed, err := hashedTokens(ctx, database, f, of)
	if err != nil {
		return 0, err
	}
	took, err := recalling(
		len(of),
		recallOf(ctx, database, f, embedder, of, true, false),
		recallOf(ctx, database, f, embedder, of, false, true),
		recallOf(ctx, database, f, embedder, of, true, true),
		func(i int) error {
			_, err := nearest(ctx, owner, plainVector, f, of[i].embedding, hits)
			return err
		},
		func(i int) error {
			_, err := nearest(ctx, owner, coveredVector, f, of[i].embedding, hits)
			return err
		},
		func(i int) error {
			rows, err := owner.Query(ctx, plainKeyword, memoryTenant, f.scope.Room(memoryEnvironment), hashed[i], hits)
			if err != nil {
				return err
			}
			_, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		},
	)
	if err != nil {
		return 0, err
	}
	name := named(f, embedder)
	for i, what := range []string{"recall_keyword", "recall_vector", "recall_fused", "vector_sql", "vector_sql_own_index", "keyword_sql"} {
		fmt.Printf("BENCH %s_%s %.2f ms\n", what, name, ms(took[i]))
	}
	fmt.Printf("BENCH recall_fused_%s_vs_vector_sql %.2f ratio\n", name, float64(took[2])/float64(took[3]))
	fmt.Printf("BENCH recall_fused_%s_vs_vector_sql_own_index %.2f ratio\n", name, float64(took[2])/float64(took[4]))
	return took[2], nil
}

// named is how figures of a scope are called; those of embeddings with as many
// dimensions as usual need not say so.
func named(f filled, embedder *hashing.Embedder) string {
	name := fmt.Sprint(f.records)
	if f.scope.Kind != agent.MemoryOfUser {
		name = "shared_" + name
	}
	if embedder.Dimensions() != wide {
		name += fmt.Sprintf("_of_%d", embedder.Dimensions())
	}
	return name
}

// hashedTokens are the words of questions as they stand in the table.
func hashedTokens(ctx context.Context, database *db.DB, f filled, of []asked) ([][]int64, error) {
	keys, err := database.Keys(ctx, ownerOf(memoryRow{in: f}))
	if err != nil {
		return nil, err
	}
	list := make([][]int64, len(of))
	for i, a := range of {
		for _, word := range a.tokens {
			sum, err := keys.Hash([]byte(word))
			if err != nil {
				return nil, err
			}
			list[i] = append(list[i], int64(binary.BigEndian.Uint64(sum)))
		}
	}
	return list, nil
}

// recallGroup compares a scope that many people fill with an exact scan: how long
// it takes, and whether it finds the same.
func recallGroup(ctx context.Context, owner *pgxpool.Pool, database *db.DB, embedder *hashing.Embedder, f filled, of []asked) error {
	const top = 5
	found, all := 0, 0
	for _, a := range of {
		exact, err := nearest(ctx, owner, plainVector, f, a.embedding, top)
		if err != nil {
			return err
		}
		ours, err := database.Recall(ctx, f.room(), db.RecallQuery{
			Scopes: []agent.MemoryScope{f.scope}, Kinds: []agent.MemoryKind{agent.MemoryFact}, Now: time.Now(), Limit: top,
			Embedder: db.MemoryEmbedder{Name: embedder.Name(), Dimensions: embedder.Dimensions()}, Embedding: a.embedding,
		})
		if err != nil {
			return err
		}
		for _, id := range exact {
			all++
			if slices.ContainsFunc(ours, func(h db.RecallHit) bool { return h.Record.ID == id }) {
				found++
			}
		}
	}
	took, err := recalling(
		len(of),
		recallOf(ctx, database, f, embedder, of, false, true),
		recallOf(ctx, database, f, embedder, of, true, true),
		func(i int) error {
			_, err := nearest(ctx, owner, plainVector, f, of[i].embedding, hits)
			return err
		},
	)
	if err != nil {
		return err
	}
	name := named(f, embedder)
	fmt.Printf("BENCH recall_vector_%s %.2f ms\nBENCH recall_fused_%s %.2f ms\nBENCH exact_sql_%s %.2f ms\n", name, ms(took[0]), name, ms(took[1]), name, ms(took[2]))
	fmt.Printf("BENCH recall_vector_%s_vs_exact_sql %.2f ratio\n", name, float64(took[0])/float64(took[2]))
	fmt.Printf("BENCH recall_at_%d_%s %.4f of exact\n", top, name, float64(found)/float64(all))
	return nil
}
