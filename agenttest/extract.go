package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/internal/learning"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

// Statement is what an Extractor found in a message.
type Statement struct {
	Key string
	// Kind is the one that the memory policy gives the key if it is empty.
	Kind  agent.MemoryKind
	Value any
	// Quote are the user's words, character for character.
	Quote string
	// Retracts says that the user takes back what is remembered under the key.
	Retracts bool
}

// Extracts is an Extractor that finds statements in the messages that contain
// their quotes, and nothing in others; Extracts() finds nothing in any. A found
// statement that production would drop without a trace fails the test: it has no
// value or no quote, or a key that the memory policy does not have and no kind.
// With its kind such a key is proposed, and the policy rejects it.
func Extracts(statements ...Statement) scripted.Script {
	return func(ctx context.Context, req model.Request) (scripted.Turn, error) {
		var said struct{ Message string }
		if err := json.Unmarshal([]byte(req.Messages[0].Text), &said); err != nil {
			return scripted.Turn{}, fmt.Errorf("agenttest: the extractor cannot read what it is asked: %w", err)
		}
		found := []candidate{}
		for _, s := range statements {
			if !strings.Contains(said.Message, s.Quote) {
				continue
			}
			c, err := s.candidate(ctx, said.Message)
			if err == nil {
				found = append(found, c)
				continue
			}
			err = fmt.Errorf("agenttest: Extracts: the statement of the key %q: %w", s.Key, err)
			f, ok := ctx.Value(flightKey{}).(*flight)
			if !ok {
				return scripted.Turn{}, err
			}
			f.worker.run.t.Errorf("%v", err)
		}
		text, err := json.Marshal(map[string]any{"candidates": found})
		return scripted.Turn{Text: string(text)}, err
	}
}

// candidate is a statement as a model writes it.
type candidate struct {
	Kind     agent.MemoryKind `json:"kind"`
	Key      string           `json:"key"`
	Value    json.RawMessage  `json:"value"`
	Quote    string           `json:"quote"`
	From     *time.Time       `json:"valid_from"`
	Until    *time.Time       `json:"valid_until"`
	Retracts bool             `json:"retracts"`
}

// candidate is s with its kind, or an error if it would be dropped. said is what
// the extractor was shown of the message.
func (s Statement) candidate(ctx context.Context, said string) (candidate, error) {
	c := candidate{Kind: s.Kind, Key: s.Key, Quote: s.Quote, Retracts: s.Retracts}
	if f, ok := ctx.Value(flightKey{}).(*flight); ok && c.Kind == "" {
		spec, known := f.worker.run.suite.memoryPolicy.Key(s.Key)
		if !known {
			return c, errors.New("the memory policy has no such key; give its Kind, too, to see it rejected")
		}
		c.Kind = spec.Kind
	}
	var err error
	if c.Value, err = json.Marshal(s.Value); err != nil {
		return c, err
	}
	return c, learning.Check(said, learning.Proposal{Kind: c.Kind, Key: c.Key, Value: c.Value, Quote: c.Quote, Retracts: c.Retracts})
}

// asksExtractor reports whether a request asks what can be learned from a run,
// and is none of the agent's own.
func (s *Suite) asksExtractor(req model.Request) bool {
	var schema struct {
		Properties map[string]any `json:"properties"`
	}
	if strings.HasPrefix(req.System, s.config.Definition.System) || json.Unmarshal(req.FinalSchema, &schema) != nil {
		return false
	}
	_, asks := schema.Properties["candidates"]
	return asks && len(schema.Properties) == 1
}
