package session_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/session"
)

// hostile are texts that repeat what costs the most to examine.
var hostile = []struct{ name, piece string }{
	{"prose", "The service returned an error, and then it was slow again. "},
	{"chinese", "服务返回了错误，然后又变慢了，不知道为什么。"},
	{"log", "2026-11-30T10:02:11Z ERROR payment-api could not connect to 10.0.0.1:5432: not allowed\n"},
	{"json", `{"level":"error","msg":"could not connect, not allowed"}` + "\n"},
	{"not", "not "},
	{"negations", "do not "},
	{"zh-negations", "不"},
	{"zh-asked", "不要，"},
	{"commas", "don't,"},
	{"quotes", `"don't" says `},
	{"open quotes", "“不要"},
	{"code", "`no` says \n"},
	{"fences", "```x\n"},
	{"items", "- do not:\n"},
	{"conditions", "unless I say so, "},
	{"demands", "ask me before "},
	{"read only", "read only, "},
	{"dots", "don't..."},
	{"marks", "a\u0301\u200b"},
	{"apart", "a 别 "},
}

func fill(piece string, size int) string { return strings.Repeat(piece, size/len(piece)) }

// The longest messages, harmless and hostile: time grows with their length only.
func BenchmarkDetect(b *testing.B) {
	const size = 256 << 10
	detect := func(name, message string) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(message)))
			for b.Loop() {
				_, _ = session.Detect(message, vocabulary)
			}
		})
	}
	detect("question", "它的错误日志呢 payment-api?")
	for _, tt := range hostile {
		detect(tt.name, fill(tt.piece, size))
	}
}

// Twice the text takes not much more than twice the time: the best of some tries,
// for a busy machine.
func TestDetectIsLinear(t *testing.T) {
	for _, tt := range hostile {
		took := func(size int) time.Duration {
			message := fill(tt.piece, size)
			begin := time.Now()
			_, _ = session.Detect(message, vocabulary)
			return time.Since(begin)
		}
		for _, size := range []int{32 << 10, 128 << 10} {
			var half, whole time.Duration
			for try := range 8 {
				one, two := took(size), took(2*size)
				if try == 0 {
					half, whole = one, two
				}
				if half, whole = min(half, one), min(whole, two); whole < 3*half {
					break
				}
			}
			if whole >= 3*half {
				t.Errorf("%s: %d bytes take %v, twice as many %v", tt.name, size, half, whole)
			}
		}
	}
}
