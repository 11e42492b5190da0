package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/internal/prompt"
)

// promptLine says what a model call was made of and what was left out of it
// (WM-6), or nothing for a call from before that was recorded.
func promptLine(recorded json.RawMessage) string {
	var report prompt.Report
	if len(recorded) == 0 || json.Unmarshal(recorded, &report) != nil {
		return ""
	}
	var there, gone []string
	for _, part := range report.Parts {
		name := strings.ReplaceAll(part.Name, "_", " ")
		if part.Tokens > 0 {
			there = append(there, fmt.Sprintf("%s %d", name, part.Tokens))
		}
		if part.Cut > 0 {
			gone = append(gone, fmt.Sprintf("%d of %s by reference", part.Cut, name))
		}
		if part.LeftOut > 0 {
			gone = append(gone, fmt.Sprintf("%d of %s left out", part.LeftOut, name))
		}
	}
	line := fmt.Sprintf("prompt %d tokens: %s", report.Input, strings.Join(there, ", "))
	if len(gone) > 0 {
		line += "; " + strings.Join(gone, ", ")
	}
	return line
}
