package model

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
)

// Mode says how the calls of a model are executed.
type Mode string

// The closed set of modes.
const (
	// ModeQueued runs each call as an activity on a task queue, with heartbeat
	// and cancellation. It is the default and right for every real provider.
	ModeQueued Mode = "queued"
	// ModeLocal runs each call inside the workflow's worker: for tests, evals
	// and models that answer within milliseconds.
	ModeLocal Mode = "local"
)

// DefaultTimeout bounds one attempt on a model whose entry sets no timeout.
const DefaultTimeout = 2 * time.Minute

const (
	maxTimeout = time.Hour
	// maxTokens and maxPrice only catch slips of the keyboard, such as a price
	// in dollars per token or a window in bytes.
	maxTokens = 100_000_000
	maxPrice  = 100_000_000_000 // 100,000 dollars per million tokens
)

// Entry describes one model (MODEL-3).
type Entry struct {
	// Name is what agent definitions say.
	Name string `yaml:"name"`
	// Provider is the key of the adapter, such as "openai" or "scripted".
	Provider string `yaml:"provider"`
	// Model is the provider's name of the model, as sent on the wire.
	Model string `yaml:"model"`
	// Revision is the exact model that is expected to answer. It is
	// informational: what did answer is in Response.Revision.
	Revision string `yaml:"revision"`
	// ContextWindow is the number of tokens that input and output share.
	ContextWindow int64 `yaml:"context_window"`
	// MaxOutputTokens is the longest response, in tokens.
	MaxOutputTokens int64 `yaml:"max_output_tokens"`
	// InputPrice, CachedInputPrice and OutputPrice are in micro-dollars per
	// million tokens: 2.50 dollars is 2500000. Nil is unknown, not free; a
	// model has both an input and an output price or neither. Without a
	// CachedInputPrice cached tokens cost InputPrice.
	InputPrice       *int64 `yaml:"input_price"`
	CachedInputPrice *int64 `yaml:"cached_input_price"`
	OutputPrice      *int64 `yaml:"output_price"`
	// Tokenizer is the vocabulary that prompts are counted by: one of
	// Tokenizers. Empty means that none of them is the model's; then tokens are
	// estimated high.
	Tokenizer string `yaml:"tokenizer"`
	// Mode is ModeQueued if it was left out.
	Mode Mode `yaml:"mode"`
	// Timeout bounds one attempt; DefaultTimeout if it was left out.
	Timeout time.Duration `yaml:"timeout"`
}

// Tokenizers returns the names that Entry.Tokenizer may have, the usual ones
// first.
func Tokenizers() []string {
	return []string{"o200k_base", "cl100k_base", "p50k_base", "p50k_edit", "r50k_base"}
}

// Priced reports whether the cost of a call on e is known.
func (e Entry) Priced() bool { return e.InputPrice != nil && e.OutputPrice != nil }

// Cost returns what u costs in micro-dollars. The exact sum is rounded up once,
// and a sum beyond int64 is math.MaxInt64. priced is false, and micros zero,
// when e has no price: the cost is unknown.
func (e Entry) Cost(u Usage) (micros int64, priced bool) {
	if !e.Priced() {
		return 0, false
	}
	cachedPrice := *e.InputPrice
	if e.CachedInputPrice != nil {
		cachedPrice = *e.CachedInputPrice
	}
	input := max(u.InputTokens, 0)
	cached := min(max(u.CachedInputTokens, 0), input)

	var sum wide
	sum.addProduct(input-cached, *e.InputPrice)
	sum.addProduct(cached, cachedPrice)
	sum.addProduct(max(u.OutputTokens, 0), *e.OutputPrice)
	return sum.ceilDiv(1_000_000), true
}

