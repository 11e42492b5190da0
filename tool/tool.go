// Package tool is the boundary to tools: the interfaces they implement, the
// registry that offers and executes them, strict decoding of arguments, and the
// envelope in which results reach the model (TOOL-1..6).
//
// A read is executed with Registry.Execute. A write is prepared
// (Registry.Prepare), confirmed by a person, and performed (Registry.Commit); a
// write whose outcome is unknown is looked up (Registry.Find). Whether a person
// confirmed is for the caller to know: the package keeps no plans.
//
// The package knows nothing of Temporal or the database. Offering a tool to the
// model is not authorization: arguments and rights are checked at execution.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/fairlead/fairlead/agent"
)

// Risk says whether a tool changes anything outside the run.
type Risk string

// The closed set of risks.
const (
	Read  Risk = "read"
	Write Risk = "write"
)

// Trust says how far a tool's results may be believed.
type Trust string

// The closed set of trust levels. Results are data in either case, never
// instructions.
const (
	// Authoritative: the system of record for what it reports.
	Authoritative Trust = "authoritative"
	// Untrusted: text that others may have written, such as log lines or pages.
	Untrusted Trust = "untrusted"
)

// Spec declares a tool.
type Spec struct {
	// Name is matched byte for byte: 1 to 64 of a-z, 0-9 and _, beginning with
	// a letter.
	Name string
	// Version is part of the idempotency key; raise it when the meaning of the
	// arguments changes.
	Version     string
	Description string
	// Parameters is a JSON Schema (2020-12) of type object. Unknown fields are
	// refused whether or not it says additionalProperties.
	Parameters json.RawMessage
	Risk       Risk
	// Fast declares a read that returns within tens of milliseconds; it is run
	// as a local activity, which saves a round trip through the engine.
	Fast bool
	// Timeout bounds one execution: authorization, waiting for a free place, and
	// all attempts with the waits between them. Preparing, performing and looking
	// up a write have it each. Zero means 30 s, or 5 s for a fast read.
	Timeout time.Duration
	// Source names the system that answers, such as "log-store". Required.
	Source string
	// Trust defaults to Untrusted.
	Trust Trust
	// ExcerptBytes is how much of a result reaches the prompt. Zero means 4 KiB.
	// The full result is stored and can be fetched by result ID.
	ExcerptBytes int
	// Attempts is how often a transient failure is tried in all. Zero means 3
	// for reads and 1 for writes. Preparing a write is tried as often as a read
	// is by default, because it changes nothing.
	Attempts int
	// MaxConcurrent is how many executions run at the same time in one process;
	// further ones wait within their timeout. Look-ups are counted apart, so that
	// executions that hang cannot keep them out. Zero means 16.
	MaxConcurrent int
	// InFlight is how long a request may still take effect after the tool has
	// given up on it, for writers with Find. A look-up that finds nothing means
	// that nothing happened once Timeout, InFlight and a margin for clocks have
	// passed since the write was sent.
	InFlight time.Duration
	// Environments, Pages and Flag narrow where the tool is offered. Empty
	// means everywhere.
	Environments []string
	Pages        []string
	Flag         string
	// Facts are the fields of a successful JSON result that hold from then on
	// and become facts of the conversation (CONV-3), such as the service that a
	// look-up found. At most 16.
	Facts []Fact
	// Verbs are the words by which people speak of what the tool does, such as
	// "restart" and "重启": "never restart it" forbids the tools that have the
	// verb. At most 32, each 1 to 64 bytes, lower case.
	Verbs []string
}

// Fact names a field of a result that is a fact of the conversation.
type Fact struct {
	// Key is what the fact is called, such as "current_service": see
	// agent.ValidFactKey. A newer value of a key replaces the older one.
	Key string
	// Pointer finds the value in the result (RFC 6901), such as "/service/id".
	// A string, number or boolean becomes the value; where there is none, or
	// none that agent.ValidFactValue accepts, there is no fact.
	Pointer string
}

// Actor is on whose behalf a tool acts; it comes from the server's record of
// the run, never from the model.
type Actor struct {
	Scope agent.Scope
	Page  string
	Flags []string
}

// Invocation is one authorized, validated call.
type Invocation struct {
	Actor  Actor
	RunID  string
	CallID string
	// Arguments are canonical JSON (RFC 8785) that satisfied the schema.
	Arguments json.RawMessage
	// Key is the idempotency key of a write, 64 hexadecimal digits: the same
	// for every try, and for no other write. Send it along, or keep it with the
	// effect. Empty for reads and while a write is prepared.
	Key string
	// Version is the resource version that a person confirmed; make the write
	// conditional on it where the system can. Empty for reads, and while a
	// write is prepared.
	Version string
}

// Result is what a tool returns: JSON or text, in full.
type Result struct {
	// Content is the full result. It is stored; an excerpt reaches the prompt.
	Content []byte
	// ContentType is "application/json" or "text/plain"; empty means JSON.
	ContentType string
	// Note says in one line what the result amounts to, such as "14 errors since
	// 10:02". It stays in the prompt when the result itself has to go. At most
	// MaxNoteBytes; what is longer is cut.
	Note string
	// Truncated is set by the Registry when the content was longer than
	// MaxResultBytes and was cut. Cut JSON is text/plain.
	Truncated bool
	// Unreadable is set by the Registry when a write was performed and what the
	// tool returned is not a valid result. Content is a note that says so.
	Unreadable bool
}

// Tool is one capability. Implementations are safe for concurrent use and
// return an *Error for every failure that the model may see; any other error is
// shown to it as "failed" without detail. What the errors of a write mean is
// said at Writer.
type Tool interface {
	Spec() Spec
	Execute(ctx context.Context, call Invocation) (Result, error)
}

// Authorizer is implemented by tools that check rights on the object that the
// arguments name. A nil error allows the call. ErrForbidden (wrapped or not)
// refuses it and the model is told so. Any other error means that the question
// could not be answered: the run ends authorization_unavailable.
//
// A write is authorized when it is prepared and again when it is committed.
type Authorizer interface {
	Authorize(ctx context.Context, call Invocation) error
}

// ErrForbidden is returned by an Authorizer that refuses.
var ErrForbidden = errors.New("forbidden")

// ErrOutcomeUnknown is returned by a tool that cannot say whether its effect
// happened, and wrapped by the Registry when nobody can. Nobody guesses: a write
// is looked up where its tool is a Finder; else the run ends outcome_unknown.
var ErrOutcomeUnknown = errors.New("outcome unknown")

// Error is a failure that the model may see. Message is written by the tool's
// author for the model: no stack, SQL, internal address or credential.
type Error struct {
	Code    agent.ToolErrorCode
	Message string
	// Transient failures are tried again by the executor, up to Spec.Attempts,
	// before the model sees them. The model is told that they are retryable.
	Transient bool
	// Err is the cause, for the tool's own logs; it is never shown or stored.
	Err error
}

// Error returns code and safe message.
func (e *Error) Error() string {
	if e == nil {
		return string(agent.ToolFailed)
	}
	return string(e.Code) + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error {
	// A tool that returns a nil *Error as an error would otherwise crash
	// errors.Is far away from its mistake.
	if e == nil {
		return nil
	}
	return e.Err
}
