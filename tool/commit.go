package tool

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/fairlead/fairlead/agent"
)

var keyPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// unreadable stands for the result of a write that was performed.
const unreadable = `{"note":"the write was performed, but its result could not be read"}`

// Commit performs a write that a person confirmed, with the idempotency key in
// call.Key (64 hexadecimal digits in lower case) and the confirmed resource
// version in call.Version. As in Execute, offer, canonical form, hash, schema
// and rights are examined first. Performing once more what a look-up found
// absent is the same call with the same key.
//
// A nil error says that the effect happened. Errors are one of the following,
// and only after ErrOutcomeUnknown may it have happened:
//   - *Error: it did not happen and will not; the model may see it. The tool
//     promised so, or it was not called: unknown tool, arguments that do not
//     fit, forbidden, no free place, no time left to begin. What a tool says
//     with code ToolTimeout or ToolOutcomeUnknown is no promise, and is
//     ErrOutcomeUnknown.
//   - ErrStale, wrapped: the resource is not at call.Version; nothing changed.
//   - ErrOutcomeUnknown, wrapped: the tool was called and did not say that
//     nothing happened: any other error, a timeout, the end of ctx, a panic, a
//     tool that ignored the end of its context and may still be running.
//   - ErrAuthorizationUnavailable, ErrArgumentsChanged, wrapped: the tool was
//     not called.
//   - ctx.Err(), wrapped: ctx ended before the tool was called.
//   - any other, such as ErrRisk or a malformed key: the caller's mistake, and
//     the tool was not called.
//
// No error but *Error is an *Error for errors.As; what the tool itself returned
// is behind Cause, and a panic's stack within reach of errors.As.
//
// A transient *Error is tried again, with the same key, up to Spec.Attempts. The
// result is cleaned as that of Execute. A result that is invalid does not undo
// the effect: a note takes its place and Unreadable is set.
func (r *Registry) Commit(ctx context.Context, call Call) (Result, error) {
	if err := examineKey("commit", call); err != nil {
		return Result{}, err
	}
	e, invocation, err := r.admit(ctx, "commit", call, Write)
	if err != nil {
		return Result{}, err
	}
	o := perform(ctx, e, invocation, step[Result]{
		places: e.places, authorize: true, attempts: e.spec.Attempts, do: e.writer.Execute,
		again: func(err error) bool {
			refusal, ok := promised(err)
			return ok && refusal.Transient
		},
	})
	switch {
	case !o.begun:
		return Result{}, e.failure(ctx, "commit", o.err)
	case o.err == nil:
		return performed(o.value), nil
	case errors.Is(o.err, ErrStale) && !errors.Is(o.err, ErrOutcomeUnknown):
		return Result{}, fmt.Errorf("commit %s: %w", e.spec.Name, seal(ErrStale, o.err))
	}
	if refusal, ok := promised(o.err); ok {
		return Result{}, refusal.fromTool()
	}
	return Result{}, fmt.Errorf("commit %s: %w", e.spec.Name, seal(ErrOutcomeUnknown, o.err))
}

func examineKey(verb string, call Call) error {
	if !keyPattern.MatchString(call.Key) {
		return fmt.Errorf("%s tool: the idempotency key is not 64 hexadecimal digits in lower case", verb)
	}
	return nil
}

// promised returns the *Error by which a writer says that its effect did not
// happen and will not.
func promised(err error) (*Error, bool) {
	var refusal *Error
	if errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrStale) || !errors.As(err, &refusal) || refusal == nil {
		return nil, false
	}
	return refusal, refusal.Code != agent.ToolTimeout && refusal.Code != agent.ToolOutcomeUnknown
}

// performed returns the result of an effect that happened.
func performed(result Result) Result {
	cleaned, refused := clean(result)
	if refused != nil {
		return Result{Content: []byte(unreadable), ContentType: ContentJSON, Unreadable: true}
	}
	return cleaned
}

// Find asks what became of the write with call.Key, with the arguments and the
// version that it was sent with.
//
// It works for every registered tool: what the actor, the allow-list, the flags
// and the schema say by now has no bearing on what was sent earlier. No
// Authorizer is asked either, because looking at what happened is no action and
// the result belongs to the run that caused it.
//
// With an error the finding is FindUnknown, and the error is one of:
//   - ErrNoFinder, wrapped: nobody can ever look this write up.
//   - ErrArgumentsChanged, wrapped: the record is damaged.
//   - ErrOutcomeUnknown, wrapped: the question was not answered, and may be later:
//     the tool failed, panicked, took longer than its timeout, gave an invalid
//     finding, or is not registered with this worker. If ctx ended before the
//     tool answered, ctx.Err() is wrapped as well. For what the tool returned
//     see Cause.
//   - any other, such as a malformed key: the caller's mistake.
//
// Nothing is tried twice: the caller waits and asks again. The result of
// FindPerformed is cleaned as Commit's is; FindFailed always comes with an Err
// that the model may see.
func (r *Registry) Find(ctx context.Context, call Call) (Finding, error) {
	finding, err := r.lookUp(ctx, call)
	if err != nil {
		return Finding{State: FindUnknown}, err
	}
	return finding, nil
}

func (r *Registry) lookUp(ctx context.Context, call Call) (Finding, error) {
	if err := examineKey("find", call); err != nil {
		return Finding{}, err
	}
	if err := examineActor(ctx, "find", call); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		return Finding{}, err
	}
	e := r.named(call.Tool)
	switch {
	case e == nil:
		return Finding{}, fmt.Errorf("find tool: %w: the tool is not registered with this worker", ErrOutcomeUnknown)
	case e.finder == nil:
		return Finding{}, fmt.Errorf("find %s: %w", e.spec.Name, ErrNoFinder)
	}
	invocation, err := examineArguments("find", call)
	if err != nil {
		return Finding{}, err
	}
	o := perform(ctx, e, invocation, step[Finding]{places: e.lookUps, attempts: 1, do: e.finder.Find})
	if o.err == nil {
		o.value, o.err = o.value.clean()
	}
	switch {
	case o.err == nil:
		return o.value, nil
	case ctx.Err() != nil:
		return Finding{}, fmt.Errorf("find %s: %w: %w", e.spec.Name, ctx.Err(), seal(ErrOutcomeUnknown, o.err))
	default:
		return Finding{}, fmt.Errorf("find %s: %w", e.spec.Name, seal(ErrOutcomeUnknown, o.err))
	}
}

// clean keeps what belongs to the state.
func (f Finding) clean() (Finding, error) {
	switch f.State {
	case FindPerformed:
		return Finding{State: f.State, Result: performed(f.Result)}, nil
	case FindFailed:
		if f.Err == nil {
			f.Err = &Error{Code: agent.ToolFailed, Message: "the write was refused"}
		}
		return Finding{State: f.State, Err: f.Err.fromTool()}, nil
	case FindAbsent, FindUnknown:
		return Finding{State: f.State}, nil
	default:
		return Finding{}, errors.New("the finding's state is none of the closed set")
	}
}
