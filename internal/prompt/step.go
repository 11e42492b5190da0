package prompt

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/model"
)

// notExecuted stands for the result of a call that has none.
const notExecuted = `{"error":{"code":"failed","message":"the call was not executed","retryable":false}}`

// paired returns one result for each call, in call order.
func (s Step) paired() []Result {
	given := slices.Clone(s.Results)
	results := make([]Result, len(s.Calls))
	for i, call := range s.Calls {
		at := slices.IndexFunc(given, func(r Result) bool { return r.CallID == call.ID && r.Envelope != "" })
		if at < 0 {
			results[i] = Result{CallID: call.ID, Tool: call.Name, Envelope: notExecuted}
			continue
		}
		results[i] = given[at]
		given = slices.Delete(given, at, at+1)
	}
	return results
}

// reference stands for a result that gave way. It has no part of the result
// itself: half a document is no document.
type reference struct {
	LeftOut  bool                `json:"left_out"`
	ResultID string              `json:"result_id,omitempty"`
	Error    agent.ToolErrorCode `json:"error,omitempty"`
	Note     string              `json:"note,omitempty"`
	Fetch    string              `json:"fetch,omitempty"`
}

const fetchHint = "call fetch_result with this result_id to read it"

func (a *assembly) reference(r Result) string {
	ref := reference{LeftOut: true, ResultID: r.ResultID, Error: r.Error, Note: r.Note}
	if a.fetch && r.ResultID != "" {
		ref.Fetch = fetchHint
	}
	return encode(ref)
}

// stepParts is a step as it goes into the call: whole, with references for some
// results, or without a refused answer; never with a call but not its result.
type stepParts struct {
	step Step
	// full is what the whole step takes, saved what it takes less as it is.
	full, saved int64
	results     []resultParts
	// text is what a refused answer takes that may be left out: its correction
	// says what was wrong with it.
	text    int64
	textCut bool
}

type resultParts struct {
	full, reference string
	// saves is what the reference takes less than the result, if at all.
	saves int64
	cut   bool
}

func (a *assembly) stepParts(s Step) stepParts {
	parts := stepParts{step: s}
	for _, r := range s.paired() {
		parts.results = append(parts.results, a.resultParts(r))
	}
	for _, m := range parts.messages() {
		parts.full += a.messageTokens(m)
	}
	if s.Correction != "" && len(s.Calls) == 0 && strings.TrimSpace(s.Text) != "" {
		parts.text = a.messageTokens(model.Message{Text: s.Text})
	}
	return parts
}

func (a *assembly) resultParts(r Result) resultParts {
	parts := resultParts{full: r.Envelope, reference: a.reference(r)}
	// That a call was not executed is all that there is to say about it.
	if r.Envelope != notExecuted {
		parts.saves = max(0, a.Tokens.Count(parts.full)-a.Tokens.Count(parts.reference))
	}
	return parts
}

// tokens is what the step takes.
func (s *stepParts) tokens() int64 { return s.full - s.saved }

// reduceTo puts references in the places of results until the step takes at
// most limit tokens, beginning where that saves most, or leaves a refused answer
// out. It saves what it can.
func (s *stepParts) reduceTo(limit int64) {
	for s.tokens() > limit {
		best := -1
		for i, r := range s.results {
			if !r.cut && r.saves > 0 && (best < 0 || r.saves > s.results[best].saves) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		s.results[best].cut = true
		s.saved += s.results[best].saves
	}
	if s.tokens() > limit && s.text > 0 {
		s.textCut = true
		s.saved += s.text
	}
}

// restore undoes reduceTo.
func (s *stepParts) restore() {
	s.saved, s.textCut = 0, false
	for i := range s.results {
		s.results[i].cut = false
	}
}

func (s *stepParts) messages() []model.Message {
	var messages []model.Message
	if len(s.step.Calls) > 0 || strings.TrimSpace(s.step.Text) != "" && !s.textCut {
		messages = append(messages, model.Message{Role: model.RoleAssistant, Text: s.step.Text, Calls: s.step.Calls})
	}
	for i, call := range s.step.Calls {
		text := s.results[i].full
		if s.results[i].cut {
			text = s.results[i].reference
		}
		messages = append(messages, model.Message{Role: model.RoleTool, CallID: call.ID, ToolName: call.Name, Text: text})
	}
	if s.step.Correction != "" {
		messages = append(messages, model.Message{Role: model.RoleUser, Text: s.step.Correction})
	}
	return messages
}
