package patient

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/examples/opspilot/services"
)

func key(digit string) string { return strings.Repeat(digit, 64) }

// restart asks the service's supervisor for a restart.
func restart(t *testing.T, r services.Record, key, version string) (int, services.Restart, string) {
	t.Helper()
	return control(t, r, http.MethodPost, services.RestartPath, func(request *http.Request) {
		request.Header.Set(services.KeyHeader, key)
		request.Header.Set(services.VersionHeader, services.EntityTag(version))
	})
}

func find(t *testing.T, r services.Record, key string) (int, services.Restart, string) {
	t.Helper()
	return control(t, r, http.MethodGet, services.RestartsPath+key, func(*http.Request) {})
}

// control returns status, record and problem code of one request.
func control(t *testing.T, r services.Record, method, path string, change func(*http.Request)) (int, services.Restart, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.ControlAddress+path, nil)
	require.NoError(t, err)
	request.Close = true
	change(request)
	client := &http.Client{Timeout: 25 * time.Second}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var restart services.Restart
	var problem services.Problem
	require.NoError(t, json.Unmarshal(body, &restart), string(body))
	require.NoError(t, json.Unmarshal(body, &problem))
	return response.StatusCode, restart, problem.Code
}

func current(t *testing.T, p *Patient) services.Record {
	t.Helper()
	r, err := p.Current()
	require.NoError(t, err)
	return r
}

func TestArgumentsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for _, want := range []Config{
		{Name: "ledger-api", Environment: "staging", RegistryDir: "/r", LogPath: "/l", Leak: false},
		{
			Name: "payment-api", Environment: "production", Address: "127.0.0.1:99", RegistryDir: "/a b", LogPath: "/l", PoolSize: 3, Leak: true,
			BankTimeout: time.Second, IncidentUntil: time.Date(2026, 1, 31, 8, 0, 0, 123456789, time.UTC), IncidentFile: "/i",
			TrafficPerSecond: 7, TrafficFor: 9 * time.Second, MaxAge: time.Minute,
		},
	} {
		var got Config
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		got.Flags(flags)
		require.NoError(t, flags.Parse(want.arguments()))
		require.Zero(t, flags.NArg())
		require.NoError(t, want.fill())
		if want.TrafficFor == 0 {
			want.TrafficFor = 30 * time.Second // the default of the command line
		}
		require.Equal(t, want, got)
	}
}

// A restart is another process with the same identity, it heals, and each key
// has one effect.
func TestRestartHealsOnce(t *testing.T) {
	t.Parallel()
	p := start(t, StartConfig{Binary: payments(t), Dir: t.TempDir()})
	before := p.Service
	require.Equal(t, 503, payOnce(t, before))

	status, done, _ := restart(t, before, key("a"), before.Version())
	require.Equal(t, 200, status)
	after := current(t, p)
	require.Equal(t, services.Restart{
		Key: key("a"), State: services.RestartDone, FromVersion: before.Version(), ToVersion: after.Version(), RestartedAt: after.StartedAt,
	}, done)
	require.True(t, after.StartedAt.After(before.StartedAt))
	require.NotEqual(t, before.PID, after.PID)
	require.Equal(t, before.ID, after.ID)
	require.Equal(t, before.ControlAddress, after.ControlAddress)
	requireGone(t, before.PID)

	// The bank has recovered, so the leak does not begin again, traffic or not.
	require.Equal(t, []int{200, 200, 200, 200, 200, 200, 200, 200, 200, 200}, payTimes(t, after, 10))
	now, err := p.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, after.PID, now.PID)
	require.Zero(t, now.Pool.LeakedConnections)
	require.Zero(t, now.Requests.Failed)
	require.GreaterOrEqual(t, now.Requests.Succeeded, int64(10))

	for name, c := range map[string]struct {
		key, version string
		status       int
		code         string
	}{
		"same key again":           {key("a"), before.Version(), 200, ""},
		"same key, other version":  {key("a"), after.Version(), 409, services.CodeKeyUsed},
		"other key, old version":   {key("b"), before.Version(), 412, services.CodeVersionChanged},
		"no key":                   {"", after.Version(), 400, services.CodeMalformed},
		"a key of another form":    {strings.Repeat("A", 64), after.Version(), 400, services.CodeMalformed},
		"no version":               {key("c"), "", 400, services.CodeMalformed},
		"two versions in one":      {key("c"), after.Version() + `", "` + before.Version(), 400, services.CodeMalformed},
		"a version that never was": {key("c"), "2026-01-31T08:00:00Z", 412, services.CodeVersionChanged},
	} {
		status, again, code := restart(t, before, c.key, c.version)
		require.Equal(t, c.status, status, name)
		require.Equal(t, c.code, code, name)
		if status == 200 {
			require.Equal(t, done, again, name)
		}
	}
	require.Equal(t, after, current(t, p), "nothing was restarted again")

	status, found, _ := find(t, after, key("a"))
	require.Equal(t, 200, status)
	require.Equal(t, done, found)
	for _, refused := range []string{key("b"), key("c")} {
		status, _, code := find(t, after, refused)
		require.Equal(t, 404, status)
		require.Equal(t, services.CodeUnknownKey, code)
	}
	status, _, _ = control(t, after, http.MethodGet, services.RestartsPath+key("a"), func(r *http.Request) { r.Host = "example.org:80" })
	require.Equal(t, 403, status)

	require.NoError(t, p.Stop())
	for _, pid := range []int{p.PID(), before.PID, after.PID} {
		requireGone(t, pid)
	}
	_, err = p.Current()
	require.ErrorIs(t, err, services.ErrNotFound)
}

