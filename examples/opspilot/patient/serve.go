package patient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/services"
)

// Config says how one service runs. Name, Environment, RegistryDir and LogPath
// are required; other zero values take the defaults written beside each field.
type Config struct {
	Name        string
	Environment string
	// Address is a loopback host:port; port 0 means a free one.
	Address string // 127.0.0.1:0
	// RegistryDir is the service registry where the service enters itself.
	RegistryDir string
	LogPath     string
	// PoolSize is the number of connections to the bank.
	PoolSize int // 8
	// Leak puts the fault in: connections are lost when the bank times out.
	Leak bool
	// BankTimeout is how long the service waits for the bank's answer.
	BankTimeout time.Duration // 250 ms
	// IncidentUntil is when the bank becomes reliable; zero means that it is so
	// from the start. It is a moment and not a duration so that a restart does
	// not begin the incident anew.
	IncidentUntil time.Time
	// IncidentFile, if not empty, ends the incident earlier: as soon as there is
	// no such file. So the bank recovers at a moment that somebody else chooses.
	IncidentFile string
	// TrafficPerSecond and TrafficFor make the service pay for itself: that many
	// payments a second over HTTP, for so long. Zero means no traffic.
	TrafficPerSecond int
	TrafficFor       time.Duration
	// MaxAge is when the service ends by itself.
	MaxAge time.Duration // 15 min
	// ControlAddress is where the supervisor of this process listens. The entry
	// in the registry then outlives the process, because another life of the
	// service follows: the supervisor removes it. Empty means no supervisor.
	ControlAddress string
	// Supervisor, if set, ends the service when it has been read to its end:
	// nobody supervises the service any more. Serve may still be reading it when
	// it returns.
	Supervisor io.Reader
	// OnReady is called once the service is registered and answers.
	OnReady func(services.Record)
}

const (
	defaultPoolSize = 8
	defaultMaxAge   = 15 * time.Minute
	// defaultBankTimeout is long against the bank's 2 ms, so that a busy machine
	// does not look like a silent bank.
	defaultBankTimeout = 250 * time.Millisecond
	acquireTimeout     = 200 * time.Millisecond
	shutdownGrace      = 2 * time.Second
)

func (c *Config) fill() error {
	if c.Address == "" {
		c.Address = "127.0.0.1:0"
	}
	if c.PoolSize == 0 {
		c.PoolSize = defaultPoolSize
	}
	if c.BankTimeout == 0 {
		c.BankTimeout = defaultBankTimeout
	}
	if c.MaxAge == 0 {
		c.MaxAge = defaultMaxAge
	}
	switch {
	case c.LogPath == "":
		return errors.New("log path is missing")
	case c.PoolSize < 1 || c.PoolSize > 1000:
		return errors.New("pool size must be between 1 and 1000")
	case c.TrafficPerSecond < 0 || c.TrafficPerSecond > 1000:
		return errors.New("traffic must be between 0 and 1000 payments a second")
	case c.MaxAge < 0 || c.TrafficFor < 0 || c.BankTimeout < 0:
		return errors.New("durations must not be negative")
	}
	return nil
}

// Serve runs the service until ctx ends or MaxAge is over, then finishes open
// requests, leaves the registry and returns nil. Everything it started has
// ended when it returns.
func Serve(ctx context.Context, config Config) (err error) {
	started := time.Now().UTC().Truncate(time.Microsecond)
	if err := config.fill(); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, config.MaxAge)
	defer cancel()

	log, logFile, err := openLog(config.LogPath)
	if err != nil {
		return err
	}
	defer logFile.Close()
	listener, err := net.Listen("tcp", config.Address)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	defer listener.Close()
	bank, err := openBank(config.IncidentUntil, config.IncidentFile)
	if err != nil {
		return err
	}
	defer bank.close()
	pool, err := openPool(bank.listener.Addr().String(), config.PoolSize)
	if err != nil {
		return err
	}
	defer pool.close()
	record, registry, err := config.register(listener.Addr(), started)
	if err != nil {
		return err
	}
	var orphaned atomic.Bool
	defer func() {
		if config.ControlAddress == "" || orphaned.Load() {
			err = errors.Join(err, registry.Remove(record))
		}
	}()
	if config.Supervisor != nil {
		go func() {
			_, _ = io.Copy(io.Discard, config.Supervisor)
			orphaned.Store(true)
			cancel()
		}()
	}

	s := &server{
		record: record, leak: config.Leak, bankTimeout: config.BankTimeout, pool: pool,
		log: log.With("service", record.Name, "environment", record.Environment),
	}
	return s.run(ctx, listener, config)
}

// run serves until ctx ends.
func (s *server) run(ctx context.Context, listener net.Listener, config Config) error {
	httpServer := &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: time.Second, ReadTimeout: 2 * time.Second,
		WriteTimeout: 5 * time.Second, IdleTimeout: 10 * time.Second,
		MaxHeaderBytes: 16 << 10,
		// The server's own messages hold addresses, and the log is for a model to read.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- httpServer.Serve(listener) }()
	s.log.Info("service started", "pid", s.record.PID, "pool_size", config.PoolSize)
	if config.OnReady != nil {
		config.OnReady(s.record)
	}
	var traffic sync.WaitGroup
	if config.TrafficPerSecond > 0 && config.TrafficFor > 0 {
		traffic.Go(func() { pay(ctx, s.record.Address, config.TrafficPerSecond, config.TrafficFor) })
	}

	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if err = httpServer.Shutdown(grace); err != nil {
			err = errors.Join(err, httpServer.Close())
		}
		<-served
	}
	traffic.Wait()
	s.log.Info("service stopped", "uptime_seconds", time.Since(s.record.StartedAt).Seconds())
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func (c *Config) register(address net.Addr, started time.Time) (services.Record, *services.Registry, error) {
	logPath, err := filepath.Abs(c.LogPath)
	if err != nil {
		return services.Record{}, nil, fmt.Errorf("serve: %w", err)
	}
	registry, err := services.Open(c.RegistryDir)
	if err != nil {
		return services.Record{}, nil, err
	}
	record := services.Record{
		ID: services.ID(c.Name, c.Environment), Name: c.Name, Environment: c.Environment,
		Address: address.String(), PID: os.Getpid(), StartedAt: started, LogPath: logPath,
		ControlAddress: c.ControlAddress,
	}
	return record, registry, registry.Put(record)
}
