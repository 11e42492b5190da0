package memstore

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

var _ activities.Memory = (*Store)(nil)

type (
	participantKey struct {
		tenant string
		scope  agent.MemoryScope
		user   string
	}
	recordKey struct {
		namedKey
		version int
	}
	vectorKey struct {
		namedKey
		embedder db.MemoryEmbedder
	}
	influenceKey struct {
		runKey
		record string
	}
)

// memory are the tables of long-term memory. Rows of records, candidates and
// participants are copied on their way in and out.
type memory struct {
	participants table[participantKey, db.Participant]
	candidates   table[namedKey, candidateRow]
	records      table[recordKey, db.MemoryRecord]
	keywords     table[namedKey, keywordRow]
	vectors      table[vectorKey, vectorRow]
	influences   table[influenceKey, db.MemoryInfluence]
	audit        table[int, auditRow]
	lessons      table[runKey, lessonRow]
	erasures     table[namedKey, erasureRow]
	// embedders has the statuses "serving" and "building".
	embedders table[string, db.MemoryEmbedder]
}

func newMemory() memory {
	return memory{
		participants: newTable[participantKey, db.Participant](), candidates: newTable[namedKey, candidateRow](),
		records: newTable[recordKey, db.MemoryRecord](), keywords: newTable[namedKey, keywordRow](), vectors: newTable[vectorKey, vectorRow](),
		influences: newTable[influenceKey, db.MemoryInfluence](), audit: newTable[int, auditRow](), lessons: newTable[runKey, lessonRow](),
		erasures: newTable[namedKey, erasureRow](), embedders: newTable[string, db.MemoryEmbedder](),
	}
}

// candidateRow is a candidate with all of it as JSON, by which it is recognized.
type candidateRow struct {
	db.MemoryCandidate
	request string
}

type keywordRow struct {
	version int
	// tokens are separated by line feeds.
	tokens string
}

type vectorRow struct {
	version int
	vector  []float32
}

type auditRow struct {
	tenant string
	db.MemoryAudit
}

// in runs fn in a transaction of a tenant, on behalf of nobody else.
func (s *Store) in(ctx context.Context, scope agent.Scope, fn func(*tx) error) error {
	return s.InTx(ctx, scope, func(t activities.Tx) error {
		own := t.(*tx)
		return own.read(ctx, func() error { return fn(own) })
	})
}

// background is whose transactions the work on a whole tenant are.
func background(tenant string) agent.Scope {
	return agent.Scope{Tenant: tenant, User: "~", Environment: "~"}
}

// takesPart reports whether a user is a participant of a group and a project; an
// empty one has everybody in it.
func (d *data) takesPart(tenant, user, group, project string) bool {
	for _, scope := range []agent.MemoryScope{{Kind: agent.MemoryOfGroup, ID: group}, {Kind: agent.MemoryOfProject, ID: project}} {
		p, ok := d.participants.get(participantKey{tenant, scope, user})
		if scope.ID != "" && (!ok || p.RemovedAt != nil) {
			return false
		}
	}
	return true
}

// inRoom runs fn in a transaction on behalf of a room: db.ErrErased for who was
// erased, and db.ErrNotFound for who does not take part in group and project, for
// a conversation that is somebody else's, and for a scope that the room does not
// have. The zero scope is all of them.
func (s *Store) inRoom(ctx context.Context, room agent.MemoryRoom, scope agent.MemoryScope, fn func(*tx) error) error {
	return s.in(ctx, room.Scope, func(tx *tx) error {
		if err := tx.data.admit(room, scope); err != nil {
			return err
		}
		return fn(tx)
	})
}

// erased reports whether somebody has asked to have a user erased.
func (d *data) erased(tenant, user string) bool {
	for at, e := range d.erasures.rows {
		if at.tenant == tenant && e.kind == eraseSubject && e.receipt.Subject == user {
			return true
		}
	}
	return false
}

func (d *data) admit(room agent.MemoryRoom, scope agent.MemoryScope) error {
	tenant, user := room.Scope.Tenant, room.Scope.User
	if d.erased(tenant, user) {
		return &db.Error{Kind: db.ErrErased}
	}
	conv, known := d.conversations.get(namedKey{tenant, room.Conversation})
	switch {
	case !d.takesPart(tenant, user, room.Group, room.Project):
		return missing
	case known && (conv.Group != "" && conv.Group != room.Group || conv.Project != "" && room.Project != "" && conv.Project != room.Project):
		return missing
	case known && !owns(room.Scope, conv), !known && scope.Kind == agent.MemoryOfConversation:
		return missing
	case scope != agent.MemoryScope{} && !slices.Contains(room.Scopes(), scope):
		return missing
	}
	return nil
}

