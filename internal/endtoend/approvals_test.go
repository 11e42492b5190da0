package endtoend

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/rig"
)

// approvalKey signs the approvals of this process; worker processes are given
// its public half.
var approvalKey = approval.NewKey()

// People: ann asks (see request), bob and carol approve, olga operates, mallory
// may do nothing, and dave may use no write.
var policies = fstest.MapFS{
	"policies.cedar": {Data: []byte(`
@id("use") permit (principal, action in [Action::"offer", Action::"read", Action::"prepare", Action::"commit"], resource);
@id("own") permit (principal, action == Action::"approve", resource) when { principal == context.requester };
@id("approve") permit (principal, action == Action::"approve", resource) when { principal in context.approvers };
@id("settle") permit (principal, action == Action::"settle", resource) when { principal in context.operators };
@id("four-eyes") forbid (principal, action == Action::"approve", resource)
  when { principal == context.requester && context.object like "thing/vault*" };
@id("not-offered") forbid (principal, action == Action::"offer", resource) when { context.page == "kiosk" && resource.risk == "write" };
@id("not-prepared") forbid (principal, action == Action::"prepare", resource) when { context.object like "thing/closed*" };
@id("not-committed") forbid (principal, action == Action::"commit", resource) when { context.object like "thing/late*" };
@id("breaks-offer") forbid (principal, action == Action::"offer", resource) when { context.page == "broken" && principal.missing == "x" };
@id("breaks-prepare") forbid (principal, action == Action::"prepare", resource) when { context.object like "thing/broken-prepare*" && principal.missing == "x" };
@id("breaks-approve") forbid (principal, action == Action::"approve", resource) when { context.object like "thing/broken-approve*" && principal.missing == "x" };
@id("breaks-commit") forbid (principal, action == Action::"commit", resource) when { context.object like "thing/broken-commit*" && principal.missing == "x" };
`)},
	"entities.json": {Data: []byte(`[
  {"uid": {"type": "User", "id": "acme/bob"}, "attrs": {}, "parents": [{"type": "Group", "id": "acme/approvers"}]},
  {"uid": {"type": "User", "id": "acme/carol"}, "attrs": {}, "parents": [{"type": "Group", "id": "acme/approvers"}]},
  {"uid": {"type": "User", "id": "acme/olga"}, "attrs": {}, "parents": [{"type": "Group", "id": "acme/operators"}]},
  {"uid": {"type": "Group", "id": "acme/approvers"}, "attrs": {}, "parents": []},
  {"uid": {"type": "Group", "id": "acme/operators"}, "attrs": {}, "parents": []}
]`)},
}

var (
	bob     = approval.Approver{Tenant: "acme", User: "bob"}
	carol   = approval.Approver{Tenant: "acme", User: "carol"}
	ann     = approval.Approver{Tenant: "acme", User: "ann"}
	olga    = approval.Approver{Tenant: "acme", User: "olga"}
	mallory = approval.Approver{Tenant: "acme", User: "mallory"}
)

// addWriter gives a worker the agents that change things.
func addWriter(c *rig.Config, things *things) error {
	defs, err := changers()
	c.Tools = append(c.Tools, writers(things)...)
	c.Definitions = append(c.Definitions, defs...)
	c.Policies, c.ApprovalKeys = policies, []string{approvalKey.Public()}
	return err
}

// withWriter is withWorker with the agents that change things.
func (w *world) withWriter(things *things, edit func(*rig.Config)) *world {
	w.Helper()
	return w.withWorker(func(c *rig.Config) {
		if err := addWriter(c, things); err != nil {
			w.Fatal(err)
		}
		if edit != nil {
			edit(c)
		}
	})
}

// office is the approvers' side.
func (w *world) office(edit ...func(*approval.Config)) *approval.Office {
	w.Helper()
	c := approval.Config{DB: w.db, Key: approvalKey, Policies: fs.FS(policies)}
	for _, change := range edit {
		change(&c)
	}
	office, err := approval.Open(c)
	if err != nil {
		w.Fatal(err)
	}
	return office
}

