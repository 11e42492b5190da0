package tool_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

// kinds names everything that err is, in the terms of the Registry's contracts:
// a caller must come to the same conclusion in whatever order it asks.
func kinds(err error) string {
	var found []string
	var shown *tool.Error
	if errors.As(err, &shown) {
		found = append(found, "*Error "+shown.Error())
	}
	for _, sentinel := range []struct {
		name string
		err  error
	}{
		{"ErrStale", tool.ErrStale},
		{"ErrOutcomeUnknown", tool.ErrOutcomeUnknown},
		{"ErrAuthorizationUnavailable", tool.ErrAuthorizationUnavailable},
		{"ErrArgumentsChanged", tool.ErrArgumentsChanged},
		{"ErrRisk", tool.ErrRisk},
		{"ErrNoFinder", tool.ErrNoFinder},
		{"Canceled", context.Canceled},
		{"DeadlineExceeded", context.DeadlineExceeded},
	} {
		if errors.Is(err, sentinel.err) {
			found = append(found, sentinel.name)
		}
	}
	if err != nil && found == nil {
		return "another error"
	}
	return strings.Join(found, ", ")
}

func TestKinds(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("%w: %w: %w", tool.ErrStale, context.Canceled, &tool.Error{Code: agent.ToolFailed, Message: "m"})
	if got := kinds(err); got != "*Error failed: m, ErrStale, Canceled" {
		t.Errorf("got %s", got)
	}
	if got := kinds(nil) + kinds(errors.New("x")); got != "another error" {
		t.Errorf("got %s", got)
	}
}

type (
	prepareFunc = func(context.Context, tool.Invocation) (tool.Plan, error)
	executeFunc = func(context.Context, tool.Invocation) (tool.Result, error)
	findFunc    = func(context.Context, tool.Invocation) (tool.Finding, error)
)

func prepares(p tool.Plan, err error) prepareFunc {
	return func(context.Context, tool.Invocation) (tool.Plan, error) { return p, err }
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	var got tool.Invocation
	f := fakeWriter{fake: fake{spec: spec("restart", asWrite)}, prepare: func(_ context.Context, c tool.Invocation) (tool.Plan, error) {
		got = c
		return plan, nil
	}}
	c := writeCall("restart")
	made, err := registry(t, f).Prepare(t.Context(), c)
	if err != nil || made != plan {
		t.Errorf("got %+v, %v", made, err)
	}
	if got.Key != "" || got.Version != "" {
		t.Error("key or version is set before anything is confirmed")
	}
	if string(got.Arguments) != `{"service":"web"}` || got.CallID != "1.0" || got.Actor.Scope != actor.Scope {
		t.Errorf("the tool was given %+v", got)
	}
	if _, err := registry(t, fake{spec: spec("search")}).Prepare(t.Context(), call("search")); kinds(err) != "ErrRisk" {
		t.Errorf("a read: %v", err)
	}
}

