package tokens

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/model"
)

func get(t testing.TB, name string) Counter {
	t.Helper()
	c, err := For(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPublishedCounts compares with the counts that OpenAI's cookbook gives in
// "How to count tokens with tiktoken".
func TestPublishedCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text                   string
		r50k, p50k, cl100k, o2 int64
	}{
		{"antidisestablishmentarianism", 5, 5, 6, 6},
		{"2 + 2 = 4", 5, 5, 7, 7},
		{"お誕生日おめでとう", 14, 14, 9, 8},
		{"", 0, 0, 0, 0},
	} {
		for name, want := range map[string]int64{"r50k_base": c.r50k, "p50k_base": c.p50k, "cl100k_base": c.cl100k, "o200k_base": c.o2} {
			counter := get(t, name)
			if got := counter.Count(c.text); got != want || counter.Name() != name {
				t.Errorf("%s counts %d tokens in %q, want %d", counter.Name(), got, c.text, want)
			}
		}
	}
}

func TestFor(t *testing.T) {
	t.Parallel()
	for _, name := range append(model.Tokenizers(), "") {
		if first, again := get(t, name), get(t, name); first != again || first.Name() != name || first.Count("a") < 1 {
			t.Errorf("%q: %v and %v", name, first, again)
		}
	}
	_, err := For("o300k")
	want := `tokenizer "o300k" is unknown: use one of o200k_base, cl100k_base, p50k_base, p50k_edit, r50k_base, or none for a high estimate`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// texts are of the kinds that conversations and tool results have.
func texts() map[string]string {
	var hashes strings.Builder
	for i := range 40 {
		sum := sha256.Sum256([]byte{byte(i)})
		hashes.WriteString(hex.EncodeToString(sum[:]) + "\n")
	}
	return map[string]string{
		"english":  strings.Repeat("Never restart production by yourself. The payment service timed out fourteen times since ten o'clock, and nobody has looked at its error log yet. ", 5),
		"chinese":  strings.Repeat("不要自行重启生产环境。支付服务从十点开始超时了十四次，还没有人看过它的错误日志。上下文窗口有上限，别当无限仓库乱塞。", 5),
		"japanese": strings.Repeat("本番環境の決済サービスを再起動しないでください。昨日のエラーログを確認したところ、タイムアウトが十四件ありました。", 5),
		"korean":   strings.Repeat("운영 환경의 결제 서비스를 재시작하지 마세요. 어제 오류 로그를 확인해 보니 시간 초과가 열네 건 있었습니다. ", 5),
		"russian":  strings.Repeat("Не перезапускай рабочую среду без моего подтверждения. ", 5),
		"hindi":    strings.Repeat("मुझसे पूछे बिना उत्पादन को पुनः आरंभ न करें। ", 5),
		"rare han": strings.Repeat("龘靐齉齾爩麤灪鱻饕餮魑魅魍魉", 5),
		"json":     strings.Repeat(`{"service":{"id":"svc_pay","name":"payment-api"},"env":"production","errors":[{"code":503,"at":"2026-10-28T10:00:00Z","message":"upstream timeout"}],"total":14}`, 5),
		"code":     strings.Repeat("func (c *counter) Count(text string) int64 {\n\tif text == \"\" {\n\t\treturn 0\n\t}\n\treturn c.count(text)\n}\n", 5),
		"hashes":   hashes.String(),
		"digits":   strings.Repeat("31415926535897932384626433832795 ", 20),
		"emoji":    strings.Repeat("😀🚀🔥👩‍👩‍👧‍👦🏳️‍🌈✅❌⚠️🇯🇵🇨🇳🧑🏽‍💻", 5),
	}
}

// TestEstimate measures what the estimate comes to for each kind of text: at
// least 1.4 times what o200k_base has, and more than cl100k_base has, so that a
// vocabulary of neither is covered; and no more than a few times as much, so
// that the window is not given away. least and most are in hundredths.
func TestEstimate(t *testing.T) {
	t.Parallel()
	o200k, cl100k, estimated := get(t, "o200k_base"), get(t, "cl100k_base"), get(t, "")
	wanted := map[string]struct{ least, most int64 }{
		"english": {140, 160}, "code": {140, 170}, "json": {160, 200},
		"chinese": {180, 230}, "japanese": {210, 260}, "korean": {200, 250}, "russian": {240, 310}, "hindi": {400, 500},
		"rare han": {190, 220}, "hashes": {190, 220}, "digits": {250, 310}, "emoji": {200, 240},
	}
	for name, text := range texts() {
		want, exact, old, got := wanted[name], o200k.Count(text), cl100k.Count(text), estimated.Count(text)
		t.Logf("%-8s %5d bytes: o200k_base %5d, cl100k_base %5d, estimate %5d, %.2f of o200k_base", name, len(text), exact, old, got, float64(got)/float64(exact))
		if percent := 100 * got / exact; percent < want.least || percent > want.most {
			t.Errorf("%s: the estimate is %d%% of o200k_base, want %d%% to %d%%", name, percent, want.least, want.most)
		}
		if 2*got < 3*old {
			t.Errorf("%s: the estimate of %d is too near to the %d of cl100k_base", name, got, old)
		}
	}
	// Characters divided by four, the usual estimate, gives a third of what a
	// model takes for Chinese.
	if text := texts()["chinese"]; int64(len([]rune(text))/4) > o200k.Count(text)/2 {
		t.Error("the example for Chinese shows nothing")
	}
}

// TestLongestText: no text of the longest message takes long to count. Without
// maxSpace " \n" takes 44 s.
func TestLongestText(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	for _, unit := range []string{"a", "A", "aA", " ", "\n", " \n", "\t\r", "\u3000\n", " \n\u00a0", "7", "漢", "😀", "\u0301", "!", "/\n", "'s", "\xff"} {
		text := strings.Repeat(unit, size/len(unit))
		for _, name := range model.Tokenizers()[:2] {
			c := newCounter(name, 1)
			c.Count("loads the vocabulary")
			start := time.Now()
			n := c.Count(text)
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%s takes %s for %q", name, took, unit)
			}
			if n < 1 || n > size {
				t.Errorf("%s counts %d tokens in %d bytes of %q", name, n, size, unit)
			}
		}
	}
}

