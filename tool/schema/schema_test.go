package schema_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tool/schema"
)

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ raw, want string }{
		"empty":                {"", "the text is empty"},
		"blank":                {" \n", "the text is empty"},
		"too long":             {`"` + strings.Repeat("x", 999) + `"`, "the text has 1001 bytes, the limit is 1000"},
		"invalid UTF-8":        {"{\"a\":\"\xef\xb8.\"}", "the text is not valid UTF-8"},
		"trailing value":       {`{} {}`, "not valid JSON: unexpected text at byte 4"},
		"trailing comma":       {`{"a":1,}`, "not valid JSON"},
		"cut off":              {`{"a":"b`, "ends too early"},
		"single quotes":        {`{'a':1}`, "not valid JSON: unexpected text at byte 2"},
		"comment":              {`{/*x*/}`, "not valid JSON"},
		"byte order mark":      {"\uFEFF{}", "not valid JSON"},
		"NaN":                  {`{"a":NaN}`, "not valid JSON"},
		"duplicate key":        {`{"a":1,"a":1}`, "the same key twice"},
		"escaped duplicate":    {`{"a":1,"\u0061":2}`, "the same key twice"},
		"deep duplicate":       {`[[{"x":{"b":1,"b":2}}]]`, "the same key twice"},
		"NUL escape":           {`{"a":"x\u0000"}`, "a NUL character at byte 7"},
		"NUL escape in key":    {`{"\u0000":1}`, "a NUL character at byte 2"},
		"lone high surrogate":  {`"\ud83d"`, "half of a surrogate pair"},
		"lone low surrogate":   {`"\ude00"`, "half of a surrogate pair"},
		"high then character":  {`"\ud83dx"`, "half of a surrogate pair"},
		"high then high":       {`"\ud83d\ud83d"`, "half of a surrogate pair"},
		"high then other":      {`"\ud83d\u0041"`, "half of a surrogate pair"},
		"escaped backslash":    {`"\\\udc00"`, "half of a surrogate pair"},
		"65 levels":            {strings.Repeat("[", 65) + strings.Repeat("]", 65), "nested more than 64 levels deep at byte 64"},
		"number out of range":  {`[1e309]`, "a number is out of range at byte 1"},
		"exponent bomb":        {`[1e-999999999]`, "a number is out of range"},
		"exponent overflow":    {`[0e99999999999999999999]`, "a number is out of range"},
		"number of 401 digits": {strings.Repeat("1", 401), "too many digits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := schema.Parse(tt.raw, 1000)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestParseAccepts(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		`null`, ` {"a":[1,{"a":2}]} `, `"\ud83d\ude00"`, `"\\ud83d"`, `"\\u0000"`, `"` + "\uFFFD" + `"`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64), `[1e308,-0,1E-300]`, `{"":1}`,
	} {
		if _, err := schema.Parse(raw, 1000); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ raw, want string }{
		"not JSON":        {`{`, "read schema"},
		"not an object":   {`true`, "must be a JSON object"},
		"other draft":     {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}`, "$schema must be"},
		"bad type":        {`{"type":"object","properties":{"a":{"type":"text"}}}`, "compile schema"},
		"bad regexp":      {`{"type":"object","properties":{"a":{"pattern":"("}}}`, "compile schema"},
		"network":         {`{"type":"object","properties":{"a":{"$ref":"https://example.com/x.json"}}}`, "load nothing"},
		"file":            {`{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`, "load nothing"},
		"dangling":        {`{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}`, "compile schema"},
		"network dialect": {`{"type":"object","properties":{"a":{"$id":"urn:x","$schema":"https://example.com/d"}}}`, "load nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, compile := range []func([]byte) (*schema.Schema, error){schema.Compile, schema.CompileArguments} {
				if _, err := compile([]byte(tt.raw)); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			}
		})
	}
}

func TestCompileArgumentsRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ raw, want string }{
		"no type":          {`{"properties":{}}`, `"type": "object"`},
		"array":            {`{"type":"array"}`, `"type": "object"`},
		"nullable":         {`{"type":["object","null"]}`, `"type": "object"`},
		"open":             {`{"type":"object","additionalProperties":true}`, "must be false or absent"},
		"open by schema":   {`{"type":"object","additionalProperties":{"type":"string"}}`, "must be false or absent"},
		"open unevaluated": {`{"type":"object","unevaluatedProperties":true}`, "must be false or absent"},
		"odd reference":    {`{"type":"object","properties":{"a":{"type":"string"},"b":{"$ref":"#/properties/a"}}}`, "must be # or #/$defs/name"},
		"dynamic":          {`{"type":"object","properties":{"a":{"$dynamicRef":"#"}}}`, "not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := schema.CompileArguments([]byte(tt.raw)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Each schema leaves additional fields unmentioned; each document in refused
// has one that nobody declared.
func TestArgumentsAreClosed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		raw               string
		accepted, refused []string
	}{
		"top level": {
			`{"type":"object","properties":{"a":{}}}`,
			[]string{`{}`, `{"a":1}`},
			[]string{`{"b":1}`, `{"a":1,"A":1}`},
		},
		"no properties at all": {
			`{"type":"object"}`, []string{`{}`}, []string{`{"a":1}`},
		},
		"nested": {
			`{"type":"object","properties":{"a":{"properties":{"x":{}}},"l":{"items":{"properties":{"y":{}}}},"t":{"prefixItems":[{"properties":{"z":{}}}]}}}`,
			[]string{`{"a":{"x":1},"l":[{"y":1}],"t":[{"z":1}]}`, `{"a":"not an object"}`},
			[]string{`{"a":{"y":1}}`, `{"l":[{"y":1},{"x":1}]}`, `{"t":[{"y":1}]}`},
		},
		"free-form map": {
			`{"type":"object","properties":{"labels":{"type":"object","additionalProperties":{"type":"string"}},"any":{"type":"object"},"open":{"properties":{"a":{}},"additionalProperties":true}}}`,
			[]string{`{"labels":{"k":"v"},"any":{"k":1},"open":{"a":1,"b":2}}`},
			[]string{`{"labels":{"k":1}}`},
		},
		"spread over allOf": {
			`{"type":"object","properties":{"a":{"allOf":[{"properties":{"x":{}}},{"properties":{"y":{}}}]}},"allOf":[{"properties":{"b":{}}}]}`,
			[]string{`{"a":{"x":1,"y":2},"b":1}`},
			[]string{`{"a":{"x":1,"z":2}}`, `{"c":1}`},
		},
		"reference": {
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/p"}},"$defs":{"p":{"type":"object","properties":{"x":{"properties":{"deep":{}}}}}}}`,
			[]string{`{"a":{"x":{"deep":1}}}`},
			[]string{`{"a":{"y":1}}`, `{"a":{"x":{"other":1}}}`},
		},
		"recursion": {
			`{"type":"object","properties":{"child":{"$ref":"#"}}}`,
			[]string{`{"child":{"child":{}}}`},
			[]string{`{"child":{"child":{"x":1}}}`},
		},
		"oneOf": {
			`{"type":"object","properties":{"a":{"oneOf":[{"properties":{"x":{}},"required":["x"]},{"properties":{"y":{}},"required":["y"]}]}}}`,
			[]string{`{"a":{"x":1}}`, `{"a":{"y":1}}`},
			[]string{`{"a":{"x":1,"z":1}}`, `{"a":{}}`},
		},
		"not is a question": {
			`{"type":"object","properties":{"a":{"not":{"properties":{"x":{"properties":{"y":{}}}},"required":["x"]}}}}`,
			[]string{`{"a":{"z":1}}`},
			[]string{`{"a":{"x":{"y":1,"z":1}}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := schema.CompileArguments([]byte(tt.raw))
			if err != nil {
				t.Fatal(err)
			}
			for _, doc := range tt.accepted {
				if err := s.Validate(parse(t, doc)); err != nil {
					t.Errorf("%s: %v", doc, err)
				}
			}
			for _, doc := range tt.refused {
				if err := s.Validate(parse(t, doc)); err == nil {
					t.Errorf("%s was accepted", doc)
				}
			}
		})
	}
}

func TestValidateExplains(t *testing.T) {
	t.Parallel()
	s, err := schema.CompileArguments([]byte(`{
		"type": "object",
		"required": ["service", "since"],
		"properties": {
			"service": {"type": "string", "maxLength": 5, "pattern": "^[a-z]+$"},
			"since":   {"type": "string", "format": "date"},
			"limit":   {"type": "integer", "minimum": 1, "maximum": 100},
			"level":   {"enum": ["info", "error"]},
			"labels":  {"type": "object", "additionalProperties": {"type": "string"}},
			"where":   {"type": "array", "items": {"type": "object", "properties": {"a/b": {"type": "boolean"}}}},
			"pick":    {"anyOf": [{"type": "string"}, {"type": "boolean"}]}
		}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	const ok = `"service":"web","since":"2026-01-02"`
	for doc, want := range map[string]string{
		`{}`:                     "at the top level: missing (required): service, since",
		`{` + ok + `,"limit":0}`: "at /limit: must be at least 1 (minimum)",
		`{` + ok + `,"limit":1000,"level":"hunter2"}`:   `at /level: must be one of (enum): "info", "error"; at /limit: must be at most 100 (maximum)`,
		`{` + ok + `,"limit":"hunter2"}`:                "at /limit: must be of type integer (type)",
		`{` + ok + `,"hunter2":1}`:                      "at the top level: unknown field (additionalProperties); known: labels, level, limit, pick, service, since, where",
		`{` + ok + `,"labels":{"hunter2":1}}`:           "at /labels/*: must be of type string (type)",
		`{` + ok + `,"labels":{"1234567890":1}}`:        "at /labels/*: must be of type string (type)",
		`{` + ok + `,"where":[{},{"a/b":"hunter2"}]}`:   "at /where/1/a~1b: must be of type boolean (type)",
		`{` + ok + `,"pick":17}`:                        "at /pick: does not fit (anyOf)",
		`{"service":"hunter2","since":"hunter2"}`:       "at /service: must have at most 5 characters (maxLength); at /service: must match ^[a-z]+$ (pattern); at /since: must be a valid date (format)",
		`{"service":1,"since":2,"limit":"x","level":3}`: `at /level: must be one of (enum): "info", "error"; at /limit: must be of type integer (type); at /service: must be of type string (type); and more`,
		`[]`: "at the top level: must be of type object (type)",
	} {
		// The library walks maps in random order: the text must not follow it.
		for range 20 {
			err := s.Validate(parse(t, doc))
			if err == nil || err.Error() != want {
				t.Fatalf("%s\n got %v\nwant %s", doc, err, want)
			}
		}
	}
}

func TestValidateMessageIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 400)
	s, err := schema.CompileArguments([]byte(`{"type":"object","required":["` + long + `","x"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(parse(t, `{}`)); len(err.Error()) > schema.MaxMessageBytes || !strings.HasSuffix(err.Error(), "é...") {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\ud83d\ude00"]}`, `"\`, `"\u00`, `{"a":1e5}`, "[\"\xff\"]"} {
		f.Add(seed)
	}
	s, err := schema.CompileArguments([]byte(`{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		value, err := schema.Parse(raw, 1<<16)
		if err != nil {
			return
		}
		if err := s.Validate(value); err != nil && len(err.Error()) > schema.MaxMessageBytes {
			t.Errorf("message of %d bytes", len(err.Error()))
		}
	})
}

func parse(t *testing.T, raw string) any {
	t.Helper()
	value, err := schema.Parse(raw, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
