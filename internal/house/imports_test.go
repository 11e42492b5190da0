// Package house tests the import rules of docs/architecture.md. It holds no
// code: the rules must hold without any linter.
package house

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fairlead/fairlead/"

// pkg is the part of `go list -json` that the rules need. Paths inside the
// module are written "@/room".
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

// rule forbids imports to the packages below a room.
type rule struct {
	room string
	// alone says that the rule is for the room's own package, and not for those
	// below it.
	alone bool
	// only, if set, is all that the room may import directly besides the
	// standard library.
	only []string
	// direct are imports that the room's own files may not have.
	direct []string
	// deps are packages of this module, and foreign ones, that the room may not
	// reach by any path.
	deps []string
	why  string
}

var (
	temporalSDK = "go.temporal.io/sdk"
	outside     = []string{"github.com/jackc/pgx", "@/db", "net/http", "os", "github.com/spf13/viper", "go.uber.org/zap", "@/activities"}
)

var rules = []rule{
	{room: "@/agent", alone: true, only: []string{}, why: "callers link nothing but the words"},
	{room: "@/agent/definition", only: []string{"@/agent", "@/tool", "github.com/goccy/go-yaml", "github.com/santhosh-tekuri/jsonschema", "github.com/gowebpki/jcs", "golang.org/x/text"}, why: "definitions are data"},
	{room: "@/internal/agentloop", only: []string{"@/agent"}, direct: append([]string{"math/rand", "math/rand/v2"}, outside...), why: "the loop is pure"},
	{room: "@/workflows", only: []string{"@/agent", "@/internal/agentloop", temporalSDK + "/workflow", temporalSDK + "/temporal", temporalSDK + "/converter", "go.temporal.io/api/enums"}, direct: append([]string{"math/rand", "math/rand/v2"}, outside...), why: "workflow code is deterministic"},
	{room: "@/model", deps: []string{temporalSDK, "@/db", "@/activities", "@/workflows", "@/tool"}, why: "adapters know models only"},
	{room: "@/tool", deps: []string{temporalSDK, "@/db", "@/activities", "@/workflows", "@/model"}, why: "tools know neither engine nor store"},
	{room: "@/db", deps: []string{temporalSDK, "@/activities", "@/workflows", "@/model", "@/tool", "github.com/spf13/viper"}, why: "the store knows neither engine nor models"},
	{room: "@/approval", deps: []string{temporalSDK, "@/activities", "@/workflows", "@/model", "github.com/spf13/viper"}, why: "approvers' programs need no worker"},
	{room: "@/internal/authz", only: []string{"github.com/cedar-policy/cedar-go"}, why: "policies are decided on facts alone"},
	{room: "@/internal/prompt", only: []string{"@/agent", "@/agent/definition", "@/internal/tokens", "@/model", "@/tool"}, direct: append([]string{"math/rand", "math/rand/v2", "time"}, outside...), deps: []string{temporalSDK, "@/db", "@/activities", "@/workflows"}, why: "assembly is pure"},
	{room: "@/internal/session", only: []string{"@/agent", "@/tool", "golang.org/x/text"}, direct: append([]string{"math/rand", "math/rand/v2", "time"}, outside...), why: "what a user forbade is found by fixed rules"},
	{room: "@/internal/vault", only: []string{"github.com/tink-crypto/tink-go/v2"}, why: "encryption is Tink's"},
	{room: "@/internal/codec", deps: []string{"@/activities", "@/workflows"}, why: "the codec knows keys and payloads"},
	{room: "@/internal/tokens", only: []string{"@/model", "github.com/tiktoken-go/tokenizer", "github.com/hashicorp/golang-lru/v2"}, direct: outside, why: "counting is pure"},
	{room: "@/internal/summary", only: []string{"@/model", "@/internal/session", "@/internal/tokens", "golang.org/x/text"}, direct: append([]string{"math/rand", "math/rand/v2", "time"}, outside...), deps: []string{temporalSDK, "@/db", "@/activities", "@/workflows"}, why: "summaries are asked for and checked by fixed rules"},
	{room: "@/memorypolicy", alone: true, only: []string{"@/agent", "@/memorypolicy/detect", "@/tool/schema", "github.com/goccy/go-yaml", "github.com/gowebpki/jcs", "golang.org/x/text"}, direct: append([]string{"math/rand", "math/rand/v2"}, outside...), deps: []string{temporalSDK, "github.com/jackc/pgx", "@/db", "@/activities", "@/workflows", "@/model"}, why: "what may be remembered is decided by pure rules"},
	// Gitleaks hands out its rules through viper, and in no other way.
	{room: "@/memorypolicy/detect", only: []string{"github.com/mtibben/confusables", "github.com/zricethezav/gitleaks/v8", "github.com/spf13/viper", "golang.org/x/text"}, direct: []string{"math/rand", "math/rand/v2", "net/http", "os"}, why: "detectors look at text alone"},
	{room: "@/internal/learning", only: []string{"@/agent", "@/memorypolicy", "@/model", "@/internal/tokens", "golang.org/x/text"}, direct: outside, deps: []string{temporalSDK, "@/db", "@/activities", "@/workflows"}, why: "what is learned is asked for and checked by fixed rules"},
	{room: "@/internal/recall", only: []string{"golang.org/x/text"}, direct: outside, why: "words and sketches are pure"},
	{room: "@/activities", deps: []string{"@/workflows", "@/internal/agentloop", "@/internal/config", "@/worker", "@/starter"}, why: "activities do not know who calls them"},
	{room: "@/examples", deps: []string{"@/db", "@/activities", "@/workflows", "@/internal"}, why: "an example uses what a user can use"},
}

