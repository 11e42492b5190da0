package scripted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/model"
)

// Lesson is what a request asks that wants to know what of a user's message is
// worth remembering. It has a form of its own, which no run of an agent has.
type Lesson struct {
	// SaidAt is when the message was written.
	SaidAt time.Time `json:"said_at"`
	// Message is what the user said, with U+FFFC in place of each part that was
	// quoted or pasted.
	Message string `json:"message"`
	// Keys are those that may be proposed.
	Keys []string `json:"-"`
}

// Learned is one thing that is worth remembering.
type Learned struct {
	// Kind and Key are of the memory policy's registry, such as profile_preference
	// and preference.food.
	Kind string `json:"kind"`
	Key  string `json:"key"`
	// Value is what the key's schema accepts, nil with Retracts.
	Value any `json:"value"`
	// Quote are the user's words that say so, byte for byte.
	Quote string `json:"quote"`
	// ValidFrom and ValidUntil bound when it is true; nil is unbounded.
	ValidFrom  *time.Time `json:"valid_from"`
	ValidUntil *time.Time `json:"valid_until"`
	// Retracts says that what is remembered under the key is taken back.
	Retracts bool `json:"retracts"`
}

// LessonOf returns what a request asks to learn from; ok is false for every other
// request.
func LessonOf(req model.Request) (lesson Lesson, ok bool) {
	var schema struct {
		Properties struct {
			Candidates struct {
				Items struct {
					Properties struct {
						Key struct {
							Enum []string `json:"enum"`
						} `json:"key"`
						Quote json.RawMessage `json:"quote"`
					} `json:"properties"`
				} `json:"items"`
			} `json:"candidates"`
		} `json:"properties"`
	}
	if json.Unmarshal(req.FinalSchema, &schema) != nil {
		return Lesson{}, false
	}
	candidate := schema.Properties.Candidates.Items.Properties
	if candidate.Quote == nil || len(candidate.Key.Enum) == 0 || json.Unmarshal([]byte(LastUser(req)), &lesson) != nil {
		return Lesson{}, false
	}
	lesson.Keys = candidate.Key.Enum
	return lesson, true
}

// Learn is the answer to a Lesson. Without anything learned there is nothing worth
// remembering.
func Learn(learned ...Learned) (Turn, error) {
	if learned == nil {
		learned = []Learned{}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(map[string][]Learned{"candidates": learned}); err != nil {
		return Turn{}, fmt.Errorf("script learns a value that is not JSON: %w", err)
	}
	return Turn{Text: strings.TrimSpace(text.String())}, nil
}
