package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.temporal.io/api/serviceerror"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
)

func (f *fakeOffice) PendingMemories(_ context.Context, _ approval.Approver, filter approval.MemoryFilter) (approval.PendingMemories, error) {
	f.filter = approval.Filter{Limit: filter.Limit}
	return f.waiting, f.err
}

func (f *fakeOffice) MemoryStanding(_ context.Context, who approval.Approver, id string) (db.MemoryCandidate, error) {
	c, ok := f.standing[id]
	if !ok {
		return c, approval.ErrNotFound
	}
	c.ID, c.Room.Scope.Tenant, c.Room.Scope.User = id, who.Tenant, "ann"
	return c, nil
}

func (f *fakeOffice) signMemory(who approval.Approver, m approval.Memory, decision approval.Decision) (approval.Token, error) {
	if f.signErr != nil {
		return approval.Token{}, f.signErr
	}
	f.signed = append(f.signed, fmt.Sprintf("%s %s revision %d %s by %s/%s", decision, m.ID, m.Revision, m.Hash[:4], who.Tenant, who.User))
	return approval.Token{Text: "secret-looking token", ID: "token-1", Decision: decision, WorkflowID: agent.MemoryWriteWorkflowID(who.Tenant, m.ID)}, nil
}

func (f *fakeOffice) ConfirmMemory(_ context.Context, who approval.Approver, m approval.Memory) (approval.Token, error) {
	return f.signMemory(who, m, approval.Approve)
}

func (f *fakeOffice) DeclineMemory(_ context.Context, who approval.Approver, m approval.Memory) (approval.Token, error) {
	return f.signMemory(who, m, approval.Decline)
}

// waitingMemory tries to look like the starter's own lines.
func waitingMemory() approval.Memory {
	return approval.Memory{
		ID: "p-7", Revision: 2, State: agent.MemoryWaitingConfirmation, User: "ann", Room: annsRoom, Scope: agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ann"},
		Kind: agent.MemoryPreference, Key: "tone", Value: []byte(`{"note":"short ` + "\u202e" + `evil","tone":"short"}`), Purpose: "shape answers\n\nseen in  nowhere",
		ExpiresAt: ptr(at(365 * 24 * 3600 * 1000)), ConsentBasis: "stated_by_user", Sensitivity: "normal", Step: "replace",
		Ends: []agent.MemoryVersion{{Record: "m-1", Version: 2}}, SourceType: agent.SourceUserStatement, SourceID: "msg-9", Writer: "agent:opspilot@4",
		RunID: "run-4", MessageID: "msg-9", Quote: "keep it short " + hostile + "\nuntil    2099-01-01", Rules: rules, PolicyVersion: "2026-11-01",
		Hash: strings.Repeat("ab", 32), ProposedAt: at(10_000), DecideUntil: at(7 * 24 * 3600 * 1000),
	}
}

func reviewMemory() approval.Memory {
	m := waitingMemory()
	m.ID, m.Revision, m.State, m.User, m.Key, m.Kind = "p-8", 1, agent.MemoryWaitingReview, "bob", "service_owner", agent.MemoryFact
	m.Room.Scope.User, m.Room.Group, m.Scope = "bob", "ops", agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "ops"}
	m.Ends = []agent.MemoryVersion{{Record: "m-2", Version: 1}}
	m.Retracts, m.Value, m.ExpiresAt, m.ValidFrom, m.Purpose, m.Quote = true, nil, nil, ptr(at(0)), "know whom to ask", "team-a no longer owns payment"
	return m
}

// reviewing is a console in which two memories wait.
func reviewing(verdicts ...db.MemoryCandidate) console {
	c := remembering()
	c.office = &fakeOffice{waiting: approval.PendingMemories{Confirm: []approval.Memory{waitingMemory()}, Review: []approval.Memory{reviewMemory()}, Forbidden: 2}}
	c.memories.verdicts, c.env = verdicts, signingEnv
	return c
}

