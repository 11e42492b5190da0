package activities

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// Memory is where long-term memory lives. *db.DB is the one for production;
// package agenttest has one in memory. A room's user is authenticated; that the
// user takes part in group and project is checked by each method, and whoever
// does not sees what somebody sees where nothing is.
type Memory interface {
	// ProposeMemory puts a candidate on record: as rejected and without its
	// content, or as proposed. Done again with the same candidate it returns what
	// is on record, with another one db.ErrOtherRequest.
	ProposeMemory(ctx context.Context, c db.MemoryCandidate) (db.MemoryCandidate, error)
	// MemoryCandidate returns a candidate of the room's user: db.ErrNotFound.
	MemoryCandidate(ctx context.Context, room agent.MemoryRoom, id string) (db.MemoryCandidate, error)
	// RunCandidates returns what a run of the room's user has proposed, oldest first,
	// decided or not.
	RunCandidates(ctx context.Context, room agent.MemoryRoom, runID string) ([]db.MemoryCandidate, error)
	// InMemory runs fn in a transaction on behalf of the room, with the keys of
	// one of its scopes, and commits if fn returns nil. fn may be run again.
	InMemory(ctx context.Context, room agent.MemoryRoom, scope agent.MemoryScope, fn func(MemoryTx) error) error

	// Recall finds what is remembered, best first: db.ErrNotFound never. Every hit
	// was read from its primary row, in force at q.Now.
	Recall(ctx context.Context, room agent.MemoryRoom, q db.RecallQuery) ([]db.RecallHit, error)
	// GiveMemories records which memories a run was given. The first time holds:
	// it returns how many the run has been given.
	GiveMemories(ctx context.Context, room agent.MemoryRoom, runID string, hits []db.RecallHit) (int, error)
	// GivenMemories returns what a run was given, as far as it is in force at now
	// in the version that was given, in order of rank.
	GivenMemories(ctx context.Context, room agent.MemoryRoom, runID string, now time.Time) ([]db.MemoryRecord, error)

	// LessonSource reads what a run can be learned from: db.ErrNotFound.
	LessonSource(ctx context.Context, ref agent.RunRef) (db.LessonSource, error)
	// CloseLesson records that a lesson is done or, with a failure, has failed;
	// billed is what the model calls of its last try cost.
	CloseLesson(ctx context.Context, ref agent.RunRef, failure string, billed db.Amount) error
	// TryLesson records that a try that cost billed brought nothing. The most-th
	// one closes the lesson as failed; it reports whether the lesson is closed.
	TryLesson(ctx context.Context, ref agent.RunRef, most int, failure string, billed db.Amount) (closed bool, err error)

	// Embedders says of which embedders there are vectors. One that is not known
	// becomes serving if none is, else building.
	Embedders(ctx context.Context, current db.MemoryEmbedder) (db.EmbedderState, error)
	// Unembedded returns up to limit records in force without a vector of the
	// embedder, of one tenant, by ID from the one behind after.
	Unembedded(ctx context.Context, tenant string, e db.MemoryEmbedder, after string, limit int) ([]db.MemoryRecord, error)
	// StoreVector adds the vector of a record version that is still in force.
	StoreVector(ctx context.Context, tenant string, r db.MemoryRecord, e db.MemoryEmbedder, vector []float32) error
	// PromoteEmbedder makes the embedder serving and drops the vectors of others,
	// at most limit of them at a time; it reports whether all are gone.
	PromoteEmbedder(ctx context.Context, e db.MemoryEmbedder, limit int) (bool, error)

	// ForgetMemory writes tombstones, which reads obey at once, and purges at most
	// limit records with all that was derived from them.
	ForgetMemory(ctx context.Context, in agent.ForgetInput, limit int) (agent.ErasureStep, error)
	// EraseSubject is ForgetMemory for everything that belongs to a user or comes
	// from one; it destroys the user's keys at its end.
	EraseSubject(ctx context.Context, in agent.EraseInput, limit int) (agent.ErasureStep, error)
	// MemoryTenants lists the tenants that have memory.
	MemoryTenants(ctx context.Context) ([]string, error)
	// ReconcileMemory finds and repairs at most limit pieces in one tenant. What
	// was due before staleSince and is not decided is listed to be tried again.
	ReconcileMemory(ctx context.Context, tenant string, now, staleSince time.Time, limit int) (agent.ReconcileReport, error)
}

// MemoryTx is a transaction of a Memory. What its methods queue happens at the
// commit.
type MemoryTx interface {
	// HoldCandidate reads a candidate of the room and keeps it from being decided
	// elsewhere before the transaction ends: db.ErrNotFound.
	HoldCandidate(ctx context.Context, id string) (db.MemoryCandidate, error)
	// HoldIdentity reads the versions in force of the records that have key and
	// identity in the scope, and keeps others from writing there before the
	// transaction ends.
	HoldIdentity(ctx context.Context, key, identity string) ([]db.MemoryRecord, error)
	// Hash is the keyed hash of a normalized value.
	Hash(value []byte) string
	// StoreRecord adds a version in force, with what it is found by.
	StoreRecord(r db.MemoryRecord, index db.MemoryIndex)
	// EndRecord ends a version in force and removes what it was found by. It must
	// be queued before the version that takes its place.
	EndRecord(r db.MemoryRecord, status db.MemoryStatus, by string, at time.Time)
	// LastRetraction is when what had key and identity in the scope was last taken
	// back, zero if never.
	LastRetraction(ctx context.Context, key, identity string) (db.Retraction, error)
	// RepeatRecord notes that a version in force was said again, and keeps it until
	// then at least, nil for as long as before.
	RepeatRecord(r db.MemoryRecord, at time.Time, until *time.Time)
	// UpdateCandidate stores what was decided about a candidate that is held, with
	// its content unless that is nil; in a final state its content is cleared.
	UpdateCandidate(c db.MemoryCandidate)
	// Audit adds an entry of the audit trail.
	Audit(e db.MemoryAudit)
}
