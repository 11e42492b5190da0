package db

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/vault"
)

// memoryOfTenant is what app.memory says for reviewers, operators and the work in
// the background.
const memoryOfTenant = "tenant"

// maxInfluences bounds the runs and entries that are listed of one record.
const maxInfluences = 1000

// inRoom sets what a room may see, and fails with ErrErased and ErrNotFound as
// AdmitToMemory does. scope is the one that is worked in, zero for all.
func (db *DB) inRoom(room agent.MemoryRoom, scope agent.MemoryScope) []statement {
	s := room.Scope
	return []statement{
		exec(db.q.SetMemoryScope, dbsqlc.SetMemoryScopeParams{
			Tenant: s.Tenant, UserID: s.User, Environment: s.Environment, ConversationID: room.Conversation, GroupID: room.Group,
			ProjectID: room.Project, Agent: room.Agent,
		}),
		// An erasure waits for this transaction, or this one for the erasure.
		exec(db.q.ShareSubjectKeys, dbsqlc.ShareSubjectKeysParams{Tenant: s.Tenant, Subject: s.User}),
		exec(db.q.AdmitToMemory, dbsqlc.AdmitToMemoryParams{
			Tenant: s.Tenant, UserID: s.User, Environment: s.Environment, ConversationID: room.Conversation, GroupID: room.Group,
			ProjectID: room.Project, OfConversation: scope.Kind == agent.MemoryOfConversation,
		}),
	}
}

// ofPerson sets what a person may see who asks what is remembered, and with no
// user what an operator of the tenant may see.
func (db *DB) ofPerson(tenant, user string) statement {
	params := dbsqlc.SetMemoryScopeParams{Tenant: tenant, UserID: user, MemorySubject: user}
	if user == "" {
		params.Memory = memoryOfTenant
	}
	return exec(db.q.SetMemoryScope, params)
}

// checkRoom returns ErrScope for a room that names nobody, or names somebody in a
// way that could be taken for somebody else.
func checkRoom(room agent.MemoryRoom) error {
	if !agent.ValidID(room.Scope.Tenant) || !agent.ValidID(room.Scope.User) || !agent.ValidID(room.Scope.Environment) {
		return ErrScope
	}
	for _, id := range []string{room.Conversation, room.Group, room.Project, room.Agent} {
		if id != "" && !agent.ValidID(id) {
			return fmt.Errorf("%w: conversation, group, project and agent must be identifiers or empty", ErrScope)
		}
	}
	return nil
}

// checkPerson is checkRoom for who asks what is remembered; an operator is no
// user.
func checkPerson(tenant, user string) error {
	if !agent.ValidID(tenant) || (user != "" && !agent.ValidID(user)) {
		return ErrScope
	}
	return nil
}

// rooms returns the scopes of a room as they stand beside records.
func rooms(room agent.MemoryRoom) []string {
	var all []string
	for _, scope := range room.Scopes() {
		all = append(all, scope.Room(room.Scope.Environment))
	}
	return all
}

// readRoom reads in a room in one round trip: ErrNotFound for whoever does not
// take part in it, ErrErased for who was erased.
func (db *DB) readRoom(ctx context.Context, room agent.MemoryRoom, statements ...statement) error {
	if err := checkRoom(room); err != nil {
		return err
	}
	return db.batch(ctx, append(db.inRoom(room, agent.MemoryScope{}), statements...)...)
}

// readPerson reads for a person or, without a user, an operator in one round trip.
func (db *DB) readPerson(ctx context.Context, tenant, user string, statements ...statement) error {
	if err := checkPerson(tenant, user); err != nil {
		return err
	}
	return db.batch(ctx, append([]statement{db.ofPerson(tenant, user)}, statements...)...)
}

// inTenantMemory runs fn in a transaction for the work in the background on all
// memory of a tenant. There is no content in it.
func (db *DB) inTenantMemory(ctx context.Context, tenant string, fn func(*Tx) error) error {
	if !agent.ValidID(tenant) {
		return ErrScope
	}
	return db.inTxOf(ctx, Tx{scope: agent.Scope{Tenant: tenant}, enter: []statement{db.ofPerson(tenant, "")}}, "", fn)
}

// rings are the keys of the subjects whose content was read.
type rings map[string]ring

// ringsOf returns the keys of subjects. They are read after the content: no value
// is sealed under newer ones.
func (db *DB) ringsOf(ctx context.Context, tenant string, subjects ...string) (rings, error) {
	slices.Sort(subjects)
	subjects = slices.Compact(subjects)
	if len(subjects) == 0 {
		return rings{}, nil
	}
	var rows []dbsqlc.SubjectKey
	err := db.inTenant(ctx, agent.Scope{Tenant: tenant}, one(db.q.MemoryKeys, dbsqlc.MemoryKeysParams{Tenant: tenant, Subjects: subjects}, &rows))
	if err != nil {
		return nil, fmt.Errorf("load keys: %w", err)
	}
	return db.toRings(tenant, subjects, rows), nil
}

// toRings returns the keys of subjects as they were read.
func (db *DB) toRings(tenant string, subjects []string, rows []dbsqlc.SubjectKey) rings {
	stored := make(map[string]*storedKeys, len(rows))
	for i := range rows {
		stored[rows[i].Subject] = toStoredKeys(&rows[i])
	}
	all := make(rings, len(subjects))
	for _, subject := range subjects {
		all[subject] = db.keys.ring(vault.Owner{Tenant: tenant, Subject: subject}, stored[subject])
	}
	return all
}

// unreadable reports whether err says that content cannot be opened: it was
// damaged, or its keys are gone.
func unreadable(err error) bool { return errors.Is(err, ErrSealed) || errors.Is(err, ErrKeysDestroyed) }
