package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/api/serviceerror"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
)

// fakeOffice gives its outcomes one after the other, the last one again and
// again, and takes down what it was asked for.
type fakeOffice struct {
	pending   approval.Pending
	unsettled approval.Unsettled
	outcomes  []approval.Outcome
	settled   approval.Settled
	// err is what Pending, Unsettled and Settle say, signErr what signing says,
	// outcomeErr what Outcome says first.
	err, signErr, outcomeErr error

	// waiting are the memories that wait for decisions.
	waiting approval.PendingMemories
	// standing are proposals by their ID, for who may know of them.
	standing map[string]db.MemoryCandidate

	filter  approval.Filter
	signed  []string
	settles []string
	looks   int
}

func (f *fakeOffice) Pending(_ context.Context, _ approval.Approver, filter approval.Filter) (approval.Pending, error) {
	f.filter = filter
	return f.pending, f.err
}

func (f *fakeOffice) sign(who approval.Approver, plan approval.Plan, decision approval.Decision) (approval.Token, error) {
	if f.signErr != nil {
		return approval.Token{}, f.signErr
	}
	f.signed = append(f.signed, fmt.Sprintf("%s %s by %s/%s", decision, plan.Hash[:4], who.Tenant, who.User))
	return approval.Token{
		Text: "secret-looking token", ID: "token-1", Plan: approval.PlanRef{RunID: plan.RunID, CallID: plan.CallID, Revision: plan.Revision},
		Decision: decision, ExpiresAt: at(900_000), WorkflowID: agent.WorkflowID(who.Tenant, plan.RunID),
	}, nil
}

func (f *fakeOffice) Approve(_ context.Context, who approval.Approver, plan approval.Plan) (approval.Token, error) {
	return f.sign(who, plan, approval.Approve)
}

func (f *fakeOffice) Decline(_ context.Context, who approval.Approver, plan approval.Plan) (approval.Token, error) {
	return f.sign(who, plan, approval.Decline)
}

func (f *fakeOffice) Send(ctx context.Context, signaler approval.Signaler, token approval.Token) error {
	return signaler.SignalWorkflow(ctx, token.WorkflowID, "", agent.SignalApproval, agent.Approval{Token: token.Text})
}

func (f *fakeOffice) Outcome(context.Context, approval.Approver, approval.Token) (approval.Outcome, error) {
	f.looks++
	if err := f.outcomeErr; err != nil {
		f.outcomeErr = nil
		return approval.Outcome{}, err
	}
	first := f.outcomes[0]
	if len(f.outcomes) > 1 {
		f.outcomes = f.outcomes[1:]
	}
	return first, nil
}

func (f *fakeOffice) Unsettled(context.Context, approval.Approver) (approval.Unsettled, error) {
	return f.unsettled, f.err
}

func (f *fakeOffice) Settle(ctx context.Context, signaler approval.Signaler, who approval.Approver, ref approval.WriteRef, s approval.Settlement) (approval.Settled, error) {
	if f.err != nil {
		return approval.Settled{}, f.err
	}
	f.settles = append(f.settles, fmt.Sprintf("%s/%s: %s %s performed %v, %q", who.Tenant, who.User, ref.RunID, ref.CallID, s.Performed, s.Note))
	settled := f.settled
	if settled.Continues && signaler != nil {
		settled.SignalError = signaler.SignalWorkflow(ctx, agent.WorkflowID(who.Tenant, ref.RunID), "", agent.SignalSettled, nil)
	}
	return settled, nil
}

func (f *fakeOffice) Close() {}

// forged tries to look like the starter's own lines, below and beside.
const forged = "Restart payment. " + hostile + "\n\nenvironment  test\nuntil        2099-01-01 00:00:00"

func waitingPlan() approval.Plan {
	return approval.Plan{
		RunID: "run-1", CallID: "1.0", Revision: 2, Conversation: "c-1", Agent: "opspilot", DefinitionVersion: "1", Environment: "production",
		Requester: "ann", Tool: "restart_service", ToolVersion: "1",
		Arguments: []byte(`{"note":"a\nb ` + "\u202e" + `evil","service":"payment"}`), ArgumentsHash: strings.Repeat("12", 32),
		Resource: "service/payment " + strings.Repeat(" ", 60) + "x" + hostile, ResourceVersion: "v7", Summary: forged, Hash: strings.Repeat("ab", 32),
		CreatedAt: at(0), ExpiresAt: at(1_800_000), Purpose: strings.Repeat("It leaks. ", 200) + hostile, Request: "Restart it.\n" + strings.Repeat("Please.\n", 20),
		Steps: 2, BilledTokens: 1357, CostMicros: 123, Unpriced: true,
	}
}