// TestWhiteSpaceIsCutOnly: text is counted at once unless it has a run of white
// space that is too long, and then it is cut between runes.
func TestWhiteSpaceIsCutOnly(t *testing.T) {
	t.Parallel()
	spaces := strings.Repeat(" ", maxSpace)
	wide := strings.Repeat("\u3000", 86) // 258 bytes
	for text, want := range map[string]int{
		"":                     0,
		"one two":              7,
		spaces:                 256,
		"a" + spaces + "b":     258,
		"a" + spaces + "\nb":   257,
		wide:                   255,
		"漢" + wide:             258,
		spaces + "x" + spaces:  513,
		strings.Repeat("x", 9): 9,
	} {
		if got := pieceEnd(text); got != want {
			t.Errorf("%.20q of %d bytes is cut at %d, want %d", text, len(text), got, want)
		}
	}
	// 600 spaces are 5 tokens: of 128 at most, and the last belongs to the word.
	if got := get(t, "o200k_base").Count("a" + strings.Repeat(" ", 600) + "b"); got < 7 || got > 10 {
		t.Errorf("%d tokens, want 7 to 10", got)
	}
}

// TestLinesAddUp is what Counter promises.
func TestLinesAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		counter, err := For(rapid.SampledFrom(append(model.Tokenizers(), "")).Draw(t, "tokenizer"))
		if err != nil {
			t.Fatal(err)
		}
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-zA-Z0-9 漢字\t,.!]{0,40}`))
		var lines []string
		for range rapid.IntRange(1, 6).Draw(t, "lines") {
			head := rapid.SampledFrom([]string{`{"`, `]`, `"`, "a", "漢"}).Draw(t, "head")
			line := strings.NewReplacer("\n", "", "\r", "", "\u0085", "").Replace(head + text.Draw(t, "line"))
			lines = append(lines, line+rapid.SampledFrom([]string{"\n", ",\n"}).Draw(t, "end"))
		}
		var sum int64
		for _, line := range lines {
			sum += counter.Count(line)
		}
		whole := counter.Count(strings.Join(lines, ""))
		if sum < whole || counter.Name() != "" && sum != whole {
			t.Fatalf("%q: the lines have %d tokens, the text %d", lines, sum, whole)
		}
	})
}

func TestCountsAreRememberedWithinBounds(t *testing.T) {
	t.Parallel()
	c := newCounter("o200k_base", 4)
	calls := 0
	c.count = func(text string) int64 { calls++; return int64(len(text)) }
	for range 2 {
		for _, text := range []string{"a", "bb", "ccc", "dddd"} {
			if got := c.Count(text); got != int64(len(text)) {
				t.Errorf("%q: %d", text, got)
			}
		}
	}
	if calls != 4 {
		t.Errorf("four texts were counted %d times", calls)
	}
	for i := range 100 {
		c.Count(fmt.Sprint(i))
	}
	if c.known.Len() != 4 {
		t.Errorf("%d counts are remembered, want 4", c.known.Len())
	}
}

func TestCountConcurrently(t *testing.T) {
	t.Parallel()
	c := newCounter("cl100k_base", 8)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 100 {
				// 2 tokens: "hello" and " world".
				if got := c.Count("hello world"); got != 2 {
					t.Errorf("%d", got)
				}
				c.Count(fmt.Sprint(i, j))
			}
		})
	}
	all.Wait()
}

func BenchmarkCount(b *testing.B) {
	text := strings.Repeat("Never restart production by yourself. 不要自行重启生产环境。", 100)
	for _, name := range []string{"o200k_base", ""} {
		c := newCounter(name, 8)
		c.Count(text)
		b.Run(name+"/cold", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				c.count(text)
			}
		})
		b.Run(name+"/known", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				c.Count(text)
			}
		})
	}
}
