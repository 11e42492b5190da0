package model_test

import (
	"context"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/model"
)

func ptr(n int64) *int64 { return &n }

const validEntry = `
models:
  - name: small
    provider: openai
    model: wire-small
    context_window: 1000 # tokens
    max_output_tokens: 100
`

func TestDefaultCatalogue(t *testing.T) {
	t.Parallel()
	catalogue := model.DefaultCatalogue()
	scripted, ok := catalogue.Lookup("scripted")
	if !ok || scripted.Mode != model.ModeQueued || !scripted.Priced() || scripted.Timeout != 2*time.Minute {
		t.Errorf("scripted = %+v, %t", scripted, ok)
	}
	local, ok := catalogue.Lookup("scripted-local")
	if !ok || local.Mode != model.ModeLocal || local.Provider != "scripted" || local.Timeout != 10*time.Second {
		t.Errorf("scripted-local = %+v, %t", local, ok)
	}
	// 1,000,000 fresh + 1,000,000 cached input tokens and 1,000,000 output
	// tokens of gpt-4.1: 2.00 + 0.50 + 8.00 dollars.
	gpt, _ := catalogue.Lookup("gpt-4.1")
	if cost, priced := gpt.Cost(model.Usage{InputTokens: 2e6, CachedInputTokens: 1e6, OutputTokens: 1e6}); cost != 10_500_000 || !priced {
		t.Errorf("cost = %d, %t, want 10500000", cost, priced)
	}
}

func TestParseCatalogueDefaults(t *testing.T) {
	t.Parallel()
	catalogue, err := model.ParseCatalogue([]byte(validEntry))
	if err != nil {
		t.Fatal(err)
	}
	entry, ok := catalogue.Lookup("small")
	want := model.Entry{
		Name: "small", Provider: "openai", Model: "wire-small", ContextWindow: 1000,
		MaxOutputTokens: 100, Mode: model.ModeQueued, Timeout: 2 * time.Minute,
	}
	if !ok || entry != want {
		t.Errorf("entry = %+v, want %+v", entry, want)
	}
	if _, ok := catalogue.Lookup("SMALL"); ok {
		t.Error("names must match exactly")
	}
}

func TestParseCatalogueRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"empty":             {"", "empty"},
		"no models":         {"models: []", "lists no model"},
		"unknown top key":   {validEntry + "extra: 1\n", "extra"},
		"unknown entry key": {validEntry + "    inputprice: 1\n", "inputprice"},
		"key twice":         {validEntry + "    name: other\n", "name"},
		"name twice":        {validEntry + strings.TrimPrefix(validEntry, "\nmodels:\n"), `"small" is listed twice`},
		"two documents":     {validEntry + "---\nmodels: []\n", "more than one"},
		"one price":         {validEntry + "    input_price: 5\n", "both, or neither"},
		"cached only":       {validEntry + "    cached_input_price: 5\n", "needs an input_price"},
		"negative price":    {validEntry + "    input_price: -1\n    output_price: 5\n", "input_price is -1"},
		"fraction":          {validEntry + "    input_price: 2.5\n    output_price: 5\n", "2.5"},
		"bare timeout":      {validEntry + "    timeout: 120\n", "not a duration"},
		"quoted timeout":    {validEntry + "    timeout: \"1d\"\n", "not a duration"},
		"word as price":     {validEntry + "    input_price: many\n    output_price: 5\n", "not a whole number"},
		"tokenizer":         {validEntry + "    tokenizer: o200k\n", `model "small": tokenizer "o200k": must be one of o200k_base, cl100k_base, p50k_base, p50k_edit, r50k_base, or be left out`},
		"mode":              {validEntry + "    mode: remote\n", `mode "remote"`},
		"timeout":           {validEntry + "    timeout: -1s\n", "timeout is -1s"},
		"long timeout":      {validEntry + "    timeout: 2h\n", "at most 1h"},
		"window":            {strings.Replace(validEntry, "1000 ", "0 ", 1), "context_window is 0"},
		"output":            {strings.Replace(validEntry, "100\n", "1001\n", 1), "max_output_tokens is 1001"},
		"provider":          {strings.Replace(validEntry, "openai", "Open AI", 1), "provider"},
		"wire name":         {strings.Replace(validEntry, "wire-small", `""`, 1), "provider's name"},
		"name":              {strings.Replace(validEntry, "name: small", "name: a b", 1), "name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := model.ParseCatalogue([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want one that says %q", err, c.want)
			}
		})
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	priced := model.Entry{InputPrice: ptr(2_500_000), CachedInputPrice: ptr(1_250_000), OutputPrice: ptr(10_000_000)}
	noCachePrice := model.Entry{InputPrice: ptr(2_500_000), OutputPrice: ptr(10_000_000)}
	free := model.Entry{InputPrice: ptr(0), OutputPrice: ptr(0)}
	dear := model.Entry{InputPrice: ptr(math.MaxInt64), OutputPrice: ptr(math.MaxInt64)}
	for name, c := range map[string]struct {
		entry  model.Entry
		usage  model.Usage
		want   int64
		priced bool
	}{
		"unpriced is unknown":        {model.Entry{}, model.Usage{InputTokens: 10}, 0, false},
		"free is known":              {free, model.Usage{InputTokens: 10}, 0, true},
		"nothing":                    {priced, model.Usage{}, 0, true},
		"one token rounds up":        {priced, model.Usage{InputTokens: 1}, 3, true},                                           // 2.5
		"rounded once, on the sum":   {priced, model.Usage{InputTokens: 2, CachedInputTokens: 1}, 4, true},                     // 2.5 + 1.25
		"exact is not rounded":       {priced, model.Usage{InputTokens: 2, OutputTokens: 1}, 15, true},                         // 5 + 10
		"cached without its price":   {noCachePrice, model.Usage{InputTokens: 4, CachedInputTokens: 4}, 10, true},              // 4 x 2.5
		"more cached than input":     {priced, model.Usage{InputTokens: 4, CachedInputTokens: 9}, 5, true},                     // 4 x 1.25
		"negative counts as none":    {priced, model.Usage{InputTokens: -4, CachedInputTokens: -1, OutputTokens: 1}, 10, true}, //
		"overflow is the largest":    {dear, model.Usage{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}, math.MaxInt64, true},
		"a year of a large tenant":   {priced, model.Usage{InputTokens: 1e15}, 2_500_000_000_000_000, true},
		"just beyond 64-bit product": {priced, model.Usage{OutputTokens: 4e12}, 40_000_000_000_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, known := c.entry.Cost(c.usage); got != c.want || known != c.priced {
				t.Errorf("cost = %d, %t, want %d, %t", got, known, c.want, c.priced)
			}
		})
	}
}

// The cost is the exact rational sum rounded up, and a reservation is never
// less than what is settled for the same tokens.
func TestCostProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		price := rapid.Int64Range(0, 100_000_000_000)
		tokens := rapid.Int64Range(0, math.MaxInt64)
		entry := model.Entry{InputPrice: ptr(price.Draw(t, "in")), CachedInputPrice: ptr(price.Draw(t, "cached")), OutputPrice: ptr(price.Draw(t, "out"))}
		usage := model.Usage{InputTokens: tokens.Draw(t, "input"), OutputTokens: tokens.Draw(t, "output")}
		usage.CachedInputTokens = rapid.Int64Range(0, usage.InputTokens).Draw(t, "cached input")

		product := func(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }
		sum := product(usage.InputTokens-usage.CachedInputTokens, *entry.InputPrice)
		sum.Add(sum, product(usage.CachedInputTokens, *entry.CachedInputPrice))
		sum.Add(sum, product(usage.OutputTokens, *entry.OutputPrice))
		sum.Add(sum, big.NewInt(999_999)).Div(sum, big.NewInt(1_000_000))
		want := int64(math.MaxInt64)
		if sum.IsInt64() {
			want = sum.Int64()
		}

		got, _ := entry.Cost(usage)
		if got != want {
			t.Fatalf("cost = %d, want %d", got, want)
		}
		if reserved, _ := entry.CostOf(usage.InputTokens, usage.OutputTokens); reserved < got {
			t.Fatalf("reserved %d, settled %d", reserved, got)
		}
	})
}

