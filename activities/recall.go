package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/prompt"
	"github.com/fairlead/fairlead/internal/recall"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/tool"
)

const (
	// embedPatience bounds the embedding of a question; recall goes on by keyword.
	embedPatience = 2 * time.Second
	// maxAskedBytes bounds what of a question is looked for: what people ask for is
	// at its beginning.
	maxAskedBytes = 4 << 10
	// minSimilarity is the cosine that texts of nothing in common may come to by
	// chance; what is nearer has something to do with the question.
	minSimilarity = 0.15
	// maxKeys is as many as a store looks for at once.
	maxKeys = 64
	// spareHits is how many times as many hits are asked for as a run is given:
	// the read policy leaves some of them out.
	spareHits = 4
	// readPatience bounds the reading of what a run was given, before each step.
	readPatience = 2 * time.Second
)

// readerRoles are on whose behalf a run reads: memory shapes its answers and its
// plans, and decides about no right.
var readerRoles = []memorypolicy.ReaderRole{memorypolicy.Personalization, memorypolicy.Planner}

// Recall looks for memories that help with a run's question, records that the
// run was given them, and says how many there are. Asked again, it gives the same
// ones.
func (r *Runs) Recall(ctx context.Context, in agent.RecallInput) (out agent.RecallOutput, err error) {
	defer r.contain(agent.ActivityRecall, in.Run, &err)
	out, err = r.recall(ctx, in)
	return out, r.fault(ctx, agent.ActivityRecall, in.Run, err)
}

func (r *Runs) recall(ctx context.Context, in agent.RecallInput) (agent.RecallOutput, error) {
	if r.memory == nil {
		return agent.RecallOutput{}, fmt.Errorf("%w: this worker has no memory", errRetry)
	}
	def, err := r.definition(ctx, in.DefinitionDigest)
	if err != nil {
		return agent.RecallOutput{}, err
	}
	run, question, err := questionOf(ctx, r.store, in.Run)
	if err != nil {
		return agent.RecallOutput{}, err
	}
	asked := beginning(question.Content, maxAskedBytes)
	reader := memorypolicy.Reader{Roles: readerRoles, Room: run.Room(), Now: r.now()}
	most := def.Memory.Bounds(def.Model).MaxRecords
	q := db.RecallQuery{
		Scopes: r.memoryPolicy.Scopes(reader), Kinds: r.memoryPolicy.Kinds(reader), Keys: atMost(r.standingKeys(), maxKeys),
		Tokens: recall.Question(asked), MinSimilarity: minSimilarity, Now: reader.Now, Limit: min(spareHits*most, db.MaxRecallHits),
	}
	if len(q.Scopes) == 0 || len(q.Kinds) == 0 {
		return agent.RecallOutput{State: agent.RecallNothing}, nil
	}
	keywordOnly := false
	if q.Embedder, q.Embedding, err = r.embedQuestion(ctx, asked); err != nil {
		// Its text may repeat the question.
		r.log.Warn("memories are recalled by keyword only", zap.String("run_id", run.ID), zap.String("cause_type", fmt.Sprintf("%T", err)))
		keywordOnly = true
	}
	hits, err := r.memory.Recall(ctx, reader.Room, q)
	if errors.Is(err, db.ErrEmbedding) {
		r.log.Warn("memories are recalled by keyword only", zap.String("run_id", run.ID), zap.String("cause", err.Error()))
		q.Embedder, q.Embedding, keywordOnly = db.MemoryEmbedder{}, nil, true
		hits, err = r.memory.Recall(ctx, reader.Room, q)
	}
	if gone(err) {
		// The user was erased, or does not take part in the room any more.
		return agent.RecallOutput{State: agent.RecallNothing}, nil
	}
	if err != nil {
		return agent.RecallOutput{}, err
	}
	hits = slices.DeleteFunc(hits, func(h db.RecallHit) bool { return !r.mayRead(reader, h.Record) })
	hits = choose(hits, most)
	out := agent.RecallOutput{State: agent.RecallNothing, KeywordOnly: keywordOnly}
	if len(hits) > 0 {
		if out.Records, err = r.give(ctx, reader.Room, run.ID, hits); err != nil {
			return agent.RecallOutput{}, err
		}
		if out.Records > 0 {
			out.State = agent.RecallFound
		}
	}
	r.log.Debug("recalled", zap.String("run_id", run.ID), zap.String("state", string(out.State)), zap.Int("records", out.Records), zap.Bool("keyword_only", keywordOnly))
	return out, nil
}

