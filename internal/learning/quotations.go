package learning

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// html takes out elements with all that is in them. A tag that is opened and
// never closed, as p may be, takes everything behind it if HTML has it.
func (s *stripper) html() {
	type open struct {
		name string
		from int
	}
	var stack []open
	tags := tagPattern.FindAllStringSubmatchIndex(s.message, maxTags)
	if len(tags) == maxTags {
		s.take(tags[maxTags-1][0], len(s.message))
	}
	for _, m := range tags {
		tag := span{m[0], m[1]}
		if m[4] < 0 { // a comment, or a declaration
			s.take(tag.from, tag.to)
			continue
		}
		name := strings.ToLower(s.message[m[4]:m[5]])
		closing := m[2] != m[3]
		switch {
		case !closing && (void[name] || s.message[tag.to-2] == '/'):
			if void[name] {
				s.take(tag.from, tag.to)
			}
		case !closing:
			if len(stack) == maxDepth {
				s.take(stack[0].from, len(s.message))
				return
			}
			stack = append(stack, open{name, tag.from})
		default:
			for i := len(stack) - 1; i >= 0; i-- {
				if stack[i].name == name {
					s.take(stack[i].from, tag.to)
					stack = stack[:i]
					break
				}
			}
		}
	}
	for _, o := range stack {
		if elements[o.name] {
			s.take(o.from, len(s.message))
			return
		}
	}
}

const (
	maxTags  = 10_000
	maxDepth = 100
)

var tagPattern = regexp.MustCompile(`(?s)<!--.*?(?:-->|$)|<![a-zA-Z][^<>]*>|<(/?)([a-zA-Z][a-zA-Z0-9:_-]*)(?:\s[^<>]*)?/?>`)

var (
	void     = setOf("br hr img input link meta area base col embed source track wbr")
	elements = setOf("html head body div span p a ul ol li table thead tbody tr td th h1 h2 h3 h4 h5 h6 blockquote pre code script style iframe form button section article header footer nav main aside font center b i u em strong title svg")
)

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

// Lengths in characters. What is in quotation marks is somebody else's if it is
// introduced as such, or longer than a name or phrase.
const (
	longQuotation = 80
	// longestOwn is how long the user's quotation of the user's own words may be.
	longestOwn = 200
	// maxQuotation is where the end of one is looked for, in bytes, and
	// maxQuotations how many a message has.
	maxQuotation  = 4 << 10
	maxQuotations = 300
)

var (
	closers = map[rune]rune{'"': '"', '“': '”', '„': '“', '「': '」', '『': '』', '«': '»', '＂': '＂', '〝': '〞', '‘': '’', '‚': '‘', '‹': '›', '\'': '\'', '`': '`'}
	// saidPattern speaks of what somebody says or a text reads, before a quotation
	// or after it.
	saidPattern = regexp.MustCompile(`\b(?:says?|said|saying|tells?|told|asks?|asked|writes?|wrote|written|reads?|states?|stated|claims?|claimed|reports?|reported|according to|repl(?:y|ies|ied)|answers?|answered|quot(?:e|es|ed|ing)|insist(?:s|ed)?|demand(?:s|ed)?|suggest(?:s|ed)?|suggestion|messages?|e-?mails?|mails?|docs?|documents?|documentation|wiki|page|article|tickets?|issue|policy|runbook|manual|readme|comments?|post|tweet|log|banner|sign|prompt|instructions?|translate|translation|summari[sz]e|the text|sentence|phrase|what do(?:es)?|means?|meaning|explain|proof-?read|paraphrase|re-?write|re-?phrase|fields?|labels?)\b` +
		`|说|写道|写着|写的|写了|表示|回复|答复|告诉|问|喊|提到|指出|强调|要求|建议|声称|原话|转告|文档|邮件|公告|文章|页面|网页|手册|备注|标语|评论|翻译|总结|润色|改写|解释|意思|这句|这段|这条|工单`)
	ownPattern  = regexp.MustCompile(`\b(?:i|we)(?:'m| am|'ve| have| already| just| always| clearly| once)* (?:say|said|saying|tell|told|telling|repeat|mean|meant|insist|wrote|prefer|call|want|like|use)\b|\bmy (?:rule|preference|default|name|words?)\b|我(?:们|刚才|之前|已经|都|早就|是|更|最)*(?:说|讲|告诉|强调|重申|要求|规定|喜欢|叫|想)`)
	stopPattern = regexp.MustCompile(`[.!?](?:\s|$)|[。!?；;\n]`)
)

