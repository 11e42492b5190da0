package dev

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/temporal-dev/internal/home"
)

func TestPortsComeFromFlagThenEnvironmentThenMemoryThenDefault(t *testing.T) {
	t.Parallel()
	env := map[string]string{PostgresPortEnv: "1001", TemporalPortEnv: "1002"}
	asked, err := Options{Ports: home.Ports{Postgres: 2001}}.FromEnvironment(func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	got, err := asked.plan(home.State{Ports: home.Ports{Postgres: 3001, Temporal: 3002, UI: 3003}})
	if want := (home.Ports{Postgres: 2001, Temporal: 1002, UI: 3003}); err != nil || got.Ports != want {
		t.Errorf("got %+v, %v; want %+v", got.Ports, err, want)
	}
	got, err = Options{}.plan(home.State{})
	if want := (home.Ports{Postgres: 55432, Temporal: 7233, UI: 8233}); err != nil || got.Ports != want {
		t.Errorf("got %+v, %v; want %+v", got.Ports, err, want)
	}
	if got.DatabaseURL != "postgres://postgres@127.0.0.1:55432/fairlead?sslmode=disable" || got.External {
		t.Errorf("got %q, external %v", got.DatabaseURL, got.External)
	}
}

func TestBadPortsAreNamed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "0", "-1", "65536", "80 "} {
		_, err := Options{}.FromEnvironment(func(k string) string { return map[string]string{UIPortEnv: text}[k] })
		if err == nil || !strings.Contains(err.Error(), UIPortEnv) {
			t.Errorf("%q: got %v, want an error that names %s", text, err, UIPortEnv)
		}
	}
	if _, err := (Options{Ports: home.Ports{Temporal: 8233}}).plan(home.State{}); err == nil || !strings.Contains(err.Error(), "8233") {
		t.Errorf("two parts on one port: got %v", err)
	}
}

func TestDatabaseURLOfOurOwnIsNotExternal(t *testing.T) {
	t.Parallel()
	before, err := Options{Ports: home.Ports{Postgres: 6000}}.plan(home.State{})
	if err != nil {
		t.Fatal(err)
	}
	// What `eval "$(temporal-dev env)"` leaves in a shell.
	again, err := Options{DatabaseURL: before.DatabaseURL}.plan(before)
	if err != nil || again.External {
		t.Errorf("external %v, %v: its own server counts as the user's", again.External, err)
	}
	// The same after `purge`, which forgets the state.
	if fresh, err := (Options{DatabaseURL: DefaultPorts.ManagedURL()}).plan(home.State{}); err != nil || fresh.External {
		t.Errorf("external %v, %v after purge", fresh.External, err)
	}
	other, err := Options{DatabaseURL: "postgres://me@db.example/x"}.plan(before)
	if err != nil || !other.External || other.DatabaseURL != "postgres://me@db.example/x" {
		t.Errorf("got %+v, %v; want the given one", other, err)
	}
	back, err := Options{}.plan(other)
	if err != nil || back.External || back.DatabaseURL != before.DatabaseURL {
		t.Errorf("without DATABASE_URL again: got %+v, %v; want the managed one", back, err)
	}
}

func TestRefuseChange(t *testing.T) {
	t.Parallel()
	running, err := Options{}.plan(home.State{})
	if err != nil {
		t.Fatal(err)
	}
	running.EngineProcess.PID, running.PostgresProcess.PID = 1, 2
	for name, o := range map[string]Options{
		"Temporal":   {Ports: home.Ports{Temporal: 9001}},
		"Web UI":     {Ports: home.Ports{UI: 9002}},
		"PostgreSQL": {Ports: home.Ports{Postgres: 9003}},
		"database":   {DatabaseURL: "postgres://me@db.example/x"},
	} {
		want, err := o.plan(running)
		if err != nil {
			t.Fatal(err)
		}
		if err := (Dev{}).refuseChange(running, want); err == nil {
			t.Errorf("%s moved under a running engine", name)
		}
	}
	same, err := Options{Ports: DefaultPorts}.plan(running)
	if err != nil {
		t.Fatal(err)
	}
	if err := (Dev{}).refuseChange(running, same); err != nil {
		t.Errorf("the same ports again: %v", err)
	}
}

func TestShellQuote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"default":                    "default",
		"127.0.0.1:7233":             "127.0.0.1:7233",
		"postgres://u:a'b@h/d?x=1&y": `'postgres://u:a'\''b@h/d?x=1&y'`,
		"":                           "''",
	} {
		if got := shellQuote(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	if got := redact("postgres://u:secret@h/d"); strings.Contains(got, "secret") {
		t.Errorf("password shown: %s", got)
	}
}
