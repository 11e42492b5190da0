package agentloop

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
)

// writing returns a run whose model has proposed calls: "w" is a write, "r" a
// read. It looks up what became of a write up to eight times.
func writing(edit func(*agent.BeginRunOutput), calls string) State {
	s := running(func(out *agent.BeginRunOutput) {
		out.Rules.LookUpTries = 8
		if edit != nil {
			edit(out)
		}
	})
	s.Next(start)
	action := agent.Action{Kind: agent.ActionCalls}
	for i, kind := range strings.Fields(calls) {
		action.Calls = append(action.Calls, agent.Call{
			ID: fmt.Sprintf("%d.%d", s.Step, i), Tool: kind, ArgumentsHash: fmt.Sprint(s.Step, i), Write: kind == "w",
		})
	}
	s.Acted(start, action)
	return s
}

func plan(revision int) agent.PreparedWrite {
	return agent.PreparedWrite{Plan: &agent.PlanRef{CallID: "0.0", Revision: revision, ExpiresAt: start.Add(24 * time.Hour), Timeout: time.Minute}}
}

// waiting returns a run that waits for a person.
func waiting(edit func(*agent.BeginRunOutput)) State {
	s := writing(edit, "w")
	s.Next(start)
	s.Prepared(plan(1))
	return s
}

// resolving returns a run that finds out what became of its write.
func resolving(edit func(*agent.BeginRunOutput)) State {
	s := waiting(edit)
	s.Next(start)
	s.Committed(agent.WriteOutcome{State: agent.WriteUnknown})
	return s
}

func done() agent.WriteOutcome {
	return agent.WriteOutcome{State: agent.WriteDone, Outcome: agent.ToolOutcome{CallID: "0.0", ResultHash: "r"}}
}

func failedWith(hash string) agent.WriteOutcome {
	return agent.WriteOutcome{State: agent.WriteDone, Outcome: agent.ToolOutcome{CallID: "0.0", Error: &agent.ToolError{Code: agent.ToolDeclined, Hash: hash}}}
}

func ended(reason agent.Reason) agent.WriteOutcome {
	return agent.WriteOutcome{State: agent.WriteDone, Outcome: agent.ToolOutcome{CallID: "0.0", End: reason}}
}

// want says what a state wants at a time, in a few words: "await_approval 2,
// waiting_confirmation".
func want(s *State, at time.Time) string {
	d := s.Next(at)
	words := string(d.Kind)
	switch d.Kind {
	case AwaitApproval:
		words += fmt.Sprint(" ", d.Plan.Revision)
	case ResolveWrite:
		words += fmt.Sprint(" after ", d.Wait)
		if d.Stopping {
			words += " and stop"
		}
	case End:
		words += " " + string(s.Reason)
		if s.Detail != "" {
			words += " " + s.Detail
		}
	case PrepareWrite, CallTools:
		for _, call := range d.Calls {
			words += " " + call.ID
		}
	}
	return words + ", " + string(s.Status)
}

