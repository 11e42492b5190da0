package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

func (a *app) memoryCorrectCommand() *cobra.Command {
	var r remembered
	var value string
	c := &cobra.Command{
		Use:   "correct ID --value VALUE --user USER",
		Short: "Correct what is remembered",
		Long: "Proposes another value for a memory, as the user's own correction, and waits for what the\n" +
			"policy says. The value before stays in the history of the memory. VALUE is text where the\n" +
			"value is a text, else JSON.",
		Args: oneMemory,
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.check(true); err != nil {
				return err
			}
			switch {
			case !c.Flags().Changed("value"):
				return usagef("--value is missing: say what is right (starter memory forget forgets it)")
			case len(value) > agent.MaxMemoryValueBytes:
				return usagef("--value has %d bytes, the limit is %d", len(value), agent.MaxMemoryValueBytes)
			case !utf8.ValidString(value):
				return usagef("--value is not valid UTF-8")
			}
			return a.correctMemory(c.Context(), r, args[0], value)
		},
	}
	r.flags(c, true)
	c.Flags().StringVar(&value, "value", "", "what is right (required)")
	return c
}

func (a *app) correctMemory(ctx context.Context, r remembered, id, text string) error {
	m, err := a.memories(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	record, err := readOne(ctx, m, r, id)
	if err != nil {
		return a.explainMemory(err, "")
	}
	if record.Status != db.MemoryActive {
		return usagef("memory %s is not in force (%s): there is nothing to correct", id, record.Status)
	}
	value, err := correction(record.Value, text)
	if err != nil {
		return err
	}
	if err := a.mustTakePartIn(ctx, m, r, record.Scope, "the memory cannot be corrected; it can be forgotten as far as it comes from the user (starter memory forget)"); err != nil {
		return err
	}
	temporal, err := a.openEngine(ctx, a.settings)
	if err != nil {
		return err
	}
	defer temporal.Close()
	write := agent.MemoryWriteInput{
		Room: r.roomOf(record.Environment, record.Scope),
		Candidate: &agent.MemoryCandidate{
			Kind: record.Kind, Key: record.Key, Value: value, Scope: record.Scope,
			SourceType: agent.SourceUserCorrection, SourceID: fmt.Sprintf("%s@%d", record.ID, record.Version), Writer: "user:" + r.user,
			ValidFrom: record.ValidFrom, ValidUntil: record.ValidUntil,
		},
	}
	if write.ID, err = newID(); err != nil {
		return err
	}
	if err := a.begin(ctx, temporal, job{
		workflowID: agent.MemoryWriteWorkflowID(r.tenant, write.ID), workflow: agent.WorkflowMemoryWrite, input: write,
	}); err != nil {
		return err
	}
	c, err := a.awaitVerdict(ctx, verdictWait{
		engine: temporal, memories: m, tenant: r.tenant, id: write.ID, sent: "correction",
		done: func(c db.MemoryCandidate) bool { return c.State != agent.MemoryProposed },
	})
	if err != nil {
		return err
	}
	if c.State == agent.MemoryStored && c.Record != "" && c.Record != id {
		a.notice("The new value is about something else and stands beside memory %s, which is still in force; to end that one: starter memory forget %s %s", id, id, r.args())
	}
	return a.printVerdict(c)
}

// readOne reads a record within its time.
func readOne(ctx context.Context, m memories, r remembered, id string) (db.MemoryRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	record, err := m.Memory(ctx, r.tenant, r.user, id)
	if err != nil {
		return record, r.missing(ctx, m, id, err)
	}
	return record, nil
}

// correction reads what was typed as a value of the same type as the one before.
func correction(before json.RawMessage, text string) (json.RawMessage, error) {
	isText := func(value string) bool {
		var s string
		return json.Unmarshal([]byte(value), &s) == nil && strings.TrimSpace(value) != "null"
	}
	switch wasText := isText(string(before)); {
	case json.Valid([]byte(text)) && (isText(text) || !wasText):
		return json.RawMessage(text), nil
	case wasText:
		value, err := json.Marshal(text)
		if err != nil {
			return nil, fmt.Errorf("encode the value: %w", err)
		}
		return value, nil
	}
	return nil, usagef("--value must be JSON here, as the value before is; see starter memory show")
}

// waitFlags let a command not wait for the end of what it starts.
type waitFlags struct{ noWait bool }

func (w *waitFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&w.noWait, "no-wait", false, "do not wait for the receipt")
}

