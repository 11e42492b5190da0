package agentloop

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// running returns the state of an admitted run with ample budget, changed by edit.
func running(edit func(*agent.BeginRunOutput)) State {
	out := agent.BeginRunOutput{
		Admitted: true, Deadline: start.Add(time.Hour),
		Budget: agent.Budget{MaxSteps: 100, MaxToolCalls: 100, MaxTokens: 1 << 20, MaxCostMicros: 1 << 20, Timeout: time.Hour},
		Rules: agent.LoopRules{
			SameAction: 3, SameResult: 3, SameError: 2, Cycle: 2, MalformedRetries: 1,
			ModelTries: 3, RetryInitial: time.Second, RetryMax: 30 * time.Second, ParallelReads: 4,
		},
	}
	if edit != nil {
		edit(&out)
	}
	s := New()
	s.Next(start)
	s.Began(out)
	return s
}

// propose answers one model call with calls written "tool args".
func propose(s *State, calls ...string) {
	action := agent.Action{Kind: agent.ActionCalls, Usage: agent.Usage{Attempts: 1, BilledTokens: 10, CostMicros: 5}}
	for i, call := range calls {
		tool, args, _ := strings.Cut(call, " ")
		action.Calls = append(action.Calls, agent.Call{ID: fmt.Sprintf("%d.%d", s.Step, i), Tool: tool, ArgumentsHash: args})
	}
	s.Acted(start, action)
}

// execute runs what the loop hands out; each result is distinct unless named.
func execute(s *State, d Decision, results ...string) {
	outcomes := make([]agent.ToolOutcome, len(d.Calls))
	for i, call := range d.Calls {
		outcomes[i] = agent.ToolOutcome{CallID: call.ID, ResultHash: "result of " + call.ID}
		if i < len(results) {
			outcomes[i].ResultHash = results[i]
		}
	}
	s.Observed(outcomes)
}

func wantEnd(t *testing.T, s State, reason agent.Reason, detail string) {
	t.Helper()
	if d := s.Next(start); d.Kind != End || s.Reason != reason || s.Detail != detail || s.Status != reason.Status() {
		t.Fatalf("got %s, status %s, reason %q, detail %q; want end with %q, %q", d.Kind, s.Status, s.Reason, s.Detail, reason, detail)
	}
}

func TestRepetition(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		steps   []string // each entry is one response; "a b|c d" is two calls
		results []string // result of the first call of each step, "" is distinct
		after   int      // steps taken when it ends
		detail  string
	}{
		{"same action the third time", []string{"logs x", "status y", "logs x", "find z", "logs x"}, nil, 5, "same_action"},
		{"three times in one response", []string{"logs x|logs x|logs x"}, nil, 1, "same_action"},
		{"a-b-a-b", []string{"logs x", "status y", "logs x", "status y"}, nil, 4, "cycle"},
		{"same result of different calls", []string{"logs a", "logs b", "logs c"}, []string{"r", "r", "r"}, 3, "same_result"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := running(nil)
			for i, step := range test.steps {
				if s.Ended() {
					t.Fatalf("ended %s after %d steps", s.Reason, s.Step)
				}
				if d := s.Next(start); d.Kind != CallModel {
					t.Fatalf("step %d: %s", i, d.Kind)
				}
				propose(&s, strings.Split(step, "|")...)
				if d := s.Next(start); d.Kind == CallTools {
					if i < len(test.results) && test.results[i] != "" {
						execute(&s, d, test.results[i])
					} else {
						execute(&s, d)
					}
				}
			}
			wantEnd(t, s, agent.ReasonRepeatedAction, test.detail)
			if s.Step != test.after {
				t.Fatalf("ended after %d steps, want %d", s.Step, test.after)
			}
		})
	}
}

