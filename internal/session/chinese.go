package session

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// zhNegation has the ways to forbid in Chinese, longer ones first.
var zhNegation = regexp.MustCompile(`千万(?:不要|不能|不可以?|别|勿|不得)|(?:绝对?|决|万万|一定|永远(?:都)?)(?:不要|不能|不可以|不可|不准|不许|不允许|不得|不应该?|别)` +
	`|请勿|切勿|切莫|切忌|莫要|休要|严禁|禁止|谢绝|不允许|不准许|不准|不许|不得|不要|不可以|不应当|不应该|不应|不该|不能|不可|不行|不宜|不想|不希望|不愿意?|不同意|不批准|不赞成|反对|拒绝` +
	`|就算了|还是算了|不用|不必|无需|无须|不需要|没必要|没有必要|避免|免谈|勿|别|甭|不`)

var (
	// zhNeutral, after the negation: nothing is forbidden.
	zhNeutral = regexp.MustCompile(`^(?:再|太|就|老)?(?:忘|担心|紧张|着急|急|慌|怕|害怕|犹豫|客气|介意|误会|生气|见外|谢|管|理会|等|问|拖|耽误|错过|漏|见怪|灰心|难过|伤心|逗|闹|扯|提了|说了|说笑|看.{0,12}(?:但|可|却)|吵|催|哭|磨蹭|愣|紧$|紧[^急]|脸|命|钱|不)`)
	// zhBare, after the negation: no use of a tool is forbidden.
	zhBare = regexp.MustCompile(`^(?:再)?(?:只|光|仅|说|假设|以为|认为|猜|瞎猜|编|相信|觉得|当作|当成)`)
	// zhTwice negates twice: "do not restart it without telling me".
	zhTwice = regexp.MustCompile(`^不(?:问|告诉|通知|跟|经|和|打招呼|说|等|确认)[^,。;]{0,20}就`)
	// zhDoing is what is said instead of the verb that went before.
	zhDoing   = regexp.MustCompile(`^(?:再|去|随便|轻易)*(?:这么|这样|那么|那样)?(?:做|干|搞|弄|执行|操作|进行|动|来|想|考虑)?(?:了|的)?[吧啊呀哦啦,!]?$`)
	zhOrdered = regexp.MustCompile(`^ *$|(?:请|务必|尽量|应该?|必须|要|需要?)$`)
	zhNotNow  = regexp.MustCompile(`^ *$|(?:先|暂|暂时|暂且|一律|一概|坚决|生产|生产环境|线上|正式环境|今天|今晚|明天|周末|本周|这周|我们|咱们)$`)
	zhOrder   = regexp.MustCompile(`(?:你们?|您|我们|咱们|任何人|谁都?|大家|绝对|一定|千万|坚决|一律|都|也)$`)
	zhPolite  = regexp.MustCompile(`(?:能不能|可不可以|能否|可否|可以|能|麻烦你?|请你?|拜托你?|最好|希望你?|先|务必)$`)
	zhReport  = regexp.MustCompile(`提示|报错|显示|返回|日志|写着|写的是|弹出|错误|页面|接口|权限`)
	// zhThings end with the sign 别 and are no order; the last sign is left out.
	zhWords = "特分识辨判鉴甄告送离永久差派性国惜作阔饯"
	zhNouns = "区级类组个"
	zhCount = "这那几哪每两二三四五六七八九十多某整0123456789"
	// zhOther begins a word with the sign 别.
	zhOther = regexp.MustCompile(`^(?:人|的|处|名|墅|样|致|扭|称|号|家|针|国|字|提|说|看|管|论|有|来无恙|光是)`)
	// zhAble, after 不能, 不可 and the like: a statement.
	zhUnable = regexp.MustCompile(`^(?:能|用|达|见|靠|避|思|逆|读|写|预|控|知|或缺|少|多得|一世|告人|收拾|开交|否认|变|信|估|量|行|不)`)
	zhGotNot = regexp.MustCompile(`^(?:不|已|了|而知|劲|志|体|人心|其)`)
)

