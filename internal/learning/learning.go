// Package learning asks a model what of a user's message is worth remembering,
// and checks its answer (LTM-5). It prepares the message first: what the user
// quotes, pastes or forwards is not the user's statement and is never learned
// from, and chatter is not worth a model call. Whether a proposal is kept is
// decided by package memorypolicy, not here.
//
// The package is pure. It may import packages agent, model and memorypolicy,
// internal/tokens and golang.org/x/text; activities call it.
package learning

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
)

// PromptVersion names the request that Request makes and the checks of its
// answer. It is recorded with what was learned.
const PromptVersion = "memory-extraction-1"

// Proposal is what the model proposes to remember. Key, Value and Quote are
// content; whichever way it is printed, it shows none of it.
type Proposal struct {
	Kind agent.MemoryKind
	Key  string
	// Value is a JSON value, nil if there is none. With Retracts it has the fields
	// that tell which record is taken back.
	Value json.RawMessage
	// Quote are the user's words that it rests on.
	Quote string
	// ValidFrom and ValidUntil are in UTC, nil for unbounded.
	ValidFrom  *time.Time
	ValidUntil *time.Time
	// Retracts says that the user takes back what is remembered under the key.
	Retracts bool
}

// Format implements fmt.Formatter: every verb prints the kind alone.
func (p Proposal) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, "proposed "+string(p.Kind))
}

// Candidate returns p as a candidate: a statement of the user in that message.
// The scope is left for the policy and the agent's definition to say.
func (p Proposal) Candidate(messageID, writer string) agent.MemoryCandidate {
	return agent.MemoryCandidate{
		Kind: p.Kind, Key: p.Key, Value: p.Value, Quote: p.Quote, ValidFrom: p.ValidFrom, ValidUntil: p.ValidUntil, Retracts: p.Retracts,
		SourceType: agent.SourceUserStatement, SourceID: messageID, MessageID: messageID, Writer: writer,
	}
}

// Problems that Check finds. Their texts are stable and hold no content.
var (
	ErrKind        = errors.New("the kind is none of the closed set")
	ErrKey         = errors.New("the key is empty or too long")
	ErrNoValue     = errors.New("there is no value, and nothing is taken back")
	ErrValueSize   = errors.New("the value is too large")
	ErrNoQuote     = errors.New("there is no quote")
	ErrQuoteSize   = errors.New("the quote is too long")
	ErrNotQuoted   = errors.New("the quote is not in the user's own words")
	ErrPartOfAWord = errors.New("the quote begins or ends inside of a word")
	ErrTimes       = errors.New("the times are not in order, or beyond what is kept")
)

const (
	maxKeyBytes = 128
	// minYear and maxYear catch slips; what is true for ever has no bound.
	minYear = 1900
	maxYear = 2200
)

// Check returns what is wrong with a proposal, nil if nothing is: it is bounded,
// and its quote stands, byte for byte and in whole words, in own, which is what
// Strip leaves of the message.
func Check(own string, p Proposal) error {
	switch {
	case !p.Kind.Valid():
		return ErrKind
	case p.Key == "" || len(p.Key) > maxKeyBytes:
		return ErrKey
	case empty(p.Value) && !p.Retracts:
		return ErrNoValue
	case len(p.Value) > agent.MaxMemoryValueBytes:
		return ErrValueSize
	case !strings.ContainsFunc(p.Quote, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }):
		return ErrNoQuote
	case len(p.Quote) > agent.MaxMemoryQuoteBytes:
		return ErrQuoteSize
	case !utf8.ValidString(p.Quote) || strings.Contains(p.Quote, Gap) || !strings.Contains(own, p.Quote):
		return ErrNotQuoted
	case !wholeWords(own, p.Quote):
		return ErrPartOfAWord
	case outOfRange(p.ValidFrom) || outOfRange(p.ValidUntil) || p.ValidFrom != nil && p.ValidUntil != nil && !p.ValidFrom.Before(*p.ValidUntil):
		return ErrTimes
	}
	return nil
}

func empty(value json.RawMessage) bool {
	text := strings.TrimSpace(string(value))
	return text == "" || text == "null"
}

func outOfRange(t *time.Time) bool {
	return t != nil && (t.Year() < minYear || t.Year() > maxYear)
}

// wholeWords reports whether quote stands in text without cutting a word.
func wholeWords(text, quote string) bool {
	first, _ := utf8.DecodeRuneInString(quote)
	last, _ := utf8.DecodeLastRuneInString(quote)
	for from := 0; ; {
		at := strings.Index(text[from:], quote)
		if at < 0 {
			return false
		}
		at += from
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+len(quote):])
		if !(spelled(before) && spelled(first)) && !(spelled(last) && spelled(after)) {
			return true
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		from = at + size
	}
}

// spelled reports whether r is of a word of a script that writes spaces.
func spelled(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) || r == '_') && !unspaced(r)
}

// unspaced reports whether r is of a script that is written without spaces, or
// that joins other words to a word. Package memorypolicy has the same question and
// decides a quote's words again.
func unspaced(r rune) bool {
	return r >= 0x0E00 && (r == 'ー' || r == '々' || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar))
}
