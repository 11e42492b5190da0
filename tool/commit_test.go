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

const key = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func writeCall(name string) tool.Call {
	c := call(name)
	c.Key, c.Version = key, "7"
	return c
}

func executes(result tool.Result, err error) executeFunc {
	return func(context.Context, tool.Invocation) (tool.Result, error) { return result, err }
}

// writer is a write whose Execute is given.
func writer(execute executeFunc, change ...func(*tool.Spec)) fakeWriter {
	return fakeWriter{fake: fake{spec: spec("restart", append(change, asWrite)...), execute: execute}}
}

func TestCommit(t *testing.T) {
	t.Parallel()
	var got tool.Invocation
	r := registry(t, writer(func(_ context.Context, c tool.Invocation) (tool.Result, error) {
		got = c
		return tool.Result{Content: []byte(`{ "restarted": true }`)}, nil
	}))
	result, err := r.Commit(t.Context(), writeCall("restart"))
	if err != nil || string(result.Content) != `{"restarted":true}` || result.ContentType != tool.ContentJSON || result.Unreadable {
		t.Errorf("got %+v, %v", result, err)
	}
	if got.Key != key || got.Version != "7" || string(got.Arguments) != `{"service":"web"}` {
		t.Errorf("the tool was given %+v", got)
	}
}

func TestCommitKeepsAnEffectWithoutResult(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]tool.Result{
		"nothing": {}, "half a document": {Content: []byte("{")}, "an image": {Content: []byte("x"), ContentType: "image/png"},
	} {
		result, err := registry(t, writer(executes(given, nil))).Commit(t.Context(), writeCall("restart"))
		if err != nil || !result.Unreadable || result.ContentType != tool.ContentJSON ||
			string(result.Content) != `{"note":"the write was performed, but its result could not be read"}` {
			t.Errorf("%s: got %+v, %v", name, result, err)
		}
	}
}

func TestCommitErrors(t *testing.T) {
	t.Parallel()
	secret := errors.New("pq: password hunter2 at 10.0.0.7")
	panics := func(context.Context, tool.Invocation) (tool.Result, error) { panic("hunter2") }
	exits := func(context.Context, tool.Invocation) (tool.Result, error) {
		runtime.Goexit()
		return tool.Result{}, nil
	}
	fails := func(err error) executeFunc { return executes(tool.Text("x"), err) }
	const unknown = "ErrOutcomeUnknown"
	for name, tt := range map[string]struct {
		execute executeFunc
		want    string
	}{
		"promised":               {fails(&tool.Error{Code: agent.ToolQuota, Message: "full"}), "*Error quota_exceeded: full"},
		"promised, wrapped":      {fails(fmt.Errorf("put: %w", &tool.Error{Code: agent.ToolConflict, Message: "taken"})), "*Error conflict: taken"},
		"promised, other code":   {fails(&tool.Error{Code: "custom", Message: "m"}), "*Error failed: m"},
		"promised, a decision":   {fails(&tool.Error{Code: agent.ToolDeclined, Message: "m"}), "*Error failed: m"},
		"timeout is no promise":  {fails(&tool.Error{Code: agent.ToolTimeout, Message: "slow"}), unknown},
		"unknown is no promise":  {fails(&tool.Error{Code: agent.ToolOutcomeUnknown, Message: "m"}), unknown},
		"unknown inside *Error":  {fails(&tool.Error{Code: agent.ToolFailed, Err: tool.ErrOutcomeUnknown}), unknown},
		"nil *Error":             {fails((*tool.Error)(nil)), unknown},
		"stale":                  {fails(fmt.Errorf("412: %w", tool.ErrStale)), "ErrStale"},
		"stale inside *Error":    {fails(&tool.Error{Code: agent.ToolConflict, Message: "m", Err: tool.ErrStale}), "ErrStale"},
		"stale or unknown":       {fails(errors.Join(tool.ErrStale, tool.ErrOutcomeUnknown)), unknown},
		"unknown":                {fails(fmt.Errorf("no answer: %w", tool.ErrOutcomeUnknown)), unknown},
		"another error":          {fails(secret), unknown},
		"own deadline":           {fails(context.DeadlineExceeded), unknown},
		"own cancel":             {fails(context.Canceled), unknown},
		"authorization too late": {fails(tool.ErrAuthorizationUnavailable), unknown},
		"forbidden too late":     {fails(tool.ErrForbidden), unknown},
		"panic":                  {panics, unknown},
		"goexit":                 {exits, unknown},
		"crashes when looked at": {fails((*hollow)(nil)), unknown},
	} {
		result, err := registry(t, writer(tt.execute)).Commit(t.Context(), writeCall("restart"))
		if kinds(err) != tt.want || result.Content != nil {
			t.Errorf("%s: got %s, want %s", name, kinds(err), tt.want)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the text holds what the tool said", name)
		}
		var crash interface{ Stack() []byte }
		crashed := name == "panic" || name == "goexit" || name == "crashes when looked at"
		if errors.As(err, &crash) != crashed || crashed && !strings.Contains(string(crash.Stack()), "tool_test") {
			t.Errorf("%s: stack within reach: %t", name, !crashed)
		}
		if name == "another error" && tool.Cause(err) != secret {
			t.Errorf("the cause is %v", tool.Cause(err))
		}
	}
}

