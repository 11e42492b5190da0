package authz

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/cedar-policy/cedar-go"
)

const permitAll = `permit (principal, action, resource);`

// canary stands for content that no error may show.
const canary = "canary-4711"

func load(t testing.TB, files map[string]string) *Policies {
	t.Helper()
	p, err := Load(mapFS(files))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mapFS(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// ask is a complete question, changed by edit.
func ask(action Action, edit func(*Question)) Question {
	q := Question{
		Action: action, Tenant: "acme", Environment: "production", Agent: "opspilot", Page: "incidents",
		Flags: []string{"beta"}, User: "ann", Requester: "ann", Tool: "restart_service", Risk: "write",
		Object: "service/" + canary, Arguments: json.RawMessage(`{"service":"` + canary + `"}`),
	}
	if edit != nil {
		edit(&q)
	}
	return q
}

func by(user string) func(*Question) { return func(q *Question) { q.User = user } }

func of(tenant, user string) func(*Question) {
	return func(q *Question) { q.Tenant, q.User = tenant, user }
}

func own(tenant, user string) func(*Question) {
	return func(q *Question) { q.Tenant, q.User, q.Requester = tenant, user, user }
}

// expect compares the kind of answer; nil means allowed.
func expect(t *testing.T, p *Policies, q Question, want error) string {
	t.Helper()
	err := p.Decide(q)
	if want == nil && err != nil {
		t.Errorf("%s by %s/%s: %v, want allowed", q.Action, q.Tenant, q.User, err)
	}
	if want != nil && !errors.Is(err, want) {
		t.Errorf("%s by %s/%s: %v, want %v", q.Action, q.Tenant, q.User, err, want)
	}
	if err == nil {
		return ""
	}
	if strings.Contains(err.Error(), canary) {
		t.Errorf("the error shows content: %v", err)
	}
	return err.Error()
}

const groups = `[
  {"uid": {"type": "User", "id": "acme/bob"}, "parents": [{"type": "Group", "id": "acme/approvers"}], "attrs": {"level": 3}},
  {"uid": {"type": "User", "id": "acme/lead"}, "parents": [{"type": "Group", "id": "acme/leads"}], "attrs": {}},
  {"uid": {"type": "User", "id": "acme/olga"}, "parents": [{"type": "Group", "id": "acme/operators"}], "attrs": {}},
  {"uid": {"type": "User", "id": "acme/rita"}, "parents": [{"type": "Group", "id": "acme/memory_reviewers"}], "attrs": {}},
  {"uid": {"type": "Group", "id": "acme/leads"}, "parents": [{"type": "Group", "id": "acme/approvers"}], "attrs": {}},
  {"uid": {"type": "Tool", "id": "restart_service"}, "parents": [{"type": "Kind", "id": "disruptive"}], "attrs": {"owner": "sre"}}
]`

func readDefault(t testing.TB) string {
	t.Helper()
	text, err := defaultFiles.ReadFile("default.cedar")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDefault(t *testing.T) {
	t.Parallel()
	p := Default()
	for _, action := range []Action{Offer, Read, Prepare, Commit} {
		expect(t, p, ask(action, nil), nil)
	}
	expect(t, p, ask(Offer, func(q *Question) { q.Arguments, q.Object, q.Requester = nil, "", "" }), nil)
	expect(t, p, ask(Approve, nil), nil)
	text := expect(t, p, ask(Approve, by("bob")), ErrForbidden)
	if want := `forbidden by policy: action "approve" on tool "restart_service": no policy permits it`; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	// Without entities nobody is an operator.
	expect(t, p, ask(Settle, nil), ErrForbidden)

	p = load(t, map[string]string{"default.cedar": readDefault(t), "entities.json": groups})
	expect(t, p, ask(Approve, by("bob")), nil)
	expect(t, p, ask(Approve, by("lead")), nil) // leads are in approvers
	expect(t, p, ask(Approve, by("olga")), ErrForbidden)
	expect(t, p, ask(Approve, by("stranger")), ErrForbidden)
	expect(t, p, ask(Settle, by("olga")), nil)
	expect(t, p, ask(Settle, by("bob")), ErrForbidden)
	expect(t, p, ask(Settle, nil), ErrForbidden)
	expect(t, p, ask(Review, by("rita")), nil)
	expect(t, p, ask(Review, by("bob")), ErrForbidden)
	expect(t, p, ask(Review, nil), ErrForbidden)
	// Nobody reviews what comes from oneself.
	expect(t, p, ask(Review, own("acme", "rita")), ErrForbidden)
	expect(t, p, ask(Review, of("globex", "rita")), ErrForbidden)
}

func TestFourEyes(t *testing.T) {
	t.Parallel()
	p := load(t, map[string]string{
		"default.cedar": readDefault(t),
		"four-eyes.cedar": `forbid (principal, action == Action::"approve", resource)
when { principal == context.requester && context.environment == "production" };`,
		"entities.json": groups,
	})
	text := expect(t, p, ask(Approve, nil), ErrForbidden)
	if !strings.Contains(text, `by policy "four-eyes.cedar#1"`) {
		t.Errorf("the error does not name the policy: %s", text)
	}
	expect(t, p, ask(Approve, func(q *Question) { q.Environment = "test" }), nil)
	expect(t, p, ask(Approve, by("bob")), nil)
	// An approver is no exception for the own run.
	expect(t, p, ask(Approve, own("acme", "bob")), ErrForbidden)
	expect(t, p, ask(Commit, nil), nil)
}

func TestConditions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		when   string
		q      Question
		permit bool
	}{
		"argument holds":     {`context.arguments.replicas <= 3`, ask(Commit, args(`{"replicas":3}`)), true},
		"argument fails":     {`context.arguments.replicas <= 3`, ask(Commit, args(`{"replicas":4}`)), false},
		"nested argument":    {`context.arguments.target.zone == "a"`, ask(Commit, args(`{"target":{"zone":"a"}}`)), true},
		"array is a set":     {`["a", "b"].containsAll(context.arguments.zones)`, ask(Commit, args(`{"zones":["b","a","b"]}`)), true},
		"array with another": {`["a", "b"].containsAll(context.arguments.zones)`, ask(Commit, args(`{"zones":["b","c"]}`)), false},
		"null is left out":   {`context.arguments has zone`, ask(Commit, args(`{"zone":null}`)), false},
		"no entity":          {`context.arguments.who == User::"acme/ann"`, ask(Commit, args(`{"who":{"__entity":{"type":"User","id":"acme/ann"}}}`)), false},
		"no arguments":       {`context has arguments`, ask(Offer, args("")), false},
		"empty arguments":    {`context has arguments`, ask(Offer, args("{}")), true},
		"object":             {`context.object like "service/*.test"`, ask(Commit, func(q *Question) { q.Object = "service/a.test" }), true},
		"other object":       {`context.object like "service/*.test"`, ask(Commit, func(q *Question) { q.Object = "service/a.live" }), false},
		"unknown object":     {`context.object == ""`, ask(Prepare, func(q *Question) { q.Object = "" }), true},
		"flag":               {`context.flags.contains("beta")`, ask(Read, nil), true},
		"no flag":            {`context.flags.contains("alpha")`, ask(Read, nil), false},
		"no flags":           {`context.flags == []`, ask(Read, func(q *Question) { q.Flags = nil }), true},
		"place": {
			`context.tenant == "acme" && context.environment == "production" && context.agent == "opspilot" && context.page == "incidents"`,
			ask(Read, nil), true,
		},
		"tool":               {`resource == Tool::"restart_service" && resource.name == "restart_service" && resource.risk == "write"`, ask(Commit, nil), true},
		"other risk":         {`resource.risk == "read"`, ask(Commit, nil), false},
		"tool of the file":   {`resource in Kind::"disruptive" && resource.owner == "sre"`, ask(Commit, nil), true},
		"other tool":         {`resource in Kind::"disruptive"`, ask(Commit, func(q *Question) { q.Tool = "logs" }), false},
		"principal":          {`principal == User::"acme/ann" && principal.tenant == "acme" && principal.name == "ann"`, ask(Commit, nil), true},
		"user of the file":   {`principal.name == "bob" && principal.tenant == "acme" && principal.level == 3`, ask(Commit, own("acme", "bob")), true},
		"requester":          {`context.requester.name == "ann" && principal.name == "bob"`, ask(Approve, by("bob")), true},
		"requester of file":  {`context.requester in context.approvers && context.requester.level == 3`, ask(Approve, func(q *Question) { q.Requester = "bob" }), true},
		"requester defaults": {`context.requester == principal`, ask(Read, func(q *Question) { q.Requester = "" }), true},
		"user with slash":    {`principal.tenant == "acme" && principal.name == "ops/ann"`, ask(Read, own("acme", "ops/ann")), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := load(t, map[string]string{"a.cedar": "permit (principal, action, resource) when { " + c.when + " };", "entities.json": groups})
			want := ErrForbidden
			if c.permit {
				want = nil
			}
			expect(t, p, c.q, want)
		})
	}
}

