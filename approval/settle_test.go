package approval_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
)

// unsettled stores a write whose worker died; with ended, so did the run.
func (o *office) unsettled(t *testing.T, runID string, ended bool) (key string, ref approval.WriteRef) {
	t.Helper()
	key = o.commit(t, scope, o.wait(t, scope, runID), "token-"+runID)
	if ended {
		o.end(t, scope, runID, agent.ReasonOutcomeUnknown)
	}
	return key, approval.WriteRef{RunID: runID, CallID: "0.0"}
}

// row reads what is recorded of a write.
func (o *office) row(t *testing.T, runID string) string {
	t.Helper()
	var outcome, by, settledBy, call, code string
	err := o.owner.QueryRow(ctx, `SELECT i.outcome, i.resolved_by, i.settled_by, c.status, c.error_code FROM write_intent i
		JOIN tool_call c USING (tenant, run_id, call_id) WHERE i.tenant = 'acme' AND i.run_id = $1`, runID).Scan(&outcome, &by, &settledBy, &call, &code)
	if err != nil {
		t.Fatal(err)
	}
	// Notes are sealed.
	state, err := o.db.Write(ctx, scope, runID, "0.0")
	if err != nil || state.Intent == nil {
		t.Fatalf("%+v, %v", state, err)
	}
	return strings.Join([]string{outcome, by, settledBy, state.Intent.SettledNote, call, code}, "|")
}

