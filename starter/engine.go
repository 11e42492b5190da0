package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/codec"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/telemetry"
)

// callTimeout bounds one request to Temporal or PostgreSQL.
const callTimeout = 5 * time.Second

// pollerFresh is how old a worker's last poll may be: a long poll lasts a
// minute.
const pollerFresh = 75 * time.Second

// openDatabase opens the database, with the vault if there is a key for it.
func openDatabase(ctx context.Context, settings config.Config) (*db.DB, error) {
	options := db.Options{MaxConns: 2, ConnectTimeout: callTimeout}
	if settings.Encryption.Configured() {
		var err error
		if options.KeyEncryption, err = settings.KeyEncryption(); err != nil {
			return nil, &exit{exitUsage, err.Error()}
		}
	}
	return db.Open(ctx, settings.Database.URL, options)
}

func openReader(ctx context.Context, settings config.Config) (reader, error) {
	database, err := openDatabase(ctx, settings)
	if err != nil {
		return nil, err
	}
	return database, nil
}

// openEngine connects to Temporal. Payloads are encrypted if there are a key and
// a database; without, results and states cannot be read, and everything else can.
func openEngine(interrupt context.Context, settings config.Config) (engine, error) {
	ctx, cancel := context.WithTimeout(interrupt, callTimeout)
	defer cancel()
	options := settings.Temporal.Options()
	options.Logger = telemetry.TemporalLogger(zap.NewNop())
	closeKeys := func() {}
	if settings.Encryption.Configured() && settings.Database.URL != "" {
		database, err := openDatabase(context.WithoutCancel(ctx), settings)
		if err != nil {
			return nil, err
		}
		options.DataConverter, closeKeys = codec.DataConverter(database), database.Close
	}
	c, err := client.DialContext(ctx, options)
	if err != nil {
		closeKeys()
		if interrupt.Err() != nil {
			return nil, interruptedBeforeSending()
		}
		return nil, &exit{exitUnreachable, fmt.Sprintf("Temporal cannot be reached at %s (namespace %s); is it running? (TEMPORAL_ADDRESS names another)",
			settings.Temporal.Address, settings.Temporal.Namespace)}
	}
	return &temporalEngine{client: c, namespace: settings.Temporal.Namespace, taskQueue: settings.TaskQueue, closeKeys: closeKeys}, nil
}

// temporalEngine is the engine on a real server.
type temporalEngine struct {
	client               client.Client
	namespace, taskQueue string
	closeKeys            func()
}

// Start implements engine. The summary is for the Web UI and holds no content.
func (t *temporalEngine) Start(ctx context.Context, request agent.RunRequest) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	_, err := t.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: agent.WorkflowID(request.Tenant, request.RunID), TaskQueue: t.taskQueue,
		WorkflowIDReusePolicy:                    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            fmt.Sprintf("%s for %s of %s", request.Agent, request.User, request.Tenant),
	}, agent.WorkflowAgentRun, request)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) {
		return errExists
	}
	return err
}

// job is a workflow other than a run.
type job struct {
	workflowID, workflow string
	input                any
	// shared says that one which is going on already does the same work.
	shared bool
}

// Begin implements engine.
func (t *temporalEngine) Begin(ctx context.Context, j job) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	_, err := t.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: j.workflowID, TaskQueue: t.taskQueue,
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: !j.shared,
	}, j.workflow, j.input)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) {
		return errExists
	}
	return err
}

// Await implements engine.
func (t *temporalEngine) Await(ctx context.Context, workflowID string, result any) error {
	err := t.client.GetWorkflow(ctx, workflowID, "").Get(ctx, result)
	var ended *temporal.WorkflowExecutionError
	if errors.As(err, &ended) {
		return &workflowFailed{err}
	}
	return known(err)
}

// queryMetadata is the query by which the Web UI asks a workflow to describe
// itself.
const queryMetadata = "__temporal_workflow_metadata"

// Details implements engine.
func (t *temporalEngine) Details(ctx context.Context, workflowID string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := t.client.QueryWorkflow(ctx, workflowID, "", queryMetadata)
	if err != nil {
		return "", known(err)
	}
	var metadata sdk.WorkflowMetadata
	err = answer.Get(&metadata)
	return metadata.GetCurrentDetails(), err
}

// Result implements engine.
func (t *temporalEngine) Result(ctx context.Context, workflowID string) (result agent.RunResult, err error) {
	err = t.Await(ctx, workflowID, &result)
	return result, err
}

// State implements engine.
func (t *temporalEngine) State(ctx context.Context, workflowID string) (view agent.RunView, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := t.client.QueryWorkflow(ctx, workflowID, "", agent.QueryState)
	if err != nil {
		return view, known(err)
	}
	return view, answer.Get(&view)
}

// Cancel implements engine.
func (t *temporalEngine) Cancel(ctx context.Context, workflowID string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	return known(t.client.CancelWorkflow(ctx, workflowID, ""))
}

// SignalWorkflow implements engine.
func (t *temporalEngine) SignalWorkflow(ctx context.Context, workflowID, runID, signalName string, arg any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	return known(t.client.SignalWorkflow(ctx, workflowID, runID, signalName, arg))
}

// Served implements engine. A worker that went away stays in the server's list
// for minutes, so a task that nobody takes counts for more than the list.
func (t *temporalEngine) Served(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := t.client.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: t.namespace, TaskQueue: &taskqueue.TaskQueue{Name: t.taskQueue, Kind: enums.TASK_QUEUE_KIND_NORMAL},
		TaskQueueType: enums.TASK_QUEUE_TYPE_WORKFLOW, ReportStats: true,
	})
	if err != nil {
		return false, err
	}
	if stats := answer.GetStats(); stats.GetApproximateBacklogCount() > 0 && stats.GetApproximateBacklogAge().AsDuration() > quietFor/2 {
		return false, nil
	}
	for _, poller := range answer.GetPollers() {
		if time.Since(poller.GetLastAccessTime().AsTime()) < pollerFresh {
			return true, nil
		}
	}
	return false, nil
}

// Close implements engine.
func (t *temporalEngine) Close() {
	t.client.Close()
	t.closeKeys()
}

func known(err error) error {
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return errUnknownRun
	}
	return err
}

// unreachable reports whether err means that Temporal did not answer.
func unreachable(err error) bool {
	var (
		unavailable *serviceerror.Unavailable
		deadline    *serviceerror.DeadlineExceeded
	)
	return errors.As(err, &unavailable) || errors.As(err, &deadline) || errors.Is(err, context.DeadlineExceeded)
}
