package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/vault"
)

func (a *app) encryptionKeyCommand() *cobra.Command {
	var rotate, promote bool
	variable := config.Variable("encryption.key")
	c := &cobra.Command{
		Use:   "encryption-key [--rotate | --promote]",
		Short: "Make the key under which the keys of all users are kept",
		Long: "Makes a new key-encryption key and prints it as a setting. Nothing is stored. Every worker\n" +
			"and starter of one database needs the same; in production a KMS keeps it instead\n" +
			"(" + config.Variable("encryption.key_uri") + ").\n\n" +
			"The key is changed in two roll-outs, so that programs with the setting before and after it\n" +
			"work beside one another. --rotate takes the present setting from " + variable + "\n" +
			"and adds a key that only opens: give the result to all programs. When the last one has it,\n" +
			"--promote makes the newest key the one that is used: give that result to all programs. What\n" +
			"is stored stays readable, and each user's keys go under the newest one as they are used.",
		Args: noArguments(""),
		// It reads no settings: one of them may be the broken key.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(*cobra.Command, []string) error {
			text, err := a.makeEncryptionKey(rotate, promote)
			if err != nil {
				return err
			}
			if a.json {
				if err := printJSON(a.out, map[string]string{variable: text}, "  "); err != nil {
					return err
				}
			} else {
				fmt.Fprintf(a.out, "%s=%s\n", variable, text)
				a.notice("%s is secret. Keep it: without it nothing that was stored can be read.", variable)
			}
			switch {
			case rotate:
				a.notice("It holds the keys before it as well, and the key that is new only opens so far. Give this setting to all programs first. When the last one has it: starter encryption-key --promote")
			case promote:
				a.notice("The newest key is used by programs with this setting; those with the setting that --rotate printed can read what it is used for, older ones cannot. Give it to all programs.")
			}
			return nil
		},
	}
	c.Flags().BoolVar(&rotate, "rotate", false, "add a key to the present setting, which only opens (first roll-out)")
	c.Flags().BoolVar(&promote, "promote", false, "use the newest key of the present setting (second roll-out)")
	return c
}

func (a *app) makeEncryptionKey(rotate, promote bool) (string, error) {
	flag, change := "--rotate", vault.RotateLocal
	switch {
	case rotate && promote:
		return "", usagef("say either --rotate or --promote: all programs need the setting of the first before that of the second")
	case promote:
		flag, change = "--promote", vault.PromoteLocal
	case !rotate:
		return vault.GenerateLocal()
	}
	lookup := a.lookupEnv
	if lookup == nil {
		lookup = os.LookupEnv
	}
	variable := config.Variable("encryption.key")
	present, _ := lookup(variable)
	if present == "" {
		return "", usagef("%s is not set: %s changes the present setting", variable, flag)
	}
	text, err := change(present)
	if err != nil {
		return "", usagef("%s: %v", variable, err)
	}
	return text, nil
}
