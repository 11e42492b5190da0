package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes of Main.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// Main is the main function of a worker program: it reads the command line (run,
// migrate), calls build for what the worker serves, runs until SIGTERM or
// SIGINT, and exits. A second signal ends the process at once with code 1.
//
// build is called for run only. It may read the program's own settings; what it
// sets in ConfigFile and Migrate is replaced by --config and --migrate.
func Main(build func() (Options, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		cancel()
		<-signals
		fmt.Fprintln(os.Stderr, "second signal: exiting without waiting for what is in flight")
		os.Exit(exitFailure)
	}()
	err := command(build).ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
	}
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	var setup *SetupError
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &setup), errors.As(err, &usage):
		return exitUsage
	}
	return exitFailure
}

type usageError struct{ error }

func command(build func() (Options, error)) *cobra.Command {
	var file string
	root := &cobra.Command{
		Use:           "worker",
		Short:         "Serves AI agent runs from a Temporal task queue",
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("there is no command %q; see %s --help", args[0], c.CommandPath())}
			}
			return c.Help()
		},
	}
	root.PersistentFlags().StringVar(&file, "config", "", "file of settings (default fairlead.yaml, if there is one)")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
	})

	var migrate bool
	run := &cobra.Command{
		Use:   "run",
		Short: "Serve runs until SIGTERM or SIGINT",
		Long: "Serves runs until SIGTERM or SIGINT. PostgreSQL and Temporal need not be up yet: the worker\n" +
			"says what it waits for, in the log and at /readyz, and begins when they come.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			options, err := build()
			if err != nil {
				return &SetupError{err}
			}
			options.ConfigFile, options.Migrate = file, migrate
			return Run(c.Context(), options)
		},
	}
	run.Flags().BoolVar(&migrate, "migrate", false, "bring the database schema up to date first (the login must own it)")
	root.AddCommand(run, &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database schema up to date, encrypt what older versions stored, and exit",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return Migrate(c.Context(), Options{ConfigFile: file})
		},
	})
	return root
}

func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &usageError{fmt.Errorf("%s takes no arguments, got %q; see --help", c.CommandPath(), args[0])}
}
