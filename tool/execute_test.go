package tool_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

func call(name string) tool.Call {
	return tool.Call{
		Invocation: tool.Invocation{Actor: actor, RunID: "run-1", CallID: "1.0", Arguments: []byte(`{"service":"web"}`)},
		Tool:       name, Allow: []string{name},
		ArgumentsHash: tool.Hash([]byte(`{"service":"web"}`)),
	}
}

func TestExecuteErrors(t *testing.T) {
	t.Parallel()
	secret := errors.New("pq: password hunter2 at 10.0.0.7")
	type run = func(context.Context, tool.Invocation) (tool.Result, error)
	fails := func(err error) run {
		return func(context.Context, tool.Invocation) (tool.Result, error) { return tool.Result{}, err }
	}
	for name, tt := range map[string]struct {
		execute run
		// want is the exact text of an *Error.
		want  string
		cause error
	}{
		"safe error":               {fails(&tool.Error{Code: agent.ToolNotFound, Message: "no such service", Err: secret}), "not_found: no such service", secret},
		"wrapped":                  {fails(fmt.Errorf("query: %w", &tool.Error{Code: agent.ToolQuota, Message: "slow down"})), "quota_exceeded: slow down", nil},
		"other error":              {fails(secret), "failed: the tool failed", secret},
		"nil *Error":               {fails((*tool.Error)(nil)), "failed: the tool failed", nil},
		"a decision":               {fails(&tool.Error{Code: agent.ToolDeclined, Message: "m"}), "failed: m", nil},
		"the user's prohibition":   {fails(&tool.Error{Code: agent.ToolProhibited, Message: "m"}), "failed: m", nil},
		"a conflict":               {fails(&tool.Error{Code: agent.ToolConflict, Message: "m"}), "conflict: m", nil},
		"crashes when looked into": {fails((*hollow)(nil)), "failed: the tool failed", nil},
		"unknown code":             {fails(&tool.Error{Code: "custom", Message: "m"}), "failed: m", nil},
		"control text":             {fails(&tool.Error{Code: agent.ToolFailed, Message: "a\n\x00b\xff"}), "failed: a  b\uFFFD", nil},
		"own timeout":              {fails(fmt.Errorf("get: %w", context.DeadlineExceeded)), "timeout: the tool took too long", nil},
		"panic":                    {func(context.Context, tool.Invocation) (tool.Result, error) { panic("hunter2") }, "failed: the tool failed", nil},
		"goexit": {func(context.Context, tool.Invocation) (tool.Result, error) {
			runtime.Goexit()
			return tool.Result{}, nil
		}, "failed: the tool failed", nil},
		"invalid JSON": {func(context.Context, tool.Invocation) (tool.Result, error) {
			return tool.Result{Content: []byte("{")}, nil
		}, "failed: the tool gave an invalid result", nil},
		"no content": {func(context.Context, tool.Invocation) (tool.Result, error) { return tool.Result{}, nil }, "failed: the tool gave an invalid result", nil},
		"image": {func(context.Context, tool.Invocation) (tool.Result, error) {
			return tool.Result{ContentType: "image/png"}, nil
		}, "failed: the tool gave an invalid result", nil},
		"long message":   {fails(&tool.Error{Code: agent.ToolFailed, Message: strings.Repeat("é", 2000)}), "failed: " + strings.Repeat("é", 1022) + "...", nil},
		"other canceled": {fails(context.Canceled), "failed: the tool failed", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := registry(t, fake{spec: spec("search"), execute: tt.execute}).Execute(t.Context(), call("search"))
			var shown *tool.Error
			if !errors.As(err, &shown) || shown.Error() != tt.want {
				t.Fatalf("got %v\nwant %s", err, tt.want)
			}
			if tt.cause != nil && !errors.Is(err, tt.cause) {
				t.Error("the cause is lost for the tool's own logs")
			}
			if shown.Err != nil && tt.cause == nil && strings.Contains(shown.Err.Error(), "hunter2") {
				t.Error("the panic's value is kept")
			}
		})
	}
}

