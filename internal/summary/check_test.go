package summary_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/summary"
)

// talk is the source of most tests: 3 prohibits, 5 settles something.
func talk() []summary.Message {
	return []summary.Message{
		{Seq: 3, Role: "user", Text: "Check payment-api in production. Never restart production by yourself."},
		{Seq: 4, Role: "assistant", Text: "payment-api is degraded: 1,250 errors since 10:02, its pool is exhausted. I did not restart it."},
		{Seq: 5, Role: "user", Text: "Order ORD-2291 was not paid, see https://shop.example/o/2291. Refund 49.90 by Friday.\nUse the staging gateway for tests."},
		{Seq: 6, Role: "assistant", Text: "The refund of ORD-2291 failed. I have not tried it again."},
	}
}

// good is a summary of talk that keeps everything.
func good() summary.Summary {
	return summary.Summary{
		Summary: "The user asked to check payment-api in production. It is degraded with 1250 errors since 10:02 and an exhausted pool; the assistant did not restart it. " +
			"Order ORD-2291 was not paid (https://shop.example/o/2291). The refund of 49.90 failed and was not tried again.",
		Decisions:    []summary.Decision{{Key: "test_gateway", Value: "staging gateway", SourceSeq: 5}},
		OpenTasks:    []string{"Refund 49.90 for ORD-2291 by Friday"},
		Prohibitions: []summary.Quote{{Text: "Never restart production by yourself.", SourceSeq: 3}},
		Identifiers:  []string{"payment-api"},
	}
}

func codeOf(f *summary.Failure) summary.Code {
	if f == nil {
		return ""
	}
	return f.Code
}

func TestGoodSummaries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source []summary.Message
		made   summary.Summary
	}{
		"English": {talk(), good()},
		"Chinese": {
			[]summary.Message{
				{Seq: 1, Role: "user", Text: "帮我看一下生产环境的 payment-api，从10：30开始超时了十四次。不要重启生产实例。"},
				{Seq: 2, Role: "assistant", Text: "payment-api 没有重启过，错误率为３.５％，连接池已耗尽。订单 ORD-2291 未支付。"},
				{Seq: 3, Role: "user", Text: "那就用预发环境测试，工单号是 INC-0042，2026年11月30日之前处理。"},
			},
			summary.Summary{
				Summary:      "用户要求检查生产环境的 payment-api：自10:30起超时14次，错误率3.5%，连接池已耗尽，没有重启过。订单 ORD-2291 尚未支付。",
				Decisions:    []summary.Decision{{Key: "测试环境", Value: "预发环境", SourceSeq: 3}},
				OpenTasks:    []string{"在2026-11-30之前处理工单 INC-0042"},
				Prohibitions: []summary.Quote{{Text: "不要重启生产实例。", SourceSeq: 1}},
			},
		},
		"Japanese": {
			[]summary.Message{
				{Seq: 7, Role: "user", Text: "本番環境の payment-api を確認してください。昨日の 10:30 から 1,200 件のエラーがあります。"},
				{Seq: 8, Role: "assistant", Text: "payment-api は停止していません。接続プールが 95% に達しています。注文 ORD-2291 は支払われていません。"},
				{Seq: 9, Role: "user", Text: "では v1.2.3 に戻してください。"},
			},
			summary.Summary{
				Summary:     "ユーザーは本番環境の payment-api の確認を依頼した。10:30 から 1200 件のエラーがあり、接続プールは 95% に達しているが、payment-api は停止していない。注文 ORD-2291 は支払われていない。",
				OpenTasks:   []string{"v1.2.3 に戻す"},
				Identifiers: []string{"ＯＲＤ－２２９１"},
			},
		},
		"nothing that must be kept": {
			[]summary.Message{{Seq: 1, Role: "user", Text: "Hello there, how is the weather?"}, {Seq: 2, Role: "assistant", Text: "I cannot see the weather."}},
			summary.Summary{Summary: "The user greeted and asked about the weather. The assistant cannot see it."},
		},
		"a greeting": {[]summary.Message{{Seq: 1, Role: "user", Text: "hi"}}, summary.Summary{Summary: "The user greeted."}},
	} {
		if f := summary.Check(c.source, c.made); f != nil {
			t.Errorf("%s: %s\n%s", name, f.Code, f.Feedback())
		}
	}
}

