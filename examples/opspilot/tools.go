// Package opspilot is the demo agent of fairlead: an assistant that a person
// asks why a service fails, and to mend it. It has three read tools, a write
// tool or two that do nothing until a person has confirmed it, a definition in
// YAML, and a script that plays the model when no real one is configured.
//
// It imports public packages of fairlead only: an agent of your own can be
// written in the same way, in a module of its own.
package opspilot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/tool"
)

// The names of the tools.
const (
	FindService   = "find_service"
	ServiceStatus = "service_status"
	QueryLogs     = "query_logs"
	// RestartService and OpenTicket change something: a person confirms each call.
	RestartService = "restart_service"
	OpenTicket     = "open_ticket"
)

// Config says where the tools find their data.
type Config struct {
	// RegistryDir is the directory of the service registry; it need not exist
	// yet.
	RegistryDir string
	// TicketURL is the base URL of the ticket service, http on a loopback
	// address such as http://127.0.0.1:8070. Empty means that there is none and
	// that the tool open_ticket does not exist; see also WithTickets.
	TicketURL string
	// Visible names, by the environment of a run, the other environments whose
	// services it may look at as well: {"production": ["staging"]}. It changes
	// nothing there.
	Visible map[string][]string
	// RestartTimeout and TicketTimeout bound one HTTP request of the tool. A
	// restart that takes longer goes on, and is looked up.
	RestartTimeout time.Duration // 25 s
	TicketTimeout  time.Duration // 5 s
}

func (c *Config) fill() error {
	if c.RestartTimeout == 0 {
		c.RestartTimeout = defaultRestartTimeout
	}
	if c.TicketTimeout == 0 {
		c.TicketTimeout = defaultTicketTimeout
	}
	if c.RestartTimeout < 0 || c.TicketTimeout < 0 {
		return errors.New("time-outs must not be negative")
	}
	return nil
}

// Tools returns the agent's own tools. Each sees the services of the actor's
// environment and no others. They are safe for concurrent use.
func Tools(config Config) ([]tool.Tool, error) {
	if err := config.fill(); err != nil {
		return nil, fmt.Errorf("build OpsPilot tools: %w", err)
	}
	registry, err := services.Open(config.RegistryDir)
	if err != nil {
		return nil, err
	}
	builders := []func(Config, *services.Registry) (tool.Tool, error){newFindService, newServiceStatus, newQueryLogs, newRestartService}
	if config.TicketURL != "" {
		builders = append(builders, newOpenTicket)
	}
	var tools []tool.Tool
	for _, build := range builders {
		built, err := build(config, registry)
		if err != nil {
			return nil, fmt.Errorf("build OpsPilot tools: %w", err)
		}
		tools = append(tools, built)
	}
	return tools, nil
}

// The facts of a conversation that say which service it is about: whoever says
// "restart it" later means that one.
const (
	factService     = "current_service"
	factServiceName = "current_service_name"
	factEnvironment = "current_environment"
)

// serviceFacts are the facts of a result that describes a service at that place.
// They come all at once, so that they are always of one service.
func serviceFacts(place string) []tool.Fact {
	return []tool.Fact{
		{Key: factService, Pointer: place + "/service_id"},
		{Key: factServiceName, Pointer: place + "/name"},
		{Key: factEnvironment, Pointer: place + "/environment"},
	}
}

// noted is a result with what it amounts to in one line, which stays with the
// model when the result itself has become too old to be shown.
func noted(value any, note string) (tool.Result, error) {
	result, err := tool.JSON(value)
	result.Note = note
	return result, err
}

// authorized adds an authorization rule to a tool.
type authorized struct {
	tool.Tool
	rule func(context.Context, tool.Invocation) error
}

// Authorize implements tool.Authorizer.
func (a authorized) Authorize(ctx context.Context, call tool.Invocation) error {
	return a.rule(ctx, call)
}