// pending waits until the run has a plan that waits, and returns it as the
// approver sees it.
func (w *world) pending(req agent.RunRequest, approver approval.Approver) (plan approval.Plan) {
	w.Helper()
	w.until("a plan waits for "+approver.User, func() bool {
		waiting, err := w.office().Pending(w.ctx, approver, approval.Filter{RunID: req.RunID})
		if err != nil {
			w.Fatal(err)
		}
		if len(waiting.Plans) == 0 {
			return false
		}
		plan = waiting.Plans[0]
		return true
	})
	return plan
}

// token mints the approver's decision about the plan.
func (w *world) token(approver approval.Approver, plan approval.Plan, decision approval.Decision) approval.Token {
	w.Helper()
	office := w.office()
	mint := office.Approve
	if decision == approval.Decline {
		mint = office.Decline
	}
	token, err := mint(w.ctx, approver, plan)
	if err != nil {
		w.Fatal(err)
	}
	return token
}

// approve waits for a plan of the run and approves it.
func (w *world) approve(req agent.RunRequest, approver approval.Approver) approval.Token {
	w.Helper()
	token := w.token(approver, w.pending(req, approver), approval.Approve)
	w.signal(req, token.Text)
	return token
}

// signal sends a token as any program may.
func (w *world) signal(req agent.RunRequest, token string) {
	w.Helper()
	if err := w.client.SignalWorkflow(w.ctx, agent.WorkflowID(req.Tenant, req.RunID), "", agent.SignalApproval, agent.Approval{Token: token}); err != nil {
		w.Fatal(err)
	}
}

// planned waits until the run has a plan that waits, and reads it with its nonce
// past the office, as one who can read the database.
func (w *world) planned(req agent.RunRequest) (plan approval.Plan, nonce string) {
	w.Helper()
	plan.RunID = req.RunID
	w.until("a plan waits", func() bool {
		err := w.owner.QueryRow(w.ctx, `SELECT call_id, revision, tool, tool_version, arguments_hash, resource_version, hash, nonce
			FROM write_plan WHERE run_id = $1 AND status = 'pending'`, req.RunID).Scan(
			&plan.CallID, &plan.Revision, &plan.Tool, &plan.ToolVersion, &plan.ArgumentsHash, &plan.ResourceVersion, &plan.Hash, &nonce)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			w.Fatal(err)
		}
		return err == nil
	})
	return plan, nonce
}

// sign makes the token of one who has the approvers' key.
func (w *world) sign(c approval.Claims) string {
	w.Helper()
	token, err := approvalKey.Sign(c)
	if err != nil {
		w.Fatal(err)
	}
	return token
}

// claims are those of a good approval of the plan, to be made bad.
func claims(req agent.RunRequest, plan approval.Plan, nonce string, edit func(*approval.Claims)) approval.Claims {
	now := time.Now()
	c := approval.Claims{
		TokenID: approval.Nonce(), Decision: approval.Approve, Approver: "bob", Tenant: req.Tenant, RunID: req.RunID, CallID: plan.CallID,
		Revision: plan.Revision, Tool: plan.Tool, ToolVersion: plan.ToolVersion, ArgumentsHash: plan.ArgumentsHash,
		ResourceVersion: plan.ResourceVersion, PlanHash: plan.Hash, Nonce: nonce,
		IssuedAt: now, ExpiresAt: now.Add(5 * time.Minute),
	}
	if edit != nil {
		edit(&c)
	}
	return c
}

// nonceOf reads the nonce past the office, as one who can read the database.
func (w *world) nonceOf(req agent.RunRequest) (nonce string) {
	w.Helper()
	if err := w.owner.QueryRow(w.ctx, "SELECT nonce FROM write_plan WHERE run_id = $1 AND status = 'pending'", req.RunID).Scan(&nonce); err != nil {
		w.Fatal(err)
	}
	return nonce
}

