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

// endings is a console in which a proposal waits that would end versions of records
// in every state: in force, changed since, ended, unreadable, and gone.
func endings() console {
	c := reviewing()
	changed, ended, unreadable := environmentMemory(), environmentMemory(), environmentMemory()
	changed.ID, ended.ID, unreadable.ID, unreadable.Value = "m-12", "m-13", "m-14", nil
	changed.Value, ended.Status = []byte("\"test \u202eevil\""), db.MemoryRetracted
	c.memories.records = append(c.memories.records, changed, ended, unreadable)
	c.office.waiting.Confirm[0].Ends = []agent.MemoryVersion{{Record: "m-1", Version: 2}, {Record: "m-12", Version: 1}, {Record: "m-13", Version: 2}, {Record: "m-14", Version: 2}, {Record: "m-15", Version: 1}}
	return c
}

// TestLTM3ShowsWhatWouldEnd: who confirms sees what is lost by it, key, value and
// since when.
func TestLTM3ShowsWhatWouldEnd(t *testing.T) {
	t.Parallel()
	o := endings().invoke(t.Context(), "memory", "confirm", "--tenant", "acme", "--user", "ann")
	want := `What that would end
  default_environment  in force since 2026-11-30 12:00:02  memory m-1, version 2
  │ "production"
  default_environment  memory m-12, version 1: it has changed since, and version 2 is in force
  │ "test \u202eevil"
  default_environment  memory m-13, version 2: it is not in force any more (retracted)
  memory m-14, version 2: its content cannot be read: its keys are gone, or it was damaged
  memory m-15, version 1: it is not there any more, or not for you to see
`
	if o.code != exitOK || !strings.Contains(o.out, want) {
		t.Errorf("%+v", o)
	}
	o = endings().invoke(t.Context(), "memory", "confirm", "--tenant", "acme", "--user", "ann", "--json")
	var document waitingMemoriesDocument
	if err := json.Unmarshal([]byte(o.out), &document); err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, e := range document.Memories[0].Ends {
		states = append(states, e.State)
	}
	if e := document.Memories[0].Ends[0]; string(e.Value) != `"production"` || e.Key != "default_environment" || !e.Since.Equal(at(2000)) || strings.Join(states, " ") != "in_force changed ended unreadable gone" {
		t.Errorf("%+v, states %q", e, states)
	}
	if text, _ := json.Marshal(document.Memories[0].Ends[4]); string(text) != `{"record":"m-15","version":1,"state":"gone"}` {
		t.Errorf("%s", text)
	}
}

// TestEndsAreReadForWhoDecides: a user sees the own, a reviewer what the tenant has.
func TestEndsAreReadForWhoDecides(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"confirm": {[]string{"confirm"}, "memory acme/ann m-1"},
		"review":  {[]string{"review"}, "memory acme/ m-2"},
	} {
		c := reviewing()
		o := c.invoke(t.Context(), slices.Concat([]string{"memory"}, test.args, []string{"--tenant", "acme", "--user", "ann"})...)
		if o.code != exitOK || !slices.Equal(c.memories.asked, []string{test.want}) {
			t.Errorf("%s: asked %q, %+v", name, c.memories.asked, o)
		}
	}
	for _, err := range []error{fmt.Errorf("open: %w", db.ErrSealed), db.ErrKeysDestroyed} {
		c := reviewing()
		c.memories.err = err
		if o := c.invoke(t.Context(), "memory", "confirm", "--tenant", "acme", "--user", "ann"); o.code != exitOK || !strings.Contains(o.out, "memory m-1, version 2: its content cannot be read") {
			t.Errorf("%v: %+v", err, o)
		}
	}
	c := reviewing()
	c.memories.err = db.ErrUnavailable
	if o := c.invoke(t.Context(), "memory", "confirm", "--tenant", "acme", "--user", "ann"); o.code != exitUnreachable || o.out != "" {
		t.Errorf("down: %+v", o)
	}
}

func TestListShowsWhatWouldEnd(t *testing.T) {
	t.Parallel()
	c := remembering()
	c.memories.candidates[2].Content.Plan.Ends = []agent.MemoryVersion{{Record: "m-1", Version: 2}}
	o := c.invoke(t.Context(), "memory", "list", "--tenant", "acme", "--user", "ann")
	if want := "  would end\n    default_environment  in force since 2026-11-30 12:00:02  memory m-1, version 2\n    │ \"production\"\n"; !strings.Contains(o.out, want) {
		t.Errorf("%+v", o)
	}
	o = c.invoke(t.Context(), "memory", "list", "--tenant", "acme", "--user", "ann", "--json")
	var document memoryListDocument
	if err := json.Unmarshal([]byte(o.out), &document); err != nil || len(document.Proposals[0].Ends) != 1 || string(document.Proposals[0].Ends[0].Value) != `"production"` {
		t.Errorf("%v, %+v", err, document.Proposals)
	}
}
