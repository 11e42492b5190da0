package endtoend

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// events returns the events of one history of a run, "" for the newest.
func (w *world) events(req agent.RunRequest, temporalRunID string) []*history.HistoryEvent {
	w.Helper()
	return w.eventsOf(agent.WorkflowID(req.Tenant, req.RunID), temporalRunID)
}

// eventsOf is events for any workflow.
func (w *world) eventsOf(workflowID, temporalRunID string) []*history.HistoryEvent {
	w.Helper()
	var events []*history.HistoryEvent
	for it := w.client.GetWorkflowHistory(w.ctx, workflowID, temporalRunID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		event, err := it.Next()
		if err != nil {
			w.Fatal(err)
		}
		events = append(events, event)
	}
	return events
}

// chain returns the Temporal run IDs of a run, from the first history to the
// last.
func (w *world) chain(req agent.RunRequest, first string) []string {
	w.Helper()
	ids := []string{first}
	for {
		events := w.events(req, ids[len(ids)-1])
		next := events[len(events)-1].GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
		if next == "" {
			return ids
		}
		ids = append(ids, next)
	}
}

// TestLongRun is a run of 500 steps: it continues as new, and what a step costs
// in events and bytes does not grow with the conversation (RUN-10).
func TestLongRun(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"looker", "looker-local"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).withWorker(nil)
			req := request("long")
			req.Agent = mode
			run := w.start(req)
			first := run.GetRunID()
			result := w.wait(run)
			if result.Reason != agent.ReasonFinal || result.Steps != 501 || result.ToolCalls != 500 {
				t.Fatalf("ended %s (%s) after %d steps and %d calls", result.Reason, result.Detail, result.Steps, result.ToolCalls)
			}
			w.checkLedger(t, req, result)
			ids := w.chain(req, first)
			if len(ids) < 3 {
				t.Fatalf("%d histories: it did not continue as new", len(ids))
			}
			type cost struct{ events, bytes float64 }
			var costs []cost
			for i, id := range ids[:len(ids)-1] { // the last one is not full
				events := w.events(req, id)
				bytes := 0
				for _, event := range events {
					bytes += proto.Size(event)
				}
				const steps = 100 // 200 activities, two a step
				costs = append(costs, cost{float64(len(events)) / steps, float64(bytes) / steps})
				t.Logf("history %d: %.1f events and %.0f bytes a step", i+1, costs[i].events, costs[i].bytes)
			}
			for _, c := range costs[1:] {
				if c.events > costs[1].events*1.15+0.5 || c.bytes > costs[1].bytes*1.15 {
					t.Errorf("a step grows: %+v", costs)
				}
			}
		})
	}
}

// TestBadRequest sends what callers should not: each is refused with a typed
// error and leaves nothing behind (RUN-14).
func TestBadRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withWorker(nil)
	for name, test := range map[string]struct {
		edit func(*agent.RunRequest)
		want string
	}{
		"unknown agent":   {func(r *agent.RunRequest) { r.Agent = "nobody" }, agent.ErrorUnknownAgent},
		"unknown version": {func(r *agent.RunRequest) { r.AgentVersion = "9" }, agent.ErrorUnknownAgent},
		"zero budget":     {budget(func(b *agent.BudgetOverride) { b.MaxSteps = ptr(0) }), agent.ErrorInvalidRequest},
		"negative budget": {budget(func(b *agent.BudgetOverride) { b.MaxTokens = ptr(int64(-1)) }), agent.ErrorInvalidRequest},
		"large message":   {func(r *agent.RunRequest) { r.Message = strings.Repeat("x", agent.MaxMessageBytes+1) }, agent.ErrorInvalidRequest},
		"NUL":             {func(r *agent.RunRequest) { r.Message = "a\x00b" }, agent.ErrorInvalidRequest},
		"conflict":        {func(r *agent.RunRequest) { r.ConversationVersion = ptr(int64(7)) }, agent.ErrorConversationConflict},
		"unpriced, costed": {func(r *agent.RunRequest) {
			r.Agent = "tiny"
			r.Budget = &agent.BudgetOverride{MaxCostMicros: ptr(int64(5))}
		}, agent.ErrorInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			req := request("final")
			test.edit(&req)
			err := w.start(req).Get(w.ctx, nil)
			var typed *temporal.ApplicationError
			if !errors.As(err, &typed) || typed.Type() != test.want {
				t.Fatalf("got %v, want a %s", err, test.want)
			}
			if _, err := w.db.ShowRun(w.ctx, req.Scope(), req.RunID); err == nil {
				t.Fatal("a run was stored")
			}
			if n := w.messages(req); n != 0 {
				t.Fatalf("%d messages were stored", n)
			}
		})
	}
}

