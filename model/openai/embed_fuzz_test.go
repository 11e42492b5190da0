package openai

import (
	"math"
	"testing"
)

// FuzzReadEmbeddings: whatever a server sends is an error or as many vectors of
// length 1 as there are texts.
func FuzzReadEmbeddings(f *testing.F) {
	for _, seed := range []string{
		`{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1e300,-1e300]}]}`,
		`{"data":[{"index":0,"embedding":"AACAPwAAAAA="},{"index":1,"embedding":"AACAPwAAgH8="}]}`,
		`{"data":[{"embedding":[5e-324,0]},{"embedding":[0,0]}]}`,
		`{"error":"x"}`, `{"data":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		vectors, err := readEmbeddings(data, 2, 2)
		if err != nil {
			if vectors != nil {
				t.Fatalf("%d vectors beside %v", len(vectors), err)
			}
			return
		}
		for _, v := range vectors {
			if len(vectors) != 2 || len(v) != 2 || !(math.Abs(float64(v[0])*float64(v[0])+float64(v[1])*float64(v[1])-1) < 1e-4) {
				t.Fatalf("vectors = %v", vectors)
			}
		}
	})
}
