package opspilot_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/examples/opspilot/patient"
	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/tool"
	"github.com/fairlead/fairlead/tool/tooltest"
)

const restartArguments = `{"service_id":"payment-api.production"}`

type restarted struct {
	ServiceID   string    `json:"service_id"`
	FromVersion string    `json:"from_version"`
	ToVersion   string    `json:"to_version"`
	RestartedAt time.Time `json:"restarted_at"`
}

func TestRestartPlanSaysWhatWillHappen(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.put(t, "payment-api", "production", func(r *services.Record) { r.ControlAddress = "127.0.0.1:1" })
	plan, _ := w.write(t, "production", opspilot.RestartService, restartArguments, key("a"))
	require.Equal(t, tool.Plan{
		Resource: "service/payment-api.production",
		Version:  "2026-01-31T08:00:00Z",
		Summary: "Restart the service payment-api in the environment production.\n" +
			"Its process, which has been running since 2026-01-31T08:00:00.000Z, ends, and a new one takes its place. " +
			"Requests that are under way and do not finish within a few seconds are lost, and until the new process is ready the service does not answer.",
	}, plan)
}

func TestRestartIsPreparedForSupervisedServicesOfTheEnvironmentOnly(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.put(t, "payment-api", "production", func(r *services.Record) { r.ControlAddress = "127.0.0.1:1" })
	w.put(t, "ledger-api", "production", nil)
	require.Equal(t, agent.ToolForbidden, w.prepareFails(t, "staging", opspilot.RestartService, restartArguments).Code)
	require.Equal(t, agent.ToolForbidden, w.prepareFails(t, "production", opspilot.RestartService, `{"service_id":"absent-api.production"}`).Code)
	alone := w.prepareFails(t, "production", opspilot.RestartService, `{"service_id":"ledger-api.production"}`)
	require.Equal(t, agent.ToolUnavailable, alone.Code)
	require.False(t, alone.Transient)
	for _, arguments := range []string{`{}`, `{"service_id":""}`, `{"service_id":"payment-api.production","force":true}`} {
		require.Equal(t, agent.ToolInvalidArguments, w.prepareFails(t, "production", opspilot.RestartService, arguments).Code)
	}
}

// The tool must report before the registry gives up on it, and InFlight begins
// then.
func TestWritesReportInTime(t *testing.T) {
	t.Parallel()
	w := setupWith(t, opspilot.Config{TicketURL: "http://127.0.0.1:1", RestartTimeout: 3 * time.Second, TicketTimeout: time.Second})
	for name, timeout := range map[string]time.Duration{opspilot.RestartService: 3 * time.Second, opspilot.OpenTicket: time.Second} {
		spec, found := w.registry.Spec(name)
		require.True(t, found)
		require.Equal(t, tool.Write, spec.Risk)
		require.Greater(t, spec.Timeout, timeout)
		require.Positive(t, spec.InFlight)
		require.Equal(t, 1, spec.Attempts)
	}
}

func TestRestartServiceConforms(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.admit(t, patient.StartConfig{Healthy: true})
	lives := map[int]bool{}
	restarts := func() int {
		now, err := p.Current()
		require.NoError(t, err)
		lives[now.PID] = true
		return len(lives) - 1
	}
	sample := tool.Invocation{Actor: actor("production"), Arguments: json.RawMessage(restartArguments)}
	restarts()
	tooltest.Check(t, w.tool(t, opspilot.RestartService), sample)
	tooltest.CheckWrite(t, w.tool(t, opspilot.RestartService), sample, restarts)
	require.Equal(t, 1, restarts())
}

func TestRestartServiceRestartsOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.admit(t, patient.StartConfig{})
	_, call := w.write(t, "production", opspilot.RestartService, restartArguments, key("a"))
	require.Equal(t, p.Service.Version(), call.Version)
	finding, err := w.registry.Find(t.Context(), call)
	require.NoError(t, err)
	require.Equal(t, tool.FindAbsent, finding.State)

	result, err := w.registry.Commit(t.Context(), call)
	require.NoError(t, err)
	now, err := p.Current()
	require.NoError(t, err)
	require.NotEqual(t, p.Service.PID, now.PID)
	var got restarted
	require.NoError(t, json.Unmarshal(result.Content, &got))
	require.Equal(t, restarted{"payment-api.production", p.Service.Version(), now.Version(), now.StartedAt}, got)
	require.NotContains(t, string(result.Content), now.ControlAddress)
	require.Equal(t, "restarted payment-api.production at "+now.StartedAt.Format("2006-01-02T15:04:05.000Z"), result.Note)

	again, err := w.registry.Commit(t.Context(), call)
	require.NoError(t, err)
	require.Equal(t, result, again)
	finding, err = w.registry.Find(t.Context(), call)
	require.NoError(t, err)
	require.Equal(t, tool.Finding{State: tool.FindPerformed, Result: result}, finding)

	// Another write that was confirmed for the same process comes too late.
	call.Key = key("b")
	_, err = w.registry.Commit(t.Context(), call)
	require.ErrorIs(t, err, tool.ErrStale)
	finding, err = w.registry.Find(t.Context(), call)
	require.NoError(t, err)
	require.Equal(t, tool.FindAbsent, finding.State)

	// Nor is the same key good for another process.
	call.Key, call.Version = key("a"), now.Version()
	_, err = w.registry.Commit(t.Context(), call)
	require.ErrorIs(t, err, tool.ErrOutcomeUnknown)
	_, err = w.registry.Find(t.Context(), call)
	require.ErrorIs(t, err, tool.ErrOutcomeUnknown)

	last, err := p.Current()
	require.NoError(t, err)
	require.Equal(t, now, last, "one restart")
}

