package tickets_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/examples/opspilot/tickets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const goodBody = `{"environment":"production","service_id":"payment-api.production","title":"Leak","details":"3 of 3","severity":"high","reporter":"ann"}`

func key(digit string) string { return strings.Repeat(digit, 64) }

// answer is what came back, or nothing.
type answer struct {
	status int
	ticket tickets.Ticket
	code   string
}

var client = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// request returns an error for an answer that did not come.
func request(t *testing.T, method, url, key, body string) (answer, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if key != "" {
		r.Header.Set(tickets.KeyHeader, key)
	}
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	got := answer{status: response.StatusCode}
	if len(text) > 0 {
		require.NoError(t, json.Unmarshal(text, &got.ticket), string(text))
		var problem struct{ Code string }
		require.NoError(t, json.Unmarshal(text, &problem))
		got.code = problem.Code
	}
	return got, nil
}

func open(t *testing.T, url, key, body string) (answer, error) {
	t.Helper()
	return request(t, http.MethodPost, url+tickets.TicketsPath, key, body)
}

func find(t *testing.T, url, key string) answer {
	t.Helper()
	got, err := request(t, http.MethodGet, url+tickets.ByKeyPath+key, "", "")
	require.NoError(t, err)
	return got
}

func serve(t *testing.T, path string) (*tickets.Service, string) {
	t.Helper()
	service, err := tickets.Open(path)
	require.NoError(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(func() {
		_ = service.Close()
		server.Close()
	})
	return service, server.URL
}

func TestOneTicketPerKey(t *testing.T) {
	t.Parallel()
	service, url := serve(t, "")
	first, err := open(t, url, key("a"), goodBody)
	require.NoError(t, err)
	require.Equal(t, 201, first.status)
	require.Equal(t, "T-1", first.ticket.ID)
	require.Equal(t, tickets.High, first.ticket.Severity)

	again, err := open(t, url, key("a"), goodBody)
	require.NoError(t, err)
	require.Equal(t, answer{200, first.ticket, ""}, again)

	other, err := open(t, url, key("a"), strings.Replace(goodBody, "Leak", "Other", 1))
	require.NoError(t, err)
	require.Equal(t, answer{409, tickets.Ticket{}, tickets.CodeKeyUsed}, other)

	second, err := open(t, url, key("b"), goodBody)
	require.NoError(t, err)
	require.Equal(t, "T-2", second.ticket.ID)

	require.Equal(t, answer{200, first.ticket, ""}, find(t, url, key("a")))
	require.Equal(t, answer{404, tickets.Ticket{}, tickets.CodeUnknownKey}, find(t, url, key("c")))
	require.Equal(t, map[string]int{key("a"): 1, key("b"): 1}, service.Effects())

	response, err := client.Get(url + tickets.TicketsPath)
	require.NoError(t, err)
	defer response.Body.Close()
	var listed struct{ Tickets []tickets.Ticket }
	require.NoError(t, json.NewDecoder(response.Body).Decode(&listed))
	require.Equal(t, []tickets.Ticket{first.ticket, second.ticket}, listed.Tickets)
}

func TestManyAtOnceOpenOne(t *testing.T) {
	t.Parallel()
	service, url := serve(t, filepath.Join(t.TempDir(), "tickets.jsonl"))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got, err := open(t, url, key("a"), goodBody); err != nil || got.ticket.ID != "T-1" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	all.Wait()
	require.Equal(t, map[string]int{key("a"): 1}, service.Effects())
}

func TestMalformedRequestsHaveNoEffect(t *testing.T) {
	t.Parallel()
	service, url := serve(t, "")
	service.FailOpens(tickets.FaultRefuse) // not used up by what is malformed
	for name, c := range map[string]struct{ key, body string }{
		"no key":        {"", goodBody},
		"short key":     {"abc", goodBody},
		"capitals":      {strings.Repeat("A", 64), goodBody},
		"no JSON":       {key("a"), "x"},
		"two values":    {key("a"), goodBody + goodBody},
		"unknown field": {key("a"), strings.Replace(goodBody, "{", `{"owner":"x",`, 1)},
		"no title":      {key("a"), strings.Replace(goodBody, "Leak", "", 1)},
		"severity":      {key("a"), strings.Replace(goodBody, "high", "urgent", 1)},
		"long details":  {key("a"), strings.Replace(goodBody, "3 of 3", strings.Repeat("x", tickets.MaxDetailsBytes+1), 1)},
		"long body":     {key("a"), strings.Repeat(" ", 1<<17) + goodBody},
	} {
		got, err := open(t, url, c.key, c.body)
		require.NoError(t, err, name)
		require.Equal(t, answer{400, tickets.Ticket{}, tickets.CodeMalformed}, got, name)
	}
	require.Empty(t, service.Tickets())
	got, err := open(t, url, key("a"), goodBody)
	require.NoError(t, err)
	require.Equal(t, answer{503, tickets.Ticket{}, tickets.CodeNotAccepted}, got)
	require.Empty(t, service.Tickets())
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for fault, effects := range map[tickets.Fault]int{
		tickets.FaultHangBefore: 0, tickets.FaultDropBefore: 0, tickets.FaultHangAfter: 1, tickets.FaultDropAfter: 1,
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			service, url := serve(t, "")
			service.FailOpens(tickets.FaultNone, fault)
			_, err := open(t, url, key("a"), goodBody)
			require.NoError(t, err)
			_, err = open(t, url, key("b"), goodBody)
			require.Error(t, err)
			require.Equal(t, effects, service.Effects()[key("b")])
			// It stays so: nothing is done late.
			got, err := open(t, url, key("c"), goodBody)
			require.NoError(t, err)
			require.Equal(t, 201, got.status)
			require.Equal(t, effects, service.Effects()[key("b")])

			service.FailLookUps(fault)
			_, err = request(t, http.MethodGet, url+tickets.ByKeyPath+key("a"), "", "")
			require.Error(t, err)
			require.Equal(t, 200, find(t, url, key("a")).status)
		})
	}
	service, _ := serve(t, "")
	require.Panics(t, func() { service.FailOpens("burns") })
}

