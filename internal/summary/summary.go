// Package summary asks a model for the summary of a range of messages, and
// checks by fixed rules that the summary lost, changed and invented nothing
// that counts (CONV-2): prohibitions, identifiers, numbers, negations. What the
// checks do not accept is used for nothing.
//
// A check that finds too much costs one more try; one that finds too little
// costs a wrong refund. The rules therefore are strict where the text leaves no
// doubt, and the request tells the model beforehand what they will look for.
//
// The package is pure. It may import package model, internal/session,
// internal/tokens and golang.org/x/text; activities call it.
package summary

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// PromptVersion names the request that Next makes and the checks of it. It is
// stored with every summary.
const PromptVersion = "conversation-summary-1"

// Message is one original message.
type Message struct {
	Seq int64
	// Role is "user" for what the user wrote. Only a user's message has
	// prohibitions.
	Role, Text string
}

// Summary is what the model makes of a range of messages.
type Summary struct {
	// Summary is prose.
	Summary string `json:"summary"`
	// Decisions are what was settled.
	Decisions []Decision `json:"decisions"`
	OpenTasks []string   `json:"open_tasks"`
	// Prohibitions are the user's own words.
	Prohibitions []Quote `json:"prohibitions"`
	// Identifiers are those of the messages, and their numbers, as written
	// there. What the prose has need not be here.
	Identifiers []string `json:"identifiers"`
}

// Decision is one thing that was settled.
type Decision struct {
	// Key is the model's name for it.
	Key string `json:"key"`
	// Value is words of the message SourceSeq.
	Value     string `json:"value"`
	SourceSeq int64  `json:"source_seq"`
}

// Quote is words of the message SourceSeq, byte for byte.
type Quote struct {
	Text      string `json:"text"`
	SourceSeq int64  `json:"source_seq"`
}

// maxResponseBytes bounds what Parse reads.
const maxResponseBytes = 256 << 10

// Parse reads a summary from the text of a response: one JSON object with each
// field of Summary exactly once and no other, in one Markdown fence or none.
// Text of nothing but white space is the empty summary, which Check refuses as
// such. The error has nothing of the text.
func Parse(text string) (Summary, error) {
	if len(text) > maxResponseBytes {
		return Summary{}, fmt.Errorf("parse summary: it has %d bytes, more than %d", len(text), maxResponseBytes)
	}
	text = unfence(strings.TrimSpace(text))
	if text == "" {
		return Summary{}, nil
	}
	s, err := parse([]byte(text))
	if err != nil {
		return Summary{}, fmt.Errorf("parse summary: %w", err)
	}
	return s, nil
}

// unfence removes the Markdown fence that many models put around JSON.
func unfence(text string) string {
	rest, opened := strings.CutPrefix(text, "```")
	inner, closed := strings.CutSuffix(rest, "```")
	if !opened || !closed {
		return text
	}
	if info, body, ok := strings.Cut(inner, "\n"); ok && (strings.TrimSpace(info) == "" || strings.EqualFold(strings.TrimSpace(info), "json")) {
		return strings.TrimSpace(body)
	}
	return text
}

// Bytes returns the form in which s is stored: JSON with every field, the same
// bytes for the same summary. Stored and Parse read it.
func (s Summary) Bytes() []byte {
	if s.Decisions == nil {
		s.Decisions = []Decision{}
	}
	if s.OpenTasks == nil {
		s.OpenTasks = []string{}
	}
	if s.Prohibitions == nil {
		s.Prohibitions = []Quote{}
	}
	if s.Identifiers == nil {
		s.Identifiers = []string{}
	}
	return encode(s)
}

// Stored returns what the prompt shows of a summary that was stored: the same
// JSON without what is empty. It fails for content that Bytes did not make.
func Stored(content []byte) (string, error) {
	s, err := parse(content)
	if err != nil {
		return "", fmt.Errorf("read stored summary: %w", err)
	}
	return string(encode(struct {
		Summary      string     `json:"summary"`
		Decisions    []Decision `json:"decisions,omitempty"`
		OpenTasks    []string   `json:"open_tasks,omitempty"`
		Prohibitions []Quote    `json:"prohibitions,omitempty"`
		Identifiers  []string   `json:"identifiers,omitempty"`
	}(s))), nil
}

// encode writes value as compact JSON with the characters of HTML as they are.
func encode(value any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		panic(err) // strings, numbers and lists of them can be encoded
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

var (
	errNotJSON = errors.New("it is not one JSON object of the agreed form")
	errField   = errors.New("a field is missing, doubled or unknown")
)

// parse reads a summary strictly. encoding/json alone would take a doubled
// field, one in other letters, and one that is missing.
func parse(text []byte) (Summary, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	var s Summary
	if err := readObject(dec, map[string]func() error{
		"summary":      func() error { return readString(dec, &s.Summary) },
		"decisions":    func() error { return readList(dec, &s.Decisions, readDecision) },
		"open_tasks":   func() error { return readList(dec, &s.OpenTasks, readString) },
		"prohibitions": func() error { return readList(dec, &s.Prohibitions, readQuote) },
		"identifiers":  func() error { return readList(dec, &s.Identifiers, readString) },
	}); err != nil {
		return Summary{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Summary{}, errNotJSON
	}
	return s, nil
}

// readObject reads an object that has each of the fields once.
func readObject(dec *json.Decoder, fields map[string]func() error) error {
	if !readDelim(dec, '{') {
		return errNotJSON
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return errNotJSON
		}
		read, known := fields[name]
		if !known || seen[name] {
			return errField
		}
		seen[name] = true
		if err := read(); err != nil {
			return err
		}
	}
	if !readDelim(dec, '}') {
		return errNotJSON
	}
	if len(seen) != len(fields) {
		return errField
	}
	return nil
}

func readList[T any](dec *json.Decoder, list *[]T, read func(*json.Decoder, *T) error) error {
	if !readDelim(dec, '[') {
		return errNotJSON
	}
	for dec.More() {
		var item T
		if err := read(dec, &item); err != nil {
			return err
		}
		*list = append(*list, item)
	}
	if !readDelim(dec, ']') {
		return errNotJSON
	}
	return nil
}

func readDecision(dec *json.Decoder, d *Decision) error {
	return readObject(dec, map[string]func() error{
		"key":        func() error { return readString(dec, &d.Key) },
		"value":      func() error { return readString(dec, &d.Value) },
		"source_seq": func() error { return readInteger(dec, &d.SourceSeq) },
	})
}

func readQuote(dec *json.Decoder, q *Quote) error {
	return readObject(dec, map[string]func() error{
		"text":       func() error { return readString(dec, &q.Text) },
		"source_seq": func() error { return readInteger(dec, &q.SourceSeq) },
	})
}

func readDelim(dec *json.Decoder, want json.Delim) bool {
	token, err := dec.Token()
	return err == nil && token == want
}

func readString(dec *json.Decoder, s *string) error {
	token, err := dec.Token()
	text, ok := token.(string)
	if err != nil || !ok {
		return errNotJSON
	}
	*s = text
	return nil
}

// readInteger reads a number without a fraction; Decode alone takes null.
func readInteger(dec *json.Decoder, n *int64) error {
	var pointer *int64
	if err := dec.Decode(&pointer); err != nil || pointer == nil {
		return errNotJSON
	}
	*n = *pointer
	return nil
}
