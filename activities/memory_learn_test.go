package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/openai"
	"github.com/fairlead/fairlead/model/openaitest"
	"github.com/fairlead/fairlead/tool"
)

const (
	liking = "I love Chinese food. What is for lunch?"
	likes  = `{"item":"Chinese food","sentiment":"likes"}`
)

func (m *memoryBundle) asks() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.asked)
}

// lesson is the status, failure and tokens of the only lesson.
func (m *memoryBundle) lesson() string {
	m.Helper()
	var status, failure string
	var tokens int64
	if err := m.owner.QueryRow(m.ctx, "SELECT status, failure, billed_tokens FROM memory_lesson").Scan(&status, &failure, &tokens); err != nil {
		m.Fatal(err)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", status, failure)) + map[bool]string{true: ", billed", false: ""}[tokens > 0]
}

// TestLTM5Learns: what the user stated is put on record once, however often it is
// learned, and paid for once.
func TestLTM5Learns(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.extract = answerWith(proposal("preference.food", likes, "I love Chinese food"))
	in := m.say(liking)
	billed := m.number("SELECT tokens FROM daily_usage WHERE user_id = 'ada'")
	first, second := m.learn(in), m.learn(in)
	if len(first.Candidates) != 1 || first.Rejected != 0 || first.Failure != "" || first.Later || fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("learned %+v, then %+v", first, second)
	}
	if m.asks() != 1 || m.lesson() != "done, billed" {
		t.Errorf("asked %d times, the lesson is %s", m.asks(), m.lesson())
	}
	if n := m.number("SELECT tokens FROM daily_usage WHERE user_id = 'ada'") - billed; n != m.number("SELECT billed_tokens FROM memory_lesson") || n <= 0 {
		t.Errorf("the day was charged %d tokens", n)
	}
	c, err := m.db.MemoryCandidate(m.ctx, in.Room, first.Candidates[0])
	if err != nil || c.State != agent.MemoryProposed || c.RunID != in.Run.RunID || c.Writer != "agent:helper@1" || c.SourceType != agent.SourceUserStatement ||
		c.Content.Quote != "I love Chinese food" || c.Content.MessageID != c.SourceID || c.Content.MessageID == "" {
		t.Errorf("candidate %+v, %v", c, err)
	}
	if v := m.judge(first.Candidates[0]); v.State != agent.MemoryStored {
		t.Errorf("verdict %+v", v)
	}
	if again := m.learn(in); len(again.Candidates) != 0 {
		t.Errorf("a decided one is to be judged again: %+v", again)
	}
	if strings.Contains(m.log.String(), "Chinese food") {
		t.Error("content reached the log")
	}
}

