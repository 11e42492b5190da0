package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/fairlead/fairlead/agent"
)

// searchAttributes are what a run sets.
var searchAttributes = []struct {
	name string
	kind enums.IndexedValueType
}{
	{agent.SearchTenant, enums.INDEXED_VALUE_TYPE_KEYWORD},
	{agent.SearchUser, enums.INDEXED_VALUE_TYPE_KEYWORD},
	{agent.SearchConversation, enums.INDEXED_VALUE_TYPE_KEYWORD},
	{agent.SearchAgent, enums.INDEXED_VALUE_TYPE_KEYWORD},
	{agent.SearchEnvironment, enums.INDEXED_VALUE_TYPE_KEYWORD},
	{agent.SearchStatus, enums.INDEXED_VALUE_TYPE_KEYWORD},
	{agent.SearchReason, enums.INDEXED_VALUE_TYPE_KEYWORD},
	{agent.SearchStep, enums.INDEXED_VALUE_TYPE_INT},
}

// attributesError says which search attributes the namespace lacks.
type attributesError struct {
	namespace string
	missing   []string
}

// Error names them and the command that makes them.
func (e *attributesError) Error() string {
	return fmt.Sprintf("namespace %s lacks search attributes that runs set: %s; make each with: temporal operator search-attribute create --namespace %s --name NAME --type TYPE",
		e.namespace, strings.Join(e.missing, ", "), e.namespace)
}

// checkSearchAttributes keeps a worker from taking runs that could not go on:
// the server refuses a workflow task that sets an unknown attribute, and the
// task would be tried for ever. A cluster that does not tell which attributes it
// has is taken at its word.
func checkSearchAttributes(ctx context.Context, connection client.Client, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	have, err := connection.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	var (
		unknown *serviceerror.Unimplemented
		denied  *serviceerror.PermissionDenied
	)
	if errors.As(err, &unknown) || errors.As(err, &denied) {
		return nil
	}
	if err != nil {
		return err
	}
	return missingAttributes(namespace, have.GetCustomAttributes())
}

func missingAttributes(namespace string, have map[string]enums.IndexedValueType) error {
	var missing []string
	for _, want := range searchAttributes {
		if have[want.name] != want.kind {
			missing = append(missing, fmt.Sprintf("%s (%s)", want.name, want.kind))
		}
	}
	if len(missing) > 0 {
		return &attributesError{namespace, missing}
	}
	return nil
}
