package activities

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/tool"
)

type callKey struct{ tenant, runID, callID string }

// ReadTool executes one recorded call, or returns its recorded outcome.
func (r *Runs) ReadTool(ctx context.Context, in agent.ReadToolInput) (out agent.ToolOutcome, err error) {
	defer r.contain(agent.ActivityReadTool, in.Run, &err)
	key := callKey{in.Run.Scope.Tenant, in.Run.RunID, in.CallID}
	out, err = r.reads.do(ctx, key, func() (agent.ToolOutcome, error) { return r.readTool(ctx, in) })
	return out, r.fault(ctx, agent.ActivityReadTool, in.Run, err)
}

func (r *Runs) readTool(ctx context.Context, in agent.ReadToolInput) (agent.ToolOutcome, error) {
	log := r.log.With(zap.String("run_id", in.Run.RunID), zap.String("call_id", in.CallID))
	end := func(reason agent.Reason, why string) (agent.ToolOutcome, error) {
		log.Warn("tool call ends the run", zap.String("reason", string(reason)), zap.String("why", why))
		return agent.ToolOutcome{CallID: in.CallID, End: reason}, nil
	}
	run, call, err := r.store.ToolCall(ctx, in.Run.Scope, in.Run.RunID, in.CallID)
	if errors.Is(err, db.ErrNotFound) {
		return end(agent.ReasonInternal, "call_missing")
	}
	if err != nil {
		return agent.ToolOutcome{}, err
	}
	if call.ArgumentsHash != in.ArgumentsHash {
		return end(agent.ReasonInternal, "arguments_changed")
	}
	if call.Recorded() {
		return recordedOutcome(call), nil
	}
	switch code, detail := fence(run, in.Run.Generation); code {
	case "":
	case agent.FailureSuperseded:
		return end(agent.ReasonSuperseded, detail)
	case agent.FailureCanceled:
		return end(agent.ReasonCanceled, detail)
	default:
		return end(agent.ReasonInternal, detail)
	}
	def, err := r.definition(ctx, run.DefinitionDigest)
	if err != nil {
		return agent.ToolOutcome{}, err
	}
	return r.execute(ctx, in, run, call, def)
}

// execute runs the tool outside of any transaction and records the outcome.
func (r *Runs) execute(ctx context.Context, in agent.ReadToolInput, run db.Run, call db.ToolCall, def definition.Definition) (agent.ToolOutcome, error) {
	actor := actorOf(run)
	checked, _ := r.tools.Check(actor, def.Tools, call.Tool, call.Arguments)
	if !checked.Spec.Fast {
		// Visible to whoever looks while it runs; a fast read is over by then.
		err := r.store.InTx(ctx, in.Run.Scope, func(tx Tx) error {
			tx.StartToolCall(run.ID, call.ID)
			return nil
		})
		if err != nil {
			return agent.ToolOutcome{}, err
		}
	}
	work, done := r.bound(ctx, in.Deadline, 0)
	defer done()
	outcome := db.CallOutcome{StartedAt: r.now()}
	var result tool.Result
	err := r.decide(about(authz.Read, run, call, ""), run.ID)
	if err == nil {
		result, err = r.tools.Execute(work, tool.Call{
			Invocation: tool.Invocation{Actor: actor, RunID: run.ID, CallID: call.ID, Arguments: []byte(call.Arguments)},
			Tool:       call.Tool, Allow: def.Tools, ArgumentsHash: call.ArgumentsHash,
		})
	}
	shown, ended, err := judgeTool(ctx, work, err)
	switch {
	case err != nil:
		return agent.ToolOutcome{}, err
	case ended != "":
		return agent.ToolOutcome{CallID: call.ID, End: ended}, nil
	case shown != nil:
		r.logToolError(run.ID, call.ID, shown)
		outcome.Error, outcome.Envelope = shown.ToolError(call.Tool), string(tool.ErrorEnvelope(shown))
	default:
		envelope := tool.NewEnvelope(checked.Spec, call.ID, result)
		if !r.fetches(actor, def) {
			envelope.Note = ""
		}
		outcome.Envelope, outcome.Content, outcome.ContentType = string(envelope.Bytes()), result.Content, result.ContentType
		outcome.ResultHash = db.ContentHash(result.Content)
		outcome.Note, outcome.Facts = result.Note, factsOf(checked.Spec, call, result)
	}
	return r.recordOutcome(ctx, in, outcome)
}

