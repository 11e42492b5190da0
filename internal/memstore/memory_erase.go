package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
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
}

// ForgetMemory implements activities.Memory, in one step.
func (s *Store) ForgetMemory(ctx context.Context, in agent.ForgetInput, _ int) (step agent.ErasureStep, err error) {
	user := in.Room.Scope.User
	err = s.in(ctx, in.Room.Scope, func(tx *tx) error {
		kind := eraseMemory
		if in.Record != "" {
			kind = eraseRecord
		}
		row, err := tx.erasure(in.ID, erasureRow{kind: kind, record: in.Record, receipt: agent.ErasureReceipt{
			ID: in.ID, Tenant: in.Room.Scope.Tenant, Subject: user, By: in.By,
		}})
		if err != nil {
			return err
		}
		if row.done {
			step = agent.ErasureStep{Done: true, Receipt: row.receipt}
			return nil
		}
		mine := func(r db.MemoryRecord) bool {
			return (r.Subject == user || r.User == user) && (in.Record == "" || r.ID == in.Record)
		}
		if in.Record != "" && !tx.data.anyRecord(in.Room.Scope.Tenant, mine) {
			return missing
		}
		tx.forget(mine, in.By, &row.receipt)
		tx.clearCandidates(user, in.Record, &row.receipt)
		step.Done, step.Receipt = true, tx.erased(in.ID, row, true)
		return nil
	})
	return step, wrap("forget memory", err)
}

