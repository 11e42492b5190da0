package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
)

const (
	// pollEvery is the time between two looks at the database.
	pollEvery = 200 * time.Millisecond
	// quietFor is how long nothing may happen before the starter looks whether
	// there is a worker at all.
	quietFor = 3 * time.Second
	// patience is how long both Temporal and PostgreSQL may be away before the
	// starter gives up. The run does not.
	patience = time.Minute
)

func (a *app) followCommand() *cobra.Command {
	var o owner
	c := &cobra.Command{
		Use:   "follow RUN_ID",
		Short: "Show a run's steps as they happen, until it ends",
		Args:  oneRun,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if err := a.requireDatabase(); err != nil {
				return err
			}
			if err := a.mayTouch(c.Context(), o, args[0]); err != nil {
				return err
			}
			// The database is enough to follow a run.
			temporal, err := a.openEngine(c.Context(), a.settings)
			if err != nil {
				a.notice("%v", err)
			} else {
				defer temporal.Close()
			}
			return a.follow(c.Context(), a.newView(), temporal, o, args[0], false)
		},
	}
	o.flags(c)
	return c
}

// follow shows a run until it ends and turns its end into an exit code. temporal
// may be nil. fresh says that the run was started a moment ago, so that it may
// not be in the database yet.
func (a *app) follow(ctx context.Context, v view, temporal engine, o owner, runID string, fresh bool) error {
	f := &follower{app: a, view: v, engine: temporal, scope: o.scope(), runID: runID, fresh: fresh}
	database, err := a.openReader(ctx, a.settings)
	if err != nil {
		return err
	}
	defer database.Close()
	f.reader = database
	end, err := f.follow(ctx)
	if ctx.Err() != nil && err != nil {
		if a.canceling {
			a.notice("\nStopped waiting. The cancellation was requested and goes on: starter show %s --tenant %s.", runID, o.tenant)
			return &exit{code: exitInterrupted}
		}
		a.notice("\nStopped following. The run goes on: starter follow %s --tenant %s, or starter cancel %s to end it.", runID, o.tenant, runID)
		return &exit{code: exitInterrupted}
	}
	if err != nil {
		return a.explain(err, runID, o.tenant)
	}
	v.end(end)
	switch status, _, _ := end.outcome(); status {
	case agent.StatusSucceeded:
		return nil
	case agent.StatusCanceled:
		return &exit{code: exitCanceled}
	}
	return &exit{code: exitRunFailed}
}

// follower reads one run again and again and shows what is new.
type follower struct {
	*app
	view   view
	reader reader
	engine engine // nil without Temporal
	scope  agent.Scope
	runID  string
	fresh  bool

	// step is the newest step seen, from which the next read begins; seq the
	// newest transition shown.
	step, seq int
	attempts  map[attemptKey]bool
	calls     map[string]bool
	// plans are the statuses shown, refusals the places of those shown.
	plans    map[planKey]db.PlanStatus
	refusals map[int]bool

	lastNews   time.Time
	lastReach  time.Time
	lastState  time.Time
	shown      agent.RunView
	databaseUp bool
	noticed    map[string]bool
}

type attemptKey struct{ step, number int }

type planKey struct {
	callID   string
	revision int
}

// workflowEnd is what Temporal says of the end.
type workflowEnd struct {
	result agent.RunResult
	err    error
}

func (f *follower) follow(ctx context.Context) (ending, error) {
	f.attempts, f.calls, f.noticed = map[attemptKey]bool{}, map[string]bool{}, map[string]bool{}
	f.plans, f.refusals = map[planKey]db.PlanStatus{}, map[int]bool{}
	f.lastNews, f.lastReach = time.Now(), time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := f.awaitWorkflow(ctx)
	ticker := time.NewTicker(orElse(f.pollEvery, pollEvery))
	defer ticker.Stop()
	for {
		end, done, err := f.look(ctx, nil)
		if done || err != nil {
			return end, err
		}
		select {
		case <-ctx.Done():
			return ending{}, ctx.Err()
		case ended := <-ends:
			return f.finish(ctx, ended)
		case <-ticker.C:
		}
	}
}