func TestRepeatedErrorIsShownOnce(t *testing.T) {
	t.Parallel()
	s := running(nil)
	refuse := func(n int) {
		action := agent.Action{Kind: agent.ActionCalls}
		for i := range n {
			action.Calls = append(action.Calls, agent.Call{
				ID: fmt.Sprintf("%d.%d", s.Step, i), Tool: "nope", ArgumentsHash: fmt.Sprint(s.Step, i),
				Refused: &agent.ToolError{Code: agent.ToolUnknown, Hash: "same"},
			})
		}
		s.Acted(start, action)
	}
	s.Next(start)
	refuse(3) // three equal errors in one response: the model has seen none yet
	if d := s.Next(start); d.Kind != CallModel || s.ToolCalls != 0 {
		t.Fatalf("got %s after %d executed calls, want another model call", d.Kind, s.ToolCalls)
	}
	refuse(1)
	wantEnd(t, s, agent.ReasonRepeatedError, "")
}

func TestToolCallsBeyondTheBudgetAreNotExecuted(t *testing.T) {
	t.Parallel()
	s := running(func(out *agent.BeginRunOutput) { out.Budget.MaxToolCalls = 3; out.Rules.ParallelReads = 2 })
	s.Next(start)
	propose(&s, "a 1", "b 2", "c 3", "d 4", "e 5")
	var ids []string
	for {
		d := s.Next(start)
		if d.Kind != CallTools {
			break
		}
		for _, call := range d.Calls {
			ids = append(ids, call.ID)
		}
		execute(&s, d)
	}
	if got := strings.Join(ids, " "); got != "0.0 0.1 0.2" {
		t.Fatalf("executed %s, want the first three in order", got)
	}
	wantEnd(t, s, agent.ReasonToolCallLimit, "")
}

// A run that used its tool calls exactly up may still answer.
func TestAllToolCallsUsedThenFinal(t *testing.T) {
	t.Parallel()
	s := running(func(out *agent.BeginRunOutput) { out.Budget.MaxToolCalls = 1 })
	s.Next(start)
	propose(&s, "a 1")
	execute(&s, s.Next(start))
	if d := s.Next(start); d.Kind != CallModel || d.Model.TokensLeft != 1<<20-10 || d.Model.CostLeftMicros != 1<<20-5 {
		t.Fatalf("got %+v", d)
	}
	s.Acted(start, agent.Action{Kind: agent.ActionFinal, AnswerMessageID: "m"})
	wantEnd(t, s, agent.ReasonFinal, "")
}

func TestModelRetries(t *testing.T) {
	t.Parallel()
	fail := func(s *State, code agent.FailureCode, after time.Duration) {
		s.Acted(start, agent.Action{Kind: agent.ActionFailure, Failure: &agent.Failure{Code: code, Retryable: true, RetryAfter: after}, Usage: agent.Usage{Attempts: 1, BilledTokens: 7}})
	}
	s := running(nil)
	for try, want := range []time.Duration{time.Second, 9 * time.Second} {
		if d := s.Next(start); d.Kind != CallModel || d.Model.Try != try || d.Model.Step != 0 {
			t.Fatalf("try %d: %+v", try, d)
		}
		fail(&s, agent.FailureRateLimited, time.Duration(try)*9*time.Second)
		if d := s.Next(start); d.Kind != Wait || d.Wait != want {
			t.Fatalf("try %d: %s %s, want a wait of %s", try, d.Kind, d.Wait, want)
		}
	}
	s.Next(start)
	fail(&s, agent.FailureUnavailable, 0)
	wantEnd(t, s, agent.ReasonModelUnavailable, "unavailable")
	if s.Usage.Attempts != 3 || s.Usage.BilledTokens != 21 {
		t.Fatalf("usage %+v: every attempt counts", s.Usage)
	}

	s = running(nil)
	s.Next(start)
	fail(&s, agent.FailureRateLimited, 2*time.Hour) // beyond the deadline: no use in waiting
	wantEnd(t, s, agent.ReasonModelUnavailable, "rate_limited")
}

