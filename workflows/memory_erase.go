package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
)

const (
	// erasePatience bounds one step of an erasure. What a step has marked is
	// obeyed by reads at once, and ReconcileMemory purges what is left.
	erasePatience = 24 * time.Hour
	// blockedPatience is how long an erasure waits for what stands in its way,
	// such as a run that waits for a person.
	blockedPatience = 30 * 24 * time.Hour
	// firstBlockedPause doubles up to maxBlockedPause.
	firstBlockedPause = 5 * time.Second
	maxBlockedPause   = 10 * time.Minute
	// maxErasureSteps is how many steps one history holds.
	maxErasureSteps = 500
)

// ErasureCarried is what an erasure takes along into its next history. Callers
// never send it.
type ErasureCarried struct {
	// BlockedSince is zero while nothing stands in the way.
	BlockedSince time.Time     `json:"blocked_since,omitzero"`
	Pause        time.Duration `json:"pause_ns,omitempty"`
}

// ForgetMemory deletes one record, or everything that is remembered of a user:
// tombstones first, which reads obey at once, and then all that was derived
// (ERASE-2). carried is nil except in a continuation.
func ForgetMemory(ctx workflow.Context, in agent.ForgetInput, carried *ErasureCarried) (agent.ErasureReceipt, error) {
	scope := in.Room.Scope
	if !agent.ValidID(in.ID) || !agent.ValidID(scope.Tenant) || !agent.ValidID(scope.User) || !agent.ValidID(scope.Environment) || in.By == "" {
		return agent.ErasureReceipt{}, temporal.NewNonRetryableApplicationError(
			"forget: id, tenant, user and environment must be identifiers, and by must not be empty", agent.ErrorInvalidRequest, nil)
	}
	return erase(ctx, agent.WorkflowForgetMemory, agent.ActivityForget, in, carried)
}

// EraseSubject erases a user for good: all memory, and the keys of everything
// else. It waits for runs that are under way. carried is nil except in a
// continuation.
func EraseSubject(ctx workflow.Context, in agent.EraseInput, carried *ErasureCarried) (agent.ErasureReceipt, error) {
	if !agent.ValidID(in.ID) || !agent.ValidID(in.Tenant) || !agent.ValidID(in.User) || in.By == "" {
		return agent.ErasureReceipt{}, temporal.NewNonRetryableApplicationError(
			"erase: id, tenant and user must be identifiers, and by must not be empty", agent.ErrorInvalidRequest, nil)
	}
	return erase(ctx, agent.WorkflowEraseSubject, agent.ActivityErase, in, carried)
}

// erase repeats an activity until nothing is left. The receipt of the last step
// counts all of them.
func erase(ctx workflow.Context, name, activity string, in any, carried *ErasureCarried) (agent.ErasureReceipt, error) {
	c := ErasureCarried{}
	if carried != nil {
		c = *carried
	}
	for range maxErasureSteps {
		var step agent.ErasureStep
		if err := workflow.ExecuteActivity(memoryActivity(ctx, erasePatience, "erase"), activity, in).Get(ctx, &step); err != nil {
			return step.Receipt, err
		}
		describeErasure(ctx, step)
		switch {
		case step.Done:
			return step.Receipt, nil
		case step.Blocked == "":
			c = ErasureCarried{}
			continue
		}
		if err := c.wait(ctx, step.Blocked); err != nil {
			return step.Receipt, err
		}
	}
	return agent.ErasureReceipt{}, workflow.NewContinueAsNewError(ctx, name, in, &c)
}

// wait waits for what stands in the way, longer each time.
func (c *ErasureCarried) wait(ctx workflow.Context, blocked string) error {
	now := workflow.Now(ctx)
	if c.BlockedSince.IsZero() {
		c.BlockedSince, c.Pause = now, firstBlockedPause
	}
	if now.Sub(c.BlockedSince) >= blockedPatience {
		return temporal.NewNonRetryableApplicationError("the erasure was blocked for too long by "+blocked, agent.ErrorErasureBlocked, nil)
	}
	err := workflow.NewTimerWithOptions(ctx, c.Pause, workflow.TimerOptions{Summary: "blocked: " + blocked}).Get(ctx, nil)
	c.Pause = min(2*c.Pause, maxBlockedPause)
	return err
}

func describeErasure(ctx workflow.Context, step agent.ErasureStep) {
	state := "under way"
	switch {
	case step.Done:
		state = "done"
	case step.Blocked != "":
		state = "blocked by " + step.Blocked
	}
	receipt := step.Receipt
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("**%s**\n\n- records %d (versions %d)\n- candidates %d\n- vectors %d\n- keywords %d\n- keys destroyed: %t",
		state, receipt.Records, receipt.Versions, receipt.Candidates, receipt.Vectors, receipt.Keywords, receipt.KeysDestroyed))
}
