package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/vault"
)

// verdictPatience is how long a correction or decision waits for the worker.
const verdictPatience = 30 * time.Second

// begin starts a job and says what keeps it from being started.
func (a *app) begin(ctx context.Context, temporal engine, j job) error {
	switch err := temporal.Begin(ctx, j); {
	case err == nil:
		return nil
	case ctx.Err() != nil && unsent(err):
		return interruptedBeforeSending()
	case ctx.Err() != nil:
		return &exit{exitInterrupted, "interrupted; the request may have been sent or not, and asking again is safe"}
	case errors.Is(err, errExists):
		return &exit{exitRunFailed, fmt.Sprintf("the same is under way already (workflow %s); ask again when it has ended", j.workflowID)}
	case errors.Is(err, db.ErrUnavailable), errors.Is(err, db.ErrNoVault), errors.Is(err, db.ErrKeysDestroyed), errors.Is(err, vault.ErrWrapped):
		// Nothing was sent: there are no keys to seal it with.
		return a.explainMemory(err, "")
	case unreachable(err):
		return &exit{exitUnreachable, "Temporal did not answer in time; the request may have been sent or not, and asking again is safe"}
	default:
		return fmt.Errorf("send the request: %w", err)
	}
}

// unsent reports whether an interrupted request failed before it left: the keys to
// seal it with come from the database.
func unsent(err error) bool {
	var stored *db.Error
	return errors.As(err, &stored)
}

func interruptedBeforeSending() error {
	return &exit{exitInterrupted, "interrupted; nothing was sent"}
}

// await waits for a job's end and reads its result into result. waits, if not
// nil, is asked again and again and says what the job waits for.
func (a *app) await(ctx context.Context, temporal engine, j job, result any, waits func(context.Context, engine) []string) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- temporal.Await(waiting, j.workflowID, result) }()
	ticker := time.NewTicker(orElse(a.quietFor, quietFor))
	defer ticker.Stop()
	said := map[string]bool{}
	once := func(line string) {
		if !said[line] {
			said[line] = true
			a.notice("%s", line)
		}
	}
	for {
		select {
		case err := <-ended:
			if ctx.Err() != nil {
				return a.stoppedWaiting(j)
			}
			return jobFailed(err)
		case <-ctx.Done():
			return a.stoppedWaiting(j)
		case <-ticker.C:
			if waits != nil {
				for _, line := range waits(ctx, temporal) {
					once(line)
				}
			}
			if served, err := temporal.Served(ctx); err == nil && !served {
				once(a.noWorker())
			}
		}
	}
}

func (a *app) noWorker() string {
	return fmt.Sprintf("No worker takes work from task queue %s: it is done when one is started (worker run).", a.settings.TaskQueue)
}

func (a *app) stoppedWaiting(j job) error {
	a.notice("\nStopped waiting. The request was sent and goes on (workflow %s).", j.workflowID)
	return &exit{code: exitInterrupted}
}

// jobFailed explains a job that ended without a result.
func jobFailed(err error) error {
	var (
		application *temporal.ApplicationError
		failed      *workflowFailed
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &application):
		return &exit{exitRunFailed, "the worker gave it up: " + application.Message()}
	case errors.As(err, &failed), errors.Is(err, errUnknownRun):
		return &exit{exitRunFailed, "it was ended from outside before it was done; asking again is safe"}
	case unreachable(err):
		return &exit{exitUnreachable, "Temporal did not answer; the request was sent and goes on, and asking again is safe"}
	}
	return fmt.Errorf("wait for the worker: %w", err)
}

// verdictWait waits for what becomes of a proposal.
type verdictWait struct {
	engine     engine
	memories   memories
	tenant, id string
	// sent names what was sent: correction or decision.
	sent string
	// done says that a candidate is decided; refused, if not nil, why a decision
	// about it was not believed.
	done    func(db.MemoryCandidate) bool
	refused func(context.Context) error
}

func (w verdictWait) workflowID() string { return agent.MemoryWriteWorkflowID(w.tenant, w.id) }

func (w verdictWait) look(ctx context.Context) (db.MemoryCandidate, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return w.memories.CandidateOfTenant(ctx, w.tenant, w.id)
}

