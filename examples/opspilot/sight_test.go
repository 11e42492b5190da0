package opspilot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// What the configuration lets a run see is found and read, and nothing else; and
// nothing is ever changed there.
func TestOtherEnvironmentsThatAreVisible(t *testing.T) {
	t.Parallel()
	w := setupWith(t, opspilot.Config{Visible: map[string][]string{"production": {"staging"}}})
	w.put(t, "payment-api", "production", nil)
	w.put(t, "payment-api", "staging", nil)
	w.put(t, "payment-api", "test", nil)
	w.put(t, "ledger-api", "staging", nil)

	got := succeed[found](t, w, "production", opspilot.FindService, `{"query":"payment-api"}`)
	require.Equal(t, 2, got.Total)
	require.Nil(t, got.Chosen, "the same name in two environments is not clear")
	got = succeed[found](t, w, "production", opspilot.FindService, `{"query":"payment-api","environment":"staging"}`)
	require.Equal(t, "payment-api.staging", got.Chosen["service_id"])
	require.Equal(t, "staging", got.Environment)
	got = succeed[found](t, w, "production", opspilot.FindService, `{"query":"ledger"}`)
	require.Equal(t, "ledger-api.staging", got.Chosen["service_id"])
	// It holds in one direction.
	got = succeed[found](t, w, "staging", opspilot.FindService, `{"query":"payment-api"}`)
	require.Equal(t, "payment-api.staging", got.Chosen["service_id"])

	for arguments, name := range map[string]string{
		`{"query":"payment-api","environment":"test"}`: opspilot.FindService,
		`{"service_id":"payment-api.test"}`:            opspilot.ServiceStatus,
		`{"service_id":"nobody.staging"}`:              opspilot.QueryLogs,
	} {
		_, err := w.execute(t, "production", name, arguments)
		require.ErrorContains(t, err, "forbidden", arguments)
	}
	_, err := w.execute(t, "production", opspilot.QueryLogs, `{"service_id":"ledger-api.staging"}`)
	require.ErrorContains(t, err, "no log file", "it is seen, and has none")

	call, refused := w.call(t, "production", opspilot.RestartService, `{"service_id":"payment-api.staging"}`)
	require.Nil(t, refused)
	_, err = w.registry.Prepare(t.Context(), call)
	var toolErr *tool.Error
	require.ErrorAs(t, err, &toolErr)
	require.Equal(t, "forbidden", string(toolErr.Code))
}

const rememberedDefault = `{"id":"mem-1","source":"said by the user","text":"preference.default_environment: production"}`

func memoryMessage(items string) model.Message {
	return model.Message{Role: model.RoleUser, Text: `{"fairlead_context":{"memory":{"trust":"untrusted","items":[` + items + `]}}}`}
}

// One name in two environments: present words decide, then what is remembered,
// and without either the user is asked.
func TestScriptChoosesTheEnvironment(t *testing.T) {
	t.Parallel()
	const both = `{"query":"payment-api","environment":"production","total":2,"services":[
		{"service_id":"payment-api.production","name":"payment-api","environment":"production","started_at":"2026-01-31T08:00:00Z"},
		{"service_id":"payment-api.staging","name":"payment-api","environment":"staging","started_at":"2026-01-31T08:00:00Z"}]}`
	for name, c := range map[string]struct {
		memory, question, service string
	}{
		"remembered":           {rememberedDefault, "How is payment-api?", "payment-api.production"},
		"remembered, Chinese":  {rememberedDefault, "payment-api 怎么样？", "payment-api.production"},
		"present words":        {rememberedDefault, "How is payment-api in staging?", "payment-api.staging"},
		"present words, 预发":    {rememberedDefault, "预发的 payment-api 怎么样？", "payment-api.staging"},
		"words alone":          {"", "How is payment-api in prod?", "payment-api.production"},
		"nothing":              {"", "How is payment-api?", ""},
		"both named":           {"", "How is payment-api in production and staging?", ""},
		"another key":          {`{"id":"m","source":"s","text":"preference.language: production"}`, "How is payment-api?", ""},
		"elsewhere remembered": {`{"id":"m","source":"s","text":"preference.default_environment: test"}`, "How is payment-api?", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			messages := []model.Message{
				user(c.question),
				{Role: model.RoleAssistant, Calls: []model.ToolCall{{ID: "1", Name: opspilot.FindService, Arguments: `{"query":"payment-api"}`}}},
				{Role: model.RoleTool, CallID: "1", ToolName: opspilot.FindService, Text: `{"result_id":"r-1","content":` + both + `}`},
			}
			if c.memory != "" {
				messages = append([]model.Message{memoryMessage(c.memory)}, messages...)
			}
			turn := next(t, messages...)
			if c.service == "" {
				require.Empty(t, turn.Calls)
				require.Contains(t, turn.Text, "payment-api (production), payment-api (staging)")
				return
			}
			require.Equal(t, []scripted.Call{
				{Name: opspilot.ServiceStatus, Arguments: `{"service_id":"` + c.service + `"}`},
				{Name: opspilot.QueryLogs, Arguments: `{"service_id":"` + c.service + `","level":"ERROR","limit":20}`},
			}, turn.Calls)
		})
	}
}

// A wish for later is no question about a service.
func TestScriptHearsADefault(t *testing.T) {
	t.Parallel()
	require.Contains(t, next(t, user("From now on default to production.")).Text, "you may be asked to confirm it")
	require.Contains(t, next(t, user("以后默认看生产环境")).Text, "可能会请您确认")
	require.Contains(t, next(t, user("Production fails.")).Text, "Which service")
}
