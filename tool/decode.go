package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"

	"github.com/fairlead/fairlead/tool/schema"
)

// MaxArgumentBytes is the longest text of arguments that is read.
const MaxArgumentBytes = 64 << 10

// maxInteger is the largest integer that every JSON reader understands exactly
// (RFC 7493, 2^53-1).
const maxInteger = 1<<53 - 1

// Canonical reads exactly one JSON object and returns it in canonical form
// (RFC 8785), so that equal arguments are equal bytes and have an equal Hash.
//
// Everything that schema.Parse refuses is refused. So are numbers that would
// change: integers beyond ±(2^53-1), and decimals with more digits than a
// float64 holds. Such numbers belong into strings. Errors never repeat a piece
// of the text.
func Canonical(raw string, maxBytes int) (json.RawMessage, error) {
	value, err := schema.Parse(raw, maxBytes)
	if err != nil {
		return nil, err
	}
	if _, ok := value.(map[string]any); !ok {
		return nil, errors.New("a JSON object is expected")
	}
	if err := checkNumbers(value); err != nil {
		return nil, err
	}
	canonical, err := transform(raw)
	if err != nil {
		return nil, err
	}
	// A short number may have a long canonical form.
	if len(canonical) > maxBytes {
		return nil, fmt.Errorf("the canonical text has %d bytes, the limit is %d", len(canonical), maxBytes)
	}
	return canonical, nil
}

// transform guards the library: its errors quote the text, and a defect in it
// must not take the worker down.
func transform(raw string) (canonical json.RawMessage, err error) {
	defer func() {
		if recover() != nil {
			canonical, err = nil, errors.New("the text has no canonical form")
		}
	}()
	canonical, err = jcs.Transform([]byte(raw))
	if err != nil {
		return nil, errors.New("the text has no canonical form")
	}
	return canonical, nil
}

// Hash is the SHA-256 in hex of canonical arguments, or of the raw text where
// there is no canonical form.
func Hash(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// DecodeArgs decodes canonical arguments into a struct and refuses fields that
// the struct does not have. Field names are matched without regard to case, as
// encoding/json does; the schema has matched them exactly before.
func DecodeArgs[T any](raw json.RawMessage) (T, error) {
	var args T
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&args); err != nil {
		var zero T
		return zero, fmt.Errorf("decode arguments: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		var zero T
		return zero, errors.New("decode arguments: trailing data")
	}
	return args, nil
}

func checkNumbers(value any) error {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range value {
			if err := checkNumbers(field); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range value {
			if err := checkNumbers(item); err != nil {
				return err
			}
		}
	case json.Number:
		return checkLossless(string(value))
	}
	return nil
}

// checkLossless compares the decimal value of a token with the decimal value
// that its float64 is written as, which is what RFC 8785 puts in its place.
func checkLossless(token string) error {
	f, err := strconv.ParseFloat(token, 64)
	if err != nil {
		return errors.New("a number is out of range")
	}
	isInteger := !strings.ContainsAny(token, ".eE")
	// RFC 8785 writes values below 1e21 without an exponent: whatever their
	// form here, the next reader takes them for integers.
	if abs := max(f, -f); abs > maxInteger && (isInteger || abs < 1e21) {
		return fmt.Errorf("an integer is beyond ±%d: write it as a string", int64(maxInteger))
	}
	digits, exponent := decimal(token)
	gotDigits, gotExponent := decimal(strconv.FormatFloat(f, 'e', -1, 64))
	if digits != gotDigits || exponent != gotExponent {
		return errors.New("a number has more digits than can be kept: shorten it, or write it as a string")
	}
	return nil
}

// decimal splits a number into its significant digits, without zeros at either
// end, and the exponent that places the point before the first of them. The
// sign is left out: it is never lost, and -0 equals 0.
func decimal(token string) (digits string, exponent int) {
	mantissa, power, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(token, "-")), "e")
	if power != "" {
		// schema.Parse has bounded the exponent.
		exponent, _ = strconv.Atoi(power)
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	exponent += len(whole) - (len(whole) + len(fraction) - len(digits))
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		return "", 0
	}
	return digits, exponent
}
