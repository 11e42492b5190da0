package openai_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/modeltest"
	"github.com/fairlead/fairlead/model/openai"
	"github.com/fairlead/fairlead/model/openaitest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const apiKey = "sk-test-0123456789"

func newModel(t *testing.T, server *openaitest.Server, options openai.Options) *openai.Model {
	t.Helper()
	options.BaseURL, options.HTTPClient, options.APIKey = server.URL(), server.Client(), apiKey
	m, err := openai.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// bothWays runs a test against a server that streams and one that does not.
func bothWays(t *testing.T, test func(t *testing.T, options openai.Options)) {
	for name, options := range map[string]openai.Options{"streaming": {}, "whole": {DisableStreaming: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, options)
		})
	}
}

// generate makes one call and fails the test unless it made one request.
func generate(t *testing.T, options openai.Options, reply openaitest.Reply) (model.Response, string, error) {
	t.Helper()
	server := openaitest.New(t, reply)
	var streamed bytes.Buffer
	response, err := newModel(t, server, options).Generate(t.Context(), modeltest.Request(), func(d model.Delta) {
		streamed.WriteString(d.Text)
	})
	if n := len(server.Requests()); n != 1 {
		t.Errorf("the server saw %d requests, want 1", n)
	}
	return response, streamed.String(), err
}

func asError(t *testing.T, err error) *model.Error {
	t.Helper()
	var failed *model.Error
	if !errors.As(err, &failed) {
		t.Fatalf("error = %v, want a *model.Error", err)
	}
	return failed
}

// failures are what a server sends for each kind of failure.
var failures = map[model.Kind]openaitest.Reply{
	model.KindRateLimited:     {Status: 429, ErrorCode: "rate_limit_exceeded"},
	model.KindUnavailable:     {Status: 503},
	model.KindTimeout:         {Status: 408},
	model.KindAuthentication:  {Status: 401, ErrorCode: "invalid_api_key"},
	model.KindInvalidRequest:  {Status: 404, ErrorCode: "model_not_found"},
	model.KindContextOverflow: {Status: 400, ErrorCode: "context_length_exceeded"},
	model.KindContentPolicy:   {Status: 400, ErrorCode: "content_filter"},
}

// TestConformance runs the common suite over streams. Whole responses share
// everything behind the reading of the body and have tests of their own.
func TestConformance(t *testing.T) {
	t.Parallel()
	modeltest.Run(t, func(t *testing.T, s modeltest.Scenario) model.Model {
		reply := openaitest.Reply{Text: s.Text, Finish: string(s.Finish), ChunkRunes: 3, Hang: s.Hang}
		for _, call := range s.Calls {
			reply.Calls = append(reply.Calls, openaitest.Call(call))
		}
		if s.Usage != nil {
			reply.Usage = &openaitest.Usage{Prompt: s.Usage.InputTokens, Cached: s.Usage.CachedInputTokens, Completion: s.Usage.OutputTokens}
		}
		if (s.Hang || s.Failure != "") && s.Text != "" {
			reply.ChunkRunes = len(s.Text)
			reply.Cut = 2 // the role, the text
		} else if s.Failure != "" {
			reply = failures[s.Failure]
		}
		server := openaitest.NewFunc(t, func(openaitest.Request) openaitest.Reply { return reply })
		return newModel(t, server, openai.Options{})
	})
}

func TestRequestAsSent(t *testing.T) {
	t.Parallel()
	withSchema := modeltest.Request()
	withSchema.FinalSchema = json.RawMessage(`{"type":"object","properties":{"z":{"type":"number","maximum":12345678901234567890},"a":{"type":"string"}}}`)
	minimal := model.Request{Model: "m", Messages: []model.Message{{Role: model.RoleUser, Text: "hi"}}, MaxOutputTokens: 1}
	for name, c := range map[string]struct {
		request model.Request
		options openai.Options
	}{
		"streaming":             {modeltest.Request(), openai.Options{}},
		"whole":                 {modeltest.Request(), openai.Options{DisableStreaming: true}},
		"final_schema":          {withSchema, openai.Options{}},
		"minimal":               {minimal, openai.Options{}},
		"max_completion_tokens": {minimal, openai.Options{MaxTokensField: openai.MaxCompletionTokens}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := openaitest.New(t, openaitest.Reply{})
			if _, err := newModel(t, server, c.options).Generate(t.Context(), c.request, nil); err != nil {
				t.Fatal(err)
			}
			sent := server.Requests()[0]
			if got := sent.Header.Get("Authorization"); got != "Bearer "+apiKey {
				t.Errorf("authorization = %q", got)
			}
			if sent.Path != "/v1/chat/completions" || sent.Header.Get("Content-Type") != "application/json" {
				t.Errorf("path %q, content type %q", sent.Path, sent.Header.Get("Content-Type"))
			}
			var body bytes.Buffer
			if err := json.Indent(&body, sent.Body, "", "  "); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".golden.json", append(bytes.TrimSpace(body.Bytes()), '\n'))
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run go test with -update once and review the file)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the request differs from %s:\n%s", path, got)
	}
}

