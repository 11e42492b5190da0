package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// TestEraseOfNobody: a mistyped name is no erasure.
func TestEraseOfNobody(t *testing.T) {
	t.Parallel()
	erase := []string{"memory", "erase", "--tenant", "acme", "--user", "ann", "--yes-erase", "ann"}
	none := fmt.Errorf("look up keys: %w", db.ErrNotFound)
	for name, test := range map[string]struct {
		memories *fakeMemories
		args     []string
		code     int
		says     string
	}{
		"nothing":   {&fakeMemories{keysErr: none}, nil, exitUsage, "nothing is stored of user ann in tenant acme"},
		"insisted":  {&fakeMemories{keysErr: none}, []string{"--unknown-user"}, exitOK, ""},
		"keys":      {&fakeMemories{}, nil, exitOK, ""},
		"destroyed": {&fakeMemories{keysErr: db.ErrKeysDestroyed}, nil, exitOK, ""},
		"memories":  {&fakeMemories{keysErr: none, records: versionsOfEnvironment()}, nil, exitOK, ""},
		"refused":   {&fakeMemories{keysErr: none, candidates: []db.MemoryCandidate{decided(agent.MemoryRejected, "", 0)}}, nil, exitOK, ""},
		"a run":     {&fakeMemories{keysErr: none, runs: []db.RunSummary{{User: "ann", Status: agent.StatusFailed}}}, nil, exitOK, ""},
		"a receipt": {&fakeMemories{keysErr: none, receipts: []agent.ErasureReceipt{receipt(true)}}, nil, exitOK, ""},
		"down":      {&fakeMemories{keysErr: db.ErrUnavailable}, nil, exitUnreachable, "PostgreSQL cannot be reached"},
		"down late": {&fakeMemories{keysErr: none, err: db.ErrUnavailable}, nil, exitUnreachable, "PostgreSQL cannot be reached"},
	} {
		c := console{engine: &fakeEngine{answer: receipt(true)}, memories: test.memories}
		o := c.invoke(t.Context(), append(slices.Clone(erase), test.args...)...)
		if o.code != test.code || !strings.Contains(o.errOut, test.says) || (test.code == exitOK) != (len(c.engine.jobs) == 1) {
			t.Errorf("%s: %+v, jobs %+v", name, o, c.engine.jobs)
		}
	}
	c := remembering()
	if o := c.invoke(t.Context(), "memory", "reconcile", "--tenant", "nosuch"); o.code != exitUsage || !strings.Contains(o.errOut, "in tenant nosuch, so there is nothing to reconcile") || len(c.engine.jobs) > 0 {
		t.Errorf("reconcile: %+v", o)
	}
	// What is forgotten is not forgotten again.
	c = remembering()
	o := c.invoke(t.Context(), "memory", "forget", "m-3", "--tenant", "acme", "--user", "ann")
	if o.code != exitOK || !strings.HasPrefix(o.out, "Memory m-3 is forgotten already, since 2026-11-30 12:00:08 by ann. The receipts: ") || len(c.engine.jobs) > 0 {
		t.Errorf("forget: %+v", o)
	}
	if o := c.invoke(t.Context(), "memory", "forget", "m-3", "--tenant", "acme", "--user", "ann", "--json"); o.code != exitOK || !json.Valid([]byte(o.out)) || !strings.Contains(o.out, `"forgotten_by": "ann"`) {
		t.Errorf("forget: %+v", o)
	}
}

// TestRunOfNoParticipant: nobody is told of a run that a worker refuses at once.
func TestRunOfNoParticipant(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		participants []db.Participant
		started      int
	}{
		"takes part": {[]db.Participant{{User: "bob"}, {User: "ann"}}, 1},
		"others do":  {[]db.Participant{{User: "bob"}}, 0},
		"removed":    {[]db.Participant{{User: "ann", RemovedAt: ptr(at(0))}}, 0},
	} {
		c := console{engine: &fakeEngine{}, memories: &fakeMemories{participants: test.participants}}
		o := c.invoke(t.Context(), "run", "--agent", "opspilot", "--tenant", "acme", "--user", "ann", "--group", "ops", "--message", "hello", "--detach")
		if len(c.engine.started) != test.started {
			t.Errorf("%s: started %+v", name, c.engine.started)
		}
		if test.started == 0 && (o.code != exitUsage || o.out != "" || !strings.Contains(o.errOut, "starter memory participants add --group ops --tenant acme --user ann --by YOU")) {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
