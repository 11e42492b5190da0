package opspilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/tool"
)

const (
	// defaultRestartTimeout is longer than a supervisor takes at most: 5 s to
	// stop the old process and 15 s to start the new one.
	defaultRestartTimeout = 25 * time.Second
	// noticeMargin is how long the other side may take to notice that a caller
	// has gone. Until then it may still begin what it was asked for.
	noticeMargin = time.Second
	// reportMargin is what a tool has left to report how its request ended.
	reportMargin = 5 * time.Second
)

type restartServiceArguments struct {
	ServiceID string `json:"service_id"`
}

// restartedService is the answer of restart_service.
type restartedService struct {
	ServiceID string `json:"service_id"`
	// FromVersion and ToVersion are the starts of the old and the new process.
	FromVersion string    `json:"from_version"`
	ToVersion   string    `json:"to_version"`
	RestartedAt time.Time `json:"restarted_at"`
}

// restarter is what the parts of restart_service share.
type restarter struct {
	registry *services.Registry
	client   *http.Client
}

func newRestartService(config Config, registry *services.Registry) (tool.Tool, error) {
	timeout := config.RestartTimeout
	spec := tool.Spec{
		Name:    RestartService,
		Version: "1",
		Description: "Propose to restart a service. A person sees the proposal and confirms or declines it; only then, and only if the service has not " +
			"been restarted since, does it happen. Requests that are under way may be lost. Propose it with evidence that a restart helps. " +
			"The result says when the new process started; look at service_status and query_logs again afterwards.",
		Parameters: json.RawMessage(`{
			"type": "object",
			"properties": {
				"service_id": {"type": "string", "minLength": 1, "maxLength": 200, "description": "From find_service"}
			},
			"required": ["service_id"],
			"additionalProperties": false
		}`),
		Risk: tool.Write, Timeout: timeout + reportMargin, InFlight: noticeMargin,
		Source: "service-supervisor", Trust: tool.Authoritative,
		Facts: []tool.Fact{
			{Key: "last_restarted_service", Pointer: "/service_id"},
			{Key: "last_restart", Pointer: "/restarted_at"},
		},
		Verbs: []string{"restart", "reboot", "bounce", "重启", "重新启动"},
	}
	r := restarter{registry, loopbackClient(timeout)}
	return tool.NewWrite(spec, tool.WriteFuncs[restartServiceArguments]{
		Prepare: r.prepare, Execute: r.execute, Find: r.find,
		Authorize: func(ctx context.Context, call tool.Invocation, _ restartServiceArguments) error {
			return sight{registry: registry}.visible(ctx, call)
		},
	})
}

func (r restarter) prepare(_ context.Context, call tool.Invocation, a restartServiceArguments) (tool.Plan, error) {
	record, err := r.supervised(call, a)
	if err != nil {
		return tool.Plan{}, err
	}
	return tool.Plan{
		Resource: "service/" + record.ID,
		Version:  record.Version(),
		Summary: fmt.Sprintf("Restart the service %s in the environment %s.\n"+
			"Its process, which has been running since %s, ends, and a new one takes its place. "+
			"Requests that are under way and do not finish within a few seconds are lost, and until the new process is ready the service does not answer.",
			record.Name, record.Environment, clock(record.StartedAt)),
	}, nil
}

// supervised finds the service and refuses one that nobody can restart. Its
// errors are definite: nothing has been sent.
func (r restarter) supervised(call tool.Invocation, a restartServiceArguments) (services.Record, error) {
	record, err := sight{registry: r.registry}.lookUp(call, a.ServiceID)
	if err != nil {
		return record, err
	}
	if record.ControlAddress == "" {
		return record, &tool.Error{Code: agent.ToolUnavailable, Message: "this service runs without a supervisor and cannot be restarted from here"}
	}
	return record, nil
}

func (r restarter) execute(ctx context.Context, call tool.Invocation, a restartServiceArguments) (tool.Result, error) {
	record, err := r.supervised(call, a)
	if err != nil {
		return tool.Result{}, err
	}
	got, err := send(ctx, r.client, exchange{
		method: http.MethodPost, url: "http://" + record.ControlAddress + services.RestartPath,
		header: map[string]string{services.KeyHeader: call.Key, services.VersionHeader: services.EntityTag(call.Version)},
	})
	if errors.Is(err, errNotSent) {
		return tool.Result{}, &tool.Error{Code: agent.ToolUnavailable, Message: "the service's supervisor cannot be reached; nothing was restarted", Transient: true, Err: err}
	}
	if err != nil {
		return tool.Result{}, fmt.Errorf("restart: %w", err)
	}
	switch code := got.code(); {
	case got.status == http.StatusOK:
		return restarted(record, call, got)
	case got.status == http.StatusPreconditionFailed && code == services.CodeVersionChanged:
		return tool.Result{}, tool.ErrStale
	case got.status == http.StatusServiceUnavailable && code == services.CodeNotAccepted:
		return tool.Result{}, &tool.Error{Code: agent.ToolUnavailable, Message: "the service's supervisor takes no requests now; nothing was restarted", Transient: true}
	case got.status == http.StatusBadRequest && code == services.CodeMalformed:
		return tool.Result{}, &tool.Error{Code: agent.ToolFailed, Message: "the service's supervisor did not understand the request; nothing was restarted"}
	default:
		return tool.Result{}, fmt.Errorf("restart: %w", got.unexpected())
	}
}

func (r restarter) find(ctx context.Context, call tool.Invocation, a restartServiceArguments) (tool.Finding, error) {
	record, err := r.supervised(call, a)
	if err != nil {
		return tool.Finding{}, fmt.Errorf("look up the restart: %w", err)
	}
	got, err := send(ctx, r.client, exchange{method: http.MethodGet, url: "http://" + record.ControlAddress + services.RestartsPath + call.Key})
	if err != nil {
		return tool.Finding{}, fmt.Errorf("look up the restart: %w", err)
	}
	switch {
	case got.status == http.StatusOK:
		result, err := restarted(record, call, got)
		if err != nil {
			return tool.Finding{}, err
		}
		return tool.Finding{State: tool.FindPerformed, Result: result}, nil
	case got.status == http.StatusAccepted:
		return tool.Finding{State: tool.FindUnknown}, nil
	case got.status == http.StatusNotFound && got.code() == services.CodeUnknownKey:
		return tool.Finding{State: tool.FindAbsent}, nil
	default:
		return tool.Finding{}, fmt.Errorf("look up the restart: %w", got.unexpected())
	}
}

// restarted reads the supervisor's record. One that belongs to another restart
// says nothing about this one.
func restarted(record services.Record, call tool.Invocation, got reply) (tool.Result, error) {
	var done services.Restart
	if err := json.Unmarshal(got.body, &done); err != nil {
		return tool.Result{}, fmt.Errorf("read the restart: %w", err)
	}
	if done.State != services.RestartDone || done.Key != call.Key || done.FromVersion != call.Version || done.ToVersion == "" || done.RestartedAt.IsZero() {
		return tool.Result{}, errors.New("read the restart: it is not the one that was asked for")
	}
	return noted(restartedService{record.ID, done.FromVersion, done.ToVersion, done.RestartedAt},
		"restarted "+record.ID+" at "+clock(done.RestartedAt))
}
