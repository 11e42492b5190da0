// Package openaitest is a fake server that speaks OpenAI's wire formats for
// tests: Chat Completions, whole and streaming, and Embeddings. It answers from a
// script and records what it was sent. Nothing outside tests imports it.
package openaitest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Call is one tool call of a Reply.
type Call struct {
	ID        string
	Name      string
	Arguments string
}

// Usage is what a Reply reports as consumed, in tokens.
type Usage struct{ Prompt, Cached, Completion int64 }

// Reply is the answer to one request. The zero value is an empty answer that
// finishes with "stop". Fields below a blank line override those above.
type Reply struct {
	Text    string
	Refusal string
	Calls   []Call
	// Finish is the finish_reason; empty means "tool_calls" if there are Calls
	// and "stop" otherwise.
	Finish string
	// Usage is left out if nil.
	Usage *Usage
	// Model is the model that claims to have answered; empty echoes the request.
	Model string
	// ChunkRunes is how many runes of text or arguments one chunk carries when
	// streaming; 0 means 8.
	ChunkRunes int

	// Vectors answer a request for embeddings, in the order of its texts.
	Vectors [][]float64
	// Order, if not nil, is the order in which the Vectors are sent, by index.
	Order []int
	// NoIndex leaves the index of each out.
	NoIndex bool
	// Base64 packs them, whatever the request asks for.
	Base64 bool

	// Cut breaks the connection after this many chunks, if above 0. CutAtOnce
	// does so before the first one, with headers sent. Embeddings are cut in the
	// middle either way.
	Cut       int
	CutAtOnce bool
	// Hang holds the connection open, without an end, after the chunks that
	// were to be sent: after Cut chunks if that is set, else before the first.
	Hang bool

	// Chunks are sent as the data of a stream's events, as they are. "[DONE]"
	// has to be among them if it is wanted.
	Chunks []string

	// Status, if not 0 or 200, makes the reply an error of that HTTP status.
	Status       int
	ErrorCode    string
	ErrorType    string
	ErrorMessage string

	// Body is sent instead of any of the above, with ContentType
	// "application/json" unless Header says otherwise.
	Body string

	// Header is added to the response.
	Header http.Header
}

// Request is what the server was sent.
type Request struct {
	Method string
	Path   string
	Header http.Header
	// Body is the body as it came; the fields below were read from it.
	Body []byte

	Model    string    `json:"model"`
	Stream   bool      `json:"stream"`
	Messages []Message `json:"messages"`

	// Input, EncodingFormat and Dimensions are of a request for embeddings.
	Input          []string `json:"input"`
	EncodingFormat string   `json:"encoding_format"`
	Dimensions     *int     `json:"dimensions"`
}

