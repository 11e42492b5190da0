package patient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/services"
)

// StartConfig says which service to start. Binary and Dir are required; other
// zero values take the defaults written beside each field.
type StartConfig struct {
	// Binary is the payment-api program, built from examples/opspilot/cmd/payment-api.
	Binary string
	// Dir receives the service registry (services/) and the logs (logs/).
	// Several services may share it.
	Dir         string
	Name        string // payment-api
	Environment string // production
	// Healthy starts a service without the leak and without an incident.
	Healthy bool
	// Unsupervised starts the service without a supervisor: it cannot be
	// restarted.
	Unsupervised bool
	// Incident is how long the bank is unreliable at most, counted from Start. It
	// recovers as soon as the service is sick, so that what fails from then on
	// is the service alone, and a restart mends it.
	Incident time.Duration // 10 s
	// TrafficFor is how long the service pays for itself, in each of its lives.
	TrafficFor time.Duration // 30 s
	MaxAge     time.Duration // 15 min
}

const (
	trafficPerSecond = 40
	startTimeout     = 15 * time.Second
	// stopTimeout is for a service, supervisorStopTimeout for a supervisor, which
	// has a service to stop.
	stopTimeout           = 5 * time.Second
	supervisorStopTimeout = 10 * time.Second
	pollInterval          = 20 * time.Millisecond
)

// RegistryDir is where services that were started with Dir dir are registered.
func RegistryDir(dir string) string { return filepath.Join(dir, "services") }

// Patient is a payment-api that runs in a process of its own, beneath a
// supervisor in another one unless it was started unsupervised.
type Patient struct {
	// Service is how the service registered itself when it was started. A restart
	// makes another life of it, see Current.
	Service services.Record
	// RegistryDir is the service registry that the agent's tools are given.
	RegistryDir string

	program *program
	output  string
}

// Start runs the program and returns when the service is truly in the state
// that was asked for. For a sick one: every connection has leaked, a payment is
// answered with 503, the log has an ERROR line, and the bank has recovered. For
// a healthy one: it is healthy and has taken a payment. It gives up when ctx
// ends or after 15 s, and then leaves no process behind. Later ends of ctx do
// not stop the service: Stop does.
func Start(ctx context.Context, config StartConfig) (*Patient, error) {
	if config.Binary == "" || config.Dir == "" {
		return nil, errors.New("start patient: Binary and Dir are required")
	}
	config.fill()
	started := time.Now()
	service, err := config.service()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", config.Name, err)
	}
	p, err := launch(config, service)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", config.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = p.await(ctx, config, started)
	if err == nil && service.IncidentFile != "" {
		err = os.Remove(service.IncidentFile)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", config.Name, err), p.Stop())
	}
	return p, nil
}

func (c *StartConfig) fill() {
	setDefault(&c.Name, "payment-api")
	setDefault(&c.Environment, "production")
	setDefault(&c.Incident, 10*time.Second)
	setDefault(&c.TrafficFor, 30*time.Second)
	setDefault(&c.MaxAge, defaultMaxAge)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// service returns the configuration of the service and makes the files that it
// needs.
func (c StartConfig) service() (Config, error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return Config{}, err
	}
	logs := filepath.Join(dir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return Config{}, err
	}
	id := services.ID(c.Name, c.Environment)
	service := Config{
		Name: c.Name, Environment: c.Environment, RegistryDir: RegistryDir(dir), LogPath: filepath.Join(logs, id+".log"),
		TrafficPerSecond: trafficPerSecond, TrafficFor: c.TrafficFor, MaxAge: c.MaxAge, Leak: !c.Healthy,
	}
	if !c.Healthy {
		service.IncidentUntil = time.Now().Add(c.Incident)
		service.IncidentFile = filepath.Join(logs, id+".incident")
		if err := os.WriteFile(service.IncidentFile, nil, 0o600); err != nil {
			return Config{}, err
		}
	}
	return service, nil
}

