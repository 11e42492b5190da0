package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

// TestLTM9GivenOnce: of two tries to recall for a run that find different things,
// the run is given what one of them found, and both are told how many that is.
func TestLTM9GivenOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	room := roomOf("acme", "ann")
	for _, id := range []string{"m1", "m2", "m3"} {
		r := recordOf(id, `"x"`)
		r.Key = "note." + id
		remember(t, d, room, r)
	}
	hit := func(id string) db.RecallHit { return db.RecallHit{Record: recordOf(id, `"x"`), Via: "exact"} }
	tries := [][]db.RecallHit{{hit("m1")}, {hit("m2"), hit("m3")}, {hit("m3"), hit("m1"), hit("m2")}}
	for n := range 20 {
		run := begin(t, d, room.Scope, fmt.Sprint("c", n), fmt.Sprint("r", n))
		counts := make([]int, len(tries))
		inParallel(t, len(tries), func(i int) (err error) {
			counts[i], err = d.GiveMemories(ctx, room, run.ID, tries[i])
			return err
		})
		given, err := d.GivenMemories(ctx, room, run.ID, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		whole := false
		for _, hits := range tries {
			same := len(hits) == len(given)
			for i := range hits {
				same = same && hits[i].Record.ID == given[i].ID
			}
			whole = whole || same
		}
		if !whole || counts[0] != len(given) || counts[1] != len(given) || counts[2] != len(given) {
			t.Fatalf("given %d, told %v", len(given), counts)
		}
	}
}
