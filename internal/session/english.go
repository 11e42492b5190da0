package session

import (
	"regexp"
	"slices"
	"strings"
)

// negation is one place at which a sentence forbids something.
type negation struct {
	// span has the words of the negation; what it forbids stands behind.
	span
	// prior: what it forbids may stand before: "restarting is not allowed".
	prior bool
	// toolOnly: it is a prohibition only if it reaches a tool's verb.
	toolOnly bool
	// ask: it demands to be asked by itself.
	ask bool
	// bare: it forbids no use of a tool: "do not assume that it restarted".
	bare bool
	// stated: it speaks of others, and without a tool's verb forbids nothing:
	// "we must not lose this customer".
	stated bool
	// able: it may tell what is possible, "we can't change it".
	able bool
	// needless: it tells what need not be.
	needless bool
	// all: without a tool's verb it forbids all writes: "hands off production".
	all bool
}

func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, word := range strings.Fields(list) {
		set[word] = true
	}
	return set
}

var (
	// leads may stand before an imperative.
	leads = words("please pls plz kindly also again now ok okay well hey hi hello listen look remember note nb important warning attention reminder caution however therefore thus hence meanwhile still but and or so then yes no yeah seriously really just btw fyi first finally lastly always absolutely definitely rule rules")
	// coordinators begin a clause.
	coordinators  = words("and but or so then yet nor plus")
	subordinators = words("if when whenever because since although though why how what where whether as while once until")
	pronouns      = words("i you we they he she it this that these those who which what there someone somebody everyone everybody anyone anybody people users customers clients somehow")
	determiners   = words("the a an my your our their its his her some any all")
	prepositions  = words("in on at during for before after from under with without by within outside over around as unless until if when while whatever whenever regardless despite through to of because")
	adverbs       = words("ever just even simply now yet again really also then actually honestly currently still definitely please kindly at all")
	// plurals that do not look like it, and words that look like plurals.
	plurals    = words("people children staff police data media")
	notPlurals = words("always fridays mondays tuesdays wednesdays thursdays saturdays sundays weekends weekdays nights days hours times circumstances cases conditions fails breaks crashes happens dies hangs stops works exists goes needs looks seems restarts this is was us does has its status access process thus perhaps progress less unless success address business redis kubernetes aws ops devops prometheus postgres")
	// willing are verbs by which a user speaks of what others may do.
	willing = words("want wish like allow permit approve authorize authorise consent agree accept recommend advise expect")
	// neutral verbs forbid nothing when they are negated.
	neutral = words("worry mind forget hesitate fail neglect bother ask wait delay miss skip panic apologize apologise know understand see care get think remember need feel matter stress sweat sorry fret blame stop give afraid")
	// calming words after "do not be" forbid nothing.
	calming = words("afraid scared shy sorry worried surprised alarmed nervous upset mad angry silly too so")
	// spoken verbs forbid to say or suppose something: no use of a tool.
	spoken = words("tell say claim assume guess pretend believe rely conclude suppose imagine promise explain repeat mention hallucinate")
	// states are what a subject does not do, without any order.
	states = words("have know see understand care mind get remember believe seem work exist use see hear recall appear look mean agree like")
	unable = words("see connect reach access log login know imagine believe be tell find open load hear remember understand reproduce even seem get do have")
	// finite verbs make a statement of a clause with "no".
	finite      = words("was were is are happened occurred found have has had been seems worked helped helps appears will would could did does issue issues problem problems idea clue luck longer matter wonder doubt one thanks thank worries rush hurry need needs effect answer response reason")
	notGerund   = words("nothing something anything everything warning warnings morning evening meeting meaning string thing things building setting settings king ring spring")
	freeGerunds = words("asking waiting telling checking confirming informing notifying consulting talking letting getting having knowing thinking looking worrying bothering being saying hesitating obtaining receiving seeking requesting warning meaning delay thinking noticing")
	wishes      = words("tell told ask asked asking instruct instructed warn warned remember sure careful want wanted prefer promise promised agree agreed decide decided remind reminded try best better order ordered need like request requested beg expect expected important essential please rather advise advised urge urged")
	makeSure    = regexp.MustCompile(`\b(?:make (?:very |absolutely |damn )?sure|ensure|see to it|be (?:very )?(?:sure|careful)|take care|guarantee)\b`)
	politely    = regexp.MustCompile(`\b(?:can|could|would|will) you\b`)
)

