package activities_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// canary stands in every piece of content that passes through; it must never be
// seen in a log line, an error or a result.
const canary = "CANARY-7f3a"

// bundle is one test's activities on a database of their own.
type bundle struct {
	testing.TB
	ctx   context.Context
	runs  *activities.Runs
	db    *db.DB
	owner *pgxpool.Pool
	log   *transcript
	cfg   activities.Config
	defs  []definition.Definition
	calls *counter
}

// transcript collects the logs of all workers.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *transcript) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *transcript) Sync() error { return nil }

func (l *transcript) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[name]++
}

func (c *counter) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

type options struct {
	script  scripted.Script
	model   model.Model
	tools   []tool.Tool
	limits  activities.Limits
	edit    func(*definition.Definition)
	entries []model.Entry
}

func price(micros int64) *int64 { return &micros }

// priced costs 1 micro-dollar for an input token and 2 for an output token.
var priced = model.Entry{
	Name: "priced", Provider: "scripted", Model: "scripted-priced", ContextWindow: 32_000, MaxOutputTokens: 1_000,
	InputPrice: price(1_000_000), OutputPrice: price(2_000_000), Mode: model.ModeLocal, Timeout: 5 * time.Second,
}

// unpriced is priced without a price.
var unpriced = model.Entry{
	Name: "unpriced", Provider: "scripted", Model: "scripted-unpriced", ContextWindow: 32_000, MaxOutputTokens: 1_000, Mode: model.ModeLocal,
}

func base() definition.Definition {
	return definition.Definition{
		Name: "helper", Version: "1", System: "You help. " + canary, Model: "priced",
		Tools: []string{"look", "slow", "broken", "fetch_result"}, Environments: []string{"production"},
		Budget: definition.Budget{MaxSteps: 10, MaxToolCalls: 20, MaxTokens: 1_000_000, Timeout: time.Minute},
	}
}

func setup(t testing.TB, o options) *bundle {
	t.Helper()
	d, url := dbtest.NewWithURL(t)
	b := &bundle{TB: t, ctx: context.Background(), db: d, owner: dbtest.Owner(t, url), log: &transcript{}, calls: &counter{n: map[string]int{}}}
	b.runs = b.worker(o)
	return b
}

// worker returns activities as another process on the same database has them.
func (b *bundle) worker(o options) *activities.Runs {
	b.Helper()
	def := base()
	if o.edit != nil {
		o.edit(&def)
	}
	defs, err := definition.NewSet(def)
	if err != nil {
		b.Fatal(err)
	}
	b.defs = defs.All()
	catalogue := model.Catalogue{}
	for _, e := range append([]model.Entry{priced, unpriced}, o.entries...) {
		if catalogue, err = catalogue.With(e); err != nil {
			b.Fatal(err)
		}
	}
	adapter := o.model
	if adapter == nil {
		script := o.script
		if script == nil {
			script = scripted.ByStep(scripted.Turn{Text: "fine " + canary})
		}
		adapter = scripted.New(func(ctx context.Context, req model.Request) (scripted.Turn, error) {
			b.calls.add("model")
			return script(ctx, req)
		})
	}
	tools, err := tool.NewRegistry(append(o.tools, tool.NewFetchResult(activities.Results{Store: activities.PostgreSQL(b.db)}), look{b}, slow{b}, broken{})...)
	if err != nil {
		b.Fatal(err)
	}
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	log := zap.New(zapcore.NewCore(encoder, b.log, zap.DebugLevel))
	b.cfg = activities.Config{
		Store: activities.PostgreSQL(b.db), Models: model.NewResolver(catalogue, map[string]model.Model{"scripted": adapter}),
		Tools: tools, Definitions: defs, Limits: o.limits, Log: log, ShutdownGrace: 400 * time.Millisecond,
	}
	runs, err := activities.New(b.cfg)
	if err != nil {
		b.Fatal(err)
	}
	return runs
}

