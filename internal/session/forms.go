package session

import (
	"regexp"
	"slices"
	"strings"
)

// never examines "never".
func (s *sentence) never(i int) (negation, bool) {
	n := s.after(i)
	next := s.forth(i + 1)
	verb := s.word(next)
	if just := s.word(i + 1); just == "just" || just == "only" || spoken[verb] && !s.isVerb(next) {
		n.bare = true
	}
	aux := s.back(i - 1)
	question := s.asked(n.from)
	switch s.word(aux) {
	case "must", "should", "shall", "may", "can":
		return n, s.modal(s.subject(aux), question) && verb != "have" && (s.word(aux) != "can" && s.word(aux) != "may" || last(s.subject(aux)) == "you" || verb == "be")
	case "will":
		who := last(s.subject(aux))
		return n, !question && (who == "you" || who == "we")
	case "is", "are", "be":
		return n, !question && verb == "to"
	case "have", "has", "had", "was", "were", "been", "did", "does", "would", "could":
		return n, false
	}
	if slices.Contains([]string{"should", "must", "may", "shall"}, verb) {
		return n, !question
	}
	past := slices.Contains([]string{"seen", "been", "had", "heard", "knew", "known", "thought", "got", "happened", "saw", "did", "worked", "works", "mind", "ending", "a"}, verb) ||
		strings.HasSuffix(verb, "ed") && !s.base(verb) && verb != "need" && verb != "feed"
	if past || neutral[verb] && !s.isVerb(next) {
		return n, false
	}
	subject := s.subject(i)
	who := last(subject)
	switch {
	case question && len(subject) > 0:
		return n, false
	case len(subject) == 0 || prepositions[first(subject)] && !pronouns[who]:
		return n, true
	case who == "we" || who == "you":
		condition := len(subject) > 1 && subordinators[subject[len(subject)-2].text]
		return n, !condition && !states[verb] && !strings.HasSuffix(verb, "s")
	case pronouns[who] || plural(who):
		return n, makeSure.MatchString(s.segmentBefore(n.from))
	}
	return n, s.base(verb) || makeSure.MatchString(s.segmentBefore(n.from))
}

// no examines "no", "nobody", "nothing" and the like.
func (s *sentence) no(i int) (negation, bool) {
	n := s.after(i)
	if s.asked(n.from) {
		return n, false
	}
	before, next := s.word(i-1), s.word(i+1)
	if slices.Contains([]string{"under", "in", "on", "at", "by"}, before) && slices.Contains([]string{"circumstances", "circumstance", "condition", "case", "account", "time", "means", "way", "event", "conditions"}, next) && s.word(i) == "no" {
		n.from, n.to, n.prior = s.words[i-1].from, s.words[i+1].to, true
		return n, before != "in" || next != "way" || s.isVerb(i+2)
	}
	subject := s.subject(i)
	if len(subject) > 0 && enConsentPattern.MatchString(s.text(subject[0].from, s.words[i].from)) {
		subject = nil
	}
	if who := last(subject); (who == "want" || who == "demand") && (first(subject) == "i" || first(subject) == "we") || who == "be" && has(subject, words("must should shall may can will to")) {
		// "I want no restarts", "there must be no restart".
		return n, true
	}
	if len(subject) > 0 {
		// "Make no changes", "restart nothing".
		order := len(subject) == 1 && (s.base(first(subject)) || words("make do change touch modify take perform execute alter allow")[first(subject)])
		n.prior = order
		return n, order && s.word(i) != "neither" || makeSure.MatchString(s.segmentBefore(n.from)) && s.word(i) != "neither"
	}
	if s.word(i) == "neither" {
		return n, s.isVerb(i + 1)
	}
	if s.word(i) == "no" && (i+1 >= len(s.words) || s.words[i+1].kind != letters) {
		return n, false
	}
	if s.word(i) == "no" && generalNoun(s.text(n.to, s.to)) {
		clause := s.segmentAfter(n.to)
		return n, (generalOrder.MatchString(clause) || shortOrder.MatchString(clause) && s.subjectless(n.from)) && !generalTold.MatchString(clause)
	}
	if s.word(i) == "no" && (next == "need" || next == "reason") {
		after := i + 2
		if s.word(after) == "to" || s.word(after) == "for" {
			after++
		}
		n.ask, n.toolOnly, n.needless = true, true, true
		n.to = s.words[i+1].to
		return n, !neutral[s.word(after)] && !spoken[s.word(after)]
	}
	// Up to the verb, "no service may be restarted".
	for j := i + 1; j < len(s.words) && j <= i+4 && s.words[j].kind == letters; j++ {
		switch s.words[j].text {
		case "may", "should", "must", "shall", "is", "are", "gets", "can", "gets'":
			verb := s.word(s.forth(j + 1))
			if t := s.words[j].text; t == "is" || t == "are" {
				return n, verb == "to" || verb == "allowed" || verb == "permitted"
			} else if t == "can" {
				n.toolOnly = true
				return n, verb == "be"
			}
			return n, verb != "have"
		}
	}
	if s.word(i) != "no" {
		return n, s.word(i) == "nobody" && (s.base(next) || words("change touch modify alter")[next])
	}
	clause := s.clauseFrom(i + 1)
	if has(clause, finite) {
		return n, false
	}
	for j := i + 1; j <= i+3 && j < len(s.words) && s.words[j].kind == letters; j++ {
		if s.isVerb(j) {
			return n, true
		}
	}
	if strings.HasSuffix(next, "ing") && len(next) > 4 && !notGerund[next] {
		return n, true
	}
	return n, has(s.words[i+1:], words("please without until unless allowed"))
}

