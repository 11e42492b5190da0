package endtoend

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/codec"
)

// program is another program on the world's database, with keys of its own in
// memory.
type program struct {
	db     *db.DB
	client client.Client
	codec  converter.DataConverter
}

func (w *world) program() program {
	w.Helper()
	p := program{db: dbtest.Open(w, w.url, db.Options{})}
	p.codec = codec.DataConverter(p.db)
	p.client = connect(w, p.codec)
	return p
}

// asked reads the request of a run out of its history.
func (p program) asked(w *world, req agent.RunRequest) (agent.RunRequest, error) {
	var read agent.RunRequest
	input := w.events(req, "")[0].GetWorkflowExecutionStartedEventAttributes().GetInput()
	err := p.codec.FromPayloads(input, &read)
	return read, err
}

// TestDestroyedKeys: with a user's keys all that the user stored is gone, in the
// database and in histories, for programs as well that had the keys in memory.
// Nothing of another user is.
func TestDestroyedKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker := w.startWatched()
	users := map[string]kept{}
	t.Run("keep", func(t *testing.T) {
		var mu sync.Mutex
		for _, user := range []string{"ann", "ben"} {
			t.Run(user, func(t *testing.T) {
				t.Parallel()
				w := w.in(t)
				k := w.keeps(user, "keeper", func(req agent.RunRequest) { w.run(req) })
				mu.Lock()
				defer mu.Unlock()
				users[user] = k
			})
		}
	})
	if t.Failed() {
		return
	}
	ann, ben := users["ann"], users["ben"]
	running := w.program()
	for _, k := range users {
		k.wantReadable(t, w.ctx, w.db)
		k.wantReadable(t, w.ctx, running.db)
		if asked, err := running.asked(w, k.all); err != nil || asked.Message != k.all.Message {
			t.Errorf("the history of user %s reads %q, %v", k.User, asked.Message, err)
		}
	}

	// Not while a run of the user is open.
	open := ann.all
	open.RunID, open.Message, open.Session = open.RunID+"-open", strings.Replace(ann.all.Message, "keep ", "keep other-", 1), nil
	waiting := w.start(open)
	w.pending(open, bob)
	if err := w.db.DestroyKeys(w.ctx, ann.Tenant, ann.User, "olga"); !errors.Is(err, db.ErrConflict) {
		t.Fatalf("while a run is open: %v", err)
	}
	if err := w.client.CancelWorkflow(w.ctx, waiting.GetID(), ""); err != nil {
		t.Fatal(err)
	}
	w.wait(waiting)
	w.summarizerRests(open)
	stored := w.number("SELECT count(*) FROM message WHERE conversation_id = $1", ann.conversation)
	if err := w.db.DestroyKeys(w.ctx, ann.Tenant, ann.User, "olga"); err != nil {
		t.Fatal(err)
	}

	// Programs that have her keys in memory can still seal and open a request: the
	// worker stores nothing of it.
	again := ann.last
	again.RunID += "-again"
	run, err := running.client.ExecuteWorkflow(w.ctx, w.options(again), agent.WorkflowAgentRun, again)
	if err != nil {
		t.Fatal(err)
	}
	// After half a minute in memory it cannot even be read.
	var (
		result  agent.RunResult
		refused *temporal.ApplicationError
	)
	if err := run.Get(w.ctx, &result); err == nil ||
		!(errors.As(err, &refused) && refused.Type() == agent.ErrorUserErased) && !strings.Contains(err.Error(), db.ErrKeysDestroyed.Error()) {
		t.Errorf("her next run ended %+v, %v", result, err)
	}
	if n := w.number("SELECT count(*) FROM message WHERE conversation_id = $1", ann.conversation); n != stored {
		t.Errorf("%d messages became %d", stored, n)
	}

	// The program that destroyed them, one that was running, and one that starts.
	for name, p := range map[string]program{"this": {w.db, w.client, codec.DataConverter(w.db)}, "a running": running, "a new": w.program()} {
		for what, read := range ann.readings(w.ctx, p.db) {
			if text, err := read(); !errors.Is(err, db.ErrKeysDestroyed) || ann.in(text) {
				t.Errorf("%s program: the %s of ann reads %q, %v", name, what, text, err)
			}
		}
		ben.wantReadable(t, w.ctx, p.db)
		if asked, err := p.asked(w, ben.all); err != nil || asked.Message != ben.all.Message {
			t.Errorf("%s program: the history of ben reads %q, %v", name, asked.Message, err)
		}
		if asked, err := p.asked(w, ann.all); !errors.Is(err, db.ErrKeysDestroyed) {
			t.Errorf("%s program: the history of ann reads %q, %v", name, asked.Message, err)
		}
		// What tells how a run went is not hers and stays: operators need it.
		var result agent.RunResult
		if err := p.client.GetWorkflow(w.ctx, agent.WorkflowID(ann.Tenant, ann.all.RunID), "").Get(w.ctx, &result); err != nil || result.Reason != agent.ReasonFinal {
			t.Errorf("%s program: the result of ann's run is %+v, %v", name, result, err)
		}
	}
	w.wantRecord(ann.lost, "plan 0.0/1 approved by bob, write 0.0 performed by operator, call 0.0 succeeded")

	if _, err := w.client.ExecuteWorkflow(w.ctx, w.options(again), agent.WorkflowAgentRun, again); !errors.Is(err, db.ErrKeysDestroyed) {
		t.Errorf("a program that knows starts her next run: %v", err)
	}
	if ann.in(worker.logged.String()) {
		t.Error("her secret is in the worker's log")
	}

	more := ben.last
	more.RunID += "-more"
	if result := w.run(more); result.Reason != agent.ReasonFinal {
		t.Errorf("ben's next run ended %+v", result)
	}
}
