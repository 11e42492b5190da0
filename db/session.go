package db

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/vault"
)

// EntryKind is what an entry of a session is.
type EntryKind string

// The closed set of entry kinds.
const (
	// EntryFact: a value is settled under a key.
	EntryFact EntryKind = "fact"
	// EntryProhibition: the user forbade something until it is lifted.
	EntryProhibition EntryKind = "prohibition"
	// EntryLift: the user took a prohibition back.
	EntryLift EntryKind = "lift"
)

// SessionEntry is one thing that was settled in a conversation. Entries are
// never changed: what holds is computed from all of them (CONV-3).
type SessionEntry struct {
	// Version orders the entries of a conversation; it is set by the store.
	Version int64
	Kind    EntryKind
	// Key is a fact's key, or the ID of a prohibition: that of its own, or that
	// which a lift takes back.
	Key string
	// Value is content: a fact's value, or a prohibition in the user's words.
	Value string
	// Tools are those that a prohibition covers; none covers no tool and is
	// shown all the same. Ask says that it demands the user's confirmation and
	// does not forbid.
	Tools []string
	Ask   bool
	// MessageID is the user's message that it comes from; RunID, CallID, Tool
	// and ToolVersion are the call that a fact comes from.
	MessageID   string
	RunID       string
	CallID      string
	Tool        string
	ToolVersion string
	// Seq is the newest message of the conversation when it was settled.
	Seq int64
	At  time.Time
}

// SessionState is what holds in a conversation.
type SessionState struct {
	// Facts has the newest entry of each key, ordered by key: at most
	// agent.MaxFacts, the newest ones.
	Facts []SessionEntry
	// Prohibitions are those that were not lifted, oldest first: at most
	// MaxProhibitions, the newest ones. A rollback does not lift them, and undoes
	// a lift that came after the snapshot.
	Prohibitions []SessionEntry
}

// MaxProhibitions bounds the prohibitions that hold in a conversation.
const MaxProhibitions = 256

// AppendSession queues new entries of a conversation that the transaction
// holds; they belong to the run runID. Done again with the same run, call,
// kind and key it changes nothing. ErrNotFound if it is not the scope's.
func (tx *Tx) AppendSession(conv Conversation, runID string, entries []SessionEntry) {
	if !tx.owns(conv) {
		return
	}
	for _, e := range entries {
		tools := e.Tools
		if tools == nil {
			tools = []string{}
		}
		tx.write(exec(tx.q.InsertSessionEntry, dbsqlc.InsertSessionEntryParams{
			Tenant: tx.scope.Tenant, ConversationID: conv.ID, Kind: string(e.Kind), Key: e.Key,
			Value: tx.sealText(entryValue, e.Value, runID, e.CallID, string(e.Kind), e.Key), Tools: tools, Ask: e.Ask,
			MessageID: e.MessageID, RunID: runID, CallID: e.CallID, Tool: e.Tool, ToolVersion: e.ToolVersion,
			Branch: int32(conv.Branch), Seq: conv.LastSeq,
		}))
	}
}

// Session reads what holds in a conversation: ErrNotFound if the scope has no
// such conversation.
func (db *DB) Session(ctx context.Context, scope agent.Scope, conversation string) (SessionState, error) {
	var (
		held dbsqlc.GetConversationRow
		rows sessionRows
		keys *dbsqlc.SubjectKey
	)
	err := db.inScope(ctx, scope,
		one(db.q.GetConversation, dbsqlc.GetConversationParams{Tenant: scope.Tenant, ID: conversation, UserID: scope.User, Environment: scope.Environment}, &held),
		rows.facts(db.q, scope, conversation, ""), rows.prohibitions(db.q, scope, conversation, ""),
		maybe(db.q.GetSubjectKey, dbsqlc.GetSubjectKeyParams{Tenant: scope.Tenant, Subject: scope.User}, &keys),
	)
	if err != nil {
		return SessionState{}, fmt.Errorf("load session: %w", err)
	}
	state, err := rows.state(db.keys.ring(vault.Owner{Tenant: scope.Tenant, Subject: scope.User}, toStoredKeys(keys)))
	if err != nil {
		return SessionState{}, fmt.Errorf("load session: %w", err)
	}
	return state, nil
}

// sessionRows are the rows of what holds in a conversation: the named one, or a
// run's. There are none if it is not the scope's.
type sessionRows struct {
	settled   []dbsqlc.SessionFactsRow
	forbidden []dbsqlc.SessionProhibitionsRow
}

func (s *sessionRows) facts(q *dbsqlc.Queries, scope agent.Scope, conversation, runID string) statement {
	return one(q.SessionFacts, dbsqlc.SessionFactsParams{
		Tenant: scope.Tenant, ConversationID: conversation, RunID: runID, MaxFacts: agent.MaxFacts, UserID: scope.User, Environment: scope.Environment,
	}, &s.settled)
}

func (s *sessionRows) prohibitions(q *dbsqlc.Queries, scope agent.Scope, conversation, runID string) statement {
	return one(q.SessionProhibitions, dbsqlc.SessionProhibitionsParams{
		Tenant: scope.Tenant, ConversationID: conversation, RunID: runID, UserID: scope.User, Environment: scope.Environment,
		MaxProhibitions: MaxProhibitions,
	}, &s.forbidden)
}

func (s *sessionRows) state(r ring) (state SessionState, err error) {
	for _, row := range s.settled {
		e, err := toSessionEntry(r, row)
		if err != nil {
			return SessionState{}, err
		}
		state.Facts = append(state.Facts, e)
	}
	slices.SortFunc(state.Facts, func(a, b SessionEntry) int { return cmp.Compare(a.Key, b.Key) })
	for _, row := range slices.Backward(s.forbidden) {
		e, err := toSessionEntry(r, dbsqlc.SessionFactsRow(row))
		if err != nil {
			return SessionState{}, err
		}
		state.Prohibitions = append(state.Prohibitions, e)
	}
	return state, nil
}

func toSessionEntry(r ring, row dbsqlc.SessionFactsRow) (SessionEntry, error) {
	value, err := r.openText(entryValue, row.Value, row.RunID, row.CallID, row.Kind, row.Key)
	if err != nil {
		return SessionEntry{}, err
	}
	tools := row.Tools
	if len(tools) == 0 {
		tools = nil
	}
	return SessionEntry{
		Version: row.Version, Kind: EntryKind(row.Kind), Key: row.Key, Value: value, Tools: tools, Ask: row.Ask, MessageID: row.MessageID,
		RunID: row.RunID, CallID: row.CallID, Tool: row.Tool, ToolVersion: row.ToolVersion, Seq: row.Seq, At: row.CreatedAt,
	}, nil
}
