package session

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// separators end a clause.
const separators = ",;:()[]—–|\n"

// segments returns the parts of the sentence between marks of punctuation.
func (s *sentence) segments() []span {
	if s.parts != nil {
		return s.parts
	}
	from := s.from
	text := s.m.text
	for i := s.from; i < s.to; {
		r, size := utf8.DecodeRuneInString(text[i:])
		ends := strings.ContainsRune(separators, r) && r != '\n' || strings.HasPrefix(text[i:s.to], "...") || strings.HasPrefix(text[i:s.to], " - ")
		if strings.HasPrefix(text[i:s.to], "...") || strings.HasPrefix(text[i:s.to], " - ") {
			size = 3
		}
		if r == ':' && i+1 < s.to && i > s.from && digit(text[i-1]) && digit(text[i+1]) || r == ',' && i+1 < s.to && i > s.from && digit(text[i-1]) && digit(text[i+1]) {
			ends = false
		}
		if ends {
			s.parts = append(s.parts, span{from, i})
			from = i + size
		}
		i += size
	}
	s.parts = append(s.parts, span{from, s.to})
	return s.parts
}

func digit(b byte) bool { return b >= '0' && b <= '9' }

// part returns the index of the segment that holds the place.
func (s *sentence) part(at int) int {
	parts := s.segments()
	i, _ := slices.BinarySearchFunc(parts, at, func(p span, at int) int { return p.to - at - 1 })
	return min(i, len(parts)-1)
}

func (s *sentence) segment(at int) span { return s.segments()[s.part(at)] }

// window bounds how much text around a negation is examined, in bytes.
const window = 160

// segmentBefore returns the clause before the place, the end of it at least.
func (s *sentence) segmentBefore(at int) string {
	from := max(min(s.segment(at).from, at), at-window)
	for from < at && !utf8.RuneStart(s.m.text[from]) {
		from++
	}
	return s.text(from, at)
}

// segmentAfter returns the clause after the place, the start of it at least.
func (s *sentence) segmentAfter(at int) string {
	to := s.to
	for _, p := range s.segments()[s.part(max(at-1, s.from)):] {
		if at <= p.to {
			to = p.to
			break
		}
	}
	if to > at+window {
		for to = at + window; !utf8.RuneStart(s.m.text[to]); {
			to--
		}
	}
	return s.text(at, to)
}

var (
	tagPattern      = regexp.MustCompile(`(?:[, ]|^)(?:ok|okay|alright|all right|please|right|yeah|yes|got it|get it|understood|understand|clear|deal|you hear me|will you|would you|thanks|thank you)[ ?!]*\?[ ?!]*$|(?:[, ]|^)?(?:好吗|好不好|好么|行吗|行不行|可以吗|好吧|明白吗|明白了吗|知道吗|知道了吗|懂吗|懂了吗|听到没有?|听见没有?|记住了吗|ok吗|ok|对吗|对吧|是吧|拜托)[ ?!。]*$`)
	questionPattern = regexp.MustCompile(`\?[!?"”’」』)\] ]*$`)
	zhQuestionEnd   = regexp.MustCompile(`(?:[^什怎那这多要]么|吗|呢)[ 。!?]*$`)
)

// asked reports whether the place lies in a question: in the last clause of a
// sentence that ends as one. "Do not restart it, ok?" is none.
func (s *sentence) asked(at int) bool {
	if s.question == nil {
		text := s.text(s.from, s.to)
		asks := (questionPattern.MatchString(text) || zhQuestionEnd.MatchString(text)) && !tagPattern.MatchString(text)
		s.question = &asks
	}
	return *s.question && s.part(at) == len(s.segments())-1
}

// reported reports whether the place lies in quoted speech of others.
func (m *message) reported(at int) bool {
	i, found := slices.BinarySearchFunc(m.quoted, at, func(q span, at int) int { return q.from - at })
	return found || i > 0 && at < m.quoted[i-1].to
}

var closing = map[rune]rune{'"': '"', '“': '”', '”': '”', '„': '“', '「': '」', '『': '』', '«': '»', '《': '》', '〝': '〞', '`': '`'}

// maxQuote bounds a quotation, and around how much of the text beside one is asked
// whether it is another's speech.
const (
	maxQuote = 2_000
	around   = 160
)

