package memorypolicy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy/detect"
)

// evaluation is one candidate on its way through the rules.
type evaluation struct {
	p *Policy
	c Candidate
	d Decision
	k *key
	// source is what the candidate's source is worth.
	source worth
	// raw are the texts of the value as proposed, normal is it with all texts
	// normalized, and value are its fields.
	raw    texts
	normal any
	value  []leaf
	// places are where the quote stands in the message.
	places []place
	quote  string
}

// Evaluate decides about a candidate by itself. It is a pure function of the
// policy and the candidate: the same candidate is decided the same way, and so is
// one whose value was normalized before. The first rule that refuses ends it.
func (p *Policy) Evaluate(c Candidate) Decision {
	e := &evaluation{p: p, c: c, d: Decision{Outcome: Store}}
	for _, step := range []func() bool{
		e.metadata, e.required, e.admitted, e.parse, e.locate, e.contents, e.fit, e.evidence, e.events, e.grounded, e.reach, e.times, e.mode,
	} {
		if !step() {
			return Decision{Outcome: Reject, Rules: e.d.Rules, SafeMetadata: e.d.SafeMetadata}
		}
	}
	return e.d
}

func rule(id, format string, args ...any) agent.MemoryRule {
	return agent.MemoryRule{ID: id, Text: fmt.Sprintf(format, args...)}
}

// pass notes a rule that admits.
func (e *evaluation) pass(id, format string, args ...any) bool {
	e.d.Rules = append(e.d.Rules, rule(id, format, args...))
	return true
}

// refuse notes the rule that rejects.
func (e *evaluation) refuse(id, format string, args ...any) bool {
	e.pass(id, format, args...)
	return false
}

// demand notes a rule that wants somebody to be asked.
func (e *evaluation) demand(o Outcome, id, format string, args ...any) {
	e.d.Outcome = stricter(e.d.Outcome, o)
	e.pass(id, format, args...)
}

var strictness = []Outcome{Store, Confirm, Review, Reject}

func stricter(a, b Outcome) Outcome {
	if slices.Index(strictness, b) > slices.Index(strictness, a) {
		return b
	}
	return a
}

// identifier is what names a source or a writer: it holds no sentence.
var identifier = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@/#+~-]{0,255}$`)

// metadata looks at what stays on record even of what is rejected.
func (e *evaluation) metadata() bool {
	for _, m := range []struct{ name, text string }{{"source_id", e.c.SourceID}, {"writer", e.c.Writer}} {
		if m.text == "" {
			continue
		}
		if !identifier.MatchString(m.text) {
			return e.refuse("metadata."+m.name, "%s must be an identifier: letters, digits or . _ : @ / # + ~ -, at most 256", m.name)
		}
		for _, f := range e.p.detector.Find(m.text) {
			switch f.Category {
			// A number may name a message or a user, and is no sentence.
			case detect.PhoneNumber, detect.Health, detect.Finance, detect.Chatter, detect.Event:
			default:
				return e.refuse("content."+string(f.Category), "%s holds what detector %s takes for %s", m.name, f.Rule, f.Category)
			}
		}
	}
	if !e.c.Kind.Valid() {
		return e.refuse("kind.unknown", "the kind is none of %s", join(memoryKinds))
	}
	if !e.c.SourceType.Valid() {
		return e.refuse("source.unknown", "the source type is not known")
	}
	e.d.SafeMetadata = true
	return true
}

// requirements are what a policy can require of a candidate.
var requirements = map[string]func(Candidate) string{
	"tenant":       func(c Candidate) string { return id(c.Room.Scope.Tenant) },
	"user":         func(c Candidate) string { return id(c.Room.Scope.User) },
	"environment":  func(c Candidate) string { return id(c.Room.Scope.Environment) },
	"conversation": func(c Candidate) string { return id(c.Room.Conversation) },
	"agent":        func(c Candidate) string { return id(c.Room.Agent) },
	"kind":         func(c Candidate) string { return string(c.Kind) },
	"key":          func(c Candidate) string { return c.Key },
	"source_type":  func(c Candidate) string { return string(c.SourceType) },
	"source_id":    func(c Candidate) string { return c.SourceID },
	"writer":       func(c Candidate) string { return c.Writer },
	"message_id":   func(c Candidate) string { return id(c.MessageID) },
	"quote":        func(c Candidate) string { return c.Quote },
}

// id returns s if it is an identifier, else nothing.
func id(s string) string {
	if agent.ValidID(s) {
		return s
	}
	return ""
}

