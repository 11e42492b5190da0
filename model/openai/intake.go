package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/fairlead/fairlead/model"
)

// Ways in which a response can be broken. The texts say what and never quote.
var (
	errCut          = errors.New("stream ended before the response was complete")
	errNotJSON      = errors.New("response is not the JSON that was expected")
	errNoChoice     = errors.New("response has no choice")
	errNoFinish     = errors.New("response has no finish reason")
	errFinish       = errors.New("response has an unknown finish reason")
	errNoCalls      = errors.New("response finishes for tool calls but has none")
	errNameless     = errors.New("response has a tool call without a name")
	errTooManyCalls = errors.New("response has too many tool calls")
)

// streamError is an error object that the server sent instead of a chunk.
type streamError struct{ wireError }

func (*streamError) Error() string { return "server reported an error in its response" }

// readError is a failure to read the body, as opposed to what the body says.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

func networkFailure(err error) bool {
	var read readError
	return errors.Is(err, errCut) || errors.As(err, &read)
}

// intake takes in one response, piece by piece.
type intake struct {
	stream func(model.Delta)

	text     strings.Builder
	calls    []*intakeCall
	refused  bool
	finish   string
	usage    *model.Usage
	revision string

	// size is how many bytes of content were kept.
	size int
	// started says that output had begun, sawChoice that any choice was seen.
	started, sawChoice bool
}

type intakeCall struct {
	index     int64
	indexed   bool
	id, name  string
	arguments strings.Builder
}

func (in *intake) complete() bool { return in.finish != "" }

// readStream reads server-sent events until [DONE] or the end of the body.
func (in *intake) readStream(raw *http.Response) error {
	decoder := ssestream.NewDecoder(raw)
	for decoder.Next() {
		event := decoder.Event()
		data := bytes.TrimSpace(event.Data)
		if bytes.HasPrefix(data, []byte("[DONE]")) {
			if in.complete() {
				return nil
			}
			if !in.sawChoice {
				return errNoChoice
			}
			return errNoFinish
		}
		if event.Type == "error" {
			var sent streamError
			_ = json.Unmarshal(data, &sent.wireError) // whatever it says, it is an error
			return &sent
		}
		if len(data) == 0 {
			continue // an empty event keeps the connection open
		}
		if err := in.add(data); err != nil {
			return err
		}
	}
	if errors.Is(decoder.Err(), errTooLarge) {
		return errTooLarge
	}
	if decoder.Err() != nil {
		return readError{decoder.Err()}
	}
	if !in.complete() {
		return errCut
	}
	return nil
}

// readWhole reads a response that is not a stream.
func (in *intake) readWhole(raw *http.Response) error {
	data, err := io.ReadAll(raw.Body)
	if errors.Is(err, errTooLarge) {
		return errTooLarge
	}
	if err != nil {
		return readError{err}
	}
	if err := in.add(data); err != nil {
		return err
	}
	switch {
	case !in.sawChoice:
		return errNoChoice
	case !in.complete():
		return errNoFinish
	}
	return nil
}

// add takes in one chunk or whole response.
func (in *intake) add(data []byte) error {
	var body wireBody
	if err := json.Unmarshal(data, &body); err != nil {
		return errNotJSON
	}
	if present(body.Error) {
		var sent streamError
		_ = json.Unmarshal(body.Error, &sent.wireError)
		return &sent
	}
	if body.Model != "" && in.revision == "" {
		in.revision = printable(body.Model)
	}
	if usage := body.Usage.usage(); usage != nil {
		in.usage = usage // servers that count as they go send it with every chunk
	}
	choice := body.Choices[0]
	if choice == nil {
		return nil
	}
	in.sawChoice = true
	if err := in.addMessage(choice.Delta, false); err != nil {
		return err
	}
	if err := in.addMessage(choice.Message, true); err != nil {
		return err
	}
	if choice.FinishReason != nil && *choice.FinishReason != "" {
		in.finish = *choice.FinishReason
	}
	return nil
}