// Message is one message of a Request.
type Message struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCallID string `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// LastUser returns the text of the last user message.
func (r Request) LastUser() string {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "user" {
			return m.Content
		}
	}
	return ""
}

// Step returns how many assistant messages follow the last user message: the
// number of the model step that the request asks for, from 0.
func (r Request) Step() int {
	step := 0
	for _, m := range slices.Backward(r.Messages) {
		switch m.Role {
		case "user":
			return step
		case "assistant":
			step++
		}
	}
	return step
}

// Server is a running fake server. It is safe for concurrent use.
type Server struct {
	server  *httptest.Server
	respond func(Request) Reply
	closing chan struct{}

	mu       sync.Mutex
	requests []Request
}

// New starts a server that gives the replies in order. A request beyond the
// last one fails the test. The server is closed with the test.
func New(t testing.TB, replies ...Reply) *Server {
	t.Helper()
	var mu sync.Mutex
	next := 0
	return NewFunc(t, func(Request) Reply {
		mu.Lock()
		defer mu.Unlock()
		if next == len(replies) {
			t.Errorf("openaitest: request %d, but there are only %d replies", next+1, len(replies))
			return Reply{Status: http.StatusBadRequest}
		}
		next++
		return replies[next-1]
	})
}

// NewFunc starts a server that asks respond, which may be called concurrently.
func NewFunc(t testing.TB, respond func(Request) Reply) *Server {
	t.Helper()
	s := &Server{respond: respond, closing: make(chan struct{})}
	s.server = httptest.NewServer(s)
	t.Cleanup(func() {
		close(s.closing)
		s.server.Client().CloseIdleConnections()
		s.server.Close()
	})
	return s
}

// URL returns the base URL, "/v1" included.
func (s *Server) URL() string { return s.server.URL + "/v1" }

// Client returns an HTTP client whose idle connections end with the server.
func (s *Server) Client() *http.Client { return s.server.Client() }

// Requests returns what the server was sent so far, in order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := Request{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone()}
	var err error
	if request.Body, err = io.ReadAll(r.Body); err == nil {
		err = json.Unmarshal(request.Body, &request)
	}
	s.mu.Lock()
	s.requests = append(s.requests, request)
	s.mu.Unlock()
	embeddings := strings.HasSuffix(r.URL.Path, "/embeddings")
	if err != nil || r.Method != http.MethodPost || !embeddings && !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		writeError(w, Reply{Status: http.StatusNotFound, ErrorMessage: "neither a chat completion nor an embeddings request"})
		return
	}

	reply := s.respond(request)
	for name, values := range reply.Header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	if w.Header().Get("X-Request-Id") == "" {
		w.Header().Set("X-Request-Id", "req_fake")
	}
	if reply.Model == "" {
		reply.Model = request.Model
	}
	switch {
	case reply.Body != "":
		writeJSON(w, reply.Status, []byte(reply.Body))
	case reply.Status != 0 && reply.Status != http.StatusOK:
		writeError(w, reply)
	case embeddings:
		s.embeddings(w, r, reply, request)
	case request.Stream:
		s.stream(w, r, reply)
	default:
		if reply.Hang {
			s.hang(r)
		}
		if reply.Hang || reply.CutAtOnce || reply.Cut > 0 {
			panic(http.ErrAbortHandler)
		}
		writeJSON(w, http.StatusOK, encode(reply.whole()))
	}
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request, reply Reply) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush := func() { _ = http.NewResponseController(w).Flush() }
	flush()

	chunks := reply.Chunks
	if chunks == nil {
		chunks = append(reply.chunks(), "[DONE]")
	}
	broken := reply.CutAtOnce || reply.Cut > 0 || reply.Hang
	if broken {
		chunks = chunks[:min(reply.Cut, len(chunks))]
	}
	for _, chunk := range chunks {
		if err := writeEvent(w, chunk, flush); err != nil {
			return
		}
	}
	if reply.Hang {
		s.hang(r)
	}
	if broken {
		panic(http.ErrAbortHandler) // ends the connection without a last chunk
	}
}

func (s *Server) embeddings(w http.ResponseWriter, r *http.Request, reply Reply, request Request) {
	if reply.Hang {
		s.hang(r)
		panic(http.ErrAbortHandler)
	}
	body := encode(reply.embeddings(request.EncodingFormat == "base64"))
	if reply.CutAtOnce || reply.Cut > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		writeJSON(w, http.StatusOK, body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	writeJSON(w, http.StatusOK, body)
}

// writeEvent sends the event in two writes, cut inside the first character that
// has several bytes, as a network may.
func writeEvent(w io.Writer, chunk string, flush func()) error {
	event := "data: " + chunk + "\n\n"
	cut := len(event) / 2
	if i := strings.IndexFunc(event, func(r rune) bool { return r > 127 }); i >= 0 {
		cut = i + 1
	}
	for _, part := range []string{event[:cut], event[cut:]} {
		if _, err := io.WriteString(w, part); err != nil {
			return err
		}
		flush()
	}
	return nil
}

// hang waits until the client goes away or the server closes.
func (s *Server) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.closing:
	}
}

func writeError(w http.ResponseWriter, reply Reply) {
	var code any
	if reply.ErrorCode != "" {
		code = reply.ErrorCode
	}
	writeJSON(w, reply.Status, encode(map[string]any{"error": map[string]any{
		"message": reply.ErrorMessage, "type": reply.ErrorType, "param": nil, "code": code,
	}}))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
