package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/vault"
)

// MemoryTx is a transaction in one scope of a room. What its methods queue
// happens at the commit. It belongs to one goroutine.
type MemoryTx struct {
	tx    *Tx
	room  agent.MemoryRoom
	scope agent.MemoryScope
}

// InMemory runs fn in a transaction on behalf of a room, with the keys of one of
// its scopes, and commits if fn returns nil. fn may be run again from its start.
// Whoever does not take part in the room's group and project gets ErrNotFound, as
// for a scope that the room does not have, and a user who was erased ErrErased.
func (db *DB) InMemory(ctx context.Context, room agent.MemoryRoom, scope agent.MemoryScope, fn func(*MemoryTx) error) error {
	if err := checkRoom(room); err != nil {
		return err
	}
	if !slices.Contains(room.Scopes(), scope) {
		return fmt.Errorf("%w: the room does not have this scope", ErrNotFound)
	}
	subject := scope.Subject(room.Scope.User)
	if _, known := db.keys.kept.Get(vault.Owner{Tenant: room.Scope.Tenant, Subject: subject}); !known {
		// Keys are not made for who is not admitted.
		if err := db.readRoom(ctx, room); err != nil {
			return err
		}
	}
	begin := Tx{scope: room.Scope, enter: db.inRoom(room, scope)}
	err := db.inTxOf(ctx, begin, subject, func(tx *Tx) error {
		return fn(&MemoryTx{tx: tx, room: room, scope: scope})
	})
	// Whose keys are gone was erased, also where no erasure is on record.
	if errors.Is(err, ErrKeysDestroyed) {
		return fmt.Errorf("%w: the keys were destroyed", ErrErased)
	}
	return err
}

func (m *MemoryTx) tenant() string { return m.room.Scope.Tenant }

func (m *MemoryTx) roomName() string { return m.scope.Room(m.room.Scope.Environment) }

func (m *MemoryTx) subject() string { return m.scope.Subject(m.room.Scope.User) }

// HoldCandidate reads a candidate of the room's user in the scope and keeps it
// from being decided elsewhere before the transaction ends: ErrNotFound.
func (m *MemoryTx) HoldCandidate(ctx context.Context, id string) (MemoryCandidate, error) {
	m.tx.touch()
	var row dbsqlc.MemoryCandidate
	err := m.tx.read(ctx, one(m.tx.q.HoldMemoryCandidate, dbsqlc.HoldMemoryCandidateParams{
		Tenant: m.tenant(), ID: id, UserID: m.room.Scope.User, Room: m.roomName(),
	}, &row))
	if err != nil {
		return MemoryCandidate{}, fmt.Errorf("hold candidate: %w", err)
	}
	c, err := toMemoryCandidate(m.tx.ring, row)
	if err != nil {
		return MemoryCandidate{}, fmt.Errorf("hold candidate: %w", err)
	}
	return c, nil
}

// HoldIdentity reads the versions in force of the records that have key and
// identity in the scope, by the beginning of their time, and keeps others from
// writing there before the transaction ends. What is past its retention is
// deleted first.
func (m *MemoryTx) HoldIdentity(ctx context.Context, key, identity string) ([]MemoryRecord, error) {
	hash := m.identityHash(key, identity)
	if m.tx.err != nil {
		return nil, m.tx.err
	}
	var (
		rows []dbsqlc.MemoryRecord
		room = m.roomName()
	)
	err := m.tx.read(ctx,
		exec(m.tx.q.HoldMemoryIdentity, dbsqlc.HoldMemoryIdentityParams{Tenant: m.tenant(), Room: room, IdentityHash: hash}),
		// In statements of their own, which see what the lock waited for.
		exec(m.tx.q.OutliveMemoryIdentity, dbsqlc.OutliveMemoryIdentityParams{Tenant: m.tenant(), Room: room, Key: key, IdentityHash: hash}),
		one(m.tx.q.MemoryInForce, dbsqlc.MemoryInForceParams{Tenant: m.tenant(), Room: room, Subject: m.subject(), Key: key, IdentityHash: hash}, &rows),
	)
	if err != nil {
		return nil, fmt.Errorf("hold identity: %w", err)
	}
	list := make([]MemoryRecord, len(rows))
	for i, row := range rows {
		if list[i], err = toMemoryRecord(m.tx.ring, row); err != nil {
			return nil, fmt.Errorf("hold identity: %w", err)
		}
		list[i].Identity = identity
	}
	return list, nil
}

