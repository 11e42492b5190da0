package dev

import (
	"net/url"
	"regexp"
	"strings"
)

// redact hides the password of a database address. Only `env` prints it whole, because programs need it.
func redact(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "(DATABASE_URL)"
	}
	return u.Redacted()
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,-]+$`)

// shellQuote makes one word of a POSIX shell.
func shellQuote(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
