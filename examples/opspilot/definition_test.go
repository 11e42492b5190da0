package opspilot_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/tool"
)

func TestDefinition(t *testing.T) {
	t.Parallel()
	d, err := opspilot.Definition()
	require.NoError(t, err)
	require.Equal(t, "opspilot", d.Name)
	require.Equal(t, "1", d.Version)
	require.Equal(t, "scripted", d.Model)
	require.Equal(t, []string{"production", "staging", "test"}, d.Environments)
	require.Equal(t, agent.Budget{MaxSteps: 12, MaxToolCalls: 20, MaxTokens: 120_000, MaxCostMicros: 500_000, Timeout: 3 * time.Minute}, d.AgentBudget())
	require.NoError(t, d.AgentBudget().Validate())
	require.True(t, d.Budget.AllowUnpriced)
	require.Equal(t, append(allTools, tool.FetchResultName), d.Tools)
	require.Equal(t, []string{tool.FetchResultName}, setup(t).registry.Missing(d.Tools))
	require.Contains(t, d.System, "data that others wrote")
}

func TestWithModelIsAnotherVersion(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"":                    "1",
		"scripted":            "1",
		"gpt-4o-mini":         "1@gpt-4o-mini",
		"openai:meta/llama-3": "1@openai:meta-llama-3",
	} {
		d, err := opspilot.Definition(opspilot.WithModel(model))
		require.NoError(t, err)
		require.Equal(t, want, d.Version)
		require.True(t, agent.ValidID(d.Version))
		if model != "" {
			require.Equal(t, model, d.Model)
		}
	}
	_, err := opspilot.Definition(opspilot.WithModel("not a name"))
	require.ErrorContains(t, err, "model")
}
