package db_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/db/dbtest"
)

// TestFactsOfALongConversation settles three facts 2,000 times each, and finds
// them again without going through all of it.
func TestFactsOfALongConversation(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	run := begin(t, d, scopeOf("acme"), "c", "r1")
	settle(t, d, run, factOf("a", "0"), factOf("b", "0"), factOf("c", "0"))
	const entries = `INSERT INTO session_entry (tenant, conversation_id, version, kind, key, run_id, call_id, branch, seq)
		SELECT 'acme', 'c', 3 + n, 'fact', chr(97 + n % 3), 'r1', n || '.0', 0, 1 + n FROM generate_series(1, 6000) AS n`
	if _, err := owner.Exec(ctx, entries); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(ctx, "UPDATE conversation SET entries = 6003"); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(ctx, "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	s := snapshot(t, d, "")
	for range 2 { // on line 0, and on a line with a path
		state, err := d.Session(ctx, scopeOf("acme"), "c")
		if err != nil || len(state.Facts) != 3 || state.Facts[0].CallID != "6000.0" || state.Facts[1].CallID != "5998.0" || state.Facts[2].CallID != "5999.0" {
			t.Fatalf("%+v, %v", state.Facts, err)
		}
		for _, args := range []string{"'acme', 'ada', 'production', '', 'c', 64", "'acme', 'ada', 'production', 'r1', '', 64"} {
			plan := explain(t, owner, "session.sql", "SessionFacts", args)
			read := 0
			for _, m := range regexp.MustCompile(`on session_entry.*rows=(\d+) loops=(\d+)`).FindAllStringSubmatch(plan, -1) {
				rows, _ := strconv.Atoi(m[1])
				loops, _ := strconv.Atoi(m[2])
				read += rows * loops
			}
			// The three keys, the newest of each, and those themselves.
			if read > 12 || strings.Contains(plan, "Seq Scan on session_entry") || regexp.MustCompile(`Removed by Filter: [1-9]`).MatchString(plan) {
				t.Errorf("%d entries are read:\n%s", read, plan)
			}
		}
		rollBack(t, d, s.ID)
	}
}
