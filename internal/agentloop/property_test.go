package agentloop

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/agent"
)

// drawBegin draws what BeginRun may answer for an admitted run.
func drawBegin(t *rapid.T, start time.Time) agent.BeginRunOutput {
	budget := agent.Budget{
		MaxSteps:      rapid.IntRange(1, 12).Draw(t, "max_steps"),
		MaxToolCalls:  rapid.IntRange(0, 12).Draw(t, "max_tool_calls"),
		MaxTokens:     rapid.Int64Range(1, 5000).Draw(t, "max_tokens"),
		MaxCostMicros: rapid.Int64Range(0, 5000).Draw(t, "max_cost"),
		Timeout:       time.Duration(rapid.IntRange(1, 600).Draw(t, "timeout")) * time.Second,
	}
	return agent.BeginRunOutput{
		Admitted: true, Budget: budget, Deadline: start.Add(budget.Timeout),
		Rules: agent.LoopRules{
			SameAction: rapid.IntRange(2, 5).Draw(t, "same_action"), SameResult: rapid.IntRange(2, 5).Draw(t, "same_result"),
			SameError: rapid.IntRange(2, 5).Draw(t, "same_error"), Cycle: rapid.IntRange(2, 4).Draw(t, "cycle"),
			MalformedRetries: rapid.IntRange(0, 2).Draw(t, "malformed"), ModelTries: rapid.IntRange(1, 4).Draw(t, "tries"),
			RetryInitial: time.Second, RetryMax: 8 * time.Second,
			ParallelReads: rapid.IntRange(1, 4).Draw(t, "parallel"), LookUpTries: rapid.IntRange(1, 4).Draw(t, "look_ups"),
		},
	}
}

// drawAction draws one answer to a model call that stays within its reserve,
// as NextAction does.
func drawAction(t *rapid.T, call ModelCall) agent.Action {
	usage := agent.Usage{Attempts: 1, BilledTokens: rapid.Int64Range(0, call.TokensLeft).Draw(t, "tokens")}
	if call.CostLeftMicros >= 0 {
		usage.CostMicros = rapid.Int64Range(0, call.CostLeftMicros).Draw(t, "cost")
	}
	switch rapid.IntRange(0, 9).Draw(t, "action") {
	case 0:
		return agent.Action{Kind: agent.ActionFinal, AnswerMessageID: "answer", Usage: usage}
	case 1, 2:
		code := rapid.SampledFrom([]agent.FailureCode{
			agent.FailureRateLimited, agent.FailureUnavailable, agent.FailureTimeout, agent.FailureAuthentication,
			agent.FailureInvalidRequest, agent.FailureOutputTruncated, agent.FailureStreamCut, agent.FailureMalformedOutput,
			agent.FailureContentPolicy, agent.FailureContextOverflow, agent.FailureTokenLimit, agent.FailureCostLimit,
			agent.FailureDeadline, agent.FailureSuperseded, agent.FailureCanceled, agent.FailureInternal, "a code of the future",
		}).Draw(t, "code")
		retryable := code == agent.FailureRateLimited || code == agent.FailureUnavailable || code == agent.FailureTimeout
		return agent.Action{Kind: agent.ActionFailure, Usage: usage, Failure: &agent.Failure{
			Code: code, Retryable: retryable, RetryAfter: time.Duration(rapid.IntRange(0, 30).Draw(t, "after")) * time.Second,
		}}
	}
	calls := make([]agent.Call, rapid.IntRange(1, 5).Draw(t, "calls"))
	for i := range calls {
		calls[i] = agent.Call{
			ID:   fmt.Sprintf("%d.%d", call.Step, i),
			Tool: rapid.SampledFrom([]string{"status", "logs"}).Draw(t, "tool"), ArgumentsHash: fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "args")),
		}
		calls[i].Write = rapid.IntRange(0, 3).Draw(t, "write") == 0
		if rapid.IntRange(0, 5).Draw(t, "refuse") == 0 {
			calls[i].Refused = &agent.ToolError{Code: agent.ToolInvalidArguments, Hash: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "hash"))}
		}
	}
	return agent.Action{Kind: agent.ActionCalls, Calls: calls, Usage: usage}
}

