package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

func (a *app) memoryTraceCommand() *cobra.Command {
	var r remembered
	var runID string
	var withRules bool
	c := &cobra.Command{
		Use:   "trace (ID | --run RUN_ID)",
		Short: "Trace a memory: where it comes from, why it was let in, and what it influenced",
		Long: "Traces a memory: the record, the message that it comes from, who wrote it and vouches for it,\n" +
			"the decision of the policy that let it in, and every later run that it was given to. The first\n" +
			"sentence is the answer. With --run, each memory that this run was given: from a strange answer\n" +
			"to its cause. With --rules, the rules of every proposal and decision as well.",
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case runID != "" && len(args) > 0:
				return usagef("say either an ID or --run")
			case c.Flags().Changed("run"):
				if !agent.ValidID(runID) {
					return usagef("--run must be 1 to 128 ASCII letters, digits or . _ : @ -")
				}
				return nil
			case len(args) == 0:
				return usagef("%s needs the ID of a memory, or --run RUN_ID for those that a run was given; see starter memory list", c.CommandPath())
			}
			return oneMemory(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.check(false); err != nil {
				return err
			}
			if runID != "" {
				return a.traceRun(c.Context(), r, runID, withRules)
			}
			return a.traceMemory(c.Context(), r, args[0], withRules)
		},
	}
	r.flags(c, false)
	c.Flags().StringVar(&runID, "run", "", "trace the memories that this run was given")
	c.Flags().BoolVar(&withRules, "rules", false, "show the rules of every proposal and decision")
	return c
}

func (a *app) traceMemory(ctx context.Context, r remembered, id string, withRules bool) error {
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
		return printJSON(a.out, toTraceDocument(r.tenant, id, trace), "  ")
	}
	a.printTrace(r, id, 0, trace, withRules)
	return nil
}

// givenMemory is a memory that a run was given, traced.
type givenMemory struct {
	db.MemoryInfluence
	trace db.MemoryTrace
	// hidden says that it is not for the user to see any more.
	hidden bool
}

