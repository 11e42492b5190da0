package activities_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/model"
)

// forget repeats Forget, each time on another worker, until it is done.
func (m *memoryBundle) forget(in agent.ForgetInput) agent.ErasureReceipt {
	m.Helper()
	for range 20 {
		step, err := m.restart(nil).Forget(m.ctx, in)
		if err != nil {
			m.Fatal(err)
		}
		if step.Done {
			return step.Receipt
		}
	}
	m.Fatal("it does not end")
	return agent.ErasureReceipt{}
}

// tables are all that hold anything of a memory.
var tables = []string{"memory_candidate", "memory_record", "memory_keyword", "memory_vector", "memory_audit", "memory_erasure", "memory_lesson"}

// TestERASE2ForgetOne: one record is a tombstone, nothing is found by it, and
// others stay; done again it gives the same receipt.
func TestERASE2ForgetOne(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	gone := m.write(corrected("preference.food", `{"item":"sushi","sentiment":"likes"}`))
	m.write(corrected("preference.food", `{"item":"sushi","sentiment":"dislikes"}`))
	m.write(corrected("profile.home_city", `"Berlin"`))
	in := agent.ForgetInput{ID: "forget-1", Room: adasRoom, Record: gone.Record, By: "ada"}
	first := m.forget(in)
	if first.Records != 1 || first.Versions != 2 || first.By != "ada" || first.KeysDestroyed || first.At.IsZero() {
		t.Errorf("receipt %+v", first)
	}
	if again := m.forget(in); again != first {
		t.Errorf("receipt, again: %+v", again)
	}
	if n := m.number("SELECT count(*) FROM memory_record WHERE id = $1 AND (value IS NOT NULL OR evidence IS NOT NULL)", gone.Record); n != 0 {
		t.Errorf("%d versions have content", n)
	}
	if n := m.number("SELECT (SELECT count(*) FROM memory_keyword WHERE record_id = $1) + (SELECT count(*) FROM memory_vector WHERE record_id = $1)", gone.Record); n != 0 {
		t.Errorf("it is found in %d ways", n)
	}
	if got := m.values("profile.home_city", false); got != `"Berlin"` {
		t.Errorf("the other one: %s", got)
	}
	in.ID, in.Record = "forget-2", "nothing"
	_, err := m.runs.Forget(m.ctx, in)
	refusedAs(t, err, agent.ErrorMemoryMissing)
	// Somebody else's is not there.
	in = agent.ForgetInput{ID: "forget-3", Room: adasRoom, Record: gone.Record, By: "bob"}
	in.Room.Scope.User = "bob"
	_, err = m.runs.Forget(m.ctx, in)
	refusedAs(t, err, agent.ErrorMemoryMissing)
	in = agent.ForgetInput{ID: "forget-1", Room: adasRoom, By: "ada"}
	_, err = m.runs.Forget(m.ctx, in)
	refusedAs(t, err, agent.ErrorMemoryConflict)
}

// TestERASE2ForgottenWhileWaiting: what waits for its user is gone too, and its
// write ends.
func TestERASE2ForgottenWhileWaiting(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	id := m.wished()
	token := m.approve("ada", id)
	m.forget(agent.ForgetInput{ID: "forget-all", Room: adasRoom, By: "ada"})
	out, err := m.runs.SettleMemory(m.ctx, agent.SettleMemoryInput{ID: id, Room: adasRoom, Token: token})
	if err == nil && (out.State == agent.MemoryStored || !out.State.Final()) {
		t.Errorf("settled %+v", out)
	}
	if n := m.number("SELECT count(*) FROM memory_candidate WHERE content IS NOT NULL"); n != 0 {
		t.Errorf("%d candidates have content", n)
	}
	if n := m.number("SELECT count(*) FROM memory_record WHERE status = 'active'"); n != 0 {
		t.Errorf("%d records are in force", n)
	}
}

