package prompt

import (
	"slices"

	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/tool"
)

// Assemble makes a call, or returns an *OverflowError.
//
// Never left out: system prompt and note, schemas, session state, question, and
// the newest step, without which the model would take it again. If the newest
// step's results break the window, the largest give way to references first; if
// it is an answer that was refused, that gives way to its correction.
//
// What is left goes to, each within its own budget:
//
//  1. earlier steps with references for results and no refused answers, up to
//     half of it: a run that does not see its own calls makes them again;
//  2. messages, newest first: nothing else in the prompt says what they said;
//  3. what those steps lack, newest first. It comes after the messages because a
//     result that is not there can be fetched;
//  4. still earlier steps with references;
//  5. run notes, which first of all stand for the steps that are not there;
//  6. summaries of messages that are not all there, newest first;
//  7. memory, then knowledge, best first.
//
// Steps and messages have no gaps: the first that does not fit ends them. A
// note, summary, memory or piece of knowledge that does not fit is left out, and
// the next is tried.
func Assemble(in Input) (Prompt, error) {
	// A model whose longest output is its whole window must leave half of it.
	reserve := min(in.MaxOutputTokens, in.Window/2)
	a := &assembly{
		Input: in, budgets: in.Budgets.Bounds(in.Window - reserve),
		fetch: slices.ContainsFunc(in.Tools, func(t model.ToolSpec) bool { return t.Name == tool.FetchResultName }),
		parts: newSections(),
	}
	if err := a.fillHard(); err != nil {
		return Prompt{}, err
	}
	a.fillSteps(min(a.budgets.Results, a.left/2))
	a.fillMessages()
	a.restoreResults()
	a.fillSteps(a.budgets.Results)
	a.fillNotes()
	a.fillSummaries()
	a.fillRecalled(a.parts.memory, in.Memory, a.budgets.Memory)
	a.fillRecalled(a.parts.knowledge, in.Knowledge, a.budgets.Knowledge)

	report := a.report()
	report.Reserved = reserve
	return Prompt{
		Request: model.Request{
			System: systemText(in.System), Messages: a.messages(), Tools: in.Tools, FinalSchema: in.FinalSchema,
			MaxOutputTokens: min(in.MaxOutputTokens, in.Window-report.Input),
		},
		Report: report,
	}, nil
}

// assembly is a call in the making.
type assembly struct {
	Input
	budgets definition.Context
	// fetch says that the model has the tool that fetches results.
	fetch bool
	// left is what the input may still grow by. What was taken from it for an
	// envelope is a little more than what the envelope has in the end.
	left int64

	system, tools, finalSchema, question int64

	parts sections
	// summary is the message before the conversation's, context the one before
	// the question.
	summary, context envelope

	// from is the first message that is there, first the first step.
	from, first             int
	messagesUsed, stepsUsed int64
	steps                   []stepParts
}

func (a *assembly) fillHard() error {
	a.from, a.first = len(a.History), len(a.Steps)
	// Summaries have an envelope of their own, and it is part of their budget.
	a.parts.summaries.taken = a.frameTokens()
	a.system = a.Tokens.Count(systemText(a.System)) + perMessage
	for _, t := range a.Tools {
		a.tools += a.Tokens.Count(t.Name) + a.Tokens.Count(t.Description) + a.Tokens.Count(string(t.Parameters)) + perTool
	}
	a.finalSchema = a.Tokens.Count(string(a.FinalSchema))
	a.question = a.messageTokens(model.Message{Text: a.Question})
	if looksLikeContext(a.Question) {
		a.open(&a.context)
	}
	for i, f := range a.Facts {
		a.put(&a.context, a.parts.facts, i, encode(newFact(f)))
	}
	for i, p := range a.Prohibitions {
		a.put(&a.context, a.parts.prohibitions, i, encode(newProhibition(p)))
	}
	// Nothing else was taken yet.
	state := -a.left
	a.left = a.budgets.MaxInput - a.system - a.tools - a.finalSchema - a.question - state

	newest := int64(0)
	a.steps = make([]stepParts, len(a.Steps))
	if n := len(a.Steps); n > 0 {
		a.first = n - 1
		a.steps[n-1] = a.stepParts(a.Steps[n-1])
		a.steps[n-1].reduceTo(a.left)
		newest = a.steps[n-1].tokens()
		a.left -= newest
	}
	if a.left >= 0 {
		return nil
	}
	over := &OverflowError{Have: a.budgets.MaxInput, Need: a.budgets.MaxInput - a.left}
	largest := int64(-1)
	for _, part := range []struct {
		name   string
		tokens int64
	}{
		{PartSystem, a.system},
		{PartTools, a.tools},
		{PartFinalSchema, a.finalSchema},
		{PartState, state},
		{PartQuestion, a.question},
		{PartNewestStep, newest},
	} {
		if part.tokens > largest {
			over.Part, largest = part.name, part.tokens
		}
	}
	return over
}

