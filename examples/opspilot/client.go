package opspilot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// maxReplyBytes is the longest answer of a supervisor or ticket service.
const maxReplyBytes = 256 << 10

// loopbackClient talks to registered services and what stands beside them.
// Their addresses come from the registry or from the operator, who may give
// loopback addresses only, and never from the model. It follows no redirect,
// uses no proxy, and makes a connection for each request, so that a request is
// never sent a second time behind the caller's back. A request that takes longer
// than timeout fails.
func loopbackClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:       timeout,
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// exchange is one request of a write, or of its look-up, and what came back.
type exchange struct {
	method, url string
	header      map[string]string
	// body is nil for none.
	body []byte
}

// reply is an answer that was received as a whole.
type reply struct {
	status int
	body   []byte
}

// errNotSent is wrapped when no connection was made: nobody has seen the request.
var errNotSent = errors.New("the request was not sent")

// send returns the answer, or an error that says nothing about what the other
// side has done, unless it wraps errNotSent.
func send(ctx context.Context, client *http.Client, e exchange) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, e.method, e.url, bytes.NewReader(e.body))
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", errNotSent, err)
	}
	for name, value := range e.header {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		var failed *net.OpError
		if errors.As(err, &failed) && failed.Op == "dial" {
			return reply{}, fmt.Errorf("%w: %w", errNotSent, err)
		}
		return reply{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReplyBytes+1))
	if err != nil {
		return reply{}, err
	}
	if len(body) > maxReplyBytes {
		return reply{}, errors.New("the answer is too long")
	}
	return reply{response.StatusCode, body}, nil
}

// code is the code of an unsuccessful answer, "" if it has none. What answers at
// an address may be another program by now: a status alone means nothing.
func (r reply) code() string {
	var problem struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(r.body, &problem) != nil {
		return ""
	}
	return problem.Code
}

// unexpected is the error for an answer of which nothing follows.
func (r reply) unexpected() error { return fmt.Errorf("unexpected answer: HTTP %d", r.status) }
