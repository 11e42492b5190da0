package memorypolicy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
)

// held is a version in force that says value.
func held(value string, v agent.MemoryValidation) memorypolicy.InForce {
	source := agent.SourceUserStatement
	switch v {
	case agent.MemoryUserConfirmed:
		source = agent.SourceUserCorrection
	case agent.MemoryTrusted:
		source = agent.SourceTrustedTool
	}
	return memorypolicy.InForce{ID: "r1", Version: 1, Value: json.RawMessage(value), SourceType: source, Validation: v, WrittenAt: now.Add(-time.Hour)}
}

func during(f memorypolicy.InForce, from, until *time.Time) memorypolicy.InForce {
	f.ValidFrom, f.ValidUntil = from, until
	return f
}

func resolve(t *testing.T, c memorypolicy.Candidate, inForce ...memorypolicy.InForce) memorypolicy.Resolution {
	t.Helper()
	p := memorypolicy.Default()
	d := p.Evaluate(c)
	if d.Outcome == reject {
		t.Fatalf("%s %s is rejected by itself: %v", c.Key, c.Value, d.Rules)
	}
	return p.Resolve(c, d, inForce)
}

func expectStep(t *testing.T, r memorypolicy.Resolution, outcome memorypolicy.Outcome, step memorypolicy.Step, ruleID string, of ...memorypolicy.InForce) {
	t.Helper()
	if r.Outcome != outcome || r.Step != step || !has(r.Rules, ruleID, outcome == reject) || !slices.EqualFunc(r.Of, of, func(a, b memorypolicy.InForce) bool {
		return a.ID == b.ID && a.Version == b.Version
	}) {
		t.Errorf("got %s, %q of %d by %v\nwant %s, %q of %d by %s", r.Outcome, r.Step, len(r.Of), ids(r.Rules), outcome, step, len(of), ruleID)
	}
}

const (
	likesChinese = `{"item":"Chinese food","sentiment":"likes"}`
	hatesChinese = `{"item":"Chinese food","sentiment":"dislikes"}`
)

// cases.md: "I love Chinese food", later "I hate Chinese food": one in force,
// history kept.
func TestLTM4LoveHate(t *testing.T) {
	t.Parallel()
	love, hate := said(t, "preference.food", likesChinese, "I love Chinese food"), said(t, "preference.food", hatesChinese, "I hate Chinese food")
	expectStep(t, resolve(t, love), store, memorypolicy.Insert, "conflict.none")
	old := held(likesChinese, agent.MemoryUserStated)
	expectStep(t, resolve(t, hate, old), store, memorypolicy.Replace, "conflict.replace", old)
	p := memorypolicy.Default()
	if a, b := p.Evaluate(love), p.Evaluate(hate); a.Identity != b.Identity || a.Identity == "" {
		t.Errorf("identities %q and %q", a.Identity, b.Identity)
	}
}

// cases.md: unrelated facts with similar wording are two records.
func TestLTM4Unrelated(t *testing.T) {
	t.Parallel()
	p := memorypolicy.Default()
	var seen []string
	for _, value := range []string{
		`{"service":"payment-api","property":"owner","value":"team blue"}`,
		`{"service":"payment-app","property":"owner","value":"team blue"}`,
		`{"service":"payment-api","property":"runbook","value":"team blue"}`,
	} {
		d := p.Evaluate(from(t, agent.SourceTrustedTool, "fact.service", value))
		if d.Outcome != store || d.Identity == "" || slices.Contains(seen, d.Identity) {
			t.Errorf("%s: %s, identity %s", value, d.Outcome, d.Identity)
		}
		seen = append(seen, d.Identity)
	}
}

