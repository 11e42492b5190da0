package endtoend

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/rig"
	"github.com/fairlead/fairlead/workflows"
)

// ending is a run that comes to one reason.
type ending struct {
	reason agent.Reason
	detail string
	// scenario is the user's message; edit changes the rest of the request.
	scenario string
	edit     func(*agent.RunRequest)
	// during is what happens from outside while the model thinks.
	during string
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
	{reason: agent.ReasonContextOverflow, scenario: "final " + strings.Repeat("long ", 4000), edit: func(r *agent.RunRequest) { r.Agent = "tiny" }},
	{reason: agent.ReasonDeclinedByPolicy, detail: "environment", scenario: "final", edit: func(r *agent.RunRequest) { r.Environment = "production" }},
	{reason: agent.ReasonOutcomeUnknown, scenario: "lost"},
	{reason: agent.ReasonModelUnavailable, detail: "authentication", scenario: "unauthorized"},
	{reason: agent.ReasonAuthorizationUnavailable, scenario: "rights"},
	{reason: agent.ReasonSuperseded, scenario: "slow", during: "supersede"},
	{reason: agent.ReasonCanceled, scenario: "slow", during: "cancel"},
	{reason: agent.ReasonInternal, detail: "-", scenario: "panic"},
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
	w := newWorld(t).withWorker(nil)
	for _, e := range endings {
		t.Run(string(e.reason), func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			req := e.request()
			run := w.start(req)
			switch e.during {
			case "cancel":
				w.until("the model is called", func() bool { return w.attempts(req) > 0 })
				if err := w.client.CancelWorkflow(w.ctx, run.GetID(), ""); err != nil {
					t.Fatal(err)
				}
			case "supersede":
				w.until("the model is called", func() bool { return w.attempts(req) > 0 })
				newer := request("answer Here I am.")
				newer.Conversation = req.Conversation
				if result := w.run(newer); result.Reason != agent.ReasonFinal {
					t.Fatalf("the newer run ended %s", result.Reason)
				}
			}
			began := time.Now()
			e.check(t, w, req, w.wait(run))
			if took := time.Since(began); e.during != "" && took > 15*time.Second {
				t.Fatalf("it took %s to stop a model call of 30 s", took)
			}
		})
	}
}

// TestReasonsInSuite brings each reason about through Temporal's test suite,
// with the same activities on a real database.
func TestReasonsInSuite(t *testing.T) {
	t.Parallel()
	w := &world{TB: t, ctx: t.Context(), url: dbtest.URL(t)}
	w.db, w.owner = dbtest.Open(t, w.url, db.Options{}), dbtest.Owner(t, w.url)
	c, err := config(w.db)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range endings {
		t.Run(string(e.reason), func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			runs, err := rig.Activities(c)
			if err != nil {
				t.Fatal(err)
			}
			var suite testsuite.WorkflowTestSuite
			suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
			env := suite.NewTestWorkflowEnvironment()
			env.SetTestTimeout(patience)
			env.SetStartTime(time.Now())
			workflows.Register(env)
			runs.Register(env)
			req := e.request()
			switch e.during {
			case "cancel":
				env.RegisterDelayedCallback(env.CancelWorkflow, 100*time.Millisecond)
			case "supersede":
				env.RegisterDelayedCallback(func() {
					newer := request("answer Here I am.")
					newer.Conversation = req.Conversation
					out, err := runs.BeginRun(context.Background(), agent.BeginRunInput{Request: newer, StartedAt: time.Now()})
					if err != nil || len(out.Supersedes) != 1 || out.Supersedes[0] != req.RunID {
						t.Errorf("the newer run supersedes %v, %v", out.Supersedes, err)
					}
					env.SignalWorkflow(agent.SignalSupersede, agent.Supersession{ByRunID: newer.RunID, Generation: out.Generation})
				}, 100*time.Millisecond)
			}
			env.ExecuteWorkflow(agent.WorkflowAgentRun, req)
			var result agent.RunResult
			err = env.GetWorkflowError()
			var canceled *temporal.CanceledError
			if errors.As(err, &canceled) {
				err = canceled.Details(&result)
			} else if err == nil {
				err = env.GetWorkflowResult(&result)
			}
			if err != nil {
				t.Fatal(err)
			}
			e.check(t, w, req, result)
		})
	}
}
