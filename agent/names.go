package agent

import "time"

// Names under which the parts find each other through Temporal. They are
// written into histories: a released name is never given another meaning.
const (
	// WorkflowAgentRun is the workflow type of one run. Input RunRequest,
	// output RunResult.
	WorkflowAgentRun = "AgentRun"

	// TaskQueue is the task queue used when configuration names no other.
	TaskQueue = "fairlead"

	// ActivityBeginRun takes BeginRunInput and returns BeginRunOutput.
	ActivityBeginRun = "BeginRun"
	// ActivityNextAction takes NextActionInput and returns Action.
	ActivityNextAction = "NextAction"
	// ActivityReadTool takes ReadToolInput and returns ToolOutcome.
	ActivityReadTool = "ReadTool"
	// ActivityEndRun takes EndRunInput and returns RunResult.
	ActivityEndRun = "EndRun"

	// QueryState returns a RunView: where the run stands, without content.
	QueryState = "state"

	// SignalSupersede tells a run that a newer generation of its conversation
	// has begun. Its payload is a Supersession.
	SignalSupersede = "supersede"
)

// Activities lists every activity name that a worker must register.
func Activities() []string {
	return []string{ActivityBeginRun, ActivityNextAction, ActivityReadTool, ActivityEndRun}
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

// EndGrace is how long after its deadline a run may still take to record its
// end. A run row that is older than deadline plus EndGrace no longer holds a
// concurrency slot: its workflow was terminated from outside.
const EndGrace = 2 * time.Minute