// refusals are the codes on record, in order.
func (w *world) refusals(req agent.RunRequest) (codes []string) {
	w.Helper()
	for _, r := range w.show(req).Refusals {
		codes = append(codes, string(r.Code))
	}
	return codes
}

// awaitRefusals waits until n refusals are on record, or the run has ended, and
// returns their codes.
func (w *world) awaitRefusals(req agent.RunRequest, n int) string {
	w.Helper()
	w.until("refusals are on record", func() bool { return w.status(req).Terminal() || len(w.refusals(req)) >= n })
	return strings.Join(w.refusals(req), " ")
}

// record is what the database says of a run's writes, in a few words:
// "plan 0.0/1 approved by bob, write 0.0 performed by commit, call 0.0 succeeded".
// A write that was sent more than once has a count.
func (w *world) record(req agent.RunRequest) string {
	w.Helper()
	report := w.show(req)
	var words []string
	for _, p := range report.Plans {
		line := fmt.Sprintf("plan %s/%d %s", p.CallID, p.Revision, p.Status)
		if p.DecidedBy != "" {
			line += " by " + p.DecidedBy
		}
		words = append(words, line)
	}
	for _, i := range report.Writes {
		line := fmt.Sprintf("write %s %s", i.CallID, i.Result)
		if i.ResolvedBy != "" {
			line += " by " + string(i.ResolvedBy)
		}
		if i.Sends != 1 {
			line += fmt.Sprintf(" sent %d times", i.Sends)
		}
		words = append(words, line)
	}
	for _, c := range report.Calls() {
		line := fmt.Sprintf("call %s %s", c.ID, c.Status)
		if c.Error != nil {
			line += " " + string(c.Error.Code)
		}
		words = append(words, line)
	}
	return strings.Join(words, ", ")
}

// wantRecord compares record with what a person expects.
func (w *world) wantRecord(req agent.RunRequest, want string) {
	w.Helper()
	if got := w.record(req); got != want {
		w.Errorf("the record says\n\t%s\nand should say\n\t%s", got, want)
	}
}

// view asks the workflow where it stands.
func (w *world) view(req agent.RunRequest) (view agent.RunView) {
	w.Helper()
	value, err := w.client.QueryWorkflow(w.ctx, agent.WorkflowID(req.Tenant, req.RunID), "", agent.QueryState)
	if err == nil {
		err = value.Get(&view)
	}
	if err != nil {
		w.Fatal(err)
	}
	return view
}

// keyOf is the idempotency key as WRITE-3 defines it, made by hand.
func keyOf(req agent.RunRequest, call, tool string) string {
	sum := sha256.Sum256([]byte(req.Tenant + "\n" + req.RunID + "\n" + call + "\n" + tool + "\n1"))
	return hex.EncodeToString(sum[:])
}

// status is what the database says of the run.
func (w *world) status(req agent.RunRequest) agent.Status { return w.show(req).Run.Status }

// checkWrites compares what the database says of a run's writes with what
// happened to the things: WRITE-3's one effect for each key, and no other.
func (w *world) checkWrites(req agent.RunRequest, things *things) {
	w.Helper()
	for _, write := range w.show(req).Writes {
		want := 0
		switch write.Result {
		case db.WritePerformed:
			want = 1
		case db.WriteOpen:
			w.Errorf("the write of call %s is still open", write.CallID)
		case db.WriteUnknown:
			continue
		}
		if got := things.effects(write.Key); got != want {
			w.Errorf("call %s is recorded %s and had %d effects", write.CallID, write.Result, got)
		}
	}
	if n := w.number(`SELECT count(*) FROM write_plan p WHERE run_id = $1 AND status = 'pending'
		AND EXISTS (SELECT 1 FROM run r WHERE r.id = p.run_id AND r.ended_at IS NOT NULL)`, req.RunID); n != 0 {
		w.Errorf("%d plans wait although the run has ended", n)
	}
}
