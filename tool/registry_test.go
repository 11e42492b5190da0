package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

// fake is a tool whose parts a test sets.
type fake struct {
	spec      tool.Spec
	execute   func(ctx context.Context, call tool.Invocation) (tool.Result, error)
	authorize func(ctx context.Context, call tool.Invocation) error
}

func (f fake) Spec() tool.Spec { return f.spec }

func (f fake) Execute(ctx context.Context, call tool.Invocation) (tool.Result, error) {
	if f.execute == nil {
		return tool.Result{Content: call.Arguments}, nil
	}
	return f.execute(ctx, call)
}

func (f fake) Authorize(ctx context.Context, call tool.Invocation) error {
	if f.authorize == nil {
		return nil
	}
	return f.authorize(ctx, call)
}

// fakeWriter is a write without a look-up, fakeFinder one with it.
type fakeWriter struct {
	fake
	prepare func(ctx context.Context, call tool.Invocation) (tool.Plan, error)
}

func (f fakeWriter) Prepare(ctx context.Context, call tool.Invocation) (tool.Plan, error) {
	if f.prepare == nil {
		return plan, nil
	}
	return f.prepare(ctx, call)
}

type fakeFinder struct {
	fakeWriter
	find func(ctx context.Context, call tool.Invocation) (tool.Finding, error)
}

func (f fakeFinder) Find(ctx context.Context, call tool.Invocation) (tool.Finding, error) {
	return f.find(ctx, call)
}

var plan = tool.Plan{Resource: "service/web.production", Version: "7", Summary: "Restart web."}

