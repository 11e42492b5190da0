package agent_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
)

func valid() agent.RunRequest {
	return agent.RunRequest{
		RunID: "0199-a", Tenant: "acme", User: "ann@example.org", Conversation: "c:1",
		Agent: "opspilot", Environment: "production", Message: "payment-api 为什么失败？",
	}
}

func ptr[T any](v T) *T { return &v }

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := valid().Validate(); err != nil {
		t.Fatalf("a valid request is refused: %v", err)
	}
	for name, test := range map[string]struct {
		edit  func(*agent.RunRequest)
		field string
	}{
		"no run id":         {func(r *agent.RunRequest) { r.RunID = "" }, "run_id"},
		"tenant with space": {func(r *agent.RunRequest) { r.Tenant = "a b" }, "tenant"},
		"cyrillic agent":    {func(r *agent.RunRequest) { r.Agent = "оpspilot" }, "agent"},
		"user with newline": {func(r *agent.RunRequest) { r.User = "ann\nroot" }, "user"},
		"long conversation": {func(r *agent.RunRequest) { r.Conversation = strings.Repeat("c", 129) }, "conversation"},
		"no environment":    {func(r *agent.RunRequest) { r.Environment = "" }, "environment"},
		"flag":              {func(r *agent.RunRequest) { r.Flags = []string{"ok", ""} }, "flags"},
		"no message":        {func(r *agent.RunRequest) { r.Message = "" }, "message"},
		"10 MB message":     {func(r *agent.RunRequest) { r.Message = strings.Repeat("secret", 10<<20/6) }, "message"},
		"invalid UTF-8":     {func(r *agent.RunRequest) { r.Message = "a\xef\xb8." }, "message"},
		"NUL":               {func(r *agent.RunRequest) { r.Message = "a\x00b" }, "message"},
		"version":           {func(r *agent.RunRequest) { r.ConversationVersion = ptr(int64(-1)) }, "conversation_version"},
		"zero steps":        {func(r *agent.RunRequest) { r.Budget = &agent.BudgetOverride{MaxSteps: ptr(0)} }, "budget"},
		"negative tokens":   {func(r *agent.RunRequest) { r.Budget = &agent.BudgetOverride{MaxTokens: ptr(int64(-5))} }, "budget"},
		"negative cost":     {func(r *agent.RunRequest) { r.Budget = &agent.BudgetOverride{MaxCostMicros: ptr(int64(-1))} }, "budget"},
		"zero timeout":      {func(r *agent.RunRequest) { r.Budget = &agent.BudgetOverride{Timeout: ptr(time.Duration(0))} }, "budget"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := valid()
			test.edit(&r)
			var typed *agent.RequestError
			if err := r.Validate(); !errors.As(err, &typed) || typed.Field != test.field {
				t.Fatalf("got %v, want a RequestError about %s", err, test.field)
			}
			if strings.Contains(typed.Error(), "secret") {
				t.Fatal("the error repeats the message")
			}
		})
	}
}

func TestOverrideOnlyTightens(t *testing.T) {
	t.Parallel()
	base := agent.Budget{MaxSteps: 10, MaxToolCalls: 5, MaxTokens: 1000, Timeout: time.Minute}
	wish := &agent.BudgetOverride{
		MaxSteps: ptr(3), MaxToolCalls: ptr(50), MaxTokens: ptr(int64(2000)),
		MaxCostMicros: ptr(int64(700)), Timeout: ptr(time.Second),
	}
	want := agent.Budget{MaxSteps: 3, MaxToolCalls: 5, MaxTokens: 1000, MaxCostMicros: 700, Timeout: time.Second}
	if got := wish.Apply(base); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	var none *agent.BudgetOverride
	if got := none.Apply(base); got != base {
		t.Fatalf("nil changes the budget to %+v", got)
	}
}

// Every move that is not in the table of RUN-1 is refused, and terminal
// statuses allow none.
func TestTransitions(t *testing.T) {
	t.Parallel()
	legal := map[string]bool{
		"queued>running": true, "queued>failed": true, "queued>canceled": true,
		"running>waiting_confirmation": true, "running>succeeded": true, "running>failed": true, "running>canceled": true,
		"waiting_confirmation>running": true, "waiting_confirmation>failed": true, "waiting_confirmation>canceled": true,
	}
	n := 0
	for _, from := range agent.Statuses() {
		for _, to := range agent.Statuses() {
			if got := from.CanBecome(to); got != legal[string(from)+">"+string(to)] {
				t.Errorf("%s to %s: allowed is %t", from, to, got)
			} else if got {
				n++
			}
		}
	}
	if n != len(legal) {
		t.Fatalf("%d legal moves, want %d", n, len(legal))
	}
	if agent.Status("done").Valid() || agent.Reason("").Valid() || len(agent.Reasons()) != 19 {
		t.Fatal("the sets are not closed")
	}
}