func TestAdHoc(t *testing.T) {
	t.Parallel()
	entry, err := model.AdHoc("openai:Qwen/Qwen3:8b")
	want := model.Entry{
		Name: "openai:Qwen/Qwen3:8b", Provider: "openai", Model: "Qwen/Qwen3:8b",
		ContextWindow: 128_000, MaxOutputTokens: 8_192, Mode: model.ModeQueued, Timeout: 2 * time.Minute,
	}
	if err != nil || entry != want {
		t.Errorf("entry = %+v, %v", entry, err)
	}
	if _, priced := entry.CostOf(1, 1); priced {
		t.Error("an ad-hoc model must be unpriced")
	}
	for _, spec := range []string{"", "gpt-4.1", "openai:", ":gpt-4.1", "Open AI:x", "openai:a b"} {
		if _, err := model.AdHoc(spec); err == nil {
			t.Errorf("AdHoc(%q) must fail", spec)
		}
	}

	base := model.DefaultCatalogue()
	extended, err := base.With(entry)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := extended.Lookup(entry.Name); !ok {
		t.Error("the extended catalogue lacks the entry")
	}
	if _, ok := base.Lookup(entry.Name); ok {
		t.Error("the base catalogue was changed")
	}
	entry.Name = "another"
	if _, err := base.With(entry); err != nil {
		t.Fatal(err)
	}
	if names := extended.Names(); names[len(names)-1] != "openai:Qwen/Qwen3:8b" {
		t.Errorf("extending the base again changed the first extension: %v", names)
	}
	entry.Name = "openai:Qwen/Qwen3:8b"
	if _, err := extended.With(entry); err == nil {
		t.Error("a name can be taken once only")
	}
}

type fixed struct{ model.Response }

func (f fixed) Generate(context.Context, model.Request, func(model.Delta)) (model.Response, error) {
	return f.Response, nil
}

func TestResolver(t *testing.T) {
	t.Parallel()
	resolver := model.NewResolver(model.DefaultCatalogue(), map[string]model.Model{"scripted": fixed{}, "openai": nil})

	entry, adapter, err := resolver.Resolve("scripted-local")
	if err != nil || adapter == nil || entry.Name != "scripted-local" {
		t.Errorf("Resolve = %+v, %v, %v", entry, adapter, err)
	}
	if _, _, err := resolver.Resolve("nope"); !errors.Is(err, model.ErrUnknownModel) || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("unknown model: %v", err)
	}
	_, _, err = resolver.Resolve("gpt-4.1")
	if !errors.Is(err, model.ErrProviderNotConfigured) || !strings.Contains(err.Error(), `"openai"`) {
		t.Errorf("provider not configured: %v", err)
	}
}

func TestErrorTextAndRetryable(t *testing.T) {
	t.Parallel()
	err := &model.Error{Kind: model.KindRateLimited, StatusCode: 429, Err: errors.New("secret")}
	if got := err.Error(); got != "model call failed: rate_limited (HTTP 429)" {
		t.Errorf("text = %q", got)
	}
	for kind, want := range map[model.Kind]bool{
		model.KindRateLimited: true, model.KindUnavailable: true, model.KindTimeout: true,
		model.KindAuthentication: false, model.KindInvalidRequest: false, model.KindContextOverflow: false,
		model.KindContentPolicy: false, model.KindMalformed: false,
	} {
		if got := (&model.Error{Kind: kind}).Retryable(); got != want {
			t.Errorf("%s retryable = %t", kind, got)
		}
		if (&model.Error{Kind: kind, OutputStarted: true}).Retryable() {
			t.Errorf("%s is retryable after output", kind)
		}
	}
}
