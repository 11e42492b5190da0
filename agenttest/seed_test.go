package agenttest_test

import (
	"errors"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/model/scripted"
)

// TestErase: nothing is left of an erased user, and no run begins.
func TestErase(t *testing.T) {
	t.Parallel()
	suite := suiteOf(t, newServices(), answered, withMemory(agenttest.Extracts(defaults)))
	suite.Remember(agenttest.Memory{Key: "profile.name", Value: `"Ann"`}, agenttest.Memory{Key: "profile.name", Value: `"Bob"`, User: "bob"})
	open := suite.Run("Please default to production from now on. Who am I?",
		agenttest.When(agenttest.AfterActivity(agent.ActivityRecall), agenttest.Do(func() { suite.Erase("ann") })))
	open.WantAnswer("Done.")
	open.WantLearned()
	if told := contextOf(open); told != "" {
		t.Errorf("the model was told %s", told)
	}
	memories := suite.Memories()
	if len(memories) != 1 || memories[0].User != "bob" {
		t.Errorf("left: %+v", memories)
	}
	var refused *temporal.ApplicationError
	if err := suite.Run("Hello").Err; !errors.As(err, &refused) || refused.Type() != agent.ErrorUserErased {
		t.Errorf("another run: %v", err)
	}
	bob := suite.Request("Who am I?")
	bob.User = "bob"
	suite.RunRequest(bob).WantRecalled("profile.name")
}

// TestLearnedOfSomebodyWhoIsGone: what was proposed is on record, and is not
// decided about.
func TestLearnedOfSomebodyWhoIsGone(t *testing.T) {
	t.Parallel()
	gone := agenttest.BeforeActivity(agent.ActivityEndRun)
	for state, event := range map[string]func(*agenttest.Suite) func(){
		"proposed": func(s *agenttest.Suite) func() { return func() { s.Leave(ops, "ann") } },
		"declined": func(s *agenttest.Suite) func() { return func() { s.Erase("ann") } },
	} {
		const proposal = `{"key":"fact.note","value":{"topic":"the gate","text":"The gate of hall seven is locked."},"quote":"The gate of hall seven is locked."}`
		suite := suiteOf(t, newServices(), proposing(proposal), withMemory(nil))
		suite.Join(ops, "ann")
		req := suite.Request("The gate of hall seven is locked.")
		req.Group = "ops"
		suite.RunRequest(req, agenttest.When(gone, agenttest.Do(event(suite)))).WantLearned("fact.note: " + state)
	}
}

// TestSeeds are kept as a worker keeps them: in its form, for its time, found by
// their values, and in the place of the same.
func TestSeeds(t *testing.T) {
	t.Parallel()
	said := agenttest.Statement{
		Key: "fact.service", Quote: "The runbook of payment-api is wiki/new",
		Value: map[string]string{"service": "payment-api", "property": "runbook", "value": "wiki/new"},
	}
	suite := suiteOf(t, newServices(), answered, withMemory(agenttest.Extracts(said)), func(c *agenttest.Config) { c.Policies = reviewed })
	suite.Remember(
		agenttest.Memory{Key: "fact.service", Value: `{"service": "Payment-API",  "property":"runbook","value":"wiki/old & gone"}`},
		agenttest.Memory{Key: "task.current", Value: `{"name":"the migration","state":"blocked"}`})
	want(t, "confidence", suite.Memories()[0].Confidence, 0.7) // what the built-in policy makes of a user's words
	want(t, "value", suite.Memories()[0].Value, `{"property":"runbook","service":"Payment-API","value":"wiki/old & gone"}`)
	suite.Run("Which property has a value, and what name has its state?").WantRecalled()

	result := suite.Run("The runbook of payment-api is wiki/new, I own it.", agenttest.When(agenttest.MemoryWaits(), agenttest.ConfirmMemoryAs("rita")))
	result.WantLearned("fact.service: stored")
	memories := suite.Memories()
	want(t, "after", len(memories), 2)
	want(t, "version", []any{memories[0].Version, memories[0].ExpiresAt.Sub(memories[0].WrittenAt).Round(time.Hour)}, "[2 4320h0m0s]")

	suite.Skip(31 * 24 * time.Hour)
	memories = suite.Memories()
	if len(memories) != 1 || memories[0].Key != "fact.service" {
		t.Errorf("after 31 days %+v", memories)
	}
	suite.Run("How is the migration?").WantRecalled()
}

func TestSeedErrors(t *testing.T) {
	t.Parallel()
	for text, m := range map[string]agenttest.Memory{
		"remember profile.nick: the memory policy has no such key":                            {Key: "profile.nick", Value: `"Ann"`},
		"remember profile.name: the value Ann is no JSON value":                               {Key: "profile.name", Value: "Ann"},
		`the value "concise" does not fit the key`:                                            {Key: "preference.reply_style", Value: `"concise"`},
		"does not fit the key: at the top level: unknown field":                               {Key: "profile.pet", Value: `{"name":"Rex","age":"3"}`},
		"ann has no group ops: Join makes participants, and a conversation is begun by a run": {Key: "fact.project_codename", Value: `"lion"`, Scope: ops},
		"the key is for [user], not for group":                                                {Key: "profile.name", Value: `"Ann"`, Scope: ops},
		"the key is of kind profile_preference, not validated_fact":                           {Key: "profile.name", Value: `"Ann"`, Kind: agent.MemoryFact},
		"the agent does not act in environment test":                                          {Key: "profile.name", Value: `"Ann"`, Environment: "test"},
	} {
		says(t, failing(t, func(t testing.TB) { suiteOf(t, newServices(), answered, withMemory(nil)).Remember(m) }), text)
	}
	says(t, failing(t, func(t testing.TB) {
		suiteOf(t, newServices(), scripted.ByStep()).Join(agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ann"}, "bob")
	}), `one takes part in a group or project, and in no "user"`)
}
