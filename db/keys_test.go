package db_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/vault"
)

func TestRotateKeys(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	warm := dbtest.Open(t, url, db.Options{})
	run := secrets(t, d, scopeOf("acme"), "c", "r1")
	wantWhole(t, warm, run)
	sealed := func() (prefixes []string) {
		t.Helper()
		rows, err := owner.Query(ctx, "SELECT encode(substring(content FROM 1 FOR 5), 'hex') FROM message ORDER BY seq")
		if err != nil {
			t.Fatal(err)
		}
		if prefixes, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
		return prefixes
	}
	var hash, hashed string
	if err := owner.QueryRow(ctx, "SELECT content_hash FROM message WHERE id = 'question-r1'").Scan(&hash); err != nil {
		t.Fatal(err)
	}
	before := sealed()
	if before[0] != before[1] {
		t.Fatalf("one key, two prefixes: %v", before)
	}
	if err := d.RotateKeys(ctx, "acme", "ada"); err != nil {
		t.Fatal(err)
	}
	if got := sealed(); !slices.Equal(got, before) {
		t.Fatalf("rotation touched values: %v", got)
	}
	// The other process, which has the old keys in memory, appends under the
	// new ones.
	_, err := appendTo(warm, run, db.Message{ID: "m3", Role: db.RoleUser, Content: "newer", Visibility: db.Visible})
	if after := sealed(); err != nil || after[2] == before[0] {
		t.Fatalf("the value of the other process is sealed under %v, %v", after, err)
	}
	// A step reads the question, and seals it anew. What it did not read stays.
	if _, err := loadStep(d, run, 0); err != nil {
		t.Fatal(err)
	}
	after := sealed()
	if after[0] == before[0] || after[1] != before[1] || after[2] != after[0] {
		t.Errorf("prefixes %v, were %v", after, before)
	}
	for _, process := range []*db.DB{d, warm} {
		messages, err := process.Messages(ctx, run.Scope, "c", 9)
		if err != nil || contents(messages) != "secret of acme|"+canary+" said|newer" {
			t.Errorf("%v, %v", contents(messages), err)
		}
	}
	if err := owner.QueryRow(ctx, "SELECT content_hash FROM message WHERE id = 'question-r1'").Scan(&hashed); err != nil || hashed != hash {
		t.Errorf("the hash changed with the key, %v", err)
	}
	if err := d.RotateKeys(ctx, "acme", "nobody"); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("without keys: %v", err)
	}
}

func loadStep(d *db.DB, run db.Run, step int) (state db.StepState, err error) {
	err = d.InTx(ctx, run.Scope, func(tx *db.Tx) (err error) {
		state, err = tx.LoadStep(ctx, db.StepQuery{RunID: run.ID, Step: step, MaxMessages: 50, MaxExchanges: 9})
		return err
	})
	return state, err
}

