package memorypolicy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/memorypolicy/detect"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(day int) *time.Time {
	t := time.Date(2026, 12, day, 0, 0, 0, 0, time.UTC)
	return &t
}

// personal is ann's own conversation, group a group's that she takes part in.
var (
	personal = agent.MemoryRoom{Scope: agent.Scope{Tenant: "acme", User: "ann", Environment: "production"}, Conversation: "c1", Project: "atlas", Agent: "opspilot"}
	group    = agent.MemoryRoom{Scope: personal.Scope, Conversation: "c2", Group: "g7", Project: "atlas", Agent: "opspilot"}
	ofAnn    = agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ann"}
)

// said is what a model took from a message of ann's, all of it quoted.
func said(t *testing.T, key, value, message string) memorypolicy.Candidate {
	t.Helper()
	k, ok := memorypolicy.Default().Key(key)
	if !ok {
		t.Fatalf("the registry has no key %s", key)
	}
	return memorypolicy.Candidate{
		MemoryCandidate: agent.MemoryCandidate{
			Kind: k.Kind, Key: key, Value: []byte(value), SourceType: agent.SourceUserStatement, SourceID: "msg-1", Writer: "learner:opspilot@4",
			MessageID: "msg-1", Quote: message,
		},
		Room: personal, Message: message, Now: now,
	}
}

// quoting is said with a quote that is a part of the message.
func quoting(t *testing.T, key, value, quote, message string) memorypolicy.Candidate {
	t.Helper()
	c := said(t, key, value, message)
	c.Quote = quote
	return c
}

// from is a value that source says itself.
func from(t *testing.T, source agent.MemorySourceType, key, value string) memorypolicy.Candidate {
	t.Helper()
	c := said(t, key, value, "")
	c.SourceType, c.SourceID, c.Writer, c.MessageID = source, "call-7", "worker:opspilot@4", ""
	if source == agent.SourceUserCorrection {
		c.Writer = "user:ann"
	}
	return c
}

func with(c memorypolicy.Candidate, change func(*memorypolicy.Candidate)) memorypolicy.Candidate {
	change(&c)
	return c
}

// expect evaluates c and checks the outcome and the rule that decided: of a
// rejection the last one, else any.
func expect(t *testing.T, c memorypolicy.Candidate, want memorypolicy.Outcome, ruleID string) memorypolicy.Decision {
	t.Helper()
	d := memorypolicy.Default().Evaluate(c)
	if d.Outcome != want || !has(d.Rules, ruleID, want == memorypolicy.Reject) {
		t.Errorf("%s %s %q:\n got %s by %v\nwant %s by %s", c.Key, c.Value, c.Quote, d.Outcome, ids(d.Rules), want, ruleID)
	}
	return d
}

func has(rules []agent.MemoryRule, id string, last bool) bool {
	if last {
		return len(rules) > 0 && rules[len(rules)-1].ID == id
	}
	return slices.Contains(ids(rules), id)
}

func ids(rules []agent.MemoryRule) (list []string) {
	for _, r := range rules {
		list = append(list, r.ID)
	}
	return list
}

func finding(category detect.Category) memorypolicy.FindFunc {
	return func(...string) []detect.Finding { return []detect.Finding{{Category: category, Rule: "test"}} }
}

// isMetadata reports whether a detector is asked about the source ID or writer of
// said or from.
func isMetadata(texts []string) bool {
	return len(texts) == 1 && slices.Contains([]string{"msg-1", "call-7", "user:ann", "worker:opspilot@4", "learner:opspilot@4"}, texts[0])
}
