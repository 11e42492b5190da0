package patient

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/examples/opspilot/services"
)

const (
	maxBodyBytes      = 16 << 10
	maxReferenceBytes = 400
)

// How a payment that cannot be made is answered.
const (
	statusPoolTimeout = http.StatusServiceUnavailable
	statusBankTimeout = http.StatusGatewayTimeout
	statusBankError   = http.StatusBadGateway
	// statusClientGone is seen by nobody.
	statusClientGone = http.StatusRequestTimeout
)

// server is the payment-api itself.
type server struct {
	record      services.Record
	leak        bool
	bankTimeout time.Duration
	pool        *pool
	log         *slog.Logger

	latencies recent

	mu       sync.Mutex
	requests services.Requests
}

// payment is the body of POST /pay.
type payment struct {
	OrderID     string `json:"order_id"`
	AmountCents int64  `json:"amount_cents"`
	// Reference is the customer's own text for the bank statement: it reaches
	// the log as it was written, whatever it says.
	Reference string `json:"reference"`
}

var orderPattern = regexp.MustCompile(`^[A-Za-z0-9-]{1,40}$`)

func (p payment) validate() error {
	switch {
	case !orderPattern.MatchString(p.OrderID):
		return errors.New("order_id must be 1 to 40 letters, digits or -")
	case p.AmountCents <= 0:
		return errors.New("amount_cents must be positive")
	case len(p.Reference) > maxReferenceBytes || !utf8.ValidString(p.Reference):
		return errors.New("reference must be at most 400 bytes of UTF-8")
	}
	return nil
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /pay", s.servePay)
	mux.HandleFunc("GET "+services.HealthPath, s.serveHealth)
	mux.HandleFunc("GET "+services.StatusPath, s.serveStatus)
	return mux
}

func (s *server) servePay(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	s.count(func(n *services.Requests) { n.Total++; n.InFlight++ })
	status, body := s.pay(w, r, begun)
	s.latencies.add(time.Since(begun))
	s.count(func(n *services.Requests) {
		n.InFlight--
		switch status {
		case http.StatusOK:
			n.Succeeded++
			return
		case statusPoolTimeout:
			n.PoolTimeouts++
		case statusBankTimeout:
			n.BankTimeouts++
		}
		n.Failed++
	})
	reply(w, status, body)
}

func (s *server) count(change func(*services.Requests)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.requests)
}

func (s *server) pay(w http.ResponseWriter, r *http.Request, begun time.Time) (status int, body any) {
	var p payment
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&p)
	if err == nil {
		err = p.validate()
	}
	if err != nil {
		s.log.Info("payment refused", "error", "invalid request")
		return http.StatusBadRequest, failure{"invalid_request", err.Error()}
	}
	log := s.log.With("order_id", p.OrderID)
	if p.Reference != "" {
		log = log.With("reference", p.Reference)
	}

	err = s.charge(r.Context(), log, p)
	millis := time.Since(begun).Milliseconds()
	switch {
	case err == nil:
		log.Info("payment captured", "amount_cents", p.AmountCents, "latency_ms", millis, "pool_in_use", s.pool.inUse(), "pool_size", s.pool.size)
		return http.StatusOK, map[string]string{"order_id": p.OrderID, "status": "captured"}
	case errors.Is(err, errPoolTimeout):
		log.Error("payment failed: no connection to the bank is free", "error", err.Error(), "waited_ms", millis, "pool_in_use", s.pool.inUse(), "pool_size", s.pool.size)
		return statusPoolTimeout, failure{"pool_timeout", "no connection to the bank is free"}
	case errors.Is(err, errBankTimeout):
		log.Warn("bank did not answer in time", "error", err.Error(), "timeout_ms", s.bankTimeout.Milliseconds(), "pool_in_use", s.pool.inUse(), "pool_size", s.pool.size)
		return statusBankTimeout, failure{"bank_timeout", "the bank did not answer in time"}
	case errors.Is(err, context.Canceled):
		log.Info("payment abandoned by the client", "latency_ms", millis)
		return statusClientGone, failure{"abandoned", "the client went away"}
	default:
		log.Error("payment failed", "error", "the bank refused or the connection broke", "pool_in_use", s.pool.inUse(), "pool_size", s.pool.size)
		return statusBankError, failure{"bank_error", "the bank refused"}
	}
}

// charge takes a connection, charges, and gives the connection back: except,
// with the leak, on the one path that nobody tested.
func (s *server) charge(request context.Context, log *slog.Logger, p payment) error {
	conn, err := s.pool.acquire(request, acquireTimeout)
	if err != nil {
		return err
	}
	if used := s.pool.inUse(); used*4 >= s.pool.size*3 {
		log.Warn("connection pool nearly exhausted", "pool_in_use", used, "pool_size", s.pool.size)
	}
	err = conn.charge(p.OrderID, p.AmountCents, s.bankTimeout)
	if errors.Is(err, errBankTimeout) && s.leak {
		return err
	}
	if err != nil {
		return errors.Join(err, s.pool.replace(conn))
	}
	s.pool.release(conn)
	return nil
}

func (s *server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if s.pool.inUse() == s.pool.size {
		reply(w, http.StatusServiceUnavailable, services.Health{Status: services.HealthDegraded, Reason: services.ReasonPoolExhausted})
		return
	}
	reply(w, http.StatusOK, services.Health{Status: services.HealthOK})
}

func (s *server) serveStatus(w http.ResponseWriter, _ *http.Request) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	s.mu.Lock()
	requests := s.requests
	s.mu.Unlock()
	reply(w, http.StatusOK, services.Status{
		Name: s.record.Name, Environment: s.record.Environment, PID: s.record.PID,
		StartedAt: s.record.StartedAt, UptimeSeconds: time.Since(s.record.StartedAt).Seconds(),
		Goroutines: runtime.NumGoroutine(), HeapBytes: memory.HeapAlloc,
		Pool: s.pool.status(), Requests: requests, Latency: percentiles(s.latencies.all()),
	})
}

func percentiles(latencies []time.Duration) services.Latency {
	if len(latencies) == 0 {
		return services.Latency{}
	}
	slices.Sort(latencies)
	last := len(latencies) - 1
	return services.Latency{
		Samples:   len(latencies),
		P50Millis: latencies[last*50/100].Milliseconds(),
		P95Millis: latencies[last*95/100].Milliseconds(),
		MaxMillis: latencies[last].Milliseconds(),
	}
}

// failure is the body of an unsuccessful answer.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"code":"internal"}`)
	}
	w.WriteHeader(status)
	// Nobody is left to tell when the client has gone.
	_, _ = w.Write(append(text, '\n'))
}
