package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/api/serviceerror"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

func TestMemoryCorrect(t *testing.T) {
	t.Parallel()
	c := remembering()
	c.memories.verdictErr = db.ErrNotFound
	c.memories.verdicts = []db.MemoryCandidate{decided(agent.MemoryProposed, "", 0), decided(agent.MemoryStored, "m-2", 2)}
	o := follow(t, c, "memory", "correct", "m-2", "--value", `{"service":"payment","owner":"team-b"}`, "--tenant", "acme", "--user", "ann")
	if o.code != exitOK || o.errOut != "" || o.out != "Stored: memory m-2, version 2.\n" {
		t.Errorf("%+v", o)
	}
	if len(c.engine.jobs) != 1 {
		t.Fatalf("jobs %+v", c.engine.jobs)
	}
	j := c.engine.jobs[0]
	write, ok := j.input.(agent.MemoryWriteInput)
	if !ok || j.workflow != "MemoryWrite" || j.workflowID != "memory-write~acme~"+write.ID || j.shared || write.Validate() != nil {
		t.Fatalf("job %+v", j)
	}
	room := annsRoom
	room.Group = "ops"
	if write.Room != room {
		t.Errorf("room %+v", write.Room)
	}
	got, _ := json.Marshal(write.Candidate)
	want, _ := json.Marshal(agent.MemoryCandidate{
		Kind: agent.MemoryFact, Key: "service_owner", Value: []byte(`{"service":"payment","owner":"team-b"}`), Scope: agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "ops"},
		SourceType: "user_correction", SourceID: "m-2@1", Writer: "user:ann", ValidFrom: ptr(at(0)), ValidUntil: ptr(at(86_400_000)),
	})
	if string(got) != string(want) {
		t.Errorf("candidate\n%s, want\n%s", got, want)
	}
	if asked := c.memories.asked; asked[0] != "memory acme/ann m-2" || asked[1] != "participants acme group/ops" || asked[2] != "candidate acme "+write.ID || len(asked) != 5 {
		t.Errorf("asked %q", asked)
	}
}

func TestMemoryVerdicts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		verdict  db.MemoryCandidate
		code     int
		out, err string
	}{
		"stored":     {decided(agent.MemoryStored, "m-1", 3), exitOK, "Stored: memory m-1, version 3.\n", ""},
		"taken back": {decided(agent.MemoryStored, "", 0), exitOK, "Taken back: nothing is remembered under this key any more.\n", ""},
		"beside":     {decided(agent.MemoryStored, "m-8", 1), exitOK, "Stored: memory m-8, version 1.\n", "stands beside memory m-1"},
		"merged":     {decided(agent.MemoryMerged, "m-1", 2), exitOK, "The same is remembered already: memory m-1, version 2.\n", ""},
		"review":     {decided(agent.MemoryWaitingReview, "", 0), exitOK, "A reviewer has to decide until 2026-12-07 12:00:00: starter memory review", ""},
		"confirm":    {decided(agent.MemoryWaitingConfirmation, "", 0), exitOK, "The user has to confirm it until 2026-12-07 12:00:00: starter memory confirm", ""},
		"rejected":   {decided(agent.MemoryRejected, "", 0), exitRunFailed, "", "the policy refuses it: it is stored at once (rule mode.immediate)"},
		"declined":   {decided(agent.MemoryDeclined, "", 0), exitRunFailed, "", "declined"},
		"expired":    {decided(agent.MemoryExpired, "", 0), exitRunFailed, "", "nobody decided in time"},
		"undecided":  {decided(agent.MemoryProposed, "", 0), exitUnreachable, "", "the correction was sent and is kept, but nothing came of it within 30s (proposal "},
	} {
		c := remembering()
		c.memories.verdicts = []db.MemoryCandidate{test.verdict}
		c.memories.verdictErr = db.ErrUnavailable
		o := follow(t, c, "memory", "correct", "m-1", "--value", "production", "--tenant", "acme", "--user", "ann")
		if o.code != test.code || !strings.HasPrefix(o.out, test.out) || test.out == "" && o.out != "" || !strings.Contains(o.errOut, test.err) || test.err == "" && o.errOut != "" {
			t.Errorf("%s: %+v", name, o)
		}
		if value := c.engine.jobs[0].input.(agent.MemoryWriteInput).Candidate.Value; string(value) != `"production"` {
			t.Errorf("%s: the value is %s", name, value)
		}
	}
	c := remembering()
	c.memories.verdicts = []db.MemoryCandidate{decided(agent.MemoryRejected, "", 0)}
	o := follow(t, c, "memory", "correct", "m-1", "--value", "production", "--tenant", "acme", "--user", "ann", "--json")
	var document verdictDocument
	if err := json.Unmarshal([]byte(o.out), &document); err != nil || document.State != "rejected" || document.Policy.Rules[1].ID != "mode.immediate" || o.code != exitRunFailed {
		t.Errorf("%v, %+v", err, o)
	}
	c.memories.verdicts = []db.MemoryCandidate{decided(agent.MemoryProposed, "", 0)}
	c.engine = &fakeEngine{unserved: true}
	if o := follow(t, c, "memory", "correct", "m-1", "--value", "x", "--user", "ann"); !strings.Contains(o.errOut, "no worker takes work from task queue fairlead") {
		t.Errorf("%+v", o)
	}
	c.memories.verdictErr, c.engine = db.ErrKeysDestroyed, &fakeEngine{}
	if o := follow(t, c, "memory", "correct", "m-1", "--value", "x", "--user", "ann"); o.code != exitUsage || !strings.Contains(o.errOut, "was erased") {
		t.Errorf("%+v", o)
	}
}

