package db

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// Run is one run. Content is elsewhere: the question and the answer are
// messages of its conversation.
type Run struct {
	ID           string
	Scope        agent.Scope
	Conversation string
	// Group and Project are the conversation's, empty outside of them.
	Group, Project    string
	Generation        int64
	Agent             string
	DefinitionVersion string
	DefinitionDigest  string
	Page              string
	Flags             []string
	Status            agent.Status
	Reason            agent.Reason
	Detail            string
	// Step and ToolCalls are totals, written when the run ends.
	Step       int
	ToolCalls  int
	Budget     agent.Budget
	Deadline   time.Time
	WorkflowID string
	// RequestHash is the keyed hash of what was asked for: see Tx.KeyedHash.
	RequestHash string
	QuestionID  string
	// AnswerID is the message that answers, once the run has succeeded.
	AnswerID string
	// Memory is what the run had to do with memory, written when it ends; nil for
	// agents without.
	Memory    *agent.MemoryUse
	CreatedAt time.Time
	// StartedAt and EndedAt are zero until then.
	StartedAt time.Time
	EndedAt   time.Time
	// WaitingSince is when the run began to wait for a person, zero unless it
	// does.
	WaitingSince time.Time

	// Version counts the transitions.
	Version int
	// CurrentGeneration is the newest of the conversation, as read.
	CurrentGeneration int64
}

// Superseded reports whether a newer generation of the conversation has begun.
func (r Run) Superseded() bool { return r.Generation != r.CurrentGeneration }

// DeadlineAt is the run's deadline if its wait for a person ended at now: a run
// that waits does not use up its time.
func (r Run) DeadlineAt(now time.Time) time.Time {
	if r.WaitingSince.IsZero() || !now.After(r.WaitingSince) {
		return r.Deadline
	}
	return r.Deadline.Add(now.Sub(r.WaitingSince)).Truncate(time.Microsecond)
}

// Room is where the run stands among memories.
func (r Run) Room() agent.MemoryRoom {
	return agent.MemoryRoom{Scope: r.Scope, Conversation: r.Conversation, Group: r.Group, Project: r.Project, Agent: r.Agent}
}

// OpenRun is a run of a conversation that has not ended.
type OpenRun struct {
	ID         string
	Generation int64
}

// BeginQuery says which run is to begin, and where.
type BeginQuery struct {
	Conversation, RunID string
	// Group and Project become those of a conversation that does not exist yet.
	Group, Project string
	// Day is the one whose usage is read.
	Day time.Time
}

// BeginState is what the beginning of a run is decided on. The transaction
// holds the conversation, so it stays true until the commit.
type BeginState struct {
	Conversation Conversation
	// Run is the run of that ID if it exists, whoever owns it.
	Run *Run
	// OpenRuns are the conversation's runs that have not ended, oldest first.
	OpenRuns []OpenRun
	// Outsider says that the user is no participant of the query's group or
	// project, or not any more.
	Outsider bool
	// Erased says that the user was erased, or is being erased.
	Erased bool
	// Session is what holds in the conversation.
	Session SessionState
	// Limits are the tenant's own; nil fields are left to the configuration.
	Limits Limits
	Used   DailyUsage
}

