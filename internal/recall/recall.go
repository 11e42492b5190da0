// Package recall takes texts apart into the words by which memories are found
// again (LTM-6, LTM-8). It is pure: the same text has the same words, today and on
// every machine, because their hashes are stored.
//
// It imports golang.org/x/text alone. Activities call it for what is remembered
// and for what is asked.
package recall

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Bounds of the words of one text. Of a text that has more, the beginning and the
// end count.
const (
	// MaxTokens bounds the words of a memory.
	MaxTokens = 512
	// MaxQuestionTokens bounds the words of a question.
	MaxQuestionTokens = 64
	// maxBytes is how much of a text is looked at, half of it from each end.
	maxBytes = 16 << 10
	// maxTokenBytes bounds one word; of a longer one the beginning counts.
	maxTokenBytes = 64
)

// Tokens returns the words of a text that is to be found, each once and in the
// order of the text:
//
//   - words and numbers in one case, without accents, and English ones without the
//     s of a plural;
//   - identifiers such as payment-api, as a whole and in parts, wherever they have
//     a sign or an upper-case letter inside;
//   - of Chinese, Japanese, Korean and Thai, which are not taken apart into words,
//     each pair of neighbouring signs, and each sign that means something by itself.
//
// It returns none for a text without letters and digits.
func Tokens(text string) []string {
	var s set
	scan(text, &words{set: &s}, func(run []rune) {
		for i, r := range run {
			if bearsMeaning(r) {
				s.add(string(r))
			}
			if i > 0 {
				s.add(string(run[i-1 : i+1]))
			} else if len(run) == 1 {
				s.add(string(r))
			}
		}
	})
	return s.bounded(MaxTokens)
}

// Question returns the words by which to look for what was asked: those of Tokens
// but for the words that every question has, and of signs the pairs alone wherever
// there are any. If there are no others, the common words are what is left.
func Question(text string) []string {
	var asked, common set
	scan(text, &words{set: &asked, common: &common}, func(run []rune) { question(run, &asked, &common) })
	if len(asked.order) == 0 {
		return common.bounded(MaxQuestionTokens)
	}
	return asked.bounded(MaxQuestionTokens)
}

// set is texts in the order in which they were first added.
type set struct {
	order []string
	known map[string]bool
}

func (s *set) add(token string) {
	if len(token) > maxTokenBytes {
		token = strings.ToValidUTF8(token[:maxTokenBytes], "")
	}
	if token == "" || s.known[token] {
		return
	}
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.known[token] = true
	s.order = append(s.order, token)
}

func (s *set) bounded(limit int) []string {
	if len(s.order) <= limit {
		return s.order
	}
	end := len(s.order) - limit/2
	return slices.Concat(s.order[:limit-limit/2], s.order[end:])
}

// scan takes a text apart into runs of signs of scripts that write no spaces, and
// into words.
func scan(text string, w *words, signs func([]rune)) {
	for _, part := range ends(text) {
		for rest := normal(part); rest != ""; {
			r, size := utf8.DecodeRuneInString(rest)
			switch {
			case unspaced(r):
				size = spanOf(rest, unspaced)
				signs([]rune(fold(rest[:size])))
			case wordRune(r):
				size = spanOf(rest, func(r rune) bool { return wordRune(r) || joint(r) })
				w.compound(strings.TrimRightFunc(rest[:size], joint))
			}
			rest = rest[size:]
		}
	}
}

// ends is a text, or what counts of one that is too long.
func ends(text string) []string {
	if len(text) <= maxBytes {
		return []string{text}
	}
	return []string{strings.ToValidUTF8(text[:maxBytes/2], ""), strings.ToValidUTF8(text[len(text)-maxBytes/2:], "")}
}

// normal is a text with compatibility forms such as full-width letters replaced,
// and without accents on Latin and Greek letters and signs that nobody sees.
func normal(text string) string {
	ascii := true
	for i := range len(text) {
		ascii = ascii && text[i] < utf8.RuneSelf
	}
	if ascii {
		return text
	}
	var b strings.Builder
	accented := false
	for _, r := range norm.NFKD.String(text) {
		switch {
		case accented && unicode.Is(unicode.Mn, r), unicode.Is(unicode.Cf, r):
			continue
		case r == utf8.RuneError:
			r = ' '
		}
		accented = unicode.In(r, unicode.Latin, unicode.Greek)
		b.WriteRune(r)
	}
	return norm.NFKC.String(b.String())
}

// fold is a text in one case.
func fold(text string) string { return cases.Fold().String(text) }

