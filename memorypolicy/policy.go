package memorypolicy

import (
	"bytes"
	_ "embed"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy/detect"
	"github.com/fairlead/fairlead/tool/schema"
)

//go:embed default.yaml
var defaultText []byte

// Policy is a policy as Parse read it. It does not change and is safe for
// concurrent use.
type Policy struct {
	version  string
	digest   string
	require  []string
	sources  map[agent.MemorySourceType]worth
	denied   map[agent.MemorySourceType]bool
	agreed   map[agent.MemoryValidation]worth
	rejected map[detect.Category]bool
	kinds    map[agent.MemoryKind]handling
	phrases  phraseBook
	keys     map[string]*key
	read     map[ReaderRole][]grant
	detector detector
}

// detector is *detect.Detector, or what takes its place in tests.
type detector interface {
	Find(texts ...string) []detect.Finding
}

// worth is what a source, or a person's agreement, is worth.
type worth struct {
	validation agent.MemoryValidation
	confidence float64
	consent    string
}

// handling is how what is of a kind, or has a key, is written.
type handling struct {
	mode, shared WriteMode
	retention    time.Duration
	decideWithin time.Duration
	sources      []agent.MemorySourceType
	scopes       []agent.MemoryScopeKind
	events       eventRule
}

// eventRule says what becomes of evidence that tells of one event.
type eventRule string

const (
	refuseEvents eventRule = "refuse"
	addEvents    eventRule = "add"
	allowEvents  eventRule = "allow"
)

// standingRule says what becomes of what is asked for only this once.
type standingRule string

const (
	standingRequired standingRule = "required"
	standingAsk      standingRule = "ask"
)

// key is one key of the registry, with what its kind says filled in.
type key struct {
	name        string
	kind        agent.MemoryKind
	description string
	purpose     string
	text        []byte
	schema      *schema.Schema
	// object says that a value is an object of fields; else it has the one field
	// whole. fields are in order of their names.
	object   bool
	fields   []field
	identity []string
	// speaks are words of which a statement must have one, or the user is asked.
	speaks phrases
	handling
	standing    standingRule
	personal    bool
	allow       map[detect.Category]bool
	sensitivity string
}

// whole is the name of the field of a value that is not an object.
const whole = "value"

// field is one field of a value: an integer, one of a set of texts, or a free
// text.
type field struct {
	name string
	// schema is of the field alone, used for retractions.
	schema  *schema.Schema
	integer bool
	// choices are set for an enum.
	choices []choice
}

// choice is one value of an enum, and what users say for it.
type choice struct {
	value string
	words phrases
	// otherwise says that it is meant if no word for any value is said.
	otherwise bool
}

func (f field) free() bool { return !f.integer && f.choices == nil }

// grant admits reads.
type grant struct {
	kinds         []agent.MemoryKind
	validation    []agent.MemoryValidation
	scopes        []agent.MemoryScopeKind
	sensitivity   []string
	minConfidence float64
}

// Default returns fairlead's default policy, which is default.yaml of this
// package.
func Default() *Policy { return parsedDefault() }

var parsedDefault = sync.OnceValue(func() *Policy {
	p, err := Parse(defaultText)
	if err != nil {
		panic("the default memory policy does not parse: " + err.Error())
	}
	return p
})

// Version returns the version that the policy's author gave it.
func (p *Policy) Version() string { return p.version }

// Digest returns the SHA-256 in hex of the policy's text.
func (p *Policy) Digest() string { return p.digest }

// Keys returns the registry in the order of names. What is returned is the
// caller's.
func (p *Policy) Keys() []KeySpec {
	specs := make([]KeySpec, 0, len(p.keys))
	for _, name := range slices.Sorted(maps.Keys(p.keys)) {
		specs = append(specs, p.keys[name].spec())
	}
	return specs
}

// Key returns the key of the registry that has the name.
func (p *Policy) Key(name string) (KeySpec, bool) {
	k, ok := p.keys[name]
	if !ok {
		return KeySpec{}, false
	}
	return k.spec(), true
}

func (k *key) spec() KeySpec {
	var sharedMode WriteMode
	if slices.ContainsFunc(k.scopes, func(s agent.MemoryScopeKind) bool { return shared(agent.MemoryScope{Kind: s}) }) {
		sharedMode = k.shared
	}
	return KeySpec{
		Name: k.name, Kind: k.kind, Description: k.description, Purpose: k.purpose, Schema: bytes.Clone(k.text),
		Identity: slices.Clone(k.identity), Scopes: slices.Clone(k.scopes), Mode: k.mode, SharedMode: sharedMode, Retention: k.retention,
		Sources: slices.Clone(k.sources), FromModel: slices.Contains(k.sources, agent.SourceUserStatement),
	}
}

// Agreed returns d as it is after a reviewer (agent.MemoryReviewed) or the user
// (agent.MemoryUserConfirmed) agreed to exactly its value: to be stored, and worth
// what the policy says such agreement is worth. A rejected decision stays one.
// Give the result to Resolve, which asks nobody again.
func (p *Policy) Agreed(d Decision, by agent.MemoryValidation) Decision {
	w, ok := p.agreed[by]
	if !ok || d.Outcome == Reject {
		return d
	}
	d.Outcome = Store
	d.Rules = append(slices.Clone(d.Rules), rule("agreement", "%s: a person agreed to exactly this value", by))
	d.Validation, d.Confidence, d.ConsentBasis = w.validation, w.confidence, w.consent
	return d
}

// shared is the detector of package detect, built when it is first needed. That
// it cannot be built is a hit.
type sharedDetector struct{}

func (sharedDetector) Find(texts ...string) (found []detect.Finding) {
	defer func() {
		if recover() != nil {
			found = []detect.Finding{{Category: detect.Failed, Rule: "panic"}}
		}
	}()
	d, err := detect.Shared()
	if err != nil {
		return []detect.Finding{{Category: detect.Failed, Rule: "not_built"}}
	}
	return d.Find(texts...)
}
