package memstore_test

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// hold reads what is in force of a key without an identity.
func (s *subject) hold(room agent.MemoryRoom, scope agent.MemoryScope, key string) (list []db.MemoryRecord) {
	s.Helper()
	s.memo(room, scope, func(tx activities.MemoryTx) (err error) {
		list, err = tx.HoldIdentity(ctx, key, "")
		return err
	})
	return list
}

// replace puts a version in the place of what is in force of the key preference.food.
func (s *subject) replace(room agent.MemoryRoom, scope agent.MemoryScope, r db.MemoryRecord, index db.MemoryIndex) {
	s.Helper()
	s.memo(room, scope, func(tx activities.MemoryTx) error {
		list, err := tx.HoldIdentity(ctx, r.Key, "")
		for _, old := range list {
			tx.EndRecord(old, db.MemorySuperseded, "candidate:next", start)
		}
		tx.StoreRecord(r, index)
		return err
	})
}

func (s *subject) suggest(c db.MemoryCandidate) db.MemoryCandidate {
	s.Helper()
	stored, err := s.memory.ProposeMemory(ctx, c)
	if err != nil {
		s.Fatal(err)
	}
	return stored
}

func (s *subject) decide(id string, edit func(*db.MemoryCandidate)) error {
	return s.memory.InMemory(ctx, alone, ofAda, func(tx activities.MemoryTx) error {
		c, err := tx.HoldCandidate(ctx, id)
		if err == nil {
			edit(&c)
			tx.UpdateCandidate(c)
		}
		return err
	})
}