// EraseSubject implements activities.Memory. Instead of destroying keys it removes
// what they would have sealed.
func (s *Store) EraseSubject(ctx context.Context, in agent.EraseInput, _ int) (step agent.ErasureStep, err error) {
	err = s.in(ctx, background(in.Tenant), func(tx *tx) error {
		row, err := tx.erasure(in.ID, erasureRow{kind: eraseSubject, receipt: agent.ErasureReceipt{ID: in.ID, Tenant: in.Tenant, Subject: in.User, By: in.By}})
		if err != nil {
			return err
		}
		if row.done {
			step = agent.ErasureStep{Done: true, Receipt: row.receipt}
			return nil
		}
		for at, r := range tx.data.runs.rows {
			if at.tenant == in.Tenant && r.Scope.User == in.User && !r.Status.Terminal() {
				step.Blocked = "open_run"
			}
		}
		if step.Blocked == "" && tx.data.unsettled(in.Tenant, in.User) {
			step.Blocked = "unsettled_write"
		}
		tx.forget(func(r db.MemoryRecord) bool { return r.Subject == in.User || r.User == in.User }, in.By, &row.receipt)
		tx.clearCandidates(in.User, "", &row.receipt)
		if step.Done = step.Blocked == ""; step.Done {
			tx.clearContent(in.User)
			row.receipt.KeysDestroyed = true
		}
		step.Receipt = tx.erased(in.ID, row, step.Done)
		return nil
	})
	return step, wrap("erase subject", err)
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

// erasure returns the request of an ID, which is made if it is new.
func (tx *tx) erasure(id string, fresh erasureRow) (erasureRow, error) {
	row, known := tx.data.erasures.get(namedKey{tx.scope.Tenant, id})
	if !known {
		return fresh, check(id != "", "memory_erasure_id_check")
	}
	if row.kind != fresh.kind || row.record != fresh.record || row.receipt.Subject != fresh.receipt.Subject {
		return row, db.ErrOtherRequest
	}
	return row, nil
}

func (tx *tx) erased(id string, row erasureRow, done bool) agent.ErasureReceipt {
	if row.done = done; done {
		row.receipt.At = tx.now
	}
	tx.data.erasures.put(tx, namedKey{tx.scope.Tenant, id}, row)
	return row.receipt
}

func (d *data) anyRecord(tenant string, which func(db.MemoryRecord) bool) bool {
	for at, r := range d.records.rows {
		if at.tenant == tenant && which(r) {
			return true
		}
	}
	return false
}

// forget makes tombstones of records, and removes what they were found by.
func (tx *tx) forget(which func(db.MemoryRecord) bool, by string, receipt *agent.ErasureReceipt) {
	d := tx.data
	buried := map[namedKey]db.MemoryRecord{}
	for at, r := range d.records.rows {
		if at.tenant == tx.scope.Tenant && r.Status != db.MemoryDeleted && which(r) {
			tx.bury(at, r, by)
			buried[at.namedKey] = r
			receipt.Versions++
		}
	}
	for key, r := range buried {
		keywords, vectors := tx.unindex(key)
		receipt.Records++
		receipt.Keywords += keywords
		receipt.Vectors += vectors
		tx.note(db.MemoryAudit{Actor: by, Action: "forget", Subject: r.Subject, User: r.User, Record: key.id})
	}
}

// clearCandidates clears the content of a user's candidates, or with a record of
// those that it was made from.
func (tx *tx) clearCandidates(user, record string, receipt *agent.ErasureReceipt) {
	for at, c := range tx.data.candidates.rows {
		if at.tenant != tx.scope.Tenant || c.Room.Scope.User != user || c.Content == nil || record != "" && c.Record != record {
			continue
		}
		if c.Content = nil; !c.State.Final() {
			c.State = agent.MemoryExpired
		}
		c.request = ""
		tx.data.candidates.put(tx, at, c)
		receipt.Candidates++
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

// MemoryTenants implements activities.Memory.
func (s *Store) MemoryTenants(ctx context.Context) (list []string, err error) {
	err = s.everywhere(ctx, func(tx *tx) error {
		tenants := map[string]bool{}
		for at := range tx.data.records.rows {
			tenants[at.tenant] = true
		}
		for at := range tx.data.candidates.rows {
			tenants[at.tenant] = true
		}
		for at := range tx.data.lessons.rows {
			tenants[at.tenant] = true
		}
		list = slices.Sorted(maps.Keys(tenants))
		return nil
	})
	return list, wrap("list tenants with memory", err)
}

// ReconcileMemory implements activities.Memory.
func (s *Store) ReconcileMemory(ctx context.Context, tenant string, now, staleSince time.Time, limit int) (report agent.ReconcileReport, err error) {
	report.Tenants = 1
	err = s.in(ctx, background(tenant), func(tx *tx) error {
		d, left := tx.data, limit
		spend := func() bool {
			if left == 0 {
				report.More = true
				return false
			}
			left--
			return true
		}
		for at, r := range d.records.rows {
			if at.tenant == tenant && r.Status == db.MemoryActive && r.ExpiresAt != nil && !r.ExpiresAt.After(now) && spend() {
				tx.outlive(at, r)
				report.Expired++
			}
		}
		residue := map[namedKey]bool{}
		for at, row := range d.keywords.rows {
			residue[at] = residue[at] || !d.active(at, row.version)
		}
		for at, row := range d.vectors.rows {
			residue[at.namedKey] = residue[at.namedKey] || !d.active(at.namedKey, row.version)
		}
		for at, bad := range residue {
			if bad && at.tenant == tenant && spend() {
				tx.unindex(at)
				report.Residue++
			}
		}
		for at, c := range d.candidates.rows {
			if at.tenant == tenant && !c.State.Final() && c.UpdatedAt.Before(staleSince) && spend() {
				report.Writes = append(report.Writes, agent.MemoryWriteInput{ID: c.ID, Room: c.Room})
			}
		}
		for at, row := range d.lessons.rows {
			if lesson, ok := d.lesson(at); ok && at.tenant == tenant && row.status == lessonDue && row.updatedAt.Before(staleSince) && spend() {
				report.Lessons = append(report.Lessons, agent.LearnInput{Run: lesson.Run, Room: lesson.Room, DefinitionDigest: lesson.DefinitionDigest})
			}
		}
		slices.SortFunc(report.Writes, func(a, b agent.MemoryWriteInput) int { return cmp.Compare(a.ID, b.ID) })
		slices.SortFunc(report.Lessons, func(a, b agent.LearnInput) int { return cmp.Compare(a.Run.RunID, b.Run.RunID) })
		return nil
	})
	return report, wrap("reconcile memory", err)
}

func (d *data) active(key namedKey, version int) bool {
	r, ok := d.records.get(recordKey{key, version})
	return ok && r.Status == db.MemoryActive
}
