package openai_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/modeltest"
	"github.com/fairlead/fairlead/model/openai"
	"github.com/fairlead/fairlead/model/openaitest"
)

func TestStatuses(t *testing.T) {
	t.Parallel()
	type reply = openaitest.Reply
	after := func(name, value string) http.Header { return http.Header{name: {value}} }
	for name, c := range map[string]struct {
		reply reply
		kind  model.Kind
		wait  time.Duration
	}{
		"rate limit":               {reply{Status: 429, ErrorCode: "rate_limit_exceeded"}, model.KindRateLimited, 0},
		"rate limit, seconds":      {reply{Status: 429, Header: after("Retry-After", "7")}, model.KindRateLimited, 7 * time.Second},
		"rate limit, milliseconds": {reply{Status: 429, Header: http.Header{"Retry-After-Ms": {"1500"}, "Retry-After": {"2"}}}, model.KindRateLimited, 1500 * time.Millisecond},
		"rate limit, for ever":     {reply{Status: 429, Header: after("Retry-After", "1e300")}, model.KindRateLimited, 24 * time.Hour},
		"quota used up":            {reply{Status: 429, ErrorCode: "insufficient_quota", Header: after("Retry-After", "7")}, model.KindAuthentication, 0},
		"quota used up, by type":   {reply{Status: 429, ErrorType: "insufficient_quota"}, model.KindAuthentication, 0},
		"must pay":                 {reply{Status: 402}, model.KindAuthentication, 0},
		"500":                      {reply{Status: 500, ErrorType: "server_error"}, model.KindUnavailable, 0},
		"502, not JSON":            {reply{Status: 502, Body: "<html>Bad Gateway</html>", Header: after("Content-Type", "text/html")}, model.KindUnavailable, 0},
		"503 with wait":            {reply{Status: 503, Header: after("Retry-After", "3")}, model.KindUnavailable, 3 * time.Second},
		"504":                      {reply{Status: 504}, model.KindUnavailable, 0},
		"529":                      {reply{Status: 529}, model.KindUnavailable, 0},
		"503, told to retry":       {reply{Status: 503, Header: after("X-Should-Retry", "true")}, model.KindUnavailable, 0},
		"503, huge body":           {reply{Status: 503, Body: strings.Repeat("x", 1<<20)}, model.KindUnavailable, 0},
		"408":                      {reply{Status: 408}, model.KindTimeout, 0},
		"401":                      {reply{Status: 401, ErrorCode: "invalid_api_key"}, model.KindAuthentication, 0},
		"403":                      {reply{Status: 403}, model.KindAuthentication, 0},
		"400":                      {reply{Status: 400, ErrorCode: "unsupported_parameter"}, model.KindInvalidRequest, 0},
		"404":                      {reply{Status: 404, ErrorCode: "model_not_found"}, model.KindInvalidRequest, 0},
		"418":                      {reply{Status: 418}, model.KindInvalidRequest, 0},
		"304":                      {reply{Status: 304}, model.KindInvalidRequest, 0},
		"context":                  {reply{Status: 400, ErrorCode: "context_length_exceeded"}, model.KindContextOverflow, 0},
		"context, vLLM": {reply{Status: 400, Body: `{"object":"error","type":"BadRequestError","code":400,
			"message":"This model's maximum context length is 4096 tokens."}`}, model.KindContextOverflow, 0},
		"context, llama.cpp": {reply{Status: 400, Body: `{"error":{"code":400,"type":"exceed_context_size_error","message":"x"}}`}, model.KindContextOverflow, 0},
		"content filter":     {reply{Status: 400, ErrorCode: "content_filter"}, model.KindContentPolicy, 0},
		"content policy":     {reply{Status: 400, ErrorCode: "content_policy_violation"}, model.KindContentPolicy, 0},
		"error is a string":  {reply{Status: 404, Body: `{"error":"model not found"}`}, model.KindInvalidRequest, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, options openai.Options) {
				_, _, err := generate(t, options, c.reply)
				failed := asError(t, err)
				if failed.Kind != c.kind || failed.StatusCode != c.reply.Status || failed.RetryAfter != c.wait ||
					failed.OutputStarted || failed.RequestID != "req_fake" {
					t.Errorf("error = %+v, want %s after %s", *failed, c.kind, c.wait)
				}
			})
		})
	}
}

