package process

import "testing"

func TestParseStatWithAnOddName(t *testing.T) {
	t.Parallel()
	state, ticks, err := parseStat("42 (a ) b) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 230763 9 10")
	if err != nil || state != "S" || ticks != "230763" {
		t.Errorf("got %q, %q, %v; want S, 230763", state, ticks, err)
	}
	for _, broken := range []string{"", "42 (x", "42 (x) S 1 2"} {
		if _, _, err := parseStat(broken); err == nil {
			t.Errorf("%q is accepted", broken)
		}
	}
}