// What a person checks in the golden files, said in code as well.
func TestRequestEssentials(t *testing.T) {
	t.Parallel()
	server := openaitest.New(t, openaitest.Reply{})
	request := modeltest.Request()
	if _, err := newModel(t, server, openai.Options{}).Generate(t.Context(), request, nil); err != nil {
		t.Fatal(err)
	}
	sent := server.Requests()[0]
	if first := sent.Messages[0]; first.Role != "system" || first.Content != request.System {
		t.Errorf("first message = %+v, want the system prompt", first)
	}
	if call := sent.Messages[2].ToolCalls[0]; call.ID != "c1" || sent.Messages[3].ToolCallID != "c1" {
		t.Errorf("call %+v and result %+v do not pair", call, sent.Messages[3])
	}
	var body struct {
		Model         string
		Stream        bool
		MaxTokens     int64           `json:"max_tokens"`
		StreamOptions map[string]bool `json:"stream_options"`
		Tools         []struct {
			Type     string
			Function struct {
				Name       string
				Parameters any
			}
		}
	}
	if err := json.Unmarshal(sent.Body, &body); err != nil {
		t.Fatal(err)
	}
	var schema any
	_ = json.Unmarshal(request.Tools[0].Parameters, &schema)
	if body.Model != "wire-model" || !body.Stream || body.MaxTokens != 500 || !body.StreamOptions["include_usage"] ||
		len(body.Tools) != 1 || body.Tools[0].Function.Name != "search" || !reflect.DeepEqual(body.Tools[0].Function.Parameters, schema) {
		t.Errorf("body = %+v", body)
	}
}

func TestRequestsThatCannotBeSent(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*model.Request){
		"role":              func(r *model.Request) { r.Messages[0].Role = "system" },
		"tool schema":       func(r *model.Request) { r.Tools[0].Parameters = json.RawMessage(`{"type":`) },
		"tool schema array": func(r *model.Request) { r.Tools[0].Parameters = json.RawMessage(`[]`) },
		"final schema":      func(r *model.Request) { r.FinalSchema = json.RawMessage(`null`) },
	} {
		server := openaitest.New(t)
		request := modeltest.Request()
		spoil(&request)
		_, err := newModel(t, server, openai.Options{}).Generate(t.Context(), request, nil)
		if failed := asError(t, err); failed.Kind != model.KindInvalidRequest || len(server.Requests()) != 0 {
			t.Errorf("%s: %v after %d requests", name, err, len(server.Requests()))
		}
	}
}

func TestNoKeySendsNone(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-ambient")
	t.Setenv("OPENAI_ORG_ID", "org-ambient")
	server := openaitest.New(t, openaitest.Reply{})
	m, err := openai.New(openai.Options{BaseURL: server.URL(), HTTPClient: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Generate(t.Context(), modeltest.Request(), nil); err != nil {
		t.Fatal(err)
	}
	header := server.Requests()[0].Header
	if header.Get("Authorization") != "" || header.Get("OpenAI-Organization") != "" {
		t.Errorf("credentials from the environment were sent: %v", header)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, options := range []openai.Options{
		{BaseURL: "localhost:11434/v1"},
		{BaseURL: "ftp://host/v1"},
		{BaseURL: "https://user:secret@host/v1"},
		{BaseURL: "https://host/v1?key=secret"},
		{BaseURL: "https:///v1"},
		{MaxTokensField: "max_output"},
	} {
		_, err := openai.New(options)
		if err == nil || bytes.Contains([]byte(err.Error()), []byte("secret")) {
			t.Errorf("New(%+v): error = %v", options, err)
		}
	}
}

// OpenAI's own host gets max_completion_tokens, any other max_tokens.
func TestMaxTokensFieldByHost(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"":                             "max_completion_tokens",
		"https://eu.api.openai.com/v1": "max_completion_tokens",
		"https://openai.com.evil.test": "max_tokens",
		"https://notopenai.com/v1":     "max_tokens",
	} {
		var sent []byte
		client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			var buffer bytes.Buffer
			_, _ = buffer.ReadFrom(r.Body)
			sent = buffer.Bytes()
			return nil, errors.New("no network in this test")
		})}
		m, err := openai.New(openai.Options{BaseURL: base, HTTPClient: client})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = m.Generate(t.Context(), modeltest.Request(), nil)
		if !bytes.Contains(sent, []byte(`"`+want+`":500`)) {
			t.Errorf("base %q: %s is not in %s", base, want, sent)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