// look is a fast read that answers with what it was asked for.
type look struct{ b *bundle }

func (look) Spec() tool.Spec {
	return tool.Spec{
		Name: "look", Version: "1", Description: "Looks.", Risk: tool.Read, Fast: true, Source: "store", Trust: tool.Authoritative,
		Parameters: json.RawMessage(`{"type":"object","properties":{"at":{"type":"string"},"size":{"type":"integer"}},"required":["at"]}`),
	}
}

func (l look) Execute(_ context.Context, call tool.Invocation) (tool.Result, error) {
	l.b.calls.add("look")
	args, err := tool.DecodeArgs[struct {
		At   string `json:"at"`
		Size int    `json:"size"`
	}](call.Arguments)
	if err != nil {
		return tool.Result{}, err
	}
	switch args.At {
	case "nowhere":
		return tool.Result{}, &tool.Error{Code: agent.ToolNotFound, Message: "nothing there " + canary}
	case "crash":
		panic(canary)
	case "unknown":
		return tool.Result{}, fmt.Errorf("sent: %w", tool.ErrOutcomeUnknown)
	}
	return tool.Text(args.At + " " + canary + strings.Repeat(" x", args.Size/2)), nil
}

// slow is a read that waits until its context ends.
type slow struct{ b *bundle }

func (slow) Spec() tool.Spec {
	return tool.Spec{
		Name: "slow", Version: "1", Description: "Waits.", Risk: tool.Read, Source: "store",
		Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
	}
}

func (s slow) Execute(ctx context.Context, _ tool.Invocation) (tool.Result, error) {
	s.b.calls.add("slow")
	<-ctx.Done()
	return tool.Result{}, ctx.Err()
}

// broken cannot say who may use it.
type broken struct{}

func (broken) Spec() tool.Spec {
	return tool.Spec{
		Name: "broken", Version: "1", Description: "Breaks.", Risk: tool.Read, Source: "store",
		Parameters: json.RawMessage(`{"type":"object","properties":{}}`),
	}
}
func (broken) Authorize(context.Context, tool.Invocation) error { return errors.New(canary) }
func (broken) Execute(context.Context, tool.Invocation) (tool.Result, error) {
	return tool.Text("no"), nil
}

func request() agent.RunRequest {
	return agent.RunRequest{
		RunID: uuid.NewString(), Tenant: "acme", User: "ada", Conversation: uuid.NewString(),
		Agent: "helper", Environment: "production", Message: "How are you? " + canary,
	}
}

func (b *bundle) begin(req agent.RunRequest) agent.BeginRunOutput {
	b.Helper()
	out, err := b.runs.BeginRun(b.ctx, agent.BeginRunInput{Request: req, StartedAt: time.Now()})
	if err != nil {
		b.Fatalf("begin: %v", err)
	}
	return out
}

// begun is a run that was begun, and what its activities are given.
type begun struct {
	req agent.RunRequest
	out agent.BeginRunOutput
}

func (b *bundle) start() begun {
	b.Helper()
	req := request()
	return begun{req, b.begin(req)}
}

func (g begun) ref() agent.RunRef {
	return agent.RunRef{Scope: g.req.Scope(), RunID: g.req.RunID, Generation: g.out.Generation}
}

func (g begun) next(step, try int) agent.NextActionInput {
	return agent.NextActionInput{
		Run: g.ref(), DefinitionDigest: g.out.DefinitionDigest, Model: g.out.Route.Model, Step: step, Try: try,
		Deadline: g.out.Deadline, TokensLeft: g.out.Budget.MaxTokens, CostLeftMicros: -1,
	}
}

func (g begun) read(step int, call agent.Call) agent.ReadToolInput {
	return agent.ReadToolInput{
		Run: g.ref(), CallID: call.ID,
		ArgumentsHash: call.ArgumentsHash, Deadline: g.out.Deadline,
	}
}

