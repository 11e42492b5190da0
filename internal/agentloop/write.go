package agentloop

import (
	"time"

	"github.com/fairlead/fairlead/agent"
)

// A write leaves the common path at nextCalls and comes back to it when its
// outcome is recorded:
//
//	prepare -> confirm -> (commit, by the driver) -> act
//	   ^          |                 |
//	   +--stale---+                 +-> resolve -> act
//
// While a person is waited for, nothing but a stop ends the run: the plan has a
// time of its own, and the run's deadline moves on meanwhile. While the outcome
// is unknown, not even a stop does: what may have happened is found out first
// (RUN-13, WRITE-5).

// write is the call that is being written.
type write struct {
	Call agent.Call     `json:"call"`
	Plan *agent.PlanRef `json:"plan,omitempty"`
	// LookUps counts the look-ups that found nothing out.
	LookUps int `json:"look_ups,omitempty"`
	// After is the least wait before the next look-up.
	After time.Duration `json:"after_ns,omitempty"`
	// Lost and LostDetail are how the run ends if a commit that could not be
	// completed turns out never to have begun.
	Lost       agent.Reason `json:"lost,omitempty"`
	LostDetail string       `json:"lost_detail,omitempty"`
}

// nextWrite decides in the phases of a write that nothing but their own end
// leaves; ok is false in all other phases.
func (s *State) nextWrite(now time.Time) (d Decision, ok bool) {
	switch s.Phase {
	case phaseConfirm:
		if s.Stop != "" {
			return s.end(s.Stop, ""), true
		}
		return Decision{Kind: AwaitApproval, Calls: []agent.Call{s.Write.Call}, Plan: *s.Write.Plan}, true
	case phasePrepare:
		if s.Status != agent.StatusWaitingConfirmation {
			return Decision{}, false
		}
		// The plan is made anew: the run has waited for a person, and its deadline
		// moves on when that is over.
		if s.Stop != "" {
			return s.end(s.Stop, ""), true
		}
		return Decision{Kind: PrepareWrite, Calls: []agent.Call{s.Write.Call}}, true
	case phaseResolve:
		// The last look-up performs nothing: nobody would look after it.
		last := s.Write.LookUps+1 >= s.Rules.LookUpTries
		d := Decision{Kind: ResolveWrite, Calls: []agent.Call{s.Write.Call}, Stopping: s.stopping(now) || last}
		if s.Write.LookUps > 0 {
			d.Wait = max(backoff(s.Rules, s.Write.LookUps-1), s.Write.After)
		}
		return d, true
	}
	return Decision{}, false
}

// stopping reports whether the run ends as soon as the write's outcome is known.
func (s *State) stopping(now time.Time) bool {
	return s.Stop != "" || s.Write.Lost != "" || s.deadlinePassed(now)
}

// Prepared reports the result of the last PrepareWrite.
func (s *State) Prepared(out agent.PreparedWrite) {
	if s.Phase != phasePrepare {
		s.unexpected("prepared")
		return
	}
	s.moveDeadline(out.Deadline)
	switch {
	case out.Plan != nil:
		s.Write.Plan = out.Plan
		if s.Status != agent.StatusWaitingConfirmation {
			s.become(agent.StatusWaitingConfirmation)
		}
		s.Phase = phaseConfirm
	case out.Outcome != nil:
		s.written(*out.Outcome)
	default:
		s.end(agent.ReasonInternal, "prepared_without_plan")
	}
}

// Committed reports the result of a CommitWrite or ExpirePlan for the plan that
// was waited for, or of the last ResolveWrite.
func (s *State) Committed(out agent.WriteOutcome) {
	if s.Phase != phaseConfirm && s.Phase != phaseResolve {
		s.unexpected("committed")
		return
	}
	s.moveDeadline(out.Deadline)
	switch out.State {
	case agent.WriteRefused:
		if s.Phase != phaseConfirm {
			s.unexpected("refused")
		}
	case agent.WriteStale:
		if s.Phase != phaseConfirm {
			s.unexpected("stale")
			return
		}
		s.Write.Plan = nil
		s.Phase = phasePrepare
	case agent.WriteUnknown:
		s.unknown(out.RetryAfter)
	case agent.WriteNotBegun:
		s.notBegun()
	case agent.WriteDone:
		s.written(out.Outcome)
	default:
		s.end(agent.ReasonInternal, "unknown_write_state")
	}
}

// CommitLost reports that a CommitWrite could not be completed, so that nobody
// here knows how far it came. reason is how the run ends if it never began.
func (s *State) CommitLost(reason agent.Reason, detail string) {
	if s.Phase != phaseConfirm {
		s.unexpected("commit_lost")
		return
	}
	s.resume()
	s.Write.Lost, s.Write.LostDetail = reason, detail
	s.Phase = phaseResolve
}

// LookUpLost reports that the last ResolveWrite could not be completed.
func (s *State) LookUpLost() {
	if s.Phase != phaseResolve {
		s.unexpected("look_up_lost")
		return
	}
	s.unknown(0)
}

// unknown asks again, a bounded number of times, and past the deadline too: to
// look costs nothing, and what stays unknown costs a person's time.
func (s *State) unknown(after time.Duration) {
	s.resume()
	s.Write.After = after
	if s.Phase == phaseConfirm {
		// The commit says so itself: the first look-up comes at once.
		s.Phase = phaseResolve
		return
	}
	s.Write.LookUps++
	if s.Write.LookUps >= max(s.Rules.LookUpTries, 1) {
		s.end(agent.ReasonOutcomeUnknown, "")
	}
}

// notBegun ends a run whose write never began.
func (s *State) notBegun() {
	switch {
	case s.Stop != "":
		s.end(s.Stop, "")
	case s.Write.Lost != "":
		s.end(s.Write.Lost, s.Write.LostDetail)
	default:
		s.end(agent.ReasonInternal, "write_not_begun")
	}
}

// written takes up the outcome of the write and goes back to the common path.
func (s *State) written(outcome agent.ToolOutcome) {
	s.resume()
	s.Write = write{}
	s.Phase = phaseAct
	s.Observed([]agent.ToolOutcome{outcome})
}

// resume ends the wait for a person.
func (s *State) resume() {
	if s.Status == agent.StatusWaitingConfirmation {
		s.become(agent.StatusRunning)
	}
}

func (s *State) moveDeadline(deadline time.Time) {
	if !deadline.IsZero() {
		s.Deadline = deadline
	}
}
