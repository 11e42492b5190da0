package main

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

func TestTraceAnswersFirst(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*db.MemoryRecord)
		want   string
	}{
		"said":      {func(*db.MemoryRecord) {}, `Remembered because user ann said "use production" on 2026-11-30 12:00:02, let in by the policy, which asked nobody; given to 1 run since.`},
		"confirmed": {func(r *db.MemoryRecord) { r.DecidedBy, r.Validation = "ann", agent.MemoryUserConfirmed }, "on 2026-11-30 12:00:02, confirmed by ann; given"},
		"reviewed":  {func(r *db.MemoryRecord) { r.DecidedBy, r.Validation = "olga", agent.MemoryReviewed }, ", let in by reviewer olga; given"},
		"entered":   {func(r *db.MemoryRecord) { r.SourceType = agent.SourceUserCorrection }, "because user ann entered it on 2026-11-30 12:00:02, "},
		"a tool":    {func(r *db.MemoryRecord) { r.SourceType, r.SourceID = agent.SourceTrustedTool, "call-1" }, "because a tool said so (call-1) on "},
		"unread":    {func(r *db.MemoryRecord) { r.Evidence = db.MemoryEvidence{} }, "because user ann said so, in words that are not to be read here, on "},
		"ended":     {func(r *db.MemoryRecord) { r.Status, r.EndedBy = db.MemoryRetracted, "user:ann" }, "given to 1 run since. It is not in force any more (retracted by user:ann)."},
		"spoofing":  {func(r *db.MemoryRecord) { r.Evidence.Quote = "x\" on Monday, confirmed by olga\n" + hostile }, `said "x' on Monday, confirmed by olga \u001b[31mred\u009b2J \u202eevil\u0007" on 2026`},
	} {
		r := environmentMemory()
		r.Evidence.Quote = "use production"
		test.change(&r)
		c := remembering()
		c.memories.traces["m-1"] = db.MemoryTrace{Versions: []db.MemoryRecord{r}, Influences: []db.MemoryInfluence{{RunID: "run-5", Record: "m-1", Version: 2}}}
		o := c.invoke(t.Context(), "memory", "trace", "m-1", "--tenant", "acme")
		first, _, _ := strings.Cut(o.out, "\n")
		if o.code != exitOK || !strings.HasPrefix(first, "Remembered because ") || !strings.Contains(first, test.want) {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestTraceOfRepeats: what was said again three times repeats its rules only when
// that is asked for, and the trail says on whose word a version was replaced.
func TestTraceOfRepeats(t *testing.T) {
	t.Parallel()
	tracing := func(args ...string) string {
		c := remembering()
		trace := traceOf(versionsOfEnvironment()...)
		for _, id := range []string{"p-20", "p-21", "p-22"} {
			merged := decided(agent.MemoryMerged, "m-1", 2)
			merged.ID, merged.Writer, merged.SourceType = id, "user:dana", agent.SourceUserCorrection
			trace.Candidates = append(trace.Candidates, merged)
		}
		trace.Audit = []db.MemoryAudit{
			{At: at(2000), Actor: "fairlead", Action: "replace", Candidate: "p-20", Record: "m-1", Version: 2, Detail: "admitted mode.immediate"},
			{At: at(3000), Actor: "ann", Action: "refuse_decision", Candidate: "p-21", Detail: "expired"},
			{At: at(4000), Actor: "ann", Action: "forgotten", Record: "m-1", Detail: "request=e-1 records=1 versions=2"},
		}
		c.memories.traces["m-1"] = trace
		o := c.invoke(t.Context(), append([]string{"memory", "trace", "m-1", "--tenant", "acme"}, args...)...)
		if o.code != exitOK {
			t.Errorf("%+v", o)
		}
		return o.out
	}
	short, long := tracing(), tracing("--rules")
	if got := strings.Count(short, "it is stored at once"); got != 1 {
		t.Errorf("the rules stand there %d times, want once: %s", got, short)
	}
	if got := strings.Count(long, "it is stored at once"); got != 4 || !strings.Contains(long, "admitted mode.immediate") {
		t.Errorf("with --rules they stand there %d times, want 4: %s", got, long)
	}
	want := "  2026-11-30 12:00:02  took the place of what was in force  by the policy  proposed by user:dana\n" +
		"  2026-11-30 12:00:03  a decision was not believed          by ann         proposed by user:dana  expired\n" +
		"  2026-11-30 12:00:04  forgotten                            by ann                                request=e-1 records=1 versions=2\n"
	if !strings.Contains(short, want) {
		t.Errorf("the trail is not understood: %s", short)
	}
}
