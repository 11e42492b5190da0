// Package dev holds the commands: it starts, finds and ends PostgreSQL and the engine process. It does not link the
// Temporal server; the engine is this same program started again with the command "engine".
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/temporal-dev/internal/health"
	"github.com/fairlead/fairlead/temporal-dev/internal/home"
	"github.com/fairlead/fairlead/temporal-dev/internal/postgres"
	"github.com/fairlead/fairlead/temporal-dev/internal/process"
)

// Dev is one home and where to print.
type Dev struct {
	Home home.Home
	Out  io.Writer // results
	Err  io.Writer // progress
}

// ErrDown means that not everything runs and answers. The program exits with 3 for it.
var ErrDown = errors.New("not everything is up")

const checkTimeout = 5 * time.Second

func (d Dev) say(format string, args ...any) { _, _ = fmt.Fprintf(d.Out, format+"\n", args...) }

func (d Dev) progress(line string) { _, _ = fmt.Fprintln(d.Err, "  ... "+line) }

func (d Dev) lock(ctx context.Context) (func(), error) {
	return d.Home.Lock(ctx, func() { d.progress("another temporal-dev works in " + string(d.Home) + ", waiting for it") })
}

func (d Dev) check(ctx context.Context, s home.State) health.Report {
	return health.Check(ctx, s.DatabaseURL, s.Ports.Temporal, s.Ports.UI, checkTimeout)
}

// find brings the state up to date with what really runs; a lost state file or a restart by hand must not hide a server.
func (d Dev) find(s home.State) (home.State, error) {
	if !s.EngineProcess.Alive() {
		// It may have been started by a command that was killed before it could record this.
		s.EngineProcess = d.Home.Engine()
	}
	if s.PostgresProcess.Alive() {
		return s, nil
	}
	s.PostgresProcess = process.Identity{}
	id, port, err := postgres.Running(d.Home.DataDir())
	if errors.Is(err, process.ErrGone) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.PostgresProcess = id
	if !s.External && port != 0 {
		s.Ports.Postgres = port
		s.DatabaseURL = s.Ports.ManagedURL()
	}
	return s, nil
}

func (d Dev) addresses(s home.State) {
	d.say("PostgreSQL  %s  (%s)", redact(s.DatabaseURL), s.Postgres)
	d.say("Temporal    %s  (namespace %s)", process.Address(s.Ports.Temporal), health.Namespace)
	d.say("Web UI      %s", uiURL(s))
}

func uiURL(s home.State) string { return "http://" + process.Address(s.Ports.UI) }

// Down ends the engine, then PostgreSQL. What was not started here is left alone.
func (d Dev) Down(ctx context.Context) error {
	if _, err := os.Stat(string(d.Home)); errors.Is(err, os.ErrNotExist) {
		d.say("nothing runs: %s does not exist", d.Home)
		return nil
	}
	unlock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return d.down(ctx)
}

func (d Dev) down(ctx context.Context) error {
	s, err := d.Home.Load()
	if err != nil {
		return err
	}
	if s, err = d.find(s); err != nil {
		return err
	}
	if s.EngineProcess.PID == 0 && s.PostgresProcess.PID == 0 {
		d.say("nothing runs")
		return nil
	}
	if err := d.stopEngine(ctx, &s); err != nil {
		return err
	}
	if s.PostgresProcess.PID != 0 {
		if err := postgres.Stop(ctx, s.PostgresProcess); err != nil {
			return err
		}
		s.PostgresProcess = process.Identity{}
		d.say("PostgreSQL stopped")
	}
	return d.Home.Save(s)
}

func (d Dev) stopEngine(ctx context.Context, s *home.State) error {
	if s.EngineProcess.PID == 0 {
		return nil
	}
	err := s.EngineProcess.End(ctx,
		process.Step{Signal: syscall.SIGTERM, Within: 25 * time.Second}, process.Step{Signal: syscall.SIGKILL, Within: 5 * time.Second})
	if err != nil {
		return fmt.Errorf("stop the engine: %w", err)
	}
	s.EngineProcess = process.Identity{}
	d.say("Temporal and Web UI stopped")
	return d.Home.Save(*s)
}

// Status prints what runs and returns ErrDown unless all of it is healthy.
func (d Dev) Status(ctx context.Context) error {
	s, err := d.Home.Load()
	if err != nil {
		return err
	}
	if s.Ports == (home.Ports{}) {
		d.say("nothing was ever started in %s: run `temporal-dev up`", d.Home)
		return ErrDown
	}
	if s, err = d.find(s); err != nil {
		return err
	}
	report := d.check(ctx, s)
	whose := ""
	if s.External {
		whose = ", yours: temporal-dev does not start or stop it"
	}
	d.line("PostgreSQL", report.Postgres, redact(s.DatabaseURL), s.Postgres+whose, s.PostgresProcess)
	d.line("Temporal", report.Temporal, process.Address(s.Ports.Temporal), "namespace "+health.Namespace, s.EngineProcess)
	d.line("Web UI", report.UI, uiURL(s), "in the same process", s.EngineProcess)
	d.say("home        %s", d.Home)
	if report.Err() != nil {
		d.say("`temporal-dev up` starts what is down; `temporal-dev logs` shows why it is")
		return ErrDown
	}
	return nil
}

func (d Dev) line(part string, err error, address, about string, id process.Identity) {
	pid := ""
	if id.PID != 0 {
		pid = ", PID " + strconv.Itoa(id.PID)
	}
	if err != nil {
		d.say("%-11s down  %s  %s%s", part, address, oneLine(err.Error()), pid)
		return
	}
	d.say("%-11s up    %s  %s%s", part, address, about, pid)
}

// Env prints shell lines that make programs find what runs.
func (d Dev) Env(ctx context.Context) error {
	s, err := d.Home.Load()
	if err != nil {
		return err
	}
	if s.Ports == (home.Ports{}) {
		return fmt.Errorf("%w: nothing was ever started in %s: run `temporal-dev up`", ErrDown, d.Home)
	}
	if s, err = d.find(s); err != nil {
		return err
	}
	if err := d.check(ctx, s).Err(); err != nil {
		return fmt.Errorf("%w: run `temporal-dev up` (%s)", ErrDown, oneLine(err.Error()))
	}
	d.say("export DATABASE_URL=%s", shellQuote(s.DatabaseURL))
	d.say("export TEMPORAL_ADDRESS=%s", shellQuote(process.Address(s.Ports.Temporal)))
	d.say("export TEMPORAL_NAMESPACE=%s", shellQuote(health.Namespace))
	d.say("export FAIRLEAD_UI_URL=%s", shellQuote(uiURL(s)))
	return nil
}

// Purge ends everything and deletes the data. A PostgreSQL of the user's own keeps its databases.
func (d Dev) Purge(ctx context.Context, yes bool) error {
	if !yes {
		return fmt.Errorf("purge deletes all databases below %s: repeat it with --yes if that is meant", d.Home)
	}
	if _, err := os.Stat(string(d.Home)); errors.Is(err, os.ErrNotExist) {
		d.say("there is no data: %s does not exist", d.Home)
		return nil
	}
	unlock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.down(ctx); err != nil {
		return err
	}
	if err := d.Home.Forget(); err != nil {
		return err
	}
	d.say("data deleted; the private PostgreSQL in %s is kept", d.Home.PrefixDir())
	return nil
}