// awaitWorkflow gives the workflow's end, once. A failed connection is no end:
// the question is asked again.
func (f *follower) awaitWorkflow(ctx context.Context) <-chan workflowEnd {
	if f.engine == nil {
		return nil
	}
	ends := make(chan workflowEnd, 1)
	go func() {
		for ctx.Err() == nil {
			result, err := f.engine.Result(ctx, agent.WorkflowID(f.scope.Tenant, f.runID))
			var failed *workflowFailed
			if err == nil || errors.As(err, &failed) || errors.Is(err, errUnknownRun) {
				ends <- workflowEnd{result, err}
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return ends
}

// look reads once. done is true when the database says that the run has ended.
func (f *follower) look(ctx context.Context, ended *workflowEnd) (ending, bool, error) {
	reading, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	report, err := f.reader.Progress(reading, f.scope, f.runID, f.step)
	var schema *db.SchemaError
	switch {
	case err == nil:
		f.reached()
		if !f.databaseUp {
			f.databaseUp = true
			delete(f.noticed, "database")
		}
		f.show(ctx, report)
		if report.Run.Status.Terminal() {
			return f.report(ctx, report)
		}
		return ending{}, false, f.checkWorkers(ctx)
	case ctx.Err() != nil:
		return ending{}, false, ctx.Err()
	case errors.Is(err, db.ErrNotFound):
		f.reached()
		if !f.fresh && f.engine == nil {
			return ending{}, false, err
		}
		return ending{}, false, f.checkWorkers(ctx)
	case errors.Is(err, db.ErrUnavailable), errors.As(err, &schema), errors.Is(err, context.DeadlineExceeded):
		f.databaseUp = false
		if f.engine == nil || ended != nil {
			return ending{}, false, err
		}
		f.once("database", "PostgreSQL cannot be used (%v): showing the status that Temporal knows.", err)
		return ending{}, false, f.lookAtState(ctx)
	}
	return ending{}, false, err
}

// report reads the whole run, answer included, for the end.
func (f *follower) report(ctx context.Context, last db.RunReport) (ending, bool, error) {
	reading, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	full, err := f.reader.ShowRun(reading, f.scope, f.runID)
	if err != nil {
		if ctx.Err() != nil {
			return ending{}, false, ctx.Err()
		}
		if errors.Is(err, db.ErrNoVault) {
			f.notice("The answer is encrypted: starter show %s --content shows it to who has %s.", f.runID, config.Variable("encryption.key"))
		} else {
			f.notice("The answer could not be read (%v); try starter show %s --content.", err, f.runID)
		}
		full = last
	}
	return ending{tenant: f.scope.Tenant, runID: f.runID, report: &full}, true, nil
}

// finish is called when the workflow has ended. What the database recorded is
// preferred: it has the answer.
func (f *follower) finish(ctx context.Context, ended workflowEnd) (ending, error) {
	end, done, err := f.look(ctx, &ended)
	if done {
		return end, nil
	}
	if ctx.Err() != nil {
		return ending{}, ctx.Err()
	}
	if ended.err == nil || canceledWith(ended.err, &ended.result) {
		if err == nil {
			f.notice("The workflow has ended, but the database does not know it yet.")
		} else {
			f.notice("The answer is in the database, which cannot be read now; try starter show %s --content later.", f.runID)
		}
		return ending{tenant: f.scope.Tenant, runID: f.runID, result: &ended.result}, nil
	}
	if errors.Is(ended.err, errUnknownRun) {
		// Temporal forgets workflows after its retention; the database does not.
		if err == nil && f.databaseUp {
			return ending{}, &exit{exitRunFailed, "Temporal knows no workflow of this run any more, and the database says that it has not ended: it was deleted from outside"}
		}
		return ending{}, usagef("there is no run %s in tenant %s; see starter list --tenant %s", f.runID, f.scope.Tenant, f.scope.Tenant)
	}
	return ending{}, refused(ended.err)
}

// canceledWith reports whether a workflow was canceled and has said how it
// ended.
func canceledWith(err error, result *agent.RunResult) bool {
	var canceled *temporal.CanceledError
	return errors.As(err, &canceled) && canceled.HasDetails() && canceled.Details(result) == nil
}

// refused explains a workflow that failed: the request never became a run, or
// somebody ended it from outside.
func refused(err error) error {
	var (
		application *temporal.ApplicationError
		terminated  *temporal.TerminatedError
		canceled    *temporal.CanceledError
		timedOut    *temporal.TimeoutError
	)
	switch {
	case errors.As(err, &application):
		if agent.IsRefusal(application.Type()) {
			return &exit{exitUsage, application.Message()}
		}
		return &exit{exitRunFailed, "the workflow failed: " + application.Message()}
	case errors.As(err, &terminated):
		return &exit{exitRunFailed, "the workflow was terminated from outside before the run could record its end"}
	case errors.As(err, &canceled):
		return &exit{exitCanceled, "the workflow was canceled before the run began"}
	case errors.As(err, &timedOut):
		return &exit{exitRunFailed, "the workflow exceeded the time that Temporal gave it"}
	}
	return fmt.Errorf("the workflow failed: %w", err)
}

// show prints what the report has and was not shown yet.
func (f *follower) show(ctx context.Context, report db.RunReport) {
	f.showTransitions(report.Transitions, false)
	for _, step := range report.Steps {
		f.step = max(f.step, step.Step)
		for _, t := range step.Attempts {
			key := attemptKey{t.Step, t.Number}
			if t.Status != db.AttemptStarted && !f.attempts[key] {
				f.attempts[key] = true
				f.news()
				f.view.attempt(f.runID, t)
			}
		}
		for _, c := range step.Calls {
			f.showDecisions(report, c.ID)
			f.showCall(ctx, report.Run.Scope, c)
		}
	}
	// Approvals that came for no call of the run.
	f.showRefusals(report, func(db.Refusal) bool { return true })
	// The end comes after what led to it.
	f.showTransitions(report.Transitions, true)
}

// showDecisions shows what persons said about a call.
func (f *follower) showDecisions(report db.RunReport, callID string) {
	f.showRefusals(report, func(r db.Refusal) bool { return r.CallID == callID })
	for _, p := range report.Plans {
		key := planKey{p.CallID, p.Revision}
		if p.CallID == callID && f.plans[key] != p.Status {
			f.plans[key] = p.Status
			f.news()
			f.view.plan(f.scope.Tenant, p)
		}
	}
}

func (f *follower) showRefusals(report db.RunReport, match func(db.Refusal) bool) {
	for i, r := range report.Refusals {
		if !f.refusals[i] && match(r) {
			f.refusals[i] = true
			f.news()
			f.view.refusal(f.runID, r)
		}
	}
}

func (f *follower) showTransitions(transitions []db.Transition, ends bool) {
	for _, t := range transitions {
		if t.Seq > f.seq && (ends || !t.To.Terminal()) {
			f.seq = t.Seq
			f.news()
			f.view.transition(f.runID, t)
		}
	}
}

func (f *follower) showCall(ctx context.Context, scope agent.Scope, c db.CallReport) {
	if f.calls[c.ID] || c.Status == db.CallProposed || c.Status == db.CallRunning {
		return
	}
	f.calls[c.ID] = true
	f.news()
	f.view.call(f.runID, c, f.arguments(ctx, scope, c.ID))
}

// arguments are shown to the run's owner. A call without them is still a call.
func (f *follower) arguments(ctx context.Context, scope agent.Scope, callID string) string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, call, err := f.reader.ToolCall(ctx, scope, f.runID, callID)
	if err != nil {
		return ""
	}
	return call.Arguments
}

// lookAtState shows what the workflow says of itself, at most once a second.
func (f *follower) lookAtState(ctx context.Context) error {
	if time.Since(f.lastState) < time.Second {
		return nil
	}
	f.lastState = time.Now()
	state, err := f.engine.State(ctx, agent.WorkflowID(f.scope.Tenant, f.runID))
	if err != nil {
		if time.Since(f.lastReach) > patience {
			return &exit{exitUnreachable, fmt.Sprintf("neither Temporal nor PostgreSQL answered for %s; the run goes on by itself, follow it again with starter follow %s", patience, f.runID)}
		}
		return f.checkWorkers(ctx)
	}
	f.reached()
	if state.Step != f.shown.Step || state.Status != f.shown.Status || state.WaitingFor != f.shown.WaitingFor {
		f.shown = state
		f.news()
		f.view.state(state)
	}
	return nil
}

// checkWorkers says so when nothing happens because there is nobody to do it.
func (f *follower) checkWorkers(ctx context.Context) error {
	if f.engine == nil || time.Since(f.lastNews) < orElse(f.quietFor, quietFor) {
		return nil
	}
	f.lastNews = time.Now()
	// A failed question says nothing about workers.
	if served, err := f.engine.Served(ctx); err == nil && !served {
		f.once("worker", "No worker takes work from task queue %s (namespace %s at %s). The run waits until one is started: worker run.",
			f.settings.TaskQueue, f.settings.Temporal.Namespace, f.settings.Temporal.Address)
	}
	return nil
}

func (f *follower) news() {
	f.lastNews = time.Now()
	delete(f.noticed, "worker")
}

func (f *follower) reached() { f.lastReach = time.Now() }

// once gives a notice, and not again until the cause has gone.
func (f *follower) once(topic, format string, args ...any) {
	if !f.noticed[topic] {
		f.noticed[topic] = true
		f.notice(format, args...)
	}
}

func orElse(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}
