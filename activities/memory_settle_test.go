package activities_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
)

const (
	wish      = "Use production by default from now on, please. " + canary
	wishQuote = "Use production by default from now on"
)

// office is where persons decide about a bundle's memories.
func (m *memoryBundle) office() *approval.Office {
	m.Helper()
	o, err := approval.Open(approval.Config{DB: m.db, Key: m.key, Policies: reviewers, Now: m.clock})
	if err != nil {
		m.Fatal(err)
	}
	return o
}

// wished is a candidate that waits for ada's confirmation.
func (m *memoryBundle) wished() string {
	m.Helper()
	ids, verdicts := m.learned(wish, proposal("preference.default_environment", `"production"`, wishQuote))
	if len(verdicts) != 1 || verdicts[0].State != agent.MemoryWaitingConfirmation || !verdicts[0].Until.Equal(m.clock().Add(72*time.Hour)) {
		m.Fatalf("verdicts %+v", verdicts)
	}
	return ids[0]
}

// noted is a candidate of ada's that waits for a reviewer.
func (m *memoryBundle) noted() string {
	m.Helper()
	ids, verdicts := m.learned("The payment-api service is owned by team-ledger.",
		proposal("fact.service", `{"service":"payment-api","property":"owner","value":"team-ledger"}`, "The payment-api service is owned by team-ledger"))
	if len(verdicts) != 1 || verdicts[0].State != agent.MemoryWaitingReview {
		m.Fatalf("verdicts %+v", verdicts)
	}
	return ids[0]
}

// shown is the candidate as the office shows it to a person.
func (m *memoryBundle) shown(who, id string) approval.Memory {
	m.Helper()
	found, err := m.office().PendingMemories(m.ctx, approval.Approver{Tenant: "acme", User: who}, approval.MemoryFilter{})
	if err != nil || len(found.Damaged) > 0 {
		m.Fatalf("%+v, %v", found, err)
	}
	for _, p := range append(found.Confirm, found.Review...) {
		if p.ID == id {
			return p
		}
	}
	m.Fatalf("%s is not shown to %s", id, who)
	return approval.Memory{}
}

func (m *memoryBundle) approve(who, id string) string {
	m.Helper()
	token, err := m.office().ConfirmMemory(m.ctx, approval.Approver{Tenant: "acme", User: who}, m.shown(who, id))
	if err != nil {
		m.Fatal(err)
	}
	return token.Text
}

func (m *memoryBundle) settleWith(runs *activities.Runs, id, token string) agent.SettledMemory {
	m.Helper()
	out, err := runs.SettleMemory(m.ctx, agent.SettleMemoryInput{ID: id, Room: adasRoom, Token: token})
	if err != nil {
		m.Fatalf("settle: %v", err)
	}
	return out
}

func (m *memoryBundle) settle(id, token string) agent.SettledMemory {
	m.Helper()
	return m.settleWith(m.runs, id, token)
}