// quotations takes out what stands in quotation marks as somebody else's words.
func (s *stripper) quotations() {
	for from := 0; from < len(s.message); {
		to := len(s.message)
		if loc := blankPattern.FindStringIndex(s.message[from:]); loc != nil {
			to = from + loc[1]
		}
		s.paragraph(from, to)
		from = to
	}
}

var blankPattern = regexp.MustCompile(`\n[ \t\r]*\n`)

func (s *stripper) paragraph(from, to int) {
	for i := from; i < to; {
		r, size := utf8.DecodeRuneInString(s.message[i:to])
		closer, opens := closers[r]
		if !opens || r == '"' && inches(s.message[:i]) || singles[r] && !s.single(i, i+size, to) {
			i += size
			continue
		}
		if s.quotes++; s.quotes > maxQuotations {
			s.take(i, len(s.message)) // nobody says that much in quotation marks
			return
		}
		begin, next := i+size, to
		if r == '`' { // as many as open it close it
			for begin < to && s.message[begin] == '`' {
				begin++
			}
			size = begin - i
		}
		length := s.closing(begin, min(to, begin+maxQuotation), r, closer, size)
		closed := length >= 0
		quoted := span{begin, to}
		if closed {
			quoted.to = begin + length
			next = quoted.to + utf8.RuneLen(closer)
			if r == '`' {
				next = quoted.to + size
			}
		}
		if s.foreign(span{from, i}, quoted, span{next, to}, closed) {
			s.take(i, next)
		} else if !closed {
			next = begin // a mark alone is no quotation
		}
		i = next
	}
}

// singles open a quotation with what may be an apostrophe, or close it so.
var singles = map[rune]bool{'\'': true, '‘': true, '‚': true}

// single reports whether a single mark opens a quotation, and is no apostrophe: it
// stands before a word, and after none. "'90s" is none either.
func (s *stripper) single(from, begin, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(s.message[:from])
	after, _ := utf8.DecodeRuneInString(s.message[begin:to])
	if s.message[from] == '\'' && (spelled(before) || elisionPattern.MatchString(s.message[begin:min(to, begin+10)])) {
		return false
	}
	return from == begin || begin < to && !unicode.IsSpace(after)
}

var elisionPattern = regexp.MustCompile(`^(?i:\d\ds\b|(?:em|tis|twas|til|cause|cuz|bout|round|n)\b)`)

// closing returns how far behind begin the mark is that closes a quotation, -1 if
// none does. Of single marks it is the last at the end of a word before another one
// opens or the line ends, as those within are apostrophes: in doubt more is quoted.
func (s *stripper) closing(begin, to int, opener, closer rune, size int) int {
	text := s.message[begin:to]
	switch {
	case opener == '`':
		return strings.Index(text, strings.Repeat("`", size))
	case !singles[opener]:
		return strings.IndexRune(text, closer)
	}
	found, before := -1, opener
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == '\n' {
			break
		}
		if r == opener && opener != closer || r == '\'' && opener == closer && !spelled(before) && unicode.IsSpace(before) {
			if found >= 0 {
				break
			}
		}
		after, _ := utf8.DecodeRuneInString(text[i+size:])
		if r == closer && !unicode.IsSpace(before) && !spelled(after) {
			found = i
		}
		before = r
		i += size
	}
	return found
}

// inches reports whether a mark after text is a unit, as in 24".
func inches(text string) bool {
	return text != "" && text[len(text)-1] >= '0' && text[len(text)-1] <= '9'
}

// foreign reports whether what is quoted is somebody else's, by what stands
// before and after it in its sentence. What is not closed must be introduced.
func (s *stripper) foreign(before, quoted, after span, closed bool) bool {
	const context = 160
	lead := s.message[max(before.from, before.to-context):before.to]
	if stops := stopPattern.FindAllStringIndex(lead, -1); len(stops) > 0 {
		lead = lead[stops[len(stops)-1][1]:]
	}
	tail := s.message[after.from:min(after.to, after.from+context)]
	if stop := stopPattern.FindStringIndex(tail); stop != nil {
		tail = tail[:stop[0]]
	}
	lead, tail = fold(lead), fold(tail)
	said, own := lastEnd(saidPattern, lead), lastEnd(ownPattern, lead)
	if !closed {
		return said > own
	}
	length := utf8.RuneCountInString(s.message[quoted.from:quoted.to])
	switch {
	case said > own:
		return true
	case own > 0:
		return length > longestOwn
	}
	return length > longQuotation || saidPattern.MatchString(tail)
}

// lastEnd returns where the last match ends, 0 if there is none.
func lastEnd(pattern *regexp.Regexp, text string) int {
	all := pattern.FindAllStringIndex(text, -1)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1][1]
}
