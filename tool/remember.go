package tool

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/agent"
)

// RememberName is the name of the built-in tool that NewRemember makes.
const RememberName = "remember"

// MemoryProposal is what a model proposes to remember. All of it is content.
type MemoryProposal struct {
	// Kind may be empty: the key says it.
	Kind agent.MemoryKind
	Key  string
	// Value is a JSON value.
	Value json.RawMessage
	// Quote are the user's words that it rests on.
	Quote string
}

// MemoryProposed is what became of a proposal, for the model. None of it says
// that anything was saved: that is decided after the run.
type MemoryProposed struct {
	// State is MemoryProposed, MemoryRejected or MemoryNotSaved.
	State agent.MemoryState `json:"state"`
	// Reason is the rule that refuses it.
	Reason string `json:"reason,omitempty"`
}

// MemoryProposer takes proposals of memories. It is safe for concurrent use.
type MemoryProposer interface {
	// ProposeMemory judges a proposal and puts it on record. A call is one
	// proposal, however often it is made. The error is ctx's, or not for the model.
	ProposeMemory(ctx context.Context, call Invocation, p MemoryProposal) (MemoryProposed, error)
}

// MemoryKey is one key of the registry, for the model.
type MemoryKey struct {
	Name, Description string
	// Schema is the JSON Schema of a value.
	Schema json.RawMessage
}

// NewRemember returns the fast read tool by which a model proposes to remember
// what the user said. It changes nothing by itself: what is proposed is judged by
// the memory policy, and by people where that says so, after the run.
// The model is told of the keys; with none it may name any.
func NewRemember(proposer MemoryProposer, keys ...MemoryKey) Tool { return remember{proposer, keys} }

type remember struct {
	proposer MemoryProposer
	keys     []MemoryKey
}

type rememberArgs struct {
	Kind  agent.MemoryKind `json:"kind"`
	Key   string           `json:"key"`
	Value json.RawMessage  `json:"value"`
	Quote string           `json:"quote"`
}

// Spec implements Tool.
func (r remember) Spec() Spec {
	description := "Proposes to remember, beyond this conversation, something that the user said in the message that you are answering. " +
		"Use it only for what the user states as lasting, such as a preference; never for one task, for what others said, or for secrets. " +
		"A proposal is checked later and may be refused: do not tell the user that it was saved."
	key := map[string]any{"type": "string", "minLength": 1, "maxLength": 128, "description": "key of the registry of memories"}
	if len(r.keys) > 0 {
		names := make([]string, len(r.keys))
		description += " The keys, with the JSON Schema of their values:"
		for i, k := range r.keys {
			names[i] = k.Name
			description += "\n" + k.Name + ": " + k.Description + " " + string(k.Schema)
		}
		key["enum"] = names
	}
	return Spec{
		Name:        RememberName,
		Version:     "1",
		Description: description,
		Parameters: schemaOf(map[string]any{
			"kind": map[string]any{
				"type": "string", "description": "what it is; the key's own if absent",
				"enum": []agent.MemoryKind{agent.MemoryPreference, agent.MemoryFact, agent.MemoryTask, agent.MemorySummary, agent.MemoryExperience},
			},
			"key":   key,
			"value": map[string]any{"description": "the value, as the key takes it"},
			"quote": map[string]any{
				"type": "string", "minLength": 1, "maxLength": agent.MaxMemoryQuoteBytes,
				"description": "the user's words that say so, copied from the message character for character",
			},
		}, "key", "value", "quote"),
		Risk:   Read,
		Fast:   true,
		Source: "memory",
		Trust:  Authoritative,
	}
}

func schemaOf(properties map[string]any, required ...string) json.RawMessage {
	text, err := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false})
	if err != nil {
		panic("tool: " + err.Error()) // They are texts and numbers.
	}
	return text
}

// Execute implements Tool.
func (r remember) Execute(ctx context.Context, call Invocation) (Result, error) {
	args, err := DecodeArgs[rememberArgs](call.Arguments)
	if err != nil {
		return Result{}, &Error{Code: agent.ToolInvalidArguments, Message: "the arguments do not fit this tool", Err: err}
	}
	proposed, err := r.proposer.ProposeMemory(ctx, call, MemoryProposal(args))
	switch {
	case err != nil && ctx.Err() != nil:
		return Result{}, err
	case err != nil:
		return Result{}, &Error{Code: agent.ToolUnavailable, Message: "the proposal could not be taken; nothing was saved", Transient: true, Err: err}
	}
	return JSON(proposed)
}
