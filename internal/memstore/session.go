package memstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// AppendSession implements activities.Tx.
func (tx *tx) AppendSession(conv db.Conversation, runID string, entries []db.SessionEntry) {
	for _, e := range entries {
		e = cloneEntry(e)
		e.RunID, e.Seq = runID, conv.LastSeq
		tx.queue(func() error { return tx.insertEntry(conv.ID, e) })
	}
}

// insertEntry stores an entry unless its run, call, kind and key are there.
func (tx *tx) insertEntry(conversation string, e db.SessionEntry) error {
	d, tenant := tx.data, tx.scope.Tenant
	if err := first(
		check(e.Key != "", "session_entry_key_check"),
		check(e.Kind == db.EntryFact || e.Kind == db.EntryProhibition || e.Kind == db.EntryLift, "session_entry_kind_check"),
		texts(append([]string{e.Key, e.Value, e.MessageID, e.RunID, e.CallID, e.Tool, e.ToolVersion}, e.Tools...)...),
	); err != nil {
		return err
	}
	at := entryKey{namedKey{tenant, conversation}, e.RunID, e.CallID, e.Kind, e.Key}
	if _, taken := d.entries.get(at); taken {
		return nil
	}
	if _, ok := d.conversations.get(at.namedKey); !ok {
		return absent("session_entry_conversation_fkey")
	}
	// Entries are never deleted, so their number orders them.
	e.Version, e.At = int64(len(d.entries.rows)+1), tx.now
	d.entries.put(tx, at, e)
	return nil
}

// storeFacts stores what a call's result settled, unless a newer generation of the
// conversation has begun.
func (tx *tx) storeFacts(c callRow, runID string, facts []db.SessionEntry) error {
	run, ok := tx.data.run(tx.scope.Tenant, runID)
	if !ok || run.Superseded() {
		return nil
	}
	conv, _ := tx.data.conversations.get(namedKey{tx.scope.Tenant, run.Conversation})
	for _, f := range facts {
		err := tx.insertEntry(run.Conversation, db.SessionEntry{
			Kind: db.EntryFact, Key: f.Key, Value: f.Value, Seq: conv.LastSeq,
			RunID: runID, CallID: c.ID, Tool: c.Tool, ToolVersion: c.ToolVersion,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// session is what holds in a conversation.
func (d *data) session(tenant, conversation string) (state db.SessionState) {
	facts := map[string]db.SessionEntry{}
	lifted := map[string]int64{}
	var prohibitions []db.SessionEntry
	for at, e := range d.entries.rows {
		if at.namedKey != (namedKey{tenant, conversation}) {
			continue
		}
		e = cloneEntry(e)
		switch e.Kind {
		case db.EntryFact:
			if older, known := facts[e.Key]; !known || newer(e, older) {
				facts[e.Key] = e
			}
		case db.EntryProhibition:
			prohibitions = append(prohibitions, e)
		case db.EntryLift:
			lifted[e.Key] = max(lifted[e.Key], e.Version)
		}
	}
	newestFirst := func(a, b db.SessionEntry) int { return cmp.Compare(b.Version, a.Version) }
	for _, e := range facts {
		state.Facts = append(state.Facts, e)
	}
	slices.SortFunc(state.Facts, newestFirst)
	state.Facts = state.Facts[:min(len(state.Facts), agent.MaxFacts)]
	slices.SortFunc(state.Facts, func(a, b db.SessionEntry) int { return cmp.Compare(a.Key, b.Key) })
	for _, p := range prohibitions {
		if p.Version > lifted[p.Key] {
			state.Prohibitions = append(state.Prohibitions, p)
		}
	}
	slices.SortFunc(state.Prohibitions, func(a, b db.SessionEntry) int { return cmp.Compare(a.Version, b.Version) })
	state.Prohibitions = state.Prohibitions[max(0, len(state.Prohibitions)-db.MaxProhibitions):]
	return state
}

// newer reports whether a fact replaces another one of its key. Of one run's the
// order of its calls decides, not the order in which they came back.
func newer(a, b db.SessionEntry) bool {
	aStep, aIndex := callOrder(a.CallID)
	bStep, bIndex := callOrder(b.CallID)
	return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(aStep, bStep), cmp.Compare(aIndex, bIndex), cmp.Compare(a.Version, b.Version)) > 0
}

// callOrder is the place of a call in its run; what the user confirmed comes
// before all of them.
func callOrder(callID string) (step, index int) {
	first, second, _ := strings.Cut(callID, ".")
	return number(first), number(second)
}

func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

func cloneEntry(e db.SessionEntry) db.SessionEntry {
	e.Tools = slices.Clone(e.Tools)
	return e
}

// Session is db.DB.Session.
func (s *Store) Session(ctx context.Context, scope agent.Scope, conversation string) (state db.SessionState, err error) {
	err = s.read(ctx, scope, func(d *data) error {
		conv, ok := d.conversations.get(namedKey{scope.Tenant, conversation})
		if !ok || !owns(scope, conv) {
			return missing
		}
		state = d.session(scope.Tenant, conversation)
		return nil
	})
	return state, wrap("load session", err)
}

func owns(scope agent.Scope, conv db.Conversation) bool {
	return conv.User == scope.User && conv.Environment == scope.Environment
}
