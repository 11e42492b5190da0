package agenttest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

func forSummary(req model.Request) bool {
	return strings.Contains(string(req.FinalSchema), `"open_tasks"`)
}

// talker answers, and writes summaries that quote the longest message.
type talker struct {
	summaries int
	delay     time.Duration
}

func (c *talker) script(_ context.Context, req model.Request) (scripted.Turn, error) {
	if !forSummary(req) {
		return scripted.Turn{Text: "Noted."}, nil
	}
	c.summaries++
	var data struct{ Messages []struct{ Text string } }
	if err := json.Unmarshal([]byte(req.Messages[0].Text), &data); err != nil {
		return scripted.Turn{}, err
	}
	longest := ""
	for _, m := range data.Messages {
		if len(m.Text) > len(longest) {
			longest = m.Text
		}
	}
	made, err := json.Marshal(map[string]any{
		"summary": longest, "decisions": []string{}, "open_tasks": []string{}, "prohibitions": []string{}, "identifiers": []string{},
	})
	return scripted.Turn{Text: string(made), Delay: c.delay}, err
}

// conversation is a suite whose conversations are summarized two messages at a
// time, and a way to say the next thing in one of them.
func conversation(t testing.TB, script scripted.Script, summaries bool, edit ...func(*agenttest.Config)) (say func(events ...agenttest.Event) *agenttest.Result) {
	t.Helper()
	edit = append(edit, func(c *agenttest.Config) {
		c.Summaries = summaries
		c.Definition.Context.Messages = 1
		c.Definition.Summary.After, c.Definition.Summary.Keep = 2, 1
	})
	suite := suiteOf(t, newServices(), script, edit...)
	first, said := suite.Request(""), 0
	return func(events ...agenttest.Event) *agenttest.Result {
		said++
		req := suite.Request(fmt.Sprintf("This is the message number %d, and the longest of these.", said))
		req.Conversation = first.Conversation
		return suite.RunRequest(req, events...)
	}
}

// TestLongConversationAsksForNothingElse: a script is asked what the agent's runs
// ask, however long the conversation is.
func TestLongConversationAsksForNothingElse(t *testing.T) {
	t.Parallel()
	asked := 0
	answer := scripted.ByStep(scripted.Turn{Text: "Noted."})
	suite := suiteOf(t, newServices(), func(ctx context.Context, req model.Request) (scripted.Turn, error) {
		if asked++; forSummary(req) {
			t.Errorf("a summary was asked for")
		}
		return answer(ctx, req)
	})
	first := suite.Request("Hello")
	for range 31 {
		req := suite.Request("Hello")
		req.Conversation = first.Conversation
		suite.RunRequest(req).WantAnswer("Noted.")
	}
	// 60 messages are what makes a summary due.
	want(t, "asked", asked, 31)

	writer := &talker{}
	say := conversation(t, writer.script, false)
	for range 4 {
		want(t, "prompts", len(say().Prompts), 1)
	}
	want(t, "summaries", writer.summaries, 0)
}

// TestSummaries: they are made when the run has ended, on the store that the next
// run reads, and take none of its time.
func TestSummaries(t *testing.T) {
	t.Parallel()
	writer := &talker{delay: time.Minute}
	say := conversation(t, writer.script, true)
	want(t, "prompts", len(say().Prompts), 1)
	second := say()
	second.WantAnswer("Noted.")
	want(t, "second", []any{len(second.Prompts), forSummary(second.Prompts[1]), second.Elapsed < time.Second}, "[2 true true]")
	if before, after, ok := strings.Cut(second.Story(), "the run ends: succeeded"); !ok || strings.Contains(before, "Summarize") || !strings.Contains(after, "Summarize: messages 1 to 2") {
		t.Errorf("the story is\n%s", second.Story())
	}
	third := say()
	if text := third.Prompts[0].Messages[0].Text; !strings.Contains(text, `"from_seq":1,"to_seq":2`) || !strings.Contains(text, "This is the message number 1") {
		t.Errorf("the third run sees %s", text)
	}
	want(t, "summaries", writer.summaries, 2)
}

// TestSummariesOfAnotherModel has a model of another provider write them.
func TestSummariesOfAnotherModel(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"scripted-local", "unheard-of"} {
		writer := &talker{delay: 5 * time.Second}
		say := conversation(t, writer.script, true, func(c *agenttest.Config) {
			c.Definition.Summary.Model = name
		})
		say()
		result := say()
		want(t, name, []any{writer.summaries, len(result.Prompts), result.Prompts[1].Model != result.Prompts[0].Model}, "[1 2 true]")
	}
}

// TestSummaryThroughFaults: what interrupts a summary is borne as in production,
// and changes nothing about the run.
func TestSummaryThroughFaults(t *testing.T) {
	t.Parallel()
	begins, done := agenttest.BeforeActivity(agent.ActivitySummarize), agenttest.AfterActivity(agent.ActivitySummarize)
	for name, c := range map[string]struct {
		events      []agenttest.Event
		asked, lost int
	}{
		"worker dies before": {[]agenttest.Event{agenttest.When(begins, agenttest.Crash())}, 1, 1},
		"worker dies after":  {[]agenttest.Event{agenttest.When(done, agenttest.Crash())}, 1, 1},
		"database down":      {[]agenttest.Event{agenttest.When(begins, agenttest.DatabaseDown(2))}, 1, 0},
		"canceled too late":  {[]agenttest.Event{agenttest.When(begins, agenttest.Cancel())}, 1, 0},
		"waits":              {[]agenttest.Event{agenttest.When(begins, agenttest.Wait(3*time.Minute), agenttest.Do(func() {}))}, 1, 0},
		// There are five tries.
		"dies with each try":   {[]agenttest.Event{agenttest.Whenever(begins, agenttest.Crash())}, 0, 5},
		"dies twice, then not": {[]agenttest.Event{agenttest.When(begins, agenttest.Crash()), agenttest.When(begins, agenttest.Crash())}, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writer := &talker{delay: 50 * time.Second}
			say := conversation(t, writer.script, true)
			say()
			result := say(c.events...)
			result.WantAnswer("Noted.")
			if result.Elapsed > time.Second {
				t.Errorf("the run took %s", result.Elapsed)
			}
			want(t, "asked for summaries", writer.summaries, c.asked)
			want(t, "lost", strings.Count(result.Story(), "Summarize was lost with its worker"), c.lost)
		})
	}
}

// TestCanceledRunLeavesASummary: what was canceled is the run's.
func TestCanceledRunLeavesASummary(t *testing.T) {
	t.Parallel()
	writer := &talker{}
	say := conversation(t, writer.script, true)
	say()
	result := say(agenttest.When(agenttest.ModelCalled(), agenttest.Cancel()))
	result.WantEnd(agent.ReasonCanceled)
	want(t, "summaries", writer.summaries, 1)
}

// TestMomentsEndWithTheRun: a time that comes while a summary is made did not
// come about in the run.
func TestMomentsEndWithTheRun(t *testing.T) {
	t.Parallel()
	says(t, failing(t, func(t testing.TB) {
		say := conversation(t, (&talker{delay: time.Minute}).script, true)
		say()
		say(agenttest.When(agenttest.Elapsed(30*time.Second), agenttest.Cancel()))
	}), "Elapsed(30s) never came about")
}
