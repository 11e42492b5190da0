package db

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// ProposeMemory puts a candidate on record: as rejected and without its content,
// or as proposed. Done again with the same content in the same room it returns
// what is on record, with other content ErrOtherRequest, as for an ID that is taken.
// Whoever does not take part in the room's group or project gets ErrNotFound, and a
// user who was erased ErrErased. ErrForgotten is for what was said or observed before
// its user had everything forgotten, or a record of that key.
func (db *DB) ProposeMemory(ctx context.Context, c MemoryCandidate) (MemoryCandidate, error) {
	if c.State != agent.MemoryProposed && c.State != agent.MemoryRejected {
		return MemoryCandidate{}, fmt.Errorf("propose memory: a new candidate is proposed or rejected")
	}
	if scopes := c.Room.Scopes(); c.State == agent.MemoryRejected && len(scopes) > 0 && !slices.Contains(scopes, c.Scope) {
		// It may be rejected just for that.
		c.Scope = scopes[0]
	}
	request, err := json.Marshal(struct {
		Room    agent.MemoryRoom       `json:"room"`
		Content *agent.MemoryCandidate `json:"content"`
	}{c.Room, c.Content})
	if err != nil {
		return MemoryCandidate{}, fmt.Errorf("propose memory: the candidate is no JSON")
	}
	var stored MemoryCandidate
	err = db.InMemory(ctx, c.Room, c.Scope, func(m *MemoryTx) (err error) {
		stored, err = m.propose(ctx, c, request)
		return err
	})
	if err != nil {
		return MemoryCandidate{}, fmt.Errorf("propose memory: %w", err)
	}
	return stored, nil
}

// observedAt is when what a candidate tells was observed, nil if it does not say.
func observedAt(c MemoryCandidate) *time.Time {
	if c.Content == nil {
		return nil
	}
	return c.Content.ObservedAt
}

func (m *MemoryTx) propose(ctx context.Context, c MemoryCandidate, request []byte) (MemoryCandidate, error) {
	tx, room := m.tx, m.room
	hash := tx.KeyedHash(string(request))
	params := dbsqlc.InsertMemoryCandidateParams{
		Tenant: m.tenant(), ID: c.ID, Room: m.roomName(), Subject: m.subject(), UserID: room.Scope.User, Environment: room.Scope.Environment,
		ConversationID: room.Conversation, GroupID: room.Group, ProjectID: room.Project, Agent: room.Agent, RunID: c.RunID, Kind: string(c.Kind),
		Key: c.Key, SourceType: string(c.SourceType), SourceID: c.SourceID, Writer: c.Writer, RequestHash: hash, State: string(c.State),
		Rules: memoryRules(c.Rules), PolicyVersion: c.PolicyVersion, PolicyDigest: c.PolicyDigest,
	}
	if c.State == agent.MemoryProposed {
		if c.Content == nil {
			return MemoryCandidate{}, fmt.Errorf("a proposed candidate has content")
		}
		content, err := json.Marshal(c.Content)
		if err != nil {
			return MemoryCandidate{}, fmt.Errorf("the candidate is no JSON")
		}
		params.Content = tx.sealAny(candidateContent, content, c.ID)
	}
	if tx.err != nil {
		return MemoryCandidate{}, tx.err
	}
	var row *dbsqlc.MemoryCandidate
	err := tx.read(ctx,
		exec(tx.q.RefuseForgotten, dbsqlc.RefuseForgottenParams{
			Tenant: m.tenant(), UserID: room.Scope.User, RunID: c.RunID, ID: c.ID, Room: m.roomName(), Key: c.Key, ObservedAt: observedAt(c),
		}),
		exec(tx.q.InsertMemoryTenant, m.tenant()),
		exec(tx.q.InsertMemoryCandidate, params),
		maybe(tx.q.GetMemoryCandidate, dbsqlc.GetMemoryCandidateParams{
			Tenant: m.tenant(), ID: c.ID, UserID: room.Scope.User, Rooms: []string{m.roomName()},
		}, &row),
	)
	if err != nil {
		return MemoryCandidate{}, err
	}
	if row == nil || row.RequestHash != hash {
		return MemoryCandidate{}, ErrOtherRequest
	}
	return toMemoryCandidate(tx.ring, *row)
}

// MemoryCandidate reads a candidate of the room's user that is to be seen in the
// room: ErrNotFound.
func (db *DB) MemoryCandidate(ctx context.Context, room agent.MemoryRoom, id string) (MemoryCandidate, error) {
	var row dbsqlc.MemoryCandidate
	err := db.readRoom(ctx, room, one(db.q.GetMemoryCandidate, dbsqlc.GetMemoryCandidateParams{
		Tenant: room.Scope.Tenant, ID: id, UserID: room.Scope.User, Rooms: rooms(room),
	}, &row))
	if err != nil {
		return MemoryCandidate{}, fmt.Errorf("load candidate: %w", err)
	}
	all, err := db.ringsOf(ctx, room.Scope.Tenant, row.Subject)
	if err != nil {
		return MemoryCandidate{}, fmt.Errorf("load candidate: %w", err)
	}
	c, err := toMemoryCandidate(all[row.Subject], row)
	if err != nil {
		return MemoryCandidate{}, fmt.Errorf("load candidate: %w", err)
	}
	return c, nil
}
