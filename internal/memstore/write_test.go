package memstore_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

var (
	planHash = digest[:63] + "1"
	key      = digest[:63] + "2"
	otherKey = digest[:63] + "3"
)

// writeCall is a call of a write tool, numbered "<step>.<anything>".
func writeCall(id string) db.ToolCall {
	digits, _, _ := strings.Cut(id, ".")
	step, err := strconv.Atoi(digits)
	if err != nil {
		panic(err)
	}
	return db.ToolCall{
		ID: id, Step: step, ProviderCallID: "p" + id, Tool: "restart", ToolVersion: "1", Risk: "write",
		Arguments: `{"service":"payment-api"}`, ArgumentsHash: digest, Status: db.CallProposed,
	}
}

func writePlan(run, call string, revision int) db.WritePlan {
	return db.WritePlan{
		RunID: run, CallID: call, Revision: revision, Tool: "restart", ToolVersion: "1", ArgumentsHash: digest,
		Resource: "service/payment-api", ResourceVersion: "7", Summary: "Restart payment-api.", Hash: planHash, Nonce: "nonce",
		PolicyDigest: digest, CreatedAt: start, ExpiresAt: start.Add(10*time.Minute + 5*time.Nanosecond),
	}
}

func intent(call, key string, revision int) db.WriteIntent {
	return db.WriteIntent{
		Key: key, RunID: "r1", CallID: call, Revision: revision, ArgumentsHash: digest, ApprovedBy: "bob", PolicyDigest: digest, RecordedAt: start,
	}
}

// waiting is a run that waits with a plan.
func (s *subject) waiting() db.Run {
	s.Helper()
	r := s.begin(ada, "talk", "r1")
	s.do(ada, func(tx activities.Tx) error {
		tx.InsertToolCalls("r1", []db.ToolCall{writeCall("0.0"), writeCall("1.0")})
		tx.InsertPlan(writePlan("r1", "0.0", 1))
		return tx.MoveRun(r, db.Move{To: agent.StatusWaitingConfirmation, At: start})
	})
	return r
}

// approved is waiting, approved and sent.
func (s *subject) approved() db.Run {
	s.Helper()
	r := s.waiting()
	s.do(ada, func(tx activities.Tx) error {
		state, err := tx.HoldWrite(ctx, "r1", "0.0")
		if err != nil {
			return err
		}
		p := *state.Plan
		p.Status, p.DecidedBy, p.DecidedAt, p.TokenID = db.PlanApproved, "bob", start.Add(time.Minute), "token"
		tx.ClosePlan(p)
		tx.RecordIntent(intent("0.0", key, 1))
		tx.StartToolCall("r1", "0.0")
		return tx.MoveRun(state.Run, db.Move{To: agent.StatusRunning, At: start.Add(time.Minute)})
	})
	return r
}

