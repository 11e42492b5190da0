package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// engine is a PostgreSQL and a Temporal server of the storm's own, with data and
// ports of their own. Both are brought by temporal-dev, from two homes: an engine
// that runs its PostgreSQL itself ends when that restarts, one that is given a
// PostgreSQL waits for it. So the first home gives the PostgreSQL, and the second
// one the Temporal server on it.
type engine struct {
	program string
	// dir holds both homes, and is deleted at the end.
	dir         string
	database    home
	temporal    home
	databaseURL string
}

// home is one home of temporal-dev.
type home struct {
	dir string
	// databaseURL is the PostgreSQL that it is given, empty for one of its own.
	databaseURL                  string
	postgresPort, temporal, uiAt int
}

// startEngine takes half a minute. Close the engine also after an error.
func startEngine(ctx context.Context, program string, progress io.Writer) (*engine, error) {
	// Open to the user that PostgreSQL runs as when this one is root.
	dir, err := os.MkdirTemp("", "fairlead-chaos-")
	if err != nil {
		return nil, err
	}
	e := &engine{program: program, dir: dir}
	if err := os.Chmod(dir, 0o755); err != nil {
		return e, err
	}
	ports, err := freePorts(5)
	if err != nil {
		return e, err
	}
	e.database = home{dir: filepath.Join(dir, "database"), postgresPort: ports[0], temporal: ports[1], uiAt: ports[2]}
	if err := os.Mkdir(e.database.dir, 0o755); err != nil {
		return e, err
	}
	// A PostgreSQL that the usual home has unpacked saves the download.
	if unpacked := filepath.Join(usualHome(), "postgres"); exists(filepath.Join(unpacked, "usr")) {
		if err := os.Symlink(unpacked, filepath.Join(e.database.dir, "postgres")); err != nil {
			return e, err
		}
	}
	fmt.Fprintf(progress, "starting PostgreSQL and a Temporal server in %s\n", dir)
	if err := e.run(ctx, e.database, "up"); err != nil {
		return e, err
	}
	if err := e.killTemporal(ctx, e.database); err != nil {
		return e, err
	}
	e.databaseURL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/fairlead?sslmode=disable", ports[0])
	e.temporal = home{dir: filepath.Join(dir, "temporal"), databaseURL: e.databaseURL, temporal: ports[3], uiAt: ports[4]}
	return e, e.run(ctx, e.temporal, "up")
}

func (e *engine) temporalAddress() string { return address(e.temporal.temporal) }

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// close stops the servers and deletes their data.
func (e *engine) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, h := range []home{e.temporal, e.database} {
		if h.dir != "" && exists(h.dir) {
			errs = append(errs, e.run(ctx, h, "purge", "--yes"))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w; what is left is in %s", err, e.dir)
	}
	return os.RemoveAll(e.dir)
}

// run runs temporal-dev.
func (e *engine) run(ctx context.Context, h home, arguments ...string) error {
	cmd := exec.CommandContext(ctx, e.program, arguments...)
	cmd.Env = append(cleanEnvironment(), "FAIRLEAD_DEV_HOME="+h.dir, "DATABASE_URL="+h.databaseURL)
	for name, port := range map[string]int{"PG": h.postgresPort, "TEMPORAL": h.temporal, "UI": h.uiAt} {
		if port != 0 {
			cmd.Env = append(cmd.Env, fmt.Sprintf("FAIRLEAD_DEV_%s_PORT=%d", name, port))
		}
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	// Interrupted it leaves nothing half done that purge does not find.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 15 * time.Second
	// Ctrl-C is for the storm.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("temporal-dev %s: %w\n%s", arguments[0], err, said.String())
	}
	return nil
}

// restartTemporal kills the Temporal server and starts it again.
func (e *engine) restartTemporal(ctx context.Context) error {
	if err := e.killTemporal(ctx, e.temporal); err != nil {
		return err
	}
	return e.run(ctx, e.temporal, "up")
}

// killTemporal ends the engine of a home with SIGKILL and waits until it is gone.
func (e *engine) killTemporal(ctx context.Context, h home) error {
	text, err := os.ReadFile(filepath.Join(h.dir, "engine.pid"))
	if err != nil {
		return err
	}
	var engine struct{ PID int }
	if err := json.Unmarshal(text, &engine); err != nil || engine.PID <= 1 {
		return fmt.Errorf("read the engine's process from %s: %w", h.dir, err)
	}
	if err := syscall.Kill(engine.PID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the Temporal server: %w", err)
	}
	for {
		connection, err := net.Dial("tcp", address(h.temporal))
		if err != nil {
			return nil
		}
		_ = connection.Close()
		if !wait(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// restartPostgres restarts PostgreSQL as a crash would: without a checkpoint, so
// that it recovers from its log.
func (e *engine) restartPostgres(ctx context.Context) error {
	data := filepath.Join(e.database.dir, "pgdata")
	// The server's own command line; its programs lie side by side.
	options, err := os.ReadFile(filepath.Join(data, "postmaster.opts"))
	if err != nil {
		return err
	}
	server, _, _ := strings.Cut(string(options), " ")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(server), "pg_ctl"),
		"restart", "--pgdata", data, "--mode", "immediate", "--wait", "--timeout", "45", "--log", filepath.Join(data, "restarted.log"))
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	info, err := os.Stat(data)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 && owner.Uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	// Not a pipe, which the new server would keep open.
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pg_ctl restart: %w", err)
	}
	return nil
}

// usualHome is where temporal-dev keeps what it has unpacked.
func usualHome() string {
	switch {
	case os.Getenv("FAIRLEAD_DEV_HOME") != "":
		return os.Getenv("FAIRLEAD_DEV_HOME")
	case os.Geteuid() == 0:
		return "/var/lib/fairlead-dev"
	case os.Getenv("XDG_STATE_HOME") != "":
		return filepath.Join(os.Getenv("XDG_STATE_HOME"), "fairlead-dev")
	}
	return filepath.Join(os.Getenv("HOME"), ".local", "state", "fairlead-dev")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// freePorts returns ports that nothing listens on at this moment.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		// All are held until all are known, so that they differ.
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
