package db

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// SummaryStatus says whether a summary may be used.
type SummaryStatus string

// The closed set of summary statuses. Only a checked one is ever used.
const (
	SummaryChecked SummaryStatus = "checked"
	SummaryFailed  SummaryStatus = "failed"
	// SummarySkipped: the message is too long or too dense to be summarized, and
	// summaries go on after it.
	SummarySkipped SummaryStatus = "skipped"
)

// Summary is a lossy derivative of a range of messages (CONV-2).
type Summary struct {
	FromSeq, ToSeq int64
	Status         SummaryStatus
	// Failure is a short stable code, empty for a checked summary.
	Failure string
	Model   string
	// Revision is the exact model that answered.
	Revision      string
	PromptVersion string
	// Content is the summary as JSON, empty unless it is checked.
	Content []byte
	// Billed is what it cost; it counts for the day, and for no run.
	Billed    Amount
	CreatedAt time.Time
}

// SummaryState is what the next summary of a conversation is decided on.
type SummaryState struct {
	Conversation Conversation
	// From is the first message that no summary covers or skips.
	From int64
	// Messages are the visible ones from From on, oldest first, at most the
	// number that was asked for. Unsummarized counts all of them, at most 1000.
	Messages     []Message
	Unsummarized int
	// Failures counts the summaries from From on that failed.
	Failures int
	Limits   Limits
}

// LoadSummary reads what the next summary is decided on, in one round trip, and
// keeps the conversation as it is before the transaction ends: ErrNotFound if the
// scope has no such conversation.
func (tx *Tx) LoadSummary(ctx context.Context, conversation string, maxMessages int) (SummaryState, error) {
	var (
		tenant   = tx.scope.Tenant
		conv     dbsqlc.ShareConversationRow
		progress dbsqlc.SummaryProgressRow
		messages []dbsqlc.UnsummarizedMessagesRow
		limits   []dbsqlc.GetTenantLimitRow
	)
	tx.touch()
	err := tx.read(ctx,
		one(tx.q.ShareConversation, dbsqlc.ShareConversationParams{Tenant: tenant, ID: conversation, UserID: tx.scope.User, Environment: tx.scope.Environment}, &conv),
		one(tx.q.SummaryProgress, dbsqlc.SummaryProgressParams{Tenant: tenant, ConversationID: conversation}, &progress),
		one(tx.q.UnsummarizedMessages, dbsqlc.UnsummarizedMessagesParams{
			Tenant: tenant, ConversationID: conversation, UserID: tx.scope.User, Environment: tx.scope.Environment, MaxMessages: int32(max(maxMessages, 0)),
		}, &messages),
		one(tx.q.GetTenantLimit, tenant, &limits),
	)
	if err != nil {
		return SummaryState{}, fmt.Errorf("load summary: %w", err)
	}
	state := SummaryState{
		Conversation: Conversation{
			ID: conversation, User: conv.UserID, Environment: conv.Environment,
			Version: conv.Version, Generation: conv.Generation, LastSeq: conv.LastSeq, Branch: int(conv.Branch),
		},
		From: progress.Covered + 1, Unsummarized: int(progress.Unsummarized), Failures: int(progress.Failures), Limits: toLimits(limits),
	}
	for _, row := range messages {
		content, err := tx.ring.openText(messageContent, row.Content, row.ID, conversation, row.Role)
		if err != nil {
			return SummaryState{}, fmt.Errorf("load summary: %w", err)
		}
		state.Messages = append(state.Messages, Message{
			ID: row.ID, Conversation: conversation, Seq: row.Seq, Role: MessageRole(row.Role), Content: content, Visibility: Visible,
			RunID: row.RunID, CreatedAt: row.CreatedAt,
		})
	}
	return state, nil
}

// StoreSummary queues a summary of the conversation as it was read. If it is
// checked and its first message has one already, the transaction fails with
// ErrConflict.
func (tx *Tx) StoreSummary(conv Conversation, s Summary) {
	if !tx.owns(conv) {
		return
	}
	tx.write(exec(tx.q.InsertSummary, dbsqlc.InsertSummaryParams{
		Tenant: tx.scope.Tenant, ConversationID: conv.ID, Branch: int32(conv.Branch), FromSeq: s.FromSeq, ToSeq: s.ToSeq,
		Status: string(s.Status), Failure: s.Failure, Model: s.Model, Revision: s.Revision, PromptVersion: s.PromptVersion,
		Content:      tx.sealText(summaryContent, string(s.Content), conv.ID, number(s.FromSeq), number(s.ToSeq)),
		BilledTokens: s.Billed.Tokens, BilledCostMicros: s.Billed.CostMicros,
	}))
}

func toSummary(r ring, conversation string, row dbsqlc.SummariesBeforeRunRow) (Summary, error) {
	content, err := r.open(summaryContent, row.Content, conversation, number(row.FromSeq), number(row.ToSeq))
	if err != nil {
		return Summary{}, err
	}
	return Summary{
		FromSeq: row.FromSeq, ToSeq: row.ToSeq, Status: SummaryChecked, Model: row.Model, Revision: row.Revision, PromptVersion: row.PromptVersion,
		Content: content, Billed: Amount{Tokens: row.BilledTokens, CostMicros: row.BilledCostMicros}, CreatedAt: row.CreatedAt,
	}, nil
}
