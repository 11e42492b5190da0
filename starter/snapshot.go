package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// maxLabelBytes bounds an operator's word for a snapshot.
const maxLabelBytes = 200

// conversationArgs checks CONVERSATION, and SNAPSHOT if there is to be one.
func conversationArgs(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usagef("%s needs %s, got %d arguments", c.CommandPath(), strings.Join(names, " and "), len(args))
		}
		for i, name := range names {
			if !agent.ValidID(args[i]) {
				return usagef("%s must be 1 to 128 ASCII letters, digits or . _ : @ -", name)
			}
		}
		return nil
	}
}

func noConversation(tenant, conversation string) string {
	return fmt.Sprintf("there is no conversation %s in tenant %s; see starter list --tenant %s --json", conversation, tenant, tenant)
}

func (a *app) snapshotCommand() *cobra.Command {
	var p person
	var label string
	c := &cobra.Command{
		Use:   "snapshot CONVERSATION --user YOU",
		Short: "Mark a point that a conversation can go back to",
		Args:  conversationArgs("CONVERSATION"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			if len(label) > maxLabelBytes || !utf8.ValidString(label) || strings.ContainsFunc(label, unicode.IsControl) {
				return usagef("--label must be one line of valid UTF-8 of at most %d bytes", maxLabelBytes)
			}
			var taken db.Snapshot
			err := a.change(c.Context(), noConversation(p.tenant, args[0]), func(ctx context.Context, r records) (err error) {
				taken, err = r.TakeSnapshot(ctx, p.tenant, args[0], label, p.user)
				return err
			})
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(a.out, toSnapshotDocument(taken), "  ")
			}
			fmt.Fprintf(a.out, "Snapshot %s of conversation %s: %s.\n", a.paint(bold, taken.ID), taken.Conversation, place(taken))
			fmt.Fprintln(a.out, "To go back to it: "+howToRollBack(p, taken.Conversation, taken.ID))
			return nil
		},
	}
	p.flags(c, "operator:")
	c.Flags().StringVar(&label, "label", "", fmt.Sprintf("your word for it, at most %d bytes; it is not encrypted", maxLabelBytes))
	return c
}

func (a *app) snapshotsCommand() *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use:   "snapshots CONVERSATION",
		Short: "List the points that a conversation can go back to, newest first",
		Args:  conversationArgs("CONVERSATION"),
		RunE: func(c *cobra.Command, args []string) error {
			if !agent.ValidID(tenant) {
				return usagef("--tenant must be 1 to 128 ASCII letters, digits or . _ : @ -")
			}
			found, err := a.findSnapshots(c.Context(), tenant, args[0])
			if err != nil {
				return err
			}
			if a.json {
				document := snapshotsDocument{Conversation: args[0], Snapshots: []snapshotDocument{}}
				for _, s := range found {
					document.Snapshots = append(document.Snapshots, toSnapshotDocument(s))
				}
				return printJSON(a.out, document, "  ")
			}
			if len(found) == 0 {
				a.notice("Conversation %s has no snapshots.", args[0])
				return nil
			}
			rows := [][]cell{{{"SNAPSHOT", dim}, {"MESSAGE", dim}, {"BRANCH", dim}, {"BY", dim}, {"CREATED", dim}, {"LABEL", dim}}}
			for _, s := range found {
				label := oneLine(s.Label, maxLabelBytes)
				if s.Safety {
					label = strings.TrimSpace("(left behind by a rollback) " + label)
				}
				rows = append(rows, row(s.ID, strconv.FormatInt(s.Seq, 10), strconv.Itoa(s.Branch), oneLine(s.CreatedBy, 128), clock(s.CreatedAt), label))
			}
			a.table(a.out, rows)
			return nil
		},
	}
	c.Flags().StringVar(&tenant, "tenant", defaultTenant, "tenant that owns the conversation")
	return c
}

func (a *app) findSnapshots(ctx context.Context, tenant, conversation string) (found []db.Snapshot, err error) {
	err = a.change(ctx, noConversation(tenant, conversation), func(ctx context.Context, r records) (err error) {
		found, err = r.Snapshots(ctx, tenant, conversation)
		return err
	})
	return found, err
}

