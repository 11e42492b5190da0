package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/hashing"
)

// learner is an agent that learns.
func learner(memory definition.Memory) definition.Definition {
	d := someDefinition("1", "scripted")
	memory.Recall, memory.Learn = true, true
	d.Memory = memory
	return d
}

func openAI() config.OpenAI { return config.OpenAI{BaseURL: "http://localhost:11434/v1"} }

func TestWireMemory(t *testing.T) {
	t.Parallel()
	w, err := wire(someOptions(learner(definition.Memory{Facts: map[string]string{"current_service": "task.service"}})), config.Config{}, nowhere(t), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if w.policy.Digest() != memorypolicy.Default().Digest() {
		t.Errorf("the policy is version %s", w.policy.Version())
	}
	if len(w.embedders) != 1 || describe(w.embedders[0]) != "hashing-1 of 256 dimensions" {
		t.Errorf("embedders are %v", w.embedders)
	}
}

func TestWireMemoryPolicy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../memorypolicy/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "memory.yaml")
	own := strings.Replace(string(text), "version: \""+memorypolicy.Default().Version()+"\"", "version: \"own-7\"", 1)
	if err := os.WriteFile(name, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := wire(someOptions(learner(definition.Memory{})), config.Config{Memory: config.Memory{Policy: name}}, nowhere(t), zap.NewNop())
	if err != nil || w.policy.Version() != "own-7" {
		t.Errorf("got %v", err)
	}
}

func TestWireEmbedders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		memory config.Memory
		want   []string
	}{
		"hashing":       {config.Memory{Embedder: "hashing", Dimensions: 512}, []string{"hashing-1 of 512 dimensions"}},
		"openai":        {config.Memory{Embedder: "openai:text-embedding-3-small"}, []string{"openai/text-embedding-3-small of 1536 dimensions"}},
		"two":           {config.Memory{Embedder: "openai:bge-m3", Dimensions: 1024, EmbedderPrevious: "hashing"}, []string{"openai/bge-m3 of 1024 dimensions", "hashing-1 of 256 dimensions"}},
		"two of a name": {config.Memory{Embedder: "hashing", EmbedderPrevious: "hashing", DimensionsPrevious: 512}, []string{"hashing-1 of 256 dimensions", "hashing-1 of 512 dimensions"}},
	} {
		all, err := embedders(Options{}, config.Config{Memory: c.memory, OpenAI: openAI()})
		var got []string
		for _, e := range all {
			got = append(got, describe(e))
		}
		if err != nil || strings.Join(got, ", ") != strings.Join(c.want, ", ") {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	own, err := hashing.New(hashing.Options{Dimensions: 64})
	if err != nil {
		t.Fatal(err)
	}
	all, err := embedders(Options{Embedders: []model.Embedder{own}}, config.Config{Memory: config.Memory{Embedder: "openai:bge-m3"}})
	if err != nil || len(all) != 1 || all[0] != model.Embedder(own) {
		t.Errorf("the program's own: %v, %v", all, err)
	}
}

// TestWireRemember: the tool is there without being listed, and of no use to an
// agent that learns nothing.
func TestWireRemember(t *testing.T) {
	t.Parallel()
	d := learner(definition.Memory{})
	d.Tools = []string{"remember"}
	if _, err := wire(someOptions(d), config.Config{}, nowhere(t), zap.NewNop()); err != nil {
		t.Error(err)
	}
	d.Memory = definition.Memory{Recall: true}
	// What the model proposes is decided about after the run, without learning as well.
	if _, err := wire(someOptions(d), config.Config{}, nowhere(t), zap.NewNop()); err != nil {
		t.Error(err)
	}
}

func TestWireRefusesMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.yaml")
	if err := os.WriteFile(broken, []byte("version: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		memory   config.Memory
		provider config.OpenAI
		agent    definition.Memory
		want     string
	}{
		"no policy":          {memory: config.Memory{Policy: filepath.Join(dir, "absent")}, want: "memory.policy (FAIRLEAD_MEMORY_POLICY)"},
		"broken policy":      {memory: config.Memory{Policy: broken}, want: "broken.yaml: "},
		"no provider":        {memory: config.Memory{Embedder: "openai:text-embedding-3-small"}, want: "memory.embedder (FAIRLEAD_MEMORY_EMBEDDER): openai:text-embedding-3-small needs a provider: set OPENAI_API_KEY"},
		"unknown dimensions": {memory: config.Memory{Embedder: "openai:bge-m3"}, provider: openAI(), want: "say how many it gives (set FAIRLEAD_MEMORY_DIMENSIONS)"},
		"previous":           {memory: config.Memory{EmbedderPrevious: "openai:bge-m3"}, provider: openAI(), want: "memory.embedder_previous (FAIRLEAD_MEMORY_EMBEDDER_PREVIOUS)"},
		"too few dimensions": {memory: config.Memory{Embedder: "hashing", Dimensions: 3}, want: "memory.dimensions (FAIRLEAD_MEMORY_DIMENSIONS)"},
		"the same twice":     {memory: config.Memory{Embedder: "hashing", Dimensions: 256, EmbedderPrevious: "hashing"}, want: "hashing-1 of 256 dimensions is there twice"},
		"unknown model":      {agent: definition.Memory{Model: "gpt-0"}, want: "memory.model: "},
		"model's provider":   {agent: definition.Memory{Model: "gpt-4.1"}, want: "memory.model: "},
		"unknown key":        {agent: definition.Memory{Facts: map[string]string{"env": "fact.none"}}, want: "memory.facts.env names fact.none, which is no key of the memory policy"},
		"no tool's key":      {agent: definition.Memory{Facts: map[string]string{"env": "preference.food"}}, want: "lets no tool write: add trusted_tool to its sources"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := wire(someOptions(learner(test.agent)), config.Config{Memory: test.memory, OpenAI: test.provider}, nowhere(t), zap.NewNop())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v\nwant %q", err, test.want)
			}
		})
	}
}
