package session

import (
	"regexp"
	"slices"
	"strings"
)

// lift is a clause that expressly allows something again.
type lift struct {
	object
	// tools are those that it allows, AllWrites among them.
	tools []string
	// takes says that it takes a prohibition back, whose words may be in it.
	takes bool
	// every: it takes all restrictions back.
	every bool
	// words: it speaks of no tool, or of all restrictions.
	words bool
}

// worded reports whether the lift can be of a prohibition without tools.
func (l lift) worded() bool { return l.words && (l.named() && !l.pronoun || l.takes && l.every) }

// enLead may stand before a permission.
const enLead = `^(?:ok|okay|yes|yeah|right|alright|all right|fine|good|great|thanks|thank you|so|and|well|now|from now on|as of now|please note|again|hello|hi|hey|[, ])*`

var (
	enMay = regexp.MustCompile(enLead + `you(?: now| again|'re| are)* (?:may|(?:are )?(?:now |again )?(?:allowed|permitted|free|authori[sz]ed|cleared) to|have (?:my|our) (?:permission|approval|ok|okay|blessing|consent) to)\b`)
	enCan = regexp.MustCompile(enLead + `(?:now )?you can\b`)
	enNow = regexp.MustCompile(`\b(?:now|again|from now on|any ?time|whenever you (?:like|want)|freely|as you (?:like|wish))\b`)
	// enIdle follows "may" and gives no permission.
	enIdle  = regexp.MustCompile(`\b(?:may|can|to) (?:also |now |even )*(?:want|need|have|wish|be|see|find|notice|know|stop|avoid|quit|skip|think|ask|wonder|remember|not)\b`)
	enFine  = regexp.MustCompile(enLead + `(?:it is|it's|its|it's now|it is now)(?: now| again| totally| perfectly| absolutely)* (?:ok|okay|fine|alright|all right|allowed|permitted)(?: again| now| for you)* to\b`)
	enFree  = regexp.MustCompile(enLead + `feel free to\b`)
	enTake  = regexp.MustCompile(enLead + `(?:i|we)?(?: hereby| now|'m| am|'d like to| want to| would like to)* ?(?:lift|lifting|remove|withdraw|revoke|cancel|rescind|drop|take back|end)\b.{0,40}\b(?:ban|prohibition|restriction|rule|block|freeze|embargo|instruction|order|hold|limit|what i said|"|“)`)
	enAllow = regexp.MustCompile(enLead + `(?:i|we)(?: now| hereby| do)* (?:allow|permit|authori[sz]e)(?: you)?\b`)
	enDone  = regexp.MustCompile(`\b(?:is|are)(?: now| again)* (?:allowed|permitted|ok|okay|fine)(?: again| now)*[.! ]*$`)
	enOver  = regexp.MustCompile(enLead + `the (?:ban|prohibition|restriction|freeze|embargo) on\b.{1,60}\b(?:is|has been) (?:now )?(?:lifted|over|removed|withdrawn|gone)\b`)
	enIf    = regexp.MustCompile(`\b(?:if|when|whenever i|unless|once|after|as soon as|as long as|provided|only|in case|assuming|until|till|before|except|but|however|though|although|first|should)\b`)
	enReply = regexp.MustCompile(`\b(?:say|says|said|told|tells|docs?|according|think|thinks|guess|believe|hear|heard|read|wonder|asks?|asked|whether|why|how|what)\b`)

	zhLead  = `^(?:好的?|好了|行|对|嗯|ok|那么?|现在|目前|今天|从现在起|从现在开始|已经|你们?|您|我|也|又|都|请|[, ])*`
	zhCan   = regexp.MustCompile(zhLead + `(?:可以|能)(?:随时|再次|再|重新|继续|开始|正常|放心)*`)
	zhAllow = regexp.MustCompile(zhLead + `(?:重新|再次)?(?:允许|准许|准|授权|同意你|同意您)(?:你|您|再|重新|继续|可以|去)*`)
	zhEnd   = regexp.MustCompile(`(?:了|啦|咯)(?:吧|啊|哦|哈)?[ 。.!~]*$`)
	zhNow   = regexp.MustCompile(`现在|从现在|随时|今后|重新|再`)
	zhTake  = regexp.MustCompile(zhLead + `(?:正式|特此|宣布)*(?:解除|取消|撤销|撤回|收回|废除|放开|解禁)`)
	zhBan   = regexp.MustCompile(`禁令|限制|禁止|约束|规定|要求|不要|不准|不许|冻结|封禁|指令|命令|解禁|禁`)
	zhOver  = regexp.MustCompile(`(?:禁令|限制|冻结|封禁|禁止)[^,。;]{0,12}(?:已经|已|现在|都)?(?:解除|取消|撤销|放开|结束)(?:了)?[ 。.!]*$`)
	zhIf    = regexp.MustCompile(`如果|若|要是|假如|等|之后|以后|后再|后可|后就|后才|一旦|除非|只有|只要|才|仅|只|但|不过|(?:^|,)除了|的话|前提|以前|之前|万一|说|问|听|觉得|以为|是否|吗|么|呢`)
	// zhEarlier is of what is taken back, and no condition.
	zhEarlier = regexp.MustCompile(`(?:之前|以前|此前|刚才)(?:的|说的|那个|那条|对|不要|不准|不许|禁止)`)
	enNot     = regexp.MustCompile(`\b(?:not|no|never|nothing|nobody|none|without|cannot|neither|nor|dont|cant|forbidden|prohibited)\b|n't\b`)
	zhNot     = regexp.MustCompile(`不|没|未|别|勿|无|莫`)
	// generalLeave is of leave to make changes of any kind.
	generalLeave = regexp.MustCompile(`\b(?:make|making|do|perform|apply|start making) (?:any |the |all |your |more |further |these |those )*(?:changes?|modifications?|edits|writes|anything|everything)\b|\b(?:change|modify|touch|alter|changing|modifying|touching|altering)\b|\b(?:changes|modifications|writes|write operations|write access)\b|改动|变动|变更|修改|更改|写操作|动手|` +
		`(?:可以|能|允许你?|准你?)(?:随时|再次|再|重新|继续|开始|正常|放心|随便|去)*(?:动(?:[^不态机辄脑怒摇情人力画作心]|$)|碰(?:[^巧壁面头]|$)|改(?:[^口天善进革编名日]|$))`)
	enAll = regexp.MustCompile(`\b(?:all|every|any) (?:(?:the|my|our|of|these|those|\w+) ){0,3}(?:bans?|prohibitions?|restrictions?|rules?|blocks?)\b`)
	zhAll = regexp.MustCompile(`(?:所有|全部|一切)的?(?:禁令|限制|禁止)`)
)

