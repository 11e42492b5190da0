package definition

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/tool"
)

// Digest identifies the content of a definition: the SHA-256 in hex of its JSON
// in canonical form (RFC 8785), defaults included. It survives JSON encoding
// and storage as jsonb. It panics for a value whose FinalSchema is not a JSON
// object or whose numbers New refuses.
func Digest(d Definition) string {
	text, err := json.Marshal(d)
	if err != nil {
		panic("definition: digest of an invalid definition: " + err.Error())
	}
	canonical, err := tool.Canonical(string(text), 2*MaxFileBytes)
	if err != nil {
		panic("definition: digest of an invalid definition: " + err.Error())
	}
	return tool.Hash(canonical)
}

// UnmarshalJSON restores a definition that was pinned. It refuses unknown
// fields, which a newer version may have written and this one would not obey,
// but it does not validate: rules may have become stricter since.
func (d *Definition) UnmarshalJSON(data []byte) error {
	type plain Definition
	var p plain
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return fmt.Errorf("decode definition: %w", err)
	}
	if len(p.FinalSchema) > 0 {
		canonical, err := canonicalSchema(p.FinalSchema)
		if err != nil {
			return fmt.Errorf("decode definition: final_schema: %w", err)
		}
		p.FinalSchema = canonical
	}
	*d = Definition(p)
	return nil
}
