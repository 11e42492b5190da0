package learning

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	// politeTask is what an order to work on a text may begin with.
	politeTask = `(?:(?:please|pls|kindly|(?:can|could|would|will) (?:you|u)|(?:i(?:'d| would)? (?:like|want|need) you to)|help me(?: to| with)?|let's|hi|hey|hello|ok|okay|and|then|now|also|just|quickly|briefly|bitte|请|麻烦|帮(?:我|忙|个忙)?|给我|替我|为我|你|能不能|能否|可以|可否|先|再|快速|简单)[ ,、:]*)*`
	// taskPattern begins a sentence that asks to work on a text, and on nothing
	// else that is in a message.
	taskPattern = regexp.MustCompile(`^[ ,、*#-]*` + politeTask + `(?:(?:summari[sz]e|sum up|tl;?dr|translate|proof-?read|paraphrase|re-?write|re-?phrase|reword|polish|copy-?edit|spell-?check|(?:give (?:me |us )?|write |make )?(?:a |the )?(?:short |brief |quick )?(?:summary|translation) of|(?:fix|correct|check|improve|clean up) (?:the |my |any |all )?(?:\w+ )?(?:grammar|spelling|wording|typos?|punctuation|style|english|german|french|text)|übersetz(?:e|en)?|fasse?)\b` +
		`|翻译|翻譯|总结|總結|概括|归纳|摘要|润色|潤色|改写|改寫|校对|缩写|扩写|精简|(?:改|修改|检查|纠正)(?:一下)?(?:语法|错别字|措辞|病句)|翻訳|要約|添削|번역|요약)`)
	// aboutPattern begins a sentence that may be about a text: it is one if
	// herePattern is in it.
	aboutPattern = regexp.MustCompile(`^[ ,、*#-]*` + politeTask + `(?:(?:reply|respond|answer|explain|review|read|edit|improve|shorten|simplify|correct|format|convert|extract|classify|analy[sz]e|interpret|comment|describe|fix|look at|what (?:do|does|did)|what's|tell me what|how (?:do|should|would) (?:i|we|you) (?:reply|answer|respond))\b|什么意思|怎么(?:看|回|理解)|看看|看一下|读一下|解释|回复|回答|分析|修改|检查|把|将|对(?:下面|以下|这|上面)|下面|以下|这|上面)`)
	herePattern  = regexp.MustCompile(`\b(?:this|that|these|those|following|below|above|attached|he|she|they|it|(?:the|my|an?) (?:text|message|mail|e-?mail|letter|article|paragraph|passage|document|draft|note|review|comment|post|tweet|abstract|essay|sentence))\b|下面|以下|如下|这(?:段|封|篇|条|句|个|些|份|是|话)|上面|上文|以上|原文`)
	abovePattern = regexp.MustCompile(`\b(?:the above|above)\b|上面|以上|上文`)
	// textTask is in a sentence of Chinese that says what it is about first.
	textTask = regexp.MustCompile(`翻译|总结|概括|归纳|润色|改写|校对|缩写|扩写|精简|回复|回答|解释|分析|修改|检查|语法|什么意思|怎么看|怎么回`)
	// sentPattern is a line that says where what follows comes from.
	sentPattern = regexp.MustCompile(`^(?:here(?:'s| is| are) (?:what|the (?:text|message|mail|e-?mail|article|draft|letter|original))|(?:i|we)(?:'ve)? (?:just )?(?:got|received|found|copied) (?:this|the following)|see (?:below|the following)|below (?:is|are)|\S+ (?:just )?(?:sent|forwarded|posted|wrote) (?:me |us )?(?:this|the following)|以下是|下面是|下面这|收到了?(?:这|一)|看看?(?:这|下面))`)
	// reportPattern says what somebody says, without quotation marks.
	reportPattern = regexp.MustCompile(`(?:\b(?:says?|said|answer(?:s|ed)|repl(?:ies|ied)|writes|wrote|told (?:me|us|them)|asks|asked|reads|states|stated|claims|claimed)\b[^:.!?。]{0,20}|(?:说|说道|写道|写着|回复|表示|转告)(?:了|过|我|我们|大家|如下)? ?):`)
	rulePattern   = regexp.MustCompile(`^={3,}$`)
	queryPattern  = regexp.MustCompile(`^(?:select|insert|update|delete|create|alter|drop|with)\b.*(?:--|/\*)`)
)

