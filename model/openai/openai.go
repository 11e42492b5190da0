// Package openai calls models over the OpenAI Chat Completions protocol, and
// embedding models over its Embeddings one: at OpenAI itself, or at any
// compatible server given by its base URL, such as Ollama, vLLM or DeepSeek. It
// builds on the official SDK with the SDK's retries off: one call of Generate is
// one HTTP request.
package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/fairlead/fairlead/model"
)

// DefaultBaseURL is where OpenAI itself answers.
const DefaultBaseURL = "https://api.openai.com/v1/"

// MaxTokensField names the request field that bounds the response.
type MaxTokensField string

// The closed set of fields. OpenAI's reasoning models refuse MaxTokens, and many
// compatible servers ignore MaxCompletionTokens.
const (
	MaxCompletionTokens MaxTokensField = "max_completion_tokens"
	MaxTokens           MaxTokensField = "max_tokens"
)

// Options configure a Model. The zero value calls OpenAI without a key.
type Options struct {
	// APIKey is sent as a bearer token; empty sends none, which local servers
	// accept. The OPENAI_* environment variables are not read.
	APIKey string
	// BaseURL is the part of the address before "chat/completions", such as
	// http://localhost:11434/v1. Empty is DefaultBaseURL.
	BaseURL string
	// HTTPClient makes the requests; nil is http.DefaultClient. Set no Timeout
	// on it: ctx bounds a call, and a stream may rightly take minutes.
	HTTPClient *http.Client
	// DisableStreaming asks for whole responses, for servers that cannot stream.
	DisableStreaming bool
	// MaxTokensField is MaxCompletionTokens for OpenAI's own host and MaxTokens
	// for any other, if empty.
	MaxTokensField MaxTokensField
}

// Model implements model.Model. It is safe for concurrent use.
type Model struct {
	completions    sdk.ChatCompletionService
	streaming      bool
	maxTokensField MaxTokensField
}

// New returns a Model, or an error that names the option at fault.
func New(options Options) (*Model, error) {
	base, requestOptions, err := connection(options.APIKey, options.BaseURL, options.HTTPClient)
	if err != nil {
		return nil, err
	}
	switch options.MaxTokensField {
	case "":
		options.MaxTokensField = MaxTokens
		if host := base.Hostname(); host == "openai.com" || strings.HasSuffix(host, ".openai.com") {
			options.MaxTokensField = MaxCompletionTokens
		}
	case MaxCompletionTokens, MaxTokens:
	default:
		return nil, fmt.Errorf("openai max tokens field %q: must be %q or %q", options.MaxTokensField, MaxCompletionTokens, MaxTokens)
	}
	return &Model{
		// The service, not sdk.NewClient: that would read keys, organization
		// and headers from the environment and send them to any base URL.
		completions:    sdk.NewChatCompletionService(requestOptions...),
		streaming:      !options.DisableStreaming,
		maxTokensField: options.MaxTokensField,
	}, nil
}

// connection returns where requests go, and how.
func connection(apiKey, baseURL string, client *http.Client) (*url.URL, []option.RequestOption, error) {
	if baseURL == "" {
		baseURL = DefaultBaseURL
	}
	base, err := url.Parse(baseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" ||
		base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		// The value is not repeated: people paste credentials into URLs.
		return nil, nil, errors.New("openai base URL: must be like https://host/v1, without user, query or fragment")
	}
	if client == nil {
		client = http.DefaultClient
	}
	options := []option.RequestOption{
		option.WithBaseURL(base.String()),
		option.WithHTTPClient(client),
		option.WithMaxRetries(0),
		option.WithMiddleware(boundResponse),
	}
	if apiKey != "" {
		options = append(options, option.WithAPIKey(apiKey))
	}
	return base, options, nil
}

// Generate implements model.Model.
func (m *Model) Generate(ctx context.Context, req model.Request, stream func(model.Delta)) (model.Response, error) {
	params, err := m.params(req)
	if err != nil {
		return model.Response{}, &model.Error{Kind: model.KindInvalidRequest, Err: err}
	}

	var raw *http.Response
	options := []option.RequestOption{option.WithResponseBodyInto(&raw)}
	if m.streaming {
		options = append(options, option.WithJSONSet("stream", true), option.WithHeader("Accept", "text/event-stream"))
	}
	_, err = m.completions.New(ctx, params, options...)
	if raw != nil {
		defer raw.Body.Close()
	}
	if err := answered(ctx, raw, err); err != nil {
		return model.Response{}, err
	}

	if stream == nil {
		stream = func(model.Delta) {}
	}
	in := intake{stream: stream}
	if isEventStream(raw) {
		err = in.readStream(raw)
	} else {
		err = in.readWhole(raw)
	}
	// A response that is complete was paid for; what went wrong after its end
	// does not make it unusable.
	if err != nil && !(in.complete() && networkFailure(err)) {
		if ctx.Err() != nil {
			return model.Response{}, contextError(ctx)
		}
		return model.Response{}, in.failure(raw, err)
	}
	response, err := in.response()
	if err != nil {
		return model.Response{}, in.failure(raw, err)
	}
	response.RequestID = requestID(raw)
	return response, nil
}

// answered returns the error of a request that was not answered with success.
func answered(ctx context.Context, raw *http.Response, err error) error {
	switch {
	case ctx.Err() != nil:
		return contextError(ctx)
	case raw == nil:
		return &model.Error{Kind: networkKind(err), Err: safeCause(err)}
	case err != nil || raw.StatusCode/100 != 2:
		return statusError(raw)
	}
	return nil
}

func contextError(ctx context.Context) error {
	return fmt.Errorf("call model: %w", ctx.Err())
}
