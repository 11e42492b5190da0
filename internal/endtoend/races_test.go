package endtoend

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/internal/rig"
)

// together sends tokens at the same time. It counts those whose sender was told
// that the run had ended by another one of them.
func (w *world) together(req agent.RunRequest, tokens ...string) (late int64) {
	w.Helper()
	var sent sync.WaitGroup
	var tooLate atomic.Int64
	for _, token := range tokens {
		sent.Go(func() {
			err := w.client.SignalWorkflow(w.ctx, agent.WorkflowID(req.Tenant, req.RunID), "", agent.SignalApproval, agent.Approval{Token: token})
			var ended *serviceerror.NotFound
			switch {
			case errors.As(err, &ended):
				tooLate.Add(1)
			case err != nil:
				w.Error(err)
			}
		})
	}
	sent.Wait()
	return tooLate.Load()
}

// TestOneTokenWins: whatever arrives at once or again, one token decides and one
// effect follows. Each of the others is on record, or its sender was told that
// the run had ended.
func TestOneTokenWins(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	for name, tokens := range map[string]func(*world, approval.Plan) []string{
		"one token twice": func(w *world, p approval.Plan) []string {
			token := w.token(bob, p, approval.Approve).Text
			return []string{token, token}
		},
		"one token twenty times": func(w *world, p approval.Plan) []string {
			return strings.Fields(strings.Repeat(w.token(bob, p, approval.Approve).Text+" ", 20))
		},
		"twenty tokens of one approver": func(w *world, p approval.Plan) (all []string) {
			for range 20 {
				all = append(all, w.token(bob, p, approval.Approve).Text)
			}
			return all
		},
		"two approvers": func(w *world, p approval.Plan) []string {
			return []string{w.token(bob, p, approval.Approve).Text, w.token(carol, p, approval.Approve).Text}
		},
		"yes and no": func(w *world, p approval.Plan) []string {
			return []string{w.token(bob, p, approval.Approve).Text, w.token(carol, p, approval.Decline).Text}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			req := change(changeArgs{Thing: strings.ReplaceAll(name, " ", "-"), To: "on"})
			run := w.start(req)
			all := tokens(w, w.pending(req, bob))
			late := int(w.together(req, all...))
			result := w.wait(run)
			want := 1
			if result.Actions[0].Error == agent.ToolDeclined {
				want = 0
			}
			if n := things.effects(keyOf(req, "0.0", "change")); result.Reason != agent.ReasonFinal || n != want || want == 0 && name != "yes and no" {
				t.Errorf("ended %+v with %d effects", result, n)
			}
			refused := w.refusals(req)
			for _, code := range refused {
				if code != string(agent.RefusedUsed) {
					t.Errorf("refusals %v", refused)
				}
			}
			if n := len(refused) + late; n != len(all)-1 {
				t.Errorf("of %d tokens %d were refused, want all but one", len(all), n)
			}
			w.checkWrites(req, things)
		})
	}
}

// held delays the result of an activity until it is released: the work is done,
// and the workflow has not heard of it.
type held struct {
	interceptor.WorkerInterceptorBase
	activity string
	// done is told that the work is done.
	done, release chan struct{}
}

func (h *held) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	a := &heldInbound{held: h}
	a.Next = next
	return a
}

type heldInbound struct {
	interceptor.ActivityInboundInterceptorBase
	held *held
}

func (a *heldInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	out, err := a.Next.ExecuteActivity(ctx, in)
	if activity.GetInfo(ctx).ActivityType.Name == a.held.activity {
		a.held.done <- struct{}{}
		<-a.held.release
	}
	return out, err
}

// TestEarlyApproval: a person who saw the plan in the database may be faster
// than the workflow hears of it. Nothing is lost.
func TestEarlyApproval(t *testing.T) {
	t.Parallel()
	things := newThings()
	hold := &held{activity: agent.ActivityPrepareWrite, done: make(chan struct{}), release: make(chan struct{})}
	w := newWorld(t).withWriter(things, func(c *rig.Config) { c.Interceptors = append(c.Interceptors, hold) })
	req := change(changeArgs{Thing: "lamp", To: "on"})
	run := w.start(req)
	<-hold.done
	w.signal(req, "too early and no token")
	w.approve(req, bob)
	w.approve(req, carol)
	if view := w.view(req); view.Status != agent.StatusRunning || things.total() != 0 {
		t.Errorf("the workflow knows of the plan: %+v, %d effects", view, things.total())
	}
	close(hold.release)
	result := w.wait(run)
	if result.Reason != agent.ReasonFinal || things.total() != 1 {
		t.Errorf("ended %+v with %d effects", result, things.total())
	}
	w.wantRecord(req, "plan 0.0/1 approved by bob, write 0.0 performed by commit, call 0.0 succeeded")
	if codes := strings.Join(w.refusals(req), " "); codes != "malformed already_decided" {
		t.Errorf("refusals %s", codes)
	}
	w.checkWrites(req, things)
}