func (a *app) rollbackCommand() *cobra.Command {
	var p person
	var sure bool
	c := &cobra.Command{
		Use:   "rollback CONVERSATION SNAPSHOT --user YOU",
		Short: "Take a conversation back to a snapshot",
		Long: "Takes a conversation back to a snapshot. Nothing is deleted: what is left behind is a snapshot\n" +
			"itself, to which one can go back. Standing prohibitions stay. Effects that tools had outside,\n" +
			"such as a restarted service, are not undone; they are listed. Runs that are going on end as\n" +
			"superseded. Asks first; without a terminal, --yes answers.",
		Args: conversationArgs("CONVERSATION", "SNAPSHOT"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			if !sure && !a.canAsk() {
				return usagef("nobody can be asked here: give --yes to take conversation %s back to snapshot %s", args[0], args[1])
			}
			return a.rollback(c.Context(), p, args[0], args[1], sure)
		},
	}
	p.flags(c, "operator:")
	c.Flags().BoolVar(&sure, "yes", false, "do not ask")
	return c
}

func (a *app) rollback(ctx context.Context, p person, conversation, snapshot string, sure bool) error {
	missing := fmt.Sprintf("there is no snapshot %s of a conversation %s in tenant %s; see starter snapshots %s --tenant %s", snapshot, conversation, p.tenant, conversation, p.tenant)
	if !sure {
		found, err := a.findSnapshots(ctx, p.tenant, conversation)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(found, func(s db.Snapshot) bool { return s.ID == snapshot })
		if at < 0 {
			return usagef("%s", missing)
		}
		a.notice("Snapshot %s of conversation %s: %s, %s.", snapshot, conversation, place(found[at]), clock(found[at].CreatedAt))
		switch answer, err := a.ask(ctx, "Go back? [y/N] "); {
		case err != nil:
			a.notice("\nNothing was changed.")
			return err
		case !yes(answer):
			return &exit{exitRunFailed, "nothing was changed"}
		}
	}
	var done db.Rollback
	err := a.change(ctx, missing, func(ctx context.Context, r records) (err error) {
		done, err = r.RollBack(ctx, p.tenant, conversation, snapshot, p.user)
		return explainConflict(err, "conversation %s was changed at the same time: nothing was rolled back; look again with starter snapshots %s --tenant %s", conversation, conversation, p.tenant)
	})
	if err != nil {
		return err
	}
	told := a.tellSuperseded(ctx, p.tenant, done)
	if a.json {
		err = printJSON(a.out, toRollbackDocument(conversation, done, told), "  ")
	} else {
		a.printRollback(p, conversation, done, told)
	}
	a.noticeUntold(p, conversation, snapshot, done, told)
	return err
}

// tellSuperseded tells the runs of the old line that they are over, and reports
// which of them heard it. The database refuses what they do in any case. The
// signal is sealed if this program has the key, and workers read it if not.
func (a *app) tellSuperseded(ctx context.Context, tenant string, done db.Rollback) map[string]bool {
	told := map[string]bool{}
	if len(done.OpenRuns) == 0 {
		return told
	}
	temporal, err := a.openEngine(ctx, a.settings)
	if err != nil {
		return told
	}
	defer temporal.Close()
	for _, run := range done.OpenRuns {
		err := temporal.SignalWorkflow(ctx, agent.WorkflowID(tenant, run.ID), "", agent.SignalSupersede, agent.Supersession{Generation: done.Generation})
		// A workflow that has ended needs no telling.
		told[run.ID] = err == nil || errors.Is(err, errUnknownRun)
	}
	return told
}

// noticeUntold says what becomes of runs that were not told.
func (a *app) noticeUntold(p person, conversation, snapshot string, done db.Rollback, told map[string]bool) {
	untold := 0
	for _, run := range done.OpenRuns {
		if !told[run.ID] {
			untold++
			a.notice("Run %s could not be told; it ends as superseded with its next step.", run.ID)
		}
	}
	if untold > 0 {
		a.notice("A run that waits for a person takes no step: it ends only when its plan expires, or when it is told by this command given again while Temporal can be reached: %s", howToRollBack(p, conversation, snapshot))
	}
}

