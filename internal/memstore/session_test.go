package memstore_test

import (
	"fmt"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

func fact(key, value string) db.SessionEntry {
	return db.SessionEntry{Kind: db.EntryFact, Key: key, Value: value}
}

func forbid(id, words string, tools ...string) db.SessionEntry {
	return db.SessionEntry{Kind: db.EntryProhibition, Key: id, Value: words, Tools: tools}
}

func lift(id string) db.SessionEntry { return db.SessionEntry{Kind: db.EntryLift, Key: id} }

// settled stores entries of a run, as the newest of its conversation.
func (s *subject) settled(r db.Run, entries ...db.SessionEntry) {
	s.Helper()
	s.do(r.Scope, func(tx activities.Tx) error {
		conv, _, err := tx.HoldConversation(ctx, r)
		tx.AppendSession(conv, r.ID, entries)
		return err
	})
}

// holds returns what holds in ada's conversation, by all ways to ask.
func (s *subject) holds(conversation string) db.SessionState {
	s.Helper()
	state, err := s.session(ctx, ada, conversation)
	if err != nil {
		s.Fatal(err)
	}
	s.do(ada, func(tx activities.Tx) error {
		begin, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: conversation, RunID: "none", Day: today})
		s.want("session of a beginning", summary(begin.Session), summary(state))
		for _, r := range begin.OpenRuns {
			step, err := tx.LoadStep(ctx, db.StepQuery{RunID: r.ID})
			s.want("session of a step", summary(step.Session), summary(state))
			if err != nil {
				return err
			}
		}
		return err
	})
	return state
}

// summary is a session in short.
func summary(state db.SessionState) string {
	var text strings.Builder
	for _, f := range state.Facts {
		fmt.Fprintf(&text, "%s=%s ", f.Key, f.Value)
	}
	for _, p := range state.Prohibitions {
		fmt.Fprintf(&text, "%s:%s%v ", p.Key, p.Value, p.Tools)
	}
	return strings.TrimSpace(text.String())
}

// entry is an entry without what a store counts and stamps.
func entry(e db.SessionEntry) string {
	return fmt.Sprintf("%s %s %q %v %v message=%s run=%s call=%s tool=%s@%s seq=%d",
		e.Kind, e.Key, e.Value, e.Tools, e.Ask, e.MessageID, e.RunID, e.CallID, e.Tool, e.ToolVersion, e.Seq)
}

// finish stores the outcome of a call and says whether it was recorded.
func (s *subject) finish(scope agent.Scope, run, call string, failed *agent.ToolError, facts ...db.SessionEntry) (recorded bool) {
	s.Helper()
	s.queue(scope, func(tx activities.Tx) { tx.FinishToolCall(run, call, outcome(call, failed, facts...), &recorded) })
	return recorded
}

// outcome is how a call came out, with the facts that an activity would give.
func outcome(call string, failed *agent.ToolError, facts ...db.SessionEntry) db.CallOutcome {
	for i := range facts {
		facts[i].CallID, facts[i].Tool, facts[i].ToolVersion = call, "restart", "1"
	}
	return db.CallOutcome{
		Error: failed, Envelope: "enveloped", Content: []byte("{}"), ContentType: "application/json", ResultHash: digest,
		Note: "note of " + call, Facts: facts, StartedAt: start,
	}
}

func (s *subject) propose(r db.Run, calls ...string) {
	s.Helper()
	s.queue(r.Scope, func(tx activities.Tx) {
		for _, id := range calls {
			tx.InsertToolCalls(r.ID, []db.ToolCall{writeCall(id)})
		}
	})
}

