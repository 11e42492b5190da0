package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/agent"
)

const (
	// slice is how long work that sleeps in virtual time is left alone: as in
	// production, a death or a cancellation is noticed by heartbeats.
	slice = 5 * time.Second
	// maxFailures is how often one piece of work may fail in a row: virtual time
	// would let it fail for ever.
	maxFailures = 200
)

// flight is an activity at work. It outlives the attempt by which Temporal
// started it while it sleeps in virtual time.
type flight struct {
	worker *worker
	name   string
	ctx    context.Context
	cancel context.CancelFunc
	// deadline is the run's, if the activity was told.
	deadline time.Time
	// parked says until when the flight sleeps; resume ends a part of it.
	parked chan time.Time
	resume chan struct{}
	done   chan struct{}
	out    []reflect.Value
}

// activity makes the function that Temporal calls for an activity.
func (r *run) activity(name string, signature reflect.Type) any {
	return reflect.MakeFunc(signature, func(in []reflect.Value) []reflect.Value {
		ctx, _ := in[0].Interface().(context.Context)
		out, err := r.attempt(ctx, name, in)
		if err == nil {
			return out
		}
		out = make([]reflect.Value, signature.NumOut())
		for i := range out {
			out[i] = reflect.Zero(signature.Out(i))
		}
		out[len(out)-1] = reflect.ValueOf(&err).Elem()
		return out
	}).Interface()
}

// attempt is one attempt of Temporal at an activity: it begins a flight on the
// current worker, or comes back to one that slept.
func (r *run) attempt(ctx context.Context, name string, in []reflect.Value) ([]reflect.Value, error) {
	info := activity.GetInfo(ctx)
	arguments, err := json.Marshal(in[1].Interface())
	if err != nil {
		return nil, temporal.NewNonRetryableApplicationError("agenttest: "+err.Error(), "", nil)
	}
	key := name + string(arguments)
	if name == agent.ActivityEndRun {
		r.stopRest()
	}
	w := r.current()
	f := w.fly(ctx, key, name, in)
	if f == nil {
		return nil, r.lost(info, name)
	}
	r.attach(info.ActivityID, f)
	stop := context.AfterFunc(ctx, f.cancel)
	defer stop()
	select {
	case <-f.done:
	case until := <-f.parked:
		return nil, temporal.NewApplicationErrorWithOptions("agenttest: at work", "agenttest.Sleep", temporal.ApplicationErrorOptions{
			NextRetryDelay: max(min(until.Sub(r.now()), slice), 1),
		})
	case <-w.dead:
	}
	if w.isDead() != nil {
		r.note("%s was lost with its worker", name)
		return nil, r.lost(info, name)
	}
	w.land(key)
	failure, _ := f.out[len(f.out)-1].Interface().(error)
	return f.out, r.judge(info, key, name, failure, f)
}

// lost is how Temporal hears of the death of a worker.
func (r *run) lost(info activity.Info, name string) error {
	if r.over() {
		return temporal.NewNonRetryableApplicationError("agenttest: the run is over", "", nil)
	}
	if info.IsLocalActivity {
		// The workflow task dies with it, and the next worker does both again.
		return errors.New("agenttest: the worker died")
	}
	if r.lastAttempt(info.ActivityID) {
		return temporal.NewNonRetryableApplicationError("agenttest: "+name+" was lost with its worker in each of its attempts", "", nil)
	}
	return temporal.NewHeartbeatTimeoutError()
}

// judge returns the error that Temporal is told.
func (r *run) judge(info activity.Info, key, name string, failure error, f *flight) error {
	if failure == nil {
		r.mu.Lock()
		delete(r.failures, key)
		r.mu.Unlock()
		return nil
	}
	r.note("%s failed: %v", name, failure)
	if f.ctx.Err() != nil && errors.Is(failure, context.Canceled) {
		return temporal.NewCanceledError()
	}
	r.mu.Lock()
	r.failures[key]++
	n := r.failures[key]
	r.mu.Unlock()
	if n >= maxFailures || r.lastAttempt(info.ActivityID) {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf("agenttest: %s failed %d times in a row, lastly: %v", name, n, failure), "", nil)
	}
	return failure
}

// fly returns the flight for a key, which it begins unless it is there; nil if
// the worker is dead.
func (w *worker) fly(ctx context.Context, key, name string, in []reflect.Value) *flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isDead() != nil {
		return nil
	}
	if f := w.flights[key]; f != nil {
		select {
		case f.resume <- struct{}{}:
		default:
		}
		return f
	}
	f := &flight{
		worker: w, name: name, deadline: deadlineOf(in[1].Interface()), parked: make(chan time.Time), resume: make(chan struct{}, 1), done: make(chan struct{}),
	}
	// Temporal ends an attempt's context with the attempt.
	f.ctx, f.cancel = context.WithCancel(context.WithValue(context.WithoutCancel(ctx), flightKey{}, f))
	w.flights[key] = f
	w.run.flying.Add(1)
	go func() {
		defer w.run.flying.Done()
		defer close(f.done)
		f.work(in)
	}()
	return f
}

func (w *worker) land(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.flights[key]; f != nil {
		f.cancel()
		delete(w.flights, key)
	}
}