// clauseFrom returns the words from i to the end of the clause.
func (s *sentence) clauseFrom(i int) []word {
	to := i
	for to < len(s.words) && s.words[to].kind == letters && !enBoundary[s.words[to].text] {
		to++
	}
	return s.words[min(i, to):to]
}

// without examines "fix it without restarting anything".
func (s *sentence) without(i int) (negation, bool) {
	n := s.after(i)
	next := i + 1
	for determiners[s.word(next)] || s.word(next) == "another" {
		next++
	}
	clause := s.segmentBefore(n.from)
	if s.asked(n.from) || next >= len(s.words) || freeGerunds[s.word(next)] || negated.MatchString(clause) {
		return n, false
	}
	before := s.words[:i]
	if j := slices.IndexFunc(s.words, func(w word) bool { return w.from >= s.segment(n.from).from }); j >= 0 && j <= i {
		before = s.words[j:i]
	}
	for len(before) > 0 && leads[before[0].text] {
		before = before[1:]
	}
	if pronouns[first(before)] || determiners[first(before)] || len(before) == 0 {
		return n, false
	}
	gerund := strings.HasSuffix(s.word(next), "ing") && !notGerund[s.word(next)]
	n.toolOnly = !gerund
	return n, gerund || s.isVerb(next)
}

var negated = regexp.MustCompile(`\b(?:not|never|no|nothing|nobody|cannot|impossible|hard|difficult)\b|n't\b|不|别|勿|禁止`)

// desist examines orders to leave something.
func (s *sentence) desist(i int) (negation, bool) {
	n := s.after(i)
	subject := s.subject(i)
	ordered := len(subject) == 0 || slices.Contains([]string{"must", "should", "shall", "please", "always"}, last(subject)) ||
		last(subject) == "us" && first(subject) == "let" || last(subject) == "to" && has(subject, words("have need want")) && !has(subject, words("did does not"))
	if !ordered || s.asked(n.from) && !politely.MatchString(s.segmentBefore(n.from)) {
		return n, false
	}
	next := s.word(i + 1)
	switch s.word(i) {
	case "skip", "forgo", "scrap", "omit", "forget":
		n.toolOnly = true
		return n, !s.isVerb(i) && s.nounNext(i+1)
	case "cancel", "call":
		// What was to be done now is not wanted any more; in doubt it stands
		// until it is lifted.
		n.toolOnly = true
		off := s.word(i) == "cancel" || next == "off"
		if next == "off" {
			i++
		}
		return n, off && !s.isVerb(i) && s.word(i+1) != "" && determiners[s.word(i+1)] && s.nounNext(i+1)
	case "avoid":
		return n, !freeGerunds[next]
	case "refrain", "abstain":
		return n, next == "from"
	case "stop", "quit", "cease":
		return n, strings.HasSuffix(next, "ing") && !notGerund[next] && !freeGerunds[next]
	case "hold":
		n.toolOnly = true
		return n, next == "off"
	}
	n.all = true
	return n, awayPattern.MatchString(s.text(n.from, s.to)) && !awayPeople.MatchString(s.text(n.from, s.to))
}

var awayPeople = regexp.MustCompile(`^leave (?:me|us|him|her|them) (?:alone|running)\b`)

// nounNext reports whether a tool's verb comes next, as the name of an act: "the
// restart", "about restarting it".
func (s *sentence) nounNext(i int) bool {
	for s.word(i) == "about" || determiners[s.word(i)] || nounLeads[s.word(i)] {
		i++
	}
	return s.isVerb(i)
}

var nounLeads = words("this that these those another other more further planned scheduled next second whole idea of")

// nounOnly reports whether the words from i on are "a restart" and no more than a
// word that stresses.
func (s *sentence) nounOnly(i int) bool {
	if s.word(i) == "one" {
		i++
	}
	if !words("a an another any more")[s.word(i)] || !s.isVerb(i+1) {
		return false
	}
	for _, w := range s.words[i+2:] {
		if w.kind != mark && !words("please now today ok pls either")[w.text] {
			return false
		}
	}
	return true
}