func TestCommitBeforeTheToolIsCalled(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*tool.Call)
		want   string
	}{
		"no key":            {func(c *tool.Call) { c.Key = "" }, "another error"},
		"short key":         {func(c *tool.Call) { c.Key = key[1:] }, "another error"},
		"upper case":        {func(c *tool.Call) { c.Key = strings.ToUpper(key) }, "another error"},
		"key and more":      {func(c *tool.Call) { c.Key = key + "\n" }, "another error"},
		"no user":           {func(c *tool.Call) { c.Actor.Scope.User = "" }, "another error"},
		"no longer allowed": {func(c *tool.Call) { c.Allow = nil }, "*Error unknown_tool: there is no tool of this name, and no tool is available"},
		"no longer flagged": {func(c *tool.Call) { c.Actor.Flags = nil }, "*Error unknown_tool: there is no tool of this name; available: search"},
		"a read":            {func(c *tool.Call) { c.Tool = "search" }, "ErrRisk"},
		"not canonical":     {func(c *tool.Call) { c.Arguments, c.ArgumentsHash = []byte(`{"service": "web"}`), "" }, "ErrArgumentsChanged"},
		"other hash":        {func(c *tool.Call) { c.Arguments = []byte(`{"service":"db"}`) }, "ErrArgumentsChanged"},
		"schema":            {func(c *tool.Call) { c.Arguments, c.ArgumentsHash = []byte(`{}`), "" }, "*Error invalid_arguments: the arguments do not fit: at the top level: missing (required): service"},
	} {
		r := registry(t, fake{spec: spec("search")}, writer(func(context.Context, tool.Invocation) (tool.Result, error) {
			t.Errorf("%s: performed", name)
			return tool.Text("x"), nil
		}, func(s *tool.Spec) { s.Flag = "beta" }))
		c := writeCall("restart")
		c.Allow = []string{"restart", "search"}
		tt.change(&c)
		if _, err := r.Commit(t.Context(), c); kinds(err) != tt.want {
			t.Errorf("%s: got %v", name, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := registry(t, writer(nil)).Commit(ended, writeCall("restart")); kinds(err) != "Canceled" {
		t.Errorf("an ended context: %v", err)
	}
}

func TestCommitAuthorizes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"allowed":     {nil, ""},
		"forbidden":   {tool.ErrForbidden, "*Error forbidden: not allowed"},
		"unreachable": {errors.New("dial"), "ErrAuthorizationUnavailable"},
		"confused":    {errors.Join(tool.ErrOutcomeUnknown, tool.ErrStale, &tool.Error{Code: agent.ToolFailed}), "ErrAuthorizationUnavailable"},
		"contrary":    {errors.Join(tool.ErrForbidden, tool.ErrOutcomeUnknown), "*Error forbidden: not allowed"},
	} {
		ran := false
		f := writer(func(context.Context, tool.Invocation) (tool.Result, error) { ran = true; return tool.Text("x"), nil })
		f.authorize = func(_ context.Context, c tool.Invocation) error {
			if c.Key != key || c.Version != "7" {
				t.Errorf("%s: the Authorizer was given %+v", name, c)
			}
			return tt.err
		}
		if _, err := registry(t, f).Commit(t.Context(), writeCall("restart")); kinds(err) != tt.want || ran != (tt.err == nil) {
			t.Errorf("%s: ran %t, %s", name, ran, kinds(err))
		}
	}
}

func TestCommitRetries(t *testing.T) {
	t.Parallel()
	busy := &tool.Error{Code: agent.ToolUnavailable, Message: "busy", Transient: true}
	slow := &tool.Error{Code: agent.ToolTimeout, Message: "slow", Transient: true}
	moved := &tool.Error{Code: agent.ToolConflict, Message: "moved", Transient: true, Err: tool.ErrStale}
	three := func(s *tool.Spec) { s.Attempts = 3 }
	for name, tt := range map[string]struct {
		change func(*tool.Spec)
		errs   []error
		tries  int
		want   string
	}{
		"once by default":    {func(*tool.Spec) {}, []error{busy, nil}, 1, "*Error unavailable: busy"},
		"as often as said":   {three, []error{busy, busy, nil}, 3, ""},
		"all fail":           {three, []error{busy, busy, busy}, 3, "*Error unavailable: busy"},
		"unknown at once":    {three, []error{errors.New("x"), nil}, 1, "ErrOutcomeUnknown"},
		"timeout is not":     {three, []error{slow, nil}, 1, "ErrOutcomeUnknown"},
		"busy, then unknown": {three, []error{busy, errors.New("x"), nil}, 2, "ErrOutcomeUnknown"},
		"stale":              {three, []error{busy, tool.ErrStale, nil}, 2, "ErrStale"},
		"stale inside":       {three, []error{moved, nil}, 1, "ErrStale"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				r := registry(t, writer(func(_ context.Context, c tool.Invocation) (tool.Result, error) {
					if c.Key != key || string(c.Arguments) != `{"service":"web"}` {
						t.Errorf("try %d is of another key or of other arguments", tries)
					}
					c.Arguments[0] = 'X'
					tries++
					return tool.Text("x"), tt.errs[tries-1]
				}, tt.change))
				if _, err := r.Commit(t.Context(), writeCall("restart")); tries != tt.tries || kinds(err) != tt.want {
					t.Errorf("%d tries: %s", tries, kinds(err))
				}
			})
		})
	}
}

