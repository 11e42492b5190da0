package activities_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

// forever looks at every step, so that any number of steps can be taken.
func forever() scripted.Turn {
	return scripted.Turn{Calls: []scripted.Call{{Name: "look", Arguments: `{"at":"here"}`}}, Usage: &model.Usage{InputTokens: 100, OutputTokens: 10}}
}

// BenchmarkActivities reports what each activity costs with a model and a tool
// that answer at once: the database, in other words. p50-us is the median, which
// a noisy machine disturbs less than the mean.
func BenchmarkActivities(bench *testing.B) {
	always := scripted.RepeatLast(forever())
	for _, c := range []struct {
		name   string
		script scripted.Script
		// arrange returns what is measured.
		arrange func(b *bundle) func()
	}{
		{"BeginRun", nil, func(b *bundle) func() {
			req := request()
			return func() { b.begin(req) }
		}},
		{"NextAction/step0", always, func(b *bundle) func() {
			g := b.start()
			return func() { b.act(g.next(0, 0)) }
		}},
		{"NextAction/step40", always, func(b *bundle) func() {
			g := b.start()
			for step := range 40 {
				b.observe(g.read(step, b.act(g.next(step, 0)).Calls[0]))
			}
			return func() { b.act(g.next(40, 0)) }
		}},
		{"NextAction/final", nil, func(b *bundle) func() {
			g := b.start()
			return func() { b.act(g.next(0, 0)) }
		}},
		{"ReadTool", always, func(b *bundle) func() {
			g := b.start()
			call := b.act(g.next(0, 0)).Calls[0]
			return func() { b.observe(g.read(0, call)) }
		}},
		{"EndRun", nil, func(b *bundle) func() {
			g := b.start()
			answer := b.act(g.next(0, 0)).AnswerMessageID
			return func() { b.finish(g, agent.ReasonFinal, 1, answer) }
		}},
	} {
		bench.Run(c.name, func(bench *testing.B) {
			b := setup(bench, options{script: c.script})
			var took []time.Duration
			for bench.Loop() {
				bench.StopTimer()
				measured := c.arrange(b)
				bench.StartTimer()
				began := time.Now()
				measured()
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			bench.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
		})
	}
}
