package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// maxProposals is how many proposals are read.
const maxProposals = 1000

var memoryKinds = []agent.MemoryKind{agent.MemoryPreference, agent.MemoryFact, agent.MemoryTask, agent.MemorySummary, agent.MemoryExperience}

func (a *app) memoryListCommand() *cobra.Command {
	var r remembered
	var filter db.MemoryFilter
	var kind, group, project string
	var rejected bool
	c := &cobra.Command{
		Use:   "list --user USER",
		Short: "Show what is remembered of a user, why, where it is seen and how long it is kept",
		Long: "Shows what is remembered of a user: what is in force, with --past what was, and proposals about which\n" +
			"nobody has decided. All of it is content. With --rejected it shows instead what was proposed and is\n" +
			"not remembered, and the rule that refused it; its content was not kept. With --group or --project it\n" +
			"shows what is remembered there, if the user takes part in it.",
		Args: noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			filter.Kind = agent.MemoryKind(kind)
			switch err := r.check(true); {
			case err != nil:
				return err
			case kind != "" && !filter.Kind.Valid():
				return usagef("--kind must be one of %s", kindNames())
			case filter.Environment != "" && !agent.ValidID(filter.Environment), filter.Key != "" && !agent.ValidID(filter.Key):
				return usagef("--environment and --key must be 1 to 128 ASCII letters, digits or . _ : @ -")
			case rejected && filter.Past:
				return usagef("say either --past or --rejected")
			case group != "" && project != "", rejected && group+project != "":
				return usagef("say one of --group, --project and --rejected")
			case group+project != "":
				of := circle{tenant: r.tenant, group: group, project: project}
				if err := of.check(); err != nil {
					return err
				}
				filter.Shared = of.scope()
				return a.listShared(c.Context(), r, filter)
			case rejected:
				return a.listRefused(c.Context(), r, filter)
			}
			return a.listMemories(c.Context(), r, filter)
		},
	}
	r.flags(c, true)
	c.Flags().StringVar(&filter.Environment, "environment", "", "only what holds in this environment")
	c.Flags().StringVar(&kind, "kind", "", "only this kind: "+kindNames())
	c.Flags().StringVar(&filter.Key, "key", "", "only under this key")
	c.Flags().BoolVar(&filter.Past, "past", false, "show what is no longer in force as well")
	c.Flags().StringVar(&group, "group", "", "show what is remembered in this group instead")
	c.Flags().StringVar(&project, "project", "", "show what is remembered in this project instead")
	c.Flags().BoolVar(&rejected, "rejected", false, "show the proposals that are not remembered, and why")
	return c
}

func kindNames() string {
	names := make([]string, len(memoryKinds))
	for i, kind := range memoryKinds {
		names[i] = string(kind)
	}
	return strings.Join(names, ", ")
}

func (a *app) listMemories(ctx context.Context, r remembered, filter db.MemoryFilter) error {
	var records []db.MemoryRecord
	var proposals []db.MemoryCandidate
	var ends [][]endedMemory
	err := a.readMemory(ctx, "there is no such user", func(ctx context.Context, m memories) (err error) {
		if records, err = allMemories(ctx, m, r, filter); err != nil {
			return err
		}
		if proposals, err = a.openProposals(ctx, m, r, filter); err != nil {
			return err
		}
		ends, err = endsOf(ctx, m, r, proposals)
		return err
	})
	if err != nil {
		return err
	}
	inForceFirst(records)
	if a.json {
		document := memoryListDocument{Memories: toMemoryDocuments(r.tenant, records), Proposals: toProposalDocuments(proposals)}
		for i := range document.Memories {
			document.Memories[i].Policy = nil
		}
		for i := range document.Proposals {
			document.Proposals[i].Policy, document.Proposals[i].Ends = nil, toEndedDocuments(ends[i])
		}
		return printJSON(a.out, document, "  ")
	}
	for i, record := range records {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		a.printMemory(record)
	}
	if len(proposals) > 0 {
		if len(records) > 0 {
			fmt.Fprintln(a.out)
		}
		fmt.Fprintln(a.out, a.paint(bold, "Proposals"))
		for i, p := range proposals {
			a.printProposal(p, ends[i])
			if how := howToDecide(p); how != "" {
				fmt.Fprintln(a.out, a.paint(bold, "  "+how))
			}
		}
	}
	if len(records) == 0 && len(proposals) == 0 {
		a.notice("Nothing%s is remembered of user %s in tenant %s.", thatFits(filter), r.user, r.tenant)
	}
	return nil
}

