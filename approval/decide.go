package approval

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
)

// Token is a signed decision about one plan or one waiting memory, on its way to
// the workflow that waits for it.
type Token struct {
	// Text is what the signal carries.
	Text string
	ID   string
	// Plan is what it decides about, Decision what it says.
	Plan     PlanRef
	Decision Decision
	// ExpiresAt is when it is not believed any more.
	ExpiresAt time.Time
	// WorkflowID is where Send sends it.
	WorkflowID string
	// signal is the name of the signal, empty for that of a run.
	signal string
}

// Approve signs that approver wants the write to be performed exactly as plan
// says. Of plan only RunID, CallID, Revision and Hash are used, so a web page
// can send these back: the plan is read again, and the one that is signed has
// the hash of the one that was shown.
//
// The errors to expect are ErrNotFound, ErrDecided, ErrChanged, ErrExpired,
// ErrWithdrawn, ErrForbidden, ErrUnavailable, ErrDamaged and ErrNoKey. Signing
// changes nothing: the run learns of it with Send, and Outcome says what came of
// it.
func (o *Office) Approve(ctx context.Context, approver Approver, plan Plan) (Token, error) {
	token, err := o.decide(ctx, approver, plan, Approve)
	if err != nil {
		return Token{}, fmt.Errorf("approve: %w", err)
	}
	return token, nil
}

// Decline is Approve for the opposite: the write is not performed, and the
// model is told that a person declined it.
func (o *Office) Decline(ctx context.Context, approver Approver, plan Plan) (Token, error) {
	token, err := o.decide(ctx, approver, plan, Decline)
	if err != nil {
		return Token{}, fmt.Errorf("decline: %w", err)
	}
	return token, nil
}

func (o *Office) decide(ctx context.Context, approver Approver, shown Plan, decision Decision) (Token, error) {
	if err := approver.check(); err != nil {
		return Token{}, err
	}
	if o.key.IsZero() {
		return Token{}, ErrNoKey
	}
	state, err := o.db.PlanState(ctx, approver.Tenant, shown.RunID, shown.CallID, shown.Revision)
	if err != nil {
		return Token{}, own(err)
	}
	if err := verify(state); err != nil {
		return Token{}, err
	}
	// Who may not decide is not told how the plan stands.
	if err := o.ask(authz.Approve, approver, state.Run, state.Plan, state.Call.Arguments); err != nil {
		return Token{}, err
	}
	now := o.now()
	if err := standing(state, shown.Hash); err != nil {
		return Token{}, err
	}
	p := state.Plan
	c := Claims{
		TokenID: Nonce(), Decision: decision, Approver: approver.User, Tenant: approver.Tenant,
		RunID: p.RunID, CallID: p.CallID, Revision: p.Revision, Tool: p.Tool, ToolVersion: p.ToolVersion,
		ArgumentsHash: p.ArgumentsHash, ResourceVersion: p.ResourceVersion, PlanHash: p.Hash, Nonce: p.Nonce,
		IssuedAt: now.Truncate(time.Second), ExpiresAt: earlier(now.Add(o.ttl), p.ExpiresAt).Truncate(time.Second),
	}
	// The plan has expired, or less than a second is left.
	if !c.ExpiresAt.After(now) {
		return Token{}, ErrExpired
	}
	text, err := o.key.Sign(c)
	if err != nil {
		return Token{}, err
	}
	return Token{
		Text: text, ID: c.TokenID, Plan: PlanRef{p.RunID, p.CallID, p.Revision}, Decision: decision,
		ExpiresAt: c.ExpiresAt, WorkflowID: agent.WorkflowID(approver.Tenant, p.RunID),
	}, nil
}

// standing says why nobody can decide about a plan as it was shown, or nil. Time
// is not looked at.
func standing(state db.PlanState, shownHash string) error {
	p, r := state.Plan, state.Run
	switch p.Status {
	case db.PlanPending:
	case db.PlanApproved, db.PlanDeclined:
		return fmt.Errorf("%w: %s by %s", ErrDecided, p.Status, p.DecidedBy)
	case db.PlanExpired:
		return ErrExpired
	case db.PlanStale:
		return fmt.Errorf("%w: what it changes is no longer at the version that was shown", ErrChanged)
	case db.PlanRefused, db.PlanWithdrawn:
		return ErrWithdrawn
	default:
		return fmt.Errorf("the plan has the unknown status %q: this program is older than the worker", p.Status)
	}
	switch {
	case r.Status != agent.StatusWaitingConfirmation || r.Superseded():
		return ErrWithdrawn
	case p.Hash != shownHash:
		return ErrChanged
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Signaler sends a signal to a workflow; runID is empty for its current run. A
// Temporal client is one.
type Signaler interface {
	SignalWorkflow(ctx context.Context, workflowID, runID, signalName string, arg any) error
}

// Send brings a token to its run, or to the write of its memory. Sending it again
// is safe: it is used once. The
// error is the Signaler's, unchanged.
func (o *Office) Send(ctx context.Context, signaler Signaler, token Token) error {
	signal := agent.SignalApproval
	if token.signal != "" {
		signal = token.signal
	}
	return signaler.SignalWorkflow(ctx, token.WorkflowID, "", signal, agent.Approval{Token: token.Text})
}

// Standing says how far a token has come.
type Standing string

// The closed set of standings.
const (
	// Waiting: the run has not looked at it yet.
	Waiting Standing = "waiting"
	// Accepted: this token decided about the plan.
	Accepted Standing = "accepted"
	// Refused: the token was not believed, and Code says why. The plan may still
	// be pending.
	Refused Standing = "refused"
	// Closed: the plan ended without this token, and Plan says how.
	Closed Standing = "closed"
)

// Outcome is what became of a token.
type Outcome struct {
	Standing Standing
	// Code is set for Refused.
	Code agent.RefusalCode
	// Plan is the plan's status: for Closed declined or approved by another
	// token, expired, stale, refused or withdrawn.
	Plan db.PlanStatus
	// DecidedBy is who decided about the plan, if a person did.
	DecidedBy string
	// Result is set when the plan was approved: WriteOpen while the write is
	// under way.
	Result db.WriteResult
	// Error is the code of a write that was not performed.
	Error agent.ToolErrorCode
}

// Outcome says what became of a token that this Office signed for approver:
// ErrNotFound if the approver's tenant has no such plan.
func (o *Office) Outcome(ctx context.Context, approver Approver, token Token) (Outcome, error) {
	if err := approver.check(); err != nil {
		return Outcome{}, fmt.Errorf("look up a decision: %w", err)
	}
	// Plans and refusals without a token have an empty ID.
	if token.ID == "" {
		return Outcome{}, errors.New("look up a decision: the token has no ID")
	}
	found, err := o.db.PlanOutcome(ctx, approver.Tenant, token.Plan.RunID, token.Plan.CallID, token.Plan.Revision, token.ID)
	if err != nil {
		return Outcome{}, fmt.Errorf("look up a decision: %w", own(err))
	}
	outcome := Outcome{Standing: Waiting, Plan: found.Plan.Status, DecidedBy: found.Plan.DecidedBy}
	if found.Intent != nil {
		outcome.Result = found.Intent.Result
		if found.Intent.Result == db.WriteNotPerformed && found.Call.Error != nil {
			outcome.Error = found.Call.Error.Code
		}
	}
	switch {
	case found.Plan.TokenID == token.ID:
		outcome.Standing = Accepted
	case found.Refusal != nil:
		outcome.Standing, outcome.Code = Refused, found.Refusal.Code
	case found.Plan.Status != db.PlanPending:
		outcome.Standing = Closed
	}
	return outcome, nil
}