// cases.md: a false fact retold three times gains nothing.
func TestLTM4Retold(t *testing.T) {
	t.Parallel()
	love := said(t, "preference.food", likesChinese, "I love Chinese food")
	old := held(likesChinese, agent.MemoryUserStated)
	for range 3 {
		r := resolve(t, love, old)
		expectStep(t, r, store, memorypolicy.Merge, "conflict.same", old)
	}
	// In other letters it is the same.
	expectStep(t, resolve(t, said(t, "preference.food", `{"item":"chinese  FOOD","sentiment":"likes"}`, "I love chinese  FOOD"), old), store, memorypolicy.Merge, "conflict.same", old)
	// Nobody is asked about what is in force already.
	environment := said(t, "preference.default_environment", `"production"`, "default to production from now on")
	confirmed := held(`"production"`, agent.MemoryUserConfirmed)
	expectStep(t, resolve(t, environment, confirmed), store, memorypolicy.Merge, "conflict.same", confirmed)
	// The user may correct the writing.
	rex := held(`"rex"`, agent.MemoryUserConfirmed)
	expectStep(t, resolve(t, from(t, agent.SourceUserCorrection, "profile.name", `"Rex"`), rex), store, memorypolicy.Replace, "conflict.replace", rex)
	// A source that is more reliable vouches for it: that is a new version, or a
	// user could keep a fact from ever being trusted by saying it first.
	note := `{"text":"it is blue","topic":"queue"}`
	told := held(note, agent.MemoryUserStated)
	expectStep(t, resolve(t, from(t, agent.SourceTrustedTool, "fact.note", note), told), store, memorypolicy.Replace, "conflict.replace", told)
	trusted := held(note, agent.MemoryTrusted)
	expectStep(t, resolve(t, from(t, agent.SourceTrustedTool, "fact.note", note), trusted), store, memorypolicy.Merge, "conflict.same", trusted)
}

// A less reliable source does not take the place of a more reliable one by itself.
func TestLTM4Reliability(t *testing.T) {
	t.Parallel()
	p := memorypolicy.Default()
	statement := said(t, "preference.reply_style", `"brief"`, "I always want short answers")
	for _, tt := range []struct {
		validation agent.MemoryValidation
		want       memorypolicy.Outcome
		rule       string
	}{
		{agent.MemoryUnvalidated, store, "conflict.replace"},
		{agent.MemoryUserStated, store, "conflict.replace"},
		{agent.MemoryTrusted, review, "conflict.weaker"},
		{agent.MemoryReviewed, review, "conflict.weaker"},
		{agent.MemoryUserConfirmed, confirm, "conflict.weaker"},
	} {
		old := held(`"detailed"`, tt.validation)
		expectStep(t, resolve(t, statement, old), tt.want, memorypolicy.Replace, tt.rule, old)
		// Once a person agreed nobody is asked again.
		for _, by := range []agent.MemoryValidation{agent.MemoryReviewed, agent.MemoryUserConfirmed} {
			expectStep(t, p.Resolve(statement, p.Agreed(p.Evaluate(statement), by), []memorypolicy.InForce{old}), store, memorypolicy.Replace, "conflict.replace", old)
		}
	}
	fact := func(source agent.MemorySourceType) memorypolicy.Candidate {
		return from(t, source, "fact.service", `{"service":"payment-api","property":"owner","value":"team blue"}`)
	}
	green := `{"property":"owner","service":"payment-api","value":"team green"}`
	for _, tt := range []struct {
		source     agent.MemorySourceType
		validation agent.MemoryValidation
		want       memorypolicy.Outcome
	}{
		{agent.SourceTrustedTool, agent.MemoryUserStated, store},
		{agent.SourceTrustedTool, agent.MemoryReviewed, store},
		{agent.SourceTrustedTool, agent.MemoryUserConfirmed, confirm},
		{agent.SourceUserCorrection, agent.MemoryTrusted, store},
	} {
		old := held(green, tt.validation)
		expectStep(t, resolve(t, fact(tt.source), old), tt.want, memorypolicy.Replace, "conflict.replace", old)
	}
	// Where several people see it, what one of them confirmed is a reviewer's.
	old := held(green, agent.MemoryUserConfirmed)
	expectStep(t, resolve(t, with(fact(agent.SourceTrustedTool), func(c *memorypolicy.Candidate) { c.Room = group }), old), review, memorypolicy.Replace, "conflict.weaker", old)
}

