package tool

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/agent"
)

// NewRead makes a read tool of a function whose arguments are a struct. They
// are decoded strictly: a field of the schema that the struct lacks is an error
// of the tool, seen by the first call that uses it. spec.Risk may be left empty.
func NewRead[Args any](spec Spec, run func(ctx context.Context, call Invocation, args Args) (Result, error)) (Tool, error) {
	if run == nil {
		return nil, errors.New("run is nil")
	}
	if spec.Risk == "" {
		spec.Risk = Read
	}
	if spec.Risk != Read {
		return nil, errors.New("a tool made by NewRead must be of risk read")
	}
	if _, _, err := spec.complete(); err != nil {
		return nil, err
	}
	return typed[Args]{spec.clone(), run}, nil
}

type typed[Args any] struct {
	spec Spec
	run  func(context.Context, Invocation, Args) (Result, error)
}

func (t typed[Args]) Spec() Spec { return t.spec.clone() }

func (t typed[Args]) Execute(ctx context.Context, call Invocation) (Result, error) {
	return decoded(ctx, call, t.run)
}

// WriteFuncs are the parts of a writer made by NewWrite. Authorize and Find may
// be nil. What they return means what is said at Writer, Authorizer and Finder.
type WriteFuncs[Args any] struct {
	Prepare   func(ctx context.Context, call Invocation, args Args) (Plan, error)
	Authorize func(ctx context.Context, call Invocation, args Args) error
	Execute   func(ctx context.Context, call Invocation, args Args) (Result, error)
	Find      func(ctx context.Context, call Invocation, args Args) (Finding, error)
}

// NewWrite makes a write tool of functions whose arguments are a struct, decoded
// as by NewRead. It is a Finder only if Find is given. spec.Risk may be left
// empty.
//
// A type that embeds the returned Tool hides that it is a Writer and a Finder;
// give Authorize here instead of wrapping it.
func NewWrite[Args any](spec Spec, funcs WriteFuncs[Args]) (Tool, error) {
	if funcs.Prepare == nil || funcs.Execute == nil {
		return nil, errors.New("prepare or execute is nil: a write needs both")
	}
	if spec.Risk == "" {
		spec.Risk = Write
	}
	if spec.Risk != Write {
		return nil, errors.New("a tool made by NewWrite must be of risk write")
	}
	writer := typedWriter[Args]{typed[Args]{spec.clone(), funcs.Execute}, funcs}
	var made Tool = writer
	if funcs.Find != nil {
		made = typedFinder[Args]{writer}
	}
	if _, _, err := spec.complete(); err != nil {
		return nil, err
	}
	if err := spec.implementedBy(made); err != nil {
		return nil, err
	}
	return made, nil
}

type typedWriter[Args any] struct {
	typed[Args]
	funcs WriteFuncs[Args]
}

func (t typedWriter[Args]) Prepare(ctx context.Context, call Invocation) (Plan, error) {
	return decoded(ctx, call, t.funcs.Prepare)
}

func (t typedWriter[Args]) Authorize(ctx context.Context, call Invocation) error {
	if t.funcs.Authorize == nil {
		return nil
	}
	args, err := DecodeArgs[Args](call.Arguments)
	if err != nil {
		return fmt.Errorf("authorize: %w", err)
	}
	return t.funcs.Authorize(ctx, call, args)
}

type typedFinder[Args any] struct{ typedWriter[Args] }

func (t typedFinder[Args]) Find(ctx context.Context, call Invocation) (Finding, error) {
	return decoded(ctx, call, t.funcs.Find)
}

// decoded calls f with the arguments as a struct, or refuses the call.
func decoded[Args, T any](ctx context.Context, call Invocation, f func(context.Context, Invocation, Args) (T, error)) (T, error) {
	args, err := DecodeArgs[Args](call.Arguments)
	if err != nil {
		var none T
		return none, &Error{Code: agent.ToolInvalidArguments, Message: "the arguments do not fit this tool", Err: err}
	}
	return f(ctx, call, args)
}
