package activities

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// giveMargin is how long before the end of its time a Recall stops giving: the
// answer must reach the workflow, or the ledger says that the run was given what it
// never saw.
const giveMargin = 500 * time.Millisecond

// give records what a run is given, unless the time that is left is too short to
// tell the run of it. Only a store that commits and does not answer in that time
// is ahead of the run.
func (r *Runs) give(ctx context.Context, room agent.MemoryRoom, runID string, hits []db.RecallHit) (int, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, deadline.Add(-giveMargin))
		defer stop()
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return r.memory.GiveMemories(ctx, room, runID, hits)
}
