package memorypolicy_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/memorypolicy/detect"
)

// TestPOL1Outline: what people are shown is what decides.
func TestPOL1Outline(t *testing.T) {
	t.Parallel()
	p := memorypolicy.Default()
	o := p.Outline()
	assert.Equal(t, []agent.MemorySourceType{"assistant", "external_content", "raw_user_prompt", "recalled_memory", "unvalidated_tool_output"}, o.Denied)
	assert.Len(t, o.Sources, 5)
	assert.Contains(t, o.Refused, detect.Secret)
	assert.NotContains(t, o.Refused, detect.Event)
	for _, source := range o.Denied {
		c := said(t, "profile.name", `"Ann"`, "my name is Ann")
		c.SourceType = source
		d := p.Evaluate(c)
		assert.Equal(t, "source.denied", d.Rules[len(d.Rules)-1].ID)
	}
	for _, g := range o.Grants {
		reader := memorypolicy.Reader{Roles: []memorypolicy.ReaderRole{g.Role}, Room: personal, Now: now}
		for _, kind := range g.Kinds {
			assert.Contains(t, p.Kinds(reader), kind)
		}
		if g.Role == memorypolicy.PolicyEngine {
			assert.InDelta(t, 0.9, g.MinConfidence, 0)
			assert.False(t, slices.Contains(g.Kinds, agent.MemoryPreference), "a preference decides about no right")
		}
	}
	k, _ := p.Key("preference.default_environment")
	assert.Equal(t, memorypolicy.ConfirmByUser, k.Mode)
	assert.Equal(t, memorypolicy.BackgroundReview, k.SharedMode)
}

func TestPOL1CheckFacts(t *testing.T) {
	t.Parallel()
	faults := memorypolicy.Default().CheckFacts(map[string]string{"service": "task.service", "name": "profile.name", "sku": "no.such.key"})
	if assert.Len(t, faults, 2) {
		assert.ErrorContains(t, faults[0], "memory.facts.name names profile.name, which the memory policy")
		assert.ErrorContains(t, faults[1], "memory.facts.sku names no.such.key, which is no key")
	}
}