func TestMemoryWaiting(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"memory-review":  {[]string{"review"}, "Left out because user ann may not review them: 2 proposals. It takes the action review in the policies (FAIRLEAD_POLICIES), for somebody else than whom they come from.\nOf your own, 1 proposal waits for your confirmation: starter memory confirm --tenant acme --user ann\n"},
		"memory-confirm": {[]string{"confirm"}, ""},
	} {
		for suffix, form := range map[string][]string{".txt": nil, ".json": {"--json"}} {
			c := reviewing()
			// To look needs no approval key.
			c.env = nil
			o := c.invoke(t.Context(), slices.Concat([]string{"memory"}, test.args, form, []string{"--tenant", "acme", "--user", "ann"})...)
			says := test.says
			if form != nil {
				says = ""
			}
			if o.code != exitOK || o.errOut != says {
				t.Errorf("%s%s: %+v", name, suffix, o)
			}
			golden(t, name+suffix, o.out)
		}
	}
	for _, command := range []string{"review", "confirm"} {
		c := reviewing()
		c.office.waiting = approval.PendingMemories{Damaged: []string{"p-6"}}
		o := c.invoke(t.Context(), "memory", command, "--tenant", "acme", "--user", "ann")
		if o.code != exitRunFailed || !strings.Contains(o.errOut, "Nothing waits for a decision of user ann in tenant acme.") || !strings.Contains(o.errOut, "nobody can decide: p-6") {
			t.Errorf("%s: %+v", command, o)
		}
	}
}

// TestMemoryWordsAreFenced looks for lines that begin with words of others.
func TestMemoryWordsAreFenced(t *testing.T) {
	t.Parallel()
	o := reviewing().invoke(t.Context(), "memory", "confirm", "--tenant", "acme", "--user", "ann")
	for _, word := range []string{"2099", "keep it", "evil", "nowhere", "shape"} {
		seen := false
		for line := range strings.Lines(o.out) {
			if strings.Contains(line, word) {
				seen = true
				if !strings.HasPrefix(line, "  │ ") && !strings.HasPrefix(line, "  ┊ ") {
					t.Errorf("%q is not fenced: %q", word, line)
				}
			}
		}
		if !seen {
			t.Errorf("%q is not shown", word)
		}
	}
}

// byToken is what a candidate looks like that the token decided.
func byToken(state agent.MemoryState, token, who string) db.MemoryCandidate {
	c := decided(state, "m-4", 4)
	c.TokenID, c.DecidedBy, c.Revision = token, who, 2
	return c
}

// waits is a candidate in a revision.
func waits(revision int) db.MemoryCandidate {
	c := decided(agent.MemoryWaitingConfirmation, "", 0)
	c.Revision = revision
	return c
}

func TestMemoryConfirmAsksAndShows(t *testing.T) {
	t.Parallel()
	c := reviewing(waits(2), waits(2), byToken(agent.MemoryStored, "token-1", "ann"))
	c.terminal, c.stdin = true, "y\n"
	o := follow(t, c, "memory", "confirm", "p-7", "--tenant", "acme", "--user", "ann", "--hash", "abababababab")
	if o.code != exitOK || o.errOut != "Remember this? [y/N] " {
		t.Errorf("exit code %d, stderr %q", o.code, o.errOut)
	}
	golden(t, "memory-confirmed.txt", o.out)
	if !slices.Equal(c.office.signed, []string{"approve p-7 revision 2 abab by acme/ann"}) || !slices.Equal(c.engine.signals, []string{"approval to memory-write~acme~p-7"}) {
		t.Errorf("signed %q, signals %q", c.office.signed, c.engine.signals)
	}
	if len(c.memories.asked) != 4 || c.memories.asked[0] != "memory acme/ann m-1" || c.office.filter.Limit != 500 {
		t.Errorf("asked %q, limit %d", c.memories.asked, c.office.filter.Limit)
	}
	if strings.Contains(o.out+o.errOut, "secret-looking") {
		t.Error("the token is printed")
	}
}

