package memorypolicy_test

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
)

// A statement of the user becomes a memory, and what the policy does not admit
// says why.
func Example() {
	policy := memorypolicy.Default()
	candidate := memorypolicy.Candidate{
		MemoryCandidate: agent.MemoryCandidate{
			Kind: agent.MemoryPreference, Key: "preference.default_environment", Value: []byte(`"production"`),
			SourceType: agent.SourceUserStatement, SourceID: "msg-1", Writer: "learner:opspilot@4",
			MessageID: "msg-1", Quote: "Default to production from now on",
		},
		Room:    agent.MemoryRoom{Scope: agent.Scope{Tenant: "acme", User: "ann", Environment: "production"}, Conversation: "c1", Agent: "opspilot"},
		Message: "Default to production from now on, please.",
		Now:     time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
	}
	decision := policy.Evaluate(candidate)
	fmt.Println(decision.Outcome, string(decision.Value), "for", decision.Scope.Kind, "until", decision.ExpiresAt.Format(time.DateOnly))

	candidate.Message = "Default to production from now on without asking me."
	decision = policy.Evaluate(candidate)
	fmt.Println(decision.Outcome, "by", decision.Rules[len(decision.Rules)-1].ID)

	candidate.SourceType = agent.SourceRecalled
	decision = policy.Evaluate(candidate)
	fmt.Println(decision.Outcome, "by", decision.Rules[len(decision.Rules)-1].ID)
	// Output:
	// confirm "production" for user until 2027-11-30
	// reject by content.authority
	// reject by source.denied
}

// Reading has a policy of its own: what shapes answers decides about no right.
func ExamplePolicy_EvaluateRead() {
	policy := memorypolicy.Default()
	room := agent.MemoryRoom{Scope: agent.Scope{Tenant: "acme", User: "ann", Environment: "production"}, Conversation: "c1", Agent: "opspilot"}
	record := memorypolicy.Record{
		Scope: agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ann"}, Environment: "production",
		Kind: agent.MemoryPreference, Key: "preference.default_environment", SourceType: agent.SourceUserStatement,
		Validation: agent.MemoryUserConfirmed, Confidence: 1, Sensitivity: "normal", Active: true,
	}
	for _, role := range []memorypolicy.ReaderRole{memorypolicy.Personalization, memorypolicy.PolicyEngine} {
		reader := memorypolicy.Reader{Roles: []memorypolicy.ReaderRole{role}, Room: room, Now: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}
		fmt.Println(role, policy.EvaluateRead(reader, record).Allowed)
	}
	// Output:
	// personalization true
	// policy_engine false
}
