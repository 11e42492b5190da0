package learning

import (
	"regexp"
	"strings"
)

// Worth reports whether a text may state something that lasts, so that a model is
// to be asked. Chatter ("ok", "好的"), plain questions and plain orders are not
// worth it. In doubt it is true: the model finds nothing then.
func Worth(text string) bool {
	if len(text) > maxTold {
		return true // long texts are told apart by the model alone
	}
	// What was taken out ends a sentence.
	for _, sentence := range sentences(strings.ReplaceAll(text, Gap, "\n")) {
		if worth(sentence) {
			return true
		}
	}
	return false
}

// maxTold bounds the texts that are looked at sentence by sentence.
const maxTold = 8 << 10

var sentencePattern = regexp.MustCompile(`[^.!?。!?;；\n]*(?:\.[^\s.!?。!?;；\n][^.!?。!?;；\n]*)*[.!?。!?;；\n]*`)

func sentences(text string) []string {
	var all []string
	for _, sentence := range sentencePattern.FindAllString(text, -1) {
		if folded := fold(sentence); letterPattern.MatchString(folded) {
			all = append(all, folded)
		}
	}
	return all
}

var (
	letterPattern = regexp.MustCompile(`\p{L}`)
	// lastingPattern is in what is said for more than this once.
	lastingPattern = regexp.MustCompile(`\b(?:from now on|by default|defaults? to|as (?:my|our|the) default|always|never|every time|each time|whenever|in (?:the )?future|going forward|as a rule|henceforth|remember|keep in mind|no longer|not anymore|any ?more|call me|forget|starting today|from today|until further notice)\b` +
		`|以后|今后|往后|从现在起|从今天起|从今往后|默认|总是|一直|一律|每次|始终|记住|记得|记一下|别忘|不再|别再|忘掉|忘记|叫我|称呼我|改成|改为|これから|今後|常に|いつも|覚えて|앞으로|항상|기억해`)
	// selfPattern speaks of the user, the group or their work. An order that is
	// only addressed so was taken out before: "give me", "帮我".
	selfPattern = regexp.MustCompile(`\b(?:i|i'm|i’m|i've|i'd|i'll|im|me|my|mine|myself|we|we're|we've|we'll|us|our|ours)\b|我|咱|本人|俺|私|僕|俺|저는|나는|제가|우리`)
	// addressPattern is how one asks somebody to do something.
	addressPattern = regexp.MustCompile(`\b(?:please|kindly|(?:can|could|would|will) you(?: please)?|(?:give|tell|show|send|get|find|let|help|remind|walk|bring|explain to|make) (?:me|us)|for (?:me|us)|can i|could i|may i|can we|do i|should i|should we|i(?:'d| would) like to (?:know|see)|i (?:want|need) (?:you )?to (?:know|see|check|look)|let's|thank you|thanks)\b` +
		`|请|麻烦|帮(?:我|我们|忙)|给我|告诉我|替我|为我|让我|我想(?:知道|看|问|查|了解)|我要(?:查|看|问)|能不能|可不可以|可以|能否|可否|谢谢`)
	// politePattern makes an order of a question.
	politePattern = regexp.MustCompile(`\b(?:please|kindly|(?:can|could|would|will) (?:you|we))\b|请|麻烦|能不能|可不可以|可以|能否|可否|好吗|行吗`)
	// questionPattern asks for something, and states nothing by itself.
	questionPattern = regexp.MustCompile(`^(?:(?:and|but|so|ok|okay|hi|hey|hello|well|now|then|please|那|那么|所以|请问|你好)[ ,,、]*)*(?:(?:what|which|who|whose|whom|when|where|why|how)(?:'s|s|(?: \S+){0,3} (?:is|are|was|were|do|does|did|can|could|should|would|will|has|have|had|am))\b|(?:is|are|was|were|am|do|does|did|has|have|had|shall|should) (?:i|we|you|he|she|it|they|there|this|that|these|those|the|a|an|any|my|our|your|all)\b|who \S+|any \S+)|\?$|(?:吗|呢|么|多少|是谁|哪里|几点|怎么办|怎么样|如何|是什么|为什么|哪个|什么)\??$|是什么|是哪|有哪些|是谁|在哪|^(?:什么|为什么|怎么|哪|谁|多少|几|如何|是否|请问)|(?:ですか|ますか|か)\??$|(?:까|나요|니)\??$`)
	// orderPattern begins with what is to be done now.
	orderPattern = regexp.MustCompile(`^(?:(?:and|but|so|ok|okay|hi|hey|hello|now|then|well|yes|好的?|那|那么|然后|再|先|请|麻烦|你|你好|帮我|帮忙|给我|快|现在|也|顺便)[ ,,、:]*)*` +
		`(?:(?:check|look|show|list|find|get|fetch|search|open|close|create|make|write|draft|read|restart|start|stop|deploy|roll|run|execute|explain|describe|summari[sz]e|translate|compare|tell|give|send|go|try|fix|repair|debug|investigate|analy[sz]e|scale|delete|remove|add|update|retry|continue|proceed|wait|cancel|see|verify|test|print|count|calculate|convert|generate|review|ping|query|hello|hi|hey|thanks)\b` +
		`|重启|查|看|检查|列出|显示|打开|关闭|创建|新建|部署|回滚|解释|说明|总结|翻译|写|找|搜|告诉|分析|比较|修|删|停|启动|运行|执行|继续|等|取消|确认|试|测试|对比|统计|扩容|缩容|发)`)
	chatterPattern = regexp.MustCompile(`^(?:(?:ok|okay|okey|k|kk|yes|yep|yeah|yup|no|nope|nah|sure|fine|good|great|nice|cool|perfect|awesome|excellent|super|right|correct|exactly|indeed|agreed|understood|got it|i see|see|thanks|thank you|thx|ty|cheers|hi|hello|hey|bye|goodbye|good (?:morning|evening|night|day|job)|well done|lol|haha|hmm|hm|um|uh|oh|ah|wow|so|and|then|very|much|a lot|all|that|it|is|this|sounds|looks|works|go|ahead|go on|continue|please|never mind|no problem|welcome|done|again|for|your|help|too|really|just|now|i|understand|love|like|appreciate)[\s,.!?~'’-]*)+$` +
		`|^[,、 好的嗯恩哦噢喔啊呀哈嘿嗨呵唉诶额呃对是行可以成没错了知道明白收到谢多您你们辛苦不客气用当然继续吧呢吗早安晚再见拜拜棒赞厉害太就这样先他它她那还真很挺完毕懂解理]+[\s,.!~,。、…]*$`)
)

func worth(sentence string) bool {
	if chatterPattern.MatchString(sentence) {
		return false
	}
	if lastingPattern.MatchString(sentence) {
		// "Which environment do I use by default?" asks, and "could you always
		// answer in German?" does not.
		return !questionPattern.MatchString(sentence) || politePattern.MatchString(sentence)
	}
	stated := addressPattern.ReplaceAllString(sentence, " ")
	switch {
	case questionPattern.MatchString(sentence):
		return false
	case selfPattern.MatchString(stated):
		return true
	case stated != sentence, orderPattern.MatchString(sentence):
		return false
	}
	return true
}
