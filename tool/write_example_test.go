package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

// replicas is a system in which a tool changes something. It keeps what it did
// beside the key with which it was asked, in the same step.
type replicas struct {
	mu      sync.Mutex
	count   int
	version int
	done    map[string]tool.Result
}

type scaleArgs struct {
	Service string `json:"service"`
	Count   int    `json:"count"`
}

func (r *replicas) prepare(_ context.Context, _ tool.Invocation, args scaleArgs) (tool.Plan, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if args.Service != "web" {
		return tool.Plan{}, &tool.Error{Code: agent.ToolNotFound, Message: "there is no service of this name"}
	}
	return tool.Plan{
		Resource: "service/" + args.Service,
		Version:  fmt.Sprint(r.version),
		Summary:  fmt.Sprintf("Run %d replicas of %s instead of %d.", args.Count, args.Service, r.count),
	}, nil
}

func (r *replicas) execute(_ context.Context, call tool.Invocation, args scaleArgs) (tool.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The key comes before the version: the first time has changed the version.
	if result, ok := r.done[call.Key]; ok {
		return result, nil
	}
	if call.Version != fmt.Sprint(r.version) {
		return tool.Result{}, tool.ErrStale
	}
	result, err := tool.JSON(map[string]int{"replicas": args.Count})
	if err != nil {
		return tool.Result{}, err
	}
	r.count, r.version, r.done[call.Key] = args.Count, r.version+1, result
	return result, nil
}

func (r *replicas) find(_ context.Context, call tool.Invocation, _ scaleArgs) (tool.Finding, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	result, ok := r.done[call.Key]
	if !ok {
		return tool.Finding{State: tool.FindAbsent}, nil
	}
	return tool.Finding{State: tool.FindPerformed, Result: result}, nil
}

func scaleSpec() tool.Spec {
	return tool.Spec{
		Name:        "scale_service",
		Version:     "1",
		Description: "Changes how many replicas of a service run.",
		Source:      "scheduler",
		Parameters: json.RawMessage(`{
			"type": "object",
			"properties": {
				"service": {"type": "string", "maxLength": 64},
				"count":   {"type": "integer", "minimum": 1, "maximum": 20}
			},
			"required": ["service", "count"]
		}`),
	}
}

// A typed write tool: prepared, confirmed, performed once, and looked up.
func ExampleNewWrite() {
	system := &replicas{count: 2, version: 7, done: map[string]tool.Result{}}
	scale, err := tool.NewWrite(scaleSpec(), tool.WriteFuncs[scaleArgs]{Prepare: system.prepare, Execute: system.execute, Find: system.find})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry, err := tool.NewRegistry(scale)
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx := context.Background()
	actor := tool.Actor{Scope: agent.Scope{Tenant: "acme", User: "ann", Environment: "production"}}
	allow := []string{"scale_service"}
	checked, refused := registry.Check(actor, allow, "scale_service", `{"service": "web", "count": 5}`)
	if refused != nil {
		fmt.Println(refused)
		return
	}
	call := tool.Call{
		Invocation: tool.Invocation{Actor: actor, RunID: "run-1", CallID: "1.0", Arguments: checked.Arguments},
		Tool:       "scale_service", Allow: allow, ArgumentsHash: checked.Hash,
	}
	plan, err := registry.Prepare(ctx, call)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s at %s: %s\n", plan.Resource, plan.Version, plan.Summary)

	// A person has confirmed the plan.
	call.Version, call.Key = plan.Version, tool.Hash([]byte("run-1/1.0/1"))
	for range 2 { // a worker that died is asked again, with the same key
		result, err := registry.Commit(ctx, call)
		fmt.Println(string(result.Content), err, "version", system.version)
	}
	finding, err := registry.Find(ctx, call)
	fmt.Println(finding.State, string(finding.Result.Content), err)

	// Another write was prepared before this one and is confirmed too late.
	call.Key = tool.Hash([]byte("run-2/1.0/1"))
	_, err = registry.Commit(ctx, call)
	fmt.Println(err)
	// Output:
	// service/web at 7: Run 5 replicas of web instead of 2.
	// {"replicas":5} <nil> version 8
	// {"replicas":5} <nil> version 8
	// performed {"replicas":5} <nil>
	// commit scale_service: the resource has changed
}

