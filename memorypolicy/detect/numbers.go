package detect

import (
	"math/big"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// numbers finds numbers that name an account, a person or a telephone.
var numbers = rule{"numbers", func(t *text, add func(Category, string)) {
	for _, form := range t.flat {
		for _, c := range chains(clean(form)) {
			c.cards(add)
			c.residents(add)
			c.phones(add)
		}
		for _, p := range numbered {
			if p.in(form) {
				add(p.category, p.id)
			}
		}
		for _, m := range ibanShape.FindAllString(strings.ToUpper(form), -1) {
			if iban(m) {
				add(IdentityNumber, "identity/iban")
			}
		}
	}
}}

var numbered = []pattern{
	{
		id: "phone/spoken", category: PhoneNumber,
		match: regexp.MustCompile(`(?i)\b(?:(?:oh|double|triple)[ ,-]+(?:(?:oh|zero|one|two|three|four|five|six|seven|eight|nine|double|triple)[ ,-]+){4,}|` +
			`(?:(?:oh|zero|one|two|three|four|five|six|seven|eight|nine|double|triple)[ ,-]+){6,})` +
			`(?:oh|zero|one|two|three|four|five|six|seven|eight|nine)\b`),
	},
	{
		id: "card/phrase", category: PaymentCard,
		match: regexp.MustCompile(`(?i)(?:\b(?:credit|debit|bank|payment|visa|master) ?card|\bcard (?:number|no\.?)|\bpan\b|卡号|信用卡|` +
			`银行卡|储蓄卡)[^.!?;。！？；\n\d]{0,24}\d(?:[ -]?\d){7,}`),
	},
	{
		id: "identity/ssn", category: IdentityNumber,
		match: regexp.MustCompile(`(?i)(?:^|[^\d.-])(?:00[1-9]|0[1-9]\d|[1-578]\d\d|6[0-57-9]\d|66[0-57-9])[- –.](?:0[1-9]|` +
			`[1-9]\d)[- –.](?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})(?:$|[^\d.-]|[.-](?:$|\D))|` +
			`\b(?:ssn|social security(?: number| no\.?)?|tax ?id|itin|national insurance(?: number)?|ni number|nino|sin number|` +
			`aadhaar)\b[^.!?;\n\d]{0,24}(?:[a-z]{2} ?)?\d(?:[ -]?\d){4,}`),
	},
	{
		id: "identity/phrase", category: IdentityNumber,
		match: regexp.MustCompile(`(?i)(?:\b(?:passport|driv(?:er'?s?|ing) licen[cs]e|identity card|national id|id card|citizen id|` +
			`green card|visa number|residence permit|taxpayer|medicare|nhs|voter id|license plate)(?: (?:number|no\.?|num|#|id))?\b\s*(?:is|` +
			`was|[:=#]|-)?\s*#?(?:no\.?\s*)?["']?(?:[A-Z]{0,3}[ -]?\d(?:[ -]?[A-Z0-9]){4,}|[A-Z]{4,6}\d[A-Z0-9]{5,})|` +
			`\b[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} ?[A-D]\b|` +
			`(?:护照|身份证|驾驶证|驾照|社保|社会保障|港澳通行证|通行证|居住证|军官证|证件|税号|纳税人识别|医保)(?:号码?|编号|卡号|件号|` +
			`号)*[^，。；！？,;!?\n\dA-Z]{0,10}[A-Z]{0,2}\d(?:[ -]?[0-9X]){5,})`),
	},
	{
		id: "identity/account", category: IdentityNumber,
		match: regexp.MustCompile(`(?i)(?:\b(?:bank )?(?:account|acct)(?: (?:number|no\.?|#))\s*(?:is|was|[:=])?\s*#?\d(?:[ -]?\d){6,}|` +
			`\b(?:routing|sort code|iban|swift)(?: number| code)?\s*(?:is|was|[:=])\s*[A-Z0-9][A-Z0-9 -]{5,}\d|(?:银行|对公|收款)?(?:账号|` +
			`帐号|账户号)(?:是|为|[:：])?\s*\d(?:[ -]?\d){9,})`),
	},
	{
		id: "phone/phrase", category: PhoneNumber,
		match: regexp.MustCompile(`(?i)(?:\b(?:phone|mobile|cell(?:phone)?|tel(?:ephone)?\.?|whats ?app|fax|landline|home number|` +
			`work number)(?: (?:number|no\.?|num|#))?\s*(?:is|was|[:=#]|at|to|on|under)?\s*\+?\(?\d(?:[ ().-]{0,2}\d){5,13}|\b(?:call|text|` +
			`ring|reach|phone|dial|sms) (?:me|him|her|us|them|my \w+)?\s*(?:at|on|under|:)?\s*\+?\(?\d(?:[ ().-]{0,2}\d){5,13}|` +
			`(?:电话|手机|联系方式|座机|传真|微信号?|来电)(?:号码?)?(?:是|为|[:：])?\s*\+?\d(?:[ ()-]{0,2}\d){6,13})`),
		except: regexp.MustCompile(`(?i)\b(?:call|dial|text) (?:it |them )?(?:error|code|port|http|endpoint|version|v)\b[^.\n]{0,12}|\b(?:19|` +
			`20)\d\d-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?|\b\d{1,3}(?:\.\d{1,3}){3}\b`),
	},
	{
		id: "phone/shape", category: PhoneNumber,
		match: regexp.MustCompile(`(?:^|[^\w.+-])(?:\+|00)(?:1|7|2\d{1,2}|3\d{1,2}|4\d{1,2}|5\d{1,2}|6\d{1,2}|8\d{1,2}|` +
			`9\d{1,2})[ ().-]{0,2}\d(?:[ ().-]{0,2}\d){6,11}(?:$|\D)|` +
			`(?:^|[^\w.+-])(?:1[ .-])?(?:\([2-9]\d{2}\)[ .-]?|[2-9]\d{2}[ .-])[2-9]\d{2}[ .-]\d{4}(?:$|[^\w.-]|[.-](?:$|\W))|` +
			`(?:^|[^\w.+-])\(?0(?:10|2[0-57-9]|[3-9]\d{2})\)?[ -][1-9]\d{2,3}[ -]?\d{4}(?:$|[^\w.-]|[.-](?:$|\W))|(?:^|` +
			`[^\w.+-])0[17]\d{3}[ -]\d{3}[ -]?\d{3}(?:$|\D)`),
		except: regexp.MustCompile(`\b(?:19|20)\d\d-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?(?:[+-]\d\d:?\d\d)?|\b\d{1,3}(?:\.\d{1,3}){3}\b`),
	},
}

// What has digits and is no number of anybody: dates with times, addresses of
// the Internet, UUIDs and versions.
var harmless = regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b(?:19|20)\d\d-(?:0[1-9]|` +
	`1[0-2])-(?:0[1-9]|[12]\d|3[01])(?:[T ][0-2]\d:[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?(?:\b|T)|` +
	`\b(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}(?:[:/]\d{1,5})?\b|\bv\d+(?:\.\d+)+\b`)

func clean(s string) string { return harmless.ReplaceAllString(s, "§") }

// chain is digits that follow each other with nothing but separators between
// groups of them.
type chain struct {
	groups []string
	// before is the text that leads to it.
	before string
	// tight says for each group whether less than two separators stand before it.
	tight []bool
	// plus says that a plus sign stands before it.
	plus bool
	// letter is what follows immediately, for check digits X.
	letter byte
}

var (
	digitWords = regexp.MustCompile(`(?i)\b(?:zero|one|two|three|four|five|six|seven|eight|nine)\b`)
	wordDigit  = map[string]string{
		"zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
	}
	hanDigits = strings.NewReplacer("零", "0", "〇", "0", "一", "1", "二", "2", "三", "3", "四", "4", "五", "5", "六", "6", "七", "7", "八", "8",
		"九", "9", "幺", "1",
		"壹", "1", "贰", "2", "叁", "3", "肆", "4", "伍", "5", "陆", "6", "柒", "7", "捌", "8", "玖", "9")
	hanRun   = regexp.MustCompile(`[零〇一二三四五六七八九幺壹贰叁肆伍陆柒捌玖](?:[\s,，、.-]{0,2}[零〇一二三四五六七八九幺壹贰叁肆伍陆柒捌玖]){5,}`)
	sepWords = regexp.MustCompile(`(?i)(\d)\s*(?:dash|hyphen|minus|dot|space|slash|横杠|短横|杠|空格|点|减)\s*(\d)`)
	asDigits = regexp.MustCompile(`[0-9OolI|]{4,}`)
	allLike  = regexp.MustCompile(`\b[0-9OolI|]{2,}(?:[ .-]{1,3}[0-9OolI|]{2,})+\b`)
	like     = strings.NewReplacer("O", "0", "o", "0", "l", "1", "I", "1", "|", "1")
	digits   = regexp.MustCompile(`\d+`)
)

// chains returns the chains of digits in s, digits that are written as words and
// letters that look like them among digits included.
func chains(s string) []chain {
	s = digitWords.ReplaceAllStringFunc(s, func(w string) string { return wordDigit[strings.ToLower(w)] })
	s = hanRun.ReplaceAllStringFunc(s, hanDigits.Replace)
	for range 2 { // matches share a digit
		s = sepWords.ReplaceAllString(s, "$1-$2")
	}
	s = allLike.ReplaceAllStringFunc(s, func(w string) string {
		if mapped := like.Replace(w); len(w) >= 13 && hasDigit(w) && len(digits.FindAllString(mapped, -1)) >= 3 {
			return mapped
		}
		return w
	})
	s = asDigits.ReplaceAllStringFunc(s, func(w string) string {
		if n, _, _ := counts(w); n*2 < len(w) {
			return w
		}
		return like.Replace(w)
	})
	var all []chain
	end := -1
	for _, m := range digits.FindAllStringIndex(s, -1) {
		group := s[m[0]:m[1]]
		if gap := s[max(end, 0):m[0]]; end >= 0 && separates(gap) {
			c := &all[len(all)-1]
			c.groups = append(c.groups, group)
			c.tight = append(c.tight, utf8.RuneCountInString(gap) == 1 && gap != "\n" && gap != ",")
		} else {
			before := s[max(0, m[0]-48):m[0]]
			all = append(all, chain{groups: []string{group}, tight: []bool{false}, before: before, plus: strings.HasSuffix(before, "+")})
		}
		end = m[1]
		last := &all[len(all)-1]
		last.letter = 0
		if end < len(s) {
			last.letter = s[end]
		}
	}
	return all
}

// separates reports whether gap is a few characters none of which is a letter.
func separates(gap string) bool {
	if utf8.RuneCountInString(gap) > 5 {
		return false
	}
	return !letterOrMark.MatchString(gap)
}

var letterOrMark = regexp.MustCompile(`[\p{L}§]`)

// runs calls f with every run of whole groups that is least to most digits long,
// and whether it is written as one number.
func (c chain) runs(least, most int, f func(number string, first int, asOne bool)) {
	for i := range c.groups {
		number := ""
		for j := i; j < len(c.groups); j++ {
			if number += c.groups[j]; len(number) > most {
				break
			}
			if len(number) >= least {
				f(number, i, i == 0 && j == len(c.groups)-1 || regular(c.groups[i:j+1]))
			}
		}
	}
}

// regular reports whether groups are of one length but for the last, as numbers
// are written, or like those of American Express and Diners.
func regular(groups []string) bool {
	if len(groups) == 3 && len(groups[0]) == 4 && len(groups[1]) == 6 {
		return true
	}
	for _, g := range groups[:len(groups)-1] {
		if len(g) != len(groups[0]) {
			return false
		}
	}
	return len(groups[len(groups)-1]) <= len(groups[0])
}

func (c chain) cards(add func(Category, string)) {
	c.runs(13, 19, func(number string, _ int, asOne bool) {
		if asOne && card(number) {
			add(PaymentCard, "card/luhn")
		}
	})
}

// brands are the beginnings and lengths of card numbers.
var brands = regexp.MustCompile(`^(?:4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|` +
	`6(?:011|5\d\d|4[4-9]\d)\d{12,15}|` +
	`3(?:0[0-59]|[689]\d)\d{11,16}|35(?:2[89]|[3-8]\d)\d{12,15}|62\d{14,17}|81\d{14,17}|(?:50|5[6-9]|6[0-9])\d{10,17}|220[0-4]\d{12,15})$`)

func card(number string) bool {
	return brands.MatchString(number) && luhn(number) && strings.Trim(number, number[:1]) != ""
}

func luhn(number string) bool {
	sum := 0
	for i := range len(number) {
		d := int(number[len(number)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// named reports whether what leads to a number says that it counts something
// else: an order, a ticket, a build.
var named = regexp.MustCompile(`(?i)(?:\b(?:order|ticket|invoice|case|issue|job|build|request|ref(?:erence)?|tracking|serial|sku|isbn|` +
	`version|commit|trace|span|task|batch|shipment|parcel|incident|jira|pr|bug|run|id|timestamp|epoch|build|imei|asset|purchase|po|` +
	`contract)\b|单号|订单|工单|编号|流水|快递|运单|序列号|合同|时间戳|批次|任务|缺陷)[^.!?;。！？；\n]{0,16}$`)

// residents finds Chinese resident identity numbers (GB 11643): region, date of
// birth, serial number, and in the new form a check digit.
func (c chain) residents(add func(Category, string)) {
	c.runs(15, 18, func(number string, first int, asOne bool) {
		if !asOne {
			return
		}
		switch len(number) {
		case 18:
			if resident(number) {
				add(IdentityNumber, "identity/resident")
			}
		case 17:
			if c.letter == 'X' || c.letter == 'x' {
				if resident(number + "X") {
					add(IdentityNumber, "identity/resident")
				}
			}
		case 15:
			if region.MatchString(number) && born("19"+number[6:12]) && !(first == 0 && named.MatchString(c.before)) {
				add(IdentityNumber, "identity/resident-old")
			}
		}
	})
}

var region = regexp.MustCompile(`^(?:1[1-5]|2[1-3]|3[1-7]|4[1-6]|5[0-4]|6[1-5]|71|8[1-3])`)

func resident(number string) bool {
	if !region.MatchString(number) || !born(number[6:14]) {
		return false
	}
	weights := [17]int{7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2}
	sum := 0
	for i, w := range weights {
		sum += w * int(number[i]-'0')
	}
	return "10X98765432"[sum%11] == number[17]
}

func born(date string) bool {
	_, err := time.Parse("20060102", date)
	return err == nil && (date[:2] == "19" || date[:2] == "20")
}

// phones finds Chinese mobile numbers; other telephone numbers have no shape of
// their own and are found by how they are written.
func (c chain) phones(add func(Category, string)) {
	c.runs(11, 15, func(number string, first int, _ bool) {
		if !mobile.MatchString(number) || first == 0 && !c.plus && named.MatchString(c.before) {
			return
		}
		// Several numbers in a row are no telephone number, unless they are grouped
		// like one.
		n, groups := 0, []string{}
		for _, g := range c.groups[first:] {
			if n >= len(number) {
				break
			}
			n += len(g)
			groups = append(groups, g)
		}
		if len(groups) == 1 || usual(groups) {
			add(PhoneNumber, "phone/mobile-zh")
		}
	})
}

var mobile = regexp.MustCompile(`^(?:(?:00)?86)?1[3-9]\d{9}$`)

// usual reports whether a mobile number is grouped as people do: 3-4-4, 3-3-5,
// 4-4-3, 5-6, with or without country code, or digit by digit.
func usual(groups []string) bool {
	if g := strings.TrimPrefix(groups[0], "00"); g == "86" {
		groups = groups[1:]
	}
	var shape strings.Builder
	for _, g := range groups {
		shape.WriteByte(byte('0' + min(len(g), 11)))
	}
	switch shape.String() {
	case "344", "335", "443", "434", "56", "38", "74", "65", "47", ";", "32222", "3224", "3422", "122222", "222221", strings.Repeat("1", 11):
		return true
	}
	return false
}

var ibanShape = regexp.MustCompile(`\b[A-Z]{2}[ -]?\d{2}(?:[ .-]?[A-Z0-9]){11,30}`)

// ibanLength is the length of an IBAN by country.
var ibanLength = map[string]int{
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24,
	"DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28,
	"HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20,
	"LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25,
	"QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TN": 24, "TR": 26, "UA": 29, "VA": 22,
	"VG": 24, "XK": 20,
}

// iban reports whether s begins with an International Bank Account Number (ISO
// 13616): the country's length, and 1 modulo 97.
func iban(s string) bool {
	s = strings.NewReplacer(" ", "", "-", "", ".", "").Replace(s)
	n := ibanLength[s[:2]]
	if n == 0 || len(s) < n {
		return false
	}
	var b strings.Builder
	for _, c := range s[4:n] + s[:4] {
		if c >= 'A' {
			b.WriteString(big.NewInt(int64(c - 'A' + 10)).String())
		} else {
			b.WriteRune(c)
		}
	}
	v, ok := new(big.Int).SetString(b.String(), 10)
	return ok && new(big.Int).Mod(v, big.NewInt(97)).Int64() == 1
}
