package detect

import (
	"regexp"
	"slices"
	"strings"
)

// Ways in that nobody calls a password: what somebody logs in with, what a door or
// a lock wants, and what a bank asks for. Ordinary sentences look much the same.
// So what is found here is only what hardly can be anything else, and for the rest
// MayOpen has somebody asked.
var (
	// spelled: "capital T, lowercase r, u, nine", "大写 K 小写 m".
	spelled = regexp.MustCompile(`(?i)(?:\b(?:capital|upper ?case|lower ?case|small)\s+[a-z]\b|[大小]写的?\s?[a-z](?:[^A-Za-z]|$))[^.!?。\n]{0,24}?` +
		`(?:\b(?:capital|upper ?case|lower ?case|small)\s+[a-z]\b|[大小]写的?\s?[a-z](?:[^A-Za-z]|$))`)
	// opened: "the disk unlocks with correct-pony-battery-nail".
	opened = regexp.MustCompile(`(?i)(?:\bunlock(?:s|ed|ing)?|\bdecrypt(?:s|ed|ing)?|\bopen(?:s|ed)?|\bsign(?:s|ed|ing)?[ -]?in(?:to)?|` +
		`\blog(?:s|ged|ging)?[ -]?(?:in|on)(?:to)?|\bget(?:s|ting)? (?:in|into|onto|on to)|\blets? (?:you|me|us|one) in|登录|登陆|登入|解锁|` +
		`解密|开锁|开机|进门|进得去)[^.!?;。！？；\n]{0,48}?(?:\bwith\b|\busing\b|\bby typing\b|\bis\b|\bit'?s\b|[:：]|用的?是?|输入?|就是)\s?`)
	// passed: "pass=Kettle77!".
	passed = regexp.MustCompile(`(?i)\bpass=`)
	// mailed: "jo@example.org and then Hunter1987".
	mailed = regexp.MustCompile(`(?i)[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}\s?(?:[,/]\s?|\band\s|和|然后|加)(?:then\s)?`)
	// pairZH: "用 admin / shanghai888 登".
	pairZH = regexp.MustCompile(`(?i)[用拿]\s?(?:admin|root|ops|guest|test|sa|user[\w-]{0,16}|[\w.+-]{1,64}@[\w.-]{1,64})\s?[/／]\s?([^，。；\n]{4,40}?)\s?[登进]`)
	wifi   = regexp.MustCompile(`(?i)(?:\bwi-?fi\b|\bwlan\b|无线)[^.!?。！？\n]{0,24}?(?:\bis\b|[:：]|是)([^.!?。！？\n]{4,80})`)
	// let: "Rufus1987 gets you into my laptop".
	let = regexp.MustCompile(`(?i)(\S{6,40})\s(?:gets|lets|will (?:get|let)) (?:you|me|us|one) in(?:to)?\b`)
	// pressed: "按 3 8 5 2 再按井号就开了".
	pressed = regexp.MustCompile(`(?:按|摁|拨到?|转到|输入?)\s?(?:[\d零〇一二三四五六七八九]\s?[,，、-]?\s?){3,12}[^。！？\n]{0,12}?(?:就开|就能开|开了|开门|开锁|解锁|井号|星号)|` +
		`(?:大门|门锁|门禁|保险[柜箱]|电子锁|密码锁)[^。！？\n]{0,4}?(?:按|摁|拨|输入?)\s?\d{4,8}\s?(?:$|[，。,#＃*]|再|就|井|星|开|进)|` +
		`(?:[左右]转|[顺逆]时针)[^。！？\n]{0,12}?\d+[^。！？\n]{0,12}?(?:[左右]转|[顺逆]时针)|` +
		`(?i:\b(?:punch(?:ed)?(?: in)?|key in|keypad)\b[^.!?\n]{0,48}?\b(?:in|is|wants|takes|press|then|enter|code)\s(?:\d[ ,-]?){4,8}(?:$|[^\d.%A-Za-z:/-]))`)
	// withDigits: "开门密码是我生日倒过来 7021".
	withDigits = regexp.MustCompile(`(?:付款|支付|取款|转账)(?:的|那|密码)?[四六46]位(?:数字?)?(?:就是|是|用|为)[^，。\n]{0,12}?\d{4,6}(?:$|\D)|` +
		`(?:密码|口令|暗号)(?:就是|是|为|就用|用|[:：])[^，。,.;；!！?？\n]{0,20}?[^A-Za-z0-9#.-]\d{4,8}(?:$|[^\d%A-Za-z.-])`)
	// initial: "jenkins is still admin / admin123". "postgres:16" is an image, and
	// "/root/backup2" a path.
	initial = regexp.MustCompile(`(?i)\b(?:admin\s?[/:]\s?admin|root\s?[/:]\s?root|guest\s?[/:]\s?guest|(?:admin|root|guest|sa)\s/\s[a-z]{3,20})\d\w*\b`)
	pinFor  = regexp.MustCompile(`(?i)\bpin (?:for|of|to) (?:the |my |our |his |her )?(?:atm|bank|card|debit card|credit card|phone|sim|door|gate|` +
		`alarm|safe|locker|tablet|account)\b[^.!?\n]{0,64}?\b\d{4,8}\b`)
	// answered: "if the bank asks for my first pet, say Pickles".
	answered = regexp.MustCompile(`(?i)\b(?:ask(?:s|ed)?|questions?)\b[^.!?\n]{0,40}?\b(?:maiden name|(?:my|your) first (?:pet|school|car|teacher))\b[^.!?\n]{0,40}?` +
		`\b(?:say|type|enter|put|answer(?:ed)? (?:with|is))\s\S{2}|` +
		`\bsecurity questions?\b[^.!?\n]{0,40}?\b(?:answer(?:ed)? (?:with|is)|i (?:always |just |still )?(?:say|put|enter|type))\s\S{2}|` +
		`(?:安全问题|密保|娘家姓|婚前姓|找回(?:账号|帐号|密码))[^。！？\n]{0,24}?(?:我(?:一律|都|总是|就|一直)?填|那[道题个]{1,2}填|答案(?:就是|[是为:：]))\s?\S{2}`)
	// asUsual: "it is the usual one with a bang at the end: Sunflower!".
	asUsual = regexp.MustCompile(`(?i)(?:\bthe usual (?:one|word|code|combo|login) (?:with|plus|but|and)\b|老规矩|老密码|还是那个密码)[^.!?。！？\n:：]{0,48}?[:：]\s?`)
	drawn   = regexp.MustCompile(`(?i)(?:解锁图案|手势密码|图案锁)(?:就是|是|为|[:：]|画|划)[^。！？\n]{0,16}?(?:[a-z]\s?字?形|[左右上下]|字形|拐)|` +
		`手机屏?幕?划[^。\n]{1,16}?就能?(?:开|解)|` +
		`\b(?:unlock|swipe|lock[- ]?screen) pattern\s(?:is|goes|looks)\b[^.!?\n]{0,32}?\b(?:left|right|up|down|corner|shape|letter)\b`)
)