// task returns where in the message something begins that the user wants to have
// worked on ("Translate this: ..."), and to where it goes. What the user wants done
// is the user's; the text that it is done to is not, whoever wrote it.
func (s *stripper) task(lines []line, i int) (part span, ok bool) {
	l := lines[i]
	end := len(s.message)
	for from := 0; from < len(l.text); {
		to := len(l.text)
		last := true
		if stop := stopPattern.FindStringIndex(l.text[from:]); stop != nil {
			to = from + stop[1]
			last = strings.TrimSpace(l.text[to:]) == ""
		}
		sentence := strings.TrimSpace(l.text[from:to])
		strong, here := taskPattern.MatchString(sentence), herePattern.MatchString(sentence)
		if strong || here && aboutPattern.MatchString(sentence) && (sentence[0] < utf8.RuneSelf || textTask.MatchString(sentence)) {
			if colon := colonIn(sentence); colon >= 0 {
				return span{s.afterColon(l, strings.Count(l.text[:from], ":")+strings.Count(l.text[from:to][:colon+1], ":")), end}, true
			}
			if abovePattern.MatchString(sentence) && strings.TrimSpace(s.message[:l.from]) != "" {
				return span{0, l.from}, true
			}
			// A blank line or the end of the sentence is all that parts the two.
			blank := i+1 < len(lines) && lines[i+1].text == ""
			if strong && (here || last && (blank || bare(sentence))) || !strong && !minePattern.MatchString(sentence) {
				return span{l.to, end}, true
			}
		}
		from = to
	}
	return span{}, false
}

// bare reports whether an order to work on a text names nothing that it could be
// done to: "Summarize in German", "Translate into English".
func bare(sentence string) bool {
	return !barePattern.MatchString(sentence)
}

// barePattern is an object that such an order has by itself.
var barePattern = regexp.MustCompile(`\b(?:summari[sz]e|sum up|translate|re-?write|polish|summary of|translation of) (?:the|my|our|all|today|yesterday|every|each|open|what)\b|(?:总结|概括|归纳|翻译)(?:一下)?(?:我|昨|今|本|所有|全部)`)

// colonIn returns where the colon is in a sentence that what follows it is set off
// by, -1 if there is none: not that of a time, an address or a name in code.
func colonIn(sentence string) int {
	for at := 0; ; at++ {
		next := strings.IndexByte(sentence[at:], ':')
		if next < 0 {
			return -1
		}
		at += next
		rest := sentence[at+1:]
		digit := at > 0 && isDigit(sentence[at-1]) && rest != "" && isDigit(rest[0])
		if !digit && !strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, ":") && (at == 0 || sentence[at-1] != ':') {
			return at
		}
	}
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// afterColon returns what is behind the nth colon of a line, in the message: the
// next line if nothing else is.
func (s *stripper) afterColon(l line, nth int) int {
	for i, r := range s.message[l.from:l.to] {
		if r != ':' && r != '：' && r != '﹕' && r != '︓' {
			continue
		}
		if nth--; nth == 0 {
			at := l.from + i + utf8.RuneLen(r)
			if strings.TrimSpace(s.message[at:l.to]) == "" {
				return l.to
			}
			return at
		}
	}
	return l.from // a colon in disguise
}

// Lines of a conversation: a name, perhaps a time, and what is said.
var (
	spokenPattern = regexp.MustCompile(`^[*_]*([<\[@]?)(\p{L}(?:[\p{L}\p{N} ._'-]{0,40}[\p{L}\p{N}.])?)([>\]]?)(?: ?[(\[]?\d{1,2}:\d{2}(?::\d{2})?(?: ?[ap]m)?[)\]]?)?[*_]*(?: ?:(?: +\S|$)|:[^\s/\\:\d()\[\]*'|=-])`)
	timedPattern  = regexp.MustCompile(`^[*_]*[<\[@]?\p{L}[\p{L}\p{N} ._'-]{0,40}?[>\]]? ?[,(\[]? ?\d{1,2}:\d{2}(?::\d{2})?(?: ?[ap]m)?[)\]]?$`)
	taggedPattern = regexp.MustCompile(`^(?:<([\p{L}][\p{L}\p{N} ._'-]{0,40})>|\[([\p{L}][\p{L}\p{N} ._'-]{0,40})\]) +\S`)
)

// speaker reports whether a line begins with the name of somebody who speaks, by
// the words before the colon; alone, that it has nothing else. A heading of the
// user's own, such as "My default:" or "语言:", is no name.
func (s *stripper) speaker(l line) (speaks, alone bool) {
	if m := taggedPattern.FindStringSubmatch(l.text); m != nil {
		name := m[1] + m[2]
		first, _ := utf8.DecodeRuneInString(strings.TrimLeft(s.message[l.from:l.to], " \t["))
		return m[1] != "" && !elements[name] || m[2] != "" && !unicode.IsLower(first) && s.named(l, name), false
	}
	if !strings.Contains(l.text, ":") {
		return false, false
	}
	m := spokenPattern.FindStringSubmatch(l.text)
	if m == nil || introduces(l.text) || reportPattern.MatchString(m[0]) {
		return false, false
	}
	alone = strings.HasSuffix(l.text, ":")
	return (m[1] != "" && !labelled(m[2])) || s.named(l, m[2]), alone
}

