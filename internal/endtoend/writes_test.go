package endtoend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/interceptor"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/internal/rig"
	"github.com/fairlead/fairlead/tool"
)

// The tests named after WRITE-1 to WRITE-7 show each of these requirements on
// the real server. What is hostile is in attacks_test.go.

// TestWRITE1Prepare: prepare makes a plan and changes nothing, and the approver
// sees exactly what will be done.
func TestWRITE1Prepare(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	t.Run("plan", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		// The model writes its arguments in its own order and spacing.
		req := ask("changer", `call change { "to" : "on", "thing":"lamp" }`)
		run := w.start(req)
		plan := w.pending(req, bob)
		const arguments = `{"thing":"lamp","to":"on"}`
		sum := sha256.Sum256([]byte(arguments))
		if string(plan.Arguments) != arguments || plan.ArgumentsHash != hex.EncodeToString(sum[:]) {
			t.Errorf("arguments %s with hash %s", plan.Arguments, plan.ArgumentsHash)
		}
		if plan.Tool != "change" || plan.ToolVersion != "1" || plan.Resource != "thing/lamp" || plan.ResourceVersion != "v0" ||
			plan.Summary != "Sets thing lamp to on." || plan.Requester != "ann" || plan.Request != req.Message || plan.Revision != 1 {
			t.Errorf("the plan is %+v", plan)
		}
		if life := plan.ExpiresAt.Sub(plan.CreatedAt); life != time.Hour {
			t.Errorf("the plan lives %s", life)
		}
		hash, err := approval.PlanHash(approval.PlanFacts{
			Tenant: "acme", RunID: req.RunID, CallID: "0.0", Revision: 1, Tool: "change", ToolVersion: "1", Arguments: []byte(arguments),
			Resource: "thing/lamp", ResourceVersion: "v0", Summary: "Sets thing lamp to on.", ExpiresAt: plan.ExpiresAt, Nonce: w.nonceOf(req),
		})
		if err != nil || plan.Hash != hash {
			t.Errorf("hash %s, %v, made from what the person sees it is %s", plan.Hash, err, hash)
		}
		w.wantRecord(req, "plan 0.0/1 pending, call 0.0 proposed")
		if status, view := w.status(req), w.view(req); status != agent.StatusWaitingConfirmation || view.Status != status ||
			!strings.HasPrefix(view.WaitingFor, "a person to confirm change (call 0.0) until ") {
			t.Errorf("status %s, view %+v", status, view)
		}
		if n := things.effects(keyOf(req, "0.0", "change")); n != 0 {
			t.Errorf("%d effects of a plan", n)
		}
		w.approve(req, bob)
		w.wait(run)
	})
	for name, test := range map[string]struct {
		args   changeArgs
		page   string
		code   string
		record string
	}{
		"the tool refuses to plan":    {changeArgs{Thing: "lamp", Mode: "no-plan"}, "", "not_found", "call 0.0 failed not_found"},
		"the tool's rights refuse":    {changeArgs{Thing: "lamp", Mode: "tool-forbids"}, "", "forbidden", "call 0.0 failed forbidden"},
		"a policy refuses the object": {changeArgs{Thing: "closed-shop"}, "", "forbidden", "call 0.0 failed forbidden"},
		"a policy does not offer it":  {changeArgs{Thing: "lamp"}, "kiosk", "unknown_tool", "call 0.0 refused unknown_tool"},
		"the arguments do not fit":    {changeArgs{Thing: "no such form"}, "", "invalid_arguments", "call 0.0 refused invalid_arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			req := change(test.args)
			req.Page = test.page
			if result := w.run(req); result.Reason != agent.ReasonFinal {
				t.Fatalf("ended %+v", result)
			}
			w.wantRecord(req, test.record)
			if answer := w.show(req).Answer; !strings.Contains(answer, `"code":"`+test.code+`"`) {
				t.Errorf("the model saw %s", answer)
			}
		})
	}
}