func TestSettle(t *testing.T) {
	t.Parallel()
	o := open(t)
	for _, c := range []struct {
		run       string
		ended     bool
		performed bool
		result    db.WriteResult
		before    string
		after     string
	}{
		{"run-1", true, true, db.WritePerformed, "unknown||||unknown|", "performed|operator|olga|seen in the log|succeeded|"},
		{"run-2", true, false, db.WriteNotPerformed, "unknown||||unknown|", "not_performed|operator|olga|seen in the log|failed|failed"},
		// A run that goes on finishes its call itself.
		{"run-3", false, true, db.WritePerformed, "open||||running|", "performed|operator|olga|seen in the log|running|"},
		{"run-4", false, false, db.WriteNotPerformed, "open||||running|", "not_performed|operator|olga|seen in the log|running|"},
	} {
		_, ref := o.unsettled(t, c.run, c.ended)
		if got := o.row(t, c.run); got != c.before {
			t.Fatalf("%s: %s before", c.run, got)
		}
		s := &sent{err: errors.New("gone")}
		settled, err := o.Settle(ctx, s, olga, ref, approval.Settlement{Performed: c.performed, Note: "seen in the log"})
		if err != nil || settled.Result != c.result || settled.Continues == c.ended {
			t.Errorf("%s: %+v, %v", c.run, settled, err)
		}
		if got := o.row(t, c.run); got != c.after {
			t.Errorf("%s: %s, want %s", c.run, got, c.after)
		}
		// Only a run that goes on is told; that it cannot be told undoes nothing.
		var want []string
		if !c.ended {
			want = []string{fmt.Sprintf(`settled to agent-run~acme~%s, run ""`, c.run)}
		}
		if !slices.Equal(s.signals, want) || errors.Is(settled.SignalError, s.err) == c.ended {
			t.Errorf("%s: signals %q, %v", c.run, s.signals, settled.SignalError)
		}
		// The first record stays, whichever comes second.
		for _, performed := range []bool{true, false} {
			if _, err := o.Settle(ctx, nil, olga, ref, approval.Settlement{Performed: performed, Note: "other"}); !errors.Is(err, approval.ErrDecided) {
				t.Errorf("%s: settled again: %v", c.run, err)
			}
		}
		if got := o.row(t, c.run); got != c.after {
			t.Errorf("%s: %s after the second, want %s", c.run, got, c.after)
		}
	}
	if found, err := o.Unsettled(ctx, olga); err != nil || len(found.Writes) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestSettleRefuses(t *testing.T) {
	t.Parallel()
	o := open(t)
	_, ref := o.unsettled(t, "run-1", true)
	o.wait(t, scope, "run-2")
	key := o.commit(t, scope, o.wait(t, scope, "run-3"), "token-3")
	o.tx(t, scope, func(tx *db.Tx) { tx.ResolveIntent(key, db.WritePerformed, db.ByLookUp, o.now) })
	before := o.row(t, "run-1")
	for name, c := range map[string]struct {
		who  approval.Approver
		ref  approval.WriteRef
		note string
		want error
	}{
		"an approver":        {bob, ref, "", approval.ErrForbidden},
		"the requester":      {ada, ref, "", approval.ErrForbidden},
		"another tenant":     {stranger, ref, "", approval.ErrNotFound},
		"no such run":        {olga, approval.WriteRef{RunID: "run-9", CallID: "0.0"}, "", approval.ErrNotFound},
		"no such call":       {olga, approval.WriteRef{RunID: "run-1", CallID: "0.1"}, "", approval.ErrNotFound},
		"not approved yet":   {olga, approval.WriteRef{RunID: "run-2", CallID: "0.0"}, "", approval.ErrNotFound},
		"known by look-up":   {olga, approval.WriteRef{RunID: "run-3", CallID: "0.0"}, "", approval.ErrDecided},
		"not told how it is": {bob, approval.WriteRef{RunID: "run-3", CallID: "0.0"}, "", approval.ErrForbidden},
		"nobody":             {approval.Approver{Tenant: "acme"}, ref, "", nil},
		"long note":          {olga, ref, strings.Repeat("é", approval.MaxNoteBytes/2) + "x", nil},
		"broken note":        {olga, ref, "a\xff", nil},
		"NUL in the note":    {olga, ref, "a\x00", nil},
	} {
		s := &sent{}
		_, err := o.Settle(ctx, s, c.who, c.ref, approval.Settlement{Performed: true, Note: c.note})
		if err == nil || c.want != nil && !errors.Is(err, c.want) || len(s.signals) != 0 {
			t.Errorf("%s: %v, want %v; signals %q", name, err, c.want, s.signals)
		}
	}
	if got := o.row(t, "run-1"); got != before {
		t.Errorf("%s, want %s", got, before)
	}
	if _, err := o.Settle(ctx, nil, olga, ref, approval.Settlement{Note: strings.Repeat("é", approval.MaxNoteBytes/2)}); err != nil {
		t.Errorf("the longest note: %v", err)
	}
}

// TestSettlementsAtOnce lets twenty operators say opposite things at once.
func TestSettlementsAtOnce(t *testing.T) {
	t.Parallel()
	o := open(t)
	_, ref := o.unsettled(t, "run-1", true)
	var won, lost atomic.Int32
	var winner atomic.Value
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 20 {
		wg.Go(func() {
			<-start
			s := approval.Settlement{Performed: i%2 == 0, Note: fmt.Sprint(i)}
			settled, err := o.Settle(ctx, nil, olga, ref, s)
			switch {
			case err == nil:
				won.Add(1)
				status := "failed|failed"
				if s.Performed {
					status = "succeeded|"
				}
				winner.Store(fmt.Sprintf("%s|operator|olga|%d|%s", settled.Result, i, status))
			case errors.Is(err, approval.ErrDecided):
				lost.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 19 {
		t.Fatalf("%d won, %d lost", won.Load(), lost.Load())
	}
	if got := o.row(t, "run-1"); got != winner.Load() {
		t.Errorf("recorded %s, the winner said %s", got, winner.Load())
	}
}

// TestSettleWhileTheRunEnds settles at the moment in which the run gives up. One
// of the two comes first: in either case the settlement stays, and nothing is
// left unknown.
func TestSettleWhileTheRunEnds(t *testing.T) {
	t.Parallel()
	o := open(t)
	for i := range 10 {
		runID := fmt.Sprintf("run-%d", i)
		_, ref := o.unsettled(t, runID, false)
		var wg sync.WaitGroup
		var continues bool
		wg.Go(func() {
			settled, err := o.Settle(ctx, nil, olga, ref, approval.Settlement{Performed: true})
			if err != nil {
				t.Error(err)
			}
			continues = settled.Continues
		})
		wg.Go(func() { o.end(t, scope, runID, agent.ReasonOutcomeUnknown) })
		wg.Wait()
		got := o.row(t, runID)
		if !strings.HasPrefix(got, "performed|operator|olga||") || !continues && !strings.HasSuffix(got, "|succeeded|") || strings.Contains(got, "|unknown|") {
			t.Errorf("%s, the run went on: %v", got, continues)
		}
	}
}

func TestUnsettled(t *testing.T) {
	t.Parallel()
	o := open(t)
	var want []string
	for i := range 3 {
		o.now = o.now.Add(time.Second)
		runID := fmt.Sprintf("run-%d", i)
		key, _ := o.unsettled(t, runID, i != 1)
		want = append(want, runID+" "+key)
	}
	key := o.commit(t, scope, o.wait(t, scope, "run-8"), "token-8")
	o.tx(t, scope, func(tx *db.Tx) { tx.ResolveIntent(key, db.WritePerformed, db.ByCommit, o.now) })

	found, err := o.Unsettled(ctx, olga)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range found.Writes {
		got = append(got, w.RunID+" "+w.Key)
	}
	if !slices.Equal(got, want) || found.Forbidden != 0 {
		t.Fatalf("%q, want %q; forbidden %d", got, want, found.Forbidden)
	}
	last := found.Writes[2]
	if shown, want := fmt.Sprintf("%+v", last), fmt.Sprintf("%+v", approval.Write{
		RunID: "run-2", CallID: "0.0", Agent: "helper", Environment: "production", Requester: "ada", Tool: "restart_service", ToolVersion: "1",
		Arguments: []byte(arguments), Resource: "service/payment", ResourceVersion: "v7", Summary: "Restart payment.", Key: last.Key,
		Result: db.WriteUnknown, ApprovedBy: "bob", RecordedAt: last.RecordedAt, SentAt: last.SentAt, Sends: 1,
		RunStatus: agent.StatusFailed, RunReason: agent.ReasonOutcomeUnknown,
	}); shown != want {
		t.Errorf("got  %s\nwant %s", shown, want)
	}
	if !last.RecordedAt.Equal(o.now) {
		t.Errorf("recorded at %s, want %s", last.RecordedAt, o.now)
	}
	if w := found.Writes[1]; w.Result != db.WriteOpen || w.RunStatus != agent.StatusRunning {
		t.Errorf("%+v", w)
	}
	// An altered plan is not shown, and keeps no other from being settled.
	o.exec(t, "CREATE TABLE kept AS SELECT resource, summary FROM write_plan WHERE run_id = 'run-0'")
	for _, set := range []string{"resource = 'service/other'", "summary = '\\x01'::bytea || 'not sealed'"} {
		o.exec(t, "UPDATE write_plan SET "+set+" WHERE run_id = 'run-0'")
		if found, err := o.Unsettled(ctx, olga); err != nil || len(found.Writes) != 2 || !slices.Equal(found.Damaged, []approval.WriteRef{{RunID: "run-0", CallID: "0.0"}}) {
			t.Errorf("%s: %+v, %v", set, found, err)
		}
		if _, err := o.Settle(ctx, nil, olga, approval.WriteRef{RunID: "run-0", CallID: "0.0"}, approval.Settlement{}); !errors.Is(err, approval.ErrDamaged) {
			t.Errorf("%s: %v", set, err)
		}
		o.exec(t, "UPDATE write_plan SET (resource, summary) = (SELECT resource, summary FROM kept) WHERE run_id = 'run-0'")
	}

	if found, err := o.Unsettled(ctx, bob); err != nil || len(found.Writes) != 0 || found.Forbidden != 3 {
		t.Errorf("without rights: %+v, %v", found, err)
	}
	if found, err := o.Unsettled(ctx, stranger); err != nil || len(found.Writes) != 0 || found.Forbidden != 0 {
		t.Errorf("another tenant: %+v, %v", found, err)
	}
}