// zero examines "zero restarts please".
func (s *sentence) zero(i int) (negation, bool) {
	n := s.after(i)
	n.toolOnly = true
	order := strings.HasSuffix(s.text(s.from, s.to), "!") || has(s.words[i:], words("please pls until unless without allowed permitted today tonight tomorrow"))
	clause := s.clauseFrom(i + 1)
	return n, order && !s.asked(n.from) && len(s.subject(i)) == 0 && s.nounNext(i+1) && !has(clause, finite) && !has(clause, words("in since"))
}

// except examines "do anything except restart".
func (s *sentence) except(i int) (negation, bool) {
	n := s.after(i)
	n.toolOnly = true
	next := i + 1
	switch s.word(i) {
	case "other":
		if s.word(next) != "than" {
			return n, false
		}
		next++
	case "apart":
		if s.word(next) != "from" {
			return n, false
		}
		next++
	}
	if s.word(next) == "for" || s.word(next) == "to" {
		next++
	}
	if determiners[s.word(next)] {
		next++
	}
	return n, s.isVerb(next) && !s.asked(n.from) && exceptOrder.MatchString(s.segmentBefore(n.from))
}

var (
	exceptOrder = regexp.MustCompile(`^ *(?:please |ok |okay |and |just |so )*(?:you (?:may|can|could|should|are (?:free|allowed) to) |feel free to |do |try )(?:\w+ ){0,2}(?:anything|everything|whatever|all)\b`)
	wished      = regexp.MustCompile(`\b(?:rather|prefer|preferred|glad|happy|happier|appreciate|grateful|wish|better|best|great|nice)\b`)
)

// refusals finds where the user answers an own short question: "Restart it?
// Absolutely not."
func (s *sentence) refusals() []negation {
	p := s.previous
	if p == nil || strings.Contains(s.m.text[p.to:s.from], "\n") || !refusalPattern.MatchString(s.text(s.from, s.to)) || s.m.reported(s.from) || !p.elliptic() {
		return nil
	}
	return []negation{{span: s.span, prior: true, toolOnly: true}}
}

var (
	refusalPattern = regexp.MustCompile(`^(?:no|nope|never|please|oh|hell|absolutely|certainly|definitely|of course|by|way|not|in|means|chance|a|under|circumstances?|any|out of the question|forget it|on my watch|now|today|ever|[,!. ])+$|^(?:绝对|当然|肯定|现在|那|可|是|也)*(?:不行|不可以?|不能|不要|不准|不许|不|免谈|没门|休想|想都别想)(?:的|啊|哦)?[!。. ]*$`)
	enElliptic     = regexp.MustCompile(`\b(?:failed|fails|done|finished|ok|okay|complete|completed|possible|needed|necessary|required|worked|works|helped|happened|was|is|did|has|had|again|already|successful|why|when|log|logs|time)\b`)
)

// elliptic reports whether the sentence is nothing but a question with a tool's
// verb: "Restart it?", "重启？".
func (s *sentence) elliptic() bool {
	text := s.text(s.from, s.to)
	if !questionPattern.MatchString(text) || len(s.verbs) == 0 || len(s.words) > 8 {
		return false
	}
	first := s.firstWord(s.from)
	for determiners[s.word(first)] || s.word(first) == "another" {
		first++
	}
	if first >= len(s.words) {
		return false
	}
	if s.words[first].kind == signs {
		last := s.verbs[len(s.verbs)-1]
		return strings.Trim(s.text(last.to, s.to), " ?!吧吗它") == "" && !zhAsksHere.MatchString(text)
	}
	return s.isVerb(first) && !enElliptic.MatchString(text)
}

var awayPattern = regexp.MustCompile(`^(?:hands off|stay away from|keep (?:your )?hands (?:off|away)|keep (?:away from|off)|leave [^,;.!?]{1,60} (?:alone|untouched|as it is|as is|running))\b`)

// forbidden examines "restarts are strictly forbidden"; the words end before to.
func (s *sentence) forbidden(i, to int) (negation, bool) {
	n := negation{span: span{s.words[i].from, s.words[to-1].to}, prior: true}
	if s.asked(n.from) {
		return n, false
	}
	aux := s.back(i - 1)
	switch s.word(aux) {
	case "is", "are", "be", "remain", "remains", "stay", "stays":
	case "not", "longer", "never":
		return n, false
	default:
		n.toolOnly = true
	}
	before := s.segmentBefore(n.from)
	switch s.word(i) {
	case "off", "off-limits", "taboo":
		n.all = !answerThings.MatchString(before)
	case "out", "unacceptable", "inacceptable", "intolerable", "no-go":
		// Of the act itself: "restarting it", "a restart".
		n.toolOnly = true
		act := s.wordAt(s.segment(n.from).from)
		act = s.firstWord(s.words[min(act, i)].from)
		gerund := strings.HasSuffix(s.word(act), "ing")
		for determiners[s.word(act)] || nounLeads[s.word(act)] {
			act++
		}
		o, ok := s.verbAt(s.words[min(act, i)].from)
		if !ok || !gerund && aux >= 0 && o.to != s.words[max(aux-1, 0)].to {
			return n, false
		}
	}
	if strings.Contains(before, "no longer") || errorSubject.MatchString(before) {
		return n, false
	}
	return n, true
}