// TestLoopProperties drives random event sequences through the state machine:
// RUN-1 (only legal transitions, terminal is final), RUN-3 and RUN-11 (no
// budget is passed), RUN-4 (one reason), termination, and that the state
// survives serialization, as it must across continue-as-new.
func TestLoopProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		begin := drawBegin(t, now)
		s := New()
		status := s.Status
		executed, responses := 0, 0
		observe := func() {
			if s.Status != status && !status.CanBecome(s.Status) {
				// Two legal moves may lie between two observations.
				if !(status == agent.StatusQueued || status == agent.StatusWaitingConfirmation) || !agent.StatusRunning.CanBecome(s.Status) {
					t.Fatalf("illegal transition %s -> %s", status, s.Status)
				}
			}
			status = s.Status
			if s.Ended() != status.Terminal() {
				t.Fatalf("ended is %t in status %s", s.Ended(), status)
			}
			if s.Ended() != (s.Reason != "") || (s.Ended() && (!s.Reason.Valid() || s.Reason.Status() != status)) {
				t.Fatalf("status %s has reason %q", status, s.Reason)
			}
			if executed > begin.Budget.MaxToolCalls || responses > begin.Budget.MaxSteps {
				t.Fatalf("%d calls and %d responses pass %+v", executed, responses, begin.Budget)
			}
			if s.Usage.BilledTokens > begin.Budget.MaxTokens {
				t.Fatalf("%d tokens pass %d", s.Usage.BilledTokens, begin.Budget.MaxTokens)
			}
			if begin.Budget.MaxCostMicros > 0 && s.Usage.CostMicros > begin.Budget.MaxCostMicros {
				t.Fatalf("cost %d passes %d", s.Usage.CostMicros, begin.Budget.MaxCostMicros)
			}
		}
		for round := 0; ; round++ {
			if round > 500 {
				t.Fatal("the run does not end")
			}
			if rapid.IntRange(0, 3).Draw(t, "carry") == 0 {
				s = carry(t, s)
			}
			if rapid.IntRange(0, 60).Draw(t, "cancel") == 0 {
				s.Cancel(rapid.SampledFrom([]agent.Reason{agent.ReasonCanceled, agent.ReasonSuperseded}).Draw(t, "why"))
			}
			stopped := s.Stop
			late := !s.Deadline.IsZero() && !now.Before(s.Deadline)
			decision := s.Next(now)
			observe()
			if decision.Kind == AwaitApproval != (s.Status == agent.StatusWaitingConfirmation && s.Phase == phaseConfirm) {
				t.Fatalf("wants %s in status %s", decision.Kind, s.Status)
			}
			switch {
			case decision.Kind == ResolveWrite:
				// What may have happened is found out, whatever else is asked.
				last := s.Write.LookUps == begin.Rules.LookUpTries-1
				if decision.Stopping != (stopped != "" || late || s.Write.Lost != "" || last) {
					t.Fatalf("stopping is %t with stop %q, late %t", decision.Stopping, stopped, late)
				}
			case stopped != "" && decision.Kind != End:
				t.Fatalf("after %s the loop still wants %s", stopped, decision.Kind)
			case late && decision.Kind != End && s.Status != agent.StatusWaitingConfirmation:
				t.Fatalf("after the deadline the loop wants %s", decision.Kind)
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "passes")) * time.Second)
			switch decision.Kind {
			case End:
				checkFinal(t, s, now)
				return
			case Begin:
				out := begin
				if rapid.IntRange(0, 3).Draw(t, "full") == 0 {
					out.Admitted, out.RetryAfter = false, time.Second
				}
				s.Began(out)
			case Wait:
				if decision.Wait < 0 || (!s.Deadline.IsZero() && decision.Wait > begin.Budget.Timeout) {
					t.Fatalf("waits %s", decision.Wait)
				}
				now = now.Add(decision.Wait)
			case CallModel:
				if decision.Model.TokensLeft <= 0 || decision.Model.CostLeftMicros == 0 {
					t.Fatalf("calls the model with nothing left: %+v", decision.Model)
				}
				action := drawAction(t, decision.Model)
				if action.Kind != agent.ActionFailure || action.Failure.Code == agent.FailureMalformedOutput {
					responses++
				}
				s.Acted(now, action)
			case CallTools:
				executed += len(decision.Calls)
				if len(decision.Calls) == 0 || len(decision.Calls) > begin.Rules.ParallelReads {
					t.Fatalf("hands out %d calls at once", len(decision.Calls))
				}
				for _, call := range decision.Calls {
					if call.Write {
						t.Fatal("a write is handed out as a read")
					}
				}
				s.Observed(drawOutcomes(t, decision.Calls))
			case PrepareWrite:
				if !decision.Calls[0].Write || len(decision.Calls) != 1 {
					t.Fatalf("prepares %+v", decision.Calls)
				}
				if s.Status == agent.StatusRunning {
					executed++
				}
				s.Prepared(drawPrepared(t, decision.Calls, now))
			case AwaitApproval:
				if rapid.IntRange(0, 4).Draw(t, "commit_lost") == 0 {
					s.CommitLost(rapid.SampledFrom([]agent.Reason{agent.ReasonInternal, agent.ReasonDeadline}).Draw(t, "lost"), "CommitWrite")
				} else {
					s.Committed(drawCommitted(t, decision, s.Deadline, agent.WriteRefused, agent.WriteStale, agent.WriteUnknown, agent.WriteDone))
				}
			case ResolveWrite:
				if decision.Wait < 0 || decision.Wait > begin.Rules.RetryMax {
					t.Fatalf("waits %s", decision.Wait)
				}
				if now = now.Add(decision.Wait); rapid.IntRange(0, 4).Draw(t, "look_up_lost") == 0 {
					s.LookUpLost()
				} else {
					states := []agent.WriteState{agent.WriteUnknown, agent.WriteDone}
					if s.Stop != "" || s.Write.Lost != "" {
						states = append(states, agent.WriteNotBegun)
					}
					s.Committed(drawCommitted(t, decision, s.Deadline, states...))
				}
			}
			observe()
		}
	})
}

