package host

import (
	"slices"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/workflows"
)

// stopMargin is what the process takes after the grace to end in order.
const stopMargin = time.Second

// PollerOptions say how a Poller works. TaskQueue is required; zero limits of
// Concurrency are the SDK's defaults.
type PollerOptions struct {
	TaskQueue   string
	Concurrency config.Concurrency
	// Grace is how long a stopping Poller lets activities finish.
	Grace time.Duration
	// OnFatalError, if not nil, is told of an error that ends polling.
	OnFatalError func(error)
	// Interceptors wrap what the Poller executes, the first outermost.
	Interceptors []interceptor.WorkerInterceptor
}

// Poller takes work for runs from a task queue. It is the part of a host that
// tests and benchmarks use as well, without settings and health checks.
type Poller struct {
	worker   worker.Worker
	stopping chan struct{}
	grace    time.Duration
}

// NewPoller returns a Poller that is not started. Its Start may be called once:
// the SDK remembers the outcome.
func NewPoller(connection client.Client, runs *activities.Runs, o PollerOptions) *Poller {
	p := &Poller{stopping: make(chan struct{}), grace: o.Grace}
	p.worker = worker.New(connection, o.TaskQueue, worker.Options{
		Identity:                                identity(),
		MaxConcurrentActivityExecutionSize:      o.Concurrency.Activities,
		MaxConcurrentLocalActivityExecutionSize: o.Concurrency.LocalActivities,
		MaxConcurrentWorkflowTaskExecutionSize:  o.Concurrency.WorkflowTasks,
		MaxConcurrentActivityTaskPollers:        o.Concurrency.Pollers,
		MaxConcurrentWorkflowTaskPollers:        o.Concurrency.Pollers,
		// Activities beat every second and learn of cancellation by that.
		MaxHeartbeatThrottleInterval:     time.Second,
		DefaultHeartbeatThrottleInterval: time.Second,
		WorkerStopTimeout:                o.Grace,
		DisableRegistrationAliasing:      true,
		Interceptors:                     append(slices.Clone(o.Interceptors), &stopInterceptor{stopping: p.stopping}),
		OnFatalError:                     o.OnFatalError,
	})
	workflows.Register(p.worker)
	runs.Register(p.worker)
	return p
}

// Start begins to poll.
func (p *Poller) Start() error { return p.worker.Start() }

// Stop ends polling at once and gives what is in flight the grace. It reports
// whether nothing is in flight any more. The SDK stops its parts one after the
// other and gives each the whole grace, so the limit is kept here. Stop may be
// called once.
func (p *Poller) Stop() (finished bool) {
	close(p.stopping)
	done := make(chan struct{})
	go func() { defer close(done); p.worker.Stop() }()
	timer := time.NewTimer(p.grace + stopMargin)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
