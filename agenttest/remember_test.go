package agenttest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

// proposing calls remember and then answers.
func proposing(arguments string) scripted.Script {
	return scripted.ByStep(calls("remember", arguments), scripted.Turn{Text: "Done."})
}

// TestRememberTool: what a model proposes is decided after the run, and the model
// is never told that it was saved.
func TestRememberTool(t *testing.T) {
	t.Parallel()
	const (
		message = `Call me Ann. My colleague wrote: "call me Bob". Please default to production from now on.`
		name    = `{"key":"profile.name","value":"Ann","quote":"Call me Ann."}`
	)
	tool := agenttest.ToolBegins("remember")
	for title, c := range map[string]struct {
		arguments string
		events    []agenttest.Event
		shown     string
		learned   []string
	}{
		// What a model proposes is left to a reviewer, and nobody is one here.
		"left to a reviewer": {name, nil, `{"state":"proposed"}`, []string{"profile.name: expired"}},
		"of kind":            {`{"kind":"profile_preference","key":"profile.name","value":"Ann","quote":"Call me Ann."}`, nil, `{"state":"proposed"}`, []string{"profile.name: expired"}},
		"of another kind": {
			`{"kind":"validated_fact","key":"profile.name","value":"Ann","quote":"Call me Ann."}`, nil,
			`{"state":"rejected","reason":"key.kind"}`,
			[]string{"profile.name: rejected"},
		},
		"confirmed": {
			`{"key":"preference.default_environment","value":"production","quote":"Please default to production from now on."}`,
			[]agenttest.Event{agenttest.When(agenttest.MemoryWaits(), agenttest.ConfirmMemoryAs("ann"))},
			`{"state":"proposed"}`,
			[]string{"preference.default_environment: stored"},
		},
		"not said": {`{"key":"profile.name","value":"Eve","quote":"Call me Eve."}`, nil, `{"state":"rejected","reason":"evidence.not_quoted"}`, []string{"profile.name: rejected"}},
		"said by somebody else": {
			`{"key":"profile.name","value":"Bob","quote":"call me Bob"}`, nil,
			`{"state":"rejected","reason":"evidence.not_quoted"}`,
			[]string{"profile.name: rejected"},
		},
		"secret":     {`{"key":"profile.name","value":"password hunter2","quote":"Call me Ann."}`, nil, `{"state":"rejected"`, []string{"profile.name: rejected"}},
		"store down": {name, []agenttest.Event{agenttest.When(tool, agenttest.MemoryDown(1))}, `{"state":"not_saved"}`, nil},
		"worker dies": {
			name,
			[]agenttest.Event{agenttest.When(agenttest.ToolReturns("remember"), agenttest.Crash())},
			`{"state":"proposed"}`,
			[]string{"profile.name: expired"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			suite := suiteOf(t, newServices(), proposing(c.arguments), withMemory(nil))
			result := suite.Run(message, c.events...)
			result.WantAnswer("Done.")
			result.WantCalls("remember")
			if !strings.Contains(result.Calls[0].Shown, c.shown) {
				t.Errorf("the model was told %s", result.Calls[0].Shown)
			}
			result.WantLearned(c.learned...)
			if result.Memory.Learning != agent.LearningStarted {
				t.Errorf("memory %+v", result.Memory)
			}
			for _, p := range result.Prompts {
				for _, m := range p.Messages {
					if strings.Contains(m.Text, "stored") || strings.Contains(m.Text, `"saved"`) {
						t.Errorf("the model was told %s", m.Text)
					}
				}
			}
		})
	}
}

// TestRememberIsOffered to agents whose definition lists it, and to no others.
func TestRememberIsOffered(t *testing.T) {
	t.Parallel()
	for _, listed := range []bool{false, true} {
		suite := suiteOf(t, newServices(), answered, func(c *agenttest.Config) {
			if listed {
				c.Definition.Tools = append(c.Definition.Tools, "remember")
			}
		})
		result := suite.Run("Hello")
		offered := false
		for _, tool := range result.Prompts[0].Tools {
			offered = offered || tool.Name == "remember" && strings.Contains(tool.Description, "preference.default_environment")
		}
		if offered != listed || (result.Memory != nil) != listed {
			t.Errorf("listed %t: offered %t, memory %+v", listed, offered, result.Memory)
		}
	}
}

// TestNothingIsLearnedFromOtherEnds: only what was answered is learned from.
func TestNothingIsLearnedFromOtherEnds(t *testing.T) {
	t.Parallel()
	suite := suiteOf(t, newServices(), answered, withMemory(func(context.Context, model.Request) (scripted.Turn, error) {
		t.Error("the extractor was asked")
		return scripted.Turn{Text: `{"candidates":[]}`}, nil
	}))
	result := suite.Run("Please default to production from now on.", agenttest.When(agenttest.ModelCalled(), agenttest.Cancel()))
	result.WantEnd(agent.ReasonCanceled)
	if *result.Memory != (agent.MemoryUse{Recall: agent.RecallNothing, Learning: agent.LearningOff}) {
		t.Errorf("memory %+v", result.Memory)
	}
}

const secretary = `
name: secretary
version: "1"
model: gpt-4.1-mini
system: You keep the user's diary.
environments: [production]
budget: {max_steps: 4, max_tool_calls: 4, max_tokens: 20000, max_cost_micros: 100000, timeout: 1m}
memory: {recall: true, learn: true}
`

// What is learned in one run is given to the next one, two weeks later.
func ExampleExtracts() {
	t := &testing.T{} // the test's own

	def, err := definition.Parse([]byte(secretary))
	if err != nil {
		t.Fatal(err)
	}
	suite := agenttest.New(t, agenttest.Config{
		Definition: def,
		Script:     scripted.ByStep(scripted.Turn{Text: "Noted."}),
		// What a model finds in the messages; the memory policy decides about it.
		Extractor: agenttest.Extracts(agenttest.Statement{
			Key: "profile.name", Kind: agent.MemoryPreference, Value: "Ann", Quote: "Call me Ann",
		}),
	})
	first := suite.Run("Call me Ann, please.")
	fmt.Println(first.Learned[0].Key, first.Learned[0].State)

	suite.Skip(twoWeeks)
	second := suite.Run("Who am I?")
	second.WantRecalled("profile.name")
	fmt.Println(second.Memory.Recall, second.Recalled[0].Value, second.Recalled[0].Quote)
	// Output:
	// profile.name stored
	// recalled "Ann" Call me Ann
}