// TestCorrectWhenTheWorkflowEnds: the workflow says what the database does not.
func TestCorrectWhenTheWorkflowEnds(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	close(ended)
	for name, test := range map[string]struct {
		verdict agent.MemoryVerdict
		err     error
		code    int
		says    string
	}{
		"stored":    {agent.MemoryVerdict{ID: "p-1", State: agent.MemoryStored, Record: "m-1", Version: 3}, nil, exitOK, "Stored: memory m-1, version 3."},
		"rejected":  {agent.MemoryVerdict{ID: "p-1", State: agent.MemoryRejected, Rules: rules}, nil, exitRunFailed, "the policy refuses it"},
		"not saved": {agent.MemoryVerdict{ID: "p-1", State: agent.MemoryNotSaved}, nil, exitUnreachable, "not_saved: memory cannot be written now"},
		"given up":  {agent.MemoryVerdict{}, &workflowFailed{failed(agent.ErrorMemoryMissing, "there is nothing to decide about")}, exitRunFailed, "the worker gave it up: there is nothing to decide about"},
	} {
		c := remembering()
		c.engine = &fakeEngine{ended: ended, answer: test.verdict, err: test.err}
		o := c.invoke(t.Context(), "memory", "correct", "m-1", "--value", "production", "--tenant", "acme", "--user", "ann")
		if o.code != test.code || !strings.Contains(o.out+o.errOut, test.says) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	// Temporal is away: the database is asked on.
	c := remembering()
	c.engine = &fakeEngine{ended: ended, err: serviceerror.NewUnavailable("gone")}
	c.memories.verdicts = []db.MemoryCandidate{decided(agent.MemoryProposed, "", 0), decided(agent.MemoryProposed, "", 0), decided(agent.MemoryStored, "m-1", 3)}
	if o := c.invoke(t.Context(), "memory", "correct", "m-1", "--value", "production", "--user", "ann"); o.code != exitOK || o.out != "Stored: memory m-1, version 3.\n" {
		t.Errorf("%+v", o)
	}
}

func TestCorrection(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ before, text, want string }{
		{`"staging"`, `production`, `"production"`},
		{`"staging"`, `"production"`, `"production"`},
		{`"staging"`, `5`, `"5"`},
		{`"staging"`, `null`, `"null"`},
		{`"staging"`, `say "x"`, `"say \"x\""`},
		{`"staging"`, ``, `""`},
		{`5`, `6`, `6`},
		{`5`, `"six"`, `"six"`},
		{`5`, `six`, ``},
		{`{"a":1}`, `{"a":2}`, `{"a":2}`},
		{`{"a":1}`, `{"a":2`, ``},
		{`true`, `false`, `false`},
	} {
		got, err := correction(json.RawMessage(test.before), test.text)
		if string(got) != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s instead of %s: %s, %v, want %s", test.text, test.before, got, err, test.want)
		}
	}
}

