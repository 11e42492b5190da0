package definition_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
)

const valid = `
name: ops-pilot
version: "1.0"
system: |
  You help people on call. 不要重启任何服务。
model: demo
tools: [search_logs, fetch_result]
environments: [production, test]
budget:
  max_steps: 12
  max_tool_calls: 20
  max_tokens: 200000
  max_cost_micros: 500000
  timeout: 10m
`

const withSchema = valid + `
final_schema:
  type: object
  required: [cause, confidence]
  properties:
    cause: {type: string, pattern: "^<.*>$"}
    confidence: {type: number, maximum: 1}
`

func parse(t *testing.T, text string) definition.Definition {
	t.Helper()
	d, err := definition.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestParseDefaults(t *testing.T) {
	t.Parallel()
	d := parse(t, valid)
	wantRules := agent.LoopRules{
		SameAction: 3, SameResult: 3, SameError: 2, Cycle: 2, MalformedRetries: 1, ModelTries: 4,
		RetryInitial: 500 * time.Millisecond, RetryMax: 30 * time.Second, ParallelReads: 4, LookUpTries: 8,
	}
	if got := d.Rules(); got != wantRules {
		t.Errorf("rules %+v", got)
	}
	wantBudget := agent.Budget{MaxSteps: 12, MaxToolCalls: 20, MaxTokens: 200000, MaxCostMicros: 500000, Timeout: 10 * time.Minute}
	if got := d.AgentBudget(); got != wantBudget {
		t.Errorf("budget %+v", got)
	}
	if d.Writes.ConfirmWithin != 24*time.Hour {
		t.Errorf("plans wait %s", d.Writes.ConfirmWithin)
	}
	if d.Version != "1.0" || d.System != "You help people on call. 不要重启任何服务。\n" || d.FinalSchema != nil {
		t.Errorf("got %+v", d)
	}
}

func TestParseKeepsWhatIsGiven(t *testing.T) {
	t.Parallel()
	d := parse(t, valid+"loop: {same_action: 5, malformed_retries: 0, retry_initial: 1m, parallel_reads: 1, look_up_tries: 2}\nwrites: {confirm_within: 3h}\nmax_output_tokens: 900\n")
	got := d.Rules()
	if got.SameAction != 5 || got.MalformedRetries != 0 || got.RetryInitial != time.Minute || got.RetryMax != time.Minute || got.ParallelReads != 1 || got.LookUpTries != 2 || d.Writes.ConfirmWithin != 3*time.Hour || d.MaxOutputTokens != 900 {
		t.Errorf("got %+v", got)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	replace := func(old, new string) string {
		if !strings.Contains(valid, old) {
			t.Fatalf("%q is not in the text", old)
		}
		return strings.Replace(valid, old, new, 1)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"empty":                {"", "the text is empty"},
		"comment only":         {"# nothing\n", "the text is empty"},
		"a list":               {"- a\n", "mapping"},
		"not YAML":             {"name: [a\n", "definition"},
		"unknown field":        {valid + "temperature: 1\n", `unknown field "temperature"`},
		"unknown nested field": {replace("timeout: 10m", "time: 10m"), `unknown field "time"`},
		"repeated key":         {valid + "model: other\n", `"model" already defined`},
		"two documents":        {valid + "---\nname: b\n", "more than one document"},
		"number for version":   {replace(`"1.0"`, "1.10"), "version must be a string: put it in quotes"},
		"list for name":        {replace("name: ops-pilot", "name: [a]"), "name must be a string"},
		"number for a tool":    {replace("[search_logs,", "[7,"), "tools[0] must be a string"},
		"empty tool":           {replace("[search_logs,", "[~,"), "tools[0] is empty"},
		"float for integer":    {replace("max_steps: 12", "max_steps: 1.5"), "budget.max_steps must be an integer"},
		"text for integer":     {replace("max_steps: 12", `max_steps: "12"`), "budget.max_steps must be an integer"},
		"number for duration":  {replace("10m", "10"), "time.Duration"},
		"bad name":             {replace("ops-pilot", "ops pilot"), "name must be 1 to 128"},
		"no name":              {replace("name: ops-pilot", ""), "name must be"},
		"no version":           {replace(`version: "1.0"`, ""), "version must be"},
		"blank system":         {valid[:strings.Index(valid, "system")] + "system: \" \"\n" + valid[strings.Index(valid, "model"):], "system is empty"},
		"tag without a value":  {replace("tools: [search_logs, fetch_result]", "tools: !x\n"), "not valid YAML"}, // the library panics
		"invalid UTF-8":        {replace("You help", "You \xff help"), "not valid UTF-8"},
		"long system":          {replace("You help", strings.Repeat("x", 64<<10)), "the limit is 65536"},
		"no model":             {replace("model: demo", ""), "model must be"},
		"look-alike tool":      {replace("search_logs", "se\u0430rch_logs"), "tools[0] must be the exact name"},
		"repeated tool":        {replace("fetch_result", "search_logs"), `tools[1] repeats "search_logs"`},
		"no environment":       {replace("[production, test]", "[]"), "environments is empty"},
		"bad environment":      {replace("[production, test]", "['a b']"), "environments[0] must be"},
		"no steps":             {replace("max_steps: 12", ""), "budget: max_steps is 0"},
		"negative tokens":      {replace("200000", "-1"), "budget: max_tokens is -1"},
		"huge tokens":          {replace("200000", "9007199254740993"), "budget: a limit is beyond"},
		"no timeout":           {replace("timeout: 10m", ""), "budget: timeout is 0s"},
		"endless timeout":      {replace("10m", "1000h"), "budget: timeout is 1000h0m0s"},
		"same_action 1":        {valid + "loop: {same_action: 1}\n", "loop.same_action is 1: it must be 2 to 100"},
		"negative cycle":       {valid + "loop: {cycle: -2}\n", "loop.cycle is -2"},
		"negative malformed":   {valid + "loop: {malformed_retries: -1}\n", "loop.malformed_retries is -1"},
		"negative wait":        {valid + "loop: {retry_initial: -1s}\n", "loop.retry_initial is -1s"},
		"max below initial":    {valid + "loop: {retry_initial: 2s, retry_max: 1s}\n", "loop.retry_max is 1s"},
		"schema is text":       {valid + "final_schema: '{}'\n", "definition"},
		"schema is wrong":      {valid + "final_schema: {type: objekt}\n", "final_schema: compile schema"},
		"schema loads":         {valid + "final_schema: {$ref: 'https://example.com/x'}\n", "load nothing"},
		"schema infinite":      {valid + "final_schema: {maximum: .inf}\n", "final_schema"},
		"schema inexact":       {valid + "final_schema: {maximum: 9007199254740993}\n", "final_schema"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := definition.Parse([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %q", err, tt.want)
			}
		})
	}
}

func TestDigestSurvivesStorage(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"plain": valid, "schema": withSchema,
		"no retries": valid + "loop: {malformed_retries: 0}\n", "no tools": strings.Replace(valid, "tools: [search_logs, fetch_result]", "", 1),
	} {
		d := parse(t, text)
		encoded, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		// As jsonb would: other order of keys, other spacing.
		var loose map[string]any
		if err := json.Unmarshal(encoded, &loose); err != nil {
			t.Fatal(err)
		}
		stored, err := json.MarshalIndent(loose, " ", "  ")
		if err != nil {
			t.Fatal(err)
		}
		var restored definition.Definition
		if err := json.Unmarshal(stored, &restored); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(restored, d) || definition.Digest(restored) != definition.Digest(d) {
			t.Errorf("%s: %+v became %+v", name, d, restored)
		}
		again, err := definition.New(restored)
		if err != nil || !reflect.DeepEqual(again, d) {
			t.Errorf("%s: New is not idempotent: %+v, %v", name, again, err)
		}
	}
	var d definition.Definition
	if err := json.Unmarshal([]byte(`{"name":"a","shell":true}`), &d); err == nil {
		t.Error("a field of a newer version was dropped")
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	base := definition.Digest(parse(t, valid))
	// sha256sum of the canonical JSON, which was written by hand.
	if want := "3a4b1763fc9d2e32defd31aece9544e5e97ecb9aa8b64ad8d49082b52d498492"; base != want {
		t.Errorf("got %s", base)
	}
	same := strings.Replace(valid, "tools: [search_logs, fetch_result]", "tools:\n  - search_logs\n  - fetch_result # comment", 1) + "loop: {same_action: 3}\n"
	if definition.Digest(parse(t, same)) != base {
		t.Error("spelling changes the digest")
	}
	for _, change := range [][2]string{{"on call", "off call"}, {"demo", "demo2"}, {"12", "13"}, {"10m", "11m"}, {"search_logs, fetch_result", "fetch_result, search_logs"}} {
		if definition.Digest(parse(t, strings.Replace(valid, change[0], change[1], 1))) == base {
			t.Errorf("%v does not change the digest", change)
		}
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	version := func(v string) definition.Definition {
		d := parse(t, valid)
		d.Version = v
		return d
	}
	for name, tt := range map[string]struct {
		versions []string
		current  string
		err      string
	}{
		"one":                 {[]string{"blue"}, "blue", ""},
		"by number":           {[]string{"1.10", "1.9", "1.2.3"}, "1.10", ""},
		"longer is higher":    {[]string{"2", "2.0.1"}, "2.0.1", ""},
		"large":               {[]string{"20260102030405060708", "9"}, "20260102030405060708", ""},
		"the same twice":      {[]string{"1", "1"}, "1", ""},
		"no order":            {[]string{"1", "blue"}, "", `"blue" is not numbers separated by dots`},
		"equal":               {[]string{"1.0", "1"}, "", "are the same number"},
		"zeros before":        {[]string{"01", "1"}, "", "are the same number"},
		"release candidate":   {[]string{"1.0", "1.1-rc1"}, "", "is not numbers separated by dots"},
		"invalid definitions": {[]string{"a b"}, "", "version must be"},
	} {
		var defs []definition.Definition
		for _, v := range tt.versions {
			defs = append(defs, version(v))
		}
		s, err := definition.NewSet(defs...)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: got %v, want %q", name, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d, ok := s.Lookup("ops-pilot", ""); !ok || d.Version != tt.current {
			t.Errorf("%s: current is %s", name, d.Version)
		}
		for _, v := range tt.versions {
			if d, ok := s.Lookup("ops-pilot", v); !ok || d.Version != v {
				t.Errorf("%s: version %s not found", name, v)
			}
		}
		if _, ok := s.Lookup("ops-pilot", "0.0.0"); ok {
			t.Errorf("%s: an absent version was found", name)
		}
		if _, ok := s.Lookup("Ops-pilot", ""); ok {
			t.Errorf("%s: an absent agent was found", name)
		}
	}
	changed := version("1")
	changed.System = "other"
	if _, err := definition.NewSet(version("1"), changed); err == nil || !strings.Contains(err.Error(), "version 1 twice with other content") {
		t.Errorf("got %v", err)
	}
}

func TestLoadFS(t *testing.T) {
	t.Parallel()
	second := strings.Replace(valid, "ops-pilot", "assistant", 1)
	s, err := definition.LoadFS(fstest.MapFS{
		"a.yaml": {Data: []byte(valid)}, "b.yml": {Data: []byte(second)},
		"notes.txt": {Data: []byte("x")}, "sub/c.yaml": {Data: []byte("broken: [")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.Names(), len(s.All())); got != "[assistant ops-pilot] 2" {
		t.Errorf("got %s", got)
	}
	for want, files := range map[string]fstest.MapFS{
		"a.yaml: definition":         {"a.yaml": {Data: []byte("x: 1")}},
		"no file ends in":            {"a.txt": {}},
		"twice with other content":   {"a.yaml": {Data: []byte(valid)}, "b.yaml": {Data: []byte(valid + "max_output_tokens: 1\n")}},
		`b.yaml: definition "ops-pi`: {"a.yaml": {Data: []byte(valid)}, "b.yaml": {Data: []byte(strings.Replace(valid, "demo", "''", 1))}},
	} {
		if _, err := definition.LoadFS(files); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := definition.LoadDir(t.TempDir() + "/absent"); err == nil {
		t.Error("an absent directory was accepted")
	}
}

func TestValidateFinal(t *testing.T) {
	t.Parallel()
	structured, free := parse(t, withSchema), parse(t, valid)
	for text, want := range map[string]string{
		`{"cause":"<disk>","confidence":0.5}`: "",
		` {"confidence":1,"cause":"<>"} `:     "",
		`{"cause":"hunter2","confidence":2}`:  "the final answer does not fit: at /cause: must match ^<.*>$ (pattern); at /confidence: must be at most 1 (maximum)",
		`{"cause":"<a>"}`:                     "the final answer does not fit: at the top level: missing (required): confidence",
		`{"cause":"<a>","confidence":1`:       "the final answer cannot be read as JSON: not valid JSON: the text ends too early or breaks off at byte 29",
		"```json\n{}\n```":                    "the final answer cannot be read as JSON: not valid JSON: unexpected text at byte 1",
		`{"confidence":1,"confidence":1}`:     "the final answer cannot be read as JSON: an object has the same key twice, the second time before byte 28",
		" \n":                                 "the final answer is empty",
	} {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				got := ""
				if err := definition.ValidateFinal(structured, text); err != nil {
					got = err.Error()
				}
				if got != want {
					t.Errorf("%s\n got %s\nwant %s", text, got, want)
				}
			})
		}
		wg.Wait()
	}
	for text, ok := range map[string]bool{"The disk is full.": true, "": false, "\t": false, strings.Repeat("x", 1<<20+1): false} {
		if err := definition.ValidateFinal(free, text); (err == nil) != ok {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte(withSchema))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := definition.Parse(text)
		if err != nil {
			return
		}
		again, err := definition.New(d)
		if err != nil || definition.Digest(again) != definition.Digest(d) {
			t.Fatalf("not stable: %v", err)
		}
	})
}

func ExampleParse() {
	d, err := definition.Parse([]byte(`
name: ops-pilot
version: "1.0"
system: You help people on call.
model: demo
tools: [search_logs]
environments: [production]
budget: {max_steps: 12, max_tool_calls: 20, max_tokens: 200000, timeout: 10m}
final_schema:
  type: object
  required: [cause]
  properties:
    cause: {type: string}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Name, d.Version, d.Rules().SameAction)
	fmt.Println(definition.ValidateFinal(d, `{"cause": 7}`))
	// Output:
	// ops-pilot 1.0 3
	// the final answer does not fit: at /cause: must be of type string (type)
}
