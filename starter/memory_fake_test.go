package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/vault"
)

// fakeMemories holds memory as the database would show it to a user, and takes
// down what it was asked for. err is what everything says.
type fakeMemories struct {
	records    []db.MemoryRecord
	candidates []db.MemoryCandidate
	traces     map[string]db.MemoryTrace
	given      []db.MemoryInfluence
	// verdicts are what a candidate looks like, one look after the other.
	verdicts     []db.MemoryCandidate
	verdictErr   error
	participants []db.Participant
	receipts     []agent.ErasureReceipt
	// keysErr is what looking up a user's keys says.
	keysErr error
	tenants []string
	runs    []db.RunSummary
	err     error

	asked []string
}

func (f *fakeMemories) ask(format string, args ...any) {
	f.asked = append(f.asked, fmt.Sprintf(format, args...))
}

func (f *fakeMemories) Memories(_ context.Context, tenant, user string, filter db.MemoryFilter) ([]db.MemoryRecord, error) {
	f.ask("memories %s/%s %+v", tenant, user, filter)
	var found []db.MemoryRecord
	ids := map[string]bool{}
	for _, r := range f.records {
		if (filter.Past || r.Status == db.MemoryActive) && r.ID > filter.After {
			// The limit counts records.
			if !ids[r.ID] && len(ids) == filter.Limit {
				break
			}
			ids[r.ID] = true
			found = append(found, r)
		}
	}
	return found, f.err
}

func (f *fakeMemories) Memory(_ context.Context, tenant, user, id string) (db.MemoryRecord, error) {
	f.ask("memory %s/%s %s", tenant, user, id)
	for _, r := range f.records {
		if r.ID == id {
			return r, f.err
		}
	}
	return db.MemoryRecord{}, db.ErrNotFound
}

func (f *fakeMemories) TraceMemory(_ context.Context, tenant, user, id string) (db.MemoryTrace, error) {
	f.ask("trace %s/%s %s", tenant, user, id)
	trace, ok := f.traces[id]
	if !ok {
		return db.MemoryTrace{}, db.ErrNotFound
	}
	return trace, f.err
}

func (f *fakeMemories) RunMemories(_ context.Context, tenant, user, runID string) ([]db.MemoryInfluence, error) {
	f.ask("run %s/%s %s", tenant, user, runID)
	return f.given, f.err
}

func (f *fakeMemories) MemoryCandidates(_ context.Context, tenant, user string, state agent.MemoryState, limit int) ([]db.MemoryCandidate, error) {
	f.ask("candidates %s/%s %s %d", tenant, user, state, limit)
	var found []db.MemoryCandidate
	for _, c := range f.candidates {
		if c.State == state || state == "" && !c.State.Final() {
			found = append(found, c)
		}
	}
	return found, f.err
}

func (f *fakeMemories) CandidateOfTenant(_ context.Context, tenant, id string) (db.MemoryCandidate, error) {
	f.ask("candidate %s %s", tenant, id)
	if f.verdictErr != nil {
		err := f.verdictErr
		f.verdictErr = nil
		return db.MemoryCandidate{}, err
	}
	if len(f.verdicts) == 0 {
		return db.MemoryCandidate{}, db.ErrNotFound
	}
	first := f.verdicts[0]
	if len(f.verdicts) > 1 {
		f.verdicts = f.verdicts[1:]
	}
	first.ID, first.Room.Scope.Tenant, first.Room.Scope.User = id, tenant, "ann"
	return first, nil
}

func (f *fakeMemories) Erasures(_ context.Context, tenant, user string) ([]agent.ErasureReceipt, error) {
	f.ask("erasures %s/%s", tenant, user)
	return f.receipts, f.err
}

func (f *fakeMemories) Participants(_ context.Context, tenant string, scope agent.MemoryScope) ([]db.Participant, error) {
	f.ask("participants %s %s/%s", tenant, scope.Kind, scope.ID)
	return f.participants, f.err
}

