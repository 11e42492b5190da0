package agenttest

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
)

// Memory is one memory in force.
type Memory struct {
	// ID and Version are the record's; of a seed both may be empty.
	ID      string
	Version int
	// Key is one of the memory policy's registry, Kind its kind.
	Key  string
	Kind agent.MemoryKind
	// Value is JSON.
	Value string
	// Scope is where it is seen; the zero value of a seed is the user's.
	Scope agent.MemoryScope
	// User is whom it comes from; of a seed, ann if it is empty.
	User string
	// Environment is the definition's first one if a seed names none.
	Environment string
	SourceType  agent.MemorySourceType
	Validation  agent.MemoryValidation
	Confidence  float64
	Writer      string
	// MessageID and Quote are what it rests on, RunID the run that it comes from.
	MessageID, Quote, RunID string
	WrittenAt               time.Time
	// ExpiresAt is when it is forgotten by itself; of a seed, after the key's
	// retention if it is zero.
	ExpiresAt time.Time
}

// Learned is what became of a memory that was proposed in a run.
type Learned struct {
	Kind  agent.MemoryKind
	Key   string
	State agent.MemoryState
	// Rules are those of the memory policy that decided.
	Rules []agent.MemoryRule
	// Record names the memory in force that it became, or was merged with.
	Record string
}

// Memories returns all that is remembered and in force in tenant acme, of
// everybody, by key, user and ID.
func (s *Suite) Memories() []Memory {
	var list []Memory
	for _, r := range s.store.Memories(defaultTenant) {
		list = append(list, memoryOf(r))
	}
	slices.SortFunc(list, func(a, b Memory) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.User, b.User), cmp.Compare(a.ID, b.ID))
	})
	return list
}

func memoryOf(r db.MemoryRecord) Memory {
	m := Memory{
		ID: r.ID, Version: r.Version, Key: r.Key, Kind: r.Kind, Value: string(r.Value), Scope: r.Scope, User: r.User, Environment: r.Environment,
		SourceType: r.SourceType, Validation: r.Validation, Confidence: r.Confidence, Writer: r.Writer,
		MessageID: r.Evidence.MessageID, Quote: r.Evidence.Quote, RunID: r.RunID, WrittenAt: r.WrittenAt,
	}
	if r.ExpiresAt != nil {
		m.ExpiresAt = *r.ExpiresAt
	}
	return m
}

// Skip lets virtual time pass between runs.
func (s *Suite) Skip(d time.Duration) {
	now := s.clock.now().Add(d)
	real := time.Now()
	s.clock.set(func() time.Time { return now.Add(time.Since(real)) })
}

// memories are what the run was given and what was learned from it.
func (r *run) memories(result *Result) {
	for _, i := range r.suite.store.Influences(r.req.Tenant, r.req.RunID) {
		if record, ok := r.suite.store.Record(r.req.Tenant, i.Record, i.Version); ok {
			result.Recalled = append(result.Recalled, memoryOf(record))
		}
	}
	candidates := r.suite.store.Candidates(r.req.Tenant, r.req.RunID)
	for _, c := range candidates {
		result.Learned = append(result.Learned, Learned{Kind: c.Kind, Key: c.Key, State: c.State, Rules: c.Rules, Record: c.Record})
	}
	for _, a := range r.suite.store.MemoryAudit(r.req.Tenant) {
		i := slices.IndexFunc(candidates, func(c db.MemoryCandidate) bool { return c.ID == a.Candidate })
		if i < 0 || a.Action != auditRefuse {
			continue
		}
		refused := Refusal{Memory: candidates[i].Key, Code: agent.RefusalCode(a.Detail), Approver: a.Actor}
		if a.Actor == auditUnknown {
			refused.Approver = ""
		}
		result.Refusals = append(result.Refusals, refused)
	}
}

// How package activities writes into the audit trail that a decision was not
// believed, and that nobody is known to have signed it.
const (
	auditRefuse  = "refuse_decision"
	auditUnknown = "unknown"
)

// WantRecalled fails the test unless the run was given memories with these keys,
// in any order.
func (r *Result) WantRecalled(keys ...string) {
	r.t.Helper()
	var got []string
	for _, m := range r.Recalled {
		got = append(got, m.Key)
	}
	r.same("the run was given memories of", got, keys)
}

// WantLearned fails the test unless these memories were proposed in the run, in
// any order: each "key: state", such as "profile.name: stored". A key that the
// registry does not have is empty.
func (r *Result) WantLearned(learned ...string) {
	r.t.Helper()
	var got []string
	for _, l := range r.Learned {
		got = append(got, l.Key+": "+string(l.State))
	}
	r.same("what was proposed came to", got, learned)
}

func (r *Result) same(what string, got, want []string) {
	r.t.Helper()
	slices.Sort(got)
	want = slices.Clone(want)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("%s %q, want %q\n%s", what, got, want, r.story)
	}
}

// decideMemory signs a person's decision about the memory that waits, and sends it:
// the one that the moment is about, or at another moment the first one.
func (r *run) decideMemory(key approval.Key, person string, decision approval.Decision) {
	candidates := r.suite.store.Candidates(r.req.Tenant, r.req.RunID)
	i := slices.IndexFunc(candidates, func(c db.MemoryCandidate) bool {
		return waits(c.State) && (r.about == "" || r.about == c.ID)
	})
	if i < 0 {
		r.t.Errorf("agenttest: no memory waits for a person\n%s", r.journal)
		return
	}
	c, now := candidates[i], r.now()
	token, err := key.Sign(approval.MemoryClaims(c, approval.Claims{
		TokenID: approval.Nonce(), Decision: decision, Approver: person, Tenant: r.req.Tenant, IssuedAt: now, ExpiresAt: now.Add(tokenLife),
	}))
	if err != nil {
		r.t.Errorf("agenttest: the decision of %s cannot be signed: %v", person, err)
		return
	}
	send := func() error {
		return r.env.SignalWorkflowByID(agent.MemoryWriteWorkflowID(r.req.Tenant, c.ID), agent.SignalMemoryDecision, agent.Approval{Token: token})
	}
	r.sendAgain = func() {
		if err := send(); err != nil {
			r.note("nobody hears the token: %v", err)
		}
	}
	if err := send(); err != nil {
		r.t.Errorf("agenttest: the decision of %s cannot be sent: %v", person, err)
	}
}

// waits reports whether a memory in this state waits for a person.
func waits(state agent.MemoryState) bool {
	return state == agent.MemoryWaitingConfirmation || state == agent.MemoryWaitingReview
}