func TestImportRules(t *testing.T) {
	t.Parallel()
	pkgs := list(t)
	for _, r := range rules {
		if !slices.ContainsFunc(pkgs, func(p pkg) bool { return below(p.ImportPath, r.room) }) {
			t.Errorf("no package is in the room %s: its rule holds for nothing", r.room)
		}
		for _, p := range pkgs {
			for _, breach := range check(r, p) {
				t.Error(breach)
			}
		}
	}
	for _, p := range pkgs {
		for _, imported := range p.Imports {
			if name := imported[strings.LastIndexByte(imported, '/')+1:]; inModule(imported) && strings.HasSuffix(name, "test") && !strings.HasSuffix(p.ImportPath, "test") {
				t.Errorf("%s imports %s outside of tests", p.ImportPath, imported)
			}
			if imported == "@/internal/memstore" && p.ImportPath != "@/agenttest" {
				t.Errorf("%s imports %s, which is for agenttest alone", p.ImportPath, imported)
			}
		}
	}
}

// TestRulesCanFail shows that each kind of rule refuses what it should.
func TestRulesCanFail(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]pkg{
		"only":      {ImportPath: "@/agent", Imports: []string{"fmt", "github.com/google/uuid"}},
		"direct":    {ImportPath: "@/internal/agentloop", Imports: []string{"os"}},
		"deps":      {ImportPath: "@/model/openai", Deps: []string{"go.temporal.io/sdk/client"}},
		"subtree":   {ImportPath: "@/tool/mcp", Deps: []string{"@/db/internal/dbsqlc"}},
		"workflows": {ImportPath: "@/workflows", Imports: []string{"go.temporal.io/sdk/client"}},
		"pure":      {ImportPath: "@/memorypolicy", Imports: []string{"github.com/spf13/viper"}},
		"detectors": {ImportPath: "@/memorypolicy/detect", Imports: []string{"net/http"}},
		"examples":  {ImportPath: "@/examples/opspilot", Deps: []string{"@/internal/config"}},
	} {
		breaches := 0
		for _, r := range rules {
			breaches += len(check(r, p))
		}
		if breaches == 0 {
			t.Errorf("%s: no rule refuses %+v", name, p)
		}
	}
}

func check(r rule, p pkg) (breaches []string) {
	if !below(p.ImportPath, r.room) || r.alone && p.ImportPath != r.room {
		return nil
	}
	report := func(imported string) {
		breaches = append(breaches, fmt.Sprintf("%s must not import %s: %s", p.ImportPath, imported, r.why))
	}
	for _, imported := range p.Imports {
		standard := !inModule(imported) && !strings.Contains(strings.SplitN(imported, "/", 2)[0], ".")
		// A room includes what is below it, but agent itself stands alone.
		allowed := standard || below(imported, r.room) ||
			slices.ContainsFunc(r.only, func(room string) bool { return below(imported, room) && (imported == room || room != "@/agent") })
		if r.only != nil && !allowed {
			report(imported)
		}
		for _, forbidden := range r.direct {
			if below(imported, forbidden) {
				report(imported)
			}
		}
	}
	for _, imported := range p.Deps {
		for _, forbidden := range r.deps {
			if below(imported, forbidden) && !below(imported, r.room) {
				report(imported)
			}
		}
	}
	return breaches
}

func inModule(path string) bool { return strings.HasPrefix(path, "@/") }

// own writes paths of this module as "@/room", apart from the standard library,
// which has packages of the same names.
func own(path string) string {
	if rest, ok := strings.CutPrefix(path, module); ok {
		return "@/" + rest
	}
	return path
}

func below(path, room string) bool { return path == room || strings.HasPrefix(path, room+"/") }

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Deps,Standard", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if p.Standard || !strings.HasPrefix(p.ImportPath, module) {
			continue
		}
		p.ImportPath = own(p.ImportPath)
		for _, list := range [][]string{p.Imports, p.Deps} {
			for i, path := range list {
				list[i] = own(path)
			}
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 5 {
		t.Fatalf("go list found %d packages only", len(pkgs))
	}
	return pkgs
}
