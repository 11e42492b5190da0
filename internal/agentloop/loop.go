// Package agentloop is the state machine of one run, without I/O: it is told
// what happened and says what to do next. The same code decides in production,
// in tests and during replay, so it uses no clock, randomness, goroutine or
// map, and its state is plain data that survives continue-as-new.
//
// It is the only layer that counts: steps, tool calls, tokens, cost, tries and
// repetitions are bounded here and nowhere else (RUN-3, RUN-8). It may import
// package agent and the standard library; package workflows drives it.
package agentloop

import (
	"time"

	"github.com/fairlead/fairlead/agent"
)

// Kind says what the driver must do next.
type Kind string

// The closed set of decisions.
const (
	// Begin: execute BeginRun, then report Began.
	Begin Kind = "begin"
	// CallModel: execute NextAction for Model, then report Acted.
	CallModel Kind = "call_model"
	// CallTools: execute Calls at the same time, then report Observed with the
	// outcomes in the same order.
	CallTools Kind = "call_tools"
	// PrepareWrite: execute PrepareWrite for the one call in Calls, then report
	// Prepared.
	PrepareWrite Kind = "prepare_write"
	// AwaitApproval: wait for a person's decision about Plan, execute
	// CommitWrite with it, or ExpirePlan when nobody decided until
	// Plan.ExpiresAt, then report Committed or CommitLost.
	AwaitApproval Kind = "await_approval"
	// ResolveWrite: let Wait pass, whatever else happens, and execute
	// ResolveWrite for the one call in Calls; then report Committed or
	// LookUpLost.
	ResolveWrite Kind = "resolve_write"
	// Wait: let Wait pass, then ask again.
	Wait Kind = "wait"
	// End: the run is over; Reason and Detail of the state say why.
	End Kind = "end"
)

// Decision is what the driver must do next.
type Decision struct {
	Kind  Kind
	Model ModelCall
	Calls []agent.Call
	Plan  agent.PlanRef
	Wait  time.Duration
	// Stopping, with ResolveWrite, says that the run ends after it: a write
	// that did not happen must not be performed any more.
	Stopping bool
}

// ModelCall names one try of one step and what is left for it.
type ModelCall struct {
	Step, Try  int
	TokensLeft int64
	// CostLeftMicros is negative when no cost limit was agreed.
	CostLeftMicros int64
}

type phase string

const (
	phaseBegin phase = "begin"
	phaseQueue phase = "queue"
	phasePlan  phase = "plan"
	phaseRetry phase = "retry"
	phaseAct   phase = "act"
	// phasePrepare, phaseConfirm and phaseResolve are those of a write.
	phasePrepare phase = "prepare"
	phaseConfirm phase = "confirm"
	phaseResolve phase = "resolve"
	phaseEnded   phase = "ended"
)

// maxQueueWait bounds the wait between two requests for a concurrency slot.
const maxQueueWait = 30 * time.Second

// State is a run between two events. It is a value: copy it freely. The zero
// value is not valid; use New. It is not safe for concurrent use.
type State struct {
	Status agent.Status `json:"status"`
	Reason agent.Reason `json:"reason,omitempty"`
	Detail string       `json:"detail,omitempty"`

	Budget   agent.Budget    `json:"budget"`
	Rules    agent.LoopRules `json:"rules"`
	Deadline time.Time       `json:"deadline"`

	// Step counts model responses taken, ToolCalls executed calls.
	Step      int         `json:"step"`
	ToolCalls int         `json:"tool_calls"`
	Usage     agent.Usage `json:"usage"`
	AnswerID  string      `json:"answer_id,omitempty"`

	Phase phase `json:"phase"`
	// Try counts the tries of the current step, Malformed all outputs that the
	// model had to correct.
	Try       int           `json:"try,omitempty"`
	Malformed int           `json:"malformed,omitempty"`
	Wait      time.Duration `json:"wait_ns,omitempty"`
	Queued    int           `json:"queued,omitempty"`
	// Pending are calls of the last response that were not executed yet.
	Pending []agent.Call `json:"pending,omitempty"`
	// Write is the write that is prepared, confirmed or resolved now.
	Write write `json:"write,omitzero"`
	// Stop is the reason of a requested stop, not yet carried out.
	Stop agent.Reason `json:"stop,omitempty"`

	Seen memory `json:"seen"`
}

// New returns the state of a run that was just accepted.
func New() State {
	return State{Status: agent.StatusQueued, Phase: phaseBegin}
}