// LastRetraction is when what had key and identity in the scope was last taken back,
// zero if never, and the hash of the value that was. HoldIdentity comes before it.
func (m *MemoryTx) LastRetraction(ctx context.Context, key, identity string) (Retraction, error) {
	hash := m.identityHash(key, identity)
	if m.tx.err != nil {
		return Retraction{}, m.tx.err
	}
	var last []dbsqlc.LastRetractionRow
	err := m.tx.read(ctx, one(m.tx.q.LastRetraction, dbsqlc.LastRetractionParams{Tenant: m.tenant(), Room: m.roomName(), Key: key, IdentityHash: hash}, &last))
	if err != nil {
		return Retraction{}, fmt.Errorf("look for a retraction: %w", err)
	}
	if len(last) == 0 {
		return Retraction{}, nil
	}
	return Retraction{At: present(utc(last[0].EndedAt)), ValueHash: last[0].ValueHash}, nil
}

// identityHash tells records of one key apart without saying how. It is empty
// after an error, which is the transaction's.
func (m *MemoryTx) identityHash(key, identity string) string {
	return m.tx.KeyedHash(key + "\n" + identity)
}

// Hash is the keyed hash of a normalized value. It is empty after an error, which
// is the transaction's.
func (m *MemoryTx) Hash(value []byte) string { return m.tx.KeyedHash(string(value)) }

// StoreRecord adds a version in force, with what it is found by. The caller
// chooses ID and version; where, whose and by whom it is follows from the
// transaction. If there is such a version, or one in force at the same time
// under the same key and identity, the transaction fails with ErrConflict.
func (m *MemoryTx) StoreRecord(r MemoryRecord, index MemoryIndex) {
	r.Scope, r.Subject, r.User, r.Environment = m.scope, m.subject(), m.room.Scope.User, m.room.Scope.Environment
	if len(r.Value) == 0 {
		m.fail(fmt.Errorf("store memory: a version in force has a value"))
		return
	}
	evidence, err := json.Marshal(r.Evidence)
	if err != nil {
		m.fail(fmt.Errorf("store memory: its evidence is no JSON"))
		return
	}
	tx, version := m.tx, number(r.Version)
	params := dbsqlc.InsertMemoryRecordParams{
		Tenant: m.tenant(), ID: r.ID, Version: int32(r.Version), Room: m.roomName(), ScopeKind: string(r.Scope.Kind), ScopeID: r.Scope.ID,
		Subject: r.Subject, UserID: r.User, Environment: r.Environment, Agent: r.Agent, Kind: string(r.Kind), Key: r.Key,
		IdentityHash: m.identityHash(r.Key, r.Identity), Value: tx.sealAny(recordValue, r.Value, r.ID, version),
		Evidence: tx.sealAny(recordEvidence, evidence, r.ID, version), ValueHash: m.Hash(r.Value),
		SourceType: string(r.SourceType), SourceID: r.SourceID, Writer: r.Writer, RunID: r.RunID, ConversationID: r.Conversation,
		CandidateID: r.CandidateID, Confidence: r.Confidence, Validation: string(r.Validation), ConsentBasis: r.ConsentBasis,
		Sensitivity: r.Sensitivity, ValidFrom: r.ValidFrom, ValidUntil: r.ValidUntil, ExpiresAt: r.ExpiresAt, WrittenAt: r.WrittenAt,
		Rules: memoryRules(r.Rules), PolicyVersion: r.PolicyVersion, PolicyDigest: r.PolicyDigest, DecidedBy: r.DecidedBy,
	}
	if tx.err != nil {
		return
	}
	statements, err := memoryIndexStatements(tx.q, tx.ring, r, index)
	if err != nil {
		m.fail(err)
		return
	}
	tx.write(exec(tx.q.InsertMemoryRecord, params))
	for _, s := range statements {
		tx.write(s)
	}
}

