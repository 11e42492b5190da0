package home

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/temporal-dev/internal/process"
)

// State is what later commands need to know. It outlives `down`, so that ports chosen once stay chosen.
type State struct {
	Ports Ports `json:"ports"`
	// DatabaseURL is where programs reach the fairlead database.
	DatabaseURL string `json:"database_url"`
	// External means that DatabaseURL came from the user: that PostgreSQL is never started, stopped or deleted.
	External bool `json:"external"`
	// Postgres describes the PostgreSQL for people: version and where it came from.
	Postgres string `json:"postgres"`

	PostgresProcess process.Identity `json:"postgres_process,omitzero"`
	EngineProcess   process.Identity `json:"engine_process,omitzero"`
}

// Ports are the three ports that people use; all others are picked free at each start.
type Ports struct {
	Postgres int `json:"postgres"`
	Temporal int `json:"temporal"`
	UI       int `json:"ui"`
}

// ManagedURL is the address of the fairlead database in a PostgreSQL that temporal-dev runs itself.
func (p Ports) ManagedURL() string {
	return "postgres://postgres@" + process.Address(p.Postgres) + "/fairlead?sslmode=disable"
}

// Load reads the state; the zero State when there is none yet.
func (h Home) Load() (State, error) {
	var s State
	raw, err := os.ReadFile(h.statePath())
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read state: %w", err)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("read state %s: %w; delete that file, `up` finds running processes without it", h.statePath(), err)
	}
	return s, nil
}

// Save replaces the state in one step. Only its owner may read it: DATABASE_URL may hold a password.
func (h Home) Save(s State) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	f, err := os.CreateTemp(string(h), ".state-*")
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), h.statePath())
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// RecordEngine is called by an engine about itself.
func (h Home) RecordEngine(id process.Identity) error {
	raw, err := json.Marshal(id)
	if err == nil {
		err = os.WriteFile(h.enginePath(), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record the engine's process: %w", err)
	}
	return nil
}

// Engine returns the engine that recorded itself last if it still runs, else the zero Identity.
func (h Home) Engine() process.Identity {
	var id process.Identity
	raw, err := os.ReadFile(h.enginePath())
	if err != nil || json.Unmarshal(raw, &id) != nil || !id.Alive() {
		return process.Identity{}
	}
	return id
}

// Forget deletes the databases' files, the logs and the state, but keeps the private PostgreSQL: it holds no data.
func (h Home) Forget() error {
	halfDone, _ := filepath.Glob(h.DataDir() + ".new-*")
	for _, path := range append(halfDone, h.DataDir(), h.join("log"), h.statePath(), h.enginePath()) {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	return nil
}