// state is what is on record of a candidate of ada's.
func (s *subject) state(id string) (c db.MemoryCandidate) {
	s.Helper()
	c, err := s.memory.MemoryCandidate(ctx, alone, id)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// memoryRecordCases are about what a transaction changes.
var memoryRecordCases = map[string]func(*subject){
	"last retraction": func(s *subject) {
		last := func(room agent.MemoryRoom, scope agent.MemoryScope, key, identity string) (at time.Time) {
			s.memo(room, scope, func(tx activities.MemoryTx) (err error) {
				if _, err = tx.HoldIdentity(ctx, key, identity); err == nil {
					var last db.Retraction
					if last, err = tx.LastRetraction(ctx, key, identity); !last.At.IsZero() && last.ValueHash != tx.Hash([]byte(`"tea"`)) {
						s.Errorf("%s was taken back", last.ValueHash)
					}
					at = last.At
				}
				return err
			})
			return at
		}
		const food = "preference.food"
		s.want("never", last(alone, ofAda, food, "").IsZero(), true)
		for i, id := range []string{"m1", "m2", "m3"} {
			s.keep(alone, ofAda, wrote(id, 1, `"tea"`), words("tea"))
			s.memo(alone, ofAda, func(tx activities.MemoryTx) error {
				list, err := tx.HoldIdentity(ctx, food, "")
				// The last one is no retraction.
				tx.EndRecord(list[0], []db.MemoryStatus{db.MemoryRetracted, db.MemoryRetracted, db.MemorySuperseded}[i], "ada", *until(time.Duration(i+1) * time.Minute))
				return err
			})
		}
		s.want("twice", last(alone, ofAda, food, "").Equal(*until(2 * time.Minute)), true)
		s.want("another identity", last(alone, ofAda, food, "x").IsZero(), true)
		s.want("another key", last(alone, ofAda, "preference.drink", "").IsZero(), true)
		s.want("another scope", last(alone, agent.MemoryScope{Kind: agent.MemoryOfAgent, ID: "helper"}, food, "").IsZero(), true)
		s.want("somebody else", last(bobs, agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "bob"}, food, "").IsZero(), true)
		s.forget(agent.ForgetInput{ID: "f1", Room: alone, Record: "m2", By: "ada"})
		s.want("of a tombstone nothing is known", last(alone, ofAda, food, "").Equal(*until(time.Minute)), true)
	},
	"said again is kept for longer": func(s *subject) {
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`, func(r *db.MemoryRecord) { r.ExpiresAt = until(time.Hour) }), words("tea"))
		s.keep(alone, ofAda, wrote("m2", 1, `"red"`, func(r *db.MemoryRecord) { r.Key = "preference.colour" }), words("red"))
		again := func(key string, at time.Duration, keep *time.Time) db.MemoryRecord {
			r := s.hold(alone, ofAda, key)[0]
			s.memo(alone, ofAda, func(tx activities.MemoryTx) error { tx.RepeatRecord(r, *until(at), keep); return nil })
			return s.hold(alone, ofAda, key)[0]
		}
		for _, c := range []struct {
			keep, want *time.Time
		}{{until(2 * time.Hour), until(2 * time.Hour)}, {until(90 * time.Minute), until(2 * time.Hour)}, {nil, until(2 * time.Hour)}} {
			r := again("preference.food", time.Minute, c.keep)
			s.want("until", []any{r.ExpiresAt.Equal(*c.want), r.RepeatedAt.Equal(*until(time.Minute))}, "[true true]")
		}
		r := again("preference.food", -time.Minute, nil)
		s.want("what was said before is not later", []any{r.Repeats, r.RepeatedAt.Equal(*until(time.Minute))}, "[4 true]")
		s.want("for ever", again("preference.colour", time.Minute, until(time.Hour)).ExpiresAt == nil, true)
		q := asked(ofAda)
		q.Tokens, q.Now = []string{"tea", "red"}, *until(90 * time.Minute)
		s.want("recalled", s.recall(alone, q), `m2.1 keyword "red"; m1.1 keyword "tea"`)
	},
	"records of elsewhere": func(s *subject) {
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`), words("tea"))
		r := s.hold(alone, ofAda, "preference.food")[0]
		role := agent.MemoryScope{Kind: agent.MemoryOfAgent, ID: "helper"}
		for what, change := range map[string]func(activities.MemoryTx){
			"end":    func(tx activities.MemoryTx) { tx.EndRecord(r, db.MemoryRetracted, "ada", start) },
			"repeat": func(tx activities.MemoryTx) { tx.RepeatRecord(r, start, nil) },
		} {
			err := s.memory.InMemory(ctx, alone, role, func(tx activities.MemoryTx) error { change(tx); return nil })
			s.want(what, errors.Is(err, db.ErrNotFound), true)
		}
		moved := r
		moved.Scope = role
		err := s.memory.InMemory(ctx, alone, role, func(tx activities.MemoryTx) error { tx.RepeatRecord(moved, start, nil); return nil })
		s.failed(err, db.ErrConflict, "")
		err = s.memory.InMemory(ctx, alone, ofAda, func(tx activities.MemoryTx) error {
			tx.StoreRecord(wrote("m2", 1, ""), db.MemoryIndex{})
			return nil
		})
		s.want("without a value", err == nil, false)
		room := alone
		room.Agent = "no name"
		_, err = s.memory.GivenMemories(ctx, room, "r1", start)
		s.failed(err, db.ErrScope, "")
		s.failed(s.memory.InMemory(ctx, room, ofAda, func(activities.MemoryTx) error { return nil }), db.ErrScope, "")
	},
	"decisions in part": func(s *subject) {
		s.begin(ada, "talk", "r1")
		s.suggest(candidate("c1"))
		wait := func(c *db.MemoryCandidate) { c.State, c.ExpiresAt = agent.MemoryWaitingReview, until(time.Hour) }
		s.failed(s.decide("c1", func(c *db.MemoryCandidate) { wait(c); c.ExpiresAt = nil }), nil, "memory_candidate_wait_check")
		s.want("waits", s.decide("c1", func(c *db.MemoryCandidate) { wait(c); c.Content, c.RunID, c.Writer, c.Tries = nil, "r9", "x", 7 }), nil)
		c := s.state("c1")
		s.want("the rest stays", []any{c.State, c.Content.Quote, c.RunID, c.Writer, c.Tries}, []any{agent.MemoryWaitingReview, "I like tea", "r1", "agent:helper@1", 0})
		s.failed(s.decide("c1", func(c *db.MemoryCandidate) { c.Scope = desk }), db.ErrNotFound, "")
		s.failed(s.decide("c1", func(c *db.MemoryCandidate) { c.ID = "none" }), db.ErrConflict, "")
		plain := candidate("c2")
		plain.RunID = ""
		s.suggest(plain)
		list, err := s.memory.RunCandidates(ctx, alone, "")
		s.want("of no run", []any{len(list), err}, "[0 <nil>]")
	},
	"given to whom": func(s *subject) {
		s.join(desk, "ada", true)
		s.join(desk, "bob", true)
		s.do(ada, func(tx activities.Tx) error {
			_, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "desk-talk", RunID: "r1", Group: "desk", Day: today})
			return err
		})
		s.begin(ada, "desk-talk", "r1")
		s.keep(inDesk, desk, wrote("m1", 1, `"ours"`), words("tea"))
		hit := db.RecallHit{Record: s.hold(inDesk, desk, "preference.food")[0], Via: "exact"}
		_, err := s.memory.GiveMemories(ctx, inDesk, "r1", []db.RecallHit{hit, hit})
		s.failed(err, db.ErrConflict, "memory_influence_pkey")
		n, err := s.memory.GiveMemories(ctx, inDesk, "r1", []db.RecallHit{hit})
		s.want("given", []any{n, err, s.given(inDesk, "r1", start)}, "[1 <nil> m1.1]")
		deskOfBob := inDesk
		deskOfBob.Scope, deskOfBob.Conversation = bob, "bobs-desk"
		s.want("to another participant's eyes", s.given(deskOfBob, "r1", start), "")
		s.queue(ada, func(tx activities.Tx) { tx.InsertLesson("r1") })
		recalled := func() (list []string) {
			source, err := s.memory.LessonSource(ctx, agent.RunRef{Scope: ada, RunID: "r1"})
			if err != nil {
				s.Fatal(err)
			}
			for _, r := range source.Recalled {
				list = append(list, r.ID+string(r.Value))
			}
			return list
		}
		s.replace(inDesk, desk, wrote("m1", 2, `"newer"`), words("tea"))
		s.want("not in force", s.given(inDesk, "r1", start), "")
		s.want("a lesson sees what it was", recalled(), `[m1"ours"]`)
		s.forget(agent.ForgetInput{ID: "f1", Room: inDesk, Record: "m1", By: "ada"})
		s.want("but for a tombstone", len(recalled()), 0)
	},
}
