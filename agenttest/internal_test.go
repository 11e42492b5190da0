package agenttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model/scripted"
)

// TestDeathInsideATransaction: a worker that dies before its commit stores
// nothing, and nothing that it does afterwards either.
func TestDeathInsideATransaction(t *testing.T) {
	t.Parallel()
	d, err := definition.Parse([]byte("name: a\nversion: \"1\"\nmodel: scripted\nsystem: s\nenvironments: [test]\n" +
		"budget: {max_steps: 1, max_tool_calls: 1, max_tokens: 1000, timeout: 1m}\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := New(t, Config{Definition: d, Script: scripted.ByStep()})
	r := newRun(s, s.Request("Hello"))
	w := r.worker
	scope := r.req.Scope()
	begin := func(tx activities.Tx) error {
		_, err := tx.LoadBegin(context.Background(), db.BeginQuery{Conversation: "talk", RunID: "r", Day: db.Day(time.Now())})
		return err
	}
	err = w.InTx(context.Background(), scope, func(tx activities.Tx) error {
		if err := begin(tx); err != nil {
			return err
		}
		tx.AppendMessage(&db.Conversation{ID: "talk"}, db.Message{ID: "m", Role: db.RoleUser, Visibility: db.Visible}, true)
		w.kill()
		return nil
	})
	if !errors.Is(err, errDead) || len(s.store.Messages(scope.Tenant, "talk")) != 0 {
		t.Errorf("the commit: %v", err)
	}
	_, err = w.DefinitionBody(context.Background(), "d")
	_, _, callErr := w.ToolCall(context.Background(), scope, "r", "0.0")
	_, writeErr := w.Write(context.Background(), scope, "r", "0.0")
	_, _, resultErr := w.ReadResult(context.Background(), scope, "r", "0.0", 0, 1)
	for what, err := range map[string]error{"transaction": w.InTx(context.Background(), scope, begin), "definition": err, "call": callErr, "write": writeErr, "result": resultErr} {
		if !errors.Is(err, errDead) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.crash()
	if err := r.current().InTx(context.Background(), scope, begin); err != nil {
		t.Errorf("the next worker: %v", err)
	}
	if deadlineOf(agent.NextActionInput{Deadline: time.Unix(1, 0)}) != time.Unix(1, 0) {
		t.Error("the deadline of a model call is not seen")
	}
}
