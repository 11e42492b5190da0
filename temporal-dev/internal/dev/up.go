package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/temporal-dev/internal/home"
	"github.com/fairlead/fairlead/temporal-dev/internal/postgres"
	"github.com/fairlead/fairlead/temporal-dev/internal/process"
)

// EngineCommand is the hidden command by which this program runs the engine in a process of its own.
const EngineCommand = "engine"

// RunEngine serves until the context ends.
type RunEngine func(ctx context.Context, state home.State, progress func(string)) error

const engineReadyWithin = 2 * time.Minute

// Up makes everything run and returns when it does, or with Foreground when ctx ends. Whatever an earlier command or a kill
// left behind is its starting point: it ends what is half alive and starts what is missing.
func (d Dev) Up(ctx context.Context, o Options, run RunEngine) error {
	if err := d.Home.Create(); err != nil {
		return err
	}
	unlock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	before, err := d.Home.Load()
	if err != nil {
		return err
	}
	running, err := d.find(before)
	if err != nil {
		return err
	}
	want, err := o.plan(running)
	if err != nil {
		return err
	}
	if err := d.refuseChange(running, want); err != nil {
		return err
	}
	if running.EngineProcess.PID != 0 {
		if d.check(ctx, want).Err() == nil {
			return d.alreadyUp(ctx, before, want)
		}
		if want, err = d.settle(ctx, want); err != nil {
			return err
		}
		if want.EngineProcess.PID != 0 {
			d.say("up")
			d.addresses(want)
			return nil
		}
	}
	for _, port := range portsFor(want) {
		if err := process.CheckFree(port); err != nil {
			return err
		}
	}
	if want, err = d.postgresUp(ctx, want); err != nil {
		return err
	}
	if o.Foreground {
		return d.foreground(ctx, want, run, unlock)
	}
	if want, err = d.engineUp(ctx, want); err != nil {
		return err
	}
	d.say("up")
	d.addresses(want)
	return nil
}

// alreadyUp reports what runs, and writes down what was not known about it: the state file may have been lost.
func (d Dev) alreadyUp(ctx context.Context, before, s home.State) error {
	if s != before {
		var err error
		if s.Postgres, err = postgres.Check(ctx, s.DatabaseURL); err != nil {
			return err
		}
		if err := d.Home.Save(s); err != nil {
			return err
		}
	}
	d.say("already up")
	d.addresses(s)
	return nil
}

// refuseChange keeps Up from silently moving what others are connected to.
func (d Dev) refuseChange(running, want home.State) error {
	known := running.Ports.Temporal != 0 // unless the state file was lost
	engineMoves := known && running.EngineProcess.PID != 0 && (running.Ports.Temporal != want.Ports.Temporal || running.Ports.UI != want.Ports.UI ||
		running.DatabaseURL != want.DatabaseURL)
	postgresMoves := running.PostgresProcess.PID != 0 && !want.External && running.Ports.Postgres != want.Ports.Postgres
	if engineMoves || postgresMoves {
		return fmt.Errorf("it already runs with PostgreSQL %s, Temporal port %d, Web UI port %d, which is not what was asked for now: "+
			"run `temporal-dev down` first, or leave out the ports and DATABASE_URL", redact(running.DatabaseURL), running.Ports.Temporal, running.Ports.UI)
	}
	return nil
}

// settle deals with an engine that lives but is not healthy: it may be starting, or its PostgreSQL may be gone. Afterwards
// the engine is either ready or ended.
func (d Dev) settle(ctx context.Context, s home.State) (home.State, error) {
	if s.External || s.PostgresProcess.PID != 0 {
		d.progress(fmt.Sprintf("an engine (PID %d) runs but does not answer yet, waiting for it", s.EngineProcess.PID))
		if err := d.awaitReady(ctx, s, s.EngineProcess.Alive, 20*time.Second); err == nil {
			return s, nil
		} else if ctx.Err() != nil {
			return s, ctx.Err()
		}
	}
	d.progress("ending an engine that does not work")
	err := d.stopEngine(ctx, &s)
	return s, err
}

func (d Dev) postgresUp(ctx context.Context, s home.State) (home.State, error) {
	if s.External {
		return d.externalUp(ctx, s)
	}
	if s.PostgresProcess.PID == 0 {
		found, err := postgres.Obtain(ctx, d.Home.PrefixDir(), d.Home.DataDir(), d.progress)
		if err != nil {
			return s, err
		}
		account, err := postgres.UnprivilegedAccount(d.Home.DataDir())
		if err != nil {
			return s, err
		}
		if err := account.CanUse(ctx, found, d.Home.DataDir()); err != nil {
			return s, err
		}
		cluster := postgres.Cluster{
			Installation: found, DataDir: d.Home.DataDir(), LogPath: d.Home.PostgresLog(), Port: s.Ports.Postgres, Account: account,
		}
		if err := cluster.Init(ctx, d.progress); err != nil {
			return s, err
		}
		d.progress("starting " + found.String())
		if s.PostgresProcess, err = cluster.Start(ctx, d.progress); err != nil {
			return s, err
		}
		// Saved at once: from here on `down` must know the process even if this command is killed.
		if err := d.Home.Save(s); err != nil {
			return s, err
		}
	}
	admin, err := postgres.OnDatabase(s.DatabaseURL, "postgres")
	if err != nil {
		return s, err
	}
	if err := postgres.CreateDatabase(ctx, admin, "fairlead"); err != nil {
		return s, err
	}
	s.Postgres, err = postgres.Check(ctx, s.DatabaseURL)
	return s, err
}

