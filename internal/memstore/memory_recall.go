package memstore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// fusion is the constant of reciprocal rank fusion: how little the places of one
// list differ.
const fusion = 60

// inForce reports whether a record holds at a moment.
func inForce(r db.MemoryRecord, now time.Time) bool {
	return r.Status == db.MemoryActive && (r.ValidFrom == nil || !r.ValidFrom.After(now)) &&
		(r.ValidUntil == nil || r.ValidUntil.After(now)) && (r.ExpiresAt == nil || r.ExpiresAt.After(now))
}

// Recall implements activities.Memory: what has one of the keys, then what shares
// words with the question or is near to it, fused by rank.
func (s *Store) Recall(ctx context.Context, room agent.MemoryRoom, q db.RecallQuery) (hits []db.RecallHit, err error) {
	if len(q.Scopes) == 0 || len(q.Kinds) == 0 {
		return nil, wrap("recall", errors.New("scopes and kinds are required"))
	}
	for _, scope := range q.Scopes {
		if !slices.Contains(room.Scopes(), scope) {
			return nil, wrap("recall", errors.New("a scope is not one of the room's"))
		}
	}
	err = s.inRoom(ctx, room, agent.MemoryScope{}, func(tx *tx) error {
		hits = tx.data.recall(room, q)
		return nil
	})
	return hits, wrap("recall", err)
}

// found is a record with its places in the lists, from 1; 0 is none.
type found struct {
	record                 db.MemoryRecord
	exact, keyword, vector int
}

func (d *data) recall(room agent.MemoryRoom, q db.RecallQuery) []db.RecallHit {
	var visible []*found
	for at, r := range d.records.rows {
		if at.tenant == room.Scope.Tenant && slices.Contains(q.Scopes, r.Scope) && slices.Contains(q.Kinds, r.Kind) && seen(room, r) && inForce(r, q.Now) {
			visible = append(visible, &found{record: r})
		}
	}
	newest := func(a, b *found) int {
		return cmp.Or(b.record.WrittenAt.Compare(a.record.WrittenAt), cmp.Compare(a.record.ID, b.record.ID))
	}
	slices.SortFunc(visible, newest)
	rank := func(score func(*found) float64, place func(*found, int)) {
		scored := map[*found]float64{}
		var list []*found
		for _, f := range visible {
			if n := score(f); n > 0 {
				scored[f] = n
				list = append(list, f)
			}
		}
		slices.SortStableFunc(list, func(a, b *found) int { return cmp.Compare(scored[b], scored[a]) })
		for i, f := range list {
			place(f, i+1)
		}
	}
	// Of each key the newest comes before the second of any.
	nth := map[string]int{}
	rank(func(f *found) float64 {
		if !slices.Contains(q.Keys, f.record.Key) {
			return 0
		}
		nth[f.record.Key]++
		return 1 / float64(nth[f.record.Key])
	}, func(f *found, n int) { f.exact = n })
	weights := d.weights(room.Scope.Tenant, visible, q.Tokens)
	rank(func(f *found) (sum float64) {
		for _, token := range d.tokens(room.Scope.Tenant, f.record) {
			sum += weights[token]
		}
		return sum
	}, func(f *found, n int) { f.keyword = n })
	rank(func(f *found) float64 {
		row, ok := d.vectors.get(vectorKey{namedKey{room.Scope.Tenant, f.record.ID}, q.Embedder})
		if !ok || len(q.Embedding) == 0 {
			return 0
		}
		if near := dot(row.vector, q.Embedding); near > q.MinSimilarity {
			return near
		}
		return 0
	}, func(f *found, n int) { f.vector = n })

	var hits []db.RecallHit
	places := map[string]int{}
	for _, f := range visible {
		if h, ok := f.hit(); ok {
			hits = append(hits, h)
			places[f.record.ID] = f.exact
		}
	}
	// What has a key and nothing else is given half of the places, or those that stay
	// free.
	spare := func(h db.RecallHit) bool { return h.Via == "exact" && places[h.Record.ID]*2 > q.Limit+1 }
	slices.SortStableFunc(hits, func(a, b db.RecallHit) int {
		if s := spare(a); s != spare(b) {
			if s {
				return 1
			}
			return -1
		}
		return cmp.Compare(b.Score, a.Score)
	})
	return hits[:min(len(hits), max(q.Limit, 0))]
}

// hit is a record as it is returned. An exact key comes before everything else.
func (f *found) hit() (db.RecallHit, bool) {
	var via []string
	score := 0.0
	if f.exact > 0 {
		via, score = append(via, "exact"), score+1+1/float64(fusion+f.exact)
	}
	for _, list := range []struct {
		name string
		rank int
	}{{"keyword", f.keyword}, {"vector", f.vector}} {
		if list.rank > 0 {
			via, score = append(via, list.name), score+1/float64(fusion+list.rank)
		}
	}
	return db.RecallHit{Record: cloneRecord(f.record), Via: strings.Join(via, "+"), Score: score}, len(via) > 0
}

// weights says how much each word of the question tells: the rarer, the more.
func (d *data) weights(tenant string, visible []*found, tokens []string) map[string]float64 {
	weights := map[string]float64{}
	for _, token := range tokens {
		n := 0
		for _, f := range visible {
			if slices.Contains(d.tokens(tenant, f.record), token) {
				n++
			}
		}
		if n > 0 {
			weights[token] = math.Log(1 + float64(len(visible))/float64(n))
		}
	}
	return weights
}

func (d *data) tokens(tenant string, r db.MemoryRecord) []string {
	row, _ := d.keywords.get(namedKey{tenant, r.ID})
	if row.version != r.Version {
		return nil
	}
	return strings.Split(row.tokens, "\n")
}