func (a *app) printRollback(p person, conversation string, done db.Rollback, told map[string]bool) {
	fmt.Fprintf(a.out, "Conversation %s is at snapshot %s again: %s, version %d.\n", conversation, done.To.ID, place(done.To), done.Version)
	fmt.Fprintf(a.out, "Hidden: %s.\n", count(done.Hidden, "message"))
	fmt.Fprintf(a.out, "What was left behind is snapshot %s. To bring it back: %s\n", a.paint(bold, done.Safety.ID), howToRollBack(p, conversation, done.Safety.ID))
	for _, run := range done.OpenRuns {
		if told[run.ID] {
			fmt.Fprintf(a.out, "Run %s was told that it is superseded.\n", run.ID)
		}
	}
	if len(done.Writes) == 0 {
		return
	}
	fmt.Fprintln(a.out, a.paint(yellow, "\nNot undone, because it happened outside of the conversation:"))
	rows := [][]cell{{{"  RUN", dim}, {"CALL", dim}, {"TOOL", dim}, {"RESULT", dim}}}
	for _, w := range done.Writes {
		rows = append(rows, []cell{{text: "  " + w.RunID}, {text: oneLine(w.CallID, 64)}, {text: oneLine(w.Tool, 64)}, {string(w.Result), resultStyle(w.Result)}})
	}
	a.table(a.out, rows)
}

// place says where in a conversation a snapshot is.
func place(s db.Snapshot) string {
	if s.Seq == 0 {
		return "before the first message"
	}
	return fmt.Sprintf("message %d", s.Seq)
}

func howToRollBack(p person, conversation, snapshot string) string {
	return fmt.Sprintf("starter rollback %s %s --tenant %s --user %s", conversation, snapshot, p.tenant, p.user)
}

type snapshotDocument struct {
	ID           string    `json:"id"`
	Conversation string    `json:"conversation"`
	Branch       int       `json:"branch"`
	Seq          int64     `json:"seq"`
	Label        string    `json:"label,omitempty"`
	Safety       bool      `json:"safety"`
	CreatedBy    string    `json:"created_by"`
	CreatedAt    time.Time `json:"created_at"`
}

func toSnapshotDocument(s db.Snapshot) snapshotDocument { return snapshotDocument(s) }

type snapshotsDocument struct {
	Conversation string             `json:"conversation"`
	Snapshots    []snapshotDocument `json:"snapshots"`
}

type rollbackDocument struct {
	Conversation string           `json:"conversation"`
	To           snapshotDocument `json:"to"`
	Safety       snapshotDocument `json:"safety"`
	Version      int64            `json:"version"`
	Hidden       int              `json:"hidden_messages"`
	Runs         []supersededRun  `json:"superseded_runs"`
	NotUndone    []effectDocument `json:"not_undone"`
}

// supersededRun is a run of the old line; Told says that its workflow knows.
type supersededRun struct {
	RunID string `json:"run_id"`
	Told  bool   `json:"told"`
}

type effectDocument struct {
	RunID  string         `json:"run_id"`
	CallID string         `json:"call_id"`
	Tool   string         `json:"tool"`
	Result db.WriteResult `json:"result"`
}

func toRollbackDocument(conversation string, done db.Rollback, told map[string]bool) rollbackDocument {
	document := rollbackDocument{
		Conversation: conversation, To: toSnapshotDocument(done.To), Safety: toSnapshotDocument(done.Safety),
		Version: done.Version, Hidden: done.Hidden, Runs: []supersededRun{}, NotUndone: []effectDocument{},
	}
	for _, run := range done.OpenRuns {
		document.Runs = append(document.Runs, supersededRun{run.ID, told[run.ID]})
	}
	for _, w := range done.Writes {
		document.NotUndone = append(document.NotUndone, effectDocument(w))
	}
	return document
}