// questionOf reads a run and the message that it answers.
func questionOf(ctx context.Context, store Store, ref agent.RunRef) (db.Run, db.Message, error) {
	var state db.StepState
	err := store.InTx(ctx, ref.Scope, func(tx Tx) (err error) {
		state, err = tx.LoadStep(ctx, db.StepQuery{RunID: ref.RunID})
		return err
	})
	return state.Run, state.Question, err
}

// standingKeys are those that matter whatever is asked: how people want things
// done. They are looked up exactly.
func (r *Runs) standingKeys() (keys []string) {
	for _, k := range r.memoryPolicy.Keys() {
		if k.Kind == agent.MemoryPreference {
			keys = append(keys, k.Name)
		}
	}
	return keys
}

func atMost(list []string, n int) []string { return list[:min(len(list), n)] }

// choose keeps the best hits. What was found by its key and shares no word with the
// question matters in general, not to this question: it takes no more than half of
// the places, unless they stay free.
func choose(hits []db.RecallHit, most int) []db.RecallHit {
	kept := make([]bool, len(hits))
	left, standing := most, max(most/2, 1)
	for _, spare := range []bool{false, true} {
		for i, h := range hits {
			general := strings.Contains(h.Via, viaExact) && !strings.Contains(h.Via, viaKeyword)
			if kept[i] || left == 0 || general && !spare && standing == 0 {
				continue
			}
			if general {
				standing--
			}
			kept[i] = true
			left--
		}
	}
	var chosen []db.RecallHit
	for i, h := range hits {
		if kept[i] {
			chosen = append(chosen, h)
		}
	}
	return chosen
}

// Parts of db.RecallHit.Via.
const (
	viaExact   = "exact"
	viaKeyword = "keyword"
)

// mayRead asks the read policy about one record as it stands.
func (r *Runs) mayRead(reader memorypolicy.Reader, m db.MemoryRecord) bool {
	return r.memoryPolicy.EvaluateRead(reader, memorypolicy.Record{
		Scope: m.Scope, Environment: m.Environment, Kind: m.Kind, Key: m.Key, SourceType: m.SourceType, Validation: m.Validation,
		Confidence: m.Confidence, Sensitivity: m.Sensitivity, ValidFrom: m.ValidFrom, ValidUntil: m.ValidUntil, ExpiresAt: m.ExpiresAt,
		Active: m.Status == db.MemoryActive,
	}).Allowed
}

// embedQuestion returns the vector of a question by the embedder whose vectors
// answer recalls now.
func (r *Runs) embedQuestion(ctx context.Context, question string) (db.MemoryEmbedder, []float32, error) {
	state, err := r.memory.Embedders(ctx, embedderOf(r.embedders[0]))
	if err != nil {
		return db.MemoryEmbedder{}, nil, err
	}
	i := slices.IndexFunc(r.embedders, func(e model.Embedder) bool { return embedderOf(e) == state.Serving })
	if i < 0 {
		return db.MemoryEmbedder{}, nil, errNoEmbedder
	}
	vectors, err := embed(ctx, r.embedders[i], []string{question}, embedPatience)
	if err != nil {
		return db.MemoryEmbedder{}, nil, err
	}
	return state.Serving, vectors[0], nil
}

var (
	errNoEmbedder = errors.New("this worker does not have the embedder that the vectors are of")
	errEmbedder   = errors.New("the embedder failed")
)

