package detect

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What a password is called.
const (
	nounEN = `(?:my|our|your)?pass[ -]?words?|passwor[td]e?|kennwort|contrase(?:ñ|n)a|mot de passe|senha|combo|pass[ -]?phrases?|` +
		`pass[ -]?codes?|p[a@4][s5$]{2}[ -]?(?:w[o0]?r?ds?|phrase)|passwd|passwrd|pwd|pw|login pass|unlock code|door code|gate code|alarm code|` +
		`lock code|secret word|safe word|safe combination|(?:lock )?combination|master key|security answer|secret answer|wi-?fi key|` +
		`wpa2? key|network key`
	nounZH = `(?:密|蜜)\s?码|口令|密语|暗号|通行码|密钥|密匙|私钥|解锁码|开门码|门禁码|密保答案|安全码|助记词|恢复短语|(?:\b|_)(?:passwd|` +
		`password|passcode|pwd|pw)\b`
)

var (
	// said: "my password for the server is hunter2", "password: hunter2".
	said = regexp.MustCompile(`(?i)(?:\b|_)(?:` + nounEN + `)(?:\s+(?:for|to|of|on|at|in|used|that|which|i|we)\s[^.!?;:=\n]{1,48}?|` +
		`\s+(?:number|is set|has been set|i use|we use|has always|has long|has))??` +
		`(?:\s*(?:=>|->|→|:=|[:=：＝])\s*|\s*(?:is|was)\s+|\s+(?:are|been|will be|used to be|equals|reads|becomes|remains)\s+|'s\s+|` +
		`\s+(?:set|changed|reset|updated) to\s+)` +
		`(?:(?:now|still|just|simply|currently|always|set to|changed to|actually|called|temporarily|something like|literally|today)\s+)*`)
	// changed: "set the password to hunter2", "log in with the password hunter2".
	changed = regexp.MustCompile(`(?i)\b(?:set|chang\w+|reset\w*|updat\w+|rotat\w+|made|make|us(?:e|es|ing)|with|by|log ?in|enter\w*|type|` +
		`try|remember|store|save|keep)\b[^.!?;\n]{0,32}?\b(?:` + nounEN + `)\b(?:[^.!?;:\n]{0,24}?\bto\b)?\s*[:=]?\s*`)
	// bare: "password hunter2"; only what looks like one counts.
	bare = regexp.MustCompile(`(?i)(?:\b|_)(?:` + nounEN + `)\b\s*[,(-]?\s*`)
	// saidZH: "我的密码是 Tr0ub4dor&3", "口令改成了芝麻开门".
	saidZH = regexp.MustCompile(`(?i)(?:` + nounZH + `)[^，。,.;；!！?？\n:：=]{0,12}?(?:就是|还是|用的是|就用|用了?|是|叫做?|改成了?|` +
		`改为了?|设成了?|设为了?|设置成了?|设置为了?|换成了?|为|等于|[:：=＝]|->|→)\s*`)
	bareZH = regexp.MustCompile(`(?i)(?:` + nounZH + `)\s*[,，(（]?\s*`)
	// aboutZH is what has to do with passwords and is none: "密码重置的工单". In
	// tasksZH numbers stand that are none either.
	aboutZH = regexp.MustCompile(`(?i)(?:密码|口令|密钥|password)\s?(?:重置|找回|轮换|修改|管理|校验|强度|策略)的?` +
		`(?:工单|需求|页面|功能|流程|问题|任务|文档|链接|策略|模块|服务)|` +
		`(?:密码|口令|密钥)(?:服务|系统|平台|模块)的?\p{Han}{0,4}(?:编号|工单|端口)|(?:触发|唤醒)口令`)
	tasksZH = regexp.MustCompile(`(?:工单|需求|任务|编号|端口)$`)
	ticket  = regexp.MustCompile(`^[A-Z]{2,10}-\d{1,6}$`)
	number  = regexp.MustCompile(`^\d{1,8}$`)
	// account: "user bob, pass hunter2", "login: admin/admin123".
	account = regexp.MustCompile(`(?i)(?:\b(?:user(?:[ -]?name)?|login|log-?in|account|acct|uid|email)|登录名|登陆名|账号|帐号|账户|` +
		`用户名?)\s*(?:is|[:=：]|是|为)?\s*[^\s,，;；/]{2,40}\s*(?:[,，;；/和及]|\band\b|\bwith\b)?\s*(?:\b(?:pass(?:word|wd)?|pwd|pw|` +
		`pin)\b|密码|口令)\s*(?:is|[:=：]|是|为)?\s*`)
	// reversed: "hunter2 is my password", "用 qwer1234 作为密码".
	reversed = regexp.MustCompile(`(?i)([^\s"'“”‘’「」（(]{3,64})["'”’」]?` +
		`(?:\s*[,;:–-]?\s*(?:that|this|which|it)(?:\s+is|\s+was|'s)|\s+(?:is|was|as|for|becomes))\s+` +
		`(?:(?:my|our|the|his|her|a|your|new|old|current|admin|root|login|wi-?fi|shared|default|main|master|database|db|server|email)\s+)*` +
		`(?:` + nounEN + `|pin|pin[ -]?code)\s*(?:$|[.,;:!?)]|\b(?:for|of|on|to|at|now|there|and|but)\b)|` +
		`([!-~]{4,64})["'”’」]?\s*(?:[,，]?\s*这?(?:就是|是)|作为|当作?|做|为)\s*(?:\p{Han}{0,8}的?)?\s*(?:密码|口令)`)
	// command: what programs take as an option.
	command = regexp.MustCompile(`(?i)\b(?:mysql\w*|mariadb|mongo\w*|psql|sshpass)\b[^\n]{0,80}?\s-p\s?([^\s-]\S{2,})|\s--?(?:password|` +
		`passwd|passphrase|pass|token|secret|api-key)[= ]["']?([^\s"'-]\S{2,})|\bcurl\b[^\n]{0,120}?\s(?:-u|` +
		`--user)\s?["']?[^\s:]+:(\S{3,})`)
	pair = regexp.MustCompile(`(?i)\b(?:cred(?:ential)?s?|log-?ins?|log ?in|sign ?in|auth|basic auth)\b[^.!?;\n]{0,24}?(?:is|are|[:=]|` +
		`with|using|as)\s*["'“‘` + "`" + `]?([A-Za-z0-9._@-]{2,40})\s*[:/|]\s*`)

	pin = regexp.MustCompile(`(?i)(?:\b(?:(?:my|our|the|card|debit|credit|sim|phone|atm|door|alarm|bank|his|her) (?:\w+ )?pin|` +
		`pin[ -]?(?:codes?|number|no\.?)|pin\s*(?:is|was|[:=]|to)|cvv2?|cvc2?|card security code|otp|one[- ]time (?:code|password|pin)|` +
		`(?:verification|2fa|mfa|backup|recovery|security|authenticator|sms|access|unlock|door|gate|alarm|entry|voicemail|` +
		`login)[ -]codes?)|` +
		`(?:验证码|校验码|动态码|取款码|支付密码|锁屏密码|门禁|安全码|PIN\s?码?|备用码))` +
		`[^.!?;\n\d]{0,24}?(?:\d(?:[ -]?\d){3,7})(?:$|[^\d%A-Za-z-]|[-][^\d])`)
	pinUnits = regexp.MustCompile(`(?i)\d+\s*(?:digits?|characters?|chars|days?|hours?|minutes?|seconds?|位|个|天|小时|分钟|秒)`)
	// dates are no PIN and no password, if no longer run of digits or signs ends so.
	dates = regexp.MustCompile(`(?:^|[\s\p{Han}，。,；;（(])(?:\d{1,2}\s?[月日次条]|(?:19|20)\d\d\s?年)`)
	dated = regexp.MustCompile(`^(?:\d{1,2}\s?[月日次条]|(?:19|20)\d\d\s?年)`)

	// mnemonic: a recovery phrase of words.
	mnemonic = regexp.MustCompile(`(?i)(?:\b(?:seed|recovery|mnemonic|wallet|backup|secret)(?: recovery)?[ -](?:phrase|words?)|助记词|` +
		`恢复短语)[^.\n]{0,24}?(?:is|are|[:=：是为])\s*["'“]?(?:[a-z]{3,8}[ ,，]+){5,}[a-z]{3,8}|` +
		`\b(?:twelve|12|24|twenty[- ]four) words\b[^.\n]{0,32}?(?:[a-z]{3,8}[ ,，]+){11,}[a-z]{3,8}`)

	// keyed: "api key is abc123def456".
	keyed = regexp.MustCompile(`(?i)(?:\b|_)(?:(?:api|access|secret|auth(?:entication|orization)?|private|encryption|signing|client|service|` +
		`bot|webhook|session|refresh|deploy(?:ment)?|admin|licen[cs]e|personal access|aws|azure|gcp|github|gitlab|slack|openai|stripe|` +
		`jwt|id|csrf|sas|storage|shared|hmac|master|vault|npm|pypi|ssh|root|product)[ _-]?(?:api[ _-]?)?(?:key|token|secret|cookie|` +
		`password)s?|apikey|accesstoken|token|secret|cookie|jsessionid|sessionid|sid)(?:\b|_)` +
		`(?:[^.!?;\n]{0,32}?(?:\bis\b|\bare\b|\bwas\b|\bto\b|[:=]|->|=>|是|为)|)\s*["'“‘` + "`" + `(<\[]*([A-Za-z0-9_\-+/=.~]{10,})`)
	keyedZH = regexp.MustCompile(`(?i)(?:令牌|密钥|密匙|访问凭证|凭证|凭据|授权码|激活码|秘钥|api\s?key|token|secret|` +
		`key)[^，。,;；!！?？\n]{0,16}?(?:是|为|叫|改成|换成|[:：=]|\s)\s*["'“‘「` + "`" + `]*([A-Za-z0-9_\-+/=.~]{10,})`)

	// userinfo: scheme://user:password@host.
	userinfo   = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s/@:?#]{0,80}:([^\s/@]{1,120})@[^\s/]`)
	bearer     = regexp.MustCompile(`(?i)\b(?:bearer|basic|token|digest)[ :]\s*["']?([A-Za-z0-9._~+/=-]{12,})`)
	queryParam = regexp.MustCompile(`(?i)[?&;](?:access_?token|api_?key|apikey|auth|key|token|sig|signature|secret|password|pwd|pass|` +
		`client_secret|x-amz-signature|code)=([^\s&#]{6,})`)
	privateKey = regexp.MustCompile(`(?i)BEGIN[\s_-]*(?:(?:RSA|EC|DSA|OPENSSH|ENCRYPTED|PGP|SSH2?|ED25519)[\s_-]*)*PRIVATE[\s_-]*KEY|` +
		`PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1[0-9A-Z]{8,}|"kty"\s*:\s*"(?:RSA|EC|OKP|oct)"[^}]*"(?:d|k)"\s*:`)
	placeholder = regexp.MustCompile(`^(?:[*•xX.·_-]+|[<\[{(]+[^>\]})]*[>\]})]+|\$\{?\w+\}?|%\w+%|(?i:redacted|hidden|secret|removed|` +
		`changeme\?*|none|null|n/?a|tbd|todo|placeholder|masked))$`)
)

