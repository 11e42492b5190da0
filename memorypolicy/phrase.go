package memorypolicy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/memorypolicy/detect"
)

// phrases are words to find in a folded text. Those that begin or end with a
// letter of a script that has spaces are found as whole words.
type phrases []string

// phraseBook are the policy's words by which statements are understood.
type phraseBook struct {
	negation, noNegation, standing, once, correction, retraction, others, polite         phrases
	self, leaders, instructions, forgetting, wishes, past, present, doubt, times, rights phrases
}

// span is a piece of a text, in bytes.
type span struct{ from, to int }

func (s span) within(o span) bool { return s.from >= o.from && s.to <= o.to }

// fold returns a text for comparing. The typographic apostrophe is the plain one.
func fold(s string) string { return strings.ReplaceAll(detect.Fold(s), "\u2019", "'") }

func (c *compiler) phrases(d phrasesDoc) {
	read := func(name string, groups [][]string) phrases {
		place := "phrases." + name
		if len(slices.Concat(groups...)) == 0 {
			c.fault(place, "is missing: list words, in a list for each language")
		}
		var all phrases
		for i, group := range groups {
			all = append(all, c.list(fmt.Sprintf("%s[%d]", place, i), group)...)
		}
		return all
	}
	c.p.phrases = phraseBook{
		negation: read("negation", d.Negation), noNegation: read("no_negation", d.NoNegation), standing: read("standing", d.Standing), once: read("once", d.Once),
		correction: read("correction", d.Correction), retraction: read("retraction", d.Retraction), others: read("others", d.Others),
		polite: read("polite", d.Polite), self: read("self", d.Self), leaders: read("leaders", d.Leaders), instructions: read("instructions", d.Instructions),
		forgetting: read("forgetting", d.Forgetting), wishes: read("wishes", d.Wishes), past: read("past", d.Past), present: read("present", d.Present), doubt: read("doubt", d.Doubt),
		times: read("times", d.Times), rights: read("rights", d.Rights),
	}
}

func (c *compiler) list(place string, words []string) phrases {
	list := make(phrases, 0, len(words))
	for i, word := range words {
		folded := fold(word)
		if folded == "" {
			c.fault(fmt.Sprintf("%s[%d]", place, i), "is empty")
			continue
		}
		list = append(list, folded)
	}
	return list
}

// find returns where one of the words stands in a folded text.
func (p phrases) find(text string) (found []span) {
	for _, word := range p {
		for from := 0; ; {
			i := strings.Index(text[from:], word)
			if i < 0 {
				break
			}
			s := span{from + i, from + i + len(word)}
			if apart(text, s) {
				found = append(found, s)
			}
			_, size := utf8.DecodeRuneInString(text[s.from:])
			from = s.from + size
		}
	}
	return found
}

func (p phrases) in(text string) bool { return len(p.find(text)) > 0 }

// apart reports whether neither end of s is in the middle of a word.
func apart(text string, s span) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:s.from])
	first, _ := utf8.DecodeRuneInString(text[s.from:s.to])
	last, _ := utf8.DecodeLastRuneInString(text[s.from:s.to])
	after, _ := utf8.DecodeRuneInString(text[s.to:])
	return !(inWord(before) && inWord(first)) && !(inWord(last) && inWord(after))
}

// inWord reports whether r is of a word in a script that has spaces between
// words.
func inWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '_') && !spaceless(r)
}

// spaceless reports whether r is of a script that is written without spaces, or
// that joins other words to a word.
func spaceless(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai) || r == 'ー' || r == '々'
}
