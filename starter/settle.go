package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
)

func (a *app) unsettledCommand() *cobra.Command {
	var p person
	c := &cobra.Command{
		Use:   "unsettled --user YOU",
		Short: "Show the writes of which nobody knows whether they happened",
		Long: "Shows the writes that you may settle: those of runs that ended outcome_unknown, and those\n" +
			"whose run is still finding out. Shows content: arguments and summaries.",
		Args: noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return a.unsettled(c.Context(), p)
		},
	}
	p.flags(c, "operator:")
	return c
}

func (a *app) unsettled(ctx context.Context, p person) error {
	o, err := a.office(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	ctx, cancel := context.WithTimeout(ctx, 4*callTimeout)
	defer cancel()
	found, err := o.Unsettled(ctx, p.approver())
	if err != nil {
		return a.explainDecision(err, p, "")
	}
	if a.json {
		err = printJSON(a.out, toUnsettledDocument(found), "  ")
	} else {
		a.printUnsettled(p, found)
	}
	if err == nil && len(found.Damaged) > 0 {
		var names []string
		for _, ref := range found.Damaged {
			names = append(names, fmt.Sprintf("run %s, call %s", ref.RunID, ref.CallID))
		}
		err = &exit{exitRunFailed, fmt.Sprintf("%v, nobody can settle: %s; find out who wrote to the database", approval.ErrDamaged, strings.Join(names, "; "))}
	}
	return err
}

func (a *app) printUnsettled(p person, found approval.Unsettled) {
	for i, w := range found.Writes {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		a.printWrite(p, w)
	}
	if len(found.Writes) == 0 {
		a.notice("No write of tenant %s is for user %s to settle.", p.tenant, p.user)
	}
	if found.Forbidden > 0 {
		a.notice("Left out because the policies do not let user %s settle them: %s.", p.user, count(found.Forbidden, "write"))
	}
}

func (a *app) printWrite(p person, w approval.Write) {
	fmt.Fprintf(a.out, "run %s  call %s\n", a.paint(bold, w.RunID), oneLine(w.CallID, 64))
	a.quote("  ", w.Summary)
	a.quote("  ", indented(w.Arguments))
	state := "the run ended without knowing"
	if w.Result == db.WriteOpen {
		state = "the run goes on and looks it up itself; it may be under way at this moment"
	}
	a.table(a.out, [][]cell{
		{{"  changes", dim}, {text: object(w.Resource, w.ResourceVersion)}},
		{{"  tool", dim}, {text: oneLine(w.Tool, 64) + " " + oneLine(w.ToolVersion, 64)}},
		{{"  key", dim}, {w.Key, bold}},
		{{"  for", dim}, {text: fmt.Sprintf("user %s, by agent %s, environment %s", w.Requester, w.Agent, w.Environment)}},
		{{"  approved by", dim}, {text: oneLine(w.ApprovedBy, 128)}},
		{{"  sent", dim}, {text: fmt.Sprintf("%s, last %s (%s)", clock(w.RecordedAt), clock(w.SentAt), count(w.Sends, "time"))}},
		{{"  state", dim}, {string(w.Result) + ": " + state, resultStyle(w.Result)}},
	})
	fmt.Fprintln(a.out, a.paint(bold, fmt.Sprintf("  starter settle %s --call %s --tenant %s --user %s --performed (or --not-performed)", w.RunID, oneLine(w.CallID, 64), p.tenant, p.user)))
}

// settleFlags are the flags of starter settle.
type settleFlags struct {
	person
	call         string
	performed    bool
	notPerformed bool
	note         string
}

func (a *app) settleCommand() *cobra.Command {
	var f settleFlags
	c := &cobra.Command{
		Use:   "settle RUN_ID --call CALL_ID (--performed | --not-performed) --user YOU",
		Short: "Record what became of a write whose outcome is unknown",
		Long: "Records for good what you found out about a write: look it up by its key where it was sent\n" +
			"(starter unsettled shows the key). The first record stays, and your name with it.\n" +
			"A run that still goes on acts on it: performed is told to the model as done.",
		Args: oneRun,
		RunE: func(c *cobra.Command, args []string) error {
			switch err := f.check(); {
			case err != nil:
				return err
			case f.call == "":
				return usagef("--call is missing; see starter unsettled")
			case f.performed == f.notPerformed:
				return usagef("say either --performed or --not-performed")
			case len(f.note) > approval.MaxNoteBytes || !utf8.ValidString(f.note):
				return usagef("--note must be valid UTF-8 of at most %d bytes, it has %d", approval.MaxNoteBytes, len(f.note))
			}
			return a.settle(c.Context(), f, args[0])
		},
	}
	f.flags(c, "operator:")
	c.Flags().StringVar(&f.call, "call", "", "the call, such as 2.0 (required)")
	c.Flags().BoolVar(&f.performed, "performed", false, "the effect happened")
	c.Flags().BoolVar(&f.notPerformed, "not-performed", false, "the effect did not happen and will not")
	c.Flags().StringVar(&f.note, "note", "", fmt.Sprintf("how it is known, at most %d bytes", approval.MaxNoteBytes))
	return c
}

func (a *app) settle(ctx context.Context, f settleFlags, runID string) error {
	o, err := a.office(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	// The record counts; the run finds it without being told.
	var signaler approval.Signaler
	temporal, unreached := a.openEngine(ctx, a.settings)
	if unreached == nil {
		defer temporal.Close()
		signaler = temporal
	}
	ctx, cancel := context.WithTimeout(ctx, 4*callTimeout)
	defer cancel()
	settled, err := o.Settle(ctx, signaler, f.approver(), approval.WriteRef{RunID: runID, CallID: f.call},
		approval.Settlement{Performed: f.performed, Note: f.note})
	if err != nil {
		return a.explainDecision(err, f.person, runID)
	}
	if settled.SignalError != nil {
		unreached = settled.SignalError
	}
	if a.json {
		return printJSON(a.out, settledDocument{
			RunID: runID, CallID: f.call, Result: settled.Result, SettledBy: f.user, Continues: settled.Continues, Told: settled.Continues && unreached == nil,
		}, "  ")
	}
	fmt.Fprintf(a.out, "Recorded: call %s of run %s was %s, says %s.\n", oneLine(f.call, 64), runID, resultWords(settled.Result), f.user)
	switch {
	case !settled.Continues:
		fmt.Fprintln(a.out, "The run had ended and stays as it ended.")
	case unreached == nil:
		fmt.Fprintln(a.out, "The run goes on.")
	case errors.Is(unreached, errUnknownRun):
		a.notice("The run's workflow is gone: it was ended from outside.")
	default:
		a.notice("The run could not be told; it finds the record with its next look.")
	}
	return nil
}

func resultWords(result db.WriteResult) string {
	if result == db.WritePerformed {
		return "performed"
	}
	return "not performed"
}

type settledDocument struct {
	RunID     string         `json:"run_id"`
	CallID    string         `json:"call_id"`
	Result    db.WriteResult `json:"result"`
	SettledBy string         `json:"settled_by"`
	// Continues says that the run goes on, Told that it was told at once.
	Continues bool `json:"continues"`
	Told      bool `json:"told"`
}

type unsettledDocument struct {
	Writes    []unsettledWriteDocument `json:"writes"`
	Forbidden int                      `json:"forbidden"`
	Damaged   []writeRefDocument       `json:"damaged"`
}

type writeRefDocument struct {
	RunID  string `json:"run_id"`
	CallID string `json:"call_id"`
}

// unsettledWriteDocument is content.
type unsettledWriteDocument struct {
	writeRefDocument
	Key             string          `json:"key"`
	Result          db.WriteResult  `json:"result"`
	Tool            string          `json:"tool"`
	ToolVersion     string          `json:"tool_version"`
	Arguments       json.RawMessage `json:"arguments"`
	Resource        string          `json:"resource"`
	ResourceVersion string          `json:"resource_version,omitempty"`
	Summary         string          `json:"summary"`
	Agent           string          `json:"agent"`
	Environment     string          `json:"environment"`
	Requester       string          `json:"requester"`
	ApprovedBy      string          `json:"approved_by"`
	RecordedAt      time.Time       `json:"recorded_at"`
	SentAt          time.Time       `json:"sent_at"`
	Sends           int             `json:"sends"`
	RunStatus       agent.Status    `json:"run_status"`
	RunReason       agent.Reason    `json:"run_reason,omitempty"`
}

func toUnsettledDocument(found approval.Unsettled) unsettledDocument {
	document := unsettledDocument{Writes: []unsettledWriteDocument{}, Forbidden: found.Forbidden, Damaged: []writeRefDocument{}}
	for _, ref := range found.Damaged {
		document.Damaged = append(document.Damaged, writeRefDocument(ref))
	}
	for _, w := range found.Writes {
		document.Writes = append(document.Writes, unsettledWriteDocument{
			writeRefDocument: writeRefDocument{w.RunID, w.CallID}, Key: w.Key, Result: w.Result,
			Tool: w.Tool, ToolVersion: w.ToolVersion, Arguments: w.Arguments,
			Resource: w.Resource, ResourceVersion: w.ResourceVersion, Summary: w.Summary, Agent: w.Agent, Environment: w.Environment,
			Requester: w.Requester, ApprovedBy: w.ApprovedBy, RecordedAt: w.RecordedAt, SentAt: w.SentAt, Sends: w.Sends,
			RunStatus: w.RunStatus, RunReason: w.RunReason,
		})
	}
	return document
}
