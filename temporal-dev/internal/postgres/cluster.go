package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/temporal-dev/internal/home"
	"github.com/fairlead/fairlead/temporal-dev/internal/process"
)

// Cluster is one data directory and the programs that serve it.
type Cluster struct {
	Installation
	DataDir string
	LogPath string
	Port    int
	Account Account
}

// dataMajor reads which version made a data directory; zero when there is none yet.
func dataMajor(dataDir string) (int, error) {
	raw, err := os.ReadFile(filepath.Join(dataDir, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the data directory's version: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("read the data directory's version in %s: %w", dataDir, err)
	}
	return major, nil
}

// Init makes the data directory unless it exists. It appears in one step: a kill half-way leaves nothing to repair.
func (c Cluster) Init(ctx context.Context, progress func(string)) error {
	if major, err := dataMajor(c.DataDir); err != nil || major != 0 {
		return err
	}
	progress("creating the database files in " + c.DataDir)
	unfinished, _ := filepath.Glob(c.DataDir + ".new-*")
	for _, dir := range unfinished {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove an unfinished data directory: %w", err)
		}
	}
	dir, err := os.MkdirTemp(filepath.Dir(c.DataDir), filepath.Base(c.DataDir)+".new-")
	if err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := c.Account.own(dir); err != nil {
		return err
	}
	if err := c.initdb(ctx, dir, "--locale=C.UTF-8"); err != nil {
		// Not every system knows C.UTF-8; plain C always works and sorts the same.
		if err2 := c.initdb(ctx, dir, "--no-locale"); err2 != nil {
			return err2
		}
	}
	// Replaces what initdb wrote: only TCP from this machine, and no replication.
	const access = "# Written by temporal-dev. Trust is acceptable because the server listens on 127.0.0.1 only.\n" +
		"host all all 127.0.0.1/32 trust\n"
	if err := os.WriteFile(filepath.Join(dir, "pg_hba.conf"), []byte(access), 0o600); err != nil {
		return fmt.Errorf("write access rules: %w", err)
	}
	if err := os.Rename(dir, c.DataDir); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	return nil
}

func (c Cluster) initdb(ctx context.Context, dir, locale string) error {
	cmd := exec.CommandContext(ctx, c.program("initdb"), "-D", dir, "-U", "postgres", "-E", "UTF8", locale, "-A", "trust")
	c.Account.run(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb as %s: %w: %s", c.Account.Name, err, lastLines(string(out), 5))
	}
	return nil
}

// Start runs the server, detached from this process and its terminal, and waits until it answers.
func (c Cluster) Start(ctx context.Context, progress func(string)) (process.Identity, error) {
	// After a SIGKILL of the postmaster its children need a moment to notice and let go of the shared memory.
	deadline := time.Now().Add(40 * time.Second)
	for {
		id, err := c.start(ctx)
		var early *exitedEarly
		if err == nil || !errors.As(err, &early) || !early.mayPass() || time.Now().After(deadline) {
			return id, err
		}
		progress("processes of a killed PostgreSQL are still ending, waiting for them")
		if err := removeRecycledPidFile(c.DataDir); err != nil {
			return process.Identity{}, err
		}
		select {
		case <-ctx.Done():
			return process.Identity{}, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// exitedEarly is a server that ended before it answered; the log is what it said.
type exitedEarly struct{ log string }

func (e *exitedEarly) Error() string {
	return "PostgreSQL ended before it answered; the end of its log:\n" + lastLines(e.log, 8)
}

func (e *exitedEarly) mayPass() bool {
	return strings.Contains(e.log, "pre-existing shared memory block") || strings.Contains(e.log, `lock file "postmaster.pid" already exists`)
}

func (c Cluster) start(ctx context.Context) (process.Identity, error) {
	log, err := home.OpenLog(c.LogPath)
	if err != nil {
		return process.Identity{}, err
	}
	defer func() { _ = log.Close() }()
	info, err := log.Stat()
	if err != nil {
		return process.Identity{}, fmt.Errorf("open log: %w", err)
	}
	before := info.Size()

	cmd := exec.Command(c.program("postgres"), c.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	c.Account.run(cmd)
	cmd.SysProcAttr.Setsid = true
	if err := cmd.Start(); err != nil {
		return process.Identity{}, fmt.Errorf("start PostgreSQL as %s: %w", c.Account.Name, err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	id, err := process.Identify(cmd.Process.Pid)
	if err != nil && !errors.Is(err, process.ErrGone) {
		return id, err
	}
	url := "postgres://postgres@" + process.Address(c.Port) + "/postgres?sslmode=disable"
	// Crash recovery of a large write-ahead log takes its time.
	deadline := time.After(2 * time.Minute)
	for {
		pingErr := Ping(ctx, url)
		if pingErr == nil {
			return id, nil
		}
		select {
		case <-exited:
			said, _ := os.ReadFile(c.LogPath)
			return id, &exitedEarly{log: string(said[min(before, int64(len(said))):])}
		case <-ctx.Done():
			return id, ctx.Err()
		case <-deadline:
			return id, fmt.Errorf("PostgreSQL (PID %d) does not answer: %w: see %s", id.PID, pingErr, c.LogPath)
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// arguments override postgresql.conf, so that a changed port or a newer temporal-dev needs no edit of files.
// fsync and synchronous_commit keep their default, on: what is measured here must hold elsewhere.
func (c Cluster) arguments() []string {
	args := []string{"-D", c.DataDir}
	for _, setting := range []string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(c.Port),
		"unix_socket_directories=", // TCP is enough, and a socket's path may not be longer than about 100 bytes
		"max_connections=300",
		"shared_buffers=256MB",
		"max_wal_size=2GB",
		"logging_collector=off",
		"log_line_prefix=%m [%p] %d ",
	} {
		args = append(args, "-c", setting)
	}
	return args
}

// Stop ends a server: "fast" shutdown first (sessions are cut, data is flushed), "immediate" if that hangs. Never SIGKILL,
// which would leave its children behind.
func Stop(ctx context.Context, id process.Identity) error {
	err := id.End(ctx, process.Step{Signal: syscall.SIGINT, Within: 30 * time.Second}, process.Step{Signal: syscall.SIGQUIT, Within: 10 * time.Second})
	if err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	return nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
