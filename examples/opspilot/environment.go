package opspilot

import (
	"fmt"
	"regexp"
	"strings"
)

// environments are the words by which people name them.
var environments = []struct {
	name  string
	words *regexp.Regexp
}{
	{"production", regexp.MustCompile(`\b(?:production|prod)\b|生产|线上`)},
	{"staging", regexp.MustCompile(`\bstaging\b|预发`)},
	{"test", regexp.MustCompile(`\btest(?:ing)?\b|测试`)},
}

// environmentIn is the environment that a text names, "" if it names none or
// several.
func environmentIn(text string) (found string) {
	text = strings.ToLower(text)
	for _, e := range environments {
		switch {
		case !e.words.MatchString(text):
		case found != "":
			return ""
		default:
			found = e.name
		}
	}
	return found
}

var standing = regexp.MustCompile(`\bfrom now on\b|\bby default\b|\bdefault to\b|\balways (?:use|take|look)\b|\bmy default\b|以后|默认`)

// setsDefault says that the text wants an environment to be the one that is
// meant without being named. What becomes of it is for the memory policy to say.
func setsDefault(text string) bool {
	return environmentIn(text) != "" && standing.MatchString(strings.ToLower(text))
}

// choose tells services of one name in several environments apart: by the one
// that the user's words name, else by the one that is remembered as meant. What
// is remembered never stands against present words. because says so in the
// answer when memory decided.
func (s observed) choose(found foundServices) (service foundService, because string, chosen bool) {
	environment := s.environment
	if environment == "" {
		var from remembered
		if environment, from, chosen = s.known.defaultEnvironment(); !chosen {
			return service, "", false
		}
		because = fmt.Sprintf(s.phrases.because, environment, from.ID)
	}
	matches := 0
	for _, candidate := range found.Services {
		if lettersAndDigits(candidate.Name) == lettersAndDigits(found.Query) && candidate.Environment == environment {
			service = candidate
			matches++
		}
	}
	return service, because, matches == 1
}
