package endtoend

import (
	"errors"
	"maps"
	"sync"
	"testing"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/internal/rig"
)

// moments calls back at the moments at which an approval could get lost: when a
// workflow has decided to continue as new, or to end, and the server has not
// heard of it. Either may be nil.
type moments struct {
	interceptor.WorkerInterceptorBase
	continuing, ending func()
}

func (m *moments) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	w := &momentsWorkflow{moments: m}
	w.Next = next
	return w
}

type momentsWorkflow struct {
	interceptor.WorkflowInboundInterceptorBase
	moments *moments
}

func (w *momentsWorkflow) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	out, err := w.Next.ExecuteWorkflow(ctx, in)
	var again *workflow.ContinueAsNewError
	call := w.moments.ending
	if errors.As(err, &again) {
		call = w.moments.continuing
	}
	if call != nil {
		call()
	}
	return out, err
}

// TestForgeriesAcrossContinueAsNew floods a waiting run with so many forgeries
// that it continues in a new history. Every one of them is on record, and a good
// approval is carried out once, whenever it comes.
func TestForgeriesAcrossContinueAsNew(t *testing.T) {
	t.Parallel()
	// A history holds 200 activities. Three come before the first approval:
	// BeginRun, NextAction and PrepareWrite.
	const full = 200 - 3
	for name, test := range map[string]struct {
		// before and after are how many forgeries come before the good one and
		// behind it.
		before, after int
	}{
		// The good one comes while the run continues. The server makes the workflow
		// look again, and it hears of that and of the commit that filled its history
		// at the same time.
		"while it continues": {full, 0},
		// It continues with a part of the flood, and one more forgery comes while
		// it does.
		"in the middle of the flood": {full + 12, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			things := newThings()
			w := newWorld(t)
			req := change(changeArgs{Thing: "lamp", To: "on"})
			var good string
			var once sync.Once
			at := &moments{continuing: func() {
				once.Do(func() {
					if test.after > 0 {
						w.signal(req, "no token, and just now")
					} else {
						w.signal(req, good)
					}
				})
			}}
			w.withWriter(things, func(c *rig.Config) { c.Interceptors = append(c.Interceptors, at) })
			run := w.start(req)
			first := run.GetRunID()
			plan, nonce := w.planned(req)
			good = w.token(bob, plan, approval.Approve).Text

			// Each kind is always the same token: a copy counts as well.
			forged := []string{
				w.sign(claims(req, plan, nonce, func(c *approval.Claims) { c.CallID = "9.9" })),
				w.sign(claims(req, plan, nonce, func(c *approval.Claims) { c.RunID = "another" })),
				"no token",
			}
			codes := []string{"wrong_call", "wrong_run", "malformed"}
			want := map[string]int{}
			send := func(n int) {
				for i := range n {
					w.signal(req, forged[i%3])
					want[codes[i%3]]++
				}
			}
			send(test.before)
			if test.after > 0 {
				want["malformed"]++
				w.signal(req, good)
				send(test.after)
			}
			result := w.wait(w.client.GetWorkflow(w.ctx, run.GetID(), ""))
			if result.Reason != agent.ReasonFinal || things.total() != 1 {
				t.Errorf("ended %+v with %d effects", result, things.total())
			}
			w.wantRecord(req, "plan 0.0/1 approved by bob, write 0.0 performed by commit, call 0.0 succeeded")
			got := map[string]int{}
			for _, code := range w.refusals(req) {
				got[code]++
			}
			if !maps.Equal(got, want) {
				t.Errorf("refusals %v, want %v", got, want)
			}
			if ids := w.chain(req, first); len(ids) != 2 {
				t.Errorf("%d histories, want two", len(ids))
			}
			w.checkWrites(req, things)
			w.checkLedger(t, req, result)
		})
	}
}
