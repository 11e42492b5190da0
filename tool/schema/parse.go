// Package schema reads strict JSON and checks it against JSON Schema 2020-12.
// Schemas load nothing from the network or from files, and what is reported
// about a document never repeats what stands in it.
//
// The package imports nothing else of fairlead. Package tool uses it for
// arguments, package definition for final answers.
package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deeply arrays and objects may be nested in a document.
const MaxDepth = 64

// maxNumberBytes and maxExponent keep a number from costing more to compute
// with than to read: 1e1000000000 has a billion digits as a rational.
const (
	maxNumberBytes = 400
	maxExponent    = 400
)

// Parse reads exactly one JSON value of at most maxBytes bytes. Objects become
// map[string]any, arrays []any, numbers json.Number.
//
// It refuses what parsers disagree about or PostgreSQL cannot store: duplicate
// keys at any depth, trailing data, invalid UTF-8, escapes of lone surrogates,
// NUL, nesting beyond MaxDepth, and numbers beyond the range of a float64.
// Errors give a byte offset where there is one, never a piece of the text.
func Parse(raw string, maxBytes int) (any, error) {
	if len(raw) > maxBytes {
		return nil, fmt.Errorf("the text has %d bytes, the limit is %d", len(raw), maxBytes)
	}
	if !utf8.ValidString(raw) {
		return nil, errors.New("the text is not valid UTF-8")
	}
	if strings.Trim(raw, " \t\r\n") == "" {
		return nil, errors.New("the text is empty")
	}
	if err := syntax(raw); err != nil {
		return nil, err
	}
	if err := checkEscapes(raw); err != nil {
		return nil, err
	}
	p := parser{dec: json.NewDecoder(strings.NewReader(raw))}
	p.dec.UseNumber()
	return p.value(0)
}

// syntax reports the first offset at which raw is not one JSON value. The
// standard library's own message is not used because it quotes the text.
func syntax(raw string) error {
	if json.Valid([]byte(raw)) {
		return nil
	}
	var discard json.RawMessage
	err := json.Unmarshal([]byte(raw), &discard)
	var bad *json.SyntaxError
	if errors.As(err, &bad) {
		if bad.Offset >= int64(len(raw)) {
			return fmt.Errorf("not valid JSON: the text ends too early or breaks off at byte %d", bad.Offset)
		}
		return fmt.Errorf("not valid JSON: unexpected text at byte %d", bad.Offset)
	}
	return errors.New("not valid JSON")
}

// checkEscapes looks at every \u escape of a syntactically valid document, in
// which a backslash occurs inside strings only. encoding/json would turn a lone
// surrogate into U+FFFD without a word.
func checkEscapes(raw string) error {
	for i := 0; i < len(raw); i++ {
		if raw[i] == 0 {
			return fmt.Errorf("a NUL character at byte %d is not allowed", i)
		}
		if raw[i] != '\\' {
			continue
		}
		i++ // the escaped character
		if raw[i] != 'u' {
			continue
		}
		unit := hex4(raw[i+1:])
		switch {
		case unit == 0:
			return fmt.Errorf("a NUL character at byte %d is not allowed", i-1)
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return fmt.Errorf("the escape at byte %d is half of a surrogate pair", i-1)
		case unit >= 0xD800 && unit <= 0xDBFF:
			rest := raw[i+5:]
			if !strings.HasPrefix(rest, `\u`) {
				return fmt.Errorf("the escape at byte %d is half of a surrogate pair", i-1)
			}
			if low := hex4(rest[2:]); low < 0xDC00 || low > 0xDFFF {
				return fmt.Errorf("the escape at byte %d is half of a surrogate pair", i-1)
			}
			i += 6
		}
		i += 4
	}
	return nil
}

// hex4 reads four hexadecimal digits that the caller knows to be there.
func hex4(s string) int64 {
	unit, err := strconv.ParseInt(s[:4], 16, 32)
	if err != nil {
		return -1
	}
	return unit
}

// parser builds values from tokens, because only there are duplicate keys seen.
type parser struct{ dec *json.Decoder }

func (p parser) value(depth int) (any, error) {
	token, err := p.dec.Token()
	if err != nil {
		return nil, fmt.Errorf("not valid JSON near byte %d", p.dec.InputOffset())
	}
	switch token := token.(type) {
	case json.Delim:
		if depth == MaxDepth {
			return nil, fmt.Errorf("nested more than %d levels deep at byte %d", MaxDepth, p.dec.InputOffset()-1)
		}
		if token == '[' {
			return p.array(depth + 1)
		}
		return p.object(depth + 1)
	case json.Number:
		if err := checkNumber(string(token)); err != nil {
			return nil, fmt.Errorf("%w at byte %d", err, p.dec.InputOffset()-int64(len(token)))
		}
		return token, nil
	default:
		return token, nil
	}
}

func (p parser) array(depth int) (any, error) {
	items := []any{}
	for p.dec.More() {
		item, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := p.dec.Token()
	return items, err
}

func (p parser) object(depth int) (any, error) {
	fields := map[string]any{}
	for p.dec.More() {
		token, err := p.dec.Token()
		if err != nil {
			return nil, fmt.Errorf("not valid JSON near byte %d", p.dec.InputOffset())
		}
		key, ok := token.(string)
		if !ok {
			return nil, fmt.Errorf("not valid JSON near byte %d", p.dec.InputOffset())
		}
		if _, duplicate := fields[key]; duplicate {
			return nil, fmt.Errorf("an object has the same key twice, the second time before byte %d", p.dec.InputOffset())
		}
		if fields[key], err = p.value(depth); err != nil {
			return nil, err
		}
	}
	_, err := p.dec.Token()
	return fields, err
}

func checkNumber(token string) error {
	if len(token) > maxNumberBytes {
		return errors.New("a number has too many digits")
	}
	if i := strings.IndexAny(token, "eE"); i >= 0 {
		if exponent, err := strconv.Atoi(token[i+1:]); err != nil || exponent > maxExponent || exponent < -maxExponent {
			return errors.New("a number is out of range")
		}
	}
	if f, err := strconv.ParseFloat(token, 64); err != nil || math.IsInf(f, 0) {
		return errors.New("a number is out of range")
	}
	return nil
}