// TestWriteSteps follows a write through what can happen to it. The run has one
// hour; one write counts as one tool call, however often it is planned.
func TestWriteSteps(t *testing.T) {
	t.Parallel()
	const (
		model = "call_model, running"
		late  = 90 * time.Minute
	)
	prepared := func(out agent.PreparedWrite) func(*State) { return func(s *State) { s.Prepared(out) } }
	committed := func(out agent.WriteOutcome) func(*State) { return func(s *State) { s.Committed(out) } }
	lost := func(reason agent.Reason) func(*State) {
		return func(s *State) { s.CommitLost(reason, "CommitWrite") }
	}
	cancel := func(s *State) { s.Cancel(agent.ReasonCanceled) }
	moved := func(out agent.WriteOutcome) agent.WriteOutcome {
		out.Deadline = start.Add(time.Hour + late)
		return out
	}
	outcome := func(out agent.WriteOutcome) agent.PreparedWrite { return agent.PreparedWrite{Outcome: &out.Outcome} }
	state := func(s agent.WriteState) agent.WriteOutcome { return agent.WriteOutcome{State: s} }
	for name, test := range map[string]struct {
		from State
		// events happen one after the other; wants is what the run wants before
		// the first and after each of them. at is when it is asked, after start.
		events []func(*State)
		wants  []string
		at     time.Duration
	}{
		"confirmed": {
			from: writing(nil, "w"), events: []func(*State){prepared(plan(1)), committed(done())},
			wants: []string{"prepare_write 0.0, running", "await_approval 1, waiting_confirmation", model},
		},
		"declined": {
			from: waiting(nil), events: []func(*State){committed(failedWith("e"))},
			wants: []string{"await_approval 1, waiting_confirmation", model},
		},
		"refused without a plan": {
			from: writing(nil, "w"), events: []func(*State){prepared(outcome(failedWith("e")))},
			wants: []string{"prepare_write 0.0, running", model},
		},
		"rights fail at the plan": {
			from: writing(nil, "w"), events: []func(*State){prepared(outcome(ended(agent.ReasonAuthorizationUnavailable)))},
			wants: []string{"prepare_write 0.0, running", "end authorization_unavailable, failed"},
		},
		"rights fail at the approval": {
			from: waiting(nil), events: []func(*State){committed(ended(agent.ReasonAuthorizationUnavailable))},
			wants: []string{"await_approval 1, waiting_confirmation", "end authorization_unavailable, failed"},
		},
		"neither plan nor outcome": {
			from: writing(nil, "w"), events: []func(*State){prepared(agent.PreparedWrite{})},
			wants: []string{"prepare_write 0.0, running", "end internal prepared_without_plan, failed"},
		},
		"a token is refused, twice": {
			from: waiting(nil), events: []func(*State){committed(state(agent.WriteRefused)), committed(state(agent.WriteRefused)), committed(done())},
			wants: []string{"await_approval 1, waiting_confirmation", "await_approval 1, waiting_confirmation", "await_approval 1, waiting_confirmation", model},
		},
		"stale": {
			from: waiting(nil), events: []func(*State){committed(state(agent.WriteStale)), prepared(plan(2)), committed(done())},
			wants: []string{
				"await_approval 1, waiting_confirmation", "prepare_write 0.0, waiting_confirmation", "await_approval 2, waiting_confirmation", model,
			},
		},
		"stale, and then it is refused": {
			from: waiting(nil), events: []func(*State){committed(state(agent.WriteStale)), prepared(outcome(failedWith("e")))},
			wants: []string{"await_approval 1, waiting_confirmation", "prepare_write 0.0, waiting_confirmation", model},
		},

		// While a person is waited for the deadline does not count.
		"past the deadline, a person is waited for": {
			from: waiting(nil), events: []func(*State){committed(moved(done()))}, at: late,
			wants: []string{"await_approval 1, waiting_confirmation", model},
		},
		"past the deadline, a plan is made anew": {
			from: waiting(nil), events: []func(*State){committed(state(agent.WriteStale)), prepared(plan(2)), committed(moved(done()))}, at: late,
			wants: []string{
				"await_approval 1, waiting_confirmation", "prepare_write 0.0, waiting_confirmation", "await_approval 2, waiting_confirmation", model,
			},
		},
		"past the deadline, nothing is planned": {
			from: writing(nil, "w"), events: nil, at: late,
			wants: []string{"prepare_write 0.0, running"}, // handed out with the calls, at their time
		},
		"past the deadline, a plan was made in time": {
			from: waiting(nil), events: []func(*State){committed(done())}, at: late,
			wants: []string{"await_approval 1, waiting_confirmation", "end deadline, failed"},
		},
		"past the deadline, the outcome is found out": {
			from: resolving(nil), events: []func(*State){committed(done())}, at: late,
			wants: []string{"resolve_write after 0s and stop, running", "end deadline, failed"},
		},

		// What became of a commit that was not completed.
		"lost, and it had not begun": {
			from: waiting(nil), events: []func(*State){lost(agent.ReasonDeadline), committed(state(agent.WriteNotBegun))},
			wants: []string{"await_approval 1, waiting_confirmation", "resolve_write after 0s and stop, running", "end deadline CommitWrite, failed"},
		},
		"lost, and it was recorded": {
			from: waiting(nil), events: []func(*State){lost(agent.ReasonInternal), committed(moved(done()))},
			wants: []string{"await_approval 1, waiting_confirmation", "resolve_write after 0s and stop, running", model},
		},
		"lost, canceled, and it had not begun": {
			from: waiting(nil), events: []func(*State){cancel, lost(agent.ReasonInternal), committed(state(agent.WriteNotBegun))},
			wants: []string{"await_approval 1, waiting_confirmation", "-", "resolve_write after 0s and stop, running", "end canceled, canceled"},
		},
		"unknown, and it had not begun": {
			from: resolving(nil), events: []func(*State){committed(state(agent.WriteNotBegun))},
			wants: []string{"resolve_write after 0s, running", "end internal write_not_begun, failed"},
		},
		"unknown, and a tool without look-up": {
			from: resolving(nil), events: []func(*State){committed(ended(agent.ReasonOutcomeUnknown))},
			wants: []string{"resolve_write after 0s, running", "end outcome_unknown, failed"},
		},

		// A stop in each phase.
		"canceled while it is planned": {
			from: writing(nil, "w"), events: []func(*State){cancel, prepared(plan(1))},
			wants: []string{"prepare_write 0.0, running", "-", "end canceled, canceled"},
		},
		"superseded while it waits": {
			from: waiting(nil), events: []func(*State){func(s *State) { s.Cancel(agent.ReasonSuperseded) }},
			wants: []string{"await_approval 1, waiting_confirmation", "end superseded, canceled"},
		},
		"canceled while it is planned anew": {
			from: waiting(nil), events: []func(*State){committed(state(agent.WriteStale)), cancel},
			wants: []string{"await_approval 1, waiting_confirmation", "prepare_write 0.0, waiting_confirmation", "end canceled, canceled"},
		},
		"canceled while it is committed": {
			from: waiting(nil), events: []func(*State){cancel, committed(done())},
			wants: []string{"await_approval 1, waiting_confirmation", "-", "end canceled, canceled"},
		},
		"canceled while it is committed, and unknown": {
			from: waiting(nil), events: []func(*State){cancel, committed(state(agent.WriteUnknown)), committed(state(agent.WriteUnknown)), committed(done())},
			wants: []string{
				"await_approval 1, waiting_confirmation", "-", "resolve_write after 0s and stop, running", "resolve_write after 1s and stop, running", "end canceled, canceled",
			},
		},
		"canceled while it is looked up": {
			from: resolving(nil), events: []func(*State){cancel, committed(failedWith("e"))},
			wants: []string{"resolve_write after 0s, running", "resolve_write after 0s and stop, running", "end canceled, canceled"},
		},

		// Events that cannot be.
		"refused while it is looked up": {
			from: resolving(nil), events: []func(*State){committed(state(agent.WriteRefused))},
			wants: []string{"resolve_write after 0s, running", "end internal unexpected_refused, failed"},
		},
		"stale while it is looked up": {
			from: resolving(nil), events: []func(*State){committed(state(agent.WriteStale))},
			wants: []string{"resolve_write after 0s, running", "end internal unexpected_stale, failed"},
		},
		"a state of the future": {
			from: waiting(nil), events: []func(*State){committed(state("delegated"))},
			wants: []string{"await_approval 1, waiting_confirmation", "end internal unknown_write_state, failed"},
		},
		"prepared while it waits": {
			from: waiting(nil), events: []func(*State){prepared(plan(2))},
			wants: []string{"await_approval 1, waiting_confirmation", "end internal unexpected_prepared, failed"},
		},
		"committed while it is planned": {
			from: writing(nil, "w"), events: []func(*State){committed(done())},
			wants: []string{"prepare_write 0.0, running", "end internal unexpected_committed, failed"},
		},
		"a lost commit while it is looked up": {
			from: resolving(nil), events: []func(*State){lost(agent.ReasonInternal)},
			wants: []string{"resolve_write after 0s, running", "end internal unexpected_commit_lost, failed"},
		},
		"a lost look-up while it waits": {
			from: waiting(nil), events: []func(*State){func(s *State) { s.LookUpLost() }},
			wants: []string{"await_approval 1, waiting_confirmation", "end internal unexpected_look_up_lost, failed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := test.from
			// The calls of a response are handed out when it arrived.
			at := start
			if s.Phase != phaseAct {
				at = start.Add(test.at)
			}
			if got := want(&s, at); got != test.wants[0] {
				t.Fatalf("at first it wants %q, not %q", got, test.wants[0])
			}
			for i, happens := range test.events {
				happens(&s)
				if test.wants[i+1] == "-" {
					continue // the next event comes before it is asked again
				}
				// Whatever is carried into a new history is the same run.
				s = carried(t, s)
				if got := want(&s, start.Add(test.at)); got != test.wants[i+1] {
					t.Fatalf("after event %d it wants %q, not %q", i+1, got, test.wants[i+1])
				}
			}
			if s.ToolCalls != 1 {
				t.Errorf("%d tool calls", s.ToolCalls)
			}
			if d := s.Deadline.Sub(start); d != time.Hour && d != time.Hour+late {
				t.Errorf("the deadline is after %s", d)
			}
			_, writes := s.nextWrite(start)
			if idle := reflect.ValueOf(s.Write).IsZero(); idle == writes && s.Phase != phasePrepare {
				t.Errorf("in phase %s the run writes %+v", s.Phase, s.Write)
			}
		})
	}
}

