package memstore_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// reconcile repairs what is due to a store whose rows are aged by so much, and in
// which retention is judged at a moment.
func (s *subject) reconcile(now time.Time, aged time.Duration) agent.ReconcileReport {
	s.Helper()
	report, err := s.memory.ReconcileMemory(ctx, "acme", now, time.Now().Add(aged), 100)
	if err != nil {
		s.Fatal(err)
	}
	return report
}

// due is which candidates are listed to be tried again.
func (s *subject) due(aged time.Duration) string {
	s.Helper()
	var ids []string
	for _, w := range s.reconcile(time.Now(), aged).Writes {
		ids = append(ids, w.ID)
	}
	if len(ids) == 2 && ids[0] > ids[1] { // In any order.
		ids[0], ids[1] = ids[1], ids[0]
	}
	return strings.Join(ids, " ")
}

func ofNoRun(id string) db.MemoryCandidate {
	c := candidate(id)
	c.RunID = ""
	return c
}

// fail ends a run.
func (s *subject) fail(r db.Run) {
	s.Helper()
	state := s.closeRun(r, "", 1)
	s.do(r.Scope, func(tx activities.Tx) error {
		return tx.MoveRun(state.Run, db.Move{To: agent.StatusFailed, Reason: agent.ReasonInternal})
	})
}

