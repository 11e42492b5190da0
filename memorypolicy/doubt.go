package memorypolicy

import (
	"slices"
	"strings"
	"unicode"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy/detect"
)

// doubts asks the user where the quote may mean something else than the value.
func (e *evaluation) doubts(p place) {
	book := e.p.phrases
	if book.doubt.in(p.folded) {
		e.demand(Confirm, "grounded.doubt", "the quote may be a condition, a question or an example: the user is asked")
	}
	if e.k.free() && detect.MayOpen(p.sentence) {
		if e.seenByOthers() {
			e.demand(Review, "grounded.way_in", "the quote speaks of getting in somewhere: a reviewer looks whether it says how")
		} else {
			e.demand(Confirm, "grounded.way_in", "the quote speaks of getting in somewhere: the user is asked whether it says how")
		}
	}
	if !e.k.personal {
		return
	}
	if !e.ofUser(p) || book.others.in(p.folded) {
		e.demand(Confirm, "grounded.others", "the quote may speak of somebody else: the user is asked")
	}
	if len(e.k.speaks) > 0 && !e.k.speaks.in(p.folded) {
		e.demand(Confirm, "grounded.mention", "the quote may mention it only: the user is asked")
	}
	if e.c.Retracts {
		return
	}
	if e.k.events == refuseEvents && e.once(p) {
		e.demand(Confirm, "grounded.once", "the quote may be meant for this once: the user is asked")
	}
	if e.k.free() && book.rights.in(p.folded) {
		e.demand(Confirm, "grounded.rights", "the quote may tell of a right, which no memory gives: the user is asked")
	}
}

// seenByOthers reports whether it would be stored where others see it: the scope
// is decided later, see reach.
func (e *evaluation) seenByOthers() bool {
	if want := e.c.Scope; want != (agent.MemoryScope{}) {
		return shared(want)
	}
	return e.c.Room.Group != "" || !slices.Contains(e.k.scopes, agent.MemoryOfUser) && !slices.Contains(e.k.scopes, agent.MemoryOfConversation)
}

// ofUser reports whether the quote's sentence says it of the user: a word for the
// user stands before a word for what the key is about, in one clause. Or it tells
// the agent what to do, if the key is for that. What stands behind a colon or a
// mark of quoting may be what somebody else said.
func (e *evaluation) ofUser(p place) bool {
	said := e.p.phrases.led(p.folded)
	for _, colon := range []string{": ", "：", ">>", "»"} {
		said, _, _ = strings.Cut(said, colon)
	}
	about := e.k.about()
	return slices.ContainsFunc(strings.FieldsFunc(said, clauseMark), func(clause string) bool {
		self := e.p.phrases.self.find(clause)
		if e.k.standing != "" && len(self) > 0 || slices.ContainsFunc(about.find(clause), func(w span) bool {
			return slices.ContainsFunc(self, func(s span) bool { return s.from <= w.from })
		}) {
			return true
		}
		clause = e.p.phrases.led(clause)
		return e.k.standing != "" && e.p.phrases.instructions.begins(clause) > 0 || e.c.Retracts && e.p.phrases.forgetting.begins(clause) > 0
	})
}

// about are the words for what the key is about: of its values and its own.
func (k *key) about() phrases {
	all := slices.Clone(k.speaks)
	for _, f := range k.fields {
		for _, ch := range f.choices {
			all = append(all, ch.words...)
		}
	}
	return all
}

func clauseMark(r rune) bool { return strings.ContainsRune(",;，；、", r) }

// led returns text without the words that may lead an instruction: "please",
// "from now on".
func (b phraseBook) led(text string) string {
	for {
		text = strings.TrimLeftFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsPunct(r) })
		n := b.leaders.begins(text)
		if n == 0 {
			return text
		}
		text = text[n:]
	}
}

// begins returns the length of the longest of the words that the text begins
// with, 0 if there is none.
func (p phrases) begins(text string) (n int) {
	for _, word := range p {
		if strings.HasPrefix(text, word) && apart(text, span{0, len(word)}) {
			n = max(n, len(word))
		}
	}
	return n
}

// now reports whether the sentence does not tell of the past. If it tells of now
// as well the user is asked.
func (e *evaluation) now(p place) bool {
	if e.c.Retracts || !e.k.personal || !e.p.phrases.past.in(p.folded) {
		return true
	}
	if !e.p.phrases.present.in(p.folded) {
		return false
	}
	e.demand(Confirm, "grounded.past", "the quote tells how things were and how they are: the user is asked")
	return true
}

// once reports whether the sentence has a word for this once that is not part of
// one for always: "from today" is not "today".
func (e *evaluation) once(p place) bool {
	lasting := slices.Concat(e.p.phrases.standing.find(p.folded), e.p.phrases.correction.find(p.folded))
	return slices.ContainsFunc(e.p.phrases.once.find(p.folded), func(s span) bool { return !slices.ContainsFunc(lasting, s.within) })
}

// timed reports whether the sentence names a date, a time or a duration.
func (e *evaluation) timed() bool {
	return e.says(e.p.phrases.times) || slices.ContainsFunc(e.places, func(p place) bool { return strings.ContainsFunc(p.folded, unicode.IsDigit) })
}

// temporary reports whether the candidate is what a user said of a limited time,
// and f goes on for longer.
func (r *resolving) temporary(f InForce) bool {
	until := r.c.ValidUntil
	return r.c.SourceType == agent.SourceUserStatement && until != nil && (f.ValidUntil == nil || micro(*until).Before(micro(*f.ValidUntil)))
}