// Of many requests for one version one restarts; of many with one key as well.
func TestRestartsAreSerialized(t *testing.T) {
	t.Parallel()
	p := start(t, StartConfig{Binary: payments(t), Dir: t.TempDir(), Healthy: true})
	type outcome struct {
		status int
		to     string
	}
	ask := func(keys ...string) (outcomes []outcome) {
		version := current(t, p).Version()
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, k := range keys {
			all.Go(func() {
				status, done, _ := restart(t, p.Service, k, version)
				mu.Lock()
				defer mu.Unlock()
				outcomes = append(outcomes, outcome{status, done.ToVersion})
			})
		}
		all.Wait()
		return outcomes
	}
	restarted, stale := 0, 0
	for _, o := range ask(key("1"), key("2"), key("3"), key("4")) {
		switch o.status {
		case 200:
			restarted++
		case 412:
			stale++
		}
	}
	require.Equal(t, [2]int{1, 3}, [2]int{restarted, stale})

	outcomes := ask(key("5"), key("5"), key("5"), key("5"))
	for _, o := range outcomes {
		require.Equal(t, outcome{200, current(t, p).Version()}, o)
	}
}

// The supervisor is killed in the middle of a restart. The one that follows it
// knows of the restart, and does not do it again.
func TestCrashBetweenBegunAndDone(t *testing.T) {
	t.Parallel()
	config := StartConfig{Binary: payments(t), Dir: t.TempDir(), Healthy: true}
	p := start(t, config)
	before := p.Service

	// A payment that never comes to its end makes the old process slow to stop.
	slow, err := net.Dial("tcp", before.Address)
	require.NoError(t, err)
	defer slow.Close()
	_, err = io.WriteString(slow, "POST /pay HTTP/1.1\r\nHost: payment\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	awaitInFlight(t, before)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+before.ControlAddress+services.RestartPath, nil)
	require.NoError(t, err)
	request.Header.Set(services.KeyHeader, key("a"))
	request.Header.Set(services.VersionHeader, services.EntityTag(before.Version()))
	answered := make(chan error, 1)
	go func() {
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		if err == nil {
			response.Body.Close()
		}
		answered <- err
	}()
	require.Eventually(t, func() bool {
		status, r, _ := find(t, before, key("a"))
		return status == 202 && r.State == services.RestartBegun && r.FromVersion == before.Version() && r.ToVersion == ""
	}, 5*time.Second, time.Millisecond, "the restart was not seen under way")
	require.NoError(t, syscall.Kill(p.PID(), syscall.SIGKILL))
	require.Error(t, <-answered, "the caller does not learn what happened")
	requireGone(t, before.PID)

	second := start(t, config)
	status, found, _ := find(t, second.Service, key("a"))
	require.Equal(t, 200, status)
	require.Equal(t, services.Restart{
		Key: key("a"), State: services.RestartDone, FromVersion: before.Version(),
		ToVersion: second.Service.Version(), RestartedAt: second.Service.StartedAt,
	}, found)
	status, again, _ := restart(t, second.Service, key("a"), before.Version())
	require.Equal(t, 200, status)
	require.Equal(t, found, again)
	require.Equal(t, second.Service, current(t, second), "nothing was restarted again")

	// It is recorded, not concluded anew: a third one says the same.
	require.NoError(t, second.Stop())
	third := start(t, config)
	_, found, _ = find(t, third.Service, key("a"))
	require.Equal(t, again, found)
}

func awaitInFlight(t *testing.T, r services.Record) {
	t.Helper()
	client := newClient()
	defer client.CloseIdleConnections()
	require.Eventually(t, func() bool {
		status, err := statusOf(t.Context(), client, r)
		return err == nil && status.Requests.InFlight > 0
	}, 5*time.Second, 5*time.Millisecond)
}

// A killed supervisor leaves nothing behind, a killed service no supervisor.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	orphaned := start(t, StartConfig{Binary: payments(t), Dir: t.TempDir(), Healthy: true})
	require.NoError(t, syscall.Kill(orphaned.PID(), syscall.SIGKILL))
	requireGone(t, orphaned.Service.PID)
	_, err := orphaned.Current()
	require.ErrorIs(t, err, services.ErrNotFound)

	crashed := start(t, StartConfig{Binary: payments(t), Dir: t.TempDir(), Healthy: true})
	require.NoError(t, syscall.Kill(crashed.Service.PID, syscall.SIGKILL))
	<-crashed.program.exited
	require.Error(t, crashed.program.exitErr)
	_, err = crashed.Current()
	require.ErrorIs(t, err, services.ErrNotFound)
}

