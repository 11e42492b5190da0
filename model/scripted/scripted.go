// Package scripted is a model without intelligence: it answers as a script says
// (MODEL-2). It needs no API key and ships beside the real adapters, for tests,
// evals and the demo.
//
// A script is a pure function of the request. It keeps no counters, so a run
// that is killed and resumed on another worker, or a call that is made again,
// gets the same answer.
package scripted

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/model"
)

// Revision is the Response.Revision of every answer.
const Revision = "scripted-1"

// Script decides the answer to a request. It must be a pure function of the
// request and safe for concurrent use. An error that is not a *model.Error
// fails the call with KindInvalidRequest.
type Script func(ctx context.Context, req model.Request) (Turn, error)

// Turn is one answer. The zero value is an empty answer that stops.
type Turn struct {
	Text  string
	Calls []Call
	// Finish, if empty, is FinishToolCalls when there are Calls, else FinishStop.
	Finish model.FinishReason
	// Usage, if nil, is estimated from the bytes of request and answer, unless
	// NoUsage says that none is reported.
	Usage   *model.Usage
	NoUsage bool
	// Delay is the time before the first delta. Generate returns early if ctx ends.
	Delay time.Duration
	// Hang waits for the end of ctx after the text was streamed.
	Hang bool
	// Err fails the call after the text was streamed. OutputStarted is set by
	// Generate.
	Err *model.Error
	// ChunkSize is how many runes of text a delta has; 0 means 16.
	ChunkSize int
}

// Call is a proposed tool call. Arguments is sent as it is, valid JSON or not.
type Call struct {
	Name      string
	Arguments string
}

// Model implements model.Model by a Script.
type Model struct{ script Script }

// New returns a Model that answers as script says.
func New(script Script) *Model { return &Model{script: script} }

// Generate implements model.Model.
func (m *Model) Generate(ctx context.Context, req model.Request, stream func(model.Delta)) (model.Response, error) {
	if err := ctx.Err(); err != nil {
		return model.Response{}, contextError(ctx)
	}
	turn, err := m.script(ctx, req)
	if ctx.Err() != nil {
		return model.Response{}, contextError(ctx)
	}
	var failed *model.Error
	if errors.As(err, &failed) {
		turn.Err = failed
	} else if err != nil {
		return model.Response{}, &model.Error{Kind: model.KindInvalidRequest, Err: err}
	}
	if turn.Delay > 0 {
		timer := time.NewTimer(turn.Delay)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return model.Response{}, contextError(ctx)
		case <-timer.C:
		}
	}

	if stream == nil {
		stream = func(model.Delta) {}
	}
	for piece := range chunks(turn.Text, turn.ChunkSize) {
		stream(model.Delta{Text: piece})
		if ctx.Err() != nil {
			return model.Response{}, contextError(ctx)
		}
	}
	if turn.Hang {
		<-ctx.Done()
		return model.Response{}, contextError(ctx)
	}
	if turn.Err != nil {
		failed := *turn.Err
		failed.OutputStarted = turn.Text != ""
		return model.Response{}, &failed
	}
	for range turn.Calls {
		stream(model.Delta{ToolCall: true})
	}
	return turn.response(req)
}

func (t Turn) response(req model.Request) (model.Response, error) {
	finish := t.Finish
	if finish == "" {
		finish = model.FinishStop
		if len(t.Calls) > 0 {
			finish = model.FinishToolCalls
		}
	}
	switch finish {
	case model.FinishStop, model.FinishLength, model.FinishContentFilter:
	case model.FinishToolCalls:
		if len(t.Calls) == 0 {
			return model.Response{}, malformed("script finishes for tool calls but has none")
		}
	default:
		return model.Response{}, malformed("script has an unknown finish reason")
	}
	if finish == model.FinishStop && len(t.Calls) > 0 {
		return model.Response{}, malformed("script stops but has tool calls")
	}

	response := model.Response{Text: t.Text, Finish: finish, Revision: Revision, RequestID: requestID(req)}
	if finish == model.FinishToolCalls {
		step := Step(req)
		for i, call := range t.Calls {
			response.Calls = append(response.Calls, model.ToolCall{
				ID: fmt.Sprintf("s%dc%d", step, i), Name: call.Name, Arguments: call.Arguments,
			})
		}
	}
	switch {
	case t.NoUsage:
	case t.Usage != nil:
		usage := *t.Usage
		response.Usage = &usage
	default:
		response.Usage = t.estimate(req)
	}
	return response, nil
}

