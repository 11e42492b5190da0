package activities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// locator settles as a fact the service that it is asked for.
type locator struct{}

func (locator) Spec() tool.Spec { return find{}.Spec() }

func (locator) Execute(_ context.Context, in tool.Invocation) (tool.Result, error) {
	var asked struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(in.Arguments, &asked); err != nil {
		return tool.Result{}, err
	}
	return tool.JSON(map[string]string{"service": asked.Name})
}

func setupLocator(t *testing.T) *memoryBundle {
	t.Helper()
	m := setupMemory(t, func(d *definition.Definition) { d.Memory.Learn = true; d.Tools = append(d.Tools, "find") })
	registry, err := tool.NewRegistry(look{m.bundle}, slow{m.bundle}, broken{}, locator{}, tool.NewFetchResult(activities.Results{Store: activities.PostgreSQL(m.db)}))
	if err != nil {
		t.Fatal(err)
	}
	m.runs = m.restart(func(c *activities.Config) { c.Tools = registry })
	return m
}

// locate has a run's model ask for a service.
func (m *memoryBundle) locate(g begun, step int, name string) {
	m.Helper()
	m.mu.Lock()
	m.calls = []scripted.Call{{Name: "find", Arguments: `{"name":"` + name + `"}`}}
	m.mu.Unlock()
	action := m.act(g.next(step, 0))
	m.observe(g.read(step, action.Calls[0]))
}

// answered ends a run with an answer and learns from it.
func (m *memoryBundle) answered(g begun, step int) (candidates []string) {
	m.Helper()
	action := m.act(g.next(step, 0))
	out, err := m.runs.EndRun(m.ctx, agent.EndRunInput{Run: g.ref(), Reason: agent.ReasonFinal, Step: step + 1, AnswerMessageID: action.AnswerMessageID})
	if err != nil || !out.Learn {
		m.Fatalf("ended %+v, %v", out, err)
	}
	return m.learn(agent.LearnInput{Run: g.ref(), Room: g.req.MemoryRoom(), DefinitionDigest: g.out.DefinitionDigest}).Candidates
}

func (m *memoryBundle) asking(message string) begun {
	m.Helper()
	req := request()
	req.Message = message
	return begun{req, m.begin(req)}
}

// TestLTM4FactsByWhenTheyWereObserved: the word of a tool counts from when the tool
// said it, not from when the user of its run asked, who may have waited since.
func TestLTM4FactsByWhenTheyWereObserved(t *testing.T) {
	t.Parallel()
	m := setupLocator(t)
	waiting := m.asking("Why is it slow?")
	meanwhile := m.asking("Why is it slow?")
	m.locate(meanwhile, 0, "old-service")
	for _, id := range m.answered(meanwhile, 1) {
		m.judge(id)
	}
	m.locate(waiting, 0, "new-service")
	for _, id := range m.answered(waiting, 1) {
		if v := m.judge(id); v.State != agent.MemoryStored {
			t.Errorf("the newer one: %+v", v)
		}
	}
	if got := m.values("task.service", false); got != `"new-service"` {
		t.Errorf("in force: %s", got)
	}
}

// TestLTM4OneRunInAnyOrder: of two facts and of two statements of one run the later
// one holds, whichever is judged first.
func TestLTM4OneRunInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, reverse := range []bool{false, true} {
		judge := func(m *memoryBundle, ids []string) {
			if len(ids) != 2 {
				t.Fatalf("learned %v", ids)
			}
			if reverse {
				slices.Reverse(ids)
			}
			for _, id := range ids {
				m.judge(id)
			}
		}
		m := setupLocator(t)
		g := m.asking("Why is it slow?")
		m.locate(g, 0, "first-service")
		m.locate(g, 1, "second-service")
		judge(m, m.answered(g, 2))
		if got := m.values("task.service", false); got != `"second-service"` {
			t.Errorf("reversed %t: in force %s", reverse, got)
		}
		m = setupMemory(t, nil)
		m.extract = answerWith(proposal("preference.language", `"de"`, "Please always answer in German"), proposal("preference.language", `"fr"`, "please always answer in French"))
		judge(m, m.learn(m.say("Please always answer in German. Sorry, I meant: please always answer in French.")).Candidates)
		if got := m.values("preference.language", false); got != `"fr"` {
			t.Errorf("reversed %t: in force %s", reverse, got)
		}
	}
}

func (m *memoryBundle) sayUnheard(message string) agent.LearnInput {
	m.Helper()
	m.extract = func(model.Request) (string, error) { return "", &model.Error{Kind: model.KindUnavailable} }
	late := m.say(message)
	if _, err := m.runs.Learn(m.ctx, late); err == nil {
		m.Fatal("the extractor is not down")
	}
	return late
}

// TestERASE2ForgottenStaysForgotten: a record that was forgotten is not learned again
// from what was said before that.
func TestERASE2ForgottenStaysForgotten(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	told := proposal("preference.food", likes, "I love Chinese food")
	_, verdicts := m.learned(liking, told)
	late := m.sayUnheard("You know that I love Chinese food. What is for dinner?")
	m.forget(agent.ForgetInput{ID: "forget-1", Room: adasRoom, Record: verdicts[0].Record, By: "ada"})
	m.later(time.Hour)
	m.extract = answerWith(told)
	if out := m.learn(late); len(out.Candidates) != 0 || out.Failure != "" {
		t.Errorf("learned %+v", out)
	}
	if got := m.values("preference.food", false); got != "" {
		t.Errorf("in force: %s", got)
	}
	// What is said after it is remembered.
	if _, again := m.learned(liking, told); len(again) != 1 || again[0].State != agent.MemoryStored {
		t.Errorf("said again: %+v", again)
	}
}

