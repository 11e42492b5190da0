package activities_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// TestLTM3Stored: the user's own act is stored at once, with all that LTM-2 asks
// for, and everything done twice is done once.
func TestLTM3Stored(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	in := corrected("preference.food", `{"item":"Chinese  food","sentiment":"likes"}`)
	first := m.write(in)
	if again := m.write(in); again.State != agent.MemoryStored || again.Record != first.Record || again.Version != 1 {
		t.Errorf("done again: %+v", again)
	}
	if first.State != agent.MemoryStored || first.Version != 1 || first.PolicyVersion == "" || len(first.Rules) == 0 {
		t.Fatalf("verdict %+v", first)
	}
	r, err := m.db.Memory(m.ctx, "acme", "ada", first.Record)
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Value) != `{"item":"Chinese food","sentiment":"likes"}` || r.Validation != agent.MemoryUserConfirmed || r.Confidence != 1 ||
		r.Evidence.Purpose != "To suggest food that the user likes." || r.SourceType != agent.SourceUserCorrection || r.SourceID != "ticket-1" ||
		r.Writer != "user:ada" || r.User != "ada" || r.Subject != "ada" || r.Environment != "production" || r.Agent != "helper" || r.CandidateID != in.ID ||
		r.Scope != (agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ada"}) || r.ConsentBasis != "requested_by_user" || r.Sensitivity != "normal" ||
		!r.WrittenAt.Equal(m.now) || r.ExpiresAt == nil || !r.ExpiresAt.Equal(m.now.Add(365*24*time.Hour)) || r.PolicyDigest != first.PolicyDigest {
		t.Errorf("record %+v", r)
	}
	if n := m.number("SELECT count(*) FROM memory_record"); n != 1 {
		t.Errorf("%d records", n)
	}
	if n := m.number("SELECT count(*) FROM memory_candidate WHERE content IS NOT NULL"); n != 0 {
		t.Error("the content of a decided candidate was kept")
	}
	if got := m.audit(in.ID); got != "fairlead store" {
		t.Errorf("audit: %s", got)
	}
}

// TestLTM3RejectedLeavesNothing: of what the policy refuses there is no content in
// any table, log or verdict.
func TestLTM3RejectedLeavesNothing(t *testing.T) {
	t.Parallel()
	const secret = "Tr0ub4dor&3xyz"
	m := setupMemory(t, nil)
	for name, edit := range map[string]func(*agent.MemoryCandidate){
		"a password": func(c *agent.MemoryCandidate) {
			c.Value = []byte(`{"item":"my password is ` + secret + `","sentiment":"likes"}`)
		},
		"an unknown key": func(c *agent.MemoryCandidate) { c.Key = secret },
		"a denied source": func(c *agent.MemoryCandidate) {
			c.SourceType, c.Value = agent.SourceAssistant, []byte(`{"item":"`+secret+`","sentiment":"likes"}`)
		},
		"a secret in metadata": func(c *agent.MemoryCandidate) { c.SourceID = "ghp_" + strings.Repeat("a8Kz", 9) },
		"words as a writer":    func(c *agent.MemoryCandidate) { c.Writer = "user ada says " + secret },
		"a value that is none": func(c *agent.MemoryCandidate) { c.Value = []byte(`{"item":` + secret) },
	} {
		in := corrected("preference.food", `{"item":"tea","sentiment":"likes"}`)
		edit(in.Candidate)
		if v := m.write(in); v.State != agent.MemoryRejected || len(v.Rules) == 0 {
			t.Errorf("%s: %+v", name, v)
		} else if again := m.write(in); again.State != agent.MemoryRejected {
			t.Errorf("%s, again: %+v", name, again)
		}
	}
	if n := m.number("SELECT count(*) FROM memory_candidate WHERE state = 'rejected'"); n != 6 {
		t.Errorf("%d rejected candidates are on record", n)
	}
	if n := m.number(`SELECT count(*) FROM memory_candidate c
		WHERE content IS NOT NULL OR to_jsonb(c)::text LIKE '%' || $1 || '%' OR to_jsonb(c)::text LIKE '%ghp\_%'`, secret); n != 0 {
		t.Errorf("%d rejected candidates show content", n)
	}
	if n := m.number("SELECT (SELECT count(*) FROM memory_record) + (SELECT count(*) FROM memory_keyword) + (SELECT count(*) FROM memory_vector)"); n != 0 {
		t.Errorf("%d rows of memory", n)
	}
	if strings.Contains(m.log.String(), secret) {
		t.Error("content reached the log")
	}
}

