package definition

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/tool/schema"
)

// MaxFinalBytes is the longest final answer.
const MaxFinalBytes = 1 << 20

// compiled caches schemas by their text. Their number is that of the
// definitions a worker has served.
var compiled sync.Map // string to *schema.Schema

// ValidateFinal reports whether text is a valid final answer (RUN-5): not
// blank, and where the definition has a FinalSchema, exactly one JSON value
// that satisfies it, without a code fence or text around it. The error is safe
// to show to the model for correction: it names places and keywords, never
// values. It is safe for concurrent use.
func ValidateFinal(d Definition, text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New("the final answer is empty")
	}
	if len(text) > MaxFinalBytes {
		return fmt.Errorf("the final answer has %d bytes, the limit is %d", len(text), MaxFinalBytes)
	}
	if len(d.FinalSchema) == 0 {
		return nil
	}
	value, err := schema.Parse(text, MaxFinalBytes)
	if err != nil {
		return fmt.Errorf("the final answer cannot be read as JSON: %w", err)
	}
	s, err := finalSchema(d)
	if err != nil {
		return err
	}
	if err := s.Validate(value); err != nil {
		return fmt.Errorf("the final answer does not fit: %w", err)
	}
	return nil
}

func finalSchema(d Definition) (*schema.Schema, error) {
	key := string(d.FinalSchema)
	if s, ok := compiled.Load(key); ok {
		return s.(*schema.Schema), nil
	}
	s, err := schema.Compile(d.FinalSchema)
	if err != nil {
		return nil, fmt.Errorf("final_schema: %w", err)
	}
	compiled.Store(key, s)
	return s, nil
}