// TestApprovalOutOfTime: what comes when nothing waits for it is refused on the
// record; after the end the sender is told.
func TestApprovalOutOfTime(t *testing.T) {
	t.Parallel()
	things := newThings()
	// The second call is held until every signal was sent.
	hold := &held{activity: agent.ActivityReadTool, done: make(chan struct{}), release: make(chan struct{})}
	w := newWorld(t).withWriter(things, func(c *rig.Config) { c.Interceptors = append(c.Interceptors, hold) })
	req := ask("changer", "one-by-one "+proposal("change", changeArgs{Thing: "lamp", To: "on"})+"\n"+`look_slowly {"n":1,"wait_ms":1}`)
	run := w.start(req)
	plan, nonce := w.planned(req)
	used := w.approve(req, bob)
	<-hold.done
	before := w.view(req)
	w.signal(req, used.Text)
	w.signal(req, w.sign(claims(req, plan, nonce, nil)))
	w.signal(req, w.sign(claims(req, plan, nonce, func(c *approval.Claims) { c.CallID = "1.0" })))
	w.signal(req, w.sign(claims(req, plan, nonce, func(c *approval.Claims) { c.CallID = "7.0" })))
	w.signal(req, w.sign(claims(req, plan, nonce, func(c *approval.Claims) { c.RunID = "another" })))
	w.signal(req, "no token")
	// A signal may come without any input.
	if _, err := w.client.WorkflowService().SignalWorkflowExecution(w.ctx, &workflowservice.SignalWorkflowExecutionRequest{
		Namespace: namespace(), WorkflowExecution: &common.WorkflowExecution{WorkflowId: run.GetID()}, SignalName: agent.SignalApproval,
	}); err != nil {
		t.Fatal(err)
	}
	if before.Step != 2 || before.Status != agent.StatusRunning {
		t.Errorf("the signals met a run in %+v", before)
	}
	close(hold.release)
	result := w.wait(run)
	if result.Reason != agent.ReasonFinal || things.total() != 1 {
		t.Errorf("ended %+v with %d effects", result, things.total())
	}
	if codes := strings.Join(w.refusals(req), " "); codes != "already_decided already_decided not_waiting wrong_call wrong_run malformed malformed" {
		t.Errorf("refusals %s", codes)
	}
	for _, r := range w.show(req).Refusals {
		if want := map[bool]string{true: "", false: "bob"}[r.Code == agent.RefusedMalformed]; r.Approver != want {
			t.Errorf("on record is %+v, want approver %q", r, want)
		}
	}
	err := w.client.SignalWorkflow(w.ctx, run.GetID(), "", agent.SignalApproval, agent.Approval{Token: used.Text})
	var ended *serviceerror.NotFound
	if !errors.As(err, &ended) {
		t.Errorf("the sender to a run that has ended is told %v", err)
	}
	if outcome, err := w.office().Outcome(w.ctx, bob, used); err != nil || outcome.Standing != approval.Accepted {
		t.Errorf("the office says %+v, %v", outcome, err)
	}
	w.checkWrites(req, things)
}

// TestApprovalAtTheEnd: one that arrives while the run ends is on record.
func TestApprovalAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, reason := range []agent.Reason{agent.ReasonCanceled, agent.ReasonFinal} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			req := change(changeArgs{Thing: "lamp", To: "on"})
			var token approval.Token
			var once sync.Once
			at := &moments{ending: func() { once.Do(func() { w.signal(req, token.Text) }) }}
			w.withWriter(newThings(), func(c *rig.Config) { c.Interceptors = append(c.Interceptors, at) })
			run := w.start(req)
			plan := w.pending(req, bob)
			token = w.token(bob, plan, approval.Approve)
			record := "plan 0.0/1 withdrawn, call 0.0 abandoned"
			if reason == agent.ReasonCanceled {
				w.cancelInUI(run.GetID())
			} else {
				record = "plan 0.0/1 declined by carol, call 0.0 failed declined"
				w.signal(req, w.token(carol, plan, approval.Decline).Text)
			}
			if result := w.wait(run); result.Reason != reason {
				t.Errorf("ended %+v", result)
			}
			w.wantRecord(req, record)
			if codes := strings.Join(w.refusals(req), " "); codes != "already_decided" {
				t.Errorf("refusals %q", codes)
			}
		})
	}
}

// TestApprovalOfNoRun: a run that is stopped before it begins, or that the
// request never becomes, has no record; an approval sent to it hurts nobody.
func TestApprovalOfNoRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withWriter(newThings(), nil)
	for name, edit := range map[string]func(*agent.RunRequest){
		"refused request": func(r *agent.RunRequest) { r.Agent = "nobody" },
		"ended at once":   func(r *agent.RunRequest) { r.Environment = "production" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			req := change(changeArgs{Thing: "lamp", To: "on"})
			edit(&req)
			run, err := w.client.SignalWithStartWorkflow(w.ctx, agent.WorkflowID(req.Tenant, req.RunID), agent.SignalApproval,
				agent.Approval{Token: "no token"}, w.options(req), agent.WorkflowAgentRun, req)
			if err != nil {
				t.Fatal(err)
			}
			err = run.Get(w.ctx, nil)
			if (err == nil) != (name == "ended at once") {
				t.Fatalf("ended with %v", err)
			}
			if err == nil {
				if codes := strings.Join(w.refusals(req), " "); codes != "malformed" {
					t.Errorf("refusals %s", codes)
				}
			}
		})
	}
}
