package summary

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// unit is a clause, or a whole sentence, as it is compared with others: which
// words of content it has, and whether it negates.
type unit struct {
	// text is the place in the folded text of its message or field.
	text    string
	content map[string]bool
	// negations are counted: "not without" affirms.
	negations int
}

func (u unit) negative() bool { return u.negations%2 == 1 }

var (
	// sentenceEnd ends a sentence; a point inside of a word or number does not.
	sentenceEnd = regexp.MustCompile(`[.!?]+["')\]]*(?:\s+|$)|[.!?]+["')\]]*|[。｡…\n]+`)
	// clauseEnd stands between two clauses of a sentence.
	clauseEnd = regexp.MustCompile(`[,;:()"]\s+|[;()"—–「」『』]|\s-\s|,$` +
		`|\b(?:but|yet|however|although|though|because|since|while|whereas|unless|until|whether|if)\b` +
		`|但是|但|不过|不過|然而|可是|因为|因為|所以|因此|除非|虽然|雖然|尽管|儘管|如果`)
	// withoutStart begins a clause of its own and belongs to it.
	withoutStart = regexp.MustCompile(`\bwithout\b|(?:未经|未經|没有经过|沒有經過)[^,。]{0,12}?(?:同意|允许|允許|批准|确认|確認|许可|許可|授权|授權)`)
	// andPattern joins clauses if what follows has its own negation.
	andPattern = regexp.MustCompile(`\b(?:and|or|nor)\b|并且|並且|而且|且|并|並|也|和|或者|或`)

	// idle has negative words and does not negate.
	idle = regexp.MustCompile(`\b(?:not (?:only|just|merely|solely)|no (?:problem|worries|doubt|matter)|nothing but|why not|whether or not|or not *(?:$|[,.?;])|(?:is|are|was|were|do|does|did|will|would|can|could)(?:n't| not) (?:it|you|they|we|he|she)\b|(?:do not|don't|dont|never) (?:forget|hesitate|worry|mind)|no\.? ?\d)` +
		`|不仅|不僅|不但|不只|不光|不断|不斷|不错|不錯|不同|不管|不论|不論|不如|差不多|对不起|對不起|不要紧|不要緊|不客气|不客氣|不好意思|不得不|没关系|沒關係|未来|未來|无论|無論|无线|無線|否则|否則|是否` +
		`|(?:特|分|级|級|区|區|类|類|性|识|識|个|個|告|差|派|鉴|辨)[别別]|[别別](?:的|の|人|处|處|名|扭|致|途|紙|に|々)` +
		`|かもしれない|かもしれません|しかない|しかありません|間違いない|違いない|少ない|少なく|危ない|つまらない|ませんか|すみません|すいません|申し訳(?:ありません|ございません)|ざるを得(?:ない|ません)|ではないか|じゃないか|なければ(?:ならない|なりません|いけない|いけません)|なくては(?:ならない|なりません|いけない|いけません)|ないと(?:いけない|いけません)|ない限り`)
	// hanNegation are the words of Chinese and Japanese.
	hanNegation = regexp.MustCompile(`不要|不准|不许|不許|不得|不能|不可|没有|沒有|尚未|从未|從未|禁止|严禁|嚴禁|请勿|請勿|并非|並非|而非|绝非|失败|失敗|[不没沒未无無勿别別]` +
		`|[않못없]|아니|ません|ないで|なかっ|なくて?|なけれ|ない|ずに|するな`)
	// latinNegation are those of English, as whole words.
	latinNegation = regexp.MustCompile(`^(?:not|no|never|nobody|nothing|none|nowhere|neither|nor|without|cannot|\p{L}+n't|dont|doesnt|didnt|cant|wont|isnt|arent|wasnt|werent|shouldnt|mustnt|couldnt|hasnt|havent|hadnt|unable|fail\p{L}*|forb(?:id|ids|idden|ade|idding)|prohibit\p{L}*|bann?(?:ed|s)?|disallow\p{L}*|avoid(?:s|ed|ing)?|refus(?:e|es|ed|ing|al)|reject(?:s|ed|ing|ion)?|declin(?:e|es|ed|ing)|den(?:y|ies|ied|ying))$`)

	// forbids is the negation of an order, of a rule or of a refusal, and not of
	// what merely has not happened.
	forbids = regexp.MustCompile(`\b(?:do not|don't|dont|never|must not|mustn't|should not|shouldn't|may not|can ?not|can't|cant|will not|won't|wont|without|avoid\p{L}*|forb\p{L}+|prohibit\p{L}*|bann?\p{L}*|disallow\p{L}*|refus\p{L}*|reject\p{L}*|declin\p{L}*|not (?:allowed|permitted|to))\b` +
		`|不要|不准|不许|不許|不得|不能|不可|禁止|严禁|嚴禁|请勿|請勿|勿|[别別]|ないで|するな|いけ(?:ない|ません)`)

	// stopWords carry no content, or only say who said something.
	stopWords = set("a an the this that these those it its he she they them their his her we us our you your i me my mine who which what where when how why " +
		"is are was were be been being am do does did done doing have has had having will would shall should can could may might must ought need needs " +
		"to of in on at by for from with into onto about after before during over under between as than then so and or if also too very just only still already again now yet " +
		"there here any some all each every both either such more most much many other another one please kindly ok okay yes " +
		"user users assistant agent says said say saying ask asks asked asking tell tells told want wants wanted requested " +
		"noted mention mentioned mentions reported stated states state explicitly s t")
	// hanStop are signs that carry no content in themselves.
	hanStop = set("的 了 是 在 和 也 都 就 把 被 将 將 请 請 对 對 给 給 这 這 那 个 個 我 你 您 他 她 它 们 們 要 说 說 让 讓 已 经 經 过 過 又 再 吗 嗎 呢 吧 啊 は が を に で と も の へ や か ね よ て し た だ す る い ま さ れ ら な り")
)

