package authz

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cedar-policy/cedar-go"
)

// entitiesFile holds users, groups and what else policies know, in Cedar's JSON
// form of entities.
const entitiesFile = "entities.json"

// reserved are the attributes that the question sets and entitiesFile may not.
var reserved = map[cedar.EntityType][]cedar.String{
	typeUser: {"tenant", "name"},
	typeTool: {"name", "risk"},
}

// ofTenant names a user or a group. Tenants have no "/" in their names, so that
// no two pairs of tenant and name have the same ID.
func ofTenant(kind cedar.EntityType, tenant, name string) cedar.EntityUID {
	return cedar.NewEntityUID(kind, cedar.String(tenant+"/"+name))
}

// splitTenant is the inverse of ofTenant; ok is false if id has no tenant or no
// name.
func splitTenant(id cedar.String) (tenant, name string, ok bool) {
	tenant, name, _ = strings.Cut(string(id), "/")
	return tenant, name, tenant != "" && name != ""
}

// overlay lays principal and tool of one question over the entities of the
// file, which are shared by all questions.
type overlay struct {
	file            cedar.EntityMap
	principal, tool cedar.Entity
}

func (p *Policies) overlay(q Question) *overlay {
	o := &overlay{file: p.entities}
	o.principal = o.user(ofTenant(typeUser, q.Tenant, q.User))
	uid := cedar.NewEntityUID(typeTool, cedar.String(q.Tool))
	o.tool = with(p.entities[uid], uid, cedar.RecordMap{"name": cedar.String(q.Tool), "risk": cedar.String(q.Risk)})
	return o
}

// Get is a cedar.EntityGetter. Every user of a tenant exists, in the file or
// not.
func (o *overlay) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	switch {
	case uid == o.principal.UID:
		return o.principal, true
	case uid == o.tool.UID:
		return o.tool, true
	case uid.Type == typeUser:
		user := o.user(uid)
		return user, !user.UID.IsZero()
	default:
		entity, ok := o.file[uid]
		return entity, ok
	}
}

// user returns the zero Entity if the ID names no user of a tenant.
func (o *overlay) user(uid cedar.EntityUID) cedar.Entity {
	if user, ok := o.file[uid]; ok {
		return user
	}
	return completeUser(cedar.Entity{}, uid)
}

// completeUser sets the attributes that come from the ID.
func completeUser(user cedar.Entity, uid cedar.EntityUID) cedar.Entity {
	tenant, name, ok := splitTenant(uid.ID)
	if !ok {
		return cedar.Entity{}
	}
	return with(user, uid, cedar.RecordMap{"tenant": cedar.String(tenant), "name": cedar.String(name)})
}

// with returns the entity under uid with attributes added, which win.
func with(entity cedar.Entity, uid cedar.EntityUID, attributes cedar.RecordMap) cedar.Entity {
	for name, value := range entity.Attributes.All() {
		if _, set := attributes[name]; !set {
			attributes[name] = value
		}
	}
	entity.UID, entity.Attributes = uid, cedar.NewRecord(attributes)
	return entity
}

// parseEntities reads entitiesFile. Users come back complete.
func parseEntities(document []byte) (cedar.EntityMap, error) {
	// The standard library says where the syntax is broken.
	if err := json.Unmarshal(document, new(json.RawMessage)); err != nil {
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			return nil, fmt.Errorf("%s:%d: %w", entitiesFile, 1+bytes.Count(document[:min(syntax.Offset, int64(len(document)))], []byte("\n")), err)
		}
		return nil, fmt.Errorf("%s: %w", entitiesFile, err)
	}
	var entities cedar.EntityMap
	if err := entities.UnmarshalJSON(document); err != nil {
		return nil, fmt.Errorf("%s: not a list of Cedar entities ({\"uid\": ..., \"parents\": [...], \"attrs\": {...}}): %w", entitiesFile, err)
	}
	for uid, entity := range entities {
		if err := checkEntity(entity); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", entitiesFile, uid, err)
		}
		if uid.Type == typeUser {
			entities[uid] = completeUser(entity, uid)
		}
	}
	return entities, nil
}

// checkEntity keeps tenants apart: users and groups are of one tenant, and only
// a user or group of the same tenant may be in a group.
func checkEntity(entity cedar.Entity) error {
	if err := checkTenant(entity.UID); err != nil {
		return err
	}
	for _, name := range reserved[entity.UID.Type] {
		if _, set := entity.Attributes.Get(name); set {
			return fmt.Errorf("the attribute %q is set by fairlead; give yours another name", name)
		}
	}
	for parent := range entity.Parents.All() {
		if err := checkTenant(parent); err != nil {
			return fmt.Errorf("parent %s: %w", parent, err)
		}
		if !tenantOwned(parent.Type) {
			continue
		}
		tenant, _, _ := splitTenant(entity.UID.ID)
		of, _, _ := splitTenant(parent.ID)
		if !tenantOwned(entity.UID.Type) || tenant != of {
			return fmt.Errorf("parent %s: only a user or group of the tenant %q may be in it", parent, of)
		}
	}
	return nil
}

func tenantOwned(kind cedar.EntityType) bool { return kind == typeUser || kind == typeGroup }

func checkTenant(uid cedar.EntityUID) error {
	if _, _, ok := splitTenant(uid.ID); tenantOwned(uid.Type) && !ok {
		return fmt.Errorf(`%s names no tenant: write %s::"<tenant>/<name>"`, uid, uid.Type)
	}
	return nil
}
