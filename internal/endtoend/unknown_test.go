package endtoend

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
)

// TestWRITE5Unknown: what became of a write is looked up with the same key before
// anything else happens, and nothing is done twice.
func TestWRITE5Unknown(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	const approved = "plan 0.0/1 approved by bob, "
	for name, test := range map[string]struct {
		tool, mode string
		reason     agent.Reason
		record     string
		effects    int
		// lookUps are made, -1 for a tool that has none.
		lookUps int
	}{
		"a time-out after the effect": {
			"change", "timeout-after", agent.ReasonFinal,
			"write 0.0 performed by look_up, call 0.0 succeeded", 1, 1,
		},
		"a panic after the effect": {
			"change", "panic-after", agent.ReasonFinal,
			"write 0.0 performed by look_up, call 0.0 succeeded", 1, 1,
		},
		"lost on the way, done again with the same key": {
			"change", "once-timeout-before", agent.ReasonFinal,
			"write 0.0 performed by commit sent 2 times, call 0.0 succeeded", 1, 1,
		},
		"never known": {
			"change", "never-known", agent.ReasonOutcomeUnknown,
			"write 0.0 unknown, call 0.0 unknown", 0, 4, // look_up_tries
		},
		"no look-up, a time-out after the effect": {
			"send", "timeout-after", agent.ReasonOutcomeUnknown,
			"write 0.0 unknown, call 0.0 unknown", 1, -1,
		},
		"no look-up, a panic after the effect": {
			"send", "panic-after", agent.ReasonOutcomeUnknown,
			"write 0.0 unknown, call 0.0 unknown", 1, -1,
		},
		"no look-up, a time-out before the effect": {
			"send", "timeout-before", agent.ReasonOutcomeUnknown,
			"write 0.0 unknown, call 0.0 unknown", 0, -1,
		},
		"it promised that nothing happened": {
			"send", "refuse", agent.ReasonFinal,
			"write 0.0 not_performed by commit, call 0.0 failed failed", 0, -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			req := ask("changer", "call "+proposal(test.tool, changeArgs{Thing: "thing-" + test.mode + "-" + test.tool, To: "on", Mode: test.mode}))
			run := w.start(req)
			w.approve(req, bob)
			result := w.wait(run)
			if result.Reason != test.reason || result.Status != test.reason.Status() || len(result.Actions) != 1 {
				t.Fatalf("ended %+v", result)
			}
			want := agent.ToolErrorCode("")
			switch {
			case test.reason == agent.ReasonOutcomeUnknown:
				want = agent.ToolOutcomeUnknown
			case test.mode == "refuse":
				want = agent.ToolFailed
			}
			if got := result.Actions[0].Error; got != want {
				t.Errorf("the action has error %q, want %q", got, want)
			}
			w.wantRecord(req, approved+test.record)
			key := keyOf(req, "0.0", test.tool)
			if n := things.effects(key); n != test.effects {
				t.Errorf("%d effects, want %d", n, test.effects)
			}
			if n := things.lookUps(key); n != max(test.lookUps, 0) {
				t.Errorf("%d look-ups, want %d", n, test.lookUps)
			}
			w.checkWrites(req, things)
			w.checkLedger(t, req, result)
		})
	}
}

// TestWRITE5Settled: what stays unknown is settled by an operator, and by nobody
// else.
func TestWRITE5Settled(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	for name, test := range map[string]struct {
		mode      string
		performed bool
		record    string
	}{
		"performed":     {"timeout-after", true, "write 0.0 performed by operator, call 0.0 succeeded"},
		"not performed": {"timeout-before", false, "write 0.0 not_performed by operator, call 0.0 failed failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			req := ask("changer", "call "+proposal("send", changeArgs{Thing: test.mode, To: "on", Mode: test.mode}))
			run := w.start(req)
			w.approve(req, bob)
			if result := w.wait(run); result.Reason != agent.ReasonOutcomeUnknown {
				t.Fatalf("ended %+v", result)
			}
			office, ref := w.office(), approval.WriteRef{RunID: req.RunID, CallID: "0.0"}
			w.wantUnsettled(req, db.WriteUnknown)
			for _, who := range []approval.Approver{bob, ann, mallory, {Tenant: "umbrella", User: "olga"}} {
				_, err := office.Settle(w.ctx, w.client, who, ref, approval.Settlement{Performed: !test.performed})
				if !errors.Is(err, approval.ErrForbidden) && !errors.Is(err, approval.ErrNotFound) {
					t.Errorf("%s of %s may settle: %v", who.User, who.Tenant, err)
				}
			}
			office = w.decisive(req, ref, test.performed)
			settled, err := office.Settle(w.ctx, w.client, olga, ref, approval.Settlement{Performed: test.performed, Note: "seen in its log"})
			if err != nil || settled.Continues {
				t.Fatalf("settled %+v, %v", settled, err)
			}
			if _, err := office.Settle(w.ctx, w.client, olga, ref, approval.Settlement{Performed: !test.performed}); !errors.Is(err, approval.ErrDecided) {
				t.Errorf("it is settled twice: %v", err)
			}
			w.wantRecord(req, "plan 0.0/1 approved by bob, "+test.record)
			write := w.show(req).Writes[0]
			if write.SettledBy != "olga" || write.SettledNote != "seen in its log" {
				t.Errorf("the write is %+v", write)
			}
			// How the run ended stays: nobody knew then.
			if run := w.show(req).Run; run.Reason != agent.ReasonOutcomeUnknown || run.Status != agent.StatusFailed {
				t.Errorf("the run is %s, %s", run.Status, run.Reason)
			}
			w.checkWrites(req, things)
		})
	}
}

