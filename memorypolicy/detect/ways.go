package detect

import (
	"regexp"
	"slices"
	"strings"
)

// Ways in that nobody calls a password: what somebody logs in with, what a door or
// a lock wants, and what a bank asks for.
var (
	// spelled: "capital T, lowercase r, u, nine", "大写 K 小写 m".
	spelled = regexp.MustCompile(`(?i)(?:\b(?:capital|upper ?case|lower ?case|small)\s+[a-z]\b|[大小]写的?\s?[a-z](?:[^A-Za-z]|$))[^.!?。\n]{0,24}?` +
		`(?:\b(?:capital|upper ?case|lower ?case|small)\s+[a-z]\b|[大小]写的?\s?[a-z](?:[^A-Za-z]|$))`)
	// opened: "the disk unlocks with correct-pony-battery-nail".
	opened = regexp.MustCompile(`(?i)(?:\bunlock(?:s|ed|ing)?|\bdecrypt(?:s|ed|ing)?|\bopen(?:s|ed)?|\bsign(?:s|ed|ing)?[ -]?in(?:to)?|` +
		`\blog(?:s|ged|ging)?[ -]?(?:in|on)(?:to)?|\bget(?:s|ting)? (?:in|into|onto|on to)|\blets? (?:you|me|us|one) in|登录|登陆|登入|解锁|` +
		`解密|开锁|开机|进门|进得去)[^.!?;。！？；\n]{0,48}?(?:\bwith\b|\busing\b|\bby typing\b|\bis\b|\bit'?s\b|[:：]|用的?是?|输入?|就是)\s*`)
	// passed: "pass=Kettle77!".
	passed = regexp.MustCompile(`(?i)\bpass=`)
	// mailed: "jo@example.org and then hunter-moon-5".
	mailed = regexp.MustCompile(`(?i)[\w.+-]+@[\w-]+(?:\.[\w-]+)+\s*(?:,\s*|/\s*|\band\s+|和|然后|加)(?:then\s+)?`)
	// pairZH: "用 admin / shanghai888 登".
	pairZH = regexp.MustCompile(`[用拿]\s*[\w.@-]{2,40}\s*[/／]\s*([^，。；\n]{2,40}?)\s*[登进]`)
	wifi   = regexp.MustCompile(`(?i)(?:\bwi-?fi\b|\bwlan\b|无线)[^.!?。！？\n]{0,24}?(?:\bis\b|[:：]|是)([^.!?。！？\n]{4,80})`)
	// let: "Rufus1987 gets you into my laptop".
	let = regexp.MustCompile(`(?i)(\S{6,40})\s+(?:gets|lets|will (?:get|let)) (?:you|me|us|one) in(?:to)?\b`)
	// pressed: "按 3 8 5 2 再按井号就开了".
	pressed = regexp.MustCompile(`(?:按|摁|拨到?|转到|输入?)\s*(?:[\d零〇一二三四五六七八九]\s?[,，、-]?\s?){3,}[^。！？\n]{0,12}?(?:就开|就能开|就能进|开了|开门|开锁|解锁|井号|星号)|` +
		`(?:大门|门锁|门禁|保险[柜箱]|电子锁|密码锁)[^。！？\n]{0,16}?(?:按|摁|拨|转到?|输入?)[^。！？\n\d]{0,8}\d{2,}|(?:[左右]转|[顺逆]时针)[^。！？\n]{0,12}?\d+[^。！？\n]{0,12}?(?:[左右]转|[顺逆]时针)|` +
		`(?i:\b(?:punch(?:ed)?(?: in)?|key in|keypad|panel|door|gate)\b[^.!?\n]{0,48}?\b(?:in|is|wants|takes|press|then|enter|code)\s+(?:\d[ ,-]?){3,7}\d?(?:$|[^\d.%A-Za-z:/-]))`)
	// withDigits: "开门密码是我生日倒过来 7021".
	withDigits = regexp.MustCompile(`(?:付款|支付|取款|转账)[^。\n]{0,6}[四六46]位[^。\n]{0,16}?\d{4,6}|(?:密码|口令|暗号)[^，。,.;；!！?？\n]{0,24}?[^A-Za-z0-9#.-]\d{4,8}(?:$|[^\d%A-Za-z.-])`)
	// initial: "jenkins is still admin / admin123".
	initial = regexp.MustCompile(`(?i)\b(?:admin|root|guest|user|ops|test|sa|postgres)\s?[/:]\s?[a-z]*\d\w*\b`)
	pinFor  = regexp.MustCompile(`(?i)\bpin (?:for|of|to) (?:the |my |our |his |her )?(?:atm|bank|card|debit card|credit card|phone|sim|door|gate|` +
		`alarm|safe|locker|tablet|account)\b[^.!?\n]{0,64}?\b\d{4,8}\b`)
	// answered: "if the bank asks for my first pet, say Pickles".
	answered = regexp.MustCompile(`(?i)(?:security questions?|maiden name|(?:my|your) first (?:pet|school|car|teacher)|安全问题|密保|娘家姓|婚前姓|找回(?:账号|帐号|密码))` +
		`[^.!?。！？\n]{0,40}?(?:\bsay\b|\btype\b|\benter\b|\bput\b|\banswer(?:ed)? (?:with|is)\b|填|答案?[是为]?|[:：])\s*\S{2,}`)
	// asUsual: "it is the usual one with a bang at the end: Sunflower!".
	asUsual = regexp.MustCompile(`(?i)(?:\bthe usual (?:one|word|code|combo|login) (?:with|plus|but|and)\b|老规矩|老密码|还是那个密码)[^.!?。！？\n]{0,48}?[:：]\s*\S{4,}`)
	drawn   = regexp.MustCompile(`(?i)解锁图案|手势密码|图案锁|手机[^。，\n]{0,4}划[^。\n]{1,16}?(?:开了?|解)|\b(?:unlock|swipe|lock[- ]?screen) pattern\s+(?:is|goes|looks)\b`)
)