// chinese finds the negations in Chinese words.
func (s *sentence) chinese() []negation {
	text := s.text(s.from, s.to)
	var found []negation
	for _, at := range edgesOf(zhNegation.FindAllStringIndex(text, -1)) {
		n := negation{span: span{s.from + at[0], s.from + at[1]}}
		if s.m.reported(n.from) || !s.forbids(&n, text[at[0]:at[1]]) {
			continue
		}
		found = append(found, n)
	}
	return found
}

// forbids decides whether the words of n forbid, by what stands around them.
func (s *sentence) forbids(n *negation, words string) bool {
	before, after := s.segmentBefore(n.from), s.segmentAfter(n.to)
	previous, _ := utf8.DecodeLastRuneInString(before)
	_, verb := s.verbAt(n.to)
	if second := []rune(words); len(second) > 1 && second[0] == '不' && second[1] == previous && !strings.HasSuffix(before, "允许") && !strings.HasSuffix(before, "重要") && !strings.HasSuffix(before, "主要") && !strings.HasSuffix(before, "必要") {
		// 要不要, 可不可以: a question.
		return false
	}
	polite := zhPolite.MatchString(before)
	asked := s.asked(n.from)
	if !polite && (asked && (zhQuestionEnd.MatchString(s.text(s.from, s.to)) || zhAsksHere.MatchString(before+"|"+after)) || zhAsksBefore.MatchString(before)) {
		return false
	}
	if strings.Contains(after, "的话") && s.asked(s.to-1) && !polite {
		return false
	}
	if zhTwice.MatchString(after) {
		return true
	}
	if zhNeutral.MatchString(after) && !verb {
		return false
	}
	n.bare = zhBare.MatchString(after) && !verb
	n.prior = zhDoing.MatchString(strings.TrimSpace(after))
	general := zhGeneral.MatchString(after)
	switch words {
	case "就算了", "还是算了":
		n.prior, n.toolOnly = true, true
		return strings.Trim(after, " 吧啊的!") == "" && s.verbEnds(n.from)
	case "别", "勿", "甭":
		return s.bie(n, words, before, after, verb)
	case "不":
		// "不重启，只看日志": an order at the start or after some words, with a
		// tool's verb.
		n.toolOnly = true
		return (verb || general) && !zhQuestionEnd.MatchString(s.text(s.from, s.to)) && !asked && zhNotNow.MatchString(before)
	case "不要", "千万不要", "绝对不要", "绝不要", "决不要", "永远不要", "一定不要":
		switch {
		case strings.HasPrefix(after, "的"):
			return false
		case strings.HasPrefix(after, "了"):
			// "重启就不要了"; "这台不要了" speaks of a thing.
			n.toolOnly = true
			return strings.HasSuffix(before, "就") || strings.HasSuffix(before, "先") || strings.HasSuffix(before, "还是")
		}
		return true
	case "不得":
		return !zhGotNot.MatchString(after) && !strings.ContainsRune("恨怪舍巴免少由见顾算等了记值要", previous)
	case "不可", "不能", "不可以":
		if zhUnable.MatchString(after) || strings.Contains(before, "非") && strings.TrimSpace(after) == "" {
			return false
		}
		n.toolOnly = !zhOrder.MatchString(before) && !zhConsentPattern.MatchString(before)
		n.able = n.toolOnly && !zhTouch.MatchString(after)
		return true
	case "避免":
		n.toolOnly = true
		return zhOrdered.MatchString(before)
	case "不行", "免谈":
		// "重启和删除不行"; "重启还是不行" tells what came of it.
		n.prior, n.toolOnly = true, true
		return strings.Trim(after, " 的啊!") == "" && s.verbEnds(n.from)
	case "不准":
		return !strings.HasPrefix(after, "确") && !strings.HasPrefix(after, "的") && !strings.HasPrefix(after, "时") && strings.Trim(after, " 了啊吧") != ""
	case "禁止", "严禁", "谢绝":
		if zhAllowed.MatchString(before) {
			return false
		}
		n.prior = n.prior || strings.HasPrefix(after, "的")
		n.toolOnly = strings.HasSuffix(before, "被") || zhReport.MatchString(before)
		return words != "谢绝" || verb
	case "不允许", "不准许":
		n.prior = n.prior || strings.HasPrefix(after, "的")
		n.toolOnly = !strings.HasSuffix(before, "我") && strings.TrimSpace(before) != "" && !zhOrder.MatchString(before)
		return true
	case "不应", "不应该", "不应当", "不该", "不宜":
		n.toolOnly = true
		return true
	case "不想", "不希望", "不愿", "不愿意", "不同意", "不批准", "不赞成", "反对", "拒绝":
		n.toolOnly = true
		before = strings.TrimRight(before, "并也都还很坚决强烈")
		return strings.HasSuffix(before, "我") || strings.HasSuffix(before, "我们")
	case "不用", "不必", "无需", "无须", "不需要", "没必要", "没有必要":
		n.toolOnly, n.ask, n.needless = true, true, true
		return !zhNeutral.MatchString(after) && !strings.HasPrefix(after, "通知") && !strings.HasPrefix(after, "告诉") && !strings.HasPrefix(after, "确认") || verb
	}
	return true
}

