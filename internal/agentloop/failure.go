package agentloop

import (
	"time"

	"github.com/fairlead/fairlead/agent"
)

// failed decides what a model call without a usable response means: another
// try, a chance to correct, or the end (RUN-8).
func (s *State) failed(now time.Time, failure *agent.Failure) {
	if failure == nil {
		s.end(agent.ReasonInternal, "failure_without_code")
		return
	}
	if failure.Code == agent.FailureMalformedOutput {
		// A response was received and paid for, so it is a step. The model is
		// told what was wrong and may correct itself, a bounded number of times.
		s.Step, s.Try = s.Step+1, 0
		s.Malformed++
		if s.Malformed > s.Rules.MalformedRetries {
			s.end(agent.ReasonMalformedOutput, failure.Detail)
		}
		return
	}
	if failure.Retryable && s.Try+1 < s.Rules.ModelTries {
		wait := max(backoff(s.Rules, s.Try), failure.RetryAfter)
		if !s.Deadline.IsZero() && !now.Add(wait).Before(s.Deadline) {
			// Waiting for the deadline would only hide the cause.
			s.end(agent.ReasonModelUnavailable, detailOf(failure))
			return
		}
		s.Try++
		s.Wait = wait
		s.Phase = phaseRetry
		return
	}
	s.end(reasonOf(failure.Code), detailOf(failure))
}

// backoff doubles from RetryInitial to RetryMax. It has no jitter: the loop is
// deterministic, and the provider's Retry-After spreads callers better.
func backoff(rules agent.LoopRules, try int) time.Duration {
	wait := rules.RetryInitial
	for range try {
		if wait >= rules.RetryMax {
			break
		}
		wait *= 2
	}
	return min(wait, rules.RetryMax)
}

func reasonOf(code agent.FailureCode) agent.Reason {
	switch code {
	case agent.FailureRateLimited, agent.FailureUnavailable, agent.FailureTimeout,
		agent.FailureAuthentication, agent.FailureInvalidRequest:
		return agent.ReasonModelUnavailable
	case agent.FailureOutputTruncated, agent.FailureStreamCut:
		// A cut stream had shown output already: a second answer is not a
		// retry, and two halves are never stitched together (RUN-9).
		return agent.ReasonOutputTruncated
	case agent.FailureMalformedOutput:
		return agent.ReasonMalformedOutput
	case agent.FailureContentPolicy:
		return agent.ReasonContentPolicy
	case agent.FailureContextOverflow:
		return agent.ReasonContextOverflow
	case agent.FailureTokenLimit:
		return agent.ReasonTokenLimit
	case agent.FailureCostLimit:
		return agent.ReasonCostLimit
	case agent.FailureDeadline:
		return agent.ReasonDeadline
	case agent.FailureAuthorization:
		return agent.ReasonAuthorizationUnavailable
	case agent.FailureSuperseded:
		return agent.ReasonSuperseded
	case agent.FailureCanceled:
		return agent.ReasonCanceled
	case agent.FailureInternal:
		return agent.ReasonInternal
	}
	return agent.ReasonInternal
}

// detailOf keeps the provider-side cause visible where the reason alone does
// not say it.
func detailOf(failure *agent.Failure) string {
	if failure.Detail != "" {
		return failure.Detail
	}
	if string(failure.Code) == string(reasonOf(failure.Code)) {
		return ""
	}
	return string(failure.Code)
}
