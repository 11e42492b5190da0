package prompt_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/internal/prompt"
	"github.com/fairlead/fairlead/internal/tokens"
	"github.com/fairlead/fairlead/model"
)

// runes counts characters, so that values can be worked out by hand.
type runes struct{}

func (runes) Name() string            { return "runes" }
func (runes) Count(text string) int64 { return int64(utf8.RuneCountInString(text)) }

const frame = `{"fairlead_context":{`

// layout is a request taken apart again by what the package documents.
type layout struct {
	summaries string
	history   []model.Message
	context   string
	question  string
	steps     []model.Message
}

// takeApart finds the parts of a request whose question is known.
func takeApart(req model.Request, question string) (layout, error) {
	var l layout
	messages := req.Messages
	// Nothing but the steps follows the question.
	at := -1
	for i, m := range messages {
		if m.Role == model.RoleUser && m.Text == question {
			at = i
			break
		}
	}
	if at < 0 {
		return l, fmt.Errorf("the question is missing")
	}
	l.question, l.steps = messages[at].Text, messages[at+1:]
	before := messages[:at]
	if len(before) > 0 && before[len(before)-1].Role == model.RoleUser && strings.HasPrefix(before[len(before)-1].Text, frame) && !strings.Contains(before[len(before)-1].Text, `"summaries":{"lossy"`) {
		l.context = before[len(before)-1].Text
		before = before[:len(before)-1]
	}
	if len(before) > 0 && before[0].Role == model.RoleUser && strings.HasPrefix(before[0].Text, frame) {
		l.summaries = before[0].Text
		before = before[1:]
	}
	l.history = before
	return l, nil
}

// recountMessage counts whatever text a message has, in fields old and new: a
// chat template may render all of it. Roles are in the 8 of each message.
func recountMessage(c tokens.Counter, m model.Message) int64 {
	n := int64(8 + 16*len(m.Calls))
	m.Role = ""
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			n += c.Count(v.String())
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i))
			}
		default:
			panic("what does a " + v.Kind().String() + " take?")
		}
	}
	walk(reflect.ValueOf(m))
	return n
}

// recount counts a request again, from the request alone.
func recount(c tokens.Counter, req model.Request, l layout, newest int) map[string]int64 {
	sum := map[string]int64{
		prompt.PartSystem:      c.Count(req.System) + 8,
		prompt.PartFinalSchema: c.Count(string(req.FinalSchema)),
		prompt.PartQuestion:    c.Count(l.question) + 8,
	}
	for _, t := range req.Tools {
		sum[prompt.PartTools] += c.Count(t.Name) + c.Count(t.Description) + c.Count(string(t.Parameters)) + 16
	}
	for _, m := range l.history {
		sum[prompt.PartMessages] += recountMessage(c, m)
	}
	for i, m := range l.steps {
		part := prompt.PartSteps
		if i >= len(l.steps)-newest {
			part = prompt.PartNewestStep
		}
		sum[part] += recountMessage(c, m)
	}
	if l.summaries != "" {
		part := prompt.PartSummaries
		if !strings.Contains(l.summaries, `"summaries"`) {
			part = prompt.PartState
		}
		sum[part] = 8
		for _, line := range strings.SplitAfter(l.summaries, "\n") {
			sum[part] += c.Count(line)
		}
	}
	if l.context != "" {
		sum[prompt.PartState] += 8
		part := prompt.PartState
		for _, line := range strings.SplitAfter(l.context, "\n") {
			switch {
			case line == "}}":
				part = prompt.PartState
			case strings.HasPrefix(line, `"`):
				part = strings.Split(line, `"`)[1]
				if part == "facts" || part == "prohibitions" {
					part = prompt.PartState
				}
			}
			sum[part] += c.Count(line)
		}
	}
	return sum
}

// refusedAnswerLeftOut reports whether of the newest step only its correction is
// there.
func refusedAnswerLeftOut(l layout, s prompt.Step) bool {
	n := len(l.steps)
	if s.Correction == "" || n == 0 || l.steps[n-1].Text != s.Correction {
		return false
	}
	return n == 1 || l.steps[n-2].Role != model.RoleAssistant
}

// checkReport compares a report with a recount.
func checkReport(in prompt.Input, got prompt.Prompt) error {
	l, err := takeApart(got.Request, in.Question)
	if err != nil {
		return err
	}
	newest := 0
	if n := len(in.Steps); n > 0 {
		s := in.Steps[n-1]
		if len(s.Calls) > 0 || strings.TrimSpace(s.Text) != "" && !refusedAnswerLeftOut(l, s) {
			newest += 1 + len(s.Calls)
		}
		if s.Correction != "" {
			newest++
		}
	}
	if newest > len(l.steps) {
		return fmt.Errorf("the newest step has %d messages, the request %d", newest, len(l.steps))
	}
	sum, total := recount(in.Tokens, got.Request, l, newest), int64(0)
	names := map[string]bool{}
	for _, part := range got.Report.Parts {
		total += sum[part.Name]
		names[part.Name] = true
		if part.Tokens != sum[part.Name] {
			return fmt.Errorf("%s: the report says %d tokens, the request has %d", part.Name, part.Tokens, sum[part.Name])
		}
		if part.Budget > 0 && part.Tokens > part.Budget {
			return fmt.Errorf("%s: %d tokens in a budget of %d", part.Name, part.Tokens, part.Budget)
		}
	}
	for name := range sum {
		if !names[name] {
			return fmt.Errorf("the request has a part %s that the report lacks", name)
		}
	}
	if total != got.Report.Input {
		return fmt.Errorf("the report says %d tokens in all, the request has %d", got.Report.Input, total)
	}
	// What the parts are counted by must hold for the messages as they are sent.
	var whole int64
	for _, text := range []string{l.summaries, l.context} {
		whole += in.Tokens.Count(text)
		for _, line := range strings.SplitAfter(text, "\n") {
			whole -= in.Tokens.Count(line)
		}
	}
	if whole > 0 || whole < 0 && in.Tokens.Name() != "" {
		return fmt.Errorf("whole messages have %+d tokens against their lines", whole)
	}
	if sent := total + whole + got.Request.MaxOutputTokens; sent > in.Window || got.Request.MaxOutputTokens < 1 {
		return fmt.Errorf("%d tokens are sent or asked for (%d output) in a window of %d", sent, got.Request.MaxOutputTokens, in.Window)
	}
	return nil
}

// contextMessage is a message from the application.
type contextMessage struct {
	Context struct {
		Facts []struct {
			Key, Value, Source string
			Version            int64
		}
		Prohibitions []struct {
			ID, Text, Effect string
			Tools            []string
			Seq              int64
		}
		Notes []struct {
			Step  int
			Calls []struct {
				Tool, Outcome, Note string
				ResultID            string `json:"result_id"`
			}
		}
		Memory, Knowledge struct {
			Trust, Stale string
			Items        []struct{ ID, Source, Text string }
		}
		Summaries struct {
			Lossy bool
			Items []struct {
				From    int64 `json:"from_seq"`
				To      int64 `json:"to_seq"`
				Summary json.RawMessage
			}
		}
	} `json:"fairlead_context"`
}

func contextOf(text string) (m contextMessage, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &m)
	}
	return m, err
}
