package approval_test

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/tool"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// policies: the group approvers decides, but nobody about the own run
// (four eyes); the group operators settles.
var policies = fstest.MapFS{
	"p.cedar": {Data: []byte(`
permit (principal, action == Action::"approve", resource) when { principal in context.approvers };
@id("four-eyes") forbid (principal, action == Action::"approve", resource) when { principal == context.requester };
permit (principal, action == Action::"settle", resource) when { principal in context.operators };`)},
	"entities.json": {Data: []byte(`[
{"uid": {"type": "User", "id": "acme/ada"}, "parents": [{"type": "Group", "id": "acme/approvers"}], "attrs": {}},
{"uid": {"type": "User", "id": "acme/bob"}, "parents": [{"type": "Group", "id": "acme/approvers"}], "attrs": {}},
{"uid": {"type": "User", "id": "acme/olga"}, "parents": [{"type": "Group", "id": "acme/operators"}], "attrs": {}},
{"uid": {"type": "User", "id": "umbrella/bob"}, "parents": [{"type": "Group", "id": "umbrella/approvers"}, {"type": "Group", "id": "umbrella/operators"}], "attrs": {}}
]`)},
}

var (
	bob      = approval.Approver{Tenant: "acme", User: "bob"}
	ada      = approval.Approver{Tenant: "acme", User: "ada"}
	carl     = approval.Approver{Tenant: "acme", User: "carl"}
	olga     = approval.Approver{Tenant: "acme", User: "olga"}
	stranger = approval.Approver{Tenant: "umbrella", User: "bob"}
)

// office is one Office on a database of its own, at a time that a test sets.
type office struct {
	*approval.Office
	db    *db.DB
	owner *pgxpool.Pool
	key   approval.Key
	now   time.Time
}