func (e *evaluation) required() bool {
	for _, name := range e.p.require {
		if requirements[name](e.c) == "" {
			return e.refuse("required."+name, "%s is missing, or is no identifier", name)
		}
	}
	if e.c.Now.IsZero() {
		return e.refuse("required.now", "the moment of the decision is missing")
	}
	for _, room := range []string{e.c.Room.Conversation, e.c.Room.Group, e.c.Room.Project, e.c.Room.Agent} {
		if room != "" && !agent.ValidID(room) {
			return e.refuse("required.room", "conversation, group, project and agent must be identifiers")
		}
	}
	return e.pass("required", "all required fields are there: %s", strings.Join(e.p.require, ", "))
}

// admitted looks up source, kind and key.
func (e *evaluation) admitted() bool {
	c, p := e.c, e.p
	if p.denied[c.SourceType] {
		return e.refuse("source.denied", "nothing is remembered from source %s", c.SourceType)
	}
	var ok bool
	if e.source, ok = p.sources[c.SourceType]; !ok {
		return e.refuse("source.not_admitted", "the policy does not admit source %s", c.SourceType)
	}
	if _, ok := p.kinds[c.Kind]; !ok {
		return e.refuse("kind.not_admitted", "the policy does not admit kind %s", c.Kind)
	}
	if e.k, ok = p.keys[c.Key]; !ok {
		return e.refuse("key.unknown", "the registry does not have the key")
	}
	if e.k.kind != c.Kind {
		return e.refuse("key.kind", "key %s is of kind %s, not %s", e.k.name, e.k.kind, c.Kind)
	}
	if !slices.Contains(e.k.sources, c.SourceType) {
		return e.refuse("key.source", "key %s may come from %s, not from %s", e.k.name, join(e.k.sources), c.SourceType)
	}
	if c.SourceType == agent.SourceUserCorrection && c.Writer != "user:"+c.Room.Scope.User {
		return e.refuse("source.not_self", "source %s is the user's own act, and the writer is not the user", c.SourceType)
	}
	e.d.Validation, e.d.Confidence, e.d.ConsentBasis = e.source.validation, e.source.confidence, e.source.consent
	e.d.Sensitivity = e.k.sensitivity
	return e.pass("admitted", "kind %s and key %s may come from %s, which counts as %s", c.Kind, e.k.name, c.SourceType, e.source.validation)
}

// maxPurposeBytes bounds a purpose that a candidate brings along.
const maxPurposeBytes = 400

// contents looks for what may not be remembered in everything that would be.
func (e *evaluation) contents() bool {
	e.d.Purpose = e.k.purpose
	if e.c.Purpose != "" {
		e.d.Purpose = detect.Normalize(e.c.Purpose)
		if len(e.c.Purpose) > maxPurposeBytes || e.d.Purpose == "" || !utf8.ValidString(e.c.Purpose) {
			return e.refuse("purpose.size", "a purpose must say something, in %d bytes at most", maxPurposeBytes)
		}
	}
	around, neighbours := e.surroundings()
	for _, part := range []struct {
		name  string
		texts []string
		// skip are categories that do not matter there.
		skip func(detect.Category) bool
	}{
		// "Nice" says nothing as an answer, and something as a city.
		{"the value", e.raw.all(), func(c detect.Category) bool { return c == detect.Event || c == detect.Chatter }},
		{"the purpose", nonEmpty(e.c.Purpose, e.d.Purpose), func(c detect.Category) bool { return c == detect.Event || c == detect.Chatter }},
		{"the quote", nonEmpty(e.c.Quote, e.quote), func(c detect.Category) bool { return c == detect.Event }},
		// A quote that was cut out of a sentence does not leave its meaning behind.
		{"the sentence of the quote", around, func(c detect.Category) bool {
			return c != detect.Authority && c != detect.Injection && c != detect.Failed
		}},
		{"a sentence beside the quote", neighbours, func(c detect.Category) bool { return c != detect.Authority && c != detect.Failed }},
	} {
		if len(part.texts) == 0 {
			continue
		}
		for _, f := range e.p.detector.Find(part.texts...) {
			if !e.p.rejected[f.Category] || part.skip(f.Category) {
				continue
			}
			if e.k.allow[f.Category] {
				e.pass("content.allowed", "key %s allows %s, kept as %s", e.k.name, f.Category, e.k.sensitivity)
				continue
			}
			return e.refuse("content."+string(f.Category), "%s holds what detector %s takes for %s", part.name, f.Rule, f.Category)
		}
	}
	return e.pass("content", "no detector found anything that may not be remembered")
}

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(t string) bool { return t == "" })
}

