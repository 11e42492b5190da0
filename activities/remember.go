package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/learning"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/tool"
)

// Remembering is what the tool remember works with. Store and Memory are required;
// the rest is as in Config.
type Remembering struct {
	Store        Store
	Memory       Memory
	MemoryPolicy *memorypolicy.Policy
	Log          *zap.Logger
	Now          func() time.Time
}

// NewRemember returns the tool by which a model proposes memories. What it
// proposes is judged by the policy, put on record, and decided about after the run
// by MemoryWrite; an agent has the tool if its definition lists it.
func NewRemember(c Remembering) tool.Tool {
	r := &Runs{store: c.Store, memory: c.Memory, memoryPolicy: c.MemoryPolicy, log: c.Log, now: c.Now}
	r.defaults()
	var keys []tool.MemoryKey
	for _, k := range r.memoryPolicy.Keys() {
		if k.FromModel {
			keys = append(keys, tool.MemoryKey{Name: k.Name, Description: k.Description, Schema: k.Schema})
		}
	}
	return tool.NewRemember(proposer{r}, keys...)
}

type proposer struct{ runs *Runs }

// Why a proposal is refused that is not judged by the policy.
const (
	// reasonBounds: it is too large, or no text.
	reasonBounds = "bounds"
	// reasonRoom: nothing is remembered of the user, or in the group, any more.
	reasonRoom = "room"
	// reasonForgotten: the user has had it forgotten since the run began.
	reasonForgotten = "forgotten"
)

// ProposeMemory implements tool.MemoryProposer.
func (p proposer) ProposeMemory(ctx context.Context, call tool.Invocation, proposed tool.MemoryProposal) (tool.MemoryProposed, error) {
	ref := agent.RunRef{Scope: call.Actor.Scope, RunID: call.RunID}
	c, err := p.runs.propose(ctx, ref, call.CallID, proposed)
	switch {
	case errors.Is(err, errUnbounded):
		return tool.MemoryProposed{State: agent.MemoryRejected, Reason: reasonBounds}, nil
	case errors.Is(err, db.ErrForgotten):
		return tool.MemoryProposed{State: agent.MemoryRejected, Reason: reasonForgotten}, nil
	case errors.Is(err, db.ErrErased) || errors.Is(err, errRoom):
		return tool.MemoryProposed{State: agent.MemoryRejected, Reason: reasonRoom}, nil
	case errors.Is(err, db.ErrUnavailable) || keysAway(err):
		p.runs.log.Warn("a proposed memory is not saved", zap.String("run_id", ref.RunID), zap.String("call_id", call.CallID), zap.String("cause", err.Error()))
		return tool.MemoryProposed{State: agent.MemoryNotSaved}, nil
	case err != nil:
		return tool.MemoryProposed{}, err
	}
	out := tool.MemoryProposed{State: agent.MemoryProposed}
	if c.State == agent.MemoryRejected {
		out.State = agent.MemoryRejected
		if n := len(c.Rules); n > 0 {
			out.Reason = c.Rules[n-1].ID
		}
	}
	return out, nil
}

var (
	errUnbounded = errors.New("the proposal is too large")
	errRoom      = errors.New("the user does not take part in the room")
)

// propose puts what a model proposes on record. The evidence is the message that
// the run answers, without what the user only quotes in it.
func (r *Runs) propose(ctx context.Context, ref agent.RunRef, callID string, proposed tool.MemoryProposal) (db.MemoryCandidate, error) {
	run, question, err := questionOf(ctx, r.store, ref)
	if err != nil {
		return db.MemoryCandidate{}, err
	}
	def, err := r.definition(ctx, run.DefinitionDigest)
	if err != nil {
		return db.MemoryCandidate{}, err
	}
	candidate := agent.MemoryCandidate{
		Kind: proposed.Kind, Key: proposed.Key, Value: proposed.Value, Scope: memoryScope(def, run.Room()),
		SourceType: agent.SourceUserStatement, SourceID: question.ID, Writer: writerOf(run),
		MessageID: question.ID, Quote: proposed.Quote,
	}
	if key, known := r.memoryPolicy.Key(candidate.Key); known && candidate.Kind == "" {
		candidate.Kind = key.Kind
	}
	if metadataProblem(candidate) != "" {
		return db.MemoryCandidate{}, errUnbounded
	}
	own, _ := learning.Strip(question.Content)
	c, err := r.putOnRecord(ctx, proposal{id: proposalID(ref, callID), room: run.Room(), runID: run.ID, message: own, candidate: candidate})
	if errors.Is(err, db.ErrNotFound) && !errors.Is(err, db.ErrForgotten) {
		return c, errRoom
	}
	return c, err
}

// proposalID names what a call proposes: the same when it is executed again.
func proposalID(ref agent.RunRef, callID string) string {
	sum := sha256.Sum256([]byte(ref.Scope.Tenant + "\n" + ref.RunID + "\n" + callID))
	return "remember-" + hex.EncodeToString(sum[:16])
}

// writerOf names the model that proposes a memory while its run is under way.
func writerOf(run db.Run) string {
	return memorypolicy.ModelWriter + run.Agent + "@" + run.DefinitionVersion
}

// memoryScope is where the definition wants what is learned to be seen; zero is
// the narrowest. In a group it is always the group.
func memoryScope(def definition.Definition, room agent.MemoryRoom) agent.MemoryScope {
	scope := agent.MemoryScope{Kind: agent.MemoryScopeKind(def.Memory.Bounds(def.Model).Scope)}
	switch {
	case room.Group != "":
		return agent.MemoryScope{}
	case scope.Kind == agent.MemoryOfConversation:
		scope.ID = room.Conversation
	case scope.Kind == agent.MemoryOfProject && room.Project != "":
		scope.ID = room.Project
	default:
		return agent.MemoryScope{}
	}
	return scope
}
