package db

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// RunFilter selects runs of one tenant. Empty fields select all.
type RunFilter struct {
	// Tenant is required.
	Tenant       string
	User         string
	Environment  string
	Conversation string
	Agent        string
	Status       agent.Status
	// Before, if not zero, continues a list: runs created before it.
	Before time.Time
	// Limit bounds the list. Zero means 50, the most is 1000.
	Limit int
}

// RunSummary is one line of a list.
type RunSummary struct {
	RunID             string
	User              string
	Conversation      string
	Generation        int64
	Agent             string
	DefinitionVersion string
	Environment       string
	Status            agent.Status
	Reason            agent.Reason
	Detail            string
	// Step is the newest step with a model attempt.
	Step      int
	ToolCalls int
	// BilledTokens and CostMicros are what has been settled so far. With
	// Unpriced the cost is a lower bound.
	BilledTokens int64
	CostMicros   int64
	Unpriced     bool
	Deadline     time.Time
	CreatedAt    time.Time
	// StartedAt and EndedAt are zero until then.
	StartedAt time.Time
	EndedAt   time.Time
}

// ListRuns returns runs, newest first. Without a user it is the operator's view
// of the tenant.
func (db *DB) ListRuns(ctx context.Context, f RunFilter) ([]RunSummary, error) {
	var rows []dbsqlc.ListRunsRow
	limit := min(orDefault(f.Limit, 50), 1000)
	err := db.inTenant(ctx, agent.Scope{Tenant: f.Tenant, User: f.User, Environment: f.Environment}, one(db.q.ListRuns, dbsqlc.ListRunsParams{
		Tenant: f.Tenant, UserID: f.User, Environment: f.Environment, ConversationID: f.Conversation, Agent: f.Agent,
		Status: string(f.Status), Before: optional(f.Before), MaxRuns: int32(limit),
	}, &rows))
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	list := make([]RunSummary, len(rows))
	for i, r := range rows {
		list[i] = RunSummary{
			RunID: r.ID, User: r.UserID, Conversation: r.ConversationID, Generation: r.Generation, Agent: r.Agent,
			DefinitionVersion: r.DefinitionVersion, Environment: r.Environment, Status: agent.Status(r.Status),
			Reason: agent.Reason(present(r.Reason)), Detail: r.Detail, Step: int(r.LastStep), ToolCalls: int(r.ToolCalls),
			BilledTokens: r.Tokens, CostMicros: r.CostMicros, Unpriced: r.Unpriced,
			Deadline: r.Deadline, CreatedAt: r.CreatedAt, StartedAt: present(r.StartedAt), EndedAt: present(r.EndedAt),
		}
	}
	return list, nil
}

// Transition is one recorded change of a run's status.
type Transition struct {
	Seq int
	// From is empty for the first.
	From, To agent.Status
	Reason   agent.Reason
	At       time.Time
}

// CallReport is one tool call without its content.
type CallReport struct {
	ID          string
	Step, Index int
	Tool        string
	ToolVersion string
	Risk        string
	// ArgumentsHash and ResultHash are SHA-256 in hex, empty if there is none.
	ArgumentsHash string
	ResultHash    string
	Status        CallStatus
	Error         *agent.ToolError
	Executions    int
	// ResultBytes is the size of the full result, EnvelopeBytes of what the
	// model was shown.
	ResultBytes   int64
	EnvelopeBytes int64
	ProposedAt    time.Time
	// StartedAt and EndedAt are zero until then.
	StartedAt time.Time
	EndedAt   time.Time
}

// StepReport is one step: the attempts to get a response, and its calls.
type StepReport struct {
	Step int
	// Attempts carry no Action.
	Attempts []Attempt
	Calls    []CallReport
}

// RunReport is all that is known of a run. Apart from Answer and the notes of
// writes it holds no content.
type RunReport struct {
	Run         Run
	Transitions []Transition
	Steps       []StepReport
	// Plans, Writes and Refusals are in the order of time. Plans have no
	// Summary.
	Plans    []WritePlan
	Writes   []WriteIntent
	Refusals []Refusal
	Totals   Totals
	// Answer is the text of the answer, empty unless the run succeeded.
	Answer string
	// Erased says that the subject's keys were destroyed: Answer and the notes of
	// writes are empty.
	Erased bool
}

// Attempts returns the attempts of all steps in order.
func (r RunReport) Attempts() (all []Attempt) {
	for _, s := range r.Steps {
		all = append(all, s.Attempts...)
	}
	return all
}

// Calls returns the tool calls of all steps in order.
func (r RunReport) Calls() (all []CallReport) {
	for _, s := range r.Steps {
		all = append(all, s.Calls...)
	}
	return all
}