func TestMemoryForget(t *testing.T) {
	t.Parallel()
	group := annsRoom
	group.Group = "ops"
	for name, test := range map[string]struct {
		args   []string
		record string
		room   agent.MemoryRoom
	}{
		"memory-forget.txt":  {[]string{"m-1"}, "m-1", annsRoom},
		"memory-forget.json": {[]string{"m-2", "--json"}, "m-2", group},
		"all":                {[]string{"--all", "--yes"}, "", annsRoom},
	} {
		c := remembering()
		c.engine.answer = receipt(false)
		o := c.invoke(t.Context(), append([]string{"memory", "forget", "--tenant", "acme", "--user", "ann"}, test.args...)...)
		if o.code != exitOK || o.errOut != "" || len(c.engine.jobs) != 1 {
			t.Fatalf("%s: %+v", name, o)
		}
		if name != "all" {
			golden(t, name, o.out)
		}
		j := c.engine.jobs[0]
		in, ok := j.input.(agent.ForgetInput)
		if !ok || j.workflow != "ForgetMemory" || j.workflowID != "forget~acme~"+in.ID || in.ID == "" || in.Record != test.record || in.By != "ann" || in.Room != test.room {
			t.Errorf("%s: job %+v", name, j)
		}
	}
	for name, test := range map[string]struct {
		stdin, says string
		code, jobs  int
	}{
		"yes": {"y\n", "Forget all that is remembered of user ann of tenant acme? [y/N] ", exitOK, 1},
		"no":  {"\n", "nothing was forgotten", exitRunFailed, 0},
	} {
		c := remembering()
		c.terminal, c.stdin, c.engine.answer = true, test.stdin, receipt(false)
		o := c.invoke(t.Context(), "memory", "forget", "--all", "--tenant", "acme", "--user", "ann")
		if o.code != test.code || !strings.Contains(o.errOut, test.says) || len(c.engine.jobs) != test.jobs {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestMemoryErase(t *testing.T) {
	t.Parallel()
	erase := []string{"memory", "erase", "--tenant", "acme", "--user", "ann"}
	for name, args := range map[string][]string{"memory-erase.txt": {"--yes-erase", "ann"}, "memory-erase.json": {"--yes-erase", "ann", "--by", "olga", "--json"}} {
		c := remembering()
		c.engine.answer = receipt(true)
		o := c.invoke(t.Context(), append(erase, args...)...)
		if o.code != exitOK || o.errOut != "" || len(c.engine.jobs) != 1 {
			t.Fatalf("%s: %+v", name, o)
		}
		golden(t, name, o.out)
		j := c.engine.jobs[0]
		by := "ann"
		if len(args) > 2 {
			by = "olga"
		}
		in, ok := j.input.(agent.EraseInput)
		if want := (agent.EraseInput{ID: in.ID, Tenant: "acme", User: "ann", By: by}); !ok || in != want || in.ID == "" || j.workflow != "EraseSubject" || j.workflowID != "erase~acme~ann" || !j.shared {
			t.Errorf("%s: job %+v", name, j)
		}
	}
	for name, test := range map[string]struct {
		stdin, says string
		code, jobs  int
	}{
		"the name":    {"Ann\n", "Nobody can undo it.", exitOK, 1},
		"only yes":    {"yes\n", "nothing was erased", exitRunFailed, 0},
		"another one": {"bob\n", "nothing was erased", exitRunFailed, 0},
	} {
		c := remembering()
		c.terminal, c.stdin, c.engine.answer = true, test.stdin, receipt(true)
		o := c.invoke(t.Context(), erase...)
		if o.code != test.code || !strings.Contains(o.errOut, test.says) || len(c.engine.jobs) != test.jobs {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestEraseSaysWhatItWaitsFor keeps the erasure waiting for a run.
func TestEraseSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := remembering()
		c.engine.ended, c.engine.answer, c.engine.unserved = make(chan struct{}), receipt(true), true
		c.memories.runs = []db.RunSummary{
			{RunID: "run-5", User: "ann", Status: agent.StatusWaitingConfirmation},
			{RunID: "run-4", User: "ann", Status: agent.StatusSucceeded},
			{RunID: "run-6", User: "bob", Status: agent.StatusRunning},
		}
		time.AfterFunc(10*time.Second, func() { close(c.engine.ended) })
		o := c.invoke(t.Context(), "memory", "erase", "--tenant", "acme", "--user", "ann", "--yes-erase", "ann")
		want := "Waits for the end of run run-5 (waiting_confirmation); to end it: starter cancel run-5 --tenant acme\n" +
			"No worker takes work from task queue fairlead: it is done when one is started (worker run).\n"
		if o.code != exitOK || o.errOut != want || !strings.Contains(o.out, "keys are destroyed") {
			t.Errorf("%+v", o)
		}
	})
}

func TestMemoryJobs(t *testing.T) {
	t.Parallel()
	forget := []string{"memory", "forget", "m-1", "--tenant", "acme", "--user", "ann"}
	ended := func(err error) *fakeEngine { return &fakeEngine{err: err} }
	for name, test := range map[string]struct {
		engine *fakeEngine
		args   []string
		code   int
		says   string
	}{
		"no wait":      {&fakeEngine{}, append(slices.Clone(forget), "--no-wait"), exitOK, "The request was sent (workflow forget~acme~"},
		"under way":    {&fakeEngine{startErr: errExists}, forget, exitRunFailed, "under way already"},
		"unanswered":   {&fakeEngine{startErr: serviceerror.NewUnavailable("gone")}, forget, exitUnreachable, "asking again is safe"},
		"no keys":      {&fakeEngine{startErr: db.ErrUnavailable}, forget, exitUnreachable, "PostgreSQL cannot be reached"},
		"refused":      {&fakeEngine{startErr: errBroken}, forget, exitRunFailed, "send the request: broken"},
		"given up":     {ended(&workflowFailed{failed(agent.ErrorErasureBlocked, "the erasure was blocked for too long by open_run")}), forget, exitRunFailed, "blocked for too long by open_run"},
		"terminated":   {ended(&workflowFailed{errBroken}), forget, exitRunFailed, "ended from outside"},
		"gone":         {ended(errUnknownRun), forget, exitRunFailed, "ended from outside"},
		"lost contact": {ended(serviceerror.NewUnavailable("gone")), forget, exitUnreachable, "goes on"},
	} {
		c := remembering()
		c.engine = test.engine
		o := c.invoke(t.Context(), test.args...)
		if o.code != test.code || !strings.Contains(o.errOut, test.says) || o.out != "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if o := (console{memories: remembering().memories, noTemporal: true}).invoke(t.Context(), forget...); o.code != exitUnreachable {
		t.Errorf("%+v", o)
	}
}