// lifts returns what the message allows again. It finds little rather than much:
// an affirmative sentence of the user's own, without a question or a condition,
// in words that give permission. A request ("restart it", "go ahead and restart
// it") gives none, because it may have been made without thinking of the
// prohibition.
func (m *message) lifts() []lift {
	var found []lift
	for _, s := range m.sentences {
		if l, ok := s.lift(); ok {
			found = append(found, l)
		}
	}
	return found
}

var (
	// pastedPattern is of text that is not the user's own order: a colon, or a
	// request that is about a text.
	pastedPattern = regexp.MustCompile(`\d:\d|://|:|\b(?:summari[sz]e|translate|rewrite|proofread|paraphrase|rephrase|forward(?:ed)?|e-?mails?|wrote|writes|quote)\b|翻译|总结|概括|改写|润色|转发|邮件|写道`)
	blankPattern  = regexp.MustCompile(`\S\s*\n[ ]*\n`)
)

// own reports whether what stands at the place is in the user's own short words,
// and not in a text that they only pass on.
func (m *message) own(at int) bool {
	before := m.text[:at]
	if blankPattern.MatchString(before) {
		return false
	}
	for _, found := range pastedPattern.FindAllString(before, -1) {
		if found == "://" || !strings.Contains(found, ":") || found == ":" {
			return false
		}
	}
	return true
}