// english finds the negations in English words.
func (s *sentence) english() []negation {
	var found []negation
	var at []int
	for i, w := range s.words {
		if w.kind == letters && triggers[w.text] && !s.m.reported(w.from) {
			at = append(at, i)
		}
	}
	for _, i := range edgesOf(at) {
		w := s.words[i]
		var n negation
		var ok bool
		switch w.text {
		case "not":
			n, ok = s.not(i)
		case "never":
			n, ok = s.never(i)
		case "no", "nobody", "nothing", "none", "neither":
			n, ok = s.no(i)
		case "without":
			n, ok = s.without(i)
		case "avoid", "refrain", "abstain", "stop", "quit", "cease", "hold", "leave", "keep", "stay", "hands", "skip", "forgo", "scrap", "omit", "forget", "cancel", "call":
			n, ok = s.desist(i)
		case "zero":
			n, ok = s.zero(i)
		case "except", "but", "besides", "other", "apart":
			n, ok = s.except(i)
		case "forbid", "prohibit", "disallow", "veto", "ban", "refuse", "object", "oppose":
			before := s.word(s.back(i - 1))
			n, ok = s.after(i), (before == "i" || before == "we") && !s.asked(w.from)
		case "against", "opposed":
			aux := s.back(i - 1)
			n, ok = s.after(i), s.word(aux) == "am" && s.word(aux-1) == "i"
			n.toolOnly = true
		case "forbidden", "prohibited", "banned", "disallowed", "verboten", "taboo", "off-limits", "unacceptable", "no-go", "inacceptable", "intolerable":
			n, ok = s.forbidden(i, i+1)
		case "off":
			if s.word(i+1) == "limits" {
				n, ok = s.forbidden(i, i+2)
			}
		case "out":
			if s.word(i+1) == "of" && s.word(i+2) == "the" && s.word(i+3) == "question" {
				n, ok = s.forbidden(i, i+4)
			}
		}
		if ok {
			found = append(found, n)
		}
	}
	found = append(found, s.demands()...)
	found = append(found, s.refusals()...)
	return append(found, s.readOnly()...)
}

// triggers are the words that english examines.
var triggers = words("not never no nobody nothing none neither without avoid refrain abstain stop quit cease hold leave keep stay hands skip forgo scrap omit forget cancel call zero except but besides other apart forbid prohibit disallow veto ban refuse object oppose against opposed forbidden prohibited banned disallowed verboten taboo off-limits unacceptable no-go inacceptable intolerable off out")

// maxTriggers is how many places of one sentence are examined, one half of them
// at each end: only a hostile text has more.
const maxTriggers = 64

func edgesOf[T any](list []T) []T {
	if len(list) <= maxTriggers {
		return list
	}
	return slices.Concat(list[:maxTriggers/2], list[len(list)-maxTriggers/2:])
}

// after is a negation of the word i alone.
func (s *sentence) after(i int) negation { return negation{span: s.words[i].span} }

// back returns the index of the last word up to i that is no adverb.
func (s *sentence) back(i int) int {
	for i >= 0 && s.words[i].kind == letters && (adverbs[s.words[i].text] || strings.HasSuffix(s.words[i].text, "ly") && len(s.words[i].text) > 4) {
		i--
	}
	return i
}

// forth returns the index of the first word from i on that is no adverb.
func (s *sentence) forth(i int) int {
	for i < len(s.words) && s.words[i].kind == letters && (adverbs[s.words[i].text] || strings.HasSuffix(s.words[i].text, "ly") && len(s.words[i].text) > 4) {
		i++
	}
	return i
}

// subject returns the words of the clause before the word i, without those that
// only lead in.
func (s *sentence) subject(i int) []word {
	from := i
	for from > 0 && s.words[from-1].kind == letters && !coordinators[s.words[from-1].text] {
		from--
	}
	for from < i && leads[s.words[from].text] {
		from++
	}
	return s.words[from:i]
}

func last(list []word) string {
	if len(list) == 0 {
		return ""
	}
	return list[len(list)-1].text
}

func first(list []word) string {
	if len(list) == 0 {
		return ""
	}
	return list[0].text
}

func has(list []word, set map[string]bool) bool {
	return slices.ContainsFunc(list, func(w word) bool { return set[w.text] })
}

