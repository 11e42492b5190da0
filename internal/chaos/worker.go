package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
	"github.com/fairlead/fairlead/worker/host"
)

// What a worker process is given beside the settings of every worker.
const (
	envTickets  = "FAIRLEAD_CHAOS_TICKETS"
	envServices = "FAIRLEAD_CHAOS_SERVICES"
	// envConfirm is how long people have.
	envConfirm = "FAIRLEAD_CHAOS_CONFIRM"
)

const (
	tenant, environment = "chaos", "test"
	// ticketToolVersion is part of the keys that the desk expects.
	ticketToolVersion = "1"
	ticketTimeout     = time.Second
	modelDelay        = 80 * time.Millisecond
)

//go:embed files
var embedded embed.FS

// files has policies.cedar, entities.json and ticketer.yaml in its root.
func files() fs.FS {
	root, err := fs.Sub(embedded, "files")
	if err != nil {
		panic(err) // a name that cannot be
	}
	return root
}

// isWorker reports whether this process was started as a worker of a storm.
func isWorker() bool { return os.Getenv(envTickets) != "" }

// serve makes this process a worker like any other, until it is killed. It ends
// with the process that started it, however that ends: the pipe at its standard
// input closes then.
func serve() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	os.Args = []string{"worker", "run"}
	host.Main(workerOptions)
}

func workerOptions() (host.Options, error) {
	all, err := opspilot.Tools(opspilot.Config{
		RegistryDir: os.Getenv(envServices), TicketURL: os.Getenv(envTickets), TicketTimeout: ticketTimeout,
	})
	if err != nil {
		return host.Options{}, err
	}
	i := slices.IndexFunc(all, func(t tool.Tool) bool { return t.Spec().Name == opspilot.OpenTicket })
	if i < 0 || all[i].Spec().Version != ticketToolVersion {
		return host.Options{}, errors.New("open_ticket is not there, or not the version that the storm expects")
	}
	text, err := fs.ReadFile(files(), "ticketer.yaml")
	if err != nil {
		return host.Options{}, err
	}
	ticketer, err := definition.Parse(text)
	if err != nil {
		return host.Options{}, err
	}
	if ticketer.Writes.ConfirmWithin, err = time.ParseDuration(os.Getenv(envConfirm)); err != nil {
		return host.Options{}, err
	}
	ticketer, err = definition.New(ticketer)
	return host.Options{
		Tools: all[i : i+1], Definitions: []definition.Definition{ticketer}, Policies: files(),
		Models: map[string]model.Model{"scripted": scripted.New(script)},
	}, err
}

// message asks the ticketer for n tickets in the name of a run of the storm.
func message(run string, n int) string { return fmt.Sprintf("open %d for %s", n, run) }

// title names a write in the ticket service.
func title(w writeID) string { return w.run + " " + w.call }

// script plays the model: it opens one ticket in each step, and reports when all
// were proposed, whatever became of them.
func script(_ context.Context, req model.Request) (scripted.Turn, error) {
	var n int
	var run string
	question := ""
	for _, m := range req.Messages {
		if m.Role == model.RoleUser && strings.HasPrefix(m.Text, "open ") {
			question = m.Text
		}
	}
	if _, err := fmt.Sscanf(question, "open %d for %s", &n, &run); err != nil {
		return scripted.Turn{}, fmt.Errorf("read the question: %w", err)
	}
	step := scripted.Step(req)
	if step >= n {
		return scripted.Turn{Text: "That is all.", Delay: modelDelay}, nil
	}
	arguments := fmt.Sprintf(`{"service_id":"payment-api.test","title":%q,"details":"seen","severity":"low"}`,
		title(writeID{run, callID(step)}))
	return scripted.Turn{Calls: []scripted.Call{{Name: opspilot.OpenTicket, Arguments: arguments}}, Delay: modelDelay}, nil
}

// callID is the ID of the one call of a step.
func callID(step int) string { return fmt.Sprintf("%d.0", step) }
