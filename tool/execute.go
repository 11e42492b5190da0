package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/agent"
)

// ErrAuthorizationUnavailable is wrapped when an Authorizer could not answer.
// The run ends authorization_unavailable: the door stays closed.
var ErrAuthorizationUnavailable = errors.New("authorization unavailable")

// ErrArgumentsChanged is wrapped when recorded arguments are not the ones that
// were checked: not canonical, or of another hash. The record is damaged.
var ErrArgumentsChanged = errors.New("recorded arguments changed")

// ErrRisk is wrapped when Execute is asked for a write, or Prepare or Commit for
// a read. It is the caller's mistake, and nothing was called.
var ErrRisk = errors.New("the tool is of the other risk: reads are executed, writes are prepared and committed")

// Call is one execution: what was recorded, and the allow-list that holds now.
type Call struct {
	Invocation
	// Tool is the recorded name, matched byte for byte.
	Tool string
	// Allow is the definition's allow-list.
	Allow []string
	// ArgumentsHash, if not empty, must be the hash of Arguments.
	ArgumentsHash string
}

// Execute carries out a call of a read. What Check said earlier is not trusted:
// offer, canonical form, hash, schema and rights are examined again. A write is
// refused with ErrRisk.
//
// Errors are one of:
//   - *Error: the model may see it. Transient ones have been retried already.
//   - ErrAuthorizationUnavailable, wrapped: rights could not be determined.
//   - ErrOutcomeUnknown, wrapped: the tool cannot say what happened.
//   - ErrArgumentsChanged, wrapped.
//   - ctx.Err(), wrapped: ctx ended before the tool did. A tool that exceeds
//     its own timeout is an *Error of ToolTimeout instead.
//   - any other, such as ErrRisk: the caller's mistake, and nothing was called.
//
// A tool's panic is an *Error without its text. Tools that ignore their context
// are abandoned after a short while. The result is valid UTF-8 without NUL, JSON
// is compact, and at most MaxResultBytes are kept.
func (r *Registry) Execute(ctx context.Context, call Call) (Result, error) {
	e, invocation, err := r.admit(ctx, "execute", call, Read)
	if err != nil {
		return Result{}, err
	}
	invocation.Key, invocation.Version = "", ""
	o := perform(ctx, e, invocation, step[Result]{
		places: e.places, authorize: true, attempts: e.spec.Attempts, again: transient, do: e.tool.Execute,
	})
	switch {
	case o.begun && errors.Is(o.err, ErrOutcomeUnknown):
		return Result{}, fmt.Errorf("execute %s: %w", e.spec.Name, seal(ErrOutcomeUnknown, o.err))
	case o.err != nil:
		return Result{}, e.failure(ctx, "execute", o.err)
	}
	result, refused := clean(o.value)
	if refused != nil {
		return Result{}, refused
	}
	return result, nil
}

// admit examines a recorded call as if nobody had before. Its errors, on which
// nothing was called, are those of Execute.
func (r *Registry) admit(ctx context.Context, verb string, call Call, risk Risk) (*entry, Invocation, error) {
	if err := examineActor(ctx, verb, call); err != nil {
		return nil, Invocation{}, err
	}
	e, refused := r.find(call.Actor, call.Allow, call.Tool)
	if refused != nil {
		return nil, Invocation{}, refused
	}
	if e.spec.Risk != risk {
		return nil, Invocation{}, fmt.Errorf("%s %s: %w", verb, e.spec.Name, ErrRisk)
	}
	invocation, err := examineArguments(verb, call)
	if err != nil {
		return nil, Invocation{}, err
	}
	if err := e.fits(invocation.Arguments); err != nil {
		return nil, Invocation{}, &Error{Code: agent.ToolInvalidArguments, Message: "the arguments do not fit: " + err.Error()}
	}
	return e, invocation, nil
}

func examineActor(ctx context.Context, verb string, call Call) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s tool: %w", verb, err)
	}
	if scope := call.Actor.Scope; scope.Tenant == "" || scope.User == "" || scope.Environment == "" {
		return fmt.Errorf("%s tool: the actor's scope is incomplete", verb)
	}
	return nil
}

// examineArguments returns the invocation with arguments that nobody else holds.
func examineArguments(verb string, call Call) (Invocation, error) {
	canonical, err := Canonical(string(call.Arguments), MaxArgumentBytes)
	if err != nil {
		return Invocation{}, fmt.Errorf("%s tool: %w: %w", verb, ErrArgumentsChanged, err)
	}
	if !bytes.Equal(canonical, call.Arguments) || call.ArgumentsHash != "" && call.ArgumentsHash != Hash(canonical) {
		return Invocation{}, fmt.Errorf("%s tool: %w", verb, ErrArgumentsChanged)
	}
	invocation := call.Invocation
	invocation.Arguments = canonical
	return invocation, nil
}

// failure sorts an error after which nothing has changed in the world: of a
// read, of a write that is prepared, of one that has not begun.
func (e *entry) failure(ctx context.Context, verb string, err error) error {
	var shown *Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: %w", verb, e.spec.Name, ctx.Err())
	case errors.Is(err, ErrAuthorizationUnavailable):
		return fmt.Errorf("%s %s: %w", verb, e.spec.Name, seal(ErrAuthorizationUnavailable, err))
	case errors.As(err, &shown) && shown != nil:
		return shown.fromTool()
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: agent.ToolTimeout, Message: "the tool took too long", Transient: true, Err: err}
	default:
		return &Error{Code: agent.ToolFailed, Message: "the tool failed", Err: err}
	}
}

// fromTool returns a tool's error as the model may see it. A tool does not speak
// for the person who decides about a write, nor for the run.
func (e *Error) fromTool() *Error {
	clean := e.shown()
	switch clean.Code {
	case agent.ToolDeclined, agent.ToolNotConfirmed, agent.ToolProhibited, agent.ToolOutcomeUnknown:
		clean.Code = agent.ToolFailed
	}
	return clean
}

// transient reports whether a failed attempt that changed nothing is worth
// another.
func transient(err error) bool {
	var shown *Error
	return errors.As(err, &shown) && shown != nil && shown.Transient && !errors.Is(err, ErrOutcomeUnknown)
}

// sealedError is a sentinel whose cause is there for logs only (Cause): an
// *Error or a context's end in it must not be taken for what the Registry says.
// Only a panic stays within reach of errors.As, for its stack.
type sealedError struct{ sentinel, cause error }

func seal(sentinel, cause error) error {
	if sealed, ok := cause.(*sealedError); ok && sealed.sentinel == sentinel {
		return sealed
	}
	return &sealedError{sentinel, cause}
}

func (e *sealedError) Error() string { return e.sentinel.Error() }

func (e *sealedError) Unwrap() []error {
	var crash *crashError
	if errors.As(e.cause, &crash) {
		return []error{e.sentinel, crash}
	}
	return []error{e.sentinel}
}

// Cause returns what a tool or an Authorizer itself returned behind an error of
// the Registry, or nil. It is for logs, and its text may hold content: log its
// type.
func Cause(err error) error {
	var sealed *sealedError
	if errors.As(err, &sealed) {
		return sealed.cause
	}
	var shown *Error
	if errors.As(err, &shown) && shown != nil {
		return shown.Err
	}
	return nil
}
