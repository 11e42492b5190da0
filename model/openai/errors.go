package openai

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/model"
)

// failure turns an error met while the body was read into a *model.Error.
func (in *intake) failure(raw *http.Response, err error) error {
	failed := &model.Error{
		Kind: model.KindMalformed, StatusCode: raw.StatusCode, OutputStarted: in.started,
		Usage: in.usage, RequestID: requestID(raw), Err: err,
	}
	var read readError
	var sent *streamError
	switch {
	case errors.As(err, &sent):
		failed.Kind, failed.Err = sent.kind(0), sent.cause()
	case errors.As(err, &read):
		failed.Kind, failed.Err = networkKind(read), safeCause(read)
	case errors.Is(err, errCut):
		failed.Kind = model.KindUnavailable
	}
	return failed
}

// statusError turns a response other than 2xx into a *model.Error.
func statusError(raw *http.Response) error {
	var body struct {
		wireError                 // vLLM used to send the fields bare
		Error     json.RawMessage `json:"error"`
	}
	sent := &body.wireError
	// The body is bounded, and a body that cannot be read leaves the status.
	if text, err := io.ReadAll(raw.Body); err == nil {
		_ = json.Unmarshal(text, &body)
		if present(body.Error) && json.Unmarshal(body.Error, sent) != nil {
			_ = json.Unmarshal(body.Error, &sent.Message) // Ollama sends a string
		}
	}
	failed := &model.Error{
		Kind: sent.kind(raw.StatusCode), StatusCode: raw.StatusCode,
		RequestID: requestID(raw), Err: sent.cause(),
	}
	if failed.Retryable() {
		failed.RetryAfter = retryAfter(raw.Header, time.Now())
	}
	return failed
}

// kind classifies an error. A status of 0 means that the error came inside a
// response which had begun well.
func (e *wireError) kind(status int) model.Kind {
	code, _ := e.Code.(string)
	if number, ok := e.Code.(float64); ok && status == 0 {
		status = int(number)
	}
	message := strings.ToLower(e.Message)
	is := func(names ...string) bool {
		for _, name := range names {
			if code == name || e.Type == name {
				return true
			}
		}
		return false
	}
	switch {
	case is("insufficient_quota", "billing_hard_limit_reached"):
		// Sent with 429, but it stays until somebody pays: no retry can help.
		return model.KindAuthentication
	case is("context_length_exceeded", "exceed_context_size_error"),
		status/100 == 4 && strings.Contains(message, "maximum context length"): // vLLM has no code for it
		return model.KindContextOverflow
	case is("content_filter", "content_policy_violation"):
		return model.KindContentPolicy
	case status == 0 && is("rate_limit_exceeded", "rate_limit_error"):
		return model.KindRateLimited
	case status == 0 && is("invalid_request_error"):
		return model.KindInvalidRequest
	}
	switch status {
	case http.StatusTooManyRequests:
		return model.KindRateLimited
	case http.StatusRequestTimeout:
		return model.KindTimeout
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusPaymentRequired:
		return model.KindAuthentication
	}
	if status == 0 || status >= 500 {
		return model.KindUnavailable
	}
	return model.KindInvalidRequest
}

// codePattern admits identifiers and keeps out sentences.
var codePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// cause names the provider's code, which tells an operator model_not_found from
// unsupported_parameter. The provider's message may repeat content and is left.
func (e *wireError) cause() error {
	if code, ok := e.Code.(string); ok && codePattern.MatchString(code) {
		return errors.New("provider code " + code)
	}
	if codePattern.MatchString(e.Type) {
		return errors.New("provider error type " + e.Type)
	}
	return nil
}

func networkKind(err error) model.Kind {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return model.KindTimeout
	}
	return model.KindUnavailable
}

// safeCause says what went wrong on the network without address or URL, which
// the errors of net and net/http contain.
func safeCause(err error) error {
	var errno syscall.Errno
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &errno):
		return errno // "connection refused"
	case errors.As(err, &dns):
		return errors.New("host name cannot be resolved")
	case errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &invalid):
		return errors.New("server certificate cannot be verified")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("HTTP client timed out")
	}
	return errors.New("network failure")
}

// retryAfter reads how long the provider asks to wait; zero if it does not say.
func retryAfter(header http.Header, now time.Time) time.Duration {
	if wait, ok := wholeWait(header.Get("Retry-After-Ms"), time.Millisecond); ok {
		return wait
	}
	value := header.Get("Retry-After")
	if wait, ok := wholeWait(value, time.Second); ok {
		return wait
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// maxRetryAfter is beyond any run's deadline and keeps the sum in range.
const maxRetryAfter = 24 * time.Hour

// wholeWait parses a count of units. OpenAI sends fractions too.
func wholeWait(value string, unit time.Duration) (time.Duration, bool) {
	count, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(count >= 0) {
		return 0, false
	}
	return time.Duration(min(count*float64(unit), float64(maxRetryAfter))), true
}

func requestID(raw *http.Response) string { return printable(raw.Header.Get("X-Request-Id")) }

// printable returns an identifier that a provider sent, or nothing if it is not
// printable ASCII of at most 128 bytes: it goes into logs and the database.
func printable(id string) string {
	if len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return id
}
