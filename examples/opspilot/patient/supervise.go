package patient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/services"
)

// SuperviseConfig says which service a supervisor owns. Service and Binary are
// required.
type SuperviseConfig struct {
	// Service is how the service runs, in each of its lives. Its OnReady is
	// called after every start, its MaxAge ends the supervisor as well, and its
	// ControlAddress and Supervisor are set by the supervisor.
	Service Config
	// Binary is the payment-api program.
	Binary string
	// ControlAddress is the loopback host:port for requests to restart.
	ControlAddress string // 127.0.0.1:0
	// Output receives what the service prints; nil discards it.
	Output *os.File
}

// Supervise runs the service as a process of its own until ctx ends, and
// restarts it when it is asked to (services.RestartPath). It returns nil when
// ctx ended or the service ended by itself without an error; a service that
// crashes, or does not come back from a restart, is an error. In every case the
// service has ended and left the registry when it returns. If the supervisor is
// killed, the service notices and ends by itself.
//
// Restarts are recorded in a file in the registry's directory, before they
// begin and when they are done, so that a supervisor that is started again knows
// them. A restart that it finds begun and not done is done from its point of
// view: what a restart is to bring about, the end of one process and another one
// that serves, has happened as soon as its own service runs.
func Supervise(ctx context.Context, config SuperviseConfig) (err error) {
	s, err := newSupervisor(config)
	if err != nil {
		return fmt.Errorf("supervise: %w", err)
	}
	defer func() { err = errors.Join(err, s.close()) }()
	ctx, cancel := context.WithTimeout(ctx, s.config.Service.MaxAge)
	defer cancel()
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("supervise: %w", err)
	}
	if err := s.settleBegun(); err != nil {
		return fmt.Errorf("supervise: %w", err)
	}
	control := s.serveControl()
	defer control()
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("supervise: %w", err)
	}
	return nil
}

// supervisor owns one service. Its loop (run) alone starts and stops processes,
// so that restarts are serialized; the control endpoint talks to the loop.
type supervisor struct {
	config   SuperviseConfig
	registry *services.Registry
	journal  *restarts
	listener net.Listener

	service *program
	// current is the life that serves; nil before the first.
	current atomic.Pointer[services.Record]

	requests chan restartRequest
	// ended is closed when the loop takes no more requests.
	ended chan struct{}
}

func newSupervisor(config SuperviseConfig) (*supervisor, error) {
	if config.ControlAddress == "" {
		config.ControlAddress = "127.0.0.1:0"
	}
	if err := config.Service.fill(); err != nil {
		return nil, err
	}
	control, err := netip.ParseAddrPort(config.ControlAddress)
	switch {
	case config.Binary == "":
		return nil, errors.New("binary is missing")
	case !services.ValidName(config.Service.Name) || !services.ValidName(config.Service.Environment):
		return nil, errors.New("name and environment must be lower-case letters, digits and -")
	case err != nil || !control.Addr().IsLoopback():
		return nil, errors.New("control address is not a loopback host:port")
	}
	registry, err := services.Open(config.Service.RegistryDir)
	if err != nil {
		return nil, err
	}
	id := services.ID(config.Service.Name, config.Service.Environment)
	journal, err := openRestarts(filepath.Join(config.Service.RegistryDir, id+".restarts.jsonl"))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", config.ControlAddress)
	if err != nil {
		return nil, errors.Join(err, journal.close())
	}
	return &supervisor{
		config: config, registry: registry, journal: journal, listener: listener,
		requests: make(chan restartRequest), ended: make(chan struct{}),
	}, nil
}

func (s *supervisor) close() error {
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return errors.Join(err, s.journal.close())
	}
	return s.journal.close()
}

// run answers requests until ctx or the service ends.
func (s *supervisor) run(ctx context.Context) error {
	defer close(s.ended)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.service.exited:
			if s.service.exitErr != nil {
				return fmt.Errorf("the service ended: %w", s.service.exitErr)
			}
			return nil
		case r := <-s.requests:
			answer, err := s.restart(ctx, r)
			r.answer <- answer
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// start starts the service and returns when it is registered and answers.
func (s *supervisor) start(ctx context.Context) error {
	arguments := append(s.config.Service.arguments(), "--supervised-by", s.listener.Addr().String())
	service, err := startProgram(s.config.Binary, arguments, s.config.Output, true)
	if err != nil {
		return fmt.Errorf("start the service: %w", err)
	}
	s.service = service
	record, err := s.awaitReady(ctx)
	if err != nil {
		return fmt.Errorf("start the service: %w", err)
	}
	s.current.Store(&record)
	if s.config.Service.OnReady != nil {
		s.config.Service.OnReady(record)
	}
	return nil
}

func (s *supervisor) awaitReady(ctx context.Context) (services.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client := newClient()
	defer client.CloseIdleConnections()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	environment := s.config.Service.Environment
	for {
		record, err := s.registry.Get(environment, services.ID(s.config.Service.Name, environment))
		if err == nil && record.PID == s.service.pid() {
			if status, err := statusOf(ctx, client, record); err == nil && status.PID == record.PID {
				return record, nil
			}
		}
		select {
		case <-tick.C:
		case <-s.service.exited:
			return services.Record{}, fmt.Errorf("it ended early: %w", errors.Join(s.service.exitErr, ctx.Err()))
		case <-ctx.Done():
			return services.Record{}, fmt.Errorf("it does not answer: %w", ctx.Err())
		}
	}
}

// settleBegun records the restarts that an earlier supervisor began. Its
// process is gone, and that of start serves.
func (s *supervisor) settleBegun() error {
	for _, r := range s.journal.begun() {
		if settled, done := s.settle(r); done {
			if err := s.journal.record(settled); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle says whether a restart that is begun has happened: it has if another
// process than the one of its FromVersion serves.
func (s *supervisor) settle(r services.Restart) (settled services.Restart, done bool) {
	current := s.current.Load()
	if r.State == services.RestartBegun && current.Version() != r.FromVersion {
		r.State, r.ToVersion, r.RestartedAt = services.RestartDone, current.Version(), current.StartedAt
	}
	return r, r.State == services.RestartDone
}

// end stops the service and takes it off the registry.
func (s *supervisor) end() error {
	if s.service == nil {
		return nil
	}
	// A service that ended before has been reported.
	if !s.service.hasExited() {
		if err := s.service.stop(stopTimeout); err != nil {
			return fmt.Errorf("stop the service: %w", err)
		}
	}
	environment := s.config.Service.Environment
	record, err := s.registry.Get(environment, services.ID(s.config.Service.Name, environment))
	if errors.Is(err, services.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if record.ControlAddress != s.listener.Addr().String() {
		return nil // somebody else's
	}
	return s.registry.Remove(record)
}

// serveControl serves the control endpoint until the returned function is
// called, which waits for open answers.
func (s *supervisor) serveControl() (stop func()) {
	server := &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: time.Second, ReadTimeout: 2 * time.Second,
		WriteTimeout: stopTimeout + startTimeout + 5*time.Second, IdleTimeout: 10 * time.Second,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(s.listener) // ends with ErrServerClosed, or with the listener
	}()
	return func() {
		grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
		<-served
	}
}
