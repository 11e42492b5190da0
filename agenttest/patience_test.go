package agenttest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// A person thinks longer than the run has time, and the resource changes
// meanwhile: it is planned and confirmed anew.
func TestStaleAfterALongWait(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.Wait(30*time.Minute), agenttest.Do(s.change), agenttest.ApproveAs("bob")),
		agenttest.Whenever(agenttest.PlanWaits(), agenttest.ApproveAs("cat")))
	result.WantEnd(agent.ReasonFinal)
	if len(result.Plans) != 2 || result.Plans[0].Status != db.PlanStale || result.Plans[1].Approver != "cat" || s.count() != 1 {
		t.Errorf("%d restarts, plans %+v", s.count(), result.Plans)
	}
}

// A run is canceled while it waits for its next look-up: what the look-up then
// finds absent is not done any more.
func TestCancelBetweenLookUps(t *testing.T) {
	t.Parallel()
	s := newServices()
	s.blind = true
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")),
		agenttest.When(agenttest.ToolBegins("restart"), agenttest.Fail(errors.New("connection reset"))),
		agenttest.When(agenttest.Elapsed(10*time.Second), agenttest.Cancel(), agenttest.Do(s.see)))
	result.WantEnd(agent.ReasonCanceled)
	if w := result.Writes[0]; s.count() != 0 || w.Sends != 1 || w.Result != db.WriteNotPerformed {
		t.Errorf("%d restarts, recorded %s after %d sends", s.count(), w.Result, w.Sends)
	}
}

// A run is canceled before its commit has begun: nothing is done, and the
// approval that nobody looked at is on record.
func TestCancelBeforeTheCommit(t *testing.T) {
	t.Parallel()
	s := newServices()
	result := suiteOf(t, s, restartOnce).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")),
		agenttest.When(agenttest.BeforeActivity(agent.ActivityCommitWrite), agenttest.Cancel()))
	result.WantEnd(agent.ReasonCanceled)
	result.WantRefusals(agent.RefusedUsed)
	if s.count() != 0 || len(result.Writes) != 0 {
		t.Errorf("%d restarts, writes %+v", s.count(), result.Writes)
	}
}

// Two different writes are declined: that is no repetition, and the model may
// still answer.
func TestTwoWritesDeclined(t *testing.T) {
	t.Parallel()
	s := newServices()
	propose := func(service string) scripted.Turn {
		return scripted.Turn{Calls: []scripted.Call{{Name: "restart", Arguments: `{"service":"` + service + `"}`}}}
	}
	result := suiteOf(t, s, scripted.ByStep(propose("payment-api"), propose("ledger-api"), scripted.Turn{Text: "As you wish."})).Run("Restart something",
		agenttest.Whenever(agenttest.PlanWaits(), agenttest.DeclineAs("bob")))
	result.WantEnd(agent.ReasonFinal)
	result.WantCalls("restart: declined", "restart: declined")
}

// The first request is on its way when the second, with the same key, is
// refused: that the second did nothing says nothing about the first.
func TestFirstRequestLandsAfterTheSecondWasRefused(t *testing.T) {
	t.Parallel()
	s := newServices()
	sends := 0
	var key string
	slow, err := tool.NewWrite(tool.Spec{
		Name: "restart", Version: "1", Description: "Restarts a service.", Source: "services", Timeout: 5 * time.Second, InFlight: 30 * time.Second,
		Parameters: []byte(`{"type":"object","properties":{"service":{"type":"string"}},"required":["service"]}`),
	}, tool.WriteFuncs[restartArgs]{
		Prepare: func(context.Context, tool.Invocation, restartArgs) (tool.Plan, error) {
			return tool.Plan{Resource: "service/payment-api", Version: "7", Summary: "Restarts payment-api."}, nil
		},
		Execute: func(_ context.Context, call tool.Invocation, _ restartArgs) (tool.Result, error) {
			key = call.Key
			if sends++; sends == 1 {
				return tool.Result{}, errors.New("no answer in time")
			}
			return tool.Result{}, &tool.Error{Code: agent.ToolUnavailable, Message: "nothing was restarted"}
		},
		Find: func(_ context.Context, call tool.Invocation, _ restartArgs) (tool.Finding, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.done[call.Key] {
				return tool.Finding{State: tool.FindAbsent}, nil
			}
			result, err := tool.JSON(map[string]bool{"restarted": true})
			return tool.Finding{State: tool.FindPerformed, Result: result}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	land := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done[key], s.restarts = true, s.restarts+1
	}
	result := suiteOf(t, s, restartOnce, func(c *agenttest.Config) { c.Tools[1] = slow }).Run("Restart payment-api",
		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")),
		agenttest.When(agenttest.Elapsed(20*time.Second), agenttest.Do(land)))
	result.WantEnd(agent.ReasonFinal)
	if w := result.Writes[0]; w.Result != db.WritePerformed || w.ResolvedBy != db.ByLookUp || w.Sends != 2 {
		t.Errorf("recorded %s by %s after %d sends, %d effects", w.Result, w.ResolvedBy, w.Sends, s.count())
	}
}