// CostOf returns the cost of a call before it is made, in micro-dollars, with
// no input cached. It never is less than what Cost returns for the same tokens.
func (e Entry) CostOf(inputTokens, outputTokens int64) (micros int64, priced bool) {
	if e.Priced() && e.CachedInputPrice != nil && *e.CachedInputPrice > *e.InputPrice {
		return e.Cost(Usage{InputTokens: inputTokens, CachedInputTokens: inputTokens, OutputTokens: outputTokens})
	}
	return e.Cost(Usage{InputTokens: inputTokens, OutputTokens: outputTokens})
}

// wide is an unsigned 128-bit sum: three products of non-negative int64 fit.
type wide struct{ hi, lo uint64 }

func (w *wide) addProduct(a, b int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, _ = bits.Add64(w.hi, hi, carry)
}

func (w *wide) ceilDiv(by uint64) int64 {
	if w.hi >= by {
		return math.MaxInt64
	}
	quotient, rest := bits.Div64(w.hi, w.lo, by)
	if rest > 0 {
		quotient++
	}
	return int64(min(quotient, math.MaxInt64))
}

var (
	namePattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}$`)
	providerPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
)

// complete fills in defaults and refuses what is out of range.
func (e Entry) complete() (Entry, error) {
	if !namePattern.MatchString(e.Name) {
		return Entry{}, fmt.Errorf("name %q: must be 1 to 128 ASCII letters, digits or . _ : @ / - and begin with a letter or digit", e.Name)
	}
	fail := func(format string, args ...any) (Entry, error) {
		return Entry{}, fmt.Errorf("model %q: %s", e.Name, fmt.Sprintf(format, args...))
	}
	if !providerPattern.MatchString(e.Provider) {
		return fail("provider %q: must be 1 to 32 lower-case letters, digits, _ or -, such as openai", e.Provider)
	}
	if e.Model == "" || len(e.Model) > 256 {
		return fail("model: must be the provider's name of the model, 1 to 256 bytes")
	}
	if e.ContextWindow < 1 || e.ContextWindow > maxTokens {
		return fail("context_window is %d: must be 1 to %d tokens", e.ContextWindow, maxTokens)
	}
	if e.MaxOutputTokens < 1 || e.MaxOutputTokens > e.ContextWindow {
		return fail("max_output_tokens is %d: must be 1 to context_window (%d)", e.MaxOutputTokens, e.ContextWindow)
	}
	if (e.InputPrice == nil) != (e.OutputPrice == nil) {
		return fail("input_price and output_price: give both, or neither if the price is unknown")
	}
	if e.CachedInputPrice != nil && e.InputPrice == nil {
		return fail("cached_input_price: needs an input_price")
	}
	for _, price := range []struct {
		name  string
		value *int64
	}{{"input_price", e.InputPrice}, {"cached_input_price", e.CachedInputPrice}, {"output_price", e.OutputPrice}} {
		if price.value != nil && (*price.value < 0 || *price.value > maxPrice) {
			return fail("%s is %d: must be 0 to %d micro-dollars per million tokens", price.name, *price.value, int64(maxPrice))
		}
	}
	if e.Tokenizer != "" && !slices.Contains(Tokenizers(), e.Tokenizer) {
		return fail("tokenizer %q: must be one of %s, or be left out so that tokens are estimated high",
			e.Tokenizer, strings.Join(Tokenizers(), ", "))
	}
	switch e.Mode {
	case "":
		e.Mode = ModeQueued
	case ModeQueued, ModeLocal:
	default:
		return fail("mode %q: must be %q or %q", e.Mode, ModeQueued, ModeLocal)
	}
	if e.Timeout == 0 {
		e.Timeout = DefaultTimeout
	}
	if e.Timeout < 0 || e.Timeout > maxTimeout {
		return fail("timeout is %s: must be above 0 and at most %s", e.Timeout, maxTimeout)
	}
	return e, nil
}

// Catalogue is an immutable set of entries with unique names. The zero value is
// empty.
type Catalogue struct{ entries []Entry }

// ParseCatalogue reads a catalogue in YAML: a list under the key "models", with
// the keys of Entry. Unknown keys, duplicates and values out of range are errors.
func ParseCatalogue(text []byte) (Catalogue, error) {
	var file struct {
		Models []Entry `yaml:"models"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict(),
		yaml.CustomUnmarshaler(parseWhole), yaml.CustomUnmarshaler(parseTimeout))
	if err := decoder.Decode(&file); err != nil {
		if errors.Is(err, io.EOF) {
			return Catalogue{}, errors.New("parse model catalogue: it is empty, models: is missing")
		}
		return Catalogue{}, fmt.Errorf("parse model catalogue: %w", err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return Catalogue{}, errors.New("parse model catalogue: more than one YAML document")
	}
	if len(file.Models) == 0 {
		return Catalogue{}, errors.New("parse model catalogue: models: lists no model")
	}
	var catalogue Catalogue
	for _, entry := range file.Models {
		var err error
		if catalogue, err = catalogue.With(entry); err != nil {
			return Catalogue{}, fmt.Errorf("parse model catalogue: %w", err)
		}
	}
	return catalogue, nil
}