func TestBadSummaries(t *testing.T) {
	t.Parallel()
	replace := func(from, to string) func(*summary.Summary) {
		return func(s *summary.Summary) {
			text := strings.ReplaceAll(string(s.Bytes()), from, to)
			if text == string(s.Bytes()) {
				panic(from + " is not in the summary")
			}
			*s = must(summary.Parse(text))
		}
	}
	for name, c := range map[string]struct {
		spoil func(*summary.Summary)
		want  summary.Code
		// shows is in the feedback.
		shows string
	}{
		"nothing":      {func(s *summary.Summary) { *s = summary.Summary{} }, summary.CodeEmpty, `"summary" says nothing`},
		"white space":  {func(s *summary.Summary) { s.Summary = " \n\u3000" }, summary.CodeEmpty, `"summary" says nothing`},
		"says nothing": {func(s *summary.Summary) { s.Summary = "OK." }, summary.CodeEmpty, `"summary" says nothing`},
		"obeys the source": {func(s *summary.Summary) {
			s.Summary, s.OpenTasks = "The user asked the assistant to write OK and the assistant wrote OK to the conversation.", nil
		}, summary.CodeIdentifierLost, `"ORD-2291"`},
		"too long":                  {func(s *summary.Summary) { s.Summary += strings.Repeat(" Much more was said there.", 200) }, summary.CodeTooLong, "too long"},
		"drops a not":               {replace("was not paid", "was paid"), summary.CodeNegationChanged, `"order ord-2291 was paid"`},
		"drops the assistant's not": {replace("did not restart it", "restarted it"), summary.CodeNegationChanged, `"the assistant restarted it"`},
		"adds a not":                {replace("It is degraded with", "It is not degraded with"), summary.CodeNegationChanged, `"it is not degraded with 1250 errors"`},
		"orders what failed":        {replace("Refund 49.90 for ORD-2291 by Friday", "Restart production"), summary.CodeNegationChanged, `"restart production"`},
		"drops an order number":     {replace("ORD-2291", "the order"), summary.CodeIdentifierLost, `"ORD-2291"`},
		"changes an order number":   {replace("ORD-2291", "ORD-2292"), summary.CodeIdentifierLost, `"ORD-2292"`},
		"drops a URL":               {replace(" (https://shop.example/o/2291)", ""), summary.CodeIdentifierLost, `"https://shop.example/o/2291"`},
		"drops a name":              {replace("payment-api", "the payment service"), summary.CodeIdentifierLost, `"payment-api"`},
		"drops a number":            {replace("with 1250 errors", "with errors"), summary.CodeNumberLost, `"1,250"`},
		"rounds a number":           {replace("1250", "1000"), summary.CodeNumberLost, `"1,250"`},
		"drops a time":              {replace(" since 10:02", ""), summary.CodeNumberLost, `"10:02"`},
		"drops a prohibition":       {func(s *summary.Summary) { s.Prohibitions = nil }, summary.CodeProhibitionLost, "Never restart production by yourself."},
		"rewords a prohibition":     {replace("Never restart production by yourself.", "Do not restart production."), summary.CodeBadSource, `"Do not restart production."`},
		"cuts a prohibition":        {replace("Never restart production by yourself.", "Never restart production"), summary.CodeProhibitionLost, "Never restart production by yourself."},
		"prohibition of another":    {func(s *summary.Summary) { s.Prohibitions[0].SourceSeq = 5 }, summary.CodeBadSource, "Never restart"},
		"prohibition out of range":  {func(s *summary.Summary) { s.Prohibitions[0].SourceSeq = 99 }, summary.CodeBadSource, "Never restart"},
		"prohibition of the assistant": {func(s *summary.Summary) {
			s.Prohibitions = append(s.Prohibitions, summary.Quote{Text: "The refund of ORD-2291 failed.", SourceSeq: 6})
		}, summary.CodeBadSource, "The refund"},
		"prohibition of nothing":  {func(s *summary.Summary) { s.Prohibitions = append(s.Prohibitions, summary.Quote{SourceSeq: 3}) }, summary.CodeBadSource, `""`},
		"decision of another":     {func(s *summary.Summary) { s.Decisions[0].SourceSeq = 3 }, summary.CodeBadSource, `"staging gateway"`},
		"decision out of range":   {func(s *summary.Summary) { s.Decisions[0].SourceSeq = 2 }, summary.CodeBadSource, `"staging gateway"`},
		"decision nobody made":    {replace("staging gateway", "production gateway"), summary.CodeBadSource, `"production gateway"`},
		"decision of half a word": {replace("staging gateway", "staging gate"), summary.CodeBadSource, `"staging gate"`},
		"decision of nothing":     {replace("staging gateway", ""), summary.CodeBadSource, `""`},
		"decision against a negation": {func(s *summary.Summary) {
			s.Decisions[0] = summary.Decision{Key: "action", Value: "restart production", SourceSeq: 3}
		}, summary.CodeNegationChanged, `"restart production"`},
		"decision that keeps it by key": {func(s *summary.Summary) {
			s.Decisions[0] = summary.Decision{Key: "forbidden_action", Value: "restart production", SourceSeq: 3}
		}, "", ""},
		"invents a number":         {replace("an exhausted pool", "an exhausted pool of 20"), summary.CodeInvented, `"20"`},
		"invents by counting":      {replace("The user asked", "The user asked 3 times"), summary.CodeInvented, `"3"`},
		"invents an order":         {replace("by Friday", "by Friday, and ORD-2292"), summary.CodeInvented, `"ORD-2292"`},
		"invents a service":        {replace("an exhausted pool", "an exhausted pool of invoice-db"), summary.CodeInvented, `"invoice-db"`},
		"invents an address":       {func(s *summary.Summary) { s.Identifiers = append(s.Identifiers, "10.0.0.1") }, summary.CodeInvented, `"10.0.0.1"`},
		"invents a plain name":     {func(s *summary.Summary) { s.Identifiers = append(s.Identifiers, "Kafka") }, summary.CodeInvented, `"Kafka"`},
		"invents in a key":         {func(s *summary.Summary) { s.Decisions[0].Key = "gateway_77" }, summary.CodeInvented, `"77"`},
		"invents part of a number": {replace("an exhausted pool", "an exhausted pool of 90"), summary.CodeInvented, `"90"`},
		"words of a language":      {replace("an exhausted pool", "a pool-related, long-term and production pool"), "", ""},
		"part of a URL":            {func(s *summary.Summary) { s.Identifiers = append(s.Identifiers, "2291") }, "", ""},
	} {
		made := good()
		c.spoil(&made)
		f := summary.Check(talk(), made)
		if codeOf(f) != c.want {
			t.Errorf("%s: %q, want %q", name, codeOf(f), c.want)
			continue
		}
		if f != nil && !strings.Contains(f.Feedback(), c.shows) {
			t.Errorf("%s: the feedback lacks %s:\n%s", name, c.shows, f.Feedback())
		}
	}
}

