package prompt_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/internal/prompt"
	"github.com/fairlead/fairlead/model"
)

func step(name, result string) prompt.Step {
	return prompt.Step{Calls: []model.ToolCall{{ID: name, Name: "look", Arguments: "{}"}}, Results: []string{result}}
}

func shape(messages []model.Message) string {
	var parts []string
	for _, m := range messages {
		text := m.Text
		if len(m.Calls) > 0 {
			text = "calls " + m.Calls[0].ID
		}
		parts = append(parts, string(m.Role)+":"+text)
	}
	return strings.Join(parts, " | ")
}

func TestAssemble(t *testing.T) {
	t.Parallel()
	history := []model.Message{
		{Role: model.RoleUser, Text: "q1"},
		{Role: model.RoleAssistant, Text: "a1"},
		{Role: model.RoleUser, Text: "q2"},
		{Role: model.RoleAssistant, Text: "a2"},
	}
	big := strings.Repeat("x", 3_000) // 1000 tokens
	for _, c := range []struct {
		name   string
		in     prompt.Input
		want   string
		output int64
		err    error
	}{
		{
			"all fits",
			prompt.Input{History: history, Question: "q", Steps: []prompt.Step{step("s0", "r0"), step("s1", "r1")}, ContextWindow: 10_000, MaxOutputTokens: 100},
			"user:q1 | assistant:a1 | user:q2 | assistant:a2 | user:q | assistant:calls s0 | tool:r0 | assistant:calls s1 | tool:r1", 100, nil,
		},
		{"empty history", prompt.Input{Question: "q", ContextWindow: 10_000, MaxOutputTokens: 100}, "user:q", 100, nil},
		{
			"oldest messages go first, an answer not without its question",
			prompt.Input{History: []model.Message{{Role: model.RoleUser, Text: big}, {Role: model.RoleAssistant, Text: "a1"}, history[2], history[3]}, Question: "q", ContextWindow: 1_000, MaxOutputTokens: 100},
			"user:q2 | assistant:a2 | user:q", 100, nil,
		},
		{
			"history goes before steps",
			prompt.Input{History: []model.Message{{Role: model.RoleUser, Text: big}}, Question: "q", Steps: []prompt.Step{step("s0", big)}, ContextWindow: 2_000, MaxOutputTokens: 100},
			"user:q | assistant:calls s0 | tool:" + big, 100, nil,
		},
		{
			"oldest steps go whole",
			prompt.Input{Question: "q", Steps: []prompt.Step{step("s0", big), step("s1", big), step("s2", "r2")}, ContextWindow: 1_500, MaxOutputTokens: 100},
			"user:q | assistant:calls s1 | tool:" + big + " | assistant:calls s2 | tool:r2", 100, nil,
		},
		{"the newest step is never left out", prompt.Input{Question: "q", Steps: []prompt.Step{step("s0", big)}, ContextWindow: 900, MaxOutputTokens: 100}, "", 0, prompt.ErrOverflow},
		{"the question goes in whole", prompt.Input{Question: big, ContextWindow: 900, MaxOutputTokens: 100}, "", 0, prompt.ErrOverflow},
		{"system prompt alone", prompt.Input{System: big, Question: "q", ContextWindow: 900, MaxOutputTokens: 100}, "", 0, prompt.ErrOverflow},
		{"schemas alone", prompt.Input{Tools: []model.ToolSpec{{Name: "t", Parameters: []byte(big)}}, Question: "q", ContextWindow: 900, MaxOutputTokens: 100}, "", 0, prompt.ErrOverflow},
		{"output as long as the window", prompt.Input{Question: "q", ContextWindow: 1_000, MaxOutputTokens: 1_000}, "user:q", 1_000 - 17, nil},
		{
			"correction",
			prompt.Input{Question: "q", Steps: []prompt.Step{{Text: "bad", Correction: "fix it"}, {Text: " ", Correction: "say something"}}, ContextWindow: 10_000, MaxOutputTokens: 100},
			"user:q | assistant:bad | user:fix it | user:say something", 100, nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := prompt.Assemble(c.in)
			if !errors.Is(err, c.err) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			if s := shape(got.Request.Messages); s != c.want || got.Request.MaxOutputTokens != c.output {
				t.Errorf("got  %.300s, %d\nwant %.300s, %d", s, got.Request.MaxOutputTokens, c.want, c.output)
			}
		})
	}
}

// TestAssembleProperties holds for any conversation: calls and results are
// paired, the question and the newest step are there, order is kept, and the
// estimate stays inside of the window.
func TestAssembleProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 400, 1200)
		in := prompt.Input{
			System: text.Draw(t, "system"), Question: text.Draw(t, "question"),
			ContextWindow: rapid.Int64Range(50, 4_000).Draw(t, "window"), MaxOutputTokens: rapid.Int64Range(1, 4_000).Draw(t, "output"),
		}
		for i := range rapid.IntRange(0, 12).Draw(t, "history") {
			role := model.RoleUser
			if rapid.Bool().Draw(t, "assistant") {
				role = model.RoleAssistant
			}
			in.History = append(in.History, model.Message{Role: role, Text: fmt.Sprint(i) + text.Draw(t, "message")})
		}
		for i := range rapid.IntRange(0, 8).Draw(t, "steps") {
			if rapid.IntRange(0, 5).Draw(t, "kind") == 0 {
				in.Steps = append(in.Steps, prompt.Step{Text: text.Draw(t, "bad"), Correction: "fix"})
				continue
			}
			var s prompt.Step
			for j := range rapid.IntRange(1, 7).Draw(t, "calls") {
				s.Calls = append(s.Calls, model.ToolCall{ID: fmt.Sprintf("%d.%d", i, j), Name: "look", Arguments: "{}"})
				s.Results = append(s.Results, text.Draw(t, "result"))
			}
			in.Steps = append(in.Steps, s)
		}
		got, err := prompt.Assemble(in)
		if errors.Is(err, prompt.ErrOverflow) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got.InputTokens+got.Request.MaxOutputTokens > in.ContextWindow || got.Request.MaxOutputTokens < 1 {
			t.Fatalf("%d input and %d output tokens in a window of %d", got.InputTokens, got.Request.MaxOutputTokens, in.ContextWindow)
		}
		messages := got.Request.Messages
		if len(messages) == 0 || messages[0].Role != model.RoleUser {
			t.Fatal("the conversation is not opened by the user")
		}
		kept := len(in.History) - got.OmittedMessages
		if messages[kept].Text != in.Question {
			t.Fatal("the question is missing")
		}
		var open []string
		for _, m := range messages {
			if m.Role == model.RoleTool {
				if len(open) == 0 || open[0] != m.CallID {
					t.Fatalf("result %q without its call", m.CallID)
				}
				open = open[1:]
				continue
			}
			if len(open) > 0 {
				t.Fatalf("calls %v without results", open)
			}
			for _, c := range m.Calls {
				open = append(open, c.ID)
			}
		}
		if len(open) > 0 {
			t.Fatalf("calls %v without results", open)
		}
		if n := len(in.Steps); n > 0 && got.OmittedSteps == n {
			t.Fatal("the newest step is missing")
		}
	})
}