// parseWhole refuses fractions, which the YAML library would cut off: a price of
// 2.5, meant in dollars, would become 2 micro-dollars.
func parseWhole(number *int64, text []byte) (err error) {
	if *number, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil {
		return fmt.Errorf("%q is not a whole number", bytes.TrimSpace(text))
	}
	return nil
}

// parseTimeout refuses bare numbers, which would be taken as nanoseconds.
func parseTimeout(timeout *time.Duration, text []byte) (err error) {
	var value string
	if err = yaml.Unmarshal(text, &value); err == nil {
		*timeout, err = time.ParseDuration(value)
	}
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 90s or 2m", bytes.TrimSpace(text))
	}
	return nil
}

//go:embed catalogue.yaml
var defaultCatalogue []byte

// DefaultCatalogue returns the catalogue that ships with the package: the
// scripted models and a few well-known ones.
var DefaultCatalogue = sync.OnceValue(func() Catalogue {
	catalogue, err := ParseCatalogue(defaultCatalogue)
	if err != nil {
		panic(err) // embedded, and parsed by a test
	}
	return catalogue
})

// Lookup returns the entry of that name.
func (c Catalogue) Lookup(name string) (Entry, bool) {
	i := slices.IndexFunc(c.entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return Entry{}, false
	}
	return c.entries[i], true
}

// Names returns the names of all entries, in the order of the catalogue.
func (c Catalogue) Names() []string {
	names := make([]string, len(c.entries))
	for i, e := range c.entries {
		names[i] = e.Name
	}
	return names
}

// With returns c extended by entry, defaults filled in. An entry that is out of
// range or whose name is taken is an error; c itself never changes.
func (c Catalogue) With(entry Entry) (Catalogue, error) {
	entry, err := entry.complete()
	if err != nil {
		return Catalogue{}, err
	}
	if _, taken := c.Lookup(entry.Name); taken {
		return Catalogue{}, fmt.Errorf("model %q is listed twice", entry.Name)
	}
	return Catalogue{entries: append(slices.Clip(c.entries), entry)}, nil
}

// AdHoc returns an entry for a model that no catalogue lists, from
// "PROVIDER:NAME" such as "openai:llama3.1". The entry's Name is spec itself, so
// it hides no listed model; it is unpriced, and its window is one that current
// models have.
func AdHoc(spec string) (Entry, error) {
	provider, name, found := strings.Cut(spec, ":")
	if !found || name == "" {
		return Entry{}, fmt.Errorf("model %q: must be PROVIDER:NAME, such as openai:gpt-4.1-mini", spec)
	}
	return Entry{
		Name: spec, Provider: provider, Model: name,
		ContextWindow: 128_000, MaxOutputTokens: 8_192,
	}.complete()
}
