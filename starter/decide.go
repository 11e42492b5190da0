package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
)

const (
	// outcomePatience is how long approve and decline wait for the run's answer,
	// and approve then for the write.
	outcomePatience = 30 * time.Second
	// minPlanDigits of a plan's hash are enough to know it again.
	minPlanDigits = 12
)

// decideFlags are the flags of approve and decline.
type decideFlags struct {
	person
	call   string
	plan   string
	yes    bool
	noWait bool
}

func (a *app) decideCommand(decision approval.Decision) *cobra.Command {
	var f decideFlags
	effect := "the write is performed exactly as shown"
	if decision == approval.Decline {
		effect = "the write is not performed, and the model is told that a person declined it"
	}
	c := &cobra.Command{
		Use:   string(decision) + " RUN_ID --user YOU",
		Short: strings.ToUpper(string(decision[:1])) + string(decision[1:]) + " the write that a run waits with",
		Long: "Shows the plan that the run waits with and asks. After a yes " + effect + ".\n" +
			"Without a terminal, --yes answers, and --plan makes sure that it is the plan you saw.\n\n" +
			"Exits 0 if the decision was accepted, 1 if it was refused, 3 if nobody answered in time.\n" +
			"The decision is signed with FAIRLEAD_APPROVAL_KEY: who holds the key is believed to be --user.",
		Args: oneRun,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.decide(c.Context(), decision, f, args[0])
		},
	}
	f.flags(c, "approver:")
	c.Flags().StringVar(&f.call, "call", "", "only if it is about this call, such as 2.0")
	c.Flags().StringVar(&f.plan, "plan", "", fmt.Sprintf("only if the plan has this hash; its first %d digits are enough", minPlanDigits))
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&f.noWait, "no-wait", false, "do not wait for what becomes of the decision")
	return c
}

func (f *decideFlags) check() error {
	if err := f.person.check(); err != nil {
		return err
	}
	if f.plan != "" && (len(f.plan) < minPlanDigits || len(f.plan) > 64 || strings.Trim(f.plan, "0123456789abcdef") != "") {
		return usagef("--plan must be %d to 64 lowercase hexadecimal digits of the plan's hash", minPlanDigits)
	}
	return nil
}