// LoadBegin makes the conversation if it does not exist, holds it against other
// submits, and reads what BeginRun decides on.
func (tx *Tx) LoadBegin(ctx context.Context, query BeginQuery) (BeginState, error) {
	var (
		tenant       = tx.scope.Tenant
		conversation = query.Conversation

		conv   dbsqlc.LockConversationRow
		run    *dbsqlc.GetRunRow
		open   []dbsqlc.OpenRunsRow
		limits []dbsqlc.GetTenantLimitRow
		used   []dbsqlc.GetDailyUsageRow

		partakes = true
		erased   bool
		session  sessionRows
	)
	tx.touch()
	if query.Group != "" || query.Project != "" {
		tx.write(one(tx.q.TakesPart, dbsqlc.TakesPartParams{Tenant: tenant, GroupID: query.Group, ProjectID: query.Project, UserID: tx.scope.User}, &partakes))
	}
	err := tx.read(ctx,
		exec(tx.q.CreateConversation, dbsqlc.CreateConversationParams{
			Tenant: tenant, ID: conversation, UserID: tx.scope.User, Environment: tx.scope.Environment, GroupID: query.Group, ProjectID: query.Project,
		}),
		one(tx.q.LockConversation, dbsqlc.LockConversationParams{Tenant: tenant, ID: conversation}, &conv),
		maybe(tx.q.GetRun, dbsqlc.GetRunParams{Tenant: tenant, ID: query.RunID}, &run),
		one(tx.q.OpenRuns, dbsqlc.OpenRunsParams{Tenant: tenant, ConversationID: conversation}, &open),
		one(tx.q.GetTenantLimit, tenant, &limits),
		one(tx.q.GetDailyUsage, dbsqlc.GetDailyUsageParams{Tenant: tenant, Day: query.Day, UserID: tx.scope.User}, &used),
		session.facts(tx.q, tx.scope, conversation, ""), session.prohibitions(tx.q, tx.scope, conversation, ""),
		one(tx.q.IsErased, dbsqlc.IsErasedParams{Tenant: tenant, UserID: tx.scope.User}, &erased),
	)
	if err != nil {
		return BeginState{}, fmt.Errorf("load conversation: %w", err)
	}
	state := BeginState{
		Conversation: Conversation{
			ID: conversation, User: conv.UserID, Environment: conv.Environment, Group: conv.GroupID, Project: conv.ProjectID,
			Version: conv.Version, Generation: conv.Generation, LastSeq: conv.LastSeq, Branch: int(conv.Branch),
		},
		Outsider: !partakes,
		Erased:   erased,
		Limits:   toLimits(limits),
		Used:     toDailyUsage(used),
	}
	if state.Session, err = session.state(tx.ring); err != nil {
		return BeginState{}, fmt.Errorf("load conversation: %w", err)
	}
	if run != nil {
		if strings.HasPrefix(run.Run.RequestHash, plainHash) {
			return BeginState{}, fmt.Errorf("load conversation: %w", ErrUnsealed)
		}
		r := toRun(run.Run, run.CurrentGeneration, run.GroupID, run.ProjectID)
		state.Run = &r
	}
	for _, o := range open {
		state.OpenRuns = append(state.OpenRuns, OpenRun(o))
	}
	return state, nil
}

// InsertRun queues a new run in status queued, with its first transition. Its
// question must be queued before it.
func (tx *Tx) InsertRun(r Run) {
	flags := r.Flags
	if flags == nil {
		flags = []string{}
	}
	tx.write(exec(tx.q.InsertRun, dbsqlc.InsertRunParams{
		Tenant: tx.scope.Tenant, ID: r.ID, UserID: tx.scope.User, Environment: tx.scope.Environment,
		ConversationID: r.Conversation, Generation: r.Generation, Agent: r.Agent,
		DefinitionVersion: r.DefinitionVersion, DefinitionDigest: r.DefinitionDigest, Page: r.Page, Flags: flags,
		MaxSteps: int32(r.Budget.MaxSteps), MaxToolCalls: int32(r.Budget.MaxToolCalls), MaxTokens: r.Budget.MaxTokens,
		MaxCostMicros: r.Budget.MaxCostMicros, TimeoutNs: int64(r.Budget.Timeout), Deadline: r.Deadline,
		WorkflowID: r.WorkflowID, RequestHash: r.RequestHash, QuestionMessageID: r.QuestionID,
	}))
}

