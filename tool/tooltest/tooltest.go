// Package tooltest is the conformance suite for implementations of tool.Tool.
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
// Actor must be one that the tool is offered to. The zero Actor and RunID are
// filled in.
//
// It checks that the declaration is valid and does not change, that the sample
// fits the schema, that undeclared fields are refused, that the sample succeeds
// with a result that Registry.Execute accepts, and that a canceled context ends
// an execution within 2 s. The tool is executed twice. Of tools of risk write
// only the declaration is checked, because a registry does not offer them.
func Check(t *testing.T, subject tool.Tool, sample tool.Invocation) {
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
	if again := subject.Spec(); marshal(t, again) != marshal(t, spec) {
		t.Error("Spec returns something else the second time")
	}
	if spec.Risk == tool.Write {
		return
	}
	allow := []string{spec.Name}
	checked, refused := registry.Check(sample.Actor, allow, spec.Name, string(sample.Arguments))
	if refused != nil {
		t.Fatalf("the sample is refused: %v", refused)
	}
	sample.Arguments = checked.Arguments
	if _, refused := registry.Check(sample.Actor, allow, spec.Name, withField(t, sample.Arguments)); refused == nil || refused.Code != agent.ToolInvalidArguments {
		t.Errorf("an undeclared field gives %v, want %s", refused, agent.ToolInvalidArguments)
	}
	checkSample(t, registry, spec, sample, checked.Hash)
	checkCancel(t, subject, sample)
}

func checkSample(t *testing.T, registry *tool.Registry, spec tool.Spec, sample tool.Invocation, hash string) {
	t.Helper()
	result, err := registry.Execute(t.Context(), tool.Call{
		Invocation: sample, Tool: spec.Name, Allow: []string{spec.Name}, ArgumentsHash: hash,
	})
	if err != nil {
		t.Errorf("the sample fails: %v (cause: %v)", err, errors.Unwrap(err))
		return
	}
	if result.Truncated {
		t.Errorf("the sample's result is longer than %d bytes", tool.MaxResultBytes)
	}
	if !utf8.Valid(result.Content) {
		t.Error("the sample's result is not valid UTF-8")
	}
}

func checkCancel(t *testing.T, subject tool.Tool, sample tool.Invocation) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		_, _ = subject.Execute(ctx, sample)
	}()
	select {
	case crash := <-done:
		if crash != nil {
			t.Errorf("panic with a canceled context: %v", crash)
		}
	case <-time.After(cancelPatience):
		t.Errorf("a canceled context does not end the execution within %s", cancelPatience)
	}
}

func withField(t *testing.T, arguments json.RawMessage) string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(arguments, &fields); err != nil {
		t.Fatal(err)
	}
	fields["fairlead_undeclared_field"] = json.RawMessage("1")
	return marshal(t, fields)
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
