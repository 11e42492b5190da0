package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/vault"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs:\n--- got\n%s\n--- want\n%s", path, got, want)
	}
	// Nothing that a terminal obeys may come out, in either form.
	for _, r := range got {
		if unsafe(r) {
			t.Errorf("%s: the output holds %U", name, r)
		}
	}
}

// follow runs a command on virtual time.
func follow(t *testing.T, c console, args ...string) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if c.engine != nil && c.engine.ended == nil {
			c.engine.ended = make(chan struct{})
		}
		o = c.invoke(t.Context(), args...)
	})
	return o
}

func TestRunFollows(t *testing.T) {
	t.Parallel()
	for _, form := range []struct {
		golden string
		args   []string
	}{{"run.txt", nil}, {"run.jsonl", []string{"--json"}}} {
		c := console{reader: &fakeReader{reports: []db.RunReport{running(), running(), report()}}, engine: &fakeEngine{}}
		args := append([]string{"run", "--agent", "opspilot", "--run-id", "run-1", "--tenant", "acme", "--user", "ann", "--message", "Why?"}, form.args...)
		o := follow(t, c, args...)
		if o.code != exitOK || o.errOut != "" {
			t.Errorf("exit code %d, stderr %q", o.code, o.errOut)
		}
		golden(t, form.golden, o.out)
		for line := range strings.Lines(o.out) {
			if form.args != nil && !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		}
		if scope := c.reader.scopes[0]; scope.Tenant != "acme" || scope.User != "ann" {
			t.Errorf("read for %+v", scope)
		}
	}
}