// TestTranslatedIdentifier: the name of a service is no word to translate.
func TestTranslatedIdentifier(t *testing.T) {
	t.Parallel()
	source := []summary.Message{{Seq: 1, Role: "user", Text: "请检查 payment-api 的错误日志。"}}
	f := summary.Check(source, summary.Summary{Summary: "用户要求检查支付接口的错误日志。"})
	if codeOf(f) != summary.CodeIdentifierLost {
		t.Errorf("%v", f)
	}
	// The other way around, the digits are the same.
	source = []summary.Message{{Seq: 1, Role: "user", Text: "订单有５个，退款一千二百元，共 12 次"}}
	f = summary.Check(source, summary.Summary{Summary: "There are five orders, a refund of 1200 yuan, twelve times in all."})
	if f != nil {
		t.Errorf("%s\n%s", f.Code, f.Feedback())
	}
}

// TestSameProhibitionTwice: it is quoted once, from either message of the
// user's.
func TestSameProhibitionTwice(t *testing.T) {
	t.Parallel()
	words := "Never restart production."
	source := []summary.Message{{Seq: 1, Role: "user", Text: words}, {Seq: 2, Role: "assistant", Text: "You said: " + words}, {Seq: 3, Role: "user", Text: words + " " + words}}
	made := summary.Summary{Summary: "The user forbade restarting production and repeated it again, as the assistant confirmed."}
	for seq, want := range map[int64]summary.Code{1: "", 2: summary.CodeBadSource, 3: "", 4: summary.CodeBadSource} {
		made.Prohibitions = []summary.Quote{{Text: words, SourceSeq: seq}}
		if f := summary.Check(source, made); codeOf(f) != want {
			t.Errorf("%d: %v, want %q", seq, f, want)
		}
	}
}

