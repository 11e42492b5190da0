package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/db"
)

// summaryKey numbers the summaries of all conversations in their order.
type summaryKey struct {
	namedKey
	number int
}

const (
	// maxCounted bounds what is counted of the messages without a summary.
	maxCounted = 1_000
	// maxSummaries bounds the summaries of a step.
	maxSummaries = 64
)

// summaryRow is a summary; Content and Billed of the Summary are not used.
type summaryRow struct {
	db.Summary
	content string
	billed  amount
}

func (r summaryRow) summary() db.Summary {
	s := r.Summary
	if r.content != "" {
		s.Content = []byte(r.content)
	}
	s.Billed = r.billed.get()
	return s
}

// contentFits is conversation_summary_content_check.
func (r summaryRow) contentFits() bool {
	switch r.Status {
	case db.SummaryChecked:
		return r.content != "" && r.Failure == ""
	case db.SummaryFailed, db.SummarySkipped:
		return r.content == ""
	default:
		return true
	}
}

// LoadSummary implements activities.Tx.
func (tx *tx) LoadSummary(ctx context.Context, conversation string, maxMessages int) (state db.SummaryState, err error) {
	d, key := tx.data, namedKey{tx.scope.Tenant, conversation}
	err = tx.read(ctx, func() error {
		conv, ok := d.conversations.get(key)
		if !ok || !owns(tx.scope, conv) {
			return missing
		}
		limits, _ := d.limits.get(key.tenant)
		state = db.SummaryState{Conversation: conv, From: d.summarizedUntil(key) + 1, Limits: cloneLimits(limits)}
		state.Messages = d.unsummarized(key, state.From)
		state.Unsummarized, state.Failures = min(len(state.Messages), maxCounted), d.summaryFailures(key, state.From)
		state.Messages = slices.Clip(state.Messages[:min(len(state.Messages), max(maxMessages, 0))])
		return nil
	})
	if err != nil {
		return db.SummaryState{}, fmt.Errorf("load summary: %w", err)
	}
	return state, nil
}

// summarizedUntil is the newest message that a summary covers or skips.
func (d *data) summarizedUntil(key namedKey) (seq int64) {
	for at, s := range d.summaries.rows {
		if at.namedKey == key && s.Status != db.SummaryFailed {
			seq = max(seq, s.ToSeq)
		}
	}
	return seq
}

// unsummarized are the visible messages from a sequence number on.
func (d *data) unsummarized(key namedKey, from int64) (list []db.Message) {
	for at, m := range d.messages.rows {
		if at.tenant == key.tenant && m.Conversation == key.id && m.Visibility == db.Visible && m.Seq >= from {
			m.ParentID = ""
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b db.Message) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

func (d *data) summaryFailures(key namedKey, from int64) (n int) {
	for at, s := range d.summaries.rows {
		if at.namedKey == key && s.Status == db.SummaryFailed && s.FromSeq >= from {
			n++
		}
	}
	return n
}

// checkedSummaries are the newest of messages before a sequence number, oldest
// first. Of those that overlap the first one counts, of those that begin alike the
// longest.
func (d *data) checkedSummaries(key namedKey, before int64) (list []db.Summary) {
	for at, s := range d.summaries.rows {
		if at.namedKey == key && s.Status == db.SummaryChecked && s.ToSeq < before {
			list = append(list, s.summary())
		}
	}
	slices.SortFunc(list, func(a, b db.Summary) int {
		return cmp.Or(cmp.Compare(a.FromSeq, b.FromSeq), cmp.Compare(b.ToSeq, a.ToSeq))
	})
	until := int64(0)
	return slices.DeleteFunc(list[max(0, len(list)-maxSummaries):], func(s db.Summary) bool {
		overlaps := s.FromSeq <= until
		if !overlaps {
			until = s.ToSeq
		}
		return overlaps
	})
}

// StoreSummary implements activities.Tx.
func (tx *tx) StoreSummary(conv db.Conversation, s db.Summary) {
	row := summaryRow{Summary: s, content: string(s.Content), billed: amountOf(s.Billed)}
	row.Content, row.Billed = nil, db.Amount{}
	d, key := tx.data, namedKey{tx.scope.Tenant, conv.ID}
	tx.queue(func() error {
		if err := first(
			check(row.billed.costMicros >= 0, "conversation_summary_billed_cost_micros_check"), check(row.billed.tokens >= 0, "conversation_summary_billed_tokens_check"),
			check(row.contentFits(), "conversation_summary_content_check"), check(row.FromSeq > 0, "conversation_summary_from_seq_check"), check(row.ToSeq >= row.FromSeq, "conversation_summary_range_check"),
			check(row.Status == db.SummaryChecked || row.Status == db.SummaryFailed || row.Status == db.SummarySkipped, "conversation_summary_status_check"),
			texts(row.Failure, row.Model, row.Revision, row.PromptVersion, row.content),
		); err != nil {
			return err
		}
		for at, other := range d.summaries.rows {
			if at.namedKey == key && row.Status != db.SummaryFailed && other.Status != db.SummaryFailed && other.FromSeq == row.FromSeq {
				return conflict("conversation_summary_checked_idx")
			}
		}
		if _, ok := d.conversations.get(key); !ok {
			return absent("conversation_summary_conversation_fkey")
		}
		row.CreatedAt = tx.now
		d.summaries.put(tx, summaryKey{key, len(d.summaries.rows)}, row)
		return nil
	})
}

// Summaries returns the summaries of a conversation in the order in which they
// were stored, failed ones too.
func (s *Store) Summaries(tenant, conversation string) (list []db.Summary) {
	s.inspect(func(d *data) {
		for n := range len(d.summaries.rows) {
			if row, ok := d.summaries.get(summaryKey{namedKey{tenant, conversation}, n}); ok {
				list = append(list, row.summary())
			}
		}
	})
	return list
}