func carried(t *testing.T, s State) State {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var next State
	if err := json.Unmarshal(data, &next); err != nil {
		t.Fatal(err)
	}
	return next
}

// TestLookUpsAreFarther: look-ups are 1, 2, 4 and 4 s apart, or as far as a
// look-up says, and end after so many as the rules allow, also past the deadline.
func TestLookUpsAreFarther(t *testing.T) {
	t.Parallel()
	rules := func(tries int) func(*agent.BeginRunOutput) {
		return func(out *agent.BeginRunOutput) {
			out.Rules.LookUpTries, out.Rules.RetryInitial, out.Rules.RetryMax = tries, time.Second, 4*time.Second
		}
	}
	found := func(after time.Duration) func(*State) {
		return func(s *State) { s.Committed(agent.WriteOutcome{State: agent.WriteUnknown, RetryAfter: after}) }
	}
	lost := func(s *State) { s.LookUpLost() }
	for name, test := range map[string]struct {
		tries   int
		lookUps []func(*State)
		waits   string
	}{
		"nothing found":          {5, []func(*State){found(0), found(0), found(0), found(0), found(0)}, "0s 1s 2s 4s 4s"},
		"nothing heard":          {3, []func(*State){lost, lost, lost}, "0s 1s 2s"},
		"found later":            {4, []func(*State){found(30 * time.Second), found(time.Second), lost, found(0)}, "0s 30s 2s 4s"},
		"one is enough":          {1, []func(*State){found(0)}, "0s"},
		"rules of an older time": {0, []func(*State){found(time.Minute)}, "0s"},
	} {
		for _, at := range []time.Time{start, start.Add(2 * time.Hour)} {
			t.Run(fmt.Sprint(name, at.Sub(start)), func(t *testing.T) {
				t.Parallel()
				s := resolving(rules(test.tries))
				var waits []string
				for i, happens := range test.lookUps {
					d := s.Next(at)
					// The last one performs nothing that it finds undone.
					if d.Kind != ResolveWrite || d.Stopping != (at.After(start) || i == len(test.lookUps)-1) {
						t.Fatalf("it wants %+v", d)
					}
					waits = append(waits, d.Wait.String())
					happens(&s)
				}
				if got := strings.Join(waits, " "); got != test.waits {
					t.Errorf("it waits %s, want %s", got, test.waits)
				}
				wantEnd(t, s, agent.ReasonOutcomeUnknown, "")
			})
		}
	}
}

