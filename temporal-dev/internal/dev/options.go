package dev

import (
	"fmt"
	"strconv"

	"github.com/fairlead/fairlead/temporal-dev/internal/home"
	"github.com/fairlead/fairlead/temporal-dev/internal/process"
)

// Options are what a caller of Up asked for; zero means not asked.
type Options struct {
	Ports home.Ports
	// DatabaseURL is a PostgreSQL of the user's own.
	DatabaseURL string
	Foreground  bool
}

// The names by which people choose ports.
const (
	PostgresPortFlag, PostgresPortEnv = "pg-port", "FAIRLEAD_DEV_PG_PORT"
	TemporalPortFlag, TemporalPortEnv = "temporal-port", "FAIRLEAD_DEV_TEMPORAL_PORT"
	UIPortFlag, UIPortEnv             = "ui-port", "FAIRLEAD_DEV_UI_PORT"
)

// DefaultPorts hold when nobody asks and none were chosen before.
var DefaultPorts = home.Ports{Postgres: 55432, Temporal: 7233, UI: 8233}

// FromEnvironment fills in what the flags left open.
func (o Options) FromEnvironment(getenv func(string) string) (Options, error) {
	for _, p := range []struct {
		port *int
		env  string
		flag string
	}{
		{&o.Ports.Postgres, PostgresPortEnv, PostgresPortFlag},
		{&o.Ports.Temporal, TemporalPortEnv, TemporalPortFlag},
		{&o.Ports.UI, UIPortEnv, UIPortFlag},
	} {
		source := "--" + p.flag
		if text := getenv(p.env); *p.port == 0 && text != "" {
			source = p.env
			n, err := strconv.Atoi(text)
			if err != nil || n == 0 {
				return o, fmt.Errorf("%s is %q: give a port number from 1 to 65535", p.env, text)
			}
			*p.port = n
		}
		if *p.port < 0 || *p.port > 65535 {
			return o, fmt.Errorf("%s is %d: give a port number from 1 to 65535", source, *p.port)
		}
	}
	o.DatabaseURL = getenv("DATABASE_URL")
	return o, nil
}

// plan decides what shall run, from what was asked and what ran before. What was chosen once is kept until asked otherwise.
func (o Options) plan(before home.State) (home.State, error) {
	want := before
	for _, p := range []struct {
		want            *int
		asked, fallback int
	}{
		{&want.Ports.Postgres, o.Ports.Postgres, DefaultPorts.Postgres},
		{&want.Ports.Temporal, o.Ports.Temporal, DefaultPorts.Temporal},
		{&want.Ports.UI, o.Ports.UI, DefaultPorts.UI},
	} {
		switch {
		case p.asked != 0:
			*p.want = p.asked
		case *p.want == 0:
			*p.want = p.fallback
		}
	}
	// In a shell that has evaluated `temporal-dev env`, DATABASE_URL names the server that temporal-dev runs itself.
	want.External = o.DatabaseURL != "" && o.DatabaseURL != before.Ports.ManagedURL() && o.DatabaseURL != want.Ports.ManagedURL()
	if want.External {
		want.DatabaseURL = o.DatabaseURL
	} else {
		want.DatabaseURL = want.Ports.ManagedURL()
	}
	used := map[int]bool{want.Ports.Temporal: true, want.Ports.UI: true}
	distinct := 2
	if !want.External {
		used[want.Ports.Postgres] = true
		distinct = 3
	}
	if len(used) < distinct {
		return want, fmt.Errorf("ports %d (PostgreSQL), %d (Temporal) and %d (Web UI) must differ: choose them with --%s, --%s, --%s",
			want.Ports.Postgres, want.Ports.Temporal, want.Ports.UI, PostgresPortFlag, TemporalPortFlag, UIPortFlag)
	}
	return want, nil
}

// portsFor lists the ports that must be free before anything is started; those of living processes are ours.
func portsFor(s home.State) []process.Port {
	var ports []process.Port
	if !s.External && s.PostgresProcess.PID == 0 {
		ports = append(ports, process.Port{Number: s.Ports.Postgres, For: "PostgreSQL", Flag: "--" + PostgresPortFlag, Env: PostgresPortEnv})
	}
	if s.EngineProcess.PID == 0 {
		ports = append(ports,
			process.Port{Number: s.Ports.Temporal, For: "the Temporal server", Flag: "--" + TemporalPortFlag, Env: TemporalPortEnv},
			process.Port{Number: s.Ports.UI, For: "the Web UI", Flag: "--" + UIPortFlag, Env: UIPortEnv})
	}
	return ports
}
