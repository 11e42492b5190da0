package opspilot

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"

	"github.com/fairlead/fairlead/agent/definition"
)

//go:embed agent.yaml
var agentYAML []byte

// Option changes the definition.
type Option func(*definition.Definition)

var notInVersion = regexp.MustCompile(`[^A-Za-z0-9._:@-]+`)

// WithModel runs the agent on another model of the catalogue. As the content is
// another one, so is the version: "4@gpt-4o-mini" for version 4 on gpt-4o-mini.
// A worker serves one or the other, as definition.NewSet orders versions of one
// name only if all are numbers. An empty name, or the one that the definition has, changes nothing.
func WithModel(name string) Option {
	return func(d *definition.Definition) {
		if name == "" || name == d.Model {
			return
		}
		d.Model = name
		d.Version = cut(d.Version+"@"+notInVersion.ReplaceAllString(name, "-"), maxNameBytes)
	}
}

// WithTickets lets the agent open tickets, for workers whose tools have a
// TicketURL: a worker refuses a definition with tools that it does not have. The
// version says so, "4.tickets" for version 4.
func WithTickets() Option {
	return func(d *definition.Definition) {
		if slices.Contains(d.Tools, OpenTicket) {
			return
		}
		d.Tools = append(d.Tools, OpenTicket)
		d.Version += ".tickets"
	}
}

// Definition returns the agent's definition, changed by the options and
// validated again.
func Definition(options ...Option) (definition.Definition, error) {
	d, err := definition.Parse(agentYAML)
	if err != nil {
		return d, fmt.Errorf("opspilot: %w", err)
	}
	for _, option := range options {
		option(&d)
	}
	if d, err = definition.New(d); err != nil {
		return d, fmt.Errorf("opspilot: %w", err)
	}
	return d, nil
}
