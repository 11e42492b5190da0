package scripted_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/modeltest"
	"github.com/fairlead/fairlead/model/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func always(turn scripted.Turn) *scripted.Model { return scripted.New(scripted.RepeatLast(turn)) }

func TestConformance(t *testing.T) {
	t.Parallel()
	modeltest.Run(t, func(_ *testing.T, s modeltest.Scenario) model.Model {
		turn := scripted.Turn{
			Text: s.Text, Finish: s.Finish, Usage: s.Usage, NoUsage: s.Usage == nil, Hang: s.Hang, ChunkSize: 3,
		}
		for _, call := range s.Calls {
			turn.Calls = append(turn.Calls, scripted.Call{Name: call.Name, Arguments: call.Arguments})
		}
		if s.Failure != "" {
			turn.Err = &model.Error{Kind: s.Failure}
		}
		return always(turn)
	})
}

// conversation is one where the model has taken a turn with two calls on the
// second user message.
func conversation() model.Request {
	return model.Request{
		System: "sys", // 3 bytes
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "one"},      // 3
			{Role: model.RoleAssistant, Text: "two"}, // 3
			{Role: model.RoleUser, Text: "RESTART"},  // 7
			{Role: model.RoleAssistant, Calls: []model.ToolCall{ // 2 x 3
				{ID: "s0c0", Name: "a", Arguments: "{}"}, {ID: "s0c1", Name: "b", Arguments: "{}"},
			}},
			{Role: model.RoleTool, Text: "ra", CallID: "s0c0", ToolName: "a"}, // 2
			{Role: model.RoleTool, Text: "rb", CallID: "s0c1", ToolName: "b"}, // 2
		},
		Tools: []model.ToolSpec{{Name: "a", Description: "d", Parameters: []byte("{}")}}, // 4
	}
}

func TestReadingTheRequest(t *testing.T) {
	t.Parallel()
	req := conversation()
	if got := scripted.Step(req); got != 1 {
		t.Errorf("step = %d, want 1", got)
	}
	if got := scripted.LastUser(req); got != "RESTART" {
		t.Errorf("last user message = %q", got)
	}
	results := scripted.LastToolResults(req)
	if len(results) != 2 || results[0].Text != "ra" || results[1].Text != "rb" {
		t.Errorf("results = %+v", results)
	}
	req.Messages = req.Messages[:3]
	if scripted.Step(req) != 0 || len(scripted.LastToolResults(req)) != 0 {
		t.Error("a new user message must start at step 0, without results")
	}
}

func TestCallIDsAndUsage(t *testing.T) {
	t.Parallel()
	m := always(scripted.Turn{Calls: []scripted.Call{{Name: "a", Arguments: "{}"}, {Name: "b", Arguments: `{"x":1}`}}})
	first, err := m.Generate(t.Context(), conversation(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if first.Calls[0].ID != "s1c0" || first.Calls[1].ID != "s1c1" {
		t.Errorf("calls = %+v", first.Calls)
	}
	// 30 bytes in, 3 + 8 bytes out, 3 bytes to a token, rounded up.
	if want := (model.Usage{InputTokens: 10, OutputTokens: 4}); *first.Usage != want {
		t.Errorf("usage = %+v, want %+v", *first.Usage, want)
	}
	again, _ := m.Generate(t.Context(), conversation(), nil)
	if !reflect.DeepEqual(first, again) {
		t.Error("the same request got another answer")
	}
	other := conversation()
	other.System = "another"
	if changed, _ := m.Generate(t.Context(), other, nil); changed.RequestID == first.RequestID {
		t.Error("another request has the same request ID")
	}
}

func TestByStep(t *testing.T) {
	t.Parallel()
	turns := []scripted.Turn{{Text: "first"}, {Text: "second"}}
	req := model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "go"}}}
	m := scripted.New(scripted.ByStep(turns...))
	repeating := scripted.New(scripted.RepeatLast(turns...))
	for i, want := range []string{"first", "second", ""} {
		got, err := m.Generate(t.Context(), req, nil)
		if got.Text != want || (err != nil) != (i == 2) {
			t.Errorf("step %d: %q, %v", i, got.Text, err)
		}
		if want == "" {
			want = "second"
		}
		if got, err := repeating.Generate(t.Context(), req, nil); got.Text != want || err != nil {
			t.Errorf("step %d, repeating: %q, %v", i, got.Text, err)
		}
		req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Text: "said"})
	}
}

func TestChunksAreWholeRunes(t *testing.T) {
	t.Parallel()
	const text = "a你👋é-end"
	var pieces []string
	_, err := always(scripted.Turn{Text: text, ChunkSize: 2}).Generate(t.Context(), conversation(), func(d model.Delta) {
		pieces = append(pieces, d.Text)
	})
	if want := []string{"a你", "👋é", "-e", "nd"}; err != nil || !reflect.DeepEqual(pieces, want) {
		t.Errorf("pieces = %q, %v, want %q", pieces, err, want)
	}
	for _, piece := range pieces {
		if !utf8.ValidString(piece) {
			t.Errorf("piece %q is not valid UTF-8", piece)
		}
	}
}

func TestDelayEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := always(scripted.Turn{Text: "late", Delay: time.Hour}).Generate(ctx, conversation(), nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v", err)
	}
}

func TestCanceledBetweenChunks(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	deltas := 0
	_, err := always(scripted.Turn{Text: "several pieces", ChunkSize: 2}).Generate(ctx, conversation(), func(model.Delta) {
		deltas++
		cancel()
	})
	if !errors.Is(err, context.Canceled) || deltas != 1 {
		t.Errorf("error = %v after %d deltas", err, deltas)
	}
}

func TestBrokenScripts(t *testing.T) {
	t.Parallel()
	for name, turn := range map[string]scripted.Turn{
		"tool_calls without calls": {Finish: model.FinishToolCalls},
		"stop with calls":          {Finish: model.FinishStop, Calls: []scripted.Call{{Name: "a"}}},
		"unknown finish":           {Finish: "done"},
	} {
		_, err := always(turn).Generate(t.Context(), conversation(), nil)
		var failed *model.Error
		if !errors.As(err, &failed) || failed.Kind != model.KindMalformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	m := scripted.New(func(context.Context, model.Request) (scripted.Turn, error) {
		return scripted.Turn{}, errors.New("boom")
	})
	_, err := m.Generate(t.Context(), conversation(), nil)
	var failed *model.Error
	if !errors.As(err, &failed) || failed.Kind != model.KindInvalidRequest || strings.Contains(err.Error(), "boom") {
		t.Errorf("script error: %v", err)
	}
}

const yamlScript = `
scenarios:
  - match: restart
    turns:
      - text: Looking.
        calls:
          - name: search
            arguments: {query: "a<b", limit: 3}
          - {name: raw, arguments: '{"broken":'}
          - {name: bare}
      - text: Done.
        no_usage: true
  - match: loop
    repeat_last: true
    turns: [{calls: [{name: ping, arguments: {}}]}]
  - match: ""
    turns: [{text: half, error: rate_limited, retry_after: 2s}]
`

func TestParseYAML(t *testing.T) {
	t.Parallel()
	script, err := scripted.ParseYAML([]byte(yamlScript))
	if err != nil {
		t.Fatal(err)
	}
	req := conversation()
	second, err := script(t.Context(), req)
	if err != nil || !reflect.DeepEqual(second, scripted.Turn{Text: "Done.", NoUsage: true}) {
		t.Errorf("second turn = %+v, %v", second, err)
	}
	req.Messages = req.Messages[:3]
	first, err := script(t.Context(), req)
	want := []scripted.Call{
		{Name: "search", Arguments: `{"limit":3,"query":"a\u003cb"}`}, {Name: "raw", Arguments: `{"broken":`}, {Name: "bare", Arguments: "{}"},
	}
	if err != nil || !reflect.DeepEqual(first.Calls, want) {
		t.Errorf("first turn = %+v, %v", first, err)
	}

	req.Messages[2].Text = "something else"
	_, err = scripted.New(script).Generate(t.Context(), req, nil)
	var failed *model.Error
	if !errors.As(err, &failed) || failed.Kind != model.KindRateLimited || failed.RetryAfter != 2*time.Second || !failed.OutputStarted {
		t.Errorf("error = %+v", err)
	}

	req.Messages[2].Text = "loop, please"
	for range 5 {
		if turn, err := script(t.Context(), req); err != nil || len(turn.Calls) != 1 {
			t.Errorf("loop = %+v, %v", turn, err)
		}
		req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant})
	}
}

func TestParseYAMLRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"empty":           {"", "no scenario"},
		"unknown key":     {"scenarios: [{match: a, turn: []}]", "turn"},
		"unknown in turn": {"scenarios: [{match: a, turns: [{txt: b}]}]", "txt"},
		"no turns":        {"scenarios: [{match: a}]", "no turn"},
		"finish":          {"scenarios: [{match: a, turns: [{finish: done}]}]", `finish "done"`},
		"finish fits":     {"scenarios: [{match: a, turns: [{finish: tool_calls}]}]", "does not fit"},
		"error":           {"scenarios: [{match: a, turns: [{error: sad}]}]", `error "sad"`},
		"retry_after":     {"scenarios: [{match: a, turns: [{retry_after: 1s}]}]", "needs an error"},
		"bare duration":   {"scenarios: [{match: a, turns: [{delay: 5}]}]", "not a duration"},
		"negative delay":  {"scenarios: [{match: a, turns: [{delay: -5s}]}]", "negative"},
		"nameless call":   {"scenarios: [{match: a, turns: [{calls: [{arguments: {}}]}]}]", "no name"},
		"two documents":   {"scenarios: [{match: a, turns: [{text: b}]}]\n---\nx: 1\n", "more than one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := scripted.ParseYAML([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want one that says %q", err, c.want)
			}
		})
	}
}