// hollow is an error whose nil pointer panics when it is unwrapped.
type hollow struct{ cause error }

func (h *hollow) Error() string { return "hollow" }
func (h *hollow) Unwrap() error { return h.cause }

func TestExecuteChecksAgain(t *testing.T) {
	t.Parallel()
	ran := false
	r := registry(t, fake{spec: spec("search", func(s *tool.Spec) { s.Pages = []string{"incidents"} }), execute: func(context.Context, tool.Invocation) (tool.Result, error) {
		ran = true
		return tool.Text("x"), nil
	}})
	for name, tt := range map[string]struct {
		change func(*tool.Call)
		code   agent.ToolErrorCode
		is     error
	}{
		"no longer allowed": {func(c *tool.Call) { c.Allow = nil }, agent.ToolUnknown, nil},
		"left the page":     {func(c *tool.Call) { c.Actor.Page = "home" }, agent.ToolUnknown, nil},
		"look-alike":        {func(c *tool.Call) { c.Tool = "se\u0430rch"; c.Allow = []string{c.Tool} }, agent.ToolUnknown, nil},
		"schema":            {func(c *tool.Call) { c.Arguments, c.ArgumentsHash = []byte(`{"limit":1}`), "" }, agent.ToolInvalidArguments, nil},
		"not canonical":     {func(c *tool.Call) { c.Arguments, c.ArgumentsHash = []byte(`{ "service":"web"}`), "" }, "", tool.ErrArgumentsChanged},
		"not JSON":          {func(c *tool.Call) { c.Arguments = nil }, "", tool.ErrArgumentsChanged},
		"other hash":        {func(c *tool.Call) { c.Arguments = []byte(`{"service":"db"}`) }, "", tool.ErrArgumentsChanged},
		"no tenant":         {func(c *tool.Call) { c.Actor.Scope.Tenant = "" }, "", nil},
	} {
		c := call("search")
		tt.change(&c)
		_, err := r.Execute(t.Context(), c)
		var shown *tool.Error
		if isShown := errors.As(err, &shown); err == nil || isShown != (tt.code != "") || isShown && shown.Code != tt.code || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if ran {
		t.Error("a refused call was executed")
	}
}

func TestExecuteRefusesWrites(t *testing.T) {
	t.Parallel()
	f := fakeWriter{fake: fake{spec: spec("restart", asWrite), execute: func(context.Context, tool.Invocation) (tool.Result, error) {
		t.Error("a write was executed without a plan")
		return tool.Text("x"), nil
	}}}
	c := call("restart")
	c.Key = key
	if _, err := registry(t, f).Execute(t.Context(), c); kinds(err) != "ErrRisk" {
		t.Errorf("got %v", err)
	}
}

func TestExecuteAuthorizes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		authorize   func(context.Context, tool.Invocation) error
		allowed     bool
		forbidden   bool
		unavailable bool
	}{
		"allowed": {func(_ context.Context, c tool.Invocation) error { c.Arguments[0] = 'X'; return nil }, true, false, false},
		"forbidden": {func(context.Context, tool.Invocation) error {
			return fmt.Errorf("%w: not your service", tool.ErrForbidden)
		}, false, true, false},
		"unreachable": {func(context.Context, tool.Invocation) error { return errors.New("dial") }, false, false, true},
		"panics":      {func(context.Context, tool.Invocation) error { panic("x") }, false, false, true},
		"an *Error":   {func(context.Context, tool.Invocation) error { return &tool.Error{Code: agent.ToolFailed} }, false, false, true},
		"unknown": {func(context.Context, tool.Invocation) error {
			return fmt.Errorf("%w: %w", tool.ErrOutcomeUnknown, tool.ErrStale)
		}, false, false, true},
	} {
		ran := false
		f := fake{spec: spec("search"), authorize: tt.authorize, execute: func(_ context.Context, c tool.Invocation) (tool.Result, error) {
			ran = true
			return tool.Result{Content: c.Arguments}, nil
		}}
		result, err := registry(t, f).Execute(t.Context(), call("search"))
		var shown *tool.Error
		forbidden := errors.As(err, &shown) && shown.Error() == "forbidden: not allowed"
		if ran != tt.allowed || forbidden != tt.forbidden || errors.Is(err, tool.ErrAuthorizationUnavailable) != tt.unavailable {
			t.Errorf("%s: ran %t, %v", name, ran, err)
		}
		if tt.unavailable && kinds(err) != "ErrAuthorizationUnavailable" {
			t.Errorf("%s: the error is %s as well", name, kinds(err))
		}
		if tt.allowed && string(result.Content) != `{"service":"web"}` {
			t.Errorf("%s: result %s", name, result.Content)
		}
	}
}