// named reports whether name, which begins the line l, can be that of a person or
// thing: one word, or several that are all written large.
func (s *stripper) named(l line, name string) bool {
	if labelled(name) {
		return false
	}
	raw := strings.TrimLeft(s.message[l.from:l.to], " \t*_[<@")
	words := strings.Fields(name)
	if len(words) > 4 {
		return false
	}
	if len(words) == 1 {
		large, _ := utf8.DecodeRuneInString(raw)
		// payment-api is what something is said about.
		return !strings.ContainsAny(name, "-_.0123456789") || unicode.IsUpper(large)
	}
	for i, word := range strings.Fields(raw) {
		if i == len(words) {
			break
		}
		if first, _ := utf8.DecodeRuneInString(word); unicode.IsLower(first) {
			return false
		}
	}
	return true
}

// labels are words of what a user may write before a colon as their own statement.
var labels = setOf(`i my mine our we me us name nickname names language languages default defaults preference preferences prefer setting settings set rule rules style tone format
	city town home country location place address role job title team group company department project projects task tasks goal goals topic subject environment env region zone timezone cluster service
	namespace branch date dates time times hours unit units currency priority birthday age pet pets food foods drink drinks diet hobby hobbies interests favorite favourite favorites allergy allergies
	likes dislikes music sport note notes ps p.s p.s nb n.b fyi btw reminder remember important update correction correct edit addition also plus one another two first second third last finally
	thing things more general always never usually today tomorrow now ok okay yes no please thanks so well hi hello answer answers reply replies output length summary info about background context
	reason example request question plan status editor tools tool shell os stack libraries config configuration requirements conclusion decision in from for by as with when if to on look see here draft wip poll
	ich mein meine name sprache stadt standard wichtig hinweis nachtrag korrektur`)

// labelPattern are such words of Chinese and Japanese.
var labelPattern = regexp.MustCompile(`我|咱|本人|偏好|默认|说明|语言|名字|姓名|名称|称呼|昵称|城市|国家|住址|地址|备注|注意|提醒|记住|记得|以后|今后|要求|规则|设置|配置|习惯|喜好|爱好|喜欢|补充|更正|纠正|另外|还有|更新|环境|角色|职位|岗位|部门|团队|项目|任务|服务|时区|时间|日期|生日|风格|格式|口味|饮食|食物|宠物|过敏|总之|比如|例如|请|结论|问题|目标|主题|话题|最后|首先|其次|第|重要|回答|区域|集群|単位|名前|言語`)

func labelled(name string) bool {
	for word := range strings.FieldsSeq(name) {
		word = strings.Trim(strings.TrimSuffix(word, "'s"), ".,'")
		if labels[word] {
			return true
		}
	}
	return labelPattern.MatchString(name)
}

// conversation takes out lines of a conversation. Of several, everything from the
// first to the last is taken.
func (s *stripper) conversation(lines []line) {
	first, end, count := -1, 0, 0
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		if fencePattern.MatchString(l.text) {
			i = fenceEnd(lines, i)
			continue
		}
		speaks, alone := s.speaker(l)
		timed := timedPattern.MatchString(l.text)
		switch {
		case timed || speaks && alone:
			// What is said is below. A name alone is a speaker's among others only.
			if i+1 == len(lines) || !letterPattern.MatchString(lines[i+1].text) || markedPattern.MatchString(lines[i+1].text) {
				continue
			}
			if l.from >= end {
				end = lines[paragraphEnd(lines, i)].to
			}
			if timed {
				s.take(l.from, end)
			}
		case speaks:
			s.take(l.from, l.to)
			end = max(end, l.to)
		default:
			s.reported(l)
			continue
		}
		if count++; first < 0 {
			first = i
		}
	}
	if count > 1 {
		s.take(lines[first].from, end)
	}
}

// markedPattern begins what is told from the user's words by marks of its own.
var markedPattern = regexp.MustCompile("^(?:[>»┃▎▏│{\\[]|`{3}|~{3})")

func paragraphEnd(lines []line, i int) int {
	for i+1 < len(lines) && lines[i+1].text != "" {
		i++
	}
	return i
}

// reported takes out of a line what somebody says behind a colon.
func (s *stripper) reported(l line) {
	if !strings.Contains(l.text, ":") {
		return
	}
	m := reportPattern.FindStringIndex(l.text)
	if m == nil {
		return
	}
	before, rest := l.text[:m[1]], strings.TrimSpace(l.text[m[1]:])
	if stops := stopPattern.FindAllStringIndex(before, -1); len(stops) > 0 {
		before = before[stops[len(stops)-1][1]:]
	}
	first, _ := utf8.DecodeRuneInString(rest)
	if _, marked := closers[first]; rest == "" || marked || strings.HasPrefix(rest, "//") || ownPattern.MatchString(before) {
		return
	}
	s.take(s.afterColon(l, strings.Count(l.text[:m[1]], ":")), l.to)
}
