package agenttest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model/scripted"
)

func want(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

func TestApprove(t *testing.T) {
	t.Parallel()
	s := newServices()
	began := time.Now()
	shown := agenttest.Plan{}
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(),
			agenttest.CheckPlan(func(p agenttest.Plan) { shown = p }),
			agenttest.Wait(30*time.Minute),
			agenttest.ApproveAs("bob")))
	took := time.Since(began)

	result.WantEnd(agent.ReasonFinal)
	result.WantAnswer("restarted")
	result.WantCalls("restart")
	result.WantRefusals()
	want(t, "restarts", s.count(), 1)
	want(t, "shown", []any{shown.CallID, shown.Revision, shown.Tool, string(shown.Arguments), shown.Resource, shown.Version, shown.Summary, shown.Status},
		`[0.0 1 restart {"service":"payment-api"} service/payment-api 7 Restart payment-api. pending]`)
	p := result.Plans[0]
	want(t, "plan", []any{len(result.Plans), p.Status, p.Approver}, "[1 approved bob]")
	w := result.Writes[0]
	want(t, "write", []any{len(result.Writes), w.Tool, w.Approver, w.Result, w.ResolvedBy, w.Sends, len(w.Key)}, "[1 restart bob performed commit 1 64]")
	c := result.Calls[0]
	want(t, "call", []any{c.ID, c.Arguments, c.Executions, c.Status}, `[0.0 {"service":"payment-api"} 1 succeeded]`)
	want(t, "prompts", []any{len(result.Prompts), result.Prompts[0].Model, len(result.Prompts[0].Messages), len(result.Prompts[1].Messages)}, "[2 gpt-4.1-mini 1 3]")
	var path []agent.Status
	for _, tr := range result.Transitions {
		path = append(path, tr.To)
	}
	want(t, "transitions", path, "[queued running waiting_confirmation running succeeded]")
	if result.Elapsed < 30*time.Minute || result.Elapsed > 31*time.Minute {
		t.Errorf("%s of virtual time passed", result.Elapsed)
	}
	if took > time.Minute {
		t.Errorf("it took %s", took)
	}
	if t.Failed() {
		t.Log(result.Story())
	}
}

func TestDecline(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api", agenttest.When(agenttest.PlanWaits(), agenttest.DeclineAs("bob")))
	result.WantEnd(agent.ReasonFinal)
	result.WantCalls("restart: declined")
	want(t, "restarts", s.count(), 0)
	want(t, "plan", []any{result.Plans[0].Status, result.Plans[0].Approver, len(result.Writes)}, "[declined bob 0]")
}

func TestExpire(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api")
	result.WantEnd(agent.ReasonFinal)
	result.WantCalls("restart: not_confirmed")
	want(t, "restarts", s.count(), 0)
	want(t, "plan", result.Plans[0].Status, db.PlanExpired)
	if result.Elapsed < time.Hour || result.Elapsed > time.Hour+time.Minute {
		t.Errorf("it expired after %s", result.Elapsed)
	}
}

// refusal is an approval that must not be believed.
type refusal struct {
	send []agenttest.Action
	want agent.RefusalCode
	// approver is who is named in the record.
	approver string
}

