package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
)

var (
	bob   = approval.Approver{Tenant: tenant, User: "bob"}
	carol = approval.Approver{Tenant: tenant, User: "carol"}
	olga  = approval.Approver{Tenant: tenant, User: "olga"}
)

// lookEvery is how often the approvers look for plans.
const lookEvery = 150 * time.Millisecond

// people decide about plans as the storm's plan says, with the same package that
// an approver's program uses. They keep a record of their own of what they
// signed and what was delivered.
type people struct {
	office *approval.Office
	// forger signs with a key that no worker trusts.
	forger   approval.Key
	signaler client.Client
	writes   map[writeID]writePlan

	mu sync.Mutex
	// minted are the good tokens by their ID.
	minted map[string]mintedToken
	// delivered counts the signals that Temporal is known to have taken for each
	// run; where an answer was lost it has taken more.
	delivered map[string]int
	forgeries int
}

type mintedToken struct {
	write    writeID
	decision approval.Decision
	approver string
}

func newPeople(office *approval.Office, signaler client.Client, writes map[writeID]writePlan) *people {
	return &people{
		office: office, forger: approval.NewKey(), signaler: signaler, writes: writes,
		minted: map[string]mintedToken{}, delivered: map[string]int{},
	}
}

// decide works until ctx ends, and returns when nobody is at work any more.
// Outages are waited out.
func (p *people) decide(ctx context.Context) {
	var busy sync.WaitGroup
	defer busy.Wait()
	seen := map[approval.PlanRef]bool{}
	for wait(ctx, lookEvery) {
		look, cancel := context.WithTimeout(ctx, 5*time.Second)
		waiting, err := p.office.Pending(look, bob, approval.Filter{Limit: 500})
		cancel()
		if err != nil {
			continue
		}
		for _, shown := range waiting.Plans {
			ref := approval.PlanRef{RunID: shown.RunID, CallID: shown.CallID, Revision: shown.Revision}
			if !seen[ref] {
				seen[ref] = true
				busy.Go(func() { p.decideOne(ctx, shown) })
			}
		}
	}
}

func (p *people) decideOne(ctx context.Context, shown approval.Plan) {
	id := writeID{shown.RunID, shown.CallID}
	w, planned := p.writes[id]
	if !planned || !wait(ctx, w.after) {
		return // an effect of it would be without a decision, and found out
	}
	switch w.decision {
	case approve:
		p.send(ctx, id, p.sign(ctx, bob, shown, approval.Approve))
	case decline:
		p.send(ctx, id, p.sign(ctx, bob, shown, approval.Decline))
	case twice:
		token := p.sign(ctx, bob, shown, approval.Approve)
		other := p.sign(ctx, carol, shown, approval.Approve)
		p.send(ctx, id, token)
		p.send(ctx, id, token)
		p.send(ctx, id, other)
	case forge:
		p.sendForgeries(ctx, id, shown)
		p.send(ctx, id, p.sign(ctx, bob, shown, approval.Approve))
	case forgeOnly:
		p.sendForgeries(ctx, id, shown)
	case ignore:
	}
}

// sign returns an empty text if nothing can be signed any more, because the run
// has ended meanwhile.
func (p *people) sign(ctx context.Context, who approval.Approver, shown approval.Plan, d approval.Decision) string {
	mint := p.office.Approve
	if d == approval.Decline {
		mint = p.office.Decline
	}
	var token approval.Token
	err := insist(ctx, func(ctx context.Context) (err error) {
		token, err = mint(ctx, who, shown)
		return err
	}, approval.ErrDecided, approval.ErrExpired, approval.ErrWithdrawn, approval.ErrChanged)
	if err != nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.minted[token.ID] = mintedToken{writeID{shown.RunID, shown.CallID}, d, who.User}
	return token.Text
}

// sendForgeries sends a token of a foreign key, one with the signature cut off,
// and something that is no token.
func (p *people) sendForgeries(ctx context.Context, id writeID, shown approval.Plan) {
	now := time.Now()
	token, err := p.forger.Sign(approval.Claims{
		TokenID: approval.Nonce(), Decision: approval.Approve, Approver: bob.User, Tenant: tenant, RunID: shown.RunID, CallID: shown.CallID,
		Revision: shown.Revision, Tool: shown.Tool, ToolVersion: shown.ToolVersion, ArgumentsHash: shown.ArgumentsHash,
		ResourceVersion: shown.ResourceVersion, PlanHash: shown.Hash, Nonce: approval.Nonce(),
		IssuedAt: now, ExpiresAt: now.Add(time.Minute),
	})
	if err != nil {
		panic(fmt.Sprintf("sign a forgery: %v", err))
	}
	for _, text := range []string{token, token[:len(token)-20], "approved=true"} {
		if p.send(ctx, id, text) {
			p.mu.Lock()
			p.forgeries++
			p.mu.Unlock()
		}
	}
}

// send brings a token to its run and reports whether it was taken.
func (p *people) send(ctx context.Context, id writeID, text string) bool {
	if text == "" {
		return false
	}
	err := insist(ctx, func(ctx context.Context) error {
		err := p.signaler.SignalWorkflow(ctx, agent.WorkflowID(tenant, id.run), "", agent.SignalApproval, agent.Approval{Token: text})
		var ended *serviceerror.NotFound
		if errors.As(err, &ended) {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		return err
	}, errEnded)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delivered[id.run]++
	return true
}

// settle lets the operator look at the ticket service and record what became of
// each write of a run that has ended without knowing. It returns how many there
// were.
func (p *people) settle(ctx context.Context, d *desk) (int, error) {
	effects := d.effects()
	unsettled, err := p.office.Unsettled(ctx, olga)
	if err != nil {
		return 0, err
	}
	settled := 0
	for _, w := range unsettled.Writes {
		if !w.RunStatus.Terminal() {
			continue // left open, which is a difference
		}
		settled++
		found := approval.Settlement{Performed: effects[w.Key] > 0, Note: "looked at the ticket service"}
		if _, err := p.office.Settle(ctx, p.signaler, olga, approval.WriteRef{RunID: w.RunID, CallID: w.CallID}, found); err != nil {
			return 0, err
		}
	}
	return settled, nil
}

// errEnded says that a workflow has ended.
var errEnded = errors.New("the run has ended")

// insist repeats f through outages, until it succeeds, ctx ends, or the error is
// one of final.
func insist(ctx context.Context, f func(context.Context) error, final ...error) error {
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := f(try)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		for _, e := range final {
			if errors.Is(err, e) {
				return err
			}
		}
		if !wait(ctx, 200*time.Millisecond) {
			return err
		}
	}
}

// wait reports whether ctx went on for so long.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
