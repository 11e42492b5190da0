package memstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// The kinds of requests to erase.
const (
	eraseRecord  = "record"
	eraseMemory  = "memory"
	eraseSubject = "subject"
)

type erasureRow struct {
	kind, record string
	receipt      agent.ErasureReceipt
	done         bool
	requestedAt  time.Time
	// runs are those of the user that had begun then, separated by line feeds.
	runs string
}

// ForgetMemory implements activities.Memory. Unlike package db it does all in one
// step, whatever the limit.
func (s *Store) ForgetMemory(ctx context.Context, in agent.ForgetInput, _ int) (agent.ErasureStep, error) {
	kind := eraseMemory
	if in.Record != "" {
		kind = eraseRecord
	}
	step, err := s.erase(ctx, erasureRow{kind: kind, record: in.Record, receipt: agent.ErasureReceipt{
		ID: in.ID, Tenant: in.Room.Scope.Tenant, Subject: in.Room.Scope.User, By: in.By,
	}})
	return step, wrap("forget memory", err)
}

// EraseSubject implements activities.Memory. Instead of destroying keys it removes
// what they would have sealed.
func (s *Store) EraseSubject(ctx context.Context, in agent.EraseInput, _ int) (agent.ErasureStep, error) {
	step, err := s.erase(ctx, erasureRow{kind: eraseSubject, receipt: agent.ErasureReceipt{ID: in.ID, Tenant: in.Tenant, Subject: in.User, By: in.By}})
	return step, wrap("erase subject", err)
}

func (s *Store) erase(ctx context.Context, asked erasureRow) (step agent.ErasureStep, err error) {
	tenant, user := asked.receipt.Tenant, asked.receipt.Subject
	if !agent.ValidID(tenant) || !agent.ValidID(user) {
		return step, db.ErrScope
	}
	if !agent.ValidID(asked.receipt.ID) || asked.receipt.By == "" {
		return step, errors.New("a request has an id and says who asks")
	}
	err = s.inTenant(ctx, tenant, func(tx *tx) error {
		row, err := tx.erasure(asked)
		if err != nil {
			return err
		}
		if !row.done {
			tx.purge(&row)
			if row.kind == eraseSubject {
				step.Blocked = tx.data.hinders(tenant, user)
			}
			if row.done = step.Blocked == ""; row.done {
				tx.complete(&row)
			}
			tx.data.tenants.put(tx, tenant, struct{}{})
			tx.data.erasures.put(tx, namedKey{tenant, row.receipt.ID}, row)
		}
		step.Done, step.Receipt = row.done, row.receipt
		return nil
	})
	return step, err
}

// hinders says why the keys of a user are not destroyed yet.
func (d *data) hinders(tenant, user string) string {
	for at, r := range d.runs.rows {
		if at.tenant == tenant && r.Scope.User == user && !r.Status.Terminal() {
			return "open_run"
		}
	}
	if d.unsettled(tenant, user) {
		return "unsettled_write"
	}
	return ""
}

// unsettled reports whether nobody knows of a write of a user whether it happened.
func (d *data) unsettled(tenant, user string) bool {
	for at, i := range d.intents.rows {
		run, _ := d.runs.get(runKey{tenant, i.RunID})
		if at.tenant == tenant && run.Scope.User == user && (i.Result == db.WriteOpen || i.Result == db.WriteUnknown) {
			return true
		}
	}
	return false
}

// erasure returns the request of an ID, which is made if it is new. A record must
// be there, and belong to the user or come from the user in one of its versions.
func (tx *tx) erasure(asked erasureRow) (erasureRow, error) {
	d, tenant, user := tx.data, asked.receipt.Tenant, asked.receipt.Subject
	if asked.kind == eraseRecord && !d.anyRecord(tenant, func(r db.MemoryRecord) bool { return r.ID == asked.record && asked.covers(r) }) {
		return asked, missing
	}
	row, known := d.erasures.get(namedKey{tenant, asked.receipt.ID})
	if !known {
		var runs []string
		for at, r := range d.runs.rows {
			if at.tenant == tenant && r.Scope.User == user {
				runs = append(runs, r.ID)
			}
		}
		asked.requestedAt, asked.runs = tx.now, lines(runs)
		return asked, nil
	}
	if row.kind != asked.kind || row.record != asked.record || row.receipt.Subject != user {
		return row, db.ErrOtherRequest
	}
	return row, nil
}

// covers reports whether a version belongs to the user or comes from the user, and
// is of the record that was named, if any was.
func (e erasureRow) covers(r db.MemoryRecord) bool {
	return (r.Subject == e.receipt.Subject || r.User == e.receipt.Subject) && (e.record == "" || r.ID == e.record)
}

func (tx *tx) complete(row *erasureRow) {
	action := "forgotten"
	if row.kind == eraseSubject {
		action = "erased"
		tx.clearContent(row.receipt.Subject)
		row.receipt.KeysDestroyed = true
	}
	row.receipt.At = tx.now
	tx.note(db.MemoryAudit{
		Actor: row.receipt.By, Action: action, Subject: row.receipt.Subject, User: row.receipt.Subject, Record: row.record,
		Detail: fmt.Sprintf("request=%s records=%d versions=%d", row.receipt.ID, row.receipt.Records, row.receipt.Versions),
	})
}

