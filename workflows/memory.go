package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
)

const (
	// proposePatience bounds how long a candidate waits to be put on record: until
	// then it stands in this history alone.
	proposePatience = 14 * 24 * time.Hour
	// judgePatience bounds one judgment. What could not be judged is on record as
	// proposed, and ReconcileMemory starts it again.
	judgePatience = 10 * time.Minute
	// settlePatience bounds carrying out one decision. After it the candidate
	// waits on, and the person may send the decision again.
	settlePatience = 24 * time.Hour
	// expiryPause is how long a candidate waits on when a worker's clock says that
	// its time is not over yet, and faultPause when it could not be expired.
	expiryPause = 10 * time.Second
	faultPause  = time.Hour
	// maxRefusals is how many decisions may be refused in one history.
	maxRefusals = 100
)

// registerMemory registers the workflows about memory.
func registerMemory(r Registry) {
	r.RegisterWorkflowWithOptions(MemoryWrite, workflow.RegisterOptions{Name: agent.WorkflowMemoryWrite})
	r.RegisterWorkflowWithOptions(LearnFromRun, workflow.RegisterOptions{Name: agent.WorkflowLearnFromRun})
	r.RegisterWorkflowWithOptions(ForgetMemory, workflow.RegisterOptions{Name: agent.WorkflowForgetMemory})
	r.RegisterWorkflowWithOptions(EraseSubject, workflow.RegisterOptions{Name: agent.WorkflowEraseSubject})
	r.RegisterWorkflowWithOptions(ReconcileMemory, workflow.RegisterOptions{Name: agent.WorkflowReconcileMemory})
	r.RegisterWorkflowWithOptions(ReindexMemory, workflow.RegisterOptions{Name: agent.WorkflowReindexMemory})
}

// MemoryWriteCarried is what a MemoryWrite takes along into its next history.
// Callers never send it.
type MemoryWriteCarried struct {
	// Tokens are decisions that nobody looked at yet.
	Tokens      []string          `json:"tokens,omitempty"`
	Refusals    int               `json:"refusals,omitempty"`
	LastRefusal agent.RefusalCode `json:"last_refusal,omitempty"`
}

// memoryWrite is one execution of MemoryWrite.
type memoryWrite struct {
	in      agent.MemoryWriteInput
	carried MemoryWriteCarried
	verdict agent.MemoryVerdict
	// tokens are decisions in the order of their arrival, refused those of this
	// history that were not believed.
	tokens  []string
	refused int
	// failed counts the decisions that could not be carried out.
	failed int
	// pause is how long the candidate waits at least after it could not be expired.
	pause time.Duration
	// listed says that the search attributes say how it stands.
	listed bool
}

// MemoryWrite decides about one proposed memory (LTM-3): it is judged, and where
// the policy leaves the decision to a person it waits for one, until the time
// that the policy gives is over. It returns the verdict for every end: not_saved
// when the store failed for long, and proposed when the candidate's run is still
// open, where the proposal stays on record and is judged again later. It fails with an ApplicationError of a type listed in
// package agent when there is nothing to decide about.
//
// carried is nil except in the continuation of a write.
func MemoryWrite(ctx workflow.Context, in agent.MemoryWriteInput, carried *MemoryWriteCarried) (agent.MemoryVerdict, error) {
	if err := in.Validate(); err != nil {
		return agent.MemoryVerdict{}, temporal.NewNonRetryableApplicationError(err.Error(), agent.ErrorInvalidRequest, nil)
	}
	w := &memoryWrite{in: in}
	if carried != nil {
		w.carried, w.tokens = *carried, carried.Tokens
		w.carried.Tokens = nil
	}
	w.listen(ctx)
	if err := w.decide(ctx); err != nil {
		return agent.MemoryVerdict{}, err
	}
	for w.waiting() {
		w.describe(ctx)
		if err := w.await(ctx); err != nil {
			return w.verdict, err
		}
		if err := w.settle(ctx); err != nil {
			return w.verdict, err
		}
		if next := w.continuation(ctx); next != nil {
			return agent.MemoryVerdict{}, next
		}
	}
	w.rest(ctx)
	w.describe(ctx)
	return w.verdict, nil
}