func drawOutcomes(t *rapid.T, calls []agent.Call) []agent.ToolOutcome {
	outcomes := make([]agent.ToolOutcome, len(calls))
	for i, call := range calls {
		if call.Refused != nil {
			t.Fatalf("call %s was refused and is executed all the same", call.ID)
		}
		outcomes[i] = agent.ToolOutcome{CallID: call.ID}
		switch rapid.IntRange(0, 12).Draw(t, "outcome") {
		case 0:
			outcomes[i].End = rapid.SampledFrom([]agent.Reason{
				agent.ReasonAuthorizationUnavailable, agent.ReasonOutcomeUnknown, agent.ReasonInternal,
			}).Draw(t, "end")
		case 1, 2:
			outcomes[i].Error = &agent.ToolError{Code: agent.ToolFailed, Hash: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "error"))}
		default:
			outcomes[i].ResultHash = fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "result"))
		}
	}
	return outcomes
}

// drawPrepared draws a plan, or the outcome of a call that came to none.
func drawPrepared(t *rapid.T, calls []agent.Call, now time.Time) agent.PreparedWrite {
	if rapid.IntRange(0, 3).Draw(t, "no_plan") == 0 {
		outcome := drawOutcomes(t, calls)[0]
		return agent.PreparedWrite{Outcome: &outcome}
	}
	return agent.PreparedWrite{Plan: &agent.PlanRef{CallID: calls[0].ID, Revision: 1, ExpiresAt: now.Add(time.Hour)}}
}

// drawCommitted draws what became of a write; waiting for a person moved the
// deadline.
func drawCommitted(t *rapid.T, d Decision, deadline time.Time, states ...agent.WriteState) agent.WriteOutcome {
	out := agent.WriteOutcome{State: rapid.SampledFrom(states).Draw(t, "state")}
	switch out.State {
	case agent.WriteDone:
		out.Outcome = drawOutcomes(t, d.Calls)[0]
		fallthrough
	case agent.WriteUnknown:
		if d.Kind == AwaitApproval {
			out.Deadline = deadline.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "waited")) * time.Second)
		}
	case agent.WriteRefused:
		out.Refusal = agent.RefusedSignature
	}
	return out
}

// checkFinal throws every event at an ended run: nothing may change.
func checkFinal(t *rapid.T, s State, now time.Time) {
	before, _ := json.Marshal(s)
	s.Cancel(agent.ReasonCanceled)
	s.Fail(agent.ReasonInternal, "late")
	s.Began(agent.BeginRunOutput{Admitted: true})
	s.Observed([]agent.ToolOutcome{{CallID: "0.0", End: agent.ReasonInternal}})
	s.Prepared(agent.PreparedWrite{Plan: &agent.PlanRef{}})
	s.Committed(agent.WriteOutcome{State: agent.WriteDone})
	s.CommitLost(agent.ReasonInternal, "late")
	s.LookUpLost()
	s.Acted(now, agent.Action{Kind: agent.ActionFinal, AnswerMessageID: "late"})
	if d := s.Next(now); d.Kind != End {
		t.Fatalf("an ended run wants %s", d.Kind)
	}
	reason := s.Reason
	after, _ := json.Marshal(s)
	if s.Reason != reason || string(before) != string(after) {
		// Budget and rules included: a late event leaves no trace at all.
		t.Fatalf("an ended run changed:\n%s\n%s", before, after)
	}
}

func carry(t *rapid.T, s State) State {
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 16<<10 {
		t.Fatalf("the carried state has %d bytes", len(data))
	}
	var next State
	if err := json.Unmarshal(data, &next); err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(next)
	if string(again) != string(data) {
		t.Fatalf("the state does not survive:\n%s\n%s", data, again)
	}
	return next
}
