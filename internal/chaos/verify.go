package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// report is what came of a storm, in order.
type report struct {
	lines []line
	// differences say what is wrong.
	differences []string
	// log is the end of the workers' log.
	log string
}

type line struct {
	name  string
	value int
}

func (r *report) add(name string, value int) { r.lines = append(r.lines, line{name, value}) }

// none adds a count that must be zero; each of the texts is one.
func (r *report) none(name string, what []string) {
	r.add(name, len(what))
	for _, text := range what {
		r.differences = append(r.differences, name+": "+text)
	}
}

// value returns a count, or -1.
func (r report) value(name string) int {
	for _, l := range r.lines {
		if l.name == name {
			return l.value
		}
	}
	return -1
}

// print writes the counts, and at most a few of the differences.
func (r report) print(out io.Writer) {
	for i, text := range r.differences {
		if i == 20 {
			fmt.Fprintf(out, "... and %d more\n", len(r.differences)-i)
			break
		}
		fmt.Fprintln(out, text)
	}
	for _, l := range r.lines {
		fmt.Fprintf(out, "CHAOS %s %d\n", l.name, l.value)
	}
}

// intent is a row of write_intent with the plan that it carries out.
type intent struct {
	write      writeID
	key        string
	outcome    string
	resolvedBy string
	sends      int
	approvedBy string
	planStatus string
	tokenID    string
}

// verify compares what the workers recorded with what the ticket service, the
// people and the runs' callers saw. It reads as the owner of the database, past
// the stores and row-level security.
func (s *storm) verify(ctx context.Context, database *db.DB) (r report, err error) {
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return r, err
	}
	defer conn.Close(ctx)
	q := &query{ctx: ctx, conn: conn}

	r.add("runs", len(s.ids))
	reasons := map[agent.Reason]int{}
	for _, result := range s.results {
		reasons[result.Reason]++
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		r.add("ended_"+string(reason), reasons[reason])
	}
	r.none("ended_badly", s.endedBadly())
	r.none("result_differences", s.compareResults(q))
	r.none("call_differences", compareCalls(q))
	r.none("unknown_without_cause", s.unknownWithoutCause(q))
	if q.err == nil {
		settled, err := s.people.settle(ctx, s.desk)
		if err != nil {
			return r, fmt.Errorf("settle: %w", err)
		}
		r.add("settled_by_operator", settled)
	}
	intents := q.intents()
	s.countWrites(&r, q, intents)
	s.compareEffects(&r, intents)
	r.none("approval_differences", s.compareApprovals(q, intents))
	r.none("unrecorded_signals", s.compareSignals(q))
	r.none("ledger_differences", s.compareLedger(q))
	r.none("left_waiting", s.leftWaiting(q))
	r.add("forgeries", s.people.forgeries)
	r.add("kills", s.fleet.kills)
	r.none("worker_exits", repeated("a worker ended without being killed", int(s.fleet.died.Load())))
	r.add("engine_restarts", s.restarts.engine)
	r.add("postgres_restarts", s.restarts.postgres)
	r.log = s.fleet.tail()
	return r, q.err
}

// query remembers the first error.
type query struct {
	ctx  context.Context
	conn *pgx.Conn
	err  error
}

// texts returns a column of texts.
func (q *query) texts(sql string, args ...any) []string {
	if q.err != nil {
		return nil
	}
	rows, err := q.conn.Query(q.ctx, sql, args...)
	if err == nil {
		var all []string
		if all, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
			return all
		}
	}
	q.err = err
	return nil
}

func (q *query) number(sql string, args ...any) (n int) {
	if q.err == nil {
		q.err = q.conn.QueryRow(q.ctx, sql, args...).Scan(&n)
	}
	return n
}

func (q *query) intents() []intent {
	if q.err != nil {
		return nil
	}
	rows, err := q.conn.Query(q.ctx, `
		SELECT i.run_id, i.call_id, i.key, i.outcome, i.resolved_by, i.sends, i.approved_by, p.status, p.token_id
		FROM write_intent i
		JOIN write_plan p ON (p.tenant, p.run_id, p.call_id, p.revision) = (i.tenant, i.run_id, i.call_id, i.revision)`)
	if err != nil {
		q.err = err
		return nil
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (i intent, err error) {
		return i, row.Scan(&i.write.run, &i.write.call, &i.key, &i.outcome, &i.resolvedBy, &i.sends, &i.approvedBy, &i.planStatus, &i.tokenID)
	})
	q.err = err
	return all
}

// endedBadly lists the runs that ended for a reason that nothing in the plan
// gives, or not at all as a run does.
func (s *storm) endedBadly() (bad []string) {
	for _, err := range s.failed {
		bad = append(bad, err.Error())
	}
	for id, result := range s.results {
		switch result.Reason {
		case agent.ReasonFinal, agent.ReasonSuperseded, agent.ReasonOutcomeUnknown:
		case agent.ReasonCanceled:
			if !s.stopped[id] {
				bad = append(bad, id+" is canceled and nobody canceled it")
			}
		default:
			bad = append(bad, fmt.Sprintf("%s ended %s (%s)", id, result.Reason, result.Detail))
		}
	}
	return bad
}

