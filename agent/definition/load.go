package definition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/fairlead/fairlead/tool"
	"github.com/fairlead/fairlead/tool/schema"
)

// MaxFileBytes bounds the text of one definition.
const MaxFileBytes = 1 << 20

// document is the YAML form.
type document struct {
	Definition  `yaml:",inline"`
	FinalSchema map[string]any `yaml:"final_schema"`
}

// Parse reads one definition from YAML. Unknown fields, repeated keys, a second
// document, and values of another type than the field's are refused; a version
// such as 1.10 must be quoted, because YAML reads a number. Defaults are filled
// in and the result is validated as New does. Errors name the field.
func Parse(yamlText []byte) (Definition, error) {
	if len(yamlText) > MaxFileBytes {
		return Definition{}, fmt.Errorf("definition has %d bytes, the limit is %d", len(yamlText), MaxFileBytes)
	}
	// The decoder would put U+FFFD in place of what it cannot read.
	if !utf8.Valid(yamlText) {
		return Definition{}, errors.New("definition: the text is not valid UTF-8")
	}
	doc, err := decode(yamlText)
	if err != nil {
		return Definition{}, fmt.Errorf("definition: %w", err)
	}
	d := doc.Definition
	if doc.FinalSchema != nil {
		text, err := json.Marshal(doc.FinalSchema)
		if err != nil {
			return Definition{}, fmt.Errorf("definition: final_schema: %w", err)
		}
		d.FinalSchema = text
	}
	return New(d)
}

// decode guards against the decoder, which panics on some malformed texts.
func decode(yamlText []byte) (doc document, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("the text is not valid YAML")
		}
	}()
	if err := checkTypes(yamlText); err != nil {
		return document{}, err
	}
	err = yaml.UnmarshalWithOptions(yamlText, &doc, yaml.DisallowUnknownField())
	return doc, err
}

// Fields by the type that YAML must give them. The decoder alone would read the
// number 1.10 into a string as "1.1" and the number 1.5 into an integer as 1.
var (
	stringFields  = []section{{"", []string{"name", "version", "system", "model"}}, {"summary", []string{"model"}}, {"memory", []string{"model", "scope"}}}
	listFields    = []section{{"", []string{"tools", "environments"}}, {"session", []string{"facts"}}}
	integerFields = []section{
		{"", []string{"max_output_tokens"}},
		{"budget", []string{"max_steps", "max_tool_calls", "max_tokens", "max_cost_micros"}},
		{"loop", []string{"same_action", "same_result", "same_error", "cycle", "malformed_retries", "model_tries", "parallel_reads", "look_up_tries"}},
		{"context", []string{"max_input", "messages", "summaries", "results", "notes", "memory", "knowledge"}},
		{"summary", []string{"after", "keep"}},
		{"memory", []string{"max_records"}},
	}
)

// section names fields of the document, or of the mapping called name in it.
type section struct {
	name   string
	fields []string
}

// of calls visit with the full name and the value of each field.
func (s section) of(document map[string]any, visit func(name string, value any) error) error {
	holder, prefix := document, ""
	if s.name != "" {
		holder, _ = document[s.name].(map[string]any)
		prefix = s.name + "."
	}
	for _, field := range s.fields {
		if err := visit(prefix+field, holder[field]); err != nil {
			return err
		}
	}
	return nil
}

func checkTypes(yamlText []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(yamlText))
	var fields map[string]any
	if err := dec.Decode(&fields); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the text is empty")
		}
		return err
	}
	if len(fields) == 0 {
		return errors.New("the text is empty")
	}
	var second any
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return errors.New("the text has more than one document: write each definition to a file of its own")
	}
	for _, check := range []struct {
		sections []section
		visit    func(name string, value any) error
	}{{stringFields, wantString}, {listFields, wantStrings}, {integerFields, wantInteger}} {
		for _, s := range check.sections {
			if err := s.of(fields, check.visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func wantInteger(name string, value any) error {
	switch value.(type) {
	case nil, int64, uint64:
		return nil
	default:
		return fmt.Errorf("%s must be an integer, without quotes, point or exponent", name)
	}
}

func wantStrings(name string, value any) error {
	list, _ := value.([]any)
	for i, item := range list {
		if item == nil {
			return fmt.Errorf("%s[%d] is empty", name, i)
		}
		if err := wantString(fmt.Sprintf("%s[%d]", name, i), item); err != nil {
			return err
		}
	}
	return nil
}

func wantString(name string, value any) error {
	switch value.(type) {
	case nil, string:
		return nil
	case int64, uint64, float64, bool:
		return fmt.Errorf("%s must be a string: put it in quotes", name)
	default:
		return fmt.Errorf("%s must be a string", name)
	}
}

// Defaults of Loop.
const (
	defaultSameAction       = 3
	defaultSameResult       = 3
	defaultSameError        = 2
	defaultCycle            = 2
	defaultMalformedRetries = 1
	defaultModelTries       = 4
	defaultParallelReads    = 4
	defaultLookUpTries      = 8
)

// New fills in the defaults of d and validates it; use it for definitions
// written in Go. The error names every field at fault. Applying New to its own
// result changes nothing.
func New(d Definition) (Definition, error) {
	d.Tools = append([]string{}, d.Tools...)
	d.Environments = slices.Clone(d.Environments)
	// An empty list is no list, so that the two have one digest.
	d.Session.Facts = append([]string(nil), d.Session.Facts...)
	if len(d.Memory.Facts) == 0 {
		d.Memory.Facts = nil
	}
	d.Memory.Facts = maps.Clone(d.Memory.Facts)
	d.Loop = d.Loop.withDefaults()
	if d.Writes.ConfirmWithin == 0 {
		d.Writes.ConfirmWithin = defaultConfirmWithin
	}
	errs := d.problems()
	if len(d.FinalSchema) > 0 {
		canonical, err := canonicalSchema(d.FinalSchema)
		if err == nil {
			_, err = schema.Compile(canonical)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("final_schema: %w", err))
		}
		d.FinalSchema = canonical
	}
	if err := errors.Join(errs...); err != nil {
		return Definition{}, fmt.Errorf("definition %q: %w", d.Name, err)
	}
	return d, nil
}

// canonicalSchema gives equal schemas equal bytes, so that a definition that
// went through a database or an encoder is the same definition.
func canonicalSchema(raw json.RawMessage) (json.RawMessage, error) {
	return tool.Canonical(string(raw), schema.MaxSchemaBytes)
}

func (l Loop) withDefaults() Loop {
	fill := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	fill(&l.SameAction, defaultSameAction)
	fill(&l.SameResult, defaultSameResult)
	fill(&l.SameError, defaultSameError)
	fill(&l.Cycle, defaultCycle)
	fill(&l.ModelTries, defaultModelTries)
	fill(&l.ParallelReads, defaultParallelReads)
	fill(&l.LookUpTries, defaultLookUpTries)
	retries := defaultMalformedRetries
	if l.MalformedRetries != nil {
		retries = *l.MalformedRetries
	}
	l.MalformedRetries = &retries
	if l.RetryInitial == 0 {
		l.RetryInitial = defaultRetryInitial
	}
	if l.RetryMax == 0 {
		// A longer first wait that is given must not need a second field.
		l.RetryMax = max(defaultRetryMax, l.RetryInitial)
	}
	return l
}
