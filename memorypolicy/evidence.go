package memorypolicy

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy/detect"
)

// place is where the quote stands in the message.
type place struct {
	// sentence is the quote with the rest of the sentences that it is part of, as
	// written; beside are the sentences before and after.
	sentence string
	beside   []string
	// folded is the sentence folded, and quote where the quote stands in it.
	folded string
	quote  span
}

// maxPlaces bounds how often a quote may stand in a message.
const maxPlaces = 8

// locate finds the quote in the message. Whether it has to be there is asked
// later: what it says is looked at first.
func (e *evaluation) locate() bool {
	c := e.c
	if c.Quote == "" {
		return true
	}
	switch {
	case len(c.Quote) > agent.MaxMemoryQuoteBytes:
		return e.refuse("evidence.size", "the quote has more than %d bytes", agent.MaxMemoryQuoteBytes)
	case len(c.Message) > agent.MaxMessageBytes:
		return e.refuse("evidence.size", "the message has more than %d bytes", agent.MaxMessageBytes)
	case !utf8.ValidString(c.Quote) || !utf8.ValidString(c.Message):
		return e.refuse("evidence.text", "quote and message must be valid UTF-8")
	}
	e.quote = detect.Normalize(c.Quote)
	for _, s := range occurrences(c.Message, c.Quote) {
		e.places = append(e.places, placeOf(c.Message, s))
	}
	return true
}

// evidence asks for the quote in the message, byte for byte.
func (e *evaluation) evidence() bool {
	c := e.c
	switch {
	case c.Quote == "" && c.SourceType != agent.SourceUserStatement:
		return e.pass("evidence.none", "source %s needs no quote", c.SourceType)
	case e.quote == "":
		return e.refuse("evidence.missing", "source %s needs a quote from the user's message", c.SourceType)
	case !agent.ValidID(c.MessageID):
		return e.refuse("evidence.message_id", "a quote needs the ID of the message that it is from")
	case len(e.places) == 0:
		return e.refuse("evidence.not_quoted", "the quote is not in the message, byte for byte and in whole words")
	case len(e.places) > maxPlaces:
		return e.refuse("evidence.everywhere", "the quote is in the message more than %d times, and says nothing by itself", maxPlaces)
	}
	return e.pass("evidence.quoted", "the quote is in the message that it is from")
}

// occurrences returns where quote stands in message in whole words, at most
// maxPlaces and one more.
func occurrences(message, quote string) (found []span) {
	for from := 0; len(found) <= maxPlaces; {
		i := strings.Index(message[from:], quote)
		if i < 0 {
			break
		}
		s := span{from + i, from + i + len(quote)}
		if apart(message, s) {
			found = append(found, s)
		}
		_, size := utf8.DecodeRuneInString(message[s.from:])
		from = s.from + size
	}
	return found
}

func placeOf(message string, quote span) place {
	from := sentenceStart(message, quote.from)
	to := sentenceEnd(message, quote.to)
	p := place{sentence: message[from:to]}
	before, inner := fold(message[from:quote.from]), fold(message[quote.from:quote.to])
	if before != "" && (endsInSpace(message[from:quote.from]) || endsInSpace(message[quote.from:quote.from+1])) {
		before += " "
	}
	after := fold(message[quote.to:to])
	p.quote = span{len(before), len(before) + len(inner)}
	p.folded = before + inner
	if after != "" {
		if first, _ := utf8.DecodeRuneInString(message[quote.to:]); first == ' ' {
			p.folded += " "
		}
		p.folded += after
	}
	if before := strings.TrimRight(message[:from], gaps); before != "" {
		p.beside = append(p.beside, message[sentenceStart(message, len(before)):from])
	}
	if after := strings.TrimLeft(message[to:], gaps); after != "" {
		at := len(message) - len(after)
		p.beside = append(p.beside, message[at:sentenceEnd(message, at)])
	}
	return p
}

func endsInSpace(s string) bool { return s != "" && strings.ContainsAny(s[len(s)-1:], " \t\r\n") }

// enders end a sentence. A point does so only before white space or the end.
const enders = ".!?;。！？；…\n"

// gaps stand between sentences.
const gaps = enders + " \t\r"

func ends(message string, at int) bool {
	r, size := utf8.DecodeRuneInString(message[at:])
	if !strings.ContainsRune(enders, r) {
		return false
	}
	if r != '.' && r != '?' && r != '!' && r != ';' {
		return true
	}
	next, _ := utf8.DecodeRuneInString(message[at+size:])
	return at+size == len(message) || strings.ContainsRune(" \t\r\n\"'”’)）", next) || spaceless(next) || strings.ContainsRune(enders, next)
}

// sentenceStart returns where the sentence begins that at is in, or right behind.
func sentenceStart(message string, at int) int {
	for at > 0 {
		_, size := utf8.DecodeLastRuneInString(message[:at])
		if ends(message, at-size) {
			break
		}
		at -= size
	}
	return at
}

// sentenceEnd returns where the sentence ends that is going on at at, its mark
// included.
func sentenceEnd(message string, at int) int {
	if at > 0 {
		// The quote may have the mark itself.
		if _, size := utf8.DecodeLastRuneInString(message[:at]); ends(message, at-size) {
			return at
		}
	}
	for at < len(message) {
		_, size := utf8.DecodeRuneInString(message[at:])
		end := ends(message, at)
		at += size
		if end {
			break
		}
	}
	return at
}

// surroundings returns the sentences that the quote is part of, and those beside
// them if the value has a free text, which could say the rest.
func (e *evaluation) surroundings() (around, beside []string) {
	for _, p := range e.places {
		around = append(around, p.sentence)
		if e.k.free() {
			beside = append(beside, p.beside...)
		}
	}
	return around, beside
}

// events decides about evidence that tells of one event, or of this once only.
func (e *evaluation) events() bool {
	if e.quote == "" {
		return true
	}
	standing := e.says(e.p.phrases.standing) && !slices.ContainsFunc(e.places, e.once)
	happened := slices.ContainsFunc(e.p.detector.Find(e.sentences()...), func(f detect.Finding) bool { return f.Category == detect.Event })
	if happened && !e.says(e.p.phrases.correction) {
		switch {
		case e.k.events == refuseEvents || e.c.Retracts:
			return e.refuse("event", "the evidence tells of one event, and key %s is for how things are", e.k.name)
		case e.k.events == addEvents:
			e.d.Event = true
			e.pass("event.add", "the evidence tells of one event: it may be added, and replaces nothing")
		}
	}
	if e.c.Retracts || standing {
		return true
	}
	switch e.k.standing {
	case standingRequired:
		return e.refuse("standing", "key %s is for a standing wish, and the evidence asks for something once", e.k.name)
	case standingAsk:
		e.demand(Confirm, "standing.ask", "the evidence may be meant for this once: the user is asked")
	}
	return true
}

func (e *evaluation) sentences() (list []string) {
	for _, p := range e.places {
		list = append(list, p.sentence)
	}
	return list
}

// says reports whether one of the words is in the sentences of the quote.
func (e *evaluation) says(words phrases) bool {
	return slices.ContainsFunc(e.places, func(p place) bool { return words.in(p.folded) })
}
