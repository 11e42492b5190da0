package opspilot_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agenttest"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/examples/opspilot/patient"
	"github.com/fairlead/fairlead/examples/opspilot/policies"
	"github.com/fairlead/fairlead/examples/opspilot/tickets"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

// suite is one in which OpsPilot runs as in production: its definition, policies
// and tools, and a service that really runs.
func (w ward) suite(t *testing.T, config opspilot.Config, script scripted.Script, options ...opspilot.Option) *agenttest.Suite {
	t.Helper()
	config.RegistryDir = patient.RegistryDir(w.dir)
	tools, err := opspilot.Tools(config)
	require.NoError(t, err)
	definition, err := opspilot.Definition(options...)
	require.NoError(t, err)
	return agenttest.New(t, agenttest.Config{Definition: definition, Tools: tools, Script: script, Policies: policies.Files})
}

// say runs the agent on a message.
type say func(message string, events ...agenttest.Event) *agenttest.Result

// runs returns a say for which each message begins a conversation.
func (w ward) runs(t *testing.T, config opspilot.Config, script scripted.Script, options ...opspilot.Option) say {
	t.Helper()
	suite := w.suite(t, config, script, options...)
	return func(message string, events ...agenttest.Event) *agenttest.Result {
		t.Helper()
		request := suite.Request(message)
		request.Tenant, request.Environment = "demo", "production"
		return suite.RunRequest(request, events...)
	}
}

// talk returns a say for which all messages are of one conversation.
func (w ward) talk(t *testing.T, script scripted.Script) say {
	t.Helper()
	suite := w.suite(t, opspilot.Config{}, script)
	return func(message string, events ...agenttest.Event) *agenttest.Result {
		t.Helper()
		request := suite.Request(message)
		request.Tenant, request.Environment, request.Conversation = "demo", "production", "talk"
		return suite.RunRequest(request, events...)
	}
}

// deaf plays a model that does not hear what the application says.
func deaf(script scripted.Script) scripted.Script {
	return func(ctx context.Context, request model.Request) (scripted.Turn, error) {
		request.Messages = slices.DeleteFunc(slices.Clone(request.Messages), func(m model.Message) bool {
			return m.Role == model.RoleUser && strings.HasPrefix(m.Text, `{"fairlead_context":`)
		})
		return script(ctx, request)
	}
}

// What "it" is, is a fact of the conversation that a tool has settled.
func TestAgentKnowsWhatItIs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.sick(t, "")
	talk := w.talk(t, opspilot.Script(0))
	talk("Why does payment-api fail?").WantCalls(opspilot.FindService, opspilot.ServiceStatus, opspilot.QueryLogs, opspilot.QueryLogs)
	for question, want := range map[string]string{"And its error log?": "2 ERROR lines", "它的错误日志呢": "2 条 ERROR"} {
		result := talk(question)
		// Nothing was looked up: the ID is nowhere but in the facts.
		result.WantCalls(opspilot.ServiceStatus, opspilot.QueryLogs, opspilot.QueryLogs)
		require.JSONEq(t, `{"service_id":"payment-api.production"}`, result.Calls[0].Arguments)
		require.Contains(t, result.Answer, want)
	}
}

// What the user forbade is refused before it is planned, whatever the model
// wants, and is not even proposed by one that listens.
func TestAgentMayNotDoWhatTheUserForbade(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.admit(t, patient.StartConfig{})
	before, err := p.Current()
	require.NoError(t, err)
	const forbid = "Check payment-api in production, and never restart production."

	talk := w.talk(t, deaf(opspilot.Script(0)))
	talk(forbid)
	result := talk("Restart payment-api.")
	result.WantEnd(agent.ReasonFinal)
	result.WantCalls(opspilot.FindService, opspilot.ServiceStatus, opspilot.QueryLogs, opspilot.QueryLogs, opspilot.RestartService+": prohibited")
	require.Empty(t, result.Plans)
	require.Empty(t, result.Writes)
	require.Contains(t, result.Answer, "it was refused because you have forbidden it")

	talk = w.talk(t, opspilot.Script(0))
	talk(forbid)
	result = talk("Restart it.")
	result.WantCalls(opspilot.ServiceStatus, opspilot.QueryLogs, opspilot.QueryLogs)
	require.Contains(t, result.Answer, "I have not proposed a restart, because you said: ")
	require.Contains(t, result.Answer, "never restart production")
	after, err := p.Current()
	require.NoError(t, err)
	require.Equal(t, before.PID, after.PID)

	// Who forbade it may allow it again.
	result = talk("You may restart production again.", agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("bob")))
	result.WantCalls(opspilot.ServiceStatus, opspilot.QueryLogs, opspilot.QueryLogs, opspilot.RestartService, opspilot.ServiceStatus, opspilot.QueryLogs)
	after, err = p.Current()
	require.NoError(t, err)
	require.NotEqual(t, before.PID, after.PID)
}

// "By yourself" forbids nothing that a person confirms.
func TestAgentAsksWhoWantsToBeAsked(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.admit(t, patient.StartConfig{})
	talk := w.talk(t, opspilot.Script(0))
	result := talk("Check payment-api in production, and never restart production by yourself.")
	require.Empty(t, result.Plans)
	result = talk("Restart it.", agenttest.When(agenttest.PlanWaits(), agenttest.DeclineAs("bob")))
	result.WantCalls(opspilot.ServiceStatus, opspilot.QueryLogs, opspilot.QueryLogs, opspilot.RestartService+": declined")
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