func TestExecuteRetries(t *testing.T) {
	t.Parallel()
	busy := &tool.Error{Code: agent.ToolUnavailable, Message: "busy", Transient: true}
	for name, tt := range map[string]struct {
		change func(*tool.Spec)
		errs   []error
		tries  int
		took   time.Duration
		want   string
	}{
		"first try":          {nil, []error{nil}, 1, 0, ""},
		"third try":          {nil, []error{busy, busy, nil}, 3, 300 * time.Millisecond, ""},
		"all fail":           {nil, []error{busy, busy, busy, nil}, 3, 300 * time.Millisecond, "unavailable: busy"},
		"permanent":          {nil, []error{&tool.Error{Code: agent.ToolNotFound, Message: "no"}, nil}, 1, 0, "not_found: no"},
		"then permanent":     {nil, []error{busy, &tool.Error{Code: agent.ToolNotFound, Message: "no"}, nil}, 2, 100 * time.Millisecond, "not_found: no"},
		"plain":              {nil, []error{errors.New("x"), nil}, 1, 0, "failed: the tool failed"},
		"five attempts":      {func(s *tool.Spec) { s.Attempts = 5 }, []error{busy, busy, busy, busy, nil}, 5, 1500 * time.Millisecond, ""},
		"no time for a wait": {func(s *tool.Spec) { s.Timeout = 250 * time.Millisecond }, []error{busy, busy, nil}, 2, 100 * time.Millisecond, "unavailable: busy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				f := fake{spec: spec("search"), execute: func(context.Context, tool.Invocation) (tool.Result, error) {
					tries++
					return tool.Text("x"), tt.errs[tries-1]
				}}
				if tt.change != nil {
					tt.change(&f.spec)
				}
				start := time.Now()
				_, err := registry(t, f).Execute(t.Context(), call("search"))
				got := ""
				if err != nil {
					got = err.Error()
				}
				if tries != tt.tries || time.Since(start) != tt.took || got != tt.want {
					t.Errorf("%d tries in %s: %q", tries, time.Since(start), got)
				}
			})
		})
	}
}