func TestBadTokens(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]refusal{
		"forged":              {send: []agenttest.Action{agenttest.ForgeAs("bob")}, want: agent.RefusedSignature},
		"no token":            {send: []agenttest.Action{agenttest.SendToken("")}, want: agent.RefusedMalformed},
		"garbage":             {send: []agenttest.Action{agenttest.SendToken("a.b.c")}, want: agent.RefusedMalformed},
		"the requester":       {send: []agenttest.Action{agenttest.ApproveAs("ann")}, want: agent.RefusedNotAuthorized, approver: "ann"},
		"a stranger":          {send: []agenttest.Action{agenttest.ApproveAs("eve")}, want: agent.RefusedNotAuthorized, approver: "eve"},
		"a stranger declines": {send: []agenttest.Action{agenttest.DeclineAs("eve")}, want: agent.RefusedNotAuthorized, approver: "eve"},
		"other arguments":     changed(agent.RefusedWrongPlan, func(c *approval.Claims) { c.ArgumentsHash = strings.Repeat("1", 64) }),
		"other version":       changed(agent.RefusedWrongPlan, func(c *approval.Claims) { c.ResourceVersion = "8" }),
		"other nonce":         changed(agent.RefusedWrongPlan, func(c *approval.Claims) { c.Nonce = "n" }),
		"other text":          changed(agent.RefusedWrongPlan, func(c *approval.Claims) { c.PlanHash = strings.Repeat("1", 64) }),
		"other revision":      changed(agent.RefusedWrongPlan, func(c *approval.Claims) { c.Revision = 2 }),
		"other tool":          changed(agent.RefusedWrongPlan, func(c *approval.Claims) { c.Tool = "look" }),
		"other call":          changed(agent.RefusedWrongCall, func(c *approval.Claims) { c.CallID = "0.1" }),
		"other run":           changed(agent.RefusedWrongRun, func(c *approval.Claims) { c.RunID = "another" }),
		"other tenant":        changed(agent.RefusedWrongRun, func(c *approval.Claims) { c.Tenant = "umbrella" }),
		"past its time": changed(agent.RefusedExpired, func(c *approval.Claims) {
			c.IssuedAt, c.ExpiresAt = c.IssuedAt.Add(-time.Hour), c.IssuedAt.Add(-time.Minute)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServices()
			var after agenttest.Plan
			actions := append(bad.send, agenttest.Wait(time.Minute),
				agenttest.CheckPlan(func(p agenttest.Plan) { after = p; want(t, "restarts", s.count(), 0) }), agenttest.ApproveAs("cat"))
			result := suiteOf(t, s, restartOnce).Run("Restart payment-api", agenttest.When(agenttest.PlanWaits(), actions...))
			result.WantRefusals(bad.want)
			if len(result.Refusals) == 1 {
				want(t, "approver", result.Refusals[0].Approver, bad.approver)
			}
			want(t, "waits on", after.Status, db.PlanPending)
			result.WantEnd(agent.ReasonFinal)
			want(t, "decided", []any{result.Plans[0].Status, result.Plans[0].Approver, s.count()}, "[approved cat 1]")
		})
	}
}

func changed(code agent.RefusalCode, edit func(*approval.Claims)) refusal {
	return refusal{send: []agenttest.Action{agenttest.ApproveAs("bob", edit)}, want: code, approver: "bob"}
}

func TestTwice(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob"), agenttest.SendAgain(), agenttest.DeclineAs("cat")))
	result.WantEnd(agent.ReasonFinal)
	result.WantRefusals(agent.RefusedUsed, agent.RefusedUsed)
	want(t, "restarts", s.count(), 1)
	want(t, "approver", result.Plans[0].Approver, "bob")
}

func TestTokenOfAnotherRun(t *testing.T) {
	t.Parallel()
	s := newServices()
	suite := suiteOf(t, s, restartOnce)
	var claims approval.Claims
	suite.Run("Restart payment-api", agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob", func(c *approval.Claims) { claims = *c })))
	result := suite.Run("Restart payment-api", agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob", func(c *approval.Claims) { *c = claims })))
	result.WantRefusals(agent.RefusedWrongRun)
	result.WantCalls("restart: not_confirmed")
	want(t, "restarts", s.count(), 1)
}

func TestApprovalBeforeThePlan(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.ModelCalled(), agenttest.ApproveAs("bob")),
		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("cat")))
	result.WantEnd(agent.ReasonFinal)
	result.WantRefusals(agent.RefusedWrongPlan)
	want(t, "decided", []any{result.Plans[0].Approver, s.count()}, "[cat 1]")
}

func TestApprovalNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, scripted.ByStep(scripted.Turn{Text: "No."})).Run("Restart payment-api",
		agenttest.When(agenttest.ModelCalled(), agenttest.ApproveAs("bob")))
	result.WantEnd(agent.ReasonFinal)
	result.WantRefusals(agent.RefusedWrongCall)
}

