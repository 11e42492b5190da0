package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
)

func unsettledWrites() approval.Unsettled {
	write := approval.Write{
		RunID: "run-1", CallID: "1.0", Agent: "opspilot", Environment: "production", Requester: "ann", Tool: "restart_service", ToolVersion: "1",
		Arguments: []byte(`{"service":"payment"}`), Resource: "service/payment", ResourceVersion: "v7", Summary: forged, Key: strings.Repeat("cd", 32),
		Result: db.WriteUnknown, ApprovedBy: "bob", RecordedAt: at(0), SentAt: at(5000), Sends: 2,
		RunStatus: agent.StatusFailed, RunReason: agent.ReasonOutcomeUnknown,
	}
	open := write
	open.RunID, open.Result, open.RunStatus, open.RunReason, open.Sends, open.Summary = "run-2", db.WriteOpen, agent.StatusRunning, "", 1, "Restart."
	return approval.Unsettled{Writes: []approval.Write{write, open}, Forbidden: 1}
}

func TestUnsettled(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"unsettled.txt": nil, "unsettled.json": {"--json"}} {
		c := console{office: &fakeOffice{unsettled: unsettledWrites()}}
		o := c.invoke(t.Context(), append([]string{"unsettled", "--tenant", "acme", "--user", "olga"}, args...)...)
		if o.code != exitOK || args == nil && !strings.Contains(o.errOut, "1 write") {
			t.Errorf("%s: exit code %d, stderr %q", name, o.code, o.errOut)
		}
		golden(t, name, o.out)
	}
	if o := (console{office: &fakeOffice{}}).invoke(t.Context(), "unsettled", "--user", "olga"); o.code != exitOK || !strings.Contains(o.errOut, "No write") {
		t.Errorf("%+v", o)
	}
	damaged := approval.Unsettled{Damaged: []approval.WriteRef{{RunID: "run-6", CallID: "0.0"}}}
	if o := (console{office: &fakeOffice{unsettled: damaged}}).invoke(t.Context(), "unsettled", "--user", "olga", "--json"); o.code != exitRunFailed ||
		!strings.Contains(o.errOut, "run run-6, call 0.0") || !strings.Contains(o.out, `"run-6"`) {
		t.Errorf("damaged: %+v", o)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	base := []string{"settle", "run-1", "--call", "1.0", "--tenant", "acme", "--user", "olga"}
	for name, test := range map[string]struct {
		console console
		args    []string
		settles string
		signals int
		out     string
		errOut  string
	}{
		"performed": {
			console{office: &fakeOffice{settled: approval.Settled{Result: db.WritePerformed}}, engine: &fakeEngine{}},
			[]string{"--performed", "--note", "seen in the log"},
			`acme/olga: run-1 1.0 performed true, "seen in the log"`, 0, "stays as it ended", "",
		},
		"not performed, goes on": {
			console{office: &fakeOffice{settled: approval.Settled{Result: db.WriteNotPerformed, Continues: true}}, engine: &fakeEngine{}},
			[]string{"--not-performed"},
			`acme/olga: run-1 1.0 performed false, ""`, 1, "not performed, says olga.\nThe run goes on", "",
		},
		"without Temporal": {
			console{office: &fakeOffice{settled: approval.Settled{Result: db.WritePerformed, Continues: true}}, engine: &fakeEngine{}, noTemporal: true},
			[]string{"--performed"},
			`acme/olga: run-1 1.0 performed true, ""`, 0, "was performed", "finds the record with its next look",
		},
		"the workflow is gone": {
			console{office: &fakeOffice{settled: approval.Settled{Result: db.WritePerformed, Continues: true}}, engine: &fakeEngine{signalErr: errUnknownRun}},
			[]string{"--performed"},
			`acme/olga: run-1 1.0 performed true, ""`, 1, "was performed", "ended from outside",
		},
	} {
		o := test.console.invoke(t.Context(), slices.Concat(base, test.args)...)
		if o.code != exitOK || !strings.Contains(o.out, test.out) || !strings.Contains(o.errOut, test.errOut) || test.errOut == "" && o.errOut != "" {
			t.Errorf("%s: %+v", name, o)
		}
		if !slices.Equal(test.console.office.settles, []string{test.settles}) || len(test.console.engine.signals) != test.signals {
			t.Errorf("%s: %q, signals %q", name, test.console.office.settles, test.console.engine.signals)
		}
	}
	c := console{office: &fakeOffice{settled: approval.Settled{Result: db.WritePerformed, Continues: true}}, noTemporal: true}
	o := c.invoke(t.Context(), slices.Concat(base, []string{"--performed", "--json"})...)
	var document settledDocument
	want := settledDocument{RunID: "run-1", CallID: "1.0", Result: db.WritePerformed, SettledBy: "olga", Continues: true}
	if err := json.Unmarshal([]byte(o.out), &document); err != nil || document != want {
		t.Errorf("%+v, %v", document, err)
	}

	for name, test := range map[string]struct {
		err  error
		args []string
		code int
		says string
	}{
		"both":          {nil, []string{"--performed", "--not-performed"}, exitUsage, "either"},
		"neither":       {nil, nil, exitUsage, "either"},
		"no call":       {nil, []string{"--performed", "--call", ""}, exitUsage, "--call is missing"},
		"no user":       {nil, []string{"--performed", "--user", ""}, exitUsage, "--user is missing"},
		"long note":     {nil, []string{"--performed", "--note", strings.Repeat("x", approval.MaxNoteBytes+1)}, exitUsage, "at most 500 bytes"},
		"broken note":   {nil, []string{"--performed", "--note", "\xff"}, exitUsage, "UTF-8"},
		"known":         {approval.ErrDecided, []string{"--performed"}, exitRunFailed, "already decided"},
		"forbidden":     {approval.ErrForbidden, []string{"--performed"}, exitRunFailed, "ask one who may"},
		"unknown":       {approval.ErrNotFound, []string{"--performed"}, exitUsage, "no such plan or write"},
		"damaged":       {approval.ErrDamaged, []string{"--performed"}, exitRunFailed, "damaged"},
		"policies":      {approval.ErrUnavailable, []string{"--performed"}, exitUnreachable, "could not be evaluated"},
		"database down": {db.ErrUnavailable, []string{"--performed"}, exitUnreachable, "PostgreSQL cannot be reached"},
		"anything else": {errors.New("odd"), []string{"--performed"}, exitRunFailed, "odd"},
	} {
		c := console{office: &fakeOffice{err: test.err}, engine: &fakeEngine{}}
		o := c.invoke(t.Context(), slices.Concat(base, test.args)...)
		if o.code != test.code || !strings.Contains(o.errOut, test.says) || len(c.office.settles) != 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestOpenOffice opens real offices, which connect to nothing yet.
func TestOpenOffice(t *testing.T) {
	t.Parallel()
	var settings config.Config
	settings.Database.URL = "postgres://u@127.0.0.1:1/d"
	key := approval.NewKey()
	settings.Approval.Key = config.Secret(key.Encode())
	o, err := openOffice(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if _, err := o.Pending(t.Context(), approval.Approver{Tenant: "acme", User: "bob"}, approval.Filter{}); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	settings.Policies = filepath.Join(t.TempDir(), "absent")
	var usage *exit
	if _, err := openOffice(t.Context(), settings); !errors.As(err, &usage) || usage.code != exitUsage || !strings.Contains(err.Error(), "FAIRLEAD_POLICIES") {
		t.Errorf("absent policies: %v", err)
	}
}

func TestApprovalKey(t *testing.T) {
	t.Parallel()
	// A broken key in the settings does not keep anybody from making a good one.
	c := console{env: map[string]string{"FAIRLEAD_APPROVAL_KEY": "broken"}}
	o := c.invoke(t.Context(), "approval-key")
	lines := strings.Split(o.out, "\n")
	if o.code != exitOK || len(lines) != 3 || lines[2] != "" {
		t.Fatalf("%+v", o)
	}
	private, isPrivate := strings.CutPrefix(lines[0], "FAIRLEAD_APPROVAL_KEY=")
	public, isPublic := strings.CutPrefix(lines[1], "FAIRLEAD_APPROVAL_PUBLIC_KEYS=")
	key, err := approval.ParseKey(private)
	if !isPrivate || !isPublic || err != nil || key.Public() != public {
		t.Errorf("%q, %v", o.out, err)
	}
	if strings.Contains(o.errOut, private) || !strings.Contains(o.errOut, "never to a worker") {
		t.Errorf("stderr %q", o.errOut)
	}
	if again := c.invoke(t.Context(), "approval-key", "--json"); again.code != exitOK || strings.Contains(again.out, private) || !json.Valid([]byte(again.out)) {
		t.Errorf("%+v", again)
	}
}

// waitingReport is report while its second step waits for a person, for the
// second time: the resource had changed, and somebody sent a bad token.
func waitingReport() db.RunReport {
	r := running()
	r.Run.Status, r.Run.WaitingSince = agent.StatusWaitingConfirmation, at(1300)
	r.Transitions = append(r.Transitions, db.Transition{Seq: 3, From: agent.StatusRunning, To: agent.StatusWaitingConfirmation, At: at(1300)})
	r.Steps = append(r.Steps, db.StepReport{Step: 1, Calls: []db.CallReport{{
		ID: "1.0", Step: 1, Tool: "restart_service", ToolVersion: "1", Risk: "write", Status: db.CallProposed,
		ArgumentsHash: strings.Repeat("78", 32), ProposedAt: at(1290),
	}}})
	plan := db.WritePlan{
		RunID: "run-1", CallID: "1.0", Revision: 1, Tool: "restart_service", ToolVersion: "1", ArgumentsHash: strings.Repeat("78", 32),
		Resource: "service/payment " + hostile, ResourceVersion: "v7", Hash: strings.Repeat("9a", 32), PolicyDigest: strings.Repeat("bc", 32),
		Status: db.PlanStale, CreatedAt: at(1300), ExpiresAt: at(1_801_300), DecidedAt: at(1400),
	}
	second := plan
	second.Revision, second.ResourceVersion, second.Status, second.DecidedAt, second.CreatedAt = 2, "v8", db.PlanPending, time.Time{}, at(1400)
	r.Plans = []db.WritePlan{plan, second}
	r.Refusals = []db.Refusal{
		{CallID: "1.0", Code: agent.RefusedSignature, At: at(1350)},
		{CallID: "1.0", Code: agent.RefusedNotAuthorized, TokenID: "token-0", Approver: "carl", At: at(1360)},
	}
	return r
}

// settledReport is the same run after its end: the write was approved, its
// outcome stayed unknown, and an operator settled it.
func settledReport() db.RunReport {
	r := waitingReport()
	r.Run.Status, r.Run.Reason, r.Run.WaitingSince, r.Run.EndedAt, r.Run.Step, r.Run.ToolCalls = agent.StatusFailed, agent.ReasonOutcomeUnknown, time.Time{}, at(9000), 2, 3
	r.Transitions = append(r.Transitions,
		db.Transition{Seq: 4, From: agent.StatusWaitingConfirmation, To: agent.StatusRunning, At: at(2000)},
		db.Transition{Seq: 5, From: agent.StatusRunning, To: agent.StatusFailed, Reason: agent.ReasonOutcomeUnknown, At: at(9000)})
	r.Steps[1].Calls[0].Status = db.CallUnknown
	r.Plans[1].Status, r.Plans[1].DecidedBy, r.Plans[1].DecidedAt, r.Plans[1].TokenID = db.PlanApproved, "bob", at(2000), "token-1"
	r.Refusals = append(r.Refusals, db.Refusal{Code: agent.RefusedNotWaiting, TokenID: "token-1", Approver: "bob", At: at(2500)})
	r.Writes = []db.WriteIntent{{
		Key: strings.Repeat("cd", 32), RunID: "run-1", CallID: "1.0", Revision: 2, ApprovedBy: "bob", PolicyDigest: strings.Repeat("bc", 32),
		Result: db.WritePerformed, ResolvedBy: db.ByOperator, SettledBy: "olga", SettledNote: "seen in the log " + hostile, Sends: 2,
		RecordedAt: at(2000), SentAt: at(5000), ResolvedAt: at(60_000),
	}}
	return r
}

func TestShowWrites(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		report db.RunReport
		args   []string
	}{
		"show-waiting.txt":          {waitingReport(), nil},
		"show-settled.txt":          {settledReport(), nil},
		"show-settled-content.txt":  {settledReport(), []string{"--content"}},
		"show-settled-content.json": {settledReport(), []string{"--content", "--json"}},
	} {
		c := console{reader: &fakeReader{reports: []db.RunReport{test.report}}}
		o := c.invoke(t.Context(), append([]string{"show", "run-1", "--tenant", "acme"}, test.args...)...)
		if o.code != exitOK || o.errOut != "" {
			t.Errorf("%s: exit code %d, stderr %q", name, o.code, o.errOut)
		}
		golden(t, name, o.out)
		if content := test.args != nil; strings.Contains(o.out, "Restart payment") != content || strings.Contains(o.out, "seen in the log") && !content {
			t.Errorf("%s: content shown is not as asked", name)
		}
	}
	o := console{reader: &fakeReader{reports: []db.RunReport{settledReport()}}}.invoke(t.Context(), "show", "run-1", "--tenant", "acme", "--json")
	if strings.Contains(o.out, "Restart payment") || strings.Contains(o.out, "seen in the log") {
		t.Errorf("content without --content: %s", o.out)
	}
}

func TestFollowShowsWhoIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, form := range []struct {
		golden string
		args   []string
	}{{"follow-writes.txt", nil}, {"follow-writes.jsonl", []string{"--json"}}} {
		c := console{reader: &fakeReader{reports: []db.RunReport{running(), waitingReport(), waitingReport(), settledReport()}}, engine: &fakeEngine{}}
		o := follow(t, c, append([]string{"follow", "run-1", "--tenant", "acme"}, form.args...)...)
		if o.code != exitRunFailed || o.errOut != "" {
			t.Errorf("exit code %d, stderr %q", o.code, o.errOut)
		}
		golden(t, form.golden, o.out)
		if form.args == nil && strings.Count(o.out, "starter approve run-1 --tenant acme --user YOU") != 1 {
			t.Errorf("how to approve is not said once:\n%s", o.out)
		}
	}
}

func TestListShowsWhoIsWaitedFor(t *testing.T) {
	t.Parallel()
	runs := []db.RunSummary{
		{RunID: "run-1", User: "ann", Agent: "opspilot", Status: agent.StatusWaitingConfirmation, CreatedAt: at(0), StartedAt: at(1)},
		{RunID: "run-2", User: "ann", Agent: "opspilot", Status: agent.StatusRunning, CreatedAt: at(0), StartedAt: at(1)},
	}
	o := console{reader: &fakeReader{runs: runs}}.invoke(t.Context(), "list", "--tenant", "acme")
	golden(t, "list-waiting.txt", o.out)
	if strings.Count(o.out, "starter approve") != 1 || o.code != exitOK {
		t.Errorf("%+v", o)
	}
}
