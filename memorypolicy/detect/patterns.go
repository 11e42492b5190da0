package detect

import "regexp"

// pattern is a rule that is a regular expression.
type pattern struct {
	id       string
	category Category
	match    *regexp.Regexp
	// except is taken out of a text before it is looked at; nil takes nothing out.
	except *regexp.Regexp
	// han says that only texts with Han characters can match.
	han bool
}

// in reports whether the pattern is in s.
func (p pattern) in(s string) bool {
	if !p.match.MatchString(s) {
		return false
	}
	return p.except == nil || p.match.MatchString(p.except.ReplaceAllString(s, "·"))
}

// words compiles alternatives of English words, of which each begins and ends at
// the edge of a word, case aside.
func words(alternatives string) string { return `(?i:\b(?:` + alternatives + `)\b)` }

// phrases returns a rule that looks for patterns in every form of a text.
func phrases(id string, patterns []pattern) rule {
	return rule{id, func(t *text, add func(Category, string)) {
		for _, p := range patterns {
			if p.han && !t.han {
				continue
			}
			for _, form := range t.forms {
				if p.in(form) {
					add(p.category, p.id)
					break
				}
			}
		}
	}}
}