func TestPrepareCleansPlans(t *testing.T) {
	t.Parallel()
	const invalid = "*Error failed: the tool gave an invalid plan"
	for name, tt := range map[string]struct {
		change  func(*tool.Plan)
		summary string
		want    string
	}{
		"as it is":              {func(*tool.Plan) {}, "Restart web.", ""},
		"new resource":          {func(p *tool.Plan) { p.Version = "" }, "Restart web.", ""},
		"lines":                 {func(p *tool.Plan) { p.Summary = "\n Restart:\r\n\tweb\n字\n" }, "Restart:\n web\n字", ""},
		"terminal control":      {func(p *tool.Plan) { p.Summary = "a\x1b[2Jb\x00c\rd\x7fe\u0085f" }, "a\uFFFD[2Jb\uFFFDc\uFFFDd\uFFFDe\uFFFDf", ""},
		"reversed text":         {func(p *tool.Plan) { p.Summary = "stop \u202Eyap\u2066" }, "stop \uFFFDyap\uFFFD", ""},
		"joined emoji":          {func(p *tool.Plan) { p.Summary = "👩‍💻" }, "👩‍💻", ""},
		"invalid UTF-8":         {func(p *tool.Plan) { p.Summary = "caf\xe9" }, "caf\uFFFD", ""},
		"longest":               {func(p *tool.Plan) { p.Summary = strings.Repeat("x", 4096) }, strings.Repeat("x", 4096), ""},
		"longest resource":      {func(p *tool.Plan) { p.Resource, p.Version = strings.Repeat("r", 256), strings.Repeat("v", 256) }, "Restart web.", ""},
		"no resource":           {func(p *tool.Plan) { p.Resource = "" }, "", invalid},
		"blank resource":        {func(p *tool.Plan) { p.Resource = "  " }, "", invalid},
		"long resource":         {func(p *tool.Plan) { p.Resource = strings.Repeat("r", 257) }, "", invalid},
		"resource of lines":     {func(p *tool.Plan) { p.Resource = "a\nb" }, "", invalid},
		"line separator":        {func(p *tool.Plan) { p.Resource = "a\u2028b" }, "", invalid},
		"resource not UTF-8":    {func(p *tool.Plan) { p.Resource = "a\xff" }, "", invalid},
		"reversed resource":     {func(p *tool.Plan) { p.Resource = "a\u202Eb" }, "", invalid},
		"invisible resource":    {func(p *tool.Plan) { p.Resource = "a\u200Bb" }, "", invalid},
		"space behind":          {func(p *tool.Plan) { p.Resource = "a " }, "", invalid},
		"long version":          {func(p *tool.Plan) { p.Version = strings.Repeat("v", 257) }, "", invalid},
		"version with NUL":      {func(p *tool.Plan) { p.Version = "1\x00" }, "", invalid},
		"no summary":            {func(p *tool.Plan) { p.Summary = "" }, "", invalid},
		"blank summary":         {func(p *tool.Plan) { p.Summary = " \n\t" }, "", invalid},
		"long summary":          {func(p *tool.Plan) { p.Summary = strings.Repeat("x", 4097) }, "", invalid},
		"long when it is clean": {func(p *tool.Plan) { p.Summary = strings.Repeat("\x00", 1366) }, "", invalid},
	} {
		given := plan
		tt.change(&given)
		got, err := registry(t, fakeWriter{fake: fake{spec: spec("restart", asWrite)}, prepare: prepares(given, nil)}).Prepare(t.Context(), writeCall("restart"))
		if kinds(err) != tt.want || got.Summary != tt.summary {
			t.Errorf("%s: got %q, %v", name, got.Summary, err)
		}
		if err == nil && (got.Resource != given.Resource || got.Version != given.Version) || err != nil && got != (tool.Plan{}) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestPrepareErrors(t *testing.T) {
	t.Parallel()
	secret := errors.New("hunter2")
	const failed = "*Error failed: the tool failed"
	for name, tt := range map[string]struct {
		prepare prepareFunc
		want    string
	}{
		"refused":         {prepares(plan, &tool.Error{Code: agent.ToolNotFound, Message: "no such service"}), "*Error not_found: no such service"},
		"another error":   {prepares(plan, secret), failed},
		"outcome unknown": {prepares(plan, fmt.Errorf("x: %w", tool.ErrOutcomeUnknown)), failed},
		"unknown inside":  {prepares(plan, &tool.Error{Code: agent.ToolQuota, Err: tool.ErrOutcomeUnknown}), failed},
		"stale":           {prepares(plan, tool.ErrStale), failed},
		"a decision":      {prepares(plan, &tool.Error{Code: agent.ToolNotConfirmed, Message: "m"}), "*Error failed: m"},
		"panic":           {func(context.Context, tool.Invocation) (tool.Plan, error) { panic("hunter2") }, failed},
		"goexit":          {func(context.Context, tool.Invocation) (tool.Plan, error) { runtime.Goexit(); return plan, nil }, failed},
		"no time":         {prepares(plan, context.DeadlineExceeded), "*Error timeout: the tool took too long, DeadlineExceeded"},
	} {
		_, err := registry(t, fakeWriter{fake: fake{spec: spec("restart", asWrite)}, prepare: tt.prepare}).Prepare(t.Context(), writeCall("restart"))
		if kinds(err) != tt.want {
			t.Errorf("%s: got %s", name, kinds(err))
		}
		var crash interface{ Stack() []byte }
		if panicked := name == "panic" || name == "goexit"; errors.As(err, &crash) != panicked {
			t.Errorf("%s: stack %t", name, !panicked)
		}
	}
}

func TestPrepareRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		f := fakeWriter{fake: fake{spec: spec("restart", asWrite)}, prepare: func(context.Context, tool.Invocation) (tool.Plan, error) {
			tries++
			return plan, &tool.Error{Code: agent.ToolUnavailable, Message: "busy", Transient: true}
		}}
		start := time.Now()
		_, err := registry(t, f).Prepare(t.Context(), writeCall("restart"))
		// Three attempts, with 100 and 200 ms between them.
		if kinds(err) != "*Error unavailable: busy" || tries != 3 || time.Since(start) != 300*time.Millisecond {
			t.Errorf("%d tries in %s: %v", tries, time.Since(start), err)
		}
	})
}

func TestPrepareTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		obeys  bool
		cancel time.Duration
		took   time.Duration
		want   string
	}{
		"obeys its timeout":   {true, 0, 30 * time.Second, "*Error timeout: the tool took too long, DeadlineExceeded"},
		"ignores its timeout": {false, 0, 30500 * time.Millisecond, "*Error timeout: the tool took too long, DeadlineExceeded"},
		"canceled":            {true, time.Second, time.Second, "Canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				f := fakeWriter{fake: fake{spec: spec("restart", asWrite)}, prepare: func(ctx context.Context, _ tool.Invocation) (tool.Plan, error) {
					if !tt.obeys {
						time.Sleep(time.Hour)
						return plan, nil
					}
					<-ctx.Done()
					return plan, ctx.Err()
				}}
				start := time.Now()
				_, err := registry(t, f).Prepare(ctx, writeCall("restart"))
				if kinds(err) != tt.want || time.Since(start) != tt.took {
					t.Errorf("after %s: %s", time.Since(start), kinds(err))
				}
				time.Sleep(2 * time.Hour) // until abandoned tools have returned
			})
		})
	}
}
