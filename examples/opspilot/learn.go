package opspilot

import (
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/model/scripted"
)

// maxQuotedBytes is the longest sentence that is proposed: one that is longer
// says more than this.
const maxQuotedBytes = 300

var (
	sentences = regexp.MustCompile(`[^.!?;\n。！？；]+`)
	takesBack = regexp.MustCompile(`\b(?:forget|drop|no longer|not)\b.*\bdefault\b|\bno default\b|不再默认|取消默认|忘掉.*默认`)
)

// learn plays the model that says what of a message is worth remembering: the
// environment that is meant from now on, and nothing else. Whether it is
// remembered is for the memory policy to say.
func learn(lesson scripted.Lesson) (scripted.Turn, error) {
	var learned []scripted.Learned
	if slices.Contains(lesson.Keys, defaultEnvironmentKey) {
		for _, sentence := range sentences.FindAllString(lesson.Message, -1) {
			sentence = strings.TrimSpace(sentence)
			proposal := scripted.Learned{Kind: "profile_preference", Key: defaultEnvironmentKey, Quote: sentence}
			switch {
			case len(sentence) > maxQuotedBytes:
				continue
			case takesBack.MatchString(strings.ToLower(sentence)):
				proposal.Retracts = true
			case setsDefault(sentence):
				proposal.Value = environmentIn(sentence)
			default:
				continue
			}
			learned = append(learned, proposal)
		}
	}
	return scripted.Learn(learned...)
}