// TestWRITE2Confirm: a person decides, who is authorized for it, and the model
// sees what was decided.
func TestWRITE2Confirm(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	for name, test := range map[string]struct {
		thing    string
		approver approval.Approver
		decision approval.Decision
		saw      string
		record   string
	}{
		"another person approves":    {"lamp", bob, approval.Approve, `"version":"v1"`, "plan 0.0/1 approved by bob, write 0.0 performed by commit, call 0.0 succeeded"},
		"the requester approves":     {"radio", ann, approval.Approve, `"version":"v1"`, "plan 0.0/1 approved by ann, write 0.0 performed by commit, call 0.0 succeeded"},
		"a person declines":          {"heater", bob, approval.Decline, `"code":"declined"`, "plan 0.0/1 declined by bob, call 0.0 failed declined"},
		"four eyes, the second pair": {"vault-1", carol, approval.Approve, `"version":"v1"`, "plan 0.0/1 approved by carol, write 0.0 performed by commit, call 0.0 succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			req := change(changeArgs{Thing: test.thing, To: "on"})
			run := w.start(req)
			plan := w.pending(req, bob)
			if test.thing == "vault-1" {
				if _, err := w.office().Approve(w.ctx, ann, plan); !errors.Is(err, approval.ErrForbidden) {
					t.Errorf("the requester is given a token: %v", err)
				}
			}
			if _, err := w.office().Approve(w.ctx, mallory, plan); !errors.Is(err, approval.ErrForbidden) {
				t.Errorf("mallory is given a token: %v", err)
			}
			token := w.token(test.approver, plan, test.decision)
			if life := time.Until(token.ExpiresAt); life > approval.DefaultTTL {
				t.Errorf("the token lives %s", life)
			}
			w.signal(req, token.Text)
			result := w.wait(run)
			if result.Reason != agent.ReasonFinal || len(w.refusals(req)) != 0 {
				t.Fatalf("ended %+v with refusals %v", result, w.refusals(req))
			}
			w.wantRecord(req, test.record)
			if answer := w.show(req).Answer; !strings.Contains(answer, test.saw) {
				t.Errorf("the model saw %s", answer)
			}
			outcome, err := w.office().Outcome(w.ctx, test.approver, token)
			if err != nil || outcome.Standing != approval.Accepted || outcome.DecidedBy != test.approver.User {
				t.Errorf("the office says %+v, %v", outcome, err)
			}
			w.checkWrites(req, things)
			w.checkLedger(t, req, result)
		})
	}
}

// TestWRITE2ProposedAgain: decline and expiry are observations. The model may
// propose the same again, which needs a plan and a confirmation of its own.
func TestWRITE2ProposedAgain(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	again := proposal("change", changeArgs{Thing: "lamp", To: "on"}) + "\n" + proposal("change", changeArgs{Thing: "lamp", To: "on"})
	t.Run("after a decline", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		req := ask("changer", "one-by-one "+again)
		run := w.start(req)
		declined := w.pending(req, bob)
		old := w.token(bob, declined, approval.Approve)
		w.signal(req, w.token(bob, declined, approval.Decline).Text)
		w.until("it is proposed again", func() bool { return len(w.show(req).Plans) == 2 })
		if plan := w.pending(req, bob); plan.CallID != "1.0" || plan.Revision != 1 || plan.Hash == declined.Hash || plan.ArgumentsHash != declined.ArgumentsHash {
			t.Errorf("the second plan is %+v", plan)
		}
		w.signal(req, old.Text)
		if codes := w.awaitRefusals(req, 1); codes != string(agent.RefusedWrongCall) {
			t.Errorf("refusals %s", codes)
		}
		w.approve(req, carol)
		if result := w.wait(run); result.Reason != agent.ReasonFinal || result.Actions[0].Error != agent.ToolDeclined || result.Actions[1].Error != "" {
			t.Errorf("ended %+v", result)
		}
		w.wantRecord(req, "plan 0.0/1 declined by bob, plan 1.0/1 approved by carol, write 1.0 performed by commit, call 0.0 failed declined, call 1.0 succeeded")
		w.checkWrites(req, things)
	})
	t.Run("after expiry", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		// hasty has 5 s for itself. It waits 3 s for people, twice, which does not
		// count: its deadline moves on by as long as it waited.
		req := ask("hasty", "one-by-one "+proposal("change", changeArgs{Thing: "radio", To: "on"})+"\n"+proposal("send", changeArgs{Thing: "radio", To: "on"}))
		began := time.Now()
		result := w.run(req)
		if took := time.Since(began); result.Reason != agent.ReasonFinal || took < 6*time.Second {
			t.Errorf("ended %+v after %s", result, took)
		}
		w.wantRecord(req, "plan 0.0/1 expired, plan 1.0/1 expired, call 0.0 failed not_confirmed, call 1.0 failed not_confirmed")
		if answer := w.show(req).Answer; strings.Count(answer, `"code":"not_confirmed"`) != 2 {
			t.Errorf("the model saw %s", answer)
		}
		report := w.show(req)
		waited := time.Duration(0)
		for _, p := range report.Plans {
			waited += p.DecidedAt.Sub(p.CreatedAt)
		}
		// Plans and waits do not begin and end in the same instant.
		if moved := report.Run.Deadline.Sub(report.Run.CreatedAt) - 5*time.Second; (moved-waited).Abs() > 500*time.Millisecond || waited < 6*time.Second {
			t.Errorf("the deadline moved by %s while people were waited for %s", moved, waited)
		}
	})
}

// twice executes each activity of a write a second time, as Temporal does when
// the first result did not arrive.
type twice struct {
	interceptor.WorkerInterceptorBase
}

func (*twice) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	a := &twiceInbound{}
	a.Next = next
	return a
}

type twiceInbound struct {
	interceptor.ActivityInboundInterceptorBase
}

func (a *twiceInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if _, err := a.Next.ExecuteActivity(ctx, in); err != nil {
		return nil, err
	}
	return a.Next.ExecuteActivity(ctx, in)
}