func TestFailureEndsAsReason(t *testing.T) {
	t.Parallel()
	tests := map[agent.FailureCode]struct {
		reason agent.Reason
		detail string
	}{
		agent.FailureRateLimited:     {agent.ReasonModelUnavailable, "rate_limited"},
		agent.FailureUnavailable:     {agent.ReasonModelUnavailable, "unavailable"},
		agent.FailureTimeout:         {agent.ReasonModelUnavailable, "timeout"},
		agent.FailureAuthentication:  {agent.ReasonModelUnavailable, "authentication"},
		agent.FailureInvalidRequest:  {agent.ReasonModelUnavailable, "invalid_request"},
		agent.FailureOutputTruncated: {agent.ReasonOutputTruncated, ""},
		agent.FailureStreamCut:       {agent.ReasonOutputTruncated, "stream_cut"},
		agent.FailureContentPolicy:   {agent.ReasonContentPolicy, ""},
		agent.FailureContextOverflow: {agent.ReasonContextOverflow, ""},
		agent.FailureTokenLimit:      {agent.ReasonTokenLimit, ""},
		agent.FailureCostLimit:       {agent.ReasonCostLimit, ""},
		agent.FailureDeadline:        {agent.ReasonDeadline, ""},
		agent.FailureSuperseded:      {agent.ReasonSuperseded, ""},
		agent.FailureCanceled:        {agent.ReasonCanceled, ""},
		agent.FailureInternal:        {agent.ReasonInternal, ""},
	}
	for code, want := range tests {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			s := running(nil)
			s.Next(start)
			s.Acted(start, agent.Action{Kind: agent.ActionFailure, Failure: &agent.Failure{Code: code}})
			wantEnd(t, s, want.reason, want.detail)
		})
	}
}

func TestMalformedOutputMayBeCorrectedOnce(t *testing.T) {
	t.Parallel()
	s := running(nil)
	malformed := agent.Action{Kind: agent.ActionFailure, Failure: &agent.Failure{Code: agent.FailureMalformedOutput, Detail: "empty"}}
	s.Next(start)
	s.Acted(start, malformed)
	if d := s.Next(start); d.Kind != CallModel || d.Model.Step != 1 {
		t.Fatalf("got %+v, want a second step", d)
	}
	s.Acted(start, malformed)
	wantEnd(t, s, agent.ReasonMalformedOutput, "empty")
}

// The checks before a model call come in the order of RUN-3: when all limits
// are passed at once, the first in the order is the reason.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	s := running(func(out *agent.BeginRunOutput) {
		out.Budget.MaxSteps, out.Budget.MaxTokens, out.Budget.MaxCostMicros = 1, 1, 1
	})
	s.Next(start)
	propose(&s, "a 1")
	s.Pending = nil
	spent := s
	for _, check := range []struct {
		reason agent.Reason
		ease   func(*State)
	}{
		{agent.ReasonCanceled, func(s *State) { s.Stop = "" }},
		{agent.ReasonDeadline, func(s *State) { s.Deadline = start.Add(time.Hour) }},
		{agent.ReasonStepLimit, func(s *State) { s.Budget.MaxSteps = 9 }},
		{agent.ReasonTokenLimit, func(s *State) { s.Budget.MaxTokens = 99 }},
		{agent.ReasonCostLimit, nil},
	} {
		if check.reason == agent.ReasonCanceled {
			spent.Cancel(agent.ReasonCanceled)
			spent.Deadline = start
		}
		s := spent
		wantEnd(t, s, check.reason, "")
		if check.ease != nil {
			check.ease(&spent)
		}
	}
}

func TestFinalBeatsALateCancel(t *testing.T) {
	t.Parallel()
	s := running(nil)
	s.Next(start)
	s.Cancel(agent.ReasonCanceled)
	s.Acted(start, agent.Action{Kind: agent.ActionFinal, AnswerMessageID: "m"})
	wantEnd(t, s, agent.ReasonFinal, "")
}

func TestQueueWaitsLongerAndLonger(t *testing.T) {
	t.Parallel()
	s := New()
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if d := s.Next(start); d.Kind != Begin {
			t.Fatalf("got %s", d.Kind)
		}
		s.Began(agent.BeginRunOutput{RetryAfter: time.Second, Deadline: start.Add(time.Hour)})
		if d := s.Next(start); d.Kind != Wait || d.Wait != want*time.Second {
			t.Fatalf("got %s %s, want %d s", d.Kind, d.Wait, want)
		}
	}
	if s.Status != agent.StatusQueued {
		t.Fatalf("status %s", s.Status)
	}
	s.Next(start.Add(time.Hour))
	if s.Reason != agent.ReasonDeadline {
		t.Fatalf("reason %q, want deadline", s.Reason)
	}
}
