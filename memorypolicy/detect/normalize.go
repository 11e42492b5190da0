package detect

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Normalize returns s as it is stored: NFKC, without control, bidirectional and
// other invisible characters, white space folded to one space and trimmed,
// invalid UTF-8 replaced by U+FFFD. It is idempotent.
func Normalize(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	for {
		// What is taken away may bring together what composes, and NFKC makes spaces
		// and invisible characters of others.
		next := norm.NFKC.String(visible(s))
		if next == s {
			return s
		}
		s = next
	}
}

// Fold returns s for comparing: normalized, without differences of case.
func Fold(s string) string {
	return Normalize(cases.Fold().String(Normalize(s)))
}

// visible removes what cannot be seen, folds white space and trims.
func visible(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	space := false
	for _, r := range s {
		switch {
		case blank(r):
			space = true
		case invisible(r):
		default:
			if space && b.Len() > 0 {
				b.WriteByte(' ')
			}
			space = false
			b.WriteRune(r)
		}
	}
	return b.String()
}

// blank reports whether r looks like a space. The Braille pattern without dots
// is a symbol to Unicode and a space to the eye.
func blank(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Z, r) || r == '\u2800' }

// invisible reports whether r leaves no mark: control and format characters, and
// the others that a program without support for them is to ignore.
func invisible(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
