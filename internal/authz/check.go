package authz

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// checker knows the names that a policy can refer to.
type checker struct {
	types   map[string]bool
	actions map[string]bool
}

func newChecker(entities cedar.EntityMap) checker {
	c := checker{
		types:   map[string]bool{string(typeUser): true, string(typeGroup): true, string(typeTool): true, string(typeAction): true},
		actions: map[string]bool{},
	}
	know := func(uid cedar.EntityUID) {
		c.types[string(uid.Type)] = true
		if uid.Type == typeAction {
			c.actions[string(uid.ID)] = true
		}
	}
	for _, uid := range actions {
		know(uid)
	}
	for uid, entity := range entities {
		know(uid)
		for parent := range entity.Parents.All() {
			know(parent)
		}
	}
	return c
}

// checkPolicy refuses names that nothing has: users and groups without a tenant,
// actions, entity types and attributes of the context that do not exist. To
// Cedar they are valid and never match, so that a misspelled forbid would
// forbid nothing.
func (c checker) checkPolicy(policy *cedar.Policy) error {
	// Cedar's JSON form of policies is stable, its syntax tree is experimental.
	text, err := policy.MarshalJSON()
	if err != nil {
		return fmt.Errorf("write as JSON: %w", err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return fmt.Errorf("read its JSON: %w", err)
	}
	return c.walk(tree)
}

func (c checker) walk(node any) error {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			if err := c.walk(child); err != nil {
				return err
			}
		}
	case map[string]any:
		if err := c.checkNode(node); err != nil {
			return err
		}
		// In a stable order, so that of two errors the same one is reported.
		for _, key := range slices.Sorted(maps.Keys(node)) {
			if err := c.walk(node[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c checker) checkNode(node map[string]any) error {
	// A literal such as Group::"acme/approvers".
	if kind, ok := node["type"].(string); ok {
		if id, ok := node["id"].(string); ok {
			if err := c.checkType(kind); err != nil {
				return err
			}
			if kind == string(typeAction) && !c.actions[id] {
				return fmt.Errorf("no action is called %q: there are %s", id, list(slices.Sorted(maps.Keys(c.actions))))
			}
			return checkTenant(cedar.NewEntityUID(cedar.EntityType(kind), cedar.String(id)))
		}
	}
	// principal is User
	if kind, ok := node["entity_type"].(string); ok {
		return c.checkType(kind)
	}
	// context.name, context["name"], context has name
	if left, ok := node["left"].(map[string]any); ok && left["Var"] == "context" {
		if name, ok := node["attr"].(string); ok && !slices.Contains(contextAttributes, name) {
			return fmt.Errorf("context has no attribute %q: it has %s", name, list(contextAttributes))
		}
	}
	return nil
}

func (c checker) checkType(kind string) error {
	if !c.types[kind] {
		return fmt.Errorf("the entity type %q does not exist: there are %s (more come from %s)", kind, list(slices.Sorted(maps.Keys(c.types))), entitiesFile)
	}
	return nil
}

func list(names []string) string { return strings.Join(names, ", ") }
