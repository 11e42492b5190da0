package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// finder is a fast read whose result declares a fact; it fails for "nothing".
type finder struct{}

func (finder) Spec() tool.Spec {
	return tool.Spec{
		Name: "find", Version: "3", Description: "Finds.", Risk: tool.Read, Fast: true, Source: "store",
		Parameters: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`),
		Facts:      []tool.Fact{{Key: "current_service", Pointer: "/service/id"}, {Key: "size", Pointer: "/size"}, {Key: "absent", Pointer: "/no/such"}},
		Verbs:      []string{"find", "look up", "查找"},
	}
}

func (finder) Execute(_ context.Context, call tool.Invocation) (tool.Result, error) {
	args, err := tool.DecodeArgs[struct {
		Name string `json:"name"`
	}](call.Arguments)
	if err != nil {
		return tool.Result{}, err
	}
	if args.Name == "nothing" {
		return tool.Result{}, &tool.Error{Code: agent.ToolNotFound, Message: "there is no such service"}
	}
	result, err := tool.JSON(map[string]any{"service": map[string]string{"id": "svc-" + args.Name}, "size": 3, "text": canary})
	result.Note = "found " + args.Name
	return result, err
}

func withFinder(o options) options {
	o.tools = append(o.tools, finder{})
	edit := o.edit
	o.edit = func(d *definition.Definition) {
		d.Tools = append(d.Tools, "find")
		d.Session.Facts = []string{"region"}
		if edit != nil {
			edit(d)
		}
	}
	return o
}

// holds says what holds in the conversation of a request.
func (b *bundle) holds(req agent.RunRequest) string {
	b.Helper()
	state, err := b.db.Session(b.ctx, req.Scope(), req.Conversation)
	if err != nil {
		b.Fatal(err)
	}
	var lines []string
	for _, f := range state.Facts {
		source := "user"
		if f.Tool != "" {
			source = fmt.Sprintf("%s %s %s", f.Tool, f.ToolVersion, f.CallID)
		}
		lines = append(lines, fmt.Sprintf("%s=%s (%s)", f.Key, f.Value, source))
	}
	for _, p := range state.Prohibitions {
		lines = append(lines, fmt.Sprintf("%q forbids %v ask %t", p.Value, p.Tools, p.Ask))
	}
	return strings.Join(lines, "; ")
}

// TestFacts: only what a tool returned when it succeeded, and what the user
// confirmed, becomes a fact. A guess of the model, an argument of a failed or
// refused call does not.
func TestFacts(t *testing.T) {
	t.Parallel()
	b := setup(t, withFinder(options{script: scripted.ByStep(
		scripted.Turn{Text: "I guess it is svc-guessed.", Calls: []scripted.Call{
			{Name: "find", Arguments: `{"name":"nothing"}`},
			{Name: "find", Arguments: `{"name":"refused","current_service":"svc-injected"}`},
		}},
		scripted.Turn{Calls: []scripted.Call{{Name: "find", Arguments: `{"name":"pay"}`}}},
		scripted.Turn{Text: "It is current_service=svc-claimed."},
	)}))
	req := request()
	req.Session = &agent.SessionChange{Facts: []agent.ConfirmedFact{{Key: "region", Value: "eu"}}}
	g := begun{req, b.begin(req)}
	calls := b.act(g.next(0, 0)).Calls
	b.observe(g.read(0, calls[0]))
	if calls[1].Refused == nil {
		t.Errorf("the second call was not refused: %+v", calls[1])
	}
	if got := b.holds(req); got != "region=eu (user)" {
		t.Errorf("after a failed and a refused call: %s", got)
	}
	in := g.read(1, b.act(g.next(1, 0)).Calls[0])
	b.observe(in)
	b.observe(in) // done again it is one fact
	const want = "current_service=svc-pay (find 3 1.0); region=eu (user); size=3 (find 3 1.0)"
	if got := b.holds(req); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if action := b.act(g.next(2, 0)); action.Kind != agent.ActionFinal {
		t.Fatalf("got %+v", action)
	}
	if got := b.holds(req); got != want {
		t.Errorf("after the model's claim: %s", got)
	}
}

// TestLateFacts: a superseded run's result settles nothing.
func TestLateFacts(t *testing.T) {
	t.Parallel()
	b := setup(t, withFinder(options{script: scripted.RepeatLast(scripted.Turn{Calls: []scripted.Call{{Name: "find", Arguments: `{"name":"old"}`}}})}))
	first := b.start()
	call := b.act(first.next(0, 0)).Calls[0]
	second := request()
	second.Conversation = first.req.Conversation
	b.begin(second)
	if out := b.observe(first.read(0, call)); out.End != agent.ReasonSuperseded {
		t.Errorf("the late call came out %+v", out)
	}
	if got := b.holds(second); got != "" {
		t.Errorf("it settled %s", got)
	}
}

func TestSessionOfRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, withFinder(options{}))
	refused := func(change agent.SessionChange, says string) {
		t.Helper()
		req := request()
		req.Session = &change
		_, err := b.tryBegin(req)
		var refusal *temporal.ApplicationError
		if !errors.As(err, &refusal) || refusal.Type() != agent.ErrorInvalidRequest || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v", change, err)
		}
		if b.rows("run WHERE id = '"+req.RunID+"'") != 0 || b.rows("session_entry") != 0 {
			t.Errorf("%+v: something was stored", change)
		}
	}
	refused(agent.SessionChange{Facts: []agent.ConfirmedFact{{Key: "current_service", Value: "x"}}}, `takes no fact "current_service"`)
	refused(agent.SessionChange{Forbid: []string{"restart"}}, `has no tool "restart"`)
	refused(agent.SessionChange{Lift: []string{"p-1"}}, "session.lift: it names a prohibition that does not stand")
}

// TestProhibitions: what the user forbade refuses the calls that it covers,
// before anything is planned, until the user takes it back.
func TestProhibitions(t *testing.T) {
	t.Parallel()
	var last model.Request
	b := setup(t, withFinder(options{script: func(_ context.Context, req model.Request) (scripted.Turn, error) {
		last = req
		return scripted.Turn{Calls: []scripted.Call{{Name: "find", Arguments: `{"name":"pay"}`}, {Name: "look", Arguments: `{"at":"here"}`}}}, nil
	}}))
	conversation := ""
	turn := func(message string, change *agent.SessionChange) []agent.Call {
		t.Helper()
		req := request()
		req.Message, req.Session = message, change
		if conversation == "" {
			conversation = req.Conversation
		}
		req.Conversation = conversation
		g := begun{req, b.begin(req)}
		return b.act(g.next(0, 0)).Calls
	}
	wantRefused := func(what string, calls []agent.Call, refused bool) {
		t.Helper()
		if got := calls[0].Refused; (got != nil) != refused || refused && got.Code != agent.ToolProhibited {
			t.Errorf("%s: find was refused with %+v", what, got)
		}
		if calls[1].Refused != nil {
			t.Errorf("%s: look, which nobody forbade, was refused", what)
		}
	}
	wantRefused("at first", turn("What is up?", nil), false)
	wantRefused("forbidden", turn("Never find anything again. Thanks!", nil), true)
	wantRefused("a request lifts nothing", turn("Find it, please.", nil), true)
	wantRefused("nor does the model", turn("Go on.", nil), true)
	if text := last.Messages[len(last.Messages)-2].Text; !strings.Contains(text, `Never find anything again.`) || !strings.Contains(text, "fairlead_context") {
		t.Errorf("the model was not shown it: %s", text)
	}
	wantRefused("lifted by words", turn("I lift the ban on finding.", nil), false)
	wantRefused("by a switch", turn("Go on.", &agent.SessionChange{Forbid: []string{"find"}}), true)
	state, err := b.db.Session(b.ctx, request().Scope(), conversation)
	if err != nil || len(state.Prohibitions) != 1 {
		t.Fatalf("%+v, %v", state, err)
	}
	wantRefused("lifted by its ID", turn("Go on.", &agent.SessionChange{Lift: []string{state.Prohibitions[0].Key}}), false)
	wantRefused("a demand to be asked, which nobody would be before a read", turn("Do not find anything without asking me.", nil), true)
	wantRefused("said again", turn("Do not find anything without asking me.", nil), true)
	if got, want := b.holds(agent.RunRequest{Tenant: "acme", User: "ada", Environment: "production", Conversation: conversation}),
		`"Do not find anything without asking me." forbids [find] ask true`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	many := request()
	for i := range 20 {
		many.Message += fmt.Sprintf("Never find number %d. ", i)
	}
	if _, err := b.tryBegin(many); err == nil || !strings.Contains(err.Error(), "forbids more than 16") {
		t.Errorf("twenty prohibitions in one message: %v", err)
	}
}

// TestProhibitionOfAnotherAgent: what was said to one agent holds for the tools
// that another one has by the same words.
func TestProhibitionOfAnotherAgent(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	first := request()
	first.Message = "Never find anything. Just say hello."
	b.begin(first)
	if got, want := b.holds(first), `"Never find anything." forbids [] ask false`; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	b.runs = b.worker(withFinder(options{
		edit:   func(d *definition.Definition) { d.Version = "2" },
		script: scripted.RepeatLast(scripted.Turn{Calls: []scripted.Call{{Name: "find", Arguments: `{"name":"pay"}`}}}),
	}))
	second := request()
	second.Conversation = first.Conversation
	g := begun{second, b.begin(second)}
	if call := b.act(g.next(0, 0)).Calls[0]; call.Refused == nil || call.Refused.Code != agent.ToolProhibited {
		t.Errorf("the new tool was not refused: %+v", call)
	}
}

// TestPromptIsOnRecord (WM-6).
func TestPromptIsOnRecord(t *testing.T) {
	t.Parallel()
	b := setup(t, options{script: twoSteps})
	g := b.start()
	b.observe(g.read(0, b.act(g.next(0, 0)).Calls[0]))
	b.act(g.next(1, 0))
	for i, a := range b.show(g).Attempts() {
		var report struct {
			Input int64 `json:"input"`
			Parts []struct {
				Name   string `json:"name"`
				Tokens int64  `json:"tokens"`
			} `json:"parts"`
		}
		if err := json.Unmarshal(a.Prompt, &report); err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, p := range report.Parts {
			sum += p.Tokens
		}
		if report.Input == 0 || sum != report.Input || a.Reserved.Tokens < report.Input || strings.Contains(string(a.Prompt), canary) {
			t.Errorf("attempt %d: %s", i, a.Prompt)
		}
	}
}
