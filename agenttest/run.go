package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/tool"
	"github.com/fairlead/fairlead/workflows"
)

// run is one run under test. What happens to it from outside is done on the loop
// of Temporal's test environment, which is the goroutine of the test.
type run struct {
	suite   *Suite
	t       testing.TB
	req     agent.RunRequest
	began   time.Time
	journal *journal
	// down counts the transactions that fail yet, memoryDown the uses of memory and
	// embedderDown the texts that are not embedded.
	down, memoryDown, embedderDown atomic.Int64
	// closed ends every wait.
	closed chan struct{}
	// flying are the activities at work, those of dead workers included.
	flying sync.WaitGroup

	mu      sync.Mutex
	env     *testsuite.TestWorkflowEnvironment
	worker  *worker
	events  []*Event
	planned []*appointment
	// canceled are the activities that the workflow asked to cancel, attached
	// those at work, by their IDs.
	canceled map[string]bool
	attached map[string]*flight
	// failures counts the failures in a row of one piece of work.
	failures map[string]int
	// started numbers the activities; attempts are those that one has left, if
	// they are limited.
	started  int
	attempts map[string]int
	// ended is when the run itself ended; its summaries are made after that.
	ended   time.Time
	prompts []model.Request

	// sendAgain sends the last token once more, about is the memory that the moment
	// is about. Both are used on the loop only.
	sendAgain func()
	about     string
}

// appointment is something to do at a point of virtual time.
type appointment struct {
	at   time.Time
	do   func()
	done bool
}

func newRun(s *Suite, req agent.RunRequest) *run {
	r := &run{
		suite: s, t: s.t, req: req, began: s.clock.now().Truncate(time.Microsecond), journal: &journal{}, closed: make(chan struct{}),
		canceled: make(map[string]bool), attached: make(map[string]*flight), failures: make(map[string]int), attempts: make(map[string]int),
	}
	r.worker = newWorker(r)
	return r
}

func (r *run) now() time.Time { return r.suite.clock.now() }

// finish is the end of the run itself.
func (r *run) finish() {
	now := r.now()
	r.mu.Lock()
	r.ended = now
	r.mu.Unlock()
}

// endedAt is when the run ended, or now if it goes on.
func (r *run) endedAt() (at time.Time, ended bool) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended.IsZero() {
		return now, false
	}
	return r.ended, true
}

func (r *run) note(format string, args ...any) {
	r.journal.add(r.now().Sub(r.began), format, args...)
}

// play runs the workflow to its end, through all its histories.
func (r *run) play() {
	r.t.Helper()
	defer func() {
		p := recover()
		if text, ok := p.(string); ok && strings.HasPrefix(text, "test timeout") {
			r.t.Fatalf("agenttest: the run stood still for %s. Something waits in real time: a tool or model that does not return, "+
				"or an action that does not. If it only is slow, raise Config.Patience.\n%s", r.suite.config.Patience, r.journal)
		}
		if p != nil {
			panic(p)
		}
	}()
	for _, e := range r.events {
		if e.moment.kind == elapsed {
			r.planned = append(r.planned, &appointment{at: r.began.Add(e.moment.at), do: func() { r.reach(e.moment, "") }})
		}
	}
	input := []any{r.req}
	for start := r.began; input != nil; start = r.now() {
		env := r.open(start)
		env.ExecuteWorkflow(agent.WorkflowAgentRun, input...)
		input = r.continuation(env.GetWorkflowError())
	}
}

// open makes the environment of one history.
func (r *run) open(start time.Time) *testsuite.TestWorkflowEnvironment {
	var temporal testsuite.WorkflowTestSuite
	temporal.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := temporal.NewTestWorkflowEnvironment()
	env.SetTestTimeout(r.suite.config.Patience)
	env.SetStartTime(start)
	env.SetWorkerOptions(sdkworker.Options{
		Interceptors: []interceptor.WorkerInterceptor{&interceptWorker{run: r}},
		// A busy machine is no deadlock.
		DeadlockDetectionTimeout: max(r.suite.config.Patience, time.Minute),
	})
	workflows.Register(env)
	for name, method := range r.worker.methods {
		env.RegisterActivityWithOptions(r.activity(name, method.Type()), activity.RegisterOptions{Name: name})
	}
	r.mu.Lock()
	r.env = env
	open := slices.DeleteFunc(slices.Clone(r.planned), func(a *appointment) bool { return a.done })
	r.mu.Unlock()
	r.suite.clock.set(env.Now)
	for _, a := range open {
		r.appoint(env, a)
	}
	return env
}

