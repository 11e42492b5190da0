package endtoend

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/tool"
)

// TestWRITE6AuthorizedAgain: between the plan and the commit rights may be taken
// away, and the door may fail. In neither case is there an effect.
func TestWRITE6AuthorizedAgain(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	down := errors.New("the rights cannot be read: " + canary)
	const (
		final  = agent.ReasonFinal
		closed = agent.ReasonAuthorizationUnavailable
	)
	for name, test := range map[string]struct {
		args changeArgs
		page string
		// denied is what happens to the rights while a person decides.
		denied error
		// approved says that there is a plan to be approved.
		approved bool
		reason   agent.Reason
		record   string
	}{
		"a policy forbids the commit": {
			changeArgs{Thing: "late-night"}, "", nil, true, final, "plan 0.0/1 refused by bob, call 0.0 failed forbidden",
		},
		"the tool forbids what it allowed": {
			changeArgs{Thing: "taken"}, "", tool.ErrForbidden, true, final, "plan 0.0/1 refused by bob, call 0.0 failed forbidden",
		},
		"the tool forbids at the last moment": {
			changeArgs{Thing: "lamp", Mode: "tool-forbids-late"},
			"", nil, true, final,
			"plan 0.0/1 approved by bob, write 0.0 not_performed by commit, call 0.0 failed forbidden",
		},
		"the policies fail at the offer": {changeArgs{Thing: "lamp"}, "broken", nil, false, closed, ""},
		"the policies fail at the plan":  {changeArgs{Thing: "broken-prepare"}, "", nil, false, closed, "call 0.0 abandoned"},
		"the policies fail at the approval": {
			changeArgs{Thing: "broken-approve"}, "", nil, true, closed, "plan 0.0/1 withdrawn, call 0.0 abandoned",
		},
		"the policies fail at the commit": {
			changeArgs{Thing: "broken-commit"}, "", nil, true, closed, "plan 0.0/1 withdrawn, call 0.0 abandoned",
		},
		"the tool's rights fail at the plan": {
			changeArgs{Thing: "lamp", Mode: "tool-rights-down"}, "", nil, false, closed, "call 0.0 abandoned",
		},
		"the tool's rights fail before the commit": {
			changeArgs{Thing: "lost"}, "", down, true, closed, "plan 0.0/1 withdrawn, call 0.0 abandoned",
		},
		"the tool's rights fail at the last moment": {
			changeArgs{Thing: "lamp", Mode: "tool-rights-down-late"},
			"", nil, true, closed,
			"plan 0.0/1 approved by bob, write 0.0 not_performed by commit, call 0.0 failed forbidden",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			req := change(test.args)
			req.Page = test.page
			run := w.start(req)
			if test.approved {
				// The office asks the same policies, so this is the token of one who
				// has the key.
				plan, nonce := w.planned(req)
				if test.denied != nil {
					things.deny(test.args.Thing, test.denied)
				}
				w.signal(req, w.sign(claims(req, plan, nonce, nil)))
			}
			result := w.wait(run)
			if result.Reason != test.reason || result.Status != test.reason.Status() {
				t.Fatalf("ended %+v", result)
			}
			w.wantRecord(req, test.record)
			if n := things.effects(keyOf(req, "0.0", "change")); n != 0 {
				t.Errorf("%d effects", n)
			}
			if answer := w.show(req).Answer; test.reason == final && !strings.Contains(answer, `"code":"forbidden"`) {
				t.Errorf("the model saw %s", answer)
			}
			w.checkWrites(req, things)
			w.checkLedger(t, req, result)
		})
	}
}

// TestWRITE6Stale: what was confirmed holds for one version of the resource.
func TestWRITE6Stale(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	t.Run("changed while a person decides", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		req := change(changeArgs{Thing: "lamp", To: "on"})
		run := w.start(req)
		first := w.pending(req, bob)
		old := w.token(bob, first, approval.Approve)
		things.touch("lamp")
		w.signal(req, old.Text)
		w.until("it is planned anew", func() bool { return len(w.show(req).Plans) == 2 })
		second := w.pending(req, bob)
		if second.CallID != first.CallID || second.Revision != 2 || second.ResourceVersion != "v1" || second.Hash == first.Hash {
			t.Errorf("the second plan is %+v", second)
		}
		if status := w.status(req); status != agent.StatusWaitingConfirmation {
			t.Errorf("status %s", status)
		}
		// Neither the old token nor the old plan counts any more.
		w.signal(req, old.Text)
		if codes := w.awaitRefusals(req, 1); codes != string(agent.RefusedWrongPlan) {
			t.Errorf("refusals %s", codes)
		}
		if _, err := w.office().Approve(w.ctx, bob, first); !errors.Is(err, approval.ErrChanged) {
			t.Errorf("a token for a stale plan: %v", err)
		}
		w.wantRecord(req, "plan 0.0/1 stale by bob, plan 0.0/2 pending, call 0.0 proposed")
		w.approve(req, carol)
		if result := w.wait(run); result.Reason != agent.ReasonFinal || things.version("lamp") != "v2" {
			t.Errorf("ended %+v, the lamp is at %s", result, things.version("lamp"))
		}
		w.wantRecord(req, "plan 0.0/1 stale by bob, plan 0.0/2 approved by carol, write 0.0 performed by commit, call 0.0 succeeded")
		w.checkWrites(req, things)
	})
	t.Run("changed between check and commit", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		req := change(changeArgs{Thing: "radio", To: "on", Mode: "touched-between"})
		run := w.start(req)
		w.approve(req, bob)
		if result := w.wait(run); result.Reason != agent.ReasonFinal || result.Actions[0].Error != agent.ToolConflict {
			t.Errorf("ended %+v", result)
		}
		w.wantRecord(req, "plan 0.0/1 approved by bob, write 0.0 not_performed by commit, call 0.0 failed conflict")
		w.checkWrites(req, things)
	})
	t.Run("never at rest", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		req := change(changeArgs{Thing: "traffic", To: "on"})
		run := w.start(req)
		for revision := 1; revision <= 5; revision++ {
			plan, nonce := w.planned(req)
			if plan.Revision != revision {
				t.Fatalf("revision %d, want %d", plan.Revision, revision)
			}
			things.touch("traffic")
			w.signal(req, w.sign(claims(req, plan, nonce, nil)))
			w.until("the plan is stale", func() bool { return w.show(req).Plans[revision-1].Status == "stale" })
		}
		// Five plans are enough; the model is told.
		if result := w.wait(run); result.Reason != agent.ReasonFinal || result.Actions[0].Error != agent.ToolConflict {
			t.Errorf("ended %+v", result)
		}
		w.wantRecord(req, "plan 0.0/1 stale by bob, plan 0.0/2 stale by bob, plan 0.0/3 stale by bob, plan 0.0/4 stale by bob, plan 0.0/5 stale by bob, call 0.0 failed conflict")
		w.checkWrites(req, things)
	})
}