var errorSubject = regexp.MustCompile(`\b(?:access|request|requests|page|endpoint|url|login|response|status|403)\b`)

var (
	demandPattern = regexp.MustCompile(`\b(?:ask (?:first |nicely )?before (?:you|any|a|each|every|\w+ing)|let (?:me|us) know(?: \w+){0,2} before (?:you|any|a|each|every|\w+ing)|(?:tell|inform|notify|warn) (?:me|us)(?: \w+){0,2} before (?:you|any|a|each|every|\w+ing)|ask (?:me|us|for my|for permission)|check with (?:me|us)|consult (?:me|us)|confirm (?:it |this |that |everything )?with (?:me|us)|talk to (?:me|us)|(?:get|seek|obtain|wait for|need|needs|require|requires) (?:my|our) (?:\w+ )?(?:approval|permission|ok|okay|consent|confirmation|go-ahead|sign-?off))\b|\bonly\b`)
	onlyWhen      = regexp.MustCompile(`^only (?:with|after|upon) (?:my|our)\b|^only .{1,60} (?:when|if|after|once) (?:i|we) (?:say|tell|ask|approve|confirm|agree|have|give)\b`)
	firstPattern  = regexp.MustCompile(`\b(?:first|before|beforehand|whenever|every time|each time|always|only|approval|permission|consent|confirmation|go-ahead|sign-?off)\b`)
	needlessAsk   = regexp.MustCompile(`\b(?:not|never|no|needless|stop|without|longer|rather than|instead of)\b|n't\b`)
	zhDemand      = regexp.MustCompile(`(?:必须|务必|一定要?|都要|都得|要|得|需要?|先|记得)(?:先|来|跟|和|向|找|经过?|由|让|得到|征得)*(?:问|请示|征求|征得|告诉|告知|通知|询问|确认|汇报|经过|经|得到|跟|和)?(?:一下|下|过)?(?:我|用户)(?:本人)?(?:的)?(?:同意|确认|批准|允许|授权|许可|意见|商量|说一声|打个?招呼|说)?(?:一下|一声|后|之后|以后|才|再|吧|。|$|,|!| )|(?:之前|以前|前)(?:都|请|你|也)*(?:问|请示|征求|询问|告诉|通知|跟|和|找|向)(?:一下|下)?我(?:说一声|讲一声|打个?招呼|确认|商量|请示|汇报)?`)
	zhAskFirst    = regexp.MustCompile(`问|请示|征求|征得|询问|确认|同意|批准|允许|授权|许可|商量|汇报|说一声|招呼`)
)

// demands finds where the user asks to be asked, without any negation.
func (s *sentence) demands() []negation {
	text := s.text(s.from, s.to)
	var found []negation
	for _, at := range edgesOf(demandPattern.FindAllStringIndex(text, -1)) {
		from, to := s.from+at[0], s.from+at[1]
		before := s.segmentBefore(from)
		if text[at[0]:at[1]] == "only" && !onlyWhen.MatchString(text[at[0]:]) {
			continue
		}
		if s.m.reported(from) || s.asked(from) || !firstPattern.MatchString(text) || needlessAsk.MatchString(before) {
			continue
		}
		if i := strings.Index(text[at[0]:at[1]], "before "); i >= 0 {
			// What is to be asked about stands behind.
			to = from + i
		}
		found = append(found, negation{span: span{from, to}, prior: true, ask: true})
	}
	for _, at := range edgesOf(zhDemand.FindAllStringIndex(text, -1)) {
		from, to := s.from+at[0], s.from+at[1]
		before := s.segmentBefore(from)
		if s.m.reported(from) || s.asked(from) || !zhAskFirst.MatchString(text[at[0]:at[1]]) || strings.HasSuffix(before, "不") || strings.HasSuffix(before, "别") || zhNeedless.MatchString(before) {
			continue
		}
		found = append(found, negation{span: span{from, to}, prior: true, ask: true, toolOnly: true})
	}
	return found
}

var zhNeedless = regexp.MustCompile(`不用|不必|无需|不需要|没必要|别|不要|不再|忘|为什么|怎么|如果`)
