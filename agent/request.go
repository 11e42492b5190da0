package agent

import (
	"fmt"
	"regexp"
	"unicode/utf8"
)

// MaxMessageBytes is the longest message that a run accepts. It keeps the first
// event of a history well under Temporal's 2 MiB limit for one payload.
const MaxMessageBytes = 256 << 10

// RunRequest starts a run. The backend service that sends it has already
// authenticated the user: Tenant, User, Environment, Page and Flags are trusted,
// Message is not.
type RunRequest struct {
	// RunID names the run; use a UUID. The same ID started twice is one run.
	RunID string `json:"run_id"`
	// Tenant and User own everything that the run reads and writes.
	Tenant string `json:"tenant"`
	User   string `json:"user"`
	// Conversation groups runs. A new run in a conversation supersedes the one
	// that is still going on there.
	Conversation string `json:"conversation"`
	// ConversationVersion, if given, must equal the version the caller last
	// saw; otherwise the request is refused as a conflict. A conversation that
	// does not exist yet has version 0.
	ConversationVersion *int64 `json:"conversation_version,omitempty"`
	// Agent names the agent definition; AgentVersion pins one version of it,
	// empty means the one that the worker serves as current.
	Agent        string `json:"agent"`
	AgentVersion string `json:"agent_version,omitempty"`
	// Environment is where the agent acts, such as "production" or "test".
	Environment string `json:"environment"`
	// Page and Flags narrow the offered tools: the page of the product that the
	// user is on, and the feature flags that hold for this user.
	Page  string   `json:"page,omitempty"`
	Flags []string `json:"flags,omitempty"`
	// Group is the group whose chat the conversation is, and Project the project
	// that it belongs to; empty means none. They are the conversation's for good:
	// in a group nothing of the user's personal memory is read or written.
	Group   string `json:"group,omitempty"`
	Project string `json:"project,omitempty"`
	// Message is the user's text: valid UTF-8 without NUL, at most
	// MaxMessageBytes long.
	Message string `json:"message"`
	// Budget tightens the definition's budget; nil keeps it.
	Budget *BudgetOverride `json:"budget,omitempty"`
	// Session is what the user settled outside of the text, such as by a choice
	// in the product's user interface; nil settles nothing.
	Session *SessionChange `json:"session,omitempty"`
}

// Scope returns the owner of the run, for every read and write made for it.
func (r RunRequest) Scope() Scope {
	return Scope{Tenant: r.Tenant, User: r.User, Environment: r.Environment}
}

// MemoryRoom returns where the run stands among memories.
func (r RunRequest) MemoryRoom() MemoryRoom {
	return MemoryRoom{Scope: r.Scope(), Conversation: r.Conversation, Group: r.Group, Project: r.Project, Agent: r.Agent}
}

// Scope says on whose behalf data is touched. A Scope with an empty field is
// invalid and every store refuses it.
type Scope struct {
	Tenant      string `json:"tenant"`
	User        string `json:"user"`
	Environment string `json:"environment"`
}

// RequestError is a request that cannot become a run. Nothing was stored.
// Its text never repeats the value that was sent.
type RequestError struct {
	// Field is the JSON name of the field at fault.
	Field string
	// Problem says what is wrong and what is expected.
	Problem string
}

// Error names the field, the problem and the expectation.
func (e *RequestError) Error() string {
	return fmt.Sprintf("invalid run request: %s %s", e.Field, e.Problem)
}

// idPattern keeps identifiers safe for URLs, search attributes, log lines and
// shell output.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

// ValidID reports whether s can name a run, tenant, user, conversation, agent,
// environment, page or flag: 1 to 128 letters, digits or . _ : @ - of ASCII,
// beginning with a letter or digit.
func ValidID(s string) bool { return idPattern.MatchString(s) }

// Validate returns a *RequestError that names the first field at fault, or nil.
// Callers should validate before they start a run; the workflow does so again.
func (r RunRequest) Validate() error {
	for _, id := range []struct {
		name, value string
		optional    bool
	}{
		{"run_id", r.RunID, false},
		{"tenant", r.Tenant, false},
		{"user", r.User, false},
		{"conversation", r.Conversation, false},
		{"agent", r.Agent, false},
		{"agent_version", r.AgentVersion, true},
		{"environment", r.Environment, false},
		{"page", r.Page, true},
		{"group", r.Group, true},
		{"project", r.Project, true},
	} {
		if id.value == "" && id.optional {
			continue
		}
		if id.value == "" {
			return &RequestError{id.name, "is missing"}
		}
		if !ValidID(id.value) {
			return &RequestError{id.name, "must be 1 to 128 ASCII letters, digits or . _ : @ - and begin with a letter or digit"}
		}
	}
	if len(r.Flags) > 64 {
		return &RequestError{"flags", "has more than 64 entries"}
	}
	for _, flag := range r.Flags {
		if !ValidID(flag) {
			return &RequestError{"flags", "has an entry that is not 1 to 128 ASCII letters, digits or . _ : @ -"}
		}
	}
	switch {
	case r.Message == "":
		return &RequestError{"message", "is empty"}
	case len(r.Message) > MaxMessageBytes:
		return &RequestError{"message", fmt.Sprintf("has %d bytes, the limit is %d; store large material elsewhere and let a tool read it", len(r.Message), MaxMessageBytes)}
	case !utf8.ValidString(r.Message):
		return &RequestError{"message", "is not valid UTF-8"}
	}
	for i := 0; i < len(r.Message); i++ {
		if r.Message[i] == 0 {
			return &RequestError{"message", "contains a NUL byte"}
		}
	}
	if v := r.ConversationVersion; v != nil && *v < 0 {
		return &RequestError{"conversation_version", "is negative"}
	}
	if err := r.Budget.Validate(); err != nil {
		return &RequestError{"budget", err.Error()}
	}
	return r.Session.validate()
}