// addMessage takes in a part of the message, or the whole of it.
func (in *intake) addMessage(message *wireMessage, whole bool) error {
	if message == nil {
		return nil
	}
	if present(message.ReasoningContent) || present(message.Reasoning) {
		in.started = true
		// No text for anybody to see, but output that is being paid for.
		in.stream(model.Delta{})
	}
	if message.Refusal != nil && *message.Refusal != "" {
		in.started, in.refused = true, true
		in.stream(model.Delta{})
	}
	if message.Content != nil && *message.Content != "" {
		in.started = true
		if in.size += len(*message.Content); in.size > maxResponseBytes {
			return errTooLarge
		}
		in.text.WriteString(*message.Content)
		in.stream(model.Delta{Text: *message.Content})
	}
	if message.ToolCalls == nil {
		return nil
	}
	for _, piece := range message.ToolCalls {
		if piece == nil {
			continue
		}
		in.started = true
		if in.size += len(piece.ID) + len(piece.Function.Name) + len(piece.Function.Arguments); in.size > maxResponseBytes {
			return errTooLarge
		}
		var call *intakeCall
		if !whole {
			call = in.callOf(piece)
		}
		if call == nil {
			call = in.begin(piece)
		}
		if len(in.calls) > maxToolCalls {
			return errTooManyCalls
		}
		if call.id == "" {
			call.id = piece.ID
		}
		if call.name == "" {
			call.name = piece.Function.Name
		}
		call.arguments.WriteString(piece.Function.Arguments)
		in.stream(model.Delta{ToolCall: true})
	}
	return nil
}

// begin adds a call.
func (in *intake) begin(piece *wireToolCall) *intakeCall {
	call := &intakeCall{}
	if piece.Index != nil {
		call.index, call.indexed = *piece.Index, true
	}
	in.calls = append(in.calls, call)
	return call
}

// callOf returns the call that a piece continues, nil if it begins one.
// OpenAI numbers the calls and sends ID and name in the first piece only.
// Others leave the index out, number every call 0, or give each piece a fresh
// ID; a piece with another ID and a name of its own begins another call.
func (in *intake) callOf(piece *wireToolCall) *intakeCall {
	for i := len(in.calls) - 1; i >= 0; i-- {
		call := in.calls[i]
		begins := piece.Function.Name != "" && piece.ID != call.id
		switch {
		case piece.Index != nil && call.indexed:
			if *piece.Index == call.index && !(begins && piece.ID != "" && call.id != "") {
				return call
			}
		case piece.ID != "" && piece.ID == call.id:
			return call
		case i == len(in.calls)-1 && piece.Function.Name == "":
			return call
		}
	}
	return nil
}

// response returns what was taken in, once it is complete.
func (in *intake) response() (model.Response, error) {
	response := model.Response{Text: in.text.String(), Usage: in.usage, Revision: in.revision}
	switch {
	case in.refused:
		// The model declined for reasons of content policy. OpenAI finishes
		// such a response with "stop".
		response.Finish = model.FinishContentFilter
		return response, nil
	case in.finish == string(model.FinishLength):
		response.Finish = model.FinishLength
		return response, nil
	case in.finish == string(model.FinishContentFilter):
		response.Finish = model.FinishContentFilter
		return response, nil
	case in.finish == string(model.FinishStop) && len(in.calls) == 0:
		response.Finish = model.FinishStop
		return response, nil
	case in.finish == string(model.FinishStop), in.finish == string(model.FinishToolCalls):
		// Some compatible servers say "stop" after tool calls.
		response.Finish = model.FinishToolCalls
	default:
		return model.Response{}, errFinish
	}
	if len(in.calls) == 0 {
		return model.Response{}, errNoCalls
	}

	taken := make(map[string]bool, len(in.calls))
	for i, call := range in.calls {
		if call.name == "" {
			return model.Response{}, errNameless
		}
		// Some compatible servers send no IDs, or the same one twice.
		id := call.id
		if id == "" || taken[id] {
			id = "call_" + strconv.Itoa(i)
		}
		for taken[id] {
			id += "_"
		}
		taken[id] = true
		response.Calls = append(response.Calls, model.ToolCall{ID: id, Name: call.name, Arguments: call.arguments.String()})
	}
	return response, nil
}
