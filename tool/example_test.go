package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

type searchArgs struct {
	Service string `json:"service"`
	Limit   int    `json:"limit"`
}

// A typed read tool, from what the model wrote to what it is told.
func ExampleNewRead() {
	search, err := tool.NewRead(tool.Spec{
		Name:        "search_logs",
		Version:     "1",
		Description: "Searches the logs of one service.",
		Source:      "log-store",
		Parameters: json.RawMessage(`{
			"type": "object",
			"properties": {
				"service": {"type": "string", "maxLength": 64},
				"limit":   {"type": "integer", "minimum": 1, "maximum": 50}
			},
			"required": ["service"]
		}`),
	}, func(_ context.Context, _ tool.Invocation, args searchArgs) (tool.Result, error) {
		if args.Service != "checkout" {
			return tool.Result{}, &tool.Error{Code: agent.ToolNotFound, Message: "there is no service of this name"}
		}
		return tool.JSON(map[string]any{"lines": []string{"payment failed"}})
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry, err := tool.NewRegistry(search)
	if err != nil {
		fmt.Println(err)
		return
	}

	actor := tool.Actor{Scope: agent.Scope{Tenant: "acme", User: "ann", Environment: "production"}}
	allow := []string{"search_logs"}
	for _, arguments := range []string{`{"service": "checkout"}`, `{"service": "cart"}`, `{"service": "checkout", "limit": 500}`} {
		checked, refused := registry.Check(actor, allow, "search_logs", arguments)
		if refused != nil {
			fmt.Println(string(tool.ErrorEnvelope(refused)))
			continue
		}
		result, err := registry.Execute(context.Background(), tool.Call{
			Invocation: tool.Invocation{Actor: actor, RunID: "run-1", CallID: "1.0", Arguments: checked.Arguments},
			Tool:       "search_logs", Allow: allow, ArgumentsHash: checked.Hash,
		})
		if shown, ok := err.(*tool.Error); ok {
			fmt.Println(string(tool.ErrorEnvelope(shown)))
			continue
		}
		fmt.Println(string(tool.NewEnvelope(checked.Spec, "res-1", result).Bytes()))
	}
	// Output:
	// {"source":"log-store","trust":"untrusted","content_type":"application/json","size_bytes":28,"truncated":false,"result_id":"res-1","content":{"lines":["payment failed"]}}
	// {"error":{"code":"not_found","message":"there is no service of this name","retryable":false}}
	// {"error":{"code":"invalid_arguments","message":"the arguments do not fit: at /limit: must be at most 50 (maximum)","retryable":false}}
}

func TestNewReadRefuses(t *testing.T) {
	t.Parallel()
	run := func(context.Context, tool.Invocation, searchArgs) (tool.Result, error) { return tool.Text(""), nil }
	if _, err := tool.NewRead(spec("a", func(s *tool.Spec) { s.Risk = tool.Write }), run); err == nil {
		t.Error("a write was accepted")
	}
	if _, err := tool.NewRead(spec("A"), run); err == nil {
		t.Error("an invalid name was accepted")
	}
	if _, err := tool.NewRead[searchArgs](spec("a"), nil); err == nil {
		t.Error("a nil function was accepted")
	}
}