var writeCases = map[string]func(*subject){
	"plan": func(s *subject) {
		r := s.waiting()
		read, err := s.Write(ctx, ada, "r1", "0.0")
		if err != nil {
			s.Fatal(err)
		}
		var held db.WriteState
		s.do(ada, func(tx activities.Tx) (err error) {
			held, err = tx.HoldWrite(ctx, "r1", "0.0")
			return err
		})
		for _, state := range []db.WriteState{read, held} {
			p := *state.Plan
			s.want("plan", []any{p.RunID, p.CallID, p.Revision, p.Resource, p.ResourceVersion, p.Summary, p.Nonce, p.Status, p.DecidedAt.IsZero()},
				"[r1 0.0 1 service/payment-api 7 Restart payment-api. nonce pending true]")
			s.want("expiry in microseconds", p.ExpiresAt, start.Add(10*time.Minute))
			s.want("call", []any{state.Call.Arguments, state.Call.Status, state.Intent == nil, state.Run.Status}, `[{"service":"payment-api"} proposed true waiting_confirmation]`)
		}
		state, err := s.Write(ctx, ada, "r1", "1.0")
		s.want("call without a plan", []any{err, state.Plan == nil, state.Intent == nil}, "[<nil> true true]")
		_, err = s.Write(ctx, ada, "r1", "9.9")
		s.failed(err, db.ErrNotFound, "")
		listed := s.report(r).Plans[0]
		s.want("listed without content", []any{listed.Summary, listed.Nonce, listed.Hash == planHash}, "[  true]")
	},
	"plan conflicts": func(s *subject) {
		r := s.waiting()
		s.fails(ada, db.ErrConflict, "write_plan_pkey", func(tx activities.Tx) { tx.InsertPlan(writePlan("r1", "0.0", 1)) })
		s.fails(ada, db.ErrConflict, "write_plan_pending_idx", func(tx activities.Tx) { tx.InsertPlan(writePlan("r1", "0.0", 2)) })
		s.fails(ada, db.ErrConflict, "write_plan_pending_idx", func(tx activities.Tx) { tx.InsertPlan(writePlan("r1", "1.0", 1)) })
		s.begin(ada, "talk", "r2")
		s.fails(ada, nil, "write_plan_call_fkey", func(tx activities.Tx) { tx.InsertPlan(writePlan("r2", "0.0", 1)) })
		for constraint, edit := range map[string]func(*db.WritePlan){
			"write_plan_resource_check":       func(p *db.WritePlan) { p.Resource = "" },
			"write_plan_summary_check":        func(p *db.WritePlan) { p.Summary = "" },
			"write_plan_hash_check":           func(p *db.WritePlan) { p.Hash = "h" },
			"write_plan_nonce_check":          func(p *db.WritePlan) { p.Nonce = "" },
			"write_plan_policy_digest_check":  func(p *db.WritePlan) { p.PolicyDigest = "" },
			"write_plan_arguments_hash_check": func(p *db.WritePlan) { p.ArgumentsHash = "" },
		} {
			s.fails(ada, nil, constraint, func(tx activities.Tx) {
				p := writePlan("r1", "1.0", 1)
				edit(&p)
				tx.InsertPlan(p)
			})
		}
		s.want("plans", len(s.report(r).Plans), 1)
	},
	"plans in order": func(s *subject) {
		r := s.waiting()
		p := writePlan("r1", "0.0", 1)
		p.Status, p.DecidedAt = db.PlanStale, start.Add(time.Minute)
		next := writePlan("r1", "0.0", 2)
		next.ResourceVersion, next.CreatedAt = "8", start.Add(time.Minute)
		s.queue(ada, func(tx activities.Tx) { tx.ClosePlan(p); tx.InsertPlan(next) })
		state, err := s.Write(ctx, ada, "r1", "0.0")
		s.want("the newest", []any{err, state.Plan.Revision, state.Plan.ResourceVersion, state.Plan.Status}, "[<nil> 2 8 pending]")
		plans := s.report(r).Plans
		s.want("listed", []any{plans[0].Status, plans[0].DecidedAt.Equal(start.Add(time.Minute)), plans[1].Status}, "[stale true pending]")
		p.Status = db.PlanExpired
		s.queue(ada, func(tx activities.Tx) { tx.ClosePlan(p) })
		s.want("closed once", s.report(r).Plans[0].Status, db.PlanStale)
	},
	"decisions": func(s *subject) {
		s.waiting()
		for constraint, edit := range map[string]func(*db.WritePlan){
			"write_plan_decider_check": func(p *db.WritePlan) { p.Status, p.TokenID = db.PlanApproved, "" },
			"write_plan_decided_check": func(p *db.WritePlan) { p.Status, p.DecidedBy, p.TokenID = db.PlanPending, "", "" },
			"write_plan_status_check":  func(p *db.WritePlan) { p.Status, p.DecidedBy, p.TokenID = "lost", "", "" },
		} {
			s.fails(ada, nil, constraint, func(tx activities.Tx) {
				p := writePlan("r1", "0.0", 1)
				p.DecidedBy, p.DecidedAt, p.TokenID = "bob", start, "token"
				edit(&p)
				tx.ClosePlan(p)
			})
		}
		s.fails(ada, nil, "write_plan_decider_check", func(tx activities.Tx) {
			p := writePlan("r1", "0.0", 1)
			p.Status, p.DecidedBy, p.DecidedAt, p.TokenID = db.PlanExpired, "bob", start, "token"
			tx.ClosePlan(p)
		})
	},
	"intent": func(s *subject) {
		r := s.approved()
		report := s.report(r)
		s.want("deadline after waiting", report.Run.Deadline.Equal(r.Deadline.Add(time.Minute)), true)
		s.want("plan", []any{report.Plans[0].Status, report.Plans[0].DecidedBy, report.Plans[0].TokenID}, "[approved bob token]")
		state, err := s.Write(ctx, ada, "r1", "0.0")
		i := *state.Intent
		s.want("intent", []any{err, i.Key == key, i.CallID, i.Revision, i.ApprovedBy, i.Result, i.ResolvedBy, i.Sends, i.RecordedAt.Equal(start), i.SentAt.Equal(start), i.ResolvedAt.IsZero()},
			"[<nil> true 0.0 1 bob open  1 true true true]")
		s.fails(ada, db.ErrConflict, "write_intent_pkey", func(tx activities.Tx) { tx.RecordIntent(intent("1.0", key, 1)) })
		s.fails(ada, db.ErrConflict, "write_intent_call_key", func(tx activities.Tx) { tx.RecordIntent(intent("0.0", otherKey, 1)) })
		s.fails(ada, nil, "write_intent_plan_fkey", func(tx activities.Tx) { tx.RecordIntent(intent("1.0", otherKey, 1)) })
		s.fails(ada, nil, "write_intent_key_check", func(tx activities.Tx) { tx.RecordIntent(intent("1.0", "key", 1)) })
		s.fails(ada, nil, "write_intent_approved_by_check", func(tx activities.Tx) {
			i := intent("1.0", otherKey, 1)
			i.ApprovedBy = ""
			tx.RecordIntent(i)
		})
		later := start.Add(time.Hour)
		s.queue(ada, func(tx activities.Tx) { tx.MarkSent(key, later, later); tx.MarkSent(otherKey, later, later) })
		s.queue(agent.Scope{Tenant: "umbrella", User: "ada", Environment: "production"}, func(tx activities.Tx) { tx.MarkSent(key, later, later) })
		sent := s.report(r).Writes[0]
		s.want("sent again", []any{sent.Sends, sent.SentAt.Equal(later)}, "[2 true]")
	},
	"resolution": func(s *subject) {
		r := s.approved()
		for constraint, res := range map[string]struct {
			result db.WriteResult
			by     db.ResolvedBy
		}{
			"write_intent_resolved_check":    {db.WritePerformed, ""},
			"write_intent_settled_check":     {db.WritePerformed, db.ByOperator},
			"write_intent_resolved_by_check": {db.WritePerformed, "guess"},
		} {
			s.fails(ada, nil, constraint, func(tx activities.Tx) { tx.ResolveIntent(key, res.result, res.by, start) })
		}
		s.queue(ada, func(tx activities.Tx) {
			tx.ResolveIntent(key, db.WritePerformed, db.ByLookUp, start.Add(time.Second))
			tx.ResolveIntent(key, db.WriteNotPerformed, db.ByCommit, start.Add(time.Minute))
			tx.MarkSent(key, start.Add(time.Hour), start.Add(time.Hour))
		})
		got := s.report(r).Writes[0]
		s.want("the first stays", []any{got.Result, got.ResolvedBy, got.ResolvedAt.Equal(start.Add(time.Second)), got.Sends}, "[performed look_up true 1]")
	},
	"unknown outcome": func(s *subject) {
		r := s.approved()
		state := s.closeRun(r, "none", 5)
		s.want("close", []any{state.UnknownWrites, state.Actions, state.ToolCalls}, "[1 [{0.0 restart outcome_unknown}] 1]")
		report := s.report(r)
		s.want("write", []any{report.Writes[0].Result, report.Writes[0].ResolvedBy, report.Writes[0].ResolvedAt.IsZero()}, "[unknown  false]")
		s.want("calls", []any{report.Calls()[0].Status, report.Calls()[1].Status}, "[unknown abandoned]")
		s.do(ada, func(tx activities.Tx) error {
			return tx.MoveRun(state.Run, db.Move{To: agent.StatusFailed, Reason: agent.ReasonOutcomeUnknown})
		})
		// It may still come to be known.
		var recorded bool
		s.queue(ada, func(tx activities.Tx) {
			tx.ResolveIntent(key, db.WritePerformed, db.ByCommit, start)
			tx.FinishToolCall("r1", "0.0", db.CallOutcome{Content: []byte("x"), ContentType: "text/plain", ResultHash: digest, StartedAt: start}, &recorded)
		})
		s.want("later", []any{recorded, s.report(r).Writes[0].Result, s.report(r).Calls()[0].Status}, "[true performed succeeded]")
	},
	"settlement": func(s *subject) {
		r := s.approved()
		at := start.Add(time.Hour)
		said := db.Settlement{Performed: true, By: "opa", Note: "seen in the log", At: at}
		_, err := s.settle(ctx, bob, "r1", "0.0", said)
		s.failed(err, db.ErrNotFound, "")
		_, err = s.settle(ctx, ada, "r1", "1.0", said)
		s.failed(err, db.ErrNotFound, "")
		_, err = s.settle(ctx, ada, "r1", "0.0", db.Settlement{At: at})
		s.failed(err, nil, "write_intent_settled_check")
		settled, err := s.settle(ctx, ada, "r1", "0.0", said)
		s.want("settled", []any{settled, err}, "[true <nil>]")
		settled, err = s.settle(ctx, ada, "r1", "0.0", db.Settlement{By: "eve", At: at})
		s.want("the first stays", []any{settled, err}, "[false <nil>]")
		w := s.report(r).Writes[0]
		s.want("write", []any{w.Result, w.ResolvedBy, w.SettledBy, w.SettledNote, w.ResolvedAt.Equal(at)}, "[performed operator opa seen in the log true]")
		s.want("the run looks for itself", s.report(r).Calls()[0].Status, db.CallRunning)
		state := s.closeRun(r, "none", 5)
		s.want("its end", []any{state.UnknownWrites, state.Actions, s.report(r).Calls()[0].Status}, "[0 [{0.0 restart }] succeeded]")
	},
	"settlement after the end": func(s *subject) {
		r := s.approved()
		s.closeRun(r, "none", 5)
		s.want("unknown", s.report(r).Calls()[0].Status, db.CallUnknown)
		settled, err := s.settle(ctx, ada, "r1", "0.0", db.Settlement{By: "opa", At: start})
		c := s.report(r).Calls()[0]
		s.want("settled", []any{settled, err, c.Status, c.Error.Code, s.report(r).Writes[0].Result}, "[true <nil> failed failed not_performed]")
		s.want("its end", s.closeRun(r, "none", 5).Actions, "[{0.0 restart failed}]")
	},
	"refusals": func(s *subject) {
		r := s.waiting()
		s.queue(ada, func(tx activities.Tx) {
			tx.RefuseApproval("r1", db.Refusal{Code: agent.RefusedMalformed})
			tx.RefuseApproval("r1", db.Refusal{CallID: "0.0", Code: agent.RefusedNotAuthorized, TokenID: "t", Approver: "eve"})
		})
		got := s.report(r).Refusals
		s.want("refusals", []any{got[0].Code, got[0].Approver, got[1].CallID, got[1].Code, got[1].TokenID, got[1].Approver, got[1].At.IsZero()},
			"[malformed  0.0 not_authorized t eve false]")
		s.fails(ada, nil, "approval_refusal_run_fkey", func(tx activities.Tx) { tx.RefuseApproval("nowhere", db.Refusal{Code: agent.RefusedMalformed}) })
		s.fails(ada, nil, "approval_refusal_code_check", func(tx activities.Tx) { tx.RefuseApproval("r1", db.Refusal{Code: "odd"}) })
	},
}
