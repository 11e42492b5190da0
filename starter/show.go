package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// excerptBytes is how much of a tool's result --content shows.
const excerptBytes = 2 << 10

func (a *app) showCommand() *cobra.Command {
	var o owner
	var content bool
	c := &cobra.Command{
		Use:   "show RUN_ID",
		Short: "Show what a run did and consumed",
		Long: "Shows a run's transitions, steps, tool calls, writes, memories and ledger. Content (the answer, what\n" +
			"the tools were asked and what they returned, what persons were shown) is left out unless\n" +
			"--content is given.",
		Args: oneRun,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.show(c.Context(), o, args[0], content)
		},
	}
	o.flags(c)
	c.Flags().BoolVar(&content, "content", false, "show the answer, and arguments and results of tools")
	return c
}

func (a *app) show(ctx context.Context, o owner, runID string, content bool) error {
	if content {
		if err := a.requireContent(); err != nil {
			return err
		}
	}
	database, err := a.database(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	// Everything but the answer is read without keys.
	read := func() (db.RunReport, error) { return database.Progress(ctx, o.scope(), runID, 0) }
	if content {
		read = func() (db.RunReport, error) { return database.ShowRun(ctx, o.scope(), runID) }
	}
	report, err := read()
	if err != nil {
		return a.explain(err, runID, o.tenant)
	}
	given, err := database.RunMemories(ctx, report.Run.Scope.Tenant, o.user, runID)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return a.explain(err, runID, o.tenant)
	}
	var contents map[string]callContent
	if content {
		if contents, err = readContents(ctx, database, report); err == nil {
			err = readSummaries(ctx, database, report)
		}
		if err != nil {
			return a.explain(err, runID, o.tenant)
		}
	} else {
		for i := range report.Writes {
			report.Writes[i].SettledNote = ""
		}
	}
	if a.json {
		return printJSON(a.out, a.showDocument(report, given, contents), "  ")
	}
	a.printReport(report, given, contents, content)
	return nil
}

// callContent is what a tool was asked and the beginning of what it returned.
type callContent struct{ arguments, excerpt string }

func readContents(ctx context.Context, database reader, report db.RunReport) (map[string]callContent, error) {
	contents := make(map[string]callContent, len(report.Calls()))
	for _, c := range report.Calls() {
		_, call, err := database.ToolCall(ctx, report.Run.Scope, report.Run.ID, c.ID)
		if err != nil {
			return nil, err
		}
		read := callContent{arguments: call.Arguments}
		if c.ResultBytes > 0 {
			chunk, _, err := database.ReadResult(ctx, report.Run.Scope, report.Run.ID, c.ID, 0, excerptBytes)
			if err != nil {
				return nil, err
			}
			// The cut may be in the middle of a character.
			read.excerpt = strings.ToValidUTF8(string(chunk), "")
		}
		contents[c.ID] = read
	}
	return contents, nil
}

func (a *app) showDocument(report db.RunReport, given []db.MemoryInfluence, contents map[string]callContent) showDocument {
	document := showDocument{
		Run: a.runDocument(report), Answer: report.Answer,
		Transitions: []transitionDocument{}, Attempts: []attemptDocument{}, ToolCalls: []callDocument{},
		Plans: []planDocument{}, Writes: []writeDocument{}, Refusals: []refusalDocument{}, Memories: toGivenMemories(given),
	}
	for _, t := range report.Transitions {
		document.Transitions = append(document.Transitions, toTransition(t))
	}
	for _, t := range report.Attempts() {
		document.Attempts = append(document.Attempts, toAttempt(t))
	}
	for _, c := range report.Calls() {
		document.ToolCalls = append(document.ToolCalls, toCall(c, contents[c.ID].arguments, contents[c.ID].excerpt))
	}
	for _, p := range report.Plans {
		document.Plans = append(document.Plans, toPlanDocument(p, p.Summary))
	}
	for _, w := range report.Writes {
		document.Writes = append(document.Writes, toWriteDocument(w))
	}
	for _, r := range report.Refusals {
		document.Refusals = append(document.Refusals, toRefusalDocument(r))
	}
	return document
}