func TestNewWriteRefuses(t *testing.T) {
	t.Parallel()
	system := &replicas{}
	whole := tool.WriteFuncs[scaleArgs]{Prepare: system.prepare, Execute: system.execute, Find: system.find}
	for name, tt := range map[string]struct {
		change func(*tool.Spec, *tool.WriteFuncs[scaleArgs])
		want   string
	}{
		"no prepare":             {func(_ *tool.Spec, f *tool.WriteFuncs[scaleArgs]) { f.Prepare = nil }, "needs both"},
		"no execute":             {func(_ *tool.Spec, f *tool.WriteFuncs[scaleArgs]) { f.Execute = nil }, "needs both"},
		"risk read":              {func(s *tool.Spec, _ *tool.WriteFuncs[scaleArgs]) { s.Risk = tool.Read }, "of risk write"},
		"fast":                   {func(s *tool.Spec, _ *tool.WriteFuncs[scaleArgs]) { s.Fast = true }, "fast is for reads"},
		"invalid name":           {func(s *tool.Spec, _ *tool.WriteFuncs[scaleArgs]) { s.Name = "Scale" }, "name"},
		"in flight without Find": {func(s *tool.Spec, f *tool.WriteFuncs[scaleArgs]) { s.InFlight, f.Find = time.Minute, nil }, "Finders"},
	} {
		declared, funcs := scaleSpec(), whole
		tt.change(&declared, &funcs)
		if made, err := tool.NewWrite(declared, funcs); made != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNewWriteIsAFinderOnlyWithFind(t *testing.T) {
	t.Parallel()
	system := &replicas{}
	funcs := tool.WriteFuncs[scaleArgs]{Prepare: system.prepare, Execute: system.execute}
	without, err := tool.NewWrite(scaleSpec(), funcs)
	if err != nil {
		t.Fatal(err)
	}
	funcs.Find = system.find
	with, err := tool.NewWrite(scaleSpec(), funcs)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := without.(tool.Finder); ok {
		t.Error("a writer without Find is a Finder")
	}
	if _, ok := with.(tool.Finder); !ok {
		t.Error("a writer with Find is no Finder")
	}
	if with.Spec().Risk != tool.Write || without.Spec().Risk != tool.Write {
		t.Error("the risk is not write")
	}
}

func TestNewWriteAuthorizes(t *testing.T) {
	t.Parallel()
	system := &replicas{count: 2, done: map[string]tool.Result{}}
	made, err := tool.NewWrite(scaleSpec(), tool.WriteFuncs[scaleArgs]{
		Prepare: system.prepare, Execute: system.execute,
		Authorize: func(_ context.Context, _ tool.Invocation, args scaleArgs) error {
			if args.Count > 10 {
				return tool.ErrForbidden
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := registry(t, made)
	for arguments, want := range map[string]string{
		`{"count":10,"service":"web"}`: "",
		`{"count":11,"service":"web"}`: "*Error forbidden: not allowed",
	} {
		c := writeCall("scale_service")
		c.Arguments, c.ArgumentsHash = []byte(arguments), ""
		if _, err := r.Prepare(t.Context(), c); kinds(err) != want {
			t.Errorf("prepare %s: %v", arguments, err)
		}
		c.Version = "0"
		if _, err := r.Commit(t.Context(), c); kinds(err) != want {
			t.Errorf("commit %s: %v", arguments, err)
		}
	}
}

// A field that the schema has and the struct lacks is a defect of the tool. It
// is found before the tool's own code runs, so it is a promise at commit.
func TestNewWriteDecodesStrictly(t *testing.T) {
	t.Parallel()
	type lacking struct {
		Service string `json:"service"`
	}
	errCalled := errors.New("the tool's code was called")
	made, err := tool.NewWrite(scaleSpec(), tool.WriteFuncs[lacking]{
		Prepare: func(context.Context, tool.Invocation, lacking) (tool.Plan, error) { return tool.Plan{}, errCalled },
		Execute: func(context.Context, tool.Invocation, lacking) (tool.Result, error) { return tool.Result{}, errCalled },
		Find: func(context.Context, tool.Invocation, lacking) (tool.Finding, error) {
			return tool.Finding{}, errCalled
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := registry(t, made)
	c := writeCall("scale_service")
	c.Arguments, c.ArgumentsHash = []byte(`{"count":3,"service":"web"}`), ""
	const want = "*Error invalid_arguments: the arguments do not fit this tool"
	if _, err := r.Prepare(t.Context(), c); kinds(err) != want {
		t.Errorf("prepare: %v", err)
	}
	if _, err := r.Commit(t.Context(), c); kinds(err) != want {
		t.Errorf("commit: %v", err)
	}
	finding, err := r.Find(t.Context(), c)
	if kinds(err) != "ErrOutcomeUnknown" || finding.State != tool.FindUnknown || errors.Is(tool.Cause(err), errCalled) {
		t.Errorf("find: %+v, %v", finding, err)
	}
}
