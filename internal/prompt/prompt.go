// Package prompt assembles one model call from what is known of a run: which
// messages go in, in which order, and what is left out when the context window
// is too small (WM-2, WM-3). It is pure and imports package model only.
package prompt

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/model"
)

// ErrOverflow: the parts that are never left out do not fit into the window.
var ErrOverflow = errors.New("context overflow: system prompt, tool schemas, question and newest step exceed the context window")

// Estimated tokens beside the text itself: what providers add around a
// message, a tool schema, and a call.
const (
	perMessage = 8
	perTool    = 16
	perCall    = 16
)

// Input is what a call may be made of.
type Input struct {
	System      string
	Tools       []model.ToolSpec
	FinalSchema json.RawMessage
	// History are the conversation's messages before the question, oldest
	// first.
	History []model.Message
	// Question is the message that the run answers. It always goes in whole.
	Question string
	// Steps are the run's own exchanges, oldest first.
	Steps []Step
	// ContextWindow is shared by input and output; MaxOutputTokens is the most
	// that the response may have.
	ContextWindow   int64
	MaxOutputTokens int64
}

// Step is one response of the model and what came of it. It goes in whole or
// not at all, so that a call and its result are never separated.
type Step struct {
	Text  string
	Calls []model.ToolCall
	// Results has one entry for each call, in call order.
	Results []string
	// Correction tells the model what was wrong with its response; such a step
	// has no calls.
	Correction string
}

// Prompt is an assembled call.
type Prompt struct {
	// Request lacks the name of the model only. Its MaxOutputTokens leaves room
	// for the input.
	Request model.Request
	// InputTokens is a high estimate.
	InputTokens int64
	// OmittedMessages and OmittedSteps count what was left out, oldest first.
	OmittedMessages int
	OmittedSteps    int
}

// Assemble makes a call, or returns ErrOverflow. What is never left out: system
// prompt, schemas, question, and the newest step, without which the model would
// repeat it. The rest of the window is filled with older steps, then with older
// messages, each from the newest backwards.
func Assemble(in Input) (Prompt, error) {
	// A model whose longest output is its whole window must leave half of it.
	reserve := min(in.MaxOutputTokens, in.ContextWindow/2)
	room := in.ContextWindow - reserve
	question := model.Message{Role: model.RoleUser, Text: in.Question}

	used := fixedTokens(in) + messageTokens(question)
	steps := make([][]model.Message, len(in.Steps))
	first := len(in.Steps)
	for i := len(in.Steps) - 1; i >= 0; i-- {
		steps[i] = in.Steps[i].messages()
		cost := messagesTokens(steps[i])
		if used+cost > room && i < len(in.Steps)-1 {
			break
		}
		used += cost
		first = i
	}
	if used > room {
		return Prompt{}, ErrOverflow
	}

	from := len(in.History)
	for i := len(in.History) - 1; i >= 0; i-- {
		cost := messageTokens(in.History[i])
		if used+cost > room {
			break
		}
		used += cost
		from = i
	}
	// An answer without its question says nothing, and some providers refuse a
	// conversation that the assistant opens.
	for from < len(in.History) && in.History[from].Role != model.RoleUser {
		used -= messageTokens(in.History[from])
		from++
	}

	messages := append(slices.Clone(in.History[from:]), question)
	for _, step := range steps[first:] {
		messages = append(messages, step...)
	}
	return Prompt{
		Request: model.Request{
			System: in.System, Messages: messages, Tools: in.Tools, FinalSchema: in.FinalSchema,
			MaxOutputTokens: min(in.MaxOutputTokens, in.ContextWindow-used),
		},
		InputTokens: used, OmittedMessages: from, OmittedSteps: first,
	}, nil
}

func (s Step) messages() []model.Message {
	var messages []model.Message
	if len(s.Calls) > 0 || strings.TrimSpace(s.Text) != "" {
		messages = append(messages, model.Message{Role: model.RoleAssistant, Text: s.Text, Calls: s.Calls})
	}
	for i, call := range s.Calls {
		messages = append(messages, model.Message{Role: model.RoleTool, CallID: call.ID, ToolName: call.Name, Text: s.Results[i]})
	}
	if s.Correction != "" {
		messages = append(messages, model.Message{Role: model.RoleUser, Text: s.Correction})
	}
	return messages
}

func fixedTokens(in Input) int64 {
	tokens := model.EstimateTokens(len(in.System)) + model.EstimateTokens(len(in.FinalSchema)) + perMessage
	for _, tool := range in.Tools {
		tokens += model.EstimateTokens(len(tool.Name)+len(tool.Description)+len(tool.Parameters)) + perTool
	}
	return tokens
}

func messagesTokens(messages []model.Message) (tokens int64) {
	for _, m := range messages {
		tokens += messageTokens(m)
	}
	return tokens
}

func messageTokens(m model.Message) int64 {
	tokens := model.EstimateTokens(len(m.Text)) + perMessage
	for _, call := range m.Calls {
		tokens += model.EstimateTokens(len(call.ID)+len(call.Name)+len(call.Arguments)) + perCall
	}
	return tokens
}
