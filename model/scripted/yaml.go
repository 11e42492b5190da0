package scripted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/fairlead/fairlead/model"
)

// ParseYAML reads a script from a list of scenarios:
//
//	scenarios:
//	  - match: restart            # part of the last user message, in any case
//	    repeat_last: false        # true: the last turn is given again and again
//	    turns:
//	      - text: Looking.
//	        calls:
//	          - name: search
//	            arguments: {query: restart}   # or a string, sent as it is
//	        delay: 100ms
//	      - text: Done.
//	    learns:                   # asked what is worth remembering of the message
//	      - kind: profile_preference
//	        key: preference.food
//	        value: {item: tea, sentiment: likes}
//	        quote: I like tea     # left out: the whole message
//	  - match: ""                 # matches everything
//	    turns: [{error: rate_limited, retry_after: 2s}]
//
// The first scenario that matches answers, with its turns by step. A turn also
// takes finish, no_usage, hang, and chunk_size, which mean what they mean in
// Turn. A Lesson is answered by what the first scenario that matches its message
// learns, and with nothing if none does; what is learned also takes valid_from,
// valid_until and retracts. Unknown keys are errors.
func ParseYAML(text []byte) (Script, error) {
	var file struct {
		Scenarios []scenario `yaml:"scenarios"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict(), yaml.CustomUnmarshaler(parseDuration))
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("parse script: %w", err)
	}
	if len(file.Scenarios) == 0 {
		return nil, errors.New("parse script: scenarios: lists no scenario")
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("parse script: more than one YAML document")
	}

	type matched struct {
		keyword string
		script  Script
		learns  []yamlLearned
	}
	var scripts []matched
	for i, s := range file.Scenarios {
		script, err := s.script()
		if err != nil {
			return nil, fmt.Errorf("parse script: scenario %d (match %q): %w", i+1, s.Match, err)
		}
		scripts = append(scripts, matched{strings.ToLower(s.Match), script, s.Learns})
	}
	return func(ctx context.Context, req model.Request) (Turn, error) {
		if lesson, ok := LessonOf(req); ok {
			for _, s := range scripts {
				if strings.Contains(strings.ToLower(lesson.Message), s.keyword) {
					return learn(s.learns, lesson)
				}
			}
			return Learn()
		}
		message := strings.ToLower(LastUser(req))
		for _, s := range scripts {
			if strings.Contains(message, s.keyword) {
				return s.script(ctx, req)
			}
		}
		return Turn{}, errors.New("no scenario of the script matches the message")
	}, nil
}

type scenario struct {
	Match      string     `yaml:"match"`
	RepeatLast bool       `yaml:"repeat_last"`
	Turns      []yamlTurn `yaml:"turns"`

	Learns []yamlLearned `yaml:"learns"`
}

type yamlLearned struct {
	Kind       string     `yaml:"kind"`
	Key        string     `yaml:"key"`
	Value      any        `yaml:"value"`
	Quote      string     `yaml:"quote"`
	ValidFrom  *time.Time `yaml:"valid_from"`
	ValidUntil *time.Time `yaml:"valid_until"`
	Retracts   bool       `yaml:"retracts"`
}

func learn(learns []yamlLearned, lesson Lesson) (Turn, error) {
	var all []Learned
	for _, y := range learns {
		l := Learned(y)
		if l.Quote == "" {
			l.Quote = lesson.Message
		}
		all = append(all, l)
	}
	return Learn(all...)
}

func (s scenario) script() (Script, error) {
	if len(s.Turns) == 0 {
		return nil, errors.New("turns: lists no turn")
	}
	for i, l := range s.Learns {
		if l.Kind == "" || l.Key == "" {
			return nil, fmt.Errorf("learns: entry %d has no kind or no key", i+1)
		}
	}
	turns := make([]Turn, len(s.Turns))
	for i, y := range s.Turns {
		var err error
		if turns[i], err = y.turn(); err != nil {
			return nil, fmt.Errorf("turn %d: %w", i+1, err)
		}
	}
	if s.RepeatLast {
		return RepeatLast(turns...), nil
	}
	return ByStep(turns...), nil
}

type yamlTurn struct {
	Text  string `yaml:"text"`
	Calls []struct {
		Name      string `yaml:"name"`
		Arguments any    `yaml:"arguments"`
	} `yaml:"calls"`
	Finish     model.FinishReason `yaml:"finish"`
	NoUsage    bool               `yaml:"no_usage"`
	Delay      time.Duration      `yaml:"delay"`
	Hang       bool               `yaml:"hang"`
	Error      model.Kind         `yaml:"error"`
	RetryAfter time.Duration      `yaml:"retry_after"`
	ChunkSize  int                `yaml:"chunk_size"`
}

func (y yamlTurn) turn() (Turn, error) {
	turn := Turn{
		Text: y.Text, Finish: y.Finish, NoUsage: y.NoUsage,
		Delay: y.Delay, Hang: y.Hang, ChunkSize: y.ChunkSize,
	}
	for _, call := range y.Calls {
		if call.Name == "" {
			return Turn{}, errors.New("a call has no name")
		}
		arguments, isText := call.Arguments.(string)
		if !isText {
			if call.Arguments == nil {
				call.Arguments = struct{}{}
			}
			encoded, err := json.Marshal(call.Arguments)
			if err != nil {
				return Turn{}, fmt.Errorf("arguments of %s: %w", call.Name, err)
			}
			arguments = string(encoded)
		}
		turn.Calls = append(turn.Calls, Call{Name: call.Name, Arguments: arguments})
	}
	switch y.Finish {
	case "", model.FinishLength, model.FinishContentFilter:
	case model.FinishStop, model.FinishToolCalls:
		if (y.Finish == model.FinishToolCalls) != (len(y.Calls) > 0) {
			return Turn{}, fmt.Errorf("finish %q does not fit %d calls", y.Finish, len(y.Calls))
		}
	default:
		return Turn{}, fmt.Errorf("finish %q: must be stop, tool_calls, length or content_filter", y.Finish)
	}
	switch y.Error {
	case "":
		if y.RetryAfter != 0 {
			return Turn{}, errors.New("retry_after: needs an error")
		}
	case model.KindRateLimited, model.KindUnavailable, model.KindTimeout, model.KindAuthentication,
		model.KindInvalidRequest, model.KindContextOverflow, model.KindContentPolicy, model.KindMalformed:
		turn.Err = &model.Error{Kind: y.Error, RetryAfter: y.RetryAfter}
	default:
		return Turn{}, fmt.Errorf("error %q: not a kind of model failure", y.Error)
	}
	if y.Delay < 0 || y.RetryAfter < 0 || y.ChunkSize < 0 {
		return Turn{}, errors.New("delay, retry_after and chunk_size must not be negative")
	}
	return turn, nil
}

// parseDuration refuses bare numbers, which would be taken as nanoseconds.
func parseDuration(duration *time.Duration, text []byte) (err error) {
	var value string
	if err = yaml.Unmarshal(text, &value); err == nil {
		*duration, err = time.ParseDuration(value)
	}
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 100ms or 2s", bytes.TrimSpace(text))
	}
	return nil
}
