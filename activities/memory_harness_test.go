package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/hashing"
	"github.com/fairlead/fairlead/model/scripted"
)

// reviewers: bob reviews what others are remembered by.
var reviewers = fstest.MapFS{
	"p.cedar": {Data: []byte(`permit (principal, action, resource);`)},
}

// memoryBundle is a bundle with long-term memory, at a time that a test sets.
type memoryBundle struct {
	*bundle
	mu  sync.Mutex
	now time.Time
	key approval.Key
	// extract answers the extractor's requests; asked are those.
	extract func(req model.Request) (string, error)
	asked   []model.Request
	// told are the requests of the agent's model.
	told []model.Request
	// calls are what the agent's model calls before it answers.
	calls  []scripted.Call
	memory *faulty
	embed  *fakeEmbedder
}

// faulty is a Memory that fails where a test wants it to.
type faulty struct {
	activities.Memory
	mu   sync.Mutex
	fail func(method string) error
}

func (f *faulty) failing(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		return nil
	}
	return f.fail(method)
}

func (f *faulty) set(fail func(method string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *faulty) ProposeMemory(ctx context.Context, c db.MemoryCandidate) (db.MemoryCandidate, error) {
	if err := f.failing("ProposeMemory"); err != nil {
		return db.MemoryCandidate{}, err
	}
	return f.Memory.ProposeMemory(ctx, c)
}

func (f *faulty) InMemory(ctx context.Context, room agent.MemoryRoom, scope agent.MemoryScope, fn func(activities.MemoryTx) error) error {
	if err := f.failing("InMemory"); err != nil {
		return err
	}
	return f.Memory.InMemory(ctx, room, scope, fn)
}

func (f *faulty) CloseLesson(ctx context.Context, ref agent.RunRef, failure string, billed db.Amount) error {
	if err := f.failing("CloseLesson"); err != nil {
		return err
	}
	return f.Memory.CloseLesson(ctx, ref, failure, billed)
}

// fakeEmbedder is the offline embedder, under a name and with failures of a test's
// own.
type fakeEmbedder struct {
	model.Embedder
	name string
	mu   sync.Mutex
	fail func(texts []string) ([][]float32, error)
	n    int
}

func (e *fakeEmbedder) Name() string { return e.name }

func (e *fakeEmbedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	e.mu.Lock()
	e.n += len(texts)
	fail := e.fail
	e.mu.Unlock()
	if fail != nil {
		if vectors, err := fail(texts); err != nil || vectors != nil {
			return vectors, err
		}
	}
	return e.Embedder.Embed(ctx, texts)
}

func (e *fakeEmbedder) set(fail func(texts []string) ([][]float32, error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail = fail
}

func newEmbedder(t testing.TB, name string, dimensions int) *fakeEmbedder {
	t.Helper()
	e, err := hashing.New(hashing.Options{Dimensions: dimensions})
	if err != nil {
		t.Fatal(err)
	}
	return &fakeEmbedder{Embedder: e, name: name}
}

// learner is an agent with memory.
func learner(d *definition.Definition) {
	d.Memory = definition.Memory{Recall: true, Learn: true, Facts: map[string]string{"service": "task.service"}}
}

func setupMemory(t testing.TB, edit func(*definition.Definition)) *memoryBundle {
	t.Helper()
	m := &memoryBundle{now: time.Now().UTC().Truncate(time.Microsecond), key: approval.NewKey()}
	m.bundle = setup(t, options{script: func(_ context.Context, req model.Request) (scripted.Turn, error) {
		if strings.Contains(string(req.FinalSchema), `"candidates"`) {
			m.mu.Lock()
			m.asked = append(m.asked, req)
			extract := m.extract
			m.mu.Unlock()
			if extract == nil {
				return scripted.Turn{Text: `{"candidates":[]}`}, nil
			}
			text, err := extract(req)
			return scripted.Turn{Text: text}, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.told = append(m.told, req)
		if calls := m.calls; calls != nil {
			m.calls = nil
			return scripted.Turn{Calls: calls}, nil
		}
		return scripted.Turn{Text: "Noted. " + canary}, nil
	}})
	def := base()
	learner(&def)
	if edit != nil {
		edit(&def)
	}
	set, err := definition.NewSet(def)
	if err != nil {
		t.Fatal(err)
	}
	m.defs = set.All()
	m.memory = &faulty{Memory: activities.PostgreSQLMemory(m.db)}
	m.embed = newEmbedder(t, "small", 64)
	policies, err := authz.Load(reviewers)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := approval.NewVerifier(m.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	m.cfg.Definitions, m.cfg.Memory, m.cfg.Embedders, m.cfg.Policies, m.cfg.Approvals = set, m.memory, []model.Embedder{m.embed}, policies, verifier
	m.cfg.Now = m.clock
	m.runs = m.restart(nil)
	return m
}

func (m *memoryBundle) clock() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *memoryBundle) later(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}

// restart returns activities as another process has them, with other settings.
func (m *memoryBundle) restart(edit func(*activities.Config)) *activities.Runs {
	m.Helper()
	if edit != nil {
		edit(&m.cfg)
	}
	runs, err := activities.New(m.cfg)
	if err != nil {
		m.Fatal(err)
	}
	return runs
}

// policy is the default policy with one text in place of another.
func policy(t testing.TB, old, text string) *memorypolicy.Policy {
	t.Helper()
	raw, err := os.ReadFile("../memorypolicy/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	source := string(raw)
	if strings.Count(source, old) == 0 {
		t.Fatalf("the default policy has no %q", old)
	}
	p, err := memorypolicy.Parse([]byte(strings.Replace(source, old, text, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ada is the room of the user's own memory.
var adasRoom = agent.MemoryRoom{Scope: agent.Scope{Tenant: "acme", User: "ada", Environment: "production"}, Agent: "helper"}

// corrected is a write of the user's own act outside of a conversation.
func corrected(key, value string) agent.MemoryWriteInput {
	kind := agent.MemoryPreference
	if strings.HasPrefix(key, "fact.") {
		kind = agent.MemoryFact
	}
	return agent.MemoryWriteInput{ID: uuid.NewString(), Room: adasRoom, Candidate: &agent.MemoryCandidate{
		Kind: kind, Key: key, Value: []byte(value), SourceType: agent.SourceUserCorrection, SourceID: "ticket-1", Writer: "user:ada",
	}}
}

// write proposes and judges.
func (m *memoryBundle) write(in agent.MemoryWriteInput) agent.MemoryVerdict {
	m.Helper()
	v, err := m.runs.ProposeMemory(m.ctx, in)
	if err != nil {
		m.Fatalf("propose: %v", err)
	}
	if v.State != agent.MemoryProposed {
		return v
	}
	return m.judge(in.ID)
}

func (m *memoryBundle) judge(id string) agent.MemoryVerdict {
	m.Helper()
	v, err := m.runs.JudgeMemory(m.ctx, agent.MemoryWriteInput{ID: id, Room: adasRoom})
	if err != nil {
		m.Fatalf("judge: %v", err)
	}
	return v
}

// say is a run that answers a message; it returns what Learn is asked.
func (m *memoryBundle) say(message string) agent.LearnInput {
	m.Helper()
	req := request()
	req.Message = message
	g := begun{req, m.begin(req)}
	action := m.act(g.next(0, 0))
	out, err := m.runs.EndRun(m.ctx, agent.EndRunInput{Run: g.ref(), Reason: agent.ReasonFinal, Step: 1, AnswerMessageID: action.AnswerMessageID})
	if err != nil {
		m.Fatal(err)
	}
	if !out.Learn {
		m.Fatalf("nothing is to be learned: %+v", out.Memory)
	}
	return agent.LearnInput{Run: g.ref(), Room: req.MemoryRoom(), DefinitionDigest: g.out.DefinitionDigest}
}

// proposal is one candidate of the extractor's answer.
func proposal(key, value, quote string) string {
	kind := "profile_preference"
	if strings.HasPrefix(key, "fact.") {
		kind = "validated_fact"
	}
	text, _ := json.Marshal(quote)
	return `{"kind":"` + kind + `","key":"` + key + `","value":` + value + `,"quote":` + string(text) + `}`
}

func answerWith(proposals ...string) func(model.Request) (string, error) {
	return func(model.Request) (string, error) {
		return `{"candidates":[` + strings.Join(proposals, ",") + `]}`, nil
	}
}

func (m *memoryBundle) learn(in agent.LearnInput) agent.LearnOutput {
	m.Helper()
	out, err := m.runs.Learn(m.ctx, in)
	if err != nil {
		m.Fatalf("learn: %v", err)
	}
	return out
}

// learned says message, has the extractor answer with proposals, and judges what
// comes of it.
func (m *memoryBundle) learned(message string, proposals ...string) (ids []string, verdicts []agent.MemoryVerdict) {
	m.Helper()
	m.extract = answerWith(proposals...)
	in := m.say(message)
	out := m.learn(in)
	for _, id := range out.Candidates {
		v, err := m.runs.JudgeMemory(m.ctx, agent.MemoryWriteInput{ID: id, Room: in.Room})
		if err != nil {
			m.Fatalf("judge: %v", err)
		}
		verdicts = append(verdicts, v)
	}
	return out.Candidates, verdicts
}

// values are the values in force of ada's memories under a key, or with past all.
func (m *memoryBundle) values(key string, past bool) string {
	m.Helper()
	records, err := m.db.Memories(m.ctx, "acme", "ada", db.MemoryFilter{Key: key, Past: past})
	if err != nil {
		m.Fatal(err)
	}
	var list []string
	for _, r := range records {
		text := string(r.Value)
		if past {
			text += " " + string(r.Status)
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// audit lists what was done about a candidate.
func (m *memoryBundle) audit(id string) string {
	m.Helper()
	rows, err := m.owner.Query(m.ctx, `SELECT actor || ' ' || action || ' ' || CASE WHEN action = 'refuse_decision' THEN detail ELSE '' END
		FROM memory_audit WHERE candidate_id = $1 ORDER BY id`, id)
	if err != nil {
		m.Fatal(err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			m.Fatal(err)
		}
		list = append(list, strings.TrimSpace(text))
	}
	return strings.Join(list, ", ")
}

// retried reports whether Temporal tries an activity again after its error.
func retried(err error) bool {
	var application *temporal.ApplicationError
	return !errors.As(err, &application) || !application.NonRetryable()
}

func policiesOf(t testing.TB, text string) *authz.Policies {
	t.Helper()
	p, err := authz.Load(fstest.MapFS{"p.cedar": {Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// callTool is a run that calls one tool and then answers; it returns what Learn is
// asked.
func (m *memoryBundle) callTool(name, arguments string) agent.LearnInput {
	m.Helper()
	req := request()
	req.Message = "Why is it slow?"
	m.mu.Lock()
	m.calls = []scripted.Call{{Name: name, Arguments: arguments}}
	m.mu.Unlock()
	g := begun{req, m.begin(req)}
	action := m.act(g.next(0, 0))
	if len(action.Calls) != 1 {
		m.Fatalf("action %+v", action)
	}
	m.observe(g.read(0, action.Calls[0]))
	action = m.act(g.next(1, 0))
	out, err := m.runs.EndRun(m.ctx, agent.EndRunInput{Run: g.ref(), Reason: agent.ReasonFinal, Step: 2, AnswerMessageID: action.AnswerMessageID})
	if err != nil || !out.Learn {
		m.Fatalf("end %+v, %v", out, err)
	}
	return agent.LearnInput{Run: g.ref(), Room: req.MemoryRoom(), DefinitionDigest: g.out.DefinitionDigest}
}
