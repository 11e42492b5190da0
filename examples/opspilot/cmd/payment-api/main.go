// Command payment-api is the service that the OpsPilot demo examines. With
// --leak (the default) and an incident at its bank it really breaks within
// about a second of traffic; see package patient.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

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
	config, err := parse(arguments)
	if err != nil {
		return err
	}
	config.OnReady = func(r services.Record) {
		fmt.Printf("%s listens on %s, log %s\n", r.ID, r.Address, r.LogPath)
	}
	return patient.Serve(ctx, config)
}

func parse(arguments []string) (patient.Config, error) {
	var config patient.Config
	incidentUntil := ""
	flags := flag.NewFlagSet("payment-api", flag.ContinueOnError)
	flags.StringVar(&config.Name, "name", "payment-api", "name of the service")
	flags.StringVar(&config.Environment, "env", "production", "environment of the service")
	flags.StringVar(&config.Address, "addr", "127.0.0.1:0", "loopback `host:port`; port 0 takes a free one")
	flags.StringVar(&config.RegistryDir, "registry", "", "`directory` of the service registry (required)")
	flags.StringVar(&config.LogPath, "log", "", "log `file`, appended to (required)")
	flags.IntVar(&config.PoolSize, "pool-size", 8, "connections to the bank")
	flags.BoolVar(&config.Leak, "leak", true, "lose a connection whenever the bank does not answer in time")
	flags.StringVar(&incidentUntil, "incident-until", "", "RFC 3339 `time` until which the bank leaves every third charge unanswered (default: none)")
	flags.IntVar(&config.TrafficPerSecond, "traffic", 0, "payments a second that the service makes to itself")
	flags.DurationVar(&config.TrafficFor, "traffic-for", 30*time.Second, "how long it does so")
	flags.DurationVar(&config.MaxAge, "max-age", 15*time.Minute, "after this time the service ends by itself")
	if err := flags.Parse(arguments); err != nil {
		return config, err
	}
	if flags.NArg() > 0 {
		return config, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if incidentUntil != "" {
		until, err := time.Parse(time.RFC3339Nano, incidentUntil)
		if err != nil {
			return config, fmt.Errorf("--incident-until: %w", err)
		}
		config.IncidentUntil = until
	}
	return config, nil
}