// AdmitRun queues the move of a queued run to running, which happens if tenant
// and user have a free slot. After the commit, admitted says whether it did.
// Admissions of a tenant wait for each other until the commit: queue this last.
func (tx *Tx) AdmitRun(runID string, limits Limits, admitted *bool) {
	tx.write(exec(tx.q.LockAdmission, tx.scope.Tenant))
	tx.write(one(tx.q.AdmitRun, dbsqlc.AdmitRunParams{
		Tenant: tx.scope.Tenant, ID: runID, UserID: tx.scope.User, GraceSeconds: agent.EndGrace.Seconds(),
		MaxRunning: orUnlimited(limits.MaxRunning), MaxRunningPerUser: orUnlimited(limits.MaxRunningPerUser),
	}, admitted))
}

// Move is a change of a run's status with what goes along.
type Move struct {
	To       agent.Status
	Reason   agent.Reason
	Detail   string
	AnswerID string
	// Step and ToolCalls are the totals at an end.
	Step, ToolCalls int
	// Memory is what the run had to do with memory, at an end.
	Memory *agent.MemoryUse
	// At is when a wait for a person begins or ends. Zero means now.
	At time.Time
}

// MoveRun queues a change of status from the one in which r was read. It
// returns an *agent.TransitionError if the table of moves does not have it. If
// somebody else moved the run since, the transaction fails with ErrConflict. A
// run that goes on after waiting for a person has a later deadline: see
// Run.DeadlineAt.
func (tx *Tx) MoveRun(r Run, m Move) error {
	if !r.Status.CanBecome(m.To) {
		return &agent.TransitionError{From: r.Status, To: m.To}
	}
	if m.At.IsZero() {
		m.At = time.Now()
	}
	var memory []byte
	if m.Memory != nil {
		var err error
		if memory, err = json.Marshal(m.Memory); err != nil {
			return fmt.Errorf("encode use of memory: %w", err)
		}
	}
	deadline, waiting := r.Deadline, time.Time{}
	switch {
	case m.To == agent.StatusWaitingConfirmation:
		waiting = m.At
	case m.To == agent.StatusRunning:
		deadline = r.DeadlineAt(m.At)
	}
	tx.write(exec(tx.q.MoveRun, dbsqlc.MoveRunParams{
		Tenant: tx.scope.Tenant, ID: r.ID, FromStatus: string(r.Status), ToStatus: string(m.To),
		Version: int32(r.Version), NextVersion: int32(r.Version + 1),
		Reason: optional(string(m.Reason)), Detail: m.Detail, AnswerMessageID: optional(m.AnswerID),
		Step: int32(m.Step), ToolCalls: int32(m.ToolCalls), Terminal: m.To.Terminal(),
		Deadline: deadline, WaitingSince: optional(waiting), Memory: memory,
	}))
	return nil
}

// EndState is what a run amounts to at its end. The transaction holds the run.
type EndState struct {
	Run     Run
	Totals  Totals
	Actions []agent.CompletedAction
	// ToolCalls counts all calls that were carried out.
	ToolCalls int
	Answered  bool
	// UnknownWrites counts the writes of which nobody knows whether they
	// happened.
	UnknownWrites int
	// Unsummarized counts the visible messages of the conversation that no
	// summary covers or skips, at most 1000; SummaryFailures the summaries of
	// them that failed.
	Unsummarized    int
	SummaryFailures int
}

