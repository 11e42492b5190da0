package db

import (
	"context"
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

// RunReport is all that is known of a run. Apart from Answer it holds no
// content.
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
	report, answer, err := db.report(ctx, scope, runID, 0)
	if err != nil {
		return RunReport{}, fmt.Errorf("show run: %w", err)
	}
	report.Answer = answer
	return report, nil
}

// Progress is ShowRun for the steps from fromStep on and without the answer:
// to follow a run, ask again with the newest step seen, which may have grown.
func (db *DB) Progress(ctx context.Context, scope agent.Scope, runID string, fromStep int) (RunReport, error) {
	report, _, err := db.report(ctx, scope, runID, fromStep)
	if err != nil {
		return RunReport{}, fmt.Errorf("follow run: %w", err)
	}
	return report, nil
}

func (db *DB) report(ctx context.Context, scope agent.Scope, id string, fromStep int) (RunReport, string, error) {
	var (
		run         dbsqlc.GetRunRow
		transitions []dbsqlc.TransitionsOfRunRow
		attempts    []dbsqlc.AttemptsOfRunRow
		calls       []dbsqlc.ToolCallsOfRunRow
		plans       []dbsqlc.PlansOfRunRow
		intents     []dbsqlc.WriteIntent
		refusals    []dbsqlc.RefusalsOfRunRow
		totals      dbsqlc.RunTotalsRow
		answer      *string
		t           = scope.Tenant
	)
	err := db.inTenant(ctx, scope,
		one(db.q.GetRun, dbsqlc.GetRunParams{Tenant: t, ID: id}, &run),
		one(db.q.TransitionsOfRun, dbsqlc.TransitionsOfRunParams{Tenant: t, RunID: id}, &transitions),
		one(db.q.AttemptsOfRun, dbsqlc.AttemptsOfRunParams{Tenant: t, RunID: id, FromStep: int32(fromStep)}, &attempts),
		one(db.q.ToolCallsOfRun, dbsqlc.ToolCallsOfRunParams{Tenant: t, RunID: id, FromStep: int32(fromStep)}, &calls),
		one(db.q.PlansOfRun, dbsqlc.PlansOfRunParams{Tenant: t, RunID: id}, &plans),
		one(db.q.IntentsOfRun, dbsqlc.IntentsOfRunParams{Tenant: t, RunID: id}, &intents),
		one(db.q.RefusalsOfRun, dbsqlc.RefusalsOfRunParams{Tenant: t, RunID: id}, &refusals),
		one(db.q.RunTotals, dbsqlc.RunTotalsParams{Tenant: t, RunID: id}, &totals),
		maybe(db.q.GetAnswer, dbsqlc.GetAnswerParams{Tenant: t, RunID: id}, &answer),
	)
	if err != nil {
		return RunReport{}, "", err
	}
	report := RunReport{Run: toRun(run.Run, run.CurrentGeneration), Totals: toTotals(totals)}
	owner := report.Run.Scope
	if (scope.User != "" && owner.User != scope.User) || (scope.Environment != "" && owner.Environment != scope.Environment) {
		return RunReport{}, "", ErrNotFound
	}
	steps := make(map[int]*StepReport)
	step := func(number int32) *StepReport {
		if steps[int(number)] == nil {
			steps[int(number)] = &StepReport{Step: int(number)}
		}
		return steps[int(number)]
	}
	for _, row := range transitions {
		report.Transitions = append(report.Transitions, Transition{
			Seq: int(row.Seq), From: agent.Status(present(row.FromStatus)), To: agent.Status(row.ToStatus),
			Reason: agent.Reason(present(row.Reason)), At: row.At,
		})
	}
	for _, row := range attempts {
		s := step(row.Step)
		s.Attempts = append(s.Attempts, Attempt{
			Step: int(row.Step), Number: int(row.Attempt), Try: int(row.Try), Model: row.Model, Provider: row.Provider,
			Status:   AttemptStatus(row.Status),
			Reserved: Amount{Tokens: row.ReservedTokens, CostMicros: row.ReservedCostMicros},
			Reported: toReported(row.InputTokens, row.CachedInputTokens, row.OutputTokens),
			Billed:   toBilled(row.BilledTokens, row.BilledCostMicros), UsageKnown: present(row.UsageKnown),
			FailureCode: agent.FailureCode(row.FailureCode), Finish: row.Finish, Revision: row.Revision,
			RequestID: row.ProviderRequestID, StartedAt: row.StartedAt, EndedAt: present(row.EndedAt),
		})
	}
	for _, row := range calls {
		c := CallReport{
			ID: row.CallID, Step: int(row.Step), Index: int(row.Idx), Tool: row.Tool, ToolVersion: row.ToolVersion, Risk: row.Risk,
			ArgumentsHash: row.ArgumentsHash, ResultHash: row.ResultHash, Status: CallStatus(row.Status), Executions: int(row.Executions),
			ResultBytes: row.ResultBytes, EnvelopeBytes: row.EnvelopeBytes,
			ProposedAt: row.ProposedAt, StartedAt: present(row.StartedAt), EndedAt: present(row.EndedAt),
		}
		if row.ErrorCode != "" {
			c.Error = &agent.ToolError{Code: agent.ToolErrorCode(row.ErrorCode), Hash: row.ErrorHash}
		}
		s := step(row.Step)
		s.Calls = append(s.Calls, c)
	}
	for _, row := range plans {
		report.Plans = append(report.Plans, WritePlan{
			RunID: id, CallID: row.CallID, Revision: int(row.Revision), Tool: row.Tool, ToolVersion: row.ToolVersion,
			ArgumentsHash: row.ArgumentsHash, Resource: row.Resource, ResourceVersion: row.ResourceVersion,
			Hash: row.Hash, PolicyDigest: row.PolicyDigest, Status: PlanStatus(row.Status), CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt,
			DecidedBy: row.DecidedBy, DecidedAt: present(row.DecidedAt), TokenID: row.TokenID,
		})
	}
	for _, row := range intents {
		report.Writes = append(report.Writes, toWriteIntent(row))
	}
	for _, row := range refusals {
		report.Refusals = append(report.Refusals, Refusal{
			CallID: row.CallID, Code: agent.RefusalCode(row.Code), TokenID: row.TokenID, Approver: row.Approver, At: row.At,
		})
	}
	for _, number := range slices.Sorted(maps.Keys(steps)) {
		report.Steps = append(report.Steps, *steps[number])
	}
	return report, present(answer), nil
}
