package detect_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/memorypolicy/detect"
)

func TestNormalize(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"empty":             {"", ""},
		"blank":             {" \t\u3000\n\u2800", ""},
		"plain":             {"answers in English", "answers in English"},
		"white space":       {"  a\t\tb\r\n\u00a0c\u3000d ", "a b c d"},
		"full width":        {"ｈｕｎｔｅｒ２！", "hunter2!"},
		"half-width kana":   {"ｶﾞ", "ガ"},
		"composed":          {"e\u0301", "é"},
		"ligature":          {"ﬁle", "file"},
		"zero width":        {"a\u200bb\u200cc\u200dd\ufeffe\u2060f", "abcdef"},
		"bidirectional":     {"a\u202eb\u202cc\u2066d\u2069e\u200ef", "abcdef"},
		"control":           {"a\x00b\x07c\x1b[31md\u0085e", "abc[31md e"},
		"soft hyphen":       {"pass\u00adword", "password"},
		"variation":         {"a\ufe0fb\U000e0100c", "abc"},
		"tags":              {"a\U000e0041\U000e0042b", "ab"},
		"hangul filler":     {"a\u3164b\uffa0c\u115fd", "abcd"},
		"grapheme joiner":   {"a\u034fb", "ab"},
		"invalid":           {"a\xff\xfeb", "a\ufffdb"},
		"hidden composing":  {"e\u200b\u0301", "é"},
		"leading diaeresis": {"\u00a8b", "\u0308b"},
		"spacing diaeresis": {"a\u00a8b", "a \u0308b"},
		"han":               {"我的　密码", "我的 密码"},
	} {
		got := detect.Normalize(c.in)
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, got, detect.Normalize(got), "%s: idempotent", name)
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{
		{"Ann", "ａＮＮ"}, {"STRASSE", "straße"}, {"ΣΊΣΥΦΟΣ", "σίσυφος"}, {" Order  Service", "order\u200b service"}, {"Ǆ", "ǆ"}, {"中文", "中文"},
	} {
		require.Equal(t, detect.Fold(same[0]), detect.Fold(same[1]), same)
	}
	require.NotEqual(t, detect.Fold("resume"), detect.Fold("résumé"))
	require.Equal(t, "strasse", detect.Fold("Straße"))
}

// secret are the categories that must never enter.
var secret = []detect.Category{detect.Secret, detect.AccessToken, detect.PaymentCard, detect.IdentityNumber, detect.PhoneNumber}

func FuzzNormalize(f *testing.F) {
	for _, texts := range hits {
		for _, text := range texts {
			f.Add(text)
		}
	}
	for _, text := range misses {
		f.Add(text)
	}
	d := shared(f)
	f.Fuzz(func(t *testing.T, s string) {
		normal := detect.Normalize(s)
		if !utf8.ValidString(normal) {
			t.Fatalf("%q: normalized to invalid UTF-8", s)
		}
		if again := detect.Normalize(normal); again != normal {
			t.Fatalf("%q: normalized to %q, and that to %q", s, normal, again)
		}
		if folded := detect.Fold(s); detect.Fold(folded) != folded {
			t.Fatalf("%q: folded to %q, and that to %q", s, folded, detect.Fold(folded))
		}
		found, left := d.Find(s), d.Find(normal)
		for _, c := range secret {
			if has(found, c) && !has(left, c) {
				t.Fatalf("%q: %s is found, and after normalization to %q it is not", s, c, normal)
			}
		}
		if has(found, detect.Failed) || has(left, detect.Failed) {
			t.Fatalf("%q: a detector failed: %v, %v", s, found, left)
		}
	})
}
