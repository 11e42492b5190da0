package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// toolCall is a call as db.DB.ToolCall has it.
func (c callRow) toolCall() db.ToolCall {
	call := c.ToolCall
	call.ProviderCallID, call.Envelope = "", ""
	call.Error = cloneError(call.Error)
	return call
}

func cloneError(e *agent.ToolError) *agent.ToolError {
	if e == nil {
		return nil
	}
	clone := *e
	return &clone
}

// InsertToolCalls implements activities.Tx.
func (tx *tx) InsertToolCalls(runID string, calls []db.ToolCall) {
	for _, c := range calls {
		row := callRow{proposedAt: tx.now, ToolCall: db.ToolCall{
			ID: c.ID, Step: c.Step, Index: c.Index, ProviderCallID: c.ProviderCallID, Tool: c.Tool, ToolVersion: c.ToolVersion,
			Risk: c.Risk, Arguments: c.Arguments, ArgumentsHash: c.ArgumentsHash, Status: c.Status, Error: cloneError(c.Error), Envelope: c.Envelope,
		}}
		if c.Status == db.CallRefused {
			row.endedAt = tx.clock()
		}
		tx.queue(func() error { return tx.insertCall(callKey{tx.key(runID), c.ID}, row) })
	}
}

func (tx *tx) insertCall(at callKey, row callRow) error {
	d := tx.data
	if err := first(
		check(row.Step >= 0, "tool_call_step_check"), check(row.Index >= 0, "tool_call_idx_check"),
		check(row.Risk == "" || row.Risk == "read" || row.Risk == "write", "tool_call_risk_check"),
		check(validCallStatus(row.Status), "tool_call_status_check"),
		texts(row.ProviderCallID, row.Tool, row.ToolVersion, row.Arguments, row.Envelope),
	); err != nil {
		return err
	}
	if _, taken := d.calls.get(at); taken {
		return conflict("tool_call_pkey")
	}
	for other, c := range d.calls.rows {
		if other.runKey == at.runKey && c.Step == row.Step && c.Index == row.Index {
			return conflict("tool_call_step_key")
		}
	}
	if _, ok := d.runs.get(at.runKey); !ok {
		return absent("tool_call_run_fkey")
	}
	d.calls.put(tx, at, row)
	return nil
}

func validCallStatus(s db.CallStatus) bool {
	switch s {
	case db.CallProposed, db.CallRefused, db.CallRunning, db.CallSucceeded, db.CallFailed, db.CallAbandoned, db.CallUnknown:
		return true
	}
	return false
}

// StartToolCall implements activities.Tx.
func (tx *tx) StartToolCall(runID, callID string) {
	tx.queue(func() error {
		at := callKey{tx.key(runID), callID}
		c, ok := tx.data.calls.get(at)
		if !ok || c.Status != db.CallProposed && c.Status != db.CallRunning {
			return nil
		}
		c.Status, c.Executions, c.startedAt = db.CallRunning, c.Executions+1, tx.now
		tx.data.calls.put(tx, at, c)
		return nil
	})
}

// FinishToolCall implements activities.Tx.
func (tx *tx) FinishToolCall(runID, callID string, o db.CallOutcome, recorded *bool) {
	content, failed, facts := string(o.Content), cloneError(o.Error), slices.Clone(o.Facts)
	tx.queue(func() error {
		*recorded = false
		d, at := tx.data, callKey{tx.key(runID), callID}
		c, ok := d.calls.get(at)
		if !ok || c.Status != db.CallProposed && c.Status != db.CallRunning && c.Status != db.CallUnknown {
			return nil
		}
		if err := texts(o.Envelope, o.Note); err != nil {
			return err
		}
		c.Status, c.Error, c.Envelope, c.ResultHash, c.endedAt = db.CallFailed, failed, o.Envelope, o.ResultHash, tx.now
		c.note, c.Executions = o.Note, max(c.Executions, 1)
		if c.startedAt.IsZero() {
			c.startedAt = micros(o.StartedAt)
		}
		if failed == nil {
			c.Status = db.CallSucceeded
			if err := first(
				check(o.ContentType == "application/json" || o.ContentType == "text/plain", "tool_result_content_type_check"),
				check(isHash(o.ResultHash), "tool_result_hash_check"),
			); err != nil {
				return err
			}
			d.results.put(tx, at, content)
			if err := tx.storeFacts(c, runID, facts); err != nil {
				return err
			}
		}
		d.calls.put(tx, at, c)
		*recorded = true
		return nil
	})
}

// completed returns the newest calls that were carried out, or may have been, in
// order, and the count of all; the count is 0 if no call is asked for.
func (d *data) completed(key runKey, most int) (actions []agent.CompletedAction, total int) {
	var done []callRow
	for at, c := range d.calls.rows {
		if at.runKey == key && (c.Status == db.CallSucceeded || c.Status == db.CallFailed || c.Status == db.CallUnknown) {
			done = append(done, c)
		}
	}
	slices.SortFunc(done, func(a, b callRow) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Index, b.Index)) })
	for _, c := range done[max(0, len(done)-most):] {
		total = len(done)
		action := agent.CompletedAction{CallID: c.ID, Tool: c.Tool}
		switch {
		case c.Status == db.CallUnknown:
			action.Error = agent.ToolOutcomeUnknown
		case c.Error != nil:
			action.Error = c.Error.Code
		}
		actions = append(actions, action)
	}
	return actions, total
}

// report is a call as reports have it.
func (c callRow) report(resultBytes int) db.CallReport {
	return db.CallReport{
		ID: c.ID, Step: c.Step, Index: c.Index, Tool: c.Tool, ToolVersion: c.ToolVersion, Risk: c.Risk,
		ArgumentsHash: c.ArgumentsHash, ResultHash: c.ResultHash, Status: c.Status, Error: cloneError(c.Error), Executions: c.Executions,
		ResultBytes: int64(resultBytes), EnvelopeBytes: int64(len(c.Envelope)),
		ProposedAt: c.proposedAt, StartedAt: c.startedAt, EndedAt: micros0(c.endedAt),
	}
}

// micros0 is micros that leaves "not yet" alone.
func micros0(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return micros(t)
}
