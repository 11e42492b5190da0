package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
)

func (a *app) memoryReceiptsCommand() *cobra.Command {
	var r remembered
	c := &cobra.Command{
		Use:   "receipts --user USER",
		Short: "Show the receipts of what a user had forgotten or erased",
		Args:  noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := r.check(true); err != nil {
				return err
			}
			var receipts []agent.ErasureReceipt
			err := a.withMemories(c.Context(), "there is no such user", func(ctx context.Context, m memories) (err error) {
				receipts, err = m.Erasures(ctx, r.tenant, r.user)
				return err
			})
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(a.out, receiptsDocument{append([]agent.ErasureReceipt{}, receipts...)}, "  ")
			}
			if len(receipts) == 0 {
				a.notice("User %s of tenant %s had nothing forgotten.", r.user, r.tenant)
				return nil
			}
			rows := [][]cell{{{"RECEIPT", dim}, {"BY", dim}, {"MEMORIES", dim}, {"VERSIONS", dim}, {"PROPOSALS", dim}, {"KEYS", dim}, {"DONE", dim}}}
			for _, e := range receipts {
				keys, done := "", clock(e.At)
				if e.KeysDestroyed {
					keys = "destroyed"
				}
				if e.At.IsZero() {
					done = "under way"
				}
				rows = append(rows, row(e.ID, oneLine(e.By, 128), strconv.Itoa(e.Records), strconv.Itoa(e.Versions), strconv.Itoa(e.Candidates), keys, done))
			}
			a.table(a.out, rows)
			return nil
		},
	}
	r.flags(c, true)
	return c
}

type receiptsDocument struct {
	Receipts []agent.ErasureReceipt `json:"receipts"`
}

func (a *app) memoryReconcileCommand() *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "Look for residue and unfinished work in memory now, and repair it",
		Long: "Has a worker do one round of what the schedule does by itself: end what has expired, purge\n" +
			"what is left of deleted memories, add missing indexes, and take up writes and lessons that\n" +
			"are due. Prints what was found.",
		Args: noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			if tenant != "" && !agent.ValidID(tenant) {
				return usagef("--tenant must be 1 to 128 ASCII letters, digits or . _ : @ -")
			}
			return a.reconcile(c.Context(), tenant)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "only this tenant (default: all)")
	return c
}

func (a *app) reconcile(ctx context.Context, tenant string) error {
	// The report is sealed.
	if err := a.requireContent(); err != nil {
		return err
	}
	if tenant != "" {
		if err := a.mustHaveMemory(ctx, tenant); err != nil {
			return err
		}
	}
	temporal, err := a.openEngine(ctx, a.settings)
	if err != nil {
		return err
	}
	defer temporal.Close()
	j := job{workflowID: a.reconcileID(), workflow: agent.WorkflowReconcileMemory, input: agent.ReconcileInput{Tenant: tenant}}
	if err := a.begin(ctx, temporal, j); err != nil {
		return err
	}
	var report agent.ReconcileReport
	if err := a.await(ctx, temporal, j, &report, nil); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.out, reconcileDocument{
			Tenants: report.Tenants, Expired: report.Expired, Residue: report.Residue, Missing: report.Missing,
			Writes: len(report.Writes), Lessons: len(report.Lessons), Reindex: report.Reindex, More: report.More,
		}, "  ")
	}
	looked := count(report.Tenants, "tenant")
	if tenant != "" {
		looked = "tenant " + tenant
	}
	fmt.Fprintf(a.out, "Looked at %s.\n", looked)
	a.table(a.out, [][]cell{
		{{"  expired", dim}, {text: count(report.Expired, "record")}},
		{{"  residue", dim}, {text: fmt.Sprintf("%s of deleted memories, purged", count(report.Residue, "piece"))}},
		{{"  missing", dim}, {text: fmt.Sprintf("%s without an index, which got one", count(report.Missing, "record"))}},
		{{"  taken up", dim}, {text: fmt.Sprintf("%s and %s that were due", count(len(report.Writes), "write"), count(len(report.Lessons), "lesson"))}},
	})
	if report.Reindex != "" {
		a.notice("The vectors of embedder %s are being computed; the ones before serve meanwhile.", oneLine(report.Reindex, 128))
	}
	if report.More {
		a.notice("There is more: ask again.")
	}
	return nil
}

// reconcileID is a task queue's own, as its schedule's: two deployments may share
// a namespace.
func (a *app) reconcileID() string {
	if a.settings.TaskQueue == agent.TaskQueue {
		return agent.ReconcileWorkflowID
	}
	return agent.ReconcileWorkflowID + "~" + a.settings.TaskQueue
}

type reconcileDocument struct {
	Tenants int `json:"tenants"`
	Expired int `json:"expired"`
	Residue int `json:"residue"`
	Missing int `json:"missing"`
	// Writes and Lessons count what was due and was taken up, the first of them.
	Writes  int `json:"writes"`
	Lessons int `json:"lessons"`
	// Reindex names the embedder whose vectors are being computed, if one is.
	Reindex string `json:"reindex,omitempty"`
	More    bool   `json:"more"`
}
