package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
)

// maxWaiting is how many waiting memories are looked through.
const maxWaiting = 500

// memoryDecision are the flags of memory review and memory confirm.
type memoryDecision struct {
	person
	// id is what is decided about, empty to list what waits.
	id       string
	decision approval.Decision
	// review says that a reviewer decides, and not the user.
	review bool
	hash   string
	yes    bool
}

func (d *memoryDecision) flags(c *cobra.Command, role string) {
	d.person.flags(c, role)
	c.Flags().Lookup("tenant").Usage = "tenant whose memory it is"
	c.Flags().StringVar(&d.hash, "hash", "", fmt.Sprintf("only if what waits has this hash; its first %d digits are enough", minPlanDigits))
	c.Flags().BoolVar(&d.yes, "yes", false, "do not ask")
}

func (d *memoryDecision) check() error {
	if err := d.person.check(); err != nil {
		return err
	}
	if d.hash != "" && (len(d.hash) < minPlanDigits || len(d.hash) > 64 || strings.Trim(d.hash, "0123456789abcdef") != "") {
		return usagef("--hash must be %d to 64 lowercase hexadecimal digits", minPlanDigits)
	}
	return nil
}

// onlyLists refuses flags of a decision where nothing is decided; missing says what
// would be decided about.
func (d *memoryDecision) onlyLists(missing string) error {
	if d.yes || d.hash != "" {
		return usagef("--yes and --hash are for a decision: give %s as well; nothing was decided", missing)
	}
	return nil
}

// again is what shows once more what waits.
func (d *memoryDecision) again() string {
	if d.review {
		return fmt.Sprintf("starter memory review --tenant %s --user %s", d.tenant, d.user)
	}
	return fmt.Sprintf("starter memory confirm --tenant %s --user %s", d.tenant, d.user)
}

func (a *app) memoryReviewCommand() *cobra.Command {
	d := memoryDecision{review: true}
	var approve, decline string
	c := &cobra.Command{
		Use:   "review --user YOU [--approve ID | --decline ID]",
		Short: "Decide about proposed memories that wait for a reviewer",
		Long: "Lists the proposed memories that you may review, or with --approve and --decline shows exactly\n" +
			"what would be remembered, asks, and waits for what comes of it. Nobody reviews what comes\n" +
			"from oneself. Without a terminal, --yes answers, and --hash makes sure that it is what you\n" +
			"saw. The decision is signed with FAIRLEAD_APPROVAL_KEY: who holds the key is believed to be\n" +
			"--user.",
		Args: noArguments(" (the ID goes into --approve or --decline)"),
		RunE: func(c *cobra.Command, _ []string) error {
			switch approving, declining := c.Flags().Changed("approve"), c.Flags().Changed("decline"); {
			case approving && declining:
				return usagef("say either --approve or --decline")
			case approving:
				d.id, d.decision = approve, approval.Approve
			case declining:
				d.id, d.decision = decline, approval.Decline
			default:
				if err := d.onlyLists("--approve ID or --decline ID"); err != nil {
					return err
				}
				return a.waitingMemories(c.Context(), d)
			}
			if !agent.ValidID(d.id) {
				return usagef("the ID must be 1 to 128 ASCII letters, digits or . _ : @ -")
			}
			return a.decideMemory(c.Context(), d)
		},
	}
	d.flags(c, "reviewer:")
	c.Flags().StringVar(&approve, "approve", "", "remember this proposal")
	c.Flags().StringVar(&decline, "decline", "", "do not remember this proposal")
	return c
}

