package session

import (
	"regexp"
	"strings"
)

// told reports whether it can be told what is a tool's verb: with an empty
// vocabulary it cannot.
func (s *sentence) told() bool { return len(s.m.verbs.list) > 0 }

var (
	// others are persons of whom a user speaks; what they must not do is told, and
	// no order.
	others = words("users customers clients visitors guests people readers patients students they he she someone")
	agents = words("you nobody one agent assistant bot ai model copilot fairlead tool system")
	// opinions are verbs by which a user speaks of a liking.
	opinions = words("like agree expect accept recommend")
)

// addressed reports whether a clause with "must not" is an order to the agent, by
// its subject: there is none, or it is the agent; or a thing suffers it.
func (s *sentence) addressed(subject []word, next int) bool {
	who := last(subject)
	suffers := s.word(next) == "be" && (s.isVerb(s.forth(next+1)) || participle.MatchString(s.word(s.forth(next+1))))
	return who == "" || agents[who] || suffers && !others[who] || prepositions[first(subject)] && !pronouns[who] && !plural(who) || who == "please" || who == "should" || who == "must"
}

var participle = regexp.MustCompile(`(?:ed|en|wn)$|^(?:sent|lost|run|put|cut|shut|made|done|sold|told|built|paid|read|hit|set|left|kept|held|brought|used)$`)

// English words by which a change of anything at all is spoken of.
var (
	// generalLeads may stand between a negation and the verb of a change.
	generalLeads = words("ever even just please also you to for want try trying attempt attempting think thinking about of dare dream be get go and start under any circumstances circumstance at all time in way anything everything gets is are allowed permitted supposed recommend like anybody anyone from keep should may must shall can will one or on simply directly manually actually accidentally yet then it us me do")
	askLeads     = words("before first whenever beforehand if when")
	// touched are forms of verbs that change anything that they are said of.
	touched = func() map[string]bool {
		set := map[string]bool{}
		for _, base := range []string{"change", "modify", "touch", "alter", "tamper", "mess", "meddle", "fiddle", "mutate", "tinker", "interfere"} {
			for form := range inflections(base) {
				set[form] = true
			}
		}
		for _, no := range []string{"changement", "messment", "interferes"} {
			delete(set, no)
		}
		return set
	}()
	// generalDone are verbs that change everything only with such an object.
	generalDone = func() map[string]bool {
		set := map[string]bool{}
		for _, base := range []string{"edit", "update", "write", "do", "run", "execute", "perform", "make", "take", "fix", "break", "move", "apply", "carry", "attempt", "issue", "push"} {
			for form := range inflections(base) {
				set[form] = true
			}
		}
		return set
	}()
	generalObject  = regexp.MustCompile(`^(?: +(?:out|to|in|on|a|an|the|any|some|more|further|other|such|single|write|unapproved|your|own))* +(?:(?:changes?|modifications?|edits|alterations?|mutations?|writes|write (?:operations?|actions?|access|calls?)|production|prod|live|write)\b|actions?(?: (?:on|in|against|that|without|until|unless|at all|now|yet)\b|[ .!,;]*$)|anything(?: (?:on|in|to|with|against|without|until|unless|before|at all|now|yet|there|here|today|tonight|that|which|please|about|by|but|else|for|yourself)\b|[ .!,;]*$))`)
	generalNounRe  = regexp.MustCompile(`^(?: +(?:more|further|any|other|such|unapproved|production|config|configuration|single|manual|direct|whatsoever))* +(?:changes?|modifications?|alterations?|mutations?|edits|writes|write (?:operations?|actions?|access)|touching|tampering|changing|modifying)\b`)
	shortOrder     = regexp.MustCompile(`^ (?:more |further |any )*(?:changes|modifications|writes|edits|write operations|write access)[!. ]*$|^ (?:touching|tampering|changing|modifying|meddling)\b`)
	generalOrder   = regexp.MustCompile(`\b(?:please|pls|until|unless|without|allowed|today|tonight|on|to)\b`)
	generalTold    = regexp.MustCompile(`\b(?:was|were|is|are|found|needed|required|necessary|made|happened|since|seen|detected|have|has|had|been|yet|visible|so far|after|in the (?:log|logs|config|diff))\b`)
	generalSubject = regexp.MustCompile(`\b(?:changing|modifying|touching|altering)\b|^ *(?:any |all |further |manual |direct |production |more |such |the )*(?:changes?|modifications?|writes?|write (?:operations?|actions?))(?: (?:to|on|in|of|at) [\w -]{1,40})?(?: (?:is|are|be|remain|stay))?\b`)
	// generalThings are what a tool's own verb of change must be said of to mean
	// everything.
	generalThings = regexp.MustCompile(`^ *(?:with |to )?(?:anything|everything|production|prod\b|any |任何|一切|什么|生产|线上)|^[ .!,;。]*$`)
	// answerThings are about the answer and no use of a tool.
	answerThings = regexp.MustCompile(`\b(?:subject|topic|tone|language|wording|format|formatting|style|text|answers?|reply|replies|response|mind|spelling|phrasing|title|headline|voice|sentences?|paragraphs?|meaning|fonts?|colou?rs?|spoiler|names?)\b`)
)

