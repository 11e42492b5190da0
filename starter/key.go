package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/internal/config"
)

func (a *app) approvalKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "approval-key",
		Short: "Make a new pair of keys for approvals",
		Long: "Makes a new pair of keys and prints it as two settings, the secret one first. Nothing is\n" +
			"stored. To change keys: give the workers both public keys, separated by a comma, then the\n" +
			"approvers' programs the new private key, then take the old public key away.",
		Args: noArguments(""),
		// It reads no settings: one of them may be the broken key.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(*cobra.Command, []string) error {
			key := approval.NewKey()
			private, public := config.Variable("approval.key"), config.Variable("approval.public_keys")
			if a.json {
				return printJSON(a.out, map[string]string{private: key.Encode(), public: key.Public()}, "  ")
			}
			fmt.Fprintf(a.out, "%s=%s\n%s=%s\n", private, key.Encode(), public, key.Public())
			a.notice("%s is secret: it belongs to programs in which people decide, and never to a worker.", private)
			a.notice("%s belongs to the workers.", public)
			return nil
		},
	}
}
