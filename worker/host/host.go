// Package host turns tools, agent definitions and model adapters into a running
// worker: settings, log, metrics, health, database, Temporal, and the way down.
// A program that serves agents of its own calls Main and nothing else; see
// worker/main.go in this repository, which serves the example agents.
//
// Content is encrypted under the key-encryption key that FAIRLEAD_ENCRYPTION_KEY
// or FAIRLEAD_ENCRYPTION_KEY_URI names, and without one there is no worker. A
// program whose key is in a KMS registers Tink's client for it before it calls
// Main (registry.RegisterKMSClient of tink-go).
//
// The package imports everything below it. Nothing but mains imports it.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/tink-crypto/tink-go/v2/tink"
	"go.temporal.io/sdk/interceptor"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/telemetry"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/tool"
)

// Options say what a worker serves. All fields are optional, but there must be
// a definition, here or in the directory that FAIRLEAD_DEFINITIONS names.
type Options struct {
	// Tools are offered to the agents that list them. The built-in fetch_result
	// is always there and is not listed here.
	Tools []tool.Tool
	// Definitions are the agents, beside those in FAIRLEAD_DEFINITIONS.
	Definitions []definition.Definition
	// Models are adapters by provider, as in the catalogue. The provider
	// "openai" is there without being listed when OPENAI_API_KEY or
	// OPENAI_BASE_URL is set; one that is listed takes its place.
	Models map[string]model.Model
	// Catalogue lists the models; nil is the file that FAIRLEAD_CATALOGUE names,
	// or else model.DefaultCatalogue.
	Catalogue *model.Catalogue

	// Embedders compute the vectors by which memories are found: the first one is
	// current, and the others are asked as long as theirs serve. Empty means those
	// that FAIRLEAD_MEMORY_EMBEDDER and FAIRLEAD_MEMORY_EMBEDDER_PREVIOUS name.
	Embedders []model.Embedder

	// Policies hold *.cedar files and entities.json, which say who may do what.
	// Nil means the built-in ones; the directory that FAIRLEAD_POLICIES names
	// takes their place.
	Policies fs.FS
	// Interceptors wrap activities and workflows, the first outermost: for
	// tracing, and for tests.
	Interceptors []interceptor.WorkerInterceptor

	// ConfigFile is the file of settings; empty means fairlead.yaml, if there
	// is one.
	ConfigFile string
	// Migrate brings the database schema up to date before work begins. The
	// login must then own the schema.
	Migrate bool
	// Log receives the log; nil is standard error.
	Log io.Writer
}

// Names of the checks in /readyz.
const (
	checkDatabase = "database"
	checkTemporal = "temporal"
	checkPolling  = "polling"
)

// host is one worker process.
type host struct {
	settings  config.Config
	log       *zap.Logger
	metrics   *telemetry.Metrics
	readiness *telemetry.Readiness
	db        *db.DB
	kek       tink.AEAD
	runs      *activities.Runs
	agents    []string
	migrate   bool
	// embedder and memoryPolicy say what this worker remembers with.
	embedder     string
	memoryPolicy string

	interceptors []interceptor.WorkerInterceptor
}

// Run serves until ctx ends, and then finishes or hands back what is in flight
// within the shutdown grace. It returns nil after an orderly end. PostgreSQL and
// Temporal need not be up: Run waits for them, and says so in the log and at
// /readyz.
//
// Settings that cannot be used are a *SetupError; no work was taken then.
func Run(ctx context.Context, options Options) error {
	settings, err := loadSettings(options)
	if err != nil {
		return err
	}
	log, err := newLog(settings, options)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }()

	kek, err := settings.KeyEncryption()
	if err != nil {
		return &SetupError{err}
	}
	database, err := openDatabase(ctx, settings, kek)
	if err != nil {
		return &SetupError{err}
	}
	defer closeDatabase(database)
	wiring, err := wire(options, settings, database, log)
	if err != nil {
		return &SetupError{err}
	}
	runs, err := activities.New(activities.Config{
		Store: wiring.store, Policies: wiring.policies, Approvals: wiring.approvals, Models: wiring.models, Tools: wiring.tools, Definitions: wiring.definitions,
		Memory: wiring.memory, MemoryPolicy: wiring.policy, Embedders: wiring.embedders,
		Limits: activities.Limits(settings.Limits), Log: log.Named("activities"), ShutdownGrace: settings.ShutdownGrace,
	})
	if err != nil {
		return &SetupError{err}
	}
	metrics, err := telemetry.NewMetrics()
	if err != nil {
		return &SetupError{err}
	}
	readiness := telemetry.NewReadiness(checkDatabase, checkTemporal, checkPolling)
	if err := metrics.Register(readiness); err != nil {
		return &SetupError{err}
	}
	h := &host{
		settings: settings, log: log, metrics: metrics, readiness: readiness,
		db: database, kek: kek, runs: runs, agents: wiring.definitions.Names(), migrate: options.Migrate,
		embedder: describe(wiring.embedders[0]), memoryPolicy: wiring.policy.Version(),
		interceptors: options.Interceptors,
	}
	return h.run(ctx)
}

