package db

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// Conversation groups runs of one user in one environment.
type Conversation struct {
	ID, User, Environment string
	// Version counts the submits that were accepted: 0 before the first.
	Version int64
	// Generation is that of the newest run; 0 before the first.
	Generation int64
	// LastSeq is the sequence number of the newest message.
	LastSeq int64
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
}

// ContentHash is the SHA-256 of content in hex.
func ContentHash[T string | []byte](content T) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// AppendMessage queues m as the next message of a conversation whose row the
// transaction holds, and brings conv up to date. A submit also raises version
// and generation. Content must be valid UTF-8 without NUL.
func (tx *Tx) AppendMessage(conv *Conversation, m Message, submit bool) {
	conv.LastSeq++
	submits := int64(0)
	if submit {
		submits = 1
	}
	conv.Version += submits
	conv.Generation += submits
	tx.write(exec(tx.q.AdvanceConversation, dbsqlc.AdvanceConversationParams{Tenant: tx.scope.Tenant, ID: conv.ID, Submits: submits}))
	tx.write(exec(tx.q.InsertMessage, dbsqlc.InsertMessageParams{
		Tenant: tx.scope.Tenant, ID: m.ID, ConversationID: conv.ID, Seq: conv.LastSeq,
		Role: string(m.Role), Content: m.Content, ContentHash: ContentHash(m.Content), Visibility: string(m.Visibility),
		RunID: m.RunID, ParentID: optional(m.ParentID),
	}))
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
