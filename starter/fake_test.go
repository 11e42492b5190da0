package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/vault"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// began is when the run of these tests begins.
var began = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(milliseconds int) time.Time {
	return began.Add(time.Duration(milliseconds) * time.Millisecond)
}

func ptr[T any](v T) *T { return &v }

// hostile holds what a terminal would obey: an escape sequence, a C1 control, a
// character that reverses the text, and a bell.
const hostile = "\x1b[31mred\u009b2J \u202eevil\a"

// report is a run of two steps as the database tells it.
func report() db.RunReport {
	r := db.RunReport{
		Run: db.Run{
			ID: "run-1", Scope: agent.Scope{Tenant: "acme", User: "ann", Environment: "test"}, Conversation: "c-1", Generation: 2,
			Agent: "opspilot", DefinitionVersion: "1", DefinitionDigest: strings.Repeat("ab", 32),
			Status: agent.StatusSucceeded, Reason: agent.ReasonFinal, Step: 2, ToolCalls: 2,
			Budget:     agent.Budget{MaxSteps: 12, MaxToolCalls: 20, MaxTokens: 5000, MaxCostMicros: 500_000, Timeout: 3 * time.Minute},
			WorkflowID: "agent-run~acme~run-1", AnswerID: "m-2",
			Deadline: at(180_000), CreatedAt: at(0), StartedAt: at(5), EndedAt: at(1500),
		},
		Transitions: []db.Transition{
			{Seq: 1, To: agent.StatusQueued, At: at(0)},
			{Seq: 2, From: agent.StatusQueued, To: agent.StatusRunning, At: at(5)},
			{Seq: 3, From: agent.StatusRunning, To: agent.StatusSucceeded, Reason: agent.ReasonFinal, At: at(1500)},
		},
		Steps: []db.StepReport{
			{
				Step: 0,
				Attempts: []db.Attempt{
					{
						Step: 0, Number: 1, Model: "scripted", Provider: "scripted", Status: db.AttemptFailed, FailureCode: agent.FailureRateLimited,
						Reserved: db.Amount{Tokens: 900, CostMicros: ptr(int64(400))}, Billed: &db.Amount{CostMicros: ptr(int64(0))}, UsageKnown: true,
						StartedAt: at(10), EndedAt: at(30),
					},
					{
						Step: 0, Number: 2, Try: 1, Model: "scripted", Provider: "scripted", Revision: "scripted-1", Status: db.AttemptSucceeded, Finish: "tool_calls",
						Reserved: db.Amount{Tokens: 900, CostMicros: ptr(int64(400))}, Reported: &db.ReportedTokens{Input: 312, Output: 45},
						Billed: &db.Amount{Tokens: 357, CostMicros: ptr(int64(123))}, UsageKnown: true, StartedAt: at(530), EndedAt: at(700),
						Prompt: json.RawMessage(`{"tokenizer":"o200k_base","window":128000,"reserved":4000,"input":298,"parts":[{"name":"system","tokens":200,"kept":1},{"name":"messages","tokens":98,"budget":500,"kept":2,"left_out":7},{"name":"steps","tokens":0,"budget":500,"kept":0,"cut":1}]}`),
					},
				},
				Calls: []db.CallReport{
					{
						ID: "0.0", Step: 0, Index: 0, Tool: "find_service", ToolVersion: "1", Risk: "read", Status: db.CallSucceeded,
						ArgumentsHash: strings.Repeat("12", 32), ResultHash: strings.Repeat("34", 32), ResultBytes: 3000, Executions: 1,
						ProposedAt: at(700), StartedAt: at(701), EndedAt: at(704),
					},
					{
						ID: "0.1", Step: 0, Index: 1, Tool: "query_logs", ToolVersion: "1", Risk: "read", Status: db.CallFailed,
						Error: &agent.ToolError{Code: agent.ToolTimeout}, ArgumentsHash: strings.Repeat("56", 32), Executions: 3,
						ProposedAt: at(700), StartedAt: at(701), EndedAt: at(1200),
					},
				},
			},
			{
				Step: 1,
				Attempts: []db.Attempt{{
					Step: 1, Number: 1, Model: "llama", Provider: "openai", Status: db.AttemptSucceeded, Finish: "stop",
					Reserved: db.Amount{Tokens: 1000}, Billed: &db.Amount{Tokens: 1000}, StartedAt: at(1210), EndedAt: at(1490),
				}},
			},
		},
		Totals: db.Totals{
			Usage: agent.Usage{
				Attempts: 3, InputTokens: 312, OutputTokens: 45, BilledTokens: 1357, CostMicros: 123, UnknownAttempts: 1, UnpricedAttempts: 1,
			},
			LastStep: 1,
		},
		Answer: "The pool leaks. " + hostile + "\nSee the logs.\n",
	}
	return r
}

