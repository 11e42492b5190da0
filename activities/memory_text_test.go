package activities

import (
	"encoding/json"
	"testing"
)

func TestMemoryText(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`"zh-CN"`: "k: zh-CN",
		`{"item":"Chinese food","sentiment":"likes"}`:     "k: Chinese food, likes",
		`{"a":{"b":["x",2]},"c":true,"d":false,"e":null}`: "k: x, 2, c, not d",
		`3.50`:       "k: 3.50",
		`true`:       "k: true",
		`["我","喜欢"]`: "k: 我, 喜欢",
		``:           "k: ",
		`{"a":`:      "k: ",
	} {
		if got := memoryText("k", json.RawMessage(value)); got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}