func (d *data) anyRecord(tenant string, which func(db.MemoryRecord) bool) bool {
	for at, r := range d.records.rows {
		if at.tenant == tenant && which(r) {
			return true
		}
	}
	return false
}

// purge makes tombstones of records, removes what they were found by, and clears
// candidates. Of everything also goes what was said and is not remembered yet.
func (tx *tx) purge(row *erasureRow) {
	d, receipt := tx.data, &row.receipt
	records := map[string]bool{}
	for at, r := range d.records.rows {
		if at.tenant != tx.scope.Tenant || r.Status == db.MemoryDeleted || !row.covers(r) {
			continue
		}
		tx.bury(at, r, receipt.By, tx.now)
		receipt.Versions++
		if records[r.ID] = true; r.Status == db.MemoryActive {
			keywords, vectors := tx.unindex(at.namedKey)
			receipt.Keywords += keywords
			receipt.Vectors += vectors
		}
	}
	receipt.Records += len(records)
	tx.clearCandidates(row)
	switch row.kind {
	case eraseMemory:
		tx.leaveLessons(receipt.Subject, "forgotten")
	case eraseSubject:
		tx.leaveLessons(receipt.Subject, "erased")
		for at, p := range d.participants.rows {
			if at.tenant == tx.scope.Tenant && at.user == receipt.Subject && p.RemovedAt == nil {
				p.RemovedBy, p.RemovedAt = receipt.By, cloneTime(&tx.now)
				d.participants.put(tx, at, p)
			}
		}
	}
}

// clearCandidates clears a user's candidates; with a record those that it was made
// from or that were merged with it, and of its room and key those that nobody has
// decided about: they may say the same again.
func (tx *tx) clearCandidates(row *erasureRow) {
	d, user, erased := tx.data, row.receipt.Subject, row.kind == eraseSubject
	for at, c := range d.candidates.rows {
		if at.tenant != tx.scope.Tenant || c.Room.Scope.User != user {
			continue
		}
		left := c.Content != nil || c.ValueHash != ""
		if row.kind == eraseRecord {
			left = left && d.about(c, row.record)
		} else {
			left = left || !c.State.Final() || erased && c.request != ""
		}
		if !left {
			continue
		}
		c.close(agent.MemoryDeclined, row.receipt.By, tx.now)
		if c.ValueHash = ""; erased {
			c.request = ""
		}
		d.candidates.put(tx, at, c)
		row.receipt.Candidates++
	}
}

// about reports whether a record was made from a candidate or merged with it, or
// could be what the candidate says.
func (d *data) about(c candidateRow, record string) bool {
	return c.Record == record || d.anyRecord(c.Room.Scope.Tenant, func(r db.MemoryRecord) bool {
		return r.ID == record && (r.CandidateID == c.ID ||
			!c.State.Final() && r.Key == c.Key && r.Scope == c.Scope && r.Environment == c.Room.Scope.Environment)
	})
}

// leaveLessons leaves alone what was to be learned from a user's runs.
func (tx *tx) leaveLessons(user, why string) {
	for at, row := range tx.data.lessons.rows {
		if run, _ := tx.data.runs.get(at); at.tenant == tx.scope.Tenant && run.Scope.User == user && row.status == lessonDue {
			row.status, row.failure, row.updatedAt = lessonFailed, why, tx.now
			tx.data.lessons.put(tx, at, row)
		}
	}
}

// clearContent removes what the keys of a user seal elsewhere.
func (tx *tx) clearContent(user string) {
	d, tenant := tx.data, tx.scope.Tenant
	for at, m := range d.messages.rows {
		if conv, _ := d.conversations.get(namedKey{tenant, m.Conversation}); at.tenant == tenant && conv.User == user {
			m.Content = ""
			d.messages.put(tx, at, m)
		}
	}
	for at, e := range d.entries.rows {
		if conv, _ := d.conversations.get(at.namedKey); at.tenant == tenant && conv.User == user {
			e.Value = ""
			d.entries.put(tx, at, e)
		}
	}
	ours := func(key runKey) bool {
		run, _ := d.runs.get(key)
		return key.tenant == tenant && run.Scope.User == user
	}
	for at, a := range d.attempts.rows {
		if ours(at.runKey) {
			a.response = ""
			d.attempts.put(tx, at, a)
		}
	}
	for at, c := range d.calls.rows {
		if ours(at.runKey) {
			c.Arguments, c.Envelope, c.note = "", "", ""
			d.calls.put(tx, at, c)
		}
	}
	for at := range d.results.rows {
		if ours(at.runKey) {
			d.results.put(tx, at, "")
		}
	}
	for at, p := range d.plans.rows {
		if ours(at.runKey) {
			p.Summary = ""
			d.plans.put(tx, at, p)
		}
	}
}