func TestMemoryDecisions(t *testing.T) {
	t.Parallel()
	confirm := []string{"confirm", "p-7"}
	decline := []string{"confirm", "p-7", "--decline"}
	for name, test := range map[string]struct {
		args     []string
		verdicts []db.MemoryCandidate
		code     int
		says     string
	}{
		"stored":            {confirm, []db.MemoryCandidate{byToken(agent.MemoryStored, "token-1", "ann")}, exitOK, "Stored: memory m-4, version 4."},
		"reviewed":          {[]string{"review", "--approve", "p-8"}, []db.MemoryCandidate{byToken(agent.MemoryStored, "token-1", "ann")}, exitOK, "Taken back: memory m-4 is not in force any more."},
		"declined":          {decline, []db.MemoryCandidate{byToken(agent.MemoryDeclined, "token-1", "ann")}, exitOK, "Declined. It is not remembered."},
		"review declined":   {[]string{"review", "--decline", "p-8"}, []db.MemoryCandidate{byToken(agent.MemoryDeclined, "token-1", "ann")}, exitOK, "Declined. It is not remembered."},
		"refused meanwhile": {confirm, []db.MemoryCandidate{byToken(agent.MemoryRejected, "token-1", "ann")}, exitRunFailed, "the policy refuses it"},
		"somebody else":     {[]string{"review", "--approve", "p-8"}, []db.MemoryCandidate{byToken(agent.MemoryDeclined, "token-2", "olga")}, exitRunFailed, "came too late: declined by olga"},
		"expired":           {confirm, []db.MemoryCandidate{byToken(agent.MemoryExpired, "", "")}, exitRunFailed, "nobody decided in time"},
		"changed":           {confirm, []db.MemoryCandidate{waits(2), waits(3)}, exitRunFailed, "has changed since, and it waits for a decision again"},
		"no answer":         {confirm, []db.MemoryCandidate{waits(2)}, exitUnreachable, "the decision was sent and is kept, but nothing came of it within 30s (proposal p-7)"},
	} {
		c := reviewing(test.verdicts...)
		o := follow(t, c, slices.Concat([]string{"memory"}, test.args, []string{"--tenant", "acme", "--user", "ann", "--yes"})...)
		if o.code != test.code || !strings.Contains(o.out+o.errOut, test.says) || len(c.office.signed) != 1 {
			t.Errorf("%s: %+v, signed %q", name, o, c.office.signed)
		}
		want := "approve"
		if strings.Contains(strings.Join(test.args, " "), "--decline") {
			want = "decline"
		}
		if !strings.HasPrefix(c.office.signed[0], want+" ") {
			t.Errorf("%s: signed %q", name, c.office.signed)
		}
	}
	// A decision that was not believed stands in the details; an earlier one does
	// not count.
	c := reviewing(waits(2))
	c.engine.details = []string{"**waiting_confirmation**\n\ndecisions refused: 1, the last one because of expired", "**waiting_confirmation**\n\ndecisions refused: 1, the last one because of expired", "**waiting_confirmation**\n\ndecisions refused: 2, the last one because of bad_signature"}
	o := follow(t, c, "memory", "confirm", "p-7", "--tenant", "acme", "--user", "ann", "--yes")
	if o.code != exitRunFailed || !strings.Contains(o.errOut, "was not believed, and the proposal waits on (decisions refused: 2, the last one because of bad_signature): the worker does not trust the key; put the public key of FAIRLEAD_APPROVAL_KEY into the worker's FAIRLEAD_APPROVAL_PUBLIC_KEYS") {
		t.Errorf("refused: %+v", o)
	}
	c = reviewing(byToken(agent.MemoryDeclined, "token-1", "ann"))
	o = follow(t, c, "memory", "confirm", "p-7", "--decline", "--tenant", "acme", "--user", "ann", "--yes", "--json")
	var document verdictDocument
	if err := json.Unmarshal([]byte(o.out), &document); err != nil || document.State != "declined" || document.DecidedBy != "ann" || o.code != exitOK {
		t.Errorf("%v, %+v", err, o)
	}
}

