package memstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

var (
	desk    = agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "desk"}
	ledger  = agent.MemoryScope{Kind: agent.MemoryOfProject, ID: "ledger"}
	ofAda   = agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ada"}
	alone   = agent.MemoryRoom{Scope: ada, Conversation: "talk", Agent: "helper"}
	inDesk  = agent.MemoryRoom{Scope: ada, Conversation: "desk-talk", Group: "desk", Agent: "helper"}
	bobs    = agent.MemoryRoom{Scope: bob, Conversation: "bobs-talk", Agent: "helper"}
	flat    = db.MemoryEmbedder{Name: "flat", Dimensions: 3}
	other   = db.MemoryEmbedder{Name: "other", Dimensions: 3}
	errUndo = errors.New("undone")
)

// wrote is a record of a preference; with dim it is found by a vector that has
// only that dimension, with words by those.
func wrote(id string, version int, value string, edit ...func(*db.MemoryRecord)) db.MemoryRecord {
	r := db.MemoryRecord{
		ID: id, Version: version, Kind: agent.MemoryPreference, Key: "preference.food", Value: json.RawMessage(value), Agent: "helper",
		SourceType: agent.SourceUserStatement, SourceID: "m1", Writer: "agent:helper@1", CandidateID: "c-" + id, Confidence: 0.8,
		Validation: agent.MemoryUserStated, ConsentBasis: "stated", Sensitivity: "normal", WrittenAt: start, PolicyVersion: "1", PolicyDigest: digest,
		Evidence: db.MemoryEvidence{MessageID: "m1", Quote: "I like it", Purpose: "to know"}, Rules: []agent.MemoryRule{{ID: "r", Text: "t"}},
	}
	for _, e := range edit {
		e(&r)
	}
	return r
}

func words(list ...string) db.MemoryIndex { return db.MemoryIndex{Tokens: list} }

func axis(dim int, list ...string) db.MemoryIndex {
	v := make([]float32, 3)
	v[dim] = 1
	return db.MemoryIndex{Tokens: list, Embedder: flat, Embedding: v}
}

func (s *subject) keep(room agent.MemoryRoom, scope agent.MemoryScope, r db.MemoryRecord, index db.MemoryIndex) {
	s.Helper()
	s.memo(room, scope, func(tx activities.MemoryTx) error { tx.StoreRecord(r, index); return nil })
}

func (s *subject) memo(room agent.MemoryRoom, scope agent.MemoryScope, fn func(activities.MemoryTx) error) {
	s.Helper()
	if err := s.memory.InMemory(ctx, room, scope, fn); err != nil {
		s.Fatal(err)
	}
}

// embedders makes flat the one whose vectors there are.
func (s *subject) embedders() {
	s.Helper()
	state, err := s.memory.Embedders(ctx, flat)
	if err != nil || state != (db.EmbedderState{Serving: flat}) {
		s.Fatal(state, err)
	}
}

func asked(scopes ...agent.MemoryScope) db.RecallQuery {
	return db.RecallQuery{Scopes: scopes, Kinds: []agent.MemoryKind{agent.MemoryPreference, agent.MemoryFact}, Now: start.Add(time.Second), Limit: 10}
}

// recall returns what is found, in short.
func (s *subject) recall(room agent.MemoryRoom, q db.RecallQuery) string {
	s.Helper()
	hits, err := s.memory.Recall(ctx, room, q)
	if err != nil {
		s.Fatal(err)
	}
	var list []string
	for _, h := range hits {
		list = append(list, fmt.Sprintf("%s.%d %s %s", h.Record.ID, h.Record.Version, h.Via, h.Record.Value))
	}
	return strings.Join(list, "; ")
}

func (s *subject) given(room agent.MemoryRoom, run string, now time.Time) string {
	s.Helper()
	records, err := s.memory.GivenMemories(ctx, room, run, now)
	if err != nil {
		s.Fatal(err)
	}
	var list []string
	for _, r := range records {
		list = append(list, fmt.Sprintf("%s.%d", r.ID, r.Version))
	}
	return strings.Join(list, " ")
}

func candidate(id string) db.MemoryCandidate {
	return db.MemoryCandidate{
		ID: id, Room: alone, RunID: "r1", Scope: ofAda, Kind: agent.MemoryPreference, Key: "preference.food",
		Content:    &agent.MemoryCandidate{Kind: agent.MemoryPreference, Key: "preference.food", Value: []byte(`"tea"`), Quote: "I like tea"},
		SourceType: agent.SourceUserStatement, SourceID: "m1", Writer: "agent:helper@1", State: agent.MemoryProposed, PolicyVersion: "1", PolicyDigest: digest,
	}
}

