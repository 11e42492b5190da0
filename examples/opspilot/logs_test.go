package opspilot_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/examples/opspilot"
)

type logs struct {
	MatchedTotal     int            `json:"matched_total"`
	Returned         int            `json:"returned"`
	CountsByLevel    map[string]int `json:"counts_by_level"`
	FirstTime        string         `json:"first_time"`
	LastTime         string         `json:"last_time"`
	ScannedFromStart bool           `json:"scanned_from_start"`
	UnparsedLines    int            `json:"unparsed_lines"`
	Lines            []struct {
		Time      string `json:"time"`
		Level     string `json:"level"`
		Msg       string `json:"msg"`
		Order     string `json:"order_id"`
		Reference string `json:"reference"`
		Shortened bool   `json:"shortened"`
	} `json:"lines"`
}

func (l logs) messages() []string {
	messages := []string{}
	for _, line := range l.Lines {
		messages = append(messages, line.Msg)
	}
	return messages
}

// withLog registers a service whose log has that text.
func withLog(t *testing.T, text string) ward {
	t.Helper()
	w := setup(t)
	r := w.put(t, "payment-api", "production", nil)
	require.NoError(t, os.WriteFile(r.LogPath, []byte(text), 0o600))
	return w
}

const sampleLog = `{"time":"2026-01-31T08:00:00Z","level":"INFO","msg":"one"}
{"time":"2026-01-31T08:00:01.5Z","level":"WARN","msg":"two","detail":"Pool nearly full"}
{"time":"2026-01-31T16:00:02+08:00","level":"ERROR","msg":"three","order_id":"A"}
panic: not a record
{"time":"2026-01-31T08:00:03Z","level":"ERROR","msg":"four","order_id":"B"}
{"time":"2026-01-31T08:00:04Z","level":"FATAL","msg":"level of another kind"}
{"time":"yesterday","level":"ERROR","msg":"no time"}
{"time":"2026-01-31T08:00:04Z","level":"ERROR"}
{"time":"2026-01-31T08:00:04Z","level":"ERROR","msg":"two objects"} {}
["an","array"]
{"time":"2026-01-31T08:00:05Z","level":"ERROR","msg":"still being wri`

func TestQueryLogsFilters(t *testing.T) {
	t.Parallel()
	w := withLog(t, sampleLog)
	for name, c := range map[string]struct {
		arguments string
		messages  []string
		total     int
	}{
		"everything":            {``, []string{"one", "two", "three", "four"}, 4},
		"level":                 {`,"level":"ERROR"`, []string{"three", "four"}, 2},
		"absent level":          {`,"level":"DEBUG"`, []string{}, 0},
		"contains ignores case": {`,"contains":"POOL"`, []string{"two"}, 1},
		"contains field name":   {`,"contains":"order_id"`, []string{"three", "four"}, 2},
		"since is inclusive":    {`,"since":"2026-01-31T08:00:02Z"`, []string{"three", "four"}, 2},
		"until is exclusive":    {`,"until":"2026-01-31T08:00:02Z"`, []string{"one", "two"}, 2},
		"zones are compared":    {`,"since":"2026-01-31T16:00:01+08:00","until":"2026-01-31T08:00:03Z"`, []string{"two", "three"}, 2},
		"limit":                 {`,"limit":2`, []string{"one", "two"}, 4},
		"newest first":          {`,"limit":2,"newest_first":true`, []string{"four", "three"}, 4},
	} {
		got := succeed[logs](t, w, "production", opspilot.QueryLogs, `{"service_id":"payment-api.production"`+c.arguments+`}`)
		require.Equal(t, c.messages, got.messages(), name)
		require.Equal(t, c.total, got.MatchedTotal, name)
		require.Equal(t, len(c.messages), got.Returned, name)
		require.Equal(t, 6, got.UnparsedLines, name)
		require.True(t, got.ScannedFromStart, name)
	}
}

