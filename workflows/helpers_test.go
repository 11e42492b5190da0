package workflows_test

import (
	"testing"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// decode reads the arguments that a workflow passes to its continuation.
func decode(next *workflow.ContinueAsNewError, values ...any) error {
	return converter.GetDefaultDataConverter().FromPayloads(next.Input, values...)
}
