package memstore_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// memoryWorkCases are about what is done with memory in the background.
var memoryWorkCases = map[string]func(*subject){
	"lessons": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		ref := agent.RunRef{Scope: ada, RunID: "r1", Generation: r.Generation}
		_, err := s.memory.LessonSource(ctx, ref)
		s.failed(err, db.ErrNotFound, "")
		s.queue(ada, func(tx activities.Tx) { tx.InsertLesson("r1") })
		s.queue(ada, func(tx activities.Tx) { tx.InsertLesson("r1") })
		source, err := s.memory.LessonSource(ctx, ref)
		s.want("source", []any{source.Lesson.Status, source.Question.Content, source.Lesson.Room, source.Lesson.Run, err}, []any{"due", "What is r1?", alone, ref, nil})
		_, err = s.memory.LessonSource(ctx, agent.RunRef{Scope: bob, RunID: "r1"})
		s.failed(err, db.ErrNotFound, "")
		s.failed(s.memory.CloseLesson(ctx, agent.RunRef{Scope: bob, RunID: "r1"}, "", db.Amount{}), db.ErrNotFound, "")
		for _, call := range []string{"1.0", "0.1", "", "0.0"} {
			f := fact("key."+call, call)
			f.CallID = call
			s.settled(r, f)
		}
		source, err = s.memory.LessonSource(ctx, ref)
		var calls []string
		for _, f := range source.Facts {
			calls = append(calls, f.Value)
		}
		s.want("in the order of the calls", []any{calls, err}, "[[0.0 0.1 1.0] <nil>]")
		cost := int64(3)
		for try, want := range []string{"[false <nil>]", "[false <nil>]"} {
			closed, err := s.memory.TryLesson(ctx, ref, 3, "given_up", db.Amount{Tokens: 5, CostMicros: &cost})
			s.want("tried", []any{closed, err}, want)
			source, err = s.memory.LessonSource(ctx, ref)
			s.want("still due", []any{source.Lesson.Status, source.Lesson.Tries, err}, fmt.Sprintf("[due %d <nil>]", try+1))
		}
		s.want("closed", s.memory.CloseLesson(ctx, ref, "", db.Amount{Tokens: 10, CostMicros: &cost}), nil)
		s.want("closed again", s.memory.CloseLesson(ctx, ref, "model_refused", db.Amount{}), nil)
		source, err = s.memory.LessonSource(ctx, ref)
		s.want("done", []any{source.Lesson.Status, err}, "[done <nil>]")
		closed, err := s.memory.TryLesson(ctx, ref, 3, "given_up", db.Amount{Tokens: 5})
		s.want("tried when it is closed", []any{closed, err}, "[true <nil>]")
	},
	"forgetting": func(s *subject) {
		s.embedders()
		s.join(desk, "ada", true)
		s.join(desk, "bob", true)
		s.begin(ada, "talk", "r1")
		deskOfBob := inDesk
		deskOfBob.Scope, deskOfBob.Conversation = bob, "bobs-desk"
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`), axis(0, "tea"))
		s.keep(alone, ofAda, wrote("m2", 1, `"red"`, func(r *db.MemoryRecord) { r.Key = "preference.colour" }), words("tea"))
		s.keep(inDesk, desk, wrote("m3", 1, `"ours"`), words("tea"))
		s.keep(bobs, agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "bob"}, wrote("m4", 1, `"his"`), words("tea"))
		tea := func(room agent.MemoryRoom) string {
			q := asked(room.Scopes()...)
			q.Tokens = []string{"tea"}
			return s.recall(room, q)
		}
		for what, in := range map[string]agent.ForgetInput{
			"bob's": {ID: "f0", Room: alone, Record: "m4", By: "ada"}, "none": {ID: "f0", Room: alone, Record: "none", By: "ada"},
			"ada's": {ID: "f0", Room: bobs, Record: "m1", By: "bob"},
		} {
			_, err := s.memory.ForgetMemory(ctx, in, 10)
			s.want(what, errors.Is(err, db.ErrNotFound), true)
		}
		in := agent.ForgetInput{ID: "f1", Room: alone, Record: "m1", By: "ada"}
		step := s.forget(in)
		s.want("receipt", []any{step.Receipt.Records, step.Receipt.Versions, step.Receipt.Keywords, step.Receipt.Vectors, step.Receipt.Subject, step.Receipt.At.IsZero()}, "[1 1 1 1 ada false]")
		s.want("again", s.forget(in), step)
		in.Record = "m2"
		_, err := s.memory.ForgetMemory(ctx, in, 10)
		s.failed(err, db.ErrConflict, "")
		s.want("left", tea(alone), `m2.1 keyword "red"`)
		s.want("group", tea(deskOfBob), `m3.1 keyword "ours"`)
		all := s.forget(agent.ForgetInput{ID: "f2", Room: alone, By: "ada"})
		s.want("all", all.Receipt.Records, 2)
		s.want("nothing", tea(alone)+tea(deskOfBob), "")
		s.want("bob keeps his", tea(bobs), `m4.1 keyword "his"`)
		s.keep(alone, ofAda, wrote("m5", 1, `"new"`), words("tea"))
		s.want("remembers on", tea(alone), `m5.1 keyword "new"`)
	},
	"erasure": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`), words("tea"))
		s.keep(bobs, agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "bob"}, wrote("m2", 1, `"his"`), words("tea"))
		in := agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "ada"}
		step, err := s.memory.EraseSubject(ctx, in, 100)
		s.want("blocked", []any{step.Done, step.Blocked, err}, "[false open_run <nil>]")
		q := asked(ofAda)
		q.Tokens = []string{"tea"}
		_, err = s.memory.Recall(ctx, alone, q)
		s.failed(err, db.ErrErased, "")
		_, err = s.memory.ProposeMemory(ctx, candidate("c1"))
		s.failed(err, db.ErrErased, "")
		for _, user := range []agent.Scope{ada, bob} {
			s.do(user, func(tx activities.Tx) error {
				state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "talk of " + user.User, RunID: "r2", Day: today})
				s.want("erased", []any{user.User, state.Erased, err}, []any{user.User, user == ada, nil})
				return nil
			})
		}
		id := s.answer(r)
		state := s.closeRun(r, id, 1)
		s.do(ada, func(tx activities.Tx) error {
			return tx.MoveRun(state.Run, db.Move{To: agent.StatusSucceeded, Reason: agent.ReasonFinal, AnswerID: id})
		})
		for range 10 {
			if step, err = s.memory.EraseSubject(ctx, in, 100); err != nil || step.Done {
				break
			}
		}
		s.want("done", []any{step.Done, step.Receipt.Records, step.Receipt.KeysDestroyed, err}, "[true 1 true <nil>]")
		again, err := s.memory.EraseSubject(ctx, in, 100)
		s.want("again", []any{again, err}, []any{step, nil})
		his := asked(agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "bob"})
		his.Tokens = []string{"tea"}
		s.want("bob", s.recall(bobs, his), `m2.1 keyword "his"`)
	},
	"erasure waits for a write": func(s *subject) {
		r := s.approved()
		in := agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "ada"}
		step, err := s.memory.EraseSubject(ctx, in, 100)
		s.want("run", []any{step.Done, step.Blocked, err}, "[false open_run <nil>]")
		state := s.closeRun(r, "", 1)
		s.do(ada, func(tx activities.Tx) error {
			return tx.MoveRun(state.Run, db.Move{To: agent.StatusFailed, Reason: agent.ReasonOutcomeUnknown})
		})
		step, err = s.memory.EraseSubject(ctx, in, 100)
		s.want("write", []any{step.Done, step.Blocked, err}, "[false unsettled_write <nil>]")
	},
	"embedders": func(s *subject) {
		s.embedders()
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`), axis(0, "tea"))
		s.keep(alone, ofAda, wrote("m2", 1, `"red"`, func(r *db.MemoryRecord) { r.Key = "preference.colour" }), words("red"))
		missing := func(e db.MemoryEmbedder) string {
			list, err := s.memory.Unembedded(ctx, "acme", e, "", 10)
			if err != nil {
				s.Fatal(err)
			}
			var ids []string
			for _, r := range list {
				ids = append(ids, r.ID+string(r.Value))
			}
			return strings.Join(ids, " ")
		}
		s.want("without a vector", missing(flat), `m2"red"`)
		state, err := s.memory.Embedders(ctx, other)
		s.want("building", []any{state, err}, []any{db.EmbedderState{Serving: flat, Building: other}, nil})
		s.want("of the new one", missing(other), `m1"tea" m2"red"`)
		list, err := s.memory.Unembedded(ctx, "acme", other, "", 10)
		if err != nil {
			s.Fatal(err)
		}
		for _, r := range list {
			if err := s.memory.StoreVector(ctx, "acme", r, other, []float32{0, 0, 1}); err != nil {
				s.Fatal(err)
			}
		}
		s.want("computed", missing(other), "")
		for after, want := range map[string]string{"": "m1", "m1": "m2", "m2": ""} {
			list, err := s.memory.Unembedded(ctx, "acme", db.MemoryEmbedder{Name: "none", Dimensions: 3}, after, 1)
			s.want("behind "+after, []any{len(list), err, want != "" && list[0].ID == want}, []any{min(len(want), 1), nil, want != ""})
		}
		q := asked(ofAda)
		q.Embedder, q.Embedding = flat, []float32{1, 0, 0}
		s.want("the old one serves", s.recall(alone, q), `m1.1 vector "tea"`)
		state, err = s.memory.Embedders(ctx, db.MemoryEmbedder{})
		s.want("to look on", []any{state, err}, []any{db.EmbedderState{Serving: flat, Building: other}, nil})
		if _, err := s.memory.PromoteEmbedder(ctx, db.MemoryEmbedder{Name: "none", Dimensions: 3}, 10); err != nil {
			s.Fatal(err)
		}
		state, err = s.memory.Embedders(ctx, other)
		s.want("one that is not built", []any{state, err}, []any{db.EmbedderState{Serving: flat, Building: other}, nil})
		s.suggest(ofNoRun("c1")) // By its proposals a tenant is known.
		done, err := s.memory.PromoteEmbedder(ctx, other, 0)
		s.want("its vectors are there", []any{done, err}, "[false <nil>]")
		s.want("the retired one finds nothing", s.recall(alone, q), "")
		for range 10 {
			done, err := s.memory.PromoteEmbedder(ctx, other, 10)
			if err != nil {
				s.Fatal(err)
			}
			if done {
				break
			}
		}
		state, err = s.memory.Embedders(ctx, other)
		s.want("serving", []any{state, err}, []any{db.EmbedderState{Serving: other}, nil})
		s.want("the old one is gone", s.recall(alone, q), "")
		q.Embedder, q.Embedding = other, []float32{0, 0, 1}
		s.want("the new one finds", len(strings.Split(s.recall(alone, q), "; ")), 2)
	},
	"vectors": func(s *subject) {
		s.embedders()
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`), words("tea"))
		list, err := s.memory.Unembedded(ctx, "acme", flat, "", 10)
		if err != nil || len(list) != 1 {
			s.Fatal(list, err)
		}
		unit := []float32{0, 0, 1}
		for what, vector := range map[string][]float32{"another dimension": {0, 0, 0, 1}, "no direction": {0, 0, 0}, "none": nil} {
			s.want(what, errors.Is(s.memory.StoreVector(ctx, "acme", list[0], flat, vector), db.ErrEmbedding), true)
			if vector != nil {
				err := s.memory.InMemory(ctx, alone, ofAda, func(tx activities.MemoryTx) error {
					tx.StoreRecord(wrote("m2", 1, `"x"`, func(r *db.MemoryRecord) { r.Key = "key.x" }), db.MemoryIndex{Embedder: flat, Embedding: vector})
					return nil
				})
				s.want("with a record", errors.Is(err, db.ErrEmbedding), true)
			}
		}
		s.want("an embedder that is not known", s.memory.StoreVector(ctx, "acme", list[0], other, unit), nil)
		q := asked(ofAda)
		q.Embedder, q.Embedding = other, unit
		s.want("has no vectors", s.recall(alone, q), "")
		s.failed(s.memory.StoreVector(ctx, "globex", list[0], flat, unit), db.ErrConflict, "")
		s.replace(alone, ofAda, wrote("m1", 2, `"coffee"`), words("coffee"))
		s.failed(s.memory.StoreVector(ctx, "acme", list[0], flat, unit), db.ErrConflict, "")
		list[0].Version = 2
		s.want("the version in force", s.memory.StoreVector(ctx, "acme", list[0], flat, unit), nil)
		s.forget(agent.ForgetInput{ID: "f1", Room: alone, Record: "m1", By: "ada"})
		s.failed(s.memory.StoreVector(ctx, "acme", list[0], flat, unit), db.ErrConflict, "")
	},
	"reconciliation": func(s *subject) {
		s.begin(ada, "talk", "r1")
		s.queue(ada, func(tx activities.Tx) { tx.InsertLesson("r1") })
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`, func(r *db.MemoryRecord) { r.ExpiresAt = until(time.Hour) }), words("tea"))
		proposal := candidate("c1")
		proposal.RunID = "" // of an open run it would not be due
		if _, err := s.memory.ProposeMemory(ctx, proposal); err != nil {
			s.Fatal(err)
		}
		tenants, err := s.memory.MemoryTenants(ctx)
		s.want("tenants", []any{tenants, err}, "[[acme] <nil>]")
		soon, later := start.Add(time.Minute), start.Add(2*time.Hour)
		report, err := s.memory.ReconcileMemory(ctx, "acme", soon, start.Add(-time.Hour), 100)
		s.want("nothing is due", []any{report.Expired, report.Residue, len(report.Writes), len(report.Lessons), report.More, err}, "[0 0 0 0 false <nil>]")
		report, err = s.memory.ReconcileMemory(ctx, "acme", later, later, 100)
		if err != nil || len(report.Writes) != 1 || len(report.Lessons) != 1 {
			s.Fatalf("%+v, %v", report, err)
		}
		s.want("due", []any{report.Expired, report.Writes[0].ID, report.Writes[0].Room, report.Lessons[0].Run.RunID, report.Lessons[0].Room},
			[]any{1, "c1", alone, "r1", alone})
		q := asked(ofAda)
		q.Tokens = []string{"tea"}
		s.want("outlived", s.recall(alone, q), "")
	},
}
