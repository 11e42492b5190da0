package memorypolicy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy/detect"
)

// What no policy can leave out.
var (
	alwaysRequired = []string{"tenant", "user", "environment", "kind", "key", "source_type", "source_id", "writer"}
	alwaysDenied   = []agent.MemorySourceType{agent.SourceAssistant, agent.SourceRecalled}
	alwaysRejected = []detect.Category{
		detect.Secret, detect.AccessToken, detect.PaymentCard, detect.IdentityNumber, detect.Authority, detect.Injection, detect.Chatter,
	}
	// allowable can be left out, or allowed for single keys.
	allowable = []detect.Category{detect.PhoneNumber, detect.Health, detect.Finance}
)

// mostReliable is the most that a source can be said to be worth.
var mostReliable = map[agent.MemorySourceType]agent.MemoryValidation{
	agent.SourceUserStatement:      agent.MemoryUserStated,
	agent.SourceUserCorrection:     agent.MemoryUserConfirmed,
	agent.SourceTrustedTool:        agent.MemoryTrusted,
	agent.SourceTrustedService:     agent.MemoryTrusted,
	agent.SourceApprovedSummarizer: agent.MemoryTrusted,
	agent.SourceRawPrompt:          agent.MemoryUnvalidated,
	agent.SourceExternal:           agent.MemoryUnvalidated,
	agent.SourceUnvalidatedTool:    agent.MemoryUnvalidated,
}

var (
	modes         = []WriteMode{ImmediateIfTrusted, BackgroundReview, BackgroundOnly, ConfirmByUser}
	eventRules    = []eventRule{refuseEvents, addEvents, allowEvents}
	standingRules = []standingRule{standingRequired, standingAsk}
	validations   = []agent.MemoryValidation{
		agent.MemoryUnvalidated, agent.MemoryUserStated, agent.MemoryTrusted, agent.MemoryReviewed, agent.MemoryUserConfirmed,
	}
	agreements = []agent.MemoryValidation{agent.MemoryReviewed, agent.MemoryUserConfirmed}
	scopeKinds = []agent.MemoryScopeKind{
		agent.MemoryOfUser, agent.MemoryOfConversation, agent.MemoryOfGroup, agent.MemoryOfProject, agent.MemoryOfAgent,
	}
	memoryKinds = []agent.MemoryKind{
		agent.MemoryPreference, agent.MemoryFact, agent.MemoryTask, agent.MemorySummary, agent.MemoryExperience,
	}
	roles         = []ReaderRole{Personalization, Planner, PolicyEngine}
	sensitivities = []string{sensitivityNormal, "personal", "health", "finance"}
)

const sensitivityNormal = "normal"

// compiler builds a policy and collects what is wrong with its document.
type compiler struct {
	p    *Policy
	errs []error
}

func (c *compiler) fault(place, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s %s", place, fmt.Sprintf(format, args...)))
}

func compile(doc document) (*Policy, error) {
	c := &compiler{p: &Policy{
		version: doc.Version, detector: sharedDetector{},
		sources: map[agent.MemorySourceType]worth{}, denied: map[agent.MemorySourceType]bool{}, agreed: map[agent.MemoryValidation]worth{},
		rejected: map[detect.Category]bool{}, kinds: map[agent.MemoryKind]handling{}, keys: map[string]*key{}, read: map[ReaderRole][]grant{},
	}}
	if !agent.ValidID(doc.Version) {
		c.fault("version", "must be 1 to 128 ASCII letters, digits or . _ : @ -, so that decisions can name it")
	}
	c.required(doc.Require)
	c.worths(doc)
	c.rejections(doc.Rejected)
	c.kinds(doc.Kinds)
	c.phrases(doc.Phrases)
	for _, name := range slices.Sorted(maps.Keys(doc.Keys)) {
		c.key(name, doc.Keys[name])
	}
	if len(doc.Keys) == 0 {
		c.fault("keys", "has no key: nothing could be remembered")
	}
	c.grants(doc.Read)
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	return c.p, nil
}

