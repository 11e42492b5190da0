package memstore

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// ProposeMemory implements activities.Memory.
func (s *Store) ProposeMemory(ctx context.Context, c db.MemoryCandidate) (stored db.MemoryCandidate, err error) {
	c = cloneCandidate(c)
	if scopes := c.Room.Scopes(); c.State == agent.MemoryRejected && len(scopes) > 0 && !slices.Contains(scopes, c.Scope) {
		// It may be rejected just for that.
		c.Scope = scopes[0]
	}
	whole, err := json.Marshal([]any{c.Room, c.Content})
	if err != nil {
		return stored, wrap("propose memory", err)
	}
	err = s.inRoom(ctx, c.Room, c.Scope, func(tx *tx) error {
		d, key := tx.data, namedKey{c.Room.Scope.Tenant, c.ID}
		if old, known := d.candidates.get(key); known {
			if old.request != string(whole) || old.Scope != c.Scope {
				return db.ErrOtherRequest
			}
			stored = cloneCandidate(old.MemoryCandidate)
			return nil
		}
		if d.forgotten(c) {
			return &db.Error{Kind: db.ErrForgotten}
		}
		if err := first(check(c.ID != "", "memory_candidate_id_check"), check(c.State == agent.MemoryProposed || c.State == agent.MemoryRejected, "memory_candidate_state_check"),
			check(c.State == agent.MemoryRejected || c.Content != nil, "memory_candidate_content_check")); err != nil {
			return err
		}
		if c.State == agent.MemoryRejected {
			c.Content = nil
		}
		c.CreatedAt, c.UpdatedAt, c.Tries = tx.now, tx.now, 0
		d.tenants.put(tx, key.tenant, struct{}{})
		d.candidates.put(tx, key, candidateRow{c, string(whole)})
		stored = cloneCandidate(c)
		return nil
	})
	return stored, wrap("propose memory", err)
}

// forgotten reports whether a candidate was observed, or is of a run from, before its
// user had all forgotten, or a record of the candidate's room and key.
func (d *data) forgotten(c db.MemoryCandidate) bool {
	for at, e := range d.erasures.rows {
		if at.tenant != c.Room.Scope.Tenant || e.receipt.Subject != c.Room.Scope.User {
			continue
		}
		if c.Content != nil && c.Content.ObservedAt != nil {
			if c.Content.ObservedAt.After(e.requestedAt) {
				continue
			}
		} else if !e.before(c.Room.Scope.User, c.RunID) {
			continue
		}
		if e.kind == eraseMemory || e.kind == eraseRecord && d.anyRecord(at.tenant, func(r db.MemoryRecord) bool {
			return r.ID == e.record && r.Scope == c.Scope && r.Environment == c.Room.Scope.Environment && r.Key == c.Key
		}) {
			return true
		}
	}
	return false
}

// before reports whether a run of a user had begun when the user made the request.
// The order of the transactions says so: a test's clock may stand still.
func (e erasureRow) before(user, runID string) bool {
	return e.receipt.Subject == user && runID != "" && slices.Contains(strings.Split(e.runs, "\n"), runID)
}

// MemoryCandidate implements activities.Memory.
func (s *Store) MemoryCandidate(ctx context.Context, room agent.MemoryRoom, id string) (c db.MemoryCandidate, err error) {
	err = s.inRoom(ctx, room, agent.MemoryScope{}, func(tx *tx) (err error) {
		c, err = tx.data.candidate(room, id)
		return err
	})
	return c, wrap("load memory candidate", err)
}

func (d *data) candidate(room agent.MemoryRoom, id string) (db.MemoryCandidate, error) {
	row, ok := d.candidates.get(namedKey{room.Scope.Tenant, id})
	if !ok || row.Room.Scope != room.Scope || !slices.Contains(room.Scopes(), row.Scope) {
		return db.MemoryCandidate{}, missing
	}
	return cloneCandidate(row.MemoryCandidate), nil
}

// RunCandidates implements activities.Memory.
func (s *Store) RunCandidates(ctx context.Context, room agent.MemoryRoom, runID string) (list []db.MemoryCandidate, err error) {
	err = s.inRoom(ctx, room, agent.MemoryScope{}, func(tx *tx) error {
		for at, row := range tx.data.candidates.rows {
			if runID == "" || row.RunID != runID || at.tenant != room.Scope.Tenant {
				continue
			}
			if c, err := tx.data.candidate(room, at.id); err == nil {
				list = append(list, c)
			}
		}
		slices.SortFunc(list, func(a, b db.MemoryCandidate) int {
			return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
		})
		return nil
	})
	return list, wrap("load memory candidates", err)
}

// HoldCandidate implements activities.MemoryTx.
func (m *memoryTx) HoldCandidate(ctx context.Context, id string) (c db.MemoryCandidate, err error) {
	err = m.read(ctx, func() (err error) {
		if c, err = m.data.candidate(m.room, id); err == nil && c.Scope != m.held {
			err = missing
		}
		return err
	})
	return c, wrap("hold memory candidate", err)
}

// UpdateCandidate implements activities.MemoryTx. Where it is from and how often it
// was tried stays as it is.
func (m *memoryTx) UpdateCandidate(c db.MemoryCandidate) {
	c = cloneCandidate(c)
	m.queue(func() error {
		if c.Scope != m.held {
			return missing
		}
		key := namedKey{m.scope.Tenant, c.ID}
		row, ok := m.data.candidates.get(key)
		if !ok || row.Scope != m.held || row.Room.Scope != m.room.Scope || row.State.Final() {
			return lost
		}
		waits := c.State == agent.MemoryWaitingReview || c.State == agent.MemoryWaitingConfirmation
		if err := check(!waits || c.ExpiresAt != nil, "memory_candidate_wait_check"); err != nil {
			return err
		}
		row.State, row.Kind, row.Key, row.ValueHash = c.State, c.Kind, c.Key, c.ValueHash
		row.Rules, row.PolicyVersion, row.PolicyDigest = c.Rules, c.PolicyVersion, c.PolicyDigest
		row.Revision, row.Nonce, row.PlanHash, row.ExpiresAt = c.Revision, c.Nonce, c.PlanHash, c.ExpiresAt
		row.Record, row.RecordVersion, row.DecidedBy, row.TokenID = c.Record, c.RecordVersion, c.DecidedBy, c.TokenID
		if c.Content != nil {
			row.Content = c.Content
		}
		if c.State.Final() {
			row.Content, row.Nonce, row.PlanHash = nil, "", ""
		}
		row.UpdatedAt = m.now
		m.data.candidates.put(m.tx, key, row)
		return nil
	})
}

// close ends a candidate that nobody has decided about, and clears its content.
func (c *candidateRow) close(state agent.MemoryState, by string, at time.Time) {
	if !c.State.Final() {
		c.State, c.DecidedBy = state, by
	}
	c.Content, c.Nonce, c.PlanHash, c.UpdatedAt = nil, "", "", at
}
