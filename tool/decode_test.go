package tool_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tool"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{}`:                              `{}`,
		" {\n \"b\" : 1 ,\t\"a\" : 2 } ":  `{"a":2,"b":1}`,
		`{"n":[1.0,-0,1e2,0.10,1E-7]}`:    `{"n":[1,0,100,0.1,1e-7]}`,
		`{"n":9007199254740991}`:          `{"n":9007199254740991}`,
		`{"n":6.022e23}`:                  `{"n":6.022e+23}`,
		`{"n":0.00000000000000000000e90}`: `{"n":0}`,
		`{"s":"\u0041\/\u20ac\u000f\n<"}`: `{"s":"A/€\u000f\n<"}`,
		`{"\ud83d\ude00":1,"\ufb33":2}`:   "{\"😀\":1,\"\ufb33\":2}", // UTF-16 order, not UTF-8
		`{"a":{"y":[],"x":null}}`:         `{"a":{"x":null,"y":[]}}`,
	} {
		got, err := tool.Canonical(raw, 1000)
		if err != nil || string(got) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", raw, got, err, want)
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`[]`:                             "a JSON object is expected",
		`null`:                           "a JSON object is expected",
		`"x"`:                            "a JSON object is expected",
		``:                               "the text is empty",
		`{"a":1,"a":2}`:                  "the same key twice",
		`{}x`:                            "not valid JSON",
		`{"n":9007199254740992}`:         "write it as a string",
		`{"n":-9007199254740992}`:        "write it as a string",
		`{"n":9007199254740993.0}`:       "write it as a string",
		`{"n":1e20}`:                     "write it as a string", // would be written without exponent
		`{"n":1000000000000000000000}`:   "write it as a string",
		`{"n":1e400}`:                    "out of range",
		`{"n":1e-400}`:                   "more digits than can be kept",
		`{"n":0.1000000000000000055511}`: "more digits than can be kept",
		`{"n":4503599627370497.25}`:      "more digits than can be kept",
		`{"s":"` + strings.Repeat("x", 1000) + `"}`: "the limit is 1000",
	} {
		if got, err := tool.Canonical(raw, 1000); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %s, %v, want %q", raw, got, err, want)
		}
	}
	// 1e15 is written in 16 digits.
	raw := `{"n":[` + strings.TrimSuffix(strings.Repeat("1e15,", 100), ",") + `]}`
	if _, err := tool.Canonical(raw, len(raw)); err == nil || !strings.Contains(err.Error(), "canonical text has") {
		t.Errorf("an expanding text: %v", err)
	}
}

func TestHash(t *testing.T) {
	t.Parallel()
	// printf '{"a":1}' | sha256sum
	const want = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
	if got := tool.Hash([]byte(`{"a":1}`)); got != want {
		t.Errorf("got %s", got)
	}
}

func TestDecodeArgs(t *testing.T) {
	t.Parallel()
	type args struct {
		Service string `json:"service"`
	}
	if got, err := tool.DecodeArgs[args](json.RawMessage(`{"service":"web"}`)); err != nil || got.Service != "web" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, raw := range []string{`{"service":"web","x":1}`, `{"service":1}`, `{} {}`, `{}x`, ``} {
		if got, err := tool.DecodeArgs[args](json.RawMessage(raw)); err == nil || got != (args{}) {
			t.Errorf("%s: got %v, %v", raw, got, err)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1,2.50,-0],"a":{"\u00e9":"\ud83d\ude00"}}`, `{"a":1,"a":1}`, `{"n":1e20}`, `{"n":123456789012345678}`,
		`{"s":"\u0000"}`, "{\"s\":\"\xff\"}", `{"n":5e-324,"m":1.7976931348623157e308}`, `{"a":[[[[]]]]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		const limit = 1 << 16
		canonical, err := tool.Canonical(raw, limit)
		if err != nil {
			return
		}
		again, err := tool.Canonical(string(canonical), limit)
		if err != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("not idempotent: %q, then %q, %v", canonical, again, err)
		}
		if bytes.IndexByte(canonical, 0) >= 0 || bytes.Contains(canonical, []byte(`\u0000`)) && !bytes.Contains(canonical, []byte(`\\u0000`)) {
			t.Fatalf("NUL in %q", canonical)
		}
		var before, after any
		if err := json.Unmarshal([]byte(raw), &before); err != nil {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		if err := json.Unmarshal(canonical, &after); err != nil {
			t.Fatalf("canonical form is not JSON: %v", err)
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("meaning changed: %q became %q", raw, canonical)
		}
	})
}
