package memorypolicy

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
)

// Resolve decides what a candidate does to what is in force under the same key
// and identity in its scope (LTM-4). It is told apart by identity and by when it
// is true, never by how alike it sounds. The outcome is at least as strict as the
// decision's, except that what is in force already needs nobody's consent.
//
// After a person agreed, give it the decision that Agreed returns.
func (p *Policy) Resolve(c Candidate, d Decision, inForce []InForce) Resolution {
	r := &resolving{
		p: p, c: c, d: d, agreed: slices.Contains(agreements, d.Validation),
		out: Resolution{Outcome: d.Outcome, Rules: slices.Clone(d.Rules)},
	}
	switch {
	case d.Outcome == Reject:
		r.out.Rules = append(r.out.Rules, rule("conflict.rejected", "a rejected candidate changes nothing"))
	case c.Retracts:
		r.retract(inForce)
	default:
		r.put(inForce)
	}
	if r.out.Outcome == Reject {
		r.out.Step, r.out.Of = "", nil
	}
	return r.out
}

type resolving struct {
	p *Policy
	c Candidate
	d Decision
	// agreed says that a person stands behind exactly this value.
	agreed bool
	out    Resolution
}

func (r *resolving) settle(s Step, of []InForce, id, format string, args ...any) {
	r.out.Step, r.out.Of = s, of
	r.out.Rules = append(r.out.Rules, rule(id, format, args...))
}

func (r *resolving) reject(id, format string, args ...any) {
	r.out.Outcome = Reject
	r.settle("", nil, id, format, args...)
}

func (r *resolving) demand(o Outcome, id, format string, args ...any) {
	r.out.Outcome = stricter(r.out.Outcome, o)
	r.out.Rules = append(r.out.Rules, rule(id, format, args...))
}

// put decides about a value.
func (r *resolving) put(inForce []InForce) {
	at := r.c.Now
	if from := r.c.ValidFrom; from != nil && from.After(at) {
		at = *from
	}
	var overlapping []InForce
	for _, f := range inForce {
		if r.overlaps(f) {
			overlapping = append(overlapping, f)
		}
	}
	if len(overlapping) == 0 {
		if len(inForce) > 0 {
			r.settle(Insert, nil, "conflict.apart", "what is in force is true at another time: both stay")
			return
		}
		r.settle(Insert, nil, "conflict.none", "nothing is in force under this key and identity")
		return
	}
	if i := slices.IndexFunc(overlapping, func(f InForce) bool { return holds(f, at) && r.same(f) }); i >= 0 && r.repeats(overlapping[i]) {
		r.out.Outcome = Store
		r.settle(Merge, overlapping[i:i+1], "conflict.same", "the same is in force: saying it again changes nothing and raises no confidence")
		return
	}
	// What is over stands in the way of nothing.
	live := slices.DeleteFunc(slices.Clone(overlapping), func(f InForce) bool { return f.ValidUntil != nil && !f.ValidUntil.After(r.c.Now) })
	if at.After(r.c.Now) && slices.ContainsFunc(live, func(f InForce) bool { return holds(f, r.c.Now) }) {
		r.reject("conflict.future", "it becomes true later, and something else is in force until then: propose it when its time has come")
		return
	}
	if r.d.Event && len(live) > 0 {
		r.reject("conflict.event", "one event does not take the place of what is in force")
		return
	}
	r.weigh(live)
	r.settle(Replace, overlapping, "conflict.replace", "it takes the place of what is in force, whose history is kept")
}

// repeats reports whether the candidate adds nothing to f, which has the same
// value: neither another end nor none, nor somebody more reliable who vouches for it.
func (r *resolving) repeats(f InForce) bool {
	until := r.c.ValidUntil
	if (until == nil) != (f.ValidUntil == nil) || until != nil && !micro(*until).Equal(micro(*f.ValidUntil)) {
		return false
	}
	return reliability(r.d.Validation) <= reliability(f.Validation) && !r.ends(f)
}

// ends reports whether f, of which a person was told until when it is kept, ends
// soon: in the last tenth of its time it is asked for again, not merged.
func (r *resolving) ends(f InForce) bool {
	k := r.p.keys[r.c.Key]
	return k != nil && f.Promised && f.ExpiresAt != nil && f.ExpiresAt.Sub(r.c.Now) < k.retention/10
}

// weigh asks somebody if what is in force is more reliable than the candidate:
// the user about what the user confirmed, else a reviewer.
func (r *resolving) weigh(live []InForce) {
	if r.agreed {
		return
	}
	for _, f := range live {
		if f.ValidFrom != nil && f.ValidFrom.After(r.c.Now) {
			r.demand(Confirm, "conflict.planned", "something else was to become true later, and would end: the user is asked")
		}
		if r.temporary(f) {
			r.demand(Confirm, "conflict.temporary", "it is true for a time only, and would end for good what is in force: the user is asked")
		}
		if reliability(f.Validation) <= reliability(r.d.Validation) {
			continue
		}
		if f.Validation == agent.MemoryUserConfirmed && !shared(r.d.Scope) {
			r.demand(Confirm, "conflict.weaker", "what is in force was confirmed by the user, who is asked")
			continue
		}
		r.demand(Review, "conflict.weaker", "what is in force is %s, and %s is less reliable: a reviewer decides", f.Validation, r.d.Validation)
	}
}