// plural reports whether the word before a verb can be a subject in the plural.
func plural(word string) bool {
	return plurals[word] || strings.HasSuffix(word, "s") && !strings.HasSuffix(word, "ss") && len(word) > 2 && !notPlurals[word]
}

// isVerb reports whether a tool's verb begins at the word i.
func (s *sentence) isVerb(i int) bool {
	if i >= len(s.words) {
		return false
	}
	_, ok := s.verbAt(s.words[i].from)
	return ok
}

// base reports whether word is a tool's verb as it stands in an order.
func (s *sentence) base(word string) bool { return s.m.verbs.bases[word] }

// not examines "not", the auxiliary before it and what comes after.
func (s *sentence) not(i int) (n negation, ok bool) {
	aux := s.back(i - 1)
	n = negation{span: s.words[i].span}
	if aux >= 0 && s.words[aux].kind == letters {
		n.from = s.words[aux].from
	}
	next := s.forth(i + 1)
	subject := s.subject(max(aux, 0))
	who := last(subject)
	question := s.asked(n.from)
	if makeSure.MatchString(s.segmentBefore(n.from)) && slices.Contains([]string{"do", "does", "is", "are", "will", "get", "gets", "to", "can", "should", "must"}, s.word(aux)) {
		return n, true
	}
	inverted := aux >= 0 && (pronouns[s.word(i+1)] || question && determiners[s.word(i+1)])
	if inverted && (s.word(i+1) != "you" || s.word(aux) != "do" || s.word(i+2) != "dare" && s.word(i+2) != "ever") {
		return n, false
	}
	if just := s.word(i + 1); just == "only" || just == "just" || just == "merely" || just == "solely" {
		n.bare = true
		if s.word(aux) == "do" && s.told() && !s.isVerb(next) && !s.isVerb(i+2) {
			// "Don't just look, restart it!"
			return n, false
		}
	}
	verb := s.word(next)
	if spoken[verb] && !s.isVerb(next) || verb == "think" && s.word(next+1) != "about" && s.word(next+1) != "of" {
		n.bare = true
	}
	switch s.word(aux) {
	case "do":
		ok = s.doNot(&n, subject, verb, next, question)
	case "must", "shall":
		n.stated = !s.addressed(subject, next)
		ok = s.modal(subject, question) && verb != "have" && !(n.stated && others[who])
	case "should", "ought":
		n.stated = !s.addressed(subject, next)
		ok = s.modal(subject, question) && verb != "have" && !(n.stated && others[who]) && !slices.Contains([]string{"take", "matter", "happen", "cost", "hurt", "affect", "need"}, verb) &&
			!(verb == "be" && slices.Contains([]string{"a", "an", "hard", "difficult", "long", "necessary", "too", "the"}, s.word(next+1)))
	case "may":
		passive := verb == "be" && s.isVerb(s.forth(next+1))
		ok = s.modal(subject, question) && (who == "you" && !unable[verb] && verb != "need" && verb != "want" && !strings.HasPrefix(verb, "be") || passive)
	case "can":
		switch {
		case who == "you":
			// "You can't fix it without a restart" forbids nothing.
			needed := strings.Contains(s.segmentAfter(n.to), " without ") && !enConsentPattern.MatchString(s.segmentAfter(n.to))
			ok = !question && (!unable[verb] && !needed || s.isVerb(next))
		case verb == "be":
			n.toolOnly, n.able = true, true
			ok = s.isVerb(s.forth(next+1)) || touched[s.word(s.forth(next+1))]
		case who == "we":
			ok, n.toolOnly, n.able = !question, true, true
		}
		ok = ok && s.modal(subject, question)
	case "will":
		ok = !question && (who == "you" && !unable[verb] || who == "we" && s.isVerb(next) || (who == "i" || who == "we") && willing[verb]) && s.modal(subject, question)
	case "would":
		wish := verb == "want" || verb == "recommend" || verb == "advise"
		n.toolOnly = !wish
		ok = !question && (who == "i" || who == "we")
	case "did":
		// "I'd rather you didn't restart it."
		ok = who == "you" && !question && wished.MatchString(s.segmentBefore(n.from))
	case "need", "have":
		n.toolOnly, n.ask, n.needless = true, true, true
		ok = s.word(aux) == "need" && !question && !neutral[verb] && !spoken[verb]
	case "is", "are", "am", "be":
		ok = s.isNot(&n, subject, i, next, question)
	case "please", "better", "best", "rather":
		ok = true
	case "you":
		polite := politely.MatchString(s.text(s.words[max(aux-1, 0)].from, s.words[aux].to))
		ok = polite && (!unable[verb] || s.isVerb(next)) || has(subject, wishes)
	case "to":
		n.from = s.words[i].from
		ok = has(subject, wishes)
	default:
		n.from = s.words[i].from
		wished := s.word(i+1) == "to" && (has(s.subject(i), wishes) || len(s.subject(i)) == 0)
		bareOrder := len(s.subject(i)) == 0 && s.isVerb(i+1) && s.base(s.word(i+1))
		ok = !question && (wished || bareOrder || len(s.subject(i)) == 0 && s.nounOnly(i+1))
	}
	return n, ok
}