// quotes finds the quoted speech of others in a paragraph.
func (m *message) quotes(paragraph []span) {
	for _, block := range paragraph {
		speech := m.speechOf(block)
		// next has where each closing mark comes next, from where it was looked
		// for.
		next := map[rune]int{}
		for i := block.from; i < block.to; {
			open, size := utf8.DecodeRuneInString(m.text[i:])
			close, ok := closing[open]
			if !ok {
				i += size
				continue
			}
			end, known := next[close]
			if !known || end < i+size {
				end = block.to
				if n := strings.IndexRune(m.text[i+size:block.to], close); n >= 0 {
					end = i + size + n
				}
				next[close] = end
			}
			if end == block.to || end > i+size+maxQuote {
				i += size
				continue
			}
			if m.others(block, speech, i, end+utf8.RuneLen(close), open) {
				m.quoted = append(m.quoted, span{i, end})
			}
			i = end + utf8.RuneLen(close)
		}
	}
}

// speech has where a block speaks of others' words, of the user's own, and of
// taking back.
type speech struct{ reports, own, withdraws [][]int }

func (m *message) speechOf(block span) speech {
	text := m.text[block.from:block.to]
	if !strings.ContainsAny(text, openings) {
		return speech{}
	}
	find := func(p *regexp.Regexp) [][]int { return p.FindAllStringIndex(text, -1) }
	return speech{find(reportPattern), find(ownPattern), find(withdrawPattern)}
}

const openings = "\"“”„「『«《〝`"

// inside reports whether one of the places, in order, lies in a part of the text.
func inside(places [][]int, part span) bool {
	i, _ := slices.BinarySearchFunc(places, part.from, func(p []int, from int) int { return p[0] - from })
	return i < len(places) && places[i][1] <= part.to
}

// others reports whether text[from:to], a quotation, is the speech of others or
// a name.
func (m *message) others(block span, said speech, from, to int, open rune) bool {
	if open == '《' {
		return true
	}
	start := max(block.from, from-around)
	if i := strings.LastIndexAny(m.text[start:from], "。!?\n"); i >= 0 {
		start += i + 1
	}
	if i := strings.LastIndex(m.text[start:from], ". "); i >= 0 {
		start += i + 2
	}
	end := min(block.to, to+around)
	if i := strings.IndexAny(m.text[to:end], "。!?\n,;"); i >= 0 {
		end = to + i + 1
	}
	before := span{start - block.from, from - block.from}
	switch {
	case inside(said.withdraws, before), open == '`':
		return true
	case inside(said.own, before):
		return false
	}
	return inside(said.reports, before) || inside(said.reports, span{to - block.from, end - block.from})
}

var (
	// enBoundary ends what an English negation reaches.
	enBoundary = words("but because since until unless without before after while when whenever if except instead though although why how what whether once so")
	zhBoundary = regexp.MustCompile(`但是?|不过|因为|除非|直到|而是|否则|以免|免得|万一|如果|只能|只要`)
	// enOn begins a clause that goes on with what is forbidden, enElse one that
	// does not.
	enOn    = regexp.MustCompile(`^ *(?:or|nor|and|and/or|neither|ever|at all|not even|especially|particularly|including|e\.g|i\.e|such as|like)\b`)
	enElse  = regexp.MustCompile(`^ *(?:and |or )?(?:then|just|only|please|instead|first|simply|rather|kindly|but|i|we|you|it|they|he|she|that|this|so|because|since|until|unless|before|after|while|when|if|let|ask|check with|tell me)\b`)
	orLater = regexp.MustCompile(`^ *(?:or|nor)\b| (?:or|nor) `)
	zhOn    = regexp.MustCompile(`^ *(?:或|或者|也不|和|及|以及|并|并且|还有|更|尤其|特别是|包括|比如|例如|如|不管|无论|哪怕)`)
	zhElse  = regexp.MustCompile(`^ *(?:只|先|请|但|可以|而是|应|帮|麻烦|就|你|我|他|它|因为|如果|除非|等|要|得|必须|然后|再|直接|看|查|继续|不过|否则|不然|会|这样|那样)`)
	// openPattern begins a clause that stands between the negation and what it
	// forbids.
	openPattern = regexp.MustCompile(`^ *(?:in|on|at|during|for|before|after|from|under|without|by|within|as|unless|until|if|when|while|whatever|whenever|regardless|despite|through|with)\b|^ *(?:在|如果|除非|未经|没有|没|当|无论|不管|即使|任何|于|经)`)
)

