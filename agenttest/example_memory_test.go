package agenttest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

const clerk = `
name: clerk
version: "1"
model: gpt-4.1-mini
system: You answer questions about stock.
tools: [stock_level, remember]
environments: [production]
budget: {max_steps: 4, max_tool_calls: 4, max_tokens: 20000, timeout: 1m}
memory:
  recall: true
  learn: true
  facts: {current_sku: task.sku}
`

// skuKey is a key that the memory policy gets beside its own.
const skuKey = `
keys:
  task.sku:
    kind: ongoing_task
    description: The article that was asked about last.
    purpose: To know which article is meant next time.
    retention: 7d
    sources: [trusted_tool]
    schema: {type: string, minLength: 1, maxLength: 40}
`

// stockPolicy is the built-in memory policy with one more key: a worker's
// memory.policy is a file like that.
func stockPolicy() (*memorypolicy.Policy, error) {
	text, err := os.ReadFile("../memorypolicy/default.yaml")
	if err != nil {
		return nil, err
	}
	return memorypolicy.Parse([]byte(strings.Replace(string(text), "\nkeys:\n", skuKey, 1)))
}

type stockArgs struct {
	SKU string `json:"sku"`
}

// stockLevel settles which article it is about.
func stockLevel() (tool.Tool, error) {
	return tool.NewRead(tool.Spec{
		Name: "stock_level", Version: "1", Description: "Counts an article.", Risk: tool.Read, Source: "stock",
		Parameters: json.RawMessage(`{"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}`),
		Facts:      []tool.Fact{{Key: "current_sku", Pointer: "/sku"}},
	}, func(_ context.Context, _ tool.Invocation, args stockArgs) (tool.Result, error) {
		return tool.JSON(map[string]any{"sku": args.SKU, "pieces": 12})
	})
}

// reviewers are the built-in policies about reading and reviewing, and a group
// that is not empty: rita reviews.
var reviewers = fstest.MapFS{
	"clerk.cedar": {Data: []byte(`
permit (principal, action in [Action::"offer", Action::"read"], resource);
permit (principal, action == Action::"review", resource)
when { principal in context.memory_reviewers && principal != context.requester };`)},
	"entities.json": {Data: []byte(`[
{"uid": {"type": "User", "id": "acme/rita"}, "attrs": {}, "parents": [{"type": "Group", "id": "acme/memory_reviewers"}]},
{"uid": {"type": "Group", "id": "acme/memory_reviewers"}, "attrs": {}, "parents": []}
]`)},
}

// An agent with memory, of each way in one: what a tool settled, what a model found
// in the user's words, and what the agent proposed and a reviewer let in.
func Example_memory() {
	t := &testing.T{} // the test's own

	def, err := definition.Parse([]byte(clerk))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := stockPolicy()
	if err != nil {
		t.Fatal(err)
	}
	stock, err := stockLevel()
	if err != nil {
		t.Fatal(err)
	}
	suite := agenttest.New(t, agenttest.Config{
		Definition: def, Tools: []tool.Tool{stock}, MemoryPolicy: policy, Policies: reviewers,
		Script: scripted.ByStep(
			scripted.Turn{Calls: []scripted.Call{
				{Name: "stock_level", Arguments: `{"sku": "A-7"}`},
				{Name: "remember", Arguments: `{"key": "profile.name", "value": "Ann", "quote": "Call me Ann."}`},
			}},
			scripted.Turn{Text: "There are 12."},
		),
		Extractor: agenttest.Extracts(agenttest.Statement{
			Key: "preference.reply_style", Value: "brief", Quote: "Please always answer briefly.",
		}),
	})

	first := suite.Run("Call me Ann. Please always answer briefly. How many A-7 are left?",
		agenttest.When(agenttest.MemoryWaits(), agenttest.ConfirmMemoryAs("rita")))
	first.WantLearned("profile.name: stored", "task.sku: stored", "preference.reply_style: stored")
	for _, m := range suite.Memories() {
		fmt.Println(m.Key, m.Value, m.SourceType, m.Validation)
	}

	// The article is remembered for seven days, by the policy.
	suite.Skip(twoWeeks)
	suite.Run("And now?").WantRecalled("profile.name", "preference.reply_style")
	// Output:
	// preference.reply_style "brief" user_statement user_stated
	// profile.name "Ann" user_statement reviewed
	// task.sku "A-7" trusted_tool trusted
}
