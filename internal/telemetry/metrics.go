package telemetry

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.temporal.io/sdk/client"
	temporalotel "go.temporal.io/sdk/contrib/opentelemetry"
)

// latencyBuckets are in seconds. A step of a run lies between a millisecond (a
// fast read) and minutes (a slow model).
var latencyBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}

// labels are the only ones that a metric may carry. Each takes few values: none
// grows with tenants, users, conversations or runs.
var labels = attribute.NewAllowKeysFilter(
	"namespace", "task_queue", "client_name", "worker_type", "workflow_type", "activity_type", "operation",
	"poller_type", "failure_reason", "status_code", "cause", "query_type", "signal_name",
)

// Metrics is the process's registry of metrics.
type Metrics struct {
	registry *prometheus.Registry
	provider *sdkmetric.MeterProvider
}

// NewMetrics returns a registry with the metrics of the Go runtime and of the
// process. Metrics are recorded through OpenTelemetry, as traces will be, and
// read by Prometheus.
func NewMetrics() (*Metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("set up metrics: %w", err)
	}
	views := []sdkmetric.View{sdkmetric.NewView(
		sdkmetric.Instrument{Kind: sdkmetric.InstrumentKindHistogram},
		sdkmetric.Stream{AttributeFilter: labels, Aggregation: sdkmetric.AggregationExplicitBucketHistogram{Boundaries: latencyBuckets}},
	)}
	for _, kind := range []sdkmetric.InstrumentKind{
		sdkmetric.InstrumentKindCounter, sdkmetric.InstrumentKindUpDownCounter, sdkmetric.InstrumentKindGauge,
	} {
		views = append(views, sdkmetric.NewView(sdkmetric.Instrument{Kind: kind}, sdkmetric.Stream{AttributeFilter: labels}))
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithView(views...))
	return &Metrics{registry: registry, provider: provider}, nil
}

// Temporal returns the handler that collects the Temporal SDK's metrics.
func (m *Metrics) Temporal() client.MetricsHandler {
	return temporalotel.NewMetricsHandler(temporalotel.MetricsHandlerOptions{
		Meter: m.provider.Meter("temporal-sdk-go"), UseMonotonicCounters: true,
		// A metric that cannot be recorded is no reason to stop working.
		OnError: func(error) {},
	})
}

// Register adds a collector of Prometheus's own kind.
func (m *Metrics) Register(collector prometheus.Collector) error {
	return m.registry.Register(collector)
}

// Handler serves the metrics in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
