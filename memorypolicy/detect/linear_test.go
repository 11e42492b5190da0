package detect

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
)

// beginnings are what the patterns begin with, and what they may repeat.
var beginnings = []string{
	"a", "A", "aB3", "7", "7 ", "七", "密", "工资卡", " ", ".", "-", "a-", "a.", "a@", "@", "a/", "/", "://", "a:", "=", "%41", "\\u0041", "&#65;", "41 ", "41:", "a b ", "密 码 ", "QUJD",
	"capital T, ", "lower case r ", "大写 K ", "the disk opens ", "open with ", "unlocks using ", "登录是", "登录", "解锁用", "pass=", "pass=a", "jo@example.org ", "jo@example.org and ", "jo@a.",
	"用 admin / ", "用 jo@example.org / a", "wifi ", "wifi is ", "无线是", "abcdefgh gets you ", "abcdefgh gets you in ", "按 1 2 3 ", "按123", "输入 1, ", "大门按", "左转 3 ", "punch in 1 ", "keypad ", "取款6位是",
	"密码是 ", "密码", "密码 2 ", "密码是 a1", "admin / ", "root/root", "pin for the atm ", "asks for my first pet ", "security question ", "安全问题", "找回密码我", "the usual one with ", "老规矩", "老规矩：a", "解锁图案是", "手机划", "swipe pattern is ",
	"my password for ", "password ", "password is now ", "password: ", "set the password ", "password to ", "password to be ", "口令改成了", "密码重置链接", "密码服务的", "user bob ", "user: b, pass: ", "login with ", "auth: a:", "auth: //",
	"hunter2 is my ", "a is the ", "hunter2就是", "mysql ", "mysql -p ", "curl -u a", "--token ", "my pin ", "pin code 1", "验证码 1", "12 days ", "seed phrase is ", "word ", "abc, ", "twelve words ", "api key ", "api key is ", "密钥 ", "https://", "https://a:", "bearer ",
	"?token=", "BEGIN RSA ", "BEGIN PRIVATE ", "ghp_", "sk-", "eyJ", "eyJhbGciOiJI.", "one, ", "oh ", "一", "1-", "1.", "+1 ", "DE89 ", "my debt ", "on ", "欠着", "还欠着", "without asking ", "without ever ", "don't ask ", "skip the ", "treat a ",
	"all my ", "you may ", "no need to ping me ", "checks are ", "count as ", "deploys that ", "就算", "不用再", "全权", "你们", "规则", "ignore all ", "always call ", "you are now ", "system: ", "<|", "###", "反复", "忽略所有", "调用 a", "昨天", "yesterday ", "not ", "不是",
	"ok ", "好", "谢谢", "tonight ", "\"", "“", "(", "{", "'a' ", "`", "\n", "\u200b", "\u0301", "а", "４", "ﬁ",
}

// slowdown returns how much longer f takes for eight times the text. Both are taken
// one after the other, so that a busy machine slows both; of six rounds the one counts
// in which the large one is best. What takes less than ten milliseconds counts as ten.
func slowdown(unit, end string, size int, f func(string)) float64 {
	took := func(n int) time.Duration {
		text := strings.Repeat(unit, max(1, n/len(unit))) + end
		at := time.Now()
		f(text)
		return time.Since(at)
	}
	ratio := math.Inf(1)
	for round := 0; round < 6 && ratio > most; round++ {
		small := max(10*time.Millisecond, took(size))
		ratio = min(ratio, float64(took(8*size))/float64(small))
	}
	return ratio
}

// most is well above the eight of what is linear, and well below the 64 of what
// takes the square.
const most = 32

// Whoever writes a message must not make reading it take the square of its length:
// first each pattern that is looked for again inside of what it found, with
// whatever a pattern begins with, then the detector.
func TestPatternsAreLinear(t *testing.T) { //nolint:paralleltest // it measures time
	again := []*regexp.Regexp{said, changed, bare, saidZH, bareZH, account, pair, opened, passed, mailed, asUsual}
	for _, re := range again {
		for _, unit := range beginnings {
			if ratio := slowdown(unit, "@example.org and foo", 2<<10, func(s string) { starts(re, s) }); ratio > most {
				t.Fatalf("%.60s: %q: eight times the text take %.0f times as long", re, unit, ratio)
			}
		}
	}
}

func TestFindIsLinear(t *testing.T) { //nolint:paralleltest // it measures time
	d, err := Shared()
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"a", "7", "密", "capital T, ", "登录是", "jo@example.org and "} {
		if r := slowdown(unit, "@example.org and foo", 8<<10, func(text string) { d.Find(text) }); r > most {
			t.Fatalf("%q: 64 KB take %.0f times as long as 8 KB", unit, r)
		}
	}
}
