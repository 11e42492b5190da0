package memstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/memstore"
)

var runCases = map[string]func(*subject){
	"begin": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		got := s.report(r).Run
		s.want("status", got.Status, agent.StatusRunning)
		s.want("version", got.Version, 2)
		s.want("generation", []int64{got.Generation, got.CurrentGeneration}, "[1 1]")
		s.want("budget", got.Budget, r.Budget)
		s.want("flags", got.Flags, r.Flags)
		s.want("deadline", got.Deadline.Equal(r.Deadline), true)
		s.want("times", []bool{got.CreatedAt.IsZero(), got.StartedAt.IsZero(), got.EndedAt.IsZero(), got.WaitingSince.IsZero()}, "[false false true true]")
		for i, want := range []string{"0 1  queued", "1 2 queued running"} {
			tr := s.report(r).Transitions[i]
			s.want("transition", []any{i, tr.Seq, tr.From, tr.To}, "["+want+"]")
		}
		second := s.begin(ada, "talk", "r2")
		s.want("second generation", second.Generation, 2)
		s.want("first is superseded", s.report(r).Run.Superseded(), true)
		s.do(bob, func(tx activities.Tx) error {
			state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "talk", RunID: "r1", Day: today})
			s.want("owner as stored", []string{state.Conversation.User, state.Conversation.Environment, state.Run.Scope.User}, "[ada production ada]")
			s.want("conversation", []int64{state.Conversation.Version, state.Conversation.Generation, state.Conversation.LastSeq}, "[2 2 2]")
			s.want("open", state.OpenRuns, "[{r1 1} {r2 2}]")
			return err
		})
	},
	"begin again": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.fails(ada, db.ErrConflict, "message_pkey", func(tx activities.Tx) { _, _ = open(tx, newRun(ada, "talk", "r1")) })
		again := newRun(ada, "talk", "r1")
		again.QuestionID = "another"
		s.fails(ada, db.ErrConflict, "run_pkey", func(tx activities.Tx) { _, _ = open(tx, again) })
		s.fails(ada, db.ErrConflict, "run_generation_key", func(tx activities.Tx) {
			again.ID, again.Generation = "r2", 1
			again.QuestionID = r.QuestionID
			tx.InsertRun(again)
		})
		s.want("generation is as before", s.report(r).Run.CurrentGeneration, 1)
		s.begin(agent.Scope{Tenant: "umbrella", User: "ada", Environment: "production"}, "talk", "r1")
	},
	"keyed hash": func(s *subject) {
		var first, other string
		s.do(ada, func(tx activities.Tx) error {
			first, other = tx.KeyedHash("yes"), tx.KeyedHash("no")
			r := newRun(ada, "talk", "r1")
			r.RequestHash = first
			_, err := open(tx, r)
			return err
		})
		s.do(ada, func(tx activities.Tx) error {
			state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "talk", RunID: "r1", Day: today})
			s.want("the same again", []any{state.Run.RequestHash == first, tx.KeyedHash("yes") == first, other == first, len(first)}, "[true true false 64]")
			return err
		})
	},
	"begin without parts": func(s *subject) {
		r := newRun(ada, "talk", "r1")
		r.Generation = 1
		s.fails(ada, nil, "run_definition_digest_fkey", func(tx activities.Tx) { tx.InsertRun(r) })
		s.fails(ada, nil, "run_conversation_fkey", func(tx activities.Tx) {
			tx.StoreDefinition(db.Definition{Digest: digest, Name: "n", Version: "1", Body: []byte("{}")})
			tx.InsertRun(r)
		})
		s.fails(ada, nil, "run_question_fkey", func(tx activities.Tx) {
			tx.StoreDefinition(db.Definition{Digest: digest, Name: "n", Version: "1", Body: []byte("{}")})
			_, _ = tx.LoadBegin(ctx, db.BeginQuery{Conversation: "talk", RunID: "r1", Day: today})
			tx.InsertRun(r)
		})
		s.fails(ada, nil, "run_max_steps_check", func(tx activities.Tx) { tx.InsertRun(db.Run{ID: "r", Generation: 1, RequestHash: digest}) })
		s.fails(ada, nil, "", func(tx activities.Tx) {
			tx.AppendMessage(&db.Conversation{ID: "talk"}, db.Message{ID: "m", Role: db.RoleUser, Visibility: db.Visible, Content: "NUL \x00"}, true)
		})
		s.fails(ada, nil, "message_conversation_fkey", func(tx activities.Tx) {
			tx.AppendMessage(&db.Conversation{ID: "nowhere"}, db.Message{ID: "m", Role: db.RoleUser, Visibility: db.Visible}, true)
		})
	},
	"admission": func(s *subject) {
		limits := db.Limits{MaxRunning: ptr(int64(2)), MaxRunningPerUser: ptr(int64(1))}
		admit := func(scope agent.Scope, id string) (admitted bool) {
			s.do(scope, func(tx activities.Tx) error {
				_, err := open(tx, newRun(scope, "talk-"+id, id))
				tx.AdmitRun(id, limits, &admitted)
				return err
			})
			return admitted
		}
		again := func(scope agent.Scope, id string) (admitted bool) {
			s.queue(scope, func(tx activities.Tx) { tx.AdmitRun(id, limits, &admitted) })
			return admitted
		}
		cat := agent.Scope{Tenant: "acme", User: "cat", Environment: "production"}
		s.want("ada's first", admit(ada, "r1"), true)
		s.want("ada's second", admit(ada, "r2"), false)
		s.want("bob's first", admit(bob, "r3"), true)
		s.want("the tenant is full", admit(cat, "r4"), false)
		s.want("admitted already", again(ada, "r1"), false)
		s.want("of another tenant", admit(agent.Scope{Tenant: "umbrella", User: "ada", Environment: "production"}, "r1"), true)
		s.do(ada, func(tx activities.Tx) error {
			state, err := tx.CloseRun(ctx, "r1", "none", 1)
			if err != nil {
				return err
			}
			return tx.MoveRun(state.Run, db.Move{To: agent.StatusCanceled, Reason: agent.ReasonCanceled})
		})
		s.want("a slot is free", again(ada, "r2"), true)
	},
	"slots": func(s *subject) {
		limits := db.Limits{MaxRunning: ptr(int64(1))}
		gone := newRun(ada, "talk-1", "r1")
		gone.Deadline = time.Now().Add(-agent.EndGrace - time.Minute)
		var admitted [3]bool
		for i, r := range []db.Run{gone, newRun(ada, "talk-2", "r2"), newRun(ada, "talk-3", "r3")} {
			s.do(ada, func(tx activities.Tx) error {
				_, err := open(tx, r)
				tx.AdmitRun(r.ID, limits, &admitted[i])
				return err
			})
		}
		s.want("one that outlived its deadline holds no slot", admitted, "[true true false]")
		waiting := s.report(newRun(ada, "", "r2")).Run
		s.do(ada, func(tx activities.Tx) error { return tx.MoveRun(waiting, db.Move{To: agent.StatusWaitingConfirmation}) })
		s.queue(ada, func(tx activities.Tx) { tx.AdmitRun("r3", limits, &admitted[2]) })
		s.want("one that waits for a person holds none", admitted[2], true)
	},
	"moves": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		var illegal *agent.TransitionError
		err := s.InTx(ctx, ada, func(tx activities.Tx) error { return tx.MoveRun(r, db.Move{To: agent.StatusQueued}) })
		s.want("back to queued", errors.As(err, &illegal), true)
		s.do(ada, func(tx activities.Tx) error {
			return tx.MoveRun(r, db.Move{To: agent.StatusFailed, Reason: agent.ReasonStepLimit, Detail: "d", Step: 3, ToolCalls: 4})
		})
		got := s.report(r).Run
		s.want("end", []any{got.Status, got.Reason, got.Detail, got.Step, got.ToolCalls, got.EndedAt.IsZero(), got.Version}, "[failed step_limit d 3 4 false 3]")
		s.failed(s.InTx(ctx, ada, func(tx activities.Tx) error {
			return tx.MoveRun(r, db.Move{To: agent.StatusCanceled, Reason: agent.ReasonCanceled})
		}), db.ErrConflict, db.ConstraintTransition)
		s.want("a terminal run does not change", s.report(r).Run.Reason, agent.ReasonStepLimit)
		err = s.InTx(ctx, ada, func(tx activities.Tx) error { return tx.MoveRun(got, db.Move{To: agent.StatusRunning}) })
		s.want("out of the end", errors.As(err, &illegal), true)
	},
	"move of nothing": func(s *subject) {
		r := newRun(ada, "talk", "r1")
		r.Status = agent.StatusRunning
		s.failed(s.InTx(ctx, ada, func(tx activities.Tx) error {
			return tx.MoveRun(r, db.Move{To: agent.StatusFailed, Reason: agent.ReasonInternal})
		}), nil, "run_transition_run_fkey")
	},
	"answer": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		s.failed(s.InTx(ctx, ada, func(tx activities.Tx) error {
			return tx.MoveRun(r, db.Move{To: agent.StatusSucceeded, Reason: agent.ReasonFinal, AnswerID: "nowhere"})
		}), nil, db.ConstraintAnswer)
		for _, m := range []db.Move{
			{To: agent.StatusSucceeded, Reason: agent.ReasonFinal}, {To: agent.StatusFailed, Reason: agent.ReasonCanceled}, {To: agent.StatusFailed},
		} {
			s.failed(s.InTx(ctx, ada, func(tx activities.Tx) error { return tx.MoveRun(r, m) }), nil, "run_end_reason_check")
		}
		id := s.answer(r)
		s.want("answered", s.closeRun(r, id, 1).Answered, true)
		s.do(ada, func(tx activities.Tx) error {
			return tx.MoveRun(r, db.Move{To: agent.StatusSucceeded, Reason: agent.ReasonFinal, AnswerID: id})
		})
		report := s.report(r)
		s.want("answer", report.Answer, "It is fine.")
		s.want("run", []any{report.Run.AnswerID, report.Run.Status}, "[answer-r1 succeeded]")
	},
	"waiting": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		since := start.Add(10 * time.Second)
		s.do(ada, func(tx activities.Tx) error {
			return tx.MoveRun(r, db.Move{To: agent.StatusWaitingConfirmation, At: since})
		})
		waiting := s.report(r).Run
		s.want("waits since", waiting.WaitingSince.Equal(since), true)
		s.want("deadline stands", waiting.Deadline.Equal(r.Deadline), true)
		until := since.Add(3*time.Hour + 7*time.Nanosecond)
		s.do(ada, func(tx activities.Tx) error { return tx.MoveRun(waiting, db.Move{To: agent.StatusRunning, At: until}) })
		running := s.report(r).Run
		s.want("waits no more", running.WaitingSince.IsZero(), true)
		s.want("deadline moved on", running.Deadline.Equal(r.Deadline.Add(3*time.Hour)), true)
		s.do(ada, func(tx activities.Tx) error {
			return tx.MoveRun(running, db.Move{To: agent.StatusWaitingConfirmation})
		})
		s.do(ada, func(tx activities.Tx) error {
			state, err := tx.CloseRun(ctx, "r1", "", 1)
			if err != nil {
				return err
			}
			return tx.MoveRun(state.Run, db.Move{To: agent.StatusCanceled, Reason: agent.ReasonSuperseded})
		})
		s.want("an end ends the wait", s.report(r).Run.WaitingSince.IsZero(), true)
	},
	"scopes": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		for _, scope := range []agent.Scope{{}, {Tenant: "acme", User: "ada"}, {Tenant: "acme", Environment: "production"}, {User: "ada", Environment: "production"}} {
			s.failed(s.InTx(ctx, scope, func(activities.Tx) error { return nil }), db.ErrScope, "")
			_, _, err := s.ToolCall(ctx, scope, "r1", "0.0")
			s.failed(err, db.ErrScope, "")
			_, err = s.Write(ctx, scope, "r1", "0.0")
			s.failed(err, db.ErrScope, "")
			_, _, err = s.ReadResult(ctx, scope, "r1", "0.0", 0, 1)
			s.failed(err, db.ErrScope, "")
		}
		s.queue(ada, func(tx activities.Tx) { tx.InsertToolCalls("r1", []db.ToolCall{writeCall("0.0")}) })
		for _, other := range []agent.Scope{bob, {Tenant: "acme", User: "ada", Environment: "test"}, {Tenant: "umbrella", User: "ada", Environment: "production"}} {
			_, err := s.show(ctx, other, "r1")
			s.failed(err, db.ErrNotFound, "")
			_, _, err = s.ToolCall(ctx, other, "r1", "0.0")
			s.failed(err, db.ErrNotFound, "")
			_, err = s.Write(ctx, other, "r1", "0.0")
			s.failed(err, db.ErrNotFound, "")
			for name, read := range map[string]func(activities.Tx) error{
				"step":  func(tx activities.Tx) error { _, err := tx.LoadStep(ctx, db.StepQuery{RunID: "r1"}); return err },
				"close": func(tx activities.Tx) error { _, err := tx.CloseRun(ctx, "r1", "", 1); return err },
				"hold":  func(tx activities.Tx) error { _, err := tx.HoldWrite(ctx, "r1", "0.0"); return err },
			} {
				err := s.InTx(ctx, other, read)
				if !errors.Is(err, db.ErrNotFound) {
					s.Errorf("%s for %+v: %v", name, other, err)
				}
			}
		}
		if _, err := s.show(ctx, agent.Scope{Tenant: "acme"}, "r1"); err != nil {
			s.Errorf("the operator's view: %v", err)
		}
		s.want("nothing was closed", s.report(r).Calls()[0].Status, db.CallProposed)
	},
	"rollback": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		stop := errors.New("stop")
		err := s.InTx(ctx, ada, func(tx activities.Tx) error {
			if _, err := open(tx, newRun(ada, "talk", "r2")); err != nil {
				return err
			}
			tx.StartAttempt("r1", db.Attempt{Number: 1, Model: "m", Provider: "p", Reserved: db.Amount{Tokens: 10}})
			tx.InsertToolCalls("r1", []db.ToolCall{writeCall("0.0")})
			tx.ReserveDaily(today, db.Amount{Tokens: 10}, db.Limits{})
			state, err := tx.CloseRun(ctx, "r1", "", 1)
			if err != nil {
				return err
			}
			s.want("seen inside", state.Totals.Usage.BilledTokens, 10)
			if err := tx.MoveRun(state.Run, db.Move{To: agent.StatusFailed, Reason: agent.ReasonInternal}); err != nil {
				return err
			}
			// Executes what is queued.
			if _, err := tx.LoadStep(ctx, db.StepQuery{RunID: "r1"}); err != nil {
				return err
			}
			return stop
		})
		s.want("error", err, stop)
		report := s.report(r)
		s.want("left", []any{report.Run.Status, report.Run.Version, report.Run.CurrentGeneration, len(report.Steps), len(report.Transitions)}, "[running 2 1 0 2]")
		_, err = s.show(ctx, ada, "r2")
		s.failed(err, db.ErrNotFound, "")
		s.do(ada, func(tx activities.Tx) error {
			state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "talk", RunID: "r3", Day: today})
			s.want("daily", state.Used.Tenant.Tokens, 0)
			s.want("messages", state.Conversation.LastSeq, 1)
			return err
		})
	},
	"a failed statement ends the transaction": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		err := s.InTx(ctx, ada, func(tx activities.Tx) error {
			tx.StartAttempt("r1", db.Attempt{Number: 1, Model: "m", Provider: "p"})
			tx.StartAttempt("r1", db.Attempt{Number: 1, Model: "m", Provider: "p"})
			if _, err := tx.LoadStep(ctx, db.StepQuery{RunID: "r1"}); !errors.Is(err, db.ErrConflict) {
				s.Errorf("read after it: %v", err)
			}
			return nil
		})
		s.failed(err, db.ErrConflict, "model_attempt_pkey")
		s.want("attempts", len(s.report(r).Attempts()), 0)
		err = s.InTx(ctx, ada, func(tx activities.Tx) error {
			tx.StartAttempt("r1", db.Attempt{Number: 1, Model: "m", Provider: "p"})
			_, err := tx.LoadStep(ctx, db.StepQuery{RunID: "nowhere"})
			s.failed(err, db.ErrNotFound, "")
			return nil
		})
		s.failed(err, db.ErrNotFound, "")
		s.want("attempts", len(s.report(r).Attempts()), 0)
	},
	"at the same time": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		const n = 8
		var wg sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			wg.Go(func() {
				errs[i] = s.InTx(ctx, ada, func(tx activities.Tx) error {
					if _, err := tx.LoadStep(ctx, db.StepQuery{RunID: "r1"}); err != nil {
						return err
					}
					tx.StartAttempt("r1", attempt(0, 1))
					tx.ReserveDaily(today, db.Amount{Tokens: 10}, db.Limits{})
					return nil
				})
			})
		}
		wg.Wait()
		committed := 0
		for _, err := range errs {
			if err == nil {
				committed++
			} else {
				s.failed(err, db.ErrConflict, "model_attempt_pkey")
			}
		}
		s.want("committed", []any{committed, len(s.report(r).Attempts()), s.usedToday().User.Tokens}, "[1 1 10]")
	},
	"contexts": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		done, cancel := context.WithCancel(ctx)
		cancel()
		start := func(tx activities.Tx) error {
			tx.StartAttempt("r1", db.Attempt{Number: 1, Model: "m", Provider: "p"})
			return nil
		}
		s.failed(s.InTx(done, ada, start), context.Canceled, "")
		late, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
		defer cancel()
		err := s.InTx(late, ada, start)
		s.failed(err, db.ErrUnavailable, "")
		s.failed(err, context.DeadlineExceeded, "")
		_, _, err = s.ToolCall(done, ada, "r1", "0.0")
		s.failed(err, context.Canceled, "")
		s.want("attempts", len(s.report(r).Attempts()), 0)
	},
	"definition": func(s *subject) {
		_, err := s.DefinitionBody(ctx, digest)
		s.failed(err, db.ErrNotFound, "")
		s.begin(ada, "talk", "r1")
		s.queue(ada, func(tx activities.Tx) {
			tx.StoreDefinition(db.Definition{Digest: digest, Name: "other", Version: "1", Body: []byte(`{"name": "other"}`)})
		})
		body, err := s.DefinitionBody(ctx, digest)
		if err != nil {
			s.Fatal(err)
		}
		s.want("the first stays", string(body), `{"name": "helper"}`)
		s.fails(ada, nil, "agent_definition_digest_check", func(tx activities.Tx) { tx.StoreDefinition(db.Definition{Digest: "x", Body: []byte("{}")}) })
		s.fails(ada, nil, "", func(tx activities.Tx) {
			tx.StoreDefinition(db.Definition{Digest: digest[:63] + "0", Body: []byte("{")})
		})
	},
}

