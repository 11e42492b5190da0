package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

func snapshots() []db.Snapshot {
	return []db.Snapshot{
		{ID: "s2", Conversation: "c-1", Branch: 0, Seq: 20, Label: "", Safety: true, CreatedBy: "olga", CreatedAt: at(60_000)},
		{ID: "s1", Conversation: "c-1", Branch: 0, Seq: 12, Label: "before the migration " + hostile, CreatedBy: "olga", CreatedAt: at(0)},
	}
}

func rolledBack() db.Rollback {
	all := snapshots()
	return db.Rollback{
		To: all[1], Safety: all[0], Version: 9, Hidden: 8, OpenRuns: []db.OpenRun{{ID: "run-7", Generation: 3}, {ID: "run-8", Generation: 4}}, Generation: 5,
		Writes: []db.SnapshotWrite{{RunID: "run-5", CallID: "1.0", Tool: "restart_service", Result: db.WritePerformed}, {RunID: "run-6", CallID: "0.2", Tool: "create_ticket " + hostile, Result: db.WriteUnknown}},
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"snapshot.txt": nil, "snapshot.json": {"--json"}} {
		c := console{records: &fakeRecords{}}
		o := c.invoke(t.Context(), append([]string{"snapshot", "c-1", "--tenant", "acme", "--user", "olga", "--label", "before the migration"}, args...)...)
		if o.code != exitOK || o.errOut != "" || fmt.Sprint(c.records.asked) != `[snapshot acme/c-1 "before the migration" by olga]` {
			t.Errorf("%s: %+v, %q", name, o, c.records.asked)
		}
		golden(t, name, o.out)
	}
	for name, test := range map[string]struct {
		err  error
		args []string
		code int
		says string
	}{
		"unknown":         {db.ErrNotFound, nil, exitUsage, "there is no conversation c-1 in tenant acme"},
		"down":            {db.ErrUnavailable, nil, exitUnreachable, "PostgreSQL cannot be reached"},
		"old schema":      {&db.SchemaError{Need: 3}, nil, exitUnreachable, "migrate"},
		"no operator":     {nil, []string{"--user", ""}, exitUsage, "--user is missing"},
		"a label of two":  {nil, []string{"--label", "a\nb"}, exitUsage, "one line"},
		"a long label":    {nil, []string{"--label", strings.Repeat("x", 201)}, exitUsage, "at most 200 bytes"},
		"a broken label":  {nil, []string{"--label", "\xff"}, exitUsage, "UTF-8"},
		"two of them":     {nil, []string{"c-2"}, exitUsage, "needs CONVERSATION, got 2 arguments"},
		"an odd one":      {nil, []string{"--tenant", "a b"}, exitUsage, "--tenant"},
		"an unknown flag": {nil, []string{"--lable", "x"}, exitUsage, "unknown flag"},
	} {
		c := console{records: &fakeRecords{err: test.err}}
		o := c.invoke(t.Context(), append([]string{"snapshot", "c-1", "--tenant", "acme", "--user", "olga"}, test.args...)...)
		if o.code != test.code || !strings.Contains(o.errOut, test.says) || o.out != "" || test.err == nil && len(c.records.asked) > 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"snapshots.txt": nil, "snapshots.json": {"--json"}} {
		c := console{records: &fakeRecords{snapshots: snapshots()}}
		o := c.invoke(t.Context(), append([]string{"snapshots", "c-1", "--tenant", "acme"}, args...)...)
		if o.code != exitOK || o.errOut != "" || fmt.Sprint(c.records.asked) != "[snapshots acme/c-1]" {
			t.Errorf("%s: %+v", name, o)
		}
		golden(t, name, o.out)
	}
	if o := (console{records: &fakeRecords{}}).invoke(t.Context(), "snapshots", "c-1"); o.code != exitOK || !strings.Contains(o.errOut, "has no snapshots") {
		t.Errorf("%+v", o)
	}
	if o := (console{records: &fakeRecords{err: db.ErrNotFound}}).invoke(t.Context(), "snapshots", "c-9"); o.code != exitUsage || !strings.Contains(o.errOut, "there is no conversation c-9") {
		t.Errorf("%+v", o)
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	base := []string{"rollback", "c-1", "s1", "--tenant", "acme", "--user", "olga"}
	for name, args := range map[string][]string{"rollback.txt": nil, "rollback.json": {"--json"}} {
		c := console{records: &fakeRecords{rollback: rolledBack()}, engine: &fakeEngine{}}
		o := c.invoke(t.Context(), append(append(base, "--yes"), args...)...)
		if o.code != exitOK || o.errOut != "" || fmt.Sprint(c.records.asked) != "[rollback acme/c-1 to s1 by olga]" {
			t.Errorf("%s: %+v, %q", name, o, c.records.asked)
		}
		golden(t, name, o.out)
		if fmt.Sprint(c.engine.signals) != "[supersede to agent-run~acme~run-7 supersede to agent-run~acme~run-8]" {
			t.Errorf("%s: signals %q", name, c.engine.signals)
		}
		if arg, ok := c.engine.signalArg.(agent.Supersession); !ok || arg != (agent.Supersession{Generation: 5}) {
			t.Errorf("%s: signal %+v", name, c.engine.signalArg)
		}
	}
	// Nothing open, nothing outside.
	quiet := rolledBack()
	quiet.OpenRuns, quiet.Writes, quiet.Hidden = nil, nil, 1
	o := console{records: &fakeRecords{rollback: quiet}, noTemporal: true}.invoke(t.Context(), append(base, "--yes")...)
	if o.code != exitOK || o.errOut != "" || strings.Contains(o.out, "Not undone") || !strings.Contains(o.out, "Hidden: 1 message.") {
		t.Errorf("%+v", o)
	}
	for name, c := range map[string]console{"no Temporal": {noTemporal: true}, "a signal is lost": {engine: &fakeEngine{signalErr: errBroken}}} {
		for _, form := range []string{"text", "--json"} {
			c.records = &fakeRecords{rollback: rolledBack()}
			args := append(slices.Clone(base), "--yes")
			if form == "--json" {
				args = append(args, form)
			}
			o := c.invoke(t.Context(), args...)
			if o.code != exitOK || !strings.Contains(o.out, "s1") || strings.Count(o.errOut, "could not be told") != 2 {
				t.Errorf("%s, %s: %+v", name, form, o)
			}
			if want := "A run that waits for a person takes no step: it ends only when its plan expires, or when it is told by this command given again while Temporal can be reached: starter rollback c-1 s1 --tenant acme --user olga\n"; !strings.HasSuffix(o.errOut, want) || strings.Count(o.errOut, want) != 1 {
				t.Errorf("%s, %s: %s", name, form, o.errOut)
			}
		}
	}
	if o := (console{records: &fakeRecords{rollback: rolledBack()}, engine: &fakeEngine{signalErr: errUnknownRun}}).invoke(t.Context(), append(base, "--yes")...); o.errOut != "" {
		t.Errorf("workflows that have ended: %+v", o)
	}
}

func TestRollbackAsks(t *testing.T) {
	t.Parallel()
	base := []string{"rollback", "c-1", "s1", "--tenant", "acme", "--user", "olga"}
	look, back := "snapshots acme/c-1", "rollback acme/c-1 to s1 by olga"
	for name, test := range map[string]struct {
		console console
		args    []string
		err     error
		asked   string
		code    int
		says    string
	}{
		"yes":              {console{terminal: true, stdin: "y\n"}, base, nil, look + ";" + back, exitOK, "Snapshot s1 of conversation c-1: message 12, 2026-11-30 12:00:00."},
		"no":               {console{terminal: true, stdin: "\n"}, base, nil, look, exitRunFailed, "nothing was changed"},
		"no such snapshot": {console{terminal: true, stdin: "y\n"}, []string{"rollback", "c-1", "s9", "--user", "olga"}, nil, "snapshots demo/c-1", exitUsage, "there is no snapshot s9 of a conversation c-1"},
		"nobody to ask":    {console{stdin: "y\n"}, base, nil, "", exitUsage, "--yes"},
		"JSON":             {console{terminal: true, stdin: "y\n"}, append(base, "--json"), nil, "", exitUsage, "--yes"},
		"unknown":          {console{}, append(base, "--yes"), db.ErrNotFound, back, exitUsage, "there is no snapshot s1 of a conversation c-1 in tenant acme"},
		"at the same time": {console{}, append(base, "--yes"), db.ErrConflict, back, exitRunFailed, "nothing was rolled back"},
		"down":             {console{}, append(base, "--yes"), db.ErrUnavailable, back, exitUnreachable, "PostgreSQL cannot be reached"},
		"no operator":      {console{}, append(base, "--yes", "--user", ""), nil, "", exitUsage, "--user is missing"},
		"no snapshot":      {console{}, []string{"rollback", "c-1", "--user", "olga"}, nil, "", exitUsage, "needs CONVERSATION and SNAPSHOT"},
		"an odd snapshot":  {console{}, []string{"rollback", "c-1", "s 1", "--user", "olga"}, nil, "", exitUsage, "SNAPSHOT must be"},
	} {
		test.console.records = &fakeRecords{rollback: rolledBack(), snapshots: snapshots(), err: test.err}
		test.console.engine = &fakeEngine{}
		o := test.console.invoke(t.Context(), test.args...)
		if o.code != test.code || !strings.Contains(o.errOut, test.says) || strings.Join(test.console.records.asked, ";") != test.asked {
			t.Errorf("%s: %+v, asked %q", name, o, test.console.records.asked)
		}
	}
}
