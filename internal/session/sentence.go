package session

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// message is a user's message taken apart.
type message struct {
	folded
	original  string
	verbs     verbs
	sentences []*sentence
	// quoted are the spans of speech that the message only reports.
	quoted []span
}

// span is a part of a folded text, in bytes.
type span struct{ from, to int }

// sentence is a part of the text between two sentence ends, or the whole of an
// item of a list.
type sentence struct {
	m *message
	span
	words []word
	verbs []occurrence
	// parts and its conditions are worked out when they are first asked for.
	parts      []span
	conditions []condition
	question   *bool
	// item says that it begins as an item of a list.
	item bool
	// listed says that it belongs to a prohibition before it.
	listed bool
	// previous and next are its neighbours, nil beside what is hidden.
	previous, next *sentence
}

// word is a word, a run of signs of a script without spaces, or a mark of
// punctuation. Contractions are two words at one place.
type word struct {
	text string
	span
	kind kind
}

type kind int

const (
	letters kind = iota
	signs
	mark
)

func parse(original string, v verbs) *message {
	m := &message{folded: fold(original), original: original, verbs: v}
	for _, paragraph := range m.paragraphs() {
		first := len(m.sentences)
		for _, block := range paragraph {
			item := listMarker(m.text[block.from:block.to])
			for i, part := range m.split(span{block.from + item, block.to}) {
				s := &sentence{m: m, span: part, item: i == 0 && item > 0}
				m.sentences = append(m.sentences, s)
			}
		}
		m.join(first)
		for _, s := range m.sentences[first:] {
			s.words = m.tokens(s.span)
			s.verbs = m.verbs.occurrences(s)
		}
		m.quotes(paragraph)
	}
	return m
}

// paragraphs returns the visible text: lines that belong together, in
// paragraphs. Code fences and quoted lines are left out.
func (m *message) paragraphs() [][]span {
	lines := m.lines()
	hidden := fences(m.text, lines)
	var all [][]span
	var paragraph []span
	flush := func() {
		if paragraph != nil {
			all, paragraph = append(all, paragraph), nil
		}
	}
	continues := false
	for i, line := range lines {
		text := m.text[line.from:line.to]
		if edges := m.edges(line); len(edges) != 1 || edges[0] != line {
			flush()
			continues = false
			for _, part := range edges {
				if !hidden[i] {
					all = append(all, []span{part})
				}
			}
			continue
		}
		if hidden[i] || strings.HasPrefix(strings.TrimLeft(text, " "), ">") {
			flush()
			continues = false
			continue
		}
		if strings.TrimSpace(text) == "" {
			// The next paragraph is a neighbour all the same.
			continues = false
			continue
		}
		if continues && listMarker(text) == 0 && !strings.HasPrefix(strings.TrimLeft(text, " "), "#") {
			paragraph[len(paragraph)-1].to = line.to
		} else {
			paragraph = append(paragraph, line)
		}
		continues = wrapped(text)
	}
	flush()
	return all
}

// edges returns the parts of a line that are examined: the line itself or, in a
// long message, what of it lies at the ends.
func (m *message) edges(line span) []span {
	head, tail := EdgeBytes, len(m.text)-EdgeBytes
	if head >= tail || line.to <= head || line.from >= tail {
		return []span{line}
	}
	var parts []span
	if line.from < head {
		parts = append(parts, span{line.from, clauseEnd(m.text, line.from, head)})
	}
	if line.to > tail {
		for !utf8.RuneStart(m.text[tail]) {
			tail++
		}
		parts = append(parts, span{tail, line.to})
	}
	return parts
}

func (m *message) lines() []span {
	var lines []span
	for from := 0; from <= len(m.text); {
		to := len(m.text)
		if i := strings.IndexByte(m.text[from:], '\n'); i >= 0 {
			to = from + i
		}
		lines = append(lines, span{from, to})
		from = to + 1
	}
	return lines
}