// fillSteps keeps steps at their shortest, from the newest that is not there
// backwards, while all but the newest step of the run take at most budget.
func (a *assembly) fillSteps(budget int64) {
	for ; a.first > 0; a.first-- {
		step := a.stepParts(a.Steps[a.first-1])
		step.reduceTo(0)
		cost := step.tokens()
		if cost > a.left || a.stepsUsed+cost > budget {
			return
		}
		a.steps[a.first-1] = step
		a.left -= cost
		a.stepsUsed += cost
	}
}

// restoreResults puts back what fillSteps took out, a step at a time. A step for
// which there is no room leaves it to earlier ones.
func (a *assembly) restoreResults() {
	for i := len(a.steps) - 2; i >= a.first; i-- {
		extra := a.steps[i].saved
		if extra <= a.left && a.stepsUsed+extra <= a.budgets.Results {
			a.steps[i].restore()
			a.left -= extra
			a.stepsUsed += extra
		}
	}
}

func (a *assembly) fillMessages() {
	for budget := min(a.budgets.Messages, a.left); a.from > 0; a.from-- {
		cost := a.historyTokens(a.History[a.from-1])
		if a.messagesUsed+cost > budget {
			break
		}
		a.messagesUsed += cost
	}
	// An answer without its question says nothing, and some providers refuse a
	// conversation that the assistant opens.
	for a.from < len(a.History) && a.History[a.from].Role != model.RoleUser {
		a.messagesUsed -= a.historyTokens(a.History[a.from])
		a.from++
	}
	a.left -= a.messagesUsed
	a.holdPlaces()
}

// holdPlaces makes sure that no message of the user stands where the note of the
// system prompt says that the application speaks: first, or right before the
// question. An empty envelope takes the place; if there is no room for it, the
// messages go.
func (a *assembly) holdPlaces() {
	if a.from == len(a.History) {
		return
	}
	var places []*envelope
	if !a.summary.opened && looksLikeContext(a.History[a.from].Text) {
		places = append(places, &a.summary)
	}
	last := a.lastMessage()
	if !a.context.opened && last.Role == model.RoleUser && looksLikeContext(last.Text) {
		places = append(places, &a.context)
	}
	if a.frameTokens()*int64(len(places)) > a.left {
		a.from = len(a.History)
		a.left += a.messagesUsed
		a.messagesUsed = 0
		return
	}
	for _, e := range places {
		a.open(e)
	}
}

// lastMessage is the newest message of the conversation that is there.
func (a *assembly) lastMessage() Message {
	for i := len(a.History) - 1; i > a.from; i-- {
		if inConversation(a.History[i]) {
			return a.History[i]
		}
	}
	return a.History[a.from]
}

// inConversation is false for tool messages: without the call that they answer
// no provider takes them, and the run's own are in its steps.
func inConversation(m Message) bool { return m.Role == model.RoleUser || m.Role == model.RoleAssistant }

// fillNotes writes down what became of the steps whose results are not there,
// beginning with those of which nothing else is there.
func (a *assembly) fillNotes() {
	for i := a.first - 1; i >= 0; i-- {
		a.note(i)
	}
	for i := len(a.steps) - 1; i >= a.first; i-- {
		if a.steps[i].saved > 0 {
			a.note(i)
		}
	}
}

func (a *assembly) note(i int) {
	if step := a.Steps[i]; len(step.Calls) > 0 {
		a.offer(&a.context, a.parts.notes, i, encode(newNote(step)), a.budgets.Notes)
	}
}

func (a *assembly) fillSummaries() {
	for i := len(a.Summaries) - 1; i >= 0; i-- {
		s := a.Summaries[i]
		if a.from < len(a.History) && s.FromSeq >= a.History[a.from].Seq {
			continue
		}
		a.offer(&a.summary, a.parts.summaries, i, encode(newSummary(s)), a.budgets.Summaries)
	}
}

func (a *assembly) fillRecalled(part *section, items []Recalled, budget int64) {
	for i, r := range items {
		a.offer(&a.context, part, i, encode(recalled(r)), budget)
	}
}

// messages writes the conversation as the model gets it.
func (a *assembly) messages() []model.Message {
	var messages []model.Message
	if a.summary.opened {
		messages = append(messages, model.Message{Role: model.RoleUser, Text: a.summary.text()})
	}
	for _, m := range a.History[a.from:] {
		if inConversation(m) {
			messages = append(messages, model.Message{Role: m.Role, Text: m.Text})
		}
	}
	if a.context.opened {
		messages = append(messages, model.Message{Role: model.RoleUser, Text: a.context.text()})
	}
	messages = append(messages, model.Message{Role: model.RoleUser, Text: a.Question})
	for _, step := range a.steps[a.first:] {
		messages = append(messages, step.messages()...)
	}
	return messages
}
