package db

import (
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// Amount is what the ledger counts.
type Amount struct {
	Tokens int64
	// CostMicros is nil when the model has no price: unknown, not zero.
	CostMicros *int64
}

// Totals is what a run consumed.
type Totals struct {
	// Usage is the sum of the settled attempts, and of open ones at what they
	// reserved.
	Usage agent.Usage
	// OpenAttempts counts reservations without a settle.
	OpenAttempts int
	// LastStep is the newest step with an attempt.
	LastStep int
}

func toTotals(row dbsqlc.RunTotalsRow) Totals {
	return Totals{
		Usage: agent.Usage{
			Attempts: int(row.Attempts), InputTokens: row.InputTokens, CachedInputTokens: row.CachedInputTokens,
			OutputTokens: row.OutputTokens, BilledTokens: row.BilledTokens, CostMicros: row.CostMicros,
			UnknownAttempts: int(row.UnknownAttempts), UnpricedAttempts: int(row.UnpricedAttempts),
		},
		OpenAttempts: int(row.OpenAttempts), LastStep: int(row.LastStep),
	}
}
