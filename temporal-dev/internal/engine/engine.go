// Package engine runs a Temporal server and its Web UI in this process, on a PostgreSQL that is already up.
// It is the only package that links the server.
package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"

	"github.com/fairlead/fairlead/temporal-dev/internal/health"
	"github.com/fairlead/fairlead/temporal-dev/internal/home"
	"github.com/fairlead/fairlead/temporal-dev/internal/postgres"
	"github.com/fairlead/fairlead/temporal-dev/internal/process"
)

const (
	readyWithin = 90 * time.Second
	stopWithin  = 15 * time.Second
)

// Run serves until the context ends (then it returns nil) or PostgreSQL or the server fails (then it says which).
// Lines for people go to progress, the server's own warnings to standard output.
func Run(ctx context.Context, state home.State, progress func(string)) error {
	// A few per cent less CPU for some memory: on a development machine the better bargain.
	debug.SetGCPercent(400)
	// A line a person can read; the server's information lines are thousands.
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Stdout: true, Level: "warn", Format: "console"}))

	progress("creating and updating the Temporal databases")
	lease, err := takeDatabases(ctx, state.DatabaseURL)
	if err != nil {
		return err
	}
	defer lease.Release()
	server, err := newServer(state, logger)
	if err != nil {
		return err
	}
	progress("starting the Temporal server")
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the Temporal server: %w", err)
	}
	defer stop(server, progress)
	if err := prepare(ctx, state.Ports.Temporal, progress); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	// The Web UI comes last, so that whoever finds it answering finds everything else done.
	ui := uiserver.NewServer(uioptions.WithConfigProvider(&uiconfig.Config{
		Host: "127.0.0.1", Port: state.Ports.UI, TemporalGRPCAddress: process.Address(state.Ports.Temporal),
		EnableUI: true, HideLogs: true, DefaultNamespace: health.Namespace, CORS: uiconfig.CORS{CookieInsecure: true},
	}))
	defer ui.Stop()
	watchCtx, endWatch := context.WithCancelCause(ctx)
	defer endWatch(nil)
	go func() {
		err := ui.Start()
		endWatch(errors.Join(errors.New("the Web UI ended: run `temporal-dev up` to start again"), err))
	}()
	progress("ready")
	err = watch(watchCtx, state, lease)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// takeDatabases creates the server's databases where they are missing and makes this engine the only one on them.
func takeDatabases(ctx context.Context, databaseURL string) (*postgres.Lease, error) {
	for _, name := range []string{executionsDB, visibilityDB} {
		if err := postgres.CreateDatabase(ctx, databaseURL, name); err != nil {
			return nil, fmt.Errorf("%w: the user in DATABASE_URL needs CREATEDB, or create it by hand", err)
		}
	}
	url, err := postgres.OnDatabase(databaseURL, executionsDB)
	if err != nil {
		return nil, err
	}
	return postgres.Acquire(ctx, url)
}

func newServer(state home.State, logger log.Logger) (temporal.Server, error) {
	executions, err := sqlConfig(state.DatabaseURL, executionsDB, 20)
	if err != nil {
		return nil, err
	}
	visibility, err := sqlConfig(state.DatabaseURL, visibilityDB, 10)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		migrate(executions, "postgresql/v12/temporal", logger),
		migrate(visibility, "postgresql/v12/visibility", logger),
	); err != nil {
		return nil, err
	}
	internal, err := process.FreePorts(3)
	if err != nil {
		return nil, err
	}
	ports := servicePorts{
		primitives.FrontendService: state.Ports.Temporal,
		primitives.HistoryService:  internal[0],
		primitives.MatchingService: internal[1],
		primitives.WorkerService:   internal[2],
	}
	server, err := temporal.NewServer(
		temporal.WithConfig(serverConfig(ports, executions, visibility)),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(ports.hosts()),
		temporal.WithLogger(logger),
		temporal.WithDynamicConfigClient(dynamicConfig()),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
	)
	if err != nil {
		return nil, fmt.Errorf("assemble the Temporal server: %w", err)
	}
	return server, nil
}

// prepare waits for the frontend, then registers what workflows need.
func prepare(ctx context.Context, port int, progress func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	conn, err := health.Dial(port)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := retry(ctx, func() error { return health.Serving(ctx, conn) }); err != nil {
		return fmt.Errorf("the Temporal frontend does not come up: %w", err)
	}
	progress("registering namespace and search attributes")
	return registerNamespace(ctx, conn)
}

// watch returns when the context ends, with its cause, or when PostgreSQL or the server has stopped working, with which.
// The limits are generous: a busy machine is not a dead one.
func watch(ctx context.Context, state home.State, lease *postgres.Lease) error {
	conn, err := health.Dial(state.Ports.Temporal)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	const postgresLimit, temporalLimit = 15 * time.Second, 45 * time.Second
	postgresSeen, temporalSeen := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(2 * time.Second):
		}
		if !state.External && !state.PostgresProcess.Alive() {
			return fmt.Errorf("PostgreSQL (PID %d) has ended, so the engine stops: run `temporal-dev up` to start both again", state.PostgresProcess.PID)
		}
		askCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
		pgErr := lease.Renew(askCtx)
		if errors.Is(pgErr, postgres.ErrLeased) {
			cancel()
			return pgErr
		}
		if pgErr == nil {
			postgresSeen = time.Now()
		}
		servingErr := health.Serving(askCtx, conn)
		if servingErr == nil {
			temporalSeen = time.Now()
		}
		cancel()
		if since := time.Since(postgresSeen); since > postgresLimit {
			return fmt.Errorf("PostgreSQL has not answered for %s (%w), so the engine stops: run `temporal-dev up` once it does", since.Round(time.Second), pgErr)
		}
		if since := time.Since(temporalSeen); since > temporalLimit {
			return fmt.Errorf("the Temporal frontend has not answered for %s (%w), so the engine stops: run `temporal-dev up` to start again", since.Round(time.Second), servingErr)
		}
	}
}

// stop gives the server time to hand back what it holds, but not for ever: without its database it may never finish.
func stop(server temporal.Server, progress func(string)) {
	progress("stopping the Temporal server")
	done := make(chan error, 1)
	go func() { done <- server.Stop() }()
	select {
	case err := <-done:
		if err != nil {
			progress("the Temporal server stopped with an error: " + err.Error())
		}
	case <-time.After(stopWithin):
		progress("the Temporal server does not stop in time; leaving it")
	}
}
