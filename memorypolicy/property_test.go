package memorypolicy_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/memorypolicy/detect"
)

// rounds of draws make it sure enough that each outcome is drawn.
const rounds = 15

// canary begins every drawn word: no word of the policy has it.
const canary = "qzx"

// yesterday takes what has this word for an event, and is faster than the real
// detectors, which have tests of their own.
func yesterday(texts ...string) []detect.Finding {
	if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "yesterday") }) {
		return []detect.Finding{{Category: detect.Event, Rule: "yesterday"}}
	}
	return nil
}

// sayings are what users say, and what could be made of it; %s is a drawn word.
var sayings = []struct{ key, value, message string }{
	{"preference.food", `{"item":"%s","sentiment":"likes"}`, "I always like %s"},
	{"preference.food", `{"item":"%s","sentiment":"dislikes"}`, "我不喜欢%s"},
	{"preference.food", `{"item":"%s","sentiment":"likes"}`, "yesterday I had %s"},
	{"preference.food", `{"item":"%s","sentiment":"%s"}`, "Do I like %s?"},
	{"fact.note", `{"topic":"%s","text":"%s"}`, "note %s"},
	{"fact.note", `{"text":"%s","password":"%s"}`, "note %s"},
	{"profile.name", `"%s"`, "call me %s"},
	{"preference.language", `"de"`, "always answer in German, %s"},
	{"preference.language", `"%s"`, "answer in %s"},
	{"preference.default_environment", `"production"`, "default to production from now on, %s"},
	{"preference.default_environment", `["%s"]`, "default to %s from now on"},
	{"profile.diet", `"vegan"`, "I am a vegan, %s"},
	{"nothing.qzx", `"%s"`, "%s"},
}

// candidates are mostly sound, and in one way or another at fault at times.
func candidates(t *rapid.T) memorypolicy.Candidate {
	w := canary + rapid.StringMatching(`[a-z]{2,6}`).Draw(t, "letters")
	w = rapid.SampledFrom([]string{w, strings.ToUpper(w), w + "\u200b", w + "  " + w, "ｑｚｘ" + w, w + "的记录"}).Draw(t, "word")
	said := rapid.SampledFrom(sayings).Draw(t, "saying")
	message := strings.ReplaceAll(said.message, "%s", w)
	k, _ := memorypolicy.Default().Key(said.key)
	c := memorypolicy.Candidate{
		MemoryCandidate: agent.MemoryCandidate{
			Kind: k.Kind, Key: said.key, Value: []byte(strings.ReplaceAll(said.value, "%s", w)), SourceType: agent.SourceUserStatement,
			SourceID: "msg-1", Writer: "learner:x", MessageID: "msg-1", Quote: message,
		},
		Room: personal, Message: "Well. " + message + ".", Now: now,
	}
	switch rapid.IntRange(0, 9).Draw(t, "change") {
	case 0, 1:
		c.SourceType, c.Writer, c.Quote, c.MessageID, c.Message = agent.SourceUserCorrection, "user:ann", "", "", ""
	case 2:
		c.SourceType = agent.SourceTrustedTool
	case 3:
		c.SourceType = rapid.SampledFrom([]agent.MemorySourceType{agent.SourceRecalled, canary}).Draw(t, "source")
	case 4:
		c.Quote = rapid.SampledFrom([]string{"", canary + " is not there"}).Draw(t, "quote")
	case 5:
		c.Purpose = canary + " purpose"
	case 6:
		c.Room = group
	}
	return c
}

// What holds for every decision: it is the same again, it has a rule, no rule
// holds a piece of the content, and a rejected one holds none at all.
func TestPOL1Properties(t *testing.T) {
	t.Parallel()
	p := memorypolicy.Default().WithDetector(yesterday)
	outcomes := map[memorypolicy.Outcome]int{}
	property := func(t *rapid.T) {
		c := candidates(t)
		d := p.Evaluate(c)
		outcomes[d.Outcome]++
		if again := p.Evaluate(c); !reflect.DeepEqual(d, again) {
			t.Fatalf("%+v\nand again %+v", d, again)
		}
		if len(d.Rules) == 0 {
			t.Fatal("no rule")
		}
		for _, r := range d.Rules {
			if r.ID == "" || r.Text == "" || strings.Contains(detect.Fold(r.ID+r.Text), canary) {
				t.Fatalf("rule %+v", r)
			}
		}
		if d.Outcome == memorypolicy.Reject {
			d.Rules, d.SafeMetadata = nil, false
			if !reflect.DeepEqual(d, memorypolicy.Decision{Outcome: memorypolicy.Reject}) {
				t.Fatalf("a rejected decision holds %+v", d)
			}
			return
		}
		// The normalized value is decided in the same way, and is its own normal form.
		c.Value = d.Value
		if again := p.Evaluate(c); !reflect.DeepEqual(d, again) {
			t.Fatalf("%+v\nof the normalized value %+v", d, again)
		}
	}
	for range rounds {
		rapid.Check(t, property)
	}
	t.Log(outcomes)
	for _, o := range []memorypolicy.Outcome{memorypolicy.Store, memorypolicy.Review, memorypolicy.Confirm, memorypolicy.Reject} {
		if outcomes[o] == 0 {
			t.Errorf("no drawn candidate came to %s: %v", o, outcomes)
		}
	}
}

