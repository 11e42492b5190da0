package db

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// Snapshot is a point that a conversation can go back to (CONV-4). Nothing is
// copied: messages and session entries are never changed or deleted.
type Snapshot struct {
	// ID is unique within the conversation, such as "s3".
	ID           string
	Conversation string
	Branch       int
	// Seq is the newest message of the snapshot, zero before the first.
	Seq   int64
	Label string
	// Safety says that a rollback made it, of what it left behind.
	Safety    bool
	CreatedBy string
	CreatedAt time.Time
}

// Rollback says what going back amounted to.
type Rollback struct {
	To Snapshot
	// Safety is the state that was left behind.
	Safety Snapshot
	// Version is the conversation's afterwards.
	Version int64
	// Hidden counts the messages that are no longer part of the conversation.
	Hidden int
	// OpenRuns are fenced: they end superseded. Their workflows want the
	// supersede signal of Generation.
	OpenRuns   []OpenRun
	Generation int64
	// Writes are the effects of tools that happened after the snapshot, or less
	// than a minute before it: clocks differ. They are not undone.
	Writes []SnapshotWrite
}

// SnapshotWrite is an effect that a rollback left as it is.
type SnapshotWrite struct {
	RunID, CallID, Tool string
	Result              WriteResult
}

// TakeSnapshot records the state of a tenant's conversation: ErrNotFound if
// there is none. by says who did it, label is an operator's own word.
func (db *DB) TakeSnapshot(ctx context.Context, tenant, conversation, label, by string) (Snapshot, error) {
	if tenant == "" {
		return Snapshot{}, ErrScope
	}
	var taken Snapshot
	err := db.inTx(ctx, agent.Scope{Tenant: tenant}, func(tx *Tx) error {
		at, err := tx.holdLine(ctx, conversation)
		if err != nil {
			return err
		}
		taken, err = tx.snapshot(ctx, conversation, at, Snapshot{Label: label, CreatedBy: by})
		return err
	})
	if err != nil {
		return Snapshot{}, fmt.Errorf("take snapshot: %w", err)
	}
	return taken, nil
}

// RollBack makes a conversation what it was at a snapshot, in one transaction
// and one at a time. What it was before is kept as a snapshot. The version and
// generation rise, so that runs of the old line are fenced. ErrNotFound if there
// is no such conversation or snapshot.
func (db *DB) RollBack(ctx context.Context, tenant, conversation, snapshotID, by string) (Rollback, error) {
	if tenant == "" {
		return Rollback{}, ErrScope
	}
	var done Rollback
	err := db.inTx(ctx, agent.Scope{Tenant: tenant}, func(tx *Tx) (err error) {
		tx.write(exec(tx.q.LockRollback, dbsqlc.LockRollbackParams{Tenant: tenant, ConversationID: conversation}))
		done, err = tx.rollBack(ctx, conversation, snapshotID, by)
		return err
	})
	if err != nil {
		return Rollback{}, fmt.Errorf("roll back: %w", err)
	}
	return done, nil
}

// Snapshots lists a conversation's snapshots, newest first.
func (db *DB) Snapshots(ctx context.Context, tenant, conversation string) ([]Snapshot, error) {
	var rows []dbsqlc.ConversationSnapshot
	err := db.inTenant(ctx, agent.Scope{Tenant: tenant}, one(db.q.SnapshotsOfConversation, dbsqlc.SnapshotsOfConversationParams{
		Tenant: tenant, ConversationID: conversation,
	}, &rows))
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	list := make([]Snapshot, len(rows))
	for i, row := range rows {
		list[i] = toSnapshot(row)
	}
	return list, nil
}

// line is where a conversation is.
type line struct {
	dbsqlc.HoldLineRow
	// seq is the newest message.
	seq int64
}

// path names lines; of each the messages up to until and the session entries up
// to entries belong.
type path struct {
	lines          []int32
	until, entries []int64
}

// holdLine holds a conversation for the rest of the transaction.
func (tx *Tx) holdLine(ctx context.Context, conversation string) (at line, err error) {
	tenant := tx.scope.Tenant
	err = tx.read(ctx,
		one(tx.q.HoldLine, dbsqlc.HoldLineParams{Tenant: tenant, ConversationID: conversation}, &at.HoldLineRow),
		one(tx.q.NewestSeq, dbsqlc.NewestSeqParams{Tenant: tenant, ConversationID: conversation}, &at.seq),
	)
	return at, err
}

// pathOf reads the path of a line, which ends with itself, whole.
func (tx *Tx) pathOf(ctx context.Context, conversation string, branch int32) (path, error) {
	if branch == 0 {
		return path{[]int32{0}, []int64{math.MaxInt64}, []int64{math.MaxInt64}}, nil
	}
	var row dbsqlc.GetBranchRow
	err := tx.read(ctx, one(tx.q.GetBranch, dbsqlc.GetBranchParams{Tenant: tx.scope.Tenant, ConversationID: conversation, Branch: branch}, &row))
	return path{row.Path, row.Until, row.Entries}, err
}

