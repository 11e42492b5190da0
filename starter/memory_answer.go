package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// answerTo says in one sentence why a version is remembered.
func answerTo(t db.MemoryTrace, v db.MemoryRecord) string {
	line := fmt.Sprintf("Remembered because %s on %s, %s; given to %s since.", whoSaid(v), saidAt(t, v), vouchedBy(v), count(len(t.Influences), "run"))
	if v.Status != db.MemoryActive {
		line += fmt.Sprintf(" It is not in force any more (%s%s).", v.Status, by(oneLine(v.EndedBy, 128)))
	}
	return line
}

func whoSaid(v db.MemoryRecord) string {
	switch v.SourceType {
	case agent.SourceUserStatement:
		if v.Evidence.Quote == "" {
			return fmt.Sprintf("user %s said so, in words that are not to be read here,", v.User)
		}
		// The words of a user do not end the quotation by themselves.
		return fmt.Sprintf("user %s said \"%s\"", v.User, strings.ReplaceAll(oneLine(v.Evidence.Quote, 120), `"`, "'"))
	case agent.SourceUserCorrection:
		return fmt.Sprintf("user %s entered it", v.User)
	case agent.SourceTrustedTool:
		return fmt.Sprintf("a tool said so (%s)", oneLine(v.SourceID, 64))
	case agent.SourceTrustedService:
		return fmt.Sprintf("service %s said so", oneLine(v.SourceID, 64))
	case agent.SourceApprovedSummarizer:
		return "a checked summary of the conversation said so"
	case agent.SourceRawPrompt, agent.SourceAssistant, agent.SourceRecalled, agent.SourceExternal, agent.SourceUnvalidatedTool:
	}
	return fmt.Sprintf("%s %s said so", v.SourceType, oneLine(v.SourceID, 64))
}

// saidAt is when the message was sent or, where it is not to be read, when the
// version was written.
func saidAt(t db.MemoryTrace, v db.MemoryRecord) string {
	if t.Source != nil && t.Source.ID == v.Evidence.MessageID {
		return clock(t.Source.CreatedAt)
	}
	return clock(v.WrittenAt)
}

func vouchedBy(v db.MemoryRecord) string {
	switch {
	case v.DecidedBy != "" && v.Validation == agent.MemoryUserConfirmed:
		return "confirmed by " + oneLine(v.DecidedBy, 128)
	case v.DecidedBy != "":
		return "let in by reviewer " + oneLine(v.DecidedBy, 128)
	}
	return "let in by the policy, which asked nobody"
}

// auditActions says in words what was done.
var auditActions = map[string]string{
	"store": "stored", "merge": "said again, nothing changed", "replace": "took the place of what was in force",
	"retract": "taken back", "reject": "refused", "wait_review": "left to a reviewer", "wait_confirmation": "left to the user",
	"refuse_decision": "a decision was not believed", "decline": "declined", "expire": "expired undecided",
}

// auditRows are the entries of the audit trail: what was done, who decided it, and
// on whose word. The program decides where the policy asks nobody.
func auditRows(t db.MemoryTrace, withRules bool) (rows [][]cell) {
	for _, e := range t.Audit {
		action, known := auditActions[e.Action]
		if !known {
			action = oneLine(e.Action, 64)
		}
		actor := "by " + oneLine(e.Actor, 128)
		if e.Actor == "fairlead" {
			actor = "by the policy"
		}
		word := ""
		if i := slices.IndexFunc(t.Candidates, func(c db.MemoryCandidate) bool { return c.ID == e.Candidate }); i >= 0 {
			word = "proposed by " + oneLine(t.Candidates[i].Writer, 128)
		}
		columns := row("  "+clock(e.At), action, actor, word)
		// What was judged has its rules there, everything else says more.
		if withRules || e.Action == "refuse_decision" || e.Candidate == "" {
			columns = append(columns, cell{text: oneLine(e.Detail, 200)})
		}
		rows = append(rows, columns)
	}
	return rows
}
