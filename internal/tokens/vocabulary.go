package tokens

import (
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"
)

// maxSpace bounds, in bytes, the white space that the library is given at once.
// Its time grows with the square of a run of white space with line ends in it:
// 256 KiB of " \n" take 44 s. In pieces of this size they take 0.06 s.
const maxSpace = 256

// vocabulary returns a function that counts by a vocabulary. Text with a run of
// more than maxSpace bytes of white space may have a token more for each piece.
func vocabulary(encoding tokenizer.Encoding) func(text string) int64 {
	load := sync.OnceValue(func() tokenizer.Codec {
		codec, err := tokenizer.Get(encoding)
		if err != nil {
			panic(err) // For allows only what the library has
		}
		return codec
	})
	return func(text string) (sum int64) {
		codec := load()
		for len(text) > 0 {
			end := pieceEnd(text)
			n, err := codec.Count(text[:end])
			if err != nil {
				// A token is at least one byte.
				n = end
			}
			sum += int64(n)
			text = text[end:]
		}
		return sum
	}
}

// pieceEnd returns where to cut text so that what comes before has no run of
// more than maxSpace bytes of white space. A cut lies inside of such a run.
func pieceEnd(text string) int {
	run := 0
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(text[i:])
		}
		if !unicode.IsSpace(r) {
			run = 0
		} else if run += size; run > maxSpace {
			return i
		}
		i += size
	}
	return len(text)
}
