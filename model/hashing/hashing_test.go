package hashing_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/hashing"
	"github.com/fairlead/fairlead/model/modeltest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	modeltest.RunEmbedder(t, func(t *testing.T, s modeltest.EmbedderScenario) model.Embedder {
		if s != (modeltest.EmbedderScenario{}) {
			return nil
		}
		e, err := hashing.New(hashing.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}

// TestVectors pins what is stored in databases. The values were worked out by
// another program from the definition of hash and of each feature's weight.
func TestVectors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[int]float64{
		"":   {146: 1},
		"?!": {146: 1},
		// A pair of 1 and two signs of 0.45.
		"苹果": {47: 0.843649, 132: 0.379642, 188: 0.379642},
		// The word, and three parts of 0.9/√3; all of them twice.
		"Tea, tea":      {52: 0.386227, 76: 0.743294, 169: -0.386227, 194: -0.386227},
		"ＴＥＡ\u200b tea": {52: 0.386227, 76: 0.743294, 169: -0.386227, 194: -0.386227},
		// A common word of 0.12; a word of 1, its beginning of 0.6, its five parts of
		// 0.9/√5.
		"The apples": {16: -0.272327, 23: 0.272327, 95: -0.081192, 101: -0.405962, 118: -0.272327, 123: -0.676603, 150: -0.272327, 188: -0.272327},
		// What is said twice counts 1+ln 2.
		"tea tea max": {52: 0.332556, 75: 0.196413, 76: 0.640004, 112: 0.196413, 157: -0.377997, 169: -0.332556, 184: -0.196413, 194: -0.332556},
		// Two words with their parts, and the compound of 0.8.
		"maxTea": {52: 0.251754, 75: 0.251754, 76: 0.484502, 112: 0.251754, 118: 0.387601, 157: -0.484502, 169: -0.251754, 184: -0.251754, 194: -0.251754},
	} {
		vector := embed(t, text)[0]
		if len(vector) != hashing.DefaultDimensions {
			t.Fatalf("%d dimensions", len(vector))
		}
		for i, x := range vector {
			if math.Abs(float64(x)-want[i]) > 1e-6 {
				t.Errorf("%q at %d: %g, want %g", text, i, x, want[i])
			}
		}
	}
}

// TestAcrossLanguages shows the limit that the documentation admits: what shares
// no word is no nearer than what has nothing to do with it.
func TestAcrossLanguages(t *testing.T) {
	t.Parallel()
	for _, p := range [][2]string{
		{"Which environment do I use by default?", "默认环境:生产"},
		{"默认用哪个环境?", "default environment: production"},
		{"What am I allergic to?", "过敏:花生"},
		{"我的时区是哪个?", "time zone: Europe/Berlin"},
	} {
		if v := embed(t, p[0], p[1]); math.Abs(dot(v[0], v[1])) > 0.2 {
			t.Errorf("%q is near %q: %.2f", p[0], p[1], dot(v[0], v[1]))
		}
	}
	// A name that both have is found all the same.
	if v := embed(t, "who owns payment-api?", "payment-api 由账务组负责"); dot(v[0], v[1]) < 0.4 {
		t.Errorf("a shared name gives %.2f", dot(v[0], v[1]))
	}
}

// TestNearness: what is written a little differently stays near, and a long text
// does not drown what it is about.
func TestNearness(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b  string
		least float64
	}{
		{"default environment: production", "Default Environment: PRODUCTION", 0.999},
		{"default environment: production", "ｄｅｆａｕｌｔ ｅｎｖｉｒｏｎｍｅｎｔ: production", 0.999},
		{"restarting the gateways", "restart gateway", 0.6},
		{"我喜欢苹果", "用户很喜欢苹果", 0.6},
		{"maxRetries", "max_retries", 0.9},
		{"tea", strings.Repeat("tea ", 1000), 0.999},
	} {
		if v := embed(t, c.a, c.b); dot(v[0], v[1]) < c.least {
			t.Errorf("%q and %.40q: %.3f, want at least %g", c.a, c.b, dot(v[0], v[1]), c.least)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for dimensions, want := range map[int]int{0: 256, 32: 32, 1000: 1000, 4000: 4000, 31: -1, -1: -1, 4001: -1} {
		e, err := hashing.New(hashing.Options{Dimensions: dimensions})
		if want < 0 {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d dimensions", dimensions)) {
				t.Errorf("%d: %v", dimensions, err)
			}
			continue
		}
		if err != nil || e.Dimensions() != want || e.Name() != "hashing-1" {
			t.Errorf("%d: %v, %v", dimensions, e, err)
		}
	}
}

// FuzzEmbed: whatever the text, the vector has length 1 and is the same again.
func FuzzEmbed(f *testing.F) {
	for _, p := range pairs {
		f.Add(p.question)
	}
	f.Add("\xff\xfe----::::aB\u200d\u0301")
	e, err := hashing.New(hashing.Options{Dimensions: 32})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vectors, err := e.Embed(t.Context(), []string{text, text})
		if err != nil {
			t.Fatal(err)
		}
		if length := dot(vectors[0], vectors[1]); !(math.Abs(length-1) < 1e-4) {
			t.Errorf("%q: length %g", text, length)
		}
	})
}

func BenchmarkEmbed(b *testing.B) {
	e, err := hashing.New(hashing.Options{})
	if err != nil {
		b.Fatal(err)
	}
	texts := []string{pairs[10].memory + " " + pairs[20].memory}
	for b.Loop() {
		if _, err := e.Embed(b.Context(), texts); err != nil {
			b.Fatal(err)
		}
	}
}
