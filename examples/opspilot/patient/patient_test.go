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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/examples/opspilot/services"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "patient-")
	if err != nil {
		panic(err)
	}
	programDir = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

var (
	programDir   string
	buildProgram = sync.OnceValue(func() error {
		output, err := exec.Command("go", "build", "-o", filepath.Join(programDir, "payment-api"), "../cmd/payment-api").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, output)
		}
		return nil
	})
)

// payments returns the path of payment-api, which is built once.
func payments(t *testing.T) string {
	t.Helper()
	require.NoError(t, buildProgram())
	return filepath.Join(programDir, "payment-api")
}

// start starts a service that ends with the test at the latest.
func start(t *testing.T, config StartConfig) *Patient {
	t.Helper()
	p, err := Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Stop() })
	return p
}

func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		// An orphan that has ended stays in the table where nobody asks for it.
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || bytes.Contains(stat, []byte(") Z "))
	}, 10*time.Second, 10*time.Millisecond, "process %d is still there", pid)
}

// serve runs a service in this process until the test ends.
func serve(t *testing.T, config Config) services.Record {
	t.Helper()
	dir := t.TempDir()
	config.Name, config.Environment = "payment-api", "production"
	config.RegistryDir, config.LogPath = filepath.Join(dir, "services"), filepath.Join(dir, "payment-api.log")
	ready := make(chan services.Record, 1)
	config.OnReady = func(r services.Record) { ready <- r }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, config) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	select {
	case r := <-ready:
		return r
	case err := <-ended:
		ended <- err
		t.Fatalf("serve ended early: %v", err)
		return services.Record{}
	}
}

// call makes one request and decodes the answer.
func call(t *testing.T, r services.Record, method, path, body string, into any) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.Address+path, strings.NewReader(body))
	require.NoError(t, err)
	client := newClient()
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into), string(text))
	return response.StatusCode
}

func payOnce(t *testing.T, r services.Record) int {
	t.Helper()
	var body any
	return call(t, r, http.MethodPost, "/pay", `{"order_id":"ord-1","amount_cents":100}`, &body)
}

func payTimes(t *testing.T, r services.Record, times int) []int {
	t.Helper()
	var codes []int
	for range times {
		codes = append(codes, payOnce(t, r))
	}
	return codes
}

func levels(t *testing.T, path string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	counts := map[string]int{}
	for line := range bytes.Lines(text) {
		var fields struct {
			Time  time.Time `json:"time"`
			Level string    `json:"level"`
			Msg   string    `json:"msg"`
		}
		require.NoError(t, json.Unmarshal(line, &fields), string(line))
		require.False(t, fields.Time.IsZero())
		require.NotEmpty(t, fields.Msg)
		counts[fields.Level]++
	}
	return counts
}

// The bank leaves every third charge unanswered: after nine payments a pool of
// three is gone, and the tenth payment fails for want of a connection.
func TestLeakExhaustsThePool(t *testing.T) {
	t.Parallel()
	r := serve(t, Config{PoolSize: 3, BankTimeout: 500 * time.Millisecond, Leak: true, IncidentUntil: time.Now().Add(time.Hour)})

	require.Equal(t, []int{200, 200, 504, 200, 200, 504, 200, 200, 504, 503}, payTimes(t, r, 10))

	var health services.Health
	require.Equal(t, 503, call(t, r, http.MethodGet, services.HealthPath, "", &health))
	require.Equal(t, services.Health{Status: services.HealthDegraded, Reason: services.ReasonPoolExhausted}, health)

	var status services.Status
	require.Equal(t, 200, call(t, r, http.MethodGet, services.StatusPath, "", &status))
	require.Equal(t, services.Requests{Total: 10, Succeeded: 6, Failed: 4, PoolTimeouts: 1, BankTimeouts: 3}, status.Requests)
	require.Equal(t, 3, status.Pool.Size)
	require.Equal(t, 3, status.Pool.InUse)
	require.Equal(t, 3, status.Pool.LeakedConnections)
	require.EqualValues(t, 3*64<<10, status.Pool.LeakedBytes)
	require.Equal(t, os.Getpid(), status.PID)
	require.True(t, status.StartedAt.Equal(r.StartedAt))
	require.Equal(t, 10, status.Latency.Samples)
	require.GreaterOrEqual(t, status.Latency.MaxMillis, acquireTimeout.Milliseconds())

	counts := levels(t, r.LogPath)
	require.Equal(t, 1, counts["ERROR"])
	require.GreaterOrEqual(t, counts["WARN"], 3+1) // three time-outs, at least one warning of the pool
	require.Equal(t, 1+6, counts["INFO"])          // started, captured
}

func TestWithoutLeakTheSameIncidentPasses(t *testing.T) {
	t.Parallel()
	r := serve(t, Config{PoolSize: 3, BankTimeout: 500 * time.Millisecond, IncidentUntil: time.Now().Add(time.Hour)})

	require.Equal(t, []int{200, 200, 504, 200, 200, 504, 200, 200, 504, 200}, payTimes(t, r, 10))

	var status services.Status
	call(t, r, http.MethodGet, services.StatusPath, "", &status)
	require.Zero(t, status.Pool.InUse)
	require.Zero(t, status.Pool.LeakedConnections)
	var health services.Health
	require.Equal(t, 200, call(t, r, http.MethodGet, services.HealthPath, "", &health))
	require.Equal(t, services.Health{Status: services.HealthOK}, health)
}

