package endtoend

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
)

// ending is a run that comes to one reason.
type ending struct {
	reason agent.Reason
	detail string
	// scenario is the user's message; edit changes the rest of the request.
	scenario string
	edit     func(*agent.RunRequest)
	// during is what happens from outside: while the model thinks, or, for
	// "approve", when a plan waits.
	during string
	// write names an ending that a write comes to.
	write string
}

func (e ending) name() string {
	if e.write != "" {
		return string(e.reason) + ", " + e.write
	}
	return string(e.reason)
}

var endings = []ending{
	{reason: agent.ReasonFinal, scenario: "final"},
	{reason: agent.ReasonStepLimit, scenario: "forever", edit: budget(func(b *agent.BudgetOverride) { b.MaxSteps = ptr(3) })},
	{reason: agent.ReasonToolCallLimit, scenario: "forever", edit: budget(func(b *agent.BudgetOverride) { b.MaxToolCalls = ptr(2) })},
	{reason: agent.ReasonTokenLimit, scenario: "forever", edit: budget(func(b *agent.BudgetOverride) { b.MaxTokens = ptr(int64(3000)) })},
	{reason: agent.ReasonCostLimit, scenario: "forever", edit: budget(func(b *agent.BudgetOverride) { b.MaxCostMicros = ptr(int64(200)) })},
	{reason: agent.ReasonDeadline, scenario: "slow", edit: budget(func(b *agent.BudgetOverride) { b.Timeout = ptr(time.Second) })},
	{reason: agent.ReasonRepeatedAction, detail: "same_action", scenario: "same"},
	{reason: agent.ReasonRepeatedError, scenario: "errors"},
	{reason: agent.ReasonOutputTruncated, scenario: "truncated"},
	{reason: agent.ReasonMalformedOutput, detail: "-", scenario: "empty"},
	{reason: agent.ReasonContentPolicy, scenario: "filtered"},
	{reason: agent.ReasonContextOverflow, detail: "question", scenario: "final " + strings.Repeat("long ", 4000), edit: func(r *agent.RunRequest) { r.Agent = "tiny" }},
	{reason: agent.ReasonDeclinedByPolicy, detail: "environment", scenario: "final", edit: func(r *agent.RunRequest) { r.Environment = "production" }},
	{reason: agent.ReasonOutcomeUnknown, scenario: "lost"},
	{reason: agent.ReasonModelUnavailable, detail: "authentication", scenario: "unauthorized"},
	{reason: agent.ReasonAuthorizationUnavailable, scenario: "rights"},
	{reason: agent.ReasonSuperseded, scenario: "slow", during: "supersede"},
	{reason: agent.ReasonCanceled, scenario: "slow", during: "cancel"},
	{reason: agent.ReasonInternal, detail: "-", scenario: "panic"},

	writeEnding(agent.ReasonFinal, "confirmed", "change", changeArgs{}, "approve"),
	writeEnding(agent.ReasonOutcomeUnknown, "no look-up", "send", changeArgs{Mode: "timeout-before"}, "approve"),
	writeEnding(agent.ReasonOutcomeUnknown, "never known", "change", changeArgs{Mode: "never-known"}, "approve"),
	writeEnding(agent.ReasonAuthorizationUnavailable, "tool at the plan", "change", changeArgs{Mode: "tool-rights-down"}, ""),
	writeEnding(agent.ReasonAuthorizationUnavailable, "policies at the plan", "change", changeArgs{Thing: "broken-prepare"}, ""),
	writeEnding(agent.ReasonAuthorizationUnavailable, "policies at the approval", "change", changeArgs{Thing: "broken-approve"}, "approve"),
	writeEnding(agent.ReasonAuthorizationUnavailable, "policies at the commit", "change", changeArgs{Thing: "broken-commit"}, "approve"),
	writeEnding(agent.ReasonAuthorizationUnavailable, "tool at the commit", "change", changeArgs{Mode: "tool-rights-down-late"}, "approve"),
	{
		reason: agent.ReasonAuthorizationUnavailable, write: "policies at the offer", scenario: "final",
		edit: func(r *agent.RunRequest) { r.Page = "broken" },
	},
}

// writeEnding is one of the agent that changes things.
func writeEnding(reason agent.Reason, name, tool string, args changeArgs, during string) ending {
	if args.Thing == "" {
		args.Thing = strings.ReplaceAll(string(reason)+"-"+name, " ", "-")
		args.Thing = strings.ReplaceAll(args.Thing, "_", "-")
	}
	return ending{
		reason: reason, write: name, scenario: "call " + proposal(tool, args), during: during,
		edit: func(r *agent.RunRequest) { r.Agent = "changer" },
	}
}

