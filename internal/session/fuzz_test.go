package session_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/internal/session"
)

// effects are what findings do, without their words.
func effects(f session.Findings) []string {
	set := map[string]bool{}
	for _, p := range f.Prohibitions {
		set[fmt.Sprint(p.Tools, p.Ask)] = true
	}
	set["lifts "+fmt.Sprint(f.Lifts)] = true
	return slices.Sorted(maps.Keys(set))
}

// disguise writes letters in full width and puts invisible characters between
// all characters, as each bit of key says.
func disguise(text string, key uint64) string {
	var b strings.Builder
	for i, r := range []rune(text) {
		bits := key >> (uint(i) % 61)
		switch {
		case bits&1 != 0 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'):
			r += 'ａ' - 'a'
		case bits&1 != 0 && r >= 'a' && r <= 'z':
			r -= 'a' - 'A'
		}
		b.WriteRune(r)
		if bits&2 != 0 {
			b.WriteString([]string{"\u200b", "\u200d", "\ufeff", "\u00ad", "\u2060", "\u0301"}[bits>>2%6])
		}
	}
	return b.String()
}

func FuzzDetect(f *testing.F) {
	for _, r := range rows(f) {
		f.Add(r.raw, uint64(0x5a5a_1234_dead_beef))
	}
	for _, hostile := range []string{
		strings.Repeat("do not ", 3000) + "restart", strings.Repeat("不", 3000), strings.Repeat("\"", 999), strings.Repeat("```\n", 300), strings.Repeat("> a\n", 300),
		strings.Repeat("don't, ", 900), "do not\n\n\nrestart", "别\u200b", "not", "'", "n't", "\r\r\n", "x\u0301\u0301", strings.Repeat("- do not:\n", 200), "İstanbul'da do not restart", "\ufdfa do not restart",
	} {
		f.Add(hostile, uint64(7))
	}
	f.Fuzz(func(t *testing.T, message string, key uint64) {
		found, err := session.Detect(message, vocabulary)
		if !utf8.ValidString(message) {
			return
		}
		check(t, message, found)
		for _, p := range found.Prohibitions {
			if !utf8.ValidString(p.Text) {
				t.Fatalf("%q: the text is not valid UTF-8", p.Text)
			}
		}
		again, _ := session.Detect(message, vocabulary)
		if fmt.Sprint(found) != fmt.Sprint(again) {
			t.Fatalf("%q: found %v, then %v", message, found, again)
		}
		disguised, hidden := session.Detect(disguise(message, key), vocabulary)
		if err == nil && hidden == nil && !slices.Equal(effects(found), effects(disguised)) {
			t.Fatalf("%q: found %v, disguised as %q %v", message, effects(found), disguise(message, key), effects(disguised))
		}
	})
}

// A prohibition of the table is found wherever it stands in a longer message,
// and however it is disguised.
func TestDetectInLongerMessages(t *testing.T) {
	t.Parallel()
	var forbidding, harmless []row
	for _, r := range rows(t) {
		switch {
		case strings.HasSuffix(r.class, "forbid") || strings.HasSuffix(r.class, "ask"):
			if !strings.Contains(r.want, ";") {
				forbidding = append(forbidding, r)
			}
		case strings.HasSuffix(r.class, "-none") && !strings.Contains(r.raw, "\n"):
			if r.want == "none" && r.class != "lift-none" {
				harmless = append(harmless, r)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SampledFrom(harmless).Draw(t, "before").raw
		one := rapid.SampledFrom(forbidding).Draw(t, "one")
		after := rapid.SampledFrom(harmless).Draw(t, "after").raw
		message := before + "\n\n" + one.raw + "\n\n" + after
		if key := rapid.Uint64().Draw(t, "key"); key%2 == 0 {
			message = disguise(message, key)
		}
		f, err := session.Detect(message, vocabulary)
		if err != nil {
			t.Fatal(err)
		}
		if got := show(f); fmt.Sprint(normal(got)) != fmt.Sprint(normal(one.want)) {
			t.Fatalf("%q\n got %s\nwant %s", message, got, one.want)
		}
	})
}
