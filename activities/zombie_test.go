package activities_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// A worker that was cut off, stopped and woken again, and whose work another
// one has taken over: what it still does must fit what is on record.

type payArgs struct {
	Amount int `json:"amount"`
}

// payer counts its effects and knows of none: a look-up always finds nothing.
type payer struct {
	effects atomic.Int64
	plan    tool.Plan
	refuses *tool.Error
}

func (p *payer) tool(version string) tool.Tool {
	t, err := tool.NewWrite(tool.Spec{
		Name: "pay", Version: version, Description: "Pays.", Source: "bank", Timeout: time.Second,
		Parameters: json.RawMessage(`{"type":"object","properties":{"amount":{"type":"integer"}},"required":["amount"]}`),
	}, tool.WriteFuncs[payArgs]{
		Prepare: func(context.Context, tool.Invocation, payArgs) (tool.Plan, error) {
			if p.refuses != nil {
				return tool.Plan{}, p.refuses
			}
			return p.plan, nil
		},
		Execute: func(context.Context, tool.Invocation, payArgs) (tool.Result, error) {
			p.effects.Add(1)
			return tool.JSON("paid")
		},
		Find: func(context.Context, tool.Invocation, payArgs) (tool.Finding, error) {
			return tool.Finding{State: tool.FindAbsent}, nil
		},
	})
	if err != nil {
		panic(err)
	}
	return t
}

// payment is a recorded call of pay, with a plan that waits.
type payment struct {
	*bundle
	payer *payer
	opts  options
	key   approval.Key
	run   begun
	call  agent.Call
}

func newPayment(t *testing.T) *payment {
	t.Helper()
	p := &payment{payer: &payer{plan: tool.Plan{Resource: "account/1", Version: "e1", Summary: "Pays 5."}}, key: approval.NewKey()}
	p.opts = options{
		script: scripted.ByStep(scripted.Turn{Calls: []scripted.Call{{Name: "pay", Arguments: `{"amount":5}`}}}),
		tools:  []tool.Tool{p.payer.tool("1")},
		edit:   func(d *definition.Definition) { d.Tools = append(d.Tools, "pay") },
	}
	p.bundle = setup(t, p.opts)
	p.run = p.start()
	p.call = p.act(p.run.next(0, 0)).Calls[0]
	p.prepare(1)
	return p
}

// on returns the activities of a worker; change edits its configuration.
func (p *payment) on(change func(*activities.Config)) *activities.Runs {
	p.Helper()
	c := p.cfg
	var err error
	if c.Approvals, err = approval.NewVerifier(p.key.Public()); err != nil {
		p.Fatal(err)
	}
	if change != nil {
		change(&c)
	}
	runs, err := activities.New(c)
	if err != nil {
		p.Fatal(err)
	}
	return runs
}

func (p *payment) prepare(revision int) {
	p.Helper()
	out, err := p.on(nil).PrepareWrite(p.ctx, agent.PrepareWriteInput{Run: p.run.ref(), CallID: p.call.ID, ArgumentsHash: p.call.ArgumentsHash})
	if err != nil || out.Plan == nil || out.Plan.Revision != revision {
		p.Fatalf("prepared %+v, %v", out, err)
	}
}

// approved is the input that carries out an approval of the plan that waits.
func (p *payment) approved() agent.CommitWriteInput {
	p.Helper()
	plan := p.write().Plan
	token, err := p.key.Sign(approval.Claims{
		TokenID: approval.Nonce(), Decision: approval.Approve, Approver: p.run.req.User, Tenant: p.run.req.Tenant, RunID: plan.RunID, CallID: plan.CallID,
		Revision: plan.Revision, Tool: plan.Tool, ToolVersion: plan.ToolVersion, ArgumentsHash: plan.ArgumentsHash, ResourceVersion: plan.ResourceVersion,
		PlanHash: plan.Hash, Nonce: plan.Nonce, IssuedAt: time.Now(), ExpiresAt: time.Now().Add(10 * time.Minute),
	})
	if err != nil {
		p.Fatal(err)
	}
	return agent.CommitWriteInput{Run: p.run.ref(), CallID: p.call.ID, ArgumentsHash: p.call.ArgumentsHash, Revision: plan.Revision, Token: token}
}

func (p *payment) write() db.WriteState {
	p.Helper()
	state, err := p.db.Write(p.ctx, p.run.req.Scope(), p.run.req.RunID, p.call.ID)
	if err != nil {
		p.Fatal(err)
	}
	return state
}

func (p *payment) resolve() agent.ResolveWriteInput {
	return agent.ResolveWriteInput{Run: p.run.ref(), CallID: p.call.ID, ArgumentsHash: p.call.ArgumentsHash, Stopping: true}
}

// paused is a store whose worker stands still once, before or after a
// transaction that when picks.
type paused struct {
	activities.Store
	before bool
	when   func(recorded bool) bool
	still  chan struct{}
	goOn   chan struct{}
	done   atomic.Bool
}

func newPaused(store activities.Store, before bool, when func(bool) bool) *paused {
	return &paused{Store: store, before: before, when: when, still: make(chan struct{}), goOn: make(chan struct{})}
}

