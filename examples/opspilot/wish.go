package opspilot

import (
	"regexp"
	"slices"
	"strings"
)

// wish is what the user's words ask for, as far as a program without
// understanding can tell. When in doubt it is less: nothing is proposed that
// nobody asked for, and a "do not" holds until the user asks for a restart by
// that word.
type wish struct {
	// fix says that the newest message asks for a repair.
	fix bool
	// hands says that the user has said to keep the hands off.
	handsOff bool
}

var (
	clauseEnd = regexp.MustCompile(`[.,;:!?\n，。；：！？、]|\b(?:and|but|so|then)\b|并且|然后|但是|并`)

	asksToFix     = regexp.MustCompile(`\b(?:fix|repair|restart|reboot|resolve|mend|heal|recover|restore)\b|修复|修好|修一下|重启|恢复|解决`)
	asksToRestart = regexp.MustCompile(`\b(?:restart|reboot)\b|重启`)
	// toldAbout comes before the word where it is a thing and no request: "the
	// last restart", "没有恢复".
	toldAbout = regexp.MustCompile(`\b(?:the|an?|this|that|last|its|after|since)\s+(?:\w+\s+)?$|(?:没|未|已|刚|自从|上次)\p{Han}{0,3}$`)
	// done follows the word where it has happened: "重启了".
	done    = regexp.MustCompile(`^(?:了|过|后|之后|以来)`)
	forbids = regexp.MustCompile(`(?:\bnot|n['’]t|\bnever|\bwithout|\bavoid|\bno)\s(?:.*\s)?(?:fix|repair|restart|reboot|resolv|mend|heal|recover|restor)|` +
		`(?:不要|不能|不得|不可|不准|不许|禁止|无需|不用|先不|(?:^|[^特分个区级类性])别|勿)\p{Han}{0,6}(?:修复|修好|修一下|重启|恢复|解决)`)
)

// after returns the wish when the user has said this as well.
func (w wish) after(text string) wish {
	clauses := clauseEnd.Split(strings.ToLower(text), -1)
	if slices.ContainsFunc(clauses, forbids.MatchString) {
		return wish{handsOff: true}
	}
	asks := func(word *regexp.Regexp) bool {
		return slices.ContainsFunc(clauses, func(clause string) bool {
			at := word.FindStringIndex(clause)
			return at != nil && !toldAbout.MatchString(clause[:at[0]]) && !done.MatchString(clause[at[1]:])
		})
	}
	switch {
	case asks(asksToRestart):
		return wish{fix: true}
	case asks(asksToFix):
		return wish{fix: !w.handsOff, handsOff: w.handsOff}
	}
	return wish{handsOff: w.handsOff}
}