// seen reports whether a record is in one of the scopes of a room.
func seen(room agent.MemoryRoom, r db.MemoryRecord) bool {
	return r.Environment == room.Scope.Environment && slices.Contains(room.Scopes(), r.Scope)
}

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
		if err := first(check(c.ID != "", "memory_candidate_id_check"), check(c.State == agent.MemoryProposed || c.State == agent.MemoryRejected, "memory_candidate_state_check"),
			check(c.State == agent.MemoryRejected || c.Content != nil, "memory_candidate_content_check")); err != nil {
			return err
		}
		if c.State == agent.MemoryRejected {
			c.Content = nil
		}
		c.CreatedAt, c.UpdatedAt = tx.now, tx.now
		d.candidates.put(tx, key, candidateRow{c, string(whole)})
		stored = cloneCandidate(c)
		return nil
	})
	return stored, wrap("propose memory", err)
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
			if row.RunID != runID || at.tenant != room.Scope.Tenant {
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

// note adds an entry of the audit trail.
func (tx *tx) note(e db.MemoryAudit) {
	e.ID = int64(len(tx.data.audit.rows) + 1)
	if e.At.IsZero() {
		e.At = tx.now
	}
	e.At = micros(e.At)
	tx.data.audit.put(tx, int(e.ID), auditRow{tx.scope.Tenant, e})
}

// InMemory implements activities.Memory.
func (s *Store) InMemory(ctx context.Context, room agent.MemoryRoom, scope agent.MemoryScope, fn func(activities.MemoryTx) error) error {
	if !slices.Contains(room.Scopes(), scope) {
		return missing
	}
	return s.InTx(ctx, room.Scope, func(t activities.Tx) error {
		m := &memoryTx{t.(*tx), room, scope}
		if err := m.read(ctx, func() error { return m.data.admit(room, scope) }); err != nil {
			return err
		}
		return fn(m)
	})
}

// memoryTx is a transaction in one scope of a room.
type memoryTx struct {
	*tx
	room agent.MemoryRoom
	held agent.MemoryScope
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

// HoldIdentity implements activities.MemoryTx.
func (m *memoryTx) HoldIdentity(ctx context.Context, key, identity string) (list []db.MemoryRecord, err error) {
	err = m.read(ctx, func() error {
		for at, r := range m.data.records.rows {
			if at.tenant != m.scope.Tenant || r.Environment != m.room.Scope.Environment || r.Scope != m.held || r.Subject != m.held.Subject(m.scope.User) ||
				r.Key != key || r.IdentityHash != identityHash(key, identity) || r.Status != db.MemoryActive {
				continue
			}
			if r.ExpiresAt != nil && !r.ExpiresAt.After(m.now) {
				m.outlive(at, r)
				continue
			}
			r = cloneRecord(r)
			r.Identity = identity
			list = append(list, r)
		}
		slices.SortFunc(list, func(a, b db.MemoryRecord) int {
			return cmp.Or(nullsFirst(a.ValidFrom, b.ValidFrom), cmp.Compare(a.ID, b.ID))
		})
		return nil
	})
	return list, wrap("hold memory identity", err)
}

// LastRetraction implements activities.MemoryTx.
func (m *memoryTx) LastRetraction(ctx context.Context, key, identity string) (last time.Time, err error) {
	err = m.read(ctx, func() error {
		for at, r := range m.data.records.rows {
			if at.tenant == m.scope.Tenant && r.Environment == m.room.Scope.Environment && r.Scope == m.held && r.Subject == m.held.Subject(m.scope.User) &&
				r.Key == key && r.IdentityHash == identityHash(key, identity) && r.Status == db.MemoryRetracted && r.EndedAt.After(last) {
				last = *r.EndedAt
			}
		}
		return nil
	})
	return last, wrap("look for a retraction", err)
}

// outlive deletes what is past its retention.
func (tx *tx) outlive(key recordKey, r db.MemoryRecord) {
	tx.bury(key, r, "retention")
	tx.unindex(key.namedKey)
	tx.note(db.MemoryAudit{Actor: "retention", Action: "expired", Subject: r.Subject, User: r.User, Record: r.ID, Version: r.Version})
}

// bury makes a tombstone of a version.
func (tx *tx) bury(key recordKey, r db.MemoryRecord, by string) {
	r.Value, r.Evidence, r.ValueHash, r.IdentityHash = nil, db.MemoryEvidence{}, "", ""
	r.Status = db.MemoryDeleted
	if r.EndedAt == nil {
		r.EndedAt, r.EndedBy = cloneTime(&tx.now), by
	}
	tx.data.records.put(tx, key, r)
}

func nullsFirst(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return a.Compare(*b)
}

// identityHash tells records of one key apart.
func identityHash(key, identity string) string { return db.ContentHash(key + "\n" + identity) }

// Hash implements activities.MemoryTx. There are no keys here.
func (m *memoryTx) Hash(value []byte) string { return db.ContentHash(value) }

// StoreRecord implements activities.MemoryTx.
func (m *memoryTx) StoreRecord(r db.MemoryRecord, index db.MemoryIndex) {
	r, d := cloneRecord(r), m.data
	r.Environment, r.Scope, r.Status, r.User = m.room.Scope.Environment, m.held, db.MemoryActive, m.room.Scope.User
	r.Subject = m.held.Subject(r.User)
	r.ValueHash, r.IdentityHash, r.Identity = m.Hash(r.Value), identityHash(r.Key, r.Identity), ""
	tokens, vector := lines(index.Tokens), slices.Clone(index.Embedding)
	m.queue(func() error {
		key := namedKey{m.scope.Tenant, r.ID}
		r.WrittenAt = micros(r.WrittenAt)
		if err := first(check(r.ID != "", "memory_record_id_check"), check(r.Version > 0, "memory_record_version_check"),
			check(r.ValidFrom == nil || r.ValidUntil == nil || r.ValidUntil.After(*r.ValidFrom), "memory_record_valid_check")); err != nil {
			return err
		}
		if _, taken := d.records.get(recordKey{key, r.Version}); taken {
			return conflict("memory_record_pkey")
		}
		for at, other := range d.records.rows {
			if at.tenant != key.tenant || other.Status != db.MemoryActive {
				continue
			}
			if at.id == r.ID {
				return conflict("memory_record_active_idx")
			}
			if other.Environment == r.Environment && other.Scope == r.Scope && other.Key == r.Key && other.IdentityHash == r.IdentityHash && overlap(other, r) {
				return &db.Error{Kind: db.ErrConflict, Code: "23P01", Constraint: "memory_record_in_force_excl"}
			}
		}
		d.records.put(m.tx, recordKey{key, r.Version}, r)
		d.keywords.put(m.tx, key, keywordRow{r.Version, tokens})
		if len(vector) > 0 && d.knows(index.Embedder) {
			d.vectors.put(m.tx, vectorKey{key, index.Embedder}, vectorRow{r.Version, vector})
		}
		return nil
	})
}

// overlap reports whether there is a moment for which both are valid.
func overlap(a, b db.MemoryRecord) bool {
	before := func(until, from *time.Time) bool { return until != nil && from != nil && !until.After(*from) }
	return !before(a.ValidUntil, b.ValidFrom) && !before(b.ValidUntil, a.ValidFrom)
}

// EndRecord implements activities.MemoryTx.
func (m *memoryTx) EndRecord(r db.MemoryRecord, status db.MemoryStatus, by string, at time.Time) {
	m.queue(func() error {
		key := recordKey{namedKey{m.scope.Tenant, r.ID}, r.Version}
		stored, ok := m.data.records.get(key)
		if !ok || stored.Status != db.MemoryActive {
			return conflict("memory_record_active_idx")
		}
		m.endRecord(key, stored, status, by, at)
		return nil
	})
}

func (tx *tx) endRecord(key recordKey, r db.MemoryRecord, status db.MemoryStatus, by string, at time.Time) {
	ended := micros(at)
	r.Status, r.EndedBy, r.EndedAt = status, by, &ended
	tx.data.records.put(tx, key, r)
	tx.unindex(key.namedKey)
}

// unindex removes what a record is found by and reports how much there was.
func (tx *tx) unindex(key namedKey) (keywords, vectors int) {
	d := tx.data
	if _, ok := d.keywords.get(key); ok {
		d.keywords.remove(tx, key)
		keywords++
	}
	for at := range d.vectors.rows {
		if at.namedKey == key {
			d.vectors.remove(tx, at)
			vectors++
		}
	}
	return keywords, vectors
}

// RepeatRecord implements activities.MemoryTx.
func (m *memoryTx) RepeatRecord(r db.MemoryRecord, at time.Time, until *time.Time) {
	m.queue(func() error {
		key := recordKey{namedKey{m.scope.Tenant, r.ID}, r.Version}
		stored, ok := m.data.records.get(key)
		if !ok || stored.Status != db.MemoryActive {
			return conflict("memory_record_active_idx")
		}
		repeated := micros(at)
		if stored.RepeatedAt != nil && stored.RepeatedAt.After(repeated) {
			repeated = *stored.RepeatedAt
		}
		stored.Repeats, stored.RepeatedAt = stored.Repeats+1, &repeated
		if stored.ExpiresAt != nil && until != nil && until.After(*stored.ExpiresAt) {
			later := micros(*until)
			stored.ExpiresAt = &later
		}
		m.data.records.put(m.tx, key, stored)
		return nil
	})
}

// UpdateCandidate implements activities.MemoryTx.
func (m *memoryTx) UpdateCandidate(c db.MemoryCandidate) {
	c = cloneCandidate(c)
	m.queue(func() error {
		key := namedKey{m.scope.Tenant, c.ID}
		stored, ok := m.data.candidates.get(key)
		if !ok || stored.Scope != m.held || stored.Room.Scope != m.room.Scope {
			return missing
		}
		if stored.State.Final() {
			return conflict("")
		}
		if c.State.Final() {
			c.Content, c.Nonce, c.PlanHash = nil, "", ""
		}
		c.CreatedAt, c.UpdatedAt = stored.CreatedAt, m.now
		stored.MemoryCandidate = c
		m.data.candidates.put(m.tx, key, stored)
		return nil
	})
}

// Audit implements activities.MemoryTx.
func (m *memoryTx) Audit(e db.MemoryAudit) {
	e.Subject, e.User = cmp.Or(e.Subject, m.held.Subject(m.scope.User)), cmp.Or(e.User, m.scope.User)
	m.queue(func() error { m.note(e); return nil })
}
