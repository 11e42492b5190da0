package memorypolicy_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
)

// POL2: who may read which kind, from which validation, in which scope.
func TestPOL2Grants(t *testing.T) {
	t.Parallel()
	keys := map[agent.MemoryKind]string{
		agent.MemoryPreference: "preference.food", agent.MemoryFact: "fact.note", agent.MemoryTask: "task.current",
		agent.MemorySummary: "summary.conversation", agent.MemoryExperience: "experience.lesson",
	}
	validations := []agent.MemoryValidation{
		agent.MemoryUnvalidated, agent.MemoryUserStated, agent.MemoryTrusted, agent.MemoryReviewed, agent.MemoryUserConfirmed,
	}
	// One letter per validation state, in the order above; . is refused.
	for role, want := range map[memorypolicy.ReaderRole]map[agent.MemoryKind]string{
		memorypolicy.Personalization: {agent.MemoryPreference: ".xxxx", agent.MemoryFact: ".....", agent.MemoryTask: ".....", agent.MemorySummary: ".....", agent.MemoryExperience: "....."},
		memorypolicy.Planner:         {agent.MemoryPreference: ".....", agent.MemoryFact: ".xxxx", agent.MemoryTask: ".xxxx", agent.MemorySummary: "x.xxx", agent.MemoryExperience: "...xx"},
		memorypolicy.PolicyEngine:    {agent.MemoryPreference: ".....", agent.MemoryFact: "..xxx", agent.MemoryTask: ".....", agent.MemorySummary: ".....", agent.MemoryExperience: "....."},
		"somebody":                   {agent.MemoryPreference: ".....", agent.MemoryFact: ".....", agent.MemoryTask: ".....", agent.MemorySummary: ".....", agent.MemoryExperience: "....."},
	} {
		for kind, row := range want {
			scope := ofAnn
			switch kind {
			case agent.MemorySummary:
				scope = agent.MemoryScope{Kind: agent.MemoryOfConversation, ID: "c1"}
			case agent.MemoryExperience:
				scope = agent.MemoryScope{Kind: agent.MemoryOfAgent, ID: "opspilot"}
			}
			for i, v := range validations {
				d := memorypolicy.Default().EvaluateRead(
					memorypolicy.Reader{Roles: []memorypolicy.ReaderRole{role}, Room: personal, Now: now},
					memorypolicy.Record{
						Scope: scope, Environment: "production", Kind: kind, Key: keys[kind], SourceType: agent.SourceTrustedTool,
						Validation: v, Confidence: 0.9, Sensitivity: "normal", Active: true,
					})
				if d.Allowed != (row[i] == 'x') || len(d.Rules) != 1 {
					t.Errorf("%s reads %s that is %s: %v by %v", role, kind, v, d.Allowed, ids(d.Rules))
				}
			}
		}
	}
}

