package prompt_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/internal/prompt"
	"github.com/fairlead/fairlead/internal/tokens"
	"github.com/fairlead/fairlead/model"
)

// fixed is what system prompt and question take in runes: the note and one rune
// with 8 for each message.
var fixed = int64(utf8.RuneCountInString(prompt.Note)) + 8 + 1 + 8

// input has room for room runes beside the note and the question "q".
func input(room int64) prompt.Input {
	return prompt.Input{Question: "q", Tokens: runes{}, Window: fixed + room + 1, MaxOutputTokens: 1}
}

func talk(texts ...string) []prompt.Message {
	var messages []prompt.Message
	for i, text := range texts {
		role := model.RoleUser
		if i%2 == 1 {
			role = model.RoleAssistant
		}
		messages = append(messages, prompt.Message{Seq: int64(i + 1), Role: role, Text: text})
	}
	return messages
}

// look is a step with one call of 24 runes beside its message: with results of
// n runes, 6 for the call's ID and the tool's name, it takes 8+24+8+6+n.
func look(step int, id, envelope string) prompt.Step {
	return prompt.Step{
		Step: step, Calls: []model.ToolCall{{ID: id, Name: "look", Arguments: "{}"}},
		Results: []prompt.Result{{CallID: id, Tool: "look", Envelope: envelope, ResultID: "r-" + id}},
	}
}

