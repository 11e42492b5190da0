package agenttest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// heating is a system that an agent may change.
type heating struct{ degrees, version int }

type heatArgs struct {
	Degrees int `json:"degrees"`
}

func (h *heating) tool() (tool.Tool, error) {
	return tool.NewWrite(tool.Spec{
		Name: "set_heating", Version: "1", Description: "Sets the heating.", Source: "heating",
		Parameters: json.RawMessage(`{"type": "object", "properties": {"degrees": {"type": "integer"}}, "required": ["degrees"]}`),
	}, tool.WriteFuncs[heatArgs]{
		Prepare: func(_ context.Context, _ tool.Invocation, args heatArgs) (tool.Plan, error) {
			return tool.Plan{
				Resource: "heating/hall", Version: fmt.Sprint(h.version),
				Summary: fmt.Sprintf("Set the heating from %d to %d degrees.", h.degrees, args.Degrees),
			}, nil
		},
		Execute: func(_ context.Context, call tool.Invocation, args heatArgs) (tool.Result, error) {
			if call.Version != fmt.Sprint(h.version) {
				return tool.Result{}, tool.ErrStale
			}
			h.degrees, h.version = args.Degrees, h.version+1
			return tool.JSON(map[string]int{"degrees": h.degrees})
		},
	})
}

const janitor = `
name: janitor
version: "1"
model: gpt-4.1-mini
system: You look after the hall.
tools: [set_heating]
environments: [production]
budget: {max_steps: 4, max_tool_calls: 4, max_tokens: 20000, timeout: 1m}
writes: {confirm_within: 2h}
`

// A write waits for a person, who sees what will be done and confirms it.
func Example() {
	t := &testing.T{} // the test's own

	def, err := definition.Parse([]byte(janitor))
	if err != nil {
		t.Fatal(err)
	}
	hall := &heating{degrees: 18, version: 1}
	setHeating, err := hall.tool()
	if err != nil {
		t.Fatal(err)
	}
	suite := agenttest.New(t, agenttest.Config{
		Definition: def,
		Tools:      []tool.Tool{setHeating},
		// The model calls the tool, and answers when it has the result.
		Script: scripted.ByStep(
			scripted.Turn{Calls: []scripted.Call{{Name: "set_heating", Arguments: `{"degrees": 21}`}}},
			scripted.Turn{Text: "It will be warm soon."},
		),
	})

	result := suite.Run("It is cold in here.",
		agenttest.When(agenttest.PlanWaits(),
			agenttest.CheckPlan(func(p agenttest.Plan) { fmt.Println(p.Resource, string(p.Arguments), p.Summary) }),
			agenttest.Wait(time.Hour),
			agenttest.ApproveAs("ann")))

	result.WantEnd(agent.ReasonFinal)
	result.WantCalls("set_heating")
	fmt.Println(result.Answer)
	fmt.Println(hall.degrees, "degrees, confirmed by", result.Plans[0].Approver)
	fmt.Println("after", result.Elapsed.Round(time.Minute), "of virtual time")
	// Output:
	// heating/hall {"degrees":21} Set the heating from 18 to 21 degrees.
	// It will be warm soon.
	// 21 degrees, confirmed by ann
	// after 1h0m0s of virtual time
}

// An answer that never came: this tool cannot look up what happened, so the run
// says that nobody knows.
func ExampleFail() {
	t := &testing.T{} // the test's own

	def, err := definition.Parse([]byte(janitor))
	if err != nil {
		t.Fatal(err)
	}
	hall := &heating{degrees: 18, version: 1}
	setHeating, err := hall.tool()
	if err != nil {
		t.Fatal(err)
	}
	suite := agenttest.New(t, agenttest.Config{
		Definition: def, Tools: []tool.Tool{setHeating},
		Script: scripted.ByStep(scripted.Turn{Calls: []scripted.Call{{Name: "set_heating", Arguments: `{"degrees": 21}`}}}),
	})
	result := suite.Run("It is cold in here.",
		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("ann")),
		agenttest.When(agenttest.ToolReturns("set_heating"), agenttest.Fail(context.DeadlineExceeded)))
	fmt.Println(result.Reason, result.Writes[0].Result)
	// Output: outcome_unknown unknown
}
