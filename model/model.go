// Package model is the boundary to language models: one small interface with
// neutral types, streaming from the start (MODEL-1), and the catalogue of what
// each model costs and can hold (MODEL-3).
//
// Adapters live in subpackages and make exactly one attempt per call: retries
// are decided in one place, the run's loop. The package knows nothing of
// Temporal or the database.
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Model generates one response. Implementations are safe for concurrent use
// and never retry.
type Model interface {
	// Generate makes one attempt. Each delta is given to stream in order, from
	// the calling goroutine; stream may be nil, and adapters stream from the
	// provider either way. On success the Response is complete. A failure is an
	// *Error unless ctx ended, in which case the error wraps ctx.Err().
	Generate(ctx context.Context, req Request, stream func(Delta)) (Response, error)
}

// Request is one model call in neutral form.
type Request struct {
	// Model is the provider's name of the model.
	Model string
	// System is the system prompt; it comes first and is byte-stable between
	// the calls of a run.
	System   string
	Messages []Message
	Tools    []ToolSpec
	// MaxOutputTokens bounds the response; it is always set.
	MaxOutputTokens int64
	// FinalSchema, if not nil, is a JSON Schema for the final answer. Adapters
	// pass it on where the provider supports it; the caller validates anyway.
	FinalSchema json.RawMessage
}

// Role is who a message is from.
type Role string

// The roles of messages. System text travels in Request.System.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one turn of the conversation.
type Message struct {
	Role Role
	Text string
	// Calls are the tool calls of an assistant message.
	Calls []ToolCall
	// CallID says which call a tool message answers.
	CallID string
	// ToolName is the name of the tool that a tool message comes from.
	ToolName string
}

// ToolSpec offers one tool to the model.
type ToolSpec struct {
	Name        string
	Description string
	// Parameters is a JSON Schema (2020-12) of type object.
	Parameters json.RawMessage
}

// ToolCall is a call that the model proposes.
type ToolCall struct {
	// ID is the provider's; it pairs call and result on the wire.
	ID   string
	Name string
	// Arguments is the text as the model wrote it, valid JSON or not.
	Arguments string
}

// Delta is one streamed piece.
type Delta struct {
	// Text is visible answer text; empty for pieces of tool calls.
	Text string
	// ToolCall says that the piece belongs to a tool call.
	ToolCall bool
}

// FinishReason says why the model stopped.
type FinishReason string

// The closed set of finish reasons. Anything else a provider says is an *Error
// of KindMalformed.
const (
	FinishStop          FinishReason = "stop"
	FinishToolCalls     FinishReason = "tool_calls"
	FinishLength        FinishReason = "length"
	FinishContentFilter FinishReason = "content_filter"
)

// Response is one complete model response.
type Response struct {
	// Text is the concatenation of the deltas that were streamed.
	Text string
	// Calls is not empty exactly when Finish is FinishToolCalls: a call that
	// was cut off by a length limit or a filter is dropped, never half run. IDs
	// are not empty and are unique within the response.
	Calls  []ToolCall
	Finish FinishReason
	// Usage is nil when the provider reported none: unknown, not zero.
	Usage *Usage
	// Revision is the exact model that answered, as the provider names it.
	Revision string
	// RequestID is the provider's identifier of the exchange.
	RequestID string
}

// Usage is the provider's own count of tokens.
type Usage struct {
	InputTokens int64
	// CachedInputTokens is the part of InputTokens that the provider took from
	// its prompt cache.
	CachedInputTokens int64
	OutputTokens      int64
}

// Kind classifies a failed attempt.
type Kind string

// The closed set of failure kinds.
const (
	KindRateLimited     Kind = "rate_limited"
	KindUnavailable     Kind = "unavailable"
	KindTimeout         Kind = "timeout"
	KindAuthentication  Kind = "authentication"
	KindInvalidRequest  Kind = "invalid_request"
	KindContextOverflow Kind = "context_overflow"
	KindContentPolicy   Kind = "content_policy"
	KindMalformed       Kind = "malformed"
)

// Error is a failed attempt. Its text is safe for logs: it never contains the
// provider's message, which may repeat what was sent.
type Error struct {
	Kind Kind
	// StatusCode is the HTTP status, zero when there was no response.
	StatusCode int
	// RetryAfter is the wait that the provider asked for, zero if none.
	RetryAfter time.Duration
	// OutputStarted says that some output had been received: another attempt
	// would be a second answer, not a retry.
	OutputStarted bool
	// Usage is what the provider had reported before the failure, usually nil.
	Usage *Usage
	// RequestID is the provider's identifier of the exchange, if any.
	RequestID string
	// Err is the cause, for people. Error does not print it, but code that walks
	// the chain may, so adapters put nothing there that came from content,
	// credentials or the address of the provider.
	Err error
}

// Error names kind and status only.
func (e *Error) Error() string {
	if e.StatusCode != 0 {
		return fmt.Sprintf("model call failed: %s (HTTP %d)", e.Kind, e.StatusCode)
	}
	return fmt.Sprintf("model call failed: %s", e.Kind)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the same request may succeed on another attempt:
// rate limits, unavailability and time-outs before any output (RUN-8).
func (e *Error) Retryable() bool {
	if e.OutputStarted {
		return false
	}
	return e.Kind == KindRateLimited || e.Kind == KindUnavailable || e.Kind == KindTimeout
}
