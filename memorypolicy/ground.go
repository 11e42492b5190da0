package memorypolicy

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy/detect"
)

// grounded checks that the user said what a model claims: each field of the value
// must be supported by the quote, wherever it stands in the message. Where the
// words could be understood in another way the user is asked.
func (e *evaluation) grounded() bool {
	if e.c.SourceType != agent.SourceUserStatement {
		return e.pass("grounded.none", "source %s says the value itself", e.c.SourceType)
	}
	if e.c.Retracts && !e.says(e.p.phrases.retraction) {
		return e.refuse("grounded.retraction", "the quote does not take anything back")
	}
	for _, p := range e.places {
		for _, l := range e.value {
			switch e.support(l, p) {
			case denied:
				return e.refuse("grounded."+l.name, "the quote does not support field %s of key %s", l.name, e.k.name)
			case open:
				e.demand(Confirm, "grounded.unsaid", "the quote has no word for field %s of key %s, and none against it: the user is asked", l.name, e.k.name)
			}
		}
		if asked(p) && (!e.p.phrases.polite.in(p.folded) || e.p.phrases.doubt.in(p.folded)) {
			return e.refuse("grounded.question", "the quote is a question and states nothing")
		}
		if !e.now(p) {
			return e.refuse("grounded.past", "the quote tells how things were")
		}
		e.doubts(p)
		if !e.c.Retracts && e.turned(p) {
			e.demand(Confirm, "grounded.negation", "the quote denies something that the value states, or the reverse: the user is asked")
		}
	}
	return e.pass("grounded", "the quote supports every field of the value")
}

func asked(p place) bool {
	end := strings.TrimRight(p.sentence, " \t\r\n\"'”’)）")
	return strings.HasSuffix(end, "?") || strings.HasSuffix(end, "？") || strings.HasSuffix(end, "吗") || strings.HasSuffix(end, "吗。")
}

// support is what a quote says for a field.
type support int

const (
	// denied: nothing, or something else.
	denied support = iota
	// open: no word for this field, which is what the policy takes for its value.
	open
	supported
)

func supports(ok bool) support {
	if ok {
		return supported
	}
	return denied
}

func (e *evaluation) support(l leaf, p place) support {
	quote := p.folded[p.quote.from:p.quote.to]
	switch {
	case l.choices != nil:
		return e.chosen(l, p)
	case l.integer:
		return supports(slices.ContainsFunc(tokens(quote), func(t token) bool { return t.text == l.text }))
	default:
		return supports(told(l.text, quote))
	}
}

// chosen looks for a word for the value of an enum that is not turned round. A
// longer word hides those inside it: "不喜欢" is not "喜欢". If there is one for
// another value as well the user is asked.
func (e *evaluation) chosen(l leaf, p place) support {
	type hit struct {
		span
		value string
	}
	var hits []hit
	for _, ch := range l.choices {
		for _, s := range ch.words.find(p.folded) {
			hits = append(hits, hit{s, ch.value})
		}
	}
	// "I would like", "look into" and "tastes like" tell of no preference.
	wishes := e.p.phrases.wishes.find(p.folded)
	found, other, turned := false, false, false
	for _, h := range hits {
		hidden := slices.ContainsFunc(hits, func(o hit) bool { return o.span != h.span && h.within(o.span) }) || slices.ContainsFunc(wishes, h.within)
		// A retraction names what it takes back, with a negation before it.
		if hidden || !h.within(p.quote) {
			continue
		}
		if !e.c.Retracts && e.p.phrases.negates(p.folded, h.from) {
			turned = true
			continue
		}
		found = found || h.value == l.text
		other = other || h.value != l.text
	}
	if found && other {
		e.demand(Confirm, "grounded.ambiguous", "the quote has words for another value of field %s too: the user is asked", l.name)
	}
	switch {
	case found:
		return supported
	case !other && !turned && slices.ContainsFunc(l.choices, func(ch choice) bool { return ch.otherwise && ch.value == l.text }):
		return open
	}
	return denied
}

// Reach of a negation before a word, in its clause.
const (
	negationBytes = 48
	negationWords = 4
	negationRunes = 6
)

// negates reports whether a negation stands shortly before at, in the same clause.
func (b phraseBook) negates(text string, at int) bool {
	clause := text[:at]
	if i := strings.LastIndexAny(clause, ".,;:!?，。；：！？、"); i >= 0 {
		_, size := utf8.DecodeRuneInString(clause[i:])
		clause = clause[i+size:]
	}
	for _, but := range []string{" but ", "但", "就", "而是", "改成", "改为", "换成"} {
		if i := strings.LastIndex(clause, but); i >= 0 {
			clause = clause[i+len(but):]
		}
	}
	for _, n := range b.negations(clause) {
		between := clause[n.to:]
		far := len(strings.Fields(between)) > negationWords || len(between) > negationBytes
		if r, _ := utf8.DecodeRuneInString(clause[n.from:]); spaceless(r) {
			far = utf8.RuneCountInString(between) > negationRunes
		}
		if !far {
			return true
		}
	}
	return false
}

