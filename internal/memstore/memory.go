package memstore

import (
	"cmp"
	"context"
	"errors"
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
	// tenants are those that have memory.
	tenants table[string, struct{}]
	// docs counts the rows of keywords that there ever were.
	docs int
}

func newMemory() memory {
	return memory{
		participants: newTable[participantKey, db.Participant](), candidates: newTable[namedKey, candidateRow](),
		records: newTable[recordKey, db.MemoryRecord](), keywords: newTable[namedKey, keywordRow](), vectors: newTable[vectorKey, vectorRow](),
		influences: newTable[influenceKey, db.MemoryInfluence](), audit: newTable[int, auditRow](), lessons: newTable[runKey, lessonRow](),
		erasures: newTable[namedKey, erasureRow](), embedders: newTable[string, db.MemoryEmbedder](),
		tenants: newTable[string, struct{}](),
	}
}

// candidateRow is a candidate with all of it as JSON, by which it is recognized.
type candidateRow struct {
	db.MemoryCandidate
	request string
}

type keywordRow struct {
	version int
	// doc is in which order they came.
	doc int
	// tokens are separated by line feeds.
	tokens string
}

// vectorRow is a vector, scaled to length 1.
type vectorRow struct {
	version int
	unit    []float32
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

// inTenant is in for the work in the background on all memory of a tenant.
func (s *Store) inTenant(ctx context.Context, tenant string, fn func(*tx) error) error {
	if !agent.ValidID(tenant) {
		return db.ErrScope
	}
	return s.in(ctx, background(tenant), fn)
}

// checkRoom returns db.ErrScope for a room that names nobody, or names somebody in
// a way that could be taken for somebody else.
func checkRoom(room agent.MemoryRoom) error {
	for _, id := range []string{room.Scope.Tenant, room.Scope.User, room.Scope.Environment} {
		if !agent.ValidID(id) {
			return db.ErrScope
		}
	}
	for _, id := range []string{room.Conversation, room.Group, room.Project, room.Agent} {
		if id != "" && !agent.ValidID(id) {
			return db.ErrScope
		}
	}
	return nil
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
	if err := checkRoom(room); err != nil {
		return err
	}
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
	if err := checkRoom(room); err != nil {
		return err
	}
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

// HoldIdentity implements activities.MemoryTx.
func (m *memoryTx) HoldIdentity(ctx context.Context, key, identity string) (list []db.MemoryRecord, err error) {
	err = m.read(ctx, func() error {
		for at, r := range m.data.records.rows {
			if at.tenant != m.scope.Tenant || r.Environment != m.room.Scope.Environment || r.Scope != m.held || r.Subject != m.held.Subject(m.scope.User) ||
				r.Key != key || r.IdentityHash != identityHash(key, identity) || r.Status != db.MemoryActive {
				continue
			}
			if r.ExpiresAt != nil && !r.ExpiresAt.After(m.now) {
				m.outlive(at, r, m.now)
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
func (m *memoryTx) LastRetraction(ctx context.Context, key, identity string) (last db.Retraction, err error) {
	err = m.read(ctx, func() error {
		for at, r := range m.data.records.rows {
			if at.tenant == m.scope.Tenant && r.Environment == m.room.Scope.Environment && r.Scope == m.held && r.Subject == m.held.Subject(m.scope.User) &&
				r.Key == key && r.IdentityHash == identityHash(key, identity) && r.Status == db.MemoryRetracted && r.EndedAt.After(last.At) {
				last = db.Retraction{At: *r.EndedAt, ValueHash: r.ValueHash}
			}
		}
		return nil
	})
	return last, wrap("look for a retraction", err)
}

// outlive makes a tombstone of a version whose time was over at a moment.
func (tx *tx) outlive(key recordKey, r db.MemoryRecord, at time.Time) {
	active, by := r.Status == db.MemoryActive, r.EndedBy
	if active {
		by = "retention"
		tx.unindex(key.namedKey)
	}
	if r.EndedAt != nil {
		at = *r.EndedAt
	}
	tx.bury(key, r, by, at)
	tx.note(db.MemoryAudit{Actor: "retention", Action: "expired", Subject: r.Subject, User: r.User, Record: r.ID, Version: r.Version})
}

// bury makes a tombstone of a version.
func (tx *tx) bury(key recordKey, r db.MemoryRecord, by string, at time.Time) {
	r.Value, r.Evidence, r.ValueHash, r.IdentityHash = nil, db.MemoryEvidence{}, "", ""
	r.Status, r.EndedBy, r.EndedAt = db.MemoryDeleted, by, cloneTime(&at)
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

// StoreRecord implements activities.MemoryTx. Of the constraints there are those that
// a caller's fault would violate, not those of the closed sets of words.
func (m *memoryTx) StoreRecord(r db.MemoryRecord, index db.MemoryIndex) {
	r, d := cloneRecord(r), m.data
	r.Environment, r.Scope, r.Status, r.User = m.room.Scope.Environment, m.held, db.MemoryActive, m.room.Scope.User
	r.Subject = m.held.Subject(r.User)
	r.ValueHash, r.IdentityHash, r.Identity = m.Hash(r.Value), identityHash(r.Key, r.Identity), ""
	tokens := lines(index.Tokens)
	var (
		unit    []float32
		invalid error
	)
	switch {
	case len(r.Value) == 0:
		invalid = errors.New("store memory: a version in force has a value")
	case len(index.Embedding) > 0:
		unit, invalid = unitOf(index.Embedder, index.Embedding)
	}
	m.queue(func() error {
		key := namedKey{m.scope.Tenant, r.ID}
		r.WrittenAt = micros(r.WrittenAt)
		if err := first(invalid, check(r.ID != "", "memory_record_id_check"), check(r.Version > 0, "memory_record_version_check"),
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
		d.docs++
		d.keywords.put(m.tx, key, keywordRow{version: r.Version, doc: d.docs, tokens: tokens})
		if len(unit) > 0 && d.knows(index.Embedder) {
			d.vectors.put(m.tx, vectorKey{key, index.Embedder}, vectorRow{r.Version, unit})
		}
		return nil
	})
}

// overlap reports whether there is a moment for which both are valid.
func overlap(a, b db.MemoryRecord) bool {
	before := func(until, from *time.Time) bool { return until != nil && from != nil && !until.After(*from) }
	return !before(a.ValidUntil, b.ValidFrom) && !before(b.ValidUntil, a.ValidFrom)
}

// lost is what changes nothing because somebody else was faster.
var lost = &db.Error{Kind: db.ErrConflict, Code: "40001"}

// inForce returns the row of a version in force of the scope.
func (m *memoryTx) inForce(r db.MemoryRecord) (key recordKey, stored db.MemoryRecord, err error) {
	if r.Scope != m.held || r.Environment != m.room.Scope.Environment {
		return key, stored, missing
	}
	key = recordKey{namedKey{m.scope.Tenant, r.ID}, r.Version}
	stored, ok := m.data.records.get(key)
	if !ok || stored.Status != db.MemoryActive || stored.Scope != m.held || stored.Environment != r.Environment {
		return key, stored, lost
	}
	return key, stored, nil
}

// EndRecord implements activities.MemoryTx.
func (m *memoryTx) EndRecord(r db.MemoryRecord, status db.MemoryStatus, by string, at time.Time) {
	m.queue(func() error {
		key, stored, err := m.inForce(r)
		if err != nil {
			return err
		}
		stored.Status, stored.EndedBy, stored.EndedAt = status, by, cloneTime(&at)
		m.data.records.put(m.tx, key, stored)
		m.unindex(key.namedKey)
		return nil
	})
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
		key, stored, err := m.inForce(r)
		if err != nil {
			return err
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

// Audit implements activities.MemoryTx.
func (m *memoryTx) Audit(e db.MemoryAudit) {
	e.Subject, e.User = cmp.Or(e.Subject, m.held.Subject(m.scope.User)), cmp.Or(e.User, m.scope.User)
	m.queue(func() error { m.note(e); return nil })
}
