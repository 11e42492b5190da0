package memstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/memstore"
)

func checked(from, to int64) db.Summary {
	return db.Summary{
		FromSeq: from, ToSeq: to, Status: db.SummaryChecked, Model: "m", Revision: "rev", PromptVersion: "1",
		Content: fmt.Appendf(nil, `{"points":["%d to %d"]}`, from, to), Billed: db.Amount{Tokens: 30, CostMicros: ptr(int64(7))},
	}
}

func failedSummary(from, to int64) db.Summary {
	s := checked(from, to)
	s.Status, s.Failure, s.Content, s.Billed.CostMicros = db.SummaryFailed, "invented_number", nil, nil
	return s
}

func skippedSummary(from, to int64) db.Summary {
	s := failedSummary(from, to)
	s.Status, s.Failure = db.SummarySkipped, "too_dense"
	return s
}

// loadSummary is LoadSummary of ada's conversation.
func (s *subject) loadSummary(conversation string, most int) (state db.SummaryState) {
	s.Helper()
	s.do(ada, func(tx activities.Tx) (err error) {
		state, err = tx.LoadSummary(ctx, conversation, most)
		return err
	})
	return state
}

// summarize stores summaries of ada's conversation.
func (s *subject) summarize(conversation string, list ...db.Summary) {
	s.Helper()
	s.do(ada, func(tx activities.Tx) error {
		state, err := tx.LoadSummary(ctx, conversation, 1)
		for _, summary := range list {
			tx.StoreSummary(state.Conversation, summary)
		}
		return err
	})
}

// talk is a conversation of three runs: the questions are messages 1, 3 and 5,
// the answers of the first two 2 and 4. The last run goes on.
func (s *subject) talk() (runs []db.Run) {
	s.Helper()
	for _, id := range []string{"r1", "r2", "r3"} {
		r := s.begin(ada, "talk", id)
		if runs = append(runs, r); id != "r3" {
			s.answer(r)
		}
	}
	return runs
}

// ranges are summaries by the messages that they cover.
func ranges(list []db.Summary) string {
	var text []string
	for _, s := range list {
		text = append(text, fmt.Sprintf("%d-%d", s.FromSeq, s.ToSeq))
	}
	return strings.Join(text, " ")
}

func seqs(list []db.Message) (all []int64) {
	for _, m := range list {
		all = append(all, m.Seq)
	}
	return all
}

