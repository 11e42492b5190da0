// Package prompt assembles one model call from what is known of a run: which
// messages go in, in which order, and what is left out when the context window
// is too small (WM-1..6). It is pure and deterministic: the same input gives the
// same bytes. It reads no store and makes no summaries; its caller is the
// activity that buys the model's next response.
//
// A request is laid out so that what changes least comes first:
//
//	system   the definition's prompt and a fixed note
//	tools    their schemas, and the schema of the final answer
//	summaries of older messages, one context message
//	messages of the conversation in their own words
//	context  facts, prohibitions, run notes, memory, knowledge: one message
//	question
//	steps    the run's own calls and results
package prompt

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/internal/tokens"
	"github.com/fairlead/fairlead/model"
)

// ErrOverflow: the parts that are never left out do not fit. The error is an
// *OverflowError.
var ErrOverflow = errors.New("context overflow")

// OverflowError says which part is to blame; it matches ErrOverflow and is free
// of content.
type OverflowError struct {
	// Part is the largest of the hard parts: one of PartSystem, PartTools,
	// PartFinalSchema, PartState, PartQuestion and PartNewestStep.
	Part string
	// Need is what all hard parts take together, Have what the input may have,
	// in tokens.
	Need, Have int64
}

// Error says what to do as well.
func (e *OverflowError) Error() string {
	return fmt.Sprintf("context overflow: what is never left out takes %d tokens and the input may have %d; the largest part is %s: make it smaller, or use a model with a larger window",
		e.Need, e.Have, e.Part)
}

// Is makes errors.Is(err, ErrOverflow) true.
func (e *OverflowError) Is(target error) bool { return target == ErrOverflow }

// Input is what a call may be made of. Texts are valid UTF-8.
type Input struct {
	System      string
	Tools       []model.ToolSpec
	FinalSchema json.RawMessage

	// Facts and Prohibitions are the session state. They always go in whole.
	Facts        []Fact
	Prohibitions []Prohibition

	// Summaries are of older messages, oldest first.
	Summaries []Summary
	// History are the conversation's messages before the question, oldest
	// first.
	History []Message
	// Memory and Knowledge are what was recalled, best first.
	Memory, Knowledge []Recalled

	// Question is the message that the run answers. It always goes in whole.
	Question string
	// Steps are the run's own exchanges, oldest first.
	Steps []Step

	// Window is shared by input and output; MaxOutputTokens is the most that the
	// response may have.
	Window, MaxOutputTokens int64
	// Budgets are the definition's own: Assemble fills in their defaults.
	Budgets definition.Context
	Tokens  tokens.Counter
}

// Fact is a settled value of the conversation.
type Fact struct {
	Key, Value string
	// Source says where it comes from, such as "tool find_service".
	Source  string
	Version int64
}

// Prohibition is something that the user forbade until it is lifted.
type Prohibition struct {
	ID string
	// Text is in the user's words.
	Text string
	// Tools are those that it covers, if any.
	Tools []string
	// Ask says that it demands the user's confirmation and does not forbid.
	Ask bool
	// Seq is the message that it comes from.
	Seq int64
}

// Summary stands for the messages from FromSeq to ToSeq.
type Summary struct {
	FromSeq, ToSeq int64
	Text           string
}

// Message is one earlier message of the conversation.
type Message struct {
	Seq  int64
	Role model.Role
	Text string
}

// Recalled is one piece of memory or knowledge. It goes in whole or not at all.
type Recalled struct {
	ID, Source, Text string
}

// Step is one response of the model and what came of it.
type Step struct {
	// Step is its number in the run.
	Step  int
	Text  string
	Calls []model.ToolCall
	// Results are matched to calls by Result.CallID. A call without a result is
	// shown as not executed; a result without a call is left out.
	Results []Result
	// Correction tells the model what was wrong with its response; such a step
	// has no calls.
	Correction string
}

// Result is what came of one call.
type Result struct {
	// CallID is the model.ToolCall.ID that it answers.
	CallID string
	Tool   string
	// Envelope is what the model is shown, a JSON document.
	Envelope string
	// ResultID is what fetch_result takes; empty if there is nothing to fetch.
	ResultID string
	// Note is what the tool said about the result in one line.
	Note string
	// Error is set for refused and failed calls.
	Error agent.ToolErrorCode
}

// Prompt is an assembled call.
type Prompt struct {
	// Request lacks the name of the model only. Its MaxOutputTokens leaves room
	// for the input.
	Request model.Request
	Report  Report
}
