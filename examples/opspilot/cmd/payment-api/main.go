// Command payment-api is the service that the OpsPilot demo examines. With
// --leak (the default) and an incident at its bank it really breaks within
// about a second of traffic; see package patient.
//
// `payment-api supervise` takes the same flags, runs the service as a process of
// its own and restarts it when it is asked to.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairlead/fairlead/examples/opspilot/patient"
	"github.com/fairlead/fairlead/examples/opspilot/services"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "payment-api:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) > 0 && arguments[0] == "supervise" {
		return supervise(ctx, arguments[1:])
	}
	var config patient.Config
	flags := flag.NewFlagSet("payment-api", flag.ContinueOnError)
	config.Flags(flags)
	flags.StringVar(&config.ControlAddress, "supervised-by", "", "loopback `host:port` of the supervisor, which holds the other end of standard input (set by supervise)")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	if config.ControlAddress != "" {
		config.Supervisor = os.Stdin
	}
	config.OnReady = announce
	return patient.Serve(ctx, config)
}

func supervise(ctx context.Context, arguments []string) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	config := patient.SuperviseConfig{Binary: binary, Output: os.Stdout}
	flags := flag.NewFlagSet("payment-api supervise", flag.ContinueOnError)
	config.Service.Flags(flags)
	flags.StringVar(&config.ControlAddress, "control", "127.0.0.1:0", "loopback `host:port` for requests to restart; port 0 takes a free one")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	return patient.Supervise(ctx, config)
}

func parse(flags *flag.FlagSet, arguments []string) error {
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

func announce(r services.Record) {
	fmt.Printf("%s listens on %s, log %s\n", r.ID, r.Address, r.LogPath)
}
