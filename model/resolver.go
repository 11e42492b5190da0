package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Errors of Resolver.Resolve, for errors.Is.
var (
	// ErrUnknownModel: the catalogue has no entry of that name.
	ErrUnknownModel = errors.New("unknown model")
	// ErrProviderNotConfigured: the entry's provider has no adapter.
	ErrProviderNotConfigured = errors.New("model provider not configured")
)

// Resolver turns the model name of a definition into its entry and adapter. It
// is immutable and safe for concurrent use.
type Resolver struct {
	catalogue Catalogue
	adapters  map[string]Model
}

// NewResolver returns a Resolver over the catalogue and the adapters, keyed by
// Entry.Provider. A nil adapter counts as not configured.
func NewResolver(catalogue Catalogue, adapters map[string]Model) *Resolver {
	adapters = maps.Clone(adapters)
	maps.DeleteFunc(adapters, func(_ string, m Model) bool { return m == nil })
	return &Resolver{catalogue: catalogue, adapters: adapters}
}

// Resolve returns the entry called name and the adapter to call it with, using
// Entry.Model as Request.Model. Errors wrap ErrUnknownModel or
// ErrProviderNotConfigured and say what to do.
func (r *Resolver) Resolve(name string) (Entry, Model, error) {
	entry, ok := r.catalogue.Lookup(name)
	if !ok {
		return Entry{}, nil, fmt.Errorf("%w %q: the catalogue lists %s", ErrUnknownModel, name, strings.Join(r.catalogue.Names(), ", "))
	}
	adapter, ok := r.adapters[entry.Provider]
	if !ok {
		configured := slices.Sorted(maps.Keys(r.adapters))
		return Entry{}, nil, fmt.Errorf("%w: model %q needs provider %q; set that provider's API key or base URL in the environment or the configuration (configured: %s)",
			ErrProviderNotConfigured, name, entry.Provider, strings.Join(configured, ", "))
	}
	return entry, adapter, nil
}
