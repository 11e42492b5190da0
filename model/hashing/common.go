package hashing

import "strings"

// common are the English words that are in every text and tell none apart. They
// count a little, so that a text of nothing else still has a direction.
var common = func() map[string]bool {
	const words = `a about after again all also always am an and any anything are as at be because been before being but by can could
		d did do does doing don done each either else ever every everything for from get go got had has have having he her here hers him his how
		i if in into is isn it its just let like ll m make many may me might more most much must my need needs no nor not now of off on once one only or other
		our ours out over own please re s same shall she should so some someone something such t than that the their them then there these they thing things this
		those through to too under until up us use used uses using ve very want wants was we were what when where which while who whom whose why will with would
		yes you your yours`
	set := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}()

// commonSigns are the Chinese ones, with the grammar of Japanese.
var commonSigns = func() map[rune]bool {
	const signs = "的了吗呢吧啊呀嘛我你您他她它们咱这那哪谁什么怎样是在有和与及或就都也很还又再不没无未把被给对为从到由于而且但却如若则因以之其此该个一些几请让使用要能可应该该" +
		"這個們嗎為對從與無沒應該請讓後よのはがをにでとへもやかなだですますたしてるいこそあれらりく"
	set := map[rune]bool{}
	for _, r := range signs {
		set[r] = true
	}
	return set
}()