func TestCommitTime(t *testing.T) {
	t.Parallel()
	obeys := func(ctx context.Context, _ tool.Invocation) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	}
	ignores := func(context.Context, tool.Invocation) (tool.Result, error) {
		time.Sleep(time.Hour)
		return tool.Text("late"), nil
	}
	undone := func(ctx context.Context, _ tool.Invocation) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, &tool.Error{Code: agent.ToolUnavailable, Message: "rolled back", Transient: true}
	}
	stale := func(ctx context.Context, _ tool.Invocation) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, tool.ErrStale
	}
	finishes := func(ctx context.Context, _ tool.Invocation) (tool.Result, error) {
		<-ctx.Done()
		return tool.Text("done"), nil
	}
	instant := executes(tool.Text("done"), nil)
	takes := func(d time.Duration) func(context.Context, tool.Invocation) error {
		return func(context.Context, tool.Invocation) error { time.Sleep(d); return nil }
	}
	for name, tt := range map[string]struct {
		execute   executeFunc
		authorize func(context.Context, tool.Invocation) error
		cancel    time.Duration
		took      time.Duration
		performed int
		want      string
	}{
		"obeys its timeout":       {obeys, nil, 0, 30 * time.Second, 1, "ErrOutcomeUnknown"},
		"ignores its timeout":     {ignores, nil, 0, 30500 * time.Millisecond, 1, "ErrOutcomeUnknown"},
		"canceled":                {obeys, nil, time.Second, time.Second, 1, "ErrOutcomeUnknown"},
		"ignores a cancel":        {ignores, nil, time.Second, 1500 * time.Millisecond, 1, "ErrOutcomeUnknown"},
		"promises when canceled":  {undone, nil, time.Second, time.Second, 1, "*Error unavailable: rolled back"},
		"stale when canceled":     {stale, nil, time.Second, time.Second, 1, "ErrStale"},
		"finished all the same":   {finishes, nil, time.Second, time.Second, 1, ""},
		"allowed after a cancel":  {instant, takes(1200 * time.Millisecond), time.Second, 1200 * time.Millisecond, 0, "Canceled"},
		"allowed after giving up": {instant, takes(time.Minute), time.Second, 1500 * time.Millisecond, 0, "Canceled"},
		"allowed after the time":  {instant, takes(30200 * time.Millisecond), 0, 30200 * time.Millisecond, 0, "*Error timeout: no time was left to begin, DeadlineExceeded"},
		"the Authorizer hangs":    {instant, takes(time.Hour), 0, 30500 * time.Millisecond, 0, "ErrAuthorizationUnavailable"},
		"half the time to allow":  {obeys, takes(15 * time.Second), 0, 30 * time.Second, 1, "ErrOutcomeUnknown"},
		"allowed just in time":    {instant, takes(29 * time.Second), 0, 29 * time.Second, 1, ""},
		"canceled too late":       {instant, takes(time.Second), 2 * time.Second, time.Second, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				performed := 0
				f := writer(func(ctx context.Context, c tool.Invocation) (tool.Result, error) {
					performed++
					return tt.execute(ctx, c)
				})
				f.authorize = tt.authorize
				start := time.Now()
				_, err := registry(t, f).Commit(ctx, writeCall("restart"))
				if kinds(err) != tt.want || time.Since(start) != tt.took {
					t.Errorf("after %s: %s", time.Since(start), kinds(err))
				}
				// Until abandoned parts have returned: a write that was reported as
				// not begun must not begin now.
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if performed != tt.performed {
					t.Errorf("performed %d times", performed)
				}
			})
		})
	}
}

func TestCommitQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		performed := 0
		r := registry(t, writer(func(context.Context, tool.Invocation) (tool.Result, error) {
			performed++
			time.Sleep(time.Hour)
			return tool.Text("x"), nil
		}, func(s *tool.Spec) { s.MaxConcurrent, s.Timeout = 1, 5*time.Second }))
		if _, err := r.Commit(t.Context(), writeCall("restart")); kinds(err) != "ErrOutcomeUnknown" {
			t.Errorf("the first: %v", err)
		}
		// The first keeps the only place.
		if _, err := r.Commit(t.Context(), writeCall("restart")); kinds(err) != "*Error quota_exceeded: too many calls of this tool are running" {
			t.Errorf("the second: %v", err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if performed != 1 {
			t.Errorf("performed %d times", performed)
		}
	})
}
