package activities_test

import (
	"context"
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
)

// recalling begins a run about a question and recalls for it.
func (m *memoryBundle) recalling(message string) (begun, agent.RecallOutput) {
	m.Helper()
	req := request()
	req.Message = message
	g := begun{req, m.begin(req)}
	out, err := m.recall(g)
	if err != nil {
		m.Fatal(err)
	}
	return g, out
}

func (m *memoryBundle) recall(g begun) (agent.RecallOutput, error) {
	return m.runs.Recall(m.ctx, agent.RecallInput{Run: g.ref(), DefinitionDigest: g.out.DefinitionDigest})
}

// acting asks for a step as the workflow does after Recall, and returns what the
// model was told beside the question.
func (m *memoryBundle) acting(g begun, step int) string {
	m.Helper()
	room := g.req.MemoryRoom()
	in := g.next(step, 0)
	in.Recalled, in.Room = true, &room
	if action, err := m.runs.NextAction(m.ctx, in); err != nil || action.Kind != agent.ActionFinal {
		m.Fatalf("%+v, %v", action, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.told) == 0 {
		m.Fatal("the model was not asked")
	}
	var text strings.Builder
	for _, message := range m.told[len(m.told)-1].Messages {
		text.WriteString(message.Text)
	}
	return text.String()
}

func (f *faulty) Recall(ctx context.Context, room agent.MemoryRoom, q db.RecallQuery) ([]db.RecallHit, error) {
	if err := f.failing("Recall"); err != nil {
		return nil, err
	}
	return f.Memory.Recall(ctx, room, q)
}

func (f *faulty) GivenMemories(ctx context.Context, room agent.MemoryRoom, runID string, now time.Time) ([]db.MemoryRecord, error) {
	if err := f.failing("GivenMemories"); err != nil {
		return nil, err
	}
	return f.Memory.GivenMemories(ctx, room, runID, now)
}

const aboutRunbook = "Where is the runbook of payment-api?"

func runbook(service, place string) string {
	return fmt.Sprintf(`{"service":%q,"property":"runbook","value":%q}`, service, place)
}

// TestLTM6Recall: what helps is found, recorded as influence, given to the model
// as data, and looked at again before each step.
func TestLTM6Recall(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	payment := m.write(corrected("fact.service", runbook("payment-api", "wiki/payment")))
	m.write(corrected("profile.name", `"Ada"`))
	if payment.State != agent.MemoryStored {
		t.Fatalf("%+v", payment)
	}
	g, out := m.recalling(aboutRunbook)
	if !g.out.Recall || out != (agent.RecallOutput{State: agent.RecallFound, Records: 2}) {
		t.Fatalf("begun %+v, recalled %+v", g.out, out)
	}
	again, err := m.recall(g)
	if err != nil || again != out {
		t.Errorf("again %+v, %v", again, err)
	}
	if n := m.number(`SELECT count(*) FROM memory_influence WHERE run_id = $1`, g.req.RunID); n != 2 {
		t.Errorf("%d influences", n)
	}
	told := m.acting(g, 0)
	for _, part := range []string{`"memory":{"trust":"untrusted","stale":"possible"`, `"text":"fact.service: {\"property\":\"runbook\",\"service\":\"payment-api\",\"value\":\"wiki/payment\"}"`, "profile.name: Ada", "set by user ada on ", ", personal memory, user confirmed"} {
		if !strings.Contains(told, part) {
			t.Errorf("the model was not told %q:\n%s", part, told)
		}
	}

	// A deletion is obeyed at once, in a run that was given the memory before.
	h, out := m.recalling(aboutRunbook)
	if out.Records != 2 {
		t.Fatalf("%+v", out)
	}
	step, err := m.memory.ForgetMemory(m.ctx, agent.ForgetInput{ID: "f1", Room: adasRoom, Record: payment.Record, By: "user:ada"}, 100)
	if err != nil || step.Receipt.Records != 1 {
		t.Fatal(step, err)
	}
	if told := m.acting(h, 0); strings.Contains(told, "wiki/payment") || !strings.Contains(told, "profile.name: Ada") {
		t.Errorf("the model was told\n%s", told)
	}
}

// TestLTM6ReadPolicy: what the read policy does not admit any more is not given,
// and not shown to a run that has it.
func TestLTM6ReadPolicy(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.write(corrected("fact.service", runbook("payment-api", "wiki/payment")))
	g, out := m.recalling(aboutRunbook)
	if out.Records != 1 {
		t.Fatalf("%+v", out)
	}
	m.runs = m.restart(func(c *activities.Config) {
		c.MemoryPolicy = policy(t, "- kinds: [validated_fact, ongoing_task]", "- kinds: [ongoing_task]")
	})
	if told := m.acting(g, 0); strings.Contains(told, "wiki/payment") {
		t.Errorf("the model was told\n%s", told)
	}
	if _, out := m.recalling(aboutRunbook); out.State != agent.RecallNothing {
		t.Errorf("recalled %+v", out)
	}
}

// TestLTM7Embedder: whatever an embedder does, recall goes on by keyword, soon, and
// nothing of the question is in a log.
func TestLTM7Embedder(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.write(corrected("fact.service", runbook("payment-api", "wiki/payment")))
	hang := make(chan struct{})
	defer close(hang)
	for name, fail := range map[string]func([]string) ([][]float32, error){
		"error": func(texts []string) ([][]float32, error) { return nil, errors.New(texts[0]) },
		"panic": func(texts []string) ([][]float32, error) { panic(texts[0]) },
		"hangs": func([]string) ([][]float32, error) { <-hang; return nil, errors.New("late") },
		"none":  func([]string) ([][]float32, error) { return [][]float32{}, nil },
		"wrong": func([]string) ([][]float32, error) { return [][]float32{{1, 0}}, nil },
		"empty": func([]string) ([][]float32, error) { return [][]float32{make([]float32, 64)}, nil },
	} {
		m.embed.set(fail)
		began := time.Now()
		_, out := m.recalling(aboutRunbook + " " + canary)
		if out != (agent.RecallOutput{State: agent.RecallFound, Records: 1, KeywordOnly: true}) || time.Since(began) > 4*time.Second {
			t.Errorf("%s: %+v after %s", name, out, time.Since(began))
		}
	}
	m.embed.set(nil)
	m.runs = m.restart(func(c *activities.Config) { c.Embedders = []model.Embedder{newEmbedder(t, "another", 32)} })
	if _, out := m.recalling(aboutRunbook); !out.KeywordOnly || out.Records != 1 {
		t.Errorf("without the embedder that serves: %+v", out)
	}
	m.runs = m.restart(func(c *activities.Config) { c.Embedders = append(c.Embedders, m.embed) })
	if _, out := m.recalling(aboutRunbook); out.KeywordOnly || out.Records != 1 {
		t.Errorf("with both: %+v", out)
	}
	if strings.Contains(m.log.String(), canary) {
		t.Error("the question is in the log")
	}
}

// TestLTM7Store: a store that fails is an error, which the workflow takes for
// memory_unavailable; a step goes on without memories.
func TestLTM7Store(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.write(corrected("profile.name", `"Ada"`))
	g, out := m.recalling("Hello")
	if out.Records != 1 {
		t.Fatalf("%+v", out)
	}
	m.memory.set(func(string) error { return &db.Error{Kind: db.ErrUnavailable} })
	if out, err := m.recall(g); err == nil || strings.Contains(err.Error(), canary) {
		t.Errorf("recalled %+v, %v", out, err)
	}
	if told := m.acting(g, 0); strings.Contains(told, "profile.name") {
		t.Errorf("the model was told\n%s", told)
	}
	// Nobody was told that there is nothing: there is nothing for the erased alone.
	m.memory.set(func(string) error { return db.ErrErased })
	if out, err := m.recall(begun{g.req, g.out}); err != nil || out.State != agent.RecallNothing {
		t.Errorf("recalled %+v, %v", out, err)
	}
}

// TestLTM5Results: the first end holds, with what it says of memory, and the run
// is learned from once, if it was answered.
func TestLTM5Results(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	found := &agent.RecallOutput{State: agent.RecallFound, Records: 2, KeywordOnly: true}
	end := func(g begun, reason agent.Reason, recalled *agent.RecallOutput) agent.EndRunOutput {
		in := agent.EndRunInput{Run: g.ref(), Reason: reason, Step: 1, Recall: recalled}
		if reason == agent.ReasonFinal {
			in.AnswerMessageID = m.act(g.next(0, 0)).AnswerMessageID
		}
		out, err := m.runs.EndRun(m.ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	lessons := func(g begun) int64 {
		return m.number(`SELECT count(*) FROM memory_lesson WHERE run_id = $1 AND status = 'due'`, g.req.RunID)
	}
	want := agent.MemoryUse{Recall: agent.RecallFound, Records: 2, KeywordOnly: true, Learning: agent.LearningStarted}
	g := m.start()
	for _, recalled := range []*agent.RecallOutput{found, nil, {State: agent.RecallUnavailable}} {
		out := end(g, agent.ReasonFinal, recalled)
		if !out.Learn || out.Memory == nil || *out.Memory != want || lessons(g) != 1 {
			t.Fatalf("%+v, memory %+v, %d lessons", out, out.Memory, lessons(g))
		}
	}
	canceled := m.start()
	out := end(canceled, agent.ReasonCanceled, &agent.RecallOutput{State: agent.RecallUnavailable})
	if out.Learn || *out.Memory != (agent.MemoryUse{Recall: agent.RecallUnavailable, Learning: agent.LearningOff}) || lessons(canceled) != 0 {
		t.Errorf("canceled: %+v, memory %+v, %d lessons", out, out.Memory, lessons(canceled))
	}
	// The end is recorded by a worker that never saw the definition.
	old := m.start()
	m.runs = m.restart(func(c *activities.Config) {
		def := base()
		def.Version = "2"
		c.Definitions = definitions(t, def)
	})
	out, err := m.runs.EndRun(m.ctx, agent.EndRunInput{Run: old.ref(), Reason: agent.ReasonCanceled, Recall: found})
	if err != nil || out.Memory == nil || out.Memory.Recall != agent.RecallFound {
		t.Errorf("on another worker: %+v, %+v, %v", out, out.Memory, err)
	}
	plain := m.start()
	if out := end(plain, agent.ReasonFinal, nil); out.Memory != nil || out.Learn || lessons(plain) != 0 {
		t.Errorf("without memory: %+v", out)
	}
}

// TestISO2Begin: group and project are checked before anything is stored.
func TestISO2Begin(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	desk := agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "desk"}
	if err := m.db.AddParticipant(m.ctx, "acme", desk, "ada", "owner"); err != nil {
		t.Fatal(err)
	}
	try := func(edit func(*agent.RunRequest)) (agent.RunRequest, error) {
		req := request()
		edit(&req)
		_, err := m.runs.BeginRun(m.ctx, agent.BeginRunInput{Request: req, StartedAt: time.Now()})
		return req, err
	}
	req, err := try(func(r *agent.RunRequest) { r.User, r.Group = "bob", "desk" })
	refusedAs(t, err, agent.ErrorInvalidRequest)
	if n := m.number(`SELECT (SELECT count(*) FROM conversation WHERE id = $1) + (SELECT count(*) FROM run WHERE id = $2)`, req.Conversation, req.RunID); n != 0 {
		t.Errorf("%d rows were stored", n)
	}
	first, err := try(func(r *agent.RunRequest) { r.Group = "desk" })
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"", "other"} {
		_, err = try(func(r *agent.RunRequest) { r.Conversation, r.Group = first.Conversation, group })
		refusedAs(t, err, agent.ErrorConversationConflict)
	}
	if _, err = try(func(r *agent.RunRequest) { r.Conversation, r.Group = first.Conversation, "desk" }); err != nil {
		t.Error(err)
	}
}

// TestMemoryIsWiredOrRefused: a worker without memory serves no agent with it.
func TestMemoryIsWiredOrRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	for name, edit := range map[string]func(*definition.Definition){
		"recall":   func(d *definition.Definition) { d.Memory.Recall = true },
		"learn":    func(d *definition.Definition) { d.Memory.Learn = true },
		"remember": func(d *definition.Definition) { d.Tools = append(d.Tools, "remember") },
	} {
		def := base()
		edit(&def)
		cfg := b.cfg
		cfg.Definitions = definitions(t, def)
		if _, err := activities.New(cfg); err == nil || !strings.Contains(err.Error(), "helper 1 has memory") {
			t.Errorf("%s: %v", name, err)
		}
		cfg.Memory = activities.PostgreSQLMemory(b.db)
		if _, err := activities.New(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func definitions(t *testing.T, def definition.Definition) *definition.Set {
	t.Helper()
	set, err := definition.NewSet(def)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
