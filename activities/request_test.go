package activities_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/internal/prompt"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

func TestFinalSchema(t *testing.T) {
	t.Parallel()
	var requests []model.Request
	b := setup(t, options{
		script: func(_ context.Context, req model.Request) (scripted.Turn, error) {
			requests = append(requests, req)
			if len(requests) == 1 {
				return scripted.Turn{Text: `{"n":"` + canary + `"}`}, nil
			}
			return scripted.Turn{Text: `{"n":3}`}, nil
		},
		edit: func(d *definition.Definition) {
			d.FinalSchema = []byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
		},
	})
	g := b.start()
	first := b.act(g.next(0, 0))
	if first.Failure == nil || first.Failure.Code != agent.FailureMalformedOutput || first.Failure.Detail != "schema" || first.Usage.UnknownAttempts != 0 {
		t.Fatalf("got %+v", first)
	}
	second := b.act(g.next(1, 0))
	if second.Kind != agent.ActionFinal || b.rows("message") != 2 {
		t.Fatalf("got %+v", second)
	}
	messages := requests[1].Messages
	if len(messages) != 3 || messages[1].Role != model.RoleAssistant || messages[1].Text != `{"n":"`+canary+`"}` ||
		messages[2].Role != model.RoleUser || !strings.HasPrefix(messages[2].Text, "Your last answer did not satisfy the required schema: ") ||
		strings.Contains(messages[2].Text, canary) {
		t.Fatalf("the correction was asked for with %+v", messages)
	}
	if string(requests[0].FinalSchema) == "" || requests[0].System != requests[1].System {
		t.Error("schema or system prompt differ between calls")
	}
}

// TestRequest asserts what is sent to the model in the second step of a second
// run of a conversation.
func TestRequest(t *testing.T) {
	t.Parallel()
	var last model.Request
	b := setup(t, options{script: func(ctx context.Context, req model.Request) (scripted.Turn, error) {
		last = req
		return twoSteps(ctx, req)
	}})
	first := b.start()
	b.observe(first.read(0, b.act(first.next(0, 0)).Calls[0]))
	b.finish(first, agent.ReasonFinal, 2, b.act(first.next(1, 0)).AnswerMessageID)

	req := request()
	req.Conversation, req.Message = first.req.Conversation, "And now?"
	second := begun{req, b.begin(req)}
	b.observe(second.read(0, b.act(second.next(0, 0)).Calls[0]))
	b.act(second.next(1, 0))
	var got []string
	for _, m := range last.Messages {
		got = append(got, fmt.Sprintf("%s %s %d %s", m.Role, m.Text, len(m.Calls), m.ToolName))
	}
	want := []string{
		"user How are you? " + canary + " 0 ",
		"assistant done " + canary + " 0 ",
		"user And now? 0 ",
		"assistant let me look 1 ",
		`tool {"source":"store","trust":"authoritative","content_type":"text/plain","size_bytes":16,"truncated":false,"result_id":"0.0","content":"here ` + canary + `"} 0 look`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if last.System != "You help. "+canary+"\n\n"+prompt.Note || last.Model != "scripted-priced" || last.MaxOutputTokens != 1_000 {
		t.Errorf("system %q, model %q, output %d", last.System, last.Model, last.MaxOutputTokens)
	}
	if calls := last.Messages[3].Calls; calls[0].Name != "look" || calls[0].Arguments != `{"at": "here"}` || calls[0].ID != last.Messages[4].CallID {
		t.Errorf("call %+v is not paired with its result", calls)
	}
	var names []string
	for _, spec := range last.Tools {
		names = append(names, spec.Name)
	}
	if strings.Join(names, " ") != "broken fetch_result look slow" {
		t.Errorf("tools %v", names)
	}
}

func TestContextOverflow(t *testing.T) {
	t.Parallel()
	tiny := model.Entry{Name: "tiny", Provider: "scripted", Model: "tiny", ContextWindow: 1_200, MaxOutputTokens: 100}
	b := setup(t, options{entries: []model.Entry{tiny}, edit: func(d *definition.Definition) { d.Model = "tiny" }})
	req := request()
	req.Message = strings.Repeat("长", 2_000)
	g := begun{req, b.begin(req)}
	action := b.act(g.next(0, 0))
	if action.Failure == nil || action.Failure.Code != agent.FailureContextOverflow || action.Failure.Detail != prompt.PartQuestion || b.calls.of("model") != 0 {
		t.Fatalf("got %+v", action)
	}
}