// reach decides where the memory is to be seen.
func (e *evaluation) reach() bool {
	room := e.c.Room
	seen := room.Scopes()
	want := e.c.Scope
	if want == (agent.MemoryScope{}) {
		// The narrowest that fits: Scopes lists user or group first.
		i := slices.IndexFunc(seen, func(s agent.MemoryScope) bool {
			// A conversation comes behind the user, and before wider scopes.
			return slices.Contains(e.k.scopes, s.Kind)
		})
		if i < 0 {
			return e.refuse("scope.none", "key %s is for %s, and this room has none of these", e.k.name, join(e.k.scopes))
		}
		want = seen[i]
	}
	switch {
	case !want.Kind.Valid():
		return e.refuse("scope.unknown", "the scope is none of %s", join(scopeKinds))
	case room.Group != "" && (want.Kind == agent.MemoryOfUser || want.Kind == agent.MemoryOfConversation):
		return e.refuse("scope.personal_in_group", "in a group nothing personal is written")
	case want.Kind == agent.MemoryOfUser && want.ID != room.Scope.User:
		return e.refuse("scope.other_user", "it would be the memory of another user")
	case !slices.Contains(seen, want):
		return e.refuse("scope.not_in_room", "the room does not have this %s", want.Kind)
	case !slices.Contains(e.k.scopes, want.Kind):
		return e.refuse("scope.not_admitted", "key %s is for %s, not for %s", e.k.name, join(e.k.scopes), want.Kind)
	}
	e.d.Scope = want
	return e.pass("scope", "it is seen by %s, in the room's environment only", want.Kind)
}

// times checks when it is true, and says until when it is kept.
func (e *evaluation) times() bool {
	c := e.c
	if c.ValidFrom != nil && c.ValidUntil != nil && !c.ValidFrom.Before(*c.ValidUntil) {
		return e.refuse("time.order", "valid_until must be after valid_from")
	}
	if c.ValidUntil != nil && !c.ValidUntil.After(c.Now) {
		return e.refuse("time.past", "it is not true any more")
	}
	expires := c.Now.Add(e.k.retention).UTC().Truncate(time.Microsecond)
	if c.ValidFrom != nil && !c.ValidFrom.Before(expires) {
		return e.refuse("time.never", "it would be forgotten before it is true")
	}
	if c.SourceType == agent.SourceUserStatement && (c.ValidFrom != nil || c.ValidUntil != nil) && !e.timed() {
		e.demand(Confirm, "time.not_said", "the quote names no time for when it is true: the user is asked")
	}
	e.d.ExpiresAt = &expires
	e.d.DecideWithin = e.k.decideWithin
	return e.pass("retention", "key %s is kept for %s", e.k.name, days(e.k.retention))
}

func days(d time.Duration) string {
	if d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return d.String()
}

// mode decides who has to be asked.
func (e *evaluation) mode() bool {
	e.apply("mode", e.k.mode)
	if shared(e.d.Scope) && e.k.shared != e.k.mode {
		e.apply("mode.shared", e.k.shared)
	}
	return true
}

// shared reports whether several people see the scope.
func shared(s agent.MemoryScope) bool {
	return s.Kind != agent.MemoryOfUser && s.Kind != agent.MemoryOfConversation
}

func (e *evaluation) apply(id string, m WriteMode) {
	c := e.c
	id += "." + string(m)
	switch m {
	case ImmediateIfTrusted:
		if own := c.SourceType == agent.SourceUserCorrection && !shared(e.d.Scope); own || reliability(e.source.validation) == reliability(agent.MemoryTrusted) {
			e.pass(id, "it is stored, because %s is trusted with it", c.SourceType)
			return
		}
		e.demand(Review, id, "it is left to a reviewer, because %s is not trusted with it", c.SourceType)
	case BackgroundOnly:
		if !strings.HasPrefix(c.Writer, ModelWriter) {
			e.pass(id, "it is stored in the background")
			return
		}
		e.demand(Review, id, "it is left to a reviewer, because a model proposed it during its run")
	case ConfirmByUser:
		if c.SourceType == agent.SourceUserCorrection {
			e.pass(id, "the user entered it, and need not confirm it")
			return
		}
		if c.Retracts {
			// Until it is confirmed the agent would go on with what the user takes back.
			e.pass(id, "taking back needs no confirmation by itself")
			return
		}
		e.demand(Confirm, id, "the user has to confirm it")
	case BackgroundReview:
		e.demand(Review, id, "it is left to a reviewer")
	default:
		e.demand(Review, id, "it is left to a reviewer")
	}
}
