package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/fairlead/fairlead/db"
)

// Why the context of a model call or a tool ended, as context.Cause gives it.
var (
	// errStopping: this worker stops and gives the work to another one.
	errStopping = errors.New("the worker is stopping")
	// errDeadline: the run's deadline has passed.
	errDeadline = errors.New("the run's deadline has passed")
	// errTimeout: the attempt took too long.
	errTimeout = errors.New("the attempt timed out")
)

const (
	heartbeatEvery = time.Second
	// bookkeeping bounds the transaction that records how work ended when the
	// activity itself has no time left.
	bookkeeping = 5 * time.Second
)

// bound derives the context in which outside work runs: it ends with ctx, at
// the deadline, after the timeout (zero is none), and when the worker stops and
// most of its grace has passed. Meanwhile a regular activity sends heartbeats,
// by which Temporal tells it to cancel and notices that a worker died.
func (r *Runs) bound(ctx context.Context, deadline time.Time, timeout time.Duration) (context.Context, context.CancelFunc) {
	work, stop := context.WithDeadlineCause(ctx, deadline, errDeadline)
	stops := []context.CancelFunc{stop}
	if timeout > 0 {
		work, stop = context.WithTimeoutCause(work, timeout, errTimeout)
		stops = append(stops, stop)
	}
	work, giveUp := context.WithCancelCause(work)
	if activity.IsActivity(ctx) {
		go r.watch(ctx, work, giveUp)
	}
	return work, func() {
		giveUp(context.Canceled)
		for _, stop := range stops {
			stop()
		}
	}
}

// boundary derives the context of a write that has begun: neither cancellation
// nor the run's deadline ends it, only this worker's stop after most of its
// grace.
func (r *Runs) boundary(ctx context.Context) (context.Context, context.CancelFunc) {
	work, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	if activity.IsActivity(ctx) {
		go r.watch(ctx, work, giveUp)
	}
	return work, func() { giveUp(context.Canceled) }
}

// watch runs beside work until it ends.
func (r *Runs) watch(ctx, work context.Context, giveUp context.CancelCauseFunc) {
	beat := time.NewTicker(heartbeatEvery)
	defer beat.Stop()
	stopped := activity.GetWorkerStopChannel(ctx)
	var grace <-chan time.Time
	for {
		select {
		case <-work.Done():
			return
		case <-beat.C:
			// Does nothing in a local activity.
			activity.RecordHeartbeat(ctx)
		case <-stopped:
			stopped = nil
			timer := time.NewTimer(r.graceForWork())
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			giveUp(errStopping)
			return
		}
	}
}

// graceForWork leaves a part of the worker's grace for bookkeeping.
func (r *Runs) graceForWork() time.Duration {
	return r.shutdownGrace - min(r.shutdownGrace/3, 3*time.Second)
}

// insist records what has happened outside and cannot be taken back, such as a
// response that was paid for: while the database is unavailable it tries again,
// until ctx ends or this worker's grace is nearly over. fn must be safe to
// repeat after an unknown outcome.
func (r *Runs) insist(ctx context.Context, fn func(context.Context) error) error {
	err := fn(ctx)
	if !errors.Is(err, db.ErrUnavailable) && !keysAway(err) {
		return err
	}
	patient, giveUp := context.WithCancelCause(ctx)
	defer giveUp(context.Canceled)
	if activity.IsActivity(ctx) {
		go r.watch(ctx, patient, giveUp)
	}
	for pause := 20 * time.Millisecond; errors.Is(err, db.ErrUnavailable) || keysAway(err); pause = min(2*pause, time.Second) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			err = fn(ctx)
		case <-patient.Done():
			timer.Stop()
			return err
		}
	}
	return err
}

// aside returns a short-lived context for bookkeeping that must happen although
// ctx has ended.
func aside(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
}