// estimate counts every byte that a provider would turn into tokens.
func (t Turn) estimate(req model.Request) *model.Usage {
	input := len(req.System) + len(req.FinalSchema)
	for _, message := range req.Messages {
		input += len(message.Text)
		for _, call := range message.Calls {
			input += len(call.Name) + len(call.Arguments)
		}
	}
	for _, tool := range req.Tools {
		input += len(tool.Name) + len(tool.Description) + len(tool.Parameters)
	}
	output := len(t.Text)
	for _, call := range t.Calls {
		output += len(call.Name) + len(call.Arguments)
	}
	return &model.Usage{InputTokens: tokensOf(input), OutputTokens: tokensOf(output)}
}

// tokensOf is about what n bytes of English amount to. Nothing rests on it but
// what the script is said to cost.
func tokensOf(n int) int64 { return int64(n+2) / 3 }

// requestID names the request, so that equal requests show as equal.
func requestID(req model.Request) string {
	encoded, err := json.Marshal(req)
	if err != nil {
		return "" // a schema in it is not JSON
	}
	digest := sha256.Sum256(encoded)
	return "scripted-" + hex.EncodeToString(digest[:8])
}

func contextError(ctx context.Context) error { return fmt.Errorf("call model: %w", ctx.Err()) }

func malformed(problem string) error {
	return &model.Error{Kind: model.KindMalformed, OutputStarted: true, Err: errors.New(problem)}
}

// chunks yields the text in pieces of size runes; it never splits a rune.
func chunks(text string, size int) func(yield func(string) bool) {
	if size <= 0 {
		size = 16
	}
	return func(yield func(string) bool) {
		start, runes := 0, 0
		for i := range text {
			if runes == size {
				if !yield(text[start:i]) {
					return
				}
				start, runes = i, 0
			}
			runes++
		}
		if start < len(text) {
			yield(text[start:])
		}
	}
}

// Step returns how many assistant messages follow the last user message: the
// number of the model's turn on that message, from 0. A loop that corrects the
// model in a user message thereby starts again at 0.
func Step(req model.Request) int {
	step := 0
	for _, message := range slices.Backward(req.Messages) {
		switch message.Role {
		case model.RoleUser:
			return step
		case model.RoleAssistant:
			step++
		}
	}
	return step
}

// LastUser returns the text of the last user message, or "".
func LastUser(req model.Request) string {
	for _, message := range slices.Backward(req.Messages) {
		if message.Role == model.RoleUser {
			return message.Text
		}
	}
	return ""
}

// LastToolResults returns the tool messages at the end of the conversation, in
// order: the answers to the calls of the latest turn.
func LastToolResults(req model.Request) []model.Message {
	start := len(req.Messages)
	for start > 0 && req.Messages[start-1].Role == model.RoleTool {
		start--
	}
	return slices.Clone(req.Messages[start:])
}

// ByStep answers with turns[Step(req)] and fails beyond the last one.
func ByStep(turns ...Turn) Script {
	return func(_ context.Context, req model.Request) (Turn, error) {
		step := Step(req)
		if step >= len(turns) {
			return Turn{}, fmt.Errorf("script has %d turns and was asked for turn %d", len(turns), step)
		}
		return turns[step], nil
	}
}

// RepeatLast answers like ByStep and gives the last turn again beyond it, which
// makes runs that do not end by themselves.
func RepeatLast(turns ...Turn) Script {
	return func(_ context.Context, req model.Request) (Turn, error) {
		if len(turns) == 0 {
			return Turn{}, errors.New("script has no turns")
		}
		return turns[min(Step(req), len(turns)-1)], nil
	}
}