func waitingOffice(outcomes ...approval.Outcome) *fakeOffice {
	return &fakeOffice{pending: approval.Pending{Plans: []approval.Plan{waitingPlan()}}, outcomes: outcomes}
}

// signingEnv are settings with a key.
var signingEnv = map[string]string{"FAIRLEAD_APPROVAL_KEY": approval.NewKey().Encode()}

func deciding(o *fakeOffice) console {
	return console{office: o, engine: &fakeEngine{}, env: signingEnv}
}

func TestPending(t *testing.T) {
	t.Parallel()
	small := waitingPlan()
	small.RunID, small.Resource, small.ResourceVersion, small.Summary, small.Unpriced = "run-22", "ticket", "", "Open a ticket.", false
	small.Arguments, small.Purpose, small.Request = []byte("{}"), "", "Open one."
	found := approval.Pending{Plans: []approval.Plan{waitingPlan(), small}, Forbidden: 3, More: true}
	for name, test := range map[string]struct {
		args  []string
		found approval.Pending
	}{
		"pending.txt":     {nil, found},
		"pending.json":    {[]string{"--json"}, found},
		"pending-run.txt": {[]string{"run-1"}, approval.Pending{Plans: found.Plans[:1]}},
		"pending-new.txt": {[]string{"run-22"}, approval.Pending{Plans: found.Plans[1:]}},
	} {
		c := console{office: &fakeOffice{pending: test.found}}
		o := c.invoke(t.Context(), append([]string{"pending", "--tenant", "acme", "--user", "bob", "--environment", "production"}, test.args...)...)
		if o.code != exitOK {
			t.Errorf("%s: exit code %d, stderr %q", name, o.code, o.errOut)
		}
		golden(t, name, o.out)
		want := approval.Filter{Environment: "production", Limit: 50}
		if strings.HasPrefix(name, "pending-") {
			want.RunID = test.args[0]
		}
		if c.office.filter != want {
			t.Errorf("%s: filter %+v", name, c.office.filter)
		}
		if name == "pending.txt" && (!strings.Contains(o.errOut, "3 plans") || !strings.Contains(o.errOut, "--limit")) {
			t.Errorf("stderr %q", o.errOut)
		}
	}
	if o := (console{office: &fakeOffice{}}).invoke(t.Context(), "pending", "--user", "bob"); o.code != exitOK || !strings.Contains(o.errOut, "Nothing waits") {
		t.Errorf("nothing: %+v", o)
	}
	damaged := approval.Pending{Plans: found.Plans[:1], Damaged: []approval.PlanRef{{RunID: "run-6", CallID: "0.0", Revision: 1}}}
	if o := (console{office: &fakeOffice{pending: damaged}}).invoke(t.Context(), "pending", "--user", "bob"); o.code != exitRunFailed ||
		!strings.Contains(o.errOut, "run run-6, call 0.0") || !strings.Contains(o.out, "run-1") {
		t.Errorf("damaged: %+v", o)
	}
}

// TestQuotedTextIsFenced looks for lines that begin with words of others.
func TestQuotedTextIsFenced(t *testing.T) {
	t.Parallel()
	c := console{office: waitingOffice()}
	o := c.invoke(t.Context(), "pending", "run-1", "--user", "bob")
	for _, word := range []string{"test", "2099", "Restart", "leaks", "Please", "evil", "payment"} {
		seen := false
		for line := range strings.Lines(o.out) {
			if !strings.Contains(line, word) || strings.HasPrefix(line, "starter approve") {
				continue
			}
			seen = true
			if !strings.HasPrefix(line, "  │ ") && !strings.HasPrefix(line, "  ┊ ") {
				t.Errorf("%q is not fenced: %q", word, line)
			}
		}
		if !seen {
			t.Errorf("%q is not shown", word)
		}
	}
	for line := range strings.Lines(o.out) {
		if len([]rune(line)) > 80 && strings.HasPrefix(line, "  ") {
			t.Errorf("a terminal breaks this line: %q", line)
		}
	}
}

// accepted is what a run says that took a decision.
func accepted(result db.WriteResult) approval.Outcome {
	return approval.Outcome{Standing: approval.Accepted, Plan: db.PlanApproved, DecidedBy: "bob", Result: result}
}

