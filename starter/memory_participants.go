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
)

// circle is a group or project.
type circle struct{ tenant, group, project string }

func (c *circle) flags(command *cobra.Command) {
	command.Flags().StringVar(&c.tenant, "tenant", defaultTenant, "tenant of the group or project")
	command.Flags().StringVar(&c.group, "group", "", "the group")
	command.Flags().StringVar(&c.project, "project", "", "the project")
}

func (c *circle) check() error {
	switch {
	case (c.group == "") == (c.project == ""):
		return usagef("say either --group or --project")
	case !agent.ValidID(c.tenant), !agent.ValidID(c.scope().ID):
		return usagef("--tenant, --group and --project must be 1 to 128 ASCII letters, digits or . _ : @ -")
	}
	return nil
}

func (c *circle) scope() agent.MemoryScope {
	if c.group != "" {
		return agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: c.group}
	}
	return agent.MemoryScope{Kind: agent.MemoryOfProject, ID: c.project}
}

func (a *app) participantsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "participants",
		Short: "Say who takes part in a group or project",
		Long: "Says who takes part in a group or project: participants alone run agents there, and see what is\n" +
			"remembered there (starter memory list --group). It is asked at each read and write. Who is removed\n" +
			"sees nothing of it any more, but what comes from the user: that stays the user's to see and to\n" +
			"have forgotten.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command %q; see %s --help", args[0], c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.participantCommand(true), a.participantCommand(false), a.listParticipantsCommand())
	return c
}

type participantDocument struct {
	Tenant    string                `json:"tenant"`
	Kind      agent.MemoryScopeKind `json:"kind"`
	ID        string                `json:"id"`
	User      string                `json:"user"`
	AddedBy   string                `json:"added_by,omitempty"`
	AddedAt   time.Time             `json:"added_at,omitzero"`
	RemovedBy string                `json:"removed_by,omitempty"`
	RemovedAt *time.Time            `json:"removed_at,omitempty"`
}

func (a *app) participantCommand(add bool) *cobra.Command {
	var of circle
	var user, by string
	verb, short, done := "add", "Let a user take part", "takes part in"
	if !add {
		verb, short, done = "remove", "Let a user take part no more", "takes no part any more in"
	}
	c := &cobra.Command{
		Use:   verb + " (--group GROUP | --project PROJECT) --user USER --by YOU",
		Short: short,
		Args:  noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			switch err := of.check(); {
			case err != nil:
				return err
			case user == "" || by == "":
				return usagef("--user and --by are needed: say who takes part, and who says so")
			case !agent.ValidID(user) || !agent.ValidID(by):
				return usagef("--user and --by must be 1 to 128 ASCII letters, digits or . _ : @ -")
			}
			scope := of.scope()
			err := a.withMemories(c.Context(), fmt.Sprintf("user %s takes no part in %s %s of tenant %s", user, scope.Kind, scope.ID, of.tenant), func(ctx context.Context, m memories) error {
				if add {
					return m.AddParticipant(ctx, of.tenant, scope, user, by)
				}
				return m.RemoveParticipant(ctx, of.tenant, scope, user, by)
			})
			if err != nil {
				return err
			}
			if a.json {
				document := participantDocument{Tenant: of.tenant, Kind: scope.Kind, ID: scope.ID, User: user, AddedBy: by}
				if !add {
					document.AddedBy, document.RemovedBy = "", by
				}
				return printJSON(a.out, document, "  ")
			}
			fmt.Fprintf(a.out, "User %s %s %s %s of tenant %s.\n", user, done, scope.Kind, scope.ID, of.tenant)
			return nil
		},
	}
	of.flags(c)
	c.Flags().StringVar(&user, "user", "", "user who takes part (required)")
	c.Flags().StringVar(&by, "by", "", "operator: who you are (required)")
	return c
}

