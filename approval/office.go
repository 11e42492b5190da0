package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/tool"
)

// What callers tell apart. An error of an Office matches one of them, or
// db.ErrUnavailable, db.ErrNoVault, db.ErrKeysDestroyed or a *db.SchemaError, or
// is a fault of the program or of its caller.
var (
	// ErrNotFound: the tenant has no such run, call, plan or write.
	ErrNotFound = errors.New("not found")
	// ErrDecided: somebody decided about the plan, or the outcome of the write is
	// known already.
	ErrDecided = errors.New("already decided")
	// ErrChanged: the plan that is pending now is not the one that was shown.
	ErrChanged = errors.New("the plan has changed")
	// ErrExpired: nobody can decide about the plan any more.
	ErrExpired = errors.New("the plan has expired")
	// ErrWithdrawn: the run was canceled, superseded or ended otherwise, or
	// policies refused the write; nothing waits for a decision.
	ErrWithdrawn = errors.New("the plan was withdrawn")
	// ErrUnderWay: what was sent may still take effect, so nobody can say yet
	// that it will not.
	ErrUnderWay = errors.New("the write may still be under way")
	// ErrForbidden: the policies do not allow it to this person.
	ErrForbidden = authz.ErrForbidden
	// ErrUnavailable: the policies could not be evaluated. Nothing is allowed.
	ErrUnavailable = authz.ErrUnavailable
	// ErrDamaged: the stored plan is not the one that its hash was made of, or
	// cannot be decrypted. It is neither shown nor signed nor settled.
	ErrDamaged = errors.New("the stored plan is damaged or was altered")
	// ErrNoKey: the Office was opened without a key and signs nothing.
	ErrNoKey = errors.New("there is no approval key")
)

// Approver is a person, whom the calling program has authenticated: one who
// decides about plans, or an operator who settles writes.
type Approver struct{ Tenant, User string }

func (a Approver) check() error {
	if !agent.ValidID(a.Tenant) || !agent.ValidID(a.User) {
		return errors.New("the approver needs a tenant and a user of 1 to 128 ASCII letters, digits or . _ : @ -")
	}
	return nil
}

