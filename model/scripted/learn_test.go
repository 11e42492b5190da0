package scripted_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

// lessonSchema is what tells such a request from any other; internal/learning
// tests that it makes requests which are recognized.
const lessonSchema = `{"type":"object","properties":{"candidates":{"type":"array","items":{"properties":{"kind":{},"key":{"enum":["a.b","c.d"]},"value":{},"quote":{"type":"string"}}}}}}`

func lesson(message string) model.Request {
	text, err := json.Marshal(map[string]string{"said_at": "2026-03-02T10:30:05Z", "message": message})
	if err != nil {
		panic(err)
	}
	return model.Request{FinalSchema: json.RawMessage(lessonSchema), Messages: []model.Message{{Role: model.RoleUser, Text: string(text)}}}
}

func TestLessonOf(t *testing.T) {
	t.Parallel()
	got, ok := scripted.LessonOf(lesson("I like tea"))
	want := scripted.Lesson{SaidAt: time.Date(2026, 3, 2, 10, 30, 5, 0, time.UTC), Message: "I like tea", Keys: []string{"a.b", "c.d"}}
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %t", got, ok)
	}
	for name, req := range map[string]model.Request{
		"a run":         conversation(),
		"no schema":     {Messages: lesson("x").Messages},
		"other schema":  {FinalSchema: json.RawMessage(`{"properties":{"summary":{}}}`), Messages: lesson("x").Messages},
		"no quote":      {FinalSchema: json.RawMessage(strings.Replace(lessonSchema, `"quote"`, `"text"`, 1)), Messages: lesson("x").Messages},
		"no key":        {FinalSchema: json.RawMessage(strings.Replace(lessonSchema, `["a.b","c.d"]`, `[]`, 1)), Messages: lesson("x").Messages},
		"other message": {FinalSchema: json.RawMessage(lessonSchema), Messages: []model.Message{{Role: model.RoleUser, Text: "hello"}}},
	} {
		if _, ok := scripted.LessonOf(req); ok {
			t.Errorf("%s is taken for a lesson", name)
		}
	}
}

func TestLearn(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	turn, err := scripted.Learn(
		scripted.Learned{Kind: "profile_preference", Key: "a.b", Value: map[string]any{"item": "<tea>"}, Quote: "I like <tea>", ValidUntil: &until},
		scripted.Learned{Kind: "ongoing_task", Key: "c.d", Quote: "no more", Retracts: true},
	)
	want := `{"candidates":[{"kind":"profile_preference","key":"a.b","value":{"item":"<tea>"},"quote":"I like <tea>","valid_from":null,"valid_until":"2026-04-01T00:00:00Z","retracts":false},` +
		`{"kind":"ongoing_task","key":"c.d","value":null,"quote":"no more","valid_from":null,"valid_until":null,"retracts":true}]}`
	if err != nil || turn.Text != want {
		t.Errorf("got %s, %v", turn.Text, err)
	}
	if turn, err := scripted.Learn(); err != nil || turn.Text != `{"candidates":[]}` {
		t.Errorf("nothing learned: %s, %v", turn.Text, err)
	}
	if _, err := scripted.Learn(scripted.Learned{Value: math.NaN()}); err == nil {
		t.Error("a value that is no JSON was taken")
	}
}

func TestYAMLLearns(t *testing.T) {
	t.Parallel()
	script, err := scripted.ParseYAML([]byte(`
scenarios:
  - match: tea
    turns: [{text: "Tea it is."}]
    learns:
      - {kind: profile_preference, key: preference.food, value: {item: tea, sentiment: likes}, quote: "I like TEA", valid_until: 2026-04-01T00:00:00Z}
      - {kind: ongoing_task, key: task.current, retracts: true}
  - match: ""
    turns: [{text: Noted.}]
`))
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		"I like TEA.": `{"candidates":[{"kind":"profile_preference","key":"preference.food","value":{"item":"tea","sentiment":"likes"},"quote":"I like TEA","valid_from":null,"valid_until":"2026-04-01T00:00:00Z","retracts":false},` +
			`{"kind":"ongoing_task","key":"task.current","value":null,"quote":"I like TEA.","valid_from":null,"valid_until":null,"retracts":true}]}`,
		"I like cake.": `{"candidates":[]}`,
	} {
		if turn, err := script(t.Context(), lesson(message)); err != nil || turn.Text != want {
			t.Errorf("%s: got %s, %v", message, turn.Text, err)
		}
	}
	// A run about the same is answered by the turns.
	turn, err := script(t.Context(), model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "I like tea"}}})
	if err != nil || turn.Text != "Tea it is." {
		t.Errorf("got %q, %v", turn.Text, err)
	}
	if _, err := scripted.ParseYAML([]byte("scenarios:\n  - match: a\n    turns: [{text: b}]\n    learns: [{kind: x}]\n")); err == nil || !strings.Contains(err.Error(), "learns: entry 1") {
		t.Errorf("no key: %v", err)
	}
}