// cases.md: the same value with disjoint validity intervals is two intervals.
func TestLTM4Intervals(t *testing.T) {
	t.Parallel()
	codename := func(value string, from_, until *time.Time) memorypolicy.Candidate {
		return with(from(t, agent.SourceUserCorrection, "fact.project_codename", value), func(c *memorypolicy.Candidate) { c.ValidFrom, c.ValidUntil = from_, until })
	}
	atlas := held(`"atlas"`, agent.MemoryUserConfirmed)
	// [1,5) and [5,9) touch and do not overlap.
	expectStep(t, resolve(t, codename(`"atlas"`, at(5), at(9)), during(atlas, at(1), at(5))), store, memorypolicy.Insert, "conflict.apart")
	expectStep(t, resolve(t, codename(`"atlas"`, at(1), at(5)), during(atlas, at(5), nil)), store, memorypolicy.Insert, "conflict.apart")
	expectStep(t, resolve(t, codename(`"zeus"`, at(5), at(9)), during(atlas, at(1), at(5))), store, memorypolicy.Insert, "conflict.apart")
	// Overlapping with the same end, or none said: the same.
	one := during(atlas, at(1), at(9))
	expectStep(t, resolve(t, codename(`"atlas"`, at(5), at(9)), one), store, memorypolicy.Merge, "conflict.same", one)
	expectStep(t, resolve(t, codename(`"atlas"`, nil, nil), atlas), store, memorypolicy.Merge, "conflict.same", atlas)
	// Another end is something new.
	expectStep(t, resolve(t, codename(`"atlas"`, nil, at(9)), atlas), store, memorypolicy.Replace, "conflict.replace", atlas)
	// Another value takes the place of all that overlap, and of nothing else.
	first, second, third := during(atlas, nil, at(3)), during(atlas, at(3), at(6)), during(atlas, at(6), nil)
	second.ID, third.ID = "r2", "r3"
	expectStep(t, resolve(t, codename(`"zeus"`, nil, at(6)), first, second, third), store, memorypolicy.Replace, "conflict.replace", first, second)
	// What will be true does not end what is true until then.
	expectStep(t, resolve(t, codename(`"zeus"`, at(5), nil), atlas), reject, "", "conflict.future")
	expectStep(t, resolve(t, codename(`"zeus"`, at(5), nil), during(atlas, at(6), nil)), store, memorypolicy.Replace, "conflict.replace", atlas)
	// What is over is not said again by saying it anew, however reliable it was.
	past := now.Add(-time.Hour)
	over := during(held(`"detailed"`, agent.MemoryUserConfirmed), nil, &past)
	detailed := said(t, "preference.reply_style", `"detailed"`, "I always want detailed answers")
	expectStep(t, resolve(t, detailed, over), store, memorypolicy.Replace, "conflict.replace", over)
	// Times below a microsecond are not kept, and make no difference.
	fine := at(9).Add(300 * time.Nanosecond)
	expectStep(t, resolve(t, codename(`"atlas"`, nil, &fine), during(atlas, nil, at(9))), store, memorypolicy.Merge, "conflict.same", atlas)
	// The instant counts, not the place: 2026-12-05T00:00Z in UTC+8.
	shanghai := at(5).In(time.FixedZone("", 8*3600))
	expectStep(t, resolve(t, codename(`"atlas"`, &shanghai, nil), during(atlas, at(1), at(5))), store, memorypolicy.Insert, "conflict.apart")
}

