package endtoend

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// TestTOOL2WritesAlone proposes reads and writes in one response. They are
// carried out in call order, reads next to each other together, and nothing runs
// beside a write or while one waits for a person.
func TestTOOL2WritesAlone(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	lines := []string{
		`look_slowly {"n":0,"wait_ms":2500}`,
		`look_slowly {"n":1,"wait_ms":2500}`,
		proposal("change", changeArgs{Thing: "lamp", To: "on", Mode: "hold"}),
		proposal("send", changeArgs{Thing: "radio", To: "on", Mode: "hold"}),
		`look_slowly {"n":4,"wait_ms":2500}`,
		`look_slowly {"n":5,"wait_ms":2500}`,
		proposal("change", changeArgs{Thing: "heater", To: "on"}),
	}
	req := ask("changer", "calls "+strings.Join(lines, "\n"))
	run := w.start(req)

	w.pending(req, bob)
	const read = "call 0.0 succeeded, call 0.1 succeeded, "
	w.wantRecord(req, "plan 0.2/1 pending, "+read+
		"call 0.2 proposed, call 0.3 proposed, call 0.4 proposed, call 0.5 proposed, call 0.6 proposed")
	w.approve(req, bob)
	<-things.entered
	w.wantRecord(req, "plan 0.2/1 approved by bob, write 0.2 open, "+read+
		"call 0.2 running, call 0.3 proposed, call 0.4 proposed, call 0.5 proposed, call 0.6 proposed")
	things.release <- struct{}{}

	w.until("the second write is planned", func() bool { return len(w.show(req).Plans) == 2 })
	w.approve(req, carol)
	<-things.entered
	w.wantRecord(req, "plan 0.2/1 approved by bob, plan 0.3/1 approved by carol, write 0.2 performed by commit, write 0.3 open, "+read+
		"call 0.2 succeeded, call 0.3 running, call 0.4 proposed, call 0.5 proposed, call 0.6 proposed")
	things.release <- struct{}{}

	w.until("the third write is planned", func() bool { return len(w.show(req).Plans) == 3 })
	w.wantRecord(req, "plan 0.2/1 approved by bob, plan 0.3/1 approved by carol, plan 0.6/1 pending, write 0.2 performed by commit, write 0.3 performed by commit, "+
		read+"call 0.2 succeeded, call 0.3 succeeded, call 0.4 succeeded, call 0.5 succeeded, call 0.6 proposed")
	w.approve(req, bob)
	result := w.wait(run)
	if result.Reason != agent.ReasonFinal || result.ToolCalls != len(lines) || things.total() != 3 {
		t.Errorf("ended %+v with %d effects", result, things.total())
	}

	// The times say the same: reads took 2.5 s each, two of them in far less
	// than 5 s, and a write's time is its own.
	calls := w.show(req).Calls()
	for _, pair := range [][2]int{{0, 1}, {4, 5}} {
		if a, b := calls[pair[0]], calls[pair[1]]; !a.StartedAt.Before(b.EndedAt) || !b.StartedAt.Before(a.EndedAt) {
			t.Errorf("reads %s and %s were not carried out together", a.ID, b.ID)
		}
	}
	for i, write := range calls {
		for j, other := range calls {
			if write.Risk == "write" && j != i && overlap(write, other) > 0 {
				t.Errorf("call %s ran beside write %s for %s", other.ID, write.ID, overlap(write, other))
			}
		}
		if i > 0 && write.Risk == "write" && write.StartedAt.Before(calls[i-1].EndedAt) {
			t.Errorf("write %s began before call %s had ended", write.ID, calls[i-1].ID)
		}
	}
	w.checkWrites(req, things)
	w.checkLedger(t, req, result)
}

// overlap is how long two calls ran at the same time.
func overlap(a, b db.CallReport) time.Duration {
	from, to := a.StartedAt, a.EndedAt
	if b.StartedAt.After(from) {
		from = b.StartedAt
	}
	if b.EndedAt.Before(to) {
		to = b.EndedAt
	}
	return max(0, to.Sub(from))
}
