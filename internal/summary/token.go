package summary

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is what a token counts as.
type kind int

const (
	// name is an identifier without doubt: it has a digit or an underscore, or
	// is a URL or an address.
	name kind = iota
	// compound is of letters joined by hyphens or points: payment-api,
	// example.com. It must not get lost; but the words of a language look the
	// same, so it is invented only if its parts are no words of the source.
	compound
	// number is an amount, a percentage, a date or a time.
	number
)

// token is an identifier or a number of a text.
type token struct {
	kind kind
	// form is what is compared: folded, and for a number without separators of
	// thousands, for a date with hyphens, for a time without a leading zero.
	// Decimals are as written: version 1.10 is not version 1.1.
	form string
	// from and to are the place in the folded text.
	from, to int
}

// maxTokenBytes is from what length on a word is a blob and no identifier.
const maxTokenBytes = 256

var (
	urlPattern = regexp.MustCompile(`[a-z][a-z0-9+.-]{0,20}://[^\s<>"'` + "`" + `()\[\]{}|\\^\x{3000}-\x{303f}\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]+`)
	// markerPattern is the marker of an item of a list at the begin of a line:
	// "1." "2)" "(3)" "4、", after a bullet or none.
	markerPattern = regexp.MustCompile(`^[ ]*(?:[-*+•·>#] *)*(?:\( ?\d{1,2} ?\)|\d{1,2} ?[.)] |\d{1,2}[.)]$|\d{1,2}、|\d{1,2}[.)]\p{Han})`)

	emailPattern = regexp.MustCompile(`^[^@/,:']+@[a-z0-9-]+(?:\.[a-z0-9-]+)+$`)
	stampPattern = regexp.MustCompile(`^\d{4}-\d\d-\d\dt\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:z|[+-]\d\d:?\d\d)?$`)
	datePattern  = regexp.MustCompile(`^(\d{4})([-/.])(\d{1,2})([-/.])(\d{1,2})$`)
	timePattern  = regexp.MustCompile(`^(\d{1,2}):(\d\d)((?::\d\d(?:[.,]\d+)?)?(?:[ap]m|z)?)$`)
	// hanDatePattern and hanTimePattern are at the begin of the text.
	hanDatePattern = regexp.MustCompile(`^(\d{4}) ?年 ?(\d{1,2}) ?月 ?(\d{1,2}) ?[日号號]`)
	hanTimePattern = regexp.MustCompile(`^(\d{1,2}) ?[点點时時] ?(\d{2}) ?分`)
	amountPattern  = regexp.MustCompile(`^(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)$`)
	// unitPattern is an amount with what it counts, in one word or joined by a
	// hyphen: 100ms, 2nd, 5xx, 30-minute.
	unitPattern   = regexp.MustCompile(`^(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?:[\p{L}]{1,3}|mins|secs|hours?|days?|weeks?|minutes?|seconds?|times|percent|-\p{L}+(?:-\p{L}+)*|\.\p{L}{2,})$`)
	clockPattern  = regexp.MustCompile(`^(\d+)([ap]m)$`)
	aboutPattern  = regexp.MustCompile(`^((?:mid|pre|post|early|late|since|until|sub|non|re|circa|fig|no|ver|version|ch|nr|art)[-.])\d+(?:\.\d+)?$`)
	rangePattern  = regexp.MustCompile(`^([1-9]\d{0,3}(?:\.\d+)?|0(?:\.\d+)?)-([1-9]\d{0,3}(?:\.\d+)?|0(?:\.\d+)?)(?:\p{L}{1,3})?$`)
	hexPattern    = regexp.MustCompile(`^[0-9a-f]{7,}$`)
	hostPattern   = regexp.MustCompile(`^(?:localhost|[a-z0-9._-]*[.\-0-9][a-z0-9._-]*):\d{2,5}$`)
	wordsPattern  = regexp.MustCompile(`^\p{L}{2,}(?:[-.]\p{L}{2,})+$`)
	percentSuffix = regexp.MustCompile(`^ ?(?:%|(?:percent|per cent|pct)\b|パーセント)`)
	clockSuffix   = regexp.MustCompile(`^ ?([ap])\.?m\b\.?`)
)

// tokens returns the identifiers and numbers of the text in order.
func (f folded) tokens() []token {
	s := scanner{text: f.text}
	at := 0
	for _, url := range urlPattern.FindAllStringIndex(f.text, -1) {
		end := url[0] + len(strings.TrimRight(f.text[url[0]:url[1]], ".,;:!?*_~"))
		s.scan(at, url[0])
		s.add(name, url[0], end)
		at = end
	}
	s.scan(at, len(f.text))
	return s.found
}

