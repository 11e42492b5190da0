package schema

import (
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Draft is the one dialect that is accepted.
const Draft = "https://json-schema.org/draft/2020-12/schema"

// MaxSchemaBytes bounds the text of a schema.
const MaxSchemaBytes = 256 << 10

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	// doc is what was compiled; names are the property names that occur in it,
	// the only keys of a document that a message may repeat.
	doc   map[string]any
	names map[string]bool
}

// Compile compiles a JSON Schema 2020-12 as it is written. The keyword "format"
// is enforced. References may point into the schema itself or to the official
// metaschemas, which are built in; nothing is loaded.
func Compile(raw []byte) (*Schema, error) {
	doc, err := read(raw)
	if err != nil {
		return nil, err
	}
	return compile(doc)
}

// CompileArguments compiles the schema of a tool's arguments, which must be of
// type object, and closes it: a field that is not declared is refused although
// the schema does not say so.
//
// Each object schema that declares properties and says nothing about others
// gets additionalProperties: false, or unevaluatedProperties: false where the
// declarations are spread over allOf, anyOf, oneOf, if, dependentSchemas or
// $ref. The top level is always closed; one that explicitly allows other fields
// is an error. A nested object that declares no properties stays a free-form
// map. References must have the form "#" or "#/$defs/name".
func CompileArguments(raw []byte) (*Schema, error) {
	doc, err := read(raw)
	if err != nil {
		return nil, err
	}
	if doc["type"] != "object" {
		return nil, errors.New(`the top level must say "type": "object"`)
	}
	for _, keyword := range []string{"additionalProperties", "unevaluatedProperties"} {
		if allowed, present := doc[keyword]; present && allowed != false {
			return nil, fmt.Errorf("%s at the top level must be false or absent: declare every field, and put a free-form map into one of them", keyword)
		}
	}
	// Compiled as written first, so that mistakes are reported in the author's
	// terms and the closing pass sees a well-formed schema.
	if _, err := compile(doc); err != nil {
		return nil, err
	}
	if doc, err = read(raw); err != nil {
		return nil, err
	}
	if err := closeObjects(doc); err != nil {
		return nil, err
	}
	return compile(doc)
}

func read(raw []byte) (map[string]any, error) {
	value, err := Parse(string(raw), MaxSchemaBytes)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	doc, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("a schema must be a JSON object")
	}
	if draft, present := doc["$schema"]; present && draft != Draft && draft != Draft+"#" {
		return nil, fmt.Errorf("$schema must be %q or absent", Draft)
	}
	return doc, nil
}

// noLoader refuses every reference that leaves the schema.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("schemas load nothing: put what is referred to under $defs")
}

func compile(doc map[string]any) (s *Schema, err error) {
	// A defect of the library must not take the worker down.
	defer func() {
		if recover() != nil {
			s, err = nil, errors.New("the schema cannot be compiled")
		}
	}()
	const url = "urn:fairlead:schema"
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(noLoader{})
	compiler.AssertFormat()
	if err := compiler.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	compiled, err := compiler.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	names := map[string]bool{}
	collectNames(doc, names)
	return &Schema{compiled: compiled, doc: doc, names: names}, nil
}

// Validate checks a value as Parse returns it. The error names the fields at
// fault and the keywords that failed, is at most MaxMessageBytes long, the same
// for the same document, and repeats no value and no undeclared key.
func (s *Schema) Validate(value any) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("cannot be checked against the schema")
		}
	}()
	failed := s.compiled.Validate(value)
	if failed == nil {
		return nil
	}
	var violation *jsonschema.ValidationError
	if !errors.As(failed, &violation) {
		return errors.New("does not fit the schema")
	}
	return errors.New(s.explain(violation))
}
