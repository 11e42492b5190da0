package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// The states of a lesson.
const (
	lessonDue    = "due"
	lessonDone   = "done"
	lessonFailed = "failed"
)

type lessonRow struct {
	status, failure string
	tries           int
	billed          amount

	createdAt, updatedAt time.Time
}

// bill adds what a try cost. A cost that is not known of one is not known of all.
func (r *lessonRow) bill(billed db.Amount) {
	more := amountOf(billed)
	if r.billed.tokens == 0 {
		r.billed = more
		return
	}
	r.billed.tokens += more.tokens
	r.billed.costMicros += more.costMicros
	r.billed.priced = r.billed.priced && more.priced
}

// InsertLesson implements activities.Tx.
func (tx *tx) InsertLesson(runID string) {
	tx.queue(func() error {
		key := tx.key(runID)
		d := tx.data
		d.tenants.put(tx, key.tenant, struct{}{})
		run, ok := d.runs.get(key)
		if _, known := d.lessons.get(key); known || !ok || run.Scope.User != tx.scope.User || d.unlearned(key.tenant, run) {
			return nil
		}
		d.lessons.put(tx, key, lessonRow{status: lessonDue, createdAt: tx.now, updatedAt: tx.now})
		return nil
	})
}

// unlearned reports whether a run's user was erased, or has had all forgotten since
// it began.
func (d *data) unlearned(tenant string, run db.Run) bool {
	if d.erased(tenant, run.Scope.User) {
		return true
	}
	for at, e := range d.erasures.rows {
		if at.tenant == tenant && e.kind == eraseMemory && e.before(run.Scope.User, run.ID) {
			return true
		}
	}
	return false
}

// lesson is a lesson as it is returned.
func (d *data) lesson(key runKey) (db.Lesson, bool) {
	row, ok := d.lessons.get(key)
	run, found := d.run(key.tenant, key.run)
	if !ok || !found {
		return db.Lesson{}, false
	}
	return db.Lesson{
		Run:  agent.RunRef{Scope: run.Scope, RunID: run.ID, Generation: run.Generation},
		Room: run.Room(), DefinitionDigest: run.DefinitionDigest, Status: row.status, Tries: row.tries,
	}, true
}

// LessonSource implements activities.Memory.
func (s *Store) LessonSource(ctx context.Context, ref agent.RunRef) (source db.LessonSource, err error) {
	err = s.in(ctx, ref.Scope, func(tx *tx) error {
		d, key := tx.data, tx.key(ref.RunID)
		lesson, ok := d.lesson(key)
		if !ok || lesson.Run.Scope != ref.Scope {
			return missing
		}
		if err := d.admit(lesson.Room, agent.MemoryScope{}); err != nil {
			return err
		}
		run, _ := d.run(key.tenant, key.run)
		limits, _ := d.limits.get(key.tenant)
		source = db.LessonSource{Lesson: lesson, Limits: cloneLimits(limits)}
		source.Question, _ = d.messages.get(namedKey{key.tenant, run.QuestionID})
		for at, e := range d.entries.rows {
			if at.namedKey == (namedKey{key.tenant, run.Conversation}) && at.run == ref.RunID && at.call != "" && e.Kind == db.EntryFact {
				source.Facts = append(source.Facts, cloneEntry(e))
			}
		}
		slices.SortFunc(source.Facts, func(a, b db.SessionEntry) int {
			aStep, aIndex := callOrder(a.CallID)
			bStep, bIndex := callOrder(b.CallID)
			return cmp.Or(cmp.Compare(aStep, bStep), cmp.Compare(aIndex, bIndex), cmp.Compare(a.Version, b.Version))
		})
		source.Recalled = d.givenRecords(lesson.Room, key, func(r db.MemoryRecord) bool { return r.Status != db.MemoryDeleted })
		return nil
	})
	return source, wrap("load lesson", err)
}

// CloseLesson implements activities.Memory.
func (s *Store) CloseLesson(ctx context.Context, ref agent.RunRef, failure string, billed db.Amount) error {
	err := s.in(ctx, ref.Scope, func(tx *tx) error {
		key := tx.key(ref.RunID)
		row, ok := tx.data.lessons.get(key)
		if run, _ := tx.data.runs.get(key); !ok || run.Scope.User != ref.Scope.User {
			return missing
		}
		if row.status != lessonDue {
			return nil
		}
		row.status, row.failure, row.updatedAt = lessonDone, failure, tx.now
		row.bill(billed)
		if failure != "" {
			row.status = lessonFailed
		}
		tx.data.lessons.put(tx, key, row)
		return nil
	})
	return wrap("close lesson", err)
}

// TryLesson implements activities.Memory.
func (s *Store) TryLesson(ctx context.Context, ref agent.RunRef, most int, failure string, billed db.Amount) (closed bool, err error) {
	err = s.in(ctx, ref.Scope, func(tx *tx) error {
		key := tx.key(ref.RunID)
		row, ok := tx.data.lessons.get(key)
		if run, _ := tx.data.runs.get(key); !ok || run.Scope.User != ref.Scope.User || row.status != lessonDue {
			closed = true
			return nil
		}
		row.tries, row.updatedAt = row.tries+1, tx.now
		row.bill(billed)
		if closed = row.tries >= most; closed {
			row.status, row.failure = lessonFailed, failure
		}
		tx.data.lessons.put(tx, key, row)
		return nil
	})
	return closed, wrap("note a try of a lesson", err)
}

func cloneTime(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	copied := micros(*t)
	return &copied
}

func cloneRecord(r db.MemoryRecord) db.MemoryRecord {
	r.Value, r.Rules = slices.Clone(r.Value), slices.Clone(r.Rules)
	r.ValidFrom, r.ValidUntil, r.ExpiresAt = cloneTime(r.ValidFrom), cloneTime(r.ValidUntil), cloneTime(r.ExpiresAt)
	r.RepeatedAt, r.EndedAt = cloneTime(r.RepeatedAt), cloneTime(r.EndedAt)
	return r
}

func cloneCandidate(c db.MemoryCandidate) db.MemoryCandidate {
	c.Rules, c.ExpiresAt = slices.Clone(c.Rules), cloneTime(c.ExpiresAt)
	if c.Content != nil {
		content := *c.Content
		content.Value = slices.Clone(content.Value)
		content.ValidFrom, content.ValidUntil = cloneTime(content.ValidFrom), cloneTime(content.ValidUntil)
		if content.Plan != nil {
			plan := *content.Plan
			plan.Value, plan.Ends, plan.ExpiresAt = slices.Clone(plan.Value), slices.Clone(plan.Ends), cloneTime(plan.ExpiresAt)
			content.Plan = &plan
		}
		c.Content = &content
	}
	return c
}
