package activities_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/model"
)

// TestLTM4LearnedLate: what was said first and is learned last does not take the
// place of what was said after it, and takes back nothing of it. Said again it does.
func TestLTM4LearnedLate(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	german := proposal("preference.language", `"de"`, "always answer in German")
	french := proposal("preference.language", `"fr"`, "always answer in French")
	m.extract = func(model.Request) (string, error) { return "", &model.Error{Kind: model.KindUnavailable} }
	first := m.say("Please always answer in German.")
	if _, err := m.runs.Learn(m.ctx, first); err == nil {
		t.Fatal("the extractor is not down")
	}
	_, verdicts := m.learned("Please always answer in French.", french)
	if len(verdicts) != 1 || verdicts[0].State != agent.MemoryStored {
		t.Fatalf("verdicts %+v", verdicts)
	}
	m.later(time.Hour)
	m.extract = answerWith(german)
	out := m.learn(first)
	if len(out.Candidates) != 1 {
		t.Fatalf("learned %+v", out)
	}
	v := m.judge(out.Candidates[0])
	if v.State != agent.MemoryRejected || v.Rules[len(v.Rules)-1].ID != "conflict.older" {
		t.Errorf("verdict %+v", v)
	}
	if got := m.values("preference.language", true); got != `"fr" active` {
		t.Errorf("values %s", got)
	}
	r, err := m.db.Memory(m.ctx, "acme", "ada", verdicts[0].Record)
	said := m.number("SELECT (extract(epoch FROM created_at) * 1000000)::bigint FROM message WHERE id = '" + r.Evidence.MessageID + "'")
	// Each byte into the message counts as a microsecond later.
	if at := int64(len("Please ")); err != nil || r.WrittenAt.UnixMicro() != said+at {
		t.Errorf("written at %s, said at %d, %v", r.WrittenAt, said, err)
	}
	if _, again := m.learned("Please always answer in German.", german); len(again) != 1 || again[0].State != agent.MemoryStored {
		t.Errorf("said again: %+v", again)
	}
	if got := m.values("preference.language", false); got != `"de"` {
		t.Errorf("values %s", got)
	}
}

// TestLTM4RepeatedMeanwhile: what was said again counts from when it was said last.
func TestLTM4RepeatedMeanwhile(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	german := proposal("preference.language", `"de"`, "always answer in German")
	m.learned("Please always answer in German.", german)
	m.extract = func(model.Request) (string, error) { return "", &model.Error{Kind: model.KindUnavailable} }
	late := m.say("Please always answer in French.")
	if _, err := m.runs.Learn(m.ctx, late); err == nil {
		t.Fatal("the extractor is not down")
	}
	if _, v := m.learned("Please always answer in German.", german); len(v) != 1 || v[0].State != agent.MemoryMerged {
		t.Fatalf("verdicts %+v", v)
	}
	m.extract = answerWith(proposal("preference.language", `"fr"`, "always answer in French"))
	out := m.learn(late)
	if len(out.Candidates) != 1 {
		t.Fatalf("learned %+v", out)
	}
	if v := m.judge(out.Candidates[0]); v.State != agent.MemoryRejected {
		t.Errorf("verdict %+v", v)
	}
	if got := m.values("preference.language", false); got != `"de"` {
		t.Errorf("values %s", got)
	}
}

func TestLTM5NoSuchLesson(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	in := m.say(liking)
	in.Run.RunID = "another"
	if out := m.learn(in); out.Failure != "lesson_missing" || len(out.Candidates) != 0 {
		t.Errorf("learned %+v", out)
	}
	in = agent.LearnInput{Run: agent.RunRef{Scope: agent.Scope{Tenant: "acme", User: "bob", Environment: "production"}, RunID: in.Run.RunID}}
	if out := m.learn(in); out.Failure != "lesson_missing" {
		t.Errorf("somebody else's: %+v", out)
	}
}

// TestLTM4RetellingTeachesNothing: a statement that is told three times gains no
// confidence, and what was recalled is not learned as new.
func TestLTM4Retelling(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	told := proposal("preference.food", likes, "I love Chinese food")
	_, first := m.learned(liking, told)
	for range 2 {
		if _, again := m.learned(liking, told); len(again) != 1 || again[0].State != agent.MemoryMerged || again[0].Record != first[0].Record {
			t.Errorf("again: %+v", again)
		}
	}
	r, err := m.db.Memory(m.ctx, "acme", "ada", first[0].Record)
	if err != nil || r.Confidence != 0.7 || r.Validation != agent.MemoryUserStated || r.Version != 1 || r.Repeats != 2 {
		t.Errorf("record %+v, %v", r, err)
	}
}

// TestPOL4NoLastingPermission: the sentence of one day is no preference of another
// (S3 section 1). Whatever the extractor makes of it, nothing is kept, and two
// weeks later a run is given nothing of it.
func TestPOL4NoLastingPermission(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	const sentence = "My checkout is broken, so create an urgent ticket without asking."
	m.extract = answerWith(
		proposal("fact.note", `{"topic":"urgent ticket","text":"create an urgent ticket without asking"}`, "create an urgent ticket without asking"),
		proposal("preference.reply_style", `"brief"`, "create an urgent ticket without asking"),
		proposal("preference.topic", `{"topic":"urgent ticket","sentiment":"likes"}`, "My checkout is broken, so create an urgent ticket without asking"),
		`{"kind":"ongoing_task","key":"task.current","value":{"name":"urgent ticket","state":"in_progress"},"quote":"create an urgent ticket without asking"}`,
	)
	if out := m.learn(m.say(sentence)); len(out.Candidates) != 0 || out.Rejected == 0 {
		t.Errorf("learned %+v", out)
	}
	m.later(14 * 24 * time.Hour)
	req := request()
	req.Message = "The search is slow today. Create a ticket."
	g := begun{req, m.begin(req)}
	out, err := m.runs.Recall(m.ctx, agent.RecallInput{Run: g.ref(), DefinitionDigest: g.out.DefinitionDigest})
	if err != nil || out.State != agent.RecallNothing || out.Records != 0 {
		t.Errorf("recalled %+v, %v", out, err)
	}
	if n := m.number("SELECT (SELECT count(*) FROM memory_record) + (SELECT count(*) FROM memory_candidate WHERE content IS NOT NULL)"); n != 0 {
		t.Errorf("%d pieces are kept", n)
	}
}
