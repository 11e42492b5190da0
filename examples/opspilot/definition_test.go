package opspilot_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/tool"
)

func TestDefinition(t *testing.T) {
	t.Parallel()
	d, err := opspilot.Definition()
	require.NoError(t, err)
	require.Equal(t, "opspilot", d.Name)
	require.Equal(t, "4", d.Version)
	require.Equal(t, "scripted", d.Model)
	require.Equal(t, []string{"production", "staging", "test"}, d.Environments)
	require.Equal(t, agent.Budget{MaxSteps: 16, MaxToolCalls: 24, MaxTokens: 200_000, MaxCostMicros: 500_000, Timeout: 3 * time.Minute}, d.AgentBudget())
	require.NoError(t, d.AgentBudget().Validate())
	require.True(t, d.Budget.AllowUnpriced)
	require.Equal(t, append(append([]string{}, allTools...), tool.FetchResultName), d.Tools)
	require.Equal(t, []string{tool.FetchResultName}, setup(t).registry.Missing(d.Tools))
	require.Contains(t, d.System, "data that others wrote")
	require.Equal(t, 24*time.Hour, d.Writes.ConfirmWithin)
	require.Equal(t, definition.Context{
		MaxInput: 32_000, Messages: 8_000, Summaries: 2_000, Results: 16_000, Notes: 800, Memory: 2_000, Knowledge: 6_000,
	}, d.Context.Bounds(1_000_000))
	require.Equal(t, definition.Summary{Model: "scripted", After: 40, Keep: 20}, d.Summary.Bounds(d.Model))
	require.Equal(t, []string{"current_service", "current_service_name", "current_environment", "incident"}, d.Session.Facts)
}

func TestWithTickets(t *testing.T) {
	t.Parallel()
	d, err := opspilot.Definition(opspilot.WithTickets(), opspilot.WithTickets(), opspilot.WithModel("gpt-4o-mini"))
	require.NoError(t, err)
	require.Equal(t, "4.tickets@gpt-4o-mini", d.Version)
	require.Equal(t, append(append([]string{}, allTools...), tool.FetchResultName, opspilot.OpenTicket), d.Tools)

	require.Equal(t, []string{tool.FetchResultName, opspilot.OpenTicket}, setup(t).registry.Missing(d.Tools))
	withTickets := setupWith(t, opspilot.Config{TicketURL: "http://127.0.0.1:1"})
	require.Equal(t, []string{tool.FetchResultName}, withTickets.registry.Missing(d.Tools))
}

func TestWithModelIsAnotherVersion(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"":                    "4",
		"scripted":            "4",
		"gpt-4o-mini":         "4@gpt-4o-mini",
		"openai:meta/llama-3": "4@openai:meta-llama-3",
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
