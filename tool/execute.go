package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/agent"
)

// ErrAuthorizationUnavailable is wrapped when an Authorizer could not answer.
// The run ends authorization_unavailable: the door stays closed.
var ErrAuthorizationUnavailable = errors.New("authorization unavailable")

// ErrArgumentsChanged is wrapped when recorded arguments are not the ones that
// were checked: not canonical, or of another hash. The record is damaged.
var ErrArgumentsChanged = errors.New("recorded arguments changed")

const (
	// retryInitial is the wait after the first transient failure; it doubles.
	retryInitial = 100 * time.Millisecond
	// settle is how long a tool whose context ended may take to say how it
	// ended. One that does not is left to itself; it keeps its place in the
	// quota until it returns.
	settle = 500 * time.Millisecond
)

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

// Execute carries out a call. What Check said earlier is not trusted: offer,
// canonical form, hash, schema and rights are examined again.
//
// Errors are one of:
//   - *Error: the model may see it. Transient ones have been retried already.
//   - ErrAuthorizationUnavailable, wrapped: rights could not be determined.
//   - ErrOutcomeUnknown, wrapped: the tool cannot say what happened.
//   - ErrArgumentsChanged, wrapped.
//   - ctx.Err(), wrapped: ctx ended before the tool did. A tool that exceeds
//     its own timeout is an *Error of ToolTimeout instead.
//
// A tool's panic is an *Error without its text. Tools that ignore their context
// are abandoned after a short while. The result is valid UTF-8 without NUL, JSON
// is compact, and at most MaxResultBytes are kept.
func (r *Registry) Execute(ctx context.Context, call Call) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("execute tool: %w", err)
	}
	if scope := call.Actor.Scope; scope.Tenant == "" || scope.User == "" || scope.Environment == "" {
		return Result{}, errors.New("execute tool: the actor's scope is incomplete")
	}
	e, refused := r.find(call.Actor, call.Allow, call.Tool)
	if refused != nil {
		return Result{}, refused
	}
	canonical, err := Canonical(string(call.Arguments), MaxArgumentBytes)
	if err != nil {
		return Result{}, fmt.Errorf("execute %s: %w: %w", e.spec.Name, ErrArgumentsChanged, err)
	}
	if !bytes.Equal(canonical, call.Arguments) || call.ArgumentsHash != "" && call.ArgumentsHash != Hash(canonical) {
		return Result{}, fmt.Errorf("execute %s: %w", e.spec.Name, ErrArgumentsChanged)
	}
	if err := e.fits(canonical); err != nil {
		return Result{}, &Error{Code: agent.ToolInvalidArguments, Message: "the arguments do not fit: " + err.Error()}
	}
	invocation := call.Invocation
	invocation.Arguments = canonical

	own, cancel := context.WithTimeout(ctx, e.spec.Timeout)
	defer cancel()
	select {
	case e.places <- struct{}{}:
	case <-own.Done():
		if err := ctx.Err(); err != nil {
			return Result{}, fmt.Errorf("execute %s: %w", e.spec.Name, err)
		}
		return Result{}, &Error{Code: agent.ToolQuota, Message: "too many calls of this tool are running", Transient: true}
	}
	done := make(chan outcome, 1)
	var allowed atomic.Bool
	go func() {
		defer func() { <-e.places }()
		if err := e.authorize(own, invocation); err != nil {
			done <- outcome{err: err}
			return
		}
		allowed.Store(true)
		done <- e.run(own, invocation)
	}()
	o, ended := await(own, done)
	if !ended && !allowed.Load() {
		o.err = fmt.Errorf("%w: %w", ErrAuthorizationUnavailable, o.err)
	}
	return e.settled(ctx, o)
}

// outcome is how an execution ended.
type outcome struct {
	result Result
	err    error
}

