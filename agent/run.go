package agent

import "time"

// BeginRunInput opens a run. It carries the user's message and is therefore
// given to a local activity only, whose input no history records.
type BeginRunInput struct {
	Request RunRequest `json:"request"`
	// StartedAt is the workflow's start; the deadline counts from it.
	StartedAt time.Time `json:"started_at"`
}

// BeginRunOutput is what the loop needs to know about a run that was begun.
type BeginRunOutput struct {
	// Admitted is false while the tenant or user has no free concurrency slot:
	// the run stays queued and asks again after RetryAfter.
	Admitted   bool          `json:"admitted"`
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
	// Ended is set when the run is over before it began, such as a policy that
	// declines the environment. Detail is a short stable code.
	Ended  Reason `json:"ended,omitempty"`
	Detail string `json:"detail,omitempty"`

	Generation       int64      `json:"generation"`
	DefinitionDigest string     `json:"definition_digest"`
	Deadline         time.Time  `json:"deadline"`
	Budget           Budget     `json:"budget"`
	Rules            LoopRules  `json:"rules"`
	Route            ModelRoute `json:"route"`
	// Supersedes lists the runs of the same conversation that this one replaces.
	Supersedes []string `json:"supersedes,omitempty"`
	// Recall says that the definition recalls memories: ask before the first
	// model call.
	Recall bool `json:"recall,omitempty"`
}

// LoopRules are a definition's settings for the loop itself.
type LoopRules struct {
	// SameAction ends the run when one tool is called with the same canonical
	// arguments for the SameAction-th time. At least 2.
	SameAction int `json:"same_action"`
	// SameResult ends the run when a tool gives the same result for the
	// SameResult-th time. At least 2.
	SameResult int `json:"same_result"`
	// SameError ends the run when the same error is seen for the SameError-th
	// time. At least 2.
	SameError int `json:"same_error"`
	// Cycle ends the run when two actions alternated Cycle times (A-B-A-B is 2).
	Cycle int `json:"cycle"`
	// MalformedRetries is how many malformed outputs the model may correct.
	MalformedRetries int `json:"malformed_retries"`
	// ModelTries is the number of tries for one step, the first included.
	ModelTries int `json:"model_tries"`
	// RetryInitial and RetryMax bound the wait before another try; a
	// provider's Retry-After prolongs it.
	RetryInitial time.Duration `json:"retry_initial_ns"`
	RetryMax     time.Duration `json:"retry_max_ns"`
	// ParallelReads is how many reads of one response run at the same time.
	ParallelReads int `json:"parallel_reads"`
	// LookUpTries is how often the outcome of a write is looked up before it
	// counts as unknown for good; waits as between model tries.
	LookUpTries int `json:"look_up_tries"`
}

// ModelRoute says how a model's calls are executed.
type ModelRoute struct {
	// Model is the catalogue name.
	Model string `json:"model"`
	// Local runs the calls as local activities: for tests, evals and models
	// that answer within milliseconds.
	Local bool `json:"local"`
}

// RunRef names a run and its owner in every later activity input.
type RunRef struct {
	Scope      Scope  `json:"scope"`
	RunID      string `json:"run_id"`
	Generation int64  `json:"generation"`
}

// NextActionInput asks for the model's next proposal. Run, Step and Try are the
// idempotency key: asking again returns the recorded Action.
type NextActionInput struct {
	Run              RunRef    `json:"run"`
	DefinitionDigest string    `json:"definition_digest"`
	Model            string    `json:"model"`
	Step             int       `json:"step"`
	Try              int       `json:"try"`
	Deadline         time.Time `json:"deadline"`
	// TokensLeft and CostLeftMicros are what remains of the run's budget. A
	// negative CostLeftMicros means that no cost limit was agreed.
	TokensLeft     int64 `json:"tokens_left"`
	CostLeftMicros int64 `json:"cost_left_micros"`
	// Recalled says that Recall gave memories to the run.
	Recalled bool `json:"recalled,omitempty"`
	// Room is where they are read, set with Recalled.
	Room *MemoryRoom `json:"room,omitempty"`
}

// ActionKind says what a model response amounts to.
type ActionKind string

// The closed set of action kinds.
const (
	// ActionFinal: a valid final answer was stored as AnswerMessageID.
	ActionFinal ActionKind = "final"
	// ActionCalls: the model proposes the tool calls in Calls.
	ActionCalls ActionKind = "calls"
	// ActionFailure: there is no usable response; Failure says why.
	ActionFailure ActionKind = "failure"
)

