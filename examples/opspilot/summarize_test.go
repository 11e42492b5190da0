package opspilot_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

// summarySchema is what tells a request for a summary from any other.
const summarySchema = `{"type":"object","properties":{"summary":{},"decisions":{},"open_tasks":{},"prohibitions":{},"identifiers":{}}}`

type summary struct {
	Summary      string           `json:"summary"`
	Decisions    []any            `json:"decisions"`
	OpenTasks    []string         `json:"open_tasks"`
	Prohibitions []map[string]any `json:"prohibitions"`
	Identifiers  []string         `json:"identifiers"`
}

type said struct {
	Seq  int    `json:"seq"`
	Role string `json:"role"`
	Text string `json:"text"`
}

// summarized asks the script for a summary, a second time if again.
func summarized(t *testing.T, again bool, messages []said, mustAppear []string, mustQuote ...map[string]any) summary {
	t.Helper()
	data, err := json.Marshal(map[string]any{"messages": messages, "must_appear": mustAppear, "must_quote": mustQuote})
	require.NoError(t, err)
	request := model.Request{FinalSchema: json.RawMessage(summarySchema), Messages: []model.Message{user(string(data))}}
	if again {
		request.Messages = append(request.Messages, model.Message{Role: model.RoleAssistant, Text: "{}"}, user("It was not accepted."))
	}
	turn, err := opspilot.Script(0)(t.Context(), request)
	require.NoError(t, err)
	require.Empty(t, turn.Calls)
	var s summary
	require.NoError(t, json.Unmarshal([]byte(turn.Text), &s), turn.Text)
	return s
}

// The summary copies whole lines, and loses nothing that must be there.
func TestScriptSummarizes(t *testing.T) {
	t.Parallel()
	const ban = "Never restart payment-api by yourself; order ord-17 is not paid."
	answer := "payment-api (production) is failing.\n\nEvidence:\n- 3 of 8\n\nNext steps:\n1. Restart payment-api. I have not done it.\n2. Mend the leak.\n\nNot known: the cause."
	messages := []said{
		{1, "user", ban + "\nThanks"},
		{2, "assistant", answer},
		{3, "user", "And ord-18?"},
		{4, "assistant", strings.Repeat("It is a long story. ", 20)},
	}
	quote := map[string]any{"text": ban, "source_seq": 1}
	got := summarized(t, false, messages, []string{"payment-api", "ord-17", "ord-1", "3", "8", "ord-18", "res-2"}, quote)
	require.Equal(t, summary{
		Summary:      "user: " + ban + "\nassistant: payment-api (production) is failing.\nuser: And ord-18?\nLonger messages were left out here.",
		Decisions:    []any{},
		OpenTasks:    []string{"Restart payment-api. I have not done it.", "Mend the leak."},
		Prohibitions: []map[string]any{{"text": ban, "source_seq": 1.0}},
		// What stands in the prose is not said again; ord-1 is only a part of a word there.
		Identifiers: []string{"ord-1", "3", "8", "res-2"},
	}, got)

	// Refused once, it says less, and loses nothing all the same.
	got = summarized(t, true, messages, []string{"ord-17", "3"}, quote)
	require.Empty(t, got.OpenTasks)
	require.Equal(t, []string{"3"}, got.Identifiers)
	require.Len(t, got.Prohibitions, 1)
}

// A long talk becomes a short summary; a line that does not fit is left out and
// never cut, and the users' words come first.
func TestScriptSummarizesBriefly(t *testing.T) {
	t.Parallel()
	var messages []said
	for i := range 100 {
		messages = append(messages, said{2*i + 1, "user", "不要重启 payment-api，订单还没有付款 " + strings.Repeat("x", i)}, said{2*i + 2, "assistant", "好的，我没有重启。" + strings.Repeat("y", i)})
	}
	whole := map[string]bool{}
	for _, m := range messages {
		whole[m.Role+": "+strings.TrimSpace(m.Text)] = true
	}
	got := summarized(t, false, messages, nil)
	require.LessOrEqual(t, len(got.Summary), 1500)
	lines := strings.Split(got.Summary, "\n")
	require.Greater(t, len(lines), 10)
	users := 0
	for _, line := range lines {
		require.True(t, whole[line], line)
		if strings.HasPrefix(line, "user: ") {
			users++
		}
	}
	require.Greater(t, users, len(lines)-users)
}

func TestScriptSummarizesNothingUnreadable(t *testing.T) {
	t.Parallel()
	turn, err := opspilot.Script(0)(t.Context(), model.Request{FinalSchema: json.RawMessage(summarySchema), Messages: []model.Message{user("not JSON")}})
	require.NoError(t, err)
	require.Equal(t, scripted.Turn{}, turn)
	// Another schema is another question.
	turn, err = opspilot.Script(0)(t.Context(), model.Request{FinalSchema: json.RawMessage(`{"properties":{"summary":{}}}`), Messages: []model.Message{user("hello")}})
	require.NoError(t, err)
	require.Contains(t, turn.Text, "Which service do you mean?")
}
