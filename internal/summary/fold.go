package summary

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// folded is a text in the form in which it is compared: compatibility forms
// such as full-width letters and digits replaced (NFKC), lower case, the digits
// of all scripts as 0 to 9, one kind of hyphen, quotation mark and space, and
// nothing invisible. It remembers where everything was.
type folded struct {
	text string
	// original is the text in NFC; at has, for each byte of text and for its
	// end, the offset in original.
	original string
	at       []int
}

func fold(original string) folded {
	original = norm.NFC.String(strings.ToValidUTF8(original, "\uFFFD"))
	f := folded{original: original, at: make([]int, 0, len(original)+1)}
	var b strings.Builder
	b.Grow(len(original))
	emit := func(s string, at int) {
		b.WriteString(s)
		for range len(s) {
			f.at = append(f.at, at)
		}
	}
	var last rune
	for i, r := range original {
		next, _ := utf8.DecodeRuneInString(original[i+utf8.RuneLen(r):])
		if mark, ok := punctuation(r, last, next); ok {
			emit(mark, i)
		} else if r < utf8.RuneSelf {
			emit(string(unicode.ToLower(r)), i)
		} else {
			for _, d := range norm.NFKC.String(string(r)) {
				emit(string(plain(d)), i)
			}
		}
		last = r
	}
	f.at = append(f.at, len(original))
	f.text = b.String()
	return f
}

// punctuation returns what stands for r if it is no letter or digit of ASCII
// and has its own rule. Full-width punctuation ends a word even where the ASCII
// form would join two: "订单12，34" has two numbers.
func punctuation(r, last, next rune) (string, bool) {
	inNumber := unicode.IsDigit(last) && unicode.IsDigit(next)
	switch r {
	case '\r', '\u2028', '\u2029', '\u0085', '\v', '\f', '\n':
		return "\n", true
	case '，':
		if inNumber && last >= '０' && next >= '０' {
			return ",", true
		}
		return ", ", true
	case '．':
		if inNumber {
			return ".", true
		}
		return ". ", true
	case '：':
		if inNumber {
			return ":", true
		}
		return ": ", true
	case '！', '？', '；':
		return string(r-0xFEE0) + " ", true
	case '（', '）', '［', '］':
		return " " + string(r-0xFEE0) + " ", true
	case '‘', '’', 'ʼ', '＇', '′':
		return "'", true
	case '“', '”', '„', '＂':
		return `"`, true
	case '‐', '‑', '‒', '−', '－', '﹣':
		return "-", true
	case '–':
		if inNumber {
			return "-", true
		}
		return "–", true
	}
	switch {
	case '①' <= r && r <= '⒛':
		// They number the items of a list.
		return " ", true
	case unicode.Is(unicode.Cf, r), '\uFE00' <= r && r <= '\uFE0F':
		return "", true
	case unicode.IsSpace(r), unicode.IsControl(r):
		return " ", true
	}
	return "", false
}

// plain is the lower-case letter or ASCII digit of r.
func plain(r rune) rune {
	if unicode.IsDigit(r) && r >= utf8.RuneSelf {
		return '0' + digit(r)
	}
	return unicode.ToLower(r)
}

// digit returns the value of a decimal digit: in Unicode they come in runs of
// ten from zero on.
func digit(r rune) rune {
	for _, run := range unicode.Nd.R16 {
		if rune(run.Lo) <= r && r <= rune(run.Hi) {
			return (r - rune(run.Lo)) % 10
		}
	}
	for _, run := range unicode.Nd.R32 {
		if rune(run.Lo) <= r && r <= rune(run.Hi) {
			return (r - rune(run.Lo)) % 10
		}
	}
	return 0
}

// spelled returns the original of text[from:to].
func (f folded) spelled(from, to int) string { return f.original[f.at[from]:f.at[to]] }

// squash folds text and makes one space of each white space.
func squash(text string) string { return strings.Join(strings.Fields(fold(text).text), " ") }

// unspaced reports whether r is of a script that writes no spaces between words,
// or joins endings to them.
func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai) || r == 'ー'
}

// wordRune reports whether r is of a word in a script with spaces.
func wordRune(r rune) bool {
	return r == '_' || (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.Mn, r)) && !unspaced(r)
}

// isSpelled reports whether r is part of a word or number, for the ends of what
// is looked for.
func isSpelled(r rune) bool { return wordRune(r) && r != '_' }

// occurrences returns where part is in text as a whole: no letter or digit of
// a script with spaces goes on at its ends.
func occurrences(text, part string) (all []int) {
	if part == "" {
		return nil
	}
	first, _ := utf8.DecodeRuneInString(part)
	last, _ := utf8.DecodeLastRuneInString(part)
	for from := 0; ; {
		i := strings.Index(text[from:], part)
		if i < 0 {
			return all
		}
		i += from
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(part):])
		if !(isSpelled(before) && isSpelled(first)) && !(isSpelled(after) && isSpelled(last)) {
			all = append(all, i)
		}
		_, size := utf8.DecodeRuneInString(text[i:])
		from = i + size
	}
}