// running is the same run before its end.
func running() db.RunReport {
	r := report()
	r.Run.Status, r.Run.Reason, r.Run.Step, r.Run.ToolCalls, r.Run.EndedAt = agent.StatusRunning, "", 0, 0, time.Time{}
	r.Transitions, r.Answer = r.Transitions[:2], ""
	r.Steps = r.Steps[:1]
	r.Steps[0].Calls[1].Status, r.Steps[0].Calls[1].Error = db.CallRunning, nil
	r.Totals.Usage.Attempts, r.Totals.LastStep = 2, 0
	return r
}

// fakeReader gives its reports one after the other, the last one again and
// again; it gives err instead while there is one.
type fakeReader struct {
	mu      sync.Mutex
	reports []db.RunReport
	err     error
	runs    []db.RunSummary
	filter  db.RunFilter
	scopes  []agent.Scope
	// sealed is a database whose content nobody has the key for.
	sealed bool
	// given are the memories that the run was given.
	given []db.MemoryInfluence
}

func (f *fakeReader) next(scope agent.Scope) (db.RunReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scopes = append(f.scopes, scope)
	if f.err != nil {
		return db.RunReport{}, f.err
	}
	if len(f.reports) == 0 {
		return db.RunReport{}, db.ErrNotFound
	}
	first := f.reports[0]
	if len(f.reports) > 1 {
		f.reports = f.reports[1:]
	}
	return first, nil
}

func (f *fakeReader) Progress(_ context.Context, scope agent.Scope, _ string, _ int) (db.RunReport, error) {
	r, err := f.next(scope)
	r.Answer = ""
	return r, err
}

func (f *fakeReader) ShowRun(_ context.Context, scope agent.Scope, _ string) (db.RunReport, error) {
	if f.sealed {
		return db.RunReport{}, db.ErrNoVault
	}
	return f.next(scope)
}

func (f *fakeReader) ListRuns(_ context.Context, filter db.RunFilter) ([]db.RunSummary, error) {
	f.filter = filter
	return f.runs, f.err
}

func (f *fakeReader) ToolCall(_ context.Context, _ agent.Scope, _, callID string) (db.Run, db.ToolCall, error) {
	return db.Run{}, db.ToolCall{ID: callID, Arguments: `{"query":"payment ` + hostile + `"}`}, nil
}

func (f *fakeReader) PlanState(_ context.Context, tenant, runID, callID string, revision int) (db.PlanState, error) {
	return db.PlanState{Plan: db.WritePlan{RunID: runID, CallID: callID, Summary: fmt.Sprintf("Restart payment of %s.\n%s, revision %d", tenant, hostile, revision)}}, nil
}

func (f *fakeReader) ReadResult(_ context.Context, _ agent.Scope, _, _ string, _, limit int64) ([]byte, int64, error) {
	// Cut in the middle of a character, as a byte limit does.
	return []byte("line one " + hostile + "\nline two \xe4\xbb"), 3000, nil
}

