package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// What run, follow, list and show say about writes. Tool, resource and version
// come from tools, which may have them from the model.

// howToApprove is what a person types who wants to decide.
func howToApprove(tenant, runID string) string {
	return fmt.Sprintf("starter approve %s --tenant %s --user YOU (or decline)", runID, tenant)
}

// howToSettle is what an operator types who found out what became of a write.
func howToSettle(tenant string) string {
	return fmt.Sprintf("starter unsettled --tenant %s --user YOU", tenant)
}

// planObject is what a plan changes, at which version.
func planObject(p db.WritePlan) string { return object(p.Resource, p.ResourceVersion) }

func object(resource, version string) string {
	if version == "" {
		return oneLine(resource, 64) + " (new)"
	}
	return oneLine(resource, 64) + " at " + oneLine(version, 32)
}

func planStatus(p db.WritePlan) string {
	if p.DecidedBy == "" {
		return string(p.Status)
	}
	return string(p.Status) + " by " + oneLine(p.DecidedBy, 128)
}

func planStyle(status db.PlanStatus) style {
	switch status {
	case db.PlanPending:
		return bold
	case db.PlanApproved:
		return green
	case db.PlanDeclined, db.PlanExpired, db.PlanStale, db.PlanWithdrawn:
		return yellow
	case db.PlanRefused:
		return red
	}
	return plain
}

func resultStyle(result db.WriteResult) style {
	switch result {
	case db.WriteOpen:
		return bold
	case db.WritePerformed:
		return green
	case db.WriteNotPerformed:
		return yellow
	case db.WriteUnknown:
		return red
	}
	return plain
}

// refusalLine says which approval was not believed. Nobody is named unless the
// signature was good.
func refusalLine(r db.Refusal) string {
	line := "approval refused: " + string(r.Code)
	if r.Approver != "" {
		line += ", signed for " + oneLine(r.Approver, 128)
	}
	return line
}

// readSummaries adds to the plans what persons were shown.
func readSummaries(ctx context.Context, database reader, report db.RunReport) error {
	for i, p := range report.Plans {
		state, err := database.PlanState(ctx, report.Run.Scope.Tenant, report.Run.ID, p.CallID, p.Revision)
		if err != nil {
			return err
		}
		report.Plans[i].Summary = state.Plan.Summary
	}
	return nil
}

// printWrites shows plans, writes and refused approvals, if there are any.
func (a *app) printWrites(report db.RunReport) {
	if len(report.Plans) > 0 {
		a.heading("Plans")
		rows := [][]cell{{{"  call", dim}, {"revision", dim}, {"tool", dim}, {"changes", dim}, {"made", dim}, {"until", dim}, {"status", dim}}}
		for _, p := range report.Plans {
			rows = append(rows, []cell{
				{text: "  " + p.CallID},
				{text: strconv.Itoa(p.Revision)},
				{text: oneLine(p.Tool, 64)},
				{text: planObject(p)},
				{text: clock(p.CreatedAt)},
				{text: clock(p.ExpiresAt)},
				{planStatus(p), planStyle(p.Status)},
			})
		}
		a.table(a.out, rows)
		for _, p := range report.Plans {
			if p.Summary != "" {
				fmt.Fprintf(a.out, "  %s revision %d\n", p.CallID, p.Revision)
				a.quote("    ", p.Summary)
			}
			if p.Status == db.PlanPending && report.Run.Status == agent.StatusWaitingConfirmation {
				fmt.Fprintln(a.out, a.paint(bold, "  "+howToApprove(report.Run.Scope.Tenant, report.Run.ID)))
			}
		}
	}
	if len(report.Writes) > 0 {
		a.heading("Writes")
		rows := [][]cell{{{"  call", dim}, {"approved by", dim}, {"sent", dim}, {"result", dim}, {"known by", dim}, {"key", dim}}}
		for _, w := range report.Writes {
			known := string(w.ResolvedBy)
			if w.SettledBy != "" {
				known += " " + oneLine(w.SettledBy, 128)
			}
			rows = append(rows, []cell{
				{text: "  " + w.CallID},
				{text: oneLine(w.ApprovedBy, 128)},
				{text: fmt.Sprintf("%s (%s)", clock(w.SentAt), count(w.Sends, "time"))},
				{string(w.Result), resultStyle(w.Result)},
				{text: known},
				{text: w.Key},
			})
		}
		a.table(a.out, rows)
		for _, w := range report.Writes {
			if w.SettledNote != "" {
				fmt.Fprintf(a.out, "  %s note of %s\n", w.CallID, oneLine(w.SettledBy, 128))
				a.quote("    ", w.SettledNote)
			}
		}
	}
	if len(report.Refusals) > 0 {
		a.heading("Refused approvals")
		var rows [][]cell
		for _, r := range report.Refusals {
			rows = append(rows, row("  "+r.At.Local().Format(time.TimeOnly), r.CallID, refusalLine(r)))
		}
		a.table(a.out, rows)
	}
}