var summaryCases = map[string]func(*subject){
	"summary": func(s *subject) {
		s.limits("acme", db.Limits{DailyTokens: ptr(int64(900))})
		s.talk()
		state := s.loadSummary("talk", 9)
		c := state.Conversation
		s.want("conversation", []any{c.ID, c.User, c.Environment, c.Version, c.Generation, c.LastSeq, c.Branch}, "[talk ada production 3 3 5 0]")
		s.want("state", []any{state.From, seqs(state.Messages), state.Unsummarized, state.Failures, *state.Limits.DailyTokens}, "[1 [1 2 3 4 5] 5 0 900]")
		m := state.Messages[1]
		s.want("message", []any{m.ID, m.Conversation, m.Seq, m.Role, m.Content, m.Visibility, m.RunID, m.CreatedAt.IsZero()}, "[answer-r1 talk 2 assistant It is fine. visible r1 false]")
		s.summarize("talk", checked(1, 2))
		state = s.loadSummary("talk", 2)
		s.want("the rest", []any{state.From, seqs(state.Messages), state.Unsummarized, state.Failures}, "[3 [3 4] 3 0]")
		s.want("none asked for", []any{len(s.loadSummary("talk", 0).Messages), s.loadSummary("talk", 0).Unsummarized}, "[0 3]")
		got := s.loadStep(db.StepQuery{RunID: "r3"}).Summaries[0]
		s.want("as stored", []any{got.FromSeq, got.ToSeq, got.Status, got.Failure, got.Model, got.Revision, got.PromptVersion, string(got.Content), got.Billed.Tokens, *got.Billed.CostMicros, got.CreatedAt.IsZero()},
			`[1 2 checked  m rev 1 {"points":["1 to 2"]} 30 7 false]`)
	},
	"summary of a fresh conversation": func(s *subject) {
		s.do(ada, func(tx activities.Tx) error {
			_, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "talk", RunID: "none", Day: today})
			return err
		})
		state := s.loadSummary("talk", 9)
		s.want("state", []any{state.From, len(state.Messages), state.Unsummarized, state.Failures, state.Limits.DailyTokens == nil}, "[1 0 0 0 true]")
	},
	"summary conflict": func(s *subject) {
		s.talk()
		s.begin(ada, "other", "r4")
		conv := s.loadSummary("talk", 1).Conversation
		s.summarize("talk", checked(1, 2))
		s.fails(ada, db.ErrConflict, constraintSummary, func(tx activities.Tx) { tx.StoreSummary(conv, checked(1, 2)) })
		s.fails(ada, db.ErrConflict, constraintSummary, func(tx activities.Tx) {
			tx.StoreSummary(conv, failedSummary(3, 4))
			tx.StoreSummary(conv, checked(1, 4))
		})
		s.want("the first stays", []any{s.loadSummary("talk", 9).From, s.loadSummary("talk", 9).Failures}, "[3 0]")
		s.summarize("talk", checked(3, 4))
		s.summarize("other", checked(1, 1))
		s.want("of another conversation", s.loadSummary("other", 9).From, 2)
	},
	"summary failed": func(s *subject) {
		runs := s.talk()
		s.summarize("talk", failedSummary(1, 2))
		s.summarize("talk", failedSummary(1, 2), failedSummary(1, 4))
		state := s.loadSummary("talk", 9)
		s.want("changes nothing", []any{state.From, seqs(state.Messages), state.Unsummarized, state.Failures}, "[1 [1 2 3 4 5] 5 3]")
		s.want("is not used", len(s.loadStep(db.StepQuery{RunID: "r3"}).Summaries), 0)
		end := s.closeRun(runs[2], "none", 1)
		s.want("at an end", []int{end.Unsummarized, end.SummaryFailures}, "[5 3]")
		s.summarize("talk", checked(1, 2))
		s.want("over and done", s.loadSummary("talk", 9).Failures, 0)
		s.summarize("talk", failedSummary(1, 2), failedSummary(3, 4))
		state = s.loadSummary("talk", 9)
		s.want("those from here on", []any{state.From, state.Unsummarized, state.Failures}, "[3 3 1]")
		end = s.closeRun(runs[2], "none", 1)
		s.want("at an end", []int{end.Unsummarized, end.SummaryFailures}, "[3 1]")
	},
	"summary skipped": func(s *subject) {
		runs := s.talk()
		conv := s.loadSummary("talk", 1).Conversation
		s.summarize("talk", failedSummary(1, 2), skippedSummary(1, 2))
		state := s.loadSummary("talk", 9)
		s.want("goes on after it", []any{state.From, seqs(state.Messages), state.Unsummarized, state.Failures}, "[3 [3 4 5] 3 0]")
		end := s.closeRun(runs[2], "none", 1)
		s.want("at an end", []int{end.Unsummarized, end.SummaryFailures}, "[3 0]")
		for _, again := range []db.Summary{skippedSummary(1, 1), checked(1, 2)} {
			s.fails(ada, db.ErrConflict, constraintSummary, func(tx activities.Tx) { tx.StoreSummary(conv, again) })
		}
		s.summarize("talk", checked(3, 4))
		s.want("is not shown", ranges(s.loadStep(db.StepQuery{RunID: "r3"}).Summaries), "3-4")
	},
	"summaries that overlap": func(s *subject) {
		s.talk()
		s.summarize("talk", checked(2, 3), checked(1, 2), checked(3, 4))
		s.want("the first counts", ranges(s.loadStep(db.StepQuery{RunID: "r3"}).Summaries), "1-2 3-4")
	},
	"many summaries": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.do(ada, func(tx activities.Tx) error {
			conv, _, err := tx.HoldConversation(ctx, r)
			for i := range 1001 {
				tx.AppendMessage(&conv, db.Message{ID: fmt.Sprint("m", i), Role: db.RoleAssistant, Content: "x", Visibility: db.Visible, RunID: "r1"}, false)
			}
			return err
		})
		s.want("counted", []any{s.loadSummary("talk", 3).Unsummarized, len(s.loadSummary("talk", 1001).Messages)}, "[1000 1001]")
		s.want("at an end", s.closeRun(r, "none", 1).Unsummarized, 1000)
		var list []db.Summary
		for i := range int64(66) {
			list = append(list, checked(2*i+1, 2*i+2))
		}
		s.summarize("talk", list...)
		s.begin(ada, "talk", "r2")
		shown := s.loadStep(db.StepQuery{RunID: "r2"}).Summaries
		s.want("the newest 64", []any{len(shown), shown[0].FromSeq, shown[63].FromSeq}, "[64 5 131]")
	},
	"summaries of a step": func(s *subject) {
		s.talk()
		s.summarize("talk", checked(1, 2))
		s.summarize("talk", failedSummary(3, 4))
		s.summarize("talk", checked(3, 4))
		for run, want := range map[string]string{"r1": "", "r2": "1-2", "r3": "1-2 3-4"} {
			state := s.loadStep(db.StepQuery{RunID: run, MaxMessages: 9})
			s.want("summaries of "+run, ranges(state.Summaries), want)
		}
		// The messages themselves are there all the same.
		s.want("history", seqs(s.loadStep(db.StepQuery{RunID: "r3", MaxMessages: 9}).History), "[1 2 3 4]")
		s.summarize("talk", checked(5, 5))
		s.want("one of the question itself", ranges(s.loadStep(db.StepQuery{RunID: "r3"}).Summaries), "1-2 3-4")
	},
	"unsummarized": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		say := func(id string, v db.Visibility) {
			s.do(ada, func(tx activities.Tx) error {
				conv, _, err := tx.HoldConversation(ctx, r)
				tx.AppendMessage(&conv, db.Message{ID: id, Role: db.RoleAssistant, Content: id, Visibility: v, RunID: "r1"}, false)
				return err
			})
		}
		say("m2", db.Hidden)
		say("m3", db.Partial)
		say("m4", db.Visible)
		state := s.loadSummary("talk", 9)
		s.want("visible ones", []any{seqs(state.Messages), state.Unsummarized, state.Conversation.LastSeq}, "[[1 4] 2 4]")
		end := s.closeRun(r, "none", 1)
		s.want("at an end", []int{end.Unsummarized, end.SummaryFailures}, "[2 0]")
		s.summarize("talk", checked(1, 3))
		s.answer(r)
		s.want("the rest", seqs(s.loadSummary("talk", 9).Messages), "[4 5]")
		s.want("at an end", s.closeRun(r, "answer-r1", 1).Unsummarized, 2)
	},
	"summaries apart": func(s *subject) {
		umbrella := agent.Scope{Tenant: "umbrella", User: "ada", Environment: "production"}
		s.begin(ada, "talk", "r1")
		s.begin(umbrella, "talk", "r1")
		s.summarize("talk", checked(1, 1))
		load := func(scope agent.Scope, conversation string) (state db.SummaryState, err error) {
			err = s.InTx(ctx, scope, func(tx activities.Tx) (err error) {
				state, err = tx.LoadSummary(ctx, conversation, 9)
				return err
			})
			return state, err
		}
		state, err := load(umbrella, "talk")
		s.want("of the other tenant", []any{err, state.From, state.Unsummarized}, "[<nil> 1 1]")
		for _, scope := range []agent.Scope{bob, {Tenant: "acme", User: "ada", Environment: "test"}} {
			_, err := load(scope, "talk")
			s.failed(err, db.ErrNotFound, "")
		}
		_, err = load(ada, "nowhere")
		s.failed(err, db.ErrNotFound, "")
	},
	"summary checks": func(s *subject) {
		s.begin(ada, "talk", "r1")
		conv := s.loadSummary("talk", 1).Conversation
		for _, c := range summarySpoilers {
			summary := checked(1, 1)
			c.spoil(&summary)
			s.fails(ada, nil, c.constraint, func(tx activities.Tx) { tx.StoreSummary(conv, summary) })
		}
		conv.ID = "nowhere"
		s.fails(ada, nil, "conversation_summary_conversation_fkey", func(tx activities.Tx) { tx.StoreSummary(conv, checked(1, 1)) })
		s.want("nothing stays", s.loadSummary("talk", 1).From, 1)
	},
	"message times": func(s *subject) {
		s.talk()
		state := s.loadStep(db.StepQuery{RunID: "r3", MaxMessages: 9})
		messages := append(state.History, state.Question)
		for i, m := range s.loadSummary("talk", 9).Messages {
			s.want("the same by both ways", []any{m.ID, m.CreatedAt.UnixMicro()}, fmt.Sprint([]any{messages[i].ID, messages[i].CreatedAt.UnixMicro()}))
			s.want("stamped", m.CreatedAt.IsZero() || i > 0 && m.CreatedAt.Before(messages[i-1].CreatedAt), false)
		}
	},
}