func budget(set func(*agent.BudgetOverride)) func(*agent.RunRequest) {
	return func(r *agent.RunRequest) {
		r.Budget = &agent.BudgetOverride{}
		set(r.Budget)
	}
}

func (e ending) request() agent.RunRequest {
	req := request(e.scenario)
	if e.edit != nil {
		e.edit(&req)
	}
	return req
}

// check compares the end with what the table says, in the result and in the
// database. Detail "-" means any.
func (e ending) check(t *testing.T, w *world, req agent.RunRequest, result agent.RunResult) {
	t.Helper()
	if result.Reason != e.reason || result.Status != e.reason.Status() {
		t.Fatalf("ended %s (%s, %q), want %s", result.Reason, result.Status, result.Detail, e.reason)
	}
	if e.detail != "-" && result.Detail != e.detail {
		t.Fatalf("detail %q, want %q", result.Detail, e.detail)
	}
	if (result.AnswerMessageID != "") != (e.reason == agent.ReasonFinal) {
		t.Fatalf("answer %q with reason %s", result.AnswerMessageID, e.reason)
	}
	report := w.show(req)
	if report.Run.Status != result.Status || report.Run.Reason != result.Reason {
		t.Fatalf("the database says %s, %s", report.Run.Status, report.Run.Reason)
	}
	w.checkLedger(t, req, result)
}

func TestEveryReasonIsCovered(t *testing.T) {
	t.Parallel()
	covered := map[agent.Reason]bool{}
	for _, e := range endings {
		covered[e.reason] = true
	}
	for _, reason := range agent.Reasons() {
		if !covered[reason] {
			t.Errorf("no ending for %s", reason)
		}
	}
}

// TestReasonsOnServer brings each reason about on the real server.
func TestReasonsOnServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withWriter(newThings(), nil)
	for _, e := range endings {
		t.Run(e.name(), func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			req := e.request()
			run := w.start(req)
			switch e.during {
			case "cancel":
				w.until("the model is called", func() bool { return w.attempts(req) > 0 })
				w.cancelInUI(run.GetID())
			case "supersede":
				w.until("the model is called", func() bool { return w.attempts(req) > 0 })
				w.supersede(req)
			case "approve":
				plan, nonce := w.planned(req)
				w.signal(req, w.sign(claims(req, plan, nonce, nil)))
			}
			began := time.Now()
			e.check(t, w, req, w.wait(run))
			if took := time.Since(began); e.scenario == "slow" && took > 15*time.Second {
				t.Fatalf("it took %s to stop a model call of 30 s", took)
			}
		})
	}
}

// TestReasonsInSuite brings each reason about through Temporal's test suite,
// with the same activities on a real database.
func TestReasonsInSuite(t *testing.T) {
	t.Parallel()
	w := inSuite(t)
	c, err := config(w.db)
	if err == nil {
		err = addWriter(&c, newThings())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range endings {
		t.Run(e.name(), func(t *testing.T) {
			t.Parallel()
			req := e.request()
			s := w.skip(t, c, req)
			switch e.during {
			case "cancel":
				s.at(100*time.Millisecond, s.env.CancelWorkflow)
			case "supersede":
				s.at(100*time.Millisecond, func() {
					newer := request("answer Here I am.")
					newer.Conversation = req.Conversation
					out, err := s.runs.BeginRun(context.Background(), agent.BeginRunInput{Request: newer, StartedAt: time.Now()})
					if err != nil || len(out.Supersedes) != 1 || out.Supersedes[0] != req.RunID {
						t.Errorf("the newer run supersedes %v, %v", out.Supersedes, err)
					}
					s.env.SignalWorkflow(agent.SignalSupersede, agent.Supersession{ByRunID: newer.RunID, Generation: out.Generation})
				})
			case "approve":
				s.at(time.Minute, func() {
					plan, nonce := s.planned(req)
					s.send(s.sign(claims(req, plan, nonce, func(c *approval.Claims) {
						c.IssuedAt, c.ExpiresAt = s.env.Now(), s.env.Now().Add(time.Minute)
					})))
				})
			}
			result, _ := s.play()
			e.check(t, s.world, req, result)
		})
	}
}