// Action is the small, content-free result of one NextAction.
type Action struct {
	Kind            ActionKind `json:"kind"`
	AnswerMessageID string     `json:"answer_message_id,omitempty"`
	Calls           []Call     `json:"calls,omitempty"`
	Failure         *Failure   `json:"failure,omitempty"`
	// Usage covers this try, attempts that died with a worker included.
	Usage Usage `json:"usage"`
}

// Call is one proposed tool call. Its arguments are in the database.
type Call struct {
	// ID is unique within the run: "<step>.<index>".
	ID   string `json:"id"`
	Tool string `json:"tool"`
	// ArgumentsHash is the SHA-256 of the canonical arguments (RFC 8785), in
	// hex; of the raw text when the arguments are not valid JSON.
	ArgumentsHash string `json:"arguments_hash"`
	// Local says that the tool is a fast read, executed as a local activity.
	Local bool `json:"local,omitempty"`
	// Write says that the tool changes something: the call is prepared,
	// confirmed by a person and committed.
	Write bool `json:"write,omitempty"`
	// Refused is set when the call was answered with an error already: an
	// unknown tool, or arguments that do not fit. It is not executed.
	Refused *ToolError `json:"refused,omitempty"`
}

// FailureCode is a stable name for why there is no usable model response.
type FailureCode string

// The closed set of failure codes.
const (
	FailureRateLimited     FailureCode = "rate_limited"
	FailureUnavailable     FailureCode = "unavailable"
	FailureTimeout         FailureCode = "timeout"
	FailureAuthentication  FailureCode = "authentication"
	FailureInvalidRequest  FailureCode = "invalid_request"
	FailureOutputTruncated FailureCode = "output_truncated"
	FailureStreamCut       FailureCode = "stream_cut"
	FailureMalformedOutput FailureCode = "malformed_output"
	FailureContentPolicy   FailureCode = "content_policy"
	FailureContextOverflow FailureCode = "context_overflow"
	FailureTokenLimit      FailureCode = "token_limit"
	FailureCostLimit       FailureCode = "cost_limit"
	FailureDeadline        FailureCode = "deadline"
	FailureAuthorization   FailureCode = "authorization_unavailable"
	FailureSuperseded      FailureCode = "superseded"
	FailureCanceled        FailureCode = "canceled"
	FailureInternal        FailureCode = "internal"
)

// Failure is a model call that gave no usable response.
type Failure struct {
	Code FailureCode `json:"code"`
	// Detail is a short stable code for people, such as "tenant_daily_tokens".
	Detail string `json:"detail,omitempty"`
	// Retryable says that nothing had been received and another try may help.
	Retryable bool `json:"retryable,omitempty"`
	// RetryAfter is the provider's wish, zero if it gave none.
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
}

// ReadToolInput executes one recorded call. Run and CallID are the idempotency
// key: executing again returns the recorded outcome.
type ReadToolInput struct {
	Run           RunRef    `json:"run"`
	CallID        string    `json:"call_id"`
	ArgumentsHash string    `json:"arguments_hash"`
	Deadline      time.Time `json:"deadline"`
}

// ToolOutcome is the small, content-free result of one tool call.
type ToolOutcome struct {
	CallID string `json:"call_id"`
	// ResultHash is the SHA-256 of the full result in hex, when it succeeded.
	ResultHash string `json:"result_hash,omitempty"`
	// Error is set when it failed; the model has been told.
	Error *ToolError `json:"error,omitempty"`
	// End, if set, ends the run: authorization_unavailable, outcome_unknown,
	// superseded, canceled or internal.
	End Reason `json:"end,omitempty"`
}

// ToolErrorCode is a stable name for a failed tool call, as the model sees it.
type ToolErrorCode string

