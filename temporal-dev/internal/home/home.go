// Package home is the directory that holds everything temporal-dev keeps: where it is, what lies in it, the lock that
// serializes commands, and the state file that lets later commands find what an earlier one started.
package home

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Home is an absolute directory.
type Home string

// EnvVar names the directory when no flag does.
const EnvVar = "FAIRLEAD_DEV_HOME"

// Resolve picks the directory: the flag, the environment, else the place that suits the user. Root gets a
// system directory because PostgreSQL then runs as an unprivileged user, who may not enter /root.
func Resolve(flag string, getenv func(string) string, uid int) (Home, error) {
	dir := flag
	if dir == "" {
		dir = getenv(EnvVar)
	}
	switch {
	case dir != "":
	case uid == 0:
		dir = "/var/lib/fairlead-dev"
	case getenv("XDG_STATE_HOME") != "":
		dir = filepath.Join(getenv("XDG_STATE_HOME"), "fairlead-dev")
	case getenv("HOME") != "":
		dir = filepath.Join(getenv("HOME"), ".local", "state", "fairlead-dev")
	default:
		return "", errors.New("no home directory is known: set --home DIR or " + EnvVar)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("home directory %q: %w", dir, err)
	}
	return Home(abs), nil
}

func (h Home) join(name ...string) string {
	return filepath.Join(append([]string{string(h)}, name...)...)
}

// DataDir holds PostgreSQL's files.
func (h Home) DataDir() string { return h.join("pgdata") }

// PrefixDir holds the private PostgreSQL, when one had to be unpacked.
func (h Home) PrefixDir() string { return h.join("postgres") }

// EngineLog and PostgresLog are plain text files.
func (h Home) EngineLog() string   { return h.join("log", "engine.log") }
func (h Home) PostgresLog() string { return h.join("log", "postgres.log") }

func (h Home) statePath() string  { return h.join("state.json") }
func (h Home) enginePath() string { return h.join("engine.pid") }

// Create makes the directory tree. It is world-readable: the PostgreSQL user must reach its data and programs below it.
func (h Home) Create() error {
	if err := os.MkdirAll(h.join("log"), 0o755); err != nil {
		return fmt.Errorf("create home directory: %w; choose one you may write with --home DIR or %s", err, EnvVar)
	}
	return nil
}

// Lock waits until no other command works in this home. waiting is called once if it has to wait.
func (h Home) Lock(ctx context.Context, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(h.join("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w; choose a home you may write with --home DIR or %s", err, EnvVar)
	}
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			// The kernel drops the lock with the descriptor, so a killed command leaves none behind.
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// OpenLog opens a log for appending. A log that has grown large is set aside first, one generation deep.
func OpenLog(path string) (*os.File, error) {
	const large = 16 << 20
	if info, err := os.Stat(path); err == nil && info.Size() > large {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, fmt.Errorf("set log aside: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return f, nil
}