func args(raw string) func(*Question) {
	return func(q *Question) {
		if q.Arguments = json.RawMessage(raw); raw == "" {
			q.Arguments = nil
		}
	}
}

// TestTenantsApart has the same user and group in two tenants.
func TestTenantsApart(t *testing.T) {
	t.Parallel()
	p := load(t, map[string]string{
		"default.cedar": readDefault(t),
		"leads.cedar":   `permit (principal in Group::"acme/leads", action == Action::"settle", resource);`,
		"entities.json": `[
  {"uid": {"type": "User", "id": "acme/bob"}, "parents": [{"type": "Group", "id": "acme/approvers"}], "attrs": {}},
  {"uid": {"type": "User", "id": "acme/lead"}, "parents": [{"type": "Group", "id": "acme/leads"}], "attrs": {}},
  {"uid": {"type": "User", "id": "globex/bob"}, "parents": [], "attrs": {}},
  {"uid": {"type": "User", "id": "globex/lead"}, "parents": [{"type": "Group", "id": "globex/leads"}], "attrs": {}},
  {"uid": {"type": "User", "id": "globex/eve"}, "parents": [{"type": "Group", "id": "globex/approvers"}], "attrs": {}}
]`,
	})
	expect(t, p, ask(Approve, of("acme", "bob")), nil)
	expect(t, p, ask(Approve, of("globex", "bob")), ErrForbidden)
	expect(t, p, ask(Approve, of("globex", "eve")), nil)
	expect(t, p, ask(Approve, of("acme", "eve")), ErrForbidden)
	expect(t, p, ask(Settle, of("acme", "lead")), nil)
	expect(t, p, ask(Settle, of("globex", "lead")), ErrForbidden)
	// "acme/bob" of no tenant, and of the tenant "acme/bob", are nobody.
	expect(t, p, ask(Approve, of("", "acme/bob")), ErrUnavailable)
	expect(t, p, ask(Approve, of("acme/bob", "x")), ErrUnavailable)
}

