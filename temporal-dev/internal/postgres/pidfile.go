package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/temporal-dev/internal/process"
)

// Running finds the server that runs on a data directory, whoever recorded it; ErrGone when none does.
// It trusts postmaster.pid only if that process is a postgres started for this very directory.
func Running(dataDir string) (id process.Identity, port int, err error) {
	pid, port, err := readPidFile(dataDir)
	if err != nil {
		return process.Identity{}, 0, err
	}
	id, err = process.Identify(pid)
	if err != nil {
		return process.Identity{}, 0, err
	}
	if command := process.CommandLine(pid); !strings.Contains(command, dataDir) || !strings.Contains(command, "postgres") {
		return process.Identity{}, 0, process.ErrGone
	}
	return id, port, nil
}

// readPidFile reads lines 1 (PID) and 4 (port) of postmaster.pid.
func readPidFile(dataDir string) (pid, port int, err error) {
	raw, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, 0, process.ErrGone
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read postmaster.pid: %w", err)
	}
	lines := strings.Split(string(raw), "\n")
	if pid, err = strconv.Atoi(strings.TrimSpace(lines[0])); err != nil {
		return 0, 0, process.ErrGone
	}
	if len(lines) > 3 {
		port, _ = strconv.Atoi(strings.TrimSpace(lines[3]))
	}
	return pid, port, nil
}

// removeRecycledPidFile helps PostgreSQL out of the one case it cannot judge: the PID in a stale postmaster.pid now belongs
// to another program (after a reboot) or to a zombie that nobody reaps (in a container). PostgreSQL uses that file to
// find shared memory that is still in use, so it may only go once no process at all works in the data directory.
func removeRecycledPidFile(dataDir string) error {
	if _, _, err := Running(dataDir); !errors.Is(err, process.ErrGone) {
		return err
	}
	pid, _, err := readPidFile(dataDir)
	if errors.Is(err, process.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
		return nil // PostgreSQL sees for itself that the process is gone
	}
	if used, err := inUse(dataDir); err != nil || used {
		return err
	}
	if err := os.Remove(filepath.Join(dataDir, "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a stale postmaster.pid: %w", err)
	}
	return nil
}

// inUse reports whether any process has the data directory as its working directory, as all of PostgreSQL's do.
func inUse(dataDir string) (bool, error) {
	real, err := filepath.EvalSymlinks(dataDir)
	if err != nil {
		return false, fmt.Errorf("look at the data directory: %w", err)
	}
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return false, fmt.Errorf("look at running processes: %w", err)
	}
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && cwd == real {
			return true, nil
		}
	}
	return false, nil
}