var (
	// zhAsksHere: the clause itself is the question.
	zhAsksHere = regexp.MustCompile(`为什么|为何|为啥|怎么|咋|难道|是不是|是否|何时|什么时候|要不要|该不该|会不会|如何`)
	// zhAsksBefore: a question without its mark.
	zhAsksBefore = regexp.MustCompile(`(?:为什么|为何|为啥|怎么|咋|是否|是不是|难道)[^,]{0,8}$`)
	zhAllowed    = regexp.MustCompile(`(?:不|未|没有|没)(?:再|会|被|明确|有|是)*$|(?:解除|取消|撤销)[^,。;]{0,6}$`)
)

// bie decides whether the sign 别 is an order, or a part of a word.
func (s *sentence) bie(n *negation, words, before, after string, verb bool) bool {
	if words != "别" {
		return words != "勿" || !strings.HasPrefix(after, "忘") && !strings.HasPrefix(after, "念")
	}
	runes := []rune(before)
	var previous, earlier rune
	if len(runes) > 0 {
		previous = runes[len(runes)-1]
	}
	if len(runes) > 1 {
		earlier = runes[len(runes)-2]
	}
	switch {
	case previous == '分' && earlier == '部':
	case previous == '个' && strings.ContainsRune(zhCount, earlier):
	case strings.ContainsRune(zhWords, previous):
		return false
	case strings.ContainsRune(zhNouns, previous):
		// "华东区别重启" is an order, "区别重启和重建" is none.
		order := len(runes) > 1 && (verb && !s.verbThen(n.to, "后前时的之") || strings.HasPrefix(after, "动") || strings.HasPrefix(after, "碰"))
		if !order {
			return false
		}
	}
	return !zhOther.MatchString(after) || verb
}

// verbEnds reports whether a tool's verb ends at to, but for a word that
// stresses.
func (s *sentence) verbEnds(to int) bool {
	to -= len(zhStress.FindString(s.segmentBefore(to)))
	return slices.ContainsFunc(s.verbs, func(o occurrence) bool { return o.to == to })
}

var zhStress = regexp.MustCompile(`(?:绝对|肯定|是|可|一律)+$`)

// verbThen reports whether the tool's verb at from is followed by one of signs.
func (s *sentence) verbThen(from int, signs string) bool {
	o, ok := s.verbAt(from)
	next, _ := utf8.DecodeRuneInString(s.text(min(o.to, s.to), s.to))
	return ok && strings.ContainsRune(signs, next)
}
