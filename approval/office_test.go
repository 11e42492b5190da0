package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/vault"
)

var ctx = context.Background()

func pending(t *testing.T, o *office, who approval.Approver, f approval.Filter) approval.Pending {
	t.Helper()
	found, err := o.Pending(ctx, who, f)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func runs(p approval.Pending) string {
	var ids []string
	for _, plan := range p.Plans {
		ids = append(ids, plan.RunID)
	}
	return strings.Join(ids, " ")
}

func TestPendingShowsThePlan(t *testing.T) {
	t.Parallel()
	o := open(t)
	stored := o.wait(t, scope, "run-1")
	found := pending(t, o, bob, approval.Filter{})
	if len(found.Plans) != 1 || found.Forbidden != 0 || len(found.Damaged) != 0 || found.More {
		t.Fatalf("%+v", found)
	}
	got := fmt.Sprintf("%+v", found.Plans[0])
	want := fmt.Sprintf("%+v", approval.Plan{
		RunID: "run-1", CallID: "0.0", Revision: 1, Conversation: "c-run-1", Agent: "helper", DefinitionVersion: "3", Environment: "production",
		Requester: "ada", Tool: "restart_service", ToolVersion: "1", Arguments: []byte(arguments), ArgumentsHash: stored.ArgumentsHash,
		Resource: "service/payment", ResourceVersion: "v7", Summary: "Restart payment.", Hash: stored.Hash,
		CreatedAt: o.now, ExpiresAt: o.now.Add(30 * time.Minute), Purpose: purpose, Request: request, Steps: 1, BilledTokens: 120, CostMicros: 250,
	})
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPendingLeavesOut(t *testing.T) {
	t.Parallel()
	o := open(t)
	for i, id := range []string{"run-1", "run-2", "run-3"} {
		o.now = o.now.Add(time.Duration(i) * time.Second)
		o.wait(t, scope, id)
	}
	test := scope
	test.Environment = "test"
	o.wait(t, test, "run-4")
	o.wait(t, agent.Scope{Tenant: "umbrella", User: "ada", Environment: "production"}, "run-1")

	for name, c := range map[string]struct {
		who       approval.Approver
		filter    approval.Filter
		want      string
		forbidden int
		more      bool
	}{
		"oldest first":       {bob, approval.Filter{}, "run-1 run-2 run-3 run-4", 0, false},
		"one environment":    {bob, approval.Filter{Environment: "test"}, "run-4", 0, false},
		"one run":            {bob, approval.Filter{RunID: "run-2"}, "run-2", 0, false},
		"a page":             {bob, approval.Filter{Limit: 2}, "run-1 run-2", 0, true},
		"exactly a page":     {bob, approval.Filter{Limit: 4}, "run-1 run-2 run-3 run-4", 0, true},
		"the requester":      {ada, approval.Filter{}, "", 4, false},
		"nobody's approver":  {carl, approval.Filter{}, "", 4, false},
		"forbidden, by page": {carl, approval.Filter{Limit: 1}, "", 4, false},
		"another tenant":     {stranger, approval.Filter{}, "run-1", 0, false},
		"not its run":        {stranger, approval.Filter{RunID: "run-2"}, "", 0, false},
		"no such run":        {bob, approval.Filter{RunID: "run-9"}, "", 0, false},
	} {
		found := pending(t, o, c.who, c.filter)
		if runs(found) != c.want || found.Forbidden != c.forbidden || found.More != c.more {
			t.Errorf("%s: runs %q, forbidden %d, more %v", name, runs(found), found.Forbidden, found.More)
		}
	}
	if plan := pending(t, o, stranger, approval.Filter{}).Plans[0]; plan.Conversation != "c-run-1" || plan.Requester != "ada" {
		t.Errorf("%+v", plan)
	}

	// A newer generation, a withdrawn plan, and time.
	o.exec(t, "UPDATE conversation SET generation = generation + 1 WHERE tenant = 'acme' AND id = 'c-run-1'")
	o.end(t, scope, "run-2", agent.ReasonCanceled)
	if got := runs(pending(t, o, bob, approval.Filter{})); got != "run-3 run-4" {
		t.Errorf("after supersession and cancellation: %q", got)
	}
	o.now = o.now.Add(30 * time.Minute)
	if got := runs(pending(t, o, bob, approval.Filter{})); got != "" {
		t.Errorf("after the expiry: %q", got)
	}
}

// alterations are changes of what is stored, each of which makes the plan
// another one than the one that was hashed. Those with content change it as one
// can who has the keys.
var alterations = []struct{ sql, content string }{
	{"UPDATE write_plan SET summary = $1", "Restart payment.."},
	{"UPDATE write_plan SET resource = 'service/other'", ""},
	{"UPDATE write_plan SET resource_version = 'v8'", ""},
	{"UPDATE write_plan SET tool = 'stop_service'", ""},
	{"UPDATE write_plan SET tool_version = '2'", ""},
	{"UPDATE write_plan SET nonce = 'another'", ""},
	{"UPDATE write_plan SET expires_at = expires_at + interval '1 hour'", ""},
	{"UPDATE write_plan SET hash = '" + strings.Repeat("0", 64) + "'", ""},
	{"UPDATE write_plan SET arguments_hash = '" + strings.Repeat("0", 64) + "'", ""},
	{"UPDATE tool_call SET arguments = $1", `{"service":"ledger"}`},
	{"UPDATE tool_call SET arguments = $1", `{"service": "payment"}`},
	{"UPDATE tool_call SET arguments = $1", "not JSON"},
	{"UPDATE tool_call SET arguments_hash = '" + strings.Repeat("0", 64) + "'", ""},
	{"UPDATE tool_call SET tool = 'stop_service'", ""},
	// One who has no keys.
	{"UPDATE write_plan SET summary = set_byte(summary, 40, get_byte(summary, 40) # 1)", ""},
	{"UPDATE write_plan SET summary = (SELECT summary FROM write_plan WHERE run_id = 'run-0')", ""},
	{"UPDATE tool_call SET arguments = (SELECT arguments FROM tool_call WHERE run_id = 'run-0')", ""},
	{"UPDATE tool_call SET arguments = '\\x01'::bytea || 'not sealed'", ""},
	{"UPDATE message SET content = (SELECT content FROM message WHERE run_id = 'run-0')", ""},
	{"UPDATE model_attempt SET response = (SELECT response FROM model_attempt WHERE run_id = 'run-0')", ""},
}

func TestAlteredRecords(t *testing.T) {
	t.Parallel()
	o := open(t)
	// The same words under the same keys in other rows, of a plan that is over.
	o.wait(t, scope, "run-0")
	o.end(t, scope, "run-0", agent.ReasonCanceled)
	o.wait(t, scope, "run-1")
	shown := pending(t, o, bob, approval.Filter{}).Plans[0]
	for _, table := range []string{"write_plan", "tool_call", "message", "model_attempt"} {
		if _, err := o.owner.Exec(ctx, "CREATE TABLE kept_"+table+" AS SELECT * FROM "+table+" WHERE run_id = 'run-1'"); err != nil {
			t.Fatal(err)
		}
	}
	putBack := func() {
		o.exec(t, `UPDATE write_plan p SET (summary, resource, resource_version, tool, tool_version, nonce, expires_at, hash, arguments_hash) =
			(k.summary, k.resource, k.resource_version, k.tool, k.tool_version, k.nonce, k.expires_at, k.hash, k.arguments_hash)
			FROM kept_write_plan k WHERE p.run_id = k.run_id`)
		o.exec(t, `UPDATE tool_call c SET (arguments, arguments_hash, tool) = (k.arguments, k.arguments_hash, k.tool)
			FROM kept_tool_call k WHERE c.run_id = k.run_id`)
		o.exec(t, "UPDATE message m SET content = k.content FROM kept_message k WHERE m.id = k.id")
		o.exec(t, "UPDATE model_attempt a SET response = k.response FROM kept_model_attempt k WHERE a.run_id = k.run_id")
	}
	for _, a := range alterations {
		var args []any
		switch {
		case a.content == "":
		case strings.Contains(a.sql, "summary"):
			args = []any{o.seal(t, a.content, "write_plan", "acme", "run-1", "0.0", "1", "summary")}
		default:
			args = []any{o.seal(t, a.content, "tool_call", "acme", "run-1", "0.0", "arguments")}
		}
		o.exec(t, a.sql+" WHERE run_id = 'run-1'", args...)
		found := pending(t, o, bob, approval.Filter{})
		if len(found.Plans) != 0 || !slices.Equal(found.Damaged, []approval.PlanRef{{RunID: "run-1", CallID: "0.0", Revision: 1}}) {
			t.Errorf("%s: %+v", a.sql, found)
		}
		if token, err := o.Approve(ctx, bob, shown); !errors.Is(err, approval.ErrDamaged) || token.Text != "" {
			t.Errorf("%s: signed %q, %v", a.sql, token.Text, err)
		}
		putBack()
	}
	if _, err := o.Approve(ctx, bob, shown); err != nil {
		t.Errorf("after all was put back: %v", err)
	}
	// A damaged plan does not keep the others from being decided.
	o.wait(t, scope, "run-2")
	for _, sql := range []string{"UPDATE write_plan SET resource = 'x' WHERE run_id = 'run-1'", "UPDATE write_plan SET summary = '\\x01'::bytea || 'x' WHERE run_id = 'run-1'"} {
		o.exec(t, sql)
		if found := pending(t, o, bob, approval.Filter{}); runs(found) != "run-2" || len(found.Damaged) != 1 {
			t.Errorf("%s: %+v", sql, found)
		}
		putBack()
	}
}

// seal seals content under the keys of scope's user for the place.
func (o *office) seal(t *testing.T, content string, place ...string) []byte {
	t.Helper()
	keys, err := o.db.Keys(ctx, vault.Owner{Tenant: scope.Tenant, Subject: scope.User})
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := keys.Seal([]byte(content), vault.Bind(place...))
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestTokenIsBoundToThePlan(t *testing.T) {
	t.Parallel()
	o := open(t)
	stored := o.wait(t, scope, "run-1")
	shown := pending(t, o, bob, approval.Filter{}).Plans[0]
	v := verifier(t, o.key)
	for decision, decide := range map[approval.Decision]func(context.Context, approval.Approver, approval.Plan) (approval.Token, error){
		approval.Approve: o.Approve, approval.Decline: o.Decline,
	} {
		// A web page sends back no more than this.
		token, err := decide(ctx, bob, approval.Plan{RunID: shown.RunID, CallID: shown.CallID, Revision: shown.Revision, Hash: shown.Hash})
		if err != nil {
			t.Fatal(err)
		}
		got, code := v.Verify(token.Text, o.now)
		second := o.now.Truncate(time.Second)
		want := approval.Claims{
			TokenID: token.ID, Decision: decision, Approver: "bob", Tenant: "acme", RunID: "run-1", CallID: "0.0", Revision: 1,
			Tool: "restart_service", ToolVersion: "1", ArgumentsHash: stored.ArgumentsHash, ResourceVersion: "v7",
			PlanHash: stored.Hash, Nonce: stored.Nonce, IssuedAt: second, ExpiresAt: second.Add(15 * time.Minute),
		}
		if code != "" || got != want {
			t.Errorf("%s: %q\n%+v, want\n%+v", decision, code, got, want)
		}
		if token.WorkflowID != "agent-run~acme~run-1" || token.Decision != decision || !token.ExpiresAt.Equal(want.ExpiresAt) {
			t.Errorf("%+v", token)
		}
	}
	again, err := o.Approve(ctx, bob, shown)
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := v.Verify(again.Text, o.now); c.TokenID == "" || strings.Count(again.Text, ".") != 2 {
		t.Errorf("%+v", c)
	}
	// No token outlives its plan.
	o.now = stored.ExpiresAt.Add(-5 * time.Minute)
	late, err := o.Approve(ctx, bob, shown)
	if err != nil || late.ExpiresAt.After(stored.ExpiresAt) || late.ExpiresAt.Before(stored.ExpiresAt.Add(-time.Second)) {
		t.Errorf("expires at %s, the plan at %s, %v", late.ExpiresAt, stored.ExpiresAt, err)
	}
	if late.ID == again.ID {
		t.Error("two tokens have one ID")
	}
}

func TestNobodySigns(t *testing.T) {
	t.Parallel()
	o := open(t)
	stored := o.wait(t, scope, "run-1")
	o.wait(t, scope, "run-2")
	shown := pending(t, o, bob, approval.Filter{RunID: "run-1"}).Plans[0]
	with := func(change func(*approval.Plan)) approval.Plan {
		p := shown
		change(&p)
		return p
	}
	other := pending(t, o, bob, approval.Filter{RunID: "run-2"}).Plans[0]
	check := func(name string, who approval.Approver, plan approval.Plan, want error) {
		t.Helper()
		for decision, decide := range map[string]func(context.Context, approval.Approver, approval.Plan) (approval.Token, error){"approve": o.Approve, "decline": o.Decline} {
			token, err := decide(ctx, who, plan)
			if !errors.Is(err, want) || token != (approval.Token{}) {
				t.Errorf("%s, %s: %v, want %v", name, decision, err, want)
			}
			if err != nil && strings.Contains(err.Error(), "payment") {
				t.Errorf("%s: the error repeats content: %v", name, err)
			}
		}
	}
	check("the requester", ada, shown, approval.ErrForbidden)
	check("without rights", carl, shown, approval.ErrForbidden)
	check("another tenant", stranger, shown, approval.ErrNotFound)
	check("no such run", bob, with(func(p *approval.Plan) { p.RunID = "run-9" }), approval.ErrNotFound)
	check("no such call", bob, with(func(p *approval.Plan) { p.CallID = "0.1" }), approval.ErrNotFound)
	check("no such revision", bob, with(func(p *approval.Plan) { p.Revision = 2 }), approval.ErrNotFound)
	check("another hash", bob, with(func(p *approval.Plan) { p.Hash = hexOf("0") }), approval.ErrChanged)
	check("no hash", bob, with(func(p *approval.Plan) { p.Hash = "" }), approval.ErrChanged)
	check("the hash of another plan", bob, with(func(p *approval.Plan) { p.Hash = other.Hash }), approval.ErrChanged)

	o.now = stored.ExpiresAt.Add(-time.Microsecond)
	check("a microsecond before the expiry", bob, shown, approval.ErrExpired)
	o.now = stored.ExpiresAt
	check("at the expiry", bob, shown, approval.ErrExpired)
	o.now = stored.CreatedAt

	closed := map[string]error{
		"status = 'expired', decided_at = now()":                                           approval.ErrExpired,
		"status = 'stale', decided_at = now()":                                             approval.ErrChanged,
		"status = 'withdrawn', decided_at = now()":                                         approval.ErrWithdrawn,
		"status = 'refused', decided_at = now()":                                           approval.ErrWithdrawn,
		"status = 'approved', decided_at = now(), decided_by = 'bob', token_id = 'token'":  approval.ErrDecided,
		"status = 'declined', decided_at = now(), decided_by = 'eve', token_id = 'token2'": approval.ErrDecided,
	}
	for set, want := range closed {
		o.exec(t, "UPDATE write_plan SET "+set+" WHERE run_id = 'run-1'")
		check(set, bob, shown, want)
		// How it stands is none of their business.
		check(set, carl, shown, approval.ErrForbidden)
		o.exec(t, "UPDATE write_plan SET status = 'pending', decided_at = NULL, decided_by = '', token_id = '' WHERE run_id = 'run-1'")
	}
	o.exec(t, "UPDATE conversation SET generation = generation + 1 WHERE id = 'c-run-1'")
	check("superseded", bob, shown, approval.ErrWithdrawn)
	o.exec(t, "UPDATE run SET status = 'running', waiting_since = NULL WHERE id = 'run-2'")
	check("the run does not wait", bob, other, approval.ErrWithdrawn)

	for name, who := range map[string]approval.Approver{"nobody": {}, "no user": {Tenant: "acme"}, "no tenant": {User: "bob"}, "odd": {Tenant: "acme", User: "bob\n"}} {
		if _, err := o.Approve(ctx, who, shown); err == nil {
			t.Errorf("%s: approved", name)
		}
		if _, err := o.Pending(ctx, who, approval.Filter{}); err == nil {
			t.Errorf("%s: sees plans", name)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	o := open(t)
	for name, c := range map[string]approval.Config{
		"no database":    {Key: o.key},
		"a long life":    {DB: o.db, TokenTTL: approval.MaxTTL + 1},
		"no life":        {DB: o.db, TokenTTL: time.Millisecond},
		"broken policy":  {DB: o.db, Policies: fstest.MapFS{"p.cedar": {Data: []byte("permit (")}}},
		"no policies":    {DB: o.db, Policies: fstest.MapFS{}},
		"negative times": {DB: o.db, TokenTTL: -time.Minute},
	} {
		if _, err := approval.Open(c); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

func TestWithoutKeyOrPolicies(t *testing.T) {
	t.Parallel()
	o := open(t)
	o.wait(t, scope, "run-1")
	shown := pending(t, o, bob, approval.Filter{}).Plans[0]
	keyless, err := approval.Open(approval.Config{DB: o.db, Policies: policies, Now: func() time.Time { return o.now }})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := keyless.Pending(ctx, bob, approval.Filter{}); err != nil || len(found.Plans) != 1 {
		t.Errorf("without a key nothing is shown: %+v, %v", found, err)
	}
	if _, err := keyless.Approve(ctx, bob, shown); !errors.Is(err, approval.ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}

	// The built-in policies let the requester approve, and nobody else.
	builtIn, err := approval.Open(approval.Config{DB: o.db, Key: o.key, Now: func() time.Time { return o.now }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := builtIn.Approve(ctx, ada, shown); err != nil {
		t.Errorf("built-in policies, the requester: %v", err)
	}
	if _, err := builtIn.Approve(ctx, bob, shown); !errors.Is(err, approval.ErrForbidden) {
		t.Errorf("built-in policies, another user: %v", err)
	}

	// A policy that cannot be evaluated closes the door, and says so.
	broken, err := approval.Open(approval.Config{
		DB: o.db, Key: o.key, Now: func() time.Time { return o.now },
		Policies: fstest.MapFS{"p.cedar": {Data: []byte("permit (principal, action, resource);\nforbid (principal, action, resource) when { context.arguments.absent == 1 };")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := broken.Approve(ctx, bob, shown); !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("a policy that fails: %v", err)
	}
	if _, err := broken.Pending(ctx, bob, approval.Filter{}); !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("a policy that fails: %v", err)
	}
}

func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	down, err := db.Open(ctx, "postgres://nobody@127.0.0.1:1/none", db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer down.Close()
	o, err := approval.Open(approval.Config{DB: down, Key: approval.NewKey()})
	if err != nil {
		t.Fatal(err)
	}
	plan := approval.Plan{RunID: "run-1", CallID: "0.0", Revision: 1}
	_, errs := o.Pending(ctx, bob, approval.Filter{})
	_, err2 := o.Approve(ctx, bob, plan)
	_, err3 := o.Outcome(ctx, bob, approval.Token{ID: "x", Plan: approval.PlanRef{RunID: "run-1", CallID: "0.0", Revision: 1}})
	_, err4 := o.Settle(ctx, nil, olga, approval.WriteRef{RunID: "run-1", CallID: "0.0"}, approval.Settlement{})
	_, err5 := o.Unsettled(ctx, olga)
	for i, err := range []error{errs, err2, err3, err4, err5} {
		if !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// sent is a Signaler that keeps what it sent.
type sent struct {
	signals []string
	args    []any
	err     error
}

func (s *sent) SignalWorkflow(_ context.Context, workflowID, runID, signalName string, arg any) error {
	s.signals = append(s.signals, fmt.Sprintf("%s to %s, run %q", signalName, workflowID, runID))
	s.args = append(s.args, arg)
	return s.err
}

func TestSend(t *testing.T) {
	t.Parallel()
	o := open(t)
	o.wait(t, scope, "run-1")
	token, err := o.Approve(ctx, bob, pending(t, o, bob, approval.Filter{}).Plans[0])
	if err != nil {
		t.Fatal(err)
	}
	s := &sent{}
	if err := o.Send(ctx, s, token); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.signals, []string{`approval to agent-run~acme~run-1, run ""`}) || s.args[0] != (agent.Approval{Token: token.Text}) {
		t.Errorf("%q, %+v", s.signals, s.args)
	}
	s.err = errors.New("gone")
	if err := o.Send(ctx, s, token); !errors.Is(err, s.err) {
		t.Errorf("%v", err)
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	o := open(t)
	stored := o.wait(t, scope, "run-1")
	shown := pending(t, o, bob, approval.Filter{}).Plans[0]
	var tokens []approval.Token
	for range 3 {
		token, err := o.Approve(ctx, bob, shown)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	check := func(name string, token approval.Token, want approval.Outcome) {
		t.Helper()
		got, err := o.Outcome(ctx, bob, token)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
	check("nothing happened", tokens[0], approval.Outcome{Standing: approval.Waiting, Plan: db.PlanPending})
	// Forgeries are recorded without a token; they are nobody's.
	o.tx(t, scope, func(tx *db.Tx) {
		tx.RefuseApproval("run-1", db.Refusal{CallID: "0.0", Code: agent.RefusedSignature})
		tx.RefuseApproval("run-1", db.Refusal{CallID: "0.0", Code: agent.RefusedNotAuthorized, TokenID: tokens[1].ID, Approver: "bob"})
	})
	check("a forgery", tokens[0], approval.Outcome{Standing: approval.Waiting, Plan: db.PlanPending})
	check("refused", tokens[1], approval.Outcome{Standing: approval.Refused, Code: agent.RefusedNotAuthorized, Plan: db.PlanPending})
	if _, err := o.Outcome(ctx, bob, approval.Token{Plan: tokens[0].Plan}); err == nil {
		t.Error("a token without an ID has an outcome")
	}
	if _, err := o.Outcome(ctx, stranger, tokens[0]); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}

	key := o.commit(t, scope, stored, tokens[0].ID)
	accepted := approval.Outcome{Standing: approval.Accepted, Plan: db.PlanApproved, DecidedBy: "bob", Result: db.WriteOpen}
	check("accepted", tokens[0], accepted)
	// The same token once more is refused, which takes nothing back.
	o.tx(t, scope, func(tx *db.Tx) {
		tx.RefuseApproval("run-1", db.Refusal{CallID: "0.0", Code: agent.RefusedUsed, TokenID: tokens[0].ID, Approver: "bob"})
	})
	check("sent twice", tokens[0], accepted)
	check("by another token", tokens[2], approval.Outcome{Standing: approval.Closed, Plan: db.PlanApproved, DecidedBy: "bob", Result: db.WriteOpen})

	var recorded bool
	o.tx(t, scope, func(tx *db.Tx) {
		tx.ResolveIntent(key, db.WriteNotPerformed, db.ByCommit, o.now)
		tx.FinishToolCall("run-1", "0.0", db.CallOutcome{Error: &agent.ToolError{Code: agent.ToolConflict, Hash: "h"}, Envelope: "x", StartedAt: o.now}, &recorded)
	})
	accepted.Result, accepted.Error = db.WriteNotPerformed, agent.ToolConflict
	check("not performed", tokens[0], accepted)

	// Nobody decided.
	o.wait(t, scope, "run-2")
	token, err := o.Decline(ctx, bob, pending(t, o, bob, approval.Filter{RunID: "run-2"}).Plans[0])
	if err != nil {
		t.Fatal(err)
	}
	o.end(t, scope, "run-2", agent.ReasonCanceled)
	check("the run was canceled", token, approval.Outcome{Standing: approval.Closed, Plan: db.PlanWithdrawn})

	// A refused revision says nothing about the write of a later one.
	stored = o.wait(t, scope, "run-3")
	token, err = o.Approve(ctx, bob, pending(t, o, bob, approval.Filter{RunID: "run-3"}).Plans[0])
	if err != nil {
		t.Fatal(err)
	}
	o.exec(t, "UPDATE write_plan SET status = 'stale', decided_at = now() WHERE run_id = 'run-3'")
	stored.Revision, stored.ResourceVersion, stored.Nonce = 2, "v8", approval.Nonce()
	stored.Hash = planHash(t, "acme", stored)
	o.tx(t, scope, func(tx *db.Tx) { tx.InsertPlan(stored) })
	o.commit(t, scope, stored, "another-token")
	check("stale", token, approval.Outcome{Standing: approval.Closed, Plan: db.PlanStale})
}
