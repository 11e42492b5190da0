package definition_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/definition"
)

const withMemory = valid + `
memory:
  recall: true
  learn: true
  model: small/v2
  max_records: 12
  scope: project
  facts: {current_service: task.service, env: fact.environment}
`

func TestParseMemory(t *testing.T) {
	t.Parallel()
	want := definition.Memory{
		Recall: true, Learn: true, Model: "small/v2", MaxRecords: 12, Scope: "project",
		Facts: map[string]string{"current_service": "task.service", "env": "fact.environment"},
	}
	d := parse(t, withMemory)
	if !reflect.DeepEqual(d.Memory, want) {
		t.Errorf("got %+v", d.Memory)
	}
	// As it is pinned and restored.
	encoded, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var restored definition.Definition
	if err := json.Unmarshal(encoded, &restored); err != nil || definition.Digest(restored) != definition.Digest(d) {
		t.Errorf("restored as %+v, %v", restored.Memory, err)
	}
	// New keeps no map of the caller's.
	d.Memory.Facts["env"] = "fact.other"
	again, err := definition.New(d)
	if err != nil {
		t.Fatal(err)
	}
	d.Memory.Facts["env"] = "fact.changed"
	if again.Memory.Facts["env"] != "fact.other" {
		t.Error("the definition changes with the map that it was made from")
	}
}

// TestMemoryDefaultsAreNotStored: what says nothing of memory has the digest that
// it had before there was memory, and so do empty settings.
func TestMemoryDefaultsAreNotStored(t *testing.T) {
	t.Parallel()
	base := definition.Digest(parse(t, valid))
	for _, text := range []string{"memory: {}\n", "memory: {recall: false, learn: false, facts: {}}\n", "memory: {max_records: 0}\n"} {
		if d := parse(t, valid+text); definition.Digest(d) != base {
			t.Errorf("%s changes the digest: %+v", text, d.Memory)
		}
	}
	on := definition.Digest(parse(t, valid+"memory: {recall: true}\n"))
	for _, text := range []string{"memory: {recall: true, max_records: 8}\n", "memory: {recall: true, scope: user}\n", "memory: {learn: true}\n", "memory: {recall: true, learn: true, facts: {a: b.c}}\n"} {
		if definition.Digest(parse(t, valid+text)) == on {
			t.Errorf("%s does not change the digest", text)
		}
	}
}

func TestMemoryRefused(t *testing.T) {
	t.Parallel()
	var facts []string
	for i := range 65 {
		facts = append(facts, fmt.Sprintf("f%d: fact.note", i))
	}
	for name, tt := range map[string]struct{ text, want string }{
		"unknown field":      {"memory: {recal: true}", `unknown field "recal"`},
		"text for a truth":   {`memory: {recall: "yes"}`, "bool"},
		"number as model":    {"memory: {model: 4.1}", "memory.model must be a string: put it in quotes"},
		"spaced model":       {"memory: {model: a b}", "memory.model must be the name"},
		"number as scope":    {"memory: {scope: 1}", "memory.scope must be a string"},
		"group":              {"memory: {scope: group}", "memory.scope must be user, conversation or project"},
		"agent":              {"memory: {scope: agent_role}", "memory.scope must be user, conversation or project"},
		"other letters":      {"memory: {scope: User}", "memory.scope must be"},
		"51 records":         {"memory: {max_records: 51}", "memory.max_records is 51: it must be 1 to 50"},
		"negative":           {"memory: {max_records: -1}", "memory.max_records is -1"},
		"half a record":      {"memory: {max_records: 1.5}", "memory.max_records must be an integer"},
		"bad fact":           {"memory: {learn: true, facts: {Env: fact.note}}", "memory.facts has a name that is no session fact"},
		"bad key":            {"memory: {learn: true, facts: {env: Fact}}", "memory.facts.env must be a key of the memory policy"},
		"no key":             {"memory: {learn: true, facts: {env: ''}}", "memory.facts.env must be a key"},
		"65 facts":           {"memory: {learn: true, facts: {" + strings.Join(facts, ", ") + "}}", "memory.facts has 65 entries, the limit is 64"},
		"nothing is learned": {"memory: {recall: true, facts: {env: fact.note}}", "memory.learn is off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := definition.Parse([]byte(valid + tt.text + "\n")); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %q", err, tt.want)
			}
		})
	}
	for _, text := range []string{"memory: {max_records: 50}", "memory: {max_records: 1, scope: conversation}", "memory: {learn: true, facts: {" + strings.Join(facts[:64], ", ") + "}}"} {
		if _, err := definition.Parse([]byte(valid + text + "\n")); err != nil {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}

func TestMemoryBounds(t *testing.T) {
	t.Parallel()
	if got, want := (definition.Memory{Recall: true}).Bounds("demo"), (definition.Memory{Recall: true, Model: "demo", MaxRecords: 8, Scope: "user"}); !reflect.DeepEqual(got, want) {
		t.Errorf("defaults: %+v", got)
	}
	given := definition.Memory{Learn: true, Model: "small", MaxRecords: 3, Scope: "conversation"}
	if got := given.Bounds("demo"); !reflect.DeepEqual(got, given) {
		t.Errorf("given: %+v", got)
	}
}