// TestErrorClosesTheDoor has a forbid that errs: Cedar skips it, and the permit
// alone would open the door.
func TestErrorClosesTheDoor(t *testing.T) {
	t.Parallel()
	p := load(t, map[string]string{"a.cedar": permitAll, "limit.cedar": `
permit (principal, action == Action::"settle", resource);
@id("limit")
forbid (principal, action in [Action::"commit", Action::"offer"], resource)
when { context.arguments.amount > 100 };
forbid (principal, action == Action::"prepare", resource)
when { context.arguments.amount * 9223372036854775807 > 0 };`})
	expect(t, p, ask(Commit, args(`{"amount":5}`)), nil)
	expect(t, p, ask(Commit, args(`{"amount":500}`)), ErrForbidden)
	expect(t, p, ask(Read, args(`{}`)), nil) // not a question of that policy

	text := expect(t, p, ask(Commit, args(`{}`)), ErrUnavailable)
	for _, want := range []string{"could not be evaluated", `action "commit"`, `tool "restart_service"`, `policy "limit" (limit.cedar:3)`, "an attribute is missing"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	expect(t, p, ask(Offer, args("")), ErrUnavailable)
	for raw, want := range map[string]string{
		`{"amount":"` + canary + `"}`: "of another type",
		`{"amount":100.5}`:            "of another type",
	} {
		if text := expect(t, p, ask(Commit, args(raw)), ErrUnavailable); !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	text = expect(t, p, ask(Prepare, args(`{"amount":4711}`)), ErrUnavailable)
	if !strings.Contains(text, "too large") || strings.Contains(text, "4711") {
		t.Errorf("got %q, want the kind of error and no value", text)
	}
	// A permit that errs closes the door as well.
	p = load(t, map[string]string{"a.cedar": permitAll + `permit (principal, action, resource) when { principal.level > 3 };`})
	expect(t, p, ask(Read, nil), ErrUnavailable)
	p = load(t, map[string]string{"a.cedar": permitAll + `forbid (principal, action, resource) when { Group::"acme/x".locked };`})
	if text := expect(t, p, ask(Read, nil), ErrUnavailable); !strings.Contains(text, "not in entities.json") {
		t.Errorf("%q does not say that an entity is missing", text)
	}
}

func TestFailClosed(t *testing.T) {
	t.Parallel()
	p := load(t, map[string]string{"a.cedar": permitAll})
	for _, action := range []Action{Offer, Read, Prepare, Approve, Commit, Settle, Review} {
		expect(t, p, ask(action, nil), nil)
	}
	deep := strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)
	for name, c := range map[string]struct {
		action Action
		edit   func(*Question)
		want   string
	}{
		"no action":             {"", nil, "action is unknown"},
		"unknown action":        {"delete", nil, "action is unknown"},
		"action in other case":  {"Commit", nil, "action is unknown"},
		"no tenant":             {Commit, func(q *Question) { q.Tenant = "" }, "tenant is missing"},
		"tenant with slash":     {Commit, func(q *Question) { q.Tenant = "acme/x" }, `tenant has a "/"`},
		"no environment":        {Commit, func(q *Question) { q.Environment = "" }, "environment is missing"},
		"no user":               {Commit, func(q *Question) { q.User, q.Requester = "", "" }, "user is missing"},
		"no tool":               {Commit, func(q *Question) { q.Tool = "" }, "tool is missing"},
		"no risk":               {Commit, func(q *Question) { q.Risk = "" }, "risk is neither"},
		"unknown risk":          {Commit, func(q *Question) { q.Risk = "none" }, "risk is neither"},
		"nobody asked":          {Approve, func(q *Question) { q.Requester = "" }, "requester is missing"},
		"nobody asked, settle":  {Settle, func(q *Question) { q.Requester = "" }, "requester is missing"},
		"nobody asked, review":  {Review, func(q *Question) { q.Requester = "" }, "requester is missing"},
		"another commits":       {Commit, func(q *Question) { q.User = "bob" }, "user must be the requester"},
		"no arguments, read":    {Read, args(""), "arguments are missing"},
		"no arguments, prepare": {Prepare, args(""), "arguments are missing"},
		"no arguments, approve": {Approve, args(""), "arguments are missing"},
		"no arguments, commit":  {Commit, args(""), "arguments are missing"},
		"empty arguments":       {Offer, func(q *Question) { q.Arguments = json.RawMessage{} }, "not one canonical JSON object"},
		"null":                  {Commit, args(`null`), "not one canonical JSON object"},
		"array":                 {Commit, args(`["` + canary + `"]`), "not one canonical JSON object"},
		"string":                {Commit, args(`"` + canary + `"`), "not one canonical JSON object"},
		"broken JSON":           {Commit, args(`{"a":` + canary), "not one canonical JSON object"},
		"trailing data":         {Commit, args(`{} {"a":1}`), "not one canonical JSON object"},
		"key twice":             {Commit, args(`{"amount":1,"amount":1000}`), "not one canonical JSON object"},
		"null key twice":        {Commit, args(`{"amount":1,"amount":null}`), "not one canonical JSON object"},
		"nested key twice":      {Commit, args(`{"a":[{"` + canary + `":1,"` + canary + `":2}]}`), "not one canonical JSON object"},
		"no UTF-8":              {Commit, args("{\"a\":\"\xff\"}"), "not one canonical JSON object"},
		"too deep":              {Commit, args(deep), "nested more than 64 levels"},
		"many nested items":     {Commit, args(`{"a":[` + strings.Repeat("[],", 512) + `[]]}`), "more than 512 arrays and objects"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text := expect(t, p, ask(c.action, c.edit), ErrUnavailable); !strings.Contains(text, c.want) {
				t.Errorf("%q does not say %q", text, c.want)
			}
		})
	}
}

