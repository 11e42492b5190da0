package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/db"
)

// TestMemoryShared: a participant lists what is remembered in a group, corrects it and
// has forgotten what comes from the participant.
func TestMemoryShared(t *testing.T) {
	t.Parallel()
	bobs := ownerMemory()
	bobs.User, bobs.Evidence = "bob", db.MemoryEvidence{Purpose: bobs.Evidence.Purpose}
	left := ptr(at(1))
	for name, test := range map[string]struct {
		args   []string
		change func(*fakeMemories)
		code   int
		says   string
		asked  string
	}{
		"list": {
			[]string{"list", "--group", "ops"},
			func(*fakeMemories) {}, exitOK, "service_owner",
			"memories acme/ann {Environment: Kind: Key: Shared:{Kind:group ID:ops} Past:false Limit:500 After:}",
		},
		"list of an outsider": {
			[]string{"list", "--project", "atlas"},
			func(m *fakeMemories) { m.err = db.ErrNotFound }, exitUsage,
			"user ann takes no part in project atlas of tenant acme", "",
		},
		"two rooms":      {[]string{"list", "--group", "a", "--project", "b"}, func(*fakeMemories) {}, exitUsage, "say one of --group, --project and --rejected", ""},
		"no name":        {[]string{"list", "--group", "a b"}, func(*fakeMemories) {}, exitUsage, "must be 1 to 128", ""},
		"forget another": {[]string{"forget", "m-2"}, func(m *fakeMemories) { m.records = []db.MemoryRecord{bobs} }, exitUsage, "comes from somebody else, who alone may have it forgotten", ""},
		"correct, having left": {
			[]string{"correct", "m-2", "--value", `{"service":"payment","owner":"b"}`},
			func(m *fakeMemories) { m.participants[0].RemovedAt = left }, exitUsage,
			"user ann takes no part in group ops any more", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := remembering()
			test.change(c.memories)
			o := c.invoke(t.Context(), slices.Concat([]string{"memory"}, test.args, []string{"--tenant", "acme", "--user", "ann"})...)
			if o.code != test.code || !strings.Contains(o.out+o.errOut, test.says) || len(c.engine.jobs) != 0 {
				t.Errorf("%+v, jobs %d", o, len(c.engine.jobs))
			}
			if test.asked != "" && strings.Join(c.memories.asked, ";") != test.asked {
				t.Errorf("asked %q", c.memories.asked)
			}
		})
	}
}
