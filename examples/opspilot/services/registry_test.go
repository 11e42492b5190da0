package services_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/examples/opspilot/services"
)

func record(name, environment string) services.Record {
	return services.Record{
		ID: services.ID(name, environment), Name: name, Environment: environment,
		Address: "127.0.0.1:4711", PID: 42, LogPath: "/var/log/" + name,
		StartedAt: time.Date(2026, 1, 31, 8, 0, 0, 123000, time.UTC),
	}
}

func open(t *testing.T) (*services.Registry, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "services")
	registry, err := services.Open(dir)
	require.NoError(t, err)
	return registry, dir
}

func TestRegistryKeepsEnvironmentsApart(t *testing.T) {
	t.Parallel()
	registry, _ := open(t)
	for _, r := range []services.Record{record("payment-api", "production"), record("payment-api", "staging"), record("ledger-api", "production")} {
		require.NoError(t, registry.Put(r))
	}

	listed, unreadable, err := registry.List("production")
	require.NoError(t, err)
	require.Zero(t, unreadable)
	require.Equal(t, []services.Record{record("ledger-api", "production"), record("payment-api", "production")}, listed)

	got, err := registry.Get("production", "payment-api.production")
	require.NoError(t, err)
	require.Equal(t, record("payment-api", "production"), got)
	require.Equal(t, "2026-01-31T08:00:00.000123Z", got.Version())

	for _, id := range []string{"payment-api.staging", "absent.production", "", ".production", "../services/payment-api.production", "payment-api.production.production"} {
		_, err := registry.Get("production", id)
		require.ErrorIs(t, err, services.ErrNotFound, id)
	}
}

func TestRegistryIsEmptyBeforeTheFirstService(t *testing.T) {
	t.Parallel()
	registry, _ := open(t)
	listed, unreadable, err := registry.List("production")
	require.NoError(t, err)
	require.Empty(t, listed)
	require.Zero(t, unreadable)
}

func TestRemoveSparesTheNextLife(t *testing.T) {
	t.Parallel()
	registry, _ := open(t)
	old, next := record("payment-api", "production"), record("payment-api", "production")
	next.StartedAt = next.StartedAt.Add(time.Second)
	require.NoError(t, registry.Put(old))
	require.NoError(t, registry.Put(next))

	require.NoError(t, registry.Remove(old))
	got, err := registry.Get("production", old.ID)
	require.NoError(t, err)
	require.Equal(t, next, got)

	require.NoError(t, registry.Remove(next))
	_, err = registry.Get("production", old.ID)
	require.ErrorIs(t, err, services.ErrNotFound)
	require.NoError(t, registry.Remove(next))
}

func TestRegistryCountsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	registry, dir := open(t)
	require.NoError(t, registry.Put(record("payment-api", "production")))
	outside := `{"id":"evil-api.production","name":"evil-api","environment":"production","address":"203.0.113.7:80","pid":1,"started_at":"2026-01-31T08:00:00Z","log_path":"/tmp/x"}`
	for name, text := range map[string]string{
		"broken-api.production.json":  "{",
		"evil-api.production.json":    outside,
		"renamed-api.production.json": `{"id":"other-api.production","name":"other-api","environment":"production","address":"127.0.0.1:80","pid":1,"started_at":"2026-01-31T08:00:00Z","log_path":"/tmp/x"}`,
		"notes.txt":                   "not a record",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}

	listed, unreadable, err := registry.List("production")
	require.NoError(t, err)
	require.Equal(t, 3, unreadable)
	require.Equal(t, []services.Record{record("payment-api", "production")}, listed)

	_, err = registry.Get("production", "evil-api.production")
	require.ErrorContains(t, err, "loopback")
	require.NotErrorIs(t, err, services.ErrNotFound)
}

// A supervised service is registered with its supervisor, an older reader's
// record without one stays valid.
func TestRecordKeepsItsSupervisor(t *testing.T) {
	t.Parallel()
	registry, _ := open(t)
	r := record("payment-api", "production")
	r.ControlAddress = "127.0.0.1:4712"
	require.NoError(t, registry.Put(r))
	got, err := registry.Get("production", r.ID)
	require.NoError(t, err)
	require.Equal(t, r, got)
}

func TestPutRefusesInvalidRecords(t *testing.T) {
	t.Parallel()
	registry, _ := open(t)
	for name, change := range map[string]func(*services.Record){
		"name":         func(r *services.Record) { r.Name = "Payment API" },
		"environment":  func(r *services.Record) { r.Environment = "../production" },
		"id":           func(r *services.Record) { r.ID = "other.production" },
		"address":      func(r *services.Record) { r.Address = "192.0.2.1:80" },
		"host name":    func(r *services.Record) { r.Address = "localhost:80" },
		"pid":          func(r *services.Record) { r.PID = 0 },
		"started_at":   func(r *services.Record) { r.StartedAt = time.Time{} },
		"log_path":     func(r *services.Record) { r.LogPath = "relative.log" },
		"control":      func(r *services.Record) { r.ControlAddress = "192.0.2.1:80" },
		"control name": func(r *services.Record) { r.ControlAddress = "localhost:80" },
		"control port": func(r *services.Record) { r.ControlAddress = "127.0.0.1:0" },
	} {
		r := record("payment-api", "production")
		change(&r)
		require.Error(t, registry.Put(r), name)
	}
}