func (a *app) printReport(report db.RunReport, given []db.MemoryInfluence, contents map[string]callContent, content bool) {
	r := report.Run
	digest := r.DefinitionDigest
	if len(digest) > 12 {
		digest = digest[:12]
	}
	budget := fmt.Sprintf("%s, %s, %d tokens, ", count(r.Budget.MaxSteps, "step"), count(r.Budget.MaxToolCalls, "tool call"), r.Budget.MaxTokens)
	if r.Budget.MaxCostMicros > 0 {
		budget += dollars(r.Budget.MaxCostMicros) + ", "
	}
	rows := [][]cell{
		{{"run", dim}, {r.ID, bold}},
		{{"status", dim}, {ended(r.Status, r.Reason, r.Detail), statusStyle(r.Status)}},
		{{"agent", dim}, {text: fmt.Sprintf("%s %s  (definition %s)", r.Agent, r.DefinitionVersion, digest)}},
		{{"owner", dim}, {text: fmt.Sprintf("tenant %s  user %s  environment %s", r.Scope.Tenant, r.Scope.User, r.Scope.Environment)}},
		{{"conversation", dim}, {text: fmt.Sprintf("%s  generation %d", r.Conversation, r.Generation)}},
		{{"created", dim}, {text: fmt.Sprintf("%s  took %s", clock(r.CreatedAt), took(r.CreatedAt, r.EndedAt))}},
		{{"budget", dim}, {text: budget + r.Budget.Timeout.String()}},
		{{"used", dim}, {text: fmt.Sprintf("%s, %s, %s", count(steps(report), "step"), count(toolCalls(report), "tool call"), ledgerLine(report.Totals.Usage, agent.Budget{}))}},
	}
	if r.Memory != nil {
		rows = append(rows, []cell{{"memory", dim}, {text: memoryUse(*r.Memory)}})
	}
	a.table(a.out, append(rows, []cell{{"web UI", dim}, {text: a.webUI(r.Scope.Tenant, r.ID)}}))

	a.heading("Transitions")
	rows = nil
	for _, t := range report.Transitions {
		move := string(t.To)
		if t.From != "" {
			move = string(t.From) + " → " + move
		}
		rows = append(rows, row("  "+strconv.Itoa(t.Seq), t.At.Local().Format("15:04:05.000"), move, string(t.Reason)))
	}
	a.table(a.out, rows)

	a.heading("Steps")
	for _, step := range report.Steps {
		for _, t := range step.Attempts {
			fmt.Fprintln(a.out, "  "+a.attemptLine(t))
			if line := promptLine(t.Prompt); line != "" {
				fmt.Fprintln(a.out, a.paint(dim, "            "+line))
			}
		}
		for _, c := range step.Calls {
			a.printCall(c, contents)
		}
	}

	a.printWrites(report)
	a.printGiven(r.Scope.Tenant, r.ID, given)
	a.heading("Ledger")
	a.printLedger(report)
	switch {
	case report.Answer != "":
		a.heading("Answer")
		fmt.Fprintln(a.out, strings.TrimRight(printable(report.Answer), "\n"))
	case r.Status == agent.StatusSucceeded && !content:
		fmt.Fprintln(a.out, "\n"+a.paint(dim, "The answer and what the tools said: add --content."))
	}
}

func (a *app) heading(text string) { fmt.Fprintln(a.out, "\n"+a.paint(bold, text)) }

func (a *app) printCall(c db.CallReport, contents map[string]callContent) {
	shown, ok := contents[c.ID]
	fmt.Fprintln(a.out, "  "+a.callLine(c, shown.arguments))
	if !ok {
		if len(c.ArgumentsHash) >= 12 {
			fmt.Fprintln(a.out, a.paint(dim, "            arguments sha256 "+c.ArgumentsHash[:12]))
		}
		return
	}
	for line := range strings.Lines(printable(shown.excerpt)) {
		fmt.Fprintln(a.out, a.paint(dim, "            "+strings.TrimRight(line, " \n")))
	}
	if c.ResultBytes > excerptBytes {
		fmt.Fprintln(a.out, a.paint(dim, fmt.Sprintf("            … %d bytes more", c.ResultBytes-excerptBytes)))
	}
}

// printLedger shows each attempt's reservation and what was settled.
func (a *app) printLedger(report db.RunReport) {
	amount := func(tokens int64, micros *int64) string {
		if micros == nil {
			return fmt.Sprintf("%d tokens, cost unknown", tokens)
		}
		return fmt.Sprintf("%d tokens, %s", tokens, dollars(*micros))
	}
	rows := [][]cell{{{"  step", dim}, {"attempt", dim}, {"reserved", dim}, {"settled", dim}, {"usage", dim}}}
	for _, t := range report.Attempts() {
		settled, usage := "open", ""
		if t.Billed != nil {
			settled, usage = amount(t.Billed.Tokens, t.Billed.CostMicros), "reported"
			if !t.UsageKnown {
				usage = "unknown"
			}
		}
		rows = append(rows, row("  "+strconv.Itoa(t.Step+1), strconv.Itoa(t.Number), amount(t.Reserved.Tokens, t.Reserved.CostMicros), settled, usage))
	}
	a.table(a.out, rows)
	u := report.Totals.Usage
	fmt.Fprintf(a.out, "  total  %d tokens, %s\n", u.BilledTokens, cost(u.CostMicros, u.UnpricedAttempts))
}
