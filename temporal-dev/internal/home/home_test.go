package home

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/temporal-dev/internal/process"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, flag string
		env        map[string]string
		uid        int
		want       Home
	}{
		{"flag first", "/a", map[string]string{EnvVar: "/b"}, 1, "/a"},
		{"environment", "", map[string]string{EnvVar: "/b", "HOME": "/h"}, 0, "/b"},
		{"root", "", map[string]string{"HOME": "/root", "XDG_STATE_HOME": "/x"}, 0, "/var/lib/fairlead-dev"},
		{"user with XDG", "", map[string]string{"HOME": "/h", "XDG_STATE_HOME": "/x"}, 1000, "/x/fairlead-dev"},
		{"user", "", map[string]string{"HOME": "/h"}, 1000, "/h/.local/state/fairlead-dev"},
	} {
		got, err := Resolve(c.flag, func(k string) string { return c.env[k] }, c.uid)
		if err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	if _, err := Resolve("", func(string) string { return "" }, 1000); err == nil {
		t.Error("a user without HOME gets a directory")
	}
}

func TestStateSurvives(t *testing.T) {
	t.Parallel()
	h := Home(t.TempDir())
	if s, err := h.Load(); err != nil || s != (State{}) {
		t.Fatalf("new home: got %+v, %v; want the zero state", s, err)
	}
	want := State{
		Ports: Ports{1, 2, 3}, DatabaseURL: "postgres://u:secret@h/db", External: true, Postgres: "PostgreSQL 17",
		PostgresProcess: process.Identity{PID: 4, Start: "x"}, EngineProcess: process.Identity{PID: 5, Start: "y"},
	}
	if err := h.Save(want); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Load(); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	info, err := os.Stat(h.statePath())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: others may read the password", info.Mode(), err)
	}
	if files, _ := filepath.Glob(filepath.Join(string(h), ".state-*")); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
	if err := os.WriteFile(h.statePath(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Load(); err == nil || !strings.Contains(err.Error(), h.statePath()) {
		t.Errorf("a broken state file: got %v, want an error that names it", err)
	}
}

func TestLockAdmitsOneAtATime(t *testing.T) {
	t.Parallel()
	h := Home(t.TempDir())
	unlock, err := h.Lock(t.Context(), func() { t.Error("the first had to wait") })
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := h.Lock(ctx, func() { close(waiting) }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock: got %v, want it to wait for the whole time", err)
	}
	<-waiting
	unlock()
	again, err := h.Lock(t.Context(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestOpenLogSetsALargeOneAside(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.log")
	if err := os.WriteFile(path, make([]byte, 17<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := OpenLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if info, _ := f.Stat(); info.Size() != 0 {
		t.Errorf("size %d, want 0", info.Size())
	}
	if _, err := os.Stat(path + ".old"); err != nil {
		t.Error(err)
	}
}
