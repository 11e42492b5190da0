package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/log"

	"github.com/fairlead/fairlead/internal/telemetry"
)

const canary = "canary-7f3a"

func TestTemporalLoggerWithholdsContent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	zap, err := telemetry.NewLogger("debug", "json", &out)
	if err != nil {
		t.Fatal(err)
	}
	logger := telemetry.TemporalLogger(zap)
	with := logger.(log.WithLogger).With("WorkflowID", "agent-run-1", "Memo", canary)
	with.Error("Activity error.",
		"Input", canary, "Result", []byte(canary), "PanicError", canary, "Payload", map[string]string{"a": canary},
		"details", struct{ Text string }{canary}, "message", canary, "args", []any{canary}, "NewKey", errors.New(canary),
		"Attempt", 3, "Duration", 2*time.Second, "Error", errors.New("database unavailable"), 17, canary, "dangling")
	with.Debug("d", "x", canary)
	with.Info("i", "x", canary)
	with.Warn("w", "x", canary)

	text := out.String()
	if strings.Contains(text, canary) {
		t.Errorf("content reached the log:\n%s", text)
	}
	if lines := strings.Count(text, "\n"); lines != 4 {
		t.Errorf("got %d lines, want 4:\n%s", lines, text)
	}
	var entry map[string]any
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&entry); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"WorkflowID": "agent-run-1", "Attempt": 3.0, "Duration": "2s", "Error": "database unavailable",
		"Input": "(withheld)", "logger": "temporal", "level": "error", "msg": "Activity error.",
	} {
		if entry[key] != want {
			t.Errorf("%s is %v, want %v", key, entry[key], want)
		}
	}
}

func TestLostConnectionIsNotRepeated(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	zap, err := telemetry.NewLogger("info", "json", &out)
	if err != nil {
		t.Fatal(err)
	}
	logger := telemetry.TemporalLogger(zap)
	logger.Warn("Failed to poll for task.", "Error", serviceerror.NewUnavailable("connection refused"))
	if out.Len() != 0 {
		t.Errorf("logged: %s", out.String())
	}
	logger.Warn("Failed to poll for task.", "Error", serviceerror.NewPermissionDenied("no", ""))
	if !strings.Contains(out.String(), "Failed to poll") {
		t.Error("another failure is not logged")
	}
}

func TestLogFormats(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"auto": `"msg":"hello"`, "json": `"msg":"hello"`, "console": "INFO\thello"} {
		var out bytes.Buffer
		logger, err := telemetry.NewLogger("info", format, &out)
		if err != nil {
			t.Fatal(err)
		}
		logger.Info("hello")
		logger.Debug("too low")
		if !strings.Contains(out.String(), want) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: %q", format, out.String())
		}
	}
	if _, err := telemetry.NewLogger("info", "xml", io.Discard); err == nil {
		t.Error("format xml was accepted")
	}
	if _, err := telemetry.NewLogger("loud", "json", io.Discard); err == nil {
		t.Error("level loud was accepted")
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	metrics, err := telemetry.NewMetrics()
	if err != nil {
		t.Fatal(err)
	}
	readiness := telemetry.NewReadiness("database", "temporal")
	if err := metrics.Register(readiness); err != nil {
		t.Fatal(err)
	}
	handler := telemetry.Handler(readiness, metrics)
	expect := func(code int, want telemetry.Report) {
		t.Helper()
		response := get(handler, "/readyz")
		var got telemetry.Report
		if err := json.Unmarshal(response.Body.Bytes(), &got); err != nil {
			t.Fatalf("%v in %q", err, response.Body)
		}
		if response.Code != code || got.Ready != want.Ready || got.Stopping != want.Stopping {
			t.Errorf("got %d %s, want %d %+v", response.Code, response.Body, code, want)
		}
		for name, check := range want.Checks {
			if got.Checks[name] != check {
				t.Errorf("%s is %+v, want %+v", name, got.Checks[name], check)
			}
		}
		if health := get(handler, "/healthz"); health.Code != http.StatusOK {
			t.Errorf("/healthz gives %d: the process is alive", health.Code)
		}
	}

	expect(503, telemetry.Report{Checks: map[string]telemetry.Check{"database": {Reason: "not checked yet"}}})
	if !readiness.Fail("database", "down") || readiness.Fail("database", "down") {
		t.Error("the first failure is news, the same one again is not")
	}
	readiness.Pass("temporal")
	expect(503, telemetry.Report{Checks: map[string]telemetry.Check{"database": {Reason: "down"}, "temporal": {OK: true}}})
	if !readiness.Pass("database") || readiness.Pass("database") {
		t.Error("recovery is news once")
	}
	expect(200, telemetry.Report{Ready: true})
	if text := get(handler, "/metrics").Body.String(); !strings.Contains(text, `fairlead_check_up{check="database"} 1`) {
		t.Errorf("no gauge for the check:\n%s", text)
	}
	readiness.Stop()
	expect(503, telemetry.Report{Stopping: true})
}

func TestMetricsKeepLabelsFew(t *testing.T) {
	t.Parallel()
	metrics, err := telemetry.NewMetrics()
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]string{"workflow_type": "AgentRun", "tenant": canary, "workflow_id": canary, "run_id": canary}
	handler := metrics.Temporal().WithTags(tags)
	handler.Counter("temporal_workflow_completed").Inc(2)
	handler.Timer("temporal_request_latency").Record(30 * time.Millisecond)
	handler.Gauge("temporal_num_pollers").Update(4)
	text := get(telemetry.Handler(telemetry.NewReadiness(), metrics), "/metrics").Body.String()
	for _, want := range []string{
		`temporal_workflow_completed_total{workflow_type="AgentRun"} 2`,
		`temporal_request_latency_seconds_bucket{workflow_type="AgentRun",le="0.05"} 1`,
		`temporal_request_latency_seconds_bucket{workflow_type="AgentRun",le="0.025"} 0`,
		`temporal_num_pollers{workflow_type="AgentRun"} 4`,
		"go_goroutines ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, canary) {
		t.Error("a label that identifies somebody was exported")
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	server, err := telemetry.Serve("127.0.0.1:0", http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := telemetry.Serve(server.Addr(), http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), "FAIRLEAD_HTTP_ADDRESS") {
		t.Errorf("a taken port: %v", err)
	}
	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func get(handler http.Handler, path string) *httptest.ResponseRecorder {
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
	return response
}
