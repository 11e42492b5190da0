package model

import "context"

// Embedder turns texts into vectors whose nearness is nearness in meaning.
// Implementations are safe for concurrent use and never retry.
type Embedder interface {
	// Name identifies what computes the vectors, such as "openai/text-embedding-3-small".
	// Vectors of two names are never compared.
	Name() string
	// Dimensions is the length of every vector.
	Dimensions() int
	// Embed returns one vector of length 1 (L2) for each text, in order. The error
	// is an *Error unless ctx ended; a provider that answers with another dimension
	// is one of KindMalformed that names both. No text is in an error.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}
