package session_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/internal/session"
	"github.com/fairlead/fairlead/tool"
)

func detect(t testing.TB, message string) session.Findings {
	t.Helper()
	f, err := session.Detect(message, vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func ExampleDetect() {
	found, err := session.Detect("查一下 payment-api 的日志。不要自己重启生产！Never delete a volume.", session.Vocabulary{
		"restart_service": {"restart", "重启"}, "delete_volume": {"delete", "删除"},
	})
	for _, p := range found.Prohibitions {
		fmt.Printf("%s %v ask=%t\n", p.Text, p.Tools, p.Ask)
	}
	fmt.Println(err)
	// Output:
	// 不要自己重启生产！ [restart_service] ask=true
	// Never delete a volume. [delete_volume] ask=false
	// <nil>
}

// The text is the whole sentence as it was written, and nothing around it.
func TestDetectKeepsTheWords(t *testing.T) {
	t.Parallel()
	for message, want := range map[string][]string{
		"Check it.  Do NOT restart Payment-API!  Thanks.":           {"Do NOT restart Payment-API!"},
		"日志呢？ 请勿重启“支付”服务。谢谢":                                        {"请勿重启“支付”服务。"},
		"Ｄｏ ｎｏｔ re\u200bstart it, ever":                             {"Ｄｏ ｎｏｔ re\u200bstart it, ever"},
		"- first\n- don't restart it\n- last":                       {"don't restart it"},
		"Don't do this:\n- restart\n- delete\nThat is all.":         {"Don't do this:\n- restart\n- delete"},
		"Do not restart v1.2.3 of pay.example.com at 10:02. Ok?":    {"Do not restart v1.2.3 of pay.example.com at 10:02."},
		"Never restart it. Unless I say so. Thanks.":                {"Never restart it. Unless I say so."},
		"Restart it? Don't! Check the logs.":                        {"Restart it? Don't!"},
		"Do not!! Restart it and you are out.":                      {"Do not!! Restart it and you are out."},
		"Never restart it, and do not deploy without asking me. Ok": {"Never restart it, and do not deploy without asking me.", "Never restart it, and do not deploy without asking me."},
		"do not restart\r\ndo not deploy\rdo not scale":             {"do not restart", "do not deploy", "do not scale"},
		"don't restart. don't restart. Don't restart.":              {"don't restart.", "Don't restart."},
	} {
		var got []string
		for _, p := range detect(t, message).Prohibitions {
			got = append(got, p.Text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q\n got %q\nwant %q", message, got, want)
		}
	}
}

func TestDetectBoundsTheText(t *testing.T) {
	t.Parallel()
	filler := func(n int) string { return strings.Repeat("and this goes on for a while, ", n/30) }
	for name, tt := range map[string]struct {
		message string
		low     int
		high    int
		holds   []string
		ask     bool
	}{
		"short":              {"Do not restart it, " + filler(900) + "ok.", 900, 1000, []string{"Do not restart it", "ok."}, false},
		"long tail":          {"Do not restart it, " + filler(2000) + "ok.", 900, 1000, []string{"Do not restart it"}, false},
		"long lead":          {filler(2000) + "but do not restart it.", 10, 1000, []string{"do not restart it."}, false},
		"late exception":     {"Do not restart it, " + filler(2000) + "unless I say so.", 1900, 2200, []string{"Do not restart it", "unless I say so."}, true},
		"late exception, zh": {"不要重启，" + strings.Repeat("这里还有很多别的话要说，", 60) + "除非我同意。", 1900, 2400, []string{"不要重启", "除非我同意。"}, true},
		"both ends":          {filler(600) + "do not restart it, " + filler(600) + "ok.", 700, 1000, []string{"do not restart it"}, false},
		"invisible":          {"Do not re" + strings.Repeat("\u200b", 3000) + "start it.", 1, 4000, []string{"Do not"}, false},
	} {
		f := detect(t, tt.message)
		check(t, tt.message, f)
		if len(f.Prohibitions) != 1 {
			t.Errorf("%s: %d prohibitions", name, len(f.Prohibitions))
			continue
		}
		p := f.Prohibitions[0]
		if len(p.Text) < tt.low || len(p.Text) > tt.high || p.Ask != tt.ask || !slices.Equal(p.Tools, []string{"restart"}) {
			t.Errorf("%s: %d bytes, %v, ask %t", name, len(p.Text), p.Tools, p.Ask)
		}
		for _, part := range tt.holds {
			if !strings.Contains(p.Text, part) {
				t.Errorf("%s: %q is not in %q", name, part, p.Text)
			}
		}
	}
}

func TestDetectBoundsTheNumber(t *testing.T) {
	t.Parallel()
	var message strings.Builder
	for i := range 16 {
		fmt.Fprintf(&message, "Do not restart host-%d.\n", i)
	}
	if f, err := session.Detect(message.String(), vocabulary); err != nil || len(f.Prohibitions) != 16 {
		t.Errorf("16: got %d, %v", len(f.Prohibitions), err)
	}
	repeated := strings.Repeat(message.String(), 3)
	if f, err := session.Detect(repeated, vocabulary); err != nil || len(f.Prohibitions) != 16 {
		t.Errorf("repeated: got %d, %v", len(f.Prohibitions), err)
	}
	f, err := session.Detect(message.String()+"Do not delete anything. You may deploy again.", vocabulary)
	if !errors.Is(err, session.ErrTooMany) || len(f.Prohibitions) != 16 || !slices.Equal(f.Lifts, []string{"deploy"}) {
		t.Errorf("17: got %d, %v, %v", len(f.Prohibitions), f.Lifts, err)
	}
}

// A pasted text may be full of negative sentences: those that cover no tools fill
// their own number only, and do not hide one that does.
func TestDetectDropsWhatCoversNothing(t *testing.T) {
	t.Parallel()
	var pasted strings.Builder
	for i := range 40 {
		fmt.Fprintf(&pasted, "Do not use style %d.\n", i)
	}
	f := detect(t, "Never restart it.\n"+pasted.String()+"Never delete it. Hands off production!")
	if n := len(f.Prohibitions); n != 19 || f.Prohibitions[0].Tools[0] != "restart" || f.Prohibitions[16].Text != "Do not use style 15." ||
		f.Prohibitions[17].Tools[0] != "delete" || f.Prohibitions[18].Tools[0] != session.AllWrites {
		t.Errorf("%d: %+v", n, f.Prohibitions)
	}
	if f := detect(t, pasted.String()); len(f.Prohibitions) != session.MaxProhibitions {
		t.Errorf("%d", len(f.Prohibitions))
	}
	// Who has no vocabulary must learn that some are missing.
	if f, err := session.Detect(pasted.String(), nil); !errors.Is(err, session.ErrTooMany) || len(f.Prohibitions) != session.MaxProhibitions {
		t.Errorf("without a vocabulary: %d, %v", len(f.Prohibitions), err)
	}
}

// Of a long message the ends count.
func TestDetectExaminesTheEnds(t *testing.T) {
	t.Parallel()
	for _, filler := range []string{"The service was slow. ", "The service was slow\n", "slow ", "x", "慢", "服务很慢。", "```\ncode\n```\n"} {
		half := strings.Repeat(filler, 60_000/len(filler))
		for message, want := range map[string]int{
			"Do not restart it.\n" + half + half:                        1,
			half + half + "\nDo not restart it.":                        1,
			"Do not restart it.\n" + half + half + "\nNever delete it.": 2,
			half + "\nDo not restart it.\n" + half:                      0,
			half[:len(half)/4] + "\n\nDo not restart it.":               1,
		} {
			f, err := session.Detect(message, vocabulary)
			if check(t, message, f); err != nil || len(f.Prohibitions) != want {
				t.Errorf("%.30q (%d bytes): %d, want %d, %v", message, len(message), len(f.Prohibitions), want, err)
			}
		}
	}
}

// A tool's name is a verb of its own, and a vocabulary may be in other scripts
// and forms.
func TestDetectVocabulary(t *testing.T) {
	t.Parallel()
	v := session.Vocabulary{
		"restart_service": nil, "shut_down": {"shut down", "停掉"}, "run_job": {"run"}, "cancel_order": {"cancel"}, "retry_job": {"retry"},
		"delete_user": {"delete"}, "reboot": {"再起動", "재시작"}, "export": {"ＥＸＰＯＲＴ"},
	}
	for message, want := range map[string]string{
		"Do not call restart_service.":             "restart_service",
		"不要用 restart_service 这个工具":                 "restart_service",
		"Don't shut it down.":                      "shut_down",
		"Never shut the whole cluster down again.": "shut_down",
		"No shutdown today, please.":               "shut_down",
		"The host must not be shut down.":          "shut_down",
		"不要停掉它":                                    "shut_down",
		"Nothing may be run there.":                "run_job",
		"The job must not have been ran":           "",
		"Don't keep running jobs.":                 "run_job",
		"The order must not be cancelled.":         "cancel_order",
		"The order must not be canceled.":          "cancel_order",
		"No more retries, please.":                 "retry_job",
		"No deletions on Friday, please.":          "delete_user",
		"絶対に不要再起動":                                 "reboot",
		"不要 재시작":                                   "reboot",
		"Do not export the data.":                  "export",
		"Do not run-deploy it":                     "",
		"Do not undelete it.":                      "",
	} {
		f, err := session.Detect(message, v)
		got := ""
		for _, p := range f.Prohibitions {
			got += strings.Join(p.Tools, ",")
		}
		if err != nil || got != want {
			t.Errorf("%q: got %q, want %q, %v", message, got, want, err)
		}
	}
	for message, want := range map[string][]string{"Do not restart it.": nil, "不要重启": nil, "We must not restart it.": nil, "Never touch production": {session.AllWrites}} {
		f, err := session.Detect(message, nil)
		if err != nil || len(f.Prohibitions) != 1 || !slices.Equal(f.Prohibitions[0].Tools, want) || f.Prohibitions[0].Text != message {
			t.Errorf("%q without a vocabulary: %+v, %v", message, f, err)
		}
	}
}

func TestCovering(t *testing.T) {
	t.Parallel()
	list := []session.Prohibition{
		{Text: "ask", Tools: []string{"restart", "search"}, Ask: true},
		{Text: "none"},
		{Text: "first", Tools: []string{"delete", "restart"}},
		{Text: "second", Tools: []string{"restart"}},
		{Text: "ask all", Tools: []string{session.AllWrites}, Ask: true},
		{Text: "all", Tools: []string{session.AllWrites, "notify"}},
	}
	for _, tt := range []struct {
		upTo  int
		name  string
		write bool
		want  string
	}{
		{4, "restart", true, "first"},
		{4, "restart", false, "first"},
		{4, "delete", true, "first"},
		{4, "deploy", true, ""},
		{4, "", true, ""},
		{4, "Restart", true, ""},
		// A demand to be asked is met by the confirmation of a write, and by nothing for a tool that reads.
		{2, "restart", true, ""},
		{2, "restart", false, "ask"},
		{2, "search", false, "ask"},
		{2, "search", true, ""},
		{2, "deploy", false, ""},
		// All writes are the named tools and every other write.
		{5, "deploy", true, ""},
		{5, "deploy", false, ""},
		{6, "deploy", true, "all"},
		{6, "deploy", false, ""},
		{6, "notify", false, "all"},
		{6, "notify", true, "all"},
		{6, "restart", true, "first"},
		{6, "search", true, "all"},
		{6, "search", false, "ask"},
		{6, "*", false, "all"},
	} {
		if got, ok := session.Covering(list[:tt.upTo], tt.name, tt.write); got.Text != tt.want || ok != (tt.want != "") {
			t.Errorf("%q of %d, write %t: got %q, %t", tt.name, tt.upTo, tt.write, got.Text, ok)
		}
	}
}

// What the model is told holds nothing of the user's words: its hash is in
// histories.
func TestRefusal(t *testing.T) {
	t.Parallel()
	for ask, parts := range map[bool][]string{
		false: {`"code":"prohibited"`, "nothing was done", "only they can lift it", `"retryable":false`},
		true:  {`"code":"prohibited"`, "nothing was done", "Ask the user", "Only they can allow it", `"retryable":false`},
	} {
		err := session.Refusal(session.Prohibition{Text: "canary-sentence", Tools: []string{"canary-tool"}, Ask: ask})
		shown := string(tool.ErrorEnvelope(err))
		if err.Code != agent.ToolProhibited || err.Transient || strings.Contains(shown, "canary") {
			t.Errorf("got %s", shown)
		}
		for _, part := range parts {
			if !strings.Contains(shown, part) {
				t.Errorf("%q is not in %s", part, shown)
			}
		}
	}
}
