package summary

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/session"
)

// roleUser is the role of what the user wrote.
const roleUser = "user"

// demands is what a summary must have.
type demands struct {
	tokens []demand
	// quotes are the prohibitions, each text once; from has the messages that
	// each may be quoted from.
	quotes []Quote
	from   map[string][]int64
	// seen has the forms of tokens.
	seen map[string]bool
}

func newDemands() demands { return demands{from: map[string][]int64{}, seen: map[string]bool{}} }

// demand is one identifier or number that must be there.
type demand struct {
	kind kind
	form string
	// text is how the first message that has it writes it. It has the same form
	// when it stands alone.
	text string
}

// demandsOf returns what a message demands of its summary. The error is
// session.ErrTooMany.
func demandsOf(m Message) (demands, error) {
	d := newDemands()
	text := fold(m.Text)
	for _, t := range text.tokens() {
		if !d.seen[t.form] {
			d.seen[t.form] = true
			d.tokens = append(d.tokens, demand{t.kind, t.form, alone(text, t)})
		}
	}
	if m.Role != roleUser {
		return d, nil
	}
	found, err := session.Detect(m.Text, nil)
	for _, p := range found.Prohibitions {
		if d.from[p.Text] == nil {
			d.quotes = append(d.quotes, Quote{p.Text, m.Seq})
			d.from[p.Text] = []int64{m.Seq}
		}
	}
	return d, err
}

// alone returns the original spelling of a token if that is the token by itself,
// and the folded one otherwise.
func alone(text folded, t token) string {
	original := strings.TrimSpace(text.spelled(t.from, t.to))
	if again := fold(original).tokens(); len(again) == 1 && again[0].form == t.form {
		return original
	}
	return text.text[t.from:t.to]
}

// join adds the demands of the next message.
func (d *demands) join(next demands) {
	for _, t := range next.tokens {
		if !d.seen[t.form] {
			d.seen[t.form] = true
			d.tokens = append(d.tokens, t)
		}
	}
	for _, q := range next.quotes {
		if d.from[q.Text] == nil {
			d.quotes = append(d.quotes, q)
		}
		if !slices.Contains(d.from[q.Text], q.SourceSeq) {
			d.from[q.Text] = append(d.from[q.Text], q.SourceSeq)
		}
	}
}

// size is what the demands take in a summary, in bytes of JSON.
func (d demands) size() (n int) {
	for _, t := range d.tokens {
		n += len(encode(t.text)) + 1
	}
	for _, q := range d.quotes {
		n += len(encode(q)) + 1
	}
	return n
}
