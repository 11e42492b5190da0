package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
)

// Content types of a Result.
const (
	ContentJSON = "application/json"
	ContentText = "text/plain"
)

// MaxResultBytes is how much of a result is kept.
const MaxResultBytes = 1 << 20

// MaxNoteBytes bounds the note of a result.
const MaxNoteBytes = 256

// replacement stands for what cannot be stored or sent.
const replacement = "\uFFFD"

// Noter is implemented by values that say in one line what they amount to: see
// Result.Note.
type Noter interface{ Note() string }

// JSON makes a Result of any value that encoding/json can write. If v is a
// Noter, the result has its note.
func JSON(v any) (Result, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return Result{}, fmt.Errorf("encode result: %w", err)
	}
	result := Result{Content: bytes.TrimRight(b.Bytes(), "\n"), ContentType: ContentJSON}
	if noter, ok := v.(Noter); ok {
		result.Note = noter.Note()
	}
	return result, nil
}

// Text makes a Result of text.
func Text(s string) Result {
	return Result{Content: []byte(s), ContentType: ContentText}
}

// clean makes a tool's result storable in PostgreSQL and bounded. JSON becomes
// compact, so that offsets into what is stored are offsets into what the model
// saw.
func clean(r Result) (Result, *Error) {
	failed := func(cause string) (Result, *Error) {
		return Result{}, &Error{Code: agent.ToolFailed, Message: "the tool gave an invalid result", Err: errors.New(cause)}
	}
	content := bytes.ToValidUTF8(r.Content, []byte(replacement))
	switch r.ContentType {
	case "", ContentJSON:
		var compact bytes.Buffer
		if err := json.Compact(&compact, content); err != nil {
			return failed("the content is not valid JSON")
		}
		content = storableEscapes(compact.Bytes())
		r.ContentType = ContentJSON
	case ContentText:
		content = bytes.ReplaceAll(content, []byte{0}, []byte(replacement))
	default:
		return failed("the content type is neither application/json nor text/plain")
	}
	r.Truncated = len(content) > MaxResultBytes
	if r.Truncated {
		content, r.ContentType = excerpt(content, MaxResultBytes), ContentText
	}
	r.Content = content
	r.Note = cleanNote(r.Note)
	return r, nil
}

// cleanNote makes a note one line that reads the same wherever it is shown.
func cleanNote(note string) string {
	note = strings.Map(func(r rune) rune {
		if misleading(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(note, replacement))
	return oneLine(strings.TrimSpace(note), MaxNoteBytes)
}

// storableEscapes replaces the escapes of NUL and of lone surrogates in valid
// JSON: PostgreSQL's jsonb refuses them.
func storableEscapes(doc []byte) []byte {
	if !bytes.Contains(doc, []byte(`\u`)) {
		return doc
	}
	out := make([]byte, 0, len(doc))
	for i := 0; i < len(doc); {
		if doc[i] != '\\' {
			out = append(out, doc[i])
			i++
			continue
		}
		if doc[i+1] != 'u' {
			out = append(out, doc[i:i+2]...)
			i += 2
			continue
		}
		unit := escapedUnit(doc[i:])
		switch {
		case unit >= 0xD800 && unit <= 0xDBFF:
			if low := escapedUnit(doc[i+6:]); low >= 0xDC00 && low <= 0xDFFF {
				out = append(out, doc[i:i+12]...)
				i += 12
				continue
			}
			out = append(out, replacement...)
		case unit == 0 || unit >= 0xDC00 && unit <= 0xDFFF:
			out = append(out, replacement...)
		default:
			out = append(out, doc[i:i+6]...)
		}
		i += 6
	}
	return out
}

// escapedUnit returns the UTF-16 unit of the \u escape that s begins with, or
// -1 if it begins with something else.
func escapedUnit(s []byte) int64 {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseInt(string(s[2:6]), 16, 32)
	if err != nil {
		return -1
	}
	return unit
}

// excerpt returns the beginning of valid UTF-8 content, at most limit bytes
// (but at least one rune), ending after a line, an element of JSON or a word if
// one of these ends in the last quarter, and never inside a rune.
func excerpt(content []byte, limit int) []byte {
	if len(content) <= limit {
		return content
	}
	end := max(limit, 0)
	for end > 0 && !utf8.RuneStart(content[end]) {
		end--
	}
	if end == 0 {
		_, size := utf8.DecodeRune(content)
		return content[:size]
	}
	from := end - end/4
	for _, ends := range []string{"\n", ",", " "} {
		if i := bytes.LastIndexAny(content[from:end], ends); i >= 0 {
			return content[:from+i+1]
		}
	}
	return content[:end]
}

// oneLine makes a message safe to show: valid UTF-8, no control characters, at
// most limit bytes.
func oneLine(message string, limit int) string {
	message = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(message, replacement))
	if len(message) <= limit {
		return message
	}
	const mark = "..."
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + mark
}
