package activities

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/learning"
	"github.com/fairlead/fairlead/internal/tokens"
	"github.com/fairlead/fairlead/model"
)

const (
	// lessonDue is db.Lesson.Status of one that nobody closed yet.
	lessonDue = "due"
	// maxLessonTries is how often a model is paid for a lesson without an answer.
	maxLessonTries = 8
	// failureGivenUp closes a lesson after the last try.
	failureGivenUp = "given_up"
)

// Learn proposes what can be remembered from a run that has ended (LTM-5): what
// its user stated in the own words, as the configured model finds and quotes it,
// and the facts that its tools settled. Nothing comes from what was recalled, from
// an assistant's words, or from text that the user only passed on. Done again it
// proposes nothing twice.
func (r *Runs) Learn(ctx context.Context, in agent.LearnInput) (out agent.LearnOutput, err error) {
	defer r.contain(agent.ActivityLearn, in.Run, &err)
	out, err = r.learn(ctx, in)
	if gone(err) {
		out, err = agent.LearnOutput{Failure: "lesson_missing"}, nil
	}
	return out, r.fault(ctx, agent.ActivityLearn, in.Run, err)
}

func (r *Runs) learn(ctx context.Context, in agent.LearnInput) (out agent.LearnOutput, err error) {
	if r.memory == nil {
		return out, errNoMemory
	}
	source, err := r.memory.LessonSource(ctx, in.Run)
	if err != nil {
		return out, err
	}
	if source.Lesson.Status == lessonDue {
		def, err := r.definition(ctx, source.Lesson.DefinitionDigest)
		if err != nil {
			return out, err
		}
		if out, err = r.study(ctx, source, def); err != nil {
			return out, err
		}
	}
	candidates, err := r.memory.RunCandidates(ctx, source.Lesson.Room, in.Run.RunID)
	if err != nil {
		return out, err
	}
	for _, c := range candidates {
		switch c.State {
		case agent.MemoryProposed:
			out.Candidates = append(out.Candidates, c.ID)
		case agent.MemoryRejected:
			out.Rejected++
		}
	}
	r.log.Info("learned from a run", zap.String("run_id", in.Run.RunID), zap.Int("candidates", len(out.Candidates)), zap.Int("rejected", out.Rejected),
		zap.String("failure", out.Failure), zap.Bool("later", out.Later))
	return out, nil
}

// study puts on record what a due lesson teaches, and closes it.
func (r *Runs) study(ctx context.Context, source db.LessonSource, def definition.Definition) (agent.LearnOutput, error) {
	lesson := source.Lesson
	if err := r.proposeFacts(ctx, source, def); err != nil {
		return agent.LearnOutput{}, err
	}
	// Zero cost is known only where nothing was asked.
	x := extraction{billed: db.Amount{CostMicros: new(int64)}}
	if def.Memory.Learn {
		var err error
		if x, err = r.extract(ctx, source, def); err != nil {
			return r.unanswered(ctx, lesson, x, err)
		}
		if x.later {
			return agent.LearnOutput{Failure: x.failure, Later: true}, nil
		}
		if err := r.proposeStatements(ctx, source, def, x.found); err != nil {
			return agent.LearnOutput{}, err
		}
	}
	err := r.insist(ctx, func(ctx context.Context) error {
		return r.memory.CloseLesson(ctx, lesson.Run, x.failure, x.billed)
	})
	return agent.LearnOutput{Failure: x.failure}, err
}

// unanswered notes a try that was paid for and failed with err. After the last one
// the lesson is closed; an outage that costs nothing is waited for.
func (r *Runs) unanswered(ctx context.Context, lesson db.Lesson, x extraction, err error) (agent.LearnOutput, error) {
	if x.billed.Tokens == 0 {
		return agent.LearnOutput{}, err
	}
	var closed bool
	noted := r.insist(ctx, func(ctx context.Context) (err error) {
		ctx, cancel := aside(ctx)
		defer cancel()
		closed, err = r.memory.TryLesson(ctx, lesson.Run, maxLessonTries, failureGivenUp, x.billed)
		return err
	})
	if noted != nil || !closed {
		return agent.LearnOutput{}, errors.Join(err, noted)
	}
	return agent.LearnOutput{Failure: failureGivenUp}, nil
}

// extraction is what the model found in the user's words.
type extraction struct {
	found   []learning.Proposal
	billed  db.Amount
	failure string
	// later says that today's budget leaves no room for the question.
	later bool
}

