// Command worker serves the example agents of this repository. A worker for
// agents of your own looks the same: name your tools, definitions and models
// instead of these, and the rest is in package host.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/worker/host"
)

func main() { host.Main(serve) }

func serve() (host.Options, error) {
	// The directory in which the services that OpsPilot looks at are listed.
	directory := os.Getenv("FAIRLEAD_OPSPILOT_SERVICES")
	if directory == "" {
		directory = "opspilot-services"
	}
	// The ticket service that OpsPilot may write to; none if it is not set.
	tickets := os.Getenv("FAIRLEAD_OPSPILOT_TICKETS")
	visible, err := pairs(os.Getenv("FAIRLEAD_OPSPILOT_VISIBLE"))
	if err != nil {
		return host.Options{}, err
	}
	tools, err := opspilot.Tools(opspilot.Config{RegistryDir: directory, TicketURL: tickets, Visible: visible})
	if err != nil {
		return host.Options{}, err
	}
	var options []opspilot.Option
	if tickets != "" {
		options = append(options, opspilot.WithTickets())
	}
	pilot, err := opspilot.Definition(options...)
	if err != nil {
		return host.Options{}, err
	}
	return host.Options{
		Tools:       tools,
		Definitions: []definition.Definition{pilot},
		Models:      map[string]model.Model{"scripted": scripted.New(opspilot.Script(opspilot.TurnDelay))},
	}, nil
}

// pairs reads which other environments a run may look into as well:
// "production:staging,production:test" lets runs in production see both.
func pairs(text string) (map[string][]string, error) {
	visible := map[string][]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		from, to, ok := strings.Cut(pair, ":")
		if !ok || from == "" || to == "" {
			return nil, fmt.Errorf("FAIRLEAD_OPSPILOT_VISIBLE: %q is not like production:staging", pair)
		}
		visible[from] = append(visible[from], to)
	}
	return visible, nil
}