// What holds for every resolution: it is never laxer than the decision, unless the
// same is in force; Of comes from what is in force; after Insert and Replace no
// two in force overlap.
func TestLTM4ResolveProperties(t *testing.T) {
	t.Parallel()
	p := memorypolicy.Default().WithDetector(yesterday)
	steps := map[memorypolicy.Step]int{}
	strictness := map[memorypolicy.Outcome]int{memorypolicy.Store: 0, memorypolicy.Confirm: 1, memorypolicy.Review: 2, memorypolicy.Reject: 3}
	names := []string{"atlas", "zeus", "ATLAS"}
	property := func(t *rapid.T) {
		day := func(label string) *time.Time {
			n := rapid.IntRange(-20, 30).Draw(t, label)
			if n < -5 {
				return nil
			}
			v := now.Add(time.Duration(n) * 24 * time.Hour)
			return &v
		}
		c := memorypolicy.Candidate{
			MemoryCandidate: agent.MemoryCandidate{
				Kind: agent.MemoryFact, Key: "fact.project_codename", Value: []byte(`"` + rapid.SampledFrom(names).Draw(t, "name") + `"`),
				SourceType: rapid.SampledFrom([]agent.MemorySourceType{agent.SourceTrustedTool, agent.SourceUserCorrection}).Draw(t, "source"),
				SourceID:   "call-1", Writer: "user:ann", ValidFrom: day("from"), ValidUntil: day("until"), Retracts: rapid.IntRange(0, 4).Draw(t, "retracts") == 0,
			},
			Room: personal, Now: now,
		}
		d := p.Evaluate(c)
		// What is in force does not overlap: cut at some days.
		var inForce []memorypolicy.InForce
		edge := (*time.Time)(nil)
		for i := range rapid.IntRange(0, 3).Draw(t, "held") {
			until := now.Add(time.Duration(i*8+rapid.IntRange(-5, 2).Draw(t, "edge")) * 24 * time.Hour)
			inForce = append(inForce, memorypolicy.InForce{
				ID: string(rune('a' + i)), Version: 1, Value: json.RawMessage(`"` + rapid.SampledFrom(names).Draw(t, "held name") + `"`),
				Validation: rapid.SampledFrom([]agent.MemoryValidation{
					agent.MemoryUserStated, agent.MemoryTrusted, agent.MemoryReviewed, agent.MemoryUserConfirmed,
				}).Draw(t, "validation"),
				ValidFrom: edge, ValidUntil: &until,
			})
			edge = &until
		}
		if n := len(inForce); n > 0 && rapid.Bool().Draw(t, "open") {
			inForce[n-1].ValidUntil = nil
		}
		r := p.Resolve(c, d, inForce)
		steps[r.Step]++
		if !reflect.DeepEqual(r, p.Resolve(c, d, inForce)) {
			t.Fatal("not the same again")
		}
		if len(r.Rules) == 0 {
			t.Fatalf("no rule: %+v", r)
		}
		if r.Step != memorypolicy.Merge && strictness[r.Outcome] < strictness[d.Outcome] {
			t.Fatalf("%s became %s", d.Outcome, r.Outcome)
		}
		if (r.Outcome == memorypolicy.Reject) != (r.Step == "") || (len(r.Of) == 0) != (r.Step == memorypolicy.Insert || r.Step == "") {
			t.Fatalf("%s, %q of %d", r.Outcome, r.Step, len(r.Of))
		}
		if r.Step != memorypolicy.Insert && r.Step != memorypolicy.Replace {
			return
		}
		for _, f := range inForce {
			ended := false
			for _, of := range r.Of {
				ended = ended || of.ID == f.ID
			}
			overlap := (c.ValidFrom == nil || f.ValidUntil == nil || c.ValidFrom.Before(*f.ValidUntil)) && (f.ValidFrom == nil || c.ValidUntil == nil || f.ValidFrom.Before(*c.ValidUntil))
			if overlap != ended {
				t.Fatalf("%s: overlaps %v, ends %v", f.ID, overlap, ended)
			}
			if ended && r.Step == memorypolicy.Replace && bytes.EqualFold(f.Value, d.Value) && f.ValidUntil == nil && c.ValidUntil == nil &&
				f.Validation == agent.MemoryUserConfirmed && (f.ValidFrom == nil || !f.ValidFrom.After(now)) && (c.ValidFrom == nil || !c.ValidFrom.After(now)) &&
				c.SourceType == agent.SourceTrustedTool {
				t.Fatal("the same was replaced and not merged")
			}
		}
	}
	for range rounds {
		rapid.Check(t, property)
	}
	t.Log(steps)
	for _, s := range []memorypolicy.Step{memorypolicy.Insert, memorypolicy.Merge, memorypolicy.Replace, memorypolicy.Retract, ""} {
		if steps[s] == 0 {
			t.Errorf("no draw came to step %q: %v", s, steps)
		}
	}
}

