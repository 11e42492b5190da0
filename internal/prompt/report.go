package prompt

import "github.com/fairlead/fairlead/model"

// The parts of a call, as a Report and an OverflowError name them.
const (
	PartSystem      = "system"
	PartTools       = "tools"
	PartFinalSchema = "final_schema"
	PartState       = "state"
	PartQuestion    = "question"
	PartNewestStep  = "newest_step"
	PartSteps       = "steps"
	PartMessages    = "messages"
	PartNotes       = "notes"
	PartSummaries   = "summaries"
	PartMemory      = "memory"
	PartKnowledge   = "knowledge"
)

// Report says what went into a call and what was left out (WM-6): counts, no
// content.
type Report struct {
	// Tokenizer is the name of the counter, "" for the estimate.
	Tokenizer string `json:"tokenizer"`
	// Window, Reserved and Input are in tokens. Reserved was kept for the output
	// while the input was filled; Input is the sum of the parts.
	Window   int64 `json:"window"`
	Reserved int64 `json:"reserved"`
	Input    int64 `json:"input"`
	// Parts are all of them, in the order of the constants.
	Parts []Part `json:"parts"`
}

// Part is one part of a call.
type Part struct {
	Name   string `json:"name"`
	Tokens int64  `json:"tokens"`
	// Budget is zero for hard parts: they have none.
	Budget int64 `json:"budget,omitempty"`
	// Kept counts what is there whole, Cut the steps that are there with references
	// in the place of results or without a refused answer, and LeftOut what is not there: tools, facts and
	// prohibitions, steps, messages, notes, summaries or pieces. A summary is not
	// counted if all of its messages are there.
	Kept    int `json:"kept"`
	Cut     int `json:"cut,omitempty"`
	LeftOut int `json:"left_out,omitempty"`
}

// Tokens beside the text itself: what providers add around a message, a tool
// schema and a call, estimated high.
const (
	perMessage = 8
	perTool    = 16
	perCall    = 16
)

func (a *assembly) messageTokens(m model.Message) int64 {
	n := a.Tokens.Count(m.Text) + a.Tokens.Count(m.CallID) + a.Tokens.Count(m.ToolName) + perMessage
	for _, call := range m.Calls {
		n += a.Tokens.Count(call.ID) + a.Tokens.Count(call.Name) + a.Tokens.Count(call.Arguments) + perCall
	}
	return n
}

// historyTokens is zero for what does not go in.
func (a *assembly) historyTokens(m Message) int64 {
	if !inConversation(m) {
		return 0
	}
	return a.messageTokens(model.Message{Text: m.Text})
}

func (a *assembly) report() Report {
	lines := map[*section]int64{}
	for _, e := range []*envelope{&a.summary, &a.context} {
		for i, s := range e.sections {
			for _, line := range e.lines(i) {
				lines[s] += a.Tokens.Count(line)
			}
		}
	}
	list := func(name string, s *section, budget int64) Part {
		return Part{Name: name, Tokens: lines[s], Budget: budget, Kept: len(s.items), LeftOut: s.leftOut}
	}

	finalSchema := Part{Name: PartFinalSchema, Tokens: a.finalSchema}
	if len(a.FinalSchema) > 0 {
		finalSchema.Kept = 1
	}
	newest, older := Part{Name: PartNewestStep}, Part{Name: PartSteps, Tokens: a.stepsUsed, Budget: a.budgets.Results, LeftOut: a.first}
	for i, step := range a.steps[a.first:] {
		part := &older
		if a.first+i == len(a.steps)-1 {
			part = &newest
			part.Tokens = step.tokens()
		}
		if step.saved > 0 {
			part.Cut++
		} else {
			part.Kept++
		}
	}
	messages := Part{Name: PartMessages, Tokens: a.messagesUsed, Budget: a.budgets.Messages, LeftOut: a.from}
	for _, m := range a.History[a.from:] {
		if inConversation(m) {
			messages.Kept++
		} else {
			messages.LeftOut++
		}
	}
	state := Part{
		Name: PartState, Tokens: lines[a.parts.facts] + lines[a.parts.prohibitions],
		Kept: len(a.Facts) + len(a.Prohibitions),
	}
	summaries := list(PartSummaries, a.parts.summaries, a.budgets.Summaries)
	// An envelope without summaries only holds its place.
	if summaries.Kept > 0 {
		summaries.Tokens += a.frameTokens()
	} else if a.summary.opened {
		state.Tokens += a.frameTokens()
	}
	if a.context.opened {
		state.Tokens += a.frameTokens()
	}

	report := Report{Tokenizer: a.Tokens.Name(), Window: a.Window, Parts: []Part{
		{Name: PartSystem, Tokens: a.system, Kept: 1},
		{Name: PartTools, Tokens: a.tools, Kept: len(a.Tools)},
		finalSchema, state,
		{Name: PartQuestion, Tokens: a.question, Kept: 1},
		newest, older, messages,
		list(PartNotes, a.parts.notes, a.budgets.Notes),
		summaries,
		list(PartMemory, a.parts.memory, a.budgets.Memory),
		list(PartKnowledge, a.parts.knowledge, a.budgets.Knowledge),
	}}
	for _, part := range report.Parts {
		report.Input += part.Tokens
	}
	return report
}