// TestProhibitionThatIsQuoted: the user's message that only quotes the words is
// not where they come from.
func TestProhibitionThatIsQuoted(t *testing.T) {
	t.Parallel()
	words := "Never restart production."
	source := []summary.Message{{Seq: 1, Role: "user", Text: "The handbook has this:\n> " + words}, {Seq: 2, Role: "user", Text: words}}
	made := summary.Summary{Summary: "The user forbade restarting production, as the handbook does."}
	for seq, want := range map[int64]summary.Code{1: summary.CodeProhibitionLost, 2: ""} {
		made.Prohibitions = []summary.Quote{{Text: words, SourceSeq: seq}}
		if f := summary.Check(source, made); codeOf(f) != want {
			t.Errorf("%d: %v, want %q", seq, f, want)
		}
	}
}

// TestFailureShowsNoContent: nothing of the conversation gets into a log.
func TestFailureShowsNoContent(t *testing.T) {
	t.Parallel()
	made := good()
	made.Summary = "canary-77 was paid and not a word of ORD-2291 or anything else is here"
	f := summary.Check(talk(), made)
	if f == nil || !strings.Contains(f.Feedback(), "canary-77") {
		t.Fatal("the check found nothing")
	}
	asJSON, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	shown := string(asJSON) + fmt.Sprint(f) + fmt.Sprint(*f) + f.Error()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown += fmt.Sprintf(verb, f) + fmt.Sprintf(verb, *f) + fmt.Sprintf(verb, []any{f, *f}) + fmt.Sprintf(verb, struct{ F *summary.Failure }{f})
	}
	for _, content := range []string{"canary", "77", "2291", "payment", "Never"} {
		if strings.Contains(shown, content) {
			t.Errorf("%q is in %s", content, shown)
		}
	}
	if want := "summary is not accepted: prohibition_lost"; summary.Check(talk(), summary.Summary{Summary: made.Summary, Prohibitions: nil}).Error() != want {
		t.Errorf("want %s", want)
	}
}

