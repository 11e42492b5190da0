package opspilot_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/model"
)

// lessonSchema is what tells a request for what to remember from any other.
const lessonSchema = `{"type":"object","properties":{"candidates":{"type":"array","items":{"type":"object","properties":{
	"key":{"enum":["preference.default_environment","preference.language"]},"quote":{"type":"string"}}}}}}`

type lesson struct {
	Kind     string  `json:"kind"`
	Key      string  `json:"key"`
	Value    *string `json:"value"`
	Quote    string  `json:"quote"`
	Retracts bool    `json:"retracts"`
}

// The script proposes the environment that is meant from now on, in the user's
// words, and nothing from a question.
func TestScriptLearns(t *testing.T) {
	t.Parallel()
	value := func(s string) *string { return &s }
	for message, want := range map[string][]lesson{
		"Thanks. From now on default to production! How is payment-api?": {
			{"profile_preference", "preference.default_environment", value("production"), "From now on default to production", false},
		},
		"以后默认看测试环境。": {{"profile_preference", "preference.default_environment", value("test"), "以后默认看测试环境", false}},
		"Forget my default environment.": {
			{"profile_preference", "preference.default_environment", nil, "Forget my default environment", true},
		},
		"payment-api in production fails. Find out why.":       {},
		"From now on default to production or to staging":      {},
		"If access is not open, just create an urgent ticket.": {},
	} {
		data, err := json.Marshal(map[string]any{"said_at": "2026-11-30T12:00:00Z", "message": message})
		require.NoError(t, err)
		turn, err := opspilot.Script(0)(t.Context(), model.Request{
			FinalSchema: json.RawMessage(lessonSchema), Messages: []model.Message{user(string(data))},
		})
		require.NoError(t, err)
		var got struct {
			Candidates []lesson `json:"candidates"`
		}
		require.NoError(t, json.Unmarshal([]byte(turn.Text), &got), turn.Text)
		require.Equal(t, want, got.Candidates, message)
	}
}
