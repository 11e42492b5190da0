package opspilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/tool"
)

// sight is what reads may look at: the services of the run's own environment,
// and of those that the configuration adds to it. Writes never leave their own.
type sight struct {
	registry *services.Registry
	also     map[string][]string
}

// environments are those that a run in one environment sees, its own first.
func (s sight) environments(own string) []string {
	return append([]string{own}, s.also[own]...)
}

// get finds a service that a run in one environment sees: services.ErrNotFound.
func (s sight) get(own, id string) (services.Record, error) {
	for _, environment := range s.environments(own) {
		record, err := s.registry.Get(environment, id)
		if !errors.Is(err, services.ErrNotFound) {
			return record, err
		}
	}
	return services.Record{}, services.ErrNotFound
}

// list are the services in one environment that a run sees, or in all of them
// if none is named, by name and in the order of the environments.
func (s sight) list(own, environment string) (records []services.Record, unreadable int, err error) {
	for _, e := range s.environments(own) {
		if environment != "" && e != environment {
			continue
		}
		found, broken, err := s.registry.List(e)
		if err != nil {
			return nil, 0, err
		}
		records, unreadable = append(records, found...), unreadable+broken
	}
	return records, unreadable, nil
}

// visible allows a call on a service that the actor's run sees. One elsewhere
// and one that does not exist are refused alike, so that nobody learns by asking
// what runs elsewhere. A registry that cannot be read is neither: the question
// stays open and the door closed.
func (s sight) visible(_ context.Context, call tool.Invocation) error {
	var arguments struct {
		ServiceID string `json:"service_id"`
	}
	if err := json.Unmarshal(call.Arguments, &arguments); err != nil {
		return fmt.Errorf("authorize: %w", err)
	}
	_, err := s.get(call.Actor.Scope.Environment, arguments.ServiceID)
	if errors.Is(err, services.ErrNotFound) {
		return tool.ErrForbidden
	}
	return err
}

// environmentVisible allows a call that names no environment or one that the
// actor's run sees.
func (s sight) environmentVisible(_ context.Context, call tool.Invocation) error {
	var a findServiceArguments
	if err := json.Unmarshal(call.Arguments, &a); err != nil {
		return err
	}
	if a.Environment != "" && !slices.Contains(s.environments(call.Actor.Scope.Environment), a.Environment) {
		return tool.ErrForbidden
	}
	return nil
}

// lookUp finds the service again at execution: between authorization and now it
// may have gone.
func (s sight) lookUp(call tool.Invocation, id string) (services.Record, error) {
	record, err := s.get(call.Actor.Scope.Environment, id)
	switch {
	case errors.Is(err, services.ErrNotFound):
		return record, &tool.Error{Code: agent.ToolNotFound, Message: "there is no such service here; get a service_id from find_service"}
	case err != nil:
		return record, &tool.Error{Code: agent.ToolUnavailable, Message: "the service registry could not be read", Transient: true, Err: err}
	}
	return record, nil
}
