package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/tool"
)

// errDead is what a dead worker is told, so that it stops soon.
var errDead = errors.New("agenttest: this worker is dead")

// worker is one worker process: activities of its own, and its connection to
// the store, which ends with it.
type worker struct {
	run      *run
	runs     *activities.Runs
	registry *tool.Registry
	// methods are the activities by name.
	methods map[string]reflect.Value
	dead    chan struct{}

	mu      sync.Mutex
	flights map[string]*flight
}

// livingLog writes to the journal what a worker logs while it lives.
type livingLog struct{ *worker }

func (l livingLog) Write(p []byte) (int, error) {
	if l.isDead() != nil {
		return len(p), nil
	}
	return l.run.journal.Write(p)
}

func (livingLog) Sync() error { return nil }

func newWorker(r *run) *worker {
	w := &worker{run: r, methods: make(map[string]reflect.Value), dead: make(chan struct{}), flights: make(map[string]*flight)}
	s := r.suite
	var err error
	if w.registry, err = tool.NewRegistry(s.tools(w)...); err != nil {
		r.t.Fatalf("agenttest: %v", err)
	}
	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "msg", LevelKey: "level", EncodeLevel: zapcore.LowercaseLevelEncoder})
	w.runs, err = activities.New(activities.Config{
		Store: w, Models: s.models(w), Tools: w.registry, Definitions: s.definitions, Limits: s.config.Limits, Policies: s.policies, Approvals: s.verifier,
		Memory: w.memory(), MemoryPolicy: s.memoryPolicy, Embedders: []model.Embedder{watchedEmbedder{s.embedder, r}},
		Now: s.clock.now, Log: zap.New(zapcore.NewCore(encoder, livingLog{w}, zap.WarnLevel)),
	})
	if err != nil {
		r.t.Fatalf("agenttest: %v", err)
	}
	w.runs.Register(w)
	return w
}

// RegisterActivityWithOptions collects the activities.
func (w *worker) RegisterActivityWithOptions(a any, options activity.RegisterOptions) {
	w.methods[options.Name] = reflect.ValueOf(a)
}

// kill lets the worker die. Nothing that it does afterwards is stored.
func (w *worker) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isDead() != nil {
		return
	}
	close(w.dead)
	for _, f := range w.flights {
		f.cancel()
	}
}

func (w *worker) isDead() error {
	select {
	case <-w.dead:
		return errDead
	default:
		return nil
	}
}

// available says why the store cannot be used now.
func (w *worker) available() error {
	if err := w.isDead(); err != nil {
		return err
	}
	if w.run.down.Load() > 0 && w.run.down.Add(-1) >= 0 {
		return &db.Error{Kind: db.ErrUnavailable}
	}
	return nil
}

// InTx implements activities.Store.
func (w *worker) InTx(ctx context.Context, scope agent.Scope, fn func(activities.Tx) error) error {
	if err := w.available(); err != nil {
		return err
	}
	return w.run.suite.store.InTx(ctx, scope, func(tx activities.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return w.isDead()
	})
}

// ToolCall implements activities.Store.
func (w *worker) ToolCall(ctx context.Context, scope agent.Scope, runID, callID string) (db.Run, db.ToolCall, error) {
	if err := w.available(); err != nil {
		return db.Run{}, db.ToolCall{}, err
	}
	return w.run.suite.store.ToolCall(ctx, scope, runID, callID)
}

// Write implements activities.Store.
func (w *worker) Write(ctx context.Context, scope agent.Scope, runID, callID string) (db.WriteState, error) {
	if err := w.available(); err != nil {
		return db.WriteState{}, err
	}
	return w.run.suite.store.Write(ctx, scope, runID, callID)
}

// DefinitionBody implements activities.Store.
func (w *worker) DefinitionBody(ctx context.Context, digest string) (json.RawMessage, error) {
	if err := w.available(); err != nil {
		return nil, err
	}
	return w.run.suite.store.DefinitionBody(ctx, digest)
}

// ReadResult implements activities.Store.
func (w *worker) ReadResult(ctx context.Context, scope agent.Scope, runID, resultID string, offset, limit int64) ([]byte, int64, error) {
	if err := w.available(); err != nil {
		return nil, 0, err
	}
	return w.run.suite.store.ReadResult(ctx, scope, runID, resultID, offset, limit)
}