func (a *app) memoryConfirmCommand() *cobra.Command {
	var d memoryDecision
	var decline bool
	c := &cobra.Command{
		Use:   "confirm [ID] --user YOU [--decline]",
		Short: "Confirm what is to be remembered of you",
		Long: "Lists what waits for your confirmation, or with an ID shows exactly what would be remembered,\n" +
			"for what, where and how long, asks, and waits for what comes of it. Without a terminal, --yes\n" +
			"answers, and --hash makes sure that it is what you saw. The decision is signed with\n" +
			"FAIRLEAD_APPROVAL_KEY: who holds the key is believed to be --user.",
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return nil
			case len(args) > 1:
				return usagef("%s decides about one proposal at a time, got %d IDs; without an ID it lists what waits", c.CommandPath(), len(args))
			}
			return oneMemory(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			d.decision = approval.Approve
			if decline {
				d.decision = approval.Decline
			}
			if len(args) == 0 {
				if decline {
					return usagef("--decline needs the ID of what is declined")
				}
				if err := d.onlyLists("the ID of the proposal"); err != nil {
					return err
				}
				return a.waitingMemories(c.Context(), d)
			}
			d.id = args[0]
			return a.decideMemory(c.Context(), d)
		},
	}
	d.flags(c, "user:")
	c.Flags().BoolVar(&decline, "decline", false, "do not remember it")
	return c
}

// pendingMemories returns what waits for a person, of the kind that the command
// is about.
func (a *app) pendingMemories(ctx context.Context, o office, d memoryDecision, limit int) ([]approval.Memory, approval.PendingMemories, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*callTimeout)
	defer cancel()
	found, err := o.PendingMemories(ctx, d.approver(), approval.MemoryFilter{Limit: limit})
	if err != nil {
		return nil, found, a.explainMemoryDecision(err, d)
	}
	if d.review {
		return found.Review, found, nil
	}
	return found.Confirm, found, nil
}

