package main

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/memorypolicy/detect"
)

// What a policy does not list is asked of it, as workers ask it. Nothing is stored.

// probe is a proposal that policies can be asked about: it takes back what is
// remembered under a key where others see it as well.
func probe(k memorypolicy.KeySpec) memorypolicy.Candidate {
	c := memorypolicy.Candidate{
		MemoryCandidate: agent.MemoryCandidate{
			Kind: k.Kind, Key: k.Name, Retracts: true, Value: identitySample(k), SourceID: "probe", MessageID: "probe", Writer: "user:probe",
		},
		Room: agent.MemoryRoom{Scope: agent.Scope{Tenant: "probe", User: "probe", Environment: "probe"}, Conversation: "probe", Agent: "probe"},
		Now:  time.Unix(0, 0).UTC(),
	}
	for _, source := range k.Sources {
		// A statement would need words that say it.
		if source != agent.SourceUserStatement {
			c.SourceType = source
			break
		}
	}
	for _, scope := range k.Scopes {
		switch scope {
		case agent.MemoryOfGroup:
			c.Room.Group = "probe"
		case agent.MemoryOfProject:
			c.Room.Project = "probe"
		case agent.MemoryOfAgent:
		case agent.MemoryOfUser, agent.MemoryOfConversation:
			continue
		}
		c.Scope = agent.MemoryScope{Kind: scope, ID: "probe"}
		break
	}
	return c
}

// identitySample is a value with the fields that tell records of a key apart, nil
// if there are none.
func identitySample(k memorypolicy.KeySpec) json.RawMessage {
	var schema struct {
		Properties map[string]struct {
			Enum      []any `json:"enum"`
			Minimum   *int  `json:"minimum"`
			MinLength int   `json:"minLength"`
		} `json:"properties"`
	}
	if len(k.Identity) == 0 || json.Unmarshal(k.Schema, &schema) != nil {
		return nil
	}
	fields := map[string]any{}
	for _, name := range k.Identity {
		switch field := schema.Properties[name]; {
		case len(field.Enum) > 0:
			fields[name] = field.Enum[0]
		case field.Minimum != nil:
			fields[name] = *field.Minimum
		default:
			fields[name] = strings.Repeat("x", max(field.MinLength, 1))
		}
	}
	value, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return value
}

// sharedMode is how a key is written where others see it as well: empty if it is
// personal, "?" if the policy would not say.
func sharedMode(p *memorypolicy.Policy, k memorypolicy.KeySpec) memorypolicy.WriteMode {
	c := probe(k)
	if c.Scope.Kind == "" {
		return ""
	}
	mode := "?"
	for _, rule := range p.Evaluate(c).Rules {
		// The shared one comes last, if it is another one.
		if name, ok := strings.CutPrefix(rule.ID, "mode."); ok {
			mode = strings.TrimPrefix(name, "shared.")
		}
	}
	return memorypolicy.WriteMode(mode)
}

// deniedSources are those from which nothing is written.
func deniedSources(p *memorypolicy.Policy) (denied []agent.MemorySourceType) {
	for _, source := range []agent.MemorySourceType{
		agent.SourceUserStatement, agent.SourceUserCorrection, agent.SourceTrustedTool, agent.SourceTrustedService, agent.SourceApprovedSummarizer,
		agent.SourceRawPrompt, agent.SourceExternal, agent.SourceUnvalidatedTool, agent.SourceAssistant, agent.SourceRecalled,
	} {
		c := probe(memorypolicy.KeySpec{Name: "probe", Kind: agent.MemoryPreference, Sources: []agent.MemorySourceType{source}})
		c.SourceType, c.Quote = source, "probe"
		rules := p.Evaluate(c).Rules
		if last := rules[len(rules)-1].ID; last == "source.denied" || last == "source.not_admitted" {
			denied = append(denied, source)
		}
	}
	return denied
}

// refusedAlways is the content that no policy lets in; refusable are words of what
// it may let in.
var (
	refusedAlways = []detect.Category{
		detect.Secret, detect.AccessToken, detect.PaymentCard, detect.IdentityNumber, detect.Authority, detect.Injection, detect.Chatter,
	}
	refusable = []struct {
		category detect.Category
		words    string
	}{
		{detect.PhoneNumber, "call +1 415 555 0132"},
		{detect.Health, "was diagnosed with diabetes"},
		{detect.Finance, "earns a salary of 90000 dollars"},
	}
)

// refusedContent are the kinds of content that are refused, wherever no key allows
// them.
func refusedContent(p *memorypolicy.Policy) []detect.Category {
	refused := slices.Clone(refusedAlways)
	for _, content := range refusable {
		if slices.ContainsFunc(p.Keys(), func(k memorypolicy.KeySpec) bool {
			c := probe(k)
			c.Purpose = content.words
			return slices.ContainsFunc(p.Evaluate(c).Rules, func(r agent.MemoryRule) bool { return r.ID == "content."+string(content.category) })
		}) {
			refused = append(refused, content.category)
		}
	}
	return refused
}

// reads is what a role may read, alone and in a group together.
type reads struct {
	Role   memorypolicy.ReaderRole `json:"role"`
	Kinds  []agent.MemoryKind      `json:"kinds"`
	Scopes []agent.MemoryScopeKind `json:"scopes"`
}

func readsOf(p *memorypolicy.Policy) (list []reads) {
	alone := agent.MemoryRoom{Scope: agent.Scope{Tenant: "probe", User: "probe", Environment: "probe"}, Conversation: "probe", Project: "probe", Agent: "probe"}
	together := alone
	together.Group = "probe"
	for _, role := range []memorypolicy.ReaderRole{memorypolicy.Personalization, memorypolicy.Planner, memorypolicy.PolicyEngine} {
		r := reads{Role: role, Kinds: []agent.MemoryKind{}, Scopes: []agent.MemoryScopeKind{}}
		for _, room := range []agent.MemoryRoom{alone, together} {
			reader := memorypolicy.Reader{Roles: []memorypolicy.ReaderRole{role}, Room: room}
			for _, kind := range p.Kinds(reader) {
				if !slices.Contains(r.Kinds, kind) {
					r.Kinds = append(r.Kinds, kind)
				}
			}
			for _, scope := range p.Scopes(reader) {
				if !slices.Contains(r.Scopes, scope.Kind) {
					r.Scopes = append(r.Scopes, scope.Kind)
				}
			}
		}
		list = append(list, r)
	}
	return list
}