// What an answer proves about the restart, whoever gave it.
func TestRestartServiceTakesAnswersForWhatTheyProve(t *testing.T) {
	t.Parallel()
	type proof string
	const (
		performed proof = "performed"
		nothing   proof = "nothing happened"
		stale     proof = "stale"
		unknown   proof = "unknown"
	)
	done := func(key string) string {
		body, err := json.Marshal(services.Restart{
			Key: key, State: services.RestartDone, FromVersion: "2026-01-31T08:00:00Z", ToVersion: "2026-01-31T09:00:00Z",
			RestartedAt: time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC),
		})
		require.NoError(t, err)
		return string(body)
	}
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	reset := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc // nil: nobody listens
		commit  proof
		find    tool.FindState // FindUnknown with an error, if findErr
		findErr bool
	}{
		"done":                   {answer(200, done(key("a"))), performed, tool.FindPerformed, false},
		"done with another key":  {answer(200, done(key("b"))), unknown, tool.FindUnknown, true},
		"only begun":             {answer(200, `{"key":"`+key("a")+`","state":"begun","from_version":"2026-01-31T08:00:00Z"}`), unknown, tool.FindUnknown, true},
		"under way":              {answer(202, `{"key":"`+key("a")+`","state":"begun","from_version":"2026-01-31T08:00:00Z"}`), unknown, tool.FindUnknown, false},
		"no JSON":                {answer(200, "OK"), unknown, tool.FindUnknown, true},
		"version changed":        {answer(412, `{"code":"version_changed"}`), stale, tool.FindUnknown, true},
		"412 of another program": {answer(412, ``), unknown, tool.FindUnknown, true},
		"key used":               {answer(409, `{"code":"key_used"}`), unknown, tool.FindUnknown, true},
		"not accepted":           {answer(503, `{"code":"not_accepted"}`), nothing, tool.FindUnknown, true},
		"503 of another program": {answer(503, `try later`), unknown, tool.FindUnknown, true},
		"restart failed":         {answer(500, `{"code":"restart_failed"}`), unknown, tool.FindUnknown, true},
		"malformed":              {answer(400, `{"code":"malformed"}`), nothing, tool.FindUnknown, true},
		"unknown key":            {answer(404, `{"code":"unknown_key"}`), unknown, tool.FindAbsent, false},
		"404 of another program": {answer(404, `{"error":"not found"}`), unknown, tool.FindUnknown, true},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, unknown, tool.FindUnknown, true},
		"the connection breaks":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, unknown, tool.FindUnknown, true},
		"the connection is reset":  {reset, unknown, tool.FindUnknown, true},
		"no answer in time":        {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, unknown, tool.FindUnknown, true},
		"nobody listens":           {nil, nothing, tool.FindUnknown, true},
		"an answer without an end": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }, unknown, tool.FindUnknown, true},
		"half an answer, then silent": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "500")
			_, _ = w.Write([]byte("{"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, unknown, tool.FindUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupWith(t, opspilot.Config{RestartTimeout: 300 * time.Millisecond})
			address := "127.0.0.1:1"
			if c.handler != nil {
				server := httptest.NewServer(c.handler)
				t.Cleanup(server.Close)
				address = server.Listener.Addr().String()
			}
			w.put(t, "payment-api", "production", func(r *services.Record) { r.ControlAddress = address })
			_, call := w.write(t, "production", opspilot.RestartService, restartArguments, key("a"))

			_, err := w.registry.Commit(t.Context(), call)
			var shown *tool.Error
			switch c.commit {
			case performed:
				require.NoError(t, err)
			case nothing:
				require.True(t, errors.As(err, &shown), "%v", err)
				require.Contains(t, shown.Message, "nothing was restarted")
				require.NotContains(t, string(tool.ErrorEnvelope(shown)), address)
			case stale:
				require.ErrorIs(t, err, tool.ErrStale)
			case unknown:
				require.ErrorIs(t, err, tool.ErrOutcomeUnknown)
				require.False(t, errors.As(err, &shown), "%v", err)
			}
			finding, err := w.registry.Find(t.Context(), call)
			require.Equal(t, c.find, finding.State)
			require.Equal(t, c.findErr, err != nil, "%v", err)
		})
	}
}

// A service that has left the registry can neither be restarted nor looked up.
func TestRestartOfAServiceThatHasGone(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.put(t, "payment-api", "production", func(r *services.Record) { r.ControlAddress = "127.0.0.1:1" })
	_, call := w.write(t, "production", opspilot.RestartService, restartArguments, key("a"))
	registry, err := services.Open(w.dir + "/services")
	require.NoError(t, err)
	require.NoError(t, registry.Remove(r))
	_, err = w.registry.Commit(t.Context(), call)
	var shown *tool.Error
	require.True(t, errors.As(err, &shown), "%v", err)
	require.Equal(t, agent.ToolForbidden, shown.Code)
	_, err = w.registry.Find(t.Context(), call)
	require.ErrorIs(t, err, tool.ErrOutcomeUnknown)
}
