package db_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

// TestLTM3Waiting: what waits is listed in pages, with the content that was stored
// last, for one tenant and as long as there is time.
func TestLTM3Waiting(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	room, other, foreign := roomOf("acme", "ann"), roomOf("acme", "bob"), roomOf("umbrella", "ann")
	until := written.Add(time.Hour)
	for i, r := range []agent.MemoryRoom{room, other, room, foreign} {
		id := fmt.Sprintf("m-%d", i)
		propose(t, d, r, id, `"short"`)
		if err := decide(d, r, id, func(c *db.MemoryCandidate) {
			c.State, c.ExpiresAt, c.Revision = agent.MemoryWaitingReview, &until, 1
			c.Content.Plan = &agent.MemoryPlan{Value: []byte(`"short"`), Purpose: id}
		}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(f db.WaitingFilter) (ids []string) {
		t.Helper()
		if f.Tenant == "" {
			f.Tenant = "acme"
		}
		if f.State == "" {
			f.State = agent.MemoryWaitingReview
		}
		if f.Now.IsZero() {
			f.Now = written
		}
		found, err := d.WaitingMemories(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range found {
			if c.Content == nil || c.Content.Plan == nil || c.Content.Plan.Purpose != c.ID || c.Content.Quote != `because "short"` {
				t.Errorf("content %+v", c.Content)
			}
			ids = append(ids, c.ID)
		}
		return ids
	}
	for want, f := range map[string]db.WaitingFilter{
		"[m-0 m-1 m-2]": {}, "[m-0 m-2]": {User: "ann"}, "[m-0 m-1]": {Limit: 2}, "[m-3]": {Tenant: "umbrella"},
	} {
		if got := fmt.Sprint(list(f)); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
	for name, f := range map[string]db.WaitingFilter{
		"another environment": {Environment: "test"}, "too late": {Now: until}, "another state": {State: agent.MemoryWaitingConfirmation},
	} {
		if got := list(f); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	first, err := d.CandidateOfTenant(ctx, "acme", "m-1")
	if err != nil || first.Room.Scope.User != "bob" {
		t.Fatalf("%+v, %v", first, err)
	}
	if got := fmt.Sprint(list(db.WaitingFilter{After: &first})); got != "[m-2]" {
		t.Errorf("the next page: %s", got)
	}
	if _, err := d.CandidateOfTenant(ctx, "umbrella", "m-1"); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("another tenant's: %v", err)
	}
}

// TestLTM5RunCandidates: a run's proposals are its user's alone, decided or not.
func TestLTM5RunCandidates(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	room, other := roomOf("acme", "ann"), roomOf("acme", "bob")
	propose(t, d, room, "m-1", `"short"`)
	propose(t, d, room, "m-2", `"long"`)
	propose(t, d, other, "m-3", `"long"`)
	if err := decide(d, room, "m-1", func(c *db.MemoryCandidate) { c.State = agent.MemoryDeclined }); err != nil {
		t.Fatal(err)
	}
	test := room
	test.Scope.Environment = "test"
	for want, c := range map[string]struct {
		room agent.MemoryRoom
		run  string
	}{
		"m-1 declined m-2 proposed ": {room, "r1"}, "m-3 proposed ": {other, "r1"}, "": {room, "r2"},
	} {
		list, err := d.RunCandidates(ctx, c.room, c.run)
		got := ""
		for _, c := range list {
			got += c.ID + " " + string(c.State) + " "
		}
		if err != nil || got != want {
			t.Errorf("%s of %s: %q, %v", c.run, c.room.Scope.User, got, err)
		}
	}
	if list, err := d.RunCandidates(ctx, test, "r1"); err != nil || len(list) != 0 {
		t.Errorf("in another environment: %+v, %v", list, err)
	}
	if list, err := d.RunCandidates(ctx, room, ""); err != nil || len(list) != 0 {
		t.Errorf("of no run: %+v, %v", list, err)
	}
}
