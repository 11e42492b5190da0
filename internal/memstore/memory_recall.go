package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

const (
	// fusion is the constant of reciprocal rank fusion: how little the places of one
	// list differ.
	fusion = 60
	// maxRecallKeys and maxRecallTokens bound what one recall looks for.
	maxRecallKeys, maxRecallTokens = 64, 256
	// minRecallDepth is how many hits by keyword and how many by vector are fused at
	// least.
	minRecallDepth = 50
)

// inForce reports whether a record holds at a moment.
func inForce(r db.MemoryRecord, now time.Time) bool {
	return r.Status == db.MemoryActive && (r.ValidFrom == nil || !r.ValidFrom.After(now)) &&
		(r.ValidUntil == nil || r.ValidUntil.After(now)) && (r.ExpiresAt == nil || r.ExpiresAt.After(now))
}

// Recall implements activities.Memory: what has one of the keys, then what shares
// words with the question or is near to it, fused by rank. Other than in package
// db, all vectors are compared in full, also those of a scope that many people
// fill, and with all of their digits.
func (s *Store) Recall(ctx context.Context, room agent.MemoryRoom, q db.RecallQuery) (hits []db.RecallHit, err error) {
	unit, err := checkQuery(room, q)
	if err != nil {
		return nil, wrap("recall", err)
	}
	q.Embedding, q.Tokens = unit, slices.Compact(slices.Sorted(slices.Values(q.Tokens)))
	err = s.inRoom(ctx, room, agent.MemoryScope{}, func(tx *tx) error {
		hits = tx.data.recall(room, q)
		return nil
	})
	return hits, wrap("recall", err)
}

// checkQuery refuses what cannot be asked, and returns the question's embedding
// scaled to length 1, nil if there is none.
func checkQuery(room agent.MemoryRoom, q db.RecallQuery) ([]float32, error) {
	switch {
	case len(q.Scopes) == 0 || len(q.Kinds) == 0:
		return nil, errors.New("scopes and kinds are required")
	case q.Now.IsZero():
		return nil, errors.New("the moment is required")
	case q.Limit < 1 || q.Limit > db.MaxRecallHits:
		return nil, fmt.Errorf("the limit must be 1 to %d", db.MaxRecallHits)
	case len(q.Keys) > maxRecallKeys || len(q.Tokens) > maxRecallTokens:
		return nil, fmt.Errorf("there are more than %d keys or %d words", maxRecallKeys, maxRecallTokens)
	}
	for _, scope := range q.Scopes {
		if !slices.Contains(room.Scopes(), scope) {
			return nil, errors.New("a scope is not one of the room's")
		}
	}
	if len(q.Embedding) == 0 {
		return nil, nil
	}
	return unitOf(q.Embedder, q.Embedding)
}

// found is a record with its places in the lists, from 1; 0 is none.
type found struct {
	record                 db.MemoryRecord
	exact, keyword, vector int
}

// ranked is a record in one of the lists.
type ranked struct {
	*found
	// score puts the greatest first; of those that have the same, then does.
	score float64
	then  int
}

// rank returns a list in its order, of most at most; what is left is by ID.
func rank(list []ranked, most int) []ranked {
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.then, a.then), cmp.Compare(a.record.ID, b.record.ID))
	})
	return list[:min(len(list), most)]
}

func (d *data) recall(room agent.MemoryRoom, q db.RecallQuery) []db.RecallHit {
	var visible []*found
	for at, r := range d.records.rows {
		if at.tenant == room.Scope.Tenant && slices.Contains(q.Scopes, r.Scope) && slices.Contains(q.Kinds, r.Kind) && seen(room, r) && inForce(r, q.Now) {
			visible = append(visible, &found{record: r})
		}
	}
	depth := max(minRecallDepth, 2*q.Limit)
	for i, f := range rank(byKey(visible, q.Keys), q.Limit) {
		f.exact = i + 1
	}
	for i, f := range rank(d.byWord(room, visible, q), depth) {
		f.keyword = i + 1
	}
	for i, f := range rank(d.byVector(room, visible, q), depth) {
		f.vector = i + 1
	}
	var hits []*found
	for _, f := range visible {
		if f.exact+f.keyword+f.vector > 0 {
			hits = append(hits, f)
		}
	}
	slices.SortFunc(hits, func(a, b *found) int {
		return cmp.Or(cmp.Compare(a.spare(q.Limit), b.spare(q.Limit)), cmp.Compare(b.score(), a.score()),
			cmp.Compare(a.list(), b.list()), cmp.Compare(a.record.ID, b.record.ID))
	})
	var list []db.RecallHit
	for _, f := range hits[:min(len(hits), q.Limit)] {
		list = append(list, db.RecallHit{Record: cloneRecord(f.record), Via: f.via(), Score: f.score()})
	}
	return list
}

