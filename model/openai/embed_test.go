package openai_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/modeltest"
	"github.com/fairlead/fairlead/model/openai"
	"github.com/fairlead/fairlead/model/openaitest"
)

func newEmbedder(t *testing.T, server *openaitest.Server, options openai.EmbedderOptions) *openai.Embedder {
	t.Helper()
	options.BaseURL, options.HTTPClient, options.APIKey = server.URL(), server.Client(), apiKey
	e, err := openai.NewEmbedder(options)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// pairModel gives two dimensions.
var pairModel = openai.EmbedderOptions{Model: "pair", Dimensions: 2}

// TestEmbedderConformance runs the common suite against a server whose vectors
// depend on the text alone.
func TestEmbedderConformance(t *testing.T) {
	t.Parallel()
	modeltest.RunEmbedder(t, func(t *testing.T, s modeltest.EmbedderScenario) model.Embedder {
		server := openaitest.NewFunc(t, func(r openaitest.Request) openaitest.Reply {
			if s.Failure == model.KindMalformed {
				return openaitest.Reply{Body: `{"data":`}
			}
			if s.Failure != "" {
				return failures[s.Failure]
			}
			if len(r.Input) > 64 {
				t.Errorf("%d texts in one request", len(r.Input))
			}
			reply := openaitest.Reply{Hang: s.Hang}
			for _, text := range r.Input {
				if text == "" {
					return openaitest.Reply{Status: 400} // as OpenAI does
				}
				h := fnv.New32a()
				_, _ = h.Write([]byte(text))
				reply.Vectors = append(reply.Vectors, []float64{float64(h.Sum32()), 1e9, -7})
			}
			return reply
		})
		return newEmbedder(t, server, openai.EmbedderOptions{Model: "three", Dimensions: 3})
	})
}

// TestEmbedRequestAsSent: the configured model and the texts are what is sent.
func TestEmbedRequestAsSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options openai.EmbedderOptions
		width   int
	}{
		"embed":        {openai.EmbedderOptions{Model: "nomic-embed-text:v1.5", Dimensions: 2}, 2},
		"embed_openai": {openai.EmbedderOptions{Model: "text-embedding-3-small"}, 1536},
		"embed_short":  {openai.EmbedderOptions{Model: "text-embedding-3-small", Dimensions: 4}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vector := make([]float64, c.width)
			vector[1] = -3
			server := openaitest.New(t, openaitest.Reply{Vectors: [][]float64{vector, vector}})
			e := newEmbedder(t, server, c.options)
			if e.Name() != "openai/"+c.options.Model || e.Dimensions() != c.width {
				t.Errorf("%s of %d dimensions", e.Name(), e.Dimensions())
			}
			if _, err := e.Embed(t.Context(), []string{"Grüße <b>你好</b>", ""}); err != nil {
				t.Fatal(err)
			}
			sent := server.Requests()[0]
			if got := sent.Header.Get("Authorization"); got != "Bearer "+apiKey {
				t.Errorf("authorization = %q", got)
			}
			if sent.Path != "/v1/embeddings" || sent.Header.Get("Content-Type") != "application/json" {
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

func TestEmbedAnswers(t *testing.T) {
	t.Parallel()
	vectors := [][]float64{{3, 4}, {0, -2}, {1e300, 0}}
	want := [][]float32{{0.6, 0.8}, {0, -1}, {1, 0}}
	small := [][]float64{{3, 4}, {0, -2}, {1e30, 0}} // what 32 bits hold
	for name, reply := range map[string]openaitest.Reply{
		"in order":    {Vectors: vectors},
		"other order": {Vectors: vectors, Order: []int{2, 0, 1}},
		"no index":    {Vectors: vectors, NoIndex: true},
		"base64":      {Vectors: small, Base64: true, Order: []int{1, 2, 0}},
		"text around": {Body: ` {"model":"x","data":[{"index":1,"embedding":[0,-1]},{"embedding":[3,4],"index":0},{"index":2,"embedding":[2,0]}],"error":null} `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := openaitest.New(t, reply)
			got, err := newEmbedder(t, server, pairModel).Embed(t.Context(), []string{"a", "b", "c"})
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestEmbedBrokenAnswers(t *testing.T) {
	t.Parallel()
	type reply = openaitest.Reply
	one, two := []float64{1, 0}, []float64{0, 1}
	for name, c := range map[string]struct {
		reply reply
		kind  model.Kind
		cause string
	}{
		"too few":           {reply{Vectors: [][]float64{one}}, model.KindMalformed, "response has 1 embeddings for 2 texts"},
		"too many":          {reply{Vectors: [][]float64{one, two, one}}, model.KindMalformed, "response has 3 embeddings for 2 texts"},
		"none":              {reply{Body: `{"data":[]}`}, model.KindMalformed, "response has 0 embeddings for 2 texts"},
		"one twice":         {reply{Vectors: [][]float64{one, two}, Order: []int{1, 1}}, model.KindMalformed, "which embedding is of which text"},
		"index beyond":      {reply{Body: `{"data":[{"index":0,"embedding":[1,0]},{"index":2,"embedding":[1,0]}]}`}, model.KindMalformed, "which embedding is of which text"},
		"index below":       {reply{Body: `{"data":[{"index":-1,"embedding":[1,0]},{"index":0,"embedding":[1,0]}]}`}, model.KindMalformed, "which embedding is of which text"},
		"an index left out": {reply{Body: `{"data":[{"index":1,"embedding":[1,0]},{"embedding":[1,0]}]}`}, model.KindMalformed, "which embedding is of which text"},
		"wrong dimension":   {reply{Vectors: [][]float64{{1, 2, 3}, {1, 2, 3}}}, model.KindMalformed, "response has embeddings of 3 dimensions, and 2 are configured"},
		"second is wrong":   {reply{Vectors: [][]float64{one, {1}}}, model.KindMalformed, "response has embeddings of 1 dimensions, and 2 are configured"},
		"empty vector":      {reply{Vectors: [][]float64{one, {}}}, model.KindMalformed, "response has embeddings of 0 dimensions"},
		"zeros":             {reply{Vectors: [][]float64{one, {0, 0}}}, model.KindMalformed, "nothing but zeros"},
		"NaN in JSON":       {reply{Body: `{"data":[{"index":0,"embedding":[1,NaN]},{"index":1,"embedding":[1,0]}]}`}, model.KindMalformed, "not the JSON"},
		"null in the list":  {reply{Body: `{"data":[{"index":0,"embedding":[1,null]},{"index":1,"embedding":[1,0]}]}`}, model.KindMalformed, "not a finite number"},
		"text in the list":  {reply{Body: `{"data":[{"index":0,"embedding":[1,"0"]},{"index":1,"embedding":[1,0]}]}`}, model.KindMalformed, "not a finite number"},
		"number too large":  {reply{Body: `{"data":[{"index":0,"embedding":[1,1e999]},{"index":1,"embedding":[1,0]}]}`}, model.KindMalformed, "not a finite number"},
		"NaN packed":        {reply{Vectors: [][]float64{one, {1, math.NaN()}}, Base64: true}, model.KindMalformed, "not a finite number"},
		"infinity packed":   {reply{Vectors: [][]float64{one, {1, math.Inf(-1)}}, Base64: true}, model.KindMalformed, "not a finite number"},
		"half a float":      {reply{Body: `{"data":[{"index":0,"embedding":"AACAPwAA"},{"index":1,"embedding":"AACAPwAA"}]}`}, model.KindMalformed, "not a finite number"},
		"no base64":         {reply{Body: `{"data":[{"index":0,"embedding":"!!!!"},{"index":1,"embedding":"!!!!"}]}`}, model.KindMalformed, "not a finite number"},
		"null":              {reply{Body: `{"data":[{"index":0,"embedding":null},{"index":1,"embedding":null}]}`}, model.KindMalformed, "not a finite number"},
		"not JSON":          {reply{Body: `<html>`}, model.KindMalformed, "not the JSON"},
		"another answer":    {reply{Body: `{"data":{"a":1}}`}, model.KindMalformed, "not the JSON"},
		"cut":               {reply{Vectors: [][]float64{one, two}, CutAtOnce: true}, model.KindUnavailable, "unexpected EOF"},
		"error inside":      {reply{Body: `{"error":{"code":429,"message":"slow down, PRIVATE"}}`}, model.KindRateLimited, ""},
		"too large":         {reply{Body: `{"data":[` + strings.Repeat(" ", 9<<20) + `]}`}, model.KindMalformed, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := openaitest.New(t, c.reply)
			vectors, err := newEmbedder(t, server, pairModel).Embed(t.Context(), []string{"a", "b"})
			failed := asError(t, err)
			if failed.Kind != c.kind || failed.RequestID != "req_fake" || failed.StatusCode != 200 || vectors != nil {
				t.Errorf("error = %+v, want %s; %d vectors", *failed, c.kind, len(vectors))
			}
			if c.cause != "" && (failed.Err == nil || !strings.Contains(failed.Err.Error(), c.cause)) {
				t.Errorf("cause = %v, want %q in it", failed.Err, c.cause)
			}
			if n := len(server.Requests()); n != 1 {
				t.Errorf("the server saw %d requests, want 1", n)
			}
		})
	}
}

func TestEmbedStatuses(t *testing.T) {
	t.Parallel()
	for status, kind := range map[int]model.Kind{
		401: model.KindAuthentication, 403: model.KindAuthentication, 404: model.KindInvalidRequest, 408: model.KindTimeout,
		429: model.KindRateLimited, 500: model.KindUnavailable, 503: model.KindUnavailable,
	} {
		server := openaitest.New(t, openaitest.Reply{
			Status: status, ErrorMessage: "you sent PRIVATE with " + apiKey, Header: http.Header{"Retry-After": {"7"}},
		})
		_, err := newEmbedder(t, server, pairModel).Embed(t.Context(), []string{"PRIVATE"})
		failed := asError(t, err)
		if failed.Kind != kind || failed.StatusCode != status || failed.RequestID != "req_fake" {
			t.Errorf("%d: error = %+v, want %s", status, *failed, kind)
		}
		if failed.Retryable() != (failed.RetryAfter == 7*time.Second) {
			t.Errorf("%d: wait %s", status, failed.RetryAfter)
		}
		if n := len(server.Requests()); n != 1 {
			t.Errorf("%d: the server saw %d requests, want 1: retries are off", status, n)
		}
		for cause := error(failed); cause != nil; cause = errors.Unwrap(cause) {
			if strings.Contains(cause.Error(), "PRIVATE") || strings.Contains(cause.Error(), apiKey) {
				t.Errorf("%d: %q repeats what was sent", status, cause)
			}
		}
	}
}

// TestEmbedBounds: a request has 64 texts and 256,000 bytes at most, and 8,000 of
// one text.
func TestEmbedBounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("你", 5000) // 15,000 bytes
	for name, c := range map[string]struct {
		texts []string
		want  []int // texts in each request
	}{
		"64":          {slicesOf("x", 64), []int{64}},
		"65":          {slicesOf("x", 65), []int{64, 1}},
		"130":         {slicesOf("x", 130), []int{64, 64, 2}},
		"long":        {slicesOf(long, 40), []int{32, 8}}, // 7,998 bytes each
		"long and so": {append(slicesOf(long, 32), slicesOf("1234567890123456789012345678901234567890123456789012345678901234", 2)...), []int{33, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := openaitest.NewFunc(t, func(r openaitest.Request) openaitest.Reply {
				reply := openaitest.Reply{}
				for range r.Input {
					reply.Vectors = append(reply.Vectors, []float64{1, 1})
				}
				return reply
			})
			vectors, err := newEmbedder(t, server, pairModel).Embed(t.Context(), c.texts)
			if err != nil || len(vectors) != len(c.texts) {
				t.Fatalf("%d vectors, %v", len(vectors), err)
			}
			var got []int
			for _, r := range server.Requests() {
				got = append(got, len(r.Input))
				for _, text := range r.Input {
					if len(text) > 8000 || strings.ContainsRune(text, '\uFFFD') {
						t.Errorf("a text of %d bytes was sent", len(text))
					}
				}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("requests have %v texts, want %v", got, c.want)
			}
		})
	}
}

func slicesOf(text string, n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = text
	}
	return texts
}

// TestEmbedLaterBatchFails: there is no part of an answer.
func TestEmbedLaterBatchFails(t *testing.T) {
	t.Parallel()
	first := openaitest.Reply{}
	for range 64 {
		first.Vectors = append(first.Vectors, []float64{1, 0})
	}
	server := openaitest.New(t, first, openaitest.Reply{Status: 503})
	vectors, err := newEmbedder(t, server, pairModel).Embed(t.Context(), slicesOf("x", 100))
	if failed := asError(t, err); failed.Kind != model.KindUnavailable || vectors != nil {
		t.Errorf("%d vectors, %v", len(vectors), err)
	}
}

func TestNewEmbedderRefuses(t *testing.T) {
	t.Parallel()
	for want, options := range map[string]openai.EmbedderOptions{
		"model: must be":                  {},
		"without spaces":                  {Model: "a b", Dimensions: 3},
		"printable ASCII":                 {Model: "módel", Dimensions: 3},
		"its dimensions are not known":    {Model: "bge-m3"},
		"4001 dimensions are not":         {Model: "bge-m3", Dimensions: 4001},
		"-1 dimensions are not":           {Model: "bge-m3", Dimensions: -1},
		"1536 dimensions at most, not 15": {Model: "text-embedding-3-small", Dimensions: 1537},
		"base URL":                        {Model: "bge-m3", Dimensions: 3, BaseURL: "localhost:1"},
	} {
		if _, err := openai.NewEmbedder(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", options, err, want)
		}
	}
	for name, want := range map[string]int{"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536} {
		if e, err := openai.NewEmbedder(openai.EmbedderOptions{Model: name}); err != nil || e.Dimensions() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func ExampleNewEmbedder() {
	e, err := openai.NewEmbedder(openai.EmbedderOptions{BaseURL: "http://localhost:11434/v1", Model: "bge-m3", Dimensions: 1024})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Name(), e.Dimensions())
	// Output: openai/bge-m3 1024
}
