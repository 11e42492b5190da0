package session_test

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/session"
)

var vocabulary = session.Vocabulary{
	"restart":  {"restart", "reboot", "bounce", "重启", "重新启动"},
	"delete":   {"delete", "remove", "drop", "删除", "删", "清空"},
	"deploy":   {"deploy", "release", "部署", "发布", "上线"},
	"rollback": {"roll back", "revert", "回滚"},
	"scale":    {"scale", "扩容", "缩容"},
	"search":   {"search", "check", "query", "查", "搜索"},
	"notify":   {"notify", "page", "通知"},
}

// row is one labelled message.
type row struct {
	line             int
	class, want, raw string
}

func rows(t testing.TB) []row {
	t.Helper()
	file, err := os.Open("testdata/messages.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var list []row
	scanner := bufio.NewScanner(file)
	for n := 1; scanner.Scan(); n++ {
		if text := scanner.Text(); text != "" && text[0] != '#' {
			parts := strings.Split(text, "\t")
			if len(parts) != 3 {
				t.Fatalf("line %d has %d fields", n, len(parts))
			}
			list = append(list, row{n, parts[0], parts[1], unescape(t, parts[2])})
		}
	}
	return list
}

func unescape(t testing.TB, text string) string {
	t.Helper()
	text = strings.ReplaceAll(text, `\n`, "\n")
	for {
		before, rest, found := strings.Cut(text, `\u{`)
		if !found {
			return text
		}
		hex, after, _ := strings.Cut(rest, "}")
		code, err := strconv.ParseInt(hex, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		text = before + string(rune(code)) + after
	}
}

// show writes findings as the table does.
func show(f session.Findings) string {
	var parts []string
	list := func(tools []string) string {
		if len(tools) == 0 {
			return "-"
		}
		return strings.Join(tools, ",")
	}
	if len(f.Lifts) > 0 {
		parts = append(parts, "lift "+list(f.Lifts))
	}
	for _, p := range f.Prohibitions {
		kind := "forbid "
		if p.Ask {
			kind = "ask "
		}
		if part := kind + list(p.Tools); !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "; ")
}

// normal joins findings of one kind, for messages that say a thing twice or in
// two clauses.
func normal(findings string) map[string]bool {
	set := map[string]bool{}
	for part := range strings.SplitSeq(findings, "; ") {
		kind, tools, _ := strings.Cut(part, " ")
		for tool := range strings.SplitSeq(tools, ",") {
			set[kind+" "+tool] = true
		}
	}
	return set
}

// Every message of the table has exactly the findings that a person gave it.
// The measure is over single findings: precision is how many that were found
// are right, recall how many that are right were found.
func TestDetectTable(t *testing.T) {
	t.Parallel()
	type measure struct{ rows, found, wanted, right int }
	measures := map[string]*measure{}
	var classes []string
	for _, r := range rows(t) {
		f, err := session.Detect(r.raw, vocabulary)
		if err != nil {
			t.Errorf("line %d: %v", r.line, err)
		}
		got := show(f)
		m := measures[r.class]
		if m == nil {
			m = &measure{}
			measures[r.class], classes = m, append(classes, r.class)
		}
		m.rows++
		found, wanted := normal(got), normal(r.want)
		delete(found, "none ")
		delete(wanted, "none ")
		m.found += len(found)
		m.wanted += len(wanted)
		for finding := range found {
			if wanted[finding] {
				m.right++
			}
		}
		if fmt.Sprint(found) != fmt.Sprint(wanted) {
			t.Errorf("line %d: %q\n got %s\nwant %s", r.line, r.raw, got, r.want)
		}
		check(t, r.raw, f)
	}
	total, ratio := 0, func(a, b int) string {
		if b == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3f", float64(a)/float64(b))
	}
	for _, class := range classes {
		m := measures[class]
		total += m.rows
		t.Logf("%-10s %3d messages, %3d findings: precision %s, recall %s", class, m.rows, m.wanted, ratio(m.right, m.found), ratio(m.right, m.wanted))
	}
	if total < 150 {
		t.Errorf("the table has %d messages", total)
	}
}

// check holds what is true of all findings.
func check(t testing.TB, message string, f session.Findings) {
	t.Helper()
	for _, p := range f.Prohibitions {
		switch {
		case p.Text == "" || !strings.Contains(message, p.Text):
			t.Errorf("%.200q: the text %.200q is not the user's", message, p.Text)
		case len(p.Text) > session.MaxSentenceBytes:
			t.Errorf("%.200q: the text has %d bytes", message, len(p.Text))
		case !slices.IsSorted(p.Tools) || len(slices.Compact(slices.Clone(p.Tools))) != len(p.Tools):
			t.Errorf("%.200q: tools %v", message, p.Tools)
		}
	}
	if len(f.Prohibitions) > session.MaxProhibitions {
		t.Errorf("%.200q: %d prohibitions", message, len(f.Prohibitions))
	}
}