func TestLTM3InvalidProposals(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	for name, edit := range map[string]func(*agent.MemoryWriteInput){
		"no ID":         func(in *agent.MemoryWriteInput) { in.ID = "" },
		"no candidate":  func(in *agent.MemoryWriteInput) { in.Candidate = nil },
		"no user":       func(in *agent.MemoryWriteInput) { in.Room.Scope.User = "" },
		"no source":     func(in *agent.MemoryWriteInput) { in.Candidate.SourceID = "" },
		"no writer":     func(in *agent.MemoryWriteInput) { in.Candidate.Writer = "" },
		"a huge value":  func(in *agent.MemoryWriteInput) { in.Candidate.Value = []byte(`"` + strings.Repeat("x", 4096) + `"`) },
		"a huge quote":  func(in *agent.MemoryWriteInput) { in.Candidate.Quote = strings.Repeat("x", 2049) },
		"invalid UTF-8": func(in *agent.MemoryWriteInput) { in.Candidate.Quote = "\xff" },
	} {
		in := corrected("preference.food", `{"item":"tea","sentiment":"likes"}`)
		edit(&in)
		_, err := m.runs.ProposeMemory(m.ctx, in)
		if err == nil {
			t.Errorf("%s was taken", name)
			continue
		}
		refusedAs(t, err, agent.ErrorInvalidRequest)
	}
	if n := m.number("SELECT count(*) FROM memory_candidate"); n != 0 {
		t.Errorf("%d candidates", n)
	}
	// An ID is one candidate for good.
	in := corrected("preference.food", `{"item":"tea","sentiment":"likes"}`)
	m.write(in)
	in.Candidate.Value = []byte(`{"item":"coffee","sentiment":"likes"}`)
	_, err := m.runs.ProposeMemory(m.ctx, in)
	refusedAs(t, err, agent.ErrorMemoryConflict)
	_, err = m.runs.JudgeMemory(m.ctx, agent.MemoryWriteInput{ID: "nothing", Room: adasRoom})
	refusedAs(t, err, agent.ErrorMemoryMissing)
	// Somebody else's is not there.
	other := adasRoom
	other.Scope.User = "bob"
	_, err = m.runs.JudgeMemory(m.ctx, agent.MemoryWriteInput{ID: in.ID, Room: other})
	refusedAs(t, err, agent.ErrorMemoryMissing)
}

// TestLTM4OneInForce: another value takes the place of the old one, whose history
// is kept; the same value again is merged and gains nothing.
func TestLTM4OneInForce(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	love := m.write(corrected("preference.food", `{"item":"Chinese food","sentiment":"likes"}`))
	again := m.write(corrected("preference.food", `{"sentiment":"likes","item":"Chinese   food "}`))
	if again.State != agent.MemoryMerged || again.Record != love.Record || again.Version != 1 {
		t.Errorf("said again: %+v", again)
	}
	r, err := m.db.Memory(m.ctx, "acme", "ada", love.Record)
	if err != nil || r.Repeats != 1 || r.Confidence != 1 || r.RepeatedAt == nil {
		t.Errorf("repeated: %+v, %v", r, err)
	}
	other := m.write(corrected("preference.food", `{"item":"Chinese tea","sentiment":"dislikes"}`))
	if other.Record == love.Record || other.State != agent.MemoryStored {
		t.Errorf("another item: %+v", other)
	}
	hate := m.write(corrected("preference.food", `{"item":"Chinese food","sentiment":"dislikes"}`))
	if hate.State != agent.MemoryStored || hate.Record != love.Record || hate.Version != 2 {
		t.Errorf("changed: %+v", hate)
	}
	inForce := strings.Split(m.values("preference.food", false), "}, ")
	if len(inForce) != 2 || !strings.Contains(m.values("preference.food", false), `{"item":"Chinese food","sentiment":"dislikes"}`) {
		t.Errorf("in force: %v", inForce)
	}
	past := m.values("preference.food", true)
	if !strings.Contains(past, `{"item":"Chinese food","sentiment":"likes"} superseded`) || strings.Count(past, "active") != 2 {
		t.Errorf("history: %s", past)
	}
	if n := m.number("SELECT count(*) FROM memory_keyword"); n != 2 {
		t.Errorf("%d records are found by their words, want 2", n)
	}
}

// TestLTM4Retract: what is taken back is not in force any more, and nothing takes
// its place.
func TestLTM4Retract(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	stored := m.write(corrected("profile.home_city", `"Berlin"`))
	in := corrected("profile.home_city", "")
	in.Candidate.Value, in.Candidate.Retracts = nil, true
	v := m.write(in)
	if v.State != agent.MemoryStored || v.Record != stored.Record {
		t.Errorf("verdict %+v", v)
	}
	if got := m.values("profile.home_city", true); got != `"Berlin" retracted` {
		t.Errorf("records: %s", got)
	}
	if got := m.audit(in.ID); got != "fairlead retract" {
		t.Errorf("audit: %s", got)
	}
}