// await gives the tool a moment after its context ended, because only it knows
// whether its effect happened. It reports false for a tool that was abandoned.
func await(ctx context.Context, done <-chan outcome) (o outcome, ended bool) {
	select {
	case o := <-done:
		return o, true
	case <-ctx.Done():
	}
	grace := time.NewTimer(settle)
	defer grace.Stop()
	select {
	case o := <-done:
		return o, true
	case <-grace.C:
		return outcome{err: ctx.Err()}, false
	}
}

// settled turns an outcome into what Execute promises.
func (e *entry) settled(ctx context.Context, o outcome) (Result, error) {
	if o.err == nil {
		result, refused := clean(o.result)
		if refused != nil {
			return Result{}, refused
		}
		return result, nil
	}
	var shown *Error
	switch {
	case errors.Is(o.err, ErrOutcomeUnknown):
		return Result{}, fmt.Errorf("execute %s: %w", e.spec.Name, o.err)
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("execute %s: %w", e.spec.Name, ctx.Err())
	case errors.Is(o.err, ErrAuthorizationUnavailable):
		return Result{}, fmt.Errorf("execute %s: %w", e.spec.Name, o.err)
	case errors.As(o.err, &shown) && shown != nil:
		return Result{}, shown.shown()
	case errors.Is(o.err, context.DeadlineExceeded):
		return Result{}, &Error{Code: agent.ToolTimeout, Message: "the tool took too long", Transient: true, Err: o.err}
	default:
		return Result{}, &Error{Code: agent.ToolFailed, Message: "the tool failed", Err: o.err}
	}
}

// run tries until success, a permanent failure, or the end of attempts or time.
func (e *entry) run(ctx context.Context, call Invocation) outcome {
	wait := retryInitial
	for attempt := 1; ; attempt++ {
		o := e.attempt(ctx, call)
		var shown *Error
		transient := errors.As(o.err, &shown) && shown != nil && shown.Transient && !errors.Is(o.err, ErrOutcomeUnknown)
		if !transient || attempt >= e.spec.Attempts || !pause(ctx, wait) {
			return o
		}
		wait *= 2
	}
}

// pause waits, and reports false without waiting if time would be up before.
func pause(ctx context.Context, wait time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempt runs the tool once. Neither a panic nor runtime.Goexit escapes.
func (e *entry) attempt(ctx context.Context, call Invocation) outcome {
	call.Arguments = bytes.Clone(call.Arguments)
	result, crash, err := guard(func() (Result, error) { return e.tool.Execute(ctx, call) })
	if crash != nil {
		err = crash
	}
	return outcome{result: result, err: err}
}

func (e *entry) authorize(ctx context.Context, call Invocation) error {
	authorizer, ok := e.tool.(Authorizer)
	if !ok {
		return nil
	}
	call.Arguments = bytes.Clone(call.Arguments)
	_, crash, err := guard(func() (struct{}, error) { return struct{}{}, authorizer.Authorize(ctx, call) })
	switch {
	case crash != nil:
		return fmt.Errorf("%w: %w", ErrAuthorizationUnavailable, crash)
	case err == nil:
		return nil
	case errors.Is(err, ErrForbidden):
		return &Error{Code: agent.ToolForbidden, Message: "not allowed", Err: err}
	default:
		return fmt.Errorf("%w: %w", ErrAuthorizationUnavailable, err)
	}
}

// crashError is a panic without its value, which may hold content.
type crashError struct {
	kind  string
	stack []byte
}

func (e *crashError) Error() string { return "panic of type " + e.kind }

// Stack is where it panicked: functions and addresses, no content.
func (e *crashError) Stack() []byte { return e.stack }

// guard calls f on a goroutine of its own, so that runtime.Goexit ends f alone.
func guard[T any](f func() (T, error)) (value T, crash *crashError, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if returned {
				return
			}
			crash = &crashError{kind: fmt.Sprintf("%T", recover()), stack: debug.Stack()}
		}()
		value, err = f()
		returned = true
	}()
	<-done
	return value, crash, err
}
