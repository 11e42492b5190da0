package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
)

// becomes are proposals in every state, by their ID.
func becomes() map[string]db.MemoryCandidate {
	by := func(c db.MemoryCandidate, who string) db.MemoryCandidate {
		c.DecidedBy, c.UpdatedAt = who, at(3000)
		return c
	}
	taken := decided(agent.MemoryStored, "m-1", 2)
	taken.Rules = []agent.MemoryRule{{ID: "retract", Text: "what is in force ends"}}
	return map[string]db.MemoryCandidate{
		"stored": by(decided(agent.MemoryStored, "m-1", 2), "ann"), "alone": by(decided(agent.MemoryStored, "m-1", 2), ""), "taken": by(taken, "ann"),
		"merged": by(decided(agent.MemoryMerged, "m-1", 2), ""), "refused": by(decided(agent.MemoryRejected, "", 0), ""),
		"declined": by(decided(agent.MemoryDeclined, "", 0), "olga"), "expired": by(decided(agent.MemoryExpired, "", 0), ""),
		"review": by(decided(agent.MemoryWaitingReview, "", 0), ""), "fresh": by(decided(agent.MemoryProposed, "", 0), ""),
	}
}

// TestWhatBecameOfAProposal: who asks by the ID of a proposal hears how it stands.
func TestWhatBecameOfAProposal(t *testing.T) {
	t.Parallel()
	for id, test := range map[string]struct {
		says string
		code int
	}{
		"stored":   {"it was stored as memory m-1, version 2, by ann at 2026-11-30 12:00:03", exitRunFailed},
		"alone":    {"it was stored as memory m-1, version 2, by the policy at 2026-11-30 12:00:03", exitRunFailed},
		"taken":    {"it took back memory m-1, version 2, by ann at 2026-11-30 12:00:03", exitRunFailed},
		"merged":   {"the same was remembered already, as memory m-1, version 2 (2026-11-30 12:00:03)", exitRunFailed},
		"refused":  {"the policy refused it at 2026-11-30 12:00:03: it is stored at once (rule mode.immediate)", exitRunFailed},
		"declined": {"it was declined by olga at 2026-11-30 12:00:03", exitRunFailed},
		"expired":  {"nobody decided in time: it expired at 2026-11-30 12:00:03", exitRunFailed},
		"review":   {"it waits for a reviewer until 2026-12-07 12:00:00: starter memory review --tenant acme --user YOU", exitUsage},
		"fresh":    {"no worker has judged it yet; starter memory reconcile takes it up", exitUsage},
	} {
		c := reviewing()
		c.office.standing = becomes()
		o := c.invoke(t.Context(), "memory", "confirm", id, "--tenant", "acme", "--user", "ann", "--yes")
		if o.code != test.code || !strings.Contains(o.errOut, "proposal "+id+" of tenant acme waits for no decision of user ann: "+test.says) || len(c.office.signed) > 0 {
			t.Errorf("confirm %s: %+v", id, o)
		}
		for _, command := range [][]string{{"show", id}, {"trace", id}, {"forget", id}, {"correct", id, "--value", "x"}} {
			for _, whose := range [][]string{{"--user", "ann"}, nil} {
				if whose == nil && command[0] != "show" && command[0] != "trace" {
					continue
				}
				c := remembering()
				c.memories.verdicts = []db.MemoryCandidate{becomes()[id]}
				o := c.invoke(t.Context(), slices.Concat([]string{"memory"}, command, whose, []string{"--tenant", "acme"})...)
				if o.code != exitUsage || !strings.Contains(o.errOut, id+" is the ID of a proposal and not of a memory: "+test.says) {
					t.Errorf("%q %q: %+v", command, whose, o)
				}
			}
		}
	}
	// Of another's proposal nothing is said.
	c := remembering()
	c.memories.verdicts = []db.MemoryCandidate{becomes()["stored"]}
	if o := c.invoke(t.Context(), "memory", "show", "stored", "--tenant", "acme", "--user", "bob"); !strings.Contains(o.errOut, "there is no memory stored in tenant acme that user bob may see") {
		t.Errorf("%+v", o)
	}
	// It was decided between the look and the signature.
	c = reviewing()
	c.office.standing = map[string]db.MemoryCandidate{"p-7": becomes()["declined"]}
	for _, err := range []error{approval.ErrDecided, approval.ErrExpired} {
		c.office.signErr = err
		if o := c.invoke(t.Context(), "memory", "confirm", "p-7", "--tenant", "acme", "--user", "ann", "--yes"); o.code != exitRunFailed || !strings.Contains(o.errOut, "it was declined by olga") {
			t.Errorf("%v: %+v", err, o)
		}
	}
}