// fences reports which lines are code or its fences. A fence that is not closed
// is none: the rest of the message would count for nothing.
func fences(text string, lines []span) []bool {
	hidden := make([]bool, len(lines))
	// closes is the longest closing fence, of each kind, from a line on.
	closes := map[byte][]int{'`': make([]int, len(lines)+1), '~': make([]int, len(lines)+1)}
	for i, line := range slices.Backward(lines) {
		c, n, info := fence(text[line.from:line.to])
		for char, longest := range closes {
			longest[i] = longest[i+1]
			if char == c && info == "" {
				longest[i] = max(n, longest[i])
			}
		}
	}
	for i := 0; i < len(lines); i++ {
		c, n, info := fence(text[lines[i].from:lines[i].to])
		if n == 0 || c == '`' && strings.Contains(info, "`") || closes[c][i+1] < n {
			continue
		}
		for hidden[i] = true; ; {
			i++
			hidden[i] = true
			if closer, length, info := fence(text[lines[i].from:lines[i].to]); closer == c && length >= n && info == "" {
				break
			}
		}
	}
	return hidden
}

func fence(line string) (char byte, n int, info string) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] != '`' && line[0] != '~' {
		return 0, 0, ""
	}
	rest := strings.TrimLeft(line, line[:1])
	if n = len(line) - len(rest); n < 3 {
		return 0, 0, ""
	}
	return line[0], n, strings.TrimSpace(rest)
}

// listMarker returns the length of the marker by which a line is an item of a
// list.
func listMarker(line string) int { return len(itemPattern.FindString(line)) }

// wideLine is from how many columns on a line is taken to be one that was broken
// to fit, so that its sentence goes on in the next.
const wideLine = 50

// wrapped reports whether the sentence at the end of the line goes on.
func wrapped(line string) bool {
	line = strings.TrimSpace(line)
	if endPattern.MatchString(line) {
		return false
	}
	columns := 0
	for _, r := range line {
		columns++
		if unspaced(r) {
			columns++
		}
	}
	return columns >= wideLine || goesOnPattern.MatchString(line)
}

// split cuts a block at its sentence ends.
func (m *message) split(block span) []span {
	var parts []span
	from := block.from
	cut := func(to int) {
		parts = append(parts, m.bounded(span{from, to})...)
		from = to
	}
	var before rune
	for i := block.from; i < block.to; {
		r, size := utf8.DecodeRuneInString(m.text[i:])
		i += size
		if !strings.ContainsRune("。.!?", r) {
			before = r
			continue
		}
		end := i
		for end < block.to {
			next, size := utf8.DecodeRuneInString(m.text[end:])
			if !strings.ContainsRune("。.!?\"”’」』)]}", next) {
				break
			}
			end += size
		}
		if next, _ := utf8.DecodeRuneInString(m.text[end:]); end < block.to && r != '。' && !unspaced(before) && next != ' ' && next != '\n' && !unspaced(next) {
			continue
		}
		if r == '.' && (strings.Contains(m.text[i-1:end], "..") || abbreviationPattern.MatchString(m.text[max(from, i-12):i])) {
			i = end
			continue
		}
		i = end
		cut(end)
	}
	cut(block.to)
	return parts
}

// maxSentence bounds what is examined as one sentence, in folded bytes. A longer
// text without a sentence end is cut where a clause ends.
const maxSentence = 4_000

func (m *message) bounded(s span) []span {
	var parts []span
	for {
		text := m.text[s.from:s.to]
		s.from += len(text) - len(strings.TrimLeft(text, " \n"))
		s.to -= len(text) - len(strings.TrimRight(text, " \n"))
		if s.from >= s.to {
			return parts
		}
		end := s.to
		if end-s.from > maxSentence {
			end = clauseEnd(m.text, s.from, s.from+maxSentence)
		}
		parts = append(parts, span{s.from, end})
		s.from = end
	}
}

