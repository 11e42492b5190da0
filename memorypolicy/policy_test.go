package memorypolicy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
)

func TestPOL1Default(t *testing.T) {
	t.Parallel()
	p := memorypolicy.Default()
	if p != memorypolicy.Default() {
		t.Error("the default policy is parsed again")
	}
	if p.Version() != "2026-11-30" {
		t.Errorf("version %q", p.Version())
	}
	sum := sha256.Sum256([]byte(memorypolicy.DefaultText()))
	if p.Digest() != hex.EncodeToString(sum[:]) {
		t.Errorf("digest %s is not the text's", p.Digest())
	}
	keys := p.Keys()
	if !slices.IsSortedFunc(keys, func(a, b memorypolicy.KeySpec) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("keys are not in order")
	}
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	want := []string{
		"experience.lesson", "fact.note", "fact.project_codename", "fact.service", "preference.default_environment", "preference.food", "preference.language",
		"preference.reply_style", "preference.topic", "profile.diet", "profile.home_city", "profile.name", "profile.pet", "profile.role",
		"summary.conversation", "task.current", "task.service",
	}
	if !slices.Equal(names, want) {
		t.Errorf("keys %v", names)
	}
	// Each write mode is used by something.
	var modes []memorypolicy.WriteMode
	for _, k := range keys {
		modes = append(modes, k.Mode)
	}
	for _, m := range []memorypolicy.WriteMode{memorypolicy.ImmediateIfTrusted, memorypolicy.BackgroundReview, memorypolicy.BackgroundOnly, memorypolicy.ConfirmByUser} {
		if !slices.Contains(modes, m) {
			t.Errorf("no key has mode %s", m)
		}
	}
}

func TestPOL1KeySpec(t *testing.T) {
	t.Parallel()
	k, ok := memorypolicy.Default().Key("task.service")
	if !ok || k.Kind != agent.MemoryTask || k.Mode != memorypolicy.BackgroundOnly || k.Retention != 7*24*time.Hour || k.FromModel ||
		!slices.Equal(k.Sources, []agent.MemorySourceType{agent.SourceTrustedTool, agent.SourceTrustedService}) ||
		string(k.Schema) != `{"maxLength":120,"minLength":1,"type":"string"}` {
		t.Errorf("task.service: %v %+v", ok, k)
	}
	k, _ = memorypolicy.Default().Key("preference.food")
	if !k.FromModel || !slices.Equal(k.Identity, []string{"item"}) || k.Retention != 365*24*time.Hour ||
		!slices.Equal(k.Scopes, []agent.MemoryScopeKind{agent.MemoryOfUser, agent.MemoryOfConversation, agent.MemoryOfGroup, agent.MemoryOfProject}) {
		t.Errorf("preference.food: %+v", k)
	}
	if _, ok := memorypolicy.Default().Key("preference.anything"); ok {
		t.Error("an unknown key is known")
	}
}

// What is handed out is the caller's: the policy does not change.
func TestPOL1Immutable(t *testing.T) {
	t.Parallel()
	p, err := memorypolicy.Parse([]byte(memorypolicy.DefaultText()))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range p.Keys() {
		k.Schema[0] = 'x'
		k.Scopes[0], k.Sources[0] = "x", "x"
		if len(k.Identity) > 0 {
			k.Identity[0] = "x"
		}
	}
	food, _ := p.Key("preference.food")
	if food.Schema[0] != '{' || food.Scopes[0] != agent.MemoryOfUser || food.Sources[0] != agent.SourceUserStatement || food.Identity[0] != "item" {
		t.Errorf("the policy changed: %+v", food)
	}
	scopes := p.Scopes(memorypolicy.Reader{Roles: []memorypolicy.ReaderRole{memorypolicy.Planner}, Room: personal})
	scopes[0] = agent.MemoryScope{}
	if again := p.Scopes(memorypolicy.Reader{Roles: []memorypolicy.ReaderRole{memorypolicy.Planner}, Room: personal}); again[0] == (agent.MemoryScope{}) {
		t.Error("scopes are shared")
	}
}