// cases.md: "vegetarian", later "had steak yesterday"; a fact in force and an
// event.
func TestLTM4EventAgainstFact(t *testing.T) {
	t.Parallel()
	event := said(t, "fact.note", `{"topic":"outage","text":"the outage yesterday came from orders-db"}`, "the outage yesterday came from orders-db")
	if d := memorypolicy.Default().Evaluate(event); !d.Event {
		t.Fatalf("no event: %v", ids(d.Rules))
	}
	expectStep(t, resolve(t, event), review, memorypolicy.Insert, "conflict.none")
	old := held(`{"text":"it comes from users-db","topic":"outage"}`, agent.MemoryUserStated)
	expectStep(t, resolve(t, event, old), reject, "", "conflict.event")
	diet := said(t, "profile.diet", `"vegetarian"`, "had steak yesterday, not vegetarian")
	if d := memorypolicy.Default().Evaluate(diet); d.Outcome != reject {
		t.Errorf("an event made a diet: %v", ids(d.Rules))
	}
	moved := said(t, "profile.home_city", `"Berlin"`, "I moved to Berlin yesterday")
	paris := held(`"Paris"`, agent.MemoryUserStated)
	expectStep(t, resolve(t, moved, paris), store, memorypolicy.Replace, "conflict.replace", paris)
}

func TestLTM4Retract(t *testing.T) {
	t.Parallel()
	take := func(key, value, message string) memorypolicy.Candidate {
		return with(said(t, key, value, message), func(c *memorypolicy.Candidate) { c.Retracts = true })
	}
	environment := take("preference.default_environment", "", "please no longer default to production")
	production := held(`"production"`, agent.MemoryUserConfirmed)
	// What was confirmed is not taken back by a sentence alone, what was only said is.
	expectStep(t, resolve(t, environment, production), confirm, memorypolicy.Retract, "retract.confirmed", production)
	said := held(`"production"`, agent.MemoryUserStated)
	expectStep(t, resolve(t, environment, said), store, memorypolicy.Retract, "retract", said)
	expectStep(t, resolve(t, environment), reject, "", "retract.nothing")
	past := now
	expectStep(t, resolve(t, environment, during(production, nil, &past)), reject, "", "retract.nothing")
	d := memorypolicy.Default().Evaluate(environment)
	if d.Value != nil || d.Identity != "" {
		t.Errorf("value %s, identity %s", d.Value, d.Identity)
	}
	// Not by name: the user is asked.
	unclear := take("profile.home_city", "", "forget it")
	paris := held(`"Paris"`, agent.MemoryUserStated)
	expectStep(t, resolve(t, unclear, paris), confirm, memorypolicy.Retract, "retract.unnamed", paris)
	expectStep(t, resolve(t, take("profile.home_city", "", "forget Paris"), paris), confirm, memorypolicy.Retract, "retract", paris)
	expectStep(t, resolve(t, take("profile.home_city", "", "forget that I live in Paris"), paris), store, memorypolicy.Retract, "retract", paris)
	expectStep(t, resolve(t, take("profile.home_city", "", "forget my home city"), paris), confirm, memorypolicy.Retract, "retract.unnamed", paris)
	// A complaint takes nothing back by itself, whatever stands beside it.
	for _, test := range []struct{ key, value, message string }{
		{"preference.default_environment", `"production"`, "The default page is wrong."},
		{"preference.default_environment", `"production"`, "Don't use the default image."},
		{"preference.reply_style", `"brief"`, "Your answers are wrong."},
		{"profile.diet", `"vegan"`, "Don't eat my lunch."},
		{"profile.name", `"Ann"`, "The name is wrong in the logs."},
		{"profile.home_city", `"Berlin"`, "The home page is wrong."},
		{"profile.home_city", `"北京"`, "国家列表不对"},
		{"profile.home_city", `"Berlin"`, "The Berlin datacenter is wrong."},
		{"profile.home_city", `"Berlin"`, "I live in Berlin and the list is wrong."},
		{"profile.home_city", `"Berlin"`, "I live in Berlin where the list of all of the teams is wrong."},
		{"profile.home_city", `"Berlin"`, "Delete the Berlin cluster."},
		{"profile.home_city", `"Berlin"`, "Don't deploy to Berlin."},
		{"preference.food", `{"item":"ramen"}`, "Delete the ramen ticket."},
		{"preference.food", `{"item":"ramen"}`, "Don't deploy the ramen service."},
		{"preference.food", `{"item":"ramen"}`, "Bob does not like ramen, that is wrong."},
	} {
		old := held(test.value, agent.MemoryUserStated)
		value := ""
		if strings.HasPrefix(test.value, "{") {
			value = test.value
		}
		if r := resolve(t, take(test.key, value, test.message), old); r.Outcome == store {
			t.Errorf("%q retracts %s unasked: %v", test.message, test.key, ids(r.Rules))
		}
	}
	expectStep(t, resolve(t, take("profile.home_city", "", "I no longer live in Paris"), paris), store, memorypolicy.Retract, "retract", paris)
	// One of several, by its identity.
	food := take("preference.food", `{"item":"Chinese food"}`, "forget about Chinese food")
	old := held(likesChinese, agent.MemoryUserStated)
	expectStep(t, resolve(t, food, old), store, memorypolicy.Retract, "retract", old)
	if d := memorypolicy.Default().Evaluate(food); d.Identity != `{"item":"chinese food"}` || d.Value != nil {
		t.Errorf("value %s, identity %s", d.Value, d.Identity)
	}
	// What others vouch for is not the user's alone.
	note := take("fact.note", `{"topic":"queue"}`, "forget what I said about the queue, it is not true")
	trusted := held(`{"text":"it is blue","topic":"queue"}`, agent.MemoryTrusted)
	expectStep(t, resolve(t, note, trusted), review, memorypolicy.Retract, "retract.weaker", trusted)
	expectStep(t, resolve(t, with(from(t, agent.SourceUserCorrection, "fact.note", `{"topic":"queue"}`), func(c *memorypolicy.Candidate) { c.Retracts = true }), trusted),
		store, memorypolicy.Retract, "retract", trusted)

	expect(t, take("preference.food", "", "forget about Chinese food"), reject, "value.identity")
	expect(t, take("preference.food", `{"sentiment":"likes"}`, "forget about Chinese food"), reject, "value.identity")
	expect(t, take("preference.food", `{"item":"Thai food"}`, "forget about Chinese food"), reject, "grounded.item")
	expect(t, take("preference.food", `{"item":"Chinese food"}`, "I like Chinese food"), reject, "grounded.retraction")
}