// TestERASE2Erase: it waits for an open run, then everything and the keys go; from
// then on nothing is remembered of the user.
func TestERASE2Erase(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.write(corrected("profile.home_city", `"Berlin"`))
	waiting := m.wished()
	open := begun{req: request()}
	open.out = m.begin(open.req)
	in := agent.EraseInput{ID: "erase-1", Tenant: "acme", User: "ada", By: "olga"}
	var blocked agent.ErasureStep
	for range 20 {
		step, err := m.runs.Erase(m.ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		if blocked = step; step.Blocked != "" || step.Done {
			break
		}
	}
	if blocked.Blocked != "open_run" || blocked.Done {
		t.Fatalf("step %+v", blocked)
	}
	m.finish(open, agent.ReasonCanceled, 0, "")
	done, err := m.restart(nil).Erase(m.ctx, in)
	if err != nil || !done.Done || !done.Receipt.KeysDestroyed || done.Receipt.Records != 1 || done.Receipt.Candidates == 0 || done.Receipt.By != "olga" {
		t.Fatalf("step %+v, %v", done, err)
	}
	if again, err := m.runs.Erase(m.ctx, in); err != nil || again != done {
		t.Errorf("again: %+v, %v", again, err)
	}
	for _, table := range tables {
		if n := m.number("SELECT count(*) FROM " + table + " x WHERE to_jsonb(x)::text ~ '(Berlin|from now on|" + canary + ")'"); n != 0 {
			t.Errorf("%s shows content", table)
		}
	}
	if n := m.number(`SELECT (SELECT count(*) FROM memory_keyword) + (SELECT count(*) FROM memory_vector)
		+ (SELECT count(*) FROM memory_record WHERE value IS NOT NULL) + (SELECT count(*) FROM memory_candidate WHERE content IS NOT NULL)`); n != 0 {
		t.Errorf("%d pieces are left", n)
	}
	_, err = m.runs.ProposeMemory(m.ctx, corrected("profile.home_city", `"Berlin"`))
	refusedAs(t, err, agent.ErrorMemoryMissing)
	_, err = m.runs.JudgeMemory(m.ctx, agent.MemoryWriteInput{ID: waiting, Room: adasRoom})
	refusedAs(t, err, agent.ErrorMemoryMissing)
	_, err = m.runs.SettleMemory(m.ctx, agent.SettleMemoryInput{ID: waiting, Room: adasRoom})
	refusedAs(t, err, agent.ErrorMemoryMissing)
}

// TestLTM5ReconcileStartsWhatIsDue: proposals that nobody judged and lessons that
// nobody learned are listed once they are stale, each once.
func TestLTM5ReconcileListsWhatIsDue(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	in := corrected("profile.home_city", `"Berlin"`)
	if _, err := m.runs.ProposeMemory(m.ctx, in); err != nil {
		t.Fatal(err)
	}
	lesson := m.say(liking)
	m.later(9 * time.Minute)
	report := m.reconcile()
	if len(report.Writes) != 0 || len(report.Lessons) != 0 || report.Tenants != 1 {
		t.Errorf("they may be under way: %+v", report)
	}
	m.later(2 * time.Minute)
	report = m.reconcile()
	want := agent.MemoryWriteInput{ID: in.ID, Room: adasRoom}
	if len(report.Writes) != 1 || report.Writes[0] != want || len(report.Lessons) != 1 || report.Lessons[0] != lesson {
		t.Errorf("later: %+v, want %+v and %+v", report, want, lesson)
	}
	if v := m.judge(in.ID); v.State != agent.MemoryStored {
		t.Errorf("verdict %+v", v)
	}
	m.learn(lesson)
	m.later(24 * time.Hour)
	if report = m.reconcile(); len(report.Writes) != 0 || len(report.Lessons) != 0 {
		t.Errorf("done: %+v", report)
	}
}

func (m *memoryBundle) reconcile() agent.ReconcileReport {
	m.Helper()
	report, err := m.runs.Reconcile(m.ctx, agent.ReconcileInput{})
	if err != nil {
		m.Fatal(err)
	}
	return report
}

// TestERASE2Residue: what was planted by hand is found and repaired.
func TestERASE2Residue(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	v := m.write(corrected("profile.home_city", `"Berlin"`))
	m.exec("CREATE TABLE kept AS SELECT * FROM memory_keyword")
	m.forget(agent.ForgetInput{ID: "forget-1", Room: adasRoom, Record: v.Record, By: "ada"})
	var columns string
	if err := m.owner.QueryRow(m.ctx, `SELECT string_agg(column_name, ', ') FROM information_schema.columns
		WHERE table_name = 'memory_keyword' AND is_generated = 'NEVER' AND is_identity = 'NO'`).Scan(&columns); err != nil {
		t.Fatal(err)
	}
	m.exec("INSERT INTO memory_keyword (" + columns + ") SELECT " + columns + " FROM kept")
	if report := m.reconcile(); report.Residue != 1 {
		t.Errorf("report %+v", report)
	}
	if n := m.number("SELECT count(*) FROM memory_keyword"); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// TestLTM7MissingVectors: what was stored without a vector gets one when the
// embedder is back.
func TestLTM7MissingVectors(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.embed.set(func([]string) ([][]float32, error) { return nil, &model.Error{Kind: model.KindUnavailable} })
	m.write(corrected("profile.home_city", `"Berlin"`))
	m.write(corrected("profile.role", `"engineer"`))
	if report := m.reconcile(); report.Missing != 0 {
		t.Errorf("while it is down: %+v", report)
	}
	m.embed.set(nil)
	if report := m.reconcile(); report.Missing != 2 {
		t.Errorf("when it is back: %+v", report)
	}
	if n := m.number("SELECT count(*) FROM memory_vector"); n != 2 {
		t.Errorf("%d vectors", n)
	}
	if report := m.reconcile(); report.Missing != 0 {
		t.Errorf("afterwards: %+v", report)
	}
}

// vectors says of which embedders there are how many vectors.
func (m *memoryBundle) vectors() string {
	m.Helper()
	rows, err := m.owner.Query(m.ctx, `SELECT e.name || ' ' || e.status || ' ' || count(v.record_id)
		FROM memory_embedder e LEFT JOIN memory_vector v ON v.embedder_id = e.id GROUP BY e.id, e.name, e.status ORDER BY e.id`)
	if err != nil {
		m.Fatal(err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			m.Fatal(err)
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// TestLTM6ChangedEmbedder: the vectors of another embedder are built while the old
// ones serve, and then take their place.
func TestLTM6ChangedEmbedder(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	for i := range 130 {
		m.write(corrected("preference.food", fmt.Sprintf(`{"item":"dish %d","sentiment":"likes"}`, i)))
	}
	large := newEmbedder(t, "large", 128)
	runs := m.restart(func(c *activities.Config) { c.Embedders = []model.Embedder{large, m.embed} })
	m.runs = runs
	if building, err := runs.Building(m.ctx); err != nil || building != "large" {
		t.Fatalf("building %q, %v", building, err)
	}
	m.write(corrected("profile.home_city", `"Berlin"`))
	if got := m.vectors(); got != "small serving 131, large building 0" {
		t.Errorf("vectors: %s", got)
	}
	if report := m.reconcile(); report.Reindex != "large" || report.Missing != 0 {
		t.Errorf("report %+v", report)
	}
	var total, pieces int
	for done := false; !done && pieces < 20; pieces++ {
		out, err := m.restart(nil).Reindex(m.ctx, agent.ReindexInput{Embedder: "large"})
		if err != nil {
			t.Fatal(err)
		}
		total += out.Embedded
		done = out.Done
	}
	if total != 131 {
		t.Errorf("%d vectors in %d pieces", total, pieces)
	}
	if got := m.vectors(); !strings.Contains(got, "large serving 131") || strings.Contains(got, "small serving") || !strings.Contains(got, " 0") {
		t.Errorf("vectors: %s", got)
	}
	if building, err := runs.Building(m.ctx); err != nil || building != "" {
		t.Errorf("still building %q, %v", building, err)
	}
}

// TestLTM6RefusedText: a text that the embedder refuses does not hold up the
// others.
func TestLTM6RefusedText(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.write(corrected("profile.home_city", `"Berlin"`))
	m.write(corrected("profile.role", `"engineer"`))
	large := newEmbedder(t, "large", 128)
	large.set(func(texts []string) ([][]float32, error) {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "Berlin") }) {
			return nil, &model.Error{Kind: model.KindContentPolicy}
		}
		return nil, nil
	})
	m.runs = m.restart(func(c *activities.Config) { c.Embedders = []model.Embedder{large, m.embed} })
	out, err := m.runs.Reindex(m.ctx, agent.ReindexInput{Embedder: "large"})
	if err != nil || out != (agent.ReindexOutput{Embedded: 1, Failed: 1, Done: true}) {
		t.Errorf("out %+v, %v", out, err)
	}
}

// TestLTM6WrongVectors: an embedder that changes its dimension is a clear error,
// and nothing of it is stored; one that is down is tried again.
func TestLTM6WrongVectors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer [][]float32
		err    error
		again  bool
		says   string
	}{
		"another dimension":   {[][]float32{make([]float32, 1536)}, nil, false, "1536 dimensions instead of 128"},
		"another, by adapter": {nil, &model.Error{Kind: model.KindMalformed}, false, "another dimension"},
		"down":                {nil, &model.Error{Kind: model.KindUnavailable, Err: errors.New(canary)}, true, "the embedder failed"},
		"rate limited":        {nil, &model.Error{Kind: model.KindRateLimited}, true, "the embedder failed"},
		"no rights":           {nil, &model.Error{Kind: model.KindAuthentication}, true, "the embedder failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := setupMemory(t, nil)
			m.write(corrected("profile.home_city", `"Berlin"`))
			large := newEmbedder(t, "large", 128)
			large.set(func([]string) ([][]float32, error) { return test.answer, test.err })
			m.runs = m.restart(func(c *activities.Config) { c.Embedders = []model.Embedder{large, m.embed} })
			_, err := m.runs.Reindex(m.ctx, agent.ReindexInput{Embedder: "large"})
			if err == nil || retried(err) != test.again || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), canary) {
				t.Errorf("error %v", err)
			}
			var typed *temporal.ApplicationError
			if !test.again && (!errors.As(err, &typed) || typed.Type() != "Embedder") {
				t.Errorf("error %v", err)
			}
			if got := m.vectors(); got != "small serving 1, large building 0" {
				t.Errorf("vectors: %s", got)
			}
		})
	}
}

// TestLTM6AnotherWorkersEmbedder: a worker with another embedder leaves the
// re-index to those that have it.
func TestLTM6AnotherWorkersEmbedder(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	if _, err := m.runs.Reindex(m.ctx, agent.ReindexInput{Embedder: "large"}); err == nil || !retried(err) {
		t.Errorf("error %v", err)
	}
}