// logToolError leaves a trace of a failed call for the tool's author.
func (r *Runs) logToolError(runID, callID string, failed *tool.Error) {
	log := r.log.With(zap.String("run_id", runID), zap.String("call_id", callID), zap.String("code", string(failed.Code)))
	if crashed, trace := traceOf(failed); crashed {
		log.Error("tool panicked", trace...)
	} else {
		log.Info("tool failed", trace...)
	}
}

// traceOf is what may be logged of a tool's error: its text may hold content, so
// its type has to do, and a panic's stack.
func traceOf(err error) (crashed bool, fields []zap.Field) {
	var crash interface {
		error
		Stack() []byte
	}
	if errors.As(err, &crash) {
		return true, []zap.Field{zap.String("cause", crash.Error()), zap.ByteString("stack", crash.Stack())}
	}
	return false, []zap.Field{zap.String("cause_type", fmt.Sprintf("%T", tool.Cause(err)))}
}

// judgeTool sorts the errors of an execution: one for the model, an end of the
// run, or one for Temporal.
func judgeTool(ctx, work context.Context, err error) (shown *tool.Error, ended agent.Reason, retry error) {
	switch {
	case err == nil:
		return nil, "", nil
	case errors.Is(err, tool.ErrOutcomeUnknown):
		return nil, agent.ReasonOutcomeUnknown, nil
	case errors.As(err, &shown):
		return shown, "", nil
	case ctx.Err() != nil:
		return nil, "", ctx.Err()
	case errors.Is(context.Cause(work), errStopping):
		return nil, "", fmt.Errorf("%w: %w", errRetry, errStopping)
	case errors.Is(context.Cause(work), errDeadline):
		return &tool.Error{Code: agent.ToolTimeout, Message: "the run's time was up before the tool answered"}, "", nil
	case errors.Is(err, tool.ErrAuthorizationUnavailable):
		return nil, agent.ReasonAuthorizationUnavailable, nil
	default:
		// Recorded arguments that changed, or a scope that is incomplete.
		return nil, agent.ReasonInternal, nil
	}
}

// recordOutcome stores the outcome; if another execution was faster, it returns
// that one's.
func (r *Runs) recordOutcome(ctx context.Context, in agent.ReadToolInput, outcome db.CallOutcome) (agent.ToolOutcome, error) {
	var mine bool
	err := r.insist(ctx, func(ctx context.Context) error {
		tctx, cancel := aside(ctx)
		defer cancel()
		return r.store.InTx(tctx, in.Run.Scope, func(tx Tx) error {
			tx.FinishToolCall(in.Run.RunID, in.CallID, outcome, &mine)
			return nil
		})
	})
	if err != nil {
		return agent.ToolOutcome{}, err
	}
	if mine {
		return agent.ToolOutcome{CallID: in.CallID, ResultHash: outcome.ResultHash, Error: outcome.Error}, nil
	}
	_, call, err := r.store.ToolCall(ctx, in.Run.Scope, in.Run.RunID, in.CallID)
	if err != nil {
		return agent.ToolOutcome{}, err
	}
	if !call.Recorded() {
		// The run has ended and its open calls were abandoned.
		return agent.ToolOutcome{CallID: in.CallID, End: agent.ReasonCanceled}, nil
	}
	return recordedOutcome(call), nil
}

func recordedOutcome(call db.ToolCall) agent.ToolOutcome {
	return agent.ToolOutcome{CallID: call.ID, ResultHash: call.ResultHash, Error: call.Error}
}

// fetches reports whether the model has the tool that a truncated result's note
// speaks of.
func (r *Runs) fetches(actor tool.Actor, def definition.Definition) bool {
	for _, spec := range r.tools.Offer(actor, def.Tools) {
		if spec.Name == tool.FetchResultName {
			return true
		}
	}
	return false
}

// Results lets tool.NewFetchResult read what runs have stored.
type Results struct{ Store Store }

// ReadResult implements tool.ResultReader.
func (r Results) ReadResult(ctx context.Context, scope agent.Scope, runID, resultID string, offset, limit int64) ([]byte, int64, error) {
	chunk, total, err := r.Store.ReadResult(ctx, scope, runID, resultID, offset, limit)
	if errors.Is(err, db.ErrNotFound) {
		return nil, 0, tool.ErrResultNotFound
	}
	return chunk, total, err
}