func (f *fakeMemories) AddParticipant(_ context.Context, tenant string, scope agent.MemoryScope, user, by string) error {
	f.ask("add %s to %s %s/%s by %s", user, tenant, scope.Kind, scope.ID, by)
	return f.err
}

func (f *fakeMemories) RemoveParticipant(_ context.Context, tenant string, scope agent.MemoryScope, user, by string) error {
	f.ask("remove %s from %s %s/%s by %s", user, tenant, scope.Kind, scope.ID, by)
	return f.err
}

func (f *fakeMemories) ListRuns(_ context.Context, filter db.RunFilter) ([]db.RunSummary, error) {
	var found []db.RunSummary
	for _, r := range f.runs {
		if (filter.Status == "" || r.Status == filter.Status) && r.User == filter.User {
			found = append(found, r)
		}
	}
	return found, nil
}

func (f *fakeMemories) LookUpKeys(context.Context, vault.Owner) (*vault.Keys, error) {
	return nil, f.keysErr
}

func (f *fakeMemories) MemoryTenants(context.Context) ([]string, error) { return f.tenants, f.err }

func (f *fakeMemories) Close() {}

var annsRoom = agent.MemoryRoom{Scope: agent.Scope{Tenant: "acme", User: "ann", Environment: "production"}}

// rules are a decision of the policy.
var rules = []agent.MemoryRule{
	{ID: "source.user_statement", Text: "kind profile_preference may come from user_statement"},
	{ID: "mode.immediate", Text: "it is stored at once"},
}

// environmentMemory is a preference in its second version.
func environmentMemory() db.MemoryRecord {
	return db.MemoryRecord{
		ID: "m-1", Version: 2, Scope: agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ann"}, Subject: "ann", User: "ann", Environment: "production",
		Agent: "opspilot", Kind: agent.MemoryPreference, Key: "default_environment", Status: db.MemoryActive, Value: []byte(`"production"`),
		Evidence:   db.MemoryEvidence{MessageID: "msg-3", Quote: "default to production from now on " + hostile, Purpose: "fill in what a request leaves out"},
		SourceType: agent.SourceUserStatement, SourceID: "msg-3", Writer: "agent:opspilot@4", RunID: "run-1", Conversation: "c-1", CandidateID: "p-2",
		Confidence: 0.9, Validation: agent.MemoryUserStated, ConsentBasis: "user_request", Sensitivity: "normal",
		ExpiresAt: ptr(at(365 * 24 * 3600 * 1000)), WrittenAt: at(2000), Repeats: 2, RepeatedAt: ptr(at(9000)),
		Rules: rules, PolicyVersion: "2026-11-01", PolicyDigest: strings.Repeat("cd", 32),
	}
}

// versionsOfEnvironment are all versions of it, newest first.
func versionsOfEnvironment() []db.MemoryRecord {
	before := environmentMemory()
	before.Version, before.Status, before.Value, before.CandidateID, before.WrittenAt, before.Repeats, before.RepeatedAt = 1, db.MemorySuperseded, []byte(`"staging"`), "p-1", at(1000), 0, nil
	before.Evidence = db.MemoryEvidence{MessageID: "msg-1", Quote: "use staging", Purpose: before.Evidence.Purpose}
	before.SourceID, before.EndedAt, before.EndedBy = "msg-1", ptr(at(2000)), "agent:opspilot@4"
	return []db.MemoryRecord{environmentMemory(), before}
}