// TestHugeMessage shows that 10 MB do not reach a history even when the caller
// skips Validate, which refuses them.
func TestHugeMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	req := request(strings.Repeat("x", 10<<20))
	if req.Validate() == nil {
		t.Fatal("Validate accepts 10 MB")
	}
	_, err := w.client.ExecuteWorkflow(w.ctx, client.StartWorkflowOptions{
		ID: agent.WorkflowID(req.Tenant, req.RunID), TaskQueue: w.queue,
	}, agent.WorkflowAgentRun, req)
	if err == nil {
		t.Fatal("the server took 10 MB")
	}
}

// TestBadArguments has the model write arguments that do not fit. Each becomes
// an observation, the tool is not executed, and the run goes on.
func TestBadArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withWorker(nil)
	for name, arguments := range map[string]string{
		"unknown field":  `{"n":1,"extra":true}`,
		"duplicate key":  `{"n":1,"n":2}`,
		"wrong type":     `{"n":"one"}`,
		"trailing data":  `{"n":1} {"n":2}`,
		"half finished":  `{"n":1`,
		"missing":        `{}`,
		"not an object":  `[1]`,
		"negative":       `{"n":-1}`,
		"lone surrogate": `{"n":1,"say":"\ud800"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			req := request("arguments " + arguments)
			result := w.run(req)
			if result.Reason != agent.ReasonFinal || result.ToolCalls != 0 {
				t.Fatalf("ended %s (%s) after %d calls", result.Reason, result.Detail, result.ToolCalls)
			}
			calls := w.show(req).Calls()
			if len(calls) != 1 || calls[0].Status != db.CallRefused || calls[0].Error == nil || calls[0].Error.Code != agent.ToolInvalidArguments {
				t.Fatalf("calls %+v", calls)
			}
		})
	}
	t.Run("over 2 MiB", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		req := request("huge-argument")
		result := w.run(req)
		if result.Reason != agent.ReasonFinal || result.ToolCalls != 0 {
			t.Fatalf("ended %s (%s) after %d calls", result.Reason, result.Detail, result.ToolCalls)
		}
		for _, event := range w.events(req, "") {
			if proto.Size(event) > 8<<10 {
				t.Fatalf("event %s has %d bytes", event.EventType, proto.Size(event))
			}
		}
	})
}

// TestParallelReadsKeepTheirOrder lets six reads end in reverse: the model sees
// them in call order, so that two runs alike are alike (TOOL-2).
func TestParallelReadsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withWorker(nil)
	req := request("parallel")
	if result := w.run(req); result.Reason != agent.ReasonFinal || result.ToolCalls != 6 {
		t.Fatalf("result %+v", result)
	} else {
		for i, action := range result.Actions {
			if action.CallID != fmt.Sprintf("0.%d", i) {
				t.Fatalf("actions %+v", result.Actions)
			}
		}
	}
}

// TestSameRunTwice starts one run ID twice: it is one run.
func TestSameRunTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withWorker(nil)
	req := request("final")
	a, b := w.start(req), w.start(req)
	if first, second := w.wait(a), w.wait(b); first.AnswerMessageID != second.AnswerMessageID {
		t.Fatalf("two answers: %+v, %+v", first, second)
	}
	if n := w.messages(req); n != 2 {
		t.Fatalf("%d messages, want question and answer", n)
	}
}