// listen takes down every decision that arrives, also before the candidate
// waits: whoever sees it in the database may be faster than this workflow.
func (w *memoryWrite) listen(ctx workflow.Context) {
	decisions := workflow.GetSignalChannel(ctx, agent.SignalMemoryDecision)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var payload converter.RawValue
			if !decisions.Receive(ctx, &payload) {
				return
			}
			w.tokens = append(w.tokens, tokenOf(payload))
		}
	})
}

// decide puts the candidate on record and has it judged.
func (w *memoryWrite) decide(ctx workflow.Context) error {
	id := agent.MemoryWriteInput{ID: w.in.ID, Room: w.in.Room}
	if w.in.Candidate != nil {
		// A local activity, because its input is content.
		local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
			ScheduleToCloseTimeout: proposePatience, RetryPolicy: infrastructureRetry(), Summary: "propose",
		})
		if err := w.verdictOf(ctx, workflow.ExecuteLocalActivity(local, agent.ActivityProposeMemory, w.in)); err != nil {
			return err
		}
	}
	if w.verdict.State != "" && w.verdict.State != agent.MemoryProposed {
		return nil
	}
	judging := workflow.ExecuteActivity(memoryActivity(ctx, judgePatience, "judge"), agent.ActivityJudgeMemory, id)
	return w.verdictOf(ctx, judging)
}

// verdictOf waits for a verdict. A failure of the store is one: not saved.
func (w *memoryWrite) verdictOf(ctx workflow.Context, deciding workflow.Future) error {
	var verdict agent.MemoryVerdict
	err := deciding.Get(ctx, &verdict)
	switch {
	case err == nil:
		w.verdict = verdict
		return nil
	case ctx.Err() != nil || temporal.IsCanceledError(err):
		return err
	case lasting(err, agent.ErrorInvalidRequest, agent.ErrorMemoryConflict, agent.ErrorMemoryMissing):
		return err
	}
	w.verdict = agent.MemoryVerdict{ID: w.in.ID, State: agent.MemoryNotSaved}
	return nil
}

func (w *memoryWrite) waiting() bool {
	return w.verdict.State == agent.MemoryWaitingReview || w.verdict.State == agent.MemoryWaitingConfirmation
}

// await waits for a decision or for the end of the time to decide.
func (w *memoryWrite) await(ctx workflow.Context) error {
	left := w.verdict.Until.Sub(workflow.Now(ctx))
	left = max(left, w.pause)
	if len(w.tokens) > 0 || left <= 0 {
		return ctx.Err()
	}
	_, err := workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
		Timeout: left, TimerOptions: workflow.TimerOptions{Summary: string(w.verdict.State)},
	}, func() bool { return len(w.tokens) > 0 })
	return err
}

// settle carries out the oldest decision, or the end of the time to decide. If that
// fails for long the candidate waits on.
func (w *memoryWrite) settle(ctx workflow.Context) error {
	in := agent.SettleMemoryInput{ID: w.in.ID, Room: w.in.Room}
	summary := "expire"
	if len(w.tokens) > 0 {
		// An unreadable one has no token and must not pass for the end of the time.
		summary, in.Token, w.tokens = "settle", orUnreadable(w.tokens[0]), w.tokens[1:]
	}
	w.pause = 0
	var settled agent.SettledMemory
	err := workflow.ExecuteActivity(memoryActivity(ctx, settlePatience, summary), agent.ActivitySettleMemory, in).Get(ctx, &settled)
	switch {
	case err == nil:
		w.verdict = settled.MemoryVerdict
		if in.Token == "" {
			w.pause = expiryPause
		}
		if settled.Refused != "" {
			w.refused++
			w.carried.Refusals++
			w.carried.LastRefusal = settled.Refused
		}
		return nil
	case ctx.Err() != nil || temporal.IsCanceledError(err) || lasting(err, agent.ErrorMemoryMissing):
		return err
	}
	workflow.GetLogger(ctx).Warn("a decision about a memory was not carried out", "memory_id", w.in.ID)
	w.failed++
	if in.Token == "" {
		w.pause = faultPause
	}
	return nil
}

