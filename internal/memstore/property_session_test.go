package memstore_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

var (
	entryKinds = []db.EntryKind{db.EntryFact, db.EntryFact, db.EntryProhibition, db.EntryProhibition, db.EntryLift, "guess"}
	entryKeys  = []string{"a", "a.b", "a_b", "ab", "p"}
)

// drawEntry draws an entry of a session, mostly a good one.
func drawEntry(t *rapid.T) db.SessionEntry {
	e := db.SessionEntry{
		Kind: rapid.SampledFrom(entryKinds).Draw(t, "kind"), Key: rapid.SampledFrom(entryKeys).Draw(t, "key"),
		Value: rapid.SampledFrom([]string{"", "1", "2", "不"}).Draw(t, "value"),
	}
	switch e.Kind {
	case db.EntryFact:
		e.CallID = rapid.SampledFrom([]string{"", "0.0", "2.0", "10.0"}).Draw(t, "by")
	case db.EntryProhibition:
		e.Tools = rapid.SampledFrom([][]string{nil, {"restart"}, {"restart", "look"}}).Draw(t, "tools")
		e.Ask = rapid.Bool().Draw(t, "ask")
	default:
	}
	return e
}

// drawFacts draws the facts of an outcome.
func drawFacts(t *rapid.T) (facts []db.SessionEntry) {
	for range rapid.IntRange(0, 2).Draw(t, "facts") {
		facts = append(facts, fact(rapid.SampledFrom(entryKeys).Draw(t, "fact"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "of")))
	}
	return facts
}

// drawConversation draws an operation on what a conversation keeps.
func drawConversation(t *rapid.T, owner agent.Scope) operation {
	asRead := newRun(owner, "talk", rapid.SampledFrom([]string{"r1", "r1", "r1", "r2"}).Draw(t, "run"))
	call := rapid.SampledFrom(callIDs).Draw(t, "call")
	n := rapid.Int64Range(0, 3).Draw(t, "length")
	switch rapid.IntRange(0, 9).Draw(t, "on the conversation") {
	case 0:
		return draw(t, owner)
	case 1:
		return func(tx activities.Tx) (string, error) {
			r, err := open(tx, newRun(owner, "talk", "r2"))
			tx.InsertToolCalls("r2", []db.ToolCall{writeCall(call)})
			return fmt.Sprint("generation ", r.Generation), err
		}
	case 2:
		id := fmt.Sprint("m", rapid.IntRange(0, 99).Draw(t, "message"))
		visibility := rapid.SampledFrom([]db.Visibility{db.Visible, db.Visible, db.Hidden}).Draw(t, "visibility")
		return func(tx activities.Tx) (string, error) {
			conv, _, err := tx.HoldConversation(ctx, asRead)
			tx.AppendMessage(&conv, db.Message{ID: id, Role: db.RoleAssistant, Visibility: visibility, Content: id, RunID: asRead.ID}, n == 3)
			return "say", err
		}
	case 3, 4, 5:
		var entries []db.SessionEntry
		for range rapid.IntRange(1, 3).Draw(t, "entries") {
			entries = append(entries, drawEntry(t))
		}
		return func(tx activities.Tx) (string, error) {
			conv, _, err := tx.HoldConversation(ctx, asRead)
			tx.AppendSession(conv, asRead.ID, entries)
			return "append", err
		}
	case 6, 7:
		o := outcome(call, nil, drawFacts(t)...)
		if n == 0 {
			o.Error = &agent.ToolError{Code: agent.ToolFailed, Hash: "h"}
		}
		return func(tx activities.Tx) (string, error) {
			var recorded bool
			tx.FinishToolCall(asRead.ID, call, o, &recorded)
			text, err := step(tx, asRead.ID)
			return fmt.Sprint("recorded ", recorded, " ", text), err
		}
	default:
		failed, skipped, stale := rapid.Bool().Draw(t, "failed"), rapid.Bool().Draw(t, "skipped"), rapid.IntRange(0, 4).Draw(t, "stale") == 0
		return func(tx activities.Tx) (string, error) {
			state, err := tx.LoadSummary(ctx, "talk", int(n))
			if err != nil {
				return "", err
			}
			made := checked(state.From, min(state.From+n, state.Conversation.LastSeq))
			switch {
			case failed:
				made = failedSummary(made.FromSeq, made.ToSeq)
			case skipped:
				made = skippedSummary(made.FromSeq, made.ToSeq)
			}
			if stale {
				made.FromSeq = 1
			}
			if state.Unsummarized > 0 {
				tx.StoreSummary(state.Conversation, made)
			}
			return summaryState(state), nil
		}
	}
}

// summaryState is a state without times.
func summaryState(s db.SummaryState) string {
	s.Messages = undated(s.Messages)
	return fmt.Sprintf("%+v", s)
}

func undated(list []db.Message) []db.Message {
	for i := range list {
		list[i].CreatedAt = time.Time{}
	}
	return list
}

// step is a step as it is loaded, without times.
func step(tx activities.Tx, run string) (string, error) {
	state, err := tx.LoadStep(ctx, db.StepQuery{RunID: run, Step: 2, MaxMessages: 3, MaxExchanges: 9})
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%+v %+v %+v\n", undated(state.History), undated([]db.Message{state.Question}), state.Exchanges)
	for _, s := range state.Summaries {
		text += fmt.Sprint(s.FromSeq, s.ToSeq, s.Status, string(s.Content), s.Billed.Tokens, "\n")
	}
	return text + session(state.Session), nil
}

// session is a session without the numbers and times that a store gives.
func session(state db.SessionState) (text string) {
	for _, e := range append(state.Facts, state.Prohibitions...) {
		text += entry(e) + "\n"
	}
	return text
}

// conversationPicture is all that a conversation keeps.
func conversationPicture(s *subject, scope agent.Scope) string {
	state, err := s.session(ctx, scope, "talk")
	if err != nil {
		return describe(err)
	}
	text := session(state)
	s.do(scope, func(tx activities.Tx) error {
		state, err := tx.LoadSummary(ctx, "talk", 9)
		text += summaryState(state)
		return err
	})
	for _, id := range runIDs {
		err := s.InTx(ctx, scope, func(tx activities.Tx) error {
			loaded, err := step(tx, id)
			text += loaded
			return err
		})
		text += describe(err)
	}
	return text
}
