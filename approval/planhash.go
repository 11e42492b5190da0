package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"github.com/fairlead/fairlead/tool"
)

// PlanFacts are what a person decides about, and what tells one plan from every
// other.
type PlanFacts struct {
	Tenant      string
	RunID       string
	CallID      string
	Revision    int
	Tool        string
	ToolVersion string
	// Arguments are canonical JSON (RFC 8785), as tool.Canonical returns it.
	Arguments       json.RawMessage
	Resource        string
	ResourceVersion string
	Summary         string
	// ExpiresAt counts in whole microseconds, rounded down.
	ExpiresAt time.Time
	Nonce     string
}

// planTime is RFC 3339 in UTC, always with six decimals; what is smaller is cut
// off.
const planTime = "2006-01-02T15:04:05.000000Z"

// PlanHash returns the SHA-256 in hex of the canonical JSON (RFC 8785) of an
// object with the members tenant, run_id, call_id, revision (a number), tool,
// tool_version, arguments (a string: the canonical JSON text), resource,
// resource_version, summary, expires_at (RFC 3339 in UTC with six decimals) and
// nonce. Two plans that differ in one of them differ in their hash. It returns
// an error for arguments that are not canonical and for text that is not UTF-8.
func PlanHash(f PlanFacts) (string, error) {
	canonical, err := tool.Canonical(string(f.Arguments), tool.MaxArgumentBytes)
	if err != nil {
		return "", fmt.Errorf("hash plan: arguments: %w", err)
	}
	if string(canonical) != string(f.Arguments) {
		return "", errors.New("hash plan: the arguments are not in canonical form")
	}
	object := map[string]any{
		"tenant": f.Tenant, "run_id": f.RunID, "call_id": f.CallID, "revision": f.Revision, "tool": f.Tool,
		"tool_version": f.ToolVersion, "arguments": string(canonical), "resource": f.Resource,
		"resource_version": f.ResourceVersion, "summary": f.Summary,
		"expires_at": f.ExpiresAt.UTC().Format(planTime), "nonce": f.Nonce,
	}
	for name, value := range object {
		// What is not UTF-8 would be replaced, and two texts would have one hash.
		if text, ok := value.(string); ok && !utf8.ValidString(text) {
			return "", fmt.Errorf("hash plan: %s is not valid UTF-8", name)
		}
	}
	text, err := json.Marshal(object)
	if err == nil {
		text, err = jcs.Transform(text)
	}
	if err != nil {
		// The library's error quotes the text.
		return "", errors.New("hash plan: the plan has no canonical form")
	}
	return tool.Hash(text), nil
}