// envelope is a JSON string of n runes.
func envelope(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

func shape(messages []model.Message) string {
	var parts []string
	for _, m := range messages {
		text := m.Text
		if strings.HasPrefix(text, frame) {
			text = "context"
		}
		if len(text) > 40 {
			text = fmt.Sprintf("%d bytes", len(text))
		}
		for _, c := range m.Calls {
			text += "+" + c.ID
		}
		parts = append(parts, string(m.Role)+":"+text)
	}
	return strings.Join(parts, " | ")
}

// assemble checks what holds for every prompt as well.
func assemble(t *testing.T, in prompt.Input) prompt.Prompt {
	t.Helper()
	got, err := prompt.Assemble(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkReport(in, got); err != nil {
		t.Fatal(err)
	}
	return got
}

func wantShape(t *testing.T, in prompt.Input, want string) prompt.Prompt {
	t.Helper()
	got := assemble(t, in)
	if s := shape(got.Request.Messages); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	return got
}

// The tests of this file are inputs that broke other systems.

func TestHistoryStartsWithAToolResultWhoseCallWasCutOff(t *testing.T) {
	t.Parallel()
	in := input(10_000)
	in.History = append([]prompt.Message{{Seq: 1, Role: model.RoleTool, Text: `{"rows":3}`}}, talk("", "a1", "q2", "a2")[1:]...)
	lost := look(0, "c1", `"found"`)
	lost.Results = append([]prompt.Result{{CallID: "c0", Tool: "look", Envelope: `"lost"`}}, lost.Results...)
	in.Steps = []prompt.Step{lost}
	// The answer a1 goes as well: its question is not there.
	got := wantShape(t, in, `user:q2 | assistant:a2 | user:q | assistant:+c1 | tool:"found"`)
	if part := partOf(got.Report, prompt.PartMessages); part.Kept != 2 || part.LeftOut != 2 {
		t.Errorf("%+v", part)
	}
}

func sevenCalls(results int, size int) prompt.Step {
	s := prompt.Step{Step: 1}
	for i := range 7 {
		id := fmt.Sprintf("c%d", i+1)
		s.Calls = append(s.Calls, model.ToolCall{ID: id, Name: "look", Arguments: "{}"})
		if i < results {
			s.Results = append(s.Results, prompt.Result{CallID: id, Tool: "look", Envelope: envelope(size), ResultID: fmt.Sprintf("r%d", i+1)})
		}
	}
	return s
}

func TestSevenParallelCallsCutAfterTheThirdResult(t *testing.T) {
	t.Parallel()
	const calls = "assistant:+c1+c2+c3+c4+c5+c6+c7"
	t.Run("four results are missing", func(t *testing.T) {
		t.Parallel()
		in := input(10_000)
		in.Steps = []prompt.Step{sevenCalls(3, 5)}
		got := wantShape(t, in, "user:q | "+calls+strings.Repeat(` | tool:"xxx"`, 3)+strings.Repeat(" | tool:83 bytes", 4))
		for i, m := range got.Request.Messages[2:] {
			if m.CallID != fmt.Sprintf("c%d", i+1) || i >= 3 && !strings.Contains(m.Text, "the call was not executed") {
				t.Errorf("result %d answers %s: %s", i+1, m.CallID, m.Text)
			}
		}
	})
	// The message takes 8 and each call 2+4+2+16, each result 100+8+2+4: 974 in
	// all.
	// A reference takes 34+8, so it saves 66.
	t.Run("no room for the newest step's", func(t *testing.T) {
		t.Parallel()
		in := input(974 - 3*66)
		in.Steps = []prompt.Step{sevenCalls(7, 100)}
		got := wantShape(t, in, "user:q | "+calls+
			` | tool:{"left_out":true,"result_id":"r1"} | tool:{"left_out":true,"result_id":"r2"} | tool:{"left_out":true,"result_id":"r3"}`+strings.Repeat(" | tool:100 bytes", 4))
		if part := partOf(got.Report, prompt.PartNewestStep); part.Tokens != 974-3*66 || part.Cut != 1 {
			t.Errorf("%+v", part)
		}
		in.Window--
		wantShape(t, in, "user:q | "+calls+
			` | tool:{"left_out":true,"result_id":"r1"} | tool:{"left_out":true,"result_id":"r2"} | tool:{"left_out":true,"result_id":"r3"} | tool:{"left_out":true,"result_id":"r4"}`+strings.Repeat(" | tool:100 bytes", 3))
	})
	t.Run("no room for an older step's", func(t *testing.T) {
		t.Parallel()
		// The newest takes 8+24+14+5. With references the older takes 974-7*66,
		// half of what is left must be that or more.
		in := input(51 + 2*512)
		in.Steps = []prompt.Step{sevenCalls(7, 100), look(2, "c8", envelope(5))}
		in.Budgets.Results, in.Budgets.Notes = 973, 1
		all := ""
		for i := range 7 {
			all += fmt.Sprintf(` | tool:{"left_out":true,"result_id":"r%d"}`, i+1)
		}
		wantShape(t, in, "user:q | "+calls+all+` | assistant:+c8 | tool:"xxx"`)
		in.Budgets.Results = 511
		wantShape(t, in, `user:q | assistant:+c8 | tool:"xxx"`)
		in.Budgets.Results = 974
		wantShape(t, in, "user:q | "+calls+strings.Repeat(" | tool:100 bytes", 7)+` | assistant:+c8 | tool:"xxx"`)
	})
}

func TestEmptyHistoryAndOnlySystemRules(t *testing.T) {
	t.Parallel()
	in := input(100)
	in.System = "rules"
	got := wantShape(t, in, "user:q")
	if got.Request.System != "rules\n\n"+prompt.Note {
		t.Errorf("system = %q", got.Request.System)
	}
	// Five runes and two line ends more than the note alone.
	if got.Report.Input != fixed+7 {
		t.Errorf("%d tokens, want %d", got.Report.Input, fixed+7)
	}
}

func TestSummaryReplacesTheOlderPartOnly(t *testing.T) {
	t.Parallel()
	in := input(10_000)
	in.History = talk("q1", "a1", "q2", "a2")
	in.Summaries = []prompt.Summary{{FromSeq: 1, ToSeq: 2, Text: "S1"}, {FromSeq: 3, ToSeq: 4, Text: "S2"}}
	wantShape(t, in, "user:q1 | assistant:a1 | user:q2 | assistant:a2 | user:q")
	// Two messages of 2+8.
	in.Budgets.Messages = 20
	got := wantShape(t, in, "user:context | user:q2 | assistant:a2 | user:q")
	want := "{\"fairlead_context\":{\n\"summaries\":{\"lossy\":true,\"items\":[\n{\"from_seq\":1,\"to_seq\":2,\"summary\":\"S1\"}\n]}\n}}"
	if text := got.Request.Messages[0].Text; text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	// One fits, and is an answer: it goes. Both summaries come.
	in.Budgets.Messages = 19
	got = wantShape(t, in, "user:context | user:q")
	if text := got.Request.Messages[0].Text; !strings.Contains(text, `"S1"},`) || !strings.Contains(text, `"S2"}`) {
		t.Errorf("summaries = %s", text)
	}
}

func TestRunningStepsOwnCallIsNotTrimmedAway(t *testing.T) {
	t.Parallel()
	// 8+24 for the call and 8+6+36 for the reference to what is far too large.
	in := input(82)
	in.History = talk("q1", "a1")
	in.Memory = []prompt.Recalled{{ID: "m", Source: "s", Text: "t"}}
	in.Steps = []prompt.Step{look(1, "c1", `"a"`), look(2, "c2", envelope(100_000))}
	wantShape(t, in, `user:q | assistant:+c2 | tool:{"left_out":true,"result_id":"r-c2"}`)
	in.Window--
	_, err := prompt.Assemble(in)
	if err == nil || err.(*prompt.OverflowError).Need != fixed+82 {
		t.Errorf("%v", err)
	}
}

func TestToolResultsAreNotCountedAsTurns(t *testing.T) {
	t.Parallel()
	in := input(100_000)
	in.History = talk("q1", "a1", "q2", "a2")
	for i := range 30 {
		in.Steps = append(in.Steps, look(i, fmt.Sprintf("c%02d", i), envelope(100)))
	}
	got := assemble(t, in)
	if s := shape(got.Request.Messages); !strings.HasPrefix(s, "user:q1 | assistant:a1 | user:q2 | assistant:a2 | user:q | assistant:+c00 | tool:100 bytes | ") {
		t.Errorf("got %.200s", s)
	}
	if n := len(got.Request.Messages); n != 5+60 {
		t.Errorf("%d messages", n)
	}
}

func TestTwentyThousandTokensOfChinese(t *testing.T) {
	t.Parallel()
	// 27 characters, of which o200k_base makes 20 tokens or so, and characters
	// divided by four 6.
	const sentence = "不要自行重启生产环境，支付服务从十点开始超时了十四次。"
	o200k, err := tokens.For("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	in := prompt.Input{Question: "它的错误日志呢", Tokens: o200k, Window: 128_000, MaxOutputTokens: 1_500}
	in.Budgets = definition.Context{MaxInput: 20_000, Messages: 20_000}
	characters := 0
	for i := range 100 {
		text := fmt.Sprint(i, strings.Repeat(sentence, 30))
		characters += utf8.RuneCountInString(text)
		in.History = append(in.History, prompt.Message{Seq: int64(i), Role: model.RoleUser, Text: text})
	}
	all := int64(0)
	for _, m := range in.History {
		all += o200k.Count(m.Text)
	}
	if characters/4 > 20_500 || all < 50_000 {
		t.Fatalf("characters divided by four are %d, tokens %d: the example shows nothing", characters/4, all)
	}
	got := assemble(t, in)
	var sent int64
	for _, m := range got.Request.Messages {
		sent += o200k.Count(m.Text)
	}
	one := all / 100
	if sent > 20_000 || sent < 20_000-2*one {
		t.Errorf("%d tokens are sent", sent)
	}
}

// TestNoCutInsideARune tries each window from too small to large enough for all.
// ef b8 2e is a variation selector cut off before a full stop.
func TestNoCutInsideARune(t *testing.T) {
	t.Parallel()
	in := input(0)
	in.History = talk("⚠️.⚠️.", "✔️.", "⚠️.", "✔️.✔️.")
	in.Facts = []prompt.Fact{{Key: "k", Value: "⚠️.", Source: "s"}}
	in.Memory = []prompt.Recalled{{ID: "m", Source: "s", Text: strings.Repeat("⚠️.", 9)}}
	in.Summaries = []prompt.Summary{{FromSeq: 1, ToSeq: 2, Text: strings.Repeat("✔️.", 5)}}
	for i := range 3 {
		s := look(i, fmt.Sprint("c", i), `"`+strings.Repeat("⚠️.", 40)+`"`)
		s.Results[0].Note = "⚠️."
		in.Steps = append(in.Steps, s)
	}
	tried, least := 0, in.Window
	for ; ; in.Window++ {
		got, err := prompt.Assemble(in)
		if err != nil {
			continue
		}
		tried++
		if err := checkReport(in, got); err != nil {
			t.Fatal(err)
		}
		all, err := json.Marshal(got.Request)
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.Valid(all) || bytes.Contains(all, []byte("\xef\xb8.")) || bytes.Contains(all, []byte("\ufffd")) {
			t.Fatalf("a window of %d: %s", in.Window, all)
		}
		for _, m := range got.Request.Messages {
			if n := strings.Count(m.Text, "\u26a0") + strings.Count(m.Text, "\u2714"); n != strings.Count(m.Text, "\ufe0f.") {
				t.Fatalf("a window of %d: %q", in.Window, m.Text)
			}
		}
		if partOf(got.Report, prompt.PartMemory).Kept == 1 && partOf(got.Report, prompt.PartSteps).Kept == 2 && partOf(got.Report, prompt.PartMessages).Kept == 4 {
			break
		}
		if in.Window > least+5_000 {
			t.Fatal("not everything fits into a large window")
		}
	}
	if tried < 300 {
		t.Errorf("%d windows were tried", tried)
	}
}

func TestLongConversationKeepsItsNewestMessages(t *testing.T) {
	t.Parallel()
	in := input(100_000)
	for i := range 5_000 {
		in.History = append(in.History, prompt.Message{Seq: int64(i + 1), Role: []model.Role{model.RoleUser, model.RoleAssistant}[i%2], Text: fmt.Sprintf("%04d", i)})
	}
	// 4+8 each, so 100 of them.
	in.Budgets.Messages = 1_205
	got := assemble(t, in)
	messages := got.Request.Messages
	if len(messages) != 101 || messages[0].Text != "4900" || messages[99].Text != "4999" || messages[100].Text != "q" {
		t.Errorf("%d messages from %s to %s", len(messages), messages[0].Text, messages[len(messages)-2].Text)
	}
	if part := partOf(got.Report, prompt.PartMessages); part.Tokens != 1_200 || part.Kept != 100 || part.LeftOut != 4_900 {
		t.Errorf("%+v", part)
	}
}