// CloseRun holds the run against other changes of its status, ends what is still
// open in it, and reads what it amounts to: open attempts are lost and billed at
// what they reserved, open tool calls are abandoned, plans that wait are
// withdrawn, and writes without an outcome are unknown. In a run that has ended
// nothing is open. Answered says whether the message answerID is stored; Actions
// are the newest maxActions, in order. ErrNotFound if the scope has no such run.
func (tx *Tx) CloseRun(ctx context.Context, runID, answerID string, maxActions int) (EndState, error) {
	var (
		tenant = tx.scope.Tenant
		run    dbsqlc.LockRunRow
		totals dbsqlc.RunTotalsRow
		calls  []dbsqlc.CompletedCallsRow

		answered bool
		unknown  int64
		progress dbsqlc.SummaryProgressRow
	)
	err := tx.read(ctx,
		one(tx.q.LockRun, dbsqlc.LockRunParams{Tenant: tenant, ID: runID}, &run),
		one(tx.q.HasMessage, dbsqlc.HasMessageParams{Tenant: tenant, ID: answerID}, &answered),
		exec(tx.q.LoseOpenAttempts, dbsqlc.LoseOpenAttemptsParams{Tenant: tenant, RunID: runID}),
		exec(tx.q.WithdrawWritePlans, dbsqlc.WithdrawWritePlansParams{Tenant: tenant, RunID: runID}),
		exec(tx.q.GiveUpWriteIntents, dbsqlc.GiveUpWriteIntentsParams{Tenant: tenant, RunID: runID}),
		one(tx.q.CountUnknownWrites, dbsqlc.CountUnknownWritesParams{Tenant: tenant, RunID: runID}, &unknown),
		exec(tx.q.AbandonToolCalls, dbsqlc.AbandonToolCallsParams{Tenant: tenant, RunID: runID}),
		one(tx.q.RunTotals, dbsqlc.RunTotalsParams{Tenant: tenant, RunID: runID}, &totals),
		one(tx.q.CompletedCalls, dbsqlc.CompletedCallsParams{Tenant: tenant, RunID: runID, MaxCalls: int32(maxActions)}, &calls),
		one(tx.q.SummaryProgress, dbsqlc.SummaryProgressParams{Tenant: tenant, RunID: runID}, &progress),
	)
	if err != nil {
		return EndState{}, fmt.Errorf("close run: %w", err)
	}
	state := EndState{
		Run: toRun(run.Run, run.CurrentGeneration, run.GroupID, run.ProjectID), Totals: toTotals(totals), Answered: answered, UnknownWrites: int(unknown),
		Unsummarized: int(progress.Unsummarized), SummaryFailures: int(progress.Failures),
	}
	if state.Run.Scope != tx.scope {
		return EndState{}, fmt.Errorf("close run: %w", ErrNotFound)
	}
	for i := len(calls) - 1; i >= 0; i-- {
		state.ToolCalls = int(calls[i].Total)
		state.Actions = append(state.Actions, agent.CompletedAction{
			CallID: calls[i].CallID, Tool: calls[i].Tool, Error: agent.ToolErrorCode(calls[i].ErrorCode),
		})
	}
	return state, nil
}

func toRun(row dbsqlc.Run, currentGeneration int64, group, project string) Run {
	var memory *agent.MemoryUse
	if len(row.Memory) > 0 {
		// What a newer version wrote and this one cannot read is left out.
		if err := json.Unmarshal(row.Memory, &memory); err != nil {
			memory = nil
		}
	}
	return Run{
		ID: row.ID, Scope: agent.Scope{Tenant: row.Tenant, User: row.UserID, Environment: row.Environment},
		Conversation: row.ConversationID, Group: group, Project: project, Generation: row.Generation, Agent: row.Agent,
		DefinitionVersion: row.DefinitionVersion, DefinitionDigest: row.DefinitionDigest, Page: row.Page, Flags: row.Flags,
		Status: agent.Status(row.Status), Reason: agent.Reason(present(row.Reason)), Detail: row.Detail,
		Step: int(row.Step), ToolCalls: int(row.ToolCalls),
		Budget: agent.Budget{
			MaxSteps: int(row.MaxSteps), MaxToolCalls: int(row.MaxToolCalls), MaxTokens: row.MaxTokens,
			MaxCostMicros: row.MaxCostMicros, Timeout: time.Duration(row.TimeoutNs),
		},
		Deadline: row.Deadline.UTC(), WorkflowID: row.WorkflowID, RequestHash: row.RequestHash,
		QuestionID: row.QuestionMessageID, AnswerID: present(row.AnswerMessageID), Memory: memory,
		CreatedAt: row.CreatedAt, StartedAt: present(row.StartedAt), EndedAt: present(row.EndedAt), WaitingSince: present(row.WaitingSince),
		Version: int(row.Version), CurrentGeneration: currentGeneration,
	}
}
