package session

import (
	"iter"
	"regexp"
	"slices"
	"strings"
)

// prohibitions returns what the message forbids, in its order.
func (m *message) prohibitions() iter.Seq[Prohibition] {
	return func(yield func(Prohibition) bool) {
		for _, s := range m.sentences {
			for _, p := range s.prohibitions() {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// reached is a negation with what it covers.
type reached struct {
	negation
	// end is where its scope ends.
	end   int
	tools []string
}

func (s *sentence) prohibitions() []Prohibition {
	if l, ok := s.lift(); ok && l.takes {
		// Its negations are the ones that it takes back.
		return nil
	}
	negations := append(s.english(), s.chinese()...)
	slices.SortStableFunc(negations, func(a, b negation) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	whole := s.span
	var kept []reached
	for i, n := range negations {
		if i > 0 && n.from < negations[i-1].to && len(kept) > 0 && kept[len(kept)-1].span == negations[i-1].span {
			// Inside of a longer one.
			continue
		}
		limit := s.to
		if i+1 < len(negations) && negations[i+1].from >= n.to {
			limit = negations[i+1].from
		}
		r := s.reach(n, limit, &whole)
		if len(r.tools) == 0 && (n.toolOnly || n.stated && s.told()) {
			continue
		}
		kept = append(kept, r)
	}
	if len(kept) == 0 {
		return nil
	}
	if tail := s.listAfter(kept[len(kept)-1]); tail != nil {
		r := &kept[len(kept)-1]
		for _, item := range tail {
			r.tools = append(r.tools, item.tools(item.from, item.to)...)
			whole.to = item.to
		}
	}
	return s.merge(kept, whole)
}

// reach works out what a negation covers; another one begins at limit. It widens
// whole to what belongs to the prohibition.
func (s *sentence) reach(n negation, limit int, whole *span) reached {
	r := reached{negation: n, end: s.scope(n, limit)}
	if n.bare {
		return r
	}
	r.tools = s.tools(n.to, r.end)
	if n.ask && n.prior {
		own := s.segment(n.from)
		if r.tools = append(s.tools(own.from, n.from), s.tools(n.to, own.to)...); len(r.tools) == 0 {
			r.tools = append(s.tools(s.from, n.from), s.tools(n.to, s.to)...)
		}
	}
	if len(r.tools) == 0 && n.prior {
		r.tools = s.tools(s.segment(n.from).from, n.from)
	}
	if s.general(n, r) {
		r.tools = append(r.tools, AllWrites)
	}
	if len(r.tools) == 0 && s.bareAt(n, r.end) {
		*whole = s.widen(&r, *whole)
	}
	return r
}

// bareAt reports whether nothing follows the negation that could be forbidden:
// "don't!", "don't do that", "不要".
func (s *sentence) bareAt(n negation, end int) bool {
	rest := strings.Trim(s.text(n.to, max(n.to, end)), " .!?。,\"”'~")
	switch rest {
	case "", "do it", "do that", "do this", "do so", "dare", "you dare", "ever", "please", "do it again", "do that again", "try", "try it", "try that", "even try":
		return true
	}
	return zhDoing.MatchString(rest)
}

// widen looks for what a negation without anything after it forbids: earlier in
// the sentence, in the sentence before, or in the one after.
func (s *sentence) widen(r *reached, whole span) span {
	if r.tools = s.tools(s.from, r.from); len(r.tools) > 0 {
		return whole
	}
	if !s.subjectless(r.from) || strings.HasSuffix(s.text(s.from, s.to), ":") || strings.Trim(s.text(max(r.end, r.to), s.to), " .!?。,") != "" {
		return whole
	}
	before := func(near bool) bool {
		p := s.previous
		if p == nil || s.to-p.from > maxSentence || near && strings.Contains(s.m.text[p.to:s.from], "\n") {
			return false
		}
		r.tools = p.tools(p.from, p.to)
		if len(r.tools) == 0 && !questionPattern.MatchString(s.m.text[p.from:p.to]) {
			return false
		}
		whole.from = p.from
		return true
	}
	if before(true) {
		return whole
	}
	if n := s.next; n != nil && n.to-s.from <= maxSentence && !n.item && strings.Trim(s.text(r.to, s.to), " .!?。,") == "" {
		// "Do NOT!!! restart it."
		if _, ok := n.verbAt(n.from); ok {
			r.tools = n.tools(n.from, n.segments()[0].to)
			return span{whole.from, n.to}
		}
	}
	before(false)
	return whole
}

// subjectless reports whether nothing but words that lead in stands before the
// place.
func (s *sentence) subjectless(at int) bool {
	for _, w := range s.words {
		if w.from >= at {
			break
		}
		if w.kind != mark && !leads[w.text] && !zhLeads.MatchString(s.text(w.from, min(w.to, at))) {
			return false
		}
	}
	return true
}

var zhLeads = regexp.MustCompile(`^(?:请|先|那|就|所以|但是?|还是|可|你|您|也|都|算了|千万)+$`)

// listAfter returns the items of the list that a prohibition ending in a colon
// opens.
func (s *sentence) listAfter(r reached) []*sentence {
	text := strings.TrimRight(s.text(s.from, s.to), " ")
	if !strings.HasSuffix(text, ":") || s.listed || r.bare || r.end < s.from+len(text)-1 {
		return nil
	}
	var items []*sentence
	for next := s.next; next != nil && (next.item || len(items) > 0 && !next.first()) && next.to-s.from <= maxSentence; next = next.next {
		next.listed = true
		items = append(items, next)
	}
	return items
}

// first reports whether the sentence begins its line.
func (s *sentence) first() bool {
	before := strings.TrimRight(s.m.text[:s.from], " ")
	return before == "" || strings.HasSuffix(before, "\n")
}

// merge makes entries of what a sentence forbids: one for what it forbids, and
// one for what it wants to be asked about.
func (s *sentence) merge(kept []reached, whole span) []Prohibition {
	var entries [2]*Prohibition
	for i, r := range kept {
		limit := s.to
		if i+1 < len(kept) {
			limit = kept[i+1].from
		}
		earlier := s.from
		if i > 0 {
			earlier = kept[i-1].to
		}
		at := 0
		if r.ask || s.conditional(r, earlier, limit, s.part(kept[0].from)) {
			at = 1
		}
		if entries[at] == nil {
			entries[at] = &Prohibition{Ask: at == 1}
		}
		entries[at].Tools = append(entries[at].Tools, r.tools...)
	}
	text := s.clip(kept, whole)
	var found []Prohibition
	for _, p := range entries {
		if p == nil {
			continue
		}
		slices.Sort(p.Tools)
		p.Tools = slices.Compact(p.Tools)
		p.Text = text
		found = append(found, *p)
	}
	// An entry without tools says no more than the other, which has the text.
	if len(found) == 2 {
		for i := range found {
			if len(found[i].Tools) == 0 && (found[i].Ask || len(kept) > 1 && s.empty(kept)) {
				return []Prohibition{found[1-i]}
			}
		}
	}
	return found
}

func (s *sentence) empty(kept []reached) bool {
	return slices.ContainsFunc(kept, func(r reached) bool { return r.bare })
}

// conditional reports whether r is conditional on the user's consent: in its own
// clause, or in one beside it that says nothing else. Other negations end before
// earlier and begin at limit; the first is in the clause start.
func (s *sentence) conditional(r reached, earlier, limit, start int) bool {
	parts := s.segments()
	own := s.part(r.from)
	before := s.text(max(parts[own].from, earlier), max(r.from, parts[own].from, earlier))
	lastPart := s.part(max(r.end-1, r.from))
	to := min(max(parts[lastPart].to, r.to), max(limit, r.to))
	after := s.text(r.to, to)
	if enConsentPattern.MatchString(before) || enConsentPattern.MatchString(after) || enBeforeAny.MatchString(after) ||
		zhConsentPattern.MatchString(before) || zhConsentPattern.MatchString(after) {
		return true
	}
	if zhTwice.MatchString(strings.TrimLeft(after, " ")) || zhAlonePattern.MatchString(strings.TrimLeft(after, " ")) {
		return true
	}
	if at := enAlonePattern.FindStringIndex(after); at != nil && !enRelative.MatchString(after[:at[0]]) {
		return true
	}
	for i := lastPart + 1; i < len(parts) && parts[i].from < limit; i++ {
		if s.conditionAt(i, r) {
			return true
		}
		// Nothing but the end of a parenthesis may stand between.
		if strings.TrimSpace(s.text(parts[i].from, parts[i].to)) != "" {
			break
		}
	}
	// A condition that comes last, or before all that is forbidden, is one for
	// all of it.
	if n := len(parts) - 1; n > own && s.conditionAt(n, r) {
		return true
	}
	for i := range start {
		if s.conditionAt(i, r) {
			return true
		}
	}
	return false
}

// condition is a clause that is nothing but a condition of consent, and the
// tools that it speaks of besides.
type condition struct {
	holds bool
	tools []string
}

// conditionAt reports whether the clause i is nothing but a condition of consent
// for r: it speaks of no other tool.
func (s *sentence) conditionAt(i int, r reached) bool {
	if s.conditions == nil {
		s.conditions = make([]condition, 0, len(s.segments()))
		for _, p := range s.segments() {
			s.conditions = append(s.conditions, s.condition(p))
		}
	}
	c := s.conditions[i]
	return c.holds && !slices.ContainsFunc(c.tools, func(name string) bool { return !slices.Contains(r.tools, name) })
}

func (s *sentence) condition(p span) condition {
	text := s.text(p.from, p.to)
	apart := strings.TrimLeft(text, " ")
	var patterns []*regexp.Regexp
	if enApartPattern.MatchString(apart) {
		patterns = append(patterns, enConsentPattern, enBeforePattern)
	}
	if zhApartPattern.MatchString(apart) {
		patterns = append(patterns, zhConsentPattern)
	}
	for _, pattern := range patterns {
		if at := pattern.FindStringIndex(text); at != nil {
			return condition{true, append(s.tools(p.from, p.from+at[0]), s.tools(p.from+at[1], p.to)...)}
		}
	}
	return condition{}
}

// clip returns the original text of a sentence within its bounds. What the
// negations reach is never cut off below MaxSentenceBytes, nor is a condition
// that follows.
func (s *sentence) clip(kept []reached, whole span) string {
	parts := s.segments()
	from, to := kept[0].from, 0
	from = min(from, parts[s.part(from)].from)
	for _, r := range kept {
		to = max(to, r.end, r.to)
	}
	to = max(to, parts[s.part(max(to-1, s.from))].to)
	for _, p := range parts {
		if text := strings.TrimLeft(s.text(p.from, p.to), " "); exceptionPattern.MatchString(text) || enApartPattern.MatchString(text) || zhApartPattern.MatchString(text) {
			from, to = min(from, p.from), max(to, p.to)
		}
	}
	if whole.to > s.to {
		to = whole.to
	}
	if whole.from < s.from {
		from = whole.from
	}
	offset := func(at int) int { return s.m.at[at] }
	begin, end := offset(whole.from), offset(whole.to)
	if end-begin <= SentenceBytes {
		return strings.TrimSpace(s.m.original[begin:end])
	}
	for _, limit := range []int{SentenceBytes, MaxSentenceBytes} {
		for _, start := range []int{whole.from, from} {
			if offset(to)-offset(start) > limit {
				continue
			}
			cut := to
			for _, p := range parts {
				if p.to > cut && offset(p.to)-offset(start) <= limit {
					cut = p.to
				}
			}
			if offset(whole.to)-offset(start) <= limit {
				cut = whole.to
			}
			return strings.TrimSpace(s.m.original[offset(start):offset(cut)])
		}
	}
	rest := s.m.original[offset(from):offset(whole.to)]
	return strings.TrimSpace(rest[:clauseEnd(rest, 0, min(MaxSentenceBytes, len(rest)))])
}