// deadlineOf returns the deadline that an activity is told.
func deadlineOf(input any) time.Time {
	switch in := input.(type) {
	case agent.NextActionInput:
		return in.Deadline
	case agent.ReadToolInput:
		return in.Deadline
	}
	return time.Time{}
}

func (f *flight) work(in []reflect.Value) {
	w, r, method := f.worker, f.worker.run, f.worker.methods[f.name]
	fail := func(err error) {
		f.out = make([]reflect.Value, method.Type().NumOut())
		for i := range f.out {
			f.out[i] = reflect.Zero(method.Type().Out(i))
		}
		f.out[len(f.out)-1] = reflect.ValueOf(&err).Elem()
	}
	// For a goroutine that ends before it is through.
	fail(errDead)
	if _, err := r.fire(f.ctx, w, BeforeActivity(f.name)); err != nil {
		fail(err)
		return
	}
	if w.isDead() != nil {
		return
	}
	arguments := append([]reflect.Value{reflect.ValueOf(f.ctx)}, in[1:]...)
	out := method.Call(arguments)
	if err, _ := out[len(out)-1].Interface().(error); err == nil && w.isDead() == nil {
		r.note("%s%s", f.name, brief(out[0].Interface()))
		// Time that passes now is the engine's.
		_, _ = r.fire(f.ctx, w, AfterActivity(f.name))
		if w.isDead() == nil {
			r.delivered(out[0].Interface())
		}
	}
	f.out = out
}

// delivered looks at what the workflow is about to hear.
func (r *run) delivered(result any) {
	switch out := result.(type) {
	case agent.PreparedWrite:
		if out.Plan != nil {
			r.after(ThinkTime, func() { r.reach(PlanWaits(), "") })
		}
	case agent.MemoryVerdict:
		r.waits(out)
	case agent.SettledMemory:
		if out.Refused == "" {
			r.waits(out.MemoryVerdict)
		}
	}
}

// waits has a person look at a memory that waits for one.
func (r *run) waits(v agent.MemoryVerdict) {
	if waits(v.State) {
		r.after(ThinkTime, func() { r.reach(MemoryWaits(), v.ID) })
	}
}

// stopRest waits until canceled work has stopped, so that the end of the run is
// recorded after it. In production the engine waits for queued activities; local
// ones are raced by EndRun, and a test should not depend on who wins.
func (r *run) stopRest() {
	w := r.current()
	w.mu.Lock()
	var open []*flight
	for _, f := range w.flights {
		if f.name != agent.ActivityEndRun {
			f.cancel()
			open = append(open, f)
		}
	}
	w.mu.Unlock()
	limit := time.NewTimer(3 * time.Second)
	defer limit.Stop()
	for _, f := range open {
		select {
		case <-f.done:
		case <-limit.C:
			return
		case <-w.dead:
			return
		case <-r.closed:
			return
		}
	}
}

// attach lets a cancellation that was asked for, or will be, reach the flight.
func (r *run) attach(activityID string, f *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attached[activityID] = f
	if r.canceled[activityID] {
		f.cancel()
	}
}

type (
	flightKey struct{}
	limitKey  struct{}
)

// toolLimit says when a tool has had its time: its own, or the run's.
func toolLimit(ctx context.Context, now time.Time, timeout time.Duration) context.Context {
	limit := now.Add(timeout)
	if f, ok := ctx.Value(flightKey{}).(*flight); ok && !f.deadline.IsZero() && f.deadline.Before(limit) {
		limit = f.deadline
	}
	return context.WithValue(ctx, limitKey{}, limit)
}

// modelLimit is toolLimit for a model. One that has not answered when the time
// of the run is up sleeps on, until the engine gives it up.
func modelLimit(ctx context.Context, now time.Time, timeout time.Duration) context.Context {
	limit := now.Add(timeout)
	if f, ok := ctx.Value(flightKey{}).(*flight); ok && !f.deadline.IsZero() && !limit.Before(f.deadline) {
		return ctx
	}
	return context.WithValue(ctx, limitKey{}, limit)
}

// Sleep lets virtual time pass: for tools and models of a test that are slow.
// ctx is the one that they were given. It returns context.DeadlineExceeded when
// the time of the tool, the model or the run is up before, and ctx.Err() when
// ctx ends. Outside of a Suite it sleeps in real time.
func Sleep(ctx context.Context, d time.Duration) error {
	f, ok := ctx.Value(flightKey{}).(*flight)
	if !ok {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	until := f.worker.run.now().Add(d)
	limit, limited := ctx.Value(limitKey{}).(time.Time)
	if limited = limited && limit.Before(until); limited {
		until = limit
	}
	if err := f.sleep(ctx, until); err != nil {
		return err
	}
	if limited {
		return context.DeadlineExceeded
	}
	return nil
}

// sleep hands the attempt back to Temporal, which comes again later: while an
// activity is at work its test environment skips no time.
func (f *flight) sleep(ctx context.Context, until time.Time) error {
	for f.worker.run.now().Before(until) {
		for _, step := range []func() error{
			func() error {
				select {
				case f.parked <- until:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				case <-f.worker.dead:
					return errDead
				}
			},
			func() error {
				select {
				case <-f.resume:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				case <-f.worker.dead:
					return errDead
				}
			},
		} {
			if err := step(); err != nil {
				return err
			}
		}
	}
	return nil
}
