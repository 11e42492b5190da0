package opspilot_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/examples/opspilot/patient"
	"github.com/fairlead/fairlead/examples/opspilot/policies"
	"github.com/fairlead/fairlead/examples/opspilot/tickets"
	"github.com/fairlead/fairlead/model/scripted"
)

// runs returns a suite in which OpsPilot runs as in production: its definition,
// policies and tools, and a service that really runs.
func (w ward) runs(t *testing.T, config opspilot.Config, script scripted.Script, options ...opspilot.Option) func(message string, events ...agenttest.Event) *agenttest.Result {
	t.Helper()
	config.RegistryDir = patient.RegistryDir(w.dir)
	tools, err := opspilot.Tools(config)
	require.NoError(t, err)
	definition, err := opspilot.Definition(options...)
	require.NoError(t, err)
	suite := agenttest.New(t, agenttest.Config{Definition: definition, Tools: tools, Script: script, Policies: policies.Files})
	return func(message string, events ...agenttest.Event) *agenttest.Result {
		t.Helper()
		request := suite.Request(message)
		request.Tenant, request.Environment = "demo", "production"
		return suite.RunRequest(request, events...)
	}
}

func TestAgentRestartsWhatSomebodyElseConfirmed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.admit(t, patient.StartConfig{})
	before, err := p.Current()
	require.NoError(t, err)
	run := w.runs(t, opspilot.Config{}, opspilot.Script(0))
	var plan agenttest.Plan
	result := run(fixIt, agenttest.When(agenttest.PlanWaits(),
		agenttest.CheckPlan(func(p agenttest.Plan) { plan = p }),
		agenttest.ApproveAs("ann"), // who asked: four eyes are wanted in production
		agenttest.Wait(3*time.Hour),
		agenttest.ApproveAs("bob"), // on call
	))
	result.WantEnd(agent.ReasonFinal)
	result.WantRefusals(agent.RefusedNotAuthorized)
	require.Equal(t, "service/payment-api.production", plan.Resource)
	require.Equal(t, before.Version(), plan.Version)
	require.JSONEq(t, restartArguments, string(plan.Arguments))
	after, err := p.Current()
	require.NoError(t, err)
	require.NotEqual(t, before.PID, after.PID)
	require.Contains(t, result.Answer, "Before the restart:")
	require.Contains(t, result.Answer, "After the restart:")
}

func TestAgentTellsThatNobodyConfirmed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.admit(t, patient.StartConfig{})
	before, err := p.Current()
	require.NoError(t, err)
	run := w.runs(t, opspilot.Config{}, opspilot.Script(0))
	for name, events := range map[string][]agenttest.Event{
		"declined": {agenttest.When(agenttest.PlanWaits(), agenttest.DeclineAs("bob"))},
		"expired":  nil,
	} {
		result := run(fixIt, events...)
		result.WantEnd(agent.ReasonFinal)
		require.Contains(t, result.Answer, "Nothing was restarted", name)
		require.Empty(t, result.Writes, name)
	}
	after, err := p.Current()
	require.NoError(t, err)
	require.Equal(t, before.PID, after.PID)
}

// The ticket service does the work and does not answer: the ticket is found by
// its key, and there is one.
func TestAgentOpensOneTicket(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.admit(t, patient.StartConfig{Healthy: true})
	service, err := tickets.Open("")
	require.NoError(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(func() { _ = service.Close(); server.Close() })
	service.FailOpens(tickets.FaultDropAfter)
	run := w.runs(t, opspilot.Config{TicketURL: server.URL, TicketTimeout: time.Second}, scripted.ByStep(
		scripted.Turn{Calls: []scripted.Call{{Name: opspilot.OpenTicket, Arguments: ticketArguments}}},
		scripted.Turn{Text: "A ticket is open."},
	), opspilot.WithTickets())
	result := run("Open a ticket.", agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")))
	result.WantEnd(agent.ReasonFinal)
	result.WantCalls(opspilot.OpenTicket)
	require.Equal(t, map[string]int{result.Writes[0].Key: 1}, service.Effects())
}