// byKey is what has one of the keys: of each key the newest comes before the second
// of any, and of these in the order of the keys.
func byKey(visible []*found, keys []string) (list []ranked) {
	newest := slices.SortedFunc(slices.Values(visible), func(a, b *found) int {
		return cmp.Or(b.record.WrittenAt.Compare(a.record.WrittenAt), cmp.Compare(a.record.ID, b.record.ID))
	})
	nth := map[string]int{}
	for i, f := range newest {
		if slices.Contains(keys, f.record.Key) {
			nth[f.record.Key]++
			place := nth[f.record.Key]*len(keys) + slices.Index(keys, f.record.Key)
			list = append(list, ranked{found: f, score: -float64(place), then: -i})
		}
	}
	return list
}

// byWord is what shares words with the question, those that tell more first; of the
// same words those that were stored last.
func (d *data) byWord(room agent.MemoryRoom, visible []*found, q db.RecallQuery) (list []ranked) {
	weights := d.weights(room, q)
	for _, f := range visible {
		row := d.words(room.Scope.Tenant, f.record)
		var sum float64
		for _, token := range q.Tokens {
			if row.has(token) {
				sum += weights[word{f.record.Subject, token}]
			}
		}
		if sum > 0 {
			list = append(list, ranked{found: f, score: sum, then: row.doc})
		}
	}
	return list
}

// byVector is what is near to the question.
func (d *data) byVector(room agent.MemoryRoom, visible []*found, q db.RecallQuery) (list []ranked) {
	if len(q.Embedding) == 0 || !d.knows(q.Embedder) {
		return nil
	}
	for _, f := range visible {
		row, ok := d.vectors.get(vectorKey{namedKey{room.Scope.Tenant, f.record.ID}, q.Embedder})
		if !ok || row.version != f.record.Version {
			continue
		}
		if near := dot(row.unit, q.Embedding); near > q.MinSimilarity {
			list = append(list, ranked{found: f, score: near})
		}
	}
	return list
}

// spare is 1 for what has a key and nothing else and comes behind half of the
// places: it is given those that stay free.
func (f *found) spare(limit int) int {
	if f.exact*2 > limit+1 && f.keyword+f.vector == 0 {
		return 1
	}
	return 0
}

// score is by reciprocal rank. An exact key comes before everything else.
func (f *found) score() (score float64) {
	if f.exact > 0 {
		score = 1
	}
	for _, place := range []int{f.exact, f.keyword, f.vector} {
		if place > 0 {
			score += 1 / float64(fusion+place)
		}
	}
	return score
}

// list is the number of the first list that has it.
func (f *found) list() int {
	return slices.IndexFunc([]int{f.exact, f.keyword, f.vector}, func(place int) bool { return place > 0 })
}

func (f *found) via() string {
	var via []string
	for i, place := range []int{f.exact, f.keyword, f.vector} {
		if place > 0 {
			via = append(via, []string{"exact", "keyword", "vector"}[i])
		}
	}
	return strings.Join(via, "+")
}

// word is a word of what belongs to one subject.
type word struct{ subject, token string }

// weights are each word's part in the rarity of all words of the question, among
// the records of the scopes that belong to one subject: the idf of BM25.
func (d *data) weights(room agent.MemoryRoom, q db.RecallQuery) map[word]float64 {
	places, all := map[word]int{}, map[string]int{}
	for at := range d.keywords.rows {
		r, row := d.indexed(at)
		if at.tenant != room.Scope.Tenant || !slices.Contains(q.Scopes, r.Scope) || r.Environment != room.Scope.Environment {
			continue
		}
		for _, token := range q.Tokens {
			if row.has(token) {
				places[word{r.Subject, token}]++
				all[r.Subject]++
			}
		}
	}
	weights := map[word]float64{}
	for subject, n := range all {
		var sum float64
		for _, token := range q.Tokens {
			f := float64(places[word{subject, token}])
			idf := math.Log(1 + (float64(n)-f+0.5)/(f+0.5))
			weights[word{subject, token}] = idf
			sum += idf
		}
		for _, token := range q.Tokens {
			weights[word{subject, token}] /= sum
		}
	}
	return weights
}

// indexed is the version that words are of.
func (d *data) indexed(key namedKey) (db.MemoryRecord, keywordRow) {
	row := d.keywords.rows[key]
	return d.records.rows[recordKey{key, row.version}], row
}

// words are those of a version, none if there are only those of another one.
func (d *data) words(tenant string, r db.MemoryRecord) keywordRow {
	row, _ := d.keywords.get(namedKey{tenant, r.ID})
	if row.version != r.Version {
		return keywordRow{}
	}
	return row
}

func (row keywordRow) has(token string) bool {
	return row.tokens != "" && slices.Contains(strings.Split(row.tokens, "\n"), token)
}

func dot(a, b []float32) (sum float64) {
	for i := range min(len(a), len(b)) {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// lines keeps strings as one, so that a row shares nothing with anybody.
func lines(list []string) string { return strings.Join(list, "\n") }