// TestLTM5AsksTheConfiguredModel: the request names the model of the definition,
// as its provider calls it, and holds the user's own words and nothing else of the
// conversation.
func TestLTM5AsksTheConfiguredModel(t *testing.T) {
	t.Parallel()
	server := openaitest.NewFunc(t, func(req openaitest.Request) openaitest.Reply {
		text := "Noted. " + canary
		if strings.Contains(req.Messages[0].Content, "worth remembering") {
			text = `{"candidates":[` + proposal("preference.food", likes, "I love Chinese food") + `]}`
		}
		return openaitest.Reply{Text: text, Usage: &openaitest.Usage{Prompt: 100, Completion: 10}}
	})
	adapter, err := openai.New(openai.Options{APIKey: "key", BaseURL: server.URL(), HTTPClient: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	m := setupMemory(t, func(d *definition.Definition) { d.Memory.Model = "extractor" })
	entries := []model.Entry{priced, {
		Name: "extractor", Provider: "openai", Model: "gpt-extract-7b", ContextWindow: 32_000, MaxOutputTokens: 1_000, Timeout: 5 * time.Second,
	}}
	catalogue := model.Catalogue{}
	for _, e := range entries {
		if catalogue, err = catalogue.With(e); err != nil {
			t.Fatal(err)
		}
	}
	agents := m.cfg.Models
	m.runs = m.restart(func(c *activities.Config) {
		_, answering, err := agents.Resolve("priced")
		if err != nil {
			t.Fatal(err)
		}
		c.Models = model.NewResolver(catalogue, map[string]model.Model{"openai": adapter, "scripted": answering})
	})
	in := m.say(liking)
	if out := m.learn(in); len(out.Candidates) != 1 {
		t.Fatalf("learned %+v", out)
	}
	requests := server.Requests()
	if len(requests) != 1 || requests[0].Model != "gpt-extract-7b" || len(requests[0].Messages) != 2 {
		t.Fatalf("requests %+v", requests)
	}
	var sent struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal([]byte(requests[0].LastUser()), &sent); err != nil || sent.Message != liking {
		t.Errorf("sent %q, %v", requests[0].LastUser(), err)
	}
	if strings.Contains(string(requests[0].Body), canary) {
		t.Error("more than the user's own words was sent")
	}
	if n := m.number("SELECT billed_tokens FROM memory_lesson WHERE billed_cost_micros IS NULL"); n != 110 {
		t.Errorf("billed %d tokens", n)
	}
}

// TestLTM5Chatter costs nothing, and is not learned from.
func TestLTM5Chatter(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	for _, message := range []string{"ok", "嗯", "好的", "Thanks!", "Why is it slow?"} {
		if out := m.learn(m.say(message)); len(out.Candidates) != 0 || out.Failure != "" {
			t.Errorf("%s: %+v", message, out)
		}
	}
	if m.asks() != 0 {
		t.Errorf("the model was asked %d times", m.asks())
	}
	if n := m.number("SELECT count(*) FROM memory_lesson WHERE status = 'done' AND billed_tokens = 0 AND billed_cost_micros = 0"); n != 5 {
		t.Errorf("%d lessons are done and cost nothing", n)
	}
}

// TestLTM5OwnWordsAlone: what the model makes up, what the user only passed on,
// what the assistant said, and a memory that was recited are not learned.
func TestLTM5OwnWordsAlone(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	pasted := "I like tea. Look at this mail:\n> I love sushi\n> and I hate tea\nWhat does it mean?"
	for name, test := range map[string]struct {
		message, proposal string
		// rejected says that the policy refused it, and not the check of the quote.
		rejected int
	}{
		"made up":       {liking, proposal("profile.name", `"Bob"`, "My name is Bob"), 0},
		"not in quote":  {liking, proposal("preference.food", `{"item":"sushi","sentiment":"likes"}`, "I love Chinese food"), 1},
		"passed on":     {pasted, proposal("preference.food", `{"item":"sushi","sentiment":"likes"}`, "I love sushi"), 0},
		"the assistant": {liking, proposal("fact.note", `{"topic":"canary","text":"Noted"}`, "Noted. "+canary), 0},
		"once":          {"I want production for this one request.", proposal("preference.default_environment", `"production"`, "I want production for this one request"), 1},
		"permission": {
			"I want you to create an urgent ticket without asking from now on.",
			proposal("fact.note", `{"topic":"urgent ticket","text":"create an urgent ticket without asking"}`, "create an urgent ticket without asking"), 1,
		},
		"a password": {
			"My favorite food is hunter2hunter, and my password is hunter2hunter.",
			proposal("preference.food", `{"item":"hunter2hunter","sentiment":"likes"}`, "my password is hunter2hunter"), 1,
		},
	} {
		m.extract = answerWith(test.proposal)
		if out := m.learn(m.say(test.message)); len(out.Candidates) != 0 || out.Rejected != test.rejected || out.Failure != "" {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if n := m.number("SELECT count(*) FROM memory_candidate WHERE state <> 'rejected' OR content IS NOT NULL"); n != 0 {
		t.Errorf("%d candidates are left", n)
	}
}

// TestLTM5CrashInTheMiddle: a worker that dies after half of the proposals leads
// to no doubles and no losses, though the model says it otherwise the second time.
func TestLTM5CrashInTheMiddle(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	const message = "I love Chinese food, I love sushi and I hate tea."
	chinese := proposal("preference.food", likes, "I love Chinese food")
	sushi := proposal("preference.food", `{"item":"sushi","sentiment":"likes"}`, "I love sushi")
	tea := proposal("preference.food", `{"item":"tea","sentiment":"dislikes"}`, "I hate tea")
	m.extract = answerWith(chinese, sushi)
	in := m.say(message)
	n := 0
	m.memory.set(func(method string) error {
		if n++; method == "ProposeMemory" && n > 1 {
			return db.ErrUnavailable
		}
		return nil
	})
	if _, err := m.runs.Learn(m.ctx, in); err == nil || !retried(err) {
		t.Fatalf("error %v", err)
	}
	if got := m.lesson(); got != "due" {
		t.Errorf("the lesson is %s", got)
	}
	m.memory.set(nil)
	m.extract = answerWith(tea, sushi, chinese)
	runs := m.restart(nil)
	out, err := runs.Learn(m.ctx, in)
	if err != nil || len(out.Candidates) != 3 {
		t.Fatalf("learned %+v, %v", out, err)
	}
	for _, id := range out.Candidates {
		if v := m.judge(id); v.State != agent.MemoryStored {
			t.Errorf("verdict %+v", v)
		}
	}
	if got := m.values("preference.food", false); strings.Count(got, "item") != 3 {
		t.Errorf("in force: %s", got)
	}
}

// TestLTM5ExtractorDownThenUp: an outage is an error that is retried, the lesson
// stays due, and the same is learned later. The day and the lesson say the same
// about what it cost.
func TestLTM5ExtractorDownThenUp(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.extract = func(model.Request) (string, error) {
		return "", &model.Error{Kind: model.KindUnavailable, Err: errors.New(canary)}
	}
	in := m.say(liking)
	before := m.charged()
	if _, err := m.runs.Learn(m.ctx, in); err == nil || !retried(err) || strings.Contains(err.Error(), canary) {
		t.Fatalf("error %v", err)
	}
	half := m.charged() - before
	if n := m.number("SELECT billed_tokens FROM memory_lesson WHERE status = 'due' AND tries = 1"); half <= 0 || n != half {
		t.Errorf("the day was charged %d tokens, the lesson says %d", half, n)
	}
	m.extract = answerWith(proposal("preference.food", likes, "I love Chinese food"))
	if out := m.learn(in); len(out.Candidates) != 1 || m.lesson() != "done, billed" {
		t.Errorf("learned %+v, the lesson is %s", out, m.lesson())
	}
	all := m.charged() - before
	if n := m.number("SELECT billed_tokens FROM memory_lesson"); n != all || all <= half {
		t.Errorf("the day was charged %d tokens, the lesson says %d", all, n)
	}
	m.learn(in)
	if n := m.charged() - before; n != all || m.asks() != 2 {
		t.Errorf("learned again for %d tokens, asked %d times", n-all, m.asks())
	}
}

// charged are the tokens that the user's days were charged.
func (m *memoryBundle) charged() int64 {
	m.Helper()
	return m.number("SELECT coalesce(sum(tokens), 0)::bigint FROM daily_usage WHERE user_id = 'ada'")
}

// TestLTM5ExtractorTimesOut: each try without an answer costs what half of a
// question could have cost, as nobody knows what it did, and the eighth is the last.
func TestLTM5ExtractorTimesOut(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.extract = func(model.Request) (string, error) { return "", &model.Error{Kind: model.KindTimeout} }
	in := m.say(liking)
	before := m.charged()
	var first int64
	for try := int64(1); try <= 7; try++ {
		if out, err := m.runs.Learn(m.ctx, in); err == nil || !retried(err) {
			t.Fatalf("try %d: %+v, %v", try, out, err)
		}
		if try == 1 {
			first = m.charged() - before
		}
		if n := m.charged() - before; n != try*first || first <= 0 {
			t.Fatalf("try %d: charged %d tokens", try, n)
		}
	}
	for range 3 {
		if out := m.learn(in); len(out.Candidates) != 0 {
			t.Errorf("learned %+v", out)
		}
	}
	if got := m.lesson(); got != "failed given_up, billed" || m.asks() != 8 {
		t.Errorf("the lesson is %s, asked %d times", got, m.asks())
	}
	all := m.charged() - before
	if n := m.number("SELECT billed_tokens FROM memory_lesson WHERE tries = 8"); all != 8*first || n != all {
		t.Errorf("charged %d tokens, the lesson says %d", all, n)
	}
}

// TestLTM5ExtractorFails: what will not get better closes the lesson with a code.
func TestLTM5ExtractorFails(t *testing.T) {
	t.Parallel()
	for want, answer := range map[string]func(model.Request) (string, error){
		"malformed_output": func(model.Request) (string, error) { return "I found nothing, sorry " + canary, nil },
		"model_refused":    func(model.Request) (string, error) { return "", &model.Error{Kind: model.KindContentPolicy} },
		"model_panic":      func(model.Request) (string, error) { panic(canary) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			m := setupMemory(t, nil)
			m.extract = answer
			if out := m.learn(m.say(liking)); out.Failure != want || len(out.Candidates) != 0 || out.Later {
				t.Errorf("learned %+v", out)
			}
			if got := m.lesson(); !strings.HasPrefix(got, "failed "+want) {
				t.Errorf("the lesson is %s", got)
			}
			if tries := map[string]int{"malformed_output": 2}[want]; tries > 0 && m.asks() != tries {
				t.Errorf("asked %d times", m.asks())
			}
			if strings.Contains(m.log.String(), canary) {
				t.Error("content reached the log")
			}
		})
	}
}

// TestLTM5SecondTry: a model that answers in another form is told so once.
func TestLTM5SecondTry(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.extract = func(req model.Request) (string, error) {
		if len(req.Messages) == 1 {
			return "Here you are: nothing.", nil
		}
		return `{"candidates":[` + proposal("preference.food", likes, "I love Chinese food") + `]}`, nil
	}
	if out := m.learn(m.say(liking)); len(out.Candidates) != 1 || m.asks() != 2 {
		t.Errorf("learned %+v, asked %d times", out, m.asks())
	}
}

// TestLTM5NoBudget: without room for the question today the lesson stays due.
func TestLTM5NoBudget(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.extract = answerWith(proposal("preference.food", likes, "I love Chinese food"))
	in := m.say(liking)
	poor := m.restart(func(c *activities.Config) { c.Limits = activities.Limits{UserDailyTokens: 1} })
	out, err := poor.Learn(m.ctx, in)
	if err != nil || out.Failure != db.LimitUserTokens || !out.Later || m.asks() != 0 || m.lesson() != "due" {
		t.Errorf("learned %+v, %v", out, err)
	}
	if out := m.learn(in); len(out.Candidates) != 1 {
		t.Errorf("learned later: %+v", out)
	}
}

// TestLTM5ToolFacts: a fact that a tool declares and a successful call settled is
// remembered as the tool's, without asking a model.
func TestLTM5ToolFacts(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, func(d *definition.Definition) { d.Memory.Learn = true; d.Tools = append(d.Tools, "find") })
	registry, err := tool.NewRegistry(look{m.bundle}, slow{m.bundle}, broken{}, find{}, tool.NewFetchResult(activities.Results{Store: activities.PostgreSQL(m.db)}))
	if err != nil {
		t.Fatal(err)
	}
	m.runs = m.restart(func(c *activities.Config) { c.Tools = registry })
	in := m.callTool("find", `{"name":"payment-api"}`)
	out := m.learn(in)
	if len(out.Candidates) != 1 || m.asks() != 0 {
		t.Fatalf("learned %+v, asked %d times", out, m.asks())
	}
	if v := m.judge(out.Candidates[0]); v.State != agent.MemoryStored {
		t.Fatalf("verdict %+v", v)
	}
	records, err := m.db.Memories(m.ctx, "acme", "ada", db.MemoryFilter{})
	if err != nil || len(records) != 1 {
		t.Fatalf("records %+v, %v", records, err)
	}
	r := records[0]
	if string(r.Value) != `"payment-api"` || r.Key != "task.service" || r.SourceType != agent.SourceTrustedTool || r.Writer != "tool/find@2" ||
		r.SourceID != in.Run.RunID+"/0.0" || r.Validation != agent.MemoryTrusted {
		t.Errorf("record %+v", r)
	}
}

// find is a read that declares a fact.
type find struct{}

func (find) Spec() tool.Spec {
	return tool.Spec{
		Name: "find", Version: "2", Description: "Finds.", Risk: tool.Read, Source: "catalogue", Trust: tool.Authoritative,
		Facts:      []tool.Fact{{Key: "service", Pointer: "/service"}},
		Parameters: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`),
	}
}

func (find) Execute(context.Context, tool.Invocation) (tool.Result, error) {
	return tool.JSON(map[string]string{"service": "payment-api"})
}

// TestLTM5ProposedByTheModel: what the tool remember put on record is judged along
// with what is learned, also where nothing else is.
func TestLTM5ProposedInTheRun(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	in := m.say(liking)
	m.remember(in.Run)
	out := m.learn(in)
	if len(out.Candidates) != 1 || !strings.HasPrefix(out.Candidates[0], "remember-") {
		t.Fatalf("learned %+v", out)
	}
	c, err := m.db.MemoryCandidate(m.ctx, in.Room, out.Candidates[0])
	if err != nil || c.Writer != "model:helper@1" || c.RunID != in.Run.RunID {
		t.Errorf("candidate %+v, %v", c, err)
	}
	if v := m.judge(c.ID); v.State != agent.MemoryWaitingReview {
		t.Errorf("verdict %+v", v)
	}
}

// remember has the tool remember propose that the user likes Chinese food.
func (m *memoryBundle) remember(ref agent.RunRef) {
	m.Helper()
	remember := activities.NewRemember(activities.Remembering{Store: m.cfg.Store, Memory: m.memory, MemoryPolicy: m.cfg.MemoryPolicy, Now: m.clock})
	result, err := remember.Execute(m.ctx, tool.Invocation{
		Actor: tool.Actor{Scope: ref.Scope}, RunID: ref.RunID, CallID: "0.0",
		Arguments: json.RawMessage(`{"key":"preference.food","value":` + likes + `,"quote":"I love Chinese food"}`),
	})
	if err != nil {
		m.Fatalf("remember: %+v, %v", result, err)
	}
}

// TestLTM5RunWithoutAnswer: what was proposed in a run is decided about when the
// run is over, and not kept unless the run was answered.
func TestLTM5RunWithoutAnswer(t *testing.T) {
	t.Parallel()
	for _, reason := range []agent.Reason{agent.ReasonCanceled, agent.ReasonSuperseded, agent.ReasonInternal} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			m := setupMemory(t, nil)
			req := request()
			req.Message = liking
			g := begun{req, m.begin(req)}
			m.remember(g.ref())
			list, err := m.db.RunCandidates(m.ctx, req.MemoryRoom(), req.RunID)
			if err != nil || len(list) != 1 || list[0].State != agent.MemoryProposed {
				t.Fatalf("candidates %+v, %v", list, err)
			}
			id := list[0].ID
			if v := m.judge(id); v.State != agent.MemoryProposed {
				t.Errorf("while it is open: %+v", v)
			}
			out, err := m.runs.EndRun(m.ctx, agent.EndRunInput{Run: g.ref(), Reason: reason, Step: 1})
			if err != nil || out.Learn {
				t.Fatalf("end %+v, %v", out, err)
			}
			v := m.judge(id)
			if v.State != agent.MemoryRejected || len(v.Rules) != 1 || v.Rules[0].ID != "source.run" {
				t.Errorf("verdict %+v", v)
			}
			if n := m.number("SELECT (SELECT count(*) FROM memory_record) + (SELECT count(*) FROM memory_candidate WHERE content IS NOT NULL)"); n != 0 {
				t.Errorf("%d pieces are kept", n)
			}
			if got := m.audit(id); got != "fairlead reject" {
				t.Errorf("audit: %s", got)
			}
		})
	}
}