// AttemptsByStep returns the attempts keyed by step.
func (r RunReport) AttemptsByStep() map[int][]Attempt {
	steps := make(map[int][]Attempt, len(r.Steps))
	for _, s := range r.Steps {
		steps[s.Step] = s.Attempts
	}
	return steps
}

// ShowRun returns a run with everything that belongs to it: ErrNotFound if
// there is none, or it is another user's or environment's than asked for. User
// and Environment of the scope may be empty: the operator's view of the tenant.
func (db *DB) ShowRun(ctx context.Context, scope agent.Scope, runID string) (RunReport, error) {
	report, err := db.report(ctx, scope, runID, 0, true)
	if err != nil {
		return RunReport{}, fmt.Errorf("show run: %w", err)
	}
	return report, nil
}

// Progress is ShowRun for the steps from fromStep on and without content, for
// which it needs no keys: to follow a run, ask again with the newest step seen,
// which may have grown.
func (db *DB) Progress(ctx context.Context, scope agent.Scope, runID string, fromStep int) (RunReport, error) {
	report, err := db.report(ctx, scope, runID, fromStep, false)
	if err != nil {
		return RunReport{}, fmt.Errorf("follow run: %w", err)
	}
	return report, nil
}

func (db *DB) report(ctx context.Context, scope agent.Scope, id string, fromStep int, content bool) (RunReport, error) {
	rows := reportRows{id: id, content: content}
	if err := db.inTenant(ctx, scope, rows.load(db.q, scope.Tenant, int32(fromStep))...); err != nil {
		return RunReport{}, err
	}
	report := RunReport{Run: toRun(rows.run.Run, rows.run.CurrentGeneration, rows.run.GroupID, rows.run.ProjectID), Totals: toTotals(rows.totals)}
	owner := report.Run.Scope
	if (scope.User != "" && owner.User != scope.User) || (scope.Environment != "" && owner.Environment != scope.Environment) {
		return RunReport{}, ErrNotFound
	}
	report.Transitions, report.Steps, report.Plans, report.Refusals = rows.toTransitions(), rows.steps(), rows.toPlans(), rows.toRefusals()
	var r ring
	if content {
		r = db.ringOf(report.Run, rows.keys)
		report.Erased = errors.Is(r.err, ErrKeysDestroyed)
	}
	var err error
	if report.Writes, err = rows.toWrites(r, content && !report.Erased); err != nil {
		return RunReport{}, err
	}
	if a := rows.answer; a != nil && !report.Erased {
		if report.Answer, err = r.openText(messageContent, a.Content, a.ID, report.Run.Conversation, string(RoleAssistant)); err != nil {
			return RunReport{}, err
		}
	}
	return report, nil
}

// reportRows are the rows of a RunReport of the run id, with content or without.
type reportRows struct {
	id      string
	content bool

	run         dbsqlc.GetRunRow
	transitions []dbsqlc.TransitionsOfRunRow
	attempts    []dbsqlc.AttemptsOfRunRow
	calls       []dbsqlc.ToolCallsOfRunRow
	plans       []dbsqlc.PlansOfRunRow
	intents     []dbsqlc.WriteIntent
	refusals    []dbsqlc.RefusalsOfRunRow
	totals      dbsqlc.RunTotalsRow
	answer      *dbsqlc.GetAnswerRow
	keys        *dbsqlc.SubjectKey
}

func (rows *reportRows) load(q *dbsqlc.Queries, tenant string, fromStep int32) []statement {
	t, id := tenant, rows.id
	statements := []statement{
		one(q.GetRun, dbsqlc.GetRunParams{Tenant: t, ID: id}, &rows.run),
		one(q.TransitionsOfRun, dbsqlc.TransitionsOfRunParams{Tenant: t, RunID: id}, &rows.transitions),
		one(q.AttemptsOfRun, dbsqlc.AttemptsOfRunParams{Tenant: t, RunID: id, FromStep: fromStep}, &rows.attempts),
		one(q.ToolCallsOfRun, dbsqlc.ToolCallsOfRunParams{Tenant: t, RunID: id, FromStep: fromStep}, &rows.calls),
		one(q.PlansOfRun, dbsqlc.PlansOfRunParams{Tenant: t, RunID: id}, &rows.plans),
		one(q.IntentsOfRun, dbsqlc.IntentsOfRunParams{Tenant: t, RunID: id}, &rows.intents),
		one(q.RefusalsOfRun, dbsqlc.RefusalsOfRunParams{Tenant: t, RunID: id}, &rows.refusals),
		one(q.RunTotals, dbsqlc.RunTotalsParams{Tenant: t, RunID: id}, &rows.totals),
	}
	if !rows.content {
		return statements
	}
	return append(statements, maybe(q.GetAnswer, dbsqlc.GetAnswerParams{Tenant: t, RunID: id}, &rows.answer),
		// Keys come last: no value above is sealed under newer ones.
		maybe(q.SubjectKeyOfRun, dbsqlc.SubjectKeyOfRunParams{Tenant: t, RunID: id}, &rows.keys))
}