// waitingMemories lists what waits for a person.
func (a *app) waitingMemories(ctx context.Context, d memoryDecision) error {
	if err := d.check(); err != nil {
		return err
	}
	o, err := a.office(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	waiting, found, err := a.pendingMemories(ctx, o, d, 0)
	if err != nil {
		return err
	}
	m, err := a.memories(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	list, err := a.withEnds(ctx, m, d, waiting...)
	if err != nil {
		return err
	}
	if a.json {
		document := waitingMemoriesDocument{Memories: []waitingMemoryDocument{}, Forbidden: found.Forbidden, Damaged: append([]string{}, found.Damaged...), More: found.More}
		for _, m := range list {
			document.Memories = append(document.Memories, toWaitingMemory(d.tenant, m))
		}
		err = printJSON(a.out, document, "  ")
	} else {
		a.listWaiting(d, list, found)
	}
	if err == nil && len(found.Damaged) > 0 {
		err = &exit{exitRunFailed, fmt.Sprintf("%v, nobody can decide: %s; find out who wrote to the database", approval.ErrDamaged, strings.Join(found.Damaged, ", "))}
	}
	return err
}

func (a *app) listWaiting(d memoryDecision, list []proposedMemory, found approval.PendingMemories) {
	for i, m := range list {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		a.printWaiting(m)
		fmt.Fprintln(a.out)
		if d.review {
			fmt.Fprintln(a.out, a.paint(bold, fmt.Sprintf("%s --approve %s (or --decline)", d.again(), m.ID)))
		} else {
			fmt.Fprintln(a.out, a.paint(bold, fmt.Sprintf("starter memory confirm %s --tenant %s --user %s (or with --decline)", m.ID, d.tenant, d.user)))
		}
	}
	if len(list) == 0 {
		a.notice("Nothing waits for a decision of user %s in tenant %s.", d.user, d.tenant)
	}
	if d.review && found.Forbidden > 0 {
		a.notice("Left out because user %s may not review them: %s. It takes the action review in the policies (%s), for somebody else than whom they come from.",
			d.user, count(found.Forbidden, "proposal"), config.Variable("policies"))
	}
	if d.review && len(found.Confirm) > 0 {
		a.notice("Of your own, %s for your confirmation: starter memory confirm --tenant %s --user %s", plural(len(found.Confirm), "proposal waits", "proposals wait"), d.tenant, d.user)
	}
	if found.More {
		a.notice("There may be more.")
	}
}

// decideMemory shows what waits, asks, and takes the decision to its write.
func (a *app) decideMemory(ctx context.Context, d memoryDecision) error {
	if err := d.check(); err != nil {
		return err
	}
	if a.settings.Approval.Key == "" {
		return a.explainMemoryDecision(approval.ErrNoKey, d)
	}
	if !d.yes && !a.canAsk() {
		return usagef("nobody can be asked here: look at it with %s, then give --yes, and --hash to be sure that it is the same", d.again())
	}
	o, err := a.office(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	shown, err := a.findWaiting(ctx, o, d)
	if err != nil {
		return err
	}
	// Who has decided should not hear then that it cannot be sent.
	temporal, err := a.openEngine(ctx, a.settings)
	if err != nil {
		return err
	}
	defer temporal.Close()
	m, err := a.memories(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if !a.json {
		proposed, err := a.withEnds(ctx, m, d, shown)
		if err != nil {
			return err
		}
		a.printWaiting(proposed[0])
		fmt.Fprintln(a.out)
	}
	if !d.yes {
		question := "Remember this? [y/N] "
		if d.decision == approval.Decline {
			question = "Decline this? [y/N] "
		}
		switch answer, err := a.ask(ctx, question); {
		case err != nil:
			a.notice("\nNothing was sent.")
			return err
		case !yes(answer):
			return &exit{exitRunFailed, "nothing was sent; it waits on"}
		}
	}
	w := verdictWait{engine: temporal, memories: m, tenant: d.tenant, id: d.id, sent: "decision"}
	before := refusals(ctx, w)
	token, err := a.sendMemoryDecision(ctx, o, temporal, d, shown)
	if err != nil {
		return err
	}
	w.done = func(c db.MemoryCandidate) bool { return c.State.Final() || c.Revision > shown.Revision }
	w.refused = func(ctx context.Context) error {
		if now := refusals(ctx, w); now != "" && now != before {
			return &exit{exitRunFailed, fmt.Sprintf("the decision was not believed, and the proposal waits on (%s): %s", now, whatToDoAboutMemory(now))}
		}
		return nil
	}
	c, err := a.awaitVerdict(ctx, w)
	if err != nil {
		return err
	}
	return a.printDecided(d, shown, token, c)
}

// findWaiting finds what is decided about, as the flags want it.
func (a *app) findWaiting(ctx context.Context, o office, d memoryDecision) (approval.Memory, error) {
	list, found, err := a.pendingMemories(ctx, o, d, maxWaiting)
	if err != nil {
		return approval.Memory{}, err
	}
	at := slices.IndexFunc(list, func(m approval.Memory) bool { return m.ID == d.id })
	switch {
	case at < 0 && slices.Contains(found.Damaged, d.id):
		return approval.Memory{}, a.explainMemoryDecision(approval.ErrDamaged, d)
	case at < 0 && found.More:
		return approval.Memory{}, usagef("proposal %s is not among the first %d that wait for user %s; decide about those first", d.id, maxWaiting, d.user)
	case at < 0:
		return approval.Memory{}, a.notWaiting(ctx, o, d, approval.ErrNotFound)
	case !strings.HasPrefix(list[at].Hash, d.hash):
		return approval.Memory{}, &exit{exitRunFailed, "what waits is not what --hash names: it has changed since; look again with " + d.again()}
	}
	return list[at], nil
}

func (a *app) sendMemoryDecision(ctx context.Context, o office, temporal engine, d memoryDecision, shown approval.Memory) (approval.Token, error) {
	sign := o.ConfirmMemory
	if d.decision == approval.Decline {
		sign = o.DeclineMemory
	}
	signing, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	token, err := sign(signing, d.approver(), shown)
	switch {
	case errors.Is(err, approval.ErrNotFound), errors.Is(err, approval.ErrDecided), errors.Is(err, approval.ErrExpired):
		return token, a.notWaiting(ctx, o, d, err)
	case err != nil && ctx.Err() != nil:
		return token, interruptedBeforeSending()
	case err != nil:
		return token, a.explainMemoryDecision(err, d)
	}
	switch err := o.Send(ctx, temporal, token); {
	case errors.Is(err, errUnknownRun):
		return token, &exit{exitRunFailed, fmt.Sprintf("nothing takes decisions about proposal %s now: its workflow has ended; starter memory reconcile takes it up again", d.id)}
	case err != nil && ctx.Err() != nil:
		return token, &exit{exitInterrupted, "interrupted; the decision may have arrived or not, and deciding again is safe"}
	case err != nil && unreachable(err):
		return token, &exit{exitUnreachable, "Temporal did not answer in time; the decision may have arrived or not, and deciding again is safe"}
	case err != nil:
		return token, fmt.Errorf("send the decision: %w", err)
	}
	return token, nil
}

// printDecided says what came of a decision.
func (a *app) printDecided(d memoryDecision, shown approval.Memory, token approval.Token, c db.MemoryCandidate) error {
	switch {
	case !c.State.Final() && c.State != agent.MemoryNotSaved:
		return &exit{exitRunFailed, "what would be remembered has changed since, and it waits for a decision again; look again with " + d.again()}
	case c.State == agent.MemoryDeclined && d.decision == approval.Decline && c.TokenID == token.ID:
		if a.json {
			return printJSON(a.out, verdictDocument{ID: c.ID, State: c.State, DecidedBy: c.DecidedBy, Policy: toPolicyDecision(c.PolicyVersion, c.PolicyDigest, c.Rules)}, "  ")
		}
		fmt.Fprintln(a.out, a.paint(green, "Declined. It is not remembered."))
		return nil
	case c.TokenID != "" && c.TokenID != token.ID:
		return &exit{exitRunFailed, fmt.Sprintf("the decision came too late: %s%s", stateWords(c.State), by(c.DecidedBy))}
	case c.State == agent.MemoryStored && shown.Retracts && !a.json:
		fmt.Fprintln(a.out, a.paint(green, fmt.Sprintf("Taken back: memory %s is not in force any more.", c.Record)))
		return nil
	}
	return a.printVerdict(c)
}

// refusals is what the write's workflow says about decisions that it did not
// believe, empty if there are none.
func refusals(ctx context.Context, w verdictWait) string {
	// A failed question says nothing about decisions.
	details, err := w.engine.Details(ctx, w.workflowID())
	if err != nil {
		return ""
	}
	for line := range strings.Lines(details) {
		if strings.HasPrefix(line, "decisions refused:") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// explainMemoryDecision turns a refusal of the office into what a person can act
// on.
func (a *app) explainMemoryDecision(err error, d memoryDecision) error {
	refuse := func(why string) error { return &exit{exitRunFailed, why} }
	switch {
	case errors.Is(err, approval.ErrNotFound):
		return usagef("no proposal %s of tenant %s waits for user %s; see %s", d.id, d.tenant, d.user, d.again())
	case errors.Is(err, approval.ErrForbidden):
		return refuse(fmt.Sprintf("%v; ask one who may, or have the policies (%s) changed: reviewing takes the action review", err, config.Variable("policies")))
	case errors.Is(err, approval.ErrUnavailable):
		return &exit{exitUnreachable, fmt.Sprintf("%v; until the policies are mended nothing is decided", err)}
	case errors.Is(err, approval.ErrChanged):
		return refuse("what would be remembered has changed since: nothing was sent; look again with " + d.again())
	case errors.Is(err, approval.ErrDecided):
		return refuse("somebody has decided about it already: nothing was sent")
	case errors.Is(err, approval.ErrExpired):
		return refuse("the time to decide is over: nothing was sent, and it is not remembered")
	case errors.Is(err, approval.ErrDamaged):
		return refuse(fmt.Sprintf("proposal %s was damaged or altered in the database, and nobody can decide about it; find out who wrote to the database", d.id))
	case errors.Is(err, approval.ErrNoKey):
		return a.explainDecision(err, d.person, "")
	}
	return a.explainMemory(err, "")
}
