package authz

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
)

func TestConvertArguments(t *testing.T) {
	t.Parallel()
	type record = cedar.RecordMap
	for raw, want := range map[string]record{
		`{}`:                                {},
		`{"a":"x","b":true,"c":false}`:      {"a": cedar.String("x"), "b": cedar.True, "c": cedar.False},
		`{"n":0}`:                           {"n": cedar.Long(0)},
		`{"n":-9007199254740991}`:           {"n": cedar.Long(-9007199254740991)},
		`{"n":9223372036854775807}`:         {"n": cedar.Long(9223372036854775807)},
		`{"n":9223372036854775808}`:         {"n": cedar.String("9223372036854775808")},
		`{"n":1.5}`:                         {"n": cedar.String("1.5")},
		`{"n":1e+21}`:                       {"n": cedar.String("1e+21")},
		`{"n":1e-7}`:                        {"n": cedar.String("1e-7")},
		`{"a":null,"b":1}`:                  {"b": cedar.Long(1)},
		`{"a":[null,1,null]}`:               {"a": cedar.NewSet(cedar.Long(1))},
		`{"a":[]}`:                          {"a": cedar.NewSet()},
		`{"a":[3,1,3,"1",1.5]}`:             {"a": cedar.NewSet(cedar.String("1"), cedar.Long(1), cedar.Long(3), cedar.String("1.5"))},
		`{"a":[[1,2],[2,1]]}`:               {"a": cedar.NewSet(cedar.NewSet(cedar.Long(1), cedar.Long(2)))},
		`{"a":{"b":{"c":null}}}`:            {"a": cedar.NewRecord(record{"b": cedar.NewRecord(record{})})},
		`{"":"","é":"😀"}`:                   {"": cedar.String(""), "é": cedar.String("😀")},
		`{"e":{"__extn":{"fn":"ip"}}}`:      {"e": cedar.NewRecord(record{"__extn": cedar.NewRecord(record{"fn": cedar.String("ip")})})},
		`{"__entity":{"type":"T","id":""}}`: {"__entity": cedar.NewRecord(record{"type": cedar.String("T"), "id": cedar.String("")})},
	} {
		got, err := convertArguments(json.RawMessage(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		} else if !got.Equal(cedar.NewRecord(want)) {
			t.Errorf("%s: got %s, want %s", raw, got, cedar.NewRecord(want))
		}
	}
	// The deepest nesting that is allowed.
	if _, err := convertArguments(json.RawMessage(strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth))); err != nil {
		t.Errorf("%d levels: %v", maxDepth, err)
	}
}

// FuzzConvertArguments: a text is refused with an error that tells nothing of
// it, or it becomes a record that holds what encoding/json reads.
func FuzzConvertArguments(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":[1,1.5,null,"x",{"b":true}]}`, `{"a":1,"a":2}`, `{"a":{"__entity":{"type":"User","id":"acme/ann"}}}`,
		`[`, `{"a":1e999}`, `{"a":"\ud800"}`, "{\"\xff\":1}", `null`, `{"a":-0}`, `{"a":1}x`, strings.Repeat(`{"a":[`, 40),
	} {
		f.Add([]byte(seed))
	}
	p := load(f, map[string]string{"a.cedar": permitAll})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := convertArguments(raw)
		q := ask(Commit, nil)
		q.Arguments = append(json.RawMessage{}, raw...)
		if decided := p.Decide(q); (decided == nil) != (err == nil) || (err != nil && !errors.Is(decided, ErrUnavailable)) {
			t.Fatalf("converted with %v, decided %v", err, decided)
		}
		if err != nil {
			if !slices.Contains([]error{errArguments, errDepth, errNested}, err) {
				t.Fatalf("an error with a text of its own: %v", err)
			}
			return
		}
		dec := json.NewDecoder(strings.NewReader(string(raw)))
		dec.UseNumber()
		var want map[string]any
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("converted, but encoding/json says %v", err)
		}
		if got, want := renderCedar(got), renderJSON(want); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	})
}

// renderCedar and renderJSON write values down so that equal ones are equal
// text: sets as their sorted items, each once.
func renderCedar(value cedar.Value) string {
	switch value := value.(type) {
	case cedar.Record:
		members := map[string]string{}
		for key, member := range value.All() {
			members[string(key)] = renderCedar(member)
		}
		return renderMembers(members)
	case cedar.Set:
		var items []string
		for item := range value.All() {
			items = append(items, renderCedar(item))
		}
		return renderItems(items)
	case cedar.String:
		return strconv.Quote(string(value))
	default:
		return value.String()
	}
}

func renderJSON(value any) string {
	switch value := value.(type) {
	case map[string]any:
		members := map[string]string{}
		for key, member := range value {
			if member != nil {
				members[key] = renderJSON(member)
			}
		}
		return renderMembers(members)
	case []any:
		var items []string
		for _, item := range value {
			if item != nil {
				items = append(items, renderJSON(item))
			}
		}
		return renderItems(items)
	case json.Number:
		if integer, err := value.Int64(); err == nil {
			return strconv.FormatInt(integer, 10)
		}
		return strconv.Quote(string(value))
	case string:
		return strconv.Quote(value)
	default:
		return fmt.Sprint(value)
	}
}

func renderMembers(members map[string]string) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(members)) {
		fmt.Fprintf(&text, "%q:%s,", key, members[key])
	}
	return "{" + text.String() + "}"
}

func renderItems(items []string) string {
	slices.Sort(items)
	return "[" + strings.Join(slices.Compact(items), ",") + "]"
}

// TestCollisions has items of an array that all have one hash in Cedar, whose
// sets then take quadratic time.
func TestCollisions(t *testing.T) {
	t.Parallel()
	pairs := func(n int) json.RawMessage {
		items := make([]string, n)
		for i := range items {
			items[i] = fmt.Sprintf("[%d,%d]", i, 100000-i)
		}
		return json.RawMessage(`{"a":[` + strings.Join(items, ",") + `],"b":{}}`)
	}
	if got, err := convertArguments(pairs(maxNested)); err != nil {
		t.Errorf("%d pairs: %v", maxNested, err)
	} else if set, _ := got.Get("a"); set.(cedar.Set).Len() != maxNested {
		t.Errorf("%d pairs became %d", maxNested, set.(cedar.Set).Len())
	}
	if _, err := convertArguments(pairs(maxNested + 1)); !errors.Is(err, errNested) {
		t.Errorf("%d pairs: %v, want %v", maxNested+1, err, errNested)
	}
	// The limit counts over all arrays, and plain items do not count.
	half := strings.Repeat("[],", maxNested/2) + "[]"
	if _, err := convertArguments(json.RawMessage(`{"a":[` + half + `],"b":[` + half + `]}`)); !errors.Is(err, errNested) {
		t.Errorf("two arrays: %v, want %v", err, errNested)
	}
	if _, err := convertArguments(json.RawMessage(`{"a":[` + strings.Repeat(`1,"x",`, 5000) + `1]}`)); err != nil {
		t.Errorf("plain items: %v", err)
	}
}
