// Package tokens counts the tokens of texts by the vocabulary of a model
// (WM-3), and estimates them high where a vocabulary is not known. Counts are
// remembered per process, because a conversation's texts are counted again for
// every call. It knows nothing of prompts; package prompt uses it.
package tokens

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/tiktoken-go/tokenizer"

	"github.com/fairlead/fairlead/model"
)

// Counter counts tokens. It is safe for concurrent use, and the same text
// always has the same count. Lines that begin with no white space, counted one
// by one with their line ends, never have fewer tokens together than the whole
// text has: package prompt relies on it.
type Counter interface {
	// Name is the vocabulary's, "" for the estimate.
	Name() string
	// Count returns the tokens of text, which are at least one unless it is
	// empty.
	Count(text string) int64
}

var (
	mu       sync.Mutex
	counters = map[string]*counter{}
)

// For returns the counter of a vocabulary, one of model.Tokenizers, or the
// estimate for "". The vocabulary is loaded when it first counts something, once
// per process.
func For(name string) (Counter, error) {
	if known := model.Tokenizers(); name != "" && !slices.Contains(known, name) {
		return nil, fmt.Errorf("tokenizer %q is unknown: use one of %s, or none for a high estimate", name, strings.Join(known, ", "))
	}
	mu.Lock()
	defer mu.Unlock()
	c, ok := counters[name]
	if !ok {
		c = newCounter(name, maxCounts)
		counters[name] = c
	}
	return c, nil
}

// maxCounts bounds what one counter remembers: about 8 MiB.
const maxCounts = 1 << 16

// digest identifies a text. The hash is cryptographic because texts come from
// users: two of them with one digest would share a count.
type digest struct {
	hash [16]byte
	size int
}

type counter struct {
	name  string
	count func(text string) int64
	// known holds counts and no texts.
	known *lru.Cache[digest, int64]
}

func newCounter(name string, size int) *counter {
	known, err := lru.New[digest, int64](size)
	if err != nil {
		panic(err) // the size is not positive
	}
	c := &counter{name: name, known: known}
	if name == "" {
		c.count = estimate(vocabulary(estimateBy))
	} else {
		c.count = vocabulary(tokenizer.Encoding(name))
	}
	return c
}

// Name implements Counter.
func (c *counter) Name() string { return c.name }

// Count implements Counter.
func (c *counter) Count(text string) int64 {
	if text == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(text))
	key := digest{[16]byte(sum[:16]), len(text)}
	if n, ok := c.known.Get(key); ok {
		return n
	}
	n := c.count(text)
	c.known.Add(key, n)
	return n
}
