package approval_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
)

func TestPlanHash(t *testing.T) {
	t.Parallel()
	facts := approval.PlanFacts{
		Tenant: "acme", RunID: "run-1", CallID: "0.1", Revision: 2, Tool: "restart_service", ToolVersion: "1",
		Arguments: []byte(`{"a":1,"b":"é <&>"}`), Resource: "service/payment", ResourceVersion: "v7",
		Summary: "Restart it.\n\u2028\"now\"", ExpiresAt: issued.Add(1500 * time.Nanosecond), Nonce: "nonce-1",
	}
	hash, err := approval.PlanHash(facts)
	if err != nil {
		t.Fatal(err)
	}
	// Written by hand after RFC 8785: sorted members, no escapes but those of
	// quotes, backslashes and control characters.
	canonical := `{"arguments":"{\"a\":1,\"b\":\"é <&>\"}","call_id":"0.1","expires_at":"2026-11-30T12:00:00.000001Z","nonce":"nonce-1",` +
		`"resource":"service/payment","resource_version":"v7","revision":2,"run_id":"run-1","summary":"Restart it.\n` + "\u2028" + `\"now\"",` +
		`"tenant":"acme","tool":"restart_service","tool_version":"1"}`
	sum := sha256.Sum256([]byte(canonical))
	if want := hex.EncodeToString(sum[:]); hash != want {
		t.Errorf("hash %s, want %s", hash, want)
	}

	same := facts
	same.ExpiresAt = facts.ExpiresAt.In(time.FixedZone("", 3600)).Truncate(time.Microsecond)
	if got, err := approval.PlanHash(same); err != nil || got != hash {
		t.Errorf("the zone of the expiry changes the hash: %v", err)
	}
	seen := map[string]string{hash: "the plan"}
	for name, change := range map[string]func(*approval.PlanFacts){
		"tenant":           func(f *approval.PlanFacts) { f.Tenant = "acme2" },
		"run":              func(f *approval.PlanFacts) { f.RunID = "run-2" },
		"call":             func(f *approval.PlanFacts) { f.CallID = "0.2" },
		"revision":         func(f *approval.PlanFacts) { f.Revision = 3 },
		"tool":             func(f *approval.PlanFacts) { f.Tool = "stop_service" },
		"tool version":     func(f *approval.PlanFacts) { f.ToolVersion = "2" },
		"arguments":        func(f *approval.PlanFacts) { f.Arguments = []byte(`{"a":2,"b":"é <&>"}`) },
		"resource":         func(f *approval.PlanFacts) { f.Resource = "service/payments" },
		"resource version": func(f *approval.PlanFacts) { f.ResourceVersion = "v8" },
		"no version":       func(f *approval.PlanFacts) { f.ResourceVersion = "" },
		"summary":          func(f *approval.PlanFacts) { f.Summary += " " },
		"expiry":           func(f *approval.PlanFacts) { f.ExpiresAt = f.ExpiresAt.Add(time.Microsecond) },
		"nonce":            func(f *approval.PlanFacts) { f.Nonce = "nonce-2" },
		"moved text": func(f *approval.PlanFacts) {
			f.Resource, f.ResourceVersion = "service/payment\",\"resource_version\":\"v7", ""
		},
	} {
		changed := facts
		change(&changed)
		got, err := approval.PlanHash(changed)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if other, dup := seen[got]; dup {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[got] = name
	}

	for name, change := range map[string]func(*approval.PlanFacts){
		"spaces":         func(f *approval.PlanFacts) { f.Arguments = []byte(`{"a": 1}`) },
		"order":          func(f *approval.PlanFacts) { f.Arguments = []byte(`{"b":1,"a":1}`) },
		"a key twice":    func(f *approval.PlanFacts) { f.Arguments = []byte(`{"a":1,"a":1}`) },
		"no object":      func(f *approval.PlanFacts) { f.Arguments = []byte(`[1]`) },
		"none":           func(f *approval.PlanFacts) { f.Arguments = nil },
		"broken summary": func(f *approval.PlanFacts) { f.Summary = "a\xff" },
	} {
		changed := facts
		change(&changed)
		if got, err := approval.PlanHash(changed); err == nil {
			t.Errorf("%s: hash %s", name, got)
		}
	}
}

func TestNonce(t *testing.T) {
	t.Parallel()
	a, b := approval.Nonce(), approval.Nonce()
	if raw, err := hex.DecodeString(a); err != nil || len(raw) != 16 || a == b {
		t.Errorf("%q, %q", a, b)
	}
	if !agent.ValidID(a) {
		t.Errorf("%q cannot be a token ID", a)
	}
}
