package openai_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/openai"
	"github.com/fairlead/fairlead/model/openaitest"
)

func TestResponse(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, options openai.Options) {
		response, streamed, err := generate(t, options, openaitest.Reply{
			Text: "Let me see: 你好 👋",
			Calls: []openaitest.Call{
				{ID: "call_a", Name: "search", Arguments: `{"q":"Müller 你好 👩‍👩‍👧"}`},
				{ID: "call_b", Name: "fetch", Arguments: `{"id":`},
			},
			Usage: &openaitest.Usage{Prompt: 50, Cached: 32, Completion: 9},
			Model: "wire-model-2026", ChunkRunes: 3,
			Header: http.Header{"X-Request-Id": {"req_42"}},
		})
		want := model.Response{
			Text: "Let me see: 你好 👋",
			Calls: []model.ToolCall{
				{ID: "call_a", Name: "search", Arguments: `{"q":"Müller 你好 👩‍👩‍👧"}`},
				{ID: "call_b", Name: "fetch", Arguments: `{"id":`},
			},
			Finish:   model.FinishToolCalls,
			Usage:    &model.Usage{InputTokens: 50, CachedInputTokens: 32, OutputTokens: 9},
			Revision: "wire-model-2026", RequestID: "req_42",
		}
		if err != nil || !reflect.DeepEqual(response, want) {
			t.Errorf("response = %+v, %v\nwant %+v", response, err, want)
		}
		if streamed != want.Text {
			t.Errorf("streamed %q", streamed)
		}
	})
}

func TestFinishReasons(t *testing.T) {
	t.Parallel()
	call := []openaitest.Call{{ID: "a", Name: "search", Arguments: "{}"}}
	for name, c := range map[string]struct {
		reply openaitest.Reply
		want  model.FinishReason // empty: KindMalformed
	}{
		"length":              {openaitest.Reply{Text: "x", Finish: "length"}, model.FinishLength},
		"content filter":      {openaitest.Reply{Text: "x", Finish: "content_filter"}, model.FinishContentFilter},
		"refusal":             {openaitest.Reply{Refusal: "I cannot."}, model.FinishContentFilter},
		"stop with calls":     {openaitest.Reply{Calls: call, Finish: "stop"}, model.FinishToolCalls},
		"calls without calls": {openaitest.Reply{Text: "x", Finish: "tool_calls"}, ""},
		"unknown":             {openaitest.Reply{Text: "x", Finish: "because"}, ""},
		"deprecated":          {openaitest.Reply{Text: "x", Finish: "function_call"}, ""},
		"nameless call":       {openaitest.Reply{Calls: []openaitest.Call{{ID: "a", Arguments: "{}"}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, options openai.Options) {
				response, _, err := generate(t, options, c.reply)
				if c.want == "" {
					if failed := asError(t, err); failed.Kind != model.KindMalformed || failed.Retryable() {
						t.Errorf("error = %+v", failed)
					}
					return
				}
				if err != nil || response.Finish != c.want {
					t.Errorf("finish = %q, %v, want %q", response.Finish, err, c.want)
				}
				if c.want != model.FinishToolCalls && response.Calls != nil {
					t.Errorf("calls = %+v", response.Calls)
				}
			})
		})
	}
}

// delta and calls build chunks as compatible servers send them.
func delta(fields string) string { return `{"choices":[{"delta":{` + fields + `}}]}` }

func calls(pieces string) string { return delta(`"tool_calls":[` + pieces + `]`) }

func finish(reason string) string {
	return `{"choices":[{"delta":{},"finish_reason":"` + reason + `"}]}`
}

