package authz

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cedar-policy/cedar-go"
)

func TestLoadIDs(t *testing.T) {
	t.Parallel()
	p := load(t, map[string]string{
		"b.cedar":       permitAll + "\n@id(\"named\")\n" + permitAll + "\n" + permitAll,
		"a.cedar":       "// a comment only\n" + permitAll,
		"empty.cedar":   "// nothing yet\n",
		"README.md":     "not a policy",
		"c.cedar.bak":   "not a policy",
		"sub/d.cedar":   "not a policy",
		"entities.json": `[]`,
	})
	var ids []string
	for id := range p.policies.All() {
		ids = append(ids, string(id))
	}
	if got, want := strings.Join(ids, " "), "a.cedar#1 b.cedar#1 named b.cedar#3"; got != want {
		t.Errorf("IDs %q, want %q", got, want)
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	user := func(id, parents, attrs string) map[string]string {
		return map[string]string{"a.cedar": permitAll, "entities.json": `[{"uid":{"type":"User","id":"` + id + `"},"parents":[` + parents + `],"attrs":{` + attrs + `}}]`}
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing":              {map[string]string{}, []string{"no file *.cedar", "put the policies into its root"}},
		"none in the root":     {map[string]string{"sub/a.cedar": permitAll, "entities.json": "[]"}, []string{"no file *.cedar"}},
		"no policy":            {map[string]string{"a.cedar": "// soon"}, []string{"no policy in a.cedar", "forbid everything"}},
		"directory":            {map[string]string{"a.cedar/b": permitAll}, []string{"a.cedar"}},
		"syntax":               {map[string]string{"a.cedar": permitAll, "b.cedar": "\npermit (principal, action);"}, []string{"b.cedar:2:"}},
		"template":             {map[string]string{"a.cedar": `permit (principal == ?principal, action, resource);`}, []string{"a.cedar:1:"}},
		"same ID":              {map[string]string{"a.cedar": `@id("x")` + permitAll, "b.cedar": "\n" + `@id("x")` + permitAll}, []string{"b.cedar:2", `ID "x" is taken`}},
		"ID of a file":         {map[string]string{"a.cedar": permitAll, "b.cedar": `@id("a.cedar#1")` + permitAll}, []string{"b.cedar:1", `"a.cedar#1" is taken`}},
		"empty ID":             {map[string]string{"a.cedar": `@id("")` + permitAll}, []string{"a.cedar:1", "@id is empty"}},
		"large policies":       {map[string]string{"a.cedar": permitAll + strings.Repeat(" ", MaxFileBytes)}, []string{"a.cedar has more than 1048576 bytes"}},
		"large entities":       {map[string]string{"a.cedar": permitAll, "entities.json": "[" + strings.Repeat(" ", MaxFileBytes) + "]"}, []string{"entities.json has more than"}},
		"entities syntax":      {map[string]string{"a.cedar": permitAll, "entities.json": "[\n{\"uid\" 1}]"}, []string{"entities.json:2:"}},
		"entities empty":       {map[string]string{"a.cedar": permitAll, "entities.json": ""}, []string{"entities.json:1:"}},
		"entities no list":     {map[string]string{"a.cedar": permitAll, "entities.json": "{}"}, []string{"entities.json", "list of Cedar entities"}},
		"entity incomplete":    {map[string]string{"a.cedar": permitAll, "entities.json": `[{"uid":{"type":"User","id":"acme/ann"},"attrs":{}}]`}, []string{"entities.json", `"/0"`, "parents"}},
		"entity twice":         {map[string]string{"a.cedar": permitAll, "entities.json": `[{"uid":{"type":"User","id":"acme/ann"},"parents":[],"attrs":{}},{"uid":{"type":"User","id":"acme/ann"},"parents":[],"attrs":{}}]`}, []string{"entities.json", "duplicate"}},
		"user without tenant":  {user("ann", "", ""), []string{"entities.json", `User::"ann" names no tenant`, `write User::"<tenant>/<name>"`}},
		"user without name":    {user("acme/", "", ""), []string{`User::"acme/" names no tenant`}},
		"empty tenant":         {user("/ann", "", ""), []string{`User::"/ann" names no tenant`}},
		"group without tenant": {user("acme/ann", `{"type":"Group","id":"approvers"}`, ""), []string{`Group::"approvers" names no tenant`, `write Group::"<tenant>/<name>"`}},
		"group of another":     {user("acme/ann", `{"type":"Group","id":"globex/approvers"}`, ""), []string{`User::"acme/ann"`, `parent Group::"globex/approvers"`, `tenant "globex"`}},
		"bridge between tenants": {
			map[string]string{"a.cedar": permitAll, "entities.json": `[{"uid":{"type":"Team","id":"globex/x"},"parents":[{"type":"Group","id":"globex/approvers"}],"attrs":{}}]`},
			[]string{`Team::"globex/x"`, "only a user or group"},
		},
		"tenant overridden": {user("acme/ann", "", `"tenant":"globex"`), []string{`attribute "tenant" is set by fairlead`}},
		"name overridden":   {user("acme/ann", "", `"name":"bob"`), []string{`attribute "name" is set by fairlead`}},
		"risk overridden": {
			map[string]string{"a.cedar": permitAll, "entities.json": `[{"uid":{"type":"Tool","id":"x"},"parents":[],"attrs":{"risk":"read"}}]`},
			[]string{`Tool::"x"`, `attribute "risk" is set by fairlead`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, c.files, c.want...)
		})
	}
}

