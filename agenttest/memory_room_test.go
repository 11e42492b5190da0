package agenttest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

var (
	ops      = agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "ops"}
	payments = agent.MemoryScope{Kind: agent.MemoryOfProject, ID: "payments"}
)

// reviewed are the policies of a tenant in which rita reviews memories.
var reviewed = fstest.MapFS{
	"team.cedar": {Data: append([]byte(nil), append(team["team.cedar"].Data, []byte(`
permit (principal == User::"acme/rita", action == Action::"review", resource) when { principal != context.requester };`)...)...)},
	"entities.json": team["entities.json"],
}

// office has ann and bob in a group and a project, and memories of all kinds of
// rooms about the same thing, each with a word of its own.
func office(t *testing.T, extractor scripted.Script) *agenttest.Suite {
	suite := suiteOf(t, newServices(), answered, withMemory(extractor), func(c *agenttest.Config) {
		c.Policies = reviewed
		c.Definition.Environments = append(c.Definition.Environments, "test")
	})
	suite.Join(ops, "ann", "bob")
	suite.Join(payments, "ann", "bob")
	for room, m := range map[string]agenttest.Memory{
		"personal-ann": {}, "personal-bob": {User: "bob"}, "personal-ann-test": {Environment: "test"},
		"group-ops": {Scope: ops, User: "bob"}, "project-payments": {Scope: payments, User: "bob"}, "group-ops-test": {Scope: ops, Environment: "test"},
	} {
		m.Key, m.Value = "fact.service", fmt.Sprintf(`{"service":"payment-api","property":"runbook","value":"%s"}`, "wiki/"+room)
		suite.Remember(m)
	}
	return suite
}

// told are the rooms whose memory the model was told.
func told(r *agenttest.Result) (rooms []string) {
	text := contextOf(r)
	for _, room := range []string{"group-ops-test", "group-ops", "personal-ann-test", "personal-ann", "personal-bob", "project-payments"} {
		if strings.Contains(text, "wiki/"+room) {
			rooms = append(rooms, room)
			text = strings.ReplaceAll(text, "wiki/"+room, "")
		}
	}
	return rooms
}

const aboutRunbook = "Where is the runbook of payment-api?"

// TestISO2: personal memory is never in a group's run, a group's never in a run of
// a participant alone, and a test's never in production.
func TestISO2(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*agent.RunRequest)
		want string
	}{
		"alone":             {func(*agent.RunRequest) {}, "[personal-ann]"},
		"bob alone":         {func(r *agent.RunRequest) { r.User = "bob" }, "[personal-bob]"},
		"alone, test":       {func(r *agent.RunRequest) { r.Environment = "test" }, "[personal-ann-test]"},
		"group":             {func(r *agent.RunRequest) { r.Group = "ops" }, "[group-ops]"},
		"group, bob":        {func(r *agent.RunRequest) { r.Group, r.User = "ops", "bob" }, "[group-ops]"},
		"group, test":       {func(r *agent.RunRequest) { r.Group, r.Environment = "ops", "test" }, "[group-ops-test]"},
		"project":           {func(r *agent.RunRequest) { r.Project = "payments" }, "[personal-ann project-payments]"},
		"group and project": {func(r *agent.RunRequest) { r.Group, r.Project = "ops", "payments" }, "[group-ops project-payments]"},
		"stranger":          {func(r *agent.RunRequest) { r.User = "cat" }, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite := office(t, nil)
			req := suite.Request(aboutRunbook)
			c.edit(&req)
			result := suite.RunRequest(req)
			result.WantEnd(agent.ReasonFinal)
			want(t, "told", told(result), c.want)
		})
	}
}

// TestISO2Participants: who takes part is asked at the beginning of a run and at
// each read.
func TestISO2Participants(t *testing.T) {
	t.Parallel()
	suite := office(t, nil)
	for name, edit := range map[string]func(*agent.RunRequest){
		"no participant of the group":   func(r *agent.RunRequest) { r.User, r.Group = "cat", "ops" },
		"no participant of the project": func(r *agent.RunRequest) { r.User, r.Project = "cat", "payments" },
		"no such group":                 func(r *agent.RunRequest) { r.Group = "nobody" },
		"group, but not the project":    func(r *agent.RunRequest) { r.Group, r.Project = "ops", "nothing" },
	} {
		req := suite.Request(aboutRunbook)
		edit(&req)
		result := suite.RunRequest(req)
		if result.Err == nil || !strings.Contains(result.Err.Error(), "no participant") || len(result.Prompts) != 0 {
			t.Errorf("%s: %v", name, result.Err)
		}
		// Nothing was stored: the conversation can be begun without the group.
		req.RunID, req.User, req.Group, req.Project = req.RunID+"-again", "ann", "", ""
		suite.RunRequest(req).WantEnd(agent.ReasonFinal)
	}

	in := func(events ...agenttest.Event) *agenttest.Result {
		req := suite.Request(aboutRunbook)
		req.Group = "ops"
		return suite.RunRequest(req, events...)
	}
	want(t, "before", told(in()), "[group-ops]")
	left := in(agenttest.When(agenttest.AfterActivity(agent.ActivityRecall), agenttest.Do(func() { suite.Leave(ops, "ann") })))
	left.WantEnd(agent.ReasonFinal)
	want(t, "left before the step", []any{told(left), left.Memory.Records}, "[[] 1]")
	if gone := in(); gone.Err == nil {
		t.Error("somebody who left begins a run in the group")
	}
	suite.Join(ops, "ann")
	want(t, "back", told(in()), "[group-ops]")
}