// Next says what to do at time now. It reserves what it decides: executed tool
// calls are counted when they are handed out.
func (s *State) Next(now time.Time) Decision {
	if s.Phase == phaseEnded {
		return Decision{Kind: End}
	}
	if decision, ok := s.nextWrite(now); ok {
		return decision
	}
	// The order is the specification's (RUN-3).
	if s.Stop != "" {
		return s.end(s.Stop, "")
	}
	if s.deadlinePassed(now) {
		return s.end(agent.ReasonDeadline, "")
	}
	switch s.Phase {
	case phaseBegin:
		return Decision{Kind: Begin}
	case phaseQueue:
		s.Phase = phaseBegin
		return Decision{Kind: Wait, Wait: s.untilDeadline(now, s.Wait)}
	case phaseRetry:
		s.Phase = phasePlan
		return Decision{Kind: Wait, Wait: s.untilDeadline(now, s.Wait)}
	case phaseAct:
		return s.nextCalls(now)
	case phasePrepare:
		return Decision{Kind: PrepareWrite, Calls: []agent.Call{s.Write.Call}}
	}
	return s.nextModelCall()
}

func (s *State) nextModelCall() Decision {
	switch {
	case s.Step >= s.Budget.MaxSteps:
		return s.end(agent.ReasonStepLimit, "")
	case s.Usage.BilledTokens >= s.Budget.MaxTokens:
		return s.end(agent.ReasonTokenLimit, "")
	case s.costSpent():
		return s.end(agent.ReasonCostLimit, "")
	}
	call := ModelCall{
		Step: s.Step, Try: s.Try,
		TokensLeft:     s.Budget.MaxTokens - s.Usage.BilledTokens,
		CostLeftMicros: -1,
	}
	if s.Budget.MaxCostMicros > 0 {
		call.CostLeftMicros = s.Budget.MaxCostMicros - s.Usage.CostMicros
	}
	return Decision{Kind: CallModel, Model: call}
}

func (s *State) nextCalls(now time.Time) Decision {
	if len(s.Pending) == 0 {
		s.Phase = phasePlan
		return s.Next(now)
	}
	left := s.Budget.MaxToolCalls - s.ToolCalls
	if left <= 0 {
		// A run that used its calls up may still answer; one that wants more
		// ends here, before the next model call.
		return s.end(agent.ReasonToolCallLimit, "")
	}
	if s.costSpent() {
		return s.end(agent.ReasonCostLimit, "")
	}
	if first := s.Pending[0]; first.Write {
		// Writes run one at a time, and no read runs beside one (TOOL-2).
		s.Pending = append([]agent.Call(nil), s.Pending[1:]...)
		s.ToolCalls++
		s.Write, s.Phase = write{Call: first}, phasePrepare
		return Decision{Kind: PrepareWrite, Calls: []agent.Call{first}}
	}
	n := min(len(s.Pending), left, max(s.Rules.ParallelReads, 1))
	for i, call := range s.Pending[:n] {
		if call.Write {
			n = i
			break
		}
	}
	batch := s.Pending[:n:n]
	s.Pending = append([]agent.Call(nil), s.Pending[n:]...)
	s.ToolCalls += n
	return Decision{Kind: CallTools, Calls: batch}
}

// Began reports the outcome of BeginRun.
func (s *State) Began(out agent.BeginRunOutput) {
	if s.Phase != phaseBegin {
		s.unexpected("began")
		return
	}
	s.Budget, s.Rules, s.Deadline = out.Budget, out.Rules, out.Deadline
	switch {
	case out.Ended != "":
		if out.Ended.Status() == agent.StatusSucceeded {
			// The run had ended in an earlier execution; EndRun returns that
			// end again. Success is reached from running only.
			s.become(agent.StatusRunning)
		}
		s.end(out.Ended, out.Detail)
	case !out.Admitted:
		s.Wait = min(max(out.RetryAfter, time.Second)<<min(s.Queued, 5), maxQueueWait)
		s.Queued++
		s.Phase = phaseQueue
	default:
		s.become(agent.StatusRunning)
		s.Phase = phasePlan
	}
}