func TestJSONKeepsTheValue(t *testing.T) {
	t.Parallel()
	c := console{reader: &fakeReader{reports: []db.RunReport{report()}}}
	o := c.invoke(t.Context(), "show", "run-1", "--tenant", "acme", "--content", "--json")
	var document showDocument
	if err := json.Unmarshal([]byte(o.out), &document); err != nil {
		t.Fatal(err)
	}
	if document.Answer != report().Answer {
		t.Errorf("the answer is %q", document.Answer)
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"show.txt": nil, "show-content.txt": {"--content"}, "show.json": {"--json"}, "show-content.json": {"--json", "--content"},
	} {
		c := console{reader: &fakeReader{reports: []db.RunReport{report()}}}
		o := c.invoke(t.Context(), append([]string{"show", "run-1", "--tenant", "acme"}, args...)...)
		if o.code != exitOK || o.errOut != "" {
			t.Errorf("%s: exit code %d, stderr %q", name, o.code, o.errOut)
		}
		golden(t, name, o.out)
		if content := strings.Contains(name, "content"); strings.Contains(o.out, "The pool leaks") != content || strings.Contains(o.out, "payment") != content || strings.Contains(o.out, "line one") != content {
			t.Errorf("%s: content shown is not as asked", name)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	runs := []db.RunSummary{
		{
			RunID: "run-1", User: "ann", Conversation: "c-1", Generation: 2, Agent: "opspilot", DefinitionVersion: "1", Environment: "test",
			Status: agent.StatusFailed, Reason: agent.ReasonStepLimit, Step: 11, ToolCalls: 3, BilledTokens: 12345, CostMicros: 1_234_567,
			Deadline: at(180_000), CreatedAt: at(0), StartedAt: at(1), EndedAt: at(65_000),
		},
		{RunID: "a-longer-run-2", User: "bob", Conversation: "c-2", Generation: 1, Agent: "opspilot", DefinitionVersion: "1", Environment: "test", Status: agent.StatusQueued, Unpriced: true, CreatedAt: at(10)},
	}
	for name, args := range map[string][]string{"list.txt": nil, "list.json": {"--json"}} {
		c := console{reader: &fakeReader{runs: runs}}
		o := c.invoke(t.Context(), append([]string{"list", "--tenant", "acme", "--user", "ann", "--status", "failed", "--agent", "opspilot", "--limit", "7"}, args...)...)
		if o.code != exitOK {
			t.Errorf("%s: exit code %d, stderr %q", name, o.code, o.errOut)
		}
		golden(t, name, o.out)
		if want := (db.RunFilter{Tenant: "acme", User: "ann", Status: agent.StatusFailed, Agent: "opspilot", Limit: 7}); c.reader.filter != want {
			t.Errorf("filter is %+v, want %+v", c.reader.filter, want)
		}
	}
	if o := (console{reader: &fakeReader{}}).invoke(t.Context(), "list", "--json"); strings.Join(strings.Fields(o.out), "") != `{"runs":[]}` {
		t.Errorf("an empty list is %q", o.out)
	}
}

func TestColorOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	for _, color := range []bool{true, false} {
		c := console{color: color, reader: &fakeReader{reports: []db.RunReport{report()}}}
		o := c.invoke(t.Context(), "show", "run-1", "--tenant", "acme")
		if strings.Contains(o.out, "\x1b[32msucceeded (final)\x1b[0m") != color || strings.Contains(o.out, "\x1b") != color {
			t.Errorf("color %v: %q", color, o.out)
		}
	}
}

// end returns a report of a run that ended for reason.
func end(reason agent.Reason) db.RunReport {
	r := report()
	r.Run.Reason, r.Run.Status, r.Answer = reason, reason.Status(), ""
	return r
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	ask := []string{"run", "--agent", "opspilot", "--message", "Why?"}
	closed := make(chan struct{})
	close(closed)
	over := func(result agent.RunResult, err error) *fakeEngine {
		if err != nil {
			err = &workflowFailed{err}
		}
		return &fakeEngine{ended: closed, result: result, err: err}
	}
	for name, test := range map[string]struct {
		console console
		args    []string
		code    int
		says    string
	}{
		"failed":               {console{reader: &fakeReader{reports: []db.RunReport{end(agent.ReasonStepLimit)}}, engine: &fakeEngine{}}, ask, exitRunFailed, ""},
		"canceled":             {console{reader: &fakeReader{reports: []db.RunReport{end(agent.ReasonCanceled)}}, engine: &fakeEngine{}}, ask, exitCanceled, ""},
		"superseded":           {console{reader: &fakeReader{reports: []db.RunReport{end(agent.ReasonSuperseded)}}, engine: &fakeEngine{}}, ask, exitCanceled, ""},
		"detached":             {console{engine: &fakeEngine{}}, append(ask, "--detach"), exitOK, ""},
		"exists":               {console{engine: &fakeEngine{startErr: errExists}}, ask, exitUsage, "exists already"},
		"no Temporal":          {console{noTemporal: true}, ask, exitUnreachable, "Temporal cannot be reached"},
		"start unanswered":     {console{engine: &fakeEngine{startErr: serviceerror.NewUnavailable("gone")}}, ask, exitUnreachable, "is safe"},
		"start refused":        {console{engine: &fakeEngine{startErr: errBroken}}, ask, exitRunFailed, "broken"},
		"unknown agent":        {console{reader: &fakeReader{}, engine: over(agent.RunResult{}, failed(agent.ErrorUnknownAgent, "no such agent"))}, ask, exitUsage, "no such agent"},
		"conflict":             {console{reader: &fakeReader{}, engine: over(agent.RunResult{}, failed(agent.ErrorConversationConflict, "at version 3"))}, ask, exitUsage, "at version 3"},
		"terminated":           {console{reader: &fakeReader{}, engine: over(agent.RunResult{}, &temporal.TerminatedError{})}, ask, exitRunFailed, "terminated from outside"},
		"database down":        {console{reader: &fakeReader{err: db.ErrUnavailable}, engine: over(agent.RunResult{Status: agent.StatusSucceeded, Reason: agent.ReasonFinal}, nil)}, ask, exitOK, "PostgreSQL cannot be used"},
		"no database":          {console{engine: &fakeEngine{}, env: map[string]string{"DATABASE_URL": ""}}, ask, exitUsage, "FAIRLEAD_DATABASE_URL"},
		"follow, no database":  {console{engine: &fakeEngine{}, env: map[string]string{"DATABASE_URL": ""}}, []string{"follow", "run-1"}, exitUsage, "FAIRLEAD_DATABASE_URL"},
		"cancel, no database":  {console{engine: &fakeEngine{}, env: map[string]string{"DATABASE_URL": ""}}, []string{"cancel", "run-1"}, exitUsage, "FAIRLEAD_DATABASE_URL"},
		"no keys to seal with": {console{engine: &fakeEngine{startErr: db.ErrUnavailable}}, ask, exitUnreachable, "PostgreSQL cannot be reached"},
		"destroyed keys":       {console{engine: &fakeEngine{startErr: fmt.Errorf("keys of user demo: %w", db.ErrKeysDestroyed)}}, ask, exitUsage, "were destroyed"},
		"follow unknown":       {console{reader: &fakeReader{}, engine: &fakeEngine{ended: closed, err: errUnknownRun}}, []string{"follow", "run-9"}, exitUsage, "there is no run run-9"},
		"follow, forgotten":    {console{reader: &fakeReader{reports: []db.RunReport{report()}}, engine: &fakeEngine{ended: closed, err: errUnknownRun}}, []string{"follow", "run-1"}, exitOK, ""},
		"follow, Temporal down": {
			console{reader: &fakeReader{reports: []db.RunReport{running(), report()}}, noTemporal: true},
			[]string{"follow", "run-1"},
			exitOK, "Temporal cannot be reached",
		},
		"follow, both down": {console{reader: &fakeReader{err: db.ErrUnavailable}, noTemporal: true}, []string{"follow", "run-1"}, exitUnreachable, "PostgreSQL cannot be reached"},
		"show unknown":      {console{reader: &fakeReader{}}, []string{"show", "run-9"}, exitUsage, "there is no run run-9"},
		"show, no database": {console{env: map[string]string{"DATABASE_URL": ""}}, []string{"show", "run-9"}, exitUsage, "FAIRLEAD_DATABASE_URL"},
		"show, wrong key":   {console{reader: &fakeReader{err: fmt.Errorf("show run: %w", vault.ErrWrapped)}}, []string{"show", "run-9"}, exitUsage, "the one that the workers have"},
		"show, destroyed":   {console{reader: &fakeReader{err: fmt.Errorf("show run: %w", db.ErrKeysDestroyed)}}, []string{"show", "run-9", "--content"}, exitUsage, "nobody can read"},
		"show, down":        {console{reader: &fakeReader{err: db.ErrUnavailable}}, []string{"show", "run-9"}, exitUnreachable, "postgres://u@h/d"},
		"list, down":        {console{reader: &fakeReader{err: db.ErrUnavailable}}, []string{"list"}, exitUnreachable, "is it running"},
		"old schema":        {console{reader: &fakeReader{err: &db.SchemaError{Need: 1}}}, []string{"list"}, exitUnreachable, "migrate"},
		"cancel":            {console{reader: &fakeReader{reports: []db.RunReport{running(), end(agent.ReasonCanceled)}}, engine: &fakeEngine{}}, []string{"cancel", "run-1"}, exitOK, ""},
		"cancel, no wait":   {console{engine: &fakeEngine{}}, []string{"cancel", "run-1", "--no-wait"}, exitOK, "was requested"},
		"cancel too late":   {console{reader: &fakeReader{reports: []db.RunReport{report()}}, engine: &fakeEngine{}}, []string{"cancel", "run-1"}, exitRunFailed, "before the cancellation"},
		"cancel unknown":    {console{engine: &fakeEngine{err: errUnknownRun}}, []string{"cancel", "run-9"}, exitUsage, "is going on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o outcome
			if test.console.engine != nil && test.console.engine.ended == closed {
				// A channel from outside does not belong into a bubble.
				o = test.console.invoke(t.Context(), test.args...)
			} else {
				o = follow(t, test.console, test.args...)
			}
			if o.code != test.code || !strings.Contains(o.errOut, test.says) || test.says == "" && o.errOut != "" {
				t.Errorf("exit code %d, want %d; stderr %q, want %q", o.code, test.code, o.errOut, test.says)
			}
			if strings.Contains(o.errOut, "goroutine") {
				t.Errorf("a stack trace for people: %s", o.errOut)
			}
		})
	}
}