// mustTakePartIn refuses what only participants may do with a memory of theirs; the
// worker would, and not say why.
func (a *app) mustTakePartIn(ctx context.Context, m memories, r remembered, scope agent.MemoryScope, otherwise string) error {
	if scope.Kind != agent.MemoryOfGroup && scope.Kind != agent.MemoryOfProject {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	found, err := m.Participants(ctx, r.tenant, scope)
	if err != nil {
		return a.explainMemory(err, "")
	}
	if !slices.ContainsFunc(found, func(p db.Participant) bool { return p.User == r.user && p.RemovedAt == nil }) {
		return usagef("user %s takes no part in %s %s any more: %s", r.user, scope.Kind, scope.ID, otherwise)
	}
	return nil
}

// mustTakePart refuses a run in a group or project in which its user takes no part:
// the worker would, after the run was shown as started.
func (a *app) mustTakePart(ctx context.Context, request agent.RunRequest) error {
	if a.requireDatabase() != nil {
		return nil // a starter without one leaves it to the worker
	}
	room := agent.MemoryRoom{Group: request.Group, Project: request.Project}
	for _, scope := range room.Scopes() {
		err := a.withMemories(ctx, "", func(ctx context.Context, m memories) error {
			found, err := m.Participants(ctx, request.Tenant, scope)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(found, func(p db.Participant) bool { return p.User == request.User && p.RemovedAt == nil }) {
				return usagef("user %s takes no part in %s %s of tenant %s, so no run was started; an operator lets the user in: starter memory participants add --%s %s --tenant %s --user %s --by YOU",
					request.User, scope.Kind, scope.ID, request.Tenant, scope.Kind, scope.ID, request.Tenant, request.User)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// withMemories is readMemory for what is no content and needs no key.
func (a *app) withMemories(ctx context.Context, missing string, work func(context.Context, memories) error) error {
	if err := a.requireDatabase(); err != nil {
		return err
	}
	m, err := a.openMemories(ctx, a.settings)
	if err != nil {
		return err
	}
	defer m.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	err = work(ctx, m)
	if errors.Is(err, db.ErrConflict) {
		return &exit{exitRunFailed, "it was changed at the same time; ask again"}
	}
	return a.explainMemory(err, missing)
}

func (a *app) listParticipantsCommand() *cobra.Command {
	var of circle
	c := &cobra.Command{
		Use:   "list (--group GROUP | --project PROJECT)",
		Short: "List who takes part, and who did",
		Args:  noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := of.check(); err != nil {
				return err
			}
			scope := of.scope()
			var found []db.Participant
			nobody := fmt.Sprintf("nobody takes part in %s %s of tenant %s", scope.Kind, scope.ID, of.tenant)
			err := a.withMemories(c.Context(), nobody, func(ctx context.Context, m memories) (err error) {
				found, err = m.Participants(ctx, of.tenant, scope)
				return err
			})
			if err != nil {
				return err
			}
			if a.json {
				document := participantsDocument{Participants: []participantDocument{}}
				for _, p := range found {
					document.Participants = append(document.Participants, participantDocument{of.tenant, scope.Kind, scope.ID, p.User, p.AddedBy, p.AddedAt, p.RemovedBy, p.RemovedAt})
				}
				return printJSON(a.out, document, "  ")
			}
			if len(found) == 0 {
				a.notice("Nobody takes part in %s %s of tenant %s.", scope.Kind, scope.ID, of.tenant)
				return nil
			}
			rows := [][]cell{{{"USER", dim}, {"ADDED", dim}, {"BY", dim}, {"REMOVED", dim}, {"BY", dim}}}
			for _, p := range found {
				rows = append(rows, row(p.User, clock(p.AddedAt), oneLine(p.AddedBy, 128), clock(moment(p.RemovedAt)), oneLine(p.RemovedBy, 128)))
			}
			a.table(a.out, rows)
			return nil
		},
	}
	of.flags(c)
	return c
}

type participantsDocument struct {
	Participants []participantDocument `json:"participants"`
}