// extract asks the configured model what the user's own words say that lasts.
func (r *Runs) extract(ctx context.Context, source db.LessonSource, def definition.Definition) (extraction, error) {
	free := extraction{billed: db.Amount{CostMicros: new(int64)}}
	own, _ := learning.Strip(source.Question.Content)
	if !learning.Worth(own) {
		return free, nil
	}
	e, err := r.errandOf(def.Memory.Bounds(def.Model).Model)
	if err != nil {
		return free, err
	}
	counter, err := tokens.For(e.entry.Tokenizer)
	if err != nil {
		return free, err
	}
	request, err := learning.Request(own, source.Question.CreatedAt, r.memoryPolicy.Keys(), e.entry)
	switch {
	case errors.Is(err, learning.ErrNoKeys):
		return free, nil
	case errors.Is(err, learning.ErrNoRoom):
		free.failure = "no_room"
		return free, nil
	case err != nil:
		return free, err
	}
	e.ask(request, counter, request.MaxOutputTokens)
	scope := source.Lesson.Run.Scope
	err = r.reserveErrand(ctx, scope, &e, source.Limits)
	if reached := new(db.LimitError); errors.As(err, &reached) {
		return extraction{failure: reached.Limit, later: true}, nil
	}
	if err != nil {
		return free, err
	}
	work, done := r.bound(ctx, r.now().Add(e.patience()), 0)
	defer done()
	x := extraction{}
	b, err := e.run(ctx, work, func(response model.Response, text string) (string, string) {
		var code, feedback string
		x.found, code, feedback = extracted(own, source.Recalled, response, text)
		return code, feedback
	})
	x.billed, x.failure = b.billed, b.failure
	r.releaseErrand(ctx, scope, &e, b.billed)
	return x, err
}

// extracted reads a model's answer: the proposals that rest on the user's own
// words, or what is wrong with it, as a code and in words for the model.
func extracted(own string, recalled []db.MemoryRecord, response model.Response, text string) (found []learning.Proposal, code, feedback string) {
	const again = " Answer again, with one JSON object of the agreed form and nothing else."
	if response.Finish != model.FinishStop {
		return nil, "malformed_output", "Your last answer was not complete." + again
	}
	all, err := learning.Parse(text)
	if err != nil {
		return nil, "malformed_output", "Your last answer could not be used: " + err.Error() + "." + again
	}
	for _, p := range all {
		// One that is made up does not spoil the others.
		if learning.Check(own, p) == nil && !recites(p, recalled) {
			found = append(found, p)
		}
	}
	return found, "", ""
}

// recites reports whether a quote is a memory in the form in which it is shown:
// what was recalled is not learned again.
func recites(p learning.Proposal, recalled []db.MemoryRecord) bool {
	return slices.ContainsFunc(recalled, func(m db.MemoryRecord) bool { return strings.Contains(p.Quote, m.Key+":") })
}

// proposeStatements puts what the user stated on record. A model may answer
// otherwise when it is asked again after a crash, so each proposal takes the
// first place that is free or holds the same already.
func (r *Runs) proposeStatements(ctx context.Context, source db.LessonSource, def definition.Definition, found []learning.Proposal) error {
	lesson := source.Lesson
	own, _ := learning.Strip(source.Question.Content)
	writer := "agent:" + def.Name + "@" + def.Version
	for _, p := range found {
		candidate := p.Candidate(source.Question.ID, writer)
		candidate.Scope = memoryScope(def, lesson.Room)
		if metadataProblem(candidate) != "" {
			continue
		}
		for place := range agent.MaxMemoryCandidates {
			_, err := r.putOnRecord(ctx, proposal{
				id: memoryID(lesson.Run.Scope.Tenant, "learn", lesson.Run.RunID, strconv.Itoa(place)), room: lesson.Room, runID: lesson.Run.RunID,
				message: own, candidate: candidate,
			})
			if err == nil || errors.Is(err, db.ErrNotFound) {
				break // or it was forgotten since
			}
			if !errors.Is(err, db.ErrOtherRequest) {
				return err
			}
		}
	}
	return nil
}

// proposeFacts puts the facts on record that the definition wants remembered and
// a successful call settled.
func (r *Runs) proposeFacts(ctx context.Context, source db.LessonSource, def definition.Definition) error {
	lesson := source.Lesson
	for i, fact := range source.Facts {
		key, wanted := def.Memory.Facts[fact.Key]
		spec, known := r.memoryPolicy.Key(key)
		if !wanted || !known || fact.CallID == "" {
			continue
		}
		candidate := agent.MemoryCandidate{
			Kind: spec.Kind, Key: spec.Name, Value: factValue(spec.Schema, fact.Value), Scope: memoryScope(def, lesson.Room),
			ObservedAt: observed(fact.At, i), SourceType: agent.SourceTrustedTool, SourceID: lesson.Run.RunID + "/" + fact.CallID, Writer: "tool/" + fact.Tool + "@" + fact.ToolVersion,
		}
		if metadataProblem(candidate) != "" {
			continue
		}
		_, err := r.putOnRecord(ctx, proposal{
			id: memoryID(lesson.Run.Scope.Tenant, "fact", lesson.Run.RunID, fact.CallID, fact.Key), room: lesson.Room, runID: lesson.Run.RunID, candidate: candidate,
		})
		if err != nil && !errors.Is(err, db.ErrOtherRequest) && !errors.Is(err, db.ErrNotFound) {
			return err
		}
	}
	return nil
}

// observed is when the n-th fact of a run was settled: of two of one moment the later
// one holds.
func observed(at time.Time, n int) *time.Time {
	at = at.UTC().Truncate(time.Microsecond).Add(time.Duration(n) * time.Microsecond)
	return &at
}

// factValue writes a fact, which is text, in the type that the key's schema has.
func factValue(schema json.RawMessage, text string) json.RawMessage {
	var is struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(schema, &is) == nil && is.Type != "string" && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // text can be encoded
	return quoted
}
