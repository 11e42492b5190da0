package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/rig"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// One run takes modelCalls responses, the last of them the answer, and makes
// reads fast reads: as many activities as the bare workflow has.
const (
	modelCalls = 10
	reads      = 10
)

// bare is the measure: as many activities that do nothing.
func bare(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second})
	for range modelCalls + reads {
		if err := workflow.ExecuteActivity(ctx, nothing).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func nothing(context.Context) error { return nil }

// script answers at once: two reads in the first step, one in each of the
// others, and the answer in the tenth.
func script(_ context.Context, req model.Request) (scripted.Turn, error) {
	step := scripted.Step(req)
	look := func(n int) scripted.Call {
		return scripted.Call{Name: "look", Arguments: fmt.Sprintf(`{"n":%d}`, n)}
	}
	switch {
	case step == 0:
		return scripted.Turn{Calls: []scripted.Call{look(0), look(1)}}, nil
	case step < modelCalls-1:
		return scripted.Turn{Calls: []scripted.Call{look(step + 1)}}, nil
	}
	return scripted.Turn{Text: "Looked ten times."}, nil
}

const definitionYAML = `
name: %s
version: "1"
system: You look at things and report.
model: %s
tools: [look]
environments: [bench]
budget: {max_steps: 20, max_tool_calls: 20, max_tokens: 1000000, max_cost_micros: 1000000, timeout: 5m}
`

type lookArgs struct {
	N int `json:"n"`
}

func startParties(bareClient, agentClient client.Client, database *db.DB) ([]party, func(), error) {
	look, err := tool.NewRead(tool.Spec{
		Name: "look", Version: "1", Description: "Looks at thing number n.", Fast: true, Risk: tool.Read,
		Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
		Source:     "bench", Trust: tool.Authoritative,
	}, func(_ context.Context, _ tool.Invocation, args lookArgs) (tool.Result, error) {
		return tool.JSON(map[string]int{"seen": args.N})
	})
	if err != nil {
		return nil, nil, err
	}
	var definitions []definition.Definition
	for name, modelName := range map[string]string{"queued": "scripted", "local": "scripted-local"} {
		d, err := definition.Parse(fmt.Appendf(nil, definitionYAML, name, modelName))
		if err != nil {
			return nil, nil, err
		}
		definitions = append(definitions, d)
	}
	queue := "bench-" + uuid.NewString()
	agents, err := rig.Poller(rig.Config{
		DB: database, Model: scripted.New(script), Tools: []tool.Tool{look}, Definitions: definitions,
		Limits: activities.Limits{MaxRunning: 1000, MaxRunningPerUser: 1000}, Grace: 5 * time.Second,
	}, agentClient, queue)
	if err != nil {
		return nil, nil, err
	}
	bareWorker := worker.New(bareClient, queue+"-bare", options())
	bareWorker.RegisterWorkflow(bare)
	bareWorker.RegisterActivity(nothing)
	if err := errors.Join(agents.Start(), bareWorker.Start()); err != nil {
		return nil, nil, err
	}
	stop := func() {
		agents.Stop()
		bareWorker.Stop()
	}
	return []party{
		bareParty(bareClient, queue+"-bare"),
		agentParty("run", "queued", agentClient, queue),
		agentParty("local", "local", agentClient, queue),
	}, stop, nil
}

// temporaryDatabase makes a migrated database beside the one of owner's URL.
func temporaryDatabase(ctx context.Context, owner string) (string, func() error, error) {
	u, err := url.Parse(owner)
	if err != nil {
		return "", nil, errors.New("DATABASE_URL is malformed: expected postgres://user:password@host:port/database")
	}
	name := "fairlead_bench_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	statement := func(ctx context.Context, sql string) error {
		conn, err := pgx.Connect(ctx, owner)
		if err != nil {
			return fmt.Errorf("connect to PostgreSQL: %w", err)
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, sql)
		return err
	}
	if err := statement(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", nil, err
	}
	drop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return statement(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	}
	u.Path = "/" + name
	if err := db.Migrate(ctx, u.String()); err != nil {
		return "", nil, errors.Join(err, drop())
	}
	return u.String(), drop, nil
}