// TestISO2Conversation: group and project are the conversation's for good.
func TestISO2Conversation(t *testing.T) {
	t.Parallel()
	suite := office(t, nil)
	first := suite.Request("Hello")
	first.Group, first.Project = "ops", "payments"
	suite.RunRequest(first).WantEnd(agent.ReasonFinal)
	for name, edit := range map[string]func(*agent.RunRequest){
		"no group":         func(r *agent.RunRequest) { r.Project = "payments" },
		"no project":       func(r *agent.RunRequest) { r.Group = "ops" },
		"neither":          func(*agent.RunRequest) {},
		"project as group": func(r *agent.RunRequest) { r.Group, r.Project = "payments", "ops" },
	} {
		req := suite.Request("Hello")
		req.Conversation = first.Conversation
		edit(&req)
		if result := suite.RunRequest(req); result.Err == nil || !strings.Contains(result.Err.Error(), "another group or project") {
			t.Errorf("%s: %v", name, result.Err)
		}
	}
	again := suite.Request("Hello")
	again.Conversation, again.Group, again.Project = first.Conversation, "ops", "payments"
	suite.RunRequest(again).WantEnd(agent.ReasonFinal)

	alone := suite.Request("Hello")
	suite.RunRequest(alone).WantEnd(agent.ReasonFinal)
	moved := suite.Request("Hello")
	moved.Conversation, moved.Group = alone.Conversation, "ops"
	if result := suite.RunRequest(moved); result.Err == nil {
		t.Error("a conversation was moved into a group")
	}
}

// TestISO2Learning: what is learned in a group is the group's, after a review by
// somebody else, and reaches its participants there alone.
func TestISO2Learning(t *testing.T) {
	t.Parallel()
	suite := office(t, agenttest.Extracts(agenttest.Statement{
		Key: "fact.service", Kind: agent.MemoryFact, Quote: "The owner of ledger is team blue.",
		Value: map[string]string{"service": "ledger", "property": "owner", "value": "team blue"},
	}))
	req := suite.Request("The owner of ledger is team blue.")
	req.Group = "ops"
	result := suite.RunRequest(req, agenttest.When(agenttest.MemoryWaits(), agenttest.ConfirmMemoryAs("ann"), agenttest.ConfirmMemoryAs("rita")))
	result.WantLearned("fact.service: stored")
	for _, m := range suite.Memories() {
		if strings.Contains(m.Value, "ledger") && (m.Scope != ops || m.Validation != agent.MemoryReviewed || m.User != "ann") {
			t.Errorf("stored %+v", m)
		}
	}
	for name, c := range map[string]struct {
		user, group string
		want        bool
	}{"bob in the group": {"bob", "ops", true}, "bob alone": {"bob", "", false}, "ann alone": {"ann", "", false}, "ann in the group": {"ann", "ops", true}} {
		req := suite.Request("Who owns ledger?")
		req.User, req.Group = c.user, c.group
		if got := strings.Contains(contextOf(suite.RunRequest(req)), "team blue"); got != c.want {
			t.Errorf("%s: told %t", name, got)
		}
	}
}

// TestLTM6: what helps is given, best first, and no more than there is room for;
// what is not in force, and what the read policy does not admit, is not.
func TestLTM6(t *testing.T) {
	t.Parallel()
	suite := suiteOf(t, newServices(), answered, withMemory(nil), func(c *agenttest.Config) { c.Definition.Memory.MaxRecords = 3 })
	service := func(name, runbook string) agenttest.Memory {
		return agenttest.Memory{Key: "fact.service", Value: fmt.Sprintf(`{"service":%q,"property":"runbook","value":%q}`, name, runbook)}
	}
	for i := range 20 {
		suite.Remember(service(fmt.Sprintf("other-%d", i), "wiki/other"))
	}
	hidden := service("payment-api", "wiki/unvalidated")
	hidden.Validation, hidden.User = agent.MemoryUnvalidated, "ann"
	hidden.Value = `{"service":"payment-api","property":"dashboard","value":"wiki/unvalidated"}`
	suite.Remember(service("payment-api", "wiki/payment"), hidden,
		agenttest.Memory{Key: "profile.name", Value: `"Ann"`}, agenttest.Memory{Key: "preference.language", Value: `"en"`},
		agenttest.Memory{Key: "preference.reply_style", Value: `"brief"`})
	result := suite.Run("Where is the payment-api runbook?")
	if len(result.Recalled) != 3 || result.Memory.Records != 3 {
		t.Fatalf("recalled %+v, %+v", result.Recalled, result.Memory)
	}
	text := contextOf(result)
	if !strings.Contains(text, "wiki/payment") || strings.Contains(text, "wiki/unvalidated") {
		t.Errorf("the model was told\n%s", text)
	}
	// One place is for what matters whatever is asked.
	standing := 0
	for _, m := range result.Recalled {
		if m.Kind == agent.MemoryPreference {
			standing++
		}
		if m.Validation == agent.MemoryUnvalidated {
			t.Errorf("the run was given %+v", m)
		}
	}
	want(t, "standing", standing, 1)
}