func until(d time.Duration) *time.Time { at := start.Add(d); return &at }

var memoryCases = map[string]func(*subject){
	"participants": func(s *subject) {
		begin := func(scope agent.Scope, conversation, group, project string) (db.BeginState, error) {
			var state db.BeginState
			err := s.InTx(ctx, scope, func(tx activities.Tx) (err error) {
				state, err = tx.LoadBegin(ctx, db.BeginQuery{Conversation: conversation, RunID: "none", Group: group, Project: project, Day: today})
				return err
			})
			return state, err
		}
		s.join(desk, "ada", true)
		s.join(ledger, "ada", true)
		for _, c := range []struct {
			group, project string
			outsider       bool
		}{{"", "", false}, {"desk", "", false}, {"", "ledger", false}, {"desk", "ledger", false}, {"nobody", "", true}, {"desk", "nothing", true}, {"ledger", "", true}, {"", "desk", true}} {
			state, err := begin(ada, "talk "+c.group+"."+c.project, c.group, c.project)
			s.want("outsider "+c.group+" "+c.project, []any{state.Outsider, err}, []any{c.outsider, nil})
			s.want("conversation", []string{state.Conversation.Group, state.Conversation.Project}, []string{c.group, c.project})
		}
		// The first one that names them wins.
		state, _ := begin(ada, "talk desk.", "", "")
		s.want("again", []string{state.Conversation.Group, state.Conversation.Project}, "[desk ]")
		s.want("bob", func() bool { state, _ := begin(bob, "another", "desk", ""); return state.Outsider }(), true)
		s.join(desk, "ada", false)
		state, _ = begin(ada, "talk desk.", "desk", "")
		s.want("left", state.Outsider, true)
		s.join(desk, "ada", true)
		state, _ = begin(ada, "talk desk.", "desk", "")
		s.want("back", state.Outsider, false)
		foreign := agent.Scope{Tenant: "globex", User: "ada", Environment: "production"}
		state, _ = begin(foreign, "talk", "desk", "")
		s.want("another tenant", state.Outsider, true)
	},
	"run's room and use of memory": func(s *subject) {
		s.join(desk, "ada", true)
		s.do(ada, func(tx activities.Tx) error {
			_, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "desk-talk", RunID: "r1", Group: "desk", Project: "", Day: today})
			return err
		})
		r := s.begin(ada, "desk-talk", "r1")
		use := agent.MemoryUse{Recall: agent.RecallFound, Records: 3, KeywordOnly: true, Learning: agent.LearningStarted}
		id := s.answer(r)
		state := s.closeRun(r, id, 10)
		s.want("room", state.Run.Room(), agent.MemoryRoom{Scope: ada, Conversation: "desk-talk", Group: "desk", Agent: "helper"})
		s.want("before", state.Run.Memory == nil, true)
		s.do(ada, func(tx activities.Tx) error {
			return tx.MoveRun(state.Run, db.Move{To: agent.StatusSucceeded, Reason: agent.ReasonFinal, AnswerID: id, Memory: &use})
		})
		s.want("after", *s.closeRun(r, id, 10).Run.Memory, use)
		s.want("report", *s.report(r).Run.Memory, use)
		plain := s.begin(bob, "bobs-talk", "r2")
		s.want("without", s.report(plain).Run.Memory == nil, true)
	},
	"candidates": func(s *subject) {
		s.begin(ada, "talk", "r1")
		c, err := s.memory.ProposeMemory(ctx, candidate("c1"))
		s.want("proposed", []any{c.State, c.Content.Quote, c.Scope, err}, []any{agent.MemoryProposed, "I like tea", ofAda, nil})
		c, err = s.memory.ProposeMemory(ctx, candidate("c1"))
		s.want("again", []any{c.ID, err}, []any{"c1", nil})
		changed := candidate("c1")
		changed.Content.Quote = "I like coffee"
		_, err = s.memory.ProposeMemory(ctx, changed)
		s.failed(err, db.ErrConflict, "")
		rejected := candidate("c2")
		rejected.State = agent.MemoryRejected
		c, err = s.memory.ProposeMemory(ctx, rejected)
		s.want("rejected", []any{c.State, c.Content == nil, err}, []any{agent.MemoryRejected, true, nil})
		c, err = s.memory.ProposeMemory(ctx, rejected)
		s.want("rejected again", []any{c.State, c.Content == nil, err}, []any{agent.MemoryRejected, true, nil})
		list, err := s.memory.RunCandidates(ctx, alone, "r1")
		s.want("of the run", []any{len(list), err}, "[2 <nil>]")
		list, err = s.memory.RunCandidates(ctx, alone, "none")
		s.want("of none", []any{len(list), err}, "[0 <nil>]")
		for what, room := range map[string]agent.MemoryRoom{
			"bob":         bobs,
			"environment": {Scope: agent.Scope{Tenant: "acme", User: "ada", Environment: "test"}, Agent: "helper"},
			"tenant":      {Scope: agent.Scope{Tenant: "globex", User: "ada", Environment: "production"}, Agent: "helper"},
		} {
			_, err := s.memory.MemoryCandidate(ctx, room, "c1")
			s.want(what, errors.Is(err, db.ErrNotFound), true)
		}
		_, err = s.memory.MemoryCandidate(ctx, alone, "none")
		s.failed(err, db.ErrNotFound, "")
		outside := candidate("c3")
		outside.Room, outside.Scope = inDesk, desk
		_, err = s.memory.ProposeMemory(ctx, outside)
		s.failed(err, db.ErrNotFound, "")
		s.join(desk, "ada", true)
		_, err = s.memory.ProposeMemory(ctx, outside)
		s.want("inside", err, nil)
		_, err = s.memory.MemoryCandidate(ctx, alone, "c3")
		s.failed(err, db.ErrNotFound, "")
	},
	"decisions": func(s *subject) {
		s.begin(ada, "talk", "r1")
		_, err := s.memory.ProposeMemory(ctx, candidate("c1"))
		s.want("proposed", err, nil)
		s.memo(alone, ofAda, func(tx activities.MemoryTx) error {
			c, err := tx.HoldCandidate(ctx, "c1")
			if err != nil {
				return err
			}
			c.State, c.Revision, c.Nonce, c.PlanHash, c.ValueHash, c.ExpiresAt = agent.MemoryWaitingConfirmation, 1, "nonce", digest, tx.Hash([]byte(`"tea"`)), until(time.Hour)
			c.Content.Plan = &agent.MemoryPlan{Value: []byte(`"tea"`), Purpose: "to know", Step: "insert"}
			tx.UpdateCandidate(c)
			tx.Audit(db.MemoryAudit{Actor: "fairlead", Action: "wait", Candidate: "c1"})
			return nil
		})
		c, err := s.memory.MemoryCandidate(ctx, alone, "c1")
		if err != nil || c.Content == nil || c.Content.Plan == nil {
			s.Fatalf("waiting %+v, %v", c, err)
		}
		s.want("waiting", []any{c.State, c.Revision, c.Nonce, c.PlanHash == digest, c.ValueHash != "", c.ExpiresAt.Equal(*until(time.Hour)), string(c.Content.Plan.Value), c.Verdict().Until.Equal(*until(time.Hour))},
			[]any{agent.MemoryWaitingConfirmation, 1, "nonce", true, true, true, `"tea"`, true})
		decide := func(fail error) error {
			return s.memory.InMemory(ctx, alone, ofAda, func(tx activities.MemoryTx) error {
				c, err := tx.HoldCandidate(ctx, "c1")
				if err != nil {
					return err
				}
				c.State, c.Record, c.RecordVersion, c.DecidedBy, c.TokenID = agent.MemoryStored, "m1", 1, "ada", "t1"
				tx.UpdateCandidate(c)
				tx.StoreRecord(wrote("m1", 1, `"tea"`), words("tea"))
				return fail
			})
		}
		if err := decide(errUndo); !errors.Is(err, errUndo) {
			s.Fatal(err)
		}
		s.want("undone", s.recall(alone, func() db.RecallQuery { q := asked(ofAda); q.Tokens = []string{"tea"}; return q }()), "")
		s.want("decided", decide(nil), nil)
		c, err = s.memory.MemoryCandidate(ctx, alone, "c1")
		s.want("stored", []any{c.State, c.Content == nil, c.Record, c.RecordVersion, c.DecidedBy, err}, []any{agent.MemoryStored, true, "m1", 1, "ada", nil})
		s.failed(s.memory.InMemory(ctx, alone, ofAda, func(tx activities.MemoryTx) error {
			c, err := tx.HoldCandidate(ctx, "c1")
			c.State = agent.MemoryDeclined
			tx.UpdateCandidate(c)
			return err
		}), db.ErrConflict, "")
	},
	"versions": func(s *subject) {
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`), words("tea"))
		hold := func(key, identity string) (list []db.MemoryRecord) {
			s.memo(alone, ofAda, func(tx activities.MemoryTx) (err error) {
				list, err = tx.HoldIdentity(ctx, key, identity)
				return err
			})
			return list
		}
		first := hold("preference.food", "")
		s.want("first", []any{len(first), first[0].ID, first[0].Version, string(first[0].Value), first[0].Evidence.Quote, first[0].Status, first[0].User, first[0].Subject},
			[]any{1, "m1", 1, `"tea"`, "I like it", db.MemoryActive, "ada", "ada"})
		s.want("other identity", len(hold("preference.food", `{"item":"tea"}`)), 0)
		s.want("other key", len(hold("preference.drink", "")), 0)
		again := func(r db.MemoryRecord) error {
			return s.memory.InMemory(ctx, alone, ofAda, func(tx activities.MemoryTx) error { tx.StoreRecord(r, words("x")); return nil })
		}
		s.failed(again(wrote("m2", 1, `"coffee"`)), db.ErrConflict, "")
		s.failed(again(wrote("m1", 1, `"coffee"`)), db.ErrConflict, "")
		s.memo(alone, ofAda, func(tx activities.MemoryTx) error {
			tx.EndRecord(first[0], db.MemorySuperseded, "ada", start.Add(time.Minute))
			tx.StoreRecord(wrote("m1", 2, `"coffee"`), words("coffee"))
			return nil
		})
		second := hold("preference.food", "")
		s.want("second", []any{len(second), second[0].Version, string(second[0].Value)}, []any{1, 2, `"coffee"`})
		q := asked(ofAda)
		q.Tokens = []string{"tea", "coffee"}
		s.want("recalled", s.recall(alone, q), `m1.2 keyword "coffee"`)
		s.memo(alone, ofAda, func(tx activities.MemoryTx) error {
			tx.RepeatRecord(second[0], start.Add(time.Hour), nil)
			return nil
		})
		third := hold("preference.food", "")
		s.want("repeated", []any{third[0].Repeats, third[0].RepeatedAt.Equal(start.Add(time.Hour)), third[0].Confidence == second[0].Confidence}, "[1 true true]")
		err := s.memory.InMemory(ctx, alone, ofAda, func(tx activities.MemoryTx) error {
			tx.EndRecord(first[0], db.MemoryRetracted, "ada", start)
			return nil
		})
		s.failed(err, db.ErrConflict, "")
		// Times that do not overlap stand beside each other.
		early, late := wrote("m3", 1, `"a"`, func(r *db.MemoryRecord) { r.Key, r.ValidUntil = "fact.note", until(time.Hour) }),
			wrote("m4", 1, `"b"`, func(r *db.MemoryRecord) { r.Key, r.ValidFrom = "fact.note", until(time.Hour) })
		s.keep(alone, ofAda, late, words("b"))
		s.keep(alone, ofAda, early, words("a"))
		both := hold("fact.note", "")
		s.want("both", []any{len(both), both[0].ID, both[1].ID}, "[2 m3 m4]")
		s.failed(again(wrote("m5", 1, `"c"`, func(r *db.MemoryRecord) { r.Key, r.ValidFrom = "fact.note", until(30*time.Minute) })), db.ErrConflict, "")
	},
	"rooms": func(s *subject) {
		s.join(desk, "ada", true)
		s.join(desk, "bob", true)
		s.begin(ada, "talk", "r1")
		project := agent.MemoryRoom{Scope: ada, Conversation: "p", Project: "ledger", Agent: "helper"}
		s.join(ledger, "ada", true)
		test := alone
		test.Scope.Environment, test.Conversation = "test", ""
		talk := agent.MemoryScope{Kind: agent.MemoryOfConversation, ID: "talk"}
		role := agent.MemoryScope{Kind: agent.MemoryOfAgent, ID: "helper"}
		for id, c := range map[string]struct {
			room  agent.MemoryRoom
			scope agent.MemoryScope
		}{
			"ada": {alone, ofAda}, "bob": {bobs, agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "bob"}}, "group": {inDesk, desk},
			"conversation": {alone, talk}, "role": {alone, role}, "project": {project, ledger}, "test": {test, ofAda},
		} {
			s.keep(c.room, c.scope, wrote(id, 1, `"`+id+`"`), words("tea"))
		}
		seen := func(room agent.MemoryRoom) map[string]bool {
			q := asked(room.Scopes()...)
			q.Tokens = []string{"tea"}
			hits, err := s.memory.Recall(ctx, room, q)
			if err != nil {
				s.Fatal(err)
			}
			found := map[string]bool{}
			for _, h := range hits {
				found[h.Record.ID] = true
			}
			return found
		}
		s.want("alone", seen(alone), map[string]bool{"ada": true, "conversation": true, "role": true})
		s.want("bob", seen(bobs), map[string]bool{"bob": true, "role": true})
		s.want("group", seen(inDesk), map[string]bool{"group": true, "role": true})
		s.want("project", seen(project), map[string]bool{"ada": true, "project": true, "role": true})
		s.want("test", seen(test), map[string]bool{"test": true})
		s.join(desk, "ada", false)
		q := asked(desk)
		q.Tokens = []string{"tea"}
		_, err := s.memory.Recall(ctx, inDesk, q)
		s.failed(err, db.ErrNotFound, "")
		look := func(tx activities.MemoryTx) error { _, err := tx.HoldIdentity(ctx, "preference.food", ""); return err }
		s.failed(s.memory.InMemory(ctx, inDesk, desk, look), db.ErrNotFound, "")
		s.failed(s.memory.InMemory(ctx, alone, desk, look), db.ErrNotFound, "")
	},
	"given memories": func(s *subject) {
		s.begin(ada, "talk", "r1")
		for _, id := range []string{"m1", "m2", "m3"} {
			s.keep(alone, ofAda, wrote(id, 1, `"`+id+`"`, func(r *db.MemoryRecord) { r.Key = "key." + id; r.ExpiresAt = until(time.Hour) }), words("tea"))
		}
		q := asked(ofAda)
		q.Keys = []string{"key.m1", "key.m2", "key.m3"}
		hits, err := s.memory.Recall(ctx, alone, q)
		if err != nil || len(hits) != 3 {
			s.Fatal(hits, err)
		}
		s.want("nothing yet", s.given(alone, "r1", start), "")
		n, err := s.memory.GiveMemories(ctx, alone, "r1", hits[:2])
		s.want("given", []any{n, err}, "[2 <nil>]")
		n, err = s.memory.GiveMemories(ctx, alone, "r1", hits)
		s.want("given once", []any{n, err}, "[2 <nil>]")
		first, second := hits[0].Record, hits[1].Record
		s.want("in order", s.given(alone, "r1", start), first.ID+".1 "+second.ID+".1")
		s.want("expired", s.given(alone, "r1", start.Add(time.Hour)), "")
		s.want("bob", s.given(bobs, "r1", start), "")
		s.memo(alone, ofAda, func(tx activities.MemoryTx) error {
			tx.EndRecord(first, db.MemorySuperseded, "ada", start)
			tx.StoreRecord(wrote(first.ID, 2, `"new"`, func(r *db.MemoryRecord) { r.Key = first.Key }), words("tea"))
			return nil
		})
		s.want("another version", s.given(alone, "r1", start), second.ID+".1")
		if _, err := s.memory.ForgetMemory(ctx, agent.ForgetInput{ID: "f1", Room: alone, Record: second.ID, By: "ada"}, 100); err != nil {
			s.Fatal(err)
		}
		s.want("forgotten", s.given(alone, "r1", start), "")
		n, err = s.memory.GiveMemories(ctx, alone, "none", hits[:1])
		s.want("a run that is not there", []any{n, err}, "[0 <nil>]")
		n, err = s.memory.GiveMemories(ctx, bobs, "r1", nil)
		s.want("somebody else's run", []any{n, err}, "[0 <nil>]")
	},
}

// forget repeats a request until it is done.
func (s *subject) forget(in agent.ForgetInput) agent.ErasureStep {
	s.Helper()
	for range 10 {
		step, err := s.memory.ForgetMemory(ctx, in, 100)
		if err != nil {
			s.Fatal(err)
		}
		if step.Done {
			return step
		}
	}
	s.Fatal("it does not end")
	return agent.ErasureStep{}
}
