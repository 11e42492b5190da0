package memorypolicy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// MaxPolicyBytes bounds the text of a policy.
const MaxPolicyBytes = 1 << 20

// document is the YAML form.
type document struct {
	Version  string                 `yaml:"version"`
	Require  []string               `yaml:"require"`
	Sources  map[string]worthDoc    `yaml:"sources"`
	Agreed   map[string]agreedDoc   `yaml:"agreement"`
	Denied   []string               `yaml:"deny_sources"`
	Rejected []string               `yaml:"reject_if_contains"`
	Kinds    map[string]handlingDoc `yaml:"kinds"`
	Phrases  phrasesDoc             `yaml:"phrases"`
	Keys     map[string]keyDoc      `yaml:"keys"`
	Read     map[string][]grantDoc  `yaml:"read"`
}

type worthDoc struct {
	Validation string  `yaml:"validation"`
	Confidence float64 `yaml:"confidence"`
	Consent    string  `yaml:"consent"`
}

type agreedDoc struct {
	Confidence float64 `yaml:"confidence"`
	Consent    string  `yaml:"consent"`
}

type handlingDoc struct {
	WriteMode    string   `yaml:"write_mode"`
	SharedMode   string   `yaml:"shared_mode"`
	Retention    string   `yaml:"retention"`
	DecideWithin string   `yaml:"decide_within"`
	Sources      []string `yaml:"sources"`
	Scopes       []string `yaml:"scopes"`
	Events       string   `yaml:"events"`
}

type phrasesDoc struct {
	Negation     [][]string `yaml:"negation"`
	NoNegation   [][]string `yaml:"no_negation"`
	Standing     [][]string `yaml:"standing"`
	Once         [][]string `yaml:"once"`
	Correction   [][]string `yaml:"correction"`
	Retraction   [][]string `yaml:"retraction"`
	Others       [][]string `yaml:"others"`
	Polite       [][]string `yaml:"polite"`
	Self         [][]string `yaml:"self"`
	Leaders      [][]string `yaml:"leaders"`
	Instructions [][]string `yaml:"instructions"`
	Wishes       [][]string `yaml:"wishes"`
	Forgetting   [][]string `yaml:"forgetting"`
	Past         [][]string `yaml:"past"`
	Present      [][]string `yaml:"present"`
	Doubt        [][]string `yaml:"doubt"`
	Times        [][]string `yaml:"times"`
	Rights       [][]string `yaml:"rights"`
}

type keyDoc struct {
	Kind        string                         `yaml:"kind"`
	Description string                         `yaml:"description"`
	Purpose     string                         `yaml:"purpose"`
	Schema      map[string]any                 `yaml:"schema"`
	Identity    []string                       `yaml:"identity"`
	Words       map[string]map[string][]string `yaml:"words"`
	Otherwise   map[string]string              `yaml:"otherwise"`
	Speaks      []string                       `yaml:"speaks"`
	Standing    string                         `yaml:"standing"`
	Personal    bool                           `yaml:"personal"`
	Allow       []string                       `yaml:"allow"`
	Sensitivity string                         `yaml:"sensitivity"`
	Handling    handlingDoc                    `yaml:",inline"`
}

type grantDoc struct {
	Kinds         []string `yaml:"kinds"`
	Validation    []string `yaml:"validation"`
	Scopes        []string `yaml:"scopes"`
	Sensitivity   []string `yaml:"sensitivity"`
	MinConfidence float64  `yaml:"min_confidence"`
}

// Parse reads a policy. Unknown fields, repeated keys, a second document, and
// values of another type than the field's are refused. The error names every
// place at fault and says what is expected there.
func Parse(text []byte) (*Policy, error) {
	if len(text) > MaxPolicyBytes {
		return nil, fmt.Errorf("memory policy has %d bytes, the limit is %d", len(text), MaxPolicyBytes)
	}
	// The decoder would put U+FFFD in place of what it cannot read.
	if !utf8.Valid(text) {
		return nil, errors.New("memory policy: the text is not valid UTF-8")
	}
	doc, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("memory policy: %w", err)
	}
	p, err := compile(doc)
	if err != nil {
		return nil, fmt.Errorf("memory policy: %w", err)
	}
	sum := sha256.Sum256(text)
	p.digest = hex.EncodeToString(sum[:])
	return p, nil
}

// decode guards against the decoder, which panics on some malformed texts.
func decode(text []byte) (doc document, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("the text is not valid YAML")
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var tree, second any
	if err := dec.Decode(&tree); err != nil && !errors.Is(err, io.EOF) {
		return document{}, err
	}
	if tree == nil {
		return document{}, errors.New("the text is empty")
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return document{}, errors.New("the text has more than one document: write one policy to a file")
	}
	if err := errors.Join(checkTypes("", reflect.TypeFor[document](), tree)...); err != nil {
		return document{}, err
	}
	err = yaml.UnmarshalWithOptions(text, &doc, yaml.DisallowUnknownField())
	return doc, err
}

// checkTypes compares what YAML read with the type that it is for. The decoder
// alone would read the number 1.10 into a string as "1.1", nothing into anything,
// and ignore what it does not know in some places.
func checkTypes(place string, t reflect.Type, value any) []error {
	wrong := func(format string, args ...any) []error {
		return []error{fmt.Errorf("%s "+format, append([]any{named(place)}, args...)...)}
	}
	if value == nil {
		return wrong("is empty: give it a value or leave it out")
	}
	switch t.Kind() {
	case reflect.Interface:
		return nil
	case reflect.String:
		switch value.(type) {
		case string:
			return nil
		case int64, uint64, float64, bool:
			return wrong("must be a string: put it in quotes")
		}
		return wrong("must be a string")
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			return wrong("must be true or false")
		}
		return nil
	case reflect.Float64:
		switch value.(type) {
		case int64, uint64, float64:
			return nil
		}
		return wrong("must be a number, without quotes")
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			return wrong("must be a list")
		}
		var errs []error
		for i, item := range list {
			errs = append(errs, checkTypes(fmt.Sprintf("%s[%d]", place, i), t.Elem(), item)...)
		}
		return errs
	}
	mapping, ok := value.(map[string]any)
	if !ok {
		return wrong("must be a mapping")
	}
	var errs []error
	known := fieldsOf(t)
	for _, name := range slices.Sorted(maps.Keys(mapping)) {
		below := strings.TrimPrefix(place+"."+name, ".")
		elem := known[name]
		if t.Kind() == reflect.Map {
			elem = t.Elem()
		}
		if elem == nil {
			errs = append(errs, fmt.Errorf("%s is not known: use one of %s", below, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
			continue
		}
		errs = append(errs, checkTypes(below, elem, mapping[name])...)
	}
	return errs
}

func named(place string) string {
	if place == "" {
		return "the text"
	}
	return place
}

// fieldsOf returns the fields of a struct by their names in YAML.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if t.Kind() != reflect.Struct {
		return nil
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if option == "inline" {
			maps.Copy(fields, fieldsOf(f.Type))
			continue
		}
		fields[name] = f.Type
	}
	return fields
}
