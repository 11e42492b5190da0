package endtoend

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// manyMemories are more than one step of an erasure takes.
const manyMemories = 540

// remembers stores many memories of a user, each with the secret: personal ones,
// and some in a group.
func (k kept) remembers(w *world) {
	w.Helper()
	group := agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "crew-" + k.User}
	if err := w.db.AddParticipant(w.ctx, k.Tenant, group, k.User, "olga"); err != nil {
		w.Fatal(err)
	}
	own := agent.MemoryRoom{Scope: k.Scope, Agent: "keeper"}
	crew := agent.MemoryRoom{Scope: k.Scope, Group: group.ID, Agent: "keeper"}
	store := func(room agent.MemoryRoom, scope agent.MemoryScope, from, to int) {
		err := w.db.InMemory(w.ctx, room, scope, func(tx *db.MemoryTx) error {
			for i := from; i < to; i++ {
				value, err := json.Marshal(map[string]string{"topic": fmt.Sprintf("%s number %d", k.secret, i), "sentiment": "likes"})
				if err != nil {
					return err
				}
				tx.StoreRecord(db.MemoryRecord{
					ID: uuid.NewString(), Version: 1, Scope: scope, Agent: "keeper", Kind: agent.MemoryPreference,
					Key: "preference.topic", Identity: fmt.Sprintf(`{"topic":"%d"}`, i), Value: value, Evidence: db.MemoryEvidence{Quote: k.secret},
					SourceType: agent.SourceUserStatement, SourceID: "m-1", Writer: "test", CandidateID: fmt.Sprintf("c-%s-%d", k.User, i), Confidence: 0.7,
					Validation: agent.MemoryUserStated, ConsentBasis: "stated_by_user", Sensitivity: "normal", WrittenAt: time.Now(),
					Rules: []agent.MemoryRule{{ID: "test", Text: "test"}}, PolicyVersion: "1", PolicyDigest: "d",
				}, db.MemoryIndex{Tokens: []string{"number", fmt.Sprint(i)}})
			}
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	for from := 0; from < manyMemories; from += 90 {
		store(own, agent.MemoryScope{Kind: agent.MemoryOfUser, ID: k.User}, from, from+90)
	}
	store(crew, group, manyMemories, manyMemories+20)
}

// erase starts the erasure of a user.
func (k kept) erase(w *world) client.WorkflowRun {
	w.Helper()
	in := agent.EraseInput{ID: "erase-" + k.User, Tenant: k.Tenant, User: k.User, By: "olga"}
	run, err := w.client.ExecuteWorkflow(w.ctx, client.StartWorkflowOptions{ID: agent.EraseWorkflowID(k.Tenant, k.User), TaskQueue: w.queue}, agent.WorkflowEraseSubject, in)
	if err != nil {
		w.Fatal(err)
	}
	return run
}

func (k kept) receipt(w *world, run client.WorkflowRun) (receipt agent.ErasureReceipt) {
	w.Helper()
	if err := run.Get(w.ctx, &receipt); err != nil {
		w.Fatal(err)
	}
	return receipt
}

// pieces counts what is left of the user's memory.
func (k kept) pieces(w *world) int64 {
	w.Helper()
	return w.number(`SELECT (SELECT count(*) FROM memory_record WHERE user_id = $1 AND (value IS NOT NULL OR evidence IS NOT NULL))
		+ (SELECT count(*) FROM memory_candidate WHERE user_id = $1 AND content IS NOT NULL)
		+ (SELECT count(*) FROM memory_keyword k JOIN memory_record r ON (r.tenant, r.id) = (k.tenant, k.record_id) WHERE r.user_id = $1)
		+ (SELECT count(*) FROM memory_vector v JOIN memory_record r ON (r.tenant, r.id) = (v.tenant, v.record_id) WHERE r.user_id = $1)`, k.User)
}

// TestERASE2 erases three users: one in peace, and one whose worker is killed in
// the middle, which changes nothing in what comes of it. Nothing of either is left
// in the clear or can be decrypted, in tables, indexes and histories; the third
// one, who has the same, loses nothing. What somebody puts back by hand is found
// and repaired.
func TestERASE2(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.transaction()
	worker := w.startProcess()
	users := map[string]kept{}
	for _, user := range []string{"ann", "ben", "cid"} {
		k := w.keeps(user, "keeper", func(req agent.RunRequest) { w.run(req) })
		k.remembers(w)
		users[user] = k
	}
	ann, ben, cid := users["ann"], users["ben"], users["cid"]
	want := cid.pieces(w)
	if want < 2*manyMemories {
		t.Fatalf("there are only %d pieces to erase", want)
	}

	peaceful := ann.receipt(w, ann.erase(w))
	worker.kill()
	// This one dies when a step was carried out and nobody was told.
	fate := doom{At: "after " + agent.ActivityErase, Marker: filepath.Join(t.TempDir(), "died"), Tickets: "http://127.0.0.1:1", Services: t.TempDir()}
	dying := w.startProcess(func(c *exec.Cmd) { c.Env = append(c.Env, envDoom+"="+fate.encode()) })
	run := ben.erase(w)
	<-dying.exited
	if n := ben.pieces(w); n == 0 || n == want {
		t.Fatalf("the worker died with %d of %d pieces left, which is not the middle", n, want)
	}
	w.startProcess()
	killed := ben.receipt(w, run)

	for _, r := range []agent.ErasureReceipt{peaceful, killed} {
		if r.Records != manyMemories+21 || r.Versions != r.Records || r.Keywords != r.Records || !r.KeysDestroyed || r.At.IsZero() {
			t.Errorf("the receipt of %s is %+v", r.Subject, r)
		}
	}
	if peaceful.Candidates != killed.Candidates || peaceful.Vectors != killed.Vectors {
		t.Errorf("killed in the middle the receipt is %+v, else %+v", killed, peaceful)
	}
	texts := map[string]forms{"ann": ann.forms, "ben": ben.forms, "cid": cid.forms}
	for where, d := range map[string]dump{
		"the database": takeDump(t, w.ctx, w.url, "", texts), "Temporal's database": takeDump(t, w.ctx, w.beside("temporal"), since, texts),
		"Temporal's database of searches": takeDump(t, w.ctx, w.beside("temporal_visibility"), since, texts),
	} {
		for user, columns := range d.found {
			t.Errorf("the secret of %s is in %s: %v", user, where, columns)
		}
		if d.rows == 0 {
			t.Errorf("nothing was looked at in %s", where)
		}
	}
	for _, k := range []kept{ann, ben} {
		if n := k.pieces(w); n != 0 {
			t.Errorf("%d pieces are left of %s", n, k.User)
		}
		for what, read := range k.readings(w.ctx, w.program().db) {
			text, err := read()
			if k.in(text) || (what != "memory" && !errors.Is(err, db.ErrKeysDestroyed)) {
				t.Errorf("the %s of %s reads %q, %v", what, k.User, text, err)
			}
		}
	}
	cid.wantReadable(t, w.ctx, w.db)
	if n := cid.pieces(w); n != want {
		t.Errorf("of the third one %d of %d pieces are left", n, want)
	}

	w.plant(ann, cid)
	var report agent.ReconcileReport
	w.job("reconcile-"+w.queue, agent.WorkflowReconcileMemory, agent.ReconcileInput{Tenant: "acme"}, &report)
	if report.Residue < 3 || ann.pieces(w) != 0 {
		t.Errorf("the report is %+v, and %d pieces are left", report, ann.pieces(w))
	}
	// What lacked a vector has one now.
	if n := cid.pieces(w); n != want+int64(report.Missing) {
		t.Errorf("reconciliation left %d pieces of the third one, of %d, and added %d", n, want, report.Missing)
	}
	cid.wantReadable(t, w.ctx, w.db)
}

// plant puts back pieces of an erased user, as a restored backup would: a row of
// words, a vector and a proposal, made from those of another one.
func (w *world) plant(erased, from kept) {
	w.Helper()
	for _, query := range []string{
		`INSERT INTO memory_keyword (tenant, record_id, version, room, subject, tokens)
			SELECT r.tenant, r.id, r.version, r.room, r.subject, '{1,2,3}' FROM memory_record r WHERE r.user_id = $1 AND r.scope_kind = 'user' LIMIT 1`,
		`INSERT INTO memory_vector (tenant, record_id, embedder_id, version, room, subject, dimensions, shared, sketch, embedding)
			SELECT r.tenant, r.id, v.embedder_id, r.version, r.room, r.subject, v.dimensions, false, v.sketch, v.embedding
			FROM memory_record r, memory_vector v JOIN memory_record o ON (o.tenant, o.id) = (v.tenant, v.record_id)
			WHERE r.user_id = $1 AND r.scope_kind = 'user' AND o.user_id = $2 LIMIT 1`,
		`INSERT INTO memory_candidate (tenant, id, room, subject, user_id, environment, kind, key, source_type, source_id, writer, content, request_hash, state)
			SELECT c.tenant, 'planted', 'test/user/' || $1, $1, $1, c.environment, c.kind, c.key, c.source_type, c.source_id, c.writer, '\x0102', c.request_hash, 'proposed'
			FROM memory_candidate c WHERE c.user_id = $2 LIMIT 1`,
	} {
		args := []any{erased.User, from.User}
		if query[:30] == `INSERT INTO memory_keyword (te` {
			args = args[:1]
		}
		tag, err := w.owner.Exec(w.ctx, query, args...)
		if err != nil || tag.RowsAffected() != 1 {
			w.Fatalf("planted %d rows, %v: %s", tag.RowsAffected(), err, query)
		}
	}
}
