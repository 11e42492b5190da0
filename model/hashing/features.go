package hashing

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// feature is something that texts have in common.
type feature struct {
	hash   uint64
	weight float64
	count  int
}

// kind keeps features of different kinds apart: the word "ing" is not the part
// of a word.
type kind byte

const (
	kindWord     kind = 'w'
	kindStart    kind = 'p'
	kindPart     kind = '3'
	kindCompound kind = 'c'
	kindSign     kind = '1'
	kindPair     kind = '2'
	kindEmpty    kind = '0'
)

// What a feature counts. The parts of one word count wordParts together, however
// long it is.
const (
	wordWeight     = 1.0
	startWeight    = 0.6
	wordParts      = 0.9
	compoundWeight = 0.8
	pairWeight     = 1.0
	signWeight     = 0.45
	// commonWeight is for words that are in every text.
	commonWeight = 0.12
	// mixedPair is for a pair of which one sign is common.
	mixedPair = 0.4
	// startRunes is how much of a longer word stands for its stem.
	startRunes = 5
)

// set collects features in the order in which they are first met, so that sums
// of floating point are the same every time.
type set struct {
	order []feature
	at    map[uint64]int
}

func (s *set) add(k kind, text string, weight float64) {
	h := hash(k, text)
	if i, ok := s.at[h]; ok {
		f := &s.order[i]
		f.weight, f.count = max(f.weight, weight), f.count+1
		return
	}
	s.at[h] = len(s.order)
	s.order = append(s.order, feature{h, weight, 1})
}

// hash is FNV-1a with the finalizer of SplitMix64, which spreads it over all
// bits. Both are written here because vectors are stored: they must never change.
func hash(k kind, text string) uint64 {
	h := uint64(14695981039346656037)
	mix := func(b byte) { h = (h ^ uint64(b)) * 1099511628211 }
	mix(byte(k))
	for i := range len(text) {
		mix(text[i])
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// featuresOf returns the features of a text, none twice.
func featuresOf(text string) []feature {
	s := &set{at: map[uint64]int{}}
	text = strings.Map(visible, norm.NFKC.String(text))
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case unspaced(r):
			run := text[:spanOf(text, unspaced)]
			s.signs([]rune(run))
			text = text[len(run):]
		case wordRune(r):
			run := text[:spanOf(text, func(r rune) bool { return wordRune(r) || joint(r) })]
			s.compound(run)
			text = text[len(run):]
		case unicode.Is(unicode.So, r):
			s.add(kindSign, string(r), wordWeight)
			text = text[size:]
		default:
			text = text[size:]
		}
	}
	return s.order
}

// signs adds the pairs of a run of signs of a script that writes no spaces, and
// each sign by itself.
func (s *set) signs(run []rune) {
	for i, r := range run {
		weight := signWeight
		switch {
		case commonSigns[r]:
			weight = commonWeight
		case len(run) == 1:
			weight = pairWeight
		}
		s.add(kindSign, string(r), weight)
		if i == 0 {
			continue
		}
		weight = pairWeight
		switch before := commonSigns[run[i-1]]; {
		case before && commonSigns[r]:
			weight = commonWeight
		case before || commonSigns[r]:
			weight = mixedPair
		}
		s.add(kindPair, string(run[i-1:i+1]), weight)
	}
}

// compound adds the words of a run such as payment-api, maxRetries or 3.14, and
// the run as a whole, however it is joined.
func (s *set) compound(run string) {
	var parts []string
	for _, word := range strings.FieldsFunc(run, joint) {
		parts = append(parts, humps(word)...)
	}
	for i, part := range parts {
		parts[i] = strings.ToLower(part)
		s.word(parts[i])
	}
	if len(parts) > 1 {
		s.add(kindCompound, strings.Join(parts, ""), compoundWeight)
	}
}

func (s *set) word(word string) {
	if common[word] {
		s.add(kindWord, word, commonWeight)
		return
	}
	word = singular(word)
	runes := []rune(word)
	s.add(kindWord, word, wordWeight)
	if len(runes) >= startRunes {
		s.add(kindStart, string(runes[:startRunes]), startWeight)
	}
	edged := append(append([]rune{'_'}, runes...), '_')
	each := wordParts / math.Sqrt(float64(len(edged)-2))
	for i := range len(edged) - 2 {
		s.add(kindPart, string(edged[i:i+3]), each)
	}
}

// singular takes the plural's ending from an English word; what it does to words
// of other languages it does to all of them alike.
func singular(word string) string {
	stem, plural := strings.CutSuffix(word, "s")
	switch {
	case !plural || len(stem) < 3 || strings.ContainsAny(stem[len(stem)-1:], "sui"):
		return word
	case strings.HasSuffix(stem, "ie"):
		return strings.TrimSuffix(stem, "ie") + "y"
	}
	return stem
}

// humps splits fooBar and HTTPServer at their capitals.
func humps(word string) []string {
	var parts []string
	runes := []rune(word)
	from := 0
	for i := 1; i < len(runes); i++ {
		begins := unicode.IsUpper(runes[i]) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]) && unicode.IsUpper(runes[i-1]))
		if begins {
			parts = append(parts, string(runes[from:i]))
			from = i
		}
	}
	return append(parts, string(runes[from:]))
}

func spanOf(text string, in func(rune) bool) int {
	for i, r := range text {
		if !in(r) {
			return i
		}
	}
	return len(text)
}

// unspaced reports whether r is of a script whose words are not told apart by
// spaces, or that is found better by pairs (Korean).
func unspaced(r rune) bool {
	return r >= 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

func wordRune(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.Mn, r)) && !unspaced(r)
}

// joint reports whether r joins words to a compound when it stands between them.
func joint(r rune) bool { return strings.ContainsRune("-_./:@", r) }

// visible drops the characters that hide in words and change nothing to the eye.
func visible(r rune) rune {
	if unicode.Is(unicode.Cf, r) {
		return -1
	}
	return r
}
