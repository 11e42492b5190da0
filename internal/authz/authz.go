// Package authz answers one question: may this person do this with this tool?
// The answer comes from Cedar policies, which are data. It is pure and in
// process: no network, no clock, no state. What cannot be evaluated is not
// allowed. docs/policies.md says how policies are written.
//
// It may import cedar-go and the standard library, and nothing of this module.
// It is called by activities (offer, read, prepare, approve, commit), approval
// (what an approver may decide), worker/host and starter (Load, settle).
package authz

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// Action is what the principal is about to do.
type Action string

// The closed set of actions.
const (
	// Offer shows the tool to the model.
	Offer Action = "offer"
	// Read executes a tool of risk read.
	Read Action = "read"
	// Prepare makes the plan of a write.
	Prepare Action = "prepare"
	// Approve approves or declines a plan.
	Approve Action = "approve"
	// Commit performs a write that was approved.
	Commit Action = "commit"
	// Settle says what became of a write whose outcome stayed unknown.
	Settle Action = "settle"
	// Review accepts or declines a proposed memory that waits for a reviewer.
	Review Action = "review"
)

// Question is one question to the policies. All of it is trusted except
// Arguments and Object, which the model has had a hand in.
type Question struct {
	Action Action
	// Tenant and Environment are required. A tenant has no "/" in its name.
	Tenant, Environment string
	Agent, Page         string
	Flags               []string
	// User is who acts now: for Approve the approver, for Settle the operator, for
	// Review the reviewer, else the run's user. Required.
	User string
	// Requester is the run's user, and for Review whom the memory comes from.
	// Required for Approve, Settle and Review; for the other actions it is User,
	// and may be left empty.
	Requester string
	// Tool and Risk ("read" or "write") are required.
	Tool, Risk string
	// Object is the Resource of the plan, "" while there is no plan.
	Object string
	// Arguments are canonical JSON. They are required unless the action is Offer
	// or Settle: without them a policy about arguments would not hold.
	Arguments json.RawMessage
}

var (
	// ErrForbidden is wrapped when the policies were evaluated and do not allow it.
	ErrForbidden = errors.New("forbidden by policy")
	// ErrUnavailable is wrapped when they could not be evaluated. Nothing is
	// allowed then, and nothing is known about what is forbidden.
	ErrUnavailable = errors.New("policies could not be evaluated")
)

// Names of entity types, groups and attributes that policies see.
const (
	typeUser   cedar.EntityType = "User"
	typeGroup  cedar.EntityType = "Group"
	typeAction cedar.EntityType = "Action"
	typeTool   cedar.EntityType = "Tool"

	groupApprovers = "approvers"
	groupOperators = "operators"
	groupReviewers = "memory_reviewers"
)

// contextAttributes are all that a policy may read from context. Load refuses a
// policy that reads another one, and makeContext sets no other one.
var contextAttributes = []string{
	"tenant", "environment", "agent", "page", "flags", "requester",
	groupApprovers, groupOperators, groupReviewers, "object", "arguments",
}

var actions = map[Action]cedar.EntityUID{
	Offer:   cedar.NewEntityUID(typeAction, cedar.String(Offer)),
	Read:    cedar.NewEntityUID(typeAction, cedar.String(Read)),
	Prepare: cedar.NewEntityUID(typeAction, cedar.String(Prepare)),
	Approve: cedar.NewEntityUID(typeAction, cedar.String(Approve)),
	Commit:  cedar.NewEntityUID(typeAction, cedar.String(Commit)),
	Settle:  cedar.NewEntityUID(typeAction, cedar.String(Settle)),
	Review:  cedar.NewEntityUID(typeAction, cedar.String(Review)),
}