// choices checks that each text is one of a closed set, and that none is there
// twice.
func choices[T ~string](c *compiler, place string, texts []string, set []T) []T {
	list := make([]T, 0, len(texts))
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", place, i)
		if v, ok := oneOf(c, at, text, set); ok {
			if slices.Contains(list, v) {
				c.fault(at, "is in the list twice")
			}
			list = append(list, v)
		}
	}
	return list
}

func oneOf[T ~string](c *compiler, place, text string, set []T) (T, bool) {
	if !slices.Contains(set, T(text)) {
		c.fault(place, "must be one of %s", join(set))
		return "", false
	}
	return T(text), true
}

func join[T ~string](list []T) string {
	var b strings.Builder
	for i, item := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(item))
	}
	return b.String()
}

func (c *compiler) required(list []string) {
	c.p.require = choices(c, "require", list, slices.Sorted(maps.Keys(requirements)))
	for _, name := range alwaysRequired {
		if !slices.Contains(c.p.require, name) {
			c.fault("require", "must have %s: every record carries it", name)
		}
	}
}

func (c *compiler) worths(doc document) {
	for _, t := range choices(c, "deny_sources", doc.Denied, append(slices.Sorted(maps.Keys(mostReliable)), alwaysDenied...)) {
		c.p.denied[t] = true
	}
	for _, t := range alwaysDenied {
		if !c.p.denied[t] {
			c.fault("deny_sources", "must have %s: an agent does not learn from itself", t)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Sources)) {
		place, w, t := "sources."+name, doc.Sources[name], agent.MemorySourceType(name)
		most, ok := mostReliable[t]
		switch {
		case !ok:
			c.fault(place, "is no source that may be admitted: use one of %s", join(slices.Sorted(maps.Keys(mostReliable))))
			continue
		case c.p.denied[t]:
			c.fault(place, "is in deny_sources too: take it out of one of them")
		}
		v, ok := oneOf(c, place+".validation", w.Validation, validations)
		if ok && slices.Index(validations, v) > slices.Index(validations, most) {
			c.fault(place+".validation", "can be %s at most: nobody else vouches for such a source", most)
		}
		c.p.sources[t] = c.worth(place, v, w.Confidence, w.Consent)
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Agreed)) {
		if v, ok := oneOf(c, "agreement."+name, name, agreements); ok {
			c.p.agreed[v] = c.worth("agreement."+name, v, doc.Agreed[name].Confidence, doc.Agreed[name].Consent)
		}
	}
	for _, v := range agreements {
		if _, ok := doc.Agreed[string(v)]; !ok {
			c.fault("agreement", "must have %s", v)
		}
	}
}

func (c *compiler) worth(place string, v agent.MemoryValidation, confidence float64, consent string) worth {
	if !(confidence > 0 && confidence <= 1) {
		c.fault(place+".confidence", "must be above 0 and at most 1")
	}
	if !agent.ValidID(consent) {
		c.fault(place+".consent", "must name the basis on which it is kept, such as stated_by_user")
	}
	return worth{v, confidence, consent}
}

func (c *compiler) rejections(list []string) {
	for _, category := range choices(c, "reject_if_contains", list, append(slices.Clone(alwaysRejected), allowable...)) {
		c.p.rejected[category] = true
	}
	for _, category := range alwaysRejected {
		if !c.p.rejected[category] {
			c.fault("reject_if_contains", "must have %s", category)
		}
	}
	c.p.rejected[detect.Failed] = true
}

func (c *compiler) kinds(docs map[string]handlingDoc) {
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		if kind, ok := oneOf(c, "kinds."+name, name, memoryKinds); ok {
			h := c.handling("kinds."+name, docs[name], handling{})
			c.p.kinds[kind] = h
		}
	}
}

