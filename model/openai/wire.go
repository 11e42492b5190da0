package openai

import (
	"encoding/json"

	"github.com/fairlead/fairlead/model"
)

// The parts of a response that are read. The SDK's own types serve for
// requests; for responses they are lenient where this package must be strict (a
// field of the wrong type decodes to zero) and cost a kilobyte per array
// element, which a hostile server could use against us. Arrays of fixed length
// make the decoder skip what lies beyond.

// wireBody is one chunk of a stream, or a whole response.
type wireBody struct {
	Model   string          `json:"model"`
	Choices [1]*wireChoice  `json:"choices"` // only one is ever asked for
	Usage   *wireUsage      `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type wireChoice struct {
	Delta        *wireMessage `json:"delta"`   // in a chunk
	Message      *wireMessage `json:"message"` // in a whole response
	FinishReason *string      `json:"finish_reason"`
}

type wireMessage struct {
	Content *string `json:"content"`
	Refusal *string `json:"refusal"`
	// Reasoning text, under either of its names, is not passed on, but it is
	// output that was paid for.
	ReasoningContent json.RawMessage                  `json:"reasoning_content"`
	Reasoning        json.RawMessage                  `json:"reasoning"`
	ToolCalls        *[maxToolCalls + 1]*wireToolCall `json:"tool_calls"`
}

type wireToolCall struct {
	Index    *int64 `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type wireUsage struct {
	PromptTokens        *int64 `json:"prompt_tokens"`
	CompletionTokens    *int64 `json:"completion_tokens"`
	PromptTokensDetails *struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// usage returns nil unless both counts are there and make sense: unknown is not
// zero.
func (u *wireUsage) usage() *model.Usage {
	if u == nil || u.PromptTokens == nil || u.CompletionTokens == nil || *u.PromptTokens < 0 || *u.CompletionTokens < 0 {
		return nil
	}
	usage := &model.Usage{InputTokens: *u.PromptTokens, OutputTokens: *u.CompletionTokens}
	if u.PromptTokensDetails != nil {
		usage.CachedInputTokens = min(max(u.PromptTokensDetails.CachedTokens, 0), usage.InputTokens)
	}
	return usage
}

// wireError is an error object. Code is a string at OpenAI and a number, the
// HTTP status, at some compatible servers.
type wireError struct {
	Code    any    `json:"code"`
	Type    string `json:"type"`
	Message string `json:"message"`
}

// present reports whether an optional value is there: not null and not empty.
func present(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", `""`:
		return false
	}
	return true
}
