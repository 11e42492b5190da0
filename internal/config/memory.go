package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Memory are the settings of long-term memory. Workers that share a database
// need the same ones.
type Memory struct {
	// Policy is the file of the memory policy; empty means the built-in one.
	Policy string `mapstructure:"policy"`
	// Embedder computes the vectors by which memories are found: EmbedderHashing, or
	// openai:MODEL for an embedding model of the OpenAI-compatible provider.
	Embedder string `mapstructure:"embedder"`
	// Dimensions is the length of a vector. Zero is the embedder's own, which must
	// be known here.
	Dimensions int `mapstructure:"dimensions"`
	// EmbedderPrevious and DimensionsPrevious name the embedder before this one. It
	// answers recalls until the vectors of the new one are all there. Empty means
	// that recall finds by keyword alone until then.
	EmbedderPrevious   string `mapstructure:"embedder_previous"`
	DimensionsPrevious int    `mapstructure:"dimensions_previous"`
	// ReconcileEvery is how often leftovers are looked for and what is due is tried
	// again. Zero, which is written off, is never.
	ReconcileEvery Interval `mapstructure:"reconcile_every"`
}

// Interval is a time.Duration that is zero when it is written off.
type Interval time.Duration

// EmbedderHashing is the offline embedder of package model/hashing.
const EmbedderHashing = "hashing"

// Bounds of the settings of memory.
const (
	maxEmbedderBytes  = 128
	maxDimensions     = 4000
	minReconcileEvery = time.Minute
	maxReconcileEvery = 7 * 24 * time.Hour
)

// EmbedderModel returns the model that openai:MODEL names, empty if it does not.
func EmbedderModel(name string) string {
	model, _ := strings.CutPrefix(name, "openai:")
	if model == name {
		return ""
	}
	return model
}

func (m Memory) validate() error {
	var errs []error
	refuse := func(key, format string, args ...any) {
		errs = append(errs, &Error{Key: key, Problem: fmt.Sprintf(format, args...)})
	}
	for _, e := range []struct {
		key, name     string
		dimensionsKey string
		dimensions    int
		optional      bool
	}{
		{"memory.embedder", m.Embedder, "memory.dimensions", m.Dimensions, false},
		{"memory.embedder_previous", m.EmbedderPrevious, "memory.dimensions_previous", m.DimensionsPrevious, true},
	} {
		if e.dimensions < 0 || e.dimensions > maxDimensions {
			refuse(e.dimensionsKey, "%d is not between 1 and %d; leave it out for the embedder's own", e.dimensions, maxDimensions)
		}
		if e.optional && e.name == "" {
			if e.dimensions != 0 {
				refuse(e.dimensionsKey, "is of an embedder that is not named; set %s as well", Variable(e.key))
			}
			continue
		}
		if model := EmbedderModel(e.name); e.name != EmbedderHashing && (model == "" || len(e.name) > maxEmbedderBytes || strings.ContainsFunc(model, func(r rune) bool { return r <= ' ' || r > '~' })) {
			refuse(e.key, "must be %s, or openai:MODEL with the provider's name of an embedding model, such as openai:text-embedding-3-small", EmbedderHashing)
		}
	}
	if m.EmbedderPrevious != "" && m.EmbedderPrevious == m.Embedder && m.DimensionsPrevious == m.Dimensions {
		refuse("memory.embedder_previous", "is the same as memory.embedder; leave it out when nothing changed")
	}
	if every := time.Duration(m.ReconcileEvery); every != 0 && (every < minReconcileEvery || every > maxReconcileEvery) {
		refuse("memory.reconcile_every", "%s is not between %s and %s; %s is never", every, minReconcileEvery, maxReconcileEvery, Off)
	}
	return errors.Join(errs...)
}