func TestExecuteTime(t *testing.T) {
	t.Parallel()
	obeys := func(ctx context.Context, _ tool.Invocation) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	}
	ignores := func(context.Context, tool.Invocation) (tool.Result, error) {
		time.Sleep(time.Hour)
		return tool.Text("late"), nil
	}
	unknown := func(ctx context.Context, _ tool.Invocation) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, fmt.Errorf("commit: %w", tool.ErrOutcomeUnknown)
	}
	finishes := func(ctx context.Context, _ tool.Invocation) (tool.Result, error) {
		<-ctx.Done()
		return tool.Text("done"), nil
	}
	hangs := func(context.Context, tool.Invocation) error { time.Sleep(time.Hour); return nil }
	for name, tt := range map[string]struct {
		execute   func(context.Context, tool.Invocation) (tool.Result, error)
		authorize func(context.Context, tool.Invocation) error
		fast      bool
		parent    time.Duration
		cancel    time.Duration
		took      time.Duration
		want      func(error) bool
	}{
		"obeys its timeout":     {obeys, nil, false, 0, 0, 30 * time.Second, isCode(agent.ToolTimeout)},
		"obeys a fast timeout":  {obeys, nil, true, 0, 0, 5 * time.Second, isCode(agent.ToolTimeout)},
		"ignores its timeout":   {ignores, nil, false, 0, 0, 30*time.Second + 500*time.Millisecond, isCode(agent.ToolTimeout)},
		"parent deadline":       {obeys, nil, false, 2 * time.Second, 0, 2 * time.Second, is(context.DeadlineExceeded)},
		"parent canceled":       {obeys, nil, false, 0, 3 * time.Second, 3 * time.Second, is(context.Canceled)},
		"ignores a cancel":      {ignores, nil, false, 0, 3 * time.Second, 3500 * time.Millisecond, is(context.Canceled)},
		"outcome unknown":       {unknown, nil, false, 0, 3 * time.Second, 3 * time.Second, is(tool.ErrOutcomeUnknown)},
		"finished all the same": {finishes, nil, false, 0, 3 * time.Second, 3 * time.Second, func(err error) bool { return err == nil }},
		"authorizer hangs":      {obeys, hangs, false, 0, 0, 30*time.Second + 500*time.Millisecond, is(tool.ErrAuthorizationUnavailable)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.parent > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.parent)
					defer cancel()
				}
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				r := registry(t, fake{spec: spec("search", func(s *tool.Spec) { s.Fast = tt.fast }), execute: tt.execute, authorize: tt.authorize})
				start := time.Now()
				_, err := r.Execute(ctx, call("search"))
				if !tt.want(err) || time.Since(start) != tt.took {
					t.Errorf("after %s: %v", time.Since(start), err)
				}
				time.Sleep(2 * time.Hour) // until abandoned tools have returned
			})
		})
	}
}

func isCode(code agent.ToolErrorCode) func(error) bool {
	return func(err error) bool {
		var shown *tool.Error
		return errors.As(err, &shown) && shown.Code == code && shown.Transient
	}
}

func is(target error) func(error) bool {
	return func(err error) bool {
		var shown *tool.Error
		return errors.Is(err, target) && !errors.As(err, &shown)
	}
}

func TestExecuteQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		r := registry(t, fake{spec: spec("search", func(s *tool.Spec) { s.MaxConcurrent, s.Timeout = 2, 5*time.Second }), execute: func(context.Context, tool.Invocation) (tool.Result, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(2 * time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return tool.Text("x"), nil
		}})
		// Two at a time for 2 s each: four are done after 4 s, two more would
		// begin then and be done after 6 s, beyond the timeout of 5 s plus the
		// half second of patience; the last two find no place.
		var results [8]error
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() { _, results[i] = r.Execute(t.Context(), call("search")) })
		}
		wg.Wait()
		time.Sleep(time.Minute)
		if _, err := r.Execute(t.Context(), call("search")); err != nil {
			t.Errorf("a place was lost: %v", err)
		}
		counts := map[string]int{}
		for _, err := range results {
			var shown *tool.Error
			switch {
			case err == nil:
				counts["done"]++
			case errors.As(err, &shown):
				counts[string(shown.Code)]++
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if most != 2 || counts["done"] != 4 || counts["timeout"] != 2 || counts["quota_exceeded"] != 2 {
			t.Errorf("at most %d at a time, %v", most, counts)
		}
	})
}

