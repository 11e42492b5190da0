package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
)

func (a *app) pendingCommand() *cobra.Command {
	var p person
	var filter approval.Filter
	c := &cobra.Command{
		Use:   "pending [RUN_ID]",
		Short: "Show the writes that wait for your decision",
		Long: "Shows the writes that wait for a decision which you may take; with a RUN_ID, exactly what\n" +
			"you would approve. Shows content: arguments, summaries, and words of users and models.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneRun(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			if filter.Environment != "" && !agent.ValidID(filter.Environment) {
				return usagef("--environment must be 1 to 128 ASCII letters, digits or . _ : @ -")
			}
			if filter.Limit < 1 || filter.Limit > 500 {
				return usagef("--limit must be between 1 and 500")
			}
			if len(args) == 1 {
				filter.RunID = args[0]
			}
			return a.pending(c.Context(), p, filter)
		},
	}
	p.flags(c, "approver:")
	c.Flags().StringVar(&filter.Environment, "environment", "", "only plans in this environment")
	c.Flags().IntVar(&filter.Limit, "limit", 50, "at most so many, up to 500")
	return c
}

func (a *app) pending(ctx context.Context, p person, filter approval.Filter) error {
	o, err := a.office(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	ctx, cancel := context.WithTimeout(ctx, 4*callTimeout)
	defer cancel()
	found, err := o.Pending(ctx, p.approver(), filter)
	if err != nil {
		return a.explainDecision(err, p, filter.RunID)
	}
	switch {
	case a.json:
		if err := printJSON(a.out, toPendingDocument(p.tenant, found), "  "); err != nil {
			return err
		}
	case filter.RunID != "":
		for _, plan := range found.Plans {
			a.printPlan(plan)
			fmt.Fprintln(a.out, "\n"+a.paint(bold, fmt.Sprintf("starter approve %s --tenant %s --user %s (or decline)", plan.RunID, p.tenant, p.user)))
		}
	case len(found.Plans) > 0:
		a.listPlans(found)
		fmt.Fprintln(a.out, "\n"+a.paint(bold, fmt.Sprintf("starter pending RUN_ID --tenant %s --user %s shows one in full.", p.tenant, p.user)))
	}
	if len(found.Plans) == 0 && !a.json {
		a.notice("Nothing waits for a decision of user %s in tenant %s.", p.user, p.tenant)
	}
	if found.Forbidden > 0 && !a.json {
		a.notice("Left out because the policies do not let user %s decide: %s.", p.user, count(found.Forbidden, "plan"))
	}
	if len(found.Damaged) > 0 {
		return a.explainDecision(damaged(found), p, filter.RunID)
	}
	return nil
}

// damaged names the plans that cannot be shown.
func damaged(found approval.Pending) error {
	var names []string
	for _, ref := range found.Damaged {
		names = append(names, fmt.Sprintf("run %s, call %s, revision %d", ref.RunID, ref.CallID, ref.Revision))
	}
	return fmt.Errorf("%w, nobody can decide: %s; find out who wrote to the database, and cancel the run", approval.ErrDamaged, strings.Join(names, "; "))
}

func (a *app) listPlans(found approval.Pending) {
	rows := [][]cell{{{"RUN", dim}, {"TOOL", dim}, {"CHANGES", dim}, {"REQUESTER", dim}, {"ENVIRONMENT", dim}, {"COST", dim}, {"MADE", dim}, {"UNTIL", dim}}}
	for _, plan := range found.Plans {
		rows = append(rows, row(plan.RunID, oneLine(plan.Tool, 64), object(plan.Resource, plan.ResourceVersion), plan.Requester,
			plan.Environment, planCost(plan), clock(plan.CreatedAt), clock(plan.ExpiresAt)))
	}
	a.table(a.out, rows)
	if found.More {
		a.notice("There may be more: raise --limit.")
	}
}

func planCost(plan approval.Plan) string {
	if plan.Unpriced {
		return "unknown"
	}
	return dollars(plan.CostMicros)
}

const (
	// wordsShown bounds what is shown of a user's or model's words, so that they
	// cannot push the plan off the screen.
	wordsShown = 1200
	linesShown = 16
)

// printPlan shows exactly what is decided about, the words of others first and
// what will be done last, next to the question.
func (a *app) printPlan(plan approval.Plan) {
	fmt.Fprintf(a.out, "run %s  call %s  revision %d  conversation %s\n", a.paint(bold, plan.RunID), oneLine(plan.CallID, 64), plan.Revision, plan.Conversation)
	a.words("The user's request", plan.Request)
	a.words("The model's words, which nobody has checked", plan.Purpose)

	a.heading("What will be done")
	a.quote("  ", plan.Summary)
	a.heading("With these arguments")
	a.quote("  ", indented(plan.Arguments))
	if plan.ResourceVersion == "" {
		a.heading("To something that does not exist yet")
		a.quote("  ", plan.Resource)
	} else {
		a.heading("To this, at this version")
		a.quote("  ", plan.Resource)
		a.quote("  ", plan.ResourceVersion)
	}
	price := dollars(plan.CostMicros)
	switch {
	case plan.Unpriced && plan.CostMicros == 0:
		price = "cost unknown (no price)"
	case plan.Unpriced:
		price = "at least " + price + " (a model without a price took part)"
	}
	fmt.Fprintln(a.out)
	a.table(a.out, [][]cell{
		{{"tool", dim}, {oneLine(plan.Tool, 64) + " " + oneLine(plan.ToolVersion, 64), bold}},
		{{"environment", dim}, {plan.Environment, bold}},
		{{"for", dim}, {text: fmt.Sprintf("user %s, by agent %s %s", plan.Requester, plan.Agent, oneLine(plan.DefinitionVersion, 64))}},
		{{"used so far", dim}, {text: fmt.Sprintf("%s, %d tokens, %s", count(plan.Steps, "step"), plan.BilledTokens, price)}},
		{{"until", dim}, {text: clock(plan.ExpiresAt)}},
		{{"plan", dim}, {text: plan.Hash}},
	})
}

// words shows the beginning of a text that is no part of the plan.
func (a *app) words(title, text string) {
	if text == "" {
		return
	}
	a.heading(title)
	shown := text
	if utf8.RuneCountInString(shown) > wordsShown {
		shown = string([]rune(shown)[:wordsShown])
	}
	if lines := strings.SplitAfter(shown, "\n"); len(lines) > linesShown {
		shown = strings.Join(lines[:linesShown], "")
	}
	a.quote("  ", shown)
	if left := utf8.RuneCountInString(text) - utf8.RuneCountInString(shown); left > 0 {
		fmt.Fprintln(a.out, a.paint(dim, fmt.Sprintf("  … %s more, see starter pending --json", count(left, "character"))))
	}
}

// indented lays canonical JSON out in lines. Its values stay as they are.
func indented(arguments json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, arguments, "", "  "); err != nil {
		return string(arguments)
	}
	return b.String()
}