// Decide returns nil if the policies allow what q asks, else an error that
// wraps ErrForbidden or ErrUnavailable. Its text names action, tool and
// policies, never arguments or object. It is safe for concurrent use.
//
// An error in any policy makes the answer ErrUnavailable. Cedar alone would skip
// that policy, and a forbid that was skipped is an open door.
func (p *Policies) Decide(q Question) (err error) {
	defer func() {
		// The recovered value may quote content.
		if recover() != nil {
			err = q.refuse(ErrUnavailable, "the evaluation panicked; report this as a defect")
		}
	}()
	if p == nil || len(p.policies) == 0 {
		return q.refuse(ErrUnavailable, "there are no policies; pass the ones of Default or Load")
	}
	if problem := q.problem(); problem != "" {
		return q.refuse(ErrUnavailable, problem)
	}
	context, err := q.makeContext()
	if err != nil {
		return q.refuse(ErrUnavailable, err.Error())
	}
	asked := p.overlay(q)
	decision, diagnostic := cedar.Authorize(p.policies, asked, cedar.Request{
		Principal: asked.principal.UID,
		Action:    actions[q.Action],
		Resource:  asked.tool.UID,
		Context:   context,
	})
	switch {
	case len(diagnostic.Errors) > 0:
		return q.refuse(ErrUnavailable, faults(diagnostic.Errors))
	case decision == cedar.Allow:
		return nil
	case len(diagnostic.Reasons) > 0:
		return q.refuse(ErrForbidden, reasons(diagnostic.Reasons))
	default:
		return q.refuse(ErrForbidden, "no policy permits it")
	}
}

func (q Question) refuse(sentinel error, why string) error {
	return fmt.Errorf("%w: action %q on tool %q: %s", sentinel, q.Action, q.Tool, why)
}

// problem says what is missing in the question, "" if nothing is.
func (q Question) problem() string {
	_, known := actions[q.Action]
	others := q.Action == Approve || q.Action == Settle || q.Action == Review
	switch {
	case !known:
		return "the action is unknown"
	case q.Tenant == "":
		return "the tenant is missing"
	case strings.Contains(q.Tenant, "/"):
		return `the tenant has a "/" in its name, which separates tenant and user`
	case q.Environment == "":
		return "the environment is missing"
	case q.User == "":
		return "the user is missing"
	case q.Tool == "":
		return "the tool is missing"
	case q.Risk != "read" && q.Risk != "write":
		return `the risk is neither "read" nor "write"`
	case others && q.Requester == "":
		return "the requester is missing"
	case !others && q.Requester != "" && q.Requester != q.User:
		return "the user must be the requester for this action"
	case q.Arguments == nil && q.Action != Offer && q.Action != Settle:
		return "the arguments are missing; pass {} if there are none"
	}
	return ""
}

// makeContext returns the context of a question that has no problem.
func (q Question) makeContext() (cedar.Record, error) {
	requester := q.Requester
	if requester == "" {
		requester = q.User
	}
	flags := make([]cedar.Value, len(q.Flags))
	for i, flag := range q.Flags {
		flags[i] = cedar.String(flag)
	}
	context := cedar.RecordMap{
		"tenant":       cedar.String(q.Tenant),
		"environment":  cedar.String(q.Environment),
		"agent":        cedar.String(q.Agent),
		"page":         cedar.String(q.Page),
		"flags":        cedar.NewSet(flags...),
		"requester":    ofTenant(typeUser, q.Tenant, requester),
		groupApprovers: ofTenant(typeGroup, q.Tenant, groupApprovers),
		groupOperators: ofTenant(typeGroup, q.Tenant, groupOperators),
		groupReviewers: ofTenant(typeGroup, q.Tenant, groupReviewers),
		"object":       cedar.String(q.Object),
	}
	if q.Arguments != nil {
		arguments, err := convertArguments(q.Arguments)
		if err != nil {
			return cedar.Record{}, err
		}
		context["arguments"] = arguments
	}
	return cedar.NewRecord(context), nil
}

// faults describes evaluation errors. Cedar's own texts quote values, so only
// their kind is told.
func faults(errs []cedar.DiagnosticError) string {
	texts := make([]string, len(errs))
	for i, e := range errs {
		texts[i] = fmt.Sprintf("policy %q (%s:%d): %s", e.PolicyID, e.Position.Filename, e.Position.Line, kind(e.Message))
	}
	return strings.Join(texts, "; ")
}

func kind(message string) string {
	switch {
	case strings.Contains(message, "does not have the attribute"):
		return "an attribute is missing; test for it with `has` first, or limit the policy to actions that have it"
	case strings.Contains(message, "type error"):
		return "a value is of another type than the policy expects"
	case strings.Contains(message, "overflow"):
		return "a number became too large"
	case strings.Contains(message, "does not exist"):
		return "an entity is not in " + entitiesFile
	default:
		return "it failed"
	}
}

func reasons(list []cedar.DiagnosticReason) string {
	ids := make([]string, len(list))
	for i, reason := range list {
		ids[i] = fmt.Sprintf("%q", reason.PolicyID)
	}
	slices.Sort(ids)
	return "by policy " + strings.Join(ids, ", ")
}