// Nothing that was sent, and nothing that the provider says about it, is in the
// text of an error or of any cause behind it.
func TestErrorsKeepSecrets(t *testing.T) {
	t.Parallel()
	const secret = "PRIVATE"
	quoting := fmt.Sprintf("you sent %s with key %s", secret, apiKey)
	refusing := httptest.NewServer(nil)
	refusing.Close()
	for name, c := range map[string]struct {
		reply openaitest.Reply
		base  string
	}{
		"status":             {openaitest.Reply{Status: 400, ErrorMessage: quoting, ErrorType: quoting, ErrorCode: secret}, ""},
		"not JSON":           {openaitest.Reply{Status: 500, Body: quoting}, ""},
		"in the stream":      {openaitest.Reply{Chunks: []string{`{"error":{"message":"` + quoting + `"}}`}}, ""},
		"broken chunk":       {openaitest.Reply{Chunks: []string{`{"choices":"` + quoting + `"}`}}, ""},
		"finish reason":      {openaitest.Reply{Text: "x", Finish: quoting}, ""},
		"connection refused": {openaitest.Reply{}, refusing.URL},
		"host not found":     {openaitest.Reply{}, "http://private.invalid/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := openaitest.New(t, c.reply)
			base := server.URL()
			if c.base != "" {
				base = c.base
			}
			m, err := openai.New(openai.Options{BaseURL: base, HTTPClient: server.Client(), APIKey: apiKey})
			if err != nil {
				t.Fatal(err)
			}
			_, err = m.Generate(t.Context(), modeltest.Request(), nil)
			if err == nil {
				t.Fatal("no error")
			}
			for cause := err; cause != nil; cause = errors.Unwrap(cause) {
				for _, banned := range []string{secret, apiKey, "127.0.0.1", "http://", "invalid/", "private."} {
					if strings.Contains(cause.Error(), banned) {
						t.Errorf("%q contains %q", cause, banned)
					}
				}
			}
			if c.base != "" && asError(t, err).Kind != model.KindUnavailable {
				t.Errorf("error = %+v", err)
			}
		})
	}
}

// The code of the provider helps operators and is in the cause.
func TestCauseNamesTheCode(t *testing.T) {
	t.Parallel()
	_, _, err := generate(t, openai.Options{}, openaitest.Reply{Status: 404, ErrorCode: "model_not_found"})
	if cause := asError(t, err).Err; cause == nil || cause.Error() != "provider code model_not_found" {
		t.Errorf("cause = %v", cause)
	}
}

func TestUnprintableRequestID(t *testing.T) {
	t.Parallel()
	response, _, err := generate(t, openai.Options{}, openaitest.Reply{Header: http.Header{"X-Request-Id": {strings.Repeat("x", 129)}}})
	if err != nil || response.RequestID != "" {
		t.Errorf("request ID = %q, %v", response.RequestID, err)
	}
}

// The HTTP client's own timeout is a timeout of the provider, as ctx has not ended.
func TestClientTimeout(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, options openai.Options) {
		server := openaitest.New(t, openaitest.Reply{Text: "begun", Hang: true})
		client := *server.Client()
		client.Timeout = 50 * time.Millisecond
		m, err := openai.New(openai.Options{BaseURL: server.URL(), HTTPClient: &client, DisableStreaming: options.DisableStreaming})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Generate(t.Context(), modeltest.Request(), nil)
		if failed := asError(t, err); failed.Kind != model.KindTimeout || !failed.Retryable() {
			t.Errorf("error = %+v", *failed)
		}
	})
}

// A server that never answers does not hold up a caller who gives up, with or
// without streaming.
func TestCancelWhileServerIsSilent(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, options openai.Options) {
		ctx, cancel := context.WithCancel(t.Context())
		server := openaitest.NewFunc(t, func(openaitest.Request) openaitest.Reply {
			cancel()
			return openaitest.Reply{Hang: true}
		})
		begun := time.Now()
		_, err := newModel(t, server, options).Generate(ctx, modeltest.Request(), nil)
		if !errors.Is(err, context.Canceled) || time.Since(begun) > 5*time.Second {
			t.Errorf("error = %v after %s", err, time.Since(begun))
		}
	})
}
