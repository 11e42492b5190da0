package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

// Fact is a value that a result settles.
type Fact struct{ Key, Value string }

// Facts reads the declared facts from the full content of a successful JSON
// result. A string, a boolean, or a number in the digits of the result becomes
// a value. What is absent, of another type, or not a value by
// agent.ValidFactValue is left out; so is everything if content is not one JSON
// value.
func Facts(specs []tool.Fact, content []byte) []Fact {
	if len(specs) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.UseNumber()
	var document any
	if dec.Decode(&document) != nil {
		return nil
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil
	}
	var facts []Fact
	for _, spec := range specs {
		at, found := follow(document, spec.Pointer)
		if !found {
			continue
		}
		var value string
		switch at := at.(type) {
		case string:
			value = at
		case json.Number:
			value = at.String()
		case bool:
			value = strconv.FormatBool(at)
		}
		if agent.ValidFactKey(spec.Key) && agent.ValidFactValue(value) {
			facts = append(facts, Fact{spec.Key, value})
		}
	}
	return facts
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// follow evaluates a JSON Pointer (RFC 6901).
func follow(value any, pointer string) (any, bool) {
	if pointer == "" {
		return value, true
	}
	if pointer[0] != '/' {
		return nil, false
	}
	for _, token := range strings.Split(pointer[1:], "/") {
		switch holder := value.(type) {
		case map[string]any:
			field, ok := holder[unescape.Replace(token)]
			if !ok {
				return nil, false
			}
			value = field
		case []any:
			i, ok := index(token)
			if !ok || i >= len(holder) {
				return nil, false
			}
			value = holder[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// index reads an array index: digits without a zero before them.
func index(token string) (int, bool) {
	if token == "" || len(token) > 9 || token[0] == '0' && token != "0" || strings.Trim(token, "0123456789") != "" {
		return 0, false
	}
	i, err := strconv.Atoi(token)
	return i, err == nil
}
