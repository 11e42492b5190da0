package agent

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Bounds of a SessionChange and of what a session holds.
const (
	// MaxFactBytes bounds the value of one fact.
	MaxFactBytes = 256
	// MaxFacts bounds the facts that one request confirms, and the facts that a
	// conversation holds.
	MaxFacts = 64
)

// SessionChange is what a user settles about a conversation in a form that needs
// no interpretation (CONV-3). The backend service has it from the user's own
// act, never from a model.
type SessionChange struct {
	// Facts are confirmed by the user. The agent's definition lists the keys
	// that it accepts.
	Facts []ConfirmedFact `json:"facts,omitempty"`
	// Forbid names tools that must not be used in this conversation until the
	// user lifts it.
	Forbid []string `json:"forbid,omitempty"`
	// Lift names standing prohibitions, by their IDs, that the user takes back.
	Lift []string `json:"lift,omitempty"`
}

// ConfirmedFact is one fact that the user confirmed.
type ConfirmedFact struct {
	// Key is 1 to 64 of a-z, 0-9, _ and . of ASCII, beginning with a letter.
	Key string `json:"key"`
	// Value is content: valid UTF-8 without control characters, 1 to
	// MaxFactBytes long.
	Value string `json:"value"`
}

var factKeyPattern = regexp.MustCompile(`^[a-z][a-z0-9_.]{0,63}$`)

// ValidFactKey reports whether s can name a fact.
func ValidFactKey(s string) bool { return factKeyPattern.MatchString(s) }

// ValidFactValue reports whether s can be the value of a fact.
func ValidFactValue(s string) bool {
	return s != "" && len(s) <= MaxFactBytes && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// validate returns a *RequestError or nil.
func (c *SessionChange) validate() error {
	if c == nil {
		return nil
	}
	for _, list := range []struct {
		field string
		size  int
	}{{"session.facts", len(c.Facts)}, {"session.forbid", len(c.Forbid)}, {"session.lift", len(c.Lift)}} {
		if list.size > MaxFacts {
			return &RequestError{list.field, fmt.Sprintf("has more than %d entries", MaxFacts)}
		}
	}
	seen := map[string]bool{}
	for _, f := range c.Facts {
		switch {
		case !ValidFactKey(f.Key):
			return &RequestError{"session.facts", "has a key that is not 1 to 64 of a-z, 0-9, _ and . of ASCII, beginning with a letter"}
		case seen[f.Key]:
			return &RequestError{"session.facts", "names a key twice"}
		case !ValidFactValue(f.Value):
			return &RequestError{"session.facts", fmt.Sprintf("has a value that is not 1 to %d bytes of UTF-8 without control characters", MaxFactBytes)}
		}
		seen[f.Key] = true
	}
	for _, tool := range c.Forbid {
		if !ValidID(tool) {
			return &RequestError{"session.forbid", "has an entry that is not the name of a tool"}
		}
	}
	for _, id := range c.Lift {
		if !ValidID(id) {
			return &RequestError{"session.lift", "has an entry that is not the ID of a standing prohibition"}
		}
	}
	return nil
}