func (p *paused) InTx(ctx context.Context, scope agent.Scope, fn func(activities.Tx) error) error {
	if p.before && p.done.CompareAndSwap(false, true) {
		close(p.still)
		<-p.goOn
	}
	intended := false
	err := p.Store.InTx(ctx, scope, func(tx activities.Tx) error { return fn(intentSpy{tx, &intended}) })
	if !p.before && p.when(intended) && p.done.CompareAndSwap(false, true) {
		close(p.still)
		<-p.goOn
	}
	return err
}

type intentSpy struct {
	activities.Tx
	intended *bool
}

func (s intentSpy) RecordIntent(i db.WriteIntent) {
	*s.intended = true
	s.Tx.RecordIntent(i)
}

// TestZombieSendsNothing: a worker stands still between intent and effect until
// another one has recorded that nothing happened. It must then do nothing.
func TestZombieSendsNothing(t *testing.T) {
	t.Parallel()
	p := newPayment(t)
	pause := newPaused(p.cfg.Store, false, func(intended bool) bool { return intended })
	zombie := p.on(func(c *activities.Config) { c.Store = pause })
	in := p.approved()
	woken := make(chan agent.WriteOutcome, 1)
	go func() {
		out, err := zombie.CommitWrite(p.ctx, in)
		if err != nil {
			t.Error(err)
		}
		woken <- out
	}()
	<-pause.still
	other := p.on(nil)
	if out, err := other.CommitWrite(p.ctx, in); err != nil || out.State != agent.WriteUnknown {
		t.Fatalf("committed by another worker: %+v, %v", out, err)
	}
	// It may not say at once that nothing happened, only when the zombie's time
	// is up; by a clock that is far ahead here.
	if out, err := other.ResolveWrite(p.ctx, p.resolve()); err != nil || out.State != agent.WriteUnknown || out.RetryAfter < 4*time.Second {
		t.Fatalf("resolved too soon: %+v, %v", out, err)
	}
	later := p.on(func(c *activities.Config) { c.Now = func() time.Time { return time.Now().Add(time.Minute) } })
	time.Sleep(time.Second) // the tool's timeout, which the zombie sleeps through
	if out, err := later.ResolveWrite(p.ctx, p.resolve()); err != nil || out.State != agent.WriteDone || out.Outcome.Error == nil {
		t.Fatalf("resolved: %+v, %v", out, err)
	}
	close(pause.goOn)
	if out := <-woken; out.State != agent.WriteUnknown {
		t.Errorf("the zombie says %+v", out)
	}
	if state := p.write(); p.payer.effects.Load() != 0 || state.Intent.Result != db.WriteNotPerformed {
		t.Errorf("%d effects, recorded %s", p.payer.effects.Load(), state.Intent.Result)
	}
}

// TestZombieClosesNothing: a worker stands still over a plan that it is about to
// refuse, until the plan was found stale and a second one waits.
func TestZombieClosesNothing(t *testing.T) {
	t.Parallel()
	p := newPayment(t)
	in := p.approved()
	p.payer.refuses = &tool.Error{Code: agent.ToolUnavailable, Message: "not now"}
	pause := newPaused(p.cfg.Store, true, nil)
	zombie := p.on(func(c *activities.Config) { c.Store = pause })
	woken := make(chan error, 1)
	go func() {
		_, err := zombie.CommitWrite(p.ctx, in)
		woken <- err
	}()
	<-pause.still
	p.payer.refuses, p.payer.plan.Version = nil, "e2"
	if out, err := p.on(nil).CommitWrite(p.ctx, in); err != nil || out.State != agent.WriteStale {
		t.Fatalf("committed by another worker: %+v, %v", out, err)
	}
	p.prepare(2)
	close(pause.goOn)
	if err := <-woken; err == nil {
		t.Error("the zombie came through")
	}
	if state := p.write(); state.Plan.Revision != 2 || state.Plan.Status != db.PlanPending || state.Call.Recorded() {
		t.Errorf("revision %d is %s, the call %s", state.Plan.Revision, state.Plan.Status, state.Call.Status)
	}
}

// TestToolVersionChanged: what was confirmed for one version of a tool is not
// done by another.
func TestToolVersionChanged(t *testing.T) {
	t.Parallel()
	p := newPayment(t)
	in := p.approved()
	p.opts.tools = []tool.Tool{p.payer.tool("2")}
	p.worker(p.opts)
	out, err := p.on(nil).CommitWrite(p.ctx, in)
	if err != nil || out.State != agent.WriteDone || out.Outcome.Error == nil || out.Outcome.Error.Code != agent.ToolConflict {
		t.Fatalf("committed %+v, %v", out, err)
	}
	if n := p.payer.effects.Load(); n != 0 {
		t.Errorf("%d effects", n)
	}
	if plan := p.write().Plan; plan.Status != db.PlanRefused || plan.DecidedBy != p.run.req.User {
		t.Errorf("the plan is %s, decided by %q", plan.Status, plan.DecidedBy)
	}
}