// Nothing personal is readable in a group, whatever the record and the roles.
func TestISO2ReadProperties(t *testing.T) {
	t.Parallel()
	allowed := 0
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.SampledFrom([]agent.MemoryRoom{personal, group}).Draw(t, "room")
		rec := memorypolicy.Record{
			Scope: agent.MemoryScope{
				Kind: rapid.SampledFrom([]agent.MemoryScopeKind{
					agent.MemoryOfUser, agent.MemoryOfConversation, agent.MemoryOfGroup, agent.MemoryOfProject, agent.MemoryOfAgent,
				}).Draw(t, "scope"),
				ID: rapid.SampledFrom([]string{"ann", "bob", "c1", "c2", "g7", "g8", "atlas", "zeus", "opspilot"}).Draw(t, "id"),
			},
			Environment: rapid.SampledFrom([]string{"production", "production", "test"}).Draw(t, "environment"),
			Kind:        agent.MemoryPreference, Key: "preference.food", SourceType: agent.SourceUserStatement, Validation: agent.MemoryUserStated,
			Confidence: 0.7, Sensitivity: "normal", Active: true,
		}
		d := memorypolicy.Default().EvaluateRead(memorypolicy.Reader{
			Roles: []memorypolicy.ReaderRole{memorypolicy.Personalization, memorypolicy.Planner, memorypolicy.PolicyEngine}, Room: room, Now: now,
		}, rec)
		if !d.Allowed {
			return
		}
		allowed++
		seen := map[agent.MemoryScopeKind]string{agent.MemoryOfUser: "ann", agent.MemoryOfConversation: "c1", agent.MemoryOfProject: "atlas"}
		if room.Group != "" {
			seen = map[agent.MemoryScopeKind]string{agent.MemoryOfGroup: "g7", agent.MemoryOfProject: "atlas"}
		}
		if seen[rec.Scope.Kind] != rec.Scope.ID || rec.Environment != "production" {
			t.Fatalf("%+v is read from %+v", rec.Scope, room)
		}
	})
	if allowed == 0 {
		t.Error("nothing was readable at all")
	}
}

// Hostile candidates are decided without a panic.
func FuzzEvaluate(f *testing.F) {
	f.Add("preference.food", likesChinese, "I love Chinese food", "Hi. I love Chinese food.", "m1", false)
	f.Add("profile.name", `"Ann"`, "\u0301", "a\u0301", "m1", true)
	f.Add("fact.note", `{"topic":"。","text":"?"}`, "。", "。。。", "", false)
	p := memorypolicy.Default()
	f.Fuzz(func(t *testing.T, key, value, quote, message, source string, retracts bool) {
		k, _ := p.Key(key)
		c := memorypolicy.Candidate{
			MemoryCandidate: agent.MemoryCandidate{
				Kind: k.Kind, Key: key, Value: []byte(value), SourceType: agent.SourceUserStatement, SourceID: source, Writer: "learner:x",
				MessageID: "m1", Quote: quote, Retracts: retracts,
			},
			Room: personal, Message: message, Now: now,
		}
		d := p.Evaluate(c)
		if len(d.Rules) == 0 || d.Outcome == memorypolicy.Reject && d.Value != nil || d.Outcome != memorypolicy.Reject && !strings.Contains(message, quote) {
			t.Errorf("%+v", d)
		}
		p.Resolve(c, d, []memorypolicy.InForce{{ID: "r", Version: 1, Value: json.RawMessage(value), Validation: agent.MemoryTrusted}})
	})
}