// small is a policy with everything that a policy needs and nothing else.
const small = `
version: "1"
require: [tenant, user, environment, kind, key, source_type, source_id, writer]
sources:
  user_statement: {validation: user_stated, confidence: 0.7, consent: stated}
  trusted_tool: {validation: trusted, confidence: 1, consent: service}
agreement:
  reviewed: {confidence: 0.9, consent: reviewed}
  user_confirmed: {confidence: 1, consent: confirmed}
deny_sources: [assistant, recalled_memory]
reject_if_contains: [secret, access_token, payment_card, identity_number, authority, injection, chatter]
kinds:
  profile_preference:
    write_mode: background_only
    retention: 30d
    decide_within: 72h
    sources: [user_statement]
    scopes: [user, group]
    events: refuse
phrases:
  negation: [[not]]
  no_negation: [[not only]]
  standing: [[always]]
  once: [[this time]]
  correction: [[no longer]]
  retraction: [[no longer]]
  others: [[she]]
  polite: [[please]]
  self: [[i]]
  leaders: [[please]]
  instructions: [[use]]
  forgetting: [[forget]]
  wishes: [[would like]]
  past: [[used to]]
  present: [[now]]
  doubt: [[if]]
  times: [[until]]
  rights: [[admin]]
keys:
  preference.colour:
    kind: profile_preference
    description: The colour that the user likes.
    purpose: To paint things.
    schema: {type: string, enum: [red, green]}
    words: {value: {red: [red], green: [green]}}
read:
  personalization:
    - {kinds: [profile_preference], validation: [user_stated], scopes: [user], sensitivity: [normal]}
`