func TestRefusedBeforeAnythingIsStarted(t *testing.T) {
	t.Parallel()
	ask := func(more ...string) []string {
		return append([]string{"run", "--agent", "opspilot", "--message", "Why?"}, more...)
	}
	piped := []string{"run", "--agent", "opspilot"}
	for name, test := range map[string]struct {
		console console
		args    []string
		says    string
	}{
		"10 MB":             {console{stdin: strings.Repeat("x", 10<<20)}, piped, "more than 262144 bytes"},
		"one byte too many": {console{stdin: strings.Repeat("x", agent.MaxMessageBytes+1)}, piped, "more than 262144 bytes"},
		"invalid UTF-8":     {console{stdin: "a\xff"}, piped, "not valid UTF-8"},
		"NUL":               {console{stdin: "a\x00"}, piped, "NUL"},
		"empty":             {console{stdin: "\n"}, piped, "message is empty"},
		"nobody types":      {console{terminal: true}, piped, "--message"},
		"no agent":          {console{}, []string{"run", "--message", "Why?"}, "agent is missing"},
		"zero steps":        {console{}, ask("--max-steps", "0"), "max_steps is 0"},
		"negative tokens":   {console{}, ask("--max-tokens", "-5"), "max_tokens is -5"},
		"zero cost":         {console{}, ask("--max-cost", "0"), "max_cost_micros is 0"},
		"negative cost":     {console{}, ask("--max-cost", "-0.5"), "max_cost_micros is -500000"},
		"no cost":           {console{}, ask("--max-cost", "cheap"), "not an amount of dollars"},
		"zero time":         {console{}, ask("--timeout", "0s"), "timeout is 0"},
		"bad tenant":        {console{}, ask("--tenant", "a b"), "tenant must be"},
		"bad group":         {console{}, ask("--group", "a b"), "group must be"},
		"bad project":       {console{}, ask("--project", "a b"), "project must be"},
		"empty run id":      {console{}, ask("--run-id", ""), "run_id is missing"},
		"version":           {console{}, ask("--expect-version", "-1"), "conversation_version is negative"},
		"no fact":           {console{}, ask("--fact", "payment-api"), "--fact must be KEY=VALUE"},
		"odd fact":          {console{}, ask("--fact", "Service=payment-api"), "session.facts"},
		"empty fact":        {console{}, ask("--fact", "service="), "session.facts"},
		"odd tool":          {console{}, ask("--forbid", ""), "session.forbid"},
		"odd prohibition":   {console{}, ask("--lift", "a b"), "session.lift"},
		"unknown flag":      {console{}, ask("--max-stepz", "3"), "unknown flag"},
		"message as words":  {console{}, []string{"run", "why", "does", "it"}, "--message"},
		"unknown command":   {console{}, []string{"start"}, "no command"},
		"bad status":        {console{}, []string{"list", "--status", "done"}, "must be one of"},
		"bad limit":         {console{}, []string{"list", "--limit", "0"}, "between 1 and"},
		"no run id":         {console{}, []string{"show"}, "needs one RUN_ID"},
		"odd run id":        {console{}, []string{"show", "a b\x1b[2J"}, "RUN_ID must be"},
		"odd user":          {console{}, []string{"show", "run-1", "--user", "a b"}, "--user"},
		"bad setting":       {console{env: map[string]string{"FAIRLEAD_LOG_LEVEL": "loud"}}, ask(), "FAIRLEAD_LOG_LEVEL"},
		"absent file":       {console{}, ask("--config", "absent.yaml"), "absent.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.console.engine = &fakeEngine{}
			o := test.console.invoke(t.Context(), test.args...)
			if o.code != exitUsage || !strings.Contains(o.errOut, test.says) {
				t.Errorf("exit code %d, want 2; stderr %q, want %q in it", o.code, o.errOut, test.says)
			}
			if len(test.console.engine.started) > 0 {
				t.Error("something was started")
			}
			if strings.Contains(o.errOut, "\x1b") {
				t.Errorf("stderr obeys what was typed: %q", o.errOut)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	c := console{engine: &fakeEngine{}, memories: &fakeMemories{participants: []db.Participant{{User: "ann"}}}, stdin: "Why does it fail?\r\n"}
	o := c.invoke(t.Context(), "run", "--agent", "opspilot", "--agent-version", "2", "--tenant", "acme", "--user", "ann", "--environment", "test",
		"--conversation", "c-1", "--group", "ops", "--project", "apollo", "--expect-version", "0", "--page", "services", "--flag", "a", "--flag", "b", "--max-steps", "3",
		"--fact", "current_service=payment-api", "--fact", "filter=a=b, c", "--forbid", "restart_service", "--forbid", "open_ticket", "--lift", "p-1", "--lift", "p-2",
		"--max-cost", "$0.05", "--timeout", "30s", "--message", "-", "--detach", "--json")
	if o.code != exitOK {
		t.Fatalf("exit code %d: %s", o.code, o.errOut)
	}
	got := c.engine.started[0]
	if got.RunID == "" || !strings.Contains(o.out, got.RunID) {
		t.Errorf("run ID %q in %s", got.RunID, o.out)
	}
	got.RunID = ""
	want := agent.RunRequest{
		Tenant: "acme", User: "ann", Environment: "test", Conversation: "c-1", ConversationVersion: ptr(int64(0)),
		Agent: "opspilot", AgentVersion: "2", Group: "ops", Project: "apollo", Page: "services", Flags: []string{"a", "b"}, Message: "Why does it fail?",
		Session: &agent.SessionChange{
			Facts:  []agent.ConfirmedFact{{Key: "current_service", Value: "payment-api"}, {Key: "filter", Value: "a=b, c"}},
			Forbid: []string{"restart_service", "open_ticket"}, Lift: []string{"p-1", "p-2"},
		},
		Budget: &agent.BudgetOverride{MaxSteps: ptr(3), MaxCostMicros: ptr(int64(50_000)), Timeout: ptr(30 * time.Second)},
	}
	gotJSON, _ := json.Marshal(got)
	wantJSON, _ := json.Marshal(want)
	if string(gotJSON) != string(wantJSON) {
		t.Errorf("request\n%s, want\n%s", gotJSON, wantJSON)
	}
}

func TestNoWorkerIsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c := console{reader: &fakeReader{}, engine: &fakeEngine{unserved: true, ended: make(chan struct{})}}
		o := c.invoke(ctx, "run", "--agent", "opspilot", "--message", "Why?")
		if strings.Count(o.errOut, "No worker takes work from task queue fairlead") != 1 {
			t.Errorf("stderr: %q", o.errOut)
		}
		// The context ended as it does with Ctrl-C.
		if o.code != exitInterrupted || !strings.Contains(o.errOut, "The run goes on") || len(c.engine.canceled) != 0 {
			t.Errorf("exit code %d, stderr %q", o.code, o.errOut)
		}
	})
}

