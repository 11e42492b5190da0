package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/memorypolicy"
)

// ProposeMemory puts a candidate on record: as rejected and without its content,
// or as proposed. Done again it returns what is on record.
func (r *Runs) ProposeMemory(ctx context.Context, in agent.MemoryWriteInput) (out agent.MemoryVerdict, err error) {
	defer r.contain(agent.ActivityProposeMemory, agent.RunRef{}, &err)
	switch err := in.Validate(); {
	case err != nil:
		return out, refuse(agent.ErrorInvalidRequest, err.Error())
	case in.Candidate == nil:
		return out, refuse(agent.ErrorInvalidRequest, "memory write: there is no candidate")
	}
	if problem := metadataProblem(*in.Candidate); problem != "" {
		return out, refuse(agent.ErrorInvalidRequest, "memory write: "+problem)
	}
	c, err := r.putOnRecord(ctx, proposal{id: in.ID, room: in.Room, candidate: *in.Candidate})
	if errors.Is(err, db.ErrOtherRequest) {
		return out, refuse(agent.ErrorMemoryConflict, "the ID was used for another candidate")
	}
	return c.Verdict(), r.memoryFault(ctx, agent.ActivityProposeMemory, in.ID, err)
}

// metadataProblem says what keeps a candidate from being put on record at all.
// What the policy says of it is another matter.
func metadataProblem(c agent.MemoryCandidate) string {
	const most = 256
	for _, text := range []struct{ name, value string }{
		{"source_id", c.SourceID}, {"writer", c.Writer}, {"message_id", c.MessageID}, {"scope", c.Scope.ID}, {"key", c.Key}, {"purpose", c.Purpose},
	} {
		if len(text.value) > most || storable(text.value) != text.value {
			return text.name + " must be valid UTF-8 without NUL, of at most 256 bytes"
		}
	}
	switch {
	case c.SourceID == "" || c.Writer == "":
		return "source_id and writer must not be empty"
	case len(c.Value) > agent.MaxMemoryValueBytes:
		return "the value is too large"
	case len(c.Quote) > agent.MaxMemoryQuoteBytes || storable(c.Quote) != c.Quote:
		return "the quote must be valid UTF-8 without NUL, and is bounded"
	}
	return ""
}

// proposal is a candidate on its way to the record. runID is the run that it
// comes from, and message the whole message that it quotes, if any.
type proposal struct {
	id        string
	room      agent.MemoryRoom
	runID     string
	message   string
	candidate agent.MemoryCandidate
}

// putOnRecord has the policy judge a proposal and records it: db.ErrOtherRequest if
// the ID was used for another one.
func (r *Runs) putOnRecord(ctx context.Context, p proposal) (db.MemoryCandidate, error) {
	if r.memory == nil {
		return db.MemoryCandidate{}, errNoMemory
	}
	now := r.moment()
	content := p.candidate
	content.Plan = nil
	d := r.memoryPolicy.Evaluate(memorypolicy.Candidate{MemoryCandidate: content, Room: p.room, Message: p.message, Now: now})
	c := db.MemoryCandidate{
		ID: p.id, Room: p.room, RunID: p.runID, Scope: d.Scope, Content: &content,
		Kind: content.Kind, Key: content.Key, SourceType: content.SourceType, SourceID: content.SourceID, Writer: content.Writer,
		State: agent.MemoryProposed, Rules: d.Rules, PolicyVersion: r.memoryPolicy.Version(), PolicyDigest: r.memoryPolicy.Digest(),
		CreatedAt: now, UpdatedAt: now,
	}
	if d.Outcome == memorypolicy.Reject {
		c.State = agent.MemoryRejected
		if c.Scope == (agent.MemoryScope{}) {
			c.Scope = narrowest(c.Room)
		}
		if _, known := r.memoryPolicy.Key(c.Key); !known {
			c.Key = "" // it is content
		}
		if !d.SafeMetadata {
			c.Kind, c.SourceType, c.SourceID, c.Writer = "", "", "", ""
		}
	}
	stored, err := r.memory.ProposeMemory(ctx, c)
	if err != nil {
		return db.MemoryCandidate{}, err
	}
	r.log.Info("memory proposed", zap.String("memory_id", stored.ID), zap.String("state", string(stored.State)), zap.Strings("rules", ruleIDs(stored.Rules)))
	return stored, nil
}