// prefixes are tokens that their beginning gives away, wherever they stand.
var prefixes = regexp.MustCompile(`gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|glrt-[A-Za-z0-9_-]{16,}|` +
	`(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}|sk-(?:proj-|ant-|svcacct-|or-)?[A-Za-z0-9_-]{16,}|whsec_[A-Za-z0-9]{16,}|` +
	`(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}|` +
	`xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,}|hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/]{20,}|` +
	`discord(?:app)?\.com/api/webhooks/\d+/[A-Za-z0-9_-]{20,}|` +
	`npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|hf_[A-Za-z0-9]{20,}|dop_v1_[a-f0-9]{40,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|` +
	`key-[0-9a-f]{32}|` +
	`hvs\.[A-Za-z0-9_-]{20,}|dckr_pat_[A-Za-z0-9_-]{20,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|EAA[A-Za-z0-9]{60,}|LTAI[A-Za-z0-9]{12,}|` +
	`AKID[A-Za-z0-9]{13,}|` +
	`eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}|eyJ[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}\.|\d{8,10}:AA[A-Za-z0-9_-]{30,}|` +
	`lin_api_[A-Za-z0-9]{30,}|sq0(?:atp|csp)-[A-Za-z0-9_-]{20,}|dapi[a-f0-9]{32}|AccountKey=[A-Za-z0-9+/=]{40,}|` +
	`nvapi-[A-Za-z0-9_-]{20,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|pplx-[a-f0-9]{20,}`)

