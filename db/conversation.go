package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/vault"
)

// Conversation groups runs of one user in one environment.
type Conversation struct {
	ID, User, Environment string
	// Group and Project are whose chat it is and what it belongs to, for good;
	// empty means none.
	Group, Project string
	// Version counts the submits that were accepted: 0 before the first.
	Version int64
	// Generation is that of the newest run; 0 before the first.
	Generation int64
	// LastSeq is the sequence number of the newest message.
	LastSeq int64
	// Branch is the line of messages that the conversation is on: 0 until the
	// first rollback.
	Branch int
}

// MessageRole is who wrote a message.
type MessageRole string

// The closed set of message roles.
const (
	RoleUser      MessageRole = "user"
	RoleAssistant MessageRole = "assistant"
)

// Visibility says whether a message is part of what people and models see.
type Visibility string

// The closed set of visibilities.
const (
	Visible Visibility = "visible"
	Partial Visibility = "partial"
	Hidden  Visibility = "hidden"
)

// Message is one message of a conversation.
type Message struct {
	ID           string
	Conversation string
	// Seq orders the messages of a conversation, from 1 without gaps.
	Seq        int64
	Role       MessageRole
	Content    string
	Visibility Visibility
	RunID      string
	// ParentID is the message that this one answers, if any.
	ParentID string
	// CreatedAt is set by the store.
	CreatedAt time.Time
}

// ContentHash is the SHA-256 of content in hex.
func ContentHash[T string | []byte](content T) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// AppendMessage queues m as the next message of a conversation whose row the
// transaction holds, and brings conv up to date. A submit also raises version
// and generation. Content must be valid UTF-8 without NUL, and the conversation
// the scope's: ErrNotFound.
func (tx *Tx) AppendMessage(conv *Conversation, m Message, submit bool) {
	if !tx.owns(*conv) {
		return
	}
	conv.LastSeq++
	submits := int64(0)
	if submit {
		submits = 1
	}
	conv.Version += submits
	conv.Generation += submits
	tx.write(exec(tx.q.AdvanceConversation, dbsqlc.AdvanceConversationParams{Tenant: tx.scope.Tenant, ID: conv.ID, Submits: submits}))
	tx.write(exec(tx.q.InsertMessage, dbsqlc.InsertMessageParams{
		Tenant: tx.scope.Tenant, ID: m.ID, ConversationID: conv.ID, Seq: conv.LastSeq, Branch: int32(conv.Branch), Role: string(m.Role),
		Content: tx.sealAnyText(messageContent, m.Content, m.ID, conv.ID, string(m.Role)), ContentHash: tx.KeyedHash(m.Content), Visibility: string(m.Visibility),
		RunID: m.RunID, ParentID: optional(m.ParentID),
	}))
}

// Append queues m as the next message of a conversation that the transaction
// need not hold, for programs that add one outside of a run, such as a person
// who answers in the agent's place; it is the scope's. After the commit, or the next read, seq is
// its number: ErrNotFound if there is no such conversation.
func (tx *Tx) Append(conversation string, m Message, seq *int64) {
	tx.write(exec(tx.q.AdvanceConversation, dbsqlc.AdvanceConversationParams{Tenant: tx.scope.Tenant, ID: conversation}))
	tx.write(one(tx.q.InsertNextMessage, dbsqlc.InsertNextMessageParams{
		Tenant: tx.scope.Tenant, ID: m.ID, ConversationID: conversation, Role: string(m.Role),
		Content: tx.sealAnyText(messageContent, m.Content, m.ID, conversation, string(m.Role)), ContentHash: tx.KeyedHash(m.Content), Visibility: string(m.Visibility),
		RunID: m.RunID, ParentID: optional(m.ParentID), UserID: tx.scope.User, Environment: tx.scope.Environment,
	}, seq))
}

// KeyedHash is a hash of text under the keys of the scope's user, in hex: the
// same for the same text for as long as there are keys. A plain hash would let
// those who guess confirm a short message for ever. It is empty after an error,
// which is the transaction's.
func (tx *Tx) KeyedHash(text string) string {
	if !tx.touch() {
		return ""
	}
	sum, err := tx.ring.hash(text)
	if err != nil {
		tx.err = err
	}
	return sum
}

// Messages returns the newest visible messages of a conversation, at most limit,
// oldest first: ErrNotFound if the scope has no such conversation.
func (db *DB) Messages(ctx context.Context, scope agent.Scope, conversation string, limit int) ([]Message, error) {
	var (
		held dbsqlc.GetConversationRow
		rows []dbsqlc.NewestMessagesRow
		keys *dbsqlc.SubjectKey
		t    = scope.Tenant
	)
	err := db.inScope(ctx, scope,
		one(db.q.GetConversation, dbsqlc.GetConversationParams{Tenant: t, ID: conversation, UserID: scope.User, Environment: scope.Environment}, &held),
		one(db.q.NewestMessages, dbsqlc.NewestMessagesParams{Tenant: t, ConversationID: conversation, MaxMessages: int32(max(limit, 0))}, &rows),
		// Keys come last: no value above is sealed under newer ones.
		maybe(db.q.GetSubjectKey, dbsqlc.GetSubjectKeyParams{Tenant: t, Subject: scope.User}, &keys),
	)
	if err != nil {
		return nil, fmt.Errorf("load messages: %w", err)
	}
	r := db.keys.ring(vault.Owner{Tenant: t, Subject: scope.User}, toStoredKeys(keys))
	list := make([]Message, len(rows))
	for i, row := range rows {
		content, err := r.openText(messageContent, row.Content, row.ID, conversation, row.Role)
		if err != nil {
			return nil, fmt.Errorf("load messages: %w", err)
		}
		list[len(rows)-1-i] = Message{
			ID: row.ID, Conversation: conversation, Seq: row.Seq, Role: MessageRole(row.Role), Content: content, Visibility: Visible,
			RunID: row.RunID, ParentID: present(row.ParentID), CreatedAt: row.CreatedAt,
		}
	}
	return list, nil
}

// maxResealed bounds the messages that one transaction seals anew.
const maxResealed = 16

// openMessages opens messages that the transaction read, and queues those to be
// sealed anew that are sealed under an older key.
func (tx *Tx) openMessages(conversation string, rows []dbsqlc.MessagesBeforeRunRow) ([]Message, error) {
	list := make([]Message, len(rows))
	resealed := 0
	for i, row := range rows {
		content, err := tx.ring.open(messageContent, row.Content, row.ID, conversation, row.Role)
		if err != nil {
			return nil, err
		}
		if len(row.Content) > 0 && resealed < maxResealed && tx.ring.keys.Stale(row.Content) {
			resealed++
			tx.write(exec(tx.q.ResealMessage, dbsqlc.ResealMessageParams{
				Tenant: tx.scope.Tenant, ID: row.ID, Content: tx.sealAny(messageContent, content, row.ID, conversation, row.Role),
			}))
		}
		list[i] = Message{
			ID: row.ID, Conversation: conversation, Seq: row.Seq, Role: MessageRole(row.Role),
			Content: string(content), Visibility: Visible, RunID: row.RunID, CreatedAt: row.CreatedAt,
		}
	}
	return list, nil
}

// optional is nil for the zero value.
func optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// present is the zero value for nil.
func present[T any](p *T) (zero T) {
	if p == nil {
		return zero
	}
	return *p
}