// doNot decides whether "do not" is an order, by what stands before it: nothing,
// or no subject that agrees with it.
func (s *sentence) doNot(n *negation, subject []word, verb string, next int, question bool) bool {
	who := last(subject)
	real := s.isVerb(next)
	if verb == "have" || verb == "need" {
		// "You do not need to restart it" forbids little.
		n.toolOnly, n.ask, n.needless = true, true, true
		after := s.forth(next + 1)
		if s.word(after) == "to" {
			after++
		}
		to := s.word(after)
		return !question && who != "they" && who != "it" && !neutral[to] && !spoken[to] && to != "confirm" && to != "check"
	}
	switch {
	case who == "i":
		should := verb == "think" && strings.Contains(s.text(s.words[next].from, s.to), "should")
		n.bare = n.bare && !should
		benign := s.word(next+1) == "to" && (neutral[s.word(next+2)] || states[s.word(next+2)] || s.word(next+2) == "hear")
		if opinions[verb] && s.word(next+1) != "you" && s.word(next+1) != "your" {
			// "I don't like that."
			n.toolOnly = true
		}
		return !question && (willing[verb] || should) && !benign
	case verb == "be" && calming[s.word(next+1)]:
		return false
	case neutral[verb] && !real && !(verb == "think" && !n.bare):
		return false
	case who == "we" || who == "you":
		condition := len(subject) > 1 && subordinators[subject[len(subject)-2].text]
		return !question && !condition && !states[verb]
	case pronouns[who]:
		return false
	case question && (first(subject) == "why" || len(subject) > 0 && pronouns[first(subject)]):
		return false
	case plural(who) && !prepositions[first(subject)]:
		return false
	}
	return true
}

// modal reports whether a clause with "must not" and the like is an order.
func (s *sentence) modal(subject []word, question bool) bool {
	if question {
		return false
	}
	for i, w := range subject {
		switch w.text {
		case "why", "whether", "how":
			return false
		case "if":
			// "If it must not be restarted, ...": the condition itself.
			rest := subject[i+1:]
			if len(rest) <= 1 || determiners[rest[0].text] && len(rest) <= 3 {
				return false
			}
		}
	}
	return true
}

// isNot examines "is not allowed" and the like.
func (s *sentence) isNot(n *negation, subject []word, i, next int, question bool) bool {
	who := last(subject)
	word := s.word(next)
	switch {
	case who == "let":
		return true
	case question || who == "i" || who == "they" || who == "he" || who == "she":
		return false
	case slices.Contains([]string{"allowed", "permitted", "authorized", "authorised", "entitled", "approved", "acceptable", "ok", "okay", "fine", "wanted", "desired", "welcome", "advisable", "supposed", "meant"}, word):
		n.to = s.words[next].to
		if who == "you" || who == "we" {
			return true
		}
		n.prior = true
		n.toolOnly = !strings.HasSuffix(first(subject), "ing") || notGerund[first(subject)]
		return word != "supposed" && word != "meant"
	case word == "an" && s.word(next+1) == "option":
		n.to, n.prior, n.toolOnly = s.words[next+1].to, true, true
		return true
	case s.word(i+1) == "to":
		return s.word(i+2) != "blame" && s.word(i+2) != "say"
	case who == "you" || who == "we":
		return word == "going" && s.word(next+1) == "to" && s.isVerb(s.forth(next+2))
	}
	return false
}