// compareResults compares what callers were told with what is recorded.
func (s *storm) compareResults(q *query) (differences []string) {
	recorded := map[string]string{}
	for _, row := range q.texts(`SELECT id || ' ' || coalesce(reason, '') FROM run`) {
		var id, reason string
		_, _ = fmt.Sscan(row, &id, &reason)
		recorded[id] = reason
	}
	for id, result := range s.results {
		if recorded[id] != string(result.Reason) && !(recorded[id] == "" && result.Reason == agent.ReasonCanceled) {
			differences = append(differences, fmt.Sprintf("%s ended %s and is recorded as %q", id, result.Reason, recorded[id]))
		}
		var told []string
		for _, a := range result.Actions {
			told = append(told, fmt.Sprintf("%s %s", a.CallID, a.Error))
		}
		calls := q.texts(`
			SELECT call_id || ' ' || CASE status WHEN 'unknown' THEN 'outcome_unknown' ELSE error_code END
			FROM tool_call WHERE run_id = $1 AND status IN ('succeeded', 'failed', 'unknown') ORDER BY step, idx`, id)
		if !slices.Equal(told, calls) {
			differences = append(differences, fmt.Sprintf("%s tells of the calls %q, recorded are %q", id, told, calls))
		}
	}
	return differences
}

// compareCalls: a call and its write say the same.
func compareCalls(q *query) []string {
	return q.texts(`
		SELECT concat_ws(' ', i.run_id, i.call_id, 'is', c.status, 'and its write', i.outcome)
		FROM write_intent i JOIN tool_call c USING (tenant, run_id, call_id)
		WHERE c.status <> CASE i.outcome WHEN 'performed' THEN 'succeeded' WHEN 'not_performed' THEN 'failed' ELSE i.outcome END`)
}

// unknownWithoutCause: only of a write that could not be looked up the outcome
// may be unknown, and its run says so. Whatever else went wrong was waited out.
func (s *storm) unknownWithoutCause(q *query) (bad []string) {
	for _, i := range q.intents() {
		if i.outcome != string(db.WriteUnknown) {
			continue
		}
		if reason := s.results[i.write.run].Reason; reason != agent.ReasonOutcomeUnknown || !s.people.writes[i.write].away() {
			bad = append(bad, fmt.Sprintf("%s %s, its run ended %s", i.write.run, i.write.call, reason))
		}
	}
	return bad
}

// countWrites adds the counts of plans and writes.
func (s *storm) countWrites(r *report, q *query, intents []intent) {
	for _, status := range []string{"approved", "declined", "expired", "withdrawn", "refused"} {
		r.add("plans_"+status, q.number(`SELECT count(*) FROM write_plan WHERE status = $1`, status))
	}
	r.add("approvals_refused", q.number(`SELECT count(*) FROM approval_refusal`))
	commits, not, again, lookedUp := 0, 0, 0, 0
	for _, i := range intents {
		switch i.outcome {
		case "performed":
			commits++
		case "not_performed":
			not++
		}
		if i.sends > 1 {
			again++
		}
		if i.resolvedBy == string(db.ByLookUp) {
			lookedUp++
		}
	}
	r.add("commits", commits)
	r.add("not_performed", not)
	r.add("sent_again", again)
	r.add("found_by_look_up", lookedUp)
}

// compareEffects: one ticket for each write that is recorded as performed, and
// no other ticket.
func (s *storm) compareEffects(r *report, intents []intent) {
	effects, performed := s.desk.effects(), map[string]bool{}
	total := 0
	for _, n := range effects {
		total += n
	}
	var without, more []string
	for _, i := range intents {
		if i.outcome != "performed" {
			continue
		}
		performed[i.key] = true
		if effects[i.key] == 0 {
			without = append(without, fmt.Sprintf("%s %s is performed and there is no ticket", i.write.run, i.write.call))
		}
	}
	var unrecorded []string
	for key, n := range effects {
		if n > 0 && !performed[key] {
			unrecorded = append(unrecorded, "a ticket under the key "+key)
		}
		more = append(more, repeated("a ticket too many under the key "+key, n-1)...)
	}
	for title, n := range s.desk.titles() {
		more = append(more, repeated("a ticket too many for "+title, n-1)...)
	}
	r.add("effects", total)
	r.none("effects_without_record", unrecorded)
	r.none("records_without_effect", without)
	r.none("duplicates", more)
}

