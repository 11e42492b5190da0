package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
)

func (a *app) memoryPolicyCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "policy [--check FILE]",
		Short: "Show the memory policy, or check one before workers get it",
		Long: "Shows version, digest and keys of the memory policy that the settings name, or with --check\n" +
			"of the one in a file. A file that workers would refuse is refused, and every fault is named.",
		Args: noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("check") {
				file = a.settings.Memory.Policy
			}
			return a.memoryPolicy(file, c.Flags().Changed("check"))
		},
	}
	c.Flags().StringVar(&file, "check", "", "file with a policy to check")
	return c
}

func (a *app) memoryPolicy(file string, check bool) error {
	policy := memorypolicy.Default()
	from := "built in"
	if file != "" || check {
		from = file
		text, err := os.ReadFile(file)
		if err != nil {
			return usagef("the memory policy cannot be read: %v", err)
		}
		if policy, err = memorypolicy.Parse(text); err != nil {
			return &exit{exitRunFailed, fmt.Sprintf("%s: %v", file, err)}
		}
	}
	if a.json {
		return printJSON(a.out, toPolicyDocument(policy, from), "  ")
	}
	a.table(a.out, [][]cell{
		{{"policy", dim}, {policy.Version(), bold}},
		{{"from", dim}, {text: from}},
		{{"digest", dim}, {text: policy.Digest()}},
	})
	a.heading("Keys")
	rows := [][]cell{{{"  KEY", dim}, {"KIND", dim}, {"WRITTEN", dim}, {"KEPT", dim}, {"SCOPES", dim}, {"SOURCES", dim}}}
	for _, k := range policy.Keys() {
		rows = append(rows, row("  "+oneLine(k.Name, 64), string(k.Kind), string(k.Mode), retention(k.Retention), joined(k.Scopes), joined(k.Sources)))
	}
	a.table(a.out, rows)
	return nil
}

func joined[T ~string](list []T) string {
	names := make([]string, len(list))
	for i, name := range list {
		names[i] = string(name)
	}
	return strings.Join(names, ", ")
}

// retention is how long something is kept, in days where it is whole days.
func retention(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == 0:
		return "for good"
	case d%day == 0:
		return count(int(d/day), "day")
	}
	return d.String()
}

type policyDocument struct {
	Version string        `json:"version"`
	Digest  string        `json:"digest"`
	From    string        `json:"from"`
	Keys    []keyDocument `json:"keys"`
}

type keyDocument struct {
	Name        string                   `json:"name"`
	Kind        agent.MemoryKind         `json:"kind"`
	Description string                   `json:"description"`
	Purpose     string                   `json:"purpose"`
	Schema      json.RawMessage          `json:"schema"`
	Identity    []string                 `json:"identity"`
	Scopes      []agent.MemoryScopeKind  `json:"scopes"`
	WriteMode   memorypolicy.WriteMode   `json:"write_mode"`
	Retention   int64                    `json:"retention_seconds,omitempty"`
	Sources     []agent.MemorySourceType `json:"sources"`
	FromModel   bool                     `json:"from_model"`
}

func toPolicyDocument(p *memorypolicy.Policy, from string) policyDocument {
	document := policyDocument{Version: p.Version(), Digest: p.Digest(), From: from, Keys: []keyDocument{}}
	for _, k := range p.Keys() {
		document.Keys = append(document.Keys, keyDocument{
			Name: k.Name, Kind: k.Kind, Description: k.Description, Purpose: k.Purpose, Schema: k.Schema, Identity: append([]string{}, k.Identity...),
			Scopes: k.Scopes, WriteMode: k.Mode, Retention: int64(k.Retention / time.Second), Sources: k.Sources, FromModel: k.FromModel,
		})
	}
	return document
}
