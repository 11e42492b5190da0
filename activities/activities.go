// Package activities does the work of a run: it wires the model, the tools and
// the database together, in the activities that package agent names. It is
// the only room that turns errors of services into Temporal errors; workers
// register it and workflows call it by name.
//
// Every activity is idempotent: done again, it returns what was recorded. Each
// works as a regular and as a local activity. What leaves the package carries
// identifiers, decisions, counts and hashes: no message, tool or model content
// in results, errors or logs (OBS-2).
package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/internal/vault"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/hashing"
	"github.com/fairlead/fairlead/tool"
)

// Config is what the activities are made of. Store, Models, Tools and
// Definitions are required.
type Config struct {
	Store       Store
	Models      *model.Resolver
	Tools       *tool.Registry
	Definitions *definition.Set
	// Limits hold for tenants that have none of their own in the database.
	Limits Limits
	Log    *zap.Logger
	// ShutdownGrace is the worker's stop timeout: what is in flight when the
	// worker stops is given most of it, then it is handed to another worker.
	// Zero means 10 s.
	ShutdownGrace time.Duration
	// HistoryMessages is how many earlier messages of the conversation a model
	// call looks back on at most; the token budgets decide how many of them it
	// has room for. Zero means 100; with less, messages may be in a request
	// neither in their own words nor in a summary.
	HistoryMessages int
	// Policies decide who may do what. Nil means the built-in ones.
	Policies *authz.Policies
	// Approvals verifies the tokens by which people confirm writes. Nil knows no
	// key: every approval is refused.
	Approvals *approval.Verifier
	// Memory is where long-term memory lives. Nil has none: definitions with memory
	// are refused.
	Memory Memory
	// MemoryPolicy decides what is remembered and read. Nil means the built-in one.
	MemoryPolicy *memorypolicy.Policy
	// Embedders compute vectors. The first one is current; the others are there
	// because vectors of them may still be in use. Empty means package
	// model/hashing's.
	Embedders []model.Embedder
	// Now is the clock; nil is time.Now. Tests that skip time set it.
	Now func() time.Time
}

// Limits bound every tenant and each of its users. Zero is no limit.
type Limits struct {
	MaxRunning          int
	MaxRunningPerUser   int
	DailyTokens         int64
	DailyCostMicros     int64
	UserDailyTokens     int64
	UserDailyCostMicros int64
}

func (l Limits) stored() db.Limits {
	limit := func(n int64) *int64 {
		if n == 0 {
			return nil
		}
		return &n
	}
	return db.Limits{
		MaxRunning: limit(int64(l.MaxRunning)), MaxRunningPerUser: limit(int64(l.MaxRunningPerUser)),
		DailyTokens: limit(l.DailyTokens), DailyCostMicros: limit(l.DailyCostMicros),
		UserDailyTokens: limit(l.UserDailyTokens), UserDailyCostMicros: limit(l.UserDailyCostMicros),
	}
}

// Runs has the activities of an AgentRun as methods. It is safe for concurrent
// use.
type Runs struct {
	store           Store
	models          *model.Resolver
	tools           *tool.Registry
	definitions     *definition.Set
	limits          db.Limits
	log             *zap.Logger
	shutdownGrace   time.Duration
	historyMessages int
	policies        *authz.Policies
	approvals       *approval.Verifier
	memory          Memory
	memoryPolicy    *memorypolicy.Policy
	embedders       []model.Embedder
	now             func() time.Time

	// pinned caches definitions by digest, which names their content for ever.
	pinned sync.Map
	// actions and reads keep one process from doing the same work twice at the
	// same time; across processes the database does.
	actions flights[attemptKey, agent.Action]
	reads   flights[callKey, agent.ToolOutcome]
	plans   flights[callKey, agent.PreparedWrite]
	writes  flights[callKey, agent.WriteOutcome]
}

// New returns the activities, or an error that names what is missing.
func New(c Config) (*Runs, error) {
	switch {
	case c.Store == nil:
		return nil, errors.New("activities: Store is missing")
	case c.Models == nil:
		return nil, errors.New("activities: Models is missing")
	case c.Tools == nil:
		return nil, errors.New("activities: Tools is missing")
	case c.Definitions == nil:
		return nil, errors.New("activities: Definitions is missing")
	case c.ShutdownGrace < 0 || c.HistoryMessages < 0:
		return nil, errors.New("activities: ShutdownGrace and HistoryMessages must not be negative")
	}
	r := &Runs{
		store: c.Store, models: c.Models, tools: c.Tools, definitions: c.Definitions, limits: c.Limits.stored(),
		log: c.Log, shutdownGrace: c.ShutdownGrace, historyMessages: c.HistoryMessages,
		policies: c.Policies, approvals: c.Approvals, memory: c.Memory, memoryPolicy: c.MemoryPolicy, embedders: c.Embedders, now: c.Now,
	}
	for _, d := range c.Definitions.All() {
		if r.memory == nil && hasMemory(d) {
			return nil, fmt.Errorf("activities: agent %s %s has memory, and Memory is missing", d.Name, d.Version)
		}
	}
	if r.policies == nil {
		r.policies = authz.Default()
	}
	if len(r.embedders) == 0 {
		offline, err := hashing.New(hashing.Options{})
		if err != nil {
			return nil, fmt.Errorf("activities: %w", err)
		}
		r.embedders = []model.Embedder{offline}
	}
	r.defaults()
	if r.shutdownGrace == 0 {
		r.shutdownGrace = 10 * time.Second
	}
	if r.historyMessages == 0 {
		r.historyMessages = 100
	}
	for _, d := range c.Definitions.All() {
		r.pinned.Store(definition.Digest(d), d)
	}
	return r, nil
}

