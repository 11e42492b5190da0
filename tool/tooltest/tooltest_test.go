package tooltest_test

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
	"github.com/fairlead/fairlead/tool/tooltest"
)

type one struct{}

func (one) ReadResult(_ context.Context, _ agent.Scope, _, _ string, _, _ int64) ([]byte, int64, error) {
	return []byte("text"), 4, nil
}

func TestFetchResultConforms(t *testing.T) {
	t.Parallel()
	tooltest.Check(t, tool.NewFetchResult(one{}), tool.Invocation{Arguments: []byte(`{"result_id":"r1"}`)})
}
