package services

import "time"

// Every registered service answers two questions about itself on loopback.
const (
	// StatusPath returns a Status with HTTP 200.
	StatusPath = "/status"
	// HealthPath returns a Health, with HTTP 200 when Status is HealthOK and 503
	// otherwise.
	HealthPath = "/healthz"
)

// The closed set of health states.
const (
	HealthOK       = "ok"
	HealthDegraded = "degraded"
)

// ReasonPoolExhausted is the only reason for which the example service says
// that it is degraded.
const ReasonPoolExhausted = "connection_pool_exhausted"

// Health says whether a service can do its work.
type Health struct {
	Status string `json:"status"`
	// Reason is a stable code, empty when Status is HealthOK.
	Reason string `json:"reason,omitempty"`
}

// Status is what a service says about itself, numbers since its start.
type Status struct {
	Name          string    `json:"name"`
	Environment   string    `json:"environment"`
	PID           int       `json:"pid"`
	StartedAt     time.Time `json:"started_at"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	Goroutines    int       `json:"goroutines"`
	HeapBytes     uint64    `json:"heap_bytes"`
	Pool          Pool      `json:"pool"`
	Requests      Requests  `json:"requests"`
	Latency       Latency   `json:"latency"`
}

// Pool is the state of the pool of connections to the bank.
type Pool struct {
	Size  int `json:"size"`
	InUse int `json:"in_use"`
	// LeakedConnections are in use although the request that took them is over.
	LeakedConnections int `json:"leaked_connections"`
	// LeakedBytes are the buffers of those connections.
	LeakedBytes int64 `json:"leaked_bytes"`
	// LongestUseMillis is how long the oldest connection in use has been so.
	LongestUseMillis int64 `json:"longest_use_ms"`
}

// Requests counts payment requests. Succeeded + Failed + InFlight = Total.
type Requests struct {
	Total     int64 `json:"total"`
	InFlight  int64 `json:"in_flight"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	// PoolTimeouts and BankTimeouts are the failures by cause; requests that
	// were invalid count as Failed only.
	PoolTimeouts int64 `json:"pool_timeouts"`
	BankTimeouts int64 `json:"bank_timeouts"`
}

// Latency is over the most recent payment requests, in milliseconds.
type Latency struct {
	Samples   int   `json:"samples"`
	P50Millis int64 `json:"p50_ms"`
	P95Millis int64 `json:"p95_ms"`
	MaxMillis int64 `json:"max_ms"`
}
