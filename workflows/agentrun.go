// Package workflows drives the agent loop with Temporal: activities, timers,
// signals, cancellation and continue-as-new. All decisions are made by
// internal/agentloop; this package only carries them out, so it must stay
// deterministic: no clock, randomness, map order, goroutine, interface injection
// or I/O of its own.
//
// It may import agent, internal/agentloop and the Temporal SDK's workflow and
// temporal packages. Workers register it with Register; callers start it by the
// names in package agent.
package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/internal/agentloop"
)

// Registry is the part of a Temporal worker that Register needs.
type Registry interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// Register registers every workflow under its name in package agent.
func Register(r Registry) {
	r.RegisterWorkflowWithOptions(AgentRun, workflow.RegisterOptions{Name: agent.WorkflowAgentRun})
	r.RegisterWorkflowWithOptions(SummarizeConversation, workflow.RegisterOptions{Name: agent.WorkflowSummarize})
	registerMemory(r)
}

// maxActivities is how many activities one history may hold before the run
// continues in a new one. At two to four events each this stays far below the
// server's limits even before it suggests to continue.
const maxActivities = 200

// maxCarriedBytes bounds the approvals that are carried into a new history, far
// below the server's limit for one payload. What is more is judged first.
const maxCarriedBytes = 256 << 10

// Carried is what a run takes along into its next history. Callers never send
// it: a run starts with a RunRequest alone.
type Carried struct {
	Loop  agentloop.State  `json:"loop"`
	Ref   agent.RunRef     `json:"ref"`
	Route agent.ModelRoute `json:"route"`
	// Digest pins the agent definition; StartedAt is the start of the first
	// history, from which the deadline counts.
	Digest    string    `json:"digest"`
	StartedAt time.Time `json:"started_at"`
	// Approvals are tokens that nobody looked at yet.
	Approvals []string `json:"approvals,omitempty"`
	// Refusals counts the approvals that were not believed, LastRefusal says
	// why the last of them was not.
	Refusals    int               `json:"refusals,omitempty"`
	LastRefusal agent.RefusalCode `json:"last_refusal,omitempty"`
	// Recall is what came of looking for memories, nil if nobody looked.
	Recall *agent.RecallOutput `json:"recall,omitempty"`
}

// run is one execution of AgentRun.
type run struct {
	request    agent.RunRequest
	carried    Carried
	loop       agentloop.State
	waitingFor string
	activities int
	// approvals are tokens in the order of their arrival, not yet judged.
	approvals []string
	// lost holds the token of a commit of which nobody knows how far it came.
	lost []string
	// settled says that an operator recorded the outcome of a write.
	settled bool
	// stop cancels what is in flight when a newer generation takes over.
	stop workflow.CancelFunc
}

// AgentRun is one bounded agent run. It returns a RunResult for every end that
// a run can come to. It fails with an ApplicationError of a type listed in
// package agent when the request never became a run, and with a CanceledError
// that carries the RunResult as its details when the workflow was canceled.
//
// carried is nil except in the continuation of a run.
func AgentRun(ctx workflow.Context, request agent.RunRequest, carried *Carried) (agent.RunResult, error) {
	r := &run{request: request, loop: agentloop.New()}
	if carried != nil {
		r.carried, r.loop, r.approvals = *carried, carried.Loop, carried.Approvals
	} else {
		if err := request.Validate(); err != nil {
			return agent.RunResult{}, temporal.NewNonRetryableApplicationError(err.Error(), agent.ErrorInvalidRequest, nil)
		}
		r.carried.StartedAt = workflow.Now(ctx)
		r.carried.Ref = agent.RunRef{Scope: request.Scope(), RunID: request.RunID}
	}
	if err := workflow.SetQueryHandler(ctx, agent.QueryState, r.view); err != nil {
		return agent.RunResult{}, fmt.Errorf("set query handler: %w", err)
	}
	work, stop := workflow.WithCancel(ctx)
	r.stop = stop
	r.listen(ctx)
	r.approvalsFrom(ctx)
	return r.drive(ctx, work)
}

