package agenttest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/recall"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

// Memory is one memory in force.
type Memory struct {
	// ID and Version are the record's; of a seed both may be empty.
	ID      string
	Version int
	// Key is one of the memory policy's registry, Kind its kind.
	Key  string
	Kind agent.MemoryKind
	// Value is JSON.
	Value string
	// Scope is where it is seen; the zero value of a seed is the user's.
	Scope agent.MemoryScope
	// User is whom it comes from; of a seed, ann if it is empty.
	User string
	// Environment is the definition's first one if a seed names none.
	Environment string
	SourceType  agent.MemorySourceType
	Validation  agent.MemoryValidation
	Confidence  float64
	Writer      string
	// MessageID and Quote are what it rests on, RunID the run that it comes from.
	MessageID, Quote, RunID string
	WrittenAt               time.Time
}

// Learned is what became of a memory that was proposed in a run.
type Learned struct {
	Kind  agent.MemoryKind
	Key   string
	State agent.MemoryState
	// Rules are those of the memory policy that decided.
	Rules []agent.MemoryRule
	// Record names the memory in force that it became, or was merged with.
	Record string
}

// Statement is what an Extractor found in a message.
type Statement struct {
	Key   string
	Kind  agent.MemoryKind
	Value any
	// Quote are the user's words, character for character.
	Quote string
	// Retracts says that the user takes back what is remembered under the key.
	Retracts bool
}

// Extracts is an Extractor that finds statements in the messages that contain
// their quotes, and nothing in others.
func Extracts(statements ...Statement) scripted.Script {
	return func(_ context.Context, req model.Request) (scripted.Turn, error) {
		type candidate struct {
			Kind     agent.MemoryKind `json:"kind"`
			Key      string           `json:"key"`
			Value    any              `json:"value"`
			Quote    string           `json:"quote"`
			From     *time.Time       `json:"valid_from"`
			Until    *time.Time       `json:"valid_until"`
			Retracts bool             `json:"retracts"`
		}
		var said struct{ Message string }
		if err := json.Unmarshal([]byte(req.Messages[0].Text), &said); err != nil {
			return scripted.Turn{}, fmt.Errorf("agenttest: the extractor cannot read what it is asked: %w", err)
		}
		found := []candidate{}
		for _, s := range statements {
			if strings.Contains(said.Message, s.Quote) {
				found = append(found, candidate{Kind: s.Kind, Key: s.Key, Value: s.Value, Quote: s.Quote, Retracts: s.Retracts})
			}
		}
		text, err := json.Marshal(map[string]any{"candidates": found})
		return scripted.Turn{Text: string(text)}, err
	}
}

// forExtractor reports whether a request asks what can be learned from a run.
func forExtractor(req model.Request) bool {
	var schema struct {
		Properties map[string]any `json:"properties"`
	}
	if json.Unmarshal(req.FinalSchema, &schema) != nil {
		return false
	}
	_, asks := schema.Properties["candidates"]
	return asks && len(schema.Properties) == 1
}

// Remember puts memories into the store, as if they had been written before. It
// asks no policy for a write; reading them is decided as in production.
func (s *Suite) Remember(memories ...Memory) {
	s.t.Helper()
	for _, m := range memories {
		if err := s.remember(m); err != nil {
			s.t.Fatalf("agenttest: remember %s: %v", m.Key, err)
		}
	}
}

func (s *Suite) remember(m Memory) error {
	spec, known := s.memoryPolicy.Key(m.Key)
	if !known {
		return fmt.Errorf("the memory policy has no such key")
	}
	user := cmp.Or(m.User, defaultUser)
	if m.Scope == (agent.MemoryScope{}) {
		m.Scope = agent.MemoryScope{Kind: agent.MemoryOfUser, ID: user}
	}
	r := db.MemoryRecord{
		ID: cmp.Or(m.ID, uuid.NewString()), Version: max(m.Version, 1), Key: m.Key, Kind: cmp.Or(m.Kind, spec.Kind), Value: json.RawMessage(m.Value),
		Agent: s.config.Definition.Name, CandidateID: "seed", SourceType: cmp.Or(m.SourceType, agent.SourceUserStatement), SourceID: "seed",
		Validation: cmp.Or(m.Validation, agent.MemoryUserStated), Confidence: cmp.Or(m.Confidence, 0.9), Writer: cmp.Or(m.Writer, "user:"+user),
		Evidence:     db.MemoryEvidence{MessageID: m.MessageID, Quote: m.Quote},
		ConsentBasis: "stated_by_user", Sensitivity: "normal", RunID: m.RunID, WrittenAt: m.WrittenAt,
	}
	if r.WrittenAt.IsZero() {
		r.WrittenAt = s.clock.now()
	}
	r.Identity = identityOf(spec.Identity, r.Value)
	text := m.Key + ": " + m.Value
	index := db.MemoryIndex{Tokens: recall.Tokens(text)}
	embedder := db.MemoryEmbedder{Name: s.embedder.Name(), Dimensions: s.embedder.Dimensions()}
	ctx := context.Background()
	if _, err := s.store.Embedders(ctx, embedder); err != nil {
		return err
	}
	vectors, err := s.embedder.Embed(ctx, []string{text})
	if err != nil {
		return err
	}
	index.Embedder, index.Embedding = embedder, vectors[0]
	room := agent.MemoryRoom{
		Scope: agent.Scope{Tenant: defaultTenant, User: user, Environment: cmp.Or(m.Environment, s.environment())},
		Agent: s.config.Definition.Name,
	}
	switch m.Scope.Kind {
	case agent.MemoryOfGroup:
		room.Group = m.Scope.ID
	case agent.MemoryOfProject:
		room.Project = m.Scope.ID
	case agent.MemoryOfConversation:
		room.Conversation = m.Scope.ID
	default:
	}
	return s.store.InMemory(ctx, room, m.Scope, func(tx activities.MemoryTx) error {
		tx.StoreRecord(r, index)
		return nil
	})
}

