package learning

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
)

// maxResponseBytes bounds what Parse reads.
const maxResponseBytes = 128 << 10

var (
	errNotJSON = errors.New("it is not one JSON object of the agreed form")
	errField   = errors.New("a field is missing, doubled or unknown")
	errTooMany = fmt.Errorf("it has more than %d candidates", agent.MaxMemoryCandidates)
	errTime    = errors.New("a time is not in the form of RFC 3339")
)

// Parse reads the proposals from the text of a response: one JSON object of the
// form that Request asks for, in one Markdown fence or none. Text of nothing but
// white space proposes nothing. The error has nothing of the text. Each proposal
// is still to be checked.
func Parse(text string) ([]Proposal, error) {
	if len(text) > maxResponseBytes {
		return nil, fmt.Errorf("parse proposals: the answer has %d bytes, more than %d", len(text), maxResponseBytes)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("parse proposals: %w", errNotJSON)
	}
	text = unfence(strings.TrimSpace(text))
	if text == "" {
		return nil, nil
	}
	proposals, err := parse([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("parse proposals: %w", err)
	}
	return proposals, nil
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

// parse reads strictly. encoding/json alone would take a doubled field, one in
// other letters, and one that is missing.
func parse(text []byte) ([]Proposal, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	var proposals []Proposal
	err := readObject(dec, []string{"candidates"}, map[string]func() error{
		"candidates": func() (err error) {
			proposals, err = readProposals(dec)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errNotJSON
	}
	return proposals, nil
}

func readProposals(dec *json.Decoder) ([]Proposal, error) {
	if !readDelim(dec, '[') {
		return nil, errNotJSON
	}
	var proposals []Proposal
	for dec.More() {
		if len(proposals) == agent.MaxMemoryCandidates {
			return nil, errTooMany
		}
		p, err := readProposal(dec)
		if err != nil {
			return nil, err
		}
		proposals = append(proposals, p)
	}
	if !readDelim(dec, ']') {
		return nil, errNotJSON
	}
	return proposals, nil
}

func readProposal(dec *json.Decoder) (Proposal, error) {
	var p Proposal
	var kind string
	err := readObject(dec, []string{"kind", "key", "quote"}, map[string]func() error{
		"kind":        func() error { return readString(dec, &kind) },
		"key":         func() error { return readString(dec, &p.Key) },
		"value":       func() error { return readValue(dec, &p.Value) },
		"quote":       func() error { return readString(dec, &p.Quote) },
		"valid_from":  func() error { return readTime(dec, &p.ValidFrom) },
		"valid_until": func() error { return readTime(dec, &p.ValidUntil) },
		"retracts":    func() error { return readBool(dec, &p.Retracts) },
	})
	p.Kind = agent.MemoryKind(kind)
	return p, err
}

// readObject reads an object of known fields, none twice, with all required ones.
func readObject(dec *json.Decoder, required []string, fields map[string]func() error) error {
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
	for _, name := range required {
		if !seen[name] {
			return errField
		}
	}
	return nil
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

func readBool(dec *json.Decoder, b *bool) error {
	token, err := dec.Token()
	value, ok := token.(bool)
	if err != nil || !ok && token != nil {
		return errNotJSON
	}
	*b = value
	return nil
}

// readValue keeps the bytes of a value; null is none.
func readValue(dec *json.Decoder, value *json.RawMessage) error {
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return errNotJSON
	}
	if !empty(raw) {
		*value = raw
	}
	return nil
}

// readTime takes null and an empty text as no time.
func readTime(dec *json.Decoder, t **time.Time) error {
	token, err := dec.Token()
	text, ok := token.(string)
	switch {
	case err != nil || !ok && token != nil:
		return errNotJSON
	case text == "":
		return nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return errTime
	}
	at = at.UTC().Truncate(time.Microsecond)
	*t = &at
	return nil
}