// benign are words that follow "the password is" and are no password.
var benign = set(`a an the this that these those not no never always also only just too very so quite really still now then here there required
	optional mandatory needed necessary requested asked missing empty blank unset absent available stored saved kept held managed
	handled generated rotated changed reset updated set sent shared given provided supplied entered typed used written checked
	validated verified hashed salted encrypted masked hidden redacted visible shown displayed printed logged protected secured exposed
	leaked compromised stolen lost forgotten expired expiring invalid valid wrong incorrect correct right ok okay fine bad good weak
	strong safe secure insecure unsafe short long simple complex complicated hard easy different same similar equal unique random new
	old temporary permanent secret private public personal sensitive confidential in on at by for from with without of to as inside
	within under via through per than because when where while if until unless after before since about between against over out up
	off and or but nor yet is are was were be been being has have had do does did can could may might must shall should will would
	need needs i you he she it we they me him her us them my your his its our their mine yours who whom which what why how something
	anything nothing everything someone somebody anyone nobody none all any both each every either neither some many much more most
	less least few other another such own min minimum max maximum length policy policies manager managers reset resets field fields
	form prompt prompts rule rules rotation expiry strength hint less-only login logins authentication auth based protected file files
	store vault keychain keepass bitwarden 1password lastpass kms ldap sso saml oauth oidc totp mfa 2fa hsm case-sensitive
	casesensitive unknown known unclear important irrelevant confirmed denied rejected accepted blocked locked unlocked enabled
	disabled deprecated removed deleted gone back working broken failing failed fails works supported unsupported accessible ready
	pending due overdue not-set tbd admin-only rsa aes md5 sha ecdsa ed25519 argon bcrypt scrypt pbkdf yescrypt base64 utf-8 ascii
	unicode hex oauth2 jwt pkce`)