func TestExecuteCleansResults(t *testing.T) {
	t.Parallel()
	lines := strings.Repeat("0123456789abcde\n", tool.MaxResultBytes/16)
	for name, tt := range map[string]struct {
		result tool.Result
		want   tool.Result
	}{
		"JSON by default": {tool.Result{Content: []byte(" {\"a\" :\n1}")}, tool.Result{Content: []byte(`{"a":1}`), ContentType: tool.ContentJSON}},
		"JSON escapes":    {tool.Result{Content: []byte(`["\u0000","\ud83d","\ud83d\ude00","\\u0000","\ude00\u0041","\"\ud83d"]`)}, tool.Result{Content: []byte("[\"\uFFFD\",\"\uFFFD\",\"\\ud83d\\ude00\",\"\\\\u0000\",\"\uFFFD\\u0041\",\"\\\"\uFFFD\"]"), ContentType: tool.ContentJSON}},
		"JSON in Latin-1": {tool.Result{Content: []byte("\"caf\xe9\"")}, tool.Result{Content: []byte("\"caf\uFFFD\""), ContentType: tool.ContentJSON}},
		"text":            {tool.Text("a\x00b\xef\xb8."), tool.Result{Content: []byte("a\uFFFDb\uFFFD."), ContentType: tool.ContentText}},
		"empty text":      {tool.Text(""), tool.Result{Content: []byte(""), ContentType: tool.ContentText}},
		"exactly full":    {tool.Text(lines), tool.Result{Content: []byte(lines), ContentType: tool.ContentText}},
		"too long":        {tool.Text(lines + "x"), tool.Result{Content: []byte(lines), ContentType: tool.ContentText, Truncated: true}},
		"JSON too long":   {tool.Result{Content: []byte(`["` + strings.Repeat("字", tool.MaxResultBytes/3) + `"]`)}, tool.Result{Content: []byte(`["` + strings.Repeat("字", (tool.MaxResultBytes-2)/3)), ContentType: tool.ContentText, Truncated: true}},
		"author's flag":   {tool.Result{Content: []byte("1"), Truncated: true}, tool.Result{Content: []byte("1"), ContentType: tool.ContentJSON}},
	} {
		r := registry(t, fake{spec: spec("search"), execute: func(context.Context, tool.Invocation) (tool.Result, error) { return tt.result, nil }})
		got, err := r.Execute(t.Context(), call("search"))
		if err != nil || string(got.Content) != string(tt.want.Content) || got.ContentType != tt.want.ContentType || got.Truncated != tt.want.Truncated {
			t.Errorf("%s: got %.80q (%d bytes) %s %t, %v", name, got.Content, len(got.Content), got.ContentType, got.Truncated, err)
		}
	}
}

func TestExecuteCleansNotes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ note, want string }{
		"none":          {"", ""},
		"one line":      {"14 errors since 10:02", "14 errors since 10:02"},
		"Chinese":       {"10:02 起 14 个错误", "10:02 起 14 个错误"},
		"lines":         {" 14 errors\r\n since\t10:02\n", "14 errors   since 10:02"},
		"controls":      {"a\x00b\x1b[31mc\u0085d\u2028e", "a b [31mc d e"},
		"reversed":      {"a\u202eb", "a b"},
		"invalid UTF-8": {"a\xef\xb8.b", "a\uFFFD.b"},
		"just fits":     {strings.Repeat("x", 256), strings.Repeat("x", 256)},
		"too long":      {strings.Repeat("x", 257), strings.Repeat("x", 253) + "..."},
		"cut in a rune": {strings.Repeat("启", 86), strings.Repeat("启", 84) + "..."},
	} {
		r := registry(t, fake{spec: spec("search"), execute: func(context.Context, tool.Invocation) (tool.Result, error) {
			return tool.Result{Content: []byte("1"), Note: tt.note}, nil
		}})
		got, err := r.Execute(t.Context(), call("search"))
		if err != nil || got.Note != tt.want {
			t.Errorf("%s: got %q, %v", name, got.Note, err)
		}
	}
}

type found struct {
	Errors int `json:"errors"`
}

func (f found) Note() string { return fmt.Sprintf("%d errors", f.Errors) }

func TestJSONTakesTheNote(t *testing.T) {
	t.Parallel()
	got, err := tool.JSON(found{14})
	if err != nil || got.Note != "14 errors" || string(got.Content) != `{"errors":14}` {
		t.Errorf("got %q, %q, %v", got.Note, got.Content, err)
	}
	if got, _ := tool.JSON(map[string]int{"errors": 14}); got.Note != "" {
		t.Errorf("got %q", got.Note)
	}
}
