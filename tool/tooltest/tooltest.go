// Package tooltest is the conformance suite for implementations of tool.Tool:
// Check for all of them, CheckWrite for the effect of a tool.Writer.
package tooltest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

// cancelPatience is how long a tool may take to notice that its context ended.
const cancelPatience = 2 * time.Second

// Check fails t unless the tool keeps the contract of tool.Tool. The sample is
// a call that must succeed, against a fake of whatever the tool talks to; its
// Actor must be one that the tool is offered to. The zero Actor, RunID and
// CallID are filled in.
//
// It checks that the declaration is valid and does not change, that the sample
// fits the schema, that undeclared fields are refused, that the sample succeeds
// with a result that Registry.Execute accepts, and that a canceled context ends
// an execution within 2 s. The tool is executed twice.
//
// A tool of risk write is prepared instead of executed, three times: the plan
// must be valid, and the same when nothing has changed in between. Nothing is
// written; that is what CheckWrite does.
func Check(t testing.TB, subject tool.Tool, sample tool.Invocation) {
	t.Helper()
	s := begin(t, subject, sample)
	if marshal(t, subject.Spec()) != s.declared {
		t.Error("Spec returns something else the second time")
	}
	if _, refused := s.registry.Check(s.call.Actor, s.call.Allow, s.call.Tool, withField(t, s.call.Arguments)); refused == nil || refused.Code != agent.ToolInvalidArguments {
		t.Errorf("an undeclared field gives %v, want %s", refused, agent.ToolInvalidArguments)
	}
	writer, ok := subject.(tool.Writer)
	if !ok {
		checkExecute(t, s)
		checkCancel(t, "execution", func(ctx context.Context) { _, _ = subject.Execute(ctx, s.call.Invocation) })
		return
	}
	checkPrepare(t, s)
	checkCancel(t, "preparation", func(ctx context.Context) { _, _ = writer.Prepare(ctx, s.call.Invocation) })
}

// suite is a subject and a call of it that is to succeed.
type suite struct {
	registry *tool.Registry
	declared string
	call     tool.Call
}

// begin registers the subject and checks that the sample fits.
func begin(t testing.TB, subject tool.Tool, sample tool.Invocation) suite {
	t.Helper()
	if sample.Actor.Scope == (agent.Scope{}) {
		sample.Actor.Scope = agent.Scope{Tenant: "tenant-1", User: "user-1", Environment: "test"}
	}
	if sample.RunID == "" {
		sample.RunID = "run-1"
	}
	if sample.CallID == "" {
		sample.CallID = "1.0"
	}
	registry, err := tool.NewRegistry(subject)
	if err != nil {
		t.Fatalf("the declaration is not valid: %v", err)
	}
	spec := subject.Spec()
	allow := []string{spec.Name}
	checked, refused := registry.Check(sample.Actor, allow, spec.Name, string(sample.Arguments))
	if refused != nil {
		t.Fatalf("the sample is refused: %v", refused)
	}
	sample.Arguments = checked.Arguments
	return suite{registry, marshal(t, spec), tool.Call{Invocation: sample, Tool: spec.Name, Allow: allow, ArgumentsHash: checked.Hash}}
}

func checkExecute(t testing.TB, s suite) {
	t.Helper()
	result, err := s.registry.Execute(t.Context(), s.call)
	if err != nil {
		t.Errorf("the sample fails: %v (cause: %v)", err, errors.Unwrap(err))
		return
	}
	checkResult(t, result)
}

func checkResult(t testing.TB, result tool.Result) {
	t.Helper()
	if result.Unreadable {
		t.Error("the sample is performed, and its result is not valid")
	}
	if result.Truncated {
		t.Errorf("the sample's result is longer than %d bytes", tool.MaxResultBytes)
	}
	if !utf8.Valid(result.Content) {
		t.Error("the sample's result is not valid UTF-8")
	}
}

func checkPrepare(t testing.TB, s suite) {
	t.Helper()
	plan, err := s.registry.Prepare(t.Context(), s.call)
	if err != nil {
		t.Errorf("the sample cannot be prepared: %v (cause: %v)", err, tool.Cause(err))
		return
	}
	again, err := s.registry.Prepare(t.Context(), s.call)
	if err != nil {
		t.Errorf("the sample cannot be prepared a second time: %v (cause: %v)", err, tool.Cause(err))
		return
	}
	if again != plan {
		t.Errorf("the plan differs the second time, so a person's confirmation would never hold:\n%+v\n%+v", plan, again)
	}
}

func checkCancel(t testing.TB, what string, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		f(ctx)
	}()
	select {
	case crash := <-done:
		if crash != nil {
			t.Errorf("panic with a canceled context: %v", crash)
		}
	case <-time.After(cancelPatience):
		t.Errorf("a canceled context does not end the %s within %s", what, cancelPatience)
	}
}

func withField(t testing.TB, arguments json.RawMessage) string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(arguments, &fields); err != nil {
		t.Fatal(err)
	}
	fields["fairlead_undeclared_field"] = json.RawMessage("1")
	return marshal(t, fields)
}

func marshal(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
