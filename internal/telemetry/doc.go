// Package telemetry makes what operators look at: the log, the metrics, and the
// health of a process. None of it carries message, memory or tool content, and
// no metric has a label for a tenant, user, conversation or run (OBS-2).
//
// It imports zap, OpenTelemetry with its Prometheus exporter, and the logger
// and metrics interfaces of the Temporal SDK. Only the mains and worker/host
// call it.
package telemetry