// TestWRITE3Idempotency: one key, one effect, and the recorded result for
// whoever asks again. That another hash under the same key is a conflict is
// shown in package activities.
func TestWRITE3Idempotency(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, func(c *rig.Config) { c.Interceptors = append(c.Interceptors, &twice{}) })
	req := ask("changer", "one-by-one "+proposal("change", changeArgs{Thing: "lamp", To: "on"})+"\n"+proposal("change", changeArgs{Thing: "lamp", To: "off"}))
	run := w.start(req)
	w.approve(req, bob)
	w.until("the second write is planned", func() bool { return len(w.show(req).Plans) == 2 })
	w.approve(req, bob)
	result := w.wait(run)
	if result.Reason != agent.ReasonFinal || result.ToolCalls != 2 {
		t.Fatalf("ended %+v", result)
	}
	w.wantRecord(req, "plan 0.0/1 approved by bob, plan 1.0/1 approved by bob, write 0.0 performed by commit, write 1.0 performed by commit, call 0.0 succeeded, call 1.0 succeeded")
	for i, write := range w.show(req).Writes {
		if want := keyOf(req, write.CallID, "change"); write.Key != want || things.effects(want) != 1 {
			t.Errorf("write %d has key %s, not %s, and %d effects", i, write.Key, want, things.effects(want))
		}
	}
	if things.total() != 2 {
		t.Errorf("%d effects in all", things.total())
	}
	if n := w.number("SELECT count(*) FROM tool_result WHERE run_id = $1", req.RunID); n != 2 {
		t.Errorf("%d results", n)
	}
	w.checkLedger(t, req, result)
}

// TestWRITE4Order: the intent is on record before the tool is called, the result
// before the model sees it.
func TestWRITE4Order(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	req := change(changeArgs{Thing: "lamp", To: "on", Mode: "hold"})
	run := w.start(req)
	w.approve(req, bob)
	<-things.entered
	// The tool has been called, and has done nothing.
	w.wantRecord(req, "plan 0.0/1 approved by bob, write 0.0 open, call 0.0 running")
	if status := w.status(req); status != agent.StatusRunning || things.total() != 0 {
		t.Errorf("status %s with %d effects", status, things.total())
	}
	if n := w.number("SELECT count(*) FROM tool_call WHERE run_id = $1 AND envelope IS NOT NULL", req.RunID); n != 0 {
		t.Error("the model is told of a write that has not happened")
	}
	close(things.release)
	w.wait(run)
	w.wantRecord(req, "plan 0.0/1 approved by bob, write 0.0 performed by commit, call 0.0 succeeded")
	report := w.show(req)
	write, call, next := report.Writes[0], report.Calls()[0], report.AttemptsByStep()[1][0]
	if write.ResolvedAt.Before(write.RecordedAt) || next.StartedAt.Before(call.EndedAt) {
		t.Errorf("intent %s, result %s, call ended %s, next model call %s", write.RecordedAt, write.ResolvedAt, call.EndedAt, next.StartedAt)
	}
	w.checkWrites(req, things)
}

// TestWRITE7Compensation: undoing is another write, with a plan, a confirmation
// and an authorization of its own.
func TestWRITE7Compensation(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	start := func(thing string) (agent.RunRequest, func() agent.RunResult) {
		req := ask("changer", "one-by-one "+proposal("change", changeArgs{Thing: thing, To: "on"})+"\n"+proposal("send", changeArgs{Thing: thing, To: "off"}))
		run := w.start(req)
		done := w.approve(req, bob)
		w.until("undoing is planned", func() bool { return len(w.show(req).Plans) == 2 })
		if plan := w.pending(req, carol); plan.Tool != "send" || plan.ResourceVersion != "v1" {
			t.Errorf("the plan to undo is %+v", plan)
		}
		// The confirmation of what is undone is none for undoing it.
		w.signal(req, done.Text)
		if codes := w.awaitRefusals(req, 1); codes != string(agent.RefusedWrongCall) {
			t.Errorf("refusals %s", codes)
		}
		return req, func() agent.RunResult { return w.wait(run) }
	}
	req, wait := start("lamp")
	w.approve(req, carol)
	if result := wait(); result.Reason != agent.ReasonFinal || things.version("lamp") != "v2" {
		t.Errorf("ended %+v, the lamp is at %s", result, things.version("lamp"))
	}
	w.wantRecord(req, "plan 0.0/1 approved by bob, plan 1.0/1 approved by carol, write 0.0 performed by commit, write 1.0 performed by commit, call 0.0 succeeded, call 1.0 succeeded")
	w.checkWrites(req, things)

	// Rights that held for the write need not hold for undoing it.
	req, wait = start("radio")
	things.deny("radio", tool.ErrForbidden)
	w.approve(req, carol)
	if result := wait(); result.Reason != agent.ReasonFinal || things.version("radio") != "v1" {
		t.Errorf("ended %+v, the radio is at %s", result, things.version("radio"))
	}
	w.wantRecord(req, "plan 0.0/1 approved by bob, plan 1.0/1 refused by carol, write 0.0 performed by commit, call 0.0 succeeded, call 1.0 failed forbidden")
	w.checkWrites(req, things)
}