// TestPanicLeavesNothing is for memory alone: PostgreSQL's connection dies with
// its transaction.
func TestPanicLeavesNothing(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	func() {
		defer func() { _ = recover() }()
		_ = s.InTx(ctx, ada, func(tx activities.Tx) error {
			if _, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "talk", RunID: "r1", Day: today}); err != nil {
				t.Error(err)
			}
			panic("stop")
		})
	}()
	err := s.InTx(ctx, bob, func(tx activities.Tx) error {
		state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "talk", RunID: "r1", Day: today})
		if state.Conversation.User != "bob" {
			t.Errorf("the conversation is %s's", state.Conversation.User)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWaitForTurnEnds: a caller does not wait for a transaction longer than its
// context lasts.
func TestWaitForTurnEnds(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	err := s.InTx(ctx, ada, func(activities.Tx) error {
		limited, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		return s.InTx(limited, ada, func(activities.Tx) error { return nil })
	})
	if !errors.Is(err, db.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

// TestClock: everything is stamped by the clock that was given.
func TestClock(t *testing.T) {
	t.Parallel()
	now := start.Add(1000 * time.Hour)
	s := memstore.New(func() time.Time { return now })
	sub := &subject{TB: t, Store: s, show: s.ShowRun}
	r := newRun(ada, "talk", "r1")
	r.Deadline = now.Add(time.Minute)
	var admitted bool
	sub.do(ada, func(tx activities.Tx) (err error) {
		r, err = open(tx, r)
		tx.AdmitRun("r1", db.Limits{}, &admitted)
		return err
	})
	r.Status, r.Version = agent.StatusRunning, 2
	now = now.Add(time.Second)
	sub.do(ada, func(tx activities.Tx) error { return tx.MoveRun(r, db.Move{To: agent.StatusWaitingConfirmation}) })
	report := sub.report(r)
	if !report.Run.StartedAt.Equal(now.Add(-time.Second)) || !report.Run.WaitingSince.Equal(now) || !report.Transitions[2].At.Equal(now) {
		t.Fatalf("%+v", report)
	}
}

// TestInspection is for tests that look on.
func TestInspection(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	sub := &subject{TB: t, Store: s, show: s.ShowRun}
	r := sub.waiting()
	sub.queue(ada, func(tx activities.Tx) {
		tx.StartAttempt("r1", attempt(0, 1))
		tx.StartAttempt("r1", attempt(1, 1))
		_ = tx.FinishAttempt("r1", billed(attempt(0, 1), 30, 7), nil)
	})
	messages := s.Messages("acme", "talk")
	sub.want("messages", []any{len(messages), messages[0].Content, len(s.Messages("acme", "none")), len(s.Messages("umbrella", "talk"))}, "[1 What is r1? 0 0]")
	var ledger []any
	for _, e := range s.Ledger("acme", r.ID) {
		ledger = append(ledger, e.Step, e.Kind, e.Amount.Tokens, *e.Amount.CostMicros, e.UsageKnown)
	}
	sub.want("ledger", ledger, "[0 reserve 100 50 false 0 settle 30 7 true 1 reserve 100 50 false]")
	plan, call, ok := s.PendingPlan("acme", r.ID)
	sub.want("pending", []any{ok, plan.Summary, call.Arguments}, `[true Restart payment-api. {"service":"payment-api"}]`)
	plan.Status, plan.DecidedAt = db.PlanExpired, start
	sub.queue(ada, func(tx activities.Tx) { tx.ClosePlan(plan) })
	_, _, ok = s.PendingPlan("acme", r.ID)
	sub.want("pending", ok, false)
	plan, ok = s.Plan("acme", r.ID, "0.0", 1)
	sub.want("plan", []any{ok, plan.Status, plan.Summary}, "[true expired Restart payment-api.]")
	stored, ok := s.Call("acme", r.ID, "1.0")
	sub.want("call", []any{ok, stored.ProviderCallID}, "[true p1.0]")
	_, ok = s.Call("acme", r.ID, "9.9")
	sub.want("no call", ok, false)
}
