package tooltest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
	"github.com/fairlead/fairlead/tool/tooltest"
)

type one struct{}

func (one) ReadResult(_ context.Context, _ agent.Scope, _, _ string, _, _ int64) ([]byte, int64, error) {
	return []byte("text"), 4, nil
}

func TestFetchResultConforms(t *testing.T) {
	t.Parallel()
	tooltest.Check(t, tool.NewFetchResult(one{}), tool.Invocation{Arguments: []byte(`{"result_id":"r1"}`)})
}

// recorder takes the failures of a suite that is to fail.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.failures = append(r.failures, fmt.Sprint(args...)) }

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); panic(r) }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); panic(r) }

// failures runs a suite and returns what it complains about.
func failures(t *testing.T, suite func(testing.TB)) (found []string) {
	t.Helper()
	r := &recorder{TB: t}
	defer func() {
		if crash := recover(); crash != nil && crash != any(r) {
			panic(crash)
		}
		found = r.failures
	}()
	suite(r)
	return nil
}

// expect fails t unless want is "" and nothing failed, or one failure says want.
func expect(t *testing.T, found []string, want string) {
	t.Helper()
	all := strings.Join(found, "\n")
	if want == "" && len(found) > 0 || want != "" && !strings.Contains(all, want) {
		t.Errorf("the suite says %q, want %q", all, want)
	}
}