func TestToolCallDialects(t *testing.T) {
	t.Parallel()
	two := []model.ToolCall{{ID: "a", Name: "f", Arguments: `{"x":1}`}, {ID: "b", Name: "g", Arguments: `{}`}}
	generated := []model.ToolCall{{ID: "call_0", Name: "f", Arguments: `{"x":1}`}, {ID: "call_1", Name: "g", Arguments: `{}`}}
	for name, c := range map[string]struct {
		chunks []string
		want   []model.ToolCall
	}{
		"interleaved by index": {[]string{
			calls(`{"index":0,"id":"a","function":{"name":"f","arguments":""}},{"index":1,"id":"b","function":{"name":"g"}}`),
			calls(`{"index":1,"function":{"arguments":"{"}}`), calls(`{"index":0,"function":{"arguments":"{\"x\""}}`),
			calls(`{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":":1}"}}`),
		}, two},
		"no index, fragments follow": {[]string{
			calls(`{"id":"a","function":{"name":"f","arguments":"{\"x\""}}`), calls(`{"function":{"arguments":":1}"}}`),
			calls(`{"id":"b","function":{"name":"g","arguments":"{"}}`), calls(`{"function":{"arguments":"}"}}`),
		}, two},
		"no index, ID repeated": {[]string{
			calls(`{"id":"a","function":{"name":"f","arguments":"{\"x\""}}`), calls(`{"id":"a","function":{"name":"f","arguments":":1}"}}`),
			calls(`{"id":"b","function":{"name":"g","arguments":"{}"}}`),
		}, two},
		"index only in the first piece": {[]string{
			calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}`), calls(`{"function":{"arguments":":1}"}}`),
			calls(`{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}`),
		}, two},
		"every index is 0": {[]string{
			calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}`), calls(`{"index":0,"function":{"arguments":":1}"}}`),
			calls(`{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}`),
		}, two},
		"a fresh ID with each piece": {[]string{
			calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}`), calls(`{"index":0,"id":"a2","function":{"arguments":":1}"}}`),
			calls(`{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}`),
		}, two},
		"ID and name null later": {[]string{
			calls(`{"index":0,"id":"a","function":{"name":"f","arguments":null}}`), calls(`{"index":0,"id":null,"function":{"name":null,"arguments":"{\"x\":1}"}}`),
			calls(`{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}`),
		}, two},
		"no IDs": {[]string{
			calls(`{"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}}`), calls(`{"index":1,"function":{"name":"g","arguments":"{}"}}`),
		}, generated},
		"no IDs, no index": {[]string{
			calls(`{"function":{"name":"f","arguments":"{\"x\":1}"}}`), calls(`{"function":{"name":"g","arguments":"{}"}}`),
		}, generated},
		"one ID twice": {[]string{
			calls(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}`), calls(`{"index":1,"id":"a","function":{"name":"g","arguments":"{}"}}`),
		}, []model.ToolCall{two[0], generated[1]}},
		"an ID like a generated one": {[]string{
			calls(`{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"x\":1}"}}`), calls(`{"index":1,"function":{"name":"g","arguments":"{}"}}`),
		}, []model.ToolCall{{ID: "call_1", Name: "f", Arguments: `{"x":1}`}, {ID: "call_1_", Name: "g", Arguments: `{}`}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response, _, err := generate(t, openai.Options{}, openaitest.Reply{Chunks: append(c.chunks, finish("tool_calls"), "[DONE]")})
			if err != nil || !reflect.DeepEqual(response.Calls, c.want) {
				t.Errorf("calls = %+v, %v\nwant %+v", response.Calls, err, c.want)
			}
		})
	}
}

func TestWholeResponseWithEqualIDs(t *testing.T) {
	t.Parallel()
	response, _, err := generate(t, openai.Options{DisableStreaming: true}, openaitest.Reply{Calls: []openaitest.Call{
		{ID: "a", Name: "f", Arguments: "{}"}, {ID: "a", Name: "f", Arguments: "[]"},
	}})
	want := []model.ToolCall{{ID: "a", Name: "f", Arguments: "{}"}, {ID: "call_1", Name: "f", Arguments: "[]"}}
	if err != nil || !reflect.DeepEqual(response.Calls, want) {
		t.Errorf("calls = %+v, %v", response.Calls, err)
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	text := delta(`"content":"Hi"`)
	for name, c := range map[string]struct {
		chunks  []string
		want    string // the text, if there is a response
		kind    model.Kind
		started bool
	}{
		"no DONE after the finish":    {[]string{text, finish("stop")}, "Hi", "", false},
		"error null":                  {[]string{`{"error":null,"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}`}, "Hi", "", false},
		"no choices first":            {[]string{`{"choices":[],"prompt_filter_results":[]}`, text, finish("stop"), "[DONE]"}, "Hi", "", false},
		"nulls":                       {[]string{delta(`"content":null,"tool_calls":null`), text, finish("stop"), "[DONE]"}, "Hi", "", false},
		"nothing at all":              {[]string{}, "", model.KindUnavailable, false},
		"ends before output":          {[]string{delta(`"role":"assistant","content":""`)}, "", model.KindUnavailable, false},
		"ends after text":             {[]string{text}, "", model.KindUnavailable, true},
		"ends after reasoning":        {[]string{delta(`"reasoning_content":"hm"`)}, "", model.KindUnavailable, true},
		"ends in a call":              {[]string{calls(`{"index":0,"id":"a","function":{"name":"f"}}`)}, "", model.KindUnavailable, true},
		"DONE without finish":         {[]string{text, "[DONE]"}, "", model.KindMalformed, true},
		"DONE at once":                {[]string{"[DONE]"}, "", model.KindMalformed, false},
		"broken JSON":                 {[]string{text, `{"choices":[{"delta":`}, "", model.KindMalformed, true},
		"JSON of another type":        {[]string{`{"choices":"none"}`}, "", model.KindMalformed, false},
		"content of another type":     {[]string{delta(`"content":{"text":"Hi"}`)}, "", model.KindMalformed, false},
		"error before output":         {[]string{`{"error":{"message":"x","type":"server_error"}}`}, "", model.KindUnavailable, false},
		"error after output":          {[]string{text, `{"error":{"message":"x","code":502}}`}, "", model.KindUnavailable, true},
		"error: rate limit":           {[]string{`{"error":{"message":"x","code":"rate_limit_exceeded"}}`}, "", model.KindRateLimited, false},
		"error: numeric rate limit":   {[]string{`{"error":{"message":"x","code":429}}`}, "", model.KindRateLimited, false},
		"error: context":              {[]string{`{"error":{"message":"x","code":"context_length_exceeded"}}`}, "", model.KindContextOverflow, false},
		"error: text only":            {[]string{`{"error":"overloaded"}`}, "", model.KindUnavailable, false},
		"too many calls":              {manyCalls(129), "", model.KindMalformed, true},
		"too many calls in one chunk": {[]string{calls(strings.TrimSuffix(strings.Repeat(`{"function":{"name":"f"}},`, 200), ","))}, "", model.KindMalformed, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response, _, err := generate(t, openai.Options{}, openaitest.Reply{Chunks: c.chunks})
			if c.kind == "" {
				if err != nil || response.Text != c.want || response.Usage != nil {
					t.Errorf("response = %+v, %v", response, err)
				}
				return
			}
			failed := asError(t, err)
			if failed.Kind != c.kind || failed.OutputStarted != c.started {
				t.Errorf("error = %+v, want %s, output started %t", *failed, c.kind, c.started)
			}
			if failed.RequestID != "req_fake" {
				t.Errorf("request ID = %q", failed.RequestID)
			}
		})
	}
}