type scanner struct {
	text  string
	found []token
}

func (s *scanner) add(k kind, from, to int) { s.addAs(k, s.text[from:to], from, to) }

func (s *scanner) addAs(k kind, form string, from, to int) {
	if to-from <= maxTokenBytes {
		s.found = append(s.found, token{k, form, from, to})
	}
}

// scan finds the tokens of text[from:to], which has no URL.
func (s *scanner) scan(from, to int) {
	for i := from; i < to; {
		if i == 0 || s.text[i-1] == '\n' {
			line := s.text[i:to]
			if end := strings.IndexByte(line, '\n'); end >= 0 {
				line = line[:end]
			}
			if marker := markerPattern.FindString(line); marker != "" && !amountPattern.MatchString(line) {
				i += len(strings.TrimRightFunc(marker, unspaced))
				continue
			}
		}
		r, size := utf8.DecodeRuneInString(s.text[i:])
		if !wordRune(r) {
			i += size
			continue
		}
		if end := s.han(i, to); end > 0 {
			i = end
			continue
		}
		end := s.chunkEnd(i, to)
		s.chunk(i, end)
		i = end
	}
}

// han finds a date or time that is written with signs at text[from:] and
// returns where it ends, or zero.
func (s *scanner) han(from, to int) int {
	if c := s.text[from]; c < '0' || c > '9' {
		return 0
	}
	if m := hanDatePattern.FindStringSubmatch(s.text[from:to]); m != nil {
		if form, ok := dateForm(m[1], m[2], m[3]); ok {
			s.addAs(number, form, from, from+len(m[0]))
			return from + len(m[0])
		}
	}
	if m := hanTimePattern.FindStringSubmatch(s.text[from:to]); m != nil {
		s.addAs(number, timeForm(m[1], m[2], ""), from, from+len(m[0]))
		return from + len(m[0])
	}
	return 0
}

// chunkEnd returns the end of the words from i on that are joined by single
// connectors.
func (s *scanner) chunkEnd(i, to int) int {
	for i < to {
		r, size := utf8.DecodeRuneInString(s.text[i:])
		if wordRune(r) {
			i += size
			continue
		}
		if !strings.ContainsRune("-.:@+/,'", r) {
			return i
		}
		if strings.HasPrefix(s.text[i:to], "::") {
			size = 2
		}
		next, _ := utf8.DecodeRuneInString(s.text[min(i+size, to):to])
		if !wordRune(next) {
			return i
		}
		i += size
	}
	return i
}

// separators are where a chunk that is nothing as a whole is taken apart, the
// weakest first.
var separators = []string{"/", ",", "'", "@", "+", ":"}

// chunk finds the tokens of text[from:to], which is words joined by connectors.
func (s *scanner) chunk(from, to int) {
	from, to = s.trim(from, to)
	if from == to || s.whole(from, to) {
		return
	}
	text := s.text[from:to]
	for _, separator := range separators {
		if !strings.Contains(text, separator) {
			continue
		}
		for {
			i := strings.Index(s.text[from:to], separator)
			if i < 0 {
				break
			}
			s.chunk(from, from+i)
			from, to = s.trim(from+i+len(separator), to)
			// What is left may be something as a whole: "a/2026/11/30".
			if from < to && s.whole(from, to) {
				return
			}
		}
		s.chunk(from, to)
		return
	}
	digits := strings.ContainsFunc(text, unicode.IsDigit)
	switch {
	case digits || strings.Contains(text, "_"):
		s.add(name, from, to)
	case wordsPattern.MatchString(text) && !common(text):
		s.add(compound, from, to)
	}
}

// trim removes connectors at the ends: Markdown's _emphasis_ is none of a name.
func (s *scanner) trim(from, to int) (int, int) {
	const connectors = "_-.:@+/,'"
	from += len(s.text[from:to]) - len(strings.TrimLeft(s.text[from:to], connectors))
	return from, from + len(strings.TrimRight(s.text[from:to], connectors))
}

// whole adds what text[from:to] is as a whole, and reports whether it is
// anything.
func (s *scanner) whole(from, to int) bool {
	if to-from > maxTokenBytes {
		return false
	}
	text := s.text[from:to]
	switch {
	case !strings.ContainsFunc(text, unicode.IsDigit):
		if emailPattern.MatchString(text) {
			s.add(name, from, to)
			return true
		}
		return false
	case amountPattern.MatchString(text):
		s.amount(strings.ReplaceAll(text, ",", ""), from, to)
	case emailPattern.MatchString(text), stampPattern.MatchString(text), address(text), hostPattern.MatchString(text) && !timePattern.MatchString(text):
		s.add(name, from, to)
	case hexPattern.MatchString(text):
		s.add(name, from, to)
	default:
		return s.wholeNumber(text, from, to)
	}
	return true
}