func dot(a, b []float32) (sum float64) {
	for i := range min(len(a), len(b)) {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// lines keeps strings as one, so that a row shares nothing with anybody.
func lines(list []string) string { return strings.Join(list, "\n") }

// GiveMemories implements activities.Memory.
func (s *Store) GiveMemories(ctx context.Context, room agent.MemoryRoom, runID string, hits []db.RecallHit) (n int, err error) {
	err = s.inRoom(ctx, room, agent.MemoryScope{}, func(tx *tx) error {
		d, key := tx.data, tx.key(runID)
		run, ok := d.runs.get(key)
		if !ok || run.Scope != room.Scope {
			return nil
		}
		if n = len(d.given(key)); n > 0 {
			return nil
		}
		for i, h := range hits {
			if !seen(room, h.Record) {
				return missing
			}
			d.influences.put(tx, influenceKey{key, h.Record.ID}, db.MemoryInfluence{
				RunID: runID, Record: h.Record.ID, Version: h.Record.Version, User: room.Scope.User, Rank: i + 1, Via: h.Via, At: tx.now,
			})
		}
		n = len(hits)
		return nil
	})
	return n, wrap("give memories", err)
}

// given is what a run was given, in order of rank.
func (d *data) given(key runKey) (list []db.MemoryInfluence) {
	for at, i := range d.influences.rows {
		if at.runKey == key {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b db.MemoryInfluence) int { return cmp.Compare(a.Rank, b.Rank) })
	return list
}

// GivenMemories implements activities.Memory.
func (s *Store) GivenMemories(ctx context.Context, room agent.MemoryRoom, runID string, now time.Time) (list []db.MemoryRecord, err error) {
	err = s.inRoom(ctx, room, agent.MemoryScope{}, func(tx *tx) error {
		list = tx.data.givenRecords(room, tx.key(runID), now)
		return nil
	})
	return list, wrap("load given memories", err)
}

func (d *data) givenRecords(room agent.MemoryRoom, key runKey, now time.Time) (list []db.MemoryRecord) {
	for _, i := range d.given(key) {
		for at, r := range d.records.rows {
			if at.namedKey == (namedKey{key.tenant, i.Record}) && r.Version == i.Version && inForce(r, now) && seen(room, r) {
				list = append(list, cloneRecord(r))
			}
		}
	}
	return list
}

// Embedders implements activities.Memory.
func (s *Store) Embedders(ctx context.Context, current db.MemoryEmbedder) (state db.EmbedderState, err error) {
	err = s.in(ctx, background("~"), func(tx *tx) error {
		d := tx.data
		serving, any := d.embedders.get("serving")
		building, _ := d.embedders.get("building")
		switch {
		case !any:
			serving = current
			d.embedders.put(tx, "serving", serving)
		case current != serving && current != building:
			building = current
			d.embedders.put(tx, "building", building)
		}
		state = db.EmbedderState{Serving: serving, Building: building}
		return nil
	})
	return state, wrap("load embedders", err)
}

// knows reports whether there are vectors of an embedder.
func (d *data) knows(e db.MemoryEmbedder) bool {
	for _, known := range d.embedders.rows {
		if known == e {
			return true
		}
	}
	return false
}

// Unembedded implements activities.Memory.
func (s *Store) Unembedded(ctx context.Context, tenant string, e db.MemoryEmbedder, after string, limit int) (list []db.MemoryRecord, err error) {
	err = s.in(ctx, background(tenant), func(tx *tx) error {
		for at, r := range tx.data.records.rows {
			row, ok := tx.data.vectors.get(vectorKey{at.namedKey, e})
			if at.tenant == tenant && r.ID > after && r.Status == db.MemoryActive && (!ok || row.version != r.Version) {
				list = append(list, cloneRecord(r))
			}
		}
		slices.SortFunc(list, func(a, b db.MemoryRecord) int { return cmp.Compare(a.ID, b.ID) })
		list = list[:min(len(list), limit)]
		return nil
	})
	return list, wrap("list records without vectors", err)
}

// StoreVector implements activities.Memory.
func (s *Store) StoreVector(ctx context.Context, tenant string, r db.MemoryRecord, e db.MemoryEmbedder, vector []float32) error {
	vector = slices.Clone(vector)
	return wrap("store vector", s.everywhere(ctx, func(tx *tx) error {
		for at, stored := range tx.data.records.rows {
			if at.tenant == tenant && at.id == r.ID && at.version == r.Version && stored.Scope == r.Scope && stored.Status == db.MemoryActive {
				tx.data.vectors.put(tx, vectorKey{at.namedKey, e}, vectorRow{r.Version, vector})
			}
		}
		return nil
	}))
}

// everywhere is in for what belongs to no tenant.
func (s *Store) everywhere(ctx context.Context, fn func(*tx) error) error {
	return s.in(ctx, background("~"), fn)
}

// PromoteEmbedder implements activities.Memory.
func (s *Store) PromoteEmbedder(ctx context.Context, e db.MemoryEmbedder, limit int) (done bool, err error) {
	err = s.everywhere(ctx, func(tx *tx) error {
		d := tx.data
		d.embedders.put(tx, "serving", e)
		d.embedders.remove(tx, "building")
		done = true
		for at := range d.vectors.rows {
			if at.embedder == e {
				continue
			}
			if limit--; limit < 0 {
				done = false
				break
			}
			d.vectors.remove(tx, at)
		}
		return nil
	})
	return done, wrap("promote embedder", err)
}
