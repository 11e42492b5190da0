// Package health asks the three parts whether they really work, the way their users will: over the network.
package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/fairlead/fairlead/temporal-dev/internal/postgres"
	"github.com/fairlead/fairlead/temporal-dev/internal/process"
)

// Namespace is the Temporal namespace that fairlead uses on a development machine.
const Namespace = "default"

// SearchAttributes are what fairlead's workflows are found by.
var SearchAttributes = map[string]enumspb.IndexedValueType{
	"FairleadTenant":       enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"FairleadUser":         enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"FairleadConversation": enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"FairleadAgent":        enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"FairleadEnvironment":  enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"FairleadStatus":       enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"FairleadReason":       enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"FairleadStep":         enumspb.INDEXED_VALUE_TYPE_INT,
}

// Report holds what is wrong with each part; nil is healthy.
type Report struct{ Postgres, Temporal, UI error }

// Err is nil when all is well.
func (r Report) Err() error {
	var errs []error
	for _, part := range []struct {
		name string
		err  error
	}{{"PostgreSQL", r.Postgres}, {"Temporal", r.Temporal}, {"Web UI", r.UI}} {
		if part.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", part.name, part.err))
		}
	}
	return errors.Join(errs...)
}

// Check asks all three at the same time and takes no longer than timeout.
func Check(ctx context.Context, databaseURL string, temporalPort, uiPort int, timeout time.Duration) Report {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	run := func(check func() error) <-chan error {
		done := make(chan error, 1)
		go func() { done <- check() }()
		return done
	}
	pg := run(func() error { return postgres.Ping(ctx, databaseURL) })
	temporal := run(func() error { return checkTemporal(ctx, temporalPort) })
	ui := run(func() error { return checkUI(ctx, uiPort) })
	return Report{Postgres: <-pg, Temporal: <-temporal, UI: <-ui}
}

// Dial connects to a frontend. Connecting is lazy: the first call finds out whether it is there.
func Dial(port int) (*grpc.ClientConn, error) {
	return grpc.NewClient(process.Address(port), grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// Serving asks the frontend's health service.
func Serving(ctx context.Context, conn *grpc.ClientConn) error {
	const service = "temporal.api.workflowservice.v1.WorkflowService"
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return fmt.Errorf("ask the frontend's health: %w", err)
	}
	if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("the frontend is %v", answer.GetStatus())
	}
	return nil
}

func checkTemporal(ctx context.Context, port int) error {
	conn, err := Dial(port)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := Serving(ctx, conn); err != nil {
		return err
	}
	workflows := workflowservice.NewWorkflowServiceClient(conn)
	if _, err := workflows.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: Namespace}); err != nil {
		return fmt.Errorf("describe namespace %s: %w", Namespace, err)
	}
	have, err := operatorservice.NewOperatorServiceClient(conn).ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: Namespace})
	if err != nil {
		return fmt.Errorf("list search attributes: %w", err)
	}
	for name := range SearchAttributes {
		if _, ok := have.GetCustomAttributes()[name]; !ok {
			return fmt.Errorf("search attribute %s is not registered yet", name)
		}
	}
	return nil
}

func checkUI(ctx context.Context, port int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+process.Address(port)+"/", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the Web UI answers %s", answer.Status)
	}
	return nil
}
