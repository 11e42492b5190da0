// Package services is OpsPilot's service registry: a directory with one JSON
// file per service, which each service writes when it starts. The patient
// writes it, the agent's tools read it.
//
// A service keeps its ID when it restarts; Record.Version tells one life of it
// from the next. The package imports the standard library alone.
package services

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Limits of what a reader accepts, so that a broken registry cannot exhaust it.
const (
	maxRecords     = 1000
	maxRecordBytes = 64 << 10
)

// ErrNotFound says that no such service is registered in that environment. It
// does not say whether another environment has it.
var ErrNotFound = errors.New("no such service in this environment")

// Record is one registered service.
type Record struct {
	// ID is ID(Name, Environment).
	ID          string `json:"id"`
	Name        string `json:"name"`
	Environment string `json:"environment"`
	// Address is a loopback host:port. It is for programs and is never shown to
	// a model.
	Address   string    `json:"address"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	// LogPath is the absolute path of the log file, one JSON object per line.
	LogPath string `json:"log_path"`
	// ControlAddress is the loopback host:port of the supervisor, which restarts
	// the service (see RestartPath). Empty: the service has none. For programs,
	// as Address is.
	ControlAddress string `json:"control_address,omitempty"`
}

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// ValidName reports whether s can name a service or an environment: 1 to 63 of
// a-z, 0-9 and -, beginning with a letter.
func ValidName(s string) bool { return namePattern.MatchString(s) }

// ID returns the identifier of a service: the same for every life of it.
func ID(name, environment string) string { return name + "." + environment }

// Version identifies one life of the service: its process start. A plan to
// restart the service is stale as soon as the version is another one.
func (r Record) Version() string { return r.StartedAt.UTC().Format(time.RFC3339Nano) }

// Validate returns an error that names the first field at fault.
func (r Record) Validate() error {
	switch {
	case !namePattern.MatchString(r.Name):
		return errors.New("name must be lower-case letters, digits and -")
	case !namePattern.MatchString(r.Environment):
		return errors.New("environment must be lower-case letters, digits and -")
	case r.ID != ID(r.Name, r.Environment):
		return errors.New("id is not name.environment")
	case !loopback(r.Address):
		return errors.New("address is not a loopback host:port")
	case r.ControlAddress != "" && !loopback(r.ControlAddress):
		return errors.New("control_address is not a loopback host:port")
	case r.PID <= 0:
		return errors.New("pid is not positive")
	case r.StartedAt.IsZero():
		return errors.New("started_at is missing")
	case !filepath.IsAbs(r.LogPath):
		return errors.New("log_path is not absolute")
	}
	return nil
}

// loopback takes an address in numbers only: a name could resolve to anything.
func loopback(hostPort string) bool {
	address, err := netip.ParseAddrPort(hostPort)
	return err == nil && address.Addr().IsLoopback() && address.Port() != 0
}

// Registry reads and writes one directory. It is safe for concurrent use, also
// by several processes: a record is replaced in one step.
type Registry struct{ dir string }

// Open returns the registry in dir, which need not exist yet.
func Open(dir string) (*Registry, error) {
	if dir == "" {
		return nil, errors.New("service registry: no directory given")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("service registry: %w", err)
	}
	return &Registry{dir: abs}, nil
}

// Get returns the service with that ID if it is in that environment, otherwise
// ErrNotFound. Any other error means that the registry could not be read.
func (g *Registry) Get(environment, id string) (Record, error) {
	name, found := strings.CutSuffix(id, "."+environment)
	if !found || !namePattern.MatchString(name) || !namePattern.MatchString(environment) {
		return Record{}, ErrNotFound
	}
	record, err := readRecord(filepath.Join(g.dir, id+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return Record{}, ErrNotFound
	}
	return record, err
}

// List returns the services of one environment by name, and how many entries
// of the registry could not be read.
func (g *Registry) List(environment string) (records []Record, unreadable int, err error) {
	entries, err := os.ReadDir(g.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list services: %w", err)
	}
	for _, entry := range entries {
		id, isRecord := strings.CutSuffix(entry.Name(), ".json")
		if !isRecord || !strings.HasSuffix(id, "."+environment) {
			continue
		}
		if len(records)+unreadable == maxRecords {
			return nil, 0, fmt.Errorf("list services: more than %d entries", maxRecords)
		}
		record, err := readRecord(filepath.Join(g.dir, entry.Name()))
		switch {
		case errors.Is(err, os.ErrNotExist): // it stopped between the two looks
		case err != nil:
			unreadable++
		case record.Environment == environment:
			records = append(records, record)
		}
	}
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Name, b.Name) })
	return records, unreadable, nil
}

// Put registers a service, replacing an earlier life of it.
func (g *Registry) Put(r Record) error {
	if err := r.Validate(); err != nil {
		return fmt.Errorf("register service: %w", err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("register service: %w", err)
	}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return fmt.Errorf("register service: %w", err)
	}
	file, err := os.CreateTemp(g.dir, ".new-*")
	if err != nil {
		return fmt.Errorf("register service: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), filepath.Join(g.dir, r.ID+".json"))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("register service: %w", err), os.Remove(file.Name()))
	}
	return nil
}

// Remove takes a service off the registry, unless another life of it has
// registered since.
func (g *Registry) Remove(r Record) error {
	current, err := g.Get(r.Environment, r.ID)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if current.PID != r.PID || current.Version() != r.Version() {
		return nil
	}
	return os.Remove(filepath.Join(g.dir, r.ID+".json"))
}

func readRecord(path string) (Record, error) {
	file, err := os.Open(path)
	if err != nil {
		return Record{}, fmt.Errorf("read service record: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxRecordBytes+1))
	if err != nil {
		return Record{}, fmt.Errorf("read service record: %w", err)
	}
	if len(text) > maxRecordBytes {
		return Record{}, errors.New("read service record: too long")
	}
	var record Record
	if err := json.Unmarshal(text, &record); err != nil {
		return Record{}, fmt.Errorf("read service record: %w", err)
	}
	if err := record.Validate(); err != nil {
		return Record{}, fmt.Errorf("read service record: %w", err)
	}
	if record.ID+".json" != filepath.Base(path) {
		return Record{}, errors.New("read service record: id and file name differ")
	}
	return record, nil
}
