package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Check is one thing that a process needs in order to work.
type Check struct {
	OK bool `json:"ok"`
	// Reason says what is missing; empty when OK.
	Reason string `json:"reason,omitempty"`
}

// Readiness says whether a process can do its work now. It is safe for
// concurrent use.
type Readiness struct {
	mu       sync.Mutex
	checks   map[string]Check
	stopping bool
}

// NewReadiness returns a Readiness whose checks all wait to be set.
func NewReadiness(names ...string) *Readiness {
	r := &Readiness{checks: make(map[string]Check, len(names))}
	for _, name := range names {
		r.checks[name] = Check{Reason: "not checked yet"}
	}
	return r
}

// Pass notes that a check holds; it reports whether that is news.
func (r *Readiness) Pass(name string) (changed bool) { return r.set(name, Check{OK: true}) }

// Fail notes that a check does not hold, and why; it reports whether the check
// held before or failed for another reason.
func (r *Readiness) Fail(name, reason string) (changed bool) {
	return r.set(name, Check{Reason: reason})
}

func (r *Readiness) set(name string, check Check) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.checks[name] != check
	r.checks[name] = check
	return changed
}

// Stop makes the process not ready for the rest of its life.
func (r *Readiness) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

// Report is the body of /readyz.
type Report struct {
	Ready    bool             `json:"ready"`
	Stopping bool             `json:"stopping,omitempty"`
	Checks   map[string]Check `json:"checks"`
}

// Report returns the state as of now.
func (r *Readiness) Report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := Report{Ready: !r.stopping, Stopping: r.stopping, Checks: make(map[string]Check, len(r.checks))}
	for name, check := range r.checks {
		report.Checks[name] = check
		report.Ready = report.Ready && check.OK
	}
	return report
}

var checkUp = prometheus.NewDesc("fairlead_check_up", "Whether what the process needs is there: 1 or 0.", []string{"check"}, nil)

// Describe implements prometheus.Collector.
func (r *Readiness) Describe(descs chan<- *prometheus.Desc) { descs <- checkUp }

// Collect implements prometheus.Collector.
func (r *Readiness) Collect(metrics chan<- prometheus.Metric) {
	for name, check := range r.Report().Checks {
		value := 0.0
		if check.OK {
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(checkUp, prometheus.GaugeValue, value, name)
	}
}

// Handler serves /healthz (the process is alive), /readyz (it can work: 200, or
// 503 and what is missing) and /metrics.
func Handler(readiness *Readiness, metrics *Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		report := readiness.Report()
		w.Header().Set("Content-Type", "application/json")
		if !report.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(report)
	})
	mux.Handle("GET /metrics", metrics.Handler())
	return mux
}

// Server serves a Handler.
type Server struct {
	http   *http.Server
	addr   net.Addr
	failed chan error
}

// Serve listens on address and serves handler until Close. It returns when the
// address is taken, so a port conflict is known before any work is done.
func Serve(address string, handler http.Handler) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve health and metrics: %w; choose another address with FAIRLEAD_HTTP_ADDRESS, or \"off\"", err)
	}
	s := &Server{
		http:   &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute},
		addr:   listener.Addr(),
		failed: make(chan error, 1),
	}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("serve health and metrics: %w", err)
		}
	}()
	return s, nil
}

// Addr is where the server listens, the port chosen by the system included.
func (s *Server) Addr() string { return s.addr.String() }

// Failed gives the error of a server that ended by itself.
func (s *Server) Failed() <-chan error { return s.failed }

// Close lets the requests in flight finish until ctx ends.
func (s *Server) Close(ctx context.Context) error { return s.http.Shutdown(ctx) }