func (s *sentence) lift() (lift, bool) {
	text := s.text(s.from, s.to)
	if len(s.m.original) > OwnBytes || strings.Contains(text, "?") || zhQuestionEnd.MatchString(text) || enIf.MatchString(text) || zhIf.MatchString(zhEarlier.ReplaceAllString(text, "")) {
		return lift{}, false
	}
	for _, p := range s.segments() {
		clause := s.text(p.from, p.to)
		start, takes := s.permission(clause, p.from)
		if start < 0 || s.m.reported(p.from+start) {
			continue
		}
		rest := text
		if takes {
			rest = banWords.ReplaceAllString(text, " ")
		} else if enReply.MatchString(text) {
			return lift{}, false
		}
		if enNot.MatchString(rest) || zhNot.MatchString(rest) || !s.m.own(p.from+start) {
			return lift{}, false
		}
		l := lift{tools: s.tools(p.from, p.to), takes: takes}
		l.every = enAll.MatchString(clause) || zhAll.MatchString(clause)
		switch {
		case generalLeave.MatchString(clause):
			l.tools = append(l.tools, AllWrites)
		case len(l.tools) == 0 && takes && l.every:
			l.tools = append(s.m.verbs.tools(), AllWrites)
			l.words = true
		case len(l.tools) == 0:
			l.words = true
		}
		l.object = s.object(p, takes)
		return l, len(l.tools) > 0 || l.named() || takes
	}
	return lift{}, false
}

// banWords are the words of the prohibition that a sentence takes back.
var banWords = regexp.MustCompile(`"[^"]*"|“[^”]*”|「[^」]*」|\b(?:instruction|order|request|rule|demand|command)s? (?:not|never) to \w+|(?:不要|不准|不许|不得|禁止)[^,。;]{1,40}的(?:要求|限制|规定|禁令|指令|命令|约束|说法)`)

// permission returns where in a clause permission is given, or -1, and whether
// that takes a prohibition back. The clause begins at from.
func (s *sentence) permission(text string, from int) (at int, takes bool) {
	for _, p := range []*regexp.Regexp{enTake, enOver, zhOver} {
		if at := p.FindStringIndex(text); at != nil {
			return at[0], true
		}
	}
	if at := zhTake.FindStringIndex(text); at != nil && zhBan.MatchString(text) {
		return at[0], true
	}
	find := func(p *regexp.Regexp, ok bool) bool {
		found := p.FindStringIndex(text)
		if found == nil || !ok {
			return false
		}
		at = found[1] - 1
		return true
	}
	switch {
	case find(enMay, !enIdle.MatchString(text)),
		find(enCan, enNow.MatchString(text) && !enIdle.MatchString(text)),
		find(enFine, true), find(enFree, true), find(enAllow, true),
		find(enDone, s.isVerb(s.firstWord(from)) || generalLeave.MatchString(text)):
		return at, false
	case find(zhAllow, true) && (s.near(from+at+1, 1) || generalLeave.MatchString(text)),
		find(zhCan, zhEnd.MatchString(text) || zhNow.MatchString(text)) && (s.near(from+at+1, 48) || zhEnd.MatchString(text) && strings.HasSuffix(text[:at+1], "以")):
		return at, false
	}
	return -1, false
}

// firstWord returns the index of the first word from a place on that does not
// only lead in.
func (s *sentence) firstWord(from int) int {
	i := s.wordAt(from)
	for i < len(s.words) && (leads[s.words[i].text] || s.words[i].kind == mark) {
		i++
	}
	return i
}

// near reports whether a tool's verb begins within so many bytes.
func (s *sentence) near(from, within int) bool {
	for from < s.to && s.m.text[from] == ' ' {
		from++
	}
	list := s.verbsFrom(from)
	return len(list) > 0 && list[0].from < from+within
}

func (all verbs) tools() []string {
	var tools []string
	for _, v := range all.list {
		tools = append(tools, v.tool)
	}
	return slices.Compact(tools)
}
