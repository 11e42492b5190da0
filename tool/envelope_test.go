package tool_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

func TestEnvelope(t *testing.T) {
	t.Parallel()
	logs := spec("search", func(s *tool.Spec) { s.Trust, s.ExcerptBytes = tool.Untrusted, 20 })
	for name, tt := range map[string]struct {
		result tool.Result
		want   string
	}{
		"JSON": {
			tool.Result{Content: []byte(`{"a":"<b>"}`), ContentType: tool.ContentJSON},
			`{"source":"log-store","trust":"untrusted","content_type":"application/json","size_bytes":11,"truncated":false,"result_id":"r1","content":{"a":"<b>"}}`,
		},
		"text": {
			tool.Result{Content: []byte("two\nlines"), ContentType: tool.ContentText},
			`{"source":"log-store","trust":"untrusted","content_type":"text/plain","size_bytes":9,"truncated":false,"result_id":"r1","content":"two\nlines"}`,
		},
		"text that looks like JSON": {
			tool.Result{Content: []byte(`{"a":1}`), ContentType: tool.ContentText},
			`{"source":"log-store","trust":"untrusted","content_type":"text/plain","size_bytes":7,"truncated":false,"result_id":"r1","content":"{\"a\":1}"}`,
		},
		"cut JSON ends after an element": {
			tool.Result{Content: []byte(`["aaaa","bbbbbb","cccc","dd"]`), ContentType: tool.ContentJSON},
			`{"source":"log-store","trust":"untrusted","content_type":"text/plain","size_bytes":29,"truncated":true,"result_id":"r1","note":"content is the first 17 of 29 bytes; for more call fetch_result with this result_id and offset 17","content":"[\"aaaa\",\"bbbbbb\","}`,
		},
		"cut text ends after a line": {
			tool.Result{Content: []byte("0123456789abcde\nx y z and more"), ContentType: tool.ContentText},
			`{"source":"log-store","trust":"untrusted","content_type":"text/plain","size_bytes":30,"truncated":true,"result_id":"r1","note":"content is the first 16 of 30 bytes; for more call fetch_result with this result_id and offset 16","content":"0123456789abcde\n"}`,
		},
		"cut text keeps runes": { // 20 bytes are 6 runes and two thirds
			tool.Result{Content: []byte("字字字字字字字字"), ContentType: tool.ContentText},
			`{"source":"log-store","trust":"untrusted","content_type":"text/plain","size_bytes":24,"truncated":true,"result_id":"r1","note":"content is the first 18 of 24 bytes; for more call fetch_result with this result_id and offset 18","content":"字字字字字字"}`,
		},
		"stored in part": {
			tool.Result{Content: []byte("start"), ContentType: tool.ContentText, Truncated: true},
			`{"source":"log-store","trust":"untrusted","content_type":"text/plain","size_bytes":5,"truncated":true,"result_id":"r1","note":"the result was too large and its end was not kept; ask for less","content":"start"}`,
		},
	} {
		if got := string(tool.NewEnvelope(logs, "r1", tt.result).Bytes()); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", name, got, tt.want)
		}
	}
}

func TestErrorEnvelope(t *testing.T) {
	t.Parallel()
	err := &tool.Error{Code: agent.ToolUnavailable, Message: "the <store> is\nbusy", Transient: true, Err: context.Canceled}
	const want = `{"error":{"code":"unavailable","message":"the <store> is busy","retryable":true}}`
	if got := string(tool.ErrorEnvelope(err)); got != want {
		t.Errorf("got %s", got)
	}
	if got := string(tool.ErrorEnvelope(nil)); got != `{"error":{"code":"failed","message":"the tool failed","retryable":false}}` {
		t.Errorf("nil: %s", got)
	}
	if got := len(tool.ErrorEnvelope(&tool.Error{Message: strings.Repeat("\"", 1<<20)})); got > 2*tool.MaxErrorBytes+200 {
		t.Errorf("%d bytes", got)
	}
}

// The codes of a person's decision are the application's to use.
func TestErrorEnvelopeKeepsCodes(t *testing.T) {
	t.Parallel()
	for code, want := range map[agent.ToolErrorCode]string{
		agent.ToolDeclined: "declined", agent.ToolNotConfirmed: "not_confirmed", agent.ToolConflict: "conflict",
		agent.ToolQuota: "quota_exceeded", "other": "failed",
	} {
		got := string(tool.ErrorEnvelope(&tool.Error{Code: code, Message: "m"}))
		if got != `{"error":{"code":"`+want+`","message":"m","retryable":false}}` {
			t.Errorf("%s: got %s", code, got)
		}
	}
	if got := (&tool.Error{Code: agent.ToolOutcomeUnknown}).ToolError("restart").Code; got != agent.ToolOutcomeUnknown {
		t.Errorf("in a run's result: got %s", got)
	}
}

func TestErrorHash(t *testing.T) {
	t.Parallel()
	// printf '6:search9:not_found4:gone' | sha256sum
	const want = "2739bc9a67c9168a2fd6e86a739b929c59240fbfa93bdfa482d70197d26da45e"
	err := &tool.Error{Code: agent.ToolNotFound, Message: "gone"}
	if got := tool.ErrorHash("search", err); got != want {
		t.Errorf("got %s", got)
	}
	if got := err.ToolError("search"); *got != (agent.ToolError{Code: agent.ToolNotFound, Hash: want}) {
		t.Errorf("got %+v", got)
	}
	seen := map[string]bool{want: true}
	for _, other := range []struct {
		tool, message string
		code          agent.ToolErrorCode
	}{{"searc", "gone", "hnot_found"}, {"search2", "gone", agent.ToolNotFound}, {"search", "gone.", agent.ToolNotFound}, {"search", "gone", agent.ToolFailed}} {
		h := tool.ErrorHash(other.tool, &tool.Error{Code: other.code, Message: other.message})
		if seen[h] {
			t.Errorf("%v has the hash of another error", other)
		}
		seen[h] = true
	}
}

