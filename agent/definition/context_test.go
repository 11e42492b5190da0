package definition_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/definition"
)

const withContext = valid + `
context: {max_input: 24000, messages: 6000, summaries: 1500, results: 4000, notes: 500, memory: 2000, knowledge: 6000}
summary: {model: small/v2, after: 30, keep: 10, off: true}
session:
  facts: [current_service, env]
`

func TestParseContext(t *testing.T) {
	t.Parallel()
	d := parse(t, withContext)
	if want := (definition.Context{MaxInput: 24000, Messages: 6000, Summaries: 1500, Results: 4000, Notes: 500, Memory: 2000, Knowledge: 6000}); d.Context != want {
		t.Errorf("context %+v", d.Context)
	}
	if want := (definition.Summary{Model: "small/v2", After: 30, Keep: 10, Off: true}); d.Summary != want {
		t.Errorf("summary %+v", d.Summary)
	}
	if want := []string{"current_service", "env"}; !reflect.DeepEqual(d.Session.Facts, want) {
		t.Errorf("facts %v", d.Session.Facts)
	}
}

// What was never written has no keys, so that definitions from before these
// sections keep their digest; TestDigest has one that was computed by hand.
func TestContextLeavesOldDigests(t *testing.T) {
	t.Parallel()
	old := parse(t, valid)
	for name, text := range map[string]string{
		"none": valid, "empty": valid + "context: {}\nsummary: {}\nsession: {}\n", "zeros": valid + "context: {notes: 0}\nsummary: {off: false, keep: 0}\nsession: {facts: []}\n",
	} {
		d := parse(t, text)
		encoded, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{`"context"`, `"summary"`, `"session"`} {
			if strings.Contains(string(encoded), key) {
				t.Errorf("%s: %s is in %s", name, key, encoded)
			}
		}
		if definition.Digest(d) != definition.Digest(old) {
			t.Errorf("%s: another digest", name)
		}
	}
	changed := parse(t, withContext)
	seen := map[string]bool{definition.Digest(old): true, definition.Digest(changed): true}
	for _, change := range [][2]string{{"24000", "24001"}, {"notes: 500", "notes: 501"}, {"small/v2", "small/v3"}, {"after: 30", "after: 31"}, {"keep: 10", "keep: 11"}, {", off: true", ""}, {"env]", "page]"}} {
		digest := definition.Digest(parse(t, strings.Replace(withContext, change[0], change[1], 1)))
		if seen[digest] {
			t.Errorf("%v does not change the digest", change)
		}
		seen[digest] = true
	}
}

func TestContextSurvivesStorage(t *testing.T) {
	t.Parallel()
	d := parse(t, withContext)
	encoded, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var restored definition.Definition
	if err := json.Unmarshal(encoded, &restored); err != nil || !reflect.DeepEqual(restored, d) {
		t.Errorf("%+v, %v", restored, err)
	}
	d.Session.Facts[0] = "changed"
	again, err := definition.New(restored)
	if err != nil || again.Session.Facts[0] != "current_service" {
		t.Errorf("%+v, %v", again.Session, err)
	}
	restored.Session.Facts[0] = "changed"
	if again.Session.Facts[0] != "current_service" {
		t.Error("New shares its caller's list")
	}
}

func TestParseRefusesContext(t *testing.T) {
	t.Parallel()
	keys := make([]string, 65)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", i)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"unknown budget":     {"context: {tokens: 1}", `unknown field "tokens"`},
		"unknown rule":       {"summary: {before: 1}", `unknown field "before"`},
		"unknown setting":    {"session: {fact: [a]}", `unknown field "fact"`},
		"half a token":       {"context: {notes: 1.5}", "context.notes must be an integer"},
		"token in quotes":    {`context: {max_input: "24000"}`, "context.max_input must be an integer"},
		"half a message":     {"summary: {after: 2.5}", "summary.after must be an integer"},
		"keep as text":       {"summary: {keep: all}", "summary.keep must be an integer"},
		"number for a model": {"summary: {model: 1.10}", "summary.model must be a string: put it in quotes"},
		"number for a fact":  {"session: {facts: [7]}", "session.facts[0] must be a string"},
		"empty fact":         {"session: {facts: [a, ~]}", "session.facts[1] is empty"},
		"facts as text":      {"session: {facts: env}", "definition"},
		"off as text":        {"summary: {off: maybe}", "definition"},
		"off as a number":    {"summary: {off: 1}", "definition"},
		"list of budgets":    {"context: [1]", "definition"},
		"negative budget":    {"context: {memory: -1}", "context.memory is -1: it must be 1 to"},
		"negative input":     {"context: {max_input: -1}", "context.max_input is -1: it must be 1000 to"},
		"tiny input":         {"context: {max_input: 999}", "context.max_input is 999: it must be 1000 to"},
		"huge budget":        {"context: {results: 9007199254740993}", "context.results is 9007199254740993"},
		"after one":          {"summary: {after: 1}", "summary.after is 1: it must be at least 2"},
		"negative after":     {"summary: {after: -2}", "summary.after is -2"},
		"negative keep":      {"summary: {keep: -1}", "summary.keep is -1"},
		"long range":         {"summary: {after: 71}", "summary.after (71) and summary.keep (20) are more than 90 messages together"},
		"long keep":          {"summary: {after: 2, keep: 89}", "summary.after (2) and summary.keep (89)"},
		"overflowing range":  {fmt.Sprintf("summary: {after: %d, keep: %[1]d}", math.MaxInt64), "are more than 90 messages together"},
		"spaced model":       {"summary: {model: a b}", "summary.model must be the name"},
		"bad fact":           {"session: {facts: [Env]}", "session.facts[0] must be 1 to 64"},
		"repeated fact":      {"session: {facts: [env, env]}", `session.facts[1] repeats "env"`},
		"65 facts":           {"session: {facts: [" + strings.Join(keys, ", ") + "]}", "session.facts has 65 entries, the limit is 64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := definition.Parse([]byte(valid + tt.text + "\n")); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %q", err, tt.want)
			}
		})
	}
	for _, text := range []string{"context: {max_input: 1000, notes: 1}", "summary: {after: 70}", "summary: {keep: 50}", "summary: {after: 2, keep: 1}", "session: {facts: [" + strings.Join(keys[:64], ", ") + "]}"} {
		if _, err := definition.Parse([]byte(valid + text + "\n")); err != nil {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	if got, want := (definition.Context{}).Bounds(24000), (definition.Context{MaxInput: 24000, Messages: 12000, Summaries: 6000, Results: 12000, Notes: 800, Memory: 2000, Knowledge: 6000}); got != want {
		t.Errorf("defaults: %+v", got)
	}
	if got, want := (definition.Context{MaxInput: 1000, Messages: 50000, Notes: 5}).Bounds(24000), (definition.Context{MaxInput: 1000, Messages: 1000, Summaries: 1000, Results: 500, Notes: 5, Memory: 1000, Knowledge: 1000}); got != want {
		t.Errorf("small: %+v", got)
	}
	if got := (definition.Context{MaxInput: 50000}).Bounds(24000).MaxInput; got != 24000 {
		t.Errorf("beyond the window: %d", got)
	}
	if got, want := (definition.Summary{Off: true}).Bounds("demo"), (definition.Summary{Model: "demo", After: 40, Keep: 20, Off: true}); got != want {
		t.Errorf("summary: %+v", got)
	}
	given := definition.Summary{Model: "small", After: 2, Keep: 1}
	if got := given.Bounds("demo"); got != given {
		t.Errorf("given: %+v", got)
	}
}
