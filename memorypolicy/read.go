package memorypolicy

import (
	"slices"

	"github.com/fairlead/fairlead/agent"
)

// EvaluateRead decides whether a reader may read a record as it stands now. The
// store has filtered before; this is asked of the primary row, each time.
func (p *Policy) EvaluateRead(reader Reader, rec Record) ReadDecision {
	deny := func(id, format string, args ...any) ReadDecision {
		return ReadDecision{Rules: []agent.MemoryRule{rule(id, format, args...)}}
	}
	k := p.keys[rec.Key]
	switch {
	case !rec.Active:
		return deny("read.inactive", "the record is not in force")
	case rec.Environment == "" || rec.Environment != reader.Room.Scope.Environment:
		return deny("read.environment", "the record is of another environment")
	case !slices.Contains(reader.Room.Scopes(), rec.Scope):
		return deny("read.scope", "the record is of a scope that is not seen from this room")
	case reader.Now.IsZero():
		return deny("read.now", "the moment of the reading is missing")
	case rec.ExpiresAt != nil && !rec.ExpiresAt.After(reader.Now):
		return deny("read.expired", "the record has expired")
	case rec.ValidFrom != nil && rec.ValidFrom.After(reader.Now):
		return deny("read.not_yet", "the record is not true yet")
	case rec.ValidUntil != nil && !rec.ValidUntil.After(reader.Now):
		return deny("read.no_longer", "the record is not true any more")
	case k == nil || k.kind != rec.Kind:
		return deny("read.key", "the registry does not have this key of this kind any more")
	case p.denied[rec.SourceType] || p.sources[rec.SourceType] == (worth{}):
		return deny("read.source", "nothing may be remembered from the record's source any more")
	}
	for _, role := range reader.Roles {
		for _, g := range p.read[role] {
			if g.admits(rec) {
				return ReadDecision{true, []agent.MemoryRule{
					rule("read."+string(role), "role %s may read %s of scope %s that is %s", role, rec.Kind, rec.Scope.Kind, rec.Validation),
				}}
			}
		}
	}
	return deny("read.no_grant", "no grant of the reader's roles admits this kind, validation, scope, sensitivity and confidence together")
}

func (g grant) admits(rec Record) bool {
	return slices.Contains(g.kinds, rec.Kind) && slices.Contains(g.validation, rec.Validation) && slices.Contains(g.scopes, rec.Scope.Kind) &&
		slices.Contains(g.sensitivity, rec.Sensitivity) && rec.Confidence >= g.minConfidence
}

// Scopes returns the scopes that the reader can read something in, in the order
// of the room's. It is for the query; EvaluateRead decides.
func (p *Policy) Scopes(reader Reader) []agent.MemoryScope {
	return slices.DeleteFunc(reader.Room.Scopes(), func(s agent.MemoryScope) bool {
		return !p.grants(reader, func(g grant) bool { return slices.Contains(g.scopes, s.Kind) })
	})
}

// Kinds returns the kinds that the reader can read something of from its room. It
// is for the query; EvaluateRead decides.
func (p *Policy) Kinds(reader Reader) (kinds []agent.MemoryKind) {
	seen := reader.Room.Scopes()
	for _, kind := range memoryKinds {
		if p.grants(reader, func(g grant) bool {
			return slices.Contains(g.kinds, kind) && slices.ContainsFunc(seen, func(s agent.MemoryScope) bool { return slices.Contains(g.scopes, s.Kind) })
		}) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func (p *Policy) grants(reader Reader, admits func(grant) bool) bool {
	return slices.ContainsFunc(reader.Roles, func(role ReaderRole) bool { return slices.ContainsFunc(p.read[role], admits) })
}
