package agenttest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// withSight gives the operator a tool that settles the fact current_service, which
// is to be learned under a key of the memory policy.
func withSight(key string) func(*agenttest.Config) {
	return func(c *agenttest.Config) {
		sight, err := tool.NewRead(tool.Spec{
			Name: "find", Version: "1", Description: "Finds a service.", Risk: tool.Read, Source: "services",
			Parameters: json.RawMessage(`{"type":"object","properties":{}}`), Facts: []tool.Fact{{Key: "current_service", Pointer: "/service"}},
		}, func(context.Context, tool.Invocation, struct{}) (tool.Result, error) {
			return tool.JSON(map[string]string{"service": "payment-api"})
		})
		if err != nil {
			panic(err)
		}
		c.Tools = append(c.Tools, sight)
		c.Definition.Tools = append(c.Definition.Tools, "find")
		c.Definition.Memory.Recall, c.Definition.Memory.Learn = true, true
		c.Definition.Memory.Facts = map[string]string{"current_service": key}
	}
}

// TestFactsWithoutAnExtractor: what tools settle is learned as in production, and
// the script is not asked what words say.
func TestFactsWithoutAnExtractor(t *testing.T) {
	t.Parallel()
	suite := suiteOf(t, newServices(), scripted.ByStep(calls("find", `{}`), scripted.Turn{Text: "Found."}), withSight("task.service"))
	result := suite.Run("I always work on payment-api.")
	result.WantAnswer("Found.")
	result.WantLearned("task.service: stored")
	want(t, "prompts", len(result.Prompts), 2)
	want(t, "learning", result.Memory.Learning, agent.LearningStarted)
	memories := suite.Memories()
	if len(memories) != 1 || memories[0].Value != `"payment-api"` || memories[0].SourceType != agent.SourceTrustedTool {
		t.Errorf("remembered %+v", memories)
	}
	suite.Run("What did I work on, which service?").WantRecalled("task.service")
}

// TestFactsAreChecked: what a worker refuses when it starts is refused here.
func TestFactsAreChecked(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"no.such.key":  "agenttest: memory.facts.current_service names no.such.key, which is no key of the memory policy (version ",
		"profile.name": "lets no tool write: add trusted_tool to its sources",
	} {
		says(t, failing(t, func(t testing.TB) { suiteOf(t, newServices(), answered, withSight(key)) }), want)
	}
}

// TestAgentThatAnswersWithCandidates is asked itself, whatever its answers look like.
func TestAgentThatAnswersWithCandidates(t *testing.T) {
	t.Parallel()
	final := `{"candidates":["ann"]}`
	suite := suiteOf(t, newServices(), scripted.ByStep(scripted.Turn{Text: final}), func(c *agenttest.Config) {
		c.Definition = definitionOf(t, operator+"final_schema: {type: object, properties: {candidates: {type: array, items: {type: string}}}, required: [candidates]}\n")
	})
	suite.Run("Who applied?").WantAnswer(final)
}

// TestStatements: a statement takes its kind from the key, and one that would be
// dropped without a word fails the test.
func TestStatements(t *testing.T) {
	t.Parallel()
	const message = "Call me Ann, please."
	for name, c := range map[string]struct {
		statement agenttest.Statement
		learned   []string
		failure   string
	}{
		"kind of the key":   {statement: agenttest.Statement{Key: "profile.name", Value: "Ann", Quote: "Call me Ann"}, learned: []string{"profile.name: stored"}},
		"unknown with kind": {statement: agenttest.Statement{Key: "profile.nick", Kind: agent.MemoryPreference, Value: "Ann", Quote: "Call me Ann"}, learned: []string{": rejected"}},
		"not said":          {statement: agenttest.Statement{Key: "profile.nick", Value: "Bob", Quote: "Call me Bob"}},
		"unknown key":       {statement: agenttest.Statement{Key: "profile.nick", Value: "Ann", Quote: "Call me Ann"}, failure: `the statement of the key "profile.nick": the memory policy has no such key`},
		"no value":          {statement: agenttest.Statement{Key: "profile.name", Quote: "Call me Ann"}, failure: "there is no value, and nothing is taken back"},
		"no quote":          {statement: agenttest.Statement{Key: "profile.name", Value: "Ann"}, failure: "there is no quote"},
		"no kind there is":  {statement: agenttest.Statement{Key: "profile.name", Kind: "name", Value: "Ann", Quote: "Call me Ann"}, failure: "the kind is none of the closed set"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(t testing.TB) {
				suiteOf(t, newServices(), answered, withMemory(agenttest.Extracts(c.statement))).Run(message).WantLearned(c.learned...)
			}
			if c.failure == "" {
				run(t)
				return
			}
			r := failing(t, run)
			says(t, r, "agenttest: Extracts: ", c.failure)
			want(t, "failures", len(r.failures), 1)
		})
	}
	_, err := agenttest.Extracts(agenttest.Statement{Key: "profile.name", Value: "Ann", Quote: "Ann"})(t.Context(), model.Request{
		Messages: []model.Message{{Role: model.RoleUser, Text: `{"message":"I am Ann"}`}},
	})
	if err == nil || !strings.Contains(err.Error(), "kind") {
		t.Errorf("outside of a Suite: %v", err)
	}
}
