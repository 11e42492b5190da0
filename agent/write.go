package agent

import "time"

// A write goes through prepare, confirm and commit (WRITE-1..7): PrepareWrite
// stores a plan, the run waits for the signal SignalApproval, and CommitWrite
// consumes the token, records the intent, performs and records the outcome. An
// outcome that is unknown is looked up by ResolveWrite.

// PrepareWriteInput makes a plan for one recorded call. Run and CallID are the
// idempotency key: a plan that is still pending is returned again.
type PrepareWriteInput struct {
	Run           RunRef `json:"run"`
	CallID        string `json:"call_id"`
	ArgumentsHash string `json:"arguments_hash"`
}

// PreparedWrite is a plan that waits for a person, or the outcome of a call
// that came to none. Exactly one of Plan and Outcome is set.
type PreparedWrite struct {
	Plan    *PlanRef     `json:"plan,omitempty"`
	Outcome *ToolOutcome `json:"outcome,omitempty"`
	// Deadline is the run's deadline as it stands now; zero means unchanged.
	Deadline time.Time `json:"deadline"`
}

// PlanRef names a stored plan. What it says is content and in the database.
type PlanRef struct {
	CallID string `json:"call_id"`
	// Revision counts the plans of one call from 1: a plan whose resource has
	// changed is prepared anew.
	Revision int `json:"revision"`
	// ExpiresAt is when nobody can confirm the plan any more.
	ExpiresAt time.Time `json:"expires_at"`
	// Timeout is what performing it may take.
	Timeout time.Duration `json:"timeout_ns"`
}

// Approval is the payload of SignalApproval: a token that package approval
// minted for one approver, one plan and one decision. Who sends it does not
// matter.
type Approval struct {
	Token string `json:"token"`
}

// CommitWriteInput carries a person's decision about a plan.
type CommitWriteInput struct {
	Run           RunRef `json:"run"`
	CallID        string `json:"call_id"`
	ArgumentsHash string `json:"arguments_hash"`
	Revision      int    `json:"revision"`
	Token         string `json:"token"`
}

// ResolveWriteInput asks what became of a write.
type ResolveWriteInput struct {
	Run           RunRef `json:"run"`
	CallID        string `json:"call_id"`
	ArgumentsHash string `json:"arguments_hash"`
	// Stopping says that a write which did not happen is not performed any more:
	// the run ends, or nobody would look after it.
	Stopping bool `json:"stopping,omitempty"`
}

// ExpirePlanInput ends the wait for a person.
type ExpirePlanInput struct {
	Run      RunRef `json:"run"`
	CallID   string `json:"call_id"`
	Revision int    `json:"revision"`
}

// RefuseApprovalsInput records approvals that came when nothing waited for them.
type RefuseApprovalsInput struct {
	Run    RunRef   `json:"run"`
	Tokens []string `json:"tokens"`
}

// WriteState says how far a write has come.
type WriteState string

// The closed set of write states.
const (
	// WriteRefused: the token was refused and the plan waits on; Refusal says why.
	WriteRefused WriteState = "refused"
	// WriteStale: the resource changed since the plan was made. It is prepared
	// and confirmed again.
	WriteStale WriteState = "stale"
	// WriteUnknown: the intent is recorded and the outcome is not known.
	WriteUnknown WriteState = "unknown"
	// WriteNotBegun: no intent is recorded; nothing happened.
	WriteNotBegun WriteState = "not_begun"
	// WriteDone: Outcome is recorded.
	WriteDone WriteState = "done"
)

// WriteOutcome is the small, content-free result of CommitWrite, ResolveWrite
// and ExpirePlan.
type WriteOutcome struct {
	State   WriteState  `json:"state"`
	Refusal RefusalCode `json:"refusal,omitempty"`
	Outcome ToolOutcome `json:"outcome"`
	// RetryAfter, with WriteUnknown, is when a look-up will say more.
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
	// Deadline is the run's deadline as it stands now, which the time of
	// waiting for a person has moved; zero means unchanged.
	Deadline time.Time `json:"deadline"`
}

// RefusalCode is a stable name for why an approval was not believed.
type RefusalCode string

// The closed set of refusal codes.
const (
	// RefusedMalformed: the signal or token cannot be read.
	RefusedMalformed RefusalCode = "malformed"
	// RefusedSignature: the signature is of no key that this worker trusts.
	RefusedSignature RefusalCode = "bad_signature"
	// RefusedExpired: the token or its plan is past its time.
	RefusedExpired RefusalCode = "expired"
	// RefusedWrongRun: it was minted for another run or tenant.
	RefusedWrongRun RefusalCode = "wrong_run"
	// RefusedWrongCall: it was minted for another call of this run.
	RefusedWrongCall RefusalCode = "wrong_call"
	// RefusedWrongPlan: tool, arguments, resource, version, nonce or text of the
	// plan are not the ones that were confirmed.
	RefusedWrongPlan RefusalCode = "wrong_plan"
	// RefusedUsed: this token, or another one for the same plan, was used.
	RefusedUsed RefusalCode = "already_decided"
	// RefusedNotAuthorized: the approver may not decide about this write.
	RefusedNotAuthorized RefusalCode = "not_authorized"
	// RefusedNotWaiting: the run waits for no approval.
	RefusedNotWaiting RefusalCode = "not_waiting"
)

// RefusalCodes returns every refusal code.
func RefusalCodes() []RefusalCode {
	return []RefusalCode{
		RefusedMalformed, RefusedSignature, RefusedExpired, RefusedWrongRun, RefusedWrongCall,
		RefusedWrongPlan, RefusedUsed, RefusedNotAuthorized, RefusedNotWaiting,
	}
}

// MaxTokenBytes bounds an approval token; a longer one is malformed.
const MaxTokenBytes = 4 << 10
