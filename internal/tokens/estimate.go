package tokens

import "github.com/tiktoken-go/tokenizer"

// estimateBy is the vocabulary that the estimate is made from. It is the older
// of the two that are in use, and has more tokens than o200k_base for nearly all
// that is not English: 1.3 times as many for Chinese, 1.5 for Japanese and
// Korean, 3 for Hindi.
const estimateBy = tokenizer.Cl100kBase

// estimate returns a function that estimates high: half as many tokens again as
// the vocabulary has, and half a token for each digit, because there are
// vocabularies with a token for each digit and none for more. TestEstimate holds
// what that comes to: about 1.5 times o200k_base for English and code, twice for
// Chinese, Japanese, Korean, hashes and emoji.
func estimate(count func(text string) int64) func(text string) int64 {
	return func(text string) int64 {
		digits := int64(0)
		for i := range len(text) {
			if '0' <= text[i] && text[i] <= '9' {
				digits++
			}
		}
		return (3*count(text) + digits + 1) / 2
	}
}
