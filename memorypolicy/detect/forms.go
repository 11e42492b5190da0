package detect

import (
	"encoding/hex"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mtibben/confusables"
	"github.com/zricethezav/gitleaks/v8/detect/codec"
	"golang.org/x/text/unicode/norm"
)

// text is a text in the forms in which rules look at it.
type text struct {
	// plain is the normalized text.
	plain string
	// flat are the normalized text, that with look-alikes replaced, that with
	// letters and Han characters put together that stand alone, and each of them
	// decoded; equal ones once. They depend on plain only: what is found in them
	// stays found when the text has been normalized.
	flat []string
	// forms are flat, and the text as it came with its lines.
	forms []string
	// compact is the text without any white space.
	compact string
	// han says that there are Han characters in some form.
	han bool
}

func textOf(raw string) *text {
	t := &text{plain: Normalize(raw)}
	add := func(s string) {
		if s != "" && !slices.Contains(t.flat, s) {
			t.flat = append(t.flat, s)
		}
	}
	latin := skeleton(t.plain)
	add(t.plain)
	add(latin)
	add(together(latin))
	for _, form := range slices.Clone(t.flat) {
		if decoded := unescape(form); decoded != form {
			latin := skeleton(Normalize(decoded))
			add(latin)
			add(together(latin))
		}
	}
	t.forms = t.flat
	if lines := withLines(raw); !slices.Contains(t.flat, lines) {
		t.forms = append(slices.Clip(t.flat), lines)
	}
	t.han = slices.ContainsFunc(t.forms, func(form string) bool { return strings.ContainsFunc(form, isHan) })
	t.compact = strings.Join(strings.Fields(latin), "")
	return t
}

// withLines returns s as it is but for what cannot be seen: that is no part of
// what anybody wants to say.
func withLines(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case blank(r):
			return ' '
		case invisible(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

func isHan(r rune) bool { return unicode.Is(unicode.Han, r) }

// skeleton returns s with Latin letters and ASCII digits in place of what looks
// like them. ASCII stays as it is: Unicode's own skeleton makes l of I and 1.
func skeleton(s string) string {
	if ascii(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range norm.NFD.String(s) {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
			b.WriteRune(r)
		case unicode.Is(unicode.Mn, r):
			// An accent, or a line through a letter.
		default:
			b.WriteString(lookAlike(r))
		}
	}
	// What was not replaced is composed again.
	return norm.NFC.String(b.String())
}

// lookAlike returns the ASCII that r looks like, or r.
func lookAlike(r rune) string {
	if c, ok := letters[r]; ok {
		return string(c)
	}
	switch {
	case unicode.Is(unicode.Nd, r):
		return string('0' + digitValue(r))
	case '\U0001F150' <= r && r <= '\U0001F169': // white letters in black circles
		return string('A' + r - '\U0001F150')
	case '\U0001F170' <= r && r <= '\U0001F189': // and in black squares
		return string('A' + r - '\U0001F170')
	case '\U0001F1E6' <= r && r <= '\U0001F1FF': // halves of flags
		return string('A' + r - '\U0001F1E6')
	case unicode.Is(unicode.Pd, r):
		return "-"
	}
	like := confusables.Skeleton(string(r))
	switch {
	case !ascii(like):
		return string(r)
	case like == "l" && unicode.IsUpper(r):
		return "I"
	default:
		return like
	}
}

// digitValue returns the value of a decimal digit: the digits of a script stand
// together, from zero to nine.
func digitValue(r rune) rune {
	zero := r
	for r-zero < 9 && unicode.Is(unicode.Nd, zero-1) {
		zero--
	}
	return r - zero
}

// letters are those that read like Latin ones and that Unicode's table leaves, or
// turns into something that is not ASCII either: each with the Latin one after it.
var letters = func() map[rune]rune {
	pairs := []rune("кkКKтtТTмmМMнhНHвbВBгrГGпnПNиuИNуyУYз3З3дdДAлlЛLьbЪbєeЄEэeЭEчhЧH" +
		"шwШWщwЩWκkτtμmηnβbγyπnυuζzδdλlεeωwςcσcχxΣEΛLΔAϲcᴀaʙbᴄcᴅdᴇeғfɢgʜh" +
		"ɪiᴊjᴋkʟlᴍmɴnᴏoᴘpʀrꜱsᴛtᴜuᴠvᴡwʏyᴢzɑaɡgıiłlŁLøoØOđdĐDħhŧt×x∣|яrЯR")
	m := make(map[rune]rune, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}()

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

var (
	apart    = regexp.MustCompile(`(?:\b|_)[A-Za-z0-9](?:[ ._\-*/|+~,]{1,3}[A-Za-z0-9]){3,}(?:\b|_)`)
	between  = regexp.MustCompile(`[ ._\-*/|+~,]+`)
	hanApart = regexp.MustCompile(`\p{Han}(?:[ ._\-*/|+~·・]{1,3}\p{Han})+`)
	hanSeps  = regexp.MustCompile(`[ ._\-*/|+~·・]+`)
)

// together puts letters and Han characters together that are written one by one.
func together(s string) string {
	s = apart.ReplaceAllStringFunc(s, func(m string) string { return between.ReplaceAllString(m, "") })
	return hanApart.ReplaceAllStringFunc(s, func(m string) string { return hanSeps.ReplaceAllString(m, "") })
}

var (
	escaped = regexp.MustCompile(`\\u(?:[0-9A-Fa-f]{4}|\{[0-9A-Fa-f]{1,6}\})|\\x[0-9A-Fa-f]{2}|\\[nrt]`)
	// hexPairs are bytes that are written one by one.
	hexPairs = regexp.MustCompile(`\b(?:[0-9A-Fa-f]{2}[ :]){7,}[0-9A-Fa-f]{2}\b`)
	percent  = regexp.MustCompile(`(?:%[0-9A-Fa-f]{2})+`)
)

// unescape decodes the escapes of JSON, URLs and HTML, and base64 and hex that
// hold ASCII.
func unescape(s string) string {
	if strings.Contains(s, `\`) {
		s = escaped.ReplaceAllStringFunc(s, func(m string) string {
			if strings.ContainsAny(m[1:2], "nrt") {
				return " "
			}
			n, err := strconv.ParseInt(strings.Trim(m[2:], "{}"), 16, 32)
			if err != nil || !utf8.ValidRune(rune(n)) {
				return m
			}
			return string(rune(n))
		})
	}
	if strings.Contains(s, "%") {
		s = percent.ReplaceAllStringFunc(s, func(m string) string {
			decoded, err := url.PathUnescape(m)
			if err != nil || !utf8.ValidString(decoded) {
				return m
			}
			return decoded
		})
	}
	if strings.Contains(s, "&") {
		s = html.UnescapeString(s)
	}
	s, _ = codec.NewDecoder().Decode(s, nil)
	return hexPairs.ReplaceAllStringFunc(s, func(m string) string {
		decoded, err := hex.DecodeString(strings.NewReplacer(" ", "", ":", "").Replace(m))
		if err != nil || !ascii(string(decoded)) {
			return m
		}
		return string(decoded)
	})
}
