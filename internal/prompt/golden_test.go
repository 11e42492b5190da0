package prompt_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/internal/prompt"
	"github.com/fairlead/fairlead/internal/tokens"
	"github.com/fairlead/fairlead/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// opsPilot is the third turn of a conversation: all parts are there, and each of
// the soft ones has something left out.
func opsPilot(t *testing.T) prompt.Input {
	t.Helper()
	o200k, err := tokens.For("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	logs := func(n int) string {
		return `{"source":"log-store","trust":"untrusted","content_type":"application/json","size_bytes":9000,"truncated":false,"result_id":"r","content":["` +
			strings.Repeat(`503 upstream timeout","`, n) + `end"]}`
	}
	step := func(n int, name, arguments string, r prompt.Result) prompt.Step {
		r.CallID, r.Tool = fmt.Sprintf("call_%d", n), name
		return prompt.Step{Step: n, Calls: []model.ToolCall{{ID: r.CallID, Name: name, Arguments: arguments}}, Results: []prompt.Result{r}}
	}
	return prompt.Input{
		System: "You are OpsPilot. Writes wait for a person.",
		Tools: []model.ToolSpec{
			{Name: "query_logs", Description: "Reads a service's log.", Parameters: json.RawMessage(`{"type":"object","properties":{"service":{"type":"string"}}}`)},
			{Name: "fetch_result", Description: "Reads more of an earlier result.", Parameters: json.RawMessage(`{"type":"object","properties":{"result_id":{"type":"string"}}}`)},
		},
		FinalSchema: json.RawMessage(`{"type":"object","properties":{"answer":{"type":"string"}}}`),
		Facts: []prompt.Fact{
			{Key: "current_service", Value: "payment-api", Source: "tool find_service", Version: 3},
			{Key: "env", Value: "production", Source: "confirmed by the user", Version: 1},
		},
		Prohibitions: []prompt.Prohibition{
			{ID: "p1", Text: "never restart production by yourself", Tools: []string{"restart_service"}, Ask: true, Seq: 1},
			{ID: "p2", Text: "不要删除日志", Tools: []string{"delete_logs"}, Seq: 3},
		},
		Summaries: []prompt.Summary{
			{FromSeq: 1, ToSeq: 40, Text: strings.Repeat("Much was said. ", 40)},
			{FromSeq: 41, ToSeq: 80, Text: `{"decisions":["look at payment-api first"],"open":["why 503"]}`},
			{FromSeq: 81, ToSeq: 84, Text: "All of it is there in its own words."},
		},
		History: []prompt.Message{
			{Seq: 79, Role: model.RoleUser, Text: strings.Repeat("An old story. ", 40)},
			{Seq: 80, Role: model.RoleAssistant, Text: "I see."},
			{Seq: 81, Role: model.RoleUser, Text: "查一下生产环境 payment-api"},
			{Seq: 82, Role: model.RoleAssistant, Text: "已定位到 payment-api（production）。"},
		},
		Memory: []prompt.Recalled{
			{ID: "mem_1", Source: "said on 2026-10-10", Text: "looks at production by default"},
			{ID: "mem_2", Source: "said on 2026-10-11", Text: strings.Repeat("long ", 100)},
		},
		Knowledge: []prompt.Recalled{
			{ID: "doc_7", Source: "handbook v3", Text: "Logs are read with environment and time range."},
			{ID: "doc_8", Source: "handbook v3", Text: strings.Repeat("long ", 200)},
		},
		Question: "它的错误日志呢",
		Steps: []prompt.Step{
			step(1, "query_logs", `{"service":"payment"}`, prompt.Result{Envelope: `{"error":{"code":"not_found","message":"there is no service of this name, did you mean payment-api?","retryable":false}}`, Error: "not_found"}),
			step(2, "query_logs", `{"service":"payment-api"}`, prompt.Result{Envelope: logs(60), ResultID: "r2", Note: "60 errors since 10:02"}),
			step(3, "query_logs", `{"service":"payment-db"}`, prompt.Result{Envelope: logs(4), ResultID: "r3", Note: "4 errors since 10:00"}),
			{Step: 4, Text: "Half an answer", Correction: "The answer does not satisfy the schema."},
			step(5, "query_logs", `{"service":"redis"}`, prompt.Result{Envelope: logs(1), ResultID: "r5"}),
		},
		Window: 8_000, MaxOutputTokens: 1_500, Tokens: o200k,
		Budgets: definition.Context{MaxInput: 1_600, Messages: 120, Summaries: 100, Results: 275, Notes: 100, Memory: 100, Knowledge: 100},
	}
}

// write shows a request and its report as a person reads them.
func write(got prompt.Prompt) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "== system\n%s\n", got.Request.System)
	for _, t := range got.Request.Tools {
		fmt.Fprintf(&b, "== tool %s\n%s\n%s\n", t.Name, t.Description, t.Parameters)
	}
	fmt.Fprintf(&b, "== final schema\n%s\n", got.Request.FinalSchema)
	for _, m := range got.Request.Messages {
		fmt.Fprintf(&b, "== %s %s\n", m.Role, m.CallID)
		if m.Text != "" {
			fmt.Fprintln(&b, m.Text)
		}
		for _, c := range m.Calls {
			fmt.Fprintf(&b, "-> %s %s %s\n", c.ID, c.Name, c.Arguments)
		}
	}
	fmt.Fprintf(&b, "== at most %d tokens of output\n", got.Request.MaxOutputTokens)
	parts := got.Report.Parts
	got.Report.Parts = nil
	report, err := json.Marshal(got.Report)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(&b, "== report\n%s\n", report)
	for _, part := range parts {
		line, err := json.Marshal(part)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.Bytes()
}

func TestGoldenRequest(t *testing.T) {
	t.Parallel()
	got := write(assemble(t, opsPilot(t)))
	path := filepath.Join("testdata", "request.golden.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the request is another than %s:\n%s", path, got)
	}
}

// TestReportHasNoContent: a report is stored in the clear and shown to
// operators.
func TestReportHasNoContent(t *testing.T) {
	t.Parallel()
	report, err := json.Marshal(assemble(t, opsPilot(t)).Report)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"payment", "OpsPilot", "503", "production", "call_", "r2", "日志", "handbook", "mem_1"} {
		if bytes.Contains(report, []byte(content)) {
			t.Errorf("the report has %q: %s", content, report)
		}
	}
}