// listen ends the run when a newer generation of its conversation has begun.
func (r *run) listen(ctx workflow.Context) {
	signals := workflow.GetSignalChannel(ctx, agent.SignalSupersede)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var by agent.Supersession
			if !signals.Receive(ctx, &by) {
				return
			}
			// Only a newer generation supersedes; a late or forged signal of
			// an older one changes nothing.
			if by.Generation > r.carried.Ref.Generation {
				r.loop.Cancel(agent.ReasonSuperseded)
				r.stop()
			}
		}
	})
}

// drive asks the loop what to do and does it, until the run is over. ctx is
// canceled by Temporal, work also by a newer generation.
func (r *run) drive(ctx, work workflow.Context) (agent.RunResult, error) {
	for {
		if ctx.Err() != nil {
			r.loop.Cancel(agent.ReasonCanceled)
		}
		decision := r.loop.Next(workflow.Now(ctx))
		r.describe(ctx, decision)
		switch decision.Kind {
		case agentloop.End:
			return r.end(ctx)
		case agentloop.Begin:
			if err := r.begin(ctx, work); err != nil {
				return agent.RunResult{}, err
			}
		case agentloop.Wait:
			// An error means canceled, which the next round sees.
			_ = workflow.NewTimerWithOptions(work, decision.Wait, workflow.TimerOptions{Summary: r.waitingFor}).Get(work, nil)
		case agentloop.CallModel:
			r.callModel(work, decision.Model)
		case agentloop.CallTools:
			r.callTools(work, decision.Calls)
		case agentloop.PrepareWrite:
			r.prepareWrite(work, decision.Calls[0])
		case agentloop.AwaitApproval:
			r.awaitApproval(work, decision.Calls[0], decision.Plan)
		case agentloop.ResolveWrite:
			r.resolveWrite(work, decision)
		}
		if r.shouldContinue(ctx) {
			return agent.RunResult{}, r.continueAsNew(ctx)
		}
	}
}

func (r *run) begin(ctx, work workflow.Context) error {
	out, err := r.awaitBegin(ctx, work)
	if err != nil {
		if refused := refusal(err); refused != nil && r.loop.Queued == 0 {
			return refused
		}
		r.activityFailed(work, err, agent.ActivityBeginRun)
		return nil
	}
	first := r.carried.Ref.Generation == 0
	before := r.loop.Status
	r.carried.Ref.Generation = out.Generation
	r.carried.Digest, r.carried.Route = out.DefinitionDigest, out.Route
	r.loop.Began(out)
	if first || r.loop.Status != before {
		r.setSearchAttributes(ctx)
	}
	if first {
		for _, older := range out.Supersedes {
			// The older run may have ended meanwhile; the fence in the database
			// holds in any case, so a failed signal is no failure of this run.
			_ = workflow.SignalExternalWorkflow(ctx, agent.WorkflowID(r.request.Tenant, older), "", agent.SignalSupersede,
				agent.Supersession{ByRunID: r.request.RunID, Generation: out.Generation}).Get(ctx, nil)
		}
	}
	if out.Recall && out.Admitted && r.carried.Recall == nil {
		r.recall(work)
	}
	return nil
}

// awaitBegin executes BeginRun. A local activity that is canceled goes on out of
// sight and might still store a run that nobody would end, so a stop gives it
// beginGrace to come back first.
func (r *run) awaitBegin(ctx, work workflow.Context) (out agent.BeginRunOutput, err error) {
	free, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	begun := r.beginRun(free, agent.BeginRunInput{Request: r.request, StartedAt: r.carried.StartedAt})
	workflow.NewSelector(free).AddFuture(begun, func(workflow.Future) {}).AddReceive(work.Done(), func(workflow.ReceiveChannel, bool) {}).Select(free)
	if !begun.IsReady() {
		grace := workflow.NewTimer(free, beginGrace)
		workflow.NewSelector(free).AddFuture(begun, func(workflow.Future) {}).AddFuture(grace, func(workflow.Future) {}).Select(free)
	}
	if !begun.IsReady() {
		return out, temporal.NewCanceledError()
	}
	err = begun.Get(free, &out)
	return out, err
}

// refusal returns the error by which BeginRun says that a request cannot become
// a run, or nil for any other error.
func refusal(err error) error {
	var application *temporal.ApplicationError
	if errors.As(err, &application) && agent.IsRefusal(application.Type()) {
		return application
	}
	return nil
}