// units takes a text apart: the clauses of each sentence, and the sentences as
// wholes that have more than one clause and negate in one of them at most.
func units(text string) (clauses, whole []unit) {
	for _, sentence := range bounded(cut(fold(text).text, sentenceEnd, sentenceGoesOn)) {
		parts := clausesOf(sentence)
		negative := 0
		for _, part := range parts {
			u := measure(part)
			clauses = append(clauses, u)
			if u.negations > 0 {
				negative++
			}
		}
		if len(parts) > 1 && negative <= 1 {
			whole = append(whole, measure(strings.Join(parts, " , ")))
		}
	}
	return clauses, whole
}

// maxSentence bounds what is compared as one sentence, in bytes. What is longer
// is no sentence that anybody wrote.
const maxSentence = 2_000

func bounded(sentences []string) (all []string) {
	for _, s := range sentences {
		for len(s) > maxSentence {
			end := strings.LastIndexByte(s[:maxSentence], ' ') + 1
			if end == 0 {
				for end = maxSentence; !utf8.RuneStart(s[end]); {
					end--
				}
			}
			all, s = append(all, s[:end]), s[end:]
		}
		all = append(all, s)
	}
	return nonBlank(all)
}

// sentenceGoesOn reports whether what matched as a sentence end is none: a
// point, exclamation or question mark in the middle of a word or URL.
func sentenceGoesOn(text string, from, to int) bool {
	if to == len(text) || strings.IndexByte(".!?", text[from]) < 0 {
		return false
	}
	before, _ := utf8.DecodeLastRuneInString(text[:to])
	after, _ := utf8.DecodeRuneInString(text[to:])
	return !unicode.IsSpace(before) && !unspaced(after)
}

// cut splits text at the matches of a pattern, which it drops.
func cut(text string, at *regexp.Regexp, except func(text string, from, to int) bool) (parts []string) {
	from := 0
	for _, m := range at.FindAllStringIndex(text, -1) {
		if except != nil && except(text, m[0], m[1]) {
			continue
		}
		parts = append(parts, text[from:m[0]])
		from = m[1]
	}
	return nonBlank(append(parts, text[from:]))
}

func nonBlank(list []string) (kept []string) {
	for _, part := range list {
		if part = strings.TrimSpace(part); part != "" {
			kept = append(kept, part)
		}
	}
	return kept
}

// clausesOf splits a sentence where a negation ends to hold.
func clausesOf(sentence string) (clauses []string) {
	japanese := strings.ContainsFunc(sentence, func(r rune) bool { return unicode.In(r, unicode.Hiragana, unicode.Katakana) })
	sentence = idle.ReplaceAllString(sentence, " ")
	if japanese {
		// In Chinese it stands between the items of a list.
		sentence = strings.ReplaceAll(sentence, "、", ", ")
	}
	for _, part := range cut(sentence, clauseEnd, nil) {
		starts := withoutStart.FindAllStringIndex(part, -1)
		from := 0
		for _, m := range starts {
			clauses = append(clauses, splitAnd(part[from:m[0]])...)
			from = m[0]
			if r, _ := utf8.DecodeRuneInString(part[m[0]:]); unspaced(r) {
				// 未经同意 comes first and ends itself.
				clauses = append(clauses, part[m[0]:m[1]])
				from = m[1]
			}
		}
		clauses = append(clauses, splitAnd(part[from:])...)
	}
	return rejoin(nonBlank(clauses))
}