// memory is a ResultReader over one result.
type memory struct {
	content []byte
	asked   *[2]string
}

func (m memory) ReadResult(_ context.Context, scope agent.Scope, runID, resultID string, offset, limit int64) ([]byte, int64, error) {
	if m.asked != nil {
		*m.asked = [2]string{scope.Tenant, runID}
	}
	if resultID != "r1" {
		return nil, 0, tool.ErrResultNotFound
	}
	total := int64(len(m.content))
	from := min(offset, total)
	return m.content[from:min(from+limit, total)], total, nil
}

func fetch(t *testing.T, reader tool.ResultReader, arguments string) (string, error) {
	t.Helper()
	return fetchFrom(t, registry(t, tool.NewFetchResult(reader)), arguments)
}

func fetchFrom(t *testing.T, r *tool.Registry, arguments string) (string, error) {
	t.Helper()
	checked, refused := r.Check(actor, []string{"fetch_result"}, "fetch_result", arguments)
	if refused != nil {
		return "", refused
	}
	result, err := r.Execute(t.Context(), tool.Call{
		Invocation: tool.Invocation{Actor: actor, RunID: "run-1", CallID: "1.0", Arguments: checked.Arguments},
		Tool:       "fetch_result", Allow: []string{"fetch_result"},
	})
	if err == nil {
		env := tool.NewEnvelope(checked.Spec, "r2", result)
		if env.Truncated {
			t.Errorf("%s: the envelope cuts what was fetched", arguments)
		}
	}
	return string(result.Content), err
}

func TestFetchResult(t *testing.T) {
	t.Parallel()
	var asked [2]string
	text := memory{[]byte("0123456字字"), &asked}
	for arguments, want := range map[string]string{
		`{"result_id":"r1"}`:                       `{"result_id":"r1","offset":0,"total_bytes":13,"text":"0123456字字"}`,
		`{"result_id":"r1","offset":2,"limit":3}`:  `{"result_id":"r1","offset":2,"next_offset":5,"total_bytes":13,"text":"234"}`,
		`{"result_id":"r1","offset":5,"limit":4}`:  `{"result_id":"r1","offset":5,"next_offset":7,"total_bytes":13,"text":"56"}`,
		`{"result_id":"r1","offset":8,"limit":9}`:  `{"result_id":"r1","offset":10,"total_bytes":13,"text":"字"}`,
		`{"result_id":"r1","offset":7,"limit":1}`:  `{"result_id":"r1","offset":7,"next_offset":10,"total_bytes":13,"text":"字"}`,
		`{"result_id":"r1","offset":99,"limit":1}`: `{"result_id":"r1","offset":99,"total_bytes":13,"text":""}`,
		`{"result_id":"r9"}`:                       "not_found: there is no result of this result_id in this run",
		`{"result_id":"r1","offset":-1}`:           "invalid_arguments: the arguments do not fit: at /offset: must be at least 0 (minimum)",
		`{"result_id":"r1","limit":16385}`:         "invalid_arguments: the arguments do not fit: at /limit: must be at most 16384 (maximum)",
		`{"result_id":"r1","offset":1e30}`:         "invalid_arguments: offset or limit is out of range",
		`{"result_id":"../r1"}`:                    "invalid_arguments: the arguments do not fit: at /result_id: must match ^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$ (pattern)",
	} {
		got, err := fetch(t, text, arguments)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", arguments, got, want)
		}
	}
	if asked != [2]string{"acme", "run-1"} {
		t.Errorf("asked for %v", asked)
	}
}

// Whatever the text and the limit, following next_offset gives all of it.
func TestFetchResultGivesEverything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		content, limit := rapid.String().Draw(rt, "content"), rapid.Int64Range(1, 6).Draw(rt, "limit")
		if rapid.IntRange(0, 9).Draw(rt, "large") == 0 { // escapes make it sixfold
			content, limit = strings.Repeat("\x01\"é", 9000), 16384
		}
		r := registry(t, tool.NewFetchResult(memory{[]byte(content), nil}))
		var all strings.Builder
		offset := int64(0)
		for {
			arguments, err := json.Marshal(map[string]any{"result_id": "r1", "offset": offset, "limit": limit})
			if err != nil {
				rt.Fatal(err)
			}
			text, err := fetchFrom(t, r, string(arguments))
			if err != nil {
				rt.Fatal(err)
			}
			var got struct {
				Text string `json:"text"`
				Next int64  `json:"next_offset"`
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil || !utf8.ValidString(got.Text) {
				rt.Fatalf("%v in %q", err, text)
			}
			all.WriteString(got.Text)
			if got.Next == 0 {
				break
			}
			offset = got.Next
		}
		if want := strings.ReplaceAll(content, "\x00", "\uFFFD"); all.String() != want {
			rt.Fatalf("got %q, want %q", all.String(), want)
		}
	})
}