func ways(form string, add func(Category, string)) {
	first := func(re *regexp.Regexp, is func(string) bool) {
		for _, at := range starts(re, form) {
			if word, _, _, _ := value(form[at:min(len(form), at+clauseBytes)]); is(word) {
				add(Secret, "secret/way-in")
				return
			}
		}
	}
	first(opened, key)
	first(mailed, key)
	first(passed, func(word string) bool { return len(word) >= 6 && odd(word) })
	for _, m := range slices.Concat(let.FindAllStringSubmatch(form, -1), wifi.FindAllStringSubmatch(form, -1)) {
		if slices.ContainsFunc(slashes.Split(m[1], -1), func(word string) bool { return key(bared(word)) }) {
			add(Secret, "secret/way-in")
		}
	}
	for _, m := range pairZH.FindAllStringSubmatch(form, -1) {
		if slices.ContainsFunc(slashes.Split(m[1], -1), func(word string) bool {
			digits, lower, upper := counts(word)
			return ascii(word) && len(word) > 5 && digits > 0 && lower+upper > 2
		}) {
			add(Secret, "secret/way-in")
		}
	}
	digits := withoutUnits(form)
	for _, re := range []*regexp.Regexp{pressed, withDigits, pinFor} {
		if re.MatchString(digits) {
			add(Secret, "secret/pin")
		}
	}
	for _, re := range []*regexp.Regexp{spelled, answered, drawn, initial} {
		if re.MatchString(form) {
			add(Secret, "secret/told")
		}
	}
	for _, at := range starts(asUsual, form) {
		// A mark at the end may be part of it: "Sunflower!".
		word, _, _ := strings.Cut(form[at:min(len(form), at+clauseBytes)], " ")
		if len(word) > 3 && odd(asciiRun(word)) {
			add(Secret, "secret/told")
			break
		}
	}
}

