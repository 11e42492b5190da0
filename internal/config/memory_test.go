package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/config"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		env  map[string]string
		want config.Memory
	}{
		"defaults": {"", nil, config.Memory{Embedder: "hashing", ReconcileEvery: config.Interval(time.Hour)}},
		"a file": {
			"memory:\n  policy: /etc/fairlead/memory.yaml\n  embedder: openai:bge-m3\n  dimensions: 1024\n  embedder_previous: hashing\n  dimensions_previous: 512\n  reconcile_every: 10m\n", nil,
			config.Memory{Policy: "/etc/fairlead/memory.yaml", Embedder: "openai:bge-m3", Dimensions: 1024, EmbedderPrevious: "hashing", DimensionsPrevious: 512, ReconcileEvery: config.Interval(10 * time.Minute)},
		},
		"variables": {
			"memory:\n  reconcile_every: 10m\n",
			map[string]string{
				"FAIRLEAD_MEMORY_POLICY": "m.yaml", "FAIRLEAD_MEMORY_EMBEDDER": "openai:org/model:v2", "FAIRLEAD_MEMORY_DIMENSIONS": "768",
				"FAIRLEAD_MEMORY_EMBEDDER_PREVIOUS": "openai:text-embedding-3-small", "FAIRLEAD_MEMORY_RECONCILE_EVERY": "off",
			},
			config.Memory{Policy: "m.yaml", Embedder: "openai:org/model:v2", Dimensions: 768, EmbedderPrevious: "openai:text-embedding-3-small"},
		},
		"off":               {"memory:\n  reconcile_every: off\n", nil, config.Memory{Embedder: "hashing"}},
		"another dimension": {"memory:\n  dimensions: 512\n  embedder_previous: hashing\n", nil, config.Memory{Embedder: "hashing", Dimensions: 512, EmbedderPrevious: "hashing", ReconcileEvery: config.Interval(time.Hour)}},
	} {
		if loaded, err := load(t, c.file, c.env); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := loaded.Memory; got != c.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestMemoryRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ key, value, want string }{
		"unknown embedder":    {"EMBEDDER", "bge-m3", "memory.embedder (FAIRLEAD_MEMORY_EMBEDDER): must be hashing, or openai:MODEL"},
		"no model":            {"EMBEDDER", "openai:", "must be hashing, or openai:MODEL"},
		"spaced model":        {"EMBEDDER", "openai:a b", "must be hashing, or openai:MODEL"},
		"long model":          {"EMBEDDER", "openai:" + strings.Repeat("x", 122), "must be hashing, or openai:MODEL"},
		"dimensions":          {"DIMENSIONS", "4001", "memory.dimensions (FAIRLEAD_MEMORY_DIMENSIONS): 4001 is not between 1 and 4000"},
		"negative dimensions": {"DIMENSIONS", "-1", "-1 is not between"},
		"no number":           {"DIMENSIONS", "many", "memory.dimensions"},
		"previous":            {"EMBEDDER_PREVIOUS", "old", "memory.embedder_previous (FAIRLEAD_MEMORY_EMBEDDER_PREVIOUS): must be hashing"},
		"the same":            {"EMBEDDER_PREVIOUS", "hashing", "is the same as memory.embedder"},
		"previous dimensions": {"DIMENSIONS_PREVIOUS", "3", "set FAIRLEAD_MEMORY_EMBEDDER_PREVIOUS as well"},
		"often":               {"RECONCILE_EVERY", "59s", "memory.reconcile_every (FAIRLEAD_MEMORY_RECONCILE_EVERY): 59s is not between 1m0s and 168h0m0s; off is never"},
		"seldom":              {"RECONCILE_EVERY", "169h", "169h0m0s is not between"},
		"negative":            {"RECONCILE_EVERY", "-1h", "-1h0m0s is not between"},
		"no unit":             {"RECONCILE_EVERY", "60", "60"},
		"never":               {"RECONCILE_EVERY", "never", `"never" is not a duration`},
	} {
		_, err := load(t, "", map[string]string{"FAIRLEAD_MEMORY_" + c.key: c.value})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v\nwant %q", name, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"memory:\n  embeder: x\n":         `unknown key "memory.embeder"`,
		"memory:\n  reconcile_every: 3\n": "duration",
		"memory:\n  policy: 3\n":          "put it into quotes",
	} {
		if _, err := load(t, text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestEmbedderModel(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"openai:a:b": "a:b", "openai:": "", "hashing": "", "": ""} {
		if got := config.EmbedderModel(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}