// awaitVerdict looks at a candidate until it is decided, for verdictPatience at
// most. A candidate that is not there yet is on its way.
func (a *app) awaitVerdict(ctx context.Context, w verdictWait) (c db.MemoryCandidate, err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var verdict agent.MemoryVerdict
	ended := make(chan error, 1)
	go func() { ended <- w.engine.Await(waiting, w.workflowID(), &verdict) }()
	ticker := time.NewTicker(orElse(a.pollEvery, pollEvery))
	defer ticker.Stop()
	patience := time.NewTimer(verdictPatience)
	defer patience.Stop()
	for {
		c, err = w.look(ctx)
		switch {
		case err == nil && w.done(c):
			return c, nil
		// A database that is away for a moment is asked again.
		case err != nil && ctx.Err() == nil && !errors.Is(err, db.ErrNotFound) && !errors.Is(err, db.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			return c, a.explainMemory(err, "")
		}
		if w.refused != nil {
			if err := w.refused(ctx); err != nil {
				return c, err
			}
		}
		select {
		case <-ctx.Done():
			return c, a.stoppedWaiting(job{workflowID: w.workflowID()})
		case <-patience.C:
			return c, a.undecided(ctx, w)
		case err := <-ended:
			if ctx.Err() != nil || unreachable(err) {
				continue
			}
			return a.lastVerdict(ctx, w, verdict, err)
		case <-ticker.C:
		}
	}
}

// lastVerdict is for a write whose workflow has ended.
func (a *app) lastVerdict(ctx context.Context, w verdictWait, verdict agent.MemoryVerdict, err error) (db.MemoryCandidate, error) {
	if err != nil {
		return db.MemoryCandidate{}, jobFailed(err)
	}
	if c, err := w.look(ctx); err == nil && w.done(c) {
		return c, nil
	}
	return db.MemoryCandidate{
		ID: verdict.ID, State: verdict.State, Record: verdict.Record, RecordVersion: verdict.Version,
		Rules: verdict.Rules, PolicyVersion: verdict.PolicyVersion, PolicyDigest: verdict.PolicyDigest,
	}, nil
}

// undecided is for a write that nobody decided in time. It is not lost.
func (a *app) undecided(ctx context.Context, w verdictWait) error {
	why := "see starter memory list"
	if served, err := w.engine.Served(ctx); err == nil && !served {
		why = fmt.Sprintf("no worker takes work from task queue %s (worker run starts one)", a.settings.TaskQueue)
	}
	return &exit{exitUnreachable, fmt.Sprintf("the %s was sent and is kept, but nothing came of it within %s (proposal %s); %s", w.sent, verdictPatience, w.id, why)}
}

type verdictDocument struct {
	ID      string            `json:"id"`
	State   agent.MemoryState `json:"state"`
	Record  string            `json:"record,omitempty"`
	Version int               `json:"version,omitempty"`
	// DecideUntil is until when somebody may decide about a waiting one.
	DecideUntil time.Time               `json:"decide_until,omitzero"`
	DecidedBy   string                  `json:"decided_by,omitempty"`
	Policy      *policyDecisionDocument `json:"policy,omitempty"`
}

// printVerdict shows what was decided, and turns it into an exit code.
func (a *app) printVerdict(c db.MemoryCandidate) error {
	v := c.Verdict()
	if a.json {
		err := printJSON(a.out, verdictDocument{v.ID, v.State, v.Record, v.Version, v.Until, c.DecidedBy, toPolicyDecision(v.PolicyVersion, v.PolicyDigest, v.Rules)}, "  ")
		if err != nil {
			return err
		}
	}
	line := ""
	switch v.State {
	case agent.MemoryStored:
		line = fmt.Sprintf("Stored: memory %s, version %d.", v.Record, v.Version)
		if v.Record == "" {
			line = "Taken back: nothing is remembered under this key any more."
		}
	case agent.MemoryMerged:
		line = fmt.Sprintf("The same is remembered already: memory %s, version %d.", v.Record, v.Version)
	case agent.MemoryWaitingReview:
		line = fmt.Sprintf("A reviewer has to decide until %s: %s", clock(v.Until), howToDecide(c))
	case agent.MemoryWaitingConfirmation:
		line = fmt.Sprintf("The user has to confirm it until %s: %s", clock(v.Until), howToDecide(c))
	case agent.MemoryRejected:
		return &exit{exitRunFailed, "the policy refuses it: " + lastRule(v.Rules)}
	case agent.MemoryDeclined:
		return &exit{exitRunFailed, "declined" + by(c.DecidedBy)}
	case agent.MemoryExpired:
		return &exit{exitRunFailed, "nobody decided in time, and it is not remembered"}
	case agent.MemoryProposed, agent.MemoryNotSaved:
		return &exit{exitUnreachable, string(agent.MemoryNotSaved) + ": memory cannot be written now; the proposal is on record and is judged again by and by"}
	}
	if !a.json {
		fmt.Fprintln(a.out, a.paint(memoryStateStyle(v.State), line))
	}
	return nil
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + who
}

// lastRule is the reason of a rejection.
func lastRule(rules []agent.MemoryRule) string {
	if len(rules) == 0 {
		return "no rule admits it"
	}
	last := rules[len(rules)-1]
	return fmt.Sprintf("%s (rule %s)", last.Text, last.ID)
}

// printReceipt shows what was erased.
func (a *app) printReceipt(r agent.ErasureReceipt) error {
	if a.json {
		return printJSON(a.out, r, "  ")
	}
	fmt.Fprintf(a.out, "Forgotten: %s (%s) and %s of user %s in tenant %s.\n",
		plural(r.Records, "memory", "memories"), count(r.Versions, "version"), count(r.Candidates, "proposal"), r.Subject, r.Tenant)
	fmt.Fprintf(a.out, "Removed from the indexes: %s, %s.\n", count(r.Vectors, "vector"), count(r.Keywords, "keyword row"))
	if r.KeysDestroyed {
		fmt.Fprintln(a.out, "The user's keys are destroyed: nobody can read what else was stored of the user.")
	}
	fmt.Fprintln(a.out, a.paint(dim, fmt.Sprintf("receipt %s  asked for by %s  done %s", r.ID, oneLine(r.By, 128), clock(r.At))))
	return nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