func spec(risk tool.Risk) tool.Spec {
	return tool.Spec{
		Name: "entry", Version: "1", Description: "An entry.", Risk: risk, Source: "book",
		Parameters: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`),
	}
}

var sample = tool.Invocation{Arguments: []byte(`{"text":"a"}`)}

// reader is a read whose parts a test sets.
type reader struct {
	spec    func() tool.Spec
	execute func(context.Context) (tool.Result, error)
}

func (r reader) Spec() tool.Spec { return r.spec() }

func (r reader) Execute(ctx context.Context, _ tool.Invocation) (tool.Result, error) {
	return r.execute(ctx)
}

func TestCheckOfReads(t *testing.T) {
	t.Parallel()
	specs := 0
	for name, tt := range map[string]struct {
		change func(*reader)
		want   string
	}{
		"good":    {func(*reader) {}, ""},
		"invalid": {func(r *reader) { r.spec = func() tool.Spec { return tool.Spec{} } }, "the declaration is not valid"},
		"sample unfit": {func(r *reader) {
			r.spec = func() tool.Spec { s := spec(tool.Read); s.Parameters = json.RawMessage(`{"type":"object"}`); return s }
		}, "the sample is refused"},
		"changing": {func(r *reader) {
			r.spec = func() tool.Spec { specs++; s := spec(tool.Read); s.Description = fmt.Sprint(specs); return s }
		}, "Spec returns something else"},
		"failing": {func(r *reader) {
			r.execute = func(context.Context) (tool.Result, error) { return tool.Result{}, errors.New("x") }
		}, "the sample fails"},
		"too long": {func(r *reader) {
			r.execute = func(context.Context) (tool.Result, error) {
				return tool.Text(strings.Repeat("x", tool.MaxResultBytes+1)), nil
			}
		}, "longer than"},
		"canceled": {func(r *reader) {
			r.execute = func(ctx context.Context) (tool.Result, error) { hang(ctx); return tool.Text("x"), nil }
		}, "does not end the execution within 2s"},
		"canceled crash": {func(r *reader) {
			r.execute = func(ctx context.Context) (tool.Result, error) { crash(ctx); return tool.Text("x"), nil }
		}, "panic with a canceled context"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				subject := reader{
					spec:    func() tool.Spec { return spec(tool.Read) },
					execute: func(context.Context) (tool.Result, error) { return tool.Text("x"), nil },
				}
				tt.change(&subject)
				expect(t, failures(t, func(tb testing.TB) { tooltest.Check(tb, subject, sample) }), tt.want)
				time.Sleep(time.Hour) // until a tool that hung has returned
			})
		})
	}
}

func hang(ctx context.Context) {
	if ctx.Err() != nil {
		time.Sleep(time.Minute)
	}
}

func crash(ctx context.Context) {
	if ctx.Err() != nil {
		panic("crash")
	}
}

// book is a system that keeps entries by key, and the faults of a tool for it.
type book struct {
	mu      sync.Mutex
	entries []string
	done    map[string]tool.Result
	prepare func(context.Context, *tool.Plan) error
	// before and after stand around the effect; an error of before prevents it.
	before, after func(call tool.Invocation, result *tool.Result) error
	find          func(call tool.Invocation, finding *tool.Finding) error
	keyless       bool
}

func (b *book) effects() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries)
}

func (b *book) version() string { return fmt.Sprint(len(b.entries)) }

// writer is a good tool with the faults of b.
func (b *book) writer(withFind bool) tool.Tool {
	b.done = map[string]tool.Result{}
	type args struct {
		Text string `json:"text"`
	}
	funcs := tool.WriteFuncs[args]{
		Prepare: func(ctx context.Context, _ tool.Invocation, a args) (tool.Plan, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			plan := tool.Plan{Resource: "book", Version: b.version(), Summary: "Add " + a.Text}
			if b.prepare != nil {
				if err := b.prepare(ctx, &plan); err != nil {
					return tool.Plan{}, err
				}
			}
			return plan, nil
		},
		Execute: func(_ context.Context, call tool.Invocation, a args) (tool.Result, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			result := tool.Text(fmt.Sprintf("entry %d", len(b.entries)+1))
			if b.before != nil {
				if err := b.before(call, &result); err != nil {
					return tool.Result{}, err
				}
			}
			if done, ok := b.done[call.Key]; ok && !b.keyless {
				return done, nil
			}
			if call.Version != b.version() && !b.keyless {
				return tool.Result{}, tool.ErrStale
			}
			b.entries = append(b.entries, a.Text)
			b.done[call.Key] = result
			if b.after != nil {
				if err := b.after(call, &result); err != nil {
					return tool.Result{}, err
				}
			}
			return result, nil
		},
	}
	if withFind {
		funcs.Find = func(_ context.Context, call tool.Invocation, _ args) (tool.Finding, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			finding := tool.Finding{State: tool.FindAbsent}
			if result, ok := b.done[call.Key]; ok {
				finding = tool.Finding{State: tool.FindPerformed, Result: result}
			}
			if b.find != nil {
				return finding, b.find(call, &finding)
			}
			return finding, nil
		}
	}
	made, err := tool.NewWrite(spec(tool.Write), funcs)
	if err != nil {
		panic(err)
	}
	return made
}

func TestCheckOfWrites(t *testing.T) {
	t.Parallel()
	plans := 0
	for name, tt := range map[string]struct {
		prepare func(context.Context, *tool.Plan) error
		want    string
	}{
		"good":         {nil, ""},
		"refused":      {func(context.Context, *tool.Plan) error { return &tool.Error{Code: agent.ToolNotFound} }, "cannot be prepared"},
		"invalid plan": {func(_ context.Context, p *tool.Plan) error { p.Resource = ""; return nil }, "cannot be prepared: failed: the tool gave an invalid plan (cause: resource is empty)"},
		"another plan": {func(_ context.Context, p *tool.Plan) error { plans++; p.Summary = fmt.Sprint(plans); return nil }, "the plan differs the second time"},
		"once only": {func(ctx context.Context, p *tool.Plan) error {
			plans++
			if plans > 1 {
				return errors.New("x")
			}
			return nil
		}, "cannot be prepared a second time"},
		"canceled":       {func(ctx context.Context, _ *tool.Plan) error { hang(ctx); return nil }, "does not end the preparation within 2s"},
		"canceled crash": {func(ctx context.Context, _ *tool.Plan) error { crash(ctx); return nil }, "panic with a canceled context"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plans = 0
				b := &book{prepare: tt.prepare}
				expect(t, failures(t, func(tb testing.TB) { tooltest.Check(tb, b.writer(true), sample) }), tt.want)
				time.Sleep(time.Hour) // until a tool that hung has returned
				if b.effects() != 0 {
					t.Error("Check wrote something")
				}
			})
		})
	}
}

func TestCheckWrite(t *testing.T) {
	t.Parallel()
	sends := 0
	for name, tt := range map[string]struct {
		change func(*book)
		finder bool
		want   string
	}{
		"good":               {func(*book) {}, true, ""},
		"good without Find":  {func(*book) {}, false, ""},
		"without conditions": {func(b *book) { b.keyless = true }, false, ""},
		"honestly unknown": {func(b *book) {
			b.after = func(tool.Invocation, *tool.Result) error {
				if len(b.entries) > 1 {
					return tool.ErrOutcomeUnknown
				}
				return nil
			}
			b.keyless = true
		}, false, ""},
		"unsure about others": {func(b *book) {
			b.find = func(_ tool.Invocation, f *tool.Finding) error {
				if f.State == tool.FindAbsent {
					f.State = tool.FindUnknown
				}
				return nil
			}
		}, true, ""},

		"refused": {func(b *book) { b.prepare = func(context.Context, *tool.Plan) error { return errors.New("x") } }, true, "cannot be prepared"},
		"preparing writes": {func(b *book) {
			b.prepare = func(_ context.Context, p *tool.Plan) error {
				b.entries = append(b.entries, "x")
				p.Version = b.version()
				return nil
			}
		}, true, "preparing has 1 effects"},
		"failing": {func(b *book) {
			b.before = func(tool.Invocation, *tool.Result) error { return &tool.Error{Code: agent.ToolFailed} }
		}, true, "cannot be committed"},
		"no effect": {func(b *book) { b.after = func(tool.Invocation, *tool.Result) error { b.entries = nil; return nil } }, true, "committing has 0 effects, want 1"},
		"two effects": {func(b *book) {
			b.after = func(tool.Invocation, *tool.Result) error { b.entries = append(b.entries, "x"); return nil }
		}, true, "committing has 2 effects, want 1"},
		"unreadable": {func(b *book) {
			b.after = func(_ tool.Invocation, r *tool.Result) error { r.ContentType = "image/png"; return nil }
		}, true, "its result is not valid"},
		"not idempotent": {func(b *book) { b.keyless = true }, true, "committing again with the same key has 1 effects"},
		"version before key": {func(b *book) {
			b.before = func(c tool.Invocation, _ *tool.Result) error {
				if c.Version != b.version() {
					return tool.ErrStale
				}
				return nil
			}
		}, true, "committing again with the same key fails"},
		"another result": {func(b *book) {
			sends = 0
			b.before = func(c tool.Invocation, _ *tool.Result) error {
				sends++
				if r, ok := b.done[c.Key]; ok {
					r.Content = append(r.Content, fmt.Sprint(sends)...)
					b.done[c.Key] = r
				}
				return nil
			}
		}, true, "committing again with the same key gives another result"},
		"not found": {func(b *book) {
			b.find = func(_ tool.Invocation, f *tool.Finding) error { f.State = tool.FindAbsent; return nil }
		}, true, "a write that was performed is found absent"},
		"found otherwise": {func(b *book) {
			b.find = func(_ tool.Invocation, f *tool.Finding) error { f.Result.Content = []byte("other"); return nil }
		}, true, "the look-up gives another result"},
		"found always": {func(b *book) {
			b.find = func(_ tool.Invocation, f *tool.Finding) error { f.State = tool.FindPerformed; return nil }
		}, true, "a key that was never sent is found performed"},
		"cannot look up": {func(b *book) { b.find = func(tool.Invocation, *tool.Finding) error { return errors.New("x") } }, true, "the look-up fails"},
		"looking up writes": {func(b *book) {
			b.find = func(tool.Invocation, *tool.Finding) error { b.entries = append(b.entries, "x"); return nil }
		}, true, "looking up has 2 effects"},
		"broken promise": {func(b *book) {
			b.keyless = true
			b.after = func(tool.Invocation, *tool.Result) error {
				if len(b.entries) > 1 {
					return tool.ErrStale
				}
				return nil
			}
		}, false, "a commit that says that nothing happened has 1 effects"},
		"forgets the second": {func(b *book) {
			b.before = func(c tool.Invocation, r *tool.Result) error {
				if len(b.done) > 0 {
					b.done[c.Key] = *r
				}
				return nil
			}
		}, false, "committing a second write has 0 effects"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &book{}
			tt.change(b)
			subject := b.writer(tt.finder)
			expect(t, failures(t, func(tb testing.TB) { tooltest.CheckWrite(tb, subject, sample, b.effects) }), tt.want)
		})
	}
	found := failures(t, func(tb testing.TB) {
		tooltest.CheckWrite(tb, tool.NewFetchResult(one{}), tool.Invocation{Arguments: []byte(`{"result_id":"r1"}`)}, func() int { return 0 })
	})
	expect(t, found, "no tool.Writer")
}
