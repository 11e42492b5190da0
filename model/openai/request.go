package openai

import (
	"bytes"
	"encoding/json"
	"fmt"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/fairlead/fairlead/model"
)

// params translates a request. The system prompt comes first, so that the part
// of the body that is the same in every call of a run is a prefix that the
// provider can cache.
func (m *Model) params(req model.Request) (sdk.ChatCompletionNewParams, error) {
	params := sdk.ChatCompletionNewParams{Model: req.Model}
	if m.maxTokensField == MaxCompletionTokens {
		params.MaxCompletionTokens = param.NewOpt(req.MaxOutputTokens)
	} else {
		params.MaxTokens = param.NewOpt(req.MaxOutputTokens)
	}
	if m.streaming {
		params.StreamOptions.IncludeUsage = param.NewOpt(true)
	}

	if req.System != "" {
		params.Messages = append(params.Messages, sdk.SystemMessage(req.System))
	}
	for i, message := range req.Messages {
		switch message.Role {
		case model.RoleUser:
			params.Messages = append(params.Messages, sdk.UserMessage(message.Text))
		case model.RoleAssistant:
			params.Messages = append(params.Messages, assistantMessage(message))
		case model.RoleTool:
			params.Messages = append(params.Messages, sdk.ToolMessage(message.Text, message.CallID))
		default:
			return params, fmt.Errorf("message %d has an unknown role", i)
		}
	}

	for _, tool := range req.Tools {
		parameters, err := objectSchema(tool.Parameters)
		if err != nil {
			return params, fmt.Errorf("parameters of tool %q: %w", tool.Name, err)
		}
		function := shared.FunctionDefinitionParam{Name: tool.Name, Parameters: parameters}
		if tool.Description != "" {
			function.Description = param.NewOpt(tool.Description)
		}
		params.Tools = append(params.Tools, sdk.ChatCompletionFunctionTool(function))
	}

	if len(req.FinalSchema) > 0 {
		schema, err := objectSchema(req.FinalSchema)
		if err != nil {
			return params, fmt.Errorf("final schema: %w", err)
		}
		// Not strict: OpenAI's strict mode takes a subset of JSON Schema only,
		// and the caller validates the answer anyway.
		params.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "final_answer", Schema: schema},
		}
	}
	return params, nil
}

func assistantMessage(message model.Message) sdk.ChatCompletionMessageParamUnion {
	var assistant sdk.ChatCompletionAssistantMessageParam
	// Content may be left out beside calls only.
	if message.Text != "" || len(message.Calls) == 0 {
		assistant.Content.OfString = param.NewOpt(message.Text)
	}
	for _, call := range message.Calls {
		assistant.ToolCalls = append(assistant.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
				ID:       call.ID,
				Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: call.Name, Arguments: call.Arguments},
			},
		})
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: &assistant}
}

// objectSchema opens the top level of a schema, as the SDK wants a map, and
// keeps everything below byte for byte: numbers stay exact and keys in order.
func objectSchema(schema json.RawMessage) (map[string]any, error) {
	if len(schema) == 0 {
		return nil, nil
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(schema, &top); err != nil || top == nil {
		return nil, fmt.Errorf("not a JSON object")
	}
	object := make(map[string]any, len(top))
	for key, value := range top {
		var compact bytes.Buffer
		if err := json.Compact(&compact, value); err != nil {
			return nil, fmt.Errorf("not a JSON object")
		}
		object[key] = json.RawMessage(compact.Bytes())
	}
	return object, nil
}
