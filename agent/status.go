package agent

import "fmt"

// Status is where a run stands in its life (RUN-1).
type Status string

// The closed set of statuses.
const (
	StatusQueued              Status = "queued"
	StatusRunning             Status = "running"
	StatusWaitingConfirmation Status = "waiting_confirmation"
	StatusSucceeded           Status = "succeeded"
	StatusFailed              Status = "failed"
	StatusCanceled            Status = "canceled"
)

// transitions is the closed table of legal moves. A terminal status has no row.
var transitions = map[Status][]Status{
	StatusQueued:              {StatusRunning, StatusFailed, StatusCanceled},
	StatusRunning:             {StatusWaitingConfirmation, StatusSucceeded, StatusFailed, StatusCanceled},
	StatusWaitingConfirmation: {StatusRunning, StatusFailed, StatusCanceled},
}

// Statuses returns every status, in the order of a run's life.
func Statuses() []Status {
	return []Status{
		StatusQueued, StatusRunning, StatusWaitingConfirmation,
		StatusSucceeded, StatusFailed, StatusCanceled,
	}
}

// Valid reports whether s is one of the closed set.
func (s Status) Valid() bool {
	switch s {
	case StatusQueued, StatusRunning, StatusWaitingConfirmation,
		StatusSucceeded, StatusFailed, StatusCanceled:
		return true
	}
	return false
}

// Terminal reports whether s is final: no transition leaves it.
func (s Status) Terminal() bool {
	return s == StatusSucceeded || s == StatusFailed || s == StatusCanceled
}

// CanBecome reports whether the move from s to next is in the table.
func (s Status) CanBecome(next Status) bool {
	for _, to := range transitions[s] {
		if to == next {
			return true
		}
	}
	return false
}

// TransitionError is a move that the table does not allow.
type TransitionError struct{ From, To Status }

// Error names both ends of the refused move.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("a run cannot go from %q to %q", e.From, e.To)
}

// Reason says why a run ended (RUN-4). A run that has not ended has the empty
// reason; one that has ended has exactly one of the closed set.
type Reason string

// The closed set of reasons.
const (
	ReasonFinal                    Reason = "final"
	ReasonStepLimit                Reason = "step_limit"
	ReasonToolCallLimit            Reason = "tool_call_limit"
	ReasonTokenLimit               Reason = "token_limit"
	ReasonCostLimit                Reason = "cost_limit"
	ReasonDeadline                 Reason = "deadline"
	ReasonRepeatedAction           Reason = "repeated_action"
	ReasonRepeatedError            Reason = "repeated_error"
	ReasonOutputTruncated          Reason = "output_truncated"
	ReasonMalformedOutput          Reason = "malformed_output"
	ReasonContentPolicy            Reason = "content_policy"
	ReasonContextOverflow          Reason = "context_overflow"
	ReasonDeclinedByPolicy         Reason = "declined_by_policy"
	ReasonOutcomeUnknown           Reason = "outcome_unknown"
	ReasonModelUnavailable         Reason = "model_unavailable"
	ReasonAuthorizationUnavailable Reason = "authorization_unavailable"
	ReasonSuperseded               Reason = "superseded"
	ReasonCanceled                 Reason = "canceled"
	ReasonInternal                 Reason = "internal"
)

// Reasons returns every reason, in the order of the specification.
func Reasons() []Reason {
	return []Reason{
		ReasonFinal, ReasonStepLimit, ReasonToolCallLimit, ReasonTokenLimit, ReasonCostLimit,
		ReasonDeadline, ReasonRepeatedAction, ReasonRepeatedError, ReasonOutputTruncated,
		ReasonMalformedOutput, ReasonContentPolicy, ReasonContextOverflow, ReasonDeclinedByPolicy,
		ReasonOutcomeUnknown, ReasonModelUnavailable, ReasonAuthorizationUnavailable,
		ReasonSuperseded, ReasonCanceled, ReasonInternal,
	}
}

// Valid reports whether r is one of the closed set. The empty reason is not.
func (r Reason) Valid() bool {
	for _, known := range Reasons() {
		if r == known {
			return true
		}
	}
	return false
}

// Status returns the terminal status that belongs to r. Only a valid final
// answer is success; being canceled or superseded is a normal outcome that is
// counted apart from failures (RUN-13).
func (r Reason) Status() Status {
	switch r {
	case ReasonFinal:
		return StatusSucceeded
	case ReasonCanceled, ReasonSuperseded:
		return StatusCanceled
	default:
		return StatusFailed
	}
}
