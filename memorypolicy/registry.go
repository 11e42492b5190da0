package memorypolicy

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/fairlead/fairlead/memorypolicy/detect"
	"github.com/fairlead/fairlead/tool/schema"
)

var keyName = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$`)

const maxKeyName = 64

// Bounds of what a key says to models and people.
const (
	maxDescription = 400
	maxPurpose     = 200
	maxLength      = 2000
)

// key compiles one key of the registry.
func (c *compiler) key(name string, d keyDoc) {
	place := "keys." + name
	if !keyName.MatchString(name) || len(name) > maxKeyName {
		c.fault(place, "must be named in two or more parts of a-z, 0-9 and _ with points between them, such as preference.language")
	}
	k := &key{
		name: name, description: d.Description, purpose: d.Purpose, speaks: c.list(place+".speaks", d.Speaks),
		personal: d.Personal, allow: map[detect.Category]bool{}, sensitivity: sensitivityNormal,
	}
	if d.Description == "" || len(d.Description) > maxDescription {
		c.fault(place+".description", "must say in 1 to %d bytes what the key holds and when to use it", maxDescription)
	}
	if d.Purpose == "" || len(d.Purpose) > maxPurpose || detect.Normalize(d.Purpose) != d.Purpose {
		c.fault(place+".purpose", "must say in 1 to %d bytes what it is kept for", maxPurpose)
	}
	kind, ok := oneOf(c, place+".kind", d.Kind, slices.Sorted(maps.Keys(c.p.kinds)))
	if !ok {
		return
	}
	k.kind = kind
	k.handling = c.handling(place, d.Handling, c.p.kinds[kind])
	if d.Standing != "" {
		k.standing, _ = oneOf(c, place+".standing", d.Standing, standingRules)
	}
	for _, category := range choices(c, place+".allow", d.Allow, allowable) {
		k.allow[category] = true
	}
	if d.Sensitivity != "" {
		k.sensitivity, _ = oneOf(c, place+".sensitivity", d.Sensitivity, sensitivities)
	}
	if len(k.allow) > 0 && k.sensitivity == sensitivityNormal {
		c.fault(place+".sensitivity", "must be said, because allow lets sensitive content in")
	}
	c.schema(place, k, d)
	c.p.keys[name] = k
}

// keywords are all that a value's schema may use, for the value and its fields.
var (
	objectKeywords = []string{"type", "properties", "required", "additionalProperties", "description"}
	textKeywords   = []string{"type", "enum", "minLength", "maxLength", "pattern", "format", "description"}
	numberKeywords = []string{"type", "minimum", "maximum", "description"}
)

// schema compiles a key's schema, whose values are small and flat: a text, an
// integer, or an object of these.
func (c *compiler) schema(place string, k *key, d keyDoc) {
	at := place + ".schema"
	if len(d.Schema) == 0 {
		c.fault(at, "is missing: say what a value looks like")
		return
	}
	text, err := json.Marshal(d.Schema)
	if err != nil {
		c.fault(at, "is no JSON Schema")
		return
	}
	k.text = text
	fields := map[string]any{whole: d.Schema}
	if k.object = d.Schema["type"] == "object"; k.object {
		c.only(at, d.Schema, objectKeywords)
		fields, _ = d.Schema["properties"].(map[string]any)
		if len(fields) == 0 {
			c.fault(at+".properties", "must have a field at least")
		}
		k.schema, err = schema.CompileArguments(text)
	} else {
		k.schema, err = schema.Compile(text)
	}
	if err != nil {
		c.fault(at, "is wrong: %v", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		c.field(place, k, name, fields[name], d.Words[name])
	}
	for _, name := range slices.Sorted(maps.Keys(d.Words)) {
		if i := k.index(name); i < 0 || k.fields[i].choices == nil {
			c.fault(place+".words."+name, "is no field with an enum")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Otherwise)) {
		if !k.otherwise(name, d.Otherwise[name]) {
			c.fault(place+".otherwise."+name, "is no value of an enum of the schema")
		}
	}
	required, _ := d.Schema["required"].([]any)
	for i, name := range d.Identity {
		if !k.object || k.index(name) < 0 || !slices.Contains(required, any(name)) || slices.Index(d.Identity, name) != i {
			c.fault(fmt.Sprintf("%s.identity[%d]", place, i), "must be a required field of the schema, once")
		}
	}
	k.identity = slices.Clone(d.Identity)
}

func (k *key) index(name string) int {
	return slices.IndexFunc(k.fields, func(f field) bool { return f.name == name })
}

// otherwise marks the value of an enum that is meant if nothing is said; false if
// there is none.
func (k *key) otherwise(name, value string) bool {
	i := k.index(name)
	if i < 0 {
		return false
	}
	n := slices.IndexFunc(k.fields[i].choices, func(ch choice) bool { return ch.value == value })
	if n >= 0 {
		k.fields[i].choices[n].otherwise = true
	}
	return n >= 0
}

// field compiles the schema of one field, and the words of its enum.
func (c *compiler) field(place string, k *key, name string, node any, words map[string][]string) {
	at := place + ".schema"
	if k.object {
		at += ".properties." + name
	}
	s, ok := node.(map[string]any)
	if !ok {
		c.fault(at, "must be a schema")
		return
	}
	f := field{name: name}
	text, err := json.Marshal(s)
	if err == nil {
		f.schema, err = schema.Compile(text)
	}
	if err != nil {
		c.fault(at, "is wrong: %v", err)
		return
	}
	switch s["type"] {
	case "integer":
		c.only(at, s, numberKeywords)
		f.integer = true
		if s["minimum"] == nil || s["maximum"] == nil {
			c.fault(at, "must have minimum and maximum")
		}
	case "string":
		c.only(at, s, textKeywords)
		values, enum := s["enum"].([]any)
		if !enum {
			if !bounded(s["maxLength"]) {
				c.fault(at+".maxLength", "must be from 1 to %d, so that a value stays small", maxLength)
			}
			break
		}
		c.choices(place+".words."+name, k, &f, values, words)
	default:
		c.fault(at+".type", "must be string or integer: values are small and flat")
	}
	k.fields = append(k.fields, f)
}

func bounded(v any) bool {
	switch n := v.(type) {
	case uint64:
		return n >= 1 && n <= maxLength
	case int64:
		return n >= 1 && n <= maxLength
	}
	return false
}

// choices reads the words of an enum. They are needed if models may propose the
// key: else nothing could be told from what the user said.
func (c *compiler) choices(place string, k *key, f *field, values []any, words map[string][]string) {
	f.choices = []choice{}
	for _, v := range values {
		value, ok := v.(string)
		if !ok || detect.Normalize(value) != value || value == "" {
			c.fault(place, "is about an enum of texts without invisible characters only")
			return
		}
		f.choices = append(f.choices, choice{value: value, words: c.list(place+"."+value, words[value])})
		if len(words[value]) == 0 && k.spec().FromModel {
			c.fault(place+"."+value, "is missing: list the words that users say for it, or a model's claim could not be checked")
		}
	}
	for _, value := range slices.Sorted(maps.Keys(words)) {
		if !slices.ContainsFunc(f.choices, func(ch choice) bool { return ch.value == value }) {
			c.fault(place+"."+value, "is no value of the enum")
		}
	}
}

// only refuses keywords that a value's schema has no use for, and that could let
// in more than the policy's author sees.
func (c *compiler) only(place string, s map[string]any, keywords []string) {
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		if !slices.Contains(keywords, keyword) {
			c.fault(place+"."+keyword, "is not for memory values: use %s", join(keywords))
		}
	}
}