// The bank recovers when the file of its incident is gone.
func TestIncidentEndsWithItsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "incident")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	r := serve(t, Config{PoolSize: 3, BankTimeout: 500 * time.Millisecond, Leak: true, IncidentUntil: time.Now().Add(time.Hour), IncidentFile: file})
	require.Equal(t, []int{200, 200, 504}, payTimes(t, r, 3))
	require.NoError(t, os.Remove(file))
	require.Equal(t, []int{200, 200, 200}, payTimes(t, r, 3))
}

func TestWithoutIncidentNothingLeaks(t *testing.T) {
	t.Parallel()
	r := serve(t, Config{PoolSize: 1, Leak: true, BankTimeout: 10 * time.Second})
	require.Equal(t, []int{200, 200, 200, 200, 200, 200}, payTimes(t, r, 6))
}

func TestInvalidPaymentsAreRefused(t *testing.T) {
	t.Parallel()
	r := serve(t, Config{})
	for _, body := range []string{
		``, `[]`, `{"order_id":"a b","amount_cents":1}`, `{"order_id":"a","amount_cents":0}`,
		`{"order_id":"a","amount_cents":1,"unknown":1}`,
		`{"order_id":"a","amount_cents":1,"reference":"` + strings.Repeat("x", maxReferenceBytes+1) + `"}`,
		`{"order_id":"` + strings.Repeat("x", maxBodyBytes) + `","amount_cents":1}`,
	} {
		var answer failure
		require.Equal(t, 400, call(t, r, http.MethodPost, "/pay", body, &answer))
		require.Equal(t, "invalid_request", answer.Code)
	}
	var status services.Status
	call(t, r, http.MethodGet, services.StatusPath, "", &status)
	require.Equal(t, services.Requests{Total: 7, Failed: 7}, status.Requests)
}

func TestServiceEndsByItselfAndLeavesTheRegistry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	registry, err := services.Open(dir)
	require.NoError(t, err)
	var seen services.Record
	err = Serve(t.Context(), Config{
		Name: "payment-api", Environment: "test", RegistryDir: dir, LogPath: filepath.Join(dir, "log"), MaxAge: 50 * time.Millisecond,
		OnReady: func(r services.Record) { seen, _ = registry.Get("test", r.ID) },
	})
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), seen.PID)
	_, err = registry.Get("test", seen.ID)
	require.ErrorIs(t, err, services.ErrNotFound)
}

func TestServeRefusesBadConfig(t *testing.T) {
	t.Parallel()
	good := Config{Name: "payment-api", Environment: "test", RegistryDir: t.TempDir(), LogPath: filepath.Join(t.TempDir(), "log"), MaxAge: time.Second}
	for name, change := range map[string]func(*Config){
		"public address": func(c *Config) { c.Address = "0.0.0.0:0" },
		"name":           func(c *Config) { c.Name = "" },
		"log":            func(c *Config) { c.LogPath = "" },
		"registry":       func(c *Config) { c.RegistryDir = "" },
		"pool":           func(c *Config) { c.PoolSize = -1 },
		"traffic":        func(c *Config) { c.TrafficPerSecond = 5000 },
	} {
		config := good
		change(&config)
		require.Error(t, Serve(t.Context(), config), name)
	}
}

func TestProcessBreaksForRealAndStops(t *testing.T) {
	t.Parallel()
	binary := payments(t)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(canceled, StartConfig{Binary: binary, Dir: t.TempDir()})
	require.ErrorIs(t, err, context.Canceled)

	dir := t.TempDir()
	sick := start(t, StartConfig{Binary: binary, Dir: dir, Unsupervised: true})
	well := start(t, StartConfig{Binary: binary, Dir: dir, Name: "ledger-api", Healthy: true})

	registry, err := services.Open(RegistryDir(dir))
	require.NoError(t, err)
	listed, unreadable, err := registry.List("production")
	require.NoError(t, err)
	require.Zero(t, unreadable, "journals are no entries")
	require.Equal(t, []services.Record{well.Service, sick.Service}, listed)
	require.Equal(t, sick.PID(), sick.Service.PID)
	require.Empty(t, sick.Service.ControlAddress)
	require.NotEqual(t, well.PID(), well.Service.PID, "the supervisor is another process")
	require.NotEmpty(t, well.Service.ControlAddress)

	require.Equal(t, 503, payOnce(t, sick.Service))
	require.Equal(t, 200, payOnce(t, well.Service))
	require.Positive(t, levels(t, sick.Service.LogPath)["ERROR"])
	require.Zero(t, levels(t, well.Service.LogPath)["ERROR"])

	for _, p := range []*Patient{sick, well} {
		require.NoError(t, p.Stop())
		require.NoError(t, p.Stop())
		requireGone(t, p.PID())
		requireGone(t, p.Service.PID)
	}
	listed, _, err = registry.List("production")
	require.NoError(t, err)
	require.Empty(t, listed)
}

func TestStartReportsAProcessThatEndsEarly(t *testing.T) {
	t.Parallel()
	falsePath, err := exec.LookPath("false")
	require.NoError(t, err)
	_, err = Start(t.Context(), StartConfig{Binary: falsePath, Dir: t.TempDir()})
	require.ErrorContains(t, err, "ended early")
}
