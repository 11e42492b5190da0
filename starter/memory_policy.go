package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/memorypolicy/detect"
)

func (a *app) memoryPolicyCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "policy [--check FILE]",
		Short: "Show the memory policy, or check one before workers get it",
		Long: "Shows the memory policy that this program's settings name, or with --check the one in a file:\n" +
			"its keys and how they are written, what is never written, and who may read what. Workers decide\n" +
			"by the policy of their own settings. A file that workers would refuse is refused, and every\n" +
			"fault is named.",
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
	var warning string
	if file != "" || check {
		from = file
		text, err := os.ReadFile(file)
		if err != nil {
			return usagef("the memory policy cannot be read: %v", err)
		}
		if policy, err = memorypolicy.Parse(text); err != nil {
			return &exit{exitRunFailed, fmt.Sprintf("%s: %v", file, err)}
		}
		warning = sameVersion(policy)
	}
	if a.json {
		return printJSON(a.out, toPolicyDocument(policy, from, warning), "  ")
	}
	a.table(a.out, [][]cell{
		{{"policy", dim}, {policy.Version(), bold}},
		{{"from", dim}, {text: from}},
		{{"digest", dim}, {text: policy.Digest()}},
	})
	if warning != "" {
		a.notice("Warning: %s", warning)
	}
	if !check {
		fmt.Fprintln(a.out, a.paint(dim, fmt.Sprintf("This is what the settings here name. Workers decide by what theirs name (%s); a memory has the version\n"+
			"and digest of the policy that let it in: starter memory show ID.", config.Variable("memory.policy"))))
	}
	outline := policy.Outline()
	a.heading("Keys")
	rows := [][]cell{{{"  KEY", dim}, {"KIND", dim}, {"WRITTEN", dim}, {"WHERE OTHERS SEE IT", dim}, {"KEPT", dim}, {"SCOPES", dim}, {"SOURCES", dim}}}
	for _, k := range policy.Keys() {
		rows = append(rows, row("  "+oneLine(k.Name, 64), string(k.Kind), string(k.Mode), cmp.Or(string(k.SharedMode), "-"), retention(k.Retention), joined(k.Scopes), joined(k.Sources)))
	}
	a.table(a.out, rows)
	a.heading("How it is written")
	a.table(a.out, [][]cell{
		{{"  immediate_if_trusted", dim}, {text: "stored if a trusted tool or service says so, or the user enters what is personal; else a reviewer decides"}},
		{{"  background_only", dim}, {text: "stored, except for what a model proposes during its run: there a reviewer decides"}},
		{{"  background_review", dim}, {text: "a reviewer decides (starter memory review)"}},
		{{"  confirm", dim}, {text: "the user decides (starter memory confirm)"}},
	})
	fmt.Fprintln(a.out, "  What groups, projects and agents see is written by both: the stricter one decides.")
	a.heading("What is never written")
	a.table(a.out, [][]cell{
		{{"  from", dim}, {text: joined(outline.Denied)}},
		{{"  holding", dim}, {text: joined(outline.Refused) + " (a key may allow some of it)"}},
	})
	a.heading("Who may read")
	rows = [][]cell{{{"  ROLE", dim}, {"KINDS", dim}, {"VOUCHED FOR", dim}, {"SCOPES", dim}}}
	for _, g := range outline.Grants {
		rows = append(rows, row("  "+string(g.Role), joined(g.Kinds), joined(g.Validation), joined(g.Scopes)))
	}
	a.table(a.out, rows)
	fmt.Fprintln(a.out, "  In a group nothing personal is read.")
	return nil
}

// sameVersion warns of a text that has the version of the built-in policy and is
// another one; empty if it is not so.
func sameVersion(p *memorypolicy.Policy) string {
	builtIn := memorypolicy.Default()
	if p.Version() != builtIn.Version() || p.Digest() == builtIn.Digest() {
		return ""
	}
	return fmt.Sprintf("version %s is that of the built-in policy, and the text is another one (digest %s, not %s): change version in the file, or nobody can tell by which of the two a memory was let in",
		oneLine(p.Version(), 64), p.Digest()[:12], builtIn.Digest()[:12])
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
	Warning string        `json:"warning,omitempty"`
	Keys    []keyDocument `json:"keys"`
	// DeniedSources and RefusedContent are never written; Reads is who may read.
	DeniedSources  []agent.MemorySourceType `json:"denied_sources"`
	RefusedContent []detect.Category        `json:"refused_content"`
	Reads          []readDocument           `json:"reads"`
}

type readDocument struct {
	Role          memorypolicy.ReaderRole  `json:"role"`
	Kinds         []agent.MemoryKind       `json:"kinds"`
	Validation    []agent.MemoryValidation `json:"validation"`
	Scopes        []agent.MemoryScopeKind  `json:"scopes"`
	Sensitivity   []string                 `json:"sensitivity"`
	MinConfidence float64                  `json:"min_confidence,omitempty"`
}

type keyDocument struct {
	Name        string                  `json:"name"`
	Kind        agent.MemoryKind        `json:"kind"`
	Description string                  `json:"description"`
	Purpose     string                  `json:"purpose"`
	Schema      json.RawMessage         `json:"schema"`
	Identity    []string                `json:"identity"`
	Scopes      []agent.MemoryScopeKind `json:"scopes"`
	WriteMode   memorypolicy.WriteMode  `json:"write_mode"`
	// SharedMode is how it is written where others see it as well.
	SharedMode memorypolicy.WriteMode   `json:"shared_mode,omitempty"`
	Retention  int64                    `json:"retention_seconds,omitempty"`
	Sources    []agent.MemorySourceType `json:"sources"`
	FromModel  bool                     `json:"from_model"`
}

func toPolicyDocument(p *memorypolicy.Policy, from, warning string) policyDocument {
	outline := p.Outline()
	document := policyDocument{
		Version: p.Version(), Digest: p.Digest(), From: from, Warning: warning, Keys: []keyDocument{},
		DeniedSources: append([]agent.MemorySourceType{}, outline.Denied...), RefusedContent: append([]detect.Category{}, outline.Refused...), Reads: []readDocument{},
	}
	for _, g := range outline.Grants {
		document.Reads = append(document.Reads, readDocument(g))
	}
	for _, k := range p.Keys() {
		document.Keys = append(document.Keys, keyDocument{
			Name: k.Name, Kind: k.Kind, Description: k.Description, Purpose: k.Purpose, Schema: k.Schema, Identity: append([]string{}, k.Identity...),
			Scopes: k.Scopes, WriteMode: k.Mode, SharedMode: k.SharedMode, Retention: int64(k.Retention / time.Second), Sources: k.Sources, FromModel: k.FromModel,
		})
	}
	return document
}
