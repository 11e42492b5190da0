package activities

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// memoryText says a memory in one line, for the index:
// "preference.food: Chinese food, likes". An object's fields come in the order of
// its canonical form; of a field that is true or false its name is said.
func memoryText(key string, value json.RawMessage) string {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	var parts []string
	for {
		token, err := dec.Token()
		if err != nil {
			break
		}
		parts = append(parts, said(dec, token, "")...)
	}
	return key + ": " + strings.Join(parts, ", ")
}

// said are the words of the value that begins with token, which is field's.
func said(dec *json.Decoder, token json.Token, field string) (parts []string) {
	switch token := token.(type) {
	case json.Delim:
		for dec.More() {
			name := field
			if token == '{' {
				key, err := dec.Token()
				if err != nil {
					return parts
				}
				name, _ = key.(string)
			}
			next, err := dec.Token()
			if err != nil {
				return parts
			}
			parts = append(parts, said(dec, next, name)...)
		}
		_, _ = dec.Token() // the end of it
	case string:
		parts = append(parts, token)
	case json.Number:
		parts = append(parts, token.String())
	case bool:
		switch {
		case field == "":
			parts = append(parts, strconv.FormatBool(token))
		case token:
			parts = append(parts, field)
		default:
			parts = append(parts, "not "+field)
		}
	}
	return parts
}