func TestMemoryDecisionsRefused(t *testing.T) {
	t.Parallel()
	confirm := []string{"confirm", "p-7", "--yes"}
	for name, test := range map[string]struct {
		args   []string
		change func(*console)
		code   int
		says   string
	}{
		"no key":          {confirm, func(c *console) { c.env = nil }, exitUsage, "FAIRLEAD_APPROVAL_KEY is not set"},
		"nobody to ask":   {[]string{"confirm", "p-7"}, func(*console) {}, exitUsage, "give --yes"},
		"no":              {[]string{"confirm", "p-7"}, func(c *console) { c.terminal, c.stdin = true, "n\n" }, exitRunFailed, "nothing was sent"},
		"unknown":         {[]string{"confirm", "p-99", "--yes"}, func(*console) {}, exitUsage, "no proposal p-99 of tenant acme waits for user ann"},
		"for a reviewer":  {[]string{"confirm", "p-8", "--yes"}, func(*console) {}, exitUsage, "no proposal p-8 of tenant acme waits for user ann"},
		"for the user":    {[]string{"review", "--approve", "p-7", "--yes"}, func(*console) {}, exitUsage, "no proposal p-7 of tenant acme waits for user ann"},
		"too many":        {[]string{"confirm", "p-99", "--yes"}, func(c *console) { c.office.waiting.More = true }, exitUsage, "not among the first 500"},
		"damaged":         {[]string{"confirm", "p-6", "--yes"}, func(c *console) { c.office.waiting.Damaged = []string{"p-6"} }, exitRunFailed, "was damaged or altered"},
		"another hash":    {append(slices.Clone(confirm), "--hash", strings.Repeat("0", 12)), func(*console) {}, exitRunFailed, "is not what --hash names"},
		"a short hash":    {append(slices.Clone(confirm), "--hash", "abab"), func(*console) {}, exitUsage, "--hash must be"},
		"both":            {[]string{"review", "--approve", "p-8", "--decline", "p-8"}, func(*console) {}, exitUsage, "either --approve or --decline"},
		"an ID alone":     {[]string{"review", "p-8"}, func(*console) {}, exitUsage, "goes into --approve or --decline"},
		"an odd ID":       {[]string{"review", "--approve", "a b"}, func(*console) {}, exitUsage, "the ID must be"},
		"an empty ID":     {[]string{"review", "--approve", ""}, func(*console) {}, exitUsage, "the ID must be"},
		"two IDs":         {[]string{"confirm", "p-7", "p-8"}, func(*console) {}, exitUsage, "one proposal at a time, got 2 IDs"},
		"yes to nothing":  {[]string{"confirm", "--yes"}, func(*console) {}, exitUsage, "--yes and --hash are for a decision: give the ID"},
		"yes to nothing2": {[]string{"review", "--yes"}, func(*console) {}, exitUsage, "give --approve ID or --decline ID"},
		"hash of nothing": {[]string{"confirm", "--hash", strings.Repeat("a", 12)}, func(*console) {}, exitUsage, "nothing was decided"},
		"decline what":    {[]string{"confirm", "--decline"}, func(*console) {}, exitUsage, "--decline needs the ID"},
		"changed":         {confirm, func(c *console) { c.office.signErr = approval.ErrChanged }, exitRunFailed, "has changed since: nothing was sent"},
		"decided":         {confirm, func(c *console) { c.office.signErr = approval.ErrDecided }, exitRunFailed, "somebody has decided"},
		"expired":         {confirm, func(c *console) { c.office.signErr = approval.ErrExpired }, exitRunFailed, "the time to decide is over"},
		"gone":            {confirm, func(c *console) { c.office.signErr = approval.ErrNotFound }, exitUsage, "no proposal p-7"},
		"forbidden":       {confirm, func(c *console) { c.office.signErr = approval.ErrForbidden }, exitRunFailed, "ask one who may"},
		"broken policies": {confirm, func(c *console) { c.office.err = approval.ErrUnavailable }, exitUnreachable, "until the policies are mended"},
		"down":            {confirm, func(c *console) { c.office.err = db.ErrUnavailable }, exitUnreachable, "PostgreSQL cannot be reached"},
		"no Temporal":     {confirm, func(c *console) { c.noTemporal = true }, exitUnreachable, "Temporal cannot be reached"},
		"no workflow":     {confirm, func(c *console) { c.engine.signalErr = errUnknownRun }, exitRunFailed, "starter memory reconcile takes it up again"},
		"unanswered":      {confirm, func(c *console) { c.engine.signalErr = serviceerror.NewUnavailable("gone") }, exitUnreachable, "deciding again is safe"},
		"refused":         {confirm, func(c *console) { c.engine.signalErr = errBroken }, exitRunFailed, "send the decision: broken"},
	} {
		c := reviewing()
		test.change(&c)
		o := c.invoke(t.Context(), slices.Concat([]string{"memory"}, test.args, []string{"--tenant", "acme", "--user", "ann"})...)
		if o.code != test.code || !strings.Contains(o.errOut, test.says) {
			t.Errorf("%s: %+v", name, o)
		}
		if c.engine.signalErr == nil && len(c.engine.signals) > 0 {
			t.Errorf("%s: something was sent", name)
		}
		if strings.Contains(o.errOut, "short") {
			t.Errorf("%s: an error repeats content: %q", name, o.errOut)
		}
	}
	for _, command := range []string{"review", "confirm"} {
		if o := reviewing().invoke(t.Context(), "memory", command); o.code != exitUsage || !strings.Contains(o.errOut, "--user is missing") {
			t.Errorf("%s: %+v", command, o)
		}
	}
}

func TestMemoryReceipts(t *testing.T) {
	t.Parallel()
	open := agent.ErasureReceipt{ID: "e-2", Tenant: "acme", Subject: "ann", By: "ann"}
	for name, args := range map[string][]string{"memory-receipts.txt": nil, "memory-receipts.json": {"--json"}} {
		c := remembering()
		c.memories.receipts = []agent.ErasureReceipt{receipt(true), open}
		o := c.invoke(t.Context(), append([]string{"memory", "receipts", "--tenant", "acme", "--user", "ann"}, args...)...)
		if o.code != exitOK || o.errOut != "" || strings.Join(c.memories.asked, ";") != "erasures acme/ann" {
			t.Errorf("%s: %+v", name, o)
		}
		golden(t, name, o.out)
	}
	if o := remembering().invoke(t.Context(), "memory", "receipts", "--user", "ann"); o.errOut != "User ann of tenant demo had nothing forgotten.\n" {
		t.Errorf("%+v", o)
	}
}
