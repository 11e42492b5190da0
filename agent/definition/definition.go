// Package definition holds agent definitions: what an agent is told, which
// model and tools it has, and how far it may go. Definitions are data in YAML,
// versioned, and pinned by digest for the whole of a run (RUN-2, OPS-2).
package definition

import (
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/agent"
)

// Definition is one version of one agent. The zero value is not valid; use
// Parse, LoadDir or New, which fill in defaults and validate.
type Definition struct {
	// Name and Version identify the definition; two texts with the same name
	// and version but other content are refused.
	Name    string `yaml:"name" json:"name"`
	Version string `yaml:"version" json:"version"`
	// System is the system prompt, sent unchanged before everything else.
	System string `yaml:"system" json:"system"`
	// Model is the catalogue name of the model.
	Model string `yaml:"model" json:"model"`
	// Tools is the allow-list of tool names, matched exactly.
	Tools []string `yaml:"tools" json:"tools"`
	// Environments where the agent may act. A request for another one ends
	// declined_by_policy. Required.
	Environments []string `yaml:"environments" json:"environments"`
	Budget       Budget   `yaml:"budget" json:"budget"`
	Loop         Loop     `yaml:"loop" json:"loop"`
	Writes       Writes   `yaml:"writes" json:"writes"`
	// Context, Summary and Session say what the model sees of a conversation and
	// what the conversation keeps. Zero values take the defaults of their
	// methods.
	Context Context `yaml:"context" json:"context,omitzero"`
	Summary Summary `yaml:"summary" json:"summary,omitzero"`
	Session Session `yaml:"session" json:"session,omitzero"`
	// Memory says what the agent remembers beyond a conversation; the zero value
	// is nothing.
	Memory Memory `yaml:"memory" json:"memory,omitzero"`
	// FinalSchema, if set, is a JSON Schema (2020-12) that the final answer
	// must satisfy (RUN-5). In YAML it is a mapping.
	FinalSchema json.RawMessage `yaml:"-" json:"final_schema,omitempty"`
	// MaxOutputTokens bounds one response; zero means the model's maximum.
	MaxOutputTokens int64 `yaml:"max_output_tokens" json:"max_output_tokens,omitempty"`
}

// Budget is the YAML form of agent.Budget.
type Budget struct {
	MaxSteps     int   `yaml:"max_steps" json:"max_steps"`
	MaxToolCalls int   `yaml:"max_tool_calls" json:"max_tool_calls"`
	MaxTokens    int64 `yaml:"max_tokens" json:"max_tokens"`
	// MaxCostMicros is in millionths of a US dollar; zero means no cost limit.
	MaxCostMicros int64         `yaml:"max_cost_micros" json:"max_cost_micros"`
	Timeout       time.Duration `yaml:"timeout" json:"timeout_ns"`
	// AllowUnpriced lets the agent run on a model without a price although a
	// cost limit is set; the cost is then reported as unknown.
	AllowUnpriced bool `yaml:"allow_unpriced" json:"allow_unpriced,omitempty"`
}

// Writes says how writes are confirmed. Zero values take the defaults written
// beside each field.
type Writes struct {
	// ConfirmWithin is how long a plan waits for a person. Waiting does not use
	// up the run's time.
	ConfirmWithin time.Duration `yaml:"confirm_within" json:"confirm_within_ns"` // 24h
}

// Loop is the YAML form of agent.LoopRules. Zero values take the defaults
// written beside each field; negative values are refused.
type Loop struct {
	SameAction       int           `yaml:"same_action" json:"same_action"`             // 3
	SameResult       int           `yaml:"same_result" json:"same_result"`             // 3
	SameError        int           `yaml:"same_error" json:"same_error"`               // 2
	Cycle            int           `yaml:"cycle" json:"cycle"`                         // 2
	MalformedRetries *int          `yaml:"malformed_retries" json:"malformed_retries"` // 1; 0 allows none
	ModelTries       int           `yaml:"model_tries" json:"model_tries"`             // 4
	RetryInitial     time.Duration `yaml:"retry_initial" json:"retry_initial_ns"`      // 500ms
	RetryMax         time.Duration `yaml:"retry_max" json:"retry_max_ns"`              // 30s
	ParallelReads    int           `yaml:"parallel_reads" json:"parallel_reads"`       // 4
	LookUpTries      int           `yaml:"look_up_tries" json:"look_up_tries"`         // 8
}

// AgentBudget returns the budget in the form that the loop uses.
func (d Definition) AgentBudget() agent.Budget {
	return agent.Budget{
		MaxSteps: d.Budget.MaxSteps, MaxToolCalls: d.Budget.MaxToolCalls, MaxTokens: d.Budget.MaxTokens,
		MaxCostMicros: d.Budget.MaxCostMicros, Timeout: d.Budget.Timeout,
	}
}

// Rules returns the loop settings in the form that the loop uses.
func (d Definition) Rules() agent.LoopRules {
	rules := agent.LoopRules{
		SameAction: d.Loop.SameAction, SameResult: d.Loop.SameResult, SameError: d.Loop.SameError,
		Cycle: d.Loop.Cycle, ModelTries: d.Loop.ModelTries,
		RetryInitial: d.Loop.RetryInitial, RetryMax: d.Loop.RetryMax, ParallelReads: d.Loop.ParallelReads,
		LookUpTries: d.Loop.LookUpTries,
	}
	if d.Loop.MalformedRetries != nil {
		rules.MalformedRetries = *d.Loop.MalformedRetries
	}
	return rules
}