// Migrate brings the database schema up to this program's version, encrypts the
// content that older versions stored as it was, and returns.
func Migrate(ctx context.Context, options Options) error {
	settings, err := loadSettings(options)
	if err != nil {
		return err
	}
	log, err := newLog(settings, options)
	if err != nil {
		return err
	}
	kek, err := settings.KeyEncryption()
	if err != nil {
		return &SetupError{err}
	}
	if err := migrate(ctx, settings.Database.URL, kek); err != nil {
		return err
	}
	log.Info("the database schema is up to date", zap.Int64("version", db.SchemaVersion()))
	return nil
}

func migrate(ctx context.Context, url string, kek tink.AEAD) error {
	if err := db.Migrate(ctx, url); err != nil {
		return err
	}
	return db.SealPlain(ctx, url, kek)
}

// SetupError is a setting, definition or tool that cannot be used. Its text says
// what to change.
type SetupError struct{ Err error }

// Error returns the cause's text.
func (e *SetupError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SetupError) Unwrap() error { return e.Err }

func loadSettings(options Options) (config.Config, error) {
	settings, err := config.Load(config.Source{File: options.ConfigFile})
	if err == nil {
		err = settings.RequireDatabase()
	}
	if err != nil {
		return config.Config{}, &SetupError{err}
	}
	return settings, nil
}

func newLog(settings config.Config, options Options) (*zap.Logger, error) {
	out := options.Log
	if out == nil {
		out = os.Stderr
	}
	log, err := telemetry.NewLogger(settings.Log.Level, settings.Log.Format, out)
	if err != nil {
		return nil, &SetupError{err}
	}
	return log, nil
}

func openDatabase(ctx context.Context, settings config.Config, kek tink.AEAD) (*db.DB, error) {
	return db.Open(context.WithoutCancel(ctx), settings.Database.URL, db.Options{MaxConns: settings.Database.MaxConns, KeyEncryption: kek})
}

// closeDatabase waits a moment for transactions in flight. One that hangs is
// undone by the server when the process is gone.
func closeDatabase(database *db.DB) {
	closed := make(chan struct{})
	go func() { defer close(closed); database.Close() }()
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
}

func (h *host) run(ctx context.Context) error {
	server, err := h.serveHealth()
	if err != nil {
		return &SetupError{err}
	}
	defer func() {
		if server == nil {
			return
		}
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Close(closing)
	}()
	h.announce(server)

	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	usable := make(chan struct{})
	go h.watchDatabase(watching, usable)

	err = h.serve(ctx, server.failures(), usable)
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		h.log.Info("stopped before work began")
		return nil
	case err != nil:
		return err
	}
	h.log.Info("stopped")
	return nil
}

// healthServer is a telemetry.Server, or nil when http.address is off.
type healthServer struct{ *telemetry.Server }

func (s *healthServer) failures() <-chan error {
	if s == nil {
		return nil
	}
	return s.Failed()
}

func (h *host) serveHealth() (*healthServer, error) {
	if h.settings.HTTP.Address == config.Off {
		return nil, nil
	}
	server, err := telemetry.Serve(h.settings.HTTP.Address, telemetry.Handler(h.readiness, h.metrics))
	if err != nil {
		return nil, err
	}
	return &healthServer{server}, nil
}

// announce says what this process is. The settings are redacted.
func (h *host) announce(server *healthServer) {
	redacted := h.settings.Redacted()
	fields := []zap.Field{
		zap.String("identity", identity()), zap.String("task_queue", redacted.TaskQueue),
		zap.String("database", redacted.Database.URL), zap.String("temporal", redacted.Temporal.Address),
		zap.String("namespace", redacted.Temporal.Namespace), zap.Bool("tls", redacted.Temporal.TLS),
		zap.Strings("agents", h.agents), zap.Duration("shutdown_grace", redacted.ShutdownGrace),
		zap.String("embedder", h.embedder), zap.String("memory_policy", h.memoryPolicy),
	}
	if redacted.File != "" {
		fields = append(fields, zap.String("config_file", redacted.File))
	}
	if redacted.Model != "" {
		fields = append(fields, zap.String("model", redacted.Model))
	}
	if redacted.Approval.Key != "" {
		h.log.Warn("FAIRLEAD_APPROVAL_KEY is set in this worker's environment: a worker needs the public keys alone, and one that was taken over could confirm its own writes")
	}
	if server != nil {
		fields = append(fields, zap.String("health", fmt.Sprintf("http://%s/readyz", server.Addr())))
	}
	h.log.Info("worker starting", fields...)
}

// identity is what the Temporal Web UI shows for this process.
func identity() string {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown-host"
	}
	return fmt.Sprintf("%s/%d", name, os.Getpid())
}