// summarySpoilers violate one constraint each.
var summarySpoilers = []struct {
	constraint string
	spoil      func(*db.Summary)
}{
	{"conversation_summary_billed_cost_micros_check", func(s *db.Summary) { s.Billed.CostMicros = ptr(int64(-1)) }},
	{"conversation_summary_billed_tokens_check", func(s *db.Summary) { s.Billed.Tokens = -1 }},
	{"conversation_summary_content_check", func(s *db.Summary) { s.Failure = "invented_number" }},
	{"conversation_summary_content_check", func(s *db.Summary) { s.Content = nil }},
	{"conversation_summary_content_check", func(s *db.Summary) { s.Status, s.Failure = db.SummaryFailed, "invented_number" }},
	{"conversation_summary_content_check", func(s *db.Summary) { s.Status = db.SummarySkipped }},
	{"conversation_summary_from_seq_check", func(s *db.Summary) { s.FromSeq = 0 }},
	{"conversation_summary_range_check", func(s *db.Summary) { s.FromSeq = 2 }},
	{"conversation_summary_status_check", func(s *db.Summary) { s.Status = "good" }},
}

const constraintSummary = "conversation_summary_checked_idx"

// TestConversationInspection is for tests that look on: what they are given is
// theirs.
func TestConversationInspection(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	sub := &subject{TB: t, Store: s, show: s.ShowRun, session: s.Session}
	r := sub.begin(ada, "talk", "r1")
	sub.summarize("talk", failedSummary(1, 1), checked(1, 1))
	list := s.Summaries("acme", "talk")
	sub.want("summaries", []any{len(list), list[0].Failure, list[1].Status, len(s.Summaries("umbrella", "talk")), len(s.Summaries("acme", "other"))}, "[2 invented_number checked 0 0]")
	list[1].Content[0], *list[1].Billed.CostMicros = 'X', 99
	got := s.Summaries("acme", "talk")[1]
	sub.want("as stored", []any{string(got.Content), *got.Billed.CostMicros}, `[{"points":["1 to 1"]} 7]`)
	sub.settled(r, forbid("p", "no restart", "restart"))
	sub.holds("talk").Prohibitions[0].Tools[0] = "look"
	sub.want("as stored", summary(sub.holds("talk")), "p:no restart[restart]")
}
