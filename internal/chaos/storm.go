package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/codec"
	"github.com/fairlead/fairlead/internal/vault"
)

// silentLog swallows what the HTTP server says of connections that were cut.
var silentLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

// shore is where a storm happens: a migrated database, its owner's URL, and a
// Temporal server.
type shore struct {
	databaseURL                string
	temporalAddress, namespace string
	// dir is a directory for files of the storm.
	dir string
	// engine restarts the servers; nil if they are shared with others.
	engine *engine
	// out gets one line for each thing that happens.
	out io.Writer
}

// storm is one execution of a plan.
type storm struct {
	shore
	plan     plan
	size     size
	started  time.Time
	ids      []string
	client   client.Client
	queue    string
	desk     *desk
	fleet    *fleet
	people   *people
	restarts struct{ engine, postgres int }
	// encryptionKey is what the storm's content is encrypted under.
	encryptionKey string

	mu sync.Mutex
	// results are those of runs that came to an end, by run ID.
	results map[string]agent.RunResult
	// stopped are runs that were asked to stop.
	stopped map[string]bool
	// failed are workflows that ended otherwise than a run may.
	failed []error
}

// weather makes the storm happen and returns what came of it. The error is of
// the storm itself, such as a server that does not come back; what is wrong with
// the runs is in the report. Everything that it started has ended when it
// returns.
func weather(ctx context.Context, where shore, seed uint64, s size) (r report, err error) {
	began := time.Now()
	st := &storm{
		shore: where, plan: newPlan(seed, s), size: s, queue: "chaos-" + uuid.NewString(),
		results: map[string]agent.RunResult{}, stopped: map[string]bool{},
	}
	if st.encryptionKey, err = vault.GenerateLocal(); err != nil {
		return r, err
	}
	kek, err := db.LocalKey(st.encryptionKey)
	if err != nil {
		return r, err
	}
	database, err := db.Open(ctx, where.databaseURL, db.Options{MaxConns: 8, KeyEncryption: kek})
	if err != nil {
		return r, err
	}
	defer database.Close()
	if st.client, err = client.Dial(client.Options{
		HostPort: where.temporalAddress, Namespace: where.namespace, Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		DataConverter: codec.DataConverter(database),
	}); err != nil {
		return r, fmt.Errorf("dial Temporal: %w", err)
	}
	defer st.client.Close()

	// Run IDs are new each time: two storms of one seed may meet on one server.
	writes, nonce := map[writeID]writePlan{}, uuid.NewString()[:8]
	for i, run := range st.plan.runs {
		id := fmt.Sprintf("%s-%03d", nonce, i)
		st.ids = append(st.ids, id)
		for step, w := range run.writes {
			writes[writeID{id, callID(step)}] = w
		}
	}
	key := approval.NewKey()
	office, err := approval.Open(approval.Config{DB: database, Key: key, Policies: files()})
	if err != nil {
		return r, err
	}
	st.people = newPeople(office, st.client, writes)
	if st.desk, err = openDesk(writes); err != nil {
		return r, err
	}
	defer st.desk.close()
	if err := registerService(where.dir); err != nil {
		return r, err
	}
	if st.fleet, err = newFleet(s.workers, where.dir, st.settings(key)); err != nil {
		return r, err
	}
	defer st.fleet.close()

	st.started = time.Now()
	if err := st.rage(ctx); err != nil {
		return r, err
	}
	r, err = st.verify(ctx, database)
	r.add("seconds", int(time.Since(began).Seconds()))
	return r, err
}

// settings are what a worker reads from its environment.
func (s *storm) settings(key approval.Key) map[string]string {
	return map[string]string{
		envTickets: s.desk.url, envServices: s.dir, envConfirm: s.size.confirming.String(),
		"FAIRLEAD_DATABASE_URL": s.databaseURL, "FAIRLEAD_DATABASE_MAX_CONNS": "12",
		"FAIRLEAD_TASK_QUEUE": s.queue, "TEMPORAL_ADDRESS": s.temporalAddress, "TEMPORAL_NAMESPACE": s.namespace,
		"FAIRLEAD_HTTP_ADDRESS": "off", "FAIRLEAD_LOG_LEVEL": "error", "FAIRLEAD_LOG_FORMAT": "json",
		"FAIRLEAD_APPROVAL_PUBLIC_KEYS": key.Public(), "FAIRLEAD_ENCRYPTION_KEY": s.encryptionKey,
		// So tight that runs have to queue.
		"FAIRLEAD_LIMITS_MAX_RUNNING_PER_USER": "8",
	}
}