// supervise runs a supervisor in this process.
func supervise(t *testing.T, config SuperviseConfig) (services.Record, <-chan error) {
	t.Helper()
	ready := make(chan services.Record, 10)
	config.Service.OnReady = func(r services.Record) { ready <- r }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ended <- Supervise(ctx, config)
	}()
	t.Cleanup(func() { cancel(); <-stopped })
	select {
	case r := <-ready:
		return r, ended
	case err := <-ended:
		t.Fatalf("supervise ended early: %v", err)
		return services.Record{}, nil
	}
}

// A service that does not come back ends its supervisor, and the restart stays
// begun: it is not known to be done.
func TestRestartThatFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "once")
	text := "#!/bin/sh\nmkdir \"" + dir + "/begun\" || exit 7\nexec \"" + payments(t) + "\" \"$@\"\n"
	require.NoError(t, os.WriteFile(script, []byte(text), 0o700))
	config := SuperviseConfig{Binary: script, Service: Config{
		Name: "payment-api", Environment: "test", RegistryDir: filepath.Join(dir, "services"), LogPath: filepath.Join(dir, "log"),
	}}
	r, ended := supervise(t, config)
	status, _, code := restart(t, r, key("a"), r.Version())
	require.Equal(t, 500, status)
	require.Equal(t, services.CodeRestartFailed, code)
	require.ErrorContains(t, <-ended, "exit status 7")
	journal, err := os.ReadFile(filepath.Join(dir, "services", "payment-api.test.restarts.jsonl"))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(journal), "\n"))
	require.Contains(t, string(journal), `"state":"begun"`)
	requireGone(t, r.PID)
}

// Who has gone by the time of the turn gets no restart.
func TestRestartForACallerThatHasGone(t *testing.T) {
	t.Parallel()
	journal, err := openRestarts(filepath.Join(t.TempDir(), "journal"))
	require.NoError(t, err)
	defer journal.close()
	s := &supervisor{journal: journal}
	s.current.Store(&services.Record{StartedAt: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	a, err := s.restart(t.Context(), restartRequest{caller: gone, key: key("a"), version: "2026-01-31T08:00:00Z"})
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, services.CodeNotAccepted, a.body.(services.Problem).Code)
	_, known := journal.find(key("a"))
	require.False(t, known)
}

func TestSuperviseRefusesBadConfig(t *testing.T) {
	t.Parallel()
	good := SuperviseConfig{Binary: payments(t), Service: Config{
		Name: "payment-api", Environment: "test", RegistryDir: t.TempDir(), LogPath: filepath.Join(t.TempDir(), "log"), MaxAge: 50 * time.Millisecond,
	}}
	require.NoError(t, Supervise(t.Context(), good))
	held, err := openRestarts(filepath.Join(good.Service.RegistryDir, "payment-api.test.restarts.jsonl"))
	require.NoError(t, err)
	require.ErrorContains(t, Supervise(t.Context(), good), "another process holds")
	require.NoError(t, held.close())
	for name, change := range map[string]func(*SuperviseConfig){
		"public address": func(c *SuperviseConfig) { c.ControlAddress = "0.0.0.0:0" },
		"host name":      func(c *SuperviseConfig) { c.ControlAddress = "localhost:0" },
		"no binary":      func(c *SuperviseConfig) { c.Binary = "" },
		"path as name":   func(c *SuperviseConfig) { c.Service.Name = "../payment-api" },
		"no log":         func(c *SuperviseConfig) { c.Service.LogPath = "" },
		"no registry":    func(c *SuperviseConfig) { c.Service.RegistryDir = "" },
		"no program":     func(c *SuperviseConfig) { c.Binary, c.Service.MaxAge = "/nonexistent", time.Minute },
	} {
		config := good
		change(&config)
		require.Error(t, Supervise(t.Context(), config), name)
	}
}