func refused(t *testing.T, files map[string]string, want ...string) {
	t.Helper()
	p, err := Load(mapFS(files))
	if err == nil || p != nil {
		t.Fatalf("loaded %v with error %v, want an error", p, err)
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// TestLoadRefusesNamesOfNothing has policies that Cedar takes and that would
// never match.
func TestLoadRefusesNamesOfNothing(t *testing.T) {
	t.Parallel()
	const head = `forbid (principal, action, resource) when { `
	for name, c := range map[string]struct {
		policy, want string
	}{
		"user in scope":        {`forbid (principal == User::"ann", action, resource);`, `User::"ann" names no tenant`},
		"group in scope":       {`forbid (principal in Group::"leads", action, resource);`, `Group::"leads" names no tenant`},
		"group in is-in":       {`forbid (principal is User in Group::"leads", action, resource);`, `Group::"leads" names no tenant`},
		"user in condition":    {head + `[User::"acme/bob", User::"ann"].contains(principal) };`, `User::"ann" names no tenant`},
		"user in unless":       {`forbid (principal, action, resource) unless { principal == User::"ann" };`, `User::"ann" names no tenant`},
		"action":               {`forbid (principal, action == Action::"comit", resource);`, `no action is called "comit": there are approve, commit, maintenance, offer, prepare, read, review, settle, writes`},
		"action of a list":     {`forbid (principal, action in [Action::"commit", Action::"aprove"], resource);`, `no action is called "aprove"`},
		"action in condition":  {head + `action == Action::"aprove" };`, `no action is called "aprove"`},
		"type in scope":        {`forbid (principal is Person, action, resource);`, `entity type "Person" does not exist`},
		"type of literal":      {`forbid (principal, action, resource == Tol::"x");`, `entity type "Tol" does not exist`},
		"type in condition":    {head + `principal is App::User };`, `entity type "App::User" does not exist`},
		"context attribute":    {head + `context.enviroment == "production" };`, `context has no attribute "enviroment": it has tenant, environment,`},
		"context in brackets":  {head + `context["enviroment"] == "production" };`, `no attribute "enviroment"`},
		"context has":          {head + `context has argument && context.arguments.x };`, `no attribute "argument"`},
		"context has, nested":  {head + `context has argument.x };`, `no attribute "argument"`},
		"deep in an if":        {head + `if (1 == 1) then !(context has argument) else true };`, `no attribute "argument"`},
		"inside a record":      {head + `{a: [context has argument]}.a.contains(true) };`, `no attribute "argument"`},
		"argument of function": {head + `ip(context.addres).isLoopback() };`, `no attribute "addres"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entities := `[{"uid":{"type":"Action","id":"maintenance"},"parents":[{"type":"Action","id":"writes"}],"attrs":{}}]`
			refused(t, map[string]string{"a.cedar": permitAll, "b.cedar": "\n" + c.policy, "entities.json": entities}, `b.cedar:2: policy "b.cedar#1"`, c.want)
		})
	}
	// What looks alike and is good.
	load(t, map[string]string{"a.cedar": head + `
context.arguments.enviroment == 1 && context.arguments has argument && context.arguments == {type: "User", id: "ann"}
&& principal in Team::"x" && principal is User && action in Action::"writes" && resource == Tool::"any" && principal != User::"acme/ann"
&& principal in context.approvers };`, "entities.json": `[
{"uid":{"type":"Action","id":"commit"},"parents":[{"type":"Action","id":"writes"}],"attrs":{}},
{"uid":{"type":"User","id":"acme/ann"},"parents":[{"type":"Team","id":"x"}],"attrs":{}}]`})
}

// TestContextAttributes keeps the list that Load checks against equal to what a
// question sets.
func TestContextAttributes(t *testing.T) {
	t.Parallel()
	context, err := ask(Commit, nil).makeContext()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range contextAttributes {
		if _, ok := context.Get(cedar.String(name)); !ok {
			t.Errorf("context has no %q", name)
		}
	}
	if context.Len() != len(contextAttributes) {
		t.Errorf("context has %d attributes, the list %d", context.Len(), len(contextAttributes))
	}
}

func TestActionGroup(t *testing.T) {
	t.Parallel()
	p := load(t, map[string]string{
		"a.cedar":       `permit (principal, action in Action::"writes", resource);`,
		"entities.json": `[{"uid":{"type":"Action","id":"commit"},"parents":[{"type":"Action","id":"writes"}],"attrs":{}}]`,
	})
	expect(t, p, ask(Commit, nil), nil)
	expect(t, p, ask(Prepare, nil), ErrForbidden)
}

func TestDigest(t *testing.T) {
	t.Parallel()
	one := map[string]string{"a.cedar": permitAll}
	// printf '7:a.cedar37:permit (principal, action, resource);' | sha256sum
	const want = "ea0806a7093c817663b4d51608441303abaea59d4a9a052b5736d59610fbc19b"
	if got := load(t, one).Digest(); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	if got := load(t, map[string]string{"a.cedar": permitAll, "README.md": "x", "sub/b.cedar": "x"}).Digest(); got != want {
		t.Errorf("files that are not read change the digest")
	}
	if Default().Digest() != load(t, map[string]string{"default.cedar": readDefault(t)}).Digest() {
		t.Error("the default policies have another digest when they are loaded")
	}
	seen := map[string]string{want: "one file"}
	for name, files := range map[string]map[string]string{
		"another name":   {"b.cedar": permitAll},
		"another byte":   {"a.cedar": permitAll + " "},
		"another file":   {"a.cedar": permitAll, "b.cedar": ""},
		"bytes moved":    {"a.cedar": "", "b.cedar": permitAll},
		"entities":       {"a.cedar": permitAll, "entities.json": "[]"},
		"other entities": {"a.cedar": permitAll, "entities.json": "[ ]"},
	} {
		digest := load(t, files).Digest()
		if digest != load(t, files).Digest() {
			t.Errorf("%s: the digest is not stable", name)
		}
		if other, taken := seen[digest]; taken {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[digest] = name
	}
}

// TestLoadErrorOfDirectory has a file system that cannot be read.
func TestLoadErrorOfDirectory(t *testing.T) {
	t.Parallel()
	missing, err := fstest.MapFS{"x/a.cedar": {}}.Sub("y")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(missing); err == nil || !strings.Contains(err.Error(), "list policies") {
		t.Errorf("got %v, want an error about the directory", err)
	}
}
