package memstore_test

import (
	"errors"
	"strings"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// lesson is the state of what is to be learned from a run of ada's.
func (s *subject) lesson(run string) string {
	s.Helper()
	source, err := s.memory.LessonSource(ctx, agent.RunRef{Scope: ada, RunID: run})
	switch {
	case errors.Is(err, db.ErrNotFound):
		return "none"
	case err != nil:
		s.Fatal(err)
	}
	return source.Lesson.Status
}

// memoryForgetCases are about what was said before its user had it forgotten.
var memoryForgetCases = map[string]func(*subject){
	"forget all": func(s *subject) {
		s.begin(ada, "talk", "r1")
		s.begin(bob, "bobs-talk", "b1")
		s.queue(ada, func(tx activities.Tx) { tx.InsertLesson("r1") })
		s.suggest(candidate("c1"))
		s.suggest(candidate("c2"))
		hash := func(c *db.MemoryCandidate) { c.State, c.ValueHash = agent.MemoryDeclined, digest }
		s.want("decided", s.decide("c2", hash), nil)
		rejected := candidate("c3")
		rejected.State = agent.MemoryRejected
		s.suggest(rejected)
		step := s.forget(agent.ForgetInput{ID: "f1", Room: alone, By: "olga"})
		s.want("cleared", step.Receipt.Candidates, 2)
		c := s.state("c1")
		s.want("open proposal", []any{c.State, c.DecidedBy, c.Content == nil}, []any{agent.MemoryDeclined, "olga", true})
		c = s.state("c2")
		s.want("decided proposal", []any{c.State, c.DecidedBy, c.ValueHash}, []any{agent.MemoryDeclined, "", ""})
		s.want("the same again", s.suggest(candidate("c1")).State, agent.MemoryDeclined)
		_, err := s.memory.ProposeMemory(ctx, candidate("c4"))
		s.failed(err, db.ErrNotFound, "")
		s.want("lesson", s.lesson("r1"), "failed")

		s.begin(ada, "another-talk", "r2")
		later := candidate("c4")
		later.RunID = "r2"
		s.want("a run from after", s.suggest(later).State, agent.MemoryProposed)
		none := candidate("c5")
		none.RunID = ""
		s.want("of no run", s.suggest(none).State, agent.MemoryProposed)
		his := candidate("c6")
		his.Room, his.Scope, his.RunID = bobs, agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "bob"}, "b1"
		s.want("bob's", s.suggest(his).State, agent.MemoryProposed)
		s.queue(ada, func(tx activities.Tx) { tx.InsertLesson("r2"); tx.InsertLesson("none"); tx.InsertLesson("b1") })
		s.want("what can be learned from", []string{s.lesson("r2"), s.lesson("none")}, "[due none]")
		s.want("audit", s.audit(), "[olga forgotten ada  0 request=f1 records=0 versions=0]")
	},
	"nothing is learned from before": func(s *subject) {
		s.begin(ada, "talk", "r1")
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`), words("tea"))
		s.forget(agent.ForgetInput{ID: "f1", Room: alone, Record: "m1", By: "ada"})
		s.queue(ada, func(tx activities.Tx) { tx.InsertLesson("r1") })
		s.want("one was forgotten", s.lesson("r1"), "due")
		s.begin(ada, "talk2", "r2")
		s.forget(agent.ForgetInput{ID: "f2", Room: alone, By: "ada"})
		s.queue(ada, func(tx activities.Tx) { tx.InsertLesson("r1"); tx.InsertLesson("r2") })
		s.want("all was forgotten", []string{s.lesson("r1"), s.lesson("r2")}, "[failed none]")
	},
	"forget one": func(s *subject) {
		s.begin(ada, "talk", "r1")
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`), words("tea"))
		talk := agent.MemoryScope{Kind: agent.MemoryOfConversation, ID: "talk"}
		at := func(id string, edit func(*db.MemoryCandidate)) db.MemoryCandidate {
			c := candidate(id)
			edit(&c)
			return c
		}
		same := func(*db.MemoryCandidate) {}
		otherKey := func(c *db.MemoryCandidate) { c.Key = "preference.colour" }
		otherScope := func(c *db.MemoryCandidate) { c.Scope = talk }
		s.suggest(at("c1", same))
		s.suggest(at("c2", otherKey))
		s.suggest(at("c3", otherScope))
		s.suggest(at("c-m1", otherKey)) // The record was made from it.
		s.suggest(at("c4", otherKey))   // And this one was merged with it.
		s.want("merged", s.decide("c4", func(c *db.MemoryCandidate) {
			c.State, c.Record, c.RecordVersion, c.ValueHash = agent.MemoryMerged, "m1", 1, digest
		}), nil)
		step := s.forget(agent.ForgetInput{ID: "f1", Room: alone, Record: "m1", By: "ada"})
		s.want("receipt", []int{step.Receipt.Records, step.Receipt.Versions, step.Receipt.Candidates}, "[1 1 3]")
		for id, want := range map[string]agent.MemoryState{
			"c1": agent.MemoryDeclined, "c2": agent.MemoryProposed, "c3": agent.MemoryProposed, "c-m1": agent.MemoryDeclined, "c4": agent.MemoryMerged,
		} {
			s.want(id, s.state(id).State, want)
		}
		s.want("decided by", []string{s.state("c1").DecidedBy, s.state("c4").DecidedBy, s.state("c4").ValueHash}, "[ada  ]")
		s.want("audit", s.audit(), "[ada forgotten ada m1 0 request=f1 records=1 versions=1]")

		_, err := s.memory.ProposeMemory(ctx, at("n1", same))
		s.failed(err, db.ErrNotFound, "")
		_, err = s.memory.ProposeMemory(ctx, at("n2", func(c *db.MemoryCandidate) { c.State = agent.MemoryRejected }))
		s.failed(err, db.ErrNotFound, "")
		s.want("the same again", s.suggest(at("c1", same)).State, agent.MemoryDeclined)
		s.want("another key", s.suggest(at("n3", otherKey)).State, agent.MemoryProposed)
		s.want("another scope", s.suggest(at("n4", otherScope)).State, agent.MemoryProposed)
		s.begin(ada, "another-talk", "r2")
		s.want("a run from after", s.suggest(at("n5", func(c *db.MemoryCandidate) { c.RunID = "r2" })).State, agent.MemoryProposed)
	},
	"forget what was said in a group": func(s *subject) {
		s.embedders()
		s.join(desk, "ada", true)
		s.join(desk, "bob", true)
		deskOfBob := inDesk
		deskOfBob.Scope, deskOfBob.Conversation = bob, "bobs-desk"
		s.keep(inDesk, desk, wrote("m1", 1, `"hers"`), axis(0, "tea"))
		s.replace(deskOfBob, desk, wrote("m1", 2, `"his"`), axis(0, "tea"))
		step := s.forget(agent.ForgetInput{ID: "f1", Room: alone, By: "ada"})
		s.want("receipt", []int{step.Receipt.Records, step.Receipt.Versions, step.Receipt.Keywords, step.Receipt.Vectors}, "[1 1 0 0]")
		first := s.version("m1", 1)
		s.want("hers", []any{first.Status, first.EndedBy, len(first.Value), first.Evidence, first.ValueHash, first.IdentityHash}, []any{db.MemoryDeleted, "ada", 0, db.MemoryEvidence{}, "", ""})
		q := asked(desk)
		q.Tokens, q.Embedder, q.Embedding = []string{"tea"}, flat, []float32{1, 0, 0}
		s.want("his", s.recall(deskOfBob, q), `m1.2 keyword+vector "his"`)
	},
	"who may ask": func(s *subject) {
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`), words("tea"))
		s.forget(agent.ForgetInput{ID: "f1", Room: alone, By: "ada"})
		for what, c := range map[string]struct {
			in   agent.ForgetInput
			want error
		}{
			"nobody":                {agent.ForgetInput{ID: "f2", Room: alone}, nil},
			"no name":               {agent.ForgetInput{ID: "", Room: alone, By: "ada"}, nil},
			"of no user":            {agent.ForgetInput{ID: "f2", Room: agent.MemoryRoom{Scope: agent.Scope{Tenant: "acme"}}, By: "ada"}, db.ErrScope},
			"somebody else's name":  {agent.ForgetInput{ID: "f1", Room: bobs, By: "bob"}, db.ErrOtherRequest},
			"and record":            {agent.ForgetInput{ID: "f1", Room: bobs, Record: "m1", By: "bob"}, db.ErrNotFound},
			"a name of another one": {agent.ForgetInput{ID: "f1", Room: alone, Record: "m1", By: "ada"}, db.ErrOtherRequest},
		} {
			_, err := s.memory.ForgetMemory(ctx, c.in, 10)
			s.want(what, []any{err == nil, c.want == nil || errors.Is(err, c.want)}, "[false true]")
		}
		s.want("a tombstone again", s.forget(agent.ForgetInput{ID: "f3", Room: alone, Record: "m1", By: "ada"}).Receipt.Records, 0)
		_, err := s.memory.EraseSubject(ctx, agent.EraseInput{ID: "f1", Tenant: "acme", User: "ada", By: "ada"}, 10)
		s.failed(err, db.ErrOtherRequest, "")
	},
	"what an erased user leaves": func(s *subject) {
		s.join(desk, "ada", true)
		r := s.begin(ada, "talk", "r1")
		s.queue(ada, func(tx activities.Tx) { tx.InsertLesson("r1") })
		rejected := candidate("c1")
		rejected.State = agent.MemoryRejected
		s.suggest(rejected)
		s.suggest(candidate("c2"))
		in := agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "ada"}
		step, err := s.memory.EraseSubject(ctx, in, 100)
		s.want("blocked", []any{step.Blocked, step.Receipt.Candidates, err}, "[open_run 2 <nil>]")
		begun := func() (state db.BeginState) {
			s.do(ada, func(tx activities.Tx) (err error) {
				state, err = tx.LoadBegin(ctx, db.BeginQuery{Conversation: "desk-talk", RunID: "none", Group: "desk", Day: today})
				return err
			})
			return state
		}
		s.want("takes part", []bool{begun().Outsider, begun().Erased}, "[true true]")
		_, err = s.memory.LessonSource(ctx, agent.RunRef{Scope: ada, RunID: "r1"})
		s.failed(err, db.ErrErased, "")
		closed, err := s.memory.TryLesson(ctx, agent.RunRef{Scope: ada, RunID: "r1"}, 3, "", db.Amount{})
		s.want("lesson", []any{closed, err}, "[true <nil>]")
		state := s.closeRun(r, "", 1)
		s.do(ada, func(tx activities.Tx) error {
			return tx.MoveRun(state.Run, db.Move{To: agent.StatusFailed, Reason: agent.ReasonInternal})
		})
		for range 10 {
			if step, err = s.memory.EraseSubject(ctx, in, 100); err != nil || step.Done {
				break
			}
		}
		s.want("done", []any{step.Done, step.Receipt.Candidates, step.Receipt.At.IsZero(), err}, "[true 2 false <nil>]")
		s.want("audit", s.audit(), "[ada erased ada  0 request=e1 records=0 versions=0]")
	},
	"tenants": func(s *subject) {
		list := func() string {
			tenants, err := s.memory.MemoryTenants(ctx)
			if err != nil {
				s.Fatal(err)
			}
			return strings.Join(tenants, " ")
		}
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`), words("tea"))
		s.want("only ever by a proposal", list(), "")
		for _, tenant := range []string{"globex", "acme"} {
			room := alone
			room.Scope.Tenant = tenant
			s.forget(agent.ForgetInput{ID: "f1", Room: room, By: "ada"})
		}
		s.want("or an erasure", list(), "acme globex")
	},
}