// A time that the user did not say, and a wish for a time over one without an end.
func TestLTM4Temporary(t *testing.T) {
	t.Parallel()
	until := func(message string, end *time.Time) memorypolicy.Candidate {
		return with(said(t, "preference.language", `"en"`, message), func(c *memorypolicy.Candidate) { c.ValidUntil = end })
	}
	expect(t, until("always answer in English", at(4)), confirm, "time.not_said")
	expect(t, until("always answer in English until Friday", at(4)), store, "grounded")
	expect(t, until("always answer in English, 3 days", at(3)), store, "grounded")
	expect(t, with(until("always answer in English", nil), func(c *memorypolicy.Candidate) { c.ValidFrom = at(1) }), confirm, "time.not_said")
	german := held(`"de"`, agent.MemoryUserStated)
	expectStep(t, resolve(t, until("always answer in English until Friday", at(4)), german), confirm, memorypolicy.Replace, "conflict.temporary", german)
	longer := during(german, nil, at(5))
	expectStep(t, resolve(t, until("always answer in English until Friday", at(4)), longer), confirm, memorypolicy.Replace, "conflict.temporary", longer)
	shorter := during(german, nil, at(3))
	expectStep(t, resolve(t, until("always answer in English until Friday", at(4)), shorter), store, memorypolicy.Replace, "conflict.replace", shorter)
	expectStep(t, resolve(t, until("always answer in English", nil), german), store, memorypolicy.Replace, "conflict.replace", german)
}

func TestLTM4RejectedStaysRejected(t *testing.T) {
	t.Parallel()
	p := memorypolicy.Default()
	c := with(said(t, "preference.language", `"de"`, "Always answer in German"), func(c *memorypolicy.Candidate) { c.SourceType = agent.SourceRecalled })
	expectStep(t, p.Resolve(c, p.Evaluate(c), nil), reject, "", "conflict.rejected")
}
