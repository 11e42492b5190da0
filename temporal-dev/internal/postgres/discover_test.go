package postgres

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// fake lays out what a package of PostgreSQL lays out below root, in Debian's way.
func fake(t *testing.T, root, version string, major int, vector bool) (bin string) {
	t.Helper()
	bin = filepath.Join(root, fmt.Sprintf("lib/postgresql/%d/bin", major))
	extension := filepath.Join(root, fmt.Sprintf("share/postgresql/%d/extension", major))
	for _, dir := range []string{bin, extension} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(bin, "postgres"), "#!/bin/sh\necho 'postgres (PostgreSQL) "+version+"'\n")
	write(t, filepath.Join(bin, "initdb"), "#!/bin/sh\n")
	if vector {
		write(t, filepath.Join(extension, "vector.control"), "")
	}
	return bin
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestNewestTakesOnlyWhatIsFit(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	fake(t, root, "14.11 (Debian 14.11-1)", 14, true) // too old
	fake(t, root, "15.7 (Debian 15.7-0)", 15, true)
	want := fake(t, root, "16.3 (Ubuntu 16.3-1)", 16, true)
	fake(t, root, "18beta1", 18, false) // no pgvector
	patterns := []string{filepath.Join(root, "lib/postgresql/*/bin")}

	got, ok := newest(context.Background(), patterns, 0)
	if !ok || got.BinDir != want || got.Major != 16 || got.Version != "16.3" {
		t.Errorf("got %+v, %v; want version 16.3 in %s", got, ok, want)
	}
	// A data directory made by 15 is readable by 15 only.
	if got, ok := newest(context.Background(), patterns, 15); !ok || got.Major != 15 {
		t.Errorf("asked for 15: got %+v, %v", got, ok)
	}
	for _, major := range []int{14, 17, 18} {
		if got, ok := newest(context.Background(), patterns, major); ok {
			t.Errorf("asked for %d: got %+v, want nothing", major, got)
		}
	}
}

func TestInspectKnowsHomebrewsLayout(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	bin := filepath.Join(root, "opt/postgresql@17/bin")
	extension := filepath.Join(root, "opt/postgresql@17/share/postgresql@17/extension")
	for _, dir := range []string{bin, extension} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(bin, "postgres"), "#!/bin/sh\necho 'postgres (PostgreSQL) 17.2 (Homebrew)'\n")
	write(t, filepath.Join(bin, "initdb"), "#!/bin/sh\n")
	if _, err := inspect(context.Background(), bin); err == nil {
		t.Error("accepted without pgvector")
	}
	write(t, filepath.Join(extension, "vector.control"), "")
	if got, err := inspect(context.Background(), bin); err != nil || got.Version != "17.2" {
		t.Errorf("got %+v, %v; want 17.2", got, err)
	}
}

func TestInspectBelievesPgConfig(t *testing.T) {
	t.Parallel()
	bin, share := t.TempDir(), t.TempDir()
	write(t, filepath.Join(bin, "postgres"), "#!/bin/sh\necho 'postgres (PostgreSQL) 16.1'\n")
	write(t, filepath.Join(bin, "initdb"), "#!/bin/sh\n")
	write(t, filepath.Join(bin, "pg_config"), "#!/bin/sh\necho '"+share+"'\n")
	if err := os.Mkdir(filepath.Join(share, "extension"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(share, "extension", "vector.control"), "")
	if _, err := inspect(context.Background(), bin); err != nil {
		t.Error(err)
	}
}

func TestRunningTrustsNoForeignPID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, _, err := Running(dir); err == nil {
		t.Error("a directory without postmaster.pid has a server")
	}
	// The PID is alive, but it is this test's and not a postgres of that directory.
	write(t, filepath.Join(dir, "postmaster.pid"), fmt.Sprintf("%d\n%s\n0\n5432\n", os.Getpid(), dir))
	if id, _, err := Running(dir); err == nil {
		t.Errorf("took process %d for a PostgreSQL server", id.PID)
	}
}

func TestRemoveRecycledPidFileSparesADirectoryInUse(t *testing.T) {
	if _, err := os.Stat("/proc/self/cwd"); err != nil {
		t.Skip("needs /proc")
	}
	dir := t.TempDir()
	pidFile := filepath.Join(dir, "postmaster.pid")
	write(t, pidFile, fmt.Sprintf("%d\n%s\n0\n5432\n", os.Getpid(), dir))
	t.Chdir(dir)
	if err := removeRecycledPidFile(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pidFile); err != nil {
		t.Error("removed although a process works in the directory")
	}
	t.Chdir("/")
	if err := removeRecycledPidFile(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pidFile); err == nil {
		t.Error("kept although its PID is another program's and nothing works in the directory")
	}
}

func TestOnDatabase(t *testing.T) {
	t.Parallel()
	got, err := OnDatabase("postgres://u:p%40ss@h:1/fairlead?sslmode=disable", "temporal")
	if err != nil || got != "postgres://u:p%40ss@h:1/temporal?sslmode=disable" {
		t.Errorf("got %q, %v", got, err)
	}
	if u, _ := url.Parse(got); u.Path != "/temporal" {
		t.Errorf("path %q", u.Path)
	}
	if _, err := OnDatabase("host=h user=u", "temporal"); err == nil {
		t.Error("a keyword string is accepted")
	}
}
