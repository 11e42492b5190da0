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
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/services"
)

// StartConfig says which service to start as a process of its own. Binary and
// Dir are required; other zero values take the defaults written beside each
// field.
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
	// Incident is how long the bank is unreliable, counted from Start.
	Incident time.Duration // 10 s
	// TrafficFor is how long the service pays for itself.
	TrafficFor time.Duration // 30 s
	MaxAge     time.Duration // 15 min
}

const (
	trafficPerSecond = 40
	startTimeout     = 15 * time.Second
	stopTimeout      = 5 * time.Second
	pollInterval     = 20 * time.Millisecond
)

// RegistryDir is where services that were started with Dir dir are registered.
func RegistryDir(dir string) string { return filepath.Join(dir, "services") }

// Patient is a running payment-api process.
type Patient struct {
	// Service is how the process registered itself.
	Service services.Record
	// RegistryDir is the service registry that the agent's tools are given.
	RegistryDir string

	process *exec.Cmd
	output  *os.File
	exited  chan struct{}
	exitErr error // written before exited is closed
}

// Start runs the program and returns when the service is truly in the state
// that was asked for. For a sick one: every connection has leaked, a payment is
// answered with 503, and the log has an ERROR line. For a healthy one: it is
// healthy and has taken a payment. It gives up when ctx ends or after 15 s, and
// then leaves no process behind. Later ends of ctx do not stop the service:
// Stop does.
func Start(ctx context.Context, config StartConfig) (*Patient, error) {
	if config.Binary == "" || config.Dir == "" {
		return nil, errors.New("start patient: Binary and Dir are required")
	}
	config.fill()
	p, err := launch(config)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", config.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := p.await(ctx, config); err != nil {
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

func launch(config StartConfig) (*Patient, error) {
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return nil, err
	}
	logs := filepath.Join(dir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	id := services.ID(config.Name, config.Environment)
	output, err := os.Create(filepath.Join(logs, id+".out"))
	if err != nil {
		return nil, err
	}
	arguments := []string{
		"--addr", "127.0.0.1:0", "--name", config.Name, "--env", config.Environment,
		"--registry", RegistryDir(dir), "--log", filepath.Join(logs, id+".log"),
		"--traffic", strconv.Itoa(trafficPerSecond), "--traffic-for", config.TrafficFor.String(),
		"--max-age", config.MaxAge.String(), "--leak=" + strconv.FormatBool(!config.Healthy),
	}
	if !config.Healthy {
		arguments = append(arguments, "--incident-until", time.Now().Add(config.Incident).UTC().Format(time.RFC3339Nano))
	}
	p := &Patient{
		RegistryDir: RegistryDir(dir), process: exec.Command(config.Binary, arguments...),
		output: output, exited: make(chan struct{}),
	}
	p.process.Stdout, p.process.Stderr = output, output
	if err := p.process.Start(); err != nil {
		return nil, errors.Join(err, output.Close())
	}
	go func() {
		p.exitErr = errors.Join(p.process.Wait(), output.Close())
		close(p.exited)
	}()
	return p, nil
}

// await polls until the service is registered and in the wanted state.
func (p *Patient) await(ctx context.Context, config StartConfig) error {
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
			if err == nil && record.PID == p.process.Process.Pid {
				p.Service = record
			}
		}
		if p.Service.PID != 0 && ready(ctx, client) {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("the process ended early (%v); its output is in %s", p.exitErr, p.output.Name())
		case <-ctx.Done():
			return fmt.Errorf("it did not reach the wanted state: %w", ctx.Err())
		}
	}
}

func (p *Patient) sick(ctx context.Context, client *http.Client) bool {
	status, err := p.status(ctx, client)
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
	status, err := p.status(ctx, client)
	return err == nil && status.Requests.Succeeded > 0 && status.Pool.InUse < status.Pool.Size
}

func (p *Patient) status(ctx context.Context, client *http.Client) (services.Status, error) {
	var status services.Status
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Service.Address+services.StatusPath, nil)
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

// PID returns the process ID.
func (p *Patient) PID() int { return p.process.Process.Pid }

// Stop ends the process and waits for it: by SIGTERM, and by SIGKILL if that
// takes more than 5 s, which is an error. Stopping twice is allowed.
func (p *Patient) Stop() error {
	if err := p.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop patient: %w", err)
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		err := p.process.Process.Kill()
		<-p.exited
		return errors.Join(errors.New("stop patient: it did not end in time and was killed"), err)
	}
	if p.exitErr != nil {
		return fmt.Errorf("stop patient: %w", p.exitErr)
	}
	return nil
}