// memoryReconcileCases are about what nobody came back to.
var memoryReconcileCases = map[string]func(*subject){
	"tries": func(s *subject) {
		s.suggest(ofNoRun("p1"))
		s.suggest(ofNoRun("p2"))
		far := time.Now().Add(500 * time.Hour)
		s.want("waits", s.decide("p2", func(c *db.MemoryCandidate) { c.State, c.ExpiresAt = agent.MemoryWaitingConfirmation, &far }), nil)
		for n, c := range []struct {
			aged time.Duration
			want string
		}{
			{-time.Minute, ""},
			{time.Minute, "p1"},
			{59 * time.Minute, ""},
			{61 * time.Minute, "p1"},
			{239 * time.Minute, ""},
			{241 * time.Minute, "p1"},
			{539 * time.Minute, ""},
			{541 * time.Minute, "p1"},
			{23*time.Hour + 59*time.Minute, "p1"},
			{25*time.Hour + time.Minute, "p1 p2"},
			{100 * time.Hour, "p1 p2"},
			{100 * time.Hour, "p1 p2"},
			// p1 was tried 8 times; what waits is not given up before its time.
			{100 * time.Hour, "p2"},
			{100 * time.Hour, "p2"},
			{100 * time.Hour, "p2"},
			{35*time.Hour + 59*time.Minute, ""},
			{36*time.Hour + time.Minute, "p2"},
			{100 * time.Hour, "p2"},
			{100 * time.Hour, ""},
		} {
			s.want(fmt.Sprint(n, ": ", c.aged), s.due(c.aged), c.want)
		}
		first, second := s.state("p1"), s.state("p2")
		s.want("given up", []any{first.State, first.Tries, first.Content == nil, first.DecidedBy}, []any{agent.MemoryExpired, 8, true, "reconciliation"})
		s.want("still waits", []any{second.State, second.Tries, second.Content == nil}, []any{agent.MemoryWaitingConfirmation, 8, false})
		s.want("audit", s.audit(), "[reconciliation expired ada p1 0 ]")
	},
	"proposals of open runs": func(s *subject) {
		c := candidate("p1")
		s.suggest(c)
		for range 8 {
			s.want("as if there were no run", s.due(100*time.Hour), "p1")
		}
		r := s.begin(ada, "talk", "r1")
		c.ID = "p2"
		s.suggest(c)
		s.want("not due", s.due(100*time.Hour), "")
		s.want("nor given up", []any{s.state("p1").State, s.state("p2").Tries}, "[proposed 0]")
		s.fail(r)
		s.want("due", s.due(time.Minute), "p2")
		s.want("given up", s.state("p1").State, agent.MemoryExpired)
	},
	"what waits too long": func(s *subject) {
		s.suggest(ofNoRun("p1"))
		s.want("waits", s.decide("p1", func(c *db.MemoryCandidate) {
			c.State, c.Nonce, c.PlanHash, c.ValueHash = agent.MemoryWaitingReview, "nonce", digest, digest
			later := time.Now().Add(time.Hour)
			c.ExpiresAt = &later
		}), nil)
		s.want("in time", []any{s.due(59 * time.Minute), s.state("p1").State}, []any{"", agent.MemoryWaitingReview})
		s.want("listed", s.due(61*time.Minute), "")
		c := s.state("p1")
		s.want("expired", []any{c.State, c.Content == nil, c.Nonce, c.PlanHash, c.DecidedBy}, []any{agent.MemoryExpired, true, "", "", "reconciliation"})
	},
	"a month": func(s *subject) {
		s.begin(ada, "talk", "r1")
		s.queue(ada, func(tx activities.Tx) { tx.InsertLesson("r1") })
		s.suggest(candidate("p1"))
		s.reconcile(time.Now().Add(30*24*time.Hour-time.Minute), -time.Hour)
		s.want("not yet", []any{s.state("p1").State, s.lesson("r1")}, "[proposed due]")
		report := s.reconcile(time.Now().Add(30*24*time.Hour+time.Minute), -time.Hour)
		s.want("later", []any{s.state("p1").State, s.lesson("r1"), len(report.Writes), len(report.Lessons)}, "[expired failed 0 0]")
	},
	"lessons that are due": func(s *subject) {
		s.begin(ada, "talk", "r1")
		s.begin(ada, "talk2", "r2")
		s.queue(ada, func(tx activities.Tx) { tx.InsertLesson("r2"); tx.InsertLesson("r1") })
		due := func(aged time.Duration) (list []string) {
			for _, l := range s.reconcile(time.Now(), aged).Lessons {
				list = append(list, l.Run.RunID)
			}
			return list
		}
		s.want("too early", due(-time.Minute), "[]")
		s.want("due", due(time.Minute), "[r1 r2]")
		s.want("not again", due(-time.Minute), "[]")
		s.want("until later", due(time.Minute), "[r1 r2]")
		s.want("closed", s.memory.CloseLesson(ctx, agent.RunRef{Scope: ada, RunID: "r1"}, "", db.Amount{}), nil)
		s.want("the other", due(time.Minute), "[r2]")
	},
	"open erasures": func(s *subject) {
		r := s.begin(ada, "talk", "r1")
		in := agent.EraseInput{ID: "e1", Tenant: "acme", User: "ada", By: "olga"}
		step, err := s.memory.EraseSubject(ctx, in, 100)
		s.want("blocked", []any{step.Blocked, err}, "[open_run <nil>]")
		s.want("under way", len(s.reconcile(time.Now(), -time.Minute).Erasures), 0)
		for range 2 {
			s.want("listed", s.reconcile(time.Now(), time.Minute).Erasures, []agent.EraseInput{in})
		}
		s.fail(r)
		for range 10 {
			if step, err = s.memory.EraseSubject(ctx, in, 100); err != nil || step.Done {
				break
			}
		}
		s.want("done", []any{step.Done, err, len(s.reconcile(time.Now(), time.Minute).Erasures)}, "[true <nil> 0]")
	},
	"retention of history": func(s *subject) {
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`, func(r *db.MemoryRecord) { r.ExpiresAt = until(time.Hour) }), words("tea"))
		s.replace(alone, ofAda, wrote("m1", 2, `"coffee"`), words("coffee"))
		later := start.Add(48 * time.Hour)
		report := s.reconcile(start.Add(time.Hour-time.Second), -time.Hour)
		s.want("in time", report.Expired, 0)
		report = s.reconcile(later, -time.Hour)
		s.want("over", []any{report.Expired, report.Residue, report.More}, "[1 0 false]")
		s.want("again", s.reconcile(later, -time.Hour).Expired, 0)
		first := s.version("m1", 1)
		s.want("tombstone", []any{first.Status, len(first.Value), first.EndedBy, first.EndedAt.Equal(start)}, []any{db.MemoryDeleted, 0, "candidate:next", true})
		q := asked(ofAda)
		q.Tokens = []string{"tea", "coffee"}
		s.want("in force", s.recall(alone, q), `m1.2 keyword "coffee"`)
		s.want("audit", s.audit(), "[retention expired ada m1 1 ]")
	},
	"history without its end": func(s *subject) {
		s.embedders()
		s.keep(alone, ofAda, wrote("m1", 1, `"tea"`), axis(0, "tea"))
		s.replace(alone, ofAda, wrote("m1", 2, `"coffee"`, func(r *db.MemoryRecord) { r.ExpiresAt = until(time.Hour) }), axis(0, "coffee"))
		report := s.reconcile(start.Add(time.Hour), -time.Hour)
		s.want("both go", []any{report.Expired, report.Residue}, "[1 1]")
		s.want("the older one", []any{s.version("m1", 1).Status, s.version("m1", 1).EndedBy, s.version("m1", 2).EndedBy}, []any{db.MemoryDeleted, "reconciliation", "retention"})
		s.want("audit", s.audit(), "[retention expired ada m1 2  reconciliation residue ada m1 1 ]")
	},
	"what was to be forgotten": func(s *subject) {
		s.embedders()
		s.forget(agent.ForgetInput{ID: "f1", Room: alone, By: "ada"})
		s.keep(alone, ofAda, wrote("new", 1, `"new"`, func(r *db.MemoryRecord) { r.WrittenAt = time.Now() }), axis(0, "tea"))
		s.keep(alone, ofAda, wrote("old", 1, `"old"`, func(r *db.MemoryRecord) { r.Key, r.WrittenAt = "preference.colour", time.Now().Add(-time.Hour) }), axis(1, "tea"))
		s.keep(bobs, agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "bob"}, wrote("his", 1, `"his"`, func(r *db.MemoryRecord) { r.WrittenAt = time.Now().Add(-time.Hour) }), axis(1, "tea"))
		report := s.reconcile(time.Now(), -time.Hour)
		s.want("with words and vector", []any{report.Residue, report.Expired}, "[3 0]")
		s.want("again", s.reconcile(time.Now(), -time.Hour).Residue, 0)
		s.want("gone", []any{s.version("old", 1).Status, s.version("new", 1).Status, s.version("his", 1).Status}, []any{db.MemoryDeleted, db.MemoryActive, db.MemoryActive})
	},
	"a few at a time": func(s *subject) {
		for i := range 3 {
			s.keep(alone, ofAda, wrote(fmt.Sprint("m", i), 1, `"x"`, func(r *db.MemoryRecord) {
				r.Key, r.ExpiresAt = fmt.Sprint("key.", i), until(time.Duration(3-i)*time.Minute)
			}), words("tea"))
			s.suggest(ofNoRun(fmt.Sprint("p", i)))
		}
		for _, want := range []string{"[2 2 true]", "[1 1 false]", "[0 0 false]"} {
			stale := time.Now().Add(30 * time.Minute) // What is listed is due again in an hour.
			report, err := s.memory.ReconcileMemory(ctx, "acme", start.Add(time.Hour), stale, 2)
			if err != nil {
				s.Fatal(err)
			}
			s.want("round", []any{report.Expired, len(report.Writes), report.More}, want)
		}
		_, err := s.memory.ReconcileMemory(ctx, "", start, start, 2)
		s.failed(err, db.ErrScope, "")
	},
}