func TestNoPolicies(t *testing.T) {
	t.Parallel()
	expect(t, nil, ask(Read, nil), ErrUnavailable)
	expect(t, &Policies{}, ask(Read, nil), ErrUnavailable)
	if digest := (*Policies)(nil).Digest(); digest != "" {
		t.Errorf("no policies have the digest %q", digest)
	}
}

// TestPanic has a policy that was never compiled.
func TestPanic(t *testing.T) {
	t.Parallel()
	p := load(t, map[string]string{"a.cedar": permitAll})
	p.policies = append(p.policies, namedPolicy{"broken", &cedar.Policy{}})
	if text := expect(t, p, ask(Read, nil), ErrUnavailable); !strings.Contains(text, "panicked") {
		t.Errorf("%q does not tell of the panic", text)
	}
}

// TestConcurrent is for the race detector, and sees to it that the principal of
// one question is never that of another.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	p := load(t, map[string]string{"default.cedar": readDefault(t), "entities.json": groups})
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for range 200 {
				user, want := "bob", error(nil)
				if i%2 == 0 {
					user, want = fmt.Sprintf("user%d", i), ErrForbidden
				}
				if err := p.Decide(ask(Approve, by(user))); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", user, err, want)
				}
			}
		})
	}
	wait.Wait()
}

func BenchmarkDecide(b *testing.B) {
	var entities []string
	for i := range 5000 {
		entities = append(entities, fmt.Sprintf(`{"uid":{"type":"User","id":"acme/user%d"},"parents":[{"type":"Group","id":"acme/staff"}],"attrs":{}}`, i))
	}
	var many strings.Builder
	for i := range 50 {
		fmt.Fprintf(&many, "forbid (principal, action == Action::\"commit\", resource == Tool::\"tool%d\") when { context.environment == \"production\" };\n", i)
	}
	for name, files := range map[string]map[string]string{
		"default":          {"default.cedar": readDefault(b)},
		"5000 users":       {"default.cedar": readDefault(b), "entities.json": "[" + strings.Join(entities, ",") + "]"},
		"54 policies":      {"default.cedar": readDefault(b), "many.cedar": many.String()},
		"with error texts": {"a.cedar": `forbid (principal, action, resource);`},
	} {
		b.Run(name, func(b *testing.B) {
			p := load(b, files)
			q := ask(Commit, args(`{"service":"payment-api","replicas":3,"zones":["a","b"]}`))
			b.ReportAllocs()
			for b.Loop() {
				_ = p.Decide(q)
			}
		})
	}
}
