package activities_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/tool"
)

// TestCommitAfterACrash: between intent and result nobody knows. A worker that
// takes over performs nothing before it has looked.
func TestCommitAfterACrash(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		performed bool
		stopping  bool
		resolved  string
		// executions and sends in all.
		executions int
		record     string
	}{
		"the effect had happened": {true, false, "done", 1, "plan 1 approved, write performed sent 1 look_up, call succeeded"},
		"it had not":              {false, false, "done", 2, "plan 1 approved, write performed sent 2 commit, call succeeded"},
		// Whether the first worker still lives is not known yet.
		"it had not, and the run stops": {false, true, "unknown", 1, "plan 1 approved, write open sent 1, call running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := planned(t)
			good := w.decision(approval.Approve)
			release := make(chan struct{})
			w.shelf.set(func(s *shelf) { s.entered, s.release = make(chan struct{}, 9), release })
			var first string
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				first = told(w.another().CommitWrite(w.ctx, good))
			}()
			<-w.shelf.entered
			if test.performed {
				key := w.show(w.begun).Writes[0].Key
				w.shelf.set(func(s *shelf) { s.done[key], s.effects = true, 1 })
			}
			// The worker that began is still there or not: this one cannot know.
			for range 2 {
				if got := told(w.runs.CommitWrite(w.ctx, good)); got != "unknown" {
					t.Errorf("commit again: %s", got)
				}
			}
			effects := map[bool]int{true: 1, false: 0}[test.performed]
			w.want(1, effects, "plan 1 approved, write open sent 1, call running")
			w.shelf.set(func(s *shelf) { s.entered, s.release = nil, nil })
			in := w.resolve()
			in.Stopping = test.stopping
			if got := told(w.runs.ResolveWrite(w.ctx, in)); got != test.resolved {
				t.Errorf("resolved: %s, want %s", got, test.resolved)
			}
			if !test.stopping {
				effects = 1
			}
			w.want(test.executions, effects, test.record)
			// The late one finds the record, or makes it if there is none.
			close(release)
			<-gone
			if first != "done" {
				t.Errorf("the first worker: %s", first)
			}
			if test.stopping {
				test.record = "plan 1 approved, write performed sent 1 commit, call succeeded"
			}
			w.want(test.executions, 1, test.record)
		})
	}
}

// TestTwoWorkersCommitOneToken: Temporal may hand one token to many. One of them
// performs.
func TestTwoWorkersCommitOneToken(t *testing.T) {
	t.Parallel()
	w := planned(t)
	good := w.decision(approval.Approve)
	workers := []*activities.Runs{w.runs, w.another(), w.another(), w.another()}
	var mu sync.Mutex
	got := map[string]int{}
	together(16, func(i int) {
		out, err := workers[i%4].CommitWrite(w.ctx, good)
		if err != nil && !retryable(err) {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got[told(out, err)]++
	})
	if got["done"] == 0 || got["done"]+got["unknown"]+got["error"] != 16 {
		t.Errorf("answers %v", got)
	}
	w.want(1, 1, "plan 1 approved, write performed sent 1 commit, call succeeded")
	if n := w.number("SELECT count(*) FROM approval_refusal"); n != 0 {
		t.Errorf("%d refusals of a good token", n)
	}
	for _, runs := range workers {
		if got := told(runs.CommitWrite(w.ctx, good)); got != "done" {
			t.Errorf("asked again: %s", got)
		}
	}
}

// TestTwoWorkersDecideOtherwise: of two tokens at once one decides.
func TestTwoWorkersDecideOtherwise(t *testing.T) {
	t.Parallel()
	w := planned(t)
	yes, no := w.decision(approval.Approve), w.decision(approval.Decline)
	together(8, func(i int) {
		in := []agent.CommitWriteInput{yes, no}[i%2]
		if _, err := w.another().CommitWrite(w.ctx, in); err != nil && !retryable(err) {
			t.Error(err)
		}
	})
	report := w.show(w.begun)
	if report.Plans[0].Status == db.PlanApproved {
		w.want(1, 1, "plan 1 approved, write performed sent 1 commit, call succeeded")
	} else {
		w.want(0, 0, "plan 1 declined, call failed")
	}
}

// retryable reports whether Temporal tries again.
func retryable(err error) bool {
	var typed *temporal.ApplicationError
	return !errors.As(err, &typed) || !typed.NonRetryable()
}

// TestPrepareTogether: however many prepare at once, there is one plan.
func TestPrepareTogether(t *testing.T) {
	t.Parallel()
	w := proposed(t)
	workers := []*activities.Runs{w.runs, w.another(), w.another()}
	together(12, func(i int) {
		if _, err := workers[i%3].PrepareWrite(w.ctx, w.prepare()); err != nil && !retryable(err) {
			t.Error(err)
		}
	})
	w.want(0, 0, "plan 1 pending, call proposed")
	if n := w.number("SELECT count(*) FROM run_transition WHERE to_status = 'waiting_confirmation'"); n != 1 {
		t.Errorf("the run began to wait %d times", n)
	}
}

// TestStoppedBeforeCommit: a token counts for nothing once the run is over or
// replaced, although it is good.
func TestStoppedBeforeCommit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stop func(*write)
		want string
	}{
		"superseded": {func(w *write) {
			newer := request()
			newer.Conversation = w.req.Conversation
			w.begin(newer)
		}, "done, end superseded"},
		"ended": {func(w *write) { w.finish(w.begun, agent.ReasonCanceled, 1, "") }, "refused already_decided"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := planned(t)
			good := w.decision(approval.Approve)
			test.stop(w)
			if got := told(w.runs.CommitWrite(w.ctx, good)); got != test.want {
				t.Errorf("commit: %s, want %s", got, test.want)
			}
			if name == "superseded" {
				w.finish(w.begun, agent.ReasonSuperseded, 1, "")
			}
			w.want(0, 0, "plan 1 withdrawn, call abandoned")
			if got := told(w.runs.ResolveWrite(w.ctx, w.resolve())); got != "not_begun" {
				t.Errorf("resolve: %s", got)
			}
		})
	}
}

