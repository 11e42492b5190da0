package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// What show says about the memory of a run.

// memoryUse says what a run had to do with memory.
func memoryUse(use agent.MemoryUse) string {
	line := "recall " + string(use.Recall)
	switch use.Recall {
	case agent.RecallFound:
		line = plural(use.Records, "memory", "memories") + " recalled"
	case agent.RecallNothing:
		line = "nothing is remembered"
	case agent.RecallUnavailable:
		line = "memory_unavailable: memory could not be read, and the run went on without"
	case agent.RecallOff:
	}
	if use.KeywordOnly {
		line += " by keyword only (the embedder did not answer)"
	}
	switch use.Learning {
	case agent.LearningStarted:
		line += "; learning from it was started"
	case agent.LearningNotSaved:
		line += "; not_saved: learning from it could not be started, and is tried again"
	case agent.LearningOff:
	}
	return line
}

// printGiven shows the memories that a run was given, if there are any.
func (a *app) printGiven(tenant, runID string, given []db.MemoryInfluence) {
	if len(given) == 0 {
		return
	}
	a.heading("Memories that it was given")
	rows := [][]cell{{{"  memory", dim}, {"version", dim}, {"rank", dim}, {"found by", dim}, {"given", dim}}}
	for _, i := range given {
		rows = append(rows, row("  "+i.Record, strconv.Itoa(i.Version), strconv.Itoa(i.Rank), oneLine(i.Via, 64), clock(i.At)))
	}
	a.table(a.out, rows)
	fmt.Fprintln(a.out, a.paint(dim, fmt.Sprintf("  where they come from: starter memory trace --run %s --tenant %s", runID, tenant)))
}

type givenMemoryDocument struct {
	ID      string    `json:"id"`
	Version int       `json:"version"`
	Rank    int       `json:"rank"`
	Via     string    `json:"via"`
	GivenAt time.Time `json:"given_at"`
}

func toGivenMemories(given []db.MemoryInfluence) []givenMemoryDocument {
	documents := make([]givenMemoryDocument, 0, len(given))
	for _, i := range given {
		documents = append(documents, givenMemoryDocument{i.Record, i.Version, i.Rank, i.Via, i.At})
	}
	return documents
}
