package agent

import "time"

// Names under which the parts find each other through Temporal. They are
// written into histories: a released name is never given another meaning.
const (
	// WorkflowAgentRun is the workflow type of one run. Input RunRequest,
	// output RunResult.
	WorkflowAgentRun = "AgentRun"

	// WorkflowSummarize is the workflow type that summarizes the older part of a
	// conversation in the background. Input SummarizeInput, no output. A run
	// starts it at its end and does not wait for it.
	WorkflowSummarize = "SummarizeConversation"

	// WorkflowMemoryWrite decides about one proposed memory. Input
	// MemoryWriteInput, output MemoryVerdict.
	WorkflowMemoryWrite = "MemoryWrite"
	// WorkflowLearnFromRun proposes memories from what the user said in a run,
	// after its answer and in the background. Input LearnInput, output LearnResult.
	WorkflowLearnFromRun = "LearnFromRun"
	// WorkflowForgetMemory deletes one record, or all of a user's. Input
	// ForgetInput, output ErasureReceipt.
	WorkflowForgetMemory = "ForgetMemory"
	// WorkflowEraseSubject erases a user for good. Input EraseInput, output
	// ErasureReceipt.
	WorkflowEraseSubject = "EraseSubject"
	// WorkflowReconcileMemory finds and repairs what is left over or due; a
	// schedule starts it. Input ReconcileInput, output ReconcileReport.
	WorkflowReconcileMemory = "ReconcileMemory"
	// WorkflowReindexMemory computes the vectors of all records anew. Input
	// ReindexInput, output ReindexOutput.
	WorkflowReindexMemory = "ReindexMemory"

	// TaskQueue is the task queue used when configuration names no other.
	TaskQueue = "fairlead"

	// ActivityBeginRun takes BeginRunInput and returns BeginRunOutput.
	ActivityBeginRun = "BeginRun"
	// ActivityNextAction takes NextActionInput and returns Action.
	ActivityNextAction = "NextAction"
	// ActivityReadTool takes ReadToolInput and returns ToolOutcome.
	ActivityReadTool = "ReadTool"
	// ActivityPrepareWrite takes PrepareWriteInput and returns PreparedWrite.
	ActivityPrepareWrite = "PrepareWrite"
	// ActivityCommitWrite takes CommitWriteInput and returns WriteOutcome.
	ActivityCommitWrite = "CommitWrite"
	// ActivityResolveWrite takes ResolveWriteInput and returns WriteOutcome.
	ActivityResolveWrite = "ResolveWrite"
	// ActivityExpirePlan takes ExpirePlanInput and returns WriteOutcome.
	ActivityExpirePlan = "ExpirePlan"
	// ActivityRefuseApprovals takes RefuseApprovalsInput and returns nothing.
	ActivityRefuseApprovals = "RefuseApprovals"
	// ActivityEndRun takes EndRunInput and returns EndRunOutput.
	ActivityEndRun = "EndRun"
	// ActivitySummarize takes SummarizeInput and returns SummarizeOutput.
	ActivitySummarize = "Summarize"

	// ActivityRecall takes RecallInput and returns RecallOutput.
	ActivityRecall = "Recall"
	// ActivityProposeMemory takes MemoryWriteInput and returns MemoryVerdict. Its
	// input holds content, so it is given to a local activity only.
	ActivityProposeMemory = "ProposeMemory"
	// ActivityJudgeMemory takes MemoryWriteInput without a candidate and returns
	// MemoryVerdict.
	ActivityJudgeMemory = "JudgeMemory"
	// ActivitySettleMemory takes SettleMemoryInput and returns SettledMemory.
	ActivitySettleMemory = "SettleMemory"
	// ActivityLearn takes LearnInput and returns LearnOutput.
	ActivityLearn = "Learn"
	// ActivityForget takes ForgetInput and returns ErasureStep.
	ActivityForget = "Forget"
	// ActivityErase takes EraseInput and returns ErasureStep.
	ActivityErase = "Erase"
	// ActivityReconcile takes ReconcileInput and returns ReconcileReport.
	ActivityReconcile = "Reconcile"
	// ActivityReindex takes ReindexInput and returns ReindexOutput.
	ActivityReindex = "Reindex"

	// QueryState returns a RunView: where the run stands, without content.
	QueryState = "state"

	// SignalSupersede tells a run that a newer generation of its conversation
	// has begun. Its payload is a Supersession.
	SignalSupersede = "supersede"
	// SignalApproval brings a person's decision about the write that a run
	// waits for. Its payload is an Approval. Any program may send it: what is
	// believed is the token, not the sender.
	SignalApproval = "approval"
	// SignalSettled tells a run that an operator recorded what became of a write
	// whose outcome was unknown. It has no payload and is believed in nothing:
	// the run looks at the record sooner than it would have.
	SignalSettled = "settled"
	// SignalMemoryDecision brings the decision of a reviewer or user about the
	// memory that a MemoryWrite waits with. Its payload is an Approval; believed
	// is the token, not the sender.
	SignalMemoryDecision = "memory_decision"
)