// benignName are names of methods and formats, with digits like a password.
var benignName = regexp.MustCompile(`(?i)^(?:rsa|aes|sha|md|ed|ecdsa|argon|pbkdf|hs|rs|es|oauth|base|utf|http|ipv|v|x|p|k|s|t|2fa|mfa|` +
	`1password|web|h|py|python|java|go|node|tls|ssl|ssh|windows|win|office|macos|ubuntu|` +
	`rfc)[-_ ]?\d+[a-z]{0,3}(?:[-_/.]\d+)*(?:id)?$|^\d{1,3}$|^\d{1,4}[-+/]?(?:d|days?|h|hours?|m|min|s|chars?|characters|digits|bit|` +
	`bits|x|%|st|nd|rd|th|\+)$|^\d{4}-\d{2}-\d{2}$|^https?://[^@]*$|^[\w.-]+@[\w-]+(?:\.[\w-]+)+$|^\w+(?:-\w+)*\.(?:ya?ml|json|go|py|` +
	`txt|md|toml|env|conf|ini|html|kdbx|com|io|org)$`)

// function are words that a passphrase said in a sentence does not hold.
var function = set(`the a an is are was were be been in on at by for from with without of to as and or but not must should shall will would can could
	may might have has had do does we you they he she it i my your our their its this that these those if when only per because stored
	kept managed required rotated`)

func set(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// nounFirst is what begins with what a password is called.
var nounFirst = regexp.MustCompile(`(?i)^(?:密码|口令|密钥|密匙|助记词)\p{Han}`)

const opening = "\"'“”‘’「」『』《》`([{<*_ \t"

// value splits off the word at the beginning of s, without quotes around it, and
// says whether it stood in quotes and whether a clause ends with it.
func value(s string) (word, rest string, quoted, last bool) {
	trimmed := strings.TrimLeft(s, opening)
	// "the 'password' field" is no quotation of field.
	before, _ := utf8.DecodeLastRuneInString(s[:len(s)-len(trimmed)])
	quoted = strings.ContainsRune("\"'“‘「『`", before) && strings.ContainsAny(trimmed, "\"'”’」』`")
	end := strings.IndexFunc(trimmed, unicode.IsSpace)
	if end < 0 {
		end = len(trimmed)
	}
	word, rest = trimmed[:end], strings.TrimSpace(trimmed[end:])
	bareWord := strings.TrimRight(word, ".,;:!?…\"'”’」』》`)]}>*，。；：！？、")
	last = len(bareWord) < len(word) || rest == "" || ends.MatchString(rest)
	return bareWord, rest, quoted, last
}

var ends = regexp.MustCompile(`(?i)^(?:[.,;:!?)"”(–—-]|(?:and|but|for|so|please|ok|okay|thanks|on|at|in|everywhere|by the way|btw|if|when|` +
	`remember|don'?t|by heart|with|as well|too)\b)`)

// clauseBytes bounds how far is looked for the end of a clause, so that many
// beginnings of one do not take the square of a text's length.
const clauseBytes = 320

// password reports whether what stands at the beginning of s reads like a
// password: a word with digits or signs in it, or a plain one that ends a clause.
func password(s string, plainToo bool) bool {
	if len(s) > clauseBytes {
		s = strings.ToValidUTF8(s[:clauseBytes], "")
	}
	word, rest, quoted, last := value(s)
	lower := strings.ToLower(word)
	n := utf8.RuneCountInString(word)
	switch {
	case n < 3 || placeholder.MatchString(word):
		return false
	case benign[lower] || benignName.MatchString(word):
		return plainToo && passphrase(word, rest)
	case nounFirst.MatchString(word) && !odd(word):
		// "密钥: 密钥都放在".
		return false
	case hanStart(word):
		// "小写的 feiji2024".
		first, _, _ := strings.Cut(rest, " ")
		return plainToo && (hanPassword(word) || strings.HasSuffix(word, "的") && ascii(first) && odd(first))
	case odd(asciiRun(word)):
		counted := strings.Join(append([]string{word}, firstWords(rest, 1)...), " ")
		return !pinUnits.MatchString(counted) && !dated.MatchString(counted)
	case quoted && n >= 4:
		return true
	case !plainToo:
		return false
	case last && n >= 4:
		return true
	}
	return passphrase(word, rest)
}

func firstWords(s string, n int) []string {
	f := strings.Fields(s)
	return f[:min(n, len(f))]
}

// asciiRun returns the part of s before the first character outside of ASCII.
func asciiRun(s string) string {
	if i := strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }); i >= 3 {
		return strings.TrimRight(s[:i], ".,;:!?\"'`)")
	}
	return s
}

