package memstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// LoadBegin implements activities.Tx.
func (tx *tx) LoadBegin(ctx context.Context, q db.BeginQuery) (state db.BeginState, err error) {
	d, tenant, conversation := tx.data, tx.scope.Tenant, q.Conversation
	err = tx.read(ctx, func() error {
		key := namedKey{tenant, conversation}
		conv, ok := d.conversations.get(key)
		if !ok {
			if err := first(check(conversation != "", "conversation_id_check"), texts(conversation, q.Group, q.Project)); err != nil {
				return err
			}
			conv = db.Conversation{ID: conversation, User: tx.scope.User, Environment: tx.scope.Environment, Group: q.Group, Project: q.Project}
			d.conversations.put(tx, key, conv)
		}
		limits, _ := d.limits.get(tenant)
		state = db.BeginState{Conversation: conv, Limits: cloneLimits(limits), Used: d.used(tenant, tx.scope.User, q.Day)}
		state.Erased = d.erased(tenant, tx.scope.User)
		state.Outsider = !d.takesPart(tenant, tx.scope.User, q.Group, q.Project)
		if run, ok := d.run(tenant, q.RunID); ok {
			state.Run = &run
		}
		for key, r := range d.runs.rows {
			if key.tenant == tenant && r.Conversation == conversation && !r.Status.Terminal() {
				state.OpenRuns = append(state.OpenRuns, db.OpenRun{ID: r.ID, Generation: r.Generation})
			}
		}
		if owns(tx.scope, conv) {
			state.Session = d.session(tenant, conversation)
		}
		slices.SortFunc(state.OpenRuns, func(a, b db.OpenRun) int { return cmp.Compare(a.Generation, b.Generation) })
		return nil
	})
	return state, wrap("load conversation", err)
}

// StoreDefinition implements activities.Tx.
func (tx *tx) StoreDefinition(def db.Definition) {
	body := string(def.Body)
	tx.queue(func() error {
		if _, ok := tx.data.definitions.get(def.Digest); ok {
			return nil
		}
		if !json.Valid([]byte(body)) {
			return &db.Error{Code: "22P02"}
		}
		if err := first(check(isHash(def.Digest), "agent_definition_digest_check"), texts(def.Name, def.Version, body)); err != nil {
			return err
		}
		tx.data.definitions.put(tx, def.Digest, body)
		return nil
	})
}

// AppendMessage implements activities.Tx.
func (tx *tx) AppendMessage(conv *db.Conversation, m db.Message, submit bool) {
	submits := int64(0)
	if submit {
		submits = 1
	}
	conv.LastSeq++
	conv.Version += submits
	conv.Generation += submits
	m.Conversation, m.Seq = conv.ID, conv.LastSeq
	d, tenant := tx.data, tx.scope.Tenant
	tx.queue(func() error {
		key := namedKey{tenant, m.Conversation}
		stored, known := d.conversations.get(key)
		if known {
			stored.Version, stored.Generation, stored.LastSeq = stored.Version+submits, stored.Generation+submits, stored.LastSeq+1
			d.conversations.put(tx, key, stored)
		}
		at := namedKey{tenant, m.ID}
		if err := first(
			texts(m.ID, m.Content, m.RunID, m.ParentID), check(m.ID != "", "message_id_check"),
			check(m.Role == db.RoleUser || m.Role == db.RoleAssistant, "message_role_check"),
			check(m.Visibility == db.Visible || m.Visibility == db.Partial || m.Visibility == db.Hidden, "message_visibility_check"),
		); err != nil {
			return err
		}
		if _, taken := d.messages.get(at); taken {
			return conflict("message_pkey")
		}
		for other, row := range d.messages.rows {
			if other.tenant == tenant && row.Conversation == m.Conversation && row.Seq == m.Seq {
				return conflict("message_seq_key")
			}
		}
		if !known {
			return absent("message_conversation_fkey")
		}
		m.CreatedAt = tx.now
		d.messages.put(tx, at, m)
		return nil
	})
}

// KeyedHash implements activities.Tx. There are no keys here.
func (tx *tx) KeyedHash(text string) string { return db.ContentHash(text) }

