package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// maxListed is the most that one list shows.
const maxListed = 1000

func (a *app) listCommand() *cobra.Command {
	var filter db.RunFilter
	var status string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the runs of a tenant, newest first",
		Args:  noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			filter.Status = agent.Status(status)
			if err := checkFilter(filter); err != nil {
				return err
			}
			return a.list(c.Context(), filter)
		},
	}
	flags := c.Flags()
	flags.StringVar(&filter.Tenant, "tenant", defaultTenant, "tenant whose runs are listed")
	flags.StringVar(&filter.User, "user", "", "only runs of this user")
	flags.StringVar(&status, "status", "", "only runs in this status: "+strings.Join(statuses(), ", "))
	flags.StringVar(&filter.Agent, "agent", "", "only runs of this agent")
	flags.StringVar(&filter.Environment, "environment", "", "only runs in this environment")
	flags.StringVar(&filter.Conversation, "conversation", "", "only runs of this conversation")
	flags.IntVar(&filter.Limit, "limit", 20, fmt.Sprintf("at most so many, up to %d", maxListed))
	return c
}

func statuses() []string {
	var names []string
	for _, s := range agent.Statuses() {
		names = append(names, string(s))
	}
	return names
}

func checkFilter(f db.RunFilter) error {
	for _, flag := range []struct{ name, value string }{
		{"--tenant", f.Tenant}, {"--user", f.User}, {"--agent", f.Agent}, {"--environment", f.Environment}, {"--conversation", f.Conversation},
	} {
		if !agent.ValidID(flag.value) && (flag.value != "" || flag.name == "--tenant") {
			return usagef("%s must be 1 to 128 ASCII letters, digits or . _ : @ -", flag.name)
		}
	}
	if f.Status != "" && !slices.Contains(agent.Statuses(), f.Status) {
		return usagef("--status must be one of %s", strings.Join(statuses(), ", "))
	}
	if f.Limit < 1 || f.Limit > maxListed {
		return usagef("--limit must be between 1 and %d", maxListed)
	}
	return nil
}

func (a *app) list(ctx context.Context, filter db.RunFilter) error {
	database, err := a.database(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	runs, err := database.ListRuns(ctx, filter)
	if err != nil {
		return a.explain(err, "", filter.Tenant)
	}
	if a.json {
		document := listDocument{Runs: []runDocument{}}
		for _, s := range runs {
			document.Runs = append(document.Runs, a.summaryDocument(filter.Tenant, s))
		}
		return printJSON(a.out, document, "  ")
	}
	if len(runs) == 0 {
		a.notice("No runs of tenant %s fit.", filter.Tenant)
		return nil
	}
	rows := [][]cell{{{"RUN", dim}, {"STATUS", dim}, {"REASON", dim}, {"AGENT", dim}, {"USER", dim}, {"STEPS", dim}, {"TOOLS", dim}, {"TOKENS", dim}, {"COST", dim}, {"CREATED", dim}, {"TOOK", dim}}}
	for _, s := range runs {
		price := dollars(s.CostMicros)
		if s.Unpriced {
			price = "unknown"
		}
		rows = append(rows, []cell{
			{text: s.RunID},
			{string(s.Status), statusStyle(s.Status)},
			{text: string(s.Reason)},
			{text: s.Agent},
			{text: s.User},
			{text: strconv.Itoa(summarySteps(s))},
			{text: strconv.Itoa(s.ToolCalls)},
			{text: strconv.FormatInt(s.BilledTokens, 10)},
			{text: price},
			{text: clock(s.CreatedAt)},
			{text: took(s.CreatedAt, s.EndedAt)},
		})
	}
	a.table(a.out, rows)
	for _, s := range runs {
		if s.Status == agent.StatusWaitingConfirmation {
			fmt.Fprintln(a.out, a.paint(bold, s.RunID+" waits for a person: "+howToApprove(filter.Tenant, s.RunID)))
		}
	}
	return nil
}
