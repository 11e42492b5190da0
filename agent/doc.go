// Package agent holds the words that callers, workflows and activities share:
// requests, results, statuses, reasons, budgets, and the names of workflows,
// activities, signals and queries.
//
// Everything here may enter a Temporal history, so its types carry identifiers,
// decisions, counts and hashes. The one piece of content is
// RunRequest.Message, which appears in the first event of a run's history only.
//
// The package imports the standard library alone, so a backend service that
// starts runs links neither a database driver nor a model SDK.
package agent
