package agenttest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/gowebpki/jcs"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/recall"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/memorypolicy/detect"
	"github.com/fairlead/fairlead/tool/schema"
)

// Remember puts memories into the store of tenant acme, as if they had been
// written before. It asks no policy for a write, but kind, value and scope must be
// such as the policy's key has them; reading them is decided as in production.
// Whoever remembers for a group or project has joined it.
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
		return errors.New("the memory policy has no such key")
	}
	user := cmp.Or(m.User, defaultUser)
	if m.Scope == (agent.MemoryScope{}) {
		m.Scope = agent.MemoryScope{Kind: agent.MemoryOfUser, ID: user}
	}
	environment := cmp.Or(m.Environment, s.environment())
	value, err := valueOf(spec, m.Value)
	switch {
	case err != nil:
		return err
	case m.Kind != "" && m.Kind != spec.Kind:
		return fmt.Errorf("the key is of kind %s, not %s", spec.Kind, m.Kind)
	case !slices.Contains(spec.Scopes, m.Scope.Kind):
		return fmt.Errorf("the key is for %v, not for %s", spec.Scopes, m.Scope.Kind)
	case !slices.Contains(s.config.Definition.Environments, environment):
		return fmt.Errorf("the agent does not act in environment %s, and would never see it", environment)
	}
	if m.WrittenAt.IsZero() {
		m.WrittenAt = s.clock.now()
	}
	if m.ExpiresAt.IsZero() {
		m.ExpiresAt = m.WrittenAt.Add(spec.Retention)
	}
	r := db.MemoryRecord{
		ID: cmp.Or(m.ID, uuid.NewString()), Version: max(m.Version, 1), Key: m.Key, Kind: spec.Kind, Value: value.text, Identity: value.identity,
		Agent: s.config.Definition.Name, CandidateID: "seed", SourceType: cmp.Or(m.SourceType, agent.SourceUserStatement), SourceID: "seed",
		Validation: cmp.Or(m.Validation, agent.MemoryUserStated), Confidence: cmp.Or(m.Confidence, 0.7), Writer: cmp.Or(m.Writer, "user:"+user),
		Evidence:     db.MemoryEvidence{MessageID: m.MessageID, Quote: m.Quote, Purpose: spec.Purpose},
		ConsentBasis: "stated_by_user", Sensitivity: "normal", RunID: m.RunID, WrittenAt: m.WrittenAt, ExpiresAt: &m.ExpiresAt,
	}
	text := m.Key + ": " + strings.Join(value.words, ", ")
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
		Scope: agent.Scope{Tenant: defaultTenant, User: user, Environment: environment},
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
	err = s.store.InMemory(ctx, room, m.Scope, func(tx activities.MemoryTx) error {
		tx.StoreRecord(r, index)
		return nil
	})
	if errors.Is(err, db.ErrNotFound) {
		return fmt.Errorf("%s has no %s %s: Join makes participants, and a conversation is begun by a run", user, m.Scope.Kind, m.Scope.ID)
	}
	return err
}

// value is a value as a worker keeps it.
type value struct {
	text json.RawMessage
	// identity tells records of a key apart, words are what it is found by.
	identity string
	words    []string
}

// valueOf is a seed's value as the memory policy would have written it.
func valueOf(spec memorypolicy.KeySpec, text string) (value, error) {
	parsed, err := schema.Parse(text, agent.MaxMemoryValueBytes)
	if err != nil {
		return value{}, fmt.Errorf("the value %s is no JSON value: %w", text, err)
	}
	// The schema is an object's, or that of a single value.
	takes, err := schema.CompileArguments(spec.Schema)
	if err != nil {
		takes, err = schema.Compile(spec.Schema)
	}
	if err != nil {
		return value{}, err
	}
	fields, isObject := parsed.(map[string]any)
	if !isObject {
		parsed = normalized(parsed)
		fields = map[string]any{"": parsed}
	}
	for name, field := range fields {
		fields[name] = normalized(field)
	}
	if err := takes.Validate(parsed); err != nil {
		return value{}, fmt.Errorf("the value %s does not fit the key: %w", text, err)
	}
	var v value
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		v.words = append(v.words, fmt.Sprint(fields[name]))
	}
	if v.text, err = canonical(parsed); err != nil || len(spec.Identity) == 0 {
		return v, err
	}
	identity := map[string]any{}
	for _, name := range spec.Identity {
		identity[name] = fields[name]
		if said, ok := fields[name].(string); ok {
			identity[name] = detect.Fold(said)
		}
	}
	told, err := canonical(identity)
	v.identity = string(told)
	return v, err
}

func normalized(field any) any {
	if said, ok := field.(string); ok {
		return detect.Normalize(said)
	}
	return field
}

// canonical writes v as RFC 8785 does.
func canonical(v any) (json.RawMessage, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return jcs.Transform(text)
}

// Join makes users of tenant acme participants of groups and projects; Leave takes
// that back.
func (s *Suite) Join(scope agent.MemoryScope, users ...string) {
	s.t.Helper()
	s.participate(scope, users, true)
}

// Leave ends the participation of users in a group or project.
func (s *Suite) Leave(scope agent.MemoryScope, users ...string) {
	s.t.Helper()
	s.participate(scope, users, false)
}

func (s *Suite) participate(scope agent.MemoryScope, users []string, in bool) {
	s.t.Helper()
	if scope.Kind != agent.MemoryOfGroup && scope.Kind != agent.MemoryOfProject {
		s.t.Fatalf("agenttest: one takes part in a %s or %s, and in no %q", agent.MemoryOfGroup, agent.MemoryOfProject, scope.Kind)
	}
	for _, user := range users {
		s.store.Participate(defaultTenant, scope, user, in)
	}
}

// Erase has a user of tenant acme erased: nothing of the user is remembered any
// more, and no run of the user begins (agent.ErrorUserErased). One that is open goes
// on to its end.
func (s *Suite) Erase(user string) {
	s.t.Helper()
	in := agent.EraseInput{ID: "erase-" + user, Tenant: defaultTenant, User: user, By: "test"}
	if _, err := s.store.EraseSubject(context.Background(), in, math.MaxInt); err != nil {
		s.t.Fatalf("agenttest: erase %s: %v", user, err)
	}
}