// spec returns a valid declaration, changed by change.
func spec(name string, change ...func(*tool.Spec)) tool.Spec {
	s := tool.Spec{
		Name: name, Version: "1", Description: "Searches logs.", Risk: tool.Read, Source: "log-store",
		Parameters: json.RawMessage(`{"type":"object","properties":{"service":{"type":"string"},"limit":{"type":"integer","maximum":10}},"required":["service"]}`),
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

// asWrite makes the declaration that of a write.
func asWrite(s *tool.Spec) { s.Risk = tool.Write }

var actor = tool.Actor{
	Scope: agent.Scope{Tenant: "acme", User: "ann", Environment: "production"},
	Page:  "incidents", Flags: []string{"beta"},
}

func registry(t *testing.T, tools ...tool.Tool) *tool.Registry {
	t.Helper()
	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNewRegistryRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*tool.Spec)
		want   string
	}{
		"empty name":       {func(s *tool.Spec) { s.Name = "" }, "name"},
		"upper case":       {func(s *tool.Spec) { s.Name = "Search" }, "name"},
		"hyphen":           {func(s *tool.Spec) { s.Name = "search-logs" }, "name"},
		"digit first":      {func(s *tool.Spec) { s.Name = "1search" }, "name"},
		"65 bytes":         {func(s *tool.Spec) { s.Name = strings.Repeat("a", 65) }, "name"},
		"Cyrillic a":       {func(s *tool.Spec) { s.Name = "se\u0430rch" }, "name"},
		"full-width":       {func(s *tool.Spec) { s.Name = "\uff53earch" }, "name"},
		"zero-width":       {func(s *tool.Spec) { s.Name = "sea\u200brch" }, "name"},
		"final newline":    {func(s *tool.Spec) { s.Name = "search\n" }, "name"},
		"no version":       {func(s *tool.Spec) { s.Version = "" }, "version"},
		"no description":   {func(s *tool.Spec) { s.Description = "" }, "description"},
		"no risk":          {func(s *tool.Spec) { s.Risk = "" }, "risk must be"},
		"other risk":       {func(s *tool.Spec) { s.Risk = "delete" }, "risk must be"},
		"fast write":       {func(s *tool.Spec) { s.Risk, s.Fast = tool.Write, true }, "fast is for reads"},
		"no source":        {func(s *tool.Spec) { s.Source = "" }, "source"},
		"other trust":      {func(s *tool.Spec) { s.Trust = "full" }, "trust"},
		"no parameters":    {func(s *tool.Spec) { s.Parameters = nil }, "parameters"},
		"open parameters":  {func(s *tool.Spec) { s.Parameters = json.RawMessage(`{"type":"object","additionalProperties":true}`) }, "parameters"},
		"negative timeout": {func(s *tool.Spec) { s.Timeout = -1 }, "timeout"},
		"many attempts":    {func(s *tool.Spec) { s.Attempts = 11 }, "attempts"},
		"bad environment":  {func(s *tool.Spec) { s.Environments = []string{"a b"} }, "environments"},
		"empty page":       {func(s *tool.Spec) { s.Pages = []string{""} }, "pages"},
		"bad flag":         {func(s *tool.Spec) { s.Flag = "a b" }, "flag"},
		"fact key":         {facts(tool.Fact{Key: "Service", Pointer: "/a"}), "facts[0]: the key must"},
		"no fact key":      {facts(tool.Fact{Pointer: "/a"}), "facts[0]: the key must"},
		"fact key twice":   {facts(tool.Fact{Key: "a", Pointer: "/a"}, tool.Fact{Key: "a", Pointer: "/b"}), `facts[1]: the key "a" is there twice`},
		"pointer a/b":      {facts(tool.Fact{Key: "a", Pointer: "a/b"}), "facts[0]: the pointer"},
		"pointer /~2":      {facts(tool.Fact{Key: "a", Pointer: "/~2"}), "facts[0]: the pointer"},
		"pointer /a~":      {facts(tool.Fact{Key: "a", Pointer: "/a~"}), "facts[0]: the pointer"},
		"pointer in UTF-8": {facts(tool.Fact{Key: "a", Pointer: "/\xff"}), "facts[0]: the pointer"},
		"long pointer":     {facts(tool.Fact{Key: "a", Pointer: strings.Repeat("/a", 129)}), "facts[0]: the pointer"},
		"17 facts":         {facts(make([]tool.Fact, 17)...), "facts has 17 entries, the limit is 16"},
		"empty verb":       {verbs("restart", ""), "verbs[1] must be 1 to 64 bytes"},
		"long verb":        {verbs(strings.Repeat("启", 22)), "verbs[0] must be 1 to 64 bytes"},
		"verb of lines":    {verbs("roll\nback"), "verbs[0] must be"},
		"space before":     {verbs(" restart"), "verbs[0] must be"},
		"hidden in a verb": {verbs("re\u200bstart"), "verbs[0] must be"},
		"verb in UTF-8":    {verbs("\xff"), "verbs[0] must be"},
		"verb in capitals": {verbs("Restart"), `verbs[0] "Restart" must be in lower case`},
		"verb twice":       {verbs("restart", "reboot", "restart"), `verbs[2] "restart" is there twice`},
		"33 verbs":         {verbs(make([]string, 33)...), "verbs has 33 entries, the limit is 32"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tool.NewRegistry(fake{spec: spec("search", tt.change)})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	inFlight := func(s *tool.Spec) { s.InFlight = time.Minute }
	for name, tt := range map[string]struct {
		tool tool.Tool
		want string
	}{
		"write without Prepare":  {fake{spec: spec("restart", asWrite)}, "no Writer"},
		"Writer of risk read":    {fakeWriter{fake: fake{spec: spec("restart")}}, "its risk must be write"},
		"negative in flight":     {fakeFinder{fakeWriter: fakeWriter{fake: fake{spec: spec("restart", asWrite, func(s *tool.Spec) { s.InFlight = -1 })}}}, "in flight is negative"},
		"in flight of a read":    {fake{spec: spec("search", inFlight)}, "in flight is for writes"},
		"in flight without Find": {fakeWriter{fake: fake{spec: spec("restart", asWrite, inFlight)}}, "Finders"},
	} {
		if _, err := tool.NewRegistry(tt.tool); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
	if _, err := tool.NewRegistry(fakeFinder{fakeWriter: fakeWriter{fake: fake{spec: spec("restart", asWrite, inFlight)}}}); err != nil {
		t.Errorf("in flight of a Finder: %v", err)
	}
	if _, err := tool.NewRegistry(fake{spec: spec("a")}, fake{spec: spec("a")}); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("a repeated name: %v", err)
	}
	if _, err := tool.NewRegistry(nil); err == nil {
		t.Error("a nil tool was accepted")
	}
}

func TestOffer(t *testing.T) {
	t.Parallel()
	r := registry(t,
		fake{spec: spec("zebra")},
		fake{spec: spec("alpha")},
		fake{spec: spec("prod_only", func(s *tool.Spec) { s.Environments = []string{"production"} })},
		fake{spec: spec("test_only", func(s *tool.Spec) { s.Environments = []string{"test"} })},
		fake{spec: spec("on_page", func(s *tool.Spec) { s.Pages = []string{"home", "incidents"} })},
		fake{spec: spec("off_page", func(s *tool.Spec) { s.Pages = []string{"home"} })},
		fake{spec: spec("flagged", func(s *tool.Spec) { s.Flag = "beta" })},
		fake{spec: spec("unflagged", func(s *tool.Spec) { s.Flag = "gamma" })},
		fakeWriter{fake: fake{spec: spec("restart", asWrite)}},
		fakeWriter{fake: fake{spec: spec("erase", asWrite)}},
		fake{spec: spec("not_allowed")},
	)
	allow := []string{"zebra", "alpha", "prod_only", "test_only", "on_page", "off_page", "flagged", "unflagged", "restart", "absent", "zebra"}
	var names []string
	for _, s := range r.Offer(actor, allow) {
		names = append(names, s.Name)
	}
	if want := []string{"alpha", "flagged", "on_page", "prod_only", "restart", "zebra"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	if got := r.Offer(tool.Actor{}, []string{"prod_only", "on_page", "flagged"}); len(got) != 0 {
		t.Errorf("an empty actor is offered %v", got)
	}
	if got := r.Offer(actor, nil); len(got) != 0 {
		t.Errorf("an empty list offers %v", got)
	}
	if got := r.Missing(allow); !slices.Equal(got, []string{"absent"}) {
		t.Errorf("missing %v", got)
	}
	if write := r.Offer(actor, []string{"restart"})[0]; write.Attempts != 1 || write.Timeout != tool.DefaultTimeout {
		t.Errorf("defaults of a write: %+v", write)
	}
	offered := r.Offer(actor, []string{"alpha"})[0]
	if offered.Timeout != tool.DefaultTimeout || offered.Attempts != 3 || offered.ExcerptBytes != 4096 || offered.Trust != tool.Untrusted || offered.MaxConcurrent != 16 {
		t.Errorf("defaults: %+v", offered)
	}
	offered.Parameters[0] = 'X'
	if r.Offer(actor, []string{"alpha"})[0].Parameters[0] != '{' {
		t.Error("a caller can change the registry's schema")
	}
}

func facts(list ...tool.Fact) func(*tool.Spec) { return func(s *tool.Spec) { s.Facts = list } }

func verbs(list ...string) func(*tool.Spec) { return func(s *tool.Spec) { s.Verbs = list } }

// The limits themselves are allowed, for reads and writes, and what an author
// changes later changes nothing.
func TestRegistryKeepsFactsAndVerbs(t *testing.T) {
	t.Parallel()
	list := []tool.Fact{
		{Key: "whole", Pointer: ""},
		{Key: "empty.key", Pointer: "/"},
		{Key: "escaped", Pointer: "/a~1b/~0/0"},
		{Key: "current_service", Pointer: "/服务/id"},
		{Key: "long", Pointer: strings.Repeat("/a", 128)},
	}
	for i := len(list); i < 16; i++ {
		list = append(list, tool.Fact{Key: fmt.Sprintf("k%d", i), Pointer: "/same"})
	}
	words := []string{"restart", "roll back", "重启", strings.Repeat("v", 64)}
	wantFacts, wantVerbs := slices.Clone(list), slices.Clone(words)
	write := fakeWriter{fake: fake{spec: spec("restart", asWrite, facts(list...), verbs(words...))}}
	read := fake{spec: spec("search", facts(list...), verbs(words...))}
	r := registry(t, write, read)
	list[0].Key, words[0] = "changed", "changed"
	for _, name := range []string{"restart", "search"} {
		got, _ := r.Spec(name)
		if !slices.Equal(got.Facts, wantFacts) || !slices.Equal(got.Verbs, wantVerbs) {
			t.Fatalf("%s: got %v, %v", name, got.Facts, got.Verbs)
		}
		got.Facts[0].Key, got.Verbs[0] = "changed", "changed"
		if again, _ := r.Spec(name); again.Facts[0].Key != "whole" || again.Verbs[0] != "restart" {
			t.Errorf("%s: a caller can change the registry's spec", name)
		}
	}
}

func TestRegistrySpec(t *testing.T) {
	t.Parallel()
	r := registry(t, fakeWriter{fake: fake{spec: spec("restart", asWrite, func(s *tool.Spec) { s.Flag = "nobody" })}})
	got, ok := r.Spec("restart")
	if !ok || got.Risk != tool.Write || got.Timeout != tool.DefaultTimeout || got.Version != "1" {
		t.Errorf("got %+v, %t", got, ok)
	}
	got.Parameters[0] = 'X'
	if again, _ := r.Spec("restart"); again.Parameters[0] != '{' {
		t.Error("a caller can change the registry's schema")
	}
	if got, ok := r.Spec("Restart"); ok || got.Name != "" {
		t.Errorf("another name gives %+v", got)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	r := registry(t, fake{spec: spec("search")}, fake{spec: spec("deploys")}, fakeWriter{fake: fake{spec: spec("restart", asWrite)}})
	allow := []string{"search", "deploys", "restart"}
	const available = "there is no tool of this name; available: deploys, restart, search"
	for name, tt := range map[string]struct {
		tool, raw string
		code      agent.ToolErrorCode
		message   string
		hashOf    string
	}{
		"fits":              {"search", `{ "service":"web", "limit":1.0 }`, "", "", `{"limit":1,"service":"web"}`},
		"unknown":           {"serch", `{"b":1,"a":2}`, agent.ToolUnknown, available, `{"a":2,"b":1}`},
		"other case":        {"Search", `{}`, agent.ToolUnknown, available, `{}`},
		"space":             {"search ", `{}`, agent.ToolUnknown, available, `{}`},
		"Cyrillic":          {"se\u0430rch", `{}`, agent.ToolUnknown, available, `{}`},
		"full-width":        {"\uff53earch", `{}`, agent.ToolUnknown, available, `{}`},
		"a write":           {"restart", `{"service":"web"}`, "", "", `{"service":"web"}`},
		"a write, unfit":    {"restart", `{}`, agent.ToolInvalidArguments, "the arguments do not fit: at the top level: missing (required): service", `{}`},
		"not JSON":          {"search", `{"service":"hunter2`, agent.ToolInvalidArguments, "the arguments cannot be read: not valid JSON: the text ends too early or breaks off at byte 19", `{"service":"hunter2`},
		"duplicate":         {"search", `{"service":"a","service":"b"}`, agent.ToolInvalidArguments, "the arguments cannot be read: an object has the same key twice, the second time before byte 24", `{"service":"a","service":"b"}`},
		"unknown field":     {"search", `{"service":"a","hunter2":1}`, agent.ToolInvalidArguments, "the arguments do not fit: at the top level: unknown field (additionalProperties); known: limit, service", `{"hunter2":1,"service":"a"}`},
		"above the maximum": {"search", `{"service":"a","limit":99}`, agent.ToolInvalidArguments, "the arguments do not fit: at /limit: must be at most 10 (maximum)", `{"limit":99,"service":"a"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checked, refused := r.Check(actor, allow, tt.tool, tt.raw)
			if checked.Hash != tool.Hash([]byte(tt.hashOf)) {
				t.Errorf("hash is not that of %s", tt.hashOf)
			}
			if tt.code == "" {
				if refused != nil || string(checked.Arguments) != tt.hashOf || checked.Spec.Name != tt.tool {
					t.Errorf("got %+v, %v", checked, refused)
				}
				return
			}
			if refused == nil || refused.Code != tt.code || refused.Message != tt.message {
				t.Errorf("got %v\nwant %s: %s", refused, tt.code, tt.message)
			}
		})
	}
	if _, refused := r.Check(actor, nil, "search", `{}`); refused == nil || refused.Message != "there is no tool of this name, and no tool is available" {
		t.Errorf("without tools: %v", refused)
	}
	big := `{"service":"` + strings.Repeat("x", tool.MaxArgumentBytes) + `"}`
	if _, refused := r.Check(actor, allow, "search", big); refused == nil || refused.Code != agent.ToolInvalidArguments {
		t.Errorf("arguments over the limit: %v", refused)
	}
}

func TestCheckListsTwentyNames(t *testing.T) {
	t.Parallel()
	var tools []tool.Tool
	var allow []string
	for i := range 23 {
		name := fmt.Sprintf("tool_%02d", i)
		tools, allow = append(tools, fake{spec: spec(name)}), append(allow, name)
	}
	_, refused := registry(t, tools...).Check(actor, allow, "x", "{}")
	if refused == nil || !strings.HasSuffix(refused.Message, ", tool_19 and 3 more") {
		t.Errorf("got %v", refused)
	}
}
