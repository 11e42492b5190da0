package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// MaxMessageBytes bounds what Validate says about one document.
const MaxMessageBytes = 300

// maxProblems is how many violations one message names.
const maxProblems = 3

// maxListed is how many names or allowed values one problem lists.
const maxListed = 12

// explain writes a violation for a model that is to correct it. Sorting makes
// the text the same each time: the library walks maps in random order.
func (s *Schema) explain(violation *jsonschema.ValidationError) string {
	problems := s.problems(violation, nil)
	slices.Sort(problems)
	problems = slices.Compact(problems)
	var b strings.Builder
	for i, problem := range problems {
		sep := ""
		if i > 0 {
			sep = "; "
		}
		if i == maxProblems || b.Len()+len(sep)+len(problem) > MaxMessageBytes-len("; and more") {
			if i == 0 {
				return cut(problem, MaxMessageBytes)
			}
			b.WriteString("; and more")
			break
		}
		b.WriteString(sep + problem)
	}
	return b.String()
}

func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	limit -= len("...")
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "..."
}

func (s *Schema) problems(v *jsonschema.ValidationError, found []string) []string {
	switch v.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf, *kind.Not, *kind.Contains, *kind.MinContains, *kind.MaxContains, *kind.PropertyNames:
		// What failed inside are alternatives, not separate faults.
		return append(found, s.problem(v))
	}
	if len(v.Causes) == 0 {
		return append(found, s.problem(v))
	}
	for _, cause := range v.Causes {
		found = s.problems(cause, found)
	}
	return found
}

func (s *Schema) problem(v *jsonschema.ValidationError) string {
	location := v.InstanceLocation
	if _, unknown := v.ErrorKind.(*kind.FalseSchema); unknown && len(location) > 0 {
		location = location[:len(location)-1]
	}
	keyword := "schema"
	if path := v.ErrorKind.KeywordPath(); len(path) > 0 {
		keyword = path[0]
	}
	where := "at the top level"
	if len(location) > 0 {
		where = "at " + s.pointer(location)
	}
	return where + ": " + s.complaint(v, keyword)
}

// pointer is the JSON pointer of a place, with keys that the schema does not
// declare written as *: they are the model's own text.
func (s *Schema) pointer(location []string) string {
	var b strings.Builder
	for _, token := range location {
		b.WriteByte('/')
		if _, err := strconv.ParseUint(token, 10, 16); err != nil && !s.names[token] {
			token = "*"
		}
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return b.String()
}

// complaint says what a keyword expects. Everything in it comes from the schema.
func (s *Schema) complaint(v *jsonschema.ValidationError, keyword string) string {
	switch k := v.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		return "unknown field (additionalProperties)" + s.declaredAt(v.SchemaURL)
	case *kind.FalseSchema:
		return "unknown field (unevaluatedProperties)"
	case *kind.Required:
		return "missing (required): " + list(k.Missing)
	case *kind.DependentRequired:
		return "missing (dependentRequired): " + list(k.Missing)
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ") + " (type)"
	case *kind.Enum:
		return "must be one of (enum): " + values(k.Want)
	case *kind.Const:
		return "must be (const): " + values([]any{k.Want})
	case *kind.Minimum:
		return "must be at least " + number(k.Want) + " (minimum)"
	case *kind.Maximum:
		return "must be at most " + number(k.Want) + " (maximum)"
	case *kind.ExclusiveMinimum:
		return "must be more than " + number(k.Want) + " (exclusiveMinimum)"
	case *kind.ExclusiveMaximum:
		return "must be less than " + number(k.Want) + " (exclusiveMaximum)"
	case *kind.MultipleOf:
		return "must be a multiple of " + number(k.Want) + " (multipleOf)"
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters (minLength)", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters (maxLength)", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items (minItems)", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items (maxItems)", k.Want)
	case *kind.Pattern:
		return "must match " + cut(k.Want, 120) + " (pattern)"
	case *kind.Format:
		return "must be a valid " + k.Want + " (format)"
	default:
		return "does not fit (" + keyword + ")"
	}
}

// declaredAt lists the fields that the schema at url declares.
func (s *Schema) declaredAt(url string) string {
	_, pointer, _ := strings.Cut(url, "#")
	var node any = s.doc
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		fields, ok := node.(map[string]any)
		if !ok {
			return ""
		}
		node = fields[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]
	}
	schema, _ := node.(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	if len(properties) == 0 {
		return ""
	}
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return "; known: " + list(names)
}

func list(names []string) string {
	if len(names) > maxListed {
		return strings.Join(names[:maxListed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

func values(allowed []any) string {
	texts := make([]string, 0, len(allowed))
	for _, value := range allowed {
		text, err := json.Marshal(value)
		if err != nil {
			continue
		}
		texts = append(texts, cut(string(text), 60))
	}
	return list(texts)
}

func number(want *big.Rat) string {
	f, _ := want.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// collectNames gathers the keys of every "properties" in a schema.
func collectNames(node any, names map[string]bool) {
	switch node := node.(type) {
	case map[string]any:
		for keyword, held := range node {
			if properties, ok := held.(map[string]any); ok && keyword == "properties" {
				for name := range properties {
					names[name] = true
				}
			}
			collectNames(held, names)
		}
	case []any:
		for _, item := range node {
			collectNames(item, names)
		}
	}
}
