package detect_test

import (
	"strings"
	"testing"
)

// BenchmarkFind prints the time for a kilobyte of prose.
func BenchmarkFind(b *testing.B) {
	d := shared(b)
	for name, text := range map[string]string{
		"english": strings.Repeat("We run the checkout service in two regions and roll out on Mondays. ", 16)[:1024],
		"chinese": strings.Repeat("我们的结账服务在两个区域运行，每周一发布新的版本。", 14)[:1023],
		"value":   "Answers in English, short, with bullet points",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				d.Find(text)
			}
		})
	}
}