// TestLTM6Tokens: memory takes the tokens that the definition gives it.
func TestLTM6Tokens(t *testing.T) {
	t.Parallel()
	suite := suiteOf(t, newServices(), answered, withMemory(nil), func(c *agenttest.Config) { c.Definition.Context.Memory = 150 })
	for i := range 5 {
		suite.Remember(agenttest.Memory{
			Key: "fact.note", Value: fmt.Sprintf(`{"topic":"runbook-%d","text":"The runbook is in the wiki, %s."}`, i, strings.Repeat("behind the door ", 10)),
		})
	}
	result := suite.Run("Where is the runbook?")
	if told := strings.Count(contextOf(result), "behind the door behind"); result.Memory.Records != 5 || told == 0 || told >= 5*5 {
		t.Errorf("%d records, told %d times", result.Memory.Records, told)
	}
}

// TestPOL4: the words of S3 §1 are for one request. However eagerly models propose
// to remember them, two weeks later another request is handled by its own facts,
// and a person is asked as ever.
func TestPOL4(t *testing.T) {
	t.Parallel()
	for language, sentence := range map[string]string{
		"chinese": "如果访问权限还没开通，直接创建紧急工单，不要再花时间确认。",
		"english": "If access has not been granted yet, create an urgent ticket without asking, do not spend time on confirmation.",
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			quotes := map[string]string{"chinese": "直接创建紧急工单，不要再花时间确认", "english": "create an urgent ticket without asking"}
			quote := quotes[language]
			eager := agenttest.Extracts(
				agenttest.Statement{Key: "preference.reply_style", Kind: agent.MemoryPreference, Value: quote, Quote: quote},
				agenttest.Statement{Key: "preference.topic", Kind: agent.MemoryPreference, Value: map[string]string{"topic": quote, "sentiment": "likes"}, Quote: quote},
				agenttest.Statement{Key: "fact.note", Kind: agent.MemoryFact, Value: map[string]string{"topic": "access", "text": quote}, Quote: quote},
				agenttest.Statement{Key: "task.current", Kind: agent.MemoryTask, Value: map[string]string{"name": quote, "state": "in_progress"}, Quote: quote},
				agenttest.Statement{Key: "urgent_tickets", Kind: agent.MemoryPreference, Value: true, Quote: quote},
			)
			script := func(ctx context.Context, req model.Request) (scripted.Turn, error) {
				if last := req.Messages[len(req.Messages)-1]; last.Role == model.RoleUser && strings.Contains(last.Text, quote) {
					return calls("remember", fmt.Sprintf(`{"key":"fact.note","value":{"topic":"access","text":%q},"quote":%q}`, quote, quote)), nil
				}
				if strings.Contains(req.Messages[len(req.Messages)-1].Text, "payment-api") {
					return restartOnce(ctx, req)
				}
				return scripted.Turn{Text: "Done."}, nil
			}
			suite := suiteOf(t, newServices(), script, withMemory(eager), func(c *agenttest.Config) { c.Policies = reviewed })
			first := suite.Run(sentence)
			first.WantEnd(agent.ReasonFinal)
			first.WantCalls("remember")
			if !strings.Contains(first.Calls[0].Shown, `"state":"rejected"`) {
				t.Errorf("the model was told %s", first.Calls[0].Shown)
			}
			if len(first.Learned) == 0 {
				t.Fatal("nothing was proposed: the test shows nothing")
			}
			for _, l := range first.Learned {
				if l.State != agent.MemoryRejected {
					t.Errorf("%s: %s by %+v", l.Key, l.State, l.Rules)
				}
			}
			want(t, "remembered", suite.Memories(), "[]")

			suite.Skip(twoWeeks)
			second := suite.Run("payment-api hangs: restart it.", agenttest.When(agenttest.PlanWaits(), agenttest.Wait(30*time.Minute), agenttest.ApproveAs("bob")))
			second.WantRecalled()
			second.WantCalls("restart")
			if len(second.Plans) != 1 || second.Plans[0].Approver != "bob" || second.Elapsed < 30*time.Minute {
				t.Errorf("plans %+v after %s", second.Plans, second.Elapsed)
			}
			for _, p := range second.Prompts {
				for _, m := range p.Messages {
					if strings.Contains(m.Text, "工单") || strings.Contains(m.Text, "ticket") {
						t.Errorf("the model was told %s", m.Text)
					}
				}
			}
		})
	}
}
