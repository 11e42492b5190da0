package host

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/internal/codec"
	"github.com/fairlead/fairlead/internal/telemetry"
)

// serve connects, polls until ctx ends or something breaks for good, and stops.
func (h *host) serve(ctx context.Context, broken <-chan error, usable <-chan struct{}) error {
	defer h.readiness.Stop()
	h.readiness.Fail(checkPolling, "waiting for the database and Temporal")
	connection, err := h.connect(ctx)
	if err != nil {
		return err
	}
	defer connection.Close()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	go h.watchTemporal(watching, connection)

	// Until the database was usable once, runs are better off in Temporal's
	// queue, where another worker may take them.
	select {
	case <-usable:
	case err := <-broken:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}

	fatal := make(chan error, 1)
	running, err := h.start(ctx, connection, fatal)
	if err != nil {
		return err
	}
	h.readiness.Pass(checkPolling)
	h.log.Info("polling for work")
	go h.keepMemory(watching, connection)

	var cause error
	select {
	case <-ctx.Done():
		h.log.Info("stopping: no new work is taken; what is in flight is finished or handed back", zap.Duration("grace", h.settings.ShutdownGrace))
	case cause = <-broken:
	case err := <-fatal:
		cause = fmt.Errorf("the worker cannot go on: %w", err)
	}
	h.readiness.Stop()
	began := time.Now()
	if running.Stop() {
		h.log.Info("nothing is in flight any more", zap.Duration("after", time.Since(began).Round(time.Millisecond)))
	} else {
		h.log.Warn("the grace is over and something is still in flight; Temporal gives it to another worker when its heartbeat fails")
	}
	return cause
}

// connect dials until Temporal answers.
func (h *host) connect(ctx context.Context) (client.Client, error) {
	options := h.settings.Temporal.Options()
	options.Identity = identity()
	options.Logger = telemetry.TemporalLogger(h.log)
	options.MetricsHandler = h.metrics.Temporal()
	options.DataConverter = codec.DataConverter(h.db)
	var retry backoff
	for {
		dialing, cancel := context.WithTimeout(ctx, probeTimeout)
		connection, err := client.DialContext(dialing, options)
		cancel()
		if err == nil {
			h.pass(checkTemporal)
			return connection, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		h.fail(checkTemporal, err)
		if !retry.wait(ctx) {
			return nil, ctx.Err()
		}
	}
}

// start makes a worker and starts it. A start that fails, because the namespace
// is missing or the server went away again, is tried anew: the SDK remembers the
// outcome of the first Start, so each try is a new worker.
func (h *host) start(ctx context.Context, connection client.Client, fatal chan<- error) (*Poller, error) {
	// The cache belongs to the process, and must be sized before a worker is.
	worker.SetStickyWorkflowCacheSize(h.settings.WorkflowCache)
	var retry backoff
	for {
		poller := NewPoller(connection, h.runs, PollerOptions{
			TaskQueue: h.settings.TaskQueue, Concurrency: h.settings.Concurrency, Grace: h.settings.ShutdownGrace,
			Interceptors: h.interceptors,
			OnFatalError: func(err error) {
				select {
				case fatal <- err:
				default:
				}
			},
		})
		err := checkSearchAttributes(ctx, connection, h.settings.Temporal.Namespace)
		if err == nil {
			err = poller.Start()
		}
		if err == nil {
			return poller, nil
		}
		h.fail(checkPolling, err)
		if !retry.wait(ctx) {
			return nil, ctx.Err()
		}
	}
}