// EndRecord ends a version in force of the scope and removes what it was found
// by. It must be queued before the version that takes its place. If it is not in
// force any more the transaction is run again, and in the end fails with
// ErrConflict.
func (m *MemoryTx) EndRecord(r MemoryRecord, status MemoryStatus, by string, at time.Time) {
	if !m.owns(r) {
		return
	}
	m.tx.write(exec(m.tx.q.EndMemoryRecord, dbsqlc.EndMemoryRecordParams{
		Tenant: m.tenant(), ID: r.ID, Version: int32(r.Version), Room: m.roomName(), Status: string(status), EndedAt: at, EndedBy: by,
	}))
	m.tx.write(exec(m.tx.q.DeleteMemoryIndex, dbsqlc.DeleteMemoryIndexParams{Tenant: m.tenant(), RecordID: r.ID}))
}

// RepeatRecord notes that a version in force was said again, and keeps it until
// then at least, nil for as long as before. If it is not in force any more that is as for
// EndRecord.
func (m *MemoryTx) RepeatRecord(r MemoryRecord, at time.Time, until *time.Time) {
	if !m.owns(r) {
		return
	}
	m.tx.write(exec(m.tx.q.RepeatMemoryRecord, dbsqlc.RepeatMemoryRecordParams{
		Tenant: m.tenant(), ID: r.ID, Version: int32(r.Version), Room: m.roomName(), RepeatedAt: at, ExpiresAt: until,
	}))
}

// UpdateCandidate stores what was decided about a candidate that is held, with its
// content unless that is nil; in a final state its content is cleared, and nothing
// changes it any more: ErrConflict.
func (m *MemoryTx) UpdateCandidate(c MemoryCandidate) {
	if c.Scope != m.scope {
		m.fail(fmt.Errorf("update candidate: %w", ErrNotFound))
		return
	}
	var version *int32
	if c.Record != "" {
		v := int32(c.RecordVersion)
		version = &v
	}
	var content []byte
	if c.Content != nil && !c.State.Final() {
		text, err := json.Marshal(c.Content)
		if err != nil {
			m.fail(fmt.Errorf("update candidate: it is no JSON"))
			return
		}
		if content = m.tx.sealAny(candidateContent, text, c.ID); m.tx.err != nil {
			return
		}
	}
	m.tx.write(exec(m.tx.q.UpdateMemoryCandidate, dbsqlc.UpdateMemoryCandidateParams{
		Tenant: m.tenant(), ID: c.ID, UserID: m.room.Scope.User, Room: m.roomName(), State: string(c.State), Final: c.State.Final(),
		Kind: string(c.Kind), Key: c.Key, ValueHash: c.ValueHash, Rules: memoryRules(c.Rules), PolicyVersion: c.PolicyVersion,
		PolicyDigest: c.PolicyDigest, Revision: int32(c.Revision), Nonce: c.Nonce, PlanHash: c.PlanHash, ExpiresAt: c.ExpiresAt,
		RecordID: optional(c.Record), RecordVersion: version, DecidedBy: c.DecidedBy, TokenID: c.TokenID, Content: content,
	}))
}

// Audit adds an entry of the audit trail. Subject and User are the transaction's
// where the entry names none, and a zero At is the time of the commit.
func (m *MemoryTx) Audit(e MemoryAudit) {
	m.tx.write(exec(m.tx.q.InsertMemoryAudit, dbsqlc.InsertMemoryAuditParams{
		Tenant: m.tenant(), At: optional(e.At), Actor: e.Actor, Action: e.Action, Subject: orDefault(e.Subject, m.subject()),
		UserID: orDefault(e.User, m.room.Scope.User), CandidateID: e.Candidate, RecordID: e.Record, Version: int32(e.Version), Detail: e.Detail,
	}))
}

// owns reports whether a record is of the transaction's scope.
func (m *MemoryTx) owns(r MemoryRecord) bool {
	if r.Scope != m.scope || r.Environment != m.room.Scope.Environment {
		m.fail(fmt.Errorf("change memory: %w", ErrNotFound))
	}
	return m.tx.err == nil
}

func (m *MemoryTx) fail(err error) {
	if m.tx.err == nil {
		m.tx.err = err
	}
}