// continuation returns the input of the next history, nil after the last one.
func (r *run) continuation(err error) []any {
	var next *workflow.ContinueAsNewError
	if !errors.As(err, &next) {
		return nil
	}
	var req agent.RunRequest
	var carried *workflows.Carried
	if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &req, &carried); err != nil {
		r.t.Fatalf("agenttest: the input of the next history: %v", err)
	}
	r.note("the run continues in a new history")
	return []any{req, carried}
}

// close ends what is still at work and leaves the clock where it is.
func (r *run) close() {
	end := r.now()
	close(r.closed)
	r.current().kill()
	if !waitFor(&r.flying, 5*time.Second) {
		r.t.Errorf("agenttest: a tool or model still runs after the run ended, its context canceled: %s", r.journal)
	}
	real := time.Now()
	r.suite.clock.set(func() time.Time { return end.Add(time.Since(real)) })
}

func waitFor(wg *sync.WaitGroup, limit time.Duration) bool {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func (r *run) current() *worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.worker
}

// after does something on the loop when d of virtual time has passed.
func (r *run) after(d time.Duration, do func()) {
	a := &appointment{at: r.now().Add(d), do: do}
	r.mu.Lock()
	r.planned = append(r.planned, a)
	env := r.env
	r.mu.Unlock()
	r.appoint(env, a)
}

func (r *run) appoint(env *testsuite.TestWorkflowEnvironment, a *appointment) {
	// Without any delay it would not wait for what is under way.
	env.RegisterDelayedCallback(func() {
		r.mu.Lock()
		a.done = true
		r.mu.Unlock()
		a.do()
	}, max(a.at.Sub(r.now()), 1))
}

// onLoop has something done on the loop and waits for it, and for what it set
// off there. It reports false if the run ended before.
func (r *run) onLoop(do func()) bool {
	r.mu.Lock()
	env := r.env
	r.mu.Unlock()
	for _, step := range []func(){do, func() {}} {
		done := make(chan struct{})
		env.RegisterDelayedCallback(func() {
			defer close(done)
			step()
		}, 0)
		select {
		case <-done:
		case <-r.closed:
			return false
		}
	}
	return true
}

// reach is a moment that comes on the loop, if it comes during the run. about is
// the memory that waits, if one does.
func (r *run) reach(m Moment, about string) {
	if _, ended := r.endedAt(); ended && m.kind != memoryWaits {
		return
	}
	if e := r.take(m); e != nil {
		r.act(e, 0, about)
	}
}

// act takes the actions of an event from the i-th on, on the loop. Wait puts off
// the rest.
func (r *run) act(e *Event, i int, about string) {
	for ; i < len(e.actions); i++ {
		a := e.actions[i]
		r.note("%s: %s", e.moment, a.name)
		if a.wait > 0 {
			r.after(a.wait, func() {
				e.done++
				r.act(e, i+1, about)
			})
			return
		}
		r.about = about
		r.do(e, a)
	}
}

// do takes one action that is no Wait.
func (r *run) do(e *Event, a Action) {
	// A function of the test may end it here.
	e.done++
	if a.do != nil {
		a.do(r)
	}
}

// fire is a moment that comes while a worker is at work, on one of its
// goroutines. It returns what a tool is to do instead, and an error if time ran
// out or the work was stopped meanwhile.
func (r *run) fire(ctx context.Context, w *worker, m Moment) (replace func() error, err error) {
	e := r.take(m)
	if e == nil {
		return nil, nil
	}
	for i := 0; i < len(e.actions); {
		if a := e.actions[i]; a.wait > 0 {
			r.note("%s: %s", m, a.name)
			if slept := Sleep(ctx, a.wait); slept != nil {
				err = slept
			}
			if i++; w.isDead() != nil {
				// Nothing is left here to wait with.
				r.onLoop(func() {
					e.done++
					r.act(e, i, "")
				})
				break
			}
			r.onLoop(func() { e.done++ })
			continue
		}
		r.onLoop(func() {
			for ; i < len(e.actions) && e.actions[i].wait == 0; i++ {
				a := e.actions[i]
				r.note("%s: %s", m, a.name)
				if a.replace != nil {
					replace = a.replace
				}
				r.about = ""
				r.do(e, a)
			}
		})
		if r.over() {
			break
		}
	}
	return replace, err
}

// over reports whether the run has ended.
func (r *run) over() bool {
	select {
	case <-r.closed:
		return true
	default:
		return false
	}
}