func TestStaleResource(t *testing.T) {
	t.Parallel()
	s := newServices()
	versions := ""
	see := agenttest.CheckPlan(func(p agenttest.Plan) { versions += fmt.Sprint(p.Revision, "@", p.Version, " ") })
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), see, agenttest.Do(s.change), agenttest.ApproveAs("bob")),
		agenttest.When(agenttest.PlanWaits(), see, agenttest.ApproveAs("cat")))
	result.WantEnd(agent.ReasonFinal)
	want(t, "versions", versions, "1@7 2@8 ")
	want(t, "plans", []any{result.Plans[0].Status, result.Plans[1].Status, result.Plans[1].Approver}, "[stale approved cat]")
	want(t, "write", []any{result.Writes[0].Revision, s.count()}, "[2 1]")
}

func TestResourceChangesBetweenCheckAndCommit(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")),
		agenttest.When(agenttest.ToolBegins("restart"), agenttest.Do(s.change)))
	result.WantCalls("restart: conflict")
	want(t, "write", []any{result.Writes[0].Result, s.count()}, "[not_performed 0]")
}

func TestRefusedWhilePrepared(t *testing.T) {
	t.Parallel()
	result := suiteOf(t, newServices(), scripted.ByStep(calls("restart", `{"service":"nowhere"}`), scripted.Turn{Text: "No."})).Run("Restart")
	result.WantEnd(agent.ReasonFinal)
	result.WantCalls("restart: not_found")
	want(t, "plans", len(result.Plans), 0)
}

func TestRightsAreLostWhileWaiting(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.Do(func() { s.deny = true }), agenttest.ApproveAs("bob")))
	result.WantEnd(agent.ReasonFinal)
	result.WantCalls("restart: forbidden")
	want(t, "plan", []any{result.Plans[0].Status, s.count()}, "[refused 0]")

	s = newServices()
	result = suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.Do(func() { s.broken = true }), agenttest.ApproveAs("bob")))
	result.WantEnd(agent.ReasonAuthorizationUnavailable)
	want(t, "restarts", s.count(), 0)
}

// TestBuiltInPolicies: users confirm the writes of their own runs, and nobody
// else does.
func TestBuiltInPolicies(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce, func(c *agenttest.Config) { c.Policies = nil }).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob"), agenttest.ApproveAs("ann")))
	result.WantEnd(agent.ReasonFinal)
	result.WantRefusals(agent.RefusedNotAuthorized)
	want(t, "decided", []any{result.Plans[0].Approver, s.count()}, "[ann 1]")
}

func TestCancelWhileWaiting(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api", agenttest.When(agenttest.PlanWaits(), agenttest.Wait(time.Minute), agenttest.Cancel()))
	result.WantEnd(agent.ReasonCanceled)
	result.WantCalls("restart: abandoned")
	want(t, "plan", []any{result.Plans[0].Status, s.count()}, "[withdrawn 0]")
}

func TestSupersedeWhileWaiting(t *testing.T) {
	t.Parallel()
	s := newServices()
	suite := suiteOf(t, s, restartOnce)
	req := suite.Request("Restart payment-api")
	result := suite.RunRequest(req, agenttest.When(agenttest.PlanWaits(), agenttest.Supersede("Never mind."), agenttest.ApproveAs("bob")))
	result.WantEnd(agent.ReasonSuperseded)
	want(t, "plan", []any{result.Plans[0].Status, s.count()}, "[withdrawn 0]")
	want(t, "refusals", len(result.Refusals), 1)
}

// TestStopWhileCommitting: a commit that has begun reaches its end, is recorded,
// and then the run stops (RUN-13).
func TestStopWhileCommitting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stop agenttest.Action
		want agent.Reason
	}{
		"cancel": {agenttest.Cancel(), agent.ReasonCanceled}, "supersede": {agenttest.Supersede("Never mind."), agent.ReasonSuperseded},
	} {
		for _, moment := range []agenttest.Moment{agenttest.ToolBegins("restart"), agenttest.ToolReturns("restart"), agenttest.AfterActivity(agent.ActivityCommitWrite)} {
			t.Run(name+"/"+moment.String(), func(t *testing.T) {
				t.Parallel()
				s := newServices()
				result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
					agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")),
					agenttest.When(moment, c.stop, agenttest.Wait(7*time.Second)))
				result.WantEnd(c.want)
				result.WantCalls("restart")
				want(t, "write", []any{result.Writes[0].Result, result.Writes[0].ResolvedBy, s.count()}, "[performed commit 1]")
			})
		}
	}
}
