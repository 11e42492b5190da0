package definition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

// MaxSystemBytes is the longest system prompt.
const MaxSystemBytes = 64 << 10

const (
	defaultRetryInitial = 500 * time.Millisecond
	defaultRetryMax     = 30 * time.Second

	defaultConfirmWithin = 24 * time.Hour

	maxModelBytes = 128
	maxTools      = 256
	// maxTimeout and maxAmount keep every number of a definition an integer
	// that JSON carries exactly.
	maxTimeout = 30 * 24 * time.Hour
	maxAmount  = int64(1e15)
	// maxRepeats bounds every counter of the loop.
	maxRepeats = 100
	// minInput leaves room for a system prompt and a question.
	minInput = 1_000
	// maxMemoryRecords bounds memory.max_records: a few that matter, not a dump.
	maxMemoryRecords = 50
	// maxSummaryRange bounds summary.after and summary.keep together; Summary
	// says why.
	maxSummaryRange = 90
)

const idRule = "must be 1 to 128 ASCII letters, digits or . _ : @ - and begin with a letter or digit"

func (d Definition) problems() []error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !agent.ValidID(d.Name) {
		add("name %s", idRule)
	}
	if !agent.ValidID(d.Version) {
		add("version %s, such as \"1.0\"", idRule)
	}
	switch {
	case strings.TrimSpace(d.System) == "":
		add("system is empty: say what the agent is and may do")
	case len(d.System) > MaxSystemBytes:
		add("system has %d bytes, the limit is %d", len(d.System), MaxSystemBytes)
	case !utf8.ValidString(d.System) || strings.ContainsRune(d.System, 0):
		add("system must be valid UTF-8 without NUL")
	}
	if !validModel(d.Model) {
		add("model must be the name of a model in the catalogue, at most %d bytes without spaces", maxModelBytes)
	}
	if len(d.Tools) > maxTools {
		add("tools has %d entries, the limit is %d", len(d.Tools), maxTools)
	}
	seen := map[string]bool{}
	for i, name := range d.Tools {
		switch {
		case !tool.ValidName(name):
			add("tools[%d] must be the exact name of a tool: 1 to 64 of a-z, 0-9 and _ of ASCII, beginning with a letter", i)
		case seen[name]:
			add("tools[%d] repeats %q", i, name)
		}
		seen[name] = true
	}
	if len(d.Environments) == 0 {
		add("environments is empty: name each environment where the agent may act")
	}
	seen = map[string]bool{}
	for i, environment := range d.Environments {
		switch {
		case !agent.ValidID(environment):
			add("environments[%d] %s", i, idRule)
		case seen[environment]:
			add("environments[%d] repeats %q", i, environment)
		}
		seen[environment] = true
	}
	if d.MaxOutputTokens < 0 || d.MaxOutputTokens > maxAmount {
		add("max_output_tokens is %d: it must be 0, for the model's maximum, to %d", d.MaxOutputTokens, maxAmount)
	}
	if err := d.budgetProblem(); err != nil {
		add("budget: %w", err)
	}
	if within := d.Writes.ConfirmWithin; within < time.Second || within > maxTimeout {
		add("writes.confirm_within is %s: it must be 1s to %s, or be left out", within, maxTimeout)
	}
	errs = append(errs, d.Context.problems()...)
	errs = append(errs, d.Summary.problems()...)
	errs = append(errs, d.Session.problems()...)
	errs = append(errs, d.Memory.problems()...)
	return append(errs, d.Loop.problems()...)
}

