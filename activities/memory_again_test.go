package activities_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead/fairlead/agent"
)

// reported is what a trusted service proposes about ada.
func reported(key, value string, at *time.Time) agent.MemoryWriteInput {
	return agent.MemoryWriteInput{ID: uuid.NewString(), Room: adasRoom, Candidate: &agent.MemoryCandidate{
		Kind: agent.MemoryFact, Key: key, Value: []byte(value), SourceType: agent.SourceTrustedService, SourceID: "crm", Writer: "service:crm", ObservedAt: at,
	}}
}

// TestLTM4OneMessageTakesBackAndStates: a message that takes one value back and states
// another leaves the other in force, whichever is judged first.
func TestLTM4OneMessageTakesBackAndStates(t *testing.T) {
	t.Parallel()
	for _, reverse := range []bool{false, true} {
		judge := func(m *memoryBundle, message string) {
			ids := m.learn(m.say(message)).Candidates
			if len(ids) != 2 {
				t.Fatalf("learned %v", ids)
			}
			if reverse {
				slices.Reverse(ids)
			}
			for _, id := range ids {
				m.judge(id)
			}
		}
		m := setupMemory(t, nil)
		m.learned("Please always answer in German.", proposal("preference.language", `"de"`, "always answer in German"))
		m.extract = answerWith(proposal("preference.language", `"fr"`, "Please always answer in French"),
			`{"kind":"profile_preference","key":"preference.language","retracts":true,"quote":"Please no longer answer in German"}`)
		judge(m, "Please always answer in French. Please no longer answer in German.")
		if got := m.values("preference.language", false); got != `"fr"` {
			t.Errorf("reversed %t: in force %q", reverse, got)
		}
		m = setupMemory(t, nil)
		m.learned("I hate sushi.", proposal("preference.food", `{"item":"sushi","sentiment":"dislikes"}`, "I hate sushi"))
		m.extract = answerWith(proposal("preference.food", `{"item":"sushi","sentiment":"likes"}`, "I love sushi"),
			`{"kind":"profile_preference","key":"preference.food","value":{"item":"sushi","sentiment":"dislikes"},"retracts":true,"quote":"I no longer hate sushi"}`)
		judge(m, "I love sushi. I no longer hate sushi.")
		if got := m.values("preference.food", false); got != `{"item":"sushi","sentiment":"likes"}` {
			t.Errorf("reversed %t: in force %q", reverse, got)
		}
	}
}

// TestERASE2ObservedBefore: what was observed before it was forgotten is not stored,
// and what was observed after it is, also by a run that had begun.
func TestERASE2ObservedBefore(t *testing.T) {
	t.Parallel()
	m := setupLocator(t)
	first := m.asking("Why is it slow?")
	m.locate(first, 0, "old-service")
	record := m.judge(m.answered(first, 1)[0]).Record
	waiting := m.asking("Why is it slow?")
	m.forget(agent.ForgetInput{ID: "f1", Room: adasRoom, Record: record, By: "ada"})
	m.locate(waiting, 0, "new-service")
	for _, id := range m.answered(waiting, 1) {
		m.judge(id)
	}
	if got := m.values("task.service", false); got != `"new-service"` {
		t.Errorf("observed after it: in force %q", got)
	}
	m.forget(agent.ForgetInput{ID: "f2", Room: adasRoom, By: "ada"})
	before := time.Now().Add(-time.Hour)
	_, err := m.runs.ProposeMemory(m.ctx, reported("fact.project_codename", `"Falcon"`, &before))
	refusedAs(t, err, agent.ErrorMemoryMissing)
}

// TestLTM4TakenBackBehindOver: a value whose time is over does not hide what was taken
// back.
func TestLTM4TakenBackBehindOver(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	until := m.clock().Add(time.Hour)
	in := corrected("preference.language", `"en"`)
	in.Candidate.ValidUntil = &until
	m.write(in)
	next := corrected("preference.language", `"de"`)
	next.Candidate.ValidFrom = &until
	m.write(next)
	m.later(2 * time.Hour)
	late := m.sayUnheard("Please always answer in German.")
	m.later(time.Minute)
	back := corrected("preference.language", ``)
	back.Candidate.Value, back.Candidate.Retracts = nil, true
	if v := m.write(back); v.State != agent.MemoryStored {
		t.Fatalf("taken back: %+v", v)
	}
	m.extract = answerWith(proposal("preference.language", `"de"`, "always answer in German"))
	for _, id := range m.learn(late).Candidates {
		if v := m.judge(id); v.State != agent.MemoryRejected {
			t.Errorf("late: %+v", v)
		}
	}
}

// TestLTM4ToldTheEnd: what a person was told the end of is asked for again before it
// ends, and nobody else's word keeps it.
func TestLTM4ToldTheEnd(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	id := m.wished()
	m.settleWith(m.runs, id, m.approve("ada", id))
	m.exec("UPDATE memory_record SET expires_at = expires_at - interval '364 days'")
	_, again := m.learned(wish, proposal("preference.default_environment", `"production"`, wishQuote))
	if len(again) != 1 || again[0].State != agent.MemoryWaitingConfirmation {
		t.Errorf("said again a day before its end: %+v", again)
	}
	m.write(reported("fact.project_codename", `"Falcon"`, nil))
	left := "SELECT (extract(epoch FROM expires_at - now()) / 86400)::bigint FROM memory_record WHERE key = 'fact.project_codename'"
	m.exec("UPDATE memory_record SET expires_at = expires_at - interval '179 days' WHERE key = 'fact.project_codename'")
	before := m.number(left)
	m.learned("Our project is called Falcon.", proposal("fact.project_codename", `"Falcon"`, "Our project is called Falcon"))
	if after := m.number(left); after != before {
		t.Errorf("a user's word keeps what a service vouches for: %d days, before %d", after, before)
	}
}

// TestLTM4ClockAhead: a service whose clock is ahead keeps out nobody.
func TestLTM4ClockAhead(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	at := m.clock().Add(4 * time.Minute)
	m.write(reported("fact.project_codename", `"Falcon"`, &at))
	m.later(time.Minute)
	if v := m.write(reported("fact.project_codename", `"Eagle"`, nil)); v.State != agent.MemoryStored {
		t.Errorf("a minute later: %+v", v)
	}
}

// TestLTM6StandingKeysInOrder: among keys with one record each the policy's order says
// which matter first.
func TestLTM6StandingKeysInOrder(t *testing.T) {
	t.Parallel()
	m := setupMemory(t, nil)
	m.write(corrected("preference.language", `"de"`))
	for _, kv := range [][2]string{{"profile.name", `"Ada"`}, {"profile.home_city", `"Berlin"`}, {"profile.role", `"engineer"`}, {"preference.reply_style", `"brief"`}, {"preference.food", likes}} {
		m.later(time.Second)
		m.write(corrected(kv[0], kv[1]))
	}
	for i := range 6 {
		m.write(corrected("fact.note", fmt.Sprintf(`{"topic":"payment-api %d","text":"payment-api restarts every night at %d"}`, i, i)))
	}
	if got := m.given("When does payment-api restart at night?"); !strings.Contains(got, "preference.language") || !strings.Contains(got, "fact.note") {
		t.Errorf("given %s", got)
	}
}
