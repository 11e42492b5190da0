package host

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
)

// reconcileCatchUp is how late a round may begin after an outage of the server;
// the next one does the same work.
const reconcileCatchUp = time.Minute

// reconcileLongest ends a round that does not end by itself: while it is open the
// schedule starts no other.
const reconcileLongest = 6 * time.Hour

// keepMemory sees to it that the schedule of ReconcileMemory is there, by which
// memory is looked through for what is left over or due (ERASE-2), and starts
// a re-index if vectors of another embedder are to be built. It tries until both
// are done or ctx ends.
func (h *host) keepMemory(ctx context.Context, connection client.Client) {
	var retry backoff
	failed := ""
	for {
		err := ensureSchedule(ctx, connection.ScheduleClient(), h.settings.TaskQueue, time.Duration(h.settings.Memory.ReconcileEvery))
		if err == nil {
			err = h.startReindex(ctx, connection)
		}
		var (
			unknown *serviceerror.Unimplemented
			denied  *serviceerror.PermissionDenied
		)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case errors.As(err, &unknown), errors.As(err, &denied):
			h.log.Warn("the server lets this worker keep no schedule: start ReconcileMemory by other means, such as starter memory reconcile",
				zap.String("reason", reason(err)))
			return
		}
		if text := reason(err); text != failed {
			failed = text
			h.log.Warn("the schedule for memory cannot be kept yet", zap.String("reason", text))
		}
		if !retry.wait(ctx) {
			return
		}
	}
}

// scheduleID is a task queue's own: two deployments may share a namespace.
func scheduleID(taskQueue string) string {
	if taskQueue == agent.TaskQueue {
		return agent.ReconcileScheduleID
	}
	return agent.ReconcileScheduleID + "~" + taskQueue
}

// ensureSchedule creates the schedule, or brings one up to date that other
// settings or an earlier version made. Somebody who paused it finds it paused. With
// every zero there is none.
func ensureSchedule(ctx context.Context, schedules client.ScheduleClient, taskQueue string, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	id := scheduleID(taskQueue)
	if every == 0 {
		var absent *serviceerror.NotFound
		if err := schedules.GetHandle(ctx, id).Delete(ctx); err != nil && !errors.As(err, &absent) {
			return err
		}
		return nil
	}
	spec := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}}
	// Without arguments: all tenants, and nothing that would need a key.
	action := &client.ScheduleWorkflowAction{
		ID: id, Workflow: agent.WorkflowReconcileMemory, TaskQueue: taskQueue, WorkflowRunTimeout: reconcileLongest,
	}
	_, err := schedules.Create(ctx, client.ScheduleOptions{
		ID: id, Spec: spec, Action: action, Overlap: enums.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: reconcileCatchUp,
	})
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return err
	}
	return schedules.GetHandle(ctx, id).Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			found := in.Description.Schedule
			if current(found, every) {
				return nil, temporal.ErrSkipScheduleUpdate
			}
			found.Spec, found.Action = &spec, action
			return &client.ScheduleUpdate{Schedule: &found}, nil
		},
	})
}

// current reports whether a schedule is as these settings make it.
func current(s client.Schedule, every time.Duration) bool {
	action, ok := s.Action.(*client.ScheduleWorkflowAction)
	return ok && action.Workflow == agent.WorkflowReconcileMemory && len(action.Args) == 0 && action.WorkflowRunTimeout == reconcileLongest &&
		s.Spec != nil && len(s.Spec.Intervals) == 1 && s.Spec.Intervals[0] == client.ScheduleIntervalSpec{Every: every}
}

// startReindex starts ReindexMemory if the workers' embedder is another one than
// the one whose vectors answer recalls.
func (h *host) startReindex(ctx context.Context, connection client.Client) error {
	building, err := h.runs.Building(ctx)
	if err != nil || building == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err = connection.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: agent.ReindexWorkflowID, TaskQueue: h.settings.TaskQueue,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, agent.WorkflowReindexMemory, agent.ReindexInput{Embedder: building})
	if err == nil {
		h.log.Info("the vectors of memory are computed anew, with another embedder; the old ones serve meanwhile", zap.String("embedder", building))
	}
	return err
}
