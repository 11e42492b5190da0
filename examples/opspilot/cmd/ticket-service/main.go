// Command ticket-service is the ticket service that the tool open_ticket writes
// to; see package tickets. The demo does without it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairlead/fairlead/examples/opspilot/tickets"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "ticket-service:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	var config tickets.Config
	flags := flag.NewFlagSet("ticket-service", flag.ContinueOnError)
	flags.StringVar(&config.Address, "addr", "127.0.0.1:8070", "loopback `host:port`; port 0 takes a free one")
	flags.StringVar(&config.Path, "file", "", "`file` with the tickets (default: they are kept in memory)")
	flags.BoolVar(&config.Faults, "faults", false, "let requests to "+tickets.FaultsPath+" make the service misbehave, for tests")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	// One line, the URL alone, for a program that starts this one.
	config.OnReady = func(url string) { fmt.Println(url) }
	return tickets.Serve(ctx, config)
}
