package recall

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       string // joined by |
	}{
		{"nothing", " \t… !?", ""},
		{"words once, in order", "Deploy to Berlin, deploy", "deploy|to|berlin"},
		{"plurals", "cities boxes services glasses status bus class", "city|boxe|service|glasse|status|bus|class"},
		{"no plural", "gas USS aes is", "gas|uss|aes|is"},
		{"identifier", "the payment-api fails", "the|paymentapi|payment|api|fail"},
		{"the same identifier", "payment_api PaymentAPI paymentApi", "paymentapi|payment|api"},
		{"acronym", "parseHTTPRequest", "parsehttprequest|parse|http|request"},
		{"version", "v1.2.3 and 10.0.0.1", "v1.2.3|v1|2|3|and|10.0.0.1|10|0|1"},
		{"address", "ann@example.com.", "ann@example.com|ann|example|com"},
		{"joints at an end", "-flag- a--b", "flag|ab|a|b"},
		{"full width", "ＰＡＹＭＥＮＴ－ａｐｉ　１２", "paymentapi|payment|api|12"},
		{"accents", "Café CAFE\u0301 naïve", "cafe|naive"},
		{"sharp s", "STRASSE Straße", "strasse"},
		{"invisible", "pay\u200bment \ufefflog", "payment|log"},
		{"other scripts", "Привет мир Ελλάδα", "привет|мир|ελλαδα"},
		{"chinese", "用户喜欢苹果", "用|户|用户|喜|户喜|欢|喜欢|苹|欢苹|果|苹果"},
		{"grammar is no word", "我的猫", "我的|猫|的猫"},
		{"one sign", "猫", "猫"},
		{"one sign of grammar", "我", "我"},
		{"mixed", "rerank精排v2", "rerank|精|排|精排|v2"},
		{"japanese", "東京タワー", "東|京|東京|京タ|タワ|ワー"},
		{"half-width kana", "ﾃﾞｰﾀ", "デー|ータ"},
		{"korean", "서울 집", "서|울|서울|집"},
		{"thai", "ไทย", "ไท|ทย"},
		{"broken text", "a\xffb\xfe", "a|b"},
	} {
		if got := strings.Join(Tokens(c.text), "|"); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestQuestion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"english", "What is the name of my favourite service?", "name|favourite|service"},
		{"nothing but common words", "Who am I?", "who|am|i"},
		{"chinese", "我喜欢什么", "喜欢"},
		{"chinese and english", "我们最近配置的 rerank 精排是什么模型", "配置|rerank|精排|模型"},
		{"a phrase", "每日复盘 cron 备份", "每日|日复|复盘|cron|备份"},
		{"pairs, not signs", "多租户", "多租|租户"},
		{"one sign between common ones", "我的猫呢", "猫|的猫|猫呢"},
		{"a word with a common sign", "目的", "目|目的"},
		{"nothing but common signs", "我是谁", "我是|是谁"},
		{"japanese", "私の好きな色は何ですか", "私|私の|好き|きな|な色|何|は何|何で"},
		{"korean", "내 집은 어디", "내|집은|어디"},
		{"nothing", "?!", ""},
	} {
		if got := strings.Join(Question(c.text), "|"); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestLTM8Found: words that a question and a text have in common, in the cases that
// other systems did not find, and in those that they found everywhere.
func TestLTM8Found(t *testing.T) {
	t.Parallel()
	common := func(question, text string) (n int) {
		for _, word := range Question(question) {
			if slices.Contains(Tokens(text), word) {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		question, text string
		want           int
	}{
		{"我们最近配置的 rerank 精排是什么模型", "rerank 精排模型配置为 bge-reranker-v2-m3", 4},
		{"我们最近配置的 rerank 精排是什么模型", "用户最近在学习日语", 0},
		{"每日复盘 cron 备份", "cron 任务每日备份数据库", 3},
		{"多租户", "系统采用多租户隔离", 2},
		{"多租户", "用户有很多订单，租金每月支付", 0},
		{"我喜欢什么", "用户喜欢苹果", 1},
		{"我喜欢什么", "我是工程师", 0},
		{"Which service do I look after?", `{"service":"payment-api"}`, 1},
		{"is the payment api mine", `{"service":"payment-api"}`, 2},
		{"PaymentAPI", `{"service":"payment-api"}`, 3},
		{"好きな色", "ユーザーの好きな色は青", 3},
		{"좋아하는 색", "사용자가 좋아하는 색은 파랑", 4},
	} {
		if got := common(c.question, c.text); got != c.want {
			t.Errorf("%s in %s: %d of %v, want %d", c.question, c.text, got, Question(c.question), c.want)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 3_000 {
		b.WriteString(strings.Repeat("x", i%7+1) + string(rune('a'+i%26)) + strings.Repeat("y", i/100) + " ")
	}
	text := "first " + b.String() + "last"
	for what, got := range map[string][]string{"memory": Tokens(text), "question": Question(text)} {
		want := MaxTokens
		if what == "question" {
			want = MaxQuestionTokens
		}
		if len(got) != want || got[0] != "first" || got[len(got)-1] != "last" {
			t.Errorf("%s: %d words from %s to %s", what, len(got), got[0], got[len(got)-1])
		}
	}
	if got := Tokens(strings.Repeat("é", 100)); len(got) != 1 || got[0] != strings.Repeat("e", maxTokenBytes) {
		t.Errorf("a long word: %v", got)
	}
	if got := Tokens(strings.Repeat("д", 100)); len(got) != 1 || got[0] != strings.Repeat("д", maxTokenBytes/2) {
		t.Errorf("a long word: %v", got)
	}
	// Of ten megabytes both ends count, and nothing between.
	huge := "begin " + strings.Repeat("middle ", 1_500_000)
	if got := Tokens(huge + "end"); len(got) > 5 || got[0] != "begin" || got[1] != "middle" || got[len(got)-1] != "end" {
		t.Errorf("%v", got)
	}
}

func FuzzTokens(f *testing.F) {
	for _, seed := range []string{"payment-api", "我喜欢什么", "rerank 精排 v2", "ﾃﾞｰﾀ", "a\xff", "İstanbul ǅ ﬁ", "서울은", "๏ไทย", "e\u0301-\u0301", "我们最近", "ー々ー", "A.B-C_D"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens, question := Tokens(text), Question(text)
		if !slices.Equal(tokens, Tokens(text)) || !slices.Equal(question, Question(text)) {
			t.Fatal("not the same twice")
		}
		for what, words := range map[string][]string{"memory": tokens, "question": question} {
			seen := map[string]bool{}
			for _, w := range words {
				if w == "" || len(w) > maxTokenBytes || !utf8.ValidString(w) || seen[w] {
					t.Fatalf("%s: %q of %q", what, w, text)
				}
				seen[w] = true
			}
		}
		if len(tokens) > MaxTokens || len(question) > MaxQuestionTokens || (len(tokens) == 0) != (len(question) == 0) {
			t.Fatalf("%d and %d words", len(tokens), len(question))
		}
		// Whoever asks in the words of a memory finds it.
		if len(text) > MaxTokens {
			return
		}
		for _, w := range question {
			if !slices.Contains(tokens, w) {
				t.Fatalf("%q asks for %q, which is not in %q", text, w, tokens)
			}
		}
	})
}
