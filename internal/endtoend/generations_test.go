package endtoend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/rig"
	"github.com/fairlead/fairlead/model"
)

// gated is a model that answers nobody until it is released.
type gated struct {
	model.Model
	release chan struct{}
}

func (g *gated) Generate(ctx context.Context, req model.Request, stream func(model.Delta)) (model.Response, error) {
	select {
	case <-g.release:
		return g.Model.Generate(ctx, req, stream)
	case <-ctx.Done():
		return model.Response{}, ctx.Err()
	}
}

// submits begins n runs of one conversation at the same time. Half of them say
// at which version they saw the conversation.
func (w *world) submits(n int, first agent.RunRequest) (requests []agent.RunRequest, runs []client.WorkflowRun) {
	w.Helper()
	requests, runs = make([]agent.RunRequest, n), make([]client.WorkflowRun, n)
	for i := range n {
		requests[i] = ask(first.Agent, strings.ReplaceAll(first.Message, "NUMBER", fmt.Sprint(i)))
		requests[i].Conversation = first.Conversation
		if i%2 == 0 {
			requests[i].ConversationVersion = ptr(rand.Int64N(int64(n)))
		}
	}
	var started sync.WaitGroup
	for i := range n {
		started.Go(func() {
			run, err := w.client.ExecuteWorkflow(w.ctx, w.options(requests[i]), agent.WorkflowAgentRun, requests[i])
			if err != nil {
				w.Error(err)
			}
			runs[i] = run
		})
	}
	started.Wait()
	if w.Failed() {
		w.FailNow()
	}
	return requests, runs
}

// refused returns whether the run was refused because the conversation had moved
// on, which leaves no trace of it.
func (w *world) refused(run client.WorkflowRun, req agent.RunRequest) bool {
	w.Helper()
	err := run.Get(w.ctx, nil)
	var typed *temporal.ApplicationError
	if !errors.As(err, &typed) {
		return false
	}
	if typed.Type() != agent.ErrorConversationConflict || req.ConversationVersion == nil {
		w.Errorf("run %s ended with %v", req.RunID, err)
	}
	if n := w.number("SELECT count(*) FROM run WHERE id = $1", req.RunID); n != 0 {
		w.Errorf("the refused run %s is stored", req.RunID)
	}
	return true
}

// TestFiftyGenerations submits fifty messages to one conversation at once, and
// twenty that lead to writes. One run is the current one and answers; every other
// is superseded, or refused because it was written for another version. No
// message gets lost and they are in one order (RUN-12).
func TestFiftyGenerations(t *testing.T) {
	t.Parallel()
	t.Run("that answer", func(t *testing.T) {
		t.Parallel()
		gate := &gated{release: make(chan struct{})}
		w := newWorld(t).withWorker(func(c *rig.Config) { gate.Model, c.Model = c.Model, gate })
		requests, runs := w.submits(50, agent.RunRequest{Agent: "looker", Conversation: "talk", Message: "answer This is NUMBER."})
		w.checkGenerations(requests, runs, func(agent.RunRequest) { close(gate.release) })
	})
	t.Run("that want to write", func(t *testing.T) {
		t.Parallel()
		things := newThings()
		w := newWorld(t).withWriter(things, nil)
		requests, runs := w.submits(20, agent.RunRequest{
			Agent: "changer", Conversation: "talk", Message: "call " + proposal("change", changeArgs{Thing: "thing-NUMBER", To: "on"}),
		})
		w.checkGenerations(requests, runs, func(newest agent.RunRequest) {
			// Only the newest can be approved, whoever asks for what.
			w.pending(newest, bob)
			waiting, err := w.office().Pending(w.ctx, bob, approval.Filter{})
			if err != nil || len(waiting.Plans) != 1 || waiting.Plans[0].RunID != newest.RunID {
				t.Errorf("waiting are %+v, %v", waiting.Plans, err)
			}
			w.approve(newest, bob)
		})
		if things.total() != 1 {
			t.Errorf("%d effects", things.total())
		}
		for _, req := range requests {
			if w.number("SELECT count(*) FROM run WHERE id = $1", req.RunID) == 1 {
				w.checkWrites(req, things)
			}
		}
	})
}

// checkGenerations waits until all runs but the newest have ended, lets that one
// go on, and checks what a conversation with so many runs must look like.
func (w *world) checkGenerations(requests []agent.RunRequest, runs []client.WorkflowRun, goOn func(newest agent.RunRequest)) {
	w.Helper()
	conversation := requests[0].Conversation
	var refused atomic.Int64
	for i, req := range requests {
		if req.ConversationVersion != nil {
			go func() {
				var typed *temporal.ApplicationError
				if errors.As(runs[i].Get(w.ctx, nil), &typed) {
					refused.Add(1)
				}
			}()
		}
	}
	w.until("each submit is accepted or refused", func() bool {
		return w.number(`SELECT count(*) FROM run WHERE status <> 'queued'`)+refused.Load() == int64(len(runs))
	})
	var id string
	if err := w.owner.QueryRow(w.ctx, "SELECT id FROM run ORDER BY generation DESC LIMIT 1").Scan(&id); err != nil {
		w.Fatal(err)
	}
	newest := slices.IndexFunc(requests, func(r agent.RunRequest) bool { return r.RunID == id })
	goOn(requests[newest])

	accepted := map[string]string{}
	for i, run := range runs {
		if w.refused(run, requests[i]) {
			continue
		}
		accepted[requests[i].RunID] = requests[i].Message
		want := agent.ReasonSuperseded
		if i == newest {
			want = agent.ReasonFinal
		}
		if result := w.wait(run); result.Reason != want {
			w.Errorf("run %d ended %+v, want %s", i, result, want)
		}
		w.checkLedger(w, requests[i], w.wait(run))
	}
	if len(accepted) < len(runs)/2 || len(accepted) == len(runs) {
		w.Errorf("%d of %d were accepted: this proves nothing", len(accepted), len(runs))
	}

	// One order without gaps, each accepted message in it once, and one answer.
	messages, err := w.db.Messages(w.ctx, requests[newest].Scope(), conversation, 1000)
	if err != nil {
		w.Fatal(err)
	}
	if n := w.number("SELECT count(*) FROM message WHERE conversation_id = $1", conversation); n != int64(len(messages)) {
		w.Errorf("%d messages are shown of %d", len(messages), n)
	}
	seen, answers := map[string]bool{}, 0
	for i, m := range messages {
		switch {
		case m.Seq != int64(i+1):
			w.Errorf("message %d has number %d", i+1, m.Seq)
		case m.Role == db.RoleAssistant:
			if answers++; m.RunID != id {
				w.Errorf("an answer of run %s, which is not the newest", m.RunID)
			}
		case seen[m.RunID] || accepted[m.RunID] != m.Content:
			w.Errorf("message %d of run %s is there twice, or was not accepted, or is not what was sent", m.Seq, m.RunID)
		}
		seen[m.RunID] = true
	}
	if len(seen) != len(accepted) || answers != 1 {
		w.Errorf("%d messages of %d accepted runs, %d answers", len(seen), len(accepted), answers)
	}
	if n := w.number("SELECT count(*) FROM conversation WHERE id = $1 AND version = $2 AND generation = $2", conversation, len(accepted)); n != 1 {
		w.Errorf("the conversation does not count %d submits", len(accepted))
	}
	if n := w.number("SELECT count(*) FROM run WHERE status NOT IN ('succeeded', 'canceled')"); n != 0 {
		w.Errorf("%d runs have not ended", n)
	}
}
