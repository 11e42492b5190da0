package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Ways in which an answer with embeddings can be broken.
var (
	errOrder  = errors.New("response does not say which embedding is of which text")
	errNumber = errors.New("response has an embedding with what is not a finite number")
	errZero   = errors.New("response has an embedding of nothing but zeros")
)

type wireEmbeddings struct {
	Data []struct {
		// Index is left out by some compatible servers, which answer in order.
		Index *int `json:"index"`
		// Embedding is a list of numbers, or base64 of 32-bit floats, little end
		// first.
		Embedding json.RawMessage `json:"embedding"`
	} `json:"data"`
	Error json.RawMessage `json:"error"`
}

// readEmbeddings returns count vectors of length 1 in the order of the texts.
func readEmbeddings(data []byte, count, dimensions int) ([][]float32, error) {
	var body wireEmbeddings
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, errNotJSON
	}
	if present(body.Error) {
		var sent streamError
		_ = json.Unmarshal(body.Error, &sent.wireError)
		return nil, &sent
	}
	if len(body.Data) != count {
		return nil, fmt.Errorf("response has %d embeddings for %d texts", len(body.Data), count)
	}
	vectors := make([][]float32, count)
	for i, item := range body.Data {
		at := i
		if item.Index != nil {
			at = *item.Index
		}
		if at < 0 || at >= count || vectors[at] != nil || (item.Index == nil) != (body.Data[0].Index == nil) {
			return nil, errOrder
		}
		numbers, err := readNumbers(item.Embedding)
		if err != nil {
			return nil, err
		}
		if len(numbers) != dimensions {
			return nil, fmt.Errorf("response has embeddings of %d dimensions, and %d are configured: configure what the model gives, and the index is built anew", len(numbers), dimensions)
		}
		if vectors[at], err = normalize(numbers); err != nil {
			return nil, err
		}
	}
	return vectors, nil
}

func readNumbers(raw json.RawMessage) ([]float64, error) {
	var numbers []float64
	if !bytes.HasPrefix(raw, []byte(`"`)) {
		// A null in the list would be read as zero; no number has an n.
		if err := json.Unmarshal(raw, &numbers); err != nil || bytes.ContainsRune(raw, 'n') {
			return nil, errNumber
		}
		return numbers, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, errNotJSON
	}
	const size = 4
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(packed)%size != 0 {
		return nil, errNumber
	}
	for ; len(packed) > 0; packed = packed[size:] {
		numbers = append(numbers, float64(math.Float32frombits(binary.LittleEndian.Uint32(packed))))
	}
	return numbers, nil
}

// normalize returns the direction of a vector. The sum is taken of parts of the
// greatest number, so that it neither overflows nor vanishes.
func normalize(numbers []float64) ([]float32, error) {
	greatest := 0.0
	for _, x := range numbers {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, errNumber
		}
		greatest = max(greatest, math.Abs(x))
	}
	if greatest == 0 {
		return nil, errZero
	}
	square := 0.0
	for _, x := range numbers {
		square += (x / greatest) * (x / greatest)
	}
	length := math.Sqrt(square)
	vector := make([]float32, len(numbers))
	for i, x := range numbers {
		vector[i] = float32(x / greatest / length)
	}
	return vector, nil
}