func ways(form string, add func(Category, string)) {
	first := func(re *regexp.Regexp, is func(string) bool) {
		for _, at := range starts(re, form) {
			if word, _, _, _ := value(form[at:]); is(word) {
				add(Secret, "secret/way-in")
				return
			}
		}
	}
	first(opened, key)
	first(passed, func(word string) bool { return len(word) >= 6 && odd(word) })
	first(mailed, func(word string) bool {
		n, lower, upper := counts(word)
		return key(word) || n > 0 && lower+upper >= 5 && ascii(word) && !benignName.MatchString(word)
	})
	for _, m := range let.FindAllStringSubmatch(form, -1) {
		if key(bared(m[1])) {
			add(Secret, "secret/way-in")
		}
	}
	for _, m := range slices.Concat(pairZH.FindAllStringSubmatch(form, -1), wifi.FindAllStringSubmatch(form, -1)) {
		if slices.ContainsFunc(slashes.Split(m[1], -1), func(word string) bool { return key(bared(word)) }) {
			add(Secret, "secret/way-in")
		}
	}
	for _, re := range []*regexp.Regexp{pressed, withDigits, pinFor} {
		if re.MatchString(pinUnits.ReplaceAllString(form, "·")) {
			add(Secret, "secret/pin")
		}
	}
	for _, re := range []*regexp.Regexp{spelled, answered, asUsual, drawn, initial} {
		if re.MatchString(form) {
			add(Secret, "secret/told")
		}
	}
}

func bared(word string) string {
	return strings.TrimRight(strings.TrimLeft(word, opening), ".,;:!?…\"'”’」』》`)]}>，。；：！？、*_")
}

// key reports whether a word is letters and digits that are no name, or four small
// words or more with dashes between.
func key(word string) bool {
	if len(word) < 6 || !ascii(word) || benignName.MatchString(word) || host.MatchString(word) || strings.Contains(word, "://") {
		return false
	}
	n, lower, upper := counts(word)
	return n > 0 && lower+upper >= 3 && (!wordy(word) || !strings.ContainsAny(word, "-_./")) || dashed.MatchString(word)
}

var dashed = regexp.MustCompile(`^[a-z]{3,}(?:-[a-z]{3,}){3,}$`)

// MayOpen reports whether a text speaks of getting in somewhere, and has a word in
// it that may be what opens: nothing that is certain enough to be found.
func MayOpen(text string) bool {
	for _, form := range textOf(text).flat {
		if (entry.MatchString(form) || opened.MatchString(form)) && slices.ContainsFunc(slashes.Split(form, -1), func(word string) bool {
			word = bared(word)
			return odd(asciiRun(word)) || strings.Count(word, "-") > 1
		}) {
			return true
		}
	}
	return false
}
