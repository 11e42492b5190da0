package schema

import (
	"fmt"
	"slices"
	"strings"
)

// closer adds the closing keyword to the object schemas of one document, in
// place. A position is where a schema describes a value of its own; keywords
// such as allOf apply further schemas to the same value, and closing one of
// those alone would refuse what its neighbours declare.
type closer struct{ root map[string]any }

func closeObjects(root map[string]any) error {
	c := closer{root}
	if err := c.children(root); err != nil {
		return err
	}
	c.seal(root)
	return nil
}

var (
	sameValueLists = []string{"allOf", "anyOf", "oneOf"}
	sameValueOnes  = []string{"then", "else"}
	sameValueMaps  = []string{"dependentSchemas"}
	definitions    = []string{"$defs", "definitions"}
	childMaps      = []string{"properties", "patternProperties"}
	childOnes      = []string{"additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems"}
	childLists     = []string{"prefixItems"}
)

// position closes a schema that describes a value of its own, and what is below.
func (c closer) position(node any) error {
	schema, ok := node.(map[string]any)
	if !ok {
		return nil
	}
	if err := c.children(schema); err != nil {
		return err
	}
	if c.declares(schema, nil) {
		c.seal(schema)
	}
	return nil
}

// children walks to every position below schema. It leaves "not", "if" and
// "contains" alone: they ask a question, and closing would change the answer.
func (c closer) children(schema map[string]any) error {
	if err := checkReference(schema); err != nil {
		return err
	}
	walk := func(keywords []string, visit func(any) error) error {
		for _, keyword := range keywords {
			for _, sub := range subschemas(schema[keyword], keyword) {
				if err := visit(sub); err != nil {
					return err
				}
			}
		}
		return nil
	}
	same := func(node any) error {
		if sub, ok := node.(map[string]any); ok {
			return c.children(sub)
		}
		return nil
	}
	for _, keywords := range [][]string{sameValueLists, sameValueOnes, sameValueMaps, definitions} {
		if err := walk(keywords, same); err != nil {
			return err
		}
	}
	for _, keywords := range [][]string{childMaps, childOnes, childLists} {
		if err := walk(keywords, c.position); err != nil {
			return err
		}
	}
	return nil
}

// subschemas returns the schemas that one keyword holds, in whatever form.
func subschemas(held any, keyword string) []any {
	switch held := held.(type) {
	case []any:
		return held
	case map[string]any:
		if !slices.Contains(childMaps, keyword) && !slices.Contains(sameValueMaps, keyword) && !slices.Contains(definitions, keyword) {
			return []any{held}
		}
		subs := make([]any, 0, len(held))
		for _, sub := range held {
			subs = append(subs, sub)
		}
		return subs
	}
	return nil
}

// declares reports whether schema, or one that applies to the same value, has
// properties.
func (c closer) declares(schema map[string]any, seen []string) bool {
	if _, ok := schema["properties"]; ok {
		return true
	}
	for _, keywords := range [][]string{sameValueLists, sameValueOnes, sameValueMaps} {
		for _, keyword := range keywords {
			for _, node := range subschemas(schema[keyword], keyword) {
				if sub, ok := node.(map[string]any); ok && c.declares(sub, seen) {
					return true
				}
			}
		}
	}
	ref, ok := schema["$ref"].(string)
	if !ok || slices.Contains(seen, ref) {
		return false
	}
	target, ok := c.resolve(ref)
	return ok && c.declares(target, append(seen, ref))
}

func (c closer) seal(schema map[string]any) {
	if _, ok := schema["additionalProperties"]; ok {
		return
	}
	if _, ok := schema["unevaluatedProperties"]; ok {
		return
	}
	keyword := "additionalProperties"
	for _, spread := range []string{"allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "$ref"} {
		if _, ok := schema[spread]; ok {
			keyword = "unevaluatedProperties"
		}
	}
	schema[keyword] = false
}

func checkReference(schema map[string]any) error {
	for _, keyword := range []string{"$dynamicRef", "$recursiveRef"} {
		if _, ok := schema[keyword]; ok {
			return fmt.Errorf("%s is not supported in arguments", keyword)
		}
	}
	ref, ok := schema["$ref"].(string)
	if !ok || ref == "#" {
		return nil
	}
	if _, ok := definitionName(ref); !ok {
		return fmt.Errorf("$ref %q must be # or #/$defs/name", ref)
	}
	return nil
}

func definitionName(ref string) (path [2]string, ok bool) {
	for _, section := range definitions {
		if name, found := strings.CutPrefix(ref, "#/"+section+"/"); found && !strings.ContainsAny(name, "/~%") {
			return [2]string{section, name}, true
		}
	}
	return path, false
}

func (c closer) resolve(ref string) (map[string]any, bool) {
	if ref == "#" {
		return c.root, true
	}
	path, ok := definitionName(ref)
	if !ok {
		return nil, false
	}
	section, _ := c.root[path[0]].(map[string]any)
	target, ok := section[path[1]].(map[string]any)
	return target, ok
}