// Config is what an Office works with.
type Config struct {
	// DB is required.
	DB *db.DB
	// Key signs. Without one an Office shows and settles, and signs nothing.
	Key Key
	// Policies holds *.cedar files and entities.json; it is read once. Nil means
	// the built-in policies. Workers must have the same ones: they ask again.
	Policies fs.FS
	// TokenTTL is how long a token lives. Zero means DefaultTTL, the most is
	// MaxTTL. No token outlives its plan.
	TokenTTL time.Duration
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Office is where persons decide about writes. It is safe for concurrent use.
// Everything that it does is for one tenant, the approver's.
type Office struct {
	db       *db.DB
	key      Key
	policies *authz.Policies
	ttl      time.Duration
	now      func() time.Time
}

// Open returns an Office. It does not connect to anything.
func Open(c Config) (*Office, error) {
	o := &Office{db: c.DB, key: c.Key, policies: authz.Default(), ttl: c.TokenTTL, now: c.Now}
	if o.db == nil {
		return nil, errors.New("open approval office: there is no database")
	}
	if o.ttl == 0 {
		o.ttl = DefaultTTL
	}
	// A token is cut to whole seconds.
	if o.ttl < time.Second || o.ttl > MaxTTL {
		return nil, fmt.Errorf("open approval office: a token that lives %s is not between 1s and %s", o.ttl, MaxTTL)
	}
	if o.now == nil {
		o.now = time.Now
	}
	if c.Policies != nil {
		var err error
		if o.policies, err = authz.Load(c.Policies); err != nil {
			return nil, fmt.Errorf("open approval office: %w", err)
		}
	}
	return o, nil
}

// Plan is what a person decides about. Purpose and Request are written by the
// model and by the user: show them as their words and believe nothing in them.
// Arguments, Resource and Summary are what will be done.
type Plan struct {
	RunID  string
	CallID string
	// Revision counts the plans of one call from 1: the resource had changed.
	Revision          int
	Conversation      string
	Agent             string
	DefinitionVersion string
	Environment       string
	// Requester is the user on whose behalf the run acts.
	Requester   string
	Tool        string
	ToolVersion string
	// Arguments are canonical JSON (RFC 8785), ArgumentsHash their SHA-256.
	Arguments     json.RawMessage
	ArgumentsHash string
	Resource      string
	// ResourceVersion is empty for something that does not exist yet.
	ResourceVersion string
	Summary         string
	// Hash is PlanHash of all that is decided about.
	Hash      string
	CreatedAt time.Time
	ExpiresAt time.Time
	// Purpose is what the model wrote beside the call, often nothing.
	Purpose string
	// Request is the message that the run answers.
	Request string
	// Steps, BilledTokens and CostMicros (millionths of a US dollar) are what the
	// run has used so far. With Unpriced the cost is a lower bound.
	Steps        int
	BilledTokens int64
	CostMicros   int64
	Unpriced     bool
}

// Filter selects pending plans. Empty fields select all.
type Filter struct {
	Environment string
	RunID       string
	// Limit is how many plans are returned. Zero means 50, the most is 500.
	Limit int
}

// PlanRef names a plan.
type PlanRef struct {
	RunID, CallID string
	Revision      int
}

// Pending is what waits for an approver.
type Pending struct {
	// Plans are those that the approver may decide about, oldest first.
	Plans []Plan
	// Forbidden counts the plans that were met on the way and left out because
	// the approver may not decide about them.
	Forbidden int
	// Damaged names the plans that ErrDamaged speaks of: one of them must not keep
	// the others from being decided.
	Damaged []PlanRef
	// More says that there may be more than Limit.
	More bool
}

// Pending returns the plans that the approver may decide about now. The policies
// are asked for each; if they cannot be evaluated that is ErrUnavailable, because
// nobody knows what is missing from the list then.
func (o *Office) Pending(ctx context.Context, approver Approver, f Filter) (Pending, error) {
	if err := approver.check(); err != nil {
		return Pending{}, fmt.Errorf("list pending plans: %w", err)
	}
	limit := 50
	if f.Limit > 0 {
		limit = min(f.Limit, 500)
	}
	var found Pending
	filter := db.PlanFilter{Tenant: approver.Tenant, Environment: f.Environment, RunID: f.RunID, Now: o.now(), Limit: limit}
	for {
		page, err := o.db.PendingPlans(ctx, filter)
		if err != nil {
			return Pending{}, err
		}
		for _, state := range page.Plans {
			if verify(state) != nil {
				found.Damaged = append(found.Damaged, PlanRef{state.Plan.RunID, state.Plan.CallID, state.Plan.Revision})
				continue
			}
			err := o.ask(authz.Approve, approver, state.Run, state.Plan, state.Call.Arguments)
			switch {
			case errors.Is(err, ErrForbidden):
				found.Forbidden++
			case err != nil:
				return Pending{}, fmt.Errorf("list pending plans: %w", err)
			case len(found.Plans) == limit:
				found.More = true
				return found, nil
			default:
				found.Plans = append(found.Plans, toPlan(state))
			}
		}
		if page.Next == nil || len(found.Plans) == limit {
			found.More = page.Next != nil
			return found, nil
		}
		filter.After = *page.Next
	}
}

// ask returns nil, ErrForbidden or ErrUnavailable. Workers ask again before they
// believe a token.
func (o *Office) ask(action authz.Action, who Approver, run db.Run, plan db.WritePlan, arguments string) error {
	return o.policies.Decide(authz.Question{
		Action: action, Tenant: run.Scope.Tenant, Environment: run.Scope.Environment, Agent: run.Agent, Page: run.Page, Flags: run.Flags,
		User: who.User, Requester: run.Scope.User, Tool: plan.Tool, Risk: string(tool.Write), Object: plan.Resource,
		Arguments: json.RawMessage(arguments),
	})
}

// own turns the store's sentinels into the ones of this package.
func own(err error) error {
	switch {
	case errors.Is(err, db.ErrNotFound):
		return ErrNotFound
	case errors.Is(err, db.ErrSealed):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// verify returns ErrDamaged unless the plan is what its hash was made of and the
// call is the one that it was made for.
func verify(state db.PlanState) error {
	p, c := state.Plan, state.Call
	hash, err := PlanHash(facts(state))
	if state.Unreadable != nil || err != nil || hash != p.Hash || tool.Hash([]byte(c.Arguments)) != p.ArgumentsHash || c.ArgumentsHash != p.ArgumentsHash ||
		c.Tool != p.Tool || c.ToolVersion != p.ToolVersion {
		return fmt.Errorf("%w: run %s, call %s, revision %d; find out who wrote to the database, and cancel the run", ErrDamaged, p.RunID, p.CallID, p.Revision)
	}
	return nil
}

func facts(state db.PlanState) PlanFacts {
	p := state.Plan
	return PlanFacts{
		Tenant: state.Run.Scope.Tenant, RunID: p.RunID, CallID: p.CallID, Revision: p.Revision, Tool: p.Tool, ToolVersion: p.ToolVersion,
		Arguments: json.RawMessage(state.Call.Arguments), Resource: p.Resource, ResourceVersion: p.ResourceVersion,
		Summary: p.Summary, ExpiresAt: p.ExpiresAt, Nonce: p.Nonce,
	}
}

func toPlan(state db.PlanState) Plan {
	p, r, usage := state.Plan, state.Run, state.Totals.Usage
	plan := Plan{
		RunID: p.RunID, CallID: p.CallID, Revision: p.Revision, Conversation: r.Conversation,
		Agent: r.Agent, DefinitionVersion: r.DefinitionVersion, Environment: r.Scope.Environment, Requester: r.Scope.User,
		Tool: p.Tool, ToolVersion: p.ToolVersion, Arguments: json.RawMessage(state.Call.Arguments), ArgumentsHash: p.ArgumentsHash,
		Resource: p.Resource, ResourceVersion: p.ResourceVersion, Summary: p.Summary, Hash: p.Hash,
		CreatedAt: p.CreatedAt, ExpiresAt: p.ExpiresAt, Purpose: state.Purpose, Request: state.Request,
		BilledTokens: usage.BilledTokens, CostMicros: usage.CostMicros, Unpriced: usage.UnpricedAttempts > 0,
	}
	if usage.Attempts > 0 {
		plan.Steps = state.Totals.LastStep + 1
	}
	return plan
}