// scope returns where what n forbids ends; another negation begins at limit.
func (s *sentence) scope(n negation, limit int) int {
	parts := s.segments()
	i := s.part(max(n.to-1, s.from))
	end := n.to
	met, list, first := false, false, true
	for ; i < len(parts); i++ {
		p := span{max(parts[i].from, n.to), parts[i].to}
		if p.from >= limit {
			break
		}
		p.to = min(p.to, limit)
		text := s.text(p.from, p.to)
		separator := s.separator(parts[i].from)
		if met && !list && !s.goesOn(n, end, p, separator) {
			break
		}
		cut := s.boundary(p, first)
		opens := openPattern.MatchString(s.withoutAdverbs(p))
		end = p.to
		if !met || !list {
			if cut < p.to && !opens {
				end = cut
			}
		}
		blank := strings.TrimSpace(s.withoutAdverbs(p)) == ""
		short := !first || len(strings.Fields(text)) <= 5
		if !blank && !(opens && short && len(s.tools(p.from, end)) == 0) {
			met = true
		}
		if met && end < p.to {
			break
		}
		if i+1 < len(parts) && s.separator(parts[i+1].from) == ':' {
			list = true
		}
		first = false
	}
	return min(end, limit)
}

// goesOn reports whether what is forbidden goes on after the separator.
func (s *sentence) goesOn(n negation, end int, p span, separator byte) bool {
	text := s.text(p.from, p.to)
	switch separator {
	case '(', '[', ')', ']':
		return !enElse.MatchString(text) && !zhElse.MatchString(text)
	case ',':
	default:
		return false
	}
	if strings.TrimSpace(text) == "" {
		return true
	}
	if enElse.MatchString(text) || zhElse.MatchString(text) {
		return false
	}
	if enOn.MatchString(text) || zhOn.MatchString(text) {
		return true
	}
	// A list: nothing but a verb before the comma, or here, or "or" later.
	if s.onlyVerb(p) {
		return true
	}
	before := s.wordsIn(span{s.segments()[s.part(end-1)].from, end})
	if len(before) > 0 && before[len(before)-1].kind == letters && s.base(before[len(before)-1].text) && s.wordKind(p.from) == letters {
		return true
	}
	rest := s.segmentsFrom(p.from)
	if i := strings.IndexAny(rest, ";"); i >= 0 {
		rest = rest[:i]
	}
	return strings.Contains(rest, "或") || s.wordKind(p.from) == letters && orLater.MatchString(rest)
}

// segmentsFrom returns the text from a place on, the start of it at least.
func (s *sentence) segmentsFrom(at int) string {
	to := min(s.to, at+3*window)
	for to < s.to && !utf8.RuneStart(s.m.text[to]) {
		to--
	}
	return s.text(at, to)
}

// onlyVerb reports whether a clause is a tool's verb and nothing else.
func (s *sentence) onlyVerb(p span) bool {
	text := s.text(p.from, p.to)
	from := p.from + len(text) - len(strings.TrimLeft(text, " "))
	to := p.from + len(strings.TrimRight(text, " 。.!?等"))
	o, ok := s.verbAt(from)
	return ok && o.to == to
}

func (s *sentence) wordsIn(p span) []word {
	from := s.wordAt(p.from)
	to := from
	for to < len(s.words) && s.words[to].to <= p.to && s.words[to].kind != mark {
		to++
	}
	return s.words[from:to]
}

func (s *sentence) wordKind(at int) kind {
	if i := s.wordAt(at); i < len(s.words) {
		return s.words[i].kind
	}
	return mark
}

// separator returns the mark before a segment, ',' for most, 0 at the start.
func (s *sentence) separator(from int) byte {
	if from <= s.from {
		return 0
	}
	c := s.m.text[from-1]
	if strings.IndexByte(",;:()[]", c) >= 0 {
		return c
	}
	return ';'
}

// withoutAdverbs returns the text of p without adverbs at its start.
func (s *sentence) withoutAdverbs(p span) string {
	i := s.wordAt(p.from)
	if i > 0 && s.words[i-1].to > p.from {
		// In the middle of a run of signs.
		return s.text(p.from, p.to)
	}
	i = s.forth(i)
	if i >= len(s.words) || s.words[i].from >= p.to {
		return ""
	}
	if s.words[i].kind == mark {
		return strings.Trim(s.text(p.from, p.to), " .!?。\"”'")
	}
	return s.text(s.words[i].from, p.to)
}

// boundary returns where in p the clause ends at a word.
func (s *sentence) boundary(p span, first bool) int {
	start := s.wordAt(p.from)
	if start > 0 && s.words[start-1].to > p.from {
		start--
	} else {
		start = s.forth(start)
	}
	end := p.to
	for i := start; i < len(s.words) && s.words[i].to <= p.to; i++ {
		if w := s.words[i]; w.kind == letters && enBoundary[w.text] && (i > start || !first) {
			end = w.from
			break
		}
	}
	if at := zhBoundary.FindStringIndex(s.text(p.from, end)); at != nil && at[0] > 0 {
		end = p.from + at[0]
	}
	return end
}
