package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/memorypolicy"
)

func TestMemoryPolicy(t *testing.T) {
	t.Parallel()
	o := console{}.invoke(t.Context(), "memory", "policy")
	if o.code != exitOK || o.errOut != "" || !strings.Contains(o.out, "built in") || !strings.Contains(o.out, "\nKeys\n") || !strings.Contains(o.out, "Workers decide by what theirs name (FAIRLEAD_MEMORY_POLICY)") {
		t.Errorf("%+v", o)
	}
	o = console{}.invoke(t.Context(), "memory", "policy", "--json", "--check", "../memorypolicy/default.yaml")
	var document policyDocument
	if err := json.Unmarshal([]byte(o.out), &document); err != nil || o.code != exitOK || len(document.Keys) == 0 || len(document.Digest) != 64 || document.Version == "" {
		t.Errorf("%v, %+v", err, o)
	}
	for _, k := range document.Keys {
		if !k.Kind.Valid() || len(k.Sources) == 0 || len(k.Scopes) == 0 || !json.Valid(k.Schema) {
			t.Errorf("key %+v", k)
		}
	}
	for name, test := range map[string]struct {
		file, says string
		code       int
	}{
		"absent": {"absent.yaml", "cannot be read", exitUsage},
		"empty":  {"", "cannot be read", exitUsage},
		"wrong":  {"testdata/pending.txt", "testdata/pending.txt: memory policy:", exitRunFailed},
	} {
		if o := (console{}).invoke(t.Context(), "memory", "policy", "--check", test.file); o.code != test.code || !strings.Contains(o.errOut, test.says) || o.out != "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestMemoryPolicySaysAll: what a person must know of the built-in policy, as it
// stands in default.yaml.
func TestMemoryPolicySaysAll(t *testing.T) {
	t.Parallel()
	o := console{}.invoke(t.Context(), "memory", "policy", "--json")
	var document policyDocument
	if err := json.Unmarshal([]byte(o.out), &document); err != nil || o.code != exitOK {
		t.Fatalf("%v, %+v", err, o)
	}
	modes := map[string]memorypolicy.WriteMode{}
	for _, k := range document.Keys {
		modes[k.Name] = k.SharedMode
	}
	for key, want := range map[string]memorypolicy.WriteMode{
		"preference.default_environment": "background_review", "preference.food": "background_review", "profile.diet": "", "fact.service": "immediate_if_trusted",
		"task.current": "background_only", "summary.conversation": "background_only", "experience.lesson": "background_review",
	} {
		if got, ok := modes[key]; !ok || got != want {
			t.Errorf("%s is written %q where others see it, want %q", key, got, want)
		}
	}
	if got := joined(document.DeniedSources); got != "assistant, external_content, raw_user_prompt, recalled_memory, unvalidated_tool_output" {
		t.Errorf("denied %s", got)
	}
	if got := joined(document.RefusedContent); got != "access_token, authority, chatter, failed, finance, health, identity_number, injection, payment_card, phone_number, secret" {
		t.Errorf("refused %s", got)
	}
	var roles []string
	for _, r := range document.Reads {
		roles = append(roles, fmt.Sprintf("%s: %s", r.Role, joined(r.Kinds)))
	}
	if got := strings.Join(roles, "; "); got != "personalization: profile_preference; planner: validated_fact, ongoing_task; planner: session_summary; planner: operating_experience; policy_engine: validated_fact" {
		t.Errorf("reads %s", got)
	}
	o = console{}.invoke(t.Context(), "memory", "policy")
	for _, words := range []string{"WHERE OTHERS SEE IT", "a reviewer decides (starter memory review)", "the user decides (starter memory confirm)", "raw_user_prompt", "payment_card", "policy_engine"} {
		if !strings.Contains(o.out, words) {
			t.Errorf("%q is not shown: %s", words, o.out)
		}
	}
}

// TestMemoryPolicyOfOneVersion: two texts with one version are told apart by nobody.
func TestMemoryPolicyOfOneVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../memorypolicy/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	version := fmt.Sprintf("version: %q", memorypolicy.Default().Version())
	changed := strings.Replace(string(text), "\n  - phone_number\n", "\n", 1)
	for name, test := range map[string]struct {
		text string
		warn bool
	}{
		"the same":  {string(text), false},
		"changed":   {changed, true},
		"versioned": {strings.Replace(changed, version, `version: "ours-1"`, 1), false},
	} {
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := console{}.invoke(t.Context(), "memory", "policy", "--check", file)
		if o.code != exitOK || strings.Contains(o.errOut, "is that of the built-in policy, and the text is another one") != test.warn || strings.Contains(o.out, "Workers decide") {
			t.Errorf("%s: %+v", name, o)
		}
		// What it no longer refuses is not said to be refused.
		if strings.Contains(o.out, "phone_number") != (name == "the same") {
			t.Errorf("%s: %s", name, o.out)
		}
		o = console{}.invoke(t.Context(), "memory", "policy", "--check", file, "--json")
		var document policyDocument
		if err := json.Unmarshal([]byte(o.out), &document); err != nil || (document.Warning != "") != test.warn {
			t.Errorf("%s: %v, warning %q", name, err, document.Warning)
		}
	}
}