// TestLTM4TakenBackStaysTakenBack: what was taken back does not come back with what
// was said before and is learned after it.
func TestLTM4TakenBackStaysTakenBack(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	german := proposal("preference.language", `"de"`, "always answer in German")
	m.learned("Please always answer in German.", german)
	late := m.sayUnheard("Please always answer in German.")
	_, back := m.learned("Please no longer answer in German.",
		`{"kind":"profile_preference","key":"preference.language","retracts":true,"quote":"Please no longer answer in German"}`)
	if len(back) != 1 || back[0].State != agent.MemoryStored {
		t.Fatalf("taken back: %+v", back)
	}
	m.later(time.Hour)
	m.extract = answerWith(german)
	for _, id := range m.learn(late).Candidates {
		if v := m.judge(id); v.State != agent.MemoryRejected || v.Rules[len(v.Rules)-1].ID != "conflict.taken_back" {
			t.Errorf("late: %+v", v)
		}
	}
	if got := m.values("preference.language", false); got != "" {
		t.Errorf("in force: %s", got)
	}
	if _, again := m.learned("Please always answer in German.", german); len(again) != 1 || again[0].State != agent.MemoryStored {
		t.Errorf("said again: %+v", again)
	}
}

// TestLTM4StandingAfterTemporary: a standing wish is not merged into one for a time,
// and outlives it.
func TestLTM4StandingAfterTemporary(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	until := m.clock().Add(48 * time.Hour)
	temporary := strings.TrimSuffix(proposal("preference.language", `"en"`, "always answer in English until 2026-12-04"), "}") +
		`,"valid_until":"` + until.Format(time.RFC3339) + `"}`
	m.learned("Please always answer in English until 2026-12-04.", temporary)
	_, verdicts := m.learned("Please always answer in English.", proposal("preference.language", `"en"`, "always answer in English"))
	if len(verdicts) != 1 || verdicts[0].State != agent.MemoryStored {
		t.Fatalf("standing: %+v", verdicts)
	}
	m.later(49 * time.Hour)
	if got := m.given("Hello, which language do I want?"); got != `preference.language="en"` {
		t.Errorf("given %s", got)
	}
}

// TestLTM4SaidAgainIsKept: what is said again is kept as long as if it were new.
func TestLTM4SaidAgainIsKept(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	told := proposal("preference.food", likes, "I love Chinese food")
	m.learned(liking, told)
	m.exec("UPDATE memory_record SET written_at = written_at - interval '364 days 23 hours', expires_at = expires_at - interval '364 days 23 hours'")
	if _, again := m.learned(liking, told); len(again) != 1 || again[0].State != agent.MemoryMerged {
		t.Fatalf("said again: %+v", again)
	}
	m.later(2 * time.Hour)
	if report := m.reconcile(); report.Expired != 0 || m.values("preference.food", false) != likes {
		t.Errorf("expired %d, in force %q", report.Expired, m.values("preference.food", false))
	}
	// What somebody was told the end of keeps that end.
	id := m.wished()
	m.settleWith(m.runs, id, m.approve("ada", id))
	before := m.number("SELECT (extract(epoch FROM expires_at))::bigint FROM memory_record WHERE key = 'preference.default_environment'")
	m.later(24 * time.Hour)
	if _, again := m.learned(wish, proposal("preference.default_environment", `"production"`, wishQuote)); len(again) != 1 || again[0].State != agent.MemoryMerged {
		t.Fatalf("wished again: %+v", again)
	}
	if after := m.number("SELECT (extract(epoch FROM expires_at))::bigint FROM memory_record WHERE key = 'preference.default_environment'"); after != before {
		t.Errorf("its end moved by %d s", after-before)
	}
}

// given is what a run is given for a message, in order.
func (m *memoryBundle) given(message string) string {
	m.Helper()
	g := m.asking(message)
	if _, err := m.runs.Recall(m.ctx, agent.RecallInput{Run: g.ref(), DefinitionDigest: g.out.DefinitionDigest}); err != nil {
		m.Fatal(err)
	}
	records, err := m.db.GivenMemories(m.ctx, g.req.MemoryRoom(), g.req.RunID, m.clock())
	if err != nil {
		m.Fatal(err)
	}
	var list []string
	for _, r := range records {
		list = append(list, r.Key+"="+string(r.Value))
	}
	return strings.Join(list, " ")
}

// TestLTM6ManyOfOneKey: many records of one key crowd out neither the only one of
// another key nor what has to do with the question.
func TestLTM6ManyOfOneKey(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.write(corrected("preference.language", `"de"`))
	m.write(corrected("fact.note", `{"topic":"payment-api","text":"payment-api restarts every night at four"}`))
	for i := range 40 {
		m.later(time.Second)
		m.write(corrected("preference.food", fmt.Sprintf(`{"item":"dish%d","sentiment":"likes"}`, i)))
	}
	if got := m.given("Please draft the mail to the customer."); !strings.Contains(got, "preference.language") {
		t.Errorf("given %s", got)
	}
	if got := m.given("When does payment-api restart at night?"); !strings.Contains(got, "payment-api") || !strings.Contains(got, "preference.language") {
		t.Errorf("given %s", got)
	}
}
