package summary

import (
	"strconv"
	"strings"
)

var englishNumerals = func() map[string]int {
	values := map[string]int{"dozen": 12, "hundred": 100, "thousand": 1_000, "million": 1_000_000, "once": 1, "twice": 2}
	for i, word := range strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen") {
		values[word] = i
	}
	for i, word := range strings.Fields("twenty thirty forty fifty sixty seventy eighty ninety") {
		values[word] = 10 * (i + 2)
	}
	return values
}()

// hanNumerals are digits and, from ten on, what multiplies.
var hanNumerals = map[rune]int{
	'零': 0, '〇': 0, '一': 1, '二': 2, '两': 2, '兩': 2, '三': 3, '四': 4, '五': 5, '六': 6, '七': 7, '八': 8, '九': 9,
	'十': 10, '百': 100, '千': 1_000, '万': 10_000, '萬': 10_000,
}

// numerals returns the numbers that the folded text spells in words, in the form
// of a token. They stand for the same number in digits on either side, but need
// not be kept: "one" and 一 are too common.
func numerals(text string) map[string]bool {
	found := map[string]bool{}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return !wordRune(r) }) {
		if value, ok := englishNumerals[word]; ok {
			found[strconv.Itoa(value)] = true
		}
	}
	var run []rune
	flush := func() {
		if len(run) > 0 && len(run) <= 12 {
			found[strconv.Itoa(hanNumber(run))] = true
		}
		run = run[:0]
	}
	for _, r := range text {
		if _, ok := hanNumerals[r]; ok {
			run = append(run, r)
		} else {
			flush()
		}
	}
	flush()
	return found
}

// hanNumber reads 三百二十 as 320 and 二〇二六 as 2026.
func hanNumber(run []rune) int {
	total, section, digit := 0, 0, 0
	positional := true
	for _, r := range run {
		positional = positional && hanNumerals[r] < 10
	}
	for _, r := range run {
		value := hanNumerals[r]
		switch {
		case positional:
			total = 10*total + value
		case value < 10:
			digit = value
		case value == 10_000:
			total += max(section+digit, 1) * value
			section, digit = 0, 0
		default:
			section += max(digit, 1) * value
			digit = 0
		}
	}
	if positional {
		return total
	}
	return total + section + digit
}
