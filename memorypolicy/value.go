package memorypolicy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/gowebpki/jcs"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy/detect"
	"github.com/fairlead/fairlead/tool/schema"
)

// leaf is one field of a normalized value.
type leaf struct {
	field
	// text is the value of a text, or the digits of an integer.
	text string
}

// texts are all texts of a value as it was proposed.
type texts struct {
	values []string
	// named are the names of fields, and each text with the name of its field.
	named []string
}

// maxPairs is up to how many texts are looked at together.
const maxPairs = 6

// all returns the texts in every form in which they could say something: alone,
// and as "this: that", because a word in one field may give a meaning to another.
func (t texts) all() []string {
	list := slices.Concat(t.named, t.values, changed(t.values))
	if len(t.values) > maxPairs {
		return append(list, strings.Join(t.values, " "))
	}
	for i, a := range t.values {
		for j, b := range t.values {
			if i != j {
				list = append(list, a+": "+b)
			}
		}
	}
	return list
}

// parse reads the value strictly and takes its texts.
func (e *evaluation) parse() bool {
	if e.c.Retracts && len(e.c.Value) == 0 {
		return true
	}
	parsed, err := schema.Parse(string(e.c.Value), agent.MaxMemoryValueBytes)
	if err != nil {
		// The reader's errors hold no piece of the text.
		return e.refuse("value.json", "the value is refused: %v", err)
	}
	e.raw = collect(e.k.unchosen(parsed))
	e.normal = normalize(parsed)
	return true
}

// fit checks the normalized value against the key's schema and derives the
// identity.
func (e *evaluation) fit() bool {
	if e.c.Retracts {
		return e.fitIdentity()
	}
	if err := e.k.schema.Validate(e.normal); err != nil {
		return e.refuse("value.schema", "the value does not fit key %s: %v", e.k.name, err)
	}
	value, ok := canonical(e.normal)
	if !ok || len(value) > agent.MaxMemoryValueBytes {
		return e.refuse("value.size", "the value has more than %d bytes", agent.MaxMemoryValueBytes)
	}
	e.d.Value = value
	e.value = e.k.leaves(e.normal)
	e.d.Identity = e.k.identityOf(e.normal)
	return e.pass("value", "the value fits the schema of key %s", e.k.name)
}

// fitIdentity keeps of a retraction's value what names the record.
func (e *evaluation) fitIdentity() bool {
	fields, _ := e.normal.(map[string]any)
	named := map[string]any{}
	for _, name := range e.k.identity {
		f := e.k.fields[e.k.index(name)]
		v, ok := fields[name]
		if !ok || f.schema.Validate(v) != nil {
			return e.refuse("value.identity", "key %s has several records: a retraction must have the fields %s", e.k.name, strings.Join(e.k.identity, ", "))
		}
		named[name] = v
	}
	if len(named) > 0 {
		e.value = e.k.leaves(named)
	}
	e.d.Identity = e.k.identityOf(named)
	return e.pass("value", "the retraction needs no value of key %s", e.k.name)
}

// leaves returns the fields that a normalized value has.
func (k *key) leaves(normal any) []leaf {
	fields, ok := normal.(map[string]any)
	if !ok {
		fields = map[string]any{whole: normal}
	}
	var list []leaf
	for _, f := range k.fields {
		switch v := fields[f.name].(type) {
		case string:
			list = append(list, leaf{f, v})
		case json.Number:
			digits, _ := canonical(v)
			list = append(list, leaf{f, string(digits)})
		}
	}
	return list
}

// unchosen returns v without what its schema lets choose from. That holds nothing,
// and beside another field it reads like something: "password reset page: done".
func (k *key) unchosen(v any) any {
	fields, ok := v.(map[string]any)
	if !ok {
		return v
	}
	left := maps.Clone(fields)
	for _, f := range k.fields {
		if slices.ContainsFunc(f.choices, func(ch choice) bool { return left[f.name] == ch.value }) {
			delete(left, f.name)
		}
	}
	return left
}

// free reports whether a value can have a free text.
func (k *key) free() bool { return slices.ContainsFunc(k.fields, field.free) }

// collect returns the texts of a value.
func collect(v any) (t texts) {
	add := func(o texts) {
		t = texts{append(t.values, o.values...), append(t.named, o.named...)}
	}
	switch v := v.(type) {
	case string:
		t.values = []string{v}
	case json.Number:
		t.values = []string{string(v)}
	case []any:
		for _, item := range v {
			add(collect(item))
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			below := collect(v[name])
			t.named = append(t.named, name)
			for _, value := range below.values {
				t.named = append(t.named, name+": "+value)
			}
			add(below)
		}
	}
	return t
}

// changed returns the normalized forms of those texts that have another one.
func changed(list []string) (forms []string) {
	for _, t := range list {
		if n := detect.Normalize(t); n != t && n != "" {
			forms = append(forms, n)
		}
	}
	return forms
}

// normalize returns v with all its texts normalized. Names of fields stay: a
// schema knows them as they are.
func normalize(v any) any {
	switch v := v.(type) {
	case string:
		return detect.Normalize(v)
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = normalize(item)
		}
		return list
	case map[string]any:
		fields := make(map[string]any, len(v))
		for name, item := range v {
			fields[name] = normalize(item)
		}
		return fields
	}
	return v
}

// canonical writes v as RFC 8785 does.
func canonical(v any) (_ json.RawMessage, ok bool) {
	// A defect of the library must not take the worker down.
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	text, err := json.Marshal(v)
	if err != nil {
		return nil, false
	}
	text, err = jcs.Transform(text)
	return text, err == nil
}

// identityOf returns the identity of a normalized value.
func (k *key) identityOf(normal any) string {
	if len(k.identity) == 0 {
		return ""
	}
	fields, _ := normal.(map[string]any)
	named := map[string]any{}
	for _, name := range k.identity {
		named[name] = folded(fields[name])
	}
	text, _ := canonical(named)
	return string(text)
}

// folded returns v with its texts folded.
func folded(v any) any {
	switch v := v.(type) {
	case string:
		return detect.Fold(v)
	case map[string]any:
		fields := make(map[string]any, len(v))
		for name, item := range v {
			fields[name] = folded(item)
		}
		return fields
	}
	return v
}