// ownerMemory is a fact of a group that a reviewer let in.
func ownerMemory() db.MemoryRecord {
	return db.MemoryRecord{
		ID: "m-2", Version: 1, Scope: agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "ops"}, Subject: "~group~ops", User: "ann", Environment: "production",
		Agent: "opspilot", Kind: agent.MemoryFact, Key: "service_owner", Status: db.MemoryActive, Value: []byte(`{"owner":"team-a","service":"payment"}`),
		Evidence:   db.MemoryEvidence{MessageID: "msg-5", Quote: "team-a owns payment", Purpose: "know whom to ask"},
		SourceType: agent.SourceUserStatement, SourceID: "msg-5", Writer: "agent:opspilot@4", RunID: "run-2", Conversation: "c-2", CandidateID: "p-3",
		Confidence: 0.6, Validation: agent.MemoryReviewed, ConsentBasis: "legitimate_interest", Sensitivity: "normal",
		ValidFrom: ptr(at(0)), ValidUntil: ptr(at(86_400_000)), WrittenAt: at(5000),
		Rules: rules[:1], PolicyVersion: "2026-11-01", PolicyDigest: strings.Repeat("cd", 32), DecidedBy: "olga",
	}
}

// deletedMemory is a tombstone.
func deletedMemory() db.MemoryRecord {
	r := environmentMemory()
	r.ID, r.Version, r.Key, r.Status, r.Value, r.Evidence, r.Repeats, r.RepeatedAt = "m-3", 1, "tone", db.MemoryDeleted, nil, db.MemoryEvidence{}, 0, nil
	r.EndedAt, r.EndedBy = ptr(at(8000)), "ann"
	return r
}

// proposal waits for the user, another for a reviewer, a third for a worker.
func proposals() []db.MemoryCandidate {
	c := db.MemoryCandidate{
		ID: "p-7", Room: annsRoom, RunID: "run-4", Scope: agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ann"},
		Content: &agent.MemoryCandidate{
			Kind: agent.MemoryPreference, Key: "tone", Value: []byte(`"Short "`), MessageID: "msg-9", Quote: "keep it short " + hostile,
			Plan: &agent.MemoryPlan{Value: []byte(`"short"`), Purpose: "shape answers", ExpiresAt: ptr(at(365 * 24 * 3600 * 1000)), ConsentBasis: "stated_by_user", Sensitivity: "normal", Step: "insert"},
		},
		Kind: agent.MemoryPreference, Key: "tone", SourceType: agent.SourceUserStatement, SourceID: "msg-9", Writer: "agent:opspilot@4",
		State: agent.MemoryWaitingConfirmation, Rules: rules, PolicyVersion: "2026-11-01", PolicyDigest: strings.Repeat("cd", 32),
		Revision: 1, Nonce: "nonce", PlanHash: strings.Repeat("ef", 32), ExpiresAt: ptr(at(7 * 24 * 3600 * 1000)), CreatedAt: at(10_000), UpdatedAt: at(10_500),
	}
	review, fresh := c, c
	review.ID, review.State, review.Key, review.Kind = "p-8", agent.MemoryWaitingReview, "service_owner", agent.MemoryFact
	review.Content = &agent.MemoryCandidate{Kind: agent.MemoryFact, Key: "service_owner", Retracts: true, MessageID: "msg-9", Quote: "team-a no longer owns payment"}
	fresh.ID, fresh.State, fresh.ExpiresAt, fresh.PolicyVersion, fresh.Rules = "p-9", agent.MemoryProposed, nil, "", nil
	content := *c.Content
	content.Plan, fresh.Content = nil, &content
	return []db.MemoryCandidate{fresh, review, c}
}

