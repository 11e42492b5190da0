package openai

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/model"
)

// Whatever a server sends is either a response that keeps the promises of
// model.Response or a *model.Error.
func FuzzGenerate(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","choices":[{"message":{"content":"x","refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
		"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\n\n" +
			"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"b\",\"function\":{\"name\":\"f\",\"arguments\":\"}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
		": ping\n\nevent: error\ndata: {\"message\":\"x\"}\n\n",
		"data: {\"error\":{\"code\":429}}\n\n",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, body string, asStream bool) {
		header := http.Header{"Content-Type": {"application/json"}}
		if asStream {
			header.Set("Content-Type", "text/event-stream")
		}
		client := &http.Client{Transport: answer(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})}
		m, err := New(Options{HTTPClient: client})
		if err != nil {
			t.Fatal(err)
		}
		var streamed strings.Builder
		started := false
		response, err := m.Generate(t.Context(), model.Request{Model: "m"}, func(d model.Delta) {
			streamed.WriteString(d.Text)
			started = true
		})
		var failed *model.Error
		if err != nil {
			if !errors.As(err, &failed) || (started && !failed.OutputStarted) || failed.Kind == "" {
				t.Fatalf("error = %#v", err)
			}
			return
		}
		if response.Text != streamed.String() {
			t.Fatalf("text %q, streamed %q", response.Text, streamed.String())
		}
		if (len(response.Calls) > 0) != (response.Finish == model.FinishToolCalls) {
			t.Fatalf("%d calls, finish %q", len(response.Calls), response.Finish)
		}
		ids := map[string]bool{}
		for _, call := range response.Calls {
			if call.ID == "" || call.Name == "" || ids[call.ID] {
				t.Fatalf("calls = %+v", response.Calls)
			}
			ids[call.ID] = true
		}
		if u := response.Usage; u != nil && (u.InputTokens < 0 || u.OutputTokens < 0 || u.CachedInputTokens > u.InputTokens) {
			t.Fatalf("usage = %+v", u)
		}
	})
}
