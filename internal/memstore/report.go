package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// ShowRun is db.DB.ShowRun.
func (s *Store) ShowRun(ctx context.Context, scope agent.Scope, runID string) (report db.RunReport, err error) {
	if scope.Tenant == "" {
		return report, wrap("show run", db.ErrScope)
	}
	release, err := s.hold(ctx)
	if err != nil {
		return report, wrap("show run", err)
	}
	defer release()
	report, err = s.data.report(scope, runID)
	return report, wrap("show run", err)
}

func (d *data) report(scope agent.Scope, runID string) (db.RunReport, error) {
	run, ok := d.run(scope.Tenant, runID)
	if !ok {
		return db.RunReport{}, missing
	}
	if scope.User != "" && run.Scope.User != scope.User || scope.Environment != "" && run.Scope.Environment != scope.Environment {
		return db.RunReport{}, db.ErrNotFound
	}
	key := runKey{scope.Tenant, runID}
	report := db.RunReport{Run: run, Totals: d.totals(key)}
	for at, t := range d.transitions.rows {
		if at.runKey == key {
			report.Transitions = append(report.Transitions, t)
		}
	}
	slices.SortFunc(report.Transitions, func(a, b db.Transition) int { return cmp.Compare(a.Seq, b.Seq) })
	report.Steps = d.steps(key)
	for at, p := range d.plans.rows {
		if at.runKey == key {
			p.Summary, p.Nonce = "", ""
			report.Plans = append(report.Plans, p)
		}
	}
	slices.SortFunc(report.Plans, func(a, b db.WritePlan) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.CallID, b.CallID), cmp.Compare(a.Revision, b.Revision))
	})
	for at, i := range d.intents.rows {
		if at.tenant == key.tenant && i.RunID == runID {
			report.Writes = append(report.Writes, i)
		}
	}
	slices.SortFunc(report.Writes, func(a, b db.WriteIntent) int {
		return cmp.Or(a.RecordedAt.Compare(b.RecordedAt), cmp.Compare(a.CallID, b.CallID))
	})
	for n := range len(d.refusals.rows) {
		if r := d.refusals.rows[n]; r.runKey == key {
			report.Refusals = append(report.Refusals, r.Refusal)
		}
	}
	if answer, ok := d.messages.get(namedKey{key.tenant, run.AnswerID}); ok {
		report.Answer = answer.Content
	}
	return report, nil
}

func (d *data) steps(key runKey) (list []db.StepReport) {
	steps := make(map[int]*db.StepReport)
	step := func(number int) *db.StepReport {
		if steps[number] == nil {
			steps[number] = &db.StepReport{Step: number}
		}
		return steps[number]
	}
	for at, row := range d.attempts.rows {
		if at.runKey == key {
			s := step(at.step)
			s.Attempts = append(s.Attempts, d.attempt(at, row))
		}
	}
	for at, c := range d.calls.rows {
		if at.runKey == key {
			content, _ := d.results.get(at)
			s := step(c.Step)
			s.Calls = append(s.Calls, c.report(len(content)))
		}
	}
	for _, number := range slices.Sorted(maps.Keys(steps)) {
		s := steps[number]
		slices.SortFunc(s.Attempts, func(a, b db.Attempt) int { return cmp.Compare(a.Number, b.Number) })
		slices.SortFunc(s.Calls, func(a, b db.CallReport) int { return cmp.Compare(a.Index, b.Index) })
		list = append(list, *s)
	}
	return list
}