// listShared shows a participant what is remembered in a group or project.
func (a *app) listShared(ctx context.Context, r remembered, filter db.MemoryFilter) error {
	scope := filter.Shared
	var records []db.MemoryRecord
	missing := fmt.Sprintf("user %s takes no part in %s %s of tenant %s; an operator lets the user in: starter memory participants add", r.user, scope.Kind, scope.ID, r.tenant)
	err := a.readMemory(ctx, missing, func(ctx context.Context, m memories) (err error) {
		records, err = allMemories(ctx, m, r, filter)
		return err
	})
	if err != nil {
		return err
	}
	inForceFirst(records)
	if a.json {
		document := memoryListDocument{Memories: toMemoryDocuments(r.tenant, records), Proposals: []proposalDocument{}}
		for i := range document.Memories {
			document.Memories[i].Policy = nil
		}
		return printJSON(a.out, document, "  ")
	}
	for i, record := range records {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		a.printMemory(record)
	}
	if len(records) == 0 {
		a.notice("Nothing%s is remembered in %s %s of tenant %s.", thatFits(filter), scope.Kind, scope.ID, r.tenant)
	}
	return nil
}

// openProposals reads what is to be decided and fits the filter, first what waits
// for the user.
func (a *app) openProposals(ctx context.Context, m memories, r remembered, f db.MemoryFilter) ([]db.MemoryCandidate, error) {
	found, err := m.MemoryCandidates(ctx, r.tenant, r.user, "", maxProposals)
	if err != nil {
		return nil, err
	}
	if len(found) == maxProposals {
		a.notice("There may be more proposals than the first %d.", maxProposals)
	}
	found = slices.DeleteFunc(found, func(c db.MemoryCandidate) bool { return !fits(c, f) })
	order := []agent.MemoryState{agent.MemoryWaitingConfirmation, agent.MemoryWaitingReview, agent.MemoryProposed}
	slices.SortStableFunc(found, func(a, b db.MemoryCandidate) int { return slices.Index(order, a.State) - slices.Index(order, b.State) })
	return found, nil
}

func fits(c db.MemoryCandidate, f db.MemoryFilter) bool {
	return (f.Environment == "" || c.Room.Scope.Environment == f.Environment) && (f.Kind == "" || c.Kind == f.Kind) && (f.Key == "" || c.Key == f.Key)
}

// thatFits names a filter behind "nothing": what does not fit may be there.
func thatFits(f db.MemoryFilter) string {
	var flags []string
	for _, flag := range [][2]string{{"--environment", f.Environment}, {"--kind", string(f.Kind)}, {"--key", f.Key}} {
		if flag[1] != "" {
			flags = append(flags, flag[0]+" "+flag[1])
		}
	}
	if len(flags) == 0 {
		return ""
	}
	return " that fits " + strings.Join(flags, " ")
}

// endsOf reads what each proposal would end, as far as the user may see it.
func endsOf(ctx context.Context, m memories, r remembered, proposals []db.MemoryCandidate) ([][]endedMemory, error) {
	list := make([][]endedMemory, len(proposals))
	for i, c := range proposals {
		if c.Content == nil || c.Content.Plan == nil {
			continue
		}
		var err error
		if list[i], err = readEnded(ctx, m, r.tenant, r.user, c.Content.Plan.Ends); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// howToDecide is what the one types who is waited for.
func howToDecide(c db.MemoryCandidate) string {
	switch c.State {
	case agent.MemoryWaitingConfirmation:
		return fmt.Sprintf("starter memory confirm %s --tenant %s --user %s (or with --decline)", c.ID, c.Room.Scope.Tenant, c.Room.Scope.User)
	case agent.MemoryWaitingReview:
		return fmt.Sprintf("starter memory review --tenant %s --user YOU --approve %s (or --decline)", c.Room.Scope.Tenant, c.ID)
	case agent.MemoryProposed, agent.MemoryStored, agent.MemoryMerged, agent.MemoryRejected, agent.MemoryDeclined, agent.MemoryExpired, agent.MemoryNotSaved:
	}
	return ""
}

type memoryListDocument struct {
	Memories  []memoryDocument   `json:"memories"`
	Proposals []proposalDocument `json:"proposals"`
}

func (a *app) memoryShowCommand() *cobra.Command {
	var r remembered
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show all that is known of a memory, every version of it",
		Args:  oneMemory,
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.check(false); err != nil {
				return err
			}
			return a.showMemory(c.Context(), r, args[0])
		},
	}
	r.flags(c, false)
	return c
}

func (a *app) showMemory(ctx context.Context, r remembered, id string) error {
	var trace db.MemoryTrace
	err := a.readMemory(ctx, "", func(ctx context.Context, m memories) (err error) {
		if trace, err = m.TraceMemory(ctx, r.tenant, r.user, id); err != nil {
			return r.missing(ctx, m, id, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.out, memoryShowDocument{ID: id, Versions: toMemoryDocuments(r.tenant, trace.Versions)}, "  ")
	}
	for i, record := range trace.Versions {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		a.printRecord(r.tenant, record)
	}
	fmt.Fprintln(a.out, "\n"+a.paint(dim, fmt.Sprintf("Which runs it influenced: starter memory trace %s %s", id, r.args())))
	return nil
}

type memoryShowDocument struct {
	ID string `json:"id"`
	// Versions are the newest first.
	Versions []memoryDocument `json:"versions"`
}
