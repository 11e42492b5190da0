package detect

import (
	"regexp"
	"slices"
	"strings"
)

// credentials finds what gitleaks' rules miss: passwords in prose, and tokens by
// their shape and by what stands around them.
var credentials = rule{"credentials", func(t *text, add func(Category, string)) {
	for _, form := range t.flat {
		if t.han {
			form = withoutAbout(form)
		}
		inProse(form, t.han, add)
		inSyntax(form, add)
		ways(form, add)
	}
	// White space inside of a token hides it, and means nothing there.
	if prefixes.MatchString(t.compact) {
		add(AccessToken, "token/prefix")
	}
	if privateKey.MatchString(t.compact) {
		add(Secret, "secret/private-key")
	}
}}

func inProse(form string, han bool, add func(Category, string)) {
	after := func(re *regexp.Regexp, id string, plainToo bool) {
		for _, m := range starts(re, form) {
			if password(form[m:], plainToo) {
				add(Secret, id)
				return
			}
		}
	}
	after(said, "secret/password-en", true)
	after(changed, "secret/password-en", false)
	after(bare, "secret/password-bare", false)
	if han {
		after(saidZH, "secret/password-zh", true)
		after(bareZH, "secret/password-bare", false)
	}
	after(account, "secret/account", true)
	for _, m := range starts(pair, form) {
		// "auth-gateway: https://" is no user.
		if !(strings.HasPrefix(form[m:], "//") && scheme.MatchString(form[max(0, m-16):m])) && password(form[m:], false) {
			add(Secret, "secret/account")
			break
		}
	}
	for _, m := range slices.Concat(reversed.FindAllStringSubmatch(form, -1), command.FindAllStringSubmatch(form, -1)) {
		if password(strings.Join(m[1:], ""), false) {
			add(Secret, "secret/password-reversed")
		}
	}
	shape := strong
	if !entry.MatchString(form) {
		shape = func(word string) bool { return signed(word) && strong(word) }
	}
	if (entry.MatchString(form) || around.MatchString(form)) && slices.ContainsFunc(slashes.Split(form, -1), shape) {
		add(Secret, "secret/password-shape")
	}
	if pin.MatchString(withoutUnits(form)) {
		add(Secret, "secret/pin")
	}
	if mnemonic.MatchString(form) {
		add(Secret, "secret/mnemonic")
	}
}

// withoutAbout takes out what has to do with passwords and is none, unless a word
// stands behind it that may be one.
func withoutAbout(form string) string {
	var b strings.Builder
	from := 0
	for _, m := range aboutZH.FindAllStringIndex(form, -1) {
		clause := form[m[1]:min(len(form), m[1]+clauseBytes)]
		if end := strings.IndexAny(clause, "，。；！？\n"); end >= 0 {
			clause = clause[:end]
		}
		told := strings.IndexAny(clause, ":=") == 0 || strings.HasPrefix(clause, "：")
		tasks := tasksZH.MatchString(form[m[0]:m[1]])
		if slices.ContainsFunc(asciiWords.FindAllString(clause, -1), func(word string) bool {
			word = bared(word)
			return (odd(word) || told && len(word) > 3) && !ticket.MatchString(word) && !(tasks && number.MatchString(word))
		}) {
			continue
		}
		b.WriteString(form[from:m[0]])
		b.WriteString("·")
		from = m[1]
	}
	b.WriteString(form[from:])
	return b.String()
}

var (
	asciiWords = regexp.MustCompile(`[!-~]+`)
	scheme     = regexp.MustCompile(`(?i)\b(?:https?|wss?|s?ftp|ssh|git|tcp|grpcs?|ldaps?|smb|s3|file):\s*$`)
)

// starts returns where matches of re end, overlapping ones too: what a match
// swallows may be the beginning of the one that counts.
// What stands before the part of re that a
// text may lack has to be bounded, or it takes the square of the text's length.
func starts(re *regexp.Regexp, s string) []int {
	var at []int
	for from := 0; from < len(s); {
		m := re.FindStringIndex(s[from:])
		if m == nil {
			break
		}
		at = append(at, from+m[1])
		from += m[0] + 1
	}
	return at
}

func inSyntax(form string, add func(Category, string)) {
	group := func(re *regexp.Regexp, is func(string) bool, c Category, id string) {
		for _, m := range re.FindAllStringSubmatch(form, -1) {
			if is(m[1]) {
				add(c, id)
				return
			}
		}
	}
	group(userinfo, func(s string) bool { return !placeholder.MatchString(s) }, Secret, "secret/url")
	group(bearer, token, AccessToken, "token/bearer")
	group(queryParam, func(s string) bool { return hasDigit(s) && !placeholder.MatchString(s) }, AccessToken, "token/url")
	group(keyed, token, AccessToken, "token/keyed")
	group(keyedZH, token, AccessToken, "token/keyed")
	group(long, random, AccessToken, "token/shape")
	if prefixes.MatchString(form) {
		add(AccessToken, "token/prefix")
	}
	if privateKey.MatchString(form) {
		add(Secret, "secret/private-key")
	}
}

var long = regexp.MustCompile(`([A-Za-z0-9_+/=-]{24,})`)