var sessionCases = map[string]func(*subject){
	"session": func(s *subject) {
		r := newRun(ada, "talk", "r1")
		var before db.SessionState
		s.do(ada, func(tx activities.Tx) error {
			state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: r.Conversation, RunID: r.ID, Day: today})
			if err != nil {
				return err
			}
			before = state.Session
			conv := state.Conversation
			tx.StoreDefinition(db.Definition{Digest: digest, Name: "helper", Version: "1", Body: []byte(`{}`)})
			tx.AppendMessage(&conv, db.Message{ID: r.QuestionID, Role: db.RoleUser, Content: "No restart, please.", Visibility: db.Visible, RunID: r.ID}, true)
			// Its run is stored after it.
			tx.AppendSession(conv, r.ID, []db.SessionEntry{
				{Kind: db.EntryFact, Key: "service", Value: "payment-api", MessageID: r.QuestionID},
				{Kind: db.EntryProhibition, Key: "p-1", Value: "不要重启", Tools: []string{"restart", "delete"}, MessageID: r.QuestionID},
				{Kind: db.EntryProhibition, Key: "p-2", Value: "Ask me first.", Ask: true, MessageID: r.QuestionID},
			})
			r.Generation = conv.Generation
			tx.InsertRun(r)
			return nil
		})
		s.want("before", summary(before), "")
		state := s.holds("talk")
		s.want("counts", []int{len(state.Facts), len(state.Prohibitions)}, "[1 2]")
		entries := append(state.Facts, state.Prohibitions...)
		for i, want := range []string{
			`fact service "payment-api" [] false message=question-r1 run=r1 call= tool=@ seq=1`,
			`prohibition p-1 "不要重启" [restart delete] false message=question-r1 run=r1 call= tool=@ seq=1`,
			`prohibition p-2 "Ask me first." [] true message=question-r1 run=r1 call= tool=@ seq=1`,
		} {
			s.want("entry", entry(entries[i]), want)
			s.want("stamp", []bool{entries[i].At.IsZero(), entries[i].Version > 0}, "[false true]")
		}
		s.want("order", entries[0].Version < entries[1].Version && entries[1].Version < entries[2].Version, true)
	},
	"facts": func(s *subject) {
		r1 := s.begin(ada, "talk", "r1")
		s.settled(r1, fact("ab", "1"), fact("a_b", "2"), fact("a", "3"), fact("a.b", "4"), fact("a1", "5"))
		s.want("by key, byte by byte", summary(s.holds("talk")), "a=3 a.b=4 a1=5 a_b=2 ab=1")
		r2 := s.begin(ada, "talk", "r2")
		s.settled(r2, fact("a", "6"), fact("z", "7"))
		s.want("the newest of a key", summary(s.holds("talk")), "a=6 a.b=4 a1=5 a_b=2 ab=1 z=7")
		s.want("its source", entry(s.holds("talk").Facts[0]), `fact a "6" [] false message= run=r2 call= tool=@ seq=2`)
	},
	"too many facts": func(s *subject) {
		r1 := s.begin(ada, "talk", "r1")
		var entries []db.SessionEntry
		for i := range agent.MaxFacts + 2 {
			entries = append(entries, fact(fmt.Sprintf("k%02d", i), "old"))
		}
		s.settled(r1, entries...)
		facts := s.holds("talk").Facts
		s.want("the newest 64", []any{len(facts), facts[0].Key, facts[63].Key}, "[64 k02 k65]")
		// A key that had fallen out is the newest again, and k02 the oldest.
		s.settled(s.begin(ada, "talk", "r2"), fact("k00", "new"))
		facts = s.holds("talk").Facts
		s.want("the newest 64", []any{len(facts), facts[0].Key, facts[0].Value, facts[1].Key, facts[63].Key}, "[64 k00 new k03 k65]")
	},
	"too many prohibitions": func(s *subject) {
		var entries []db.SessionEntry
		for i := range db.MaxProhibitions + 2 {
			entries = append(entries, forbid(fmt.Sprintf("p%03d", i), "no", "restart"))
		}
		s.settled(s.begin(ada, "talk", "r1"), entries...)
		list := s.holds("talk").Prohibitions
		s.want("the newest 256, oldest first", []any{len(list), list[0].Key, list[255].Key}, "[256 p002 p257]")
		s.settled(s.begin(ada, "talk", "r2"), lift("p100"))
		list = s.holds("talk").Prohibitions
		s.want("one is lifted", []any{len(list), list[0].Key, list[255].Key}, "[256 p001 p257]")
	},
	"facts by the order of calls": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.propose(r, "0.0", "1.0", "2.0", "10.0")
		s.finish(ada, "r1", "1.0", nil, fact("a", "second"), fact("b", "second"))
		s.finish(ada, "r1", "0.0", nil, fact("a", "first"))
		s.settled(r, fact("b", "by the user"))
		s.want("the later call's, whichever came back first", summary(s.holds("talk")), "a=second b=second")
		s.finish(ada, "r1", "10.0", nil, fact("a", "last"))
		s.finish(ada, "r1", "2.0", nil, fact("a", "third"))
		s.want("by number", summary(s.holds("talk")), "a=last b=second")
		s.settled(s.begin(ada, "talk", "r2"), fact("b", "of the next run"))
		s.want("a newer message is newer", summary(s.holds("talk")), "a=last b=of the next run")
	},
	"prohibitions": func(s *subject) {
		r1 := s.begin(ada, "talk", "r1")
		s.settled(r1, forbid("p-z", "no restart", "restart"), forbid("p-a", "no delete", "delete"), forbid("p-m", "be careful"))
		s.want("oldest first", summary(s.holds("talk")), "p-z:no restart[restart] p-a:no delete[delete] p-m:be careful[]")
		s.settled(s.begin(ada, "talk", "r2"), lift("p-a"), lift("p-unknown"))
		s.want("lifted", summary(s.holds("talk")), "p-z:no restart[restart] p-m:be careful[]")
		// What is forbidden after a lift stands.
		s.settled(s.begin(ada, "talk", "r3"), forbid("p-a", "really no delete", "delete"))
		s.want("forbidden again", summary(s.holds("talk")), "p-z:no restart[restart] p-m:be careful[] p-a:really no delete[delete]")
		s.settled(s.begin(ada, "talk", "r4"), forbid("p-4", "no look", "look"), lift("p-4"))
		s.want("lifted in one breath", summary(s.holds("talk")), "p-z:no restart[restart] p-m:be careful[] p-a:really no delete[delete]")
	},
	"prohibition and fact of one name": func(s *subject) {
		s.settled(s.begin(ada, "talk", "r1"), forbid("x", "no restart", "restart"), fact("x", "1"))
		s.want("both", summary(s.holds("talk")), "x=1 x:no restart[restart]")
		s.settled(s.begin(ada, "talk", "r2"), lift("x"))
		s.want("a lift lifts no fact", summary(s.holds("talk")), "x=1")
	},
	"session again": func(s *subject) {
		r1 := s.begin(ada, "talk", "r1")
		s.settled(r1, fact("a", "1"), forbid("p", "no restart", "restart"))
		first := s.holds("talk")
		s.settled(r1, fact("b", "2"), fact("a", "other"), forbid("p", "other", "delete"), fact("b", "other"))
		s.want("the first stays", summary(s.holds("talk")), "a=1 b=2 p:no restart[restart]")
		s.want("as it was", fmt.Sprint(s.holds("talk").Prohibitions), fmt.Sprint(first.Prohibitions))
		s.settled(r1, lift("p"))
		s.settled(r1, forbid("p", "no restart", "restart"), lift("p"))
		s.want("a prohibition again is none after its lift", summary(s.holds("talk")), "a=1 b=2")
		called := fact("a", "by a call")
		called.CallID, called.Tool, called.ToolVersion = "0.0", "restart", "1"
		s.settled(r1, called)
		s.want("of another call", summary(s.holds("talk")), "a=by a call b=2")
	},
	"facts of a call": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.propose(r, "0.0", "1.0")
		s.settled(r, fact("service", "by the user"), fact("zone", "eu"))
		s.want("recorded", s.finish(ada, "r1", "0.0", nil, fact("service", "payment-api"), fact("replicas", "3")), true)
		state := s.holds("talk")
		s.want("facts", summary(state), "replicas=3 service=payment-api zone=eu")
		s.want("source", entry(state.Facts[1]), `fact service "payment-api" [] false message= run=r1 call=0.0 tool=restart@1 seq=1`)
		s.want("stamp", []bool{state.Facts[1].At.IsZero(), state.Facts[1].Version > state.Facts[2].Version}, "[false true]")
		s.answer(r)
		s.want("recorded", s.finish(ada, "r1", "1.0", nil, fact("service", "search")), true)
		s.want("a newer one", entry(s.holds("talk").Facts[1]), `fact service "search" [] false message= run=r1 call=1.0 tool=restart@1 seq=2`)
		s.settled(s.begin(ada, "talk", "r2"), fact("service", "the user's word"))
		s.want("the user's is newer still", s.holds("talk").Facts[1].Value, "the user's word")
	},
	"facts of a failed call": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.propose(r, "0.0")
		s.want("recorded", s.finish(ada, "r1", "0.0", &agent.ToolError{Code: agent.ToolFailed, Hash: "h"}, fact("service", "payment-api")), true)
		s.want("none", summary(s.holds("talk")), "")
	},
	"facts of a repeated outcome": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.propose(r, "0.0", "1.0")
		s.want("first", s.finish(ada, "r1", "0.0", nil, fact("a", "1")), true)
		s.want("second", s.finish(ada, "r1", "0.0", nil, fact("a", "2"), fact("b", "2")), false)
		s.want("after a failure", s.finish(ada, "r1", "1.0", &agent.ToolError{Code: agent.ToolTimeout, Hash: "h"}), true)
		s.want("success that came late", s.finish(ada, "r1", "1.0", nil, fact("c", "3")), false)
		s.want("of no call", s.finish(ada, "r1", "9.9", nil, fact("d", "4")), false)
		s.want("of no run", s.finish(ada, "none", "0.0", nil, fact("e", "5")), false)
		s.want("the first", summary(s.holds("talk")), "a=1")
	},
	"facts of an older generation": func(s *subject) {
		r1 := s.begin(ada, "talk", "r1")
		s.propose(r1, "0.0", "1.0")
		r2 := s.begin(ada, "talk", "r2")
		s.propose(r2, "0.0")
		s.want("recorded all the same", s.finish(ada, "r1", "0.0", nil, fact("a", "late")), true)
		s.want("fenced", summary(s.holds("talk")), "")
		s.want("status", s.report(r1).Calls()[0].Status, db.CallSucceeded)
		s.want("the newest run's", s.finish(ada, "r2", "0.0", nil, fact("a", "now")), true)
		s.want("hold", summary(s.holds("talk")), "a=now")
		// The generation counts in which the outcome is stored, not read.
		r3 := s.begin(ada, "other", "r3")
		s.propose(r3, "0.0")
		var recorded bool
		s.do(ada, func(tx activities.Tx) error {
			_, err := open(tx, newRun(ada, "other", "r4"))
			tx.FinishToolCall("r3", "0.0", outcome("0.0", nil, fact("a", "late")), &recorded)
			return err
		})
		s.want("recorded", recorded, true)
		s.want("fenced", summary(s.holds("other")), "")
	},
	"facts after the end": func(s *subject) {
		r := s.approved()
		s.closeRun(r, "none", 1)
		s.want("the write is unknown", s.report(r).Calls()[0].Status, db.CallUnknown)
		s.want("an outcome that turned up", s.finish(ada, "r1", "0.0", nil, fact("service", "payment-api")), true)
		s.want("of an abandoned call", s.finish(ada, "r1", "1.0", nil, fact("zone", "eu")), false)
		s.want("facts", summary(s.holds("talk")), "service=payment-api")
	},
	"sessions apart": func(s *subject) {
		umbrella := agent.Scope{Tenant: "umbrella", User: "ada", Environment: "production"}
		s.settled(s.begin(ada, "talk", "r1"), fact("a", "1"), forbid("p", "no restart", "restart"))
		s.settled(s.begin(umbrella, "talk", "r1"), fact("a", "2"), forbid("q", "no look", "look"))
		s.settled(s.begin(ada, "other", "r2"), fact("b", "3"), lift("p"))
		s.want("talk", summary(s.holds("talk")), "a=1 p:no restart[restart]")
		s.want("other", summary(s.holds("other")), "b=3")
		state, err := s.session(ctx, umbrella, "talk")
		s.want("of the other tenant", []any{err, summary(state)}, "[<nil> a=2 q:no look[look]]")
		for _, scope := range []agent.Scope{bob, {Tenant: "acme", User: "ada", Environment: "test"}, {Tenant: "umbrella", User: "bob", Environment: "production"}} {
			_, err := s.session(ctx, scope, "talk")
			s.failed(err, db.ErrNotFound, "")
			s.do(scope, func(tx activities.Tx) error {
				state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "talk", RunID: "none", Day: today})
				s.want("told to nobody else", summary(state.Session), "")
				return err
			})
		}
		_, err = s.session(ctx, ada, "nowhere")
		s.failed(err, db.ErrNotFound, "")
		_, err = s.session(ctx, agent.Scope{Tenant: "acme"}, "talk")
		s.failed(err, db.ErrScope, "")
	},
	"session undone": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.propose(r, "0.0")
		var recorded bool
		err := s.InTx(ctx, ada, func(tx activities.Tx) error {
			conv, _, err := tx.HoldConversation(ctx, r)
			if err != nil {
				return err
			}
			tx.AppendSession(conv, "r1", []db.SessionEntry{fact("a", "1")})
			tx.FinishToolCall("r1", "0.0", outcome("0.0", nil, fact("b", "2")), &recorded)
			step, err := tx.LoadStep(ctx, db.StepQuery{RunID: "r1"})
			s.want("seen inside", summary(step.Session), "a=1 b=2")
			if err != nil {
				return err
			}
			return errAbort
		})
		s.want("error", err, errAbort)
		s.want("nothing stays", summary(s.holds("talk")), "")
		s.fails(ada, nil, "session_entry_kind_check", func(tx activities.Tx) {
			tx.AppendSession(db.Conversation{ID: "talk"}, "r1", []db.SessionEntry{fact("a", "1"), {Kind: "guess", Key: "k"}})
		})
		s.fails(ada, nil, "session_entry_key_check", func(tx activities.Tx) {
			tx.AppendSession(db.Conversation{ID: "talk"}, "r1", []db.SessionEntry{fact("a", "1"), fact("", "1")})
		})
		s.fails(ada, nil, "session_entry_conversation_fkey", func(tx activities.Tx) {
			tx.AppendSession(db.Conversation{ID: "nowhere"}, "r1", []db.SessionEntry{fact("a", "1")})
		})
		s.want("nothing stays", summary(s.holds("talk")), "")
		s.queue(ada, func(tx activities.Tx) { tx.AppendSession(db.Conversation{ID: "talk"}, "r1", nil) })
	},
	"facts at the same time": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		var calls []string
		for i := range 8 {
			calls = append(calls, fmt.Sprintf("%d.0", i))
		}
		s.propose(r, calls...)
		var wg sync.WaitGroup
		recorded := make([]bool, len(calls))
		errs := make([]error, len(calls))
		for i, call := range calls {
			wg.Go(func() {
				errs[i] = s.InTx(ctx, ada, func(tx activities.Tx) error {
					tx.FinishToolCall("r1", call, outcome(call, nil, fact("shared", call), fact("of"+call[:1], call)), &recorded[i])
					return nil
				})
			})
		}
		wg.Wait()
		versions := map[int64]bool{}
		facts := s.holds("talk").Facts
		for _, f := range facts {
			versions[f.Version] = true
		}
		s.want("all", []any{errs, recorded}, "[[<nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil>] [true true true true true true true true]]")
		s.want("none lost, each with a version of its own", []int{len(facts), len(versions)}, "[9 9]")
	},
}