// retract decides about taking back.
func (r *resolving) retract(inForce []InForce) {
	live := slices.DeleteFunc(slices.Clone(inForce), func(f InForce) bool { return f.ValidUntil != nil && !f.ValidUntil.After(r.c.Now) })
	live = slices.DeleteFunc(live, func(f InForce) bool { return !r.meant(f) })
	if len(live) == 0 {
		r.reject("retract.nothing", "nothing is in force under this key and identity, or another value")
		return
	}
	// What users said or confirmed of themselves is theirs to take back.
	if !r.agreed {
		for _, f := range live {
			own := !shared(r.d.Scope) && (f.Validation == agent.MemoryUserConfirmed || reliability(f.Validation) <= reliability(agent.MemoryUserStated))
			if !own && reliability(f.Validation) > reliability(r.d.Validation) {
				r.demand(Review, "retract.weaker", "what is in force is %s, and %s is less reliable: a reviewer decides", f.Validation, r.d.Validation)
			}
		}
		confirmed := slices.ContainsFunc(live, func(f InForce) bool { return reliability(f.Validation) > reliability(agent.MemoryUserStated) })
		if r.c.SourceType == agent.SourceUserStatement && confirmed {
			r.demand(Confirm, "retract.confirmed", "somebody vouched for what is in force, and a sentence may be misunderstood: the user is asked")
		}
		if r.c.SourceType == agent.SourceUserStatement && !r.named(live) {
			r.demand(Confirm, "retract.unnamed", "the quote does not say what is taken back: the user is asked")
		}
	}
	r.settle(Retract, live, "retract", "what is in force ends, and its history is kept")
}

// meant reports whether f is what a retraction takes back: a field that it names beside
// the identity has f's value.
func (r *resolving) meant(f InForce) bool {
	var taken, held map[string]any
	if json.Unmarshal(r.c.Value, &taken) != nil || json.Unmarshal(f.Value, &held) != nil {
		return true
	}
	for name, value := range taken {
		text, isText := value.(string)
		other, has := held[name].(string)
		if isText && has && fold(text) != fold(other) {
			return false
		}
	}
	return true
}

// named reports whether the quote takes back the very value that is in force, with
// the word for taking back near to the value's. A word for what the key is about
// is not enough: "the home page is wrong" takes no home back.
func (r *resolving) named(live []InForce) bool {
	k := r.p.keys[r.c.Key]
	if k == nil {
		return false
	}
	quote := fold(r.c.Quote)
	near := func(words phrases) bool {
		return slices.ContainsFunc(words.find(quote), func(s span) bool { return r.p.phrases.takesBack(quote, s) })
	}
	for _, f := range live {
		var value any
		if json.Unmarshal(f.Value, &value) != nil {
			continue
		}
		for _, l := range k.leaves(value) {
			if l.choices == nil && near(phrases{fold(l.text)}) {
				return true
			}
			if i := slices.IndexFunc(l.choices, func(ch choice) bool { return ch.value == l.text }); i >= 0 && near(l.choices[i].words) {
				return true
			}
		}
	}
	return false
}

// Reach of a word for taking back, to both sides.
const (
	takeBackWords = 6
	takeBackRunes = 12
)

// takesBack reports whether a word for taking back stands near s, in its clause.
func (b phraseBook) takesBack(text string, s span) bool {
	return slices.ContainsFunc(b.retraction.find(text), func(w span) bool {
		between := ""
		switch {
		case w.to <= s.from:
			between = text[w.to:s.from]
		case s.to <= w.from:
			between = text[s.to:w.from]
		}
		runes := strings.IndexFunc(between, spaceless) >= 0 && utf8.RuneCountInString(between) > takeBackRunes
		apart := strings.ContainsFunc(between, clauseMark) || strings.Contains(between, " and ") || strings.Contains(between, " but ") || strings.Contains(between, "但")
		return !apart && len(strings.Fields(between)) <= takeBackWords && !runes
	})
}

// reliability orders who vouches. What a trusted source says and what a reviewer
// accepted are worth the same: the later one holds.
func reliability(v agent.MemoryValidation) int {
	switch v {
	case agent.MemoryUserStated:
		return 1
	case agent.MemoryTrusted, agent.MemoryReviewed:
		return 2
	case agent.MemoryUserConfirmed:
		return 3
	default:
		return 0
	}
}

// same compares values without regard to case, unless it is the user who corrects
// the writing.
func (r *resolving) same(f InForce) bool {
	if bytes.Equal(r.d.Value, f.Value) {
		return true
	}
	if r.c.SourceType == agent.SourceUserCorrection {
		return false
	}
	var a, b any
	if json.Unmarshal(r.d.Value, &a) != nil || json.Unmarshal(f.Value, &b) != nil {
		return false
	}
	x, okX := canonical(folded(a))
	y, okY := canonical(folded(b))
	return okX && okY && bytes.Equal(x, y)
}

// overlaps reports whether candidate and f are true at one time. Intervals have
// their beginning and not their end; nil is unbounded.
func (r *resolving) overlaps(f InForce) bool {
	return before(r.c.ValidFrom, f.ValidUntil) && before(f.ValidFrom, r.c.ValidUntil)
}

// before reports whether an interval that begins at from begins before one ends
// at until.
func before(from, until *time.Time) bool {
	return from == nil || until == nil || micro(*from).Before(micro(*until))
}

func holds(f InForce, at time.Time) bool {
	return (f.ValidFrom == nil || !f.ValidFrom.After(at)) && (f.ValidUntil == nil || f.ValidUntil.After(at))
}

// micro is a time as the database keeps it.
func micro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
