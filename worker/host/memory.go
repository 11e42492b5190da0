package host

import (
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/hashing"
	"github.com/fairlead/fairlead/model/openai"
)

func loadMemoryPolicy(settings config.Config) (*memorypolicy.Policy, error) {
	name := settings.Memory.Policy
	if name == "" {
		return memorypolicy.Default(), nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, &config.Error{Key: "memory.policy", Problem: err.Error()}
	}
	policy, err := memorypolicy.Parse(text)
	if err != nil {
		return nil, &config.Error{Key: "memory.policy", Problem: fmt.Sprintf("%s: %v", name, err)}
	}
	return policy, nil
}

// embedders returns the current embedder and, if there is one, the one before.
func embedders(options Options, settings config.Config) ([]model.Embedder, error) {
	all := options.Embedders
	if len(all) == 0 {
		m := settings.Memory
		current, err := newEmbedder("memory.embedder", m.Embedder, "memory.dimensions", m.Dimensions, settings.OpenAI)
		if err != nil {
			return nil, err
		}
		all = []model.Embedder{current}
		if m.EmbedderPrevious != "" {
			previous, err := newEmbedder("memory.embedder_previous", m.EmbedderPrevious, "memory.dimensions_previous", m.DimensionsPrevious, settings.OpenAI)
			if err != nil {
				return nil, err
			}
			all = append(all, previous)
		}
	}
	seen := map[string]bool{}
	for _, e := range all {
		if seen[describe(e)] {
			return nil, fmt.Errorf("the embedder %s is there twice; leave the previous one out when nothing changed", describe(e))
		}
		seen[describe(e)] = true
	}
	return all, nil
}

func newEmbedder(key, name, dimensionsKey string, dimensions int, provider config.OpenAI) (model.Embedder, error) {
	if name == "" || name == config.EmbedderHashing {
		e, err := hashing.New(hashing.Options{Dimensions: dimensions})
		if err != nil {
			return nil, &config.Error{Key: dimensionsKey, Problem: err.Error()}
		}
		return e, nil
	}
	if !provider.Configured() {
		return nil, &config.Error{Key: key, Problem: name + " needs a provider: set OPENAI_API_KEY, or OPENAI_BASE_URL to the address of a compatible server"}
	}
	e, err := openai.NewEmbedder(openai.EmbedderOptions{
		APIKey: provider.APIKey.Value(), BaseURL: provider.BaseURL, Model: config.EmbedderModel(name), Dimensions: dimensions,
	})
	if err != nil {
		return nil, &config.Error{Key: key, Problem: fmt.Sprintf("%v (set %s)", err, config.Variable(dimensionsKey))}
	}
	return e, nil
}

// describe names an embedder for people: vectors of another dimension are of
// another one.
func describe(e model.Embedder) string {
	return fmt.Sprintf("%s of %d dimensions", e.Name(), e.Dimensions())
}

// checkMemory refuses what an agent's memory could only fail with later.
func (w wiring) checkMemory(d definition.Definition) error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("agent %s %s: %w", d.Name, d.Version, fmt.Errorf(format, args...)))
	}
	if !d.Memory.Learn {
		return nil
	}
	if name := d.Memory.Bounds(d.Model).Model; name != d.Model {
		if _, _, err := w.models.Resolve(name); err != nil {
			refuse("memory.model: %w", err)
		}
	}
	for _, fault := range w.policy.CheckFacts(d.Memory.Facts) {
		refuse("%w", fault)
	}
	return errors.Join(errs...)
}
