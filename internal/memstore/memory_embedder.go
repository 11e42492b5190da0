package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/recall"
)

// unitOf returns a vector of an embedder scaled to length 1: db.ErrEmbedding.
func unitOf(e db.MemoryEmbedder, vector []float32) ([]float32, error) {
	if len(vector) != e.Dimensions {
		return nil, fmt.Errorf("%w: it has %d dimensions, and %s has %d", db.ErrEmbedding, len(vector), e.Name, e.Dimensions)
	}
	unit, err := recall.Unit(vector)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", db.ErrEmbedding, err)
	}
	return unit, nil
}

// Embedders implements activities.Memory.
func (s *Store) Embedders(ctx context.Context, current db.MemoryEmbedder) (state db.EmbedderState, err error) {
	err = s.everywhere(ctx, func(tx *tx) error {
		d := tx.data
		serving, any := d.embedders.get("serving")
		building, _ := d.embedders.get("building")
		switch {
		case current == db.MemoryEmbedder{}:
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
	err = s.inTenant(ctx, tenant, func(tx *tx) error {
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
	unit, err := unitOf(e, vector)
	if err != nil {
		return wrap("store vector", err)
	}
	return wrap("store vector", s.inTenant(ctx, tenant, func(tx *tx) error {
		key := namedKey{tenant, r.ID}
		if !tx.data.active(key, r.Version) {
			return db.ErrConflict
		}
		if tx.data.knows(e) {
			tx.data.vectors.put(tx, vectorKey{key, e}, vectorRow{r.Version, unit})
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
		if building, ok := d.embedders.get("building"); ok && building == e {
			d.embedders.put(tx, "serving", e)
			d.embedders.remove(tx, "building")
		}
		dropped := map[string]int{}
		for at := range d.vectors.rows {
			if _, has := d.tenants.get(at.tenant); has && !d.knows(at.embedder) && dropped[at.tenant] < limit {
				d.vectors.remove(tx, at)
				dropped[at.tenant]++
			}
		}
		done = true
		for tenant := range d.tenants.rows {
			done = done && dropped[tenant] < limit
		}
		return nil
	})
	return done, wrap("promote embedder", err)
}