// rage carries the plan out and returns when every run has ended or the time
// for it is over.
func (s *storm) rage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.size.starting+s.size.draining)
	defer cancel()
	working, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	var people, nature, runs sync.WaitGroup
	people.Go(func() { s.people.decide(working) })
	problems := make(chan error, 3)
	nature.Go(func() { problems <- s.strike(working) })
	nature.Go(func() {
		problems <- s.restartAt(working, s.plan.engineAt, "the Temporal server", &s.restarts.engine, s.engine.restartTemporal)
	})
	nature.Go(func() {
		problems <- s.restartAt(working, s.plan.postgresAt, "PostgreSQL", &s.restarts.postgres, s.engine.restartPostgres)
	})
	for i := range s.plan.runs {
		runs.Go(func() { s.live(ctx, i) })
	}
	ended := make(chan struct{})
	go func() { runs.Wait(); close(ended) }()
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	for waiting := true; waiting; {
		select {
		case <-ended:
			waiting = false
		case <-progress.C:
			s.mu.Lock()
			s.say("%d of %d runs have ended", len(s.results), len(s.ids))
			s.mu.Unlock()
		}
	}
	nature.Wait()
	stopWorking()
	people.Wait()
	close(problems)
	var all []error
	for err := range problems {
		all = append(all, err)
	}
	return errors.Join(all...)
}

func (s *storm) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%4ds  %s\n", int(time.Since(s.started).Seconds()), fmt.Sprintf(format, args...))
}

// strike kills workers, as many as planned: a kill that was aimed at an opening
// and met none happens all the same, when the next one is due.
func (s *storm) strike(ctx context.Context) error {
	var failed []error
	var mu sync.Mutex
	missed := func() {
		if kill := s.desk.disarm(); kill != nil {
			kill()
		}
	}
	for _, k := range s.plan.kills {
		if !wait(ctx, time.Until(s.started.Add(k.at))) {
			break
		}
		missed()
		kill := func() {
			err := s.fleet.kill(k.worker)
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
		}
		if k.aim == anytime {
			kill()
		} else {
			s.desk.arm(k.aim, kill)
		}
	}
	wait(ctx, 2*time.Second)
	missed()
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(failed...)
}

// restartAt restarts a server once.
func (s *storm) restartAt(ctx context.Context, at time.Duration, what string, count *int, restart func(context.Context) error) error {
	if at == 0 || s.engine == nil || !wait(ctx, time.Until(s.started.Add(at))) {
		return nil
	}
	s.say("%s is killed and started again", what)
	if err := restart(ctx); err != nil {
		return fmt.Errorf("restart %s: %w", what, err)
	}
	*count++
	s.say("%s is back", what)
	return nil
}

// live starts a run, cancels it if that is planned, and waits for its end.
func (s *storm) live(ctx context.Context, i int) {
	planned, id := s.plan.runs[i], s.ids[i]
	if !wait(ctx, time.Until(s.started.Add(planned.at))) {
		return
	}
	workflowID := agent.WorkflowID(tenant, id)
	err := insist(ctx, func(ctx context.Context) error {
		_, err := s.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID: workflowID, TaskQueue: s.queue,
			WorkflowIDReusePolicy:                    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
			WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
			WorkflowExecutionErrorWhenAlreadyStarted: true,
		}, agent.WorkflowAgentRun, agent.RunRequest{
			RunID: id, Tenant: tenant, User: planned.user, Conversation: fmt.Sprintf("talk-%d", planned.conversation),
			Agent: "ticketer", Environment: environment, Message: message(id, len(planned.writes)),
		})
		var already *serviceerror.WorkflowExecutionAlreadyStarted
		if errors.As(err, &already) {
			return nil // an earlier try, of which no answer came back
		}
		return err
	})
	if err != nil {
		return
	}
	if planned.cancelAfter > 0 {
		s.mu.Lock()
		s.stopped[id] = true
		s.mu.Unlock()
		if wait(ctx, planned.cancelAfter) {
			_ = insist(ctx, func(ctx context.Context) error {
				err := s.client.CancelWorkflow(ctx, workflowID, "")
				var ended *serviceerror.NotFound
				if errors.As(err, &ended) {
					return nil
				}
				return err
			})
		}
	}
	result, err := s.await(ctx, workflowID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = append(s.failed, fmt.Errorf("run %s: %w", id, err))
		return
	}
	s.results[id] = result
}

// await returns the result of a run, canceled ones included.
func (s *storm) await(ctx context.Context, workflowID string) (result agent.RunResult, err error) {
	err = insist(ctx, func(ctx context.Context) error {
		err := s.client.GetWorkflow(ctx, workflowID, "").Get(ctx, &result)
		var canceled *temporal.CanceledError
		if errors.As(err, &canceled) && canceled.HasDetails() {
			return canceled.Details(&result)
		}
		var failed *temporal.WorkflowExecutionError
		if errors.As(err, &failed) {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		return err
	}, errEnded)
	return result, err
}