type pendingDocument struct {
	Plans     []waitingDocument `json:"plans"`
	Forbidden int               `json:"forbidden"`
	Damaged   []planRefDocument `json:"damaged"`
	More      bool              `json:"more"`
}

type planRefDocument struct {
	RunID    string `json:"run_id"`
	CallID   string `json:"call_id"`
	Revision int    `json:"revision"`
}

// waitingDocument is a plan that waits for a decision, content included.
type waitingDocument struct {
	planRefDocument
	PlanHash          string          `json:"plan_hash"`
	Tenant            string          `json:"tenant"`
	Requester         string          `json:"requester"`
	Environment       string          `json:"environment"`
	Conversation      string          `json:"conversation"`
	Agent             string          `json:"agent"`
	DefinitionVersion string          `json:"definition_version"`
	Tool              string          `json:"tool"`
	ToolVersion       string          `json:"tool_version"`
	Arguments         json.RawMessage `json:"arguments"`
	ArgumentsHash     string          `json:"arguments_hash"`
	Resource          string          `json:"resource"`
	ResourceVersion   string          `json:"resource_version,omitempty"`
	Summary           string          `json:"summary"`
	// Request and Purpose are the user's and the model's words.
	Request      string    `json:"request,omitempty"`
	Purpose      string    `json:"purpose,omitempty"`
	Steps        int       `json:"steps"`
	BilledTokens int64     `json:"billed_tokens"`
	CostMicros   int64     `json:"cost_micros"`
	CostKnown    bool      `json:"cost_known"`
	CreatedAt    time.Time `json:"created_at"`
	ExpiresAt    time.Time `json:"expires_at"`
}

func toPendingDocument(tenant string, found approval.Pending) pendingDocument {
	document := pendingDocument{Plans: []waitingDocument{}, Forbidden: found.Forbidden, Damaged: []planRefDocument{}, More: found.More}
	for _, plan := range found.Plans {
		document.Plans = append(document.Plans, toWaiting(tenant, plan))
	}
	for _, ref := range found.Damaged {
		document.Damaged = append(document.Damaged, planRefDocument(ref))
	}
	return document
}

func toWaiting(tenant string, plan approval.Plan) waitingDocument {
	return waitingDocument{
		planRefDocument: planRefDocument{plan.RunID, plan.CallID, plan.Revision}, PlanHash: plan.Hash, Tenant: tenant, Requester: plan.Requester,
		Environment: plan.Environment, Conversation: plan.Conversation, Agent: plan.Agent, DefinitionVersion: plan.DefinitionVersion,
		Tool: plan.Tool, ToolVersion: plan.ToolVersion, Arguments: plan.Arguments, ArgumentsHash: plan.ArgumentsHash,
		Resource: plan.Resource, ResourceVersion: plan.ResourceVersion, Summary: plan.Summary, Request: plan.Request, Purpose: plan.Purpose,
		Steps: plan.Steps, BilledTokens: plan.BilledTokens, CostMicros: plan.CostMicros, CostKnown: !plan.Unpriced,
		CreatedAt: plan.CreatedAt, ExpiresAt: plan.ExpiresAt,
	}
}