// words collects words; common ones go into a set of their own if there is one.
type words struct{ set, common *set }

// compound adds a word with what it is made of.
func (w *words) compound(text string) {
	// payment-api, payment_api and paymentAPI are one, 1.2 and 12 are not.
	whole := fold(strings.NewReplacer("-", "", "_", "").Replace(text))
	var parts []string
	for part := range strings.FieldsFuncSeq(text, joint) {
		parts = append(parts, humps(part)...)
	}
	if len(parts) > 1 {
		w.set.add(whole)
	}
	for _, part := range parts {
		w.word(fold(part))
	}
}

func (w *words) word(word string) {
	if w.common != nil && commonWords[word] {
		w.common.add(singular(word))
		return
	}
	w.set.add(singular(word))
}

// humps takes camelCase apart: lower case before upper case, and the last of
// several upper-case letters before a lower-case one.
func humps(word string) (parts []string) {
	runes := []rune(word)
	begin := 0
	for i := 1; i < len(runes); i++ {
		rises := unicode.IsLower(runes[i-1]) && unicode.IsUpper(runes[i])
		falls := unicode.IsUpper(runes[i-1]) && unicode.IsUpper(runes[i]) && i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if rises || falls {
			parts = append(parts, string(runes[begin:i]))
			begin = i
		}
	}
	return append(parts, string(runes[begin:]))
}

// singular takes the s of an English plural away: the S-stemmer of Harman, "How
// effective is suffixing?", JASIS 42(1), 1991. It never joins words that mean
// different things as stronger stemmers do.
func singular(word string) string {
	if len(word) < 4 || word[len(word)-1] != 's' {
		return word
	}
	for i := range len(word) {
		if word[i] < 'a' || word[i] > 'z' {
			return word
		}
	}
	ends := func(suffixes ...string) bool {
		return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(word, s) })
	}
	switch {
	case ends("ies"):
		if ends("eies", "aies") {
			return word
		}
		return strings.TrimSuffix(word, "ies") + "y"
	case ends("es"):
		if ends("aes", "ees", "oes") {
			return word
		}
		return strings.TrimSuffix(word, "s")
	case ends("us", "ss"):
		return word
	}
	return strings.TrimSuffix(word, "s")
}

// question adds pairs and single signs of a run: of what lies between the signs
// that every question has.
func question(run []rune, asked, common *set) {
	masked := mask(run)
	for i := 0; i < len(run); {
		if masked[i] {
			i++
			continue
		}
		end := i
		for end < len(run) && !masked[end] {
			end++
		}
		if end-i == 1 {
			if bearsMeaning(run[i]) {
				asked.add(string(run[i]))
			}
			// It may be a word together with its neighbour, such as 目的.
			for at := max(i-1, 0); at <= i && at+2 <= len(run); at++ {
				asked.add(string(run[at : at+2]))
			}
		}
		for at := i; at+2 <= end; at++ {
			asked.add(string(run[at : at+2]))
		}
		i = end
	}
	for at := 0; at+2 <= len(run); at++ {
		common.add(string(run[at : at+2]))
	}
	if len(run) == 1 {
		common.add(string(run))
	}
}

// mask says which signs of a run belong to words that every question has.
func mask(run []rune) []bool {
	masked := make([]bool, len(run))
	for i := 0; i < len(run); {
		size := 0
		for n := min(maxPhrase, len(run)-i); n > 1 && size == 0; n-- {
			if commonPhrases[string(run[i:i+n])] {
				size = n
			}
		}
		if size == 0 && function(run[i]) {
			size = 1
		}
		for j := range size {
			masked[i+j] = true
		}
		i += max(size, 1)
	}
	return masked
}

// spanOf is the length in bytes of the beginning of text that is made of such
// runes.
func spanOf(text string, in func(rune) bool) int {
	if end := strings.IndexFunc(text, func(r rune) bool { return !in(r) }); end >= 0 {
		return end
	}
	return len(text)
}

// unspaced reports whether r is of a script whose words are not told apart by
// spaces, or are so long that their parts count.
func unspaced(r rune) bool {
	return r >= 0x0e00 && (r == 'ー' || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar))
}

func wordRune(r rune) bool {
	return !unspaced(r) && (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r))
}

// joint reports whether r holds an identifier together when it stands inside.
func joint(r rune) bool { return strings.ContainsRune("-_./:@", r) }

// bearsMeaning reports whether a sign is a word by itself often enough.
func bearsMeaning(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hangul) && !function(r)
}

// function reports whether a sign is grammar more often than not.
func function(r rune) bool { return functionSigns[r] }