// TestResealingIsBounded reads 40 stale messages: 16 are sealed anew each time.
func TestResealingIsBounded(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	run := begin(t, d, scopeOf("acme"), "c", "r0")
	var old []db.Message
	for i := range 38 {
		old = append(old, db.Message{ID: fmt.Sprint("m", i), Role: db.RoleUser, Content: "old", Visibility: db.Visible})
	}
	if _, err := appendTo(d, run, old...); err != nil {
		t.Fatal(err)
	}
	run = begin(t, d, scopeOf("acme"), "c", "r1")
	if err := d.RotateKeys(ctx, "acme", "ada"); err != nil {
		t.Fatal(err)
	}
	owner := dbtest.Owner(t, url)
	for _, want := range []int{16, 32, 40, 40} {
		if _, err := loadStep(d, run, 0); err != nil {
			t.Fatal(err)
		}
		var stale, all int
		err := owner.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE substring(content FROM 1 FOR 5) =
			(SELECT substring(content FROM 1 FOR 5) FROM message WHERE id = 'm0')) FROM message`).Scan(&all, &stale)
		if want == 40 {
			stale = 0
		}
		if err != nil || all-stale != want {
			t.Errorf("%d of %d are fresh, want %d, %v", all-stale, all, want, err)
		}
	}
}

func TestDestroyKeys(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	warm := dbtest.Open(t, url, db.Options{})
	bob := scopeOf("acme")
	bob.User = "bob"
	ada, other, twin := secrets(t, d, scopeOf("acme"), "c", "r1"), secrets(t, d, bob, "d", "r2"), secrets(t, d, scopeOf("umbrella"), "c", "r1")
	wantWhole(t, warm, ada)
	if _, err := warm.Keys(ctx, vault.Owner{Tenant: "acme", Subject: "ada"}); err != nil {
		t.Fatal(err)
	}
	if err := d.DestroyKeys(ctx, "acme", "ada", "olga"); !errors.Is(err, db.ErrConflict) || errors.Is(err, db.ErrUnsettledWrites) {
		t.Fatalf("while a run is open: %v", err)
	}
	wantWhole(t, warm, ada)
	if err := endRun(d, ada); err != nil {
		t.Fatal(err)
	}
	var refused *db.Error
	if err := d.DestroyKeys(ctx, "acme", "ada", ""); err == nil || errors.As(err, &refused) {
		t.Fatalf("destroyed by nobody: %v", err)
	}
	wantWhole(t, warm, ada)
	for range 2 {
		if err := d.DestroyKeys(ctx, "acme", "ada", "olga"); err != nil {
			t.Fatal(err)
		}
	}
	for _, process := range []*db.DB{warm, d, dbtest.Open(t, url, db.Options{})} {
		wantNothing(t, process, ada, db.ErrKeysDestroyed)
		wantWhole(t, process, other)
		wantWhole(t, process, twin)
		// What is no content can still be seen.
		report, err := process.ShowRun(ctx, agent.Scope{Tenant: "acme"}, "r1")
		if err != nil || !report.Erased || report.Answer != "" || report.Writes[0].SettledNote != "" || report.Run.Status != agent.StatusFailed {
			t.Errorf("report %+v, %v", report, err)
		}
		_, err = appendTo(process, ada, db.Message{ID: "late", Role: db.RoleUser, Content: "late", Visibility: db.Visible})
		if !errors.Is(err, db.ErrKeysDestroyed) {
			t.Errorf("append: %v", err)
		}
	}
	for i, keys := range []func(context.Context, vault.Owner) (*vault.Keys, error){d.Keys, d.FreshKeys, d.LookUpKeys} {
		if _, err := keys(ctx, vault.Owner{Tenant: "acme", Subject: "ada"}); !errors.Is(err, db.ErrKeysDestroyed) {
			t.Errorf("keys, way %d: %v", i, err)
		}
	}
	if err := d.RotateKeys(ctx, "acme", "ada"); !errors.Is(err, db.ErrKeysDestroyed) {
		t.Errorf("rotate: %v", err)
	}
	if err := d.DestroyKeys(ctx, "acme", "nobody", "olga"); !errors.Is(err, db.ErrNotFound) {
		t.Errorf("without keys: %v", err)
	}
	// Nobody brings them back, and somebody did it.
	owner := dbtest.Owner(t, url)
	if _, err := owner.Exec(ctx, "UPDATE subject_key SET data = NULL, hash = NULL, destroyed_at = now() WHERE subject = 'bob'"); err == nil || !strings.Contains(err.Error(), "subject_key_destroyed_check") {
		t.Errorf("destroyed by nobody: %v", err)
	}
	_, err := owner.Exec(ctx, "UPDATE subject_key k SET data = o.data, hash = o.hash, destroyed_at = NULL, destroyed_by = '' FROM subject_key o WHERE k.subject = 'ada' AND k.tenant = 'acme' AND o.subject = 'bob'")
	if err == nil || !strings.Contains(err.Error(), "FL003") {
		t.Errorf("brought back: %v", err)
	}
	var by string
	if err := owner.QueryRow(ctx, "SELECT destroyed_by FROM subject_key WHERE tenant = 'acme' AND subject = 'ada' AND data IS NULL").Scan(&by); err != nil || by != "olga" {
		t.Errorf("by %q, %v", by, err)
	}
}

// endRun closes a run as failed.
func endRun(d *db.DB, run db.Run) error {
	return d.InTx(ctx, run.Scope, func(tx *db.Tx) error {
		state, err := tx.CloseRun(ctx, run.ID, "none", 1)
		if err != nil {
			return err
		}
		return tx.MoveRun(state.Run, db.Move{To: agent.StatusFailed, Reason: agent.ReasonInternal})
	})
}

// TestDestructionWaits destroys keys while a transaction that uses them opens a
// run: the destruction waits for it, and finds the run.
func TestDestructionWaits(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	run := begin(t, d, scopeOf("acme"), "c", "r0")
	if err := endRun(d, run); err != nil {
		t.Fatal(err)
	}
	destroyed := make(chan error, 1)
	err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) error {
		state, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: "c", RunID: "r1", Day: db.Day(time.Now())})
		if err != nil {
			return err
		}
		go func() { destroyed <- d.DestroyKeys(ctx, "acme", "ada", "olga") }()
		if err := waitFor(owner, "advisory", destroyed); err != nil {
			return err
		}
		tx.AppendMessage(&state.Conversation, db.Message{ID: "q1", Role: db.RoleUser, Content: "again", Visibility: db.Visible, RunID: "r1"}, true)
		run.ID, run.QuestionID, run.Generation = "r1", "q1", state.Conversation.Generation
		tx.InsertRun(run)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-destroyed; !errors.Is(err, db.ErrConflict) {
		t.Fatalf("destroyed under an open run: %v", err)
	}
}

// waitFor waits until a session waits for a lock of that kind. It is an error if
// done says something before.
func waitFor[T any](owner *pgxpool.Pool, event string, done chan T) error {
	for waiting := 0; waiting == 0; {
		query := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = $1"
		if err := owner.QueryRow(ctx, query, event).Scan(&waiting); err != nil {
			return err
		}
		if len(done) > 0 {
			return errors.New("it did not wait")
		}
	}
	return nil
}

// TestKeyEncryptionKey rotates it, and opens with a wrong one and with none.
func TestKeyEncryptionKey(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	run := secrets(t, d, scopeOf("acme"), "c", "r1")
	deployment := vault.Owner{}
	keys, err := d.Keys(ctx, deployment)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := keys.Seal([]byte("x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	wrapped := func() (all []byte) {
		t.Helper()
		if err := owner.QueryRow(ctx, "SELECT s.data || d.data FROM subject_key s, deployment_key d").Scan(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := wrapped()

	added, err := vault.RotateLocal(dbtest.EncryptionKey(t))
	if err != nil {
		t.Fatal(err)
	}
	both := dbtest.Open(t, url, db.Options{KeyEncryption: kekOf(t, added)})
	if wantWhole(t, both, run); string(wrapped()) != string(before) {
		t.Error("wrapped under a key that not all programs have yet")
	}
	newer, err := vault.PromoteLocal(added)
	if err != nil {
		t.Fatal(err)
	}
	rotated := dbtest.Open(t, url, db.Options{KeyEncryption: kekOf(t, newer)})
	wantWhole(t, rotated, run)
	if keys, err = rotated.Keys(ctx, deployment); err != nil {
		t.Fatal(err)
	}
	if content, err := keys.Open(sealed, nil); err != nil || string(content) != "x" {
		t.Errorf("the deployment's keys changed: %v", err)
	}
	after := wrapped()
	if string(after) == string(before) {
		t.Error("keys are still wrapped under the older key-encryption key")
	}
	// Those who have both read on, from memory or not; wrapped anew once is
	// enough.
	wantWhole(t, both, run)
	wantWhole(t, dbtest.Open(t, url, db.Options{KeyEncryption: kekOf(t, added)}), run)
	wantWhole(t, dbtest.Open(t, url, db.Options{KeyEncryption: kekOf(t, newer)}), run)
	if string(wrapped()) != string(after) {
		t.Error("wrapped anew without a reason")
	}

	wrong, err := vault.GenerateLocal()
	if err != nil {
		t.Fatal(err)
	}
	wantNothing(t, dbtest.Open(t, url, db.Options{KeyEncryption: kekOf(t, wrong)}), run, vault.ErrWrapped)
}

func kekOf(t testing.TB, text string) tink.AEAD {
	t.Helper()
	kek, err := vault.Local(text)
	if err != nil {
		t.Fatal(err)
	}
	return kek
}

// TestNoVault reads and ends a run without keys.
func TestNoVault(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	run := secrets(t, d, scopeOf("acme"), "c", "r1")
	bare, err := db.Open(ctx, url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bare.Close)
	wantNothing(t, bare, run, db.ErrNoVault)
	if list, err := bare.ListRuns(ctx, db.RunFilter{Tenant: "acme"}); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	report, err := bare.Progress(ctx, run.Scope, "r1", 0)
	if err != nil || len(report.Calls()) != 3 || report.Calls()[0].ResultBytes != int64(len(canary+" result")) || report.Calls()[0].EnvelopeBytes != int64(len(canary+" shown")) {
		t.Errorf("%+v, %v", report.Calls(), err)
	}
	if string(report.Attempts()[0].Prompt) != `{"input": 5}` {
		t.Errorf("prompt %s", report.Attempts()[0].Prompt)
	}
	if err := endRun(bare, run); err != nil {
		t.Errorf("end: %v", err)
	}
	if _, err := bare.Keys(ctx, vault.Owner{}); !errors.Is(err, db.ErrNoVault) {
		t.Errorf("keys: %v", err)
	}
	_, err1 := d.Keys(ctx, vault.Owner{Tenant: "acme"})
	_, err2 := d.Keys(ctx, vault.Owner{Subject: "ada"})
	if !errors.Is(err1, db.ErrScope) || !errors.Is(err2, db.ErrScope) {
		t.Errorf("half an owner: %v, %v", err1, err2)
	}
}

// TestKeysAreMadeOnce asks for the keys of a new subject from all sides.
func TestKeysAreMadeOnce(t *testing.T) {
	t.Parallel()
	_, url := dbtest.NewWithURL(t)
	for _, o := range []vault.Owner{{}, {Tenant: "acme", Subject: "ada"}} {
		values := make(chan []byte, 8)
		for range 8 {
			d := dbtest.Open(t, url, db.Options{MaxConns: 1})
			go func() {
				sealed := []byte(nil)
				if keys, err := d.Keys(ctx, o); err != nil {
					t.Error(err)
				} else if sealed, err = keys.Seal([]byte("x"), nil); err != nil {
					t.Error(err)
				}
				values <- sealed
			}()
		}
		keys, err := dbtest.Open(t, url, db.Options{}).Keys(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			if content, err := keys.Open(<-values, nil); err != nil || string(content) != "x" {
				t.Errorf("%v: other keys, %v", o, err)
			}
		}
	}
}