// fork is a path that leaves p behind a message and a session entry.
func (p path) fork(seq, entry int64, branch int32) path {
	f := path{append(slices.Clone(p.lines), branch), nil, nil}
	for i := range p.lines {
		f.until = append(f.until, min(p.until[i], seq))
		f.entries = append(f.entries, min(p.entries[i], entry))
	}
	f.until, f.entries = append(f.until, math.MaxInt64), append(f.entries, math.MaxInt64)
	return f
}

// snapshot records where a conversation is.
func (tx *Tx) snapshot(ctx context.Context, conversation string, at line, s Snapshot) (Snapshot, error) {
	var row dbsqlc.InsertSnapshotRow
	err := tx.read(ctx, one(tx.q.InsertSnapshot, dbsqlc.InsertSnapshotParams{
		Tenant: tx.scope.Tenant, ConversationID: conversation, Branch: at.Branch, Seq: at.seq, Entries: at.Entries,
		Label: s.Label, Safety: s.Safety, CreatedBy: s.CreatedBy,
	}, &row))
	s.ID, s.Conversation, s.Branch, s.Seq, s.CreatedAt = snapshotID(row.Number), conversation, int(at.Branch), at.seq, row.CreatedAt
	return s, err
}

func (tx *Tx) rollBack(ctx context.Context, conversation, id, by string) (done Rollback, err error) {
	tenant := tx.scope.Tenant
	wanted, ok := snapshotNumber(id)
	if !ok {
		return done, ErrNotFound
	}
	at, err := tx.holdLine(ctx, conversation)
	if err != nil {
		return done, err
	}
	var (
		to     dbsqlc.ConversationSnapshot
		newest int32
		open   []dbsqlc.OpenRunsRow
	)
	err = tx.read(ctx,
		one(tx.q.GetSnapshot, dbsqlc.GetSnapshotParams{Tenant: tenant, ConversationID: conversation, Number: wanted}, &to),
		one(tx.q.NewestBranch, dbsqlc.NewestBranchParams{Tenant: tenant, ConversationID: conversation}, &newest),
		one(tx.q.OpenRuns, dbsqlc.OpenRunsParams{Tenant: tenant, ConversationID: conversation}, &open),
	)
	if err != nil {
		return done, err
	}
	old, err := tx.pathOf(ctx, conversation, at.Branch)
	if err != nil {
		return done, err
	}
	parent, err := tx.pathOf(ctx, conversation, to.Branch)
	if err != nil {
		return done, err
	}
	branch := newest + 1
	line := parent.fork(to.Seq, to.Entries, branch)
	if done.Safety, err = tx.snapshot(ctx, conversation, at, Snapshot{Safety: true, CreatedBy: by}); err != nil {
		return done, err
	}
	var (
		hidden int64
		writes []dbsqlc.WritesSinceRow
	)
	err = tx.read(ctx,
		exec(tx.q.InsertBranch, dbsqlc.InsertBranchParams{
			Tenant: tenant, ConversationID: conversation, Branch: branch, Path: line.lines, Until: line.until, Entries: line.entries,
			Snapshot: wanted, CreatedBy: by,
		}),
		exec(tx.q.TakeBranch, dbsqlc.TakeBranchParams{Tenant: tenant, ConversationID: conversation, Branch: branch}),
		one(tx.q.CountHidden, dbsqlc.CountHiddenParams{
			Tenant: tenant, ConversationID: conversation, OldPath: old.lines, OldUntil: old.until, NewPath: line.lines, NewUntil: line.until,
		}, &hidden),
		one(tx.q.WritesSince, dbsqlc.WritesSinceParams{Tenant: tenant, ConversationID: conversation, Since: to.CreatedAt}, &writes),
	)
	if err != nil {
		return done, err
	}
	done.To, done.Version, done.Generation, done.Hidden = toSnapshot(to), at.Version+1, at.Generation+1, int(hidden)
	for _, o := range open {
		done.OpenRuns = append(done.OpenRuns, OpenRun(o))
	}
	for _, w := range writes {
		done.Writes = append(done.Writes, SnapshotWrite{RunID: w.RunID, CallID: w.CallID, Tool: w.Tool, Result: WriteResult(w.Outcome)})
	}
	return done, nil
}

func toSnapshot(row dbsqlc.ConversationSnapshot) Snapshot {
	return Snapshot{
		ID: snapshotID(row.Number), Conversation: row.ConversationID, Branch: int(row.Branch), Seq: row.Seq, Label: row.Label,
		Safety: row.Safety, CreatedBy: row.CreatedBy, CreatedAt: row.CreatedAt,
	}
}

func snapshotID(number int32) string { return fmt.Sprintf("s%d", number) }

// snapshotNumber is the inverse of snapshotID.
func snapshotNumber(id string) (int32, bool) {
	digits, ok := strings.CutPrefix(id, "s")
	n, err := strconv.ParseInt(digits, 10, 32)
	return int32(n), ok && err == nil && snapshotID(int32(n)) == id
}