// unreadable stands for a signal that could not be read.
const unreadable = "unreadable"

func orUnreadable(token string) string {
	if token == "" {
		return unreadable
	}
	return token
}

// continuation is the error that continues in a new history, or nil. What came up
// to this moment is carried along.
func (w *memoryWrite) continuation(ctx workflow.Context) error {
	if !w.waiting() || (w.refused < maxRefusals && !workflow.GetInfo(ctx).GetContinueAsNewSuggested()) {
		return nil
	}
	if catchUp(ctx); size(w.tokens) > maxCarriedBytes {
		return nil // judged first
	}
	w.carried.Tokens = w.tokens
	next := agent.MemoryWriteInput{ID: w.in.ID, Room: w.in.Room}
	return workflow.NewContinueAsNewError(ctx, agent.WorkflowMemoryWrite, next, &w.carried)
}

// rest puts on record the decisions that came too late, at most so many as a
// history has room for.
func (w *memoryWrite) rest(ctx workflow.Context) {
	for catchUp(ctx); len(w.tokens) > 0 && w.verdict.State.Final() && w.refused < maxRefusals; catchUp(ctx) {
		final, failed := w.verdict, w.failed
		if err := w.settle(ctx); err != nil || w.failed > failed || w.verdict.State != final.State {
			w.verdict = final
			return
		}
	}
}

// memoryActivity are the options of an activity about memory. The summary stands
// in the Web UI.
func memoryActivity(ctx workflow.Context, patience time.Duration, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: patience, HeartbeatTimeout: heartbeatTimeout,
		RetryPolicy: infrastructureRetry(), WaitForCancellation: true, Summary: summary,
	})
}

// memoryChild are the options of a child that goes on when its parent has ended.
func memoryChild(ctx workflow.Context, id string, room agent.MemoryRoom) workflow.Context {
	return workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: id, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes: temporal.NewSearchAttributes(memoryAttributes(room)...),
	})
}

// memoryAttributes make a workflow about a memory findable.
func memoryAttributes(room agent.MemoryRoom) []temporal.SearchAttributeUpdate {
	updates := []temporal.SearchAttributeUpdate{
		searchTenant.ValueSet(room.Scope.Tenant), searchUser.ValueSet(room.Scope.User), searchEnvironment.ValueSet(room.Scope.Environment),
	}
	if room.Conversation != "" {
		updates = append(updates, searchConversation.ValueSet(room.Conversation))
	}
	if room.Agent != "" {
		updates = append(updates, searchAgent.ValueSet(room.Agent))
	}
	return updates
}

// describe keeps the text that the Web UI shows: identifiers and rules, no
// content. What waits for a person is listed by its state.
func (w *memoryWrite) describe(ctx workflow.Context) {
	if w.waiting() || w.listed {
		updates := append(memoryAttributes(w.in.Room), searchStatus.ValueSet(string(w.verdict.State)))
		if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
			workflow.GetLogger(ctx).Warn("set search attributes", "error", err)
		}
		w.listed = true
	}
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**", w.verdict.State)
	if w.waiting() {
		fmt.Fprintf(&b, " until %s", w.verdict.Until.UTC().Format(time.RFC3339))
	}
	if w.verdict.Record != "" {
		fmt.Fprintf(&b, "\n\nrecord %s, version %d", w.verdict.Record, w.verdict.Version)
	}
	if w.verdict.PolicyVersion != "" {
		fmt.Fprintf(&b, "\n\npolicy %s", w.verdict.PolicyVersion)
	}
	for _, rule := range w.verdict.Rules {
		fmt.Fprintf(&b, "\n- %s", rule.ID)
	}
	if w.carried.Refusals > 0 {
		fmt.Fprintf(&b, "\n\ndecisions refused: %d, the last one because of %s", w.carried.Refusals, w.carried.LastRefusal)
	}
	workflow.SetCurrentDetails(ctx, b.String())
}
