package recall

import (
	"strings"
	"unicode/utf8"
)

// commonWords are those that questions are made of, whatever they ask for.
var commonWords = func() map[string]bool {
	const list = `a about am an and any are as at be been being but by can could d did do does doing for from had has have having he her hers him his how
		i if in into is it its let ll m me my of on or our ours please re s shall she should so some t tell than that the their theirs them then there these
		they this those to us ve was we were what whats when where which while who whom whose why will with would you your yours`
	set := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		set[word] = true
	}
	return set
}()

// functionSigns are Chinese and Japanese signs that are grammar more often than
// part of a word.
var functionSigns = func() map[rune]bool {
	const signs = "的了吗呢吧啊呀嘛么我你您他她它是在有和与及或就都也很还又被把给对从到而但且则谁哪这那请问嗎麼與對從後這個们們" +
		"のはがをにでとへもやかねよ"
	set := map[rune]bool{}
	for _, r := range signs {
		set[r] = true
	}
	return set
}()

// commonPhrases are those of several signs.
var commonPhrases, maxPhrase = func() (map[string]bool, int) {
	const list = `我们 你们 他们 她们 它们 咱们 大家 我的 你的 什么 甚么 什麼 怎么 怎樣 怎么样 怎样 如何 为什么 為什麼 为何 多少 几个 哪个 哪些 哪里 哪儿 哪一 哪位
		这个 那个 这些 那些 这里 那里 是不是 有没有 能不能 可不可以 可以 能否 是否 请问 告诉 帮我 一下 一个 现在 最近 之前 以前 刚才 记得 知道 想要 应该 还是 或者 以及
		ください です ます でした ました ですか ますか なに なん どこ どれ どの いつ だれ どう から まで という について`
	set, longest := map[string]bool{}, 0
	for phrase := range strings.FieldsSeq(list) {
		set[phrase] = true
		longest = max(longest, utf8.RuneCountInString(phrase))
	}
	return set, longest
}()
