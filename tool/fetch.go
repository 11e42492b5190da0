package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
)

// FetchResultName is the name of the built-in tool that NewFetchResult makes.
const FetchResultName = "fetch_result"

const (
	defaultFetchBytes = 4 << 10
	maxFetchBytes     = 16 << 10
	// maxFetchedJSON bounds a chunk after JSON escapes, so that the envelope
	// never cuts what was asked for: it would have to be fetched again.
	maxFetchedJSON = 32 << 10
)

// ErrResultNotFound is returned by a ResultReader for a result that does not
// exist or is not the reader's to see; the two are not told apart.
var ErrResultNotFound = errors.New("result not found")

// ResultReader reads stored results. It is safe for concurrent use.
type ResultReader interface {
	// ReadResult returns up to limit bytes from offset, and the size of the
	// whole result in bytes. An offset at or beyond the end gives no bytes and
	// no error. Only results of this run, in this scope, are found: that is the
	// reader's duty, because the model chooses resultID.
	ReadResult(ctx context.Context, scope agent.Scope, runID, resultID string, offset, limit int64) (chunk []byte, total int64, err error)
}

// NewFetchResult returns the fast read tool by which the model gets more of a
// result than its envelope showed (TOOL-3).
func NewFetchResult(reader ResultReader) Tool { return fetchResult{reader} }

type fetchResult struct{ reader ResultReader }

type fetchArgs struct {
	ResultID string `json:"result_id"`
	Offset   int64  `json:"offset"`
	Limit    int64  `json:"limit"`
}

// fetched is the result; NextOffset is absent at the end.
type fetched struct {
	ResultID   string `json:"result_id"`
	Offset     int64  `json:"offset"`
	NextOffset int64  `json:"next_offset,omitempty"`
	TotalBytes int64  `json:"total_bytes"`
	Text       string `json:"text"`
}

// Spec implements Tool.
func (fetchResult) Spec() Spec {
	return Spec{
		Name:    FetchResultName,
		Version: "1",
		Description: "Reads more of an earlier tool result of this run, as text. " +
			"Use it when a result says truncated: pass its result_id and continue at next_offset.",
		Parameters: json.RawMessage(fmt.Sprintf(`{
  "type": "object",
  "properties": {
    "result_id": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$", "description": "result_id of the truncated result"},
    "offset": {"type": "integer", "minimum": 0, "description": "first byte to read, 0 if absent"},
    "limit": {"type": "integer", "minimum": 1, "maximum": %d, "description": "most bytes to read, %d if absent"}
  },
  "required": ["result_id"],
  "additionalProperties": false
}`, maxFetchBytes, defaultFetchBytes)),
		Risk:   Read,
		Fast:   true,
		Source: "result-store",
		// The stored text may come from anywhere.
		Trust:        Untrusted,
		ExcerptBytes: maxFetchedJSON + 1<<10,
	}
}

// Execute implements Tool.
func (f fetchResult) Execute(ctx context.Context, call Invocation) (Result, error) {
	args, err := DecodeArgs[fetchArgs](call.Arguments)
	if err != nil {
		// An integer of the schema that int64 does not hold, such as 1e300.
		return Result{}, &Error{Code: agent.ToolInvalidArguments, Message: "offset or limit is out of range", Err: err}
	}
	if args.Limit == 0 {
		args.Limit = defaultFetchBytes
	}
	// Room for the rune that begins before offset and the one that ends behind.
	chunk, total, err := f.reader.ReadResult(ctx, call.Actor.Scope, call.RunID, args.ResultID, args.Offset, args.Limit+2*utf8.UTFMax)
	switch {
	case errors.Is(err, ErrResultNotFound):
		return Result{}, &Error{Code: agent.ToolNotFound, Message: "there is no result of this result_id in this run", Err: err}
	case err != nil && ctx.Err() != nil:
		return Result{}, err
	case err != nil:
		return Result{}, &Error{Code: agent.ToolUnavailable, Message: "the result could not be read", Transient: true, Err: err}
	}
	skipped, text := window(chunk, int(args.Limit))
	for len(quote(string(text))) > maxFetchedJSON {
		text = text[:runeEnd(text, len(text)*3/4)]
	}
	out := fetched{ResultID: args.ResultID, Offset: args.Offset + int64(skipped), TotalBytes: total, Text: string(text)}
	if next := out.Offset + int64(len(text)); next < total && len(text) > 0 {
		out.NextOffset = next
	}
	return JSON(out)
}

// window returns whole runes from the beginning of chunk, limit bytes of them
// but at least one, and how many bytes of a rune cut by the offset it skipped.
func window(chunk []byte, limit int) (skipped int, text []byte) {
	for skipped < len(chunk) && skipped < utf8.UTFMax && !utf8.RuneStart(chunk[skipped]) {
		skipped++
	}
	text = chunk[skipped:]
	if len(text) <= limit {
		return skipped, text[:runeEnd(text, len(text))]
	}
	if end := runeEnd(text, limit); end > 0 {
		return skipped, text[:end]
	}
	_, size := utf8.DecodeRune(text)
	return skipped, text[:size]
}

// runeEnd returns the largest length up to end that cuts no rune of text.
func runeEnd(text []byte, end int) int {
	start := end
	for start > 0 && end-start < utf8.UTFMax {
		start--
		if utf8.RuneStart(text[start]) {
			if _, size := utf8.DecodeRune(text[start:]); start+size <= end && utf8.FullRune(text[start:end]) {
				return end
			}
			return start
		}
	}
	return end
}
