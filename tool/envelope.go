package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/fairlead/fairlead/agent"
)

// MaxErrorBytes bounds the message of an error as the model sees it.
const MaxErrorBytes = 2 << 10

// Envelope is the form in which a result reaches the model (TOOL-3): data with
// its origin, never bare text that could pass for an instruction.
type Envelope struct {
	Source      string `json:"source"`
	Trust       Trust  `json:"trust"`
	ContentType string `json:"content_type"`
	// SizeBytes is the size of the stored result.
	SizeBytes int `json:"size_bytes"`
	// Truncated says that Content is not the whole result.
	Truncated bool   `json:"truncated"`
	ResultID  string `json:"result_id"`
	// Note says how to get at the rest; set when Truncated. Clear it where
	// fetch_result is not offered.
	Note string `json:"note,omitempty"`
	// Content is the result itself when that is whole JSON, otherwise a JSON
	// string: the text, or the beginning of text or JSON.
	Content json.RawMessage `json:"content"`
}

// NewEnvelope wraps a result as Execute returns it. Content holds at most
// spec.ExcerptBytes of it (zero means DefaultExcerptBytes), before JSON string
// escapes are counted.
func NewEnvelope(spec Spec, resultID string, result Result) Envelope {
	limit := spec.ExcerptBytes
	if limit == 0 {
		limit = DefaultExcerptBytes
	}
	env := Envelope{
		Source: spec.Source, Trust: spec.Trust, ContentType: result.ContentType,
		SizeBytes: len(result.Content), Truncated: result.Truncated, ResultID: resultID,
	}
	if env.ContentType == "" {
		env.ContentType = ContentJSON
	}
	whole := len(result.Content) <= limit
	if whole && env.ContentType == ContentJSON && json.Valid(result.Content) {
		env.Content = result.Content
		return env
	}
	// Half a document is no document: from here on it is text.
	env.ContentType = ContentText
	shown := excerpt(result.Content, limit)
	env.Content = quote(string(shown))
	switch {
	case !whole:
		env.Truncated = true
		env.Note = fmt.Sprintf("content is the first %d of %d bytes; for more call %s with this result_id and offset %d",
			len(shown), env.SizeBytes, FetchResultName, len(shown))
	case result.Truncated:
		env.Note = "the result was too large and its end was not kept; ask for less"
	}
	if !whole && result.Truncated {
		env.Note += "; the result was too large and its end was not kept"
	}
	return env
}

// Bytes is the envelope as JSON: the same bytes for the same envelope, and
// without HTML escapes, which cost tokens and help nobody.
func (e Envelope) Bytes() []byte {
	if !json.Valid(e.Content) {
		e.Content = quote(string(e.Content))
	}
	return encode(e)
}

// ErrorEnvelope is the form in which a failed call reaches the model (RUN-7):
// {"error":{"code":...,"message":...,"retryable":...}}. Retryable means that
// the same call may succeed later.
func ErrorEnvelope(err *Error) []byte {
	shown := err.shown()
	type body struct {
		Code      agent.ToolErrorCode `json:"code"`
		Message   string              `json:"message"`
		Retryable bool                `json:"retryable"`
	}
	return encode(struct {
		Error body `json:"error"`
	}{body{shown.Code, shown.Message, shown.Transient}})
}

// ErrorHash identifies the same error of the same tool again: SHA-256 in hex
// over tool name, code and message as shown, each preceded by its length.
func ErrorHash(tool string, err *Error) string {
	shown := err.shown()
	h := sha256.New()
	for _, field := range []string{tool, string(shown.Code), shown.Message} {
		h.Write([]byte(strconv.Itoa(len(field)) + ":" + field))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ToolError returns the content-free form that may enter a history.
func (e *Error) ToolError(tool string) *agent.ToolError {
	return &agent.ToolError{Code: e.shown().Code, Hash: ErrorHash(tool, e)}
}

// shown returns the error as the model may see it: a code of the closed set and
// a bounded message of one line. It is idempotent.
func (e *Error) shown() *Error {
	if e == nil {
		return &Error{Code: agent.ToolFailed, Message: "the tool failed"}
	}
	clean := *e
	switch clean.Code {
	case agent.ToolUnknown, agent.ToolInvalidArguments, agent.ToolForbidden, agent.ToolNotFound,
		agent.ToolTimeout, agent.ToolUnavailable, agent.ToolQuota, agent.ToolFailed,
		agent.ToolDeclined, agent.ToolNotConfirmed, agent.ToolConflict, agent.ToolProhibited, agent.ToolOutcomeUnknown:
	default:
		clean.Code = agent.ToolFailed
	}
	clean.Message = oneLine(clean.Message, MaxErrorBytes)
	return &clean
}

func quote(s string) json.RawMessage { return encode(s) }

// encode writes values that cannot fail to be written.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("tool: " + err.Error())
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
