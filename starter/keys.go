package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// subjectFlags say whose keys.
type subjectFlags struct{ tenant, user string }

func (s *subjectFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&s.tenant, "tenant", defaultTenant, "tenant of the user")
	c.Flags().StringVar(&s.user, "user", "", "user whose keys they are (required)")
}

func (s *subjectFlags) check() error {
	if s.user == "" {
		return usagef("--user is missing: say whose keys")
	}
	if !agent.ValidID(s.tenant) || !agent.ValidID(s.user) {
		return usagef("--tenant and --user must be 1 to 128 ASCII letters, digits or . _ : @ -")
	}
	return nil
}

func (s *subjectFlags) missing() string {
	return fmt.Sprintf("user %s of tenant %s has no keys: nothing was ever stored for this user", s.user, s.tenant)
}

func (a *app) keysCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "keys",
		Short: "Give a user new keys, or destroy them and with them all that the user stored",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command %q; see %s --help", args[0], c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.rotateKeysCommand(), a.destroyKeysCommand())
	return c
}

type keysDocument struct {
	// Tenant and User are empty for the deployment's keys.
	Tenant      string `json:"tenant"`
	User        string `json:"user"`
	Rotated     bool   `json:"rotated,omitempty"`
	Destroyed   bool   `json:"destroyed,omitempty"`
	DestroyedBy string `json:"destroyed_by,omitempty"`
}

func (a *app) rotateKeysCommand() *cobra.Command {
	var s subjectFlags
	var deployment bool
	c := &cobra.Command{
		Use:   "rotate (--user NAME | --deployment)",
		Short: "Give a user a new key",
		Long: "Gives a user a new key, under which everything is encrypted from now on. What is stored stays\n" +
			"readable. Messages are encrypted anew as steps of runs read them; all else that is stored, and\n" +
			"Temporal's histories, stay under the older key, which is kept. --deployment gives a new key\n" +
			"for what belongs to no user: decisions and identifiers in histories.",
		Args: noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case deployment && (s.user != "" || c.Flags().Changed("tenant")):
				return usagef("say either --user or --deployment")
			case deployment:
				s.tenant = ""
			default:
				if err := s.check(); err != nil {
					return err
				}
			}
			if err := a.requireContent(); err != nil {
				return err
			}
			return a.rotateKeys(c.Context(), s)
		},
	}
	s.flags(c)
	c.Flags().BoolVar(&deployment, "deployment", false, "the keys for what belongs to no user")
	return c
}

func (a *app) rotateKeys(ctx context.Context, s subjectFlags) error {
	who := fmt.Sprintf("User %s of tenant %s", s.user, s.tenant)
	missing := s.missing()
	if s.user == "" {
		who, missing = "The deployment", "the deployment has no keys: nothing was ever stored"
	}
	err := a.change(ctx, missing, func(ctx context.Context, r records) error {
		return explainConflict(r.RotateKeys(ctx, s.tenant, s.user), "the keys were changed at the same time; ask again")
	})
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.out, keysDocument{Tenant: s.tenant, User: s.user, Rotated: true}, "  ")
	}
	fmt.Fprintf(a.out, "%s has a new key.\n", who)
	return nil
}

// lost is what the destruction of keys takes away, and what it leaves.
const lost = `This destroys the keys of user %s of tenant %s for good. At once, nobody can read any more what is
stored for this user, in Temporal's histories as well:
  messages and answers, tool arguments and results, plans and notes, session facts, summaries
What stays are identifiers and figures: which runs there were, when, what they cost, who approved what.
A backup that holds the table subject_key holds these keys: what it has stays readable until it is
gone, and after a restore from it the keys have to be destroyed again.
Nobody can undo it.
`

func (a *app) destroyKeysCommand() *cobra.Command {
	var s subjectFlags
	var by string
	var sure bool
	c := &cobra.Command{
		Use:   "destroy --user NAME --by YOU",
		Short: "Destroy a user's keys: all of the user's content becomes unreadable for good",
		Long: "Destroys a user's keys, and with them all that is stored for the user, histories included.\n" +
			"Backups that hold the table subject_key hold the keys: their copies stay readable until they\n" +
			"are gone, and after a restore from one the keys have to be destroyed again.\n" +
			"Says what is lost and asks; without a terminal, --yes answers. While a run of the user is\n" +
			"going on, or a write of the user has an unknown outcome, nothing is destroyed.",
		Args: noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			switch {
			case by == "":
				return usagef("--by is missing: say who destroys")
			case !agent.ValidID(by):
				return usagef("--by must be 1 to 128 ASCII letters, digits or . _ : @ -")
			case !sure && !a.canAsk():
				return usagef("nobody can be asked here: give --yes to destroy the keys of user %s of tenant %s for good", s.user, s.tenant)
			}
			return a.destroyKeys(c.Context(), s, by, sure)
		},
	}
	s.flags(c)
	c.Flags().StringVar(&by, "by", "", "operator: who you are (required)")
	c.Flags().BoolVar(&sure, "yes", false, "do not ask")
	return c
}

func (a *app) destroyKeys(ctx context.Context, s subjectFlags, by string, sure bool) error {
	if err := a.requireDatabase(); err != nil {
		return err
	}
	if !sure {
		fmt.Fprintf(a.errOut, lost, s.user, s.tenant)
		switch answer, err := a.ask(ctx, "Type the user's name to destroy them: "); {
		case err != nil:
			a.notice("\nNothing was destroyed.")
			return err
		case answer != strings.ToLower(s.user):
			return &exit{exitRunFailed, "nothing was destroyed"}
		}
	}
	err := a.change(ctx, s.missing(), func(ctx context.Context, r records) error {
		err := r.DestroyKeys(ctx, s.tenant, s.user, by)
		if errors.Is(err, db.ErrUnsettledWrites) {
			return &exit{exitRunFailed, fmt.Sprintf("nobody knows of a write of user %s whether it happened, and without the keys nobody could find out: nothing was destroyed; "+
				"settle it first (starter unsettled --tenant %s --user %s, then starter settle)", s.user, s.tenant, by)}
		}
		return explainConflict(err,
			"a run of user %s is going on: nothing was destroyed; wait for its end, or stop it (starter list --tenant %s --user %s)", s.user, s.tenant, s.user)
	})
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.out, keysDocument{Tenant: s.tenant, User: s.user, Destroyed: true, DestroyedBy: by}, "  ")
	}
	fmt.Fprintf(a.out, "The keys of user %s of tenant %s are destroyed.\n", s.user, s.tenant)
	return nil
}
