package memorypolicy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy/detect"
)

// Outline is what a policy says beside its keys, for people.
type Outline struct {
	// Sources are those from which something can be written, Denied those from which
	// nothing ever is; a source in neither is not admitted.
	Sources, Denied []agent.MemorySourceType
	// Refused is the content that is refused wherever no key allows it.
	Refused []detect.Category
	// Grants say who may read what, by role.
	Grants []Grant
}

// Grant lets a role read what is of all of these.
type Grant struct {
	Role        ReaderRole
	Kinds       []agent.MemoryKind
	Validation  []agent.MemoryValidation
	Scopes      []agent.MemoryScopeKind
	Sensitivity []string
	// MinConfidence is the least confidence, zero for any.
	MinConfidence float64
}

// Outline returns the policy's outline. Lists are sorted, but for the grants of a
// role, which are in the order of the policy.
func (p *Policy) Outline() Outline {
	o := Outline{Sources: slices.Sorted(maps.Keys(p.sources)), Denied: slices.Sorted(maps.Keys(p.denied)), Refused: slices.Sorted(maps.Keys(p.rejected))}
	for _, role := range slices.Sorted(maps.Keys(p.read)) {
		for _, g := range p.read[role] {
			o.Grants = append(o.Grants, Grant{
				Role: role, Kinds: slices.Clone(g.kinds), Validation: slices.Clone(g.validation), Scopes: slices.Clone(g.scopes),
				Sensitivity: slices.Clone(g.sensitivity), MinConfidence: g.minConfidence,
			})
		}
	}
	return o
}

// CheckFacts says what is wrong with the facts of an agent's definition, by fact: each
// names a key that tools may write.
func (p *Policy) CheckFacts(facts map[string]string) (faults []error) {
	for _, fact := range slices.Sorted(maps.Keys(facts)) {
		switch k, known := p.keys[facts[fact]]; {
		case !known:
			faults = append(faults, fmt.Errorf("memory.facts.%s names %s, which is no key of the memory policy (version %s)", fact, facts[fact], p.version))
		case !slices.Contains(k.sources, agent.SourceTrustedTool):
			faults = append(faults, fmt.Errorf("memory.facts.%s names %s, which the memory policy (version %s) lets no tool write: add %s to its sources",
				fact, k.name, p.version, agent.SourceTrustedTool))
		}
	}
	return faults
}
