package openai

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/model"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"20":                            20 * time.Second,
		" 1.5 ":                         1500 * time.Millisecond,
		"-3":                            0,
		"NaN":                           0,
		"Inf":                           24 * time.Hour,
		"soon":                          0,
		"Sun, 01 Mar 2026 12:00:30 GMT": 30 * time.Second,
		"Sun, 01 Mar 2026 11:59:00 GMT": 0,
		"Sun, 01 Mar 2099 12:00:00 GMT": 24 * time.Hour,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("Retry-After %q = %s, want %s", value, got, want)
		}
	}
}

// body gives the same text again and again; end stops it after so many bytes.
type body struct {
	text         string
	end          int
	read, closed int
}

func (b *body) Read(p []byte) (int, error) {
	if b.end > 0 {
		if p = p[:min(len(p), b.end-b.read)]; len(p) == 0 {
			return 0, io.EOF
		}
	}
	// Fill p: the scanner looks at its whole buffer again after every read.
	for n := 0; n < len(p); {
		n += copy(p[n:], b.text[(b.read+n)%len(b.text):])
	}
	b.read += len(p)
	return len(p), nil
}

func (b *body) Close() error { b.closed++; return nil }

type answer func(*http.Request) (*http.Response, error)

func (f answer) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An endless body is given up at the bound, whatever it consists of, and every
// body is closed.
func TestBodiesAreBoundedAndClosed(t *testing.T) {
	t.Parallel()
	const stream, whole = "text/event-stream; charset=utf-8", "application/json"
	const ok = `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`
	chunk := `{"choices":[{"delta":{"content":"` + strings.Repeat("x", 1<<16) + `"}}]}`
	for name, c := range map[string]struct {
		status      int
		contentType string
		body        body
		kind        model.Kind // empty: a response
		atMost      int
	}{
		"one line":      {200, stream, body{text: "x"}, model.KindMalformed, maxResponseBytes},
		"one event":     {200, stream, body{text: "data: {}\n"}, model.KindMalformed, maxResponseBytes},
		"one event, CR": {200, stream, body{text: "data: {}\r\n"}, model.KindMalformed, maxResponseBytes},
		"many events":   {200, stream, body{text: "data: " + chunk + "\n\n"}, model.KindMalformed, maxResponseBytes + 1<<20},
		"whole":         {200, whole, body{text: "\n\n"}, model.KindMalformed, maxResponseBytes},
		"error":         {500, whole, body{text: "\n\n"}, model.KindUnavailable, maxErrorBytes},
		"error stream":  {500, stream, body{text: "\n\n"}, model.KindUnavailable, maxErrorBytes},
		"finite":        {200, whole, body{text: ok, end: len(ok)}, "", len(ok)},
		"malformed":     {200, stream, body{text: "data: {\n\n"}, model.KindMalformed, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := &http.Client{Transport: answer(func(r *http.Request) (*http.Response, error) {
				_, _ = io.Copy(io.Discard, r.Body)
				return &http.Response{
					StatusCode: c.status, Header: http.Header{"Content-Type": {c.contentType}}, Body: &c.body, Request: r,
				}, nil
			})}
			m, err := New(Options{HTTPClient: client})
			if err != nil {
				t.Fatal(err)
			}
			_, err = m.Generate(t.Context(), model.Request{Model: "m", MaxOutputTokens: 1}, nil)
			var failed *model.Error
			if errors.As(err, &failed) != (c.kind != "") || (failed != nil && failed.Kind != c.kind) {
				t.Errorf("error = %v, want %q", err, c.kind)
			}
			// The last read may ask for as much again as was read before.
			if most := 2*c.atMost + bytes.MinRead; c.body.read > most {
				t.Errorf("%d bytes were read, want at most %d", c.body.read, most)
			}
			if c.body.closed == 0 {
				t.Error("the body was not closed")
			}
		})
	}
}