// TestEveryRefusalHasARemedy: no code of a decision that was not believed is left
// alone.
func TestEveryRefusalHasARemedy(t *testing.T) {
	t.Parallel()
	said := map[string]agent.RefusalCode{}
	for _, code := range agent.RefusalCodes() {
		what := whatToDoAboutMemory("decisions refused: 2, the last one because of " + string(code))
		before, twice := said[what]
		if wrong := strings.HasPrefix(string(code), "wrong_"); what == "see the worker's log" || twice && !wrong {
			t.Errorf("%s: %q, as %s", code, what, before)
		}
		said[what] = code
	}
	for code, words := range map[agent.RefusalCode]string{
		agent.RefusedSignature: "FAIRLEAD_APPROVAL_PUBLIC_KEYS", agent.RefusedNotAuthorized: "the action review permitted to you, and give starter and worker the same FAIRLEAD_POLICIES",
	} {
		if what := whatToDoAboutMemory("because of " + string(code)); !strings.Contains(what, words) {
			t.Errorf("%s: %q", code, what)
		}
	}
}

func TestRefusedProposals(t *testing.T) {
	t.Parallel()
	list := []string{"memory", "list", "--rejected", "--tenant", "acme", "--user", "ann"}
	refusing := func() console {
		c := remembering()
		for i, id := range []string{"refused", "declined", "expired"} {
			p := becomes()[id]
			p.ID, p.Kind, p.Key, p.Room, p.RunID, p.UpdatedAt = "p-"+id, agent.MemoryPreference, "tone", annsRoom, "run-4", at(1000*i)
			if id == "refused" {
				p.Key = ""
			}
			c.memories.candidates = append(c.memories.candidates, p)
		}
		// What was refused is no content.
		c.env = map[string]string{"FAIRLEAD_ENCRYPTION_KEY": ""}
		return c
	}
	o := refusing().invoke(t.Context(), list...)
	want := "PROPOSAL    STATE     WHEN                 KEY        WHY\n" +
		"p-expired   expired   2026-11-30 12:00:02  tone       nobody decided in time\n" +
		"p-declined  declined  2026-11-30 12:00:01  tone       declined by olga\n" +
		"p-refused   rejected  2026-11-30 12:00:00  (unknown)  it is stored at once (rule mode.immediate)\n"
	if o.code != exitOK || o.errOut != "" || o.out != want {
		t.Errorf("%+v", o)
	}
	o = refusing().invoke(t.Context(), append(slices.Clone(list), "--json")...)
	var document refusedListDocument
	if err := json.Unmarshal([]byte(o.out), &document); err != nil || len(document.Refused) != 3 || document.Refused[2].Rule != "mode.immediate" || document.Refused[1].DecidedBy != "olga" || strings.Contains(o.out, "value") {
		t.Errorf("%v, %s", err, o.out)
	}
	o = refusing().invoke(t.Context(), append(slices.Clone(list), "--key", "food")...)
	if o.code != exitOK || o.errOut != "No proposal that fits --key food of user ann in tenant acme was refused, declined or left undecided.\n" {
		t.Errorf("%+v", o)
	}
	c := console{memories: &fakeMemories{}}
	if o = c.invoke(t.Context(), "memory", "list", "--key", "nosuch", "--kind", "ongoing_task", "--user", "ann"); o.errOut != "Nothing that fits --kind ongoing_task --key nosuch is remembered of user ann in tenant demo.\n" {
		t.Errorf("%+v", o)
	}
}