func manyCalls(n int) []string {
	var chunks []string
	for i := range n {
		chunks = append(chunks, calls(fmt.Sprintf(`{"index":%d,"id":"c%d","function":{"name":"f","arguments":"{}"}}`, i, i)))
	}
	return append(chunks, finish("tool_calls"), "[DONE]")
}

// A connection that breaks, as opposed to a stream that ends early.
func TestCutConnection(t *testing.T) {
	t.Parallel()
	usage := &openaitest.Usage{Prompt: 5, Completion: 2}
	for name, c := range map[string]struct {
		reply   openaitest.Reply
		ok      bool
		started bool
	}{
		"before output": {openaitest.Reply{Text: "Hi", Usage: usage, CutAtOnce: true}, false, false},
		"after output":  {openaitest.Reply{Text: "Hi", Usage: usage, Cut: 2}, false, true},
		// role, text, finish: the answer is complete and only usage is missing.
		"after the finish": {openaitest.Reply{Text: "Hi", Usage: usage, Cut: 3}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response, _, err := generate(t, openai.Options{}, c.reply)
			if c.ok {
				if err != nil || response.Text != "Hi" || response.Usage != nil {
					t.Errorf("response = %+v, %v", response, err)
				}
				return
			}
			failed := asError(t, err)
			if failed.Kind != model.KindUnavailable || failed.OutputStarted != c.started || failed.Retryable() == c.started {
				t.Errorf("error = %+v", *failed)
			}
		})
	}
}

