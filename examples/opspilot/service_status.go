package opspilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/tool"
)

const (
	statusTimeout  = 2 * time.Second
	maxStatusBytes = 64 << 10
)

type serviceStatusArguments struct {
	ServiceID string `json:"service_id"`
}

// observedStatus is the answer of service_status: what the service said about
// itself just now, fields that we know and no others.
type observedStatus struct {
	ServiceID     string            `json:"service_id"`
	Name          string            `json:"name"`
	Environment   string            `json:"environment"`
	ObservedAt    time.Time         `json:"observed_at"`
	StartedAt     time.Time         `json:"started_at"`
	UptimeSeconds float64           `json:"uptime_seconds"`
	Health        services.Health   `json:"health"`
	Pool          services.Pool     `json:"pool"`
	Requests      services.Requests `json:"requests"`
	Latency       services.Latency  `json:"latency"`
	Goroutines    int               `json:"goroutines"`
	HeapBytes     uint64            `json:"heap_bytes"`
}

func newServiceStatus(config Config, registry *services.Registry) (tool.Tool, error) {
	spec := tool.Spec{
		Name:    ServiceStatus,
		Version: "1",
		Description: "Ask a running service for its health and its own numbers since its start: connection pool (size, in use, leaked), " +
			"payment requests by outcome, latency, goroutines, memory.",
		Parameters: json.RawMessage(`{
			"type": "object",
			"properties": {
				"service_id": {"type": "string", "minLength": 1, "maxLength": 200, "description": "From find_service"}
			},
			"required": ["service_id"],
			"additionalProperties": false
		}`),
		Risk: tool.Read, Timeout: 10 * time.Second, Source: "service-status", Trust: tool.Authoritative,
		Facts: serviceFacts(""),
	}
	client := loopbackClient(statusTimeout)
	seen := sight{registry, config.Visible}
	built, err := tool.NewRead(spec, func(ctx context.Context, call tool.Invocation, a serviceStatusArguments) (tool.Result, error) {
		record, err := seen.lookUp(call, a.ServiceID)
		if err != nil {
			return tool.Result{}, err
		}
		status, err := observe(ctx, client, record)
		if err != nil {
			return tool.Result{}, notObserved(err)
		}
		return noted(status, status.note())
	})
	return authorized{built, seen.visible}, err
}

func observe(ctx context.Context, client *http.Client, record services.Record) (observedStatus, error) {
	var status services.Status
	code, err := getJSON(ctx, client, record.Address, services.StatusPath, &status)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status: HTTP %d", code)
	}
	if err == nil && (status.Name != record.Name || status.Environment != record.Environment || status.PID != record.PID || !status.StartedAt.Equal(record.StartedAt)) {
		err = errors.New("another process answers at the service's address")
	}
	if err != nil {
		return observedStatus{}, err
	}
	var health services.Health
	code, err = getJSON(ctx, client, record.Address, services.HealthPath, &health)
	if err != nil {
		return observedStatus{}, err
	}
	wellFormed := slices.Contains([]string{"", services.ReasonPoolExhausted}, health.Reason) &&
		(code == http.StatusOK && health.Status == services.HealthOK || code == http.StatusServiceUnavailable && health.Status == services.HealthDegraded)
	if !wellFormed {
		return observedStatus{}, fmt.Errorf("health: HTTP %d does not fit its body", code)
	}
	return observedStatus{
		ServiceID: record.ID, Name: record.Name, Environment: record.Environment,
		ObservedAt: time.Now().UTC().Truncate(time.Millisecond), StartedAt: record.StartedAt,
		UptimeSeconds: status.UptimeSeconds, Health: health, Pool: status.Pool,
		Requests: status.Requests, Latency: status.Latency,
		Goroutines: status.Goroutines, HeapBytes: status.HeapBytes,
	}, nil
}

// note is the result in one line.
func (s observedStatus) note() string {
	note := fmt.Sprintf("%s, %d of %d connections in use", healthText(s), s.Pool.InUse, s.Pool.Size)
	if s.Pool.LeakedConnections > 0 {
		note += fmt.Sprintf(", %d leaked", s.Pool.LeakedConnections)
	}
	return note
}

func getJSON(ctx context.Context, client *http.Client, address, path string, into any) (code int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatusBytes+1))
	if err != nil {
		return 0, err
	}
	if len(body) > maxStatusBytes {
		return 0, errors.New("the answer is too long")
	}
	return response.StatusCode, json.Unmarshal(body, into)
}

// notObserved hides the cause, which holds the address, from the model.
func notObserved(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return &tool.Error{Code: agent.ToolTimeout, Message: "the service did not answer in time", Transient: true, Err: err}
	}
	return &tool.Error{Code: agent.ToolUnavailable, Message: "the service is registered but cannot be reached; it may have stopped, its log can still be read", Transient: true, Err: err}
}