// TestLTM4Intervals: one value in two times that do not overlap is two records.
func TestLTM4Intervals(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	write := func(from, until int) agent.MemoryVerdict {
		in := corrected("profile.home_city", `"Berlin"`)
		a, b := m.now.Add(time.Duration(from)*24*time.Hour), m.now.Add(time.Duration(until)*24*time.Hour)
		in.Candidate.ValidFrom, in.Candidate.ValidUntil = &a, &b
		return m.write(in)
	}
	first, second := write(1, 10), write(20, 30)
	if first.State != agent.MemoryStored || second.State != agent.MemoryStored || first.Record == second.Record {
		t.Errorf("%+v and %+v", first, second)
	}
	if got := m.values("profile.home_city", false); got != `"Berlin", "Berlin"` {
		t.Errorf("in force: %s", got)
	}
}

// TestLTM7EmbedderDownStores: a memory is stored without its vector, and found by
// its words.
func TestLTM7EmbedderDownStores(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func([]string) ([][]float32, error){
		"an error":          func([]string) ([][]float32, error) { return nil, errors.New(canary) },
		"another dimension": func([]string) ([][]float32, error) { return [][]float32{{1, 0}}, nil },
		"no direction":      func([]string) ([][]float32, error) { return [][]float32{make([]float32, 64)}, nil },
		"another number":    func([]string) ([][]float32, error) { return [][]float32{}, nil },
		"a panic":           func([]string) ([][]float32, error) { panic(canary) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := setupMemory(t, nil)
			m.embed.set(fail)
			if v := m.write(corrected("profile.home_city", `"Berlin"`)); v.State != agent.MemoryStored {
				t.Fatalf("verdict %+v", v)
			}
			if k, v := m.number("SELECT count(*) FROM memory_keyword"), m.number("SELECT count(*) FROM memory_vector"); k != 1 || v != 0 {
				t.Errorf("%d records found by their words and %d by vectors", k, v)
			}
			if strings.Contains(m.log.String(), canary) {
				t.Error("content reached the log")
			}
		})
	}
}

// TestLTM5StoreDownRetries: while the store is down nothing is decided, the error
// is one that Temporal retries, and the same judgment comes out later.
func TestLTM5StoreDownRetries(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	in := corrected("profile.home_city", `"Berlin"`)
	if _, err := m.runs.ProposeMemory(m.ctx, in); err != nil {
		t.Fatal(err)
	}
	m.memory.set(func(string) error { return db.ErrUnavailable })
	if _, err := m.runs.JudgeMemory(m.ctx, agent.MemoryWriteInput{ID: in.ID, Room: in.Room}); err == nil || !retried(err) {
		t.Fatalf("error %v", err)
	}
	m.memory.set(nil)
	if v := m.judge(in.ID); v.State != agent.MemoryStored {
		t.Errorf("verdict %+v", v)
	}
}

// TestLTM5NoMemoryHere: another worker may have a memory.
func TestLTM5NoMemoryHere(t *testing.T) {
	t.Parallel()
	m := setup(t, options{})
	in := corrected("profile.home_city", `"Berlin"`)
	_, err := m.runs.ProposeMemory(m.ctx, in)
	_, err2 := m.runs.JudgeMemory(m.ctx, agent.MemoryWriteInput{ID: in.ID, Room: in.Room})
	_, err3 := m.runs.SettleMemory(m.ctx, agent.SettleMemoryInput{ID: in.ID, Room: in.Room})
	_, err4 := m.runs.Learn(m.ctx, agent.LearnInput{})
	_, err5 := m.runs.Forget(m.ctx, agent.ForgetInput{})
	_, err6 := m.runs.Erase(m.ctx, agent.EraseInput{})
	_, err7 := m.runs.Reconcile(m.ctx, agent.ReconcileInput{})
	_, err8 := m.runs.Reindex(m.ctx, agent.ReindexInput{})
	for i, err := range []error{err, err2, err3, err4, err5, err6, err7, err8} {
		if err == nil || !retried(err) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestLTM3TwoWorkersJudge: one candidate becomes one record, whoever judges.
func TestLTM3TwoWorkersJudge(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	var ins []agent.MemoryWriteInput
	for range 4 {
		in := corrected("profile.home_city", `"Berlin"`)
		if _, err := m.runs.ProposeMemory(m.ctx, in); err != nil {
			t.Fatal(err)
		}
		ins = append(ins, in)
	}
	workers := []*activities.Runs{m.runs, m.restart(nil)}
	together(8, func(i int) {
		in := ins[i%4]
		if _, err := workers[i/4].JudgeMemory(m.ctx, agent.MemoryWriteInput{ID: in.ID, Room: in.Room}); err != nil && !retried(err) {
			t.Error(err)
		}
	})
	for _, in := range ins {
		if v := m.judge(in.ID); !v.State.Final() {
			t.Errorf("%+v", v)
		}
	}
	if n := m.number("SELECT count(*) FROM memory_record"); n != 1 {
		t.Errorf("%d records", n)
	}
	if n := m.number("SELECT repeats FROM memory_record"); n != 3 {
		t.Errorf("said again %d times", n)
	}
	if n := m.number("SELECT count(*) FROM memory_audit WHERE action IN ('store', 'merge')"); n != 4 {
		t.Errorf("%d entries of the audit trail", n)
	}
}
