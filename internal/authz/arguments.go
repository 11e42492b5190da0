package authz

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
)

// maxDepth bounds the nesting of arguments, as the decoder of tool arguments
// does. Go cannot recover from a stack that is too deep.
const maxDepth = 64

// maxNested bounds the arrays and objects that are items of arrays. Cedar hashes
// a set as the sum of its items, so that unlike sets with one hash are easily
// made up, and a set of n of them takes n² comparisons.
const maxNested = 512

// The faults of arguments. What encoding/json says is not told: it quotes the
// text.
var (
	errArguments = errors.New("the arguments are not one canonical JSON object")
	errDepth     = fmt.Errorf("the arguments are nested more than %d levels deep", maxDepth)
	errNested    = fmt.Errorf("the arguments have more than %d arrays and objects as items of arrays", maxNested)
)

// convertArguments turns a JSON object into a Cedar record.
//
//   - true and false become Bool, strings String, objects Record. No object
//     becomes an entity, whatever its keys are.
//   - Integers of 64 bits become Long, all other numbers String, as written.
//   - Arrays become Set, which knows neither order nor how often a value occurs.
//   - null is left out, in objects and in arrays.
//
// Keys that occur twice are refused.
func convertArguments(raw json.RawMessage) (cedar.Record, error) {
	// Valid refuses some texts that a Decoder reads token by token.
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return cedar.Record{}, errArguments
	}
	c := converter{dec: json.NewDecoder(bytes.NewReader(raw))}
	c.dec.UseNumber()
	value, err := c.next(0)
	if err != nil {
		return cedar.Record{}, err
	}
	record, ok := value.(cedar.Record)
	if !ok {
		return cedar.Record{}, errArguments
	}
	return record, nil
}

type converter struct {
	dec *json.Decoder
	// nested counts arrays and objects that are items of arrays.
	nested int
}

// next converts one value. It returns nil for null.
func (c *converter) next(depth int) (cedar.Value, error) {
	token, err := c.dec.Token()
	if err != nil {
		return nil, errArguments
	}
	switch token := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, errDepth
		}
		if token == '[' {
			return c.array(depth + 1)
		}
		return c.object(depth + 1)
	case string:
		return cedar.String(token), nil
	case bool:
		return cedar.Boolean(token), nil
	case json.Number:
		if integer, err := strconv.ParseInt(string(token), 10, 64); err == nil {
			return cedar.Long(integer), nil
		}
		return cedar.String(token), nil
	default:
		return nil, nil
	}
}

func (c *converter) array(depth int) (cedar.Value, error) {
	var items []cedar.Value
	for c.dec.More() {
		item, err := c.next(depth)
		if err != nil {
			return nil, err
		}
		switch item.(type) {
		case nil:
			continue
		case cedar.Set, cedar.Record:
			if c.nested++; c.nested > maxNested {
				return nil, errNested
			}
		}
		items = append(items, item)
	}
	if _, err := c.dec.Token(); err != nil {
		return nil, errArguments
	}
	return cedar.NewSet(items...), nil
}

func (c *converter) object(depth int) (cedar.Value, error) {
	record := cedar.RecordMap{}
	seen := map[string]bool{}
	for c.dec.More() {
		token, err := c.dec.Token()
		key, ok := token.(string)
		if err != nil || !ok || seen[key] {
			return nil, errArguments
		}
		seen[key] = true
		value, err := c.next(depth)
		if err != nil {
			return nil, err
		}
		if value != nil {
			record[cedar.String(key)] = value
		}
	}
	if _, err := c.dec.Token(); err != nil {
		return nil, errArguments
	}
	return cedar.NewRecord(record), nil
}