// defaults fills in what a memory is proposed with.
func (r *Runs) defaults() {
	if r.memoryPolicy == nil {
		r.memoryPolicy = memorypolicy.Default()
	}
	if r.now == nil {
		r.now = time.Now
	}
	if r.log == nil {
		r.log = zap.NewNop()
	}
}

// Registry is the part of a Temporal worker that Register needs.
type Registry interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// Register registers every activity under its name in package agent.
func (r *Runs) Register(registry Registry) {
	for name, method := range map[string]any{
		agent.ActivityBeginRun:        r.BeginRun,
		agent.ActivityNextAction:      r.NextAction,
		agent.ActivityReadTool:        r.ReadTool,
		agent.ActivityPrepareWrite:    r.PrepareWrite,
		agent.ActivityCommitWrite:     r.CommitWrite,
		agent.ActivityResolveWrite:    r.ResolveWrite,
		agent.ActivityExpirePlan:      r.ExpirePlan,
		agent.ActivityRefuseApprovals: r.RefuseApprovals,
		agent.ActivityEndRun:          r.EndRun,
		agent.ActivitySummarize:       r.Summarize,
		agent.ActivityRecall:          r.Recall,
		agent.ActivityProposeMemory:   r.ProposeMemory,
		agent.ActivityJudgeMemory:     r.JudgeMemory,
		agent.ActivitySettleMemory:    r.SettleMemory,
		agent.ActivityLearn:           r.Learn,
		agent.ActivityForget:          r.Forget,
		agent.ActivityErase:           r.Erase,
		agent.ActivityReconcile:       r.Reconcile,
		agent.ActivityReindex:         r.Reindex,
	} {
		registry.RegisterActivityWithOptions(method, activity.RegisterOptions{Name: name})
	}
}

// definition returns the definition of that digest, from this process or as it
// was stored when the run began.
func (r *Runs) definition(ctx context.Context, digest string) (definition.Definition, error) {
	if d, ok := r.pinned.Load(digest); ok {
		return d.(definition.Definition), nil
	}
	body, err := r.store.DefinitionBody(ctx, digest)
	if err != nil {
		return definition.Definition{}, fmt.Errorf("load definition: %w", err)
	}
	var d definition.Definition
	if err := json.Unmarshal(body, &d); err != nil {
		return definition.Definition{}, fmt.Errorf("load definition: stored definition cannot be read by this version")
	}
	if definition.Digest(d) != digest {
		return definition.Definition{}, fmt.Errorf("load definition: stored definition has another digest")
	}
	r.pinned.Store(digest, d)
	return d, nil
}

// typeInternal is the type of an error that another try would meet again. The
// workflow ends the run as internal.
const typeInternal = "Internal"

// errRetry marks an error that another try, on this worker or another one, may
// not meet.
var errRetry = errors.New("try again")

// HandBack is the error of an activity whose worker stops: it is no failure, and
// another worker takes over. A local activity belongs to a workflow task of this
// worker, which would try it again here; so it is not retried, and the workflow
// gives it to the queue.
func HandBack(ctx context.Context) error {
	local := activity.IsActivity(ctx) && activity.GetInfo(ctx).IsLocalActivity
	return temporal.NewApplicationErrorWithOptions(errStopping.Error(), agent.ErrorHandedBack,
		temporal.ApplicationErrorOptions{NonRetryable: local, Category: temporal.ApplicationErrorCategoryBenign})
}

// fault turns an error into what Temporal is told: infrastructure is retried,
// a fault of ours is not. The text is safe.
func (r *Runs) fault(ctx context.Context, name string, ref agent.RunRef, err error) error {
	return r.faultOf(ctx, name, err, zap.String("run_id", ref.RunID), zap.Int64("generation", ref.Generation))
}

// faultOf is fault for an activity of another kind; fields say in the log what it
// was about.
func (r *Runs) faultOf(ctx context.Context, name string, err error, fields ...zap.Field) error {
	var refused *temporal.ApplicationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if errors.Is(err, errStopping) {
		return HandBack(ctx)
	}
	log := r.log.With(zap.String("activity", name)).With(fields...)
	var schema *db.SchemaError
	if errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrConflict) || errors.Is(err, errRetry) || errors.As(err, &schema) || keysAway(err) {
		log.Warn("activity will be retried", zap.String("cause", err.Error()))
		return errors.New(name + ": " + err.Error())
	}
	log.Error("activity failed", zap.String("cause", err.Error()))
	return temporal.NewNonRetryableApplicationError(name+": "+err.Error(), typeInternal, nil)
}

// keysAway reports whether content cannot be read or written now: another worker
// may have the key, a KMS may come back, and an earlier version's content is
// being sealed.
func keysAway(err error) bool {
	return errors.Is(err, db.ErrNoVault) || errors.Is(err, vault.ErrWrapped) || errors.Is(err, db.ErrUnsealed)
}

// contain turns a panic of this package into an error without its text, which
// may hold content. Models and tools are contained closer to where they run.
func (r *Runs) contain(name string, ref agent.RunRef, err *error) {
	if p := recover(); p != nil {
		r.log.Error("activity panicked", zap.String("activity", name), zap.String("run_id", ref.RunID),
			zap.String("panic_type", fmt.Sprintf("%T", p)), zap.ByteString("stack", debug.Stack()))
		*err = temporal.NewNonRetryableApplicationError(name+": internal error", typeInternal, nil)
	}
}