// TestLTM3Confirmed: what is stored is what was shown, vouched for by the user, and
// kept for as long as was said; a second worker does nothing twice.
func TestLTM3Confirmed(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	id := m.wished()
	seen := m.shown("ada", id)
	if string(seen.Value) != `"production"` || seen.Purpose != "To know which environment is meant when the user names none." || seen.Step != "insert" ||
		seen.Scope != (agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ada"}) || seen.ConsentBasis != "confirmed_by_user" ||
		seen.ExpiresAt == nil || !seen.ExpiresAt.Equal(m.now.Add(365*24*time.Hour)) || seen.Quote != wishQuote || seen.SourceType != agent.SourceUserStatement ||
		seen.Writer != "agent:helper@1" || len(seen.Rules) == 0 {
		t.Errorf("shown %+v", seen)
	}
	if again := m.judge(id); again.State != agent.MemoryWaitingConfirmation || m.shown("ada", id).Hash != seen.Hash {
		t.Errorf("judged again: %+v", again)
	}
	kept := *seen.ExpiresAt
	m.later(time.Hour)
	token := m.approve("ada", id)
	out := m.settle(id, token)
	if out.State != agent.MemoryStored || out.Refused != "" || out.Version != 1 {
		t.Fatalf("settled %+v", out)
	}
	if again := m.settleWith(m.restart(nil), id, token); again.State != agent.MemoryStored || again.Refused != "" || again.Record != out.Record {
		t.Errorf("settled again: %+v", again)
	}
	r, err := m.db.Memory(m.ctx, "acme", "ada", out.Record)
	if err != nil || r.Validation != agent.MemoryUserConfirmed || r.Confidence != 1 || r.DecidedBy != "ada" || r.ConsentBasis != "confirmed_by_user" ||
		string(r.Value) != `"production"` || !r.ExpiresAt.Equal(kept) || r.Evidence.Quote != wishQuote || r.RunID == "" {
		t.Errorf("record %+v, %v", r, err)
	}
	if got := m.audit(id); got != "fairlead wait_confirmation, ada store" {
		t.Errorf("audit: %s", got)
	}
	if k, v := m.number("SELECT count(*) FROM memory_keyword"), m.number("SELECT count(*) FROM memory_vector"); k != 1 || v != 1 {
		t.Errorf("%d keywords, %d vectors", k, v)
	}
	// The token is used up.
	m.exec("UPDATE memory_candidate SET token_id = 'another' WHERE id = $1", id)
	if late := m.settle(id, token); late.Refused != agent.RefusedUsed || late.State != agent.MemoryStored {
		t.Errorf("replayed: %+v", late)
	}
	if strings.Contains(m.log.String(), canary) || strings.Contains(m.log.String(), wishQuote) {
		t.Error("content reached the log")
	}
}

// TestLTM3Tokens: a token that is forged, expired, replayed or bound to anything
// else is refused, that is on record, and the candidate waits on.
func TestLTM3Tokens(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	id, other := m.wished(), m.noted()
	c, err := m.db.CandidateOfTenant(m.ctx, "acme", id)
	if err != nil {
		t.Fatal(err)
	}
	review, err := m.db.CandidateOfTenant(m.ctx, "acme", other)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(key approval.Key, of db.MemoryCandidate, edit func(*approval.Claims)) string {
		claims := approval.MemoryClaims(of, approval.Claims{
			TokenID: uuid.NewString(), Decision: approval.Approve, Approver: "ada", Tenant: "acme",
			IssuedAt: m.now.Truncate(time.Second), ExpiresAt: m.now.Add(time.Minute).Truncate(time.Second),
		})
		if edit != nil {
			edit(&claims)
		}
		token, err := key.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	hash := strings.Repeat("0", 64)
	for name, test := range map[string]struct {
		token string
		want  agent.RefusalCode
		actor string
	}{
		"no token at all":   {"unreadable", agent.RefusedMalformed, "unknown"},
		"another key":       {sign(approval.NewKey(), c, nil), agent.RefusedSignature, "unknown"},
		"expired":           {sign(m.key, c, func(c *approval.Claims) { c.IssuedAt, c.ExpiresAt = c.IssuedAt.Add(-time.Hour), c.IssuedAt }), agent.RefusedExpired, "ada"},
		"another candidate": {sign(m.key, review, nil), agent.RefusedWrongRun, "ada"},
		"another tenant":    {sign(m.key, c, func(c *approval.Claims) { c.Tenant = "umbrella" }), agent.RefusedWrongRun, "ada"},
		"a write's call":    {sign(m.key, c, func(c *approval.Claims) { c.CallID = "0.0" }), agent.RefusedWrongCall, "ada"},
		"another tool":      {sign(m.key, c, func(c *approval.Claims) { c.Tool = "restart_service" }), agent.RefusedWrongPlan, "ada"},
		"another policy":    {sign(m.key, c, func(c *approval.Claims) { c.ToolVersion = "2" }), agent.RefusedWrongPlan, "ada"},
		"another digest":    {sign(m.key, c, func(c *approval.Claims) { c.ResourceVersion = hash }), agent.RefusedWrongPlan, "ada"},
		"another value":     {sign(m.key, c, func(c *approval.Claims) { c.ArgumentsHash = hash }), agent.RefusedWrongPlan, "ada"},
		"another plan":      {sign(m.key, c, func(c *approval.Claims) { c.PlanHash = hash }), agent.RefusedWrongPlan, "ada"},
		"another nonce":     {sign(m.key, c, func(c *approval.Claims) { c.Nonce = "x" }), agent.RefusedWrongPlan, "ada"},
		"another revision":  {sign(m.key, c, func(c *approval.Claims) { c.Revision = 2 }), agent.RefusedWrongPlan, "ada"},
		"somebody else":     {sign(m.key, c, func(c *approval.Claims) { c.Approver = "bob" }), agent.RefusedNotAuthorized, "bob"},
		"somebody declines": {sign(m.key, c, func(c *approval.Claims) { c.Approver, c.Decision = "bob", approval.Decline }), agent.RefusedNotAuthorized, "bob"},
		"a line end":        {sign(m.key, c, nil) + "\n", agent.RefusedMalformed, "unknown"},
	} {
		before := m.audit(id)
		out := m.settle(id, test.token)
		if out.Refused != test.want || out.State != agent.MemoryWaitingConfirmation {
			t.Errorf("%s: %+v", name, out)
		}
		if got := strings.TrimPrefix(m.audit(id), before+", "); got != test.actor+" refuse_decision "+string(test.want) {
			t.Errorf("%s: audit %q", name, got)
		}
	}
	// Nobody reviews what comes from oneself, though the policies here allow all.
	if out := m.settle(other, sign(m.key, review, nil)); out.Refused != agent.RefusedNotAuthorized || out.State != agent.MemoryWaitingReview {
		t.Errorf("own review: %+v", out)
	}
	if n := m.number("SELECT count(*) FROM memory_record"); n != 0 {
		t.Errorf("%d records", n)
	}
	// What was refused keeps nobody from deciding.
	if out := m.settle(id, sign(m.key, c, nil)); out.State != agent.MemoryStored {
		t.Errorf("the good one: %+v", out)
	}
}

// TestLTM3Reviewed: a reviewer's word is worth what the policy says.
func TestLTM3Reviewed(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	id := m.noted()
	out := m.settle(id, m.approve("bob", id))
	if out.State != agent.MemoryStored {
		t.Fatalf("settled %+v", out)
	}
	r, err := m.db.Memory(m.ctx, "acme", "ada", out.Record)
	if err != nil || r.Validation != agent.MemoryReviewed || r.DecidedBy != "bob" || r.Confidence != 0.9 {
		t.Errorf("record %+v, %v", r, err)
	}
}

// TestLTM3ReviewerLosesTheRight: the policies are asked again when the token comes.
func TestLTM3ReviewerLosesTheRight(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	id := m.noted()
	token := m.approve("bob", id)
	for name, policies := range map[string]string{
		"forbidden": `permit (principal, action, resource) unless { action == Action::"review" };`,
		"broken":    `permit (principal, action, resource); permit (principal, action == Action::"review", resource) when { context.arguments.absent == "x" };`,
	} {
		runs := m.restart(func(c *activities.Config) { c.Policies = policiesOf(t, policies) })
		if out := m.settleWith(runs, id, token); out.Refused != agent.RefusedNotAuthorized || out.State != agent.MemoryWaitingReview {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if out := m.settle(id, token); out.State != agent.MemoryStored {
		t.Errorf("the right is back: %+v", out)
	}
}

func TestLTM3Declined(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	id := m.wished()
	token, err := m.office().DeclineMemory(m.ctx, approval.Approver{Tenant: "acme", User: "ada"}, m.shown("ada", id))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if out := m.settle(id, token.Text); out.State != agent.MemoryDeclined || out.Refused != "" {
			t.Errorf("settled %+v", out)
		}
	}
	if n := m.number("SELECT count(*) FROM memory_candidate WHERE content IS NULL AND decided_by = 'ada'"); n != 1 {
		t.Error("the content of a declined candidate was kept, or nobody declined it")
	}
	if got := m.audit(id); got != "fairlead wait_confirmation, ada decline" {
		t.Errorf("audit: %s", got)
	}
}

// TestLTM3TimeToDecide: it expires when the time is over, and not before.
func TestLTM3TimeToDecide(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	id := m.wished()
	m.later(72*time.Hour - time.Second)
	if out := m.settle(id, ""); out.State != agent.MemoryWaitingConfirmation {
		t.Errorf("a second before: %+v", out)
	}
	c, err := m.db.CandidateOfTenant(m.ctx, "acme", id)
	if err != nil {
		t.Fatal(err)
	}
	// The office signs none that outlives the candidate.
	token, err := m.key.Sign(approval.MemoryClaims(c, approval.Claims{
		TokenID: "long", Decision: approval.Approve, Approver: "ada", Tenant: "acme",
		IssuedAt: m.now.Truncate(time.Second), ExpiresAt: m.now.Add(time.Minute).Truncate(time.Second),
	}))
	if err != nil {
		t.Fatal(err)
	}
	m.later(time.Second)
	if out := m.settle(id, token); out.Refused != agent.RefusedExpired || out.State != agent.MemoryWaitingConfirmation {
		t.Errorf("a token at the end: %+v", out)
	}
	for range 2 {
		if out := m.settle(id, ""); out.State != agent.MemoryExpired {
			t.Errorf("at the end: %+v", out)
		}
	}
	if n := m.number("SELECT count(*) FROM memory_candidate WHERE content IS NOT NULL"); n != 0 {
		t.Error("the content was kept")
	}
	if got := m.audit(id); got != "fairlead wait_confirmation, ada refuse_decision expired, fairlead expire" {
		t.Errorf("audit: %s", got)
	}
}

// TestLTM3ChangedMeanwhile: if anything is not as it was shown when the person
// agrees, the candidate waits anew, or is rejected.
func TestLTM3ChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*testing.T, *memoryBundle) *activities.Runs
		want   agent.MemoryState
	}{
		"another policy": {func(t *testing.T, m *memoryBundle) *activities.Runs {
			return m.restart(func(c *activities.Config) {
				c.MemoryPolicy = policy(t, `version: "2026-11-30"`, `version: "2026-12-01"`)
			})
		}, agent.MemoryWaitingConfirmation},
		"a policy that forbids it": {func(t *testing.T, m *memoryBundle) *activities.Runs {
			return m.restart(func(c *activities.Config) {
				c.MemoryPolicy = policy(t, "write_mode: confirm\n    description: The environment", "scopes: [group]\n    description: The environment")
			})
		}, agent.MemoryRejected},
		"a policy that wants a reviewer": {func(t *testing.T, m *memoryBundle) *activities.Runs {
			return m.restart(func(c *activities.Config) {
				c.MemoryPolicy = policy(t, "write_mode: confirm\n    description: The environment", "write_mode: background_review\n    description: The environment")
			})
		}, agent.MemoryWaitingReview},
		"something else is in force": {func(t *testing.T, m *memoryBundle) *activities.Runs {
			m.write(corrected("preference.default_environment", `"staging"`))
			return m.runs
		}, agent.MemoryWaitingConfirmation},
		"another version is in force": {func(t *testing.T, m *memoryBundle) *activities.Runs {
			m.write(corrected("preference.default_environment", `"test"`))
			return m.runs
		}, agent.MemoryWaitingConfirmation},
		"the same is in force": {func(t *testing.T, m *memoryBundle) *activities.Runs {
			m.write(corrected("preference.default_environment", `"production"`))
			return m.runs
		}, agent.MemoryMerged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := setupMemory(t, nil)
			if name == "another version is in force" {
				m.write(corrected("preference.default_environment", `"staging"`))
			}
			id := m.wished()
			before := m.shown("ada", id)
			token := m.approve("ada", id)
			runs := test.change(t, m)
			for range 2 { // the second time as after a crash
				if out := m.settleWith(runs, id, token); out.State != test.want || out.Refused != "" {
					t.Fatalf("settled %+v", out)
				}
			}
			switch test.want {
			case agent.MemoryWaitingConfirmation:
				after := m.shown("ada", id)
				if after.Revision != 2 || after.Hash == before.Hash {
					t.Errorf("waits as before: %+v", after)
				}
				if out := m.settleWith(runs, id, m.approve("ada", id)); out.State != agent.MemoryStored {
					t.Errorf("agreed to anew: %+v", out)
				}
				if got := m.values("preference.default_environment", false); got != `"production"` {
					t.Errorf("in force: %s", got)
				}
			case agent.MemoryRejected:
				if n := m.number("SELECT count(*) FROM memory_candidate WHERE content IS NOT NULL"); n != 0 {
					t.Error("the content was kept")
				}
			}
		})
	}
}