var (
	zhGeneralLead = `^ *(?:再|去|乱|随便|随意|轻易|直接|擅自|自己|私自|自行|自动|先|你|您|给我|让人|任何人|对[^,。;]{1,24}?(?:做|作|进行|有)|在[^,。;]{1,16}?(?:上|里|中|做|进行)|试图|尝试|想着?|做|作|搞|进行|执行|发起|有|出现|任何|一切|什么|的|出|多余|其他|手动|人工)*`
	// zhGeneral, after the negation: no change at all.
	zhGeneral = regexp.MustCompile(zhGeneralLead + `(?:改动|变动|变更|修改|更改|更动|写操作|写入|触碰|碰(?:[^巧壁面头]|$)|改(?:[^口天善进革编名日]|$)|动(?:[^不态机辄脑怒摇情人力画作心]|$))|` +
		zhGeneralLead + `(?:任何|一切|什么)[^,。;]{0,4}(?:操作|动作)`)
	zhTouch     = regexp.MustCompile(`^ *(?:再|去|乱|随便|擅自)*(?:碰(?:[^巧壁面头]|$)|动(?:[^不态机辄脑怒摇情人力画作心弹]|$)|(?:做|有|进行)任何)`)
	zhSubject   = regexp.MustCompile(`(?:改动|变更|修改|更改|写操作|写入|动作)[^,。;]{0,4}$|任何操作[^,。;]{0,4}$`)
	zhOfAnswers = regexp.MustCompile(`主意|想法|话题|主题|语气|语言|格式|风格|措辞|文字|原文|意思|口径|标题|答案|名字`)
)

// general reports whether n forbids all changes, beside the tools it reaches.
func (s *sentence) general(n negation, r reached) bool {
	if n.bare || n.needless {
		return false
	}
	if n.all && len(r.tools) == 0 {
		return true
	}
	end := min(max(r.end, n.to), n.to+window)
	for end < s.to && s.m.text[end]&0xC0 == 0x80 {
		end--
	}
	after := s.text(n.to, max(end, n.to))
	if at := zhGeneral.FindString(after); at != "" && !n.able && !zhOfAnswers.MatchString(after) {
		own := s.ownVerb(n.to, n.to+len(at))
		return !own || !strings.HasSuffix(at, "作") && generalThings.MatchString(after[len(at):])
	}
	if n.prior && len(r.tools) == 0 {
		before := s.segmentBefore(n.from)
		if generalSubject.MatchString(before) || zhSubject.MatchString(before) || orderPattern.MatchString(before) {
			return !answerThings.MatchString(before) && !zhOfAnswers.MatchString(before)
		}
	}
	if generalNoun(after) {
		return !answerThings.MatchString(after)
	}
	return s.generalVerb(n, end)
}