func (a *app) memoryForgetCommand() *cobra.Command {
	var r remembered
	var w waitFlags
	var all, sure bool
	c := &cobra.Command{
		Use:   "forget (ID | --all) --user USER",
		Short: "Forget one memory, or all that is remembered of a user, for good",
		Long: "Deletes a memory with all its versions, or all that is remembered of a user, and prints the\n" +
			"receipt. From the first moment on nothing of it is recalled; indexes, copies and proposals\n" +
			"are purged after that. Nobody can undo it. --all asks first; without a terminal, --yes\n" +
			"answers. Messages stay: starter memory erase takes them as well.",
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return usagef("say either an ID or --all")
			case all:
				return nil
			}
			return oneMemory(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.check(true); err != nil {
				return err
			}
			switch {
			case !all:
				return a.forgetMemory(c.Context(), r, w, args[0])
			case !sure && !a.canAsk():
				return usagef("nobody can be asked here: give --yes to forget all that is remembered of user %s of tenant %s", r.user, r.tenant)
			}
			return a.forgetAll(c.Context(), r, w, sure)
		},
	}
	r.flags(c, true)
	w.flags(c)
	c.Flags().BoolVar(&all, "all", false, "all that is remembered of the user, in all environments")
	c.Flags().BoolVar(&sure, "yes", false, "with --all: do not ask")
	return c
}

func (a *app) forgetMemory(ctx context.Context, r remembered, w waitFlags, id string) error {
	var record db.MemoryRecord
	err := a.readMemory(ctx, "", func(ctx context.Context, m memories) (err error) {
		record, err = readOne(ctx, m, r, id)
		return err
	})
	switch {
	case err != nil:
		return err
	case record.Status == db.MemoryDeleted:
		return a.forgottenBefore(r, record)
	case record.User != r.user && record.Subject != r.user:
		return usagef("memory %s belongs to %s %s and comes from somebody else, who alone may have it forgotten; to change it: starter memory correct, about which a reviewer decides",
			id, record.Scope.Kind, record.Scope.ID)
	}
	return a.forget(ctx, w, agent.ForgetInput{Room: r.roomOf(record.Environment, record.Scope), Record: id, By: r.user})
}

// forgottenDocument is a memory that was forgotten before.
type forgottenDocument struct {
	ID          string     `json:"id"`
	ForgottenAt *time.Time `json:"forgotten_at,omitempty"`
	ForgottenBy string     `json:"forgotten_by,omitempty"`
}

func (a *app) forgottenBefore(r remembered, record db.MemoryRecord) error {
	if a.json {
		return printJSON(a.out, forgottenDocument{record.ID, record.EndedAt, record.EndedBy}, "  ")
	}
	fmt.Fprintf(a.out, "Memory %s is forgotten already, since %s%s. The receipts: starter memory receipts %s\n",
		record.ID, clock(moment(record.EndedAt)), by(oneLine(record.EndedBy, 128)), r.args())
	return nil
}

func (a *app) forgetAll(ctx context.Context, r remembered, w waitFlags, sure bool) error {
	if !sure {
		question := fmt.Sprintf("Forget all that is remembered of user %s of tenant %s? [y/N] ", r.user, r.tenant)
		switch answer, err := a.ask(ctx, question); {
		case err != nil:
			a.notice("\nNothing was forgotten.")
			return err
		case !yes(answer):
			return &exit{exitRunFailed, "nothing was forgotten"}
		}
	}
	// A room has an environment; all of them are meant.
	return a.forget(ctx, w, agent.ForgetInput{Room: r.roomOf(defaultEnvironment, agent.MemoryScope{Kind: agent.MemoryOfUser, ID: r.user}), By: r.user})
}

// forget starts ForgetMemory and prints the receipt.
func (a *app) forget(ctx context.Context, w waitFlags, in agent.ForgetInput) (err error) {
	if err := a.requireContent(); err != nil {
		return err
	}
	if in.ID, err = newID(); err != nil {
		return err
	}
	return a.erasing(ctx, w, job{
		workflowID: agent.ForgetWorkflowID(in.Room.Scope.Tenant, in.ID), workflow: agent.WorkflowForgetMemory, input: in,
	}, nil)
}

// erasing starts a job that ends with a receipt, and prints it.
func (a *app) erasing(ctx context.Context, w waitFlags, j job, waits func(context.Context, engine) []string) error {
	temporal, err := a.openEngine(ctx, a.settings)
	if err != nil {
		return err
	}
	defer temporal.Close()
	if err := a.begin(ctx, temporal, j); err != nil {
		return err
	}
	if w.noWait {
		a.notice("The request was sent (workflow %s).", j.workflowID)
		return nil
	}
	var receipt agent.ErasureReceipt
	if err := a.await(ctx, temporal, j, &receipt, waits); err != nil {
		return err
	}
	return a.printReceipt(receipt)
}