func launch(config StartConfig, service Config) (*Patient, error) {
	path := filepath.Join(filepath.Dir(service.LogPath), services.ID(service.Name, service.Environment)+".out")
	output, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the process keeps its own
	arguments := service.arguments()
	if !config.Unsupervised {
		arguments = append([]string{"supervise"}, arguments...)
	}
	program, err := startProgram(config.Binary, arguments, output, false)
	if err != nil {
		return nil, err
	}
	return &Patient{RegistryDir: service.RegistryDir, program: program, output: path}, nil
}

// await polls until the service has registered since it was started and is in
// the wanted state.
func (p *Patient) await(ctx context.Context, config StartConfig, started time.Time) error {
	registry, err := services.Open(p.RegistryDir)
	if err != nil {
		return err
	}
	client := newClient()
	defer client.CloseIdleConnections()
	ready := p.sick
	if config.Healthy {
		ready = p.healthy
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if p.Service.PID == 0 {
			record, err := registry.Get(config.Environment, services.ID(config.Name, config.Environment))
			if err == nil && record.StartedAt.After(started) {
				p.Service = record
			}
		}
		if p.Service.PID != 0 && ready(ctx, client) {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.program.exited:
			return fmt.Errorf("the process ended early (%v); its output is in %s", p.program.exitErr, p.output)
		case <-ctx.Done():
			return fmt.Errorf("it did not reach the wanted state: %w", ctx.Err())
		}
	}
}

func (p *Patient) sick(ctx context.Context, client *http.Client) bool {
	status, err := statusOf(ctx, client, p.Service)
	if err != nil || status.Pool.LeakedConnections < status.Pool.Size {
		return false
	}
	code, err := post(ctx, client, p.Service.Address, payment{OrderID: "ord-probe", AmountCents: 100})
	if err != nil || code != statusPoolTimeout {
		return false
	}
	log, err := os.ReadFile(p.Service.LogPath)
	return err == nil && bytes.Contains(log, []byte(`"level":"ERROR"`))
}

func (p *Patient) healthy(ctx context.Context, client *http.Client) bool {
	status, err := statusOf(ctx, client, p.Service)
	return err == nil && status.Requests.Succeeded > 0 && status.Pool.InUse < status.Pool.Size
}

// Current returns how the service is registered now: after a restart another
// process, another address and another version than Service.
func (p *Patient) Current() (services.Record, error) {
	registry, err := services.Open(p.RegistryDir)
	if err != nil {
		return services.Record{}, err
	}
	return registry.Get(p.Service.Environment, p.Service.ID)
}

// Status asks the service, in its present life, how it does.
func (p *Patient) Status(ctx context.Context) (services.Status, error) {
	record, err := p.Current()
	if err != nil {
		return services.Status{}, fmt.Errorf("status of the patient: %w", err)
	}
	client := newClient()
	defer client.CloseIdleConnections()
	status, err := statusOf(ctx, client, record)
	if err != nil {
		return services.Status{}, fmt.Errorf("status of the patient: %w", err)
	}
	return status, nil
}

func statusOf(ctx context.Context, client *http.Client, record services.Record) (services.Status, error) {
	var status services.Status
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+record.Address+services.StatusPath, nil)
	if err != nil {
		return status, err
	}
	response, err := client.Do(request)
	if err != nil {
		return status, err
	}
	defer response.Body.Close()
	err = json.NewDecoder(io.LimitReader(response.Body, 64<<10)).Decode(&status)
	return status, err
}

// PID is the process that Start started: the supervisor, or the service itself
// if that is unsupervised.
func (p *Patient) PID() int { return p.program.pid() }

// Stop ends the service and its supervisor and waits for them: by SIGTERM, and
// by SIGKILL if that takes more than 10 s, which is an error. Stopping twice is
// allowed.
func (p *Patient) Stop() error {
	if err := p.program.stop(supervisorStopTimeout); err != nil {
		return fmt.Errorf("stop patient: %w", err)
	}
	return nil
}
