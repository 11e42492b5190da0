package tool

import (
	"context"
	"errors"

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
	args, err := DecodeArgs[Args](call.Arguments)
	if err != nil {
		return Result{}, &Error{Code: agent.ToolInvalidArguments, Message: "the arguments do not fit this tool", Err: err}
	}
	return t.run(ctx, call, args)
}