func (f *fakeReader) Session(_ context.Context, scope agent.Scope, conversation string) (db.SessionState, error) {
	if conversation != "c-1" || scope.User != "ann" {
		return db.SessionState{}, &db.Error{Kind: db.ErrNotFound}
	}
	return db.SessionState{
		Facts: []db.SessionEntry{
			{Version: 3, Kind: db.EntryFact, Key: "current_service", Value: "payment-api" + hostile, Tool: "find_service", ToolVersion: "1", RunID: "r-1", CallID: "0.0", At: at(5)},
			{Version: 4, Kind: db.EntryFact, Key: "region", Value: "eu", MessageID: "m-1", RunID: "r-1", At: at(6)},
		},
		Prohibitions: []db.SessionEntry{
			{Version: 1, Kind: db.EntryProhibition, Key: "p-1", Value: "Never restart production.", Tools: []string{"restart_service"}, MessageID: "m-1", At: at(1)},
			{Version: 2, Kind: db.EntryProhibition, Key: "p-2", Value: "Do not open tickets by yourself.", Tools: []string{"open_ticket"}, Ask: true, MessageID: "m-1", At: at(1)},
			{Version: 5, Kind: db.EntryProhibition, Key: "p-3", Value: "Do not change anything.", Tools: []string{"*"}, MessageID: "m-2", At: at(2)},
			{Version: 6, Kind: db.EntryProhibition, Key: "p-4", Value: "Ask before you change or search anything.", Tools: []string{"*", "search" + hostile}, Ask: true, MessageID: "m-2", At: at(2)},
			{Version: 7, Kind: db.EntryProhibition, Key: "p-5", Value: "Do not be rude.", MessageID: "m-2", At: at(2)},
			{Version: 8, Kind: db.EntryProhibition, Key: "p-6", Value: "Ask me.", Ask: true, MessageID: "m-2", At: at(2)},
		},
	}, nil
}

func (f *fakeReader) RunMemories(context.Context, string, string, string) ([]db.MemoryInfluence, error) {
	return f.given, nil
}

func (f *fakeReader) Close() {}

// fakeEngine answers as it is told. Result waits until ended is closed.
type fakeEngine struct {
	mu       sync.Mutex
	started  []agent.RunRequest
	canceled []string
	// signals are those that were sent; signalErr is what sending says.
	signals   []string
	signalArg any
	signalErr error
	startErr  error
	stateErr  error
	unserved  bool
	ended     chan struct{}
	result    agent.RunResult
	err       error
	// jobs are those that were begun; answer is what they end with, after ended if
	// that is set, and with err.
	jobs   []job
	answer any
	// details are given one after the other, the last one again and again.
	details []string
}

func (f *fakeEngine) Begin(_ context.Context, j job) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs = append(f.jobs, j)
	return f.startErr
}

func (f *fakeEngine) Details(context.Context, string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.details) == 0 {
		return "", errUnknownRun
	}
	first := f.details[0]
	if len(f.details) > 1 {
		f.details = f.details[1:]
	}
	return first, nil
}