// Serve and the program: the tickets outlive them, and faults can be asked for.
func TestTicketsSurviveAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "ticket-service"), filepath.Join(dir, "tickets.jsonl")
	output, err := exec.Command("go", "build", "-o", binary, "../cmd/ticket-service").CombinedOutput()
	require.NoError(t, err, string(output))
	run := func(arguments ...string) (url string, kill func(syscall.Signal) error) {
		process := exec.Command(binary, append([]string{"--addr", "127.0.0.1:0", "--file", file}, arguments...)...)
		stdout, err := process.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, process.Start())
		line, err := bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = process.Process.Kill()
			_ = process.Wait()
		})
		return strings.TrimSpace(line), func(signal syscall.Signal) error {
			require.NoError(t, process.Process.Signal(signal))
			return process.Wait()
		}
	}

	url, kill := run("--faults")
	got, err := request(t, http.MethodPost, url+tickets.FaultsPath, "", `{"opens":["hang_after"],"look_ups":["refuse"]}`)
	require.NoError(t, err)
	require.Equal(t, 204, got.status)
	_, err = open(t, url, key("a"), goodBody)
	require.Error(t, err)
	require.Equal(t, 503, find(t, url, key("a")).status)
	got, err = request(t, http.MethodPost, url+tickets.FaultsPath, "", `{"opens":["burns"]}`)
	require.NoError(t, err)
	require.Equal(t, 400, got.status)
	require.Error(t, kill(syscall.SIGKILL))

	url, kill = run()
	require.Equal(t, "T-1", find(t, url, key("a")).ticket.ID)
	got, err = open(t, url, key("a"), goodBody)
	require.NoError(t, err)
	require.Equal(t, 200, got.status)
	got, err = open(t, url, key("b"), goodBody)
	require.NoError(t, err)
	require.Equal(t, "T-2", got.ticket.ID)
	response, err := client.Post(url+tickets.FaultsPath, "application/json", bytes.NewReader([]byte(`{}`)))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 404, response.StatusCode, "faults are for tests that ask for them")
	require.NoError(t, kill(syscall.SIGTERM))
}

func TestServeEndsWhatHangs(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, tickets.Serve(t.Context(), tickets.Config{Address: "0.0.0.0:0"}), "loopback")
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- tickets.Serve(ctx, tickets.Config{Faults: true, OnReady: func(url string) { ready <- url }})
	}()
	url := <-ready
	_, err := request(t, http.MethodPost, url+tickets.FaultsPath, "", `{"opens":["hang_after"]}`)
	require.NoError(t, err)
	hangs := make(chan error, 1)
	go func() {
		_, err := open(t, url, key("a"), goodBody)
		hangs <- err
	}()
	require.Eventually(t, func() bool { return find(t, url, key("a")).status == 200 }, time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.Error(t, <-hangs)
}
