package opspilot

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

const (
	// maxProseBytes is how long the prose of a summary becomes, and no longer
	// than a quarter of the messages unless they are few.
	maxProseBytes = 1500
	minProseBytes = 300
	// maxExtractBytes is the longest line that is taken over. One that is longer
	// is left out: cut short it could say the opposite.
	maxExtractBytes = 300
)

// summaryRequest is what a request for a summary holds as data: the messages,
// and what the summary must have of them.
type summaryRequest struct {
	Messages   []saidMessage `json:"messages"`
	MustAppear []string      `json:"must_appear"`
	MustQuote  []quoted      `json:"must_quote"`
}

type saidMessage struct {
	Seq  int64      `json:"seq"`
	Role model.Role `json:"role"`
	Text string     `json:"text"`
}

type quoted struct {
	Text      string `json:"text"`
	SourceSeq int64  `json:"source_seq"`
}

// writtenSummary is the answer.
type writtenSummary struct {
	Summary      string     `json:"summary"`
	Decisions    []struct{} `json:"decisions"`
	OpenTasks    []string   `json:"open_tasks"`
	Prohibitions []quoted   `json:"prohibitions"`
	Identifiers  []string   `json:"identifiers"`
}

// asksForSummary reports whether a request is for the summary of a
// conversation, which has a form of its own.
func asksForSummary(request model.Request) bool {
	var schema struct {
		Properties map[string]any `json:"properties"`
	}
	if json.Unmarshal(request.FinalSchema, &schema) != nil {
		return false
	}
	for _, field := range []string{"summary", "decisions", "open_tasks", "prohibitions", "identifiers"} {
		if _, there := schema.Properties[field]; !there {
			return false
		}
	}
	return true
}

// summarize plays a summarizer without intelligence and without lies: it copies
// whole lines and words no program can lose. Asked a second time, because the
// first was not accepted, it copies less.
func summarize(request model.Request) (scripted.Turn, error) {
	var asked summaryRequest
	if len(request.Messages) == 0 || json.Unmarshal([]byte(request.Messages[0].Text), &asked) != nil {
		return scripted.Turn{}, nil
	}
	size := 0
	for _, m := range asked.Messages {
		size += len(m.Text)
	}
	room := min(maxProseBytes, max(minProseBytes, size/4))
	s := writtenSummary{Decisions: []struct{}{}, OpenTasks: nextSteps(asked.Messages), Prohibitions: asked.MustQuote, Identifiers: []string{}}
	if again := lastOf(request.Messages, model.RoleAssistant) >= 0; again {
		room, s.OpenTasks = minProseBytes, []string{}
	}
	s.Summary = extract(asked.Messages, room)
	if s.Prohibitions == nil {
		s.Prohibitions = []quoted{}
	}
	for _, word := range asked.MustAppear {
		if !stands(s.Summary, word) {
			s.Identifiers = append(s.Identifiers, word)
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		return scripted.Turn{}, err
	}
	return scripted.Turn{Text: strings.TrimSpace(text.String())}, nil
}

// extract takes over the first line of each message, of the user's before the
// assistant's, as long as there is room. What is taken stands in order. That
// lines were too long is said.
func extract(messages []saidMessage, room int) string {
	lines := make([]string, len(messages)+1)
	for _, role := range []model.Role{model.RoleUser, model.RoleAssistant} {
		for i, m := range messages {
			line, _, _ := strings.Cut(strings.TrimSpace(m.Text), "\n")
			line = string(m.Role) + ": " + strings.TrimSpace(line)
			if m.Role != role || slices.Contains(lines, line) {
				continue
			}
			if len(line) > maxExtractBytes {
				lines[len(messages)] = "Longer messages were left out here."
				continue
			}
			if len(line) > room {
				continue
			}
			lines[i] = line
			room -= len(line) + 1
		}
	}
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return line == "" }), "\n")
}

// nextSteps are those that the newest answer with such a list gives.
func nextSteps(messages []saidMessage) []string {
	for _, m := range slices.Backward(messages) {
		for _, p := range []phrases{english, chinese} {
			_, list, found := strings.Cut(m.Text, "\n"+p.nextSteps+"\n")
			if m.Role != model.RoleAssistant || !found {
				continue
			}
			steps := []string{}
			for line := range strings.Lines(list) {
				number, step, numbered := strings.Cut(strings.TrimSpace(line), ". ")
				if !numbered || strings.Trim(number, "0123456789") != "" {
					break
				}
				if len(step) <= maxExtractBytes {
					steps = append(steps, step)
				}
			}
			return steps
		}
	}
	return []string{}
}

// stands reports whether a word stands in a text by itself: between white space
// or at the end of a clause. In doubt it does not.
func stands(text, word string) bool {
	for from := 0; word != ""; {
		at := strings.Index(text[from:], word)
		if at < 0 {
			return false
		}
		at += from
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after := strings.TrimLeft(text[at+len(word):], ",.;:?!")
		next, _ := utf8.DecodeRuneInString(after)
		if (at == 0 || unicode.IsSpace(before)) && (after == "" || unicode.IsSpace(next)) {
			return true
		}
		from = at + len(word)
	}
	return false
}