// Acted reports the result of the last CallModel.
func (s *State) Acted(now time.Time, action agent.Action) {
	if s.Phase != phasePlan {
		s.unexpected("acted")
		return
	}
	s.Usage = s.Usage.Add(action.Usage)
	switch action.Kind {
	case agent.ActionFinal:
		// A stop that arrived meanwhile comes too late: the answer is stored
		// and visible, and a run never pretends to undo what was done.
		s.Step, s.Try = s.Step+1, 0
		if action.AnswerMessageID == "" {
			s.end(agent.ReasonInternal, "final_without_answer")
			return
		}
		s.AnswerID = action.AnswerMessageID
		s.end(agent.ReasonFinal, "")
	case agent.ActionCalls:
		s.Step, s.Try = s.Step+1, 0
		s.proposed(action.Calls)
	case agent.ActionFailure:
		s.failed(now, action.Failure)
	default:
		s.end(agent.ReasonInternal, "unknown_action")
	}
}

func (s *State) proposed(calls []agent.Call) {
	if len(calls) == 0 {
		s.end(agent.ReasonInternal, "no_calls")
		return
	}
	var refused []string
	for _, call := range calls {
		if detail := s.Seen.action(call.Tool+" "+call.ArgumentsHash, s.Rules); detail != "" {
			s.end(agent.ReasonRepeatedAction, detail)
			return
		}
		if call.Refused != nil {
			refused = append(refused, call.Refused.Hash)
			continue
		}
		s.Pending = append(s.Pending, call)
	}
	if s.Seen.errors(refused, s.Rules) {
		s.end(agent.ReasonRepeatedError, "")
		return
	}
	s.Phase = phaseAct
}

// Observed reports the outcomes of the last CallTools, in call order.
func (s *State) Observed(outcomes []agent.ToolOutcome) {
	if s.Phase != phaseAct {
		s.unexpected("observed")
		return
	}
	var failed, results []string
	for _, outcome := range outcomes {
		if outcome.End != "" {
			s.end(outcome.End, "")
			return
		}
		if outcome.Error != nil {
			failed = append(failed, outcome.Error.Hash)
		} else {
			results = append(results, outcome.ResultHash)
		}
	}
	switch {
	case s.Seen.errors(failed, s.Rules):
		s.end(agent.ReasonRepeatedError, "")
	case s.Seen.results(results, s.Rules):
		s.end(agent.ReasonRepeatedAction, "same_result")
	}
}

// Cancel asks the run to stop because of reason (canceled or superseded). It
// takes effect at the next decision, or when the outcome of a write is known;
// the first request wins. A run that has ended stays as it is.
func (s *State) Cancel(reason agent.Reason) {
	if s.Phase != phaseEnded && s.Stop == "" {
		s.Stop = reason
	}
}

// Fail ends the run because an activity could not be completed.
func (s *State) Fail(reason agent.Reason, detail string) {
	if s.Phase != phaseEnded {
		s.end(reason, detail)
	}
}

// Ended reports whether the run is over.
func (s *State) Ended() bool { return s.Phase == phaseEnded }

// Resting reports whether nothing is begun and unfinished, so that the state may
// be carried into a new history. A plan that waits for a person is in the
// database: that is at rest, however many calls come after it.
func (s *State) Resting() bool {
	switch s.Phase {
	case phaseEnded, phasePrepare, phaseResolve:
		return false
	case phaseConfirm:
		return true
	}
	return len(s.Pending) == 0
}

func (s *State) end(reason agent.Reason, detail string) Decision {
	if !reason.Valid() {
		reason, detail = agent.ReasonInternal, "unknown_reason"
	}
	s.become(reason.Status())
	s.Reason, s.Detail = reason, detail
	s.Phase, s.Pending, s.Write = phaseEnded, nil, write{}
	return Decision{Kind: End}
}

// become panics on an illegal move: every call site moves along the table, and
// the property tests prove it, so a breach is a fault of this package.
func (s *State) become(next agent.Status) {
	if !s.Status.CanBecome(next) {
		// A final answer or an outcome can only come from a running run.
		panic((&agent.TransitionError{From: s.Status, To: next}).Error())
	}
	s.Status = next
}

func (s *State) unexpected(event string) {
	if s.Phase != phaseEnded {
		s.end(agent.ReasonInternal, "unexpected_"+event)
	}
}

func (s *State) costSpent() bool {
	return s.Budget.MaxCostMicros > 0 && s.Usage.CostMicros >= s.Budget.MaxCostMicros
}

func (s *State) deadlinePassed(now time.Time) bool {
	return !s.Deadline.IsZero() && !now.Before(s.Deadline)
}

func (s *State) untilDeadline(now time.Time, wait time.Duration) time.Duration {
	if s.Deadline.IsZero() {
		return wait
	}
	return min(wait, s.Deadline.Sub(now))
}