func (s *scanner) wholeNumber(text string, from, to int) bool {
	if m := datePattern.FindStringSubmatch(text); m != nil && m[2] == m[4] {
		form, ok := dateForm(m[1], m[3], m[5])
		if ok {
			s.addAs(number, form, from, to)
		}
		return ok
	}
	if m := timePattern.FindStringSubmatch(text); m != nil {
		s.amount(timeForm(m[1], m[2], m[3]), from, to)
		return true
	}
	if m := clockPattern.FindStringSubmatch(text); m != nil {
		s.addAs(number, text, from, to)
		return true
	}
	if m := rangePattern.FindStringSubmatch(text); m != nil {
		s.amount(m[1], from, from+len(m[1]))
		second := from + len(m[1]) + 1
		s.amount(m[2], second, second+len(m[2]))
		return true
	}
	if m := unitPattern.FindStringSubmatch(text); m != nil {
		s.amount(strings.ReplaceAll(m[1], ",", ""), from, from+len(m[1]))
		return true
	}
	if m := aboutPattern.FindStringSubmatch(text); m != nil {
		s.amount(text[len(m[1]):], from+len(m[1]), to)
		return true
	}
	return false
}

// amount adds a number with its sign and with what belongs to it: a per cent
// sign, or the half of the day.
func (s *scanner) amount(form string, from, to int) {
	if from > 0 && s.text[from-1] == '-' && (from == 1 || strings.IndexByte(" \n(", s.text[from-2]) >= 0) {
		from--
		form = "-" + form
	}
	if suffix := percentSuffix.FindString(s.text[to:]); suffix != "" {
		s.addAs(number, form+"%", from, to+len(suffix))
		return
	}
	if m := clockSuffix.FindStringSubmatch(s.text[to:]); m != nil && !strings.HasSuffix(form, "m") {
		s.addAs(number, form+m[1]+"m", from, to+len(m[0]))
		return
	}
	s.addAs(number, form, from, to)
}

func dateForm(year, month, day string) (string, bool) {
	m, _ := strconv.Atoi(month)
	d, _ := strconv.Atoi(day)
	if m < 1 || m > 12 || d < 1 || d > 31 {
		return "", false
	}
	return year + "-" + pad(month) + "-" + pad(day), true
}

func timeForm(hour, minute, rest string) string {
	if len(hour) == 2 {
		hour = strings.TrimPrefix(hour, "0")
	}
	return hour + ":" + minute + rest
}

func pad(s string) string {
	if len(s) == 1 {
		return "0" + s
	}
	return s
}

// address reports whether text is an IP address, with a port or a prefix length
// or none.
func address(text string) bool {
	if strings.Count(text, ".") < 3 && strings.Count(text, ":") < 2 || timePattern.MatchString(text) {
		return false
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	if _, err := netip.ParseAddrPort(text); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(text)
	return err == nil
}

func set(list string) map[string]bool {
	all := map[string]bool{}
	for _, word := range strings.Fields(list) {
		all[word] = true
	}
	return all
}

var (
	// commonCompounds are words of English that are written like identifiers.
	commonCompounds = set("follow-up follow-ups up-to-date end-to-end real-time long-term short-term read-only read-write well-known one-time first-time " +
		"full-time part-time re-run re-check re-try co-ordinate e-mail opt-in opt-out sign-off sign-in log-in log-out set-up start-up shut-down roll-back " +
		"time-out check-in check-out step-by-step case-by-case day-to-day face-to-face high-level low-level top-level on-call on-site off-site in-depth in-house " +
		"so-called ad-hoc per-user add-on add-ons back-up plug-in trade-off trade-offs cut-off hand-off hand-over stand-by go-ahead go-live built-in " +
		"out-of-date out-of-memory out-of-band out-of-scope one-off two-step warm-up clean-up double-check cross-check root-cause side-effect side-effects and.or")
	commonFirst = set("non self well re un pre co semi over under ill newly fully highly currently previously recently already much never not so-called")
	commonLast  = set("related based specific wide level like free facing driven only side ready aware style oriented dependent proof time day hour minute second week month year up in out off by on to old long")
)

// common reports whether a word of letters, hyphens and points is one of the
// language and no identifier.
func common(text string) bool {
	if commonCompounds[text] {
		return true
	}
	first, _, hyphen := strings.Cut(text, "-")
	last := text[strings.LastIndexAny(text, "-.")+1:]
	return hyphen && (commonFirst[first] || commonLast[last])
}