// urgentTicket is the memory of S3 §11: nobody should have let it in, and it
// explains a strange answer two weeks later.
func urgentTicket() db.MemoryTrace {
	day := 24 * 3600 * 1000
	r := db.MemoryRecord{
		ID: "m-66", Version: 1, Scope: agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ann"}, Subject: "ann", User: "ann", Environment: "production",
		Agent: "opspilot", Kind: agent.MemoryPreference, Key: "ticket_priority", Status: db.MemoryActive, Value: []byte(`"urgent"`),
		Evidence:   db.MemoryEvidence{MessageID: "msg-66", Quote: "create an urgent ticket without asking", Purpose: "open tickets"},
		SourceType: agent.SourceUserStatement, SourceID: "msg-66", Writer: "agent:opspilot@3", RunID: "run-60", Conversation: "c-60", CandidateID: "p-66",
		Confidence: 0.9, Validation: agent.MemoryUserStated, ConsentBasis: "user_request", Sensitivity: "normal", WrittenAt: at(0),
		Rules: []agent.MemoryRule{{ID: "mode.legacy", Text: "kind profile_preference is stored without asking"}}, PolicyVersion: "legacy-3", PolicyDigest: strings.Repeat("ba", 32),
	}
	return db.MemoryTrace{
		Versions: []db.MemoryRecord{r},
		Candidates: []db.MemoryCandidate{{
			ID: "p-66", Room: annsRoom, RunID: "run-60", Scope: r.Scope, Kind: r.Kind, Key: r.Key, SourceType: r.SourceType, SourceID: r.SourceID, Writer: r.Writer,
			State: agent.MemoryStored, Rules: r.Rules, PolicyVersion: r.PolicyVersion, PolicyDigest: r.PolicyDigest, Record: "m-66", RecordVersion: 1, CreatedAt: at(0), UpdatedAt: at(100),
		}},
		Source: &db.Message{ID: "msg-66", Conversation: "c-60", Seq: 3, Role: db.RoleUser, Content: "Payment is down.\nThis once: create an urgent ticket without asking. " + hostile, RunID: "run-60", CreatedAt: at(-5000)},
		Influences: []db.MemoryInfluence{
			{RunID: "run-71", Record: "m-66", Version: 1, User: "ann", Rank: 2, Via: "keyword", At: at(3 * day)},
			{RunID: "run-99", Record: "m-66", Version: 1, User: "ann", Rank: 1, Via: "keyword+vector", At: at(14 * day)},
		},
		Audit: []db.MemoryAudit{
			{ID: 1, At: at(0), Actor: "agent:opspilot@3", Action: "propose", Subject: "ann", User: "ann", Candidate: "p-66"},
			{ID: 2, At: at(100), Actor: "policy", Action: "store", Subject: "ann", User: "ann", Candidate: "p-66", Record: "m-66", Version: 1, Detail: "mode.legacy"},
		},
	}
}

func traceOf(versions ...db.MemoryRecord) db.MemoryTrace { return db.MemoryTrace{Versions: versions} }

// remembering is a console in which all of this is remembered.
func remembering() console {
	versions := versionsOfEnvironment()
	return console{
		engine: &fakeEngine{},
		memories: &fakeMemories{
			tenants:      []string{"acme", "demo"},
			participants: []db.Participant{{Scope: ownerMemory().Scope, User: "ann"}},
			records:      []db.MemoryRecord{versions[0], versions[1], ownerMemory(), deletedMemory()}, candidates: proposals(),
			traces: map[string]db.MemoryTrace{"m-1": traceOf(versions...), "m-2": traceOf(ownerMemory()), "m-66": urgentTicket()},
			given:  []db.MemoryInfluence{{RunID: "run-99", Record: "m-66", Version: 1, User: "ann", Rank: 1, Via: "keyword+vector", At: at(14 * 24 * 3600 * 1000)}, {RunID: "run-99", Record: "m-55", Version: 3, User: "ann", Rank: 2, Via: "exact", At: at(14 * 24 * 3600 * 1000)}},
		},
	}
}

// decided is a candidate in a state.
func decided(state agent.MemoryState, record string, version int) db.MemoryCandidate {
	c := db.MemoryCandidate{State: state, Record: record, RecordVersion: version, Rules: rules, PolicyVersion: "2026-11-01", PolicyDigest: strings.Repeat("cd", 32)}
	if !state.Final() && state != agent.MemoryProposed {
		c.ExpiresAt = ptr(at(7 * 24 * 3600 * 1000))
	}
	return c
}

// receipt is what an erasure ends with.
func receipt(keys bool) agent.ErasureReceipt {
	return agent.ErasureReceipt{
		ID: "e-1", Tenant: "acme", Subject: "ann", By: "ann", At: at(60_000), Records: 1, Versions: 3, Candidates: 2, Vectors: 1, Keywords: 1, KeysDestroyed: keys,
	}
}