// The closed set of tool error codes.
const (
	ToolUnknown          ToolErrorCode = "unknown_tool"
	ToolInvalidArguments ToolErrorCode = "invalid_arguments"
	ToolForbidden        ToolErrorCode = "forbidden"
	ToolNotFound         ToolErrorCode = "not_found"
	ToolTimeout          ToolErrorCode = "timeout"
	ToolUnavailable      ToolErrorCode = "unavailable"
	ToolQuota            ToolErrorCode = "quota_exceeded"
	ToolFailed           ToolErrorCode = "failed"
	// ToolDeclined: a person declined the write.
	ToolDeclined ToolErrorCode = "declined"
	// ToolNotConfirmed: nobody confirmed the write in time.
	ToolNotConfirmed ToolErrorCode = "not_confirmed"
	// ToolConflict: the resource changed, and the write was not performed.
	ToolConflict ToolErrorCode = "conflict"
	// ToolProhibited: the user's standing prohibition covers the call.
	ToolProhibited ToolErrorCode = "prohibited"
	// ToolOutcomeUnknown: nobody knows whether the effect happened. It is in a
	// run's result only; a model is never told so, because the run ends.
	ToolOutcomeUnknown ToolErrorCode = "outcome_unknown"
)

// ToolError is the content-free form of a failed call.
type ToolError struct {
	Code ToolErrorCode `json:"code"`
	// Hash identifies the same error again: SHA-256 in hex over tool, code and
	// safe message.
	Hash string `json:"hash"`
}

// EndRunInput records the end of a run. It is idempotent: the first end wins.
type EndRunInput struct {
	Run    RunRef `json:"run"`
	Reason Reason `json:"reason"`
	Detail string `json:"detail,omitempty"`
	Step   int    `json:"step"`
	// AnswerMessageID is set with ReasonFinal.
	AnswerMessageID string `json:"answer_message_id,omitempty"`
	// Recall is what Recall returned, nil if it was not asked.
	Recall *RecallOutput `json:"recall,omitempty"`
}

// RunResult is what a run returns. It carries no content: read the answer from
// the database by AnswerMessageID.
type RunResult struct {
	RunID           string `json:"run_id"`
	Status          Status `json:"status"`
	Reason          Reason `json:"reason"`
	Detail          string `json:"detail,omitempty"`
	AnswerMessageID string `json:"answer_message_id,omitempty"`
	Steps           int    `json:"steps"`
	ToolCalls       int    `json:"tool_calls"`
	Usage           Usage  `json:"usage"`
	// Actions are the completed tool calls in order, the last MaxActions of
	// them; ToolCalls counts all.
	Actions []CompletedAction `json:"actions,omitempty"`
	// Memory is nil for agents without memory.
	Memory *MemoryUse `json:"memory,omitempty"`
}

// MaxActions bounds RunResult.Actions.
const MaxActions = 50

// CompletedAction is one tool call that was carried out.
type CompletedAction struct {
	CallID string        `json:"call_id"`
	Tool   string        `json:"tool"`
	Error  ToolErrorCode `json:"error,omitempty"`
}

// EndRunOutput is what EndRun returns to the workflow.
type EndRunOutput struct {
	RunResult
	// Summarize says that the conversation has grown enough for a summary.
	Summarize bool `json:"summarize,omitempty"`
	// Learn says that the run can be learned from, and that this is on record as
	// due.
	Learn bool `json:"learn,omitempty"`
}

// SummarizeInput asks for summaries of a conversation's older part.
type SummarizeInput struct {
	Scope        Scope  `json:"scope"`
	Conversation string `json:"conversation"`
	// DefinitionDigest pins whose model and rules are used.
	DefinitionDigest string `json:"definition_digest"`
}

// SummarizeOutput says what came of one round of SummarizeInput.
type SummarizeOutput struct {
	// FromSeq and ToSeq are the range that was tried, zero if nothing was due.
	FromSeq int64 `json:"from_seq,omitempty"`
	ToSeq   int64 `json:"to_seq,omitempty"`
	// Failure is a short stable code if the summary was not accepted; it is kept
	// for people and used for nothing.
	Failure string `json:"failure,omitempty"`
	// More says that another range is due.
	More bool `json:"more,omitempty"`
}

// Supersession is the payload of SignalSupersede.
type Supersession struct {
	ByRunID    string `json:"by_run_id"`
	Generation int64  `json:"generation"`
}

// RunView is the answer to QueryState.
type RunView struct {
	RunID      string    `json:"run_id"`
	Status     Status    `json:"status"`
	Reason     Reason    `json:"reason,omitempty"`
	Detail     string    `json:"detail,omitempty"`
	Step       int       `json:"step"`
	ToolCalls  int       `json:"tool_calls"`
	Usage      Usage     `json:"usage"`
	Budget     Budget    `json:"budget"`
	Deadline   time.Time `json:"deadline"`
	WaitingFor string    `json:"waiting_for,omitempty"`
	// Recall is empty until the run has looked for memories.
	Recall RecallState `json:"recall,omitempty"`
}