func (r *run) callModel(work workflow.Context, call agentloop.ModelCall) {
	in := agent.NextActionInput{
		Run: r.carried.Ref, DefinitionDigest: r.carried.Digest, Model: r.carried.Route.Model,
		Step: call.Step, Try: call.Try, Deadline: r.loop.Deadline,
		TokensLeft: call.TokensLeft, CostLeftMicros: call.CostLeftMicros,
	}
	r.recalled(&in)
	var action agent.Action
	if err := r.nextAction(work, in).Get(work, &action); err != nil {
		r.activityFailed(work, err, agent.ActivityNextAction)
		return
	}
	r.loop.Acted(workflow.Now(work), action)
}

// callTools executes calls at the same time and reports them in call order,
// whichever finished first.
func (r *run) callTools(work workflow.Context, calls []agent.Call) {
	tasks := make([]task, len(calls))
	for i, call := range calls {
		tasks[i] = r.readTool(work, call)
	}
	outcomes := make([]agent.ToolOutcome, len(calls))
	var failure error
	for i, task := range tasks {
		if err := task.Get(work, &outcomes[i]); err != nil && failure == nil {
			failure = err
		}
	}
	if failure != nil {
		r.activityFailed(work, failure, agent.ActivityReadTool)
		return
	}
	r.loop.Observed(outcomes)
}

// activityFailed turns an activity that could not be completed into an end of
// the run: a workflow that fails would leave no end in the database.
func (r *run) activityFailed(work workflow.Context, err error, activity string) {
	if work.Err() != nil || temporal.IsCanceledError(err) {
		r.loop.Cancel(agent.ReasonCanceled)
		return
	}
	if final(err) {
		r.loop.Fail(agent.ReasonInternal, activity)
		return
	}
	// Anything else is retried until the time that the deadline leaves is used
	// up, so the deadline is what ended it; the detail says what stood still.
	r.loop.Fail(agent.ReasonDeadline, activity)
}

// end records the end. It runs on a context of its own, because a canceled run
// has an end to record too.
func (r *run) end(ctx workflow.Context) (agent.RunResult, error) {
	canceled := ctx.Err() != nil
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	in := agent.EndRunInput{
		Run: r.carried.Ref, Reason: r.loop.Reason, Detail: r.loop.Detail,
		Step: r.loop.Step, AnswerMessageID: r.loop.AnswerID, Recall: r.carried.Recall,
	}
	out, err := r.endRun(ctx, in)
	if err != nil {
		return agent.RunResult{}, fmt.Errorf("record the end of the run: %w", err)
	}
	result := out.RunResult
	r.refuseApprovals(ctx)
	if out.Summarize {
		r.summarize(ctx)
	}
	if out.Learn {
		r.learn(ctx, &result)
	}
	// What the database recorded first is what holds.
	r.loop.Status, r.loop.Reason, r.loop.Detail = result.Status, result.Reason, result.Detail
	r.setSearchAttributes(ctx)
	r.describe(ctx, agentloop.Decision{Kind: agentloop.End})
	if canceled && result.Reason == agent.ReasonCanceled {
		return result, temporal.NewCanceledError(result)
	}
	return result, nil
}

func (r *run) shouldContinue(ctx workflow.Context) bool {
	if r.activities < maxActivities && !workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		return false
	}
	if !r.loop.Resting() || ctx.Err() != nil {
		return false
	}
	// What came up to this moment is refused or carried along.
	catchUp(ctx)
	waiting := r.loop.Status == agent.StatusWaitingConfirmation
	return r.loop.Stop == "" && (!waiting || size(r.approvals) <= maxCarriedBytes)
}

func size(tokens []string) (bytes int) {
	for _, token := range tokens {
		bytes += len(token)
	}
	return bytes
}

func (r *run) continueAsNew(ctx workflow.Context) error {
	if r.loop.Status != agent.StatusWaitingConfirmation {
		r.refuseApprovals(ctx)
	}
	r.carried.Loop, r.carried.Approvals = r.loop, r.approvals
	next := r.request
	if r.loop.Status != agent.StatusQueued {
		// The message is in the database, and nothing asks for it again: it
		// stays in the first event of a run's first history.
		next.Message, next.Session = "", nil
	}
	return workflow.NewContinueAsNewError(ctx, agent.WorkflowAgentRun, next, &r.carried)
}