func TestPOL2Record(t *testing.T) {
	t.Parallel()
	reader := memorypolicy.Reader{Roles: []memorypolicy.ReaderRole{memorypolicy.Personalization, memorypolicy.Planner}, Room: personal, Now: now}
	before, after := now.Add(-1), now.Add(1)
	good := memorypolicy.Record{
		Scope: ofAnn, Environment: "production", Kind: agent.MemoryPreference, Key: "profile.diet", SourceType: agent.SourceUserCorrection,
		Validation: agent.MemoryUserConfirmed, Confidence: 1, Sensitivity: "health", ValidFrom: &before, ValidUntil: &after, ExpiresAt: &after, Active: true,
	}
	for name, tt := range map[string]struct {
		rule   string
		change func(*memorypolicy.Reader, *memorypolicy.Record)
	}{
		"as it is":     {"read.personalization", func(*memorypolicy.Reader, *memorypolicy.Record) {}},
		"not in force": {"read.inactive", func(_ *memorypolicy.Reader, r *memorypolicy.Record) { r.Active = false }},
		"of test":      {"read.environment", func(_ *memorypolicy.Reader, r *memorypolicy.Record) { r.Environment = "test" }},
		"of no environment": {"read.environment", func(rd *memorypolicy.Reader, r *memorypolicy.Record) {
			r.Environment, rd.Room.Scope.Environment = "", ""
		}},
		"of bob":              {"read.scope", func(_ *memorypolicy.Reader, r *memorypolicy.Record) { r.Scope.ID = "bob" }},
		"read by bob":         {"read.scope", func(rd *memorypolicy.Reader, _ *memorypolicy.Record) { rd.Room.Scope.User = "bob" }},
		"personal in a group": {"read.scope", func(rd *memorypolicy.Reader, _ *memorypolicy.Record) { rd.Room = group }},
		"of a group outside": {"read.scope", func(_ *memorypolicy.Reader, r *memorypolicy.Record) {
			r.Scope = agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g7"}
		}},
		"expired":           {"read.expired", func(_ *memorypolicy.Reader, r *memorypolicy.Record) { at := now; r.ExpiresAt = &at }},
		"not yet":           {"read.not_yet", func(_ *memorypolicy.Reader, r *memorypolicy.Record) { r.ValidFrom = &after }},
		"no longer":         {"read.no_longer", func(_ *memorypolicy.Reader, r *memorypolicy.Record) { at := now; r.ValidUntil = &at }},
		"retired key":       {"read.key", func(_ *memorypolicy.Reader, r *memorypolicy.Record) { r.Key = "profile.shoe_size" }},
		"another kind":      {"read.key", func(_ *memorypolicy.Reader, r *memorypolicy.Record) { r.Kind = agent.MemoryFact }},
		"source denied now": {"read.source", func(_ *memorypolicy.Reader, r *memorypolicy.Record) { r.SourceType = agent.SourceAssistant }},
		"no source":         {"read.source", func(_ *memorypolicy.Reader, r *memorypolicy.Record) { r.SourceType = "" }},
		"sensitivity":       {"read.no_grant", func(_ *memorypolicy.Reader, r *memorypolicy.Record) { r.Sensitivity = "finance" }},
		"no roles":          {"read.no_grant", func(rd *memorypolicy.Reader, _ *memorypolicy.Record) { rd.Roles = nil }},
		"no clock": {"read.now", func(rd *memorypolicy.Reader, _ *memorypolicy.Record) {
			rd.Now = rd.Now.AddDate(-3000, 0, 0)
			*rd = memorypolicy.Reader{Roles: rd.Roles, Room: rd.Room}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rd, rec := reader, good
			tt.change(&rd, &rec)
			d := memorypolicy.Default().EvaluateRead(rd, rec)
			if d.Allowed != (name == "as it is") || !has(d.Rules, tt.rule, true) {
				t.Errorf("%v by %v, want %s", d.Allowed, ids(d.Rules), tt.rule)
			}
		})
	}
	// The policy engine wants confidence as well.
	fact := good
	fact.Kind, fact.Key, fact.Sensitivity, fact.Confidence = agent.MemoryFact, "fact.note", "normal", 0.89
	engine := memorypolicy.Reader{Roles: []memorypolicy.ReaderRole{memorypolicy.PolicyEngine}, Room: personal, Now: now}
	if memorypolicy.Default().EvaluateRead(engine, fact).Allowed {
		t.Error("a fact of confidence 0.89 decides on rights")
	}
}

// POL2: what the query may ask for, by role and room.
func TestPOL2Query(t *testing.T) {
	t.Parallel()
	p := memorypolicy.Default()
	reader := func(room agent.MemoryRoom, roles ...memorypolicy.ReaderRole) memorypolicy.Reader {
		return memorypolicy.Reader{Roles: roles, Room: room, Now: now}
	}
	conversation, g7 := agent.MemoryScope{Kind: agent.MemoryOfConversation, ID: "c1"}, agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "g7"}
	atlas, opspilot := agent.MemoryScope{Kind: agent.MemoryOfProject, ID: "atlas"}, agent.MemoryScope{Kind: agent.MemoryOfAgent, ID: "opspilot"}
	for _, tt := range []struct {
		reader memorypolicy.Reader
		scopes []agent.MemoryScope
		kinds  []agent.MemoryKind
	}{
		{reader(personal, memorypolicy.Personalization), []agent.MemoryScope{ofAnn, conversation, atlas}, []agent.MemoryKind{agent.MemoryPreference}},
		{reader(group, memorypolicy.Personalization), []agent.MemoryScope{g7, atlas}, []agent.MemoryKind{agent.MemoryPreference}},
		{
			reader(personal, memorypolicy.Planner),
			[]agent.MemoryScope{ofAnn, conversation, atlas, opspilot},
			[]agent.MemoryKind{agent.MemoryFact, agent.MemoryTask, agent.MemorySummary, agent.MemoryExperience},
		},
		{
			reader(group, memorypolicy.Planner, memorypolicy.Personalization),
			[]agent.MemoryScope{g7, atlas, opspilot},
			[]agent.MemoryKind{agent.MemoryPreference, agent.MemoryFact, agent.MemoryTask, agent.MemorySummary, agent.MemoryExperience},
		},
		{reader(group, memorypolicy.PolicyEngine), []agent.MemoryScope{g7, atlas}, []agent.MemoryKind{agent.MemoryFact}},
		{reader(personal), nil, nil},
		{reader(agent.MemoryRoom{}, memorypolicy.Planner), nil, nil},
	} {
		if got := p.Scopes(tt.reader); !slices.Equal(got, tt.scopes) {
			t.Errorf("%v in group %q: scopes %v, want %v", tt.reader.Roles, tt.reader.Room.Group, got, tt.scopes)
		}
		if got := p.Kinds(tt.reader); !slices.Equal(got, tt.kinds) {
			t.Errorf("%v in group %q: kinds %v, want %v", tt.reader.Roles, tt.reader.Room.Group, got, tt.kinds)
		}
	}
}
