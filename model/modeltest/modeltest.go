// Package modeltest is the conformance suites of model.Model and model.Embedder:
// what every adapter must do alike. Nothing outside tests imports it.
package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/model"
)

// Scenario is what the model under test has to answer to any request.
type Scenario struct {
	Name string
	// Text, Calls and Finish make up the response. The IDs of the calls are
	// wishes: an adapter may use its own.
	Text   string
	Calls  []model.ToolCall
	Finish model.FinishReason
	// Usage is what the provider reports; nil means none.
	Usage *model.Usage
	// Hang means that nothing is answered until the caller gives up, after Text
	// was streamed.
	Hang bool
	// Failure, if not empty, is the kind of failure to meet instead; with Text,
	// the failure comes after Text was streamed.
	Failure model.Kind
}

// Request returns the request that the suite sends, a conversation with a tool
// call behind it.
func Request() model.Request {
	return model.Request{
		Model:  "wire-model",
		System: "You are a test.",
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "first"},
			{Role: model.RoleAssistant, Calls: []model.ToolCall{{ID: "c1", Name: "search", Arguments: `{"q":"x"}`}}},
			{Role: model.RoleTool, Text: `{"hits":1}`, CallID: "c1", ToolName: "search"},
			{Role: model.RoleAssistant, Text: "One hit."},
			{Role: model.RoleUser, Text: "Grüße, 你好 👋"},
		},
		Tools: []model.ToolSpec{{
			Name: "search", Description: "Searches.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}},"required":["q"],"additionalProperties":false}`),
		}},
		MaxOutputTokens: 500,
	}
}

// Run runs the suite. newModel returns a model that answers as the scenario
// says; it is called once per subtest, which runs in parallel with others.
func Run(t *testing.T, newModel func(t *testing.T, scenario Scenario) model.Model) {
	usage := &model.Usage{InputTokens: 120, CachedInputTokens: 100, OutputTokens: 7}
	calls := []model.ToolCall{
		{ID: "a", Name: "search", Arguments: `{"q":"naïve 你好 👩‍👩‍👧"}`},
		{ID: "b", Name: "search", Arguments: `{}`},
	}
	for _, scenario := range []Scenario{
		{Name: "text", Text: "Hello, this is a longer answer.", Finish: model.FinishStop, Usage: usage},
		{Name: "text of many bytes", Text: "Grüße 你好 👩‍👩‍👧 \"quoted\"\n<b>&\\", Finish: model.FinishStop, Usage: usage},
		{Name: "no text", Finish: model.FinishStop, Usage: usage},
		{Name: "usage not reported", Text: "Hi", Finish: model.FinishStop},
		{Name: "calls", Calls: calls, Finish: model.FinishToolCalls, Usage: usage},
		{Name: "text and a call", Text: "Looking.", Calls: calls[:1], Finish: model.FinishToolCalls, Usage: usage},
		{Name: "malformed arguments pass", Calls: []model.ToolCall{{ID: "a", Name: "search", Arguments: `{"q":`}}, Finish: model.FinishToolCalls, Usage: usage},
		{Name: "empty arguments pass", Calls: []model.ToolCall{{ID: "a", Name: "search"}}, Finish: model.FinishToolCalls, Usage: usage},
		{Name: "length", Text: "Cut off in the", Finish: model.FinishLength, Usage: usage},
		{Name: "length drops calls", Calls: calls, Finish: model.FinishLength, Usage: usage},
		{Name: "content filter", Text: "I", Finish: model.FinishContentFilter, Usage: usage},
	} {
		t.Run(scenario.Name, func(t *testing.T) {
			t.Parallel()
			testResponse(t, newModel(t, scenario), scenario)
		})
	}
	for _, kind := range []model.Kind{
		model.KindRateLimited, model.KindUnavailable, model.KindTimeout, model.KindAuthentication,
		model.KindInvalidRequest, model.KindContextOverflow, model.KindContentPolicy,
	} {
		t.Run("failure "+string(kind), func(t *testing.T) {
			t.Parallel()
			testFailure(t, newModel(t, Scenario{Failure: kind}), kind, "")
		})
	}
	t.Run("failure after output", func(t *testing.T) {
		t.Parallel()
		const text = "half an ans"
		testFailure(t, newModel(t, Scenario{Failure: model.KindUnavailable, Text: text}), model.KindUnavailable, text)
	})
	t.Run("context ended before the call", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		m := newModel(t, Scenario{Text: "never", Finish: model.FinishStop})
		_, err := m.Generate(ctx, Request(), func(model.Delta) { t.Error("a delta came") })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v, want context.Canceled", err)
		}
	})
	t.Run("canceled while streaming", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m := newModel(t, Scenario{Hang: true, Text: "begun"})
		promptly(t, func() {
			_, err := m.Generate(ctx, Request(), func(model.Delta) { cancel() })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error = %v, want context.Canceled", err)
			}
		})
	})
	t.Run("deadline while waiting", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		m := newModel(t, Scenario{Hang: true})
		promptly(t, func() {
			if _, err := m.Generate(ctx, Request(), nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error = %v, want context.DeadlineExceeded", err)
			}
		})
	})
	t.Run("concurrent calls", func(t *testing.T) {
		t.Parallel()
		scenario := Scenario{Text: "the same to everybody", Finish: model.FinishStop, Usage: usage}
		m := newModel(t, scenario)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() { testResponse(t, m, scenario) })
		}
		group.Wait()
	})
}