// odd reports whether s holds what words do not: a digit, a sign, or a capital
// after a small letter.
func odd(s string) bool {
	small := false
	for i, r := range s {
		switch {
		case unicode.IsDigit(r), strings.ContainsRune("!@#$%^&*+=~|\\?<>", r), r == '_' && i > 0:
			return true
		case unicode.IsUpper(r) && small:
			return true
		}
		small = small || unicode.IsLower(r)
	}
	return false
}

// passphrase reports whether a clause is three words, or begins with four,
// without any that holds a sentence together.
func passphrase(word, rest string) bool {
	clause := word + " " + rest
	if i := strings.IndexAny(clause, ".,;:!?\"”"); i >= 0 {
		clause = clause[:i]
	}
	list := strings.Fields(strings.ToLower(strings.ReplaceAll(clause, "-", " ")))
	n := slices.IndexFunc(list, func(w string) bool { return function[w] })
	return n < 0 && len(list) >= 3 || n >= 4
}

func hanStart(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.Is(unicode.Han, r)
}

// hanPassword reports whether s, in which no space is, begins with two to eight
// Han characters before an end that do not begin a statement about passwords.
func hanPassword(s string) bool {
	end := strings.IndexFunc(s, func(r rune) bool { return !unicode.Is(unicode.Han, r) })
	if end >= 0 {
		if r, _ := utf8.DecodeRuneInString(s[end:]); !unicode.IsPunct(r) {
			return odd(s[end:])
		}
		s = s[:end]
	}
	n := utf8.RuneCountInString(s)
	first, _ := utf8.DecodeRuneInString(s)
	return n >= 2 && n <= 8 && !strings.ContainsRune(statement, first) && !strings.ContainsAny(s, "的吗呢么")
}

// statement are characters with which a statement about a password begins:
// "在 Vault 里", "由平台组管理", "必须更换".
const statement = "在由用存放必需要不没什多加错正通每至最有可会谁哪怎强过空明默统我你他她它一这那为安重的了无未已能应该随自动保如何同旧新弱复简临只从经按根跟和与被把让对系管"

// entry speaks of getting in somewhere.
var entry = regexp.MustCompile(`(?i)\b(?:` + nounEN + `|log(?:s|ging|ged)?[ -]?in|logins?|sign(?:s|ing|ed)?[ -]?in|unlock(?:s|ed)?|` +
	`decrypt(?:s|ed)?|` +
	`(?:lets?|gets?) (?:you|me|us|one) in(?:to)?|opens? with|authenticates? (?:with|as))\b|密码|口令|登录|登陆|解锁|解密|开机`)

// strong reports whether a word reads like nothing but a password: capital and
// small letters around a digit, or letters and digits with a sign that names do
// not have.
func strong(word string) bool {
	word = strings.Trim(word, ".,;:?…\"'“”‘’「」『』《》`()[]{}<>，。；：！？、")
	if len(word) < 7 || len(word) > 40 || benignName.MatchString(word) || !ascii(word) || strings.Contains(word, "://") || host.MatchString(word) {
		return false
	}
	digits, lower, upper := counts(word)
	return digits > 0 && lower+upper >= 3 && signed(word) || upper > 0 && lower > 1 && leet.MatchString(word)
}

