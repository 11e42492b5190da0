package agentloop

import (
	"hash/fnv"
	"strconv"

	"github.com/fairlead/fairlead/agent"
)

// window is how many actions, results and errors are remembered. It bounds the
// carried state; a repetition further apart than this is not a loop.
const window = 64

// memory holds what was seen lately, as short keys, oldest first.
type memory struct {
	Actions []string `json:"actions,omitempty"`
	Results []string `json:"results,omitempty"`
	Errors  []string `json:"errors,omitempty"`
}

// action remembers one proposed call and returns which repetition it completes,
// or the empty string (RUN-6).
func (m *memory) action(key string, rules agent.LoopRules) string {
	m.Actions = remember(m.Actions, short(key))
	if count(m.Actions, short(key)) >= rules.SameAction {
		return "same_action"
	}
	if alternates(m.Actions, rules.Cycle) {
		return "cycle"
	}
	return ""
}

// errors remembers the errors of one response and reports whether one of them
// was seen often enough. Equal errors within one response count once: the model
// has not had the chance to react to the first.
func (m *memory) errors(hashes []string, rules agent.LoopRules) bool {
	var repeated bool
	m.Errors, repeated = rememberEach(m.Errors, hashes, rules.SameError)
	return repeated
}

// results does the same for results.
func (m *memory) results(hashes []string, rules agent.LoopRules) bool {
	var repeated bool
	m.Results, repeated = rememberEach(m.Results, hashes, rules.SameResult)
	return repeated
}

func rememberEach(seen, hashes []string, limit int) ([]string, bool) {
	repeated := false
	for i, hash := range hashes {
		if count(hashes[:i], hash) > 0 {
			continue
		}
		seen = remember(seen, short(hash))
		repeated = repeated || count(seen, short(hash)) >= limit
	}
	return seen, repeated
}

// alternates reports whether the newest entries are A-B repeated cycles times.
func alternates(seen []string, cycles int) bool {
	n := 2 * cycles
	if cycles < 2 || len(seen) < n {
		return false
	}
	last := seen[len(seen)-n:]
	if last[0] == last[1] {
		return false
	}
	for i := 2; i < n; i++ {
		if last[i] != last[i-2] {
			return false
		}
	}
	return true
}

func remember(seen []string, key string) []string {
	// A copy, because states are values and must not share their tails.
	next := make([]string, 0, min(len(seen)+1, window))
	if len(seen) == window {
		seen = seen[1:]
	}
	return append(append(next, seen...), key)
}

func count(seen []string, key string) int {
	n := 0
	for _, s := range seen {
		if s == key {
			n++
		}
	}
	return n
}

// short is a 64-bit FNV-1a of key in hex. Keys are SHA-256 values with a tool
// name; 64 bits keep the carried state below 5 KB and still make an accidental
// repetition within a window of 64 as good as impossible (about 1 in 10^16).
func short(key string) string {
	h := fnv.New64a()
	h.Write([]byte(key)) // never fails, by contract of hash.Hash
	return strconv.FormatUint(h.Sum64(), 16)
}