// TestEndedDuringCommit: a run that is ended while its write is committed ends
// outcome_unknown. What is found out afterwards is recorded all the same.
func TestEndedDuringCommit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fails  error
		says   string
		record string
	}{
		"performed": {nil, "done", "plan 1 approved, write performed sent 1 commit, call succeeded"},
		"refused": {
			&tool.Error{Code: agent.ToolFailed, Message: "no room " + canary}, "done failed",
			"plan 1 approved, write not_performed sent 1 commit, call failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := planned(t)
			good := w.decision(approval.Approve)
			w.shelf.set(func(s *shelf) {
				s.entered, s.release, s.fails = make(chan struct{}, 1), make(chan struct{}), test.fails
			})
			var said string
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				said = told(w.runs.CommitWrite(w.ctx, good))
			}()
			<-w.shelf.entered
			result := w.finish(w.begun, agent.ReasonCanceled, 1, "")
			if result.Reason != agent.ReasonOutcomeUnknown || len(result.Actions) != 1 || result.Actions[0].Error != agent.ToolOutcomeUnknown {
				t.Errorf("ended %+v", result)
			}
			w.want(1, 0, "plan 1 approved, write unknown sent 1, call unknown")
			close(w.shelf.release)
			<-gone
			if said != test.says {
				t.Errorf("committed: %s", said)
			}
			w.want(1, map[bool]int{true: 1}[test.fails == nil], test.record)
			// The end stays.
			if again := w.finish(w.begun, agent.ReasonCanceled, 1, ""); again.Reason != agent.ReasonOutcomeUnknown {
				t.Errorf("ended again %+v", again)
			}
		})
	}
}

// TestSettledDuringCommit: the operator's record stays, and the call gets the
// outcome that it says.
func TestSettledDuringCommit(t *testing.T) {
	t.Parallel()
	w := planned(t)
	good := w.decision(approval.Approve)
	refusal := &tool.Error{Code: agent.ToolFailed, Message: "no room"}
	w.shelf.set(func(s *shelf) { s.entered, s.release, s.fails = make(chan struct{}, 1), make(chan struct{}), refusal })
	var said string
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		said = told(w.runs.CommitWrite(w.ctx, good))
	}()
	<-w.shelf.entered
	err := w.db.InTx(w.ctx, w.req.Scope(), func(tx *db.Tx) error {
		state, err := tx.HoldWrite(w.ctx, w.req.RunID, w.call.ID)
		if err != nil {
			return err
		}
		recorded, err := tx.SettleWrite(w.ctx, state, db.Settlement{Performed: true, By: "olga", At: time.Now()})
		if err == nil && !recorded {
			err = errors.New("it was not recorded")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	close(w.shelf.release)
	<-gone
	if said != "error" {
		t.Errorf("committed: %s; the record says otherwise, and has to be taken up", said)
	}
	for range 2 {
		if got := told(w.runs.ResolveWrite(w.ctx, w.resolve())); got != "done" {
			t.Errorf("resolved: %s", got)
		}
	}
	w.want(1, 0, "plan 1 approved, write performed sent 1 operator, call succeeded")
	if _, _, looks := w.shelf.counts(); looks != 0 {
		t.Errorf("%d look-ups of what an operator recorded", looks)
	}
}