// negations returns the negations of a text, without those that are part of a
// word that negates nothing.
func (b phraseBook) negations(text string) []span {
	harmless := b.noNegation.find(text)
	return slices.DeleteFunc(b.negation.find(text), func(n span) bool {
		return slices.ContainsFunc(harmless, n.within)
	})
}

// turned reports whether one of quote and value denies and the other does not.
// Where the words of an enum say whether something is denied, they were looked at.
func (e *evaluation) turned(p place) bool {
	if slices.ContainsFunc(e.k.fields, func(f field) bool { return f.choices != nil }) {
		return false
	}
	var stated []string
	for _, l := range e.value {
		stated = append(stated, fold(l.text))
	}
	// "No, my dog is called Rex" denies something else.
	said := p.folded
	for _, answer := range []string{"no, ", "no. ", "不，", "不,", "不是，", "不对，"} {
		said = strings.TrimPrefix(said, answer)
	}
	return (len(e.p.phrases.negations(said)) > 0) != (len(e.p.phrases.negations(strings.Join(stated, ", "))) > 0)
}

// token is a word of a folded text, or two neighbouring characters of a script
// without spaces.
type token struct {
	text string
	// exact tokens are numbers, identifiers and names: each must have been said.
	exact bool
}

// told reports whether a free text is made of the words of a folded quote. Every
// number, identifier and name must be there; of other words two in three, because
// grammar changes some.
func told(text, quote string) bool {
	text = strings.NewReplacer("’", "'", "该用户", " ", "用户", " ").Replace(text)
	said, stems := map[string]bool{}, map[string]bool{}
	for _, t := range tokens(quote) {
		said[t.text], stems[stem(t.text)] = true, true
	}
	loose := " " + letters(quote) + " "
	words := tokens(text)
	if telling := slices.DeleteFunc(slices.Clone(words), func(t token) bool { return stopWords[fold(t.text)] }); len(telling) > 0 {
		words = telling
	}
	supported := 0
	for _, t := range words {
		word := fold(t.text)
		switch {
		case said[word], spaceless(first(word)) && strings.Contains(quote, word), !t.exact && stems[stem(word)], !number(word) && strings.Contains(loose, " "+letters(word)+" "):
			supported++
		case t.exact:
			return false
		}
	}
	return len(words) > 0 && 3*supported >= 2*len(words)
}

func first(word string) rune {
	r, _ := utf8.DecodeRuneInString(word)
	return r
}

// number reports whether a word has no letter: "3" is not said by "2.3".
func number(word string) bool { return !strings.ContainsFunc(word, unicode.IsLetter) }

// letters returns a text with everything but letters and digits as spaces.
func letters(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '+' && r != '#'
	}), " ")
}

// endings are of grammar; longer ones stand before those that they end in.
var endings = []string{"ments", "ment", "ies", "ing", "ed", "es", "s", "y", "e"}

// stem takes the endings of grammar from an English word.
func stem(word string) string {
	word = strings.TrimSuffix(word, "'s")
	for i := 0; i < len(endings); i++ {
		if short, ok := strings.CutSuffix(word, endings[i]); ok && len(short) >= 3 {
			// "deploys" and "deploy" come to the same only if each goes on to its end.
			word, i = short, -1
		}
	}
	return word
}

// stopWords carry no meaning by themselves.
var stopWords = func() map[string]bool {
	words := map[string]bool{}
	for _, w := range strings.Fields(`a an the this that these those is are was were be been am i me my mine we us our you your it its he she they
		of in on at to for from by with as and or so than then do does did have has had will would can could should user users user's user-
		not no don't doesn't 的 了 是 在 和`) {
		words[w] = true
	}
	return words
}()

// tokens splits a text into words, and runs of scripts without spaces into pairs
// of characters. A sign between letters or digits is part of the word.
func tokens(text string) (list []token) {
	runes := []rune(detect.Normalize(text))
	first := true
	for i := 0; i < len(runes); {
		r := runes[i]
		switch {
		case spaceless(r):
			j := i
			for j < len(runes) && spaceless(runes[j]) {
				j++
			}
			list = append(list, pairs(runes[i:j])...)
			i, first = j, false
		case letterOrDigit(r):
			j := i
			for j < len(runes) && (letterOrDigit(runes[j]) || runes[j] == '+' || runes[j] == '#' ||
				strings.ContainsRune("-_./@:'", runes[j]) && j+1 < len(runes) && letterOrDigit(runes[j+1])) {
				j++
			}
			list = append(list, word(runes[i:j], first))
			i, first = j, false
		default:
			i++
		}
	}
	return list
}

func letterOrDigit(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)) && !spaceless(r)
}

// word makes a token. The first word of a text has a capital for that alone.
func word(runes []rune, first bool) token {
	exact := false
	for i, r := range runes {
		switch {
		case unicode.IsDigit(r), strings.ContainsRune("_./@:+#-", r):
			exact = true
		case unicode.IsUpper(r) && (i > 0 || !first):
			exact = true
		}
	}
	text := string(runes)
	// "I" is no name.
	return token{text, exact && text != "I" && !strings.HasPrefix(text, "I'")}
}

func pairs(run []rune) (list []token) {
	if len(run) == 1 {
		return []token{{text: string(run)}}
	}
	for i := range len(run) - 1 {
		list = append(list, token{text: string(run[i : i+2])})
	}
	return list
}
