package definition

// Context bounds the parts of one model call, in tokens (WM-1). The hard parts
// (system prompt, schemas, session state, question) are never cut; the budgets
// bound what else may be there. Zero is the default written beside each field.
type Context struct {
	// MaxInput bounds the whole input; what the model's window leaves beside
	// the output bounds it as well.
	MaxInput int64 `yaml:"max_input" json:"max_input,omitempty"` // the window
	// Messages bounds earlier messages in their own words.
	Messages int64 `yaml:"messages" json:"messages,omitempty"` // half of the input
	// Summaries bounds the summaries of still earlier ones.
	Summaries int64 `yaml:"summaries" json:"summaries,omitempty"` // 6000
	// Results bounds the tool results of this run; the newest step is there in
	// any case.
	Results int64 `yaml:"results" json:"results,omitempty"` // half of the input
	// Notes bounds the run notes: one line for each earlier step.
	Notes int64 `yaml:"notes" json:"notes,omitempty"` // 800
	// Memory and Knowledge bound what was recalled.
	Memory    int64 `yaml:"memory" json:"memory,omitempty"`       // 2000
	Knowledge int64 `yaml:"knowledge" json:"knowledge,omitempty"` // 6000
}

// Summary says when the older part of a conversation is summarized. A summary is
// due when After and Keep messages together have none. They are at most 90: a
// model call looks back on the newest 100 messages, and what is beyond them
// before a summary covers it would be lost to the model. The other ten are for
// what is said while a summary is made.
type Summary struct {
	// Model is the catalogue name of the model that writes summaries.
	Model string `yaml:"model" json:"model,omitempty"` // the agent's own
	// After is how many messages one summary covers.
	After int `yaml:"after" json:"after,omitempty"` // 40
	// Keep is how many of the newest messages no summary covers.
	Keep int `yaml:"keep" json:"keep,omitempty"` // 20
	// Off makes no summaries.
	Off bool `yaml:"off" json:"off,omitempty"`
}

// Session says what a conversation of the agent keeps as settled.
type Session struct {
	// Facts are the keys of facts that a request may confirm on the user's
	// behalf. Those that tools declare need no mention.
	Facts []string `yaml:"facts" json:"facts,omitempty"`
}

const (
	defaultSummariesTokens = 6_000
	defaultNotesTokens     = 800
	defaultMemoryTokens    = 2_000
	defaultKnowledgeTokens = 6_000
	defaultSummaryAfter    = 40
	defaultSummaryKeep     = 20
)

// Bounds returns the budgets with defaults filled in, for an input of at most
// window tokens. Each is at most MaxInput, which is at most window.
func (c Context) Bounds(window int64) Context {
	if c.MaxInput == 0 || c.MaxInput > window {
		c.MaxInput = window
	}
	for _, part := range []struct {
		field    *int64
		standard int64
	}{
		{&c.Messages, c.MaxInput / 2},
		{&c.Summaries, defaultSummariesTokens},
		{&c.Results, c.MaxInput / 2},
		{&c.Notes, defaultNotesTokens},
		{&c.Memory, defaultMemoryTokens},
		{&c.Knowledge, defaultKnowledgeTokens},
	} {
		if *part.field == 0 {
			*part.field = part.standard
		}
		*part.field = min(*part.field, c.MaxInput)
	}
	return c
}

// Bounds returns s with defaults filled in; model is the agent's own.
func (s Summary) Bounds(model string) Summary {
	if s.Model == "" {
		s.Model = model
	}
	if s.After == 0 {
		s.After = defaultSummaryAfter
	}
	if s.Keep == 0 {
		s.Keep = defaultSummaryKeep
	}
	return s
}