func (r *run) cancel() { r.env.CancelWorkflow() }

func (r *run) crash() {
	r.current().kill()
	next := newWorker(r)
	r.mu.Lock()
	r.worker = next
	r.mu.Unlock()
}

func (r *run) supersede(message string) {
	newer := r.suite.Request(message)
	newer.Tenant, newer.User, newer.Environment, newer.Conversation = r.req.Tenant, r.req.User, r.req.Environment, r.req.Conversation
	newer.Group, newer.Project = r.req.Group, r.req.Project
	out, err := r.current().runs.BeginRun(context.Background(), agent.BeginRunInput{Request: newer, StartedAt: r.now()})
	if err != nil {
		r.t.Errorf("agenttest: Supersede: the newer run could not begin: %v", err)
		return
	}
	if slices.Contains(out.Supersedes, r.req.RunID) {
		r.env.SignalWorkflow(agent.SignalSupersede, agent.Supersession{ByRunID: newer.RunID, Generation: out.Generation})
	}
}

// settle records what an operator found out, as an approval.Office does.
func (r *run) settle(operator string, performed bool) {
	report, err := r.suite.store.ShowRun(context.Background(), r.req.Scope(), r.req.RunID)
	if err != nil || len(report.Writes) == 0 {
		r.t.Errorf("agenttest: SettleAs: there is no write yet\n%s", r.journal)
		return
	}
	write := report.Writes[len(report.Writes)-1]
	plan, _ := r.suite.store.Plan(r.req.Tenant, r.req.RunID, write.CallID, write.Revision)
	call, _ := r.suite.store.Call(r.req.Tenant, r.req.RunID, write.CallID)
	err = r.suite.policies.Decide(authz.Question{
		Action: authz.Settle, Tenant: r.req.Tenant, Environment: r.req.Environment, Agent: report.Run.Agent, Page: r.req.Page, Flags: r.req.Flags,
		User: operator, Requester: r.req.User, Tool: plan.Tool, Risk: string(tool.Write), Object: plan.Resource, Arguments: json.RawMessage(call.Arguments),
	})
	if err != nil {
		r.t.Errorf("agenttest: SettleAs: %s may not settle this write: %v", operator, err)
		return
	}
	if !performed && r.now().Before(write.DecisiveAt) {
		r.t.Errorf("agenttest: SettleAs: the write may still be under way until %s after it was sent; wait until then", write.DecisiveAt.Sub(write.SentAt))
		return
	}
	settled, err := r.suite.store.Settle(context.Background(), r.req.Scope(), r.req.RunID, write.CallID, db.Settlement{
		Performed: performed, By: operator, Note: "settled by a test", At: r.now(),
	})
	if err != nil || !settled {
		r.t.Errorf("agenttest: SettleAs: the outcome was known already: %s, %v", write.Result, err)
		return
	}
	r.env.SignalWorkflow(agent.SignalSettled, nil)
}

// tokenLife is how long a token lives, as one of an approvers' program does.
const tokenLife = approval.DefaultTTL

// decide signs a decision about the newest plan and sends it.
func (r *run) decide(key approval.Key, approver string, decision approval.Decision, edits []func(*approval.Claims)) {
	now := r.now()
	nowhere := strings.Repeat("0", 64)
	claims := approval.Claims{
		TokenID: approval.Nonce(), Decision: decision, Approver: approver, Tenant: r.req.Tenant, RunID: r.req.RunID,
		CallID: "0.0", Revision: 1, Tool: "none", ToolVersion: "1", ArgumentsHash: nowhere, PlanHash: nowhere, Nonce: "none",
		IssuedAt: now, ExpiresAt: now.Add(tokenLife),
	}
	if _, p, ok := r.storedPlan(); ok {
		claims.CallID, claims.Revision, claims.Tool, claims.ToolVersion = p.CallID, p.Revision, p.Tool, p.ToolVersion
		claims.ArgumentsHash, claims.PlanHash, claims.Nonce = p.ArgumentsHash, p.Hash, p.Nonce
		claims.ResourceVersion = p.ResourceVersion
	}
	for _, edit := range edits {
		edit(&claims)
	}
	token, err := key.Sign(claims)
	if err != nil {
		r.t.Errorf("agenttest: the approval of %s cannot be signed: %v", approver, err)
		return
	}
	r.sendToken(token)
}

func (r *run) sendToken(token string) {
	r.sendAgain = func() { r.env.SignalWorkflow(agent.SignalApproval, agent.Approval{Token: token}) }
	r.sendAgain()
}
