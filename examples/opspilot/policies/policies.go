// Package policies holds the example policies of OpsPilot as files. A worker
// reads such files from the directory that FAIRLEAD_POLICIES names; the demo
// writes these into one.
package policies

import "embed"

// Files has opspilot.cedar and entities.json in its root.
//
//go:embed opspilot.cedar entities.json
var Files embed.FS
