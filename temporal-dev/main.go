// Command temporal-dev brings the whole engine of fairlead to a development machine, without Docker: PostgreSQL with
// pgvector, a Temporal server on it, and the Temporal Web UI. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairlead/fairlead/temporal-dev/internal/dev"
	"github.com/fairlead/fairlead/temporal-dev/internal/engine"
	"github.com/fairlead/fairlead/temporal-dev/internal/home"
)

const usage = `temporal-dev runs PostgreSQL with pgvector, a Temporal server and its Web UI on this machine.

usage: temporal-dev COMMAND [flags]

  up [--foreground]   start what is not running, wait until all of it answers, print the addresses
  down                stop it; the data stays
  status              print what runs and where; exit code 0 when all is healthy, 3 when not
  env                 print export lines for a shell: eval "$(temporal-dev env)"
  logs [-f]           print the end of the logs, -f follows them
  purge --yes         stop it and delete the data

flags of all commands:
  --home DIR          where everything is kept (FAIRLEAD_DEV_HOME;
                      default /var/lib/fairlead-dev for root, else ~/.local/state/fairlead-dev)
flags of up:
  --pg-port N         port of PostgreSQL (FAIRLEAD_DEV_PG_PORT, default 55432)
  --temporal-port N   port of the Temporal frontend (FAIRLEAD_DEV_TEMPORAL_PORT, default 7233)
  --ui-port N         port of the Web UI (FAIRLEAD_DEV_UI_PORT, default 8233)

up uses the PostgreSQL in DATABASE_URL if that is set, else an installed one with pgvector, else on Debian it unpacks a
private one. Ports once chosen are remembered.
`

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	exitDown  = 3
	// exitInterrupted is what shells use for a program ended by Ctrl-C.
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Print(usage)
		return exitOK
	}
	command, args := args[0], args[1:]

	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	homeDir := flags.String("home", "", "")
	var options dev.Options
	var follow, yes bool
	switch command {
	case "up":
		flags.BoolVar(&options.Foreground, "foreground", false, "")
		flags.IntVar(&options.Ports.Postgres, dev.PostgresPortFlag, 0, "")
		flags.IntVar(&options.Ports.Temporal, dev.TemporalPortFlag, 0, "")
		flags.IntVar(&options.Ports.UI, dev.UIPortFlag, 0, "")
	case "logs":
		flags.BoolVar(&follow, "f", false, "")
	case "purge":
		flags.BoolVar(&yes, "yes", false, "")
	case "down", "status", "env", dev.EngineCommand:
	default:
		return badUsage(fmt.Errorf("unknown command %q", command))
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage)
		return exitOK
	} else if err != nil {
		return badUsage(err)
	}
	if flags.NArg() > 0 {
		return badUsage(fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}

	dir, err := home.Resolve(*homeDir, os.Getenv, os.Geteuid())
	if err != nil {
		return badUsage(err)
	}
	d := dev.Dev{Home: dir, Out: os.Stdout, Err: os.Stderr}
	switch command {
	case "up":
		if options, err = options.FromEnvironment(os.Getenv); err != nil {
			return badUsage(err)
		}
		err = d.Up(ctx, options, engine.Run)
	case "down":
		err = d.Down(ctx)
	case "status":
		if err = d.Status(ctx); errors.Is(err, dev.ErrDown) {
			return exitDown // the table has said it
		}
	case "env":
		err = d.Env(ctx)
	case "logs":
		err = d.Logs(ctx, follow)
	case "purge":
		err = d.Purge(ctx, yes)
	case dev.EngineCommand:
		err = d.Engine(ctx, engine.Run)
	}
	return exitCode(ctx, err)
}

func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "temporal-dev: interrupted; run the command again to go on from here")
		return exitInterrupted
	}
	fmt.Fprintln(os.Stderr, "temporal-dev:", err)
	if errors.Is(err, dev.ErrDown) {
		return exitDown
	}
	return exitError
}

func badUsage(err error) int {
	fmt.Fprintf(os.Stderr, "temporal-dev: %v; `temporal-dev help` lists commands and flags\n", err)
	return exitUsage
}