func (rows *reportRows) toTransitions() (list []Transition) {
	for _, row := range rows.transitions {
		list = append(list, Transition{
			Seq: int(row.Seq), From: agent.Status(present(row.FromStatus)), To: agent.Status(row.ToStatus),
			Reason: agent.Reason(present(row.Reason)), At: row.At,
		})
	}
	return list
}

func (rows *reportRows) steps() (list []StepReport) {
	steps := make(map[int]*StepReport)
	step := func(number int32) *StepReport {
		if steps[int(number)] == nil {
			steps[int(number)] = &StepReport{Step: int(number)}
		}
		return steps[int(number)]
	}
	for _, row := range rows.attempts {
		s := step(row.Step)
		s.Attempts = append(s.Attempts, toAttemptReport(row))
	}
	for _, row := range rows.calls {
		s := step(row.Step)
		s.Calls = append(s.Calls, toCallReport(row))
	}
	for _, number := range slices.Sorted(maps.Keys(steps)) {
		list = append(list, *steps[number])
	}
	return list
}

func toAttemptReport(row dbsqlc.AttemptsOfRunRow) Attempt {
	return Attempt{
		Step: int(row.Step), Number: int(row.Attempt), Try: int(row.Try), Model: row.Model, Provider: row.Provider,
		Status:   AttemptStatus(row.Status),
		Reserved: Amount{Tokens: row.ReservedTokens, CostMicros: row.ReservedCostMicros},
		Reported: toReported(row.InputTokens, row.CachedInputTokens, row.OutputTokens),
		Billed:   toBilled(row.BilledTokens, row.BilledCostMicros), UsageKnown: present(row.UsageKnown),
		FailureCode: agent.FailureCode(row.FailureCode), Finish: row.Finish, Revision: row.Revision,
		RequestID: row.ProviderRequestID, Prompt: row.Prompt, StartedAt: row.StartedAt, EndedAt: present(row.EndedAt),
	}
}

func toCallReport(row dbsqlc.ToolCallsOfRunRow) CallReport {
	c := CallReport{
		ID: row.CallID, Step: int(row.Step), Index: int(row.Idx), Tool: row.Tool, ToolVersion: row.ToolVersion, Risk: row.Risk,
		ArgumentsHash: row.ArgumentsHash, ResultHash: row.ResultHash, Status: CallStatus(row.Status), Executions: int(row.Executions),
		ResultBytes: sealedSize(row.ResultBytes), EnvelopeBytes: sealedSize(row.EnvelopeBytes),
		ProposedAt: row.ProposedAt, StartedAt: present(row.StartedAt), EndedAt: present(row.EndedAt),
	}
	if row.ErrorCode != "" {
		c.Error = &agent.ToolError{Code: agent.ToolErrorCode(row.ErrorCode), Hash: row.ErrorHash}
	}
	return c
}

func (rows *reportRows) toPlans() (list []WritePlan) {
	for _, row := range rows.plans {
		list = append(list, WritePlan{
			RunID: rows.id, CallID: row.CallID, Revision: int(row.Revision), Tool: row.Tool, ToolVersion: row.ToolVersion,
			ArgumentsHash: row.ArgumentsHash, Resource: row.Resource, ResourceVersion: row.ResourceVersion,
			Hash: row.Hash, PolicyDigest: row.PolicyDigest, Status: PlanStatus(row.Status), CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt,
			DecidedBy: row.DecidedBy, DecidedAt: present(row.DecidedAt), TokenID: row.TokenID,
		})
	}
	return list
}

func (rows *reportRows) toWrites(r ring, notes bool) (list []WriteIntent, err error) {
	for _, row := range rows.intents {
		if !notes {
			row.SettledNote = nil
		}
		w, err := toWriteIntent(r, row)
		if err != nil {
			return nil, err
		}
		list = append(list, w)
	}
	return list, nil
}

func (rows *reportRows) toRefusals() (list []Refusal) {
	for _, row := range rows.refusals {
		list = append(list, Refusal{
			CallID: row.CallID, Code: agent.RefusalCode(row.Code), TokenID: row.TokenID, Approver: row.Approver, At: row.At,
		})
	}
	return list
}