// compareApprovals: every write has the approval of a person who gave it for
// this write, and no other.
func (s *storm) compareApprovals(q *query, intents []intent) (differences []string) {
	for _, i := range intents {
		token, minted := s.people.minted[i.tokenID]
		switch {
		case !s.people.writes[i.write].decision.approves():
			differences = append(differences, fmt.Sprintf("%s %s was confirmed, and nobody did", i.write.run, i.write.call))
		case !minted || token.write != i.write || token.decision != "approve" || token.approver != i.approvedBy || i.planStatus != "approved":
			differences = append(differences, fmt.Sprintf("%s %s rests on a plan that is %s, by %q", i.write.run, i.write.call, i.planStatus, i.approvedBy))
		}
	}
	for _, id := range q.texts(`SELECT token_id FROM write_plan WHERE status = 'declined'`) {
		if token, minted := s.people.minted[id]; !minted || token.decision != "decline" {
			differences = append(differences, "a plan was declined by a token that does not say so")
		}
	}
	approved := q.number(`SELECT count(*) FROM write_plan WHERE status = 'approved'`)
	if approved != len(intents) {
		differences = append(differences, fmt.Sprintf("%d plans are approved and %d writes are recorded", approved, len(intents)))
	}
	return differences
}

// compareSignals: every approval that Temporal took for a run that nobody stopped
// is on record, as the one that decided or as refused (WRITE-2).
func (s *storm) compareSignals(q *query) (missing []string) {
	for id, delivered := range s.people.delivered {
		if reason := s.results[id].Reason; s.stopped[id] || reason == "" || reason == agent.ReasonSuperseded {
			continue
		}
		recorded := q.number(`SELECT (SELECT count(*) FROM write_plan WHERE run_id = $1 AND token_id <> '')
			+ (SELECT count(*) FROM approval_refusal WHERE run_id = $1)`, id)
		missing = append(missing, repeated("an approval of run "+id+" is not on record", delivered-recorded)...)
	}
	return missing
}

// compareLedger adds the ledger up (RUN-11): each attempt is reserved and settled
// once, nothing that was checkpointed is bought again, and runs and days report
// the sums.
func (s *storm) compareLedger(q *query) (differences []string) {
	for what, sql := range map[string]string{
		"attempt without exactly one reserve and one settle": `
			SELECT a.run_id FROM model_attempt a WHERE (
				SELECT count(*) FILTER (WHERE kind = 'reserve') <> 1 OR count(*) FILTER (WHERE kind = 'settle') <> 1
				FROM ledger_entry l WHERE (l.tenant, l.run_id, l.step, l.attempt) = (a.tenant, a.run_id, a.step, a.attempt))`,
		"attempt left open": `SELECT run_id FROM model_attempt WHERE status = 'started'`,
		"settle beyond its reserve": `
			SELECT s.run_id FROM ledger_entry s JOIN ledger_entry r USING (tenant, run_id, step, attempt)
			WHERE s.kind = 'settle' AND r.kind = 'reserve' AND s.tokens > r.tokens`,
		"step bought again after its checkpoint": `
			SELECT a.run_id FROM model_attempt a JOIN model_attempt b USING (tenant, run_id, step)
			WHERE a.status = 'succeeded' AND b.attempt > a.attempt`,
		"day that is not the sum of its settles": `
			SELECT user_id || ' ' || sum(tokens) FROM daily_usage d GROUP BY user_id HAVING sum(tokens) <> (
				SELECT coalesce(sum(l.tokens), 0) FROM ledger_entry l JOIN run r ON (r.tenant, r.id) = (l.tenant, l.run_id)
				WHERE l.kind = 'settle' AND d.user_id IN ('', r.user_id))`,
	} {
		for _, where := range q.texts(sql) {
			differences = append(differences, what+": "+where)
		}
	}
	for id, result := range s.results {
		sums := q.texts(`SELECT concat_ws(' ', count(*), coalesce(sum(l.tokens), 0), coalesce(sum(l.cost_micros), 0))
			FROM ledger_entry l WHERE l.run_id = $1 AND l.kind = 'settle'`, id)
		u := result.Usage
		if told := fmt.Sprintf("%d %d %d", u.Attempts, u.BilledTokens, u.CostMicros); q.err == nil && told != sums[0] {
			differences = append(differences, fmt.Sprintf("run %s reports %q attempts, tokens and micro-dollars, the ledger %q", id, told, sums[0]))
		}
	}
	return differences
}

// leftWaiting: every run has ended, and nothing of it waits or is open.
func (s *storm) leftWaiting(q *query) (waiting []string) {
	for _, id := range s.ids {
		if _, ended := s.results[id]; !ended {
			waiting = append(waiting, "run "+id+" has not ended")
		}
	}
	for what, sql := range map[string]string{
		"run":   `SELECT id || ' is ' || status FROM run WHERE ended_at IS NULL OR waiting_since IS NOT NULL`,
		"plan":  `SELECT run_id || ' ' || call_id FROM write_plan WHERE status = 'pending'`,
		"write": `SELECT run_id || ' ' || call_id || ' is ' || outcome FROM write_intent WHERE outcome IN ('open', 'unknown')`,
		"call":  `SELECT run_id || ' ' || call_id || ' is ' || status FROM tool_call WHERE status IN ('proposed', 'running', 'unknown')`,
	} {
		for _, where := range q.texts(sql) {
			waiting = append(waiting, what+" "+where)
		}
	}
	return waiting
}

func repeated(text string, n int) []string {
	if n <= 0 {
		return nil
	}
	return slices.Repeat([]string{text}, n)
}
