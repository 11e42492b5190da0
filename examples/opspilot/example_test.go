package opspilot_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/tool"
)

// What a worker does with one call that the model proposed.
func ExampleTools() {
	dir, err := os.MkdirTemp("", "opspilot")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	registered, err := services.Open(dir)
	if err != nil {
		panic(err)
	}
	err = registered.Put(services.Record{
		ID: "payment-api.production", Name: "payment-api", Environment: "production",
		Address: "127.0.0.1:8080", PID: 1, LogPath: "/var/log/payment-api.log",
		StartedAt: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC),
	})
	if err != nil {
		panic(err)
	}

	tools, err := opspilot.Tools(opspilot.Config{RegistryDir: dir})
	if err != nil {
		panic(err)
	}
	registry, err := tool.NewRegistry(tools...)
	if err != nil {
		panic(err)
	}
	actor := tool.Actor{Scope: agent.Scope{Tenant: "acme", User: "ada", Environment: "production"}}
	allow := []string{opspilot.FindService}
	checked, refused := registry.Check(actor, allow, "find_service", `{"query": "payment"}`)
	if refused != nil {
		panic(refused)
	}
	result, err := registry.Execute(context.Background(), tool.Call{
		Invocation: tool.Invocation{Actor: actor, RunID: "run-1", CallID: "1.0", Arguments: checked.Arguments},
		Tool:       "find_service", Allow: allow, ArgumentsHash: checked.Hash,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(result.Content))
	// Output: {"query":"payment","environment":"production","total":1,"chosen":{"service_id":"payment-api.production","name":"payment-api","environment":"production","started_at":"2026-01-31T08:00:00Z"},"services":[{"service_id":"payment-api.production","name":"payment-api","environment":"production","started_at":"2026-01-31T08:00:00Z"}]}
}