// InsertRun implements activities.Tx.
func (tx *tx) InsertRun(r db.Run) {
	r.Flags = append([]string{}, r.Flags...)
	r.Scope = tx.scope
	d := tx.data
	tx.queue(func() error {
		key := tx.key(r.ID)
		row := db.Run{
			ID: r.ID, Scope: r.Scope, Conversation: r.Conversation, Generation: r.Generation, Agent: r.Agent,
			DefinitionVersion: r.DefinitionVersion, DefinitionDigest: r.DefinitionDigest, Page: r.Page, Flags: r.Flags,
			Status: agent.StatusQueued, Budget: r.Budget, Deadline: micros(r.Deadline), WorkflowID: r.WorkflowID,
			RequestHash: r.RequestHash, QuestionID: r.QuestionID, CreatedAt: tx.now, Version: 1,
		}
		if err := first(
			texts(r.ID, r.Agent, r.Page), check(r.ID != "", "run_id_check"), check(r.Generation > 0, "run_generation_check"),
			check(r.Budget.MaxSteps > 0, "run_max_steps_check"), check(r.Budget.MaxToolCalls >= 0, "run_max_tool_calls_check"),
			check(r.Budget.MaxTokens > 0, "run_max_tokens_check"), check(r.Budget.MaxCostMicros >= 0, "run_max_cost_micros_check"),
			check(r.Budget.Timeout > 0, "run_timeout_ns_check"), check(isHash(r.RequestHash), "run_request_hash_check"),
		); err != nil {
			return err
		}
		if _, taken := d.runs.get(key); taken {
			return conflict("run_pkey")
		}
		for other, run := range d.runs.rows {
			if other.tenant == key.tenant && run.Conversation == r.Conversation && run.Generation == r.Generation {
				return conflict("run_generation_key")
			}
		}
		if _, ok := d.definitions.get(r.DefinitionDigest); !ok {
			return absent("run_definition_digest_fkey")
		}
		if _, ok := d.conversations.get(namedKey{key.tenant, r.Conversation}); !ok {
			return absent("run_conversation_fkey")
		}
		if _, ok := d.messages.get(namedKey{key.tenant, r.QuestionID}); !ok {
			return absent("run_question_fkey")
		}
		d.runs.put(tx, key, row)
		return d.transition(tx, key, db.Transition{Seq: row.Version, To: agent.StatusQueued, At: tx.now})
	})
}

// AdmitRun implements activities.Tx.
func (tx *tx) AdmitRun(runID string, limits db.Limits, admitted *bool) {
	d := tx.data
	limits = cloneLimits(limits)
	tx.queue(func() error {
		*admitted = false
		key := tx.key(runID)
		var ofTenant, ofUser int64
		for other, r := range d.runs.rows {
			// A run that outlived its deadline by the grace holds no slot.
			if other.tenant == key.tenant && r.Status == agent.StatusRunning && r.Deadline.After(tx.now.Add(-agent.EndGrace)) {
				ofTenant++
				if r.Scope.User == tx.scope.User {
					ofUser++
				}
			}
		}
		run, ok := d.runs.get(key)
		if !ok || run.Status != agent.StatusQueued || ofTenant >= orUnlimited(limits.MaxRunning) || ofUser >= orUnlimited(limits.MaxRunningPerUser) {
			return nil
		}
		run.Status, run.StartedAt, run.Version = agent.StatusRunning, tx.now, run.Version+1
		d.runs.put(tx, key, run)
		err := d.transition(tx, key, db.Transition{Seq: run.Version, From: agent.StatusQueued, To: agent.StatusRunning, At: tx.now})
		*admitted = err == nil
		return err
	})
}

// MoveRun implements activities.Tx.
func (tx *tx) MoveRun(r db.Run, m db.Move) error {
	if !r.Status.CanBecome(m.To) {
		return &agent.TransitionError{From: r.Status, To: m.To}
	}
	if m.At.IsZero() {
		m.At = tx.clock()
	}
	deadline, waiting := r.Deadline, time.Time{}
	switch m.To {
	case agent.StatusWaitingConfirmation:
		waiting = m.At
	case agent.StatusRunning:
		deadline = r.DeadlineAt(m.At)
	default:
	}
	var use *agent.MemoryUse
	if m.Memory != nil {
		copied := *m.Memory
		use = &copied
	}
	d := tx.data
	tx.queue(func() error {
		key := tx.key(r.ID)
		// Of two moves from one version the second fails on the transition.
		err := d.transition(tx, key, db.Transition{Seq: r.Version + 1, From: r.Status, To: m.To, Reason: m.Reason, At: tx.now})
		if err != nil {
			return err
		}
		run, ok := d.runs.get(key)
		if !ok || run.Status != r.Status || run.Version != r.Version {
			return nil
		}
		if err := first(
			texts(m.Detail), check(reasonFits(m), "run_end_reason_check"), check(m.Reason == "" || m.Reason.Valid(), "run_reason_check"),
		); err != nil {
			return err
		}
		if _, ok := d.messages.get(namedKey{key.tenant, m.AnswerID}); m.AnswerID != "" && !ok {
			return absent(db.ConstraintAnswer)
		}
		run.Status, run.Reason, run.Detail, run.AnswerID = m.To, m.Reason, m.Detail, m.AnswerID
		run.Step, run.ToolCalls, run.Version = m.Step, m.ToolCalls, run.Version+1
		run.Deadline, run.WaitingSince, run.Memory = micros(deadline), time.Time{}, use
		if !waiting.IsZero() {
			run.WaitingSince = micros(waiting)
		}
		run.EndedAt = time.Time{}
		if m.To.Terminal() {
			run.EndedAt = tx.now
		}
		d.runs.put(tx, key, run)
		return nil
	})
	return nil
}