// Activities lists every activity name that a worker must register.
func Activities() []string {
	return []string{
		ActivityBeginRun, ActivityNextAction, ActivityReadTool,
		ActivityPrepareWrite, ActivityCommitWrite, ActivityResolveWrite, ActivityExpirePlan, ActivityRefuseApprovals,
		ActivityEndRun, ActivitySummarize,
		ActivityRecall, ActivityProposeMemory, ActivityJudgeMemory, ActivitySettleMemory, ActivityLearn,
		ActivityForget, ActivityErase, ActivityReconcile, ActivityReindex,
	}
}

// Search attributes that an AgentRun sets, for lists and filters in the
// Temporal Web UI. All are keywords except SearchStep, which is an integer.
const (
	SearchTenant       = "FairleadTenant"
	SearchUser         = "FairleadUser"
	SearchConversation = "FairleadConversation"
	SearchAgent        = "FairleadAgent"
	SearchEnvironment  = "FairleadEnvironment"
	SearchStatus       = "FairleadStatus"
	SearchReason       = "FairleadReason"
	SearchStep         = "FairleadStep"
)

// WorkflowID returns the Temporal workflow ID of a tenant's run. One run has one
// workflow ID for its whole life, continue-as-new included, so starting the same
// run twice gives one workflow. The separator is in no identifier: two tenants
// with the same run ID have two workflows.
func WorkflowID(tenant, runID string) string { return "agent-run~" + tenant + "~" + runID }

// SummarizeWorkflowID returns the Temporal workflow ID under which a
// conversation's summaries are made, one at a time.
func SummarizeWorkflowID(tenant, conversation string) string {
	return "summarize~" + tenant + "~" + conversation
}

// MemoryWriteWorkflowID returns the Temporal workflow ID of a memory's write.
func MemoryWriteWorkflowID(tenant, id string) string { return "memory-write~" + tenant + "~" + id }

// LearnWorkflowID returns the Temporal workflow ID under which a run is learned
// from.
func LearnWorkflowID(tenant, runID string) string { return "learn~" + tenant + "~" + runID }

// ForgetWorkflowID returns the Temporal workflow ID of a request to forget.
func ForgetWorkflowID(tenant, id string) string { return "forget~" + tenant + "~" + id }

// EraseWorkflowID returns the Temporal workflow ID under which a user is erased.
func EraseWorkflowID(tenant, user string) string { return "erase~" + tenant + "~" + user }

// ReconcileWorkflowID and ReindexWorkflowID are the Temporal workflow IDs of the
// work on all memory: one of each at a time. ReconcileScheduleID is the
// schedule's.
const (
	ReconcileWorkflowID = "reconcile-memory"
	ReconcileScheduleID = "reconcile-memory"
	ReindexWorkflowID   = "reindex-memory"
)

// EndGrace is how long after its deadline a run may still take to record its
// end. A run row that is older than deadline plus EndGrace no longer holds a
// concurrency slot: its workflow was terminated from outside.
const EndGrace = 2 * time.Minute