func open(t *testing.T) *office {
	t.Helper()
	database, url := dbtest.NewWithURL(t)
	o := &office{db: database, owner: dbtest.Owner(t, url), key: approval.NewKey(), now: time.Now().UTC().Truncate(time.Microsecond)}
	var err error
	o.Office, err = approval.Open(approval.Config{DB: database, Key: o.key, Policies: policies, Now: func() time.Time { return o.now }})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *office) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	tag, err := o.owner.Exec(context.Background(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if tag.RowsAffected() != 1 {
		t.Fatalf("%s: %d rows", sql, tag.RowsAffected())
	}
}

func (o *office) tx(t *testing.T, scope agent.Scope, fn func(tx *db.Tx)) {
	t.Helper()
	if err := o.db.InTx(context.Background(), scope, func(tx *db.Tx) error { fn(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

var scope = agent.Scope{Tenant: "acme", User: "ada", Environment: "production"}

const (
	request   = "Restart payment, please."
	purpose   = "It leaks connections."
	arguments = `{"service":"payment"}`
)

// wait stores a run that waits for a decision about its call 0.0, in a
// conversation of its own, and returns the plan.
func (o *office) wait(t *testing.T, scope agent.Scope, runID string) db.WritePlan {
	t.Helper()
	digest := hexOf("d")
	run := db.Run{
		ID: runID, Scope: scope, Conversation: "c-" + runID, Agent: "helper", DefinitionVersion: "3", DefinitionDigest: digest,
		Budget: agent.Budget{MaxSteps: 5, MaxToolCalls: 5, MaxTokens: 5000, Timeout: time.Minute}, Deadline: o.now.Add(time.Minute),
		WorkflowID: agent.WorkflowID(scope.Tenant, runID), RequestHash: digest, QuestionID: "q-" + runID, Version: 1, Status: agent.StatusQueued,
	}
	var admitted bool
	err := o.db.InTx(context.Background(), scope, func(tx *db.Tx) error {
		state, err := tx.LoadBegin(context.Background(), db.BeginQuery{Conversation: run.Conversation, RunID: runID, Day: db.Day(o.now)})
		if err != nil {
			return err
		}
		tx.StoreDefinition(db.Definition{Digest: digest, Name: "helper", Version: "3", Body: []byte("{}")})
		tx.AppendMessage(&state.Conversation, db.Message{ID: run.QuestionID, Role: db.RoleUser, Content: request, Visibility: db.Visible, RunID: runID}, true)
		run.Generation = state.Conversation.Generation
		tx.InsertRun(run)
		tx.AdmitRun(runID, db.Limits{}, &admitted)
		return nil
	})
	if err != nil || !admitted {
		t.Fatalf("begin: admitted %v, %v", admitted, err)
	}
	run.Status, run.Version = agent.StatusRunning, 2
	plan := db.WritePlan{
		RunID: runID, CallID: "0.0", Revision: 1, Tool: "restart_service", ToolVersion: "1", ArgumentsHash: tool.Hash([]byte(arguments)),
		Resource: "service/payment", ResourceVersion: "v7", Summary: "Restart payment.", Nonce: approval.Nonce(), PolicyDigest: digest,
		Status: db.PlanPending, CreatedAt: o.now, ExpiresAt: o.now.Add(30 * time.Minute),
	}
	plan.Hash = planHash(t, scope.Tenant, plan)
	cost := int64(250)
	err = o.db.InTx(context.Background(), scope, func(tx *db.Tx) error {
		tx.StartAttempt(runID, db.Attempt{Number: 1, Model: "m", Provider: "p", Reserved: db.Amount{Tokens: 900, CostMicros: &cost}})
		err := tx.FinishAttempt(runID, db.Attempt{
			Number: 1, Status: db.AttemptSucceeded, Billed: &db.Amount{Tokens: 120, CostMicros: &cost}, UsageKnown: true,
		}, &db.Response{Text: purpose, Calls: []db.ResponseCall{{ID: "x", Name: "restart_service", Arguments: arguments}}})
		if err != nil {
			return err
		}
		tx.InsertToolCalls(runID, []db.ToolCall{{
			ID: "0.0", Tool: "restart_service", ToolVersion: "1", Risk: "write", Arguments: arguments, ArgumentsHash: plan.ArgumentsHash, Status: db.CallProposed,
		}})
		tx.InsertPlan(plan)
		return tx.MoveRun(run, db.Move{To: agent.StatusWaitingConfirmation, At: o.now})
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func planHash(t *testing.T, tenant string, p db.WritePlan) string {
	t.Helper()
	hash, err := approval.PlanHash(approval.PlanFacts{
		Tenant: tenant, RunID: p.RunID, CallID: p.CallID, Revision: p.Revision, Tool: p.Tool, ToolVersion: p.ToolVersion,
		Arguments: []byte(arguments), Resource: p.Resource, ResourceVersion: p.ResourceVersion, Summary: p.Summary,
		ExpiresAt: p.ExpiresAt, Nonce: p.Nonce,
	})
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// commit does what a worker does with an approved plan: the run goes on and the
// intent is recorded.
func (o *office) commit(t *testing.T, scope agent.Scope, plan db.WritePlan, tokenID string) string {
	t.Helper()
	key := strings.Repeat("0", 64-len(plan.RunID)) + strings.Map(func(r rune) rune {
		if strings.ContainsRune("0123456789abcdef", r) {
			return r
		}
		return 'e'
	}, plan.RunID)
	o.tx(t, scope, func(tx *db.Tx) {
		state, err := tx.HoldWrite(context.Background(), plan.RunID, plan.CallID)
		if err != nil {
			t.Fatal(err)
		}
		closed := plan
		closed.Status, closed.DecidedBy, closed.DecidedAt, closed.TokenID = db.PlanApproved, "bob", o.now, tokenID
		tx.ClosePlan(closed)
		tx.RecordIntent(db.WriteIntent{
			Key: key, RunID: plan.RunID, CallID: plan.CallID, Revision: plan.Revision, ArgumentsHash: plan.ArgumentsHash,
			ApprovedBy: "bob", PolicyDigest: plan.PolicyDigest, RecordedAt: o.now,
		})
		tx.StartToolCall(plan.RunID, plan.CallID)
		if err := tx.MoveRun(state.Run, db.Move{To: agent.StatusRunning, At: o.now}); err != nil {
			t.Fatal(err)
		}
	})
	return key
}

// end ends a run as EndRun does.
func (o *office) end(t *testing.T, scope agent.Scope, runID string, reason agent.Reason) {
	t.Helper()
	o.tx(t, scope, func(tx *db.Tx) {
		state, err := tx.CloseRun(context.Background(), runID, "", 10)
		if err == nil {
			err = tx.MoveRun(state.Run, db.Move{To: reason.Status(), Reason: reason})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
