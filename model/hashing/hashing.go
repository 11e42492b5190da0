// Package hashing is an embedder without a model: it needs no key, no network
// and no download, and the same text has the same vector on every machine. It is
// the default, so that everything runs offline, and for tests.
//
// It finds what shares words, parts of words or characters with the question: by
// spelling and not by meaning. A synonym is found only as far as other words of
// the text match, and a question in one language does not find a memory in
// another unless they share names or numbers. Deployments that need that name a
// real embedder.
package hashing

import (
	"context"
	"fmt"
	"math"

	"github.com/fairlead/fairlead/model"
)

// Name is the Name of every Embedder. It changes when any text gets another
// vector.
const Name = "hashing-1"

// Bounds of Options.Dimensions. The most is what PostgreSQL can index as
// halfvec.
const (
	DefaultDimensions = 256
	MinDimensions     = 32
	MaxDimensions     = 4000
)

// Options configure an Embedder.
type Options struct {
	// Dimensions is the length of a vector; zero is DefaultDimensions. With more
	// of them, fewer features share one, and every vector costs more.
	Dimensions int
}

// Embedder implements model.Embedder. It is safe for concurrent use.
type Embedder struct{ dimensions int }

var _ model.Embedder = (*Embedder)(nil)

// New returns an Embedder, or an error that names the option at fault.
func New(options Options) (*Embedder, error) {
	if options.Dimensions == 0 {
		options.Dimensions = DefaultDimensions
	}
	if options.Dimensions < MinDimensions || options.Dimensions > MaxDimensions {
		return nil, fmt.Errorf("hashing embedder: %d dimensions; use %d to %d, or 0 for %d", options.Dimensions, MinDimensions, MaxDimensions, DefaultDimensions)
	}
	return &Embedder{options.Dimensions}, nil
}

// Name implements model.Embedder.
func (e *Embedder) Name() string { return Name }

// Dimensions implements model.Embedder.
func (e *Embedder) Dimensions() int { return e.dimensions }

// Embed implements model.Embedder. It fails only if ctx has ended.
func (e *Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	vectors := make([][]float32, 0, len(texts))
	for _, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("embed texts: %w", err)
		}
		vectors = append(vectors, e.embed(text))
	}
	return vectors, nil
}

// embed adds up the features of a text, each at a place and with a sign that its
// hash says: features that share a place cancel out as often as they add up.
func (e *Embedder) embed(text string) []float32 {
	sums := make([]float64, e.dimensions)
	for _, f := range featuresOf(text) {
		// Sublinear: what is said ten times is not ten times as much.
		// The conversions keep compilers from fusing operations, which would round
		// otherwise on another machine.
		weight := float64(f.weight * float64(1+math.Log(float64(f.count))))
		if f.hash>>63 == 1 {
			weight = -weight
		}
		sums[f.hash%uint64(e.dimensions)] += weight
	}
	square := 0.0
	for _, sum := range sums {
		square += float64(sum * sum)
	}
	vector := make([]float32, e.dimensions)
	const nothing = 1e-9 // what is left of sums that cancelled out
	if square < nothing {
		// A zero vector has no direction, and no index takes it.
		vector[hash(kindEmpty, "")%uint64(e.dimensions)] = 1
		return vector
	}
	length := math.Sqrt(square)
	for i, sum := range sums {
		vector[i] = float32(sum / length)
	}
	return vector
}
