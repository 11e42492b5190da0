package activities_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
)

// TestLTM5DueWhateverTheEmbedder: an embedder that gives what it does not promise
// keeps reconciliation from nothing that is due.
func TestLTM5DueWhateverTheEmbedder(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.embed.set(func([]string) ([][]float32, error) { return [][]float32{make([]float32, 1536)}, nil })
	m.write(corrected("profile.home_city", `"Berlin"`)) // stored without a vector
	in := corrected("profile.role", `"engineer"`)
	if _, err := m.runs.ProposeMemory(m.ctx, in); err != nil {
		t.Fatal(err)
	}
	lesson := m.say(liking)
	m.exec("INSERT INTO memory_erasure (tenant, id, kind, user_id, requested_by, requested_at) VALUES ('acme', 'e1', 'subject', 'zed', 'olga', now() - interval '1 day')")
	m.exec("UPDATE memory_candidate SET updated_at = updated_at - interval '3 days'")
	m.exec("UPDATE memory_lesson SET updated_at = updated_at - interval '3 days'")
	report, err := m.runs.Reconcile(m.ctx, agent.ReconcileInput{})
	if err != nil || len(report.Writes) != 1 || report.Writes[0].ID != in.ID || len(report.Lessons) != 1 || report.Lessons[0].Run.RunID != lesson.Run.RunID || len(report.Erasures) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestLTM6RefusedTextsHoldUpNobody: however many texts an embedder refuses, what lies
// behind them gets its vectors before the new embedder serves.
func TestLTM6RefusedTextsHoldUpNobody(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	for i := range 130 {
		m.write(corrected("preference.food", fmt.Sprintf(`{"item":"dish %d, refused","sentiment":"likes"}`, i)))
	}
	for i := range 10 {
		m.write(corrected("preference.food", fmt.Sprintf(`{"item":"dish %d","sentiment":"likes"}`, i)))
	}
	large := newEmbedder(t, "large", 128)
	large.set(func(texts []string) ([][]float32, error) {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "refused") }) {
			return nil, &model.Error{Kind: model.KindContentPolicy}
		}
		return nil, nil
	})
	m.runs = m.restart(func(c *activities.Config) { c.Embedders = []model.Embedder{large, m.embed} })
	done := false
	for range 12 {
		out, err := m.runs.Reindex(m.ctx, agent.ReindexInput{Embedder: "large"})
		if err != nil {
			t.Fatal(err)
		}
		if done = out.Done; done {
			break
		}
	}
	if n := m.number("SELECT count(*) FROM memory_vector"); !done || n != 10 {
		t.Errorf("done %t, %d vectors, want 10", done, n)
	}
}

// entangled is a memory whose requests meet a deadlock.
type entangled struct{ activities.Memory }

var deadlock = &db.Error{Kind: db.ErrConflict, Code: "40P01"}

func (entangled) ForgetMemory(context.Context, agent.ForgetInput, int) (agent.ErasureStep, error) {
	return agent.ErasureStep{}, deadlock
}

func (entangled) EraseSubject(context.Context, agent.EraseInput, int) (agent.ErasureStep, error) {
	return agent.ErasureStep{}, deadlock
}

func (entangled) ProposeMemory(context.Context, db.MemoryCandidate) (db.MemoryCandidate, error) {
	return db.MemoryCandidate{}, deadlock
}

// TestERASE2ConflictsPass: a conflict that passes is no other request with the same ID.
func TestERASE2ConflictsPass(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	verdict := m.write(corrected("profile.home_city", `"Berlin"`))
	role := m.write(corrected("profile.role", `"engineer"`))
	m.forget(agent.ForgetInput{ID: "f1", Room: adasRoom, Record: role.Record, By: "ada"})
	_, err := m.runs.Forget(m.ctx, agent.ForgetInput{ID: "f1", Room: adasRoom, By: "ada"})
	refusedAs(t, err, agent.ErrorMemoryConflict)
	runs := m.restart(func(c *activities.Config) { c.Memory = entangled{m.memory} })
	_, forget := runs.Forget(m.ctx, agent.ForgetInput{ID: "f2", Room: adasRoom, Record: verdict.Record, By: "ada"})
	_, erase := runs.Erase(m.ctx, agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "ada"})
	_, propose := runs.ProposeMemory(m.ctx, corrected("profile.home_city", `"Paris"`))
	for what, err := range map[string]error{"forget": forget, "erase": erase, "propose": propose} {
		if !retried(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestERASE2WithoutMemory: an erasure in a tenant that has no memory goes on by itself.
func TestERASE2WithoutMemory(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.begin(request())
	step, err := m.runs.Erase(m.ctx, agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "ada"})
	if err != nil || step.Blocked == "" {
		t.Fatalf("%+v, %v", step, err)
	}
	m.later(24 * time.Hour)
	if report := m.reconcile(); len(report.Erasures) != 1 || report.Erasures[0].User != "ada" {
		t.Errorf("%+v", report)
	}
}