// quoteWidth is how many characters of others are put on one line: few enough
// that a usual terminal does not break it, and no part of it begins a line.
const quoteWidth = 72

// quote prints text of others, each line behind a bar: none of it can pass for a
// line of the starter's. A long line is continued behind a broken bar.
func (a *app) quote(indent, text string) {
	for line := range strings.Lines(printable(text)) {
		rest, bar := []rune(strings.TrimRight(line, "\n")), "│ "
		for {
			n := min(len(rest), quoteWidth)
			fmt.Fprintln(a.out, strings.TrimRight(indent+bar+string(rest[:n]), " "))
			if rest, bar = rest[n:], "┊ "; len(rest) == 0 {
				break
			}
		}
	}
}

type planDocument struct {
	CallID          string        `json:"call_id"`
	Revision        int           `json:"revision"`
	Tool            string        `json:"tool"`
	ToolVersion     string        `json:"tool_version"`
	ArgumentsHash   string        `json:"arguments_hash"`
	Resource        string        `json:"resource"`
	ResourceVersion string        `json:"resource_version,omitempty"`
	PlanHash        string        `json:"plan_hash"`
	PolicyDigest    string        `json:"policy_digest"`
	Status          db.PlanStatus `json:"status"`
	CreatedAt       time.Time     `json:"created_at"`
	ExpiresAt       time.Time     `json:"expires_at"`
	DecidedBy       string        `json:"decided_by,omitempty"`
	DecidedAt       time.Time     `json:"decided_at,omitzero"`
	TokenID         string        `json:"token_id,omitempty"`
	// Summary is content.
	Summary string `json:"summary,omitempty"`
}

func toPlanDocument(p db.WritePlan, summary string) planDocument {
	return planDocument{
		CallID: p.CallID, Revision: p.Revision, Tool: p.Tool, ToolVersion: p.ToolVersion, ArgumentsHash: p.ArgumentsHash,
		Resource: p.Resource, ResourceVersion: p.ResourceVersion, PlanHash: p.Hash, PolicyDigest: p.PolicyDigest, Status: p.Status,
		CreatedAt: p.CreatedAt, ExpiresAt: p.ExpiresAt, DecidedBy: p.DecidedBy, DecidedAt: p.DecidedAt, TokenID: p.TokenID, Summary: summary,
	}
}

type writeDocument struct {
	Key          string         `json:"key"`
	CallID       string         `json:"call_id"`
	Revision     int            `json:"revision"`
	Result       db.WriteResult `json:"result"`
	ResolvedBy   db.ResolvedBy  `json:"resolved_by,omitempty"`
	ApprovedBy   string         `json:"approved_by"`
	PolicyDigest string         `json:"policy_digest"`
	Sends        int            `json:"sends"`
	RecordedAt   time.Time      `json:"recorded_at"`
	SentAt       time.Time      `json:"sent_at"`
	ResolvedAt   time.Time      `json:"resolved_at,omitzero"`
	SettledBy    string         `json:"settled_by,omitempty"`
	// SettledNote is content.
	SettledNote string `json:"settled_note,omitempty"`
}

func toWriteDocument(w db.WriteIntent) writeDocument {
	return writeDocument{
		Key: w.Key, CallID: w.CallID, Revision: w.Revision, Result: w.Result, ResolvedBy: w.ResolvedBy, ApprovedBy: w.ApprovedBy,
		PolicyDigest: w.PolicyDigest, Sends: w.Sends, RecordedAt: w.RecordedAt, SentAt: w.SentAt, ResolvedAt: w.ResolvedAt,
		SettledBy: w.SettledBy, SettledNote: w.SettledNote,
	}
}

type refusalDocument struct {
	CallID   string            `json:"call_id,omitempty"`
	Code     agent.RefusalCode `json:"code"`
	TokenID  string            `json:"token_id,omitempty"`
	Approver string            `json:"approver,omitempty"`
	At       time.Time         `json:"at"`
}

func toRefusalDocument(r db.Refusal) refusalDocument {
	return refusalDocument{CallID: r.CallID, Code: r.Code, TokenID: r.TokenID, Approver: r.Approver, At: r.At}
}