func (a *app) decide(ctx context.Context, decision approval.Decision, f decideFlags, runID string) error {
	if a.settings.Approval.Key == "" {
		return a.explainDecision(approval.ErrNoKey, f.person, runID)
	}
	if (a.json || !a.inTerminal) && !f.yes {
		return usagef("nobody can be asked here: look at the plan with starter pending %s, then give --yes, and --plan with its hash to be sure that it is the same", runID)
	}
	o, err := a.office(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	plan, err := a.findPlan(ctx, o, f, runID)
	if err != nil {
		return err
	}
	// Who has decided should not hear then that it cannot be sent.
	temporal, err := a.openEngine(ctx, a.settings)
	if err != nil {
		return err
	}
	defer temporal.Close()
	if !a.json {
		a.printPlan(plan)
		fmt.Fprintln(a.out)
	}
	if !f.yes {
		question := strings.ToUpper(string(decision[:1])) + string(decision[1:]) + "? [y/N] "
		switch answer, err := a.ask(ctx, question); {
		case err != nil:
			a.notice("\nNothing was sent.")
			return err
		case !yes(answer):
			return &exit{exitRunFailed, "nothing was sent; the run waits on"}
		}
	}
	d := decider{app: a, office: o, engine: temporal, person: f.person, plan: plan, decision: decision}
	if err := d.send(ctx); err != nil {
		return err
	}
	if f.noWait {
		return d.print(approval.Outcome{Standing: approval.Waiting, Plan: db.PlanPending})
	}
	return d.await(ctx)
}

// findPlan finds the plan that the run waits with, as the flags want it.
func (a *app) findPlan(ctx context.Context, o office, f decideFlags, runID string) (approval.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	found, err := o.Pending(ctx, f.approver(), approval.Filter{RunID: runID})
	switch {
	case err != nil:
		return approval.Plan{}, a.explainDecision(err, f.person, runID)
	case len(found.Damaged) > 0:
		return approval.Plan{}, a.explainDecision(damaged(found), f.person, runID)
	case len(found.Plans) == 0 && found.Forbidden > 0:
		return approval.Plan{}, &exit{exitRunFailed, fmt.Sprintf("the policies do not let user %s decide about the write of run %s; ask one who may", f.user, runID)}
	case len(found.Plans) == 0:
		return approval.Plan{}, usagef("run %s of tenant %s waits for no decision now; see starter show %s --tenant %s", runID, f.tenant, runID, f.tenant)
	}
	plan := found.Plans[0]
	switch {
	case f.call != "" && plan.CallID != f.call:
		return approval.Plan{}, usagef("run %s waits with call %s, not with call %s", runID, plan.CallID, f.call)
	case !strings.HasPrefix(plan.Hash, f.plan):
		return approval.Plan{}, &exit{exitRunFailed, fmt.Sprintf("the plan is not the one that --plan names: it has changed since; look at it with starter pending %s --tenant %s --user %s", runID, f.tenant, f.user)}
	}
	return plan, nil
}

// decider takes one decision to its run.
type decider struct {
	*app
	office   office
	engine   engine
	person   person
	plan     approval.Plan
	decision approval.Decision
	token    approval.Token
}

func (d *decider) send(ctx context.Context) error {
	sign := d.office.Approve
	if d.decision == approval.Decline {
		sign = d.office.Decline
	}
	signing, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	var err error
	if d.token, err = sign(signing, d.person.approver(), d.plan); err != nil {
		return d.explainDecision(err, d.person, d.plan.RunID)
	}
	switch err := d.office.Send(ctx, d.engine, d.token); {
	case errors.Is(err, errUnknownRun):
		return &exit{exitRunFailed, fmt.Sprintf("run %s is not going on any more: its workflow has ended; see starter show %s --tenant %s", d.plan.RunID, d.plan.RunID, d.person.tenant)}
	case err != nil && unreachable(err):
		return &exit{exitUnreachable, "Temporal did not answer in time; the decision may have arrived or not, and deciding again is safe"}
	case err != nil:
		return fmt.Errorf("send the decision: %w", err)
	}
	return nil
}

// await waits for the run's answer, and after an approval for the write, each
// for outcomePatience at most.
func (d *decider) await(ctx context.Context) error {
	ticker := time.NewTicker(orElse(d.pollEvery, pollEvery))
	defer ticker.Stop()
	patience := time.NewTimer(outcomePatience)
	defer patience.Stop()
	var last approval.Outcome
	for {
		outcome, err := d.look(ctx)
		switch {
		case err == nil && outcome.Standing == approval.Waiting:
		case err == nil && outcome.Standing == approval.Accepted && outcome.Result == db.WriteOpen:
			if last.Standing != approval.Accepted {
				patience.Reset(outcomePatience)
			}
		case err == nil:
			return d.print(outcome)
		// A database that is away for a moment is asked again.
		case !errors.Is(err, db.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			if ctx.Err() == nil {
				return d.explainDecision(err, d.person, d.plan.RunID)
			}
		}
		if err == nil {
			last = outcome
		}
		select {
		case <-ctx.Done():
			d.notice("\nStopped waiting. The decision was sent: starter show %s --tenant %s.", d.plan.RunID, d.person.tenant)
			return &exit{code: exitInterrupted}
		case <-patience.C:
			return d.impatient(ctx, last)
		case <-ticker.C:
		}
	}
}

func (d *decider) look(ctx context.Context) (approval.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return d.office.Outcome(ctx, d.person.approver(), d.token)
}

// impatient ends the wait. A decision that was accepted is accepted, however
// long the write takes.
func (d *decider) impatient(ctx context.Context, last approval.Outcome) error {
	if last.Standing == approval.Accepted {
		return d.print(last)
	}
	why := "see starter show " + d.plan.RunID + " --tenant " + d.person.tenant
	if served, err := d.engine.Served(ctx); err == nil && !served {
		why = fmt.Sprintf("no worker takes work from task queue %s (worker run starts one)", d.settings.TaskQueue)
	}
	return &exit{exitUnreachable, fmt.Sprintf("the decision was sent, and the run has not looked at it within %s; %s", outcomePatience, why)}
}

type decisionDocument struct {
	planRefDocument
	PlanHash   string              `json:"plan_hash"`
	Decision   approval.Decision   `json:"decision"`
	Approver   string              `json:"approver"`
	TokenID    string              `json:"token_id"`
	ExpiresAt  time.Time           `json:"expires_at"`
	Standing   approval.Standing   `json:"standing"`
	Refusal    agent.RefusalCode   `json:"refusal,omitempty"`
	PlanStatus db.PlanStatus       `json:"plan_status"`
	DecidedBy  string              `json:"decided_by,omitempty"`
	Result     db.WriteResult      `json:"write_result,omitempty"`
	Error      agent.ToolErrorCode `json:"error,omitempty"`
}

// print shows what became of the decision, and turns it into an exit code.
func (d *decider) print(o approval.Outcome) error {
	if d.json {
		err := printJSON(d.out, decisionDocument{
			planRefDocument: planRefDocument{d.plan.RunID, d.plan.CallID, d.plan.Revision}, PlanHash: d.plan.Hash, Decision: d.decision,
			Approver: d.person.user, TokenID: d.token.ID, ExpiresAt: d.token.ExpiresAt, Standing: o.Standing, Refusal: o.Code,
			PlanStatus: o.Plan, DecidedBy: o.DecidedBy, Result: o.Result, Error: o.Error,
		}, "  ")
		if err != nil {
			return err
		}
	}
	line, style := "", plain
	switch o.Standing {
	case approval.Waiting:
		line = "The decision was sent; starter show " + d.plan.RunID + " --tenant " + d.person.tenant + " says what becomes of it."
	case approval.Accepted:
		line, style = d.accepted(o)
	case approval.Refused:
		return &exit{exitRunFailed, fmt.Sprintf("the decision was refused (%s): %s", o.Code, whatToDo(o.Code))}
	case approval.Closed:
		return &exit{exitRunFailed, "the decision came too late: " + d.closed(o)}
	}
	if !d.json {
		fmt.Fprintln(d.out, d.paint(style, line))
	}
	return nil
}

func (d *decider) accepted(o approval.Outcome) (string, style) {
	if d.decision == approval.Decline {
		return "Declined. The write is not performed, and the run goes on.", green
	}
	switch o.Result {
	case db.WritePerformed:
		return "Approved. The write was performed.", green
	case db.WriteNotPerformed:
		line := "Approved. The write was not performed"
		if o.Error != "" {
			line += " (" + string(o.Error) + ")"
		}
		return line + "; nothing was changed.", yellow
	case db.WriteUnknown:
		return "Approved. Nobody knows whether the write happened. Find out and record it: " + howToSettle(d.person.tenant), red
	case db.WriteOpen:
	}
	return fmt.Sprintf("Approved. The write is under way; starter follow %s --tenant %s shows the run.", d.plan.RunID, d.person.tenant), green
}

// closed says how a plan ended without this decision.
func (d *decider) closed(o approval.Outcome) string {
	again := fmt.Sprintf("look at the new plan with starter pending %s --tenant %s --user %s", d.plan.RunID, d.person.tenant, d.person.user)
	switch o.Plan {
	case db.PlanApproved, db.PlanDeclined:
		return fmt.Sprintf("the plan was %s by %s", o.Plan, o.DecidedBy)
	case db.PlanExpired:
		return "the plan had expired, and the write is not performed"
	case db.PlanStale:
		return "what it changes is no longer at the version that you saw, and nothing was changed; " + again
	case db.PlanRefused:
		return "rights or the tool refused the write after it was approved, and nothing was changed"
	case db.PlanWithdrawn:
		return "the run has ended, and the write is not performed"
	case db.PlanPending:
	}
	return string(o.Plan)
}

// whatToDo explains a refusal to the one who was refused.
func whatToDo(code agent.RefusalCode) string {
	switch code {
	case agent.RefusedMalformed:
		return "the worker could not read it; are starter and worker of one version, and are their clocks right?"
	case agent.RefusedSignature:
		return "the worker does not trust the key; put the public key of FAIRLEAD_APPROVAL_KEY into the worker's FAIRLEAD_APPROVAL_PUBLIC_KEYS and restart it"
	case agent.RefusedExpired:
		return "it came after its time; decide again"
	case agent.RefusedWrongRun, agent.RefusedWrongCall, agent.RefusedWrongPlan:
		return "the run waits with another plan by now; look at it with starter pending and decide again"
	case agent.RefusedUsed:
		return "the plan is decided already"
	case agent.RefusedNotAuthorized:
		return "the worker's policies do not let you decide; ask one who may, and give starter and worker the same policies"
	case agent.RefusedNotWaiting:
		return "the run waits for no decision"
	}
	return "see starter show"
}