func (a *app) traceRun(ctx context.Context, r remembered, runID string, withRules bool) error {
	var given []givenMemory
	missing := fmt.Sprintf("there is no run %s in tenant %s that this user may see; see starter list --tenant %s", runID, r.tenant, r.tenant)
	err := a.readMemory(ctx, missing, func(ctx context.Context, m memories) error {
		influences, err := m.RunMemories(ctx, r.tenant, r.user, runID)
		if err != nil {
			return err
		}
		for _, influence := range influences {
			trace, err := m.TraceMemory(ctx, r.tenant, r.user, influence.Record)
			hidden := errors.Is(err, db.ErrNotFound)
			if err != nil && !hidden {
				return err
			}
			given = append(given, givenMemory{influence, trace, hidden})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if a.json {
		document := runTraceDocument{RunID: runID, Memories: []givenDocument{}}
		for _, g := range given {
			document.Memories = append(document.Memories, givenDocument{
				Rank: g.Rank, Via: g.Via, Version: g.Version, GivenAt: g.At, Hidden: g.hidden, traceDocument: toTraceDocument(r.tenant, g.Record, g.trace),
			})
		}
		return printJSON(a.out, document, "  ")
	}
	if len(given) == 0 {
		a.notice("Run %s was given no memories.", runID)
		return nil
	}
	fmt.Fprintf(a.out, "run %s was given %s\n", a.paint(bold, runID), plural(len(given), "memory", "memories"))
	for _, g := range given {
		fmt.Fprintf(a.out, "\n%s\n", a.paint(bold, strings.Repeat("─", 72)))
		fmt.Fprintf(a.out, "rank %d  found by %s  version %d  given %s\n", g.Rank, oneLine(g.Via, 64), g.Version, clock(g.At))
		if g.hidden {
			fmt.Fprintf(a.out, "%s is not for user %s to see\n", a.paint(bold, g.Record), r.user)
			continue
		}
		a.printTrace(r, g.Record, g.Version, g.trace, withRules)
	}
	return nil
}

// printTrace shows the way of a memory, from the record back to its source and on
// to the runs. version is the one in question, 0 for the newest.
func (a *app) printTrace(r remembered, id string, version int, t db.MemoryTrace, withRules bool) {
	asked := max(slices.IndexFunc(t.Versions, func(v db.MemoryRecord) bool { return v.Version == version }), 0)
	if len(t.Versions) > 0 {
		fmt.Fprintf(a.out, "%s\n\n", a.paint(bold, answerTo(t, t.Versions[asked])))
		a.printRecord(r.tenant, t.Versions[asked])
	}
	if len(t.Versions) > 1 {
		a.heading("Other versions")
		for i, v := range t.Versions {
			if i != asked {
				a.printMemory(v)
			}
		}
	}
	a.heading("Source message")
	if s := t.Source; s != nil {
		fmt.Fprintf(a.out, "  %s  %s in conversation %s  %s\n", s.ID, s.Role, s.Conversation, clock(s.CreatedAt))
		a.quote("  ", s.Content)
	} else {
		fmt.Fprintln(a.out, "  there is none, or it is not to be read")
	}
	a.heading("Proposals")
	for _, c := range t.Candidates {
		fmt.Fprintf(a.out, "  %s  %s  %s %s, proposed by %s%s  %s\n", c.ID, a.paint(memoryStateStyle(c.State), stateWords(c.State)),
			c.SourceType, oneLine(c.SourceID, 64), oneLine(c.Writer, 128), decidedBy(c.DecidedBy), clock(c.CreatedAt))
		if withRules {
			a.printRules("    policy", c.PolicyVersion, c.PolicyDigest, c.Rules)
		}
	}
	a.heading("Runs that it was given to")
	if len(t.Influences) == 0 {
		fmt.Fprintln(a.out, "  none")
	} else {
		rows := [][]cell{{{"  RUN", dim}, {"VERSION", dim}, {"USER", dim}, {"RANK", dim}, {"FOUND BY", dim}, {"GIVEN", dim}}}
		for _, i := range t.Influences {
			rows = append(rows, row("  "+i.RunID, strconv.Itoa(i.Version), i.User, strconv.Itoa(i.Rank), oneLine(i.Via, 64), clock(i.At)))
		}
		a.table(a.out, rows)
	}
	a.heading("Audit")
	a.table(a.out, auditRows(t, withRules))
	if !withRules {
		fmt.Fprintln(a.out, a.paint(dim, "  the rules of each proposal and decision: add --rules"))
	}
	hint := "What a run did: starter show RUN_ID --tenant " + r.tenant + " --content."
	if len(t.Versions) > 0 && t.Versions[0].Status == db.MemoryActive {
		hint += fmt.Sprintf(" To end the memory: starter memory forget %s --tenant %s --user %s", id, r.tenant, t.Versions[0].User)
	}
	fmt.Fprintln(a.out, "\n"+a.paint(dim, hint))
}

func decidedBy(who string) string {
	if who == "" {
		return ""
	}
	return ", decided by " + oneLine(who, 128)
}

// traceDocument is the answer to "why does it believe this?" (LTM-9).
type traceDocument struct {
	ID       string           `json:"id"`
	Tenant   string           `json:"tenant"`
	Versions []memoryDocument `json:"versions"`
	// Source is the message that the newest version quotes; it is content.
	Source     *sourceDocument     `json:"source_message,omitempty"`
	Proposals  []proposalDocument  `json:"proposals"`
	Influenced []influenceDocument `json:"influenced_runs"`
	Audit      []auditDocument     `json:"audit"`
}

type sourceDocument struct {
	MessageID    string         `json:"message_id"`
	Conversation string         `json:"conversation"`
	Role         db.MessageRole `json:"role"`
	RunID        string         `json:"run_id,omitempty"`
	CreatedAt    time.Time      `json:"created_at"`
	Content      string         `json:"content"`
}

type influenceDocument struct {
	RunID   string    `json:"run_id"`
	Version int       `json:"version"`
	User    string    `json:"user"`
	Rank    int       `json:"rank"`
	Via     string    `json:"via"`
	At      time.Time `json:"at"`
}

type auditDocument struct {
	At        time.Time `json:"at"`
	Actor     string    `json:"actor"`
	Action    string    `json:"action"`
	Candidate string    `json:"candidate,omitempty"`
	Version   int       `json:"version,omitempty"`
	Detail    string    `json:"detail,omitempty"`
}

// runTraceDocument are the memories that a run was given, each traced.
type runTraceDocument struct {
	RunID    string          `json:"run_id"`
	Memories []givenDocument `json:"memories"`
}

type givenDocument struct {
	Rank    int       `json:"rank"`
	Via     string    `json:"via"`
	Version int       `json:"version"`
	GivenAt time.Time `json:"given_at"`
	// Hidden says that it is not for the user to see any more.
	Hidden bool `json:"hidden,omitempty"`
	traceDocument
}

func toTraceDocument(tenant, id string, t db.MemoryTrace) traceDocument {
	document := traceDocument{
		ID: id, Tenant: tenant, Versions: toMemoryDocuments(tenant, t.Versions), Proposals: toProposalDocuments(t.Candidates),
		Influenced: []influenceDocument{}, Audit: []auditDocument{},
	}
	if s := t.Source; s != nil {
		document.Source = &sourceDocument{MessageID: s.ID, Conversation: s.Conversation, Role: s.Role, RunID: s.RunID, CreatedAt: s.CreatedAt, Content: s.Content}
	}
	for _, i := range t.Influences {
		document.Influenced = append(document.Influenced, influenceDocument{i.RunID, i.Version, i.User, i.Rank, i.Via, i.At})
	}
	for _, e := range t.Audit {
		document.Audit = append(document.Audit, auditDocument{e.At, e.Actor, e.Action, e.Candidate, e.Version, e.Detail})
	}
	return document
}
