package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

func (a *app) cancelCommand() *cobra.Command {
	var o owner
	var noWait bool
	c := &cobra.Command{
		Use:   "cancel RUN_ID",
		Short: "Stop a run: what has not begun does not begin",
		Long: "Stops a run. What has not begun does not begin; what was done is not undone.\n" +
			"Waits for the end and exits 0 if the run ended as canceled.",
		Args: oneRun,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.cancel(c, o, args[0], noWait)
		},
	}
	o.flags(c)
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the end")
	return c
}

func (a *app) cancel(c *cobra.Command, o owner, runID string, noWait bool) error {
	ctx := c.Context()
	if !noWait {
		// What one waits for is in the database.
		if err := a.requireDatabase(); err != nil {
			return err
		}
	}
	if err := a.mayTouch(ctx, o, runID); err != nil {
		return err
	}
	temporal, err := a.openEngine(ctx, a.settings)
	if err != nil {
		return err
	}
	defer temporal.Close()
	err = temporal.Cancel(ctx, agent.WorkflowID(o.tenant, runID))
	switch {
	case errors.Is(err, errUnknownRun):
		return usagef("no run %s is going on: it has ended already, or there never was one; see starter show %s --tenant %s", runID, runID, o.tenant)
	case err != nil && unreachable(err):
		return &exit{exitUnreachable, "Temporal did not answer in time; asking again is safe"}
	case err != nil:
		return fmt.Errorf("cancel the run: %w", err)
	}
	if noWait {
		a.notice("Cancellation of run %s was requested.", runID)
		return nil
	}
	a.canceling = true
	err = a.follow(ctx, endOnly{a.newView()}, temporal, o, runID, true)
	var ended *exit
	switch {
	case errors.As(err, &ended) && ended.code == exitCanceled:
		return nil
	case err == nil:
		// It was faster than the cancellation.
		return &exit{exitRunFailed, "the run had succeeded before the cancellation reached it"}
	}
	return err
}

// endOnly leaves the steps out and shows the end.
type endOnly struct{ view }

func (endOnly) transition(string, db.Transition)   {}
func (endOnly) plan(string, db.WritePlan)          {}
func (endOnly) refusal(string, db.Refusal)         {}
func (endOnly) attempt(string, db.Attempt)         {}
func (endOnly) call(string, db.CallReport, string) {}
func (endOnly) state(agent.RunView)                {}

func (e endOnly) end(end ending) {
	// The answer of a run that one wanted to stop is not what was asked for.
	if end.report != nil {
		report := *end.report
		report.Answer = ""
		end.report = &report
	}
	e.view.end(end)
}
