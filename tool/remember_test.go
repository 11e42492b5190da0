package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

// proposals is a proposer that notes what it was asked.
type proposals struct {
	asked []tool.MemoryProposal
	out   tool.MemoryProposed
	err   error
}

func (p *proposals) ProposeMemory(_ context.Context, _ tool.Invocation, proposal tool.MemoryProposal) (tool.MemoryProposed, error) {
	p.asked = append(p.asked, proposal)
	return p.out, p.err
}

func remember(t *testing.T, p *proposals, arguments string) (tool.Result, error) {
	t.Helper()
	registry, err := tool.NewRegistry(tool.NewRemember(p, tool.MemoryKey{Name: "default_environment", Description: "Where to look.", Schema: json.RawMessage(`{"enum":["production"]}`)}))
	if err != nil {
		t.Fatal(err)
	}
	actor := tool.Actor{Scope: agent.Scope{Tenant: "acme", User: "ann", Environment: "production"}}
	checked, refused := registry.Check(actor, []string{"remember"}, "remember", arguments)
	if refused != nil {
		return tool.Result{}, refused
	}
	return registry.Execute(t.Context(), tool.Call{
		Invocation: tool.Invocation{Actor: actor, RunID: "r", CallID: "0.0", Arguments: checked.Arguments},
		Tool:       "remember", Allow: []string{"remember"}, ArgumentsHash: checked.Hash,
	})
}

// TestRemember: what the model is told never says that anything was saved.
func TestRemember(t *testing.T) {
	t.Parallel()
	const arguments = `{"key":"default_environment","value":"production","quote":"default to production"}`
	for name, c := range map[string]struct {
		out  tool.MemoryProposed
		want string
	}{
		"proposed": {tool.MemoryProposed{State: agent.MemoryProposed}, `{"state":"proposed"}`},
		"rejected": {tool.MemoryProposed{State: agent.MemoryRejected, Reason: "evidence.quote"}, `{"state":"rejected","reason":"evidence.quote"}`},
		"away":     {tool.MemoryProposed{State: agent.MemoryNotSaved}, `{"state":"not_saved"}`},
	} {
		p := &proposals{out: c.out}
		result, err := remember(t, p, arguments)
		if err != nil || string(result.Content) != c.want {
			t.Errorf("%s: %s, %v", name, result.Content, err)
		}
		if len(p.asked) != 1 || p.asked[0].Kind != "" || p.asked[0].Key != "default_environment" || string(p.asked[0].Value) != `"production"` || p.asked[0].Quote != "default to production" {
			t.Errorf("%s: asked %+v", name, p.asked)
		}
	}
	_, err := remember(t, &proposals{err: errors.New("broken")}, arguments)
	var shown *tool.Error
	if !errors.As(err, &shown) || shown.Code != agent.ToolUnavailable {
		t.Errorf("broken: %v", err)
	}
}

func TestRememberRefusesArguments(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string]string{
		"no quote":     `{"key":"default_environment","value":"production"}`,
		"empty quote":  `{"key":"default_environment","value":"production","quote":""}`,
		"long quote":   `{"key":"default_environment","value":"production","quote":"` + strings.Repeat("x", agent.MaxMemoryQuoteBytes+1) + `"}`,
		"unknown kind": `{"kind":"instruction","key":"default_environment","value":"production","quote":"q"}`,
		"unknown key":  `{"key":"password","value":"hunter2","quote":"q"}`,
		"no value":     `{"key":"default_environment","quote":"q"}`,
		"more":         `{"key":"default_environment","value":"production","quote":"q","scope":"user"}`,
	} {
		p := &proposals{}
		_, err := remember(t, p, arguments)
		var shown *tool.Error
		if !errors.As(err, &shown) || shown.Code != agent.ToolInvalidArguments || len(p.asked) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRememberTellsOfTheKeys: the model knows what there is to remember, and that
// nothing is saved by asking.
func TestRememberTellsOfTheKeys(t *testing.T) {
	t.Parallel()
	spec := tool.NewRemember(&proposals{}, tool.MemoryKey{Name: "a.b", Description: "Is it.", Schema: json.RawMessage(`{"type":"string"}`)}).Spec()
	if spec.Risk != tool.Read || !spec.Fast || spec.Name != "remember" {
		t.Errorf("%+v", spec)
	}
	for _, part := range []string{"\na.b: Is it. {\"type\":\"string\"}", "do not tell the user that it was saved"} {
		if !strings.Contains(spec.Description, part) {
			t.Errorf("%q is not in %q", part, spec.Description)
		}
	}
	if !strings.Contains(string(spec.Parameters), `"enum":["a.b"]`) {
		t.Errorf("parameters %s", spec.Parameters)
	}
}