// splitAnd splits a clause with several negations before each that has its own:
// "not paid and not shipped".
func splitAnd(clause string) (parts []string) {
	if countNegations(clause) < 2 {
		return []string{clause}
	}
	from := 0
	marks := andPattern.FindAllStringIndex(clause, -1)
	for i, m := range marks {
		end := len(clause)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		if countNegations(clause[m[1]:end]) > 0 {
			parts = append(parts, clause[from:m[0]])
			from = m[0]
		}
	}
	return append(parts, clause[from:])
}

// rejoin puts a list together again that one negation governs: "do not restart,
// stop, or delete it".
func rejoin(clauses []string) []string {
	for i := 1; i < len(clauses); i++ {
		if !strings.HasPrefix(clauses[i], "or ") || countNegations(clauses[i]) > 0 {
			continue
		}
		from := i - 1
		for from > 0 && countNegations(clauses[from]) == 0 && len(strings.Fields(clauses[from])) <= 4 {
			from--
		}
		if countNegations(clauses[from]) > 0 {
			joined := strings.Join(clauses[from:i+1], " ")
			clauses = append(append(clauses[:from:from], joined), clauses[i+1:]...)
			i = from
		}
	}
	return clauses
}

// runs splits text into words, and runs of signs of scripts without spaces.
func runs(text string) []string {
	var all []string
	for _, field := range strings.FieldsFunc(text, func(r rune) bool { return !wordRune(r) && !unspaced(r) && !strings.ContainsRune("-.:@,'", r) }) {
		from, signs := 0, false
		for i, r := range field {
			if i > 0 && unspaced(r) != signs {
				all = append(all, field[from:i])
				from = i
			}
			signs = unspaced(r)
		}
		all = append(all, field[from:])
	}
	return all
}

func countNegations(text string) int { return measure(text).negations }

// negates counts the negations of a text that is no clause of clausesOf.
func negates(text string) int { return countNegations(idle.ReplaceAllString(text, " ")) }

// measure finds the content and the negations of a clause of clausesOf. Content is the stems
// of words that are no stop words, and each two neighbouring signs of scripts
// without spaces.
func measure(text string) unit {
	u := unit{text: text, content: map[string]bool{}}
	neither := false
	for _, run := range runs(text) {
		if r, _ := utf8.DecodeRuneInString(run); unspaced(r) {
			run = dropChoices(run)
			u.negations += len(hanNegation.FindAllStringIndex(run, -1))
			u.signs(hanNegation.ReplaceAllString(run, " "))
			continue
		}
		word := strings.Trim(run, "-.:@,'_")
		switch {
		case word == "" || stopWords[word]:
		case word == "nor" && neither:
		case latinNegation.MatchString(word):
			u.negations++
			neither = neither || word == "neither"
		default:
			word = strings.TrimSuffix(word, "'s")
			u.content[stem(strings.ReplaceAll(word, ",", ""))] = true
		}
	}
	return u
}

// dropChoices removes the questions of the form 能不能 and 有没有, which negate
// nothing.
func dropChoices(run string) string {
	signs := []rune(run)
	kept := signs[:0:0]
	for i := 0; i < len(signs); i++ {
		if i+2 < len(signs) && strings.ContainsRune("不没沒", signs[i+1]) && signs[i] == signs[i+2] {
			kept = append(kept, signs[i])
			i += 2
			continue
		}
		kept = append(kept, signs[i])
	}
	return string(kept)
}

// signs adds the pairs of neighbours in a run of signs.
func (u unit) signs(run string) {
	var last rune
	length := 0
	flush := func() {
		if length == 1 && unicode.Is(unicode.Han, last) {
			u.content[string(last)] = true
		}
		length = 0
	}
	for _, r := range run {
		if r == ' ' || hanStop[string(r)] {
			flush()
			continue
		}
		if length++; length > 1 {
			u.content[string(last)+string(r)] = true
		}
		last = r
	}
	flush()
}

// stem removes the endings of English verbs and nouns, roughly.
func stem(word string) string {
	if strings.ContainsFunc(word, func(r rune) bool { return r < 'a' || r > 'z' }) {
		return word
	}
	for _, ending := range []string{"ations", "ation", "ings", "ing", "ed", "es", "s", "ly"} {
		base, ok := strings.CutSuffix(word, ending)
		if !ok || len(base) < 3 || ending == "s" && strings.HasSuffix(base, "s") {
			continue
		}
		if n := len(base); ending != "s" && base[n-1] == base[n-2] && strings.IndexByte("lsz", base[n-1]) < 0 {
			base = base[:n-1] // shipped
		}
		return strings.TrimSuffix(base, "e")
	}
	return strings.TrimSuffix(word, "e")
}

