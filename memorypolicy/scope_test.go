package memorypolicy_test

import (
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
)

// ISO2: where a memory may be written, from where. The environment is always the
// room's: a candidate has none of its own.
func TestISO2WriteScope(t *testing.T) {
	t.Parallel()
	scope := func(kind agent.MemoryScopeKind, id string) agent.MemoryScope {
		return agent.MemoryScope{Kind: kind, ID: id}
	}
	for name, tt := range map[string]struct {
		room agent.MemoryRoom
		key  string
		want agent.MemoryScope
		// rule is empty if it is admitted, with scope as the result.
		rule  string
		scope agent.MemoryScope
	}{
		"the user's, by itself":         {personal, "fact.project_codename", agent.MemoryScope{}, "", ofAnn},
		"the group's, by itself":        {group, "fact.project_codename", agent.MemoryScope{}, "", scope(agent.MemoryOfGroup, "g7")},
		"the conversation's":            {personal, "fact.project_codename", scope(agent.MemoryOfConversation, "c1"), "", scope(agent.MemoryOfConversation, "c1")},
		"the project's":                 {personal, "fact.project_codename", scope(agent.MemoryOfProject, "atlas"), "", scope(agent.MemoryOfProject, "atlas")},
		"the project's, from a group":   {group, "fact.project_codename", scope(agent.MemoryOfProject, "atlas"), "", scope(agent.MemoryOfProject, "atlas")},
		"personal in a group":           {group, "fact.project_codename", ofAnn, "scope.personal_in_group", agent.MemoryScope{}},
		"conversation in a group":       {group, "fact.project_codename", scope(agent.MemoryOfConversation, "c2"), "scope.personal_in_group", agent.MemoryScope{}},
		"a personal key in a group":     {group, "profile.home_city", agent.MemoryScope{}, "scope.none", agent.MemoryScope{}},
		"a personal key for the group":  {group, "profile.home_city", scope(agent.MemoryOfGroup, "g7"), "scope.not_admitted", agent.MemoryScope{}},
		"another user's":                {personal, "fact.project_codename", scope(agent.MemoryOfUser, "bob"), "scope.other_user", agent.MemoryScope{}},
		"another conversation's":        {personal, "fact.project_codename", scope(agent.MemoryOfConversation, "c9"), "scope.not_in_room", agent.MemoryScope{}},
		"a group that it is not in":     {personal, "fact.project_codename", scope(agent.MemoryOfGroup, "g7"), "scope.not_in_room", agent.MemoryScope{}},
		"another group's":               {group, "fact.project_codename", scope(agent.MemoryOfGroup, "g8"), "scope.not_in_room", agent.MemoryScope{}},
		"another project's":             {personal, "fact.project_codename", scope(agent.MemoryOfProject, "zeus"), "scope.not_in_room", agent.MemoryScope{}},
		"the agent's, of a user's fact": {personal, "fact.project_codename", scope(agent.MemoryOfAgent, "opspilot"), "scope.not_admitted", agent.MemoryScope{}},
		"no such scope":                 {personal, "fact.project_codename", scope("planet", "earth"), "scope.unknown", agent.MemoryScope{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := from(t, agent.SourceUserCorrection, tt.key, `"atlas"`)
			c.Room, c.Scope = tt.room, tt.want
			d := memorypolicy.Default().Evaluate(c)
			if tt.rule != "" {
				if d.Outcome != reject || !has(d.Rules, tt.rule, true) {
					t.Errorf("%s by %v, want %s", d.Outcome, ids(d.Rules), tt.rule)
				}
				return
			}
			if d.Outcome == reject || d.Scope != tt.scope {
				t.Errorf("%s by %v, scope %v, want %v", d.Outcome, ids(d.Rules), d.Scope, tt.scope)
			}
		})
	}
	// A key that is not for users falls to the narrowest that fits.
	d := expect(t, from(t, agent.SourceApprovedSummarizer, "summary.conversation", `{"text":"The queue was looked at."}`), store, "scope")
	if d.Scope != scope(agent.MemoryOfConversation, "c1") {
		t.Errorf("summary: %v", d.Scope)
	}
	d = expect(t, from(t, agent.SourceTrustedService, "experience.lesson", `{"situation":"queue is full","lesson":"look at the consumer"}`), review, "scope")
	if d.Scope != scope(agent.MemoryOfProject, "atlas") {
		t.Errorf("lesson: %v", d.Scope)
	}
}
