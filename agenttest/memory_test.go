package agenttest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

const twoWeeks = 14 * 24 * time.Hour

// withMemory is the operator with long-term memory.
func withMemory(extractor scripted.Script) func(*agenttest.Config) {
	return func(c *agenttest.Config) {
		c.Definition.Memory.Recall = true
		c.Definition.Memory.Learn = extractor != nil
		c.Definition.Tools = append(c.Definition.Tools, "remember")
		c.Extractor = extractor
	}
}

// context is what the model was told beside the conversation in its first call.
func contextOf(r *agenttest.Result) string {
	var text strings.Builder
	for _, m := range r.Prompts[0].Messages {
		if strings.Contains(m.Text, `"fairlead_context"`) {
			text.WriteString(m.Text)
		}
	}
	return text.String()
}

var answered = scripted.ByStep(scripted.Turn{Text: "Done."})

// defaults is how the user asks for a default environment.
var defaults = agenttest.Statement{
	Key: "preference.default_environment", Kind: agent.MemoryPreference, Value: "production", Quote: "default to production from now on",
}

// TestLTM5: what the user said is learned after the answer, is decided about by
// the user, and is given to the next run; the user's present words are below it.
func TestLTM5(t *testing.T) {
	t.Parallel()
	suite := suiteOf(t, newServices(), answered, withMemory(agenttest.Extracts(defaults)))
	first := suite.Run("Please default to production from now on.",
		agenttest.When(agenttest.MemoryWaits(), agenttest.ConfirmMemoryAs("ann")))
	first.WantAnswer("Done.")
	first.WantRecalled()
	first.WantLearned("preference.default_environment: stored")
	if *first.Memory != (agent.MemoryUse{Recall: agent.RecallNothing, Learning: agent.LearningStarted}) {
		t.Errorf("memory %+v", first.Memory)
	}
	if first.Elapsed > time.Second {
		t.Errorf("the run waited %s for what is learned", first.Elapsed)
	}
	memories := suite.Memories()
	if len(memories) != 1 || memories[0].Value != `"production"` || memories[0].Validation != agent.MemoryUserConfirmed ||
		memories[0].Quote != defaults.Quote || memories[0].RunID != first.RunID || memories[0].User != "ann" {
		t.Fatalf("remembered %+v", memories)
	}

	suite.Skip(twoWeeks)
	second := suite.Run("How is payment-api?")
	second.WantRecalled("preference.default_environment")
	if *second.Memory != (agent.MemoryUse{Recall: agent.RecallFound, Records: 1, Learning: agent.LearningStarted}) {
		t.Errorf("memory %+v", second.Memory)
	}
	told := contextOf(second)
	for _, part := range []string{`"memory":{"trust":"untrusted","stale":"possible"`, "preference.default_environment: production", "said by user ann on ", "personal memory, user confirmed"} {
		if !strings.Contains(told, part) {
			t.Errorf("the model was not told %q:\n%s", part, told)
		}
	}
	messages := second.Prompts[0].Messages
	if last := messages[len(messages)-1]; last.Role != model.RoleUser || last.Text != "How is payment-api?" {
		t.Errorf("the question is not last: %+v", last)
	}
}

