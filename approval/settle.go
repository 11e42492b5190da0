package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
)

// MaxNoteBytes bounds the note of a settlement.
const MaxNoteBytes = 500

// Write is a write whose outcome is not known. Its fields mean what they mean in
// Plan.
type Write struct {
	RunID           string
	CallID          string
	Agent           string
	Environment     string
	Requester       string
	Tool            string
	ToolVersion     string
	Arguments       json.RawMessage
	Resource        string
	ResourceVersion string
	Summary         string
	// Key is the idempotency key that the writing tool sent along: look the write
	// up by it where it was sent.
	Key string
	// Result is WriteOpen while the run goes on and looks it up itself, else
	// WriteUnknown.
	Result     db.WriteResult
	ApprovedBy string
	// RecordedAt is when it was sent first, SentAt when last, of Sends times.
	RecordedAt time.Time
	SentAt     time.Time
	Sends      int
	// RunStatus and RunReason are the run's.
	RunStatus agent.Status
	RunReason agent.Reason
}

// Unsettled is what operators have to find out.
type Unsettled struct {
	// Writes are those that the operator may settle, oldest first.
	Writes []Write
	// Forbidden counts the writes that were left out because the operator may
	// not settle them.
	Forbidden int
	// Damaged names the writes whose plan ErrDamaged speaks of, and those of users
	// whose keys were destroyed.
	Damaged []WriteRef
}

// Unsettled returns the writes of which nobody knows whether they happened: of
// runs that ended outcome_unknown, and of runs that are still finding out.
func (o *Office) Unsettled(ctx context.Context, operator Approver) (Unsettled, error) {
	if err := operator.check(); err != nil {
		return Unsettled{}, fmt.Errorf("list unsettled writes: %w", err)
	}
	const page = 100
	var found Unsettled
	filter := db.WriteFilter{Tenant: operator.Tenant, Limit: page}
	for {
		writes, err := o.db.UnsettledWrites(ctx, filter)
		if err != nil {
			return Unsettled{}, err
		}
		for _, w := range writes {
			if verify(db.PlanState{Plan: w.Plan, Run: w.Run, Call: w.Call, Unreadable: w.Unreadable}) != nil {
				found.Damaged = append(found.Damaged, WriteRef{w.Run.ID, w.Call.ID})
				continue
			}
			err := o.ask(authz.Settle, operator, w.Run, w.Plan, w.Call.Arguments)
			switch {
			case errors.Is(err, ErrForbidden):
				found.Forbidden++
			case err != nil:
				return Unsettled{}, fmt.Errorf("list unsettled writes: %w", err)
			default:
				found.Writes = append(found.Writes, toWrite(w))
			}
		}
		if len(writes) < page {
			return found, nil
		}
		filter.After = &writes[page-1].Intent
	}
}

func toWrite(w db.UnsettledWrite) Write {
	i, p, r := w.Intent, w.Plan, w.Run
	return Write{
		RunID: r.ID, CallID: i.CallID, Agent: r.Agent, Environment: r.Scope.Environment, Requester: r.Scope.User,
		Tool: p.Tool, ToolVersion: p.ToolVersion, Arguments: json.RawMessage(w.Call.Arguments),
		Resource: p.Resource, ResourceVersion: p.ResourceVersion, Summary: p.Summary,
		Key: i.Key, Result: i.Result, ApprovedBy: i.ApprovedBy, RecordedAt: i.RecordedAt, SentAt: i.SentAt, Sends: i.Sends,
		RunStatus: r.Status, RunReason: r.Reason,
	}
}

// WriteRef names a write.
type WriteRef struct{ RunID, CallID string }

// Settlement is what an operator found out about a write.
type Settlement struct {
	// Performed says that the effect happened; false says that it did not and
	// will not.
	Performed bool
	// Note says how it is known: text of at most MaxNoteBytes, or nothing.
	Note string
}

// Settled is a settlement that was recorded.
type Settled struct {
	Result db.WriteResult
	// Continues says that the run goes on and will act on the record.
	Continues bool
	// SignalError is why the run could not be told at once, if it could not. It
	// finds the record with its next look.
	SignalError error
}

// Settle records for good what became of a write whose outcome is unknown, and
// who said so. If its run still goes on it is told by signaler, which may be nil.
//
// The errors to expect are ErrNotFound, ErrForbidden, ErrUnavailable, ErrDamaged,
// ErrDecided if the outcome is known (the first record stays), and ErrUnderWay if
// it is to be not performed while what was sent may still take effect.
func (o *Office) Settle(ctx context.Context, signaler Signaler, operator Approver, ref WriteRef, s Settlement) (Settled, error) {
	settled, err := o.settle(ctx, operator, ref, s)
	if err != nil {
		return Settled{}, fmt.Errorf("settle: %w", err)
	}
	if settled.Continues && signaler != nil {
		settled.SignalError = signaler.SignalWorkflow(ctx, agent.WorkflowID(operator.Tenant, ref.RunID), "", agent.SignalSettled, nil)
	}
	return settled, nil
}

func (o *Office) settle(ctx context.Context, operator Approver, ref WriteRef, s Settlement) (Settled, error) {
	if err := operator.check(); err != nil {
		return Settled{}, err
	}
	if len(s.Note) > MaxNoteBytes || !utf8.ValidString(s.Note) || strings.ContainsRune(s.Note, 0) {
		return Settled{}, fmt.Errorf("the note must be valid UTF-8 of at most %d bytes, without NUL", MaxNoteBytes)
	}
	run, err := o.db.RunOfTenant(ctx, operator.Tenant, ref.RunID)
	if err != nil {
		return Settled{}, own(err)
	}
	settled := Settled{Result: db.WriteNotPerformed}
	if s.Performed {
		settled.Result = db.WritePerformed
	}
	err = o.db.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		state, err := tx.HoldWrite(ctx, ref.RunID, ref.CallID)
		if err != nil {
			return err
		}
		if state.Plan == nil || state.Intent == nil {
			return ErrNotFound
		}
		if err := verify(db.PlanState{Plan: *state.Plan, Run: state.Run, Call: state.Call}); err != nil {
			return err
		}
		// Who may not settle is not told how the write stands.
		if err := o.ask(authz.Settle, operator, state.Run, *state.Plan, state.Call.Arguments); err != nil {
			return err
		}
		if left := state.Intent.DecisiveAt; !s.Performed && o.now().Before(left) && state.Intent.ResolvedBy == "" {
			return fmt.Errorf("%w until %s", ErrUnderWay, left.UTC().Format(time.RFC3339))
		}
		settled.Continues = !state.Run.Status.Terminal()
		recorded, err := tx.SettleWrite(ctx, state, db.Settlement{Performed: s.Performed, By: operator.User, Note: s.Note, At: o.now()})
		if err == nil && !recorded {
			return fmt.Errorf("%w: it is recorded as %s", ErrDecided, state.Intent.Result)
		}
		return err
	})
	return settled, own(err)
}