func testResponse(t *testing.T, m model.Model, scenario Scenario) {
	t.Helper()
	request, untouched := Request(), Request()
	var streamed strings.Builder
	callPieces := 0
	response, err := m.Generate(t.Context(), request, func(d model.Delta) {
		streamed.WriteString(d.Text)
		if d.ToolCall {
			callPieces++
			if d.Text != "" {
				t.Errorf("a piece of a call has text %q", d.Text)
			}
		} else if d.Text == "" {
			t.Error("a delta is empty")
		}
	})
	if err != nil {
		t.Errorf("Generate: %v", err)
		return
	}
	if response.Text != scenario.Text {
		t.Errorf("text = %q, want %q", response.Text, scenario.Text)
	}
	if streamed.String() != response.Text {
		t.Errorf("streamed %q, but the text is %q", streamed.String(), response.Text)
	}
	if response.Finish != scenario.Finish {
		t.Errorf("finish = %q, want %q", response.Finish, scenario.Finish)
	}
	if !reflect.DeepEqual(response.Usage, scenario.Usage) {
		t.Errorf("usage = %+v, want %+v", response.Usage, scenario.Usage)
	}
	if response.Revision == "" {
		t.Error("revision is empty")
	}
	if !reflect.DeepEqual(request, untouched) {
		t.Error("the request was changed")
	}

	want := scenario.Calls
	if scenario.Finish != model.FinishToolCalls {
		want = nil
	}
	if len(response.Calls) != len(want) {
		t.Errorf("%d calls, want %d", len(response.Calls), len(want))
		return
	}
	if len(want) > 0 && callPieces == 0 {
		t.Error("no delta told of the calls")
	}
	ids := map[string]bool{}
	for i, call := range response.Calls {
		if call.Name != want[i].Name || call.Arguments != want[i].Arguments {
			t.Errorf("call %d = %+v, want %+v", i, call, want[i])
		}
		if call.ID == "" || ids[call.ID] {
			t.Errorf("call %d: ID %q is empty or not unique", i, call.ID)
		}
		ids[call.ID] = true
	}
}

func testFailure(t *testing.T, m model.Model, kind model.Kind, text string) {
	t.Helper()
	var streamed strings.Builder
	response, err := m.Generate(t.Context(), Request(), func(d model.Delta) { streamed.WriteString(d.Text) })
	var failed *model.Error
	if !errors.As(err, &failed) {
		t.Fatalf("error = %v, want a *model.Error", err)
	}
	if failed.Kind != kind || failed.OutputStarted != (text != "") {
		t.Errorf("error = %+v, want kind %s, output started %t", *failed, kind, text != "")
	}
	if streamed.String() != text {
		t.Errorf("streamed %q, want %q", streamed.String(), text)
	}
	if !reflect.DeepEqual(response, model.Response{}) {
		t.Errorf("response = %+v beside an error", response)
	}
}

// promptly fails the test if f hangs; it cannot stop it.
func promptly(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("Generate did not return after its context had ended")
	}
}
