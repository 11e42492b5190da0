package main

import (
	"bytes"
	"context"
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

func (f *fakeReader) Close() {}

// fakeEngine answers as it is told. Result waits until ended is closed.
type fakeEngine struct {
	mu       sync.Mutex
	started  []agent.RunRequest
	canceled []string
	// signals are those that were sent; signalErr is what sending says.
	signals   []string
	signalErr error
	startErr  error
	stateErr  error
	unserved  bool
	ended     chan struct{}
	result    agent.RunResult
	err       error
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

func (f *fakeEngine) SignalWorkflow(_ context.Context, workflowID, _, signalName string, _ any) error {
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
	env := map[string]string{"DATABASE_URL": "postgres://u@h/d"}
	for name, value := range c.env {
		env[name] = value
	}
	a := &app{
		in: strings.NewReader(c.stdin), out: &out, errOut: &errOut, inTerminal: c.terminal, color: c.color,
		lookupEnv:  func(name string) (string, bool) { value, ok := env[name]; return value, ok },
		openReader: func(context.Context, config.Config) (reader, error) { return c.reader, nil },
		openOffice: func(context.Context, config.Config) (office, error) { return c.office, nil },
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

var errBroken = errors.New("broken")
