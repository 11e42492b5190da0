package prompt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tiktoken-go/tokenizer"

	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/internal/prompt"
	"github.com/fairlead/fairlead/internal/tokens"
)

func longTalk(n int) []prompt.Message {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("%d: the payment service timed out again, 支付服务又超时了, trace %08x", i, i*2654435761%(1<<32)) + strings.Repeat(" and nobody knows why", i%4)
	}
	return talk(texts...)
}

// fresh remembers counts like the real one, and can be made anew.
type fresh struct {
	codec tokenizer.Codec
	known map[string]int64
}

func (fresh) Name() string { return "o200k_base" }

func (f fresh) Count(text string) int64 {
	if n, ok := f.known[text]; ok {
		return n
	}
	n, err := f.codec.Count(text)
	if err != nil {
		panic(err)
	}
	f.known[text] = int64(n)
	return int64(n)
}

// BenchmarkAssemble makes a request of 24,000 tokens from a conversation of
// 2,000 messages and a run of 20 steps: with counts known, as for all calls of a
// conversation but the first in a process; with none known; and of half the
// size, which takes half as long.
func BenchmarkAssemble(b *testing.B) {
	o200k, err := tokens.For("o200k_base")
	if err != nil {
		b.Fatal(err)
	}
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		b.Fatal(err)
	}
	in := prompt.Input{
		System: strings.Repeat("You are OpsPilot. ", 200), Question: "它的错误日志呢", History: longTalk(2_000),
		Window: 128_000, MaxOutputTokens: 1_500,
	}
	for i := range 20 {
		in.Steps = append(in.Steps, look(i, fmt.Sprint("c", i), envelope(1_000)))
	}
	known := func() tokens.Counter { return o200k }
	cold := func() tokens.Counter { return fresh{codec, map[string]int64{}} }
	for _, c := range []struct {
		name    string
		counter func() tokens.Counter
		size    int64
	}{{"known", known, 24_000}, {"known-half", known, 12_000}, {"cold", cold, 24_000}} {
		b.Run(c.name, func(b *testing.B) {
			in := in
			in.Tokens = c.counter()
			in.Budgets = definition.Context{MaxInput: c.size, Messages: c.size}
			got, err := prompt.Assemble(in)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				in.Tokens = c.counter()
				if _, err := prompt.Assemble(in); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(got.Report.Input), "tokens")
			b.ReportMetric(float64(len(got.Request.Messages)), "messages")
		})
	}
}
