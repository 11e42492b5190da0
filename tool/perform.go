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

const (
	// retryInitial is the wait after the first transient failure; it doubles.
	retryInitial = 100 * time.Millisecond
	// settle is how long a tool whose context ended may take to say how it
	// ended. One that does not is left to itself; it keeps its place in the
	// quota until it returns.
	settle = 500 * time.Millisecond
)

// step is one thing that a tool is asked to do.
type step[T any] struct {
	places    chan struct{}
	authorize bool
	attempts  int
	// again reports whether a failed attempt may be followed by another.
	again func(error) bool
	do    func(context.Context, Invocation) (T, error)
}

// outcome is how a step ended.
type outcome[T any] struct {
	value T
	err   error
	// begun says that the tool was called. If not, it never will be.
	begun bool
}

// perform asks the tool of e for one step: it waits for a place, checks rights,
// and tries within the tool's timeout. The tool runs on a goroutine of its own
// and is abandoned if it ignores the end of its context.
func perform[T any](ctx context.Context, e *entry, call Invocation, s step[T]) outcome[T] {
	own, cancel := context.WithTimeout(ctx, e.spec.Timeout)
	defer cancel()
	select {
	case s.places <- struct{}{}:
	case <-own.Done():
		return outcome[T]{err: &Error{Code: agent.ToolQuota, Message: "too many calls of this tool are running", Transient: true}}
	}
	done := make(chan outcome[T], 1)
	var start gate
	go func() {
		defer func() { <-s.places }()
		if s.authorize {
			if err := e.authorize(own, call); err != nil {
				done <- outcome[T]{err: err}
				return
			}
		}
		if err := own.Err(); err != nil {
			done <- outcome[T]{err: &Error{Code: agent.ToolTimeout, Message: "no time was left to begin", Transient: true, Err: err}}
			return
		}
		if !start.begin() {
			return
		}
		value, err := try(own, call, s)
		done <- outcome[T]{value: value, err: err, begun: true}
	}()
	return await(own, done, &start)
}

// gate is passed by the tool or shut by the one who waits, never both: a write
// that was reported as not begun must not begin afterwards.
type gate struct{ decided atomic.Bool }

func (g *gate) begin() bool { return g.decided.CompareAndSwap(false, true) }

// shut keeps the tool from beginning, and reports false if it has begun.
func (g *gate) shut() bool { return g.decided.CompareAndSwap(false, true) }

// await gives the tool a moment after its context ended, because only it knows
// whether its effect happened.
func await[T any](ctx context.Context, done <-chan outcome[T], start *gate) outcome[T] {
	select {
	case o := <-done:
		return o
	case <-ctx.Done():
	}
	grace := time.NewTimer(settle)
	defer grace.Stop()
	select {
	case o := <-done:
		return o
	case <-grace.C:
	}
	if start.shut() {
		return outcome[T]{err: seal(ErrAuthorizationUnavailable, ctx.Err())}
	}
	return outcome[T]{err: ctx.Err(), begun: true}
}

// try calls the tool until success, a failure that s does not repeat, or the end
// of attempts or time.
func try[T any](ctx context.Context, call Invocation, s step[T]) (T, error) {
	wait := retryInitial
	for attempt := 1; ; attempt++ {
		given := call
		given.Arguments = bytes.Clone(call.Arguments)
		value, err := guard(func() (T, error) { return s.do(ctx, given) })
		if err == nil || attempt >= s.attempts || !s.again(err) || !pause(ctx, wait) {
			return value, err
		}
		wait *= 2
	}
}

// pause waits, and reports false if time is up, without waiting if it would be.
func pause(ctx context.Context, wait time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// authorize returns nil, an *Error of ToolForbidden, or
// ErrAuthorizationUnavailable.
func (e *entry) authorize(ctx context.Context, call Invocation) error {
	authorizer, ok := e.tool.(Authorizer)
	if !ok {
		return nil
	}
	call.Arguments = bytes.Clone(call.Arguments)
	_, err := guard(func() (struct{}, error) { return struct{}{}, authorizer.Authorize(ctx, call) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrForbidden):
		return &Error{Code: agent.ToolForbidden, Message: "not allowed", Err: seal(ErrForbidden, err)}
	default:
		return seal(ErrAuthorizationUnavailable, err)
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
// Neither that nor a panic escapes: both are a *crashError.
func guard[T any](f func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if returned {
				return
			}
			var none T
			value, err = none, &crashError{kind: fmt.Sprintf("%T", recover()), stack: debug.Stack()}
		}()
		value, err = f()
		probe(err)
		returned = true
	}()
	<-done
	return value, err
}

// probe looks through an error as the Registry will. One whose Unwrap panics,
// such as a nil pointer that returns a field, is to do so under guard.
func probe(err error) { _ = errors.Is(err, errProbe) }

// errProbe is no other error, so that errors.Is looks at all of them.
var errProbe = errors.New("probe")