// narrowest is where what names no scope is seen.
func narrowest(room agent.MemoryRoom) agent.MemoryScope {
	if room.Group != "" {
		return agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: room.Group}
	}
	return agent.MemoryScope{Kind: agent.MemoryOfUser, ID: room.Scope.User}
}

// JudgeMemory decides about a candidate on record: it is stored, merged, takes
// the place of what is in force, is rejected, or waits for a person. Done again
// it returns what was decided.
func (r *Runs) JudgeMemory(ctx context.Context, in agent.MemoryWriteInput) (out agent.MemoryVerdict, err error) {
	defer r.contain(agent.ActivityJudgeMemory, agent.RunRef{}, &err)
	if err := in.Validate(); err != nil {
		return out, refuse(agent.ErrorInvalidRequest, err.Error())
	}
	out, err = r.judgeMemory(ctx, in)
	return out, r.memoryFault(ctx, agent.ActivityJudgeMemory, in.ID, err)
}

func (r *Runs) judgeMemory(ctx context.Context, in agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
	c, err := r.candidate(ctx, in.Room, in.ID)
	if err != nil || c.State != agent.MemoryProposed {
		return c.Verdict(), err
	}
	work, done := r.bound(ctx, time.Now().Add(judgeTimeout), 0)
	defer done()
	verdict, _, err := r.decideMemory(work, c, nil)
	return verdict, err
}

// judgeTimeout bounds one judgment or settlement, the embedding included.
const judgeTimeout = 30 * time.Second

// candidate reads a candidate as a workflow names it.
func (r *Runs) candidate(ctx context.Context, room agent.MemoryRoom, id string) (db.MemoryCandidate, error) {
	if r.memory == nil {
		return db.MemoryCandidate{}, errNoMemory
	}
	return r.memory.MemoryCandidate(ctx, room, id)
}

// errNoMemory: this worker was made without a Memory; another one may have it.
var errNoMemory = fmt.Errorf("%w: this worker has no memory", errRetry)

func errNoCandidate() error {
	return refuse(agent.ErrorMemoryMissing, "there is nothing to decide about: the candidate is not there, "+
		"it was forgotten since, its user takes no part in the group or project any more, or was erased")
}

// memoryFault is fault for an activity about one memory, or about none in
// particular.
func (r *Runs) memoryFault(ctx context.Context, name, id string, err error) error {
	if gone(err) {
		err = errNoCandidate()
	}
	return r.faultOf(ctx, name, err, zap.String("memory_id", id))
}

// gone reports whether what was asked for is not there for the user any more, or
// the user was erased.
func gone(err error) bool {
	return errors.Is(err, db.ErrNotFound) || errors.Is(err, db.ErrErased) || errors.Is(err, db.ErrKeysDestroyed)
}

// moment is now, with the precision of the database.
func (r *Runs) moment() time.Time { return r.now().UTC().Truncate(time.Microsecond) }

// memoryNamespace makes the IDs of records and candidates, so that doing the work
// again gives the same ones.
var memoryNamespace = uuid.MustParse("0f4b2a53-5a0e-4f43-9a32-8d5f0b8b6a11")

func memoryID(parts ...string) string {
	return uuid.NewSHA1(memoryNamespace, []byte(strings.Join(parts, "\n"))).String()
}

func ruleIDs(rules []agent.MemoryRule) []string {
	ids := make([]string, len(rules))
	for i, rule := range rules {
		ids[i] = rule.ID
	}
	return ids
}
