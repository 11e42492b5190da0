package services

import (
	"regexp"
	"strings"
	"time"
)

// A supervisor restarts its service when it is asked to, on
// Record.ControlAddress.
const (
	// RestartPath takes a POST with KeyHeader and VersionHeader and answers when
	// the new process serves:
	//
	//	200  a Restart. The same key again gets the recorded one, and nothing is
	//	     restarted a second time.
	//	409  CodeKeyUsed: the key is recorded for another version.
	//	412  CodeVersionChanged: the service is not at that version. Nothing was
	//	     done, and the key is not recorded.
	//	400, 503  CodeMalformed, CodeNotAccepted: nothing was done.
	//
	// After any other answer, or none, look the key up.
	RestartPath = "/restart"
	// RestartsPath with a key behind it is the look-up: 200 and a Restart that is
	// done, 202 and one that is under way, 404 with CodeUnknownKey.
	RestartsPath = "/restarts/"

	// KeyHeader is the caller's idempotency key, 64 hexadecimal digits.
	KeyHeader = "Idempotency-Key"
	// VersionHeader is the version that the service must have, as EntityTag.
	VersionHeader = "If-Match"
)

// The closed set of codes in a Problem of a supervisor.
const (
	CodeMalformed      = "malformed"
	CodeKeyUsed        = "key_used"
	CodeVersionChanged = "version_changed"
	CodeUnknownKey     = "unknown_key"
	CodeNotAccepted    = "not_accepted"
	CodeRestartFailed  = "restart_failed"
)

// Problem is the body of an unsuccessful answer.
type Problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// RestartState is how far a restart has come.
type RestartState string

// The closed set of states.
const (
	// RestartBegun: the old process is being stopped or the new one started.
	RestartBegun RestartState = "begun"
	// RestartDone: the process of FromVersion has ended and that of ToVersion
	// serves.
	RestartDone RestartState = "done"
)

// Restart is what a supervisor records of one restart.
type Restart struct {
	Key         string       `json:"key"`
	State       RestartState `json:"state"`
	FromVersion string       `json:"from_version"`
	// ToVersion and RestartedAt, the start of the new process, are set when State
	// is RestartDone.
	ToVersion   string    `json:"to_version,omitempty"`
	RestartedAt time.Time `json:"restarted_at,omitzero"`
}

var keyPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ValidKey reports whether s can be the key of a restart.
func ValidKey(s string) bool { return keyPattern.MatchString(s) }

// EntityTag returns a version in the form that VersionHeader has (RFC 9110).
func EntityTag(version string) string { return `"` + version + `"` }

// ParseEntityTag returns the version of a strong entity tag.
func ParseEntityTag(tag string) (version string, ok bool) {
	version, ok = strings.CutPrefix(tag, `"`)
	if ok {
		version, ok = strings.CutSuffix(version, `"`)
	}
	return version, ok && version != "" && !strings.Contains(version, `"`)
}
