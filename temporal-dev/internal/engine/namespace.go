package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/temporal-dev/internal/health"
)

const retention = 72 * time.Hour

// registerNamespace makes the namespace and fairlead's search attributes exist, and waits until all services know them.
func registerNamespace(ctx context.Context, conn *grpc.ClientConn) error {
	workflows := workflowservice.NewWorkflowServiceClient(conn)
	_, err := workflows.RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace:                        health.Namespace,
		Description:                      "fairlead on a development machine",
		WorkflowExecutionRetentionPeriod: durationpb.New(retention),
	})
	created := err == nil
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("register namespace %s: %w", health.Namespace, err)
	}
	added, err := addSearchAttributes(ctx, conn)
	if err != nil {
		return err
	}
	if created || added {
		// The services read namespaces at this interval; a workflow started before could use an attribute they do not know yet.
		time.Sleep(namespaceRefresh + 200*time.Millisecond)
	}
	return nil
}

func addSearchAttributes(ctx context.Context, conn *grpc.ClientConn) (added bool, err error) {
	operator := operatorservice.NewOperatorServiceClient(conn)
	var have *operatorservice.ListSearchAttributesResponse
	// A namespace that was registered a moment ago is unknown to the frontend until its next refresh.
	err = retry(ctx, func() error {
		have, err = operator.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: health.Namespace})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("list search attributes: %w", err)
	}
	missing := map[string]enumspb.IndexedValueType{}
	for name, want := range health.SearchAttributes {
		switch got, ok := have.GetCustomAttributes()[name]; {
		case !ok:
			missing[name] = want
		case got != want:
			return false, fmt.Errorf("search attribute %s has type %v and must have type %v: it was made by another program; "+
				"use another database, or delete this one's data with `temporal-dev purge --yes`", name, got, want)
		}
	}
	if len(missing) == 0 {
		return false, nil
	}
	err = retry(ctx, func() error {
		_, err := operator.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
			Namespace: health.Namespace, SearchAttributes: missing,
		})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("add search attributes %v: %w", slices.Sorted(maps.Keys(missing)), err)
	}
	return true, nil
}

// retry repeats until success or the end of the context, whichever comes first.
func retry(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
