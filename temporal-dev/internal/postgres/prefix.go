package postgres

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

//go:embed scripts/postgres-prefix.sh
var prefixScript string

// prefixMajor is the PostgreSQL version that the script unpacks.
const prefixMajor = 17

const howToInstall = "install PostgreSQL 15 or newer with pgvector (Debian 13: `apt install postgresql-17 postgresql-17-pgvector`; " +
	"Ubuntu 24.04: `apt install postgresql-16 postgresql-16-pgvector`; macOS: `brew install postgresql@17 pgvector`), " +
	"or set DATABASE_URL to one that runs elsewhere, for example in a pgvector/pgvector:pg17 container"

// Obtain finds an installation for this data directory, and on Debian unpacks a private one into prefix if there is none.
// progress gets one line for each step of that.
func Obtain(ctx context.Context, prefix, dataDir string, progress func(string)) (Installation, error) {
	major, err := dataMajor(dataDir)
	if err != nil {
		return Installation{}, err
	}
	if found, ok := Find(ctx, prefix, major); ok {
		return found, nil
	}
	if major != 0 && major != prefixMajor {
		return Installation{}, fmt.Errorf("the data in %s was made by PostgreSQL %d with pgvector, and that version is no longer installed: "+
			"install it again, or delete the data with `temporal-dev purge --yes`", dataDir, major)
	}
	if !isDebian() {
		return Installation{}, errors.New("no PostgreSQL with pgvector was found: " + howToInstall)
	}
	progress("no installed PostgreSQL has pgvector: unpacking a private one (about 40 MB to download, once)")
	if err := unpack(ctx, prefix, progress); err != nil {
		return Installation{}, fmt.Errorf("unpack a private PostgreSQL: %w: look at the network and run this again, or %s", err, howToInstall)
	}
	found, ok := Find(ctx, prefix, major)
	if !ok {
		return Installation{}, fmt.Errorf("the private PostgreSQL in %s does not run on this machine: delete that directory, then %s", prefix, howToInstall)
	}
	return found, nil
}

func isDebian() bool {
	if runtime.GOOS != "linux" {
		return false
	}
	for _, program := range []string{"apt-get", "dpkg", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			return false
		}
	}
	return true
}

func unpack(ctx context.Context, prefix string, progress func(string)) error {
	// Whatever a killed attempt left; the caller holds the home's lock, so no other attempt is at work.
	leftovers, _ := filepath.Glob(prefix + ".new-*")
	for _, dir := range append(leftovers, prefix) {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove an unfinished attempt: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, "bash", "-s", "--", prefix)
	cmd.Stdin = strings.NewReader(prefixScript)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var problem strings.Builder
	cmd.Stderr = &problem
	// A group of its own, so that cancelling ends the downloads below the shell too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		progress(strings.TrimPrefix(lines.Text(), "postgres: "))
	}
	_, _ = io.Copy(io.Discard, stdout)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(problem.String()))
	}
	return nil
}
