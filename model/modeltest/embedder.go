package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/model"
)

// EmbedderScenario is what the embedder under test has to meet. The zero value
// is the usual case: it embeds whatever it is given.
type EmbedderScenario struct {
	// Failure, if not empty, is the kind of failure that every call meets.
	Failure model.Kind
	// Hang means that nothing is answered until the caller gives up.
	Hang bool
}

// RunEmbedder runs the suite of model.Embedder. newEmbedder is called once per
// subtest, which runs in parallel with others; it returns nil for a scenario that
// the embedder cannot meet, because it asks nobody.
func RunEmbedder(t *testing.T, newEmbedder func(t *testing.T, scenario EmbedderScenario) model.Embedder) {
	usual := func(t *testing.T) model.Embedder {
		t.Helper()
		e := newEmbedder(t, EmbedderScenario{})
		if e == nil {
			t.Fatal("there is no embedder for the usual case")
		}
		return e
	}
	t.Run("identity", func(t *testing.T) {
		t.Parallel()
		e := usual(t)
		if e.Name() == "" || e.Dimensions() < 1 {
			t.Errorf("name %q, %d dimensions", e.Name(), e.Dimensions())
		}
	})
	t.Run("no texts", func(t *testing.T) {
		t.Parallel()
		if vectors, err := usual(t).Embed(t.Context(), nil); err != nil || len(vectors) != 0 {
			t.Errorf("%d vectors, %v", len(vectors), err)
		}
	})
	t.Run("texts of all sorts", func(t *testing.T) {
		t.Parallel()
		e := usual(t)
		vectors := embedAll(t, e, awkward)
		// What is next to nothing has a vector, and what differs another one.
		if slices.Equal(vectors[0], vectors[1]) {
			t.Error("two sentences have one vector")
		}
		again := embedAll(t, e, awkward)
		for i := range vectors {
			if d := distance(vectors[i], again[i]); d > 1e-3 {
				t.Errorf("text %d has another vector the second time, at %g", i, d)
			}
		}
	})
	t.Run("many texts keep their order", func(t *testing.T) {
		t.Parallel()
		e := usual(t)
		texts := make([]string, 300)
		for i := range texts {
			texts[i] = fmt.Sprintf("memory number %d of the %dth user", i, i*i)
		}
		untouched := slices.Clone(texts)
		vectors := embedAll(t, e, texts)
		if !slices.Equal(texts, untouched) {
			t.Error("the texts were changed")
		}
		for _, i := range []int{0, 1, 63, 64, 127, 128, 255, 256, 299} {
			if alone := embedAll(t, e, texts[i:i+1])[0]; distance(alone, vectors[i]) > 1e-3 {
				t.Errorf("text %d has another vector among many, at %g", i, distance(alone, vectors[i]))
			}
		}
	})
	t.Run("concurrent calls", func(t *testing.T) {
		t.Parallel()
		e := usual(t)
		want := embedAll(t, e, awkward)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				vectors, err := e.Embed(t.Context(), awkward)
				if err != nil || len(vectors) != len(want) || distance(vectors[0], want[0]) > 1e-3 {
					t.Errorf("%d vectors, %v", len(vectors), err)
				}
			})
		}
		group.Wait()
	})
	t.Run("context ended before the call", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		vectors, err := usual(t).Embed(ctx, awkward)
		if !errors.Is(err, context.Canceled) || vectors != nil {
			t.Errorf("%d vectors, error = %v, want context.Canceled", len(vectors), err)
		}
	})
	t.Run("deadline while waiting", func(t *testing.T) {
		t.Parallel()
		e := newEmbedder(t, EmbedderScenario{Hang: true})
		if e == nil {
			t.Skip("it waits for nobody")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		promptly(t, func() {
			if _, err := e.Embed(ctx, awkward); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error = %v, want context.DeadlineExceeded", err)
			}
		})
	})
	for _, kind := range []model.Kind{
		model.KindRateLimited, model.KindUnavailable, model.KindTimeout, model.KindAuthentication,
		model.KindInvalidRequest, model.KindContextOverflow, model.KindMalformed,
	} {
		t.Run("failure "+string(kind), func(t *testing.T) {
			t.Parallel()
			e := newEmbedder(t, EmbedderScenario{Failure: kind})
			if e == nil {
				t.Skip("it cannot fail")
			}
			vectors, err := e.Embed(t.Context(), awkward)
			var failed *model.Error
			if !errors.As(err, &failed) || failed.Kind != kind || vectors != nil {
				t.Errorf("%d vectors, error = %v, want kind %s", len(vectors), err, kind)
			}
		})
	}
}

// awkward are texts that embedders stumble over.
var awkward = []string{
	"The default environment is production.", "用户喜欢苹果", "naïve Grüße 👩‍👩‍👧", "", " \n\t", "?!", "\x00", "broken \xff UTF-8",
	"a", "\u200b", "<|endoftext|>",
}

// embedAll embeds texts and fails the test unless every vector is as promised.
func embedAll(t *testing.T, e model.Embedder, texts []string) [][]float32 {
	t.Helper()
	vectors, err := e.Embed(t.Context(), texts)
	if err != nil {
		t.Fatalf("Embed: %v", err)
	}
	if len(vectors) != len(texts) {
		t.Fatalf("%d vectors for %d texts", len(vectors), len(texts))
	}
	for i, vector := range vectors {
		if len(vector) != e.Dimensions() {
			t.Fatalf("vector %d has %d dimensions, want %d", i, len(vector), e.Dimensions())
		}
		square := 0.0
		for _, x := range vector {
			square += float64(x) * float64(x)
		}
		if !(math.Abs(square-1) < 1e-4) { // NaN fails as well
			t.Errorf("the length of vector %d is the root of %g, want 1", i, square)
		}
	}
	return vectors
}

// distance is the greatest difference in one dimension.
func distance(a, b []float32) float64 {
	greatest := 0.0
	for i := range a {
		greatest = max(greatest, math.Abs(float64(a[i])-float64(b[i])))
	}
	return greatest
}
