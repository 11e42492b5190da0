package agenttest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// watch returns a tool that does what t does, and the moments that go with it.
func watch(w *worker, t tool.Tool) tool.Tool {
	base := watchedTool{Tool: t, worker: w, name: t.Spec().Name}
	writer, isWriter := t.(tool.Writer)
	finder, isFinder := t.(tool.Finder)
	switch {
	case isWriter && isFinder:
		return struct {
			watchedTool
			preparer
			tool.Finder
		}{base, writer, finder}
	case isWriter:
		return struct {
			watchedTool
			preparer
		}{base, writer}
	}
	return base
}

// preparer is what a tool.Writer has beyond a tool.Tool.
type preparer interface {
	Prepare(ctx context.Context, call tool.Invocation) (tool.Plan, error)
}

type watchedTool struct {
	tool.Tool
	worker *worker
	name   string
}

// Authorize allows what a tool without an Authorizer does not ask about.
func (t watchedTool) Authorize(ctx context.Context, call tool.Invocation) error {
	if authorizer, ok := t.Tool.(tool.Authorizer); ok {
		return authorizer.Authorize(ctx, call)
	}
	return nil
}

func (t watchedTool) Execute(ctx context.Context, call tool.Invocation) (tool.Result, error) {
	w, r := t.worker, t.worker.run
	spec, _ := w.registry.Spec(t.name)
	ctx = toolLimit(ctx, r.now(), spec.Timeout)
	replace, err := r.fire(ctx, w, ToolBegins(t.name))
	switch {
	case w.isDead() != nil:
		return tool.Result{}, errDead
	case replace != nil:
		return tool.Result{}, replace()
	case err != nil:
		return tool.Result{}, err
	}
	result, failed := t.Tool.Execute(ctx, call)
	if failed != nil {
		r.note("tool %s returns an error of type %T", t.name, failed)
	} else {
		r.note("tool %s returns", t.name)
	}
	replace, err = r.fire(ctx, w, ToolReturns(t.name))
	switch {
	case w.isDead() != nil:
		return tool.Result{}, errDead
	case replace != nil:
		return tool.Result{}, replace()
	case err != nil:
		return tool.Result{}, err
	}
	return result, failed
}

// watchedModel asks the script or model of the suite.
type watchedModel struct{ worker *worker }

func (m watchedModel) Generate(ctx context.Context, req model.Request, stream func(model.Delta)) (model.Response, error) {
	w, r := m.worker, m.worker.run
	extracts := r.suite.asksExtractor(req)
	if extracts && r.suite.config.Extractor == nil {
		// A script knows what it is asked: nobody notices, and nothing is found.
		return scripted.New(Extracts()).Generate(ctx, req, stream)
	}
	r.mu.Lock()
	r.prompts = append(r.prompts, cloneRequest(req))
	r.mu.Unlock()
	ctx = modelLimit(ctx, r.now(), r.suite.modelTimeout(req.Model))
	if _, err := r.fire(ctx, w, ModelCalled()); err != nil || w.isDead() != nil {
		return model.Response{}, late(err)
	}
	if r.suite.model != nil && !extracts {
		return r.suite.model.Generate(ctx, req, stream)
	}
	return scripted.New(func(ctx context.Context, req model.Request) (scripted.Turn, error) {
		script := r.suite.config.Script
		if extracts {
			script = r.suite.config.Extractor
		}
		turn, err := script(ctx, req)
		if turn.Hang {
			// It streams its text and is then cut off by its time.
			turn.Delay, turn.Calls, turn.Err = turn.Delay+maxHang, nil, &model.Error{Kind: model.KindTimeout}
		}
		if turn.Delay > 0 {
			slept := Sleep(ctx, turn.Delay)
			if slept != nil && (!turn.Hang || ctx.Err() != nil || w.isDead() != nil) {
				return scripted.Turn{}, late(slept)
			}
		}
		turn.Delay, turn.Hang = 0, false
		return turn, err
	}).Generate(ctx, req, stream)
}

// maxHang is longer than any model may take.
const maxHang = 24 * time.Hour

// late is how a provider's adapter says that there was no answer in time.
func late(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &model.Error{Kind: model.KindTimeout, Err: err}
	}
	if err == nil {
		return errDead
	}
	return err
}

func cloneRequest(req model.Request) model.Request {
	req.Messages, req.Tools = slices.Clone(req.Messages), slices.Clone(req.Tools)
	for i := range req.Messages {
		req.Messages[i].Calls = slices.Clone(req.Messages[i].Calls)
	}
	return req
}