// reasonFits is run_end_reason_check.
func reasonFits(m db.Move) bool {
	switch m.To {
	case agent.StatusSucceeded:
		return m.Reason == agent.ReasonFinal && m.AnswerID != ""
	case agent.StatusCanceled, agent.StatusFailed:
		return m.Reason != "" && m.Reason.Status() == m.To
	default:
		return m.Reason == ""
	}
}

// CloseRun implements activities.Tx.
func (tx *tx) CloseRun(ctx context.Context, runID, answerID string, maxActions int) (state db.EndState, err error) {
	d, key := tx.data, tx.key(runID)
	err = tx.read(ctx, func() error {
		run, ok := d.run(key.tenant, runID)
		if !ok {
			return missing
		}
		state.Run = run
		_, state.Answered = d.messages.get(namedKey{key.tenant, answerID})
		tx.endOpenWork(key)
		for at, i := range d.intents.rows {
			if at.tenant == key.tenant && i.RunID == runID && i.Result == db.WriteUnknown {
				state.UnknownWrites++
			}
		}
		state.Totals = d.totals(key)
		state.Actions, state.ToolCalls = d.completed(key, maxActions)
		conv := namedKey{key.tenant, run.Conversation}
		from := d.summarizedUntil(conv) + 1
		state.Unsummarized, state.SummaryFailures = min(len(d.unsummarized(conv, from)), maxCounted), d.summaryFailures(conv, from)
		return nil
	})
	if err == nil && state.Run.Scope != tx.scope {
		err = db.ErrNotFound
	}
	if err != nil {
		return db.EndState{}, fmt.Errorf("close run: %w", err)
	}
	return state, nil
}

// endOpenWork ends what is open in a run: attempts, plans, intents and calls.
func (tx *tx) endOpenWork(key runKey) {
	d := tx.data
	for at, a := range d.attempts.rows {
		if at.runKey == key && a.Status == db.AttemptStarted {
			a.Status, a.EndedAt = db.AttemptLost, tx.now
			d.attempts.put(tx, at, a)
			d.ledger.put(tx, ledgerKey{at, settle}, ledgerRow{amount: a.reserved})
		}
	}
	for at, p := range d.plans.rows {
		if at.runKey == key && p.Status == db.PlanPending {
			p.Status, p.DecidedAt = db.PlanWithdrawn, tx.now
			d.plans.put(tx, at, p)
		}
	}
	// What a call without an outcome amounts to, if it is a write that was begun.
	begun := map[string]db.CallStatus{}
	for at, i := range d.intents.rows {
		if at.tenant != key.tenant || i.RunID != key.run {
			continue
		}
		if i.Result == db.WriteOpen {
			i.Result, i.ResolvedAt = db.WriteUnknown, tx.now
			d.intents.put(tx, at, i)
		}
		switch i.Result {
		case db.WritePerformed:
			begun[i.CallID] = db.CallSucceeded
		case db.WriteNotPerformed:
			begun[i.CallID] = db.CallFailed
		default:
			begun[i.CallID] = db.CallUnknown
		}
	}
	for at, c := range d.calls.rows {
		if at.runKey == key && (c.Status == db.CallProposed || c.Status == db.CallRunning) {
			c.Status, c.endedAt = cmp.Or(begun[at.call], db.CallAbandoned), tx.now
			if c.Status == db.CallFailed {
				c.Error = &agent.ToolError{Code: agent.ToolFailed}
			}
			d.calls.put(tx, at, c)
		}
	}
}

func orUnlimited(limit *int64) int64 {
	if limit == nil {
		return math.MaxInt64
	}
	return *limit
}

func cloneLimits(l db.Limits) db.Limits {
	for _, p := range []**int64{&l.MaxRunning, &l.MaxRunningPerUser, &l.DailyTokens, &l.DailyCostMicros, &l.UserDailyTokens, &l.UserDailyCostMicros} {
		if *p != nil {
			v := **p
			*p = &v
		}
	}
	return l
}