// TestWritesAlone hands out reads and writes in the order of the calls (TOOL-2).
func TestWritesAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		calls string
		limit int
		want  string
	}{
		"reads around writes": {"r r w w r r", 100, "call_tools 0.0 0.1|prepare_write 0.2|prepare_write 0.3|call_tools 0.4 0.5|call_model"},
		"more reads than run at once": {
			"r r r r r w r", 100, "call_tools 0.0 0.1 0.2 0.3|call_tools 0.4|prepare_write 0.5|call_tools 0.6|call_model",
		},
		"no call left for the second write": {"r w w r", 2, "call_tools 0.0|prepare_write 0.1|end tool_call_limit"},
		"the last call is a write":          {"r w", 2, "call_tools 0.0|prepare_write 0.1|call_model"},
		"a write alone":                     {"w", 1, "prepare_write 0.0|call_model"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := writing(func(out *agent.BeginRunOutput) { out.Budget.MaxToolCalls = test.limit }, test.calls)
			var steps []string
			for {
				before := s
				words, _, _ := strings.Cut(want(&s, start), ",")
				steps = append(steps, words)
				d := before.Next(start)
				if d.Kind == CallModel || d.Kind == End {
					break
				}
				if d.Kind == CallTools {
					execute(&s, d)
					continue
				}
				s.Prepared(plan(1))
				if s.Resting() != (s.Phase == phaseConfirm) {
					t.Errorf("resting is %t in phase %s", s.Resting(), s.Phase)
				}
				s.Next(start)
				out := done()
				out.Outcome.ResultHash = d.Calls[0].ID
				s.Committed(out)
			}
			if got := strings.Join(steps, "|"); got != test.want {
				t.Errorf("handed out %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestDeclinedAgain: the same write declined twice is an error that the model
// does not learn from; its hash is the same.
func TestDeclinedAgain(t *testing.T) {
	t.Parallel()
	s := waiting(nil)
	s.Committed(failedWith("declined"))
	if got := want(&s, start); got != "call_model, running" {
		t.Fatalf("it wants %s", got)
	}
	s.Acted(start, agent.Action{Kind: agent.ActionCalls, Calls: []agent.Call{{ID: "1.0", Tool: "w", ArgumentsHash: "other", Write: true}}})
	s.Next(start)
	s.Prepared(plan(1))
	s.Committed(failedWith("declined"))
	wantEnd(t, s, agent.ReasonRepeatedError, "")
}

// TestResting: what is begun and unfinished is not carried into a new history; a
// plan that waits is.
func TestResting(t *testing.T) {
	t.Parallel()
	proposed := writing(nil, "w r")
	planning := writing(nil, "w")
	planning.Next(start)
	confirming := planning
	confirming.Prepared(plan(1))
	outdated := confirming
	outdated.Committed(agent.WriteOutcome{State: agent.WriteStale})
	for name, test := range map[string]struct {
		state State
		want  bool
	}{
		"calls left":     {proposed, false},
		"planning":       {planning, false},
		"confirming":     {confirming, true},
		"planning again": {outdated, false},
		"resolving":      {resolving(nil), false},
		"before a model": {running(nil), true},
	} {
		if got := test.state.Resting(); got != test.want {
			t.Errorf("%s: resting is %t", name, got)
		}
	}
}