func TestGivesUpWhenNothingAnswers(t *testing.T) {
	t.Parallel()
	c := console{reader: &fakeReader{err: db.ErrUnavailable}, engine: &fakeEngine{stateErr: errBroken}}
	o := follow(t, c, "run", "--agent", "opspilot", "--message", "Why?")
	if o.code != exitUnreachable || !strings.Contains(o.errOut, "the run goes on by itself") {
		t.Errorf("exit code %d, stderr %q", o.code, o.errOut)
	}
}

func TestParseDollars(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"1": 1_000_000, "0.05": 50_000, "$12.345678": 12_345_678, ".5": 500_000, "-1": -1_000_000, "0": 0} {
		if got, err := parseDollars(text); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", ".", "1.", "0.0000001", "1e3", "1,5", "99999999999999", "NaN", "--1", "+1"} {
		if got, err := parseDollars(text); err == nil {
			t.Errorf("%q gives %d", text, got)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add(hostile)
	f.Add("日本語 \xff\u2028\U000e0041 ok\n\tfine")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range printable(text) {
			if unsafe(r) {
				t.Errorf("%q leaves %U", text, r)
			}
		}
		if line := oneLine(text, 20); strings.ContainsAny(line, "\n\t") || len([]rune(line)) > 20 {
			t.Errorf("%q is no line of 20: %q", text, line)
		}
	})
}