// clauseEnd returns the last good place to cut text between from and to.
func clauseEnd(text string, from, to int) int {
	for _, ends := range []string{"\n;。!?", ",、", " "} {
		if i := strings.LastIndexAny(text[from:to], ends); i > 0 {
			_, size := utf8.DecodeRuneInString(text[from+i:])
			if from+i+size <= to {
				return from + i + size
			}
		}
	}
	for to > from+1 && to < len(text) && !utf8.RuneStart(text[to]) {
		to--
	}
	return to
}

// join links neighbours from the sentence first on, and adds to a sentence what
// follows as its exception: "Never restart it. Unless I say so."
func (m *message) join(first int) {
	kept := m.sentences[:first]
	for _, s := range m.sentences[first:] {
		if n := len(kept); n > first {
			last := kept[n-1]
			text := m.text[s.from:s.to]
			if !s.item && exceptionPattern.MatchString(text) && !strings.Contains(text, ",") && !negated.MatchString(text) && negated.MatchString(m.text[last.from:last.to]) && s.to-last.from <= maxSentence {
				last.to = s.to
				continue
			}
			last.next, s.previous = s, last
		}
		kept = append(kept, s)
	}
	m.sentences = kept
}

func (m *message) tokens(s span) []word {
	var words []word
	for i := s.from; i < s.to; {
		r, size := utf8.DecodeRuneInString(m.text[i:])
		from := i
		i += size
		switch {
		case r == ' ' || r == '\n':
			continue
		case unspaced(r):
			for i < s.to {
				next, size := utf8.DecodeRuneInString(m.text[i:])
				if !unspaced(next) {
					break
				}
				i += size
			}
			words = append(words, word{m.text[from:i], span{from, i}, signs})
		case wordRune(r):
			for i < s.to {
				next, size := utf8.DecodeRuneInString(m.text[i:])
				if next == '-' || next == '\'' {
					// Inside of a word only.
					if after, _ := utf8.DecodeRuneInString(m.text[i+size:]); i+size >= s.to || !wordRune(after) || unspaced(after) {
						break
					}
				} else if !wordRune(next) || unspaced(next) {
					break
				}
				i += size
			}
			words = append(words, expand(m.text[from:i], span{from, i})...)
		default:
			words = append(words, word{string(r), span{from, i}, mark})
		}
	}
	return words
}

func wordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// expand returns a word, or the two words of a contraction.
func expand(text string, at span) []word {
	two := func(a, b string) []word { return []word{{a, at, letters}, {b, at, letters}} }
	if auxiliary, ok := negatives[text]; ok {
		return two(auxiliary, "not")
	}
	if stem, ok := strings.CutSuffix(text, "n't"); ok {
		return two(stem, "not")
	}
	if before, after, ok := strings.Cut(text, "'"); ok {
		if full, ok := contractions[after]; ok && before != "" {
			return two(before, full)
		}
	}
	return []word{{text, at, letters}}
}

var negatives = map[string]string{
	"can't": "can", "won't": "will", "shan't": "shall", "ain't": "is", "cannot": "can",
	"dont": "do", "doesnt": "does", "didnt": "did", "cant": "can", "wont": "will", "shouldnt": "should", "mustnt": "must",
	"isnt": "is", "arent": "are", "wasnt": "was", "werent": "were", "wouldnt": "would", "couldnt": "could",
	"havent": "have", "hasnt": "has", "hadnt": "had", "neednt": "need", "maynt": "may",
}

var contractions = map[string]string{"re": "are", "s": "is", "m": "am", "ll": "will", "d": "would", "ve": "have"}

// wordAt returns the index of the first word at or after from.
func (s *sentence) wordAt(from int) int {
	i, _ := slices.BinarySearchFunc(s.words, from, func(w word, from int) int {
		if w.from < from {
			return -1
		}
		return 1
	})
	return i
}

// word returns the text of the word i, "" beyond the ends.
func (s *sentence) word(i int) string {
	if i < 0 || i >= len(s.words) {
		return ""
	}
	return s.words[i].text
}

func (s *sentence) text(from, to int) string { return s.m.text[from:to] }