// Usage that was counted as the stream went is in the error.
func TestUsageBeforeTheCut(t *testing.T) {
	t.Parallel()
	_, _, err := generate(t, openai.Options{}, openaitest.Reply{Chunks: []string{
		`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`,
		`{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`,
	}})
	if got := asError(t, err).Usage; got == nil || *got != (model.Usage{InputTokens: 9, OutputTokens: 2}) {
		t.Errorf("usage = %+v", got)
	}
}

func TestUsageThatMakesNoSense(t *testing.T) {
	t.Parallel()
	for usage, want := range map[string]*model.Usage{
		`null`:                nil,
		`{}`:                  nil,
		`{"prompt_tokens":5}`: nil,
		`{"prompt_tokens":-5,"completion_tokens":1}`:                                             nil,
		`{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":90}}`: {InputTokens: 5, CachedInputTokens: 5, OutputTokens: 1},
		`{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":null}`:                 {InputTokens: 5, OutputTokens: 1},
	} {
		response, _, err := generate(t, openai.Options{DisableStreaming: true}, openaitest.Reply{
			Body: `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":` + usage + `}`,
		})
		if err != nil || !reflect.DeepEqual(response.Usage, want) {
			t.Errorf("%s: usage = %+v, %v, want %+v", usage, response.Usage, err, want)
		}
	}
}

func TestBrokenWholeResponses(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{`, `[]`, `"hi"`, `<html>`, `{}`, `{"choices":[]}`, `{"choices":[null]}`,
		`{"choices":[{"message":{"content":"x"}}]}`, `{"choices":[{"message":7,"finish_reason":"stop"}]}`,
	} {
		_, _, err := generate(t, openai.Options{DisableStreaming: true}, openaitest.Reply{Body: body})
		if failed := asError(t, err); failed.Kind != model.KindMalformed {
			t.Errorf("%s: error = %+v", body, failed)
		}
	}
}

// A server that was asked to stream and answers whole is understood.
func TestWholeAnswerToStreamingRequest(t *testing.T) {
	t.Parallel()
	response, streamed, err := generate(t, openai.Options{}, openaitest.Reply{
		Body: `{"model":"m1","choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}`,
	})
	if err != nil || response.Text != "Hi" || streamed != "Hi" || response.Revision != "m1" {
		t.Errorf("response = %+v, streamed %q, %v", response, streamed, err)
	}
}

// What a server may make us hold is bounded, in each of the ways to send much.
func TestHugeResponses(t *testing.T) {
	t.Parallel()
	mega := strings.Repeat("x", 1<<20)
	var many []string
	for range 9 {
		many = append(many, delta(`"content":"`+mega+`"`))
	}
	huge := strings.Repeat(mega, 9)
	for name, c := range map[string]struct {
		options openai.Options
		reply   openaitest.Reply
	}{
		"many chunks":     {openai.Options{}, openaitest.Reply{Chunks: append(many, finish("stop"), "[DONE]")}},
		"one chunk":       {openai.Options{}, openaitest.Reply{Chunks: []string{delta(`"content":"` + huge + `"`)}}},
		"one long event":  {openai.Options{}, openaitest.Reply{Chunks: []string{strings.Repeat(mega+"\ndata: ", 9)}}},
		"arguments":       {openai.Options{}, openaitest.Reply{Calls: []openaitest.Call{{ID: "a", Name: "f", Arguments: huge}}, ChunkRunes: 1 << 20}},
		"whole":           {openai.Options{DisableStreaming: true}, openaitest.Reply{Text: huge}},
		"several choices": {openai.Options{DisableStreaming: true}, openaitest.Reply{Body: `{"choices":[{}` + strings.Repeat(",{}", 1<<20) + `]}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := generate(t, c.options, c.reply)
			if failed := asError(t, err); failed.Kind != model.KindMalformed {
				t.Errorf("error = %+v", *failed)
			}
		})
	}
}

// A long stream of small pieces is not too large: its envelopes do not count.
func TestLongStream(t *testing.T) {
	t.Parallel()
	padding := strings.Repeat(" ", 100_000)
	var chunks []string
	for range 100 {
		chunks = append(chunks, `{`+padding+delta(`"content":"x"`)[1:])
	}
	response, _, err := generate(t, openai.Options{}, openaitest.Reply{Chunks: append(chunks, finish("stop"), "[DONE]")})
	if err != nil || response.Text != strings.Repeat("x", 100) {
		t.Errorf("%d bytes, %v", len(response.Text), err)
	}
}
