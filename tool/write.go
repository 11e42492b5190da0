package tool

import (
	"context"
	"errors"
)

// Plan is what a write is going to do, for the person who confirms it. The
// arguments are shown beside it.
type Plan struct {
	// Resource names the one thing that is changed, such as
	// "service/payment-api.production". Required, at most 256 bytes of one line.
	// It is an identifier: lists for operators show it, so put no personal text
	// into it.
	Resource string
	// Version is the resource's version now, at most 256 bytes of one line. A
	// confirmation holds for this version only: when it has changed at commit,
	// the plan is made and confirmed again. Empty for something that does not
	// exist yet. It travels in tokens through histories: put no content into it.
	Version string
	// Summary says what will be done, in words for a person. Required, at most
	// 4 KiB.
	Summary string
}

// Writer is a tool of risk Write. Execute has the effect; it is called only
// after a person confirmed the plan, with call.Key and call.Version set.
//
// Execute's error says what is known. A *Error (other than one of code
// ToolTimeout or ToolOutcomeUnknown) promises that the effect did not happen and
// will not. ErrStale says the same because the resource is no longer at
// call.Version. Any other error, a timeout and a panic mean that the outcome is
// unknown; it is looked up with Find before anything else happens.
type Writer interface {
	Tool
	// Prepare makes the plan and changes nothing. An *Error refuses the call
	// and the model sees it. The same state of the resource gives the same plan.
	Prepare(ctx context.Context, call Invocation) (Plan, error)
}

// Finder is implemented by writers whose effect can be looked up by key. Such a
// writer is idempotent: executed again with the same key it has no second
// effect and returns the same result, although the resource may have left
// call.Version by the first. A writer without Find whose outcome is unknown ends
// the run outcome_unknown.
type Finder interface {
	// Find says what became of the write with call.Key. An error means that
	// the question could not be answered, as FindUnknown does. call.Arguments
	// satisfied the schema when the write was sent, which may have been before
	// a change of the tool.
	Find(ctx context.Context, call Invocation) (Finding, error)
}

// FindState is the answer to a look-up.
type FindState string

// The closed set of answers.
const (
	// FindUnknown: still under way, or nobody can tell.
	FindUnknown FindState = "unknown"
	// FindPerformed: the effect happened; Result is what Execute would have
	// returned.
	FindPerformed FindState = "performed"
	// FindAbsent: the system knows no such key. That it did not happen is
	// believed after the time that Spec.InFlight speaks of.
	FindAbsent FindState = "absent"
	// FindFailed: the write was refused for good; Err is what Execute would
	// have returned.
	FindFailed FindState = "failed"
)

// Finding is what a look-up found.
type Finding struct {
	State FindState
	// Result is set with FindPerformed only, Err with FindFailed only.
	Result Result
	Err    *Error
}

// ErrStale is returned by a Writer whose resource is not at the version that
// was confirmed. Nothing was changed.
var ErrStale = errors.New("the resource has changed")

// ErrNoFinder is wrapped when a tool has no look-up.
var ErrNoFinder = errors.New("the tool has no look-up")