// decisive is the office at a time when what was sent cannot arrive any more.
// Before that it takes nobody's word for it that nothing will happen.
func (w *world) decisive(req agent.RunRequest, ref approval.WriteRef, performed bool) *approval.Office {
	w.Helper()
	if performed {
		return w.office()
	}
	if _, err := w.office().Settle(w.ctx, w.client, olga, ref, approval.Settlement{}); !errors.Is(err, approval.ErrUnderWay) {
		w.Errorf("what may be under way is settled as not performed: %v", err)
	}
	at := w.show(req).Writes[0].DecisiveAt
	return w.office(func(c *approval.Config) { c.Now = func() time.Time { return at } })
}

// wantUnsettled asks the office for the writes that olga may settle.
func (w *world) wantUnsettled(req agent.RunRequest, result db.WriteResult) {
	w.Helper()
	unsettled, err := w.office().Unsettled(w.ctx, olga)
	if err != nil {
		w.Fatal(err)
	}
	for _, write := range unsettled.Writes {
		if write.RunID == req.RunID {
			if write.Result != result || write.Key != keyOf(req, write.CallID, write.Tool) {
				w.Errorf("the office shows %+v", write)
			}
			return
		}
	}
	w.Errorf("the office does not show the write of run %s: %+v", req.RunID, unsettled)
}

// TestWRITE5SettledMeanwhile: an operator may know sooner than the next look-up
// of the run. The signal wakes it, and the run goes on with what was recorded.
func TestWRITE5SettledMeanwhile(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	for name, test := range map[string]struct {
		performed bool
		saw       string
		record    string
	}{
		"performed":     {true, `"recorded_by":"operator"`, "write 0.0 performed by operator, call 0.0 succeeded"},
		"not performed": {false, `"code":"failed"`, "write 0.0 not_performed by operator, call 0.0 failed failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			// steady asks again after 20 s.
			req := ask("steady", "call "+proposal("change", changeArgs{Thing: "lamp", To: "on", Mode: "never-known"}))
			run := w.start(req)
			w.approve(req, bob)
			key := keyOf(req, "0.0", "change")
			w.until("the first look-up found nothing out", func() bool {
				return things.lookUps(key) == 1 && w.view(req).WaitingFor == "the outcome of change (call 0.0)"
			})
			w.wantUnsettled(req, db.WriteOpen)
			office, ref := w.office(), approval.WriteRef{RunID: req.RunID, CallID: "0.0"}
			if _, err := office.Settle(w.ctx, w.client, bob, ref, approval.Settlement{Performed: test.performed}); !errors.Is(err, approval.ErrForbidden) {
				t.Errorf("bob may settle: %v", err)
			}
			office = w.decisive(req, ref, test.performed)
			began := time.Now()
			settled, err := office.Settle(w.ctx, w.client, olga, ref, approval.Settlement{Performed: test.performed})
			if err != nil || !settled.Continues || settled.SignalError != nil {
				t.Fatalf("settled %+v, %v", settled, err)
			}
			result := w.wait(run)
			if took := time.Since(began); result.Reason != agent.ReasonFinal || took > 10*time.Second {
				t.Errorf("ended %+v after %s", result, took)
			}
			if answer := w.show(req).Answer; !strings.Contains(answer, test.saw) {
				t.Errorf("the model saw %s", answer)
			}
			if n := things.lookUps(key); n != 1 {
				t.Errorf("%d look-ups: what an operator recorded is not asked for", n)
			}
			w.wantRecord(req, "plan 0.0/1 approved by bob, "+test.record)
			w.checkLedger(t, req, result)
		})
	}
}