func TestApproveAsksAndShows(t *testing.T) {
	t.Parallel()
	waits := approval.Outcome{Standing: approval.Waiting, Plan: db.PlanPending}
	c := deciding(waitingOffice(waits, waits, accepted(db.WriteOpen), accepted(db.WritePerformed)))
	c.terminal, c.stdin = true, "yes\n"
	o := follow(t, c, "approve", "run-1", "--tenant", "acme", "--user", "bob")
	if o.code != exitOK || o.errOut != "Approve? [y/N] " {
		t.Errorf("exit code %d, stderr %q", o.code, o.errOut)
	}
	golden(t, "approve.txt", o.out)
	if !slices.Equal(c.office.signed, []string{"approve abab by acme/bob"}) || !slices.Equal(c.engine.signals, []string{"approval to agent-run~acme~run-1"}) {
		t.Errorf("signed %q, signals %q", c.office.signed, c.engine.signals)
	}
	if c.office.looks != 4 || c.office.filter != (approval.Filter{RunID: "run-1"}) {
		t.Errorf("%d looks, filter %+v", c.office.looks, c.office.filter)
	}
	if strings.Contains(o.out+o.errOut, "secret-looking") {
		t.Error("the token is printed")
	}
}

func TestDecisionJSON(t *testing.T) {
	t.Parallel()
	c := deciding(waitingOffice(approval.Outcome{Standing: approval.Accepted, Plan: db.PlanDeclined, DecidedBy: "bob"}))
	o := follow(t, c, "decline", "run-1", "--tenant", "acme", "--user", "bob", "--yes", "--json")
	golden(t, "decline.json", o.out)
	if o.code != exitOK || o.errOut != "" || !slices.Equal(c.office.signed, []string{"decline abab by acme/bob"}) {
		t.Errorf("exit code %d, stderr %q, signed %q", o.code, o.errOut, c.office.signed)
	}
	c = deciding(waitingOffice(approval.Outcome{Standing: approval.Refused, Code: agent.RefusedExpired, Plan: db.PlanPending}))
	o = follow(t, c, "approve", "run-1", "--user", "bob", "--yes", "--json")
	var document decisionDocument
	if err := json.Unmarshal([]byte(o.out), &document); err != nil || document.Refusal != agent.RefusedExpired || o.code != exitRunFailed {
		t.Errorf("%+v, %v, exit code %d", document, err, o.code)
	}
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	refused := func(code agent.RefusalCode) approval.Outcome {
		return approval.Outcome{Standing: approval.Refused, Code: code, Plan: db.PlanPending}
	}
	closed := func(status db.PlanStatus, by string) approval.Outcome {
		return approval.Outcome{Standing: approval.Closed, Plan: status, DecidedBy: by}
	}
	notPerformed := accepted(db.WriteNotPerformed)
	notPerformed.Error = agent.ToolConflict
	declined := approval.Outcome{Standing: approval.Accepted, Plan: db.PlanDeclined, DecidedBy: "bob"}
	for name, test := range map[string]struct {
		verb    string
		outcome approval.Outcome
		code    int
		says    string
	}{
		"performed":     {"approve", accepted(db.WritePerformed), exitOK, "was performed"},
		"not performed": {"approve", notPerformed, exitOK, "not performed (conflict)"},
		"unknown":       {"approve", accepted(db.WriteUnknown), exitOK, "starter unsettled --tenant acme"},
		"slow":          {"approve", accepted(db.WriteOpen), exitOK, "under way"},
		"declined":      {"decline", declined, exitOK, "Declined."},
		"no answer":     {"approve", approval.Outcome{Standing: approval.Waiting, Plan: db.PlanPending}, exitUnreachable, "has not looked at it within 30s"},
		"by another":    {"approve", closed(db.PlanDeclined, "carl"), exitRunFailed, "declined by carl"},
		"expired":       {"approve", closed(db.PlanExpired, ""), exitRunFailed, "had expired"},
		"stale":         {"approve", closed(db.PlanStale, ""), exitRunFailed, "no longer at the version"},
		"refused plan":  {"approve", closed(db.PlanRefused, ""), exitRunFailed, "refused the write"},
		"withdrawn":     {"decline", closed(db.PlanWithdrawn, ""), exitRunFailed, "the run has ended"},
		"bad signature": {"approve", refused(agent.RefusedSignature), exitRunFailed, "FAIRLEAD_APPROVAL_PUBLIC_KEYS"},
		"malformed":     {"approve", refused(agent.RefusedMalformed), exitRunFailed, "could not read it"},
		"too late":      {"approve", refused(agent.RefusedExpired), exitRunFailed, "decide again"},
		"another run":   {"approve", refused(agent.RefusedWrongRun), exitRunFailed, "another plan"},
		"another call":  {"approve", refused(agent.RefusedWrongCall), exitRunFailed, "another plan"},
		"another plan":  {"approve", refused(agent.RefusedWrongPlan), exitRunFailed, "another plan"},
		"used":          {"decline", refused(agent.RefusedUsed), exitRunFailed, "decided already"},
		"no rights":     {"approve", refused(agent.RefusedNotAuthorized), exitRunFailed, "same policies"},
		"not waiting":   {"approve", refused(agent.RefusedNotWaiting), exitRunFailed, "waits for no decision"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := deciding(waitingOffice(test.outcome))
			o := follow(t, c, test.verb, "run-1", "--tenant", "acme", "--user", "bob", "--yes")
			said := o.out
			if test.code != exitOK {
				said = o.errOut
			}
			if o.code != test.code || !strings.Contains(said, test.says) {
				t.Errorf("exit code %d, want %d; %q, want %q in it", o.code, test.code, said, test.says)
			}
		})
	}
	for _, code := range agent.RefusalCodes() {
		if whatToDo(code) == whatToDo("") {
			t.Errorf("%s is not explained", code)
		}
	}
}

