package agenttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

func TestMain(m *testing.M) {
	// A test that ends in the middle of a run leaves the SDK's coroutines of the
	// workflow behind; some tests here are made to end so.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("go.temporal.io/sdk/internal.(*coroutineState).initialYield"))
}

// services is the system that the tests' agent changes.
type services struct {
	mu       sync.Mutex
	version  int
	restarts int
	done     map[string]bool
	// forgetful is a system without look-up and without memory of keys.
	forgetful bool
	// blind is a system that cannot tell what it did.
	blind bool
	// deny refuses in the authorizer, broken makes it fail.
	deny, broken bool
}

func newServices() *services { return &services{version: 7, done: make(map[string]bool)} }

func (s *services) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restarts
}

// see ends the blindness of the system.
func (s *services) see() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blind = false
}

// change is what somebody else does to the service.
func (s *services) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
}

type restartArgs struct {
	Service string `json:"service"`
}

func (s *services) tools() []tool.Tool {
	must := func(t tool.Tool, err error) tool.Tool {
		if err != nil {
			panic(err)
		}
		return t
	}
	parameters := json.RawMessage(`{"type":"object","properties":{"service":{"type":"string"}},"required":["service"]}`)
	look := must(tool.NewRead(tool.Spec{
		Name: "look", Version: "1", Description: "Looks at a service.", Risk: tool.Read, Source: "services", Parameters: parameters,
	}, func(_ context.Context, _ tool.Invocation, args restartArgs) (tool.Result, error) {
		if args.Service == "crash" {
			panic("a tool of the user broke")
		}
		return tool.JSON(map[string]string{"service": args.Service, "state": "failing"})
	}))
	funcs := tool.WriteFuncs[restartArgs]{
		Prepare: func(_ context.Context, _ tool.Invocation, args restartArgs) (tool.Plan, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if args.Service == "nowhere" {
				return tool.Plan{}, &tool.Error{Code: agent.ToolNotFound, Message: "there is no such service"}
			}
			return tool.Plan{Resource: "service/" + args.Service, Version: fmt.Sprint(s.version), Summary: "Restart " + args.Service + "."}, nil
		},
		Execute: func(_ context.Context, call tool.Invocation, args restartArgs) (tool.Result, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.forgetful && s.done[call.Key] {
				return tool.JSON(map[string]bool{"restarted": true})
			}
			if call.Version != fmt.Sprint(s.version) {
				return tool.Result{}, tool.ErrStale
			}
			s.restarts++
			s.done[call.Key] = true
			return tool.JSON(map[string]bool{"restarted": true})
		},
		Authorize: func(context.Context, tool.Invocation, restartArgs) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			switch {
			case s.broken:
				return errors.New("the authorizer cannot be reached")
			case s.deny:
				return tool.ErrForbidden
			}
			return nil
		},
	}
	if !s.forgetful {
		funcs.Find = func(_ context.Context, call tool.Invocation, _ restartArgs) (tool.Finding, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			switch {
			case s.blind:
				return tool.Finding{State: tool.FindUnknown}, nil
			case !s.done[call.Key]:
				return tool.Finding{State: tool.FindAbsent}, nil
			}
			result, err := tool.JSON(map[string]bool{"restarted": true})
			return tool.Finding{State: tool.FindPerformed, Result: result}, err
		}
	}
	restart := must(tool.NewWrite(tool.Spec{
		Name: "restart", Version: "1", Description: "Restarts a service.", Source: "services", Parameters: parameters,
	}, funcs))
	return []tool.Tool{look, restart}
}

const operator = `
name: operator
version: "1"
model: gpt-4.1-mini
system: You restart services.
tools: [look, restart, fetch_result]
environments: [production]
budget: {max_steps: 8, max_tool_calls: 8, max_tokens: 100000, max_cost_micros: 1000000, timeout: 2m}
writes: {confirm_within: 1h}
`

func definitionOf(t testing.TB, text string) definition.Definition {
	t.Helper()
	d, err := definition.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func calls(name, arguments string) scripted.Turn {
	return scripted.Turn{Calls: []scripted.Call{{Name: name, Arguments: arguments}}}
}

// restartOnce calls restart and then says so.
var restartOnce = scripted.ByStep(calls("restart", `{ "service": "payment-api" }`), scripted.Turn{Text: "It was restarted."})

func suiteOf(t testing.TB, s *services, script scripted.Script, edit ...func(*agenttest.Config)) *agenttest.Suite {
	t.Helper()
	c := agenttest.Config{Definition: definitionOf(t, operator), Tools: s.tools(), Script: script, Policies: team}
	for _, e := range edit {
		e(&c)
	}
	return agenttest.New(t, c)
}

// team lets bob and cat confirm what others ask for.
var team = fstest.MapFS{
	"team.cedar": {Data: []byte(`
permit (principal, action in [Action::"offer", Action::"read", Action::"prepare", Action::"commit"], resource);
permit (principal in Group::"acme/approvers", action == Action::"approve", resource) when { principal != context.requester };
permit (principal == User::"acme/opa", action == Action::"settle", resource);
`)},
	"entities.json": {Data: []byte(`[
	{"uid": {"type": "User", "id": "acme/bob"}, "attrs": {}, "parents": [{"type": "Group", "id": "acme/approvers"}]},
	{"uid": {"type": "User", "id": "acme/cat"}, "attrs": {}, "parents": [{"type": "Group", "id": "acme/approvers"}]},
	{"uid": {"type": "User", "id": "acme/ann"}, "attrs": {}, "parents": [{"type": "Group", "id": "acme/approvers"}]},
	{"uid": {"type": "User", "id": "acme/opa"}, "attrs": {}, "parents": []},
	{"uid": {"type": "Group", "id": "acme/approvers"}, "attrs": {}, "parents": []}
]`)},
}