func embedderOf(e model.Embedder) db.MemoryEmbedder {
	return db.MemoryEmbedder{Name: e.Name(), Dimensions: e.Dimensions()}
}

// embed embeds texts within patience. Panics are contained, and an embedder
// that ignores its context is abandoned.
func embed(ctx context.Context, e model.Embedder, texts []string, patience time.Duration) ([][]float32, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	type answer struct {
		vectors [][]float32
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		a := answer{err: errEmbedder}
		defer func() {
			_ = recover() // its value may hold content
			done <- a
		}()
		vectors, err := e.Embed(ctx, texts)
		a = answer{vectors, err}
	}()
	select {
	case a := <-done:
		if a.err == nil && len(a.vectors) != len(texts) {
			a.err = errEmbedder
		}
		return a.vectors, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// beginning is the beginning of text, in whole characters.
func beginning(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// given reads what a run was given by Recall and may still read. A failure leaves
// memories out and does not hold up the run.
func (r *Runs) given(ctx context.Context, in agent.NextActionInput) []prompt.Recalled {
	if !in.Recalled || in.Room == nil || r.memory == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, readPatience)
	defer stop()
	reader := memorypolicy.Reader{Roles: readerRoles, Room: *in.Room, Now: r.now()}
	records, err := r.memory.GivenMemories(ctx, reader.Room, in.Run.RunID, reader.Now)
	if err != nil {
		r.log.Warn("a step does without memories", zap.String("run_id", in.Run.RunID), zap.Int("step", in.Step), zap.String("cause", err.Error()))
		return nil
	}
	var list []prompt.Recalled
	for _, m := range records {
		if r.mayRead(reader, m) {
			list = append(list, prompt.Recalled{ID: m.ID, Source: originOf(m), Text: shownText(m.Key, m.Value)})
		}
	}
	return list
}

// shownText is a memory as the model sees it: a text as it is, and else its JSON,
// in which no value can be taken for another field.
func shownText(key string, value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	return key + ": " + text
}

// originOf says where a memory comes from, in words for the model: who said it,
// when, about what, and who vouches for it.
func originOf(m db.MemoryRecord) string {
	var b strings.Builder
	switch m.SourceType {
	case agent.SourceUserStatement:
		b.WriteString("said by user " + m.User)
	case agent.SourceUserCorrection:
		b.WriteString("set by user " + m.User)
	case agent.SourceTrustedTool:
		b.WriteString("reported by a tool")
	case agent.SourceTrustedService:
		b.WriteString("reported by service " + m.SourceID)
	case agent.SourceApprovedSummarizer:
		b.WriteString("summary of a conversation")
	default:
		b.WriteString(string(m.SourceType))
	}
	b.WriteString(" on " + m.WrittenAt.UTC().Format(time.DateOnly))
	switch m.Scope.Kind {
	case agent.MemoryOfUser:
		b.WriteString(", personal memory")
	case agent.MemoryOfConversation:
		b.WriteString(", memory of this conversation")
	case agent.MemoryOfGroup:
		b.WriteString(", memory of the group")
	case agent.MemoryOfProject:
		b.WriteString(", memory of the project")
	case agent.MemoryOfAgent:
		b.WriteString(", memory of this agent")
	}
	b.WriteString(", " + strings.ReplaceAll(string(m.Validation), "_", " "))
	if m.ValidUntil != nil {
		b.WriteString(", valid until " + m.ValidUntil.UTC().Format(time.DateOnly))
	}
	return b.String()
}

// hasMemory reports whether a worker without memory cannot serve a definition.
func hasMemory(def definition.Definition) bool { return def.Memory.Recall || learns(def) }

// learns reports whether something may be learned from an agent's runs.
func learns(def definition.Definition) bool { return def.Memory.Learn || remembers(def) }

// remembers reports whether an agent has the tool by which its model proposes
// memories.
func remembers(def definition.Definition) bool { return slices.Contains(def.Tools, tool.RememberName) }