func TestQueryLogsCountsAllThatMatches(t *testing.T) {
	t.Parallel()
	w := withLog(t, sampleLog)
	got := succeed[logs](t, w, "production", opspilot.QueryLogs, `{"service_id":"payment-api.production","limit":1}`)
	require.Equal(t, map[string]int{"INFO": 1, "WARN": 1, "ERROR": 2}, got.CountsByLevel)
	require.Equal(t, "2026-01-31T08:00:00Z", got.FirstTime)
	require.Equal(t, "2026-01-31T08:00:03Z", got.LastTime)
}

// Only the last 8 MiB are searched, from the first whole line on.
func TestQueryLogsIsBounded(t *testing.T) {
	t.Parallel()
	filler := strings.Repeat("x", 1000)
	var text strings.Builder
	line := func(i int) string {
		return fmt.Sprintf(`{"time":"2026-01-31T08:00:00Z","level":"INFO","msg":"n%06d","filler":"%s"}`+"\n", i, filler)
	}
	size := len(line(0))
	lines := (9 << 20) / size
	for i := range lines {
		text.WriteString(line(i))
	}
	inTail := (8 << 20) / size
	w := withLog(t, text.String())

	got := succeed[logs](t, w, "production", opspilot.QueryLogs, `{"service_id":"payment-api.production","limit":1}`)
	require.False(t, got.ScannedFromStart)
	require.Zero(t, got.UnparsedLines)
	require.Equal(t, inTail, got.MatchedTotal)
	require.Equal(t, []string{fmt.Sprintf("n%06d", lines-inTail)}, got.messages())
}

func TestQueryLogsBoundsLinesAndResult(t *testing.T) {
	t.Parallel()
	wide := map[string]any{"time": "2026-01-31T08:00:00Z", "level": "INFO", "msg": "wide"}
	for i := range 10 {
		wide[fmt.Sprintf("field%d", i)] = strings.Repeat("y", 400)
	}
	wideLine, err := json.Marshal(wide)
	require.NoError(t, err)
	long := fmt.Sprintf(`{"time":"2026-01-31T08:00:00Z","level":"INFO","msg":"long","reference":"%s"}`, strings.Repeat("支", 1000))
	monster := fmt.Sprintf(`{"time":"2026-01-31T08:00:00Z","level":"INFO","msg":"monster","reference":"%s"}`, strings.Repeat("z", 100<<10))
	w := withLog(t, strings.Join([]string{string(wideLine), long, monster, ""}, "\n"))

	got := succeed[logs](t, w, "production", opspilot.QueryLogs, `{"service_id":"payment-api.production"}`)
	require.Equal(t, []string{"wide", "long"}, got.messages())
	require.True(t, got.Lines[0].Shortened)
	require.Equal(t, strings.Repeat("支", 166)+"…", got.Lines[1].Reference) // 500 bytes hold 166 characters of 3
	require.Equal(t, 1, got.UnparsedLines)
}

func TestQueryLogsWithoutALog(t *testing.T) {
	t.Parallel()
	w := setup(t)
	r := w.put(t, "payment-api", "production", nil)
	require.Equal(t, agent.ToolNotFound, fail(t, w, "production", opspilot.QueryLogs, `{"service_id":"payment-api.production"}`).Code)

	require.NoError(t, syscall.Mkfifo(r.LogPath, 0o600))
	shown := fail(t, w, "production", opspilot.QueryLogs, `{"service_id":"payment-api.production"}`)
	require.Equal(t, agent.ToolUnavailable, shown.Code)
	require.NotContains(t, shown.Message, w.dir)
}

func TestQueryLogsReadsWhatTheServiceWrote(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.sick(t, "")
	got := succeed[logs](t, w, "production", opspilot.QueryLogs, `{"service_id":"payment-api.production","level":"ERROR"}`)
	require.Equal(t, 2, got.MatchedTotal)
	require.Equal(t, "ord-10", got.Lines[0].Order)
	require.Equal(t, "ord-11", got.Lines[1].Order)
	require.Zero(t, got.UnparsedLines)
	got = succeed[logs](t, w, "production", opspilot.QueryLogs, `{"service_id":"payment-api.production","contains":"bank did not answer"}`)
	require.Equal(t, map[string]int{"WARN": 3}, got.CountsByLevel)
}
