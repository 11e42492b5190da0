package definition

// Memory says what an agent does with long-term memory. What may be remembered at
// all is said by the worker's memory policy (POL-1).
type Memory struct {
	// Recall gives what is remembered to a run before its first model call.
	Recall bool `yaml:"recall" json:"recall,omitempty"`
	// Learn proposes memories from what the user said, after each answer.
	Learn bool `yaml:"learn" json:"learn,omitempty"`
	// Model is the catalogue name of the model that extracts them.
	Model string `yaml:"model" json:"model,omitempty"` // the agent's own
	// MaxRecords bounds the memories that a run is given; their tokens are bounded
	// by context.memory.
	MaxRecords int `yaml:"max_records" json:"max_records,omitempty"` // 8
	// Scope is where what is learned is to be seen outside of a group, where it
	// is always the group: user, conversation or project.
	Scope string `yaml:"scope" json:"scope,omitempty"` // user
	// Facts are session facts (see Session and tool.Spec.Facts) that are proposed
	// as memories when a successful call settled them, by the key of the memory
	// policy's registry.
	Facts map[string]string `yaml:"facts" json:"facts,omitempty"`
}

const defaultMaxRecords = 8

// Bounds returns m with defaults filled in; model is the agent's own.
func (m Memory) Bounds(model string) Memory {
	if m.Model == "" {
		m.Model = model
	}
	if m.MaxRecords == 0 {
		m.MaxRecords = defaultMaxRecords
	}
	if m.Scope == "" {
		m.Scope = "user"
	}
	return m
}