// TestNothingIsSent holds all that ends before a signal.
func TestNothingIsSent(t *testing.T) {
	t.Parallel()
	here := func(change func(*console)) console {
		c := deciding(waitingOffice())
		change(&c)
		return c
	}
	typed := func(text string) console { return here(func(c *console) { c.terminal, c.stdin = true, text }) }
	pending := func(p approval.Pending) console { return here(func(c *console) { c.office.pending = p }) }
	failing := func(err error) console { return here(func(c *console) { c.office.err = err }) }
	unsigned := func(err error) console { return here(func(c *console) { c.office.signErr = err }) }
	args := func(more ...string) []string { return append([]string{"approve", "run-1", "--user", "bob"}, more...) }
	yes := args("--yes")
	for name, test := range map[string]struct {
		console console
		args    []string
		code    int
		says    string
	}{
		"no":            {typed("n\n"), args(), exitRunFailed, "nothing was sent"},
		"an empty line": {typed("\n"), args(), exitRunFailed, "nothing was sent"},
		"the end":       {typed(""), args(), exitRunFailed, "nothing was sent"},
		"almost":        {typed("yy\n"), args(), exitRunFailed, "nothing was sent"},
		"no terminal":   {here(func(c *console) { c.stdin = "y\n" }), args(), exitUsage, "--yes"},
		"JSON, no yes":  {typed("y\n"), args("--json"), exitUsage, "--yes"},
		"no key":        {here(func(c *console) { c.env = nil }), yes, exitUsage, "FAIRLEAD_APPROVAL_KEY is not set"},
		"bad key":       {here(func(c *console) { c.env = map[string]string{"FAIRLEAD_APPROVAL_KEY": "hunter2"} }), yes, exitUsage, "base64"},
		"no user":       {here(func(*console) {}), []string{"approve", "run-1", "--yes"}, exitUsage, "--user is missing"},
		"odd user":      {here(func(*console) {}), []string{"approve", "run-1", "--yes", "--user", "b b"}, exitUsage, "--user"},
		"no run":        {here(func(*console) {}), []string{"approve", "--user", "bob", "--yes"}, exitUsage, "RUN_ID"},
		"no database": {here(func(c *console) {
			c.env = map[string]string{"DATABASE_URL": "", "FAIRLEAD_APPROVAL_KEY": signingEnv["FAIRLEAD_APPROVAL_KEY"]}
		}), yes, exitUsage, "FAIRLEAD_DATABASE_URL"},
		"another call":     {here(func(*console) {}), args("--yes", "--call", "1.1"), exitUsage, "waits with call 1.0"},
		"another plan":     {here(func(*console) {}), args("--yes", "--plan", strings.Repeat("ab", 5)+"ac"), exitRunFailed, "has changed since"},
		"short plan":       {here(func(*console) {}), args("--yes", "--plan", "ababababab"), exitUsage, "--plan must be"},
		"odd plan":         {here(func(*console) {}), args("--yes", "--plan", strings.Repeat("AB", 32)), exitUsage, "--plan must be"},
		"nothing waits":    {pending(approval.Pending{}), yes, exitUsage, "waits for no decision"},
		"forbidden":        {pending(approval.Pending{Forbidden: 1}), yes, exitRunFailed, "do not let user bob decide"},
		"damaged":          {pending(approval.Pending{Damaged: []approval.PlanRef{{RunID: "run-1", CallID: "1.0", Revision: 1}}}), yes, exitRunFailed, "damaged"},
		"policies":         {failing(approval.ErrUnavailable), yes, exitUnreachable, "could not be evaluated"},
		"database down":    {failing(db.ErrUnavailable), yes, exitUnreachable, "PostgreSQL cannot be reached"},
		"no Temporal":      {here(func(c *console) { c.noTemporal = true }), yes, exitUnreachable, "Temporal cannot be reached"},
		"decided":          {unsigned(approval.ErrDecided), yes, exitRunFailed, "already decided"},
		"changed":          {unsigned(approval.ErrChanged), yes, exitRunFailed, "starter pending run-1"},
		"expired":          {unsigned(approval.ErrExpired), yes, exitRunFailed, "has expired"},
		"withdrawn":        {unsigned(approval.ErrWithdrawn), yes, exitRunFailed, "was withdrawn"},
		"forbidden, later": {unsigned(approval.ErrForbidden), yes, exitRunFailed, "ask one who may"},
		"gone":             {unsigned(approval.ErrNotFound), yes, exitUsage, "no such plan"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := follow(t, test.console, test.args...)
			if o.code != test.code || !strings.Contains(o.errOut, test.says) {
				t.Errorf("exit code %d, want %d; stderr %q, want %q in it", o.code, test.code, o.errOut, test.says)
			}
			if len(test.console.engine.signals) != 0 || len(test.console.office.signed) != 0 {
				t.Errorf("signed %q, sent %q", test.console.office.signed, test.console.engine.signals)
			}
			if strings.Contains(o.errOut, "hunter2") {
				t.Errorf("the key is repeated: %q", o.errOut)
			}
		})
	}
}

