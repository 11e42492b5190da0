package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
)

// printable makes text from models, tools and users safe for a terminal: line
// ends and tabs stay, every other control character, and every one that
// reorders or hides text, is shown as an escape.
func printable(text string) string {
	if !strings.ContainsFunc(text, unsafe) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unsafe(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func unsafe(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || invisible(r))
}

// invisible are format characters that change how others are read, line and
// paragraph separators, and what stands for a broken byte. Joiners are needed by
// several scripts and stay.
func invisible(r rune) bool {
	switch r {
	case '\u200c', '\u200d':
		return false
	case '\u2028', '\u2029':
		return true
	}
	return unicode.Is(unicode.Cf, r)
}

// oneLine is printable on one line of at most limit characters.
func oneLine(text string, limit int) string {
	text = strings.NewReplacer("\n", " ", "\t", " ").Replace(printable(text))
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit-1]) + "…"
}

// style is an ANSI colour, used on terminals only.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

func (a *app) paint(s style, text string) string {
	if !a.color || s == plain {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

func statusStyle(status agent.Status) style {
	switch status {
	case agent.StatusSucceeded:
		return green
	case agent.StatusFailed:
		return red
	case agent.StatusCanceled:
		return yellow
	case agent.StatusQueued, agent.StatusRunning, agent.StatusWaitingConfirmation:
		return bold
	}
	return plain
}

// ended is a status with its reason, "failed (step_limit)".
func ended(status agent.Status, reason agent.Reason, detail string) string {
	switch {
	case reason == "":
		return string(status)
	case detail == "":
		return fmt.Sprintf("%s (%s)", status, reason)
	}
	return fmt.Sprintf("%s (%s: %s)", status, reason, detail)
}

// dollars prints micro-dollars exactly.
func dollars(micros int64) string {
	return fmt.Sprintf("$%d.%06d", micros/1_000_000, micros%1_000_000)
}

// cost prints what usage is known to cost; unknown is never shown as zero.
func cost(micros int64, unpriced int) string {
	if unpriced == 0 {
		return dollars(micros)
	}
	if micros == 0 {
		return "cost unknown (no price)"
	}
	return fmt.Sprintf("at least %s (%s without a price)", dollars(micros), count(unpriced, "call"))
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// took is a duration for people.
func took(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return "-"
	}
	d := max(to.Sub(from), 0)
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// cell is one field of a table.
type cell struct {
	text  string
	style style
}

// table prints rows in aligned columns. Widths are counted in characters before
// colours are put on, which a tab writer cannot do.
func (a *app) table(out io.Writer, rows [][]cell) {
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, c := range row {
			b.WriteString(a.paint(c.style, c.text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+2))
			}
		}
		fmt.Fprintln(out, strings.TrimRight(b.String(), " "))
	}
}

// row makes cells without colour.
func row(texts ...string) []cell {
	cells := make([]cell, len(texts))
	for i, text := range texts {
		cells[i] = cell{text: text}
	}
	return cells
}
