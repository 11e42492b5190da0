package tool_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

func finds(finding tool.Finding, err error) findFunc {
	return func(context.Context, tool.Invocation) (tool.Finding, error) { return finding, err }
}

func finder(find findFunc, change ...func(*tool.Spec)) fakeFinder {
	return fakeFinder{fakeWriter: writer(nil, change...), find: find}
}

func TestFind(t *testing.T) {
	t.Parallel()
	done := tool.Result{Content: []byte(`{ "a": 1 }`)}
	refusal := &tool.Error{Code: agent.ToolConflict, Message: "taken\nalready"}
	const note = `{"note":"the write was performed, but its result could not be read"}`
	for name, tt := range map[string]struct {
		given   tool.Finding
		state   tool.FindState
		content string
		refusal string
	}{
		"performed":               {tool.Finding{State: tool.FindPerformed, Result: done, Err: refusal}, tool.FindPerformed, `{"a":1}`, ""},
		"performed, unreadable":   {tool.Finding{State: tool.FindPerformed, Result: tool.Result{Content: []byte("{")}}, tool.FindPerformed, note, ""},
		"absent":                  {tool.Finding{State: tool.FindAbsent, Result: done, Err: refusal}, tool.FindAbsent, "", ""},
		"unknown":                 {tool.Finding{State: tool.FindUnknown, Result: done}, tool.FindUnknown, "", ""},
		"failed":                  {tool.Finding{State: tool.FindFailed, Result: done, Err: refusal}, tool.FindFailed, "", "conflict: taken already"},
		"failed without a reason": {tool.Finding{State: tool.FindFailed}, tool.FindFailed, "", "failed: the write was refused"},
		"failed, a decision":      {tool.Finding{State: tool.FindFailed, Err: &tool.Error{Code: agent.ToolDeclined, Message: "m"}}, tool.FindFailed, "", "failed: m"},
	} {
		got, err := registry(t, finder(finds(tt.given, nil))).Find(t.Context(), writeCall("restart"))
		said := ""
		if got.Err != nil {
			said = got.Err.Error()
		}
		if err != nil || got.State != tt.state || string(got.Result.Content) != tt.content || said != tt.refusal || got.Result.Unreadable != (tt.content == note) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestFindLooksWhateverHoldsNow(t *testing.T) {
	t.Parallel()
	f := finder(func(_ context.Context, c tool.Invocation) (tool.Finding, error) {
		if c.Key != key || c.Version != "7" || string(c.Arguments) != `{"target":"web"}` {
			t.Errorf("the tool was given %+v", c)
		}
		return tool.Finding{State: tool.FindAbsent}, nil
	}, func(s *tool.Spec) { s.Flag, s.Pages, s.Environments = "gone", []string{"gone"}, []string{"gone"} })
	f.authorize = func(context.Context, tool.Invocation) error {
		t.Error("a look-up was authorized")
		return tool.ErrForbidden
	}
	c := writeCall("restart")
	c.Allow = nil
	c.Arguments = []byte(`{"target":"web"}`) // of an earlier schema
	c.ArgumentsHash = tool.Hash(c.Arguments)
	if got, err := registry(t, f).Find(t.Context(), c); err != nil || got.State != tool.FindAbsent {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFindErrors(t *testing.T) {
	t.Parallel()
	secret := errors.New("hunter2")
	performed := tool.Finding{State: tool.FindPerformed, Result: tool.Text("x")}
	none := func(*tool.Call) {}
	const unknown = "ErrOutcomeUnknown"
	for name, tt := range map[string]struct {
		find   findFunc
		change func(*tool.Call)
		want   string
	}{
		"an error":           {finds(performed, secret), none, unknown},
		"an *Error":          {finds(performed, &tool.Error{Code: agent.ToolUnavailable, Transient: true}), none, unknown},
		"stale":              {finds(performed, tool.ErrStale), none, unknown},
		"no finder, it says": {finds(performed, tool.ErrNoFinder), none, unknown},
		"no state":           {finds(tool.Finding{}, nil), none, unknown},
		"another state":      {finds(tool.Finding{State: "done"}, nil), none, unknown},
		"panic":              {func(context.Context, tool.Invocation) (tool.Finding, error) { panic("hunter2") }, none, unknown},
		"goexit":             {func(context.Context, tool.Invocation) (tool.Finding, error) { runtime.Goexit(); return performed, nil }, none, unknown},
		"not registered":     {finds(performed, nil), func(c *tool.Call) { c.Tool = "reboot" }, unknown},
		"no look-up":         {finds(performed, nil), func(c *tool.Call) { c.Tool = "plain" }, "ErrNoFinder"},
		"a read":             {finds(performed, nil), func(c *tool.Call) { c.Tool = "search" }, "ErrNoFinder"},
		"no key":             {finds(performed, nil), func(c *tool.Call) { c.Key = "" }, "another error"},
		"no tenant":          {finds(performed, nil), func(c *tool.Call) { c.Actor.Scope.Tenant = "" }, "another error"},
		"other hash":         {finds(performed, nil), func(c *tool.Call) { c.Arguments = []byte(`{"service":"db"}`) }, "ErrArgumentsChanged"},
	} {
		r := registry(t, finder(tt.find), fakeWriter{fake: fake{spec: spec("plain", asWrite)}}, fake{spec: spec("search")})
		c := writeCall("restart")
		tt.change(&c)
		got, err := r.Find(t.Context(), c)
		if kinds(err) != tt.want || got.State != tool.FindUnknown || got.Err != nil || got.Result.Content != nil {
			t.Errorf("%s: got %+v, %s", name, got, kinds(err))
		}
		var crash interface{ Stack() []byte }
		if panicked := name == "panic" || name == "goexit"; errors.As(err, &crash) != panicked {
			t.Errorf("%s: stack %t", name, !panicked)
		}
		if name == "an error" && tool.Cause(err) != secret {
			t.Errorf("the cause is %v", tool.Cause(err))
		}
	}
	asked := 0
	_, err := registry(t, finder(func(context.Context, tool.Invocation) (tool.Finding, error) {
		asked++
		return performed, &tool.Error{Code: agent.ToolUnavailable, Transient: true}
	})).Find(t.Context(), writeCall("restart"))
	if asked != 1 || kinds(err) != "ErrOutcomeUnknown" {
		t.Errorf("asked %d times: %v", asked, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := registry(t, finder(finds(performed, nil))).Find(ended, writeCall("restart"))
	if kinds(err) != "ErrOutcomeUnknown, Canceled" || got.State != tool.FindUnknown {
		t.Errorf("an ended context: %+v, %v", got, err)
	}
}

func TestFindTime(t *testing.T) {
	t.Parallel()
	performed := tool.Finding{State: tool.FindPerformed, Result: tool.Text("x")}
	for name, tt := range map[string]struct {
		find   findFunc
		cancel time.Duration
		took   time.Duration
		state  tool.FindState
		want   string
	}{
		"obeys its timeout": {func(ctx context.Context, _ tool.Invocation) (tool.Finding, error) {
			<-ctx.Done()
			return performed, ctx.Err()
		}, 0, 30 * time.Second, tool.FindUnknown, "ErrOutcomeUnknown"},
		"ignores its timeout": {func(context.Context, tool.Invocation) (tool.Finding, error) {
			time.Sleep(time.Hour)
			return performed, nil
		}, 0, 30500 * time.Millisecond, tool.FindUnknown, "ErrOutcomeUnknown"},
		"canceled": {func(ctx context.Context, _ tool.Invocation) (tool.Finding, error) {
			<-ctx.Done()
			return performed, ctx.Err()
		}, time.Second, time.Second, tool.FindUnknown, "ErrOutcomeUnknown, Canceled"},
		"answers all the same": {func(ctx context.Context, _ tool.Invocation) (tool.Finding, error) {
			<-ctx.Done()
			return performed, nil
		}, time.Second, time.Second, tool.FindPerformed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				start := time.Now()
				got, err := registry(t, finder(tt.find)).Find(ctx, writeCall("restart"))
				if kinds(err) != tt.want || got.State != tt.state || time.Since(start) != tt.took {
					t.Errorf("after %s: %+v, %s", time.Since(start), got, kinds(err))
				}
				time.Sleep(2 * time.Hour) // until abandoned tools have returned
			})
		})
	}
}

// A write that hangs keeps its place, and is the very one to be looked up.
func TestFindIsNotKeptOutByWritesThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := finder(finds(tool.Finding{State: tool.FindUnknown}, nil), func(s *tool.Spec) { s.MaxConcurrent = 1 })
		f.execute = func(context.Context, tool.Invocation) (tool.Result, error) {
			time.Sleep(time.Hour)
			return tool.Text("x"), nil
		}
		r := registry(t, f)
		if _, err := r.Commit(t.Context(), writeCall("restart")); kinds(err) != "ErrOutcomeUnknown" {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := r.Find(t.Context(), writeCall("restart")); err != nil || time.Since(start) != 0 {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		time.Sleep(2 * time.Hour)
	})
}