func TestSending(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		code int
		says string
	}{
		"gone":       {errUnknownRun, exitRunFailed, "its workflow has ended"},
		"unanswered": {serviceerror.NewUnavailable("gone"), exitUnreachable, "deciding again is safe"},
		"broken":     {errBroken, exitRunFailed, "broken"},
	} {
		c := deciding(waitingOffice())
		c.engine.signalErr = test.err
		o := follow(t, c, "approve", "run-1", "--user", "bob", "--yes")
		if o.code != test.code || !strings.Contains(o.errOut, test.says) || c.office.looks != 0 {
			t.Errorf("%s: exit code %d, stderr %q", name, o.code, o.errOut)
		}
	}
	// The plan's hash in full, or enough of it.
	for _, plan := range []string{strings.Repeat("ab", 32), strings.Repeat("ab", 6)} {
		c := deciding(waitingOffice())
		o := follow(t, c, "approve", "run-1", "--user", "bob", "--yes", "--plan", plan, "--call", "1.0", "--no-wait")
		if o.code != exitOK || len(c.engine.signals) != 1 || c.office.looks != 0 || !strings.Contains(o.out, "was sent") {
			t.Errorf("%s: %+v, %d looks", plan, o, c.office.looks)
		}
	}
	// A database that is away for a moment is asked again.
	c := deciding(waitingOffice(accepted(db.WritePerformed)))
	c.office.outcomeErr = db.ErrUnavailable
	if o := follow(t, c, "approve", "run-1", "--user", "bob", "--yes"); o.code != exitOK || c.office.looks != 2 {
		t.Errorf("%+v, %d looks", o, c.office.looks)
	}
	// Nobody looks because there is nobody.
	c = deciding(waitingOffice(approval.Outcome{Standing: approval.Waiting, Plan: db.PlanPending}))
	c.engine.unserved = true
	if o := follow(t, c, "approve", "run-1", "--user", "bob", "--yes"); o.code != exitUnreachable || !strings.Contains(o.errOut, "no worker takes work") {
		t.Errorf("%+v", o)
	}
}

// TestInterrupted ends the wait for the person, and the wait for the run.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	waits := approval.Outcome{Standing: approval.Waiting, Plan: db.PlanPending}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := deciding(waitingOffice(waits))
		o := c.invoke(ctx, "approve", "run-1", "--user", "bob", "--yes")
		if o.code != exitInterrupted || !strings.Contains(o.errOut, "The decision was sent") {
			t.Errorf("%+v", o)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := deciding(waitingOffice(waits))
	c.terminal, c.silent = true, make(chan struct{})
	defer close(c.silent)
	o := c.invoke(ctx, "approve", "run-1", "--user", "bob")
	if o.code != exitInterrupted || !strings.Contains(o.errOut, "Nothing was sent") || len(c.office.signed) != 0 {
		t.Errorf("%+v", o)
	}
}