// orderPattern is before "nothing": "change nothing".
var orderPattern = regexp.MustCompile(`\b(?:do|change|touch|modify|alter)[ ]*$`)

func generalNoun(text string) bool { return generalNounRe.MatchString(text) }

// generalVerb looks for a verb of change where an order has its verb: after the
// negation, and after "or".
func (s *sentence) generalVerb(n negation, end int) bool {
	start := true
	for i := s.wordAt(n.to); i < len(s.words) && s.words[i].from < end; i++ {
		w := s.words[i]
		rest := s.text(w.to, max(w.to, min(s.to, end)))
		switch {
		case w.kind == mark:
			start = start || w.text == ","
			continue
		case w.text == "or" || w.text == "nor" || w.text == "and":
			start = true
			continue
		case !start || w.kind != letters:
		case touched[w.text] && !answerThings.MatchString(head(rest)):
			certain := !n.able || generalThings.MatchString(rest)
			if certain && (!s.ownVerb(w.from, w.to) || generalThings.MatchString(rest)) {
				return true
			}
		case generalDone[w.text] && generalObject.MatchString(rest) && !n.able && !answerThings.MatchString(head(rest)):
			return true
		}
		start = start && (generalLeads[w.text] || n.ask && askLeads[w.text])
	}
	return false
}

// head is the start of what a verb is said of.
func head(text string) string {
	if i := strings.IndexAny(text, ",;."); i >= 0 {
		text = text[:i]
	}
	return text[:min(len(text), 40)]
}

// ownVerb reports whether a tool's verb lies in the place.
func (s *sentence) ownVerb(from, to int) bool {
	for _, o := range s.verbsFrom(from) {
		if o.from < to {
			return true
		}
	}
	return false
}

var (
	enReadOnly = regexp.MustCompile(`^(?:please |pls |ok |okay |and |strictly |purely |but |important |note |remember |reminder |just |now )*(?:(?:stay|be|remain|work|operate|keep (?:it|this|that|everything|things)|treat (?:it|this|everything|production) as|you are|you're|this is|access is|investigate|look|in|it is|it's)(?: strictly| purely| completely)? )?(?:in )?(?:a )?read[- ]only(?: (?:please|pls|mode|access|only|ok|for now|today|tonight|from now on|session|until [^,;]*|on production|in production|for production|thanks))*[ .!]*$`)
	zhReadOnly = regexp.MustCompile(`^ *(?:请|先|保持|全程|一律|现在|目前|今天|只能|这次|本次|生产环境|生产|线上|对|你|您|要|必须|务必)*(?:只读|只看不改|只查不改|只看不动|只读不写|只看别动|只看不做)(?:模式|操作|访问|就好|就行|即可|吧|哦|啊)*[ 。.!]*$`)
)

// readOnly finds clauses that say "read only" and nothing else.
func (s *sentence) readOnly() []negation {
	text := s.text(s.from, s.to)
	if !strings.Contains(text, "only") && !strings.Contains(text, "只") {
		return nil
	}
	const longest = 120
	var found []negation
	for _, p := range s.segments() {
		clause := s.text(p.from, p.to)
		apart := strings.TrimLeft(clause, " ")
		if len(apart) > longest || !strings.Contains(apart, "only") && !strings.Contains(apart, "只") {
			continue
		}
		if !enReadOnly.MatchString(apart) && !zhReadOnly.MatchString(apart) {
			continue
		}
		from := p.to - len(apart)
		if s.m.reported(from) || s.asked(from) || s.separator(p.from) == ':' && !s.subjectless(from) {
			continue
		}
		found = append(found, negation{span: span{from, p.to}, all: true})
	}
	return found
}