// erased is what an erasure takes away, and what it leaves.
const erased = `This erases user %s of tenant %s for good: all that is remembered of the user, and the keys of
everything else that is stored of the user. Nobody can read any more, in Temporal's histories as well:
  messages and answers, tool arguments and results, plans and notes, session facts, summaries
It waits for the end of the user's runs. What stays are identifiers and figures, and backups that hold
the table subject_key, until they are gone. Nobody can undo it.
`

func (a *app) memoryEraseCommand() *cobra.Command {
	var r remembered
	var w waitFlags
	var sure, by string
	var unknown bool
	c := &cobra.Command{
		Use:   "erase --user USER --yes-erase USER",
		Short: "Erase a user: all that is remembered, and the keys of all else",
		Long: "Erases a user for good: forgets all that is remembered, destroys the keys of everything else\n" +
			"that is stored of the user, and prints the receipt. Waits for the end of the user's runs and\n" +
			"says for which. Says what is lost and asks; without a terminal, --yes-erase answers by\n" +
			"naming the user again. A second request joins the first. Of a user of whom nothing is stored\n" +
			"nothing is erased, because the name may be mistyped; --unknown-user insists.",
		Args: noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := r.check(true); err != nil {
				return err
			}
			if by == "" {
				by = r.user
			}
			switch {
			case !agent.ValidID(by):
				return usagef("--by must be 1 to 128 ASCII letters, digits or . _ : @ -")
			case sure != "" && sure != r.user:
				return usagef("--yes-erase names another user than --user: nothing was erased")
			case sure == "" && !a.canAsk():
				return usagef("nobody can be asked here: give --yes-erase %s to erase this user of tenant %s for good", r.user, r.tenant)
			}
			return a.eraseUser(c.Context(), r, w, by, sure != "", unknown)
		},
	}
	r.flags(c, true)
	w.flags(c)
	c.Flags().StringVar(&sure, "yes-erase", "", "the user's name again: do not ask")
	c.Flags().StringVar(&by, "by", "", "who asks for it (default: the user)")
	c.Flags().BoolVar(&unknown, "unknown-user", false, "erase even if nothing is stored of the user")
	return c
}

func (a *app) eraseUser(ctx context.Context, r remembered, w waitFlags, by string, sure, unknown bool) error {
	m, err := a.memories(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if !unknown {
		if err := a.mustBeKnown(ctx, m, r); err != nil {
			return err
		}
	}
	if !sure {
		fmt.Fprintf(a.errOut, erased, r.user, r.tenant)
		switch answer, err := a.ask(ctx, "Type the user's name to erase: "); {
		case err != nil:
			a.notice("\nNothing was erased.")
			return err
		case answer != strings.ToLower(r.user):
			return &exit{exitRunFailed, "nothing was erased"}
		}
	}
	in := agent.EraseInput{Tenant: r.tenant, User: r.user, By: by}
	if in.ID, err = newID(); err != nil {
		return err
	}
	return a.erasing(ctx, w, job{
		workflowID: agent.EraseWorkflowID(r.tenant, r.user), workflow: agent.WorkflowEraseSubject, input: in, shared: true,
	}, func(ctx context.Context, temporal engine) []string { return standsInTheWay(ctx, temporal, m, r) })
}

// standsInTheWay says what an erasure waits for.
func standsInTheWay(ctx context.Context, temporal engine, m memories, r remembered) (lines []string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, status := range agent.Statuses() {
		if status.Terminal() {
			continue
		}
		// A failed question says nothing about runs.
		runs, err := m.ListRuns(ctx, db.RunFilter{Tenant: r.tenant, User: r.user, Status: status})
		if err != nil {
			break
		}
		for _, run := range runs {
			lines = append(lines, fmt.Sprintf("Waits for the end of run %s (%s); to end it: starter cancel %s --tenant %s", run.RunID, status, run.RunID, r.tenant))
		}
	}
	details, err := temporal.Details(ctx, agent.EraseWorkflowID(r.tenant, r.user))
	if err == nil && strings.Contains(details, "unsettled_write") {
		lines = append(lines, "Waits for what became of a write of the user, which nobody knows: "+howToSettle(r.tenant))
	}
	return lines
}