// TestLTM5States: whatever becomes of learning, the answer stands.
func TestLTM5States(t *testing.T) {
	t.Parallel()
	const message = "Please default to production from now on."
	waits := agenttest.MemoryWaits()
	for name, c := range map[string]struct {
		extractor scripted.Script
		events    []agenttest.Event
		learned   []string
		memories  int
	}{
		"nobody confirms": {nil, nil, []string{"preference.default_environment: expired"}, 0},
		"declined":        {nil, []agenttest.Event{agenttest.When(waits, agenttest.DeclineMemoryAs("ann"))}, []string{"preference.default_environment: declined"}, 0},
		"somebody else confirms": {
			nil,
			[]agenttest.Event{agenttest.When(waits, agenttest.ConfirmMemoryAs("bob"))},
			[]string{"preference.default_environment: expired"},
			0,
		},
		"forged": {nil, []agenttest.Event{agenttest.When(waits, agenttest.ForgeMemoryAs("ann"))}, []string{"preference.default_environment: expired"}, 0},
		"worker dies while learning": {nil, []agenttest.Event{
			agenttest.When(agenttest.AfterActivity(agent.ActivityLearn), agenttest.Crash()),
			agenttest.When(agenttest.BeforeActivity(agent.ActivityJudgeMemory), agenttest.Crash()),
			agenttest.When(agenttest.AfterActivity(agent.ActivitySettleMemory), agenttest.Crash()),
			agenttest.When(waits, agenttest.ConfirmMemoryAs("ann")),
		}, []string{"preference.default_environment: stored"}, 1},
		"store down while learning": {nil, []agenttest.Event{
			agenttest.When(agenttest.BeforeActivity(agent.ActivityLearn), agenttest.MemoryDown(1)),
			agenttest.When(waits, agenttest.ConfirmMemoryAs("ann")),
		}, []string{"preference.default_environment: stored"}, 1},
		"embedder down": {nil, []agenttest.Event{
			agenttest.When(agenttest.BeforeActivity(agent.ActivityJudgeMemory), agenttest.EmbedderDown(1000)),
			agenttest.When(waits, agenttest.ConfirmMemoryAs("ann")),
		}, []string{"preference.default_environment: stored"}, 1},
		"extractor is away": {func(context.Context, model.Request) (scripted.Turn, error) {
			return scripted.Turn{Err: &model.Error{Kind: model.KindUnavailable}}, nil
		}, nil, nil, 0},
		"extractor makes it up": {func(context.Context, model.Request) (scripted.Turn, error) {
			return scripted.Turn{Text: `{"candidates":[{"kind":"profile_preference","key":"preference.default_environment","value":"staging","quote":"staging from now on","valid_from":null,"valid_until":null,"retracts":false}]}`}, nil
		}, nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.extractor == nil {
				c.extractor = agenttest.Extracts(defaults)
			}
			suite := suiteOf(t, newServices(), answered, withMemory(c.extractor))
			result := suite.Run(message, c.events...)
			result.WantAnswer("Done.")
			if result.Memory.Learning != agent.LearningStarted {
				t.Errorf("memory %+v", result.Memory)
			}
			result.WantLearned(c.learned...)
			if n := len(suite.Memories()); n != c.memories {
				t.Errorf("%d memories, want %d", n, c.memories)
			}
		})
	}
}

// TestLTM7: a run goes on without its embedder by keyword, and without its memory
// with nothing; that nobody knows is not the same as that there is nothing.
func TestLTM7(t *testing.T) {
	t.Parallel()
	seed := agenttest.Memory{Key: "profile.name", Value: `"Ann of the payments"`}
	before := agenttest.BeforeActivity(agent.ActivityRecall)
	for name, c := range map[string]struct {
		seeds  []agenttest.Memory
		events []agenttest.Event
		want   agent.MemoryUse
		told   bool
	}{
		"all up":        {[]agenttest.Memory{seed}, nil, agent.MemoryUse{Recall: agent.RecallFound, Records: 1}, true},
		"nothing there": {nil, nil, agent.MemoryUse{Recall: agent.RecallNothing}, false},
		"embedder down": {
			[]agenttest.Memory{seed},
			[]agenttest.Event{agenttest.When(before, agenttest.EmbedderDown(1))},
			agent.MemoryUse{Recall: agent.RecallFound, Records: 1, KeywordOnly: true},
			true,
		},
		"memory down once": {
			[]agenttest.Memory{seed},
			[]agenttest.Event{agenttest.When(before, agenttest.MemoryDown(2))},
			agent.MemoryUse{Recall: agent.RecallFound, Records: 1},
			true,
		},
		"memory down": {
			[]agenttest.Memory{seed},
			[]agenttest.Event{agenttest.Whenever(before, agenttest.MemoryDown(9))},
			agent.MemoryUse{Recall: agent.RecallUnavailable},
			false,
		},
		"nothing there, memory down": {
			nil,
			[]agenttest.Event{agenttest.Whenever(before, agenttest.MemoryDown(9))},
			agent.MemoryUse{Recall: agent.RecallUnavailable},
			false,
		},
		"down when the step reads": {
			[]agenttest.Memory{seed},
			[]agenttest.Event{agenttest.When(agenttest.AfterActivity(agent.ActivityRecall), agenttest.MemoryDown(1))},
			agent.MemoryUse{Recall: agent.RecallFound, Records: 1},
			false,
		},
		"worker dies": {
			[]agenttest.Memory{seed},
			[]agenttest.Event{agenttest.When(agenttest.AfterActivity(agent.ActivityRecall), agenttest.Crash())},
			agent.MemoryUse{Recall: agent.RecallFound, Records: 1},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite := suiteOf(t, newServices(), answered, withMemory(nil))
			suite.Remember(c.seeds...)
			result := suite.Run("What do you know of the payments team?", c.events...)
			result.WantAnswer("Done.")
			c.want.Learning = agent.LearningStarted // the model could have called remember
			if *result.Memory != c.want {
				t.Errorf("memory %+v, want %+v", *result.Memory, c.want)
			}
			if told := strings.Contains(contextOf(result), "Ann of the payments"); told != c.told {
				t.Errorf("the model was told: %t", told)
			}
		})
	}
}
