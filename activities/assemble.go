package activities

import (
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/prompt"
	"github.com/fairlead/fairlead/internal/summary"
	"github.com/fairlead/fairlead/internal/tokens"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/tool"
)

// assemble makes the request from what the database holds.
func (r *Runs) assemble(p purchase, state db.StepState) (prompt.Prompt, error) {
	in := prompt.Input{
		System: p.def.System, FinalSchema: p.def.FinalSchema, Question: state.Question.Content,
		Window: p.entry.ContextWindow, MaxOutputTokens: p.entry.MaxOutputTokens, Budgets: p.def.Context,
	}
	if p.def.MaxOutputTokens > 0 {
		in.MaxOutputTokens = min(in.MaxOutputTokens, p.def.MaxOutputTokens)
	}
	var err error
	if in.Tokens, err = tokens.For(p.entry.Tokenizer); err != nil {
		return prompt.Prompt{}, fmt.Errorf("assemble: %w", err)
	}
	for _, spec := range r.tools.Offer(p.actor, p.allow) {
		in.Tools = append(in.Tools, model.ToolSpec{Name: spec.Name, Description: spec.Description, Parameters: spec.Parameters})
	}
	for _, f := range state.Session.Facts {
		in.Facts = append(in.Facts, prompt.Fact{Key: f.Key, Value: f.Value, Source: sourceOf(f), Version: f.Version})
	}
	for _, e := range p.standing {
		in.Prohibitions = append(in.Prohibitions, prompt.Prohibition{ID: e.Key, Text: e.Value, Tools: e.Tools, Ask: e.Ask, Seq: e.Seq})
	}
	in.Memory = p.memory
	for _, s := range state.Summaries {
		text, err := summary.Stored(s.Content)
		if err != nil {
			// One of an older form: the words themselves are still there.
			continue
		}
		in.Summaries = append(in.Summaries, prompt.Summary{FromSeq: s.FromSeq, ToSeq: s.ToSeq, Text: text})
	}
	for _, m := range state.History {
		in.History = append(in.History, prompt.Message{Seq: m.Seq, Role: roleOf(m), Text: m.Content})
	}
	for _, e := range state.Exchanges {
		in.Steps = append(in.Steps, stepOf(e))
	}
	return prompt.Assemble(in)
}

func roleOf(m db.Message) model.Role {
	if m.Role == db.RoleAssistant {
		return model.RoleAssistant
	}
	return model.RoleUser
}

// sourceOf says where a fact comes from.
func sourceOf(f db.SessionEntry) string {
	if f.Tool != "" {
		return "tool " + f.Tool
	}
	return "confirmed by the user"
}

func stepOf(e db.Exchange) prompt.Step {
	step := prompt.Step{Step: e.Step, Text: e.Response.Text, Correction: e.Response.Correction}
	if step.Correction != "" {
		return step
	}
	for i, c := range e.Response.Calls {
		step.Calls = append(step.Calls, model.ToolCall{ID: c.ID, Name: c.Name, Arguments: replayable(c.Arguments)})
		if i >= len(e.Results) || e.Results[i].Envelope == "" {
			continue
		}
		result := e.Results[i]
		shown := prompt.Result{CallID: c.ID, Tool: c.Name, Envelope: result.Envelope, Note: result.Note, Error: result.ErrorCode}
		if result.Status == db.CallSucceeded {
			shown.ResultID = result.CallID
		}
		step.Results = append(step.Results, shown)
	}
	return step
}

// replayable is how arguments go back to the model that wrote them. Those that
// are too large would fill the window for the rest of the run, and many servers
// refuse a conversation with arguments that are not JSON; the call's result says
// what was wrong with them.
func replayable(arguments string) string {
	if len(arguments) > tool.MaxArgumentBytes || !json.Valid([]byte(arguments)) {
		return "{}"
	}
	return arguments
}