// handling reads d; what it leaves out is from the kind, or missing if there is
// none.
func (c *compiler) handling(place string, d handlingDoc, kind handling) handling {
	h, own := kind, kind.mode == ""
	if d.WriteMode != "" || own {
		h.mode, _ = oneOf(c, place+".write_mode", d.WriteMode, modes)
		if d.SharedMode == "" && (own || kind.shared == kind.mode) {
			h.shared = h.mode
		}
	}
	if d.SharedMode != "" {
		h.shared, _ = oneOf(c, place+".shared_mode", d.SharedMode, modes)
	}
	if d.Retention != "" || own {
		h.retention = c.duration(place+".retention", d.Retention)
	}
	if d.DecideWithin != "" || own {
		h.decideWithin = c.duration(place+".decide_within", d.DecideWithin)
	}
	if d.Events != "" || own {
		h.events, _ = oneOf(c, place+".events", d.Events, eventRules)
	}
	if d.Sources != nil || own {
		admitted := slices.Sorted(maps.Keys(c.p.sources))
		if !own {
			admitted = kind.sources
		}
		h.sources = choices(c, place+".sources", d.Sources, admitted)
		if len(d.Sources) == 0 {
			c.fault(place+".sources", "must have one of %s at least", join(admitted))
		}
	}
	if d.Scopes != nil || own {
		admitted := scopeKinds
		if !own {
			admitted = kind.scopes
		}
		h.scopes = choices(c, place+".scopes", d.Scopes, admitted)
		if len(d.Scopes) == 0 {
			c.fault(place+".scopes", "must have one of %s at least", join(admitted))
		}
	}
	return h
}

// maxDays keeps a duration in days within what time.Duration holds.
const maxDays = 36500

func (c *compiler) duration(place, text string) time.Duration {
	const expected = "must be a duration such as 30m, 72h or 365d, and not beyond 36500d"
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n == 0 || n > maxDays {
			c.fault(place, expected)
			return 0
		}
		return time.Duration(n) * 24 * time.Hour
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > maxDays*24*time.Hour {
		c.fault(place, expected)
		return 0
	}
	return d
}

func (c *compiler) grants(docs map[string][]grantDoc) {
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		role, ok := oneOf(c, "read."+name, name, roles)
		if !ok {
			continue
		}
		for i, d := range docs[name] {
			place := fmt.Sprintf("read.%s[%d]", name, i)
			g := grant{
				kinds:         choices(c, place+".kinds", d.Kinds, memoryKinds),
				validation:    choices(c, place+".validation", d.Validation, validations),
				scopes:        choices(c, place+".scopes", d.Scopes, scopeKinds),
				sensitivity:   choices(c, place+".sensitivity", d.Sensitivity, sensitivities),
				minConfidence: d.MinConfidence,
			}
			if len(d.Kinds) == 0 || len(d.Validation) == 0 || len(d.Scopes) == 0 || len(d.Sensitivity) == 0 {
				c.fault(place, "must list kinds, validation, scopes and sensitivity: what it does not list it does not admit")
			}
			if !(d.MinConfidence >= 0 && d.MinConfidence <= 1) {
				c.fault(place+".min_confidence", "must be from 0 to 1")
			}
			if role == PolicyEngine {
				c.engineGrant(place, g)
			}
			c.p.read[role] = append(c.p.read[role], g)
		}
	}
}

// engineGrant keeps what people merely said, or like, from deciding on rights.
func (c *compiler) engineGrant(place string, g grant) {
	if slices.ContainsFunc(g.kinds, func(k agent.MemoryKind) bool { return k != agent.MemoryFact }) {
		c.fault(place+".kinds", "can be %s only: nothing else may decide on rights", agent.MemoryFact)
	}
	if slices.Contains(g.validation, agent.MemoryUnvalidated) || slices.Contains(g.validation, agent.MemoryUserStated) {
		c.fault(place+".validation", "can be %s, %s and %s only: nothing else may decide on rights",
			agent.MemoryTrusted, agent.MemoryReviewed, agent.MemoryUserConfirmed)
	}
}
