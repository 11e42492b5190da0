package openai

import (
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/openai/openai-go/v3/option"
)

// Bounds on what a server can make this process hold. A stream as a whole may
// be longer than maxResponseBytes, as each token travels in an envelope of some
// 200 bytes: for it the bound holds per event and for the accumulated content.
const (
	maxResponseBytes = 8 << 20
	maxErrorBytes    = 64 << 10
	maxToolCalls     = 128
)

var errTooLarge = errors.New("response is too large")

// boundResponse is SDK middleware. It has to sit below the SDK, which reads the
// bodies of failed requests whole.
func boundResponse(request *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	response, err := next(request)
	if err != nil || response == nil || response.Body == nil {
		return response, err
	}
	body := &boundedBody{ReadCloser: response.Body, limit: maxResponseBytes}
	switch {
	case response.StatusCode/100 != 2:
		body.limit = maxErrorBytes
	case isEventStream(response):
		body.perEvent = true
	}
	response.Body = body
	return response, nil
}

// boundedBody fails with errTooLarge once more than limit bytes were read: in
// all, or perEvent since the last blank line, which ends a server-sent event.
type boundedBody struct {
	io.ReadCloser
	limit     int
	perEvent  bool
	size      int
	lineEmpty bool
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.perEvent {
		b.size += n
	} else {
		for _, c := range p[:n] {
			b.size++
			if c == '\n' {
				if b.lineEmpty {
					b.size = 0
				}
				b.lineEmpty = true
			} else if c != '\r' {
				b.lineEmpty = false
			}
		}
	}
	if b.size > b.limit {
		return 0, errTooLarge
	}
	return n, err
}

func isEventStream(response *http.Response) bool {
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return mediaType == "text/event-stream"
}