func validModel(name string) bool {
	return name != "" && len(name) <= maxModelBytes && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

func (c Context) problems() []error {
	var errs []error
	if c.MaxInput != 0 && (c.MaxInput < minInput || c.MaxInput > maxAmount) {
		errs = append(errs, fmt.Errorf("context.max_input is %d: it must be %d to %d tokens, or be left out", c.MaxInput, minInput, maxAmount))
	}
	for _, part := range []struct {
		name  string
		value int64
	}{
		{"messages", c.Messages},
		{"summaries", c.Summaries},
		{"results", c.Results},
		{"notes", c.Notes},
		{"memory", c.Memory},
		{"knowledge", c.Knowledge},
	} {
		if part.value < 0 || part.value > maxAmount {
			errs = append(errs, fmt.Errorf("context.%s is %d: it must be 1 to %d tokens, or be left out", part.name, part.value, maxAmount))
		}
	}
	return errs
}

func (s Summary) problems() []error {
	var errs []error
	if s.Model != "" && !validModel(s.Model) {
		errs = append(errs, fmt.Errorf("summary.model must be the name of a model in the catalogue, at most %d bytes without spaces, or be left out", maxModelBytes))
	}
	if s.After < 0 || s.After == 1 {
		errs = append(errs, fmt.Errorf("summary.after is %d: it must be at least 2 messages, or be left out", s.After))
	}
	if s.Keep < 0 {
		errs = append(errs, fmt.Errorf("summary.keep is %d: it must be at least 1 message, or be left out", s.Keep))
	}
	// Each alone first, so that the sum cannot overflow.
	if full := s.Bounds(""); max(full.After, full.Keep) > maxSummaryRange || full.After+full.Keep > maxSummaryRange {
		errs = append(errs, fmt.Errorf("summary.after (%d) and summary.keep (%d) are more than %d messages together: a model call looks back on 100, and would not see all that no summary covers", full.After, full.Keep, maxSummaryRange))
	}
	return errs
}

func (s Session) problems() []error {
	var errs []error
	if len(s.Facts) > agent.MaxFacts {
		errs = append(errs, fmt.Errorf("session.facts has %d entries, the limit is %d", len(s.Facts), agent.MaxFacts))
	}
	seen := map[string]bool{}
	for i, key := range s.Facts {
		switch {
		case !agent.ValidFactKey(key):
			errs = append(errs, fmt.Errorf("session.facts[%d] must be 1 to 64 of a-z, 0-9, _ and . of ASCII, beginning with a letter", i))
		case seen[key]:
			errs = append(errs, fmt.Errorf("session.facts[%d] repeats %q", i, key))
		}
		seen[key] = true
	}
	return errs
}

func (m Memory) problems() []error {
	var errs []error
	if m.Model != "" && !validModel(m.Model) {
		errs = append(errs, fmt.Errorf("memory.model must be the name of a model in the catalogue, at most %d bytes without spaces, or be left out", maxModelBytes))
	}
	if m.MaxRecords < 0 || m.MaxRecords > maxMemoryRecords {
		errs = append(errs, fmt.Errorf("memory.max_records is %d: it must be 1 to %d, or be left out", m.MaxRecords, maxMemoryRecords))
	}
	switch agent.MemoryScopeKind(m.Scope) {
	case "", agent.MemoryOfUser, agent.MemoryOfConversation, agent.MemoryOfProject:
	default:
		errs = append(errs, fmt.Errorf("memory.scope must be %s, %s or %s, or be left out; in a group it is always the group", agent.MemoryOfUser, agent.MemoryOfConversation, agent.MemoryOfProject))
	}
	if len(m.Facts) > agent.MaxFacts {
		errs = append(errs, fmt.Errorf("memory.facts has %d entries, the limit is %d", len(m.Facts), agent.MaxFacts))
	}
	// Sorted, so that the same definition always has the same error.
	for _, fact := range slices.Sorted(maps.Keys(m.Facts)) {
		switch {
		case !agent.ValidFactKey(fact):
			errs = append(errs, fmt.Errorf("memory.facts has a name that is no session fact: it must be 1 to 64 of a-z, 0-9, _ and . of ASCII, beginning with a letter"))
		case !agent.ValidFactKey(m.Facts[fact]):
			errs = append(errs, fmt.Errorf("memory.facts.%s must be a key of the memory policy, such as task.service", fact))
		}
	}
	if !m.Learn && len(m.Facts) > 0 {
		errs = append(errs, fmt.Errorf("memory.facts are learned, and memory.learn is off: set it to true, or leave the facts out"))
	}
	return errs
}

func (d Definition) budgetProblem() error {
	if err := d.AgentBudget().Validate(); err != nil {
		return err
	}
	b := d.Budget
	switch {
	case int64(b.MaxSteps) > maxAmount, int64(b.MaxToolCalls) > maxAmount, b.MaxTokens > maxAmount, b.MaxCostMicros > maxAmount:
		return fmt.Errorf("a limit is beyond %d", maxAmount)
	case b.Timeout > maxTimeout:
		return fmt.Errorf("timeout is %s: the limit is %s", b.Timeout, maxTimeout)
	}
	return nil
}

// problems examines a Loop whose defaults are filled in.
func (l Loop) problems() []error {
	var errs []error
	within := func(name string, value, low, high int) {
		if value < low || value > high {
			errs = append(errs, fmt.Errorf("loop.%s is %d: it must be %d to %d, or be left out", name, value, low, high))
		}
	}
	within("same_action", l.SameAction, 2, maxRepeats)
	within("same_result", l.SameResult, 2, maxRepeats)
	within("same_error", l.SameError, 2, maxRepeats)
	within("cycle", l.Cycle, 2, maxRepeats)
	within("malformed_retries", *l.MalformedRetries, 0, maxRepeats)
	within("model_tries", l.ModelTries, 1, maxRepeats)
	within("parallel_reads", l.ParallelReads, 1, maxRepeats)
	within("look_up_tries", l.LookUpTries, 1, maxRepeats)
	if l.RetryInitial < 0 {
		errs = append(errs, fmt.Errorf("loop.retry_initial is %s: it must not be negative", l.RetryInitial))
	}
	if l.RetryMax < l.RetryInitial || l.RetryMax > maxTimeout {
		errs = append(errs, fmt.Errorf("loop.retry_max is %s: it must be at least retry_initial (%s) and at most %s", l.RetryMax, l.RetryInitial, maxTimeout))
	}
	return errs
}