func (b *bundle) act(in agent.NextActionInput) agent.Action {
	b.Helper()
	action, err := b.runs.NextAction(b.ctx, in)
	if err != nil {
		b.Fatalf("next action: %v", err)
	}
	return action
}

func (b *bundle) observe(in agent.ReadToolInput) agent.ToolOutcome {
	b.Helper()
	out, err := b.runs.ReadTool(b.ctx, in)
	if err != nil {
		b.Fatalf("read tool: %v", err)
	}
	return out
}

func (b *bundle) finish(g begun, reason agent.Reason, step int, answer string) agent.RunResult {
	b.Helper()
	result, err := b.runs.EndRun(b.ctx, agent.EndRunInput{Run: g.ref(), Reason: reason, Step: step, AnswerMessageID: answer})
	if err != nil {
		b.Fatalf("end: %v", err)
	}
	return result.RunResult
}

func (b *bundle) show(g begun) db.RunReport {
	b.Helper()
	report, err := b.db.ShowRun(b.ctx, g.req.Scope(), g.req.RunID)
	if err != nil {
		b.Fatal(err)
	}
	return report
}

// number runs a query for one number as the owner, who sees all tenants.
func (b *bundle) number(query string, args ...any) (n int64) {
	b.Helper()
	if err := b.owner.QueryRow(b.ctx, query, args...).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

func (b *bundle) exec(query string, args ...any) {
	b.Helper()
	if _, err := b.owner.Exec(b.ctx, query, args...); err != nil {
		b.Fatal(err)
	}
}

// checkLedger asserts what holds for every run that has ended: each reserve has
// exactly one settle, and the result's totals are their sum.
func (b *bundle) checkLedger(result agent.RunResult) {
	b.Helper()
	if n := b.number(`SELECT count(*) FROM ledger_entry r WHERE kind = 'reserve' AND run_id = $1 AND 1 <> (SELECT count(*) FROM ledger_entry s
		WHERE s.kind = 'settle' AND (s.tenant, s.run_id, s.step, s.attempt) = (r.tenant, r.run_id, r.step, r.attempt))`, result.RunID); n != 0 {
		b.Errorf("%d reserves without exactly one settle", n)
	}
	if n := b.number(`SELECT coalesce(sum(tokens), 0) FROM ledger_entry WHERE kind = 'settle' AND run_id = $1`, result.RunID); n != result.Usage.BilledTokens {
		b.Errorf("the ledger has %d tokens, the result %d", n, result.Usage.BilledTokens)
	}
	if n := b.number(`SELECT coalesce(sum(cost_micros), 0) FROM ledger_entry WHERE kind = 'settle' AND run_id = $1`, result.RunID); n != result.Usage.CostMicros {
		b.Errorf("the ledger has a cost of %d, the result %d", n, result.Usage.CostMicros)
	}
	if n := b.number(`SELECT count(*) FROM model_attempt WHERE status = 'started' AND run_id = $1`, result.RunID); n != 0 {
		b.Errorf("%d attempts are still open", n)
	}
}

// checkDaily asserts that the day's usage is the sum of all settles.
func (b *bundle) checkDaily() {
	b.Helper()
	settled := b.number(`SELECT coalesce(sum(tokens), 0) FROM ledger_entry WHERE kind = 'settle'`)
	for _, user := range []string{"", "ada"} {
		if n := b.number(`SELECT coalesce(sum(tokens), 0) FROM daily_usage WHERE user_id = $1`, user); n != settled {
			b.Errorf("daily usage of %q is %d, settled are %d", user, n, settled)
		}
	}
}

func refusedAs(t testing.TB, err error, want string) {
	t.Helper()
	var typed *temporal.ApplicationError
	if !errors.As(err, &typed) || typed.Type() != want || !typed.NonRetryable() {
		t.Fatalf("got %v, want a non-retryable %s", err, want)
	}
}

// together runs fn n times at once and waits.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	ready := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-ready
			fn(i)
		})
	}
	close(ready)
	wg.Wait()
}
