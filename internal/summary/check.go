package summary

import (
	"slices"
	"strings"
	"unicode"
)

const (
	// MaxBytes bounds a summary in its stored form.
	MaxBytes = 16 << 10
	// maxCheckedBytes is from what length on nothing else is said of it.
	maxCheckedBytes = 4 * MaxBytes
	// floorBytes is what a summary may have in any case, besides twice what it
	// must have: once in its list and once in the prose.
	floorBytes = 1_000
	// leastContent is how many words of content the prose of a summary has,
	// unless its source has fewer.
	leastContent = 2
)

// Check finds what a summary of the source lost, changed or invented, and
// returns nil if it is accepted. The same input gives the same failure.
//
// A number or identifier is not lost if it stands anywhere in the summary, as a
// whole word in any case and width. A number is not lost or invented if the
// other side spells it in words. A number that only marks the item of a list at
// the begin of a line counts for nothing.
//
// It cannot see a name without digits, hyphens or points that was changed, a
// wrong relation between things that are all there, a negation in another
// language than its source's, or one that went with the words it stood with.
func Check(source []Message, s Summary) *Failure {
	if len(s.Bytes()) > maxCheckedBytes {
		return failure([]finding{{code: CodeTooLong}})
	}
	c := newChecker(source, s)
	var findings []finding
	add := func(code Code, items []string) {
		if len(items) > 0 {
			findings = append(findings, finding{code, items})
		}
	}
	switch {
	case c.saysNothing():
		findings = append(findings, finding{code: CodeEmpty})
	case c.tooLong():
		findings = append(findings, finding{code: CodeTooLong})
	}
	add(CodeBadSource, c.badSources())
	add(CodeProhibitionLost, c.lostProhibitions())
	add(CodeIdentifierLost, c.lost(func(k kind) bool { return k != number }))
	add(CodeNumberLost, c.lost(func(k kind) bool { return k == number }))
	add(CodeNegationChanged, c.changedNegations())
	add(CodeInvented, c.invented())
	return failure(findings)
}

// checker has what the checks compare.
type checker struct {
	source  []Message
	summary Summary
	demands demands
	// bySeq has the messages; squashed their texts, folded and with one space
	// for each white space; all is every one of those.
	bySeq    map[int64]Message
	squashed map[int64]string
	all      string
	// sourceForms and sourceNumerals are what the source has, forms and
	// numerals what the summary has.
	sourceForms, sourceNumerals map[string]bool
	forms, numerals             map[string]bool
}

func newChecker(source []Message, s Summary) *checker {
	c := &checker{
		source: source, summary: s, demands: newDemands(),
		bySeq: map[int64]Message{}, squashed: map[int64]string{},
		sourceForms: map[string]bool{}, forms: map[string]bool{}, numerals: map[string]bool{},
	}
	var all []string
	for _, m := range source {
		// A message with more prohibitions than session finds has those it
		// found; Next does not offer it.
		d, _ := demandsOf(m)
		c.demands.join(d)
		c.bySeq[m.Seq], c.squashed[m.Seq] = m, squash(m.Text)
		all = append(all, c.squashed[m.Seq])
	}
	c.all = strings.Join(all, "\n")
	for _, t := range c.demands.tokens {
		c.sourceForms[t.form] = true
	}
	c.sourceNumerals = numerals(c.all)
	for _, text := range append(s.texts(), s.keys()...) {
		f := fold(text)
		for _, t := range f.tokens() {
			c.forms[t.form] = true
		}
		for form := range numerals(f.text) {
			c.numerals[form] = true
		}
	}
	return c
}

// texts are the fields that speak of the source, without the names that the
// model gives to decisions.
func (s Summary) texts() []string {
	all := append([]string{s.Summary}, s.OpenTasks...)
	for _, d := range s.Decisions {
		all = append(all, d.Value)
	}
	for _, p := range s.Prohibitions {
		all = append(all, p.Text)
	}
	return append(all, s.Identifiers...)
}

func (s Summary) keys() (all []string) {
	for _, d := range s.Decisions {
		all = append(all, d.Key)
	}
	return all
}

// saysNothing reports whether the prose says nothing: "OK" is no summary of a
// long conversation.
func (c *checker) saysNothing() bool {
	if strings.TrimSpace(c.summary.Summary) == "" {
		return true
	}
	there := len(measure(fold(c.summary.Summary).text).content)
	return there < leastContent && there < len(measure(c.all).content)
}

