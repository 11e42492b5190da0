package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/vault"
)

// memories is what the starter reads of long-term memory, and who takes part in
// groups and projects; *db.DB implements it. It reads on behalf of a user or,
// without one, of an operator of the tenant. What somebody may not see is
// db.ErrNotFound, as what is not there.
type memories interface {
	Memories(ctx context.Context, tenant, user string, f db.MemoryFilter) ([]db.MemoryRecord, error)
	Memory(ctx context.Context, tenant, user, id string) (db.MemoryRecord, error)
	TraceMemory(ctx context.Context, tenant, user, id string) (db.MemoryTrace, error)
	RunMemories(ctx context.Context, tenant, user, runID string) ([]db.MemoryInfluence, error)
	MemoryCandidates(ctx context.Context, tenant, user string, state agent.MemoryState, limit int) ([]db.MemoryCandidate, error)
	CandidateOfTenant(ctx context.Context, tenant, id string) (db.MemoryCandidate, error)
	Erasures(ctx context.Context, tenant, user string) ([]agent.ErasureReceipt, error)
	Participants(ctx context.Context, tenant string, scope agent.MemoryScope) ([]db.Participant, error)
	AddParticipant(ctx context.Context, tenant string, scope agent.MemoryScope, user, by string) error
	RemoveParticipant(ctx context.Context, tenant string, scope agent.MemoryScope, user, by string) error
	ListRuns(ctx context.Context, filter db.RunFilter) ([]db.RunSummary, error)
	LookUpKeys(ctx context.Context, owner vault.Owner) (*vault.Keys, error)
	MemoryTenants(ctx context.Context) ([]string, error)
	Close()
}

func openMemories(ctx context.Context, settings config.Config) (memories, error) {
	database, err := openDatabase(ctx, settings)
	if err != nil {
		return nil, err
	}
	return database, nil
}

func (a *app) memoryCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "memory",
		Short: "Show, correct, export and erase what is remembered",
		Long: "Shows what is remembered in the long term, where it comes from and what it influenced, and\n" +
			"lets people correct, decide about, export and erase it. It acts for the --user that it is\n" +
			"given: let only programs that know who their user is call it. What a user may not see is\n" +
			"not found.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command %q; see %s --help", args[0], c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.memoryListCommand(), a.memoryShowCommand(), a.memoryTraceCommand(), a.memoryExportCommand(),
		a.memoryCorrectCommand(), a.memoryForgetCommand(), a.memoryEraseCommand(), a.memoryReceiptsCommand(),
		a.memoryReviewCommand(), a.memoryConfirmCommand(),
		a.participantsCommand(), a.memoryReconcileCommand(), a.memoryPolicyCommand())
	return c
}

// remembered is whose memory a command is about.
type remembered struct{ tenant, user string }

// flags adds the flags; required says that there is no operator's view.
func (r *remembered) flags(c *cobra.Command, required bool) {
	usage := "user whose memory it is (default: any, the operator's view)"
	if required {
		usage = "user whose memory it is (required)"
	}
	c.Flags().StringVar(&r.tenant, "tenant", defaultTenant, "tenant of the user")
	c.Flags().StringVar(&r.user, "user", "", usage)
}

func (r *remembered) check(required bool) error {
	switch {
	case required && r.user == "":
		return usagef("--user is missing: say whose memory it is")
	case !agent.ValidID(r.tenant), r.user != "" && !agent.ValidID(r.user):
		return usagef("--tenant and --user must be 1 to 128 ASCII letters, digits or . _ : @ -")
	}
	return nil
}

// args names the two as flags, to be typed behind another command.
func (r remembered) args() string {
	if r.user == "" {
		return "--tenant " + r.tenant
	}
	return "--tenant " + r.tenant + " --user " + r.user
}

// oneMemory checks the ID argument.
func oneMemory(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s needs one ID, got %d arguments; see starter memory list", c.CommandPath(), len(args))
	}
	if !agent.ValidID(args[0]) {
		return usagef("the ID must be 1 to 128 ASCII letters, digits or . _ : @ -")
	}
	return nil
}

// memories opens memory for a command that shows or changes its content.
func (a *app) memories(ctx context.Context) (memories, error) {
	if err := a.requireContent(); err != nil {
		return nil, err
	}
	return a.openMemories(ctx, a.settings)
}

// readMemory has work read memory within its time. missing says what
// db.ErrNotFound means.
func (a *app) readMemory(ctx context.Context, missing string, work func(context.Context, memories) error) error {
	m, err := a.memories(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	ctx, cancel := context.WithTimeout(ctx, 4*callTimeout)
	defer cancel()
	return a.explainMemory(work(ctx, m), missing)
}

// explainMemory turns a failed read into what a person can act on.
func (a *app) explainMemory(err error, missing string) error {
	switch {
	case errors.Is(err, db.ErrNotFound):
		return usagef("%s", missing)
	case errors.Is(err, db.ErrKeysDestroyed), errors.Is(err, db.ErrErased):
		return usagef("the user was erased: the keys are destroyed, and nobody can read what was remembered any more")
	case errors.Is(err, db.ErrSealed):
		return &exit{exitRunFailed, "a stored memory cannot be decrypted: it was damaged or altered; find out who wrote to the database"}
	}
	return a.explain(err, "", "")
}

// noMemory is what is said of a record that is not there, or not for the user.
func (r remembered) noMemory(id string) string {
	if r.user == "" {
		return fmt.Sprintf("there is no memory %s in tenant %s; see starter memory list --tenant %s --user USER", id, r.tenant, r.tenant)
	}
	return fmt.Sprintf("there is no memory %s in tenant %s that user %s may see; see starter memory list %s", id, r.tenant, r.user, r.args())
}

// roomOf is where a person acts on a record of a scope: the record is seen from
// there, and nothing else has to be.
func (r remembered) roomOf(environment string, scope agent.MemoryScope) agent.MemoryRoom {
	room := agent.MemoryRoom{Scope: agent.Scope{Tenant: r.tenant, User: r.user, Environment: environment}}
	switch scope.Kind {
	case agent.MemoryOfUser:
	case agent.MemoryOfConversation:
		room.Conversation = scope.ID
	case agent.MemoryOfGroup:
		room.Group = scope.ID
	case agent.MemoryOfProject:
		room.Project = scope.ID
	case agent.MemoryOfAgent:
		room.Agent = scope.ID
	}
	return room
}

// pageOfMemories is how many records, with all their versions, are read at a time.
const pageOfMemories = 500

// allMemories reads every page.
func allMemories(ctx context.Context, m memories, r remembered, f db.MemoryFilter) ([]db.MemoryRecord, error) {
	var all []db.MemoryRecord
	f.Limit = pageOfMemories
	for {
		page, err := m.Memories(ctx, r.tenant, r.user, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		records := 0
		for _, record := range page {
			if record.ID != f.After {
				records, f.After = records+1, record.ID
			}
		}
		if records < pageOfMemories {
			return all, nil
		}
	}
}

// inForceFirst orders what is in force before what was, the newest first.
func inForceFirst(records []db.MemoryRecord) {
	slices.SortStableFunc(records, func(a, b db.MemoryRecord) int {
		if x, y := a.Status == db.MemoryActive, b.Status == db.MemoryActive; x != y {
			if x {
				return -1
			}
			return 1
		}
		return b.WrittenAt.Compare(a.WrittenAt)
	})
}

// moment is a time that may be missing.
func moment(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
