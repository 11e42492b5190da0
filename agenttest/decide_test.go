package agenttest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
)

// TestRefusedMemoryDecisions are listed as those about writes are, after them.
func TestRefusedMemoryDecisions(t *testing.T) {
	t.Parallel()
	suite := suiteOf(t, newServices(), restartOnce, withMemory(agenttest.Extracts(defaults)))
	result := suite.Run("Restart it. Please default to production from now on.",
		agenttest.When(agenttest.PlanWaits(), agenttest.ForgeAs("bob"), agenttest.ApproveAs("bob")),
		agenttest.When(agenttest.MemoryWaits(),
			agenttest.ForgeMemoryAs("ann"), agenttest.ConfirmMemoryAs("bob"), agenttest.DeclineMemoryAs("cat"), agenttest.ConfirmMemoryAs("ann")))
	result.WantLearned("preference.default_environment: stored")
	result.WantRefusals(agent.RefusedSignature, agent.RefusedSignature, agent.RefusedNotAuthorized, agent.RefusedNotAuthorized)
	want(t, "refused", result.Refusals[1:], []agenttest.Refusal{
		{Memory: "preference.default_environment", Code: agent.RefusedSignature},
		{Memory: "preference.default_environment", Code: agent.RefusedNotAuthorized, Approver: "bob"},
		{Memory: "preference.default_environment", Code: agent.RefusedNotAuthorized, Approver: "cat"},
	})
	if result.Refusals[0].CallID == "" || result.Refusals[0].Memory != "" {
		t.Errorf("the write's refusal is %+v", result.Refusals[0])
	}
}

// TestSendAgainOfAMemory: the same decision has one effect.
func TestSendAgainOfAMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		actions []agenttest.Action
		refused []agent.RefusalCode
	}{
		"at once": {[]agenttest.Action{agenttest.ConfirmMemoryAs("ann"), agenttest.SendAgain()}, nil},
		"refused twice": {
			[]agenttest.Action{agenttest.ConfirmMemoryAs("bob"), agenttest.SendAgain(), agenttest.ConfirmMemoryAs("ann")},
			[]agent.RefusalCode{agent.RefusedNotAuthorized, agent.RefusedNotAuthorized},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite := suiteOf(t, newServices(), answered, withMemory(agenttest.Extracts(defaults)))
			result := suite.Run("Please default to production from now on.", agenttest.When(agenttest.MemoryWaits(), c.actions...))
			result.WantLearned("preference.default_environment: stored")
			result.WantRefusals(c.refused...)
			want(t, "memories", len(suite.Memories()), 1)
		})
	}
}

// TestEachMemoryThatWaits is decided at its own moment, a token that comes when it
// is over is heard by nobody, and one that would replace something else by then
// waits anew.
func TestEachMemoryThatWaits(t *testing.T) {
	t.Parallel()
	extractor := agenttest.Extracts(
		agenttest.Statement{Key: "profile.diet", Value: "vegan", Quote: "I am vegan from now on."},
		agenttest.Statement{Key: "preference.default_environment", Value: "test", Quote: "Please default to test from now on."})
	suite := suiteOf(t, newServices(), answered, withMemory(extractor))
	waits := agenttest.MemoryWaits()
	result := suite.Run("I am vegan from now on. Please default to test from now on.",
		agenttest.When(waits, agenttest.Wait(2*time.Hour), agenttest.ConfirmMemoryAs("ann"), agenttest.Wait(time.Hour), agenttest.SendAgain()),
		agenttest.When(waits, agenttest.Wait(4*time.Hour), agenttest.DeclineMemoryAs("ann")))
	states := map[agent.MemoryState]int{}
	for _, l := range result.Learned {
		states[l.State]++
	}
	want(t, "states", states, map[agent.MemoryState]int{agent.MemoryStored: 1, agent.MemoryDeclined: 1})
	result.WantRefusals()
	if !strings.Contains(result.Story(), "nobody hears the token") {
		t.Errorf("the token that was too late:\n%s", result.Story())
	}

	both := agenttest.Extracts(defaults, agenttest.Statement{Key: defaults.Key, Value: "test", Quote: "default to test from now on"})
	suite = suiteOf(t, newServices(), answered, withMemory(both))
	result = suite.Run("Please default to test from now on. Please default to production from now on.",
		agenttest.When(waits, agenttest.ConfirmMemoryAs("ann")),
		agenttest.When(waits, agenttest.ConfirmMemoryAs("ann")),
		agenttest.When(waits, agenttest.ConfirmMemoryAs("ann")))
	result.WantLearned("preference.default_environment: stored", "preference.default_environment: stored")
	want(t, "memories", len(suite.Memories()), 1)
}

// TestSupersedeInAGroup: the newer run is of the same group and project.
func TestSupersedeInAGroup(t *testing.T) {
	t.Parallel()
	suite := office(t, nil)
	req := suite.Request("Restart it.")
	req.Group, req.Project = "ops", "payments"
	suite.RunRequest(req, agenttest.When(agenttest.ModelCalled(), agenttest.Supersede("Never mind."))).WantEnd(agent.ReasonSuperseded)
}