func (c *checker) tooLong() bool {
	size := 0
	for _, m := range c.source {
		size += len(m.Text)
	}
	return len(c.summary.Bytes()) > min(MaxBytes, max(size/2, floorBytes+2*c.demands.size()))
}

func (c *checker) badSources() (bad []string) {
	for _, d := range c.summary.Decisions {
		if len(occurrences(c.squashed[d.SourceSeq], squash(d.Value))) == 0 {
			bad = append(bad, d.Value)
		}
	}
	for _, p := range c.summary.Prohibitions {
		m, text := c.bySeq[p.SourceSeq], strings.TrimSpace(p.Text)
		if text == "" || m.Role != roleUser || !strings.Contains(m.Text, text) {
			bad = append(bad, p.Text)
		}
	}
	return bad
}

func (c *checker) lostProhibitions() (lost []string) {
	for _, q := range c.demands.quotes {
		if !slices.ContainsFunc(c.summary.Prohibitions, func(p Quote) bool {
			return strings.TrimSpace(p.Text) == strings.TrimSpace(q.Text) && slices.Contains(c.demands.from[q.Text], p.SourceSeq)
		}) {
			lost = append(lost, string(encode(q)))
		}
	}
	return lost
}

func (c *checker) lost(of func(kind) bool) (lost []string) {
	for _, t := range c.demands.tokens {
		if of(t.kind) && !c.forms[t.form] && !(t.kind == number && c.numerals[t.form]) {
			lost = append(lost, t.text)
		}
	}
	return lost
}

// apart makes the words of a decision's key separate ones.
var apart = strings.NewReplacer("_", " ", "-", " ", ".", " ")

func (c *checker) changedNegations() (changed []string) {
	index := indexNegations(c.source)
	changed = index.changedNegations(c.summary.Summary, false)
	for _, task := range c.summary.OpenTasks {
		changed = append(changed, index.changedNegations(task, true)...)
	}
	for _, d := range c.summary.Decisions {
		if negates(apart.Replace(fold(d.Key).text)) == 0 && quotedAgainst(c.squashed[d.SourceSeq], squash(d.Value)) {
			changed = append(changed, d.Value)
		}
	}
	return changed
}

func (c *checker) invented() (invented []string) {
	seen := map[string]bool{}
	check := func(text string) {
		f := fold(text)
		for _, t := range f.tokens() {
			if !seen[t.form] && !c.known(t, f.text[t.from:t.to]) {
				seen[t.form] = true
				invented = append(invented, alone(f, t))
			}
		}
	}
	for _, text := range c.summary.texts() {
		check(text)
	}
	for _, key := range c.summary.keys() {
		check(apart.Replace(key))
	}
	for _, id := range c.summary.Identifiers {
		if squashed := squash(id); wordsBeside(id) && len(occurrences(c.all, squashed)) == 0 {
			invented = append(invented, id)
		}
	}
	return invented
}

// wordsBeside reports whether a text has letters or digits that are in none of
// its tokens.
func wordsBeside(text string) bool {
	f := fold(text)
	at := 0
	word := func(part string) bool {
		return strings.ContainsFunc(part, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	}
	for _, t := range f.tokens() {
		if word(f.text[at:max(t.from, at)]) {
			return true
		}
		at = t.to
	}
	return word(f.text[at:])
}

// known reports whether the source has the token, which its text writes as
// written.
func (c *checker) known(t token, written string) bool {
	if c.sourceForms[t.form] {
		return true
	}
	places := occurrences(c.all, written)
	switch t.kind {
	case number:
		return c.sourceNumerals[t.form] || slices.ContainsFunc(places, func(at int) bool {
			return !inNumber(c.all[:at], c.all[at+len(written):])
		})
	case compound:
		return len(places) > 0 || !slices.ContainsFunc(strings.FieldsFunc(written, func(r rune) bool { return r == '-' || r == '.' }), func(part string) bool {
			return len(occurrences(c.all, part)) == 0
		})
	default:
		return len(places) > 0
	}
}

// inNumber reports whether a number goes on before or after: 5 is not in 1.5.
func inNumber(before, after string) bool {
	isDigit := func(s string, i int) bool { return i >= 0 && i < len(s) && '0' <= s[i] && s[i] <= '9' }
	joins := func(s string, i int) bool { return i >= 0 && i < len(s) && strings.IndexByte(".,:/-", s[i]) >= 0 }
	n := len(before)
	return joins(before, n-1) && isDigit(before, n-2) || joins(after, 0) && isDigit(after, 1) || strings.HasPrefix(after, "%")
}