const (
	// A clause of a summary restates one of its source if it has restates of
	// its content from there, and one of opposite negation counts if it has
	// opposes of that one's content. The best and what comes within tie of it
	// decide: one with the same negation is enough.
	restates = 0.65
	opposes  = 0.4
	tie      = 0.15
	// A clause that negates needs less: what was ordered in one sentence did
	// not happen in another.
	supports = 0.5
)

// negationIndex finds the clauses of the source that have a word.
type negationIndex struct {
	units []unit
	by    map[string][]int
}

func indexNegations(source []Message) negationIndex {
	index := negationIndex{by: map[string][]int{}}
	seen := map[string]bool{}
	for _, m := range source {
		clauses, whole := units(m.Text)
		for _, u := range append(clauses, whole...) {
			if seen[u.text] {
				continue
			}
			seen[u.text] = true
			for word := range u.content {
				index.by[word] = append(index.by[word], len(index.units))
			}
			index.units = append(index.units, u)
		}
	}
	return index
}

// changed reports whether u restates the source with a negation more or less.
// What has not happened may well be a task.
func (index negationIndex) changed(u unit, task bool) bool {
	shared := map[int]int{}
	for word := range u.content {
		if len(u.content) == 1 && strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsLetter(r) }) {
			// A name or number alone says nothing of itself.
			return false
		}
		for _, i := range index.by[word] {
			shared[i]++
		}
	}
	same, opposite := 0.0, 0.0
	for i, n := range shared {
		other := index.units[i]
		cover := float64(n) / float64(len(u.content))
		enough := cover >= restates && n >= min(2, len(u.content))
		switch {
		case other.negative() == u.negative():
			if u.negative() && cover >= supports {
				return false
			}
			if enough {
				same = max(same, cover)
			}
		case task && !u.negative() && !forbids.MatchString(other.text):
		case enough && float64(n) >= opposes*float64(len(other.content)):
			opposite = max(opposite, cover)
		}
	}
	return opposite > 0 && same < opposite-tie
}

// changedNegations returns the clauses of a text that restate the source with a
// negation more or less.
func (index negationIndex) changedNegations(text string, task bool) (found []string) {
	clauses, _ := units(text)
	seen := map[string]bool{}
	for _, u := range clauses {
		if !seen[u.text] && index.changed(u, task) {
			found = append(found, u.text)
		}
		seen[u.text] = true
	}
	return found
}

var (
	// negatedBefore and negatedAfter say that what stands behind, or before, is
	// negated.
	negatedBefore = regexp.MustCompile(`(?:\b(?:not|never|no|without|cannot|\p{L}+n't|dont|avoid|forbidden|forbidden to|prohibited from|refuse|refuses|refused|fail|failed|fails|unable)(?: (?:to|be|ever|a|an|the|any|yet|again|even|just|been))*|(?:不要|不准|不许|不許|不得|不能|不可以?|没有?|沒有?|未|禁止|严禁|嚴禁|请勿|請勿|勿|别|別|不)(?:再|去|自己|自行|擅自|随意|被|能|在)*) ?$`)
	negatedAfter  = regexp.MustCompile(`^ ?(?:(?:is|are|was|were|has been|have been|had been|must|should|may|can|could|do|does|did) ?(?:not|never)\b|(?:is|are|was|were) (?:strictly |explicitly )?(?:forbidden|prohibited|rejected|refused|declined|denied)|(?:isn't|aren't|wasn't|weren't|can't|mustn't|shouldn't|didn't|doesn't|failed|fails)\b|(?:を|は|が|に|も|し|て|さ|せ|れ|き|わ|行|動|か|ら)*(?:ないで|ない|ません|なかった|ずに|禁止|不可|しない)|失败|失敗|未|没有|沒有|不)`)
)

// quotedAgainst reports whether words of a message are taken from under a
// negation wherever they stand: "restart" of "never restart it".
func quotedAgainst(message, words string) bool {
	const (
		// Nothing that negatedBefore takes is longer than reach, and what is
		// negated in enough places is not looked for in more.
		reach  = 80
		enough = 100
	)
	places := occurrences(message, words)
	places = places[:min(len(places), enough)]
	for _, at := range places {
		before := idle.ReplaceAllString(message[max(at-reach, 0):at], " ")
		if !negatedBefore.MatchString(before) && !negatedAfter.MatchString(message[at+len(words):]) {
			return false
		}
	}
	return len(places) > 0
}