func bared(word string) string {
	return strings.TrimRight(strings.TrimLeft(word, opening), ".,;:!?…\"'”’」』》`)]}>，。；：！？、*_")
}

// key reports whether a word is hardly anything but what opens: letters and
// digits with a sign, or as nobody names a thing, or four small words or more with
// dashes between.
func key(word string) bool {
	if !opener(word) {
		return false
	}
	digits, _, _ := counts(word)
	return dashed.MatchString(word) || digits > 0 && strings.ContainsAny(word, signs) || strong(word) || yearly.MatchString(word) || mixed.MatchString(word)
}

// signs are those that names do not have.
const signs = "!@#$%^&*~"

var (
	dashed = regexp.MustCompile(`^[a-z]{3,}(?:-[a-z]{3,}){3,}$`)
	// yearly: "Rufus1987", "chaoren88666".
	yearly = regexp.MustCompile(`^[A-Za-z]{4,}\d{4,6}$`)
	// mixed: "Tr0ub4dor-Nine".
	mixed = regexp.MustCompile(`^[A-Z][a-z]+\d+[a-z]+\d+[a-z]+(?:-\w+)?$`)
	// product: "wireguard2", "vue3", "OPS-1423", "INC12345".
	product = regexp.MustCompile(`^[A-Za-z]+[-_.]?\d{1,2}$|^[A-Z]{2,10}-?\d{1,8}$|^[A-Za-z]{0,3}[-_.]?\d+(?:[._-]\d+)*[A-Za-z]{0,4}$`)
	// compound are parts of compounds: "single-sign-on", "end-to-end".
	compound = set(`sign single step self non multi pre re all out long short read write real time open source side server client`)
)

// opener reports whether a word may be what opens: letters and digits mixed that
// are no name with a number, a sign inside, or three words or more with dashes.
func opener(word string) bool {
	if len(word) < 6 || !ascii(word) || benignName.MatchString(word) || host.MatchString(word) || product.MatchString(word) || strings.Contains(word, "://") {
		return false
	}
	digits, lower, upper := counts(word)
	if lower+upper < 3 {
		return false
	}
	if list := strings.Split(word, "-"); len(list) > 2 && !slices.ContainsFunc(list, func(w string) bool {
		w = strings.ToLower(w)
		return function[w] || compound[w]
	}) {
		return true
	}
	return digits > 0 || strings.ContainsAny(word, signs)
}

// around speaks of getting in somewhere, and of much else.
var around = regexp.MustCompile(`(?i)\b(?:vpn|ssh|wi-?fi|wlan|jump ?(?:host|box)|bastion|keypad)\b|进去|进门|跳板机|堡垒机|无线|门锁|门禁|保险[柜箱]`)

// MayOpen reports whether a text speaks of getting in somewhere, and has a word in
// it that may be what opens: nothing that is certain enough to be found.
func MayOpen(text string) bool {
	for _, form := range textOf(text).flat {
		told := starts(opened, form)
		if len(told) == 0 && !entry.MatchString(form) && !around.MatchString(form) && !mailed.MatchString(form) {
			continue
		}
		if slices.ContainsFunc(asciiWords.FindAllString(form, -1), func(run string) bool {
			return slices.ContainsFunc(slashes.Split(run, -1), func(word string) bool { return opener(bared(word)) })
		}) {
			return true
		}
		// A bare number opens only if that is what is said of it.
		if slices.ContainsFunc(told, func(at int) bool {
			word, _, _, _ := value(form[at:min(len(form), at+clauseBytes)])
			return code.MatchString(word) && !year.MatchString(word)
		}) {
			return true
		}
	}
	return false
}

var (
	code = regexp.MustCompile(`^\d{4,8}$`)
	year = regexp.MustCompile(`^(?:19|20)\d\d$`)
)