// TestLTM4UnreliableSourceAsks: what the user once said does not take the place
// of what the user confirmed.
func TestLTM4UnreliableSourceAsks(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.write(corrected("preference.food", `{"item":"sushi","sentiment":"likes"}`))
	_, verdicts := m.learned("I hate sushi.", proposal("preference.food", `{"item":"sushi","sentiment":"dislikes"}`, "I hate sushi"))
	if len(verdicts) != 1 || verdicts[0].State != agent.MemoryWaitingConfirmation {
		t.Fatalf("verdicts %+v", verdicts)
	}
	if got := m.values("preference.food", false); got != `{"item":"sushi","sentiment":"likes"}` {
		t.Errorf("in force: %s", got)
	}
	id := verdicts[0].ID
	if seen := m.shown("ada", id); seen.Step != "replace" || len(seen.Ends) != 1 {
		t.Errorf("shown %+v", seen)
	}
	if out := m.settle(id, m.approve("ada", id)); out.State != agent.MemoryStored || out.Version != 2 {
		t.Errorf("settled %+v", out)
	}
}

// TestLTM3StoreDownAtSettle: a decision is carried out once the store is back.
func TestLTM3StoreDownAtSettle(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	id := m.wished()
	token := m.approve("ada", id)
	m.memory.set(func(string) error { return db.ErrUnavailable })
	if _, err := m.runs.SettleMemory(context.Background(), agent.SettleMemoryInput{ID: id, Room: adasRoom, Token: token}); err == nil || !retried(err) {
		t.Fatalf("error %v", err)
	}
	m.memory.set(nil)
	if out := m.settle(id, token); out.State != agent.MemoryStored {
		t.Errorf("settled %+v", out)
	}
}