// signed reports whether there is a sign in a word that names do not have.
func signed(word string) bool {
	return strings.ContainsAny(word, signs) && strings.Trim(word, "#@$%^&*~") == word || strings.ContainsAny(word, "!^&*")
}

// withoutUnits takes numbers out of which a unit or a date says what they count.
func withoutUnits(form string) string {
	return pinUnits.ReplaceAllString(dates.ReplaceAllString(form, "·"), "·")
}

// host are "root@web01" and names of programs with a digit inside.
var host = regexp.MustCompile(`^[\w.-]{2,}@[a-z][\w.-]*$|^(?i:log4|neo4|ipv[46]|http[123]|web3|s3|ec2|mp[34]|k[38]s)`)

// leet is a digit in place of a letter that looks like it.
var leet = regexp.MustCompile(`^[A-Za-z]*[A-Za-z][013457]+[a-z]{2,}[A-Z][A-Za-z!?]*$|^[A-Z][a-z]*[013457]{1,2}[a-z]+[!?]*$|` +
	`^[A-Za-z]+[013457]{1,2}[a-z]+[A-Z][a-z]+[!?]*$`)

var slashes = regexp.MustCompile(`[\s/|]+`)

// token reports whether s looks like made by a machine to be secret: not a date,
// a version, a name or a path.
func token(s string) bool {
	digits, lower, upper := counts(s)
	return (digits >= 2 && lower+upper >= 3 || digits >= 1 && lower >= 4 && upper >= 4) && entropy(s) >= 2.8 && !wordy(s)
}

// identified begin identifiers that providers give to what is no secret.
var identified = regexp.MustCompile(`^(?:call|toolu|chatcmpl|cmpl|msg|message|run|thread|file|resp|req|asst|cus|pi|ch|sub|evt|price|prod|` +
	`conv|item|batch|trace|span)[_-]`)

// random reports whether s is a long run of letters and digits without order,
// which counts even if nobody says what it is. Hashes, UUIDs and ULIDs are of one
// case and do not.
func random(s string) bool {
	if identified.MatchString(s) || len(s) < 24 || strings.Count(s, "/") > 2 || strings.Count(s, "-") > 3 || strings.Count(s, ".") > 0 {
		return false
	}
	digits, lower, upper := counts(s)
	return digits >= 3 && lower >= 4 && upper >= 4 && entropy(s) >= 3.9 && turns(s)*2 >= len(s) && !wordy(s)
}

func counts(s string) (digits, lower, upper int) {
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			digits++
		case 'a' <= c && c <= 'z':
			lower++
		case 'A' <= c && c <= 'Z':
			upper++
		}
	}
	return digits, lower, upper
}

// turns counts changes between small letters, capitals, digits and signs.
func turns(s string) int {
	class := func(c byte) int {
		switch {
		case '0' <= c && c <= '9':
			return 1
		case 'a' <= c && c <= 'z':
			return 2
		case 'A' <= c && c <= 'Z':
			return 3
		default:
			return 4
		}
	}
	n := 0
	for i := 1; i < len(s); i++ {
		if class(s[i]) != class(s[i-1]) {
			n++
		}
	}
	return n
}

var parts = regexp.MustCompile(`[-_./=+~]+`)

// wordy reports whether s is made of words, dates and small numbers joined by
// signs, as names and paths are.
func wordy(s string) bool {
	list := parts.Split(strings.Trim(s, "-_./=+~"), -1)
	for _, p := range list {
		if p == "" {
			continue
		}
		digits, lower, upper := counts(p)
		letters := lower + upper
		// "sha256", "part00001", "v2", "x64".
		numbered := digits <= 4 && (p[0] < '0' || p[0] > '9') && turns(p) <= 2 && len(p) <= 12 || digits <= 3 && len(p) <= 5
		switch {
		case digits > 0 && letters > 0 && !numbered,
			digits == 0 && upper > 1 && lower > 1 && turns(p) > 4,
			digits > 8 && letters == 0:
			return false
		}
	}
	return len(list) > 1 || len(s) < 10
}

// entropy is Shannon's, in bits per byte.
func entropy(s string) float64 {
	var n [256]float64
	for i := range len(s) {
		n[s[i]]++
	}
	h, total := 0.0, float64(len(s))
	for _, c := range n {
		if c > 0 {
			h -= c / total * math.Log2(c/total)
		}
	}
	return h
}