func TestPOL1ParseSmall(t *testing.T) {
	t.Parallel()
	p, err := memorypolicy.Parse([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	k, ok := p.Key("preference.colour")
	if !ok || k.Mode != memorypolicy.BackgroundOnly || k.Retention != 30*24*time.Hour || p.Version() != "1" {
		t.Errorf("%v %+v", ok, k)
	}
}

// Each mistake is refused, and the error names the place and what to do.
func TestPOL1ParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, from, to, want string }{
		{"empty", small, "", "the text is empty"},
		{"comment only", small, "# nothing\n", "the text is empty"},
		{"a list", small, "- a\n", "the text must be a mapping"},
		{"not UTF-8", `"1"`, "\"\xff\"", "not valid UTF-8"},
		{"not YAML", "version:", "version: [", "memory policy: "},
		{"too long", "version:", "# " + strings.Repeat("x", memorypolicy.MaxPolicyBytes) + "\nversion:", "the limit is 1048576"},
		{"two documents", "\nread:", "\n---\nread:", "more than one document"},
		{"repeated key", "version:", "version: \"2\"\nversion:", "already defined"},
		{"unknown field", "require:", "requires: [x]\nrequire:", "requires is not known"},
		{"unknown field below", "    purpose:", "    porpoise: x\n    purpose:", "keys.preference.colour.porpoise is not known"},
		{"number for a text", `version: "1"`, "version: 1.10", "version must be a string: put it in quotes"},
		{"number in a list", "negation: [[not]]", "negation: [[not, 3]]", "phrases.negation[0][1] must be a string"},
		{"text for a number", "confidence: 0.7", `confidence: "0.7"`, "sources.user_statement.confidence must be a number"},
		{"text for a truth", "    purpose:", "    personal: \"yes\"\n    purpose:", "keys.preference.colour.personal must be true or false"},
		{"nothing", "retention: 30d", "retention:", "kinds.profile_preference.retention is empty"},
		{"a mapping for a list", "scopes: [user, group]", "scopes: {user: 1}", "kinds.profile_preference.scopes must be a list"},
		{"version", `version: "1"`, `version: "a b"`, "version must be"},
		{"requirement left out", "source_id, writer]", "source_id]", "require must have writer"},
		{"unknown requirement", "source_id, writer]", "source_id, writer, mood]", "require[8] must be one of"},
		{"unknown source", "  trusted_tool:", "  gossip:", "sources.gossip is no source"},
		{"recalled memory as a source", "  trusted_tool:", "  recalled_memory:", "sources.recalled_memory is no source"},
		{"denial left out", "deny_sources: [assistant, recalled_memory]", "deny_sources: [assistant]", "deny_sources must have recalled_memory"},
		{"admitted and denied", "deny_sources: [", "deny_sources: [user_statement, ", "sources.user_statement is in deny_sources too"},
		{"a source worth too much", "validation: user_stated", "validation: trusted", "sources.user_statement.validation can be user_stated at most"},
		{"confidence", "confidence: 0.7", "confidence: 1.5", "sources.user_statement.confidence must be above 0"},
		{"no confidence", "confidence: 0.7", "confidence: 0", "sources.user_statement.confidence must be above 0"},
		{"not a number", "confidence: 0.7", "confidence: .nan", "sources.user_statement.confidence must be above 0"},
		{"consent", "consent: stated", `consent: ""`, "sources.user_statement.consent must name"},
		{"agreement left out", "  reviewed: {confidence: 0.9, consent: reviewed}\n", "", "agreement must have reviewed"},
		{"secrets let in", "contains: [secret, ", "contains: [", "reject_if_contains must have secret"},
		{"authority let in", "authority, ", "", "reject_if_contains must have authority"},
		{"unknown category", "contains: [secret, ", "contains: [secret, rudeness, ", "reject_if_contains[1] must be one of"},
		{"unknown kind", "  profile_preference:\n    write", "  mood:\n    write", "kinds.mood must be one of profile_preference"},
		{"unknown mode", "write_mode: background_only", "write_mode: now", "kinds.profile_preference.write_mode must be one of immediate_if_trusted"},
		{"retention left out", "    retention: 30d\n", "", "kinds.profile_preference.retention must be a duration"},
		{"retention", "retention: 30d", "retention: 1 year", "kinds.profile_preference.retention must be a duration"},
		{"negative retention", "retention: 30d", "retention: -72h", "kinds.profile_preference.retention must be a duration"},
		{"endless retention", "retention: 30d", "retention: 36501d", "kinds.profile_preference.retention must be a duration"},
		{"source of a kind", "sources: [user_statement]", "sources: [trusted_service]", "kinds.profile_preference.sources[0] must be one of trusted_tool, user_statement"},
		{"no source of a kind", "sources: [user_statement]", "sources: []", "kinds.profile_preference.sources must have one of"},
		{"scope twice", "scopes: [user, group]", "scopes: [user, user]", "kinds.profile_preference.scopes[1] is in the list twice"},
		{"events", "events: refuse", "events: maybe", "kinds.profile_preference.events must be one of refuse, add, allow"},
		{"phrases left out", "  negation: [[not]]\n", "", "phrases.negation is missing"},
		{"empty phrase", "[[not]]", `[["\u200b"]]`, "phrases.negation[0][0] is empty"},
		{"key's name", "  preference.colour:", "  Colour:", "keys.Colour must be named"},
		{"key's kind", "    kind: profile_preference", "    kind: validated_fact", "keys.preference.colour.kind must be one of profile_preference"},
		{"key without description", "    description: The colour that the user likes.\n", "", "keys.preference.colour.description must say"},
		{"key without purpose", "    purpose: To paint things.\n", "", "keys.preference.colour.purpose must say"},
		{"key's scope beyond the kind's", "    purpose:", "    scopes: [project]\n    purpose:", "keys.preference.colour.scopes[0] must be one of user, group"},
		{"key's source beyond the kind's", "    purpose:", "    sources: [trusted_tool]\n    purpose:", "keys.preference.colour.sources[0] must be one of user_statement"},
		{"allow without sensitivity", "    purpose:", "    allow: [health]\n    purpose:", "keys.preference.colour.sensitivity must be said"},
		{"allow a secret", "    purpose:", "    allow: [secret]\n    purpose:", "keys.preference.colour.allow[0] must be one of phone_number, health, finance"},
		{"standing", "    purpose:", "    standing: yes please\n    purpose:", "keys.preference.colour.standing must be one of required, ask"},
		{"no schema", "    schema: {type: string, enum: [red, green]}\n", "", "keys.preference.colour.schema is missing"},
		{"wrong schema", "type: string, enum: [red, green]", "type: string, enum: red", "keys.preference.colour.schema is wrong"},
		{"schema without bound", "type: string, enum: [red, green]", "type: string", "keys.preference.colour.schema.maxLength must be from 1 to 2000"},
		{"schema with a reference", "{type: string, enum: [red, green]}", `{$ref: "#"}`, "keys.preference.colour.schema"},
		{"schema with anyOf", "type: string, enum", "anyOf: [{}], type: string, enum", "keys.preference.colour.schema.anyOf is not for memory values"},
		{"list as a value", "{type: string, enum: [red, green]}", "{type: array}", "keys.preference.colour.schema.type must be string or integer"},
		{"nested value", "{type: string, enum: [red, green]}", "{type: object, properties: {a: {type: object}}}", "keys.preference.colour.schema.properties.a.type must be string or integer"},
		{"integer without bounds", "{type: string, enum: [red, green]}", "{type: integer}", "must have minimum and maximum"},
		{"enum without words", "red: [red], ", "", "keys.preference.colour.words.value.red is missing"},
		{"otherwise nothing", "    purpose:", "    otherwise: {value: blue}\n    purpose:", "keys.preference.colour.otherwise.value is no value of an enum"},
		{"words for nothing", "red: [red], ", "red: [red], blue: [blue], ", "keys.preference.colour.words.value.blue is no value of the enum"},
		{"words of no field", "words: {value:", "words: {shade: {}, value:", "keys.preference.colour.words.shade is no field"},
		{"identity of no field", "    purpose:", "    identity: [item]\n    purpose:", "keys.preference.colour.identity[0] must be a required field"},
		{"no keys", small[strings.Index(small, "keys:"):strings.Index(small, "read:")], "", "keys has no key"},
		{"unknown role", "  personalization:", "  everybody:", "read.everybody must be one of personalization, planner, policy_engine"},
		{"grant without scopes", "scopes: [user], ", "", "read.personalization[0] must list"},
		{"grant's confidence", "sensitivity: [normal]}", "sensitivity: [normal], min_confidence: 2}", "read.personalization[0].min_confidence must be from 0 to 1"},
		{"preferences for the policy engine", "  personalization:", "  policy_engine:", "read.policy_engine[0].kinds can be validated_fact only"},
		{"hearsay for the policy engine", "  personalization:\n    - {kinds: [profile_preference]", "  policy_engine:\n    - {kinds: [validated_fact]", "read.policy_engine[0].validation can be trusted, reviewed and user_confirmed only"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(small, tt.from, tt.to, 1)
			if text == small {
				t.Fatal("nothing was changed")
			}
			p, err := memorypolicy.Parse([]byte(text))
			if err == nil || p != nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Mistakes are named all at once.
func TestPOL1ParseNamesAll(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("retention: 30d", "retention: 1y", "events: refuse", "events: no idea", "enum: [red, green]", "maxLength: 0").Replace(small)
	_, err := memorypolicy.Parse([]byte(text))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"kinds.profile_preference.retention", "kinds.profile_preference.events", "keys.preference.colour.schema.maxLength"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(small)
	f.Add("a: [")
	f.Add("? - :\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := memorypolicy.Parse([]byte(text))
		if (p == nil) == (err == nil) {
			t.Errorf("%v, %v", p, err)
		}
	})
}