// TestFeedbackIsBounded: with much that is missing, each code is still named.
func TestFeedbackIsBounded(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 150 {
		fmt.Fprintf(&text, "Order ORD-%04d has %d%d items. ", i, i, i)
	}
	source := []summary.Message{
		{Seq: 1, Role: "user", Text: text.String()},
		{Seq: 2, Role: "user", Text: "Never delete " + strings.Repeat("the very old log files and ", 20) + "the others."},
	}
	made := summary.Summary{
		Summary: "The log files were deleted. " + strings.Repeat("界", 300), Identifiers: []string{"XX-1", "YY-2"},
		Decisions: []summary.Decision{{Key: "a", Value: "x" + strings.Repeat("界", 300), SourceSeq: 2}},
	}
	f := summary.Check(source, made)
	got := f.Feedback()
	if len(got) > summary.MaxFeedbackBytes || strings.Contains(got, `\ufffd`) || strings.Contains(got, "\uFFFD") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	for _, want := range []string{"must_quote", "identifiers are missing", "numbers are missing", "in no message", "source_seq names", `"ORD-0000"`, `"XX-1"`, "Never delete", " more\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
	if malformed := summary.Malformed(); malformed.Code != summary.CodeMalformed || !strings.Contains(malformed.Feedback(), "exactly one JSON object") {
		t.Error(malformed.Feedback())
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	whole := string(good().Bytes())
	for name, text := range map[string]string{"plain": whole, "fence": "```json\n" + whole + "\n```", "bare fence": " ```\n" + whole + "```\n", "indented": indent(whole)} {
		got, err := summary.Parse(text)
		if err != nil || string(got.Bytes()) != whole {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, nothing := range []string{"", " \n\t", "```json\n```"} {
		got, err := summary.Parse(nothing)
		if f := summary.Check(talk(), got); err != nil || codeOf(f) != summary.CodeEmpty {
			t.Errorf("%q: %v, %v", nothing, err, f)
		}
	}
	for name, text := range map[string]string{
		"prose":           "Here is the summary: all is well.",
		"prose before":    "Sure!\n" + whole,
		"prose behind":    whole + " Done.",
		"two":             whole + whole,
		"cut off":         whole[:len(whole)-20],
		"unknown field":   strings.Replace(whole, `{"summary"`, `{"mood":"good","summary"`, 1),
		"doubled field":   strings.Replace(whole, `{"summary"`, `{"summary":"x","summary"`, 1),
		"doubled list":    strings.Replace(whole, `"prohibitions":`, `"prohibitions":[],"prohibitions":`, 1),
		"field missing":   strings.Replace(whole, `,"identifiers":["payment-api"]`, ``, 1),
		"other letters":   strings.Replace(whole, `"summary"`, `"Summary"`, 1),
		"unknown within":  strings.Replace(whole, `"source_seq":5`, `"source_seq":5,"by":"me"`, 1),
		"doubled within":  strings.Replace(whole, `"source_seq":5`, `"source_seq":5,"source_seq":5`, 1),
		"missing within":  strings.Replace(whole, `,"source_seq":5`, ``, 1),
		"seq in words":    strings.Replace(whole, `"source_seq":5`, `"source_seq":"5"`, 1),
		"seq of fraction": strings.Replace(whole, `"source_seq":5`, `"source_seq":5.5`, 1),
		"seq null":        strings.Replace(whole, `"source_seq":5`, `"source_seq":null`, 1),
		"list null":       strings.Replace(whole, `["payment-api"]`, `null`, 1),
		"list of numbers": strings.Replace(whole, `["payment-api"]`, `[1]`, 1),
		"text null":       strings.Replace(whole, `["payment-api"]`, `[null]`, 1),
		"a list":          "[" + whole + "]",
		"a string":        `"OK"`,
		"null":            "null",
		"empty object":    "{}",
		"enormous":        strings.Repeat(" ", 300_000) + whole,
	} {
		if text == whole {
			t.Fatalf("%s: is the whole", name)
		}
		got, err := summary.Parse(text)
		if err == nil {
			t.Errorf("%s: parsed as %s", name, got.Bytes())
		} else if strings.Contains(err.Error(), "pay") || strings.Contains(err.Error(), "well") {
			t.Errorf("%s: the error has content: %v", name, err)
		}
	}
}

func TestStored(t *testing.T) {
	t.Parallel()
	s := summary.Summary{Summary: "<b> & 支付", Prohibitions: []summary.Quote{{Text: "no", SourceSeq: 7}}}
	if got, want := string(s.Bytes()), `{"summary":"<b> & 支付","decisions":[],"open_tasks":[],"prohibitions":[{"text":"no","source_seq":7}],"identifiers":[]}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	got, err := summary.Stored(s.Bytes())
	if want := `{"summary":"<b> & 支付","prohibitions":[{"text":"no","source_seq":7}]}`; err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	for _, old := range []string{"", "words", `{"summary":"x"}`} {
		if got, err := summary.Stored([]byte(old)); err == nil {
			t.Errorf("%q is stored as %s", old, got)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(talk()[0].Text+"\n"+talk()[2].Text, string(good().Bytes()))
	f.Add("不要重启 1,0", "{}")
	f.Add("``` \xff\x00 :: ::1 --5", "```json\n{}```")
	f.Fuzz(func(t *testing.T, text, response string) {
		source := []summary.Message{{Seq: 1, Role: "user", Text: text}, {Seq: 2, Role: "assistant", Text: response}}
		made, err := summary.Parse(response)
		if err != nil {
			// What a response says is valid UTF-8, or no JSON.
			response = strings.ToValidUTF8(response, "?")
			made = summary.Summary{
				Summary: response, OpenTasks: []string{response}, Identifiers: []string{response},
				Prohibitions: []summary.Quote{{Text: response, SourceSeq: 1}}, Decisions: []summary.Decision{{Key: response, Value: response, SourceSeq: 1}},
			}
		}
		failed := summary.Check(source, made)
		if failed != nil && len(failed.Feedback()) > summary.MaxFeedbackBytes {
			t.Fatal("the feedback is too long")
		}
		again, err := summary.Parse(string(made.Bytes()))
		if err != nil || !slices.Equal(again.Bytes(), made.Bytes()) {
			t.Fatalf("%s is read as %s: %v", made.Bytes(), again.Bytes(), err)
		}
		if _, err := summary.Stored(made.Bytes()); err != nil {
			t.Fatal(err)
		}
	})
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func indent(text string) string {
	return string(must(json.MarshalIndent(json.RawMessage(text), "", "  ")))
}