func (d Dev) externalUp(ctx context.Context, s home.State) (home.State, error) {
	about, err := postgres.Check(ctx, s.DatabaseURL)
	if err == nil {
		// Keyword strings ("host=... user=...") connect, but cannot be turned towards Temporal's databases.
		_, err = postgres.OnDatabase(s.DatabaseURL, "postgres")
	}
	if err != nil {
		return s, fmt.Errorf("DATABASE_URL is set to %s and cannot be used: %w", redact(s.DatabaseURL), err)
	}
	s.Postgres = about
	d.progress("using " + about + " from DATABASE_URL")
	if s.PostgresProcess.PID != 0 {
		d.progress("ending the PostgreSQL that ran here before")
		if err := postgres.Stop(ctx, s.PostgresProcess); err != nil {
			return s, err
		}
		s.PostgresProcess = process.Identity{}
	}
	return s, nil
}

// engineUp starts the engine in a session of its own, so that it outlives this command and its terminal.
func (d Dev) engineUp(ctx context.Context, s home.State) (home.State, error) {
	self, err := os.Executable()
	if err != nil {
		return s, fmt.Errorf("find this program's own file: %w", err)
	}
	log, err := home.OpenLog(d.Home.EngineLog())
	if err != nil {
		return s, err
	}
	defer func() { _ = log.Close() }()
	info, err := log.Stat()
	if err != nil {
		return s, fmt.Errorf("open log: %w", err)
	}
	// The engine reads its orders from the state file.
	if err := d.Home.Save(s); err != nil {
		return s, err
	}
	cmd := exec.Command(self, EngineCommand, "--home", string(d.Home))
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return s, fmt.Errorf("start the engine: %w", err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	if s.EngineProcess, err = process.Identify(cmd.Process.Pid); err != nil && !errors.Is(err, process.ErrGone) {
		return s, err
	}
	if err := d.Home.Save(s); err != nil {
		return s, err
	}
	alive := func() bool {
		select {
		case <-exited:
			return false
		default:
			return true
		}
	}
	follow := newFollower(d.Home.EngineLog(), info.Size())
	stopFollowing := follow.each(func(line string) {
		if text, ok := strings.CutPrefix(line, enginePrefix); ok {
			d.progress(text)
		}
	})
	err = d.awaitReady(ctx, s, alive, engineReadyWithin)
	stopFollowing()
	if err == nil || ctx.Err() != nil {
		return s, err
	}
	return s, fmt.Errorf("the engine does not come up: %w; the end of its log (`temporal-dev logs` shows all):\n%s", err, follow.tail(8))
}

// awaitReady returns nil once everything answers, and an error when the engine ends before or the time is over.
func (d Dev) awaitReady(ctx context.Context, s home.State, alive func() bool, within time.Duration) error {
	deadline := time.Now().Add(within)
	for {
		err := d.check(ctx, s).Err()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !alive():
			return errors.New("it has ended")
		case time.Now().After(deadline):
			return fmt.Errorf("not ready after %s: %w", within, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// enginePrefix marks the engine's own lines among the server's in the log.
const enginePrefix = "engine: "

// foreground runs the engine in this process, and ends PostgreSQL with it.
func (d Dev) foreground(ctx context.Context, s home.State, run RunEngine, unlock func()) error {
	var err error
	if s.EngineProcess, err = process.Self(); err != nil {
		return err
	}
	if err := errors.Join(d.Home.RecordEngine(s.EngineProcess), d.Home.Save(s)); err != nil {
		return err
	}
	d.addresses(s)
	unlock() // so that `down` and `status` work from another terminal
	runErr := run(ctx, s, d.progress)
	if s.External {
		return runErr
	}
	// The caller's context has ended; stopping must go on without it.
	err = postgres.Stop(context.Background(), s.PostgresProcess)
	if err == nil {
		d.progress("PostgreSQL stopped")
	}
	return errors.Join(runErr, err)
}

// Engine is the body of the hidden command: it takes its orders from the state file.
func (d Dev) Engine(ctx context.Context, run RunEngine) error {
	s, err := d.Home.Load()
	if err != nil {
		return err
	}
	self, err := process.Self()
	if err != nil {
		return err
	}
	if err := d.Home.RecordEngine(self); err != nil {
		return err
	}
	say := func(line string) { _, _ = fmt.Fprintln(d.Out, enginePrefix+line) }
	if err := run(ctx, s, say); err != nil {
		say("failed: " + err.Error())
		return err
	}
	say("stopped")
	return nil
}