func (f *fakeEngine) Await(ctx context.Context, _ string, result any) error {
	if f.ended != nil {
		select {
		case <-f.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	text, err := json.Marshal(f.answer)
	if err != nil {
		return err
	}
	return errors.Join(f.err, json.Unmarshal(text, result))
}

func (f *fakeEngine) Start(_ context.Context, request agent.RunRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = append(f.started, request)
	return f.startErr
}

func (f *fakeEngine) Result(ctx context.Context, _ string) (agent.RunResult, error) {
	select {
	case <-f.ended:
		return f.result, f.err
	case <-ctx.Done():
		return agent.RunResult{}, ctx.Err()
	}
}

func (f *fakeEngine) State(context.Context, string) (agent.RunView, error) {
	return agent.RunView{RunID: "run-1", Status: agent.StatusRunning, Step: 1, ToolCalls: 2, WaitingFor: "model scripted (step 2, try 1)"}, f.stateErr
}

func (f *fakeEngine) Cancel(_ context.Context, workflowID string) error {
	f.canceled = append(f.canceled, workflowID)
	return f.err
}

func (f *fakeEngine) SignalWorkflow(_ context.Context, workflowID, _, signalName string, arg any) error {
	f.signalArg = arg
	f.signals = append(f.signals, signalName+" to "+workflowID)
	return f.signalErr
}

func (f *fakeEngine) Served(context.Context) (bool, error) { return !f.unserved, nil }
func (f *fakeEngine) Close()                               {}

// failed is how a workflow ends with an application error.
func failed(errorType, message string) error {
	return temporal.NewNonRetryableApplicationError(message, errorType, nil)
}

// console is one invocation of the starter on fakes.
type console struct {
	reader *fakeReader
	engine *fakeEngine
	office *fakeOffice
	// records are what operators change, keys what a codec server opens with.
	records *fakeRecords
	keys    keySource
	// memories are what is remembered.
	memories *fakeMemories
	// noTemporal makes Temporal unreachable.
	noTemporal bool
	stdin      string
	// silent, if set, is a person who types nothing until it is closed.
	silent   chan struct{}
	terminal bool
	color    bool
	env      map[string]string
}

// outcome is what it printed and its exit code.
type outcome struct {
	out, errOut string
	code        int
}

func (c console) invoke(ctx context.Context, args ...string) outcome {
	var out, errOut bytes.Buffer
	env := map[string]string{"DATABASE_URL": "postgres://u@h/d", "FAIRLEAD_ENCRYPTION_KEY": encryptionKey}
	for name, value := range c.env {
		env[name] = value
	}
	a := &app{
		in: strings.NewReader(c.stdin), out: &out, errOut: &errOut, inTerminal: c.terminal, color: c.color,
		lookupEnv:    func(name string) (string, bool) { value, ok := env[name]; return value, ok },
		openReader:   func(context.Context, config.Config) (reader, error) { return c.reader, nil },
		openOffice:   func(context.Context, config.Config) (office, error) { return c.office, nil },
		openRecords:  func(context.Context, config.Config) (records, error) { return c.records, nil },
		openKeys:     func(context.Context, config.Config) (keySource, error) { return c.keys, nil },
		openMemories: func(context.Context, config.Config) (memories, error) { return c.memories, nil },
		openEngine: func(context.Context, config.Config) (engine, error) {
			if c.noTemporal {
				return nil, &exit{exitUnreachable, "Temporal cannot be reached"}
			}
			return c.engine, nil
		},
	}
	if c.silent != nil {
		a.in = silence{c.silent}
	}
	code := a.main(ctx, args)
	return outcome{out.String(), errOut.String(), code}
}

// silence is an input on which nothing comes.
type silence struct{ until chan struct{} }

func (s silence) Read([]byte) (int, error) {
	<-s.until
	return 0, io.EOF
}

// fakeRecords notes what is asked of it, and fails with err.
type fakeRecords struct {
	asked     []string
	snapshots []db.Snapshot
	rollback  db.Rollback
	err       error
}

func (f *fakeRecords) TakeSnapshot(_ context.Context, tenant, conversation, label, by string) (db.Snapshot, error) {
	f.asked = append(f.asked, fmt.Sprintf("snapshot %s/%s %q by %s", tenant, conversation, label, by))
	if f.err != nil {
		return db.Snapshot{}, f.err
	}
	return db.Snapshot{ID: "s3", Conversation: conversation, Branch: 1, Seq: 12, Label: label, CreatedBy: by, CreatedAt: at(0)}, nil
}

func (f *fakeRecords) Snapshots(_ context.Context, tenant, conversation string) ([]db.Snapshot, error) {
	f.asked = append(f.asked, fmt.Sprintf("snapshots %s/%s", tenant, conversation))
	return f.snapshots, f.err
}

func (f *fakeRecords) RollBack(_ context.Context, tenant, conversation, snapshotID, by string) (db.Rollback, error) {
	f.asked = append(f.asked, fmt.Sprintf("rollback %s/%s to %s by %s", tenant, conversation, snapshotID, by))
	return f.rollback, f.err
}

func (f *fakeRecords) RotateKeys(_ context.Context, tenant, subject string) error {
	f.asked = append(f.asked, fmt.Sprintf("rotate %s/%s", tenant, subject))
	return f.err
}

func (f *fakeRecords) DestroyKeys(_ context.Context, tenant, subject, by string) error {
	f.asked = append(f.asked, fmt.Sprintf("destroy %s/%s by %s", tenant, subject, by))
	return f.err
}

func (f *fakeRecords) Close() {}

// encryptionKey is the key-encryption key of these tests.
var encryptionKey = func() string {
	key, err := vault.GenerateLocal()
	if err != nil {
		panic(err)
	}
	return key
}()

var errBroken = errors.New("broken")