// identityOf is what tells records of a key apart: the fields of the value that
// the registry names.
func identityOf(fields []string, value json.RawMessage) string {
	var object map[string]any
	if len(fields) == 0 || json.Unmarshal(value, &object) != nil {
		return ""
	}
	identity := map[string]any{}
	for _, name := range fields {
		identity[name] = object[name]
	}
	text, err := json.Marshal(identity)
	if err != nil {
		return ""
	}
	return strings.ToLower(string(text))
}

// Join makes users participants of a group or project; Leave takes that back.
func (s *Suite) Join(scope agent.MemoryScope, users ...string) {
	for _, user := range users {
		s.store.Participate(defaultTenant, scope, user, true)
	}
}

// Leave ends the participation of users in a group or project.
func (s *Suite) Leave(scope agent.MemoryScope, users ...string) {
	for _, user := range users {
		s.store.Participate(defaultTenant, scope, user, false)
	}
}

// Memories returns all that is remembered and in force, of everybody, by key, user
// and ID.
func (s *Suite) Memories() []Memory {
	var list []Memory
	for _, r := range s.store.Memories(defaultTenant) {
		list = append(list, memoryOf(r))
	}
	slices.SortFunc(list, func(a, b Memory) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.User, b.User), cmp.Compare(a.ID, b.ID))
	})
	return list
}

func memoryOf(r db.MemoryRecord) Memory {
	return Memory{
		ID: r.ID, Version: r.Version, Key: r.Key, Kind: r.Kind, Value: string(r.Value), Scope: r.Scope, User: r.User, Environment: r.Environment,
		SourceType: r.SourceType, Validation: r.Validation, Confidence: r.Confidence, Writer: r.Writer,
		MessageID: r.Evidence.MessageID, Quote: r.Evidence.Quote, RunID: r.RunID, WrittenAt: r.WrittenAt,
	}
}

// Skip lets virtual time pass between runs.
func (s *Suite) Skip(d time.Duration) {
	now := s.clock.now().Add(d)
	real := time.Now()
	s.clock.set(func() time.Time { return now.Add(time.Since(real)) })
}

// memories are what the run was given and what was learned from it.
func (r *run) memories(result *Result) {
	ctx, room := context.Background(), r.req.MemoryRoom()
	for _, i := range r.suite.store.Influences(r.req.Tenant, r.req.RunID) {
		if record, ok := r.suite.store.Record(r.req.Tenant, i.Record, i.Version); ok {
			result.Recalled = append(result.Recalled, memoryOf(record))
		}
	}
	candidates, err := r.suite.store.RunCandidates(ctx, room, r.req.RunID)
	if err != nil {
		return // the user takes part no more, or was erased
	}
	for _, c := range candidates {
		result.Learned = append(result.Learned, Learned{Kind: c.Kind, Key: c.Key, State: c.State, Rules: c.Rules, Record: c.Record})
	}
}

// WantRecalled fails the test unless the run was given memories with these keys,
// in any order.
func (r *Result) WantRecalled(keys ...string) {
	r.t.Helper()
	var got []string
	for _, m := range r.Recalled {
		got = append(got, m.Key)
	}
	r.same("the run was given memories of", got, keys)
}

// WantLearned fails the test unless these memories were proposed in the run, in
// any order: each "key: state", such as "profile.name: stored". A key that the
// registry does not have is empty.
func (r *Result) WantLearned(learned ...string) {
	r.t.Helper()
	var got []string
	for _, l := range r.Learned {
		got = append(got, l.Key+": "+string(l.State))
	}
	r.same("what was proposed came to", got, learned)
}

func (r *Result) same(what string, got, want []string) {
	r.t.Helper()
	slices.Sort(got)
	want = slices.Clone(want)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("%s %q, want %q\n%s", what, got, want, r.story)
	}
}

// decideMemory signs a person's decision about the memory that waits, and sends it.
func (r *run) decideMemory(key approval.Key, person string, decision approval.Decision) {
	candidates, err := r.suite.store.RunCandidates(context.Background(), r.req.MemoryRoom(), r.req.RunID)
	i := slices.IndexFunc(candidates, func(c db.MemoryCandidate) bool {
		return c.State == agent.MemoryWaitingConfirmation || c.State == agent.MemoryWaitingReview
	})
	if err != nil || i < 0 {
		r.t.Errorf("agenttest: no memory waits for a person\n%s", r.journal)
		return
	}
	c, now := candidates[i], r.now()
	token, err := key.Sign(approval.MemoryClaims(c, approval.Claims{
		TokenID: approval.Nonce(), Decision: decision, Approver: person, Tenant: r.req.Tenant, IssuedAt: now, ExpiresAt: now.Add(tokenLife),
	}))
	if err != nil {
		r.t.Errorf("agenttest: the decision of %s cannot be signed: %v", person, err)
		return
	}
	err = r.env.SignalWorkflowByID(agent.MemoryWriteWorkflowID(r.req.Tenant, c.ID), agent.SignalMemoryDecision, agent.Approval{Token: token})
	if err != nil {
		r.t.Errorf("agenttest: the decision of %s cannot be sent: %v", person, err)
	}
}
