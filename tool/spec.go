package tool

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool/schema"
)

// Limits and defaults of a Spec.
const (
	DefaultTimeout       = 30 * time.Second
	DefaultFastTimeout   = 5 * time.Second
	DefaultExcerptBytes  = 4 << 10
	DefaultReadAttempts  = 3
	DefaultMaxConcurrent = 16

	maxDescriptionBytes = 8 << 10
	maxAttempts         = 10
	maxFacts            = 16
	maxPointerBytes     = 256
	maxVerbs            = 32
	maxVerbBytes        = 64
)

// namePattern is ASCII only: a look-alike of another script never matches.
var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// pointerPattern is the syntax of RFC 6901.
var pointerPattern = regexp.MustCompile(`^(/([^~/]|~[01])*)*$`)

// ValidName reports whether s can name a tool: 1 to 64 of a-z, 0-9 and _ of
// ASCII, beginning with a letter.
func ValidName(s string) bool { return namePattern.MatchString(s) }

// complete returns the spec with defaults filled in and with copies of all that
// its author could still change, and the schema for its arguments.
func (s Spec) complete() (Spec, *schema.Schema, error) {
	switch {
	case !ValidName(s.Name):
		return s, nil, fmt.Errorf("name %q must be 1 to 64 of a-z, 0-9 and _ of ASCII, beginning with a letter", s.Name)
	case !agent.ValidID(s.Version):
		return s, nil, errors.New("version must be 1 to 128 ASCII letters, digits or . _ : @ -, such as \"1\"")
	case s.Description == "" || len(s.Description) > maxDescriptionBytes || !utf8.ValidString(s.Description):
		return s, nil, fmt.Errorf("description must be 1 to %d bytes of UTF-8: the model chooses by it", maxDescriptionBytes)
	case s.Risk != Read && s.Risk != Write:
		return s, nil, errors.New("risk must be read or write")
	case s.Fast && s.Risk != Read:
		return s, nil, errors.New("fast is for reads only")
	case s.Source == "":
		return s, nil, errors.New("source is missing: name the system that answers")
	case s.Trust != "" && s.Trust != Authoritative && s.Trust != Untrusted:
		return s, nil, errors.New("trust must be authoritative or untrusted")
	case s.Timeout < 0:
		return s, nil, errors.New("timeout is negative")
	case s.ExcerptBytes < 0 || s.ExcerptBytes > MaxResultBytes:
		return s, nil, fmt.Errorf("excerpt bytes must be 0 to %d", MaxResultBytes)
	case s.Attempts < 0 || s.Attempts > maxAttempts:
		return s, nil, fmt.Errorf("attempts must be 0 to %d", maxAttempts)
	case s.MaxConcurrent < 0:
		return s, nil, errors.New("max concurrent is negative")
	case s.InFlight < 0:
		return s, nil, errors.New("in flight is negative")
	case s.InFlight > 0 && s.Risk != Write:
		return s, nil, errors.New("in flight is for writes only")
	}
	for _, id := range slices.Concat(s.Environments, s.Pages) {
		if !agent.ValidID(id) {
			return s, nil, errors.New("environments and pages must be 1 to 128 ASCII letters, digits or . _ : @ -")
		}
	}
	if s.Flag != "" && !agent.ValidID(s.Flag) {
		return s, nil, errors.New("flag must be 1 to 128 ASCII letters, digits or . _ : @ -")
	}
	if err := checkFacts(s.Facts); err != nil {
		return s, nil, err
	}
	if err := checkVerbs(s.Verbs); err != nil {
		return s, nil, err
	}
	arguments, err := schema.CompileArguments(s.Parameters)
	if err != nil {
		return s, nil, fmt.Errorf("parameters: %w", err)
	}
	if s.Trust == "" {
		s.Trust = Untrusted
	}
	if s.Timeout == 0 {
		s.Timeout = DefaultTimeout
		if s.Fast {
			s.Timeout = DefaultFastTimeout
		}
	}
	if s.ExcerptBytes == 0 {
		s.ExcerptBytes = DefaultExcerptBytes
	}
	if s.Attempts == 0 {
		s.Attempts = 1
		if s.Risk == Read {
			s.Attempts = DefaultReadAttempts
		}
	}
	if s.MaxConcurrent == 0 {
		s.MaxConcurrent = DefaultMaxConcurrent
	}
	return s.clone(), arguments, nil
}

func checkFacts(facts []Fact) error {
	if len(facts) > maxFacts {
		return fmt.Errorf("facts has %d entries, the limit is %d", len(facts), maxFacts)
	}
	seen := map[string]bool{}
	for i, f := range facts {
		switch {
		case !agent.ValidFactKey(f.Key):
			return fmt.Errorf("facts[%d]: the key must be 1 to 64 of a-z, 0-9, _ and . of ASCII, beginning with a letter", i)
		case seen[f.Key]:
			return fmt.Errorf("facts[%d]: the key %q is there twice", i, f.Key)
		case len(f.Pointer) > maxPointerBytes || !pointerPattern.MatchString(f.Pointer) || !utf8.ValidString(f.Pointer):
			return fmt.Errorf("facts[%d]: the pointer must be a JSON Pointer (RFC 6901) of at most %d bytes, such as \"/service/id\"", i, maxPointerBytes)
		}
		seen[f.Key] = true
	}
	return nil
}

func checkVerbs(verbs []string) error {
	if len(verbs) > maxVerbs {
		return fmt.Errorf("verbs has %d entries, the limit is %d", len(verbs), maxVerbs)
	}
	for i, verb := range verbs {
		switch {
		case verb == "" || len(verb) > maxVerbBytes || !plainLine(verb):
			return fmt.Errorf("verbs[%d] must be 1 to %d bytes of one line, without invisible characters or space around it", i, maxVerbBytes)
		case verb != strings.ToLower(verb):
			return fmt.Errorf("verbs[%d] %q must be in lower case: words are compared without regard to case", i, verb)
		case slices.Contains(verbs[:i], verb):
			return fmt.Errorf("verbs[%d] %q is there twice", i, verb)
		}
	}
	return nil
}

// implementedBy refuses a declaration that t does not keep. A write without
// Prepare could never be confirmed, and a read with it is a mistake in risk.
func (s Spec) implementedBy(t Tool) error {
	_, writer := t.(Writer)
	_, finder := t.(Finder)
	switch {
	case s.Risk == Write && !writer:
		return errors.New("the risk is write, but it is no Writer: it needs Prepare (a type that wraps another tool must pass its methods on)")
	case s.Risk == Read && writer:
		return errors.New("it is a Writer: its risk must be write")
	case s.InFlight > 0 && !finder:
		return errors.New("in flight is for writers that are Finders: remove it, or add Find")
	}
	return nil
}

func (s Spec) clone() Spec {
	s.Parameters = bytes.Clone(s.Parameters)
	s.Environments = slices.Clone(s.Environments)
	s.Pages = slices.Clone(s.Pages)
	s.Facts = slices.Clone(s.Facts)
	s.Verbs = slices.Clone(s.Verbs)
	return s
}

// offeredTo reports whether environment, page and flag let actor see the tool.
func (s Spec) offeredTo(actor Actor) bool {
	if len(s.Environments) > 0 && !slices.Contains(s.Environments, actor.Scope.Environment) {
		return false
	}
	if len(s.Pages) > 0 && !slices.Contains(s.Pages, actor.Page) {
		return false
	}
	return s.Flag == "" || slices.Contains(actor.Flags, s.Flag)
}
